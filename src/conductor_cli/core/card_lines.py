"""Workers and their cards as a planner reads them: a line for each worker, and a table of who is good at what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from conductor_cli.core.plan_formats.base import PlanFormatContext
from conductor_cli.core.pool import RATED, Worker
from conductor_cli.core.profile import Profile
from conductor_cli.core.sanitize import one_line

SKILLS: Final = 12
"""Rows of the table: the skills that most cards have."""

RANKED: Final = 6
"""Workers in a row of the table: the best ones."""


def worker_lines(workers: Sequence[Worker], profile: Profile, context: PlanFormatContext) -> list[str]:
    """A line for each worker, of at most about 50 tokens, and the table of strengths if the profile has one."""
    lines = [_line(context.label(worker.name), worker, profile) for worker in workers]
    if not context.skills:
        return lines
    return [*lines, "", "Strengths from 0 to 100, the best worker first:", *_table(workers, context)]


def skills_for(workers: Sequence[Worker], profile: Profile) -> tuple[str, ...]:
    """The rows of the table: what most cards have a figure for. Empty if the profile has no table."""
    if profile.cards != "table" or not profile.names:
        return ()
    found = Counter(_skill(tag) for worker in workers for tag in worker.card.strengths if tag != RATED)
    return tuple(skill for skill, _ in found.most_common(SKILLS) if skill)


def _table(workers: Sequence[Worker], context: PlanFormatContext) -> list[str]:
    """A row for each skill. A row begins as the worker column of a plan does, so that the choice is what follows."""
    cards = {
        context.label(worker.name): {_skill(tag): value for tag, value in worker.card.strengths.items()}
        for worker in workers
    }
    rows = []
    for skill in context.skills:
        known = [(label, card[skill]) for label, card in cards.items() if skill in card]
        best = sorted(known, key=lambda item: -item[1])[:RANKED]
        rows.append(f"- {skill} " + ", ".join(f"{label} {100 * value:.0f}" for label, value in best))
    return rows


def _skill(tag: str) -> str:
    """A tag as a skill is written: short, on one line, without what separates columns."""
    return " ".join(one_line(tag).replace("|", " ").split())[:24].strip()


def _line(label: str, worker: Worker, profile: Profile) -> str:
    """Label, name, model, what it is about, and what of its card stands in no table; or the label and nothing more."""
    if not profile.names:
        return label
    model = one_line(worker.model_name)[:48]
    # A worker that is named after its model needs no second name.
    short = model.rpartition("/")[2].removesuffix(":latest").replace(":", "-").lower()
    named_after = worker.name.lower().startswith(short)
    about = ", ".join(filter(None, ("" if named_after else model, one_line(worker.about))))
    named = f"{one_line(worker.name)}: {about}" if about else one_line(worker.name)
    words = "" if worker.card.strengths.keys() - {RATED} else one_line(worker.card.words)[:60]
    strengths = worker.card.strengths
    if profile.cards == "table":
        strengths = {tag: value for tag, value in strengths.items() if tag == RATED}
    card = ", ".join(filter(None, (words, _format_card(strengths))))
    return f"{label}  {named[:100]}" + (f" ({card})" if card else "")


def _format_card(strengths: Mapping[str, float]) -> str:
    """The four strongest tags of a card, with their strengths."""
    best = sorted(strengths.items(), key=lambda item: -item[1])[:4]
    return ", ".join(f"{one_line(tag)[:24]} {value:.2f}" for tag, value in best)

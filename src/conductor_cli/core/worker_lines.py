"""Describes workers to a planner: a line for each, and a table of strengths or of kinds of work.

The brief prompt has a table by skill: with cards on the workers' lines a model of 135 million
weights chose at chance, because it has to compare figures across lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from conductor_cli.core.kinds_of_work import KINDS, other_tags
from conductor_cli.core.plan_formats import PlanFormatContext
from conductor_cli.core.pool import RATED, Pool, Worker
from conductor_cli.core.profile import Profile
from conductor_cli.core.terminal_text import one_line

MAX_SKILLS: Final = 12  # Rows of the table: the skills that most cards have
MAX_RANKED: Final = 6  # Workers in a row of the table: the best ones
MAX_OTHER_TAGS: Final = 8  # Rows of the table of kinds for tags of cards that belong to no kind


def listed_workers(pool: Pool, profile: Profile) -> tuple[Worker, ...]:
    """Return the workers in the order of their labels.

    For an untrained planner those with the best cards come first, equal ones by name, so that the
    order of the user's file decides nothing. Without figures that order is the ranking.
    """
    if not profile.untrained:
        return pool.workers
    return tuple(sorted(pool.workers, key=_rank))


CLOSE_CARDS: Final = 0.1


def are_cards_close(pool: Pool) -> bool:
    """Return whether the two best cards have figures with means that are about equal.

    Then the order of the labels says nothing, and a planner's habit of the first one neither. Where
    one card is the best, or the user's order is the ranking, that habit is a fair choice.
    """
    means = sorted((worker.card.mean() for worker in pool), reverse=True)
    return len(means) > 1 and means[1] > 0 and means[0] - means[1] < CLOSE_CARDS


def _rank(worker: Worker) -> tuple[float, str]:
    mean = worker.card.mean()
    return (-mean, worker.name if mean else "")


def worker_lines(
    workers: Sequence[Worker], profile: Profile, context: PlanFormatContext
) -> list[str]:
    """Return a line for each worker, of at most about 50 tokens, and the profile's table if any."""
    lines = [_line(context.label(worker.name), worker, profile) for worker in workers]
    if context.skills and profile.cards == "kinds":
        lines += ["", *_table_of_kinds(context)]
    elif context.skills:
        lines += ["", *_skill_table(workers, context)]
    return lines


def _table_of_kinds(context: PlanFormatContext) -> list[str]:
    """Return a row for each kind of work, and for each tag of the cards that belongs to none."""
    lines = ["Kinds of work, the best worker first:"]
    lines += [f"- {skill} {', '.join(labels)}" for skill, labels in context.rows.items()]
    return lines


def _skill_table(workers: Sequence[Worker], context: PlanFormatContext) -> list[str]:
    cards = {context.label(worker.name): _skills_of(worker) for worker in workers}
    lines = ["Strengths from 0 to 100, the best worker first:"]
    for skill in context.skills:
        values = [(label, card[skill]) for label, card in cards.items() if skill in card]
        cells = [f"{label} {100 * value:.0f}" for label, value in _best(values, MAX_RANKED)]
        # A row begins as the worker column of a plan does, so that the choice is what follows.
        lines.append(f"- {skill} {', '.join(cells)}")
    return lines


def _best(values: Iterable[tuple[str, float]], count: int) -> list[tuple[str, float]]:
    """Return the names with the largest values, the largest first."""
    return sorted(values, key=lambda item: -item[1])[:count]


def skills_for(workers: Sequence[Worker], profile: Profile) -> tuple[str, ...]:
    """Return the rows of the table: what most cards have a figure for.

    Empty if the profile has no table.
    """
    if profile.cards == "lines" or not profile.names:
        return ()
    if profile.cards == "kinds":
        return _kinds_for(workers)
    counts = Counter[str]()
    for worker in workers:
        counts.update(_skill(tag) for tag in worker.card.strengths if tag != RATED)
    return tuple(skill for skill, _ in counts.most_common(MAX_SKILLS) if skill)


def _kinds_for(workers: Sequence[Worker]) -> tuple[str, ...]:
    """Return the rows of the table of kinds; none for one worker, where there is no choice."""
    if len(workers) < 2:
        return ()
    others = (tag for tag in other_tags(workers) if tag == _skill(tag))
    return (*KINDS, *islice(others, MAX_OTHER_TAGS))


def _skills_of(worker: Worker) -> dict[str, float]:
    return {_skill(tag): value for tag, value in worker.card.strengths.items()}


def _skill(tag: str) -> str:
    return " ".join(one_line(tag).replace("|", " ").split())[:24].strip()


def _line(label: str, worker: Worker, profile: Profile) -> str:
    """Return label, name, model, what it is about, and its best strengths that stand in no table.

    Or the label alone.
    """
    if not profile.names:
        return label
    line = f"{label}  {_name_and_description(worker)[:100]}"
    card = ", ".join(_card_parts(worker, profile))
    if card:
        line += f" ({card})"
    learned = one_line(profile.guide.workers.get(worker.name, ""))
    if learned:
        line += f". {learned}"
    return line


def _name_and_description(worker: Worker) -> str:
    model = one_line(worker.model_name)[:48]
    # A worker that is named after its model needs no second name.
    short = model.rpartition("/")[2].removesuffix(":latest").replace(":", "-").lower()
    parts = [one_line(worker.about)]
    if not worker.name.lower().startswith(short):
        parts.insert(0, model)
    description = ", ".join(filter(None, parts))
    name = one_line(worker.name)
    if description:
        return f"{name}: {description}"
    return name


def _card_parts(worker: Worker, profile: Profile) -> list[str]:
    """Return the words of a card that has no figures, and its four best figures."""
    parts = []
    strengths = worker.card.strengths
    words = one_line(worker.card.words)[:60]
    has_figures = bool(strengths.keys() - {RATED})
    if words and not has_figures:
        parts.append(words)
    if profile.cards != "lines":
        strengths = {}
        if RATED in worker.card.strengths:
            strengths[RATED] = worker.card.strengths[RATED]
    for tag, value in _best(strengths.items(), 4):
        parts.append(f"{one_line(tag)[:24]} {value:.2f}")
    return parts

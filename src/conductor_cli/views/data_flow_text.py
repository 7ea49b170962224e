"""Who reads what, as lines and as JSON: of each reader all calls that go there, and the texts in each. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from conductor_cli.core.disclosures import CONDUCTOR, DisclosedText, Disclosure
from conductor_cli.core.formatting import format_count, format_list
from conductor_cli.core.sanitize import one_line
from conductor_cli.views.text_layout import BLANK, Line, Screen, cells

INDENT: Final = "  "
PAD: Final = 4
CARRIED: Final = {"question": "the question", "history": "earlier turns", "files": "files"}
WHO: Final = 26
"""Columns of step and worker, where what was sent stands beside them."""


def flow_lines(sent: Sequence[Disclosure], screen: Screen) -> list[Line]:
    """A heading for each reader, and a line or more for each call under it."""
    lines: list[Line] = []
    for recipient, calls in group_by_recipient(sent).items():
        lines += [BLANK] if lines else []
        lines.append(((screen.crop(recipient, screen.width), "worker"),))
        for call in calls:
            lines += _call(call, screen)
    return lines or [(("nobody was sent anything", "plain"),)]


def stand_in_lines(recipients: Iterable[str], screen: Screen) -> list[Line]:
    """Who else may read a step's texts: those of the workers that may take its place."""
    named = format_list(list(dict.fromkeys(map(one_line, recipients))))
    said = f"A step whose worker fails goes to another that may be shown as much. Those on offer are read by {named}."
    return [((line, "quiet"),) for line in screen.wrap(said, screen.width)]


def group_by_recipient(sent: Sequence[Disclosure]) -> dict[str, list[Disclosure]]:
    """The calls by who reads them, in the order in which each reader first got something."""
    table: dict[str, list[Disclosure]] = {}
    for call in sent:
        table.setdefault(call.recipient, []).append(call)
    return table


def flow_json(sent: Sequence[Disclosure]) -> list[dict[str, Any]]:
    """The same as JSON values."""
    return [
        {"recipient": recipient, "calls": [_json(call) for call in calls]}
        for recipient, calls in group_by_recipient(sent).items()
    ]


def _call(call: Disclosure, screen: Screen) -> Iterator[Line]:
    who = f"{step_name(call)}: {one_line(call.worker)}"
    what = [_part(part) for part in call.parts]
    outcome = "" if call.outcome == "answered" else call.outcome
    alone = "its subtask alone" if call.step[-1] else "the question, but not as it was typed"
    said = "; ".join(text for text in (", ".join(what) or alone, outcome) if text)
    front: Line = ((INDENT + screen.crop(who, screen.width - len(INDENT)), "plain"),)
    if screen.narrow or cells(front) > WHO - len(INDENT):
        yield front
        for line in screen.wrap(said, screen.width - PAD):
            yield ((" " * PAD + line, "quiet"),)
        return
    for number, line in enumerate(screen.wrap(said, screen.width - WHO)):
        begin = (*front, (" " * (WHO - cells(front)), "plain")) if number == 0 else ((" " * WHO, "plain"),)
        yield (*begin, (line, "quiet"))


def step_name(call: Disclosure) -> str:
    """`plan`, `step 2`, `step 2.1` inside a nested run, and which attempt it was where it was not the first."""
    own = "plan" if call.step[-1] == 0 else f"step {'.'.join(map(str, call.step))}"
    inside = ".".join(map(str, call.step[:-1])) if call.step[-1] == 0 else ""
    again = f", attempt {call.attempt}" if call.attempt > 1 else ""
    return own + (f" in {inside}" if inside else "") + again


def _part(part: DisclosedText) -> str:
    named = {
        "question": "the question", "system": "the system text", "history": "earlier turns", "schema": "the schema",
        "file": f"file {one_line(part.name)}", "answer": f"the answer of {part.step}",
        "given": f"the given answer of {one_line(part.name)}", "feedback": "the user's feedback on a plan",
    }[part.kind]  # fmt: skip
    notes = [format_count(part.chars, "character")] if part.chars is not None else []
    notes += [] if part.whole else ["shortened"]
    notes += [f"may carry {format_list([CARRIED[what] for what in part.carries])}"] if part.carries else []
    return f"{named} ({', '.join(notes)})" if notes else named


def _json(call: Disclosure) -> dict[str, Any]:
    return {
        "step": ".".join(map(str, call.step[:-1] if call.step[-1] == 0 else call.step)) or None,
        "what": "plan" if call.step[-1] == 0 else "step",
        "worker": None if call.worker == CONDUCTOR else call.worker,
        "attempt": call.attempt,
        "outcome": call.outcome or None,
        "chars": call.chars,
        "texts": [_json_part(part) for part in call.parts],
    }


def _json_part(part: DisclosedText) -> dict[str, Any]:
    return {
        "text": part.kind, "name": part.name or None, "step": part.step, "chars": part.chars, "whole": part.whole,
        "may_carry": list(part.carries),
    }  # fmt: skip

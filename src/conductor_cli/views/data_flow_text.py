"""Who reads what, as lines and as JSON: for each recipient all calls that go there, and the texts in each. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from conductor_cli.core.disclosures import CONDUCTOR, DisclosedText, Disclosure
from conductor_cli.core.formatting import format_count, format_list
from conductor_cli.core.sanitize import one_line
from conductor_cli.views.text_layout import BLANK, Line, Screen, cells

CARRIED: Final = {"question": "the question", "history": "earlier turns", "files": "files"}
CALL_WIDTH: Final = 26
"""Cells of step and worker, when the texts are shown beside them."""


def flow_lines(sent: Sequence[Disclosure], screen: Screen) -> list[Line]:
    """A heading for each recipient, and under it the calls."""
    lines: list[Line] = []
    for recipient, calls in group_by_recipient(sent).items():
        lines += [BLANK] if lines else []
        lines.append(((screen.crop(recipient, screen.width), "worker"),))
        for call in calls:
            lines += _call_lines(call, screen)
    return lines or [(("nothing was sent to anybody", "plain"),)]


def stand_in_lines(recipients: Iterable[str], screen: Screen) -> list[Line]:
    """Who else may read a step's texts: the recipients of the workers that may take over."""
    named = format_list(list(dict.fromkeys(map(one_line, recipients))))
    text = f"If a worker fails, another worker that may see the same texts takes over. Possible readers: {named}."
    return [((line, "quiet"),) for line in screen.wrap(text, screen.width)]


def flow_json(sent: Sequence[Disclosure]) -> list[dict[str, Any]]:
    """The same as JSON values."""
    return [
        {"recipient": recipient, "calls": [_call_data(call) for call in calls]}
        for recipient, calls in group_by_recipient(sent).items()
    ]


def group_by_recipient(sent: Sequence[Disclosure]) -> dict[str, list[Disclosure]]:
    """The calls by recipient, in the order of each recipient's first call."""
    groups: dict[str, list[Disclosure]] = {}
    for call in sent:
        groups.setdefault(call.recipient, []).append(call)
    return groups


def _call_lines(call: Disclosure, screen: Screen) -> Iterator[Line]:
    """Step and worker, and what was sent: beside them, or below them when there is no room."""
    texts = ", ".join(_describe_text(part) for part in call.parts)
    nothing = "only its subtask" if call.step[-1] else "only a reworded question"
    outcome = "" if call.outcome == "answered" else call.outcome
    what = "; ".join(filter(None, (texts or nothing, outcome)))
    who: Line = (("  " + screen.crop(f"{call_name(call)}: {one_line(call.worker)}", screen.width - 2), "plain"),)
    if screen.narrow or cells(who) > CALL_WIDTH - 2:
        yield who
        for line in screen.wrap(what, screen.width - 4):
            yield (("    " + line, "quiet"),)
        return
    for number, line in enumerate(screen.wrap(what, screen.width - CALL_WIDTH)):
        front = (*who, (" " * (CALL_WIDTH - cells(who)), "plain")) if number == 0 else ((" " * CALL_WIDTH, "plain"),)
        yield (*front, (line, "quiet"))


def call_name(call: Disclosure) -> str:
    """`plan`, `step 2`, `step 2.1` or `plan in 2` for a nested run; with the attempt if it was not the first."""
    *outer, step = call.step
    path = ".".join(map(str, outer))
    plan = f"plan in {path}" if path else "plan"
    name = f"step {'.'.join(map(str, call.step))}" if step else plan
    return f"{name}, attempt {call.attempt}" if call.attempt > 1 else name


def _describe_text(part: DisclosedText) -> str:
    name = {
        "question": "the question", "system": "the system text", "history": "earlier turns", "schema": "the schema",
        "file": f"file {one_line(part.name)}", "answer": f"the answer of {part.step}",
        "given": f"the given answer of {one_line(part.name)}", "feedback": "the user's feedback on a plan",
    }[part.kind]  # fmt: skip
    notes = (
        format_count(part.chars, "character") if part.chars is not None else "",
        "" if part.whole else "shortened",
        f"may carry {format_list([CARRIED[what] for what in part.carries])}" if part.carries else "",
    )
    shown = ", ".join(filter(None, notes))
    return f"{name} ({shown})" if shown else name


def _call_data(call: Disclosure) -> dict[str, Any]:
    plans = call.step[-1] == 0
    return {
        "step": ".".join(map(str, call.step[:-1] if plans else call.step)) or None,
        "what": "plan" if plans else "step",
        "worker": None if call.worker == CONDUCTOR else call.worker,
        "attempt": call.attempt,
        "outcome": call.outcome or None,
        "chars": call.chars,
        "texts": [
            {
                "text": part.kind, "name": part.name or None, "step": part.step, "chars": part.chars,
                "whole": part.whole, "may_carry": list(part.carries),
            }
            for part in call.parts
        ],
    }  # fmt: skip

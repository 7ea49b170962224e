"""Which model reads what, as lines and as JSON: for each recipient all calls that go there, and their texts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from conductor_cli.core.disclosures import CONDUCTOR, Disclosure
from conductor_cli.core.formatting import format_list
from conductor_cli.core.sanitize import one_line
from conductor_cli.views.text_layout import BLANK, Line, Screen


def flow_lines(sent: Sequence[Disclosure], screen: Screen) -> list[Line]:
    """A heading for each recipient; under it the calls, and under each call its texts."""
    lines: list[Line] = []
    for recipient, calls in group_by_recipient(sent).items():
        lines += [BLANK] if lines else []
        lines.append(((screen.crop(recipient, screen.width), "worker"),))
        for call in calls:
            head = screen.crop(f"{call_name(call)}: {one_line(call.worker)}", screen.width - 2)
            lines.append((("  " + head, "plain"),))
            texts = ", ".join(map(one_line, call.texts)) or "only its subtask"
            lines += [(("    " + line, "quiet"),) for line in screen.wrap(texts, screen.width - 4)]
    return lines or [(("nothing was sent to anybody", "plain"),)]


def stand_in_lines(recipients: Iterable[str], screen: Screen) -> list[Line]:
    """Who else may read a step's texts: the recipients of the workers that may take over."""
    named = format_list(list(dict.fromkeys(map(one_line, recipients))))
    text = f"If a worker fails, another worker that may see the same texts takes over. Possible readers: {named}."
    return [((line, "quiet"),) for line in screen.wrap(text, screen.width)]


def flow_json(sent: Sequence[Disclosure]) -> list[dict[str, Any]]:
    """The same as JSON values."""
    return [
        {
            "recipient": recipient,
            "calls": [
                {
                    "call": call_name(call),
                    "worker": None if call.worker == CONDUCTOR else call.worker,
                    "texts": list(call.texts),
                }
                for call in calls
            ],
        }
        for recipient, calls in group_by_recipient(sent).items()
    ]


def group_by_recipient(sent: Sequence[Disclosure]) -> dict[str, list[Disclosure]]:
    """The calls by recipient, in the order of each recipient's first call."""
    groups: dict[str, list[Disclosure]] = {}
    for call in sent:
        groups.setdefault(call.recipient, []).append(call)
    return groups


def call_name(call: Disclosure) -> str:
    """`plan`, `step 2`, `step 2.1` or `plan in 2` for a nested run; with the attempt if it was not the first."""
    *outer, step = call.step
    path = ".".join(map(str, outer))
    plan = f"plan in {path}" if path else "plan"
    name = f"step {'.'.join(map(str, call.step))}" if step else plan
    return f"{name}, attempt {call.attempt}" if call.attempt > 1 else name

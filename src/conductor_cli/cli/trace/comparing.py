"""`conductor trace diff`: two stored runs, plan and steps side by side."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from conductor_cli.cli import options as opt
from conductor_cli.cli.trace.sharing import store_of
from conductor_cli.core.table import display_width, pad_text

if TYPE_CHECKING:
    from conductor_cli.core.trace import StepRecord, Trace

NARROW: Final = 80
"""Columns below which one run stands under the other."""

PIPED: Final = 120
"""Columns where nobody says how many there are."""

BOTH, OTHER = "   ", " | "
"""Stands between two lines that are the same, and that differ."""

ONE = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, its beginning, or last.")]
TWO = Annotated[str, typer.Argument(metavar="OTHER", help="The run it is compared with.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What both runs have in one place; empty where one has nothing."""

    head: str
    one: str
    other: str

    @property
    def same(self) -> bool:
        return self.one == self.other


def diff(context: typer.Context, run: ONE, other: TWO, json: opt.Json = False) -> None:
    """Compare two stored runs: question, plan, steps, answers and what they took, side by side."""
    from conductor_cli.cli.output import print_json, print_line, terminal_width

    store = store_of(context)
    traces = [store.trace(store.find(name)) for name in (run, other)]
    parts = tuple(parts_of(traces[0], traces[1]))
    if json:
        print_json(data_of(traces[0], traces[1]))
        return
    for line in lines(parts, terminal_width(sys.stdout) or _told_width()):
        print_line(line)


def _told_width() -> int:
    told = os.environ.get("COLUMNS", "")
    return max(int(told), 20) if told.isdecimal() and int(told) else PIPED


def parts_of(one: Trace, other: Trace) -> Iterator[Part]:
    """Everything that is compared, in the order of the page. Pure."""
    yield Part(head="RUN", one=_about(one), other=_about(other))
    yield Part(head="QUESTION", one=one.question.text, other=other.question.text)
    for number, (mine, others) in enumerate(zip_longest(one.steps, other.steps), start=1):
        yield Part(head=f"STEP {number}", one=_planned(mine), other=_planned(others))
        yield Part(head="answer", one=_answer(mine), other=_answer(others))
        yield Part(head="took", one=_took(mine, one.at), other=_took(others, other.at))
    yield Part(head="ANSWER", one=one.answer, other=other.answer)
    yield Part(head="TOTAL", one=_total(one), other=_total(other))


def _about(trace: Trace) -> str:
    resumes = f"\nresumes {trace.resumed}" if trace.resumed else ""
    return f"{trace.run}\n{trace.mode}, {trace.conductor}{resumes}"


def _planned(record: StepRecord | None) -> str:
    if record is None:
        return ""
    from conductor_cli.views.run_text import describe_access

    instead = f" (planned: {record.step.worker})" if record.worker != record.step.worker else ""
    return f"{record.worker}{instead}, {describe_access(record.step.access)}\n{record.step.subtask}"


def _answer(record: StepRecord | None) -> str:
    if record is None:
        return ""
    error = f"({record.state}: {record.error.message})" if record.error is not None else f"({record.state})"
    return record.text if record.state == "done" else f"{record.text}\n{error}".strip()


def _took(record: StepRecord | None, now: float) -> str:
    from conductor_cli.cli.trace.showing import usage_text

    return "" if record is None else f"{record.seconds(now):.1f} s, {usage_text(record.usage)}"


def _total(trace: Trace) -> str:
    from conductor_cli.cli.trace.showing import usage_text

    state = trace.state if trace.ended else "no end"
    return f"{'partial' if trace.partial else state}, {trace.at:.1f} s, {usage_text(trace.usage)}"


def lines(parts: tuple[Part, ...], width: int) -> Iterator[str]:
    """The page: two columns, or where it is narrow one run under the other. Pure."""
    for number, part in enumerate(parts):
        if number and part.head.isupper():
            yield ""
        if part.same and not part.one:
            continue
        yield part.head if part.head.isupper() else f"  {part.head}"
        yield from _beside(part, width) if width >= NARROW else _under(part, width)


def _beside(part: Part, width: int) -> Iterator[str]:
    room = (width - len(BOTH) - 2) // 2
    for one, other in zip_longest(_wrapped(part.one, room), _wrapped(part.other, room), fillvalue=""):
        yield f"  {_padded(one, room)}{BOTH if one == other else OTHER}{other}".rstrip()


def _under(part: Part, width: int) -> Iterator[str]:
    named = [("  = ", part.one)] if part.same else [("  < ", part.one), ("  > ", part.other)]
    for mark, text in named:
        for line in _wrapped(text or "(nothing)", width - 4):
            yield f"{mark}{line}"


def _wrapped(text: str, width: int) -> list[str]:
    """The lines of a text, clean, none longer than so many columns; what is in a line of its own stays there."""
    from conductor_cli.core.sanitize import sanitize

    found: list[str] = []
    for line in sanitize(text).expandtabs(4).splitlines():
        found += textwrap.wrap(line, max(width // _widest(line), 8), replace_whitespace=False) or [""]
    return [line.rstrip() for line in found]


def _widest(text: str) -> int:
    """Columns of the widest letter."""
    return 2 if not text.isascii() and display_width(text) > len(text) else 1


def _padded(text: str, width: int) -> str:
    return pad_text(text, width)


def data_of(one: Trace, other: Trace) -> dict[str, Any]:
    """For `--json`: both runs as `trace show --json` has them, and for each step what is the same."""
    from conductor_cli.views.json_output import run_data

    both = [run_data(trace) | {"question": trace.question.text} for trace in (one, other)]
    steps = []
    for number, (mine, others) in enumerate(zip_longest(both[0]["steps"], both[1]["steps"]), start=1):
        fields = ("worker", "subtask", "access", "text")
        same = {field: bool(mine and others and mine[field] == others[field]) for field in fields}
        steps.append({"number": number, "same": same})
    same_run = {
        field: both[0][field] == both[1][field] for field in ("question", "mode", "conductor", "plan", "answer")
    }
    return {"runs": both, "same": same_run, "steps": steps}

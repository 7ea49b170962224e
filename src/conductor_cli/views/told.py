"""What the exports of a run say alike. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from conductor_cli.core.trace import StepRecord, Trace
from conductor_cli.views import words


def ending(trace: Trace, *, live: bool = False) -> str:
    """How the run ended, in one line: `finished`, `partial answer: why`, `failed: why`, and where there is no end."""
    if not trace.ended:
        return "the run goes on" if live else "the run was interrupted"
    what = "partial answer" if trace.partial else "finished" if trace.state == "finished" else "failed"
    return what if trace.error is None else f"{what}: {words.failure(trace.error)}"


def placed(trace: Trace, begin: float = 0.0, path: str = "") -> Iterator[tuple[str, float, StepRecord, float]]:
    """Every step: its number, `2.1` in a nested run, when its run began in the outermost one's seconds, and its end.

    The end of a step that has none is the newest moment of its run.
    """
    for record in trace.steps:
        number = f"{path}{record.number}"
        yield number, begin, record, trace.at if record.ended is None else record.ended
        if record.inner is not None:
            yield from placed(record.inner, begin + (record.started or 0.0), f"{number}.")

"""How a run ends: which text is the answer, whether it is partial, and which failure is the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conductor_cli.core.errors import Failure
from conductor_cli.core.plan import Accept
from conductor_cli.core.question import Question
from conductor_cli.core.trace import StepRecord, Trace

if TYPE_CHECKING:
    from conductor_cli.run.stream import Run


def answer_of(trace: Trace, question: Question) -> tuple[str | None, bool]:
    """The best answer there is, and whether it is partial; None when nothing was written.

    First the answering step, then what it had written when it was cut, then the last step that finished.
    """
    if isinstance(trace.plan, Accept):
        return question.given[-1].answer, False
    last = next((record for record in trace.steps if record.last), None)
    if last is not None and last.state == "done":
        return last.text, last.finish == "length"
    if last is not None and last.text.strip():
        return last.text, True
    done = [record for record in trace.steps if record.state == "done"]
    return (done[-1].text, True) if done else (None, False)


def failure_of(run: Run, *, partial: bool) -> Failure:
    """Why a run has no whole answer: a stop, a limit, the conductor, or its workers."""
    if run.limit is not None:
        return run.limit
    if run.stopped_by is not None:
        return run.stopped_by
    last = next((record for record in run.trace.steps if record.last), None)
    if partial and last is not None and last.state == "done":
        return Failure(kind="partial", message=f"{last.worker} reached its token limit before the end of the answer")
    return _of_step(run, last) if last is not None else Failure(kind="worker", message="no step could be run")


def _of_step(run: Run, record: StepRecord) -> Failure:
    """One failure for all attempts at a step: the kind they share, else a plain worker failure."""
    errors = run.errors.get(record.number, [])
    if not errors:
        return Failure(kind="worker", message=f"step {record.number} did not run")
    kinds = {error.kind for error in errors}
    first = errors[0]
    if len(kinds) == 1:
        return first
    return Failure(kind="worker", message=f"every worker failed at step {record.number}; first: {first.message}", hint=first.hint)

"""How a run ends: which text is the answer, whether it is partial, and which failure is the reason."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from conductor_cli.core.errors import Failure
from conductor_cli.core.plan import KeepAnswer
from conductor_cli.core.question import Question
from conductor_cli.core.trace import StepRecord, Trace

if TYPE_CHECKING:
    from conductor_cli.run.workflow import Workflow


def answer_of(trace: Trace, question: Question) -> tuple[str | None, bool]:
    """The best answer there is, and whether it is partial; None when nothing was written.

    First the answering step, then what it had written when it was cut, then the last step that finished, then what a
    nested run had to show when it was cut.
    """
    if isinstance(trace.plan, KeepAnswer):
        return question.given[-1].answer, False
    last = last_of(trace)
    if last is not None and last.state == "done":
        return last.text, _is_cut(last)
    if last is not None and last.text.strip():
        return last.text, True
    done = [record for record in trace.steps if record.state == "done"]
    if done:
        return done[-1].text, True
    if last is not None and last.nested is not None and last.nested.answer.strip():
        return last.nested.answer, True
    return None, False


def is_other_than_asked(answer: str, question: Question) -> bool:
    """Whether a JSON Schema was given and the answer is no JSON at all. It is not held against the schema itself."""
    if question.schema is None:
        return False
    try:
        json.loads(answer)
    except (ValueError, RecursionError):
        return True
    return False


def last_of(trace: Trace) -> StepRecord | None:
    """The step whose answer is the run's, once it is planned."""
    return next((record for record in trace.steps if record.last), None)


def _is_cut(record: StepRecord) -> bool:
    return record.finish == "length" or (record.nested is not None and record.nested.partial)


def failure_of(run: Workflow) -> Failure:
    """Why a run has no whole answer: a stop, a limit, the conductor, or its workers."""
    if run.stopped_by is not None:
        return run.stopped_by
    last = last_of(run.trace)
    if last is None:
        return Failure(kind="worker", message="no step could be run")
    if last.nested is not None and last.nested.error is not None:
        return last.nested.error
    if last.state == "done":
        return Failure(kind="partial", message=f"{last.worker} reached its token limit before the end of the answer")
    return _of_step(run, last)


def _of_step(run: Workflow, record: StepRecord) -> Failure:
    """One failure for all attempts at a step: the kind they share, else a plain worker failure."""
    errors = run.errors.get(record.number) or [Failure(kind="worker", message=f"step {record.number} did not run")]
    first = errors[0]
    if len({error.kind for error in errors}) == 1:
        return first
    said = f"every worker failed at step {record.number}; first: {first.message}"
    return Failure(kind="worker", message=said, hint=first.hint)


def internal(error: BaseException) -> Failure:
    """An exception that nobody foresaw, as a failure."""
    return Failure(
        kind="internal",
        message=f"a fault of conductor itself: {type(error).__name__}: {error}",
        hint="run again with --debug and report what it prints",
    )

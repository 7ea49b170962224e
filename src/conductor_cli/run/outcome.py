"""How a run ends: which text is the answer, whether it is partial, and which failure is the reason."""

from __future__ import annotations

from collections.abc import Collection

from conductor_cli.core.chat import ToolCall
from conductor_cli.core.errors import Failure
from conductor_cli.core.plan import KeepAnswer
from conductor_cli.core.question import Question
from conductor_cli.core.trace import StepRecord, Trace
from conductor_cli.run.state import NOT_CHECKED, NOT_JSON, RunState


def answer_of(trace: Trace, question: Question, verdicts: Collection[str] = ()) -> tuple[str | None, bool]:
    """The best answer there is, and whether it is partial; None when nothing was written.

    First comes the answering step, then what it had written when it was cut off, then the last step that finished, then
    what a nested run had to show when it was cut off. Where the answering step wrote one of the `verdicts`, the answer
    is the one that it judged: the last one on its access list. A step may say how it came to a verdict before it.
    """
    if isinstance(trace.plan, KeepAnswer):
        # The plan rules allow this decision only where something was given.
        answers = [given.answer for given in question.given]
        return next((answer for answer in reversed(answers) if not _verdict(answer, verdicts)), answers[-1]), False
    last = _answering_step(trace)
    if last is not None and last.state == "done":
        judged = _judged_by(last, trace) if _verdict(last.text, verdicts) else None
        cut_off = last.finish == "length" or (last.nested is not None and last.nested.partial)
        return (judged or last).text, cut_off
    if last is not None and last.text.strip():
        return last.text, True
    done = [record.text for record in trace.steps if record.state == "done"]
    if done:
        return next((text for text in reversed(done) if not _verdict(text, verdicts)), done[-1]), True
    if last is not None and last.nested is not None and last.nested.answer.strip():
        return last.nested.answer, True
    return None, False


def tool_calls_of(trace: Trace) -> tuple[ToolCall, ...]:
    """The calls that the answering step leaves to the client of the server."""
    last = _answering_step(trace)
    return last.tool_calls if last is not None and last.state == "done" else ()


def schema_failure(fault: str) -> Failure | None:
    """Return the failure of an answer with a `fault` against the JSON Schema of its question; None without one."""
    if not fault:
        return None
    if fault == NOT_CHECKED:
        message = f"the answer cannot be checked against the JSON Schema: {fault}"
        return Failure(kind="partial", message=message, hint="give a simpler schema", reason="answer_not_checked")
    if fault == NOT_JSON:
        message = "the answer is not JSON, which the schema requires"
        return Failure(kind="partial", message=message, reason="answer_not_json")
    message = f"the answer does not follow the JSON Schema: {fault}"
    return Failure(kind="partial", message=message, reason="answer_not_schema")


def refusal_of(trace: Trace, refusal: str) -> Failure:
    """Why there is no answer where the last step wrote a `refusal`: the first step of which a worker said so."""
    first = next(record for record in trace.steps if record.text.strip() == refusal)
    message = f"no answer: {first.worker} cannot do step {first.number}, {first.step.subtask!r:.80}"
    return Failure(kind="worker", message=message, hint="ask in other words", reason="declined")


def failure_of(state: RunState) -> Failure:
    """Why a run has no whole answer: a stop, a limit, the conductor, or its workers."""
    if state.stopped_by is not None:
        return state.stopped_by
    last = _answering_step(state.trace)
    if last is None and state.revision is not None:
        number = state.revision.step
        return _failure_of_step(state.record(number), state.errors.get(number, []))
    if last is None:
        return Failure(kind="worker", message="no step could be run", reason="step_not_run")
    if last.nested is not None and last.nested.error is not None:
        return last.nested.error
    if last.state == "done":
        message = f"{last.worker} reached its token limit before the end of the answer"
        return Failure(kind="partial", message=message, reason="answer_truncated")
    return _failure_of_step(last, state.errors.get(last.number, []))


def _failure_of_step(record: StepRecord, errors: list[Failure]) -> Failure:
    """One failure for all attempts at a step: the first, if all are of one kind."""
    if not errors:
        return Failure(kind="worker", message=f"step {record.number} did not run", reason="step_not_run")
    first = errors[0]
    if len({error.kind for error in errors}) == 1:
        return first
    # Attempts that failed for different reasons have no kind in common, and so no exit code either.
    message = f"every worker failed at step {record.number}; first: {first.message}"
    return Failure(kind="worker", message=message, hint=first.hint, reason="workers_failed")


def internal_failure(error: BaseException) -> Failure:
    """An exception that nobody foresaw, as a failure."""
    return Failure(kind="internal", message=f"this is a bug in conductor: {type(error).__name__}: {error}")


def verdict_of(trace: Trace, verdicts: Collection[str]) -> tuple[str, int]:
    """What the last step says of the answer, in words, and its number, where it wrote one of the `verdicts`."""
    last = _answering_step(trace)
    verdict = _verdict(last.text, verdicts) if last is not None and last.state == "done" else ""
    if last is None or not verdict or _judged_by(last, trace) is None:
        return "", 0
    return f"{last.worker} says of this answer: {verdict}", last.number


def _verdict(text: str, verdicts: Collection[str]) -> str:
    """The verdict that a text ends with; empty if it is none."""
    last = text.split()[-1:]
    return last[0] if last and last[0] in verdicts else ""


def _judged_by(check: StepRecord, trace: Trace) -> StepRecord | None:
    """The finished step whose answer a check has judged."""
    number = check.step.access[-1] if check.step.access else None
    return next((record for record in trace.steps if record.number == number and record.state == "done"), None)


def _answering_step(trace: Trace) -> StepRecord | None:
    """The step whose answer is the run's, once it is planned."""
    return next((record for record in trace.steps if record.last), None)

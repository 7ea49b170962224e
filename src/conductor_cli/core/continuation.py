"""What may follow a run.

The next question of its conversation, or the same run again from one of its steps. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from conductor_cli.core.chat import Message
from conductor_cli.core.errors import UsageError
from conductor_cli.core.formatting import format_count
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.question import PastTurn, Question
from conductor_cli.core.trace import StepRecord, Trace, find_answering_step
from conductor_cli.core.usage import CHARS_PER_TOKEN

GO_ON: Final = "Go on with the results of your tool calls."
"""The subtask of a step that goes on. The worker is not sent it: it sees its own conversation."""


def continue_conversation(question: Question, earlier: Trace, *, keep_system: bool) -> Question:
    """Return `question` as the next one of a conversation.

    The conversation's turns and files go along, and its system text if kept.
    """
    before = earlier.question
    system = question.system
    if keep_system:
        system = before.system
    return replace(
        question,
        history=(*before.history, PastTurn(question=before.text, answer=earlier.answer)),
        files=tuple(dict.fromkeys((*before.files, *question.files))),
        system=system,
        parent=earlier.run,
        quotes_files=before.quotes_files,
    )


def ask_in_conversation(
    question: Question, turns: Sequence[Trace], first: int, tokens: int
) -> tuple[Question, int]:
    """Return `question` as the next one after the runs in `turns`, and the first turn that it has.

    So far conversations were sent from turn `first` on; see `first_turn_to_send`. The files are
    those of the question alone; answers to earlier ones may quote theirs all the same.
    """
    continued = continue_conversation(question, turns[-1], keep_system=False)
    own_turns = [PastTurn(question=trace.question.text, answer=trace.answer) for trace in turns]
    history = (*turns[0].question.history, *own_turns)
    first = first_turn_to_send(history, first, tokens)
    quotes_files = any(trace.question.holds_files for trace in turns)
    continued = replace(
        continued, history=history[first:], files=question.files, quotes_files=quotes_files
    )
    return continued, first


def describe_unsent_turns(first: int, tokens: int) -> str:
    """Return that a conversation is sent from turn `first` on only, and how more of it is sent."""
    length = format_count(tokens, "token")
    dropped = "first turn is"
    if first > 1:
        dropped = f"first {format_count(first, 'turn')} are"
    return (
        f"the conversation is longer than {length}: its {dropped} no longer sent; to send more: "
        "conductor config set chat.context N"
    )


def continue_with_results(earlier: Trace, results: Sequence[Message]) -> tuple[Question, Plan]:
    """Return what asks for the next reply, once a client has made the tool calls it was asked for.

    The same worker goes on with what it was sent before, its own reply as it was, and the
    `results`, so that what its provider remembers of the conversation still holds. Raises
    `UsageError` where the run asked for no calls.
    """
    conversation = earlier.question.conversation
    record = who_answers(earlier)
    if conversation is None or record is None or not record.tool_calls:
        raise UsageError(
            f"run {earlier.run} asked for no tool calls", hint="send the whole conversation again"
        )
    question = replace(
        earlier.question,
        parent=earlier.run,
        conversation=replace(
            conversation,
            messages=(*messages_up_to_calls(record), *results),
            known_by="",
            known=(),
            known_messages=0,
        ),
    )
    return question, Plan(steps=(Step(worker=record.worker, subtask=GO_ON),))


def messages_up_to_calls(record: StepRecord) -> tuple[Message, ...]:
    """Return what a step's worker was sent of a conversation, and its reply that asks for calls."""
    reply = Message(
        role="assistant",
        content=record.text,
        tool_calls=record.tool_calls,
        provider_data=record.provider_data,
    )
    return (*(message for message in record.prompt if message.role != "system"), reply)


def who_answers(trace: Trace) -> StepRecord | None:
    """Return the step of a worker whose answer is the run's, in whatever nested run it is.

    None before it is planned.
    """
    record = find_answering_step(trace)
    if record is not None and record.nested is not None:
        return who_answers(record.nested)
    return record


def first_turn_to_send(turns: Sequence[PastTurn], first: int, tokens: int) -> int:
    """Return the first turn that goes along, where about `tokens` tokens may.

    So far it was turn `first`. When they have become too many, only the latest that take half of it
    are kept: what is sent then grows at its end again, so a model that remembers it reads only what
    is new. The last turn is kept however long it is; what overflows a model's own context is
    shortened where its prompt is made.
    """
    lengths = [len(turn.question) + len(turn.answer) for turn in turns]
    if sum(lengths[first:]) <= tokens * CHARS_PER_TOKEN:
        return first
    room = tokens * CHARS_PER_TOKEN / 2
    kept = len(turns) - 1
    for number in range(len(turns) - 1, first, -1):
        room -= lengths[number]
        if room < 0:
            break
        kept = number
    return max(kept, first)


def is_complete(trace: Trace) -> bool:
    """Return whether a run has its whole answer, so that nothing is left to finish."""
    is_whole = trace.state == "finished" and not trace.partial
    return is_whole and trace.error is None and bool(trace.answer)


def reset_from_step(
    trace: Trace, number: int, worker: str | None = None, *, only_dependents: bool = False
) -> Trace:
    """Return the run with step `number` and all later ones still to do.

    With `only_dependents` only those of the later ones that see it, directly or not.
    `start_run(resume=...)` then runs them again, step `number` by `worker` if one is given. Raises
    `UsageError` if there is no such step.
    """
    check_step_exists(trace, number)
    revised = trace.revised
    if revised is not None and number in (revised.step, *revised.left_out):
        hint = f"the steps that took its place begin with step {revised.first}"
        raise UsageError(
            f"step {number} of run {trace.run} was given up when its plan was revised", hint=hint
        )
    again = {number}
    for record in trace.steps:
        if record.number > number and (not only_dependents or again & {*record.step.access}):
            again.add(record.number)

    steps: list[StepRecord] = []
    for record in trace.steps:
        step = record.step
        if worker and record.number == number:
            step = replace(step, worker=worker)
        if record.number in again:
            record = _as_planned(record, step)  # noqa: PLW2901 - the same step, to be done again
        steps.append(record)
    plan = trace.plan
    if isinstance(plan, Plan):
        plan = replace(plan, steps=tuple(record.step for record in steps))
    return replace(
        trace, steps=tuple(steps), plan=plan, answer="", partial=False, error=None, state="running"
    )


def _as_planned(record: StepRecord, step: Step) -> StepRecord:
    return StepRecord(
        number=record.number,
        step=step,
        last=record.last,
        planned=record.planned,
        worker=step.worker,
    )


def without_outdated(trace: Trace) -> Trace:
    """Return the run with those steps as they were planned whose work a resumed run cannot reuse.

    They read, directly or not, a step that still has to be done. Their calls of tools stay: the
    user is told of them. The policy and the nested runs of the run that resumes it look at this
    trace too.
    """
    given_up: tuple[int, ...] = ()
    if trace.revised is not None:
        given_up = (trace.revised.step, *trace.revised.left_out)
    unanswered = set[int]()
    steps = list[StepRecord]()
    for record in trace.steps:
        outdated = (record.state == "done" or record.nested is not None) and unanswered & {
            *record.step.access
        }
        if outdated and record.number not in given_up:
            steps.append(replace(_as_planned(record, record.step), tools=record.tools))
        else:
            steps.append(record)
        if steps[-1].state != "done" and record.number not in given_up:
            unanswered.add(record.number)
    return replace(trace, steps=tuple(steps))


def check_step_exists(trace: Trace, number: int) -> None:
    """Raise `UsageError` if the run has no such step."""
    if number not in [record.number for record in trace.steps]:
        hint = f"it has {format_count(len(trace.steps), 'step')}"
        raise UsageError(f"run {trace.run} has no step {number}", hint=hint)

"""What views, logs and clients of a server read about a run, in words.

Events, reasons, totals, the end. Pure.
"""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import Final, NamedTuple

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Attachment, Message
from conductor_cli.core.errors import Failure
from conductor_cli.core.formatting import (
    format_cost,
    format_count,
    format_duration,
    format_list,
    without_file_hash,
)
from conductor_cli.core.media import describe_media
from conductor_cli.core.plan import GIVEN, SELF, KeepAnswer
from conductor_cli.core.question import File
from conductor_cli.core.terminal_text import escape_name, one_line
from conductor_cli.core.trace import (
    PLAN_FILE,
    StepRecord,
    ToolRecord,
    Trace,
    describe_approval,
    describe_revised_plan,
    find_step,
)

MAX_MESSAGE: Final = 400  # Characters of an error's message or hint that are shown
MAX_QUOTE: Final = 100  # Characters of a text that is shown in one line, and of a line of a log
MIN_WAIT_SECONDS: Final = 1.0  # From which on a time says how much of it was spent waiting
MAX_NAME: Final = 80  # Characters of the name of a worker or of a tool

REASONS: Final[dict[ev.StopReason, str]] = {
    "cancelled": "cancelled",
    "limit": "limit reached",
    "not_needed": "not needed",
    "plan_revised": "given up",
    "run_failed": "the run failed",
}
"""Why a step was stopped. A narrow terminal has 14 characters for it."""

FINISHES: Final[dict[str, str]] = {
    "length": "cut short by a length limit",
    "refusal": "refused",
    "tool": "asked for a tool",
    "other": "ended for an unknown reason",
}
"""How a step ended, unless it ended normally."""

# The core reports which limit was reached and a value that would be enough; flags and settings are
# known only here.
_LIMIT_FLAGS: Final = {
    f"limit_{name}": f"--max-{name}" for name in ("time", "calls", "tokens", "cost")
}
_DAY_LIMITS: Final = {
    f"limit_{name}_day": f"limits.{name}_day" for name in ("calls", "tokens", "cost")
}


def shorten_line(text: str, length: int = MAX_QUOTE) -> str:
    """Return the beginning of `text` as one line."""
    # Cut first, so that a text of megabytes is not sanitized for one line of it.
    line = one_line(text[: 10 * length])
    if len(line) <= length:
        return line
    return f"{line[: length - 4].rstrip()} ..."


def quote_text(text: str, length: int = MAX_QUOTE) -> str:
    """Return the beginning of `text` as one line, in quotation marks."""
    return f'"{shorten_line(text, length)}"'


def short_name(name: str) -> str:
    """Return the name of a worker or a tool in one line of bounded length.

    A step on `self` is called what it is, a review.
    """
    if name == SELF:
        return "review"
    return one_line(name)[:MAX_NAME]


def question_line(trace: Trace) -> str:
    """Return the first line of the question that is not blank."""
    for text in trace.question.text.splitlines():
        line = one_line(text)
        if line:
            return line
    return ""


def describe_attachment(attachment: Attachment) -> str:
    """Return `chart.png (PNG image, 800 x 600 pixels, 264 kB)`."""
    return one_line(f"{escape_name(attachment.name)} ({describe_media(attachment)})")


def describe_file(file: File) -> str:
    """Return a file with its type and size; of a text its characters."""
    if file.attachment is not None:
        return describe_attachment(file.attachment)
    return f"{one_line(escape_name(file.name))} ({format_count(len(file.text), 'character')})"


def message_text(message: Message) -> str:
    """Return what a message holds.

    A line for each attached file and for each tool that it asks for, and its text.
    """
    lines = [f"[attached: {describe_attachment(attachment)}]" for attachment in message.attachments]
    lines += [one_line(f"[calls {call.name} {call.arguments}]") for call in message.tool_calls]
    if message.content or not lines:
        lines.append(message.content)
    return "\n".join(lines)


def tool_name(use: ToolRecord | ev.ToolOffered | ev.ToolCalled) -> str:
    """Return the server and the tool, `files.read_file`.

    It is the tool alone where nothing is known of a server.
    """
    if not isinstance(use, ev.ToolOffered) and use.tool:
        return one_line(use.tool)
    if use.server:
        return one_line(f"{use.server}.{use.call.name}")
    return one_line(use.call.name)


def running_calls(record: StepRecord) -> list[ToolRecord]:
    """Return the calls that a step waits for.

    A call without an end may also have been broken off with its attempt.
    """
    if record.state != "running" or record.retry_at is not None:
        return []
    running = []
    for use in record.tools:
        if use.ended is None and use.started >= (record.attempted or 0.0):
            running.append(use)
    return running


def is_reused(record: StepRecord, trace: Trace) -> bool:
    """Return whether an earlier run, which this one goes on with, had done the step.

    Nobody was called.
    """
    return (
        bool(trace.resumed)
        and record.state == "done"
        and not record.usage.calls
        and record.nested is None
    )


def describe_access(access: tuple[int, ...]) -> str:
    """Return `reads 1 and 3`, `reads question and files only`.

    Item 0 of a nested run is the given answer.
    """
    names = list(map(str, access))
    if GIVEN in access:
        names[access.index(GIVEN)] = "the given answer"
    return f"reads {format_list(names) or 'question and files only'}"


def describe_worker(record: StepRecord) -> str:
    """Return the worker that did a step, and the planned one when another took over."""
    worker = short_name(record.worker)
    planned = short_name(record.step.worker)
    if worker == planned:
        return worker
    return f"{worker} (planned: {planned})"


def tokens_so_far(record: StepRecord) -> int:
    """Return a guess at the tokens of a running step, four characters each.

    The exact number is known at its end.
    """
    return (len(record.text) + len(record.thinking) + 3) // 4


def describe_failure(error: Failure) -> str:
    """Return what happened, in one line.

    Of a limit, also the option or the setting that sets it.
    """
    option = _LIMIT_FLAGS.get(error.reason) or _DAY_LIMITS.get(error.reason)
    text = one_line(error.message)[:MAX_MESSAGE] or error.kind
    return f"{text} ({option})" if option else text


def describe_next_attempt(event: ev.StepFailed) -> str:
    """Return what follows a failed attempt."""
    if event.retry_in is not None:
        return f"again in {format_duration(event.retry_in)}"
    if event.substitute is not None:
        return f"now on {one_line(event.substitute)}"
    return "no attempts are left"


class EventText(NamedTuple):
    """What an event says.

    A sentence, and texts that others wrote, such as a subtask or the result of a tool.
    """

    sentence: str
    texts: tuple[str, ...] = ()


def event_text(event: ev.Event, trace: Trace, outer: str = "") -> EventText | None:
    """Return what there is to say about an event, given the trace after it.

    None for a piece of text. `outer` stands before the step numbers of a nested run: `2.`. That
    such a run begins and ends, its step says.
    """
    if isinstance(event, ev.NestedEvent):
        return _nested_event_text(event, trace, outer)
    text = _run_event_text(event, trace, outer)
    if text is not None:
        return text
    record = find_step(trace, getattr(event, "step", 0))
    if record is None:
        return None
    step = f"step {outer}{record.number}"
    if trace.plan is not None and not outer:
        step += f" of {len(trace.steps)}"
    if isinstance(event, ev.StepFinished) and is_reused(record, trace):
        return EventText(f"{step} finished: {short_name(record.worker)}, reused")
    return _step_event_text(event, record, step)


def _nested_event_text(event: ev.NestedEvent, trace: Trace, outer: str) -> EventText | None:
    record = find_step(trace, event.step)
    if record is None or record.nested is None:
        return None
    text = event_text(event.event, record.nested, f"{outer}{event.step}.")
    if text is None or text.sentence.startswith("step "):
        return text
    return text._replace(sentence=f"step {outer}{event.step}: {text.sentence}")


def _run_event_text(event: ev.Event, trace: Trace, outer: str) -> EventText | None:
    """Return what is said about an event of the run as a whole, its plan and its notices."""
    match event:
        case ev.RunStarted() | ev.RunFinished() | ev.RunFailed() if outer:
            return None
        case ev.RunStarted():
            return EventText("started")
        case ev.RunFinished(partial=True):
            return EventText("finished with a part of the answer")
        case ev.RunFinished():
            return EventText("finished")
        case ev.RunFailed():
            return EventText(f"failed: {describe_failure(event.error)}")
        case ev.PromptRead():
            return EventText(f"the planner {describe_reading(event)}")
        case ev.PlanRejected():
            return _rejected_plan_text(event)
        case ev.PlanReady(plan=KeepAnswer()):
            return EventText("the given answer is kept")
        case ev.PlanReady():
            return EventText(f"plan ready: {format_count(len(trace.steps), 'step')}")
        case ev.PlanOffered():
            return EventText(f"waits for {describe_approval(event)}")
        case ev.PlanDecided(verdict="approved"):
            return EventText("the user approved the plan")
        case ev.PlanDecided():
            verb = "edited" if event.verdict == "edited" else "rejected"
            feedback = ""
            if event.feedback:
                feedback = f": {quote_text(event.feedback)}"
            return EventText(f"the user {verb} the plan{feedback}")
        case ev.PlanRevised():
            return EventText(one_line(describe_revised_plan(event.step, event.workers)))
        case ev.Notice():
            return EventText(describe_notice(event, outer))
        case ev.StepPlanned():
            reads = ""
            if event.access:
                reads = f", {describe_access(event.access)}"
            sentence = f"step {outer}{event.step} planned: {short_name(event.worker)}{reads}"
            return EventText(sentence, (event.subtask,))
    return None


def describe_reading(event: ev.PromptRead) -> str:
    """Return `reads its instructions: 256 of 1,204 tokens, about 12 s left`."""
    left = format_duration(event.seconds_left, tenths=False)
    return f"reads its instructions: {event.tokens:,} of {event.total:,} tokens, about {left} left"


def _rejected_plan_text(event: ev.PlanRejected) -> EventText:
    problem = event.problem
    if event.hint:
        problem += f" ({event.hint})"
    problem = shorten_line(problem, 2 * MAX_QUOTE)
    last_line = tuple(shorten_line(line) for line in event.text.splitlines()[-1:])
    return EventText(f"plan not valid, attempt {event.attempt}: {problem}", last_line)


def _step_event_text(event: ev.Event, record: StepRecord, step: str) -> EventText | None:
    """Return what is said about an event of a step, which is called `step`."""
    worker = short_name(record.worker)
    match event:
        case ev.StepStarted():
            again = ""
            if event.attempt > 1:
                again = f", attempt {event.attempt}"
            return EventText(f"{step} started: {worker}{again}")
        case ev.StepFailed():
            return _failed_step_text(event, record, step)
        case ev.StepStopped():
            return EventText(f"{step} stopped: {REASONS[event.reason]}")
        case ev.StepFinished():
            return EventText(f"{step} finished: {worker}, {_describe_finish(event, record)}")
        case ev.ToolOffered():
            tool = short_name(tool_name(event))
            sentence = f"{step} waits for approval: {worker} wants to call {tool}"
            return EventText(sentence, (event.call.arguments,))
        case ev.ToolCalled():
            tool = short_name(tool_name(event))
            return EventText(f"{step}: {worker} calls {tool}", (event.call.arguments,))
        case ev.ToolReturned():
            return _returned_tool_text(event, record, step)
    return None


def _failed_step_text(event: ev.StepFailed, record: StepRecord, step: str) -> EventText:
    worker = record.worker
    error = event.error
    if record.failed:
        # A failed attempt belongs to the worker before the substitute.
        attempt = record.failed[-1]
        worker = attempt.worker
        error = replace(error, message=attempt.message)
    sentence = f"{step} failed: {short_name(worker)}, {describe_failure(error)}"
    if not event.final:
        sentence += f"; {describe_next_attempt(event)}"
    if event.substitute is not None and event.error.hint:
        return EventText(sentence, (f"hint: {event.error.hint}",))
    return EventText(sentence)


def _describe_finish(event: ev.StepFinished, record: StepRecord) -> str:
    """Return what a step took and, unless it ended normally, how it ended."""
    tokens = event.usage.tokens
    figures = [format_duration(record.seconds(event.at))]
    if tokens:
        figures.append(format_count(tokens, "token"))
    figures += [format_cost(event.usage), FINISHES.get(event.finish, "")]
    return ", ".join(filter(None, figures))


def _returned_tool_text(event: ev.ToolReturned, record: StepRecord, step: str) -> EventText | None:
    for use in record.tools:
        if (use.attempt, use.turn, use.call.id) == (event.attempt, event.turn, event.call_id):
            verb = "failed" if event.error else "returned"
            took = format_duration(event.seconds)
            tool = short_name(tool_name(use))
            return EventText(f"{step}: {tool} {verb} after {took}", (event.text,))
    return None


def describe_event(event: ev.Event, trace: Trace) -> str:
    """Return one line about an event, without results of tools.

    Empty for a piece of text and for a notice.
    """
    inner = ev.innermost_event(event)
    text = event_text(event, trace)
    if text is None or isinstance(inner, ev.Notice):
        return ""
    if isinstance(inner, ev.StepPlanned):
        return f"{text.sentence}, {quote_text(inner.subtask)}"
    return text.sentence


def log_lines(event: ev.Event, trace: Trace) -> list[str]:
    """Return what a log says about an event.

    Its sentence, and below it the texts, those of tools in one line.
    """
    inner = ev.innermost_event(event)
    text = event_text(event, trace)
    # A conductor that may try many times writes much the same again.
    is_repeated = isinstance(inner, ev.PlanRejected) and inner.attempt > 2
    if text is None or is_repeated:
        return []
    indent = "   "
    lines = textwrap.wrap(text.sentence, MAX_QUOTE, subsequent_indent=indent)
    for quoted in text.texts:
        if isinstance(inner, ev.ToolCalled | ev.ToolReturned):
            line = shorten_line(quoted)
        else:
            line = one_line(quoted)
        lines += textwrap.wrap(line, MAX_QUOTE, initial_indent=indent, subsequent_indent=indent)
    return lines


def describe_notice(notice: ev.Notice, outer: str = "") -> str:
    """Return a notice in one line: `note: 3 workers`, `step 2, note: shortened`.

    What was recovered is no note: `step 1: Fast answered instead of broken`.
    """
    number = f"{outer}{notice.step}" if notice.step else outer.rstrip(".")
    front = list[str]()
    if number:
        front.append(f"step {number}")
    if not notice.recovered:
        front.append("note")
    parts = (", ".join(front), one_line(notice.text))
    return ": ".join(filter(None, parts))


def describe_setup(trace: Trace) -> str:
    """Return who plans, the mode, and the number of workers."""
    return f"{describe_planning(trace)}, {format_count(len(trace.pool), 'worker')}"


def describe_planning(trace: Trace) -> str:
    """Return `qwen2.5-7b plans, auto`: the planning model and the mode."""
    if trace.is_unplanned:
        return "one call, without a plan"
    if trace.conductor in ("", PLAN_FILE):
        return f"the plan is given, {trace.mode}"
    return f"{without_file_hash(one_line(trace.conductor))}{also_worker(trace)} plans, {trace.mode}"


def also_worker(trace: Trace) -> str:
    """Return what is added to the name of a planner whose model is a worker of the run, too.

    Else empty.
    """
    if not trace.planner_worker:
        return ""
    return f" (also the worker {one_line(trace.planner_worker)})"


def describe_totals(trace: Trace, *, stored: bool) -> str:
    """Steps, tokens, cost, time and the trace's id, in one line.

    Where nothing was planned, the worker that was asked stands in place of the steps.
    """
    steps = format_count(len(trace.steps), "step")
    if trace.is_unplanned and len(trace.steps) == 1:
        steps = describe_worker(trace.steps[0])
    parts = [
        steps,
        format_count(trace.usage.tokens, "token"),
        format_cost(trace.usage),
        describe_duration(trace),
    ]
    if stored and trace.stored:
        parts.append(f"trace {one_line(trace.run)}")
    return ", ".join(filter(None, parts))


def describe_duration(trace: Trace) -> str:
    """Return how long the run took, and how much of that it only waited for a person."""
    took = format_duration(trace.at)
    waited = trace.seconds_waited(trace.at)
    if waited < MIN_WAIT_SECONDS:
        return took
    return f"{took} of which {format_duration(waited)} waiting for approval"


def describe_wait(trace: Trace) -> str:
    """Return `waits for approval of the plan`, or what else; empty where nobody is waited for."""
    if trace.waits_for is None:
        return ""
    return one_line(f"waits for {describe_approval(trace.waits_for)}")[:MAX_QUOTE]


def describe_outcome(trace: Trace, *, live: bool = False) -> str:
    """Return how the run ended, in one line: `finished`, `partial answer: why`, `failed: why`."""
    if not trace.ended:
        if live and trace.waits_for is not None:
            return f"the run {describe_wait(trace)}"
        if live:
            return "the run is still going on"
        return "the run was interrupted"
    outcome = _partial_answer(trace) if trace.partial else trace.outcome()
    if trace.error is None:
        return outcome
    return _ended_by(outcome, trace.error)


def _partial_answer(trace: Trace) -> str:
    """Return `partial answer`, and which step it is by where the one that answers wrote nothing."""
    texts = {record.text: record for record in trace.steps if record.text}
    record = texts.get(trace.answer)
    if record is None or record.last:
        return "partial answer"
    return f"partial answer, by step {record.number}"


def _ended_by(outcome: str, error: Failure) -> str:
    """Return an outcome and its reason: `failed: the key was refused`.

    After a limit: `partial answer, stopped: limit of 1 call (--max-calls)`.
    """
    why = describe_failure(error)
    mark = "," if why.startswith("stopped:") else ":"
    return f"{outcome}{mark} {why}"


def problem_lines(trace: Trace, *, stored: bool) -> list[str]:
    """Return at most three lines for standard error, empty when a run gave its whole answer."""
    is_whole = trace.state == "finished" and not trace.partial and trace.error is None
    if not trace.run or is_whole:
        return []
    problem = f"conductor: {_describe_problem(trace)}"
    resume = ""
    if stored and trace.stored:
        resume = _resume_line(trace)
    flag = limit_flag(trace.error) if trace.error else ""
    if resume and flag:  # in one line, so that it can be copied
        return [problem, f"{resume} {flag}"]
    hint = ""
    if trace.error:
        hint = one_line(with_hint(trace.error).hint)[:MAX_MESSAGE]
    if hint:
        hint = f"  {hint}"
    return list(filter(None, (problem, hint, resume)))


def _describe_problem(trace: Trace) -> str:
    is_partial = trace.state == "finished" and trace.partial
    if trace.error is not None:
        if is_partial:
            return _ended_by(_partial_answer(trace), trace.error)
        return describe_failure(trace.error)
    why = "the run was interrupted before its end"
    if trace.ended:
        why = "not every step could finish"
    if is_partial:
        return f"{_partial_answer(trace)}: {why}"
    return why


def _resume_line(trace: Trace) -> str:
    """Return the command that continues the run; empty when that would be of no use."""
    error = trace.error
    if error is not None and error.reason == "output_failed":
        return ""  # the answer so far is in the trace, and the error about the output says so
    command = f"conductor ask --resume {one_line(trace.run)}"
    if trace.steps:
        is_unfinished = trace.plan is None or len(trace.done()) < len(trace.steps)
        if not is_unfinished:
            return ""
        return f"  resume: {command}"
    if error is None:
        can_succeed = not trace.ended
    else:
        # After these the same question may well succeed.
        is_passing = error.kind in ("cancelled", "terminated", "limit")
        can_succeed = is_passing and error.reason != "output_closed"
    if not can_succeed:
        return ""
    return f"  ask it again: {command}"


def limit_flag(failure: Failure) -> str:
    """Return the flag and value that raise the limit of a run; empty for any other failure."""
    flag = _LIMIT_FLAGS.get(failure.reason)
    if not flag or not failure.suggested_limit:
        return ""
    return f"{flag} {failure.suggested_limit}"


def with_hint(failure: Failure) -> Failure:
    """Return the failure with a hint that names a flag or setting, where the core left it open."""
    if failure.hint:
        return failure
    return replace(failure, hint=_hint_of(failure))


def _hint_of(failure: Failure) -> str:
    flag = limit_flag(failure)
    if flag:
        return f"raise it with {flag}"
    setting = _DAY_LIMITS.get(failure.reason)
    if setting:
        command = f"conductor config set {setting} {failure.suggested_limit}"
        return f"wait until midnight, or run: {command}"
    if failure.kind == "internal":
        return "run it again with --debug and report what it prints"
    return ""

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
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.trace import StepRecord, ToolRecord, Trace, describe_revised_plan

MAX_MESSAGE: Final = 400  # Characters of an error's message or hint that are shown
MAX_QUOTE: Final = 100  # Characters of a text that is shown in one line, and of a line of a log
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
    """The beginning of `text` as one line."""
    # Cut first, so that a text of megabytes is not sanitized for one line of it.
    line = one_line(text[: 10 * length])
    return line if len(line) <= length else f"{line[: length - 4].rstrip()} ..."


def quote_text(text: str, length: int = MAX_QUOTE) -> str:
    """The beginning of `text` as one line, in quotation marks."""
    return f'"{shorten_line(text, length)}"'


def short_name(name: str) -> str:
    """The name of a worker or a tool in one line of bounded length.

    A step on `self` is called what it is, a review.
    """
    return "review" if name == SELF else one_line(name)[:MAX_NAME]


def question_line(trace: Trace) -> str:
    """The first line of the question that is not blank."""
    return next((line for text in trace.question.text.splitlines() if (line := one_line(text))), "")


def describe_attachment(attachment: Attachment) -> str:
    """`chart.png (PNG image, 800 x 600 pixels, 264 kB)`."""
    return one_line(f"{attachment.name} ({describe_media(attachment)})")


def describe_file(file: File) -> str:
    """A file with its type and size; of a text its characters."""
    if file.attachment is not None:
        return describe_attachment(file.attachment)
    return f"{one_line(file.name)} ({format_count(len(file.text), 'character')})"


def message_text(message: Message) -> str:
    """Return what a message holds.

    A line for each attached file and for each tool that it asks for, and its text.
    """
    lines = [f"[attached: {describe_attachment(attachment)}]" for attachment in message.attachments]
    lines += [one_line(f"[calls {call.name} {call.arguments}]") for call in message.tool_calls]
    return "\n".join([*lines, *([message.content] if message.content or not lines else [])])


def tool_name(use: ToolRecord | ev.ToolOffered | ev.ToolCalled) -> str:
    """The server and the tool, `files.read_file`.

    The tool alone where nothing is known of a server.
    """
    full = "" if isinstance(use, ev.ToolOffered) else use.tool
    return one_line(full or (f"{use.server}.{use.call.name}" if use.server else use.call.name))


def running_calls(record: StepRecord) -> list[ToolRecord]:
    """The calls that a step waits for.

    A call without an end may also have been broken off with its attempt.
    """
    if record.state != "running" or record.retry_at is not None:
        return []
    return [
        use
        for use in record.tools
        if use.ended is None and use.started >= (record.attempted or 0.0)
    ]


def find_step(trace: Trace, number: int) -> StepRecord | None:
    """The step of this number; None when the trace has none."""
    return next((record for record in trace.steps if record.number == number), None)


def describe_access(access: tuple[int, ...]) -> str:
    """`reads 1 and 3`, `reads question and files only`.

    Item 0 of a nested run is the given answer.
    """
    names = ["the given answer" if item == GIVEN else str(item) for item in access]
    return f"reads {format_list(names) or 'question and files only'}"


def describe_worker(record: StepRecord) -> str:
    """The worker that did a step, and the planned one when another took over."""
    worker = short_name(record.worker)
    planned = short_name(record.step.worker)
    return worker if worker == planned else f"{worker} (planned: {planned})"


def tokens_so_far(record: StepRecord) -> int:
    """A guess at the tokens of a running step, four characters each.

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

    None for a piece of text.

    `outer` stands before the step numbers of a nested run: `2.`. That such a run begins and ends,
    its step says.
    """
    match event:
        case ev.NestedEvent():
            record = find_step(trace, event.step)
            if record is None or record.nested is None:
                return None
            found = event_text(event.event, record.nested, f"{outer}{event.step}.")
            if found is None or found.sentence.startswith("step "):
                return found
            return found._replace(sentence=f"step {outer}{event.step}: {found.sentence}")
        case ev.RunStarted() | ev.RunFinished() | ev.RunFailed() if outer:
            return None
        case ev.RunStarted():
            return EventText("started")
        case ev.RunFinished():
            return EventText("finished with a part of the answer" if event.partial else "finished")
        case ev.RunFailed():
            return EventText(f"failed: {describe_failure(event.error)}")
        case ev.PlanRejected():
            problem = f"{event.problem} ({event.hint})" if event.hint else event.problem
            text = (
                f"plan not valid, attempt {event.attempt}: {shorten_line(problem, 2 * MAX_QUOTE)}"
            )
            return EventText(
                text, tuple(shorten_line(line) for line in event.text.splitlines()[-1:])
            )
        case ev.PlanReady(plan=KeepAnswer()):
            return EventText("the given answer is kept")
        case ev.PlanReady():
            return EventText(f"plan ready: {format_count(len(trace.steps), 'step')}")
        case ev.PlanDecided():
            if event.verdict == "approved":
                return None
            verb = "edited" if event.verdict == "edited" else "rejected"
            return EventText(
                f"the user {verb} the plan"
                + (f": {quote_text(event.feedback)}" if event.feedback else "")
            )
        case ev.PlanRevised():
            return EventText(one_line(describe_revised_plan(event.step, event.workers)))
        case ev.Notice():
            return EventText(describe_notice(event, outer))
        case ev.StepPlanned():
            reads = f", {describe_access(event.access)}" if event.access else ""
            return EventText(
                f"step {outer}{event.step} planned: {short_name(event.worker)}{reads}",
                (event.subtask,),
            )
    if (record := find_step(trace, getattr(event, "step", 0))) is None:
        return None
    of = f" of {len(trace.steps)}" if trace.plan is not None and not outer else ""
    step = f"step {outer}{record.number}{of}"
    worker = short_name(record.worker)
    match event:
        case ev.StepStarted():
            again = f", attempt {event.attempt}" if event.attempt > 1 else ""
            return EventText(f"{step} started: {worker}{again}")
        case ev.StepFailed():
            # A failed attempt belongs to the worker before the substitute.
            failed = record.failed[-1] if record.failed else None
            worker = worker if failed is None else short_name(failed.worker)
            why = describe_failure(
                event.error if failed is None else replace(event.error, message=failed.message)
            )
            rest = "" if event.final else f"; {describe_next_attempt(event)}"
            hint = (
                (f"hint: {event.error.hint}",)
                if event.substitute is not None and event.error.hint
                else ()
            )
            return EventText(f"{step} failed: {worker}, {why}{rest}", hint)
        case ev.StepStopped():
            return EventText(f"{step} stopped: {REASONS[event.reason]}")
        case ev.StepFinished():
            usage = event.usage
            figures = (
                format_duration(record.seconds(event.at)),
                format_count(usage.tokens, "token") if usage.tokens else "",
                format_cost(usage),
                FINISHES.get(event.finish, ""),
            )
            return EventText(f"{step} finished: {worker}, {', '.join(filter(None, figures))}")
        case ev.ToolCalled():
            return EventText(
                f"{step}: {worker} calls {short_name(tool_name(event))}", (event.call.arguments,)
            )
        case ev.ToolReturned():
            called = (event.attempt, event.turn, event.call_id)
            names = [
                tool_name(use)
                for use in record.tools
                if (use.attempt, use.turn, use.call.id) == called
            ]
            how = (
                f"{'failed' if event.error else 'returned'} after {format_duration(event.seconds)}"
            )
            return (
                EventText(f"{step}: {short_name(names[0])} {how}", (event.text,)) if names else None
            )
    return None


def describe_event(event: ev.Event, trace: Trace) -> str:
    """One line about an event, without results of tools.

    Empty for a piece of text and for a notice.
    """
    inner = ev.innermost_event(event)
    found = event_text(event, trace)
    if found is None or isinstance(inner, ev.Notice):
        return ""
    return (
        f"{found.sentence}, {quote_text(inner.subtask)}"
        if isinstance(inner, ev.StepPlanned)
        else found.sentence
    )


def log_lines(event: ev.Event, trace: Trace) -> list[str]:
    """Return what a log says about an event.

    Its sentence, and below it the texts, those of tools in one line.
    """
    inner = ev.innermost_event(event)
    found = event_text(event, trace)
    # A conductor that may try many times writes much the same again.
    if found is None or (isinstance(inner, ev.PlanRejected) and inner.attempt > 2):
        return []
    texts = found.texts
    if isinstance(inner, ev.ToolCalled | ev.ToolReturned):
        texts = tuple(shorten_line(text) for text in texts)
    lines = textwrap.wrap(found.sentence, MAX_QUOTE, subsequent_indent="   ")
    for text in texts:
        lines += textwrap.wrap(
            one_line(text), MAX_QUOTE, initial_indent="   ", subsequent_indent="   "
        )
    return lines


def describe_notice(notice: ev.Notice, outer: str = "") -> str:
    """A notice in one line: `note: 3 workers`, `step 2, note: shortened`, `step 1.

    Fast answered instead of broken`.
    """
    number = f"{outer}{notice.step}" if notice.step else outer.rstrip(".")
    parts = (f"step {number}" if number else "", "" if notice.recovered else "note")
    return ": ".join(filter(None, (", ".join(filter(None, parts)), one_line(notice.text))))


def describe_setup(trace: Trace) -> str:
    """Return who plans, the mode, and the number of workers."""
    return f"{describe_planning(trace)}, {format_count(len(trace.pool), 'worker')}"


def describe_planning(trace: Trace) -> str:
    """`qwen2.5-7b plans, auto`: the planning model and the mode."""
    if trace.conductor in ("", "plan file"):
        return f"the plan is given, {trace.mode}"
    return f"{without_file_hash(one_line(trace.conductor))}{also_worker(trace)} plans, {trace.mode}"


def also_worker(trace: Trace) -> str:
    """Return what is added to the name of a planner whose model is a worker of the run, too.

    Else empty.
    """
    return f" (also the worker {one_line(trace.planner_worker)})" if trace.planner_worker else ""


def describe_totals(trace: Trace, *, stored: bool) -> str:
    """Steps, tokens, cost, time and the trace's id, in one line."""
    parts = (
        format_count(len(trace.steps), "step"),
        format_count(trace.usage.tokens, "token"),
        format_cost(trace.usage),
        format_duration(trace.at),
        f"trace {one_line(trace.run)}" if stored and trace.stored else "",
    )
    return ", ".join(filter(None, parts))


def describe_outcome(trace: Trace, *, live: bool = False) -> str:
    """Return how the run ended, in one line: `finished`, `partial answer: why`, `failed: why`."""
    if not trace.ended:
        return "the run is still going on" if live else "the run was interrupted"
    what = _partial_answer(trace) if trace.partial else trace.outcome()
    return what if trace.error is None else _ended_by(what, trace.error)


def _partial_answer(trace: Trace) -> str:
    """`partial answer`, or `partial answer, by step 1` where the step that answers had written
    nothing.
    """
    texts = {record.text: record for record in trace.steps if record.text}
    record = texts.get(trace.answer)
    return (
        "partial answer"
        if record is None or record.last
        else f"partial answer, by step {record.number}"
    )


def _ended_by(what: str, error: Failure) -> str:
    """`failed: the key was refused`, `partial answer, stopped: limit of 1 call (--max-calls)`."""
    why = describe_failure(error)
    return f"{what}{',' if why.startswith('stopped:') else ':'} {why}"


def problem_lines(trace: Trace, *, stored: bool) -> list[str]:
    """At most three lines for standard error when a run gave no answer or only a part of one."""
    if not trace.run or (trace.state == "finished" and not trace.partial and trace.error is None):
        return []
    partial = trace.state == "finished" and trace.partial
    if trace.error is not None:
        what = (
            _ended_by(_partial_answer(trace), trace.error)
            if partial
            else describe_failure(trace.error)
        )
    else:
        what = (
            "not every step could finish"
            if trace.ended
            else "the run was interrupted before its end"
        )
        what = f"{_partial_answer(trace)}: {what}" if partial else what
    lines = [f"conductor: {what}"]
    resume = _resume_line(trace) if stored and trace.stored else ""
    flag = limit_flag(trace.error) if trace.error else ""
    if resume and flag:  # in one line, so that it can be copied
        return [*lines, f"{resume} {flag}"]
    hint = one_line(with_hint(trace.error).hint)[:MAX_MESSAGE] if trace.error else ""
    return [line for line in (*lines, hint and f"  {hint}", resume) if line]


def _resume_line(trace: Trace) -> str:
    """The command that continues the run; empty when that would be of no use."""
    if trace.error is not None and trace.error.reason == "output_failed":
        return ""  # the answer so far is in the trace, and the error about the output says so
    command = f"conductor ask --resume {one_line(trace.run)}"
    if trace.steps:
        unfinished = trace.plan is None or len(trace.done()) < len(trace.steps)
        return f"  resume: {command}" if unfinished else ""
    if trace.error is None:
        return "" if trace.ended else f"  ask it again: {command}"
    # After these the same question may well succeed.
    again = (
        trace.error.kind in ("cancelled", "terminated", "limit")
        and trace.error.reason != "output_closed"
    )
    return f"  ask it again: {command}" if again else ""


def limit_flag(failure: Failure) -> str:
    """The flag and value that raise the limit of a run; empty for any other failure."""
    flag = _LIMIT_FLAGS.get(failure.reason)
    return f"{flag} {failure.suggested_limit}" if flag and failure.suggested_limit else ""


def with_hint(failure: Failure) -> Failure:
    """The failure with a hint that names a flag or setting, where the core left the hint open."""
    flag = limit_flag(failure)
    setting = _DAY_LIMITS.get(failure.reason)
    if failure.hint:
        return failure
    hint = (
        "run it again with --debug and report what it prints" if failure.kind == "internal" else ""
    )
    if setting:
        hint = (
            f"wait until midnight, or run: conductor config set {setting} {failure.suggested_limit}"
        )
    return replace(failure, hint=f"raise it with {flag}" if flag else hint)

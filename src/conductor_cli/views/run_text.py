"""What all views say about a run, in words: progress, reasons, totals, and how it ended. Pure; no colours."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from conductor_cli.core.chat import Attachment, Message, ToolCall
from conductor_cli.core.errors import Failure
from conductor_cli.core.events import (
    Event,
    Notice,
    PlanDecided,
    PlanDelta,
    StepDelta,
    StepFailed,
    StopReason,
    ToolCalled,
    ToolOffered,
    innermost_event,
)
from conductor_cli.core.formatting import (
    format_cost,
    format_count,
    format_duration,
    format_list,
    without_file_hash,
)
from conductor_cli.core.media import describe_media
from conductor_cli.core.plan import GIVEN
from conductor_cli.core.question import File
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.trace import StepRecord, ToolUse, Trace, apply_event

LONGEST_MESSAGE: Final = 400
"""Characters of an error's message or hint that are shown."""

REASONS: Final[dict[StopReason, str]] = {
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

INTERRUPTIONS: Final = frozenset({"cancelled", "terminated", "limit"})
"""Kinds of failure after which the same question may well succeed."""

# The core reports which limit was reached and a value that would be enough; flags and settings are known only here.
_LIMIT_FLAGS: Final = {
    "limit_time": "--max-time",
    "limit_calls": "--max-calls",
    "limit_tokens": "--max-tokens",
    "limit_cost": "--max-cost",
}
_DAY_LIMITS: Final = {
    "limit_calls_day": "limits.calls_day",
    "limit_tokens_day": "limits.tokens_day",
    "limit_cost_day": "limits.cost_day",
}
PLAN_FILE: Final = "plan file"
"""What a trace names as the conductor of a run whose plan was given."""


# Events and texts


def apply_without_deltas(trace: Trace, event: Event) -> Trace:
    """`apply_event` for a view that shows only complete texts: streamed pieces are skipped."""
    return trace if isinstance(innermost_event(event), (PlanDelta, StepDelta)) else apply_event(trace, event)


def shorten_line(text: str, length: int = 100) -> str:
    """The beginning of `text` as one line."""
    # Cut first, so that a text of megabytes is not sanitized for one line of it.
    line = one_line(text[: 10 * length])
    return line if len(line) <= length else f"{line[: length - 4].rstrip()} ..."


def quote_text(text: str, length: int = 100) -> str:
    """The beginning of `text` as one line, in quotation marks."""
    return f'"{shorten_line(text, length)}"'


def question_line(trace: Trace) -> str:
    """The first line of the question that is not blank."""
    return next((line for text in trace.question.text.splitlines() if (line := one_line(text))), "")


def describe_attachment(attachment: Attachment) -> str:
    """`chart.png (PNG image, 800 x 600 pixels, 264 kB)`."""
    return one_line(f"{attachment.name} ({describe_media(attachment)})")


def describe_file(file: File) -> str:
    """`chart.png (PNG image, 800 x 600 pixels, 264 kB)`, `notes.md (1,203 characters)`."""
    if file.attachment is not None:
        return describe_attachment(file.attachment)
    return f"{one_line(file.name)} ({format_count(len(file.text), 'character')})"


def message_text(message: Message) -> str:
    """What a message holds: a line for each attached file and for each tool that it asks for, and its text."""
    lines = [f"[attached: {describe_attachment(attachment)}]" for attachment in message.attachments]
    lines += [f"[calls {describe_call(call)}]" for call in message.tool_calls]
    return "\n".join([*lines, *([message.content] if message.content or not lines else [])])


# Tools


def describe_call(call: ToolCall) -> str:
    """The tool and its arguments, in one line: `read_file {"path": "notes.md"}`."""
    return one_line(f"{call.name} {call.arguments}")


def tool_name(use: ToolUse | ToolOffered | ToolCalled) -> str:
    """The server and the tool, `files.read_file`; the tool alone where the call was not made."""
    return one_line(f"{use.server}.{use.call.name}" if use.server else use.call.name)


def running_calls(record: StepRecord) -> list[ToolUse]:
    """The calls that a step waits for. A call without an end may also have been broken off with its attempt."""
    if record.state != "running" or record.retry_at is not None:
        return []
    return [use for use in record.tools if use.ended is None and use.started >= (record.attempted or 0.0)]


# Steps


def find_step(trace: Trace, number: int) -> StepRecord | None:
    """The step of this number; None when the trace has none."""
    return next((record for record in trace.steps if record.number == number), None)


def describe_access(access: tuple[int, ...]) -> str:
    """`reads 1 and 3`, `reads question and files only`; item 0 of a nested run is the given answer."""
    names = ["the given answer" if item == GIVEN else str(item) for item in access]
    return f"reads {format_list(names) or 'question and files only'}"


def describe_worker(record: StepRecord) -> str:
    """The worker that did a step, and the planned one when another took over."""
    planned = record.step.worker
    return one_line(record.worker if record.worker == planned else f"{record.worker} (planned: {planned})")


def tokens_so_far(record: StepRecord) -> int:
    """A guess at the tokens of a running step, four characters each; the exact number is known at its end."""
    return (len(record.text) + len(record.thinking) + 3) // 4


def describe_failure(error: Failure) -> str:
    """What happened, in one line."""
    return one_line(error.message)[:LONGEST_MESSAGE] or error.kind


def describe_next_attempt(event: StepFailed) -> str:
    """What follows a failed attempt."""
    if event.retry_in is not None:
        return f"again in {format_duration(event.retry_in)}"
    if event.substitute is not None:
        return f"now on {one_line(event.substitute)}"
    return "no attempts are left"


def describe_notice(notice: Notice) -> str:
    """A notice in one line: `note: 3 workers`, `step 2, note: shortened`, `step 1: fast answered instead of broken`."""
    step = f"step {notice.step}" if notice.step else ""
    front = ", ".join(filter(None, (step, "" if notice.recovered else "note")))
    return f"{front}: {one_line(notice.text)}" if front else one_line(notice.text)


def describe_decision(event: PlanDecided) -> str:
    """What the user decided about the plan that was offered."""
    verb = {"approved": "approved", "edited": "edited", "replan": "rejected"}[event.verdict]
    return f"the user {verb} the plan" + (f": {quote_text(event.feedback)}" if event.feedback else "")


# The whole run


def describe_setup(trace: Trace) -> str:
    """Who plans, the mode, and the number of workers."""
    return f"{describe_planning(trace)}, {format_count(len(trace.pool), 'worker')}"


def describe_planning(trace: Trace) -> str:
    """`qwen2.5-7b plans, auto`: the planning model and the mode."""
    given = trace.conductor in ("", PLAN_FILE)
    return f"{'the plan is given' if given else f'{describe_planner(trace)} plans'}, {trace.mode}"


def describe_planner(trace: Trace) -> str:
    """The model that plans, without the hash of its file; with the worker that is the same model, if there is one."""
    return without_file_hash(one_line(trace.conductor)) + also_worker(trace)


def also_worker(trace: Trace) -> str:
    """What is added to the name of a planner whose model is a worker of the run, too; else empty."""
    return f" (also the worker {one_line(trace.planner_worker)})" if trace.planner_worker else ""


def describe_totals(trace: Trace, *, stored: bool) -> str:
    """Steps, tokens, cost, time and the trace's id, in one line."""
    parts = (
        format_count(len(trace.steps), "step"), format_count(trace.usage.tokens, "token"), format_cost(trace.usage),
        format_duration(trace.at), f"trace {one_line(trace.run)}" if stored and trace.stored else "",
    )  # fmt: skip
    return ", ".join(filter(None, parts))


def describe_outcome(trace: Trace, *, live: bool = False) -> str:
    """How the run ended, in one line: `finished`, `partial answer: why`, `failed: why`."""
    if not trace.ended:
        return "the run is still going on" if live else "the run was interrupted"
    what = "partial answer" if trace.partial else "finished" if trace.state == "finished" else "failed"
    return what if trace.error is None else f"{what}: {describe_failure(trace.error)}"


# What went wrong


def problem_lines(trace: Trace, *, stored: bool) -> list[str]:
    """At most three lines for standard error when a run gave no answer or only a part of one."""
    if not trace.run or (trace.state == "finished" and not trace.partial and trace.error is None):
        return []
    if trace.error is not None:
        what = describe_failure(trace.error)
    else:
        what = "not every step could finish" if trace.ended else "the run was interrupted before its end"
    partial = "partial answer: " if trace.state == "finished" and trace.partial else ""
    lines = [f"conductor: {partial}{what}"]
    resume = _resume_line(trace) if stored and trace.stored else ""
    flag = limit_flag(trace.error) if trace.error else ""
    if resume and flag:  # in one line, so that it can be copied
        return [*lines, f"{resume} {flag}"]
    hint = one_line(with_hint(trace.error).hint)[:LONGEST_MESSAGE] if trace.error else ""
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
    again = trace.error.kind in INTERRUPTIONS and trace.error.reason != "output_closed"
    return f"  ask it again: {command}" if again else ""


def limit_flag(failure: Failure) -> str:
    """The flag and value that raise the limit of a run; empty for any other failure."""
    flag = _LIMIT_FLAGS.get(failure.reason)
    return f"{flag} {failure.suggested_limit}" if flag and failure.suggested_limit else ""


def with_hint(failure: Failure) -> Failure:
    """The failure with a hint that names a flag or setting, where the core left the hint open."""
    flag, setting = limit_flag(failure), _DAY_LIMITS.get(failure.reason)
    if failure.hint:
        return failure
    if flag:
        return replace(failure, hint=f"raise it with {flag}")
    if setting:
        command = f"conductor config set {setting} {failure.suggested_limit}"
        return replace(failure, hint=f"wait until midnight, or run: {command}")
    if failure.kind == "internal":
        return replace(failure, hint="run it again with --debug and report what it prints")
    return failure

"""The stream of events.

Everything that happens in a run, as classes, and one line of JSON for each.

A stream starts with `RunStarted` and ends with exactly one `RunFinished` or `RunFailed`. Every
event carries `at`, seconds since the run began. The tree, the store, evaluation and training read
these and nothing else. To add a kind, write the class, add it to `Event`, and handle it in
`trace.apply_event`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, get_args

from conductor_cli.core.chat import Attachment, Finish, Message, ToolCall, text_size
from conductor_cli.core.errors import Failure, FailureReason
from conductor_cli.core.input_requests import InputField
from conductor_cli.core.plan import KeepAnswer, Plan
from conductor_cli.core.policy import NO_POLICY, Policy
from conductor_cli.core.pool import Limits, Pool
from conductor_cli.core.question import Question
from conductor_cli.core.redact import Secrets
from conductor_cli.core.serialization import DecodeError, decode_line, dump, encode_line, load
from conductor_cli.core.usage import Usage

FORMAT: Final = 3
"""The number of the trace format. Formats 1 and 2 are read, too; a newer one is refused."""

Mode = Literal["mini", "auto", "ultra"]
StopReason = Literal["cancelled", "limit", "not_needed", "plan_revised", "run_failed"]
Verdict = Literal["approved", "edited", "replan"]
NoticeReason = Literal["", "trace_not_stored", "trace_damaged", "shortened"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _TimedEvent:
    """`at` is how many seconds after the beginning of the run it happened."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _StepEvent(_TimedEvent):
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(_TimedEvent):
    """A run begins.

    `time` is wall-clock time (ISO 8601, UTC), `planner` the planner's name and file hash.
    `conductor` is the earlier name of that, which older traces have alone.

    `planner_worker` is the worker that is the same model as the one that plans, empty if there is
    none. `recipient` is who receives what the planner is sent: this machine, or a provider.
    `policy` is the one that held. `resumed` is the run whose finished steps this one reuses, empty
    if there is none. `planner_saw_files` says whether the planner is or was shown the attached
    files, so that its subtasks may quote them. `origin` says who asked: `serve` or `key NAME` for a
    client of the server, empty for anyone else. `holds_answer` says that the answer is known only
    at the end, since what the last step writes may be a verdict or a refusal.
    """

    kind: ClassVar[str] = "run_started"
    run: str
    time: str
    question: Question
    pool: Pool
    limits: Limits
    mode: Mode
    conductor: str
    profile: str
    format: int = FORMAT
    recipient: str = ""
    policy: Policy = NO_POLICY
    resumed: str = ""
    planner_saw_files: bool = True
    planner_worker: str = ""
    origin: str = ""
    holds_answer: bool = False
    planner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRead(_TimedEvent):
    """A planner on this machine has read `tokens` of the `total` tokens of its prompt.

    It needs about `seconds_left` for the rest, which is at least a second.
    """

    kind: ClassVar[str] = "prompt_read"
    tokens: int
    total: int
    seconds_left: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDelta(_TimedEvent):
    """The planner wrote a piece of text."""

    kind: ClassVar[str] = "plan_delta"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlanned(_StepEvent):
    """A step of the plan is complete. `last` says whether its answer is the run's answer.

    Where a plan is ready without such a step, because the planner's last one repeated it, the
    newest step is the last.
    """

    kind: ClassVar[str] = "step_planned"
    worker: str
    subtask: str
    access: tuple[int, ...]
    last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRejected(_TimedEvent):
    """What the planner wrote is not a valid plan from `text` on: `problem` says why.

    `usage` is what it cost.

    `prompt` is what it was sent. `reason` is `plan_invalid`, or why the call to the planner failed.
    """

    kind: ClassVar[str] = "plan_rejected"
    attempt: int
    text: str
    problem: str
    hint: str
    usage: Usage
    prompt: tuple[Message, ...] = ()
    reason: FailureReason = "plan_invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReady(_TimedEvent):
    """The plan is complete.

    `usage` is what the accepted attempt cost the planner, `prompt` what it was sent.
    """

    kind: ClassVar[str] = "plan_ready"
    plan: Plan | KeepAnswer
    usage: Usage
    prompt: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOffered(_TimedEvent):
    """The plan is shown to the user. No step starts before they have decided."""

    kind: ClassVar[str] = "plan_offered"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDecided(_TimedEvent):
    """What the user decided about the plan.

    `edited` and `replan` discard it (`feedback` says what was wrong).
    """

    kind: ClassVar[str] = "plan_decided"
    verdict: Verdict
    feedback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRevised(_TimedEvent):
    """No worker could do step `step`, so the planner is asked for the rest of the plan.

    This happens once in a run.

    `workers` are those that failed at it. The steps in `left_out` had not begun and are stopped.
    Those that come instead begin with number `first`, and the last of them answers. A resumed run
    repeats this event.
    """

    kind: ClassVar[str] = "plan_revised"
    step: int
    workers: tuple[str, ...]
    left_out: tuple[int, ...]
    first: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted(_StepEvent):
    """An attempt at a step begins: `worker` is sent `prompt`."""

    kind: ClassVar[str] = "step_started"
    worker: str
    attempt: int
    prompt: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDelta(_StepEvent):
    """A worker wrote a piece of its answer, or of its thinking."""

    kind: ClassVar[str] = "step_delta"
    attempt: int
    text: str = ""
    thinking: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOffered(_StepEvent):
    """The user is asked whether `worker` may call a tool of `server`.

    The call begins or is refused once they said.
    """

    kind: ClassVar[str] = "tool_offered"
    attempt: int
    turn: int
    call: ToolCall
    server: str
    worker: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputAsked(_StepEvent):
    """A server of tools asks the user for something while it is called.

    That is a form of `fields`, or a visit to `url`. `message` and the texts of the fields are the
    server's. What the user answers is in no event.
    """

    kind: ClassVar[str] = "input_asked"
    attempt: int
    turn: int
    server: str
    message: str
    fields: tuple[InputField, ...] = ()
    url: str = ""
    worker: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalled(_StepEvent):
    """A worker asked for a tool in reply number `turn` of its attempt, and the call begins.

    `server` has the tool; it is empty where the call is not made, because it is refused or wrong.
    What the worker wrote before it in this attempt is not its answer. `read_only` says that the
    call changes nothing. `tool` has the name of settings, `files.read_file`, whether the call is
    made or not; it is empty where there is no such tool.
    """

    kind: ClassVar[str] = "tool_called"
    attempt: int
    turn: int
    call: ToolCall
    server: str
    read_only: bool = False
    tool: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReturned(_StepEvent):
    """A call of a tool has ended.

    `text` goes back to the worker, and `attachments` that it accepts.

    `error` says that the call failed or was refused.
    """

    kind: ClassVar[str] = "tool_returned"
    attempt: int
    turn: int
    call_id: str
    text: str
    error: bool
    seconds: float
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFailed(_StepEvent):
    """An attempt failed.

    With `retry_in` the same worker is asked again after so many seconds; with `substitute` another
    worker is asked; with neither the step has failed for good. Attempt 0 is that of a worker which
    was not asked at all, because it cannot be used in this run; no `step_started` comes before it.
    """

    kind: ClassVar[str] = "step_failed"
    attempt: int
    error: Failure
    usage: Usage
    retry_in: float | None = None
    substitute: str | None = None

    @property
    def final(self) -> bool:
        return self.retry_in is None and self.substitute is None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStopped(_StepEvent):
    """A step ends without an answer.

    It was cancelled, a limit was reached, it is not needed, or the run failed.

    After `plan_revised` another plan takes the place of the step.
    """

    kind: ClassVar[str] = "step_stopped"
    reason: StopReason
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinished(_StepEvent):
    """A step is done. `text` equals the joined deltas of `attempt` since its last tool call.

    Of an answer with a JSON Schema it is the one value in them; what stands around that is left out
    and told in a notice.

    `tool_calls` are calls of tools that the client of the server has to make; `provider_data` is
    what the worker's adapter needs when the conversation goes on with their results.
    `stop_sequence` is the client's stop text that ended the answer, where the worker's server said
    so.
    """

    kind: ClassVar[str] = "step_finished"
    attempt: int
    text: str
    usage: Usage
    finish: Finish
    stop_sequence: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    provider_data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedEvent(_StepEvent):
    """An event of the nested run that step `step` is; nested runs nest to any depth."""

    kind: ClassVar[str] = "nested_event"
    event: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice(_TimedEvent):
    """Something the user should know, such as a shortened prompt. It changes no state.

    `step` 0 means the whole run.

    `recovered` says that the run went on with less, or with something else, than was asked for or
    planned. `reason` is for code; empty if the text says all there is to say.
    """

    kind: ClassVar[str] = "notice"
    text: str
    step: int = 0
    recovered: bool = False
    reason: NoticeReason = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished(_TimedEvent):
    """The run has an answer.

    `partial` means that it is cut off, made of a step that is, or not from the last step; `error`
    says why.

    With `tool_calls` the client of the server has to make these calls first; `answer` is what was
    written before them.
    """

    kind: ClassVar[str] = "run_finished"
    answer: str
    usage: Usage
    partial: bool = False
    error: Failure | None = None
    tool_calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailed(_TimedEvent):
    """The run has no answer."""

    kind: ClassVar[str] = "run_failed"
    error: Failure
    usage: Usage


Event = (
    RunStarted
    | PromptRead
    | PlanDelta
    | StepPlanned
    | PlanRejected
    | PlanReady
    | PlanOffered
    | PlanDecided
    | PlanRevised
    | StepStarted
    | StepDelta
    | ToolOffered
    | InputAsked
    | ToolCalled
    | ToolReturned
    | StepFailed
    | StepStopped
    | StepFinished
    | NestedEvent
    | Notice
    | RunFinished
    | RunFailed
)

KINDS: Final[dict[str, type]] = {kind.kind: kind for kind in get_args(Event)}


def innermost_event(event: Event) -> Event:
    """Return the event itself, in whatever nested run it happened."""
    while isinstance(event, NestedEvent):
        event = event.event
    return event


def text_size_of_event(event: Event) -> int:
    """Return the characters of the texts of an event that may be long."""
    event = innermost_event(event)
    if isinstance(event, RunStarted):
        return _text_size_of_question(event.question)
    if isinstance(event, (StepStarted, PlanReady, PlanRejected)):
        return text_size(event.prompt)
    if isinstance(event, (StepFinished, ToolReturned)):
        return len(event.text)
    if isinstance(event, RunFinished):
        return len(event.answer)
    return 0


def _text_size_of_question(question: Question) -> int:
    size = len(question.text) + sum(len(file.text) for file in question.files)
    if question.conversation is not None:
        size += text_size(question.conversation.messages)
    return size


def to_json(event: Event, *, brief: bool = False) -> dict[str, Any]:
    """Return the JSON object of an event, its `kind` first.

    A `brief` one has no fields that have their default.
    """
    if isinstance(event, NestedEvent):
        return {
            "kind": event.kind,
            "at": event.at,
            "step": event.step,
            "event": to_json(event.event, brief=brief),
        }
    begins = {}
    if brief and isinstance(event, RunStarted):
        begins = {"format": event.format}
    return {"kind": event.kind, **begins, **dump(event, brief=brief)}


def from_json(fields: Any) -> Event:  # noqa: ANN401 - any JSON value
    """Return the event of a JSON object. Raises `DecodeError`."""
    kind = None
    if isinstance(fields, Mapping):
        kind = fields.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise DecodeError(f"not an event: {kind!r:.40}")
    # `load` tells classes apart by their required keys, which is not enough for the events: their
    # `kind` decides.
    if kind == NestedEvent.kind:
        step_event = load(_StepEvent, fields)
        return NestedEvent(
            at=step_event.at, step=step_event.step, event=from_json(fields.get("event"))
        )
    event: Event = load(KINDS[kind], fields)
    return event


def to_line(event: Event, secrets: Secrets | None = None, *, brief: bool = False) -> str:
    """Return one event as one line of JSON, as `encode_line`.

    A `brief` one has no fields that have their default.
    """
    return encode_line(to_json(event, brief=brief), secrets)


def from_line(line: str) -> Event:
    """Return the event of one line. Raises `DecodeError`."""
    return decode_line(line, from_json)

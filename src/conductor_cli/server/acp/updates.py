"""The events of a run as an editor shows them: plan, steps, tools, thoughts, and the answer.

Each step that begins, and each call of a tool, is a tool call of the protocol; the list of steps is
its plan. Notices, failures and what the answering worker thinks are thoughts, and the answer comes
as `serve` streams it. All of it is cleaned of keys and control characters. The run waits for no
editor: pieces of text that wait are joined.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from acp.helpers import (
    plan_entry,
    start_tool_call,
    text_block,
    tool_content,
    update_agent_message_text,
    update_agent_thought_text,
    update_plan,
    update_tool_call,
)
from acp.schema import (
    AgentMessageChunk,
    AgentThoughtChunk,
    AllowedOutcome,
    PermissionOption,
    ToolCallUpdate,
)

from conductor_cli.app.traces import describe_offer, planned_flow, recipients_of
from conductor_cli.core import events as ev
from conductor_cli.core.errors import Failure
from conductor_cli.core.formatting import format_duration
from conductor_cli.core.input_requests import InputReply
from conductor_cli.core.plan import Decision, Plan
from conductor_cli.core.question import shorten
from conductor_cli.core.terminal_text import StreamSanitizer, one_line, reveal, sanitize
from conductor_cli.core.trace import StepRecord, Trace, find_step
from conductor_cli.run import Run
from conductor_cli.server.runs.narration import AnswerText, Reasoning, ResponseStream
from conductor_cli.system.known_secrets import KNOWN_SECRETS
from conductor_cli.views.plan_text import PlanOffer, plan_lines, planned_flow_lines
from conductor_cli.views.run_text import (
    describe_failure,
    describe_notice,
    describe_totals,
    short_name,
    shorten_line,
    tool_name,
)
from conductor_cli.views.text_layout import Line, Screen, line_texts

if TYPE_CHECKING:
    from acp.interfaces import Client
    from acp.schema import PlanEntry, PlanEntryStatus, ToolCallStatus, ToolKind

    from conductor_cli.run.orchestra import ToolVerdict

Update = Any
"""One update of the SDK; its union of them has no name."""

MAX_TITLE: Final = 160  # Characters of the title of a step or a tool
MAX_OFFER: Final = 600  # Characters of a question about a plan or a call
MAX_SUBTASK: Final = 100  # Of each step in that
MAX_ENTRY: Final = 500  # Characters of an entry of the plan
MAX_LEVELS: Final = 100  # Of the arguments of a call: the SDK cannot write more than 254
MAX_SHOWN_TEXT: Final = 20_000  # Characters of what a step or a tool returned; the rest is stored
_PLAN_SCREEN: Final = Screen(width=100)  # Of the lines of a plan that is offered

PLAN_DROPPED: Final = "the plan was dropped"

RUN_PLAN: Final = "run"
PLAN_OPTIONS: Final[Sequence[PermissionOption]] = (
    PermissionOption(option_id=RUN_PLAN, name="Run the plan", kind="allow_once"),
    PermissionOption(option_id="drop", name="Drop the plan", kind="reject_once"),
)
TOOL_OPTIONS: Final[Sequence[PermissionOption]] = (
    PermissionOption(option_id="once", name="Call it once", kind="allow_once"),
    PermissionOption(option_id="always", name="Allow it for this run", kind="allow_always"),
    PermissionOption(option_id="no", name="Refuse it", kind="reject_once"),
)
_VERDICTS: Final[dict[str, ToolVerdict]] = {"once": "once", "always": "always"}

_STATES: Final[dict[str, tuple[PlanEntryStatus, str]]] = {
    "waiting": ("pending", ""),
    "running": ("in_progress", ""),
    "done": ("completed", ""),
    "failed": ("completed", "failed: "),
    "stopped": ("completed", "stopped: "),
    "skipped": ("completed", "left out: "),
}
"""How an entry of the plan says the state of a step, for which the protocol has three words."""

_STOPPED: Final[dict[ev.StopReason, str]] = {
    "cancelled": "It was stopped.",
    "limit": "It was stopped at a limit.",
    "not_needed": "It was stopped, because its answer is not needed any more.",
    "plan_revised": "It was stopped, because the rest of the plan was planned anew.",
    "run_failed": "It was stopped, because the run has failed.",
}


def clean(text: str) -> str:
    """Return a text without keys, and without what a terminal would obey."""
    return sanitize(KNOWN_SECRETS.redact(text))


def plan_text(offer: PlanOffer) -> str:
    """Return a plan with its estimate and limits as preformatted Markdown."""
    return _preformatted(plan_lines(offer, _PLAN_SCREEN))


def _preformatted(lines: Sequence[Line]) -> str:
    text = "\n".join(line_texts(lines))
    return f"~~~text\n{clean(text)}\n~~~"


Path = tuple[int, ...]


class RunUpdates:
    """Turns the events of one run into updates."""

    def __init__(self) -> None:
        self._stream = ResponseStream(tells_steps=False)
        self._answer = StreamSanitizer()
        self._entries: list[PlanEntry] = []
        self._open: dict[str, None] = {}  # The ids of what has begun and not ended
        self._calls: dict[tuple[object, ...], str] = {}
        self._run = ""

    def read(self, event: ev.Event, trace: Trace) -> Iterator[Update]:
        """Yield the updates of an event, given the trace after it."""
        self._run = trace.run
        for piece in self._stream.read(event, trace):
            if isinstance(piece, AnswerText):
                yield from self._answer_text(self._answer.feed(piece.text))
            elif isinstance(piece, Reasoning) and piece.text:
                yield update_agent_thought_text(clean(piece.text))
        if isinstance(event, ev.PlanDelta | ev.StepDelta):
            return
        path, inner, inner_trace = innermost(event, trace)
        if isinstance(inner, ev.Notice) and not inner.recovered:
            yield update_agent_thought_text(f"{clean(describe_notice(inner))}\n")
        yield from self._tell_plan(trace)
        yield from self._tell_step(path, inner, inner_trace)
        if isinstance(event, ev.RunFinished | ev.RunFailed):
            yield from self._answer_text(self._answer.close())
            yield from self.close()
            yield update_agent_thought_text(clean(describe_totals(trace, stored=True)) + "\n")

    def close(self) -> Iterator[Update]:
        """Yield the end of all that has begun and not ended."""
        for call_id in self._open:
            yield update_tool_call(call_id, status="failed", content=_content("It was stopped."))
        self._open.clear()

    @staticmethod
    def _answer_text(text: str) -> Iterator[Update]:
        if text:
            yield update_agent_message_text(text)

    def _tell_plan(self, trace: Trace) -> Iterator[Update]:
        """Yield the plan where it differs from the one that was sent."""
        entries = [_entry(record) for record in trace.steps]
        if entries and entries != self._entries:
            self._entries = entries
            yield update_plan(entries)

    def _tell_step(self, path: Path, event: ev.Event, trace: Trace) -> Iterator[Update]:
        """Yield what an event says about a step or a tool of it."""
        step_id = f"{self._run}/{'.'.join(map(str, path))}"
        record = None
        if path:
            record = find_step(trace, path[-1])
        if record is None:
            return
        match event:
            case ev.StepStarted():
                yield self._begin_step(step_id, path, record)
            case ev.StepFinished():
                text = ""
                if not record.last:
                    text = event.text
                yield from self._end(step_id, "completed", text)
            case ev.StepFailed() if event.final:
                yield from self._end(step_id, "failed", describe_failure(event.error))
            case ev.StepStopped():
                yield from self._end(step_id, "failed", _STOPPED[event.reason])
            case ev.ToolOffered() | ev.ToolCalled():
                yield self._begin_call(path, event)
            case ev.ToolReturned():
                call_id = self.call_id(path, event.attempt, event.turn, event.call_id)
                status: ToolCallStatus = "completed"
                if event.error:
                    status = "failed"
                text = f"{event.text}\n\n({format_duration(event.seconds)})"
                yield from self._end(call_id, status, text)
            case _:
                pass

    def _begin_step(self, step_id: str, path: Path, record: StepRecord) -> Update:
        title = f"{short_name(record.worker)}: {record.step.subtask}"
        if len(path) > 1:
            title = f"In step {'.'.join(map(str, path[:-1]))}, {title}"
        title = shorten_line(clean(title), MAX_TITLE)
        if step_id in self._open:  # another attempt, maybe of another worker
            return update_tool_call(step_id, title=title, status="in_progress")
        self._open[step_id] = None
        return start_tool_call(step_id, title, kind="think", status="in_progress")

    def _begin_call(self, path: Path, event: ev.ToolOffered | ev.ToolCalled) -> Update:
        call_id = self.call_id(path, event.attempt, event.turn, event.call.id)
        status: ToolCallStatus = "in_progress"
        if isinstance(event, ev.ToolOffered):
            status = "pending"
        if call_id in self._open:
            return update_tool_call(call_id, status=status)
        self._open[call_id] = None
        kind: ToolKind = "other"
        if isinstance(event, ev.ToolCalled) and event.read_only:
            kind = "read"
        title = shorten_line(clean(tool_name(event)), MAX_TITLE)
        return start_tool_call(
            call_id, title, kind=kind, status=status, raw_input=call_arguments(event.call.arguments)
        )

    def call_id(self, path: Path, attempt: int, turn: int, call: str) -> str:
        """Return the id of a call of a tool. That of its provider may be anything."""
        key = (path, attempt, turn, call)
        return self._calls.setdefault(key, f"{self._run}/call-{len(self._calls) + 1}")

    def _end(self, call_id: str, status: ToolCallStatus, text: str) -> Iterator[Update]:
        """Yield the end of what has begun. What never began is told in the plan alone."""
        if call_id not in self._open:
            return
        del self._open[call_id]
        yield update_tool_call(call_id, status=status, content=_content(text))


def innermost(event: ev.Event, trace: Trace) -> tuple[Path, ev.Event, Trace]:
    """Return the path of an event's step, the event as it is in its nested run, and that trace."""
    path: Path = ()
    while isinstance(event, ev.NestedEvent):
        path = (*path, event.step)
        record = find_step(trace, event.step)
        if record is not None and record.nested is not None:
            trace = record.nested
        event = event.event
    step = getattr(event, "step", 0)
    if step:
        path = (*path, step)
    return path, event, trace


def _entry(record: StepRecord) -> PlanEntry:
    status, remark = _STATES[record.state]
    worker = short_name(record.worker or record.step.worker)
    text = shorten_line(clean(f"{remark}{worker}: {record.step.subtask}"), MAX_ENTRY)
    return plan_entry(text, status=status)


def _content(text: str) -> list[Any] | None:
    """Return a text as the content of a tool call; None where there is none."""
    text = shorten(clean(text), MAX_SHOWN_TEXT)
    if not text.strip():
        return None
    return [tool_content(text_block(text))]


def call_arguments(arguments: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return the arguments of a call, cleaned, as JSON where they are JSON that can be sent."""
    text = shorten(KNOWN_SECRETS.redact(arguments), MAX_SHOWN_TEXT)
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)
        return _cleaned(value, MAX_LEVELS)
    except (ValueError, RecursionError):
        return sanitize(reveal(text))


def _cleaned(value: Any, levels: int) -> Any:  # noqa: ANN401 - any JSON value
    """Return a JSON value with its texts cleaned. Raises `ValueError` for one of more levels."""
    if isinstance(value, str):
        return sanitize(reveal(value))
    if not isinstance(value, list | dict):
        return value
    if not levels:
        raise ValueError("nested too deeply")
    if isinstance(value, list):
        return [_cleaned(item, levels - 1) for item in value]
    return {sanitize(reveal(name)): _cleaned(item, levels - 1) for name, item in value.items()}


@dataclass(frozen=True, slots=True)
class Offer:
    """The person has to decide about a plan, or about a call of a tool with this id."""

    event: ev.PlanOffered | ev.ToolOffered
    call_id: str


class EditorFeed:
    """Sends the updates of one session in their order, and asks its person for decisions."""

    def __init__(self, client: Client, session: str) -> None:
        self._client = client
        self._session = session
        self._updates = RunUpdates()
        self._waiting: list[Update] = []  # and offers
        self._woken = asyncio.Event()
        self._ended = False
        self.run: Run | None = None
        self.is_dropped = False  # The person has dropped the plan

    def begin(self, run: Run) -> None:
        """Note the run whose events are shown."""
        self.run = run

    def show(self, event: ev.Event, trace: Trace) -> None:
        """Leave the updates of an event. Never waits."""
        for update in self._updates.read(event, trace):
            self.add(update)
        path, inner, _ = innermost(event, trace)
        if isinstance(inner, ev.ToolOffered):
            call_id = self._updates.call_id(path, inner.attempt, inner.turn, inner.call.id)
            self.add(Offer(inner, call_id))
        elif isinstance(inner, ev.InputAsked):
            self._decline_input(inner)
        elif isinstance(event, ev.PlanOffered):
            self.add(Offer(event, f"{trace.run}/plan"))

    def _decline_input(self, event: ev.InputAsked) -> None:
        """Decline what a server of tools asks, and tell it: no form is shown in an editor."""
        assert self.run is not None
        self.run.give_input(InputReply(action="decline"))
        text = (
            f"{one_line(event.server)} asks for something, which was declined: an editor shows no "
            "form for it. To answer it, ask in a terminal: conductor chat\n"
        )
        self.add(update_agent_thought_text(clean(text)))

    def add(self, update: Update) -> None:
        """Leave an update or an offer. Pieces of one text that wait become one."""
        last: Update = None
        if self._waiting:
            last = self._waiting[-1]
        is_text = isinstance(update, AgentMessageChunk | AgentThoughtChunk)
        if is_text and type(last) is type(update):
            last.content.text += update.content.text
        else:
            self._waiting.append(update)
        self._woken.set()

    def say(self, text: str) -> None:
        """Leave a text of conductor itself, such as what a slash command answers."""
        self.add(update_agent_message_text(clean(text)))

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        """Send while the block runs. At its end everything is sent, and nothing is asked."""
        sending = asyncio.create_task(self._send_all())
        try:
            yield
        finally:
            for update in self._updates.close():
                self.add(update)
            self._ended = True
            self._woken.set()
            try:
                await sending
            except ConnectionError:  # the process ends
                pass
            except asyncio.CancelledError:
                sending.cancel()
                raise

    async def _send_all(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._waiting:
                update = self._waiting.pop(0)
                if isinstance(update, Offer):
                    await self._decide(update)
                else:
                    await self._client.session_update(self._session, update)
            if self._ended:
                return

    async def _decide(self, offer: Offer) -> None:
        """Have the person decide, as long as the run waits for it."""
        run = self.run
        if run is None or run.trace.ended or self._ended:
            return
        choice = await self._choice(run, offer)
        if choice is None:
            return
        if isinstance(offer.event, ev.ToolOffered):
            run.decide_tool(_VERDICTS.get(choice, "no"))
        elif choice == RUN_PLAN:
            run.decide(Decision())
        else:
            self.is_dropped = True
            failure = Failure(kind="cancelled", message=PLAN_DROPPED, reason="output_closed")
            run.stop("cancelled", failure=failure)

    async def _choice(self, run: Run, offer: Offer) -> str | None:
        """Return the option that the person chose; empty where the editor could not ask.

        None where the run does not wait for it any more.
        """
        asking = asyncio.create_task(self._ask(run, offer))
        while not asking.done():
            waking = asyncio.create_task(self._woken.wait())
            await asyncio.wait({asking, waking}, return_when=asyncio.FIRST_COMPLETED)
            waking.cancel()
            if run.trace.ended or self._ended:
                asking.cancel()
                break
            self._woken.clear()
        self._woken.set()
        try:
            return await asking
        except asyncio.CancelledError:
            if not asking.cancelled():
                raise
            return None
        except Exception as error:  # noqa: BLE001 - an error that the editor answered with
            text = f"the editor could not ask: {one_line(clean(str(error)))}\n"
            self.add(update_agent_thought_text(text))
            return ""

    async def _ask(self, run: Run, offer: Offer) -> str:
        """Return the option that the person chose; empty where none was."""
        if isinstance(offer.event, ev.ToolOffered):
            call = ToolCallUpdate(tool_call_id=offer.call_id, **_describe_call(offer.event))
            options = TOOL_OPTIONS
        else:
            options = PLAN_OPTIONS
            call = ToolCallUpdate(
                tool_call_id=offer.call_id,
                title=_ask_about_plan(run),
                kind="think",
                status="pending",
                content=[
                    tool_content(text_block(plan_text(describe_offer(run)))),
                    tool_content(text_block(_flow_text(run))),
                ],
            )
        response = await self._client.request_permission(self._session, call, list(options))
        if isinstance(response.outcome, AllowedOutcome):
            return response.outcome.option_id
        return ""


def _ask_about_plan(run: Run) -> str:
    """Return the question whether a plan is run, with its steps: some editors show no more."""
    assert isinstance(run.trace.plan, Plan)
    steps = []
    for number, step in enumerate(run.trace.plan.steps, start=1):
        subtask = shorten_line(reveal(step.subtask), MAX_SUBTASK)
        steps.append(f"{number} {short_name(step.worker)}: {subtask}")
    return shorten_line(clean(f"Run this plan? {' '.join(steps)}"), MAX_OFFER)


def _flow_text(run: Run) -> str:
    """Return who would read what, as preformatted Markdown."""
    recipients = recipients_of(run.team.pool)
    return _preformatted(planned_flow_lines(planned_flow(run), recipients, _PLAN_SCREEN))


def _describe_call(event: ev.ToolOffered) -> dict[str, Any]:
    """Return the fields of a call that is offered: who wants it, which tool, its arguments."""
    who = f"step {event.step}"
    if event.worker:
        who = short_name(event.worker)
    # With the arguments: some editors show no more than the title
    request = f"{who} wants to call {tool_name(event)} {event.call.arguments}"
    title = shorten_line(clean(reveal(request)), MAX_OFFER)
    return {
        "title": title,
        "kind": "other",
        "status": "pending",
        "raw_input": call_arguments(event.call.arguments),
    }

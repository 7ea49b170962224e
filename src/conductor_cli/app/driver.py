"""Drives runs: a job becomes a run, whose events are stored and given on with the trace after each.

`ask`, `run`, chats, the Python API, `serve`, `mcp` and the plugins stand on `begin_run` and
`perform`; `run_to_end` also shows the run, and has a person decide about plans and tools.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from conductor_cli.app.attach import check_total
from conductor_cli.app.planner_resolution import has_no_model
from conductor_cli.app.rehearsal import check_question
from conductor_cli.app.telemetry import watch_run
from conductor_cli.app.worker_selection import resolve_pool
from conductor_cli.config.settings import Settings
from conductor_cli.core import events as ev
from conductor_cli.core.chat import Attachment
from conductor_cli.core.errors import (
    ConductorError,
    ConfigError,
    Failure,
    FailureReason,
    UsageError,
)
from conductor_cli.core.events import (
    Event,
    InputAsked,
    PlanOffered,
    ToolOffered,
    innermost_event,
    text_size_of_event,
)
from conductor_cli.core.fast_copies import fast_replace
from conductor_cli.core.input_requests import InputReply
from conductor_cli.core.plan import Decision
from conductor_cli.core.plan_file import parse_plan_file
from conductor_cli.core.trace import Offer, Trace, apply_event
from conductor_cli.programs.schema_check import quick_schema_fault
from conductor_cli.run import Orchestra, Run, RunSpec, start_run
from conductor_cli.run.orchestra import ToolVerdict
from conductor_cli.run.runner import leaves_no_choice
from conductor_cli.state.interfaces import (
    MAX_WAIT,
    EventWriter,
    Traces,
)
from conductor_cli.state.opening import open_state
from conductor_cli.state.run_messages import RunInbox, RunMessage
from conductor_cli.state.trace_file import ENDS
from conductor_cli.system.threads import FILE_WORK, LARGE_SIZE, run_in_thread_if_large
from conductor_cli.views.base import FRAME_SECONDS, RunView

# The value of `traces.keep` with which no run takes place that cannot be stored
ALWAYS: Final = "always"

# How long a piece of a leased run waits for others, to be committed together
COMMIT_SECONDS: Final = 0.1
MAX_PIECES: Final = 64  # The most pieces that are committed together

MAX_UNREAD_TRACES: Final = 64  # Traces that a slow view may hold
WAKE_SECONDS: Final = 0.02  # How long a piece of text waits for others before a view is woken

PLAN_DROPPED: Final = "the plan was dropped"
TOOL_VERDICTS: Final[Mapping[str, ToolVerdict]] = {"once": "once", "always": "always", "no": "no"}
"""What the user says of a call, by the act of a message."""
EDITED_TOO_LATE: Final = Failure(
    kind="usage", message="an earlier run has finished steps of the plan"
)
CANCELLED_ELSEWHERE: Final = "cancelled from outside"
ROOM_POLL_SECONDS: Final = 1.0  # Between two looks whether the disk has room again
MAX_ROOM_SECONDS: Final = 86_400.0  # For which that is waited for
LISTEN_SECONDS: Final = 0.2  # Between two looks at the messages of other processes


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A run as a program does it: by these settings, with its trace in `store`.

    None stores nothing. `waits_for_room`: the answer is nowhere but in the trace, so what a full
    disk refuses at the end of the run is written once there is room.
    """

    spec: RunSpec
    settings: Settings
    store: Traces | None = None
    waits_for_room: bool = False

    @property
    def needs_planner(self) -> bool:
        return self.spec.needs_planner(self.settings.limits)


async def needs_planner(job: Job, only: Sequence[str]) -> bool:
    """Return whether a planner has to be opened for a job that `only` these workers may do.

    Not where one of the configured workers is left, and so nothing to choose.
    """
    if job.settings.plain_model:
        return False
    if not job.needs_planner or not job.settings.workers:
        return job.needs_planner
    with suppress(ConductorError):  # which is told where the workers are opened
        pool, _ = await resolve_pool(job.settings, None, only)
        spec = _may_skip_planner(job, stored=False)
        return not leaves_no_choice(spec, pool, job.settings["conductor.mode"], job.settings.limits)
    return True


async def opens_planner(job: Job, only: Sequence[str]) -> bool:
    """Return whether a program with many jobs opens a planner, of which this is the first.

    A later one may want the planner that is chosen: to show a plan, or to review an answer. Where
    none is chosen, one worker answers as for a single job.
    """
    if has_no_model(job.settings):
        return await needs_planner(job, only)
    return job.needs_planner


def open_store(settings: Settings, *, wanted: bool) -> Traces | None:
    """Return where runs are stored; None where they are not.

    Raises `ConfigError` if they must be, and not `wanted`.
    """
    keep = settings["traces.keep"]
    if keep == ALWAYS and not wanted:
        hint = "to allow it: conductor config set traces.keep auto"
        raise ConfigError("a run without a trace is not allowed: traces.keep is always", hint=hint)
    if wanted and keep != "never":
        return open_state(settings.paths).traces
    return None


def check_job(job: Job) -> None:
    """Raise `UsageError` for a question that cannot be asked.

    The demo models cannot read it, it is too large, or what its answer is held to is no JSON
    Schema: then any JSON would pass.
    """
    schema = job.spec.question.schema
    if schema is not None and (fault := quick_schema_fault(schema)):
        message = f"what the answer is to follow is not a valid JSON Schema: {fault}"
        raise UsageError(message, hint="correct it; nothing could be checked by it")
    if job.settings.rehearsal:
        check_question(job.spec.question)
    check_total(job.spec.question)


def begin_run(job: Job, orchestra: Orchestra, keeps_up: asyncio.Event | None = None) -> Run:
    """Return the run of a job; nothing is called before it is read.

    `keeps_up` is set while its workers are to be read. Raises as `check_job` and `start_run`.
    """
    check_job(job)
    spec = _may_skip_planner(job, stored=job.store is not None, keeps_up=keeps_up)
    return start_run(orchestra, spec)


def _may_skip_planner(job: Job, *, stored: bool, keeps_up: asyncio.Event | None = None) -> RunSpec:
    """Return what the run of a job is, without a planner where that has nothing to choose.

    Who names a planner on the command line wants its plan.
    """
    names_planner = job.settings.origins["planner.model"] == "command line"
    return fast_replace(
        job.spec,
        skips_planner=not (names_planner or job.settings.rehearsal),
        is_plain=bool(job.settings.plain_model),
        stored=stored,
        keeps_up=keeps_up,
    )


async def perform(
    run: Run, job: Job, show_piece: Callable[[ev.StepDelta], None] | None = None
) -> AsyncGenerator[tuple[Event, Trace], None]:
    """Yield each event of a job's run with the trace after it, once it is stored.

    Pieces of text may be given to `show_piece` instead, which costs a fraction. Notices say what
    could not be stored. Where telemetry is configured, it is told each event too. Raises
    `ConfigError` before anything is called where a trace is required and cannot be stored, and
    `TraceIncomplete` at the end where it could not be stored whole.
    """
    recorder = RunRecorder(run, job)
    telemetry = None
    if not run.state.is_takeover:
        telemetry = watch_run()
    if show_piece is not None and telemetry is None and not job.spec.leased:
        run.read_pieces_at_once(partial(_store_and_show, recorder, show_piece))
    pieces = list[tuple[Event, Trace]]()
    try:
        async with aclosing(aiter(run)) as events:
            async for event, trace in events:
                notice = await recorder.store_event(event)
                if telemetry is not None:
                    telemetry.read(event)
                if not job.spec.leased and notice is None:
                    yield event, trace
                    continue
                if job.spec.leased:
                    is_piece = isinstance(ev.innermost_event(event), ev.StepDelta)
                    if is_piece and notice is None and await _goes_with_next(run, len(pieces)):
                        pieces.append((event, trace))
                        continue
                    if is_piece or pieces:
                        await recorder.flush()
                while pieces:
                    yield pieces.pop(0)
                for shown in _with_notice(run, event, trace, notice):
                    yield shown
        if job.waits_for_room:
            await recorder.wait_for_room()
        recorder.check()
    finally:
        await recorder.close()


async def _goes_with_next(run: Run, waiting: int) -> bool:
    """Return whether a piece of a leased run is committed with the next one, as `waiting` ones are.

    Another process that goes on with the run knows only committed pieces. So a piece is shown after
    its commit, and several are committed together, because one commit for each costs too much.
    """
    stream = run.state.stream
    if not waiting and not stream.unread:
        await asyncio.sleep(COMMIT_SECONDS)
    return stream.unread and waiting < MAX_PIECES


def _with_notice(
    run: Run, event: Event, trace: Trace, notice: ev.Notice | None
) -> Iterator[tuple[Event, Trace]]:
    """Yield an event and the notice of what could not be stored, in the order of their display."""
    if notice is None:
        yield event, trace
    elif isinstance(event, ENDS):  # no event follows the end
        yield notice, run.read_so_far
        yield event, run.read_so_far
    else:
        yield event, trace
        yield notice, run.read_so_far


async def perform_unseen(run: Run, job: Job) -> None:
    """Do the run of a job to its end where nobody is shown its events, which are stored.

    Telemetry is told each event, and errors are raised, as by `perform`.
    """
    recorder = RunRecorder(run, job)
    telemetry = None
    if not run.state.is_takeover:
        telemetry = watch_run()

    async def take(event: Event) -> None:
        await recorder.store_event(event)
        if telemetry is not None:
            telemetry.read(event)

    try:
        await run.give_events(take)
        if job.waits_for_room:
            await recorder.wait_for_room()
        recorder.check()
    finally:
        await recorder.close()


def _store_and_show(
    recorder: RunRecorder, show: Callable[[ev.StepDelta], None], piece: ev.StepDelta
) -> bool:
    """Show a piece of text if it can be stored at once, and return whether it can."""
    is_stored = recorder.store_piece(piece)
    if is_stored:
        show(piece)
    return is_stored


class TraceIncomplete(ConductorError):
    """A trace that is required could not be stored to its end."""


class DecidedElsewhere(Exception):
    """Another process has decided about what a person is asked here."""


class RunRecorder:
    """Stores the events of one run. Close it.

    A disk that refuses does not stop the run. Where traces are required it does, as long as nothing
    was called: `store_event` raises `ConfigError`; `check` tells of a later refusal.
    """

    def __init__(self, run: Run, job: Job) -> None:
        """Store nothing without a store; only spending that cannot be recorded is reported then."""
        self._run = run
        self._job = job
        self._required = job.settings["traces.keep"] == ALWAYS
        self._writer: EventWriter | None = None
        if run.state.is_takeover and job.store is not None:
            self._writer = job.store.open(run.id)
        self._timer: asyncio.TimerHandle | None = None
        # The event that is written last, where it was too large for the loop
        self._large_write: asyncio.Future[asyncio.Future[None] | None] | None = None
        self._reported = set[str]()

    async def wait_for_room(self) -> None:
        """Return when all is stored, the run is told to stop, or a day is over."""
        end = time.monotonic() + MAX_ROOM_SECONDS
        while self._writer is not None and self._writer.problem and not self._run.stop_wanted:
            if time.monotonic() >= end:
                return
            await asyncio.sleep(ROOM_POLL_SECONDS)
            await self.flush()

    def check(self) -> None:
        """Raise `TraceIncomplete` where something is missing of a trace that is required."""
        if self._required and self._writer is not None and self._writer.problem:
            message = f"the trace is incomplete: {self._writer.place}: {self._writer.problem}"
            raise TraceIncomplete(message, hint="free some disk space before the next run")

    async def store_event(self, event: ev.Event) -> ev.Notice | None:
        """Store an event; returns a notice for the reader where something cannot be stored.

        Raises `ConfigError`.
        """
        if isinstance(event, ev.RunStarted):
            if self._job.store is None:
                return None
            return await self._begin(event, self._job.store)
        problems = dict[str, str]()
        writer = self._writer
        spending = self._run.orchestra.daily_spend
        if writer is not None:
            await self._write(event)
            if isinstance(event, ev.StepDelta) and not writer.problem:
                return None  # the next event asks for the rest; one for each token costs too much
            if writer.problem:
                problems["trace"] = (
                    f"the trace cannot be written any more: {writer.place}: {writer.problem}; the "
                    "run goes on"
                )
            returned = ev.innermost_event(event)
            if isinstance(returned, ev.ToolReturned) and (
                why := await self._store_attachments(returned.attachments)
            ):
                problems["image"] = f"an image that a tool gave back cannot be stored: {why}"
        if spending is not None:
            problems["spending"] = spending.take_problem()
        texts: list[str] = []
        for kind, text in problems.items():
            if text and kind not in self._reported:
                self._reported.add(kind)
                texts.append(text)
        if not texts:
            return None
        notice = self._run.add_notice(event.at, "; ".join(texts))
        if not isinstance(event, ENDS):  # no event follows the end of a run
            await self._write(notice)
        return notice

    def store_piece(self, piece: ev.StepDelta) -> bool:
        """Store a piece of text without waiting for anything.

        False where nothing was stored: it is too large, or the trace has a problem to be told.
        """
        writer = self._writer
        if writer is None:
            return True
        if writer.problem or len(piece.text) + len(piece.thinking) > LARGE_SIZE:
            return False
        writing = writer.write(piece)
        if writing is not None:
            _leave_error_to_next_event(writing)
        if self._timer is None:
            self._flush_later()
        return True

    async def _write(self, event: ev.Event) -> None:
        """Write an event."""
        if self._writer is None:
            return
        size = text_size_of_event(event)
        if size > LARGE_SIZE:
            writing = await self._write_on_thread(self._writer, event, size)
        else:
            writing = self._writer.write(event)
        if writing is not None:
            await writing
        if self._timer is None:
            self._flush_later()

    def _flush_later(self) -> None:
        """Have pieces that wait written after a second, also where nothing else comes."""
        if self._writer is not None and self._writer.waiting:
            self._timer = asyncio.get_running_loop().call_later(MAX_WAIT, self._flush)

    async def _write_on_thread(
        self, writer: EventWriter, event: ev.Event, size: int
    ) -> asyncio.Future[None] | None:
        """Write a large event beside the loop, to its end even where this task is cancelled."""
        write = run_in_thread_if_large(size, partial(writer.write, event))
        self._large_write = asyncio.ensure_future(write)
        return await asyncio.shield(self._large_write)

    @property
    def _is_thread_writing(self) -> bool:
        return self._large_write is not None and not self._large_write.done()

    async def _begin(self, event: ev.RunStarted, store: Traces) -> ev.Notice | None:
        """Begin the trace. Nothing is called before this returns."""
        try:
            self._writer = store.open(event.run)
            await self._write(event)
            why = self._writer.problem
        except OSError as error:
            why = error.strerror or str(error)
        if why:
            self._refuse(f"the trace cannot be stored in {store.place}: {why}")
            spending = self._run.orchestra.daily_spend
            text = f"no trace can be kept of this run: {store.place}"
            if spending is not None and spending.find_problem():
                self._reported.add("spending")
                text = (
                    "no trace and no daily total can be kept of this run: "
                    f"{self._job.settings.paths.state}"
                )
            return self._run.add_notice(event.at, f"{text}: {why}", "trace_not_stored")
        # After the trace that names them: so nobody deletes them meanwhile.
        if why := await self._store_attachments(event.question.attachments):
            if self._required:
                self._refuse(f"the attached files cannot be stored: {why}")
            text = f"the attached files cannot be stored, so this run cannot be resumed: {why}"
            return self._run.add_notice(event.at, text)
        return None

    def _refuse(self, message: str) -> None:
        """Delete the trace: nothing in it is worth keeping.

        Raises `ConfigError` where one is required.
        """
        if self._writer is not None:
            with suppress(OSError):
                self._writer.discard()
            self._writer = None
        if self._required:
            hint = "free some disk space, fix the permissions, or set traces.keep to auto"
            raise ConfigError(message, hint=hint)

    async def _store_attachments(self, attachments: Sequence[Attachment]) -> str:
        """Store the bytes of files; returns why that is not possible, else an empty text."""
        source = self._run.orchestra.attachments
        try:
            if attachments and source is not None:
                await FILE_WORK.run(partial(source.store, attachments))
        except OSError as error:
            return error.strerror or str(error)
        return ""

    async def flush(self) -> None:
        """Return when all pieces so far are written. Raises as `store_event`."""
        if self._writer is not None and (writing := self._writer.flush()) is not None:
            await writing

    def _flush(self) -> None:
        self._timer = None
        if self._is_thread_writing:
            return  # The event that is written has the pieces that waited before it
        if self._writer is not None and (writing := self._writer.flush()) is not None:
            _leave_error_to_next_event(writing)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._writer is None:
            return
        if self._large_write is not None:
            await asyncio.wait([self._large_write])
        if self._writer.is_closed_quickly:
            self._writer.close()
        else:
            await FILE_WORK.run(self._writer.close)  # a large trace takes long to compress


def _leave_error_to_next_event(writing: asyncio.Future[None]) -> None:
    """Let nobody miss that a write was not awaited: its error comes again with the next event."""
    writing.add_done_callback(lambda done: done.cancelled() or done.exception())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """A run that has ended.

    `errors` say what could not be written: standard output, or the trace.
    """

    run: Run
    errors: tuple[ConductorError, ...] = ()

    @property
    def exit_code(self) -> int:
        """The run's own code; where it succeeded, that of the first error in writing."""
        code = self.run.trace.exit_code
        if code == 0 and self.errors:
            return self.errors[0].exit_code
        return code


async def run_to_end(
    run: Run,
    job: Job,
    view: RunView,
    decide_plan: Callable[[Run], Decision | None] | None = None,
    decide_tool: Callable[[ToolOffered], ToolVerdict] | None = None,
    give_input: Callable[[InputAsked], InputReply] | None = None,
    *,
    on_end: Callable[[], None] = lambda: None,
    on_output_lost: Callable[[], None] = lambda: None,
    inbox: RunInbox | None = None,
    dismiss: Callable[[Offer], None] = lambda _: None,
) -> RunResult:
    """Read the run of a job to its end. An event is stored before the view sees it.

    When the view has shown a plan that the run holds, `decide_plan` says what becomes of it, and
    None drops it; of calls of tools that may change something, `decide_tool`; `give_input` answers
    what a server of tools asks. They may block: they have the view's thread. Once `on_end` is
    called, nobody waits for what they say. `on_output_lost` is called on the view's thread when
    standard output cannot be written. The messages of `inbox` are obeyed; `dismiss` is told what
    was decided by one, and what is asked about that may then raise `DecidedElsewhere`. Raises
    `ConfigError` where a trace is required and cannot be begun, and whatever the view raised.
    """
    shown = _ViewThread(run, view, decide_plan, decide_tool, give_input, on_output_lost)
    incomplete: TraceIncomplete | None = None
    listening: asyncio.Task[None] | None = None
    if inbox is not None:
        listening = asyncio.create_task(shown.obey(inbox, dismiss))
    try:
        async with aclosing(perform(run, job)) as events:
            async for event, trace in events:
                shown.show(event, trace)
    except TraceIncomplete as error:
        incomplete = error
    finally:
        if listening is not None:
            listening.cancel()
        on_end()
        await shown.close()
    failure = run.trace.error
    # What the run itself reports as its failure is not reported twice.
    lost = shown.error
    if failure is not None and failure.reason == "output_failed":
        lost = None
    return RunResult(
        run=run, errors=tuple(error for error in (lost, incomplete) if error is not None)
    )


class _ViewThread:
    """Shows a run on its own thread.

    So a reader who stops reading does not hold a worker's stream up. The run is stopped when nobody
    reads standard output any more, or when it cannot be written.
    """

    def __init__(
        self,
        run: Run,
        view: RunView,
        decide_plan: Callable[[Run], Decision | None] | None,
        decide_tool: Callable[[ToolOffered], ToolVerdict] | None,
        give_input: Callable[[InputAsked], InputReply] | None,
        on_output_lost: Callable[[], None],
    ) -> None:
        self.run = run
        self.view = view
        self._decide_plan = decide_plan
        self._decide_tool = decide_tool
        self._give_input = give_input
        self.error: ConductorError | None = None
        """Why standard output cannot be written; None also where its reader has gone, which is no
        error.
        """
        self._on_output_lost = on_output_lost
        self._fault: Exception | None = None
        self._decided = list[Offer]()  # By messages of other processes
        self._loop = asyncio.get_running_loop()
        self._unread: deque[tuple[Event, Trace | None] | None] = deque()
        self._woken = threading.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._ended = asyncio.Event()
        threading.Thread(target=self._show_all, name="view", daemon=True).start()

    def show(self, event: Event, trace: Trace) -> None:
        # Each trace holds the text so far, so a slow view folds those of further events itself.
        is_slow = len(self._unread) >= MAX_UNREAD_TRACES
        self._unread.append((event, None if is_slow else trace))
        if not isinstance(innermost_event(event), ev.PlanDelta | ev.StepDelta):
            self._wake()
        elif self._timer is None:  # a thread that is woken for each piece of text costs more
            self._timer = self._loop.call_later(WAKE_SECONDS, self._wake)

    def _wake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._woken.set()

    async def obey(self, inbox: RunInbox, dismiss: Callable[[Offer], None]) -> None:
        """Do what the messages of other processes say, until this is cancelled."""
        while True:
            await asyncio.sleep(LISTEN_SECONDS)
            for message in inbox.read():
                self._obey_message(message, dismiss)

    def _obey_message(self, message: RunMessage, dismiss: Callable[[Offer], None]) -> None:
        if message.act == "cancel":
            failure = Failure(kind="cancelled", message=CANCELLED_ELSEWHERE)
            self.run.stop("cancelled", failure=failure)
            return
        offer = self.run.trace.waits_for
        # A message about an earlier offer comes too late: nobody has seen this one.
        if offer is None or offer in self._decided or not message.is_about(offer.at):
            return
        if isinstance(offer, ToolOffered):
            if message.act not in TOOL_VERDICTS:
                return
            self.run.decide_tool(TOOL_VERDICTS[message.act])
        elif isinstance(offer, InputAsked):  # no message holds what a person has to type
            return
        elif message.act == "approve":
            self.run.decide(Decision())
        elif message.act == "drop":
            failure = Failure(kind="cancelled", message=PLAN_DROPPED, reason="output_closed")
            self.run.stop("cancelled", failure=failure)
        else:
            decision = self._decision_of(message)
            if decision is None:
                return
            self.run.decide(decision)
        self._decided.append(offer)
        dismiss(offer)

    def _decision_of(self, message: RunMessage) -> Decision | None:
        """Return what a message with a text decides about the plan; None where that cannot be done.

        The run says why it cannot, so whoever sent the message sees it there.
        """
        run = self.run
        if message.act == "replan" and message.text.strip():
            if run.may_replan:
                return Decision(feedback=message.text.strip())
            run.tell("this plan cannot be planned again: its planner reads nothing but questions")
        if message.act == "edit":
            try:
                plan = parse_plan_file(message.text, "plan.json", run.team.pool.names).plan
                failure = run.problem_with(plan) if run.may_edit_plan else EDITED_TOO_LATE
            except ConductorError as error:
                failure = Failure(kind="usage", message=error.message)
            if failure is None:
                return Decision(edited=plan)
            run.tell(f"an edited plan was not taken: {failure.message}")
        return None

    async def close(self) -> None:
        """Wait until everything is shown. Raises what the view raised."""
        self._unread.append(None)
        self._wake()
        # Not by joining the thread: a second Ctrl-C must not wait for a view that hangs.
        await self._ended.wait()
        if self._fault is not None:
            raise self._fault

    def _show_all(self) -> None:
        trace = Trace()
        try:
            while True:
                self._try(self.view.draw)
                if not self._unread:
                    self._woken.wait(FRAME_SECONDS)
                    self._woken.clear()
                    continue
                if (unread := self._unread.popleft()) is None:
                    break
                event, after = unread
                if after is None:
                    after = apply_event(trace, event)
                trace = after
                self._try(partial(self.view.show, event, trace))
                # Nothing else is shown while somebody decides.
                offered = innermost_event(event)
                if isinstance(event, PlanOffered) or isinstance(offered, ToolOffered | InputAsked):
                    self._try(partial(self._decide, offered))
            self._try(self.view.close)
        finally:
            self._loop.call_soon_threadsafe(self._ended.set)

    def _decide(self, offered: Event) -> None:
        """Have the plan or the call of a tool on offer decided about, or a question answered."""
        if isinstance(offered, InputAsked):
            reply = InputReply(action="decline")
            if self._give_input is not None:
                reply = self._give_input(offered)
            self._loop.call_soon_threadsafe(self.run.give_input, reply)
            return
        try:
            self._ask_person(offered)
        except DecidedElsewhere:
            return

    def _ask_person(self, offered: Event) -> None:
        """Have the person of this process decide. Raises `DecidedElsewhere`."""
        if offered in self._decided:
            return
        if isinstance(offered, ToolOffered):
            verdict: ToolVerdict = "no"
            if self._decide_tool is not None:
                verdict = self._decide_tool(offered)
            if offered not in self._decided:
                self._loop.call_soon_threadsafe(self.run.decide_tool, verdict)
            return
        decision = None
        if self._decide_plan is not None:
            decision = self._decide_plan(self.run)
        if offered in self._decided:
            return
        if decision is not None:
            self._loop.call_soon_threadsafe(self.run.decide, decision)
        else:
            self._stop(PLAN_DROPPED)

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except BrokenPipeError:
            self._on_output_lost()
            self._stop("nobody reads standard output any more")
        except OSError as error:
            self._on_output_lost()
            hint = "free some disk space"
            if self.run.spec.stored and self.run.trace.stored:
                hint = f"the answer so far is in the trace: conductor trace show {self.run.id}"
            self.error = ConductorError(
                f"standard output cannot be written: {error.strerror}", hint=hint
            )
            self._stop(self.error.message, self.error.hint, "output_failed")
        except Exception as error:  # noqa: BLE001
            # A bug in a view; `close` raises it on the event loop's thread
            self._fault = self._fault or error
            self._stop("the run cannot be shown any more")

    def _stop(self, message: str, hint: str = "", reason: FailureReason = "output_closed") -> None:
        failure = Failure(kind="cancelled", message=message, hint=hint, reason=reason)
        self._loop.call_soon_threadsafe(lambda: self.run.stop("cancelled", failure=failure))

"""One run: the stream of its events, its end, and the only task group of a run.

Planning and steps are tasks of that group. What they do is in `planner` and `executor`; this module
decides when they start, how a run ends, which text is the answer, and which failure is the reason
why there is none.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Sequence,
)
from functools import lru_cache, partial
from typing import Final, Literal

from conductor_cli.core import events as ev
from conductor_cli.core.chat import CUT_FINISHES, ToolCall
from conductor_cli.core.data_policy import nobody_sees
from conductor_cli.core.errors import ConductorUnusable, Failure, PolicyError, UsageError
from conductor_cli.core.events import Mode
from conductor_cli.core.fast_copies import fast_replace
from conductor_cli.core.formatting import format_duration
from conductor_cli.core.input_requests import InputReply
from conductor_cli.core.plan import SELF, Decision, KeepAnswer, Plan, Step, asks_self
from conductor_cli.core.plan_formats.base import ANSWER_DIRECTLY
from conductor_cli.core.pool import Limits, Pool
from conductor_cli.core.question import Question
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.trace import (
    ENDED,
    NO_PLANNER,
    PLAN_FILE,
    StepRecord,
    Trace,
    describe_left_out,
    find_answering_step,
)
from conductor_cli.core.usage import NO_USAGE
from conductor_cli.run.executor import run_step
from conductor_cli.run.orchestra import (
    Orchestra,
    RunResources,
    ToolVerdict,
    check_run_limits,
    new_run_id,
)
from conductor_cli.run.planner import (
    begin_revision,
    make_plan,
    problem_with,
    wait_for_approval,
    wants_revision,
    write_rest_of_plan,
)
from conductor_cli.run.spec import RunSpec
from conductor_cli.run.state import NOT_CHECKED, NOT_JSON, Nesting, RunState, StopKind

log = logging.getLogger(__name__)

PLANNING: Final = 0  # The number of the planning task among those of the steps


def start_run(orchestra: Orchestra, spec: RunSpec) -> Run:
    """Start a run; nothing happens before its stream is read.

    Raises `PolicyError`, `ConfigError`, `ConductorUnusable`, or `UsageError` where an attachment is
    gone or nobody can see it; all before anything is called.
    """
    team = orchestra.team_of(spec)
    limits = orchestra.limits_of(spec)
    if leaves_no_choice(spec, team.pool, team.mode, limits):
        spec = fast_replace(spec, plan=_direct_plan(team.pool.workers[0].name))
    check_run_limits(team, limits, orchestra.daily_spend, planned=spec.plan is None)
    nests = False
    if spec.plan is not None:
        nests = limits.recursion > 0 or asks_self(spec.plan.steps)
    if nests and team.model is None:
        raise ConductorUnusable(
            "a review needs a planner", hint="choose one: conductor model use NAME"
        )
    state = RunState(
        id=spec.id or new_run_id(orchestra.wall()),
        orchestra=orchestra,
        spec=spec,
        resources=RunResources(orchestra, spec),
        nesting=Nesting(depth_left=max(limits.recursion, 1), reviews=limits.recursion),
    )
    _check_attachments(state)
    state.policy.check(plans=team.model is not None and (spec.plan is None or nests))
    violation = None
    if spec.plan is not None:
        violation = state.policy.plan_violation(spec.plan)
    if violation is not None:
        raise PolicyError(violation.message, hint=violation.hint)
    state.leave_out_small_workers()
    return Run(state)


def leaves_no_choice(spec: RunSpec, pool: Pool, mode: Mode, limits: Limits) -> bool:
    """Return whether a planner could do nothing but have the one worker answer.

    Not where the user wants to see a plan, or wants much thought, by reviews or the mode ultra. A
    plain call never has a planner; one that is to be approved is shown as a plan of one step.
    """
    if spec.begins_again:
        return len(pool.workers) == 1
    has_plan = spec.plan is not None or spec.resume is not None
    if spec.is_plain:
        return not has_plan
    wants_plan = spec.plan_only or spec.approves
    wants_thought = limits.recursion > 0 or mode == "ultra"
    if not spec.skips_planner or has_plan or wants_plan or wants_thought:
        return False
    return len(pool.workers) == 1 and pool.workers[0].kind != SELF


@lru_cache(maxsize=64)  # for a batch or a server, which has the same one for each question
def _direct_plan(worker: str) -> Plan:
    """Return the plan by which the only worker of a pool answers."""
    return Plan(steps=(Step(worker=worker, subtask=ANSWER_DIRECTLY),))


def _check_attachments(state: RunState) -> None:
    """Raise `UsageError` where an attachment is gone, or where nobody can see one."""
    store = state.orchestra.attachments
    for attachment in state.question.attachments:
        if store is None or not store.holds(attachment):
            hint = "attach it again: -f FILE; it is deleted with the last trace that needs it"
            raise UsageError(f"{one_line(attachment.name)} is not stored any more", hint=hint)
    if state.spec.resume is not None:
        return
    message, hint = nobody_sees(state.media_access, state.team.unavailable)
    if message:
        raise UsageError(message, hint=hint)


class Run:
    """One run: `async for event, trace in run` gives each event with the trace after it.

    Readable once, so or by `give_events`.

    `stop` ends it early; the stream still ends with `RunFinished` or `RunFailed`. `trace` is the
    run so far, which may be ahead of a slow reader.
    """

    def __init__(self, state: RunState) -> None:
        self.state = state
        self.id = state.id
        self.question = state.question
        self.orchestra = state.orchestra
        self.spec = state.spec
        self.team = state.team
        self.limits = state.limits
        state.wake = self._start_ready
        self._group: asyncio.TaskGroup | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._nested: dict[int, Run] = {}
        self._over = asyncio.Event()
        self.stop_wanted = False  # Also where it came after the end
        self._crash: Failure | None = None
        self._being_read = False
        # Whether the step that was to answer may have failed, and another one will
        self._revising = False

    @property
    def trace(self) -> Trace:
        return self.state.trace

    @property
    def read_so_far(self) -> Trace:
        """The trace after the event that was read last."""
        return self.state.stream.read_so_far

    # For whoever reads the run

    async def __aiter__(self) -> AsyncGenerator[tuple[ev.Event, Trace], None]:
        driver = self._begin_to_drive()
        state = self.state
        try:
            while (event := await state.stream.next_event()) is not None:
                yield event, state.stream.read_so_far
            await driver
        finally:
            await _end_driver(driver)

    async def give_events(self, take: Callable[[ev.Event], Awaitable[object]]) -> None:
        """Give each event to `take`, one after the other, for a reader that needs no traces."""
        driver = self._begin_to_drive()
        stream = self.state.stream
        try:
            while (event := await stream.next_event_alone()) is not None:
                await take(event)
            await driver
        finally:
            await _end_driver(driver)

    def _begin_to_drive(self) -> asyncio.Task[None]:
        """Begin the run. Raises `RuntimeError` where it was begun before."""
        if self._being_read:
            raise RuntimeError("the events of a run can be read only once")
        self._being_read = True
        return asyncio.create_task(self._drive())

    def read_pieces_at_once(self, read: Callable[[ev.StepDelta], bool] | None) -> None:
        """Have pieces of text read at once by `read`, while who reads the run waits for an event.

        A piece for which it returns False comes as an event, as all do with None.
        """
        self.state.stream.read_piece = read

    def stop(
        self,
        kind: StopKind,
        after: Literal["now", "running"] = "now",
        failure: Failure | None = None,
    ) -> None:
        """End the run: at once, or when the calls that are running have ended.

        Finished steps are kept.
        """
        self.stop_wanted = True
        if self._over.is_set():
            return
        stopped = {
            "cancelled": "interrupted",
            "terminated": "terminated",
            "limit": "a limit was reached",
        }
        self._drain(failure or Failure(kind=kind, message=stopped[kind]))
        for nested in self._nested.values():
            nested.stop(kind, after, failure)
        # Otherwise the run is over when the last running call has ended; see `_start_ready`.
        if after == "now" or not self.state.has_running_steps:
            self._over.set()

    def decide(self, decision: Decision) -> None:
        """Answer the offer of the plan.

        Without an offer that waits for an answer this does nothing.
        """
        waiting = self.state.planning.decision
        if waiting is not None and not waiting.done():
            waiting.set_result(decision)

    def tell(self, text: str) -> None:
        """Tell whoever reads the run something about it, as a notice."""
        self.state.stream.notice(text)

    def decide_tool(self, verdict: ToolVerdict) -> None:
        """Answer the offer of a call of a tool, in this run or in one nested in it."""
        self.state.resources.approvals.decide(verdict)

    def give_input(self, reply: InputReply) -> None:
        """Answer what a server of tools asks, in this run or in one nested in it."""
        self.state.resources.approvals.give_input(reply)

    def add_notice(self, at: float, text: str, reason: ev.NoticeReason = "") -> ev.Notice:
        """Add a notice of whoever reads the run to its trace.

        It is not in the stream: the reader shows it.
        """
        notice = ev.Notice(at=at, text=text, reason=reason)
        self.state.stream.fold(notice)
        return notice

    @property
    def may_edit_plan(self) -> bool:
        """Whether the user may replace the offered plan.

        Not where the resumed run has finished steps of it.
        """
        return not self.trace.done()

    @property
    def may_replan(self) -> bool:
        """Whether the conductor can be told what is wrong with its plan.

        A model trained on its own prompts cannot.
        """
        able = self.team.model is not None and self.team.profile.render is None
        return (
            self.may_edit_plan
            and able
            and self.state.policy.may_show_steps(self.state.steps_before())
        )

    def problem_with(self, plan: Plan) -> Failure | None:
        return problem_with(self.state, plan, reviewed=True)

    # What happens inside

    def _start_ready(self) -> None:
        """Start each step that is ready. Where none runs and none can start, the run is over."""
        state = self.state
        if self._group is None or self._over.is_set():
            return
        is_ending = state.ending.failure is not None
        if not (is_ending or self.spec.plan_only or state.planning.awaits_approval):
            for number in state.take_ready_steps():
                self._start(number, self._run_step(number), f"step {number}")
        is_idle = not state.has_running_steps and (is_ending or not self._has_work_left())
        if is_idle or self._is_answered():
            self._over.set()

    def _is_answered(self) -> bool:
        """Return whether the step that answers has ended."""
        if self._revising or self.trace.plan is None:
            return False
        return any(record.last and record.state in ENDED for record in self.trace.steps)

    def _has_work_left(self) -> bool:
        """Return whether a step waits to be started, or the plan is still being made."""
        has_waiting_steps = bool(self.state.waiting_steps) and not self.spec.plan_only
        return has_waiting_steps or not self._tasks[PLANNING].done()

    def _start(self, number: int, work: Coroutine[None, None, None], name: str) -> None:

        def task_ended(_: asyncio.Task[None]) -> None:
            self.state.release_step(number)
            self._start_ready()

        assert self._group is not None
        task = self._group.create_task(work, name=name)
        self._tasks[number] = task
        # A callback, since a task that is cancelled before it begins never runs any of its own
        # code.
        task.add_done_callback(task_ended)

    async def _drive(self) -> None:
        state = self.state
        try:
            state.restart_clock()
            if self.trace.ended:  # a nested run, whose step is to end
                return
            await self._begin()
            await self._plan_and_run()
            self._finish(await self._schema_failure())
        except asyncio.CancelledError:
            self._drain(Failure(kind="cancelled", message="interrupted"))
            # Nobody waits for a check any more, so whether the answer follows its schema stays
            # open.
            failure = None
            if self.question.schema is not None:
                failure = state.ending.failure
            self._finish(failure)
            raise
        finally:
            try:
                if not state.nesting.nested:
                    await state.resources.close()
            finally:
                state.stream.end()

    async def _begin(self) -> None:
        """Announce the run, and have its start stored where the reader stores it."""
        state = self.state
        state.stream.all_read.clear()
        if not state.is_takeover:
            self._announce_start()
        # The reader takes the start before anything is called: it may have to store it first, and
        # fail.
        await asyncio.sleep(0)
        if self.spec.stored and not state.is_takeover:
            await state.stream.all_read.wait()

    async def _plan_and_run(self) -> None:
        """Plan and do the steps, until the run is over."""
        # A nested run ends with the run around it, so only that one watches the clock.
        limit = self.limits.seconds
        if self.state.nesting.nested:
            limit = None
        seconds_left = None
        if limit is not None:
            seconds_left = max(limit - self.trace.at, 0.0)
        async with asyncio.TaskGroup() as group:
            self._group = group
            # Planning is a task like a step, because steps start while the plan is still being
            # written.
            self._start(PLANNING, self._plan(), "plan")
            try:
                async with asyncio.timeout(seconds_left) as time_limit:
                    if not self.state.nesting.nested:
                        self.state.ending.time_limit = time_limit
                    await self._over.wait()
            except TimeoutError:
                self._stop_at_time_limit(limit or 0.0)
            except asyncio.CancelledError:
                self._drain(Failure(kind="cancelled", message="interrupted"))
                self._over.set()
                raise
            finally:
                self._stop_tasks()

    def _stop_at_time_limit(self, seconds: float) -> None:
        failure = Failure(
            kind="limit",
            message=f"stopped: limit of {format_duration(seconds)}",
            reason="limit_time",
            suggested_limit=f"{2 * seconds:g}",
        )
        self.stop("limit", failure=failure)

    def _stop_tasks(self) -> None:
        """Stop all that still runs, nested runs first."""
        ending = self.state.ending
        not_needed = Failure(kind="cancelled", message="this answer is no longer needed")
        for nested in self._nested.values():
            nested.abandon(ending.failure or not_needed, ending.reason)
        for task in self._tasks.values():
            task.cancel()

    def _announce_start(self) -> None:
        state = self.state
        spec = self.spec
        team = self.team
        earlier = self.state.resumed
        resumed = ""
        if earlier is not None:
            resumed = earlier.run
        planner = team.name
        if team.model is None and earlier is not None:
            planner = earlier.conductor
        elif spec.skips_planner and spec.plan == _direct_plan(team.pool.workers[0].name):
            planner = NO_PLANNER
        elif team.model is None and spec.plan is not None:
            planner = PLAN_FILE
        started = ev.RunStarted(
            at=state.stream.now(),
            run=state.id,
            time=self.orchestra.wall().isoformat(timespec="milliseconds"),
            question=state.question,
            pool=team.pool.public(),
            limits=self.limits,
            mode=team.mode,
            planner=planner,
            conductor=planner,
            planner_worker=team.planner_worker,
            origin=spec.origin,
            holds_answer=team.holds_answer,
            profile=team.profile.name,
            recipient=team.recipient,
            policy=team.pool_policy.policy,
            resumed=resumed,
            planner_saw_files=state.policy.planner_saw_files(
                plans=team.model is not None and spec.plan is None
            ),
        )
        state.stream.emit(started)
        if not state.nesting.nested:
            for text in (*team.notices, *spec.notices):
                state.stream.notice(text)
            for worker, why in state.resources.down.items():
                state.stream.notice(describe_left_out(worker, why))
            for why in state.resources.skipped.values():
                state.stream.notice(why.message)

    async def _plan(self) -> None:
        try:
            failure = await make_plan(self.state)
            if failure is None and self.state.planning.awaits_approval and not self._over.is_set():
                failure = await wait_for_approval(self.state)
        except Exception as error:  # an error of our own must not leave the stream without its end
            log.debug("planning failed", exc_info=True)
            failure = internal_failure(error)
        if failure is not None:
            self._end_early(failure)

    async def _run_step(self, number: int) -> None:
        state = self.state
        try:
            failure = await run_step(state, number, partial(self._read_nested, number))
            if failure is None and wants_revision(state, number):
                failure = await self._revise(number)
        except Exception as error:  # an error of our own must not leave the stream without its end
            log.debug("step %d failed", number, exc_info=True)
            failure = internal_failure(error)
            self._fail_step(number, failure)
        finally:
            if state.record(number).state not in ENDED:
                state.stop_step(number)
        if failure is not None:
            self._end_early(failure)

    async def _read_nested(self, number: int, context: RunState) -> AsyncGenerator[ev.Event, None]:
        """Yield the events of the run that is nested in a step."""
        nested = Run(context)
        self._nested[number] = nested
        try:
            async for event, _ in nested:
                yield event
        finally:
            del self._nested[number]

    def _fail_step(self, number: int, failure: Failure) -> None:
        """Tell that a step has failed by an error of our own, unless it has ended before."""
        state = self.state
        record = state.record(number)
        if record.state in ENDED:
            return
        failed = ev.StepFailed(
            at=state.stream.now(),
            step=number,
            attempt=record.attempt or 1,
            error=failure,
            usage=NO_USAGE,
        )
        state.stream.emit(failed)

    async def _revise(self, number: int) -> Failure | None:
        self._revising = True
        try:
            # The plan may still be being written; the steps that do not need this one go on
            # meanwhile.
            await asyncio.wait([self._tasks[PLANNING]])
            if not wants_revision(self.state, number):
                return None
            begin_revision(self.state, number)
            return await write_rest_of_plan(self.state)
        finally:
            self._revising = False

    def _end_early(self, failure: Failure) -> None:
        """End the run because planning or a step has found out that it cannot go on."""
        if failure.kind == "limit":
            # Calls that are running have their tokens and money reserved, so they may end.
            self.stop("limit", "running", failure)
            return
        self._drain(failure)
        if failure.kind == "internal" or failure.reason == "declined":
            # The first error of our own is the cause; later ones usually follow from it. Without a
            # plan, what the first steps of one found is no answer.
            self._crash = self._crash or failure
            self._over.set()

    def _drain(self, failure: Failure, reason: ev.StopReason | None = None) -> None:
        """Start nothing new, and end what has not reached a worker yet."""
        self.state.ending.begin(failure, reason)
        for number, task in self._tasks.items():
            # A task that calls this from inside is about to end by itself.
            is_own = task is asyncio.current_task()
            if not (is_own or task.done() or self.state.work.is_busy(number)):
                task.cancel()

    def abandon(self, failure: Failure, reason: ev.StopReason) -> None:
        if not self._over.is_set():
            self._drain(failure, reason)
            self._over.set()

    async def _schema_failure(self) -> Failure | None:
        """Return what is wrong with a whole answer that breaks its JSON Schema.

        None where nothing is.
        """
        state = self.state
        answer, partial = answer_of(state.trace, state.question, self.team.profile.verdicts)
        if (
            answer is None
            or partial
            or state.spec.plan_only
            or state.nesting.nested
            or tool_calls_of(state.trace)
        ):
            return None
        fault = await state.schema_faults.find(answer)
        if fault == NOT_CHECKED:
            message = f"the answer cannot be checked against the JSON Schema: {fault}"
            return Failure(
                kind="partial",
                message=message,
                hint="give a simpler schema",
                reason="answer_not_checked",
            )
        if fault == NOT_JSON:
            message = "the answer is not JSON, which the schema requires"
            return Failure(kind="partial", message=message, reason="answer_not_json")
        if not fault:
            return None
        message = f"the answer does not follow the JSON Schema: {fault}"
        return Failure(kind="partial", message=message, reason="answer_not_schema")

    def _finish(self, broken: Failure | None) -> None:
        """End the stream with the best answer there is, or with the reason why there is none.

        `broken` is what is wrong with an answer that is whole.
        """
        state = self.state
        usage = state.trace.usage + state.work.unreported_usage
        if state.spec.plan_only and state.trace.plan is not None:
            state.stream.emit(ev.RunFinished(at=state.stream.now(), answer="", usage=usage))
            return
        for record in state.trace.steps:
            if record.state not in ENDED:
                state.stop_step(record.number)
        answer, partial = answer_of(state.trace, state.question, self.team.profile.verdicts)
        crash = self._crash or self._refusal(answer)
        if crash is not None or answer is None:
            failed = ev.RunFailed(
                at=state.stream.now(), error=crash or failure_of(state), usage=usage
            )
            state.stream.emit(failed)
            return
        self._tell_verdict()
        error = self._fault_of_answer(broken, partial=partial)
        finished = ev.RunFinished(
            at=state.stream.now(),
            answer=answer,
            usage=usage,
            partial=error is not None,
            error=error,
            tool_calls=tool_calls_of(state.trace),
        )
        state.stream.emit(finished)

    def _refusal(self, answer: str | None) -> Failure | None:
        """Return that a worker could not do its step, where the answer is the word for that.

        A nested run reports it to the run around it.
        """
        refusal = self.team.worker_profile.refusal
        if not refusal or answer is None or answer.strip() != refusal or self.state.nesting.nested:
            return None
        refusing = [step for step in self.trace.steps if step.text.strip() == refusal]
        first = refusing[0]
        message = (
            f"no answer: {first.worker} cannot do step {first.number}, {first.step.subtask!r:.80}"
        )
        return Failure(kind="worker", message=message, hint="ask in other words", reason="declined")

    def _tell_verdict(self) -> None:
        """Tell what the answering step says of the answer, where that is the one it judged."""
        last = find_answering_step(self.trace)
        if last is None or last.state != "done" or self.state.nesting.nested:
            return
        verdict = _verdict(last.text, self.team.profile.verdicts)
        if verdict and _judged_by(last, self.trace) is not None:
            self.state.stream.notice(f"{last.worker} says of this answer: {verdict}", last.number)

    def _fault_of_answer(self, broken: Failure | None, *, partial: bool) -> Failure | None:
        """Return what the answer lacks; None where it is whole, or asks for calls of tools."""
        if partial:
            return failure_of(self.state)
        if tool_calls_of(self.trace):
            return None
        if broken is not None and not self.state.nesting.nested:
            return broken
        return self._cut_step_failure()

    def _cut_step_failure(self) -> Failure | None:
        """Return that the answer is made of a step whose own answer has no end.

        None where every step that it was made of is whole.
        """
        state = self.state
        last = find_answering_step(state.trace)
        if last is None:
            return None
        for record in steps_behind(last, state.trace):
            if not _is_cut(record):
                continue
            cut = state.work.cut_reply_of(record.number)
            why = f"{record.worker} did not reach the end of its answer"
            if cut is not None:
                why = cut.message
            elif record.nested is not None and record.nested.error is not None:
                why = record.nested.error.message
            message = f"the answer is made of step {record.number}, which was cut off: {why}"
            hint = cut.hint if cut is not None else ""
            return Failure(kind="partial", message=message, hint=hint, reason="step_truncated")
        return None


async def _end_driver(driver: asyncio.Task[None]) -> None:
    """End a run whose reader has left: also where it left early, nobody wants the rest."""
    driver.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await driver


def steps_behind(last: StepRecord, trace: Trace) -> list[StepRecord]:
    """Return the earlier steps that a step was made of: those it sees, and those these see."""
    needed = set(last.step.access)
    behind = []
    for record in reversed(trace.steps):
        if record.number in needed:
            needed.update(record.step.access)
            behind.append(record)
    return behind[::-1]


def _is_cut(record: StepRecord) -> bool:
    """Return whether a step has an answer without its end."""
    if record.state != "done":
        return False
    return record.finish in CUT_FINISHES or (record.nested is not None and record.nested.partial)


def answer_of(
    trace: Trace, question: Question, verdicts: Collection[str] = ()
) -> tuple[str | None, bool]:
    """Return the best answer there is, and whether it is partial; None when nothing was written.

    First comes the answering step, then what it had written when it was cut off, then the last step
    that finished, then what a nested run had to show when it was cut off. Where the answering step
    wrote one of the `verdicts`, the answer is the one that it judged: the last one on its access
    list. A step may say how it came to a verdict before it.
    """
    if isinstance(trace.plan, KeepAnswer):
        # The plan rules allow this decision only where something was given.
        answers = [given.answer for given in question.given]
        return _last_without_verdict(answers, verdicts), False
    last = find_answering_step(trace)
    if last is not None and last.state == "done":
        judged = None
        if _verdict(last.text, verdicts):
            judged = _judged_by(last, trace)
        return (judged or last).text, _is_cut(last)
    if last is not None and last.text.strip():
        return last.text, True
    done = [record.text for record in trace.steps if record.state == "done"]
    if done:
        return _last_without_verdict(done, verdicts), True
    if last is not None and last.nested is not None and last.nested.answer.strip():
        return last.nested.answer, True
    return None, False


def tool_calls_of(trace: Trace) -> tuple[ToolCall, ...]:
    """Return the calls that the answering step leaves to the client of the server."""
    last = find_answering_step(trace)
    if last is not None and last.state == "done":
        return last.tool_calls
    return ()


def failure_of(state: RunState) -> Failure:
    """Return why a run has no whole answer: a stop, a limit, the conductor, or its workers."""
    if state.ending.failure is not None:
        return state.ending.failure
    last = find_answering_step(state.trace)
    if last is None and state.planning.revision is not None:
        last = state.record(state.planning.revision.step)
    elif last is None:
        return Failure(kind="worker", message="no step could be run", reason="step_not_run")
    elif last.nested is not None and last.nested.error is not None:
        return last.nested.error
    elif last.state == "done":
        return state.work.cut_reply_of(last.number) or _cut_answer(last)
    errors = state.work.errors_of(last.number)
    if not errors:
        return Failure(
            kind="worker", message=f"step {last.number} did not run", reason="step_not_run"
        )
    first = errors[0]
    if len({error.kind for error in errors}) == 1:
        return first
    # Attempts that failed for different reasons have no kind in common, and so no exit code either.
    message = f"every worker failed at step {last.number}; first: {first.message}"
    return Failure(kind="worker", message=message, hint=first.hint, reason="workers_failed")


def _cut_answer(last: StepRecord) -> Failure:
    """Return why an answer has no end where only its trace tells that."""
    if last.finish == "refusal":
        message = f"{last.worker} refused to go on, or a content filter cut its answer off"
        return Failure(kind="partial", message=message, reason="answer_filtered")
    message = f"{last.worker} reached its token limit before the end of the answer"
    return Failure(kind="partial", message=message, reason="answer_truncated")


def internal_failure(error: BaseException) -> Failure:
    """Return an exception that nobody foresaw, as a failure."""
    return Failure(
        kind="internal", message=f"this is a bug in conductor: {type(error).__name__}: {error}"
    )


def _verdict(text: str, verdicts: Collection[str]) -> str:
    last = text.split()[-1:]
    if last and last[0] in verdicts:
        return last[0]
    return ""


def _last_without_verdict(answers: Sequence[str], verdicts: Collection[str]) -> str:
    """Return the last answer that is no verdict on another one; the last of all where each is."""
    for answer in reversed(answers):
        if not _verdict(answer, verdicts):
            return answer
    return answers[-1]


def _judged_by(check: StepRecord, trace: Trace) -> StepRecord | None:
    if not check.step.access:
        return None
    return trace.done().get(check.step.access[-1])

"""Planning: the plan is written by the planner, read from a file, or reused, and may need approval.

A fault in what the planner writes is shown back to it once, with the steps that stand. After that
the best worker takes what is missing. So a run that can ask a worker always has a plan, and each
detour is an event. Where nobody could do a step, the rest of the plan is planned anew, once.

New steps of a revised plan get new numbers; to use old ones again would concern every reader of the
events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from conductor_cli.core import events as ev
from conductor_cli.core.errors import (
    ConductorError,
    Failure,
    FailureKind,
    LimitReached,
    ModelError,
    PlanError,
)
from conductor_cli.core.plan import (
    MAX_STEPS,
    SELF,
    KeepAnswer,
    Plan,
    PlanRules,
    RejectedPlan,
    Revision,
    Step,
    check_plan,
)
from conductor_cli.core.plan_formats import ParsedStep, PlanFormatContext
from conductor_cli.core.plan_formats.base import ANSWER_DIRECTLY
from conductor_cli.core.policy import POLICY_HINT, step_limit
from conductor_cli.core.pool import Pool
from conductor_cli.core.trace import ENDED, StepRecord, Trace, find_step
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.models.base import Model
from conductor_cli.run.attempt import Attempt, retry_wait
from conductor_cli.run.circuits import FAILURE_WORDS
from conductor_cli.run.plan_stream import REVIEW, PlanStream, announce_parsed
from conductor_cli.run.state import RunState

REASONS_FOR_PLANNER: Final = FAILURE_WORDS | {
    "length": "the prompt is too long",
    "refused": "it refused the request",
    "empty_answer": "an empty answer",
    "schema": "its answer breaks the JSON Schema",
    "missing": "no such model",
    "circuit_open": "it is skipped for a time",
}
"""Why a worker failed, as the planner is told."""


def wants_revision(state: RunState, number: int) -> bool:
    """Return whether the planner is asked for another way, now that step `number` has ended.

    Not where the user gave or approved the plan, where the planner cannot be told of its own plan,
    or where no worker is left that could do better. Nor once a step gives the answer: two answers
    are never mixed.
    """
    team = state.team
    record = state.record(number)
    if record.state != "failed" or record.step.worker == SELF or state.work.text_is_out:
        return False
    if (
        not (team.revises and state.resources.revisions_left)
        or state.ending.failure is not None
        or state.spec.plan_only
    ):
        return False
    if team.model is None or team.profile.render is not None or team.mode == "mini":
        return False
    if state.spec.plan is not None or state.planning.decision is not None:
        return False
    if _has_begun_to_answer(state, number):
        return False
    unusable = {SELF, *state.policy.excluded, *_unusable(state, record)}
    somebody_is_left = any(name not in unusable for name in team.pool.names)
    return somebody_is_left and state.policy.may_show_steps(state.steps_before())


def _has_begun_to_answer(state: RunState, number: int) -> bool:
    """Return whether another step than `number` answers, and has begun."""
    for record in state.trace.steps:
        if record.last:
            return record.number != number and record.number not in state.waiting_steps
    return False


def begin_revision(state: RunState, number: int) -> None:
    """Give up step `number` and all that have not begun.

    The others are kept, also those that still run.
    """
    record = state.record(number)
    left_out = state.waiting_steps
    workers = tuple(dict.fromkeys(attempt.worker for attempt in record.failed))
    first = len(state.trace.steps) + 1
    revised = ev.PlanRevised(
        at=state.stream.now(), step=number, workers=workers, left_out=left_out, first=first
    )
    _revise(state, revised, record)
    for other in left_out:
        state.leave_out_step(other)


def _revise(state: RunState, revised: ev.PlanRevised, record: StepRecord) -> None:
    names = set(state.team.pool.names)
    hidden = {revised.step, *revised.left_out}
    kept = []
    for step in state.trace.steps:
        if step.number not in hidden and step.number < revised.first:
            kept.append(step)
    reasons: dict[str, str] = {}
    for attempt in record.failed:
        if attempt.worker in names:
            reasons[attempt.worker] = REASONS_FOR_PLANNER.get(attempt.error.reason, "it failed")
    unusable: frozenset[str] = frozenset()
    if state.resumed is None:
        unusable = frozenset(_unusable(state, record))
    state.resources.use_revision()
    limit = step_limit(state.limits, state.team.pool.names, state.team.max_steps)
    state.planning.revision = Revision(
        step=revised.step,
        why=reasons,
        left_out=revised.left_out,
        first=revised.first,
        most=max(1, limit - len(kept)),
        unusable=unusable,
    )
    if not state.is_takeover or state.trace.revised is None:
        state.stream.emit(revised)


def _unusable(state: RunState, record: StepRecord) -> set[str]:
    """Return workers that could not be reached, or whose key was refused.

    They would fail at anything.
    """
    failed = {attempt.worker: attempt.error.kind for attempt in record.failed}
    dead = {name for name, kind in failed.items() if kind in ("unreachable", "key")}
    return dead | set(state.resources.down) | set(state.resources.skipped)


TAKEN_OVER: Final = "taken_over"  # Why a call has no end: its process is gone
FINISH: Final = "Answer the question, using what the earlier steps found."


async def make_plan(state: RunState) -> Failure | None:
    """Have the plan written, read from a file, or reused. Returns what makes that impossible."""
    if state.is_takeover and _take_over(state, state.trace):
        return None
    if state.spec.plan is not None:
        return _announce(state, state.spec.plan)
    if state.resumed is not None and not state.is_takeover and _reuse(state, state.resumed):
        return None
    if state.team.model is None:
        return Failure(
            kind="conductor",
            message="there is no planner to plan with",
            hint="choose one: conductor model use NAME, or conductor setup",
            reason="no_planner",
        )
    if not state.policy.may_show_steps(state.steps_before()):
        return _fall_back(state, "the resumed plan may reveal inputs hidden from the planner")
    return await _write(state, state.team.model)


async def write_rest_of_plan(state: RunState) -> Failure | None:
    """Have the rest of the plan written, once its revision has begun. Returns what ends the run."""
    assert state.team.model is not None
    failure = await _write(state, state.team.model)
    if failure is None or failure.kind == "limit":
        return failure
    return _fall_back(state, failure.message)


async def wait_for_approval(state: RunState) -> Failure | None:
    """Offer the plan until the user approves it, then start it.

    Returns what makes planning again impossible.
    """
    while True:
        state.stream.emit(ev.PlanOffered(at=state.stream.now()))
        state.planning.decision = asyncio.get_running_loop().create_future()
        decision = await state.ending.answer_of_user(state.planning.decision)
        if decision.edited is not None:
            state.stream.emit(ev.PlanDecided(at=state.stream.now(), verdict="edited"))
            state.discard_plan()
            failure = _announce(state, decision.edited, reviewed=True)
        elif decision.feedback:
            failure = await _plan_again(state, decision.feedback)
        else:
            state.stream.emit(ev.PlanDecided(at=state.stream.now(), verdict="approved"))
            state.planning.awaits_approval = False
            state.wake()
            return None
        if failure is not None:
            return failure


async def _plan_again(state: RunState, feedback: str) -> Failure | None:
    """Have another plan written, for what the user says of this one."""
    # The plan as the planner wrote it, without the review that was appended.
    plan = state.trace.plan
    assert isinstance(plan, Plan)
    is_reviewed = len(plan.steps) > 1 and plan.steps[-1].subtask == REVIEW
    if state.nesting.reviews > 0 and is_reviewed:
        plan = replace(plan, steps=plan.steps[:-1])
    state.planning.rejected += (RejectedPlan(plan=plan, feedback=feedback),)
    decided = ev.PlanDecided(at=state.stream.now(), verdict="replan", feedback=feedback)
    state.stream.emit(decided)
    state.discard_plan()
    assert state.team.model is not None
    return await _write(state, state.team.model)


def problem_with(state: RunState, plan: Plan, *, reviewed: bool = False) -> Failure | None:
    """Return why a plan that the planner did not write cannot be run; None where it can.

    It names its workers on purpose, so no worker is replaced by another. `reviewed`: it already
    holds the reviews that `limits.review` appends.
    """
    forbidden = state.policy.plan_violation(plan)
    if forbidden is not None:
        return forbidden
    for step in plan.steps:
        why = state.resources.down.get(step.worker)
        if why is not None:
            return replace(
                why, message=f"the plan names {step.worker}, which cannot be used: {why.message}"
            )
    try:
        rules = _rules(state)
        # A step on the planner itself is not a worker of the pool, and `MAX_STEPS` bounds only what
        # a model writes.
        max_steps = state.limits.steps or MAX_STEPS
        if reviewed:
            max_steps += state.nesting.reviews
        check_plan(plan, replace(rules, workers=(*rules.workers, SELF), steps=max_steps))
    except PlanError as error:
        return Failure(kind="usage", message=error.message, hint=error.hint, reason=error.reason)
    unseen = state.media_access.fault(plan.steps)
    if not unseen:
        return None
    return Failure(kind="usage", message=unseen, reason="plan_invalid")


def _announce(state: RunState, plan: Plan, *, reviewed: bool = False) -> Failure | None:
    failure = problem_with(state, plan, reviewed=reviewed)
    if failure is not None:
        return failure
    announced = len(state.trace.steps)  # where another process has begun to announce them
    for number, step in enumerate(plan.steps[announced:], start=announced + 1):
        last = number == len(plan.steps)
        if reviewed:
            state.add_step(number, step, last=last)
        else:
            announce_parsed(state, ParsedStep(number=number, step=step, last=last))
    state.finish_plan(state.current_plan(plan.reasoning))
    return None


def _take_over(state: RunState, trace: Trace) -> bool:
    """Schedule what a process that was lost has left to do. Returns whether its plan is complete.

    What the calls cost that it was making is not known, so each is one without a price, and the
    limits of the run count the most that it can have cost.
    """
    if not state.nesting.nested:
        state.stream.notice(
            "the process of this run was lost; another one goes on with it", recovered=True
        )
    if trace.revised is not None:
        given_up = find_step(trace, trace.revised.step)
        assert given_up is not None, "a plan is revised because of one of its steps"
        _revise(state, trace.revised, given_up)
    for record in trace.steps:
        if _was_in_flight(record):
            _fail_lost_call(state, record)
        state.take_over_step(record)
    if not state.nesting.nested:
        _count_spent(state, trace)
    for record in state.trace.steps:
        _count_lost_calls(state, record)
    if trace.plan is None and any(record.last for record in trace.steps):
        state.finish_plan(state.current_plan())
    state.planning.was_lost = state.trace.plan is None
    state.wake()
    return state.trace.plan is not None


def _fail_lost_call(state: RunState, record: StepRecord) -> None:
    """Tell that the call of a step has failed, because its process is gone."""
    lost = Failure(
        kind="terminated", message="the process that made this call was lost", reason=TAKEN_OVER
    )
    failed = ev.StepFailed(
        at=state.stream.now(),
        step=record.number,
        attempt=record.attempt,
        error=lost,
        usage=Usage(calls=1, unpriced=1),
        retry_in=0.0,
    )
    state.stream.emit(failed)


def _count_spent(state: RunState, trace: Trace) -> None:
    """Count in the limits of the run what the lost process is known to have used."""
    spent = state.trace.usage
    for record in trace.steps:
        # What a nested run has used counts for its step when that has ended
        if record.nested is not None and record.state not in ENDED:
            spent += record.nested.usage
    state.resources.ledger.count(spent, spent.calls - trace.planning.calls)
    state.resources.count_tool_calls(sum(len(record.tools) for record in trace.steps))


def _count_lost_calls(state: RunState, record: StepRecord) -> None:
    """Count the calls of attempts whose processes are gone: the last one, and those for tools."""
    for lost in record.failed:
        if lost.error.reason != TAKEN_OVER or lost.worker not in state.team.pool:
            continue
        turns = {tool.turn for tool in record.tools if tool.attempt == lost.attempt}
        attempt = Attempt(state, record.number, state.team.pool[lost.worker], lost.attempt)
        attempt.count_as_lost(record.prompt, 1 + len(turns))


def _was_in_flight(record: StepRecord) -> bool:
    """Return whether a worker was being called for a step when its process was lost."""
    if record.state != "running" or record.step.worker == SELF:
        return False
    has_failed = bool(record.failed) and record.failed[-1].attempt == record.attempt
    return not has_failed


def _reuse(state: RunState, earlier: Trace) -> bool:
    done = list(map(str, earlier.done()))
    if earlier.steps:
        reused = "the plan"
        if done:
            reused = f"finished {_name_steps(done)}"
        state.stream.notice(f"reusing {reused} of run {earlier.run}")
    if state.repeated:
        repeated = _name_steps(list(map(str, state.repeated)))
        state.stream.notice(f"doing {repeated} again, which had to do without an answer")
    revised = earlier.revised
    before = earlier.steps
    if revised is not None:
        before = tuple(record for record in earlier.steps if record.number < revised.first)
    for record in before:
        _reuse_step(state, record, earlier)
    if revised is not None:
        given_up = find_step(earlier, revised.step)
        assert given_up is not None, "a plan is revised because of one of its steps"
        _revise(state, replace(revised, at=state.stream.now()), given_up)
    for record in earlier.steps[len(before) :]:
        _reuse_step(state, record, earlier)
    if isinstance(earlier.plan, KeepAnswer):
        state.finish_plan(earlier.plan)
    elif earlier.plan is not None or any(record.last for record in earlier.steps):
        state.finish_plan(earlier.plan or state.current_plan())
    return state.trace.plan is not None


def _name_steps(numbers: Sequence[str]) -> str:
    word = "steps"
    if len(numbers) == 1:
        word = "step"
    return f"{word} {', '.join(numbers)}"


def _reuse_step(state: RunState, record: StepRecord, earlier: Trace) -> None:
    """Reuse one step: its answer if it has one, else the step; one that was given up stays so."""
    revised = earlier.revised
    number = record.number
    if record.state == "done":
        # The events are repeated. That costs nothing now.
        fields: Any = {"step": number, "attempt": 1, "text": record.text}
        state.announce_step(number, record.step, last=record.last)
        state.stream.emit(
            ev.StepStarted(
                at=state.stream.now(),
                step=number,
                worker=record.worker,
                attempt=1,
                prompt=record.prompt,
            )
        )
        state.stream.emit(ev.StepDelta(at=state.stream.now(), **fields, thinking=record.thinking))
        state.stream.emit(
            ev.StepFinished(
                at=state.stream.now(), **fields, usage=NO_USAGE, finish=record.finish or "stop"
            )
        )
        state.release_step(number)
    elif revised is not None and number in (revised.step, *revised.left_out):
        state.announce_step(number, record.step, last=record.last)
        state.leave_out_step(number)
    else:
        state.add_step(number, record.step, last=record.last)


async def _write(state: RunState, model: Model) -> Failure | None:
    """Ask the planner, again after each fault, and at last fall back on the best worker."""
    fault = ""
    tries = state.team.profile.sampling.tries
    why = "the planner's output was not a valid plan"
    for attempt in range(1, tries + 1):
        standing = state.current_plan().steps
        context = _context(state, first=len(standing) + 1)
        if context.first > context.rules.steps or (fault and not context.offers_choice):
            # The valid steps already fill the plan, or there is only one, which needs no planner
            break
        stream = PlanStream(state, model, context, attempt)
        try:
            await stream.read(standing, fault)
        except PlanError as error:
            fault = error.message
            why = "the planner's output was not a valid plan"
            stream.reject(error.line, error)
        except LimitReached as error:
            return error.failure
        except ModelError as error:
            if not error.retryable:
                return _cannot_plan(error, state.team.key_hint)
            fault = ""
            why = f"the planner failed ({error.message})"
            stream.reject("", error)
            # One that could not be reached fails the run; for one that wrote nonsense there is a
            # fallback plan.
            if (
                attempt == tries
                and error.reason in ("connect", "timeout")
                and not state.trace.steps
            ):
                return _cannot_plan(error, state.team.key_hint)
            if attempt < tries:
                await asyncio.sleep(
                    retry_wait(attempt + 1, error.retry_after, state.orchestra.random)
                )
        else:
            stream.finish()
            return None
        finally:
            stream.settle()
    return _fall_back(state, why)


def _fall_back(state: RunState, why: str) -> Failure | None:
    """Have the best worker answer, with everything it may see. Returns why no worker can."""
    worker = _fallback_worker(state)
    if worker is None:
        return _no_fallback(state, why)
    number = len(state.trace.steps) + 1
    how = "the steps planned so far are kept, and"
    subtask = FINISH
    if number == 1:
        how = "as a fallback,"
        subtask = ANSWER_DIRECTLY
    state.stream.notice(f"{why}; {how} worker {worker} answers", recovered=True)
    everything = _context(state).all_before(number)
    step = Step(worker=worker, subtask=subtask, access=everything)
    step = state.policy.without_hidden(state.steps_before(), step)
    announce_parsed(state, ParsedStep(number=number, step=step, last=True))
    state.finish_plan(state.current_plan())
    return None


def _fallback_worker(state: RunState) -> str | None:
    """Return the best worker that may answer alone; None where the profile or the policy lets none.

    The policy may hide some inputs from a worker; one that sees the whole question is preferred.
    """
    if not state.team.profile.fallback:
        return None
    policy = state.policy
    absent = {*state.resources.down, *state.resources.skipped}
    if state.planning.revision is not None:
        absent |= state.planning.revision.unusable
    rules = state.team.rules(
        state.limits, given=False, depth_left=0, down=absent, excluded=policy.excluded
    )
    names = [name for name in rules.workers if not policy.withheld(name)] or rules.workers
    names = state.media_access.best_of(names)
    if not names:
        return None
    return Pool(workers=tuple(state.team.pool[name] for name in names)).best().name


def _no_fallback(state: RunState, why: str) -> Failure | None:
    """Return the failure of a run without a plan; None where finished steps are the answer."""
    if state.planning.revision is not None:
        return None
    if state.team.profile.fallback:
        message = f"{why}, and the policy allows no worker to answer alone"
        return Failure(kind="policy", message=message, hint=POLICY_HINT)
    rejected = state.trace.rejected
    if len(rejected) > 1:
        why = f"none of {len(rejected)} plans was valid; the last one"
    message = f"no answer: {why}"
    if rejected:
        message = f"{message}: {rejected[-1].problem}"
    return Failure(kind="worker", message=message, hint="ask in other words", reason="declined")


def _rules(state: RunState, *, skipping: bool = False) -> PlanRules:
    """Return the rules of the plan.

    `skipping` leaves out the workers that are skipped for a time.
    """
    given = bool(state.question.given)
    excluded = state.policy.excluded
    down = set(state.resources.down)
    if skipping:
        down.update(state.resources.skipped)
    if state.planning.revision is not None:
        down |= state.planning.revision.unusable
    rules = state.team.rules(
        state.limits, given=given, depth_left=state.nesting.depth_left, down=down, excluded=excluded
    )
    # The only step must be done by a worker that can see what is attached.
    if state.media_access.files and (state.team.mode == "mini" or rules.steps == 1):
        rules = replace(rules, workers=state.media_access.best_of(rules.workers))
    if state.planning.revision is not None:
        rules = replace(
            rules, steps=state.planning.revision.first - 1 + state.planning.revision.most
        )
    return rules


def _context(state: RunState, first: int = 1) -> PlanFormatContext:
    context = state.team.context(_rules(state, skipping=True))
    if context.first == first and context.hidden == state.planning.given_up:
        return context
    return replace(context, first=first, hidden=state.planning.given_up)


def _cannot_plan(error: ConductorError, key_hint: str) -> Failure:
    """Return the failure of a run whose conductor failed.

    A missing key stays one, so that the exit code tells it.
    """
    failure = error.failure
    kind: FailureKind = "conductor"
    if failure.kind == "key":
        kind = "key"
    hints = {
        "length": "give it a larger context: conductor config set planner.context N",
        "auth": key_hint,
    }
    hint = hints.get(failure.reason, "") or failure.hint
    return Failure(
        kind=kind,
        message=f"the planner cannot plan: {failure.message}",
        hint=hint,
        reason=failure.reason,
    )

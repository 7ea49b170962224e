"""Planning: the conductor's text becomes steps while it is being written.

A fault in the text is shown back once, with the steps that stand; after that the best worker is taken for what is
missing. So there is always a plan, and each detour is an event.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from conductor_cli.core import events as ev
from conductor_cli.core.errors import ConductorError, Failure, FailureKind, LimitReached, ModelError, PlanError
from conductor_cli.core.plan import SELF, KeepAnswer, Plan, PlanRules, Step, check_plan
from conductor_cli.core.plan_formats import ParsedStep, PlanFormatContext
from conductor_cli.core.plan_formats.base import ANSWER_DIRECTLY
from conductor_cli.core.policy import POLICY_HINT
from conductor_cli.core.pool import Pool
from conductor_cli.core.trace import StepRecord, Trace
from conductor_cli.core.usage import NO_USAGE
from conductor_cli.run import guarding
from conductor_cli.run.calls import wait_before
from conductor_cli.run.reading import Reader, announce_step, plan_of, plan_ready

if TYPE_CHECKING:
    from conductor_cli.models.base import Model
    from conductor_cli.run.workflow import Workflow

TRIES: Final = 2
"""How often the conductor may write: once, and once more after a fault."""

FINISH: Final = "Answer the question, using what the earlier steps found."
UNHEARD: Final = frozenset({"connect", "timeout"})
"""A conductor that never spoke: to answer without it is not what was asked for. Nonsense is got round."""


async def make_plan(run: Workflow) -> Failure | None:
    """Have the run's plan made, read from a file, or taken over; each step is announced as it comes.

    Returns what makes planning impossible, None when there is a plan.
    """
    if run.given_plan is not None:
        return announce(run, run.given_plan)
    if run.resumed is not None and _take_over(run, run.resumed):
        return None
    if run.setting.model is None:
        return Failure(kind="conductor", message="there is no conductor model to plan with")
    if not guarding.may_show_steps(run):
        return _fall_back(run, "what was planned may tell of more than the conductor is shown")
    return await write(run, run.setting.model)


def _terms(run: Workflow, first: int = 1) -> PlanFormatContext:
    return replace(run.setting.context(_rules(run)), first=first)


def _rules(run: Workflow) -> PlanRules:
    given = bool(run.question.given)
    return run.setting.rules(given=given, depth_left=run.depth_left, down=run.shared.down, barred=run.taint.barred)


def announce(run: Workflow, plan: Plan, *, reviewed: bool = False) -> Failure | None:
    """The steps of a plan that somebody else made. `reviewed`: what `--recursion` puts behind a plan is in it."""
    failure = problem(run, plan, reviewed=reviewed)
    if failure is not None:
        return failure
    for number, step in enumerate(plan.steps, start=1):
        last = number == len(plan.steps)
        if reviewed:
            run.planned(number, step, last=last)
        else:
            announce_step(run, ParsedStep(number=number, step=step, last=last))
    plan_ready(run, plan_of(run, plan.reasoning))
    return None


def problem(run: Workflow, plan: Plan, *, reviewed: bool = False) -> Failure | None:
    """Why such a plan cannot be run. It says who does what, so nobody takes the place of another."""
    forbidden = guarding.fault_in(run, plan)
    if forbidden is not None:
        return forbidden
    for step in plan.steps:
        why = run.shared.down.get(step.worker)
        if why is not None:
            return replace(why, message=f"the plan names {step.worker}, which is left out: {why.message}")
    try:
        rules = _rules(run)
        # A step on the conductor itself needs no worker, and only what a model writes is held to `MAX_STEPS`.
        most = run.setting.limits.steps + (run.appended if reviewed else 0)
        check_plan(plan, replace(rules, workers=(*rules.workers, SELF), steps=most))
    except PlanError as error:
        return Failure(kind="usage", message=error.message, hint=error.hint)
    return None


def _take_over(run: Workflow, earlier: Trace) -> bool:
    """Take over the steps of an earlier run: what is done counts, what is not is done. Returns whether that is all."""
    done = [str(number) for number in earlier.done()]
    if earlier.steps:
        taken = f"finished step{'s' * (len(done) > 1)} {', '.join(done)}" if done else "the plan"
        run.notice(f"taken over from run {earlier.run}: {taken}")
    for record in earlier.steps:
        if record.state == "done":
            _show_finished(run, record)
        else:
            run.planned(record.number, record.step, last=record.last)
    if isinstance(earlier.plan, KeepAnswer):
        plan_ready(run, earlier.plan)
    elif earlier.plan is not None or any(record.last for record in earlier.steps):
        plan_ready(run, earlier.plan or plan_of(run))
    return run.trace.plan is not None


def _show_finished(run: Workflow, record: StepRecord) -> None:
    """A step that an earlier run finished: its text is taken over and costs nothing now."""
    number = record.number
    run.show(number, record.step, last=record.last)
    run.emit(ev.StepStarted(at=run.now(), step=number, worker=record.worker, attempt=1, prompt=record.prompt))
    run.emit(ev.StepDelta(at=run.now(), step=number, attempt=1, text=record.text, thinking=record.thinking))
    finish = record.finish or "stop"
    run.emit(ev.StepFinished(at=run.now(), step=number, attempt=1, text=record.text, usage=NO_USAGE, finish=finish))
    run.ended(number)


async def write(run: Workflow, model: Model) -> Failure | None:
    """Ask the conductor, at most `TRIES` times, and fall back on the best worker."""
    fault = ""
    for attempt in range(1, TRIES + 1):
        standing = plan_of(run).steps
        context = _terms(run, first=len(standing) + 1)
        if context.first > context.rules.steps:
            break
        reader = Reader(run, model, context)
        try:
            await reader.read(standing, fault)
        except PlanError as error:
            fault = error.message
            reader.reject(attempt, error.line, error)
        except LimitReached as error:
            run.reach_limit(error.failure)
            return error.failure
        except ModelError as error:
            if not error.retryable:
                return _conductor_failed(error)
            fault = ""
            reader.reject(attempt, "", error)
            if attempt == TRIES and error.reason in UNHEARD and not run.trace.steps:
                return _conductor_failed(error)
            if attempt < TRIES:
                await asyncio.sleep(wait_before(attempt + 1, error.retry_after, run.setting.random))
        else:
            reader.ready()
            return None
        finally:
            reader.settle()
    return _fall_back(run, "no valid plan")


def _conductor_failed(error: ConductorError) -> Failure:
    """A key is a key; whatever else makes a conductor unusable is told as that."""
    failure = error.failure
    kind: FailureKind = "key" if failure.kind == "key" else "conductor"
    too_long = isinstance(error, ModelError) and error.reason == "length"
    hint = "give it a larger context: conductor config set conductor.context N" if too_long else failure.hint
    return Failure(kind=kind, message=f"the conductor cannot plan: {failure.message}", hint=hint)


def _fall_back(run: Workflow, why: str) -> Failure | None:
    """A plan nobody wrote: the best worker answers, seeing whatever stands and whatever was given.

    The policy may keep some of that from it; who sees all of the question is taken first. Returns why nobody can.
    """
    number = len(run.trace.steps) + 1
    worker = _best(run)
    if worker is None:
        return Failure(kind="policy", message=f"{why}, and the policy lets nobody answer alone", hint=POLICY_HINT)
    run.notice(f"{why}: {worker} takes the question")
    everything = _terms(run).everything_before(number)
    step = Step(worker=worker, subtask=FINISH if number > 1 else ANSWER_DIRECTLY, access=everything)
    announce_step(run, ParsedStep(number=number, step=guarding.visible(run, step), last=True))
    plan_ready(run, plan_of(run))
    return None


def _best(run: Workflow) -> str | None:
    setting, taint = run.setting, run.taint
    rules = setting.rules(given=False, depth_left=0, down=run.shared.down, barred=taint.barred)
    seeing = [name for name in rules.workers if "question" not in taint.withheld(name)]
    names = [name for name in seeing if not taint.withheld(name)] or seeing
    return Pool(workers=tuple(setting.pool[name] for name in names)).best().name if names else None

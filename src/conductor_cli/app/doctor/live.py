"""Checks by use: the conductor plans a question, each worker answers, and the demo models do both."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from conductor_cli.app.checks import Check
from conductor_cli.app.doctor.machine import memory_shortage
from conductor_cli.app.keys import key_state, open_key_store
from conductor_cli.app.opened_conductor import OpenedConductor, open_conductor
from conductor_cli.app.policy_filter import policy_objection
from conductor_cli.app.worker_selection import discovered_workers, offered_workers
from conductor_cli.app.worker_tests import run_worker_test
from conductor_cli.config import Settings
from conductor_cli.config.schema import SETTINGS
from conductor_cli.core.errors import ConductorError, Failure, KeyMissing
from conductor_cli.core.events import PlanRejected, StepPlanned
from conductor_cli.core.formatting import format_count, format_duration
from conductor_cli.core.plan import SELF, Plan
from conductor_cli.core.pool import Limits, Worker
from conductor_cli.core.question import Question
from conductor_cli.keys.key_store import KeyStore
from conductor_cli.models.catalog import open_model
from conductor_cli.models.command.programs import PROGRAMS, describe_program
from conductor_cli.models.presets import missing_key_hint

Report = Callable[[Check], None]
"""Takes each result as soon as there is one."""

Start = Callable[[str], None]
"""Takes the name of each check when it begins."""

QUESTION: Final = "Which is the capital of France, and how many letters has its name?"
"""What the conductor plans."""

DEMO_QUESTION: Final = "find the capital of FRANCE, then spell it backwards"

PLANNING_TIMEOUT: Final = 300.0
"""Seconds for loading the conductor and planning: without a GPU a large one reads its prompt for over a minute."""

DEMO_TIMEOUT: Final = 60.0


def workers_to_check(settings: Settings, *, offline: bool) -> list[Worker]:
    """The workers that a run would use: the configured ones or, without any, those that are found."""
    if not settings.workers:
        return [item.worker for item in discovered_workers(settings, offline=offline)]
    return list(offered_workers(settings))


async def check_workers(
    settings: Settings, workers: Sequence[Worker], start: Start, report: Report, *, offline: bool
) -> None:
    """Call every worker once. With `offline` none is called, and the checks say whether their keys exist."""
    stored = open_key_store(settings)

    async def check(worker: Worker) -> None:
        start(f"worker {worker.name}")
        report(await _check_worker(worker, settings, stored, offline=offline))

    async def check_local() -> None:
        # One after the other: each loads its weights, and two at once may not fit the memory.
        for worker in workers:
            if worker.kind == "llama":
                await check(worker)

    async with asyncio.TaskGroup() as group:
        group.create_task(check_local())
        for worker in workers:
            if worker.kind not in ("llama", SELF):
                group.create_task(check(worker))
    if not workers:
        found = "none configured and no key found" + ("; local model servers were not asked" if offline else "")
        hint = "conductor setup, or: conductor workers add NAME --kind openai --model MODEL"
        report(Check(name="workers", state="warning", found=found, hint=hint))


async def _check_worker(worker: Worker, settings: Settings, stored: KeyStore, *, offline: bool) -> Check:
    name = f"worker {worker.name}"
    try:
        key = key_state(worker, settings.environ, stored)
        found = f"{worker.kind} {worker.model}".strip() + f", key {key}"
        if worker.kind in PROGRAMS:
            found = f"{worker.kind}: {describe_program(worker)}"
            open_model(worker, environ=settings.environ)  # is it installed, and its sandbox? Nothing is started
        if key == "missing":
            raise KeyMissing(found, hint=missing_key_hint(worker))
        objection = policy_objection(settings, worker)
        if objection or offline:
            return Check(name=name, state="ok", found=f"{found}, not called{f': {objection}' if objection else ''}")
        tested = await run_worker_test(worker, settings.environ, stored)
    except ConductorError as error:
        return Check.failed(name, error)
    if tested.failure is None:
        answered = f"{found}, answered in {format_duration(tested.seconds)}"
        return Check(name=name, state="ok", found=answered, seconds=tested.seconds)
    hint = f"{tested.failure.hint}\nor leave it out: conductor workers disable {worker.name}".strip()
    failure = replace(tested.failure, message=f"{found}, {tested.failure.message}", hint=hint)
    return Check.failed(name, failure, seconds=tested.seconds)


async def check_planning(settings: Settings) -> Check:
    """Whether the conductor plans a fixed question. The plan is not run."""
    if shortage := memory_shortage(settings):
        hint = "use a smaller model: conductor model list, then conductor model pull NAME --use"
        return Check(name="planning", state="warning", found=f"not tried: {shortage}", hint=hint)
    try:
        async with asyncio.timeout(PLANNING_TIMEOUT):
            opened = await open_conductor(settings, asking=False)
            try:
                return await _plan(opened)
            finally:
                await opened.close()
    except ConductorError as error:
        return _planning_failed(error.failure)
    except TimeoutError:
        message = f"no plan within {format_duration(PLANNING_TIMEOUT)}"
        return _planning_failed(Failure(kind="conductor", message=message))


async def _plan(opened: OpenedConductor) -> Check:
    started = time.monotonic()
    # The limits of a run are not what is checked here; the limits of a day hold all the same.
    run = replace(opened.conductor, limits=Limits()).run(Question(text=QUESTION), plan_only=True)
    events = [event async for event in aiter(run)]
    seconds, trace = time.monotonic() - started, run.trace
    if trace.error is not None or not isinstance(trace.plan, Plan):
        return _planning_failed(trace.error or Failure(kind="conductor", message="the model wrote no plan"))
    first = next((event.at for event in events if isinstance(event, StepPlanned)), 0.0)
    steps = format_count(len(trace.plan.steps), "step")
    found = f"planned {steps} in {format_duration(seconds)}, the first step after {format_duration(first)}"
    if any(isinstance(event, PlanRejected) for event in events):
        hint = "try another profile: conductor config set conductor.profile prompted-json"
        found = f"{found}; its first reply was not a valid plan"
        return Check(name="planning", state="warning", found=found, hint=hint, seconds=seconds)
    return Check(name="planning", state="ok", found=found, seconds=seconds)


def _planning_failed(failure: Failure) -> Check:
    """No plan: the conductor model's fault, unless a rule, a setting or a limit forbids it."""
    if failure.kind not in {"policy", "config", "limit"}:
        failure = replace(failure, kind="conductor")
    hint = failure.hint or "choose another model: conductor model use NAME | FILE.gguf | URL | provider/model"
    return Check.failed("planning", replace(failure, hint=hint))


async def check_demo(settings: Settings) -> Check:
    """Whether the demo models plan and answer a question, which takes no key, no network and no download."""
    # Limits and mode as the demo models know them, and no rules, since nothing leaves this machine.
    fixed = {item.name: item.default for item in SETTINGS if item.name.startswith(("limits.", "conductor.", "policy."))}
    settings = replace(settings, values={**settings.values, **fixed})
    name, started = "rehearsal", time.monotonic()
    try:
        async with asyncio.timeout(DEMO_TIMEOUT):
            opened = await open_conductor(settings, rehearsal=True)
            try:
                run = opened.conductor.run(Question(text=DEMO_QUESTION))
                async with aclosing(aiter(run)) as events:
                    async for _ in events:
                        pass
            finally:
                await opened.close()
    except ConductorError as error:
        return Check.failed(name, error)
    except TimeoutError:
        message = f"no answer within {format_duration(DEMO_TIMEOUT)}"
        return Check.failed(name, Failure(kind="conductor", message=message, hint="see: conductor doctor --offline"))
    trace, seconds = run.trace, time.monotonic() - started
    if trace.error is not None:
        return Check.failed(name, trace.error)
    steps = format_count(len(trace.steps), "step")
    # On another CPU these small models may write another word, which is no fault: the answer is only shown.
    found = f"the demo models planned {steps} and answered {trace.answer.strip()!r:.60} in {format_duration(seconds)}"
    return Check(name=name, state="ok", found=found, seconds=seconds)

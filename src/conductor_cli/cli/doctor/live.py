"""What `doctor` proves by use: that the conductor plans, that each worker answers, that the shipped models do both."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from conductor_cli.app.checks import Check
from conductor_cli.cli.doctor.model import too_large
from conductor_cli.core.errors import ConductorError, Failure
from conductor_cli.core.events import PlanRejected, StepPlanned
from conductor_cli.core.plan import SELF, Plan
from conductor_cli.core.pool import Limits
from conductor_cli.core.question import Question

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from conductor_cli.app.opened_conductor import OpenedConductor
    from conductor_cli.cli.workers.testing import WorkerTest
    from conductor_cli.config import ConfiguredWorker, Settings
    from conductor_cli.core.events import Event
    from conductor_cli.core.trace import Trace
    from conductor_cli.keys.key_store import KeyStore
    from conductor_cli.run import Run

Tell = Callable[[Check], None]
"""Takes a check as soon as there is one."""

QUESTION: Final = "Which is the capital of France, and how many letters has its name?"
"""What the conductor plans."""

REHEARSED: Final = ("spell the capital of FRANCE backwards", "SIRAP")
"""What the shipped models are asked, and the answer."""

PLANNING: Final = 300.0
"""Seconds for loading the conductor and planning: without a GPU a large one reads its prompt for over a minute."""

REHEARSING: Final = 60.0


async def live(settings: Settings, workers: Sequence[ConfiguredWorker], tell: Tell, *, plans: bool) -> None:
    """Have the conductor plan, if it `plans`, and every worker answer: those behind an API at once, then local ones."""
    from conductor_cli.app.key_status import stored_keys

    safe = stored_keys(settings)
    here = [item for item in workers if item.worker.kind == "llama"]
    away = [item for item in workers if item.worker.kind not in ("llama", SELF)]

    async def one(item: ConfiguredWorker) -> None:
        try:
            tell(await _worker(item, settings, safe))
        except ConductorError as error:
            name, code = f"worker {item.worker.name}", error.exit_code
            tell(Check(name=name, state="failed", found=error.message, hint=error.hint, code=code))

    async def mine() -> None:
        if plans:
            tell(await planning(settings))
        for item in here:  # each loads its weights: two at once may not fit the memory
            await one(item)

    async with asyncio.TaskGroup() as group:
        group.create_task(mine())
        for item in away:
            group.create_task(one(item))


async def planning(settings: Settings) -> Check:
    """A fixed question, planned and not run."""
    from conductor_cli.app.opened_conductor import open_planner

    if said := too_large(settings):
        hint = "a smaller one: conductor model list, then conductor model pull NAME --use"
        return Check(name="planning", state="warning", found=f"not tried: {said}", hint=hint)
    began = time.monotonic()
    try:
        async with asyncio.timeout(PLANNING):
            opened = await open_planner(settings)
            try:
                return await _planned(opened, began)
            finally:
                await opened.close()
    except ConductorError as error:
        return _broken(error.failure, time.monotonic() - began)
    except TimeoutError:
        return _broken(Failure(kind="conductor", message=f"no plan within {PLANNING:g} s"), PLANNING)


async def _planned(opened: OpenedConductor, began: float) -> Check:
    loaded = await _load(opened)
    # What a run may use is not what is to be proved; the limits of a day hold all the same.
    conductor = replace(opened.conductor, limits=Limits())
    run = conductor.run(Question(text=QUESTION), only_plan=True)
    events = [event async for event in _events(run)]
    seconds, trace = time.monotonic() - began, run.trace
    if trace.error is not None or not isinstance(trace.plan, Plan):
        return _broken(trace.error or Failure(kind="conductor", message="no plan came"), seconds)
    first = next((event.at for event in events if isinstance(event, StepPlanned)), 0.0)
    count = len(trace.plan.steps)
    found = f"planned {count} step{'s' if count > 1 else ''} in {seconds:.1f} s: {loaded}first step after {first:.1f} s"
    if any(isinstance(event, PlanRejected) for event in events):
        found = f"{found}; what it first wrote was no plan"
        hint = "try another profile: conductor config set conductor.profile prompted-json"
        return Check(name="planning", state="warning", found=found, hint=hint, seconds=seconds)
    return Check(name="planning", state="ok", found=found, seconds=seconds)


def _events(run: Run) -> AsyncGenerator[Event, None]:
    return cast("AsyncGenerator[Event, None]", aiter(run))


async def _load(opened: OpenedConductor) -> str:
    """Load a local model, and how long that took, in words. Raises `ModelError`."""
    from conductor_cli.models.llama import Llama

    local = [model for model in opened.loaded.models if isinstance(model, Llama)]
    began = time.monotonic()
    for model in local:
        await model.load()
    return f"loaded in {time.monotonic() - began:.1f} s, " if local else ""


def _broken(failure: Failure, seconds: float) -> Check:
    """No plan: the fault of the conductor model, unless a rule, a setting or a limit is in the way."""
    code = failure.exit_code if failure.kind in {"policy", "config", "limit"} else 5
    hint = failure.hint or "choose another: conductor model use NAME | FILE.gguf | URL | provider/model"
    return Check(name="planning", state="failed", found=failure.message, hint=hint, code=code, seconds=seconds)


def listed(settings: Settings, *, offline: bool) -> list[ConfiguredWorker]:
    """The workers that would be used: those on offer by the settings, or those at hand. Raises `ConductorError`."""
    from conductor_cli.app.worker_selection import discovered_workers, offered_workers

    if not settings.workers:
        return list(discovered_workers(settings, offline=offline))
    offered = {worker.name for worker in offered_workers(settings)}
    return [item for item in settings.workers if item.worker.name in offered]


def none_listed(*, offline: bool) -> Check:
    """That there is no worker but the conductor itself, as far as is known `offline`."""
    found = "none configured and none at hand: the conductor model answers too"
    if offline:
        found = "none configured and no key at hand; model servers of this machine were not asked"
    hint = "conductor setup, or: conductor workers add NAME --kind openai --model MODEL"
    return Check(name="workers", state="warning", found=found, hint=hint)


def unasked(item: ConfiguredWorker, settings: Settings, safe: KeyStore) -> Check:
    """A worker as far as can be told without asking it: whether its key is there."""
    from conductor_cli.app.key_status import key_state

    worker = item.worker
    key = key_state(worker, settings.environ, safe)
    name, found = f"worker {worker.name}", f"{worker.kind} {worker.model}".strip() + f", key {key}"
    if key == "missing":
        named = worker.options.get("key_env")
        hint = f"export {named}=…" if named else f"conductor keys set {worker.kind}, or set its variable"
        return Check(name=name, state="failed", found=found, hint=hint, code=4)
    return Check(name=name, state="ok", found=f"{found}, not asked")


async def _worker(item: ConfiguredWorker, settings: Settings, safe: KeyStore) -> Check:
    from conductor_cli.app.policy_filter import policy_objection
    from conductor_cli.cli.workers.testing import test_worker

    check = unasked(item, settings, safe)
    if check.code:
        return check
    if said := policy_objection(settings, item.worker):
        return replace(check, found=f"{check.found}: {said}")
    return _answered(check, await test_worker(item.worker, settings.environ, safe))


def _answered(check: Check, tested: WorkerTest) -> Check:
    said = check.found.removesuffix(", not asked")
    if tested.failure is None:
        return replace(check, found=f"{said}, answered in {tested.seconds:.2f} s", seconds=tested.seconds)
    failure = tested.failure
    hint = f"{failure.hint}\nor leave it out: conductor workers disable {tested.name}".strip()
    return replace(
        check, state="failed", found=f"{said}, {failure.message}", hint=hint, code=failure.exit_code,
        seconds=tested.seconds,
    )  # fmt: skip


async def rehearsal(settings: Settings) -> Check:
    """The whole path without a key, a network or a download: the shipped models plan and answer a question."""
    from conductor_cli.app.opened_conductor import open_conductor

    asked, right = REHEARSED
    began = time.monotonic()
    try:
        async with asyncio.timeout(REHEARSING):
            opened = await open_conductor(_shipped_only(settings), rehearsal=True)
            try:
                run = opened.conductor.run(Question(text=asked))
                async with aclosing(_events(run)) as events:
                    async for _ in events:
                        pass
            finally:
                await opened.close()
    except ConductorError as error:
        return _unrehearsed(error.failure, 0.0)
    except TimeoutError:
        message = f"no answer within {REHEARSING:g} s"
        slow = Failure(kind="conductor", message=message, hint="see: conductor doctor --offline")
        return _unrehearsed(slow, REHEARSING)
    return _rehearsed(run.trace, right, time.monotonic() - began)


def _unrehearsed(failure: Failure, seconds: float) -> Check:
    return Check(
        name="rehearsal", state="failed", found=failure.message, hint=failure.hint, code=failure.exit_code,
        seconds=seconds,
    )  # fmt: skip


def _shipped_only(settings: Settings) -> Settings:
    """The settings with limits and mode as the shipped models know them, and without rules: nothing leaves."""
    from conductor_cli.config.schema import SETTINGS

    fixed = {item.name: item.default for item in SETTINGS if item.name.startswith(("limits.", "conductor.", "policy."))}
    return replace(settings, values={**settings.values, **fixed})


def _rehearsed(trace: Trace, right: str, seconds: float) -> Check:
    if trace.error is not None:
        return _unrehearsed(trace.error, seconds)
    count = len(trace.steps)
    found = f"the shipped models planned {count} step{'s' if count > 1 else ''} and answered in {seconds:.1f} s"
    if trace.answer.strip() == right:
        return Check(name="rehearsal", state="ok", found=found, seconds=seconds)
    found = f"{found}, wrongly: {trace.answer.strip()!r:.60} in place of {right!r}"
    hint = "the path works; on another processor they may write another word"
    return Check(name="rehearsal", state="warning", found=found, hint=hint, seconds=seconds)

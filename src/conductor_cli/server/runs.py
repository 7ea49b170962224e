"""Runs for a server: each call opens a conductor over shared models, stores its run, and can be stopped.

The settings are read for each call, so that what the user changes holds from the next call on.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import anyio

from conductor_cli.app.attach import check_total
from conductor_cli.app.opened_conductor import LoadedModels, open_conductor
from conductor_cli.app.policy_filter import keep_policy_of
from conductor_cli.app.rehearsal import check_question, is_rehearsal_run
from conductor_cli.app.run_recorder import ALWAYS, RunRecorder, keeps_trace, record
from conductor_cli.app.traces import open_trace_store
from conductor_cli.config import Settings, load_settings
from conductor_cli.core.errors import LimitReached, PolicyError, UsageError
from conductor_cli.core.events import Event
from conductor_cli.core.plan import SELF, Plan
from conductor_cli.core.plan_file import PlanFile
from conductor_cli.core.pool import Limits
from conductor_cli.core.question import Question
from conductor_cli.core.trace import Trace
from conductor_cli.run import Conductor, Run
from conductor_cli.run.config import model_semaphores
from conductor_cli.server.arguments import narrowed, read_plan, read_question, replaced_settings, worker_names
from conductor_cli.server.results import Result
from conductor_cli.server.stored_runs import confidential, look_at_runs, restricts_texts
from conductor_cli.store.attachments import Attachments
from conductor_cli.store.trace_store import TraceStore

MOST_CALLS: Final = 16
"""Calls at once. More are refused, because each holds a question and the answers to it in memory."""

ShowEvent = Callable[[Event], None]
"""Called with each event, after it was stored. It must not wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """What a server was started with, which holds for each call.

    `flags` are settings by name, from the command line; `config` is the settings file; `workers` are the only ones.
    """

    flags: Mapping[str, Any]
    config: str | None = None
    workers: tuple[str, ...] = ()
    rehearsal: bool = False
    stores_traces: bool = True
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """One call, read and checked: what is asked, under which settings, by whom it may be answered."""

    settings: Settings
    store: TraceStore
    question: Question
    only: tuple[str, ...]
    plan: Plan | None = None
    resume: Trace | None = None
    plan_only: bool = False
    rehearsal: bool = False

    @property
    def plans(self) -> bool:
        """Whether the planner is needed: also for a given plan with a step on the planner itself."""
        given = self.plan or (self.resume.plan if self.resume is not None else None)
        if not isinstance(given, Plan) or self.plan_only:
            return True
        return self.settings.limits.recursion > 0 or any(step.worker == SELF for step in given.steps)


class Runs:
    """The runs of one server, over models that stay open. Close it when the last run has ended."""

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self.started: set[str] = set()
        """The ids of the runs that this server has begun."""
        self._loaded = LoadedModels()
        self._semaphores: dict[int, asyncio.Semaphore] = {}
        self._calls = 0

    async def close(self) -> None:
        """Close the models."""
        await self._loaded.close()

    @contextmanager
    def call(self) -> Iterator[None]:
        """A call, from its arguments to its result. Raises `LimitReached` where there are too many."""
        if self._calls >= MOST_CALLS:
            raise LimitReached(
                f"the server is busy: {MOST_CALLS} calls are running", hint="call again when one of them has ended"
            )
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1

    def settings(self, more: Mapping[str, Any] | None = None) -> Settings:
        """The settings as they are now. Raises `ConfigError`."""
        return load_settings(os.environ, {**self.options.flags, **(more or {})}, self.options.config)

    # Each kind of call. All raise `ConductorError`.

    async def ask(self, arguments: Mapping[str, Any], show: ShowEvent) -> Run:
        """Answer a question. Returns the run, which has ended."""
        return await self._perform(self._work(arguments), show)

    async def plan(self, arguments: Mapping[str, Any], show: ShowEvent) -> tuple[Run, Limits]:
        """Only plan a question. Returns also the limits that running the plan would have."""
        work = replace(self._work(arguments), plan_only=True)
        return await self._perform(work, show), work.settings.limits

    async def run(self, arguments: Mapping[str, Any], show: ShowEvent) -> Run:
        """Run a plan that the client gives, or what is missing of a stored run."""
        if ("plan" in arguments) == ("run" in arguments):
            raise UsageError("give either plan or run", hint="run is the id of a run that was planned or stopped")
        if "run" in arguments:
            return await self._perform(self._resumed_work(arguments), show)
        return await self._perform(self._work(arguments, read_plan(arguments["plan"])), show)

    def look(self, arguments: Mapping[str, Any]) -> Result:
        """A list of stored runs, one of them, or one step of it."""
        return look_at_runs(open_trace_store(), arguments, frozenset(self.started))

    # What they share

    def _work(self, arguments: Mapping[str, Any], planned: PlanFile | None = None) -> _Work:
        settings = narrowed(self.settings(replaced_settings(arguments)), arguments, planned)
        return _Work(
            settings=settings, store=TraceStore(settings.paths.traces),
            question=planned.question if planned else read_question(arguments),
            only=worker_names(arguments, self.options.workers), plan=planned.plan if planned else None,
            rehearsal=self.options.rehearsal,
        )  # fmt: skip

    def _resumed_work(self, arguments: Mapping[str, Any]) -> _Work:
        """The rest of a stored run, under its own policy and in its own mode."""
        store = open_trace_store()
        try:
            earlier = store.ended(arguments["run"])
        except UsageError as error:
            raise UsageError(error.message, hint="the tool trace lists the stored runs") from None
        if earlier.run not in self.started and restricts_texts(earlier.policy):
            raise confidential(earlier.run)
        if earlier.question.conversation is not None:  # whoever can make its tool calls goes on with it
            raise UsageError(f"run {earlier.run} is part of another client's conversation", hint="ask a new question")
        settings, _ = keep_policy_of(
            self.settings({**replaced_settings(arguments), "conductor.mode": earlier.mode}), earlier
        )
        return _Work(
            settings=narrowed(settings, arguments), store=store, question=earlier.question,
            only=worker_names(arguments, self.options.workers), resume=earlier,
            rehearsal=self.options.rehearsal or is_rehearsal_run(earlier),
        )  # fmt: skip

    async def _perform(self, work: _Work, show: ShowEvent) -> Run:
        """Run to the end. Where the caller is cancelled, the run is stopped, and its trace gets its end."""
        if work.settings["policy.approve"] and not work.plan_only:
            raise PolicyError(
                "policy.approve is on: each plan must be approved on a terminal, and a server has none",
                hint="plan here, and run the plan on a terminal: conductor ask --resume ID",
            )
        if work.rehearsal:
            check_question(work.question)
        check_total(work.question, work.settings)
        is_stored = keeps_trace(work.settings, wanted=self.options.stores_traces)
        async with self._opened(work) as conductor:
            run = conductor.run(work.question, plan=work.plan, resume=work.resume, plan_only=work.plan_only)
            self.started.add(run.id)
            recorder = RunRecorder(
                run, work.store if is_stored else None, required=work.settings["traces.keep"] == ALWAYS
            )
            await _read_to_end(run, recorder, show)
            if recorder.error is not None:
                raise recorder.error
        return run

    @asynccontextmanager
    async def _opened(self, work: _Work) -> AsyncIterator[Conductor]:
        stored = work.resume.pool.names if work.resume is not None else ()
        opened = await open_conductor(
            work.settings, only=work.only, stored=stored, planning=work.plans, seed=self.options.seed,
            rehearsal=work.rehearsal, loaded=self._loaded, attachments=Attachments(work.settings.paths.attachments),
        )  # fmt: skip
        conductor = opened.conductor
        if work.plan_only:  # the review is appended when the plan is run
            conductor = replace(conductor, limits=replace(conductor.limits, recursion=0))
        try:
            yield replace(conductor, shared_semaphores=self._shared_semaphores(conductor))
        finally:
            opened.leave()

    def _shared_semaphores(self, conductor: Conductor) -> Mapping[int, asyncio.Semaphore]:
        """Turns on the models, which all runs of this server share. A model stays open, so its `id` stays its own."""
        for key, semaphore in model_semaphores(conductor.pool, conductor.workers).items():
            self._semaphores.setdefault(key, semaphore)
        if conductor.constrained:
            # An in-process model can do only one thing at a time.
            self._semaphores.setdefault(id(conductor.model), asyncio.Semaphore(1))
        return self._semaphores


async def _read_to_end(run: Run, recorder: RunRecorder, show: ShowEvent) -> None:
    """Read a run to its end. Cancelled, it stops the run, and waits until the end is stored."""
    wanted = True

    async def read() -> None:
        async with aclosing(record(run, recorder)) as events:
            async for event in events:
                if wanted:
                    show(event)

    reading = asyncio.create_task(read())
    try:
        await asyncio.shield(reading)
    except asyncio.CancelledError:
        wanted = False
        run.stop("cancelled")
        with anyio.CancelScope(shield=True):
            await reading
        raise

"""Runs for a server: each call opens a conductor over shared models, stores its run, and can be stopped.

The settings are read for each call, so that what the user changes holds from the next call on.

Which stored runs another program may see. Pure.

Whoever asks a server may hand on what it reads, to anywhere. A run whose rules kept its texts on this machine, or from
some providers, is therefore shown only to who asked for it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import anyio

from conductor_cli.app.attach import check_total
from conductor_cli.app.conductor_factory import LoadedModels, open_conductor
from conductor_cli.app.rehearsal import check_question
from conductor_cli.app.run_session import ALWAYS, RunRecorder, keeps_trace, record
from conductor_cli.config import Settings
from conductor_cli.config.watched import WatchedSettings
from conductor_cli.core.errors import PolicyError
from conductor_cli.core.events import Event, RunStarted
from conductor_cli.core.plan import SELF, Plan
from conductor_cli.core.policy import Policy
from conductor_cli.core.pool import DayLimits, Worker
from conductor_cli.core.question import Question
from conductor_cli.core.trace import Trace
from conductor_cli.run import Conductor, Run
from conductor_cli.run.circuits import CircuitReport
from conductor_cli.run.config import model_semaphores
from conductor_cli.server.conversation import CallIds, load_secret
from conductor_cli.server.options import ServerOptions
from conductor_cli.state.attachments import Attachments
from conductor_cli.state.spending import USER, DailySpend, Spender, checkpoint
from conductor_cli.state.trace_store import TraceStore

log = logging.getLogger(__name__)

CHECKPOINT_RUNS: Final = 200
"""After how many runs the log of what was spent, some 100 KB by then, is moved into its file."""

MOST_STARTED: Final = 10_000
"""Ids of runs that a server remembers as its own."""

ShowEvent = Callable[[Event], None]
"""Called with each event, after it was stored. It must not wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A call, read and checked: what is asked, under which settings, by which workers (`only`; empty for all).

    `origin` is who asks, as the trace says it, and `spender` who spends. With `plan` nothing is planned, with `resume`
    only what is missing of that run is done, with `plan_only` only that. `id` is the id of the run, where it was
    announced already. `attachments` has the bytes of the question's files.
    `notices` are shown at the start. `streams`: the answer is shown as it comes, and cannot be taken back. `room` is as
    in `RunConfig`.
    """

    settings: Settings
    store: TraceStore
    question: Question
    only: tuple[str, ...]
    origin: str = ""
    spender: Spender = USER
    plan: Plan | None = None
    resume: Trace | None = None
    plan_only: bool = False
    rehearsal: bool = False
    id: str = ""
    attachments: Attachments | None = None
    notices: tuple[str, ...] = ()
    streams: bool = False
    room: asyncio.Event | None = None

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
        self.started: dict[str, None] = {}
        """The ids of the newest runs that this server has begun, the oldest first."""
        self._performed = 0
        self._settings = WatchedSettings(os.environ, options.config)
        self._loaded = LoadedModels()
        self._spends: dict[tuple[Spender, Path, DayLimits, str], DailySpend] = {}
        self._semaphores: dict[int, asyncio.Semaphore] = {}

    @cached_property
    def call_ids(self) -> CallIds:
        """What signs the ids of calls that clients make."""
        try:
            return CallIds(load_secret(self.settings().paths.state))
        except OSError as error:
            log.warning("calls of tools go on only until this server ends: their secret cannot be kept: %s", error)
            return CallIds(secrets.token_bytes(32))

    async def close(self) -> None:
        """Close the models, and the record of what was spent."""
        await self._loaded.close()
        spends, self._spends = self._spends, {}
        for spend in spends.values():
            spend.close()

    def circuits(self) -> list[CircuitReport]:
        """Which workers and providers have failed, and are skipped for a time."""
        return self._loaded.circuits.reports()

    def settings(self, more: Mapping[str, Any] | None = None) -> Settings:
        """The settings as they are now. Raises `ConfigError`."""
        return self._settings.load({**self.options.flags, **(more or {})})

    def stores(self, work: Work) -> bool:
        """Whether a file will have the trace of this work. Raises `ConfigError` where one must and may not."""
        return keeps_trace(work.settings, wanted=self.options.stores_traces)

    async def perform(self, work: Work, show: ShowEvent) -> Run:
        """Run to the end; returns the run. Where the caller is cancelled, it is stopped, and its trace gets its end.

        Raises `ConductorError` where the run cannot be begun, or its trace, which is required, is incomplete.
        """
        if work.settings["policy.approve"] and not work.plan_only:
            raise PolicyError(
                "policy.approve is on: each plan must be approved on a terminal, and a server has none",
                hint="plan here, and run the plan on a terminal: conductor ask --resume ID",
            )
        if work.rehearsal:
            check_question(work.question)
        check_total(work.question, work.settings)
        is_stored = self.stores(work)
        async with self._opened(work) as conductor:
            run = conductor.run(work.question, plan=work.plan, resume=work.resume, plan_only=work.plan_only, id=work.id)
            self._remember(run.id)
            recorder = RunRecorder(
                run, work.store if is_stored else None, required=work.settings["traces.keep"] == ALWAYS
            )
            await _read_to_end(run, recorder, show)
            self._checkpoint_spending(work.settings.paths.spending)
            if recorder.error is not None:
                raise recorder.error
        return run

    def _remember(self, run: str) -> None:
        self.started[run] = None
        if len(self.started) > MOST_STARTED:
            del self.started[next(iter(self.started))]

    def _checkpoint_spending(self, directory: Path) -> None:
        """Now and then, on a thread: it waits for the disk, and the streams must not."""
        self._performed += 1
        if self._performed % CHECKPOINT_RUNS == 0:
            asyncio.get_running_loop().run_in_executor(None, checkpoint, directory)

    @asynccontextmanager
    async def _opened(self, work: Work) -> AsyncIterator[Conductor]:
        stored = work.resume.pool.names if work.resume is not None else ()
        opened = await open_conductor(
            work.settings, only=work.only, stored=stored, planning=work.plans, seed=self.options.seed,
            rehearsal=work.rehearsal, loaded=self._loaded, streams=work.streams,
            spend=partial(self._shared_spend, work.spender),
            attachments=work.attachments or Attachments(work.settings.paths.attachments),
            learns=True,
        )  # fmt: skip
        conductor = replace(opened.conductor, notices=(*opened.conductor.notices, *work.notices))
        if work.plan_only:  # the review is appended when the plan is run
            conductor = replace(conductor, limits=replace(conductor.limits, recursion=0))
        conductor = replace(conductor, streams_nested=work.streams, room=work.room)
        yield replace(conductor, shared_semaphores=self._shared_semaphores(conductor), origin=work.origin)

    def _shared_spend(
        self, client: Spender, directory: Path, limits: DayLimits, /, *, planner: Worker | None
    ) -> DailySpend:
        """The record of what is spent, open for all runs under the same limits: to open and close it takes long."""
        key = client, directory, limits, repr(planner)
        if key not in self._spends:
            self._spends[key] = spend = DailySpend(directory, limits, planner=planner, client=client)
            spend.checkpoints = False
        return self._spends[key]

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


ANYONE: Final = "serve"
"""The origin of a run that was asked of a server without keys; see `origins.py`."""


def may_see(origin: str, run: RunStarted | Trace) -> bool:
    """Whether a run exists for a client of this origin: its own ones do. Without keys it is the owner, who has all."""
    return origin in (ANYONE, run.origin)


def may_read(origin: str, run: RunStarted | Trace) -> bool:
    """Whether the texts of a run that `may_see` are shown, too."""
    return run.origin == origin or not restricts_texts(run.policy)


def restricts_texts(policy: Policy) -> bool:
    """Whether a policy says who may read a question or its files."""
    return policy.local_only or bool(policy.files_only) or bool(policy.allow) or bool(policy.deny)


def confidential(run: str) -> PolicyError:
    """The error for a run that a client may not see."""
    return PolicyError(
        f"run {run} is not shown to other programs: its rules keep its texts from some recipients",
        hint=f"look at it on a terminal: conductor trace show {run}",
    )

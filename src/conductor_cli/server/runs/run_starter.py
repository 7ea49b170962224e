"""Starts runs for a server.

Each call opens a conductor over shared models, stores its run, and can be stopped.

The settings are read for each call, so that what the user changes holds from the next call on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from conductor_cli.app.driver import Job, begin_run, check_job, open_store, opens_planner, perform
from conductor_cli.app.opening import LoadedModels, OpeningRequest, open_orchestra
from conductor_cli.config.settings import Settings
from conductor_cli.config.watched import WatchedSettings
from conductor_cli.core.errors import PolicyError
from conductor_cli.core.events import Event, StepDelta
from conductor_cli.core.pool import DayLimits, Worker
from conductor_cli.core.trace import Trace
from conductor_cli.run import Orchestra, Run
from conductor_cli.server.options import ServerOptions
from conductor_cli.server.runs.conversation import CallIds
from conductor_cli.state.interfaces import (
    USER,
    AttachmentStore,
    Spender,
    Spending,
    Traces,
)
from conductor_cli.state.opening import State, open_state

if TYPE_CHECKING:
    from conductor_cli.state.postgres.records import Leases

log = logging.getLogger(__name__)

MAX_STARTED: Final = 10_000  # Ids of runs that a server remembers as its own

ShowEvent = Callable[[Event, Trace], None]
"""Called with each event and the trace after it, once it was stored. It must not wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedJob(Job):
    """A job for a client, with what its orchestra is opened with.

    `only` names the workers, empty for all. `attachments` has the bytes of the question's files.
    `spender` is who spends. `has_approver` says that the client has a person decide about plans.
    """

    only: tuple[str, ...] = ()
    attachments: AttachmentStore | None = None
    spender: Spender = USER
    has_approver: bool = False


class RunStarter:
    """The runs of one server, over models that stay open. Close it when the last run has ended."""

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        # The ids of the newest runs that this server has begun, the oldest first
        self.started: dict[str, None] = {}
        self._performed = 0
        self._settings = WatchedSettings(os.environ, options.config)
        self.loaded = LoadedModels()
        self._spends: dict[tuple[Spender, str, DayLimits, str], Spending] = {}

    @cached_property
    def call_ids(self) -> CallIds:
        """What signs the ids of calls that clients make."""
        try:
            return CallIds(open_state(self.settings().paths).secret())
        except OSError as error:
            log.warning(
                "tool-call IDs expire on restart: the signing key could not be saved: %s", error
            )
            return CallIds(secrets.token_bytes(32))

    async def load_call_ids(self) -> None:
        """Read on a thread what signs them, where it was not read yet.

        It may be in a database, which takes a while.
        """
        if "call_ids" not in vars(self):
            await asyncio.to_thread(lambda: self.call_ids)

    async def close(self) -> None:
        await self.loaded.close()
        spends = self._spends
        self._spends = {}
        for spend in spends.values():
            spend.close()

    @property
    def leases(self) -> Leases | None:
        """Which server has a run; None where no other one goes on with the runs of this one."""
        return open_state(self.settings().paths).leases

    def settings(
        self, overrides: Mapping[str, Any] | None = None, *, looks: bool = True
    ) -> Settings:
        """Return the settings as they are now, or without `looks` as at the last call.

        Raises `ConfigError`.
        """
        settings = self._settings.load({**self.options.flags, **(overrides or {})}, looks=looks)
        if self.options.rehearsal:
            return replace(settings, rehearsal=True)
        return settings

    def store_of(self, settings: Settings) -> Traces | None:
        """Return where a run is stored; None where it is not.

        Raises `ConfigError` where it must be, and may not.
        """
        return open_store(settings, wanted=self.options.stores_traces)

    async def perform(
        self,
        job: ServedJob,
        show: ShowEvent,
        on_begin: Callable[[Run], None] = lambda _: None,
        show_piece: Callable[[StepDelta], None] | None = None,
        keeps_up: asyncio.Event | None = None,
    ) -> Run:
        """Run to the end; returns the run, which `on_begin` is given before its first event.

        Pieces of text may come to `show_piece` instead of `show`, which costs less. `keeps_up` is
        set while the workers are to be read. Where the caller is cancelled, the run is stopped, and
        its trace gets its end.

        Raises `ConductorError` where the run cannot be begun, or its trace, which is required, is
        incomplete.
        """
        _require_approver(job)
        check_job(job)  # before anything is opened
        orchestra = await self._open(job)
        if job.settings.paths.database and orchestra.daily_spend is not None:
            # Asked on a thread; `begin_run` then knows the answer. A database that is away must
            # stop nobody else.
            await asyncio.to_thread(orchestra.daily_spend.check)
        run = begin_run(job, orchestra, keeps_up)
        on_begin(run)
        self.started[run.id] = None
        if len(self.started) > MAX_STARTED:
            del self.started[next(iter(self.started))]
        await _read_to_end(run, job, show, show_piece)
        self._performed += 1
        if self._performed % 200 == 0:  # the log of what was spent has some 100 KB by then
            asyncio.get_running_loop().run_in_executor(
                None, open_state(job.settings.paths).tidy_spending
            )
        return run

    async def _open(self, job: ServedJob) -> Orchestra:
        state = open_state(job.settings.paths)
        if job.settings.paths.database:  # read on a thread; what is asked for below is known then
            await asyncio.to_thread(state.ratings.read)
        earlier = job.spec.resume
        stored = earlier.pool.names if earlier is not None else ()
        request = OpeningRequest(
            settings=job.settings,
            only=job.only,
            stored=stored,
            planning=await opens_planner(job, job.only),
            seed=self.options.seed,
            loaded=self.loaded,
            spend=partial(self._shared_spend, state, job.spender),
            attachments=job.attachments or state.attachments(),
            shared_by=None if earlier is not None or job.spec.question.attachments else job.spender,
            learning=True,
        )
        opened = await open_orchestra(request)
        return opened.orchestra

    def _shared_spend(
        self, state: State, spender: Spender, limits: DayLimits, /, *, planner: Worker | None
    ) -> Spending:
        """Return the record of what is spent, open for all runs under the same limits.

        To open it takes long.
        """
        key = spender, state.place, limits, repr(planner)
        if key not in self._spends:
            self._spends[key] = state.spending(limits, planner=planner, client=spender, waits=False)
        return self._spends[key]


def _require_approver(job: ServedJob) -> None:
    """Raise `PolicyError` where plans must be approved and nobody is there who could."""
    needs_approval = job.settings["policy.approve"] and not job.spec.plan_only
    if needs_approval and not job.has_approver:
        message = (
            "policy.approve is on: each plan must be approved on a terminal, and a server has none"
        )
        hint = "plan here, and run the plan on a terminal: conductor ask --resume ID"
        raise PolicyError(message, hint=hint)


async def _read_to_end(
    run: Run, job: ServedJob, show: ShowEvent, show_piece: Callable[[StepDelta], None] | None
) -> None:
    """Show the events of a run to its end.

    Where this is cancelled, the run is stopped, and its end is waited for.
    """
    wanted = True

    async def read() -> None:
        async with aclosing(perform(run, job, show_piece)) as events:
            async for event, trace in events:
                if wanted:
                    show(event, trace)

    reading = asyncio.create_task(read())
    try:
        await asyncio.shield(reading)
    except asyncio.CancelledError:
        wanted = False
        run.read_pieces_at_once(None)
        run.stop("cancelled")
        with anyio.CancelScope(shield=True):
            await reading
        raise

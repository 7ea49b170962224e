"""The Python API: open a conductor, ask, read the events of a run, replay a stored run.

Synchronous and asynchronous.

    import conductor_cli

    with conductor_cli.open() as conductor:
        run = conductor.ask("Which of these two proofs is wrong?")
        for event in run:
            print(event)
        print(run.answer)

It uses the same settings, workers, policy and trace store as the command line, and prints nothing.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack

from anyio.from_thread import BlockingPortal, start_blocking_portal

from conductor_cli.app.attach import Attacher
from conductor_cli.app.driver import (
    PLAN_DROPPED,
    Job,
    begin_run,
    open_store,
    opens_planner,
    perform,
)
from conductor_cli.app.opening import OpenedOrchestra, OpeningRequest, open_orchestra
from conductor_cli.config.schema import find_setting
from conductor_cli.config.settings import Settings, load_settings
from conductor_cli.core.errors import ConductorError, Failure, PolicyError, UsageError
from conductor_cli.core.events import Event, Mode, PlanOffered
from conductor_cli.core.plan import Decision, Plan
from conductor_cli.core.policy import PoolPolicy
from conductor_cli.core.pool import Limits, Pool, Timeouts
from conductor_cli.core.profile import PROMPTED, Profile, WorkerProfile
from conductor_cli.core.question import File, Question
from conductor_cli.core.tools import RunTools
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import Price, Usage
from conductor_cli.models.base import Model
from conductor_cli.programs.schema_check import quick_schema_fault
from conductor_cli.run import Orchestra, Run, RunSpec, Team, start_run
from conductor_cli.state.interfaces import AttachmentStore
from conductor_cli.state.opening import open_state
from conductor_cli.views.run_text import describe_notice

ApprovePlan = Callable[[Plan], bool]
"""Called with each plan before any worker is called; false drops the plan and ends the run."""


class OpenOptions(TypedDict, total=False):
    """The arguments of `open` and `open_async`, all of which may be left out."""

    workers: Sequence[str]  # The only workers to use, by name
    demo: bool  # Use the demo models that ship with this package
    rehearsal: bool  # The earlier name of `demo`
    seed: int | None  # Makes sampling repeatable
    store: bool  # False: no traces are stored
    approve: ApprovePlan | None  # Called with each plan
    settings: Mapping[str, Any]
    """Values by the names that `conductor config show` lists, as `{"limits.cost": "0.10"}`; they
    override files.
    """
    config: str | Path | None  # The settings file to use instead of `config.toml`


class AskOptions(TypedDict, total=False):
    """The arguments of `ask` besides the question, all of which may be left out."""

    files: Sequence[str | Path]  # Files to attach: text in UTF-8, images, PDFs
    system: str  # System text for every worker
    schema: Mapping[str, Any] | None  # A JSON Schema for the answer


class RunError(ConductorError):
    """A run ended without a whole answer. `failure` says why, as a value."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message, hint=failure.hint, reason=failure.reason)
        self._failure = failure

    @property
    def failure(self) -> Failure:
        return self._failure


RunFailed = RunError
"""Its name in `conductor_cli`; the event that ends a failed run is called so, too."""


class _RunProperties:
    """What synchronous and asynchronous runs say of themselves."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def id(self) -> str:
        """The id of the run, under which its trace is stored."""
        return self._run.id

    @property
    def trace(self) -> Trace:
        """Everything known of the run so far: question, plan, steps, answer, usage."""
        return self._run.trace

    @property
    def error(self) -> Failure | None:
        """Why the run failed, None where it has not."""
        return self._run.trace.error

    @property
    def usage(self) -> Usage:
        """Calls, tokens, US dollars and seconds, of planning and of all steps so far."""
        return self._run.trace.usage

    @property
    def notices(self) -> list[str]:
        """What a reader should know about how the answer came about.

        Notices, and what was recovered, a line each.
        """
        return [describe_notice(notice) for notice in self._run.trace.all_notices()]

    def raise_for_error(self) -> None:
        """Raise `RunFailed` where the run has ended with an error."""
        if self.error is not None:
            raise RunError(self.error)


class AsyncRun(_RunProperties):
    """One question being answered.

    Iterate over it once for its events; it begins with the iteration.
    """

    def __init__(self, run: Run, job: Job, approve: ApprovePlan | None) -> None:
        super().__init__(run)
        self._job = job
        self._approve = approve
        self._begun = False

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Yield the events as `docs/events.md` lists them, each after it was stored.

        Where `traces.keep` is always, raises `ConfigError` if the trace cannot be begun, and
        `ConductorError` at the end if it could not be stored whole. Raises `RuntimeError` the
        second time. What goes wrong in the run is no exception here: it is in the events, and in
        `error`.
        """
        if self._begun:
            raise RuntimeError("a run can be iterated over once")
        self._begun = True
        async with aclosing(perform(self._run, self._job)) as events:
            async for event, trace in events:
                if isinstance(event, PlanOffered) and self._approve is not None:
                    if isinstance(trace.plan, Plan) and self._approve(trace.plan):
                        self._run.decide(Decision())
                    else:
                        self._run.stop(
                            "cancelled", failure=Failure(kind="cancelled", message=PLAN_DROPPED)
                        )
                yield event

    async def wait(self) -> str:
        """Run to the end and return the answer.

        Raises `RunFailed` where there is no whole answer.
        """
        if not self._begun:
            async for _ in self:
                pass
        self.raise_for_error()
        return self.answer

    def stop(self) -> None:
        """End the run now and keep what is finished. Call it on the event loop's thread."""
        self._run.stop("cancelled")

    @property
    def answer(self) -> str:
        """The answer, or the part of it that there is; empty before the last step has begun."""
        return self._run.trace.answer


def _is_demo(options: OpenOptions) -> bool:
    """Return whether the demo models are used."""
    if "rehearsal" in options:
        warnings.warn(
            "rehearsal is called demo now; the earlier name works on",
            DeprecationWarning,
            stacklevel=4,
        )
    return options.get("demo", False) or options.get("rehearsal", False)


class AsyncConductor:
    """A conductor with its models open, as an asynchronous context manager.

    Made by `open_async`.
    """

    def __init__(self, **options: Unpack[OpenOptions]) -> None:
        """Read the settings. Raises `ConfigError` or `PolicyError`."""
        flags = {}
        for name, value in options.get("settings", {}).items():
            flags[name] = find_setting(name).check(value)
        settings = _load_settings(options.get("config"), flags)
        self.settings = replace(settings, rehearsal=_is_demo(options))
        self._approve = options.get("approve")
        if self.settings["policy.approve"] and self._approve is None:
            raise PolicyError(
                "policy.approve is on, so plans need approval", hint="pass approve=, a function"
            )
        self._workers = tuple(options.get("workers", ()))
        self._seed = options.get("seed")
        self._store = open_store(self.settings, wanted=options.get("store", True))
        self._attachments = open_state(self.settings.paths).attachments()
        self._opened: OpenedOrchestra | None = None

    async def __aenter__(self) -> Self:
        """Open the models.

        Raises `ConductorUnusable`, `KeyMissing`, `ConfigError`, `PolicyError` or `UsageError`.
        """
        job = Job(spec=RunSpec(question=Question(text="")), settings=self.settings)
        request = OpeningRequest(
            settings=self.settings,
            only=self._workers,
            planning=await opens_planner(job, self._workers),
            seed=self._seed,
            attachments=self._attachments,
            learning=True,
        )
        self._opened = await open_orchestra(request)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._opened is not None:
            await self._opened.close()

    def ask(self, question: str | Question, **options: Unpack[AskOptions]) -> AsyncRun:
        """Ask a question. Nothing happens before the run is iterated over.

        A `Question` has all options itself, and also the earlier turns of a conversation. Raises
        `PolicyError`, `ConfigError`, or `UsageError`, also for a file that cannot be attached.
        """
        if self._opened is None:
            raise RuntimeError("the conductor is not open: use it in a with block")
        notices: list[str] = []
        if isinstance(question, str):
            question = self._make_question(question, options, notices.append)
        spec = RunSpec(
            question=question,
            approves=self._approve is not None,
            notices=tuple(notices),
            streams_answer=True,
        )
        job = Job(spec=spec, settings=self.settings, store=self._store)
        return AsyncRun(begin_run(job, self._opened.orchestra), job, self._approve)

    def _make_question(
        self, text: str, options: AskOptions, notice: Callable[[str], None]
    ) -> Question:
        """Return a question with its files. What a user should know of them goes to `notice`."""
        attacher = Attacher(self._attachments, self.settings, notice)
        files: list[File] = []
        for path in options.get("files", ()):
            files += attacher.attach_all(str(path))
        schema = options.get("schema")
        if schema is not None:
            schema = dict(schema)
            if fault := quick_schema_fault(schema):
                raise UsageError(f"the schema cannot be used: {fault}")
        return Question(
            text=text, files=tuple(files), system=options.get("system", ""), schema=schema
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConductor:
    """A conductor over models that are open already, without settings and without a store.

    With `stored`, whoever reads a run stores its start, and no model is called before that.
    """

    model: Model | None  # The planner; None where every run brings its plan
    pool: Pool
    workers: Mapping[str, Model]  # A model for each name in `pool`
    name: str = "conductor"  # The planner's
    price: Price | None = None  # The planner's; None where it is not known
    constrained: bool = False  # The planner's backend obeys grammars
    profile: Profile = PROMPTED
    worker_profile: WorkerProfile = WorkerProfile()
    pool_policy: PoolPolicy = PoolPolicy()
    mode: Mode = "auto"
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()
    seed: int | None = None
    notices: tuple[str, ...] = ()  # Shown at the start of each run
    tools: RunTools | None = None  # Those that workers may call
    attachments: AttachmentStore | None = None  # It has the bytes of images and documents
    stored: bool = False

    def run(self, question: Question, *, plan: Plan | None = None) -> Run:
        """Start a question, with `plan` without planning.

        Iterate over the run for each event with the trace after it.

        Raises `PolicyError`, `ConfigError`, `ConductorUnusable` or `UsageError` before anything is
        called.
        """
        team = Team(
            model=self.model,
            pool=self.pool,
            workers=self.workers,
            name=self.name,
            price=self.price,
            constrained=self.constrained,
            profile=self.profile,
            worker_profile=self.worker_profile,
            pool_policy=self.pool_policy,
            mode=self.mode,
            notices=self.notices,
        )
        orchestra = Orchestra(
            team=team,
            limits=self.limits,
            timeouts=self.timeouts,
            seed=self.seed,
            tools=self.tools,
            attachments=self.attachments,
        )
        return start_run(orchestra, RunSpec(question=question, plan=plan, stored=self.stored))


Conductor = ModelConductor
"""Its name in `conductor_cli`."""


class SyncRun(_RunProperties):
    """One question being answered.

    Iterate over it for its events, or read `answer`, which runs it to the end.
    """

    def __init__(self, run: AsyncRun, portal: BlockingPortal) -> None:
        super().__init__(run._run)  # noqa: SLF001 - the same run
        self._events = run
        self._portal = portal
        self._reading: Future[None] | None = None

    def __iter__(self) -> Iterator[Event]:
        """Yield the events, each after it was stored. Leaving the loop early stops the run.

        Raises as `AsyncRun.__aiter__` does.
        """
        # The loop's thread puts events in, this thread takes them out; None marks the end, also
        # after an exception.
        events: SimpleQueue[Event | None] = SimpleQueue()

        async def read() -> None:
            try:
                async for event in self._events:
                    events.put(event)
            finally:
                events.put(None)

        self._reading = self._portal.start_task_soon(read)
        try:
            while (event := events.get()) is not None:
                yield event
        finally:
            # After the end this does nothing.
            self.stop()
            # Raises what the iteration raised, and waits until the trace is closed.
            self._reading.result()

    def stop(self) -> None:
        """End the run now and keep what is finished. Call it from any thread."""
        self._portal.call(self._events.stop)

    @property
    def answer(self) -> str:
        """The answer; empty or partial where `error` is not None.

        Runs the question to its end first, if need be.
        """
        if self._reading is None:
            for _ in self:
                pass
        return self._run.trace.answer


class SyncConductor:
    """A conductor with its models open, as a context manager. Made by `open`.

    Its event loop has its own thread.
    """

    def __init__(self, conductor: AsyncConductor) -> None:
        self._conductor = conductor
        self._opened = ExitStack()
        self._portal: BlockingPortal | None = None

    @property
    def settings(self) -> Settings:
        """The settings that it was opened with."""
        return self._conductor.settings

    def __enter__(self) -> Self:
        """Open the models. Raises as `AsyncConductor.__aenter__` does."""
        with ExitStack() as opened:
            self._portal = opened.enter_context(start_blocking_portal())
            opened.enter_context(self._portal.wrap_async_context_manager(self._conductor))
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._opened.__exit__(kind, error, traceback)

    def ask(self, question: str | Question, **options: Unpack[AskOptions]) -> SyncRun:
        """Ask a question, as `AsyncConductor.ask` does."""
        if self._portal is None:
            raise RuntimeError("the conductor is not open: use it in a with block")
        # On the loop's thread, where the run will be driven too.
        return SyncRun(
            self._portal.call(lambda: self._conductor.ask(question, **options)), self._portal
        )


open_async = AsyncConductor


def open(**options: Unpack[OpenOptions]) -> SyncConductor:  # noqa: A001 - as `conductor_cli.open`
    """Return a conductor to use in `with`. Raises `ConfigError` or `PolicyError`."""
    return SyncConductor(AsyncConductor(**options))


def replay(run: str = "last", *, config: str | Path | None = None) -> Iterator[Event]:
    """Return the events of a stored run: by its id, the beginning of one, `last`, or `last~2`.

    Raises `UsageError`.
    """
    store = open_state(_load_settings(config, {}).paths).traces
    return store.events(store.find(run))


def load_trace(run: str = "last", *, config: str | Path | None = None) -> Trace:
    """Return a stored run as one value: question, plan, steps, answer, usage.

    Raises `UsageError`.
    """
    store = open_state(_load_settings(config, {}).paths).traces
    return store.trace(store.find(run))


def _load_settings(config: str | Path | None, flags: Mapping[str, Any]) -> Settings:
    path = None
    if config is not None:
        path = str(config)
    return load_settings(os.environ, flags, path)

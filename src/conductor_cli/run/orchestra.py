"""The conductor, which is all that a run is given, and what a run shares with the runs nested in
it.

It is given ready models; it never opens one and knows no adapter. `runner.start_run` asks it a
question.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from typing import Final, Literal

from conductor_cli.core.chat import Request
from conductor_cli.core.errors import (
    LIMITS_OF_SEVERAL,
    ConductorUnusable,
    Failure,
    LimitReached,
    PolicyError,
)
from conductor_cli.core.events import Mode
from conductor_cli.core.ledger import NO_DAY_LIMITS, DayBudget, Ledger, Reservation
from conductor_cli.core.plan import PlanRules
from conductor_cli.core.plan_formats import PlanFormatContext
from conductor_cli.core.policy import (
    COST_LIMIT,
    DAY_COST_LIMIT,
    PoolPolicy,
    check_limits,
    check_pool,
    plan_rules,
)
from conductor_cli.core.pool import Limits, Pool, Timeouts, Worker
from conductor_cli.core.profile import PROMPTED, Profile, WorkerProfile
from conductor_cli.core.prompts import plan_format_context, planner_request
from conductor_cli.core.question import Question
from conductor_cli.core.tools import CALLS_PER_RUN, OfferedTool, RunTools, ToolBox
from conductor_cli.core.usage import NO_USAGE, Price, Usage
from conductor_cli.models.base import Model
from conductor_cli.run.budget import RAISE_IT, CallBudget
from conductor_cli.run.circuits import BreakerRules, Circuits
from conductor_cli.state.interfaces import AttachmentStore, Spending

ToolVerdict = Literal["once", "always", "no"]
"""What the user says of a call: yes, yes for every call of this tool in this run, no."""
NOBODY: Final = (
    "not called: it may change something, and nobody can be asked to allow it. Answer without it."
)


class ToolApprovals:
    """One for each run that a user starts. `asks`: somebody can be asked."""

    def __init__(self, *, asks: bool) -> None:
        self._asks = asks
        self._always: set[str] = set()
        self._turn = asyncio.Lock()
        self._waiting: asyncio.Future[ToolVerdict] | None = None

    async def objection(self, tool: OfferedTool, ask: Callable[[], Awaitable[ToolVerdict]]) -> str:
        """Return why a call must not be made, for the worker to read; empty where it may.

        `ask` asks the user.
        """
        # A tool whose description or parameters change later is another one.
        what = [tool.server, tool.own_name, tool.tool.description, tool.tool.parameters]
        key = hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()
        if tool.allowed or tool.read_only or key in self._always:
            return ""
        if not self._asks:
            return NOBODY
        async with self._turn:  # one question at a time
            verdict = "always" if key in self._always else await ask()
        if verdict == "always":
            self._always.add(key)
        refused = (
            "not called: the user does not allow it. Do not ask for it again; answer without it."
        )
        return refused if verdict == "no" else ""

    def verdict(self) -> asyncio.Future[ToolVerdict]:
        self._waiting = asyncio.get_running_loop().create_future()
        return self._waiting

    def decide(self, verdict: ToolVerdict) -> None:
        """The user has answered. Where nothing is asked, this does nothing."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(verdict)


_NO_WAIT: Final[AbstractAsyncContextManager[None]] = nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Orchestra:
    """Everything that runs need, none of it opened here.

    A model that plans, workers, and how they may be used.
    """

    model: Model | None  # The planner; None where every run brings its plan
    pool: Pool
    workers: Mapping[str, Model]  # A model for each name in `pool`
    name: str = "conductor"  # The planner's, with its file hash
    planner_worker: str = ""  # The worker that is the same model as the planner
    recipient: str = ""  # Who receives what the planner is sent
    key_hint: str = ""  # What to do where the planner's key is refused
    pool_policy: PoolPolicy = PoolPolicy()  # Who may be asked, and shown what
    profile: Profile = PROMPTED
    worker_profile: WorkerProfile = WorkerProfile()
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()
    mode: Mode = "auto"
    constrained: bool = False  # The planner's backend obeys grammars
    price: Price | None = None  # The planner's; None where it is not known
    streams_answer: bool = False
    """The text of the answering step is shown as it comes, so that step is not tried again once it
    has written.
    """
    streams_nested: bool = False  # So is that of a nested run whose answer is the run's
    seed: int | None = None  # It goes with every call
    # Workers that cannot be asked, and why
    unavailable: Mapping[str, Failure] = field(default_factory=dict)
    notices: tuple[str, ...] = ()  # Shown at the start of the run
    shared_semaphores: Mapping[int, asyncio.Semaphore] | None = None
    """Those of `model_semaphores` for several runs at once that share the models; None gives each
    run its own.
    """
    provider_slots: Mapping[str, asyncio.Semaphore] = field(default_factory=dict)
    """By a worker's name the turns at its provider, one object for all workers there; others wait
    for nobody.
    """
    # Which workers are skipped, in all runs that share them; None skips nobody
    circuits: Circuits | None = None
    # Where no worker can do a step, the planner is asked once for the rest of the plan
    revises: bool = False
    # Records each call, and holds all runs of a day to its limits
    daily_spend: Spending | None = None
    budget: CallBudget | None = None  # What many runs at once are paid from
    tools: RunTools | None = None  # Those that workers may call
    attachments: AttachmentStore | None = None  # It has the bytes of images and documents
    origin: str = ""  # Who asks, as the trace says it
    # Set while the reader of the run keeps up: a worker's answer waits for it
    keeps_up: asyncio.Event | None = None
    # The reader stores the start of the run, and no model is called before that
    stored: bool = False
    leased: str = ""  # The run that this process must still have when it makes a call
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], datetime] = lambda: datetime.now(UTC)
    random: random.Random = field(default_factory=random.Random)

    @property
    def holds_answer(self) -> bool:
        """Whether what the last step writes may be no answer.

        A verdict on the one before it, or a refusal.
        """
        return bool(self.profile.verdicts or self.worker_profile.refusal)

    def rules(
        self,
        *,
        given: bool,
        depth_left: int,
        down: Collection[str] = (),
        excluded: Collection[str] = (),
    ) -> PlanRules:
        return plan_rules(
            self.pool, self.limits, down=down, given=given, depth_left=depth_left, excluded=excluded
        )

    def context(self, rules: PlanRules) -> PlanFormatContext:
        return plan_format_context(
            self.profile, self.pool, rules, self.mode, constrained=self.constrained
        )

    def check_limits(self, *, planned: bool = True) -> None:
        """Check that the limits can be enforced, whatever is asked.

        Raises `PolicyError` or `ConfigError`.
        """
        check_limits(self.limits, planned=planned)
        cost = self.limits.cost
        if self.daily_spend is not None:
            self.daily_spend.check()
            cost = self.daily_spend.cost_limit if cost is None else cost
        cost_limit = COST_LIMIT if self.limits.cost is not None else DAY_COST_LIMIT
        check_pool(
            self.pool, self.limits if cost is None else replace(self.limits, cost=cost), cost_limit
        )
        if cost is not None and self.model is not None and self.price is None:
            raise PolicyError(
                f"{cost_limit} cannot be enforced: the planner {self.name} has no price",
                hint="give it a price: conductor workers add NAME … --set price=IN,OUT, then "
                "conductor model use NAME\n"
                "plan with a local model, or limit tokens instead",
            )

    def planning_request(self, question: Question) -> Request:
        rules = self.rules(given=bool(question.given), depth_left=max(self.limits.recursion, 1))
        return planner_request(question, self.pool, self.profile, self.context(rules))

    async def prepare(self) -> Usage:
        """Have the model read what comes before every question, so that one that remembers need not
        read it again.

        Returns what that took: `tokens_in` were to be read, `tokens_cached` were known already.
        Raises `ModelError`, or `ConductorUnusable` without a model.
        """
        if self.model is None:
            raise ConductorUnusable(
                "there is no planner to prepare", hint="choose one: conductor model use NAME"
            )
        used = NO_USAGE
        request = replace(self.planning_request(Question(text="-")), max_tokens=0)
        async with aclosing(self.model.stream(request)) as chunks:
            async for chunk in chunks:
                used = chunk.usage or used
        return used


def new_run_id(now: datetime) -> str:
    """Return an id that sorts by time, also within a second, and differs for two runs of the same
    moment.
    """
    return f"{now:%Y%m%d-%H%M%S}-{now.microsecond:05x}{secrets.token_hex(1)[0]}"


_RANKS: Final = count()


class RunResources:
    """One for each run that a user starts.

    A call that waits here holds nothing that another call needs to end.
    """

    def __init__(self, orchestra: Orchestra) -> None:
        self.ledger = Ledger(orchestra.limits)
        self._rank = next(_RANKS)  # Where runs wait for the same money, the older one goes first
        self._shared: dict[int, Reservation] = {}
        """For each call under way, by the id of its reservation: what is reserved for it in the
        budget of all runs.
        """
        self.call_slots = asyncio.Semaphore(orchestra.limits.parallel)
        """As many calls at once as the run allows; substitutes and nested runs need a slot too."""
        # How often the rest of a plan may still be planned anew, nested runs included
        self.revisions_left = 1
        self.approvals = ToolApprovals(asks=orchestra.tools is not None and orchestra.tools.asks)
        self.tool_calls_left = (
            CALLS_PER_RUN if orchestra.limits.tool_calls is None else orchestra.limits.tool_calls
        )
        self._open_tools = orchestra.tools.open if orchestra.tools is not None else None
        self._tools: ToolBox | None = None
        self._conductor = orchestra
        # Workers that are not asked again in this run, and why
        self.down = dict(orchestra.unavailable)
        self.circuits = orchestra.circuits or Circuits(BreakerRules(failures=0))
        self._freed = asyncio.Event()
        self._times_freed = 0
        shared = orchestra.shared_semaphores
        self._model_semaphores = (
            model_semaphores(orchestra.pool, orchestra.workers) if shared is None else shared
        )

    @property
    def tools(self) -> ToolBox | None:
        """The tools of this run, opened when they are first asked for.

        None where there are none.
        """
        if self._tools is None and self._open_tools is not None:
            self._tools = self._open_tools()
        return self._tools

    async def close(self) -> None:
        tools = self._tools
        self._tools = None
        self._open_tools = None
        if tools is not None:
            await tools.close()

    @property
    def skipped(self) -> Mapping[str, Failure]:
        """Workers that are asked only where nobody else can do a step, and why."""
        why = {
            worker.name: self.circuits.why_skipped(worker)
            for worker in self._conductor.pool
            if worker.name not in self.down
        }
        return {name: failure for name, failure in why.items() if failure is not None}

    def turn(self, model: Model) -> AbstractAsyncContextManager[None]:
        """Return a turn on a model. A local one that both plans and works does one thing at a time.

        Waiting for a turn happens before the call, so that it does not count against the call's
        timeouts.
        """
        return self._model_semaphores.get(id(model), _NO_WAIT)

    def provider_slot(self, worker: Worker) -> AbstractAsyncContextManager[None]:
        return self._conductor.provider_slots.get(worker.name, _NO_WAIT)

    async def reserve(
        self, tokens_in: int, answer: int, price: Price | None, worker: Worker | None
    ) -> Reservation:
        """Reserve tokens and money for a call of `worker`, of the planner for None.

        Raises `LimitReached`.
        """
        budget = self._conductor.budget
        if budget is None:
            return await self._reserve(tokens_in, answer, price, worker)
        # First here: what a call of this run then waits for is held by calls that have all of
        # theirs.
        shared = await budget.reserve(tokens_in, answer, price, self._rank)
        try:
            reservation = await self._reserve(tokens_in, shared.answer, price, worker)
        except BaseException:
            budget.settle(shared, NO_USAGE)
            raise
        self._shared[id(reservation)] = shared
        return reservation

    def check_cut(self, reservation: Reservation, wanted: int) -> None:
        """Raise `LimitReached` for a reply at its end that was not left all the tokens that were
        `wanted`.

        That is so for one of many runs, which is made again later, and for a limit that they share.
        """
        shared = self._shared.get(id(reservation))
        if shared is None:
            return
        if shared.answer < wanted:
            message = "the limit of all runs has cut a reply to what was left"
            raise LimitReached(message, hint=RAISE_IT, reason="limit_cost_all")
        if reservation.cut in LIMITS_OF_SEVERAL:
            raise LimitReached(
                "today's limit has cut a reply to what was left", reason=reservation.cut
            )

    async def _reserve(
        self, tokens_in: int, answer: int, price: Price | None, worker: Worker | None
    ) -> Reservation:
        def decide(today: DayBudget) -> Reservation | None:
            return self.ledger.reserve(
                tokens_in, answer, price, call=worker is not None, today=today
            )

        def release(reservation: Reservation) -> None:
            self.ledger.release(reservation)
            self._times_freed += 1
            self._freed.set()

        spend = self._conductor.daily_spend
        leased = self._conductor.leased
        while True:
            before = self._times_freed
            reservation = (
                await spend.reserve(decide, release, worker, leased)
                if spend
                else decide(NO_DAY_LIMITS)
            )
            if reservation is not None:
                return reservation
            # There is no lock around this: nothing is awaited between looking for room and waiting
            # for the event.
            if before == self._times_freed:
                self._freed.clear()
                await self._freed.wait()

    def settle(self, reservation: Reservation, usage: Usage, *, cached: bool, failed: bool) -> None:
        """A call has ended.

        Its reply came from the response cache (`cached`), or is not used (`failed`).
        """
        self.ledger.settle(reservation, usage)
        shared = self._shared.pop(id(reservation), None)
        if shared is not None and self._conductor.budget is not None:
            self._conductor.budget.settle(shared, NO_USAGE if cached else usage)
        if self._conductor.daily_spend:
            self._conductor.daily_spend.settle(
                reservation, NO_USAGE if cached else usage, failed=failed
            )
        self._times_freed += 1
        self._freed.set()


def share_models(orchestra: Orchestra, semaphores: dict[int, asyncio.Semaphore]) -> Orchestra:
    """Return the conductor for one of many runs at once, which take turns on its models by these
    `semaphores`.

    Those of its models are added to them. A model must stay open as long as they are used: its `id`
    is its name there.
    """
    for key, semaphore in model_semaphores(orchestra.pool, orchestra.workers).items():
        semaphores.setdefault(key, semaphore)
    if orchestra.constrained:
        # An in-process model can do only one thing at a time.
        semaphores.setdefault(id(orchestra.model), asyncio.Semaphore(1))
    return replace(orchestra, shared_semaphores=semaphores)


def model_semaphores(pool: Pool, models: Mapping[str, Model]) -> dict[int, asyncio.Semaphore]:
    """A semaphore for each model, by its `id`.

    Workers on one model share it; the narrowest of them sets its size.
    """
    widths: dict[int, int] = {}
    for worker in pool:
        if worker.name in models:
            key = id(models[worker.name])
            widths[key] = min(worker.parallel, widths.get(key, worker.parallel))
    return {key: asyncio.Semaphore(width) for key, width in widths.items()}

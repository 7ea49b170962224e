"""What outlives runs, the `Orchestra`, and what a run shares with the runs nested in it.

An orchestra is given ready models; it never opens one and knows no adapter. `runner.start_run` has
it do a run.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from typing import Final, Literal

from conductor_cli.core.chat import PromptProgress
from conductor_cli.core.errors import (
    LIMITS_OF_SEVERAL,
    ConductorUnusable,
    Failure,
    LimitReached,
    PolicyError,
)
from conductor_cli.core.input_requests import InputReply
from conductor_cli.core.ledger import NO_DAY_LIMITS, DayBudget, Ledger, Reservation
from conductor_cli.core.policy import COST_LIMIT, DAY_COST_LIMIT, check_limits, check_pool
from conductor_cli.core.pool import Limits, Pool, Timeouts, Worker
from conductor_cli.core.question import Question
from conductor_cli.core.tools import CALLS_PER_RUN, OfferedTool, RunTools, ToolBox
from conductor_cli.core.usage import NO_USAGE, Price, Usage
from conductor_cli.models.base import Model
from conductor_cli.programs.turns import FairPlaces
from conductor_cli.run.budget import RAISE_IT
from conductor_cli.run.circuits import BreakerRules, Circuits
from conductor_cli.run.spec import RunSpec, Team
from conductor_cli.state.interfaces import AttachmentStore, Spending

ToolVerdict = Literal["once", "always", "no"]
"""What the user says of a call: yes, yes for every call of this tool in this run, no."""
NOBODY_TO_ASK: Final = (
    "not called: it may change something, and nobody can be asked to allow it. Answer without it."
)


class ToolApprovals:
    """One for each run that a user starts. `asks`: somebody can be asked."""

    def __init__(self, *, asks: bool) -> None:
        self._asks = asks
        self._always: set[str] = set()
        self._turn = asyncio.Lock()
        self._waiting: asyncio.Future[ToolVerdict] | None = None
        self._awaited_input: asyncio.Future[InputReply] | None = None

    async def objection(self, tool: OfferedTool, ask: Callable[[], Awaitable[ToolVerdict]]) -> str:
        """Return why a call must not be made, for the worker to read; empty where it may.

        `ask` asks the user.
        """
        # A tool whose description or parameters change later is another one.
        identity = [tool.server, tool.own_name, tool.tool.description, tool.tool.parameters]
        key = hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()
        if tool.allowed or tool.read_only or key in self._always:
            return ""
        if not self._asks:
            return NOBODY_TO_ASK
        async with self._turn:  # one question at a time
            verdict = "always"
            if key not in self._always:
                verdict = await ask()
        if verdict == "always":
            self._always.add(key)
        refused = (
            "not called: the user does not allow it. Do not ask for it again; answer without it."
        )
        if verdict == "no":
            return refused
        return ""

    def verdict(self) -> asyncio.Future[ToolVerdict]:
        self._waiting = asyncio.get_running_loop().create_future()
        return self._waiting

    def decide(self, verdict: ToolVerdict) -> None:
        """Take what the user has answered. Where nothing is asked, this does nothing."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(verdict)

    @property
    def asks(self) -> bool:
        """Whether somebody can be asked."""
        return self._asks

    async def input_of_user(self, ask: Callable[[], Awaitable[InputReply]]) -> InputReply:
        """Return what the user says to a server of tools, which `ask` asks."""
        async with self._turn:  # one question at a time
            return await ask()

    def awaited_input(self) -> asyncio.Future[InputReply]:
        self._awaited_input = asyncio.get_running_loop().create_future()
        return self._awaited_input

    def give_input(self, reply: InputReply) -> None:
        """Take what the user has answered a server. Where nothing is asked, this does nothing."""
        if self._awaited_input is not None and not self._awaited_input.done():
            self._awaited_input.set_result(reply)


_NO_WAIT: Final[AbstractAsyncContextManager[None]] = nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Orchestra:
    """What outlives runs, none of it opened here: a team, its limits, and all that runs share.

    It is never copied for a run. What differs from run to run is in the run's `RunSpec`.
    """

    team: Team
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()
    seed: int | None = None  # It goes with every call
    provider_slots: Mapping[str, AbstractAsyncContextManager[None]] = field(default_factory=dict)
    """By a worker's name the turns at its provider, one object for all workers there; others wait
    for nobody.
    """
    # Which workers are skipped, in all runs that share them; None skips nobody
    circuits: Circuits | None = None
    # Records each call, and holds all runs of a day to its limits
    daily_spend: Spending | None = None
    tools: RunTools | None = None  # Those that workers may call
    attachments: AttachmentStore | None = None  # It has the bytes of images and documents
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], datetime] = lambda: datetime.now(UTC)
    random: random.Random = field(default_factory=random.Random)

    def team_of(self, spec: RunSpec) -> Team:
        """Return who takes part in a run."""
        if spec.team is None:
            return self.team
        return spec.team

    def limits_of(self, spec: RunSpec) -> Limits:
        """Return the limits of a run.

        Without reviews where it only plans: they are appended when the plan is run.
        """
        limits = self.limits
        if spec.limits is not None:
            limits = spec.limits
        if spec.plan_only or not spec.reviews:
            return replace(limits, recursion=0)
        return limits

    def seed_of(self, spec: RunSpec) -> int | None:
        """Return the seed of a run's calls."""
        if spec.seed is None:
            return self.seed
        return spec.seed

    def check_limits(self) -> None:
        """Check that the limits can be enforced. Raises as `check_run_limits`."""
        check_run_limits(self.team, self.limits, self.daily_spend)

    async def prepare(self, report: Callable[[PromptProgress], object] | None = None) -> Usage:
        """Have the model read what comes before every question.

        One that remembers need not read it again. `report` is told how far a local one is. Returns
        what that took: `tokens_in` were to be read, `tokens_cached` were known already. Raises
        `ModelError`, or `ConductorUnusable` without a model.
        """
        if self.team.model is None:
            raise ConductorUnusable(
                "there is no planner to prepare", hint="choose one: conductor model use NAME"
            )
        used = NO_USAGE
        request = self.team.planning_request(Question(text="-"), self.limits)
        request = replace(request, max_tokens=0)
        async with aclosing(self.team.model.stream(request)) as chunks:
            async for chunk in chunks:
                used = chunk.usage or used
                if chunk.progress is not None and report is not None:
                    report(chunk.progress)
        return used


def check_run_limits(
    team: Team, limits: Limits, daily_spend: Spending | None, *, planned: bool = True
) -> None:
    """Check that the limits of a run can be enforced.

    Raises `PolicyError` or `ConfigError`.
    """
    check_limits(limits, planned=planned)
    cost = limits.cost
    if daily_spend is not None:
        daily_spend.check()
        if cost is None:
            cost = daily_spend.cost_limit
    cost_limit = DAY_COST_LIMIT
    if limits.cost is not None:
        cost_limit = COST_LIMIT
    if cost is not None:
        limits = replace(limits, cost=cost)
    check_pool(team.pool, limits, cost_limit)
    if cost is not None and team.model is not None and team.price is None:
        raise PolicyError(
            f"{cost_limit} cannot be enforced: the planner {team.name} has no price",
            hint="give it a price: conductor workers add NAME … --set price=IN,OUT, then "
            "conductor model use NAME\n"
            "plan with a local model, or limit tokens instead",
        )


def new_run_id(now: datetime) -> str:
    """Return an id that sorts by time, also within a second.

    Two runs of the same microsecond differ in it, but for one pair in a million: a second run of
    an id would keep no trace. A thousand runs a second meet such a pair once in weeks.
    """
    return f"{now:%Y%m%d-%H%M%S}-{now.microsecond:05x}{secrets.randbits(20):05x}"


_RANKS: Final = count()


class RunResources:
    """One for each run that a user starts.

    A call that waits here holds nothing that another call needs to end.
    """

    def __init__(self, orchestra: Orchestra, spec: RunSpec) -> None:
        team = orchestra.team_of(spec)
        limits = orchestra.limits_of(spec)
        self.ledger = Ledger(limits)
        self._rank = next(_RANKS)  # Where runs wait for the same money, the older one goes first
        self._shared: dict[int, Reservation] = {}
        """For each call under way, by the id of its reservation: what is reserved for it in the
        budget of all runs.
        """
        self.call_slots = asyncio.Semaphore(limits.parallel)
        """As many calls at once as the run allows; substitutes and nested runs need a slot too."""
        # How often the rest of a plan may still be planned anew, nested runs included
        self.revisions_left = 1
        self.approvals = ToolApprovals(asks=spec.asks_about_tools)
        self.tool_calls_left = CALLS_PER_RUN
        if limits.tool_calls is not None:
            self.tool_calls_left = limits.tool_calls
        self._run_tools = orchestra.tools
        self._tools: ToolBox | None = None
        self._pool = team.pool
        self._provider_slots = orchestra.provider_slots
        self._budget = spec.budget
        self._daily_spend = orchestra.daily_spend
        self._leased_run = spec.id if spec.leased else ""
        # Workers that are not asked again in this run, and why
        self.down = dict(team.unavailable)
        self.circuits = orchestra.circuits or Circuits(BreakerRules(failures=0))
        self._freed = asyncio.Event()
        self._times_freed = 0
        turns = team.turns
        if turns is None:
            turns = model_turns(team.pool, team.workers)
        self._turns = turns

    @property
    def tools(self) -> ToolBox | None:
        """The tools of this run, opened when they are first asked for.

        None where there are none.
        """
        if self._tools is None and self._run_tools is not None:
            self._tools = self._run_tools.open()
        return self._tools

    async def close(self) -> None:
        tools = self._tools
        self._tools = None
        self._run_tools = None
        if tools is not None:
            await tools.close()

    @property
    def skipped(self) -> Mapping[str, Failure]:
        """Workers that are asked only where nobody else can do a step, and why."""
        skipped: dict[str, Failure] = {}
        for worker in self._pool:
            failure = None
            if worker.name not in self.down:
                failure = self.circuits.why_skipped(worker)
            if failure is not None:
                skipped[worker.name] = failure
        return skipped

    def give_up_worker(self, name: str, why: Failure) -> None:
        """Ask a worker no more in this run."""
        self.down[name] = why

    def count_tool_calls(self, calls: int) -> None:
        """Take so many calls of tools from those that the run may still make."""
        self.tool_calls_left -= calls

    def use_revision(self) -> None:
        """Let the rest of no plan of the run be planned anew after this time."""
        self.revisions_left = 0

    def turn(self, model: Model) -> AbstractAsyncContextManager[None]:
        """Return a turn on a model. A local one that both plans and works does one thing at a time.

        Waiting for a turn happens before the call, so that it does not count against the call's
        timeouts.
        """
        return self._turns.get(id(model), _NO_WAIT)

    def provider_slot(self, worker: Worker) -> AbstractAsyncContextManager[None]:
        return self._provider_slots.get(worker.name, _NO_WAIT)

    async def reserve(
        self,
        tokens_in: int,
        answer: int,
        price: Price | None,
        worker: Worker | None,
        usual: int = 0,
    ) -> Reservation:
        """Reserve tokens and money for a call of `worker`, of the planner for None.

        With `usual` tokens the reply is held to its share of what is left (`Ledger.reserve`).
        Raises `LimitReached`.
        """
        budget = self._budget
        if budget is None:
            return await self._reserve(tokens_in, answer, price, worker, usual)
        # First here: what a call of this run then waits for is held by calls that have all of
        # theirs.
        shared = await budget.reserve(tokens_in, answer, price, self._rank, usual)
        try:
            reservation = await self._reserve(tokens_in, shared.answer, price, worker, usual)
        except BaseException:
            budget.settle(shared, NO_USAGE)
            raise
        self._shared[id(reservation)] = shared
        return reservation

    def check_cut(self, reservation: Reservation) -> None:
        """Raise `LimitReached` for a reply that was left less than its share of a limit.

        That is so for one of many runs, which is made again later, and for a limit that they share.
        """
        shared = self._shared.get(id(reservation))
        if shared is None:
            return
        if shared.cut and not shared.is_share:
            message = "the limit of all runs has cut a reply to what was left"
            raise LimitReached(message, hint=RAISE_IT, reason="limit_cost_all")
        if reservation.cut in LIMITS_OF_SEVERAL and not reservation.is_share:
            raise LimitReached(
                "today's limit has cut a reply to what was left", reason=reservation.cut
            )

    def count_lost_call(self, tokens_in: int, answer: int, price: Price | None, usual: int) -> None:
        """Count the most that a call can have used whose process is gone, in the run's own limits.

        The day has it already: what was reserved there goes on to count.
        """
        with suppress(LimitReached):  # then another call has no room either
            lost = self.ledger.reserve(tokens_in, answer, price, call=False, usual=usual)
            if lost is not None:
                used = Usage(tokens_in=tokens_in, tokens_out=lost.answer, cost=lost.cost)
                self.ledger.settle(lost, used)

    async def _reserve(
        self, tokens_in: int, answer: int, price: Price | None, worker: Worker | None, usual: int
    ) -> Reservation:
        def decide(today: DayBudget) -> Reservation | None:
            return self.ledger.reserve(
                tokens_in, answer, price, call=worker is not None, usual=usual, today=today
            )

        def release(reservation: Reservation) -> None:
            self.ledger.release(reservation)
            self._times_freed += 1
            self._freed.set()

        spend = self._daily_spend
        while True:
            before = self._times_freed
            if spend:
                reservation = await spend.reserve(decide, release, worker, self._leased_run)
            else:
                reservation = decide(NO_DAY_LIMITS)
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
        if cached:
            usage = NO_USAGE
        if shared is not None and self._budget is not None:
            self._budget.settle(shared, usage)
        if self._daily_spend:
            self._daily_spend.settle(reservation, usage, failed=failed)
        self._times_freed += 1
        self._freed.set()


def model_turns(
    pool: Pool, models: Mapping[str, Model], planner: Model | None = None
) -> dict[int, FairPlaces]:
    """Return the turns on each model, by its `id`.

    Workers on one model share it; the narrowest of them sets its size. `planner` is a model in this
    process, which can do only one thing at a time. A model must stay open as long as its turns
    are used.
    """
    widths: dict[int, int] = {}
    for worker in pool:
        if worker.name in models:
            key = id(models[worker.name])
            widths[key] = min(worker.parallel, widths.get(key, worker.parallel))
    if planner is not None:
        widths.setdefault(id(planner), 1)
    return {key: FairPlaces(width) for key, width in widths.items()}

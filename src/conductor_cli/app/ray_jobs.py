"""Work over the nodes of a Ray cluster.

Rows go out as jobs of Ray Data, and what becomes of each comes back.

On each node an actor opens what it needs, by the settings and keys of that node, and takes several
rows at once. The results are written by the process that has the job, so the nodes share no files.
A row of a node that died is asked again by Ray; one that ends its process again and again is given
up, and costs no other row.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import os
import pickle
import secrets
import time
import warnings
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    aclosing,
    contextmanager,
    suppress,
)
from dataclasses import replace
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, cast

from conductor_cli.config.settings import Settings
from conductor_cli.core.errors import (
    ConductorError,
    ConfigError,
    Failure,
    LimitReached,
    PolicyError,
    UsageError,
)
from conductor_cli.core.ledger import Reservation
from conductor_cli.core.pool import DayLimits
from conductor_cli.core.serialization import dump
from conductor_cli.core.usage import Price, Usage
from conductor_cli.run import Orchestra
from conductor_cli.run.budget import Budget, CallBudget
from conductor_cli.system.installation import extra_command

ROWS_OF_A_JOB: Final = 50_000  # The memory of this process is bounded by it
BLOCKS_AT_ONCE: Final = 8
"""Blocks of rows that a node has at once. Each costs milliseconds, so a block has several rows."""
RETRIES: Final = 2  # How often Ray asks the rows of a dead process again

Ask = Callable[[Any], Awaitable[Any]]
Opener = Callable[[CallBudget | None], AbstractAsyncContextManager[Ask]]
"""Opens on a node what rows are asked of, and paid from.

It is sent to the nodes, so it must not hold a key.
"""
KILLED: Final = Failure(
    kind="worker", message="each process that asked it was killed", hint="ray logs says why"
)
POLL_SECONDS: Final = 0.1  # Between two times that a node asks whether there is room in the budget
BEAT_SECONDS: Final = 5.0  # Between two signs of life of a node
ENDING_SECONDS: Final = 10.0  # For the nodes to leave a job whose results nobody takes any more
# After which a node is taken for dead, and what it has reserved for spent
SILENT_SECONDS: Final = 60.0


@contextmanager
def ray_cluster(address: str) -> Iterator[str]:
    """Connect to a cluster, for `auto` to that of this machine, which is started if need be.

    Yields the id of this node. Raises `ConfigError` where Ray is not installed or nobody answers.
    """
    if address.startswith("ray://"):
        hint = "run the command on a node of the cluster: --ray auto"
        raise UsageError("Ray's client mode cannot be used for a job of Ray Data", hint=hint)
    # Before Ray is imported: it writes to the terminal, and where it starts a cluster it would
    # report its use.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        import ray.data
    except ImportError:
        raise ConfigError(
            "--ray needs Ray, which is not installed", hint=extra_command("ray")
        ) from None
    try:
        init = partial(ray.init, log_to_driver=False, logging_level=logging.CRITICAL)
        if address == "auto":
            init(None, include_dashboard=False)
        else:
            init(address, include_dashboard=None)
    except Exception as error:  # noqa: BLE001 - Ray raises bare ones where a node does not start
        reason = str(error).partition("\n")[0]
        hint = "ray status shows a cluster; ray start --head starts one"
        raise ConfigError(
            f"no Ray cluster answers at {address}: {reason:.200}", hint=hint
        ) from None
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    # Ray 2.60 has no other way to say how often rows are asked again; pyproject.toml leaves out
    # 2.64, which drops it.
    warnings.filterwarnings("ignore", message="`ray_remote_args` is deprecated")
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.max_errored_blocks = -1
    try:
        yield ray.get_runtime_context().get_node_id()
    finally:
        ray.shutdown()


def check_node(settings: Settings, first: str) -> None:
    """Raise `PolicyError` on a node that cannot know what others spend of a limit of the day.

    `first` is the node of the process that has the job, whose files have the spending of its own
    machine.
    """
    has_limit_of_the_day = settings.day_limits != DayLimits()
    is_state_shared = bool(settings.paths.database)
    if not has_limit_of_the_day or is_state_shared:
        return
    import ray

    if ray.get_runtime_context().get_node_id() != first:
        hint = "name a PostgreSQL database in the setting state of each node: docs/scale.md"
        raise PolicyError(
            "a limit of the day cannot hold for several nodes whose state is in files", hint=hint
        )


def models_of(orchestra: Orchestra) -> str:
    """Return a hash of what must be equal on all nodes.

    It covers who may be asked and how, which models these are, and the limits. Cards and prices are
    no part of it: each machine may have measured its own.
    """
    team = orchestra.team
    workers = []
    for worker in team.pool.public():
        workers.append((worker.name, worker.kind, worker.model_name, worker.options, worker.tools))
    planner = (team.name, team.profile.name, team.mode, orchestra.seed)
    values = dump((workers, planner, orchestra.limits, team.pool_policy.policy))
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


async def ask_over_nodes(
    rows: Iterable[Any],
    opener: Opener,
    *,
    parallel: int,
    budget: Budget,
    is_stopped: Callable[[], bool] = lambda: False,
) -> AsyncGenerator[tuple[Any, Any], None]:
    """Ask every row, at most `parallel` at once on each node.

    Yields each with its result, in any order. The result is a `Failure` where there is no other.
    Rows for which the `budget` has no room are left out. With a limit, one process counts the calls
    of all nodes, in the file of the budget. Once `is_stopped` says so, no further row is asked;
    those under way are yielded with their results.
    """
    rows = iter(rows)
    unanswered: list[Any] = []  # Rows of the last job, which are asked again one by one
    while job_rows := unanswered or list(islice(rows, ROWS_OF_A_JOB)):
        size = 1
        if not unanswered:
            size = max(1, parallel // BLOCKS_AT_ONCE)
        job = _Job(job_rows, budget, is_stopped)
        async with aclosing(job.results(opener, parallel=parallel, block_rows=size)) as results:
            async for row, result in results:
                yield row, result
        if job.leaves_rows_out:
            return
        unanswered = job.unanswered
        if len(unanswered) == len(job_rows):
            for row in unanswered:
                yield row, KILLED
            unanswered = []


class _Job:
    """A job of Ray Data over some rows."""

    def __init__(self, rows: Sequence[Any], budget: Budget, is_stopped: Callable[[], bool]) -> None:
        self._rows = rows
        self._left = dict(enumerate(rows))
        self._budget = budget
        self._is_stopped = is_stopped
        self._is_stop_told = False
        self.leaves_rows_out = False  # The budget had no room for them, or the job was stopped

    @property
    def unanswered(self) -> list[Any]:
        return list(self._left.values())

    async def results(
        self, opener: Opener, *, parallel: int, block_rows: int
    ) -> AsyncGenerator[tuple[Any, Any], None]:
        """Ask the rows in blocks of `block_rows`; yields each with its result."""
        control = _start_control(self._budget)
        blocks = _Blocks(self._start(opener, control, parallel=parallel, block_rows=block_rows))
        try:
            while (block := await blocks.next()) is not None:
                for number, pickled in zip(block["number"], block["result"], strict=True):
                    # Of a node, which Ray lets run code here anyway
                    result = pickle.loads(pickled)  # noqa: S301
                    if result is None:
                        self.leaves_rows_out = True
                    # Ray may ask the rows of a lost block again whose result has come before.
                    elif int(number) in self._left:
                        if self._budget.limit is None:
                            self._budget.add(_cost_of(result))
                        yield self._left.pop(int(number)), result
                self._tell_stop(control)
        finally:
            if not blocks.are_over:
                control.cancel.remote()
                await blocks.leave()
            if self._budget.limit is not None:
                self._budget.read_again()

    def _tell_stop(self, control: Any) -> None:  # noqa: ANN401 - an actor of Ray
        """Tell the nodes, once, that no further row is asked, if that is so."""
        if self._is_stopped() and not self._is_stop_told:
            control.stop.remote()
            self._is_stop_told = True

    def _start(
        self,
        opener: Opener,
        control: Any,  # noqa: ANN401 - an actor of Ray
        *,
        parallel: int,
        block_rows: int,
    ) -> Iterator[dict[str, Any]]:
        """Start the job on all nodes; returns the blocks of its results as they come."""
        import ray

        items = []
        for number, row in enumerate(self._rows):
            items.append({"number": number, "row": pickle.dumps(row)})
        actors = ray.data.ActorPoolStrategy(
            size=max(1, _node_count()),
            max_concurrent_calls_per_actor=max(1, parallel // block_rows),
        )
        return iter(
            ray.data.from_items(items, override_num_blocks=math.ceil(len(items) / block_rows))
            .map_batches(
                _Node,
                fn_constructor_args=(opener, control, self._budget.limit is not None),
                batch_size=None,
                num_cpus=1,
                max_task_retries=RETRIES,
                scheduling_strategy="SPREAD",
                compute=actors,
            )
            .iter_batches(batch_size=None, prefetch_batches=0)
        )


def _node_count() -> int:
    """Return how many nodes of the cluster can run an actor."""
    import ray

    count = 0
    for node in ray.nodes():
        if node["Alive"] and node["Resources"].get("CPU", 0) >= 1:
            count += 1
    return count


def _start_control(budget: Budget) -> Any:  # noqa: ANN401 - an actor of Ray
    """Return an actor on this node that counts the calls of all nodes, and can stop them."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    this_node = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actor = ray.remote(JobControl).options(num_cpus=0, scheduling_strategy=this_node)
    return actor.remote(budget.limit, budget.spent, budget.per_run, budget.record)


class _Blocks:
    """The blocks of results of a job, which a thread waits for.

    Ray ends a process at once, with the exit code 1 and without a word, when one of its threads
    uses the cluster after the process has left it. So a job is left only when it has ended.
    """

    def __init__(self, blocks: Iterator[dict[str, Any]]) -> None:
        self._blocks = blocks
        self._waiting: asyncio.Future[dict[str, Any] | None] | None = None
        self.are_over = False

    async def next(self) -> dict[str, Any] | None:
        """Wait for the next block; None after the last."""
        self._waiting = asyncio.ensure_future(asyncio.to_thread(next, self._blocks, None))
        block = await asyncio.shield(self._waiting)
        self.are_over = block is None
        return block

    async def leave(self) -> None:
        """Wait until the job has ended, `ENDING_SECONDS` at most; what comes is dropped."""
        await asyncio.wait({asyncio.ensure_future(self._drain())}, timeout=ENDING_SECONDS)

    async def _drain(self) -> None:
        # An error of the job was raised where its blocks were taken.
        with suppress(Exception):
            if self._waiting is not None:
                await self._waiting
            await asyncio.to_thread(deque, self._blocks, 0)


def _cost_of(result: Any) -> Decimal | None:  # noqa: ANN401 - what the job is about
    if isinstance(result, Failure):
        return None
    cost: Decimal | None = result.cost
    return cost


class JobControl:
    """The budget of all nodes of a job, and what ends it: an actor of Ray.

    Each node has a name, `owner`, and gives signs of life. What a node that is silent has reserved
    counts as spent, because its provider may charge for it.
    """

    def __init__(
        self,
        limit: Decimal | None,
        spent: Decimal,
        expected: Decimal,
        record: Path | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._budget = Budget(limit, spent=spent, expected=expected)
        if limit is not None and record is not None:
            self._budget.remember(record)
        self._clock = clock
        self._last_signs: dict[str, float] = {}  # When each node gave its last sign of life
        self._runs = Counter[str]()
        self._calls: dict[str, list[Reservation]] = {}
        self._is_stopped = False
        self._cancelled = asyncio.Event()

    def stop(self) -> None:
        """Let no further run start."""
        self._is_stopped = True

    def cancel(self) -> None:
        """Let no further run start, and end those under way."""
        self.stop()
        self._cancelled.set()

    async def wait_cancelled(self) -> None:
        """Wait until the job is cancelled."""
        await self._cancelled.wait()

    def beat(self, owner: str) -> None:
        """Note that a node is there."""
        now = self._clock()
        self._last_signs[owner] = now
        silent = [name for name, sign in self._last_signs.items() if now - sign > SILENT_SECONDS]
        for name in silent:
            self._take_for_dead(name)

    def _take_for_dead(self, owner: str) -> None:
        """End the runs of a node, and count all that it has reserved as spent."""
        del self._last_signs[owner]
        for reservation in self._calls.pop(owner, []):
            self._budget.settle(reservation, Usage(cost=reservation.cost))
        for _ in range(self._runs.pop(owner, 0)):
            self._budget.finish(None)

    def start(self, owner: str) -> bool | None:
        """Return whether a run may start; None while others must end before it."""
        self.beat(owner)
        if self._is_stopped:
            return False
        if self._budget.start():
            self._runs[owner] += 1
            return True
        return False if self._budget.exhausted else None

    def finish(self, owner: str, cost: Decimal | None) -> None:
        self.beat(owner)
        if self._runs[owner]:  # else the node was taken for dead
            self._runs[owner] -= 1
            self._budget.finish(cost)

    def reserve(
        self, owner: str, tokens_in: int, answer: int, price: Price | None, usual: int = 0
    ) -> Reservation | Failure | None:
        """Return room for a call, or why there is none; None while running calls may leave some."""
        self.beat(owner)
        try:
            reservation = self._budget.try_reserve(tokens_in, answer, price, usual)
        except LimitReached as error:
            return error.failure
        if reservation is not None:
            self._calls.setdefault(owner, []).append(reservation)
        return reservation

    def settle(self, owner: str, reservation: Reservation, usage: Usage) -> None:
        self.beat(owner)
        if reservation in self._calls.get(owner, []):
            self._calls[owner].remove(reservation)
            self._budget.settle(reservation, usage)
            return
        # The node was taken for dead, and its reservation for spent. What it has used beyond that
        # is new.
        beyond = (usage.cost or Decimal(0)) - reservation.cost
        self._budget.add(max(beyond, Decimal(0)))


class _RemoteControl:
    """The budget of all nodes and the end of their job, as a node sees them."""

    def __init__(self, actor: Any, owner: str) -> None:  # noqa: ANN401 - an actor of Ray
        self._actor = actor
        self._owner = owner

    async def reserve(
        self,
        tokens_in: int,
        answer: int,
        price: Price | None,
        rank: int,  # noqa: ARG002
        usual: int = 0,
    ) -> Reservation:
        while True:
            room = await self._actor.reserve.remote(self._owner, tokens_in, answer, price, usual)
            if isinstance(room, Failure):
                raise LimitReached(room.message, hint=room.hint, reason=room.reason)
            if room is not None:
                return cast("Reservation", room)
            await asyncio.sleep(POLL_SECONDS)

    def settle(self, reservation: Reservation, usage: Usage) -> None:
        self._actor.settle.remote(self._owner, reservation, usage)

    async def start(self) -> bool:
        """Wait until a run may start; false where none may any more."""
        while True:
            may_start = await self._actor.start.remote(self._owner)
            if may_start is not None:
                return bool(may_start)
            await asyncio.sleep(POLL_SECONDS)

    async def finish(self, cost: Decimal | None) -> None:
        await self._actor.finish.remote(self._owner, cost)

    async def beat(self) -> None:
        """Give signs of life until it is cancelled."""
        while True:
            await self._actor.beat.remote(self._owner)
            await asyncio.sleep(BEAT_SECONDS)

    async def wait_cancelled(self) -> None:
        await self._actor.wait_cancelled.remote()


class _Node:
    """The actor of a node: it opens what is asked with the first row, and closes it at the end."""

    def __init__(
        self,
        opener: Opener,
        control: Any,  # noqa: ANN401 - an actor of Ray
        is_limited: bool = True,  # noqa: FBT001, FBT002 - Ray passes it by its place
    ) -> None:
        self._opener = opener
        self._control = None if control is None else _RemoteControl(control, secrets.token_hex(8))
        self._budget = self._control if is_limited else None
        self._ask: Ask | None = None
        self._opening = asyncio.Lock()
        self._open = AsyncExitStack()
        self._watching: list[asyncio.Task[None]] = []
        self._asking: set[asyncio.Task[Any]] = set()

    async def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        self._loop = asyncio.get_running_loop()
        self._watch()
        tasks = [asyncio.create_task(self._result(pickle.loads(row))) for row in batch["row"]]  # noqa: S301
        self._asking.update(tasks)
        try:
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            self._asking.difference_update(tasks)
        # Only a job that was cancelled ends a row with an exception, and nobody takes its results.
        results = [None if isinstance(outcome, BaseException) else outcome for outcome in outcomes]
        return {"number": batch["number"], "result": [pickle.dumps(result) for result in results]}

    def _watch(self) -> None:
        """Give signs of life from the first block on, and look for the end of the job."""
        if self._control is None or self._watching:
            return
        self._watching = [
            asyncio.create_task(self._control.beat()),
            asyncio.create_task(self._end_when_cancelled(self._control)),
        ]

    async def _end_when_cancelled(self, control: _RemoteControl) -> None:
        await control.wait_cancelled()
        for task in self._asking:
            task.cancel()

    async def _result(self, row: Any) -> Any:  # noqa: ANN401 - what the job is about
        """Return what became of a row; None where the budget has no room or the job is stopped.

        Raises nothing unless it is cancelled: others are in its block.
        """
        if self._control is not None and not await self._control.start():
            return None
        cost = None
        try:
            async with self._opening:
                if self._ask is None:
                    self._ask = await self._open.enter_async_context(self._opener(self._budget))
            result = await self._ask(row)
            cost = result.cost
        except ConductorError as error:
            return replace(error.failure, message=f"on a node of Ray: {error.message}")
        except Exception as error:  # noqa: BLE001 - a fault of one row
            message = f"on a node of Ray: {type(error).__name__}: {error}"
            return Failure(kind="internal", message=message[:500])
        finally:
            if self._control is not None:
                await self._control.finish(cost)
        return result

    def __del__(self) -> None:  # Ray's way to say that no row will come
        for task in self._watching:
            self._loop.call_soon_threadsafe(task.cancel)
        if self._ask is not None:
            asyncio.run_coroutine_threadsafe(self._open.aclose(), self._loop).result(30)

"""Whether a balancer may send requests to this server, and how a server leaves a balancer.

No request fails for that.

`/livez` asks nobody: a server whose database is away needs no restart. `/readyz` asks the state and
the planner. When the server is told to end, it says at once that it is not ready, and goes on to
take requests until every balancer that has asked lately has been told so, three times, as HAProxy
and Kubernetes want to hear it by default. Where nobody has asked, it does not wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from conductor_cli.app.opening import open_planner
from conductor_cli.core.errors import ConductorError
from conductor_cli.models.base import BehindServer
from conductor_cli.state.opening import open_state
from conductor_cli.system.threads import SharedThreads

if TYPE_CHECKING:
    from conductor_cli.server.runs.run_starter import RunStarter

log = logging.getLogger(__name__)

REFUSAL_COUNT: Final = 3  # How often a balancer is told that a server leaves
# Threads of its own: what clients have others do must not make a balancer take the server out
_STATE_CHECKS: Final = SharedThreads("readiness", 1)
# Who has not asked again for so long is no balancer
BALANCER_SECONDS: Final = 30.0


class Readiness:
    """Answers for the runs of one server."""

    def __init__(self, starter: RunStarter) -> None:
        self._starter = starter
        self._askers: dict[str, tuple[float, int]] = {}
        """When somebody asked last whether the server is ready, and how often it was told that it
        leaves.
        """
        self._leaves = False
        self._all_told = asyncio.Event()
        self._parts = (
            _Part("state", self._state_problem, 1.0),
            _Part("planner", self._planner_problem, 5.0),
        )

    async def missing(self, asker: str) -> list[str]:
        """Return what is missing, which a log explains: nothing where the server is ready.

        `asker` is an address.
        """
        now = asyncio.get_running_loop().time()
        self._askers = {
            name: answered
            for name, answered in self._askers.items()
            if now - answered[0] <= BALANCER_SECONDS
        }
        count = self._askers.get(asker, (now, 0))[1] + self._leaves
        self._askers[asker] = now, count
        if self._leaves:
            self._look_who_waits()
            return ["server"]
        return [part.name for part in self._parts if not await part.is_there()]

    async def leave(self, seconds: float) -> None:
        """Be not ready from now on; return when every balancer knows, or after these seconds."""
        self._leaves = True
        self._look_who_waits()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._all_told.wait()

    def hurry(self) -> None:
        """Wait for no balancer any more."""
        self._all_told.set()

    def _look_who_waits(self) -> None:
        now = asyncio.get_running_loop().time()
        if all(
            count >= REFUSAL_COUNT or now - asked_at > BALANCER_SECONDS
            for asked_at, count in self._askers.values()
        ):
            self._all_told.set()

    async def _state_problem(self) -> str:
        def find() -> str:
            with closing(open_state(self._starter.settings().paths).spending()) as spending:
                return spending.find_problem()

        return await _STATE_CHECKS.run(find)

    async def _planner_problem(self) -> str:
        model = open_planner(self._starter.settings(), self._starter.loaded)
        if isinstance(model, BehindServer) and not await model.reaches_server(2.0):
            return "its server does not answer"
        return ""


@dataclass
class _Part:
    """Something that a server needs.

    `ask` returns why it is not there; its answer holds for so many seconds.
    """

    name: str
    ask: Callable[[], Awaitable[str]]
    seconds: float
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    problem: str = ""
    until: float = 0.0

    async def is_there(self) -> bool:
        """Return whether it is there. However many ask, one of them looks."""
        loop = asyncio.get_running_loop()
        async with self.turn:
            if loop.time() >= self.until:
                before = self.problem
                try:
                    self.problem = await self.ask()
                except ConductorError as error:
                    self.problem = error.message
                if self.problem != before:
                    log.warning("the %s: %s", self.name, self.problem or "it is there again")
                self.until = loop.time() + self.seconds
        return not self.problem

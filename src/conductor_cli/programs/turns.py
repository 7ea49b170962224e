"""Places for what takes long, which clients get by turns.

A server works for several clients, and each shares its processes, threads and files with the
others. Whoever asks for much waits behind themselves: a place that becomes free goes to the client
whose turn it is, and one client never holds the last place beside others that it holds. asyncio
only; not for threads.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

CURRENT_CLIENT: Final = ContextVar("current_client", default="")
"""For whom this task works; empty where there is one user alone, who may take every place."""

CHILDREN: Final = max(2, min(4, os.cpu_count() or 2))
"""How many processes work for clients at once, of each kind: more would only wait for processors,
and with them the server itself.
"""

SHARE_OF_FREE: Final = 3
"""How many times the places that are still free one client may hold: alone at most three quarters.

Switches divide their buffers among their ports by this rule (dynamic thresholds, Choudhury and
Hahne 1998).
"""


class FairPlaces:
    """So many places of one event loop.

    A client is a text; the empty one is not limited. `async with` holds a place for the client of
    the task.
    """

    def __init__(self, count: int) -> None:
        self.free = count
        self._held = Counter[str]()
        # Those that wait, by client. The first client is the next one
        self._waiting = OrderedDict[str, OrderedDict[asyncio.Future[None], None]]()

    def held_by(self, client: str) -> int:
        """Return how many places a client holds."""
        return self._held[client]

    def take(self, client: str) -> bool:
        """Take a place without waiting; False where there is none for this client now."""
        if not self._may_take(client):
            return False
        self.free -= 1
        self._held[client] += 1
        return True

    def give_back(self, client: str) -> None:
        """Give back a place that was taken; who waits for it may get it."""
        self.free += 1
        self._held[client] -= 1
        if not self._held[client]:
            del self._held[client]
        while self._grant_next():
            pass

    async def __aenter__(self) -> None:
        """Wait for a place for the client of this task."""
        await self.wait_for(CURRENT_CLIENT.get())

    async def __aexit__(self, *_: object) -> None:
        self.give_back(CURRENT_CLIENT.get())

    @asynccontextmanager
    async def held(self, client: str) -> AsyncIterator[None]:
        """Wait for a place for a client, and hold it."""
        await self.wait_for(client)
        try:
            yield
        finally:
            self.give_back(client)

    async def wait_for(self, client: str) -> None:
        """Wait for a place and take it. It is given back with `give_back`."""
        if not self.take(client):
            await self._wait_for_turn(client)

    def _may_take(self, client: str) -> bool:
        held = self._held[client]
        if not client or held == 0:
            return self.free > 0
        is_last = self.free == 1
        return not is_last and held < SHARE_OF_FREE * self.free

    async def _wait_for_turn(self, client: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, OrderedDict())[turn] = None
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(client, turn)
            else:  # it was granted before
                self.give_back(client)
            raise

    def _forget(self, client: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting[client]
        del turns[turn]
        if not turns:
            del self._waiting[client]

    def _grant_next(self) -> bool:
        """Grant a place to the client whose turn it is, who then comes last."""
        for client in self._waiting:
            turn = self._oldest_turn(client)
            if turn is not None and self.take(client):
                self._waiting.move_to_end(client)
                self._forget(client, turn)
                turn.set_result(None)
                return True
        return False

    def _oldest_turn(self, client: str) -> asyncio.Future[None] | None:
        """Return the turn for which a client waits longest; None where all are cancelled.

        Whoever was cancelled is still in the list until their task goes on.
        """
        for turn in self._waiting[client]:
            if not turn.done():
                return turn
        return None


class SharedPlaces:
    """So many places of each event loop, which the clients of its tasks share."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._of_loops = WeakKeyDictionary[asyncio.AbstractEventLoop, FairPlaces]()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Wait for a place for the client of this task, and hold it."""
        give_back = await self.take()
        try:
            yield
        finally:
            give_back()

    async def take(self) -> Callable[[], None]:
        """Wait for a place for the client of this task; returns what gives it back."""
        loop = asyncio.get_running_loop()
        places = self._of_loops.get(loop)
        if places is None:
            places = FairPlaces(self._count)
            self._of_loops[loop] = places
        client = CURRENT_CLIENT.get()
        await places.wait_for(client)
        return partial(places.give_back, client)

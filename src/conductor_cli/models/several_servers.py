"""One model behind several servers: each call goes to the one with the fewest calls.

One that fails is left out. A server that could not be reached, or had no room, is asked for its
models now and then until it answers. Where all of them fail, each is tried again.

The addresses stand in one URL, because trace, policy and settings know a worker by its address
already.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.errors import ModelError
from conductor_cli.models.base import Features, ReplyReader
from conductor_cli.models.chat_api_model import ChatApiModel
from conductor_cli.models.structured_output import Constraint

LOOK_SECONDS: Final = 5.0  # between two questions whether a server that failed is back


@dataclass(eq=False, slots=True)
class _Server:
    """One of the servers. `calls` are under way; it is left out while it `is_down`."""

    model: ChatApiModel
    calls: int = 0
    is_down: bool = False


class SeveralServers:
    """The model as a run knows it. All of `models` have the same weights and settings. Close it."""

    def __init__(self, models: Sequence[ChatApiModel]) -> None:
        self._servers = [_Server(model) for model in models]
        self.features: Features = models[0].features
        self._looking: asyncio.Task[None] | None = None

    def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """Yield the reply of one server, of the next one where it fails before its first word."""
        return self._stream(lambda model: model.stream(request))

    def stream_to(self, reader: ReplyReader, request: Request) -> AsyncGenerator[Chunk, None]:
        """Yield the same, without the pieces of text that `reader` was given."""
        return self._stream(lambda model: model.stream_to(reader, request))

    async def _stream(
        self, stream_of: Callable[[ChatApiModel], AsyncGenerator[Chunk, None]]
    ) -> AsyncGenerator[Chunk, None]:
        tried = set[_Server]()
        while True:
            left = [server for server in self._servers if server not in tried]
            server = min(left, key=lambda server: (server.is_down, server.calls))
            tried.add(server)
            is_silent = True
            server.calls += 1
            try:
                async with aclosing(stream_of(server.model)) as chunks:
                    async for chunk in chunks:
                        is_silent = False
                        server.is_down = False
                        yield chunk
            except ModelError as error:
                if error.retryable:
                    self._leave_out(server)
                # Where tokens were used, there is no room for those of another call.
                may_try_next = error.retryable and is_silent and error.usage is None
                if not may_try_next or len(tried) == len(self._servers):
                    raise
            else:
                return
            finally:
                server.calls -= 1

    async def constraint_support(self) -> Constraint:
        """Return what the servers hold a reply to. Raises nothing."""
        return await self._first().model.constraint_support()

    async def chosen_model(self) -> str:
        """Return the model that is asked for; empty where that is not known. Raises nothing."""
        return await self._first().model.chosen_model()

    async def reaches_server(self, seconds: float) -> bool:
        """Return whether one of the servers answers within so many seconds. Raises nothing."""

        async def look(server: _Server) -> bool:
            if not await server.model.reaches_server(seconds):
                self._leave_out(server)
            return not server.is_down

        return any(await asyncio.gather(*map(look, self._servers)))

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        closings = [server.model.close() for server in self._servers]
        await asyncio.gather(*closings, return_exceptions=True)

    def _first(self) -> _Server:
        return min(self._servers, key=lambda server: server.is_down)

    def _leave_out(self, server: _Server) -> None:
        server.is_down = True
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        """Ask the servers that are left out until all of them are back."""
        while down := [server for server in self._servers if server.is_down]:
            await asyncio.sleep(LOOK_SECONDS)
            for server in down:
                server.is_down = not await server.model.reaches_server(2.0)

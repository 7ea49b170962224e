"""The models of `conductor serve` within this process, without a socket: what a plugin asks.

A harness calls from any thread and from any event loop, and closes nothing. So the runs have an
event loop of their own, on a thread that ends with the process.
"""

from __future__ import annotations

import asyncio
import atexit
import time
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import cache, partial
from threading import Lock
from typing import Any, Final

from anyio.from_thread import BlockingPortal, start_blocking_portal

from conductor_cli.core.errors import ConductorError
from conductor_cli.run.orchestra import new_run_id
from conductor_cli.server.api.body_models import require_schema
from conductor_cli.server.api.chat_completions import ChatCompletionsApi
from conductor_cli.server.api.errors import request_error
from conductor_cli.server.api.request import RequestError
from conductor_cli.server.options import ServerOptions
from conductor_cli.server.runs.conversation import client_calls
from conductor_cli.server.runs.narration import outcome_of
from conductor_cli.server.runs.run_request import build_job
from conductor_cli.server.runs.run_starter import RunStarter

API: Final = ChatCompletionsApi()

SHORT_NAMES: Final[Mapping[str, str]] = {
    "auto": "conductor",
    "mini": "conductor-mini",
    "ultra": "conductor-ultra",
}
"""The modes, where a harness writes `conductor/MODE`. Any other name is a model of the server, such
as a pool.
"""


class InProcessServer:
    """Answers bodies of Chat Completions.

    It can be used from any thread, and is closed when the process ends.
    """

    def __init__(self, options: ServerOptions) -> None:
        self._options = options
        self._lock = Lock()
        self._thread = ExitStack()
        self._portal: BlockingPortal | None = None
        # The rest is used on the thread of the runs only.
        self._starter = RunStarter(options)
        self._going_on: set[asyncio.Task[Any]] = set()

    async def answer(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the whole response, with its `conductor` object, in any event loop.

        Raises `RequestError`.

        Where the caller is cancelled, the run is stopped, and its trace has its end before this
        returns.
        """
        response: dict[str, Any] = await self._open().call_async(self._answer, body)
        return response

    def close(self) -> None:
        """Stop what still runs, and close the models."""
        with self._lock:
            if self._portal is not None:
                self._portal.call(self._end)
            self._portal = None
            self._thread.close()

    def _open(self) -> BlockingPortal:
        with self._lock:
            if self._portal is None:
                self._portal = self._thread.enter_context(
                    start_blocking_portal(name="conductor runs")
                )
                atexit.register(self.close)
            return self._portal

    async def _answer(self, body: Mapping[str, Any]) -> dict[str, Any]:
        task = asyncio.current_task()
        run = new_run_id(datetime.now(UTC))
        created = int(time.time())
        assert task is not None
        self._going_on.add(task)
        try:
            request = API.parse(body)
            await require_schema(request)
            ended = await self._starter.perform(
                await build_job(self._starter, request, run), lambda *_: None
            )
            sign = partial(client_calls, ids=self._starter.call_ids)
            outcome = outcome_of(ended.trace, sign=sign)
            if isinstance(outcome, RequestError):
                raise outcome
            return API.encoder(request, run, created).whole(outcome)
        except ConductorError as error:
            raise request_error(error.failure, run) from None
        finally:
            self._going_on.discard(task)

    async def _end(self) -> None:
        going_on = [*self._going_on]
        for task in going_on:
            task.cancel()
        await asyncio.gather(*going_on, return_exceptions=True)
        await self._starter.close()


@cache
def shared_server(*, rehearsal: bool = False, config: str | None = None) -> InProcessServer:
    """Return one server for all models of a process, which share what is open."""
    return InProcessServer(ServerOptions(flags={}, rehearsal=rehearsal, config=config))

"""Runs that another process drives, as their clients read them: from the trace, also while it is written.

So a response is there on every replica over one state, and so is what answers a request with an `Idempotency-Key`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

from conductor_cli.core import events as ev
from conductor_cli.core.errors import UsageError
from conductor_cli.core.trace import Trace, apply_event
from conductor_cli.run.conductor import new_run_id
from conductor_cli.server.access import Principal
from conductor_cli.server.api.request import RequestError
from conductor_cli.server.conversation import client_calls
from conductor_cli.server.narration import ResponseStream
from conductor_cli.server.run_registry import RunRegistry, ServedRun
from conductor_cli.state.home import open_state
from conductor_cli.state.interfaces import TraceReader

LOOK_SECONDS: Final = 0.25
"""Time between two looks at a trace."""

UNREAD_SECONDS: Final = 60.0
"""How long a run is followed that nobody reads."""

BEGIN_SECONDS: Final = 60.0
"""How long a run that another replica has announced may take to begin: it may wait for its turn."""

_MODELS: Final = {"mini": "conductor-mini", "ultra": "conductor-ultra"}
"""The model that a run of a mode is said to come from, where only its trace is known."""

_RUN: Final = re.compile(r"[\w-]{1,80}")


class FollowedRuns:
    """The runs that a server reads for its clients, beside those of its registry."""

    def __init__(self, registry: RunRegistry) -> None:
        self._registry = registry
        self._tasks: dict[str, tuple[ServedRun, asyncio.Task[None]]] = {}

    async def find(self, run: str, client: Principal) -> ServedRun | None:
        """Return a run that this client asked for, wherever it is or was driven; None where there is none."""
        if (served := self._registry.find(run)) is None and run in self._tasks:
            served, _ = self._tasks[run]
        if served is not None:
            return served if served.origin == client.origin else None
        if not _RUN.fullmatch(run):
            return None
        reader = open_state(self._registry.runs.settings().paths).traces.follow(run)
        try:
            events, goes_on = await asyncio.to_thread(_read_on, reader)
        except OSError:
            return None
        first = events[0] if events else None
        if not isinstance(first, ev.RunStarted) or first.run != run or not client.asked_for(first):
            return None
        served = self._made(first, client)
        trace = _shown(served, Trace(), events)
        while not trace.ended and goes_on and events:  # all that is there by now
            events, goes_on = await asyncio.to_thread(_read_on, reader)
            trace = _shown(served, trace, events)
        if trace.ended or not goes_on:
            served.end(served.stream.outcome(served.reasoning))
        elif run not in self._tasks:
            self._tasks[run] = served, asyncio.create_task(self._follow(served, reader, trace))
        return served

    async def claim(self, client: Principal, name: str, request: str) -> ServedRun | str:
        """Return the run that answers the request of this `Idempotency-Key`, or the id of the one that is to do so.

        A run that failed answers nothing: who asks again wants another try. Raises `RequestError` of status 409 where
        the client has used the key for another `request`, which is a hash.
        """
        state, run, instead_of = open_state(self._registry.runs.settings().paths), new_run_id(datetime.now(UTC)), ""
        key = hashlib.sha256(json.dumps([client.origin, name]).encode("utf-8", "replace")).hexdigest()
        while True:
            try:
                found, age = await asyncio.to_thread(state.claim_request, key, request, run, instead_of)
            except UsageError as error:
                raise RequestError(409, "idempotency_key_reused", error.message) from None
            if found == run:
                return run
            served = await self.find(found, client)
            if served is not None and not isinstance(served.ended, RequestError):
                return served
            if served is not None or age > BEGIN_SECONDS:
                instead_of = found
            else:
                await asyncio.sleep(LOOK_SECONDS)

    def _made(self, first: ev.RunStarted, client: Principal) -> ServedRun:
        stream = ResponseStream(sign=partial(client_calls, ids=self._registry.runs.call_ids))
        model = _MODELS.get(first.mode, "conductor")
        served = ServedRun(first.run, "", stream, origin=client.origin, model=model)
        served.created = int(datetime.fromisoformat(first.time).timestamp())
        if (talk := first.question.conversation) is not None:
            served.keep_namespaces(talk.tools)
        return served

    async def _follow(self, served: ServedRun, reader: TraceReader, trace: Trace) -> None:
        """Show what comes, until the run has ended or nobody reads it for a while."""
        loop = asyncio.get_running_loop()
        read_at = loop.time()
        try:
            while loop.time() - read_at < UNREAD_SECONDS:
                try:
                    events, goes_on = await asyncio.to_thread(_read_on, reader)
                except OSError:  # it was deleted
                    events, goes_on = [], False
                trace = _shown(served, trace, events)
                if trace.ended or not (events or goes_on):
                    served.end(served.stream.outcome(served.reasoning))
                    return
                read_at = loop.time() if served.readers else read_at
                if not events:
                    await asyncio.sleep(LOOK_SECONDS)
        finally:
            del self._tasks[served.id]


def _read_on(reader: TraceReader) -> tuple[list[ev.Event], bool]:
    """Return the next events, and whether more may come. Raises `OSError`."""
    live = reader.is_written()
    events = reader.read() if reader.is_behind() else []
    return events, live or bool(events)


def _shown(served: ServedRun, trace: Trace, events: Sequence[ev.Event]) -> Trace:
    """Show events after `trace`, and return the trace after them."""
    for event in events:
        trace = apply_event(trace, event)
        served.show(event, trace)
    return trace

"""Responses by their id, and runs that another process drives, as their clients read them.

From the trace.

So a response is there on every replica over one state, and so is what answers a request with an
`Idempotency-Key`. Where that process is gone, this one takes over the runs whose clients have asked
for it. A client sees the responses that it asked for itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from starlette.routing import Route

from conductor_cli.app.driver import ALWAYS
from conductor_cli.core import events as ev
from conductor_cli.core.errors import StateUnavailable, UsageError
from conductor_cli.core.trace import Trace, apply_event
from conductor_cli.run.orchestra import new_run_id
from conductor_cli.server.api.body_faults import refused
from conductor_cli.server.api.request import ClientRequest, RequestError, ServedAnswer
from conductor_cli.server.api.responses import ResponsesApi
from conductor_cli.server.api.responses_encoder import RESPONSE, ResponsesEncoder
from conductor_cli.server.http.access import Principal, describe_error, principal_of
from conductor_cli.server.http.answers import RunAnswer, answering
from conductor_cli.server.runs.conversation import client_calls
from conductor_cli.server.runs.narration import ResponseStream
from conductor_cli.server.runs.run_registry import RunRegistry, ServedRun
from conductor_cli.state.interfaces import ClaimsRequests, TraceReader
from conductor_cli.state.opening import FileState, open_state

if TYPE_CHECKING:
    from starlette.requests import Request

    from conductor_cli.state.postgres.records import Leases, LeftRun

LOOK_SECONDS: Final = 0.25  # Time between two looks at a trace
WATCH_SECONDS: Final = 0.5  # Time between two looks at the runs of other servers

PATH: Final = "/v1/responses/{response}"

log = logging.getLogger(__name__)

_MODELS: Final = {"mini": "conductor-mini", "ultra": "conductor-ultra"}
"""The model that a run of a mode is said to come from, where only its trace is known."""

_RUN: Final = re.compile(r"[\w-]{1,80}")

_REASONING_PREFIX: Final = "rs"
_ITEM_ID: Final = re.compile(r"(rs|msg|fc|ctc|lsh|sh|apc)_([\w-]{1,80})_\d{1,6}", re.ASCII)
"""The id of an item of a response: what it is, the run, and its number."""


class FollowedRuns:
    """The runs that a server reads beside those of its registry, and the routes for one response.

    `take_over` takes a run over.
    """

    def __init__(
        self, registry: RunRegistry, take_over: Callable[[LeftRun], Awaitable[ServedRun]]
    ) -> None:
        self._registry = registry
        self._take_over = take_over
        self._tasks: dict[str, tuple[ServedRun, asyncio.Task[None]]] = {}

    @property
    def routes(self) -> list[Route]:
        return [
            Route(PATH, answering(self._get), methods=["GET"]),
            Route(PATH, answering(self._delete), methods=["DELETE"]),
            Route(f"{PATH}/cancel", answering(self._cancel), methods=["POST"]),
        ]

    async def watch(self) -> None:
        """Take over runs of other servers, where the state has any, until this is cancelled."""
        leases = self._registry.starter.leases
        while leases is not None:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                await self._look_at_leases(leases)
            except StateUnavailable:
                await asyncio.sleep(6.0)  # those who have runs renew their leases first
            except Exception as error:  # noqa: BLE001
                # One run must not keep the server from all others. The error may quote a prompt
                log.error("the runs of other servers: %s", describe_error(error))  # noqa: TRY400

    async def _look_at_leases(self, leases: Leases) -> None:
        """Give up runs that others have, stop those that are unwanted, take over what is left."""
        lost, unwanted = await asyncio.to_thread(leases.look)
        for run in lost:
            self._registry.lose(run)
        for run in unwanted:
            self._registry.cancel(run)
        free = self._registry.free_places
        if not free:
            return
        for left in await asyncio.to_thread(leases.take, free):
            try:
                served = await self._take_over(left)
                served.outlives_clients = True
            except Exception as error:  # noqa: BLE001
                # Whatever is wrong with the run, nobody is to wait for it
                log.warning("run %s cannot go on: %s", left.run, describe_error(error))
                may_go_on_elsewhere = isinstance(error, RequestError) and error.retry_after
                give_up = leases.hand_over if may_go_on_elsewhere else leases.withdraw
                await asyncio.to_thread(give_up, left.run)

    async def find(self, run: str, client: Principal) -> ServedRun | None:
        """Return a run that this client asked for, wherever it is or was driven.

        None where there is none.
        """
        served = self._registry.find(run)
        if served is None and run in self._tasks:
            served, _ = self._tasks[run]
        if served is not None:
            return served if served.origin == client.origin else None
        if not _RUN.fullmatch(run):
            return None
        return await self._begin_to_follow(run, client)

    async def _begin_to_follow(self, run: str, client: Principal) -> ServedRun | None:
        """Read a run that another server drives, or drove; None where it is not the client's."""
        reader = open_state(self._registry.starter.settings().paths).traces.follow(run)
        events, may_have_more, job = await self._read_on(run, reader)
        model = ""
        if job:
            announced = json.loads(job)
            model = announced["body"]["model"]
            is_clients = announced["origin"] == client.origin
        else:
            is_clients = bool(events) and _is_start(events[0], run, client)
        if not is_clients:
            return None
        stream = ResponseStream(sign=partial(client_calls, ids=self._registry.starter.call_ids))
        served = ServedRun(run, "", stream, origin=client.origin, model=model)
        trace = show_events(served, Trace(), events)
        while not trace.ended and may_have_more and events:  # all that is there by now
            events, may_have_more, _ = await self._read_on(run, reader)
            trace = show_events(served, trace, events)
        if trace.ended or not may_have_more:
            served.end(served.stream.outcome(served.reasoning))
            return served
        if run not in self._tasks:  # else somebody else has begun to follow it meanwhile
            self._tasks[run] = served, asyncio.create_task(self._follow(served, reader, trace))
        return self._tasks[run][0]

    async def claim(self, client: Principal, name: str, request: str) -> ServedRun | str:
        """Return the run that answers the request of this `Idempotency-Key`.

        Where there is none yet, it is the id of the one that is to do so. A run that failed answers
        nothing: who asks again wants another try. Raises `RequestError` of status 409 where the
        client has used the key for another `request`, which is a hash.
        """
        starter = self._registry.starter
        state = open_state(starter.settings().paths)
        claims: ClaimsRequests = state
        if isinstance(state, FileState) and starter.options.siblings is not None:
            claims = state.claims
        run = new_run_id(datetime.now(UTC))
        instead_of = ""
        key = hashlib.sha256(
            json.dumps([client.origin, name]).encode("utf-8", "replace")
        ).hexdigest()
        while True:
            try:
                claimed, age = await asyncio.to_thread(
                    claims.claim_request, key, request, run, instead_of
                )
            except UsageError as error:
                raise RequestError(409, "idempotency_key_reused", error.message) from None
            if claimed == run:
                return run
            served = await self.find(claimed, client)
            if served is not None and not isinstance(served.ended, RequestError):
                return served
            if served is not None or age > 60.0:  # it may wait for its turn as long
                instead_of = claimed
            else:
                await asyncio.sleep(LOOK_SECONDS)

    async def _get(self, http: Request) -> dict[str, Any] | RunAnswer:
        """Return a response, or with `stream` its events.

        The events are all, or those after `starting_after` or `Last-Event-ID`.
        """
        served = await self._run_of(http)
        if http.query_params.get("stream") == "true":
            last = http.headers.get("last-event-id", "-1").removeprefix(f"{RESPONSE}{served.id}:")
            after = http.query_params.get("starting_after", last)
            if not re.fullmatch(r"-1|\d{1,15}", after, re.ASCII):
                raise refused("starting_after", "must be the number of an event")
            request = replace(_request(served), stream=True, after=int(after))
            return RunAnswer(self._registry, served, ResponsesApi(), request, http.url.path)
        return response_object(served)

    async def _delete(self, http: Request) -> dict[str, Any]:
        """Delete what is kept of a response, its trace too, unless every trace must be kept."""
        served = await self._run_of(http)
        settings = self._registry.starter.settings()
        if served.ended is None or not served.is_stored:
            raise _unknown(served.id)
        if settings["traces.keep"] == ALWAYS:
            raise RequestError(403, "policy", "responses cannot be deleted: traces.keep is always")
        await asyncio.to_thread(open_state(settings.paths).traces.remove, served.id)
        self._registry.forget(served.id)
        return {"id": f"{RESPONSE}{served.id}", "object": "response", "deleted": True}

    async def _cancel(self, http: Request) -> dict[str, Any]:
        served = await self._run_of(http)
        leases = self._registry.starter.leases
        is_in_background = served.outlives_clients or served.echo.get("background") is True
        if served.ended is not None and not is_in_background:
            message = "the response has ended, so there is nothing to cancel"
            raise RequestError(400, "response_has_ended", message)
        stopped = self._registry.cancel(served.id)
        if not stopped and served.ended is None:
            siblings = self._registry.starter.options.siblings
            if leases is not None:
                stopped = await asyncio.to_thread(leases.stop, served.id)
            elif siblings is not None:
                siblings.stop(served.id)
                stopped = True
        return response_object(served, "cancelled" if stopped else "")

    async def _run_of(self, http: Request) -> ServedRun:
        """Return the run of a request, also one of another replica. Raises `RequestError`."""
        response = str(http.path_params["response"])
        run = response.removeprefix(RESPONSE)
        if run == response:
            raise _unknown(run)
        served = await self.find(run, principal_of(http.scope))
        if served is None or not served.may_be_read_again:
            raise _unknown(run)
        return served

    async def with_items(self, body: Mapping[str, Any], client: Principal) -> Mapping[str, Any]:
        """Return the body of a request to Responses with the items that it refers to by their ids.

        The SDK of Vercel sends the items of earlier responses so. References to reasoning are left
        out, as the reasoning itself is. What is not kept stays a reference, which is refused when
        the body is read.
        """
        resolved = list[Any]()
        outputs = dict[str, list[dict[str, Any]]]()
        for item in body["input"]:
            reference = None
            if _is_reference(item):
                reference = _ITEM_ID.fullmatch(str(item.get("id")))
            if reference is None:
                resolved.append(item)
                continue
            prefix, run = reference.groups()
            if prefix == _REASONING_PREFIX:
                continue
            if run not in outputs:
                served = await self.find(run, client)
                is_there = served is not None and served.may_be_read_again
                outputs[run] = response_object(served)["output"] if served and is_there else []
            named = [kept for kept in outputs[run] if kept["id"] == item["id"]]
            resolved.append(named[0] if named else item)
        return {**body, "input": resolved}

    async def _read_on(self, run: str, reader: TraceReader) -> tuple[list[ev.Event], bool, str]:
        """Return the next events, whether more may come, and the job of a run to be begun."""

        def read() -> tuple[list[ev.Event], bool, str]:
            live = reader.is_written()
            try:
                events = reader.read() if reader.is_behind() else []
            except OSError:  # it was deleted, or is still to begin
                leases = self._registry.starter.leases
                job = "" if leases is None else leases.job(run)
                return [], bool(job), job
            return events, live or bool(events), ""

        return await asyncio.to_thread(read)

    async def _follow(self, served: ServedRun, reader: TraceReader, trace: Trace) -> None:
        """Show what comes, until the run has ended or nobody reads it for a while."""
        loop = asyncio.get_running_loop()
        read_at = loop.time()
        try:
            while loop.time() - read_at < 60.0:
                events, may_have_more, _ = await self._read_on(served.id, reader)
                trace = show_events(served, trace, events)
                if trace.ended or not (events or may_have_more):
                    served.end(served.stream.outcome(served.reasoning))
                    return
                read_at = loop.time() if served.readers else read_at
                if not events:
                    await asyncio.sleep(LOOK_SECONDS)
        finally:
            del self._tasks[served.id]


def has_references(body: Mapping[str, Any]) -> bool:
    """Return whether the body of a request refers to items of responses by their ids."""
    items = body.get("input")
    return isinstance(items, list) and any(_is_reference(item) for item in items)


def _is_reference(item: object) -> bool:
    if not isinstance(item, dict):
        return False
    # OpenAI's document lets the type be left out or null
    is_bare = item.get("type") is None and item.keys() <= {"id", "type"} and "id" in item
    return item.get("type") == "item_reference" or is_bare


def _is_start(event: ev.Event, run: str, client: Principal) -> bool:
    return isinstance(event, ev.RunStarted) and event.run == run and client.asked_for(event)


def show_events(served: ServedRun, trace: Trace, events: Sequence[ev.Event]) -> Trace:
    """Show events after `trace`, and return the trace after them."""
    for event in events:
        if isinstance(event, ev.RunStarted):
            served.model = served.model or _MODELS.get(event.mode, "conductor")
            served.created = int(datetime.fromisoformat(event.time).timestamp())
            if (talk := event.question.conversation) is not None:
                served.keep_request(talk)
        trace = apply_event(trace, event)
        served.show(event, trace)
    return trace


def _unknown(run: str) -> RequestError:
    shown = "?"
    if run.isascii() and run.isprintable():
        shown = run[:80]
    return RequestError(
        404, "response_not_found", f"there is no response with the id {RESPONSE}{shown}"
    )


def _request(served: ServedRun) -> ClientRequest:
    return ClientRequest(
        model=served.model,
        messages=(),
        tools=served.tools,
        background=served.outlives_clients,
        echo=served.echo,
        ignored=served.ignored,
    )


def response_object(served: ServedRun, status: str = "") -> dict[str, Any]:
    """Return the response as far as it has come; with this status, where there is one."""
    encoder = ResponsesEncoder(_request(served), served.id, served.created)
    ended = served.ended
    if status == "cancelled":
        return encoder.response(status)
    if isinstance(ended, ServedAnswer):
        return encoder.whole(ended)
    if ended is None:
        return encoder.response("in_progress" if served.began.is_set() else "queued")
    if ended.code == "cancelled":
        error = {"code": "server_error", "message": ended.message}
        return encoder.response(ended.code) | {"error": error}
    return encoder.failed_response(ended)

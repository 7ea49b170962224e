"""Responses by their id: look one up, delete it, cancel it. A client sees those that it asked for itself."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from starlette.routing import Route

from conductor_cli.app.driver import ALWAYS
from conductor_cli.server.access import principal_of
from conductor_cli.server.answers import RunAnswer, answering
from conductor_cli.server.api.bodies import refused
from conductor_cli.server.api.request import ClientRequest, RequestError, ServedAnswer
from conductor_cli.server.api.responses import RESPONSE, ResponsesApi, ResponsesEncoder
from conductor_cli.server.followed_runs import FollowedRuns
from conductor_cli.server.run_registry import RunRegistry, ServedRun
from conductor_cli.state.home import open_state

if TYPE_CHECKING:
    from starlette.requests import Request

PATH: Final = "/v1/responses/{response}"


class StoredResponses:
    """The routes for one response. One that this server does not drive is read from its trace."""

    def __init__(self, registry: RunRegistry, followed: FollowedRuns) -> None:
        self._registry = registry
        self._followed = followed

    @property
    def routes(self) -> list[Route]:
        return [
            Route(PATH, answering(self._get), methods=["GET"]),
            Route(PATH, answering(self._delete), methods=["DELETE"]),
            Route(f"{PATH}/cancel", answering(self._cancel), methods=["POST"]),
        ]

    async def _get(self, http: Request) -> dict[str, Any] | RunAnswer:
        """A response, or with `stream` its events: all, or those after `starting_after` or `Last-Event-ID`."""
        served = await self._found(http)
        if http.query_params.get("stream") == "true":
            last = http.headers.get("last-event-id", "-1").removeprefix(f"{RESPONSE}{served.id}:")
            after = http.query_params.get("starting_after", last)
            if not re.fullmatch(r"-1|\d{1,15}", after, re.ASCII):
                raise refused("starting_after", "must be the number of an event")
            request = replace(_request(served), stream=True, after=int(after))
            return RunAnswer(self._registry, served, ResponsesApi(), request, http.url.path)
        return told(served)

    async def _delete(self, http: Request) -> dict[str, Any]:
        """Delete what is kept of a response, its trace too, unless the user wants every trace to be kept."""
        served, settings = await self._found(http), self._registry.runs.settings()
        if served.ended is None or not served.is_stored:
            raise _unknown(served.id)
        if settings["traces.keep"] == ALWAYS:
            raise RequestError(403, "policy", "responses cannot be deleted: traces.keep is always")
        await asyncio.to_thread(open_state(settings.paths).traces.remove, served.id)
        self._registry.forget(served.id)
        return {"id": f"{RESPONSE}{served.id}", "object": "response", "deleted": True}

    async def _cancel(self, http: Request) -> dict[str, Any]:
        served = await self._found(http)
        leases = self._registry.runs.leases
        if self._registry.cancel(served.id) or (
            served.ended is None and leases is not None and await asyncio.to_thread(leases.stop, served.id)
        ):
            return told(served, "cancelled")
        return told(served)

    async def _found(self, http: Request) -> ServedRun:
        """The run of a request, also one of another replica. Raises `RequestError`."""
        response = str(http.path_params["response"])
        run = response.removeprefix(RESPONSE)
        if run == response or (served := await self._followed.find(run, principal_of(http.scope))) is None:
            raise _unknown(run)
        return served


def _unknown(run: str) -> RequestError:
    shown = run[:80] if run.isascii() and run.isprintable() else "?"
    return RequestError(404, "response_not_found", f"there is no response with the id {RESPONSE}{shown}")


def _request(served: ServedRun) -> ClientRequest:
    return ClientRequest(model=served.model, messages=(), tools=served.namespaced, background=served.stays)


def told(served: ServedRun, status: str = "") -> dict[str, Any]:
    """The response as far as it has come; with this status, where there is one."""
    encoder, ended = ResponsesEncoder(_request(served), served.id, served.created), served.ended
    if status:
        return encoder.response(status)
    if isinstance(ended, ServedAnswer):
        return encoder.whole(ended)
    if ended is None:
        return encoder.response("in_progress" if served.began.is_set() else "queued")
    error = {"code": "server_error", "message": ended.message}
    return encoder.response("cancelled" if ended.code == "cancelled" else "failed") | {"error": error}

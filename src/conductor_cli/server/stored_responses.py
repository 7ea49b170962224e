"""Responses by their id: look one up, delete it, cancel it. A client sees those that it asked for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from conductor_cli.app.driver import ALWAYS
from conductor_cli.core.errors import ConductorError, UsageError
from conductor_cli.core.trace import Trace
from conductor_cli.server.access import principal_of
from conductor_cli.server.api.errors import error_body, request_error
from conductor_cli.server.api.request import ClientRequest, RequestError, ServedAnswer
from conductor_cli.server.api.responses import RESPONSE, ResponsesEncoder
from conductor_cli.server.conversation import client_calls
from conductor_cli.server.narration import outcome_of
from conductor_cli.server.run_registry import RunRegistry, ServedRun
from conductor_cli.state.home import open_state

if TYPE_CHECKING:
    from starlette.requests import Request

PATH: Final = "/v1/responses/{response}"

_MODELS: Final = {"mini": "conductor-mini", "ultra": "conductor-ultra"}
"""The model that a run of a mode is said to come from, where only its trace is left."""


class StoredResponses:
    """The routes for one response. A run that has ended is read from its trace."""

    def __init__(self, registry: RunRegistry) -> None:
        self._registry = registry

    @property
    def routes(self) -> list[Route]:
        return [
            Route(PATH, self._answer(self._get), methods=["GET"]),
            Route(PATH, self._answer(self._delete), methods=["DELETE"]),
            Route(f"{PATH}/cancel", self._answer(self._cancel), methods=["POST"]),
        ]

    def _answer(self, act: Callable[[Request], Awaitable[dict[str, Any]]]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(http: Request) -> Response:
            try:
                return JSONResponse(await act(http))
            except (RequestError, ConductorError) as error:
                failed = error if isinstance(error, RequestError) else request_error(error.failure)
                return JSONResponse(error_body(failed, http.url.path), failed.status)

        return answer

    async def _get(self, http: Request) -> dict[str, Any]:
        run = _run_of(http)
        served = self._served(http, run)
        if served is not None and served.ended is None:
            return _encoder(run, served.created, served.model).response("in_progress")
        if served is not None:
            return _ended(_encoder(run, served.created, served.model, served.stream.trace), served.ended)
        trace = await asyncio.to_thread(self._stored, http, run)
        created = int(datetime.fromisoformat(trace.time).timestamp())
        encoder = _encoder(run, created, _MODELS.get(trace.mode, "conductor"), trace)
        sign = partial(client_calls, ids=self._registry.runs.call_ids)
        return _ended(encoder, outcome_of(trace, sign=sign))

    async def _delete(self, http: Request) -> dict[str, Any]:
        """Delete what is kept of a response, its trace too, unless the user wants every trace to be kept."""
        run = _run_of(http)
        await asyncio.to_thread(self._stored, http, run)
        settings = self._registry.runs.settings()
        if settings["traces.keep"] == ALWAYS:
            raise RequestError(403, "policy", "responses cannot be deleted: traces.keep is always")
        await asyncio.to_thread(open_state(settings.paths).traces.remove, run)
        self._registry.forget(run)
        return {"id": f"{RESPONSE}{run}", "object": "response", "deleted": True}

    async def _cancel(self, http: Request) -> dict[str, Any]:
        run = _run_of(http)
        served = self._served(http, run)
        if served is not None and self._registry.cancel(run):
            return _encoder(run, served.created, served.model).response("cancelled")
        return await self._get(http)

    def _served(self, http: Request, run: str) -> ServedRun | None:
        served = self._registry.find(run)
        return served if served is not None and served.origin == principal_of(http.scope).origin else None

    def _stored(self, http: Request, run: str) -> Trace:
        store = open_state(self._registry.runs.settings().paths).traces
        try:
            trace = store.ended(run)
        except UsageError:
            raise _unknown(run) from None
        if trace.run != run or not principal_of(http.scope).asked_for(trace):
            raise _unknown(run)
        return trace


def _run_of(http: Request) -> str:
    response = str(http.path_params["response"])
    if not response.startswith(RESPONSE):
        raise _unknown(response)
    return response.removeprefix(RESPONSE)


def _unknown(run: str) -> RequestError:
    shown = run[:80] if run.isascii() and run.isprintable() else "?"
    return RequestError(404, "response_not_found", f"there is no response with the id {RESPONSE}{shown}")


def _encoder(run: str, created: int, model: str, trace: Trace | None = None) -> ResponsesEncoder:
    talk = trace.question.conversation if trace is not None else None
    tools = talk.tools if talk is not None else ()
    return ResponsesEncoder(ClientRequest(model=model, messages=(), tools=tools), run, created)


def _ended(encoder: ResponsesEncoder, ended: ServedAnswer | RequestError | None) -> dict[str, Any]:
    if isinstance(ended, ServedAnswer):
        return encoder.whole(ended)
    status = "cancelled" if ended is not None and ended.code == "cancelled" else "failed"
    error = ended and {"code": "server_error", "message": ended.message}
    return encoder.response(status) | {"error": error}

"""Responses by their id: look one up, delete it, cancel it. A client sees those that it asked for itself."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from conductor_cli.app.run_session import ALWAYS
from conductor_cli.core.errors import ConductorError, UsageError
from conductor_cli.core.trace import Trace
from conductor_cli.server.access import error_envelope, origin_of
from conductor_cli.server.api.errors import request_error
from conductor_cli.server.api.request import ClientRequest, Outcome, RequestError
from conductor_cli.server.api.responses import RESPONSE, ResponsesEncoder
from conductor_cli.server.conversation import client_calls
from conductor_cli.server.narration import outcome_of
from conductor_cli.server.run_registry import RunHub, ServedRun
from conductor_cli.state.spending import local_now
from conductor_cli.state.trace_store import TraceStore

if TYPE_CHECKING:
    from starlette.requests import Request

PATH: Final = "/v1/responses/{response}"

_MODELS: Final = {"mini": "conductor-mini", "ultra": "conductor-ultra"}
"""The model that a run of a mode is said to come from, where only its trace is left."""


class StoredResponses:
    """The routes for one response. A run that has ended is read from its trace."""

    def __init__(self, hub: RunHub) -> None:
        self._hub = hub

    @property
    def routes(self) -> list[Route]:
        return [
            Route(PATH, self._answer(self._get), methods=["GET"]),
            Route(PATH, self._answer(self._delete), methods=["DELETE"]),
            Route(f"{PATH}/cancel", self._answer(self._cancel), methods=["POST"]),
        ]

    def _answer(self, act: Any) -> Any:  # noqa: ANN401 - what Starlette calls
        async def answer(http: Request) -> Response:
            try:
                return JSONResponse(await act(http))
            except RequestError as error:
                return JSONResponse(error_envelope(http.url.path, error), error.status)
            except ConductorError as error:
                failed = request_error(error.failure)
                return JSONResponse(error_envelope(http.url.path, failed), failed.status)

        return answer

    async def _get(self, http: Request) -> dict[str, Any]:
        run = _run_of(http)
        served = self._served(http, run)
        if served is not None and served.ended is None:
            return _encoder(run, served.created, served.model).response("in_progress")
        if served is not None:
            return _ended(_encoder(run, served.created, served.model), served.ended)
        trace = await asyncio.to_thread(self._stored, http, run)
        created = int(datetime.fromisoformat(trace.time).timestamp())
        encoder = _encoder(run, created, _MODELS.get(trace.mode, "conductor"))
        return _ended(encoder, _outcome(trace, self._hub))

    async def _delete(self, http: Request) -> dict[str, Any]:
        """Delete what is kept of a response, its trace too, unless the user wants every trace to be kept."""
        run = _run_of(http)
        await asyncio.to_thread(self._stored, http, run)
        settings = self._hub.runs.settings()
        if settings["traces.keep"] == ALWAYS:
            raise RequestError(403, "policy", "responses cannot be deleted: traces.keep is always")
        await asyncio.to_thread(TraceStore(settings.paths.traces).remove, run)
        self._hub.forget(run)
        return {"id": f"{RESPONSE}{run}", "object": "response", "deleted": True}

    async def _cancel(self, http: Request) -> dict[str, Any]:
        run = _run_of(http)
        served = self._served(http, run)
        if served is not None and self._hub.cancel(run):
            return _encoder(run, served.created, served.model).response("cancelled")
        return await self._get(http)

    def _served(self, http: Request, run: str) -> ServedRun | None:
        served = self._hub.find(run)
        return served if served is not None and served.origin == origin_of(http.scope) else None

    def _stored(self, http: Request, run: str) -> Trace:
        """The trace of a run that this client asked for. Raises `RequestError`."""
        store = TraceStore(self._hub.runs.settings().paths.traces)
        try:
            trace = store.ended(run)
        except UsageError:
            raise _unknown(run) from None
        if trace.run != run or trace.origin != origin_of(http.scope):
            raise _unknown(run)
        return trace


def _outcome(trace: Trace, hub: RunHub) -> Outcome | RequestError:
    """How a stored run ended, as its client was told."""
    ended = outcome_of(trace, now=local_now())
    return replace(ended, tool_calls=client_calls(trace, hub.runs.call_ids)) if isinstance(ended, Outcome) else ended


def _run_of(http: Request) -> str:
    """The run of the response in the path. Raises `RequestError`."""
    response = str(http.path_params["response"])
    if not response.startswith(RESPONSE):
        raise _unknown(response)
    return response.removeprefix(RESPONSE)


def _unknown(run: str) -> RequestError:
    shown = run[:80] if run.isascii() and run.isprintable() else "?"
    return RequestError(404, "response_not_found", f"there is no response with the id {RESPONSE}{shown}")


def _encoder(run: str, created: int, model: str) -> ResponsesEncoder:
    return ResponsesEncoder(ClientRequest(model=model, messages=()), run, created)


def _ended(encoder: ResponsesEncoder, ended: Outcome | RequestError | None) -> dict[str, Any]:
    if isinstance(ended, Outcome):
        return encoder.whole(ended)
    status = "cancelled" if ended is not None and ended.code == "cancelled" else "failed"
    error = ended and {"code": "server_error", "message": ended.message}
    return encoder.response(status) | {"error": error}

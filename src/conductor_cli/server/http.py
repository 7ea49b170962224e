"""The HTTP application of `conductor serve`: routes, status codes, and what each API's requests become.

A request is read and checked, then it is a run of the hub, and `RunAnswer` writes that run to the client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from conductor_cli import __version__
from conductor_cli.app.traces import open_trace_store
from conductor_cli.core.errors import ConductorError
from conductor_cli.core.sanitize import one_line
from conductor_cli.server.access import error_envelope
from conductor_cli.server.answers import RunAnswer, send_error
from conductor_cli.server.api.base import ClientApi
from conductor_cli.server.api.failures import request_error
from conductor_cli.server.api.messages import Messages
from conductor_cli.server.api.openai_tools import require_schema
from conductor_cli.server.api.registry import PATHS, load_api
from conductor_cli.server.api.request import ClientRequest, RequestError
from conductor_cli.server.background import recognise
from conductor_cli.server.body import read_json
from conductor_cli.server.conversation import client_calls
from conductor_cli.server.hub import HubLimits, RunHub
from conductor_cli.server.joining import request_key, says_retry, session_of
from conductor_cli.server.metrics import Metrics
from conductor_cli.server.model_list import list_models
from conductor_cli.server.narration import Narrator
from conductor_cli.server.openapi import describe_api
from conductor_cli.server.origins import Sender, sender_of
from conductor_cli.server.page import page_routes
from conductor_cli.server.requests import holds_text, read_work
from conductor_cli.server.runs import Runs
from conductor_cli.server.served_run import ServedRun
from conductor_cli.server.stored_responses import StoredResponses

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

log = logging.getLogger(__name__)

LARGE: Final = 256 << 10
"""Bytes of a body that is read as JSON on a thread: it takes so long that streams would stutter."""


@dataclass
class Service:
    """What the routes share: the runs of this server, and its counters."""

    runs: Runs
    limits: HubLimits = field(default_factory=HubLimits)
    drain_seconds: float = 30.0

    def __post_init__(self) -> None:
        self.metrics = Metrics(self.runs.circuits)
        self.hub = RunHub(self.runs, self.limits, observe=self.metrics.count_run)

    def serve(
        self, request: ClientRequest, key: str, sender: Sender, headers: Mapping[str, str]
    ) -> ServedRun:  # fmt: skip
        """The run for a request: the one that is there, or a new one. Raises `RequestError`."""
        joined = self.hub.join(key, is_retry=says_retry(headers), in_session=bool(session_of(headers)))
        if joined is not None:
            return joined
        narrator = Narrator(
            holds_text=holds_text(request), keeps_events=request.include_events,
            sign=partial(client_calls, ids=self.runs.call_ids),
        )  # fmt: skip
        purpose = recognise(request, headers)
        return self.hub.begin(
            key, lambda run: read_work(self.runs, request, run, sender.key, purpose), narrator,
            sender=sender, model=request.model,
        )  # fmt: skip

    async def close(self) -> None:
        """Stop the runs that still go on, and close the models."""
        await self.hub.drain(0.0)
        await self.runs.close()


class CreateAnswer:
    """POST to an API: the answer to a request, streamed or whole."""

    def __init__(self, service: Service, module: str) -> None:
        self._service = service
        self._module = module

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the request and answer it. Whatever is wrong with it is an error in the API's own envelope."""
        api = load_api(self._module)
        if api is None:
            await JSONResponse({"error": {"message": "this version does not speak this API"}}, 501)(
                scope, receive, send
            )
            return
        try:
            answer = await self._answer(api, Request(scope, receive))
        except ClientDisconnect:
            return
        except RequestError as error:
            self._service.metrics.count_refusal(self._module, error.status)
            await send_error(send, api, error, {})
            return
        self._service.metrics.count_request(self._module)
        await answer(scope, receive, send)

    async def _answer(self, api: ClientApi, http: Request) -> RunAnswer:
        """The answer to a request. Raises `RequestError`."""
        headers = {name.lower(): value for name, value in http.headers.items()}
        data = await http.body()

        def parse() -> tuple[Mapping[str, Any], ClientRequest]:
            body = read_json(data)
            return body, api.parse(body, headers)

        body, request = await asyncio.to_thread(parse) if len(data) > LARGE else parse()
        await require_schema(request)
        sender = sender_of(http.scope)
        key = request_key(sender.origin, self._module, body, request, headers)
        served = self._service.serve(request, key, sender, headers)
        return RunAnswer(self._service.hub, served, api, request)


class CountTokens:
    """POST /v1/messages/count_tokens: how long a request is, by an estimate."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the request and count it."""
        http, api = Request(scope, receive), Messages()
        try:
            data = await http.body()
            counted = await asyncio.to_thread(lambda: api.count_tokens(read_json(data), {}))
        except ClientDisconnect:
            return
        except RequestError as error:
            await send_error(send, api, error, {})
            return
        await JSONResponse(counted)(scope, receive, send)


# Other routes


class Routes:
    """The routes that do not create an answer."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def models(self, http: Request) -> Response:
        """The models, in the form of the API that the headers speak."""
        try:
            settings = self._service.runs.settings()
        except ConductorError as error:
            failed = request_error(error.failure)
            return JSONResponse({"error": {"message": failed.message, "code": failed.code}}, failed.status)
        return JSONResponse(list_models(settings, anthropic="anthropic-version" in http.headers))

    async def health(self, _: Request) -> Response:
        """That the server lives, and how much it does."""
        return JSONResponse({"status": "ok", "running": len(self._service.hub.going_on)})

    async def openapi(self, _: Request) -> Response:
        """What this server answers."""
        return JSONResponse(describe_api(__version__))

    async def metrics(self, _: Request) -> Response:
        """The counters, as Prometheus reads them."""
        text, kind = self._service.metrics.render(len(self._service.hub.going_on))
        return Response(text, headers={"content-type": kind})


async def _answer_error(http: Request, error: Exception) -> Response:
    """What no route has answered: an unknown path, a wrong method, or a failure of this server."""
    status = getattr(error, "status_code", 500)
    said = {404: f"there is no {one_line(http.url.path)[:100]}", 405: f"{http.method} is not for this path"}
    code = {404: "not_found", 405: "method_not_allowed"}.get(status, "internal_error")
    failed = RequestError(status, code, said.get(status, "the server failed; its log says where"))
    return JSONResponse(error_envelope(http.url.path, failed), status, getattr(error, "headers", None))


def build_app(service: Service) -> Starlette:
    """The application over `service`."""
    routes = Routes(service)
    answers = [Route(path, CreateAnswer(service, module), methods=["POST"]) for path, module in PATHS.items()]
    return Starlette(
        routes=[
            *answers,
            *StoredResponses(service.hub).routes,
            Route("/v1/messages/count_tokens", CountTokens(), methods=["POST"]),
            Route("/v1/models", routes.models),
            Route("/openapi.json", routes.openapi),
            Route("/health", routes.health),
            Route("/metrics", routes.metrics),
            *page_routes(open_trace_store, lambda: service.hub.unstored, service.runs.circuits),
        ],
        exception_handlers={HTTPException: _answer_error, Exception: _answer_error},
    )

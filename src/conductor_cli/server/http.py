"""The HTTP application of `conductor serve`: its routes, and the way of a request to its run.

A request is read and checked here, then it is a run of the registry, and `RunAnswer` writes that run to the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
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
from conductor_cli.core.terminal_text import one_line
from conductor_cli.server.access import principal_of, read_json
from conductor_cli.server.answers import RunAnswer, send_error
from conductor_cli.server.api.bodies import require_schema
from conductor_cli.server.api.chat_completions import ChatCompletionsApi
from conductor_cli.server.api.errors import error_body, request_error
from conductor_cli.server.api.messages import MessagesApi
from conductor_cli.server.api.request import ClientApi, ClientRequest, RequestError
from conductor_cli.server.api.responses import ResponsesApi
from conductor_cli.server.conversation import client_calls
from conductor_cli.server.idempotency import idempotency_key, says_retry, session_of
from conductor_cli.server.metrics import Metrics
from conductor_cli.server.narration import ResponseStream
from conductor_cli.server.openapi import describe_api
from conductor_cli.server.page import page_routes
from conductor_cli.server.requests import build_job, classify_utility_request, holds_text, list_served_models
from conductor_cli.server.run_registry import RunRegistry
from conductor_cli.server.stored_responses import StoredResponses

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

APIS: Final[dict[str, ClientApi]] = {
    "/v1/chat/completions": ChatCompletionsApi(), "/v1/responses": ResponsesApi(), "/v1/messages": MessagesApi(),
}  # fmt: skip
"""The APIs that this server speaks, by the path at which a client creates an answer."""

LARGE: Final = 256 << 10
"""Bytes of a body that is read as JSON on a thread: it takes so long that streams would stutter."""


class CreateAnswer:
    """POST to an API: the answer to a request, streamed or whole."""

    def __init__(self, registry: RunRegistry, metrics: Metrics, path: str) -> None:
        self._registry = registry
        self._metrics = metrics
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the request and answer it. Whatever is wrong with it is an error in the API's own envelope."""
        api = APIS[self._path]
        try:
            answer = await self._answer(api, Request(scope, receive))
        except ClientDisconnect:
            return
        except RequestError as error:
            self._metrics.count_refusal(api.name, error.status)
            await send_error(send, self._path, error, {})
            return
        self._metrics.count_request(api.name)
        await answer(scope, receive, send)

    async def _answer(self, api: ClientApi, http: Request) -> RunAnswer:
        headers = {name.lower(): value for name, value in http.headers.items()}
        data = await http.body()

        def parse() -> tuple[Mapping[str, Any], ClientRequest]:
            body = read_json(data)
            return body, api.parse(body)

        body, request = await asyncio.to_thread(parse) if len(data) > LARGE else parse()
        await require_schema(request)
        registry, principal = self._registry, principal_of(http.scope)
        key = idempotency_key(principal.origin, api.name, body, request, headers)
        served = registry.join(key, is_retry=says_retry(headers), in_session=bool(session_of(headers)))
        if served is None:
            stream = ResponseStream(
                holds_text=holds_text(request), keeps_events=request.include_events,
                sign=partial(client_calls, ids=registry.runs.call_ids),
            )  # fmt: skip
            purpose = classify_utility_request(request, headers)
            served = registry.begin(
                key, lambda run: build_job(registry.runs, request, run, principal.key, purpose), stream,
                principal=principal, model=request.model,
            )  # fmt: skip
        return RunAnswer(registry, served, api, request, self._path)


def build_app(registry: RunRegistry) -> Starlette:
    """The application over the runs of a server."""
    metrics = Metrics(registry.runs.circuits)
    registry.observe = metrics.count_run

    async def count_tokens(http: Request) -> Response:
        """How long a request of Messages is, by an estimate."""
        data = await http.body()
        try:
            return JSONResponse(await asyncio.to_thread(lambda: MessagesApi().count_tokens(read_json(data))))
        except RequestError as error:
            return JSONResponse(error_body(error, http.url.path), error.status)

    async def models(http: Request) -> Response:
        """The models, in the form of the API that the headers speak."""
        try:
            settings = registry.runs.settings()
        except ConductorError as error:
            failed = request_error(error.failure)
            return JSONResponse(error_body(failed), failed.status)
        return JSONResponse(list_served_models(settings, anthropic="anthropic-version" in http.headers))

    async def health(_: Request) -> Response:
        """That the server lives, and how much it does."""
        return JSONResponse({"status": "ok", "running": len(registry.going_on)})

    async def openapi(_: Request) -> Response:
        return JSONResponse(describe_api(__version__))

    async def counters(_: Request) -> Response:
        """The counters, as Prometheus reads them."""
        text, kind = metrics.render(len(registry.going_on))
        return Response(text, headers={"content-type": kind})

    answers: dict[str, ASGIApp] = {path: CreateAnswer(registry, metrics, path) for path in APIS}
    return Starlette(
        routes=[
            *(Route(path, answer, methods=["POST"]) for path, answer in answers.items()),
            *StoredResponses(registry).routes,
            Route("/v1/messages/count_tokens", count_tokens, methods=["POST"]),
            Route("/v1/models", models),
            Route("/openapi.json", openapi),
            Route("/health", health),
            Route("/metrics", counters),
            *page_routes(open_trace_store, lambda: registry.unstored, registry.runs.circuits),
        ],
        exception_handlers={HTTPException: _answer_error, Exception: _answer_error},
    )


async def _answer_error(http: Request, error: Exception) -> Response:
    """What no route has answered: an unknown path, a wrong method, or a failure of this server."""
    status = getattr(error, "status_code", 500)
    said = {404: f"there is no {one_line(http.url.path)[:100]}", 405: f"{http.method} is not for this path"}
    code = {404: "not_found", 405: "method_not_allowed"}.get(status, "internal_error")
    failed = RequestError(status, code, said.get(status, "the server failed; its log says where"))
    return JSONResponse(error_body(failed, http.url.path), status, getattr(error, "headers", None))

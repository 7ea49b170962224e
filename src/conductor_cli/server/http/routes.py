"""The HTTP application of `conductor serve`: its routes.

`create_answer.py` reads and checks a request of a client; then it is a run of the registry, and
`RunAnswer` writes that run to the client.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute

from conductor_cli.app.traces import open_trace_store
from conductor_cli.core.terminal_text import one_line
from conductor_cli.server.api.apis import APIS, count_input_tokens
from conductor_cli.server.api.errors import error_body, path_of_api
from conductor_cli.server.api.messages import MessagesApi
from conductor_cli.server.api.request import RequestError
from conductor_cli.server.batches import Batches
from conductor_cli.server.files import Files
from conductor_cli.server.http.access import REQUEST_ID
from conductor_cli.server.http.answers import answering
from conductor_cli.server.http.body import read_body
from conductor_cli.server.http.create_answer import CreateAnswer
from conductor_cli.server.http.metrics import Metrics
from conductor_cli.server.http.page import page_routes
from conductor_cli.server.http.websocket import ResponsesSocket
from conductor_cli.server.runs.begin_served import begin_batched, take_over_run
from conductor_cli.server.runs.followed_runs import FollowedRuns
from conductor_cli.server.runs.run_registry import RunRegistry
from conductor_cli.server.runs.run_request import list_served_models
from conductor_cli.state.opening import open_state

if TYPE_CHECKING:
    from starlette.requests import Request


def build_app(registry: RunRegistry) -> Starlette:
    """Return the application over the runs of a server."""
    metrics = Metrics(
        registry.starter.loaded.circuits.reports,
        has_siblings=registry.starter.options.siblings is not None,
    )
    registry.observe = metrics.count_run
    followed = FollowedRuns(registry, partial(take_over_run, registry))
    answers = {path: CreateAnswer(registry, followed, metrics, path) for path in APIS}
    store = open_state(registry.starter.settings().paths).served_files
    files = Files(store)
    batches = Batches(registry, store, partial(begin_batched, registry))
    registry.tasks = (batches.work, followed.watch)
    app = Starlette(
        routes=[
            *(Route(path, answer, methods=["POST"]) for path, answer in answers.items()),
            WebSocketRoute("/v1/responses", ResponsesSocket(answers["/v1/responses"])),
            Route("/v1/responses/input_tokens", answering(_count_input), methods=["POST"]),
            *followed.routes,
            *files.routes,
            *batches.routes,
            Route("/v1/messages/count_tokens", answering(_count_tokens), methods=["POST"]),
            *_ServerStatus(registry, metrics).routes,
            *page_routes(open_trace_store, registry),
        ],
        exception_handlers={HTTPException: _answer_error, Exception: _answer_error},
    )
    app.router.redirect_slashes = False
    return app


async def _count_tokens(http: Request) -> dict[str, Any]:
    return await read_body(http, MessagesApi().count_tokens)


async def _count_input(http: Request) -> dict[str, Any]:
    return await read_body(http, count_input_tokens)


class _ServerStatus:
    """What the server tells of itself: its models, that it lives, whether it is ready, counters."""

    def __init__(self, registry: RunRegistry, metrics: Metrics) -> None:
        self._registry = registry
        self._metrics = metrics

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/v1/models", answering(self.models)),
            Route("/v1/models/{model:path}", answering(self.models)),
            Route("/health", self.health),
            Route("/livez", self.health),
            Route("/readyz", self.ready),
            Route("/metrics", self.counters),
        ]

    async def models(self, http: Request) -> dict[str, Any]:
        """List the models, or one of them."""
        listed = list_served_models(
            self._registry.starter.settings(), anthropic="anthropic-version" in http.headers
        )
        name = http.path_params.get("model")
        if name is None:
            return listed
        for model in listed["data"]:
            if model["id"] == name:
                return dict(model)
        raise HTTPException(404)

    async def health(self, http: Request) -> Response:
        """Say that the server lives; at `/health` also how much it does."""
        if http.url.path == "/health":
            counts = {"running": self._count_running()}
            siblings = self._registry.starter.options.siblings
            if siblings is not None:
                counts["processes"] = siblings.processes()
            return JSONResponse({"status": "ok", **counts})
        return JSONResponse({"status": "ok"})

    async def ready(self, http: Request) -> Response:
        """Return whether requests should come here, and what is missing if not."""
        client = http.client.host if http.client else ""
        missing = await self._registry.readiness.missing(client)
        if missing:
            return JSONResponse({"status": "not ready", "missing": missing}, 503)
        return JSONResponse({"status": "ok"})

    async def counters(self, _: Request) -> Response:
        text, kind = self._metrics.render(self._count_running())
        return Response(text, headers={"content-type": kind})

    def _count_running(self) -> int:
        """Return how many runs go on, in all processes of the server."""
        siblings = self._registry.starter.options.siblings
        if siblings is None:
            return len(self._registry.going_on)
        return siblings.running()


_ADDRESSES: Final = (*APIS, "/v1/messages/count_tokens", "/v1/models", "/v1/files", "/v1/batches")


def _meant(path: str) -> str:
    """Return the address that a client means whose base URL lacks `/v1`, or has it twice."""
    for address in sorted(_ADDRESSES, key=len, reverse=True):
        if path.endswith(address.removeprefix("/v1")) and path != address:
            base = "a base URL of OpenAI's clients ends in /v1, one of Anthropic's does not"
            return f"; the address is {address}: {base}"
    return ""


async def _answer_error(http: Request, error: Exception) -> Response:
    """Answer what no route has: an unknown path, a wrong method, or a failure of this server."""
    status = getattr(error, "status_code", 500)
    if http.url.path == "/openapi.json" and status == 404:
        message = "the OpenAPI document is gone: docs/serve-reference.md lists the addresses"
        failure = RequestError(404, "not_found", message)
    elif status == 404:
        message = f"there is no {one_line(http.url.path)[:100]}{_meant(http.url.path)}"
        failure = RequestError(404, "not_found", message)
    elif status == 405:
        failure = RequestError(405, "method_not_allowed", f"{http.method} is not for this path")
    else:
        message = "the server failed; its log says where"
        failure = RequestError(status, "internal_error", message)
    path = path_of_api(http.url.path, http.headers)
    body = error_body(failure, path, http.scope[REQUEST_ID])
    return JSONResponse(body, status, getattr(error, "headers", None))

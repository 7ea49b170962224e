"""The HTTP application of `conductor serve`: routes, status codes, and what each API's requests become.

A request is read and checked, then it is a run of the hub, and `RunAnswer` writes that run to the client.

When two requests are the same one, sent again. Pure.

What clients send with a request that they repeat, seen on the wire in November 2026: the SDKs of OpenAI and Anthropic
count their retries. Codex, Claude Code and opencode send the same conversation with the same session and no count, and
Claude Code asks for it without a stream in the end.

The list of models, in the form of each API. Pure.

`GET /openapi.json`: what this server answers, made from one table. Pure.

Requests are described as far as this server reads them; it ignores what it does not know, so objects are open.
Source of the form: https://spec.openapis.org/oas/v3.1.0

The APIs that this server speaks, by the path of their requests.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module, util
from typing import TYPE_CHECKING, Any, Final, cast

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from conductor_cli import __version__
from conductor_cli.app.traces import open_trace_store
from conductor_cli.config import Settings
from conductor_cli.core.errors import ConductorError
from conductor_cli.core.terminal_text import one_line
from conductor_cli.server.access import Sender, error_envelope, read_json, sender_of
from conductor_cli.server.answers import RunAnswer, send_error
from conductor_cli.server.api.errors import request_error
from conductor_cli.server.api.messages import Messages
from conductor_cli.server.api.openai_tools import require_schema
from conductor_cli.server.api.request import ClientApi, ClientRequest, RequestError
from conductor_cli.server.conversation import client_calls
from conductor_cli.server.metrics import Metrics
from conductor_cli.server.narration import Narrator
from conductor_cli.server.page import page_routes
from conductor_cli.server.requests import holds_text, model_names, read_work, recognise
from conductor_cli.server.run_registry import HubLimits, RunHub, ServedRun
from conductor_cli.server.runs import Runs
from conductor_cli.server.stored_responses import StoredResponses

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


_IGNORED: Final = frozenset({
    "stream", "stream_options", "metadata", "user", "prompt_cache_key", "client_metadata", "safety_identifier",
})  # fmt: skip
"""Fields that differ between a request and the same one sent again, or that change nothing of the answer."""

_BILLING: Final = "x-anthropic-billing-header"
"""How a block begins that a client puts before its system text, and that differs with each attempt."""


_SESSIONS: Final = ("thread-id", "x-claude-code-session-id", "x-session-id")
"""Headers in which Codex, Claude Code and opencode name the conversation that a request belongs to."""

_IDENTITY: Final = "idempotency-key"
"""The header by which a client names one request, however often it sends it (IETF httpapi-idempotency-key-header)."""


def request_key(
    client: str, api: str, body: Mapping[str, Any], request: ClientRequest, headers: Mapping[str, str]
) -> str:  # fmt: skip
    """What is equal for a request and the same one sent again by the same client, streamed or not."""
    same = {name: value for name, value in body.items() if name not in _IGNORED}
    system = same.get("system")
    if isinstance(system, list) and system and _is_billing(system[0]):
        same["system"] = system[1:]
    sender = [client, session_of(headers), headers.get(_IDENTITY, "")]
    text = json.dumps([sender, api, request.include_events, same], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def says_retry(headers: Mapping[str, str]) -> bool:
    """Whether a client says that an equal request is the same one. Header names are in lower case."""
    return bool(headers.get(_IDENTITY)) or headers.get("x-stainless-retry-count", "0") not in ("", "0")


def session_of(headers: Mapping[str, str]) -> str:
    """The conversation that a request belongs to, as its client names it; empty where it does not."""
    return next((headers[name] for name in _SESSIONS if headers.get(name)), "")


def _is_billing(block: Any) -> bool:  # noqa: ANN401 - any JSON value
    return isinstance(block, Mapping) and str(block.get("text", "")).startswith(_BILLING)


CREATED: Final = 1_767_225_600
"""The models have no date of their own; clients want one. 1 January 2026."""


def list_models(settings: Settings, *, anthropic: bool = False) -> dict[str, Any]:
    """The models of a server, as OpenAI lists them, or as Anthropic does."""
    names = model_names(settings)
    if not anthropic:
        data = [{"id": name, "object": "model", "created": CREATED, "owned_by": "conductor"} for name in names]
        return {"object": "list", "data": data}
    entries = [
        {"id": name, "type": "model", "display_name": name, "created_at": "2026-01-01T00:00:00Z"} for name in names
    ]
    return {"data": entries, "has_more": False, "first_id": names[0], "last_id": names[-1]}


Schema = Mapping[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 1}
_OBJECTS: Final[Schema] = {"type": "array", "items": {"type": "object"}}
_CONTENT: Final[Schema] = {"type": ["string", "array", "null"], "items": {"type": "object"}}
_OPTIONS: Final[Schema] = {
    "type": "object",
    "description": "Options of this server. A limit can only narrow those of the settings.",
    "properties": {"max_cost": {"type": "number", "exclusiveMinimum": 0}},
}


def _messages(*roles: str) -> Schema:
    message = {
        "type": "object",
        "required": ["role"],
        "properties": {"role": {"type": "string", "enum": list(roles)}, "content": _CONTENT},
    }
    return {"type": "array", "minItems": 1, "items": message}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path. `body` are the fields of its JSON object, of which `required` must be there."""

    method: str
    path: str
    summary: str
    body: Mapping[str, Schema] | None = None
    required: tuple[str, ...] = ()
    streams: bool = False
    content: str = "application/json"
    is_open: bool = False


_SHARED: Final[dict[str, Schema]] = {
    "model": _TEXT, "stream": {"type": "boolean"}, "temperature": {"type": "number", "minimum": 0, "maximum": 2},
    "tools": _OBJECTS, "conductor": _OPTIONS,
}  # fmt: skip

_COUNTED: Final[dict[str, Schema]] = {
    "model": _TEXT, "messages": _messages("user", "assistant", "system"), "system": _CONTENT, "tools": _OBJECTS,
}  # fmt: skip

OPERATIONS: Final = (
    Operation(
        method="post", path="/v1/chat/completions", summary="Answer a conversation (OpenAI Chat Completions)",
        body=_SHARED | {
            "messages": _messages("system", "developer", "user", "assistant", "tool"), "max_tokens": _COUNT,
            "max_completion_tokens": _COUNT, "stop": {"type": ["string", "array", "null"], "items": _TEXT},
            "reasoning_effort": _TEXT, "response_format": {"type": "object"}, "stream_options": {"type": "object"},
        },
        required=("model", "messages"), streams=True,
    ),
    Operation(
        method="post", path="/v1/responses", summary="Answer a conversation (OpenAI Responses)",
        body=_SHARED | {
            "input": _CONTENT, "instructions": _TEXT, "max_output_tokens": _COUNT, "store": {"type": "boolean"},
            "previous_response_id": {"type": ["string", "null"]}, "reasoning": {"type": "object"},
            "text": {"type": "object"},
        },
        required=("model", "input"), streams=True,
    ),
    Operation(method="get", path="/v1/responses/{id}", summary="A stored response"),
    Operation(method="delete", path="/v1/responses/{id}", summary="Delete a stored response"),
    Operation(method="post", path="/v1/responses/{id}/cancel", summary="Stop a response that is under way"),
    Operation(
        method="post", path="/v1/messages", summary="Answer a conversation (Anthropic Messages)",
        body=_SHARED | {
            **_COUNTED, "max_tokens": _COUNT, "stop_sequences": {"type": "array", "items": _TEXT},
            "thinking": {"type": "object"},
        },
        required=("model", "messages", "max_tokens"), streams=True,
    ),
    Operation(
        method="post", path="/v1/messages/count_tokens", summary="How long a conversation is, by an estimate",
        body=_COUNTED, required=("model", "messages"),
    ),
    Operation(method="get", path="/v1/models", summary="The models: conductor and its modes, and each named pool"),
    Operation(method="get", path="/v1/conductor/runs", summary="The stored runs, newest first"),
    Operation(method="get", path="/v1/conductor/runs/{id}", summary="One run with its plan, steps and prices"),
    Operation(
        method="get", path="/v1/conductor/runs/{id}/events", summary="The events of a run, as they happen",
        content="text/event-stream",
    ),
    Operation(method="get", path="/health", summary="Whether the server lives", is_open=True),
    Operation(method="get", path="/metrics", summary="Counters for Prometheus", content="text/plain"),
    Operation(method="get", path="/", summary="The page that shows runs", content="text/html", is_open=True),
)  # fmt: skip
"""Everything that is answered."""


def describe_api(version: str) -> dict[str, Any]:
    """The OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _describe(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "conductor serve", "version": version},
        "paths": paths,
        "components": {"securitySchemes": {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        }},
    }  # fmt: skip


def _describe(operation: Operation) -> dict[str, Any]:
    content: dict[str, Any] = {operation.content: {}} | ({"text/event-stream": {}} if operation.streams else {})
    described: dict[str, Any] = {
        "summary": operation.summary,
        "responses": {
            "200": {"description": "The answer", "content": content},
            "4XX": {"description": "Why the request is refused", "content": {"application/json": {}}},
            "5XX": {"description": "Why it could not be answered now", "content": {"application/json": {}}},
        },
        # An empty requirement: a server without keys asks for none.
        "security": [{}] if operation.is_open else [{"bearer": []}, {"header": []}, {}],
    }
    if "{id}" in operation.path:
        described["parameters"] = [{"name": "id", "in": "path", "required": True, "schema": _TEXT}]
    if operation.body is not None:
        schema = {"type": "object", "required": list(operation.required), "properties": dict(operation.body)}
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return described


PATHS: Final = {
    "/v1/chat/completions": "chat_completions",
    "/v1/responses": "responses",
    "/v1/messages": "messages",
}
"""The module of each API, by the path at which a client creates an answer."""

CLASSES: Final = {"chat_completions": "ChatCompletions", "responses": "Responses", "messages": "Messages"}
"""The class in each module."""


@cache
def load_api(module: str) -> ClientApi | None:
    """The API of a module; None where this version has none."""
    name = f"conductor_cli.server.api.{module}"
    if util.find_spec(name) is None:
        return None
    return cast("ClientApi", getattr(import_module(name), CLASSES[module])())


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

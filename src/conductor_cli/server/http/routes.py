"""The HTTP application of `conductor serve`: its routes, and the way of a request to its run.

A request is read and checked here, then it is a run of the registry, and `RunAnswer` writes that
run to the client.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from conductor_cli.app.driver import Job
from conductor_cli.app.traces import open_trace_store
from conductor_cli.app.worker_selection import keep_policy_of
from conductor_cli.app.worker_tools import keep_tools_of
from conductor_cli.core.chat import text_size
from conductor_cli.core.errors import ConductorError
from conductor_cli.core.events import Event
from conductor_cli.core.serialization import encode_line
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.trace import Trace
from conductor_cli.programs.schema_check import size_of
from conductor_cli.run.orchestra import new_run_id
from conductor_cli.server.api.body_models import refused, require_schema
from conductor_cli.server.api.chat_completions import ChatCompletionsApi
from conductor_cli.server.api.errors import TOO_LONG, error_body, request_error
from conductor_cli.server.api.messages import BILLING, MessagesApi
from conductor_cli.server.api.request import ClientApi, ClientRequest, RequestError, ServedAnswer
from conductor_cli.server.api.responses import ResponsesApi
from conductor_cli.server.batches import Batches, Files
from conductor_cli.server.http.access import REQUEST_ID, Principal, principal_from, principal_of
from conductor_cli.server.http.answers import RunAnswer, answering, send_error
from conductor_cli.server.http.body import read_body
from conductor_cli.server.http.metrics import Metrics
from conductor_cli.server.http.page import page_routes
from conductor_cli.server.runs.conversation import client_calls
from conductor_cli.server.runs.followed_runs import FollowedRuns, response_object, show_events
from conductor_cli.server.runs.narration import ResponseStream
from conductor_cli.server.runs.run_registry import RunRegistry, ServedRun
from conductor_cli.server.runs.run_request import (
    UtilityPurpose,
    build_demo_job,
    build_job,
    classify_utility_request,
    holds_text,
    list_served_models,
)
from conductor_cli.state.opening import open_state
from conductor_cli.system.known_secrets import KNOWN_SECRETS

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from conductor_cli.state.postgres.records import LeftRun

APIS: Final[dict[str, ClientApi]] = {
    "/v1/chat/completions": ChatCompletionsApi(),
    "/v1/responses": ResponsesApi(),
    "/v1/messages": MessagesApi(),
}
"""The APIs that this server speaks, by the path at which a client creates an answer."""

MAX_TEXT: Final = 4_000_000
"""Bytes of all texts of a request, its tools and its schema: a million tokens, as many as the
largest models read.
"""


# When two requests are the same one, sent again. What clients repeat, seen on the wire in November
# 2026: the SDKs of OpenAI and Anthropic count their retries. Codex, Claude Code and opencode send
# the same conversation with the same session and no count, and Claude Code asks for it without a
# stream in the end.

_IGNORED: Final = frozenset(
    {
        "stream",
        "stream_options",
        "metadata",
        "user",
        "prompt_cache_key",
        "client_metadata",
        "safety_identifier",
    }
)
"""Fields that differ between a request and the same one sent again, or that change nothing of the
answer.
"""

_SESSIONS: Final = ("thread-id", "x-claude-code-session-id", "x-session-id")
"""Headers in which Codex, Claude Code and opencode name the conversation that a request belongs
to.
"""

LONG: Final = 1 << 16  # Characters of a text that its hash stands for

IDENTITY: Final = "idempotency-key"
"""The header by which a client names one request, however often it sends it (IETF
httpapi-idempotency-key-header).
"""


def idempotency_key(
    client: str, api: str, body: Mapping[str, Any], headers: Mapping[str, str]
) -> str:
    """Return what is equal for a request and the same one sent again by the same client, streamed
    or not.
    """
    same = {name: value for name, value in body.items() if name not in _IGNORED}
    system = same.get("system")
    # A block that a client puts before its system text differs with each attempt.
    if isinstance(system, list) and isinstance(first := next(iter(system), None), Mapping):
        same["system"] = system[1:] if str(first.get("text", "")).startswith(BILLING) else system
    sender = [client, session_of(headers), headers.get(IDENTITY, "")]
    text = json.dumps([sender, api, _shortened(same)], sort_keys=True, separators=(",", ":"))
    return _hash(text)


def _shortened(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """A JSON value with the hash of each long text in its place.

    To write one of megabytes stops all other threads.
    """
    if isinstance(value, str):
        return value if len(value) < LONG else _hash(value)
    if isinstance(value, dict):
        return {name: _shortened(item) for name, item in value.items()}
    return [_shortened(item) for item in value] if isinstance(value, list) else value


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def says_retry(headers: Mapping[str, str]) -> bool:
    """Return whether a client says that an equal request is the same one.

    Header names are in lower case.
    """
    return bool(headers.get(IDENTITY)) or headers.get("x-stainless-retry-count", "0") not in (
        "",
        "0",
    )


def session_of(headers: Mapping[str, str]) -> str:
    """The conversation that a request belongs to, as its client names it.

    Empty where it does not.
    """
    return next((headers[name] for name in _SESSIONS if headers.get(name)), "")


def parse_sized(api: ClientApi, body: Mapping[str, Any]) -> ClientRequest:
    """Return the request of a body.

    Raises `RequestError`, also for more text than any model reads.
    """
    request = api.parse(body)
    size = text_size(request.messages)
    if size <= MAX_TEXT:
        size = sum(len(message.content.encode("utf-8", "replace")) for message in request.messages)
    size += sum(len(call.arguments) for message in request.messages for call in message.tool_calls)
    for data in (request.schema, *(tool.parameters for tool in request.tools)):
        size += 10 * size_of(data, MAX_TEXT, characters=10)
    if size > MAX_TEXT:
        raise RequestError(400, TOO_LONG, f"{size:,} bytes of text are more than {MAX_TEXT:,}")
    return request


@dataclass
class CreateAnswer:
    """POST to the API at a path: the answer to a request, streamed or whole."""

    registry: RunRegistry
    followed: FollowedRuns
    metrics: Metrics
    path: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the request and answer it.

        Whatever is wrong with it is an error in the API's own envelope.
        """
        api = APIS[self.path]
        try:
            answer = await self._answer(api, Request(scope, receive))
        except ClientDisconnect:
            return
        except (RequestError, ConductorError) as failed:
            error = failed if isinstance(failed, RequestError) else request_error(failed.failure)
            self.metrics.refused.labels(api.name, str(error.status)).inc()
            await send_error(send, self.path, error, {"x-request-id": scope[REQUEST_ID]})
            return
        self.metrics.requests.labels(api.name).inc()
        await answer(scope, receive, send)

    async def _answer(self, api: ClientApi, http: Request) -> ASGIApp:
        headers = {name.lower(): value for name, value in http.headers.items()}
        registry = self.registry
        principal = principal_of(http.scope)

        def parse(body: Mapping[str, Any]) -> tuple[ClientRequest, str, Mapping[str, Any] | None]:
            request = parse_sized(api, body)
            kept = body if request.background or headers.get(IDENTITY) else None
            return request, idempotency_key(principal.origin, api.name, body, headers), kept

        request, key, body = await read_body(http, parse)
        await registry.runs.load_call_ids()
        await require_schema(request)
        served = None
        run = ""
        # Nobody reads one in the background, nor has lost it
        if not request.background or says_retry(headers):
            served = registry.join(
                key, is_retry=says_retry(headers), in_session=bool(session_of(headers))
            )
        if served is None and headers.get(IDENTITY):
            claimed = await self.followed.claim(principal, headers[IDENTITY], key)
            served, run = (None, claimed) if isinstance(claimed, str) else (claimed, "")
        if served is None:
            purpose = classify_utility_request(request, headers)
            run = run or new_run_id(datetime.now(UTC))
            served = await self._begin(
                request, principal, run=run, key=key, purpose=purpose, body=body
            )
        if request.background and not request.stream:
            return JSONResponse(response_object(served), headers={"x-request-id": served.id})
        return RunAnswer(registry, served, api, replace(request, blobs={}), self.path)

    async def _begin(  # noqa: PLR0913 - what a request says, and what is known of its run
        self,
        request: ClientRequest,
        principal: Principal,
        *,
        run: str,
        key: str,
        purpose: UtilityPurpose | None,
        body: Mapping[str, Any] | None,
    ) -> ServedRun:
        """Begin a run.

        With a `body` it outlives this server: what `take_over_run` needs is stored first.
        """
        registry = self.registry
        leases = None
        if body is not None and registry.runs.store_of(registry.runs.settings()) is not None:
            leases = registry.runs.leases
        elif request.background:
            raise refused("background", "needs a trace, and this server stores none")
        if leases is not None:
            job = {
                "path": self.path,
                "body": body,
                "origin": principal.origin,
                "key": key,
                "purpose": purpose,
            }
            await asyncio.to_thread(lambda: leases.announce(run, encode_line(job, KNOWN_SECRETS)))
        try:
            leased = leases is not None
            return begin_served(
                registry, request, principal, run=run, key=key, purpose=purpose, leased=leased
            )
        except RequestError:
            if leases is not None:
                await asyncio.to_thread(leases.withdraw, run)
            raise


def begin_served(  # noqa: PLR0913 - what a request says, and what is known of its run
    registry: RunRegistry,
    request: ClientRequest,
    principal: Principal,
    *,
    run: str,
    key: str,
    purpose: UtilityPurpose | None = None,
    leased: bool = False,
    events: Sequence[Event] = (),
) -> ServedRun:
    """Begin the run of a request, or go on behind the `events` that another server has stored of
    it.

    The `key` is the same where a client sends its request again; a request with a `purpose` needs
    no plan. `leased`: another server goes on with the run where this one is gone. Raises
    `RequestError`.
    """
    sign = partial(client_calls, ids=registry.runs.call_ids)
    stream = ResponseStream(holds_text=holds_text(request), sign=sign)
    make = build_demo_job if registry.runs.options.rehearsal else build_job

    async def build(of: str) -> Job:
        job = replace(await make(registry.runs, request, of, principal.key, purpose), leased=leased)
        if not events:
            return job
        trace = show_events(served, Trace(), events)
        settings = keep_tools_of(keep_policy_of(job.settings, trace)[0], trace)
        return replace(job, settings=settings, question=trace.question, resume=trace)

    served = registry.begin(key, build, stream, principal=principal, run=run)
    served.model = request.model
    served.stays = request.background
    served.is_leased = leased
    served.keep_namespaces(request.tools)
    return served


async def read_again(path: str, body: dict[str, Any]) -> ClientRequest:
    """Read a request that was stored. Raises `RequestError`."""
    request = await asyncio.to_thread(parse_sized, APIS[path], body)
    await require_schema(request)
    return request


async def take_over_run(registry: RunRegistry, left: LeftRun) -> ServedRun:
    """Go on with the run of a server that is gone, as if its client had asked here."""
    job = json.loads(left.job)
    request = await read_again(job["path"], job["body"])
    client = principal_from(job["origin"], registry.runs.settings().paths.config)
    return begin_served(
        registry,
        request,
        client,
        run=left.run,
        key=job["key"],
        purpose=job["purpose"],
        leased=True,
        events=left.events,
    )


async def begin_batched(
    registry: RunRegistry, path: str, body: dict[str, Any], principal: Principal
) -> tuple[ServedRun, Callable[[ServedAnswer], dict[str, Any]]]:
    """Begin the run of a request of a batch; returns it, and what writes its answer.

    Raises `RequestError`.
    """
    request = await read_again(path, body)
    served = begin_served(registry, request, principal, run="", key=f"batch {token_hex(16)}")
    bare = replace(request, blobs={})
    return served, lambda answer: APIS[path].encoder(bare, served.id, served.created).whole(answer)


def build_app(registry: RunRegistry) -> Starlette:
    """The application over the runs of a server."""
    metrics = Metrics(registry.runs.loaded.circuits.reports)
    registry.observe = metrics.count_run

    async def count_tokens(http: Request) -> dict[str, Any]:
        return await read_body(http, MessagesApi().count_tokens)

    async def models(http: Request) -> dict[str, Any]:
        listed = list_served_models(
            registry.runs.settings(), anthropic="anthropic-version" in http.headers
        )
        if (name := http.path_params.get("model")) is None:
            return listed
        for each in listed["data"]:
            if each["id"] == name:
                return dict(each)
        raise HTTPException(404)

    async def health(http: Request) -> Response:
        """Say that the server lives; at `/health` also how much it does."""
        more = {"running": len(registry.going_on)} if http.url.path == "/health" else {}
        return JSONResponse({"status": "ok", **more})

    async def ready(http: Request) -> Response:
        """Return whether requests should come here, and what is missing if not."""
        if missing := await registry.readiness.missing(http.client.host if http.client else ""):
            return JSONResponse({"status": "not ready", "missing": missing}, 503)
        return JSONResponse({"status": "ok"})

    async def counters(_: Request) -> Response:
        text, kind = metrics.render(len(registry.going_on))
        return Response(text, headers={"content-type": kind})

    followed = FollowedRuns(registry, partial(take_over_run, registry))
    answers: dict[str, ASGIApp] = {
        path: CreateAnswer(registry, followed, metrics, path) for path in APIS
    }
    store = open_state(registry.runs.settings().paths).served_files
    files = Files(store)
    batches = Batches(registry, store, partial(begin_batched, registry))
    registry.tasks = (batches.work, followed.watch)
    return Starlette(
        routes=[
            *(Route(path, answer, methods=["POST"]) for path, answer in answers.items()),
            *followed.routes,
            *files.routes,
            *batches.routes,
            Route("/v1/messages/count_tokens", answering(count_tokens), methods=["POST"]),
            Route("/v1/models", answering(models)),
            Route("/v1/models/{model:path}", answering(models)),
            Route("/health", health),
            Route("/livez", health),
            Route("/readyz", ready),
            Route("/metrics", counters),
            *page_routes(open_trace_store, registry),
        ],
        exception_handlers={HTTPException: _answer_error, Exception: _answer_error},
    )


async def _answer_error(http: Request, error: Exception) -> Response:
    """Answer what no route has: an unknown path, a wrong method, or a failure of this server."""
    status = getattr(error, "status_code", 500)
    said = {
        404: f"there is no {one_line(http.url.path)[:100]}",
        405: f"{http.method} is not for this path",
    }
    if http.url.path == "/openapi.json":
        said[404] = "the OpenAPI document is gone: docs/serve-reference.md lists the addresses"
    code = {404: "not_found", 405: "method_not_allowed"}.get(status, "internal_error")
    failed = RequestError(status, code, said.get(status, "the server failed; its log says where"))
    body = error_body(failed, http.url.path, http.scope[REQUEST_ID])
    return JSONResponse(body, status, getattr(error, "headers", None))

"""`POST` to one of the APIs: from the request of a client to the run that answers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from conductor_cli.core.errors import ConductorError
from conductor_cli.run.orchestra import new_run_id
from conductor_cli.server.api.apis import APIS, parse_sized
from conductor_cli.server.api.body_models import require_schema
from conductor_cli.server.api.errors import request_error
from conductor_cli.server.api.request import ClientApi, ClientRequest, RequestError
from conductor_cli.server.http.access import REQUEST_ID, Principal, principal_of
from conductor_cli.server.http.answers import RunAnswer, send_error
from conductor_cli.server.http.body import read_body
from conductor_cli.server.http.idempotency import (
    KEY_HEADER,
    idempotency_key,
    is_retry,
    session_of,
)
from conductor_cli.server.http.metrics import Metrics
from conductor_cli.server.runs.begin_served import begin_kept
from conductor_cli.server.runs.followed_runs import (
    FollowedRuns,
    has_references,
    response_object,
)
from conductor_cli.server.runs.run_registry import RunRegistry, ServedRun
from conductor_cli.server.runs.run_request import classify_utility_request

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


@dataclass(frozen=True, slots=True)
class _Received:
    """A request as it was read.

    `key` is what is equal where it is sent again. `body` is there where the run of the request may
    have to go on in another server.
    """

    request: ClientRequest
    key: str
    body: Mapping[str, Any] | None
    headers: Mapping[str, str]
    principal: Principal


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
        self.metrics.requests_of(api.name).inc()
        await answer(scope, receive, send)

    async def _answer(self, api: ClientApi, http: Request) -> ASGIApp:
        headers = {name.lower(): value for name, value in http.headers.items()}
        principal = principal_of(http.scope)
        parse = partial(_parse, api, headers, principal)
        received = await read_body(http, lambda body: body if has_references(body) else parse(body))
        if not isinstance(received, _Received):
            received = parse(await self.followed.with_items(received, principal))
        answer = await self._begin(api, received)
        if answer.request.background and not answer.request.stream:
            served = answer.served
            return JSONResponse(response_object(served), headers={"x-request-id": served.id})
        return answer

    async def answer_body(
        self, body: Mapping[str, Any], scope: Scope, *, goes_on_at_once: bool
    ) -> RunAnswer:
        """Return the answer to a body that came on a connection of its own.

        Raises `RequestError` and `ConductorError`.
        """
        api = APIS[self.path]
        principal = principal_of(scope)
        headers = {
            name.decode("latin-1"): text.decode("latin-1") for name, text in scope["headers"]
        }
        if has_references(body):
            body = await self.followed.with_items(body, principal)
        received = _parse(api, headers, principal, body)
        request = replace(received.request, goes_on_at_once=goes_on_at_once)
        answer = await self._begin(api, replace(received, request=request))
        self.metrics.requests_of(api.name).inc()
        return answer

    async def _begin(self, api: ClientApi, received: _Received) -> RunAnswer:
        """Return the answer of the run of a request: a new one, or that of the same request."""
        await self.registry.starter.load_call_ids()
        await require_schema(received.request)
        served = await self._run_for(received)
        request = received.request
        if request.blobs:
            request = replace(request, blobs={})
        return RunAnswer(self.registry, served, api, request, self.path)

    async def _run_for(self, received: _Received) -> ServedRun:
        """Return the run of the same request, here or in another server; else a new one."""
        request = received.request
        headers = received.headers
        # A request in the background has no reader who could have lost its run.
        if not request.background or is_retry(headers):
            served = self.registry.join(
                received.key, is_retry=is_retry(headers), in_session=bool(session_of(headers))
            )
            if served is not None:
                return served
        run = new_run_id(datetime.now(UTC))
        if headers.get(KEY_HEADER):
            claimed = await self.followed.claim(
                received.principal, headers[KEY_HEADER], received.key
            )
            if not isinstance(claimed, str):
                return claimed
            run = claimed
        return await begin_kept(
            self.registry,
            request,
            received.principal,
            path=self.path,
            run=run,
            key=received.key,
            purpose=classify_utility_request(request, headers),
            body=received.body,
        )


def _parse(
    api: ClientApi, headers: Mapping[str, str], principal: Principal, body: Mapping[str, Any]
) -> _Received:
    """Read the body of a request. Raises `RequestError`."""
    request = parse_sized(api, body)
    may_go_on_elsewhere = request.background or bool(headers.get(KEY_HEADER))
    return _Received(
        request=request,
        key=idempotency_key(principal.origin, api.name, body, headers),
        body=body if may_go_on_elsewhere else None,
        headers=headers,
        principal=principal,
    )

"""From a request to its run: a new one, one that another server left, or one of a batch."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from conductor_cli.app.worker_selection import keep_policy_of
from conductor_cli.app.worker_tools import keep_tools_of
from conductor_cli.core.events import Event
from conductor_cli.core.serialization import encode_line
from conductor_cli.core.trace import Trace
from conductor_cli.programs.turns import CURRENT_CLIENT
from conductor_cli.server.api.apis import APIS, parse_sized
from conductor_cli.server.api.body_faults import refused
from conductor_cli.server.api.body_models import require_schema
from conductor_cli.server.api.request import (
    ClientRequest,
    RequestError,
    ServedAnswer,
    UtilityPurpose,
)
from conductor_cli.server.http.access import Principal, principal_from
from conductor_cli.server.runs.conversation import client_calls
from conductor_cli.server.runs.followed_runs import show_events
from conductor_cli.server.runs.narration import ResponseStream
from conductor_cli.server.runs.run_registry import RunRegistry, ServedRun
from conductor_cli.server.runs.run_request import (
    build_demo_job,
    build_job,
    holds_text,
)
from conductor_cli.server.runs.run_starter import ServedJob
from conductor_cli.system.known_secrets import KNOWN_SECRETS
from conductor_cli.system.threads import LARGE_WORK

if TYPE_CHECKING:
    from conductor_cli.state.postgres.records import LeftRun


async def begin_kept(  # noqa: PLR0913 - what a request says, and what is known of its run
    registry: RunRegistry,
    request: ClientRequest,
    principal: Principal,
    *,
    path: str,
    run: str,
    key: str,
    purpose: UtilityPurpose | None,
    body: Mapping[str, Any] | None,
) -> ServedRun:
    """Begin the run of a request, as `begin_served`.

    With a `body`, which was sent to `path`, it outlives this server where the state is shared: what
    `take_over_run` needs is stored first. Raises `RequestError`.
    """
    starter = registry.starter
    is_kept = body is not None and starter.store_of(starter.settings()) is not None
    if request.background and not is_kept:
        raise refused("background", "needs a trace, and this server stores none")
    leases = starter.leases if is_kept else None
    begin = partial(begin_served, registry, request, principal, run=run, key=key, purpose=purpose)
    if leases is None:
        return begin()
    job = {
        "path": path,
        "body": body,
        "origin": principal.origin,
        "key": key,
        "purpose": purpose,
    }
    await asyncio.to_thread(lambda: leases.announce(run, encode_line(job, KNOWN_SECRETS)))
    try:
        return begin(leased=True)
    except RequestError:
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
    """Begin the run of a request, or go on behind the `events` that another server stored of it.

    The `key` is the same where a client sends its request again; a request with a `purpose` needs
    no plan. `leased`: another server goes on with the run where this one is gone. Raises
    `RequestError`.
    """
    sign = partial(client_calls, ids=registry.starter.call_ids)
    stream = ResponseStream(holds_text=holds_text(request), sign=sign)
    make = build_demo_job if registry.starter.options.rehearsal else build_job

    async def build(of: str) -> ServedJob:
        job = await make(registry.starter, request, of, principal.key, purpose)
        if leased:
            job = replace(job, spec=replace(job.spec, leased=True))
        if not events:
            return job
        trace = show_events(served, Trace(), events)
        settings = keep_tools_of(keep_policy_of(job.settings, trace)[0], trace)
        spec = replace(job.spec, question=trace.question, resume=trace)
        return replace(job, settings=settings, spec=spec)

    served = registry.begin(key, build, stream, principal=principal, run=run)
    served.model = request.model
    served.outlives_clients = request.background
    served.is_leased = leased
    served.keep_request(request)
    return served


async def read_again(path: str, body: dict[str, Any]) -> ClientRequest:
    """Read a request that was stored. Raises `RequestError`."""
    request = await LARGE_WORK.run(partial(parse_sized, APIS[path], body))
    await require_schema(request)
    return request


async def take_over_run(registry: RunRegistry, left: LeftRun) -> ServedRun:
    """Go on with the run of a server that is gone, as if its client had asked here."""
    job = json.loads(left.job)
    request = await read_again(job["path"], job["body"])
    client = principal_from(job["origin"], registry.starter.settings().paths.config)
    CURRENT_CLIENT.set(client.client)
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

"""`GET /`, the page to look at runs, and the routes under `/v1/conductor/` that it reads.

The page holds no data, so it is served without a key; everything that it shows comes from the routes, which are behind
the same key as the APIs. A stored run and one that is being written, by this server or by any other process, are the
same file. The page asks and stops by the Responses API, as any client does.

    GET /v1/conductor/runs                    a list, newest first: count, before, search, state
    GET /v1/conductor/runs/ID                 what `trace show --json` prints, and the tree
    GET /v1/conductor/runs/ID/events          server-sent events: those stored, then each as it is written
    GET /v1/conductor/runs/ID/frames          server-sent events: the run as it looks; replayed with speed and from
    GET /v1/conductor/runs/ID/steps/NUMBER    a step with its prompt and its response; 0 for question, plan and answer
    POST /v1/conductor/runs/ID/rating         {"verdict": "good" | "bad", "step": N}, without a step of the whole answer
    POST /v1/conductor/runs/ID/rerun          {"step": N, "worker": NAME}: its plan again from step N on, as a new run
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

import anyio
import anyio.to_thread
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from conductor_cli.app.learning import rate_run
from conductor_cli.app.traces import earliest_run_id
from conductor_cli.core.continuation import reset_from_step
from conductor_cli.core.errors import ConductorError, PolicyError, UsageError
from conductor_cli.core.learning import Verdict, describe_rating
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.trace import Outcome, Trace
from conductor_cli.server.access import NO_PAGE, Principal, principal_of
from conductor_cli.server.api.errors import error_body, request_error
from conductor_cli.server.api.request import RequestError
from conductor_cli.server.body import read_json
from conductor_cli.server.narration import ResponseStream
from conductor_cli.server.page_data import node_data, opened_step, question_data
from conductor_cli.server.page_streams import (
    FollowedSource,
    LiveSource,
    ReplaySource,
    event_stream,
    frame_stream,
    keyless_json,
)
from conductor_cli.server.requests import build_rerun
from conductor_cli.server.run_registry import SHARE, RunRegistry, ServedRun
from conductor_cli.server.stored_runs import (
    confidential,
    first_event,
    may_read,
    may_see,
    newest_runs,
    select_live,
)
from conductor_cli.state.interfaces import Traces
from conductor_cli.state.stored_run import RunQuery, normalize_terms
from conductor_cli.views.json_output import run_json
from conductor_cli.views.run_tree import run_tree

if TYPE_CHECKING:
    from starlette.requests import Request

MAX_RUNS: Final = 100
"""Runs in one list."""

MAX_STREAMS: Final = 64
"""Streams of events at once: each is a browser that looks. One client may have three quarters of them, by `SHARE`."""

MAX_ACT: Final = 4_000
"""Bytes of a body: what is rated, or run again."""

MAX_SPEED: Final = 64.0
"""The highest speed of a replay."""

_STATES: Final = (*get_args(Outcome), "unreadable")

_ID: Final = re.compile(r"[\w-]{1,80}")

_PRIVATE: Final = {
    "cache-control": "no-store", "x-content-type-options": "nosniff", "cross-origin-resource-policy": "same-origin",
}  # fmt: skip
T = TypeVar("T")


def page_routes(store: Callable[[], Traces], registry: RunRegistry | None = None) -> list[Route]:
    """The page and its routes over a store of traces, and the runs of a server. `access.py` stands before them."""
    page, runs = _Page(store, registry), "/v1/conductor/runs"
    return [
        Route("/", _document, methods=["GET"]),
        Route(runs, _answering(page.list_runs), methods=["GET"]),
        Route(f"{runs}/{{run}}", _answering(page.show_run), methods=["GET"]),
        Route(f"{runs}/{{run}}/events", _answering(page.follow_events), methods=["GET"]),
        Route(f"{runs}/{{run}}/frames", _answering(page.follow_frames), methods=["GET"]),
        Route(f"{runs}/{{run}}/steps/{{number}}", _answering(page.show_step), methods=["GET"]),
        Route(f"{runs}/{{run}}/rating", _answering(page.rate), methods=["POST"]),
        Route(f"{runs}/{{run}}/rerun", _answering(page.rerun), methods=["POST"]),
    ]


def _answering(act: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            return await act(request)
        except RequestError as error:
            return JSONResponse(error_body(error), error.status, _PRIVATE)

    return answer


class _Page:
    """The routes over one store. Files are read on threads, of which there are few. All raise `RequestError`."""

    def __init__(self, store: Callable[[], Traces], registry: RunRegistry | None) -> None:
        self._store = store
        self._registry = registry
        self._threads = anyio.CapacityLimiter(4)
        self._streams = Counter[str]()  # by owner

    async def list_runs(self, request: Request) -> Response:
        """The newest runs of a client, and whether there are more, which `before` the last of these asks for.

        Those that no file has come beside them, in the order of their ids, which is that of time.
        """
        query, client = request.query_params, principal_of(request.scope)
        state, count = query.get("state", ""), int(_number(query, "count", MAX_RUNS)) or 20
        if state and state not in _STATES:
            raise RequestError(400, "invalid_value", f"state is one of {', '.join(_STATES)}")
        wanted = RunQuery(
            state=state, before=query.get("before", ""), terms=normalize_terms([query.get("search", "")[:1000]]),
            **_own_runs(client),
        )  # fmt: skip
        registry = self._registry
        live = list(select_live([served.stream.trace for served in self._unstored], wanted, client))
        skipped = [one_line(each.text) for each in registry.runs.circuits() if each.text] if registry else []
        acts = registry is not None and NO_PAGE not in registry.runs.settings()["serve.origins"]

        def find() -> dict[str, Any]:
            found, more, last = newest_runs(self._store(), wanted, count, lambda first: may_read(client, first))
            rows = [*live, *(row | {"stored": True} for row in found)]
            rows = sorted(rows, key=lambda row: row["run"], reverse=True) if live else rows
            return {"runs": rows, "more": more, "last": last, "skipped": skipped, "acts": acts}

        return await self._json(find)

    async def show_run(self, request: Request) -> Response:
        def show() -> dict[str, Any]:
            trace, path, live = self._trace(request)
            return run_json(trace, path, live=live, prompts=True) | {"tree": node_data(run_tree(trace))}

        return await self._json(show)

    async def show_step(self, request: Request) -> Response:
        def show() -> dict[str, Any]:
            (trace, _, _), number = self._trace(request), request.path_params["number"]
            data = question_data(trace) if number == "0" else opened_step(trace, number)
            if data is None:
                raise UsageError(f"run {trace.run} has no step {number[:40]!r}")
            return data

        return await self._json(show)

    async def follow_events(self, request: Request) -> Response:
        """Each event once; a client that comes back says by `Last-Event-ID` which one it had last."""
        run = await self._in_thread(lambda: self._found(request))
        last = request.headers.get("last-event-id", "").removeprefix(f"{run}:")
        after = int(last) if last.isascii() and last.isdecimal() else 0
        return self._stream(request, event_stream(self._store().follow(run), run, after))

    async def follow_frames(self, request: Request) -> Response:
        speed = _number(request.query_params, "speed", MAX_SPEED)
        start = _number(request.query_params, "from", 1e9)
        live = self._live(request)
        if live is not None and not speed:
            return self._stream(request, frame_stream(LiveSource(live)))
        run, store = await self._in_thread(lambda: self._found(request)), self._store()
        if speed:
            return self._stream(request, frame_stream(ReplaySource(store.events(run), speed, start), idle=0.0))
        return self._stream(request, frame_stream(FollowedSource(store.follow(run))))

    async def rate(self, request: Request) -> Response:
        """Store what the user thinks of the answer of a run, or of one of its steps."""
        verdict, step, _ = await _read_act(request)
        trace, runs = await self._ended(request), self._acting().runs
        if verdict not in get_args(Verdict):
            raise RequestError(400, "invalid_value", f"verdict is one of {', '.join(get_args(Verdict))}")

        def rated() -> dict[str, str]:
            try:
                return {"rated": describe_rating(rate_run(runs.settings(), trace, verdict, step=step))}
            except ConductorError as error:
                raise request_error(error.failure) from None

        return await self._json(rated)

    async def rerun(self, request: Request) -> Response:
        """Begin to run the plan of a run again, and say which run that is."""
        _, step, worker = await _read_act(request)
        trace, registry, client = await self._ended(request), self._acting(), principal_of(request.scope)
        try:
            again = reset_from_step(trace, step, worker or None)
        except UsageError as error:
            raise request_error(error.failure) from None
        served = registry.begin(
            f"rerun {trace.run}", lambda run: build_rerun(registry.runs, again, run, client), ResponseStream(),
            principal=client,
        )  # fmt: skip
        await served.began.wait()
        if isinstance(served.ended, RequestError):
            raise served.ended
        return JSONResponse({"run": served.id}, headers=_PRIVATE)

    async def _ended(self, request: Request) -> Trace:
        return await self._in_thread(lambda: self._store().ended(self._found(request)))

    def _acting(self) -> RunRegistry:
        """The runs of the server. Raises `RequestError` for routes over a store alone."""
        if self._registry is None:
            raise RequestError(403, "page_only_shows", "nothing runs behind this page")
        return self._registry

    @property
    def _unstored(self) -> list[ServedRun]:
        return self._registry.unstored if self._registry is not None else []

    async def _json(self, make: Callable[[], Any]) -> Response:
        text = await self._in_thread(lambda: keyless_json(make()))
        return Response(text, media_type="application/json", headers=_PRIVATE)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await anyio.to_thread.run_sync(work, limiter=self._threads)
        except PolicyError as error:
            raise RequestError(403, "run_not_shown", f"{error.message}; {error.hint}") from None
        except UsageError as error:
            raise RequestError(404, "run_not_found", one_line(error.message)) from None
        except (ConductorError, OSError) as error:
            why = f"the stored runs cannot be read: {type(error).__name__}"
            raise RequestError(503, "runs_unreadable", why) from None

    def _live(self, request: Request) -> ServedRun | None:
        """The run that a request names, where no file has it; None where it may not be shown, too."""
        client, run = principal_of(request.scope), request.path_params["run"]
        found = next((each for each in self._unstored if each.id == run), None)
        trace = found.stream.trace if found is not None else Trace()
        return found if may_see(client, trace) and may_read(client, trace) else None

    def _trace(self, request: Request) -> tuple[Trace, str | None, bool]:
        """The run that a request names, where it is, and whether it goes on. Raises `UsageError` or `PolicyError`."""
        live = self._live(request)
        if live is not None:
            return live.stream.trace, None, live.ended is None
        run, store = self._found(request), self._store()
        goes_on = store.is_running(run)
        return store.trace(run), store.location(run), goes_on

    def _found(self, request: Request) -> str:
        """The id of the run that a request names. Raises `UsageError` or `PolicyError` where it may not be shown."""
        store, client, name = self._store(), principal_of(request.scope), str(request.path_params["run"])
        run, first = name, first_event(store, name) if _ID.fullmatch(name) else None
        if first is None:
            # Neither a number nor the beginning of an id says anything about the runs of others.
            own = None if client.key is None else store.newest(RunQuery(**_own_runs(client)), count=-1)[0]
            run = store.find(name, None if own is None else [row.run for row in own])
            first = first_event(store, run)
        if first is None or not may_see(client, first):  # it is not said that there is one
            raise UsageError(f"there is no run {name!r}")
        if not may_read(client, first):
            raise confidential(run)
        return run

    def _stream(self, request: Request, pieces: AsyncIterator[bytes]) -> Response:
        owner = principal_of(request.scope).owner
        if self._streams[owner] >= SHARE * (MAX_STREAMS - self._streams.total()):
            why = f"{self._streams.total()} pages look at runs, which is as many as can; close some of them"
            raise RequestError(503, "too_many_streams", why)

        async def counted() -> AsyncIterator[bytes]:
            self._streams[owner] += 1
            try:
                async for piece in pieces:
                    yield piece
            finally:
                self._streams[owner] -= 1
                self._streams += Counter()  # forget those that have none

        headers = _PRIVATE | {"x-accel-buffering": "no"}
        return StreamingResponse(counted(), media_type="text/event-stream", headers=headers)


async def _read_act(request: Request) -> tuple[Any, int, str]:
    """Verdict, step (0 for none) and worker of an act of the page. Raises `RequestError`."""
    data = await request.body()
    if len(data) > MAX_ACT:
        raise RequestError(413, "request_too_large", f"the body has more than {MAX_ACT} bytes")
    body = read_json(data)
    step, worker = body.get("step", 0), body.get("worker", "")
    if type(step) is not int or step < 0 or not isinstance(worker, str):
        raise RequestError(400, "invalid_value", "step is the number of a step, worker a name")
    return body.get("verdict"), step, worker


def _own_runs(client: Principal) -> dict[str, Any]:
    """What a `RunQuery` has for the runs of a client, none of which are older than its key. Without keys, all runs."""
    if client.key is None:
        return {}
    since = client.key.since and earliest_run_id(client.key.since, datetime.now(UTC))
    return {"origins": client.origins, "since": since}


def _number(query: Mapping[str, str], name: str, most: float) -> float:
    """A number from 0 to `most`; 0 where it is not there."""
    try:
        value = float(query.get(name) or 0)
    except ValueError:
        value = -1.0
    if not 0 <= value <= most:  # also false for what is not a number
        raise RequestError(400, "invalid_value", f"{name} is a number from 0 to {most:g}")
    return value


async def _document(request: Request) -> Response:
    text, policy, tag = _read_document()
    headers = {
        "content-security-policy": policy,
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": "camera=(), geolocation=(), microphone=()",
        "cache-control": "no-cache",
        "etag": tag,
    }
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(text, media_type="text/html; charset=utf-8", headers=headers)


@cache
def _read_document() -> tuple[bytes, str, str]:
    """The page, its content security policy and its tag. Only the script and the style in the file itself may run."""
    text = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    hashes = {
        name: base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()
        for name in ("script", "style")
        if (found := re.search(rf"<{name}>(.*?)</{name}>", text, re.DOTALL))
    }
    policy = (
        f"default-src 'none'; script-src 'sha256-{hashes['script']}'; style-src 'sha256-{hashes['style']}'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types rendered"
    )
    return text.encode(), policy, f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'

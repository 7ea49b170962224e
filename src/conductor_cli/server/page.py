"""`GET /`, the page to look at runs, and the routes under `/v1/conductor/` that it reads.

The page holds no data, so it is served without a key; everything that it shows comes from the routes, which are behind
the same key as the APIs. They only read: a stored run and one that is being written, by this server or by any other
process, are the same file.

    GET /v1/conductor/runs                    a list, newest first: count, before, search, state
    GET /v1/conductor/runs/ID                 what `trace show --json` prints, and the tree
    GET /v1/conductor/runs/ID/events          server-sent events: those stored, then each as it is written
    GET /v1/conductor/runs/ID/frames          server-sent events: the run as it looks; replayed with speed and from
    GET /v1/conductor/runs/ID/steps/NUMBER    a step with its prompt and its response; 0 for question, plan and answer
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import anyio.to_thread
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from conductor_cli.core.errors import ConductorError, PolicyError, UsageError
from conductor_cli.core.events import RunStarted
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.trace import Trace
from conductor_cli.run.circuits import CircuitReport
from conductor_cli.server.access import origin_of
from conductor_cli.server.page_data import (
    answer_data,
    event_stream,
    find_run,
    frame_stream,
    keyless_json,
    live_frames,
    node_data,
    question_data,
    replay_stream,
    select_runs,
    step_data,
)
from conductor_cli.server.run_registry import ServedRun
from conductor_cli.server.runs import ANYONE, confidential, may_read, may_see
from conductor_cli.state.run_index import RunIndex
from conductor_cli.state.stored_run import RunQuery, StoredRun, normalize_terms, stored_run_data
from conductor_cli.state.trace_store import TraceStore
from conductor_cli.views.json_output import run_data
from conductor_cli.views.run_tree import run_tree

if TYPE_CHECKING:
    from starlette.requests import Request

MOST_RUNS: Final = 100
"""Runs in one list."""

STREAMS: Final = 64
"""Streams of events at once: each is a browser that looks."""

FASTEST: Final = 64.0
"""The highest speed of a replay."""

_STATES: Final = ("finished", "partial", "failed", "running", "interrupted", "unreadable")
_SHOWN: Final = ("run", "time", "state", "question", "workers", "cost", "unpriced", "tokens", "seconds")
_HIDDEN: Final = "(not shown: its rules keep it from other programs)"

_PRIVATE: Final = {
    "cache-control": "no-store", "x-content-type-options": "nosniff", "cross-origin-resource-policy": "same-origin",
}  # fmt: skip
T = TypeVar("T")


def page_routes(
    store: Callable[[], TraceStore], unstored: Callable[[], list[ServedRun]] = list,
    circuits: Callable[[], list[CircuitReport]] = list,
) -> list[Route]:  # fmt: skip
    """The page and its routes over a store of traces, and runs that no file has. `access.py` stands before them.

    `circuits` say which workers and providers are skipped for a time.
    """
    page = _Page(store, unstored, circuits)
    runs = "/v1/conductor/runs"
    return [
        Route("/", _document, methods=["GET"]),
        Route(runs, page.list_runs, methods=["GET"]),
        Route(f"{runs}/{{run}}", page.show_run, methods=["GET"]),
        Route(f"{runs}/{{run}}/events", page.follow_events, methods=["GET"]),
        Route(f"{runs}/{{run}}/frames", page.follow_frames, methods=["GET"]),
        Route(f"{runs}/{{run}}/steps/{{number}}", page.show_step, methods=["GET"]),
    ]


class _Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.response = JSONResponse(
            {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}},
            status_code=status, headers=_PRIVATE,
        )  # fmt: skip


class _Page:
    """The routes over one store. Files are read on threads, of which there are few."""

    def __init__(
        self, store: Callable[[], TraceStore], unstored: Callable[[], list[ServedRun]],
        circuits: Callable[[], list[CircuitReport]],
    ) -> None:  # fmt: skip
        self._store = store
        self._circuits = circuits
        self._unstored = unstored
        self._threads = anyio.CapacityLimiter(4)
        self._streams = 0

    async def list_runs(self, request: Request) -> Response:
        traces = [served.narrator.trace for served in self._unstored()]
        skipped = [one_line(report.text) for report in self._circuits() if report.text]
        return await self._answer(
            lambda: (
                _newest_runs(self._store(), traces, request.query_params, origin_of(request.scope))
                | {"skipped": skipped}
            )
        )

    async def show_run(self, request: Request) -> Response:
        live = self._live(request)
        if live is not None:
            return await self._answer(lambda: _unstored_run(live.narrator.trace, ended=live.ended is not None))
        return await self._answer(lambda: _whole_run(self._store(), self._found(request)))

    async def show_step(self, request: Request) -> Response:
        live, number = self._live(request), request.path_params["number"]
        if live is not None:
            return await self._answer(lambda: _step_or_question(live.narrator.trace, number))
        return await self._answer(lambda: _step_or_question(self._store().trace(self._found(request)), number))

    async def follow_events(self, request: Request) -> Response:
        """Each event once; a client that comes back says by `Last-Event-ID` which one it had last."""
        try:
            run = await self._in_thread(lambda: self._found(request))
            last = request.headers.get("last-event-id", "")
            path = self._store().path(run)
            return self._stream(event_stream(path, int(last) if last.isascii() and last.isdecimal() else 0))
        except _Refused as refused:
            return refused.response

    async def follow_frames(self, request: Request) -> Response:
        try:
            speed = _number(request.query_params, "speed", FASTEST)
            start = _number(request.query_params, "from", 1e9)
            live = self._live(request)
            if live is not None and not speed:
                return self._stream(live_frames(live))
            run = await self._in_thread(lambda: self._found(request))
            store = self._store()
            if not speed:
                return self._stream(frame_stream(store.path(run)))
            return self._stream(replay_stream(lambda: store.events(run), speed, start))
        except _Refused as refused:
            return refused.response

    async def _answer(self, make: Callable[[], Any]) -> Response:
        """What `make` returns, made on a thread, as JSON."""
        try:
            return Response(
                await self._in_thread(lambda: keyless_json(make())), media_type="application/json", headers=_PRIVATE
            )
        except _Refused as refused:
            return refused.response

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await anyio.to_thread.run_sync(work, limiter=self._threads)
        except PolicyError as error:
            raise _Refused(403, "run_not_shown", f"{error.message}; {error.hint}") from None
        except UsageError as error:
            raise _Refused(404, "run_not_found", one_line(error.message)) from None
        except (ConductorError, OSError) as error:
            raise _Refused(503, "runs_unreadable", f"the stored runs cannot be read: {type(error).__name__}") from None

    def _live(self, request: Request) -> ServedRun | None:
        """The run that a request names, where no file has it; None where it may not be shown, too."""
        origin = origin_of(request.scope)
        found = find_run(self._unstored(), request.path_params["run"], origin)
        return found if found is not None and may_read(origin, found.narrator.trace) else None

    def _found(self, request: Request) -> str:
        """The id of the run that a request names. Raises `UsageError` or `PolicyError` where it may not be shown."""
        store, origin = self._store(), origin_of(request.scope)
        run = store.find(request.path_params["run"])
        first = next(iter(store.events(run, pieces=False)))
        assert isinstance(first, RunStarted)  # the store has checked it
        if not may_see(origin, first):  # it is not said that there is one
            raise UsageError(f"there is no run {request.path_params['run']!r}")
        if not may_read(origin, first):
            raise confidential(run)
        return run

    def _stream(self, pieces: AsyncIterator[bytes]) -> Response:
        if self._streams >= STREAMS:
            raise _Refused(503, "too_many_streams", f"more than {STREAMS} pages look at runs; close some of them")
        headers = _PRIVATE | {"x-accel-buffering": "no"}
        return StreamingResponse(self._counted(pieces), media_type="text/event-stream", headers=headers)

    async def _counted(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        self._streams += 1
        try:
            async for piece in pieces:
                yield piece
        finally:
            self._streams -= 1


def _number(query: Mapping[str, str], name: str, most: float) -> float:
    """A number from 0 to `most`; 0 where it is not there."""
    try:
        value = float(query.get(name) or 0)
    except ValueError:
        value = -1.0
    if not 0 <= value <= most:  # also false for what is not a number
        raise _Refused(400, "invalid_value", f"{name} is a number from 0 to {most:g}")
    return value


# What the routes answer


def _newest_runs(
    store: TraceStore, unstored: list[Trace], query: Mapping[str, str], origin: str
) -> dict[str, Any]:  # fmt: skip
    """The newest runs of a client, and whether there are more, which `before` the last of these asks for.

    Those that no file has come beside them, in the order of their ids, which is that of time.
    """
    state, count = query.get("state", ""), int(_number(query, "count", MOST_RUNS)) or 20
    if state and state not in _STATES:
        raise _Refused(400, "invalid_value", f"state is one of {', '.join(_STATES)}")
    terms = normalize_terms([query.get("search", "")[:1000]])
    wanted = RunQuery(
        state=state, before=query.get("before", ""), origin="" if origin == ANYONE else origin, terms=terms
    )
    rows, more = RunIndex(str(store.directory)).newest(wanted, count)
    hidden = {row.run for row in rows if not _is_readable(store, row, origin)}
    # That a text is found in a run says something about it, too.
    found = [_run_row(row, shown=row.run not in hidden) for row in rows if not (terms and row.run in hidden)]
    live = [_run_row(row, shown=shown, stored=False) for row, shown in select_runs(unstored, wanted, origin)]
    found = sorted(found + live, key=lambda row: row["run"], reverse=True) if live else found
    return {"runs": found, "more": more, "last": rows[-1].run if rows else None}


def _is_readable(store: TraceStore, row: StoredRun, origin: str) -> bool:
    try:
        first = next(iter(store.events(row.run, pieces=False)), None)
    except (ConductorError, OSError):
        return True  # there is nothing of it to show but its name
    return not isinstance(first, RunStarted) or may_read(origin, first)


def _run_row(row: StoredRun, *, shown: bool, stored: bool = True) -> dict[str, Any]:
    data = stored_run_data(row, "")
    if not shown:
        data["question"] = _HIDDEN
    return {name: data[name] for name in _SHOWN} | {"shown": shown, "stored": stored}


def _whole_run(store: TraceStore, run: str) -> dict[str, Any]:
    live = store.is_running(run)
    trace = store.trace(run)
    return run_data(trace, store.path(run), live=live, prompts=True) | {"tree": node_data(run_tree(trace))}


def _unstored_run(trace: Trace, *, ended: bool) -> dict[str, Any]:
    return run_data(trace, None, live=not ended, prompts=True) | {"tree": node_data(run_tree(trace))}


def _step_or_question(trace: Trace, number: str) -> dict[str, Any]:
    if number == "0":
        return question_data(trace) | {"answer": answer_data(trace)}
    data = step_data(trace, number)
    if data is None:
        raise UsageError(f"run {trace.run} has no step {number[:40]!r}")
    return data


# The page itself


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

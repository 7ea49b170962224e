"""`GET /`, the page to look at runs, and the routes under `/v1/conductor/` that it reads.

The page holds no data, so it is served without a key; everything that it shows comes from the
routes, which are behind the same key as the APIs. It asks and stops by the Responses API, as any
client does, under its limits and checks. What it draws is in `page_data`, and what it follows in
`page_streams`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from conductor_cli.app.learning import rate_run
from conductor_cli.app.traces import check_edited_offer, earliest_run_id
from conductor_cli.core.bounded_parsing import parse_whole_number
from conductor_cli.core.continuation import reset_from_step
from conductor_cli.core.errors import ConductorError, PolicyError, UsageError
from conductor_cli.core.learning import Verdict, describe_rating
from conductor_cli.core.plan_file import format_plan_file, parse_plan_file
from conductor_cli.core.question import Question
from conductor_cli.core.serialization import encode_line
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.trace import Outcome, Trace
from conductor_cli.programs.turns import SHARE_OF_FREE
from conductor_cli.server.api.errors import request_error
from conductor_cli.server.api.request import RequestError
from conductor_cli.server.http.access import NO_PAGE, Principal, principal_of
from conductor_cli.server.http.answers import answering
from conductor_cli.server.http.body import read_json_body
from conductor_cli.server.http.page_data import (
    MAX_LABEL,
    Data,
    offered_plan_data,
    opened_step,
    question_data,
    tree_data,
)
from conductor_cli.server.http.page_streams import event_stream, followed, frame_stream, replayed
from conductor_cli.server.runs.narration import ResponseStream
from conductor_cli.server.runs.run_registry import RunRegistry
from conductor_cli.server.runs.run_request import build_rerun
from conductor_cli.server.runs.stored_runs import (
    confidential,
    first_event,
    may_read,
    may_see,
    newest_runs,
)
from conductor_cli.state.interfaces import Traces
from conductor_cli.state.run_messages import (
    MAX_TEXT_CHARACTERS,
    Act,
    RunMessage,
    TextAct,
    is_listening,
    send_message,
)
from conductor_cli.state.stored_run import RunQuery, normalize_terms
from conductor_cli.system.known_secrets import KNOWN_SECRETS
from conductor_cli.system.threads import SharedThreads
from conductor_cli.views.json_output import run_json

if TYPE_CHECKING:
    from starlette.requests import Request

_STATES: Final = (*get_args(Outcome), "unreadable")

_ID: Final = re.compile(r"[\w-]{1,80}")

_PRIVATE: Final = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
}

# Streams at once, each of a browser that looks; one client may have three quarters of them
MAX_STREAMS: Final = 64

MAX_ACT_BYTES: Final = 4000  # Of the body of a rating or a rerun
MAX_DECISION_BYTES: Final = 6 * MAX_TEXT_CHARACTERS + MAX_ACT_BYTES  # JSON may escape each

T = TypeVar("T")


def page_routes(store: Callable[[], Traces], registry: RunRegistry) -> list[Route]:
    """Return the page and its routes over a store of traces, and the runs of a server.

    `access.py` stands before them.
    """
    page = _Page(store, registry)
    runs = "/v1/conductor/runs"
    private = partial(answering, headers=_PRIVATE)
    return [
        Route("/", _document, methods=["GET"]),
        Route(runs, private(page.list_runs), methods=["GET"]),
        Route(f"{runs}/{{run}}", private(page.show_run), methods=["GET"]),
        Route(f"{runs}/{{run}}/events", private(page.follow_events), methods=["GET"]),
        Route(f"{runs}/{{run}}/frames", private(page.follow_frames), methods=["GET"]),
        Route(f"{runs}/{{run}}/steps/{{number}}", private(page.show_step), methods=["GET"]),
        Route(f"{runs}/{{run}}/offer", private(page.show_offer), methods=["GET"]),
        Route(f"{runs}/{{run}}/rating", private(page.rate), methods=["POST"]),
        Route(f"{runs}/{{run}}/rerun", private(page.rerun), methods=["POST"]),
        Route(f"{runs}/{{run}}/decision", private(page.decide), methods=["POST"]),
    ]


class _Page:
    """The routes over one store. Files are read on threads, of which there are few.

    All raise `RequestError`.
    """

    def __init__(self, store: Callable[[], Traces], registry: RunRegistry) -> None:
        self._store = store
        self._registry = registry
        self._threads = SharedThreads("page", 4)
        self._streams = Counter[str]()  # by owner

    async def list_runs(self, request: Request) -> Response:
        """Return the newest runs of a client, and whether there are more.

        A request with `before`, the last of these, asks for them.
        """
        query = request.query_params
        client = principal_of(request.scope)
        state = query.get("state", "")
        count = int(_number(query, "count", 100)) or 20
        if state and state not in _STATES:
            raise RequestError(400, "invalid_value", f"state is one of {', '.join(_STATES)}")
        wanted = RunQuery(
            state=state,
            before=query.get("before", ""),
            terms=normalize_terms([query.get("search", "")[:1000]]),
            **_own_runs(client),
        )
        starter = self._registry.starter
        reports = starter.loaded.circuits.reports()
        skipped = [one_line(report.text) for report in reports if report.text]
        acts = NO_PAGE not in starter.settings()["serve.origins"]

        def find() -> Data:
            rows, has_more, last = newest_runs(
                self._store(), wanted, count, lambda first: may_read(client, first)
            )
            return {"runs": rows, "more": has_more, "last": last, "skipped": skipped, "acts": acts}

        return await self._json(find)

    async def show_run(self, request: Request) -> Response:
        def show() -> dict[str, Any]:
            run = self._run_of(request)
            store = self._store()
            live = store.is_running(run)
            trace = store.trace(run)
            description = run_json(trace, store.location(run), live=live, prompts=True)
            return description | {"tree": tree_data(trace, live=live)}

        return await self._json(show)

    async def show_step(self, request: Request) -> Response:
        def show() -> dict[str, Any]:
            trace = self._store().trace(self._run_of(request))
            number = request.path_params["number"]
            if number == "0":
                return question_data(trace)
            step = opened_step(trace, number)
            if step is None:
                raise UsageError(f"run {trace.run} has no step {number[:40]!r}")
            return step

        return await self._json(show)

    async def show_offer(self, request: Request) -> Response:
        """Return the plan that waits for approval, with all that a person decides by."""
        return await self._json(
            lambda: offered_plan_data(self._store().trace(self._run_of(request)))
        )

    async def follow_events(self, request: Request) -> Response:
        """Stream each event once.

        A client that comes back says by `Last-Event-ID` which one it had last.
        """
        run = await self._in_thread(lambda: self._run_of(request))
        last = request.headers.get("last-event-id", "").removeprefix(f"{run}:")
        after = parse_whole_number(last) or 0
        return self._stream(request, event_stream(self._store().follow(run), run, after))

    async def follow_frames(self, request: Request) -> Response:
        speed = _number(request.query_params, "speed", 64.0)
        start = _number(request.query_params, "from", 1e9)
        run = await self._in_thread(lambda: self._run_of(request))
        store = self._store()
        if speed:
            replay = replayed(store.events(run), speed, start)
            return self._stream(request, frame_stream(replay, idle=0.0))
        acts = partial(self._acts_of, principal_of(request.scope))
        return self._stream(request, frame_stream(followed(store.follow(run)), acts=acts))

    def _acts_of(self, client: Principal, trace: Trace) -> Data:
        """Return what a client may do with a run: `stops`, `decides`, `continues` its conversation.

        A server stops the runs that its client asked for. Runs of other programs of this user take
        messages, where the setting lets the page send them.
        """
        is_own = client.asked_for(trace)
        takes_messages = (
            not trace.ended
            and client.key is None
            and self._may_decide
            and is_listening(self._messages, trace.run)
        )
        return {
            "stops": not trace.ended and (is_own or takes_messages),
            "decides": takes_messages,
            "continues": is_own and bool(trace.answer),
        }

    @property
    def _may_decide(self) -> bool:
        return bool(self._registry.starter.settings()["serve.approvals"])

    @property
    def _messages(self) -> Path:
        return self._registry.starter.settings().paths.messages

    async def decide(self, request: Request) -> Response:
        """Tell a run of another program what its user decides, or that it is to end."""
        message_to_run = _read_decision(await _read_body(request, MAX_DECISION_BYTES))
        run = await self._in_thread(lambda: self._run_of(request))
        if not self._may_decide or principal_of(request.scope).key is not None:
            message = (
                "this page may not decide about runs of other programs: conductor trace attach "
                f"{run}; to allow it: conductor config set serve.approvals true"
            )
            raise RequestError(403, "not_allowed", message)

        def deliver() -> bool:
            trace = self._store().trace(run, pieces=False)
            # Its program takes messages for a moment longer than the run lasts.
            if trace.ended:
                return False
            if message_to_run.act == "edit":
                message = _checked_edit(trace, message_to_run)
            else:
                message = message_to_run
            return send_message(self._messages, run, message)

        if not await self._in_thread(deliver):
            message = f"no program of this machine runs {run} and takes messages"
            raise RequestError(409, "run_not_listening", message)
        return JSONResponse({"sent": message_to_run.act}, headers=_PRIVATE)

    async def rate(self, request: Request) -> Response:
        """Store what the user thinks of the answer of a run, or of one of its steps."""
        verdict, step, _ = await _read_act(request)
        trace = await self._ended(request)
        starter = self._registry.starter
        if verdict not in get_args(Verdict):
            message = f"verdict is one of {', '.join(get_args(Verdict))}"
            raise RequestError(400, "invalid_value", message)

        def store_rating() -> dict[str, str]:
            try:
                rating = rate_run(starter.settings(), trace, verdict, step=step)
            except ConductorError as error:
                raise request_error(error.failure) from None
            return {"rated": describe_rating(rating)}

        return await self._json(store_rating)

    async def rerun(self, request: Request) -> Response:
        """Begin to run the plan of a run again, and say which run that is."""
        _, step, worker = await _read_act(request)
        trace = await self._ended(request)
        registry = self._registry
        client = principal_of(request.scope)
        try:
            again = reset_from_step(trace, step, worker or None)
        except UsageError as error:
            raise request_error(error.failure) from None
        served = registry.begin(
            f"rerun {trace.run}",
            lambda run: build_rerun(registry.starter, again, run, client),
            ResponseStream(),
            principal=client,
        )
        await served.began.wait()
        if isinstance(served.ended, RequestError):
            raise served.ended
        return JSONResponse({"run": served.id}, headers=_PRIVATE)

    async def _ended(self, request: Request) -> Trace:
        return await self._in_thread(lambda: self._store().ended(self._run_of(request)))

    async def _json(self, make: Callable[[], Any]) -> Response:
        text = await self._in_thread(lambda: encode_line(make(), KNOWN_SECRETS))
        return Response(text, media_type="application/json", headers=_PRIVATE)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await self._threads.run(work)
        except PolicyError as error:
            raise RequestError(403, "run_not_shown", f"{error.message}; {error.hint}") from None
        except UsageError as error:
            raise RequestError(404, "run_not_found", one_line(error.message)) from None
        except (ConductorError, OSError) as error:
            message = f"the stored runs cannot be read: {type(error).__name__}"
            raise RequestError(503, "runs_unreadable", message) from None

    def _run_of(self, request: Request) -> str:
        """Return the id of the run that a request names.

        Raises `UsageError` or `PolicyError` where it may not be shown.
        """
        store = self._store()
        client = principal_of(request.scope)
        name = str(request.path_params["run"])
        run = name
        first = None
        if _ID.fullmatch(name):
            first = first_event(store, name)
        if first is None:
            # Neither a number nor the beginning of an id says anything about the runs of others.
            own_runs = None
            if client.key is not None:
                rows, _ = store.newest(RunQuery(**_own_runs(client)), count=-1)
                own_runs = [row.run for row in rows]
            run = store.find(name, own_runs)
            first = first_event(store, run)
        if first is None or not may_see(client, first):  # it is not said that there is one
            raise UsageError(f"there is no run {name!r}")
        if not may_read(client, first):
            raise confidential(run)
        return run

    def _stream(self, request: Request, pieces: AsyncIterator[bytes]) -> Response:
        owner = principal_of(request.scope).owner
        open_streams = self._streams.total()
        if self._streams[owner] >= SHARE_OF_FREE * (MAX_STREAMS - open_streams):
            message = (
                f"{open_streams} pages look at runs, which is as many as can; close some of them"
            )
            raise RequestError(503, "too_many_streams", message)

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


async def _read_body(request: Request, max_bytes: int = MAX_ACT_BYTES) -> Mapping[str, Any]:
    """Return the JSON object of an act of the page. Raises `RequestError`."""
    content = await request.body()
    if len(content) > max_bytes:
        message = f"the body has more than {max_bytes} bytes"
        raise RequestError(413, "request_too_large", message)
    return read_json_body(content)


def _read_decision(body: Mapping[str, Any]) -> RunMessage:
    """Return what a user decides about an offer. Raises `RequestError`."""
    act: Act | TextAct | None = body.get("act")
    offered_at = body.get("offered_at", 0)
    text = body.get("text", "")
    acts = (*get_args(Act), *get_args(TextAct))
    if act is None or act not in acts or type(offered_at) not in (int, float):
        message = f"act is one of {', '.join(acts)}, offered_at a time in the run"
        raise RequestError(400, "invalid_value", message)
    needs_text = act in get_args(TextAct)
    if not isinstance(text, str) or bool(text.strip()) != needs_text:
        message = f"text is what {' or '.join(get_args(TextAct))} needs, and nothing else takes it"
        raise RequestError(400, "invalid_value", message)
    if len(text) > MAX_TEXT_CHARACTERS:
        message = f"the text has {len(text):,} characters; {MAX_TEXT_CHARACTERS:,} can be sent"
        raise RequestError(413, "request_too_large", message)
    return RunMessage(act, float(offered_at), text)


def _checked_edit(trace: Trace, message: RunMessage) -> RunMessage:
    """Return the message about an edited plan, whose question is left to the run.

    Raises `RequestError` for a plan that cannot be run.
    """
    names = trace.pool.names
    try:
        plan = parse_plan_file(message.text, "what was sent", names).plan
        failure = check_edited_offer(trace, plan)
    except UsageError as error:
        failure = error.failure
    if failure is not None:
        raise RequestError(400, "invalid_value", one_line(failure.message)[:MAX_LABEL])
    text = format_plan_file(Question(text=""), plan, trace.limits, names)
    return message._replace(text=text)


async def _read_act(request: Request) -> tuple[Any, int, str]:
    """Return verdict, step (0 for none) and worker of an act. Raises `RequestError`."""
    body = await _read_body(request)
    step = body.get("step", 0)
    worker = body.get("worker", "")
    if type(step) is not int or step < 0 or not isinstance(worker, str):
        raise RequestError(400, "invalid_value", "step is the number of a step, worker a name")
    return body.get("verdict"), step, worker


def _own_runs(client: Principal) -> dict[str, Any]:
    """Return the `RunQuery` fields for the runs of a client, none older than its key.

    Without keys, all runs.
    """
    if client.key is None:
        return {}
    since = client.key.since and earliest_run_id(client.key.since, datetime.now(UTC))
    return {"origins": client.origins, "since": since}


def _number(query: Mapping[str, str], name: str, most: float) -> float:
    """Return a number from 0 to `most`; 0 where it is not there."""
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
        "cache-control": "no-cache",
        "etag": tag,
        "permissions-policy": "camera=(), geolocation=(), microphone=()",
    }
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(text, media_type="text/html; charset=utf-8", headers=headers)


@cache
def _read_document() -> tuple[bytes, str, str]:
    """Return the page, its content security policy and its tag.

    Only the script and the style in the file itself may run.
    """
    text = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; script-src 'sha256-{_hash_of_part(text, 'script')}'; "
        f"style-src 'sha256-{_hash_of_part(text, 'style')}'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types rendered"
    )
    return text.encode(), policy, f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'


def _hash_of_part(page: str, name: str) -> str:
    """Return the hash of the one script, or style, of the page."""
    part = re.search(rf"<{name}>(.*?)</{name}>", page, re.DOTALL)
    assert part is not None
    return base64.b64encode(hashlib.sha256(part[1].encode()).digest()).decode()

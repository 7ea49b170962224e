"""`GET /`, the page to look at runs, and the routes under `/v1/conductor/` that it reads.

The page holds no data, so it is served without a key; everything that it shows comes from the
routes, which are behind the same key as the APIs. It asks and stops by the Responses API, as any
client does. The tree is that of every other view (`views/run_tree.py`); its texts are cleaned and
bounded here. The source is the trace, whoever writes it: every event is there before anything shows
it, and a piece of text at most a second later.

The page follows trace files: every event is stored before any view sees it, so one way serves the
runs of this server and of others. The tree is sent as it looks, since folding events in JavaScript
would be a second implementation. The page asks by the Responses API, under its limits and checks.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, get_args

import anyio
import anyio.to_thread
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from conductor_cli.app.learning import rate_run
from conductor_cli.app.traces import (
    check_edited_offer,
    describe_stored_offer,
    earliest_run_id,
    may_edit_offered,
    may_replan_offered,
    recipients_of,
    stored_planned_flow,
)
from conductor_cli.core import events as ev
from conductor_cli.core.bounded_parsing import parse_whole_number
from conductor_cli.core.continuation import reset_from_step
from conductor_cli.core.errors import ConductorError, PolicyError, UsageError
from conductor_cli.core.fast_copies import fast_replace
from conductor_cli.core.formatting import format_count, format_duration, format_money
from conductor_cli.core.learning import Verdict, describe_rating
from conductor_cli.core.plan import KeepAnswer, Plan, to_written_name
from conductor_cli.core.plan_file import format_plan_file, parse_plan_file
from conductor_cli.core.pool import Worker
from conductor_cli.core.question import Question, shorten
from conductor_cli.core.serialization import DecodeError, encode_line
from conductor_cli.core.terminal_text import one_line, reveal, sanitize
from conductor_cli.core.trace import (
    ENDED,
    FailedAttempt,
    Outcome,
    StepRecord,
    ToolRecord,
    Trace,
    apply_event,
    fold,
)
from conductor_cli.core.usage import Price
from conductor_cli.models.recipients import recipient_of
from conductor_cli.programs.turns import SHARE_OF_FREE
from conductor_cli.server.api.encoding import named_event
from conductor_cli.server.api.errors import request_error
from conductor_cli.server.api.request import RequestError
from conductor_cli.server.http.access import NO_PAGE, Principal, principal_of
from conductor_cli.server.http.answers import answering
from conductor_cli.server.http.body import read_json_body
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
from conductor_cli.state.interfaces import TraceReader, Traces
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
from conductor_cli.views.html import Bar, Timeline, markdown_html, timeline, usage_rows
from conductor_cli.views.json_output import run_json
from conductor_cli.views.plan_text import plan_lines, planned_flow_lines
from conductor_cli.views.run_text import (
    describe_access,
    describe_file,
    describe_notice,
    describe_outcome,
    describe_setup,
    describe_totals,
    describe_worker,
    message_text,
    short_name,
    tool_name,
)
from conductor_cli.views.run_tree import GOING, Node, stored_tree
from conductor_cli.views.text_layout import Screen, line_texts
from conductor_cli.views.trace_text import usage_text

if TYPE_CHECKING:
    from starlette.requests import Request

_STATES: Final = (*get_args(Outcome), "unreadable")

_ID: Final = re.compile(r"[\w-]{1,80}")

_PRIVATE: Final = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
}

MAX_LABEL: Final = 1_000  # Characters of a question, a subtask or a remark in the tree
MAX_SUBTASK: Final = 10 * MAX_LABEL  # Characters of a subtask where its step is opened
MAX_WORKERS: Final = 100  # Rows of the table of workers
# Characters of a response in the tree: the last ones while it is written, the first ones later
MAX_TAIL: Final = 600
MAX_PAGE_TEXT: Final = 200_000  # Characters of each text of an opened step
# Seconds between two looks at the file, and between two frames, as on a terminal
TICK_SECONDS: Final = 1 / 8
IDLE_SECONDS: Final = 1.0  # Seconds between two frames while only time passes
BYTES_PER_SECOND: Final = 1_000_000  # Bytes of frames a second: a large tree is drawn less often
# Seconds without anything after which a comment is sent, so that no proxy closes the connection
HEARTBEAT_SECONDS: Final = 10.0

# Streams at once, each of a browser that looks; one client may have three quarters of them
MAX_STREAMS: Final = 64

MAX_ACT_BYTES: Final = 4000  # Of the body of a rating or a rerun
MAX_DECISION_BYTES: Final = 6 * MAX_TEXT_CHARACTERS + MAX_ACT_BYTES  # JSON may escape each

Data = dict[str, Any]
T = TypeVar("T")


# What is drawn of a run


def frame_data(trace: Trace, *, now: float | None = None, live: bool = False) -> Data:
    """Return a run as the page draws it, at a time in seconds by its own clock.

    Without a time it is that of the newest event.

    `state` is planning or an outcome (`core/trace.py`). `offer` is what a person has to approve
    before the run goes on, as `offer_data` gives it, or null. `parent` is the run that this one
    continues, or empty. `tree` is a node as `node_data` gives it. `times` are rows of bars in
    percent of the time so far. `usage` are rows of a table: who, tokens read, tokens written,
    calls, cost. `workers` are rows too: name, model, who reads what it is sent, and what a million
    tokens of input and of output cost; `more_workers` says how many others there are.
    """
    if now is not None:
        trace = fast_replace(trace, at=now)
    is_growing = live and not trace.ended
    return {
        "run": one_line(trace.run),
        "time": one_line(trace.time),
        "at": round(trace.at, 3),
        "state": trace.state if is_growing else trace.outcome(),
        "ended": trace.ended,
        "outcome": describe_outcome(trace, live=live),
        "offer": offer_data(trace) if is_growing else None,
        "parent": one_line(trace.question.parent or ""),
        "setup": describe_setup(trace),
        "totals": describe_totals(trace, stored=True),
        "notices": [_beginning(describe_notice(notice)) for notice in trace.all_notices()],
        "tree": _tree_data(trace, live=live),
        "times": _timeline_data(timeline(trace, live=live)),
        "usage": [list(row) for row in usage_rows(trace)],
        "workers": [_worker_row(worker) for worker in trace.pool.workers[:MAX_WORKERS]],
        "more_workers": _count_of_rest(len(trace.pool.workers) - MAX_WORKERS, "more worker"),
    }


def _count_of_rest(count: int, noun: str) -> str:
    """Return how much was left out, such as `3 more workers`; empty where nothing was."""
    return format_count(count, noun) if count > 0 else ""


def offer_data(trace: Trace) -> Data | None:
    """What a run waits for a person to approve, when it was offered, and what it is in words.

    None where nobody is waited for. `kind` is plan, tool, or input for what a server of tools asks.
    """
    offer = trace.waits_for
    if offer is None:
        return None
    if isinstance(offer, ev.ToolOffered):
        who = one_line(offer.worker) or f"step {offer.step}"
        return {
            "kind": "tool",
            "at": offer.at,
            "text": _beginning(f"{who} wants to call {tool_name(offer)}"),
            "detail": sanitize(reveal(shorten(offer.call.arguments, MAX_PAGE_TEXT))),
        }
    if isinstance(offer, ev.InputAsked):
        text = f"{one_line(offer.server)} asks for something, which can be typed in its terminal."
        return {"kind": "input", "at": offer.at, "text": _beginning(text), "detail": ""}
    steps = format_count(len(trace.steps), "step")
    return {"kind": "plan", "at": offer.at, "text": f"The plan has {steps}.", "detail": ""}


def offered_plan_data(trace: Trace) -> Data:
    """The plan that a run waits to have approved: what it says, who reads what, and its steps.

    `plan` and `flow` are what a terminal prints. `steps` are as a plan file has them, `workers`
    the names that a step may have; `edits` and `replans` say what may be done with the plan.
    Raises `UsageError` where no plan is on offer.
    """
    offer = trace.waits_for
    if not isinstance(offer, ev.PlanOffered) or not isinstance(trace.plan, Plan):
        raise UsageError(f"run {one_line(trace.run)} waits for no approval of a plan")
    recipients = recipients_of(trace.pool)
    flow = planned_flow_lines(stored_planned_flow(trace), recipients, _PLAN_SCREEN)
    steps = list[Data]()
    for step in trace.plan.steps:
        worker = to_written_name(step.worker, trace.pool.names)
        subtask = sanitize(reveal(step.subtask))
        steps.append({"worker": worker, "subtask": subtask, "access": list(step.access)})
    workers = [*trace.pool.names, *(step["worker"] for step in steps)]
    return {
        "at": offer.at,
        "plan": "\n".join(line_texts(plan_lines(describe_stored_offer(trace), _PLAN_SCREEN))),
        "flow": "\n".join(line_texts(flow)),
        "steps": steps,
        "workers": list(dict.fromkeys(workers)),
        "edits": may_edit_offered(trace),
        "replans": may_replan_offered(trace),
    }


_PLAN_SCREEN: Final = Screen(width=4000)  # The browser breaks the lines


def _timeline_data(times: Timeline) -> Data:
    rows = list[Data]()
    for row in times.rows:
        bars = [_bar_data(bar) for bar in row.bars]
        rows.append({"label": row.label, "took": row.took, "bars": bars})
    return {"rows": rows, "ticks": list(times.ticks)}


def _bar_data(bar: Bar) -> Data:
    return {
        "kind": bar.kind,
        "start": round(bar.start, 2),
        "length": round(bar.length, 2),
        "title": bar.title,
    }


def _worker_row(worker: Worker) -> list[str]:
    """Name, model, who reads what it is sent, and the prices of input and output."""
    names = [worker.name, worker.model_name, recipient_of(worker)]
    return [*map(_label, names), *_price_texts(worker.price)]


def _price_texts(price: Price | None) -> tuple[str, str]:
    if price is None:
        return "unknown", "unknown"
    if price.is_free:
        return "free", "free"
    prefix = "from " if price.longer else ""  # long calls cost more
    return prefix + format_money(price.input), prefix + format_money(price.output)


def _label(text: str) -> str:
    """Return a text as one line, or the beginning of it."""
    beginning = text[: 4 * MAX_LABEL]
    line = one_line(beginning)
    if len(text) > len(beginning):
        line += ELLIPSIS
    return _beginning(line)


def _beginning(line: str, most: int = MAX_LABEL) -> str:
    """Return so many characters of a line at most, with an ellipsis where it goes on."""
    if len(line) <= most:
        return line
    return line[: most - 1] + ELLIPSIS


ELLIPSIS: Final = "…"


def _tree_data(trace: Trace, *, live: bool) -> Data:
    return node_data(stored_tree(trace, live=live))


def node_data(node: Node) -> Data:
    """Return a node of the tree with everything below it. Its texts are safe to show, and short."""
    is_growing = node.state in GOING
    text = node.text[:MAX_TAIL]
    if is_growing:
        text = node.text[-MAX_TAIL:]
    if node.answers:  # the answer has a place of its own
        text = ""
    return {
        "kind": node.kind,
        "state": node.state,
        "number": node.number,
        "name": _label(node.name),
        "label": _label(node.label),
        "remark": one_line(node.remark),
        "status": node.status,
        "figures": list(filter(None, node.figures)),
        "text": sanitize(text).strip("\n"),
        "thinking": node.thinking,
        "answers": node.answers,
        "children": [node_data(child) for child in node.children],
    }


def opened_step(trace: Trace, number: str) -> Data | None:
    """Return a step as it is opened: `title`, `facts` (a line each), and `sections`.

    None where there is none.

    A section has a title and a text, as `text` or as `html`, which is safe to put into a page.
    `more` is how many characters were left out at its end, and `whole` the command that prints all
    of them.
    """
    first, *nested = number.split(".")  # such as 2, or 2.1 for a step of a nested run
    run = trace
    record = _step_of(run, first)
    for part in nested:
        if record is None:
            return None
        run = record.nested or Trace()
        record = _step_of(run, part)
    if record is None:
        return None
    took = format_duration(record.seconds(run.at), tenths=record.state in ENDED)
    facts = [
        _beginning(one_line(record.step.subtask), MAX_SUBTASK),
        f"{record.state}, {describe_access(record.step.access)}",
        f"{took}, {usage_text(record.usage)}",
    ]
    sections = [
        _section(f"Prompt ({message.role})", message_text(message)) for message in record.prompt
    ]
    sections += [_attempt_section(attempt) for attempt in record.failed]
    for use in record.tools:
        sections += _tool_sections(use)
    if record.thinking:
        sections.append(_section("Thinking", record.thinking))
    if record.nested is None:
        sections.append(_section("Response", record.text, "rendered"))
    whole = f"conductor trace show {one_line(trace.run)} --step {number}"
    if nested:
        whole = _all_events_of(trace)
    return {
        "number": number,
        "title": f"{number}. {describe_worker(record)}",
        "facts": facts,
        "sections": [section | {"whole": whole} for section in sections],
    }


def _all_events_of(trace: Trace) -> str:
    """Return the command that prints whatever a trace has."""
    return f"conductor trace replay {one_line(trace.run)} --speed 0 --format jsonl"


def _step_of(run: Trace, number: str) -> StepRecord | None:
    for record in run.steps:
        if str(record.number) == number:
            return record
    return None


def _attempt_section(attempt: FailedAttempt) -> Data:
    title = f"Failed attempt {attempt.attempt}, {one_line(attempt.worker)}"
    if attempt.started is not None:
        title += f", after {format_duration(attempt.ended - attempt.started)}"
    lines = [attempt.message, usage_text(attempt.usage)]
    if attempt.error.hint:
        lines.insert(1, attempt.error.hint)
    return _section(title, "\n".join(lines), "failed")


def _tool_sections(use: ToolRecord) -> list[Data]:
    took = "no result" if use.ended is None else format_duration(use.ended - use.started)
    call = f"Tool call {tool_name(use)} (attempt {use.attempt}, reply {use.turn})"
    result = _section(f"Result ({took})", use.text)
    if use.error:
        result = _section(f"Error ({took})", use.text, "failed")
    return [_section(call, use.call.arguments), result]


def question_data(trace: Trace) -> Data:
    """The question, the plan and the answer, in the shape of `opened_step`. Its number is 0."""
    answer = None
    if trace.answer:
        kind = "rendered" if trace.question.schema is None else ""
        answer = _section("Answer", trace.answer, kind)
        answer["whole"] = f"conductor trace show {one_line(trace.run)}"
    sections = _question_sections(trace.question) + _plan_sections(trace)
    whole = _all_events_of(trace)
    return {
        "number": "0",
        "title": "Question and plan",
        "sections": [section | {"whole": whole} for section in sections],
        "answer": answer,
        "facts": [
            describe_setup(trace),
            f"planning: {usage_text(trace.planning)}",
            f"all: {usage_text(trace.usage)}",
        ],
    }


def _question_sections(question: Question) -> list[Data]:
    sections = [_section("Question", question.text, "rendered")]
    for turn in question.history:
        sections.append(_section("Earlier question", f"{turn.question}\n\n{turn.answer}"))
    if question.system:
        sections.append(_section("System text", question.system))
    sections += [_section(f"File {describe_file(file)}", file.text) for file in question.files]
    return sections


def _plan_sections(trace: Trace) -> list[Data]:
    plan = trace.plan
    sections = list[Data]()
    if isinstance(plan, KeepAnswer):
        sections.append(_section("Plan", "the given answer is kept"))
    elif trace.steps or plan is not None:
        sections.append(_section("Plan", "\n".join(_step_line(step) for step in trace.steps)))
    if isinstance(plan, Plan) and plan.reasoning:
        sections.append(_section("The planner's reasoning", plan.reasoning))
    if trace.plan_text:
        sections.append(_section("As the planner wrote it", trace.plan_text))
    for event in trace.rejected:
        problem = _label(event.problem)
        sections.append(_section(f"Plan {event.attempt} was not valid: {problem}", event.text))
    return sections


def _step_line(record: StepRecord) -> str:
    access = describe_access(record.step.access)
    subtask = _beginning(one_line(record.step.subtask), MAX_SUBTASK)
    return f"{record.number}. {short_name(record.step.worker)} ({access}): {subtask}"


def _section(title: str, text: str, kind: str = "") -> Data:
    """Return a text as it was written, or as a page has its Markdown where that is `rendered`.

    `kind` is how it is marked.
    """
    beginning = text[:MAX_PAGE_TEXT]
    section = {"title": one_line(title)}
    if kind == "rendered":
        section["html"] = markdown_html(beginning)
    else:
        section["text"] = sanitize(beginning)
    section["more"] = _count_of_rest(len(text) - MAX_PAGE_TEXT, "more character")
    section["kind"] = kind
    return section


# The streams


def _message(kind: str, json_line: str, number: int | str = "") -> bytes:
    """One server-sent event. `json_line` is one line of JSON."""
    identity = "" if number == "" else f"id: {number}\n"
    return f"{identity}event: {kind}\ndata: {json_line}\n\n".encode("utf-8", "replace")


async def event_stream(tail: TraceReader, run: str, after: int) -> AsyncIterator[bytes]:
    """Yield each event of a trace from number `after` + 1 on, and at last `end`.

    An event is named by its kind, and has the id `RUN:NUMBER`.
    """
    number = 0
    silent_seconds = 0.0
    last_kind = ""
    while True:
        try:
            events, may_have_more = await anyio.to_thread.run_sync(_next_lines, tail)
        except OSError:  # the run was deleted
            break
        messages = list[bytes]()
        for kind, line in events:
            number += 1
            last_kind = kind
            if number > after:
                messages.append(_message(kind, line, f"{run}:{number}"))
        if messages:
            yield b"".join(messages)
        if events and last_kind in _END_STATES:
            yield named_event("end", {"state": _END_STATES[last_kind]})
            return
        if not (events or may_have_more):
            break
        silent_seconds = 0.0 if events else silent_seconds + TICK_SECONDS
        if silent_seconds >= HEARTBEAT_SECONDS:
            silent_seconds = 0.0
            yield b": \n\n"
        if not events:
            await asyncio.sleep(TICK_SECONDS)
    yield named_event("end", {"state": "interrupted"})


_END_STATES: Final = {"run_finished": "finished", "run_failed": "failed"}


def _next_lines(tail: TraceReader) -> tuple[list[tuple[str, str]], bool]:
    """Return the next events, each by its kind and as a line, and whether more may come."""
    live = tail.is_written()
    events = list[ev.Event]()
    if tail.is_behind():
        events = tail.read()
    # A file may have been edited by hand: nothing in it may end the line of `data`.
    lines = [(event.kind, ev.to_line(event, KNOWN_SECRETS, brief=True)) for event in events]
    return lines, live or tail.is_behind()


class RunSnapshot(NamedTuple):
    """A run as it looks now. `number` counts the events so far; with `over` no more come.

    `now` is the time by the run's own clock, None for that of its newest event.
    """

    trace: Trace
    number: int
    now: float | None
    live: bool
    over: bool


def followed(tail: TraceReader) -> Iterator[RunSnapshot]:
    """Yield snapshots of a run that may be being written. Raises `OSError` and `DecodeError`."""
    trace = Trace()
    number = 0
    over = False
    while not over:
        is_written = tail.is_written()
        before = number
        while tail.is_behind() and (events := tail.read()):
            for event in events:
                trace = apply_event(trace, event)
            number += len(events)
        if number and not trace.run:
            raise DecodeError("the first line is not the start of a run")
        over = trace.ended or (not is_written and number == before)
        if over:
            yield RunSnapshot(trace, number, None, live=False, over=True)
        else:
            now = trace.at + tail.idle
            yield RunSnapshot(trace, number, now, live=is_written, over=False)


def replayed(events: Iterator[ev.Event], speed: float, start: float) -> Iterator[RunSnapshot]:
    """Yield a stored run as it was from `start` seconds on, `speed` times as fast.

    Raises `UsageError`.
    """
    trace = Trace()
    number = 0
    begun = time.monotonic()
    for event, after in fold(events):
        while event.at > (now := start + (time.monotonic() - begun) * speed):
            yield RunSnapshot(trace, number, now, live=True, over=False)
        trace = after
        number = number + 1
    yield RunSnapshot(trace, number, None, live=False, over=True)


async def frame_stream(
    snapshots: Iterator[RunSnapshot],
    *,
    idle: float = IDLE_SECONDS,
    acts: Callable[[Trace], Data] = lambda _: {},
) -> AsyncIterator[bytes]:
    """Yield a `frame` now, and again whenever the run looks otherwise, until it has ended.

    `snapshots` are taken on a thread, and what its reader may do with the run (`acts`) is added to
    each.
    """
    frames = _Frames(snapshots, idle, acts)
    last_frame = ""
    while True:
        try:
            frame, snapshot = await anyio.to_thread.run_sync(frames.draw_next)
        except (OSError, UsageError, DecodeError):
            # The run was deleted, or the file is damaged from here on
            yield named_event("end", {"state": "unreadable"})
            return
        if frame and frame != last_frame:
            last_frame = frame
            yield _message("frame", frame, snapshot.number)
        if snapshot.over:
            yield named_event("end", {"state": snapshot.trace.outcome()})
            return
        await asyncio.sleep(max(TICK_SECONDS, len(frame) / BYTES_PER_SECOND))


class _Frames:
    """Draws snapshots; one without new events only where `idle` seconds have passed."""

    def __init__(
        self, snapshots: Iterator[RunSnapshot], idle: float, acts: Callable[[Trace], Data]
    ) -> None:
        self._snapshots = snapshots
        self._acts = acts
        self._idle = idle
        self._drawn_number = -1
        self._drawn_at = 0.0

    def draw_next(self) -> tuple[str, RunSnapshot]:
        """Return the next snapshot, and its frame, which is empty where none is needed."""
        snapshot = next(self._snapshots)
        now = time.monotonic()
        is_same = snapshot.number == self._drawn_number and not snapshot.over
        if not snapshot.trace.run or (is_same and now - self._drawn_at < self._idle):
            return "", snapshot
        self._drawn_number = snapshot.number
        self._drawn_at = now
        frame = frame_data(snapshot.trace, now=snapshot.now, live=snapshot.live)
        frame |= self._acts(snapshot.trace)
        return encode_line(frame, KNOWN_SECRETS), snapshot


# The routes


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
            return description | {"tree": _tree_data(trace, live=live)}

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
        """Each event once.

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
        """What a client may do with a run: `stops`, `decides`, and `continues` its conversation.

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
        """Tell a run of another program what its user decides, or that it shall end."""
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
    """Verdict, step (0 for none) and worker of an act of the page. Raises `RequestError`."""
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

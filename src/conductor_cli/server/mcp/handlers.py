"""The handlers of an MCP server.

A call of a tool becomes a job, its run the tool's result, and its events progress.

Whatever goes wrong in a call is a result with `isError` and a sentence; the server goes on. A
client that does not read must not hold up a run, so the run only leaves messages; what does not fit
is dropped.

A result is text that a client's model reads. It is sanitized and keys are redacted: a client may
print it on a terminal. A client hands it to its own model, which may be anywhere, so a run whose
rules kept its texts from somebody is not shown, unless this server has run it for its client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    TextContent,
    Tool,
    ToolAnnotations,
)

from conductor_cli.app.rehearsal import is_rehearsal_run
from conductor_cli.app.traces import (
    describe_offer,
    earliest_run_id,
    open_trace_store,
    recipients_of,
)
from conductor_cli.app.worker_selection import keep_policy_of
from conductor_cli.core.errors import ConductorError, Failure, LimitReached, UsageError
from conductor_cli.core.estimate import ZERO, PlanEstimate, estimate_steps
from conductor_cli.core.events import (
    Event,
    PlanDelta,
    RunFailed,
    RunFinished,
    RunStarted,
    StepDelta,
)
from conductor_cli.core.formatting import format_cost, format_count, format_duration, format_money
from conductor_cli.core.plan import MAX_STEPS, Plan
from conductor_cli.core.plan_file import PlanFile, format_plan_file
from conductor_cli.core.pool import Limits
from conductor_cli.core.terminal_text import one_line, sanitize
from conductor_cli.core.trace import ENDED, Trace, find_step
from conductor_cli.run import Run, RunSpec
from conductor_cli.server.mcp.tools import (
    TOOLS,
    describe_files,
    narrowed,
    read_arguments,
    read_plan,
    read_question,
    replaced_settings,
    tool_schema,
    worker_names,
)
from conductor_cli.server.runs.run_starter import RunStarter, ServedJob, ShowEvent
from conductor_cli.server.runs.stored_runs import (
    confidential,
    first_event,
    newest_runs,
    restricts_texts,
)
from conductor_cli.state.interfaces import Traces
from conductor_cli.state.stored_run import RunQuery, normalize_terms
from conductor_cli.state.trace_file import unreadable
from conductor_cli.system.known_secrets import KNOWN_SECRETS
from conductor_cli.views.run_text import (
    describe_event,
    describe_notice,
    describe_outcome,
    short_name,
    tokens_so_far,
    with_hint,
)

log = logging.getLogger(__name__)

# Calls at once. More are refused, because each holds a question and the answers to it in memory
MAX_CALLS: Final = 16

INSTRUCTIONS: Final = (
    "conductor plans a question with a small local model and has the user's own models answer it "
    "together. Use ask for "
    "hard questions. Use plan, then run, where the user wants to see the plan or its cost first. "
    "Use trace to look at "
    "earlier runs. The workers do not see this conversation: put everything they need into the "
    "question and its files."
)


class Handlers:
    """What a client can ask for. `server` is the SDK's server with these handlers."""

    def __init__(self, starter: RunStarter, version: str) -> None:
        self._starter = starter
        self._calls = 0
        self.server: Server[Any] = Server(
            "conductor",
            title="conductor",
            version=version,
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )

    # As the SDK gives them
    async def _list_tools(self, _context: Any, _params: Any) -> Any:  # noqa: ANN401
        # Workers may be agents, and may have tools that change things, so no promise is made for
        # what asks them.
        tools = []
        for name, spec in TOOLS.items():
            offered_tool = Tool(
                name=name,
                title=spec.title,
                description=spec.description,
                input_schema=tool_schema(spec.arguments),
                annotations=ToolAnnotations(
                    title=spec.title,
                    read_only_hint=spec.reads_only,
                    destructive_hint=not spec.reads_only,
                    idempotent_hint=spec.reads_only,
                    open_world_hint=spec.open_world,
                ),
            )
            tools.append(offered_tool)
        return ListToolsResult(tools=tools)

    # As above
    async def _call_tool(self, context: Any, params: CallToolRequestParams) -> CallToolResult:  # noqa: ANN401
        if params.name not in TOOLS:
            name = one_line(params.name)[:80]
            message = f"there is no tool {name!r}; the tools are: {', '.join(TOOLS)}"
            raise MCPError(INVALID_PARAMS, message)
        self._calls += 1
        try:
            if self._calls > MAX_CALLS:
                busy = f"the server is busy: {MAX_CALLS} calls are running"
                raise LimitReached(busy, hint="call again when one of them has ended")
            return await self._run_tool(
                params.name, read_arguments(params.name, params.arguments or {}), context
            )
        except ConductorError as error:
            return error_result(error)
        except Exception as error:
            log.exception("a call of the tool %s failed", one_line(params.name)[:80])
            return error_result(
                ConductorError(f"this is a bug in conductor: {type(error).__name__}: {error}")
            )
        finally:
            self._calls -= 1

    async def _run_tool(
        self,
        name: str,
        arguments: Mapping[str, Any],
        context: Any,  # noqa: ANN401
    ) -> CallToolResult:
        if name == "trace":  # it reads files
            return await asyncio.to_thread(
                look_at_runs, open_trace_store(), arguments, frozenset(self._starter.started)
            )
        if name == "run" and ("plan" in arguments) == ("run" in arguments):
            raise UsageError(
                "give either plan or run", hint="run is the id of a run that was planned or stopped"
            )
        if "run" in arguments:
            job = self._resumed_job(arguments)
        else:
            planned = None
            if "plan" in arguments:
                workers = self._starter.settings({}).workers
                names = [item.worker.name for item in workers]
                planned = read_plan(arguments["plan"], names)
            job = self._job(arguments, planned)
        job = replace(job, spec=replace(job.spec, plan_only=name == "plan"))
        async with _reporting(context) as show:
            run = await self._starter.perform(job, show)
        if name == "plan":
            return plan_result(run, job.settings.limits)
        return run_result(run)

    def _job(self, arguments: Mapping[str, Any], planned: PlanFile | None) -> ServedJob:
        starter = self._starter
        settings = narrowed(starter.settings(replaced_settings(arguments)), arguments, planned)
        if planned is None:
            question = read_question(arguments)
            spec = RunSpec(question=question, notices=describe_files(question))
        else:
            spec = RunSpec(question=planned.question, plan=planned.plan)
        return ServedJob(
            spec=spec,
            settings=settings,
            store=starter.store_of(settings),
            only=worker_names(arguments, starter.options.workers),
        )

    def _resumed_job(self, arguments: Mapping[str, Any]) -> ServedJob:
        starter = self._starter
        store = open_trace_store()
        try:
            earlier = store.ended(arguments["run"])
        except UsageError as error:
            raise UsageError(error.message, hint="the tool trace lists the stored runs") from None
        if earlier.run not in starter.started and restricts_texts(earlier.policy):
            raise confidential(earlier.run)
        # Whoever can make its tool calls goes on with it
        if earlier.question.conversation is not None:
            raise UsageError(
                f"run {earlier.run} is part of another client's conversation",
                hint="ask a new question",
            )
        replaced = {**replaced_settings(arguments), "conductor.mode": earlier.mode}
        settings, _ = keep_policy_of(starter.settings(replaced), earlier)
        settings = replace(settings, rehearsal=settings.rehearsal or is_rehearsal_run(earlier))
        return ServedJob(
            spec=RunSpec(question=earlier.question, resume=earlier),
            settings=narrowed(settings, arguments),
            store=starter.store_of(settings),
            only=worker_names(arguments, starter.options.workers),
        )


PLANNING_SHARE: Final = 0.1  # The share that is done when the plan is ready

# Seconds without news after which a client is told that the run goes on: many end a silent call
SILENT_SECONDS: Final = 10.0

MAX_MESSAGES: Final = 1000  # Messages that wait for a client; those beyond it are dropped


@asynccontextmanager
async def _reporting(context: Any) -> AsyncIterator[ShowEvent]:  # noqa: ANN401 - the SDK's
    """While the block runs, its client is told of each event.

    At its end, everything has been told.
    """
    progress = _Progress(context.session)
    telling = asyncio.create_task(progress.tell())
    try:
        yield progress.show
        progress.end()
        await telling
    finally:
        telling.cancel()


class _Progress:
    """Tells a client how far a run is. `session` is the SDK's."""

    def __init__(self, session: Any) -> None:  # noqa: ANN401 - the SDK's
        self._session = session
        self._messages = asyncio.Queue[tuple[float, str] | None]()
        self._trace = Trace()
        self._share = 0.0

    def show(self, event: Event, after: Trace) -> None:
        """Leave a message about an event, if there is room. Never waits."""
        self._trace = after
        if isinstance(event, PlanDelta | StepDelta):
            return
        text = describe_event(event, after)
        if not text or self._messages.qsize() >= MAX_MESSAGES:
            return
        share = min(share_done(after), 0.999)
        if isinstance(event, RunFinished | RunFailed):
            share = 1.0
        self._messages.put_nowait((self._grown(share), clean(text)))

    def end(self) -> None:
        """Let `tell` return when it has told everything."""
        self._messages.put_nowait(None)

    async def tell(self) -> None:
        while True:
            try:
                message = await asyncio.wait_for(self._messages.get(), SILENT_SECONDS)
            except TimeoutError:
                message = self._grown(self._share), clean(_describe_waiting(self._trace))
            if message is None:
                return
            share, text = message
            await self._session.report_progress(share, 1.0, text)

    def _grown(self, share: float) -> float:
        """Return a higher share, as the protocol asks for.

        In ever smaller steps where nothing was finished.
        """
        if share > self._share:
            self._share = share
        else:
            self._share += min(0.001, (1.0 - self._share) / 2)
        return self._share


def _describe_waiting(trace: Trace) -> str:
    workers = list[str]()
    for step in trace.steps:
        if step.state == "running":
            tokens = format_count(tokens_so_far(step), "token")
            workers.append(f"{short_name(step.worker)} (about {tokens} so far)")
    if workers:
        return f"waiting for {', '.join(workers)}"
    return "waiting" if trace.plan else "planning"


def share_done(trace: Trace) -> float:
    """Return how much of a run is done.

    A step that runs counts a third; a plan that is being written, little.
    """
    done = 0.0
    for step in trace.steps:
        if step.state in ENDED:
            done += 1.0
        elif step.state == "running":
            done += 0.33
    steps = max(len(trace.steps), 1)
    if trace.plan is None:
        planned = PLANNING_SHARE * len(trace.steps) / MAX_STEPS
        return planned + (1 - PLANNING_SHARE) * done / max(MAX_STEPS, steps)
    return PLANNING_SHARE + (1 - PLANNING_SHARE) * done / steps


# Results

MAX_RESULT_TEXT: Final = 100_000  # Characters of one text of a step. A client's model reads no more

_ARGUMENTS: Final = {
    "limit_cost": "max_cost",
    "limit_time": "max_seconds",
    "limit_tokens": "max_tokens",
}
"""The argument that sets a limit, by the reason of a failure at it."""


def clean(text: str) -> str:
    """Return a text without keys, and without what a terminal would obey."""
    return sanitize(KNOWN_SECRETS.redact(text))


def result_of(*texts: str, is_error: bool = False) -> CallToolResult:
    """Return the result of a call: the texts that are not empty, cleaned."""
    content = [TextContent(type="text", text=clean(text)) for text in texts if text]
    return CallToolResult(content=[*content], is_error=is_error)


def error_result(error: ConductorError | Failure, *remarks: str) -> CallToolResult:
    """Return an error as the client's model reads it: what happened, and what to do next."""
    lines = [one_line(error.message)]
    hint = " ".join(error.hint.split())
    if hint:
        lines.append(hint)
    return result_of("\n".join([*lines, *remarks]), is_error=True)


def run_result(run: Run) -> CallToolResult:
    """Return the answer of a run that has ended; an error where there is none."""
    trace = run.trace
    lines = [*_notes(trace), f"[run {trace.run}: {_totals(trace)}]"]
    if trace.state != "finished":
        error = trace.error or Failure(kind="internal", message="the run has no answer")
        argument = _ARGUMENTS.get(error.reason)
        if argument is None or error.hint or not error.suggested_limit:
            return error_result(with_hint(error), *lines)
        hint = (
            f"call again with {argument}={error.suggested_limit}, if the user's own limit allows it"
        )
        return error_result(replace(error, hint=hint), *lines)
    if trace.partial or trace.error is not None:
        remark = "This is a part of the answer"
        if trace.error is not None:
            remark += f": {one_line(trace.error.message)}"
        lines.insert(0, f"{remark}.")
    return result_of(trace.answer, "\n".join(lines))


def _totals(trace: Trace) -> str:
    steps = format_count(len(trace.steps), "step")
    workers = ", ".join(dict.fromkeys(one_line(record.worker) for record in trace.steps))
    if workers:
        steps += f" by {workers}"
    parts = (
        steps,
        format_count(trace.usage.tokens, "token"),
        format_cost(trace.usage),
        format_duration(trace.at),
    )
    return ", ".join(filter(None, parts))


def _notes(trace: Trace) -> list[str]:
    """Return what a reader should know about how an answer or a plan came about."""
    return [describe_notice(notice) for notice in trace.all_notices()]


def plan_result(run: Run, limits: Limits) -> CallToolResult:
    """Return the plan of a run that only planned, with its estimate, and as JSON.

    An error where there is none.
    """
    trace = run.trace
    if trace.error is not None and (trace.state != "finished" or not isinstance(trace.plan, Plan)):
        return run_result(run)
    if trace.state != "finished" or not isinstance(trace.plan, Plan):
        return error_result(
            Failure(kind="conductor", message="the planner wrote no plan", hint="ask again")
        )
    offer = describe_offer(run)
    recipients = recipients_of(run.team.pool)
    estimate = sum(estimate_steps(offer.question_for, offer.plan, offer.pool, offer.profile), ZERO)
    lines = []
    for number, step in enumerate(trace.plan.steps, start=1):
        reads = "the question and files only"
        if step.access:
            reads = f"the answers of {', '.join(map(str, step.access))}"
        reader = recipients.get(step.worker, "")
        lines.append(
            f"{number}. {step.worker} (sees {reads}; read by {reader}): {one_line(step.subtask)}"
        )
    lines += [
        _estimate_line(estimate),
        *_notes(trace),
        (
            f"To run it as it is, call the tool run with run={trace.run}. To change it, give it as "
            "plan:"
        ),
    ]
    return result_of(
        "\n".join(lines), format_plan_file(run.question, trace.plan, limits, run.team.pool.names)
    )


def _estimate_line(estimate: PlanEstimate) -> str:
    low, high = estimate.tokens
    least, most = estimate.cost
    cost = f"{format_money(least)} to {format_money(most)}"
    if estimate.unpriced:
        cost += f", and {format_count(estimate.unpriced, 'call')} without a known price"
    calls = format_count(estimate.calls, "call")
    return f"Estimate: {calls}, {low:,} to {high:,} tokens, {cost}."


def look_at_runs(
    store: Traces, arguments: Mapping[str, Any], own_runs: Collection[str]
) -> CallToolResult:
    """Return a list, one run, or one step of it. `own_runs` are the runs of this server.

    Raises `UsageError` or `PolicyError`.
    """
    if "run" not in arguments:
        return _list_runs(store, arguments, own_runs)
    try:
        run = store.find(arguments["run"])
    except UsageError as error:
        raise UsageError(error.message, hint=LIST_HINT) from None
    if run not in own_runs:
        first = first_event(store, run)
        if first is None or restricts_texts(first.policy):
            raise confidential(run)
    live = store.is_running(run)
    trace = store.trace(run)
    if "step" in arguments:
        return _describe_step(trace, arguments["step"])
    question = _beginning(one_line(trace.question.text), 300)
    lines = [f"Run {run}: {describe_outcome(trace, live=live)}. Question: {question}"]
    for step in trace.steps:
        lines.append(f"{step.number}. {step.worker}, {step.state}: {one_line(step.step.subtask)}")
    lines += [*_notes(trace), f"[{_totals(trace)}]"]
    return result_of("\n".join(lines), _shortened(trace.answer, f"conductor trace show {run}"))


LIST_HINT: Final = "call trace without arguments for a list of runs"


def _list_runs(
    store: Traces, arguments: Mapping[str, Any], own_runs: Collection[str]
) -> CallToolResult:
    if "step" in arguments:
        raise UsageError("step needs run", hint=LIST_HINT)
    terms: tuple[str, ...] = ()
    if "search" in arguments:
        terms = normalize_terms([arguments["search"]])
    since = ""
    if "since" in arguments:
        since = earliest_run_id(arguments["since"], datetime.now(UTC))

    def is_readable(first: RunStarted) -> bool:
        return first.run in own_runs or not restricts_texts(first.policy)

    try:
        rows, has_older, _ = newest_runs(
            store, RunQuery(since=since, terms=terms), arguments.get("count", 20), is_readable
        )
    except OSError as error:
        raise unreadable(store.place, error) from None
    lines = []
    for row in rows:
        question = _beginning(one_line(row["question"]), 100)
        lines.append(f"{row['run']}  {row['state']}  {question}")
    if has_older:
        lines.append(
            "There are older runs that match: search for less, or give since or a higher count."
        )
    return result_of("\n".join(lines) or "there are no stored runs that match")


def _describe_step(trace: Trace, number: int) -> CallToolResult:
    record = find_step(trace, number)
    if record is None:
        hint = f"it has {format_count(len(trace.steps), 'step')}"
        raise UsageError(f"run {trace.run} has no step {number}", hint=hint)
    whole = f"conductor trace show {trace.run} --step {number}"
    prompt = []
    for message in record.prompt:
        content = _shortened(message.content, whole)
        prompt.append(f"Its worker was sent as {message.role}:\n{content}")
    return result_of(_shortened(record.text, whole) or "(no text)", *prompt)


def _beginning(text: str, most: int) -> str:
    """Return so many characters of a line at most, with a sign where that is not all of it."""
    if len(text) <= most:
        return text
    return f"{text[:most]}…"


def _shortened(text: str, whole: str) -> str:
    """Return a text, or its beginning, how long it is, and the command that shows the `whole`."""
    if len(text) <= MAX_RESULT_TEXT:
        return text
    length = f"{MAX_RESULT_TEXT:,} of {len(text):,} characters"
    return f"{text[:MAX_RESULT_TEXT]}\n[These are the first {length}; the user sees all: {whole}]"

"""The handlers of an MCP server: a call of a tool becomes a run, and its end the tool's result.

Whatever goes wrong in a call is a result with `isError` and a sentence; the server goes on.

What each tool does: the arguments of a call become work, and the work a result. All raise `ConductorError`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, get_args

from conductor_cli.app.rehearsal import is_rehearsal_run
from conductor_cli.app.traces import open_trace_store
from conductor_cli.app.worker_selection import keep_policy_of
from conductor_cli.core.errors import ConductorError, LimitReached, UsageError
from conductor_cli.core.plan_file import PlanFile
from conductor_cli.core.terminal_text import one_line
from conductor_cli.server.mcp.reporter import reporting
from conductor_cli.server.mcp.results import Result, error_result, look_at_runs, plan_result, run_result
from conductor_cli.server.mcp.tool_schemas import (
    TOOLS,
    TOOLS_BY_NAME,
    ToolSpec,
    check_arguments,
    narrowed,
    read_plan,
    read_question,
    replaced_settings,
    worker_names,
)
from conductor_cli.server.runs import Runs, ShowEvent, Work, confidential, restricts_texts
from conductor_cli.state.trace_store import TraceStore

if TYPE_CHECKING:
    from mcp.server.lowlevel.server import Server
    from mcp_types import CallToolRequestParams, CallToolResult, LoggingLevel, SetLevelRequestParams, Tool


MOST_CALLS: Final = 16
"""Calls at once. More are refused, because each holds a question and the answers to it in memory."""


class Calls:
    """The calls of one client."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._count = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """A call, from its arguments to its result. Raises `LimitReached` where there are too many."""
        if self._count >= MOST_CALLS:
            raise LimitReached(
                f"the server is busy: {MOST_CALLS} calls are running", hint="call again when one of them has ended"
            )
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1

    async def ask(self, arguments: Mapping[str, Any], show: ShowEvent) -> Result:
        """Answer a question."""
        return run_result(await self._runs.perform(self._work(arguments), show))

    async def plan(self, arguments: Mapping[str, Any], show: ShowEvent) -> Result:
        """Only plan a question."""
        work = replace(self._work(arguments), plan_only=True)
        return plan_result(await self._runs.perform(work, show), work.settings.limits)

    async def run(self, arguments: Mapping[str, Any], show: ShowEvent) -> Result:
        """Run a plan that the client gives, or what is missing of a stored run."""
        if ("plan" in arguments) == ("run" in arguments):
            raise UsageError("give either plan or run", hint="run is the id of a run that was planned or stopped")
        if "run" in arguments:
            work = self._resumed_work(arguments)
        else:
            work = self._work(arguments, read_plan(arguments["plan"]))
        return run_result(await self._runs.perform(work, show))

    def trace(self, arguments: Mapping[str, Any]) -> Result:
        """A list of stored runs, one of them, or one step of it. Reads files, so it belongs on a thread."""
        return look_at_runs(open_trace_store(), arguments, frozenset(self._runs.started))

    def _work(self, arguments: Mapping[str, Any], planned: PlanFile | None = None) -> Work:
        runs = self._runs
        settings = narrowed(runs.settings(replaced_settings(arguments)), arguments, planned)
        return Work(
            settings=settings, store=TraceStore(settings.paths.traces),
            question=planned.question if planned else read_question(arguments),
            only=worker_names(arguments, runs.options.workers), plan=planned.plan if planned else None,
            rehearsal=runs.options.rehearsal,
        )  # fmt: skip

    def _resumed_work(self, arguments: Mapping[str, Any]) -> Work:
        """The rest of a stored run, under its own policy and in its own mode."""
        runs, store = self._runs, open_trace_store()
        try:
            earlier = store.ended(arguments["run"])
        except UsageError as error:
            raise UsageError(error.message, hint="the tool trace lists the stored runs") from None
        if earlier.run not in runs.started and restricts_texts(earlier.policy):
            raise confidential(earlier.run)
        if earlier.question.conversation is not None:  # whoever can make its tool calls goes on with it
            raise UsageError(f"run {earlier.run} is part of another client's conversation", hint="ask a new question")
        replaced = {**replaced_settings(arguments), "conductor.mode": earlier.mode}
        settings, _ = keep_policy_of(runs.settings(replaced), earlier)
        return Work(
            settings=narrowed(settings, arguments), store=store, question=earlier.question,
            only=worker_names(arguments, runs.options.workers), resume=earlier,
            rehearsal=runs.options.rehearsal or is_rehearsal_run(earlier),
        )  # fmt: skip


log = logging.getLogger(__name__)

INSTRUCTIONS: Final = (
    "conductor plans a question with a small local model and has the user's own models answer it together. Use ask for "
    "hard questions. Use plan, then run, where the user wants to see the plan or its cost first. Use trace to look at "
    "earlier runs. The workers do not see this conversation: put everything they need into the question and its files."
)


class Handlers:
    """What a client can ask for. `server` is the SDK's server with these handlers."""

    def __init__(self, runs: Runs, version: str) -> None:
        from mcp.server.lowlevel.server import Server
        from mcp_types import LoggingLevel, SetLevelRequestParams

        self._calls = Calls(runs)
        self._levels: tuple[LoggingLevel, ...] = get_args(LoggingLevel)
        self._least: LoggingLevel = "info"
        self.server: Server[Any] = Server(
            "conductor", title="conductor", version=version, instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools, on_call_tool=self._call_tool,
        )  # fmt: skip
        self.server.add_request_handler("logging/setLevel", SetLevelRequestParams, self._set_level)

    async def _list_tools(self, _context: Any, _params: Any) -> Any:  # noqa: ANN401 - as the SDK gives them
        from mcp_types import ListToolsResult

        return ListToolsResult(tools=[_tool(spec) for spec in TOOLS])

    async def _set_level(self, _context: Any, params: SetLevelRequestParams) -> Any:  # noqa: ANN401 - as above
        from mcp_types import EmptyResult

        self._least = params.level
        return EmptyResult()

    def _wants(self, level: LoggingLevel) -> bool:
        return self._levels.index(level) >= self._levels.index(self._least)

    async def _call_tool(self, context: Any, params: CallToolRequestParams) -> CallToolResult:  # noqa: ANN401 - as above
        """Call a tool. Whatever goes wrong is a result that the client's model can read."""
        try:
            with self._calls.one():
                tool = _find_tool(params.name)
                arguments = params.arguments or {}
                check_arguments(tool, arguments)
                result = await self._run_tool(tool.name, arguments, context)
        except ConductorError as error:
            result = error_result(error)
        except Exception as error:
            log.exception("a call of the tool %s failed", one_line(params.name)[:80])
            result = error_result(ConductorError(f"this is a bug in conductor: {type(error).__name__}: {error}"))
        return _call_result(result)

    async def _run_tool(self, name: str, arguments: Mapping[str, Any], context: Any) -> Result:  # noqa: ANN401 - as above
        """The result of a tool. Raises `ConductorError`."""
        if name == "trace":
            return await asyncio.to_thread(self._calls.trace, arguments)
        work = {"ask": self._calls.ask, "plan": self._calls.plan, "run": self._calls.run}[name]
        async with reporting(context, self._wants) as show:
            return await work(arguments, show)


def _find_tool(name: str) -> ToolSpec:
    """The tool of this name. Raises `UsageError`."""
    if name not in TOOLS_BY_NAME:
        hint = f"the tools are: {', '.join(TOOLS_BY_NAME)}"
        raise UsageError(f"there is no tool {one_line(name)[:80]!r}", hint=hint)
    return TOOLS_BY_NAME[name]


def _tool(spec: ToolSpec) -> Tool:
    """A tool as the protocol lists it."""
    from mcp_types import Tool, ToolAnnotations

    # Workers may be agents, and may have tools that change things, so no promise is made for what asks them.
    hints = ToolAnnotations(
        title=spec.title, read_only_hint=spec.reads_only, destructive_hint=not spec.reads_only,
        idempotent_hint=spec.reads_only, open_world_hint=spec.open_world,
    )  # fmt: skip
    return Tool(
        name=spec.name, title=spec.title, description=spec.description, input_schema=spec.arguments,
        output_schema=spec.result, annotations=hints,
    )  # fmt: skip


def _call_result(result: Result) -> CallToolResult:
    from mcp_types import CallToolResult, TextContent

    content = [TextContent(type="text", text=text) for text in result.texts]
    return CallToolResult(content=[*content], structured_content=result.data, is_error=result.is_error)

"""What each tool does: the arguments of a call become work, and the work a result. All raise `ConductorError`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from conductor_cli.app.policy_filter import keep_policy_of
from conductor_cli.app.rehearsal import is_rehearsal_run
from conductor_cli.app.traces import open_trace_store
from conductor_cli.core.errors import LimitReached, UsageError
from conductor_cli.core.plan_file import PlanFile
from conductor_cli.server.mcp.arguments import narrowed, read_plan, read_question, replaced_settings, worker_names
from conductor_cli.server.mcp.results import Result, plan_result, run_result
from conductor_cli.server.mcp.stored_runs import look_at_runs
from conductor_cli.server.runs import Runs, ShowEvent, Work
from conductor_cli.server.visibility import confidential, restricts_texts
from conductor_cli.store.trace_store import TraceStore

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

"""What every command that runs a workflow does: settings, models, views, store, and one event loop."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

from conductor_cli.app.opened_conductor import open_conductor
from conductor_cli.app.policy_filter import check_allowed, keep_policy_of
from conductor_cli.app.rehearsal import check_question, is_rehearsal_run
from conductor_cli.app.run_session import drive, open_trace
from conductor_cli.cli.model.pulling import offer
from conductor_cli.cli.options import GlobalOptions, choose_workers
from conductor_cli.cli.output import print_notice
from conductor_cli.cli.plan_approval import check_terminal, open_approver
from conductor_cli.config import Settings, load_settings
from conductor_cli.core.plan import Plan
from conductor_cli.core.question import Question
from conductor_cli.core.trace import Trace
from conductor_cli.store.trace_store import TraceStore
from conductor_cli.views import OutputContext, OutputName, ProgressName, View, open_views

if TYPE_CHECKING:
    from conductor_cli.run import Conductor, Run


class Session:
    """One command's settings and where its output goes."""

    def __init__(
        self,
        options: GlobalOptions,
        flags: Mapping[str, Any],
        *,
        output: str = "answer",
        keep: bool = True,
        rehearsal: bool = False,
        approved: bool = False,
    ) -> None:
        self.options = options
        self.approved = approved
        self.rehearsal = rehearsal
        self.settings: Settings = load_settings(os.environ, {**flags, "output.color": options.color}, options.config)
        self.store = TraceStore(self.settings.paths.traces)
        self.output = cast("OutputName", output)
        self.keep = keep and bool(self.settings["traces.keep"])

    def view(self, output: Literal["answer", "json", "jsonl"] | None = None) -> View:
        """The view that the flags ask for."""
        return open_views(output or self.output, cast("ProgressName", self.settings["output.progress"]), self.around)

    @property
    def around(self) -> OutputContext:
        """Where things are shown."""
        return OutputContext(
            stdout=sys.stdout, stderr=sys.stderr, environ=os.environ, color=self.settings["output.color"],
            quiet=self.options.quiet, kept=self.keep, markdown=self.settings["output.markdown"],
            brief=self.settings["output.brief"],
        )  # fmt: skip

    def hold(self, earlier: Trace) -> None:
        """Hold what follows to the rules that an earlier run began with, and say which of them did not hold anyway."""
        self.settings, changed = keep_policy_of(self.settings, earlier)
        if changed and not self.options.quiet:
            print_notice(f"as in run {earlier.run}, these hold: {', '.join(changed)}")

    def run(
        self, question: Question, *, only: Sequence[str] = (), plan: Plan | None = None, resume: Trace | None = None,
        seed: int | None = None, needs: Sequence[str] = (),
    ) -> int:  # fmt: skip
        """Run a question to its end; returns the exit code.

        Without one of the workers in `needs` nothing is run. Raises `UsageError` then.
        """
        if resume is not None:
            self.hold(resume)
        if self.approves:
            check_terminal()
        self.rehearsal = self.rehearsal or (resume is not None and is_rehearsal_run(resume))
        if self.rehearsal:
            check_question(question)
        elif self._plans(plan, resume):
            offer(self.settings, quiet=self.options.quiet)
        return asyncio.run(self._run(question, only, plan, resume, seed, needs))

    @property
    def approves(self) -> bool:
        """Whether a person takes the plan before anything is called for it."""
        return bool(self.settings["policy.approve"]) and not self.approved

    async def _run(
        self, question: Question, only: Sequence[str], plan: Plan | None, resume: Trace | None, seed: int | None,
        needs: Sequence[str],
    ) -> int:  # fmt: skip
        streams = self.output == "answer" and sys.stdout.isatty()
        opened = await open_conductor(
            self.settings,
            only=only,
            stored=(*resume.pool.names, *needs) if resume is not None else (),
            planning=self._plans(plan, resume),
            streams=streams,
            seed=seed,
            rehearsal=self.rehearsal,
        )
        try:
            check_allowed(opened.conductor.guard, needs)
            choose_workers(opened.conductor.pool, needs)
            return (await self.put(opened.conductor, question, plan=plan, resume=resume))[1]
        finally:
            await opened.close()

    async def put(
        self, conductor: Conductor, question: Question, *, plan: Plan | None = None, resume: Trace | None = None,
        only_plan: bool = False,
    ) -> tuple[Run, int]:  # fmt: skip
        """Put a question to a conductor that is open: run, store and show it. Returns the run and its exit code."""
        held = self.approves and not only_plan
        run = conductor.run(question, plan=plan, resume=resume, only_plan=only_plan, held=held)
        writer = open_trace(self.store if self.keep else None, run)
        with open_approver(self.around) if held else nullcontext() as approver:
            return run, await drive(run, self.view(), writer, approver)

    def _plans(self, plan: Plan | None, resume: Trace | None) -> bool:
        """Whether the conductor model is needed."""
        whole = plan is not None or (resume is not None and isinstance(resume.plan, Plan))
        return not whole or self._recursive(plan, resume)

    def _recursive(self, plan: Plan | None, resume: Trace | None) -> bool:
        """Whether a plan that is already there needs the conductor all the same, for a step on itself."""
        steps = plan.steps if plan is not None else ()
        if resume is not None and isinstance(resume.plan, Plan):
            steps = resume.plan.steps
        return self.settings.limits.recursion > 0 or any(step.worker == "self" for step in steps)

    def plan(self, question: Question, *, only: Sequence[str], seed: int | None) -> tuple[Run, int]:
        """Only plan: the run, over and with its models closed, and the exit code."""
        if self.rehearsal:
            check_question(question)
        else:
            offer(self.settings, quiet=self.options.quiet)
        return asyncio.run(self._plan(question, only, seed))

    async def _plan(self, question: Question, only: Sequence[str], seed: int | None) -> tuple[Run, int]:
        opened = await open_conductor(self.settings, only=only, seed=seed, rehearsal=self.rehearsal)
        try:
            # A review is appended when the plan is run; a plan that held one already would get two.
            limits = replace(opened.conductor.limits, recursion=0)
            return await self.put(replace(opened.conductor, limits=limits), question, only_plan=True)
        finally:
            await opened.close()

"""The state of a chat: the conductor that stays open, the conversation so far, and what its runs have cost."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from conductor_cli.app.opened_conductor import LoadedModels, OpenedConductor, open_conductor
from conductor_cli.app.rehearsal import check_question
from conductor_cli.app.run_session import RunResult
from conductor_cli.app.worker_selection import choose_workers
from conductor_cli.cli.options import GlobalOptions, RunOptions
from conductor_cli.cli.output import print_notice
from conductor_cli.cli.repl.prompt import INTERRUPTED, ChatEnded
from conductor_cli.cli.session import Session, without_reviews
from conductor_cli.core.errors import ConductorError, UsageError
from conductor_cli.core.follow_up import continue_conversation, first_turn_to_send, reset_step
from conductor_cli.core.formatting import format_cost, format_count
from conductor_cli.core.question import File, Question, Turn
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.run import Conductor

TERMINATED: Final = 143
"""The exit code of a process that SIGTERM ended."""


class ChatSession:
    """One conversation. It opens nothing before `begin`, which needs a running event loop. Close it.

    `turns` are the runs that the next question continues, `runs` all runs of this chat, and `files` those to attach to
    the next question.
    """

    def __init__(
        self, common: GlobalOptions, options: RunOptions, *, only: Sequence[str] = (), system: str = ""
    ) -> None:
        self._common, self._options = common, options
        self.flags: dict[str, Any] = options.settings()
        self.only = tuple(only)
        self.system = system
        self.rehearsal = options.rehearsal
        self.files: list[File] = []
        self.turns: list[Trace] = []
        self.runs: list[Trace] = []
        self._continued: Trace | None = None
        self.session = self._session(self.flags)
        self.changed: Callable[[], None] = lambda: None
        """Called when something that the prompt shows has changed."""
        self.failed: Callable[[ConductorError], None] = lambda _: None
        """Called when the conductor could not be opened in the background."""
        self.stopped = float("-inf")
        """When Ctrl-C last stopped a run, by the monotonic clock."""
        self._loaded = LoadedModels()
        self._opened: OpenedConductor | None = None
        self._opening: asyncio.Task[OpenedConductor] | None = None
        self._loading: asyncio.Task[None] | None = None
        self._shown_remarks: set[str] = set()
        self._first_sent = 0  # the first turn that goes along with the next question

    def _session(self, flags: Mapping[str, Any]) -> Session:
        session = Session(self._common, self._options, flags)
        if self._continued is not None:
            session.keep_policy(self._continued)
        return session

    def continue_run(self, earlier: Trace) -> None:
        """Continue the conversation of a stored run, under the policy that it began with."""
        self.turns.append(earlier)
        self._continued = earlier
        self.session = self._session(self.flags)

    # The conductor

    def begin(self) -> None:
        """Begin to open the conductor and load its model in the background."""
        self._opening = asyncio.create_task(self._open(self.session, self.only))
        self._loading = asyncio.create_task(self._load(self._opening))

    async def _open(self, session: Session, only: Sequence[str]) -> OpenedConductor:
        return await open_conductor(
            session.settings, only=only, streams=sys.stdout.isatty(), seed=self._options.seed, rehearsal=self.rehearsal,
            loaded=self._loaded,
        )  # fmt: skip

    async def _load(self, opening: Awaitable[OpenedConductor]) -> None:
        """Have a local model read the part of the prompt that is the same for every question.

        What goes wrong there is reported with the first question.
        """
        try:
            opened = await opening
        except ConductorError as error:
            self.failed(error)
            return
        # `change` has put it to use already; after `begin` nobody has.
        if opened is not self._opened:
            self._use(opened)
        if opened.planner is not None and opened.planner.kind == "llama":
            with suppress(ConductorError):
                await opened.conductor.prepare()
            self.changed()

    def _use(self, opened: OpenedConductor) -> None:
        """Use this conductor from now on."""
        self._leave()
        self._opened = opened
        self.changed()

    def _leave(self) -> None:
        """Close the record of what was spent, of the conductor in use; its models stay open."""
        if self._opened is not None:
            self._opened.leave()
            if self._opened.problem:
                print_notice(self._opened.problem)

    @property
    def loading(self) -> bool:
        """Whether the conductor or its model is still being loaded."""
        return self._loading is not None and not self._loading.done()

    @property
    def conductor(self) -> Conductor | None:
        """The conductor, None while it is not open."""
        return self._opened.conductor if self._opened is not None else None

    async def open(self) -> Conductor:
        """Wait for the conductor. Where opening it has failed, try again. Raises `ConductorError`."""
        failed = self._opening is None or (self._opening.done() and self._opening.exception() is not None)
        if failed:
            self.begin()
        assert self._opening is not None
        return (await asyncio.shield(self._opening)).conductor

    async def ready(self) -> Conductor:
        """Wait until the conductor is open and its model loaded. Raises `ConductorError`."""
        conductor = await self.open()
        if self._loading is not None:
            await asyncio.shield(self._loading)
        return conductor

    async def change(self, flags: Mapping[str, Any], only: Sequence[str] | None = None) -> None:
        """Use other settings from now on; None resets one. Open models stay open.

        Raises `ConductorError`, and then nothing has changed.
        """
        wanted = {name: value for name, value in {**self.flags, **flags}.items() if value is not None}
        chosen = self.only if only is None else tuple(only)
        session = self._session(wanted)
        opening = asyncio.create_task(self._open(session, chosen))
        opened = await asyncio.shield(opening)
        if self._loading is not None:
            self._loading.cancel()
        self.session, self.flags, self.only = session, wanted, chosen
        self._opening = opening
        self._use(opened)
        self._loading = asyncio.create_task(self._load(opening))

    async def close(self) -> None:
        """Close the models and stop recording spending."""
        for task in (self._opening, self._loading):
            if task is not None:
                task.cancel()
        await asyncio.gather(*filter(None, (self._opening, self._loading)), return_exceptions=True)
        self._leave()
        await self._loaded.close()

    # Runs

    async def ask(self, text: str) -> int:
        """Ask a question as the next of the conversation; returns the exit code of its run."""
        conductor = self._with_new_remarks(await self.open())
        question, remark = self._make_question(text)
        if remark:
            conductor = replace(conductor, notices=(*conductor.notices, remark))
        result = await self._run_question(conductor, question)
        self._add_run(result.run.trace, new=True)
        return result.exit_code

    async def plan(self, text: str) -> RunResult:
        """Only plan a question. The plan can be run by `finish`."""
        conductor = self._with_new_remarks(await self.open())
        result = await self._run_question(without_reviews(conductor), self._make_question(text)[0], plan_only=True)
        self._add_run(result.run.trace, new=True)
        return result

    async def redo(self, number: int, worker: str | None) -> int:
        """Run step `number` of the last run again, on `worker` if it is given, and the steps that depend on it."""
        last = self.last
        conductor = await self.open()
        if worker is not None:
            choose_workers(conductor.pool, [worker])
        conductor = without_reviews(self._with_new_remarks(conductor))
        return await self._resume(reset_step(last, number, worker), conductor)

    async def finish(self) -> int:
        """Run what the last run did not finish. Raises `UsageError` where it is complete."""
        last = self.last
        if last.state == "finished" and last.error is None and not last.partial and last.answer:
            hint = f"to repeat a step: /redo N [worker], N from 1 to {len(last.steps)}" if last.steps else ""
            raise UsageError("the last run is complete", hint=hint)
        return await self._resume(last, self._with_new_remarks(await self.open()))

    async def _run_question(self, conductor: Conductor, question: Question, **how: Any) -> RunResult:  # noqa: ANN401 - as `Session.run_question` takes it
        """Run a question. Raises `ChatEnded` where the process was told to terminate."""
        result = await self.session.run_question(conductor, question, **how)
        if result.exit_code == TERMINATED:
            raise ChatEnded(TERMINATED)
        if result.exit_code == INTERRUPTED:
            self.stopped = time.monotonic()
        return result

    async def _resume(self, earlier: Trace, conductor: Conductor) -> int:
        result = await self._run_question(conductor, earlier.question, resume=earlier)
        self._add_run(result.run.trace, new=not (self.turns and self.turns[-1].run == earlier.run))
        return result.exit_code

    @property
    def last(self) -> Trace:
        """The newest run. Raises `UsageError` where there is none."""
        found = self.runs[-1:] or self.turns[-1:]
        if not found:
            raise UsageError("no question was asked yet", hint="type a question")
        return found[0]

    def _add_run(self, trace: Trace, *, new: bool) -> None:
        """Note a run that has ended. If it is not `new`, it replaces the last turn, which it repeats or finishes."""
        self.runs.append(trace)
        if trace.answer:
            self.files.clear()
            self.turns[len(self.turns) - (not new) :] = [trace]

    def _with_new_remarks(self, conductor: Conductor) -> Conductor:
        """The conductor without the remarks that this chat has shown already."""
        remarks = tuple(text for text in conductor.notices if text not in self._shown_remarks)
        self._shown_remarks.update(remarks)
        return replace(conductor, notices=remarks)

    def status(self, *, narrow: bool = False) -> list[str]:
        """What the prompt shows at its right edge, in a few words: mode, pool, files, cost."""
        parts = ["loading"] if self.loading else []
        parts.append(self.session.settings["conductor.mode"])
        if self.conductor is not None:
            count = len(self.conductor.pool)
            parts.append(str(count) if narrow else format_count(count, "worker"))
        if self.files:
            parts.append(format_count(len(self.files), "file"))
        cost = format_cost(self.spent()) or "$0.00"
        parts.append(cost.partition(" + ")[0] if narrow else cost)
        return parts

    # The conversation

    def _make_question(self, text: str) -> tuple[Question, str]:
        """The next question with the conversation, and a remark where older turns are no longer sent with it."""
        question = Question(text=text, system=self.system, files=tuple(self.files))
        if self.rehearsal:
            check_question(question)
        if not self.turns or self.rehearsal:
            return question, ""
        question = continue_conversation(question, self.turns[-1], keep_system=not self.system)
        turns = (
            *self.turns[0].question.history,
            *(Turn(question=trace.question.text, answer=trace.answer) for trace in self.turns),
        )
        tokens, before = self.session.settings["chat.context"], self._first_sent
        self._first_sent = first_turn_to_send(turns, before, tokens)
        remark = ""
        if self._first_sent > before:
            dropped = format_count(self._first_sent, "turn")
            remark = f"the conversation is longer than {tokens:,} tokens: its first {dropped} are no longer sent"
        return replace(question, history=turns[self._first_sent :]), remark

    def undo(self) -> Trace:
        """Remove the last turn and return it. Raises `UsageError` where there is none."""
        if not self.turns:
            raise UsageError("there is nothing to undo", hint="type a question")
        self._first_sent = 0
        return self.turns.pop()

    def spent(self) -> Usage:
        """What the runs of this chat have used."""
        return sum((trace.usage for trace in self.runs), NO_USAGE)

"""The state of a chat: the open conductor, the conversation so far, and what its runs have cost.

A conversation that is too long is cut to half of `chat.context`: one turn at a time would change
the start of every prompt, and a local model would read all of it again.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from conductor_cli.app.driver import RunResult, needs_planner, opens_planner
from conductor_cli.app.learning import rate_run
from conductor_cli.app.opening import LoadedModels, OpenedOrchestra, OpeningRequest, open_orchestra
from conductor_cli.app.planner_resolution import has_no_model
from conductor_cli.app.rehearsal import check_question
from conductor_cli.app.worker_selection import offered_workers, policy_objection
from conductor_cli.cli.chat_prompt import ChatEnded
from conductor_cli.cli.options import GlobalOptions, RunOptions
from conductor_cli.cli.output import print_notice
from conductor_cli.cli.session import Session, decode_argument
from conductor_cli.core.continuation import (
    ask_in_conversation,
    describe_unsent_turns,
    is_complete,
    reset_from_step,
)
from conductor_cli.core.errors import ConductorError, UsageError
from conductor_cli.core.formatting import format_cost_cell, format_count, without_file_hash
from conductor_cli.core.learning import Rating, Verdict
from conductor_cli.core.mappings import without_none
from conductor_cli.core.pool import Worker
from conductor_cli.core.question import File, Question
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import Usage, total_usage
from conductor_cli.run import Orchestra, RunSpec
from conductor_cli.state.interfaces import AttachmentStore

_NAME: Final = re.compile(r"\w[\w.-]{0,39}")
SOME_QUESTION: Final = RunSpec(question=Question(text=""))
TERMINATED_EXIT_CODE: Final = 143  # That of a run that SIGTERM ended


class ChatSession:
    """One conversation. It opens nothing before `begin`, which needs a running event loop.

    Close it. `turns` are the runs that the next question continues, `runs` all runs of this chat,
    and `files` those that go with each question.
    """

    def __init__(
        self,
        common: GlobalOptions,
        options: RunOptions,
        *,
        only: Sequence[str] = (),
        system: str = "",
        model: str | None = None,
    ) -> None:
        self._common = common
        self._options = options
        self.flags: dict[str, Any] = options.settings()
        self.only = tuple(only)
        self.model = model  # What answers each question in one call; None where they are planned
        self.system = system
        self.name = ""
        self.rehearsal = options.rehearsal
        self.files: list[File] = []
        self.memory: tuple[str, ...] = ()
        """What workers read of the project's memory."""
        self.turns: list[Trace] = []
        self.runs: list[Trace] = []
        self._open_end: Trace | None = None
        """The newest run, if it is no turn because it has no answer.

        It was stopped, has failed, or is only a plan.
        """
        self._continued: Trace | None = None
        self._attachments: AttachmentStore | None = None
        self.session = self._session(self.flags)
        # Called when something that the prompt shows has changed
        self.changed: Callable[[], None] = lambda: None
        self.failed: Callable[[ConductorError], None] = lambda _: None
        """Called when the conductor could not be opened in the background."""
        self.named: Callable[[str], None] = lambda _: None
        """Called with a line about the planner and the workers, whenever another planner is open.
        """
        self._announced: tuple[str, str | None] = ("", None)  # The planner and the model
        self._has_chosen_model = False  # By /model, in this chat
        self._loaded = LoadedModels()
        self._opened: OpenedOrchestra | None = None
        self._lock = asyncio.Lock()  # Held while the conductor is opened or replaced
        self._loading: asyncio.Task[None] | None = None
        self._shown_remarks: set[str] = set()
        self._seen_workers: dict[str, str] = {}
        self._first_sent = 0  # the first turn that goes along with the next question

    def _session(self, flags: Mapping[str, Any]) -> Session:
        session = Session(self._common, self._options, flags, model=self.model)
        # What was attached stays attached when a setting changes.
        if self._attachments is None:
            self._attachments = session.attachments
        session.attachments = self._attachments
        if self._continued is not None:
            session.keep_policy(self._continued)
        return session

    def continue_run(self, earlier: Trace) -> None:
        """Continue the conversation of a stored run, under the policy that it began with."""
        self.turns.append(earlier)
        self.files[:0] = [file for file in earlier.question.files if file not in self.files]
        self.system = self.system or earlier.question.system
        self._continued = earlier
        self.session = self._session(self.flags)

    def use_name(self, name: str) -> None:
        """Name this conversation; one without a question goes on with the one of this name.

        Raises `UsageError`.
        """
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{name!r:.60} is no name for a conversation", hint="use letters, digits, - and _"
            )
        if not self.session.stores_traces:
            raise UsageError(
                "this chat is not stored, so it can have no name",
                hint="it needs its traces: traces.keep",
            )
        last = self.session.conversations.read().get(name)
        if last is not None and self.turns and last != self.turns[-1].run:
            hint = f"another name; or to go on with that one: /new, then /name {name}"
            raise UsageError(f"there is another conversation {name}", hint=hint)
        if last is not None and not self.turns:
            self.continue_run(self.session.read_ended(last))
        self.name = name
        if self.turns:
            self._note_name()

    def _note_name(self) -> None:
        """Let the name of this conversation stand for its last run; for none where it is empty."""
        if not self.name or not self.session.stores_traces:
            return
        if self.turns and self.turns[-1].run:
            self.session.conversations.set(self.name, self.turns[-1].run)
        else:
            self.session.conversations.forget(self.name)

    async def begin_again(self) -> None:
        """Forget the conversation, its files and its name; settings and system text stay.

        Raises `ConductorError`.
        """
        self.turns = []
        self.files = []
        self._open_end = None
        self._first_sent = 0
        self.name = ""
        self._continued = None
        await self.change({})

    async def lacks_planner(self) -> bool:
        """Return whether questions have to be planned, and no model is there to plan them."""
        if self.rehearsal or not has_no_model(self.session.settings):
            return False
        return await needs_planner(self.session.job(SOME_QUESTION), self.only)

    def begin(self) -> None:
        """Begin to open the conductor and load its model in the background."""
        self._loading = asyncio.create_task(self._load())

    async def _open(self, session: Session, only: Sequence[str]) -> OpenedOrchestra:
        job = session.job(SOME_QUESTION)
        request = OpeningRequest(
            settings=session.settings,
            only=only,
            planning=not session.settings.plain_model and await opens_planner(job, only),
            seed=self._options.seed,
            loaded=self._loaded,
            attachments=session.attachments,
            learning=True,
        )
        return await open_orchestra(request)

    async def _load(self) -> None:
        """Open the conductor, and have a local model read the start of every prompt.

        That start is the same for every question. What goes wrong while it reads is reported with
        the first question.
        """
        try:
            orchestra = await self.open()
        except ConductorError as error:
            self.failed(error)
            return
        names = ", ".join(orchestra.team.pool.names)
        line = f"{without_file_hash(orchestra.team.name)} plans for {names}"
        if orchestra.team.model is None:
            line = f"{names} answers, and nothing is planned"
        # /model says itself which model answers from then on.
        is_told = self.model is not None and self._has_chosen_model
        if (orchestra.team.name, self.model) != self._announced:
            self._announced = (orchestra.team.name, self.model)
            if not is_told:
                self.named(line)
        opened = self._opened
        if opened is not None and opened.planner is not None and opened.planner.kind == "llama":
            with suppress(ConductorError):
                await opened.orchestra.prepare()
            self.changed()

    def _use(self, opened: OpenedOrchestra) -> None:
        self._leave()
        self._opened = opened
        self._seen_workers |= {worker.name: worker.about for worker in opened.orchestra.team.pool}
        self.changed()

    def _leave(self) -> None:
        """Close the record of what was spent, of the conductor in use; its models stay open."""
        if self._opened is not None:
            self._opened.leave()
            if self._opened.problem:
                print_notice(self._opened.problem)

    @property
    def orchestra(self) -> Orchestra | None:
        if self._opened is None:
            return None
        return self._opened.orchestra

    def choosable_workers(self) -> dict[str, str]:
        """Return the workers that this chat may choose from, each with what is known about it."""
        listed: tuple[Worker, ...] = ()
        if not self.rehearsal:
            with suppress(ConductorError):
                listed = offered_workers(self.session.settings)
        choosable = {}
        for worker in listed:
            if not policy_objection(self.session.settings, worker):
                choosable[worker.name] = worker.about
        return choosable | self._seen_workers

    async def open(self) -> Orchestra:
        """Wait for the conductor. Where opening it has failed, try again.

        Raises `ConductorError`.
        """
        async with self._lock:
            if self._opened is None:
                self._use(await self._open(self.session, self.only))
            assert self._opened is not None
            return self._opened.orchestra

    async def ready(self) -> Orchestra:
        """Wait until the conductor is open and its model loaded. Raises `ConductorError`."""
        if self._loading is not None:
            await asyncio.shield(self._loading)
        return await self.open()

    async def use_model(self, model: str | None) -> None:
        """Have `model` answer each question in one call; None has them planned again.

        Raises `ConductorError`, and then nothing has changed.
        """
        before = self.model
        self.model = model
        self._has_chosen_model = True
        try:
            await self.change({})
        except ConductorError:
            self.model = before
            raise

    async def change(self, flags: Mapping[str, Any], only: Sequence[str] | None = None) -> None:
        """Use other settings from now on; None resets one.

        Raises `ConductorError`, and then nothing has changed.
        """
        changed = {**self.flags, **flags}
        wanted = without_none(changed)
        chosen = self.only
        if only is not None:
            chosen = tuple(only)
        session = self._session(wanted)
        async with self._lock:
            opened = await self._open(session, chosen)
            try:
                opened.orchestra.check_limits()
            except ConductorError:
                opened.leave()
                raise
            self.session = session
            self.flags = wanted
            self.only = chosen
            self._use(opened)
        # What is still loading was for the settings before.
        if self._loading is not None:
            self._loading.cancel()
        self.begin()

    async def close(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
        self._leave()
        await self._loaded.close()

    async def ask(self, text: str, *, plan_only: bool = False) -> RunResult:
        """Ask a question as the next of the conversation, or only plan it.

        The plan can be run by `finish`. Raises `UsageError` for what is no text in UTF-8.
        """
        question, remark = self._make_question(decode_argument(text, "what was typed"))
        return await self._run(question, remark, plan_only=plan_only)

    async def redo(self, number: int, worker: str | None) -> None:
        """Run step `number` of the last run again, and the steps that depend on it.

        The step runs on `worker` if it is given.
        """
        earlier = reset_from_step(self.last, number, worker, only_dependents=True)
        if worker is not None:
            (await self.open()).team.pool.subset([worker])
        await self._resume(earlier, reviews=False)

    async def finish(self) -> None:
        """Run what the last run did not finish. Raises `UsageError` where it is complete."""
        last = self.last
        if is_complete(last):
            hint = ""
            if last.steps:
                hint = f"to repeat a step: /redo N [worker], N from 1 to {len(last.steps)}"
            raise UsageError("the last run is complete", hint=hint)
        await self._resume(last)

    async def _resume(self, earlier: Trace, *, reviews: bool = True) -> None:
        # A run that repeats or finishes the last turn takes its place in the conversation.
        replaces = bool(self.turns) and self.turns[-1].run == earlier.run
        await self._run(earlier.question, reviews=reviews, replaces=replaces, resume=earlier)

    async def _run(
        self,
        question: Question,
        remark: str = "",
        *,
        reviews: bool = True,
        replaces: bool = False,
        plan_only: bool = False,
        resume: Trace | None = None,
    ) -> RunResult:
        """Run a question and note the run.

        Raises `ChatEnded` where the process was told to terminate.
        """
        orchestra = await self.open()
        # Each remark is shown once in a chat, not with every question.
        team = orchestra.team
        remarks = tuple(text for text in team.notices if text not in self._shown_remarks)
        self._shown_remarks.update(remarks)
        spec = RunSpec(
            question=question,
            plan_only=plan_only,
            reviews=reviews,
            resume=resume,
            team=replace(team, notices=remarks),
            notices=(remark,) if remark else (),
            streams_answer=sys.stdout.isatty(),
        )
        job = self.session.job(spec)
        result = await self.session.run_job(orchestra, job, chat=True)
        self._remember_run(result.run.trace, replaces=replaces)
        if self.session.terminated:
            raise ChatEnded(TERMINATED_EXIT_CODE)
        return result

    def _remember_run(self, trace: Trace, *, replaces: bool) -> None:
        """Add a run to the conversation, in place of the last turn where it `replaces` that."""
        self.runs.append(trace)
        if not trace.answer:
            self._open_end = trace
            return
        self._open_end = None
        if replaces:
            self.turns.pop()
        self.turns.append(trace)
        self._note_name()

    async def rate(self, verdict: Verdict, step: int) -> Rating:
        """Rate the last run, or one `step` of it; the planner then reads the new cards.

        Raises `ConductorError`.
        """
        rating = rate_run(self.session.settings, self.last, verdict, step=step)
        await self.change({})
        return rating

    @property
    def last(self) -> Trace:
        """The newest run that was not undone. Raises `UsageError` where there is none."""
        if self._open_end is not None:
            return self._open_end
        if not self.turns:
            raise UsageError("the conversation has no run yet", hint="type a question")
        return self.turns[-1]

    def status(self) -> list[str]:
        """Return what the prompt shows at its right edge, in a few words.

        These are mode, pool, files and cost.
        """
        parts = []
        if self._loading is not None and not self._loading.done():
            parts.append("loading")
        if self.model is not None:
            parts.append(self.model)
        else:
            parts.append(self.session.settings["conductor.mode"])
        if self.orchestra is not None and self.model is None:
            parts.append(format_count(len(self.orchestra.team.pool), "worker"))
        if self.files:
            parts.append(format_count(len(self.files), "file"))
        parts.append(_describe_spent(self.spent()))
        return parts

    def _make_question(self, text: str) -> tuple[Question, str]:
        """Return the next question with the conversation, and a remark.

        The remark says that older turns are no longer sent with it; else it is empty.
        """
        question = Question(
            text=text, system=self.system, files=tuple(self.files), context=self.memory
        )
        if self.rehearsal:
            check_question(question)
        if not self.turns or self.rehearsal:
            return question, ""
        tokens = self.session.settings["chat.context"]
        before = self._first_sent
        question, self._first_sent = ask_in_conversation(question, self.turns, before, tokens)
        if self._first_sent == before:
            return question, ""
        return question, describe_unsent_turns(self._first_sent, tokens)

    def undo(self) -> Trace:
        """Remove the last question, with its answer if it has one, and return its run.

        Raises `UsageError`.
        """
        undone = self._open_end
        self._open_end = None
        if undone is not None:
            return undone
        if not self.turns:
            raise UsageError("there is nothing to undo", hint="type a question")
        self._first_sent = 0
        undone = self.turns.pop()
        if not self.turns and undone.question.history:
            self.turns.append(self._run_before(undone))
        self._note_name()
        return undone

    def _run_before(self, run: Trace) -> Trace:
        """Return the run that this one continued: as it is stored, else what it was sent of it."""
        question = run.question
        parent = question.parent or ""
        with suppress(ConductorError):
            return self.session.read_ended(parent)
        *history, last = question.history
        earlier = replace(question, text=last.question, history=tuple(history), parent=None)
        return Trace(run=parent, question=earlier, answer=last.answer)

    def spent(self) -> Usage:
        return total_usage(self.runs)


def _describe_spent(usage: Usage) -> str:
    if usage.cost is not None:
        return format_cost_cell(usage.cost, usage.unpriced)
    if usage.unpriced:
        return "cost unknown"
    return "$0.00"

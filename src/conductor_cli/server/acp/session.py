"""One conversation of an editor: its directory, mode and runs, and its slash commands.

The name under which it is stored is its id, so `conductor chat --name ID` goes on with it in a
terminal.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.app.attach import Attacher
from conductor_cli.app.learning import rate_run
from conductor_cli.app.traces import describe_offer
from conductor_cli.app.worker_selection import keep_policy_of, offered_workers
from conductor_cli.app.worker_tools import keep_tools_of
from conductor_cli.config.settings import Settings
from conductor_cli.core.bounded_parsing import parse_whole_number
from conductor_cli.core.continuation import (
    ask_in_conversation,
    describe_unsent_turns,
    is_complete,
    reset_from_step,
)
from conductor_cli.core.errors import ConductorError, FailureReason, UsageError
from conductor_cli.core.events import Mode
from conductor_cli.core.formatting import format_cost, format_count
from conductor_cli.core.learning import Verdict, describe_rating
from conductor_cli.core.mappings import by_name, names_of
from conductor_cli.core.plan import Plan
from conductor_cli.core.question import Question
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import total_usage
from conductor_cli.run import RunSpec
from conductor_cli.server.acp.content import Block, read_prompt
from conductor_cli.server.acp.updates import EditorFeed, plan_text
from conductor_cli.server.options import ServerOptions
from conductor_cli.server.runs.run_starter import RunStarter, ServedJob
from conductor_cli.state.interfaces import EDITOR_PREFIX
from conductor_cli.state.opening import open_state
from conductor_cli.views.run_text import describe_outcome, with_hint

if TYPE_CHECKING:
    from acp.schema import StopReason


MODES: Final[dict[Mode, str]] = {
    "mini": "One worker, without a plan",
    "auto": "A plan of up to five steps",
    "ultra": "The planner reasons first and reviews the answer",
}


class Directories:
    """The runs of a process in one directory at a time, because it has one working directory.

    Runs of the same directory go on together; those of another one wait for them. Close it.
    """

    def __init__(self, options: ServerOptions) -> None:
        self._options = options
        self._starters: dict[Path, RunStarter] = {}
        self._changed = asyncio.Condition()
        self._current: Path | None = None
        self._runs = 0

    def is_busy_elsewhere(self, directory: Path) -> bool:
        """Return whether runs of another directory go on, which a run here would wait for."""
        return self._runs > 0 and self._current != directory

    @asynccontextmanager
    async def inside(self, directory: Path) -> AsyncIterator[RunStarter]:
        """Be in a directory while the block runs; gives what starts its runs.

        Raises `UsageError` where the directory is gone.
        """
        async with self._changed:
            await self._changed.wait_for(lambda: not self.is_busy_elsewhere(directory))
            try:
                os.chdir(directory)
            except OSError as error:
                message = f"{directory} cannot be entered: {error.strerror}"
                raise UsageError(message, hint="begin a session in another directory") from None
            self._current = directory
            self._runs += 1
        try:
            yield self.starter(directory)
        finally:
            # Not under the lock of the condition: what is cancelled here must not wait
            self._runs -= 1
            await asyncio.shield(self._tell_change())

    async def _tell_change(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def starter(self, directory: Path) -> RunStarter:
        """Return what starts the runs of a directory. Servers of tools that it opened are in it."""
        if directory not in self._starters:
            self._starters[directory] = RunStarter(self._options)
        return self._starters[directory]

    async def close(self) -> None:
        starters = [*self._starters.values()]
        self._starters.clear()
        for starter in starters:
            await starter.close()


class EditorSession:
    """One conversation. `turns` are the runs that the next question continues, `runs` all of it."""

    def __init__(
        self, session: str, directory: Path, directories: Directories, *, approves: bool
    ) -> None:
        self.id = session
        self.directory = directory
        self.mode: Mode | None = None  # None for that of the settings
        self.turns: list[Trace] = []
        self.runs: list[Trace] = []
        self.remarks: list[str] = []  # What the person is told with the next run
        self.answering: asyncio.Task[StopReason] | None = None
        self._directories = directories
        self._approves = approves
        self._only: tuple[str, ...] = ()
        self._continued: Trace | None = None
        self._open_end: Trace | None = None  # The newest run, where it has no answer
        self._first_sent = 0
        self._told: set[str] = set()

    @property
    def starter(self) -> RunStarter:
        return self._directories.starter(self.directory)

    def settings(self) -> Settings:
        """Return the settings as they are now, in this mode. Raises `ConfigError`."""
        replaced = {}
        if self.mode is not None:
            replaced["conductor.mode"] = self.mode
        settings = self.starter.settings(replaced)
        if self._continued is not None:
            settings, _ = keep_policy_of(settings, self._continued)
        return settings

    def load(self) -> None:
        """Go on with the stored conversation of this id, under the policy that it had.

        Raises `UsageError` where there is none.
        """
        state = open_state(self.starter.settings().paths)
        run = None
        if self.id.startswith(EDITOR_PREFIX):
            run = state.conversations.read().get(self.id)
        if run is None:
            message = f"there is no stored session {self.id!r:.60}"
            raise UsageError(message, hint="begin a new one")
        self._continued = state.traces.ended(run)
        self.turns.append(self._continued)

    async def answer(self, blocks: Sequence[Block], feed: EditorFeed) -> StopReason:
        """Answer one prompt; returns why the turn ended. Raises `ConductorError`.

        Cancelled, it has stopped its run when it ends.
        """
        async with feed.sending():
            if self._directories.is_busy_elsewhere(self.directory):
                feed.say("This question waits for the runs in another directory.\n\n")
            async with self._directories.inside(self.directory):
                return await self._answer_here(blocks, feed)

    async def _answer_here(self, blocks: Sequence[Block], feed: EditorFeed) -> StopReason:
        """Answer one prompt in the directory of this session."""
        settings = self.settings()
        remarks = list[str]()
        attachments = open_state(settings.paths).attachments()
        attacher = Attacher(attachments, settings, remarks.append)
        text, files = await asyncio.to_thread(read_prompt, blocks, self.directory, attacher)
        command, words = find_command(text)
        if command is not None and not command.plans:
            if files or remarks:
                raise UsageError("a command takes no files", hint="attach them to a question")
            return await command.act(self, words, feed)
        if not words:
            raise UsageError("there is no question", hint="write what you want to know")
        question = Question(text=words, files=files)
        question = self._in_conversation(question, settings, remarks)
        spec = RunSpec(question=question, plan_only=command is not None)
        return await self._run(spec, feed, remarks, attachments=attachments)

    def _in_conversation(
        self, question: Question, settings: Settings, remarks: list[str]
    ) -> Question:
        if not self.turns or settings.rehearsal:
            return question
        tokens = settings["chat.context"]
        before = self._first_sent
        question, self._first_sent = ask_in_conversation(question, self.turns, before, tokens)
        if self._first_sent != before:
            remarks.append(describe_unsent_turns(self._first_sent, tokens))
        earlier = dict.fromkeys((*self.turns[-1].question.files, *question.files))
        return replace(question, files=tuple(earlier))

    async def _run(
        self,
        spec: RunSpec,
        feed: EditorFeed,
        remarks: Sequence[str] = (),
        *,
        replaces: bool = False,
        **fields: Any,  # noqa: ANN401 - of `ServedJob`
    ) -> StopReason:
        """Run a question and note the run, also where it is cancelled."""
        settings = self.settings()
        if spec.resume is not None:
            settings, _ = keep_policy_of(settings, spec.resume)
            settings = keep_tools_of(settings, spec.resume)
        approves = bool(settings["policy.approve"]) and self._approves and not spec.plan_only
        notices = (*self.remarks, *remarks)
        self.remarks = []
        job = ServedJob(
            spec=replace(
                spec,
                approves=approves,
                asks_about_tools=not spec.plan_only,
                notices=notices,
                streams_answer=True,
                streams_nested=True,
            ),
            settings=settings,
            store=self.starter.store_of(settings),
            only=self._only or self.starter.options.workers,
            has_approver=True,
            **fields,
        )
        try:
            await self.starter.perform(job, feed.show, feed.begin)
        finally:
            if feed.run is not None:
                self._note(feed.run.trace, replaces=replaces)
        assert feed.run is not None
        if spec.plan_only and isinstance(feed.run.trace.plan, Plan):
            feed.say(f"{plan_text(describe_offer(feed.run))}\n\n`/redo` runs this plan.\n")
        return _end_of(feed)

    def _note(self, trace: Trace, *, replaces: bool) -> None:
        """Note a run that has ended; one with an answer is the next turn."""
        self.runs.append(trace)
        if not trace.answer:
            self._open_end = trace
            return
        self._open_end = None
        if replaces and self.turns:
            self.turns.pop()
        self.turns.append(trace)
        settings = self.starter.settings()
        if trace.stored and self.starter.store_of(settings) is not None:
            open_state(settings.paths).conversations.set(self.id, trace.run)

    @property
    def last(self) -> Trace:
        """The newest run. Raises `UsageError` where there is none."""
        if self._open_end is not None:
            return self._open_end
        if not self.turns:
            raise UsageError("the conversation has no run yet", hint="ask a question")
        return self.turns[-1]

    # Slash commands

    async def redo(self, words: str, feed: EditorFeed) -> StopReason:
        """Finish the last run, or do a step of it and those that depend on it again."""
        earlier = self.last
        number, _, worker = words.partition(" ")
        if not number:
            if is_complete(earlier):
                hint = "to repeat a step: /redo N, or /redo N WORKER"
                raise UsageError("the last run is complete", hint=hint)
        elif (step := parse_whole_number(number)) is not None:
            chosen = worker.strip() or None
            earlier = reset_from_step(earlier, step, chosen, only_dependents=True)
            if chosen is not None:
                _check_offered([chosen], self._only or self._offered())
        else:
            hint = "for example: /redo 2, or on another worker: /redo 2 NAME"
            raise UsageError(f"{number!r:.40} is not a step", hint=hint)
        replaces = bool(self.turns) and self.turns[-1].run == earlier.run
        spec = RunSpec(question=earlier.question, resume=earlier, reviews=not number)
        return await self._run(spec, feed, replaces=replaces)

    async def choose_workers(self, words: str, feed: EditorFeed) -> StopReason:
        """Use only some workers from now on, and say which there are."""
        names = tuple(words.replace(",", " ").split())
        workers = by_name(offered_workers(self.settings()))
        offered = self._offered()
        if names == ("all",):
            self._only = ()
        elif names:
            _check_offered(names, offered)
            self._only = names
        lines = []
        for name in offered:
            worker = workers.get(name)
            if worker is not None:
                mark = " (asked)" if name in (self._only or offered) else ""
                lines.append(f"- `{name}`{mark}: {worker.about or worker.model_name}")
        feed.say("\n".join(lines) or "No workers are set up: `conductor setup` sets them up.")
        return "end_turn"

    def _offered(self) -> tuple[str, ...]:
        """Return the names of the workers that this process may use."""
        if self.starter.options.workers:
            return self.starter.options.workers
        return tuple(names_of(offered_workers(self.settings())))

    async def show_cost(self, _: str, feed: EditorFeed) -> StopReason:
        """Say what the runs of this session have cost."""
        usage = total_usage(self.runs)
        runs = format_count(len(self.runs), "run")
        tokens = format_count(usage.tokens, "token")
        feed.say(f"{runs} in this session: {tokens}, {format_cost(usage)}")
        return "end_turn"

    async def rate(self, words: str, feed: EditorFeed, *, verdict: Verdict) -> StopReason:
        """Rate the last run or a step of it."""
        step = parse_whole_number(words or "0")
        if step is None:
            hint = f"for example: /{verdict}, or of one step: /{verdict} 2"
            raise UsageError(f"{words!r:.40} is not a step", hint=hint)
        rating = rate_run(self.settings(), self.last, verdict, step=step)
        feed.say(describe_rating(rating))
        return "end_turn"


def _check_offered(names: Sequence[str], offered: Sequence[str]) -> None:
    """Raise `UsageError` where one of the names is none of the workers that are offered."""
    for name in names:
        if name not in offered:
            hint = f"there are: {', '.join(offered)}"
            raise UsageError(f"there is no worker {name!r:.60}", hint=hint)


def working_directory(name: str) -> Path | None:
    """Return the directory of this name; None where it is not absolute or does not exist."""
    path = Path(name)
    with suppress(OSError, ValueError):
        if path.is_absolute() and path.is_dir():
            return path.resolve()
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlashCommand:
    """A command; `takes` is what may follow its name. One that `plans` has no other action."""

    help: str
    takes: str = ""
    act: Callable[[EditorSession, str, EditorFeed], Awaitable[StopReason]] = EditorSession.show_cost
    plans: bool = False


COMMANDS: Final = {
    "plan": SlashCommand(
        help="Plan a question without running the plan", takes="the question", plans=True
    ),
    "redo": SlashCommand(
        help="Finish the last run, or do a step again",
        takes="a step, and a worker for it",
        act=EditorSession.redo,
    ),
    "workers": SlashCommand(
        help="Show the workers, or use only some",
        takes="names of workers, or all",
        act=EditorSession.choose_workers,
    ),
    "cost": SlashCommand(help="Show what this session has cost", act=EditorSession.show_cost),
    "good": SlashCommand(
        help="Rate the last answer good, or one step of it",
        takes="a step",
        act=partial(EditorSession.rate, verdict="good"),
    ),
    "bad": SlashCommand(
        help="Rate the last answer bad, or one step of it",
        takes="a step",
        act=partial(EditorSession.rate, verdict="bad"),
    ),
}


def find_command(text: str) -> tuple[SlashCommand | None, str]:
    """Return the command that a prompt begins with, and what follows; None for a question."""
    name, _, words = text.removeprefix("/").partition(" ")
    command = COMMANDS.get(name.strip())
    if not text.startswith("/") or command is None:
        return None, text
    if command.plans and not words.strip():
        raise UsageError(f"/{name.strip()} needs a question", hint=f"for example: /{name} Why …?")
    return command, words.strip()


_REASONS: Final[dict[FailureReason, StopReason]] = {
    "limit_tokens": "max_tokens",
    "answer_truncated": "max_tokens",
    "limit_calls": "max_turn_requests",
    "declined": "refusal",
    "answer_filtered": "refusal",
}
"""Why a turn ended, as the protocol says it. It has no word for limits of money and of time."""


def _end_of(feed: EditorFeed) -> StopReason:
    """Return why the turn of a run ended. Raises `ConductorError` where it has no answer."""
    assert feed.run is not None
    trace = feed.run.trace
    if feed.is_dropped:
        feed.say("The plan was dropped. No worker was called.")
        return "end_turn"
    if trace.error is None:
        return "end_turn"
    error = with_hint(trace.error)
    reason = _REASONS.get(error.reason)
    if trace.state == "failed" and reason is None:
        raise ConductorError(error.message, hint=error.hint)
    if reason != "refusal":
        lines = [describe_outcome(trace), one_line(error.hint)]
        feed.say(f"\n\n[{'; '.join(filter(None, lines))}]\n")
    return reason or "end_turn"

"""What a chat works with: the conductor that stays open, the conversation so far, and what its runs have cost."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.app.loaded_models import LoadedModels
from conductor_cli.app.opened_conductor import OpenedConductor, open_conductor
from conductor_cli.app.rehearsal import check_question
from conductor_cli.app.worker_selection import choose_workers
from conductor_cli.cli.options import GlobalOptions, RunOptions
from conductor_cli.cli.repl.prompt import INTERRUPTED, Left
from conductor_cli.cli.session import Session, without_reviews
from conductor_cli.core import rerun
from conductor_cli.core.conversation import continue_conversation, first_turn_to_send
from conductor_cli.core.errors import ConductorError, UsageError
from conductor_cli.core.formatting import format_cost, format_count
from conductor_cli.core.question import File, Question, Turn
from conductor_cli.core.usage import NO_USAGE, Usage

TERMINATED: Final = 143

if TYPE_CHECKING:
    from conductor_cli.app.run_session import RunResult
    from conductor_cli.core.trace import Trace
    from conductor_cli.run import Conductor


class ChatSession:
    """Opens nothing before `begin`, which a running event loop is needed for. Close it.

    `turns` are the runs that the next question continues, `runs` all that this chat has made, `files` what goes with
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
        """Called when the conductor could not be opened while nobody waited for it."""
        self.stopped = float("-inf")
        """When Ctrl-C stopped a run."""
        self._loaded = LoadedModels()
        self._opened: OpenedConductor | None = None
        self._opening: asyncio.Task[OpenedConductor] | None = None
        self._loading: asyncio.Task[None] | None = None
        self._said: set[str] = set()
        self._first = 0

    def _session(self, flags: Mapping[str, Any]) -> Session:
        session = Session(self._common, self._options, flags)
        if self._continued is not None:
            session.hold(self._continued)
        return session

    def go_on(self, earlier: Trace) -> None:
        """Continue the conversation of a stored run, under the rules that it began with."""
        self.turns.append(earlier)
        self._continued = earlier
        self.session = self._session(self.flags)

    # The conductor

    def begin(self) -> None:
        """Open the conductor and load its model, behind whatever the person does meanwhile."""
        self._opening = asyncio.create_task(self._open(self.session, self.only))
        self._loading = asyncio.create_task(self._load(self._opening))

    async def _open(self, session: Session, only: Sequence[str]) -> OpenedConductor:
        return await open_conductor(
            session.settings, only=only, streams=sys.stdout.isatty(), seed=self._options.seed, rehearsal=self.rehearsal,
            loaded=self._loaded,
        )  # fmt: skip

    async def _load(self, opening: Awaitable[OpenedConductor]) -> None:
        """Have a local model read what stands before every question. What goes wrong there is told with one."""
        try:
            opened = await opening
        except ConductorError as error:
            self.failed(error)
            return
        if opened is not self._opened:
            self._use(opened)
        if opened.planner is not None and opened.planner.kind == "llama":
            with suppress(ConductorError):
                await opened.conductor.prepare()
            self.changed()

    def _use(self, opened: OpenedConductor) -> None:
        """Go on with this conductor, in place of the one before."""
        if self._opened is not None:
            self._opened.leave()
        self._opened = opened
        self.changed()

    @property
    def loading(self) -> bool:
        """Whether a local model is being read, or nothing is open yet."""
        return self._loading is not None and not self._loading.done()

    @property
    def conductor(self) -> Conductor | None:
        """The conductor, as soon as it is open."""
        return self._opened.conductor if self._opened is not None else None

    async def open(self) -> Conductor:
        """Wait for the conductor; one that could not be opened is tried again. Raises `ConductorError`."""
        failed = self._opening is None or (self._opening.done() and self._opening.exception() is not None)
        if failed:
            self.begin()
        assert self._opening is not None
        return (await asyncio.shield(self._opening)).conductor

    async def ready(self) -> Conductor:
        """Wait until the conductor's model has been loaded, too. Raises `ConductorError`."""
        conductor = await self.open()
        if self._loading is not None:
            await asyncio.shield(self._loading)
        return conductor

    async def change(self, flags: Mapping[str, Any], only: Sequence[str] | None = None) -> None:
        """Go on with other settings; None takes back what this chat had set. Raises `ConductorError`: all stays then.

        Models that are open stay open.
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
        if self._opened is not None:
            self._opened.leave()
        await self._loaded.close()

    # Runs

    async def ask(self, text: str) -> int:
        """Ask a question as the next of the conversation; returns the exit code of its run."""
        conductor = self._set(await self.open())
        question, said = self._question(text)
        if said:
            conductor = replace(conductor, remarks=(*conductor.remarks, said))
        result = await self._put(conductor, question)
        self._took(result.run.trace, new=True)
        return result.exit_code

    async def plan(self, text: str) -> RunResult:
        """Only plan a question. The plan can be run by `finish`."""
        conductor = self._set(await self.open())
        result = await self._put(without_reviews(conductor), self._question(text)[0], plan_only=True)
        self._took(result.run.trace, new=True)
        return result

    async def redo(self, number: int, worker: str | None) -> int:
        """Run step `number` of the last run again, by `worker` if one is named, and what follows from it."""
        last = self.last
        conductor = await self.open()
        if worker is not None:
            choose_workers(conductor.pool, [worker])
        conductor = without_reviews(self._set(conductor))
        return await self._resume(rerun.reset_step(last, number, worker), conductor)

    async def finish(self) -> int:
        """Run what the last run has not finished. Raises `UsageError` where nothing is missing."""
        last = self.last
        if last.state == "finished" and last.error is None and not last.partial and last.answer:
            hint = f"one step again: /redo N [worker], N from 1 to {len(last.steps)}" if last.steps else ""
            raise UsageError("the last run has nothing left to do", hint=hint)
        return await self._resume(last, self._set(await self.open()))

    async def _put(self, conductor: Conductor, question: Question, **how: Any) -> RunResult:  # noqa: ANN401 - as `Session.put` takes it
        """Run a question, and remember when somebody stopped it. Raises `Left` where the whole chat is to end."""
        result = await self.session.put(conductor, question, **how)
        if result.exit_code == TERMINATED:
            raise Left(TERMINATED)
        if result.exit_code == INTERRUPTED:
            self.stopped = time.monotonic()
        return result

    async def _resume(self, earlier: Trace, conductor: Conductor) -> int:
        result = await self._put(conductor, earlier.question, resume=earlier)
        self._took(result.run.trace, new=not (self.turns and self.turns[-1].run == earlier.run))
        return result.exit_code

    @property
    def last(self) -> Trace:
        """The run that was made last. Raises `UsageError` where there is none."""
        found = self.runs[-1:] or self.turns[-1:]
        if not found:
            raise UsageError("nothing was asked yet", hint="type a question")
        return found[0]

    def _took(self, trace: Trace, *, new: bool) -> None:
        """A run has ended: it takes the place of the one it is another try of, or follows the last."""
        self.runs.append(trace)
        if trace.answer:
            self.files.clear()
            self.turns[len(self.turns) - (not new) :] = [trace]

    def _set(self, conductor: Conductor) -> Conductor:
        """The conductor without what it has said in this chat already."""
        fresh = tuple(text for text in conductor.remarks if text not in self._said)
        self._said.update(fresh)
        return replace(conductor, remarks=fresh)

    def standing(self, *, narrow: bool = False) -> list[str]:
        """What holds for the next question, in a few words: mode, pool, files, money."""
        conductor, used = self.conductor, self.spent()
        pool = (
            []
            if conductor is None
            else [str(len(conductor.pool)) if narrow else format_count(len(conductor.pool), "worker")]
        )
        files = [format_count(len(self.files), "file")] if self.files else []
        spent = format_cost(used) or "$0.00"
        return [
            *(["loading"] if self.loading else []), self.session.settings["conductor.mode"], *pool, *files,
            spent.partition(" + ")[0] if narrow else spent,
        ]  # fmt: skip

    # The conversation

    def _question(self, text: str) -> tuple[Question, str]:
        """The next question with all that goes with it, and what is to be said of what does not go any more."""
        asked = Question(text=text, system=self.system, files=tuple(self.files))
        if self.rehearsal:
            check_question(asked)
        if not self.turns or self.rehearsal:
            return asked, ""
        asked = continue_conversation(asked, self.turns[-1], keep_system=not self.system)
        everything = (
            *self.turns[0].question.history,
            *(Turn(question=trace.question.text, answer=trace.answer) for trace in self.turns),
        )
        tokens, before = self.session.settings["chat.context"], self._first
        self._first = first_turn_to_send(everything, before, tokens)
        turns = format_count(self._first, "turn")
        said = f"the conversation is longer than {tokens:,} tokens: its first {turns} stay behind"
        return replace(asked, history=everything[self._first :]), said if self._first > before else ""

    def undo(self) -> Trace:
        """Take the last turn back, and return it. Raises `UsageError` where there is none."""
        if not self.turns:
            raise UsageError("there is nothing to take back", hint="type a question")
        self._first = 0
        return self.turns.pop()

    def spent(self) -> Usage:
        """What this chat's runs have used."""
        return sum((trace.usage for trace in self.runs), NO_USAGE)

"""A program as a model: one call is one process."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Awaitable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from conductor_cli.core.chat import Chunk, Finish, Request
from conductor_cli.core.errors import ModelError
from conductor_cli.core.formatting import format_duration
from conductor_cli.core.pool import Worker
from conductor_cli.core.redact import Secrets
from conductor_cli.models.api_errors import clean_excerpt
from conductor_cli.models.command.environment import environment_of, find_program, working_directory
from conductor_cli.models.command.events import READERS
from conductor_cli.models.command.process import RunningProgram
from conductor_cli.models.command.programs import PROGRAMS, State, command_of
from conductor_cli.models.command.prompt import fill_in, prompt_text
from conductor_cli.models.command.reply import EventReply, PlainReply, Reply
from conductor_cli.models.command.sandbox import View, check_shown, find_sandbox, own_files, sandbox_words
from conductor_cli.models.features import NO_FEATURES, Features, check_features
from conductor_cli.programs.guarded import Ending, can_run_programs

T = TypeVar("T")

LAST_LINES: Final = 5
"""Lines of standard error that an error quotes."""

LAST_CHARACTERS: Final = 300
"""Characters of them."""


class ProgramModel:
    """A program that is started for each request and ended with all that it has started."""

    features: Features = NO_FEATURES

    def __init__(self, worker: Worker, *, environ: Mapping[str, str], secrets: Secrets) -> None:
        """Find the program and, if it is wanted, its sandbox; nothing is started. Raises `ModelError`."""
        if not can_run_programs():
            raise ModelError("missing", "programs as workers need Linux or macOS", hint="use WSL on Windows")
        self._program = PROGRAMS[worker.kind]
        self._options: Mapping[str, Any] = worker.options
        self._secrets = secrets
        self._words = command_of(worker)
        self.name = Path(self._words[0]).name
        self._environ = environment_of(environ, (*self._program.env, *(self._options.get("env") or ())))
        if self._options.get("sandbox"):
            self._environ.pop("TMPDIR", None)  # there it has a /tmp of its own
        cwd = str(self._options.get("cwd") or "")
        self._path = find_program(self._words[0], self._environ, cwd, self._program.install)
        self._bwrap = find_sandbox(environ) if self._options.get("sandbox") else ""
        self._readable = [str(Path(path).expanduser().resolve()) for path in self._options.get("read") or ()]
        if self._bwrap:
            check_shown([*([str(Path(cwd).expanduser())] if cwd else []), *self._readable], environ)

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """Run the program on the prompt. Raises `ModelError`."""
        check_features(self.name, self.features, request)
        prompt = prompt_text(request.messages)
        words, data = fill_in(self._words[1:], prompt)
        reply = self._reply(request)
        deadline = _Deadline(request.deadline, self._options.get("seconds"))
        async with working_directory(str(self._options.get("cwd") or "")) as cwd:
            program = await self._start(words, cwd)
            try:
                program.feed(data)
                while not reply.is_full and (piece := await deadline.wait(program.read())):
                    for chunk in reply.feed(piece):
                        yield chunk
                ending = Ending(code=0) if reply.is_full else await deadline.wait(program.ending())
                for chunk in reply.end():
                    yield chunk
            finally:
                await program.end()
        self._check(ending, reply, program, prompt)
        finish: Finish = "length" if reply.is_full else "stop"
        yield Chunk(usage=reply.usage(prompt), finish=finish)

    async def close(self) -> None:
        """Nothing stays open between requests."""

    def _reply(self, request: Request) -> Reply:
        limits = [most for most in (request.max_tokens, self._options.get("max_tokens")) if most is not None]
        most = min(limits, default=None)
        if not self._program.events:
            return PlainReply(self._secrets, most)
        return EventReply(READERS[self._program.events](), self._secrets, most)

    async def _start(self, words: list[str], cwd: Path) -> RunningProgram:
        command = [self._path, *words]
        try:
            if self._bwrap:
                command = self._in_sandbox(command, cwd)
            return await RunningProgram.start(command, cwd=cwd, environ=self._environ)
        except OSError as error:
            raise ModelError("missing", f"{self.name} could not be started: {error.strerror}") from None

    def _in_sandbox(self, command: list[str], cwd: Path) -> list[str]:
        readable = dict.fromkeys((*own_files(self._path, self._environ), *self._readable))
        view = View(
            cwd=cwd, home=self._environ.get("HOME", ""), readable=tuple(readable),
            state=tuple(self._place_of(state) for state in self._program.state),
            network=self._options.get("network") is True,
        )  # fmt: skip
        return sandbox_words(self._bwrap, view, command)

    def _place_of(self, state: State) -> str:
        home = self._environ.get("HOME", "/")
        return (state.variable and self._environ.get(state.variable)) or state.path.replace("~", home, 1)

    def _check(self, ending: Ending, reply: Reply, program: RunningProgram, prompt: str) -> None:
        """Raise `ModelError` where the program failed or wrote no answer.

        Its failure is not retried: a program may have changed something, and agents retry what can be retried.
        """
        why = ""
        if ending.problem:
            raise ModelError("missing", f"{self.name} could not be run: {ending.problem}", hint=self._program.install)
        if ending.signal is not None:
            why = f"{self.name} was ended by signal {signal_name(ending.signal)}"
        elif ending.code:
            why = f"{self.name} ended with exit code {ending.code}"
        elif reply.error:
            why = f"{self.name} failed"
        if why:
            said = clean_excerpt(reply.error, self._secrets) if reply.error else self._last_lines(program.complaint)
            raise ModelError("refused", f"{why}: {said}" if said else why, usage=reply.usage(prompt))
        if reply.is_blank:
            said = self._last_lines(program.complaint)
            message = f"{self.name} wrote no answer{f': {said}' if said else ''}"
            raise ModelError("empty_answer", message, usage=reply.usage(prompt))

    def _last_lines(self, complaint: str) -> str:
        lines = [line for line in self._secrets.redact(complaint).splitlines() if line.strip()]
        return clean_excerpt(" | ".join(lines[-LAST_LINES:])[-LAST_CHARACTERS:], self._secrets)


class _Deadline:
    """The time for one call, of which there may be no end."""

    def __init__(self, *seconds: float | None) -> None:
        self._seconds = min((limit for limit in seconds if limit is not None), default=None)
        self._until = None if self._seconds is None else asyncio.get_running_loop().time() + self._seconds

    async def wait(self, result: Awaitable[T]) -> T:
        """The result. Raises `ModelError` where it comes too late."""
        try:
            async with asyncio.timeout_at(self._until):
                return await result
        except TimeoutError:
            limit = format_duration(self._seconds or 0)
            raise ModelError("timeout", f"the program did not finish within {limit}") from None


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; the number of one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)

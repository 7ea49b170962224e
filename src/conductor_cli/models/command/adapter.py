"""A program as a model: one call is one process.

The messages of a request as the one text that a program reads. Pure.

What has arrived of one program's answer, as chunks. Pure; a program is trusted as little as a server.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import signal
from collections.abc import AsyncGenerator, Awaitable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from conductor_cli.core.chat import Chunk, Finish, Message, Request
from conductor_cli.core.errors import ModelError
from conductor_cli.core.formatting import format_duration
from conductor_cli.core.pool import Worker
from conductor_cli.core.redact import Secrets, StreamRedactor
from conductor_cli.core.terminal_text import is_blank, one_line
from conductor_cli.core.usage import Usage
from conductor_cli.models.api_errors import clean_excerpt
from conductor_cli.models.base import NO_FEATURES, Features, check_features
from conductor_cli.models.command.events import READERS, EventReader
from conductor_cli.models.command.process import (
    RunningProgram,
    View,
    check_shown,
    environment_of,
    find_program,
    find_sandbox,
    own_files,
    sandbox_words,
    working_directory,
)
from conductor_cli.models.command.programs import PROGRAMS, PROMPT, State, command_of
from conductor_cli.models.stream_decoder import tokens
from conductor_cli.programs.guarded import Ending, can_run_programs

LONGEST_ARGUMENT: Final = 128 * 1024 - 1
"""Bytes of one argument on Linux (MAX_ARG_STRLEN, with its final zero byte)."""

_SPEAKERS: Final = {"user": "User", "assistant": "Assistant"}


def prompt_text(messages: Sequence[Message]) -> str:
    """System texts, a blank line, and the user's text; a longer conversation has a line with the speaker before each.

    A single message, which is what a step's worker is sent, is the text as it is.
    """
    system = [message.content for message in messages if message.role == "system"]
    turns = [message for message in messages if message.role != "system"]
    if len(turns) == 1:
        return "\n\n".join([*system, turns[0].content])
    said = [f"{_SPEAKERS[turn.role]}:\n{turn.content}" for turn in turns]
    return "\n\n".join([*system, *said])


def fill_in(words: Sequence[str], prompt: str) -> tuple[list[str], bytes]:
    """The words of a command with the prompt in place, and what goes to standard input. Raises `ModelError`."""
    data = prompt.encode("utf-8", "replace")
    if not any(PROMPT in word for word in words):
        return list(words), data
    # An argument ends at a zero byte.
    filled = [word.replace(PROMPT, prompt.replace("\0", "\N{REPLACEMENT CHARACTER}")) for word in words]
    if any(len(word.encode("utf-8", "replace")) > LONGEST_ARGUMENT for word in filled):
        message = f"the prompt has {len(data):,} bytes, and an argument of a program holds {LONGEST_ARGUMENT:,}"
        raise ModelError("length", message, hint=f"leave {PROMPT} out, so that it reads standard input")
    return filled, b""


TOKEN_BYTES: Final = 16
"""Bytes of an answer for each token that was asked for; a token of any script has fewer."""

MOST_TEXT: Final = 4 << 20
"""Bytes of an answer, however many tokens were asked for."""

MOST_EVENTS: Final = 64 << 20
"""Bytes of all events of one call: an agent also writes what its tools return."""

MOST_NOTES: Final = 20
"""Notes of one call; further ones are left out."""

LONGEST_NOTE: Final = 300
"""Characters of one."""

MOST_LINE: Final = 8 << 20
"""Bytes of one event."""


class Reply(Protocol):
    """Reads standard output."""

    @property
    def is_full(self) -> bool:
        """Whether no more text is wanted."""
        ...

    @property
    def is_blank(self) -> bool:
        """Whether there was no answer."""
        ...

    @property
    def error(self) -> str:
        """Why an agent gave up, in its own words; empty if it did not."""
        ...

    def feed(self, data: bytes) -> Iterator[Chunk]:
        """What a piece of output adds. Raises `ModelError`."""
        ...

    def end(self) -> Iterator[Chunk]:
        """What was held back, now that nothing follows. Raises `ModelError`."""
        ...

    def usage(self, prompt: str) -> Usage:
        """What the call used, estimated where the program does not say it."""
        ...


class _Text:
    """The text and the thinking of a reply: redacted, bounded, counted."""

    def __init__(self, secrets: Secrets, most_tokens: int | None) -> None:
        self.is_full = False
        self.is_blank = True
        self._room = MOST_TEXT if most_tokens is None else min(MOST_TEXT, most_tokens * TOKEN_BYTES)
        self._said, self._thought = StreamRedactor(secrets), StreamRedactor(secrets)
        self._written = self._reasoned = 0

    def say(self, text: str) -> Iterator[Chunk]:
        """A piece of the answer, as much of it as is wanted."""
        data = text.encode("utf-8", "replace")
        if len(data) > self._room:
            text, self.is_full = data[: self._room].decode("utf-8", "ignore"), True
        self._room -= min(self._room, len(data))
        yield from self._shown(self._said.feed(text))

    def think(self, text: str) -> Iterator[Chunk]:
        """A piece of what is no answer."""
        self._reasoned += len(text)
        if shown := self._thought.feed(text):
            yield Chunk(thinking=shown)

    def end(self) -> Iterator[Chunk]:
        if rest := self._thought.close():
            yield Chunk(thinking=rest)
        yield from self._shown(self._said.close())

    def estimated(self, prompt: str) -> Usage:
        """The tokens by length; money is not known."""
        thought = tokens(self._reasoned)
        return Usage(
            tokens_in=tokens(len(prompt)), tokens_out=tokens(self._written) + thought, tokens_reasoning=thought, calls=1
        )

    def _shown(self, text: str) -> Iterator[Chunk]:
        if text:
            self._written += len(text)
            self.is_blank = self.is_blank and is_blank(text)
            yield Chunk(text=text)


class PlainReply:
    """Standard output is the answer, without the newline at its end."""

    error = ""

    def __init__(self, secrets: Secrets, most_tokens: int | None) -> None:
        self._text = _Text(secrets, most_tokens)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._newlines = ""

    @property
    def is_full(self) -> bool:
        return self._text.is_full

    @property
    def is_blank(self) -> bool:
        return self._text.is_blank

    def feed(self, data: bytes) -> Iterator[Chunk]:
        yield from self._say(self._decoder.decode(data))

    def end(self) -> Iterator[Chunk]:
        yield from self._say(self._decoder.decode(b"", final=True))
        yield from self._text.end()

    def usage(self, prompt: str) -> Usage:
        return self._text.estimated(prompt)

    def _say(self, text: str) -> Iterator[Chunk]:
        text = self._newlines + text
        said = text.rstrip("\r\n")
        self._newlines = text[len(said) :][-MOST_LINE:]
        yield from self._text.say(said)


class EventReply:
    """Standard output has an event of JSON in each line. The last message is the answer, those before it are thinking.

    So a message is shown only when nothing follows it.
    """

    def __init__(self, reader: EventReader, secrets: Secrets, most_tokens: int | None) -> None:
        self.error = ""
        self._reader = reader
        self._text = _Text(secrets, most_tokens)
        self._secrets = secrets
        self._notes = 0
        self._line = bytearray()
        self._read = 0
        self._message = ""
        self._is_open = False
        self._usage: Usage | None = None

    @property
    def is_full(self) -> bool:
        return self._text.is_full

    @property
    def is_blank(self) -> bool:
        return self._text.is_blank

    def feed(self, data: bytes) -> Iterator[Chunk]:
        self._read += len(data)
        if self._read > MOST_EVENTS:
            raise ModelError("refused", f"its events have more than {MOST_EVENTS >> 20} MiB")
        *complete, rest = data.split(b"\n")
        for piece in complete:
            self._line += piece
            yield from self._event(bytes(self._line))
            self._line.clear()
        self._line += rest
        if len(self._line) > MOST_LINE:
            raise ModelError("refused", f"one of its events has more than {MOST_LINE >> 20} MiB")

    def end(self) -> Iterator[Chunk]:
        yield from self._event(bytes(self._line))
        yield from self._text.say(self._message)
        yield from self._text.end()

    def usage(self, prompt: str) -> Usage:
        """As the program counted; what it did not count is estimated."""
        estimated, stated = self._text.estimated(prompt), self._usage
        if stated is None:
            return estimated
        if not stated.tokens_in:
            stated = replace(stated, tokens_in=estimated.tokens_in)
        if not stated.tokens_out:
            stated = replace(stated, tokens_out=estimated.tokens_out, tokens_reasoning=estimated.tokens_reasoning)
        return stated

    def _event(self, line: bytes) -> Iterator[Chunk]:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):  # programs also write warnings
            return
        if not isinstance(event, dict):
            return
        piece = self._reader.read(event)
        self.error = piece.error or ("" if piece.text else self.error)
        self._usage = piece.usage or self._usage
        if piece.note and self._notes < MOST_NOTES:
            self._notes += 1
            yield Chunk(note=one_line(self._secrets.redact(piece.note))[:LONGEST_NOTE])
        # What it says before it does something comes before that.
        if piece.text and piece.text != self._message:
            if self._is_open and piece.open:
                self._message += piece.text
            else:
                yield from self._set_aside()
                self._message = piece.text
        if piece.thinking:
            yield from self._set_aside()
            yield from self._text.think(piece.thinking)
        self._is_open = piece.open

    def _set_aside(self) -> Iterator[Chunk]:
        """Show the message before, which was not the answer, as thinking."""
        if self._message:
            yield from self._text.think(self._message.rstrip() + "\n")
            self._message = ""


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

"""A program as a model: one call is one process. It is trusted as little as a server."""

from __future__ import annotations

import asyncio
import codecs
import json
import signal
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.chat import Chunk, Message, Request
from conductor_cli.core.errors import ModelError
from conductor_cli.core.formatting import format_duration
from conductor_cli.core.pool import Worker
from conductor_cli.core.redact import Secrets, StreamRedactor
from conductor_cli.core.terminal_text import is_blank, one_line
from conductor_cli.core.usage import Usage
from conductor_cli.models.api_errors import clean_excerpt
from conductor_cli.models.base import NO_FEATURES, Features, check_features
from conductor_cli.models.command import process
from conductor_cli.models.command.events import READERS, EventReader
from conductor_cli.models.command.programs import PROGRAMS, PROMPT, command_of
from conductor_cli.models.stream_decoder import tokens
from conductor_cli.programs.guarded_program import GuardedProgram, ProgramEnding, can_run_programs

# Bytes of one argument on Linux (MAX_ARG_STRLEN, with its final zero byte)
MAX_ARGUMENT: Final = 128 * 1024 - 1
# Bytes of an answer for each token that was asked for; a token of any script has fewer
TOKEN_BYTES: Final = 16
MAX_OUTPUT: Final = 4 << 20  # bytes of an answer, however many tokens were asked for
# Bytes of all events of one call: an agent also writes what its tools return
MAX_EVENTS: Final = 64 << 20
MAX_EVENT_BYTES: Final = 8 << 20  # bytes of one event
MAX_NOTES: Final = 20  # notes of one call; further ones are left out
_SPEAKERS: Final = {"user": "User", "assistant": "Assistant"}


def prompt_text(messages: Sequence[Message]) -> str:
    """Return system texts, a blank line, and the user's text.

    In a longer conversation each turn after its speaker.

    A single message, which is what a step's worker is sent, is the text as it is.
    """
    system = [message.content for message in messages if message.role == "system"]
    turns = [message for message in messages if message.role != "system"]
    if len(turns) == 1:
        return "\n\n".join([*system, turns[0].content])
    return "\n\n".join([*system, *(f"{_SPEAKERS[turn.role]}:\n{turn.content}" for turn in turns)])


class PlainReply:
    """What has arrived of one answer: redacted, bounded, counted.

    Standard output without the newline at its end.

    `is_full` is whether no more text is wanted, `is_blank` whether there was no answer, `error` why
    an agent gave up.
    """

    def __init__(self, secrets: Secrets, most_tokens: int | None) -> None:
        self.is_full = False
        self.is_blank = True
        self.error = ""
        self._room = (
            MAX_OUTPUT if most_tokens is None else min(MAX_OUTPUT, most_tokens * TOKEN_BYTES)
        )
        self._said = StreamRedactor(secrets)
        self._thought = StreamRedactor(secrets)
        self._written = 0
        self._reasoned = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._newlines = ""

    def feed(self, data: bytes, *, final: bool = False) -> Iterator[Chunk]:
        """Yield what a piece of output adds. Raises `ModelError`."""
        text = self._newlines + self._decoder.decode(data, final)
        said = text.rstrip("\r\n")
        self._newlines = text[len(said) :][-MAX_EVENT_BYTES:]
        yield from self._say(said)

    def end(self) -> Iterator[Chunk]:
        """Yield what was held back, now that nothing follows. Raises `ModelError`."""
        yield from self.feed(b"", final=True)
        yield from self._shown(self._said.close(), self._thought.close())

    def usage(self, prompt: str) -> Usage:
        """Return what the call used: the tokens by length; money is not known."""
        read = tokens(len(prompt))
        thought = tokens(self._reasoned)
        written = tokens(self._written) + thought
        return Usage(tokens_in=read, tokens_out=written, tokens_reasoning=thought, calls=1)

    def _say(self, text: str) -> Iterator[Chunk]:
        data = text.encode("utf-8", "replace")
        if len(data) > self._room:
            text = data[: self._room].decode("utf-8", "ignore")
            self.is_full = True
        self._room -= min(self._room, len(data))
        yield from self._shown(self._said.feed(text))

    def _think(self, text: str) -> Iterator[Chunk]:
        self._reasoned += len(text)
        yield from self._shown(thinking=self._thought.feed(text))

    def _shown(self, text: str = "", thinking: str = "") -> Iterator[Chunk]:
        self._written += len(text)
        self.is_blank = self.is_blank and is_blank(text)
        if text or thinking:
            yield Chunk(text=text, thinking=thinking)


class EventReply(PlainReply):
    """Standard output has an event of JSON in each line.

    The last message is the answer, those before it are thinking.

    So a message is shown only when nothing follows it.
    """

    def __init__(self, read: EventReader, secrets: Secrets, most_tokens: int | None) -> None:
        super().__init__(secrets, most_tokens)
        self._read_event = read
        self._secrets = secrets
        self._notes = 0
        self._line = bytearray()
        self._size = 0
        self._message = ""
        self._is_open = False
        self._stated: Usage | None = None

    def feed(self, data: bytes, *, final: bool = False) -> Iterator[Chunk]:
        self._size += len(data)
        if self._size > MAX_EVENTS:
            raise ModelError("refused", f"its events have more than {MAX_EVENTS >> 20} MiB")
        *complete, rest = data.split(b"\n")
        for piece in complete if not final else (*complete, rest):
            self._line += piece
            yield from self._event(bytes(self._line))
            self._line.clear()
        self._line += b"" if final else rest
        if len(self._line) > MAX_EVENT_BYTES:
            raise ModelError(
                "refused", f"one of its events has more than {MAX_EVENT_BYTES >> 20} MiB"
            )

    def end(self) -> Iterator[Chunk]:
        yield from self.feed(b"", final=True)
        yield from self._say(self._message)
        yield from self._shown(self._said.close(), self._thought.close())

    def usage(self, prompt: str) -> Usage:
        """Return the usage as the program counted it; what it did not count is estimated."""
        estimated = super().usage(prompt)
        stated = self._stated
        if stated is None:
            return estimated
        if not stated.tokens_in:
            stated = replace(stated, tokens_in=estimated.tokens_in)
        if not stated.tokens_out:
            stated = replace(
                stated, tokens_out=estimated.tokens_out, tokens_reasoning=estimated.tokens_reasoning
            )
        return stated

    def _event(self, line: bytes) -> Iterator[Chunk]:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):  # programs also write warnings
            return
        if not isinstance(event, dict):
            return
        found = self._read_event(event)
        self.error = found.error or ("" if found.text else self.error)
        self._stated = found.usage or self._stated
        if found.note and self._notes < MAX_NOTES:
            self._notes += 1
            yield Chunk(note=one_line(self._secrets.redact(found.note))[:300])
        # What it says before it does something comes before that.
        if found.text and found.text != self._message:
            if self._is_open and found.open:
                self._message += found.text
            else:
                yield from self._set_aside()
                self._message = found.text
        if found.thinking:
            yield from self._set_aside()
            yield from self._think(found.thinking)
        self._is_open = found.open

    def _set_aside(self) -> Iterator[Chunk]:
        if self._message:
            yield from self._think(self._message.rstrip() + "\n")
            self._message = ""


class ProgramModel:
    """A program that is started for each request and ended with all that it has started."""

    features: Features = NO_FEATURES

    def __init__(self, worker: Worker, *, environ: Mapping[str, str], secrets: Secrets) -> None:
        """Find the program and, if it is wanted, its sandbox; nothing is started.

        Raises `ModelError`.
        """
        if not can_run_programs():
            raise ModelError(
                "missing", "programs as workers need Linux or macOS", hint="use WSL on Windows"
            )
        self._program = PROGRAMS[worker.kind]
        self._options: Mapping[str, Any] = worker.options
        self._secrets = secrets
        self._words = command_of(worker)
        self.name = Path(self._words[0]).name
        self._environ = process.environment_of(
            environ, (*self._program.env, *(self._options.get("env") or ()))
        )
        if self._options.get("sandbox"):
            self._environ.pop("TMPDIR", None)  # there it has a /tmp of its own
        cwd = str(self._options.get("cwd") or "")
        self._path = process.find_program(self._words[0], self._environ, cwd, self._program.install)
        self._bwrap = process.find_sandbox(environ) if self._options.get("sandbox") else ""
        self._readable = [
            str(Path(path).expanduser().resolve()) for path in self._options.get("read") or ()
        ]
        self._network: tuple[str, ...] | None = None
        if self._bwrap and self._options.get("network"):
            self._network = process.own_network(self._bwrap, environ)
        if self._bwrap:
            process.check_shown(
                [*([str(Path(cwd).expanduser())] if cwd else []), *self._readable], environ
            )

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """Run the program on the prompt. Raises `ModelError`."""
        check_features(self.name, self.features, request)
        prompt = prompt_text(request.messages)
        words = list(self._words[1:])
        data = prompt.encode("utf-8", "replace")
        if any(PROMPT in word for word in words):
            # An argument ends at a zero byte.
            words = [
                word.replace(PROMPT, prompt.replace("\0", "\N{REPLACEMENT CHARACTER}"))
                for word in words
            ]
            if any(len(word.encode("utf-8", "replace")) > MAX_ARGUMENT for word in words):
                message = (
                    f"the prompt has {len(data):,} bytes, and an argument of a program "
                    "holds "
                    f"{MAX_ARGUMENT:,}"
                )
                raise ModelError(
                    "length", message, hint=f"leave {PROMPT} out, so that it reads standard input"
                )
            data = b""
        most = min(
            (n for n in (request.max_tokens, self._options.get("max_tokens")) if n is not None),
            default=None,
        )
        reply = PlainReply(self._secrets, most)
        if self._program.events:
            reply = EventReply(READERS[self._program.events](), self._secrets, most)
        limits = [
            limit for limit in (request.deadline, self._options.get("seconds")) if limit is not None
        ]
        until = asyncio.get_running_loop().time() + min(limits) if limits else None
        given = str(self._options.get("cwd") or "")
        async with process.working_directory(given) as cwd, process.working_directory("") as copies:
            program = await self._start(words, cwd, copies)
            try:
                program.feed(data)
                while not reply.is_full:
                    async with asyncio.timeout_at(until):
                        piece = await program.read()
                    if not piece:
                        break
                    for chunk in reply.feed(piece):
                        yield chunk
                async with asyncio.timeout_at(until):
                    ending = ProgramEnding(code=0) if reply.is_full else await program.ending()
                for chunk in reply.end():
                    yield chunk
            except TimeoutError:
                message = f"the program did not finish within {format_duration(min(limits))}"
                raise ModelError("timeout", message) from None
            finally:
                await program.end()
        self._check(ending, reply, program.complaint, prompt)
        yield Chunk(usage=reply.usage(prompt), finish="length" if reply.is_full else "stop")

    async def close(self) -> None:
        """Nothing stays open between requests."""

    async def _start(self, words: list[str], cwd: Path, copies: Path) -> GuardedProgram:
        command = [self._path, *words]
        try:
            if self._bwrap:
                home = self._environ.get("HOME", "")
                readable = dict.fromkeys(
                    (*process.own_files(self._path, self._environ), *self._readable)
                )
                shown = process.shown_words(
                    readable, self._program.state, home, self._environ, copies
                )
                command = process.sandbox_words(
                    self._bwrap, command, cwd=cwd, home=home, shown=shown, network=self._network
                )
            return await GuardedProgram.start(command, cwd=cwd, environ=self._environ)
        except OSError as error:
            raise ModelError(
                "missing", f"{self.name} could not be started: {error.strerror}"
            ) from None

    def _check(self, ending: ProgramEnding, reply: PlainReply, complaint: str, prompt: str) -> None:
        """Raise `ModelError` where the program failed or wrote no answer.

        Its failure is not retried: a program may have changed something, and agents retry what can
        be retried.
        """
        if ending.problem:
            raise ModelError(
                "missing",
                f"{self.name} could not be run: {ending.problem}",
                hint=self._program.install,
            )
        lines = [line for line in self._secrets.redact(complaint).splitlines() if line.strip()]
        said = clean_excerpt(reply.error or " | ".join(lines[-5:])[-300:], self._secrets)
        said = f": {said}" if said else ""
        why = ""
        if ending.signal is not None:
            known = ending.signal in set(signal.Signals)
            why = (
                "was ended by signal "
                f"{signal.Signals(ending.signal).name if known else ending.signal}"
            )
        elif ending.code:
            why = f"ended with exit code {ending.code}"
        elif reply.error:
            why = "failed"
        if why:
            raise ModelError("refused", f"{self.name} {why}{said}", usage=reply.usage(prompt))
        if reply.is_blank:
            raise ModelError(
                "empty_answer", f"{self.name} wrote no answer{said}", usage=reply.usage(prompt)
            )

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

from conductor_cli.core.chat import Chunk, Finish, Message, Request
from conductor_cli.core.errors import ModelError
from conductor_cli.core.estimate import byte_length, tokens_in_bytes
from conductor_cli.core.formatting import format_duration
from conductor_cli.core.pool import Worker
from conductor_cli.core.redact import Secrets, StreamRedactor
from conductor_cli.core.terminal_text import is_blank, one_line
from conductor_cli.core.usage import Usage
from conductor_cli.models.api_errors import clean_excerpt
from conductor_cli.models.base import NO_FEATURES, Features, check_features, lower_limit
from conductor_cli.models.command import process
from conductor_cli.models.command.events import READERS, EventReader
from conductor_cli.models.command.programs import PROGRAMS, PROMPT, command_of
from conductor_cli.programs.guarded_program import GuardedProgram, ProgramEnding, can_run_programs
from conductor_cli.programs.network_environment import CERTIFICATES, describe_withheld

# Bytes of one argument on Linux (MAX_ARG_STRLEN, with its final zero byte)
MAX_ARGUMENT_BYTES: Final = 128 * 1024 - 1
# Bytes of an answer for each token that was asked for; a token of any script has fewer
TOKEN_BYTES: Final = 16
MAX_OUTPUT_BYTES: Final = 4 << 20  # of an answer, however many tokens were asked for
# Bytes of all events of one call: an agent also writes what its tools return
MAX_EVENTS_BYTES: Final = 64 << 20
MAX_EVENT_BYTES: Final = 8 << 20  # bytes of one event
MAX_NOTES: Final = 20  # notes of one call; further ones are left out
_SPEAKERS: Final = {"user": "User", "assistant": "Assistant"}


def prompt_text(messages: Sequence[Message]) -> str:
    """Return system texts, a blank line, and the user's text.

    A single message, which is what a step's worker is sent, is the text as it is. In a longer
    conversation each turn comes after its speaker.
    """
    texts = []
    turns = []
    for message in messages:
        if message.role == "system":
            texts.append(message.content)
        else:
            turns.append(message)
    if len(turns) == 1:
        texts.append(turns[0].content)
    else:
        texts += [f"{_SPEAKERS[turn.role]}:\n{turn.content}" for turn in turns]
    return "\n\n".join(texts)


class PlainReply:
    """What has arrived of one answer: redacted, bounded, counted.

    It is standard output without the newline at its end. `is_full` is whether no more text is
    wanted, `is_blank` whether there was no answer, `error` why an agent gave up.
    """

    def __init__(self, secrets: Secrets, most_tokens: int | None) -> None:
        self.is_full = False
        self.is_blank = True
        self.error = ""
        self._room = MAX_OUTPUT_BYTES
        if most_tokens is not None:
            self._room = min(MAX_OUTPUT_BYTES, most_tokens * TOKEN_BYTES)
        self._text = StreamRedactor(secrets)
        self._thinking = StreamRedactor(secrets)
        # Bytes of the answer, and of thinking
        self._said = 0
        self._thought = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._newlines = ""

    def feed(self, piece: bytes, *, final: bool = False) -> Iterator[Chunk]:
        """Yield what a piece of output adds. Raises `ModelError`."""
        output = self._newlines + self._decoder.decode(piece, final)
        text = output.rstrip("\r\n")
        self._newlines = output[len(text) :][-MAX_EVENT_BYTES:]
        yield from self._add_text(text)

    def end(self) -> Iterator[Chunk]:
        """Yield what was held back, now that nothing follows. Raises `ModelError`."""
        yield from self.feed(b"", final=True)
        yield from self._chunks(self._text.close(), self._thinking.close())

    def usage(self, prompt: str) -> Usage:
        """Return what the call used: the tokens by length; money is not known."""
        read = tokens_in_bytes(byte_length(prompt))
        thought = tokens_in_bytes(self._thought)
        written = tokens_in_bytes(self._said) + thought
        return Usage(tokens_in=read, tokens_out=written, tokens_reasoning=thought, calls=1)

    def _add_text(self, text: str) -> Iterator[Chunk]:
        encoded = text.encode("utf-8", "replace")
        if len(encoded) > self._room:
            text = encoded[: self._room].decode("utf-8", "ignore")
            self.is_full = True
        self._room -= min(self._room, len(encoded))
        yield from self._chunks(self._text.feed(text))

    def _add_thinking(self, text: str) -> Iterator[Chunk]:
        self._thought += byte_length(text)
        yield from self._chunks(thinking=self._thinking.feed(text))

    def _chunks(self, text: str = "", thinking: str = "") -> Iterator[Chunk]:
        self._said += byte_length(text)
        self.is_blank = self.is_blank and is_blank(text)
        if text or thinking:
            yield Chunk(text=text, thinking=thinking)


class EventReply(PlainReply):
    """Standard output has an event of JSON in each line.

    The last message is the answer, those before it are thinking. So a message is shown only when
    nothing follows it.
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

    def feed(self, piece: bytes, *, final: bool = False) -> Iterator[Chunk]:
        self._size += len(piece)
        if self._size > MAX_EVENTS_BYTES:
            raise ModelError("refused", f"its events have more than {MAX_EVENTS_BYTES >> 20} MiB")
        lines = piece.split(b"\n")
        unfinished = b""
        if not final:
            unfinished = lines.pop()
        for line in lines:
            self._line += line
            yield from self._read_line(bytes(self._line))
            self._line.clear()
        self._line += unfinished
        if len(self._line) > MAX_EVENT_BYTES:
            problem = f"one of its events has more than {MAX_EVENT_BYTES >> 20} MiB"
            raise ModelError("refused", problem)

    def end(self) -> Iterator[Chunk]:
        yield from self.feed(b"", final=True)
        yield from self._add_text(self._message)
        yield from self._chunks(self._text.close(), self._thinking.close())

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

    def _read_line(self, line: bytes) -> Iterator[Chunk]:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):  # programs also write warnings
            return
        if not isinstance(event, dict):
            return
        output = self._read_event(event)
        if output.error or output.text:
            self.error = output.error
        if output.usage:
            self._stated = output.usage
        if output.note and self._notes < MAX_NOTES:
            self._notes += 1
            yield Chunk(note=one_line(self._secrets.redact(output.note))[:300])
        # What it says before it does something comes before that.
        if output.text and output.text != self._message:
            if self._is_open and output.open:
                self._message += output.text
            else:
                yield from self._message_as_thinking()
                self._message = output.text
        if output.thinking:
            yield from self._message_as_thinking()
            yield from self._add_thinking(output.thinking)
        self._is_open = output.open

    def _message_as_thinking(self) -> Iterator[Chunk]:
        """Yield the last message as thinking, because it was not the answer."""
        if self._message:
            yield from self._add_thinking(self._message.rstrip() + "\n")
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
        self._withheld = describe_withheld(environ, self._environ)
        is_sandboxed = bool(self._options.get("sandbox"))
        if is_sandboxed:
            self._environ.pop("TMPDIR", None)  # there it has a /tmp of its own
            for name in CERTIFICATES:  # files that it would not see there
                self._environ.pop(name, None)
        cwd = str(self._options.get("cwd") or "")
        self._path = process.find_program(self._words[0], self._environ, cwd, self._program.install)
        self._readable = []
        for path in self._options.get("read") or ():
            self._readable.append(str(Path(path).expanduser().resolve()))
        self._bwrap = ""
        self._network: tuple[str, ...] | None = None
        if is_sandboxed:
            self._find_sandbox(cwd, environ)

    def _find_sandbox(self, cwd: str, environ: Mapping[str, str]) -> None:
        """Find bubblewrap, and check what the program is to see in it. Raises `ModelError`."""
        self._bwrap = process.find_sandbox(environ)
        if self._options.get("network"):
            self._network = process.own_network(self._bwrap, environ)
        shown = list(self._readable)
        if cwd:
            shown.insert(0, str(Path(cwd).expanduser()))
        process.check_shown(shown, environ)

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """Run the program on the prompt. Raises `ModelError`."""
        check_features(self.name, self.features, request)
        if request.sampling:
            names = ", ".join(sorted(request.sampling))
            yield Chunk(note=f"a program that is run as a worker takes no {names}")
        prompt = prompt_text(request.messages)
        words, stdin = _place_prompt(prompt, self._words[1:])
        reply = self._new_reply(request)
        seconds = lower_limit(request.deadline, self._options.get("seconds"))
        until: float | None = None
        if seconds is not None:
            until = asyncio.get_running_loop().time() + seconds
        directory = str(self._options.get("cwd") or "")
        async with (
            process.working_directory(directory) as cwd,
            process.working_directory("") as copies,
        ):
            program = await self._start(words, cwd, copies)
            try:
                program.feed(stdin)
                while not reply.is_full:
                    async with asyncio.timeout_at(until):
                        piece = await program.read()
                    if not piece:
                        break
                    for chunk in reply.feed(piece):
                        yield chunk
                ending = ProgramEnding(code=0)
                if not reply.is_full:
                    async with asyncio.timeout_at(until):
                        ending = await program.ending()
                for chunk in reply.end():
                    yield chunk
            except TimeoutError:
                message = f"the program did not finish within {format_duration(seconds or 0)}"
                raise ModelError("timeout", message) from None
            finally:
                await program.end()
        self._check(ending, reply, program.complaint, prompt)
        finish: Finish = "length" if reply.is_full else "stop"
        yield Chunk(usage=reply.usage(prompt), finish=finish)

    async def close(self) -> None:
        """Do nothing: nothing stays open between requests."""

    def _new_reply(self, request: Request) -> PlainReply:
        most_tokens = lower_limit(request.max_tokens, self._options.get("max_tokens"))
        if not self._program.events:
            return PlainReply(self._secrets, most_tokens)
        read = READERS[self._program.events]()
        return EventReply(read, self._secrets, most_tokens)

    async def _start(self, words: list[str], cwd: Path, copies: Path) -> GuardedProgram:
        command = [self._path, *words]
        try:
            if self._bwrap:
                home = self._environ.get("HOME", "")
                own_files = process.own_files(self._path, self._environ)
                readable = dict.fromkeys((*own_files, *self._readable))
                shown = process.shown_words(
                    readable, self._program.state, home, self._environ, copies
                )
                command = process.sandbox_words(
                    self._bwrap, command, cwd=cwd, home=home, shown=shown, network=self._network
                )
            return await GuardedProgram.start(command, cwd=cwd, environ=self._environ)
        except OSError as error:
            problem = f"{self.name} could not be started: {error.strerror}"
            raise ModelError("missing", problem) from None

    def _check(self, ending: ProgramEnding, reply: PlainReply, complaint: str, prompt: str) -> None:
        """Raise `ModelError` where the program failed or wrote no answer.

        Its failure is not retried: a program may have changed something, and agents retry what can
        be retried.
        """
        if ending.problem:
            problem = f"{self.name} could not be run: {ending.problem}"
            raise ModelError("missing", problem, hint=self._program.install)
        lines = [line for line in self._secrets.redact(complaint).splitlines() if line.strip()]
        last_words = reply.error or " | ".join(lines[-5:])[-300:]
        excerpt = clean_excerpt(last_words, self._secrets)
        if excerpt:
            excerpt = f": {excerpt}"
        why = _why_it_failed(ending, reply)
        if why:
            problem = f"{self.name} {why}{excerpt}"
            raise ModelError("refused", problem, hint=self._withheld, usage=reply.usage(prompt))
        if reply.is_blank:
            problem = f"{self.name} wrote no answer{excerpt}"
            raise ModelError("empty_answer", problem, usage=reply.usage(prompt))


def _place_prompt(prompt: str, words: Sequence[str]) -> tuple[list[str], bytes]:
    """Return the words of a program with the prompt in them, and what it reads.

    It reads the prompt unless its words have a place for that. Raises `ModelError` for a prompt
    that an argument cannot hold. One that would be an option has a blank before it.
    """
    encoded = prompt.encode("utf-8", "replace")
    if not any(PROMPT in word for word in words):
        return list(words), encoded
    # An argument ends at a zero byte.
    argument = prompt.replace("\0", "\N{REPLACEMENT CHARACTER}")
    words = [_place(argument, word) for word in words]
    if any(len(word.encode("utf-8", "replace")) > MAX_ARGUMENT_BYTES for word in words):
        problem = (
            f"the prompt has {len(encoded):,} bytes, and an argument of a program holds "
            f"{MAX_ARGUMENT_BYTES:,}"
        )
        hint = f"leave {PROMPT} out, so that it reads standard input"
        raise ModelError("length", problem, hint=hint)
    return words, b""


def _place(argument: str, word: str) -> str:
    """Return a word with the prompt in its place; whoever wrote the prompt gives no options."""
    placed = word.replace(PROMPT, argument)
    if placed.startswith("-") and not word.startswith("-"):
        return f" {placed}"
    return placed


def _why_it_failed(ending: ProgramEnding, reply: PlainReply) -> str:
    """Return how a program failed, empty if it did not."""
    if ending.signal is not None:
        return f"was ended by signal {_signal_name(ending.signal)}"
    if ending.code:
        return f"ended with exit code {ending.code}"
    if reply.error:
        return "failed"
    return ""


def _signal_name(number: int) -> str:
    if number not in set(signal.Signals):
        return str(number)
    return signal.Signals(number).name

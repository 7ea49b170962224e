"""Decodes one reply in the form of OpenAI's chat completions, while it arrives.

Pure; no server is trusted.

Thinking comes as `reasoning_content`, as `reasoning`, each a text or an object with one, as parts
of a content list, or between `<think>` and `</think>`. A piece of a tool call says by `index` which
call it belongs to, and the first piece of a call has its id and name. Servers depart from that,
each in its own way, and are understood: Ollama gave every call the index 0, Google's server gives
none; some send no id, or another one with every piece; some send whole calls, or arguments as an
object; some send arguments again, each time with what has come before or once more at the end;
OpenAI's models put calls of several tools into one of a tool that nobody offered.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import chain
from typing import Any, Final

from conductor_cli.core.chat import (
    CLOSE,
    Chunk,
    Finish,
    HalfCharacters,
    Request,
    ThinkingSplitter,
    ToolCallDelta,
    closes_alone,
)
from conductor_cli.core.errors import ModelError
from conductor_cli.core.estimate import byte_length, conversation_tokens, tokens_in_bytes
from conductor_cli.core.redact import Secrets, StreamRedactor
from conductor_cli.core.terminal_text import is_blank
from conductor_cli.core.usage import (
    CHARS_PER_TOKEN,
    MAX_COUNTED,
    MAX_DOLLARS,
    ONE_CALL,
    Usage,
    stated_dollars,
    token_count,
    whole_input,
)
from conductor_cli.models.api_errors import error_in_body
from conductor_cli.models.base import table_of, tables_in, text_of
from conductor_cli.models.chat_body import (
    EXTRA,
    KEPT,
    PROVIDER_DATA,
    STOP_SEQUENCE,
    arguments_object,
)
from conductor_cli.models.end_words import NO_END_WORD, finish_of, note_of
from conductor_cli.models.presets import CostSource
from conductor_cli.models.tool_schemas import original_names

MAX_CALLS: Final = 128  # the most tool calls in one reply
MAX_ARGUMENTS: Final = 1024 * 1024
"""The most characters in the arguments of all calls of one reply: a model writes some 500,000 at
most.
"""

MAX_CHECKS: Final = 100  # how often one call is looked at whether it is complete
MAX_CALL_NAME: Final = 256  # the most characters in the name of a tool
_WRAPPERS: Final = frozenset({"parallel", "multi_tool_use.parallel", "multi_tool_use_parallel"})
"""The names under which OpenAI's models call several tools at once, each as a recipient."""

MAX_ID: Final = 16 * 1024  # the most characters in the id of a call: litellm hides signatures in it


@dataclass
class _Call:
    """One call as far as it has arrived.

    `key` is the server's index or id of it, `server_id` the server's id, `checks` how often it was
    looked at whether it is complete. `twin` is an earlier call with the same id. `number` counts
    the calls that have been shown. `doubtful` are pieces, from one that may be the arguments again
    on: the end shows whether they are more of them.
    """

    index: int
    redactor: StreamRedactor
    key: object
    server_id: str
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    doubtful: list[str] = field(default_factory=list)
    extra: Mapping[str, Any] | None = None
    held: str = ""
    shown: bool = False
    checks: int = 0
    twin: _Call | None = None
    number: int = 0
    halves: HalfCharacters = field(default_factory=HalfCharacters)

    @property
    def is_complete(self) -> bool:
        return arguments_object("".join(self.arguments)) is not None


class ToolCallDecoder:
    """The calls of one reply.

    `turn` is the number of the messages before it, for ids that have to be made. `names` has the
    names of tools by those under which they were offered, where they differ. `tools` are those that
    may be called.
    """

    def __init__(
        self,
        secrets: Secrets,
        turn: int = 0,
        names: Mapping[str, str] | None = None,
        tools: Iterable[str] = (),
    ) -> None:
        self._secrets = secrets
        self._turn = turn
        self._names = names or {}
        self._tools = frozenset(tools)
        self._calls: list[_Call] = []
        self._length = 0
        self._shown = 0
        self.cut_off = False
        """Whether the reply ended inside a call. Then none of its calls is meant to be made."""

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def length(self) -> int:
        """The bytes of the names and arguments of all calls."""
        texts = chain.from_iterable((call.name, *call.arguments) for call in self._calls)
        return sum(map(byte_length, texts))

    def feed(self, pieces: object) -> Iterator[ToolCallDelta]:
        """Yield what the `tool_calls` of one frame add.

        Raises `ModelError` for more than a reply may hold.
        """
        for piece in tables_in(pieces):
            function = table_of(piece.get("function"))
            name = text_of(function.get("name"))
            server_id = text_of(piece.get("id"))
            call = self._call_of(piece.get("index"), server_id, name)
            call.name = call.name or self._names.get(name) or self._short(name)
            call.id = call.id or self._own_id(self._short(server_id, MAX_ID), call)
            extra = piece.get(EXTRA)
            call.extra = extra if isinstance(extra, Mapping) else call.extra
            arguments = function.get("arguments")
            if isinstance(arguments, Mapping):
                arguments = json.dumps(arguments, ensure_ascii=False)
            arguments = text_of(arguments)
            if arguments:
                arguments = call.halves.feed(arguments)
            self._length += len(arguments)
            if self._length > MAX_ARGUMENTS:
                raise ModelError(
                    "broken",
                    f"the model wrote more than {MAX_ARGUMENTS} characters of tool arguments",
                )
            if arguments:
                # Some servers send an empty object first, and then the arguments.
                if call.held.strip() == "{}" and arguments.lstrip().startswith("{"):
                    call.arguments.clear()
                    call.held = ""
                if call.doubtful or _may_repeat(call, arguments):
                    self._doubt(call, arguments)
                else:
                    call.arguments.append(arguments)
                    call.held += call.redactor.feed(arguments)
            # The first delta has the name, so what comes before it is held back; so is a call that
            # may be an earlier one again, or several in one.
            if not call.name or call.twin is not None or self._is_wrapper(call):
                continue
            if call.held.strip() != "{}":
                if call.held or not call.shown:
                    yield self._delta(call)
            elif not call.shown:
                yield self._first_delta(call, "")

    def end(self, *, complete: bool) -> Iterator[ToolCallDelta]:
        """Yield what was held back, unless a call is cut off.

        None can be where the model ended by itself.
        """
        for call in self._calls:
            _settle(call)
        self._drop_repetitions()
        self._unwrap()
        texts = ["".join(call.arguments).strip() for call in self._calls]
        self.cut_off = not complete and any(arguments_object(text) is None for text in texts)
        if self.cut_off:
            return
        for call, arguments in zip(self._calls, texts, strict=True):
            if not call.name:
                raise ModelError("broken", "the model called a tool without a name")
            rest = call.redactor.close() + call.halves.end()
            # No arguments at all means an object without fields.
            rest = rest if arguments else "{}"
            if rest or call.held or not call.shown:
                yield self._delta(call, rest)

    def _doubt(self, call: _Call, piece: str) -> None:
        """Keep a piece until it is known what it is. One that says the last one again replaces it.

        So a server that sends all arguments with each piece does not reach the limit by that.
        """
        if call.doubtful and piece.startswith(call.doubtful[-1]):
            self._length -= len(call.doubtful.pop())
        call.doubtful.append(piece)

    def _drop_repetitions(self) -> None:
        """Leave out calls that an earlier one with the same id has made already.

        Some servers send a call under two numbers, under one of them without its arguments.
        """
        kept = []
        for call in self._calls:
            first = call.twin
            if first is None or not _is_repetition(call, first):
                kept.append(call)
            elif not _has_arguments(first) and _has_arguments(call):
                first.arguments = call.arguments
                first.held = call.held
                first.redactor = call.redactor
        self._calls = kept

    def _is_wrapper(self, call: _Call) -> bool:
        """Return whether a call is of OpenAI's own tool that calls several of those offered."""
        return bool(self._tools) and call.name in _WRAPPERS and call.name not in self._tools

    def _unwrap(self) -> None:
        """Put the calls of tools that were offered in the place of one that only holds them."""
        unwrapped = []
        for call in self._calls:
            inner = self._inner_calls(call) if self._is_wrapper(call) else None
            unwrapped += [call] if inner is None else inner
        self._calls = unwrapped
        if len(self._calls) > MAX_CALLS:
            raise ModelError("broken", f"the model called more than {MAX_CALLS} tools at once")

    def _inner_calls(self, wrapper: _Call) -> list[_Call] | None:
        """Return the calls that one holds; None where it is not of the known form."""
        uses = (arguments_object("".join(wrapper.arguments)) or {}).get("tool_uses")
        if not isinstance(uses, list) or not uses:
            return None
        calls = []
        for number, use in enumerate(uses):
            offered = text_of(table_of(use).get("recipient_name")).removeprefix("functions.")
            parameters = table_of(use).get("parameters")
            name = self._names.get(offered, offered)
            if name not in self._tools or not isinstance(parameters, dict):
                return None
            arguments = json.dumps(parameters, ensure_ascii=False)
            redactor = StreamRedactor(self._secrets)
            call = _Call(
                index=wrapper.index,
                redactor=redactor,
                key="",
                server_id="",
                id=f"{wrapper.id}_{number}",
                name=name,
                arguments=[arguments],
                held=redactor.feed(arguments),
            )
            calls.append(call)
        return calls

    def extras(self) -> dict[str, Any]:
        """Return what a server wants back in its calls, by the key for all and then by call id."""
        extras = {call.id: call.extra for call in self._calls if call.extra is not None}
        return {EXTRA: extras} if extras else {}

    def _delta(self, call: _Call, rest: str = "") -> ToolCallDelta:
        arguments = call.held + rest
        call.held = ""
        if call.shown:
            return ToolCallDelta(index=call.number, arguments=arguments)
        return self._first_delta(call, arguments)

    def _first_delta(self, call: _Call, arguments: str) -> ToolCallDelta:
        call.shown = True
        call.number = self._shown
        self._shown += 1
        return ToolCallDelta(index=call.number, id=call.id, name=call.name, arguments=arguments)

    def _call_of(self, index: object, server_id: str, name: str) -> _Call:
        """Return the call that a piece belongs to; a new one where the piece begins one."""
        is_numbered = isinstance(index, int) and not isinstance(index, bool)
        if not (is_numbered or server_id or name) and self._calls:
            return self._calls[-1]  # a bare continuation
        key = index if is_numbered else server_id
        open_call = self._newest_with(key)
        if open_call is None:
            return self._begin_call(key, server_id)
        # A name alone begins another call, but under a number only with another id.
        begins_another = bool(name)
        if is_numbered:
            begins_another = bool(name and server_id) and server_id != open_call.server_id
        if begins_another and self._is_whole(open_call):
            return self._begin_call(key, server_id)
        return open_call

    def _newest_with(self, key: object) -> _Call | None:
        """Return the last call under a number or id: of several, only that one can go on."""
        if key == "":
            return None
        for call in reversed(self._calls):
            if call.key == key:
                return call
        return None

    def _first_with_id(self, server_id: str) -> _Call | None:
        if not server_id:
            return None
        for call in self._calls:
            if call.server_id == server_id:
                return call
        return None

    @staticmethod
    def _is_whole(call: _Call) -> bool:
        """Return whether the arguments of a call are complete.

        A call of very many pieces is looked at so often only, since each time all of it is read.
        """
        call.checks += 1
        if not call.arguments or call.checks > MAX_CHECKS:
            return False
        return call.is_complete

    def _begin_call(self, key: object, server_id: str) -> _Call:
        if len(self._calls) >= MAX_CALLS:
            raise ModelError("broken", f"the model called more than {MAX_CALLS} tools at once")
        call = _Call(
            index=len(self._calls),
            redactor=StreamRedactor(self._secrets),
            key=key,
            server_id=server_id,
            twin=self._first_with_id(server_id),
        )
        self._calls.append(call)
        return call

    def _own_id(self, server_id: str, call: _Call) -> str:
        """Return the server's id, or one of our own if there is none or another call has it.

        It is the same whenever the same request is asked, so that cached replies go together, and
        has the nine letters and digits that Mistral's servers demand.
        """
        if server_id and all(other.id != server_id for other in self._calls):
            return server_id
        origin = f"{self._turn} {call.index} {server_id}"
        return hashlib.sha256(origin.encode("utf-8", "replace")).hexdigest()[:9]

    def _short(self, text: str, most: int = MAX_CALL_NAME) -> str:
        if len(text) > most:
            raise ModelError(
                "broken",
                f"the model called a tool with a name or id of more than {most} characters",
            )
        return self._secrets.redact(text)


def _may_repeat(call: _Call, piece: str) -> bool:
    """Return whether a piece may begin the arguments of a call anew.

    It begins as they did, or they are whole already. A call of very many pieces is looked at so
    often only, since each time all of it is read.
    """
    if not call.arguments or not piece.lstrip().startswith("{") or call.checks > MAX_CHECKS:
        return False
    call.checks += 1
    return piece.startswith("".join(call.arguments)) or call.is_complete


def _settle(call: _Call) -> None:
    """Take the pieces that are in doubt as more of the arguments, unless they say them again."""
    if not call.doubtful:
        return
    begun = "".join(call.arguments)
    rest = "".join(call.doubtful)
    if arguments_object(begun + rest) is None:
        restated = _restated(begun, call.doubtful)
        rest = rest if restated is None else restated.removeprefix(begun)
    call.doubtful.clear()
    call.arguments.append(rest)
    call.held += call.redactor.feed(rest)


def _restated(begun: str, pieces: Sequence[str]) -> str | None:
    """Return the arguments that pieces say again; None where they say something else."""
    rest = "".join(pieces)
    if arguments_object(begun) is not None and not rest.replace(begun.strip(), "").strip():
        return begun
    last = pieces[-1]
    is_growing = all(last.startswith(piece) for piece in (begun, *pieces))
    if is_growing and arguments_object(last) is not None:
        return last
    return None


def _has_arguments(call: _Call) -> bool:
    return "".join(call.arguments).strip() not in ("", "{}")


def _is_repetition(call: _Call, first: _Call) -> bool:
    """Return whether a call with the id of an earlier one is that one again, and no other."""
    if call.name not in ("", first.name):
        return False
    if not _has_arguments(call) or not _has_arguments(first):
        return True
    return "".join(call.arguments).strip() == "".join(first.arguments).strip()


MAX_FORMS: Final = 8  # Events in a row whose form is learned, where none is met again
_CONTENT: Final = re.compile(r'"content"\s*:\s*"')
_PROBE: Final = "another text"
# What `json` reads a text with, given where it begins; it returns where the text ends, too
_read_json_text: Final[Callable[[str, int], tuple[str, int]]] = json.decoder.scanstring  # type: ignore[attr-defined]

# Tokens of a reply where none were asked for: the most that a model writes at once
UNLIMITED_TOKENS: Final = 128_000
MAX_KEPT: Final = 4 * 1024 * 1024
"""The most characters of thinking, signed or encrypted, that are kept in lists for a server."""

_KEPT_NAMES: Final = frozenset(KEPT)
MAX_ITEMS: Final = 1024  # the most items that are kept for a server that wants them back
ESTIMATED: Final = f"does not count tokens; estimated at {CHARS_PER_TOKEN} bytes per token"
"""The notice about such a server."""

UNMARKED_THINKING: Final = (
    "does not mark where thinking begins, so this answer has it up to </think>; "
    "the next ones will not"
)
"""The notice about the first reply of a server whose prompt opens the thinking."""


class ChatReplyDecoder:
    """What has arrived of one reply.

    `secrets` are redacted from it: a server may repeat the key that it was sent. `most_tokens` were
    asked for, thinking included. `server` is its name in what the user is told. `replied` is
    whether anything that looks like a reply has arrived, `estimated` whether the tokens of the last
    chunk were not counted by the server. With `opens_thinking` the reply is expected to begin
    inside of thinking, and to close it.
    """

    def __init__(  # noqa: PLR0913 - what is known of a reply before it comes
        self,
        request: Request,
        secrets: Secrets,
        cost: CostSource = "unknown",
        most_tokens: int | None = None,
        server: str = "the server",
        *,
        opens_thinking: bool = False,
    ) -> None:
        self.finish: Finish | None = None
        self._stops = request.stop
        self._stop_sequence = ""
        self.replied = False
        self.estimated = False
        self._request = request
        tools = [tool.name for tool in request.tools]
        self._calls = ToolCallDecoder(
            secrets, turn=len(request.messages), names=original_names(tools), tools=tools
        )
        self._kept = _Kept()
        self._secrets = secrets
        self._server = server
        self._end_word = ""
        self._usage = ONE_CALL
        self._states_cost = cost == "stated"
        self._said = 0
        self._thought = 0
        self._most = reply_limit(most_tokens)
        self._blank = True
        self._refused = False
        self.opens_thinking = opens_thinking
        """Whether the prompt opens the thinking, as far as this reply has shown."""
        self._expected_thinking = opens_thinking
        self._splitter = ThinkingSplitter(inside=opens_thinking)
        self._guessed: list[str] | None = [] if opens_thinking else None
        self._text_halves = HalfCharacters()
        self._thought_halves = HalfCharacters()
        self._has_begun = False
        self._choice_index: object = None
        self._others = 0
        self._texts = StreamRedactor(secrets)
        self._thoughts = StreamRedactor(secrets)

    def frame(self, frame: Mapping[str, Any]) -> list[Chunk]:
        """Return what one frame of a stream, or a whole JSON answer, adds."""
        # Most frames have neither, and to ask whether a value is a `Mapping` takes long.
        if frame.get("usage") is not None:
            self.count(frame)
        provider_data = frame.get(PROVIDER_DATA)
        if provider_data is not None and isinstance(provider_data, Mapping):
            self._kept.data |= provider_data
        choices = frame.get("choices")
        choice = None
        if isinstance(choices, list) and choices:
            choice = choices[0]
        if not isinstance(choice, dict):
            return []
        if choice.get("index") != self._choice_index and not self._is_own(choice):
            return []
        self.replied = True
        if problem := choice.get("error"):
            raise error_in_body(self._server, {"error": problem}, self._secrets)
        if reason := choice.get("finish_reason"):
            self.finish = finish_of(str(reason))
            self._end_word = str(reason)
            # Moonshot counts here, also where it is not asked to count in a frame of its own
            if self._usage is ONE_CALL:
                self.count(choice)
        if self._stops:
            self._note_stop(frame, choice)
        delta = choice.get("delta")
        # The last frame of some servers, and a whole answer of Perplexity's, has the message beside
        # an empty delta.
        if not self._has_begun and (not delta or (reason and _is_silent(delta))):
            delta = choice.get("message") or delta
        if isinstance(delta, dict):
            return self._delta(delta)
        return []

    def count(self, frame: Mapping[str, Any]) -> None:
        """Take the tokens that a frame counts, if it does."""
        usage = frame.get("usage")
        if not isinstance(usage, Mapping):
            return
        self._usage = usage_of(usage)
        if self._states_cost:
            self._usage = replace(self._usage, cost=stated_cost(usage))

    def used_by_now(self) -> Usage | None:
        """Return what a reply that failed has used as far as its server has counted.

        None where it has not. Many count what was written at the end alone, so what has arrived
        counts as well.
        """
        if not self._usage.tokens:
            return None
        thought = tokens_in_bytes(self._thought)
        written = tokens_in_bytes(self._said + self._calls.length) + thought
        if written <= self._usage.tokens_out:
            return self._usage
        reasoning = max(thought, self._usage.tokens_reasoning)
        return replace(self._usage, tokens_out=written, tokens_reasoning=reasoning)

    def text_alone(self, frame: Mapping[str, Any]) -> str | None:
        """Return the text of a frame that says nothing else of the reply, as most do; else None."""
        choices = frame.get("choices")
        if type(choices) is not list or len(choices) != 1 or type(choices[0]) is not dict:
            return None
        if frame.get("usage") is not None or frame.get(PROVIDER_DATA) is not None or self._stops:
            return None
        if frame.get("error") or frame.get("object") == "error":
            return None
        choice = choices[0]
        if choice.get("error") or choice.get("finish_reason"):
            return None
        delta = choice.get("delta")
        if self._choice_index is None or choice.get("index") != self._choice_index:
            return None
        if type(delta) is not dict or len(delta) != 1:
            return None
        content = delta.get("content")
        return content if type(content) is str else None

    def _is_own(self, choice: Mapping[str, Any]) -> bool:
        """Return whether a choice is the one that was asked for, of several with numbers."""
        index = choice.get("index")
        if self._choice_index == 0 and type(index) is int:
            self._others += 1
            return False
        self._choice_index = index
        return True

    def _delta(self, delta: Mapping[str, Any]) -> list[Chunk]:
        content = delta.get("content")
        if len(delta) == 1 and type(content) is str:  # as most are
            answer_text, thinking = self.add_text(content)
            return [Chunk(text=answer_text, thinking=thinking)] if answer_text or thinking else []
        spoken, thought = _parts(content)
        thought = (
            thought
            or _thought_of(delta.get("reasoning_content"))
            or _thought_of(delta.get("reasoning"))
        )
        if refusal := text_of(delta.get("refusal")):
            self._refused = True
            spoken += refusal
        if not _KEPT_NAMES.isdisjoint(delta):
            self._kept.add(delta)
        text = ""
        if spoken:
            text, split_thought = self._split(
                self._text_halves.feed(spoken), is_marked=bool(thought)
            )
            thought += split_thought
        thinking = ""
        if thought:
            thinking = self._thoughts.feed(self._thought_halves.feed(thought))
        chunk = self._chunk(text and self._texts.feed(text), thinking)
        pieces = delta.get("tool_calls")
        self._has_begun = self._has_begun or bool(spoken or thought or pieces)
        if not pieces:
            return [chunk] if chunk else []
        calls = [Chunk(tool_call=piece) for piece in self._calls.feed(pieces)]
        return [chunk, *calls] if chunk else calls

    def add_text(self, content: str) -> tuple[str, str]:
        """Return the text and the thinking that a delta adds which has nothing but text."""
        if not content:
            return "", ""
        text, thinking = self._split(self._text_halves.feed(content), is_marked=False)
        if text:
            text = self._texts.feed(text)
        if thinking:
            thinking = self._thoughts.feed(self._thought_halves.feed(thinking))
        self._count(text, thinking)
        self._has_begun = True
        return text, thinking

    def _split(self, content: str, *, is_marked: bool) -> tuple[str, str]:
        """Return the text and the thinking in what was said as content.

        `is_marked` says that the server marks thinking itself.
        """
        if self._guessed is not None:
            return self._split_guessed(content, is_marked=is_marked)
        if CLOSE in content and closes_alone(content):
            if not self._has_begun:  # All of the thinking, and it is not too late
                self._splitter = ThinkingSplitter(inside=True)
            elif not self._splitter.inside:
                self.opens_thinking = True
        return self._splitter.feed(content)

    def _split_guessed(self, content: str, *, is_marked: bool) -> tuple[str, str]:
        """Return the same where the reply is expected to begin inside of thinking."""
        begins_with_tag = not self._guessed and content.lstrip().startswith("<")
        if is_marked or begins_with_tag:
            self._end_guess()
            return self._splitter.feed(content)
        text, thinking = self._splitter.feed(content)
        if self._splitter.inside and self._guessed is not None:
            self._guessed.append(thinking)
        else:
            self._guessed = None
        return text, thinking

    def _end_guess(self) -> None:
        """Take what comes for text: it does not begin inside of thinking."""
        self._guessed = None
        self.opens_thinking = False
        self._splitter = ThinkingSplitter()

    def end(self) -> Iterator[Chunk]:
        """Yield what was held back, then the last chunk.

        A reply without text and tool calls is a `ModelError`. One that was cut off inside a call
        ends for that reason, and its calls do not count.
        """
        text, thinking = self._splitter.feed(self._text_halves.end())
        last_text, last_thinking = self._splitter.end()
        text += last_text
        thinking += last_thinking
        if self._guessed is not None:  # The thinking was never closed, so it was the answer
            text = "".join([*self._guessed, text, thinking])
            thinking = ""
            self.opens_thinking = False
        text = self._texts.feed(text)
        thinking = self._thoughts.feed(thinking + self._thought_halves.end())
        if rest := self._chunk(text + self._texts.close(), thinking + self._thoughts.close()):
            yield rest
        for note in self._notes():
            yield Chunk(note=f"{self._server} {note}")
        finish: Finish = "refusal" if self._refused else self.finish or "other"
        is_unexplained = finish == "other" and self.finish is None
        usage = self._usage
        # What the server did not count is estimated.
        if not usage.tokens_in:
            read = conversation_tokens(self._request.messages, self._request.tools)
            usage = replace(usage, tokens_in=read)
            self.estimated = self.estimated or read > 0
        said = self._said + self._calls.length
        if said + self._thought and not usage.tokens_out:
            thought = tokens_in_bytes(self._thought)
            written = tokens_in_bytes(said) + thought
            usage = replace(usage, tokens_out=written, tokens_reasoning=thought)
            self.estimated = True
        for piece in self._calls.end(complete=finish in ("stop", "tool", "other")):
            yield Chunk(tool_call=piece)
        # Calls that a filter has cut off are not to be made.
        has_calls = bool(self._calls) and not self._calls.cut_off and finish != "refusal"
        if has_calls or finish == "tool":
            finish = "tool" if self._calls else "other"
        if self._blank and (finish == "stop" or (is_unexplained and not self._calls)):
            hint = "ask again, or ask another worker"
            raise ModelError(
                "empty_answer", "the model ended without a word", hint=hint, usage=usage
            )
        kept_fields = self._secrets.redact_data(self._kept.all() | self._calls.extras())
        yield Chunk(
            usage=usage,
            finish=finish,
            stop_sequence=self._stop_sequence if finish == "stop" else "",
            provider_data=kept_fields,
        )

    def _note_stop(self, frame: Mapping[str, Any], choice: Mapping[str, Any]) -> None:
        """Remember which stop text ended the reply.

        Anthropic says it, vLLM and SGLang as `stop_reason` and `matched_stop` of the choice.
        """
        named = (frame.get(STOP_SEQUENCE), choice.get("stop_reason"), choice.get("matched_stop"))
        for stop in named:
            if isinstance(stop, str) and stop in self._stops:
                self._stop_sequence = stop

    def _notes(self) -> list[str]:
        """Return what the user is told about this reply."""
        notes = [note_of(self._end_word) if self.finish is not None else NO_END_WORD]
        if self._others:
            notes.append(f"sent {self._others} pieces of other answers, which were left out")
        if self.opens_thinking and not self._expected_thinking:
            notes.append(UNMARKED_THINKING)
        return list(filter(None, notes))

    def _chunk(self, text: str, thinking: str) -> Chunk | None:
        if not text and not thinking:
            return None
        self._count(text, thinking)
        return Chunk(text=text, thinking=thinking)

    def _count(self, text: str, thinking: str) -> None:
        """Count what the reply has got. Raises `ModelError` where that is too much."""
        if text:
            self._said += byte_length(text)
        if thinking:
            self._thought += byte_length(thinking)
        if self._said + self._thought > self._most:
            message = (
                f"the reply is longer than {self._most:,} bytes, which is far more than was "
                "asked for"
            )
            raise ModelError("broken", message, retryable=False)
        self._blank = self._blank and is_blank(text)


class TextForm:
    """How the events of one reply are written that have nothing but text.

    They differ in that text alone, so what stands before and behind it is compared, and only the
    text is read as JSON. To read all of an event takes several times as long.
    """

    def __init__(self, read_whole: Callable[[str], str | None]) -> None:
        """Know no form yet.

        `read_whole` returns the text of an event that has nothing else; None for any other.
        """
        self._read_whole = read_whole
        self._before = ""
        self._behind = ""
        # A server whose events differ in more than their text is not looked at again and again
        self._tries_left = MAX_FORMS

    def text_of(self, event: str) -> str | None:
        """Return the text of an event that is written in this form; None for any other."""
        before = self._before
        if not before or not event.startswith(before):
            return None
        try:
            text, end = _read_json_text(event, len(before))
        except ValueError:
            return None
        if event[end:] != self._behind:
            return None
        self._tries_left = MAX_FORMS
        return text

    def learn(self, event: str, text: str) -> None:
        """Take the form of an event that has nothing but this text."""
        if not self._tries_left:
            return
        self._tries_left -= 1
        for name in _CONTENT.finditer(event):
            before = event[: name.end()]
            try:
                found_text, end = _read_json_text(event, len(before))
            except ValueError:
                continue
            behind = event[end:]
            if found_text != text or text == _PROBE:
                continue
            # The name may stand elsewhere, too: here another text must be that of the event
            if self._read_whole(f'{before}{_PROBE}"{behind}') == _PROBE:
                self._before = before
                self._behind = behind
                return


class _Kept:
    """What the server wants back in this turn.

    `data` as translators give it, and what `KEPT` names.
    """

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}
        self._texts: dict[str, list[str]] = {}
        self._items: dict[str, list[_KeptItem]] = {}
        self._length = 0

    def add(self, delta: Mapping[str, Any]) -> None:
        """Texts are joined, and so are the texts of one item of a list, which come in pieces."""
        for name in KEPT:
            if not (value := delta.get(name)):
                continue
            if isinstance(value, str):
                self._texts.setdefault(name, []).append(value)
            for item in tables_in(value):
                self._length += sum(len(text) for text in item.values() if isinstance(text, str))
                if self._length > MAX_KEPT:
                    raise ModelError(
                        "broken",
                        f"the server sent more than {MAX_KEPT} characters of thinking to keep",
                    )
                items = self._items.setdefault(name, [])
                if items and items[-1].add(item):
                    continue
                if len(items) >= MAX_ITEMS:
                    raise ModelError(
                        "broken",
                        f"the server sent more than {MAX_ITEMS} pieces of thinking to keep",
                    )
                items.append(_KeptItem(item))

    def all(self) -> dict[str, Any]:
        """Return everything, by its key in a message."""
        texts = {name: "".join(pieces) for name, pieces in self._texts.items()}
        return {
            **self.data,
            **texts,
            **{name: [item.whole() for item in items] for name, items in self._items.items()},
        }


class _KeptItem:
    """One item of a list. The pieces of its text, which is under `name`, are joined at the end."""

    def __init__(self, item: Mapping[str, Any]) -> None:
        self._name = ""
        for name in ("text", "summary", "thinking"):
            if isinstance(item.get(name), str):
                self._name = name
                break
        self._fields = dict(item)
        self._pieces = [item[self._name]] if self._name else []

    def add(self, item: Mapping[str, Any]) -> bool:
        """Take `item` as the next piece of this one, if it is that. A signature ends an item."""
        same = all(item.get(name) == self._fields.get(name) for name in ("type", "index"))
        if (
            not self._name
            or not same
            or self._fields.get("signature")
            or not isinstance(item.get(self._name), str)
        ):
            return False
        self._fields |= item
        self._pieces.append(item[self._name])
        return True

    def whole(self) -> dict[str, Any]:
        return self._fields | ({self._name: "".join(self._pieces)} if self._name else {})


def reply_limit(max_tokens: int | None) -> int:
    """Return the most bytes of a reply, kept in memory, for which so many tokens were asked.

    A token has some four bytes, the longest ones of vocabularies 128. Besides, there is thinking
    that a server does not count, and what it says of the reply.
    """
    return (
        1024 * 1024
        + min(UNLIMITED_TOKENS, UNLIMITED_TOKENS if max_tokens is None else max_tokens) * 64
    )


_CACHED_NAMES: Final = ("prompt_cache_hit_tokens", "cached_tokens", "num_cached_tokens")
"""What DeepSeek, Moonshot and Mistral call the input that they had cached, outside of details."""

_STORED_NAMES: Final = ("cache_write_tokens", "cache_creation_input_tokens")
"""What OpenAI and Alibaba call the input that they cache now, inside of details."""


def usage_of(usage: Mapping[str, Any]) -> Usage:
    """Return the tokens that a server counted.

    Some providers count hidden reasoning in `total_tokens` but not in `completion_tokens`; here it
    is output. Where numbers contradict each other, the dearer reading counts.
    """
    read = token_count(usage.get("prompt_tokens"))
    written = token_count(usage.get("completion_tokens"))
    details = table_of(usage.get("prompt_tokens_details") or usage.get("prompt_token_details"))
    cached = token_count(details.get("cached_tokens")) or _first_count(usage, _CACHED_NAMES)
    stored = token_count(usage.get("cache_creation_input_tokens")) or _first_count(
        details, _STORED_NAMES
    )
    if not cached and (apart := token_count(usage.get("cache_read_input_tokens"))):
        # Anthropic's name, whose own count of the prompt leaves it out.
        read += apart
        cached = apart
    read = whole_input(read, cached, stored)
    written_details = table_of(usage.get("completion_tokens_details"))
    reasoning = token_count(written_details.get("reasoning_tokens")) or token_count(
        usage.get("reasoning_tokens")
    )
    if reasoning > written:
        written += reasoning
    hidden = max(0, token_count(usage.get("total_tokens")) - read - written)
    return Usage(
        tokens_in=min(read, MAX_COUNTED),
        tokens_out=min(written + hidden, MAX_COUNTED),
        tokens_cached=cached,
        tokens_stored=stored,
        tokens_reasoning=reasoning or hidden,
        calls=1,
    )


def _first_count(usage: Mapping[str, Any], names: Iterable[str]) -> int:
    """Return the first of these counts that is more than nothing; else 0."""
    return next(filter(None, (token_count(usage.get(name)) for name in names)), 0)


def stated_cost(usage: Mapping[str, Any]) -> Decimal | None:
    """Return what a call cost as OpenRouter states it; None where it does not.

    Where the user has given it a key of the provider, `cost` is its own fee alone. What that
    provider charges stands beside it (openrouter.ai/docs/use-cases/usage-accounting, November
    2026).
    """
    cost = stated_dollars(usage.get("cost"))
    charged = stated_dollars(table_of(usage.get("cost_details")).get("upstream_inference_cost"))
    if cost is None or charged is None or usage.get("is_byok") is False:
        return cost
    return min(cost + charged, MAX_DOLLARS)


def _is_silent(delta: object) -> bool:
    """Return whether a delta has nothing but who speaks."""
    return not any(value for name, value in table_of(delta).items() if name != "role")


def _thought_of(value: object) -> str:
    """Return thinking that is a text, or an object with one, as Envoy's gateway has it."""
    return text_of(value) or text_of(table_of(value).get("text"))


def _parts(content: object) -> tuple[str, str]:
    if isinstance(content, str):
        return content, ""
    text = ""
    thinking = ""
    for part in tables_in(content):  # of anything but a list, none
        text += text_of(part.get("text"))
        inner = part.get("thinking") or part.get("summary")  # Databricks has it in summaries
        thinking += text_of(inner) or _parts(inner if isinstance(inner, list) else None)[0]
    return text, thinking

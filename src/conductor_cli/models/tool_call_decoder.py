"""Decodes the tool calls of one reply in the form of OpenAI's chat completions, as they arrive.

Pure; no server is trusted.

A piece of a tool call says by `index` which call it belongs to, and the first piece of a call has
its id and name. Servers depart from that, each in its own way, and are understood: Ollama gave
every call the index 0, Google's server gives none; some send no id, or another one with every
piece; some send whole calls, or arguments as an object; some send arguments again, each time with
what has come before or once more at the end; OpenAI's models put calls of several tools into one of
a tool that nobody offered.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from conductor_cli.core.chat import HalfCharacters, ToolCallDelta
from conductor_cli.core.errors import ModelError
from conductor_cli.core.estimate import byte_length
from conductor_cli.core.redact import Secrets, StreamRedactor
from conductor_cli.models.base import table_of, tables_in, text_of
from conductor_cli.models.chat_body import EXTRA, arguments_object

MAX_CALLS: Final = 128  # the most tool calls in one reply
MAX_ARGUMENTS: Final = 1024 * 1024
"""The most characters in the arguments of all calls of one reply: a model writes some 500,000 at
most.
"""

MAX_CHECKS: Final = 100  # how often one call is looked at whether it is complete
MAX_CALL_NAME: Final = 256  # the most characters in the name of a tool
MAX_ID: Final = 16 * 1024  # the most characters in the id of a call: litellm hides signatures in it
_WRAPPERS: Final = frozenset({"parallel", "multi_tool_use.parallel", "multi_tool_use_parallel"})
"""The names under which OpenAI's models call several tools at once, each as a recipient."""


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
    names of tools by those under which they were offered, where they differ, `keys` the same of the
    arguments of a tool. `tools` are those that may be called.
    """

    def __init__(
        self,
        secrets: Secrets,
        turn: int = 0,
        names: Mapping[str, str] | None = None,
        tools: Iterable[str] = (),
        keys: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self._secrets = secrets
        self._turn = turn
        self._names = names or {}
        self._tools = frozenset(tools)
        self._keys = keys or {}
        self._holds_back = False
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
            if isinstance(extra, Mapping):
                call.extra = extra
            arguments = function.get("arguments")
            if arguments is not None:
                self._take_arguments(call, arguments)
            # The first delta has the name, so what comes before it is held back; so is a call that
            # may be an earlier one again, or several in one.
            if not call.name or call.twin is not None or self._is_wrapper(call):
                continue
            # Arguments that are written anew are known at the end, and calls stay in their order.
            self._holds_back = self._holds_back or call.name in self._keys
            if self._holds_back and not call.shown:
                continue
            if call.held.strip() == "{}":  # The arguments may follow
                if not call.shown:
                    yield self._first_delta(call, "")
            elif call.held or not call.shown:
                yield self._delta(call)

    def end(self, *, complete: bool) -> Iterator[ToolCallDelta]:
        """Yield what was held back, unless a call is cut off.

        None is cut off where the reply is `complete`: the model ended it by itself.
        """
        for call in self._calls:
            _settle(call)
        self._drop_repetitions()
        self._unwrap()
        for call in self._calls:
            self._rename_arguments(call)
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

    def _take_arguments(self, call: _Call, arguments: object) -> None:
        """Add a piece of the arguments of a call, or all of them as an object."""
        if isinstance(arguments, Mapping):
            arguments = json.dumps(arguments, ensure_ascii=False)
        piece = call.halves.feed(text_of(arguments))
        if not piece:
            return
        self._length += len(piece)
        if self._length > MAX_ARGUMENTS:
            message = f"the model wrote more than {MAX_ARGUMENTS} characters of tool arguments"
            raise ModelError("broken", message)
        # Some servers send an empty object first, and then the arguments.
        if call.held.strip() == "{}" and piece.lstrip().startswith("{"):
            call.arguments.clear()
            call.held = ""
        if call.doubtful or _may_repeat(call, piece):
            self._doubt(call, piece)
        else:
            call.arguments.append(piece)
            call.held += call.redactor.feed(piece)

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

    def _rename_arguments(self, call: _Call) -> None:
        """Give the arguments of a call the names that they were not offered under."""
        keys = self._keys.get(call.name)
        given = arguments_object("".join(call.arguments)) if keys else None
        if not keys or given is None or keys.keys().isdisjoint(given):
            return
        renamed = {keys.get(name, name): value for name, value in given.items()}
        text = json.dumps(renamed, ensure_ascii=False)
        call.arguments = [text]
        call.redactor = StreamRedactor(self._secrets)
        call.held = call.redactor.feed(text)

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

        A call of very many pieces is looked at `MAX_CHECKS` times: each time all of it is read.
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

    It begins as they did, or they are whole already. A call of very many pieces is looked at
    `MAX_CHECKS` times only: each time all of it is read.
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

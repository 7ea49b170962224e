"""Decodes the tool calls of one reply in the form of chat completions, while they arrive. Pure; no server is trusted.

A piece says by `index` which call it belongs to, and the first piece of a call has its id and name. Servers depart from
that, each in its own way, and are understood: Ollama gave every call the index 0, Google's server gives none; some send
no id, or another one with every piece; some send whole calls, or arguments as an object.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from conductor_cli.core.chat import ToolCallDelta
from conductor_cli.core.errors import ModelError
from conductor_cli.core.redact import Secrets, StreamRedactor
from conductor_cli.models.chat_body import EXTRA, arguments_object

MOST_CALLS: Final = 128
"""The most tool calls in one reply."""

LONGEST_ARGUMENTS: Final = 1024 * 1024
"""The most characters in the arguments of all calls of one reply: a model writes some 500,000 at most."""

MOST_ASKED: Final = 100
"""How often it is asked whether the arguments of one call are complete."""

LONGEST_NAME: Final = 256
"""The most characters in the name of a tool."""

LONGEST_ID: Final = 16 * 1024
"""The most characters in the id of a call: litellm hides signatures in it."""


@dataclass
class _Call:
    """One call as far as it has arrived.

    `key` is the server's index or id of it, `given` the server's id, `asked` how often it was looked at as a whole.
    """

    index: int
    redactor: StreamRedactor
    key: object
    given: str
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    extra: Mapping[str, Any] | None = None
    held: str = ""
    shown: bool = False
    asked: int = 0


class ToolCallDecoder:
    """The calls of one reply.

    `turn` is the number of the messages before it, for ids that have to be made. `names` has the names of tools by
    those under which they were offered, where they differ.
    """

    def __init__(self, secrets: Secrets, turn: int = 0, names: Mapping[str, str] | None = None) -> None:
        self._secrets = secrets
        self._turn = turn
        self._names = names or {}
        self._calls: list[_Call] = []
        self._length = 0

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def characters(self) -> int:
        """How many characters the names and arguments of the calls have."""
        return self._length + sum(len(call.name) for call in self._calls)

    def feed(self, pieces: object) -> Iterator[ToolCallDelta]:
        """What the `tool_calls` of one frame add. Raises `ModelError` for more than a reply may hold."""
        for piece in pieces if isinstance(pieces, list) else ():
            if isinstance(piece, Mapping):
                yield from self._piece(piece)

    def end(self, *, complete: bool) -> Iterator[ToolCallDelta]:
        """What was held back. `complete` is whether the model ended by itself, so that no call can be cut off."""
        for call in self._calls:
            arguments = "".join(call.arguments).strip()
            if not call.name:
                raise ModelError("broken", "the model called a tool without a name")
            if not complete and arguments_object(arguments or "{}") is None:
                message = f"the reply was cut off in the middle of a call of {call.name}"
                raise ModelError("broken", message, hint="allow more tokens: max_tokens")
            rest = call.redactor.close()
            # No arguments at all means an object without fields.
            rest = rest if arguments else "{}"
            if rest or not call.shown:
                yield self._delta(call, rest)

    def extras(self) -> dict[str, Any]:
        """What a server wants back in its calls, by the key for all of them and then by the call's id."""
        extras = {call.id: call.extra for call in self._calls if call.extra is not None}
        return {EXTRA: extras} if extras else {}

    def _piece(self, piece: Mapping[str, Any]) -> Iterator[ToolCallDelta]:
        function = piece.get("function")
        function = function if isinstance(function, Mapping) else {}
        name, given = text_of(function.get("name")), text_of(piece.get("id"))
        call = self._call(piece.get("index"), given, name)
        call.name = call.name or self._names.get(name) or self._short(name)
        call.id = call.id or self._own_id(self._short(given, LONGEST_ID), call)
        extra = piece.get(EXTRA)
        call.extra = extra if isinstance(extra, Mapping) else call.extra
        arguments = function.get("arguments")
        if isinstance(arguments, Mapping):
            arguments = json.dumps(arguments, ensure_ascii=False)
        arguments = text_of(arguments)
        self._length += len(arguments)
        if self._length > LONGEST_ARGUMENTS:
            raise ModelError("broken", f"the model wrote more than {LONGEST_ARGUMENTS} characters of tool arguments")
        if arguments:
            call.arguments.append(arguments)
        call.held += call.redactor.feed(arguments)
        # The first delta has the name, so what comes before it is held back.
        if call.name and (call.held or not call.shown):
            yield self._delta(call)

    def _delta(self, call: _Call, rest: str = "") -> ToolCallDelta:
        arguments, call.held = call.held + rest, ""
        if call.shown:
            return ToolCallDelta(index=call.index, arguments=arguments)
        call.shown = True
        return ToolCallDelta(index=call.index, id=call.id, name=call.name, arguments=arguments)

    def _call(self, index: object, given: str, name: str) -> _Call:
        """The call that a piece belongs to, a new one if it begins one."""
        numbered = isinstance(index, int) and not isinstance(index, bool)
        if not (numbered or given or name) and self._calls:
            return self._calls[-1]
        key = index if numbered else given
        # Of several calls under one number, only the last can go on.
        last = next((call for call in reversed(self._calls) if call.key == key), None) if key != "" else None
        other = name and (not numbered or (given and given != last.given)) if last else True
        if last is None or (other and _is_whole(last)):
            return self._begin(key, given)
        return last

    def _begin(self, key: object, given: str) -> _Call:
        if len(self._calls) >= MOST_CALLS:
            raise ModelError("broken", f"the model called more than {MOST_CALLS} tools at once")
        call = _Call(index=len(self._calls), redactor=StreamRedactor(self._secrets), key=key, given=given)
        self._calls.append(call)
        return call

    def _own_id(self, given: str, call: _Call) -> str:
        """The server's id, or one of our own if there is none or another call has it.

        It is the same whenever the same request is asked, so that cached replies go together, and has the nine letters
        and digits that Mistral's servers demand.
        """
        taken = {other.id for other in self._calls}
        if given and given not in taken:
            return given
        return hashlib.sha256(f"{self._turn} {call.index} {given}".encode("utf-8", "replace")).hexdigest()[:9]

    def _short(self, text: str, most: int = LONGEST_NAME) -> str:
        if len(text) > most:
            raise ModelError("broken", f"the model called a tool with a name or id of more than {most} characters")
        return self._secrets.redact(text)


def _is_whole(call: _Call) -> bool:
    """Whether a call could end here. A call of very many pieces is asked so often only, since each time all is read."""
    call.asked += 1
    asks = bool(call.arguments) and call.asked <= MOST_ASKED
    return asks and arguments_object("".join(call.arguments)) is not None


def text_of(value: object) -> str:
    """The value if it is a text, else an empty one."""
    return value if isinstance(value, str) else ""

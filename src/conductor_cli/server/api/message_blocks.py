"""The conversation of a request of Anthropic's Messages: system text, turns, and the blocks of their content. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from conductor_cli.core.chat import Attachment, Message, ToolCall
from conductor_cli.core.quoting import fence
from conductor_cli.server.api.content import Carried, bytes_of_base64
from conductor_cli.server.api.fields import optional, quoted, refused, required, typed

BILLING: Final = "x-anthropic-billing-header"
"""How a block of Claude Code's system text begins that differs by task and says nothing to a model."""

_DROPPED: Final = frozenset({"thinking", "redacted_thinking", "server_tool_use"})
"""Blocks of earlier replies that no worker needs: thinking, and what Anthropic's servers did."""


@dataclass
class _Content:
    """What one message holds: texts, attachments, calls, results of calls."""

    texts: list[str] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    results: list[Message] = field(default_factory=list)


class MessageReader:
    """Reads the messages of one request. What they carry is collected by `carried`."""

    def __init__(self, carried: Carried) -> None:
        self._carried = carried
        self._readers: Mapping[str, Callable[[Mapping[str, Any], str, _Content], None]] = {
            "text": self._text, "image": self._image, "document": self._document, "search_result": _search_result,
            "tool_reference": _tool_reference, "tool_use": _tool_use, "tool_result": self._tool_result,
        }  # fmt: skip

    def read(self, body: Mapping[str, Any]) -> tuple[Message, ...]:
        """The system text, if there is any, then the turns. Raises `RequestError`."""
        entries = required(body, "messages", list)
        if not entries:
            raise refused("messages", "is empty")
        system = self._system(body)
        talk: list[Message] = []
        for index, entry in enumerate(entries):
            where = f"messages[{index}]"
            message = typed(entry, dict, where)
            role = required(message, "role", str, where)
            found = self._content(message.get("content"), f"{where}.content", role)
            if role == "system" and not talk:
                system += found.texts
            else:
                talk += _messages_of_turn(role, found)
        texts = [text for text in system if text.strip()]
        return (*([Message(role="system", content="\n\n".join(texts))] if texts else []), *talk)

    def _system(self, body: Mapping[str, Any]) -> list[str]:
        system = body.get("system")
        found = self._content(system, "system", "system") if system is not None else _Content()
        return [text for text in found.texts if not text.startswith(BILLING)]

    def _content(self, content: object, where: str, role: str) -> _Content:
        if role not in _ALLOWED:
            known = "user, assistant or system"
            raise refused(f"{where.removesuffix('.content')}.role", f"{quoted(role)} is not known: it can be {known}")
        found = _Content()
        if isinstance(content, str):
            found.texts.append(content)
            return found
        if content is None:
            raise refused(where, "is missing", "missing_required_parameter")
        self._read_blocks(typed(content, list, where), where, found, _ALLOWED[role])
        return found

    def _read_blocks(self, blocks: Sequence[object], where: str, found: _Content, allowed: frozenset[str]) -> None:
        for index, entry in enumerate(blocks):
            place = f"{where}[{index}]"
            block = typed(entry, dict, place)
            kind = required(block, "type", str, place)
            is_of_server = kind.endswith("_tool_result") and "tool_use" in allowed
            if kind in allowed and kind in self._readers:
                self._readers[kind](block, place, found)
            elif not (kind in allowed or is_of_server):
                raise refused(f"{place}.type", f"{quoted(kind)} cannot be served here", "unsupported_content")

    def _text(self, block: Mapping[str, Any], where: str, found: _Content) -> None:
        if text := required(block, "text", str, where):
            found.texts.append(text)

    def _image(self, block: Mapping[str, Any], where: str, found: _Content) -> None:
        source = required(block, "source", dict, where)
        place = f"{where}.source"
        data = _base64_data(source, place)
        found.attachments.append(self._carried.image(bytes_of_base64(data, f"{place}.data"), f"{place}.data"))

    def _document(self, block: Mapping[str, Any], where: str, found: _Content) -> None:
        source = required(block, "source", dict, where)
        place, title = f"{where}.source", optional(block, "title", str, where) or ""
        kind = required(source, "type", str, place)
        if context := optional(block, "context", str, where):
            found.texts.append(context)
        if kind == "text":
            found.texts.append(fence("file", required(source, "data", str, place), name=title or "document"))
        elif kind == "content":
            inner = source.get("content")
            blocks = [{"type": "text", "text": inner}] if isinstance(inner, str) else typed(inner, list, place)
            self._read_blocks(blocks, f"{place}.content", found, frozenset({"text", "image"}))
        else:
            data = bytes_of_base64(_base64_data(source, place), f"{place}.data")
            document = self._carried.document(data, f"{place}.data", title)
            if isinstance(document, str):
                found.texts.append(document)
            else:
                found.attachments.append(document)

    def _tool_result(self, block: Mapping[str, Any], where: str, found: _Content) -> None:
        inner, content = _Content(), block.get("content")
        if isinstance(content, str):
            inner.texts.append(content)
        elif content is not None:
            self._read_blocks(typed(content, list, f"{where}.content"), f"{where}.content", inner, _IN_RESULTS)
        result = Message(
            role="tool",
            content="\n".join(inner.texts),
            attachments=tuple(dict.fromkeys(inner.attachments)),
            tool_call_id=required(block, "tool_use_id", str, where),
            is_error=bool(optional(block, "is_error", bool, where)),
        )
        found.results.append(result)


_IN_RESULTS: Final = frozenset({"text", "image", "document", "search_result", "tool_reference"})

_ALLOWED: Final[Mapping[str, frozenset[str]]] = {
    "user": frozenset({"text", "image", "document", "search_result", "tool_result"}),
    "assistant": frozenset({"text", "tool_use"}) | _DROPPED,
    "system": frozenset({"text"}),
}
"""The blocks of each role."""


def _messages_of_turn(role: str, found: _Content) -> list[Message]:
    """The messages of one turn.

    A system text in the middle stays there, as a text of the user: moved to the beginning it would change what all
    later requests begin with, and with it what providers remember.
    """
    if role == "system":
        return [Message(role="user", content=fence("system", "\n\n".join(found.texts)))] if found.texts else []
    if role == "assistant":
        # The texts of one reply are one text, which other blocks interrupt.
        text = "".join(found.texts)
        return [Message(role="assistant", content=text, tool_calls=tuple(found.calls))] if text or found.calls else []
    text, attachments = "\n\n".join(found.texts), tuple(dict.fromkeys(found.attachments))
    said = [Message(role="user", content=text, attachments=attachments)] if text or attachments else []
    if not (said or found.results):
        said = [Message(role="user", content="")]
    return [*found.results, *said]


def _base64_data(source: Mapping[str, Any], where: str) -> str:
    kind = required(source, "type", str, where)
    if kind == "url":
        raise refused(f"{where}.type", "is a link, and this server fetches none: send base64", "unsupported_content")
    if kind != "base64":
        raise refused(f"{where}.type", f"{quoted(kind)} cannot be served: send base64", "unsupported_content")
    return required(source, "data", str, where)


def _search_result(block: Mapping[str, Any], where: str, found: _Content) -> None:
    parts = required(block, "content", list, where)
    texts = [required(typed(part, dict, where), "text", str, f"{where}.content") for part in parts]
    name = optional(block, "title", str, where) or "search result"
    found.texts.append(fence("source", "\n".join(texts), name=name, source=optional(block, "source", str, where) or ""))


def _tool_reference(block: Mapping[str, Any], where: str, found: _Content) -> None:
    found.texts.append(f"The tool {required(block, 'tool_name', str, where)} fits.")


def _tool_use(block: Mapping[str, Any], where: str, found: _Content) -> None:
    given = block.get("input")
    arguments = json.dumps({} if given is None else typed(given, dict, f"{where}.input"))
    call, name = required(block, "id", str, where), required(block, "name", str, where)
    found.calls.append(ToolCall(id=call, name=name, arguments=arguments))

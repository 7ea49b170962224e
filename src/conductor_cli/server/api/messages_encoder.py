"""Anthropic's Messages: how an answer is written, as events or whole. Pure.

Plan and steps are narrated in one thinking block before the text, if the client asks for thinking.
What comes after the text has begun is not narrated, so that an answer stays one block. `conductor`
beside `usage` has the orchestration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal

from conductor_cli.core.chat import Finish, ToolCall
from conductor_cli.core.media import attachment_tokens
from conductor_cli.core.tools import parse_arguments
from conductor_cli.core.usage import CHARS_PER_TOKEN, Usage
from conductor_cli.server.api.encoding import conductor_object, named_event
from conductor_cli.server.api.errors import MESSAGES_PATH, error_body
from conductor_cli.server.api.request import ClientRequest, RequestError, ServedAnswer

SIGNATURE: Final = "conductor"
"""The signature of a thinking block. Clients send it back; some drop a block without one."""

_STOP_REASONS: Final[Mapping[Finish, str]] = {
    "length": "max_tokens",
    "refusal": "refusal",
    "tool": "tool_use",
}


class MessagesEncoder:
    """Writes the answer to one request. Its length is estimated, until its usage is known."""

    def __init__(self, request: ClientRequest, run: str, created: int) -> None:
        del created  # its messages have no time
        self._shows_reasoning = request.shows_reasoning
        self._model = request.model
        self._run = run
        self._ignored = request.ignored
        self._tokens = estimate_length(request)
        self._index = 0
        self._open: Literal["thinking", "text"] | None = None
        self._answers = False  # Whether the narration is over: the answer has begun

    def begin(self) -> bytes:
        """Open a block at once: clients count neither this event nor pings as a sign of life."""
        usage = {"input_tokens": self._tokens, "output_tokens": 0}
        message = self._message(
            [], None, usage | {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
        )
        started = named_event("message_start", {"type": "message_start", "message": message})
        if self._shows_reasoning:
            started += self._start("thinking")
        return started

    def heartbeat(self) -> bytes:
        kind = self._open
        if not kind:
            is_thinking = self._shows_reasoning and not self._answers
            kind = "thinking" if is_thinking else "text"
        return self._piece(kind, "")

    def reasoning(self, text: str) -> bytes:
        if text and self._shows_reasoning and not self._answers:
            return self._piece("thinking", text)
        return b""

    def text(self, text: str) -> bytes:
        self._answers = self._answers or bool(text)
        return self._piece("text", text) if text else b""

    def tool_call(self, call: ToolCall) -> bytes:
        self._answers = True
        stopped = self._stop()
        index = self._index
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        arguments = {"type": "input_json_delta", "partial_json": json.dumps(_input(call))}
        self._index += 1
        begun = _block("start", index, content_block=block) + _block(
            "delta", index, delta=arguments
        )
        return stopped + begun + _block("stop", index)

    def end(self, answer: ServedAnswer) -> bytes:
        # An answer without any block is asked for again by Claude Code.
        began = self._start_any()
        delta = {
            "type": "message_delta",
            "delta": {
                "stop_reason": _stop_reason(answer),
                "stop_sequence": _stop_sequence(answer),
            },
            "usage": _messages_usage(answer.usage.answer),
            "conductor": conductor_object(answer, self._ignored),
        }
        last = named_event("message_stop", {"type": "message_stop"})
        return began + self._stop() + named_event("message_delta", delta) + last

    def failed(self, error: RequestError) -> bytes:
        """Once a block has ended, clients show the error; before that they would ask again."""
        began = self._start_any()
        return began + self._stop() + named_event("error", self.whole_failed(error))

    def whole(self, answer: ServedAnswer) -> dict[str, Any]:
        content: list[dict[str, Any]] = []
        if self._shows_reasoning and answer.reasoning:
            content.append(
                {"type": "thinking", "thinking": answer.reasoning, "signature": SIGNATURE}
            )
        if answer.text or not answer.tool_calls:
            content.append({"type": "text", "text": answer.text})
        for call in answer.tool_calls:
            content.append(
                {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call)}
            )
        message = self._message(content, _stop_reason(answer), _messages_usage(answer.usage.answer))
        return message | {
            "stop_sequence": _stop_sequence(answer),
            "conductor": conductor_object(answer, self._ignored),
        }

    def whole_failed(self, error: RequestError) -> dict[str, Any]:
        return error_body(error, MESSAGES_PATH, self._run, self._tokens)

    def _message(
        self, content: list[dict[str, Any]], reason: str | None, usage: dict[str, Any]
    ) -> dict[str, Any]:
        return {
            "id": f"msg_{self._run}",
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": usage,
        }

    def _start_any(self) -> bytes:
        """Return the beginning of a block, where there was none."""
        if self._open or self._index:
            return b""
        return self._start("text")

    def _start(self, kind: Literal["thinking", "text"]) -> bytes:
        self._open = kind
        empty = {"thinking": "", "signature": ""} if kind == "thinking" else {"text": ""}
        return _block("start", self._index, content_block={"type": kind, **empty})

    def _piece(self, kind: Literal["thinking", "text"], text: str) -> bytes:
        """Return a piece of a block of this kind, which is begun where no such block is open."""
        opened = b""
        if self._open != kind:
            opened = self._stop() + self._start(kind)
        return opened + _block("delta", self._index, delta={"type": f"{kind}_delta", kind: text})

    def _stop(self) -> bytes:
        if self._open is None:
            return b""
        index = self._index
        signature = {"type": "signature_delta", "signature": SIGNATURE}
        signed = b""
        if self._open == "thinking":
            signed = _block("delta", index, delta=signature)
        self._open = None
        self._index = index + 1
        return signed + _block("stop", index)


def _messages_usage(usage: Usage) -> dict[str, Any]:
    """Return what the answering step used.

    `input_tokens` were neither read from a cache nor written to one.
    """
    return {
        "input_tokens": max(usage.tokens_in - usage.tokens_cached - usage.tokens_stored, 0),
        "cache_creation_input_tokens": usage.tokens_stored,
        "cache_read_input_tokens": usage.tokens_cached,
        "output_tokens": usage.tokens_out,
        "output_tokens_details": {"thinking_tokens": usage.tokens_reasoning},
    }


def _stop_reason(answer: ServedAnswer) -> str:
    if answer.tool_calls:
        return "tool_use"
    if _stop_sequence(answer) is not None:
        return "stop_sequence"
    return _STOP_REASONS.get(answer.finish, "end_turn")


def _stop_sequence(answer: ServedAnswer) -> str | None:
    """Return the stop text that ended the answer; None where none did, or nobody said so."""
    if answer.tool_calls or answer.finish != "stop":
        return None
    return answer.stop_sequence or None


def _input(call: ToolCall) -> dict[str, Any]:
    """Return the arguments as the object that this API demands.

    Others are shown to the client, which refuses them.
    """
    try:
        return parse_arguments(call)
    except ValueError:
        return {"arguments": call.arguments}


def _block(event: Literal["start", "delta", "stop"], index: int, **fields: dict[str, Any]) -> bytes:
    return named_event(
        f"content_block_{event}", {"type": f"content_block_{event}", "index": index, **fields}
    )


def estimate_length(request: ClientRequest) -> int:
    """Return about how many tokens a request has, by its length.

    Which worker will read it is not known yet.

    A token counts as 3.5 characters, which is rather too many tokens for English and too few for
    some other languages.
    """
    characters = 0
    if request.schema:
        characters = len(str(request.schema))
    tokens = 0
    for message in request.messages:
        tokens += 4
        characters += len(message.content)
        for call in message.tool_calls:
            characters += len(call.name) + len(call.arguments)
        for attachment in message.attachments:
            tokens += attachment_tokens(attachment)
    for tool in request.tools:
        characters += len(f"{tool.name}{tool.description}{tool.parameters}")
    return int(characters / CHARS_PER_TOKEN) + tokens

"""OpenAI's Chat Completions: how a request is read and an answer written, as chunks or whole. Pure.

From platform.openai.com/docs/api-reference/chat, November 2026, and from what clients send. The
narration of plan and steps is `reasoning_content`, which DeepSeek introduced and most clients show.
The last chunk has the object `conductor` of `server/api/encoding.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from conductor_cli.core.chat import Finish, Message, ToolCall
from conductor_cli.server.api.body_faults import MISSING, fault, refused, shown_word
from conductor_cli.server.api.body_models import (
    AnswerFormat,
    AttachmentCollector,
    Body,
    BoundedList,
    Count,
    impossible,
    late_instructions,
    validate_body,
    with_system_text,
)
from conductor_cli.server.api.client_tools import CUSTOM, custom_arguments, input_of, tool_of
from conductor_cli.server.api.encoding import (
    DONE,
    chat_usage,
    conductor_object,
    data_event,
    json_text,
)
from conductor_cli.server.api.errors import TOO_LONG, error_body
from conductor_cli.server.api.ignored_fields import ignored_fields
from conductor_cli.server.api.openai_body_models import TEXT_ONLY, Content, OpenAIAsking
from conductor_cli.server.api.request import ClientRequest, RequestError, ServedAnswer

FINISHES: Final[dict[Finish, str]] = {"length": "length", "refusal": "content_filter"}
"""What a client is told of the end of an answer; `stop` for any other."""


class ChatEncoder:
    """Writes the answer to one request."""

    def __init__(self, request: ClientRequest, run: str, created: int) -> None:
        self._request = request
        self._head = {
            "id": f"chatcmpl-{run}",
            "object": "chat.completion.chunk",
            "created": created,
            "model": request.model,
        }
        # With the usage in a chunk of its own, OpenAI says in all others that it comes later.
        self._tail = {"usage": None} if request.include_usage else {}
        self._calls = 0
        self._has_text = False
        # Every token is a chunk of its own, so what is the same around each is made once.
        self._before_text, self._after_text = self._chunk({"content": ""}).split(b'"content":""', 1)

    def begin(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def heartbeat(self) -> bytes:
        return b": heartbeat\n\n"  # a comment, which clients skip

    def reasoning(self, text: str) -> bytes:
        """Return a piece of the narration; nothing once the answer has begun.

        Clients such as aider would write it into the answer's text.
        """
        if not text or self._has_text or self._request.effort == "none":
            return b""
        return self._chunk({"reasoning_content": text})

    def text(self, text: str) -> bytes:
        self._has_text = True
        if text:
            return b'%b"content":%b%b' % (self._before_text, json_text(text), self._after_text)
        return b""

    def tool_call(self, call: ToolCall) -> bytes:
        index = self._calls
        self._calls = self._calls + 1
        return self._chunk({"tool_calls": [{"index": index, **self._call_object(call)}]})

    def end(self, answer: ServedAnswer) -> bytes:
        extension = {"conductor": conductor_object(answer, self._request.ignored)}
        if not self._request.include_usage:
            return self._chunk({}, finish_of(answer), extension) + DONE
        last = {**self._head, "choices": [], "usage": chat_usage(answer.usage), **extension}
        return self._chunk({}, finish_of(answer)) + data_event(last) + DONE

    def failed(self, error: RequestError) -> bytes:
        body = error_body(error)
        if error.is_final and error.code != TOO_LONG:
            # Of an error inside a stream, litellm reads the message alone; aider repeats whatever
            # has not this word.
            body["error"]["message"] += " (invalid_request_error)"
        return data_event(body) + DONE

    def whole(self, answer: ServedAnswer) -> dict[str, Any]:
        content: str | None = answer.text
        if answer.tool_calls and not answer.text:
            content = None
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if answer.reasoning and self._request.effort != "none":
            message["reasoning_content"] = answer.reasoning
        if answer.tool_calls:
            message["tool_calls"] = [self._call_object(call) for call in answer.tool_calls]
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": finish_of(answer),
        }
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": chat_usage(answer.usage),
            "conductor": conductor_object(answer, self._request.ignored),
        }

    def whole_failed(self, error: RequestError) -> dict[str, Any]:
        return error_body(error)

    def _call_object(self, call: ToolCall) -> dict[str, Any]:
        if tool_of(call, self._request.tools).kind == CUSTOM:
            custom = {"name": call.name, "input": input_of(call)}
            return {"id": call.id, "type": CUSTOM, CUSTOM: custom}
        function = {"name": call.name, "arguments": call.arguments}
        return {"id": call.id, "type": "function", "function": function}

    def _chunk(
        self, delta: dict[str, Any], finish: str | None = None, fields: dict[str, Any] | None = None
    ) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return data_event({**self._head, "choices": [choice], **self._tail, **(fields or {})})


def finish_of(answer: ServedAnswer) -> str:
    """Return the `finish_reason` of an answer."""
    if answer.tool_calls:
        return "tool_calls"
    return FINISHES.get(answer.finish, "stop")


# Requests


def _as_text(arguments: object) -> object:
    """Return arguments that are an object as the text that they are elsewhere.

    Mistral's clients send either.
    """
    return json.dumps(arguments) if isinstance(arguments, dict) else arguments


class _Function(Body):
    name: str
    arguments: Annotated[
        str | None, BeforeValidator(_as_text, json_schema_input_type=str | dict[str, Any] | None)
    ] = None
    input: Any = None  # of a custom tool

    def read(self, call_id: str) -> ToolCall:
        """Return the call of a function."""
        return ToolCall(id=call_id, name=self.name, arguments=self.arguments or "")


class _Call(Body):
    """A call that a reply made."""

    id: str
    type: str | None = None
    function: _Function | None = None
    custom: _Function | None = None

    def read(self, where: str) -> ToolCall:
        """Return the call. Raises `RequestError`."""
        if self.type == "custom" and self.custom is not None:
            arguments = custom_arguments(str(self.custom.input or ""))
            return ToolCall(id=self.id, name=self.custom.name, arguments=arguments)
        if self.function is None:
            raise refused(f"{where}.{self.type or 'function'}", "is missing", MISSING)
        return self.function.read(self.id)


class _ChatMessage(Body):
    """One message. Which fields must be there depends on its role."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Content | None = None
    name: str | None = None
    refusal: str | None = None
    tool_calls: BoundedList[_Call] | None = None
    function_call: _Function | None = None
    tool_call_id: str | None = None

    def read_calls(self, where: str) -> list[ToolCall]:
        """Return the calls of a reply. Raises `RequestError`."""
        calls = list[ToolCall]()
        for number, call in enumerate(self.tool_calls or ()):
            calls.append(call.read(f"{where}.tool_calls[{number}]"))
        return calls

    def is_unheard(self, *, are_named: bool) -> bool:
        """Return whether no worker is told the name of who speaks. That of a tool is in its call.

        `are_named` says that several users speak.
        """
        if not self.name or self.role in {"tool", "function"}:
            return False
        return self.role != "user" or not are_named


def _once(number: int) -> int:
    if number != 1:
        raise fault("must be 1: each request is answered once")
    return number


def _no_audio(modalities: list[Any]) -> list[Any]:
    if "audio" in modalities:
        raise fault("cannot have audio: the answer is text", "unsupported_parameter")
    return modalities


class ChatBody(OpenAIAsking):
    """The body of `POST /v1/chat/completions`."""

    messages: Annotated[BoundedList[_ChatMessage], Field(min_length=1)]
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    response_format: AnswerFormat | None = None
    reasoning_effort: Any = None
    reasoning: Any = None
    n: Annotated[int, AfterValidator(_once)] | None = None
    modalities: Annotated[list[Any], AfterValidator(_no_audio)] | None = None
    logprobs: Annotated[
        Any, impossible("cannot be served: the answer may come from any worker")
    ] = None
    functions: Annotated[Any, impossible("is the old form of tools: send tools")] = None
    function_call: Annotated[
        Any, impossible("is the old form of tool_choice: send tool_choice")
    ] = None
    audio: Annotated[Any, impossible("cannot be served: the answer is text")] = None

    def without_effect(self) -> Iterator[str]:
        yield from super().without_effect()
        # Each run is stored as the server stores traces, and none is read by its id.
        if self.store is not None:
            yield "store"
        if any(modality != "text" for modality in self.modalities or ()):
            yield "modalities"
        if self.reasoning_effort is not None and not isinstance(self.reasoning_effort, str):
            yield "reasoning_effort"
        if isinstance(self.reasoning, Mapping):
            yield from _unread_reasoning(self.reasoning)
        elif self.reasoning is not None:
            yield "reasoning"
        are_named = _are_named(self.messages)
        if any(entry.is_unheard(are_named=are_named) for entry in self.messages):
            yield "messages[].name"


def _unread_reasoning(reasoning: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fields of an object `reasoning` but for its effort, if that is a word."""
    for name, value in reasoning.items():
        is_effort = name == "effort" and (value is None or isinstance(value, str))
        if value is not None and not is_effort:
            yield f"reasoning.{shown_word(name)}"


def _are_named(entries: Iterable[_ChatMessage]) -> bool:
    """Return whether several users speak: then the name of each belongs to what a worker reads."""
    return len({entry.name for entry in entries if entry.role == "user"}) > 1


class ChatCompletionsApi:
    """`POST /v1/chat/completions`."""

    name = "chat_completions"
    encoder = ChatEncoder

    def parse(self, body: Mapping[str, Any]) -> ClientRequest:
        request_body = validate_body(ChatBody, body)
        files = AttachmentCollector()
        # Any word. It may also stand in an object `reasoning`, as in Responses.
        reasoning = request_body.reasoning if isinstance(request_body.reasoning, Mapping) else {}
        effort = request_body.reasoning_effort or reasoning.get("effort")
        form = request_body.response_format
        streaming = request_body.stream_options
        options = request_body.read_options()
        options["ignored"] = ignored_fields(request_body, body, options["ignored"])
        return ClientRequest(
            messages=_read_messages(request_body.messages, files),
            blobs=files.blobs,
            texts=files.texts,
            max_tokens=request_body.max_completion_tokens or request_body.max_tokens,
            effort=effort if isinstance(effort, str) else "",
            include_usage=bool(streaming and streaming.include_usage),
            **(form.read("response_format") if form else {}),
            **options,
        )


def _read_messages(
    entries: Sequence[_ChatMessage], files: AttachmentCollector
) -> tuple[Message, ...]:
    """Return the conversation. The system texts before it become one message, the first.

    Raises `RequestError`.
    """
    system = list[str]()
    talk = list[Message]()
    are_named = _are_named(entries)
    functions = 0  # The calls in the old form, which has no ids
    for number, entry in enumerate(entries):
        where = f"messages[{number}]"
        if entry.content is None and entry.role != "assistant":
            raise refused(f"{where}.content", "is missing", MISSING)
        content = files.take(entry.content)
        if content.attachments and entry.role in {"system", "developer", "assistant"}:
            raise refused(f"{where}.content", TEXT_ONLY)
        match entry.role:
            case "system" | "developer" if talk:
                talk += late_instructions(content.texts)
            case "system" | "developer":
                system.append("\n".join(content.texts))
            case "user":
                speaker = f"{entry.name}: " if are_named and entry.name else ""
                talk.append(content.message("user", prefix=speaker))
            case "assistant":
                text = "\n".join(content.texts) or entry.refusal or ""
                calls = entry.read_calls(where)
                if (old := entry.function_call) is not None:
                    functions += 1
                    calls.append(old.read(_function_id(functions)))
                if text or calls:  # else there is only reasoning, which a client sends back
                    talk.append(Message(role="assistant", content=text, tool_calls=tuple(calls)))
            case "tool":
                if entry.tool_call_id is None:
                    raise refused(f"{where}.tool_call_id", "is missing", MISSING)
                talk.append(content.message("tool", tool_call_id=entry.tool_call_id))
            case "function":
                if not functions:
                    message = "is function, but no message before it has a function_call"
                    raise refused(f"{where}.role", message)
                # It is the result of the newest call
                talk.append(content.message("tool", tool_call_id=_function_id(functions)))
    return with_system_text(system, talk)


def _function_id(number: int) -> str:
    return f"call_function_{number}"

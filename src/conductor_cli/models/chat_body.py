"""Requests in the form of OpenAI's chat completions, which every other API is translated from.

Pure.

From platform.openai.com/docs/api-reference/chat, November 2026. The form is richer than what that
API takes: a message of role `tool` may hold content parts and `is_error`, and an assistant's
message what its adapter gave as `provider_data`. A translator uses them; `plain_messages` takes
them out for servers that speak chat completions itself. Tools have names that every API takes (see
`tool_schemas`).

A body has a `Base64File` where the text of a file belongs. While the body is sent, each file is
read, turned into base64 piece by piece, and forgotten. So a request with ten images needs the
memory of one, and no copy of its base64.
"""

from __future__ import annotations

import json
import secrets
from base64 import b64encode
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Final

from conductor_cli.core.chat import Attachment, Message, ReadAttachment, Request, Tool
from conductor_cli.core.errors import ModelError
from conductor_cli.core.mappings import only_keys
from conductor_cli.core.serialization import encode_json
from conductor_cli.core.terminal_text import is_blank
from conductor_cli.models.base import lower_limit
from conductor_cli.models.presets import ThinkingField
from conductor_cli.models.tool_schemas import (
    PLAIN_FORM,
    SchemaForm,
    api_name,
    id_of_chat,
    is_kimi,
    object_schema,
    with_api_keys,
)

PIECE: Final = 3 * 64 * 1024
"""Bytes of a file that are encoded at once: a multiple of three, so that the pieces join to one
base64 text.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base64File:
    """Stands in a body for the text `prefix` and the bytes of `attachment` in base64."""

    attachment: Attachment
    read: Callable[[Attachment], bytes]
    prefix: str = ""

    def text(self) -> str:
        """Return all of the text, for a library that wants it.

        Raises `ModelError` if the bytes are gone.
        """
        return self.prefix + b64encode(self._bytes()).decode()

    @property
    def length(self) -> int:
        """The bytes of the base64 text, without the prefix."""
        return -(-self.attachment.size // 3) * 4

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the base64 text, without the prefix."""
        import asyncio  # commands that send nothing start without it

        content = memoryview(await asyncio.to_thread(self._bytes))
        for start in range(0, len(content), PIECE):
            yield b64encode(content[start : start + PIECE])

    def _bytes(self) -> bytes:
        content = self.read(self.attachment)
        if len(content) != self.attachment.size:
            # The length of the request has been announced by then.
            message = (
                f"{self.attachment.name} has changed: {len(content)} bytes instead of "
                f"{self.attachment.size}"
            )
            raise ModelError("file", message, hint="attach it again")
        return content


class JsonBody:
    """A JSON value as the bytes of a request, whose files are read while they are sent.

    May be sent again.
    """

    def __init__(self, value: Any) -> None:  # noqa: ANN401 - any JSON value
        files: list[Base64File] = []
        mark = secrets.token_hex(16)

        def default(item: object) -> str:
            if not isinstance(item, Base64File):
                raise TypeError(f"not a JSON value: {type(item).__name__}")
            files.append(item)
            return item.prefix + mark

        encoder = json.JSONEncoder(ensure_ascii=False, default=default)
        text = encode_json(value, encoder).encode("utf-8", "replace")
        self._texts = text.split(mark.encode())
        self._files = files

    @property
    def headers(self) -> dict[str, str]:
        """What a request with this body says of it."""
        length = sum(map(len, self._texts)) + sum(file.length for file in self._files)
        return {"content-type": "application/json", "content-length": str(length)}

    @property
    def content(self) -> bytes | AsyncIterator[bytes]:
        """All of it at once if it holds no file, else in pieces."""
        if self._files:
            return self._pieces()
        return self._texts[0]

    async def _pieces(self) -> AsyncIterator[bytes]:
        for text, file in zip(self._texts, (*self._files, None), strict=True):
            yield text
            if file is not None:
                async for piece in file.pieces():
                    yield piece


def with_texts(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a JSON value with the text of each file in its place."""
    if isinstance(value, Base64File):
        return value.text()
    if isinstance(value, Mapping):
        return {name: with_texts(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [with_texts(item) for item in value]
    return value


def files_in(value: Any) -> Iterator[Base64File]:  # noqa: ANN401 - any JSON value
    """Yield the files that a JSON value holds, in order."""
    if isinstance(value, Base64File):
        yield value
    elif isinstance(value, Mapping):
        yield from files_in(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from files_in(item)


# The key of what the same adapter gave with a turn, in its message
PROVIDER_DATA: Final = "provider_data"
IS_ERROR: Final = "is_error"  # the key that is true in the result of a tool that failed
# The key that is true where the texts of a tool's result are its own, with files between
STOP_SEQUENCE: Final = "stop_sequence"  # the key of the stop text that ended a reply, in a frame
IN_PLACE: Final = "in_place"
KEPT: Final = ("reasoning_content", "reasoning_details", "thinking_blocks")
"""What servers with this API send in a turn and want back in it.

DeepSeek and Moonshot refuse a turn with tool calls that lacks its `reasoning_content`. Signed
thinking of other providers is `reasoning_details` at OpenRouter, `thinking_blocks` in litellm.
"""

EXTRA: Final = "extra_content"
"""What belongs to one tool call and is wanted back in it, by the call's id.

Google's `thought_signature` is such a thing.
"""

# The field that holds what a model wrote as arguments if that was no object
INVALID: Final = "invalid_arguments"

IMAGE_DETAIL: Final = "image detail"
"""Stands among the fields that a server refuses for the `detail` of images."""

ORIGINAL_DETAIL: Final = "image detail original"
"""Stands among them for the finest `detail`, which older servers do not have."""


def image_details(messages: Iterable[Message]) -> frozenset[str]:
    """Return which of `IMAGE_DETAIL` and `ORIGINAL_DETAIL` messages ask for."""
    asked = set[str]()
    for message in messages:
        for attachment in message.attachments:
            if attachment.detail:
                asked.add(IMAGE_DETAIL)
            if attachment.detail == "original":
                asked.add(ORIGINAL_DETAIL)
    return frozenset(asked)


def finest_detail(messages: Iterable[Message], dropped: Collection[str]) -> str:
    """Return what is left out next where a server refuses the details that messages ask for.

    Empty where nothing is asked for. A server that knows other details may not know the finest one.
    """
    asked = image_details(messages)
    if IMAGE_DETAIL in dropped or not asked:
        return ""
    if ORIGINAL_DETAIL in asked and ORIGINAL_DETAIL not in dropped:
        return ORIGINAL_DETAIL
    return IMAGE_DETAIL


def with_details(messages: tuple[Message, ...], dropped: Collection[str]) -> tuple[Message, ...]:
    """Return messages whose images ask for no `detail` that is `dropped`, as a server refuses it.

    `high` is sent in place of `original`.
    """
    if not image_details(messages) & frozenset(dropped):
        return messages
    changed = list[Message]()
    for message in messages:
        attachments = list[Attachment]()
        for attachment in message.attachments:
            if IMAGE_DETAIL in dropped:
                attachments.append(replace(attachment, detail=None))
            elif attachment.detail == "original":
                attachments.append(replace(attachment, detail="high"))
            else:
                attachments.append(attachment)
        changed.append(replace(message, attachments=tuple(attachments)))
    return tuple(changed)


LEAST_BUDGET: Final = 1024  # Tokens of thinking below which Anthropic takes no budget


def fitting_budget(options: Mapping[str, Any], most: int | None) -> int | None:
    """Return the thinking budget for a reply of at most so many tokens, which count both.

    None where that of the worker fits, or there is none.
    """
    budget = options.get("thinking_budget")
    if not budget or most is None or budget < most:
        return None
    return most // 2 if most // 2 >= LEAST_BUDGET else 0


def note_of_budget(budget: int) -> str:
    """Return the notice about a thinking budget that was made to fit."""
    amount = f"at most {budget:,} tokens" if budget else "no tokens"
    return f"thinks with {amount}, because this reply may have fewer than its thinking_budget"


def _budget_fields(form: ThinkingField, tokens: int | None) -> dict[str, Any]:
    """Return a thinking budget in the body of a request.

    `thinking` is platform.claude.com's, which litellm has too; the other form is that of
    openrouter.ai/docs/use-cases/reasoning-tokens, all as of November 2026.
    """
    if not form or tokens is None:
        return {}
    if form == "thinking":
        if tokens:
            return {"thinking": {"type": "enabled", "budget_tokens": tokens}}
        return {"thinking": {"type": "disabled"}}
    if tokens:
        return {"reasoning": {"max_tokens": tokens}}
    return {"reasoning": {"enabled": False}}


def request_body(
    request: Request,
    options: Mapping[str, Any],
    budget: ThinkingField,
    max_tokens_field: str = "max_tokens",
    form: SchemaForm = PLAIN_FORM,
) -> dict[str, Any]:
    """Return the body of a streamed request in OpenAI's form, with a worker's own settings.

    It has None for what is not set. The schemas of tools are in `form`.
    """
    max_tokens = lower_limit(request.max_tokens, options.get("max_tokens"))
    temperature = request.temperature
    if temperature is None:
        temperature = options.get("temperature")
    return {
        **chat_fields(request, form),
        **request.sampling,
        "stream": True,
        "stream_options": {"include_usage": True},
        max_tokens_field: max_tokens,
        "temperature": temperature,
        "seed": request.seed,
        "stop": list(request.stop) or None,
        "reasoning_effort": options.get("reasoning_effort"),
        "top_p": options.get("top_p", request.sampling.get("top_p")),
        **_budget_fields(budget, options.get("thinking_budget")),
    }


def chat_fields(request: Request, form: SchemaForm = PLAIN_FORM) -> dict[str, Any]:
    """Return the messages of a request, and its tools with what is to be done with them.

    Their schemas are in `form`.
    """
    messages = _without_blank(request.messages)
    fields: dict[str, Any] = {
        "messages": [_message(message, request.read_attachment) for message in messages]
    }
    if not request.tools:
        return fields
    fields["tools"] = []
    for tool in request.tools:
        function: dict[str, Any] = {"name": api_name(tool.name)}
        if tool.description:
            function["description"] = tool.description
        # A tool without arguments has an empty object of them: servers refuse a schema that is no
        # object's.
        schema = object_schema(tool.parameters, with_items=form.with_items)
        function["parameters"] = with_api_keys(schema, form)
        fields["tools"].append({"type": "function", "function": function})
    if isinstance(request.tool_choice, Tool):
        fields["tool_choice"] = {
            "type": "function",
            "function": {"name": api_name(request.tool_choice.name)},
        }
    elif request.tool_choice != "auto":  # the default of every server
        fields["tool_choice"] = request.tool_choice
    if not request.parallel_tool_calls:
        fields["parallel_tool_calls"] = False
    return fields


def _without_blank(messages: Sequence[Message]) -> Sequence[Message]:
    """Return messages without those that say nothing, which many APIs refuse, but for the last."""
    if all(map(_says_something, messages[:-1])):
        return messages
    kept = [message for message in messages[:-1] if _says_something(message)]
    return [*kept, *messages[-1:]]


def _says_something(message: Message) -> bool:
    has_more = bool(message.attachments or message.tool_calls or message.role == "tool")
    return has_more or not is_blank(message.content)


def with_short_descriptions(body: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Return the tools of a body with at most so many characters in each description."""
    tools = []
    for tool in body.get("tools", ()):
        function = dict(tool["function"])
        if "description" in function:
            function["description"] = function["description"][:most]
        tools.append({**tool, "function": function})
    return {"tools": tools} if tools else {}


def messages_for(model: str, messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages as chat completions takes them for a model."""
    if is_kimi(model):
        messages = with_kimi_ids(messages)
    return plain_messages(messages, id_of_chat(model))


def with_kimi_ids(messages: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield messages whose calls have ids of the form `functions.NAME:NUMBER`.

    The chat template of Kimi's models shows them the id of a call, and its name nowhere else. Where
    they see other ids they call no more tools (docs/tool_call_guidance.md of MoonshotAI/Kimi-K2).
    The number counts the calls of the whole conversation.
    """
    ids: dict[str, str] = {}
    count = 0
    for message in messages:
        said = dict(message)
        if "tool_calls" in said:
            calls = []
            for call in said["tool_calls"]:
                ids[call["id"]] = f"functions.{call['function']['name']}:{count}"
                calls.append(call | {"id": ids[call["id"]]})
                count += 1
            said["tool_calls"] = calls
            kept = said.get(PROVIDER_DATA, {})
            if EXTRA in kept:
                extra = {ids.get(given, given): item for given, item in kept[EXTRA].items()}
                said[PROVIDER_DATA] = {**kept, EXTRA: extra}
        elif said["role"] == "tool":
            given = said["tool_call_id"]
            said["tool_call_id"] = ids.get(given, given)
        yield said


def plain_messages(
    messages: Iterable[Mapping[str, Any]], call_id: Callable[[str], str]
) -> list[dict[str, Any]]:
    """Return messages as chat completions itself takes them.

    A tool's result may be text only: its files follow in a message of the user, after the last
    result of that turn. `call_id` makes ids of calls such as the server takes them.
    """
    plain: list[dict[str, Any]] = []
    shown: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] != "tool" and shown:
            plain.append({"role": "user", "content": shown})
            shown = []
        sent = dict(message)
        for name in (PROVIDER_DATA, IS_ERROR, IN_PLACE):
            sent.pop(name, None)
        if message["role"] == "tool":
            text, files = _parts_of_result(message)
            if message.get(IS_ERROR):
                text = f"Error: {text}"
            sent["content"] = text
            sent["tool_call_id"] = call_id(message["tool_call_id"])
            if files:
                title = f"The files of the result {sent['tool_call_id']}:"
                shown += [{"type": "text", "text": title}, *files]
        elif message["role"] == "assistant":
            sent |= _wanted_back(message)
            if "tool_calls" in sent:
                calls = [call | {"id": call_id(call["id"])} for call in sent["tool_calls"]]
                sent["tool_calls"] = calls
        plain.append(sent)
    if shown:
        plain.append({"role": "user", "content": shown})
    return plain


def _parts_of_result(message: Mapping[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """Return the text of a tool's result and its files."""
    content = message["content"]
    if not isinstance(content, list):
        return str(content or ""), []
    if message.get(IN_PLACE):
        texts = []
        others = []
        for part in content:
            if part["type"] == "text":
                texts.append(part["text"])
            else:
                others.append(part)
        return "\n".join(texts), others
    # The last part is the message's own text unless it is a file; all the texts before belong to
    # files.
    if content and content[-1]["type"] == "text" and content[-1]["text"]:
        return content[-1]["text"], content[:-1]
    return "", content


def system_texts(messages: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return the contents of the system messages of a body in OpenAI's form."""
    return [message["content"] for message in messages if message["role"] == "system"]


def _wanted_back(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a model's turn that its server sent and wants back in it."""
    extra = message.get(PROVIDER_DATA, {})
    fields = only_keys(extra, KEPT)
    if EXTRA in extra and "tool_calls" in message:
        fields["tool_calls"] = []
        for call in message["tool_calls"]:
            sent = dict(call)
            if call["id"] in extra[EXTRA]:
                sent[EXTRA] = extra[EXTRA][call["id"]]
            fields["tool_calls"].append(sent)
    return fields


def _message(message: Message, read: ReadAttachment | None) -> dict[str, Any]:
    sent: dict[str, Any] = {"role": message.role, "content": _content(message, read)}
    if message.tool_calls:
        sent["content"] = sent["content"] or None
        sent["tool_calls"] = []
        for call in message.tool_calls:
            arguments = call.arguments
            # Many servers parse them: they become the one field of an object
            if arguments_object(arguments) is None:
                arguments = json.dumps({INVALID: arguments}, ensure_ascii=False)
            function = {"name": api_name(call.name), "arguments": arguments}
            sent["tool_calls"].append({"id": call.id, "type": "function", "function": function})
    if message.role == "tool":
        sent["tool_call_id"] = message.tool_call_id
        if message.is_error:
            sent[IS_ERROR] = True
        if message.places:
            sent[IN_PLACE] = True
    if message.provider_data:
        sent[PROVIDER_DATA] = message.provider_data
    return sent


def _content(message: Message, read: ReadAttachment | None) -> str | list[dict[str, Any]]:
    """Return a text alone as a text; with files, the parts of both.

    The files come before it, each after its name if there are several, or in their places.
    """
    if not message.attachments:
        return message.content
    parts: list[dict[str, Any]] = []
    start = 0
    for attachment, position in zip_longest(message.attachments, message.places):
        if position is not None:
            parts += _text_part(message.content[start:position], follows=start > 0)
            start = position
        elif len(message.attachments) > 1:
            parts += _text_part(f"{attachment.name}:")
        if read is None:
            raise ModelError("file", f"the content of {attachment.name} is not at hand")
        url = Base64File(
            attachment=attachment, read=read, prefix=f"data:{attachment.media_type};base64,"
        )
        if attachment.kind == "image":
            image: dict[str, Any] = {"url": url}
            if attachment.detail:
                image["detail"] = attachment.detail
            parts.append({"type": "image_url", "image_url": image})
        else:
            parts.append({"type": "file", "file": {"filename": attachment.name, "file_data": url}})
    return [*parts, *_text_part(message.content[start:], follows=start > 0)]


def _text_part(text: str, *, follows: bool = False) -> list[dict[str, Any]]:
    if follows:
        text = text.removeprefix("\n")
    if not text:
        return []
    return [{"type": "text", "text": text}]


def arguments_object(arguments: str) -> dict[str, Any] | None:
    """Return the arguments of a call as the object that they should be.

    None if the model wrote something else.
    """
    try:
        value = json.loads(arguments)
        json.dumps(value, allow_nan=False)  # `NaN` and 1e999 can be read but not sent
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return value

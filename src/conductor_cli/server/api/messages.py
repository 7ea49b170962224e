"""Anthropic's Messages: how a request is read. `messages_encoder` writes the answer. Pure.

From platform.claude.com/docs (Messages, streaming, tool use, thinking, structured outputs),
November 2026, and from what clients send.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from conductor_cli.core.chat import Attachment, Message, Tool, ToolCall, ToolChoice
from conductor_cli.core.question import fence
from conductor_cli.core.terminal_text import one_line
from conductor_cli.server.api.body_faults import MISSING, fault, quoted, refused, shown_word
from conductor_cli.server.api.body_models import (
    COMPACTED_TO,
    NO_SCREENS,
    AnswerFormat,
    Asking,
    AttachmentCollector,
    Body,
    BoundedList,
    Choice,
    Count,
    Part,
    StopTexts,
    TextPart,
    ToolName,
    add_tool,
    as_parts,
    choose,
    find_tool,
    impossible,
    kind_of_tool,
    late_instructions,
    left_out_tools,
    unique_texts,
    validate_body,
    with_system_text,
)
from conductor_cli.server.api.client_tools import CLIENT_RUN_UNSERVED, MESSAGES_TOOLS
from conductor_cli.server.api.ignored_fields import ignored_fields
from conductor_cli.server.api.messages_encoder import MessagesEncoder, estimate_length
from conductor_cli.server.api.openai_body_models import read_sampling
from conductor_cli.server.api.request import ClientRequest, RequestError
from conductor_cli.server.api.uploads import (
    KEEPS_NO_FILES,
    Upload,
    bytes_of_base64,
    read_document,
    read_image,
)

BILLING: Final = "x-anthropic-billing-header"
"""How a block of Claude Code's system text begins that differs by task and says nothing to a
model.
"""


def _source(decode: Callable[[bytes], Upload]) -> BeforeValidator:
    """Read the source of an image or a document, which must be in the request itself."""

    def validate(source: object) -> Upload:
        fields = source if isinstance(source, dict) else {}
        kind = fields.get("type")
        data = fields.get("data")
        if kind not in ("base64", "text") or (kind == "text" and decode is read_image):
            raise fault(KEEPS_NO_FILES, "unsupported_content")
        if not isinstance(data, str):
            raise fault("must have data as a string", "invalid_type")
        if kind == "text":
            if not data or "\0" in data:
                raise fault("must have data that is text", "unsupported_file")
            return Upload(b"", "text/plain", text=data)
        return decode(bytes_of_base64(data))

    return BeforeValidator(validate, json_schema_input_type=dict[str, Any])


class _ImageBlock(Part):
    type: Literal["image"]
    source: Annotated[Upload, _source(read_image)]

    def take(self, files: AttachmentCollector) -> Iterator[str | Attachment]:
        yield files.keep(self.source)


class _Citations(Body):
    enabled: bool | None = None


def _no_citations(citations: _Citations | None) -> _Citations | None:
    if citations is not None and citations.enabled:
        raise fault("cannot be served: answers have no citations", "unsupported_parameter")
    return citations


class _ContentSource(Body):
    """A document that its client has put together of texts and images."""

    type: Literal["content"]
    content: Annotated[
        BoundedList[Annotated[TextPart | _ImageBlock, Field(discriminator="type")]],
        BeforeValidator(as_parts, json_schema_input_type=str | list[dict[str, Any]]),
    ]

    def take(self, files: AttachmentCollector, title: str) -> Iterator[str | Attachment]:
        """Yield the images, and what stands between them as a quoted file."""
        texts = list[str]()
        for part in self.content:
            if isinstance(part, TextPart):
                texts.append(part.text)
                continue
            yield from _quoted(texts, title)
            texts = []
            yield from part.take(files)
        yield from _quoted(texts, title)


def _quoted(texts: Sequence[str], title: str) -> Iterator[str]:
    if any(texts):
        yield fence("file", "\n".join(texts), name=one_line(title))


def _kind_of_source(source: object) -> str:
    is_content = isinstance(source, dict) and source.get("type") == "content"
    return "content" if is_content else "upload"


class _DocumentBlock(Part):
    type: Literal["document"]
    source: Annotated[
        Annotated[_ContentSource, Tag("content")]
        | Annotated[Upload, _source(read_document), Tag("upload")],
        Discriminator(_kind_of_source),
    ]
    title: str | None = None
    context: str | None = None
    citations: Annotated[_Citations | None, AfterValidator(_no_citations)] = None

    def take(self, files: AttachmentCollector) -> Iterator[str | Attachment]:
        yield self.context or ""
        title = self.title
        if isinstance(self.source, _ContentSource):
            yield from self.source.take(files, title or "document")
            return
        if not title and self.source.text is not None:
            title = "document"
        yield files.keep(self.source, title)


class _ReferenceBlock(Part):
    type: Literal["tool_reference"]
    tool_name: str

    def take(self, _: AttachmentCollector) -> Iterator[str]:
        yield f"The tool {self.tool_name} fits."


class _CallBlock(Part):
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any] | None = None

    def take(self, _: AttachmentCollector) -> Iterator[ToolCall]:
        yield ToolCall(id=self.id, name=self.name, arguments=json.dumps(self.input or {}))


_ResultPart = Annotated[
    TextPart | _ImageBlock | _DocumentBlock | _ReferenceBlock, Field(discriminator="type")
]


class _ResultBlock(Part):
    type: Literal["tool_result"]
    tool_use_id: str
    content: Annotated[BoundedList[_ResultPart], BeforeValidator(as_parts)] | None = None
    is_error: bool | None = None

    def take(self, files: AttachmentCollector) -> Iterator[Message]:
        content = files.take(self.content)
        yield content.message("tool", tool_call_id=self.tool_use_id, is_error=bool(self.is_error))


DEFERRED: Final = "DeferredToolPlaceholder"
"""The name of an entry by which Claude Code says that there are tools it has not shown yet."""


class _Tool(Body):
    """A tool of the client.

    With another type it is one that Anthropic's servers run, or that its models are trained for.
    """

    type: str | None = None
    name: ToolName | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    defer_loading: bool | None = None

    def read(self, where: str) -> Tool:
        """Return the tool of the client. Raises `RequestError`."""
        if self.name is None:
            raise refused(f"{where}.name", "is missing", MISSING)
        if self.input_schema is None:
            raise refused(f"{where}.input_schema", "is missing", MISSING)
        description = self.description or ""
        return Tool(name=self.name, description=description, parameters=self.input_schema)

    def without_effect(self) -> Iterator[str]:
        """Each tool is shown to the worker from the beginning, but for `DEFERRED`."""
        if self.defer_loading and self.name != DEFERRED:
            yield "defer_loading"


class _ChangedTool(Body):
    """A tool by its name, or by its definition; or one of a server of tools, which are left out."""

    type: Literal[
        "tool_reference", "tool_definition", "mcp_tool_reference", "mcp_toolset_reference"
    ]
    name: str | None = None
    server_name: str | None = None
    definition: _Tool | None = None


class _ToolChange(Part):
    """A change of the tools in the middle of a conversation. The last one of a tool counts."""

    type: Literal["tool_addition", "tool_removal"]
    tool: _ChangedTool


class _SystemBlock(Part):
    """A system text, or a change of the tools, behind what the user says."""

    type: Literal["mid_conv_system"]
    content: Annotated[
        BoundedList[Annotated[TextPart | _ToolChange, Field(discriminator="type")]],
        BeforeValidator(as_parts, json_schema_input_type=str | list[dict[str, Any]]),
    ]

    def take(self, _: AttachmentCollector) -> Iterator[str]:
        texts = [part.text for part in self.content if isinstance(part, TextPart)]
        for message in late_instructions(texts):
            yield message.content


class _CompactionBlock(Part):
    """A summary, by Anthropic's servers, of all blocks before it, which it takes the place of.

    Without a content it is of a compaction that failed, and changes nothing.
    """

    type: Literal["compaction"]
    content: Annotated[str, Field(min_length=1)] | None = None

    def take(self, files: AttachmentCollector) -> Iterator[Message]:
        if self.content is not None:
            # It may quote files of the conversation, so it is one for all rules about files
            quotation = files.quote(self.content, "summary")
            yield Message(role="user", content=f"{COMPACTED_TO}\n{quotation}")


class _DroppedBlock(Part):
    """A block of an earlier reply that no worker needs: thinking, or what Anthropic itself did."""

    is_left_out: ClassVar[bool] = True
    type: str

    def without_effect(self) -> Iterator[str]:
        yield shown_word(self.type)


_DROPPED: Final = frozenset(
    {
        "fallback",
        "mcp_tool_listing",
        "mcp_tool_use",
        "redacted_thinking",
        "server_tool_use",
        "thinking",
    }
)
"""The types of such blocks, besides those that end with `_tool_result`."""


def _kind_of_block(block: object) -> str | None:
    if not isinstance(block, dict) or block.get("type") is None:
        return None
    kind = str(block["type"])  # it may be anything
    return "dropped" if kind in _DROPPED or kind.endswith("_tool_result") else kind


_Block = Annotated[
    Annotated[TextPart, Tag("text")]
    | Annotated[_ImageBlock, Tag("image")]
    | Annotated[_DocumentBlock, Tag("document")]
    | Annotated[_CallBlock, Tag("tool_use")]
    | Annotated[_ResultBlock, Tag("tool_result")]
    | Annotated[_SystemBlock, Tag("mid_conv_system")]
    | Annotated[_ToolChange, Tag("tool_addition")]
    | Annotated[_ToolChange, Tag("tool_removal")]
    | Annotated[_CompactionBlock, Tag("compaction")]
    | Annotated[_DroppedBlock, Tag("dropped")],
    Discriminator(_kind_of_block),
]
_Content = Annotated[
    BoundedList[_Block],
    BeforeValidator(as_parts, json_schema_input_type=str | list[dict[str, Any]]),
]

_ALLOWED: Final[Mapping[str, tuple[type[Body], ...]]] = {
    "user": (TextPart, _ImageBlock, _DocumentBlock, _ResultBlock, _SystemBlock),
    "assistant": (TextPart, _CallBlock, _CompactionBlock, _DroppedBlock),
    "system": (TextPart, _ToolChange),
    "instructions": (TextPart,),
}
"""The blocks of each role, and of the system text before the conversation."""


class _MessagesTurn(Body):
    role: Literal["user", "assistant", "system"]
    content: _Content


class _Choice(Body):
    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class _OutputConfig(Body):
    effort: Any = None
    format: AnswerFormat | None = None

    def without_effect(self) -> Iterator[str]:
        if self.effort is not None and not isinstance(self.effort, str):
            yield "effort"


class _Thinking(Body):
    type: Any = "disabled"
    display: Any = None


def _anywhere(region: str | None) -> str | None:
    if region not in {None, "", "global"}:
        raise fault(
            "cannot be promised: the workers of this server decide where they compute",
            "unsupported_parameter",
        )
    return region


class MessagesBody(Asking):
    """The body of `POST /v1/messages`, and of `/v1/messages/count_tokens`."""

    messages: Annotated[BoundedList[_MessagesTurn], Field(min_length=1)]
    system: _Content | None = None
    tools: BoundedList[_Tool] | None = None
    mcp_servers: Any = None
    tool_choice: _Choice | None = None
    max_tokens: Count | None = None
    stop_sequences: StopTexts | None = None
    thinking: _Thinking | None = None
    output_config: _OutputConfig | None = None
    output_format: AnswerFormat | None = None
    thread: Any = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    container: Annotated[Any, impossible("cannot be served: this server runs no containers")] = None
    fallbacks: Annotated[
        Any, impossible("cannot be served: conductor chooses who answers instead")
    ] = None
    inference_geo: Annotated[str | None, AfterValidator(_anywhere)] = None


THREAD_UNSUPPORTED: Final = "thread_unsupported_request"
"""The code by which Anthropic's SDKs learn to send the whole conversation instead of a thread."""

_CHOICES: Final[Mapping[str, ToolChoice]] = {"auto": "auto", "any": "required", "none": "none"}


class MessagesApi:
    """`POST /v1/messages` and `/v1/messages/count_tokens`."""

    name = "messages"
    encoder = MessagesEncoder

    def parse(self, body: Mapping[str, Any]) -> ClientRequest:
        request_body = validate_body(MessagesBody, body)
        _refuse_thread(request_body.thread)
        files = AttachmentCollector()
        config = request_body.output_config or _OutputConfig()
        thinking = request_body.thinking or _Thinking()
        tools, hosted = _read_tools(request_body)
        kept, choice, needed = _read_choice(request_body.tool_choice, tools, hosted)
        places = {kind: f"tools[].{kind}" for name, kind in hosted.items() if name}
        if request_body.mcp_servers:
            places["mcp"] = "mcp_servers"
        left_out = left_out_tools(places, needed, choice)
        return ClientRequest(
            model=request_body.model,
            messages=_read_turns(request_body, files),
            blobs=files.blobs,
            texts=files.texts,
            tools=kept,
            tool_choice=choice,
            hosted=unique_texts(needed),
            parallel_tool_calls=not (
                request_body.tool_choice and request_body.tool_choice.disable_parallel_tool_use
            ),
            max_tokens=request_body.max_tokens,
            temperature=request_body.temperature,
            stop=unique_texts(request_body.stop_sequences),
            sampling=read_sampling(request_body),
            ignored=ignored_fields(request_body, body, left_out),
            effort=_effort_of(config),
            stream=bool(request_body.stream),
            include_usage=True,
            max_cost=request_body.max_cost,
            shows_reasoning=thinking.type != "disabled" and thinking.display != "omitted",
            **_form_of(config, request_body.output_format),
        )

    def count_tokens(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to `count_tokens`. Raises `RequestError`."""
        return {"input_tokens": estimate_length(self.parse(body))}


def _effort_of(config: _OutputConfig) -> str:
    """Return the effort that a client asks for; empty where it asks for the usual one.

    `high` is what the API does without any, and what Claude Code sends with each request.
    """
    if isinstance(config.effort, str) and config.effort != "high":
        return config.effort
    return ""


def _form_of(config: _OutputConfig, older: AnswerFormat | None) -> dict[str, Any]:
    """Return the fields of `ClientRequest` that say the form of the answer.

    `older` is `output_format`, the older place of a schema. Raises `RequestError`.
    """
    if config.format:
        return config.format.read("output_config.format")
    return older.read("output_format") if older else {}


def _refuse_thread(thread: object) -> None:
    """Raise `RequestError` where a request begins or continues a thread of messages.

    A thread leaves the conversation to the server, which keeps none. To begin one is refused, too,
    because the SDKs of Anthropic continue what was begun, and send no question then.
    """
    if thread is None:
        return
    message = "thread cannot be served: send the full conversation in messages, without thread"
    details = {"error_code": THREAD_UNSUPPORTED}
    raise RequestError(400, THREAD_UNSUPPORTED, message, param="thread", details=details)


def _read_turns(parsed: MessagesBody, files: AttachmentCollector) -> tuple[Message, ...]:
    """Return the system text, if there is any, then the turns. Raises `RequestError`."""
    system = list[str]()
    talk = list[Message]()
    if parsed.system is not None:
        texts = files.take(_allowed(parsed.system, "system", "instructions")).texts
        system = [text for text in texts if not text.startswith(BILLING)]
    first, place = _beginning(parsed.messages)
    for number, turn in enumerate(parsed.messages):
        blocks = _allowed(turn.content, f"messages[{number}].content", turn.role)
        if number < first:
            continue
        content = files.take(blocks[place:] if number == first else blocks)
        if turn.role == "system" and not talk:
            system += content.texts
        elif turn.role == "system":
            talk += late_instructions(content.texts)
        elif turn.role == "assistant":
            # The texts of one reply are one text, which other blocks interrupt.
            calls = tuple(piece for piece in content.pieces if isinstance(piece, ToolCall))
            talk += [piece for piece in content.pieces if isinstance(piece, Message)]
            if content.texts or calls:
                talk.append(
                    Message(role="assistant", content="".join(content.texts), tool_calls=calls)
                )
        else:
            results = [piece for piece in content.pieces if isinstance(piece, Message)]
            talk += results
            if content.texts or content.attachments or not results:
                talk.append(content.message("user", joint="\n\n"))
    return with_system_text((text for text in system if text.strip()), talk)


def _beginning(turns: Sequence[_MessagesTurn]) -> tuple[int, int]:
    """Return the numbers of the turn and of its block at which the conversation begins.

    It is the last summary, else the first block.
    """
    for number in range(len(turns) - 1, -1, -1):
        content = turns[number].content
        for place in range(len(content) - 1, -1, -1):
            block = content[place]
            if isinstance(block, _CompactionBlock) and block.content is not None:
                return number, place
    return 0, 0


def _allowed(blocks: list[Any], where: str, role: str) -> list[Any]:
    for number, block in enumerate(blocks):
        if not isinstance(block, _ALLOWED[role]):
            problem = f"{quoted(block.type)} cannot be served in a message of this role"
            raise refused(f"{where}[{number}].type", problem, "unsupported_content")
    return blocks


def _read_tools(parsed: MessagesBody) -> tuple[dict[str, Tool], dict[str, str]]:
    """Return the client's tools by their names, and the kinds of all others by theirs.

    They are those that are offered after all changes. Raises `RequestError`.
    """
    offered = _OfferedTools(hosted={"": "mcp"} if parsed.mcp_servers else {})
    for number, tool in enumerate(parsed.tools or ()):
        offered.add(tool, f"tools[{number}]")
    for where, change in _changes_of_tools(parsed):
        offered.apply(change, where)
    return offered.tools, offered.hosted


def _changes_of_tools(parsed: MessagesBody) -> Iterator[tuple[str, _ToolChange]]:
    """Yield each change of the tools with where it is, in the order of the conversation."""
    for number, turn in enumerate(parsed.messages):
        for place, block in enumerate(turn.content):
            where = f"messages[{number}].content[{place}]"
            if isinstance(block, _ToolChange):
                yield where, block
            elif isinstance(block, _SystemBlock):
                for index, part in enumerate(block.content):
                    if isinstance(part, _ToolChange):
                        yield f"{where}.content[{index}]", part


@dataclass(slots=True)
class _OfferedTools:
    """The tools of a client by their names, and the kinds of those that others run by theirs."""

    tools: dict[str, Tool] = field(default_factory=dict)
    hosted: dict[str, str] = field(default_factory=dict)
    removed: dict[str, Tool | str] = field(default_factory=dict)

    def add(self, tool: _Tool, where: str) -> None:
        """Offer a tool that is defined in the field `where`. Raises `RequestError`."""
        if tool.type in {None, "custom"}:
            if tool.name != DEFERRED or not tool.defer_loading:
                add_tool(self.tools, tool.read(where), f"{where}.name")
            return
        kind = kind_of_tool(str(tool.type))
        if kind in MESSAGES_TOOLS:
            builtin = MESSAGES_TOOLS[kind]
            offered = replace(builtin, name=tool.name or builtin.name)
            add_tool(self.tools, offered, f"{where}.name")
        elif kind in CLIENT_RUN_UNSERVED:
            raise refused(f"{where}.type", NO_SCREENS, "unsupported_content")
        else:
            self.hosted[tool.name or str(tool.type)] = kind

    def apply(self, change: _ToolChange, where: str) -> None:
        """Change what is offered. Raises `RequestError`."""
        where = f"{where}.tool"
        tool = change.tool
        if tool.type.startswith("mcp_"):
            return  # No tool of such a server is offered, which `mcp_servers` is told for
        if tool.type == "tool_definition" and tool.definition is None:
            raise refused(f"{where}.definition", "is missing", MISSING)
        if tool.definition is not None and change.type == "tool_addition":
            defined = tool.definition.name or ""
            self._remove(defined)
            self.removed.pop(defined, None)
            self.add(tool.definition, f"{where}.definition")
            return
        name = tool.name if tool.definition is None else tool.definition.name
        if name is None:
            raise refused(f"{where}.name", "is missing", MISSING)
        if name not in {*self.tools, *self.hosted, *self.removed}:
            raise refused(f"{where}.name", f"is no tool of this request: {quoted(name)}")
        if change.type == "tool_removal":
            self._remove(name)
        else:
            self._restore(name)

    def _remove(self, name: str) -> None:
        if name in self.tools:
            self.removed[name] = self.tools.pop(name)
        elif name in self.hosted:
            self.removed[name] = self.hosted.pop(name)

    def _restore(self, name: str) -> None:
        before = self.removed.pop(name, None)
        if isinstance(before, Tool):
            self.tools[name] = before
        elif before is not None:
            self.hosted[name] = before


def _read_choice(
    tool_choice: _Choice | None, tools: Mapping[str, Tool], hosted: Mapping[str, str]
) -> Choice:
    choice = tool_choice or _Choice(type="auto")
    if choice.type == "tool":
        if choice.name is not None and choice.name in hosted:
            return (), "auto", [hosted[choice.name]]
        return tuple(tools.values()), find_tool(tools, choice.name, "tool_choice.name"), ()
    if choice.type not in _CHOICES:
        raise refused(
            "tool_choice.type",
            f"{quoted(choice.type)} is not known: it can be auto, any, tool or none",
        )
    return choose(tools, [*hosted.values()], _CHOICES[choice.type], "tool_choice.type", choice.type)

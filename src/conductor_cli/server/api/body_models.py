"""The bodies of requests as pydantic models: what all APIs share. Pure.

A model declares what an API reads; other fields of an object are left unread, and null counts as
left out. What a model cannot say (a tool that was chosen and is not there) is checked where its
body becomes a `ClientRequest`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from conductor_cli.core.chat import (
    Attachment,
    ImageDetail,
    Message,
    Role,
    Tool,
    ToolCall,
    ToolChoice,
)
from conductor_cli.core.media import PDF, SUFFIXES
from conductor_cli.core.question import File, fence, quoted_file
from conductor_cli.core.terminal_text import one_line
from conductor_cli.programs.schema_check import CheckStopped, find_schema_fault
from conductor_cli.server.api.body_faults import (
    MISSING,
    describe_fault,
    fault,
    quoted,
    refused,
    shown_word,
)
from conductor_cli.server.api.request import ClientRequest
from conductor_cli.server.api.uploads import Upload

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

NO_SCREENS: Final = (
    "cannot be served: the results of this tool are screens, which are not sent to workers"
)

Choice = tuple[tuple[Tool, ...], ToolChoice | Tool, Sequence[str]]
"""The tools that may be called, the choice among them, and which hosted ones the answer needs."""


class Body(BaseModel):
    """An object of a request. With `is_left_out` no worker is sent anything of it."""

    model_config = ConfigDict(strict=True)
    is_left_out: ClassVar[bool] = False

    def without_effect(self) -> Iterable[str]:
        """Return the fields that are read and whose values change nothing here."""
        return ()


BoundedList = Annotated[list[T], Field(fail_fast=True)]
"""An array. Only its first fault is looked for: a body may have a million."""


def validate_body(model: type[M], body: Mapping[str, Any]) -> M:
    """Return a body as a model. Raises `RequestError` for its first fault."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        param, text, code = describe_fault(error, model, body)
        raise refused(param, text, code) from None


def impossible(why: str) -> AfterValidator:
    """Refuse any value but an empty one: a client would miss what the field does."""

    def refuse(value: Any) -> None:  # noqa: ANN401 - any JSON value
        if value:
            raise fault(why, "unsupported_parameter")

    return AfterValidator(refuse)


# Fields of all APIs


def _dollars(value: object) -> Decimal:
    with suppress(InvalidOperation):
        cost = Decimal(str(value)) if isinstance(value, int | float | str) else Decimal(0)
        if cost.is_finite() and cost > 0:
            return cost
    raise fault("must be an amount of US dollars above 0")


class OwnOptions(Body):
    """Options of this server. A limit can only narrow those of the settings."""

    max_cost: (
        Annotated[Decimal, BeforeValidator(_dollars, json_schema_input_type=float | str)] | None
    ) = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, value: object) -> object:
        """A misspelt limit would be none."""
        if not isinstance(value, dict):
            return value
        for name in value:
            if name != "max_cost":
                message = f"has no field {quoted(str(name))}; it has max_cost"
                raise fault(message, "unknown_parameter")
        return value


class Asking(Body):
    """What each API has in the body of a request for an answer."""

    model: str
    stream: bool | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    conductor: OwnOptions | None = None

    @property
    def max_cost(self) -> Decimal | None:
        return self.conductor.max_cost if self.conductor is not None else None


Count = Annotated[int, Field(ge=1, le=2**63 - 1)]
ToolName = Annotated[str, Field(min_length=1, max_length=128)]


def _listed(value: object) -> object:
    """Return a list of one text for a text by itself."""
    return [value] if isinstance(value, str) else value


StopTexts = Annotated[
    BoundedList[str],
    Field(max_length=16),
    BeforeValidator(_listed, json_schema_input_type=str | list[str]),
]


def kind_of_tool(type_name: str) -> str:
    """Return the kind of a tool that is no function, without its version.

    It is `web_search` for `web_search_20250305`.
    """
    return one_line(re.sub(r"_(?:preview|20\d\d(?:_?\d\d){2})", "", type_name))[:60]


def add_tool(tools: dict[str, Tool], tool: Tool, where: str) -> None:
    """Add a tool of the client by its name, which is in the field `where`.

    Raises `RequestError` for a second one.
    """
    if tool.name in tools:
        raise refused(where, f"is the name of two tools: {quoted(tool.name)}")
    tools[tool.name] = tool


def find_tool(tools: Mapping[str, Tool], name: str | None, where: str) -> Tool:
    """Return the tool that the field `where` names.

    Raises `RequestError` where there is no name or no such tool.
    """
    if name is None:
        raise refused(where, "is missing", MISSING)
    if name not in tools:
        raise refused(where, f"is no tool of this request: {quoted(name)}")
    return tools[name]


def choose(
    tools: Mapping[str, Tool], hosted: Sequence[str], mode: ToolChoice, where: str, wording: str
) -> Choice:
    """Return what a mode chooses, which is `wording` in the field `where`.

    Raises `RequestError` where that is nothing.
    """
    needed = hosted if not tools and mode != "none" else ()
    if mode == "required" and not tools and not needed:
        raise refused(where, f"is {wording}, but the request has no tools")
    return tuple(tools.values()), "auto" if needed else mode, needed


def left_out_tools(
    hosted: Mapping[str, str], needed: Collection[str], choice: ToolChoice | Tool
) -> list[str]:
    """Return the fields that offer a tool of the provider which could be called, and is not.

    `hosted` are their kinds with these fields, `needed` are those that the answer needs.
    """
    if choice not in ("auto", "required"):
        return []
    return [place for kind, place in hosted.items() if kind not in needed]


def unique_texts(texts: Iterable[str] | None) -> tuple[str, ...]:
    """Return the texts that are not empty, each once."""
    return tuple(dict.fromkeys(filter(None, texts or ())))


def as_parts(content: object) -> object:
    """Return a content as a list: a text is one part of it."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content


class AnswerFormat(Body):
    """The format of an answer.

    It is `response_format` of Chat Completions, `text.format` of Responses, and
    `output_config.format` of Messages.
    """

    type: str
    name: str | None = None
    description: str | None = None
    strict: bool | None = None
    form_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    json_schema: dict[str, Any] | None = None

    def without_effect(self) -> Iterator[str]:
        """Workers are sent the schema. An answer is always held to it, as `strict` asks."""
        if self.description:
            yield "description"
        for name, value in (self.json_schema or {}).items():
            if value and name not in {"name", "schema", "strict"}:
                yield f"json_schema.{shown_word(name)}"

    def read(self, where: str) -> dict[str, Any]:
        """Return the fields of `ClientRequest` that say the form of the answer.

        Raises `RequestError`.
        """
        if self.type == "json_object":
            return {"json_only": True}
        if self.type == "text":
            return {}
        if self.type != "json_schema":
            choices = "text, json_object or json_schema"
            raise refused(f"{where}.type", f"{quoted(self.type)} is not known: it can be {choices}")
        schema = self.form_schema
        if self.json_schema is not None:
            where = f"{where}.json_schema"
            schema = self.json_schema.get("schema")
        if not isinstance(schema, dict):
            raise refused(f"{where}.schema", "is missing or no object", MISSING)
        return {"schema": schema, "schema_field": f"{where}.schema"}

    @property
    def echo(self) -> dict[str, Any]:
        """What a response says of its format."""
        if self.type != "json_schema":
            return {"type": self.type}
        return {
            "type": self.type,
            "name": self.name or "answer",
            "description": self.description,
            "schema": self.form_schema,
            "strict": bool(self.strict),
        }


def with_system_text(texts: Iterable[str], talk: Iterable[Message]) -> tuple[Message, ...]:
    """Return a conversation after all system texts, which become one message."""
    system = "\n\n".join(filter(None, texts))
    if not system:
        return tuple(talk)
    return (Message(role="system", content=system), *talk)


async def require_schema(request: ClientRequest) -> None:
    """Raise `RequestError` unless a request's JSON Schema is one, and is checked in time."""
    if request.schema is None:
        return
    try:
        problem = await find_schema_fault(request.schema)
    except CheckStopped as stopped:
        raise refused(
            request.schema_field, f"cannot be checked: {stopped}", "invalid_json_schema"
        ) from None
    if problem:
        raise refused(
            request.schema_field, f"is not a valid JSON Schema: {problem}", "invalid_json_schema"
        )


_ENDINGS: Final[Mapping[str, str]] = {
    kind: suffix for suffix, kind in SUFFIXES.items() if suffix != "jpeg"
}


MAX_FILE_NAME: Final = 200  # Characters of a name that are kept


class AttachmentCollector:
    """Collects what the messages of one request carry.

    `blobs` are the bytes by their SHA-256. `texts` are the files of text, by the words that stand
    for each in a message.

    What is sent twice, as in each turn of a conversation, is one attachment with one name. Only
    the detail that is asked for may differ.
    """

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.texts: dict[str, File] = {}
        self._known: dict[str, Attachment] = {}

    def keep(
        self, upload: Upload, name: str | None = None, detail: ImageDetail | None = None
    ) -> str | Attachment:
        """Return an attachment; for a file of text, the quoted text."""
        name = one_line(name or "")[:MAX_FILE_NAME]
        if upload.text is not None:
            return self.quote(upload.text, name or "file")
        sha256 = hashlib.sha256(upload.content).hexdigest()
        if sha256 not in self._known:
            kind = "document" if upload.media_type == PDF else "image"
            default_name = f"{kind}-{len(self._known) + 1}.{_ENDINGS[upload.media_type]}"
            self.blobs[sha256] = upload.content
            self._known[sha256] = Attachment(
                name=name or default_name,
                media_type=upload.media_type,
                sha256=sha256,
                size=len(upload.content),
                width=upload.size[0],
                height=upload.size[1],
            )
        known = self._known[sha256]
        return replace(known, detail=detail) if detail else known

    def quote(self, text: str, name: str) -> str:
        """Return the words that stand for a file of text in a message."""
        file = File(name=name, text=text)
        quoted = quoted_file(file)
        self.texts[quoted] = file
        return quoted

    def take(self, parts: Iterable[Part] | None) -> ContentPieces:
        """Return what the parts of a content become."""
        pieces = list[Any]()
        for part in parts or ():
            pieces += [piece for piece in part.take(self) if piece != ""]
        return ContentPieces(pieces=tuple(pieces))


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentPieces:
    """What the parts of a content became, in order: texts, what they carry, calls and results."""

    pieces: tuple[str | Attachment | ToolCall | Message, ...]

    @property
    def texts(self) -> list[str]:
        return [piece for piece in self.pieces if isinstance(piece, str)]

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        return tuple(piece for piece in self.pieces if isinstance(piece, Attachment))

    # Any field
    def message(self, role: Role, *, joint: str = "\n", prefix: str = "", **fields: Any) -> Message:  # noqa: ANN401
        """Return the message with the texts, `joint` between them, and what they carry."""
        content = ""
        places = list[int]()
        between = joint
        for piece in self.pieces:
            if isinstance(piece, Attachment):
                places.append(len(content))
                between = "\n"
            elif isinstance(piece, str):
                # A copy of megabytes would take long
                content += f"{between}{piece}" if content else prefix + piece
                between = joint
        return Message(
            role=role, content=content, attachments=self.attachments, places=tuple(places), **fields
        )


def late_instructions(texts: Iterable[str]) -> Iterator[Message]:
    """Yield a client's instructions in the middle of a conversation as a text of the user.

    Where all are empty there is none.

    Moved to the beginning they would change what all later requests begin with, and with it what
    providers remember; and what they replace would stand beside them.
    """
    if text := "\n\n".join(filter(None, texts)):
        yield Message(role="user", content=fence("system", text))


COMPACTED_TO: Final = "The conversation before this was compacted to:"
"""What is said to a worker above the summary of a conversation that its client has shortened."""


class Part(Body):
    """A part of a content."""

    def take(self, files: AttachmentCollector) -> Iterator[str | Attachment | ToolCall | Message]:
        """Yield what the part is sent on as; nothing where no worker could read it."""
        del files
        yield from ()


class TextPart(Part):
    """A text, under the name of any API."""

    type: Literal["text", "input_text", "output_text"]
    text: str

    def take(self, _: AttachmentCollector) -> Iterator[str]:
        yield self.text

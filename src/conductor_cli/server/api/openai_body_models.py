"""What both of OpenAI's APIs have in a request: options, content parts, tools and their choice.

Chat Completions puts a function, a file or a schema into an object of its own, `{"type":
"function", "function": {"name": …}}`; Responses does not. Both forms of a tool are read in both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator

from conductor_cli.core.chat import Attachment, Tool, ToolChoice
from conductor_cli.core.mappings import by_name
from conductor_cli.server.api.body_faults import MISSING, fault, quoted, refused, shown_word
from conductor_cli.server.api.body_models import (
    NO_SCREENS,
    Asking,
    AttachmentCollector,
    Body,
    BoundedList,
    Choice,
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
    left_out_tools,
    unique_texts,
)
from conductor_cli.server.api.client_tools import (
    CLIENT_RUN_UNSERVED,
    CUSTOM,
    RESPONSES_TOOLS,
    custom_tool,
)
from conductor_cli.server.api.uploads import (
    Upload,
    bytes_of_base64,
    bytes_of_url,
    detail_of,
    is_unknown_detail,
    read_document,
    read_image,
    uploaded,
)

_MODES: Final[Mapping[str, ToolChoice]] = {
    "auto": "auto",
    "none": "none",
    "required": "required",
    "any": "required",  # Mistral's word
}

TEXT_ONLY: Final = "can only be text in a message of this role"


# The parts of a content


class _RefusalPart(Part):
    type: Literal["refusal"]
    refusal: str

    def take(self, _: AttachmentCollector) -> Iterator[str]:
        yield self.refusal


class _ThoughtPart(Part):
    """What a model thought, as gateways and libraries keep it in the content of its turn."""

    is_left_out: ClassVar[bool] = True
    type: Literal["thinking", "redacted_thinking", "reasoning"]

    def without_effect(self) -> Iterator[str]:
        yield self.type


class _ImagePart(Part):
    type: Literal["image_url", "input_image"]
    image_url: Annotated[
        Upload, uploaded(bytes_of_url, read_image), Field(default=None, validate_default=True)
    ]
    detail: Any = None

    def without_effect(self) -> Iterator[str]:
        if is_unknown_detail(self.detail):
            yield "detail"

    def take(self, files: AttachmentCollector) -> Iterator[str | Attachment]:
        detail = self.image_url.detail or detail_of(self.detail)
        yield files.keep(self.image_url, detail=detail)


def _bytes_of_file(text: str) -> bytes:
    """Return the bytes of a file, which comes as a data URL or in base64."""
    if text[:5].lower() == "data:":
        return bytes_of_url(text)
    return bytes_of_base64(text)


class _FileObject(Part):
    file_data: Annotated[
        Upload,
        uploaded(_bytes_of_file, read_document),
        Field(default=None, validate_default=True),
    ]
    filename: str | None = None

    def take(self, files: AttachmentCollector) -> Iterator[str | Attachment]:
        yield files.keep(self.file_data, self.filename)


class _ChatFilePart(Part):
    type: Literal["file"]
    file: _FileObject

    def take(self, files: AttachmentCollector) -> Iterator[str | Attachment]:
        return self.file.take(files)


class _InputFilePart(_FileObject):
    type: Literal["input_file"]


_Part = Annotated[
    TextPart | _RefusalPart | _ThoughtPart | _ImagePart | _ChatFilePart | _InputFilePart,
    Field(discriminator="type"),
]
Content = Annotated[
    BoundedList[_Part], BeforeValidator(as_parts, json_schema_input_type=str | list[dict[str, Any]])
]


# Tools


class _FunctionSpec(Body):
    name: ToolName | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    format: Any = None  # of a custom tool


class _Typed(Body):
    """A tool, or a choice of one, whose type may be missing, as in what Mistral's clients send."""

    type: str
    function: _FunctionSpec | None = None

    @model_validator(mode="before")
    @classmethod
    def _take_for_function(cls, value: object) -> object:
        """Return what has no type as the function that it holds."""
        if isinstance(value, dict) and value.get("type") is None and value.get("function"):
            return {**value, "type": "function"}
        return value


class _ToolEntry(_FunctionSpec, _Typed):
    """A tool, or a namespace of `tools`."""

    custom: _FunctionSpec | None = None
    environment: Any = None  # where a shell runs
    tools: BoundedList[_ToolEntry] | None = None

    @property
    def is_client_run(self) -> bool:
        """Whether the client runs this tool, which is neither a function nor a custom tool."""
        environment = self.environment if isinstance(self.environment, dict) else {}
        is_here = environment.get("type", "local") == "local"
        return self.type in RESPONSES_TOOLS and is_here


def name_in(namespace: str | None, name: str) -> str:
    """Return the name under which a worker knows a tool of a namespace, such as `mcp__git__log`.

    Codex joins the two in this way.
    """
    if not namespace:
        return name
    separator = "" if namespace.endswith("__") else "__"
    return f"{namespace}{separator}{name}"


class _Allowed(Body):
    mode: str | None = None
    tools: BoundedList[ToolChoiceField]


class ToolChoiceField(_Typed):
    """A choice among the tools: a mode, one function, or a mode and the functions allowed."""

    name: str | None = None
    namespace: str | None = None
    custom: _FunctionSpec | None = None
    mode: str | None = None
    tools: BoundedList[ToolChoiceField] | None = None
    allowed_tools: _Allowed | None = None

    def named(self, where: str, tools: Mapping[str, Tool]) -> Tool:
        """Return the function that this names.

        Raises `RequestError` where the request has none of this name.
        """
        named = self.function or self.custom
        if self.type in RESPONSES_TOOLS:
            return find_tool(tools, self.type, f"{where}.type")
        if named is None:
            return find_tool(
                tools, self.name and name_in(self.namespace, self.name), f"{where}.name"
            )
        return find_tool(tools, named.name, f"{where}.{self.type}.name")

    def is_of_client(self, tools: Mapping[str, Tool]) -> bool:
        """Return whether this names a tool that the client runs itself."""
        return self.type in {"function", CUSTOM} or self.type in tools


class _StreamOptions(Body):
    include_usage: bool | None = None
    include_events: Annotated[
        Any,
        impossible(
            "is no option any more: the events of a run are at /v1/conductor/runs/ID/events"
        ),
    ] = None


Penalty = Annotated[float, Field(ge=-2, le=2)]

SAMPLING_FIELDS: Final = ("top_p", "top_k", "presence_penalty", "frequency_penalty", "logit_bias")
"""The fields of a request that are sent on to the worker's server, where its API has them."""


def _tool_choice(value: object) -> object:
    """Return a mode by itself as the choice that it is."""
    if isinstance(value, str):
        return {"type": "mode", "mode": value}
    return value


def _no_prewarm(options: object) -> object:
    if isinstance(options, Mapping) and options.get("prewarm"):
        raise fault(NOTHING_PREPARED.format("prewarm"), "unsupported_parameter")
    return options


NOTHING_PREPARED: Final = "cannot be served: {} asks for no answer, and nothing is prepared here"


class OpenAIAsking(Asking):
    """Fields of both APIs."""

    tools: BoundedList[_ToolEntry] | None = None
    tool_choice: (
        Annotated[
            ToolChoiceField,
            BeforeValidator(_tool_choice, json_schema_input_type=str | dict[str, Any]),
        ]
        | None
    ) = None
    parallel_tool_calls: bool | None = None
    stop: StopTexts | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[str, float] | None = None
    prediction: Annotated[
        Any, impossible("cannot be served: no worker takes a predicted answer")
    ] = None
    prompt_cache_options: Annotated[Any, AfterValidator(_no_prewarm)] = None
    moderation: Annotated[Any, impossible("cannot be served: this server moderates nothing")] = None
    store: bool | None = None
    stream_options: _StreamOptions | None = None
    web_search_options: Any = None  # how Chat Completions asks for a search

    def without_effect(self) -> Iterator[str]:
        if self.prompt_cache_options is not None:
            yield "prompt_cache_options"
        options = self.web_search_options
        if isinstance(options, Mapping):
            for name, value in options.items():
                if value is not None:
                    yield f"web_search_options.{shown_word(name)}"

    def read_options(self) -> dict[str, Any]:
        """Return the fields of `ClientRequest` that both APIs have in common.

        `ignored` has only the tools that are left out. Raises `RequestError`.
        """
        hosted = ["web_search"] if self.web_search_options is not None else []
        tools = self._read_tools(hosted)
        kept, choice, needed = self._choose(tools, hosted)
        places = {kind: f"tools[].{kind}" for kind in hosted}
        if self.web_search_options is not None:
            places["web_search"] = "web_search_options"
        return {
            "model": self.model,
            "tools": kept,
            "tool_choice": choice,
            "temperature": self.temperature,
            "hosted": unique_texts(needed),
            "ignored": left_out_tools(places, needed, choice),
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "stop": unique_texts(self.stop),
            "seed": self.seed,
            "sampling": read_sampling(self),
            "stream": bool(self.stream),
            "max_cost": self.max_cost,
        }

    def _read_tools(self, hosted: list[str]) -> dict[str, Tool]:
        """Return the functions by their names, and add the kinds of all other tools to `hosted`."""
        tools = dict[str, Tool]()
        for entry_path, entry, namespace in self._entries():
            kind = kind_of_tool(entry.type)
            if entry.is_client_run:
                add_tool(tools, RESPONSES_TOOLS[entry.type], f"{entry_path}.type")
            elif kind in CLIENT_RUN_UNSERVED:
                raise refused(f"{entry_path}.type", NO_SCREENS, "unsupported_content")
            elif entry.type in {"function", CUSTOM}:
                _add_function(tools, entry, entry_path, namespace)
            else:
                hosted.append(kind)
        return tools

    def _entries(self) -> Iterator[tuple[str, _ToolEntry, str]]:
        """Yield where each tool is, the tool, and its namespace."""
        for number, entry in enumerate(self.tools or ()):
            where = f"tools[{number}]"
            if entry.type != "namespace":
                yield where, entry, ""
            elif entry.name is None:
                raise refused(f"{where}.name", "is missing", MISSING)
            else:
                yield from (
                    (f"{where}.tools[{n}]", tool, entry.name)
                    for n, tool in enumerate(entry.tools or ())
                )

    def _choose(self, tools: dict[str, Tool], hosted: Sequence[str]) -> Choice:
        choice = self.tool_choice or ToolChoiceField(type="mode", mode="auto")
        where = "tool_choice"
        if choice.is_of_client(tools):
            return tuple(tools.values()), choice.named(where, tools), ()
        if choice.type == "mode":
            return _choose_by_mode(tools, hosted, choice.mode, where)
        if choice.type == "allowed_tools" and choice.allowed_tools is not None:
            return _choose_among(choice.allowed_tools, tools, f"{where}.allowed_tools")
        if choice.type == "allowed_tools":
            return _choose_among(choice, tools, where)
        kind = kind_of_tool(choice.type)
        if kind in hosted:
            return (), "auto", [kind]
        message = f"{quoted(choice.type)} is not served: it can be function or allowed_tools"
        raise refused(f"{where}.type", message)


def _choose_by_mode(
    tools: Mapping[str, Tool], hosted: Sequence[str], mode: str | None, where: str
) -> Choice:
    """Return what a mode chooses that is in the field `where`. Raises `RequestError`."""
    mode = mode or "auto"
    if mode not in _MODES:
        raise refused(where, f"{quoted(mode)} is not known: it can be auto, none or required")
    return choose(tools, hosted, _MODES[mode], where, mode)


def _choose_among(
    allowed: ToolChoiceField | _Allowed, tools: Mapping[str, Tool], where: str
) -> Choice:
    """Return what a choice among some of the tools chooses. Raises `RequestError`."""
    if allowed.tools is None:
        raise refused(f"{where}.tools", "is missing", MISSING)
    kept = list[Tool]()
    hosted = list[str]()
    for number, tool in enumerate(allowed.tools):
        if tool.is_of_client(tools):
            kept.append(tool.named(f"{where}.tools[{number}]", tools))
        else:
            hosted.append(kind_of_tool(tool.type))
    return _choose_by_mode(by_name(kept), hosted, allowed.mode, f"{where}.mode")


def _add_function(
    tools: dict[str, Tool], entry: _ToolEntry, entry_path: str, namespace: str
) -> None:
    """Add a function or a custom tool of the client. Raises `RequestError`."""
    is_custom = entry.type == CUSTOM
    inner = entry.custom if is_custom else entry.function
    spec = inner or entry
    where = f"{entry_path}{f'.{entry.type}' if inner else ''}.name"
    if spec.name is None:
        raise refused(where, "is missing", MISSING)
    name = name_in(namespace, spec.name)
    description = spec.description or ""
    if is_custom:
        tool = custom_tool(name, description, spec.format)
    else:
        parameters = spec.parameters or {"type": "object", "properties": {}}
        tool = Tool(name=name, description=description, parameters=parameters)
    add_tool(tools, replace(tool, namespace=namespace), where)


def read_sampling(parsed: BaseModel) -> dict[str, Any]:
    """Return the fields of a request that say how tokens are drawn, besides the temperature."""
    sampling = dict[str, Any]()
    for name in SAMPLING_FIELDS:
        value = getattr(parsed, name, None)
        if value is not None and value != {}:
            sampling[name] = value
    return sampling

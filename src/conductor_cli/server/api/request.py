"""One internal form for a request of any client API, and for what answers it. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from conductor_cli.core.chat import Finish, Message, Tool, ToolCall, ToolChoice
from conductor_cli.core.usage import NO_USAGE, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """What a client asks for.

    `model` is the name as the client wrote it. `messages` begin with all system texts as one message, if there are any;
    the conversation follows word for word. `blobs` are the bytes of what the messages carry, by their SHA-256.
    `schema` is the JSON Schema of the answer, which `require_schema` checks, and `schema_field` the field that it is
    in; `json_only` asks for JSON of any form. `effort` may be any word. `max_cost` is in US dollars
    and can only narrow. `previous` is the run whose response this one continues. `metadata` is given back with the
    response. `shows_reasoning` says whether the client wants plan and steps narrated. `ignored` names the fields that
    were left unread.
    """

    model: str
    messages: tuple[Message, ...]
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | Tool = "auto"
    parallel_tool_calls: bool = True
    schema: Mapping[str, Any] | None = None
    schema_field: str = ""
    json_only: bool = False
    max_tokens: int | None = None
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    effort: str = ""
    stream: bool = False
    include_usage: bool = False
    include_events: bool = False
    max_cost: Decimal | None = None
    previous: str = ""
    store: bool = True
    metadata: Mapping[str, str] = field(default_factory=dict)
    shows_reasoning: bool = True
    ignored: tuple[str, ...] = ()


class RequestError(Exception):
    """A request that cannot be served. Each API has its own envelope for it.

    `status` is the HTTP status, `code` a word for programs such as `context_length_exceeded`, `param` the field.
    `retry_after` is in seconds.
    """

    def __init__(
        self, status: int, code: str, message: str, *, param: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.retry_after = retry_after

    def alone(self) -> RequestError:
        """The same without where it arose, which holds all that was worked on there, such as a body of 40 MB."""
        return RequestError(self.status, self.code, self.message, param=self.param, retry_after=self.retry_after)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepUsage:
    """What one step used. `worker` is who did it in the end."""

    step: int
    worker: str
    model: str
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedUsage:
    """What a request used: the answering step apart from planning and all other steps."""

    answer: Usage = NO_USAGE
    orchestration: Usage = NO_USAGE
    steps: tuple[StepUsage, ...] = ()

    @property
    def total(self) -> Usage:
        return self.answer + self.orchestration


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended for its client. `reasoning` is the narration of plan and steps that a stream shows."""

    run: str
    text: str
    finish: Finish
    usage: ServedUsage
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()

"""One internal form for a request of any client API, and for what answers it. Values only.

It also says what the server needs of a client API: to read a request, and to write a stream, an
answer and an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, Protocol

from conductor_cli.core.chat import Finish, Message, Tool, ToolCall, ToolChoice
from conductor_cli.core.question import File
from conductor_cli.core.usage import NO_USAGE, Usage

UtilityPurpose = Literal[
    "title", "tags", "follow_ups", "search_queries", "commit_message", "compaction", "safety_check"
]
"""What a utility request is for: clients make it by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """What a client asks for.

    `model` is the name as the client wrote it. `messages` begin with all system texts as one
    message, if there are any; the conversation follows word for word. `blobs` are the bytes of what
    the messages carry, by their SHA-256, and `texts` are the files of text that they quote, by the
    words that do so. `schema` is the JSON Schema of the answer, which
    `require_schema` checks, and `schema_field` the field that it is in; `json_only` asks for JSON
    of any form. `hosted` are the kinds of tools that the answer needs and that the API's own
    provider would run, such as `web_search`. `effort` may be any word. `max_cost` is in US dollars
    and can only narrow. `previous` is the run whose response this one continues;
    `goes_on_at_once` says that this is done on the connection which has that response, so that it
    needs not be stored. `metadata` is given back with the response. `background`: the run goes on
    where nobody reads it.

    `seed` and `sampling` say how tokens are drawn, as `core.chat.Request` has them. `echo` is what
    a response says of its request, and `ignored` are the names of fields that have no effect here.
    `purpose` is what the request is for where its path says so.
    `shows_reasoning` says whether the client wants plan and steps narrated. `after` is the number
    of the last event that a client has of a stream which it reads again.
    """

    model: str
    messages: tuple[Message, ...]
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    texts: Mapping[str, File] = field(default_factory=dict)
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | Tool = "auto"
    hosted: tuple[str, ...] = ()
    parallel_tool_calls: bool = True
    schema: Mapping[str, Any] | None = None
    schema_field: str = ""
    json_only: bool = False
    max_tokens: int | None = None
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    echo: Mapping[str, Any] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    purpose: UtilityPurpose | None = None
    effort: str = ""
    stream: bool = False
    include_usage: bool = False
    max_cost: Decimal | None = None
    previous: str = ""
    goes_on_at_once: bool = False
    store: bool = True
    metadata: Mapping[str, str] = field(default_factory=dict)
    background: bool = False
    shows_reasoning: bool = True
    after: int = -1


class RequestError(Exception):
    """A request that cannot be served. Each API has its own envelope for it.

    `status` is the HTTP status, `code` a word for programs such as `context_length_exceeded`,
    `param` the field. `retry_after` is in seconds. `details` is what Anthropic's clients read of
    some errors.
    """

    def __init__(  # noqa: PLR0913 - all that an error says
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after: float | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.retry_after = retry_after
        self.details = details

    @property
    def is_final(self) -> bool:
        """Whether the same request would fail again, however long its client waits."""
        return self.retry_after is None and (self.status < 500 or self.code.startswith("limit"))

    def alone(self) -> RequestError:
        """Return the same without where it arose.

        That holds all that was worked on there, such as a body of 40 MB.
        """
        return RequestError(
            self.status,
            self.code,
            self.message,
            param=self.param,
            retry_after=self.retry_after,
            details=self.details,
        )


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
class ServedAnswer:
    """How a run ended for its client.

    `reasoning` is the narration of plan and steps that a stream shows. `notices` are what a reader
    should know about how the answer came about. `stop_sequence` is the stop text of the client that
    ended the answer, where that is known. `seconds` is how long it took. With `quotes_files` it may
    quote files of its conversation.
    """

    run: str
    text: str
    finish: Finish
    usage: ServedUsage
    reasoning: str = ""
    notices: tuple[str, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    stop_sequence: str = ""
    seconds: float = 0.0
    quotes_files: bool = False


class AnswerEncoder(Protocol):
    """Writes the answer to one request.

    A stream is `begin`, any number of pieces, then `end` or `failed`.

    Every method but the last two returns the bytes of zero or more server-sent events; the encoder
    keeps ids, indexes and sequence numbers. `begin` comes before anything is known; `heartbeat` is
    what the clients of this API count as a sign of life; `reasoning` is a piece of the narration,
    `text` one of the answer, `tool_call` a whole call of one of the client's tools. `failed` has
    the form that the clients of this API show to their users. `whole` is the answer as one JSON
    object; `whole_failed` an error in its place, where the status 200 is out already.
    """

    def begin(self) -> bytes: ...
    def heartbeat(self) -> bytes: ...
    def reasoning(self, text: str) -> bytes: ...
    def text(self, text: str) -> bytes: ...
    def tool_call(self, call: ToolCall) -> bytes: ...
    def end(self, answer: ServedAnswer) -> bytes: ...
    def failed(self, error: RequestError) -> bytes: ...
    def whole(self, answer: ServedAnswer) -> dict[str, Any]: ...
    def whole_failed(self, error: RequestError) -> dict[str, Any]: ...


class ClientApi(Protocol):
    """One API. `name` is `chat_completions`, `responses` or `messages`.

    `parse` returns the request of a body, or raises `RequestError`. `encoder` writes the answer;
    `run` is the id of the run, `created` the time in seconds since 1970.
    """

    name: str

    def parse(self, body: Mapping[str, Any]) -> ClientRequest: ...
    def encoder(self, request: ClientRequest, run: str, created: int) -> AnswerEncoder: ...

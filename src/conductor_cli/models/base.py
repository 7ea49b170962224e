"""The interface of every model, what a request needs besides text, and a model with a script."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar, get_args, runtime_checkable

from conductor_cli.core.chat import Attachment, Chunk, Feature, Message, Request
from conductor_cli.core.errors import ModelError
from conductor_cli.core.media import NAMES
from conductor_cli.core.usage import Usage

Features = frozenset[Feature]

ALL_FEATURES: Final[Features] = frozenset(get_args(Feature))

NO_FEATURES: Final[Features] = frozenset()

_WORDS: Final[dict[Feature, str]] = {"tools": "tools", "image": "images", "pdf": "PDF files"}


_Number = TypeVar("_Number", int, float)


def lower_limit(*limits: _Number | None) -> _Number | None:
    """Return the lowest of these limits that there is; None where there is none."""
    return min((limit for limit in limits if limit is not None), default=None)


def text_of(value: object) -> str:
    """Return a JSON value that should be a text, else an empty one."""
    return value if isinstance(value, str) else ""


def table_of(value: object) -> Mapping[str, Any]:
    """Return a JSON value that should be an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def tables_in(value: object) -> list[Mapping[str, Any]]:
    """Return the objects in a JSON value that should be a list of them."""
    if not isinstance(value, list):
        return []
    return [item for item in value if isinstance(item, Mapping)]


def has_tool_calls(messages: Iterable[Message]) -> bool:
    """Return whether messages hold a call of a tool, or its result."""
    return any(message.tool_calls or message.role == "tool" for message in messages)


def check_features(name: str, features: Collection[Feature], request: Request) -> None:
    """Refuse a request that needs what the model called `name` cannot be sent.

    Nothing was sent then. The `ModelError` is not worth another attempt, and another worker may
    take the step.
    """
    attachments: list[Attachment] = []
    for message in request.messages:
        attachments += message.attachments
    for attachment in attachments:
        has_known_type = attachment.media_type in NAMES
        if has_known_type and attachment.kind in features:
            continue
        kind = f"files of type {attachment.media_type}"
        if has_known_type:
            kind = _WORDS[attachment.kind]
        problem = f"{name} cannot be sent {kind}: {attachment.name}"
        raise ModelError("refused", problem, hint=f"use a worker that takes {kind}")
    if (request.tools or has_tool_calls(request.messages)) and "tools" not in features:
        raise ModelError(
            "refused", f"{name} cannot be sent tools", hint="use a worker that takes tools"
        )
    if attachments and request.read_attachment is None:
        raise ModelError("file", f"{name}: the content of {attachments[0].name} is not at hand")


class Model(Protocol):
    """Something that answers a request with a stream of chunks.

    The contract, which one test suite checks for every adapter:

    - the reply's text is the joined `Chunk.text`; thinking likewise; neither is ever dropped;
    - exactly one chunk has `usage` and `finish`, and it is the last;
    - a failure is a `ModelError` and nothing else, whatever the underlying library raised;
    - closing the iterator or cancelling the task stops the work behind it: a server sees the
      connection close within one second, a local model stops within 200 ms on a CPU;
    - a request that needs what is not among `features` is a `ModelError` of reason `refused`, and
      nothing is sent;
    - `stream` may be called again while another stream is open, unless the worker's `parallel` is
      1.
    """

    @property
    def features(self) -> Features:
        """What can be sent besides text, as far as the adapter knows.

        Whether the model reads it is another question.

        Raises nothing.
        """
        ...

    def stream(self, request: Request) -> AsyncGenerator[Chunk, None]: ...

    async def close(self) -> None: ...


class ReplyReader(Protocol):
    """Who reads a reply, and may be given pieces of text while it waits for the next chunk."""

    @property
    def is_ready(self) -> bool:
        """Whether it can be given a piece now."""
        ...

    def take_at_once(self, text: str, thinking: str) -> None:
        """Take a piece of the reply, which has no lone surrogates, as if it came in a chunk."""
        ...


@runtime_checkable
class GivesAtOnce(Protocol):
    """A model that can give pieces of text to their reader without waking a task for each."""

    def stream_to(self, reader: ReplyReader, request: Request) -> AsyncGenerator[Chunk, None]:
        """Yield the reply as `stream` does, without the pieces of text that `reader` was given.

        It is given none before a chunk with text was yielded.
        """
        ...


@runtime_checkable
class BehindServer(Protocol):
    """A model behind a server that lists what it has.

    Where the settings name no model, the first of them is asked.
    """

    async def chosen_model(self) -> str:
        """Return the id of the model that is asked for, empty if the server does not answer.

        Raises nothing.
        """
        ...

    async def reaches_server(self, seconds: float) -> bool:
        """Return whether the server answers within so many seconds. Raises nothing."""
        ...


ScriptItem = str | Chunk | float | ModelError
"""Text, a whole chunk, a pause in seconds, or an error to raise at this point."""

Script = Iterable[ScriptItem]


@dataclass
class ScriptedModel:
    """Plays one script per call, repeating the last one.

    Or asks `reply` for the script of each request.
    """

    scripts: list[Script] = field(default_factory=list)
    reply: Callable[[Request], Script] | None = None
    requests: list[Request] = field(default_factory=list)
    closed: int = 0
    features: Features = ALL_FEATURES

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        check_features("the script", self.features, request)
        self.requests.append(request)
        written = 0
        try:
            number = min(len(self.requests), len(self.scripts)) - 1
            for line in self.reply(request) if self.reply is not None else self.scripts[number]:
                if isinstance(line, ModelError):
                    raise line
                if isinstance(line, float):
                    import asyncio  # commands that ask nobody start without it

                    await asyncio.sleep(line)
                    continue
                chunk = Chunk(text=line) if isinstance(line, str) else line
                written += 1
                yield chunk
                if chunk.usage is not None:
                    return
            read = sum(len(message.content.split()) for message in request.messages)
            yield Chunk(usage=Usage(tokens_in=read, tokens_out=written, calls=1), finish="stop")
        finally:
            self.closed += 1

    async def close(self) -> None:
        """There is nothing to close."""

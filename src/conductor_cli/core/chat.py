"""What passes through the interface of models: a request goes in, chunks come out. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from conductor_cli.core.usage import Usage

Role = Literal["system", "user", "assistant"]

Finish = Literal["stop", "length", "refusal", "tool", "other"]
"""Why a model ended: by itself, cut off by a limit, refused (also a content filter), asked for a tool, unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a conversation."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call to one model.

    `grammar` is GBNF (llama.cpp `grammars/README.md`) with start rule `root`; an adapter whose backend has no grammars
    ignores it, and the parser of the text copes. `cuts` are character offsets into the first message's content at
    which a fixed prefix ends, so that a local model can keep its key/value state. `choices`, if any, are all possible
    replies: a local model then computes one distribution over them instead of writing; `grammar` tells others the same.
    `schema` is a JSON Schema of the reply, for servers that enforce one. With `temperature` None the model uses its own
    default. `deadline` is how many seconds the whole call may take.
    """

    messages: tuple[Message, ...]
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    grammar: str | None = None
    cuts: tuple[int, ...] = ()
    choices: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None
    deadline: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of a model's reply.

    The last chunk of a reply, and only it, has `usage` and `finish`. `note` is something the user should know about
    the call itself, such as a parameter that the model refused and that was left out. `choice_shares` is the share of
    each of the request's choices, if the reply was chosen by one distribution. `from_cache` on the last chunk says that
    it came from the response cache, so nothing was spent on it.
    """

    text: str = ""
    thinking: str = ""
    usage: Usage | None = None
    finish: Finish | None = None
    note: str = ""
    choice_shares: Mapping[str, float] | None = None
    from_cache: bool = False

"""What passes through the interface of models.

A request goes in, chunks come out, thinking apart from text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from conductor_cli.core.usage import Usage

Role = Literal["system", "user", "assistant", "tool"]

Finish = Literal["stop", "length", "refusal", "tool", "other"]
"""Why a model ended: by itself, cut off by a limit, refused (also a content filter), asked for a
tool, unknown.
"""

CUT_FINISHES: Final[frozenset[Finish | None]] = frozenset({"length", "refusal"})
"""How a reply ends that is not whole: its calls are not made, and its answer is partial."""

Feature = Literal["tools", "image", "pdf"]  # What a request may carry besides text


# What an attachment is to a worker: each worker accepts some of these kinds
MediaKind = Literal["image", "pdf"]

# How closely a model is to look at an image, in OpenAI's words
ImageDetail = Literal["low", "high", "original"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """An image or a document that belongs to a message. Its bytes are stored apart, by their hash.

    `media_type` is what the bytes are (`image/png`, `application/pdf`), found from their content.
    `size` is in bytes, `sha256` in hexadecimal digits. `width` and `height` of an image are in
    pixels, `pages` counts those of a document; 0 where that is not known. `detail` of an image is
    what a client asked for; None leaves it to the provider.
    """

    name: str
    media_type: str
    sha256: str
    size: int
    width: int = 0
    height: int = 0
    pages: int = 0
    detail: ImageDetail | None = None

    @property
    def kind(self) -> MediaKind:
        if self.media_type.startswith("image/"):
            return "image"
        return "pdf"


ReadAttachment = Callable[[Attachment], bytes]
"""Reads the bytes of an attachment. Raises `ModelError` of reason `file` if they are gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """Something that a model may ask to be called.

    `parameters` is the JSON Schema of its arguments, an object's.

    `namespace` is the group that a client has the tool in, if any; `name` then begins with it.
    `kind` is what a client's API has it as where that is no function, such as `custom` or `shell`.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    namespace: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A model asks for a tool.

    `arguments` is the JSON text as the model wrote it, which may be invalid.
    """

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallDelta:
    """A piece of a tool call.

    The pieces of one call have the same `index`; calls are numbered from 0 in each reply.

    The first piece has `id` and `name`; `arguments` are joined over all of them.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a conversation.

    `content` is its text. `attachments` come before the text, each after its name if there are
    several, so that the text can refer to them; where a client said where each stands, `places` has
    how many characters of the text come before it, and a line end parts what follows from that
    text. A message of role `assistant` may have `tool_calls`; one of role `tool` is the result of
    the call `tool_call_id`, and `is_error` says that the call failed. `provider_data` is what the
    adapter that made this turn must get back unchanged, such as signed thinking (see
    `Chunk.provider_data`); other adapters ignore it.
    """

    role: Role
    content: str
    attachments: tuple[Attachment, ...] = ()
    places: tuple[int, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    is_error: bool = False
    provider_data: Mapping[str, Any] = field(default_factory=dict)


def text_size(messages: Iterable[Message]) -> int:
    """Return the characters of the texts of messages."""
    return sum(len(message.content) for message in messages)


def join_tool_calls(deltas: Iterable[ToolCallDelta]) -> tuple[ToolCall, ...]:
    """Return the whole calls of a reply, in order."""
    calls: dict[int, tuple[ToolCallDelta, list[str]]] = {}
    for delta in deltas:
        calls.setdefault(delta.index, (delta, []))[1].append(delta.arguments)
    collected = []
    for first, arguments in calls.values():
        collected.append(ToolCall(id=first.id, name=first.name, arguments="".join(arguments)))
    return tuple(collected)


# Whether a model may call tools, may not, or must call at least one
ToolChoice = Literal["auto", "none", "required"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """Prompts that show which of some words a model prefers whatever it is asked.

    A local model divides its shares of the `words` by the mean of those that it gives them in the
    `prompts`, which are its own prompt with other questions (Zhou et al. 2023, arXiv 2309.17249).
    Without a `bar` the words are whole replies. With it, one of them follows wherever the last line
    of the reply has as many bars as `reply` has, which begins the replies to the prompts.
    """

    prompts: tuple[tuple[Message, ...], ...]
    words: tuple[str, ...]
    bar: str = ""
    reply: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call to one model."""

    messages: tuple[Message, ...]
    max_tokens: int | None = None
    temperature: float | None = None  # None: the model's own default
    seed: int | None = None
    stop: tuple[str, ...] = ()
    grammar: str | None = None
    """GBNF (llama.cpp `grammars/README.md`) with start rule `root`; who has no grammars ignores
    it.
    """
    cuts: tuple[int, ...] = ()
    """Offsets into the first message at which a fixed prefix ends: a local model may keep its
    key/value state.
    """
    choices: tuple[str, ...] = ()
    """All possible replies: a local model computes one distribution over them; `grammar` tells
    others the same.
    """
    # How tokens are drawn besides, under OpenAI's names: `top_p`, `frequency_penalty`, …
    sampling: Mapping[str, Any] = field(default_factory=dict)
    # Of temperature, seed and stop those that a client set: it is told of each that is left out
    asked: frozenset[str] = frozenset()
    habit: Habit | None = None
    # A JSON Schema of the reply, for servers that enforce one
    schema: Mapping[str, Any] | None = None
    # The beginning of the reply, which is not repeated; who cannot continue a reply ignores it
    prefill: str = ""
    # Above 0, a local model writes the first, second, … reply after its likeliest one
    rank: int = 0
    deadline: float | None = None  # Seconds that the whole call may take
    tools: tuple[Tool, ...] = ()  # Those that the model may ask for
    tool_choice: ToolChoice | Tool = "auto"  # Or the only one of them
    parallel_tool_calls: bool = True
    read_attachment: ReadAttachment | None = None  # Gives the bytes of what the messages carry


class PromptProgress(NamedTuple):
    """How far a model is in reading a prompt: `tokens` of `total`, and the seconds for the rest."""

    tokens: int
    total: int
    seconds_left: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of a model's reply. The last one, and only it, has `usage` and `finish`."""

    text: str = ""
    thinking: str = ""
    usage: Usage | None = None
    finish: Finish | None = None  # `tool` if the reply has tool calls
    # For the user, about the call itself, such as a parameter that was refused and left out
    note: str = ""
    # How far a local model is in reading a long prompt
    progress: PromptProgress | None = None
    # Of each of the request's choices, in one distribution
    choice_shares: Mapping[str, float] | None = None
    # On the last chunk, the probability of the whole reply, where it was computed
    confidence: float | None = None
    from_cache: bool = False  # On the last chunk: it is of the response cache, so nothing was spent
    tool_call: ToolCallDelta | None = None
    # On the last chunk, which of the request's stops ended the reply, where that is known
    stop_sequence: str = ""
    provider_data: Mapping[str, Any] = field(default_factory=dict)
    """On the last chunk, what the same adapter needs in the assistant's message when the
    conversation goes on.
    """


OPEN: Final = "<think>"
CLOSE: Final = "</think>"


def held_back(text: str, marks: Iterable[str]) -> int:
    """Return how many characters at the end of `text` may begin one of `marks`."""
    longest = 0
    for mark in marks:
        for length in range(min(len(mark) - 1, len(text)), longest, -1):
            if text.endswith(mark[:length]):
                longest = length
                break
    return longest


def joined_halves(text: str) -> str:
    """Return `text` with each pair of surrogates as the character that it is.

    A lone surrogate, which no encoding can write, becomes a replacement character.
    """
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def closes_alone(text: str) -> bool:
    """Return whether a text ends thinking that its prompt began: with a tag at the edge of a line.

    Inside of a line, a text speaks of the tag.
    """
    before, tag, after = text.partition(CLOSE)
    if not tag or OPEN in before:
        return False
    return before[-1:] in ("", "\n") or after[:1] in ("", "\n", "\r")


class HalfCharacters:
    """Joins characters that a stream of JSON has cut into two surrogates, one in each piece."""

    __slots__ = ("_half",)

    def __init__(self) -> None:
        self._half = ""

    def feed(self, piece: str) -> str:
        """Return the whole characters up to `piece`; a first half at its end is held back."""
        if not self._half and piece.isascii():
            return piece
        piece = self._half + piece
        self._half = ""
        if piece and "\ud800" <= piece[-1] <= "\udbff":
            self._half = piece[-1]
            piece = piece[:-1]
        return joined_halves(piece)

    def end(self) -> str:
        """Return what stands for a half that nothing followed."""
        half = self._half
        if not half:
            return ""
        self._half = ""
        return joined_halves(half)


class ThinkingSplitter:
    """Separates what is between `<think>` and `</think>` at the start of a reply from its text.

    Tags may be split between pieces. The tags are removed, with the white space before the first
    and after the second; everything else is kept. A tag later in the text is text. `inside` says
    that the prompt has already opened the thinking, as the templates of some models do.
    """

    __slots__ = ("_held", "_state")

    def __init__(self, *, inside: bool = False) -> None:
        self._held = ""
        self._state: Literal["start", "inside", "closed", "text"] = "inside" if inside else "start"

    @property
    def inside(self) -> bool:
        return self._state == "inside"

    def feed(self, piece: str) -> tuple[str, str]:
        """Return the text and the thinking that are certain after `piece`."""
        if self._state == "text":
            return piece, ""
        self._held += piece
        if self._state == "start":
            words = self._held.lstrip()
            # White space before the tag is dropped only if the tag really comes.
            if words.startswith(OPEN):
                self._held = words[len(OPEN) :]
                self._state = "inside"
            elif not OPEN.startswith(words):
                self._state = "text"
        thinking = ""
        if self._state == "inside":
            thinking, closed, rest = self._held.partition(CLOSE)
            if closed:
                self._held = rest
                self._state = "closed"
            else:
                thinking = self._take(len(thinking) - held_back(thinking, (CLOSE,)))
        if self._state == "closed":
            self._held = self._held.lstrip()
            if self._held:
                self._state = "text"
        text = ""
        if self._state == "text":
            text = self._take(len(self._held))
        return text, thinking

    def end(self) -> tuple[str, str]:
        """Return what was held back, as text or as thinking, now that nothing more will come."""
        rest = self._take(len(self._held))
        if self._state == "inside":
            return ("", rest)
        return (rest, "")

    def _take(self, length: int) -> str:
        text = self._held[:length]
        self._held = self._held[length:]
        return text

"""A question: its text and everything that belongs to it; and how texts are quoted inside a prompt.

A quoted text stands between tags, so that none passes for anything else, and is shortened where
needed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from conductor_cli.core.chat import Attachment, MediaKind, Message, Tool, ToolChoice
from conductor_cli.core.media import describe_media

NESTED: Final = "\n\nWithin this question, the subtask is: "
"""What stands between the question and the subtask in the text of a nested run's question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """An attached file: its name and its text.

    `attachment` is set for an image or a document: then `text` is what was extracted from it, for
    workers that cannot read the file itself; it is empty for an image.
    """

    name: str
    text: str
    attachment: Attachment | None = None

    def is_sent_to(self, accepts: Collection[MediaKind]) -> bool:
        """Return whether a worker that accepts these kinds is sent the file, and not its text."""
        return self.attachment is not None and self.attachment.kind in accepts

    @property
    def kind_without_text(self) -> MediaKind | None:
        """The kind of a file that says nothing to those who do not accept it.

        An image, a scanned document.
        """
        if self.attachment is None or self.text.strip():
            return None
        return self.attachment.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class PastTurn:
    """An earlier question of the same conversation, and its answer."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A subtask that was done before this run began, with its worker and answer."""

    worker: str
    subtask: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A client's conversation, word for word, and how its next reply is asked for.

    `messages` have no system text, and end with the user's question or with the results of tool
    calls. `tools` are those that the client calls itself; `only_tool` is the name of the one that
    must be called, empty for any. `origin` is a hash of the messages as the client sent them, where
    `messages` hold them as a worker was sent them.

    `known` are the first `known_messages` of them as the worker `known_by` was sent or wrote them:
    with its own ids of calls and its provider's data, so that its provider's cache of them holds.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = "auto"
    only_tool: str = ""
    parallel_tool_calls: bool = True
    max_tokens: int | None = None
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    origin: str = ""
    known_by: str = ""
    known: tuple[Message, ...] = ()
    known_messages: int = 0

    def as_sent_to(self, worker: str) -> tuple[Message, ...]:
        if worker != self.known_by:
            return self.messages
        return (*self.known, *self.messages[self.known_messages :])


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked, with everything that belongs to it.

    `system` is the caller's system text, `history` the earlier turns, `schema` a JSON Schema that
    the answer should follow.

    `parent` is the run that this one continues. `given` is set only in a nested run: what its
    workers may see as item 0; the last of it is the existing answer, which the nested plan may keep
    or have improved. `conversation` is what the answering step is sent in place of text, history
    and files; all other steps, and the planner, are sent these. `context` is what a client's
    program added to the conversation by itself; the planner is only told how long it is.
    """

    text: str
    system: str = ""
    history: tuple[PastTurn, ...] = ()
    files: tuple[File, ...] = ()
    schema: Mapping[str, Any] | None = None
    parent: str | None = None
    given: tuple[Given, ...] = ()
    conversation: Conversation | None = None
    context: tuple[str, ...] = ()

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        return tuple(file.attachment for file in self.files if file.attachment is not None)

    def attachments_for(self, accepts: Collection[MediaKind]) -> tuple[Attachment, ...]:
        return tuple(item for item in self.attachments if item.kind in accepts)

    def as_sent_to(self, accepts: Collection[MediaKind]) -> Question:
        files = tuple(file for file in self.files if file.text or file.is_sent_to(accepts))
        if files == self.files:
            return self
        return replace(self, files=files)


_QUOTED: Final = json.JSONEncoder(ensure_ascii=False).encode

TAG_CHARS: Final = 300  # Characters that the tags around one quoted text may take


def fence(tag: str, text: str, **origin: str) -> str:
    """Return `text` between tags that it cannot contain, with where it came from."""
    digest = text
    # Derived from the text rather than drawn at random, so that the same prompt is the same text
    # and can be cached.
    while (
        mark := f"{tag}-{hashlib.sha256(digest.encode('utf-8', 'replace')).hexdigest()[:8]}"
    ) in text:
        digest += mark  # the text was made to contain its own tag
    attributes = "".join(f" {key}={_QUOTED(value)}" for key, value in origin.items())
    return f"<{mark}{attributes}>\n{text}\n</{mark}>"


def shorten(text: str, limit: int) -> str:
    """Return `text` with its middle left out where it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    # 60 characters are for the note in the middle. The head gets two thirds: questions tend to
    # begin with the task.
    keep = min(max(limit - 60, 0), len(text))
    head = text[: keep * 2 // 3]
    tail = text[len(text) - (keep - len(head)) :]
    return f"{head}\n[… {len(text) - len(head) - len(tail)} characters left out …]\n{tail}"


def question_text(
    question: Question, room: int | None = None, accepts: Collection[MediaKind] = ()
) -> str:
    """Return the whole question as one text: earlier turns, the question, each file between tags.

    A file that goes along as an attachment, because the reader accepts its kind, is only named; so
    is an image that the reader cannot see.

    A later turn's text begins with that of the turn before it, so a model with a prefix cache reads
    only the rest.

    With `room`, in characters, what came with the question is shortened first: of the earlier turns
    the oldest are left out, the files are shortened to equal shares; the question itself only where
    it alone is longer.
    """
    history = [_turn_text(turn) for turn in question.history]
    text = question.text
    files = [_text_shown(file, accepts) for file in question.files]
    if room is not None and len(text) + _total_length(history) + _total_length(files) > room:
        text = shorten(text, room)
        left = max(room - len(text), 0)
        room_for_history = left
        if files:
            room_for_history = left // 2
        history = _latest_turns(history, room_for_history)
        left = max(left - _total_length(history), 0)
        files = [shorten(file, left // len(files)) for file in files]
    if history:
        text = f"Question:\n{text}"
    file_parts = [
        _file_part(file, file_text, accepts)
        for file, file_text in zip(question.files, files, strict=True)
    ]
    return "\n\n".join([*history, text, *file_parts])


def _turn_text(turn: PastTurn) -> str:
    if not turn.question:
        return f"Answer:\n{turn.answer}"
    return f"Question:\n{turn.question}\n\nAnswer:\n{turn.answer}"


def _total_length(texts: list[str]) -> int:
    return sum(map(len, texts))


def _latest_turns(turns: list[str], room: int) -> list[str]:
    """The latest turns: the last one shortened if needed, older ones whole or left out."""
    kept = [shorten(turn, room) for turn in turns[-1:]]
    for turn in reversed(turns[:-1]):
        if _total_length(kept) + len(turn) > room:
            kept.insert(0, f"[… {len(turns) - len(kept)} earlier turns left out …]")
            break
        kept.insert(0, turn)
    return kept


def _text_shown(file: File, accepts: Collection[MediaKind]) -> str:
    """The text of a file; empty for one that is only named."""
    if _is_only_named(file, accepts):
        return ""
    return file.text


def _file_part(file: File, text: str, accepts: Collection[MediaKind]) -> str:
    """A file as it stands in the prompt: its `text` between tags, or its name alone."""
    if file.attachment is None or not _is_only_named(file, accepts):
        return fence("file", text, name=file.name)
    name = f"The file {_QUOTED(file.name)} ({describe_media(file.attachment)})"
    if file.is_sent_to(accepts):
        return f"{name} is attached to this message."
    return f"{name} belongs to the question, but you cannot see it."


def _is_only_named(file: File, accepts: Collection[MediaKind]) -> bool:
    return file.is_sent_to(accepts) or file.kind_without_text is not None

"""A question: its text and everything that belongs to it; and how texts are quoted inside a prompt.

A quoted text stands between tags, so that none passes for anything else, and is shortened where
needed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from conductor_cli.core.chat import (
    Attachment,
    MediaKind,
    Message,
    Tool,
    ToolChoice,
    held_back,
)
from conductor_cli.core.media import describe_media
from conductor_cli.core.terminal_text import escape_json

NESTED: Final = "\n\nWithin this question, the subtask is: "
"""What stands between the question and the subtask in the text of a nested run's question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """An attached file: its name and its text.

    `attachment` is set for an image or a document: then `text` is what was extracted from it, for
    workers that cannot read the file itself; it is empty for an image. `directory` is what the user
    called the directory or the pattern that the file came with; empty for one that was named.
    """

    name: str
    text: str
    attachment: Attachment | None = None
    directory: str = ""

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
class SourceText:
    """What a source gave, before it is read as a file: its name and its bytes.

    With `is_page` these are a web page.
    """

    name: str
    content: bytes
    is_page: bool = False


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

    `seed` and `sampling` say how tokens are drawn, as `Request` has them. `echo` is what a response
    says of its request, for whoever reads it again by its id; its `store` is false where nobody
    may. `ignored` are the fields of the request that had no effect, which such a reader is told.

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
    seed: int | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    echo: Mapping[str, Any] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
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
    program added to the conversation by itself; the planner is only told how long it is. With
    `quotes_files` the earlier turns may quote files that go along no longer.
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
    quotes_files: bool = False

    @property
    def holds_files(self) -> bool:
        """Whether it has files, or earlier turns that may quote some."""
        return bool(self.files) or self.quotes_files

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


_ENCODE: Final = json.JSONEncoder(ensure_ascii=False).encode


def _quoted(text: str) -> str:
    """Return a name in quotation marks, with escapes for what nobody would see of it."""
    return escape_json(_ENCODE(text))


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
    attributes = "".join(f" {key}={_quoted(value)}" for key, value in origin.items())
    return f"<{mark}{attributes}>\n{text}\n</{mark}>"


def quoted_file(file: File) -> str:
    """Return the text of a file between tags with its name."""
    return fence("file", file.text, name=file.name)


_CLOSING_TAG: Final = re.compile(r"</[a-z]+-[0-9a-f]{8}>")


class ClosingTagFilter:
    """Leaves out a closing tag of the prompt with which a reply ends, while the reply arrives.

    A small model goes on with the markup that it was shown; what it writes is shown to others.
    """

    def __init__(self, prompt: str) -> None:
        self._tags = frozenset(_CLOSING_TAG.findall(prompt))
        self._held = ""

    def feed(self, text: str) -> str:
        """Return what is known not to be such a tag at the end."""
        if not self._tags:
            return text
        text = self._held + text
        end = text.rstrip()
        start = len(text) - held_back(text, self._tags)
        for tag in self._tags:
            if end.endswith(tag):
                start = len(end) - len(tag)
        self._held = text[start:]
        return text[:start]

    def end(self) -> str:
        """Return what was held back and is no tag."""
        held = self._held
        self._held = ""
        return "" if held.rstrip() in self._tags else held


def shorten(text: str, limit: int) -> str:
    """Return `text` with its middle left out where it is longer than `limit` characters.

    A text that is no longer than the note in its middle is whole.
    """
    if len(text) <= limit:
        return text
    # 60 characters are for the note in the middle. The head gets two thirds: questions tend to
    # begin with the task.
    keep = min(max(limit - 60, 0), len(text))
    head = text[: keep * 2 // 3]
    tail = text[len(text) - (keep - len(head)) :]
    shortened = f"{head}\n[… {len(text) - len(head) - len(tail)} characters left out …]\n{tail}"
    return min(text, shortened, key=len)


Shortened = tuple[str, int, int]
"""What was shortened: its name, how many characters of it are left, and how many it has."""


def question_text(
    question: Question, room: int | None = None, accepts: Collection[MediaKind] = ()
) -> str:
    """Return the whole question as one text, within `room` characters where that is given.

    Earlier turns, the question, each file between tags with its name.

    A file that goes along as an attachment, because the reader accepts its kind, is only named; so
    is an image that the reader cannot see.

    A later turn's text begins with that of the turn before it, so a model with a prefix cache reads
    only the rest.
    """
    return fit_question(question, room, accepts)[0]


def fit_question(
    question: Question, room: int | None = None, accepts: Collection[MediaKind] = ()
) -> tuple[str, tuple[Shortened, ...]]:
    """Return the question as `question_text` does, and what of it was shortened.

    What came with the question is shortened first: of the earlier turns the oldest are left out,
    and of the files the long ones share what the short ones leave; the question itself only where
    it alone is longer.
    """
    history = [_turn_text(turn) for turn in question.history]
    text = question.text
    files = ["" if _is_only_named(file, accepts) else file.text for file in question.files]
    whole = [text, *history, *files]
    if room is not None and sum(map(len, whole)) > room:
        text = shorten(text, room)
        left = max(room - len(text), 0)
        # Earlier turns leave the files at least half of the room.
        turns = min(sum(map(len, history)), left // 2)
        files = share_by_need(files, left - turns)
        history = _latest_turns(history, max(left - sum(map(len, files)), 0))
    sent = [text, *history, *files]
    named = []
    for file, sent_text in zip(question.files, files, strict=True):
        named.append(_file_text(file, sent_text, accepts))
    heading = "Question:\n" if history else ""
    shortened = _compare(question, whole, text, history, files) if sent != whole else ()
    return "\n\n".join([*history, heading + text, *named]), shortened


def _turn_text(turn: PastTurn) -> str:
    heading = ""
    if turn.question:
        heading = f"Question:\n{turn.question}\n\n"
    return f"{heading}Answer:\n{turn.answer}"


def share_by_need(texts: Sequence[str], room: int) -> list[str]:
    """Return texts that together have about `room` characters.

    The short ones are whole, and the long ones have equal shares of what these leave.
    """
    shared = list(texts)
    left = max(room, 0)
    by_length = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    for position, index in enumerate(by_length):
        share = left // (len(texts) - position)
        shared[index] = shorten(texts[index], share)
        left -= min(len(texts[index]), share)
    return shared


def _latest_turns(turns: Sequence[str], room: int) -> list[str]:
    """Return the last turns that fit, the last one shortened where needed, and how many do not."""
    kept = [shorten(turn, room) for turn in turns[-1:]]
    for turn in reversed(turns[:-1]):
        if sum(map(len, kept)) + len(turn) > room:
            return [f"[… {len(turns) - len(kept)} earlier turns left out …]", *kept]
        kept.insert(0, turn)
    return kept


def _compare(
    question: Question,
    whole: Sequence[str],
    text: str,
    history: Sequence[str],
    files: Sequence[str],
) -> tuple[Shortened, ...]:
    """Return what is shorter than it was: the question, the earlier turns, each file."""
    turns = sum(map(len, whole[1 : 1 + len(question.history)]))
    texts = whole[1 + len(question.history) :]
    parts = [
        ("the question", len(text), len(question.text)),
        ("the earlier turns", sum(map(len, history)), turns),
    ]
    for file, sent, all_of_it in zip(question.files, files, texts, strict=True):
        parts.append((file.name, len(sent), len(all_of_it)))
    return tuple(part for part in parts if part[1] < part[2])


def _file_text(file: File, text: str, accepts: Collection[MediaKind]) -> str:
    """Return a file between tags, or that it is attached, or cannot be seen."""
    if file.attachment is None or not _is_only_named(file, accepts):
        return quoted_file(replace(file, text=text))
    about = f"The file {_quoted(file.name)} ({describe_media(file.attachment)})"
    if file.is_sent_to(accepts):
        return f"{about} is attached to this message."
    return f"{about} belongs to the question, but you cannot see it."


def _is_only_named(file: File, accepts: Collection[MediaKind]) -> bool:
    return file.is_sent_to(accepts) or file.kind_without_text is not None

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
        """Return whether a worker that accepts these kinds is sent the file itself, and not its
        text.
        """
        return self.attachment is not None and self.attachment.kind in accepts

    @property
    def kind_without_text(self) -> MediaKind | None:
        """The kind of a file that says nothing to those who do not accept it.

        An image, a scanned document.
        """
        return None if self.attachment is None or self.text.strip() else self.attachment.kind


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
    """A conversation as a client of the server has it, word for word, and how its next reply is
    asked for.

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
    """The text, the caller's system text, earlier turns, attached files, a JSON Schema the answer
    should follow.

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
        return tuple(each for each in self.attachments if each.kind in accepts)

    def as_sent_to(self, accepts: Collection[MediaKind]) -> Question:
        files = tuple(file for file in self.files if file.text or file.is_sent_to(accepts))
        return self if files == self.files else replace(self, files=files)


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
    """Return the whole question as one text.

    Earlier turns, the question, each file between tags with its name.

    A file that goes along as an attachment, because the reader accepts its kind, is only named; so
    is an image that the reader cannot see.

    A later turn's text begins with that of the turn before it, so a model with a prefix cache reads
    only the rest.

    With `room`, in characters, what came with the question is shortened first: of the earlier turns
    the oldest are left out, the files are shortened to equal shares; the question itself only where
    it alone is longer.
    """
    asked_before = [
        f"Question:\n{turn.question}\n\n" if turn.question else "" for turn in question.history
    ]
    history = [
        f"{asked}Answer:\n{turn.answer}"
        for asked, turn in zip(asked_before, question.history, strict=True)
    ]
    asked = question.text
    files = ["" if _is_only_named(file, accepts) else file.text for file in question.files]
    if room is not None and len(asked) + sum(map(len, [*history, *files])) > room:
        asked = shorten(asked, room)
        left = max(room - len(asked), 0)
        # The latest turns: the last one shortened if needed, older ones whole or left out.
        space = left // 2 if files else left
        kept = [shorten(turn, space) for turn in history[-1:]]
        for turn in reversed(history[:-1]):
            if sum(map(len, kept)) + len(turn) > space:
                kept.insert(0, f"[… {len(history) - len(kept)} earlier turns left out …]")
                break
            kept.insert(0, turn)
        history = kept
        share = max(left - sum(map(len, history)), 0) // max(len(files), 1)
        files = [shorten(text, share) for text in files]
    named = [
        f"The file {_QUOTED(file.name)} ({describe_media(file.attachment)}) "
        + (
            "is attached to this message."
            if file.is_sent_to(accepts)
            else "belongs to the question, but you cannot see it."
        )
        if file.attachment is not None and _is_only_named(file, accepts)
        else fence("file", text, name=file.name)
        for file, text in zip(question.files, files, strict=True)
    ]
    heading = "Question:\n" if history else ""
    return "\n\n".join([*history, heading + asked, *named])


def _is_only_named(file: File, accepts: Collection[MediaKind]) -> bool:
    return file.is_sent_to(accepts) or file.kind_without_text is not None

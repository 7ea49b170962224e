"""A question: its text and everything that belongs to it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from conductor_cli.core.chat import Attachment, MediaKind, Message, Tool, ToolChoice

NESTED: Final = "\n\nWithin this question, the subtask is: "
"""What stands between the question and the subtask in the text of a nested run's question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """An attached file: its name and its text.

    `attachment` is set for an image or a document: then `text` is what was extracted from it, for workers that cannot
    read the file itself; it is empty for an image.
    """

    name: str
    text: str
    attachment: Attachment | None = None

    def is_sent_to(self, accepts: Collection[MediaKind]) -> bool:
        """Return whether a worker that accepts these kinds is sent the file itself, and not its text."""
        return self.attachment is not None and self.attachment.kind in accepts

    @property
    def kind_without_text(self) -> MediaKind | None:
        """The kind of a file that says nothing to those who do not accept it: an image, a scanned document."""
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
    """A conversation as a client of the server has it, word for word, and how its next reply is asked for.

    `messages` have no system text, and end with the user's question or with the results of tool calls. `tools` are
    those that the client calls itself; `only_tool` is the name of the one that must be called, empty for any. `origin`
    is a hash of the messages as the client sent them, where `messages` hold them as a worker was sent them.

    `known` are the first `known_messages` of them as the worker `known_by` was sent or wrote them: with its own ids of
    calls and its provider's data, so that its provider's cache of them holds.
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
        """Return the messages for one worker."""
        if worker != self.known_by:
            return self.messages
        return (*self.known, *self.messages[self.known_messages :])


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The text, the caller's system text, earlier turns, attached files, a JSON Schema the answer should follow.

    `parent` is the run that this one continues. `given` is set only in a nested run: what its workers may see as item
    0; the last of it is the existing answer, which the nested plan may keep or have improved. `conversation` is what
    the answering step is sent in place of text, history and files; all other steps, and the planner, are sent these.
    `context` is what a client's program added to the conversation by itself; the planner is only told how long it is.
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
        """The images and documents among the files."""
        return tuple(file.attachment for file in self.files if file.attachment is not None)

    def attachments_for(self, accepts: Collection[MediaKind]) -> tuple[Attachment, ...]:
        """Return those of them that a worker which accepts these kinds is sent."""
        return tuple(each for each in self.attachments if each.kind in accepts)

    def as_sent_to(self, accepts: Collection[MediaKind]) -> Question:
        """Return the question without the files of which a worker that accepts these kinds is sent nothing."""
        files = tuple(file for file in self.files if file.text or file.is_sent_to(accepts))
        return self if files == self.files else replace(self, files=files)

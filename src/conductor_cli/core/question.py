"""A question: its text and everything that belongs to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from conductor_cli.core.chat import Attachment


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """An attached file: its name and its text.

    `attachment` is set for an image or a document: then `text` is what was extracted from it, for workers that cannot
    read the file itself; it is empty for an image.
    """

    name: str
    text: str
    attachment: Attachment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
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
class Question:
    """The text, the caller's system text, earlier turns, attached files, a JSON Schema the answer should follow.

    `parent` is the run that this one continues. `given` is set only in a nested run: what its workers may see as item
    0; the last of it is the existing answer, which the nested plan may keep or have improved.
    """

    text: str
    system: str = ""
    history: tuple[Turn, ...] = ()
    files: tuple[File, ...] = ()
    schema: Mapping[str, Any] | None = None
    parent: str | None = None
    given: tuple[Given, ...] = ()

"""What a user asks: the text and everything that comes with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """An attached text and the name it came under."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """An earlier question of the same conversation and the answer it got."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A subtask that was done before this run began, by whom, and its answer."""

    worker: str
    subtask: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The text, the caller's system text, earlier turns, attached files, a JSON Schema the answer should follow.

    `parent` is the run that this one continues. `given` is set only in a nested run: what its workers may see as item
    0; the last of it is the answer at hand, which the nested plan may accept as it stands or have improved.
    """

    text: str
    system: str = ""
    history: tuple[Turn, ...] = ()
    files: tuple[File, ...] = ()
    schema: Mapping[str, Any] | None = None
    parent: str | None = None
    given: tuple[Given, ...] = ()

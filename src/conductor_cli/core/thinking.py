"""Separating a reply's thinking from its text, while the reply is still arriving."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

OPEN: Final = "<think>"
CLOSE: Final = "</think>"


def held_back(text: str, marks: Iterable[str]) -> int:
    """How many characters at the end of `text` may be the start of an incomplete one of `marks`."""
    longest = 0
    for mark in marks:
        for length in range(min(len(mark) - 1, len(text)), longest, -1):
            if text.endswith(mark[:length]):
                longest = length
                break
    return longest


class ThinkingSplitter:
    """Separates what is between `<think>` and `</think>` at the start of a reply from its text.

    Tags may be split between pieces. The tags are removed, with the white space before the first and after the second;
    everything else is kept. A tag later in the text is text. `inside` says that the prompt has already opened the
    thinking, as the templates of some models do.
    """

    __slots__ = ("_held", "_place")

    def __init__(self, *, inside: bool = False) -> None:
        self._held = ""
        self._place: Literal["start", "inside", "closed", "text"] = "inside" if inside else "start"

    @property
    def inside(self) -> bool:
        """Whether what comes next is thinking, as far as is known."""
        return self._place == "inside"

    def feed(self, piece: str) -> tuple[str, str]:
        """The text and the thinking that are certain after `piece`."""
        self._held += piece
        if self._place == "start":
            self._begin()
        thinking = self._think() if self._place == "inside" else ""
        if self._place == "closed":
            self._held = self._held.lstrip()
            self._place = "text" if self._held else "closed"
        text = self._take(len(self._held)) if self._place == "text" else ""
        return text, thinking

    def end(self) -> tuple[str, str]:
        """What was held back, as text or as thinking, now that nothing more will come."""
        rest = self._take(len(self._held))
        return ("", rest) if self._place == "inside" else (rest, "")

    def _begin(self) -> None:
        words = self._held.lstrip()
        # White space before the tag is dropped only if the tag really comes.
        if words.startswith(OPEN):
            self._held, self._place = words[len(OPEN) :], "inside"
        elif not OPEN.startswith(words):
            self._place = "text"

    def _think(self) -> str:
        thinking, closed, rest = self._held.partition(CLOSE)
        if closed:
            self._held, self._place = rest, "closed"
            return thinking
        return self._take(len(thinking) - held_back(thinking, (CLOSE,)))

    def _take(self, length: int) -> str:
        taken, self._held = self._held[:length], self._held[length:]
        return taken

"""Splitting streamed Markdown into blocks as soon as they are complete. Pure.

A block ends before an unindented line that follows a blank one, before an opening fence, and after a closing fence. If
this splits a list in two, that costs a blank line, but never text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

LONGEST: Final = 16_384
"""Characters of one block; a longer one is split."""

_FENCE: Final = re.compile(r"(`{3,}|~{3,})[ \t]*([^`\n]*)\n?\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A part of a text with its line ends. `language` is None for prose, and the info string of a fence for code.

    `opens` and `closes` are the lines of the fences, if they belong to this part.
    """

    text: str
    language: str | None = None
    opens: str = ""
    closes: str = ""

    @property
    def source(self) -> str:
        """The text as it was written, fences included."""
        return f"{self.opens}{self.text}{self.closes}"


class BlockSplitter:
    """Takes pieces of a text and returns its blocks. All blocks and `rest`, joined, are the text."""

    def __init__(self) -> None:
        self._line = ""
        self._lines: list[str] = []
        self._size = 0
        self._blank = False
        self._fence = ""
        self._language = ""
        self._opens = ""

    def feed(self, piece: str) -> list[Block]:
        """The blocks that are complete now."""
        *lines, self._line = (self._line + piece).split("\n")
        found = [block for line in lines for block in self._add_line(line + "\n")]
        # The first letter after a blank line decides: the block before it is complete before its own line is.
        if self._blank and self._line and not self._line[0].isspace():
            found += self._finish_block()
            self._blank = False
        # Endless lines and endless blocks must not be rendered again and again as they grow.
        if len(self._line) > LONGEST:
            self._append(self._line)
            self._line = ""
        if self._size > LONGEST:
            found += self._finish_block()
        return found

    @property
    def rest(self) -> Block:
        """The unfinished block."""
        return self._block(self._line)

    def close(self) -> list[Block]:
        """The rest as a block; afterwards a new text may begin."""
        rest = self.rest
        self.__init__()  # type: ignore[misc] # back to the initial state
        return [rest] if rest.source else []

    def _add_line(self, line: str) -> list[Block]:
        if self._fence:
            return self._add_code_line(line)
        begins = _FENCE.match(line)
        # Indented lines after a blank one may belong to a list item, so they do not end a block.
        found = self._finish_block() if begins or (self._blank and line.strip() and not line[0].isspace()) else []
        if begins:
            self._fence, self._language, self._opens = begins[1], begins[2].strip(), line
        else:
            self._append(line)
        self._blank = not line.strip() and not begins
        return found

    def _add_code_line(self, line: str) -> list[Block]:
        # A closing fence is at least as long as the opening one and less than four characters indented.
        mark = line.strip()
        if len(mark) < len(self._fence) or mark.strip(self._fence[0]) or line[:4].isspace():
            self._append(line)
            return []
        found = [self._block(closes=line)]
        self._lines, self._size = [], 0
        self._fence = self._language = self._opens = ""
        return found

    def _append(self, line: str) -> None:
        self._lines.append(line)
        self._size += len(line)

    def _finish_block(self) -> list[Block]:
        block = self._block()
        self._lines, self._size, self._opens = [], 0, ""
        return [block] if block.source else []

    def _block(self, more: str = "", closes: str = "") -> Block:
        text = "".join(self._lines) + more
        return Block(text=text, language=self._language if self._fence else None, opens=self._opens, closes=closes)

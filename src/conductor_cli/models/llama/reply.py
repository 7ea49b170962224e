"""The bytes of tokens -> chunks: whole characters, thinking apart, stop strings obeyed. Pure."""

from __future__ import annotations

import codecs

from conductor_cli.core.chat import Chunk
from conductor_cli.core.thinking import ThinkingSplitter, held_back


class Reply:
    """Takes bytes as they come. Text that may be the start of a stop string is held back until that is known.

    `thinking` None means that all is text, also `<think>`; otherwise it says whether the prompt has opened thinking.
    After a stop string `stopped` is true, and what followed it is dropped. `thought` counts the calls of `feed` that
    ended inside thinking.
    """

    def __init__(self, *, stop: tuple[str, ...] = (), thinking: bool | None = None) -> None:
        self.stopped = False
        self.thought = 0
        self._stop = tuple(mark for mark in stop if mark)
        self._letters = codecs.getincrementaldecoder("utf-8")("replace")
        self._splitter = None if thinking is None else ThinkingSplitter(inside=thinking)
        self._held = ""

    def feed(self, data: bytes) -> Chunk:
        """What is certain after `data`; often empty."""
        letters = self._letters.decode(data)
        text, thinking = self._part(letters)
        self.thought += self._splitter is not None and self._splitter.inside
        return Chunk(text=self._until_stop(text), thinking=thinking)

    def end(self) -> Chunk:
        """What was held back, now that nothing more will come. Half a character becomes U+FFFD."""
        letters = self._letters.decode(b"", final=True)
        text, thinking = self._part(letters)
        if self._splitter is not None:
            rest, more = self._splitter.end()
            text, thinking = text + rest, thinking + more
        text = self._until_stop(text)
        return Chunk(text=text if self.stopped else text + self._held, thinking=thinking)

    def _part(self, letters: str) -> tuple[str, str]:
        return (letters, "") if self._splitter is None else self._splitter.feed(letters)

    def _until_stop(self, text: str) -> str:
        if self.stopped:
            return ""
        self._held += text
        found = [at for mark in self._stop if (at := self._held.find(mark)) >= 0]
        self.stopped = bool(found)
        length = min(found) if found else len(self._held) - held_back(self._held, self._stop)
        text, self._held = self._held[:length], self._held[length:]
        return text

"""The channels of a reply in the harmony format, in which models of the gpt-oss family write. Pure.

    <|channel|>analysis<|message|>They ask …<|end|><|start|>assistant<|channel|>final<|message|>42

What stands in the channel `analysis` is thinking, `final` is the answer, and `commentary` is said
to the user before a call. What has a recipient (`to=functions.f`) is a call. From OpenAI's
description of the format and llama.cpp's `common/chat.cpp`, November 2026.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from conductor_cli.core.chat import held_back

START: Final = "<|start|>"
CHANNEL: Final = "<|channel|>"
MESSAGE: Final = "<|message|>"
OPENS_ANSWER: Final = f"{CHANNEL}final{MESSAGE}"
"""What begins the answer without any thinking, after `<|start|>assistant`."""

_MARKS: Final = (START, CHANNEL, MESSAGE, "<|constrain|>", "<|end|>", "<|return|>", "<|call|>")
_MARK: Final = re.compile("|".join(map(re.escape, _MARKS)))
_HEADER_BEGINS: Final = (*_MARKS, "to=")
_OF_THINKING: Final = re.compile(rf"{re.escape(CHANNEL)}\s*analysis\b|\bto=")
MAX_HEADER: Final = 200
"""Characters of a header. What is longer is the text of a model that has lost the format."""


def has_channels(template: str) -> bool:
    """Return whether the models of a chat template write in channels."""
    return all(mark in template for mark in (START, CHANNEL, MESSAGE))


def opens_message(text: str) -> bool:
    """Return whether a prompt ends where its model writes the header of a message."""
    return text.rstrip().endswith(f"{START}assistant")


class ChannelSplitter:
    """Separates the channels of a reply: as `ThinkingSplitter`, for pieces of any length.

    The marks and the headers are removed. A reply without a header is text.
    """

    __slots__ = ("_held", "_is_first", "_kind", "_state", "_written")

    def __init__(self) -> None:
        self._held = ""
        self._state: Literal["header", "body"] = "header"
        self._kind: Literal["text", "thinking"] = "text"
        self._is_first = True  # Nothing stands before the header
        self._written = {"text": False, "thinking": False}

    @property
    def inside(self) -> bool:
        """Whether thinking is being written."""
        return self._state == "body" and self._kind == "thinking"

    def feed(self, piece: str) -> tuple[str, str]:
        """Return the text and the thinking that are certain after `piece`."""
        self._held += piece
        text = ""
        thinking = ""
        while True:
            if self._state == "header" and not self._read_header():
                break
            written, is_over = self._read_body()
            if self._kind == "thinking":
                thinking += written
            else:
                text += written
            if not is_over:
                break
        return text, thinking

    def end(self) -> tuple[str, str]:
        """Return what was held back, now that nothing more will come. Half a header is nothing."""
        rest = self._held
        self._held = ""
        if self._state == "header":
            is_text = self._is_first and not rest.lstrip().startswith("<|")
            return (rest if is_text else ""), ""
        if self._kind == "thinking":
            return "", rest
        return rest, ""

    def _read_header(self) -> bool:
        """Return whether a message has begun, after which its header is gone."""
        header, mark, rest = self._held.partition(MESSAGE)
        words = header.lstrip()
        may_be_header = not self._is_first or any(
            words.startswith(begin) or begin.startswith(words) for begin in _HEADER_BEGINS
        )
        if not may_be_header or len(header) > MAX_HEADER:
            self._held = _MARK.sub("", self._held)
            self._begin("text")
            return True
        if not mark:
            return False
        self._held = rest
        self._begin("thinking" if _OF_THINKING.search(header) else "text")
        return True

    def _begin(self, kind: Literal["text", "thinking"]) -> None:
        self._state = "body"
        self._kind = kind
        self._is_first = False
        if self._written[kind]:  # a message before this one
            self._held = f"\n\n{self._held}"

    def _read_body(self) -> tuple[str, bool]:
        """Return what is certain of a message, and whether it has ended."""
        mark = _MARK.search(self._held)
        if mark is not None:
            written = self._held[: mark.start()]
            self._held = self._held[mark.start() if mark[0] == CHANNEL else mark.end() :]
            self._state = "header"
        else:
            certain = len(self._held) - held_back(self._held, _MARKS)
            written = self._held[:certain]
            self._held = self._held[certain:]
        self._written[self._kind] = self._written[self._kind] or bool(written.strip())
        return written, mark is not None

"""Reads the events of one reply into chunks. Pure.

Most events have nothing but a piece of text. They are read by comparison with the one before, and
what arrives together becomes one chunk: that is what makes a token cheap.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from conductor_cli.core.chat import Chunk
from conductor_cli.core.errors import ModelError
from conductor_cli.core.redact import Secrets
from conductor_cli.models.api_errors import clean_excerpt, error_in_body
from conductor_cli.models.base import ReplyReader, table_of
from conductor_cli.models.chat_apis.base import ChatApi
from conductor_cli.models.http import DONE, parse_frames
from conductor_cli.models.stream_decoder import ChatReplyDecoder

FORMLESS_EVENTS: Final = 2  # The first events of a reply; short replies have no others with text


class ReplyEventReader:
    """Reads the events of one reply into chunks.

    What came before a failure is part of the reply.
    """

    def __init__(
        self, name: str, secrets: Secrets, api: ChatApi, decoder: ChatReplyDecoder
    ) -> None:
        self.decoder = decoder
        self.ended = False
        self.is_silent = True
        """Whether no chunk had text, thinking or a tool call."""
        self.problem: ModelError | None = None
        self._name = name
        self._secrets = secrets
        self._last_types = api.last
        self._translate = api.translator()
        self._text_form = TextForm(self._read_text_alone)
        self._events = 0  # Those that were read whole
        # Whether the last event had nothing but text, so that the next one is likely to
        self._is_text = False
        self._is_done = False
        self._last = ""

    def read(self, batch: Iterable[str]) -> list[Chunk]:
        """Return the chunks of events that arrived together, up to the end or to a `problem`."""
        joined = JoinedChunks()
        try:
            for event_data in batch:
                if not self._read_event(event_data, joined):
                    break
        except ModelError as error:
            self.problem = error
        chunks = joined.all()
        if self.is_silent:
            for chunk in chunks:
                self._hear(chunk)
        return chunks

    def end(self) -> Iterator[Chunk]:
        """Yield what the decoder held back, then the last chunk. Raises `ModelError`."""
        for chunk in self.decoder.end():
            self._hear(chunk)
            yield chunk

    def _hear(self, chunk: Chunk) -> None:
        if chunk.text or chunk.thinking or chunk.tool_call:
            self.is_silent = False

    def _read_event(self, event_data: str, chunks: JoinedChunks) -> bool:
        """Add the chunks of one event, and return whether another may follow."""
        text = self._text_form.text_of(event_data)
        if text is not None:  # the usual case
            self._is_text = True
            chunks.add_text(*self.decoder.add_text(text))
            return True
        event = event_data.strip()
        if event == DONE:
            self._is_done = True
            self.ended = True
            return False
        if not event:  # It keeps the connection alive
            return True
        self._last = event_data
        frames = self._frames_of(event_data)
        for frame in frames:
            translated = frame
            if self._translate is not None:
                translated = self._translate(frame)
                if translated.get("error"):
                    self.decoder.count(translated)
                    raise error_in_body(self._name, translated, self._secrets)
            for chunk in self.decoder.frame(translated):
                chunks.add(chunk)
            if self._last_types and frame.get("type") in self._last_types:
                self._is_done = True
                self.ended = True
                return False
        self._events += 1
        if self._events > FORMLESS_EVENTS and self._translate is None and len(frames) == 1:
            self._learn_form(event_data, frames[0])
        return True

    def _frames_of(self, event_data: str) -> list[Mapping[str, Any]]:
        """Return the objects of an event. An error is raised; the tokens beside it are counted."""
        try:
            return parse_frames(event_data, self._name, self._secrets)
        except ModelError:
            with suppress(ValueError, RecursionError):
                self.decoder.count(table_of(json.loads(event_data)))
            raise

    def give_text(self, reader: ReplyReader, event_data: str) -> bool:
        """Give `reader` the text of an event that has nothing else.

        False where the event has more, or the reader has no time: then nothing was read.
        """
        if self.ended or not self._is_text or not reader.is_ready:
            return False
        text = self._text_form.text_of(event_data)
        if text is None:
            text = self._read_text_alone(event_data)
            if text is None:
                self._is_text = False
                return False
            self._text_form.learn(event_data, text)
        answer_text, thought = self.decoder.add_text(text)
        if answer_text or thought:
            reader.take_at_once(answer_text, thought)
        return True

    def _learn_form(self, event_data: str, frame: Mapping[str, Any]) -> None:
        """Learn how events are written that have nothing but text, where this is one."""
        text = self.decoder.text_alone(frame)
        self._is_text = text is not None
        if text is not None:
            self._text_form.learn(event_data, text)

    def _read_text_alone(self, event_data: str) -> str | None:
        """Return the text of an event that has nothing else; None for any other."""
        try:
            frame = json.loads(event_data)
        except (ValueError, RecursionError):
            return None
        return self.decoder.text_alone(frame) if type(frame) is dict else None

    def check_end(self) -> None:
        """Raise `ModelError` where the reply broke off, or was none."""
        if self.decoder.finish is None and not self._is_done:
            raise ModelError("broken", f"{self._name}: the answer broke off")
        if not self.decoder.replied:
            excerpt = clean_excerpt(self._last, self._secrets)
            raise ModelError("broken", f"{self._name}: the answer is not a reply: {excerpt}")


class JoinedChunks:
    """Chunks of events that arrived together, with neighbouring texts joined.

    So the run handles them once, and no chunk is made for each of them.
    """

    def __init__(self) -> None:
        self._chunks: list[Chunk] = []
        # The pieces of the next chunk, whose thinking comes before its text
        self._thinking: list[str] = []
        self._text: list[str] = []

    def add(self, chunk: Chunk) -> None:
        """Add a chunk that has text and thinking, or a piece of a tool call."""
        if chunk.tool_call is None:
            self.add_text(chunk.text, chunk.thinking)
            return
        self._join()
        self._chunks.append(chunk)

    def add_text(self, text: str, thinking: str) -> None:
        """Add what one event has of both."""
        if thinking:
            if self._text:
                self._join()
            self._thinking.append(thinking)
        if text:
            self._text.append(text)

    def all(self) -> list[Chunk]:
        """Return the chunks, in their order."""
        self._join()
        return self._chunks

    def _join(self) -> None:
        if self._text or self._thinking:
            chunk = Chunk(text="".join(self._text), thinking="".join(self._thinking))
            self._chunks.append(chunk)
            self._text = []
            self._thinking = []


MAX_FORMS: Final = 8  # Events in a row whose form is learned, where none is met again
_CONTENT: Final = re.compile(r'"content"\s*:\s*"')
_PROBE: Final = "another text"
# What `json` reads a text with, given where it begins; it returns where the text ends, too
_read_json_text: Final[Callable[[str, int], tuple[str, int]]] = json.decoder.scanstring  # type: ignore[attr-defined]


class TextForm:
    """How the events of one reply are written that have nothing but text.

    They differ in that text alone, so what stands before and behind it is compared, and only the
    text is read as JSON. To read all of an event takes several times as long.
    """

    def __init__(self, read_whole: Callable[[str], str | None]) -> None:
        """Know no form yet.

        `read_whole` returns the text of an event that has nothing else; None for any other.
        """
        self._read_whole = read_whole
        self._before = ""
        self._behind = ""
        # A server whose events differ in more than their text is not looked at again and again
        self._tries_left = MAX_FORMS

    def text_of(self, event: str) -> str | None:
        """Return the text of an event that is written in this form; None for any other."""
        before = self._before
        if not before or not event.startswith(before):
            return None
        try:
            text, end = _read_json_text(event, len(before))
        except ValueError:
            return None
        if event[end:] != self._behind:
            return None
        self._tries_left = MAX_FORMS
        return text

    def learn(self, event: str, text: str) -> None:
        """Take the form of an event that has nothing but this text."""
        if not self._tries_left:
            return
        self._tries_left -= 1
        for name in _CONTENT.finditer(event):
            before = event[: name.end()]
            try:
                found_text, end = _read_json_text(event, len(before))
            except ValueError:
                continue
            behind = event[end:]
            if found_text != text or text == _PROBE:
                continue
            # The name may stand elsewhere, too: here another text must be that of the event
            if self._read_whole(f'{before}{_PROBE}"{behind}') == _PROBE:
                self._before = before
                self._behind = behind
                return

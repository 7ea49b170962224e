"""A JSON body that holds files in base64, without ever holding one of them as a text.

A body has a `Base64File` where the text of a file belongs. While the body is sent, each file is read, turned into
base64 piece by piece, and forgotten. So a request with ten images needs the memory of one, and no copy of its base64.
"""

from __future__ import annotations

import json
import secrets
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from conductor_cli.core.chat import Attachment
from conductor_cli.core.errors import ModelError

PIECE: Final = 3 * 64 * 1024
"""Bytes of a file that are encoded at once: a multiple of three, so that the pieces join to one base64 text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base64File:
    """Stands in a body for the text `prefix` and the bytes of `attachment` in base64."""

    attachment: Attachment
    read: Callable[[Attachment], bytes]
    prefix: str = ""

    def text(self) -> str:
        """All of the text, for a library that wants it. Raises `ModelError` if the bytes are gone."""
        return self.prefix + b64encode(self._bytes()).decode()

    @property
    def length(self) -> int:
        """The bytes of the base64 text, without the prefix."""
        return -(-self.attachment.size // 3) * 4

    async def pieces(self) -> AsyncIterator[bytes]:
        """The base64 text, without the prefix."""
        import asyncio  # commands that send nothing start without it

        data = memoryview(await asyncio.to_thread(self._bytes))
        for start in range(0, len(data), PIECE):
            yield b64encode(data[start : start + PIECE])

    def _bytes(self) -> bytes:
        data = self.read(self.attachment)
        if len(data) != self.attachment.size:
            # The length of the request has been announced by then.
            message = f"{self.attachment.name} has changed: {len(data)} bytes instead of {self.attachment.size}"
            raise ModelError("file", message, hint="attach it again")
        return data


class JsonBody:
    """A JSON value as the bytes of a request, whose files are read while they are sent. May be sent again."""

    def __init__(self, value: Any) -> None:  # noqa: ANN401 - any JSON value
        files: list[Base64File] = []
        mark = secrets.token_hex(16)

        def default(found: object) -> str:
            if not isinstance(found, Base64File):
                raise TypeError(f"not a JSON value: {type(found).__name__}")
            files.append(found)
            return found.prefix + mark

        text = json.dumps(value, ensure_ascii=False, default=default).encode("utf-8", "replace")
        self._texts = text.split(mark.encode())
        self._files = files

    @property
    def headers(self) -> dict[str, str]:
        """What a request with this body says of it."""
        length = sum(map(len, self._texts)) + sum(file.length for file in self._files)
        return {"content-type": "application/json", "content-length": str(length)}

    @property
    def content(self) -> bytes | AsyncIterator[bytes]:
        """All of it at once if it holds no file, else in pieces."""
        return self._pieces() if self._files else self._texts[0]

    async def _pieces(self) -> AsyncIterator[bytes]:
        for text, file in zip(self._texts, (*self._files, None), strict=True):
            yield text
            if file is not None:
                async for piece in file.pieces():
                    yield piece


def with_texts(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """A JSON value with the text of each file in its place."""
    if isinstance(value, Base64File):
        return value.text()
    if isinstance(value, Mapping):
        return {name: with_texts(item) for name, item in value.items()}
    return [with_texts(item) for item in value] if isinstance(value, (list, tuple)) else value


def files_in(value: Any) -> Iterator[Base64File]:  # noqa: ANN401 - any JSON value
    """The files that a JSON value holds, in order."""
    if isinstance(value, Base64File):
        yield value
    elif isinstance(value, (Mapping, list, tuple)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from files_in(item)

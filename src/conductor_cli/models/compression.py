"""Bodies that a server compresses although nobody asked for that, decompressed in pieces of bounded size.

A library that decompresses a piece at once makes a thousand times its size of it.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

from conductor_cli.core.errors import ModelError
from conductor_cli.core.terminal_text import one_line

PIECE: Final = 64 * 1024
"""The most bytes that come at once."""


async def decompressed(pieces: AsyncIterator[bytes], how: str, name: str) -> AsyncGenerator[bytes, None]:
    """The plain bytes of a body of the server `name`; `how` is its `Content-Encoding`. Raises `ModelError`."""
    how = how.strip().lower()
    if how not in ("", "identity", "gzip", "x-gzip", "deflate"):
        raise ModelError("broken", f"{name}: the body is compressed ({one_line(how):.40}), which was not asked for")
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # gzip and zlib, told apart by their heads
    async for packed in pieces:
        if how in ("", "identity"):
            yield packed
            continue
        rest = packed
        while rest and not unpacker.eof:
            try:
                piece = unpacker.decompress(rest, PIECE)
            except zlib.error:
                raise ModelError("broken", f"{name}: the body cannot be decompressed") from None
            rest = unpacker.unconsumed_tail
            if piece:
                yield piece

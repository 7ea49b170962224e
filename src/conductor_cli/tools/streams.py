"""A reply over HTTP that is cut off where it becomes too long."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

from conductor_cli.tools.stdio import LONGEST_MESSAGE

if TYPE_CHECKING:
    from httpx2 import AsyncByteStream


def bounded_stream(stream: AsyncByteStream, too_long: Callable[[str], None]) -> AsyncByteStream:
    """The same bytes up to `LONGEST_MESSAGE`. Then `too_long` is told why, and reading raises `httpx2.ReadError`."""
    from httpx2 import AsyncByteStream, ReadError

    class Bounded(AsyncByteStream):
        async def __aiter__(self) -> AsyncGenerator[bytes, None]:
            read = 0
            async for piece in stream:
                read += len(piece)
                if read > LONGEST_MESSAGE:
                    why = f"it sent a message of more than {LONGEST_MESSAGE >> 20} MiB"
                    too_long(why)
                    raise ReadError(why)
                yield piece

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()

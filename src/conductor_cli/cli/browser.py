"""The user's browser.

An address is opened in it, and an address on this machine waits for its visit.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import tempfile
import threading
import webbrowser
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qsl, urlsplit

from conductor_cli.system.event_loop import run_async

SECONDS = 30.0  # How long a browser may take to come, and to send one request


def open_browser(address: str) -> bool:
    """Open an address in the user's browser; false where no screen is known that could show one."""
    screen = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    if os.name != "nt" and sys.platform != "darwin" and not screen:
        return False
    # On a thread, because some browsers return only when they end.
    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    return True


MAX_VISITS = 16  # Visits whose queries nobody has read yet; further ones are not kept


@asynccontextmanager
async def visited_address(
    path: str, page: str
) -> AsyncIterator[tuple[str, asyncio.Queue[Mapping[str, str]]]]:
    """Give an address on this machine that shows `page`, and the queries of its visits."""
    visits = asyncio.Queue[Mapping[str, str]](MAX_VISITS)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # TimeoutError is one
        with suppress(OSError, ValueError, LookupError, EOFError, asyncio.LimitOverrunError):
            async with asyncio.timeout(SECONDS):
                request = await reader.readuntil(b"\r\n\r\n")
                target = urlsplit(request.split(b" ", 2)[1].decode())
                is_own_page = request.startswith(b"GET ") and target.path == path
                body = page.encode() if is_own_page else b""
                status = "200 OK" if is_own_page else "404 Not Found"
                head = f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\n"
                head += (
                    f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: "
                    "close\r\n\r\n"
                )
                writer.write(head.encode() + body)
                await writer.drain()
                writer.close()
                await writer.wait_closed()
            if is_own_page:
                with suppress(asyncio.QueueFull):
                    visits.put_nowait(dict(parse_qsl(target.query)))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{path}", visits


def show_page(name: str, page: str) -> str:
    """Show a page in the browser.

    Returns the file in which it is where no browser came for it, else nothing.
    """

    async def show() -> bool:
        path = f"/{secrets.token_urlsafe(16)}/{name}.html"
        async with visited_address(path, page) as (address, visits):
            with suppress(TimeoutError):
                async with asyncio.timeout(SECONDS):
                    return open_browser(address) and await visits.get() is not None
        return False

    if run_async(show()):
        return ""
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", prefix=f"{name}-", suffix=".html", delete=False
    ) as file:
        file.write(page)
    return file.name

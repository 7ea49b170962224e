"""A server of tools for tests, written with the official SDK: `python server.py [PORT]`, over stdio or HTTP."""

from __future__ import annotations

import base64
import sys

from mcp.server.mcpserver import Image, MCPServer
from mcp.types import ToolAnnotations

READ_ONLY = ToolAnnotations(read_only_hint=True)
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

server = MCPServer("test")


@server.tool()
def write(text: str) -> str:
    """Change something."""
    return f"written: {text}"


@server.tool(annotations=READ_ONLY)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(annotations=READ_ONLY)
def picture() -> Image:
    """An image."""
    return Image(data=PIXEL, format="png")


@server.tool(annotations=READ_ONLY)
def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)


@server.tool(annotations=READ_ONLY)
def flood(megabytes: int) -> str:
    """A result of so many megabytes."""
    return "x" * (megabytes << 20)


if __name__ == "__main__":
    if len(sys.argv) > 1:  # the port of an HTTP server
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run()

"""A server of tools for tests, written with the official SDK: `python server.py [MODE]`, over stdio.

Its modes misbehave: see `main`. A file named by DIARY gets a line for each start and each change that a tool makes.
"""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.types import SamplingMessage, TextContent, ToolAnnotations

READ_ONLY = ToolAnnotations(read_only_hint=True)
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

server = MCPServer("test")


def note(line: str) -> None:
    """Add a line to the diary."""
    if os.environ.get("DIARY"):
        with Path(os.environ["DIARY"]).open("a") as diary:
            diary.write(line + "\n")


@server.tool(annotations=READ_ONLY)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(annotations=READ_ONLY)
def environment() -> str:
    """The names of all variables of this server."""
    return " ".join(sorted(os.environ))


@server.tool(annotations=READ_ONLY)
def picture() -> Image:
    """An image."""
    return Image(data=PIXEL, format="png")


@server.tool()
def write(text: str) -> str:
    """Write a line to the diary."""
    note(f"write {text}")
    return "written"


@server.tool(annotations=READ_ONLY)
def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)


@server.tool(annotations=READ_ONLY)
def hang() -> str:
    """Never return."""
    time.sleep(3600)
    return ""


@server.tool(annotations=READ_ONLY)
def die() -> str:
    """End this server in the middle of a call."""
    print("the disk is on fire", file=sys.stderr, flush=True)
    os._exit(3)


@server.tool(annotations=READ_ONLY)
def flood(megabytes: int) -> str:
    """A result of so many megabytes."""
    return "x" * (megabytes << 20)


@server.tool(annotations=READ_ONLY)
async def sample(context: Context) -> str:
    """Ask the client to sample a text."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text="?"))
    result = await context.session.create_message(messages=[message], max_tokens=10)  # type: ignore[deprecated,unused-ignore]
    return str(result)


@server.tool(annotations=READ_ONLY)
def grow() -> str:
    """Add a tool to the list."""
    server.add_tool(lambda: "grown", name="grown", annotations=READ_ONLY)
    return "there is a new tool"


def main(mode: str) -> None:  # noqa: C901 - a case for each mode
    """Serve; or hang, die, write garbage, list 10,000 tools, ignore the end, or leave a child behind."""
    note(f"start {os.getpid()}")
    match mode:
        case "hang":
            time.sleep(3600)
        case "die":
            print("no such directory: /data", file=sys.stderr)
            raise SystemExit(2)
        case "garbage":
            while True:
                print("this is no message", flush=True)
        case "many":
            for number in range(10_000):
                server.add_tool(lambda: "", name=f"tool{number}")
        case "names":
            for name in ("a b", "a.b", "\x1b[31mred", "x" * 200):
                server.add_tool(lambda: "", name=name)
        case "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
            note(f"child {child.pid}")
    server.run()
    if mode == "stubborn":
        time.sleep(3600)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")

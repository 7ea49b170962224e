"""Our own time for one call of a tool over stdio, beyond what the server takes."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from pathlib import Path
from typing import Final

from figures import Figure, Table, show

from conductor_cli.tools.servers import ToolServer
from conductor_cli.tools.session import McpToolBox

CALLS: Final = 300
BOUND: Final = 0.005
SERVER: Final = Path(__file__).resolve().parents[1] / "tests" / "tools" / "raw_server.py"


def measure() -> Table:
    """`CALLS` calls of a tool that adds two numbers, one after the other, after one that is not counted."""
    taken = asyncio.run(_calls())
    rank = sorted(taken)[int(len(taken) * 0.9)]
    figure = Figure(
        what="one call of a tool that takes no time, median", value=statistics.median(taken), unit="ms", bound=BOUND,
        also=f"9 of 10 calls within {rank * 1e3:.1f} ms",
    )  # fmt: skip
    return Table(title="tools", about=f"A server of tools over stdio, {CALLS} calls.", figures=(figure,))


async def _calls() -> list[float]:
    server = ToolServer(name="t", command=(sys.executable, str(SERVER)), only=("add",))
    box = McpToolBox({"t": server}, lambda text: text)
    try:
        [tool] = await box.offered(["t"])
        await box.call(tool, {"a": 1, "b": 1})
        taken = []
        for number in range(CALLS):
            began = time.perf_counter()
            result = await box.call(tool, {"a": number, "b": 1})
            taken.append(time.perf_counter() - began)
            assert result.text == str(number + 1)
    finally:
        await box.close()
    return taken


if __name__ == "__main__":
    sys.exit(show(measure()))

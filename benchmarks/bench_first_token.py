"""How long a worker of each kind takes to its first token, from the start of the process, against kind `openai`."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from figures import Figure, Table, show

sys.path.insert(0, str(Path(__file__).parents[1]))

ROUNDS: Final = 7
BOUND: Final = 1.3

ASK: Final = """
import asyncio, sys
from contextlib import aclosing
from conductor_cli.core.chat import Message, Request
from conductor_cli.core.pool import Worker
from conductor_cli.models.catalog import open_model

kind, url = sys.argv[1:]

async def first_token():
    model = open_model(
        Worker(name="w", kind=kind, model="anthropic/m" if kind == "litellm" else "m",
               options={"base_url": url, "key_env": "KEY"}),
        environ={"KEY": "made-up-for-a-benchmark"},
    )
    async with aclosing(model.stream(Request(messages=(Message(role="user", content="Yes?"),)))) as chunks:
        async for chunk in chunks:
            if chunk.text:
                print(chunk.text, "litellm" in sys.modules, flush=True)
                return

asyncio.run(first_token())
"""


def measure() -> Table:
    """The kinds in turn, `ROUNDS` times, after one round that is not counted."""
    from tests.servers import SeenStep, Speaker, Wire, loopback

    async def reply(seen: SeenStep, wire: Wire) -> None:
        speaker = Speaker(seen, wire)
        await speaker.begin()
        await speaker.say("Yes.")
        await speaker.end()

    kinds = ("openai", "anthropic", "gemini", "litellm")
    with loopback(reply) as server:
        rounds = [{kind: first_token(kind, server.url) for kind in kinds} for _ in range(ROUNDS + 1)][1:]
    ratios = {kind: statistics.median(each[kind] / each["openai"] for each in rounds) for kind in kinds}
    seconds = {kind: statistics.median(each[kind] for each in rounds) for kind in kinds}
    return Table(
        title="first token",
        about="A process that opens one worker and asks a server on loopback, from start to first text; median of "
        f"{ROUNDS} rounds. `openai`, `anthropic` and `gemini` speak each provider's own API; for them the process "
        "also checks that litellm is not imported. `litellm` stands for all other providers.",
        figures=(
            Figure(what="openai", value=seconds["openai"], unit="ms"),
            Figure(what="anthropic, over openai", value=ratios["anthropic"], unit="ratio", bound=BOUND),
            Figure(what="gemini, over openai", value=ratios["gemini"], unit="ratio", bound=BOUND),
            Figure(what="litellm, over openai", value=ratios["litellm"], unit="ratio"),
        ),
    )


def first_token(kind: str, url: str) -> float:
    """Seconds from the start of a process to the first text of a worker of this kind."""
    began = time.monotonic()
    with subprocess.Popen([sys.executable, "-c", ASK, kind, url], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        took = time.monotonic() - began
    assert line == f"Yes. {kind == 'litellm'}\n", line
    return took


if __name__ == "__main__":
    sys.exit(show(measure()))

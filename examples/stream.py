"""Show a run while it goes on: each planned step, each piece of an answer, and the end.

Run it with: python examples/stream.py
"""

from __future__ import annotations

import asyncio

import conductor_cli
from conductor_cli import events

QUESTION = "Find the capital of Spain, then spell it backwards, then count its letters."


async def main() -> None:
    """Print a line for each event that says something new."""
    async with conductor_cli.open_async(demo=True) as conductor:
        run = conductor.ask(QUESTION)
        async for event in run:
            match event:
                case events.StepPlanned():
                    print(
                        f"step {event.step} is planned: {event.worker} is asked {event.subtask!r}"
                    )
                case events.StepDelta() if event.text:
                    print(f"step {event.step} writes: {event.text!r}")
                case events.StepFinished():
                    print(f"step {event.step} has finished after {event.at:.1f} s")
                case _:
                    pass  # docs/events.md lists them all
        print("answer:", run.answer)


if __name__ == "__main__":
    asyncio.run(main())

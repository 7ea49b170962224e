"""Ask one question and print its answer, what it cost, and who worked on it.

Run it with: python examples/ask.py "Find the capital of Spain, then spell it backwards."
"""

from __future__ import annotations

import sys

import conductor_cli

QUESTION = "Find the capital of France, then spell it backwards."


def main(question: str) -> int:
    """Print the answer to standard output and everything else to standard error."""
    # Leave `demo=True` out to use the workers of your settings.
    with conductor_cli.open(demo=True) as conductor:
        run = conductor.ask(question)
        print(run.answer)  # runs the question to its end
    for notice in run.notices:
        print("note:", notice, file=sys.stderr)
    if run.error is not None:
        print(f"{run.error.kind}: {run.error.message}", file=sys.stderr)
        return 1
    workers = [step.worker for step in run.trace.steps]
    cost = "no known price" if run.usage.cost is None else f"{run.usage.cost} US dollars"
    print(f"{' then '.join(workers)}: {run.usage.calls} calls, {cost}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(" ".join(sys.argv[1:]) or QUESTION))

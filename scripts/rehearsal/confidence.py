"""How sure a worker has to be of an answer: `python -m scripts.rehearsal.confidence DIRECTORY`.

For each threshold, the shares of wrong answers and of refusals at steps of the workers' own skills. The questions are a
validation set: held-out phrasings over words and combinations of training, and another seed than any table's.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from conductor_cli.rehearsal.players import REFUSAL
from scripts.rehearsal.asking import Bank, Reply
from scripts.rehearsal.lessons import EVERY
from scripts.rehearsal.worker_table import path_of, steps_of
from scripts.rehearsal.world import draw_problems

THRESHOLDS: Final = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
COUNT: Final = 1000
SEED: Final = 77


class Answered(NamedTuple):
    """What a worker wrote, and whether it is right."""

    reply: Reply
    right: bool


async def answers(directory: Path, count: int) -> list[Answered]:
    """What the specialists that have a file answer at their own steps."""
    skills = [skill for skill in EVERY if path_of(directory, skill).is_file()]
    problems = draw_problems(count, SEED, split="train", phrasings="held", skills=EVERY, checked=0.0)
    found = []
    async with Bank(directory) as bank:
        for step in [step for problem in problems for step in steps_of(problem) if step.hop.skill in skills]:
            reply = await bank.ask(step.hop.skill, step.prompt)
            found.append(Answered(reply, reply.text == step.hop.answer))
    return found


def shares(found: Sequence[Answered], threshold: float) -> tuple[float, float]:
    """The shares of wrong answers and of refusals with this threshold."""
    refused = [item for item in found if item.reply.text == REFUSAL or item.reply.confidence < threshold]
    wrong = [item for item in found if not item.right and item not in refused]
    return len(wrong) / len(found), len(refused) / len(found)


def main() -> None:
    """Print a line for each threshold."""
    found = asyncio.run(answers(Path(sys.argv[1]), COUNT))
    for threshold in THRESHOLDS:
        wrong, refused = shares(found, threshold)
        print(f"below {threshold:.1f}: wrong {wrong:.4f}, refused {refused:.4f} of {len(found)} steps")


if __name__ == "__main__":
    main()

"""Ask every question of a file, a few at a time, and write each answer as soon as it is there.

Run it with: python examples/batch.py QUESTIONS.txt ANSWERS.jsonl
The command `conductor batch` does this with resuming, limits and retries; this is the way to a sink
of your own.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TextIO

import conductor_cli

AT_ONCE = 4


class AnswerFile:
    """The sink: a line of JSON for each answer. A queue or a table would have the same method."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, question: str, answer: str, error: str) -> None:
        row = {"question": question, "answer": answer, "error": error}
        self._file.write(json.dumps(row, ensure_ascii=False) + "\n")
        self._file.flush()  # what is there stays, whatever happens to the rest


async def main(questions: list[str], sink: AnswerFile) -> None:
    """Ask all questions, at most `AT_ONCE` at the same time."""
    turns = asyncio.Semaphore(AT_ONCE)
    async with conductor_cli.open_async(demo=True) as conductor:

        async def ask(question: str) -> None:
            async with turns:
                try:
                    # A question that cannot be asked and a run that fails are errors of one kind.
                    sink.write(question, await conductor.ask(question).wait(), "")
                except conductor_cli.ConductorError as error:
                    sink.write(question, "", error.message)

        await asyncio.gather(*(ask(question) for question in questions))


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:3])
    lines = [line for line in source.read_text(encoding="utf-8").splitlines() if line.strip()]
    with target.open("w", encoding="utf-8") as answers:
        asyncio.run(main(lines, AnswerFile(answers)))

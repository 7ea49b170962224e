"""The workers of the world that are models.

They answer in words, or write a program that Python runs.

Answers are greedy and are kept in a file by what was asked, so a question is never asked twice. The
prompt is the product's own prompt of a worker.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from conductor_cli.core.chat import Message, Request
from conductor_cli.core.plan import Step
from conductor_cli.core.pool import Worker
from conductor_cli.core.profile import SeenStep, WorkerProfile
from conductor_cli.core.question import Question
from conductor_cli.core.worker_prompts import worker_messages
from training.planner.world.programs import Seen, run_program

ANSWER_TOKENS: Final = 96
PROGRAM_TOKENS: Final = 160

PROGRAM_RULE: Final = (
    "Write a Python program that computes the answer to your subtask and prints it. Write the "
    "program alone, without "
    "words."
)

_CODE_BLOCK: Final = re.compile(r"```(?:python)?\s*\n(.*?)(?:```|\Z)", re.DOTALL)


Ask = Callable[[Request], str]


class AnswerCache:
    """Answers of one model in a file, a line each; `ask` is called for what is not there."""

    def __init__(self, path: Path, ask: Ask) -> None:
        self._path = path
        self._ask = ask
        self._answers: dict[str, str] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                entry = json.loads(line)
                self._answers[entry["key"]] = entry["answer"]

    def answer(self, request: Request) -> str:
        """The answer to a request, asked for once."""
        sent = json.dumps(
            [
                [[message.role, message.content] for message in request.messages],
                request.max_tokens,
            ]
        )
        key = hashlib.sha256(sent.encode()).hexdigest()
        if key not in self._answers:
            self._answers[key] = self._ask(request)
            with self._path.open("a") as file:
                file.write(json.dumps({"key": key, "answer": self._answers[key]}) + "\n")
        return self._answers[key]


def ask_in_words(
    cache: AnswerCache, worker: Worker, question: str, step: Step, subtasks: Seen, seen: Seen
) -> str:
    """What a model answers to a step, shown the question and the answers on its access list."""
    messages = _messages(worker, question, step, subtasks, seen)
    return cache.answer(Request(messages=messages, max_tokens=ANSWER_TOKENS, temperature=0.0))


def ask_for_program(
    cache: AnswerCache, worker: Worker, question: str, step: Step, subtasks: Seen, seen: Seen
) -> str:
    """What the program prints that a model writes for a step."""
    messages = _messages(worker, question, step, subtasks, seen)
    last = messages[-1]
    conversation = (
        *messages[:-1],
        Message(role="user", content=f"{last.content}\n\n{PROGRAM_RULE}"),
    )
    written = cache.answer(
        Request(messages=conversation, max_tokens=PROGRAM_TOKENS, temperature=0.0)
    )
    return run_program(find_program_text(written))


def find_program_text(written: str) -> str:
    """The program in a model's answer: its first block of code, or all of it."""
    block = _CODE_BLOCK.search(written)
    if block is None:
        return written
    return block[1]


def _messages(
    worker: Worker, question: str, step: Step, subtasks: Seen, seen: Seen
) -> tuple[Message, ...]:
    shown = [
        SeenStep(number=number, worker="worker", subtask=subtasks[number], answer=answer)
        for number, answer in seen.items()
    ]
    messages, _ = worker_messages(
        Question(text=question), step, shown, worker, WorkerProfile(), final=False
    )
    return messages

"""One model without a planner: what it answers to the questions of the test, asked as they are.

    python -m training.planner.world.alone --model FILE.gguf --world DIR --seed S --n 200 --out FILE
    python -m training.planner.world.alone … --votes 5 --out FILE
    python -m training.planner.world.alone … --program --out FILE

Greedy in one call; with `--votes`, the answer that most of so many calls at temperature 0.7 have,
the first of equals; with `--program`, what the program prints that the model writes. `compare`
reads the file, which is that of `judge` without plans. The same call goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.chat import Message, Request
from conductor_cli.core.plan import Step
from conductor_cli.core.plan_formats.base import ANSWER_DIRECTLY
from conductor_cli.core.pool import Worker
from conductor_cli.core.profile import WorkerProfile
from conductor_cli.core.question import Question
from conductor_cli.core.worker_prompts import worker_messages
from conductor_cli.models.llama.bindings import CancelToken
from conductor_cli.models.llama.engine import LlamaEngine
from conductor_cli.models.llama.loading import LlamaOptions
from training.planner.world.cases import Case, open_world
from training.planner.world.check import is_right
from training.planner.world.judge import drawn_case, print_shares, read_lines
from training.planner.world.models import (
    ANSWER_TOKENS,
    PROGRAM_RULE,
    PROGRAM_TOKENS,
    find_program_text,
)
from training.planner.world.programs import run_program, value_of

VOTE_TEMPERATURE: Final = 0.7


def bare_messages(question: str) -> tuple[Message, ...]:
    """What a worker is sent by a plan of one step: the question as it is."""
    worker = Worker(name="worker", kind="command")
    step = Step(worker=worker.name, subtask=ANSWER_DIRECTLY, access=())
    messages, _ = worker_messages(
        Question(text=question), step, (), worker, WorkerProfile(), final=True
    )
    return messages


def answer_by_one_call(engine: LlamaEngine, question: str) -> str:
    """The likeliest answer."""
    request = Request(
        messages=bare_messages(question), max_tokens=ANSWER_TOKENS, temperature=0.0, seed=0
    )
    return _reply(engine, request)


def answer_by_votes(engine: LlamaEngine, question: str, votes: int) -> str:
    """The answer whose number most of some drawn answers have, the first of equals."""
    answers = list[str]()
    for seed in range(votes):
        request = Request(
            messages=bare_messages(question),
            max_tokens=ANSWER_TOKENS,
            temperature=VOTE_TEMPERATURE,
            seed=seed,
        )
        answers.append(_reply(engine, request))
    counts = Counter(map(value_of, answers))
    return max(answers, key=lambda answer: counts[value_of(answer)])


def answer_by_program(engine: LlamaEngine, question: str) -> str:
    """What the program prints that the model writes for a question."""
    *before, last = bare_messages(question)
    told = Message(role="user", content=f"{last.content}\n\n{PROGRAM_RULE}")
    request = Request(messages=(*before, told), max_tokens=PROGRAM_TOKENS, temperature=0.0, seed=0)
    return run_program(find_program_text(_reply(engine, request)))


def _reply(engine: LlamaEngine, request: Request) -> str:
    return "".join(chunk.text for chunk in engine.generate(request, CancelToken()))


def line_of(case: Case, number: int, answer: str) -> dict[str, Any]:
    """The line of a question in the file."""
    return {
        "number": number,
        "held_out": case.composed.is_held_out,
        "right": is_right(answer, case.wanted, case.composed.digits),
        "shape": case.composed.shape,
        "question": case.composed.text,
        "wanted": case.wanted,
        "answer": answer,
        "plan": [],
    }


def _read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training.planner.world.alone")
    parser.add_argument("--model", type=Path, required=True, help="a GGUF file")
    parser.add_argument("--world", type=Path, required=True, help="the directory of the tables")
    parser.add_argument("--seed", required=True, help="the seed of the questions")
    parser.add_argument("--n", type=int, default=200, help="questions, half of them held out")
    parser.add_argument("--out", type=Path, required=True, help="the file of lines")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--votes", type=int, default=0, help="draw so many answers and let them vote")
    form.add_argument("--program", action="store_true", help="run a program that the model writes")
    parser.add_argument("--no-dates", action="store_true", help="no questions on days")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def main() -> int:
    """Ask what is missing in the file, and print the share of right answers."""
    given = _read_arguments()
    settings = {
        "seed": given.seed,
        "model": str(given.model),
        "votes": given.votes,
        "program": given.program,
        "dates": not given.no_dates,
    }
    lines = read_lines(given.out, settings)
    world = open_world(given.world, dates=not given.no_dates)
    engine = LlamaEngine(given.model, LlamaOptions(threads=given.threads), CancelToken())

    def answer(question: str) -> str:
        if given.votes:
            return answer_by_votes(engine, question, given.votes)
        if given.program:
            return answer_by_program(engine, question)
        return answer_by_one_call(engine, question)

    for number in range(len(lines), given.n):
        case = drawn_case(world, given.seed, number)
        line = {"settings": settings, **line_of(case, number, answer(case.composed.text))}
        lines.append(line)
        with given.out.open("a") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    print_shares(lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())

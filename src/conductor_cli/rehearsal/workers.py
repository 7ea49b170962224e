"""The demo workers: real models of 0.9 million parameters that ship with this package, and their prompt.

There is a specialist for each skill, and a generalist that is mediocre at all of them on purpose. They run in llama.cpp
like any other model.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from conductor_cli.core.plan import Step
from conductor_cli.core.pool import Card, Pool, Worker
from conductor_cli.core.profile import SeenStep, WorkerProfile
from conductor_cli.core.question import Question
from conductor_cli.core.usage import FREE
from conductor_cli.rehearsal.normalize import names_a_task, normalize

CONTEXT: Final = 1024
"""Tokens that a worker can read. A capital letter is a token, so a prompt of `render` always fits."""

MOST_TOKENS: Final = 16
"""The longest answer has 10 letters."""

NAMES: Final = ("letters", "numbers", "facts", "generalist")

ABOUT: Final[Mapping[str, str]] = {
    "letters": "reverses, counts, sorts the letters of a word; first and last letter",
    "numbers": "adds, subtracts, multiplies small whole numbers",
    "facts": "capitals, chemical elements, opposites, months",
    "generalist": "a little of letters, numbers and facts",
}

_TEXT: Final = 140
_ANSWER: Final = 24
_SEEN: Final = 4
"""The most characters of the question or a subtask, of an answer, and the most answers that a prompt shows."""


def render(question: Question, step: Step, seen: Sequence[SeenStep]) -> str:
    """The whole prompt: question, answers that the step sees, subtask. The answer follows the last `a:`.

        q: spell the capital of FRANCE backwards
        s: capital of FRANCE
        a: PARIS
        s: spell it backwards
        a:

    The question is left out if it is the subtask. A subtask that names no operation ("Answer the question.") means the
    question.
    """
    asked = normalize(question.text)[:_TEXT]
    own = _task(step.subtask, asked)
    lines = [] if own == asked else [f"q: {asked}"]
    for item in [item for item in seen if item.answer is not None][-_SEEN:]:
        lines += [f"s: {_task(item.subtask, asked)}", f"a: {clean_answer(item.answer or '')}"]
    return "\n".join([*lines, f"s: {own}", "a:"])


def _task(subtask: str, asked: str) -> str:
    text = normalize(subtask)[:_TEXT]
    return text if names_a_task(text) else asked


def clean_answer(answer: str) -> str:
    """An answer in the form of the models and scorers: one line, in upper case, without a full stop at the end."""
    plain = answer.encode("ascii", "ignore").decode()
    return " ".join(plain.split()).upper().rstrip(".")[:_ANSWER]


PROFILE: Final = WorkerProfile(name="rehearsal", render=render, max_tokens=MOST_TOKENS, context=CONTEXT)


VARIABLE: Final = "CONDUCTOR_LLM_REHEARSAL_DIR"
"""Names a directory with newly trained files, which replace those that ship with this package."""


def model_path(name: str) -> Path:
    """The file of the model `name`."""
    own = os.environ.get(VARIABLE)
    return (Path(own).absolute() if own else Path(__file__).parent / "models") / f"{name}.gguf"


def cards_path() -> Path:
    """The cards that ship with the workers, as written by `conductor workers calibrate --rehearsal --out FILE`."""
    own = os.environ.get(VARIABLE)
    return Path(own).absolute() / "cards.json" if own else Path(__file__).with_name("cards.json")


def rehearsal_workers(cards: Mapping[str, Card] | None = None, *, directory: Path | None = None) -> Pool:
    """The four workers with their `cards`, from the files in `directory` or the shipped ones."""
    files = {name: model_path(name) if directory is None else directory / f"{name}.gguf" for name in NAMES}
    options = {"context": CONTEXT, "threads": 1, "gpu_layers": 0, "temperature": 0.0, "max_tokens": MOST_TOKENS}
    return Pool(
        workers=tuple(
            Worker(
                name=name, kind="llama", model=str(path), about=ABOUT[name], card=(cards or {}).get(name, Card()),
                options=options, price=FREE,
            )
            for name, path in files.items()
        )
    )  # fmt: skip

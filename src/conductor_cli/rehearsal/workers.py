"""The demo workers: real models of 0.9 million parameters that ship with this package, and their prompt.

There is a specialist for each skill, a checker, and a generalist that is mediocre at everything on purpose. They run in
llama.cpp like any other model. A worker refuses what it cannot do: it writes `?`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from conductor_cli.core.plan import Step
from conductor_cli.core.pool import Card, Pool, Worker
from conductor_cli.core.profile import SeenStep, WorkerProfile
from conductor_cli.core.question import Question
from conductor_cli.core.usage import FREE
from conductor_cli.rehearsal.normalize import find_operands, normalize

CONTEXT: Final = 1024
"""Tokens that a worker can read. A capital letter is a token, so a prompt of `render` always fits."""

MOST_TOKENS: Final = 20
"""The longest answer has 14 letters; the checker writes its verdict after it."""

NAMES: Final = (
    "spelling", "counting", "adding", "multiplying", "geography", "chemistry", "opposites", "calendar", "translation",
    "comparing", "colours", "checker", "generalist",
)  # fmt: skip

ABOUT: Final[Mapping[str, str]] = {
    "spelling": "reverses, sorts, joins words; first and last letter",
    "counting": "counts the letters and the vowels of a word",
    "adding": "adds and subtracts numbers up to 99",
    "multiplying": "multiplies up to 12 times 12; double, triple, half",
    "geography": "capitals and their countries",
    "chemistry": "chemical elements, their symbols and atomic numbers",
    "opposites": "words and their opposites",
    "calendar": "months and weekdays",
    "translation": "everyday words in English and Spanish",
    "comparing": "the larger number, the longer word, the first in the alphabet",
    "colours": "the usual colours of things",
    "checker": "says whether an answer is right: YES or NO",
    "generalist": "a little of everything",
}

CHECKER: Final = "checker"
"""Which says YES or NO even if it is unsure: what it says only decides whether to ask again."""

REFUSAL: Final = "?"
"""What a worker writes that cannot do what it is asked."""

REFUSE_BELOW: Final = 0.6
"""An answer of which the model is less sure becomes a refusal; chosen on questions of a validation set."""

_TEXT: Final = 160
_ANSWER: Final = 24
_SEEN: Final = 4
"""The most characters of the question or a subtask, of an answer, and the most answers that a prompt shows."""

_GENERAL: Final = frozenset({
    "a", "an", "and", "answer", "as", "earlier", "final", "found", "give", "in", "is", "it", "more", "now",
    "of", "once", "one", "own", "please", "question", "steps", "that", "the", "this", "to", "try", "using",
    "what", "word", "your",
})  # fmt: skip
"""Words of subtasks that name no operation, like "Answer the question."."""


def render(question: Question, step: Step, seen: Sequence[SeenStep]) -> str:
    """The whole prompt: the answers that the step sees, and its subtask. The answer follows the last `a:`.

        s: capital of FRANCE
        a: PARIS
        s: spell it backwards
        a:

    A subtask that names no operation ("Answer the question.") means the question.
    """
    asked = normalize(question.text)[:_TEXT]
    lines = list[str]()
    for item in [item for item in seen if item.answer is not None][-_SEEN:]:
        lines += [f"s: {_task(item.subtask, asked)}", f"a: {clean_answer(item.answer or '')}"]
    return "\n".join([*lines, f"s: {_task(step.subtask, asked)}", "a:"])


def _task(subtask: str, asked: str) -> str:
    text = normalize(subtask)[:_TEXT]
    return text if set(text.lower().split()) - _GENERAL else asked


def clean_answer(answer: str) -> str:
    """An answer in the form of the models and scorers: one line, in upper case, without a full stop at the end.

    The checker works the answer out before it judges: of `PARIS NO`, the verdict is left.
    """
    plain = answer.encode("ascii", "ignore").decode()
    words = " ".join(plain.upper().split()).rstrip(". ").split()
    return words[-1] if words[-1:] in (["YES"], ["NO"]) else " ".join(words)[:_ANSWER]


def operands(text: str) -> tuple[str, ...]:
    """What the steps of a plan have to name, since workers are not shown the question."""
    return find_operands(normalize(text))


PROFILE: Final = WorkerProfile(
    name="rehearsal",
    render=render,
    max_tokens=MOST_TOKENS,
    context=CONTEXT,
    operands=operands,
    refusal=REFUSAL,
)


SHIPPED: Final = Path(__file__).parent / "models"

VARIABLE: Final = "CONDUCTOR_LLM_REHEARSAL_DIR"
"""Names a directory with newly trained files, which replace those that ship with this package."""


def model_path(name: str) -> Path:
    """The file of the model `name`."""
    own = os.environ.get(VARIABLE)
    return (Path(own).absolute() if own else SHIPPED) / f"{name}.gguf"


CARDS: Final = "cards.json"
"""The file beside the workers' own: what each can do and how well, as `scripts.rehearsal.train cards` measures it."""


def read_cards() -> dict[str, Card]:
    """The cards of the workers, by name. Those that ship stand in for a directory that has none."""
    own = model_path("").with_name(CARDS)
    text = (own if own.is_file() else SHIPPED / CARDS).read_text(encoding="utf-8")
    return {name: Card(strengths=strengths, measured=True) for name, strengths in json.loads(text).items()}


def rehearsal_workers(cards: Mapping[str, Card] | None = None, *, directory: Path | None = None) -> Pool:
    """The workers with their `cards`, from the files in `directory` or the shipped ones."""
    files = {name: model_path(name) if directory is None else directory / f"{name}.gguf" for name in NAMES}
    options = {"context": CONTEXT, "threads": 1, "gpu_layers": 0, "temperature": 0.0, "max_tokens": MOST_TOKENS}
    return Pool(
        workers=tuple(
            Worker(
                name=name, kind="llama", model=str(path), about=ABOUT[name], card=(cards or {}).get(name, Card()),
                options=options if name == CHECKER else {**options, "refuse_below": REFUSE_BELOW}, price=FREE,
            )
            for name, path in files.items()
        )
    )  # fmt: skip

"""The demo conductor: a real model that ships with this package, and its prompt.

It reads a table of what the workers on offer are good at, and the question; it writes one line for each step. The
letters mean nothing but a place in the pool. A row has a skill, and then everybody who has it, the best one first, each
with a grade from 1 to 9. A step ends with the skill that it needs and the letter of a worker.

    | geographyB9A3| spellingA8| checkingC7
    spell the capital of FRANCE backwards and check it

    capital of FRANCE| -| geographyB
    spell it backwards| 1| spellingA
    check it| 1 2| checkingC

Which skill a step needs, it has learnt from rewards alone, except for skills that a step names itself ("spell it").

If a check said NO, the conductor may be asked again. A line after the question then says whom it had asked: `NO A`.
The table then has that worker only in the rows of skills that nobody else has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Final, NamedTuple

from conductor_cli.core.plan_formats import PlanFormatContext
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.profile import Profile, Sampling
from conductor_cli.core.question import NESTED, Question
from conductor_cli.core.usage import FREE
from conductor_cli.rehearsal import workers
from conductor_cli.rehearsal.normalize import normalize

CONTEXT: Final = 1024
"""Tokens that the conductor can read and write."""

LONGEST_QUESTION: Final = 500
"""Characters of a question that fit this context, with the table and the plan."""

MOST_TOKENS: Final = 200
"""A plan of five steps takes about 120."""

NAME: Final = "rehearsal"

MOST_IN_ROW: Final = 3
"""The most workers that a row of the table names."""

CHECKING: Final = "checking"
"""The skill of saying whether an answer is right."""

ANYTHING: Final = "anything"
"""The skill of a worker that does a little of everything."""

YES: Final = "YES"
NO: Final = "NO"
"""What a worker with this skill says of an answer that is right, or wrong."""


def render(question: Question, pool: Pool, context: PlanFormatContext) -> str:
    """The whole prompt: the table of the available workers, the question, and a new line for the plan.

    If the conductor only has to choose a worker, the prompt starts the plan: its one step is the question.
    """
    asked = normalize(question.text.partition(NESTED)[0])[:LONGEST_QUESTION]
    rows = skill_rows({label: pool[context.labels[label]] for label in context.allowed})
    begun = f"{asked}{BAR}-{BAR.strip()}" if context.single else ""
    return prompt(rows, asked, _verdict(question, pool)) + begun


class Entry(NamedTuple):
    """A worker in a row of the table: the skill and its letter, and its grade."""

    skill: str
    letter: str
    grade: int

    @property
    def label(self) -> str:
        return self.skill + self.letter


Rows = Mapping[str, Sequence[Entry]]
"""The table: those who have a skill, the best one first."""


def skill_rows(labels: Mapping[str, Worker]) -> Rows:
    """The table of the workers with these labels, like spellingA. With the same grade, the cheaper one comes first."""
    rows: dict[str, list[tuple[int, float, Entry]]] = {}
    for label, worker in labels.items():
        skill = label.rstrip(ascii_uppercase)
        entry = Entry(skill, label[len(skill) :], grade(worker.card.strengths.get(skill, 0.0)))
        cost = float(worker.price.input + worker.price.output) if worker.price is not None else 0.0
        rows.setdefault(skill, []).append((-entry.grade, cost, entry))
    return {skill: [entry for *_, entry in sorted(entries)[:MOST_IN_ROW]] for skill, entries in rows.items()}


def prompt(rows: Rows, asked: str, verdict: str = "") -> str:
    """The prompt from its parts."""
    if verdict.startswith(NO):
        rows = {skill: _others(entries, verdict[-1]) for skill, entries in rows.items()}
    line = "".join(f"{BAR}{skill}{_row(entries)}" for skill, entries in rows.items())
    return "\n".join([line, asked, *filter(None, [verdict]), ""])


def _others(entries: Sequence[Entry], letter: str) -> Sequence[Entry]:
    """The entries of other workers, if there are any."""
    return [entry for entry in entries if entry.letter != letter] or entries


def _row(entries: Iterable[Entry]) -> str:
    return "".join(f"{entry.letter}{entry.grade}" for entry in entries)


def grade(strength: float) -> int:
    """A strength between 0 and 1 as a digit from 1 to 9."""
    return min(max(round(10 * strength), 1), 9)


def _verdict(question: Question, pool: Pool) -> str:
    """The line that says what came of the first plan: what its check said, and whose answer was checked.

    An answer that was not checked counts as right. Empty if there was no plan before.
    """
    if not question.given:
        return ""
    said = [workers.clean_answer(item.answer) for item in question.given]
    answers = [item for item, text in zip(question.given, said, strict=True) if text not in (YES, NO)]
    answers = answers or list(question.given)
    worker = answers[-1].worker
    letter = ascii_uppercase[pool.names.index(worker)] if worker in pool else "A"
    return f"{NO if said[-1] == NO else YES} {letter}"


BAR: Final = "| "

PROFILE: Final = Profile(
    name=NAME, order=("subtask", "access", "worker"), bar=BAR, labels="entries", names=False, fewshots=False,
    sampling=Sampling(max_tokens=MOST_TOKENS, again=0.7), render=render, verdicts=(YES, NO),
    fallback=False,
)  # fmt: skip
"""The conductor alone, as it is trained and measured."""


def conductor_path() -> Path:
    """The file of the trained conductor."""
    return workers.model_path("conductor")


def rehearsal_conductor(path: Path | None = None) -> Worker:
    """The conductor as a model to open: the shipped file, or the one at `path`."""
    options = {"context": CONTEXT, "threads": 1, "gpu_layers": 0}
    return Worker(name=NAME, kind="llama", model=str(path or conductor_path()), options=options, price=FREE)

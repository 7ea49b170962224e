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

The demo workers: real models of 0.9 million parameters that ship with this package, and their prompt.

There is a specialist for each skill, a checker, and a generalist that is mediocre at everything on purpose. They run in
llama.cpp like any other model. A worker refuses what it cannot do: it writes `?`.

Whether a plan of the demo conductor does what its question asks, as far as words can tell.

The conductor is a very small model. It may lose a word of the question, write two operations as one step, or forget
which answers a step needs. A plan with such a fault is not run. The conductor writes another one, and at last the
question is declined.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from string import ascii_uppercase
from typing import Final, NamedTuple

from conductor_cli.core.plan import GIVEN, Step
from conductor_cli.core.plan_formats import PlanFormatContext
from conductor_cli.core.pool import Card, Pool, Worker
from conductor_cli.core.profile import Profile, Sampling, SeenStep, WorkerProfile
from conductor_cli.core.question import NESTED, Question
from conductor_cli.core.usage import FREE
from conductor_cli.rehearsal.words import Kind, Operation, asks_for_check, find_operands, normalize, world

WORKER_CONTEXT: Final = 1024
"""Tokens that a worker can read. A capital letter is a token, so a prompt of `render` always fits."""

WORKER_MAX_TOKENS: Final = 20
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


def render_for_worker(question: Question, step: Step, seen: Sequence[SeenStep]) -> str:
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


WORKER_PROFILE: Final = WorkerProfile(
    name="rehearsal",
    render=render_for_worker,
    max_tokens=WORKER_MAX_TOKENS,
    context=WORKER_CONTEXT,
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
    options = {
        "context": WORKER_CONTEXT,
        "threads": 1,
        "gpu_layers": 0,
        "temperature": 0.0,
        "max_tokens": WORKER_MAX_TOKENS,
    }
    return Pool(
        workers=tuple(
            Worker(
                name=name, kind="llama", model=str(path), about=ABOUT[name], card=(cards or {}).get(name, Card()),
                options=options if name == CHECKER else {**options, "refuse_below": REFUSE_BELOW}, price=FREE,
            )
            for name, path in files.items()
        )
    )  # fmt: skip


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
    said = [clean_answer(item.answer) for item in question.given]
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
    return model_path("conductor")


def rehearsal_conductor(path: Path | None = None) -> Worker:
    """The conductor as a model to open: the shipped file, or the one at `path`."""
    options = {"context": CONTEXT, "threads": 1, "gpu_layers": 0}
    return Worker(name=NAME, kind="llama", model=str(path or conductor_path()), options=options, price=FREE)


_AROUND: Final = Counter(
    ("first", "start", "begin", "starting", "beginning", "word", "number", "many", "after", "next")
)
"""Words that may stand around what is asked: "first find …", "start with the word …", "many thanks", "after that"."""

_JOINING: Final = frozenset({"and", "it", "or", "with"})
"""A step of these words alone names answers, and nothing to do with them."""

_NAMING: Final = frozenset({"word"})
"""A word that may stand before any other: "the word for the day after Monday"."""

_EITHER: Final[frozenset[Kind]] = frozenset({"word", "number"})


def find_fault(question: Question, steps: Sequence[Step], pool: Pool) -> str:
    """What is wrong with a plan for `question`; empty if nothing is found."""
    asked = question.text.partition(NESTED)[0]
    kinds: dict[int, frozenset[Kind]] = {GIVEN: _EITHER}  # what the answer of each step may be
    for number, step in enumerate(steps, start=1):
        readings = _readings(step, kinds)
        fault = _check_step_fault(step, number, len(steps)) if _is_check(step) else _step_fault(step, readings, pool)
        if fault:
            return f"step {number} {fault}"
        kinds[number] = frozenset(reading.gives for reading in readings)
    seen = {number for step in steps for number in step.access}
    unused = next((number for number in range(1, len(steps)) if number not in seen), 0)
    if unused:
        return f"no step uses the answer of step {unused}"
    # After a check that said NO, the plan that is written next needs no other.
    return ("" if question.given else _missing_check(asked, steps, pool)) or _word_fault(asked, steps)


def _is_check(step: Step) -> bool:
    return asks_for_check(step.subtask)


def _check_step_fault(step: Step, number: int, count: int) -> str:
    return "" if number == count and step.access else "checks no answer"


def _readings(step: Step, kinds: dict[int, frozenset[Kind]]) -> list[Operation]:
    """The operations that a step may mean: those that its words can ask for, with as many values of the right kind."""
    text = normalize(step.subtask)
    named = text.replace("the first", "").replace("the second", "") if "the second" in text else text
    words = named.split()
    if _JOINING.issuperset(words):
        return []
    said = world().telling.intersection(words)
    values = find_operands(text)
    if values[-1:] == ("2",) and said & {"divide", "divided"}:
        values = values[:-1]  # to divide by two is one operation
    return [
        operation
        for operation in world().operations
        if (operation.is_asked_by(said) or operation.is_asked_by(said - _NAMING))
        and operation.arity == len(values) + len(step.access)
        and all(operation.takes in kinds.get(number, ()) for number in step.access)
        and operation.fits(values)
    ]


def _step_fault(step: Step, readings: Sequence[Operation], pool: Pool) -> str:
    if not readings:
        return "is not one operation with the values that it needs"
    able = any(_is_able(step.worker, reading.skill, pool) for reading in readings)
    return "" if able else f"is nothing that {step.worker} can do"


def _is_able(name: str, skill: str, pool: Pool) -> bool:
    """Whether a worker has the skill, or nobody has it and this one tries anything."""
    strengths = pool[name].card.strengths if name in pool else {}
    return skill in strengths or (ANYTHING in strengths and not _offers(pool, skill))


def _offers(pool: Pool, skill: str) -> bool:
    return any(skill in worker.card.strengths for worker in pool)


def _missing_check(question: str, steps: Sequence[Step], pool: Pool) -> str:
    """Whether the plan lacks the check that the question asks for, though somebody can check, or adds one."""
    wanted, planned = asks_for_check(question), _is_check(steps[-1])
    if wanted and not planned and _offers(pool, CHECKING):
        return "no step checks the answer"
    return "the question asks for no check" if planned and not wanted else ""


def _word_fault(question: str, steps: Sequence[Step]) -> str:
    """A word of the question that no step has, or one of a step that the question lacks."""
    asked = _telling(normalize(question).split())
    planned = _telling(word for step in steps for word in normalize(step.subtask).split())
    lost = asked - planned - _AROUND
    if asks_for_check(question):
        lost -= Counter(("double",))  # "double check it"
    if lost:
        return f"no step has the word {next(iter(lost))}"
    # A plan calls two earlier answers "the first" and "the second".
    joins = sum(len(step.access) > 1 for step in steps)
    added = planned - asked - Counter(first=joins, second=joins)
    return f"the question has no {next(iter(added))}" if added else ""


def _telling(words: Iterable[str]) -> Counter[str]:
    """The words that say what is asked, and the values."""
    telling = world().telling
    return Counter(found for word in words for found in (find_operands(word) or {word} & telling))


MOST_TRIES: Final = 24
"""How often the conductor may write a plan. A plan takes it hundredths of a second."""

CHECKED: Final[Profile] = replace(
    PROFILE, find_fault=find_fault, sampling=replace(PROFILE.sampling, tries=MOST_TRIES, again=0.0, search=True)
)
"""The conductor of the demo, whose plans are checked; `PROFILE` is the conductor alone, as it is measured."""

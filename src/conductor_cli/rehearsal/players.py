"""The demo's players.

The workers, the conductor, their prompts, and a check of the conductor's plans.

All are real models that ship with this package and run in llama.cpp like any other. There is a
worker for each skill, a checker, and a generalist that is mediocre at everything on purpose; each
has 0.9 million parameters. A worker refuses what it cannot do: it writes `?`.

The conductor reads a table of what the workers on offer are good at, and the question; it writes
one line for each step. The letters mean nothing but a place in the pool. A row has a skill, and
then everybody who has it, the best one first, each with a grade from 1 to 9. A step ends with the
skill that it needs and the letter of a worker.

    | geographyB9A3| spellingA8| checkingC7
    spell the capital of FRANCE backwards and check it

    capital of FRANCE| -| geographyB
    spell it backwards| 1| spellingA
    check it| 1 2| checkingC

Which skill a step needs, it has learnt from rewards alone, except for skills that a step names
itself ("spell it").

If a check said NO, the conductor may be asked again. A line after the question then says whom it
had asked: `NO A`. The table then has that worker only in the rows of skills that nobody else has.

So small a conductor may lose a word of the question, write two operations as one step, or forget
which answers a step needs. A plan whose words show such a fault is not run. The conductor writes
another one, and at last the question is declined.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from string import ascii_uppercase
from typing import Any, Final, NamedTuple

from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.plan import GIVEN, Step, unread_steps
from conductor_cli.core.plan_formats import PlanFormatContext
from conductor_cli.core.pool import Card, Pool, Worker
from conductor_cli.core.profile import Profile, Sampling, SeenStep, WorkerProfile
from conductor_cli.core.question import NESTED, Given, Question
from conductor_cli.core.usage import FREE
from conductor_cli.models.base import Features, Model
from conductor_cli.rehearsal.words import (
    Kind,
    WordOperation,
    asks_for_check,
    find_operands,
    normalize,
    world,
)

WORKER_CONTEXT: Final = 1024
"""Tokens that a worker can read. A capital letter is a token, so a prompt of `render_for_worker`
always fits.
"""

# The longest answer has 14 letters; the checker writes its verdict after it
WORKER_MAX_TOKENS: Final = 20

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

NAMES: Final = tuple(ABOUT)

# Which says YES or NO even if it is unsure: what it says only decides whether to ask again
CHECKER: Final = "checker"
REFUSAL: Final = "?"  # What a worker writes that cannot do what it is asked

REFUSE_BELOW: Final = 0.6
"""An answer of which the model is less sure becomes a refusal; chosen on questions of a validation
set.
"""

_MAX_TEXT: Final = 160  # Characters of the question or a subtask that a prompt shows
_MAX_ANSWER: Final = 24
_MAX_SEEN: Final = 4  # Answers that a prompt shows

_GENERAL: Final = frozenset(
    {
        "a",
        "an",
        "and",
        "answer",
        "as",
        "earlier",
        "final",
        "found",
        "give",
        "in",
        "is",
        "it",
        "more",
        "now",
        "of",
        "once",
        "one",
        "own",
        "please",
        "question",
        "steps",
        "that",
        "the",
        "this",
        "to",
        "try",
        "using",
        "what",
        "word",
        "your",
    }
)
"""Words of subtasks that name no operation, like "Answer the question."."""


def render_for_worker(question: Question, step: Step, steps: Sequence[SeenStep]) -> str:
    """Return the whole prompt: the answers that the step sees, and its subtask.

    The answer follows the last `a:`.

        s: capital of FRANCE
        a: PARIS
        s: spell it backwards
        a:

    A subtask that names no operation ("Answer the question.") means the question.
    """
    question_text = normalize(question.text)[:_MAX_TEXT]
    lines = list[str]()
    answered = [item for item in steps if item.answer is not None]
    for item in answered[-_MAX_SEEN:]:
        lines += [
            f"s: {_task(item.subtask, question_text)}",
            f"a: {clean_answer(item.answer or '')}",
        ]
    return "\n".join([*lines, f"s: {_task(step.subtask, question_text)}", "a:"])


def _task(subtask: str, question: str) -> str:
    text = normalize(subtask)[:_MAX_TEXT]
    return text if set(text.lower().split()) - _GENERAL else question


def clean_answer(answer: str) -> str:
    """Return an answer in the form of the models and scorers.

    One line, in upper case, without a full stop at the end.

    The checker works the answer out before it judges: of `PARIS NO`, the verdict is left.
    """
    plain = answer.encode("ascii", "ignore").decode()
    words = " ".join(plain.upper().split()).rstrip(". ").split()
    if words[-1:] in (["YES"], ["NO"]):
        return words[-1]
    return " ".join(words)[:_MAX_ANSWER]


WORKER_PROFILE: Final = WorkerProfile(
    name="rehearsal",
    render=render_for_worker,
    max_tokens=WORKER_MAX_TOKENS,
    writes_long=False,
    context=WORKER_CONTEXT,
    # Workers are not shown the question, so the steps of a plan have to name these.
    operands=lambda text: find_operands(normalize(text)),
    refusal=REFUSAL,
)


SHIPPED: Final = Path(__file__).parent / "models"

VARIABLE: Final = "CONDUCTOR_LLM_REHEARSAL_DIR"
"""Names a directory with newly trained files, which replace those that ship with this package."""


def model_path(name: str) -> Path:
    """Return the file of the model `name`."""
    directory = os.environ.get(VARIABLE)
    return (Path(directory).absolute() if directory else SHIPPED) / f"{name}.gguf"


CARDS: Final = "cards.json"
"""The file beside the workers' own: what each can do and how well, as `training.rehearsal.train
cards` measures it.
"""


def read_worker_cards() -> dict[str, Card]:
    """Return the cards of the workers, by name.

    Those that ship stand in for a directory that has none.
    """
    path = model_path("").with_name(CARDS)
    text = (path if path.is_file() else SHIPPED / CARDS).read_text(encoding="utf-8")
    cards = {}
    for name, strengths in json.loads(text).items():
        cards[name] = Card(strengths=strengths, measured=True)
    return cards


def rehearsal_workers(
    cards: Mapping[str, Card] | None = None, *, directory: Path | None = None
) -> Pool:
    """Return the workers with their `cards`, from the files in `directory` or the shipped ones."""
    files = {}
    for name in NAMES:
        files[name] = model_path(name) if directory is None else directory / f"{name}.gguf"
    options = {
        "context": WORKER_CONTEXT,
        "threads": 1,
        "gpu_layers": 0,
        "temperature": 0.0,
        "max_tokens": WORKER_MAX_TOKENS,
    }
    workers = []
    for name, path in files.items():
        refusal = dict[str, Any]()
        if name != CHECKER:
            refusal["refuse_below"] = REFUSE_BELOW
        worker = Worker(
            name=name,
            kind="llama",
            model=str(path),
            about=ABOUT[name],
            card=(cards or {}).get(name, Card()),
            options=options | refusal,
            price=FREE,
        )
        workers.append(worker)
    return Pool(workers=tuple(workers))


CONTEXT: Final = 1024  # Tokens that the conductor can read and write
# Characters of a question that fit this context, with the table and the plan
MAX_QUESTION: Final = 500
MAX_PLAN_TOKENS: Final = 200  # A plan of five steps takes about 120
NAME: Final = "rehearsal"

MAX_IN_ROW: Final = 3  # The most workers that a row of the table names
CHECKING: Final = "checking"  # The skill of saying whether an answer is right
ANYTHING: Final = "anything"  # The skill of a worker that does a little of everything
YES: Final = "YES"
NO: Final = "NO"  # What a worker with this skill says of an answer that is right, or wrong


def render_for_conductor(question: Question, pool: Pool, context: PlanFormatContext) -> str:
    """Return the whole prompt.

    The table of the available workers, the question, and a new line for the plan.

    If the conductor only has to choose a worker, the prompt starts the plan: its one step is the
    question.
    """
    question_text = normalize(question.text.partition(NESTED)[0])[:MAX_QUESTION]
    verdict = ""
    if question.given:
        verdict = _verdict_on(question.given, pool)
    workers = {}
    for label in context.allowed:
        workers[label] = pool[context.labels[label]]
    rows = skill_rows(workers)
    begun = ""
    if context.single:
        begun = f"{question_text}{BAR}-{BAR.strip()}"
    return prompt(rows, question_text, verdict) + begun


def _verdict_on(given: Sequence[Given], pool: Pool) -> str:
    """Return what the check of the first plan answer, and whose answer was checked.

    One that was not checked counts as right.
    """
    verdict = YES
    checked = given[-1].worker
    for item in given:
        answer = clean_answer(item.answer)
        verdict = NO if answer == NO else YES
        if answer not in (YES, NO):
            checked = item.worker
    letter = "A"
    if checked in pool:
        letter = ascii_uppercase[pool.names.index(checked)]
    return f"{verdict} {letter}"


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
    """Return the table of the workers with these labels, like spellingA.

    With the same grade, the cheaper one comes first.
    """
    rows: dict[str, list[tuple[int, float, Entry]]] = {}
    for label, worker in labels.items():
        skill = label.rstrip(ascii_uppercase)
        entry = Entry(skill, label[len(skill) :], grade(worker.card.strengths.get(skill, 0.0)))
        cost = float(worker.price.input + worker.price.output) if worker.price is not None else 0.0
        rows.setdefault(skill, []).append((-entry.grade, cost, entry))
    best: dict[str, list[Entry]] = {}
    for skill, entries in rows.items():
        best[skill] = [entry for *_, entry in sorted(entries)[:MAX_IN_ROW]]
    return best


def prompt(rows: Rows, question: str, verdict: str = "") -> str:
    """Return the prompt from its parts."""
    lines = []
    for skill, entries in rows.items():
        others = []
        for entry in entries:
            if not (verdict.startswith(NO) and entry.letter == verdict[-1]):
                others.append(entry)
        line = f"{BAR}{skill}"
        for entry in others or entries:
            line += f"{entry.letter}{entry.grade}"
        lines.append(line)
    return "\n".join(["".join(lines), question, *filter(None, [verdict]), ""])


def grade(strength: float) -> int:
    """Return a strength between 0 and 1 as a digit from 1 to 9."""
    return min(max(round(10 * strength), 1), 9)


BAR: Final = "| "

PROFILE: Final = Profile(
    name=NAME,
    order=("subtask", "access", "worker"),
    bar=BAR,
    labels="entries",
    names=False,
    fewshots=False,
    sampling=Sampling(max_tokens=MAX_PLAN_TOKENS, again=0.7),
    render=render_for_conductor,
    verdicts=(YES, NO),
    fallback=False,
)
"""The conductor alone, as it is trained and measured."""


def rehearsal_conductor(path: Path | None = None) -> Worker:
    """Return the conductor as a model to open: the shipped file, or the one at `path`."""
    options = {"context": CONTEXT, "threads": 1, "gpu_layers": 0}
    return Worker(
        name=NAME,
        kind="llama",
        model=str(path or model_path("conductor")),
        options=options,
        price=FREE,
    )


_AROUND: Final = Counter(
    ("first", "start", "begin", "starting", "beginning", "word", "number", "many", "after", "next")
)
"""Words that may stand around what is asked: "first find …", "start with the word …", "many
thanks", "after that".
"""

# A step of these alone names nothing to do with answers
_JOINING: Final = frozenset({"and", "it", "or", "with"})
# A word that may stand before any other: "the word for the day after Monday"
_NAMING: Final = frozenset({"word"})
_EITHER: Final[frozenset[Kind]] = frozenset({"word", "number"})


def find_plan_fault(question: Question, steps: Sequence[Step], pool: Pool) -> str:
    """Return what is wrong with a plan for `question`; empty if nothing is found."""
    question_text = question.text.partition(NESTED)[0]
    kinds: dict[int, frozenset[Kind]] = {GIVEN: _EITHER}  # what the answer of each step may be
    for number, step in enumerate(steps, start=1):
        readings = _readings(step, kinds)
        if asks_for_check(step.subtask):
            fault = "" if number == len(steps) and step.access else "checks no answer"
        elif not readings:
            fault = "is not one operation with the values that it needs"
        else:
            # A worker has the skill, or nobody has it and this one tries anything.
            strengths = pool[step.worker].card.strengths if step.worker in pool else {}
            skills = {reading.skill for reading in readings}
            able = not skills.isdisjoint(strengths)
            able = able or (
                ANYTHING in strengths and not all(_offers(pool, skill) for skill in skills)
            )
            fault = ""
            if not able:
                fault = f"is nothing that {step.worker} can do"
        if fault:
            return f"step {number} {fault}"
        kinds[number] = frozenset(reading.gives for reading in readings)
    unused = unread_steps(steps)
    if unused:
        return f"no step uses the answer of step {unused[0]}"
    wanted = asks_for_check(question_text)
    planned = asks_for_check(steps[-1].subtask)
    # After a check that said NO, the plan that is written next needs no other.
    if not question.given and wanted and not planned and _offers(pool, CHECKING):
        return "no step checks the answer"
    if not question.given and planned and not wanted:
        return "the question asks for no check"
    words = _telling(normalize(question_text).split())
    written = _telling(chain.from_iterable(normalize(step.subtask).split() for step in steps))
    lost = words - written - _AROUND
    if wanted:
        lost -= Counter(("double",))  # "double check it"
    if lost:
        return f"no step has the word {next(iter(lost))}"
    # A plan calls two earlier answers "the first" and "the second".
    joins = sum(len(step.access) > 1 for step in steps)
    added = written - words - Counter(first=joins, second=joins)
    if added:
        return f"the question has no {next(iter(added))}"
    return ""


def _readings(step: Step, kinds: dict[int, frozenset[Kind]]) -> list[WordOperation]:
    """Return the operations that a step may mean.

    Those that its words can ask for, with as many values of the right kind.
    """
    text = normalize(step.subtask)
    named = text
    if "the second" in text:
        named = text.replace("the first", "").replace("the second", "")
    words = named.split()
    if _JOINING.issuperset(words):
        return []
    telling_words = world().telling.intersection(words)
    values = find_operands(text)
    if values[-1:] == ("2",) and telling_words & {"divide", "divided"}:
        values = values[:-1]  # to divide by two is one operation
    fitting = []
    for operation in world().operations:
        is_asked = operation.is_asked_by(telling_words) or operation.is_asked_by(
            telling_words - _NAMING
        )
        has_all_values = operation.arity == len(values) + len(step.access)
        fits_access = all(operation.takes in kinds.get(number, ()) for number in step.access)
        if is_asked and has_all_values and fits_access and operation.fits(values):
            fitting.append(operation)
    return fitting


def _offers(pool: Pool, skill: str) -> bool:
    return any(skill in worker.card.strengths for worker in pool)


def _telling(words: Iterable[str]) -> Counter[str]:
    telling = world().telling
    counts = Counter[str]()
    for word in words:
        counts.update(find_operands(word) or {word} & telling)
    return counts


@dataclass(frozen=True)
class RulePlanner:
    """The conductor before its rewards (`model`), whose steps a rule gives out.

    By their words, to the best by card.
    """

    model: Model

    @property
    def features(self) -> Features:
        return self.model.features

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """Yield its plan, with the label of the best worker for what each step's words ask for."""
        chunks = [chunk async for chunk in self.model.stream(request)]
        # The first worker in a row of the table is the best one.
        table = request.messages[-1].content.partition("\n")[0].split(BAR)
        best = {}
        for row in table:
            skill = row.rstrip("0123456789" + ascii_uppercase)
            best[skill] = re.sub(r"\d.*", "", row)
        kinds: dict[int, frozenset[Kind]] = {GIVEN: _EITHER}
        lines = list[str]()
        plan = "".join(chunk.text for chunk in chunks)
        for number, line in enumerate(plan.splitlines(), start=1):
            parts = list(map(str.strip, line.split(BAR.strip())))
            subtask, access, label = parts if len(parts) == 3 else 3 * [""]
            numbers = tuple(map(int, filter(str.isdecimal, access.split())))
            readings = _readings(Step(worker="", subtask=subtask, access=numbers), kinds)
            kinds[number] = frozenset(reading.gives for reading in readings)
            skills: list[str] = [reading.skill for reading in readings]
            if asks_for_check(subtask):
                skills = [CHECKING]
            chosen = label
            for skill in skills:
                if skill in best:
                    chosen = best[skill]
                    break
            lines.append(f"{subtask}{BAR}{access}{BAR}{chosen}")
        yield Chunk(text="\n".join(lines))
        for chunk in chunks:
            yield replace(chunk, text="")

    async def close(self) -> None:
        await self.model.close()


# How often the conductor may write a plan. A plan takes it hundredths of a second
MAX_TRIES: Final = 24

CHECKED: Final[Profile] = replace(
    PROFILE,
    find_fault=find_plan_fault,
    sampling=replace(PROFILE.sampling, tries=MAX_TRIES, again=0.0, search=True),
)
"""The conductor of the demo, whose plans are checked; `PROFILE` is the conductor alone, as it is
measured.
"""

"""A world where rewards know more than cards.

Questions, workers and what they answer, drawn from seeds. Pure.

A question asks for one fact, for a chain of three or four steps, for a join of two facts, or for a
join with one more step. A worker does what its subtask says, or says that it does not understand:
it reads one operation and never the whole question. At each subject it is right with a probability.
The cards of workers that carry a mark say 0.4 more.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, Literal

from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.pool import Card, Pool, Worker
from conductor_cli.evals.cases import Case, GoldStep
from training.rehearsal.words import CAPITALS, ELEMENTS, SPANISH, WORDS, pairs, sections

SUBJECTS: Final = (
    "geography",
    "chemistry",
    "history",
    "music",
    "languages",
    "arithmetic",
    "spelling",
    "numerals",
    "comparing",
)
HELD_OUT: Final = "music"
"""The subject that no question of an arm needs. The supervised start has it, so its words are
known.
"""

SHAPES: Final[Mapping[str, float]] = {"single": 0.2, "chain": 0.3, "join": 0.3, "join_then": 0.2}
SPECIALIST = 0.97
OVERSTATED = 0.4
MARK = "self-reported"
UNKNOWN: Final = "I do not understand."

_OWN: Final = sections(Path(__file__).with_name("facts.txt"))
FACTS: Final[Mapping[str, Mapping[str, str]]] = {
    "capital": {country.title(): city.title() for country, city in list(CAPITALS.items())[:36]},
    "number": {name.lower(): str(number) for name, _, number in ELEMENTS[:32]},
    "year": pairs(_OWN["events"]),
    "composer": pairs(_OWN["works"]),
    "spanish": {word.lower(): meaning.title() for word, meaning in list(SPANISH.items())[:32]},
}
"""Tables of facts; the same word may stand in several, and a phrase says which is meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing that can be asked of a worker.

    It takes as many values as `takes` has letters, N for a number and W for a word, and `gives`
    one; a fact takes none. `told` is its subtask, `nouns` are phrases for its result, in which
    `{x}` is the word or the number that the question names, and `{0}` and `{1}` stand for values.
    `does` computes the result from the values and `x`.
    """

    name: str
    subject: str
    takes: str
    gives: Literal["N", "W"]
    told: str
    nouns: tuple[str, ...]
    does: Callable[..., str]


def _fact(name: str, subject: str, gives: Literal["N", "W"], *nouns: str) -> Operation:
    subtask = f"find {nouns[0]}"
    table = FACTS[name]
    return Operation(
        name=name,
        subject=subject,
        takes="",
        gives=gives,
        told=subtask,
        nouns=nouns,
        does=lambda x: table[x],
    )


def _on(
    subject: str,
    takes: str,
    gives: Literal["N", "W"],
    told: str,
    *nouns: str,
    does: Callable[..., object],
) -> Operation:
    return Operation(
        name=told,
        subject=subject,
        takes=takes,
        gives=gives,
        told=told,
        nouns=nouns,
        does=lambda *of: str(does(*of)),
    )


def _roman(number: int) -> str:
    text = ""
    values = {
        1000: "M",
        900: "CM",
        500: "D",
        400: "CD",
        100: "C",
        90: "XC",
        50: "L",
        40: "XL",
        10: "X",
        9: "IX",
        5: "V",
        4: "IV",
        1: "I",
    }
    for value, letters in values.items():
        text = text + letters * (number // value)
        number = number % value
    return text


OPERATIONS: Final = (
    _fact("capital", "geography", "W", "the capital of {x}", "the main city of {x}"),
    _fact("number", "chemistry", "N", "the atomic number of {x}", "the protons of {x}"),
    _fact("year", "history", "N", "the year of {x}", "the date of {x}"),
    _fact("composer", "music", "W", "the composer of {x}", "the creator of {x}"),
    _fact(
        "spanish", "languages", "W", "the Spanish word for {x}", "the Spanish translation of {x}"
    ),
    _on(
        "arithmetic",
        "N",
        "N",
        "add {x}",
        "{x} more than {0}",
        "{x} plus {0}",
        does=lambda n, x: int(n) + int(x),
    ),
    _on(
        "arithmetic",
        "N",
        "N",
        "multiply by {x}",
        "{x} times {0}",
        "{x} multiplied by {0}",
        does=lambda n, x: int(n) * int(x),
    ),
    _on(
        "arithmetic",
        "NN",
        "N",
        "add the two",
        "the sum of {0} and {1}",
        "the total of {0} and {1}",
        does=lambda n, m: int(n) + int(m),
    ),
    _on(
        "arithmetic",
        "NN",
        "N",
        "take the difference",
        "the difference between {0} and {1}",
        "the gap between {0} and {1}",
        does=lambda n, m: abs(int(n) - int(m)),
    ),
    _on(
        "spelling",
        "W",
        "N",
        "count the letters",
        "the number of letters in {0}",
        "the length of {0}",
        does=len,
    ),
    _on(
        "spelling",
        "W",
        "W",
        "reverse it",
        "the reverse of {0}",
        "the mirror of {0}",
        does=lambda w: w[::-1],
    ),
    _on(
        "spelling",
        "WW",
        "W",
        "put them together",
        "the compound of {0} and {1}",
        "{0} together with {1}",
        does=lambda w, v: w + v,
    ),
    _on(
        "numerals",
        "N",
        "W",
        "write it in Roman numerals",
        "the Roman numeral for {0}",
        "the Roman form of {0}",
        does=lambda n: _roman(int(n)),
    ),
    _on(
        "numerals",
        "N",
        "N",
        "add up the digits",
        "the digit sum of {0}",
        "the checksum of {0}",
        does=lambda n: sum(map(int, n)),
    ),
    _on(
        "numerals",
        "W",
        "N",
        "number its first letter",
        "the alphabet position of {0}",
        "the letter rank of {0}",
        does=lambda w: ord(w[0].lower()) - ord("a") + 1,
    ),
    _on(
        "comparing",
        "NN",
        "N",
        "give the larger",
        "the larger of {0} and {1}",
        "the greater of {0} and {1}",
        does=lambda n, m: max(int(n), int(m)),
    ),
    _on(
        "comparing",
        "NN",
        "N",
        "give the smaller",
        "the smaller of {0} and {1}",
        "the lesser of {0} and {1}",
        does=lambda n, m: min(int(n), int(m)),
    ),
    _on(
        "comparing",
        "WW",
        "W",
        "give the longer",
        "the longer of {0} and {1}",
        "the larger word of {0} and {1}",
        does=lambda w, v: max(w, v, key=len),
    ),
)
TAKING: Final = {
    takes: [each for each in OPERATIONS if each.takes == takes]
    for takes in ("", "N", "W", "NN", "WW")
}
FRAMES: Final = ("What is {0} ?", "Tell me {0} .", "State {0} .", "Find {0} .")
IN_A_ROW: Final = ("Take {0} , {1} .", "Find {0} , then {1} .")
NUMBERS: Final = range(2, 40)  # that a question names
MAX_LETTERS = 20
MAX_NUMBER = 3999

Split = Literal["train", "validation", "test"]


def split_of(question: str) -> Split:
    """The split of a question, by its text alone.

    A sixth of all texts each for validation and test.
    """
    number = hashlib.md5(question.encode(), usedforsecurity=False).digest()[0] % 6
    if number == 0:
        return "test"
    if number == 1:
        return "validation"
    return "train"


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A question with the pool that is on offer for it.

    Each is a thing of its own, and equal to no other.
    """

    case: Case
    pool: Pool

    @property
    def shape(self) -> str:
        return self.case.tags[0]


def draw_task(random: Random, split: Split, *, held_out: bool | None = False) -> Task:
    """A question and its pool.

    `held_out`: without the held-out subject, with it, or (None) as it comes.
    """
    shape = random.choices(tuple(SHAPES), tuple(SHAPES.values()))[0]
    while True:
        question, answer, steps = _draw_question(random, shape)
        needed = tuple(dict.fromkeys(step.skill for step in steps))
        if answer and split_of(question) == split and held_out in (None, HELD_OUT in needed):
            case = Case(id=question, question=question, answer=answer, tags=(shape,), steps=steps)
            return Task(case, draw_pool(random, needed))


def _draw_question(random: Random, shape: str) -> tuple[str, str, tuple[GoldStep, ...]]:
    """The text, the answer and the steps.

    The answer is empty if it would be too long or too large for a person.
    """
    calls = [_draw_fact(random)]
    while shape.startswith("join") and len(calls) < 2:
        other = _draw_fact(random)
        calls += [other] if other != calls[0] and other[0].gives == calls[0][0].gives else []
    operation = calls[0][0]
    phrases = [random.choice(fact.nouns).format(x=x) for fact, x in calls]
    values = [fact.does(x) for fact, x in calls]
    steps = [GoldStep(skill=fact.subject, subtask=fact.told.format(x=x)) for fact, x in calls]
    begun = " and ".join(phrases)
    for _ in range({"single": 0, "chain": random.choice((2, 3)), "join": 1, "join_then": 2}[shape]):
        takes = operation.gives * len(values)
        last = ""
        if len(values) == 1:
            last = operation.subject
        operation = random.choice(
            [candidate for candidate in TAKING[takes] if candidate.subject != last]
        )
        x = ""
        if "{x}" in operation.told:
            x = str(random.choice(NUMBERS))
        access = tuple(range(len(steps) + 1 - len(values), len(steps) + 1))
        values = [operation.does(*values, *filter(None, [x]))]
        phrases = [random.choice(operation.nouns).format(*phrases, x=x)]
        steps.append(
            GoldStep(skill=operation.subject, subtask=operation.told.format(x=x), access=access)
        )
        if len(values[0]) > MAX_LETTERS or (values[0].isdecimal() and int(values[0]) > MAX_NUMBER):
            return "", "", ()
    subtasks = [step.subtask for step in steps if step.access]
    if subtasks and random.random() < 0.5:
        return random.choice(IN_A_ROW).format(begun, " , ".join(subtasks)), values[0], tuple(steps)
    return random.choice(FRAMES).format(phrases[0]), values[0], tuple(steps)


def _draw_fact(random: Random) -> tuple[Operation, str]:
    operation = random.choice(TAKING[""])
    return operation, random.choice(tuple(FACTS[operation.name]))


def draw_pool(random: Random, needed: Sequence[str]) -> Pool:
    """A specialist for each subject that is needed, and two or three others.

    A third of all carry the mark.

    Those with the mark claim subjects that are needed, as well as the specialists do by their
    cards.
    """
    size = len(needed) + random.choice((2, 3))
    marked = round(size / 3)
    others = [subject for subject in SUBJECTS if subject not in needed]

    def with_more(subject: str) -> list[str]:
        return [subject, *random.sample(others, random.choice((0, 1)))]

    good = [with_more(subject) for subject in needed]
    good += [with_more(random.choice(others)) for _ in range(size - marked - len(needed))]
    good += [random.sample(needed, min(len(needed), random.choice((1, 2)))) for _ in range(marked)]
    order = random.sample(range(size), size)
    names = random.sample(WORDS, size)
    return Pool(
        workers=tuple(
            _draw_worker(random, name.lower(), good[at], marked=at >= size - marked)
            for at, name in zip(order, names, strict=True)
        )
    )


def _draw_worker(random: Random, name: str, good: Sequence[str], *, marked: bool) -> Worker:
    weak = round(random.uniform(0.02, 0.10) + OVERSTATED * marked, 2)
    strengths = {subject: SPECIALIST if subject in good else weak for subject in SUBJECTS}
    about = ""
    if marked:
        about = MARK
    return Worker(
        name=name, kind="scripted", model=name, about=about, card=Card(strengths=strengths)
    )


def truth(worker: Worker, subject: str) -> float:
    """The probability with which a worker is right at a subject."""
    return worker.card.strengths[subject] - (OVERSTATED if worker.about == MARK else 0.0)


# What workers answer


def _patterns() -> Iterator[tuple[re.Pattern[str], Operation]]:
    for operation in OPERATIONS:
        keys = "|".join(map(re.escape, FACTS.get(operation.name, ())))
        word = r"(?P<x>\d+)"
        if keys:
            word = f"(?P<x>{keys})"
        values = ("it", "it") if len(operation.takes) < 2 else ("the first", "the second")
        for text in (operation.told, *operation.nouns):
            pattern = re.escape(text.format(*values, x="\0")).replace(re.escape("\0"), word)
            yield (
                re.compile(
                    rf"(?:(?:find|what is|tell me|i need|do you know|give) )?{pattern}\s*[.?]?",
                    re.IGNORECASE,
                ),
                operation,
            )


PATTERNS: Final = tuple(_patterns())


def understand(subtask: str) -> tuple[Operation, str] | None:
    """The one operation that a whole subtask asks for, with what it names.

    None if it asks for none or for more.
    """
    for pattern, operation in PATTERNS:
        if match := pattern.fullmatch(subtask.strip()):
            return operation, match.groupdict().get("x") or ""
    return None


def _kind_of(value: str) -> str:
    """What a value is, as operations say what they take: a number, a word, or neither."""
    if value.isdecimal():
        return "N"
    if value.isalpha():
        return "W"
    return "?"


def answer(worker: Worker, subtask: str, seen: Sequence[str], luck: int) -> str:
    """What a worker answers to a subtask with the answers that it sees.

    Equal requests get equal answers.
    """
    understood = understand(subtask)
    if understood is None:
        return UNKNOWN
    operation, x = understood
    values: tuple[str, ...] = ()
    if operation.takes:
        values = tuple(seen[-len(operation.takes) :])
    kinds = "".join(map(_kind_of, values))
    if kinds != operation.takes:
        return UNKNOWN
    x = next((key for key in FACTS.get(operation.name, ()) if key.lower() == x.lower()), x)
    right = operation.does(*values, *filter(None, [x]))
    random = Random(f"{luck} {worker.name} {operation.name} {x} {values}")
    if random.random() < truth(worker, operation.subject):
        return right
    if operation.name in FACTS:
        return random.choice([other for other in FACTS[operation.name].values() if other != right])
    if operation.gives == "N":
        return str(int(right) + random.randint(1, 9))
    return right[1:] + right[:1] + "o"


def run(plan: Plan, pool: Pool, luck: int) -> str:
    """The answer of a plan, as a run gives it where no worker fails.

    Each step sees what its access list names.
    """
    answers: dict[int, str] = {}
    for number, step in enumerate(plan.steps, start=1):
        answers[number] = answer(
            pool[step.worker], step.subtask, [answers[at] for at in step.access], luck
        )
    return answers[len(plan.steps)]


def share_right(plan: Plan, task: Task, draws: Sequence[int]) -> float:
    """The share of some draws of luck in which a plan answers the question."""
    return sum(run(plan, task.pool, luck) == task.case.answer for luck in draws) / len(draws)


# Plans that need no training


def best_workers(pool: Pool, subject: str, strength: Callable[[Worker, str], float]) -> list[str]:
    """The names of the workers that are the best at a subject, by the card or in truth."""
    most = max(strength(worker, subject) for worker in pool)
    return [worker.name for worker in pool if strength(worker, subject) == most]


def by_card(worker: Worker, subject: str) -> float:
    """What the card says about a subject."""
    return worker.card.strengths[subject]


def routed(task: Task, random: Random, strength: Callable[[Worker, str], float]) -> Plan:
    """The true steps, each to one of the best workers for its subject.

    By `truth`, or by the card as a rule does it.
    """
    return Plan(
        steps=tuple(
            Step(
                worker=random.choice(best_workers(task.pool, step.skill, strength)),
                subtask=step.subtask,
                access=step.access,
            )
            for step in task.case.steps
        )
    )

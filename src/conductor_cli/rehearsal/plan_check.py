"""Whether a plan of the demo conductor does what its question asks, as far as words can tell.

The conductor is a very small model. It may lose a word of the question, write two operations as one step, or forget
which answers a step needs. A plan with such a fault is not run. The conductor writes another one, and at last the
question is declined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from conductor_cli.core.plan import GIVEN, Step
from conductor_cli.core.pool import Pool
from conductor_cli.core.profile import Profile
from conductor_cli.core.question import NESTED, Question
from conductor_cli.rehearsal.conductor_model import ANYTHING, CHECKING, PROFILE
from conductor_cli.rehearsal.known import asks_for_check
from conductor_cli.rehearsal.normalize import find_operands, normalize
from conductor_cli.rehearsal.operations import Kind, Operation, world

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

"""A small built-in set for measuring workers: four skills, with answers computed by the code that writes the questions.

It tells workers apart by kind of task and costs little. It is not a benchmark, and has no long or open questions. The
same seed gives the same cases. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle, islice, pairwise
from random import Random
from typing import Final

from conductor_cli.core.errors import UsageError
from conductor_cli.evals.cases import Case

NAME: Final = "basics"
"""The set's name on the command line."""

COUNT: Final = 60
"""Default number of cases: fifteen of each kind."""

MAX_COUNT: Final = 4000
"""More would take long to make and measure nothing better."""

_WORDS: Final = (
    "amber", "bridge", "cactus", "dolphin", "engine", "feather", "glacier", "harbour", "island", "jacket", "kettle",
    "lantern", "meadow", "needle", "orchard", "pepper", "quarry", "ribbon", "saddle", "timber", "umbrella", "velvet",
    "walnut", "yellow", "zipper",
)  # fmt: skip
_NAMES: Final = ("Ada", "Ben", "Cora", "Dan", "Eva", "Finn", "Gita", "Hugo", "Iris", "Jon")

QuestionParts = tuple[str, str, str]
"""A question, its answer, and the scorer."""


def make_basics(count: int = COUNT, seed: int = 0) -> tuple[Case, ...]:
    """`count` cases, the kinds in turn, no question twice. Raises `UsageError` for more than `MAX_COUNT`."""
    if count > MAX_COUNT:
        raise UsageError(f"--n {count}: {NAME} has at most {MAX_COUNT:,} cases", hint="ask for fewer")
    random = Random(seed)  # noqa: S311 - reproducible, no secret
    cases: dict[str, Case] = {}
    for tag, make_question in islice(cycle(SKILLS), count):
        question, answer, scorer = make_question(random)
        # Each kind has far more questions than are ever taken, so this ends.
        while question in cases:
            question, answer, scorer = make_question(random)
        name = f"{NAME}-{seed}-{len(cases) + 1}"
        cases[question] = Case(id=name, question=question, answer=answer, scorer=scorer, tags=(tag,))
    return tuple(cases.values())


def _arithmetic(random: Random) -> QuestionParts:
    one, two, three = random.randint(12, 97), random.randint(12, 97), random.randint(100, 999)
    return f"What is {one} * {two} - {three}? Reply with the number only.", str(one * two - three), "number"


def _letters(random: Random) -> QuestionParts:
    word, other = random.sample(_WORDS, 2)
    if random.random() < 0.5:
        return f'Spell the word "{word}{other}" backwards. Reply with the result only.', (word + other)[::-1], "exact"
    question = f'How many times does the letter "{word[1]}" occur in "{word} {other}"? Reply with the number only.'
    return question, str((word + other).count(word[1])), "number"


def _ordering(random: Random) -> QuestionParts:
    """A chain of comparisons in random order."""
    names = random.sample(_NAMES, 5)  # the tallest first
    facts = [f"{taller} is taller than {smaller}." for taller, smaller in pairwise(names)]
    random.shuffle(facts)
    place = random.randrange(5)
    ordinal = ("tallest", "second tallest", "third tallest", "second smallest", "smallest")[place]
    return f"{' '.join(facts)} Who is the {ordinal} of the five? Reply with the name only.", names[place], "exact"


def _code(random: Random) -> QuestionParts:
    """What a few lines of Python print."""
    start, stop, factor = random.randint(2, 9), random.randint(12, 20), random.randint(3, 9)
    modulus = random.choice((3, 4, 5))
    total = start + sum(factor * number for number in range(start, stop) if number % modulus != 1)
    text = (
        f"total = {start}\nfor number in range({start}, {stop}):\n    if number % {modulus} == 1:\n        continue\n"
        f"    total += {factor} * number\nprint(total)"
    )
    return f"What does this Python program print? Reply with the number only.\n\n{text}", str(total), "number"


SKILLS: Final[tuple[tuple[str, Callable[[Random], QuestionParts]], ...]] = (
    ("math", _arithmetic), ("letters", _letters), ("reasoning", _ordering), ("code", _code),
)  # fmt: skip
"""Tags, and the function that makes a question."""

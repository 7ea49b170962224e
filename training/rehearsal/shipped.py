"""Writes what ships with the package of the world: `python -m training.rehearsal.shipped`.

`held_out.jsonl.xz` has questions for evaluations: one to five steps, in words and phrasings that no
model learned from. `operations.json` is what the program knows about the operations; a test
compares it with the phrasings and the tables.
"""

from __future__ import annotations

import json
import lzma
import re
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any, Final, get_args

from conductor_cli.evals.cases import Case, GoldStep, write_cases
from conductor_cli.rehearsal import words as shipped
from training.rehearsal.operations import OPERATIONS, Letters, Operation
from training.rehearsal.phrasings import (
    AROUND,
    JOINTS,
    MACROS,
    TYPED,
    WAYS,
    PhrasingForm,
    expand,
    lines_of,
)
from training.rehearsal.world import Problem, draw_problems

PACKAGE: Final = Path(__file__).parents[2] / "src" / "conductor_cli" / "rehearsal"

HELD_OUT_COUNT: Final = 10_000


def held_out_cases(count: int = HELD_OUT_COUNT) -> tuple[Case, ...]:
    """The first cases of evaluations.

    Their tags are the skills and the shape, and "check" where one is asked for.
    """
    return tuple(map(_to_case, draw_problems(count, 0, split="test")))


def _to_case(problem: Problem) -> Case:
    check = ("check",) if problem.check else ()
    return Case(
        id=problem.id,
        question=problem.question,
        answer=problem.answer,
        tags=(*(skill for skill in problem.skills if skill != "checking"), problem.shape, *check),
        steps=tuple(
            GoldStep(skill=hop.skill, subtask=hop.subtask, access=hop.access)
            for hop in problem.hops
        ),
    )


FILE: Final = Path(shipped.__file__).with_name("operations.json")

TELLING: Final = frozenset(
    {
        "after",
        "begin",
        "beginning",
        "double",
        "doubled",
        "first",
        "halved",
        "last",
        "letters",
        "many",
        "next",
        "number",
        "start",
        "starting",
        "word",
    }
)
"""Words that also stand around phrasings, and yet say what is asked."""


def operations() -> dict[str, Any]:
    """Each operation by its name.

    Its skill, how many values it takes, which, and the words that ask for it.
    """
    telling = frozenset(telling_words())
    return {name: _described(operation, telling) for name, operation in OPERATIONS.items()}


def telling_words() -> list[str]:
    """The words that no plan may lose: those of phrasings that do not also stand around them."""
    instruction_words = set().union(*(_words(text) for text in WAYS.values()))
    around = _words("\n".join([*AROUND.values(), *JOINTS, *MACROS.values(), TYPED]))
    return sorted((instruction_words - around) | TELLING)


def _described(operation: Operation, telling: frozenset[str]) -> dict[str, Any]:
    random = Random(1)
    example = None
    values = operation.values
    while example is None:
        example = operation.does(
            *operation.starts(random, lambda random: random.choice(("LION", "PLANET")))
        )
    if isinstance(values, Letters):
        takes: dict[str, Any] = {"letters": [*values]}
    elif isinstance(values, range):
        takes = {"numbers": [values.start, values.stop, values.step]}
    else:
        takes = {"subjects": " ".join(sorted(values))}
    # The fewest telling words that ask for an operation: no set of them holds another one.
    ways = WAYS[operation.name]
    lines = chain.from_iterable(lines_of(ways, form, "all") for form in get_args(PhrasingForm))
    texts = chain.from_iterable(map(expand, dict.fromkeys(lines)))
    words_alone = (re.sub(r"\{\w+\}('s)?", " ", text) for text in texts)
    asks = {telling.intersection(text.split()) for text in words_alone}
    return {
        "skill": operation.skill,
        "arity": operation.arity,
        "gives": "number" if example.isdecimal() else "word",
        "takes": takes,
        "words": " ".join(sorted(telling & _words(ways))),
        "asks": sorted(
            " ".join(sorted(words)) for words in asks if not any(other < words for other in asks)
        ),
    }


def _words(text: str) -> set[str]:
    """The words of phrasings: no forms, choices, or places of values."""
    plain = re.sub(r"^\s*!?[naot] |\{\w+\}('s)?|[\[\]|]", " ", text, flags=re.MULTILINE)
    for name, macro in MACROS.items():
        if name in text:
            plain += " " + re.sub(r"[\[\]|]", " ", macro)
    return set(re.findall("[a-z]+", plain))


if __name__ == "__main__":
    (PACKAGE / "held_out.jsonl.xz").write_bytes(
        lzma.compress(write_cases(held_out_cases()).encode())
    )
    found = {"telling": " ".join(telling_words()), "operations": operations()}
    FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

"""What the shipped program knows about the operations of the world: `rehearsal/operations.json`. Pure.

    python -m scripts.rehearsal.shipped_operations

writes the file. A test compares it with the phrasings and the tables.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from typing import Any, Final, get_args

from conductor_cli.rehearsal import words as shipped
from scripts.rehearsal.operations import OPERATIONS, Letters, Operation
from scripts.rehearsal.phrasings import (
    CHECKS,
    FRAMES,
    JOINTS,
    MACROS,
    OPENINGS,
    PAIRS,
    TYPED,
    WAYS,
    PhrasingForm,
    expand,
    lines_of,
)

FILE: Final = Path(shipped.__file__).with_name("operations.json")

PhrasingForms: Final[tuple[PhrasingForm, ...]] = get_args(PhrasingForm)

TELLING: Final = frozenset({
    "after", "begin", "beginning", "double", "doubled", "first", "halved", "last", "letters", "many", "next", "number",
    "start", "starting", "word",
})  # fmt: skip
"""Words that also stand around phrasings, and yet say what is asked."""


def operations() -> dict[str, Any]:
    """Each operation by its name: its skill, how many values it takes, which, and the words that ask for it."""
    telling = frozenset(telling_words())
    return {name: _described(operation, telling) for name, operation in OPERATIONS.items()}


def telling_words() -> list[str]:
    """The words that no plan may lose: those of phrasings that do not also stand around them."""
    asked = set().union(*(_words(text) for text in WAYS.values()))
    around = _words("\n".join([CHECKS, FRAMES, OPENINGS, PAIRS, *JOINTS, *MACROS.values(), TYPED]))
    return sorted((asked - around) | TELLING)


def _described(operation: Operation, telling: frozenset[str]) -> dict[str, Any]:
    return {
        "skill": operation.skill,
        "arity": operation.arity,
        "gives": _kind(_example(operation)),
        "takes": _takes(operation),
        "words": " ".join(sorted(telling & _words(WAYS[operation.name]))),
        "asks": _asks(operation, telling),
    }


def _asks(operation: Operation, telling: frozenset[str]) -> list[str]:
    """The fewest telling words that ask for an operation: no set of them holds another one."""
    lines = [line for form in PhrasingForms for line in lines_of(WAYS[operation.name], form, "all")]
    found = {telling.intersection(_plain(text)) for line in dict.fromkeys(lines) for text in expand(line)}
    return sorted(" ".join(sorted(words)) for words in found if not any(other < words for other in found))


def _plain(text: str) -> list[str]:
    return re.sub(r"\{\w+\}('s)?", " ", text).split()


def _takes(operation: Operation) -> dict[str, Any]:
    values = operation.values
    if isinstance(values, Letters):
        return {"letters": [*values]}
    if isinstance(values, range):
        return {"numbers": [values.start, values.stop, values.step]}
    return {"subjects": " ".join(sorted(values))}


def _example(operation: Operation) -> str:
    """The answer to some question about this operation."""
    random = Random(1)  # noqa: S311 - reproducible, no secret
    while True:
        answer = operation.does(*operation.starts(random, lambda random: random.choice(("LION", "PLANET"))))
        if answer is not None:
            return answer


def _kind(value: str) -> str:
    return "number" if value.isdecimal() else "word"


def _words(text: str) -> set[str]:
    """The words of phrasings: no forms, choices, or places of values."""
    plain = re.sub(r"^\s*!?[naot] |\{\w+\}('s)?|[\[\]|]", " ", text, flags=re.MULTILINE)
    for name, macro in MACROS.items():
        if name in text:
            plain += " " + re.sub(r"[\[\]|]", " ", macro)
    return set(re.findall("[a-z]+", plain))


def main() -> None:
    """Write the file."""
    found = {"telling": " ".join(telling_words()), "operations": operations()}
    FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

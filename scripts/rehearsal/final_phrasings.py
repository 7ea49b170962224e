"""Phrasings that were written once and are used for the last measurement only.

A file has one phrasing a line: `{"operation": "reverse", "form": "noun", "text": "…"}`, with `{x}` and `{y}` as in
`ways.txt`. They take the place of the held-out phrasings of their operations and forms. Nothing is drawn again because
the program does not know a word: such questions count, and their share is a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from conductor_cli.core.errors import UsageError
from scripts.rehearsal.exercises import STRONG, RehearsalExercise, draw_exercises
from scripts.rehearsal.figures import Figure
from scripts.rehearsal.operations import OPERATIONS
from scripts.rehearsal.phrasings import WAYS
from scripts.rehearsal.typed_questions import read_lines
from scripts.rehearsal.world import ProblemSettings, draw_problems

FORMS: Final[Mapping[str, str]] = {"noun": "n", "ask": "a", "order": "o", "then": "t"}


class Phrasings(NamedTuple):
    """The lines of each operation as `ways.txt` writes them, and how many lines of a file were none."""

    lines: Mapping[str, str]
    unused: int


def read_phrasings(path: Path) -> Phrasings:
    """The phrasings of a file. Raises `UsageError`; no message quotes one."""
    lines: dict[str, list[str]] = {}
    unused = 0
    for item in read_lines(path):
        fields = item if isinstance(item, dict) else {}
        operation, form, text = (str(fields.get(name, "")) for name in ("operation", "form", "text"))
        mark = FORMS.get(form, form if form in FORMS.values() else "")
        if operation in WAYS and mark and text and (mark == "t" or _names_all(operation, text)):
            lines.setdefault(operation, []).append(f"!{mark} {text}")
        else:
            unused += 1
    if not lines:
        raise UsageError(f"{path}: no line is a phrasing of an operation")
    return Phrasings({name: "\n".join(found) for name, found in lines.items()}, unused)


def _names_all(operation: str, text: str) -> bool:
    """Whether a phrasing has a place for each value of its operation."""
    return all(slot in text for slot in ("{x}", "{y}")[: OPERATIONS[operation].arity])


@contextmanager
def in_place_of_held_out(phrasings: Phrasings) -> Iterator[None]:
    """While this is open, questions in held-out phrasings are drawn from these."""
    assert isinstance(WAYS, dict)
    before = dict(WAYS)
    for name, lines in phrasings.lines.items():
        forms = {line[1] for line in lines.splitlines()}
        kept = [line for line in map(str.strip, before[name].splitlines()) if line[:2] not in {f"!{f}" for f in forms}]
        WAYS[name] = "\n".join([*kept, lines])
    try:
        yield
    finally:
        WAYS.update(before)


def draw(phrasings: Phrasings, count: int, seed: int) -> tuple[RehearsalExercise, ...]:
    """Questions in these phrasings, with pools as in the main table."""
    settings = ProblemSettings(split="test", phrasings="held", checked=0.0, known_words=False)
    with in_place_of_held_out(phrasings):
        return draw_exercises(draw_problems(count, seed, settings), STRONG, seed)


FINAL: Final[Sequence[Figure]] = (
    Figure(what="final phrasings", of=lambda m: m["conductor"], least=0.80, each=0.76),
    Figure(what="  questions without an unknown word", of=lambda m: m["readable"]),
    Figure(what="  right, of those", of=lambda m: m["right, readable"]),
    Figure(what="  valid plans", of=lambda m: m["valid"]),
    Figure(what="  split right, word for word", of=lambda m: m["split"]),
    Figure(what="  shape right", of=lambda m: m["shape"]),
    Figure(what="  every step to one of the best", of=lambda m: m["routed"]),
    Figure(what="  best routing (oracle)", of=lambda m: m["oracle"]),
    Figure(what="  plans checked as in the demo", of=lambda m: m["plans checked"]),
)

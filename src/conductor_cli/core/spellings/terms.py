"""What every spelling of plans shares: the terms that a text is read and written in, and small GBNF pieces."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Literal, Protocol

from conductor_cli.core.errors import PlanError
from conductor_cli.core.plan import GIVEN, Accept, Plan, Rules, Step, check_step

Column = Literal["worker", "access", "subtask"]

DIRECT: Final = "Answer the question."
"""The subtask of a plan that only names a worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of one conversation with a conductor.

    `labels` maps each label to a worker's name, in the order of the pool; `exact` says that a grammar holds the
    text, so that nothing needs to be tolerated and a newline means that another step follows; `reasoning` that free
    text stands before the plan; `single` that the plan is one label and nothing else; `first` is the number of the
    first step to be read (more than 1 when earlier steps stand and the text may only append).
    """

    rules: Rules
    labels: Mapping[str, str]
    order: tuple[Column, Column, Column] = ("worker", "access", "subtask")
    exact: bool = False
    reasoning: bool = False
    single: bool = False
    first: int = 1
    subtask_chars: int = 240

    def label(self, name: str) -> str:
        """The label of a worker. Raises `KeyError`."""
        return next(label for label, known in self.labels.items() if known == name)

    def everything_before(self, number: int) -> tuple[int, ...]:
        """What `"all"` means in step `number`."""
        return tuple(range(GIVEN if self.rules.given else 1, number))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A complete, checked step; `last` says whether the plan ends with it."""

    number: int
    step: Step
    last: bool


class Parser(Protocol):
    """Reads a plan while it is being written. Both methods raise `PlanError` at the first fault.

    Steps that were yielded before a fault stand.
    """

    reasoning: str

    def feed(self, text: str) -> Iterator[Parsed | Accept]:
        """Take more text; yield each step the moment it is complete."""
        ...

    def end(self) -> Iterator[Parsed | Accept]:
        """The text has ended: yield what was held back."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """One way to write plans: how it is read, written, constrained and explained to a conductor."""

    name: str
    parser: Callable[[Terms], Parser]
    spell: Callable[[Plan | Accept, Terms], str]
    grammar: Callable[[Terms], str]
    explain: Callable[[Terms], str]


def worker_of(cell: str, terms: Terms) -> str | None:
    """The worker that a piece of text names: by label, else by name, in any case, with or without decoration."""
    known = {label.lower(): name for label, name in terms.labels.items()}
    known |= {name.lower(): name for name in terms.rules.workers}
    text = cell.strip().strip("`*[](){}\"'.:#").lower()
    for candidate in (text, text.removeprefix("worker").strip(), text.split(" ")[0] if text else ""):
        if candidate in known:
            return known[candidate]
    return None


def access_of(cell: str, number: int, terms: Terms) -> tuple[int, ...]:
    """The access list that a piece of text names: `-`, `none`, `all`, or step numbers in any punctuation."""
    text = cell.strip().strip("`*[](){}\"'").lower()
    if text in ("", "-", "–", "—", "none", "nothing", "n/a"):
        return ()
    if "all" in re.findall(r"[a-z]+", text):
        return terms.everything_before(number)
    numbers = re.findall(r"\d+", text)
    if not numbers or re.sub(r"\d+|steps?|given|and|[\s,;#&+]", "", text):
        raise PlanError(f"step {number} has no readable access list: {cell.strip()!r:.60}", line=cell)
    if any(len(digits) > 2 for digits in numbers):
        raise PlanError(f"step {number} wants to see a step that does not exist: {max(numbers, key=len):.20}", line=cell)
    return tuple(dict.fromkeys(int(digits) for digits in numbers))


def checked(step: Step, number: int, terms: Terms, line: str) -> Step:
    """`step`, if it may stand as step `number`. Raises `PlanError` with the text at fault."""
    try:
        check_step(step, number, terms.rules)
    except PlanError as error:
        raise PlanError(error.message, hint=error.hint, line=line) from None
    return step


def access_sets(number: int, terms: Terms) -> list[tuple[int, ...]]:
    """Every access list that step `number` may have, shortest first."""
    visible = terms.everything_before(number)
    return [chosen for size in range(len(visible) + 1) for chosen in combinations(visible, size)]


def literal(text: str) -> str:
    """`text` as a GBNF string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def either(options: list[str]) -> str:
    """A GBNF choice between literals."""
    return " | ".join(literal(option) for option in options)

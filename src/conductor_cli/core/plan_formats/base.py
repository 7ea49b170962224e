"""What every plan format shares.

The context that a plan is read and written in, and small pieces of GBNF.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, combinations
from typing import Any, ClassVar, Final, Literal

from conductor_cli.core.errors import PlanError
from conductor_cli.core.formatting import format_count
from conductor_cli.core.plan import GIVEN, KeepAnswer, Plan, PlanRules, Step

Column = Literal["worker", "access", "subtask"]

ANSWER_DIRECTLY: Final = "Answer the question."  # The subtask in a plan that only names a worker


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFormatContext:
    """How a plan is written in one conversation with a planner.

    `labels` maps each label to a worker's name, in the order of the pool. `skills` are words that
    may stand before a label, to say what the worker is chosen for: `history B`; `rows` has the
    labels that may follow each, where not all may, and `spare_rows` those that may follow where the
    rules do not allow all of the row. `constrained` says that a grammar constrains the text, so
    that nothing needs to be tolerated and a newline means that another step follows. `bar`
    separates the columns of a line. `reasoning` says that free text comes before the plan, `single`
    that the plan is one label and nothing else but `lead` before it. With `closing`, a plan ends
    with a line that is only a skill and a label: a step with this subtask that reads all before it,
    or the whole question where it is the only one. `first` is the number of the first step to be
    read: more than 1 when earlier steps stand and the text may only append. `hidden` are standing
    steps that have no answer and are on no access list.
    """

    rules: PlanRules
    labels: Mapping[str, str]
    skills: tuple[str, ...] = ()
    rows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    spare_rows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    order: tuple[Column, Column, Column] = ("worker", "access", "subtask")
    bar: str = " | "
    constrained: bool = False
    reasoning: bool = False
    single: bool = False
    lead: str = ""
    closing: str = ""
    first: int = 1
    hidden: tuple[int, ...] = ()
    subtask_chars: int = 240

    def label(self, name: str) -> str:
        for label, worker in self.labels.items():
            if worker == name:
                return label
        raise KeyError(name)

    @property
    def allowed(self) -> list[str]:
        """The labels of the workers that the rules allow.

        Only these can be sampled, though all are shown.
        """
        return [label for label, name in self.labels.items() if name in self.rules.workers]

    def allowed_for(self, skill: str) -> list[str]:
        """Return the labels of a skill's row where all are allowed, else of its spare row.

        All allowed ones where it has none.
        """
        allowed = self.allowed
        row = self.rows.get(skill, ())
        if any(label not in allowed for label in row):
            row = self.spare_rows.get(skill, ())
        return list(row) or allowed

    def closing_subtask(self, number: int) -> str:
        """Return the subtask of step `number` where it is the closing one."""
        if number == 1:
            return ANSWER_DIRECTLY
        return self.closing

    def joined_subtask(self, number: int, subtask: str) -> str:
        """Return the subtask of step `number` where it also does what the closing one would."""
        if number == 1 or self.kind_alone(subtask):
            return self.closing_subtask(number)
        closing = f"{self.closing[:1].lower()}{self.closing[1:]}"
        return f"{subtask.rstrip().rstrip('.')}. Then {closing}"

    def kind_alone(self, subtask: str) -> str:
        """Return the kind of work of a subtask that says nothing but a kind and labels.

        Empty where it says more. Small planners write `Testing B` for a subtask sometimes.
        """
        words: list[str] = re.findall(r"\w+", subtask)
        kinds = [word.lower() for word in words if word.lower() in self.skills]
        labels = [word for word in words if word in self.labels]
        says_more = len(kinds) + len(labels) != len(words)
        # "Security review." is two kinds, and a task
        is_task = len(kinds) > 1 and not labels
        if not kinds or says_more or is_task:
            return ""
        return kinds[0]

    @property
    def reasons(self) -> bool:
        return self.reasoning and self.first == 1

    @property
    def offers_choice(self) -> bool:
        return len(self.allowed) > 1 or self.rules.steps > 1 or self.rules.given

    @property
    def may_accept(self) -> bool:
        """Whether there is an answer to keep, and no step yet that would contradict keeping it."""
        return self.rules.given and self.first == 1

    def all_before(self, number: int) -> tuple[int, ...]:
        first = 1
        if self.rules.given:
            first = GIVEN
        return tuple(item for item in range(first, number) if item not in self.hidden)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedStep:
    """A complete, checked step; `last` says whether the plan ends with it."""

    number: int
    step: Step
    last: bool


class PlanParser(ABC):
    """Reads a plan while it is being written. Both methods raise `PlanError` at the first fault.

    Steps yielded before a fault are valid and are kept.
    """

    def __init__(self, context: PlanFormatContext) -> None:
        self.reasoning = ""
        self.joined = False
        """Whether the last step also does what the closing line asks for."""
        self._context = context
        self._number = context.first

    @abstractmethod
    def feed(self, text: str) -> Iterator[ParsedStep | KeepAnswer]:
        """Take more text; yield each step the moment it is complete."""

    @abstractmethod
    def end(self) -> Iterator[ParsedStep | KeepAnswer]:
        """Yield what was held back, because the text has ended."""


class PlanFormat(ABC):
    """One way to write plans.

    How a plan is read, written, constrained, and described to a planner.
    """

    name: ClassVar[str]
    parser: ClassVar[type[PlanParser]]

    @abstractmethod
    def render(self, plan: Plan | KeepAnswer, context: PlanFormatContext) -> str:
        """Return the plan as text."""

    @abstractmethod
    def grammar(self, context: PlanFormatContext) -> str:
        """Return GBNF that admits exactly the plans that the rules allow."""

    @abstractmethod
    def instructions(self, context: PlanFormatContext) -> str:
        """Return instructions for the planner on how to write a plan."""

    # Used by some formats
    def schema(self, context: PlanFormatContext) -> Mapping[str, Any] | None:  # noqa: ARG002
        """Return the JSON Schema of what `grammar` describes.

        None for a format that is not JSON.
        """
        return None


def parse_worker(cell: str, context: PlanFormatContext) -> str | None:
    """Return the worker that a piece of text names.

    By label, else by name, in any case, with or without decoration.

    A skill may come first (`history B`). Words may follow (`gpt (fast)`), but a letter that begins
    a sentence is no label.
    """
    workers = {f"{label} {name}".lower(): name for label, name in context.labels.items()}
    workers |= {name.lower(): name for name in context.rules.workers}
    # Labels come last, so that a worker which is named like another one's label does not take its
    # place.
    workers |= {label.lower(): name for label, name in context.labels.items()}
    whole = " ".join(cell.split()).lower()
    text = whole.strip("`*[](){}\"'.:#").strip()
    head = re.split(r"[\s:,(]", text, maxsplit=1)[0]
    if len(head) == 1 and re.match(r"\s+\w", text[1:]):
        head = ""
    skilled = []
    for skill in map(str.lower, context.skills):
        if text.startswith(f"{skill} "):
            skilled.append(text.removeprefix(f"{skill} "))
    for candidate in (whole, text, text.removeprefix("worker").strip(), *skilled, head):
        if candidate in workers:
            return workers[candidate]
    return None


def parse_access(
    cell: str, number: int, context: PlanFormatContext, *, base: int = 1
) -> tuple[int, ...]:
    """Return the access list that a piece of text names.

    `-`, `none`, `all`, `given`, or step numbers in any punctuation.

    `base` is the number by which the text calls the first step.
    """
    text = cell.strip().strip("`*[](){}\"'.").lower()
    if text in ("", "-", "–", "—", "none", "nothing", "n/a"):
        return ()
    if "all" in re.findall(r"[a-z]+", text):
        return context.all_before(number)
    items = re.findall(r"[0-9]+|given", text)
    if not items or re.sub(r"[0-9]+|steps?|given|and|[\s,;#&+]", "", text):
        raise PlanError(
            f"step {number} has no readable access list: {cell.strip()!r:.60}", line=cell
        )
    numbers: dict[int, None] = {}
    for item in items:
        # Python refuses to convert very long numbers, with an error that is not a `PlanError`.
        if item.isdigit() and len(item) > 2:
            raise PlanError(
                f"step {number} cannot see a step that does not exist: {item:.20}", line=cell
            )
        if item == "given":
            numbers[GIVEN] = None
        else:
            numbers[int(item) + 1 - base] = None
    return tuple(numbers)


def too_many(context: PlanFormatContext, line: str) -> PlanError:
    """Return the error of a plan with more steps than allowed."""
    return PlanError(
        f"the plan has more than {format_count(context.rules.steps, 'step')}", line=line.strip()
    )


def checked_accept(context: PlanFormatContext, reasoning: str, line: str) -> KeepAnswer:
    """Return the decision to keep the existing answer, if that is allowed here.

    Raises `PlanError`.
    """
    if not context.may_accept:
        why = "a plan has begun"
        if not context.rules.given:
            why = "there is none"
        raise PlanError(f"accept needs an existing answer, and {why}", line=line)
    return KeepAnswer(reasoning=reasoning.strip())


def access_sets(number: int, context: PlanFormatContext) -> list[tuple[int, ...]]:
    """Return every access list that step `number` may have, shortest first."""
    visible = context.all_before(number)
    sizes = range(len(visible) + 1)
    return list(chain.from_iterable(combinations(visible, size) for size in sizes))


CONTROL: Final = "".join(map(chr, [*range(0x20), 0x7F]))
BLANK: Final = (
    " \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
"""What Python strips as white space, beside control characters.

A subtask must not consist of it.
"""


@cache
def char_class_without(excluded: str) -> str:
    """Return a GBNF class of every character except these and control characters."""
    # The class lists what it admits. For a class that lists what it excludes, llama.cpp refuses the
    # first byte of every character that begins like an excluded one: excluding U+3000 would forbid
    # kana written byte by byte.
    ranges = []
    first = 0
    for banned in [*sorted(map(ord, CONTROL + excluded)), 0x110000]:
        if banned > first:
            ranges.append(f"{_escaped_point(first)}-{_escaped_point(banned - 1)}")
        first = banned + 1
    return f"[{''.join(ranges)}]"


def _escaped_point(point: int) -> str:
    if point < 0x100:
        return f"\\x{point:02X}"
    return f"\\U{point:08X}"


def text_without(excluded: str, most: int, *, at_first: str = "") -> str:
    """Return a GBNF sequence for 1 to `most` characters other than these.

    The first of them is not blank, and none of those that are excluded `at_first`.
    """
    first = char_class_without(BLANK + excluded + at_first)
    return f"{first} {char_class_without(excluded)}{{0,{most - 1}}}"


def literal(text: str) -> str:
    """Return `text` as a GBNF string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def alternatives(options: list[str]) -> str:
    """Return a GBNF choice between literals."""
    return " | ".join(literal(option) for option in options)

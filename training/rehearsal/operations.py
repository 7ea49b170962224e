"""What can be done in the demo's world, and what a question asks for as a tree of it. Pure.

A value is a text: a word in upper case or a whole number. An operation takes one or two values;
each of them stands in the question or is the answer of an earlier step. A tree is one step, a
chain, or a join of two branches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from random import Random
from typing import Any, Final, Literal, NamedTuple

from conductor_cli.rehearsal.words import Skill
from training.rehearsal.words import (
    CAPITALS,
    COLOURS,
    ELEMENTS,
    MONTHS,
    OPPOSITES,
    SPANISH,
    WEEKDAYS,
)

SKILLS: Final[tuple[Skill, ...]] = (
    "spelling",
    "counting",
    "adding",
    "multiplying",
    "geography",
    "chemistry",
    "opposites",
    "calendar",
    "translation",
    "comparing",
)
"""The skills of the conductor's training."""

UNSEEN: Final[Skill] = "colours"
"""A skill that no training of the conductor contains. Its worker is trained like the others."""

# How many letters a word may have to be spelled; MAX_COUNTED: to be counted or compared
LONGEST: Final = 10
MAX_COUNTED: Final = 14

WordDraw = Callable[[Random], str]  # draws a word for a question about letters
Values = tuple[str, ...]


class Letters(NamedTuple):
    """Words with so many letters."""

    least: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing to do with one value or two.

    `values` are those that it takes: words of so many letters, numbers of a range, or the subjects
    of a table. `does` computes the answer; None if the values do not fit. `starts` draws values
    that a question may name, and `arity` says how many there are. `undoes` is the inverse
    operation. `swaps`: the order of two values has no meaning.
    """

    name: str
    skill: Skill
    does: Callable[..., str | None]
    starts: Callable[[Random, WordDraw], Values]
    values: Letters | range | Mapping[str, str]
    arity: int = 1
    undoes: str = ""
    swaps: bool = False


def _on_words(
    name: str,
    skill: Skill,
    does: Callable[..., str | None],
    longest: int,
    arity: int = 1,
    **more: Any,
) -> Operation:
    """What is done with different words of at most so many letters."""

    def fitting(*words: str) -> str | None:
        fits = all(word.isalpha() and 2 <= len(word) <= longest for word in words) and len(
            {*words}
        ) == len(words)
        if not fits:
            return None
        return does(*words)

    return Operation(
        name=name,
        skill=skill,
        does=fitting,
        arity=arity,
        values=Letters(2, longest),
        **more,
        starts=lambda random, word: tuple(word(random) for _ in range(arity)),
    )


def _on_numbers(
    name: str,
    skill: Skill,
    does: Callable[..., int | None],
    values: range,
    arity: int = 2,
    **more: Any,
) -> Operation:
    """What is done with numbers of a range."""

    def fitting(*texts: str) -> str | None:
        fits = all(text.isdecimal() and int(text) in values for text in texts)
        result = None
        if fits:
            result = does(*map(int, texts))
        if result is None:
            return None
        return str(result)

    def starts(random: Random, _: WordDraw) -> Values:
        while True:
            drawn = tuple(str(random.choice(values)) for _ in range(arity))
            if fitting(*drawn) is not None:
                return drawn

    return Operation(
        name=name, skill=skill, does=fitting, starts=starts, values=values, arity=arity, **more
    )


def _fact(name: str, skill: Skill, table: Mapping[str, str], undoes: str = "") -> Operation:
    subjects = tuple(table)
    return Operation(
        name=name,
        skill=skill,
        does=table.get,
        starts=lambda random, _: (random.choice(subjects),),
        values=table,
        undoes=undoes,
    )


def _turned(table: Mapping[str, str]) -> dict[str, str]:
    return {value: key for key, value in table.items()}


def _next(names: tuple[str, ...]) -> dict[str, str]:
    return dict(pairwise((*names, names[0])))


def _chosen(choose: Callable[..., int], one: int, other: int) -> int | None:
    if one == other:
        return None
    return choose(one, other)


def _by_length(choose: Callable[..., str], one: str, other: str) -> str | None:
    if len(one) == len(other):
        return None
    return choose(one, other, key=len)


MOST: Final = 99  # the largest sum
_NUMBERED_MONTHS: Final = {name: str(number) for number, name in enumerate(MONTHS, start=1)}

_OPERATIONS: Final = (
    _on_words("reverse", "spelling", lambda word: word[::-1], LONGEST, undoes="reverse"),
    _on_words("sort", "spelling", lambda word: "".join(sorted(word)), LONGEST, undoes="sort"),
    _on_words("first", "spelling", lambda word: word[0], MAX_COUNTED, undoes="first"),
    _on_words("last", "spelling", lambda word: word[-1], MAX_COUNTED, undoes="last"),
    _on_words(
        "joined",
        "spelling",
        lambda one, two: one + two if len(one + two) <= MAX_COUNTED else None,
        MAX_COUNTED,
        2,
    ),
    _on_words("letters", "counting", lambda word: str(len(word)), MAX_COUNTED),
    _on_words("vowels", "counting", lambda word: str(sum(map("AEIOU".count, word))), MAX_COUNTED),
    _on_numbers(
        "plus",
        "adding",
        lambda one, other: one + other if one + other <= MOST else None,
        range(MOST + 1),
        swaps=True,
    ),
    _on_numbers(
        "minus", "adding", lambda one, other: one - other if one >= other else None, range(MOST + 1)
    ),
    _on_numbers("times", "multiplying", lambda one, other: one * other, range(13), swaps=True),
    _on_numbers("double", "multiplying", lambda number: 2 * number, range(51), 1),
    _on_numbers("triple", "multiplying", lambda number: 3 * number, range(34), 1),
    _on_numbers("half", "multiplying", lambda number: number // 2, range(0, 101, 2), 1),
    _fact("capital", "geography", CAPITALS, undoes="country"),
    _fact("country", "geography", _turned(CAPITALS), undoes="capital"),
    _fact("element", "chemistry", {symbol: name for name, symbol, _ in ELEMENTS}, undoes="symbol"),
    _fact("symbol", "chemistry", {name: symbol for name, symbol, _ in ELEMENTS}, undoes="element"),
    _fact(
        "atomic",
        "chemistry",
        {name: str(number) for name, _, number in ELEMENTS},
        undoes="numbered",
    ),
    _fact(
        "numbered",
        "chemistry",
        {str(number): name for name, _, number in ELEMENTS},
        undoes="atomic",
    ),
    _fact("opposite", "opposites", {**OPPOSITES, **_turned(OPPOSITES)}, undoes="opposite"),
    _fact("month_after", "calendar", _next(MONTHS), undoes="month_before"),
    _fact("month_before", "calendar", _turned(_next(MONTHS)), undoes="month_after"),
    _fact("day_after", "calendar", _next(WEEKDAYS), undoes="day_before"),
    _fact("day_before", "calendar", _turned(_next(WEEKDAYS)), undoes="day_after"),
    _fact("month_number", "calendar", _NUMBERED_MONTHS, undoes="month_numbered"),
    _fact("month_numbered", "calendar", _turned(_NUMBERED_MONTHS), undoes="month_number"),
    _fact("spanish", "translation", SPANISH, undoes="english"),
    _fact("english", "translation", _turned(SPANISH), undoes="spanish"),
    _on_numbers("larger", "comparing", partial(_chosen, max), range(151), swaps=True),
    _on_numbers("smaller", "comparing", partial(_chosen, min), range(151), swaps=True),
    _on_words("longer", "comparing", partial(_by_length, max), MAX_COUNTED, 2, swaps=True),
    _on_words("shorter", "comparing", partial(_by_length, min), MAX_COUNTED, 2, swaps=True),
    _on_words("alphabetical", "comparing", min, MAX_COUNTED, 2, swaps=True),
    _fact("colour", UNSEEN, COLOURS),
)

OPERATIONS: Final[Mapping[str, Operation]] = {
    operation.name: operation for operation in _OPERATIONS
}


def of_skill(skill: Skill) -> tuple[Operation, ...]:
    """The operations of a skill, in order."""
    return tuple(operation for operation in OPERATIONS.values() if operation.skill == skill)


def subjects() -> frozenset[str]:
    """Every word that a fact is known about."""
    tables = (
        CAPITALS,
        _turned(CAPITALS),
        SPANISH,
        _turned(SPANISH),
        COLOURS,
        OPPOSITES,
        _turned(OPPOSITES),
    )
    names = (
        {name for name, symbol, _ in ELEMENTS}
        | {symbol for _, symbol, _ in ELEMENTS}
        | {*MONTHS, *WEEKDAYS}
    )
    return frozenset(names.union(*tables))


Shape = Literal["single", "chain2", "chain3", "join", "join_then", "chain_in_join"]

STEPS: Final[dict[Shape, int]] = {
    "single": 1,
    "chain2": 2,
    "chain3": 3,
    "join": 3,
    "join_then": 4,
    "chain_in_join": 4,
}
"""How many steps a shape has at least; a join of two chains has one more."""

COMPARED: Final = 0.4
"""How often a comparison with a literal may follow: it fits any value, and would be half of all
steps otherwise.
"""

_TRIES: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An operation with its arguments, each a literal or another node, and its value."""

    operation: Operation
    args: tuple[Node | str, ...]
    value: str

    @property
    def children(self) -> tuple[Node, ...]:
        return tuple(arg for arg in self.args if isinstance(arg, Node))

    @property
    def literals(self) -> tuple[str, ...]:
        """Every literal below this node, from left to right."""
        literals: list[str] = []
        for arg in self.args:
            if isinstance(arg, Node):
                literals += arg.literals
            else:
                literals.append(arg)
        return tuple(literals)

    @property
    def key(self) -> str:
        """The same for the same tree, whatever its phrasing and the order of its branches."""
        parts = sorted(arg.key if isinstance(arg, Node) else arg for arg in self.args)
        return f"{self.operation.name}({','.join(parts)})"

    def operations(self) -> tuple[Operation, ...]:
        below = chain.from_iterable(child.operations() for child in self.children)
        return (self.operation, *below)


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """From what trees are grown.

    The skills, the weights of operations (1 where not named), and the words.
    """

    skills: Sequence[Skill]
    word: WordDraw
    shares: Mapping[str, float]


def grow(random: Random, growth: Growth, shape: Shape) -> Node:
    """A tree of this shape."""
    while (node := _grown(random, growth, shape)) is None:
        pass
    return node


def _grown(random: Random, growth: Growth, shape: Shape) -> Node | None:
    if shape in {"single", "chain2", "chain3"}:
        return _chain(random, growth, STEPS[shape])
    deep = shape == "chain_in_join"
    left = _chain(random, growth, 2 if deep and random.random() < 0.6 else 1)
    right = _chain(
        random,
        growth,
        2 if deep and (left is None or not left.children or random.random() < 0.4) else 1,
    )
    if left is None or right is None or left.key == right.key:
        return None
    operation = _pick(
        random, growth, lambda op: op.arity == 2 and op.does(left.value, right.value) is not None
    )
    if operation is None:
        return None
    value = operation.does(left.value, right.value)
    assert value is not None
    node = Node(operation=operation, args=(left, right), value=value)
    if shape != "join_then":
        return node
    return _extended(random, growth, node)


def _chain(random: Random, growth: Growth, length: int) -> Node | None:
    operation = _pick(random, growth, lambda _: True)
    if operation is None:
        return None
    args = operation.starts(random, growth.word)
    value = operation.does(*args)
    node = None
    if value is not None:
        node = Node(operation=operation, args=args, value=value)
    for _ in range(length - 1):
        if node is not None:
            node = _extended(random, growth, node)
    return node


def _extended(random: Random, growth: Growth, node: Node) -> Node | None:
    """One more operation on the value of `node`, with a literal beside it where it takes two."""
    compares = random.random() < COMPARED
    operation = _pick(
        random,
        growth,
        lambda op: (
            (compares or op.skill != "comparing") and _fitting(random, growth, op, node) is not None
        ),
    )
    if operation is None:
        return None
    return _fitting(random, growth, operation, node)


def _fitting(random: Random, growth: Growth, operation: Operation, node: Node) -> Node | None:
    if operation.name in {node.operation.name, node.operation.undoes}:
        return None
    if operation.arity == 1:
        value = operation.does(node.value)
        if value is None:
            return None
        return Node(operation=operation, args=(node,), value=value)
    for _ in range(_TRIES):
        partner = operation.starts(random, growth.word)[1]
        if partner.isdecimal() and random.random() < 0.6:
            partner = str(random.randint(1, 12))
        args = (node, partner) if random.random() < 0.7 else (partner, node)
        value = operation.does(*(arg.value if isinstance(arg, Node) else arg for arg in args))
        if value is not None:
            return Node(operation=operation, args=args, value=value)
    return None


def _pick(random: Random, growth: Growth, fits: Callable[[Operation], bool]) -> Operation | None:
    """One of the operations that fit.

    Each skill is equally likely, however many operations it has.
    """
    able = [
        operation
        for operation in OPERATIONS.values()
        if operation.skill in growth.skills and fits(operation)
    ]
    if not able:
        return None
    skill = random.choice(sorted({operation.skill for operation in able}))
    same = [operation for operation in able if operation.skill == skill]
    return random.choices(same, [growth.shares.get(operation.name, 1.0) for operation in same])[0]

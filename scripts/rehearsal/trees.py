"""What a question asks for, as a tree of operations: one step, a chain, or a join of two branches. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Literal

from conductor_cli.rehearsal.words import Skill
from scripts.rehearsal.operations import OPERATIONS, Operation, WordDraw

Shape = Literal["single", "chain2", "chain3", "join", "join_then", "chain_in_join"]

STEPS: Final[dict[Shape, int]] = {
    "single": 1, "chain2": 2, "chain3": 3, "join": 3, "join_then": 4, "chain_in_join": 4,
}  # fmt: skip
"""How many steps a shape has at least; a join of two chains has one more."""

COMPARED: Final = 0.4
"""How often a comparison with a literal may follow: it fits any value, and would be half of all steps otherwise."""

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
        return tuple(text for arg in self.args for text in (arg.literals if isinstance(arg, Node) else (arg,)))

    @property
    def key(self) -> str:
        """The same for the same tree, whatever its phrasing and the order of its branches."""
        parts = sorted(arg.key if isinstance(arg, Node) else arg for arg in self.args)
        return f"{self.operation.name}({','.join(parts)})"

    def operations(self) -> tuple[Operation, ...]:
        """The operations of this node and those below."""
        return (self.operation, *(operation for child in self.children for operation in child.operations()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """From what trees are grown: the skills, the weights of operations (1 where not named), and the words."""

    skills: Sequence[Skill]
    word: WordDraw
    shares: Mapping[str, float]


def grow(random: Random, growth: Growth, shape: Shape) -> Node:
    """A tree of this shape."""
    while True:
        node = _grown(random, growth, shape)
        if node is not None:
            return node


def _grown(random: Random, growth: Growth, shape: Shape) -> Node | None:
    if shape in {"single", "chain2", "chain3"}:
        return _chain(random, growth, STEPS[shape])
    deep = shape == "chain_in_join"
    left = _chain(random, growth, 2 if deep and random.random() < 0.6 else 1)
    right = _chain(random, growth, 2 if deep and (left is None or not left.children or random.random() < 0.4) else 1)
    if left is None or right is None or left.key == right.key:
        return None
    node = _joined(random, growth, left, right)
    return _extended(random, growth, node) if node is not None and shape == "join_then" else node


def _chain(random: Random, growth: Growth, length: int) -> Node | None:
    node = _leaf(random, growth)
    for _ in range(length - 1):
        if node is not None:
            node = _extended(random, growth, node)
    return node


def _leaf(random: Random, growth: Growth) -> Node | None:
    operation = _pick(random, growth, lambda _: True)
    if operation is None:
        return None
    args = operation.starts(random, growth.word)
    value = operation.does(*args)
    return None if value is None else Node(operation=operation, args=args, value=value)


def _extended(random: Random, growth: Growth, node: Node) -> Node | None:
    """One more operation on the value of `node`, with a literal beside it where it takes two."""
    compares = random.random() < COMPARED
    operation = _pick(
        random, growth,
        lambda op: (compares or op.skill != "comparing") and _fitting(random, growth, op, node) is not None,
    )  # fmt: skip
    return None if operation is None else _fitting(random, growth, operation, node)


def _fitting(random: Random, growth: Growth, operation: Operation, node: Node) -> Node | None:
    if operation.name in {node.operation.name, node.operation.undoes}:
        return None
    if operation.arity == 1:
        value = operation.does(node.value)
        return None if value is None else Node(operation=operation, args=(node,), value=value)
    for _ in range(_TRIES):
        partner = operation.starts(random, growth.word)[1]
        if partner.isdecimal() and random.random() < 0.6:
            partner = str(random.randint(1, 12))
        args = (node, partner) if random.random() < 0.7 else (partner, node)
        value = operation.does(*(arg.value if isinstance(arg, Node) else arg for arg in args))
        if value is not None:
            return Node(operation=operation, args=args, value=value)
    return None


def _joined(random: Random, growth: Growth, left: Node, right: Node) -> Node | None:
    operation = _pick(random, growth, lambda op: op.arity == 2 and op.does(left.value, right.value) is not None)
    if operation is None:
        return None
    value = operation.does(left.value, right.value)
    assert value is not None
    return Node(operation=operation, args=(left, right), value=value)


def _pick(random: Random, growth: Growth, fits: Callable[[Operation], bool]) -> Operation | None:
    """One of the operations that fit. Each skill is equally likely, however many operations it has."""
    able = [operation for operation in OPERATIONS.values() if operation.skill in growth.skills and fits(operation)]
    if not able:
        return None
    skill = random.choice(sorted({operation.skill for operation in able}))
    same = [operation for operation in able if operation.skill == skill]
    return random.choices(same, [growth.shares.get(operation.name, 1.0) for operation in same])[0]

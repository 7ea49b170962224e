"""What a linter cannot hold of calm code: one thought a line.

`DIRECTORIES` are those that hold it now; each may only be added.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

import pytest

from tests.syntax import tree_of, walk

ROOT: Final = Path(__file__).parent.parent

DIRECTORIES: Final = (
    "benchmarks",
    "examples",
    "scripts",
    "src/conductor_cli/app",
    "src/conductor_cli/cli",
    "src/conductor_cli/config",
    "src/conductor_cli/core",
    "src/conductor_cli/evals",
    "src/conductor_cli/models",
    "src/conductor_cli/plugins",
    "src/conductor_cli/programs",
    "src/conductor_cli/rehearsal",
    "src/conductor_cli/run",
    "src/conductor_cli/server",
    "src/conductor_cli/state",
    "src/conductor_cli/system",
    "src/conductor_cli/tools",
    "src/conductor_cli/train",
    "src/conductor_cli/views",
    "tests/app",
    "tests/benchmarks",
    "tests/cli",
    "tests/config",
    "tests/core",
    "tests/evals",
    "tests/models",
    "tests/plugins",
    "tests/programs",
    "tests/rehearsal",
    "tests/run",
    "tests/scripts",
    "tests/server",
    "tests/state",
    "tests/system",
    "tests/tools",
    "tests/traces",
    "tests/train",
    "tests/training",
    "tests/views",
    "training",
)
"""The directories whose files are all calm. A directory that has become calm is added."""

Check = Callable[[str], Iterator[int]]
"""Yields the lines of a file's text on which something is not calm."""


LOOKED_AT: Final = (
    ast.AnnAssign,
    ast.Assign,
    ast.DictComp,
    ast.GeneratorExp,
    ast.IfExp,
    ast.ListComp,
    ast.SetComp,
)
"""The kinds of nodes that the checks ask for."""


@lru_cache(maxsize=1)
def _nodes(text: str) -> tuple[ast.AST, ...]:
    """Return what the checks look at in the syntax of a text, one check after the other."""
    return tuple(node for node in walk(tree_of(text)) if isinstance(node, LOOKED_AT))


def packed_assignments(text: str) -> Iterator[int]:
    """Several names from several values. A swap needs its names on both sides."""
    for node in _nodes(text):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
            continue
        for target in node.targets:
            if isinstance(target, ast.Tuple) and not _is_swap(target, node.value):
                yield node.lineno


def _is_swap(target: ast.Tuple, value: ast.Tuple) -> bool:
    before = sorted(ast.unparse(item) for item in target.elts)
    after = sorted(ast.unparse(item) for item in value.elts)
    return before == after


def chained_assignments(text: str) -> Iterator[int]:
    for node in _nodes(text):
        if isinstance(node, ast.Assign) and len(node.targets) > 1:
            yield node.lineno


def nested_conditionals(text: str) -> Iterator[int]:
    for node in _nodes(text):
        if isinstance(node, ast.IfExp):
            inner = [item for item in walk(node) if isinstance(item, ast.IfExp)]
            if len(inner) > 1:
                yield node.lineno


def long_comprehensions(text: str) -> Iterator[int]:
    """Comprehensions with more than one `for`."""
    kinds = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    for node in _nodes(text):
        if isinstance(node, kinds) and len(node.generators) > 1:
            yield node.lineno


def unformatted_code(text: str) -> Iterator[int]:
    """`# fmt: skip` after what is no table: a literal of several rows."""
    if "fmt: skip" not in text:
        return
    ends = set()
    for node in _nodes(text):
        if isinstance(node, ast.Assign | ast.AnnAssign) and _is_table(node.value):
            ends.add(node.end_lineno)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_skip = token.type == tokenize.COMMENT and "fmt: skip" in token.string
        if is_skip and token.start[0] not in ends:
            yield token.start[0]


def _is_table(value: ast.expr | None) -> bool:
    rows: list[ast.expr] = []
    if isinstance(value, ast.Tuple | ast.List | ast.Set):
        rows = value.elts
    elif isinstance(value, ast.Dict):
        rows = value.values
    return len(rows) > 1 and value is not None and value.end_lineno != value.lineno


CHECKS: Final[tuple[Check, ...]] = (
    packed_assignments,
    chained_assignments,
    nested_conditionals,
    long_comprehensions,
    unformatted_code,
)


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_a_calm_directory_stays_calm(directory: str) -> None:
    """No file of it packs several thoughts into one line; each that does is named with its line."""
    files = sorted(ROOT.joinpath(directory).rglob("*.py"))
    faults = []
    for path in files:
        text = path.read_text(encoding="utf-8")
        for check in CHECKS:
            faults += [f"{path.relative_to(ROOT)}:{line} {check.__name__}" for line in check(text)]
    assert files
    assert faults == []


@pytest.mark.parametrize(
    ("check", "hurried", "calm"),
    [
        (packed_assignments, "a, b = 1, 2", "a, b = b, a\nc, d = pair"),
        (chained_assignments, "a = b = 1", "a = 1\nb = 1"),
        (nested_conditionals, "a = 1 if b else 2 if c else 3", "a = 1 if b else 2"),
        (long_comprehensions, "a = [x for y in z for x in y]", "a = [x for x in z]"),
        (
            unformatted_code,
            "a = call(1,\n  2)  # fmt: skip",
            "a = (\n  (1,  2),\n  (30, 4),\n)  # fmt: skip",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_check_tells_hurried_code_from_calm_code(
    check: Check, hurried: str, calm: str
) -> None:
    assert list(check(hurried)) != []
    assert list(check(calm)) == []

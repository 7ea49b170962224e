"""The shape of the source: its table is printed, its bounds are held."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.check_shape import Module, cycle, problems, read, table

TESTS = Path(__file__).resolve().parent


def written(place: Path, **modules: str) -> tuple[Module, ...]:
    for name, text in modules.items():
        place.joinpath(f"{name}.py").write_text(text)
    return read(place)


def test_the_source_keeps_its_shape() -> None:
    """Modules and functions keep their lengths, arguments their annotations, and no import goes in a circle."""
    modules = read()
    print(table(modules))
    assert problems(modules) == []


def test_the_docstring_of_a_function_does_not_count(tmp_path: Path) -> None:
    """A function's length is that of its code."""
    text = 'def say():\n    """One.\n\n    Two.\n    """\n    return 1\n'
    assert [f.lines for m in written(tmp_path, a=text) for f in m.functions] == [2]


def test_a_long_module_and_a_long_function_are_named(tmp_path: Path) -> None:
    """What is too long is named with its length."""
    body = "\n".join("    x = 1" for _ in range(60))
    found = problems(written(tmp_path, a=f"def much():\n{body}\n" + "\n" * 400))
    assert found[:2] == ["a: 461 lines, at most 400", "a.py:1 much: 61 lines, at most 60"]


def test_an_argument_without_annotation_is_named(tmp_path: Path) -> None:
    """Every argument but self has an annotation, also `*args` and those of inner functions."""
    text = "class A:\n    def f(self, a: int, b, *c, **d: int) -> None:\n        pass\n"
    assert problems(written(tmp_path, a=text)) == ["a.py:2 f: no annotation on b, c"]


@pytest.mark.parametrize(
    "text",
    [
        "import b",
        "from b import x",
        "def f() -> None:\n    import b",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import b",
    ],
    ids=["module", "name", "inside a function", "for the type checker"],
)
def test_an_import_cycle_is_found(tmp_path: Path, text: str) -> None:
    """Two modules that import each other are reported, however the import is written."""
    assert set(cycle(written(tmp_path, a=f"{text}\n", b="import a\n"))) == {"a", "b"}


def test_a_name_defined_in_four_modules_is_reported(tmp_path: Path) -> None:
    """A private helper or a class whose name is defined in more than three modules cannot be searched for."""
    modules = dict.fromkeys("abc", "def _read() -> None: ...\n\nclass Row: ...\n")
    assert problems(written(tmp_path, **modules)) == []
    found = problems(written(tmp_path, **modules, d="def _read() -> None: ...\n"))
    assert found == ["_read: defined in 4 modules, at most 3"]


def test_every_test_says_in_a_sentence_what_holds() -> None:
    """Each test function has a docstring: the fact it holds."""
    import ast

    silent = [
        f"{path.relative_to(TESTS)}:{node.lineno} {node.name}"
        for path in sorted(TESTS.rglob("test_*.py"))
        if "node_modules" not in path.parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]
    assert silent == []

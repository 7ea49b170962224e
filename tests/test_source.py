"""What holds for all source files.

No import cycle, and a sentence or a telling name in every test.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.check_cycles import find_cycle
from tests.syntax import tree_of, walk

TESTS = Path(__file__).resolve().parent
CHANGING = {"compress", "getpid", "mkdtemp", "now", "random", "time", "today", "urandom", "uuid4"}
"""Functions whose results differ between two processes; `gzip.compress` writes the time."""

SHORT_NAME = re.compile(r"\bdef test_(?:[^_\W]+_?){0,3}\(")


def test_no_two_modules_import_each_other() -> None:
    """No import of the source goes in a circle."""
    assert find_cycle() == []


@pytest.mark.parametrize(
    "text",
    [
        "import circle.b",
        "from circle.b import x",
        "def f() -> None:\n    from circle import b",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import circle.b",
    ],
    ids=["module", "name", "inside a function", "for the type checker"],
)
def test_an_import_cycle_is_found(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two modules that import each other are reported, however the import is written."""
    monkeypatch.syspath_prepend(tmp_path)
    directory = tmp_path / "circle"
    directory.mkdir()
    for name, content in (("__init__", ""), ("a", text), ("b", "import circle.a")):
        directory.joinpath(f"{name}.py").write_text(f"{content}\n")
    assert set(find_cycle("circle")) == {"circle.a", "circle.b"}


def test_every_test_says_what_holds() -> None:
    """A test function has a docstring with the fact it holds, or a name of four words."""
    silent = []
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "node_modules" in path.parts or not SHORT_NAME.search(text):
            continue
        for node in walk(tree_of(text)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            has_short_name = SHORT_NAME.fullmatch(f"def {node.name}(")
            if has_short_name and not ast.get_docstring(node):
                silent.append(f"{path.relative_to(TESTS)}:{node.lineno} {node.name}")
    assert silent == []


def test_the_fast_walk_meets_what_that_of_the_library_meets() -> None:
    tree = tree_of(Path(__file__).read_text(encoding="utf-8"))
    nodes = [node for node in ast.walk(tree) if not isinstance(node, ast.expr_context)]
    assert sorted(map(id, walk(tree))) == sorted(map(id, nodes))


def test_the_ids_of_tests_are_the_same_in_each_process() -> None:
    """Several processes of pytest must collect the same tests, or none is run.

    So the cases of a test that are made by a clock, by chance or by packing have names.
    """
    unnamed = []
    for path in sorted(TESTS.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "node_modules" not in path.parts and "parametrize" in text:
            lines = unnamed_changing_cases(tree_of(text))
            unnamed += [f"{path.relative_to(TESTS)}:{line}" for line in lines]
    assert unnamed == []


@pytest.mark.parametrize(
    ("cases", "is_unnamed"),
    [
        ("[gzip.compress(b'x')]", True),
        ("[time()]", True),
        ("[b'x', 'time']", False),
        ("[gzip.compress(b'x')], ids=['packed']", False),
    ],
)
def test_a_case_that_changes_without_a_name_is_found(cases: str, is_unnamed: bool) -> None:
    tree = ast.parse(f"@pytest.mark.parametrize('case', {cases})\ndef test_it(case): pass")
    assert bool([*unnamed_changing_cases(tree)]) is is_unnamed


def unnamed_changing_cases(tree: ast.Module) -> Iterator[int]:
    """The lines of calls in the cases of tests that have no names."""
    for node in walk(tree):
        if not isinstance(node, ast.Call) or name_of(node) != "parametrize":
            continue
        if any(keyword.arg == "ids" for keyword in node.keywords):
            continue
        for inner in walk(node):
            if isinstance(inner, ast.Call) and name_of(inner) in CHANGING:
                yield inner.lineno


def name_of(call: ast.Call) -> str:
    """The last name of what is called."""
    return ast.unparse(call.func).rpartition(".")[2]


def test_each_directory_of_tests_and_each_shared_module_is_explained() -> None:
    """tests/README.md has a row for each directory, and names the shared modules.

    Those are the modules that tests of several directories use.
    """
    page = (TESTS / "README.md").read_text(encoding="utf-8")
    tests = [path for path in TESTS.rglob("test_*.py") if "node_modules" not in path.parts]
    directories = {path.parent.relative_to(TESTS).as_posix() for path in tests} - {"."}
    table = page[page.index("## Where a test lives") :]
    assert {name for name in directories if f"`{name}/`" not in table} == set()
    for shared in ("cli/stage.py", "run/kit.py", "models/kit.py", "evals/kit.py", "servers.py"):
        assert (TESTS / shared).is_file()
        assert f"`{shared}`" in page

"""Start-up stays fast: each heavy library is imported in one file, when it is used."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src"
CORE = SOURCE / "conductor_cli" / "core"
MODULES = sorted(SOURCE.rglob("*.py"))

ONE_DOOR = ("httpx", "huggingface_hub", "keyring", "litellm", "llama_cpp")
"""Each of these is imported in at most one file, inside a function."""

BEHIND_THE_DOOR = SOURCE / "conductor_cli" / "models" / "http_connections.py"
"""The connections of httpx, a module that models/http.py imports inside a function."""

PLUGINS = SOURCE / "conductor_cli" / "plugins"
"""Each of these is loaded by a harness that has imported its own library before."""

NOT_AT_START = {*ONE_DOOR, "pydantic", "torch", "numpy", "prompt_toolkit", "opentelemetry"}

START = """
import json, sys
from conductor_cli.__main__ import main
sys.argv = ["conductor", *sys.argv[1:]]
if sys.argv[1:]:
    try:
        main()
    except SystemExit as end:
        assert end.code in (0, None), end.code
else:
    import conductor_cli.cli.command_tree
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})), file=sys.stderr)
"""


@cache
def imports(path: Path) -> tuple[tuple[str, bool], ...]:
    """The top names that a module imports when it runs, and whether that is inside a function."""

    def walk(node: ast.AST, inside: bool) -> Iterator[tuple[str, bool]]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        if isinstance(node, ast.Import):
            yield from ((alias.name.partition(".")[0], inside) for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module.partition(".")[0], inside
        for child in ast.iter_child_nodes(node):
            yield from walk(
                child, inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            )

    return tuple(walk(ast.parse(path.read_text(encoding="utf-8")), inside=False))


@pytest.mark.parametrize(
    "arguments", [[], ["--version"], ["--help"]], ids=["import", "--version", "--help"]
)
def test_a_start_imports_nothing_heavy(arguments: list[str]) -> None:
    """Neither the command line, nor its version, nor its help loads a heavy library."""
    command = [sys.executable, "-c", START, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert NOT_AT_START.intersection(json.loads(done.stderr.splitlines()[-1])) == set()


@pytest.mark.parametrize(
    "arguments",
    [
        ["trace", "list", "--state", "failed"],
        ["--quiet", "config", "show"],
        ["ask", "--demo", "--no-trace", "--progress", "none", "What is 2 + 2?"],
    ],
    ids=["trace", "config", "ask"],
)
def test_a_command_imports_no_validator_for_its_options(arguments: list[str]) -> None:
    """Typer would import pydantic for each option, given or not."""
    command = [sys.executable, "-c", START, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "pydantic" not in json.loads(done.stderr.splitlines()[-1])


@pytest.mark.parametrize("library", ONE_DOOR)
def test_a_heavy_library_is_imported_in_one_file_inside_a_function(library: str) -> None:
    """Each heavy library is imported in one file, when it is needed."""
    doors = (path for path in MODULES if path != BEHIND_THE_DOOR and path.parent != PLUGINS)
    naming = (path for path in doors if library in path.read_text(encoding="utf-8"))
    importing_files = set()
    for path in naming:
        places = [is_inside for name, is_inside in imports(path) if name == library]
        assert all(places)
        if places:
            importing_files.add(path)
    assert len(importing_files) <= 1


@pytest.mark.parametrize(
    "path", sorted(CORE.rglob("*.py")), ids=lambda path: path.relative_to(CORE).as_posix()
)
def test_core_imports_the_standard_library_only(path: Path) -> None:
    """A module of the core imports the core and the standard library."""
    assert {name for name, _ in imports(path)} - {
        *sys.stdlib_module_names,
        "conductor_cli",
    } == set()

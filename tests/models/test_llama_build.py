"""What is used of llama-cpp-python compared with what is installed: an update that changes it fails here."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conductor_cli.models.llama.bindings import RANGE, is_supported

HERE = Path(__file__).resolve().parents[2]
SOURCE = HERE / "src/conductor_cli/models/llama"
OWNERS = {"lib", "_lib", "llama_cpp"}

lib = pytest.importorskip("llama_cpp", reason="llama_cpp is not installed")


def nodes() -> Iterator[tuple[str, ast.AST]]:
    """Everything in the source of the local adapter, with its place."""
    for path in sorted(SOURCE.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            yield f"{path.name}:{getattr(node, 'lineno', 0)}", node


def of_library(node: ast.AST) -> str:
    """The NAME of a node that reads `lib.NAME`, `self._lib.NAME` or the like."""
    if not isinstance(node, ast.Attribute) or node.attr.startswith("_"):
        return ""
    owner = node.value
    name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
    return node.attr if name in OWNERS else ""


def test_every_name_that_is_used_is_installed() -> None:
    used = {name for _, node in nodes() if (name := of_library(node))}
    assert len(used) > 40
    assert [name for name in sorted(used) if not hasattr(lib, name)] == []


def test_every_field_that_is_set_exists() -> None:
    assigned = {
        target.attr
        for _, node in nodes()
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "params"
    }
    known = {
        field[0] for structure in (lib.llama_model_params, lib.llama_context_params) for field in structure._fields_
    }
    assert assigned
    assert sorted(assigned - known) == []


def test_every_call_passes_as_many_arguments_as_the_function_takes() -> None:
    wrong, seen = [], 0
    for place, node in nodes():
        if not isinstance(node, ast.Call) or not (name := of_library(node.func)):
            continue
        wanted = getattr(getattr(lib, name), "argtypes", None)
        if not isinstance(wanted, list | tuple) or any(isinstance(argument, ast.Starred) for argument in node.args):
            continue
        seen += 1
        if len(node.args) != len(wanted) or node.keywords:
            wrong.append(f"{place}: {name} takes {len(wanted)} by position")
    assert seen > 30
    assert wrong == []


@pytest.mark.parametrize(
    ("version", "fits"),
    [
        ("0.3.36", True), ("0.3.37", True), ("0.3.36+cu124", True), ("0.3.36.post1", True),
        ("0.3.35", False), ("0.4.0", False), ("0.4", False), ("1.0.0", False), ("0.3", False), ("unknown", False),
    ],
)  # fmt: skip
def test_the_supported_versions_are_known(version: str, fits: bool) -> None:
    assert is_supported(version) is fits


def test_the_installed_version_is_supported() -> None:
    assert is_supported(lib.__version__)


def test_what_pyproject_asks_for_begins_where_the_range_does() -> None:
    assert f'"{RANGE.partition(",")[0]}' in (HERE / "pyproject.toml").read_text()


def test_an_unsupported_version_is_an_error_at_the_start() -> None:
    script = (
        "import llama_cpp; llama_cpp.__version__ = '0.4.1'\n"
        "from conductor_cli.models.llama.bindings import load_bindings\n"
        "from conductor_cli.core.errors import ModelError\n"
        "try: load_bindings()\n"
        "except ModelError as error: print(error.reason, error.message, error.hint, sep='|')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    reason, message, hint = done.stdout.strip().split("|")
    assert reason == "file"
    assert "version 0.4.1 of llama-cpp-python is not supported" in message
    assert RANGE in hint

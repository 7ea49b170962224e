"""State has a home: what is kept is reached by interfaces, and nothing outside opens a database or a trace."""

from __future__ import annotations

import ast
from pathlib import Path

import conductor_cli

SOURCE = Path(conductor_cli.__file__).parent


def test_interfaces_speak_in_values_of_core() -> None:
    """No path, no database and nothing of another package stands in them."""
    imported = _imports(SOURCE / "state" / "interfaces.py")
    own = ("conductor_cli.core", "conductor_cli.state.stored_run")  # the latter has the rows of lists
    assert {name for name in imported if "." in name and not name.startswith(own)} == {"collections.abc"}
    assert not {"pathlib", "sqlite3", "os"} & imported


def test_nothing_outside_state_opens_a_database_or_a_trace() -> None:
    """Whoever needs the state opens it with `open_state`, so that one setting says where it is."""
    own = ("trace_lines", "old_lines", "trace_store", "run_index", "records")
    for path in SOURCE.rglob("*.py"):
        if SOURCE / "state" not in path.parents:
            assert not {"sqlite3", *(f"conductor_cli.state.{name}" for name in own)} & _imports(path), path
            assert "open_trace(" not in path.read_text("utf-8").replace("def open_trace(", ""), path


def _imports(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    named = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return named | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}

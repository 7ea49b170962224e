"""State has a home: what is kept is reached by interfaces, and nothing outside opens a database or a trace."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

import conductor_cli
from conductor_cli.run.circuits import Circuits
from conductor_cli.state import interfaces
from conductor_cli.state.attachments import Attachments
from conductor_cli.state.ratings import RatingsFile
from conductor_cli.state.spending import DailySpend
from conductor_cli.state.trace_file import TraceWriter
from conductor_cli.state.trace_store import TraceStore

SOURCE = Path(conductor_cli.__file__).parent
EMBEDDED: dict[Any, Any] = {
    interfaces.Spending: DailySpend, interfaces.Traces: TraceStore, interfaces.EventWriter: TraceWriter,
    interfaces.Ratings: RatingsFile, interfaces.AttachmentStore: Attachments, interfaces.CircuitStates: Circuits,
}  # fmt: skip


@pytest.mark.parametrize("interface", EMBEDDED)
def test_the_embedded_implementation_has_what_its_interface_has(interface: Any) -> None:
    names = [name for name in vars(interface) if not name.startswith("_")]
    assert names
    for name in names:
        asked, given = vars(interface)[name], getattr(EMBEDDED[interface], name)
        if callable(asked):
            assert list(inspect.signature(given).parameters) == list(inspect.signature(asked).parameters), name


def test_interfaces_speak_in_values_of_core() -> None:
    """No path, no database and nothing of another package stands in them."""
    imported = _imports(SOURCE / "state" / "interfaces.py")
    own = ("conductor_cli.core", "conductor_cli.state.stored_run")  # the latter has the rows of lists
    assert {name for name in imported if "." in name and not name.startswith(own)} == {"collections.abc"}
    assert not {"pathlib", "sqlite3", "os"} & imported


def test_nothing_outside_state_opens_a_database_or_a_trace() -> None:
    """Whoever needs the state opens it with `open_state`, so that one setting says where it is."""
    own = ("trace_lines", "old_lines", "trace_store", "run_index", "attachments", "ratings")
    for path in SOURCE.rglob("*.py"):
        if path.parent.name != "state":
            assert not {"sqlite3", *(f"conductor_cli.state.{name}" for name in own)} & _imports(path), path
            assert "open_trace(" not in path.read_text("utf-8").replace("def open_trace(", ""), path


def _imports(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    named = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return named | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}

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
from conductor_cli.state.postgres.records import SharedAttachments, SharedCircuits, SharedRatings
from conductor_cli.state.postgres.spending import SharedSpend
from conductor_cli.state.postgres.traces import SharedReader, SharedTraces, SharedWriter
from conductor_cli.state.ratings import RatingsFile
from conductor_cli.state.spending import DailySpend
from conductor_cli.state.trace_file import TraceFollower, TraceWriter
from conductor_cli.state.trace_store import TraceStore

SOURCE = Path(conductor_cli.__file__).parent
IMPLEMENTATIONS: list[tuple[Any, Any]] = [
    (interfaces.Spending, DailySpend), (interfaces.Spending, SharedSpend),
    (interfaces.Traces, TraceStore), (interfaces.Traces, SharedTraces),
    (interfaces.EventWriter, TraceWriter), (interfaces.EventWriter, SharedWriter),
    (interfaces.TraceReader, TraceFollower), (interfaces.TraceReader, SharedReader),
    (interfaces.Ratings, RatingsFile), (interfaces.Ratings, SharedRatings),
    (interfaces.AttachmentStore, Attachments), (interfaces.AttachmentStore, SharedAttachments),
    (interfaces.CircuitStates, Circuits), (interfaces.CircuitBoard, SharedCircuits),
]  # fmt: skip


@pytest.mark.parametrize(("interface", "implementation"), IMPLEMENTATIONS)
def test_an_implementation_has_what_its_interface_has(interface: Any, implementation: Any) -> None:
    names = [name for name in vars(interface) if not name.startswith("_")]
    assert names
    for name in names:
        asked, given = vars(interface)[name], getattr(implementation, name, None)
        if callable(asked):
            assert given is not None, name
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
        if SOURCE / "state" not in path.parents:
            assert not {"sqlite3", *(f"conductor_cli.state.{name}" for name in own)} & _imports(path), path
            assert "open_trace(" not in path.read_text("utf-8").replace("def open_trace(", ""), path


def _imports(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    named = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return named | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}

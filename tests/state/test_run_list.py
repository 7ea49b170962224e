"""Runs as lines: id, result and question at every width, and matches with their context."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from conductor_cli.core.terminal_text import display_width
from conductor_cli.state.run_list import matching_texts, run_lines
from conductor_cli.state.stored_run import SEPARATOR, StoredRun

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
ROW = StoredRun(
    run="20261122-100000-00000a", state="finished", time="2026-11-22T10:00:00.000+00:00",
    workers=f"alpha{SEPARATOR}beta", conductor="qwen2.5-7b-q4_k_m sha256-ends:0123456789abcdef",
    cost="0.0042", unpriced=1, tokens=1200, seconds=42.4, question="How many pears? " * 10,
)  # fmt: skip


def test_all_columns_are_shown_if_there_is_room() -> None:
    head, row = run_lines([ROW], 140, NOW)
    assert head.split() == ["RUN", "WHEN", "RESULT", "PLANNER", "WORKERS", "COST", "TOOK", "QUESTION"]
    shown = "20261122-100000-00000a  2 h ago  finished  qwen2.5-7b-q4_k_m  alpha, beta  $0.0042+  42 s  How many pears?"
    assert row.startswith(shown)
    assert (len(row), row[-1]) == (140, "…")
    _, row = run_lines([ROW._replace(recovered="step 1: beta answered instead of alpha")], 140, NOW)
    assert "  finished, recovered  " in row


@pytest.mark.parametrize("width", [30, 40, 59, 60, 80, 100, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    shown = run_lines([ROW, StoredRun(run="x", problem="世界" * 60)], width, NOW)
    assert max(map(display_width, shown)) <= width
    assert any("20261122-100000-00000a" in line for line in shown)
    assert width < 60 or "How many pears?" in shown[1]


def test_matches_are_shown_under_their_run() -> None:
    row = ROW._replace(
        question="How many PEARS?", subtasks=f"Count{SEPARATOR}Count pears", answers=f"two pears{SEPARATOR}three"
    )
    assert run_lines([row], 0, NOW, ["pears"])[2:] == [
        "    question: How many PEARS?", "    subtask 2: Count pears", "    answer 1: two pears",
    ]  # fmt: skip
    many = ROW._replace(answers=SEPARATOR.join(["pears"] * 9))
    assert len(run_lines([many], 0, NOW, ["pears"])) == 2 + 4
    ((name, part),) = matching_texts(StoredRun("x", question=f"{'a ' * 200}Zeppelin{' b' * 200}"), ["zeppelin"], 40)
    assert (name, "Zeppelin" in part, part[0], part[-1], display_width(part)) == ("question", True, "…", "…", 40)

"""Runs as lines: id, result and question at every width, and matches with their context."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from conductor_cli.core.table import display_width
from conductor_cli.store.run_list import matching_part, matching_texts, run_lines
from conductor_cli.store.stored_run import SEPARATOR, FoundRun, RunTexts, StoredRun

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
ROW = StoredRun(
    run="20261122-100000-00000a", state="finished", time="2026-11-22T10:00:00.000+00:00", mode="auto", shape="2 > 1",
    workers=f"alpha{SEPARATOR}beta",
    cost="0.0042", unpriced=1, tokens=1200, seconds=42.4, title="How many pears? " * 10,
)  # fmt: skip
TEXTS = RunTexts(
    question="How many pears?", subtasks=f"Count{SEPARATOR}Count pears", answers=f"two pears{SEPARATOR}{SEPARATOR}pears"
)


def test_all_columns_are_shown_if_there_is_room() -> None:
    """The question is cropped."""
    head, row = run_lines([FoundRun(ROW)], 140, NOW)
    assert head.split() == ["RUN", "WHEN", "RESULT", "PLAN", "WORKERS", "COST", "TOOK", "QUESTION"]
    assert row.startswith(
        "20261122-100000-00000a  2 h ago  finished  2 > 1  alpha, beta  $0.0042+  42 s  How many pears?"
    )
    assert (len(row), row[-1]) == (140, "…")


@pytest.mark.parametrize("width", [24, 40, 59, 60, 80, 100, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """Columns are dropped, and at last each run takes several lines; its id stays complete."""
    shown = run_lines([FoundRun(ROW), FoundRun(StoredRun(run="x", problem="世界" * 60))], width, NOW)
    assert max(map(display_width, shown)) <= width
    assert any("20261122-100000-00000a" in line for line in shown)
    assert width < 60 or "How many pears?" in shown[1]


def test_matches_are_shown_under_their_run() -> None:
    """At most four lines name the text and show the match."""
    shown = run_lines([FoundRun(ROW, TEXTS)], 0, NOW, ["pears"], "[{}]".format)
    assert shown[2:] == [
        "    question: How many [pears]?", "    subtask 2: Count [pears]", "    answer 1: two [pears]",
        "    answer: [pears]",
    ]  # fmt: skip
    many = RunTexts(answers=SEPARATOR.join(["pears"] * 9))
    assert run_lines([FoundRun(ROW, many)], 0, NOW, ["pears"])[-1] == "    and in 5 more"
    assert matching_texts(RunTexts(question="x"), ["pears"]) == []


def test_a_match_is_shown_with_its_context() -> None:
    """The part of a long text around the first match, within the width."""
    text = f"{'a ' * 200}Zeppelin{' b' * 200}"
    shown = matching_part(text, ["zeppelin"], 40, "<{}>".format)
    assert "<Zeppelin>" in shown
    assert (shown[0], shown[-1], display_width(shown)) == ("…", "…", 42)


@pytest.mark.parametrize(
    ("text", "terms", "shown"),
    [
        ("a b A", ["a"], "<a> b <A>"),
        ("abcd", ["bc", "abc"], "<abc>d"),
        ("none", ["x"], ""),
        ("İstanbul", ["STAN"], "İ<stan>bul"),
    ],
)
def test_terms_are_highlighted(text: str, terms: list[str], shown: str) -> None:
    """In any case, the longest first, also after a letter whose lower case has another length."""
    assert matching_part(text, terms, 40, "<{}>".format) == shown

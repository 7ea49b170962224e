"""The benchmark of the tools over a directory: the script finds most answers in this source."""

from __future__ import annotations

import asyncio
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    return importlib.import_module("bench_directories")


def test_most_questions_about_this_source_are_found(bench: Any, tmp_path: Path) -> None:
    """Where the source has changed so that a question has no answer any more, change the question."""
    [*_, (_, directory, questions)] = bench.directories(tmp_path)
    source = "\n".join(path.read_text() for path in directory.rglob("*.py"))
    missing = [question["ask"] for question in questions if question["line"] not in source]
    assert missing == []
    files = bench.attach_directory(directory)
    outcomes = asyncio.run(bench.measure(files, questions, None))
    assert sum(outcome.is_right for outcome in outcomes) >= 8

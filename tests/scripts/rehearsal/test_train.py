"""The command line of training, as far as it goes without torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.rehearsal.courses import COURSES
from scripts.rehearsal.worker_table import Row

WITHOUT = "raise ImportError(\"No module named 'torch'\")\n"


def run(*arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    source = Path(__file__).resolve().parents[3]
    places = os.pathsep.join(str(place) for place in (path, source, source / "src") if place)
    command = [sys.executable, "-m", "scripts.rehearsal.train", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": places, "COLUMNS": "200"}
    )


def test_without_torch_the_command_says_what_to_install(tmp_path: Path) -> None:
    """One error, one hint, no traceback, exit code of a setting that cannot be used."""
    tmp_path.joinpath("torch.py").write_text(WITHOUT)
    done = run("worker", "spelling", "--out", str(tmp_path / "out"), path=tmp_path)
    assert done.returncode == 3
    assert done.stderr.splitlines() == [
        "error: training needs torch, which cannot be imported: No module named 'torch'",
        "  pip install 'conductor-llm[train]'",
    ]


def test_an_unknown_worker_is_refused() -> None:
    """The names that exist are said, before anything heavy is imported."""
    done = run("worker", "poems")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: there is no course for 'poems'", f"  known: {', '.join(COURSES)}",
    ]  # fmt: skip


def test_missing_worker_files_are_named(tmp_path: Path) -> None:
    """With the command that makes the first one."""
    done = run("table", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"error: there is no {tmp_path / 'spelling.gguf'}", "  python -m scripts.rehearsal.train worker spelling",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("row", "passes", "said"),
    [
        (Row("one", 0.96, least=0.95), True, "at least 0.95"),
        (Row("one", 0.94, least=0.95), False, "MISSED"),
        (Row("one", 0.5, 0.3, 0.75), True, "at least 0.3, at most 0.75"),
        (Row("one", 0.8, 0.3, 0.75), False, "MISSED"),
        (Row("one", 0.8), True, "0.800"),
    ],
)
def test_a_row_shows_whether_its_bound_is_kept(row: Row, passes: bool, said: str) -> None:
    """Value, bound and verdict are in one line."""
    assert row.passes is passes
    assert said in str(row)

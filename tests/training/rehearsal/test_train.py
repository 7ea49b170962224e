"""The command line of training, as far as it goes without torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from training.rehearsal.lessons import COURSES

WITHOUT = "raise ImportError(\"No module named 'torch'\")\n"


def run(*arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    source = Path(__file__).resolve().parents[3]
    places = os.pathsep.join(str(place) for place in (path, source, source / "src") if place)
    command = [sys.executable, "-m", "training.rehearsal.train", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": places, "COLUMNS": "200"}
    )


def test_without_torch_the_command_says_what_to_install(tmp_path: Path) -> None:
    tmp_path.joinpath("torch.py").write_text(WITHOUT)
    done = run("worker", "spelling", "--out", str(tmp_path / "out"), path=tmp_path)
    assert done.returncode == 3
    assert done.stderr.splitlines() == [
        "error: training needs torch, which cannot be imported: No module named 'torch'",
        "  pip install 'conductor-llm[train]'",
    ]


def test_an_unknown_worker_is_refused() -> None:
    done = run("worker", "poems")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: there is no course for 'poems'", f"  known: {', '.join(COURSES)}",
    ]  # fmt: skip


def test_missing_worker_files_are_named(tmp_path: Path) -> None:
    done = run("table", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"error: there is no {tmp_path / 'spelling.gguf'}", "  python -m training.rehearsal.train worker spelling",
    ]  # fmt: skip

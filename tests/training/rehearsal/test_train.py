"""The command line of training, as far as it goes without torch."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from conductor_cli.system.installation import extra_command
from training.rehearsal import train
from training.rehearsal.lessons import COURSES


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, list[str]]:
    """The exit code of a command that fails, and what it says."""
    with patch.object(sys, "argv", ["train", *arguments]), pytest.raises(SystemExit) as ended:
        train.main()
    return ended.value.code, capsys.readouterr().err.splitlines()


def test_without_torch_the_command_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "training.rehearsal.supervised", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    code, (message, hint) = refused(capsys, "worker", "spelling", "--out", str(tmp_path))
    assert code == 3
    assert message.startswith("error: training needs torch, which cannot be imported: ")
    assert hint == f"  {extra_command('train')}"


def test_an_unknown_worker_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["error: there is no course for 'poems'", f"  known: {', '.join(COURSES)}"]
    assert refused(capsys, "worker", "poems") == (2, lines)


def test_missing_worker_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hint = "  python -m training.rehearsal.train worker spelling"
    lines = [f"error: there is no {tmp_path / 'spelling.gguf'}", hint]
    assert refused(capsys, "table", str(tmp_path)) == (2, lines)

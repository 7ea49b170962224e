"""The checkpoints and settings of a training on disk, and the lock on its directory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conductor_cli.core.errors import ConfigError
from conductor_cli.train.checkpoints import check_settings, exclusive_directory, last_checkpoint, write_settings

HOLDS = """
import sys
from pathlib import Path
from conductor_cli.train.checkpoints import exclusive_directory
with exclusive_directory(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_an_incomplete_checkpoint_is_ignored(tmp_path: Path) -> None:
    """The state file is written last, so a checkpoint without it, or with half of it, is incomplete."""
    for step, state in ((20, '{"global_step": 20}'), (40, '{"global_st'), (60, None)):
        place = tmp_path / f"checkpoint-{step}"
        place.mkdir()
        if state is not None:
            (place / "trainer_state.json").write_text(state)
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-20"
    assert last_checkpoint(tmp_path / "none") is None


def test_other_settings_are_refused_with_what_differs(tmp_path: Path) -> None:
    """Settings in another order are the same settings; a damaged file counts as other settings."""
    write_settings(tmp_path, {"seed": 1, "rate": 0.1, "steps": 9})
    check_settings(tmp_path, {"steps": 9, "rate": 0.1, "seed": 1})
    with pytest.raises(ConfigError, match="holds another training: it differs in max_plan_tokens, seed") as caught:
        check_settings(tmp_path, {"seed": 2, "rate": 0.1, "steps": 9, "max_plan_tokens": 4})
    assert caught.value.hint == "remove it to start over, or choose another directory: --out"
    (tmp_path / "course.json").write_text(json.dumps({"seed": 1})[:-1])
    with pytest.raises(ConfigError, match="holds another training: it differs in rate, seed, steps"):
        write_settings(tmp_path, {"seed": 1, "rate": 0.1, "steps": 9})


def test_two_trainings_cannot_share_a_directory(tmp_path: Path) -> None:
    """The second one gets an error; when the first has ended, the directory is free again."""
    with (
        exclusive_directory(tmp_path / "new"),
        pytest.raises(ConfigError, match=r"another training is running in .*new") as caught,
    ):
        exclusive_directory(tmp_path / "new").__enter__()
    assert caught.value.hint == "wait until it ends, or choose another directory: --out"
    with exclusive_directory(tmp_path / "new"):
        pass


def test_a_directory_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """A file has the name of the directory."""
    (tmp_path / "out").write_text("")
    with pytest.raises(ConfigError, match=r".*out cannot be written: ") as caught:
        exclusive_directory(tmp_path / "out").__enter__()
    assert caught.value.hint == "choose another directory: --out"


def test_a_killed_training_releases_the_directory(tmp_path: Path) -> None:
    """The system releases the lock with the process."""
    source = Path(__file__).resolve().parents[2] / "src"
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    environ = {**os.environ, "PYTHONPATH": str(source)}
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(ConfigError, match="another training is running"):
            exclusive_directory(tmp_path).__enter__()
        process.send_signal(signal.SIGKILL)
        process.wait()
    with exclusive_directory(tmp_path):
        pass

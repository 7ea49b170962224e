"""Where a training has come to: its checkpoints, and the course that they belong to. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.errors import ConfigError
from conductor_cli.models.weights.disk import write

COURSE: Final = "course.json"


def last_checkpoint(directory: Path) -> Path | None:
    """The newest checkpoint that is whole: its state is what is written last."""
    found = [path.parent for path in directory.glob("checkpoint-*/trainer_state.json") if step_of(path.parent)]
    return max(found, key=step_of, default=None)


def step_of(checkpoint: Path | None) -> int:
    """The step of a checkpoint, 0 where there is none or it is cut off."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        if checkpoint is not None:
            return int(json.loads((checkpoint / "trainer_state.json").read_text())["global_step"])
    return 0


def check_course(directory: Path, described: Mapping[str, Any]) -> None:
    """Raise `ConfigError` where the directory holds another training: what came of both could not be told."""
    path = directory / COURSE
    if path.exists() and path.read_text() != _text(described):
        raise ConfigError(f"{directory} holds another training", hint="remove it to begin anew, or name another --out")


def keep_course(directory: Path, described: Mapping[str, Any]) -> None:
    """Keep what the course is beside its checkpoints. Raises as `check_course`, and `OSError`."""
    check_course(directory, described)
    directory.mkdir(parents=True, exist_ok=True)
    write(directory / COURSE, _text(described))


def _text(described: Mapping[str, Any]) -> str:
    return json.dumps(described, sort_keys=True)

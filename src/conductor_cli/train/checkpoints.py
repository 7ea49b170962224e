"""Where a training has come to: its checkpoints, the course that they belong to, and who is at it. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.errors import ConfigError
from conductor_cli.models.disk import write_atomically

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
    if not path.exists() or path.read_text() == _text(described):
        return
    known, wanted = {}, json.loads(_text(described))
    with suppress(ValueError):
        known = dict(json.loads(path.read_text()))
    others = sorted(name for name in {*known, *wanted} if known.get(name) != wanted.get(name))
    raise ConfigError(
        f"{directory} holds another training: it differs in {', '.join(others)}",
        hint="remove it to begin anew, or name another --out",
    )


def write_course(directory: Path, described: Mapping[str, Any]) -> None:
    """Keep what the course is beside its checkpoints. Raises as `check_course`, and `OSError`."""
    check_course(directory, described)
    directory.mkdir(parents=True, exist_ok=True)
    write_atomically(directory / COURSE, _text(described))


def _text(described: Mapping[str, Any]) -> str:
    return json.dumps(described, sort_keys=True)


@contextmanager
def exclusive_directory(directory: Path) -> Iterator[None]:
    """Keep every other training out of the directory. The system ends that with the process, however that ends.

    Raises `ConfigError` where another one is at it, or where nothing can be written there. Where the system or the
    file system has no locks, nobody is kept out.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = (directory / ".lock").open("a")
    except OSError as error:
        said = f"nothing can be written into {directory}: {error.strerror}"
        raise ConfigError(said, hint="name another --out") from error
    with file:
        try:
            import fcntl  # POSIX only

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            said = f"another training is at work in {directory}"
            raise ConfigError(said, hint="wait until it ends, or name another --out") from error
        except (ImportError, OSError):
            pass
        yield

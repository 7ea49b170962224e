"""Settings of a server.

Kept while their files stay as they are, and read again as soon as one changes.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from conductor_cli.config.watched import WatchedSettings
from conductor_cli.core.errors import ConfigError


def write(path: Path, text: str, *, age: float = 60.0) -> None:
    """A file that was last written some seconds ago."""
    path.write_text(text)
    os.utime(path, (time.time() - age,) * 2)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[WatchedSettings, Path]:
    """Settings of a file of their own, in an empty directory, and that file."""
    monkeypatch.chdir(tmp_path)
    # The time of the last change of a file's state cannot be set.
    monkeypatch.setattr("conductor_cli.config.watched.SETTLED_SECONDS", 0.0)
    file = tmp_path / "own.toml"
    write(file, "[limits]\nparallel = 3\n")
    places = {
        f"CONDUCTOR_LLM_{name}_DIR": str(tmp_path / name)
        for name in ("CONFIG", "STATE", "DATA", "CACHE")
    }
    return WatchedSettings(places, str(file)), file


def test_settings_are_read_once(watched: tuple[WatchedSettings, Path]) -> None:
    settings, _ = watched
    first = settings.load({"conductor.mode": "mini"})
    assert settings.load({"conductor.mode": "mini"}) is first
    assert settings.load({})["conductor.mode"] != "mini"


def test_a_file_that_changes_counts_at_once(watched: tuple[WatchedSettings, Path]) -> None:
    """So does a project file that comes later, which narrows."""
    settings, file = watched
    assert settings.load({}).limits.parallel == 3
    write(file, "[limits]\nparallel = 4\n", age=59.0)
    assert settings.load({}).limits.parallel == 4
    (file.parent / ".conductor.toml").write_text("[limits]\nparallel = 1\n")
    assert settings.load({}).limits.parallel == 1
    file.unlink()
    with pytest.raises(ConfigError):
        settings.load({})


def test_settings_without_a_look_are_those_of_the_last_look(
    watched: tuple[WatchedSettings, Path],
) -> None:
    settings, file = watched
    first = settings.load({}, looks=False)
    assert first.limits.parallel == 3
    write(file, "[limits]\nparallel = 4\n", age=59.0)
    assert settings.load({}, looks=False) is first
    assert settings.load({}).limits.parallel == 4


def test_what_is_just_written_is_read_again(
    watched: tuple[WatchedSettings, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two changes within one tick of the file system's clock both count: nothing new is kept."""
    settings, _ = watched
    monkeypatch.setattr("conductor_cli.config.watched.SETTLED_SECONDS", 60.0)
    first = settings.load({})
    assert settings.load({}) is not first

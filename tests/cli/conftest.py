"""A stage for each test of the command line, and one tiny model for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.stage import OPEN_TERMINALS, Stage
from tests.state.bus import address, keyring
from tests.tiny_gguf import make

__all__ = ["address", "keyring"]


@pytest.fixture
def stage(home: Path) -> Iterator[Stage]:
    """A server, two workers on it, and a home of its own."""
    stage = Stage(home)
    with stage.server:
        stage.configure()
        yield stage


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real GGUF of random weights."""
    return make(tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture(autouse=True)
def _no_terminal_stays_open() -> Iterator[None]:
    """A test that fails half-way leaves its command to nobody, and its streams to no other test."""
    yield
    for program in list(OPEN_TERMINALS):
        program.close(force=True)

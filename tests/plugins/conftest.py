"""A stage for the plugins: each test has its own home, so each has a server of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from conductor_cli.plugins import in_process
from conductor_cli.server.options import ServerOptions
from tests.cli.conftest import stage

__all__ = ["stage"]


@pytest.fixture(autouse=True)
def _own_servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is shared in a process is closed after each test."""
    opened: dict[tuple[bool, str | None], in_process.InProcessServer] = {}

    def shared(*, rehearsal: bool = False, config: str | None = None) -> in_process.InProcessServer:
        options = ServerOptions(flags={}, rehearsal=rehearsal, config=config)
        return opened.setdefault((rehearsal, config), in_process.InProcessServer(options))

    monkeypatch.setattr(in_process, "shared_server", shared)
    yield
    for server in opened.values():
        server.close()


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """Inspect adds handlers to the root logger; the next test has those that were there."""
    root = logging.getLogger()
    handlers = root.handlers[:]
    level = root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)

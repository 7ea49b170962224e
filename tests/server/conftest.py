"""The stage of the command line's tests, for servers."""

from __future__ import annotations

import pytest

from conductor_cli.server.api import apis
from tests.cli.conftest import stage
from tests.server.plain_api import PlainApi

__all__ = ["stage"]


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API of few words stands in the place of Chat Completions."""
    monkeypatch.setitem(apis.APIS, "/v1/chat/completions", PlainApi())

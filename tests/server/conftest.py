"""The stage of the command line's tests, for servers."""

from __future__ import annotations

from tests.cli.conftest import stage

__all__ = ["stage"]

"""The stage and the tiny model of the command line's tests, also for the application layer."""

from __future__ import annotations

from tests.cli.conftest import stage, tiny

__all__ = ["stage", "tiny"]

"""Keys that are pressed while no prompt is there: the terminal keeps them, and the next prompt reads them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from conductor_cli.cli.keypress import CTRL_D, ended_by

NONE = b"\0"
"""No key at all."""


@contextmanager
def keep_typed_text(*, echo: bool = True) -> Iterator[None]:
    """Have the terminal keep Ctrl-D like any key: by itself it makes an end of it that no prompt can read.

    Without `echo` what is typed does not stand on the screen before that prompt shows it.
    """
    with _ended_by(NONE, echo=echo):
        yield


@contextmanager
def end_on_ctrl_d() -> Iterator[None]:
    """Have Ctrl-D end what is typed, as it does elsewhere: for a question that is no prompt."""
    with _ended_by(CTRL_D):
        yield


@contextmanager
def _ended_by(key: bytes, *, echo: bool = True) -> Iterator[None]:
    if sys.platform == "win32":
        yield
        return
    with ended_by(key, sys.stdin.fileno(), echo=echo):
        yield

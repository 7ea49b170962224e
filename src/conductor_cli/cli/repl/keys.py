"""Keys that are pressed while no prompt is there: the terminal keeps them, and the next prompt reads them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def keeping(*, echo: bool = True) -> Iterator[None]:
    """Have the terminal keep Ctrl-D like any key: by itself it makes an end of it that no prompt can read.

    Without `echo` what is typed does not stand on the screen before that prompt shows it.
    """
    if sys.platform == "win32":
        yield
        return
    import termios

    before = termios.tcgetattr(sys.stdin)
    wanted = [*before[:6], [*before[6]]]
    if not echo:
        wanted[3] &= ~termios.ECHO
    wanted[6][termios.VEOF] = b"\0"
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, wanted)
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal has gone
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)

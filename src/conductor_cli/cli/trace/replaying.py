"""`conductor trace replay`: a stored run on the screen again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

from conductor_cli.cli.output import leave_stdout, print_notice
from conductor_cli.core.errors import UsageError

if TYPE_CHECKING:
    from conductor_cli.cli.options import GlobalOptions


def play(options: GlobalOptions, name: str, *, speed: float, by_key: bool, output: str, progress: str | None) -> int:
    """Show the run that `name` means as the options ask. Returns the exit code; raises `UsageError`."""
    from conductor_cli.cli.trace.sharing import look_of
    from conductor_cli.config import app_paths
    from conductor_cli.store.trace_store import TraceStore
    from conductor_cli.views.replay import open_replay_view, replay

    look, store = look_of(options, progress), TraceStore(app_paths(os.environ).traces)
    with _keys() if by_key else nullcontext() as key:
        events, view = store.events(store.find(name)), open_replay_view(look, output, quiet=options.quiet)
        try:
            return replay(events, view, speed, key=key)
        except BrokenPipeError:
            leave_stdout()
            return 0
        except OSError:
            leave_stdout()
            raise


@contextmanager
def _keys() -> Iterator[Callable[[], str]]:
    """What waits for a key on the terminal and returns it, empty where none can come. Raises `UsageError`."""
    from conductor_cli.cli.keypress import Keyboard, NoAnswer, can_ask

    if not can_ask():
        raise UsageError("--step waits for keys, and there is no terminal", hint="leave it out, or use --speed")
    print_notice("space or Enter: the next event; q: the rest at once")
    keyboard = Keyboard()

    def key() -> str:
        with suppress(NoAnswer):
            return keyboard.key()
        return ""

    try:
        yield key
    finally:
        keyboard.close()

"""How far the files of a model are: downloads and checks on the progress display."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from conductor_cli.cli.progress import show_progress
from conductor_cli.models.weights.progress import Progress

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.models.weights.digest import Reading

LABELS: Final = {
    "waiting": "waiting for another process that downloads", "asking": "asking about", "fetching": "downloading",
    "checking": "checking", "storing": "storing",
}  # fmt: skip
"""What is done with a file at each stage."""

Watch = Callable[[Progress], None]


@contextmanager
def watching(settings: Settings, *, quiet: bool) -> Iterator[Watch]:
    """Show how far files are until the block ends. Notes are shown unless `quiet`."""
    with _exit_on_sigterm(), show_progress(settings, quiet=quiet) as display:

        def show(progress: Progress) -> None:
            if progress.note:
                display.note(progress.note)
            counted = progress.stage in {"fetching", "checking"}
            label = f"{LABELS[progress.stage]} {progress.file}"
            display.update(label, progress.done, progress.total if counted else 0)

        yield show


def reading(watch: Watch) -> Reading:
    """The same display for what checks files on this disk."""

    def tell(path: Path, done: int, total: int) -> None:
        watch(Progress(stage="checking", file=path.name, done=done, total=total))

    return tell


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end the block as an error does, so that the cursor is shown again and locks are released."""

    def end(*_: object) -> None:
        raise SystemExit(143)

    before = signal.getsignal(signal.SIGTERM)
    with suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        with suppress(ValueError):
            signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)

"""How far a file is: a bar on a terminal that can redraw, plain lines every few seconds where progress is asked for."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.cli.output import print_notice
from conductor_cli.core.clean import one_line
from conductor_cli.core.formatting import format_duration, format_size

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.models.weights.digest import Reading
    from conductor_cli.models.weights.progress import Progress

PERIOD: Final = 5.0
"""Seconds between two plain lines on one file."""

WORDS: Final = {
    "waiting": "waiting for another process that gets", "asking": "asking about", "fetching": "getting",
    "checking": "checking", "storing": "storing",
}  # fmt: skip
"""What is being done with a file, by the stage."""

Watch = Callable[["Progress"], None]


@contextmanager
def watching(settings: Settings, *, quiet: bool) -> Iterator[Watch]:
    """Show how far files are, on stderr, until the block ends. Notes are shown in any case but `quiet`."""
    from conductor_cli.views import Surroundings, choose_progress

    around = Surroundings(
        stdout=sys.stdout, stderr=sys.stderr, environ=os.environ, color=settings["output.color"], quiet=quiet
    )
    terminal = sys.stderr.isatty()
    asked = settings["output.progress"]
    # In a file or a pipe a run is silent; minutes of silence while gigabytes come in are another matter.
    name = "plain" if asked == "auto" and not terminal and not quiet else choose_progress("answer", asked, around)
    with _ended_in_order():
        if name == "tree" and terminal:
            with _bars(around) as watch:
                yield watch
        else:
            yield _Lines(name).show


def reading(watch: Watch) -> Reading:
    """A teller of how far a file is read, for what checks files on this disk."""
    from conductor_cli.models.weights.progress import Progress

    def tell(path: Path, done: int, total: int) -> None:
        watch(Progress(stage="checking", file=path.name, done=done, total=total, note=""))

    return tell


class Rate:
    """Bytes a second since something began, without those that were there before."""

    def __init__(self, done: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first, self._began = done, clock()

    def of(self, done: int) -> float:
        took = self._clock() - self._began
        return (done - self._first) / took if took > 0 else 0.0


class _Lines:
    """A line when something begins, every few seconds after, and for each note."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._key = ("", "")
        self._last = 0.0
        self._rate = Rate(0)

    def show(self, progress: Progress) -> None:
        if self._name == "none":
            return
        if progress.note:
            print_notice(one_line(progress.note))
        now, key = time.monotonic(), (progress.stage, progress.file)
        if key != self._key:
            self._key, self._last, self._rate = key, now, Rate(progress.done)
            if not progress.total or progress.done < progress.total:  # else it is over
                print_notice(self._line(progress, 0.0))
        elif now - self._last >= PERIOD:
            self._last = now
            print_notice(self._line(progress, self._rate.of(progress.done)))

    def _line(self, progress: Progress, rate: float) -> str:
        parts = [f"{WORDS.get(progress.stage, progress.stage)} {one_line(progress.file)}"]
        if progress.total and progress.stage in {"fetching", "checking"}:
            parts.append(f"{format_size(progress.done)} of {format_size(progress.total)}")
        if rate > 0:
            parts += [
                f"{format_size(round(rate))}/s",
                f"{format_duration((progress.total - progress.done) / rate, tenths=False)} left",
            ]
        return ", ".join(parts)


@contextmanager
def _bars(around: Any) -> Iterator[Watch]:  # noqa: ANN401 - views.Surroundings; views are loaded late
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    from conductor_cli.views import colored
    from conductor_cli.views.port import Stderr
    from conductor_cli.views.tree import open_console

    console = open_console(Stderr(sys.stderr), color=colored(around), environ=around.environ)
    what = TextColumn("{task.description}", markup=False)
    more = (BarColumn(),) if console.width >= 100 else ()
    rate = (TransferSpeedColumn(),) if console.width >= 60 else ()
    columns = (what, *more, DownloadColumn(), *rate, TimeRemainingColumn(compact=True))
    tasks: dict[tuple[str, str], Any] = {}
    with Bars(*columns, console=console, transient=True) as bars:

        def show(progress: Progress) -> None:
            if progress.note:
                bars.console.print(one_line(progress.note), soft_wrap=True)
            key, total = (progress.stage, progress.file), progress.total or None
            if key not in tasks:
                for old in tasks.values():
                    bars.remove_task(old)
                tasks.clear()
                name = f"{WORDS.get(progress.stage, progress.stage)} {_cropped(progress.file, console.width)}"
                tasks[key] = bars.add_task(name, total=total, completed=progress.done)
            bars.update(tasks[key], completed=progress.done, total=total)

        yield show


def _cropped(name: str, width: int) -> str:
    """The end of a file's name, which tells files apart, as long as the other columns leave room."""
    name, most = one_line(name), max(8, width - 50)
    return name if len(name) <= most else f"…{name[1 - most :]}"


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Let SIGTERM end the block like an error does: the cursor is shown again, and a transfer's process is ended."""

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

"""The snapshots of the canned runs show the effect of a change.

`python -m tests.views.test_snapshots` writes them.
"""

from __future__ import annotations

import itertools
from itertools import product
from pathlib import Path

import pytest

from conductor_cli.core import events as ev
from conductor_cli.core.trace import fold
from conductor_cli.views.output_formats import OutputContext, open_views
from tests.traces import make
from tests.traces.make import FOLDER, RUNS, Run
from tests.views.terminals import Clock, Drawn, Sink, emulated, play

SIZES = {"80": (80, 24, "utf-8"), "40": (40, 10, "ascii")}
KINDS = (*SIZES, "shared", "plain")


def path_of(run: Run, kind: str) -> Path:
    return FOLDER / f"{run.__name__}.{kind}.txt"


def picture(run: Run, kind: str) -> str:
    """The text of one snapshot."""
    if kind in SIZES:
        return story(run(), *SIZES[kind])
    return shared(run()) if kind == "shared" else plain(run())


def story(events: list[ev.Event], width: int, height: int, encoding: str) -> str:
    """Return the live part after each event, and the terminal at the end.

    Of several pieces of text only the last.
    """
    drawn = Drawn(width=width, height=height, encoding=encoding)
    parts = []
    for number, event in enumerate(events):
        following = events[number + 1] if number + 1 < len(events) else None
        is_drawn = following is not None and not (is_piece(event) and is_piece(following))
        drawn.show(event, draw=is_drawn)
        if is_drawn:
            parts += [f"--- event {number}, {event.at:.1f} s: {kind_of(event)}", *drawn.live()]
    drawn.tree.close()
    return text([*parts, "--- at the end", *drawn.screen()])


def shared(events: list[ev.Event]) -> str:
    """A terminal of 80 by 24 at the end, with both standard output and standard error on it."""
    sink = Sink(terminal=True)
    clock = Clock()
    around = OutputContext(
        stdout=sink, stderr=sink, environ={}, color="never", clock=clock, width=80, height=24
    )
    view = open_views("answer", "tree", around)
    for event, trace in fold(events):
        clock.now = event.at
        view.show(event, trace)
    view.close()
    return text(emulated(sink.getvalue(), 80, 24))


def plain(events: list[ev.Event]) -> str:
    """The lines of `--progress plain`."""
    stderr = Sink()
    view = open_views("answer", "plain", OutputContext(stdout=Sink(), stderr=stderr, environ={}))
    play(view, events)
    return stderr.getvalue()


def text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def kind_of(event: ev.Event) -> str:
    """The kind of an event, with the nested runs that it comes from."""
    return f"inner {kind_of(event.event)}" if isinstance(event, ev.NestedEvent) else event.kind


def is_piece(event: ev.Event) -> bool:
    return kind_of(event).endswith("delta")


@pytest.mark.parametrize("run", RUNS)
def test_a_canned_file_equals_the_events_of_its_script(run: Run) -> None:
    lines = (FOLDER / f"{run.__name__}.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    assert [ev.from_line(line) for line in lines] == run()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("run", RUNS)
def test_a_run_looks_like_its_snapshot(run: Run, kind: str) -> None:
    assert picture(run, kind) == path_of(run, kind).read_text(encoding="utf-8")


def test_every_snapshot_belongs_to_a_canned_run() -> None:
    assert set(FOLDER.glob("*.txt")) == {path_of(run, kind) for run, kind in product(RUNS, KINDS)}


if __name__ == "__main__":
    make.write()
    for run, kind in itertools.product(RUNS, KINDS):
        path_of(run, kind).write_text(picture(run, kind), encoding="utf-8", newline="\n")

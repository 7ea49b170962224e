"""The snapshots of the canned runs, which show the effect of a change. `scripts/snap.py` writes them."""

from __future__ import annotations

from pathlib import Path

from conductor_cli.core import events as ev
from conductor_cli.views import OutputContext, open_views
from tests.traces.make import FOLDER, RUNS
from tests.views.terminals import Clock, Drawn, Sink, emulated

SIZES = {"120": (120, 40, "utf-8"), "80": (80, 24, "utf-8"), "40": (40, 10, "ascii")}


def pictures() -> dict[Path, str]:
    """The text of every snapshot by its file."""
    found: dict[Path, str] = {}
    for run in RUNS:
        events = run()
        for name, (width, height, encoding) in SIZES.items():
            found[FOLDER / f"{run.__name__}.{name}.txt"] = story(events, width, height, encoding)
        found[FOLDER / f"{run.__name__}.shared.txt"] = shared(events)
        found[FOLDER / f"{run.__name__}.plain.txt"] = plain(events)
    return found


def story(events: list[ev.Event], width: int, height: int, encoding: str) -> str:
    """The live part after each event, the last of several pieces of text only, and the terminal at the end."""
    drawn = Drawn(width=width, height=height, encoding=encoding)
    parts = []
    for number, event in enumerate(events):
        drawn.show(event)
        following = events[number + 1] if number + 1 < len(events) else None
        if following is not None and not (is_piece(event) and is_piece(following)):
            parts += [f"--- event {number}, {event.at:.1f} s: {kind(event)}", *drawn.live()]
    drawn.tree.close()
    return text([*parts, "--- at the end", *drawn.screen()])


def shared(events: list[ev.Event]) -> str:
    """A terminal of 80 by 24 at the end, with both standard output and standard error on it."""
    sink, clock = Sink(terminal=True), Clock()
    around = OutputContext(stdout=sink, stderr=sink, environ={}, color="never", clock=clock, width=80, height=24)
    view = open_views("answer", "tree", around)
    for event in events:
        clock.now = event.at
        view.show(event)
    view.close()
    return text(emulated(sink.getvalue(), 80, 24))


def plain(events: list[ev.Event]) -> str:
    """The lines of `--progress plain`."""
    stderr = Sink()
    view = open_views("answer", "plain", OutputContext(stdout=Sink(), stderr=stderr, environ={}))
    for event in events:
        view.show(event)
    view.close()
    return stderr.getvalue()


def text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def kind(event: ev.Event) -> str:
    """The kind of an event, with the nested runs that it comes from."""
    return f"inner {kind(event.event)}" if isinstance(event, ev.NestedEvent) else event.kind


def is_piece(event: ev.Event) -> bool:
    return kind(event).endswith("delta")


def write() -> list[str]:
    """Rewrite the files that differ, and return their names."""
    changed = []
    for path, picture in pictures().items():
        if not path.exists() or path.read_text(encoding="utf-8") != picture:
            path.write_text(picture, encoding="utf-8", newline="\n")
            changed.append(path.name)
    return changed

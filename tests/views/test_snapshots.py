"""The canned runs and their pictures. After a wanted change: `python -m scripts.snap`, and read the difference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from conductor_cli.core import events as ev
from conductor_cli.core.trace import Trace, apply_event
from tests.traces.make import FOLDER, RUNS
from tests.views.snapshots import pictures

Run = Callable[[], list[ev.Event]]

PICTURES = pictures()


@pytest.mark.parametrize("run", RUNS)
def test_the_file_of_a_run_is_what_its_script_writes(run: Run) -> None:
    """A canned file is its script's events, a line each, and reads back as them."""
    lines = (FOLDER / f"{run.__name__}.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    assert [ev.from_line(line) for line in lines] == run()


@pytest.mark.parametrize("run", RUNS)
def test_a_run_keeps_the_rules_of_the_stream(run: Run) -> None:
    """A canned run starts and ends as every run does, and a finished step's text is what its last attempt wrote."""
    events = run()
    trace = Trace()
    for event in events:
        if isinstance(event, ev.StepFinished):
            written = [record.text for record in trace.steps if record.number == event.step]
            assert written == [event.text]
        trace = apply_event(trace, event)
    assert isinstance(events[0], ev.RunStarted)
    assert [event for event in events if isinstance(event, (ev.RunFinished, ev.RunFailed))] == [events[-1]]
    assert [event.at for event in events] == sorted(event.at for event in events)


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_a_run_looks_as_it_did(path: Path) -> None:
    """What is drawn is what the file beside the canned run shows."""
    assert PICTURES[path] == path.read_text(encoding="utf-8")


def test_no_picture_is_left_over() -> None:
    """Every picture beside the canned runs belongs to one of them."""
    assert set(FOLDER.glob("*.txt")) == set(PICTURES)

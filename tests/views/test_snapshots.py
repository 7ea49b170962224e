"""The canned runs and their snapshots. After an intended change run `python -m tests.views.snapshots`."""

from __future__ import annotations

import pytest

from conductor_cli.core import events as ev
from tests.traces.make import FOLDER, RUNS, Run
from tests.views.snapshots import KINDS, path_of, picture


@pytest.mark.parametrize("run", RUNS)
def test_a_canned_file_equals_the_events_of_its_script(run: Run) -> None:
    lines = (FOLDER / f"{run.__name__}.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    assert [ev.from_line(line) for line in lines] == run()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("run", RUNS)
def test_a_run_looks_like_its_snapshot(run: Run, kind: str) -> None:
    assert picture(run, kind) == path_of(run, kind).read_text(encoding="utf-8")


def test_every_snapshot_belongs_to_a_canned_run() -> None:
    assert set(FOLDER.glob("*.txt")) == {path_of(run, kind) for run in RUNS for kind in KINDS}

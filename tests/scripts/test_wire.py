"""A small part of the campaign on the wire."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.faults import wire
from scripts.faults.tools import run as run_tools
from scripts.faults.tries import Report, Tries
from scripts.faults.wire_faults import FAULTS

if TYPE_CHECKING:
    import pytest

KNOWN = {fault.name: fault for fault in FAULTS}
QUICK = (
    "reset-before-head", "reset-inside-event", "early-end", "no-answer", "trickle", "429-with-time", "500-echo",
    "error-event", "not-http", "wrong-types", "length-too-short", "two-answers", "late-second-answer", "gzip-truncated",
    "byte-order-mark", "lost-event",
)  # fmt: skip
"""Faults that need no timeout to be noticed."""


def tried(cases: list[wire.Case], directory: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    """What a campaign of these cases reports."""
    monkeypatch.setattr(wire, "cases", lambda: cases)
    # Longer than any machine is busy: none of these faults needs them.
    monkeypatch.setattr(wire, "TIMEOUTS", {"first_token": 30.0, "idle": 30.0, "total": 40.0})
    tries = Tries("wire", directory, seed=1, minutes=1)
    wire.run(tries)
    return tries.report()


def test_a_question_under_a_fault_ends_well_as_does_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run ends with what is right or says why not, and the next one on the same connections is answered."""
    apis, workers, shapes = ("chat", "responses", "anthropic"), wire.WORKERS, tuple(wire.SHAPES)
    cases = [
        wire.Case(apis[at % 3], KNOWN[name], shapes[at // 3 % 3], workers[at // 4 % 4], "once")
        for at, name in enumerate(QUICK)
    ]
    report = tried(cases, tmp_path, monkeypatch)
    assert (report.tried, report.first) == (2 * len(QUICK), "")


def test_the_campaign_sees_a_wrong_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece that is lost where no API could notice it is found, if it is not what the campaign allows."""
    lost = replace(KNOWN["lost-event"], promise="right")
    report = tried([wire.Case("chat", lost, "chain", "three", "once")], tmp_path, monkeypatch)
    assert report.failed == 1
    assert "the text of step 3" in report.first


def test_tools_over_http_survive_a_reset(tmp_path: Path) -> None:
    """A call whose connection breaks off is an error that a worker can read, and the next run gets its text."""
    tries = Tries("tools", tmp_path, seed=1, minutes=1, only="reset-before-head/tools/call/once")
    run_tools(tries)
    report = tries.report()
    assert (report.tried, report.failed) == (2, 0), report.first

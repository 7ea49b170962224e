"""Where systems are from, and what a report says about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conductor_cli.evals.outcomes import EvaluationSpec
from conductor_cli.evals.report import SOURCES, report_json, report_notes, source_notes, source_of
from conductor_cli.evals.summary import summarize
from conductor_cli.evals.systems import NAMES
from tests.evals.sample_outcomes import outcomes

SYSTEMS = ("alone:ann", "reflect:ann", "reflect:bob", "moa")
SPEC = EvaluationSpec(source="s", hash="0", cases=2, systems=SYSTEMS, workers=("ann", "bob"), identity={})


def test_each_system_of_a_paper_has_one_line_under_the_table() -> None:
    """It names the paper and what was simplified; a system that runs with several workers has one line."""
    lines = source_notes(SYSTEMS)
    assert [line.partition(":")[0] for line in lines] == ["reflect", "moa"]
    assert all("arXiv" in line and "Simplified: " in line for line in lines)
    assert report_notes(SPEC, summarize(outcomes("moa", "+-"), SYSTEMS), ())[-2:] == lines
    assert source_notes(("alone:ann", "best-worker", "conductor")) == []


def test_the_json_of_a_system_has_its_source() -> None:
    """Null for one that is from no paper."""
    summary = summarize([*outcomes("moa", "+-"), *outcomes("alone:ann", "+-")], ("moa", "alone:ann"))
    found = report_json("1", replace(SPEC, systems=("moa", "alone:ann")), summary)["systems"]
    assert set(found[0]["source"]) == {"paper", "simplified"}
    assert found[1]["source"] is None


@pytest.mark.parametrize("name", SOURCES)
def test_sources_are_of_known_systems(name: str) -> None:
    """A name that no system has would never be printed."""
    assert name in NAMES
    assert source_of(f"{name}:ann") == SOURCES[name]

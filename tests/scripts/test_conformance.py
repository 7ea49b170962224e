"""`make conformance`: what is missing is skipped with a message, and schemas are judged or refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.conformance import __main__ as conformance


def test_a_suite_that_is_not_here_is_skipped_with_where_it_is_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conformance, "SUITES", tmp_path)
    with pytest.raises(conformance.Missing, match=r"needs https://github\.com/openresponses"):
        conformance.checkout("openresponses")
    path = tmp_path / "openresponses/src/lib/compliance-tests.ts"
    path.parent.mkdir(parents=True)
    path.write_text("another version")
    with pytest.raises(conformance.Missing, match="another version: it needs"):
        conformance.checkout("openresponses")


def test_schemas_are_judged_or_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong judgement is a fault; a schema that refers to another address is none."""
    monkeypatch.setattr(conformance, "checkout", lambda _: tmp_path)
    directory = tmp_path / "tests/draft7"
    directory.mkdir(parents=True)
    right = {"description": "digits", "data": "12345", "valid": True}
    wrong = {"description": "letters are allowed", "data": "abc", "valid": True}
    cases = [
        {"schema": {"pattern": "^[0-9]+$"}, "tests": [right, wrong]},
        {"schema": {"$ref": "http://127.0.0.1:9/schema"}, "tests": [right]},
    ]
    (directory / "pattern.json").write_text(json.dumps(cases))
    result = conformance.json_schema()
    assert (result.passed, result.total) == (2, 3)
    assert result.faults == ("draft7 pattern: letters are allowed",)
    assert result.note.startswith("1 of schemas that are refused by name")

"""SECURITY.md: every threat names tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
_ROW: Final = re.compile(
    r"^\| (?!---|\w+ tr(?:y|ies) to \||what others send \||limit \|)(.*?) \| (.*?) \| (.*?) \|$",
    re.MULTILINE,
)
_TEST: Final = re.compile(r"`([^`]+)::([^`]+)`")
SECTIONS: Final = {
    heading: _ROW.findall(text)
    for heading, text in re.findall(
        r"^## (.*?)\n(.*?)(?=^## |\Z)",
        (ROOT / "SECURITY.md").read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
}
THREATS: Final = list(chain.from_iterable(SECTIONS.values()))


@cache
def names_in(path: Path) -> frozenset[str]:
    """The functions at the top of a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


@pytest.mark.parametrize(("threat", "answer", "tests"), THREATS, ids=[row[0] for row in THREATS])
def test_every_threat_names_tests_that_exist(threat: str, answer: str, tests: str) -> None:
    """At least one, by its path and name."""
    named = _TEST.findall(tests)
    assert answer
    assert named
    assert _TEST.sub("", tests).strip(", ") == ""
    assert [f"{path}::{name}" for path, name in named if name not in names_in(ROOT / path)] == []


def test_every_attacker_has_threats() -> None:
    """Each section about one has a table."""
    about = (
        "worker",
        "project directory",
        "plan, trace or model file",
        "tool",
        "client",
        "user on the machine",
        "Limits",
    )
    sections = [heading for heading, rows in SECTIONS.items() if rows]
    assert [who for who in about if not any(who in heading for heading in sections)] == []
    assert len(THREATS) > 30

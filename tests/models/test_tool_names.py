"""Names of tools that no API takes as they are."""

from __future__ import annotations

import re

import pytest

from conductor_cli.models.tool_schemas import api_name, original_names

ALLOWED = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


@pytest.mark.parametrize("name", ["read_file", "read-file", "_x", "R2"])
def test_a_name_that_every_api_takes_is_sent_as_it_is(name: str) -> None:
    """Nobody meets a changed name without a need."""
    assert api_name(name) == name
    assert original_names([name]) == {}


@pytest.mark.parametrize(
    "name",
    ["", "files/read", "2nd", "-x", "Search the web", "a" * 65, "\x1b[31mred\x00", "größe", "read.file", "\ud800"],
)
def test_any_other_name_is_changed_to_one_that_every_api_takes(name: str) -> None:
    """It leads back to the tool, and is the same in each turn."""
    assert ALLOWED.fullmatch(api_name(name))
    assert api_name(name) == api_name(name)
    assert original_names([name, "other"]) == {api_name(name): name}


def test_names_that_differ_stay_different() -> None:
    """Two names that differ in a forbidden character or beyond the 64th are not one tool."""
    names = ["a/b", "a.b", "a b", "a_b", "x" * 64 + "1", "x" * 64 + "2"]
    assert len({api_name(name) for name in names}) == len(names)

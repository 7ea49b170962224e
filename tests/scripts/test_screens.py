"""The recording of the README: it is small, shows what the command shows, and its pictures are of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

pytest.importorskip("pexpect")
pytest.importorskip("pyte")

from scripts import cast

ROOT = Path(__file__).resolve().parents[2]
RECORDED = (ROOT / cast.CAST).read_text("utf-8")
MAX_BYTES = 300_000  # Of the recording and its pictures together


def words_of(text: str) -> str:
    """A screen without what differs from run to run: times, and the name of a trace."""
    return re.sub(r"trace \S+|\d+(\.\d+)? (ms|s|min)\b", "", text)


def test_the_recording_is_an_asciicast_whose_pictures_were_drawn_from_it() -> None:
    header, *events = map(json.loads, RECORDED.splitlines())
    assert (header["version"], header["width"], header["height"]) == (2, cast.COLUMNS, cast.ROWS)
    times = [at for at, _, _ in events]
    assert times == sorted(times)
    assert {kind for _, kind, _ in events} == {"o"}
    size = len(RECORDED.encode())
    for theme in cast.THEMES:
        picture = (ROOT / cast.FOLDER / f"demo-{theme}.svg").read_text("utf-8")
        assert picture == cast.svg_of(RECORDED, theme), "make screens draws it again"
        ET.fromstring(picture)
        assert not re.search(r"(?:href|src|url\()", picture)
        size += len(picture.encode())
    assert size < MAX_BYTES


def test_the_command_still_shows_what_was_recorded() -> None:
    """Where this fails, what the demo prints has changed: run `make screens`, look, and commit."""
    recorded = words_of(cast.text_of(cast.frames_of(RECORDED)[-1]))
    now = words_of(cast.text_of(cast.frames_of(cast.cast_of(cast.record()))[-1]))
    assert now == recorded


def test_the_readme_shows_the_recording_and_says_how_much_slower_it_is() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert all(f"docs/screens/demo-{theme}.svg" in readme for theme in cast.THEMES)
    assert "eight times slower" in readme
    assert cast.TIMES_SLOWER == 8
    assert f"asciinema play {cast.CAST}" in readme

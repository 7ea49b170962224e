"""The picture of a training: it is SVG, has what the curve has, and stands on a background of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from scripts.plot_curve import AROUND, WIDTH, main, plot, smoothed

SVG = "{http://www.w3.org/2000/svg}"


def line(step: int, **more: Any) -> Mapping[str, Any]:
    return {
        "step": step, "reward": 0.5 + step / 100, "valid": 1.0, "right_given_valid": step / 50, "routing_entropy": 1.5,
        "routes": {"facts": 1}, "fitting": {"facts": 0.5, "letters": 0.25}, **more,
    }  # fmt: skip


def drawn(*lines: Mapping[str, Any]) -> ET.Element:
    return ET.fromstring(plot(lines))


def dots(picture: ET.Element) -> list[ET.Element]:
    return picture.findall(f"{SVG}circle")


def test_each_figure_is_drawn_once_pale_and_once_strong() -> None:
    """Reward, valid, right, entropy and two skills; the third skill has no figure, and there were no looks."""
    picture = drawn(*(line(step) for step in range(1, 31)))
    kinds = [each.get("class") for each in picture.findall(f"{SVG}polyline")]
    assert (kinds.count("each"), kinds.count("mean")) == (6, 6)
    assert dots(picture) == []
    for each in picture.findall(f"{SVG}polyline"):
        pairs = [pair.split(",") for pair in (each.get("points") or "").split()]
        assert len(pairs) == 30
        assert all(0 < float(x) < WIDTH for x, _ in pairs)


def test_looks_are_dots() -> None:
    """One for the share of right answers, one for each number of hops."""
    look = {"right": 0.5, "by_hops": {"1": 1.0, "2": 0.5, "3": 0.0}}
    assert len(dots(drawn(line(1), line(2, held=look), line(3), line(4, held=look)))) == 8


def test_where_the_generalist_joins_is_marked() -> None:
    """In every panel, and in the words below; not where it was there from the first step."""
    later = drawn(line(1), line(2, routes={"any": 1}), line(3))
    assert [each.get("class") for each in later.iter()].count("phase") == 4
    assert "(step 2) the generalist joins" in "".join(later.itertext())
    always = drawn(line(1, routes={"any": 1}), line(2, routes={"any": 1}))
    assert "generalist" not in "".join(always.itertext())


def test_it_has_a_background_and_a_name() -> None:
    """So it can be read on a dark page, and by who cannot see it."""
    picture = drawn(line(1))
    first = picture.find(f"{SVG}rect")
    assert first is not None
    assert (first.get("fill"), first.get("width")) == ("#ffffff", str(WIDTH))
    assert picture.get("aria-label") == "Training the rehearsal's conductor by reward: 1 steps"


def test_a_mean_is_that_of_the_steps_around() -> None:
    """As many as there are at both ends."""
    points = [(float(x), float(x % 2)) for x in range(20)]
    found = smoothed(points)
    assert [x for x, _ in found] == [x for x, _ in points]
    assert found[0][1] == pytest.approx(3 / (AROUND + 1))
    assert {round(y, 3) for _, y in found[AROUND:-AROUND]} == {round(5 / 11, 3), round(6 / 11, 3)}


def test_a_curve_that_was_cut_off_is_drawn_as_far_as_it_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is no step is left out, and one step is enough."""
    curve, target = tmp_path / "curve.jsonl", tmp_path / "curve.svg"
    curve.write_text(f'{json.dumps(line(1))}\n[1]\n{{"step": "x"}}\n{{"step": 2, "rew')
    assert main(curve, target) == 0
    assert ET.parse(target).getroot().tag == f"{SVG}svg"
    assert "1 steps of" in capsys.readouterr().out


def test_nothing_to_draw_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is not there, or has no steps."""
    assert main(tmp_path / "none", tmp_path / "curve.svg") == 1
    assert "has no steps" in capsys.readouterr().err
    assert not (tmp_path / "curve.svg").exists()

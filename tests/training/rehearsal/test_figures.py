"""Figures with intervals, the table of several trained conductors, and its bounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from conductor_cli.core.errors import UsageError
from training.rehearsal.figures import BEGIN, END, TABLE, Figure, Measured, markdown, read, replaced

GOOD, POOR = [1.0] * 45 + [0.0] * 5, [1.0] * 30 + [0.0] * 20
MAIN = Figure(what="right", of=lambda m: m["a"], least=0.7, each=0.65)
GAIN = Figure(what="gain", of=lambda m: m["a"] - m["b"], most=0.5)


def measured(a: list[float], b: list[float]) -> Measured:
    return Measured.of_one([{"a": a, "b": b}, {"a": a, "b": b}], count=50)


def test_a_figure_is_a_mean_with_an_interval() -> None:
    """The interval contains the mean, and is about as wide as two standard errors to each side."""
    (found,) = measured(GOOD, POOR).estimates([MAIN])
    assert found.value == pytest.approx(0.9)
    assert 0.80 < found.low < 0.88
    assert 0.92 < found.high < 1.0
    assert found.passes


def test_a_difference_is_taken_question_by_question() -> None:
    """Two measures of the same questions are drawn together: the same values differ by nothing in every draw."""
    (same,) = measured(GOOD, GOOD).estimates([GAIN])
    assert (same.value, same.low, same.high) == (0.0, 0.0, 0.0)
    (apart,) = measured(GOOD, POOR).estimates([GAIN])
    assert apart.value == pytest.approx(0.3)
    assert 0.1 < apart.low < 0.3 < apart.high < 0.5


def test_every_training_seed_has_to_reach_its_bound(tmp_path: Path) -> None:
    paths = [tmp_path / "1.json", tmp_path / "2.json"]
    for path, values in zip(paths, (GOOD, POOR), strict=True):
        path.write_text(measured(values, POOR).to_json())
    found = read(paths).estimates([MAIN, GAIN])
    assert [estimate.value for estimate in found] == pytest.approx([0.75, 0.15])
    assert found[0].seeds == pytest.approx((0.9, 0.6))
    assert [estimate.passes for estimate in found] == [False, True]
    assert found[0].row().passes
    table = markdown(found)
    assert "| right | 0.750 |" in table
    assert "| 0.900, 0.600 | at least 0.70, every seed at least 0.65 | missed |" in table
    assert "| at most 0.50 | met |" in table


def test_evaluations_that_differ_are_not_merged(tmp_path: Path) -> None:
    """In the number of questions or of seeds; and a file that is none is named as one."""
    one, other, broken = (tmp_path / name for name in ("1.json", "2.json", "3.json"))
    one.write_text(measured(GOOD, POOR).to_json())
    other.write_text(Measured.of_one([{"a": GOOD, "b": POOR}], count=50).to_json())
    broken.write_text("[]")
    with pytest.raises(UsageError, match="different numbers"):
        read([one, other])
    with pytest.raises(UsageError, match="no evaluation can be read"):
        read([broken])


def test_the_table_takes_its_place_in_a_page() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert replaced(page, "| new |") == f"before\n{BEGIN}\n\n| new |\n\n{END}\nafter\n"
    with pytest.raises(UsageError, match="has no"):
        replaced("before", "| new |")


def test_every_bound_that_was_agreed_is_in_the_table() -> None:
    least = sorted(figure.least for figure in TABLE if figure.least is not None)
    most = sorted(round(figure.most, 2) for figure in TABLE if figure.most is not None)
    assert least == [0.05, 0.15, 0.15, 0.15, 0.75, 0.80, 0.80, 0.90, 0.93]
    assert most == [0.33, 0.33, 0.60, 0.70]
    assert [figure.each for figure in TABLE if figure.each is not None] == [0.76]
    assert len({figure.what for figure in TABLE}) == len(TABLE)

"""Names in a drawing do not cover each other."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.evals.html_report import AREA, LETTER, LINE, Label, place_labels

POINTS = st.lists(
    st.tuples(st.floats(44, 454), st.floats(20, 300), st.text("abc", min_size=1, max_size=18)), max_size=13
)


def spans(label: Label, name: str) -> tuple[float, float]:
    length = LETTER * len(name)
    return (label.x, label.x + length) if label.anchor == "start" else (label.x - length, label.x)


@given(POINTS)
def test_labels_do_not_overlap(points: list[tuple[float, float, str]]) -> None:
    """Thirteen systems, all of them at the same place if need be."""
    found = list(zip(place_labels(points, AREA), (name for _, _, name in points), strict=True))
    assert len(found) == len(points)
    for (one, first), (other, second) in combinations(found, 2):
        left, right = spans(one, first), spans(other, second)
        apart = left[1] <= right[0] or right[1] <= left[0]
        assert apart or abs(one.y - other.y) >= LINE - 0.001


@given(POINTS)
def test_labels_are_inside_the_drawing(points: list[tuple[float, float, str]]) -> None:
    """No name is cut off at an edge."""
    for label, (_, _, name) in zip(place_labels(points, AREA), points, strict=True):
        left, right = spans(label, name)
        assert left >= AREA.left
        assert right <= AREA.width
        assert 0 <= label.y <= AREA.y(0)


def test_a_name_is_beside_its_point_if_there_is_room() -> None:
    """To the right, or to the left near the right edge."""
    right, left = place_labels([(100, 100, "one"), (460, 200, "another")], AREA)
    assert (right.anchor, right.far) == ("start", False)
    assert (left.anchor, left.far) == ("end", False)


def test_points_at_the_same_place_have_names_one_below_the_other() -> None:
    """A line joins those that are far with their point."""
    labels = place_labels([(100, 100, name) for name in ("one", "two", "three", "four", "five", "six", "seven")], AREA)
    assert len({(label.y, label.anchor) for label in labels}) == 7
    assert labels[-1].far

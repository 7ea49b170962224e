"""The file of ratings: what is read of it, whatever is in it."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.core.learning import Rating, RatingShare
from conductor_cli.core.serialization import dump
from conductor_cli.state.records import NEWEST_BYTES, RatingsFile


def made(number: int) -> Rating:
    share = RatingShare(worker="a", key="k", step=1, kind="math", weight=0.5, good=True)
    return Rating(
        run=f"run-{number}", step=0, verdict="good", by="user", time=float(number), shares=(share,)
    )


STORED_SHARE = dump(made(1))["shares"][0]


@pytest.mark.parametrize(
    "changes",
    [
        {"step": "1"},
        {"verdict": "fine"},
        {"verdict": []},
        {"by": None},
        {"time": "now"},
        {"time": float("nan")},
        {"shares": 1},
        {"shares": [1]},
        {"shares": [{"worker": "a"}]},
        {"run": 7},
        *({"shares": [STORED_SHARE | {"weight": weight}]} for weight in (0, 1.5, -1, "1")),
    ],
)
def test_a_line_that_is_no_rating_is_counted_and_left_out(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    """Nor is one with another weight: it must not decide about a worker for good."""
    path = tmp_path / "ratings.jsonl"
    path.write_text(json.dumps(dump(made(1)) | changes) + "\n")
    RatingsFile(path).add(made(2))
    ratings = RatingsFile(path).read()
    assert ratings.ratings == (made(2),)
    assert "1 line is damaged; 1 rating could be read" in ratings.problem


def test_damaged_lines_that_are_json_together_are_counted_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "ratings.jsonl"
    whole = json.dumps(dump(made(1)))
    halves = ['{"shares": [{}', "{}]}"]
    path.write_text("\n".join([whole, *halves, "{", whole, ""]), encoding="utf-8")
    ratings = RatingsFile(path).read()
    assert ratings.ratings == (made(1), made(1))
    assert "3 lines are damaged; 2 ratings could be read" in ratings.problem


def test_only_the_newest_part_of_a_large_file_is_read(tmp_path: Path) -> None:
    """The line that is cut where it begins is no damage."""
    path = tmp_path / "ratings.jsonl"
    line = json.dumps(dump(made(1)))
    path.write_text("\n".join([line] * (2 * NEWEST_BYTES // len(line))) + "\n")
    RatingsFile(path).add(made(2))
    ratings = RatingsFile(path).read()
    assert ratings.problem == ""
    assert ratings.ratings[-1] == made(2)
    assert 0 < len(ratings.ratings) <= NEWEST_BYTES // len(line)


def _add(path: Path, first: int) -> None:
    for number in range(first, first + 50):
        RatingsFile(path).add(made(number))


def test_two_processes_may_add_at_the_same_time(tmp_path: Path) -> None:
    path = tmp_path / "ratings.jsonl"
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=_add, args=(path, first)) for first in (0, 50)]
    for process in both:
        process.start()
    for process in both:
        process.join(60)
    assert sorted(rating.time for rating in RatingsFile(path).read().ratings) == list(range(100))

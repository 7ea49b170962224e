"""`conductor workers calibrate`: what is measured, what is stored, and that plans use it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.config.cards import cards_file
from conductor_cli.config.files import app_paths
from tests.cli.stage import Stage, refuses, says
from tests.servers import Script, SeenStep, Wire

CASES = [
    {"id": f"{tag}{number}", "question": f"Say {tag} {number}.", "answer": f"{tag} {number}", "tags": [tag]}
    for tag in ("red", "blue") for number in range(4)
]  # fmt: skip


def repeats(*tags: str) -> Script:
    """A worker that gives right answers only for these tags."""

    async def script(seen: SeenStep, wire: Wire) -> None:
        text = seen.json["messages"][-1]["content"]
        said = text.partition("Say ")[2].partition(".")[0]
        await says(said if said.partition(" ")[0] in tags else "nothing", read=30, written=5)(seen, wire)

    return script


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    """Eight cases, of two tags."""
    path = tmp_path / "colours.jsonl"
    path.write_text("".join(json.dumps(case) + "\n" for case in CASES))
    return path


@pytest.fixture
def two_workers(stage: Stage) -> Stage:
    """Two workers, each good at one tag."""
    stage.models = {"alpha": repeats("red"), "beta": repeats("blue")}
    return stage


def strengths(stage: Stage) -> dict[str, Any]:
    """What `workers list` knows of each worker."""
    listed = stage.inside("workers", "list", "--json").json
    return {worker["name"]: worker["card"]["strengths"] for worker in listed}


def test_each_worker_gets_a_card(two_workers: Stage, cases: Path) -> None:
    done = two_workers.ok("workers", "calibrate", cases, "--yes", "--json")
    alpha, beta = done.json["cards"]
    assert (alpha["worker"], alpha["right"], alpha["n"]) == ("alpha", 4, 8)
    red = alpha["strengths"]["red"]
    assert (red["right"], red["n"]) == (4, 4)
    assert (alpha["tokens_in"], alpha["tokens_out"], alpha["cost"]) == (30, 5, None)
    assert beta["strengths"]["red"]["right"] == 0
    assert strengths(two_workers) == {"alpha": {"red": 1.0, "blue": 0.0}, "beta": {"red": 0.0, "blue": 1.0}}
    assert len(two_workers.posts) == 16, "each worker once for each case, and no conductor"


def test_only_workers_without_a_card_are_measured(two_workers: Stage, cases: Path) -> None:
    two_workers.inside("workers", "calibrate", cases, "--yes", "--workers", "alpha")
    before = len(two_workers.posts)
    two_workers.inside("workers", "calibrate", cases, "--yes")
    assert (len(two_workers.posts) - before, len(two_workers.asked("alpha"))) == (8, 8)
    two_workers.config.write_text(
        two_workers.config.read_text().replace('model = "alpha"', 'model = "alpha"\ntemperature = 0.5')
    )
    assert strengths(two_workers)["alpha"] == {}, "another temperature has not been measured"
    two_workers.inside("workers", "calibrate", cases, "--yes")
    assert len(two_workers.asked("alpha")) == 16


def test_an_unreachable_worker_gets_no_card(two_workers: Stage, cases: Path) -> None:
    two_workers.models["beta"] = refuses(401, "who are you")
    done = two_workers.ok("workers", "calibrate", cases, "--yes", "--json")
    assert [card["worker"] for card in done.json["cards"]] == ["alpha"]
    assert "beta: 8 of 8 cases failed, so it has no card" in done.err


def test_exit_code_8_if_no_worker_could_be_reached(two_workers: Stage, cases: Path) -> None:
    two_workers.models = dict.fromkeys(("alpha", "beta"), refuses(401, "who are you"))
    two_workers.ends(8, "workers", "calibrate", cases, "--yes")
    assert not cards_file(app_paths({})).exists()


@pytest.mark.parametrize("arguments", [("none.jsonl",), ("--workers", "nobody")], ids=" ".join)
def test_a_wrong_command_line_calls_nobody(two_workers: Stage, arguments: tuple[str, ...]) -> None:
    two_workers.costs_nothing(2, "workers", "calibrate", *arguments, "--yes")


def test_a_damaged_file_of_cards_is_moved_aside(two_workers: Stage, cases: Path) -> None:
    file = cards_file(app_paths({}))
    file.parent.mkdir(parents=True)
    file.write_text("{half a fi")
    assert two_workers.inside("workers", "list").code == 0
    two_workers.ok("workers", "calibrate", cases, "--yes", told="was damaged; its content was moved to")
    assert file.with_name("cards.json.damaged-1").read_text() == "{half a fi"
    assert strengths(two_workers)["alpha"] == {"red": 1.0, "blue": 0.0}

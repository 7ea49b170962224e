"""`conductor workers calibrate`: what workers are measured on, what is kept of it, and that plans go by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.config.cards import cards_file, read_cards
from conductor_cli.config.files import app_paths
from conductor_cli.rehearsal import workers as rehearsal_workers
from tests.cli.stage import Done, Stage, explained, refuses, says
from tests.servers import Script, SeenStep, Wire
from tests.tiny_gguf import make

CASES = [
    {"id": f"{tag}{number}", "question": f"Say {tag} {number}.", "answer": f"{tag} {number}", "tags": [tag]}
    for tag in ("red", "blue") for number in range(4)
]  # fmt: skip


def repeats(*tags: str) -> Script:
    """A worker that can say what it is told to of these tags only."""

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
def desk(stage: Stage) -> Stage:
    """Two workers, each good at one tag."""
    stage.models = {"alpha": repeats("red"), "beta": repeats("blue")}
    return stage


def posts(stage: Stage) -> int:
    return len([seen for seen in stage.server.requests if seen.method == "POST"])


def strengths(stage: Stage) -> dict[str, Any]:
    """What `workers list` knows of each worker."""
    listed = stage.inside("workers", "list", "--json").json
    return {worker["name"]: worker["card"]["strengths"] for worker in listed}


def test_each_worker_gets_a_card_of_what_it_can(desk: Stage, cases: Path) -> None:
    """Strength by tag with its interval, tokens, time and price; every command then sees it."""
    done = desk.inside("workers", "calibrate", cases, "--yes", "--json")
    assert done.code == 0, done.err
    alpha, beta = done.json["cards"]
    assert (alpha["worker"], alpha["right"], alpha["n"], alpha["failed"]) == ("alpha", 4, 8, 0)
    red = alpha["strengths"]["red"]
    assert (red["right"], red["n"], red["low"], red["high"]) == (4, 4, 0.5101, 1)
    assert (alpha["tokens_in"], alpha["tokens_out"], alpha["cost"], alpha["price"]) == (30, 5, None, None)
    assert beta["strengths"]["red"]["right"] == 0
    assert strengths(desk) == {"alpha": {"red": 1.0, "blue": 0.0}, "beta": {"red": 0.0, "blue": 1.0}}
    assert posts(desk) == 16, "each worker once for each case, and no conductor"


def test_the_table_says_it_for_people(desk: Stage, cases: Path) -> None:
    """A line for each worker and tag; where the cards are; progress on stderr."""
    done = desk.inside("workers", "calibrate", cases, "--yes")
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[0][:3] == ["WORKER", "TAG", "STRENGTH"]
    assert lines[1][:3] == ["alpha", "red", "1.00"]
    assert lines[3][:3] == ["alpha", "all", "0.50"]
    assert lines[3][-2:] == ["unknown", "now"]
    assert "cards.json" in done.err


def test_the_conductor_is_told_what_was_measured(desk: Stage, cases: Path) -> None:
    """The prompt of the next plan holds the strengths."""
    desk.inside("workers", "calibrate", cases, "--yes")
    desk.inside("ask", "hello")
    asked = json.dumps(desk.asked("planner")[-1].json)
    assert "red 1.00" in asked
    assert "blue 1.00" in asked


def test_what_was_measured_is_not_measured_again(desk: Stage, cases: Path) -> None:
    """The same set and the same worker: shown from the file, nobody asked and no yes needed; --again asks."""
    first = desk.inside("workers", "calibrate", cases, "--yes", "--json").json
    before = posts(desk)
    assert desk.inside("workers", "calibrate", cases, "--json").json["cards"] == first["cards"]
    assert posts(desk) == before
    desk.models["alpha"] = repeats("red", "blue")
    assert desk.inside("workers", "calibrate", cases, "--again", "--yes", "--workers", "alpha").code == 0
    assert posts(desk) == before + 8
    assert strengths(desk) == {"alpha": {"red": 1.0, "blue": 1.0}, "beta": {"red": 0.0, "blue": 1.0}}


def test_only_new_workers_are_measured(desk: Stage, cases: Path) -> None:
    """One that has its card on this set is not asked for the sake of another; one that changed is."""
    desk.inside("workers", "calibrate", cases, "--yes", "--workers", "alpha")
    before = posts(desk)
    desk.inside("workers", "calibrate", cases, "--yes")
    assert (posts(desk) - before, len(desk.asked("alpha"))) == (8, 8)
    desk.config.write_text(desk.config.read_text().replace('model = "alpha"', 'model = "alpha"\ntemperature = 0.5'))
    assert strengths(desk)["alpha"] == {}, "another temperature has not been measured"
    desk.inside("workers", "calibrate", cases, "--yes")
    assert len(desk.asked("alpha")) == 16


def test_without_cases_there_is_a_set_of_our_own(desk: Stage) -> None:
    """Small, with tags, of the size that is asked for."""
    done = desk.inside("workers", "calibrate", "--n", "12", "--yes", "--json")
    assert done.code == 0, done.err
    assert (done.json["source"], done.json["cases"]) == ("basics", 12)
    assert set(done.json["cards"][0]["strengths"]) == {"math", "letters", "reasoning", "json", "code"}


def test_it_begins_only_after_a_yes(desk: Stage, cases: Path) -> None:
    """What may cost money is estimated, and without a terminal refused: 2."""
    done = desk.inside("workers", "calibrate", cases)
    assert (done.code, done.out, posts(desk)) == (2, "", 0)
    assert "16 runs: about 16 calls" in done.err


def test_a_worker_that_cannot_be_asked_gets_no_card(desk: Stage, cases: Path) -> None:
    """It is told why; the other one has its card."""
    desk.models["beta"] = refuses(401, "who are you")
    done = desk.inside("workers", "calibrate", cases, "--yes", "--json")
    assert done.code == 0
    assert [card["worker"] for card in done.json["cards"]] == ["alpha"]
    assert "beta: 8 of 8 cases failed, so it has no card" in done.err


def test_8_where_no_worker_could_be_asked(desk: Stage, cases: Path) -> None:
    """Nothing was measured, and nothing is written."""
    desk.models = dict.fromkeys(("alpha", "beta"), refuses(401, "who are you"))
    done = desk.inside("workers", "calibrate", cases, "--yes")
    assert done.code == 8
    assert not cards_file(app_paths({})).exists()


def test_a_card_by_hand_wins_and_that_is_said(desk: Stage, cases: Path) -> None:
    """What the owner wrote into the settings stays."""
    table = "[workers.alpha.card.strengths]\ngreen = 0.5\n"
    desk.config.write_text(desk.config.read_text() + table)
    done = desk.inside("workers", "calibrate", cases, "--yes")
    assert "alpha has a card in the settings, which overrides the measured one" in done.err
    assert strengths(desk) == {"alpha": {"green": 0.5}, "beta": {"red": 0.0, "blue": 1.0}}


def test_a_damaged_file_of_cards_is_set_aside(desk: Stage, cases: Path) -> None:
    """Commands go on without it; calibrating writes a new one and says where the old one is."""
    file = cards_file(app_paths({}))
    file.parent.mkdir(parents=True)
    file.write_text("{half a fi")
    assert desk.inside("workers", "list").code == 0
    done = desk.inside("workers", "calibrate", cases, "--yes")
    assert done.code == 0
    assert "was damaged; its content was moved to" in done.err
    assert file.with_name("cards.json.damaged-1").read_text() == "{half a fi"
    assert strengths(desk)["alpha"] == {"red": 1.0, "blue": 0.0}


def rehearsed(desk: Stage, folder: Path, patch: pytest.MonkeyPatch, *more: str | Path) -> Done:
    """A calibration of rehearsal workers that babble."""
    for name in rehearsal_workers.NAMES:
        if not (folder / f"{name}.gguf").exists():
            make(folder / f"{name}.gguf")
    patch.setattr(rehearsal_workers, "model_path", lambda name: folder / f"{name}.gguf")
    return desk.inside("workers", "calibrate", "--rehearsal", "--n", "6", "--workers", "letters,facts", *more)


def test_the_rehearsals_workers_are_measured_by_skill(
    desk: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On fresh questions of one hop, for nothing, with no file written unless one is named."""
    done = rehearsed(desk, tmp_path, monkeypatch, "--json")
    assert done.code == 0, done.err
    assert [card["worker"] for card in done.json["cards"]] == ["letters", "facts"]
    assert set(done.json["cards"][0]["strengths"]) <= {"letters", "numbers", "facts"}
    assert (done.json["file"], done.json["cards"][0]["cost"], posts(desk)) == (None, "0", 0)
    assert not cards_file(app_paths({})).exists()


def test_the_rehearsals_cards_are_written_for_shipping(
    desk: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--out FILE holds no path of this machine, and its cards know their workers wherever those lie."""
    rehearsed(desk, tmp_path, monkeypatch, "--out", tmp_path / "cards.json")
    assert str(tmp_path) not in (tmp_path / "cards.json").read_text()
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".gguf"] == ["cards.json"], "no lock stays"
    cards = read_cards(tmp_path / "cards.json")
    (tmp_path / "moved").mkdir()
    for name in rehearsal_workers.NAMES:
        (tmp_path / f"{name}.gguf").rename(tmp_path / "moved" / f"{name}.gguf")
    pool = rehearsal_workers.rehearsal_workers(directory=tmp_path / "moved")
    assert {worker.name: cards.of(worker) is not None for worker in pool}["letters"]


def test_cards_are_not_written_over_what_is_none(desk: Stage, cases: Path, tmp_path: Path) -> None:
    """--out with a directory, or a file of somebody else: 3 before anybody is asked, and both stay where they are."""
    (tmp_path / "out").mkdir()
    (tmp_path / "README.md").write_text("# Mine")
    for out in ("out", "README.md"):
        done = desk.inside("workers", "calibrate", cases, "--yes", "--out", tmp_path / out)
        assert (done.code, done.out, posts(desk)) == (3, "", 0), done.err
        explained(done)
    assert (tmp_path / "out").is_dir()
    assert (tmp_path / "README.md").read_text() == "# Mine"


def test_a_rehearsals_calibration_is_gone_on_with_over_its_own_workers(
    desk: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was cut off is the newest evaluation, and what it was begun over is what goes on."""
    rehearsed(desk, tmp_path, monkeypatch)
    (outcomes,) = (desk.home / "state/conductor-llm/evals").glob("*/outcomes.jsonl")
    whole = outcomes.read_text()
    outcomes.write_text(whole[: whole.rindex("\n")])
    done = desk.inside("eval", "--resume", "last", "--json")
    assert done.code == 0, done.err
    assert "11 of 12 runs are done" in done.err
    assert [system["name"] for system in done.json["systems"]] == ["alone:letters", "alone:facts"]
    assert sum(system["n"] for system in done.json["systems"]) == 12


@pytest.mark.parametrize(
    "arguments",
    [("none.jsonl", "--rehearsal"), ("none.jsonl",), ("--workers", "nobody"), ("--n", "0"), ("--workers", ",")],
    ids=" ".join,
)
def test_a_command_line_that_makes_no_sense_is_2(desk: Stage, arguments: tuple[str, ...]) -> None:
    """Nobody is asked."""
    done = desk.inside("workers", "calibrate", *arguments, "--yes")
    assert (done.code, done.out, posts(desk)) == (2, "", 0)
    explained(done)

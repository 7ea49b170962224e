"""Groups of plans, the count of a reward log, and the test by which planners are compared."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.core.errors import ConfigError
from conductor_cli.models.llama.bindings import CancelToken
from conductor_cli.models.llama.engine import LlamaEngine
from conductor_cli.models.llama.loading import LlamaOptions
from tests import tiny_gguf
from training.planner.world import compare, count, judge, rules
from training.planner.world.cases import draw_case, open_world
from training.planner.world.groups import advantages, reward_lines, sample_group, shuffled

needs_programs = pytest.mark.skipif(
    shutil.which("bwrap") is None or shutil.which("bc") is None,
    reason="bubblewrap or bc is not installed",
)

LOOKUP = "SELECT population FROM country WHERE name = 'Landb'"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gguf.make(tmp_path_factory.mktemp("verdict") / "base.gguf")


Command = Callable[..., int]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    def run(main: Command, *words: object) -> int:
        monkeypatch.setattr(sys, "argv", ["command", *map(str, words)])
        return main()

    return run


def test_a_group_has_plans_of_its_seed_with_a_line_each(
    file: Path, tables: dict[str, Path]
) -> None:
    world = open_world(tables["new"].parent)
    case = draw_case(world, "1")
    engine = LlamaEngine(file, LlamaOptions(threads=1), CancelToken())
    try:
        group = sample_group(engine, world, case, "2", count=2)
        again = sample_group(engine, world, case, "2", count=2)
    finally:
        engine.close()
    texts = [attempt.reply.text for attempt in group.attempts]
    assert texts == [attempt.reply.text for attempt in again.attempts]
    assert texts[0] != texts[1]
    assert [line["plan"] for line in reward_lines(group, 4, 1)] == [0, 1]
    assert not group.has_signal


def test_an_advantage_has_no_deviation_of_the_group_in_it() -> None:
    assert advantages([1.0, 0.0, 0.0, 0.0]) == [0.75, -0.25, -0.25, -0.25]
    assert sorted(shuffled([1.0, 1.0, 0.0], "x")) == [0.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("subtask", "kind"),
    [
        (LOOKUP, "population of a country"),
        ("select capital from country where name = 'Landc'", "capital of a country"),
        ("round(100 * a1 / a2, 2)", "division"),
        ("a1 - a2", "arithmetic"),
        ("sum(c.isalpha() for c in a1)", "letters"),
        ("(datetime.date(2020, 1, 2) - datetime.date(2019, 1, 2)).days", "dates"),
        ("Say who lives there", "words"),
    ],
)
def test_the_kind_of_a_step_is_told_by_its_words(subtask: str, kind: str) -> None:
    assert count.kind_of_step(subtask) == kind


def log_of(plans: Sequence[tuple[list[tuple[str, str]], float]]) -> list[dict[str, Any]]:
    return [
        {"step": 1, "number": 0, "plan": plan, "steps": steps, "reward": reward}
        for plan, (steps, reward) in enumerate(plans)
    ]


PLANS = [
    ([(LOOKUP, "db"), ("a1 / 2", "py")], 1.0),
    ([(LOOKUP, "db"), ("a1 / 2", "bc")], 0.0),
    ([(LOOKUP, "db-old"), ("a1 / 2", "py")], 0.0),
    ([(LOOKUP, "db-old"), ("a1 + 2", "bc")], 0.0),
    ([(LOOKUP, "db"), ("a1 + 2", "py"), ("len('x')", "py")], 1.0),
]


def test_the_count_chooses_who_succeeded_most_often() -> None:
    counted = count.count_plans(log_of(PLANS))
    pool = ("bc", "db-old", "py", "db")
    assert counted.choose_worker(LOOKUP, pool) == "db"
    assert counted.choose_worker("a1 / a2", pool) == "py"
    assert counted.choose_worker("capital?", pool) == "bc"
    assert counted.choose_worker("a1 + a2", ("bc", "db")) == "bc"


def test_a_step_that_was_computed_twice_counts_once() -> None:
    counted = count.count_plans([*log_of(PLANS), *log_of(PLANS)])
    assert counted.whole.plans == len(PLANS)


def test_the_count_of_a_log_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], call: Callable[..., int]
) -> None:
    log = write_log(tmp_path)
    assert call(count.main, log) == 0
    shown = capsys.readouterr().out
    assert "population of a country  db       2 of 3, 0.667" in shown
    assert "division                 py\n" in shown
    assert "ratings after these plans:\npy  " in shown


def test_ratings_of_the_same_plans_give_each_worker_a_figure(tmp_path: Path) -> None:
    lines = log_of(PLANS * 8)
    figures = count.rated_figures(lines)
    assert figures["db"] > 0.5 > figures["db-old"]
    assert 1.0 > figures["py"] > figures["bc"]
    log = tmp_path / "rewards.jsonl"
    log.write_text("\n".join(map(json.dumps, lines)))
    choose = count.chooser_by_ratings(log)
    assert choose(LOOKUP, ("bc", "db-old", "py", "db")) == "db"
    assert choose("a1 / a2", ("bc", "db-old", "py", "db")) == "py"


def write_log(directory: Path) -> Path:
    log = directory / "rewards.jsonl"
    log.write_text("\n".join(map(json.dumps, log_of(PLANS))) + "\n")
    return log


@needs_programs
def test_the_count_can_be_judged_by_the_true_steps_of_a_question(
    tmp_path: Path,
    tables: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
    call: Callable[..., int],
) -> None:
    kinds = ["population", "area", "capital", "currency"]
    plans = [([(f"SELECT {kind} FROM country", "db")], 1.0) for kind in kinds]
    plans += [([("SELECT population FROM city", "db")], 1.0)]
    plans += [([(sign, "py")], 1.0) for sign in ("1 / 2", "1 + 2", "len('x')", "date.today()")]
    log = tmp_path / "rewards.jsonl"
    log.write_text("\n".join(map(json.dumps, log_of(plans))))
    out = tmp_path / "count.jsonl"
    world = ("--world", tables["new"].parent, "--seed", "s", "--n", 6, "--out", out)
    assert call(judge.main, "--true-steps", "--count", log, *world) == 0
    assert capsys.readouterr().out.count('"questions": 3, "right": 3') == 2


def test_a_planner_is_judged_where_it_was_stopped_and_under_one_name(
    tmp_path: Path, file: Path, tables: dict[str, Path], call: Callable[..., int]
) -> None:
    out = tmp_path / "untrained.jsonl"
    words = ("--model", file, "--world", tables["new"].parent, "--out", out)
    call(judge.main, *words, "--seed", "s", "--n", 1)
    first = out.read_text()
    call(judge.main, *words, "--seed", "s", "--n", 2)
    assert out.read_text().startswith(first)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(line["number"], line["held_out"]) for line in lines] == [(0, False), (1, True)]
    with pytest.raises(ConfigError, match="is of"):
        call(judge.main, *words, "--seed", "another", "--n", 2)


@needs_programs
def test_plans_of_a_file_are_judged_with_workers_that_a_rule_chooses(
    tmp_path: Path, tables: dict[str, Path], call: Callable[..., int]
) -> None:
    world = ("--world", tables["new"].parent, "--seed", "s", "--n", 4)
    true_steps = tmp_path / "true.jsonl"
    call(judge.main, "--true-steps", "--rule", "manuals", *world, "--out", true_steps)
    by_cards = tmp_path / "cards.jsonl"
    call(judge.main, "--plans", true_steps, "--rule", "cards", *world, "--out", by_cards)
    repeated = tmp_path / "repeated.jsonl"
    call(judge.main, "--plans", true_steps, *world, "--out", repeated)
    judged = {path: read_lines(path) for path in (true_steps, by_cards, repeated)}
    assert all(line["right"] for line in judged[true_steps])
    assert [line["plan"] for line in judged[repeated]] == [
        line["plan"] for line in judged[true_steps]
    ]
    texts = [
        [[step["subtask"] for step in line["plan"]] for line in judged[path]] for path in judged
    ]
    assert texts[0] == texts[1]
    with pytest.raises(ConfigError, match="not of another"):
        judge.open_plans(true_steps, "another")


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_rule_reads_manuals_or_takes_the_first_of_equal_cards() -> None:
    pool = ("bc", "db-old", "py", "db")
    assert [rules.by_manuals(subtask, pool) for subtask in (LOOKUP, "a1 / a2")] == ["db", "py"]
    assert [rules.by_cards(subtask, pool) for subtask in (LOOKUP, "a1 / a2")] == ["db-old", "bc"]
    assert rules.by_manuals(LOOKUP, ("py", "db-old")) == "db-old"


def results(*right: int) -> dict[int, bool]:
    return {number: bool(value) for number, value in enumerate(right)}


def test_a_difference_has_an_interval_by_questions_and_one_by_trainings() -> None:
    ours = [results(*[1] * 9, 0), results(*[1] * 8, 0, 0), results(*[1] * 10)]
    theirs = [results(*[0] * 5, *[1] * 5)]
    difference = compare.compare(ours, theirs)
    assert difference.mean == pytest.approx(0.4)
    assert difference.paired.low < 0.4 < difference.paired.high
    assert difference.by_trainings == pytest.approx((0.4 - 0.2484, 0.4 + 0.2484), abs=1e-3)
    assert compare.compare(ours[:1], theirs).by_trainings is None


def test_different_questions_are_not_compared() -> None:
    with pytest.raises(ConfigError, match="different questions"):
        compare.compare([results(1, 0)], [results(1, 0, 1)])
    with pytest.raises(ConfigError, match="3 trainings of ours, and 2 of theirs"):
        compare.compare([results(1)] * 3, [results(0)] * 2)


def test_the_differences_of_two_files_are_printed_by_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], call: Callable[..., int]
) -> None:
    files = {"ours": (1, 1, 1, 0), "theirs": (0, 1, 0, 0)}
    for name, right in files.items():
        lines = [
            {
                "settings": {"seed": "s"},
                "number": number,
                "held_out": number % 2 == 1,
                "right": bool(value),
            }
            for number, value in enumerate(right)
        ]
        (tmp_path / name).write_text("\n".join(map(json.dumps, lines)))
    assert call(compare.main, "--ours", tmp_path / "ours", "--theirs", tmp_path / "theirs") == 0
    shown = capsys.readouterr().out.splitlines()
    assert "all              4 questions: 0.750 and 0.250, difference +0.500" in shown[0]
    assert "held out         2 questions: 0.500 and 0.500, difference +0.000" in shown[1]

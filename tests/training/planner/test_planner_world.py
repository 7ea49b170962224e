"""The world of rewards.

Real programs with the faults that they really have, and questions that programs answer.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest

from conductor_cli.core.chat import Request
from conductor_cli.core.plan import Step
from conductor_cli.core.pool import Card, Worker
from training.planner.world.check import is_right, measure, remembered, run_steps
from training.planner.world.models import AnswerCache, ask_for_program, ask_in_words
from training.planner.world.programs import (
    find_expression,
    open_programs,
    run_bc,
    run_python,
    value_of,
)
from training.planner.world.questions import RIGHT, compose, subjects
from training.planner.world.run import draw_seats, pool_of, program_answer, run_plan

needs_programs = pytest.mark.skipif(
    shutil.which("bwrap") is None or shutil.which("bc") is None,
    reason="bubblewrap or bc is not installed",
)


@pytest.mark.parametrize(
    ("subtask", "expression"),
    [
        ("Compute round(a1 / a2, 3) and give it.", "round(a1 / a2, 3)"),
        ("What is 12 * 34 - 100? Reply with the number only.", "12 * 34 - 100"),
        ("Count the letters of the word in step 1.", ""),
        ("sum(c.isalpha() for c in a1)", "sum(c.isalpha() for c in a1)"),
    ],
)
def test_the_expression_of_a_subtask_is_found(subtask: str, expression: str) -> None:
    assert find_expression(subtask) == expression


@pytest.mark.parametrize(
    ("answer", "value"),
    [("It has 67,000,000 people.", "67000000"), ("-3.5", "-3.5"), ("Paris ", "'Paris'")],
)
def test_a_later_step_gets_the_number_of_an_answer_or_its_text(answer: str, value: str) -> None:
    assert value_of(answer) == value


@needs_programs
def test_bc_drops_the_decimals_that_python_keeps() -> None:
    answers = {1: "7", 2: "2"}
    assert (run_python("a1 / a2", answers), run_bc("a1 / a2", answers)) == ("3.5", "3")
    assert (run_python("7 * 8 - 100", {}), run_bc("7 * 8 - 100", {})) == ("-44", "-44")


@needs_programs
def test_a_program_of_a_model_reaches_neither_network_nor_files(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("42")
    from training.planner.world.programs import run_program

    assert "FileNotFoundError" in run_program(f"print(open('{tmp_path}/secret').read())")
    assert "Error" in run_program("import socket; socket.create_connection(('127.0.0.1', 80), 1)")


def test_the_table_can_be_read_and_not_changed(tables: dict[str, Path]) -> None:
    worker = open_programs(tables)["db"]
    assert worker("SELECT population FROM country WHERE name = 'Landb'.", {}) == "10000"
    assert worker("Run `SELECT a1 * 2`", {1: "4"}) == "8"
    assert "not authorized" in worker("select load_extension('x')", {})
    assert worker("Who lives there?", {}) == "error: there is no SELECT"


def test_a_query_that_wants_a_gigabyte_of_memory_is_refused(tables: dict[str, Path]) -> None:
    worker = open_programs(tables)["db"]
    assert worker("SELECT length(zeroblob(900000000))", {}) == "error: string or blob too big"


def test_compositions_have_two_to_five_steps_and_some_are_held_out(tables: dict[str, Path]) -> None:
    countries, cities = subjects(tables["new"])
    drawn = [compose(Random(number), countries, cities) for number in range(300)]
    assert all(2 <= len(question.steps) <= 5 for question in drawn)
    shapes = {question.shape: question.is_held_out for question in drawn}
    assert 0.15 < sum(shapes.values()) / len(shapes) < 0.55


@needs_programs
def test_the_right_programs_answer_and_older_tables_do_not_where_values_change(
    tables: dict[str, Path],
) -> None:
    programs = {name: remembered(program) for name, program in open_programs(tables).items()}
    countries, cities = subjects(tables["new"])
    question = next(
        drawn
        for drawn in (compose(Random(number), countries, cities) for number in range(100))
        if drawn.shape == "difference population area"
    )
    wanted = run_steps(question, [RIGHT[step.kind][0] for step in question.steps], programs)
    stale = run_steps(question, ["db-old", "db-old", "bc"], programs)
    assert is_right(run_steps(question, ["db", "db-old", "bc"], programs), wanted, 0)
    assert not is_right(stale, wanted, 0)


@pytest.mark.parametrize(
    "message",
    [
        'Traceback (most recent call last):\n  File "<stdin>", line 3\nNameError: a2',
        "(standard_in) 3: syntax error",
        "error: no such column: 3",
    ],
)
def test_the_number_of_an_error_is_no_answer(message: str) -> None:
    assert not is_right(message, "3", 0)
    assert is_right("The answer is 3", "3", 0)


@needs_programs
def test_the_check_finds_what_a_rule_by_cards_misses(tables: dict[str, Path]) -> None:
    programs = {name: remembered(program) for name, program in open_programs(tables).items()}
    countries, cities = subjects(tables["new"])
    measured = measure(
        [compose(Random(number), countries, cities) for number in range(6)], programs
    )
    assert measured["best by the manuals"] == measured["hindsight"] == 1.0
    assert measured["by card, first of equals"] <= measured["hindsight"]


def test_an_answer_of_a_model_is_asked_for_once(tmp_path: Path) -> None:
    requests = list[Request]()

    def ask(request: Request) -> str:
        requests.append(request)
        return "12 eggs"

    step = Step(worker="ann", subtask="Count the eggs.", access=(1,))
    worker = Worker(name="ann", kind="openai")
    for _ in range(2):
        cache = AnswerCache(tmp_path / "answers.jsonl", ask)
        answer = ask_in_words(cache, worker, "How many?", step, {1: "Look."}, {1: "a box of 12"})
        assert answer == "12 eggs"
    assert len(requests) == 1
    assert "a box of 12" in requests[0].messages[-1].content


@needs_programs
def test_the_program_that_a_model_writes_is_run(tmp_path: Path) -> None:
    cache = AnswerCache(tmp_path / "answers.jsonl", lambda _: "Here:\n```python\nprint(6 * 7)\n```")
    step = Step(worker="ann", subtask="Multiply 6 by 7.")
    assert ask_for_program(cache, Worker(name="ann", kind="openai"), "?", step, {}, {}) == "42"


@needs_programs
def test_a_plan_earns_its_reward_by_the_programs_that_it_names(tables: dict[str, Path]) -> None:
    answers = {name: program_answer(program) for name, program in open_programs(tables).items()}
    seats = draw_seats(Random(1), tuple(answers))
    name = {seat.kind: seat.name for seat in seats}
    lookup = "SELECT population FROM country WHERE name = '{}'"

    def plan(last: str) -> list[Step]:
        return [
            Step(worker=name["db"], subtask=lookup.format("Landb")),
            Step(worker=name["db"], subtask=lookup.format("Landd")),
            Step(worker=name[last], subtask="Compute round(a1 / a2, 3)", access=(1, 2)),
        ]

    right = run_plan("?", plan("py"), seats, answers, "0.333", digits=3)
    assert (right.reward, [kind for kind, _ in right.log]) == (1.0, ["db", "db", "py"])
    assert run_plan("?", plan("bc"), seats, answers, "0.333", digits=3).reward == 0.0
    assert run_plan("?", [], seats, answers, "0.333").reward == 0.0


def test_a_planner_sees_drawn_names_and_what_a_program_reads() -> None:
    seats = draw_seats(Random(2), ("py", "db"))
    pool = pool_of(seats, {"py": Card(strengths={"math": 1.0}), "db": Card()})
    assert {worker.name for worker in pool} == {seat.name for seat in seats}
    assert any("SELECT" in worker.about for worker in pool)

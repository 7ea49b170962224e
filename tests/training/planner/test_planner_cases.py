"""Compositions over drawn pools: what the planner is sent, and lessons of their true steps."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from conductor_cli.core.profile import BRIEF_PROFILE
from training.planner.examine import read_plan
from training.planner.pools import WORDS
from training.planner.world.cases import (
    MATH,
    Case,
    World,
    draw_case,
    draw_world_group,
    open_world,
)
from training.planner.world.programs import Program
from training.planner.world.run import program_answer, run_plan

needs_programs = pytest.mark.skipif(
    shutil.which("bwrap") is None or shutil.which("bc") is None,
    reason="bubblewrap or bc is not installed",
)


@pytest.fixture
def world(tables: Mapping[str, Path]) -> World:
    return open_world(tables["new"].parent)


def right_text(case: Case) -> str:
    """The true steps of a case, each by a worker that is right."""
    names = {seat.kind: seat.name for seat in case.drawn.seats}
    lines = list[str]()
    for operation in case.composed.steps:
        kind = "py"
        if operation.subtask.startswith("SELECT"):
            kind = "db"
        access = " ".join(map(str, operation.access)) or "-"
        label = case.drawn.context.label(names[kind])
        lines.append(f"{operation.subtask} | {access} | {label}")
    return "\n".join(lines)


def run_text(case: Case, text: str, programs: Mapping[str, Program]) -> float:
    answers = {kind: program_answer(program) for kind, program in programs.items()}
    return run_plan(
        case.composed.text,
        read_plan(text, case.drawn.context, BRIEF_PROFILE),
        case.drawn.seats,
        answers,
        case.wanted,
        digits=case.composed.digits,
    ).reward


def test_no_worker_of_the_world_is_shown_shortened(world: World) -> None:
    for number in range(30):
        lesson = draw_world_group(world, f"{number}", 1)[0]
        lines = lesson.request.messages[0].content.splitlines()
        endings = ("a2 is the answer of step 2", "city(name,population)")
        workers = [line for line in lines if line[1:3] == "  "]
        assert len(workers) >= 3
        assert all(line.endswith(endings) for line in workers)


def test_cards_tell_neither_the_two_sums_nor_the_two_tables_apart(world: World) -> None:
    for number in range(30):
        case = draw_case(world, f"{number}")
        cards = {
            seat.kind: worker.card
            for seat, worker in zip(case.drawn.seats, case.drawn.pool, strict=True)
        }
        assert cards.get("bc", cards["py"]) == cards["py"]
        assert cards.get("db-old", cards["db"]) == cards["db"]


def test_the_worker_of_a_lesson_is_drawn_evenly_from_those_that_may_do_it(world: World) -> None:
    chosen = Counter[tuple[bool, bool, bool]]()
    for number in range(200):
        lesson = draw_world_group(world, f"{number}", 1)[0]
        lines = lesson.request.messages[0].content.splitlines()
        abouts = {line[0]: line for line in lines if line[1:3] == "  "}
        if len(abouts) < 4:
            continue
        for line in lesson.text.splitlines():
            about = abouts[line[-1]]
            chosen["calculator" in about, "old copy" in about, "SELECT" in about] += 1
            assert line.startswith("SELECT") == ("SELECT" in about)
            assert (f"| {MATH} " in line) == ("SELECT" not in about)
    python = chosen[False, False, False]
    calculator = chosen[True, False, False]
    assert 0.4 < python / (python + calculator) < 0.6
    new_count = chosen[False, False, True]
    old_count = chosen[False, True, True]
    assert 0.4 < new_count / (new_count + old_count) < 0.6


def test_lessons_of_the_world_are_the_same_for_the_same_seed(world: World) -> None:
    assert draw_world_group(world, "5", 3) == draw_world_group(world, "5", 3)
    assert draw_world_group(world, "5", 3) != draw_world_group(world, "6", 3)


def test_a_world_without_dates_has_no_question_on_days(tables: Mapping[str, Path]) -> None:
    for dates in (True, False):
        world = open_world(tables["new"].parent, dates=dates)
        shapes = " ".join(draw_case(world, f"{number}").composed.shape for number in range(40))
        assert ("days" in shapes) == dates


@needs_programs
def test_true_steps_by_the_right_workers_earn_the_reward_in_every_pool(world: World) -> None:
    for number in range(12):
        case = draw_case(world, f"{number}", held=number % 2 == 0)
        assert case.composed.is_held_out == (number % 2 == 0)
        assert run_text(case, right_text(case), world.programs) == 1.0


@needs_programs
def test_a_case_of_the_test_has_names_that_no_lesson_has(world: World) -> None:
    case = draw_case(world, "1", unseen_names=True)
    assert set(case.drawn.pool.names) <= set(WORDS["held_names"])

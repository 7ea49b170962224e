"""Lessons of the planner: what the product sends, and plans that are right by construction."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain, product
from random import Random

import pytest

from conductor_cli.core.kinds_of_work import KINDS
from conductor_cli.core.plan import PlanRules
from conductor_cli.core.plan_formats import PLAN_FORMATS
from conductor_cli.core.plan_formats.base import ANSWER_DIRECTLY, ParsedStep, PlanFormatContext
from conductor_cli.core.pool import Card, Pool, Worker
from conductor_cli.core.profile import KINDS_PROFILE
from conductor_cli.core.prompts import plan_format_context
from training.planner.lessons import draw_group, make_lesson, plan_for
from training.planner.pools import WORDS, choose, draw_pool
from training.planner.questions import (
    EIGHTH_QUESTIONS,
    FIFTH_QUESTIONS,
    FOURTH_QUESTIONS,
    LATER_QUESTIONS,
    NINTH_QUESTIONS,
    QUESTIONS,
    SEVENTH_QUESTIONS,
    SIXTH_QUESTIONS,
    THIRD_QUESTIONS,
    Examined,
)
from training.planner.requests import JOINS, draw_request, read_requests
from training.planner.shapes import Slots, read_fillers, read_shapes
from training.planner.tasks import draw_shaped, draw_task
from training.planner.written import Task, read_written

SIXTIES = [
    QUESTIONS,
    LATER_QUESTIONS,
    THIRD_QUESTIONS,
    FOURTH_QUESTIONS,
    FIFTH_QUESTIONS,
    SIXTH_QUESTIONS,
    SEVENTH_QUESTIONS,
    EIGHTH_QUESTIONS,
    NINTH_QUESTIONS,
]


def context_of(pool: Pool, steps: int = 5) -> PlanFormatContext:
    return plan_format_context(
        KINDS_PROFILE, pool, PlanRules(workers=pool.names, steps=steps), "auto", constrained=True
    )


def pool_of(**strengths: dict[str, float]) -> Pool:
    return Pool(
        workers=tuple(
            Worker(name=name, kind="openai", card=Card(strengths=card))
            for name, card in strengths.items()
        )
    )


def drawn_tasks(count: int) -> list[Task]:
    random = Random(3)
    return [draw_task(random, held=number % 4 == 0) for number in range(count)]


def test_there_are_many_shapes_and_each_phrasing_is_read() -> None:
    shapes = read_shapes()
    assert len(shapes) >= 230
    assert sum(len(shape.asked) for shape in shapes) >= 700
    assert {shape.skill for shape in shapes} >= {
        "sql",
        "shell",
        "regex",
        "git",
        "docs",
        "translation",
        "summary",
    }


def all_written() -> list[Task]:
    return [*read_written(held=False), *read_written(held=True)]


def test_many_questions_were_written_with_plans_of_each_length_and_kind() -> None:
    written = all_written()
    lengths = Counter(len(task.steps) for task in written)
    assert lengths[0] >= 1800
    assert sum(count for length, count in lengths.items() if length) >= 1100
    assert min(lengths[length] for length in (2, 3, 4, 5)) >= 20
    assert min(Counter(task.skill for task in written).values()) >= 20
    assert {task.skill for task in written} == set(KINDS)


def test_each_step_of_a_written_plan_can_be_done_and_is_worded_once() -> None:
    for task in all_written():
        assert len(task.steps) != 1, task.question.text
        assert {step.skill for step in task.steps} <= set(KINDS), task.question.text
        subtasks = [step.subtask for step in task.steps[:-1]]
        assert len(set(subtasks)) == len(subtasks), task.question.text
        for number, step in enumerate(task.steps, start=1):
            assert all(1 <= other < number for other in step.other_than)
        for subtask in subtasks:
            assert subtask[0].isupper()
            assert subtask.endswith(".")


def test_no_written_question_is_held_out_and_in_lessons() -> None:
    lessons = {task.question.text for task in read_written(held=False)}
    held = {task.question.text for task in read_written(held=True)}
    assert len(held) >= 240
    assert not lessons & held


def test_no_written_question_has_the_words_of_an_examination() -> None:
    examined = [examined.question.text for examined in chain.from_iterable(SIXTIES)]
    asked = set(chain.from_iterable(map(runs_of_words, examined)))
    for task in all_written():
        assert not asked & runs_of_words(task.question.text), task.question.text


def runs_of_words(text: str) -> set[tuple[str, ...]]:
    """All six words of a text that follow each other."""
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[at : at + 6]) for at in range(len(words) - 5)}


def drawn_requests(count: int) -> list[Task]:
    random = Random(4)
    return [draw_request(random, held=number % 4 == 0) for number in range(count)]


def test_no_short_request_has_the_words_of_an_examination() -> None:
    examined = [examined.question.text for examined in chain.from_iterable(SIXTIES)]
    asked = set(chain.from_iterable(map(runs_of_words, examined)))
    for task in drawn_requests(3000):
        assert not asked & runs_of_words(task.question.text), task.question.text


def test_a_short_request_is_filled_and_has_steps_where_it_names_several_people_or_pieces() -> None:
    for task in drawn_requests(600):
        assert not re.search(r"\{\w+(\.\d)?\}", task.question.text), task.question.text
        assert bool(task.steps) == (task.kind != "request alone")


def test_each_way_to_join_pieces_has_sentences_and_is_drawn() -> None:
    assert {task.kind.removeprefix("request ") for task in drawn_requests(600)} == set(JOINS)
    requests = read_requests()
    assert all(join.sentences for join in requests.joins)
    assert all(piece.asked and piece.subtask for piece in requests.pieces)
    kinds = chain.from_iterable((piece.kind, piece.check) for piece in requests.pieces)
    assert set(kinds) <= set(KINDS)


def test_three_people_who_work_apart_are_three_workers_where_the_rows_have_them() -> None:
    pool = pool_of(ann={}, ben={}, cem={})
    task = next(task for task in drawn_requests(600) if task.kind == "request opinions of three")
    opinions = plan_for(task, context_of(pool))[:-1]
    assert [step.worker for step, _ in opinions] == ["ann", "ben", "cem"]
    assert all(not step.access for step, _ in opinions)


def test_the_last_step_of_a_plan_reads_all_others_and_answers_the_question() -> None:
    pool = pool_of(ann={"code": 0.9}, ben={"code": 0.5})
    for task in drawn_tasks(400):
        plan = [step for step, _ in plan_for(task, context_of(pool))]
        if len(plan) > 1:
            assert plan[-1].access == tuple(range(1, len(plan))), task.kind
            assert plan[-1].subtask == KINDS_PROFILE.closing


def test_a_last_step_that_checks_earlier_work_is_not_its_authors() -> None:
    """Where the last piece of work is somebody else's opinion of another step."""
    pool = pool_of(ann=dict.fromkeys(KINDS, 0.9), ben=dict.fromkeys(KINDS, 0.7))
    checked = [task for task in all_written() if task.steps and task.steps[-1].other_than]
    assert len(checked) >= 150
    for task in checked:
        workers = [step.worker for step, _ in plan_for(task, context_of(pool))]
        authors = {workers[number - 1] for number in task.steps[-1].other_than}
        assert workers[-1] not in authors, task.question.text


def test_a_step_reads_only_earlier_ones_and_fits_the_grammar() -> None:
    for task in drawn_tasks(400):
        for number, step in enumerate(task.steps, start=1):
            assert all(1 <= earlier < number for earlier in step.access), task.kind
            is_last = number == len(task.steps)
            assert len(step.subtask) <= 240, task.kind
            assert step.subtask or is_last, task.kind
            assert "|" not in step.subtask
            assert not re.search(r"\{[a-z]+(\.\d)?\}", step.subtask), step.subtask


def test_no_shape_is_named_twice_and_each_is_asked_in_some_way() -> None:
    shapes = read_shapes()
    assert len({shape.name for shape in shapes}) == len(shapes)
    assert all(shape.asked for shape in shapes)
    assert {shape.skill for shape in shapes} <= set(KINDS)


def test_every_phrasing_of_every_shape_can_be_filled() -> None:
    for shape, held in product(read_shapes(), (False, True)):
        slots = Slots(Random(1), held)
        for text in map(slots.fill, shape.asked):
            assert "¶" not in text


def test_a_question_of_a_shape_is_answered_in_one_step() -> None:
    random = Random(5)
    tasks = [draw_shaped(random, held=number % 4 == 0) for number in range(200)]
    assert not any(task.steps for task in tasks)
    assert any(task.question.history for task in tasks)
    assert any(task.question.files for task in tasks)


def test_tools_that_are_compared_are_of_one_kind() -> None:
    tools = [read_fillers()[name] for name in ("tool", "toolb", "toolc")]
    for number in range(50):
        filled = Slots(Random(number), held=False).fill("{tool} ; {toolb} ; {toolc}").split(" ; ")
        positions = {values.index(name) for values, name in zip(tools, filled, strict=True)}
        assert len(positions) == 1


def test_no_list_of_values_has_one_twice() -> None:
    for name, values in read_fillers().items():
        assert len(set(values)) == len(values), name
        assert all(values), name


def test_the_product_reads_every_lesson_as_it_is_meant() -> None:
    for number in range(60):
        random = Random(number)
        pool = draw_pool(random)
        task = draw_task(random)
        rules = PlanRules(workers=pool.names)
        lesson = make_lesson(task, pool, random, single=False)
        context = plan_format_context(KINDS_PROFILE, pool, rules, "auto", constrained=True)
        parser = PLAN_FORMATS["native"].parser(context)
        parsed = [*parser.feed(lesson.text), *parser.end()]
        joined = 1 if parser.joined else 0
        assert len(parsed) + joined == lesson.steps
        assert all(isinstance(step, ParsedStep) for step in parsed)


def test_a_pool_of_one_worker_gets_plans_of_one_step() -> None:
    pool = pool_of(ann={"code": 0.9})
    for task in drawn_tasks(100):
        assert [step.subtask for step, _ in plan_for(task, context_of(pool))] == [ANSWER_DIRECTLY]


def test_a_plan_keeps_to_a_lower_limit_of_steps() -> None:
    pool = pool_of(ann={"code": 0.9}, ben={"code": 0.5})
    for task in drawn_tasks(100):
        assert len(plan_for(task, context_of(pool, steps=2))) <= 2


def test_a_reviewer_is_another_worker_than_the_author_even_if_that_one_is_much_worse() -> None:
    worse = pool_of(ann={"code": 0.9, "math": 0.9}, ben={"code": 0.5, "math": 0.4})
    assert choose("review", context_of(worse), other_than=("ann",)).worker == "ben"
    pool = pool_of(ann={"code": 0.9, "math": 0.9}, ben={"code": 0.8, "math": 0.8})
    for task in drawn_tasks(300):
        plan = plan_for(task, context_of(pool))
        for (step, _), shape in zip(plan, task.steps, strict=False):
            authors = {plan[number - 1][0].worker for number in shape.other_than if len(plan) > 1}
            if len(authors) == 1:
                assert step.worker not in authors


def test_a_worker_that_may_not_see_the_files_is_never_chosen() -> None:
    pool = pool_of(ann={"code": 0.9}, ben={"code": 0.8}, cem={"code": 0.75})
    chosen = choose("code", context_of(pool), other_than=("ben",), withheld="ann")
    assert chosen.worker == "cem"


def test_a_plan_names_the_kind_of_work_and_the_first_worker_of_its_row() -> None:
    pool = pool_of(ben={"facts": 0.8}, ann={"code": 0.9})
    chosen = choose("regex", context_of(pool))
    assert (chosen.worker, chosen.tag) == ("ann", "regex")


def test_names_of_the_examination_are_in_no_lesson() -> None:
    assert not set(WORDS["names"]) & set(WORDS["held_names"])
    assert not set(WORDS["tags"]) & set(WORDS["held_tags"])
    lessons = chain.from_iterable(draw_group(f"{number}", 8) for number in range(100))
    texts = {lesson.request.messages[-1].content for lesson in lessons}
    for examined, text in product(chain.from_iterable(sixty[:50] for sixty in SIXTIES), texts):
        assert examined.question.text not in text


@pytest.mark.parametrize(
    "questions",
    SIXTIES,
    ids=["first", "later", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"],
)
def test_an_examination_has_sixty_questions_of_four_kinds(questions: Sequence[Examined]) -> None:
    assert Counter(examined.kind for examined in questions) == {
        "easy": 20,
        "several": 20,
        "file": 10,
        "odd": 10,
    }


def test_the_same_seed_draws_the_same_lessons() -> None:
    assert draw_group("1 5", 8) == draw_group("1 5", 8) != draw_group("1 6", 8)


def test_a_worker_without_the_files_is_in_no_plan_for_them() -> None:
    pool = pool_of(ann={"code": 0.9}, ben={"code": 0.5}, cem={"code": 0.4})
    mentions = 0
    for number in range(1500):
        random = Random(number)
        lesson = make_lesson(draw_task(random), pool, random, single=False)
        prompt = lesson.request.messages[-1].content
        for label in re.findall(r"^(\w) is not shown the attached files", prompt, re.MULTILINE):
            mentions += 1
            assert f" {label}\n" not in f"{lesson.text}\n"
    assert mentions > 5

"""What happens to a plan while it arrives.

Repeated steps are left out, steps that nobody reads get a reader, a single step sends the bare
question, and a planner in a loop is stopped.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core import events as ev
from conductor_cli.core.plan import Plan, PlanRules, Step, check_plan, unread_steps
from conductor_cli.core.plan_formats import ParsedStep
from conductor_cli.core.plan_formats.base import ANSWER_DIRECTLY
from conductor_cli.core.pool import Limits
from conductor_cli.core.profile import KINDS_PROFILE
from conductor_cli.core.question import File, Question
from conductor_cli.models.base import ScriptedModel
from conductor_cli.run.orchestra import Orchestra
from conductor_cli.run.plan_stream import RepeatFilter
from tests.run.kit import BLIND, of, play, says, setting, with_team

SOLVE = Step(worker="ann", subtask="Solve it.")


def kept(
    *steps: Step, standing: tuple[Step, ...] = (), keep_last: bool = False
) -> tuple[list[Step], list[int]]:
    """The steps of a whole plan that are left, and the numbers of the others."""
    repeats = RepeatFilter(standing, keep_last=keep_last)
    steps_left = list(standing)
    for number, step in enumerate(steps, start=len(standing) + 1):
        item = repeats.renumber_step(
            ParsedStep(number=number, step=step, last=number == len(standing) + len(steps))
        )
        if item is not None:
            steps_left.append(item.step)
            assert item.number == len(steps_left)
    return steps_left, repeats.left_out


@pytest.mark.parametrize("keep_last", [False, True])
def test_a_planner_that_only_repeats_its_newest_step_is_in_a_loop(*, keep_last: bool) -> None:
    repeats = RepeatFilter(keep_last=keep_last)
    check = Step(worker="bob", subtask="Check.")
    loops = []
    for number, step in enumerate(
        [SOLVE, check, SOLVE, SOLVE, SOLVE, check, check, check], start=1
    ):
        repeats.renumber_step(ParsedStep(number=number, step=step, last=False))
        loops.append(repeats.is_loop)
    assert loops == [False] * 7 + [not keep_last]


def test_a_step_that_differs_in_anything_stays() -> None:
    steps = (
        SOLVE,
        Step(worker="bob", subtask="Solve it."),
        Step(worker="ann", subtask="Solve it!"),
        Step(worker="ann", subtask="Solve it.", access=(1,)),
        Step(worker="ann", subtask="Solve it.", access=(2, 1)),
    )
    assert kept(*steps) == ([*steps], [])
    again = Step(worker="ann", subtask="Solve it.", access=(1, 2))
    assert kept(*steps, again, Step(worker="bob", subtask="End."))[1] == [6]


def test_access_lists_follow_the_new_numbers() -> None:
    check = Step(worker="bob", subtask="Check.", access=(1, 2, 3))
    other = Step(worker="bob", subtask="Solve it.")
    assert kept(SOLVE, SOLVE, other, check) == ([SOLVE, other, replace(check, access=(1, 2))], [2])


def test_a_last_step_that_repeats_an_older_one_stays() -> None:
    check = Step(worker="bob", subtask="Check.", access=(1,))
    assert kept(SOLVE, check, SOLVE) == ([SOLVE, check, SOLVE], [])
    assert kept(SOLVE, SOLVE, keep_last=True) == ([SOLVE, SOLVE], [])


def test_steps_that_stand_count_too() -> None:
    check = Step(worker="bob", subtask="Check.", access=(2,))
    assert kept(SOLVE, check, standing=(SOLVE,)) == ([SOLVE, replace(check, access=(1,))], [2])


STEPS = st.lists(
    st.tuples(st.sampled_from(["ann", "bob"]), st.sampled_from("xy"), st.sets(st.integers(1, 4))),
    min_size=1,
)


@given(STEPS, st.booleans())
def test_what_is_left_is_a_valid_plan_without_repetitions(
    rows: list[tuple[str, str, set[int]]], keep_last: bool
) -> None:
    steps = [
        Step(
            worker=worker,
            subtask=subtask,
            access=tuple(sorted(item for item in access if item < number)),
        )
        for number, (worker, subtask, access) in enumerate(rows, start=1)
    ]
    remaining, left_out = kept(*steps, keep_last=keep_last)
    check_plan(Plan(steps=tuple(remaining)), PlanRules(workers=("ann", "bob"), steps=len(steps)))
    assert len(remaining) + len(left_out) == len(steps)
    unique = {(step.worker, step.subtask, frozenset(step.access)) for step in remaining}
    assert len(unique) >= len(remaining) - 1


def test_a_last_step_that_repeats_the_newest_stays_where_it_can_read_another() -> None:
    other = Step(worker="bob", subtask="Solve it.")
    assert kept(SOLVE, other, other) == ([SOLVE, other, other], [])


def plan_of(*steps: tuple[str, tuple[int, ...], str]) -> Plan:
    return Plan(
        steps=tuple(
            Step(worker=worker, access=access, subtask=subtask) for worker, access, subtask in steps
        )
    )


@pytest.mark.parametrize("given_plan", [False, True], ids=["planned", "from a file"])
def test_the_last_step_reads_what_no_other_step_reads(given_plan: bool) -> None:
    workers = {"ann": says("one"), "bob": says("two"), "cyd": says("end")}
    orchestra = setting("A | - | a\nB | - | b\nC | 1 | c", workers)
    spec: dict[str, Any] = {"plan": plan_of(("ann", (), "a"), ("bob", (), "b"), ("cyd", (1,), "c"))}
    run, events = play(orchestra, **(spec if given_plan else {}))
    assert [record.step.access for record in run.trace.steps] == [(), (), (1, 2)]
    assert "\ntwo\n" in workers["cyd"].requests[0].messages[-1].content
    (text,) = texts(events)
    assert text.startswith("no step reads step 2, so the last step reads it as well; put it on")


POINTING = "Write a parser. | - | A\nTest it. | - | B\nC"


def closing_setting(plan: str) -> Orchestra:
    profile = replace(KINDS_PROFILE, cards="lines")
    return with_team(setting(plan), profile=profile, constrained=True)


def test_a_step_that_says_it_and_reads_nothing_reads_what_is_before_it() -> None:
    run, events = play(closing_setting(POINTING))
    assert [record.step.access for record in run.trace.steps] == [(), (1,), (1, 2)]
    (text,) = texts(events)
    assert text.startswith('step 2 says "it", so it reads step 1 as well; put other numbers on')


def test_a_step_that_says_each_reads_all_before_it() -> None:
    run, _ = play(closing_setting("Ask. | - | A\nLook. | - | B\nJudge each. | 1 | A\nC"))
    assert [record.step.access for record in run.trace.steps] == [(), (), (1, 2), (1, 2, 3)]


def test_it_may_be_an_attached_file() -> None:
    question = Question(text="Mend and test it.", files=(File(name="a.py", text="x = 1"),))
    run, _ = play(closing_setting(POINTING), question=question)
    assert [record.step.access for record in run.trace.steps] == [(), (), (1, 2)]


@pytest.mark.parametrize("subtask", ["Testing A, B.", "Testing B", "Testing"])
def test_a_subtask_that_names_only_a_kind_of_work_is_worded(subtask: str) -> None:
    orchestra = with_team(setting(f"Write it. | - | A\n{subtask} | 1 | testing B\ncode A"))
    orchestra = with_team(orchestra, profile=KINDS_PROFILE, constrained=True)
    run, events = play(orchestra)
    worded = "Do the part of the question that is about testing."
    assert [record.step.subtask for record in run.trace.steps][:2] == ["Write it.", worded]
    (text,) = texts(events)
    assert text.startswith(f"step 2 was planned as {subtask!r}, which says only the kind of work")


def test_a_task_of_two_kinds_of_work_stays_as_it_is() -> None:
    plan = "Write it. | - | A\nSecurity review. | 1 | security B\ncode A"
    orchestra = with_team(setting(plan), profile=KINDS_PROFILE, constrained=True)
    run, _ = play(orchestra)
    assert run.trace.steps[1].step.subtask == "Security review."


def test_a_last_step_and_an_answer_by_the_same_worker_are_one_call() -> None:
    workers = {"ann": says("parser"), "bob": says("tests"), "cyd": says("end")}
    plan = "Write a parser. | - | A\nTest it. | 1 | B\nB"
    orchestra = setting(plan, workers)
    profile = replace(KINDS_PROFILE, cards="lines")
    run, events = play(with_team(orchestra, profile=profile, constrained=True))
    assert [record.step.worker for record in run.trace.steps] == ["ann", "bob"]
    assert run.trace.steps[1].step.subtask.startswith("Test it. Then answer the whole question")
    (text,) = texts(events)
    assert text.startswith("step 2 also gives the answer: the planner wanted that from the same")


def test_a_joined_step_is_named_by_the_number_that_it_has_in_the_run() -> None:
    plan = "Write it. | - | A\nWrite it. | - | A\nTest it. | 1 2 | B\nB"
    run, events = play(closing_setting(plan))
    assert [record.step.access for record in run.trace.steps] == [(), (1,)]
    assert any(text.startswith("step 2 also gives the answer") for text in texts(events))


def test_a_step_and_an_answer_by_the_same_worker_ask_it_the_question_itself() -> None:
    run, events = play(closing_setting("Write a parser. | - | B\nB"))
    assert [record.step.subtask for record in run.trace.steps] == [ANSWER_DIRECTLY]
    (text,) = texts(events)
    assert text.startswith("the planner wanted one step and then the answer")


def test_independent_steps_stay_independent() -> None:
    run, _ = play(closing_setting("Write a parser. | - | A\nWrite a poem. | - | B\nC"))
    assert [record.step.access for record in run.trace.steps] == [(), (), (1, 2)]


def test_workers_with_prompts_of_their_own_are_shown_only_what_is_planned() -> None:
    run, events = play(setting("A | - | a\nB | - | b", worker_profile=BLIND))
    assert run.trace.steps[-1].step.access == ()
    assert texts(events) == []


def test_a_plan_of_one_step_sends_the_bare_question() -> None:
    workers = {"ann": says("one"), "bob": says("391")}
    question = Question(text="17 * 23?")
    run, _ = play(setting("B | - | 17 * 23 = 401", workers), question)
    assert run.trace.steps[0].step.subtask == ANSWER_DIRECTLY
    assert workers["bob"].requests[0].messages[-1].content == question.text


def test_a_given_plan_of_one_step_keeps_its_words() -> None:
    workers = {"ann": says("one")}
    play(setting(None, workers), plan=plan_of(("ann", (), "Answer in French.")))
    assert "Do this now: Answer in French." in workers["ann"].requests[0].messages[-1].content


def test_a_plan_out_of_the_examples_is_written_again() -> None:
    copied = "A | - | Merge overlapping intervals in Python, and test it well.\nB | 1 | Check it."
    planner = ScriptedModel([[copied], ["A | - | Sort them.\nB | 1 | Check them."]])
    run, events = play(setting(planner))
    (rejected,) = of(events, ev.PlanRejected)
    assert rejected.problem == "step 1 repeats an example; its subtask must be about the question"
    assert [record.step.subtask for record in run.trace.steps] == ["Sort them.", "Check them."]


def test_a_planner_that_nobody_measured_plans_two_steps_and_the_user_is_told() -> None:
    capped = with_team(setting("A | - | a\nB | 1 | b", limits=Limits()), max_steps=2)
    capped = replace(capped, limits=Limits())
    run, events = play(capped)
    assert len(run.trace.steps) == 2
    assert "conductor config set limits.steps 5 allows more" in texts(events)[0]
    for steps, plan in ((3, "A | - | a\nB | 1 | b"), (None, "A | - | a")):
        orchestra = replace(with_team(setting(plan), max_steps=2), limits=Limits(steps=steps))
        assert texts(play(orchestra)[1]) == []


def test_a_small_planner_that_nobody_measured_plans_one_step_and_the_user_is_told() -> None:
    capped = replace(with_team(setting("A | - | a"), max_steps=1), limits=Limits())
    run, events = play(capped)
    assert len(run.trace.steps) == 1
    assert texts(events)[0].startswith("the plan has at most 1 step, because nobody has measured")


def test_without_a_limit_the_planner_is_asked_for_as_many_steps_as_it_may_have() -> None:
    planner = ScriptedModel([["A | - | a"]])
    play(replace(with_team(setting(planner), max_steps=2), limits=Limits()))
    assert "else at most 2 steps." in planner.requests[0].messages[1].content


def texts(events: list[ev.Event]) -> list[str]:
    return [notice.text for notice in of(events, ev.Notice)]


@given(STEPS)
def test_only_steps_on_no_later_list_are_unread(rows: list[tuple[str, str, set[int]]]) -> None:
    steps = [
        Step(worker=worker, subtask=subtask, access=tuple(sorted(access)))
        for worker, subtask, access in rows
    ]
    read = {len(steps)}.union(*(step.access for step in steps))
    assert set(unread_steps(steps)) == set(range(1, len(steps) + 1)) - read

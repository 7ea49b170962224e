"""Steps of a plan that repeat an earlier one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core import events as ev
from conductor_cli.core.learning import ALL_KINDS, Exploration, SkillEstimate
from conductor_cli.core.plan import Plan, PlanRules, Step, check_plan
from conductor_cli.core.plan_formats import ParsedStep
from conductor_cli.core.policy import Party, Policy, PoolPolicy
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.question import File, Question
from conductor_cli.core.usage import FREE
from conductor_cli.run.plan_stream import RepeatFilter
from tests.run.kit import QUESTION, notices, of, plan_of, play, pool_of, setting

SOLVE = Step(worker="ann", subtask="Solve it.")


def kept(*steps: Step, standing: tuple[Step, ...] = (), keep_last: bool = False) -> tuple[list[Step], list[int]]:
    """The steps of a whole plan that are left, and the numbers of the others."""
    repeats, found = RepeatFilter(standing, keep_last=keep_last), list(standing)
    for number, step in enumerate(steps, start=len(standing) + 1):
        item = repeats.take(ParsedStep(number=number, step=step, last=number == len(standing) + len(steps)))
        if item is not None:
            found.append(item.step)
            assert item.number == len(found)
    return found, repeats.left_out


def test_a_planner_that_writes_one_step_five_times_has_written_one() -> None:
    again = Step(worker="ann", subtask="Solve  it. ")
    assert kept(SOLVE, again, SOLVE, again, SOLVE) == ([SOLVE], [2, 3, 4, 5])


def test_a_planner_that_only_repeats_itself_is_in_a_loop() -> None:
    steps = [SOLVE, SOLVE, SOLVE, Step(worker="bob", subtask="Check."), SOLVE, SOLVE, SOLVE]
    for keep_last in (False, True):
        repeats, seen = RepeatFilter(keep_last=keep_last), []
        for number, step in enumerate([*steps[:4], *[steps[3]] * 3], start=1):
            repeats.take(ParsedStep(number=number, step=step, last=False))
            seen.append(repeats.is_loop)
        assert seen == [False] * 6 + [not keep_last]
    repeats = RepeatFilter()
    for number, step in enumerate(steps, start=1):
        repeats.take(ParsedStep(number=number, step=step, last=False))
    assert not repeats.is_loop


def test_a_step_that_differs_in_anything_stays() -> None:
    steps = (
        SOLVE, Step(worker="bob", subtask="Solve it."), Step(worker="ann", subtask="Solve it!"),
        Step(worker="ann", subtask="Solve it.", access=(1,)), Step(worker="ann", subtask="Solve it.", access=(2, 1)),
    )  # fmt: skip
    assert kept(*steps) == ([*steps], [])
    assert kept(*steps, Step(worker="ann", subtask="Solve it.", access=(1, 2)))[1] == [6]


def test_access_lists_follow_the_new_numbers() -> None:
    check = Step(worker="bob", subtask="Check.", access=(1, 2, 3))
    other = Step(worker="bob", subtask="Solve it.")
    assert kept(SOLVE, SOLVE, other, check) == (
        [SOLVE, other, Step(worker="bob", subtask="Check.", access=(1, 2))],
        [2],
    )


def test_a_last_step_that_repeats_an_older_one_stays() -> None:
    check = Step(worker="bob", subtask="Check.", access=(1,))
    assert kept(SOLVE, check, SOLVE) == ([SOLVE, check, SOLVE], [])
    assert kept(SOLVE, SOLVE, keep_last=True) == ([SOLVE, SOLVE], [])


def test_steps_that_stand_count_too() -> None:
    assert kept(SOLVE, Step(worker="bob", subtask="Check.", access=(2,)), standing=(SOLVE,)) == (
        [SOLVE, Step(worker="bob", subtask="Check.", access=(1,))], [2],
    )  # fmt: skip


STEPS = st.lists(
    st.tuples(st.sampled_from(["ann", "bob"]), st.sampled_from("xy"), st.sets(st.integers(1, 4))), min_size=1
)


@given(STEPS, st.booleans())
def test_what_is_left_is_a_valid_plan_without_repetitions(
    rows: list[tuple[str, str, set[int]]], keep_last: bool
) -> None:
    steps = [
        Step(worker=worker, subtask=subtask, access=tuple(sorted(item for item in access if item < number)))
        for number, (worker, subtask, access) in enumerate(rows, start=1)
    ]
    found, left_out = kept(*steps, keep_last=keep_last)
    check_plan(Plan(steps=tuple(found)), PlanRules(workers=("ann", "bob"), steps=len(steps)))
    assert len(found) + len(left_out) == len(steps)
    unique = {(step.worker, step.subtask, frozenset(step.access)) for step in found}
    assert len(unique) >= len(found) - 1


NAMES = ("ann", "bob", "cyd")
ONE = "ann | - | Answer it."
TWO = "ann | - | Find it.\nann | 1 | Answer it."


def always(**more: Any) -> dict[str, Any]:
    estimates = {name: {ALL_KINDS: SkillEstimate(card=0.5)} for name in NAMES}
    exploration = Exploration(probability=1.0, estimates=estimates)
    return {"exploration": exploration, "pool": pool_of(*NAMES, price=FREE), **more}


def test_one_step_of_a_run_is_tried_on_another_worker() -> None:
    run, events = play(setting(TWO, **always()))
    one, two = of(events, ev.StepPlanned)
    assert (one.preferred, one.propensity, one.worker in ("bob", "cyd")) == ("ann", 0.5, True)
    assert (two.preferred, two.propensity, two.worker) == ("", None, "ann")
    (text,) = [text for text in notices(events) if "is tried instead of ann" in text]
    assert "a chance of 50.0%; learning.explore" in text
    record = run.trace.steps[0]
    assert (record.text, record.preferred, record.propensity) == (f"from {one.worker}", "ann", 0.5)


def test_a_step_that_stays_has_its_probability_too() -> None:
    estimates = {name: {ALL_KINDS: SkillEstimate(card=0.5)} for name in NAMES}
    _, events = play(setting(ONE, **always(exploration=Exploration(probability=1e-9, estimates=estimates))))
    (planned,) = of(events, ev.StepPlanned)
    assert (planned.worker, planned.preferred, planned.propensity) == ("ann", "", 1.0)


def party(name: str, *, local: bool) -> Party:
    return Party(name=name, recipient="this machine" if local else "north", local=local)


@pytest.mark.parametrize(
    "more",
    [
        {"exploration": None},
        {"seed": 1},
        {"pool": pool_of("ann", price=FREE)},
        {"pool_policy": PoolPolicy(policy=Policy(deny=("bob", "cyd")))},
        {"pool_policy": PoolPolicy(parties={name: party(name, local=name == "ann") for name in NAMES})},
        {
            "pool": Pool(
                workers=tuple(Worker(name=n, kind="scripted", price=FREE if n == "ann" else None) for n in NAMES)
            )
        },
        {"pool": Pool(workers=tuple(Worker(name=n, kind="codex" if n != "ann" else "x", price=FREE) for n in NAMES))},
    ],
    ids=["off", "seed", "one worker", "denied", "leaves this machine", "price unknown", "agents"],
)
def test_no_rule_is_broken_by_trying_another_worker(more: dict[str, Any]) -> None:
    _, events = play(setting(ONE, **always(**more)))
    (planned,) = of(events, ev.StepPlanned)
    assert (planned.worker, planned.preferred, planned.propensity) == ("ann", "", None)
    assert not [text for text in notices(events) if "instead" in text]


def test_files_stay_with_the_workers_that_may_see_them() -> None:
    question = Question(text="What is in it?", files=(File(name="a.txt", text="secret"),))
    rule = PoolPolicy(policy=Policy(files_only=(("ann", "self"),)))
    _, events = play(setting(ONE, **always(pool_policy=rule)), question)
    assert of(events, ev.StepPlanned)[0].worker == "ann"


def test_what_is_given_or_only_planned_is_left_as_it_is() -> None:
    plan = plan_of(("ann", ()))
    for question, more in ((QUESTION, {"plan": plan}), (QUESTION, {"plan_only": True}),
                           (Question(text="How many?", schema={"type": "object"}), {})):  # fmt: skip
        _, events = play(setting(ONE, **always()), question, **more)
        assert of(events, ev.StepPlanned)[0].worker == "ann"

"""A run that holds its plan until somebody has decided about it."""

from __future__ import annotations

from typing import Any

import pytest

from conductor_cli.core import events as ev
from conductor_cli.core.errors import Failure
from conductor_cli.core.plan import SELF, Decision, Plan
from conductor_cli.core.plan_formats.base import ANSWER_DIRECTLY
from conductor_cli.core.pool import Limits
from conductor_cli.models.base import ScriptedModel
from conductor_cli.run import Run
from conductor_cli.run.plan_stream import REVIEW
from tests.run.kit import QUESTION, error_of, kinds, later, of, plan_of, play, says, setting, start

TWO = "A | - | one\nB | 1 | two"
OTHER = "B | - | other"


def decided(
    orchestra: Any, *decisions: Decision | None, after: float = 1.0, **fields: Any
) -> tuple[Run, list[ev.Event]]:
    """Run the question, and answer each offer after some seconds with the next decision.

    None drops the plan.
    """
    left = list(decisions)

    def act(run: Run, event: ev.Event) -> None:
        if isinstance(event, ev.PlanOffered):
            decision = left.pop(0)
            later(after, *((run.stop, "cancelled") if decision is None else (run.decide, decision)))

    events = play(orchestra, act=act, approves=True, **fields)
    assert not left
    return events


def test_nothing_starts_before_the_plan_is_approved() -> None:
    workers = {"ann": says("a"), "bob": says("b")}
    run, events = decided(setting(TWO, workers), Decision())
    assert kinds(events) == [
        "run_started",
        "step_planned",
        "step_planned",
        "plan_ready",
        "plan_offered",
        "plan_decided",
        "step_started",
        "step_finished",
        "step_started",
        "step_finished",
        "run_finished",
    ]
    assert of(events, ev.StepStarted)[0].at - of(events, ev.PlanOffered)[0].at == 1.0
    assert (run.trace.answer, run.state.planning.awaits_approval) == ("b", False)
    assert run.trace.planning.calls == 1


def test_a_plan_that_is_dropped_costs_its_planning_only() -> None:
    ann = says("a")
    run, _ = decided(setting("A | - | one", {"ann": ann}), None)
    assert (run.trace.state, run.trace.exit_code) == ("failed", 130)
    assert [record.state for record in run.trace.steps] == ["skipped"]
    assert ann.requests == []
    assert run.trace.usage == run.trace.planning
    assert (run.may_edit_plan, run.may_replan) == (True, True)
    again, _ = decided(setting(says("never asked"), {"ann": ann}), Decision(), resume=run.trace)
    assert (again.trace.answer, again.trace.planning.calls) == ("a", 0)


def test_an_edited_plan_is_offered_too_and_runs_as_it_is() -> None:
    workers = {"ann": says("a"), "bob": says("b")}
    plan = plan_of(("bob", [], "mine"))
    run, events = decided(setting(TWO, workers), Decision(edited=plan), Decision())
    assert [event.verdict for event in of(events, ev.PlanDecided)] == ["edited", "approved"]
    assert run.trace.plan == plan
    assert [record.step.subtask for record in run.trace.steps] == ["mine"]
    assert (run.trace.answer, workers["ann"].requests) == ("b", [])


def test_replanning_shows_the_conductor_the_old_plan_and_the_feedback() -> None:
    model = ScriptedModel([[TWO], [OTHER], ["A | - | third"]])
    run, events = decided(
        setting(model), Decision(feedback="Use bob."), Decision(feedback="No, ann."), Decision()
    )
    assert [record.step.subtask for record in run.trace.steps] == [ANSWER_DIRECTLY]
    first, second, third = (request.messages for request in model.requests)
    assert second[: len(first)] == first
    assert (second[len(first)].role, second[len(first)].content) == ("assistant", TWO)
    assert "Use bob." in second[-1].content
    assert third[: len(second)] == second
    assert third[-2].content == f"B | - | {ANSWER_DIRECTLY}"
    assert "No, ann." in third[-1].content
    assert [event.feedback for event in of(events, ev.PlanDecided)] == ["Use bob.", "No, ann.", ""]
    assert run.trace.planning.calls == 3
    assert [event.prompt for event in of(events, ev.PlanReady)] == [first, second, third]


def test_a_review_is_there_once() -> None:
    edited = Decision(edited=plan_of(("ann", []), (SELF, [1], REVIEW)))
    model = ScriptedModel([["A | - | one"], ["accept"]])
    run, _ = decided(setting(model, limits=Limits(recursion=1)), edited, Decision())
    assert [record.step.worker for record in run.trace.steps] == ["ann", SELF]
    assert run.trace.answer == "from ann"


def test_the_conductor_is_not_shown_the_review_as_its_own_writing() -> None:
    model = ScriptedModel([["A | - | one"], ["B | - | two"], ["accept"]])
    run, _ = decided(
        setting(model, limits=Limits(recursion=1)), Decision(feedback="Again."), Decision()
    )
    assert [record.step.worker for record in run.trace.steps] == ["bob", SELF]
    assert model.requests[1].messages[-2].content == f"A | - | {ANSWER_DIRECTLY}"


def test_the_time_that_the_user_takes_counts_against_no_limit() -> None:
    run, _ = decided(setting("A | - | one", limits=Limits(seconds=10)), Decision(), after=60.0)
    assert (run.trace.answer, run.trace.error) == ("from ann", None)
    slow = {"ann": ScriptedModel([[20.0, "late"]])}
    run, events = decided(
        setting("A | - | one", slow, limits=Limits(seconds=10)), Decision(), after=60.0
    )
    assert (error_of(run).kind, events[-1].at) == ("limit", 70.0)


def test_a_plan_that_came_with_the_run_is_offered_too() -> None:
    plan = plan_of(("ann", []))
    dropped, _ = decided(setting(None), None, plan=plan)
    assert (dropped.may_edit_plan, dropped.may_replan) == (True, False)
    assert decided(setting(None), Decision(), plan=plan)[0].trace.answer == "from ann"


def test_a_resumed_run_with_finished_steps_is_offered_and_not_edited() -> None:
    half = {"ann": says("a"), "bob": ScriptedModel([[60.0, "late"]])}
    stopped, _ = decided(setting(TWO, half, limits=Limits(seconds=10)), Decision())
    assert list(stopped.trace.done()) == [1]
    again = setting("never", {"ann": says("no"), "bob": says("b")})
    dropped, _ = decided(again, None, resume=stopped.trace)
    assert (dropped.may_edit_plan, dropped.may_replan) == (False, False)
    assert decided(again, Decision(), resume=stopped.trace)[0].trace.answer == "b"


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        (plan_of(("eve", [])), "step 1 names a worker that is not in the pool: 'eve'"),
        (plan_of(*[("ann", ())] * 3), "step 3 exceeds the limit of 2 steps"),
        (plan_of(("cyd", [])), "the plan names cyd, which cannot be used: no key"),
        (plan_of(("ann", [2])), "step 1 cannot see itself or a later step: 2"),
        (plan_of(("bob", [])), ""),
    ],
)
def test_an_edited_plan_is_checked_first(plan: Plan, problem: str) -> None:
    gone = Failure(kind="key", message="no key")
    orchestra = setting(
        "A | - | one", limits=Limits(steps=2), unavailable={"cyd": gone}, clock=lambda: 0.0
    )
    failure = start(orchestra, QUESTION, approves=True).problem_with(plan)
    assert (failure.message if failure is not None else "") == problem


def test_a_plan_may_be_longer_by_the_reviews_that_are_added_to_it() -> None:
    orchestra = setting("A | - | one", limits=Limits(steps=2, recursion=1), clock=lambda: 0.0)
    run = start(orchestra, QUESTION, approves=True)
    assert run.problem_with(plan_of(*[("ann", ())] * 3)) is None
    assert run.problem_with(plan_of(*[("ann", ())] * 4)) is not None


def test_a_decision_without_an_offer_changes_nothing() -> None:
    def decide(run: Run, event: ev.Event) -> None:
        if isinstance(event, (ev.RunStarted, ev.PlanOffered)):
            run.decide(Decision())
            run.decide(Decision(edited=Plan(steps=())))

    assert play(setting("A | - | one"), act=decide, approves=True)[0].trace.answer == "from ann"

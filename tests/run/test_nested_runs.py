from __future__ import annotations

from dataclasses import replace
from typing import Any

from conductor_cli.core import events as ev
from conductor_cli.core.errors import Failure, ModelError
from conductor_cli.core.plan import KeepAnswer
from conductor_cli.core.pool import Limits
from conductor_cli.core.profile import PROMPTED
from conductor_cli.models.base import ScriptedModel
from conductor_cli.run.plan_stream import REVIEW
from tests.run.kit import (
    QUESTION,
    WITH_SELF,
    Counting,
    error_of,
    inner,
    kinds,
    notices,
    of,
    play,
    play_and_stop,
    says,
    setting,
    with_self,
)

ONCE = Limits(recursion=1)
TWO = {"ann": says("from ann"), "bob": says("from bob")}


def test_recursion_appends_a_step_in_which_the_conductor_reads_the_answer() -> None:
    """Its question is the question and the subtask."""
    planner = ScriptedModel([["A | - | one\nB | 1 | two"], ["accept"]])
    run, events = play(setting(planner, limits=ONCE))
    review = of(events, ev.StepPlanned)[-1]
    assert (review.worker, review.subtask, review.access, review.last) == ("self", REVIEW, (1, 2), True)
    nested = inner(events, 3)
    assert kinds(nested) == ["run_started", "plan_ready", "run_finished"]
    (begun,) = of(nested, ev.RunStarted)
    assert begun.question.text.startswith(f"{QUESTION.text}\n\nWithin this question, the subtask is: Check the answer")
    assert (begun.run, begun.question.parent) == (f"{run.id}.3", run.id)
    assert [(item.worker, item.subtask, item.answer) for item in begun.question.given] == [
        ("ann", "one", "from ann"), ("bob", "two", "from bob"),
    ]  # fmt: skip
    assert "from bob" in planner.requests[1].messages[1].content
    assert (run.trace.answer, run.trace.partial) == ("from bob", False)
    assert run.trace.steps[2].nested is not None
    assert isinstance(run.trace.steps[2].nested.plan, KeepAnswer)


def test_a_verdict_stands_for_the_answer_that_it_judges() -> None:
    judging = replace(PROMPTED, verdicts=("YES", "NO"))
    workers = {"ann": says("from ann"), "bob": says("NO")}
    plan = "A | - | one\nB | 1 | check it"
    run, events = play(setting(ScriptedModel([[plan]]), workers, profile=judging))
    assert (run.trace.answer, run.trace.steps[1].text) == ("from ann", "NO")
    assert notices(events) == ["bob says of this answer: NO"]
    reasoned = {**workers, "bob": says("It is another one: NO")}
    assert play(setting(ScriptedModel([[plan]]), reasoned, profile=judging))[0].trace.answer == "from ann"
    plain, _ = play(setting(ScriptedModel([[plan]]), workers))
    assert plain.trace.answer == "NO"
    reviewed, events = play(setting(ScriptedModel([[plan], ["accept"]]), workers, profile=judging, limits=ONCE))
    assert [item.answer for item in of(inner(events, 3), ev.RunStarted)[0].question.given] == ["from ann", "NO"]
    assert reviewed.trace.answer == "from ann"


def test_a_corrective_workflow_replaces_the_answer() -> None:
    planner = ScriptedModel([["A | - | one"], ["B | 0 | Mend it."]])
    bob = says("mended")
    run, events = play(setting(planner, {"ann": says("wrong"), "bob": bob}, limits=ONCE))
    assert run.trace.answer == "mended"
    assert "wrong" in bob.requests[0].messages[-1].content
    assert "goes to the user" in bob.requests[0].messages[-1].content
    assert kinds(inner(events, 2)) == [
        "run_started", "step_planned", "plan_ready", "step_started", "step_finished", "run_finished",
    ]  # fmt: skip


def test_only_the_outermost_last_step_knows_that_its_answer_goes_to_the_user() -> None:
    ann, bob = says("from ann"), says("from bob")
    planner = ScriptedModel([["C | - | think\nB | 1 | end"], ["A | - | one"]])
    play(setting(planner, {"ann": ann, "bob": bob}, pool=WITH_SELF))
    assert "goes to the user" not in ann.requests[0].messages[-1].content
    assert "goes to the user" in bob.requests[0].messages[-1].content


def test_a_step_on_the_conductor_below_the_last_level_fails_by_name() -> None:
    planner = ScriptedModel([["C | - | think"], ["A | - | one"]])
    workers = {"ann": ScriptedModel([[ModelError("refused", "no")]]), "bob": says("x")}
    earlier, _ = play(setting(planner, workers, pool=WITH_SELF, limits=Limits(calls=1)))
    assert earlier.trace.exit_code == 6
    run, events = play(setting(None, TWO, pool=WITH_SELF), resume=earlier.trace)
    assert of(events, ev.StepFailed)[0].error == Failure(
        kind="conductor", message="a review needs a planner", reason="no_planner"
    )
    assert run.trace.exit_code == 5


def test_a_nested_run_without_depth_refuses_a_step_on_itself() -> None:
    planner = ScriptedModel([["A | - | one"], ["C | 0 | deeper"], [9.0, "accept"]])
    conductor = setting(planner, TWO, pool=WITH_SELF, limits=Limits(recursion=2))
    earlier, _ = play_and_stop(conductor, 5.0, "cancelled")
    shallow = setting(ScriptedModel([["accept"]]), TWO, pool=WITH_SELF, limits=ONCE)
    run, events = play(shallow, resume=earlier.trace)
    assert of(inner(events, 2), ev.StepFailed)[0].error.message == "runs cannot be nested any deeper"
    assert (run.trace.answer, run.trace.exit_code) == ("from ann", 7)


def test_a_failing_review_leaves_the_answer_it_was_to_review() -> None:
    planner = ScriptedModel([["A | - | one"], [ModelError("missing", "model gone")]])
    run, _ = play(setting(planner, limits=ONCE))
    assert (run.trace.answer, run.trace.partial, run.trace.exit_code) == ("from ann", True, 7)
    assert error_of(run).message == "the planner cannot plan: model gone"


def test_a_nested_answer_that_is_partial_makes_the_run_partial() -> None:
    planner = ScriptedModel([["A | - | one"], ["A | 0 | two\nB | 1 | three"]])
    refused = [ModelError("refused", "no")]
    workers = {"ann": ScriptedModel([["one"], ["two"], refused]), "bob": ScriptedModel([refused])}
    run, _ = play(setting(planner, workers, limits=ONCE))
    assert (run.trace.answer, run.trace.partial, run.trace.exit_code) == ("two", True, 7)


def test_keeping_the_answer_is_a_choice_in_mini_mode() -> None:
    planner = ScriptedModel([["B"], ["accept"]])
    run, _ = play(setting(planner, mode="mini", constrained=True, limits=ONCE))
    assert run.trace.answer == "from bob"
    assert 'root ::= "A" | "B" | "C" | "accept"' in (planner.requests[1].grammar or "")


def test_what_a_failed_step_left_is_not_given() -> None:
    planner = ScriptedModel([["A | - | one"], ["accept"], ["B | - | do it"]])
    workers = {
        "ann": ScriptedModel([[ModelError("refused", "no")]]),
        "bob": ScriptedModel([[ModelError("refused", "no")], ["yes"]]),
    }
    run, events = play(setting(planner, workers, limits=ONCE))
    assert of(inner(events, 2), ev.RunStarted)[0].question.given == ()
    assert of(inner(events, 2), ev.PlanRejected)[0].problem == "accept needs an existing answer, and there is none"
    assert run.trace.answer == "yes"


def test_stopping_reaches_into_nested_runs() -> None:
    planner = ScriptedModel([["A | - | one"], ["B | 0 | two\nA | 1 | three"]])
    workers: dict[str, Any] = {"ann": says("one"), "bob": Counting("two", seconds=60)}
    run, events = play_and_stop(setting(planner, workers, limits=ONCE), 10.0, "terminated")
    nested = inner(events, 2)
    assert nested[-1].kind == "run_failed"
    assert of(nested, ev.RunFailed)[0].error.kind == "terminated"
    assert [event.reason for event in of(nested, ev.StepStopped)] == ["cancelled", "cancelled"]
    assert [event.reason for event in of(events, ev.StepStopped)] == ["cancelled"]
    assert (run.trace.answer, run.trace.exit_code) == ("one", 143)


def test_what_a_nested_run_had_to_show_is_better_than_nothing() -> None:
    planner = ScriptedModel([["C | - | think"], ["A | - | one\nB | 1 | two"]])
    workers = {"ann": says("one"), "bob": ScriptedModel([["half a", 60.0, " word"]])}
    run, _ = play_and_stop(setting(planner, workers, pool=WITH_SELF), 10.0, "cancelled")
    assert (run.trace.answer, run.trace.partial, run.trace.exit_code) == ("half a", True, 130)


def test_winding_down_lets_a_nested_call_end_and_starts_nothing_after_it() -> None:
    planner = ScriptedModel([["A | - | one"], ["B | 0 | two\nA | 1 | three"]])
    ann, bob = ScriptedModel([["one"]]), Counting("two", seconds=60)
    run, events = play_and_stop(setting(planner, {"ann": ann, "bob": bob}, limits=ONCE), 10.0, "cancelled", "running")
    assert run.trace.at == 60.0
    assert len(ann.requests) == 1
    assert [event.step for event in of(inner(events, 2), ev.StepFinished)] == [1]
    assert (run.trace.answer, run.trace.partial, run.trace.exit_code) == ("two", True, 130)


def test_a_nested_run_that_is_not_needed_is_stopped() -> None:
    planner = ScriptedModel([["C | - | think\nA | - | end"], ["B | - | two"]])
    run, events = play(setting(planner, {"ann": Counting("end", 5), "bob": Counting(seconds=60)}, pool=WITH_SELF))
    assert [event.reason for event in of(events, ev.StepStopped)] == ["not_needed"]
    assert [event.reason for event in of(inner(events, 1), ev.StepStopped)] == ["not_needed"]
    assert of(inner(events, 1), ev.RunFailed)[0].error.kind == "cancelled"
    assert (run.trace.answer, run.trace.exit_code, run.trace.at) == ("end", 0, 5.0)


def test_nested_calls_count_against_the_places_of_the_run() -> None:
    plans = ["A | - | a\nA | - | b\nB | - | think\nA | 1 2 3 | end"], ["A | - | c\nA | - | d\nA | 1 2 | e"]
    for places, limits, most in ((2, Limits(), 2), (9, Limits(parallel=3), 3)):
        ann = Counting(seconds=3)
        play(setting(ScriptedModel([*plans]), {"ann": ann}, pool=with_self("ann", parallel=places), limits=limits))
        assert ann.most == most

"""The second plan of a run, for what nobody could do by the first.

When it is asked for, and its limits.
"""

from __future__ import annotations

from typing import Any

import pytest

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Request
from conductor_cli.core.continuation import reset_from_step
from conductor_cli.core.errors import ModelError, UsageError
from conductor_cli.core.plan import MAX_STEPS, Decision, PlanRules
from conductor_cli.core.plan_formats import PLAN_FORMATS
from conductor_cli.core.pool import Limits
from conductor_cli.core.profile import PROFILES, WorkerProfile
from conductor_cli.core.prompts import plan_format_context
from conductor_cli.models.base import ScriptedModel
from conductor_cli.run import Orchestra
from tests.run.kit import (
    BLIND,
    fold,
    notices,
    of,
    plan_of,
    play,
    play_and_stop,
    says,
    setting,
    with_team,
)

REFUSED = ModelError("refused", "secret words of the server")
UNREACHABLE = ModelError("connect", "no route")


class Picky(ScriptedModel):
    """Refuses each request whose subtask has one of these words, and says its name to others."""

    def __init__(
        self, name: str, *words: str, error: ModelError = REFUSED, seconds: float = 0.0
    ) -> None:
        super().__init__([[seconds, name]])
        self.words = words
        self.error = error

    async def stream(self, request: Request) -> Any:
        task = request.messages[-1].content.rpartition("Do this now:")[2]
        if any(word in task for word in self.words):
            self.requests.append(request)
            raise self.error
        async for chunk in super().stream(request):
            yield chunk


def requests(orchestra: Orchestra) -> list[Request]:
    """What the planner was sent."""
    assert isinstance(orchestra.team.model, ScriptedModel)
    return orchestra.team.model.requests


PLAN = "A | - | easy one\nB | - | hard two\nA | 2 | easy three\nB | 1 3 | easy four"


def revising(*replies: Any, words: tuple[str, ...] = ("hard",), **options: Any) -> Orchestra:
    planner = ScriptedModel([reply if isinstance(reply, list) else [reply] for reply in replies])
    workers = options.pop("workers", None) or {
        "ann": Picky("ann", *words),
        "bob": Picky("bob", *words),
    }
    return setting(planner, workers, revises=True, **options)


def test_the_planner_is_asked_for_the_rest_when_nobody_can_do_a_step() -> None:
    orchestra = revising(PLAN, "A | 1 | other five\nB | 5 | other six")
    run, events = play(orchestra)
    (revised,) = of(events, ev.PlanRevised)
    assert (revised.step, revised.workers, revised.left_out, revised.first) == (
        2,
        ("bob", "ann"),
        (3, 4),
        5,
    )
    states = [
        (record.number, record.state, record.reason, record.last) for record in run.trace.steps
    ]
    assert states == [
        (1, "done", None, False),
        (2, "failed", None, False),
        (3, "skipped", "plan_revised", False),
        (4, "skipped", "plan_revised", False),
        (5, "done", None, False),
        (6, "done", None, True),
    ]
    assert (run.trace.answer, run.trace.partial, run.trace.exit_code) == ("bob", False, 0)
    assert run.trace.planning.calls == 2
    assert run.trace.recovered[0].text == (
        "step 2 could not be done by bob or ann: bob failed: secret words of the server; ann "
        "failed: secret words of "
        "the server; the planner was asked for the rest of the plan"
    )


def test_the_planner_is_told_which_step_failed_by_whom_and_why_in_our_words() -> None:
    orchestra = revising(PLAN, "A | 1 | other five")
    play(orchestra)
    request = requests(orchestra)[1]
    plan, request_message = request.messages[-2:]
    assert (
        plan.content
        == "A | - | easy one\nB | - | hard two\nA | 2 | easy three\nB | 1 3 | easy four"
    )
    assert request_message.content.startswith(
        "Step 2 could not be done. These workers failed at it: B (it refused the request), A (it "
        "refused the request). "
        "Given up with it: steps 3, 4. Only step 1 can be seen by others. Write only the steps "
        "that follow, from "
        "step 5 on, at most 4. They take the place of what was not done, and the last one gives "
        "the answer."
    )
    assert "secret" not in repr(request)
    assert ["step5 ::=" in (request.grammar or ""), "step9" in (request.grammar or "")] == [
        True,
        False,
    ]


def test_a_new_step_never_reads_a_step_that_was_given_up() -> None:
    run, events = play(revising(PLAN, "A | 1 2 3 | other five\nB | all | other six"))
    assert [record.step.access for record in run.trace.steps[4:]] == [(1,), (1, 5)]
    assert [text for text in notices(events) if "runs without its answer" in text] == []
    # A step that was given up may be planned again word for word.
    run, _ = play(revising(PLAN, "A | 1 | easy three\nA | 1 | easy one"))
    assert [record.step.subtask for record in run.trace.steps[4:]] == ["easy three", "easy one"]


def test_the_plan_is_revised_once() -> None:
    orchestra = revising("A | - | easy one\nB | 1 | hard two", "A | 1 | hard three")
    run, events = play(orchestra)
    assert len(of(events, ev.PlanRevised)) == 1
    assert len(requests(orchestra)) == 2
    assert (run.trace.answer, run.trace.partial, run.trace.exit_code) == ("ann", True, 7)


@pytest.mark.parametrize(
    "reply", ["no plan at all", "Z | - | one\n", [ModelError("connect", "gone")]]
)
def test_where_the_planner_fails_the_best_worker_takes_the_rest(reply: Any) -> None:
    run, events = play(revising("A | - | easy one\nB | 1 | hard two", reply, reply))
    assert (run.trace.answer, run.trace.exit_code) == ("ann", 0)
    assert run.trace.steps[-1].step.access == (1,)
    assert "the steps planned so far are kept, and worker ann answers" in notices(events)[-1]
    run, _ = play(
        revising(
            "A | - | easy one\nB | 1 | hard two",
            reply,
            reply,
            words=("hard", "Answer the question"),
        )
    )
    assert (run.trace.answer, run.trace.exit_code) == ("ann", 7)


def test_the_rest_is_not_planned_on_a_worker_that_cannot_be_reached() -> None:
    workers = {"ann": Picky("ann", "hard"), "bob": Picky("bob", "hard", error=UNREACHABLE)}
    orchestra = revising("A | - | easy one\nB | 1 | hard two", "A | 1 | other", workers=workers)
    run, _ = play(orchestra)
    assert "Not available now: B." in requests(orchestra)[1].messages[1].content
    assert run.trace.answer == "ann"


def test_steps_that_run_go_on_while_the_rest_is_planned() -> None:
    workers = {"ann": Picky("ann", "hard", seconds=20.0), "bob": Picky("bob", "hard")}
    plans = "A | - | easy one\nB | - | hard two\nB | 1 2 | easy three", "B | 1 | other four"
    run, events = play(revising(*plans, workers=workers))
    assert of(events, ev.PlanRevised)[0].at == 0.0
    assert [(event.step, event.at) for event in of(events, ev.StepFinished)] == [
        (1, 20.0),
        (4, 20.0),
    ]
    assert [(event.step, event.worker) for event in of(events, ev.StepStarted)] == [
        (1, "ann"),
        (2, "bob"),
        (2, "ann"),
        (4, "bob"),
    ]
    assert run.trace.answer == "bob"


@pytest.mark.parametrize(
    ("plan", "workers", "spec", "ended"),
    [
        (
            "A | - | easy one\nB | 1 | hard two",
            {name: Picky(name, "hard", error=UNREACHABLE) for name in ("ann", "bob")},
            {"limits": Limits(steps=MAX_STEPS, attempts=1)},
            ("ann", 7),
        ),
        (
            "B | - | hard one\nA | - | easy two",
            {"ann": Picky("ann", "hard", seconds=20.0), "bob": Picky("bob", "hard")},
            {"worker_profile": BLIND},
            ("ann", 0),
        ),
        (
            "A | - | one",
            {"ann": ScriptedModel([["It is ", ModelError("broken", "cut")]]), "bob": says("bob")},
            {"streams_answer": True},
            ("It is ", 7),
        ),
    ],
    ids=["no worker can be reached", "an answer is being written", "a part of the answer is out"],
)
def test_nothing_is_planned_anew_where_it_is_of_no_use(
    plan: str, workers: dict[str, Any], spec: dict[str, Any], ended: tuple[str, int]
) -> None:
    profile = spec.pop("worker_profile", WorkerProfile())
    orchestra = revising(plan, "A | - | other", workers=workers, worker_profile=profile)
    run, events = play(orchestra, **spec)
    assert (len(requests(orchestra)), of(events, ev.PlanRevised)) == (1, [])
    assert (run.trace.answer, run.trace.exit_code) == ended


@pytest.mark.parametrize("how", ["off", "mini", "given", "approved"])
def test_some_plans_are_never_revised(how: str) -> None:
    orchestra = revising("A | - | easy one\nB | 1 | hard two", "A | 1 | other three")
    fields: dict[str, Any] = {}
    if how == "off":
        orchestra = with_team(orchestra, revises=False)
    elif how == "mini":
        orchestra = with_team(revising("A", words=("6 times 7",)), mode="mini")
    elif how == "given":
        fields["plan"] = plan_of(("ann", (), "easy"), ("bob", (1,), "hard"))
    elif how == "approved":
        fields["approves"] = True
        fields["act"] = lambda run, event: (
            run.decide(Decision()) if isinstance(event, ev.PlanOffered) else None
        )
    _, events = play(orchestra, **fields)
    assert of(events, ev.PlanRevised) == []
    assert of(events, ev.StepFailed) != []


def test_limits_hold_for_the_second_plan_and_its_steps() -> None:
    orchestra = revising(
        "A | - | easy one\nB | 1 | hard two",
        "A | 1 | three\nA | 3 | four",
        "A | 1 | three",
        limits=Limits(steps=2),
    )
    run, _ = play(orchestra)
    assert run.trace.rejected[0].problem == "the plan has more than 3 steps"
    assert run.trace.answer == "ann"
    orchestra = revising(
        "A | - | easy one\nB | 1 | hard two", "A | 1 | three", limits=Limits(calls=1)
    )
    run, _ = play(orchestra)
    assert run.trace.exit_code == 6


def test_a_run_can_be_stopped_in_the_middle_of_a_revision() -> None:
    orchestra = revising(PLAN, [5.0, "A | 1 | other five\nB | 5 | other six"])
    run, events = play_and_stop(orchestra, 1.0, "cancelled")
    assert (run.trace.answer, run.trace.exit_code) == ("ann", 130)
    again = revising("A | 1 | other five\nB | 5 | other six")
    resumed, events = play(again, resume=run.trace)
    assert resumed.trace.answer == "bob"
    assert [event.first for event in of(events, ev.PlanRevised)] == [5]
    assert [event.step for event in of(events, ev.StepStarted)] == [1, 5, 6]
    workers: Any = again.team.workers
    assert [len(workers[name].requests) for name in ("ann", "bob")] == [1, 1]


@pytest.mark.parametrize(
    "last", ["plan_revised", "step_stopped", "plan_delta", "step_planned", "plan_ready"]
)
def test_a_run_that_was_killed_in_its_revision_can_be_resumed(last: str) -> None:
    _, events = play(revising(PLAN, "A | 1 | other five\nB | 5 | other six"))
    begun = [event.kind for event in events].index("plan_revised")
    cut = begun + [event.kind for event in events][begun:].index(last) + 1
    earlier = fold(events[:cut])
    missing = ["A | 1 | other five\nB | 5 | other six", "B | 5 | other six"][
        min(len(earlier.steps) - 4, 1)
    ]
    run, resumed = play(revising(missing), resume=earlier)
    assert (run.trace.answer, run.trace.exit_code) == ("bob", 0)
    assert [event.first for event in of(resumed, ev.PlanRevised)] == [5]
    assert [event.step for event in of(resumed, ev.StepStarted)] == [1, 5, 6]
    assert len(run.trace.steps) == 6


def test_a_given_up_step_cannot_be_run_again() -> None:
    run, _ = play(revising(PLAN, "A | 1 | other five\nB | 5 | other six"))
    for number in (2, 3):
        with pytest.raises(UsageError, match="was given up when its plan was revised"):
            reset_from_step(run.trace, number)
    again, events = play(revising(), resume=reset_from_step(run.trace, 6))
    assert again.trace.answer == "bob"
    assert len(of(events, ev.PlanRevised)) == 1


def test_a_plan_that_is_still_being_written_is_waited_for() -> None:
    slow = ["B | - | hard one\n", 5.0, "A | 1 | easy two"]
    run, events = play(revising(slow, "A | - | other three"))
    (revised,) = of(events, ev.PlanRevised)
    assert (revised.at, revised.left_out, revised.first) == (5.0, (2,), 3)
    assert (run.trace.answer, run.trace.exit_code) == ("ann", 0)


def test_a_nested_run_revises_its_own_plan_and_the_run_around_it_does_not_again() -> None:
    review = "A | - | easy one\nB | 1 | hard two"
    orchestra = revising("A | - | easy", review, "A | 1 | easy three", limits=Limits(recursion=1))
    run, events = play(orchestra)
    assert of(events, ev.PlanRevised) == []
    nested = run.trace.steps[1].nested
    assert nested is not None
    assert (nested.revised is not None, nested.answer, run.trace.answer) == (True, "ann", "ann")
    assert any(
        "its nested run: step 2 could not be done" in notice.text
        for notice in run.trace.all_notices()
    )


@pytest.mark.parametrize("profile", ["prompted", "prompted-json", "published"])
def test_every_plan_format_can_write_the_rest(profile: str) -> None:
    form = PROFILES[profile].plan_format
    rules = PlanRules(workers=())
    context = plan_format_context(
        PROFILES[profile], setting(None).team.pool, rules, "auto", constrained=False
    )
    first = PLAN_FORMATS[form].render(
        plan_of(("ann", (), "easy one"), ("bob", (1,), "hard two")), context
    )
    rest = PLAN_FORMATS[form].render(plan_of(("ann", (), "easy four")), context)
    orchestra = revising(first, rest, rest, limits=Limits(recursion=1), profile=PROFILES[profile])
    run, events = play(orchestra)
    assert [event.left_out for event in of(events, ev.PlanRevised)] == [(3,)]
    assert run.trace.steps[3].step.subtask == "easy four"
    assert run.trace.rejected == ()

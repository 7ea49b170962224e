"""Planning.

What the planner is sent, faulty plans and repairs, fallbacks, and planners that fail or stay
silent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from math import ceil
from typing import Any

import pytest

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Chunk
from conductor_cli.core.errors import Failure, FailureKind, ModelError, ModelErrorReason
from conductor_cli.core.plan import SELF, Plan, Step
from conductor_cli.core.pool import Card, Limits, Pool
from conductor_cli.core.profile import PROFILES, PROMPTED, Sampling, WorkerProfile
from conductor_cli.core.question import Question
from conductor_cli.core.usage import CHARS_PER_TOKEN, FREE, Price, Usage
from conductor_cli.models.base import ScriptedModel
from tests.run.kit import (
    QUESTION,
    Counting,
    error_of,
    kinds,
    notices,
    of,
    plan_of,
    play,
    play_and_stop,
    pool_of,
    says,
    setting,
    with_self,
)

SPENT = Chunk(
    usage=Usage(tokens_in=100, tokens_out=10, calls=1, cost=Decimal("0.01")), finish="stop"
)


def test_a_plan_that_loses_an_operand_is_asked_for_again() -> None:
    numbers = WorkerProfile(
        operands=lambda text: [word for word in text.split() if word.isdecimal()]
    )
    trained = replace(
        PROMPTED, render=lambda question, *_: question.text, sampling=Sampling(again=0.7)
    )
    question = replace(QUESTION, text="the sum of 7 and 7 and 5")
    planner = ScriptedModel([["A | - | 7 plus\nB | 1 | plus 5"], ["B | 1 | plus 7 plus 5"]])
    run, events = play(setting(planner, worker_profile=numbers, profile=trained), question)
    (rejected,) = of(events, ev.PlanRejected)
    assert rejected.problem == "no step names 7"
    assert [step.step.subtask for step in run.trace.steps] == ["7 plus", "plus 7 plus 5"]
    assert [request.temperature for request in planner.requests] == [0.0, 0.7]
    losing = ["A | - | 7 plus 7"]
    run, _ = play(
        setting(ScriptedModel([losing, losing]), worker_profile=numbers, profile=trained), question
    )
    assert run.trace.steps[-1].step.subtask == "Answer the question."
    assert play(setting(ScriptedModel([losing])), question)[0].trace.rejected == ()


def test_no_step_starts_before_a_checked_plan_is_whole() -> None:
    def find_fault(question: Question, steps: Sequence[Step], pool: Pool) -> str:
        assert (question, pool.names) == (QUESTION, ("ann", "bob", "cyd"))
        return (
            ""
            if [step.subtask for step in steps] == ["one", "two"]
            else f"{len(steps)} steps are wrong"
        )

    profile = replace(PROMPTED, find_fault=find_fault, sampling=Sampling(tries=3))
    first = "A | - | one\n"
    second = "B | 1 | two"
    planner = ScriptedModel([[first, 5.0, "B | 1 | six"], ["B | - | two"], [first, second]])
    run, events = play(setting(planner, profile=profile))
    assert [rejected.problem for rejected in of(events, ev.PlanRejected)] == [
        "2 steps are wrong",
        "1 steps are wrong",
    ]
    assert [step.step.subtask for step in run.trace.steps] == ["one", "two"]
    assert min(event.at for event in of(events, ev.StepStarted)) >= 5.0
    assert run.trace.state == "finished"
    faulty = ScriptedModel([["B | - | two"]] * 3)
    run, events = play(setting(faulty, profile=replace(profile, fallback=False)))
    assert (run.trace.steps, len(of(events, ev.PlanRejected))) == ((), 3)


@pytest.mark.parametrize(("search", "ranks"), [(False, [0, 0, 0]), (True, [0, 1, 2])])
@pytest.mark.parametrize(("seed", "seeds"), [(None, [None] * 3), (5, [5, 6, 7])])
def test_no_try_is_like_the_one_before(
    search: bool, ranks: list[int], seed: int | None, seeds: list[int | None]
) -> None:
    planner = ScriptedModel([["B | 7 | two"]] * 3)
    play(
        setting(
            planner, profile=replace(PROMPTED, sampling=Sampling(tries=3, search=search)), seed=seed
        )
    )
    assert [request.seed for request in planner.requests] == seeds
    assert [request.rank for request in planner.requests] == ranks


def test_a_conductor_without_a_fallback_declines() -> None:
    planner = ScriptedModel([["A | - | one\nB | 7 | two\n"], ["B | 7 | two"]])
    run, events = play(setting(planner, profile=replace(PROMPTED, fallback=False)))
    assert (run.trace.state, run.trace.answer, error_of(run).reason) == ("failed", "", "declined")
    message = (
        "no answer: none of 2 plans was valid; the last one: step 2 cannot see itself or a "
        "later step: 7"
    )
    assert error_of(run).message == message
    assert len(of(events, ev.StepPlanned)) == 1


def test_a_fault_is_shown_to_the_conductor_while_valid_steps_run() -> None:
    planner = ScriptedModel([["A | - | one\nB | 7 | two\n", SPENT], [4.0, "B | 1 | two", SPENT]])
    workers: dict[str, Any] = {"ann": Counting(seconds=9), "bob": says("yes")}
    run, events = play(setting(planner, workers, price=Price(input=Decimal(1), output=Decimal(1))))
    (rejected,) = of(events, ev.PlanRejected)
    assert (rejected.attempt, rejected.text) == (1, "B | 7 | two")
    assert rejected.problem == "step 2 cannot see itself or a later step: 7"
    assert [(event.step, event.last) for event in of(events, ev.StepPlanned)] == [
        (1, False),
        (2, True),
    ]
    messages = planner.requests[1].messages
    assert messages[2].content == "A | - | one"
    assert "step 2 cannot see itself" in messages[3].content
    assert "Steps 1 to 1 stand. Write only what follows, at most 4 more." in messages[3].content
    assert of(events, ev.StepStarted)[0].at == 0.0
    assert run.trace.answer == "yes"
    assert of(events, ev.PlanReady)[0].usage.cost == Decimal("0.01")
    assert run.trace.planning == rejected.usage + of(events, ev.PlanReady)[0].usage
    assert rejected.usage.tokens_out > 0


def test_after_two_faults_the_best_worker_answers() -> None:
    pool = Pool(
        workers=(
            *pool_of("ann").workers,
            *pool_of("bob", card=Card(strengths={"math": 0.9})).workers,
        )
    )
    run, events = play(setting("no plan at all", {"ann": says("x"), "bob": says("yes")}, pool=pool))
    assert [event.attempt for event in of(events, ev.PlanRejected)] == [1, 2]
    assert notices(events) == [
        "the planner's output was not a valid plan; as a fallback, worker bob answers"
    ]
    assert run.trace.answer == "yes"
    assert run.trace.plan == plan_of(("bob", (), "Answer the question."))


def test_a_repair_without_steps_ends_in_a_step_that_sees_the_valid_ones() -> None:
    for second in ("", "That is all.", "accept"):
        planner = ScriptedModel([["A | - | one\nB | - | two\nZ | - | three\n"], [second]])
        run, events = play(setting(planner))
        assert [
            (event.worker, event.access, event.last) for event in of(events, ev.StepPlanned)
        ] == [
            ("ann", (), False),
            ("bob", (), False),
            ("ann", (1, 2), True),
        ]
        assert run.trace.exit_code == 0


def test_a_fallback_avoids_workers_that_are_down() -> None:
    planner = ScriptedModel([["A | - | one\nZ | - | two\n"], [5.0, "nothing"]])
    run, events = play(
        setting(
            planner, {"ann": ScriptedModel([[ModelError("auth", "bad key")]]), "bob": says("yes")}
        )
    )
    assert notices(events)[0] == (
        "the planner's output was not a valid plan; the steps planned so far are kept, and worker "
        "bob answers"
    )
    assert run.trace.answer == "yes"


def test_a_plan_cut_off_at_its_token_limit_is_not_complete() -> None:
    cut = Chunk(usage=Usage(tokens_out=9, calls=1), finish="length")
    planner = ScriptedModel([["A | - | one\nB | 1 | tw", cut], ["B | 1 | two"]])
    run, events = play(setting(planner, constrained=True))
    assert of(events, ev.PlanRejected)[0].problem == "the plan was cut off at the token limit"
    assert run.trace.plan == plan_of(("ann", (), "one"), ("bob", (1,), "two"))
    # In mini mode the label is all of it.
    run, events = play(setting(["B\n", "Because bob", cut], mode="mini"))
    assert of(events, ev.PlanRejected) == []
    assert run.trace.answer == "from bob"


@pytest.mark.parametrize(
    ("price", "constrained", "limits", "tokens"),
    [
        (Price(input=Decimal(1), output=Decimal(10)), False, Limits(), 17_200),
        (Price(input=Decimal(1), output=Decimal(10)), True, Limits(), 1200),
        (FREE, False, Limits(), 1200),
        (None, False, Limits(), 1200),
        (Price(input=Decimal(1), output=Decimal(10)), False, Limits(cost=Decimal("0.05")), 1200),
    ],
    ids=["paid for", "held to a grammar", "free", "unknown", "under a tight limit"],
)
def test_a_planner_that_may_think_has_room_for_it(
    price: Price | None, constrained: bool, limits: Limits, tokens: int
) -> None:
    planner = says("A | - | one\n")
    pool = pool_of("ann", price=FREE)
    models = {"ann": says("yes")}
    orchestra = setting(
        planner, models, pool=pool, price=price, constrained=constrained, limits=limits
    )
    play(orchestra)
    assert planner.requests[0].max_tokens == tokens


STEP_ONE = '{"worker":"A","access":[],"subtask":"one"}'


@pytest.mark.parametrize("end", [ModelError("broken", "gone"), 900.0], ids=["breaks off", "hangs"])
@pytest.mark.parametrize("reviews", [0, 1])
def test_a_whole_plan_stands_whatever_becomes_of_the_rest_of_the_reply(
    end: ModelError | float, reviews: int
) -> None:
    plan = ['{"steps":[', STEP_ONE, "]}", end]
    more = ['{"steps":[{"worker":"B","access":[1],"subtask":"more"}]}']
    planner = ScriptedModel([plan, ["accept"] if reviews else more])
    models = {"ann": says("yes"), "bob": says("more")}
    orchestra = setting(
        planner,
        models,
        pool=with_self(*models),
        limits=Limits(recursion=reviews),
        profile=PROFILES["prompted-json"],
    )
    run, events = play(orchestra)
    assert [record.step.worker for record in run.trace.steps] == ["ann", SELF][: 1 + reviews]
    assert (run.trace.answer, run.trace.error) == ("yes", None)
    assert not of(events, ev.PlanRejected)


@pytest.mark.parametrize(("gone", "label"), [("ann", "ann"), ("B", "B (gone)")])
@pytest.mark.parametrize("name", ["prompted", "prompted-json", "published"])
def test_a_plan_begun_with_a_worker_that_is_gone_is_written_to_its_end(
    name: str, gone: str, label: str
) -> None:
    lost = ["A | - | one\nB | 1 | two\n", ModelError("auth", "gone")]
    earlier, _ = play(setting(lost, {gone: says("from the first"), "cyd": says("from cyd")}))
    assert earlier.trace.plan is None
    planner = says("it stands")
    pool = {"bob": says("from bob"), "cyd": says("from cyd")}
    run, _ = play(setting(planner, pool, profile=PROFILES[name]), resume=earlier.trace)
    written = planner.requests[0].messages[-2].content
    assert written.count("[2]" if name == "published" else label) == 1
    assert (run.trace.answer, run.trace.error) == ("from bob", None)


@pytest.mark.parametrize(
    "script",
    [
        [[Chunk(thinking="x" * 35_000), ModelError("broken", "gone")], ["A | - | one"]],
        [[Chunk(thinking="x" * 35_000), 500.0], ["A | - | one"]],
        [[Chunk(thinking="x" * 35_000), '{"steps":[', STEP_ONE, "]}", "Why?", 60.0, "So."]],
    ],
    ids=["that breaks off", "that stays silent", "that is not read to its end"],
)
def test_the_thinking_of_a_planner_is_paid_for(script: list[Any]) -> None:
    profile = PROFILES["prompted-json" if len(script) == 1 else "prompted"]
    price = Price(input=Decimal(1), output=Decimal(10))
    run, _ = play(setting(ScriptedModel(script), profile=profile, price=price))
    assert run.trace.usage.tokens_out > 10_000
    assert run.trace.usage.cost is not None
    assert run.trace.usage.cost > Decimal("0.1")


def test_a_plan_with_a_comma_after_its_last_step_is_reviewed() -> None:
    plan: list[Any] = ['{"steps":[', STEP_ONE, ",", 5.0, "\n]}"]
    planner = ScriptedModel([plan, ["accept"]])
    pool = with_self("ann")
    limits = Limits(recursion=1)
    orchestra = setting(
        planner, {"ann": says("yes")}, pool=pool, limits=limits, profile=PROFILES["prompted-json"]
    )
    run, _ = play(orchestra)
    assert [record.step.worker for record in run.trace.steps] == ["ann", SELF]
    assert [record.last for record in run.trace.steps] == [False, True]


def test_what_follows_a_whole_plan_is_not_waited_for() -> None:
    step = '{"steps":[{"worker":"A","access":[],"subtask":"one"}]'
    planner = ScriptedModel([[step, "}\n```", "\nThis plan ", 60.0, "is good."]])
    run, events = play(setting(planner, profile=PROFILES["prompted-json"]))
    assert of(events, ev.PlanReady)[0].at == 0.0
    assert planner.closed == 1
    assert run.trace.plan_text.endswith("}\n```")
    assert of(events, ev.PlanReady)[0].usage.tokens_in > 0


def test_what_a_planner_thinks_counts_where_its_call_ends_early() -> None:
    """Where reading ends with the plan, where it breaks off, and where the user stops it."""
    thought = Chunk(thinking="x" * 3500)
    price = Price(input=Decimal(0), output=Decimal(1))
    pool = pool_of("ann", price=FREE)
    plan = '{"steps":[{"worker":"A","access":[],"subtask":"one"}]}'
    talks: list[Any] = [thought, plan, "y" * 350, 60.0]
    breaks: list[Any] = [thought, ModelError("broken", "gone")]
    fields: dict[str, Any] = {"pool": pool, "price": price, "profile": PROFILES["prompted-json"]}
    run, events = play(setting(ScriptedModel([breaks, talks]), {"ann": says("a")}, **fields))
    (rejected,) = of(events, ev.PlanRejected)
    (ready,) = of(events, ev.PlanReady)
    assert rejected.usage.tokens_out == 1000
    assert ready.usage.tokens_out == ceil((3500 + len(plan) + 350) / CHARS_PER_TOKEN)
    assert run.trace.planning.cost == Decimal(1000 + ready.usage.tokens_out) / 1_000_000
    stopped, _ = play_and_stop(
        setting([thought, 60.0], {"ann": says("a")}, **fields), 1, "cancelled"
    )
    assert stopped.trace.usage.tokens_out == 1000


@pytest.mark.parametrize(
    ("reason", "kind", "code", "hint"),
    [
        ("auth", "key", 4, "do this"),
        ("missing", "conductor", 5, "do this"),
        (
            "length",
            "conductor",
            5,
            "give it a larger context: conductor config set planner.context N",
        ),
    ],
)
def test_a_planner_that_cannot_plan_ends_the_run(
    reason: ModelErrorReason, kind: FailureKind, code: int, hint: str
) -> None:
    run, events = play(setting([ModelError(reason, "so it is", hint="do this")]))
    assert kinds(events) == ["run_started", "run_failed"]
    assert run.trace.error == Failure(
        kind=kind, message="the planner cannot plan: so it is", hint=hint, reason=reason
    )
    assert (run.trace.exit_code, run.trace.usage.tokens) == (code, 0)


@pytest.mark.parametrize("reason", ["rate", "connect"])
def test_a_failed_conductor_is_asked_once_more(reason: ModelErrorReason) -> None:
    planner = ScriptedModel([["A | - | one\n", ModelError(reason, "oops")], ["B | 1 | two"]])
    run, events = play(setting(planner, constrained=True))
    assert [(event.text, event.problem) for event in of(events, ev.PlanRejected)] == [("", "oops")]
    assert "not a valid plan" not in planner.requests[1].messages[-1].content
    assert run.trace.plan == plan_of(("ann", (), "one"), ("bob", (1,), "two"))
    silent, events = play(setting(ScriptedModel([[ModelError("overloaded", "boom")]] * 2)))
    assert notices(events) == ["the planner failed (boom); as a fallback, worker ann answers"]
    assert silent.trace.answer == "from ann"


def test_a_conductor_that_stays_silent_is_given_up_on() -> None:
    planner = ScriptedModel([[1e6, "late"]])
    run, events = play(setting(planner))
    assert [event.problem for event in of(events, ev.PlanRejected)] == [
        "no first token within 3 min 0 s"
    ] * 2
    assert error_of(run).message == "the planner cannot plan: no first token within 3 min 0 s"
    assert run.trace.exit_code == 5
    assert 360.25 <= run.trace.at <= 360.75


def test_a_conductor_that_dies_for_good_leaves_what_was_finished() -> None:
    planner = ScriptedModel(
        [["A | - | one\nB | 1 | two\n", 2.0, ModelError("auth", "key was revoked")]]
    )
    run, events = play(
        setting(planner, {"ann": Counting("found it", 5), "bob": says("x")}, constrained=True)
    )
    assert (run.trace.answer, run.trace.partial, run.trace.exit_code) == ("found it", True, 7)
    assert [(event.step, event.reason) for event in of(events, ev.StepStopped)] == [
        (2, "run_failed")
    ]
    assert error_of(run).kind == "key"


def test_a_run_without_conductor_and_plan_fails() -> None:
    run, _ = play(setting(None, name="nobody"))
    assert run.trace.conductor == "nobody"
    assert (run.trace.error, run.trace.exit_code) == (
        Failure(
            kind="conductor",
            message="there is no planner to plan with",
            hint="choose one: conductor model use NAME, or conductor setup",
            reason="no_planner",
        ),
        5,
    )


def test_a_plan_file_must_keep_the_rules() -> None:
    ann = says("x")
    run, _ = play(setting(None, {"ann": ann}), plan=plan_of(("ann", ()), ("eve", (1,))))
    assert error_of(run).message == "step 2 names a worker that is not in the pool: 'eve'"
    assert run.trace.exit_code == 2
    for wrong in (
        plan_of(("ann", (0,))),
        plan_of(("ann", (1,))),
        plan_of(),
        plan_of(*[("ann", ())] * 6),
    ):
        run, _ = play(setting(None, {"ann": ann}), plan=wrong)
        assert run.trace.exit_code == 2
        assert run.trace.conductor == "plan file"
    assert ann.requests == []


def test_the_request_to_the_conductor_is_whole() -> None:
    planner = ScriptedModel([["A | - | one"]])
    play(setting(planner, seed=7))
    (request,) = planner.requests
    assert (request.seed, request.max_tokens, request.temperature) == (7, 1200, 0.0)
    assert request.grammar is not None
    assert request.cuts == (request.cuts[0], len(request.messages[0].content))
    play(setting(planner, limits=Limits(tokens=1600)))
    assert planner.requests[1].max_tokens is not None
    assert 256 <= planner.requests[1].max_tokens < 1200


def test_a_choice_is_explained_by_its_shares() -> None:
    odds = {"A": 0.2, "B": 0.7049, "C": 0.0951}
    chosen = Chunk(
        text="B",
        choice_shares=odds,
        usage=Usage(tokens_in=100, tokens_out=1, calls=1),
        finish="stop",
    )
    run, events = play(setting([chosen], mode="mini", constrained=True))
    assert isinstance(run.trace.plan, Plan)
    assert run.trace.plan.reasoning == "bob 0.70, ann 0.20, cyd 0.10"
    assert run.trace.plan.steps[0].worker == "bob"
    assert of(events, ev.PlanReady)[0].plan == run.trace.plan


SAME = "\n".join(["A | - | What is the capital of France?"] * 5)


@pytest.mark.parametrize("constrained", [True, False])
def test_a_step_that_a_weak_planner_repeats_is_asked_for_once(constrained: bool) -> None:
    for pause in (0.0, 5.0):
        ann = ScriptedModel([[1.0, "Paris"]])
        head = SAME[:50]
        tail = SAME[50:]
        run, events = play(
            setting([head, pause, tail], {"ann": ann, "bob": says("no")}, constrained=constrained)
        )
        assert len(ann.requests) == 1
        assert notices(events) == [
            "the planner repeated an earlier step word for word; left out: steps 2, 3 and 4"
        ]
        assert [notice.recovered for notice in of(events, ev.Notice)] == [True]
        assert run.trace.plan == plan_of(("ann", (), "What is the capital of France?"))
        assert [record.last for record in run.trace.steps] == [True]
        assert (run.trace.exit_code, run.trace.partial) == (0, False)
        assert run.trace.answer == run.trace.steps[0].text == "Paris"


def test_a_planner_in_a_loop_is_not_waited_for() -> None:
    line = "A | - | solve\n"
    rest: list[Any] = [1.0, line]
    planner = ScriptedModel([[line * 5, *rest * 50]])
    run, _ = play(setting(planner, {"ann": ScriptedModel([[2.0, "42"]]), "bob": says("no")}))
    assert len(planner.requests) == 1
    assert (run.trace.answer, run.trace.exit_code, run.trace.rejected) == ("42", 0, ())
    assert run.trace.at < 5


def test_an_answer_that_must_follow_a_schema_is_asked_for_as_such() -> None:
    orchestra = setting(
        "A | - | solve\nA | - | solve\nA | - | solve", {"ann": says("42"), "bob": says("no")}
    )
    run, _ = play(orchestra, replace(QUESTION, schema={"type": "integer"}))
    assert [record.last for record in run.trace.steps] == [False, True]
    assert "JSON Schema" in run.trace.steps[1].prompt[0].content


def test_a_planner_without_a_choice_is_not_asked_again() -> None:
    planner = ScriptedModel([["A | - | one\nA | - | two"]])
    run, events = play(replace(setting(planner, {"ann": says("42")}), limits=Limits()))
    assert len(planner.requests) == 1
    assert of(events, ev.PlanRejected)[0].problem == "the plan has more than 1 step"
    assert notices(events) == [
        "the planner's output was not a valid plan; as a fallback, worker ann answers"
    ]
    assert run.trace.answer == "42"

"""Runs that are stopped, and runs that go on from what an earlier one had."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from itertools import chain
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core import events as ev
from conductor_cli.core.errors import Failure, ModelError
from conductor_cli.core.plan import KeepAnswer
from conductor_cli.core.pool import Limits
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import FREE, Price, Usage
from conductor_cli.models.base import ScriptedModel, ScriptItem
from conductor_cli.run import Orchestra, Run
from conductor_cli.run.state import StopKind
from tests.run.kit import (
    QUESTION,
    WITH_SELF,
    Counting,
    fold,
    hold,
    inner,
    kinds,
    later,
    notices,
    of,
    plan_of,
    play,
    play_and_stop,
    pool_of,
    read,
    says,
    setting,
    start,
    virtually,
    with_team,
)

Scripts = list[Iterable[ScriptItem]]


def test_stopping_now_keeps_what_was_written() -> None:
    ann = ScriptedModel([["The answer ", 60.0, "is 42."]])
    run, events = play_and_stop(setting("A | - | one", {"ann": ann}), 5.0, "cancelled")
    assert (run.trace.at, run.trace.answer, run.trace.partial) == (5.0, "The answer ", True)
    assert run.trace.error == Failure(kind="cancelled", message="interrupted")
    assert run.trace.exit_code == 130
    assert (of(events, ev.StepStopped)[0].reason, ann.closed) == ("cancelled", 1)


def test_stopping_after_what_runs_lets_it_end() -> None:
    workers: dict[str, Any] = {"ann": Counting("first", 9), "bob": says("second")}
    run, events = play_and_stop(
        setting("A | - | one\nB | 1 | two", workers), 5.0, "cancelled", "running"
    )
    assert (run.trace.at, run.trace.answer, run.trace.partial) == (9.0, "first", True)
    assert [(event.step, event.reason) for event in of(events, ev.StepStopped)] == [
        (2, "cancelled")
    ]
    assert workers["bob"].requests == []


def test_stopping_again_at_once_overrules_waiting() -> None:
    def stop(run: Run, event: ev.Event) -> None:
        if isinstance(event, ev.RunStarted):
            later(5, run.stop, "cancelled", "running")
            later(7, run.stop, "terminated", "now")

    run, _ = play(setting("A | - | one", {"ann": Counting(seconds=60)}), act=stop)
    assert (run.trace.at, run.trace.exit_code) == (7.0, 130)


def test_stopping_before_anyone_reads_is_a_run_that_did_nothing() -> None:
    async def main() -> None:
        ann = says("x")
        run = start(setting("A | - | one", {"ann": ann}), QUESTION)
        run.stop("terminated", "running")
        events = await read(run)
        hold(run, events)
        assert [event.kind for event in events] == ["run_started", "run_failed"]
        assert run.trace.exit_code == 143
        assert ann.requests == []

    virtually(main())


def test_stopping_after_the_end_changes_nothing() -> None:
    async def main() -> None:
        run = start(setting("A | - | one"), QUESTION)
        events = await read(run)
        run.stop("cancelled")
        assert not list(run.state.stream.unread_events())
        hold(run, events)
        assert run.trace.exit_code == 0

    virtually(main())


def test_a_conductor_that_was_stopped_still_costs_and_one_that_was_never_reached_does_not() -> None:
    planner = ScriptedModel([["A | - ", 60.0, "| one"]])
    price = Price(input=Decimal(1), output=Decimal(1))
    run, _ = play_and_stop(setting(planner, price=price), 1.0, "cancelled")
    assert run.trace.exit_code == 130
    assert run.trace.usage.tokens_in > 100
    assert (run.trace.usage.cost or 0) > 0
    run, _ = play(setting(["A | - ", ModelError("refused", "no")]))
    assert run.trace.usage.tokens_in > 100
    run, _ = play(setting([ModelError("refused", "no", usage=Usage(tokens_in=7, calls=1))]))
    assert (run.trace.usage.calls, run.trace.usage.tokens_in) == (1, 7)
    run, _ = play(setting([ModelError("connect", "refused")], price=price))
    assert (run.trace.usage.calls, run.trace.usage.tokens, run.trace.usage.cost) == (
        2,
        0,
        Decimal(0),
    )


pieces = st.one_of(
    st.sampled_from(["some text ", "more\n", ""]),
    st.sampled_from([0.25, 0.5, 1.0, 3.0]),
    st.sampled_from(["rate", "broken", "refused", "auth"]).map(
        lambda reason: ModelError(reason, reason)  # type: ignore[arg-type]
    ),
)
scripts = st.lists(st.lists(pieces, max_size=4), min_size=1, max_size=3)
lines = st.sampled_from(
    [
        "A | - | one",
        "B | 1 | two",
        "C | 1 2 | think",
        "A | 1 | three",
        "B | - | four",
        "prose",
        "accept",
    ]
)
planners = st.lists(
    st.lists(st.one_of(lines, st.sampled_from(["\n", "\n\n", 0.25, 1.0])), max_size=10),
    min_size=1,
    max_size=3,
)


@given(
    planners,
    scripts,
    scripts,
    st.sampled_from([0.0, 0.25, 0.3, 0.5, 0.75, 1.0, 1.25, 2.0, 3.5, 9.0]),
    st.sampled_from(["cancelled", "terminated", "limit"]),
    st.sampled_from(["now", "running"]),
    st.sampled_from(
        [
            Limits(),
            Limits(recursion=1),
            Limits(parallel=1, attempts=2),
            Limits(calls=2, recursion=2),
        ]
    ),
)
def test_whenever_a_run_is_stopped_its_stream_is_whole(
    plan: Scripts,
    ann: Scripts,
    bob: Scripts,
    at: float,
    reason: StopKind,
    after: Literal["now", "running"],
    limits: Limits,
) -> None:
    workers = {"ann": ScriptedModel(ann), "bob": ScriptedModel(bob)}
    orchestra = setting(ScriptedModel(plan), workers, pool=WITH_SELF, limits=limits)
    run, _ = play_and_stop(orchestra, at, reason, after)
    if after == "now":
        assert run.trace.at <= at
    assert all(worker.closed == len(worker.requests) for worker in workers.values())


@given(planners, scripts, scripts, st.integers(0, 60), st.booleans())
def test_leaving_at_any_time_gives_a_complete_stream(
    plan: Scripts, ann: Scripts, bob: Scripts, after: int, cancel: bool
) -> None:
    workers = {"ann": ScriptedModel(ann), "bob": ScriptedModel(bob)}
    orchestra = setting(
        ScriptedModel(plan), workers, pool=WITH_SELF, limits=Limits(recursion=1), constrained=True
    )

    async def main() -> None:
        run = start(orchestra, QUESTION)
        events: list[ev.Event] = []

        async def reader() -> None:
            stream = aiter(run)
            try:
                async for event, _ in stream:
                    events.append(event)
                    if len(events) > after:
                        if cancel:
                            asyncio.current_task().cancel()  # type: ignore[union-attr]
                        else:
                            break
            finally:
                await stream.aclose()

        await asyncio.gather(asyncio.create_task(reader()), return_exceptions=True)
        hold(run, [*events, *run.state.stream.unread_events()])

    virtually(main())


PLAN = "A | - | one\nB | 1 | two\nC | 1 2 | three"


def stopped_after_one() -> Trace:
    """A run whose first step is done."""
    workers: dict[str, Any] = {"ann": says("found"), "bob": Counting(seconds=60), "cyd": says("x")}
    run, _ = play_and_stop(setting(PLAN, workers), 5.0, "cancelled")
    return run.trace


def test_only_what_is_missing_is_called() -> None:
    earlier = stopped_after_one()
    ann = says("x")
    bob = says("two")
    planner = says("x")
    run, events = play(
        setting(planner, {"ann": ann, "bob": bob, "cyd": says("three")}), resume=earlier
    )
    assert (ann.requests, planner.requests) == ([], [])
    assert "found" in bob.requests[0].messages[-1].content
    assert notices(events) == [f"reusing finished step 1 of run {earlier.run}"]
    assert [record.text for record in run.trace.steps] == ["found", "two", "three"]
    assert of(events, ev.StepFinished)[0].usage == Usage()
    assert (run.trace.plan, run.trace.answer) == (earlier.plan, "three")
    assert of(events, ev.RunStarted)[0].resumed == run.trace.resumed == earlier.run
    assert (earlier.resumed, run.trace.conductor) == ("", earlier.conductor)


def test_a_run_that_was_whole_is_answered_from_what_it_had() -> None:
    earlier, _ = play(setting(PLAN))
    models = {name: says("x") for name in ("ann", "bob", "cyd")}
    run, _ = play(with_team(setting(None, models), name=""), resume=earlier.trace)
    assert run.trace.answer == earlier.trace.answer == "from cyd"
    assert run.trace.conductor == earlier.trace.conductor != ""
    assert all(model.requests == [] for model in models.values())
    assert run.trace.usage == Usage()


def test_a_plan_that_was_half_written_is_written_on() -> None:
    half, _ = play_and_stop(
        setting(["A | - | one\nB | 1 | two\n", 60.0, "C"], constrained=True), 5.0, "cancelled"
    )
    assert half.trace.plan is None
    assert list(half.trace.done()) == [1, 2]
    planner = ScriptedModel([["C | 1 2 | three"]])
    ann = says("x")
    run, events = play(
        setting(planner, {"ann": ann, "bob": says("x"), "cyd": says("end")}), resume=half.trace
    )
    assert planner.requests[0].messages[2].content == "A | - | one\nB | 1 | two"
    assert ann.requests == []
    assert run.trace.plan == plan_of(
        ("ann", (), "one"), ("bob", (1,), "two"), ("cyd", (1, 2), "three")
    )
    assert run.trace.answer == "end"
    assert kinds(events)[0:3] == ["run_started", "notice", "step_planned"]


def cut_short(trace: Trace, number: int) -> Trace:
    """The run as if step `number` had failed, and the others had gone on without its answer."""
    failed = replace(trace.steps[number - 1], state="failed", text="")
    return replace(trace, steps=(*trace.steps[: number - 1], failed, *trace.steps[number:]))


def test_a_step_that_had_to_do_without_an_answer_is_done_again() -> None:
    plan = "A | - | one\nB | - | two\nC | 1 2 | three\nB | 3 | four"
    earlier, _ = play(setting(plan))
    ann = says("now")
    bob = says("new")
    cyd = says("late")
    run, events = play(
        setting(None, {"ann": ann, "bob": bob, "cyd": cyd}), resume=cut_short(earlier.trace, 1)
    )
    assert [record.text for record in run.trace.steps] == ["now", "from bob", "late", "new"]
    assert "now" in cyd.requests[0].messages[-1].content
    assert notices(events) == [
        f"reusing finished step 2 of run {earlier.id}",
        "doing steps 3, 4 again, which had to do without an answer",
    ]
    begun = [event.step for event in events if isinstance(event, (ev.StepStarted, ev.StepFinished))]
    assert begun == [2, 2, 1, 1, 3, 3, 4, 4]


def test_a_nested_run_that_had_to_do_without_an_answer_begins_anew() -> None:
    planner = ScriptedModel([["A | - | one\nC | 1 | think"], ["A | 0 | more\nB | 1 | check"]])
    earlier, _ = play(setting(planner, pool=WITH_SELF))
    again = ScriptedModel([["B | 0 | anew"]])
    bob = says("checked")
    run, _ = play(
        setting(again, {"ann": says("now"), "bob": bob}, pool=WITH_SELF),
        resume=cut_short(earlier.trace, 1),
    )
    assert "now" in bob.requests[0].messages[-1].content
    assert run.trace.answer == "checked"


def test_a_step_that_was_given_up_makes_none_outdated() -> None:
    workers = {
        "ann": ScriptedModel([[ModelError("refused", "no")]]),
        "bob": says("two"),
        "cyd": says("x"),
    }
    pool = pool_of("ann", "bob")
    planner = ScriptedModel([["A | - | one\nB | 1 | two"], ["B | - | instead"]])
    earlier, _ = play(setting(planner, workers, pool=pool))
    bob = says("x")
    run, _ = play(setting(None, {"ann": says("x"), "bob": bob}, pool=pool), resume=earlier.trace)
    assert run.trace.answer == earlier.trace.answer == "two"
    assert bob.requests == []


def test_a_nested_run_is_resumed_where_it_was() -> None:
    workers: dict[str, Any] = {
        "ann": ScriptedModel([["one"], ["inner one"]]),
        "bob": Counting(seconds=60),
    }
    planner = ScriptedModel([["A | - | one\nC | 1 | think"], ["A | 0 | more\nB | 1 | check"]])
    earlier, _ = play_and_stop(setting(planner, workers, pool=WITH_SELF), 5.0, "cancelled")
    again = says("x")
    ann = says("x")
    bob = says("checked")
    run, events = play(
        setting(again, {"ann": ann, "bob": bob}, pool=WITH_SELF), resume=earlier.trace
    )
    assert (again.requests, ann.requests) == ([], [])
    assert "inner one" in bob.requests[0].messages[-1].content
    assert [record.text for record in (run.trace.steps[1].nested or Trace()).steps] == [
        "inner one",
        "checked",
    ]
    assert notices(inner(events, 2)) == [f"reusing finished step 1 of run {earlier.id}.2"]
    assert run.trace.answer == "checked"


def test_a_nested_kept_answer_is_reused() -> None:
    planner = ScriptedModel([["A | - | one"], ["accept"]])
    _, events = play(setting(planner, limits=Limits(recursion=1)))
    cut = fold(events[: [event.kind for event in events].index("nested_event") + 3])
    assert cut.steps[1].nested is not None
    assert isinstance(cut.steps[1].nested.plan, KeepAnswer)
    again = says("x")
    run, _ = play(setting(again, limits=Limits(recursion=1)), resume=cut)
    assert again.requests == []
    assert run.trace.answer == "from ann"


def test_a_review_is_not_appended_twice() -> None:
    planner = ScriptedModel([["A | - | one"], [60.0, "accept"]])
    earlier, _ = play_and_stop(setting(planner, limits=Limits(recursion=1)), 5.0, "cancelled")
    run, _ = play(setting(says("accept"), limits=Limits(recursion=1)), resume=earlier.trace)
    assert [record.step.worker for record in run.trace.steps] == ["ann", "self"]
    assert run.trace.answer == "from ann"


def test_a_damaged_trace_without_an_answering_step_ends_by_name() -> None:
    earlier = stopped_after_one()
    damaged = replace(earlier, steps=tuple(record for record in earlier.steps if not record.last))
    run, _ = play(setting(None), resume=damaged)
    assert (run.trace.answer, run.trace.exit_code) == ("from bob", 7)
    assert run.trace.error == Failure(
        kind="worker", message="no step could be run", reason="step_not_run"
    )


@given(st.integers(0, 60), st.sampled_from([PLAN, "A | - | one\nB | - | two\nA | 1 2 | end"]))
def test_a_trace_cut_anywhere_can_be_resumed(length: int, plan: str) -> None:
    _, events = play(setting(list(plan), constrained=True))
    cut = fold(events[: min(length, len(events) - 1)])
    planner = ScriptedModel([["C | - | end"]])
    workers = {name: says(f"again {name}") for name in ("ann", "bob", "cyd")}
    run, _ = play(setting(planner, workers), resume=cut)
    assert run.trace.exit_code == 0
    assert all(
        run.trace.steps[number - 1].text == record.text for number, record in cut.done().items()
    )
    assert sum(len(model.requests) for model in workers.values()) <= len(run.trace.steps) - len(
        cut.done()
    )


NESTED: list[Any] = [["A | - | one\nC | 1 | think"], ["A | 0 | more\nB | 1 | check"]]


@pytest.mark.parametrize("plans", [[[PLAN]], NESTED])
def test_a_run_that_another_process_goes_on_with_stays_one_run_wherever_it_was_left(
    plans: list[Any],
) -> None:
    """Its events follow those that were there.

    What had ended is not done again, and each lost call is told.
    """
    pool = WITH_SELF if plans is NESTED else pool_of("ann", "bob", "cyd")
    whole, events = play(setting(ScriptedModel(plans), pool=pool))
    ready = next(index for index, event in enumerate(events) if isinstance(event, ev.PlanReady))
    for left in range(ready + 1, len(events)):
        before = events[:left]
        planner = ScriptedModel(plans[-1:] * 2)
        earlier = fold(before)
        workers = {name: says(f"from {name}") for name in pool.names if name != "self"}

        async def main(config: Orchestra, earlier: Trace) -> tuple[Run, list[ev.Event]]:
            run = start(config, earlier.question, resume=earlier, id=earlier.run)
            return run, await read(run)

        run, after = virtually(main(setting(planner, workers, pool=pool), earlier))
        assert fold([*before, *after]) == run.trace
        assert ("run_started" in kinds(after), run.trace.answer, run.trace.exit_code) == (
            False,
            whole.trace.answer,
            0,
        )
        times = [event.at for event in [*before, *after]]
        assert times == sorted(times)
        flat = [event.event if isinstance(event, ev.NestedEvent) else event for event in after]
        lost = [event for event in of(flat, ev.StepFailed) if event.error.reason == "taken_over"]
        traces = [
            earlier,
            *(record.nested for record in earlier.steps if record.nested is not None),
        ]
        records = chain.from_iterable(trace.steps for trace in traces)
        steps = [record for record in records if record.worker != "self"]
        assert len(lost) == sum(record.state == "running" for record in steps)
        done = sum(record.state == "done" for record in steps)
        assert sum(len(model.requests) for model in workers.values()) == 3 - done


def go_on_with(config: Orchestra, earlier: Trace) -> tuple[Run, list[ev.Event]]:
    """Go on with the run of a process that is gone, to its end."""

    async def main() -> tuple[Run, list[ev.Event]]:
        run = start(config, earlier.question, resume=earlier, id=earlier.run)
        return run, await read(run)

    return virtually(main())


def test_what_a_lost_call_may_have_cost_counts_in_the_limits_of_its_run() -> None:
    """So the calls of all processes together stay below the limit of one run."""
    price = Price(input=Decimal(0), output=Decimal(1000))
    pool = pool_of("ann", price=price, options={"max_tokens": 1000})
    limits = Limits(cost=Decimal("1.5"))
    plan = ["A | - | one"]
    _, events = play(setting(plan, {"ann": says("x")}, pool=pool, limits=limits))
    begun = next(index for index, event in enumerate(events) if isinstance(event, ev.StepStarted))
    left = fold(events[: begun + 1])
    again = says("again")
    run, after = go_on_with(setting(plan, {"ann": again}, pool=pool, limits=limits), left)
    assert run.trace.answer == "again"
    assert [request.max_tokens for request in again.requests] == [500]
    # That process is gone, too, and the limit has no room for a third call
    begun_again = next(n for n, event in enumerate(after) if isinstance(event, ev.StepStarted))
    lost_again = [*events[: begun + 1], *after[: begun_again + 1]]
    third = says("third")
    run, _ = go_on_with(setting(plan, {"ann": third}, pool=pool, limits=limits), fold(lost_again))
    assert third.requests == []
    assert run.trace.error is not None
    assert run.trace.error.reason == "limit_cost"


def test_what_a_lost_plan_may_have_cost_counts_in_the_limits_of_its_run() -> None:
    options: dict[str, Any] = {
        "price": Price(input=Decimal(0), output=Decimal(1000)),
        "pool": pool_of("ann", price=FREE),
        "limits": Limits(cost=Decimal(2)),
    }
    planner = ScriptedModel([["A | - | one"]])
    _, events = play(setting(planner, **options))
    again = ScriptedModel([["A | - | one"]])
    go_on_with(setting(again, **options), fold(events[:1]))
    (lost,) = planner.requests
    (made,) = again.requests
    assert lost.max_tokens is not None
    assert made.max_tokens is not None
    assert lost.max_tokens > 1000
    assert lost.max_tokens + made.max_tokens <= 2000

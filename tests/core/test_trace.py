"""Events fold into a trace: planning, steps, nested runs and the end.

And what is said about failed attempts.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Message, ToolCall
from conductor_cli.core.errors import Failure, FailureKind
from conductor_cli.core.plan import KeepAnswer, Plan, Step
from conductor_cli.core.pool import Limits, Pool
from conductor_cli.core.question import Question
from conductor_cli.core.trace import (
    MAX_REASON,
    FailedAttempt,
    Outcome,
    Trace,
    apply_event,
    describe_approval,
    describe_failed_attempts,
)
from conductor_cli.core.usage import NO_USAGE, Usage
from tests.core.strategies import events as any_events

SPENT = Usage(tokens_in=10, tokens_out=2, cost=Decimal("0.5"), calls=1)
FAULT = Failure(kind="worker", message="ann: no")
PLAN = Plan(steps=(Step(worker="ann", subtask="do"),))
REJECTED = ev.PlanRejected(at=2.0, attempt=1, text="?", problem="no step", hint="", usage=SPENT)
STARTED = ev.RunStarted(
    at=0.0,
    run="r1",
    time="2026-01-02T03:04:05.000+00:00",
    question=Question(text="?"),
    pool=Pool(workers=()),
    limits=Limits(),
    mode="ultra",
    conductor="qwen",
    profile="p",
)


def folded(*events: ev.Event) -> Trace:
    trace = Trace()
    for event in events:
        trace = apply_event(trace, event)
    return trace


def planned(step: int = 1, *, at: float = 1.0, last: bool = True) -> ev.StepPlanned:
    return ev.StepPlanned(at=at, step=step, worker="ann", subtask="do", access=(), last=last)


def started(
    step: int = 1, *, at: float = 2.0, attempt: int = 1, worker: str = "ann"
) -> ev.StepStarted:
    return ev.StepStarted(
        at=at,
        step=step,
        worker=worker,
        attempt=attempt,
        prompt=(Message(role="user", content="p"),),
    )


def test_planning_is_text_steps_rejections_and_a_plan() -> None:
    trace = folded(
        STARTED,
        ev.PlanDelta(at=1.0, text="A |"),
        ev.PlanDelta(at=1.5, text=" - |"),
        REJECTED,
        planned(),
        ev.PlanReady(at=3.0, plan=PLAN, usage=SPENT),
    )
    assert (trace.plan_text, trace.rejected, trace.plan) == ("A | - |", (REJECTED,), PLAN)
    assert trace.planning == trace.usage == SPENT + SPENT
    assert (trace.state, trace.at) == ("running", 3.0)
    assert folded(ev.PlanReady(at=0.0, plan=KeepAnswer(), usage=SPENT)).plan == KeepAnswer()


def test_a_step_goes_from_waiting_to_done() -> None:
    waiting = folded(STARTED, planned()).steps[0]
    assert (waiting.state, waiting.worker, waiting.last, waiting.planned, waiting.seconds(9.0)) == (
        "waiting",
        "ann",
        True,
        1.0,
        0.0,
    )
    deltas = (
        ev.StepDelta(at=3.0, step=1, attempt=1, thinking="hm"),
        ev.StepDelta(at=3.5, step=1, attempt=1, text="4"),
        ev.StepDelta(at=4.0, step=1, attempt=1, text="2"),
    )
    running = folded(STARTED, planned(), started(), *deltas)
    assert (running.steps[0].state, running.steps[0].text, running.steps[0].thinking) == (
        "running",
        "42",
        "hm",
    )
    assert running.steps[0].seconds(5.0) == 3.0
    finished = ev.StepFinished(at=6.0, step=1, attempt=1, text="42", usage=SPENT, finish="stop")
    done = folded(STARTED, planned(), started(), *deltas, finished)
    record = done.steps[0]
    assert (record.state, record.finish, record.ended, record.seconds(99.0)) == (
        "done",
        "stop",
        6.0,
        4.0,
    )
    assert (record.usage, done.usage, done.recovered) == (SPENT, SPENT, ())
    assert done.done() == {1: record}


def test_a_failed_attempt_that_is_repeated_keeps_the_step_running() -> None:
    failed = ev.StepFailed(at=4.0, step=1, attempt=1, error=FAULT, usage=SPENT, retry_in=2.5)
    waiting = folded(
        planned(), started(), ev.StepDelta(at=3.0, step=1, attempt=1, text="ha"), failed
    ).steps[0]
    assert (waiting.state, waiting.retry_at, waiting.error, waiting.usage) == (
        "running",
        6.5,
        FAULT,
        SPENT,
    )
    again = folded(planned(), started(), failed, started(at=6.5, attempt=2)).steps[0]
    assert (again.retry_at, again.text, again.attempt, again.started) == (None, "", 2, 2.0)
    stopped = ev.StepStopped(at=5.0, step=1, reason="cancelled", usage=SPENT)
    ended = folded(planned(), started(), failed, stopped).steps[0]
    assert (ended.state, ended.retry_at, ended.reason, ended.usage.calls) == (
        "stopped",
        None,
        "cancelled",
        2,
    )


def test_a_failure_for_good_is_no_skipped_step() -> None:
    failed = ev.StepFailed(at=4.0, step=1, attempt=3, error=FAULT, usage=SPENT)
    trace = folded(planned(), started(), failed)
    assert (trace.steps[0].state, trace.recovered, len(trace.steps[0].failed)) == ("failed", (), 1)
    skipped = folded(
        planned(), ev.StepStopped(at=5.0, step=1, reason="limit", usage=Usage())
    ).steps[0]
    assert (skipped.state, skipped.reason, skipped.ended, skipped.seconds(9.0)) == (
        "skipped",
        "limit",
        5.0,
        0.0,
    )


def test_a_nested_run_is_a_trace_inside_its_step() -> None:
    inner = ev.NestedEvent(at=2.5, step=1, event=STARTED)
    deeper = ev.NestedEvent(at=3.0, step=1, event=ev.NestedEvent(at=0.5, step=1, event=STARTED))
    trace = folded(
        planned(), started(), inner, ev.NestedEvent(at=2.6, step=1, event=planned()), deeper
    )
    assert trace.steps[0].nested is not None
    assert trace.steps[0].nested.run == "r1"
    assert trace.steps[0].nested.steps[0].nested == folded(STARTED)
    assert (
        folded(planned(), started(), ev.NestedEvent(at=3.0, step=1, event=REJECTED)).usage
        == Usage()
    )


def test_events_of_a_step_that_is_not_planned_change_nothing_else() -> None:
    assert folded(started(7)) == Trace(at=2.0)


@pytest.mark.parametrize(
    ("partial", "kind", "code", "outcome"),
    [
        (False, None, 0, "finished"),
        (True, None, 7, "partial"),
        (True, "partial", 7, "partial"),
        (True, "worker", 7, "partial"),
        (True, "key", 7, "partial"),
        (True, "limit", 6, "partial"),
        (True, "cancelled", 130, "cancelled"),
        (True, "terminated", 143, "cancelled"),
    ],
)
def test_a_run_with_an_answer_is_finished_or_partial(
    partial: bool, kind: FailureKind | None, code: int, outcome: Outcome
) -> None:
    error = None if kind is None else Failure(kind=kind, message="m")
    end = ev.RunFinished(at=9.0, answer="42", usage=SPENT, partial=partial, error=error)
    trace = folded(STARTED, end)
    assert (
        trace.state,
        trace.outcome(),
        trace.ended,
        trace.answer,
        trace.usage,
        trace.exit_code,
    ) == (
        "finished",
        outcome,
        True,
        "42",
        SPENT,
        code,
    )


@pytest.mark.parametrize(
    ("kind", "code", "outcome"),
    [("worker", 1, "failed"), ("limit", 6, "failed"), ("terminated", 143, "cancelled")],
)
def test_a_run_without_an_answer_has_failed_or_was_ended(
    kind: FailureKind, code: int, outcome: Outcome
) -> None:
    """A run that somebody ended has not failed, also in a trace of an earlier release."""
    trace = folded(
        STARTED, ev.RunFailed(at=9.0, error=Failure(kind=kind, message="m"), usage=SPENT)
    )
    assert (trace.state, trace.ended, trace.exit_code, trace.outcome()) == (
        "failed",
        True,
        code,
        outcome,
    )
    assert (folded(STARTED).outcome(), folded(STARTED).outcome(live=True)) == (
        "interrupted",
        "running",
    )


@given(st.lists(any_events, max_size=12))
def test_folding_a_file_is_folding_the_stream(events: list[ev.Event]) -> None:
    assert folded(*[ev.from_line(ev.to_line(event)) for event in events]) == folded(*events)


def test_a_step_keeps_its_failed_attempts() -> None:
    trace = folded(
        STARTED,
        planned(),
        started(at=2.0),
        ev.StepFailed(at=2.5, step=1, attempt=1, error=FAULT, usage=SPENT, retry_in=0.5),
        started(at=3.0, attempt=2),
        ev.StepFailed(at=3.25, step=1, attempt=2, error=FAULT, usage=SPENT, substitute="bob"),
        started(at=3.5, attempt=3, worker="bob"),
        ev.StepFinished(at=4.0, step=1, attempt=3, text="yes", usage=SPENT, finish="stop"),
    )
    (record,) = trace.steps
    kept: dict[str, Any] = {"worker": "ann", "error": FAULT, "usage": SPENT}
    assert record.failed == (
        FailedAttempt(attempt=1, started=2.0, ended=2.5, retry_in=0.5, **kept),
        FailedAttempt(attempt=2, started=3.0, ended=3.25, substitute="bob", **kept),
    )
    assert (record.started, record.error, record.worker) == (2.0, None, "bob")
    message = "bob answered instead of ann; ann failed 2 times: no"
    assert trace.recovered == (ev.Notice(at=4.0, step=1, text=message, recovered=True),)


def test_a_repaired_plan_is_told_once() -> None:
    unwritten = ev.PlanReady(at=2.0, plan=PLAN, usage=SPENT)
    written = replace(unwritten, prompt=(Message(role="user", content="plan"),))
    again = ev.PlanDecided(at=3.0, verdict="replan", feedback="shorter")
    texts = [notice.text for notice in folded(STARTED, REJECTED, written, again, written).recovered]
    assert texts == [
        "the planner's output was not a valid plan: no step; the planner was asked again"
    ]
    assert folded(STARTED, REJECTED, unwritten).recovered == ()


def test_what_is_told_holds_nested_runs() -> None:
    inner: list[ev.Event] = [
        ev.StepPlanned(at=0.1, step=1, worker="ann", subtask="do", access=(), last=True),
        ev.StepFailed(at=0.2, step=1, attempt=0, error=FAULT, usage=Usage(), substitute="bob"),
        started(at=0.3, worker="bob"),
        ev.StepFinished(at=0.5, step=1, attempt=1, text="yes", usage=SPENT, finish="stop"),
        ev.Notice(at=0.6, text="read this"),
    ]
    trace = folded(
        STARTED,
        planned(2, at=1.0),
        started(2, at=2.0, worker="self"),
        *(ev.NestedEvent(at=2.0 + event.at, step=2, event=event) for event in inner),
        ev.Notice(at=9.0, step=2, text="shortened", recovered=True),
    )
    assert [
        (notice.at, notice.step, notice.text, notice.recovered) for notice in trace.all_notices()
    ] == [
        (
            2.5,
            2,
            "step 1 of its nested run: bob answered instead of ann; ann was not asked: no",
            True,
        ),
        (2.6, 2, "its nested run: read this", False),
        (9.0, 2, "shortened", True),
    ]


def failed(
    worker: str, message: str = "server error (500)", hint: str = "", *, was_asked: bool = True
) -> FailedAttempt:
    error = Failure(kind="worker", message=f"{worker}: {message}", hint=hint)
    return FailedAttempt(
        worker=worker,
        attempt=int(was_asked),
        started=0.5 if was_asked else None,
        ended=1.0,
        error=error,
        usage=Usage(),
    )


def test_each_worker_has_its_own_reason_and_cure() -> None:
    attempts = [
        failed("ann", "key refused (401)", "conductor keys set openai", was_asked=False),
        failed("bob", "no answer"),
        failed("bob", "broken off"),
    ]
    assert describe_failed_attempts(attempts) == (
        "ann was not asked: key refused (401); hint: conductor keys set openai; "
        "bob failed 2 times, the last time: broken off"
    )


def test_what_a_server_says_is_bounded() -> None:
    description = describe_failed_attempts([failed("ann", "x" * 1_000_000, "y" * 1_000_000)])
    assert len(description) < 2 * MAX_REASON + 60


def tool_offered(*, at: float, step: int = 1) -> ev.ToolOffered:
    call = ToolCall(id="c1", name="write_file", arguments="{}")
    return ev.ToolOffered(at=at, step=step, attempt=1, turn=1, call=call, server="fs", worker="ann")


def tool_called(*, at: float, step: int = 1) -> ev.ToolCalled:
    call = ToolCall(id="c1", name="write_file", arguments="{}")
    return ev.ToolCalled(at=at, step=step, attempt=1, turn=1, call=call, server="fs")


def waited_for(trace: Trace) -> str:
    assert trace.waits_for is not None
    return describe_approval(trace.waits_for)


def test_a_run_waits_for_a_person_until_the_plan_is_decided_about() -> None:
    offered = folded(
        STARTED,
        planned(),
        ev.PlanReady(at=3.0, plan=PLAN, usage=SPENT),
        ev.PlanOffered(at=3.0),
    )
    assert waited_for(offered) == "approval of the plan"
    assert offered.seconds_waited(93.0) == 90.0
    decided = apply_event(offered, ev.PlanDecided(at=93.0, verdict="approved"))
    assert decided.waits_for is None
    assert decided.seconds_waited(98.0) == 90.0


def test_the_wait_for_a_plan_that_is_dropped_counts_too() -> None:
    skipped = ev.StepStopped(at=93.0, step=1, reason="cancelled", usage=NO_USAGE)
    dropped = ev.RunFailed(at=93.0, error=FAULT, usage=SPENT)
    trace = folded(STARTED, planned(), ev.PlanOffered(at=3.0), skipped, dropped)
    assert trace.seconds_waited(93.0) == 90.0


def test_a_run_waits_for_a_person_until_the_offered_call_is_made_or_its_step_ends() -> None:
    offered = folded(STARTED, planned(), started(), tool_offered(at=4.0))
    assert waited_for(offered) == "approval of fs.write_file"
    called = apply_event(offered, tool_called(at=9.0))
    assert called.waits_for is None
    assert called.seconds_waited(20.0) == 5.0
    stopped = apply_event(
        offered, ev.StepStopped(at=6.0, step=1, reason="cancelled", usage=NO_USAGE)
    )
    assert stopped.waits_for is None
    failed = apply_event(offered, ev.RunFailed(at=7.0, error=FAULT, usage=SPENT))
    assert failed.waits_for is None
    assert failed.seconds_waited(7.0) == 3.0


def test_a_run_waits_for_what_a_server_of_tools_asks_until_the_call_returns() -> None:
    input_asked = ev.InputAsked(at=5.0, step=1, attempt=1, turn=1, server="fs", message="Which?")
    waits = folded(STARTED, planned(), started(), tool_called(at=4.0), input_asked)
    assert waited_for(waits) == "an answer to fs"
    again = apply_event(waits, replace(input_asked, at=8.0))
    returned = ev.ToolReturned(
        at=9.0, step=1, attempt=1, turn=1, call_id="c1", text="done", error=False, seconds=1.0
    )
    after = apply_event(again, returned)
    assert after.waits_for is None
    assert after.seconds_waited(20.0) == 4.0


def test_while_another_step_runs_no_time_counts_as_waiting() -> None:
    parallel = (
        STARTED,
        planned(1, last=False),
        planned(2),
        started(1),
        started(2),
        tool_offered(at=4.0),
    )
    assert folded(*parallel).waits_for is not None
    assert folded(*parallel).seconds_waited(9.0) == 0.0
    finished = ev.StepFinished(at=6.0, step=2, attempt=1, text="a", usage=SPENT, finish="stop")
    assert folded(*parallel, finished, tool_called(at=9.0)).seconds_waited(9.0) == 0.0


def test_a_run_waits_where_a_nested_one_does() -> None:
    inner = (STARTED, planned(), started(), tool_offered(at=4.0))
    nested = [ev.NestedEvent(at=3.0 + event.at, step=1, event=event) for event in inner]
    trace = folded(STARTED, planned(), started(at=3.0), *nested)
    assert waited_for(trace) == "approval of fs.write_file"
    assert trace.seconds_waited(12.0) == 5.0

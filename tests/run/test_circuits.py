"""Circuits.

A worker that keeps failing is passed over, and one call finds out whether it is back.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from conductor_cli.core import events as ev
from conductor_cli.core.errors import ModelError, ModelErrorReason
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.trace import Trace
from conductor_cli.models.base import ScriptedModel
from conductor_cli.run import Orchestra
from conductor_cli.run.circuits import MAX_OPEN, BreakerRules, Circuit, Circuits
from tests.run.kit import (
    QUESTION,
    Counting,
    fold,
    now,
    of,
    plan_of,
    play,
    read,
    says,
    setting,
    start,
    virtually,
)

BUSY = ModelError("overloaded", "busy: the other question")


def busy(times: int = 99) -> ScriptedModel:
    return ScriptedModel([*[[BUSY]] * times, ["back"]])


def skipping(plan: Any, workers: dict[str, Any], **options: Any) -> Orchestra:
    return setting(plan, workers, circuits=Circuits(clock=now), **options)


def plays(orchestra: Orchestra, *pauses: float) -> list[Trace]:
    """The same question again and again, with pauses before each further run."""

    async def main() -> list[Trace]:
        traces = []
        for pause in (0.0, *pauses):
            await asyncio.sleep(pause)
            traces.append(fold(await read(start(orchestra, QUESTION))))
        return traces

    return virtually(main())


def test_a_worker_that_failed_three_times_is_not_asked_in_the_next_step() -> None:
    plan = plan_of(("ann", ()), ("ann", (1,)))
    _, events = play(skipping(None, {"ann": busy(), "bob": says("yes")}), plan=plan)
    assert [(event.step, event.worker) for event in of(events, ev.StepStarted)] == [
        (1, "ann"),
        (1, "ann"),
        (1, "ann"),
        (1, "bob"),
        (2, "bob"),
    ]
    last = of(events, ev.StepFailed)[-1]
    assert (last.attempt, last.substitute, last.error.reason) == (0, "bob", "circuit_open")
    why = (
        "ann: skipped for 30 s, because it failed 3 times in a row, the last time by a server error"
    )
    assert last.error.message == why
    assert last.error.kind == "unreachable"


def test_a_later_run_is_told_and_does_not_plan_on_a_skipped_worker() -> None:
    planner = ScriptedModel([["A | - | one"], ["B | - | one"], ["A | - | one"]])
    first, second, third = plays(skipping(planner, {"ann": busy(3), "bob": says("yes")}), 1.0, 40.0)
    assert [trace.answer for trace in (first, second, third)] == ["yes", "yes", "back"]
    assert "Not available now: A." in planner.requests[1].messages[1].content
    assert second.notices[0].text.startswith("ann: skipped for 29 s")
    assert third.notices == ()


def test_the_call_that_finds_a_worker_still_down_is_the_only_one() -> None:
    ann = busy()
    second = plays(skipping("A | - | one", {"ann": ann, "bob": says("yes")}), 40.0)[1]
    assert [attempt.attempt for attempt in second.steps[0].failed] == [1]
    assert second.steps[0].worker == "bob"
    assert len(ann.requests) == 4


def test_a_skipped_worker_is_asked_where_nobody_else_can_do_the_step() -> None:
    ann = busy(4)
    first, second = plays(skipping("A | - | one", {"ann": ann}), 1.0)
    assert (first.exit_code, second.answer) == (8, "back")


def test_two_runs_at_once_make_one_call_to_a_worker_that_may_be_back() -> None:
    ann = ScriptedModel([*[[BUSY]] * 3, [5.0, "back"]])
    orchestra = skipping(None, {"ann": ann, "bob": says("bob")})
    plan = plan_of(("ann", ()))

    async def main() -> list[str]:
        await read(start(orchestra, QUESTION, plan=plan))
        await asyncio.sleep(40)
        runs = [start(orchestra, QUESTION, plan=plan) for _ in range(3)]
        await asyncio.gather(*map(read, runs))
        return [run.trace.answer for run in runs]

    assert sorted(virtually(main())) == ["back", "bob", "bob"]


def test_without_the_breaker_every_step_asks_its_own_worker() -> None:
    circuits = Circuits(BreakerRules(failures=0), clock=now)
    plan = plan_of(("ann", ()), ("ann", (1,)))
    ann = busy()
    play(setting(None, {"ann": ann, "bob": says("yes")}, circuits=circuits), plan=plan)
    assert len(ann.requests) == 6


def test_a_key_that_two_workers_share_and_that_is_refused_is_not_tried_by_a_third() -> None:
    refused = ModelError("auth", "401")
    options: dict[str, Any] = {"base_url": "http://127.0.0.1:9/v1"}
    pool = Pool(
        workers=(
            *(
                Worker(name=name, kind="openai-compatible", model=name, options=options)
                for name in ("a", "b", "c")
            ),
            Worker(
                name="d",
                kind="openai-compatible",
                model="d",
                options={**options, "key_env": "OTHER_KEY"},
            ),
        )
    )
    models = {name: ScriptedModel([[refused]]) for name in "abc"} | {"d": says("yes")}
    run, _ = play(skipping(None, models, pool=pool), plan=plan_of(("a", ())))
    assert run.trace.answer == "yes"
    assert [len(models[name].requests) for name in "abcd"] == [1, 1, 0, 1]


def test_workers_of_one_provider_share_its_turns() -> None:
    models = {name: Counting(name, 1.0) for name in ("ann", "bob", "cyd")}
    together = asyncio.Semaphore(1)
    orchestra = setting(None, models, provider_slots={"ann": together, "bob": together})
    plan = plan_of(("ann", ()), ("bob", ()), ("ann", ()), ("cyd", ()), ("cyd", (1, 2, 3, 4)))
    _, events = play(orchestra, plan=plan)
    assert [(event.step, event.at) for event in of(events, ev.StepStarted)] == [
        (1, 0.0),
        (4, 0.0),
        (2, 1.0),
        (3, 2.0),
        (5, 3.0),
    ]


RULES = BreakerRules(failures=3, seconds=30.0)
OVERLOADED = ModelError("overloaded", "busy")


def failed(*errors: ModelError, shared: bool = False, worker: str = "ann") -> Circuit:
    circuit = Circuit(shared=shared)
    for error in errors:
        circuit.fail(worker, error, RULES, 0.0)
    return circuit


def test_an_answer_starts_the_count_again() -> None:
    for answer in (None, ModelError("refused", "no such field"), ModelError("length", "too long")):
        circuit = failed(OVERLOADED, OVERLOADED)
        if answer is None:
            circuit.succeed()
        else:
            circuit.fail("ann", answer, RULES, 0.0)
        circuit.fail("ann", OVERLOADED, RULES, 0.0)
        assert circuit.state(0.0) == "closed"


def test_of_a_half_open_circuit_one_call_decides() -> None:
    circuit = failed(OVERLOADED, OVERLOADED, OVERLOADED)
    caller = object()
    circuit.begin(caller, 30.0)
    assert circuit.seconds_left(31.0) == 0.0
    circuit.fail("ann", OVERLOADED, RULES, 32.0)
    assert circuit.seconds_left(32.0) == 60.0
    circuit.begin(caller, 92.0)
    circuit.succeed()
    assert (circuit.state(92.0), circuit.failures) == ("closed", 0)
    for _ in range(3):
        circuit.fail("ann", OVERLOADED, RULES, 93.0)
    assert circuit.seconds_left(93.0) == 30.0


def test_of_a_closed_circuit_no_call_decides_alone() -> None:
    circuit = Circuit()
    circuit.begin(object(), 0.0)
    circuit.fail("ann", OVERLOADED, RULES, 1.0)
    assert circuit.state(1.0) == "closed"


def test_a_caller_that_leaves_without_a_result_lets_the_next_one_try() -> None:
    circuit = failed(OVERLOADED, OVERLOADED, OVERLOADED)
    caller = object()
    circuit.begin(caller, 30.0)
    circuit.begin(object(), 30.5)
    circuit.leave(object())
    assert circuit.seconds_left(31.0) == 0.0
    circuit.leave(caller)
    assert circuit.seconds_left(31.0) is None


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (ModelError("auth", "401"), 30.0),
        (ModelError("rate", "quota", retry_after=300.0), 300.0),
        (ModelError("rate", "quota", retry_after=1e9), MAX_OPEN),
        (ModelError("rate", "slow down", retry_after=2.0), None),
        (ModelError("rate", "slow down"), None),
        (OVERLOADED, None),
        (ModelError("missing", "404"), None),
    ],
)
def test_some_failures_open_at_once_and_some_never_count(
    error: ModelError, seconds: float | None
) -> None:
    assert failed(error).seconds_left(0.0) == seconds


@pytest.mark.parametrize("reason", ["overloaded", "timeout", "broken"])
def test_one_failing_model_does_not_close_its_provider(reason: ModelErrorReason) -> None:
    circuit = failed(*[ModelError(reason, "no")] * 9, shared=True)
    assert circuit.state(0.0) == "closed"
    circuit.fail("bob", ModelError(reason, "no"), RULES, 0.0)
    assert circuit.state(0.0) == "open"
    assert failed(*[ModelError("connect", "no")] * 3, shared=True).state(0.0) == "open"

from __future__ import annotations

import asyncio
from typing import Any

from conductor_cli.core import events as ev
from conductor_cli.core.breaker import BreakerRules
from conductor_cli.core.chat import Request
from conductor_cli.core.errors import ModelError
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.trace import Trace
from conductor_cli.models.base import ScriptedModel
from conductor_cli.run import Conductor
from conductor_cli.run.circuits import Circuits
from tests.run.kit import QUESTION, Counting, fold, now, of, plan_of, play, read, says, setting, virtually

BUSY = ModelError("overloaded", "busy: the other question")


def busy(times: int = 99) -> ScriptedModel:
    return ScriptedModel([*[[BUSY]] * times, ["back"]])


def skipping(plan: Any, workers: dict[str, Any], **more: Any) -> Conductor:
    return setting(plan, workers, circuits=Circuits(clock=now), **more)


def plays(conductor: Conductor, *pauses: float) -> list[Trace]:
    """The same question again and again, with pauses before each further run."""

    async def main() -> list[Trace]:
        traces = [fold(await read(conductor.run(QUESTION)))]
        for pause in pauses:
            await asyncio.sleep(pause)
            traces.append(fold(await read(conductor.run(QUESTION))))
        return traces

    return virtually(main())


def test_a_worker_that_failed_three_times_is_not_asked_in_the_next_step() -> None:
    """Within one run the second step goes to another worker at once, and its event says why, in our own words."""
    plan = plan_of(("ann", ()), ("ann", (1,)))
    _, events = play(skipping(None, {"ann": busy(), "bob": says("yes")}), plan=plan)
    assert [(event.step, event.worker) for event in of(events, ev.StepStarted)] == [
        (1, "ann"), (1, "ann"), (1, "ann"), (1, "bob"), (2, "bob"),
    ]  # fmt: skip
    last = of(events, ev.StepFailed)[-1]
    assert (last.attempt, last.substitute, last.error.reason) == (0, "bob", "circuit_open")
    why = "ann: skipped for 30 s, because it failed 3 times in a row, the last time by a server error"
    assert last.error.message == why
    assert last.error.kind == "unreachable"


def test_a_later_run_is_told_and_does_not_plan_on_a_skipped_worker() -> None:
    """The planner has no label for it, a notice says so, and after the time one call finds out that it is back."""
    planner = ScriptedModel([["A | - | one"], ["B | - | one"], ["A | - | one"]])
    first, second, third = plays(skipping(planner, {"ann": busy(3), "bob": says("yes")}), 1.0, 40.0)
    assert [trace.answer for trace in (first, second, third)] == ["yes", "yes", "back"]
    assert "Not available now: A." in planner.requests[1].messages[1].content
    assert second.notices[0].text.startswith("ann: skipped for 29 s")
    assert third.notices == ()


def test_the_call_that_finds_a_worker_still_down_is_the_only_one() -> None:
    """Half open, one attempt is made; its failure goes to another worker without the usual retries."""
    ann = busy()
    second = plays(skipping("A | - | one", {"ann": ann, "bob": says("yes")}), 40.0)[1]
    assert [attempt.attempt for attempt in second.steps[0].failed] == [1]
    assert second.steps[0].worker == "bob"
    assert len(ann.requests) == 4


def test_a_skipped_worker_is_asked_where_nobody_else_can_do_the_step() -> None:
    """Alone in its pool, a worker keeps all its attempts: there is nothing to lose."""
    ann = busy(4)
    first, second = plays(skipping("A | - | one", {"ann": ann}), 1.0)
    assert (first.exit_code, second.answer) == (8, "back")


def test_two_runs_at_once_make_one_call_to_a_worker_that_may_be_back() -> None:
    """Of two runs that begin after the break, one tries the worker and the other goes past it."""

    class Slow(ScriptedModel):
        async def stream(self, request: Request) -> Any:
            if len(self.requests) >= 3:
                await asyncio.sleep(5)
            async for chunk in super().stream(request):
                yield chunk

    ann = Slow([*[[BUSY]] * 3, ["back"]])
    conductor = skipping(None, {"ann": ann, "bob": says("bob")})
    plan = plan_of(("ann", ()))

    async def main() -> list[str]:
        await read(conductor.run(QUESTION, plan=plan))
        await asyncio.sleep(40)
        runs = [conductor.run(QUESTION, plan=plan) for _ in range(3)]
        await asyncio.gather(*map(read, runs))
        return [run.trace.answer for run in runs]

    assert sorted(virtually(main())) == ["back", "bob", "bob"]


def test_a_run_that_is_stopped_in_the_deciding_call_blocks_nobody() -> None:
    """The next run may try the worker."""

    class Hanging(ScriptedModel):
        async def stream(self, request: Request) -> Any:
            if len(self.requests) == 3:
                self.requests.append(request)
                await asyncio.sleep(1000)
            async for chunk in super().stream(request):
                yield chunk

    ann = Hanging([*[[BUSY]] * 3, ["back"]])
    conductor = skipping(None, {"ann": ann, "bob": says("bob")})
    plan = plan_of(("ann", ()))

    async def main() -> str:
        await read(conductor.run(QUESTION, plan=plan))
        await asyncio.sleep(40)
        stopped = conductor.run(QUESTION, plan=plan)
        asyncio.get_running_loop().call_later(1, stopped.stop, "cancelled")
        await read(stopped)
        last = conductor.run(QUESTION, plan=plan)
        await read(last)
        return last.trace.answer

    assert virtually(main()) == "back"


def test_without_the_breaker_every_step_asks_its_own_worker() -> None:
    """`breaker.failures = 0` brings back all attempts of every step."""
    circuits = Circuits(BreakerRules(failures=0), clock=now)
    plan = plan_of(("ann", ()), ("ann", (1,)))
    ann = busy()
    _, events = play(setting(None, {"ann": ann, "bob": says("yes")}, circuits=circuits), plan=plan)
    assert len(ann.requests) == 6
    assert "circuit_open" not in [event.error.reason for event in of(events, ev.StepFailed)]


def test_a_key_that_two_workers_share_and_that_is_refused_is_not_tried_by_a_third() -> None:
    """Two workers with one key were refused, so the third one is not asked; one with another key is."""
    refused = ModelError("auth", "401")
    options: dict[str, Any] = {"base_url": "http://127.0.0.1:9/v1"}
    pool = Pool(
        workers=(
            *(Worker(name=name, kind="openai-compatible", model=name, options=options) for name in ("a", "b", "c")),
            Worker(name="d", kind="openai-compatible", model="d", options={**options, "key_env": "OTHER_KEY"}),
        )
    )
    models = {name: ScriptedModel([[refused]]) for name in "abc"} | {"d": says("yes")}
    run, _ = play(skipping(None, models, pool=pool), plan=plan_of(("a", ())))
    assert run.trace.answer == "yes"
    assert [len(models[name].requests) for name in "abcd"] == [1, 1, 0, 1]


def test_workers_of_one_provider_share_its_turns() -> None:
    """Two workers with four turns each make one call at a time where their provider takes one; a third is free."""
    models = {name: Counting(name, 1.0) for name in ("ann", "bob", "cyd")}
    together = asyncio.Semaphore(1)
    conductor = setting(None, models, provider_slots={"ann": together, "bob": together})
    plan = plan_of(("ann", ()), ("bob", ()), ("ann", ()), ("cyd", ()), ("cyd", (1, 2, 3, 4)))
    _, events = play(conductor, plan=plan)
    assert [(event.step, event.at) for event in of(events, ev.StepStarted)] == [
        (1, 0.0), (4, 0.0), (2, 1.0), (3, 2.0), (5, 3.0),
    ]  # fmt: skip

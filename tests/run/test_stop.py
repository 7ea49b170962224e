from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Literal

from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core import events as ev
from conductor_cli.core.errors import Failure, ModelError
from conductor_cli.core.pool import Limits
from conductor_cli.models.base import ScriptedModel, ScriptItem
from conductor_cli.run import Run, start_run
from conductor_cli.run.state import StopKind
from tests.run.kit import (
    QUESTION,
    WITH_SELF,
    Counting,
    hold,
    later,
    of,
    play,
    play_and_stop,
    read,
    says,
    setting,
    virtually,
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
    run, events = play_and_stop(setting("A | - | one\nB | 1 | two", workers), 5.0, "cancelled", "running")
    assert (run.trace.at, run.trace.answer, run.trace.partial) == (9.0, "first", True)
    assert [(event.step, event.reason) for event in of(events, ev.StepStopped)] == [(2, "cancelled")]
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
        run = start_run(setting("A | - | one", {"ann": ann}), QUESTION)
        run.stop("terminated", "running")
        events = await read(run)
        hold(run, events)
        assert [event.kind for event in events] == ["run_started", "run_failed"]
        assert run.trace.exit_code == 143
        assert ann.requests == []

    virtually(main())


def test_stopping_after_the_end_changes_nothing() -> None:
    async def main() -> None:
        run = start_run(setting("A | - | one"), QUESTION)
        events = await read(run)
        run.stop("cancelled")
        assert not list(run.state.unread_events())
        hold(run, events)
        assert run.trace.exit_code == 0

    virtually(main())


pieces = st.one_of(
    st.sampled_from(["some text ", "more\n", ""]),
    st.sampled_from([0.25, 0.5, 1.0, 3.0]),
    st.sampled_from(["rate", "broken", "refused", "auth"]).map(lambda reason: ModelError(reason, reason)),  # type: ignore[arg-type]
)
scripts = st.lists(st.lists(pieces, max_size=4), min_size=1, max_size=3)
lines = st.sampled_from(
    ["A | - | one", "B | 1 | two", "C | 1 2 | think", "A | 1 | three", "B | - | four", "prose", "accept"]
)
planners = st.lists(
    st.lists(st.one_of(lines, st.sampled_from(["\n", "\n\n", 0.25, 1.0])), max_size=10), min_size=1, max_size=3
)


@given(
    planners,
    scripts,
    scripts,
    st.sampled_from([0.0, 0.25, 0.3, 0.5, 0.75, 1.0, 1.25, 2.0, 3.5, 9.0]),
    st.sampled_from(["cancelled", "terminated", "limit"]),
    st.sampled_from(["now", "running"]),
    st.sampled_from([Limits(), Limits(recursion=1), Limits(parallel=1, attempts=2), Limits(calls=2, recursion=2)]),
)
def test_whenever_a_run_is_stopped_its_stream_is_whole(
    plan: Scripts, ann: Scripts, bob: Scripts, at: float, reason: StopKind, after: Literal["now", "running"],
    limits: Limits,
) -> None:  # fmt: skip
    workers = {"ann": ScriptedModel(ann), "bob": ScriptedModel(bob)}
    conductor = setting(ScriptedModel(plan), workers, pool=WITH_SELF, limits=limits)
    run, _ = play_and_stop(conductor, at, reason, after)
    if after == "now":
        assert run.trace.at <= at
    assert all(worker.closed == len(worker.requests) for worker in workers.values())


@given(planners, scripts, scripts, st.integers(0, 60), st.booleans())
def test_whoever_leaves_the_stream_is_whole(
    plan: Scripts, ann: Scripts, bob: Scripts, after: int, cancel: bool
) -> None:
    workers = {"ann": ScriptedModel(ann), "bob": ScriptedModel(bob)}
    conductor = setting(ScriptedModel(plan), workers, pool=WITH_SELF, limits=Limits(recursion=1), constrained=True)

    async def main() -> None:
        run = start_run(conductor, QUESTION)
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
        hold(run, [*events, *run.state.unread_events()])

    virtually(main())

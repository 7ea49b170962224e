"""Whole runs: how steps start, fail and end, and what runs inside runs do."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Chunk
from conductor_cli.core.errors import (
    ConductorUnusable,
    ConfigError,
    Failure,
    ModelError,
    PolicyError,
)
from conductor_cli.core.plan import KeepAnswer
from conductor_cli.core.pool import Limits, Pool, Worker
from conductor_cli.core.profile import PROMPTED, WorkerProfile
from conductor_cli.core.trace import Trace
from conductor_cli.models.base import ScriptedModel
from conductor_cli.run import Run
from conductor_cli.run.orchestra import new_run_id
from conductor_cli.run.plan_stream import REVIEW
from tests.run.kit import (
    BLIND,
    QUESTION,
    WITH_SELF,
    Counting,
    error_of,
    inner,
    kinds,
    later,
    notices,
    of,
    plan_of,
    play,
    play_and_stop,
    pool_of,
    raising,
    read,
    says,
    setting,
    start,
    virtually,
    with_self,
)

CHAIN = "A | - | one\nB | 1 | two"
DECLINING: Final = WorkerProfile(refusal="?")


def test_a_refusal_is_no_answer() -> None:
    planned = [CHAIN]
    workers = {"ann": says("?"), "bob": says("?")}
    run, _ = play(setting(ScriptedModel([planned]), workers, worker_profile=DECLINING))
    assert (run.trace.answer, error_of(run).reason, run.trace.exit_code) == ("", "declined", 1)
    assert error_of(run).message == "no answer: ann cannot do step 1, 'one'"
    assert play(setting(ScriptedModel([planned]), workers))[0].trace.answer == "?"
    workers["bob"] = says("it is 4")
    run, _ = play(setting(ScriptedModel([planned]), workers, worker_profile=DECLINING))
    assert run.trace.answer == "it is 4"


def test_a_reader_that_needs_no_traces_is_given_the_same_events() -> None:
    """And a run whose reader fails is ended, as where one leaves early."""
    workers = {"ann": says("a"), "bob": says("b")}
    shown, events = play(setting(ScriptedModel([[CHAIN]]), workers))
    given: list[ev.Event] = []

    async def take(event: ev.Event) -> None:
        given.append(event)

    async def refuse(event: ev.Event) -> None:
        raise OSError(event.kind)

    async def go() -> None:
        run = start(setting(ScriptedModel([[CHAIN]]), workers))
        await run.give_events(take)
        assert kinds(given) == kinds(events)
        assert run.trace.answer == shown.trace.answer
        with pytest.raises(RuntimeError, match="only once"):
            await run.give_events(take)
        refused = start(setting(ScriptedModel([[CHAIN]]), workers))
        with pytest.raises(OSError, match="run_started"):
            await refused.give_events(refuse)
        assert refused.trace.state == "failed"

    virtually(go())


def test_a_step_starts_while_the_plan_is_still_being_written() -> None:
    _, events = play(setting(["A | - | one\n", 5.0, "B | 1 | two"], constrained=True))
    started = of(events, ev.StepStarted)[0]
    ready = of(events, ev.PlanReady)[0]
    assert (started.step, started.at, ready.at) == (1, 0.0, 5.0)
    assert [event.at for event in of(events, ev.StepFinished)] == [0.0, 5.0]


def test_a_substitute_keeps_its_own_bound() -> None:
    cyd = Counting(seconds=3)
    pool = Pool(workers=(*pool_of("ann", "bob").workers, *pool_of("cyd", parallel=1).workers))
    down = [ModelError("refused", "no")]
    workers: dict[str, Any] = {
        "ann": ScriptedModel([down]),
        "bob": ScriptedModel([down, down, ["end"]]),
        "cyd": cyd,
    }
    _, events = play(
        setting("C | - | zero\nA | - | one\nA | - | two\nC | 1 2 3 | end", workers, pool=pool)
    )
    assert cyd.most == 1
    assert [event.at for event in of(events, ev.StepStarted) if event.worker == "cyd"] == [
        0.0,
        3.0,
        6.0,
        9.0,
    ]


def test_a_step_runs_without_the_answer_of_a_failed_one() -> None:
    workers = {
        "ann": ScriptedModel([[ModelError("refused", "no")]]),
        "bob": ScriptedModel([[ModelError("refused", "no")], ["yes"]]),
    }
    run, events = play(setting("A | - | one\nB | 1 | two", workers))
    assert notices(events) == [
        "step 1 failed, so step 2 runs without its answer: ann failed: no; bob failed: no"
    ]
    assert "failed; there is no answer from it" in workers["bob"].requests[-1].messages[-1].content
    assert (run.trace.answer, run.trace.partial) == ("yes", False)


def test_a_run_is_read_only_once() -> None:
    run, _ = play(setting(CHAIN))
    with pytest.raises(RuntimeError, match="only once"):
        virtually(read(run))


def test_a_slow_reader_delays_no_worker_and_reaches_the_end() -> None:
    ann = ScriptedModel([["word "] * 2000])

    async def main() -> list[ev.Event]:
        run = start(setting("A | - | one", {"ann": ann}), QUESTION)
        stream = aiter(run)
        first, _ = await anext(stream)
        await asyncio.sleep(1000)
        assert run.trace.ended
        return [first, *[event async for event, _ in stream]]

    events = virtually(main())
    assert len(of(events, ev.StepDelta)) == 2000
    assert events[-1].kind == "run_finished"
    assert events[-1].at == 0.0


@pytest.mark.parametrize("takes", [True, False])
def test_pieces_of_text_may_be_read_at_once(*, takes: bool) -> None:
    """Who reads the run so has every piece once, in order, and its trace has all of them."""
    pieces = list[ev.StepDelta]()

    def read_piece(piece: ev.StepDelta) -> bool:
        if takes:
            pieces.append(piece)
        return takes

    async def main() -> tuple[Run, list[tuple[ev.Event, Trace]]]:
        words: list[Any] = [
            0.1,
            Chunk(thinking="Hm."),
            0.1,
            *(f"{number} " for number in range(200)),
            0.1,
        ]
        workers = {"ann": ScriptedModel([words]), "bob": says(0.05, "from", 0.1, " bob")}
        run = start(setting("A | - | one\nB | - | two", workers))
        run.read_pieces_at_once(read_piece)
        return run, [item async for item in run]

    run, read_events = virtually(main())
    events = [event for event, _ in read_events]
    pieces += of(events, ev.StepDelta)
    texts = {
        number: "".join(piece.text for piece in pieces if piece.step == number) for number in (1, 2)
    }
    assert texts == {1: "".join(f"{number} " for number in range(200)), 2: "from bob"}
    assert [piece.thinking for piece in pieces if piece.thinking] == ["Hm."]
    assert len(of(events, ev.StepDelta)) < 10 or not takes
    started = [trace for event, trace in read_events if isinstance(event, ev.StepFinished)]
    assert [record.thinking for record in started[-1].steps] == ["Hm.", ""]
    assert read_events[-1][1] == run.trace == run.read_so_far
    assert [record.text for record in run.trace.steps] == list(texts.values())


def test_what_was_read_at_once_is_in_the_trace_of_a_run_that_is_stopped() -> None:
    async def main() -> tuple[Run, list[Trace]]:
        run = start(setting("A | - | one", {"ann": says("some ", 0.1, "words ", 1.0, "more")}))
        run.read_pieces_at_once(lambda _: True)
        later(0.5, run.stop, "cancelled")
        return run, [trace async for _, trace in run]

    run, traces = virtually(main())
    assert [trace.steps[0].text for trace in traces[-2:]] == ["some words ", "some words "]
    assert run.trace == traces[-1]


def test_a_run_can_stop_at_the_plan() -> None:
    run, events = play(setting(CHAIN), plan_only=True)
    assert kinds(events) == [
        "run_started",
        "step_planned",
        "step_planned",
        "plan_ready",
        "run_finished",
    ]
    assert (run.trace.answer, run.trace.exit_code) == ("", 0)
    run, _ = play(setting([ModelError("auth", "no key")]), plan_only=True)
    assert run.trace.exit_code == 4


def test_absent_workers_are_reported_and_not_asked() -> None:
    bob = says("x")
    planner = ScriptedModel([["A | - | one"]])
    absent = {"bob": Failure(kind="key", message="no key")}
    _, events = play(setting(planner, {"ann": says("yes"), "bob": bob}, unavailable=absent))
    assert notices(events) == ["bob is left out: no key"]
    assert "Not available now: B." in planner.requests[0].messages[1].content
    assert bob.requests == []


@pytest.mark.parametrize("after", [(1.0,), ("half ", 1.0)], ids=["at once", "in the middle"])
def test_a_fault_of_an_adapter_ends_the_run_as_internal(after: tuple[str | float, ...]) -> None:
    bob = ScriptedModel([["slow", 60.0, "answer"]])
    workers: dict[str, Any] = {
        "ann": raising(lambda: ValueError("what is this"), *after),
        "bob": bob,
    }
    run, events = play(setting("A | - | one\nB | - | two\nB | 1 2 | three", workers))
    assert error_of(run).kind == "internal"
    assert "ValueError: what is this" in error_of(run).message
    assert [record.state for record in run.trace.steps] == ["failed", "stopped", "skipped"]
    assert [event.reason for event in of(events, ev.StepStopped)] == ["run_failed", "run_failed"]
    assert run.trace.exit_code == 1
    assert bob.closed == 1


def test_a_fault_of_the_conductor_model_ends_the_run_as_internal() -> None:
    planner = raising(ZeroDivisionError, "A | - | one\n")
    run, events = play(setting(planner, {"ann": Counting(seconds=9)}, constrained=True))
    assert error_of(run).kind == "internal"
    assert [event.step for event in of(events, ev.StepStopped)] == [1]


def test_a_fault_in_a_nested_run_ends_the_whole_run() -> None:
    planner = ScriptedModel([["B | - | think"], ["A | - | one"]])
    run, events = play(
        setting(planner, {"ann": raising(lambda: OSError("disk"))}, pool=with_self("ann"))
    )
    assert inner(events, 1)[-1].kind == "run_failed"
    assert error_of(run).kind == "internal"


def test_a_model_that_cancels_itself_is_a_broken_call() -> None:
    ann = raising(asyncio.CancelledError, "half")
    run, events = play(setting("A | - | one", {"ann": ann, "bob": says("yes")}))
    assert of(events, ev.StepFailed)[0].error.message == "ann: the call was cancelled from inside"
    assert run.trace.answer == "yes"
    run, events = play(setting(raising(asyncio.CancelledError)))
    assert [event.problem for event in of(events, ev.PlanRejected)] == [
        "the call was cancelled from inside"
    ] * 2
    assert run.trace.answer == "from ann"


def test_notes_of_models_become_notices() -> None:
    planner = ScriptedModel([[Chunk(note="no grammar here"), "A | - | one"]])
    _, events = play(
        setting(planner, {"ann": ScriptedModel([[Chunk(note="temperature left out"), "yes"]])})
    )
    assert notices(events) == ["the planner: no grammar here", "ann: temperature left out"]
    assert [event.step for event in of(events, ev.Notice)] == [0, 1]


def test_text_that_no_encoding_can_write_never_enters_the_stream() -> None:
    run, _ = play(setting("A | - | one", {"ann": says("né \ud800!")}))
    assert run.trace.answer == "né \ufffd!"


def test_times_come_from_the_injected_clocks() -> None:
    ticks = iter(range(100, 10000))
    wall = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    run, events = play(setting(CHAIN, clock=lambda: float(next(ticks)), wall=lambda: wall))
    assert events[0].at == 1.0
    assert [event.at for event in events] == sorted({event.at for event in events})
    assert of(events, ev.RunStarted)[0].time == "2026-01-02T03:04:05.000+00:00"
    assert run.id.startswith("20260102-030405-")


def test_run_ids_sort_by_time_and_differ() -> None:
    first = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    moments = [
        first + timedelta(microseconds=step)
        for step in (0, 1, 15, 16, 999_999, 1_000_000, 60_000_000)
    ]
    ids = [new_run_id(moment) for moment in moments]
    assert ids == sorted(ids)


def test_runs_of_one_moment_have_ids_of_their_own() -> None:
    """Busy processes begin several runs in a microsecond, and two of one id have one trace."""
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert len({new_run_id(moment) for _ in range(100)}) >= 98


def test_an_impossible_run_is_refused_before_any_call() -> None:
    with pytest.raises(ConfigError):
        start(setting(CHAIN, limits=Limits(steps=9)), QUESTION)
    with pytest.raises(PolicyError):
        start(setting(CHAIN, pool=Pool(workers=())), QUESTION)
    with pytest.raises(ConductorUnusable):
        start(setting(None), QUESTION, plan=plan_of(("self", ())))
    with pytest.raises(ConductorUnusable):
        start(setting(None, limits=Limits(recursion=1)), QUESTION, plan=plan_of(("ann", ())))


def test_the_values_of_own_headers_stay_out_of_the_stream() -> None:
    worker = Worker(
        name="ann", kind="x", options={"headers": {"Ocp-Apim-Subscription-Key": "topsecret"}}
    )
    _, events = play(
        setting("A | - | one", pool=Pool(workers=(worker,)), notices=("found at hand",))
    )
    assert "topsecret" not in "".join(ev.to_line(event) for event in events)
    assert "Ocp-Apim-Subscription-Key" in ev.to_line(events[0])
    assert of(events, ev.Notice)[0].text == "found at hand"


ONCE = Limits(recursion=1)
TWO = {"ann": says("from ann"), "bob": says("from bob")}


def test_recursion_appends_a_step_in_which_the_conductor_reads_the_answer() -> None:
    """Its question is the question and the subtask."""
    planner = ScriptedModel([["A | - | one\nB | 1 | two"], ["accept"]])
    run, events = play(setting(planner, limits=ONCE))
    review = of(events, ev.StepPlanned)[-1]
    assert (review.worker, review.subtask, review.access, review.last) == (
        "self",
        REVIEW,
        (1, 2),
        True,
    )
    nested = inner(events, 3)
    assert kinds(nested) == ["run_started", "plan_ready", "run_finished"]
    (begun,) = of(nested, ev.RunStarted)
    assert begun.question.text.startswith(
        f"{QUESTION.text}\n\nWithin this question, the subtask is: Check the answer"
    )
    assert (begun.run, begun.question.parent) == (f"{run.id}.3", run.id)
    assert [(item.worker, item.subtask, item.answer) for item in begun.question.given] == [
        ("ann", "one", "from ann"),
        ("bob", "two", "from bob"),
    ]
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
    assert (
        play(setting(ScriptedModel([[plan]]), reasoned, profile=judging))[0].trace.answer
        == "from ann"
    )
    plain, _ = play(setting(ScriptedModel([[plan]]), workers))
    assert plain.trace.answer == "NO"
    reviewed, events = play(
        setting(ScriptedModel([[plan], ["accept"]]), workers, profile=judging, limits=ONCE)
    )
    assert [item.answer for item in of(inner(events, 3), ev.RunStarted)[0].question.given] == [
        "from ann",
        "NO",
    ]
    assert reviewed.trace.answer == "from ann"


def test_a_corrective_workflow_replaces_the_answer() -> None:
    planner = ScriptedModel([["A | - | one"], ["B | 0 | Mend it."]])
    bob = says("mended")
    run, events = play(setting(planner, {"ann": says("wrong"), "bob": bob}, limits=ONCE))
    assert run.trace.answer == "mended"
    assert "wrong" in bob.requests[0].messages[-1].content
    assert "goes to the user" in bob.requests[0].messages[-1].content
    assert kinds(inner(events, 2)) == [
        "run_started",
        "step_planned",
        "plan_ready",
        "step_started",
        "step_finished",
        "run_finished",
    ]


def test_only_the_outermost_last_step_knows_that_its_answer_goes_to_the_user() -> None:
    ann = says("from ann")
    bob = says("from bob")
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
    orchestra = setting(planner, TWO, pool=WITH_SELF, limits=Limits(recursion=2))
    earlier, _ = play_and_stop(orchestra, 5.0, "cancelled")
    shallow = setting(ScriptedModel([["accept"]]), TWO, pool=WITH_SELF, limits=ONCE)
    run, events = play(shallow, resume=earlier.trace)
    assert (
        of(inner(events, 2), ev.StepFailed)[0].error.message == "runs cannot be nested any deeper"
    )
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
    assert (
        of(inner(events, 2), ev.PlanRejected)[0].problem
        == "accept needs an existing answer, and there is none"
    )
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
    ann = ScriptedModel([["one"]])
    bob = Counting("two", seconds=60)
    run, events = play_and_stop(
        setting(planner, {"ann": ann, "bob": bob}, limits=ONCE), 10.0, "cancelled", "running"
    )
    assert run.trace.at == 60.0
    assert len(ann.requests) == 1
    assert [event.step for event in of(inner(events, 2), ev.StepFinished)] == [1]
    assert (run.trace.answer, run.trace.partial, run.trace.exit_code) == ("two", True, 130)


def test_a_nested_run_that_is_not_needed_is_stopped() -> None:
    planner = ScriptedModel([["C | - | think\nA | - | end"], ["B | - | two"]])
    run, events = play(
        setting(
            planner,
            {"ann": Counting("end", 5), "bob": Counting(seconds=60)},
            pool=WITH_SELF,
            worker_profile=BLIND,
        )
    )
    assert [event.reason for event in of(events, ev.StepStopped)] == ["not_needed"]
    assert [event.reason for event in of(inner(events, 1), ev.StepStopped)] == ["not_needed"]
    assert of(inner(events, 1), ev.RunFailed)[0].error.kind == "cancelled"
    assert (run.trace.answer, run.trace.exit_code, run.trace.at) == ("end", 0, 5.0)


def test_nested_calls_count_against_the_places_of_the_run() -> None:
    plans = (
        ["A | - | a\nA | - | b\nB | - | think\nA | 1 2 3 | end"],
        ["A | - | c\nA | - | d\nA | 1 2 | e"],
    )
    for places, limits, most in ((2, Limits(), 2), (9, Limits(parallel=3), 3)):
        ann = Counting(seconds=3)
        play(
            setting(
                ScriptedModel([*plans]),
                {"ann": ann},
                pool=with_self("ann", parallel=places),
                limits=limits,
            )
        )
        assert ann.most == most


def test_the_conductor_may_name_itself_while_depth_is_left() -> None:
    planner = ScriptedModel([["C | - | think"], ["C | - | think deeper"], ["A | - | one"]])
    run, _ = play(setting(planner, {"ann": says("yes"), "bob": says("x")}, pool=WITH_SELF))
    grammars = [request.grammar or "" for request in planner.requests]
    assert ['"C"' in grammar for grammar in grammars] == [True, False, False]
    nested = run.trace.steps[0].nested
    assert nested is not None
    assert nested.rejected[0].problem.startswith(
        "step 1 names a worker that is not in the pool: 'self'"
    )
    assert run.trace.answer == "yes"

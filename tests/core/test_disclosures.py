"""Who was sent what, told from the events of a run, and beforehand from a plan."""

from __future__ import annotations

import asyncio
from typing import Any

from conductor_cli.core import events as ev
from conductor_cli.core.data_flow import Visibility, inputs_of_steps
from conductor_cli.core.disclosures import (
    DisclosedText,
    Disclosure,
    disclosures_of,
    expected_disclosures,
    planning_disclosure,
)
from conductor_cli.core.errors import ModelError
from conductor_cli.core.plan import SELF, Approve, Decision, Replan
from conductor_cli.core.pool import Limits, Pool, Worker
from conductor_cli.core.question import File, Question, Turn
from conductor_cli.models.scripted import ScriptedModel
from tests.run.kit import plan_of, play, pool_of, read, says, setting, virtually

FULL = Question(
    text="What do the notes say about the hills behind the house?", system="Be brief.",
    files=(File(name="notes.txt", text="There are three hills. " * 5), File(name="more.txt", text="More.")),
    history=(Turn(question="Who lives there?", answer="Nobody."),),
)  # fmt: skip
TWO = "A | - | one\nB | 1 | two"


def recipient_of(worker: Worker) -> str:
    return f"host of {worker.name}"


def said(call: Disclosure) -> list[tuple[Any, ...]]:
    """The texts of a call: kind, and whose."""
    return [(part.kind, part.name or part.step) for part in call.parts]


def sent(conductor: Any, question: Question = FULL, **more: Any) -> list[Disclosure]:
    _, events = play(conductor, question, **more)
    return list(disclosures_of([ev.from_line(ev.to_line(event)) for event in events], recipient_of))


def test_each_call_is_listed_with_its_recipient_and_texts() -> None:
    """The conductor first, without system text; each worker with what its prompt held; only who may sees an answer."""
    plan, one, two = sent(setting(TWO, recipient="here"))
    everything = [("question", None), ("system", None), ("file", "notes.txt"), ("file", "more.txt"), ("history", None)]
    assert (plan.step, plan.worker, plan.recipient, plan.outcome) == ((0,), "conductor", "here", "answered")
    assert said(plan) == [part for part in everything if part[0] != "system"]
    assert (one.step, one.worker, one.recipient) == ((1,), "ann", "host of ann")
    assert said(one) == everything
    assert said(two) == [*everything, ("answer", 1)]
    assert two.parts[-1] == DisclosedText(kind="answer", step=1, chars=len("from ann"))
    assert all(part.whole for call in (plan, one, two) for part in call.parts)


def test_shortened_texts_are_marked() -> None:
    """A long file goes to the conductor in part, to a worker with room as a whole, to one with little in part."""
    long = Question(text="What?", files=(File(name="long.txt", text="words of a long file " * 1000),))
    small = Worker(name="bob", kind="scripted", options={"context": 2000, "max_tokens": 500})
    pool = Pool(workers=(*pool_of("ann").workers, small))
    plan, one, two = sent(setting(TWO, {"ann": says("a" * 50), "bob": says("b")}, pool=pool), long)
    whole = [{part.name: part.whole for part in call.parts if part.kind == "file"} for call in (plan, one, two)]
    assert whole == [{"long.txt": False}, {"long.txt": True}, {"long.txt": False}]


def test_failed_attempts_and_substitutes_are_listed() -> None:
    """Whoever was sent a prompt has it, whatever came of it."""
    workers = {"ann": ScriptedModel([[ModelError("overloaded", "busy")]]), "bob": says("b")}
    limits = Limits(attempts=2)
    calls = [call for call in sent(setting("A | - | one", workers, limits=limits)) if call.step != (0,)]
    assert [(call.worker, call.attempt, call.outcome) for call in calls] == [
        ("ann", 1, "failed: ann: busy"), ("ann", 2, "failed: ann: busy"), ("bob", 3, "answered"),
    ]  # fmt: skip
    assert all(said(call)[0] == ("question", None) for call in calls)


def test_calls_of_nested_runs_have_their_path() -> None:
    """Their planning and their steps, and the answers that they were given."""
    pool = Pool(workers=(*pool_of("ann", "bob").workers, Worker(name=SELF, kind=SELF)))
    model = ScriptedModel([["A | - | one\nC | 1 | check it"], ["B | 0 | correct it"]])
    workers = {"ann": says("first answer"), "bob": says("b")}
    calls = sent(setting(model, workers, pool=pool, recipient="here"))
    assert [(call.step, call.worker, call.recipient) for call in calls] == [
        ((0,), "conductor", "here"), ((1,), "ann", "host of ann"), ((2, 0), "conductor", "here"),
        ((2, 1), "bob", "host of bob"),
    ]  # fmt: skip
    assert [("given", "ann") in said(call) for call in calls] == [False, False, True, True]


def test_what_an_earlier_run_had_done_is_not_sent_again() -> None:
    """A resumed run tells only its own calls."""
    half = {"ann": says("a"), "bob": ScriptedModel([[60.0, "late"]])}
    stopped, _ = play(setting(TWO, half, limits=Limits(seconds=10)), FULL)
    calls = sent(setting("never", {"ann": says("no"), "bob": says("b")}), resume=stopped.trace)
    assert [(call.step, call.worker, call.outcome) for call in calls] == [((2,), "bob", "answered")]
    assert ("answer", 1) in said(calls[0])


def test_every_planning_call_is_listed_with_the_feedback() -> None:
    """A plan asked for again, and one that was cut off while it was written."""

    async def main() -> list[ev.Event]:
        run = setting(ScriptedModel([[TWO], ["A | - | other"]])).run(FULL, approve=True)
        events: list[ev.Event] = []
        decisions: list[Decision] = [Replan(feedback="Only ann."), Approve()]
        async for event in run:
            events.append(event)
            if isinstance(event, ev.PlanOffered):
                run.decide(decisions.pop(0))
        return events

    first, second, step = disclosures_of(virtually(main()), recipient_of)
    assert [("feedback", None) in said(call) for call in (first, second, step)] == [False, True, False]
    assert (first.attempt, second.attempt) == (1, 2)

    async def cut() -> list[ev.Event]:
        run = setting(ScriptedModel([["A | - ", 60.0]])).run(FULL)
        asyncio.get_running_loop().call_later(1, run.stop, "cancelled")
        return await read(run)

    (call,) = disclosures_of(virtually(cut()), recipient_of)
    assert (call.step, call.outcome) == ((0,), "not finished")


def test_a_trace_that_does_not_say_who_read_it_says_so() -> None:
    """Traces of older versions lack the conductor's recipient and its prompt: the rules say what it was sent."""
    _, events = play(setting("A | - | one"), FULL)
    old = [ev.from_json({k: v for k, v in ev.to_json(event).items() if k != "recipient"}) for event in events]
    old = [ev.from_json({**ev.to_json(e), "prompt": []}) if isinstance(e, ev.PlanReady) else e for e in old]
    plan = disclosures_of(old, recipient_of)[0]
    assert (plan.recipient, plan.outcome) == ("unknown", "answered")
    assert said(plan)[0] == ("question", None)


def test_a_plan_lists_its_calls_before_it_runs() -> None:
    """By what each worker may be shown; what an answer may carry is said where it is not in the prompt anyway."""
    steps = plan_of(("ann", []), ("bob", [1]), ("self", [2])).steps
    eyes = {
        "ann": Visibility(recipients=("here",)),
        "bob": Visibility(recipients=("there",), question=False, files=False, history=False),
        "self": Visibility(recipients=("here", "there")),
    }  # fmt: skip
    one, two, *nested = expected_disclosures(inputs_of_steps(steps, FULL, eyes), FULL)
    assert (one.recipient, one.outcome) == ("here", "")
    assert said(one)[0] == ("question", None)
    assert said(two) == [("system", None), ("answer", 1)]
    assert two.parts[-1].carries == ("question", "history", "files")
    assert [(call.step, call.recipient) for call in nested] == [((3,), "here"), ((3,), "there")]
    assert planning_disclosure(FULL, "here").step == (0,)

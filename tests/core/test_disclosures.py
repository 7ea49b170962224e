"""Which model is sent which texts: read from the events of a run, and expected from a plan."""

from __future__ import annotations

import asyncio
from typing import Any

from conductor_cli.core import events as ev
from conductor_cli.core.chat import ToolCall
from conductor_cli.core.disclosures import Disclosure, disclosures_of, expected_disclosures
from conductor_cli.core.errors import ModelError
from conductor_cli.core.plan import SELF, Decision
from conductor_cli.core.pool import Limits, Pool, Worker
from conductor_cli.core.question import File, Question, Turn
from conductor_cli.models.base import ScriptedModel
from tests.run.kit import plan_of, play, pool_of, read, says, setting, virtually

FULL = Question(
    text="What do the notes say about the hills behind the house?", system="Be brief.",
    files=(File(name="notes.txt", text="There are three hills. " * 5), File(name="more.txt", text="More.")),
    history=(Turn(question="Who lives there?", answer="Nobody."),),
)  # fmt: skip
TWO = "A | - | one\nB | 1 | two"


def recipient_of(worker: Worker) -> str:
    return f"host of {worker.name}"


def sent(conductor: Any, question: Question = FULL, **more: Any) -> list[Disclosure]:
    _, events = play(conductor, question, **more)
    return list(disclosures_of([ev.from_line(ev.to_line(event)) for event in events], recipient_of))


def test_each_call_is_listed_with_its_recipient_and_texts() -> None:
    """The conductor comes first, without the system text. A worker has what its prompt held."""
    plan, one, two = sent(setting(TWO, recipient="here"))
    everything = ("the question", "the system text", "earlier turns", "file notes.txt", "file more.txt")
    assert (plan.step, plan.worker, plan.recipient) == ((0,), "conductor", "here")
    assert plan.texts == tuple(text for text in everything if text != "the system text")
    assert (one.step, one.worker, one.recipient) == ((1,), "ann", "host of ann")
    assert one.texts == everything
    assert two.texts == (*everything, "the answer of step 1")


def test_a_shortened_text_is_listed() -> None:
    """Part of a long file goes to the conductor."""
    long = Question(text="What?", files=(File(name="long.txt", text="words of a long file " * 1000),))
    plan, _ = sent(setting("A | - | one"), long)
    assert plan.texts == ("the question", "file long.txt")


def test_failed_attempts_and_substitutes_are_listed() -> None:
    """A model that was sent a prompt has it, also if its call failed."""
    workers = {"ann": ScriptedModel([[ModelError("overloaded", "busy")]]), "bob": says("b")}
    limits = Limits(attempts=2)
    calls = [call for call in sent(setting("A | - | one", workers, limits=limits)) if call.step != (0,)]
    assert [(call.worker, call.attempt) for call in calls] == [("ann", 1), ("ann", 2), ("bob", 3)]
    assert all(call.texts[0] == "the question" for call in calls)


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
    assert ["the given answer of ann" in call.texts for call in calls] == [False, False, True, True]


def test_what_an_earlier_run_had_done_is_not_sent_again() -> None:
    """A resumed run tells only its own calls."""
    half = {"ann": says("a"), "bob": ScriptedModel([[60.0, "late"]])}
    stopped, _ = play(setting(TWO, half, limits=Limits(seconds=10)), FULL)
    calls = sent(setting("never", {"ann": says("no"), "bob": says("b")}), resume=stopped.trace)
    assert [(call.step, call.worker) for call in calls] == [((2,), "bob")]
    assert "the answer of step 1" in calls[0].texts


def test_every_planning_call_is_listed_with_the_feedback() -> None:
    """A plan asked for again, and one that was cut off while it was written."""

    async def main() -> list[ev.Event]:
        run = setting(ScriptedModel([[TWO], ["A | - | other"]])).run(FULL, approve=True)
        events: list[ev.Event] = []
        decisions: list[Decision] = [Decision(feedback="Only ann."), Decision()]
        async for event in run:
            events.append(event)
            if isinstance(event, ev.PlanOffered):
                run.decide(decisions.pop(0))
        return events

    first, second, step = disclosures_of(virtually(main()), recipient_of)
    assert ["the feedback on a plan" in call.texts for call in (first, second, step)] == [False, True, False]
    assert (first.attempt, second.attempt) == (1, 2)

    async def cut() -> list[ev.Event]:
        run = setting(ScriptedModel([["A | - ", 60.0]])).run(FULL)
        asyncio.get_running_loop().call_later(1, run.stop, "cancelled")
        return await read(run)

    (call,) = disclosures_of(virtually(cut()), recipient_of)
    assert (call.step, call.texts[0]) == ((0,), "the question")


def test_a_plan_lists_its_calls_before_it_runs() -> None:
    """Each worker is listed with what it may be shown, a step on the conductor once for each possible recipient."""
    steps = plan_of(("ann", []), ("bob", [1]), ("self", [2])).steps
    shown = {"ann": FULL, "bob": Question(text="What?"), "self": FULL}
    recipients = {"ann": ["here"], "bob": ["there"], "self": ["here", "there"]}
    one, two, *nested = expected_disclosures(steps, shown.__getitem__, recipients)
    assert (one.recipient, one.texts[0], len(one.texts)) == ("here", "the question", 5)
    assert two.texts == ("the question", "the answer of step 1")
    assert [(call.step, call.recipient) for call in nested] == [((3,), "here"), ((3,), "there")]


def test_tools_are_recipients() -> None:
    """What a tool is called with went to its server; a call that was not made went to nobody."""
    call = ToolCall(id="c", name="look", arguments="{}")
    made = ev.ToolCalled(at=0, step=1, attempt=1, turn=1, call=call, server="web")
    refused = ev.ToolCalled(at=0, step=1, attempt=1, turn=1, call=call, server="")
    [found] = disclosures_of([made, made, refused], recipient_of)
    assert (found.step, found.worker, found.recipient, found.texts) == (
        (1,),
        "tool:web",
        "tool:web",
        ("arguments of look",),
    )


def test_a_plan_lists_the_tools_that_its_steps_may_call() -> None:
    """Their arguments may quote whatever the step's worker reads."""
    steps = plan_of(("ann", []), ("bob", [1])).steps
    tools = {1: ["web"], 2: []}
    expected = expected_disclosures(
        steps, lambda _: Question(text="?"), {"ann": ["a"], "bob": ["b"]}, tools.__getitem__
    )
    assert [(each.step, each.worker, each.texts) for each in expected] == [
        ((1,), "ann", ("the question",)), ((1,), "tool:web", ("the question",)),
        ((2,), "bob", ("the question", "the answer of step 1")),
    ]  # fmt: skip

"""What a client is told of a run.

The answering step's text as it comes, also where it is a step of a nested run.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Chunk, Finish
from conductor_cli.core.errors import ModelError
from conductor_cli.core.pool import Limits
from conductor_cli.core.profile import PROMPTED, WorkerProfile
from conductor_cli.core.trace import Trace, fold
from conductor_cli.core.usage import Usage
from conductor_cli.models.base import ScriptedModel
from conductor_cli.run import Orchestra
from conductor_cli.server.api.request import RequestError, ServedAnswer
from conductor_cli.server.runs.narration import AnswerText, Reasoning, ResponseStream, outcome_of
from tests.run.kit import play, setting

REVIEWED = Limits(recursion=1, attempts=2)
BROKEN = ModelError("broken", "it broke off", retryable=True)


def narrated(orchestra: Orchestra, **spec: Any) -> tuple[list[Any], ResponseStream, Trace]:
    """The events of a run, each with what a client is told of it."""
    run, events = play(orchestra, **spec)
    narrator = ResponseStream()
    pieces = [
        (ev.innermost_event(event), list(narrator.read(event, trace)))
        for event, trace in fold(events)
    ]
    return pieces, narrator, run.trace


def narrate(
    planner: Any, limits: Limits = REVIEWED, **workers: Any
) -> tuple[list[Any], ResponseStream]:
    cast = {name: ScriptedModel(replies) for name, replies in workers.items()}
    return narrated(
        setting(ScriptedModel(planner), cast, limits=limits),
        streams_answer=True,
        streams_nested=True,
    )[:2]


def texts(narration: list[Any]) -> list[str]:
    pieces = chain.from_iterable(pieces for _, pieces in narration)
    return [piece.text for piece in pieces if isinstance(piece, AnswerText)]


def reasoning(narration: list[Any]) -> str:
    pieces = chain.from_iterable(pieces for _, pieces in narration)
    return "".join(piece.text for piece in pieces if isinstance(piece, Reasoning))


def held(
    plan: str, **workers: Any
) -> tuple[list[Any], ResponseStream, ServedAnswer | RequestError]:
    cast = {name: ScriptedModel(replies) for name, replies in workers.items()}
    how: Any = {
        "profile": replace(PROMPTED, verdicts=("YES", "NO")),
        "worker_profile": WorkerProfile(refusal="?"),
    }
    narration, narrator, trace = narrated(setting(plan, cast, **how), streams_answer=True)
    return narration, narrator, outcome_of(trace)


def test_a_verdict_is_not_read_as_the_answer() -> None:
    narration, narrator, outcome = held(
        "A | - | one\nB | 1 | check it", ann=[["from ", "ann"]], bob=[["Y", "ES"]]
    )
    assert (texts(narration), narrator.shown) == (["from ann"], "from ann")
    assert isinstance(outcome, ServedAnswer)
    assert outcome.text == "from ann"


@pytest.mark.parametrize(
    ("finish", "reported"),
    [("stop", "stop"), ("refusal", "refusal"), ("other", "other"), (None, "stop")],
)
def test_an_answer_ends_as_its_step_did(finish: Finish | None, reported: Finish) -> None:
    run, _ = play(setting("A | - | one", {"ann": ScriptedModel(["fine"])}))
    outcome = outcome_of(replace(run.trace, steps=(replace(run.trace.steps[0], finish=finish),)))
    assert isinstance(outcome, ServedAnswer)
    assert (outcome.text, outcome.finish) == ("fine", reported)


@pytest.mark.parametrize("finish", ["length", "refusal"])
def test_an_answer_that_is_cut_off_says_by_what(finish: Finish) -> None:
    ann = ScriptedModel([["fine", Chunk(usage=Usage(calls=1), finish=finish)]])
    run, _ = play(setting("A | - | one", {"ann": ann}))
    outcome = outcome_of(run.trace)
    assert isinstance(outcome, ServedAnswer)
    assert (run.trace.partial, outcome.text, outcome.finish) == (True, "fine", finish)


def test_a_refusal_is_read_as_a_sentence() -> None:
    narration, narrator, outcome = held("A | - | one", ann=[["?"]])
    sentence = "no answer: ann cannot do step 1, 'Answer the question.'"
    assert (texts(narration), narrator.shown) == ([sentence], sentence)
    assert isinstance(outcome, ServedAnswer)
    assert (outcome.text, outcome.finish) == (sentence, "stop")


def test_a_review_that_mends_the_answer_is_read_as_it_is_written() -> None:
    narration, narrator = narrate(
        [["A | - | one"], ["B | 0 | Mend it.\n"]],
        ann=[["A ", "draft."]],
        bob=[["The ", "mended ", "answer."]],
    )
    assert texts(narration) == ["The ", "mended ", "answer."]
    assert narrator.shown == "The mended answer."
    assert '"A draft."' in reasoning(narration)
    at = [
        type(event)
        for event, pieces in narration
        if any(isinstance(piece, AnswerText) for piece in pieces)
    ]
    assert set(at) <= {ev.StepDelta, ev.PlanReady}


def test_a_review_that_keeps_the_answer_gives_it_once() -> None:
    narration, narrator = narrate(
        [["A | - | one"], ["accept"]], ann=[["A ", "draft."]], bob=[["never asked"]]
    )
    assert texts(narration) == ["A draft."]
    assert narrator.shown == "A draft."


def test_only_the_last_step_of_a_review_is_the_answer() -> None:
    narration, narrator = narrate(
        [["A | - | one"], ["A | 0 | Look again.\nB | 0 1 | Mend it.\n"]],
        ann=[["A draft."], ["It is wrong."]],
        bob=[["Mended."]],
    )
    assert narrator.shown == "".join(texts(narration)) == "Mended."


def test_a_review_is_not_written_twice() -> None:
    narration, narrator = narrate(
        [["A | - | one"], ["B | 0 | Mend it.\n"]],
        ann=[["A draft."]],
        bob=[["The men", BROKEN], ["The mended answer."]],
    )
    assert texts(narration) == ["The men"]
    assert narrator.trace.partial
    assert narrator.shown == "The men"


@pytest.mark.parametrize("reviews", [1, 2])
def test_nothing_is_told_as_reasoning_after_the_first_word(reviews: int) -> None:
    planner = [["A | - | one"], ["B | 0 | Mend it.\n"], ["A | 0 | Mend it again.\n"]]
    narration, narrator = narrate(
        planner,
        Limits(recursion=reviews),
        ann=[["A draft."], ["Mended ", "twice."]],
        bob=[["Mended ", "once."]],
    )
    kinds = [type(piece) for piece in chain.from_iterable(pieces for _, pieces in narration)]
    assert Reasoning not in kinds[kinds.index(AnswerText) :]
    assert narrator.shown == ("Mended once." if reviews == 1 else "Mended twice.")

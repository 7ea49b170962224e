"""Sampled plans, run by the conductor over workers that do by rule what the real ones have learnt."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from conductor_cli.core.errors import ModelError
from conductor_cli.models.base import Model
from conductor_cli.models.scripted import ScriptedModel
from conductor_cli.train.rollouts import Outcome, Rollouts, SampledPlan
from scripts.rehearsal.evaluate import best_routing, planned
from scripts.rehearsal.exercises import RehearsalExercise
from scripts.rehearsal.rollouts import PlaceholderModel, build_rollouts
from scripts.rehearsal.world import Hop, Problem
from tests.scripts.rehearsal.solvers import solvers

PROBLEM = Problem(
    id="one",
    question="Spell the capital of France backwards.",
    answer="SIRAP",
    hops=(
        Hop(skill="facts", op="capital", subtask="capital of FRANCE", answer="PARIS", access=(),
            phrasing="the capital of {x}", amount=0),
        Hop(skill="letters", op="reverse", subtask="spell it backwards", answer="SIRAP", access=(1,),
            phrasing="spell {x} backwards", amount=0),
    ),
)  # fmt: skip
EXERCISE = RehearsalExercise(problem=PROBLEM, workers=("letters", "numbers", "facts"))
RIGHT = "capital of FRANCE|-|f2\nspell it backwards|1|l0"
BLIND = "capital of FRANCE|-|f2\nspell it backwards|-|l0"
MISSENT = "capital of FRANCE|-|n1\nspell it backwards|1|l0"
ALONE = "spell FRANCE backwards|-|l0"
MALFORMED = "capital of FRANCE|-|f2\nspell it backwards|1|f0"


def rollouts(**models: Model) -> Rollouts:
    pool, found = solvers()
    return build_rollouts(pool, {**found, **models})


def outcomes(
    texts: Sequence[str], rolled: Rollouts | None = None, exercise: RehearsalExercise = EXERCISE
) -> list[Outcome]:
    written = [SampledPlan(exercise=exercise, text=text) for text in texts]
    return asyncio.run((rolled or rollouts()).outcomes(written))


def test_the_prompt_is_the_one_of_a_real_run() -> None:
    """The labels of the pool in its order, then the question."""
    (message,) = rollouts().prompt(EXERCISE)
    assert message["content"] == "|l0|n1|f2\nspell the capital of FRANCE backwards\n"


def test_correct_wrong_and_invalid_plans_earn_different_rewards() -> None:
    """Wrong worker, wrong access list and a label that does not exist, each for its own reason."""
    assert [outcome.reward for outcome in outcomes([RIGHT, BLIND, MISSENT, MALFORMED])] == [1.0, 0.5, 0.5, 0.0]


def test_the_outcome_counts_steps_calls_and_routes() -> None:
    """Steps, worker calls, who did what, and whether that was somebody good at it."""
    right, missent, malformed = outcomes([RIGHT, MISSENT, MALFORMED])
    assert (right.valid, right.steps, right.calls, right.routes) == (True, 2, 2, ("facts", "letters"))
    assert right.tokens > 0
    assert right.fitting == (("facts", True), ("letters", True))
    assert missent.fitting == (("facts", False), ("letters", True))
    assert (malformed.valid, malformed.steps, malformed.fitting) == (False, 0, ())


def test_without_a_specialist_any_worker_fits() -> None:
    """Then the worker that is good at nothing in particular is the best there is."""
    lacking = RehearsalExercise(problem=PROBLEM, workers=("letters", "generalist"))
    (found,) = outcomes(["capital of FRANCE|-|a1\nspell it backwards|1|l0"], exercise=lacking)
    assert (found.reward, found.fitting) == (1.0, (("facts", True), ("letters", True)))


def test_a_text_that_was_cut_off_is_invalid() -> None:
    """Even where what there is of it reads like one: in a run its conductor would be asked again."""
    (found,) = asyncio.run(rollouts().outcomes([SampledPlan(exercise=EXERCISE, text=RIGHT, complete=False)]))
    assert (found.valid, found.reward) == (False, 0.0)


def test_equal_plans_run_once() -> None:
    """Groups write the same plan again and again, and the workers draw no lots."""
    facts = solvers()[1]["facts"]
    first, *others = outcomes([RIGHT, RIGHT, RIGHT], rollouts(facts=facts))
    assert others == [first, first]
    assert len(facts.requests) == 1


def test_a_failed_worker_gives_no_reward_and_is_asked_again_later() -> None:
    """It says nothing about the plan, so it is not remembered either."""
    broken = ScriptedModel(scripts=[[ModelError("broken", "the file is gone")], ["PARIS"]])
    rolled = rollouts(facts=broken)
    failed, *_ = outcomes([RIGHT, ALONE], rolled)
    assert (failed.valid, failed.reward) == (True, None)
    assert outcomes([RIGHT], rolled)[0].reward == 1.0


def test_plans_of_a_model_are_run() -> None:
    """Through the same conductor."""
    model = ScriptedModel(scripts=[[RIGHT]])
    (found,) = asyncio.run(planned(rollouts(), model, [EXERCISE]))
    assert found.right
    assert model.requests[0].grammar


def test_best_routing_sends_each_hop_to_the_best_measured_worker() -> None:
    """Of those on offer."""
    rolled = rollouts()
    assert best_routing(EXERCISE, rolled).text == RIGHT
    lacking = replace(EXERCISE, workers=("generalist", "numbers"))
    assert best_routing(lacking, rolled).text == "capital of FRANCE|-|a0\nspell it backwards|1|a0"


def test_an_empty_answer_becomes_a_placeholder() -> None:
    """It was asked for what it cannot do; a run would try another worker, and the plan would never hear of it."""
    silent = PlaceholderModel(ScriptedModel(scripts=[[""]]))
    (found,) = outcomes([RIGHT], rollouts(facts=silent))
    assert (found.valid, found.reward) == (True, 0.5)
    spoken = PlaceholderModel(ScriptedModel(scripts=[["PA", "RIS"]]))
    assert outcomes([RIGHT], rollouts(facts=spoken))[0].right

"""A step that goes to another worker than the planned one: in whole runs, within every rule."""

from __future__ import annotations

from typing import Any

import pytest

from conductor_cli.core import events as ev
from conductor_cli.core.learning import ALL_KINDS, Estimate, Exploration
from conductor_cli.core.policy import Party, Policy, PoolPolicy
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.question import File, Question
from conductor_cli.core.usage import FREE
from tests.run.kit import QUESTION, notices, of, plan_of, play, pool_of, setting

NAMES = ("ann", "bob", "cyd")
ONE = "ann | - | Answer it."
TWO = "ann | - | Find it.\nann | 1 | Answer it."


def always(**more: Any) -> dict[str, Any]:
    estimates = {name: {ALL_KINDS: Estimate(card=0.5)} for name in NAMES}
    exploration = Exploration(probability=1.0, estimates=estimates)
    return {"exploration": exploration, "pool": pool_of(*NAMES, price=FREE), **more}


def test_one_step_of_a_run_is_tried_on_another_worker() -> None:
    """The event has the planned worker and the probability, a notice tells it, and the worker's answer counts."""
    run, events = play(setting(TWO, **always()))
    one, two = of(events, ev.StepPlanned)
    assert (one.preferred, one.propensity, one.worker in ("bob", "cyd")) == ("ann", 0.5, True)
    assert (two.preferred, two.propensity, two.worker) == ("", None, "ann")
    (text,) = [text for text in notices(events) if "is tried instead of ann" in text]
    assert "a chance of 50.0%; learning.explore" in text
    record = run.trace.steps[0]
    assert (record.text, record.preferred, record.propensity) == (f"from {one.worker}", "ann", 0.5)


def test_a_step_that_stays_has_its_probability_too() -> None:
    """Without it, stored runs could not tell what another choice would have given."""
    estimates = {name: {ALL_KINDS: Estimate(card=0.5)} for name in NAMES}
    _, events = play(setting(ONE, **always(exploration=Exploration(probability=1e-9, estimates=estimates))))
    (planned,) = of(events, ev.StepPlanned)
    assert (planned.worker, planned.preferred, planned.propensity) == ("ann", "", 1.0)


def party(name: str, *, local: bool) -> Party:
    return Party(name=name, recipient="this machine" if local else "north", local=local)


@pytest.mark.parametrize(
    "more",
    [
        {"exploration": None},
        {"seed": 1},
        {"pool": pool_of("ann", price=FREE)},
        {"pool_policy": PoolPolicy(policy=Policy(deny=("bob", "cyd")))},
        {"pool_policy": PoolPolicy(parties={name: party(name, local=name == "ann") for name in NAMES})},
        {
            "pool": Pool(
                workers=tuple(Worker(name=n, kind="scripted", price=FREE if n == "ann" else None) for n in NAMES)
            )
        },
        {"pool": Pool(workers=tuple(Worker(name=n, kind="codex" if n != "ann" else "x", price=FREE) for n in NAMES))},
    ],
    ids=["off", "seed", "one worker", "denied", "leaves this machine", "price unknown", "agents"],
)
def test_no_rule_is_broken_by_trying_another_worker(more: dict[str, Any]) -> None:
    """Without a worker that may take the step, the planned one does it and nothing is said."""
    _, events = play(setting(ONE, **always(**more)))
    (planned,) = of(events, ev.StepPlanned)
    assert (planned.worker, planned.preferred, planned.propensity) == ("ann", "", None)
    assert not [text for text in notices(events) if "instead" in text]


def test_files_stay_with_the_workers_that_may_see_them() -> None:
    """A worker that would be shown less of the question is not tried."""
    question = Question(text="What is in it?", files=(File(name="a.txt", text="secret"),))
    rule = PoolPolicy(policy=Policy(files_only=(("ann", "self"),)))
    _, events = play(setting(ONE, **always(pool_policy=rule)), question)
    assert of(events, ev.StepPlanned)[0].worker == "ann"


def test_what_is_given_or_only_planned_is_left_as_it_is() -> None:
    """A plan file, `conductor plan`, and a question whose answer must follow a schema."""
    plan = plan_of(("ann", ()))
    for question, more in ((QUESTION, {"plan": plan}), (QUESTION, {"plan_only": True}),
                           (Question(text="How many?", schema={"type": "object"}), {})):  # fmt: skip
        _, events = play(setting(ONE, **always()), question, **more)
        assert of(events, ev.StepPlanned)[0].worker == "ann"

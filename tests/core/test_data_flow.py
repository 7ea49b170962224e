"""What reaches each step: by its prompt, and by the answers it sees, however far they came."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.data_flow import (
    EARLIER,
    NO_PROVENANCE,
    Provenance,
    Visibility,
    inputs_by_recipient,
    inputs_of_steps,
)
from conductor_cli.core.plan import Plan, PlanRules, Step
from conductor_cli.core.question import File, Question, Turn
from tests.core.strategies import plans_for

QUESTION = Question(
    text="How much?", files=(File(name="pay.csv", text="1"),), history=(Turn(question="Who?", answer="We."),)
)
BLIND = Visibility(recipients=("b",), question=False, history=False, files=False)
SIGHTS = {
    "ann": Visibility(recipients=("a",)),
    "bob": BLIND,
    "cyd": Visibility(recipients=("c",), history=False, files=False),
}


def steps(*made: tuple[str, tuple[int, ...]]) -> tuple[Step, ...]:
    return tuple(Step(worker=worker, subtask="Do it.", access=access) for worker, access in made)


def test_what_a_worker_sees_its_answer_carries() -> None:
    """Also through one that saw nothing itself; who sees nobody's answer carries only its own sight."""
    one, two, three, four = inputs_of_steps(
        steps(("ann", ()), ("bob", (1,)), ("cyd", (2,)), ("bob", ())), QUESTION, SIGHTS
    )
    assert (one.question, one.history, one.files, one.carried) == (True, True, ("pay.csv",), NO_PROVENANCE)
    assert (two.question, two.history, two.files, two.answers) == (False, False, (), (1,))
    everything = Provenance(question=True, history=True, files=True, writers=frozenset({"a", EARLIER}))
    assert two.carried == everything
    assert three.carried == everything | Provenance(writers=frozenset({"b"}))
    assert four.leaves == Provenance(writers=frozenset({"b"}))


def test_who_was_really_asked_counts() -> None:
    """Of a step that was handed over, what both saw counts, and both read it."""
    (reach,) = inputs_of_steps(steps(("bob", ())), QUESTION, SIGHTS, asked={1: ("bob", "ann")})
    assert (reach.workers, reach.recipients, reach.files) == (("bob", "ann"), ("b", "a"), ("pay.csv",))


def test_item_0_carries_what_the_run_was_given() -> None:
    """A nested run begins with it."""
    dirty = Provenance(files=True, writers=frozenset({"x"}))
    one, two = inputs_of_steps(steps(("bob", (0,)), ("bob", ())), Question(text="?"), SIGHTS, given=dirty)
    assert (one.carried, two.carried) == (dirty, NO_PROVENANCE)


def test_each_reader_receives_the_sum_of_its_steps() -> None:
    """By recipient, in the order in which they are first met."""
    found = inputs_by_recipient(inputs_of_steps(steps(("bob", ()), ("ann", (1,)), ("bob", (2,))), QUESTION, SIGHTS))
    assert list(found) == ["b", "a"]
    assert (found["b"].answers, found["b"].carried.files, found["b"].files) == ((2,), True, ())


@given(plans_for(PlanRules(workers=("ann", "bob", "cyd")), st.just("Do it.")))
def test_a_text_carries_all_that_those_it_came_from_carried(plan: Plan) -> None:
    """Nothing is forgotten along an access list."""
    found = inputs_of_steps(plan.steps, QUESTION, SIGHTS)
    for reach in found:
        for item in reach.answers:
            source = found[item - 1].leaves
            assert source | reach.carried == reach.carried
            assert reach.leaves | source == reach.leaves

"""What reaches each step: by its own prompt, and by the answers it sees."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.data_flow import (
    EARLIER,
    NO_PROVENANCE,
    Provenance,
    Visibility,
    inputs_of_steps,
)
from conductor_cli.core.plan import Plan, PlanRules, Step
from conductor_cli.core.question import File, Question, Turn
from tests.core.strategies import plans_for

QUESTION = Question(
    text="How much?", files=(File(name="pay.csv", text="1"),), history=(Turn(question="Who?", answer="We."),)
)
BLIND = Visibility(recipients=("b",), question=False, history=False, files=False)
VISIBILITY = {
    "ann": Visibility(recipients=("a",)),
    "bob": BLIND,
    "cyd": Visibility(recipients=("c",), history=False, files=False),
}


def steps(*made: tuple[str, tuple[int, ...]]) -> tuple[Step, ...]:
    return tuple(Step(worker=worker, subtask="Do it.", access=access) for worker, access in made)


def test_an_answer_may_hold_what_its_worker_saw() -> None:
    """Also through a worker that saw nothing itself. Without answers, only what its own prompt may hold counts."""
    one, two, three, four = inputs_of_steps(
        steps(("ann", ()), ("bob", (1,)), ("cyd", (2,)), ("bob", ())), QUESTION, VISIBILITY
    )
    assert (one.question, one.history, one.files, one.provenance) == (True, True, ("pay.csv",), NO_PROVENANCE)
    assert (two.question, two.history, two.files, two.answers) == (False, False, (), (1,))
    everything = Provenance(question=True, history=True, files=True, writers=frozenset({"a", EARLIER}))
    assert two.provenance == everything
    assert three.provenance == everything | Provenance(writers=frozenset({"b"}))
    assert four.answer_provenance == Provenance(writers=frozenset({"b"}))


def test_the_workers_that_were_really_asked_count() -> None:
    """For a step that a substitute did, what both workers saw counts, and both are recipients."""
    (inputs,) = inputs_of_steps(steps(("bob", ())), QUESTION, VISIBILITY, asked={1: ("bob", "ann")})
    assert (inputs.workers, inputs.recipients, inputs.files) == (("bob", "ann"), ("b", "a"), ("pay.csv",))


def test_item_0_has_the_provenance_of_what_the_run_was_given() -> None:
    """Item 0 is the answer that a nested run is about."""
    dirty = Provenance(files=True, writers=frozenset({"x"}))
    one, two = inputs_of_steps(steps(("bob", (0,)), ("bob", ())), Question(text="?"), VISIBILITY, given=dirty)
    assert (one.provenance, two.provenance) == (dirty, NO_PROVENANCE)


@given(plans_for(PlanRules(workers=("ann", "bob", "cyd")), st.just("Do it.")))
def test_provenance_only_grows_along_access_lists(plan: Plan) -> None:
    """What an answer may hold, every answer that saw it may hold too."""
    found = inputs_of_steps(plan.steps, QUESTION, VISIBILITY)
    for inputs in found:
        for item in inputs.answers:
            source = found[item - 1].answer_provenance
            assert source | inputs.provenance == inputs.provenance
            assert inputs.answer_provenance | source == inputs.answer_provenance

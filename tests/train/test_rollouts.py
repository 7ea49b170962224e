"""Sampled plans, run by the conductor over members that do by rule what the real ones have learnt."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from conductor_cli.models.base import ScriptedModel
from conductor_cli.rehearsal.players import ANYTHING
from conductor_cli.train.rollouts import PlanOutcome, Rollouts, SampledPlan
from tests.training.rehearsal.solvers import CHECKED, CHECKER_MEMBER, MEMBERS, PROBLEM, Solvers, exercise
from training.rehearsal.exercises import MIXED_FAILING, Member, RehearsalExercise
from training.rehearsal.rollouts import (
    DrawnPools,
    Found,
    MemberModel,
    build_rollouts,
    followed,
    forced_chain,
    gold_plan,
    keyword_routed,
    plan_text,
    planned,
)

RIGHT = "capital of FRANCE| -| geographyC\nspell it backwards| 1| spellingB"
BLIND = "capital of FRANCE| -| geographyC\nspell it backwards| -| spellingB"
MISSENT = "capital of FRANCE| -| addingA\nspell it backwards| 1| spellingB"
MALFORMED = "capital of FRANCE| -| geographyC\nspell it backwards| 1| geographyB"
WEAK = Member(strengths={"spelling": 0.5})


def rollouts(wrong: Iterable[Member] = ()) -> DrawnPools:
    return build_rollouts(Solvers([PROBLEM, CHECKED], wrong))


def outcomes(
    texts: Sequence[str], rolled: Rollouts | None = None, item: RehearsalExercise | None = None
) -> list[PlanOutcome]:
    written = [SampledPlan(exercise=item or EXERCISE, text=text) for text in texts]
    return asyncio.run((rolled or rollouts()).outcomes(written))


EXERCISE = exercise()


def test_the_prompt_is_the_one_of_a_real_run() -> None:
    (message,) = rollouts().prompt(EXERCISE)
    assert message["content"] == "| addingA9| spellingB9| geographyC8\nspell the capital of FRANCE backwards\n"


def test_correct_wrong_and_invalid_plans_earn_different_rewards() -> None:
    assert [outcome.reward for outcome in outcomes([RIGHT, BLIND, MISSENT, MALFORMED])] == [1.0, 0.5, 0.5, 0.0]


def test_the_outcome_counts_steps_calls_and_routes() -> None:
    right, missent, malformed = outcomes([RIGHT, MISSENT, MALFORMED])
    assert (right.valid, right.steps, right.calls, right.routes) == (True, 2, 2, ("geography", "spelling"))
    assert right.tokens > 0
    assert right.fitting == (("geography", True), ("spelling", True))
    assert missent.fitting == (("geography", False), ("spelling", True))
    assert (malformed.valid, malformed.steps, malformed.fitting) == (False, 0, ())


def test_a_weaker_member_does_not_fit_and_the_generalist_stands_in() -> None:
    """Cards are read by their grades; where nobody has a skill, the generalist is the best there is."""
    two = exercise(members=(*MEMBERS, WEAK))
    (found,) = outcomes([RIGHT.replace("spellingB", "spellingD")], item=two)
    assert (found.reward, found.fitting) == (1.0, (("geography", True), ("spelling", False)))
    lacking = exercise(members=(Member(strengths={"spelling": 1.0}), Member(strengths={ANYTHING: 0.4})))
    (found,) = outcomes(["capital of FRANCE| -| anythingB\nspell it backwards| 1| spellingA"], item=lacking)
    assert (found.reward, found.fitting) == (0.5, (("geography", True), ("spelling", True)))


def test_a_text_that_was_cut_off_is_invalid() -> None:
    """Even where what there is of it reads like one: in a run its conductor would be asked again."""
    (found,) = asyncio.run(rollouts().outcomes([SampledPlan(exercise=EXERCISE, text=RIGHT, complete=False)]))
    assert (found.valid, found.reward) == (False, 0.0)


def test_the_same_answer_is_asked_for_once() -> None:
    solvers = Solvers([PROBLEM])
    first, second, _ = outcomes([RIGHT, RIGHT, BLIND], build_rollouts(solvers))
    assert first == second
    assert len(solvers.asked) == len(set(solvers.asked)) == 3


def test_a_silent_member_cannot_answer() -> None:
    """It was asked for what it cannot do; a run would try another worker, and the plan would never hear of it."""

    class Silent:
        async def member(self, strengths: Mapping[str, float], prompt: str, seed: int) -> str:
            return ""

    (found,) = outcomes([RIGHT], build_rollouts(Silent()))
    assert (found.valid, found.reward) == (True, 0.5)
    assert MemberModel(WEAK, Silent(), 1).features == frozenset()


def test_a_plan_may_end_with_a_check() -> None:
    checked = exercise(CHECKED, (*MEMBERS, CHECKER_MEMBER))
    text = f"{RIGHT}\ncheck it| 1 2| checkingD"
    assert outcomes([text], item=checked)[0].right
    (found,) = outcomes([text], rollouts(wrong=[MEMBERS[1]]), checked)
    assert (found.reward, found.calls) == (0.5, 3)


def found_by(
    scripts: Sequence[str], item: RehearsalExercise, *, wrong: Iterable[Member] = (), recursion: int = 0
) -> Found:
    model = ScriptedModel(scripts=[[text] for text in scripts])
    return asyncio.run(planned(rollouts(wrong), model, [item], recursion=recursion))[0]


def test_a_check_that_was_asked_for_is_part_of_a_right_plan() -> None:
    """In training: without it, a right answer earns as much as a wrong one, unless nobody can check."""
    checked, nobody = exercise(CHECKED, (*MEMBERS, CHECKER_MEMBER)), exercise(CHECKED, MEMBERS)
    training = rollouts()
    training.demands_checks = True
    plans = [RIGHT, f"{RIGHT}\ncheck it| 1 2| checkingD"]
    found = asyncio.run(training.outcomes([SampledPlan(exercise=checked, text=text) for text in plans]))
    assert [outcome.reward for outcome in found] == [0.5, 1.0]
    assert asyncio.run(training.outcomes([SampledPlan(exercise=nobody, text=RIGHT)]))[0].right
    assert asyncio.run(rollouts().outcomes([SampledPlan(exercise=checked, text=RIGHT)]))[0].right


def test_after_a_check_said_no_the_second_plan_counts() -> None:
    checked = exercise(CHECKED, (*MEMBERS, CHECKER_MEMBER, WEAK))
    first = f"{RIGHT}\ncheck it| 1 2| checkingD"
    second = RIGHT.replace("spellingB", "spellingE")
    assert found_by([first, second], checked, wrong=[MEMBERS[1]], recursion=1).right
    assert not found_by([first], checked, wrong=[MEMBERS[1]]).right
    assert found_by([first, "accept"], checked, recursion=1).right
    model = ScriptedModel(scripts=[[first], [second]])
    asyncio.run(planned(rollouts([MEMBERS[1]]), model, [checked], recursion=1))
    assert model.requests[1].messages[0].content.endswith("and check it\nNO B\n")


def test_what_went_wrong_is_told_apart() -> None:
    right = found_by([RIGHT], EXERCISE)
    assert (right.split, right.shaped, right.routed, right.right) == (True, True, True, True)
    blind, missent = found_by([BLIND], EXERCISE), found_by([MISSENT], EXERCISE)
    assert (blind.split, blind.shaped, blind.routed, blind.right) == (True, False, True, False)
    assert (missent.split, missent.shaped, missent.routed, missent.right) == (True, True, False, False)
    nonsense = found_by(["no plan", "no plan"], EXERCISE)
    assert (nonsense.plan, nonsense.split, nonsense.routed, nonsense.outcome.valid) == (None, False, False, False)
    assert nonsense.outcome.calls == 0  # the demo declines where there is no plan


def test_the_gold_plan_and_the_baselines_on_a_split() -> None:
    """The best for each step; by keywords; and as a chain."""
    assert plan_text(EXERCISE) == RIGHT
    right = asyncio.run(followed(rollouts(), EXERCISE, gold_plan(EXERCISE)))
    assert right.right
    missent = found_by([MISSENT], EXERCISE)
    routed = keyword_routed(missent)
    assert routed is not None
    assert [step.worker for step in routed.steps] == ["member3", "member2"]
    chain = forced_chain(replace(gold_plan(EXERCISE), steps=gold_plan(EXERCISE).steps * 2))
    assert chain is not None
    assert [step.access for step in chain.steps] == [(), (1,), (2,), (3,)]
    assert forced_chain(None) is None
    assert MIXED_FAILING.generalist == 0

"""Sampled plans, run over members that do by rule what the real ones have learnt.

And the table of a conductor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from conductor_cli.core.chat import Request
from conductor_cli.core.question import Question
from conductor_cli.models.base import Script, ScriptedModel
from conductor_cli.run import RunSpec, start_run
from conductor_cli.train.rollouts import PlanOutcome, Rollouts, SampledPlan
from tests.training.rehearsal.solvers import (
    CHECKED,
    CHECKER_MEMBER,
    MEMBERS,
    PROBLEM,
    Solvers,
    exercise,
    plan_text,
)
from training.rehearsal.examination import Examination
from training.rehearsal.exercises import Member, RehearsalExercise
from training.rehearsal.rollouts import DrawnPools, MemberModel, build_rollouts
from training.rehearsal.train import app
from training.stages import MISSED

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
    assert (
        message["content"]
        == "| addingA9| spellingB9| geographyC8\nspell the capital of FRANCE backwards\n"
    )


def test_correct_wrong_and_invalid_plans_earn_different_rewards() -> None:
    """The outcome counts steps, calls and routes. An invalid plan has none."""
    rewarded = outcomes([RIGHT, BLIND, MISSENT, MALFORMED])
    assert [outcome.reward for outcome in rewarded] == [1.0, 0.5, 0.5, 0.0]
    right = rewarded[0]
    malformed = rewarded[-1]
    assert (right.valid, right.steps, right.calls, right.routes) == (
        True,
        2,
        2,
        ("geography", "spelling"),
    )
    assert right.tokens > 0
    assert (malformed.valid, malformed.steps) == (False, 0)


def test_the_same_answer_is_asked_for_once() -> None:
    solvers = Solvers([PROBLEM])
    first, second, _ = outcomes([RIGHT, RIGHT, BLIND], build_rollouts(solvers))
    assert first == second
    assert len(solvers.asked) == len(set(solvers.asked)) == 3


def test_a_silent_member_cannot_answer() -> None:
    """It was asked for what it cannot do.

    A run would try another worker, and the plan would never hear of it.
    """

    class Silent:
        async def member(self, strengths: Mapping[str, float], prompt: str, seed: int) -> str:
            return ""

    (rewarded,) = outcomes([RIGHT], build_rollouts(Silent()))
    assert (rewarded.valid, rewarded.reward) == (True, 0.5)
    assert MemberModel(WEAK, Silent(), 1).features == frozenset()


def test_a_plan_may_end_with_a_check() -> None:
    checked = exercise(CHECKED, (*MEMBERS, CHECKER_MEMBER))
    text = f"{RIGHT}\ncheck it| 1 2| checkingD"
    assert outcomes([text], item=checked)[0].right
    (rewarded,) = outcomes([text], rollouts(wrong=[MEMBERS[1]]), checked)
    assert (rewarded.reward, rewarded.calls) == (0.5, 3)


def test_a_check_that_was_asked_for_is_part_of_a_right_plan() -> None:
    """In training.

    Without it, a right answer earns as much as a wrong one, unless nobody can check.
    """
    checked = exercise(CHECKED, (*MEMBERS, CHECKER_MEMBER))
    nobody = exercise(CHECKED, MEMBERS)
    training = rollouts()
    training.demands_checks = True
    plans = [RIGHT, f"{RIGHT}\ncheck it| 1 2| checkingD"]
    results = asyncio.run(
        training.outcomes([SampledPlan(exercise=checked, text=text) for text in plans])
    )
    assert [outcome.reward for outcome in results] == [0.5, 1.0]
    assert asyncio.run(training.outcomes([SampledPlan(exercise=nobody, text=RIGHT)]))[0].right
    assert asyncio.run(rollouts().outcomes([SampledPlan(exercise=checked, text=RIGHT)]))[0].right


def test_after_a_check_said_no_the_conductor_is_told_who_failed() -> None:
    """The second plan counts; a run without one keeps the answer to which the check objected."""
    checked = exercise(CHECKED, (*MEMBERS, CHECKER_MEMBER, WEAK))
    first = f"{RIGHT}\ncheck it| 1 2| checkingD"
    answers = []
    for recursion in (0, 1):
        model = ScriptedModel(scripts=[[first], [RIGHT.replace("spellingB", "spellingE")]])
        rolled = rollouts([MEMBERS[1]])
        limits = replace(rolled.orchestra.limits, recursion=recursion)
        team = replace(rolled.team_for(checked), model=model)
        spec = RunSpec(question=Question(text=checked.question), team=team, limits=limits)
        trace = asyncio.run(rolled.trace(start_run(rolled.orchestra, spec)))
        answers.append(trace.answer)
    assert answers == ["WRONG", "SIRAP"]
    assert model.requests[1].messages[0].content.endswith("and check it\nNO B\n")


def test_the_true_plan_asks_the_best_for_each_step() -> None:
    """Without a check where nobody can check."""
    assert plan_text(EXERCISE) == plan_text(exercise(CHECKED, MEMBERS)) == RIGHT
    assert (
        plan_text(exercise(CHECKED, (*MEMBERS, CHECKER_MEMBER)))
        == f"{RIGHT}\ncheck it| 1 2| checkingD"
    )


SOLVERS = Solvers([])


class Told(Examination):
    """Tells its model the true plan of each question that is drawn, and its members the answers."""

    def draw(self, *settings: Any, **changes: Any) -> tuple[RehearsalExercise, ...]:
        exercises = super().draw(*settings, **changes)
        for item in exercises:
            prompt = self.rollouts.prompt(item)[0]["content"]
            self.model.plans[prompt] = plan_text(item)  # type: ignore[attr-defined]
        SOLVERS.learn(item.problem for item in exercises)
        return exercises


class Planner(ScriptedModel):
    """Writes the true plan; a forgetful one writes it without its last step first."""

    def __init__(self, *, forgetful: bool) -> None:
        super().__init__(reply=self._plan)
        self.plans: dict[str, str] = {}
        self._forgetful = forgetful

    def _plan(self, request: Request) -> Script:
        plan = self.plans[request.messages[0].content]
        return [plan.rpartition("\n")[0] if self._forgetful and not request.rank else plan]


@pytest.mark.parametrize(("forgetful", "alone"), [(False, 1.0), (True, 0.0)])
def test_a_plan_with_a_fault_is_written_again_where_plans_are_checked(
    forgetful: bool, alone: float
) -> None:
    """A conductor that is always right meets every bound.

    One that forgets the last step needs the check of plans.
    """
    examination = Told(
        rollouts=build_rollouts(SOLVERS), model=Planner(forgetful=forgetful), count=4, seed=1
    )
    rows = {row.what: row for row in asyncio.run(examination.rows())}
    assert {name: row.value for name, row in rows.items()} == {
        "held-out phrasings": alone,
        "known phrasings": alone,
        "best routing (oracle)": 1.0,
        "held-out phrasings, plans checked": 1.0,
        "everybody on offer, plans checked": 1.0,
        "a skill never trained: share of best routing": alone,
    }
    assert all(row.passes for row in rows.values()) != forgetful


@pytest.mark.parametrize(
    ("command", "rows"),
    [
        ("evaluate", ("held-out phrasings", "best routing (oracle)")),
        ("table", ("specialists refuse",)),
    ],
)
def test_the_shipped_files_are_measured_by_the_commands(
    command: str, rows: tuple[str, ...]
) -> None:
    done = CliRunner().invoke(app, [command, "--count", "5"])
    assert done.exit_code in {0, MISSED}
    for row in rows:
        assert (
            next(float(line[46:54]) for line in done.output.splitlines() if line.startswith(row))
            > 0.5
        )

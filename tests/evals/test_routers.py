"""Routers that learn from cases: what they learn, their file, and that the right router wins and a wrong one cannot."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conductor_cli.core.errors import UsageError
from conductor_cli.core.pool import Card, Worker
from conductor_cli.core.usage import Usage
from conductor_cli.evals import routerdc
from conductor_cli.evals import routerdc as masrouter
from conductor_cli.evals.cases import Case
from conductor_cli.evals.embeddings import HashedNgrams, unit_rows
from conductor_cli.evals.outcomes import Outcome
from conductor_cli.evals.systems import RouterKind, Team, build_teams
from conductor_cli.evals.trained_routers import (
    TrainedRouter,
    TrainingData,
    check_apart,
    hash_question,
    plan_cases,
    read_router,
    train_router,
)
from tests.evals.kit import chance

WORKERS = ("ann", "bob", "cyd")
KINDS = {
    "math": ("calculate the sum of {} and {}", "how much is {} times {}"),
    "code": ("write a python function that prints {} and {}", "fix the bug in line {} of script {}"),
    "facts": ("which treaty has article {} of volume {}", "who wrote novel {} of the series {}"),
}
STRENGTHS = {"ann": {"math": 90, "code": 30, "facts": 30}, "bob": {"math": 30, "code": 90, "facts": 30},
             "cyd": {"math": 40, "code": 40, "facts": 80}}  # fmt: skip
"""In percent: which worker is good at what, known to the tests and to no router."""


def questions(count: int, seed: int) -> list[Case]:
    drawn = random.Random(seed)
    found = []
    for number in range(count):
        kind = drawn.choice(list(KINDS))
        text = drawn.choice(KINDS[kind]).format(drawn.randint(1, 999), drawn.randint(1, 999))
        found.append(Case(id=f"{seed}-{number}", question=text, answer="yes", tags=(kind,)))
    return found


def chance_of(team: Team, kind: str) -> int:
    """In percent: a second look adds nothing, a chain is as good as its last worker, a mixture is mediocre."""
    return 50 if team.form == "mixture" else STRENGTHS[team.answers][kind]


def outcomes(cases: list[Case], teams: tuple[Team, ...]) -> list[Outcome]:
    calls = {"alone": 1, "look": 2, "chain": 2, "mixture": 4}
    return [
        Outcome(
            system=team.system, case=case.id, usage=Usage(tokens_in=10 * calls[team.form], calls=calls[team.form]),
            verdict="right" if chance(team.answers, case.id) % 100 < chance_of(team, case.tags[0]) else "wrong",
        )
        for case in cases for team in teams
    ]  # fmt: skip


def vectors(cases: list[Case]) -> np.ndarray:
    return unit_rows(asyncio.run(HashedNgrams().embed([case.question for case in cases])))


TEAMS = build_teams([Worker(name=name, kind="scripted") for name in WORKERS])


def data(cases: list[Case], found: list[Outcome] | None = None) -> TrainingData:
    return TrainingData(
        cases=cases, outcomes=outcomes(cases, TEAMS) if found is None else found, teams=TEAMS,
        workers=dict.fromkeys(WORKERS, "same"), vectors=vectors(cases), embedder="hashed-ngrams-512", source="made",
        seed=0,
    )  # fmt: skip


def expected(router: TrainedRouter, cases: list[Case]) -> float:
    """The share of right answers that the chosen teams have on average."""
    plans = plan_cases(router, vectors(cases))
    by_plan = {team.plan(): team for team in router.teams}
    return float(np.mean([chance_of(by_plan[plan], case.tags[0]) for plan, case in zip(plans, cases, strict=True)]))


@pytest.mark.parametrize("kind", ["routerdc", "masrouter"])
def test_a_trained_router_beats_the_best_single_worker_and_one_trained_on_noise_cannot(kind: RouterKind) -> None:
    """On questions that it has not seen. One that was trained on shuffled answers is worth no more than a worker."""
    seen, unseen = questions(150, 1), questions(200, 2)
    best = max(np.mean([STRENGTHS[name][case.tags[0]] for case in unseen]) for name in WORKERS)
    assert expected(train_router(kind, data(seen)), unseen) > best + 15
    others = dict(
        zip([case.id for case in seen], random.Random(3).sample([case.id for case in seen], 150), strict=True)
    )
    shuffled = [replace(outcome, case=others[outcome.case]) for outcome in outcomes(seen, TEAMS)]
    assert expected(train_router(kind, data(seen, shuffled)), unseen) < best + 5


def test_equal_answers_for_less_money_are_preferred() -> None:
    """Where every team is always right, one call is enough."""
    seen = questions(60, 1)
    found = [replace(outcome, verdict="right") for outcome in outcomes(seen, TEAMS)]
    plans = plan_cases(train_router("masrouter", data(seen, found)), vectors(questions(40, 2)))
    assert {len(plan.steps) for plan in plans} == {1}


def test_a_team_is_chosen_where_only_it_is_right() -> None:
    """All answers combined, for one kind of question; a single worker for the others."""
    seen, unseen = questions(120, 1), questions(60, 2)
    kinds = {case.id: case.tags[0] for case in seen}
    forms = {team.system: team.form for team in TEAMS}
    found = [
        replace(item, verdict="right" if (kinds[item.case] == "code") == (forms[item.system] == "mixture") else "wrong")
        for item in outcomes(seen, TEAMS)
    ]
    plans = plan_cases(train_router("masrouter", data(seen, found)), vectors(unseen))
    steps = [(case.tags[0] == "code", len(plan.steps)) for plan, case in zip(plans, unseen, strict=True)]
    assert sum(wide == (count == 4) for wide, count in steps) >= 0.95 * len(steps)


def test_the_gradients_are_those_of_the_losses() -> None:
    """Compared with differences of the loss itself."""
    drawn = np.random.default_rng(0)
    scores = drawn.normal(size=5)
    good, bad = np.array([[0, 1, 0, 0, 0], [1, 1, 1, 1, 1]]) > 0, np.array([[1, 0, 0, 0, 1], [0, 0, 0, 0, 0]]) > 0
    gradient = routerdc.contrast_gradient(np.array([scores, scores]), good, bad, 3, drawn)

    def loss(at: np.ndarray) -> float:
        return float(-np.log(np.exp(at[1]) / np.exp(at[[1, 0, 4]]).sum())) / 2

    steps = np.eye(5) * 1e-6
    assert np.allclose(gradient[0], [(loss(scores + step) - loss(scores - step)) / 2e-6 for step in steps], atol=1e-5)
    assert not gradient[1].any(), "a question that every worker knows teaches nothing"
    rows, towards = drawn.normal(size=(1, 5)), drawn.normal(size=(1, 5))
    slopes = [
        float((towards * (unit_rows(rows + step) - unit_rows(rows - step))).sum() / 2e-6) for step in np.eye(5) * 1e-6
    ]
    assert np.allclose(routerdc._through_norm(towards, rows, unit_rows(rows)), slopes, atol=1e-5)


def test_teams_of_a_large_pool_are_those_of_its_best_workers() -> None:
    """Everybody alone; pairs and mixtures of the best five only, because calls grow with the square."""
    workers = [Worker(name=f"w{at}", kind="scripted", card=Card(strengths={"a": at / 10})) for at in range(1, 8)]
    teams = build_teams(workers)
    assert [team.answers for team in teams if team.form == "alone"] == [f"w{at}" for at in range(1, 8)]
    assert {name for team in teams if team.form != "alone" for name in team.workers} == {f"w{at}" for at in range(3, 8)}
    assert len(teams) == 7 + 5 + 20 + 5
    assert [len(team.plan().steps) for team in teams if team.form == "mixture"] == [6] * 5
    assert [team.form for team in build_teams(workers[:1])] == ["alone", "look"]


@pytest.mark.parametrize("kind", ["routerdc", "masrouter"])
def test_a_stored_router_makes_the_same_plans(tmp_path: Path, kind: RouterKind) -> None:
    """Training twice gives the same file, byte for byte."""
    router = train_router(kind, data(questions(40, 1)))
    assert router.text == train_router(kind, data(questions(40, 1))).text
    path = tmp_path / "r.json"
    path.write_text(router.text)
    again = read_router(path)
    assert again == router
    rows = vectors(questions(30, 2))
    assert plan_cases(again, rows) == plan_cases(router, rows)


def damaged(router: TrainedRouter, **changes: object) -> str:
    return json.dumps(json.loads(router.text) | changes)


def test_a_damaged_file_is_no_router(tmp_path: Path) -> None:
    """Each is an error that names the file; nothing is unpickled or guessed."""
    good = train_router("routerdc", data(questions(40, 1)))
    arrays: Mapping[str, dict[str, object]] = json.loads(good.text)["arrays"]
    unsound = (
        {"form": "alone", "workers": ["ann", "bob"], "answers": "ann"},
        {"form": "alone", "workers": [], "answers": "ann"},
        {"form": "mixture", "workers": ["ann"] * 1000, "answers": "ann"},
        {"form": "chain", "workers": ["ann", "bob"], "answers": "ann"},
        {"form": "look", "workers": ["eve"], "answers": "eve"},
    )
    bad = [
        "", "{}", "[]", "[" * 100_000, "[" + "0," * 60_000 + "0]",
        good.text[:-40], damaged(good, format="other"), damaged(good, teams=[]),
        damaged(good, workers={"ann": "same"}), damaged(good, arrays={}), damaged(good, kind="masrouter"),
        *(damaged(good, teams=[team, *json.loads(good.text)["teams"][1:]]) for team in unsound),
        damaged(good, arrays={**arrays, "keys": {**arrays["keys"], "data": "%%%"}}),
        damaged(good, arrays={**arrays, "keys": {**arrays["keys"], "shape": [3, 31]}}),
        damaged(good, arrays={**arrays, "layer": {**arrays["layer"], "shape": [-1, 32]}}),
        damaged(good, arrays={**arrays, "layer": {"shape": [2**40, 32], "data": ""}}),
    ]  # fmt: skip
    path = tmp_path / "router.json"
    for text in bad:
        path.write_text(text)
        with pytest.raises(UsageError, match=r"router\.json cannot be used as a router"):
            read_router(path)
    with pytest.raises(UsageError, match=r"none\.json"):
        read_router(tmp_path / "none.json")


def test_questions_of_the_training_are_not_compared_on() -> None:
    """Also not with other spaces or capitals."""
    seen = questions(30, 1)
    check_apart(train_router("routerdc", data(seen)).hashes, questions(30, 9))
    same = replace(seen[3], id="x", question=f"  {seen[3].question.upper()} ")
    with pytest.raises(UsageError, match="1 test case would also train a router, such as 'x'"):
        check_apart([hash_question(case.question) for case in seen], [*questions(5, 9), same])


def test_too_few_judged_cases_train_nothing() -> None:
    """Cases that failed for one worker do not count."""
    seen = questions(25, 1)
    found = [
        replace(outcome, verdict="failed")
        if outcome.system == "alone:ann" and outcome.case.endswith(("1", "2", "3"))
        else outcome
        for outcome in outcomes(seen, TEAMS)
    ]
    train_router("routerdc", data(seen))
    with pytest.raises(UsageError, match="needs at least 20 training cases that all workers have answered, and has 16"):
        train_router("routerdc", data(seen, found))


def test_rewards_charge_a_team_in_units_of_one_worker() -> None:
    """As much as one worker costs on average takes the weight of the cost from the reward."""
    found = masrouter.rewards(np.ones((2, 3)), np.array([[1.0, 3.0, 8.0], [1.0, 3.0, 8.0]]), [0, 1])
    assert np.allclose(found, 1 - masrouter.COST_WEIGHT * np.array([0.5, 1.5, 4.0]))

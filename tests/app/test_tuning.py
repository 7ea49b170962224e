"""What is learned from cases: a router where one is proved, else the best worker; and a file that is checked."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conductor_cli.app.tuning import PLAN, ROUTER, Tuned, learn
from conductor_cli.core.errors import ModelError, UsageError
from conductor_cli.evals import routing
from conductor_cli.evals.cases import Case, write_cases
from conductor_cli.evals.outcomes import CaseOutcome
from conductor_cli.evals.routing import fit_head
from conductor_cli.models.router import Router, read_router, write_router
from tests.cli.stage import Stage, says
from tests.tiny_gguf import make

pytest.importorskip("cma")

KINDS = ("add the numbers", "write the code", "find the proof")
WORKERS = ("adder", "coder", "prover")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "GENERATIONS", 10)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("encoder") / "tiny.gguf")


def questions(count: int) -> list[Case]:
    draw = random.Random(3)
    return [
        Case(id=f"c{number}", question=f"{KINDS[number % 3]} of {draw.randint(10, 99)}, and check it.", answer="x")
        for number in range(count)
    ]


def answered(cases: list[Case], right: Callable[[str, int], bool], planned: float = 0.0) -> Iterator[CaseOutcome]:
    draw = random.Random(5)
    for number, case in enumerate(cases):
        for worker in WORKERS:
            verdict = "right" if right(worker, number) else "wrong"
            yield CaseOutcome(system=f"alone:{worker}", case=case.id, verdict=verdict)  # type: ignore[arg-type]
        if planned:
            verdict = "right" if draw.random() < planned else "wrong"
            yield CaseOutcome(system=PLAN, case=case.id, verdict=verdict)  # type: ignore[arg-type]


def by_kind(worker: str, number: int) -> bool:
    """Each worker can do most of one kind, and the first some of the others, too: it is the best alone."""
    return (WORKERS.index(worker) == number % 3 and number % 10 > 0) or (worker == "adder" and number % 3 == 1)


def tuned(encoder: Path, planned: float = 0.0) -> Tuned:
    cases = questions(120)
    return learn([*answered(cases, by_kind, planned)], cases, encoder, 0)


def test_the_router_is_taken_where_its_gain_is_proved(encoder: Path) -> None:
    found = tuned(encoder)
    assert (found.way, found.best) == (ROUTER, "adder")
    comparison = found.result(ROUTER).versus_best
    assert comparison is not None
    assert comparison.difference >= 0.1
    assert comparison.n == 60, "the half that it was made from proves nothing"
    assert "Let the router choose" in found.advice()


def test_planning_is_taken_where_it_is_better_still(encoder: Path) -> None:
    assert tuned(encoder, planned=1.0).way == PLAN
    assert tuned(encoder, planned=0.2).way == ROUTER


def test_chance_is_no_gain(encoder: Path) -> None:
    """Where nobody is better at anything, the best worker is to be asked alone, for twenty draws of luck."""
    cases, ways = questions(80), []
    for seed in range(20):
        draw = random.Random(seed)
        ways.append(learn([*answered(cases, lambda *_: draw.random() < 0.5)], cases, encoder, seed).way)  # noqa: B023
    assert sum(way == ROUTER for way in ways) <= 2, ways


def test_too_few_cases_and_a_single_worker_are_refused(encoder: Path) -> None:
    cases = questions(30)
    with pytest.raises(UsageError, match="30 cases were judged"):
        learn([*answered(cases, by_kind)], cases, encoder, 0)
    alone = [outcome for outcome in answered(questions(60), by_kind) if outcome.system == "alone:adder"]
    with pytest.raises(UsageError, match="each of 1 workers"):
        learn(alone, questions(60), encoder, 0)


def test_the_same_cases_and_seed_give_the_same_head() -> None:
    import numpy as np

    draw = np.random.default_rng(1)
    states, scores = draw.normal(size=(60, 12)), draw.integers(0, 2, size=(60, 3)).astype(float)
    one, other = fit_head(states, scores, 4), fit_head(states, scores, 4)
    assert np.array_equal(one.weights, other.weights)


def test_the_chosen_worker_answers_and_the_plan_is_one_step(stage: Stage, encoder: Path, tmp_path: Path) -> None:
    cases = questions(120)
    renamed = {"adder": "alpha", "coder": "beta"}
    outcomes = [
        CaseOutcome(system=f"alone:{renamed[worker]}", case=case.id, verdict="right" if fits else "wrong")
        for number, case in enumerate(cases)
        for worker, fits in (("adder", number % 3 == 0), ("coder", number % 3 == 1))
    ]
    file = tmp_path / "t.router"
    file.write_text(write_router(learn(outcomes, cases, encoder, 0).router))
    stage.models |= {"alpha": says("from alpha"), "beta": says("from beta")}
    for kind, worker in (("add the numbers", "alpha"), ("write the code", "beta")):
        done = stage.ok("ask", "--conductor", file, f"{kind} of 55, and check it.")
        assert done.out == f"from {worker}\n"
    assert not stage.asked("planner")
    assert stage.ok("doctor", "--offline", env={"CONDUCTOR_LLM_CONDUCTOR_MODEL": str(file)}).code == 0


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": 2}, "format 2"), ({"weights": [[1.0]]}, "do not fit"), ({"workers": []}, "do not fit"),
        ({"scale": [0.0]}, "do not fit"), ({"mean": ["x"]}, "expected"), ({"encoder": 7}, "expected"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused(change: dict[str, object], told: str, encoder: Path, tmp_path: Path) -> None:
    data = json.loads(write_router(tuned(encoder).router)) | change
    file = tmp_path / "bad.router"
    file.write_text(json.dumps(data))
    with pytest.raises(ModelError, match=told):
        read_router(file)


def test_another_encoder_is_refused(encoder: Path, tmp_path: Path) -> None:
    """The weights mean nothing for the hidden states of another model."""
    own = tmp_path / "own.gguf"
    own.write_bytes(encoder.read_bytes())
    file = tmp_path / "t.router"
    file.write_text(write_router(tuned(own).router))
    make(own, seed=9)
    router = Router(file)
    with pytest.raises(ModelError, match="missing or has changed"):
        router._score("What?")


def test_tune_needs_cases_and_an_encoder(stage: Stage, tmp_path: Path) -> None:
    few, many = tmp_path / "few.jsonl", tmp_path / "many.jsonl"
    few.write_text(write_cases(questions(3)))
    many.write_text(write_cases(questions(60)))
    stage.ends(2, "tune", few, told="3 cases are too few")
    stage.ends(2, "tune", many, told="no local model")
    stage.ends(2, "tune", many, "-o", tmp_path / "x.txt", told="cannot write")

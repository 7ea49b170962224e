"""What is learned from cases: a router where one is proved, else the best worker.

And a file that is checked.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.app import guide_search, router_head
from conductor_cli.app.router_head import fit_head
from conductor_cli.app.tuning import PLAN, ROUTER, Tuned, learn_ways
from conductor_cli.core.errors import ModelError, UsageError
from conductor_cli.core.profile import Guide
from conductor_cli.evals.cases import Case, write_cases
from conductor_cli.evals.outcomes import CaseOutcome
from conductor_cli.models.llama import engine
from conductor_cli.models.llama.gguf import read_model_info
from conductor_cli.models.router import SUFFIX, Router, RouterFile, read_planner, write_planner
from tests.cli.billing import Provider
from tests.cli.billing import cases as billed_cases
from tests.cli.stage import Stage, says
from tests.evals.sample_outcomes import outcomes as sampled
from tests.servers import SeenRequest, Wire
from tests.tiny_gguf import make

pytest.importorskip("cma")

KINDS = ("add the numbers", "write the code", "find the proof")
WORKERS = ("adder", "coder", "prover")


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Few generations; and the model reads little of a question, and each question once."""
    read = engine.Encoder.encode
    states = dict[str, Any]()

    def encode(encoder: engine.Encoder, text: str) -> Any:
        if text not in states:
            states[text] = read(encoder, text)
        return states[text]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(router_head, "GENERATIONS", 10)
        patch.setattr(engine, "MAX_ENCODED_TOKENS", 256)
        patch.setattr(engine.Encoder, "encode", encode)
        yield


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("encoder") / "tiny.gguf")


def questions(count: int) -> list[Case]:
    draw = random.Random(3)
    return [
        Case(
            id=f"c{number}",
            question=f"{KINDS[number % 3]} of {draw.randint(10, 99)}, and check it.",
            answer="x",
        )
        for number in range(count)
    ]


def answered(
    cases: list[Case], right: Callable[[str, int], bool], planned: float = 0.0
) -> Iterator[CaseOutcome]:
    draw = random.Random(5)
    for number, case in enumerate(cases):
        for worker in WORKERS:
            verdict = "right" if right(worker, number) else "wrong"
            yield CaseOutcome(system=f"alone:{worker}", case=case.id, verdict=verdict)  # type: ignore[arg-type]
        if planned:
            verdict = "right" if draw.random() < planned else "wrong"
            yield CaseOutcome(system=PLAN, case=case.id, verdict=verdict)  # type: ignore[arg-type]


def by_kind(worker: str, number: int) -> bool:
    """Each worker can do most of one kind, and the first some of the others, too.

    It is the best alone.
    """
    return (WORKERS.index(worker) == number % 3 and number % 10 > 0) or (
        worker == "adder" and number % 3 == 1
    )


def tuned(encoder: Path, planned: float = 0.0) -> Tuned:
    cases = questions(120)
    return learn_ways([*answered(cases, by_kind, planned)], cases, encoder, 0)


def test_the_router_is_taken_where_its_gain_is_proved(encoder: Path) -> None:
    tuning = tuned(encoder)
    assert (tuning.way, tuning.best) == (ROUTER, "adder")
    comparison = tuning.result(ROUTER).versus_best
    assert comparison is not None
    assert comparison.difference >= 0.1
    assert comparison.n == 60, "the half that it was made from proves nothing"
    assert "Let the router choose" in tuning.advice()


def test_planning_is_taken_where_it_is_better_still(encoder: Path) -> None:
    assert tuned(encoder, planned=1.0).way == PLAN
    assert tuned(encoder, planned=0.2).way == ROUTER


def test_the_router_is_not_taken_for_gains_by_chance(encoder: Path) -> None:
    """Where nobody is better at anything, the best worker is to be asked alone.

    Ten draws of luck do not change that.
    """
    cases = questions(80)
    ways = []
    for seed in range(10):
        draw = random.Random(seed)
        ways.append(
            learn_ways([*answered(cases, lambda *_: draw.random() < 0.5)], cases, encoder, seed).way  # noqa: B023
        )
    assert sum(way == ROUTER for way in ways) <= 1, ways


def test_a_plan_whose_run_failed_counts_as_the_others_do() -> None:
    """Else an outage would decide which advice is kept."""
    assert guide_search.score_plans(sampled("conductor", "+-+!+")) == [1, 0, 1, 0.75, 1]
    assert guide_search.score_plans(sampled("conductor", "!!")) == [0, 0]


def test_too_few_cases_and_a_single_worker_are_refused(encoder: Path) -> None:
    cases = questions(30)
    with pytest.raises(UsageError, match="30 cases were judged"):
        learn_ways([*answered(cases, by_kind)], cases, encoder, 0)
    alone = [
        outcome for outcome in answered(questions(60), by_kind) if outcome.system == "alone:adder"
    ]
    with pytest.raises(UsageError, match="each of 1 workers"):
        learn_ways(alone, questions(60), encoder, 0)


def test_the_same_cases_and_seed_give_the_same_head() -> None:
    import numpy as np

    draw = np.random.default_rng(1)
    states = draw.normal(size=(60, 12))
    scores = draw.integers(0, 2, size=(60, 3)).astype(float)
    first = fit_head(states, scores, 4)
    second = fit_head(states, scores, 4)
    assert np.array_equal(first, second)


# The whole command, with scripted workers, a scripted planner, and a scripted model that reflects


def priced(stage: Stage) -> None:
    """Two workers and a planner that cost a dollar for a million tokens."""
    price = "price = { input = 1.0, output = 1.0 }\n"
    workers = {"alpha": price, "beta": price, "planner": f"{price}enabled = false"}
    stage.configure(workers=workers, conductor="planner")


def written(path: Path, cases: list[Case]) -> Path:
    path.write_text(write_cases(cases))
    return path


def test_who_answered_first_changes_no_router(encoder: Path) -> None:
    cases = questions(60)
    outcomes = [*answered(cases, by_kind)]
    learned = learn_ways(outcomes, cases, encoder, 0)
    other = learn_ways([*reversed(outcomes)], cases, encoder, 0)
    assert learned.router.workers == other.router.workers
    assert learned.router.weights == other.router.weights


def test_a_router_is_learned_written_and_used(stage: Stage, encoder: Path, tmp_path: Path) -> None:
    kinds = (("add the numbers", "from alpha"), ("write the code", "from beta"))
    cases = []
    for number in range(40):
        kind, answer = kinds[number % 2]
        question = f"{kind} of {number}, and check it."
        cases.append(Case(id=f"c{number}", question=question, answer=answer))
    priced(stage)
    stage.models |= {"alpha": says("from alpha"), "beta": says("from beta")}
    file = written(tmp_path / "cases.jsonl", cases)
    planner_file = tmp_path / f"mine{SUFFIX}"
    command: tuple[str | Path, ...] = (
        "tune",
        file,
        "--encoder",
        encoder,
        "-o",
        planner_file,
        "--plans",
        "0",
        "--yes",
    )
    done = stage.ok(*command, "--json").json
    assert (done["way"], done["planner"]) == ("router", str(planner_file))
    assert done["setting"] == f"conductor model use {planner_file}"
    assert "Let the router choose one worker" in stage.ok(*command).out
    assert len(stage.asked("alpha")) <= 2 * len(cases), (
        "what was answered before is not asked again"
    )

    for kind, answer in kinds:
        assert (
            stage.ok("ask", "--planner", planner_file, f"{kind} of 55, and check it.").out
            == f"{answer}\n"
        )
    assert len(stage.asked("planner")) == len(cases), (
        "the router plans, and no other planner is asked"
    )
    chosen = {"CONDUCTOR_LLM_PLANNER_MODEL": str(planner_file)}
    assert "a router over alpha, beta" in stage.ok("doctor", "--offline", env=chosen).out


LESSON = "Give code to beta."


def planner_that_learns(stage: Stage) -> None:
    """The planner gives everything to alpha, until its prompt has a lesson.

    It writes the lesson itself when it reflects.
    """

    async def plan(request: SeenRequest, wire: Wire) -> None:
        texts = [str(message["content"]) for message in request.json["messages"]]
        question = texts[-1].rpartition("Question:")[2]
        if "Write better advice" in texts[-1]:
            assert (
                "The answer is wrong. Expected: from beta" in texts[-1] or "is right" in texts[-1]
            )
            text = f"It should be:\n```\n{LESSON}\n```"
        elif "Correct what it reads" in texts[-1]:
            text = "```\nalpha: sums\nbeta: code\nnobody: all else\n```"
        else:
            code = "code" in question and LESSON in texts[0]
            text = f"{'beta' if code else 'alpha'} | - | Answer it."
        await says(text)(request, wire)

    stage.models |= {"alpha": says("from alpha"), "beta": says("from beta"), "planner": plan}


def alike(count: int) -> list[Case]:
    """Questions that the small model cannot tell apart.

    What makes the difference is beyond what it reads.
    """
    kinds = (("sum", "from alpha"), ("code", "from beta"))
    cases = []
    for number in range(count):
        kind, answer = kinds[number % 2]
        question = f"{'same ' * 500}{kind} {number}"
        cases.append(Case(id=f"c{number}", question=question, answer=answer))
    return cases


def test_a_planner_learns_from_a_scripted_reflection_and_is_used(
    stage: Stage, encoder: Path, tmp_path: Path
) -> None:
    pytest.importorskip("gepa")
    priced(stage)
    planner_that_learns(stage)
    file = written(tmp_path / "cases.jsonl", alike(48))
    planner_file = tmp_path / f"mine{SUFFIX}"
    done = stage.ok(
        "tune", file, "--encoder", encoder, "-o", planner_file, "--plans", "60", "--yes", "--json"
    ).json
    assert done["way"] == "conductor-guided", done
    ways = {system["name"]: system["accuracy"]["accuracy"] for system in done["systems"]}
    assert ways["conductor-guided"] == 1.0
    assert ways["conductor"] < 0.8
    kept = read_planner(planner_file)
    assert isinstance(kept, Guide)
    assert (kept.planner, kept.advice) == ("planner", LESSON)
    assert kept.proof == done["advice"]

    run = stage.ok(
        "ask", "--planner", planner_file, "--format", "json", "--", "Some code, please"
    ).json
    assert run["answer"] == "from beta"
    assert f"mine{SUFFIX} sha256:" in run["conductor"], "the trace says with which text was planned"
    chosen = {"CONDUCTOR_LLM_PLANNER_MODEL": str(planner_file)}
    assert f"mine{SUFFIX}" in stage.ok("doctor", "--offline", env=chosen).out
    assert f"mine{SUFFIX}" in stage.ok("model", "use", planner_file).out


def test_one_limit_holds_for_all_that_tuning_runs(
    stage: Stage, encoder: Path, tmp_path: Path
) -> None:
    pytest.importorskip("gepa")
    priced(stage)
    planner_that_learns(stage)
    file = written(tmp_path / "cases.jsonl", alike(40))
    command = (
        "tune",
        file,
        "--encoder",
        encoder,
        "-o",
        tmp_path / f"mine{SUFFIX}",
        "--yes",
        "--json",
    )
    # A run of a worker costs 18 millionths of a dollar, a plan twice that: 160 of them are the
    # evaluation.
    stage.ok(*command, "--max-cost", "0.0050")
    request_count = sum(request.method == "POST" for request in stage.server.requests)
    assert request_count * 18e-6 <= 0.0050
    stage.ok(*command, "--max-cost", "0.02", "--plans", "60")
    total = sum(request.method == "POST" for request in stage.server.requests)
    assert request_count < total <= 0.02 / 18e-6


def test_tuning_spends_no_cent_too_much(stage: Stage, encoder: Path, tmp_path: Path) -> None:
    provider = Provider(stage)
    command: tuple[str | Path, ...] = (
        "tune",
        billed_cases(tmp_path / "c.jsonl"),
        "--encoder",
        encoder,
    )
    command += ("-o", tmp_path / f"mine{SUFFIX}", "--yes", "--json", "--max-cost")
    assert stage.inside(*command, "5.5").code == 6
    assert Decimal("4.5") < provider.billed <= Decimal("5.5")


BY_HAND = RouterFile(
    encoder="tiny.gguf", identity="none", workers=WORKERS, weights=((0.0, 1.0),) * len(WORKERS)
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "format 2"),
        ({"weights": [[1.0]]}, "do not fit"),
        ({"workers": []}, "do not fit"),
        ({"encoder": 7}, "expected"),
        ({"workers": {}, "planner": ""}, "names no planner"),
        ({"workers": {}, "planner": "other.planner"}, "names no planner"),
        ({"workers": {}, "planner": "p", "advice": "x" * 99_999}, "more text"),
    ],
)
def test_a_damaged_file_is_refused(change: dict[str, object], message: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.router"
    file.write_text(json.dumps(json.loads(write_planner(BY_HAND)) | change))
    with pytest.raises(ModelError, match=message):
        read_planner(file)


def test_another_encoder_is_refused(encoder: Path, tmp_path: Path) -> None:
    """The weights mean nothing for the hidden states of another model."""
    other = make(tmp_path / "own.gguf", seed=9)
    file = tmp_path / "t.router"
    file.write_text(
        write_planner(
            replace(BY_HAND, encoder=str(other), identity=read_model_info(encoder).identity)
        )
    )
    with pytest.raises(ModelError, match="missing or has changed"):
        Router(file)._score("What?")


def test_tune_needs_cases_and_an_encoder(stage: Stage, tmp_path: Path) -> None:
    few, many = (written(tmp_path / f"{count}.jsonl", questions(count)) for count in (3, 60))
    stage.ends(2, "tune", few, told="3 cases are too few")
    stage.ends(2, "tune", many, told="no local model")
    stage.ends(2, "tune", many, "-o", tmp_path / "x.txt", told="cannot write")

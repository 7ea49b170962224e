"""Every case runs under every system: stored, resumed, in parallel, judged, and within a budget."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from decimal import Decimal
from itertools import product
from pathlib import Path

import pytest

from conductor_cli.core.chat import Chunk
from conductor_cli.core.errors import ModelError, PolicyError, UsageError
from conductor_cli.core.pool import Limits, Timeouts
from conductor_cli.core.usage import Price, Usage
from conductor_cli.evals.cases import GoldStep
from conductor_cli.evals.outcomes import OUTCOMES, SPEC, Evaluation
from conductor_cli.evals.runner import run_cases
from conductor_cli.evals.systems import select_systems
from conductor_cli.models.base import Model, ScriptedModel
from conductor_cli.run.budget import Budget
from conductor_cli.system.disk import AppendLog
from tests.evals.kit import (
    ALL,
    NAMES,
    Timed,
    case,
    cases,
    make_evaluation,
    orchestra,
    pool,
    run_all,
    run_evaluation,
    spec,
    untimed,
    worker_model,
)
from tests.evals.sample_outcomes import outcomes as made_outcomes
from tests.run.kit import Counting, virtually


def test_every_system_runs_every_case(tmp_path: Path) -> None:
    questions = cases(6)
    evaluation = run_evaluation(tmp_path / "e", orchestra(), questions)
    assert set(evaluation) == set(product(ALL, [case.id for case in questions]))
    assert {outcome.verdict for outcome in evaluation.values()} == {"right", "wrong"}
    assert all(outcome.tags == ("math",) and outcome.answer for outcome in evaluation.values())
    calls = {system: evaluation[system, "c1"].usage.calls for system in ALL}
    assert calls == {
        "alone:ann": 1,
        "alone:bob": 1,
        "alone:cyd": 1,
        "best-worker": 1,
        "keyword": 1,
        "reflect:ann": 6,
        "reflect:bob": 6,
        "reflect:cyd": 6,
        "vote": 5,
        "moa": 4,
        "best-routing": 1,
        "conductor-mini": 2,
        "conductor": 3,
        "conductor-ultra": 6,
    }
    planned = [evaluation[name, "c1"] for name in ("conductor", "conductor-ultra", "moa")]
    assert [(outcome.planning.calls, outcome.planned, outcome.steps) for outcome in planned] == [
        (1, True, 2),
        (4, True, 2),
        (0, False, 4),
    ]


def test_systems_share_equal_calls(tmp_path: Path) -> None:
    models = {name: worker_model(name) for name in NAMES}
    evaluation = run_evaluation(
        tmp_path / "e", orchestra(models), cases(8), ["alone", "best-worker", "keyword"]
    )
    assert sum(len(model.requests) for model in models.values()) == 8 * 3
    for number in range(1, 9):
        twin = evaluation["alone:bob", f"c{number}"]
        best = evaluation["best-worker", f"c{number}"]
        assert (twin.answer, twin.usage, twin.seconds) == (best.answer, best.usage, best.seconds)


def test_a_repaired_plan_counts_as_invalid(tmp_path: Path) -> None:
    broken = ScriptedModel([["Z | - | Do it."], ["B | - | Do it."], ["B | - | Do it."]])
    evaluation = run_evaluation(
        tmp_path / "e", orchestra(model=broken), cases(2), ["conductor"], parallel=1
    )
    assert [evaluation["conductor", f"c{number}"].valid for number in (1, 2)] == [False, True]
    assert {outcome.verdict for outcome in evaluation.values()} <= {"right", "wrong"}


def test_a_worker_that_cannot_be_reached_makes_outcomes_failed(tmp_path: Path) -> None:
    """Also if another worker took its place; systems without it are not affected."""
    models: dict[str, Model] = {name: worker_model(name) for name in NAMES}
    models["bob"] = ScriptedModel([[ModelError("overloaded", "503 from the provider")]])
    evaluation = run_evaluation(tmp_path / "e", orchestra(models), cases(2))
    failed = {system for (system, _), outcome in evaluation.items() if outcome.verdict == "failed"}
    assert failed >= {"alone:bob", "best-worker", "vote", "moa", "conductor", "conductor-ultra"}
    assert failed.isdisjoint({"alone:ann", "alone:cyd"})
    assert evaluation["moa", "c1"].error == "bob: 503 from the provider"
    assert evaluation["moa", "c1"].answer == ""


def test_a_successful_retry_is_not_a_failure(tmp_path: Path) -> None:
    again = ScriptedModel([[ModelError("rate", "slow down", retry_after=0.0)], ["4"]])
    by = orchestra({"ann": again, "bob": worker_model("bob")}, limits=Limits(attempts=2))
    evaluation = run_evaluation(tmp_path / "e", by, cases(1), ["alone:ann"])
    assert evaluation["alone:ann", "c1"].verdict == "right"


def test_closing_the_generator_stops_the_runs(tmp_path: Path) -> None:
    slow = Counting("4", seconds=0.02)
    models: dict[str, Model] = {"ann": slow, "bob": Counting("4", seconds=0.02)}
    by = orchestra(models)
    questions = cases(30)
    stored, systems = make_evaluation(tmp_path / "e", by, questions, ["alone:ann"])

    async def some() -> None:
        outcomes = run_cases(stored, systems, by, parallel=3)
        async for _ in outcomes:
            break
        await outcomes.aclose()
        assert slow.open == 0

    asyncio.run(some())
    assert 1 <= len(stored.outcomes()) < 30
    assert slow.most == 3
    assert len(run_evaluation(tmp_path / "e", by, questions, ["alone:ann"])) == 30


def test_the_parallel_limit_of_a_model_holds_over_all_runs(tmp_path: Path) -> None:
    models = {"ann": Counting("4", seconds=0.02), "bob": Counting("4", seconds=0.02)}
    local = Counting("B | - | Do it.", seconds=0.02)
    by = orchestra(
        models,
        pool=pool("ann", "bob", parallel=1),
        model=local,
        constrained=True,
        timeouts=Timeouts(first_token=0.2),
    )
    evaluation = run_evaluation(
        tmp_path / "e", by, cases(8), ["alone:ann", "vote", "conductor"], parallel=12
    )
    assert {outcome.verdict for outcome in evaluation.values()} <= {"right", "wrong"}
    assert (models["ann"].most, models["bob"].most, local.most) == (1, 1, 1)


def test_two_processes_cannot_write_one_evaluation(tmp_path: Path) -> None:
    by = orchestra()
    stored, systems = make_evaluation(tmp_path / "e", by, cases(1))
    with stored.writer(), pytest.raises(UsageError, match="by another process"):
        asyncio.run(run_all(Evaluation(tmp_path / "e"), systems, by))


def test_a_policy_error_ends_the_evaluation(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="the cost limit cannot be enforced"):
        run_evaluation(
            tmp_path / "e", orchestra(limits=Limits(cost=Decimal(1))), cases(2), ["alone"]
        )


def test_a_known_decomposition_may_exceed_the_step_limit(tmp_path: Path) -> None:
    questions = [
        case(1, steps=tuple(GoldStep(skill="math", subtask=f"Part {n}.") for n in range(8))),
        case(2),
    ]
    evaluation = run_evaluation(tmp_path / "e", orchestra(), questions, ["best-routing"])
    assert sorted((outcome.steps, outcome.error) for outcome in evaluation.values()) == [
        (1, ""),
        (8, ""),
    ]


def test_waiting_for_a_model_does_not_count_against_the_time_limit(tmp_path: Path) -> None:
    slow: dict[str, Model] = {"ann": Counting("4", seconds=10.0)}
    by = orchestra(slow, pool=pool("ann", parallel=1), limits=Limits(attempts=1, seconds=60))
    stored, systems = make_evaluation(tmp_path / "e", by, cases(10), ["alone:ann"])
    assert {outcome.answer for outcome in virtually(run_all(stored, systems, by, parallel=10))} == {
        "4"
    }


def test_waiting_for_an_equal_request_is_not_a_timeout(tmp_path: Path) -> None:
    slow = ScriptedModel(
        reply=lambda _: [25.0, "4", 25.0, " ", 25.0, Chunk(usage=Usage(calls=1), finish="stop")]
    )
    by = orchestra({"ann": slow}, model=None, timeouts=Timeouts(first_token=40.0, idle=40.0))
    stored, systems = make_evaluation(tmp_path / "e", by, cases(1), ["alone:ann", "best-worker"])
    outcomes = virtually(run_all(stored, systems, by))
    assert [(outcome.verdict, outcome.error) for outcome in outcomes] == [
        ("right", ""),
        ("right", ""),
    ]
    assert len(slow.requests) == 1


@pytest.mark.parametrize("file", ["calls.jsonl", OUTCOMES])
def test_a_full_disk_ends_the_evaluation_and_judged_outcomes_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """Continuing without the replies would mean paying for them again later."""
    append = AppendLog.append

    def refusing(log: AppendLog, block: str) -> None:
        if log.path.name == file and log.path.stat().st_size > 500:
            raise OSError(28, "No space left on device")
        append(log, block)

    monkeypatch.setattr(AppendLog, "append", refusing)
    with pytest.raises(UsageError, match=rf"cannot write .*{file}: No space left") as error:
        run_evaluation(tmp_path / "e", orchestra(), cases(9), ["alone:ann"], parallel=1)
    assert error.value.hint == "make it writable and free some space; the same command continues"
    assert 1 <= len(Evaluation(tmp_path / "e").outcomes()) < 9
    monkeypatch.undo()
    assert len(run_evaluation(tmp_path / "e", orchestra(), cases(9), ["alone:ann"])) == 9


def test_seconds_are_those_of_the_longest_chain_of_calls(tmp_path: Path) -> None:
    models: dict[str, Model] = {
        name: Timed(name, seconds) for name, seconds in (("ann", 2.0), ("bob", 3.0), ("cyd", 5.0))
    }
    by = orchestra(
        models, model=Timed("planner", 0.5, "B | - | Do.\nA | - | Do.\nC | 1 2 | Do.", "C")
    )
    names = ["alone", "moa", "vote", "conductor", "conductor-mini", "best-worker"]
    evaluation = run_evaluation(tmp_path / "e", by, cases(1), names)
    assert {name: outcome.seconds for (name, _), outcome in evaluation.items()} == {
        "alone:ann": 2.0,
        "alone:bob": 3.0,
        "alone:cyd": 5.0,
        "best-worker": 3.0,
        "moa": 8.0,
        "vote": 3.0,
        "conductor": 8.5,
        "conductor-mini": 5.5,
    }


def test_a_case_is_run_several_times_with_other_seeds(tmp_path: Path) -> None:
    questions = cases(5)
    names = ("alone:ann", "vote", "moa")
    run_evaluation(tmp_path / "e", orchestra(), questions, names, repeat=3)
    stored = Evaluation(tmp_path / "e")
    outcomes_by_key = {outcome.key: outcome for outcome in stored.outcomes()}
    assert set(outcomes_by_key) == set(product(names, [case.id for case in questions], range(3)))
    answers = [
        tuple(outcomes_by_key["alone:ann", item.id, draw].answer for item in questions)
        for draw in range(3)
    ]
    assert len(set(answers)) == 3
    calls = (tmp_path / "e/calls.jsonl").read_bytes()
    lines = (tmp_path / "e/outcomes.jsonl").read_text().splitlines()
    (tmp_path / "e/outcomes.jsonl").write_text("\n".join(lines[: len(lines) // 2]) + "\n")
    run_evaluation(tmp_path / "e", orchestra(), questions, names, repeat=3)
    assert untimed(stored.outcomes()) == untimed(outcomes_by_key.values())
    assert (tmp_path / "e/calls.jsonl").read_bytes() == calls


def test_spec_and_cases_read_back_equal(tmp_path: Path) -> None:
    by = orchestra()
    made, systems = make_evaluation(
        tmp_path / "deep" / "e", by, cases(3), seed=4, version="1.0.0", time="now"
    )
    again = Evaluation(tmp_path / "deep" / "e")
    assert again.cases() == cases(3)
    assert again.spec == made.spec
    assert again.spec == spec(systems, cases(3), by, seed=4, version="1.0.0", time="now")
    modes = [path.stat().st_mode & 0o077 for path in (tmp_path / "deep" / "e").rglob("*")]
    assert modes == [0] * len(modes)


def test_replies_of_another_conductor_model_are_not_used(tmp_path: Path) -> None:
    questions = cases(1)
    models = {}
    for who in ("one", "two"):
        models[who] = ScriptedModel(reply=lambda _, who=who: [f"A | - | What {who} wrote."])  # type: ignore[misc]
        run_evaluation(
            tmp_path / who, orchestra(model=models[who]), questions, ["conductor"], planner_id=who
        )
        calls = tmp_path / who / "calls.jsonl"
        (tmp_path / "two").mkdir(exist_ok=True)
        (tmp_path / "two" / "calls.jsonl").write_bytes(calls.read_bytes())
    assert [len(model.requests) for model in models.values()] == [1, 1]


def test_failed_runs_count_as_spent(tmp_path: Path) -> None:
    made, _ = make_evaluation(tmp_path / "e", orchestra(), cases(2), ["alone:ann"])
    with made.writer() as writer:
        for number, sign in enumerate("+!", start=1):
            writer.write(
                replace(made_outcomes("alone:ann", sign, cost="0.5")[0], case=f"c{number}")
            )
    assert (made.spent(), len(made.judged())) == (Decimal(1), 1)
    with made.writer() as writer:
        writer.write(replace(made_outcomes("alone:ann", "-", cost="0.25")[0], case="c2"))
    assert (made.spent(), len(made.judged()), len(made.outcomes())) == (Decimal("1.25"), 2, 2)


def test_a_directory_without_a_valid_spec_is_an_error(tmp_path: Path) -> None:
    for content in (None, "", "{", "[]", "{}", '{"source": 1}', "[" * 100_000):
        if content is not None:
            (tmp_path / SPEC).write_text(content)
        with pytest.raises(UsageError):
            Evaluation(tmp_path)
    (tmp_path / "e").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        make_evaluation(tmp_path / "e" / "f", orchestra(), cases(1))


@pytest.mark.parametrize("file", [OUTCOMES, "calls.jsonl"])
def test_a_file_cut_at_any_byte_is_repaired(tmp_path: Path, file: str) -> None:
    by = orchestra()
    questions = cases(2)
    run_evaluation(tmp_path / "e", by, questions, ["conductor"], parallel=1)
    stored = Evaluation(tmp_path / "e")
    whole = {name: (tmp_path / "e" / name).read_bytes() for name in (OUTCOMES, "calls.jsonl")}
    first = stored.outcomes()
    half = whole[OUTCOMES].index(b"\n", 1)
    begin = {OUTCOMES: half, "calls.jsonl": 0}[file]
    for cut in range(begin, len(whole[file]), 31 if file == OUTCOMES else 97):
        for name, content in whole.items():
            (tmp_path / "e" / name).write_bytes(content)
        (tmp_path / "e" / file).write_bytes(whole[file][:cut])
        if file != OUTCOMES:  # the outcome is written last
            (tmp_path / "e" / OUTCOMES).write_bytes(whole[OUTCOMES][:half])
        systems = select_systems("conductor", by.team, cases=questions)
        assert len(asyncio.run(run_all(stored, systems, by, parallel=1))) == 1
        assert untimed(stored.outcomes()) == untimed(first)


def test_no_run_starts_that_could_exceed_the_limit_with_those_in_progress() -> None:
    budget = Budget(Decimal(10), expected=Decimal(2))
    assert [budget.start() for _ in range(6)] == [True] * 5 + [False]
    budget.add(Decimal(5))
    budget.finish(Decimal(5))
    assert not budget.start(), "four under way may cost 5 each"
    for _ in range(4):
        budget.add(Decimal(1))
        budget.finish(Decimal(1))
    assert (budget.spent, budget.exhausted) == (Decimal(9), False)
    assert [budget.start(), budget.start()] == [True, False]
    budget.finish(None)
    assert budget.spent == Decimal(9)


def test_a_single_run_may_start_until_the_limit_is_reached() -> None:
    """However expensive runs are expected to be: each of its calls reserves what it may cost."""
    budget = Budget(Decimal(1), expected=Decimal(100))
    assert budget.start()
    budget.add(Decimal(1))
    budget.finish(Decimal(1))
    assert budget.exhausted
    assert not budget.start()
    assert all(Budget().start() for _ in range(3)), "without a limit any number may start"


@pytest.mark.parametrize("parallel", [1, 8])
def test_no_call_exceeds_the_limit_of_all_runs(tmp_path: Path, parallel: int) -> None:
    worker = ScriptedModel(reply=lambda _: ["one ", "two ", "three"])
    dollar_a_token = Price(input=Decimal(0), output=Decimal(1_000_000))
    by = orchestra({"ann": worker}, model=None, pool=pool("ann", price=dollar_a_token))
    stored, systems = make_evaluation(tmp_path / "e", by, cases(12), ["alone"])
    # An answer is cut to 256 tokens at least
    for limit, spent in (("264.5", 9), ("264.5", 9), ("270.5", 15)):
        budget = Budget(Decimal(limit), spent=stored.spent(), expected=Decimal(3))
        asyncio.run(run_all(stored, systems, by, parallel=parallel, budget=budget))
        assert stored.spent() == budget.spent == 3 * len(worker.requests) == spent

"""An evaluation's directory: its content, its errors, and what a kill during a write leaves."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from conductor_cli.core.errors import UsageError
from conductor_cli.evals.outcomes import CASES, OUTCOMES, SPEC, Evaluation
from conductor_cli.evals.runner import evaluate
from conductor_cli.evals.systems import select_systems
from conductor_cli.models.base import ScriptedModel
from tests.evals.kit import ALL, cases, conductor, make_evaluation, run_all, run_evaluation, spec, untimed
from tests.evals.sample_outcomes import outcomes as made_outcomes


def test_spec_and_cases_read_back_equal(tmp_path: Path) -> None:
    """Only their owner can read them."""
    by = conductor()
    made, systems = make_evaluation(tmp_path / "deep" / "e", by, cases(3), seed=4, version="0.1.0", time="now")
    again = Evaluation(tmp_path / "deep" / "e")
    assert again.cases() == cases(3)
    assert again.spec == made.spec
    assert again.spec == spec(systems, cases(3), by, seed=4, version="0.1.0", time="now")
    modes = [path.stat().st_mode & 0o077 for path in (tmp_path / "deep" / "e").rglob("*")]
    assert modes == [0] * len(modes)


def test_replies_of_another_conductor_model_are_not_used(tmp_path: Path) -> None:
    """Two models with the same name at different addresses are told apart."""
    asked, models = cases(1), {}
    for who in ("one", "two"):
        models[who] = ScriptedModel(reply=lambda _, who=who: [f"A | - | What {who} wrote."])  # type: ignore[misc]
        run_evaluation(tmp_path / who, conductor(model=models[who]), asked, ["conductor"], planner_id=who)
        calls = tmp_path / who / "calls.jsonl"
        (tmp_path / "two").mkdir(exist_ok=True)
        (tmp_path / "two" / "calls.jsonl").write_bytes(calls.read_bytes())
    assert [len(model.requests) for model in models.values()] == [1, 1]


def test_failed_runs_count_as_spent(tmp_path: Path) -> None:
    """Also after a retry, which replaces the failed outcome."""
    made, _ = make_evaluation(tmp_path / "e", conductor(), cases(2), ["alone:ann"])
    with made.writer() as writer:
        for number, sign in enumerate("+!", start=1):
            writer.write(replace(made_outcomes("alone:ann", sign, cost="0.5")[0], case=f"c{number}"))
    assert (made.spent(), len(made.judged())) == (Decimal(1), 1)
    with made.writer() as writer:
        writer.write(replace(made_outcomes("alone:ann", "-", cost="0.25")[0], case="c2"))
    assert (made.spent(), len(made.judged()), len(made.outcomes())) == (Decimal("1.25"), 2, 2)


def test_a_directory_without_a_valid_spec_is_an_error(tmp_path: Path) -> None:
    """A missing directory, one without a spec, and one with a damaged spec."""
    for content in (None, "", "{", "[]", "{}", '{"source": 1}', "[" * 100_000):
        if content is not None:
            (tmp_path / SPEC).write_text(content)
        with pytest.raises(UsageError):
            Evaluation(tmp_path)


def test_an_unwritable_directory_is_an_error(tmp_path: Path) -> None:
    """There is a file in its place."""
    (tmp_path / "e").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        make_evaluation(tmp_path / "e" / "f", conductor(), cases(1))


@pytest.mark.parametrize("file", [OUTCOMES, "calls.jsonl"])
def test_a_file_cut_at_any_byte_is_repaired(tmp_path: Path, file: str) -> None:
    """Resuming gives the same outcomes."""
    by, asked = conductor(), cases(2)
    run_evaluation(tmp_path / "e", by, asked, ["conductor"], parallel=1)
    stored = Evaluation(tmp_path / "e")
    whole = {name: (tmp_path / "e" / name).read_bytes() for name in (OUTCOMES, "calls.jsonl")}
    first = stored.outcomes()
    half = whole[OUTCOMES].index(b"\n", 1)
    begin = {OUTCOMES: half, "calls.jsonl": 0}[file]
    for cut in range(begin, len(whole[file]), 7 if file == OUTCOMES else 97):
        for name, data in whole.items():
            (tmp_path / "e" / name).write_bytes(data)
        (tmp_path / "e" / file).write_bytes(whole[file][:cut])
        if file != OUTCOMES:  # the outcome is written last
            (tmp_path / "e" / OUTCOMES).write_bytes(whole[OUTCOMES][:half])
        systems = select_systems("conductor", by, cases=asked)
        assert len(asyncio.run(run_all(stored, systems, by, parallel=1))) == 1
        assert untimed(stored.outcomes()) == untimed(first)


def test_a_full_disk_ends_the_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to do, and replies that were received stay stored."""
    from conductor_cli.models.disk import AppendLog

    def refused(log: AppendLog, block: str) -> None:
        if log.path.name == OUTCOMES:
            raise OSError(28, "No space left on device")
        append(log, block)

    append = AppendLog.append
    monkeypatch.setattr(AppendLog, "append", refused)
    by = conductor()
    stored, systems = make_evaluation(tmp_path / "e", by, cases(2))
    with pytest.raises(UsageError, match="No space left") as error:
        asyncio.run(run_all(stored, systems, by))
    assert error.value.hint == "make it writable and free some space; the same command continues"
    monkeypatch.undo()
    assert (tmp_path / "e" / "calls.jsonl").stat().st_size > 0
    assert len(run_evaluation(tmp_path / "e", by, cases(2))) == 2 * len(ALL)


def test_cases_are_stored_with_the_evaluation(tmp_path: Path) -> None:
    """It can be scored again without the original file."""
    make_evaluation(tmp_path / "e", conductor(), cases(2))
    assert [json.loads(line)["id"] for line in (tmp_path / "e" / CASES).read_text().split("\n") if line] == ["c1", "c2"]


def test_the_directory_is_unlocked_after_an_error(tmp_path: Path) -> None:
    """Another process can write then."""
    by = conductor()
    stored, systems = make_evaluation(tmp_path / "e", by, cases(1))

    async def broken_off() -> None:
        async for _ in evaluate(stored, systems, by):
            raise RuntimeError("the reader broke")

    with pytest.raises(RuntimeError):
        asyncio.run(broken_off())
    with stored.writer():
        pass

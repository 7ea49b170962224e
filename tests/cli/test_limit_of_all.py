"""`--max-cost` of many runs is a limit.

With honest providers nothing exceeds it, whatever runs at once.
"""

from __future__ import annotations

import json
import os
import signal
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.cli.billing import Provider, cases, questions
from tests.cli.stage import Done, Stage, finished
from tests.servers import SeenRequest, Wire
from tests.state.cluster import Cluster
from tests.state.conftest import postgres

__all__ = ["postgres"]


@pytest.fixture
def provider(stage: Stage) -> Provider:
    return Provider(stage)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_batch_of_honest_workers_spends_no_cent_too_much(
    stage: Stage, provider: Provider, tmp_path: Path
) -> None:
    """Neither at once, nor when it goes on with more; and it spends what there is."""
    out = tmp_path / "a.jsonl"
    command = ("batch", questions(tmp_path / "q.jsonl"), "-o", out, "--max-cost")
    stage.ends(
        6, *command, "5.5", told=("the limit of the batch is reached: $5", "raise --max-cost")
    )
    assert Decimal("4.5") < provider.billed <= Decimal("5.5")
    assert len(lines_of(out)) >= 5
    assert provider.most_running > 1, "several calls that fit together are made together"
    stage.ends(6, *command, "9.5", told="continuing")
    assert Decimal("8.5") < provider.billed <= Decimal("9.5")
    stage.ends(6, *command, "9.5")
    assert provider.billed <= Decimal("9.5")
    assert not (tmp_path / "a.failed.jsonl").exists(), "a question without room is asked later"


def test_a_batch_counts_what_failed_questions_have_cost(
    stage: Stage, provider: Provider, tmp_path: Path
) -> None:
    """Also when they are asked again from their file, and answered at last."""
    out = tmp_path / "a.jsonl"
    failed = tmp_path / "a.failed.jsonl"
    provider.answer = ""
    stage.ends(7, "batch", questions(tmp_path / "q.jsonl", 3), "-o", out, "--max-cost", "20.5")
    stage.ends(7, "batch", failed, "-o", out, "--max-cost", "20.5")
    provider.answer = "fine"
    stage.ok("batch", failed, "-o", out, "--max-cost", "20.5", told="3 answers")
    assert not failed.exists()
    stage.ends(6, "batch", questions(tmp_path / "q.jsonl"), "-o", out, "--max-cost", "20.5")
    assert Decimal("19.5") < provider.billed <= Decimal("20.5")


def test_a_batch_counts_calls_that_a_kill_has_cut_off(
    stage: Stage, provider: Provider, tmp_path: Path
) -> None:
    command = (
        "batch",
        questions(tmp_path / "q.jsonl"),
        "-o",
        tmp_path / "a.jsonl",
        "--max-cost",
        "7.5",
    )
    work = provider.work

    async def killed(request: SeenRequest, wire: Wire) -> None:
        if provider.billed > 3:
            provider.bill(request, provider.price)
            os.killpg(process.pid, signal.SIGKILL)
            return
        await work(request, wire)

    stage.models["alpha"] = killed
    with stage.start(*command) as process:
        finished(process)
    stage.models["alpha"] = work
    stage.ends(6, *command)
    assert provider.billed <= Decimal("7.5")


def test_a_batch_of_two_machines_spends_no_cent_too_much(
    stage: Stage, provider: Provider, tmp_path: Path, postgres: Cluster
) -> None:
    """They share it by a database. Each has its own files, and its questions at the same time."""
    state = {"CONDUCTOR_LLM_STATE": postgres.new_database()}
    started = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        source = questions(tmp_path / name / "q.jsonl", 240)
        command = ("batch", source, "-o", tmp_path / name / "a.jsonl", "--max-cost", "5.5")
        started.append(stage.start(*command, env=state))
    ended = []
    for process in started:
        with process:
            ended.append(finished(process))
    assert [done.code for done in ended] == [6, 6], ended
    assert Decimal("4.5") < provider.billed <= Decimal("5.5")


@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: make train-setup")
@pytest.mark.timeout(600)
def test_a_batch_on_ray_spends_no_cent_too_much(
    stage: Stage, provider: Provider, tmp_path: Path
) -> None:
    # Ray imports jsonschema in each of its processes, which takes seconds where this library is
    # there too.
    (tmp_path / "rfc3987_syntax.py").write_text("raise ImportError\n")
    path = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{stage.environ()['PYTHONPATH']}"}
    command = ("batch", questions(tmp_path / "q.jsonl"), "-o", tmp_path / "a.jsonl", "--max-cost")
    with stage.start(*command, "5.5", "--ray", "auto", env=path) as process:
        _, err = process.communicate(timeout=500)
    assert process.returncode == 6, err.decode()
    assert Decimal("4.5") < provider.billed <= Decimal("5.5")
    answers = (tmp_path / "a.jsonl").read_text().splitlines()
    assert len(answers) >= 5, "what was paid for is written, though the batch has stopped"
    stage.ends(6, *command, "7.5", told="continuing")
    assert Decimal("6.5") < provider.billed <= Decimal("7.5")


def test_a_new_batch_under_the_same_name_begins_at_nothing(
    stage: Stage, provider: Provider, tmp_path: Path
) -> None:
    out = tmp_path / "a.jsonl"
    command = ("batch", questions(tmp_path / "q.jsonl", 2), "-o", out, "--max-cost", "2.5")
    stage.ok(*command)
    out.unlink()
    stage.ok(*command)
    assert 4 <= provider.billed <= 5


def test_a_provider_that_overstates_exceeds_the_limit_by_the_calls_under_way(
    stage: Stage, tmp_path: Path
) -> None:
    provider = Provider(stage, overstates=10)
    command = (
        "batch",
        questions(tmp_path / "q.jsonl"),
        "-o",
        tmp_path / "a.jsonl",
        "--max-cost",
        "4.5",
    )
    stage.ends(6, *command)
    assert provider.billed <= Decimal("4.5") + provider.most_running * 10
    assert provider.most_running <= 4
    before = provider.billed
    stage.ends(6, *command)
    assert provider.billed == before


@pytest.mark.parametrize("cost", ["-5", "NaN", '"-1"', "true"])
def test_a_cost_that_is_none_is_refused(
    stage: Stage, provider: Provider, tmp_path: Path, cost: str
) -> None:
    """A failed file from elsewhere cannot raise the limit."""
    line = '{"id":"q0","question":"Why 0?","error":{"kind":"worker","message":"no","cost":%s}}\n'
    (tmp_path / "a.failed.jsonl").write_text(line % cost)
    command = ("batch", questions(tmp_path / "q.jsonl"), "-o", tmp_path / "a.jsonl")
    stage.fails(2, *command, "--max-cost", "1", told="line 1: its cost is no amount of US dollars")
    assert not provider.billed


@pytest.mark.parametrize("parallel", ["8", "64"])
def test_an_evaluation_spends_no_cent_too_much(
    stage: Stage, provider: Provider, tmp_path: Path, parallel: str
) -> None:
    """Neither at once nor when it goes on; what it could not pay is no failed run."""
    command: tuple[str | Path, ...] = (
        "eval",
        cases(tmp_path / "c.jsonl"),
        "--systems",
        "alone,conductor",
        "--yes",
        "--json",
    )
    command += ("--parallel", parallel, "--max-cost")
    done: Done = stage.inside(*command, "5.5")
    assert done.code == 6, done.err
    assert Decimal("4.5") < provider.billed <= Decimal("5.5")
    assert not any(system["failed"] for system in done.json["systems"])
    assert stage.inside(*command, "8.5").code == 6
    assert Decimal("7.5") < provider.billed <= Decimal("8.5")


def test_try_spends_its_half_dollar_and_no_more(stage: Stage, tmp_path: Path) -> None:
    provider = Provider(stage, written=120)
    stage.ends(6, "try", cases(tmp_path / "c.jsonl"), "--yes")
    assert Decimal("0.3") < provider.billed <= Decimal("0.5")


def test_calibrating_spends_no_cent_too_much(
    stage: Stage, provider: Provider, tmp_path: Path
) -> None:
    """Neither at once nor when it goes on."""
    command = ("workers", "calibrate", cases(tmp_path / "c.jsonl"), "--yes", "--max-cost")
    stage.ends(6, *command, "3.5", told="raise --max-cost")
    assert Decimal("2.5") < provider.billed <= Decimal("3.5")
    stage.ends(6, *command, "5.5", told="continuing")
    assert Decimal("4.5") < provider.billed <= Decimal("5.5")

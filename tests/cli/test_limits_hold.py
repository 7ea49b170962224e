"""Each limit, with an honest provider, and with one that bills ten times what it may."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from math import ceil
from pathlib import Path

import pytest

from tests.cli.billing import Provider, cases, questions
from tests.cli.stage import THREE, Stage
from tests.server.plain_api import serving
from tests.server.test_access import add, ask_with

HONEST_AND_LYING = pytest.mark.parametrize("overstates", [1, 10])


def billed_at_most(provider: Provider, limit: str) -> bool:
    """Return whether the bill is within the limit.

    With lies, beyond it by the calls that have room in it at once.
    """
    calls = ceil(Decimal(limit))  # of a dollar each, and one that is cut
    over = 0 if provider.overstates == 1 else calls * provider.overstates
    return 0 < provider.billed <= Decimal(limit) + over


@HONEST_AND_LYING
def test_a_question_holds_its_limit(stage: Stage, overstates: int) -> None:
    provider = Provider(stage, overstates, plan=THREE, workers=("alpha", "beta"))
    stage.ends(6, "ask", "Why?", "--max-cost", "1.9")
    assert billed_at_most(provider, "1.9")


@HONEST_AND_LYING
@pytest.mark.parametrize("command", ["ask", "batch", "eval"])
def test_the_limit_of_a_day_holds_for_every_command(
    stage: Stage, tmp_path: Path, command: str, overstates: int
) -> None:
    provider = Provider(stage, overstates, limits="cost_day = 2.9")
    words: dict[str, tuple[str | Path, ...]] = {
        "ask": ("ask", "Why?"),
        "batch": ("batch", questions(tmp_path / "q.jsonl"), "-o", tmp_path / "a.jsonl", "--yes"),
        "eval": ("eval", cases(tmp_path / "c.jsonl"), "--systems", "alone", "--yes"),
    }
    for _ in range(4):
        stage.inside(*words[command])
    assert billed_at_most(provider, "2.9")


@HONEST_AND_LYING
@pytest.mark.parametrize("limit", ["tokens_day = 6000", "calls_day = 3"])
def test_tokens_and_calls_of_a_day_hold_for_a_batch(
    stage: Stage, tmp_path: Path, limit: str, overstates: int
) -> None:
    provider = Provider(stage, overstates, limits=limit)
    stage.inside("batch", questions(tmp_path / "q.jsonl"), "-o", tmp_path / "a.jsonl", "--yes")
    assert len(stage.asked("alpha")) <= (6 if "tokens" in limit else 3)
    assert provider.billed > 0


@HONEST_AND_LYING
def test_the_day_of_a_key_holds_for_its_requests_at_once(stage: Stage, overstates: int) -> None:
    provider = Provider(stage, overstates)
    key = add(stage, "phone", "--max-cost-day", "2.9")
    with serving() as served, ThreadPoolExecutor(8) as pool:
        answers = [*pool.map(lambda _: ask_with(served, key).status_code, range(8))]
    assert set(answers) <= {200, 429}
    assert billed_at_most(provider, "2.9")


@pytest.mark.parametrize("command", ["eval", "try", "calibrate"])
def test_a_provider_that_lies_exceeds_the_limit_of_an_evaluation_by_the_calls_under_way(
    stage: Stage, tmp_path: Path, command: str
) -> None:
    provider = Provider(stage, 10)
    file = cases(tmp_path / "c.jsonl")
    words: dict[str, tuple[str | Path, ...]] = {
        "eval": ("eval", file, "--systems", "alone"),
        "try": ("try", file),
        "calibrate": ("workers", "calibrate", file),
    }
    stage.ends(6, *words[command], "--yes", "--max-cost", "2.9")
    assert billed_at_most(provider, "2.9")

"""What members of drawn pools answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from conductor_cli.rehearsal.players import CHECKER, REFUSAL
from scripts.rehearsal.asking import Bank, Reply
from scripts.rehearsal.pools import GENERALIST

STEP, CHECK = "s: capital of FRANCE\na:", "s: capital of FRANCE\na: PARIS\ns: check it\na:"


class Files(Bank):
    """Files that answer with their names; the checker says what it would say of a capital."""

    def __init__(self) -> None:
        super().__init__(Path())

    async def ask(self, name: str, prompt: str, *, seed: int | None = None) -> Reply:
        if name == CHECKER:
            return Reply("YES" if prompt == CHECK else "PARIS", 0.9)
        refuses = prompt == CHECK and name != GENERALIST
        return Reply(REFUSAL if refuses else name.upper() + ("" if seed is None else " BY CHANCE"), 0.8)


def member(strengths: Mapping[str, float], prompt: str, seed: int = 1) -> str:
    return asyncio.run(Files().member(strengths, prompt, seed))


def test_a_checker_only_checks() -> None:
    """It works an answer out before it judges one, so with other steps it would be the one that can do everything."""
    assert member({CHECKER: 1.0}, STEP) == REFUSAL
    assert member({CHECKER: 1.0}, CHECK) == "YES"
    assert member({CHECKER: 1.0, "geography": 1.0}, STEP) == "GEOGRAPHY"
    assert member({"geography": 1.0}, CHECK) == REFUSAL


def test_members_fail_apart_from_each_other() -> None:
    """One with a strength of 0.6 is right in that share of all calls, and another may be right where it fails."""
    one = [member({"geography": 0.6}, STEP, seed) for seed in range(300)]
    other = [member({"geography": 0.6, "spelling": 0.2}, STEP, seed) for seed in range(300)]
    assert 0.5 < one.count("GEOGRAPHY") / 300 < 0.7
    assert {"GEOGRAPHY", "GENERALIST BY CHANCE"} == set(one)
    saved = sum(first != "GEOGRAPHY" == second for first, second in zip(one, other, strict=True))
    assert saved > 30
    assert one == [member({"geography": 0.6}, STEP, seed) for seed in range(300)]

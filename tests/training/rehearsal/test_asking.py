"""The vocabulary of the rehearsal's models, and what members of pools answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.rehearsal.players import CHECKER, REFUSAL
from conductor_cli.rehearsal.words import normalize
from training.rehearsal.asking import SIZE, SPECIAL, Bank, Reply, build, fingerprint, texts
from training.rehearsal.exercises import GENERALIST
from training.rehearsal.world import draw_problems

STEP = "s: capital of FRANCE\na:"
CHECK = "s: capital of FRANCE\na: PARIS\ns: check it\na:"


class Files(Bank):
    """Files that answer with their names; the checker says what it would say of a capital."""

    def __init__(self) -> None:
        super().__init__(Path())

    async def ask(self, name: str, prompt: str, *, seed: int | None = None) -> Reply:
        if name == CHECKER:
            return Reply("YES" if prompt == CHECK else "PARIS", 0.9)
        refuses = prompt == CHECK and name != GENERALIST
        if refuses:
            return Reply(REFUSAL, 0.8)
        if seed is None:
            return Reply(name.upper(), 0.8)
        return Reply(f"{name.upper()} BY CHANCE", 0.8)


def member(strengths: Mapping[str, float], prompt: str, seed: int = 1) -> str:
    return asyncio.run(Files().member(strengths, prompt, seed))


def test_a_checker_only_checks() -> None:
    """It works an answer out before it judges one.

    With other steps it would be the one that can do everything.
    """
    assert member({CHECKER: 1.0}, STEP) == REFUSAL
    assert member({CHECKER: 1.0}, CHECK) == "YES"
    assert member({CHECKER: 1.0, "geography": 1.0}, STEP) == "GEOGRAPHY"
    assert member({"geography": 1.0}, CHECK) == REFUSAL


def test_members_fail_apart_from_each_other() -> None:
    """One with a strength of 0.6 is right in that share of all calls.

    Another may be right where it fails.
    """
    single = [member({"geography": 0.6}, STEP, seed) for seed in range(300)]
    double = [member({"geography": 0.6, "spelling": 0.2}, STEP, seed) for seed in range(300)]
    assert 0.5 < single.count("GEOGRAPHY") / 300 < 0.7
    assert {"GEOGRAPHY", "GENERALIST BY CHANCE"} == set(single)
    saved = sum(
        first != "GEOGRAPHY" == second for first, second in zip(single, double, strict=True)
    )
    assert saved > 30
    assert single == [member({"geography": 0.6}, STEP, seed) for seed in range(300)]


FINGERPRINT = "b02d7d8813790749f0519c5ae8df063cf173ebbadaf437d153a06a9ee0942988"


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    return build()


def test_the_tokenizer_ships_as_it_was_trained(tokenizer: Any) -> None:
    assert fingerprint(tokenizer) == FINGERPRINT
    assert tokenizer.get_vocab_size() <= SIZE
    assert [tokenizer.token_to_id(special) for special in SPECIAL] == [0, 1]


def test_operands_are_tokenized_letter_by_letter(tokenizer: Any) -> None:
    """A word of a phrasing is one token; a capital letter or a digit always is one by itself."""
    assert tokenizer.encode("what is the capital of").tokens == [
        "what",
        "Ġis",
        "Ġthe",
        "Ġcapital",
        "Ġof",
    ]
    assert tokenizer.encode("PARIS").tokens == list("PARIS")
    assert tokenizer.encode(" 127").tokens == ["Ġ", "1", "2", "7"]
    for problem in draw_problems(200, 1, split="test"):
        tokens = tokenizer.encode(normalize(problem.question)).tokens
        assert not [
            token
            for token in tokens
            if len(token) > 1 and not token.strip("Ġ").islower() and token != "'s"
        ]


def test_the_tokenizer_is_not_trained_on_operands() -> None:
    assert all(
        not any(letter.isupper() or letter.isdecimal() for letter in text)
        for text in islice(texts(), 600)
    )

"""The vocabulary of the rehearsal's models, their replies that are remembered, and what members of pools answer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.core.chat import Chunk, Message, Request
from conductor_cli.core.usage import Usage
from conductor_cli.models.base import ScriptedModel
from conductor_cli.rehearsal.players import CHECKER, REFUSAL
from conductor_cli.rehearsal.words import normalize
from training.rehearsal.asking import SIZE, SPECIAL, Bank, Reply, Store, StoredModel, build, fingerprint, texts
from training.rehearsal.exercises import GENERALIST
from training.rehearsal.world import draw_problems


def test_a_reply_is_known_to_the_next_process(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"one")
    written = Reply("PARIS", 0.9, 12, 3, complete=False)
    with Store(tmp_path / "new" / "store.sqlite") as store:
        store.put(file, "a:", written)
        store.put(file, "a:", Reply("ROME"), seed=7)
    with Store(tmp_path / "new" / "store.sqlite") as store:
        assert store.get(file, "a:") == written
        assert store.get(file, "a:", 7) == Reply("ROME")
        assert store.get(file, "b:") is None
        assert store.get(file, "a:", 8) is None


def test_a_file_that_was_trained_again_knows_nothing(tmp_path: Path) -> None:
    file, copy = tmp_path / "model.gguf", tmp_path / "copy.gguf"
    file.write_bytes(b"one")
    copy.write_bytes(b"one")
    with Store() as store:
        store.put(file, "a:", Reply("PARIS"))
        assert store.get(copy, "a:") == Reply("PARIS")
        file.write_bytes(b"two")
        os.utime(file, (1, 1))
        assert store.get(file, "a:") is None


def test_a_stored_model_is_asked_once(tmp_path: Path) -> None:
    """With the tokens of the first time. With a temperature, the seed matters; without one, it does not."""
    file = tmp_path / "model.gguf"
    file.write_bytes(b"one")
    ended = Chunk(usage=Usage(calls=1, tokens_in=20, tokens_out=5), finish="length")
    model = ScriptedModel([["plan", ended], ["another"]])

    async def ask(temperature: float, seed: int) -> list[Chunk]:
        messages = (Message(role="user", content="table"),)
        request = Request(messages=messages, temperature=temperature, seed=seed)
        return [chunk async for chunk in stored.stream(request)]

    with Store() as store:
        stored = StoredModel(model, file, store)
        first, again, warm = (asyncio.run(ask(*how)) for how in ((0.0, 1), (0.0, 2), (0.7, 1)))
    assert first == again
    assert (first[0].text, first[1].finish, first[1].usage and first[1].usage.tokens_in) == ("plan", "length", 20)
    assert warm[0].text == "another"
    assert len(model.requests) == 2


def test_the_next_likeliest_replies_are_not_remembered(tmp_path: Path) -> None:
    """The first one is: a search for a plan without a fault asks the model for each of the others."""
    file = tmp_path / "model.gguf"
    file.write_bytes(b"one")
    model = ScriptedModel([["first"], ["second"], ["second again"]])

    async def ask(rank: int) -> str:
        request = Request(messages=(Message(role="user", content="table"),), rank=rank)
        return "".join([chunk.text async for chunk in stored.stream(request)])

    with Store() as store:
        stored = StoredModel(model, file, store)
        assert [asyncio.run(ask(rank)) for rank in (0, 1, 1, 0)] == ["first", "second", "second again", "first"]
    assert [request.rank for request in model.requests] == [0, 1, 1]


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
    assert tokenizer.encode("what is the capital of").tokens == ["what", "Ġis", "Ġthe", "Ġcapital", "Ġof"]
    assert tokenizer.encode("PARIS").tokens == list("PARIS")
    assert tokenizer.encode(" 127").tokens == ["Ġ", "1", "2", "7"]
    for problem in draw_problems(200, 1, split="test"):
        tokens = tokenizer.encode(normalize(problem.question)).tokens
        assert not [token for token in tokens if len(token) > 1 and not token.strip("Ġ").islower() and token != "'s"]


def test_the_tokenizer_is_not_trained_on_operands() -> None:
    assert all(not any(letter.isupper() or letter.isdecimal() for letter in text) for text in islice(texts(), 600))

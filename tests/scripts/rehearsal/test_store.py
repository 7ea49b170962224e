"""Replies that are remembered, and the model that is asked only for others."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from conductor_cli.core.chat import Chunk, Message, Request
from conductor_cli.core.usage import Usage
from conductor_cli.models.base import ScriptedModel
from scripts.rehearsal.planning import StoredModel
from scripts.rehearsal.store import Store, Written


def test_a_reply_is_known_to_the_next_process(tmp_path: Path) -> None:
    """By the file, the prompt and the seed."""
    file = tmp_path / "model.gguf"
    file.write_bytes(b"one")
    written = Written("PARIS", 0.9, 12, 3, complete=False)
    with Store(tmp_path / "new" / "store.sqlite") as store:
        store.put(file, "a:", written)
        store.put(file, "a:", Written("ROME"), seed=7)
    with Store(tmp_path / "new" / "store.sqlite") as store:
        assert store.get(file, "a:") == written
        assert store.get(file, "a:", 7) == Written("ROME")
        assert store.get(file, "b:") is None
        assert store.get(file, "a:", 8) is None


def test_a_file_that_was_trained_again_knows_nothing(tmp_path: Path) -> None:
    """An entry belongs to the bytes of a file, not to its name."""
    file, copy = tmp_path / "model.gguf", tmp_path / "copy.gguf"
    file.write_bytes(b"one")
    copy.write_bytes(b"one")
    with Store() as store:
        store.put(file, "a:", Written("PARIS"))
        assert store.get(copy, "a:") == Written("PARIS")
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

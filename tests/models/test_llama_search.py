"""The next likeliest replies of a local model, for a caller who can tell that the likeliest one is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conductor_cli.models.llama.bindings import CancelToken
from conductor_cli.models.llama.engine import Engine
from tests.models.test_llama import ask
from tests.models.test_llama_confidence import opened
from tests.tiny_gguf import END, Extra, make

FOUR = 'root ::= ("a" | "b") ("c" | "d")'


@pytest.fixture(scope="module")
def short(models: Path) -> Path:
    """It often ends its reply."""
    return make(models / "searched.gguf", extra=Extra(bias={" the": 4.0, END: 4.0}))


def reply(engine: Engine, rank: int, **more: Any) -> str:
    request = ask("Who?", **{"max_tokens": 6, "temperature": 0.0, "rank": rank, **more})
    return "".join(chunk.text for chunk in engine.generate(request, CancelToken()))


def test_each_rank_is_another_reply(short: Path) -> None:
    """No reply comes twice."""
    with opened(short, None) as engine:
        replies = [reply(engine, rank) for rank in range(8)]
    assert len(set(replies)) == 8


def test_replies_come_in_the_order_of_their_probability(short: Path) -> None:
    """For one token, the ranks are the order of the logits."""
    with opened(short, None) as engine:
        found = [reply(engine, rank, max_tokens=1) for rank in range(4)]
        list(engine.generate(ask("Who?", max_tokens=1, temperature=0.0), CancelToken()))
        order = np.argsort(-np.array(engine.vocabulary.logits(engine.context)), kind="stable")[:4].tolist()
        texts = [
            "" if engine.vocabulary.is_end(token) else engine.vocabulary.token_bytes(token).decode() for token in order
        ]
    assert found == texts


def test_a_rank_is_the_same_reply_whatever_was_asked_before(short: Path) -> None:
    """Its search is made again if the engine has answered something else since, or was asked for a lower rank."""
    with opened(short, None) as engine:
        inorder = [reply(engine, rank) for rank in range(5)]
        assert [reply(engine, rank, prefill=" the") for rank in (1, 2)] != inorder[1:3]
        assert [reply(engine, rank) for rank in (4, 2, 3, 0)] == [inorder[rank] for rank in (4, 2, 3, 0)]


def test_a_search_keeps_to_the_grammar_and_begins_again_when_nothing_is_left(tiny: Path) -> None:
    """All four texts are found, once each; there is no fifth."""
    with opened(tiny, None) as engine:
        found = [reply(engine, rank, grammar=FOUR) for rank in range(5)]
    assert set(found[:4]) == {"ac", "ad", "bc", "bd"}
    assert found[4] == found[0]

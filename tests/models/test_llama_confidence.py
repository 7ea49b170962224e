"""How sure a local model is of a reply, a refusal where it is not, and the next likeliest replies of a search."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from conductor_cli.core.chat import Chunk
from conductor_cli.models.llama.bindings import CancelToken
from conductor_cli.models.llama.engine import LlamaEngine
from tests.models.kit import text, used
from tests.models.test_llama import ask, opened
from tests.tiny_gguf import END, Extra, make


@pytest.fixture(scope="module")
def short(models: Path) -> Path:
    """It mostly writes " the" until its tokens are used up."""
    return make(models / "short.gguf", extra=Extra(bias={" the": 6.0, END: 1.0}))


def reply(path: Path, refuse_below: float | None, **more: Any) -> list[Chunk]:
    request = ask("Who?", **{"max_tokens": 3, "temperature": 0.0, **more})
    with opened(path, context=256, refuse_below=refuse_below) as engine:
        return list(engine.generate(request, CancelToken()))


def test_the_confidence_is_the_product_of_the_shares_of_the_tokens(short: Path) -> None:
    one = reply(short, 0.0, max_tokens=1)[-1].confidence
    with opened(short, context=256, refuse_below=0.0) as engine:
        list(engine.generate(ask("Who?", max_tokens=1, temperature=0.0), CancelToken()))
        logits = np.array(engine.vocabulary.logits(engine.context), dtype=np.float64)
    share = math.exp(logits.max()) / np.exp(logits).sum()
    assert one == pytest.approx(share, rel=1e-4)
    three = reply(short, 0.0)[-1].confidence
    assert one is not None
    assert three is not None
    assert 0 < three < one


def test_a_reply_below_the_threshold_becomes_a_refusal(short: Path) -> None:
    plain, sure = reply(short, None), reply(short, 0.0)
    assert plain[-1].confidence is None
    confidence = sure[-1].confidence
    assert confidence is not None
    assert text(sure) == text(plain) != "?"
    unsure = reply(short, confidence * 1.01)
    assert text(unsure) == "?"
    assert unsure[-1].finish == "stop"
    assert unsure[-1].confidence == pytest.approx(confidence)
    assert used(unsure).tokens_out == used(plain).tokens_out
    assert text(reply(short, confidence * 0.99)) == text(plain)


FOUR = 'root ::= ("a" | "b") ("c" | "d")'


@pytest.fixture(scope="module")
def ending(models: Path) -> Path:
    """It often ends its reply."""
    return make(models / "searched.gguf", extra=Extra(bias={" the": 4.0, END: 4.0}))


def ranked(engine: LlamaEngine, rank: int, **more: Any) -> str:
    request = ask("Who?", **{"max_tokens": 6, "temperature": 0.0, "rank": rank, **more})
    return text(engine.generate(request, CancelToken()))


def test_replies_come_in_the_order_of_their_probability(ending: Path) -> None:
    with opened(ending, context=256) as engine:
        found = [ranked(engine, rank, max_tokens=1) for rank in range(4)]
        list(engine.generate(ask("Who?", max_tokens=1, temperature=0.0), CancelToken()))
        order = np.argsort(-np.array(engine.vocabulary.logits(engine.context)), kind="stable")[:4].tolist()
        texts = [
            "" if engine.vocabulary.is_end(token) else engine.vocabulary.token_bytes(token).decode() for token in order
        ]
    assert found == texts


def test_each_rank_is_another_reply_and_the_same_whatever_was_asked_before(ending: Path) -> None:
    with opened(ending, context=256) as engine:
        inorder = [ranked(engine, rank) for rank in range(5)]
        assert len(set(inorder)) == 5
        assert [ranked(engine, rank, prefill=" the") for rank in (1, 2)] != inorder[1:3]
        assert [ranked(engine, rank) for rank in (4, 2, 3, 0)] == [inorder[rank] for rank in (4, 2, 3, 0)]


def test_a_search_keeps_to_the_grammar_and_begins_again_when_nothing_is_left(tiny: Path) -> None:
    with opened(tiny, context=256) as engine:
        found = [ranked(engine, rank, grammar=FOUR) for rank in range(6)]
    assert set(found[:4]) == {"ac", "ad", "bc", "bd"}
    assert found[4] == found[0] != found[5]


def test_several_searches_at_the_same_time_write_no_reply_twice(ending: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run's question comes between two ranks of the first, or asks the same."""
    with opened(ending, context=256) as engine:
        inorder = [ranked(engine, rank) for rank in range(1, 6)]
        written = mock.Mock(side_effect=engine._write)
        monkeypatch.setattr(engine, "_write", written)
        for rank in range(1, 6):
            list(engine.generate(ask("Why?", max_tokens=6, temperature=0.0, rank=rank), CancelToken()))
            assert ranked(engine, rank) == inorder[rank - 1]
    assert written.call_count == 1 + 5 + 5  # the likeliest reply to the other question first


def test_a_reply_that_is_broken_off_loses_a_search_nothing(ending: Path) -> None:
    with opened(ending, context=256) as engine, opened(ending, context=256) as other:
        inorder = [ranked(engine, rank) for rank in range(1, 6)]
        broken = other.generate(ask("Who?", max_tokens=6, temperature=0.0, rank=1), CancelToken())
        next(broken)
        del broken
        assert [ranked(other, rank) for rank in (2, 3, 4, 5, 1)] == [*inorder[1:], inorder[0]]

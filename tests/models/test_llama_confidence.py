"""How sure a local model is of a reply: its probability, and a refusal where that is too low."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conductor_cli.core.chat import Chunk
from conductor_cli.core.pool import Worker
from conductor_cli.models.llama import LlamaOptions
from conductor_cli.models.llama.bindings import CancelToken
from conductor_cli.models.llama.engine import Engine
from conductor_cli.models.worker_options import OptionError, check_options
from tests.models.test_llama import ask
from tests.tiny_gguf import END, Extra, make


@contextmanager
def opened(path: Path, refuse_below: float | None) -> Iterator[Engine]:
    engine = Engine(path, LlamaOptions(context=256, threads=1, refuse_below=refuse_below), CancelToken())
    try:
        yield engine
    finally:
        engine.close()


@pytest.fixture(scope="module")
def short(models: Path) -> Path:
    """It mostly writes " the" until its tokens are used up."""
    return make(models / "short.gguf", extra=Extra(bias={" the": 6.0, END: 1.0}))


def reply(path: Path, refuse_below: float | None, **more: Any) -> list[Chunk]:
    request = ask("Who?", **{"max_tokens": 3, "temperature": 0.0, **more})
    with opened(path, refuse_below) as engine:
        return list(engine.generate(request, CancelToken()))


def written(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks)


def test_without_the_option_nothing_is_computed(short: Path) -> None:
    """An ordinary reply has no confidence."""
    assert reply(short, None)[-1].confidence is None


def test_the_confidence_is_the_product_of_the_shares_of_the_tokens(short: Path) -> None:
    """One token's is its softmax share; a longer reply's is at most that of its beginning."""
    one = reply(short, 0.0, max_tokens=1)[-1].confidence
    with opened(short, 0.0) as engine:
        list(engine.generate(ask("Who?", max_tokens=1, temperature=0.0), CancelToken()))
        logits = np.array(engine.vocabulary.logits(engine.context), dtype=np.float64)
    share = math.exp(logits.max()) / np.exp(logits).sum()
    assert one == pytest.approx(share, rel=1e-4)
    three = reply(short, 0.0)[-1].confidence
    assert one is not None
    assert three is not None
    assert 0 < three < one


def test_a_reply_below_the_threshold_becomes_a_refusal(short: Path) -> None:
    """Above it, the reply stays as it was; the tokens that were written are counted either way."""
    plain, sure = reply(short, None), reply(short, 0.0)
    confidence = sure[-1].confidence
    assert confidence is not None
    assert written(sure) == written(plain) != "?"
    unsure = reply(short, confidence * 1.01)
    assert written(unsure) == "?"
    assert unsure[-1].finish == "stop"
    assert unsure[-1].confidence == pytest.approx(confidence)
    assert unsure[-1].usage is not None
    assert plain[-1].usage is not None
    assert unsure[-1].usage.tokens_out == plain[-1].usage.tokens_out
    assert written(reply(short, confidence * 0.99)) == written(plain)


def test_the_option_is_a_number() -> None:
    """Like the other options of a worker, it is checked before anything is loaded."""
    check_options(Worker(name="a", kind="llama", model="a.gguf", options={"refuse_below": 0.5}))
    with pytest.raises(OptionError, match="refuse_below"):
        check_options(Worker(name="a", kind="llama", model="a.gguf", options={"refuse_below": "often"}))

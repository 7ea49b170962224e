"""The vocabulary of the rehearsal's models."""

from __future__ import annotations

import builtins
from itertools import islice
from typing import Any

import pytest

from conductor_cli.core.errors import ConfigError
from conductor_cli.rehearsal.words import normalize
from scripts.rehearsal.tokenizer import SIZE, SPECIAL, build, fingerprint, texts
from scripts.rehearsal.world import draw_problems

FINGERPRINT = "b02d7d8813790749f0519c5ae8df063cf173ebbadaf437d153a06a9ee0942988"


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    return build()


def test_the_tokenizer_ships_as_it_was_trained(tokenizer: Any) -> None:
    """The models need exactly this one; new phrasings use its tokens."""
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


def test_any_text_can_be_decoded_again(tokenizer: Any) -> None:
    """Bytes that no phrasing has are tokens too."""
    for text in ("spell PARIS backwards", "q: …\ns: 東京\n", "  two  spaces", ""):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_the_tokenizer_is_not_trained_on_operands() -> None:
    """What it is trained on has neither capitals nor digits."""
    assert all(not any(letter.isupper() or letter.isdecimal() for letter in text) for text in islice(texts(), 600))


def test_a_missing_library_is_reported_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, training says which command brings it."""
    real = builtins.__import__

    def without(name: str, *given: Any, **named: Any) -> Any:
        if name.partition(".")[0] == "tokenizers":
            raise ImportError("No module named 'tokenizers'")
        return real(name, *given, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    build.cache_clear()
    with pytest.raises(ConfigError, match="training needs tokenizers") as error:
        build()
    assert error.value.hint == "pip install 'conductor-llm[train]'"

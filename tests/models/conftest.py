"""Real models with random weights for the tests of the local adapter, each made once."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.servers import litellm_ready
from tests.tiny_gguf import END, INSTRUCT, Extra, make

NEVER_ENDS = Extra(bias={END: -50.0, "<|endoftext|>": -50.0})
"""So that a reply is as long as its limit."""


@pytest.fixture(scope="session")
def litellm() -> None:
    """litellm, imported before anything is measured."""
    litellm_ready()


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of all models of a session."""
    for name in ("llama_cpp", "gguf", "numpy"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def tiny(models: Path) -> Path:
    """A quarter of a megabyte; it writes on until its limit."""
    return make(models / "tiny.gguf", extra=NEVER_ENDS)


@pytest.fixture(scope="session")
def sentence(models: Path) -> Path:
    """With a vocabulary of SentencePiece, and a token that begins each text.

    Its template has no system turn.
    """
    return make(
        models / "sentence.gguf", extra=Extra(sentence=True, template=INSTRUCT, add_bos=True)
    )

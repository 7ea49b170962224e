"""Every grammar that we generate is one that the real llama.cpp accepts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conductor_cli.core.plan_formats import PLAN_FORMATS
from conductor_cli.models.llama.bindings import CancelToken
from conductor_cli.models.llama.loading import LlamaOptions, LoadedModel
from tests.core.strategies import terms_for_tests


@pytest.fixture(scope="module")
def loaded(tiny: Path) -> Iterator[LoadedModel]:
    found = LoadedModel(tiny, LlamaOptions(context=256), CancelToken())
    yield found
    found.close()


def compiled(loaded: LoadedModel, grammar: str) -> Any:
    vocabulary = loaded.lib.llama_model_get_vocab(loaded.model)
    return loaded.lib.llama_sampler_init_grammar(vocabulary, grammar.encode(), b"root")


@pytest.mark.parametrize("name", tuple(PLAN_FORMATS))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_llama_accepts_every_grammar_that_we_generate(
    loaded: LoadedModel, name: str, data: st.DataObject, capfd: pytest.CaptureFixture[str]
) -> None:
    single = name == "native" and data.draw(st.booleans())
    style = "numbers" if name == "published" else "letters"
    fixed = {"single": True, "reasoning": False} if single else {}
    context = data.draw(terms_for_tests(style, constrained=True, **fixed))
    context = replace(context, first=data.draw(st.integers(1, context.rules.steps)))
    grammar = PLAN_FORMATS[name].grammar(context)
    sampler = compiled(loaded, grammar)
    assert sampler
    loaded.lib.llama_sampler_free(sampler)
    assert capfd.readouterr().err == ""

"""Grammars of plan formats.

What they admit is a valid plan, and the real llama.cpp reads them as they are meant.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.plan import KeepAnswer, Plan, PlanRules, check_step
from conductor_cli.core.plan_formats import PLAN_FORMATS, PlanFormatContext
from conductor_cli.core.profile import labels_of
from tests.core.plan_formats.gbnf import Grammar
from tests.core.plan_formats.reading import plan_in
from tests.core.strategies import terms_for_tests

NAMES = tuple(PLAN_FORMATS)
chances = st.integers(0, 2**32).map(random.Random)


def style(name: str) -> str:
    return "numbers" if name == "published" else "letters"


# A second reading of each spelling, by other means than the parsers: only for texts that a grammar
# holds.


def held(name: str, text: str, context: PlanFormatContext) -> None:
    """A text that the grammar admits is a valid plan, within all bounds.

    So its tokens can hold it.
    """
    plan = plan_in(name, text, context)
    assert len(plan.reasoning) <= 8 * 303
    if isinstance(plan, KeepAnswer):
        assert context.may_accept
        assert text.rstrip().endswith(("accept", '"accept":true}', "access_list = []"))
        return
    for number, step in enumerate(plan.steps, start=context.first):
        check_step(step, number, context.rules)
        planned = step.subtask.partition(". Then answer from these results.")[0]
        assert len(planned) <= context.subtask_chars
        is_closing = step.subtask == context.closing_subtask(number)
        assert planned in text or name == "json" or context.single or is_closing
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", step.subtask)
    assert 1 <= len(plan.steps) <= context.rules.steps - context.first + 1


def test_a_grammar_admits_a_skill_before_a_label() -> None:
    context = PlanFormatContext(
        rules=PlanRules(workers=("a", "b"), steps=1),
        labels=labels_of("abc", "letters"),
        constrained=True,
        skills=("math", "creative writing"),
    )
    grammar = Grammar(PLAN_FORMATS["native"].grammar(context))
    skills = set()
    for seed in range(60):
        text = grammar.draw(random.Random(seed))
        plan = plan_in("native", text, context)
        assert isinstance(plan, Plan)
        cell = text.split(" | ")[0]
        assert context.labels[cell.rpartition(" ")[2]] == plan.steps[0].worker
        skills.add(cell)
    assert skills == {
        "A",
        "B",
        "math A",
        "math B",
        "creative writing A",
        "creative writing B",
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_grammar_admits_whatever_the_rules_do(name: str) -> None:
    context = PlanFormatContext(
        rules=PlanRules(workers=("a", "b"), steps=3),
        labels=labels_of("abc", style(name)),  # type: ignore[arg-type]
        constrained=True,
    )
    grammar = Grammar(PLAN_FORMATS[name].grammar(context))
    chance = random.Random(1)
    plans = [plan_in(name, grammar.draw(chance), context) for _ in range(400)]
    steps = [plan.steps for plan in plans if isinstance(plan, Plan)]
    assert {len(some) for some in steps} == {1, 2, 3}
    assert {step.worker for step in chain.from_iterable(steps)} == {"a", "b"}
    assert {some[2].access for some in steps if len(some) == 3} == {(), (1,), (2,), (1, 2)}
    assert {some[0].access for some in steps} == {()}


llama_cpp: Any = pytest.importorskip("llama_cpp", reason="llama_cpp is not installed")


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real vocabulary of bytes, from a model file without weights."""
    pytest.importorskip("gguf", reason="gguf is not installed")
    from tests.tiny_gguf import Extra, make

    path = make(tmp_path_factory.mktemp("gguf") / "vocabulary.gguf", extra=Extra(tensors=False))
    llama_cpp.llama_backend_init()
    parameters = llama_cpp.llama_model_default_params()
    parameters.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(str(Path(path)).encode(), parameters)
    assert model
    yield llama_cpp.llama_model_get_vocab(model)
    llama_cpp.llama_model_free(model)


class Sampler:
    """llama.cpp's own reading of a grammar, asked about a text token by token."""

    def __init__(self, vocabulary: Any, grammar: str) -> None:
        self.vocabulary = vocabulary
        self.sampler = llama_cpp.llama_sampler_init_grammar(vocabulary, grammar.encode(), b"root")

    def admits(self, text: str) -> bool:
        """Whether each token of the text may be sampled in turn, and then its end."""
        end = llama_cpp.llama_vocab_eos(self.vocabulary)
        for token in [*self.tokens(text), end]:
            if not self.allowed(token):
                return False
            if token != end:
                llama_cpp.llama_sampler_accept(self.sampler, token)
        return True

    def tokens(self, text: str) -> list[int]:
        content = text.encode()
        room = (llama_cpp.llama_token * (len(content) + 8))()
        count = llama_cpp.llama_tokenize(
            self.vocabulary, content, len(content), room, len(room), False, False
        )
        assert count > 0
        return list(room[:count])

    def allowed(self, token: int) -> bool:
        candidates = (llama_cpp.llama_token_data * 1)(llama_cpp.llama_token_data(token, 1.0, 0.0))
        array = llama_cpp.llama_token_data_array(candidates, 1, -1, False)
        llama_cpp.llama_sampler_apply(self.sampler, array)
        return bool(array.data[0].logit > float("-inf"))


WORDS = {
    "native": (
        "A | - | Add.\nB | 1 | Check, then say “42”.",
        "A | 1 | Add.",
        "A | - | a\nB | 2 | b",
        "C | - | Add.",
    ),
    "json": (
        (
            '{"steps":[{"worker":"A","access":[],"subtask":"Add '
            '\\"it\\"."},{"worker":"B","access":[1],"subtask":"é"}]}'
        ),
        '{"steps":[{"worker":"A","access":[1],"subtask":"Add."}]}',
        '{"steps":[]}',
        '{"accept":true}',
    ),
    "published": (
        'model_id = [0, 1]\nsubtasks = ["Add it", "é"]\naccess_list = [[], ["all"]]',
        'model_id = [0, 1]\nsubtasks = ["Add it"]\naccess_list = [[], ["all"]]',
        "model_id = [2]",
        "model_id = []",
    ),
}


@pytest.mark.parametrize("name", NAMES)
def test_llama_cpp_reads_the_grammars_as_they_are_meant(name: str, vocabulary: Any) -> None:
    context = PlanFormatContext(
        rules=PlanRules(workers=("a", "b")),
        labels=labels_of("abc", style(name)),  # type: ignore[arg-type]
        constrained=True,
    )
    grammar = PLAN_FORMATS[name].grammar(context)
    valid, *others = WORDS[name]
    assert Sampler(vocabulary, grammar).admits(valid)
    for other in others:
        assert not Sampler(vocabulary, grammar).admits(other)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data(), chance=chances)
def test_every_text_that_a_grammar_admits_is_a_valid_plan_and_what_llama_cpp_admits(
    name: str, vocabulary: Any, data: st.DataObject, chance: random.Random
) -> None:
    single = name == "native" and data.draw(st.booleans())
    context = data.draw(terms_for_tests(style(name), constrained=True, single=single))
    first = 1 if single else data.draw(st.integers(1, context.rules.steps))
    context = replace(context, first=first, reasoning=context.reasoning and not single)
    grammar = PLAN_FORMATS[name].grammar(context)
    assert llama_cpp.LlamaGrammar.from_string(grammar, verbose=False)._grammar == grammar
    for number in range(5):
        text = Grammar(grammar).draw(chance)
        held(name, text, context)
        if number < 2:
            sampler = Sampler(vocabulary, grammar)
            assert sampler.sampler, "llama.cpp does not compile the grammar"
            assert sampler.admits(text)

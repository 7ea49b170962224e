"""A context takes memory for what is needed: it grows with a prompt, and keeps what it has read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.core.chat import Message, Request
from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama import loading
from conductor_cli.models.llama.bindings import CancelToken, load_bindings
from conductor_cli.models.llama.engine import MIN_GRAMMAR_REPLY
from conductor_cli.models.llama.loading import BATCH_SIZE, CPU_COMPUTED_AT_ONCE, LlamaOptions
from conductor_cli.run.executor import FATAL_REASONS
from tests.models.kit import text, used
from tests.models.test_llama import ask, clear, opened, play, reply_texts
from tests.tiny_gguf import Extra, lora, make

STEP = 512
WIDE = LlamaOptions(context=2048, threads=1)
LONG_TEXT = "Check the sum of the numbers and write the answer. " * 50


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "CONTEXT_STEP", STEP)


@pytest.fixture
def wide(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """What a model says whose context was large from the start."""

    def say(*requests: Request, options: LlamaOptions = WIDE) -> list[str]:
        with monkeypatch.context() as patch:
            patch.setattr(loading, "CONTEXT_STEP", 4096)
            return reply_texts(tiny, *requests, options=options)

    return say


def continued(request: Request, answer: str, text: str) -> Request:
    """The next turn of a conversation."""
    turns = (Message(role="assistant", content=answer), Message(role="user", content=text))
    return replace(request, messages=(*request.messages, *turns))


def rooms(path: Path, *requests: Request) -> list[int]:
    """How many tokens the context holds: at first, and after each request."""
    with opened(path, context=2048) as engine:
        capacities = [engine.kv_cache.capacity]
        for request in requests:
            list(engine.generate(request, CancelToken()))
            capacities.append(engine.kv_cache.capacity)
    return capacities


def test_a_context_is_as_large_as_its_prompts_need(tiny: Path) -> None:
    short = ask()
    long = ask(LONG_TEXT)
    endless = ask(max_tokens=None, grammar='root ::= "a"')
    first, after_short, after_long, again, last = rooms(tiny, short, long, short, endless)
    assert (first, after_short) == (STEP, STEP)
    assert STEP < after_long < 2048
    assert after_long % STEP == 0
    assert (again, last) == (after_long, 2048)


def test_an_adapter_lies_over_the_larger_context_too(
    tiny: Path, wide: Callable[..., list[str]], tmp_path: Path
) -> None:
    adapted = replace(WIDE, adapter=lora(tmp_path / "lora.gguf"))
    request = clear(LONG_TEXT)
    assert (
        reply_texts(tiny, request, options=adapted)
        == wide(request, options=adapted)
        != wide(request)
    )


def test_what_was_read_is_copied_into_the_larger_context(
    tiny: Path, wide: Callable[..., list[str]]
) -> None:
    first_request = clear("Check the sum. " * 60)
    first = reply_texts(tiny, first_request, options=WIDE)[0]
    second = continued(first_request, first, "Write it down. " * 40)
    before, after = play(tiny, first_request, second, options=WIDE)
    assert used(before).tokens_in < STEP < used(after).tokens_in
    assert used(after).tokens_cached >= used(before).tokens_in
    assert text(after) == wide(second)[0]


def test_a_larger_context_that_cannot_be_had_is_told_and_the_smaller_one_stays(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tiny, context=2048) as engine:
        before = text(engine.generate(ask(), CancelToken()))
        context = engine.context
        with monkeypatch.context() as patch:
            patch.setattr(engine._lib, "llama_init_from_model", lambda *_: None)
            with pytest.raises(ModelError, match="cannot be used") as error:
                list(engine.generate(ask(LONG_TEXT), CancelToken()))
        assert "too little memory" in error.value.hint
        assert error.value.reason == "length"
        assert error.value.reason not in FATAL_REASONS
        assert engine.context is context
        again = list(engine.generate(ask(), CancelToken()))
        assert text(again) == before
        assert used(again).tokens_cached == used(again).tokens_in - 1
        assert len(text(engine.generate(ask(LONG_TEXT), CancelToken()))) > 0


def test_a_prompt_that_fits_is_answered_where_there_is_no_memory_for_a_long_reply(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tiny, context=2048) as engine:
        monkeypatch.setattr(engine._lib, "llama_init_from_model", lambda *_: None)
        usage = used(list(engine.generate(ask(max_tokens=None), CancelToken())))
        assert usage.tokens_in + usage.tokens_out <= STEP == engine.kv_cache.capacity
        planning = ask("Check the sum. " * 60, max_tokens=None, grammar='root ::= "a"')
        assert STEP - MIN_GRAMMAR_REPLY < len(engine.tokenize(planning).tokens) < STEP
        with pytest.raises(ModelError, match="cannot be used"):
            list(engine.generate(planning, CancelToken()))


def test_as_large_a_context_is_taken_as_a_useful_reply_needs(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tiny, context=2048) as engine:
        begun = engine._lib.llama_init_from_model
        few = lambda model, params: begun(model, params) if params.n_ctx <= 3 * STEP else None  # noqa: E731
        monkeypatch.setattr(engine._lib, "llama_init_from_model", few)
        tokens = len(engine.tokenize(ask(LONG_TEXT)).tokens)
        assert STEP < tokens < 3 * STEP
        assert text(engine.generate(ask(LONG_TEXT, max_tokens=None), CancelToken()))
        assert STEP < engine.kv_cache.capacity <= 3 * STEP


@pytest.mark.parametrize("has_gpu", [False, True], ids=["cpu", "gpu"])
def test_each_context_on_a_cpu_is_without_flash_attention(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, *, has_gpu: bool
) -> None:
    """States go from a context into the next larger one, so all of a model are alike."""
    lib = load_bindings()
    monkeypatch.setattr(lib, "llama_supports_gpu_offload", lambda: has_gpu)
    begun = lib.llama_init_from_model
    kinds = []

    def seen(model: Any, params: Any) -> Any:
        kinds.append((params.flash_attn_type, params.n_ubatch))
        return begun(model, params)

    monkeypatch.setattr(lib, "llama_init_from_model", seen)
    with opened(tiny, context=2048) as engine:
        assert text(engine.generate(ask(LONG_TEXT, max_tokens=8), CancelToken()))
        is_told_apart = "without flash attention" in engine._loaded.identity
    usual = (lib.LLAMA_FLASH_ATTN_TYPE_AUTO, BATCH_SIZE)
    on_cpu = (lib.LLAMA_FLASH_ATTN_TYPE_DISABLED, CPU_COMPUTED_AT_ONCE)
    assert set(kinds) == {usual if has_gpu else on_cpu}
    assert len(kinds) == (1 if has_gpu else 2)
    assert is_told_apart == (not has_gpu)


def test_a_state_that_cannot_be_copied_is_read_again(
    tiny: Path, wide: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    first_request = ask("Check the sum. " * 60)
    # Then two are as likely
    second = replace(continued(first_request, "Yes.", "Write it down. " * 40), max_tokens=8)
    expected = wide(second)[0]

    with opened(tiny, context=2048) as engine:
        list(engine.generate(first_request, CancelToken()))
        monkeypatch.setattr(engine._lib, "llama_state_seq_get_size", lambda *_: 0)
        chunks = list(engine.generate(second, CancelToken()))
        assert used(chunks).tokens_cached == 0
        assert text(chunks) == expected


def test_a_cancel_token_works_in_the_larger_context(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tiny, context=2048) as engine:
        cancel = CancelToken()
        engine.kv_cache.set_cancel_token(cancel)
        tokens = engine.tokenize(ask()).tokens
        engine.grow_context(STEP + 1)
        cancel.set()
        monkeypatch.setattr(engine.kv_cache, "check_cancelled", lambda: None)
        with pytest.raises(loading.Cancelled):
            engine.kv_cache.decode(tokens)


def test_a_stretched_model_gets_its_whole_context_at_once(models: Path) -> None:
    key = "qwen2.rope.scaling.original_context_length"
    path = make(models / "stretched.gguf", extra=Extra(metadata={key: 1024}))
    assert rooms(path, ask()) == [2048, 2048]

"""Remembered prefixes.

What a model has read before a question is read once, and no bad file reaches llama.cpp.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conductor_cli.core.chat import Message, Request
from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama.bindings import CancelToken, load_bindings
from conductor_cli.models.llama.engine import LlamaEngine
from conductor_cli.models.llama.kv_cache import (
    ABANDONED_SECONDS,
    MAX_BYTES,
    MAX_FILES,
    MIN_TOKENS,
    PrefixCache,
    trim,
)
from conductor_cli.models.llama.loading import Cancelled
from conductor_cli.models.llama.vocabulary import Vocabulary
from tests.models.conftest import NEVER_ENDS
from tests.models.kit import text, used
from tests.models.test_llama import opened as opened_engine
from tests.tiny_gguf import INSTRUCT, Extra, lora, make

FIXED = "Check the sum of the numbers. " * 20
CARDS = "The workers:\n" + "A  ann\nB  bob\n" * 8
OTHERS = "The workers:\n" + "A  cyd\nB  dan\n" * 8


def pool_request(question: str = "6*7?", cards: str = CARDS, **fields: Any) -> Request:
    """A question after a fixed text and the worker cards of a pool, with a cut after each."""
    content = FIXED + cards
    messages = (Message(role="system", content=content), Message(role="user", content=question))
    return replace(
        Request(messages=messages, max_tokens=24, cuts=(len(FIXED), len(content))), **fields
    )


def once(question: str = "6*7?", **fields: Any) -> Request:
    """The same with the later cut only."""
    return pool_request(question, cuts=(len(FIXED + CARDS),), **fields)


def opened(
    path: Path, cache: Path | None = None, **options: Any
) -> AbstractContextManager[LlamaEngine]:
    return opened_engine(path, **{"context": 2048, "cache": cache, **options})


@dataclass(frozen=True, eq=False, kw_only=True)
class Answer:
    """A reply, and the logits after its prompt.

    Answers are equal if their logits are, within a bound.

    Rounding depends on how a prompt is divided into batches and on the processor: it changes these
    logits by about 0.01, and the text where two tokens are about equally likely. Other worker cards
    change the logits by 1.5.
    """

    text: str
    logits: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Answer) and float(abs(self.logits - other.logits).max()) < 0.05

    __hash__ = None  # type: ignore[assignment]


def answered(engine: LlamaEngine, request: Request) -> tuple[Answer, int]:
    """The reply, and how many tokens were not read for it."""
    copies: list[Any] = []
    read = Vocabulary.logits

    def copying(vocabulary: Vocabulary, context: Any) -> Any:
        logits = read(vocabulary, context)
        copies.append(logits.copy())
        return logits

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Vocabulary, "logits", copying)
        chunks = list(engine.generate(request, CancelToken()))
    return Answer(text=text(chunks), logits=copies[0]), used(chunks).tokens_cached


def cuts(engine: LlamaEngine, request: Request) -> tuple[int, ...]:
    return engine.tokenize(request).cuts


def states(cache: Path) -> list[Path]:
    return sorted((cache / "prefixes").glob("*.kv"))


def left(cache: Path) -> list[str]:
    """Whatever lies in the cache and is no state."""
    return [path.name for path in cache.rglob("*") if path.is_file() and path.suffix != ".kv"]


@pytest.fixture
def restored(models: Path, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Each state that llama.cpp is given."""
    lib = load_bindings()
    states = list[bytes]()
    restore = lib.llama_state_seq_set_data

    def handed(context: Any, state: Any, size: int, sequence: int) -> Any:
        states.append(bytes(state))
        return restore(context, state, size, sequence)

    monkeypatch.setattr(lib, "llama_state_seq_set_data", handed)
    return states


@pytest.fixture(scope="module")
def folding(models: Path) -> Path:
    """SentencePiece, a token that begins each text, and no system turn."""
    extra = Extra(sentence=True, template=INSTRUCT, add_bos=True, bias={"</s>": -50.0})
    return make(models / "folding.gguf", extra=extra)


@pytest.fixture(scope="module")
def begins(models: Path) -> Path:
    """Byte-level BPE with a token that begins each text."""
    return make(models / "begins.gguf", extra=replace(NEVER_ENDS, add_bos=True))


@pytest.fixture(scope="module")
def bare(models: Path) -> Path:
    """Its prompts are what the messages say and nothing more."""
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    return make(models / "bare-prefix.gguf", extra=replace(NEVER_ENDS, template=template))


@pytest.mark.parametrize("name", ["tiny", "folding", "begins"])
def test_the_next_load_reads_only_the_question(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    path = request.getfixturevalue(name)
    question = pool_request()
    with opened(path) as engine:
        plain = answered(engine, question)[0]
        ends = cuts(engine, question)
    assert plain.text
    for cached in (0, ends[1]):
        with opened(path, tmp_path) as engine:
            assert answered(engine, question) == (plain, cached)
    assert len(states(tmp_path)) == len(ends) == 2
    assert left(tmp_path) == []


def test_a_cut_is_where_the_text_is_cut(tiny: Path, begins: Path, folding: Path) -> None:
    for path in (tiny, begins, folding):
        with opened(path) as engine:
            prompt, other = (
                engine.tokenize(pool_request(cards=cards)) for cards in (CARDS, OTHERS)
            )
            first, second = prompt.cuts
            spelled = [
                b"".join(map(engine.vocabulary.token_bytes, prompt.tokens[:cut]))
                for cut in prompt.cuts
            ]
            assert spelled[0].decode().endswith("numbers. ")
            assert spelled[1].decode().endswith("B  bob\n")
            assert prompt.tokens[:first] == other.tokens[: other.cuts[0]]
            assert prompt.tokens[:second] != other.tokens[: other.cuts[1]]


def test_another_pool_reuses_the_shared_part(tiny: Path, tmp_path: Path) -> None:
    with opened(tiny) as engine:
        plain = answered(engine, pool_request(cards=OTHERS))[0]
        (first, second) = cuts(engine, pool_request(cards=OTHERS))
    with opened(tiny, tmp_path) as engine:
        answered(engine, pool_request())
    for cached in (first, second):
        with opened(tiny, tmp_path) as engine:
            assert answered(engine, pool_request(cards=OTHERS)) == (plain, cached)
    assert len(states(tmp_path)) == 3


def test_what_is_still_in_the_context_is_preferred(
    tiny: Path, tmp_path: Path, restored: list[bytes]
) -> None:
    talk = "First question? " * 20
    with opened(tiny, tmp_path) as engine:
        end = cuts(engine, pool_request())[1]
        answered(engine, pool_request(talk))
        plain, cached = answered(engine, pool_request(talk + "And now?"))
        assert cached > end + 40
        assert restored == []
        answered(engine, pool_request("Something else", cards=OTHERS))
        assert answered(engine, pool_request(talk + "And now?")) == (plain, end)
        assert len(restored) == 1


def test_a_prompt_may_end_at_its_cut(bare: Path, tmp_path: Path) -> None:
    whole = pool_request()
    ends = replace(whole, messages=whole.messages[:1])
    with opened(bare) as engine:
        (first, second) = cuts(engine, ends)
        plain = answered(engine, ends)[0]
        assert len(engine.tokenize(ends).tokens) == second
        longer = answered(engine, whole)[0]
    for question, wanted in ((ends, (plain, 0)), (ends, (plain, first)), (whole, (longer, second))):
        with opened(bare, tmp_path) as engine:
            assert answered(engine, question) == wanted


def test_a_model_that_cannot_forget_a_part_goes_back_to_the_state_on_disk(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a model is a recurrent one: what it has read is one state."""
    with opened(tiny) as engine:
        plain = answered(engine, pool_request("And 7*8?"))[0]
        end = cuts(engine, pool_request())[1]
    monkeypatch.setattr(load_bindings(), "llama_memory_seq_rm", lambda *_: False)
    for cache, cached in ((tmp_path, end), (None, 0)):
        with opened(tiny, cache) as engine:
            answered(engine, pool_request())
            assert answered(engine, pool_request("And 7*8?")) == (plain, cached)


def test_a_state_fits_a_context_of_another_size(
    tiny: Path, tmp_path: Path, restored: list[bytes]
) -> None:
    with opened(tiny, tmp_path, context=8000) as engine:
        plain = answered(engine, pool_request())[0]
        length = len(engine.tokenize(pool_request()).tokens)
    for context in (length + 32, 8192):
        with opened(tiny, tmp_path, context=context) as engine:
            assert answered(engine, pool_request()) == (plain, cuts(engine, pool_request())[1])
    restored.clear()
    with (
        opened(tiny, tmp_path, context=256) as engine,
        pytest.raises(ModelError, match="holds 256") as error,
    ):
        answered(engine, pool_request())
    assert error.value.reason == "length"
    assert restored == []


def test_another_file_at_the_same_path_uses_no_state(
    models: Path, tmp_path: Path, restored: list[bytes]
) -> None:
    path = models / "replaced.gguf"
    cache = tmp_path / "cache"
    make(path, extra=NEVER_ENDS)
    before = path.stat()
    content = path.read_bytes()
    with opened(path, cache) as engine:
        plain = answered(engine, pool_request())
    make(path, seed=1, extra=NEVER_ENDS)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with opened(path, cache) as engine:
        other = answered(engine, pool_request())
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000_000))
    with opened(path, cache) as engine:
        assert answered(engine, pool_request()) == plain
    assert other[1] == plain[1] == 0
    assert other[0] != plain[0]
    assert restored == []
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with opened(path, cache) as engine:
        assert answered(engine, pool_request()) == (plain[0], cuts(engine, pool_request())[1])


def test_another_version_of_llama_cpp_uses_no_state(
    tiny: Path, tmp_path: Path, restored: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tiny, tmp_path) as engine:
        plain = answered(engine, pool_request())
    monkeypatch.setattr(load_bindings(), "__version__", "99.0.0")
    with opened(tiny, tmp_path) as engine:
        assert answered(engine, pool_request()) == plain
    assert restored == []
    assert len(states(tmp_path)) == 4


def test_base_and_adapter_have_separate_states(
    tiny: Path, models: Path, tmp_path: Path, restored: list[bytes]
) -> None:

    adapters = [
        None,
        lora(models / "first-lora.gguf", seed=1),
        lora(models / "second-lora.gguf", seed=2),
    ]
    plain = []
    for adapter in adapters:
        with opened(tiny, adapter=adapter) as engine:
            plain.append(answered(engine, pool_request())[0])
    assert len({answer.text for answer in plain}) == 3
    for _ in range(2):
        for adapter, wanted in zip(adapters, plain, strict=True):
            with opened(tiny, tmp_path, adapter=adapter) as engine:
                assert answered(engine, pool_request())[0] == wanted
    assert len(states(tmp_path)) == 6
    assert len(restored) == 3


@dataclass
class Kept:
    """A loaded model, and the state that it has kept at one cut."""

    engine: LlamaEngine
    path: Path
    whole: bytes
    answer: Answer
    tokens: list[int]

    @property
    def body(self) -> bytes:
        return self.whole[32:]

    def again(self) -> tuple[Answer, int]:
        """Ask it once more, with an empty context."""
        self.engine.kv_cache.truncate(0)
        return answered(self.engine, once())


@pytest.fixture(scope="module")
def kept(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    cache = tmp_path_factory.mktemp("kept")
    with opened(tiny, cache) as engine:
        answer = answered(engine, once())[0]
        (end,) = cuts(engine, once())
        (path,) = states(cache)
        kept = Kept(engine, path, path.read_bytes(), answer, engine.tokenize(once()).tokens[:end])
        yield kept
        # The real state is taken: without this, what follows would show nothing.
        path.write_bytes(kept.whole)
        assert kept.again() == (answer, end)


def cut_off(whole: bytes, length: int, rest: bytes) -> bytes:
    return whole[: min(length, len(whole) - 1)] + rest


def changed(whole: bytes, position: int, bit: int, rest: bytes) -> bytes:
    """The state with one bit turned over."""
    position %= len(whole)
    return whole[:position] + bytes([whole[position] ^ 1 << bit]) + whole[position + 1 :] + rest


PLACES = st.integers(0, 400) | st.integers(0, 100_000)
DAMAGE = st.builds(
    partial, st.just(cut_off), length=PLACES, rest=st.binary(max_size=9)
) | st.builds(
    partial,
    st.just(changed),
    position=PLACES,
    bit=st.integers(0, 7),
    rest=st.sampled_from([b"", b"\0"]),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damage=DAMAGE)
def test_a_damaged_state_is_made_again(
    kept: Kept, restored: list[bytes], damage: Callable[[bytes], bytes]
) -> None:
    kept.path.write_bytes(damage(kept.whole))
    assert kept.again() == (kept.answer, 0)
    assert kept.path.read_bytes() == kept.whole
    assert restored == []


def test_a_link_or_directory_instead_of_a_state_is_handled(
    kept: Kept, restored: list[bytes]
) -> None:
    kept.path.unlink()
    path = kept.path
    stand_ins = (
        partial(path.symlink_to, path),
        partial(path.symlink_to, "nothing"),
        partial(os.mkfifo, path),
    )
    for stand_in in stand_ins:
        stand_in()
        assert kept.again() == (kept.answer, 0)
        assert not path.is_symlink()
        assert path.read_bytes() == kept.whole
        path.unlink()
    kept.path.mkdir()
    assert kept.again() == (kept.answer, 0)
    kept.path.rmdir()
    assert kept.again() == (kept.answer, 0)
    assert kept.path.read_bytes() == kept.whole
    assert restored == []


def test_a_state_that_llama_cpp_refuses_is_made_again(kept: Kept, restored: list[bytes]) -> None:
    for strange in (b"\0" * 64, kept.body[:12] + b"\xff\xff\xff\x7f" + kept.body[16:]):
        state = (ctypes.c_uint8 * len(strange)).from_buffer_copy(strange)
        prefixes = kept.engine.kv_cache._prefixes
        assert prefixes is not None
        prefixes.save(kept.tokens, state)
        restored.clear()
        assert kept.again() == (kept.answer, 0)
        assert restored == [strange]
        assert kept.path.read_bytes() == kept.whole


@pytest.fixture
def store(tmp_path: Path) -> PrefixCache:
    return PrefixCache(tmp_path / "prefixes", "a model")


def put(store: PrefixCache, number: int, size: int = 100) -> Path:
    """Keep a state of so many bytes that was used `number` seconds after 1970."""
    store.save(key(number), (ctypes.c_uint8 * size)(*[number % 256] * size))
    path = store._path(key(number))
    os.utime(path, (number, number))
    return path


def key(number: int) -> list[int]:
    return [number] * MIN_TOKENS


def test_the_least_recently_used_states_are_deleted_first(store: PrefixCache) -> None:
    paths = [put(store, number) for number in range(1, MAX_FILES + 1)]
    assert all(path.exists() for path in paths)
    state = store.load(key(1))
    assert state is not None
    assert bytes(state) == b"\1" * 100
    newest = put(store, MAX_FILES + 1)
    assert [number for number, path in enumerate(paths, start=1) if not path.exists()] == [2]
    assert newest.exists()


def test_the_bytes_of_all_states_are_bounded(store: PrefixCache) -> None:
    paths = [put(store, number, 1000) for number in range(1, 7)]
    size = paths[0].stat().st_size
    trim(paths[0].parent, size=3 * size)
    assert [path.exists() for path in paths] == [False, False, False, True, True, True]
    trim(paths[0].parent, keep=paths[3], size=2 * size)
    assert [path.exists() for path in paths[3:]] == [True, False, True]
    trim(paths[0].parent, keep=paths[3], files=0, size=0)
    assert [path.exists() for path in paths[3:]] == [True, False, False]
    assert 0 < PrefixCache.max_state_bytes <= MAX_BYTES


def test_a_state_that_is_too_large_is_not_stored(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tiny, tmp_path) as engine:
        plain = answered(engine, once())
        (path,) = states(tmp_path)
        monkeypatch.setattr(PrefixCache, "max_state_bytes", path.stat().st_size - 100)
        engine.kv_cache.truncate(0)
        assert answered(engine, once()) == plain
        assert states(tmp_path) == []


def test_unfinished_files_of_dead_processes_are_deleted(store: PrefixCache) -> None:
    state = put(store, 1)
    dead, living = (state.with_name(f".{start}89abcdef.new") for start in ("01234567", "89abcdef"))
    now = time.time()
    for path, age in ((dead, ABANDONED_SECONDS + 60), (living, ABANDONED_SECONDS - 60)):
        path.write_bytes(b"half")
        os.utime(path, (now - age, now - age))
    put(store, 2)
    assert [dead.exists(), living.exists(), state.exists()] == [False, True, True]


def test_foreign_files_are_kept(store: PrefixCache) -> None:
    state = put(store, 1)
    names = (
        "notes.txt",
        ".gitignore",
        ".keep",
        "other.kv",
        f".{state.name}",
        ".0123456789abcde.new",
        "0123456789abcdef.new",
        ".0123456789abcdef.new.swp",
        f"{state.name}.bak",
        ".0123456789ABCDEF.new",
    )
    directory = state.parent
    for name in names:
        (directory / name).write_bytes(b"mine")
        os.utime(directory / name, (1, 1))
    (directory / ".directory").mkdir()
    os.utime(directory / ".directory", (1, 1))
    trim(directory, keep=state, files=1, size=0)
    assert {path.name for path in directory.iterdir()} == {*names, ".directory", state.name}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on the size of a file")
def test_a_full_disk_or_an_unwritable_cache_is_not_a_failure(tiny: Path, tmp_path: Path) -> None:
    """The answer comes all the same, and no incomplete file is left."""
    import resource

    with opened(tiny) as engine:
        plain = answered(engine, pool_request())[0]
    (tmp_path / "file").write_bytes(b"")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        for cache in (tmp_path / "cache", tmp_path / "file" / "below", tmp_path / ("x" * 300)):
            with opened(tiny, cache) as engine:
                assert answered(engine, pool_request()) == (plain, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "file"]


def test_whoever_waits_for_a_long_prompt_is_told_how_far_it_is(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Soon, and after parts that double; a prompt that is on disk takes no time."""
    content = FIXED * 5
    messages = (Message(role="system", content=content), Message(role="user", content="6*7?"))
    question = Request(messages=messages, max_tokens=1, cuts=(len(content),))
    ticks = count()
    monkeypatch.setattr("conductor_cli.models.llama.engine.monotonic", lambda: next(ticks) * 1.0)
    with opened(tiny, tmp_path) as engine:
        chunks = list(engine.generate(question, CancelToken()))
    read = [chunk.progress for chunk in chunks if chunk.progress is not None]
    (total,) = {progress.total for progress in read}
    assert [progress.tokens for progress in read[:3]] == [64, 64 + 128, 64 + 128 + 256]
    assert read[0].seconds_left == pytest.approx((total - 64) / 64)
    with opened(tiny, tmp_path) as engine:
        chunks = list(engine.generate(question, CancelToken()))
    assert not any(chunk.progress for chunk in chunks)


@pytest.mark.parametrize(("batch", "kept"), [(1, 0), (3, 64 + 128)])
def test_a_prefix_that_was_cancelled_is_not_stored(
    tiny: Path, tmp_path: Path, batch: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = FIXED * 5
    messages = (Message(role="system", content=content), Message(role="user", content="6*7?"))
    question = Request(messages=messages, max_tokens=12, cuts=(len(content),))
    with opened(tiny) as engine:
        plain = answered(engine, question)[0]
        (end,) = cuts(engine, question)
        assert end > 3 * 128
    lib = load_bindings()
    decode = load_bindings().llama_decode
    calls = 0
    cancel = CancelToken()

    def stopped(context: Any, tokens: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == batch:
            cancel.set()
        return decode(context, tokens)

    with opened(tiny, tmp_path) as engine:
        engine.kv_cache._batch_size = 128
        with monkeypatch.context() as patch:
            patch.setattr(lib, "llama_decode", stopped)
            with pytest.raises(Cancelled):
                list(engine.generate(question, cancel))
        assert calls == batch
        assert not (tmp_path / "prefixes").exists()
        assert answered(engine, question)[1] == kept
        assert len(states(tmp_path)) == 1
    with opened(tiny, tmp_path) as engine:
        assert answered(engine, question) == (plain, end)

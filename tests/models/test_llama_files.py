"""Files of models and adapters: those that are complete and fit work.

Others are errors before they can do harm.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama.adapter import Llama
from conductor_cli.models.llama.bindings import load_bindings
from conductor_cli.models.llama.gguf import (
    BLOCK_SIZES,
    F32,
    UNUSABLE_TYPES,
    TensorInfo,
    check_model_file,
    check_whole_model,
    has_usable_type,
    part_files,
    read_header,
    read_header_and_tensors,
    read_model_info,
)
from conductor_cli.models.llama.loading import LlamaOptions
from tests.models.conftest import NEVER_ENDS
from tests.models.kit import text
from tests.models.test_llama import ask, play, reply_texts
from tests.tiny_gguf import END, Extra, Shape, lora, make

needs_llama = pytest.mark.skipif(
    find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed"
)


def number(content: bytes, key: str, form: str, value: float) -> bytes:
    """The file with another value for a key of this type."""
    at = content.index(key.encode()) + len(key) + 4
    return content[:at] + struct.pack(f"<{form}", value) + content[at + struct.calcsize(form) :]


def twice(content: bytes) -> bytes:
    """The file with two tokens of one name."""
    return content.replace(struct.pack("<Q", 1) + b"!", struct.pack("<Q", 1) + b'"', 1)


def counts(content: bytes, tensors: int, keys: int) -> bytes:
    return content[:8] + struct.pack("<QQ", tensors, keys) + content[24:]


def weights(content: bytes, fill: bytes) -> bytes:
    """The file with all its weights overwritten."""
    return content[:12000] + fill * (len(content) - 12000)


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda _: b"", "is empty"),
    "text": (lambda _: b"Dear sir or madam,\n" * 99, "is not a GGUF file"),
    "wrong-magic": (lambda content: b"GGML" + content[4:], "is not a GGUF file"),
    "version-1": (lambda content: content[:4] + b"\1\0\0\0" + content[8:], "is GGUF version 1"),
    "cut-in-header": (lambda content: content[:5000], "ends in the middle of its header"),
    "cut-in-weights": (lambda content: content[:-9999], "is cut off or damaged: it has"),
    "many-tensors": (
        lambda content: counts(content, 1 << 60, 20),
        "claims 1152921504606846976 tensors",
    ),
    "many-keys": (lambda content: counts(content, 20, 1 << 60), "and 1152921504606846976 keys"),
    "more-keys": (lambda content: counts(content, 28, 300), "cut off or damaged"),
    "no-layer": (lambda content: number(content, "qwen2.block_count", "I", 0), "claims 0 layers"),
    "many-layers": (
        lambda content: number(content, "qwen2.block_count", "I", 1 << 31),
        "claims 2147483648 layers",
    ),
    "epsilon": (
        lambda content: number(content, "layer_norm_rms_epsilon", "f", -1.0),
        "layer_norm_rms_epsilon is -1.0",
    ),
    "no-context": (
        lambda content: number(content, "qwen2.context_length", "I", 0),
        "is damaged, or not a model",
    ),
    "no-tokenizer": (lambda content: content.replace(b"gpt2", b"none", 1), "has no vocabulary"),
    "a-token-twice": (twice, "has a token twice"),
    "unknown-architecture": (
        lambda content: content.replace(b"qwen2", b"qwen9"),
        "unknown model architecture: 'qwen9'",
    ),
    "other-architecture": (lambda content: content.replace(b"qwen2", b"llama"), "cannot be loaded"),
    "not-a-number": (lambda content: weights(content, b"\xff"), "output is not a number"),
}


KINDS = {
    "f16": ("blk.0.attn_norm.weight", 1),
    "bf16": ("blk.1.attn_q.bias", 30),
    "i32": ("output.weight", 26),
    "f64-matrix": ("blk.0.attn_k.weight", 28),
    "q8_k": ("blk.1.ffn_up.weight", 15),
}
"""Tensors of types that llama.cpp loads and then dies of."""


def retyped(path: Path, name: str, kind: int, *, alignment: int = 32) -> Path:
    """A model whose tensor of this name is all zeros of another type.

    Its tensors are aligned so.
    """
    import gguf
    import numpy as np

    class Writer(gguf.GGUFWriter):  # type: ignore[misc]  # gguf is not looked into
        def add_tensor(self, name_: str, tensor: Any, **options: Any) -> None:
            if name_ == name:
                numbers, size = BLOCK_SIZES[kind]
                tensor = np.zeros(
                    (*tensor.shape[:-1], tensor.shape[-1] // numbers * size), np.uint8
                )
                options = {"raw_dtype": gguf.GGMLQuantizationType(kind)}
            super().add_tensor(name_, tensor, **options)

        def add_name(self, name_: str) -> None:
            super().add_name(name_)
            if alignment != 32:
                self.add_custom_alignment(alignment)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gguf, "GGUFWriter", Writer)
        return make(path, shape=Shape(width=256, inner=256))


@pytest.fixture(scope="module")
def whole(models: Path) -> bytes:
    return make(models / "whole.gguf").read_bytes()


@pytest.fixture(scope="module")
def damaged(models: Path, whole: bytes) -> dict[str, Path]:
    """A file for each kind of damage, and what is no file."""
    directory = models / "damaged"
    directory.mkdir()
    for name, (damage, _) in DAMAGE.items():
        (directory / f"{name}.gguf").write_bytes(damage(whole))
    (directory / "directory.gguf").mkdir()
    make(directory / "vocabulary.gguf", extra=Extra(tensors=False))
    spelled = make(directory / "no-bytes.gguf", extra=Extra(sentence=True)).read_bytes()
    (directory / "no-bytes.gguf").write_bytes(spelled.replace(b"<0xC3>", b"<0xcz>"))
    for name, (tensor, kind) in KINDS.items():
        retyped(directory / f"{name}.gguf", tensor, kind)
    return {name: directory / f"{name}.gguf" for name in REASONS}


REASONS = {name: words for name, (_, words) in DAMAGE.items()} | {
    "missing": "there is no file",
    "directory": "is not a file",
    "vocabulary": "has a vocabulary but no weights",
    "no-bytes": "some letters have no token",
    **{name: f"{tensor} has the type {kind}, with which" for name, (tensor, kind) in KINDS.items()},
}


@pytest.mark.parametrize("name", REASONS)
def test_a_bad_file_is_an_error_with_its_reason(
    name: str, damaged: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing is printed, and the process goes on."""
    with pytest.raises(ModelError) as error:
        play(damaged[name], ask())
    assert error.value.reason == "file"
    assert str(damaged[name]) in error.value.message
    assert REASONS[name] in error.value.message
    assert error.value.hint
    assert capfd.readouterr() == ("", "")


def test_a_repaired_file_loads(models: Path, whole: bytes) -> None:
    path = models / "changing.gguf"

    async def go() -> None:
        model = Llama(path, LlamaOptions(threads=1))
        path.write_bytes(whole[:-9999])
        with pytest.raises(ModelError):
            await model.load()
        path.write_bytes(whole)
        await model.load()
        await model.close()

    asyncio.run(go())


@needs_llama
@pytest.mark.parametrize("alignment", [32, 4096])
def test_a_file_that_is_too_short_is_refused(tmp_path: Path, alignment: int) -> None:
    path = retyped(tmp_path / "model.gguf", "blk.0.attn_q.weight", 12, alignment=alignment)
    content = path.read_bytes()
    path.write_bytes(content[:30_000])
    with pytest.raises(ModelError, match="it has 30000 bytes, and needs") as error:
        check_model_file(path)
    needed = int(error.value.message.split()[-1])
    assert 0 <= len(content) - needed < alignment
    path.write_bytes(content[: needed - 1])
    with pytest.raises(ModelError, match=f"it has {needed - 1} bytes, and needs {needed}"):
        check_model_file(path)
    path.write_bytes(content[:needed])
    assert check_model_file(path).tensors == 28
    assert text(play(path, ask())[0])


@pytest.mark.parametrize("steps", [0, 48])
def test_an_invalid_alignment_is_an_error(tmp_path: Path, steps: int) -> None:
    path = retyped(tmp_path / "model.gguf", "", 0, alignment=64)
    path.write_bytes(number(path.read_bytes(), "general.alignment", "I", steps))
    with pytest.raises(ModelError, match=f"aligned to {steps}, which is not a power of two"):
        check_model_file(path)
    make(path, extra=Extra(metadata={"general.alignment": "\x1b[31m"}))
    with pytest.raises(ModelError, match=r"aligned to \[31m, which is not a power of two"):
        check_model_file(path)


@given(data=st.data())
def test_any_header_is_read_or_refused(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.gguf"
    if not path.exists():
        make(path)
    whole = bytearray(path.read_bytes()[:20_000])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, 9_300))
        whole[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    changed = path.with_suffix(".changed")
    changed.write_bytes(whole[: data.draw(st.integers(1, len(whole)))])
    for read in (check_model_file, read_header, read_model_info):
        with suppress(ModelError):
            read(changed)


def test_the_identity_of_a_file_is_that_of_its_bytes(models: Path, whole: bytes) -> None:
    path = models / "identity.gguf"
    identities = []
    for content in (
        whole,
        whole,
        whole[:-1] + b"\7",
        whole + b"\0",
        whole.replace(b"tiny random", b"tiny tandem"),
    ):
        path.write_bytes(content)
        identities.append(read_model_info(path).identity)
    assert identities[0] == identities[1]
    assert len(set(identities)) == 4


def test_a_model_without_a_template_gets_chatml(models: Path) -> None:
    chatml = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    )
    chatml += "<|im_start|>assistant\n"
    bias = {END: -50.0, "<|endoftext|>": -50.0}
    bare = play(make(models / "bare.gguf", extra=Extra(template=None, bias=bias)), ask())[0]
    same = play(make(models / "chatml.gguf", extra=Extra(template=chatml, bias=bias)), ask())[0]
    assert text(bare) == text(same) != ""


def test_a_header_with_very_much_in_it_is_refused(tmp_path: Path) -> None:
    def text_of(content: bytes) -> bytes:
        return struct.pack("<Q", len(content)) + content

    begin = b"GGUF" + struct.pack("<IQQ", 3, 0, 2)
    long = b"".join(
        text_of(name) + struct.pack("<I", 8) + text_of(b"x" * (9 << 20)) for name in (b"a", b"b")
    )
    tokens = text_of(b"tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 600_001)
    merges = text_of(b"tokenizer.ggml.merges") + struct.pack("<IIQ", 9, 8, 2_000_001)
    for name, body, message in (
        ("long", long, "more than 16 MiB of text"),
        ("tokens", tokens + bytes(8 * 700_000), "a list of 600,001 texts"),
        ("merges", merges + bytes(8 * 2_100_000), "a list of 2,000,001 texts"),
    ):
        path = tmp_path / f"{name}.gguf"
        path.write_bytes(begin + body)
        with pytest.raises(ModelError, match=message):
            read_header(path)


F16 = 1
Q4_K = 12
Q8_0 = 8
Q8_1 = 9
Q8_K = 15
I32 = 26
I64 = 27
F64 = 28
BF16 = 30


@needs_llama
def test_the_sizes_of_blocks_are_those_of_ggml() -> None:
    stem = {"win32": "ggml-base.dll", "darwin": "libggml-base.dylib"}.get(
        sys.platform, "libggml-base.so"
    )
    ggml = ctypes.CDLL(str(Path(load_bindings().__file__).parent / "lib" / stem))
    ggml.ggml_blck_size.restype = ctypes.c_int64
    ggml.ggml_type_size.restype = ctypes.c_size_t
    ggml_sizes = {
        kind: (ggml.ggml_blck_size(kind), ggml.ggml_type_size(kind))
        for kind in range(max(BLOCK_SIZES) + 1)
    }
    assert {kind: sizes for kind, sizes in ggml_sizes.items() if all(sizes)} == BLOCK_SIZES


def test_a_tensor_ends_where_the_next_begins(tmp_path: Path) -> None:
    path = make(tmp_path / "model.gguf")
    tensors = list(read_header_and_tensors(path)[1].values())
    assert [-(-tensor.end // 32) * 32 for tensor in tensors[:-1]] == [
        tensor.start for tensor in tensors[1:]
    ]
    assert (
        sum(prod(tensor.shape) * (4 if tensor.kind == F32 else 2) for tensor in tensors)
        <= tensors[-1].end
    )


def test_a_tensor_of_an_unknown_type_has_no_length() -> None:
    assert TensorInfo(shape=(64, 64), kind=999, start=320).end == 320
    assert TensorInfo(shape=(256, 3), kind=Q4_K, start=32).end == 32 + 3 * 144


@pytest.mark.parametrize(
    ("name", "shape", "kind", "usable"),
    [
        ("blk.0.attn_norm.weight", (64,), F32, True),
        ("blk.0.attn_norm.weight", (64,), F16, False),
        # Each head has its own in some architectures
        ("blk.0.attn_q_norm.weight", (128, 8), F32, True),
        ("blk.0.attn_q_norm.weight", (128, 8), BF16, False),
        ("blk.0.attn_q.bias", (64,), F16, False),
        ("blk.0.ffn_gate_exps.bias", (64, 8), F16, False),
        ("rope_freqs.weight", (32,), I32, False),
        ("blk.0.ssm_d", (), F16, False),
        ("blk.0.attn_q.weight", (256, 64), Q4_K, True),
        ("blk.0.ffn_gate_exps.weight", (64, 64, 8), BF16, True),
        ("blk.0.attn_q.weight", (64, 64), 999, True),  # llama.cpp says what it does not know
        ("blk.0.ffn_gate_tid2eid.weight", (6, 1000), I32, True),
        ("blk.0.ffn_gate_tid2eid.weight", (6, 1000), F32, False),
        ("d2t", (1000,), I64, True),
        ("d2t", (1000,), F32, False),
        ("blk.0.d2t.weight", (64, 64), I64, False),
        *(("blk.0.attn_q.weight", (256, 64), kind, False) for kind in sorted(UNUSABLE_TYPES)),
    ],
)
def test_usable_types_are_known(name: str, shape: tuple[int, ...], kind: int, usable: bool) -> None:
    assert has_usable_type(name, TensorInfo(shape=shape, kind=kind)) is usable


NAMES = [f"model-{number:05}-of-00004.gguf" for number in range(1, 5)]


def divided(
    path: Path, *, small: bool = False, tensors: int = 9, seed: int = 0, extra: Extra = NEVER_ENDS
) -> Path:
    """The model of these arguments in parts; the first of them.

    `small` puts no weights into that one.
    """
    import gguf

    with pytest.MonkeyPatch.context() as patch:
        writer = functools.partial(
            gguf.GGUFWriter, split_max_tensors=tensors, small_first_shard=small
        )
        patch.setattr(gguf, "GGUFWriter", writer)
        make(path, seed=seed, extra=extra)
    return min(path.parent.glob(f"{path.stem}-00001-of-*.gguf"))


@pytest.fixture
def model(models: Path, tmp_path: Path) -> Path:
    """The first of four parts."""
    return divided(tmp_path / "model.gguf")


def refused(path: Path, **options: Any) -> ModelError:
    """Why a file cannot be used, as a user of the model gets it."""
    with pytest.raises(ModelError) as error:
        play(path, ask(), options=LlamaOptions(context=1024, threads=1, **options))
    assert error.value.reason == "file"
    assert error.value.hint
    return error.value


@pytest.mark.parametrize("small", [False, True])
def test_a_split_model_writes_the_same_as_a_whole_one(
    tiny: Path, tmp_path: Path, small: bool
) -> None:
    first = divided(tmp_path / "model.gguf", small=small)
    assert reply_texts(first, ask()) == reply_texts(tiny, ask())
    files = sorted(tmp_path.iterdir())
    assert part_files(first) == tuple(files)
    assert len(files) == 4 + small
    about = read_model_info(first)
    whole = read_model_info(tiny)
    assert about.size == sum(file.stat().st_size for file in files) > whole.size
    assert about.identity != whole.identity


@pytest.mark.parametrize("part", [0, 3])
def test_the_identity_is_that_of_all_parts(model: Path, part: int) -> None:
    before = read_model_info(model).identity
    path = model.with_name(NAMES[part])
    assert read_model_info(model).identity == before
    content = path.read_bytes()
    path.write_bytes(content[:-40] + bytes([content[-40] ^ 1]) + content[-39:])
    assert read_model_info(model).identity != before


@pytest.mark.parametrize("missing", [(4,), (2, 3, 4)])
def test_a_missing_part_is_named(model: Path, missing: tuple[int, ...]) -> None:
    for number in missing:
        model.with_name(NAMES[number - 1]).unlink()
    error = refused(model)
    names = ", ".join(NAMES[number - 1] for number in missing)
    assert error.message.endswith(f"is the first part of a split model; missing: {names}")
    assert error.hint == "put all parts in one directory"
    with pytest.raises(ModelError, match="missing: "):
        read_model_info(model)


def test_a_further_part_is_refused_with_the_path_of_the_first(model: Path) -> None:
    error = refused(model.with_name(NAMES[1]))
    assert error.message.endswith(f"{NAMES[1]} is not the first part of its model")
    assert error.hint == f"name the first part: {model}"


@pytest.mark.parametrize(("first_number", "other_number"), [(2, 3), (1, 4)])
def test_swapped_parts_are_an_error(model: Path, first_number: int, other_number: int) -> None:
    first, second = (model.with_name(NAMES[number - 1]) for number in (first_number, other_number))
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    error = refused(model)
    assert "get the file again" in error.hint
    if first_number > 1:
        assert error.message.endswith(
            f"{NAMES[first_number - 1]} is not part {first_number} of this model"
        )


def test_a_part_of_another_model_is_an_error(model: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = divided(tmp_path / "other" / "model.gguf", tensors=12)
    second = model.with_name(NAMES[1])
    whole = second.read_bytes()
    second.write_bytes(other.with_name("model-00002-of-00003.gguf").read_bytes())
    assert refused(model).message.endswith(f"{NAMES[1]} is not part 2 of this model")
    second.write_bytes(whole)
    second.write_bytes(number(model.with_name(NAMES[2]).read_bytes(), "split.no", "H", 1))
    assert "cannot be loaded" in refused(model).message


@pytest.mark.parametrize("count", [0, 65535])
def test_a_wrong_count_of_parts_is_an_error(model: Path, count: int) -> None:
    model.write_bytes(number(model.read_bytes(), "split.count", "H", count))
    error = refused(model)
    assert f"says that its model has {count} parts, and its name says 4" in error.message
    assert "NAME-00001-of-0000N.gguf" in error.hint


def test_a_renamed_part_is_an_error(model: Path, tiny: Path, tmp_path: Path) -> None:
    renamed = model.rename(model.with_name("renamed.gguf"))
    assert "its model has 4 parts, and its name says 1" in refused(renamed).message
    renamed.rename(model)
    model.write_bytes(tiny.read_bytes())
    assert "its model has 1 parts, and its name says 4" in refused(model).message
    single = tmp_path / "single-00001-of-00001.gguf"
    single.write_bytes(tiny.read_bytes())
    assert reply_texts(single, ask()) == reply_texts(tiny, ask())


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda _: b"<html>",
        lambda content: content[:30],
        lambda content: content[:-9000],
        lambda content: content[:700],
    ],
    ids=["empty", "text", "in-header", "in-weights", "in-tensors"],
)
def test_a_damaged_part_is_an_error(model: Path, damage: Callable[[bytes], bytes]) -> None:
    path = model.with_name(NAMES[3])
    path.write_bytes(damage(path.read_bytes()))
    refused(model)
    with pytest.raises(ModelError) as error:
        check_whole_model(model)  # before llama.cpp is asked
    assert str(path) in error.value.message


def test_a_part_that_would_crash_llama_cpp_is_an_error(model: Path) -> None:
    path = model.with_name(NAMES[1])
    name = next(name for name in read_header_and_tensors(path)[1] if name.endswith("_norm.weight"))
    content = path.read_bytes()
    at = content.index(name.encode()) + len(name) + 4 + 8
    path.write_bytes(content[:at] + struct.pack("<I", 26) + content[at + 4 :])
    assert f"{name} has the type 26" in refused(model).message


def with_adapter(path: Path) -> LlamaOptions:
    return LlamaOptions(context=1024, threads=1, adapter=path)


def test_an_adapter_changes_the_reply(tiny: Path, tmp_path: Path) -> None:
    first = lora(tmp_path / "first.gguf", seed=1)
    second = lora(tmp_path / "second.gguf", seed=2)
    nothing = lora(tmp_path / "nothing.gguf", strength=0.0)
    replies = [
        reply_texts(tiny, ask(), options=with_adapter(adapter))[0]
        for adapter in (first, second, nothing)
    ]
    plain = reply_texts(tiny, ask())[0]
    assert replies[2] == plain
    assert len({plain, *replies}) == 3
    assert reply_texts(tiny, ask(), options=with_adapter(first))[0] == replies[0]


def test_an_adapter_works_on_a_split_model(tiny: Path, model: Path, tmp_path: Path) -> None:
    options = with_adapter(lora(tmp_path / "lora.gguf"))
    assert reply_texts(model, ask(), options=options) == reply_texts(tiny, ask(), options=options)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"width": 32}, "it changes blk.0.attn_q.weight of 32 x 64, where that has 64 x 64"),
        ({"architecture": "llama"}, "its architecture is 'llama', not 'qwen2'"),
        ({"kind": "control_vector"}, "is not a LoRA adapter"),
        (
            {"target": "blk.9.attn_q.weight"},
            "is for another model than tiny.gguf: it changes blk.9.attn_q.weight",
        ),
        ({"target": "output.weight"}, "it changes output.weight of 64 x 64, where that has 64 x "),
        (
            {"target": "blk.0.attn_q.bias", "rows": 1},
            "it changes blk.0.attn_q.bias, which is not a matrix",
        ),
    ],
    ids=["width", "architecture", "kind", "layer", "other-matrix", "bias"],
)
def test_a_foreign_adapter_is_an_error(
    tiny: Path, tmp_path: Path, keys: dict[str, Any], problem: str
) -> None:
    path = lora(tmp_path / "lora.gguf", **keys)
    error = refused(tiny, adapter=path)
    assert str(path) in error.message
    assert problem in error.message


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(length=st.one_of(st.integers(0, 500), st.integers(0, 4000)))
def test_a_truncated_adapter_is_an_error(tiny: Path, tmp_path: Path, length: int) -> None:
    whole = lora(tmp_path / "whole.gguf").read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole[: min(length, len(whole) - 1)])
    assert str(path) in refused(tiny, adapter=path).message

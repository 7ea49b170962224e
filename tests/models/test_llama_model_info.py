"""Split models and adapters: those that are complete and fit work; others are errors before they can do harm."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama import LlamaOptions, read_model_info
from conductor_cli.models.llama.gguf import check_whole_model, part_files, read_header_and_tensors
from tests.models.conftest import NEVER_ENDS
from tests.models.test_llama import ask, play, reply_texts
from tests.tiny_gguf import Extra, lora, make

NAMES = [f"model-{number:05}-of-00004.gguf" for number in range(1, 5)]


def divided(path: Path, *, small: bool = False, tensors: int = 9, seed: int = 0, extra: Extra = NEVER_ENDS) -> Path:
    """The model of these arguments in parts; the first of them. `small` puts no weights into that one."""
    import gguf

    with pytest.MonkeyPatch.context() as patch:
        writer = functools.partial(gguf.GGUFWriter, split_max_tensors=tensors, small_first_shard=small)
        patch.setattr(gguf, "GGUFWriter", writer)
        make(path, seed=seed, extra=extra)
    return min(path.parent.glob(f"{path.stem}-00001-of-*.gguf"))


@pytest.fixture
def model(models: Path, tmp_path: Path) -> Path:
    """The first of four parts."""
    return divided(tmp_path / "model.gguf")


def refused(path: Path, **more: Any) -> ModelError:
    """Why a file cannot be used, as a user of the model gets it."""
    with pytest.raises(ModelError) as error:
        play(path, ask(), options=LlamaOptions(context=1024, threads=1, **more))
    assert error.value.reason == "file"
    assert error.value.hint
    return error.value


# Divided files


@pytest.mark.parametrize("small", [False, True])
def test_a_split_model_writes_the_same_as_a_whole_one(tiny: Path, tmp_path: Path, small: bool) -> None:
    first = divided(tmp_path / "model.gguf", small=small)
    assert reply_texts(first, ask()) == reply_texts(tiny, ask())
    files = sorted(tmp_path.iterdir())
    assert part_files(first) == tuple(files)
    assert len(files) == 4 + small
    about, whole = read_model_info(first), read_model_info(tiny)
    assert about.size == sum(file.stat().st_size for file in files) > whole.size
    assert about.identity != whole.identity


@pytest.mark.parametrize("part", [0, 3])
def test_the_identity_is_that_of_all_parts(model: Path, part: int) -> None:
    before, path = read_model_info(model).identity, model.with_name(NAMES[part])
    assert read_model_info(model).identity == before
    data = path.read_bytes()
    path.write_bytes(data[:-40] + bytes([data[-40] ^ 1]) + data[-39:])
    assert read_model_info(model).identity != before


@pytest.mark.parametrize("missing", [(4,), (2, 3, 4)])
def test_a_missing_part_is_named(model: Path, missing: tuple[int, ...]) -> None:
    for number in missing:
        model.with_name(NAMES[number - 1]).unlink()
    error = refused(model)
    assert error.message.endswith(
        "is the first part of a split model; missing: " + ", ".join(NAMES[number - 1] for number in missing)
    )
    assert error.hint == "put all parts in one directory"
    with pytest.raises(ModelError, match="missing: "):
        read_model_info(model)


def test_a_further_part_is_refused_with_the_path_of_the_first(model: Path) -> None:
    error = refused(model.with_name(NAMES[1]))
    assert error.message.endswith(f"{NAMES[1]} is not the first part of its model")
    assert error.hint == f"name the first part: {model}"


@pytest.mark.parametrize(("one", "other"), [(2, 3), (1, 4)])
def test_swapped_parts_are_an_error(model: Path, one: int, other: int) -> None:
    first, second = (model.with_name(NAMES[number - 1]) for number in (one, other))
    data = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(data)
    error = refused(model)
    assert "get the file again" in error.hint
    if one > 1:
        assert error.message.endswith(f"{NAMES[one - 1]} is not part {one} of this model")


def test_a_part_of_another_model_is_an_error(model: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = divided(tmp_path / "other" / "model.gguf", tensors=12)
    second = model.with_name(NAMES[1])
    whole = second.read_bytes()
    second.write_bytes(other.with_name("model-00002-of-00003.gguf").read_bytes())
    assert refused(model).message.endswith(f"{NAMES[1]} is not part 2 of this model")
    second.write_bytes(whole)
    third = model.with_name(NAMES[2]).read_bytes()
    at = third.index(b"split.no") + len("split.no") + 4
    second.write_bytes(third[:at] + struct.pack("<H", 1) + third[at + 2 :])
    assert "cannot be loaded" in refused(model).message


@pytest.mark.parametrize("count", [0, 65535])
def test_a_wrong_count_of_parts_is_an_error(model: Path, count: int) -> None:
    data = model.read_bytes()
    at = data.index(b"split.count") + len("split.count") + 4
    model.write_bytes(data[:at] + struct.pack("<H", count) + data[at + 2 :])
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
    [lambda _: b"", lambda _: b"<html>", lambda data: data[:30], lambda data: data[:-9000], lambda data: data[:700]],
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
    data = path.read_bytes()
    at = data.index(name.encode()) + len(name) + 4 + 8
    path.write_bytes(data[:at] + struct.pack("<I", 26) + data[at + 4 :])
    assert f"{name} has the type 26" in refused(model).message


# Adapters


def with_adapter(path: Path) -> LlamaOptions:
    return LlamaOptions(context=1024, threads=1, adapter=path)


def test_an_adapter_changes_the_reply(tiny: Path, tmp_path: Path) -> None:
    first, second = lora(tmp_path / "first.gguf", seed=1), lora(tmp_path / "second.gguf", seed=2)
    nothing = lora(tmp_path / "nothing.gguf", strength=0.0)
    replies = [reply_texts(tiny, ask(), options=with_adapter(adapter))[0] for adapter in (first, second, nothing)]
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
        ({"target": "blk.9.attn_q.weight"}, "is for another model than tiny.gguf: it changes blk.9.attn_q.weight"),
        ({"target": "output.weight"}, "it changes output.weight of 64 x 64, where that has 64 x "),
        ({"target": "blk.0.attn_q.bias", "rows": 1}, "it changes blk.0.attn_q.bias, which is not a matrix"),
    ],
    ids=["width", "architecture", "kind", "layer", "other-matrix", "bias"],
)
def test_a_foreign_adapter_is_an_error(tiny: Path, tmp_path: Path, keys: dict[str, Any], problem: str) -> None:
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

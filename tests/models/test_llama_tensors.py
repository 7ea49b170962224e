"""The sizes of tensors are ggml's own, and what llama.cpp cannot compute with is known by name, shape and type."""

from __future__ import annotations

import ctypes
import sys
from math import prod
from pathlib import Path

import pytest

from conductor_cli.models.llama.bindings import load_bindings
from conductor_cli.models.llama.gguf import (
    BLOCK_SIZES,
    F32,
    UNUSABLE_TYPES,
    TensorInfo,
    has_usable_type,
    read_header_and_tensors,
)
from tests.tiny_gguf import make

F16, Q4_K, Q8_0, Q8_1, Q8_K, I32, I64, F64, BF16 = 1, 12, 8, 9, 15, 26, 27, 28, 30


def test_the_sizes_of_blocks_are_those_of_ggml() -> None:
    stem = {"win32": "ggml-base.dll", "darwin": "libggml-base.dylib"}.get(sys.platform, "libggml-base.so")
    ggml = ctypes.CDLL(str(Path(load_bindings().__file__).parent / "lib" / stem))
    ggml.ggml_blck_size.restype, ggml.ggml_type_size.restype = ctypes.c_int64, ctypes.c_size_t
    found = {kind: (ggml.ggml_blck_size(kind), ggml.ggml_type_size(kind)) for kind in range(max(BLOCK_SIZES) + 1)}
    assert {kind: sizes for kind, sizes in found.items() if all(sizes)} == BLOCK_SIZES


def test_a_tensor_ends_where_the_next_begins(tmp_path: Path) -> None:
    path = make(tmp_path / "model.gguf")
    tensors = list(read_header_and_tensors(path)[1].values())
    assert [-(-tensor.end // 32) * 32 for tensor in tensors[:-1]] == [tensor.start for tensor in tensors[1:]]
    assert sum(prod(tensor.shape) * (4 if tensor.kind == F32 else 2) for tensor in tensors) <= tensors[-1].end


def test_a_tensor_of_an_unknown_type_has_no_length() -> None:
    assert TensorInfo(shape=(64, 64), kind=999, start=320).end == 320
    assert TensorInfo(shape=(256, 3), kind=Q4_K, start=32).end == 32 + 3 * 144


@pytest.mark.parametrize(
    ("name", "shape", "kind", "usable"),
    [
        ("blk.0.attn_norm.weight", (64,), F32, True),
        ("blk.0.attn_norm.weight", (64,), F16, False),
        ("blk.0.attn_q_norm.weight", (128, 8), F32, True),  # each head has its own in some architectures
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

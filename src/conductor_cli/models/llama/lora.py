"""LoRA adapters: those of a training as GGUF files, packed ones, and checks before llama.cpp.

PEFT writes `adapter_config.json` beside `adapter_model.safetensors`. Whether an adapter fits its
base model is checked before llama.cpp loads it, which aborts the process on some that it does not
expect. How an adapter is laid out: github.com/ggml-org/llama.cpp, src/llama-adapter.cpp.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf import (
    MODEL_ARCH,
    GGMLQuantizationType,
    GGUFReader,
    GGUFWriter,
    Keys,
    dequantize,
    get_tensor_name_map,
    quantize,
)
from safetensors import SafetensorError
from safetensors.numpy import load_file

from conductor_cli.core.errors import ModelError
from conductor_cli.core.terminal_text import short_line
from conductor_cli.models.llama.gguf import (
    UNUSABLE_TYPES,
    Header,
    TensorInfo,
    is_matrix,
    read_all_tensors,
    read_header_and_tensors,
)
from conductor_cli.system.disk import make_private_directory, temporary_path

ARCHITECTURES: Final = {
    "llama": MODEL_ARCH.LLAMA,
    "qwen2": MODEL_ARCH.QWEN2,
    "qwen3": MODEL_ARCH.QWEN3,
}
"""The architectures whose adapters can be converted."""


def convert_adapter(  # noqa: PLR0913 - where from and to, and what is known of the base model
    source: Path,
    out: Path,
    *,
    architecture: str,
    layers: int,
    heads: tuple[int, int] | None = None,
    half: bool = False,
) -> None:
    """Write the adapter that a training has saved in the directory `source` to `out`.

    `architecture` and `layers` are those of the base model, `heads` its numbers of query heads and
    of key heads. Numbers have 32 bits, or 16 with `half`, for an adapter that is to be small.
    Raises `ModelError` of kind `file` with the reason, and leaves no partial file.
    """
    if architecture not in ARCHITECTURES:
        shown = short_line(architecture) or "not given"
        problem = (
            f"{source} cannot be converted: its base model's architecture is {shown}, and "
            f"supported are {', '.join(ARCHITECTURES)}"
        )
        hint = "convert it with llama.cpp's convert_lora_to_gguf.py"
        raise ModelError("file", problem, hint=hint)
    alpha, arrays = _read_trained(source)
    names = get_tensor_name_map(ARCHITECTURES[architecture], layers)
    writer = GGUFWriter(None, architecture)
    writer.add_type("adapter")
    writer.add_name(short_line(source.name))
    writer.add_string(Keys.Adapter.TYPE, "lora")
    writer.add_float32(Keys.Adapter.LORA_ALPHA, alpha)  # llama.cpp aborts if it is an integer
    number = np.float16 if half else np.float32
    for key in sorted(arrays):
        if ".lora_A." not in key:
            continue
        module = key.removeprefix("base_model.model.").partition(".lora_A.")[0]
        name = names.get_name(module)
        if name is None:
            problem = f"{source}: {short_line(module)} is not part of the base model"
            raise ModelError("file", problem, hint="name the model that it was trained on")
        first = arrays[key]
        second = arrays[key.replace(".lora_A.", ".lora_B.")]
        if architecture == "llama" and name.endswith((".attn_q", ".attn_k")):
            counts = heads or (0, 0)
            second = _by_heads(second, counts[name.endswith(".attn_k")], f"{source}: {name}")
        writer.add_tensor(f"{name}.weight.lora_a", first.astype(number))
        writer.add_tensor(f"{name}.weight.lora_b", second.astype(number))
    write_gguf(out, writer)


def _read_trained(source: Path) -> tuple[float, dict[str, Any]]:
    """Return the alpha of a saved adapter, and its arrays. Raises `ModelError` of kind `file`."""
    try:
        alpha = float(json.loads((source / "adapter_config.json").read_text())["lora_alpha"])
        return alpha, load_file(source / "adapter_model.safetensors")
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        problem = f"the adapter in {source} cannot be read: {short_line(str(error))}"
        raise ModelError("file", problem, hint="train again") from error


def _by_heads(array: Any, heads: int, where: str) -> Any:  # noqa: ANN401 - of numpy
    """Return the rows of so many heads as `_in_pairs`.

    Raises `ModelError` of kind `file` where the heads cannot share them.
    """
    rows = len(array)
    if heads < 1 or rows % (2 * heads):
        problem = f"{where} has {rows} rows, which {heads} heads cannot share"
        raise ModelError("file", problem, hint="name the model that it was trained on")
    return _in_pairs(array, heads)


def _in_pairs(array: Any, heads: int) -> Any:  # noqa: ANN401 - of numpy
    """Return the rows of each head in the order of llama.cpp.

    Rotary positions pair neighbouring rows there, and rows of two halves in transformers. See
    `LlamaModel.permute` in github.com/ggml-org/llama.cpp, convert_hf_to_gguf.py.
    """
    halves = array.reshape(heads, 2, len(array) // heads // 2, array.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(array.shape))


def write_gguf(path: Path, writer: GGUFWriter) -> None:
    """Write all that was added to `writer`, or leave `path` as it was.

    Raises `ModelError` of kind `file`.
    """
    try:
        make_private_directory(path.parent)
        with temporary_path(path) as temporary:
            try:
                writer.write_header_to_file(temporary)
                writer.write_kv_data_to_file()
                writer.write_tensors_to_file()
                writer.flush()
                os.fsync(writer.fout[0].fileno())
            finally:
                writer.close()
            temporary.replace(path)
    except OSError as error:
        # numpy reports a short write without an error number: the disk is full.
        problem = f"{path} cannot be written: {error.strerror or 'the disk is full'}"
        hint = "check the directory, its permissions, and the free space of its disk"
        raise ModelError("file", problem, hint=hint) from error


PACKED: Final = "packed lora"
"""The type of a packed adapter: 8 bits a number, with the second matrix of each pair transposed.

The rows of a second matrix are as short as the rank, and a block of 8-bit numbers has 32 of one
row. llama.cpp does not read such a file; `unpack_adapter` makes one that it does.
"""


def pack_adapter(source: Path, out: Path) -> None:
    """Write the adapter `source` to `out` in about half its bytes, each number rounded to 8 bits.

    Raises `ModelError` of kind `file`.
    """
    writer = _writer_like(source, PACKED)
    for name, matrix in _adapter_matrices(source):
        rows = matrix
        if name.endswith(SECOND_SUFFIX):
            rows = np.ascontiguousarray(matrix.T)
        if rows.shape[1] % 32:
            problem = f"{source} cannot be packed: {name} has rows of {rows.shape[1]} numbers"
            raise ModelError("file", problem, hint="rows must have a multiple of 32 numbers")
        kind = GGMLQuantizationType.Q8_0
        writer.add_tensor(name, quantize(rows, kind), raw_dtype=kind)
    write_gguf(out, writer)


def unpack_adapter(source: Path, out: Path) -> None:
    """Write a packed adapter to `out` as llama.cpp reads it, with 16 bits a number.

    An adapter that is not packed is copied. Raises `ModelError` of kind `file`, and `OSError`.
    """
    header, _ = read_header_and_tensors(source)
    if header.values.get("adapter.type") != PACKED:
        with temporary_path(out) as temporary:
            shutil.copyfile(source, temporary)
            temporary.replace(out)
        return
    writer = _writer_like(source, "lora")
    for name, rows in _adapter_matrices(source):
        matrix = rows
        if name.endswith(SECOND_SUFFIX):
            matrix = np.ascontiguousarray(rows.T)
        writer.add_tensor(name, matrix.astype(np.float16))
    write_gguf(out, writer)


def _writer_like(source: Path, kind: str) -> GGUFWriter:
    """Return a writer for an adapter of this type, with architecture and alpha of `source`."""
    header, _ = read_header_and_tensors(source)
    alpha = header.values.get("adapter.lora.alpha")
    if not isinstance(alpha, float):
        raise _damaged_adapter(source, "it has no alpha")
    writer = GGUFWriter(None, header.architecture)
    writer.add_type("adapter")
    writer.add_string(Keys.Adapter.TYPE, kind)
    writer.add_float32(Keys.Adapter.LORA_ALPHA, alpha)
    return writer


def _adapter_matrices(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the matrices of an adapter by their names, in 32 bits."""
    for tensor in GGUFReader(path).tensors:
        matrix = dequantize(tensor.data, tensor.tensor_type)
        yield tensor.name, np.ascontiguousarray(matrix, dtype=np.float32)


FIRST_SUFFIX: Final = ".lora_a"
SECOND_SUFFIX: Final = ".lora_b"
EMBEDDING_NAME: Final = "token_embd.weight"


def check_adapter(path: Path, base: Header, base_path: Path) -> None:
    """Raise `ModelError` of kind `file` if the adapter `path` does not fit the base model."""
    header, tensors = read_header_and_tensors(path)
    kind = header.values.get("general.type")
    if kind != "adapter" or header.values.get("adapter.type") != "lora":
        raise ModelError("file", f"{path} is not a LoRA adapter", hint="name the GGUF file of one")
    if header.architecture != base.architecture:
        adapted = short_line(header.architecture)
        present = short_line(base.architecture)
        raise _of_another(path, base_path, f"its architecture is {adapted!r}, not {present!r}")
    alpha = header.values.get("adapter.lora.alpha")
    if not isinstance(alpha, float) or not math.isfinite(alpha):
        raise _damaged_adapter(path, "it has no alpha")
    # llama.cpp expects the two matrices of an embedding in another order.
    if EMBEDDING_NAME + FIRST_SUFFIX in tensors:
        problem = f"{path} changes the embedding, which is not supported"
        raise ModelError("file", problem, hint="merge it into its base model, and convert that")
    if any(tensor.kind in UNUSABLE_TYPES for tensor in tensors.values()):
        raise _damaged_adapter(path, "its numbers are of a type that cannot be multiplied")
    pairs = _read_pairs(path, tensors)
    base_tensors = read_all_tensors(base_path)
    for name, (first, second) in pairs.items():
        shown = short_line(name)
        if len(first) != 2 or len(second) != 2 or second[0] != first[1]:
            raise _damaged_adapter(path, f"the two parts of {shown} do not fit together")
        tensor = base_tensors.get(name)
        if tensor is None:
            raise _of_another(path, base_path, f"it changes {shown}, which it does not have")
        if not is_matrix(name, tensor):
            problem = f"it changes {shown}, which is not a matrix: llama.cpp would ignore that"
            raise _damaged_adapter(path, problem)
        rows = first[0]
        columns = second[1]
        if (rows, columns) != tensor.shape[:2]:
            why = (
                f"it changes {shown} of {rows} x {columns}, where that has "
                f"{tensor.shape[0]} x {tensor.shape[1]}"
            )
            raise _of_another(path, base_path, why)


def _read_pairs(
    path: Path, tensors: Mapping[str, TensorInfo]
) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the shapes of an adapter's two matrices, by the name of the tensor that they change.

    Raises `ModelError` if anything is not a pair.
    """
    pairs = {}
    for name, tensor in tensors.items():
        if name.endswith(FIRST_SUFFIX):
            changed = name.removesuffix(FIRST_SUFFIX)
            second = tensors.get(changed + SECOND_SUFFIX)
            if second is None:
                raise _damaged_adapter(path, "its tensors are not pairs")
            pairs[changed] = (tensor.shape, second.shape)
    if not pairs or 2 * len(pairs) != len(tensors):
        raise _damaged_adapter(path, "its tensors are not pairs")
    return pairs


def _of_another(path: Path, base: Path, why: str) -> ModelError:
    hint = "an adapter fits the model that it was trained on, and no other"
    return ModelError("file", f"{path} is for another model than {base.name}: {why}", hint=hint)


def _damaged_adapter(path: Path, problem: str) -> ModelError:
    hint = "get it again, or convert it again"
    return ModelError("file", f"{path} is damaged: {problem}", hint=hint)

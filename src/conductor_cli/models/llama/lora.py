"""LoRA adapters: those of a training as GGUF files, and the checks before llama.cpp sees one.

PEFT writes `adapter_config.json` beside `adapter_model.safetensors`. Whether an adapter fits its
base model is checked before llama.cpp loads it, which aborts the process on some that it does not
expect. How an adapter is laid out: github.com/ggml-org/llama.cpp, src/llama-adapter.cpp.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Final

import numpy as np
from gguf import MODEL_ARCH, GGUFWriter, Keys, get_tensor_name_map
from safetensors import SafetensorError
from safetensors.numpy import load_file

from conductor_cli.core.errors import ModelError
from conductor_cli.core.terminal_text import short_line
from conductor_cli.models.llama.gguf import (
    UNUSABLE_TYPES,
    Header,
    is_matrix,
    read_all_tensors,
    read_header_and_tensors,
)
from conductor_cli.system.disk import temporary_path

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
        raise ModelError(
            "file",
            f"{source} cannot be converted: its base model's architecture is "
            f"{short_line(architecture) or 'not given'}, and supported are "
            f"{', '.join(ARCHITECTURES)}",
            hint="convert it with llama.cpp's convert_lora_to_gguf.py",
        )
    try:
        alpha = float(json.loads((source / "adapter_config.json").read_text())["lora_alpha"])
        arrays = load_file(source / "adapter_model.safetensors")
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        problem = short_line(str(error))
        raise ModelError(
            "file", f"the adapter in {source} cannot be read: {problem}", hint="train again"
        ) from error
    names = get_tensor_name_map(ARCHITECTURES[architecture], layers)
    writer = GGUFWriter(None, architecture)
    writer.add_type("adapter")
    writer.add_name(short_line(source.name))
    writer.add_string(Keys.Adapter.TYPE, "lora")
    writer.add_float32(Keys.Adapter.LORA_ALPHA, alpha)  # llama.cpp aborts if it is an integer
    for key in sorted(key for key in arrays if ".lora_A." in key):
        module = key.removeprefix("base_model.model.").partition(".lora_A.")[0]
        name = names.get_name(module)
        if name is None:
            problem = f"{source}: {short_line(module)} is not part of the base model"
            raise ModelError("file", problem, hint="name the model that it was trained on")
        b = arrays[key.replace(".lora_A.", ".lora_B.")]
        kind = name.rpartition(".")[2]
        if architecture == "llama" and kind in {"attn_q", "attn_k"}:
            # Rotary positions pair neighbouring rows in llama.cpp, and rows of two halves in
            # transformers. See `LlamaModel.permute` in github.com/ggml-org/llama.cpp,
            # convert_hf_to_gguf.py.
            count = 0 if heads is None else heads[kind == "attn_k"]
            if count < 1 or len(b) % (2 * count):
                problem = f"{source}: {name} has {len(b)} rows, which {count} heads cannot share"
                raise ModelError("file", problem, hint="name the model that it was trained on")
            halves = b.reshape(count, 2, len(b) // count // 2, b.shape[1])
            b = np.ascontiguousarray(halves.swapaxes(1, 2).reshape(b.shape))
        number = np.float16 if half else np.float32
        writer.add_tensor(f"{name}.weight.lora_a", arrays[key].astype(number))
        writer.add_tensor(f"{name}.weight.lora_b", b.astype(number))
    write_gguf(out, writer)


def write_gguf(path: Path, writer: GGUFWriter) -> None:
    """Write all that was added to `writer`, or leave `path` as it was.

    Raises `ModelError` of kind `file`.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary_path(path) as new:
            try:
                writer.write_header_to_file(new)
                writer.write_kv_data_to_file()
                writer.write_tensors_to_file()
                writer.flush()
                os.fsync(writer.fout[0].fileno())
            finally:
                writer.close()
            new.replace(path)
    except OSError as error:
        # numpy reports a short write without an error number: the disk is full.
        problem = f"{path} cannot be written: {error.strerror or 'the disk is full'}"
        hint = "check the directory, its permissions, and the free space of its disk"
        raise ModelError("file", problem, hint=hint) from error


FIRST: Final = ".lora_a"
SECOND: Final = ".lora_b"
EMBEDDING: Final = "token_embd.weight"


def check_adapter(path: Path, base: Header, base_path: Path) -> None:
    """Raise `ModelError` of kind `file` if the adapter `path` cannot be applied to the base model."""
    header, tensors = read_header_and_tensors(path)
    kind = header.values.get("general.type")
    if kind != "adapter" or header.values.get("adapter.type") != "lora":
        raise ModelError("file", f"{path} is not a LoRA adapter", hint="name the GGUF file of one")
    if header.architecture != base.architecture:
        own = short_line(header.architecture)
        other = short_line(base.architecture)
        raise _of_another(path, base_path, f"its architecture is {own!r}, not {other!r}")
    alpha = header.values.get("adapter.lora.alpha")
    if not isinstance(alpha, float) or not math.isfinite(alpha):
        raise _damaged_adapter(path, "it has no alpha")
    if EMBEDDING + FIRST in tensors:  # of which llama.cpp expects the matrices in another order
        problem = f"{path} changes the embedding, which is not supported"
        raise ModelError("file", problem, hint="merge it into its base model, and convert that")
    if any(tensor.kind in UNUSABLE_TYPES for tensor in tensors.values()):
        raise _damaged_adapter(path, "its numbers are of a type that cannot be multiplied")
    firsts = {
        name.removesuffix(FIRST): tensor.shape
        for name, tensor in tensors.items()
        if name.endswith(FIRST)
    }
    seconds = {
        name.removesuffix(SECOND): tensor.shape
        for name, tensor in tensors.items()
        if name.endswith(SECOND)
    }
    if firsts.keys() != seconds.keys() or len(firsts) + len(seconds) != len(tensors) or not firsts:
        raise _damaged_adapter(path, "its tensors are not pairs")
    there = read_all_tensors(base_path)
    for name, first in firsts.items():
        second = seconds[name]
        if len(first) != 2 or len(second) != 2 or second[0] != first[1]:
            raise _damaged_adapter(path, f"the two parts of {short_line(name)} do not fit together")
        if name not in there:
            raise _of_another(
                path, base_path, f"it changes {short_line(name)}, which it does not have"
            )
        if not is_matrix(name, there[name]):
            problem = (
                f"it changes {short_line(name)}, which is not a matrix: llama.cpp would ignore that"
            )
            raise _damaged_adapter(path, problem)
        made = (first[0], second[1])  # the shape of B times A
        if made != (wanted := there[name].shape[:2]):
            why = (
                f"it changes {short_line(name)} of {made[0]} x {made[1]}, where that has "
                f"{wanted[0]} x {wanted[1]}"
            )
            raise _of_another(path, base_path, why)


def _of_another(path: Path, base: Path, why: str) -> ModelError:
    hint = "an adapter fits the model that it was trained on, and no other"
    return ModelError("file", f"{path} is for another model than {base.name}: {why}", hint=hint)


def _damaged_adapter(path: Path, problem: str) -> ModelError:
    return ModelError(
        "file", f"{path} is damaged: {problem}", hint="get it again, or convert it again"
    )

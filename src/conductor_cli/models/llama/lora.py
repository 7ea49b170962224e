"""Conversion of a LoRA adapter in PEFT format to a GGUF adapter for llama.cpp.

PEFT writes `adapter_config.json` beside `adapter_model.safetensors`. Both are untrusted. An adapter that llama.cpp
would apply differently is refused: a wrong scale or a missing part would only show in what the model writes. Whether
the result fits its base model is checked before llama.cpp loads it, which aborts the process on some that it does not
expect. How an adapter is laid out: github.com/ggml-org/llama.cpp, src/llama-adapter.cpp.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf import MODEL_ARCH, GGUFWriter, Keys, get_tensor_name_map
from safetensors import SafetensorError, deserialize

from conductor_cli.core.errors import ModelError
from conductor_cli.models.disk import temporary_path
from conductor_cli.models.llama.gguf import (
    MEBIBYTE,
    UNUSABLE_TYPES,
    Header,
    TensorInfo,
    is_matrix,
    read_all_tensors,
    read_header_and_tensors,
    short_line,
)

WEIGHTS: Final = "adapter_model.safetensors"
CONFIG: Final = "adapter_config.json"

ARCHITECTURES: Final = {"llama": MODEL_ARCH.LLAMA, "qwen2": MODEL_ARCH.QWEN2, "qwen3": MODEL_ARCH.QWEN3}
"""The architectures whose adapters can be converted."""

INTERLEAVED: Final = frozenset({"llama"})
"""The architectures whose rotary positions pair neighbouring rows in llama.cpp, and rows of two halves in transformers.

See `LlamaModel.permute` in github.com/ggml-org/llama.cpp, convert_hf_to_gguf.py.
"""

MAX_BYTES: Final = 16 << 30  # No adapter file is larger. It is read into memory

_TENSOR: Final = re.compile(
    r"(?:base_model\.model\.)?(?P<module>[a-z0-9_.]+)\.lora_(?P<side>[AB])(?:\.default)?(?:\.weight)?"
)

_UNCHANGED_BASE: Final = (None, True, False, "gaussian", "orthogonal", "eva")
"""Initialisations that leave the base model as it is."""

_UNSUPPORTED: Final = (
    "use_dora", "lora_bias", "modules_to_save", "trainable_token_indices", "layer_replication",
    "alora_invocation_tokens", "target_parameters", "alpha_pattern",
)  # fmt: skip
"""Settings of PEFT that add what llama.cpp would ignore, or scale modules in a way that this conversion does not."""

_MERGE: Final = "merge it into its base model with PEFT (merge_and_unload), convert the result to GGUF and import that"


def convert_adapter(
    source: Path, out: Path, *, architecture: str, layers: int, heads: tuple[int, int] | None = None
) -> None:
    """Write the adapter `source`, a directory or its safetensors file, to `out`.

    `architecture` and `layers` are those of the base model, `heads` its numbers of query heads and of key heads.
    Numbers have 32 bits. Raises `ModelError` of kind `file` with the reason, and leaves no partial file.
    """
    weights = source / WEIGHTS if source.is_dir() else source
    alpha, rank_stabilised = _read_scale(weights.with_name(CONFIG))
    if architecture not in ARCHITECTURES:
        raise ModelError(
            "file", f"{source} cannot be converted: its base model's architecture is "
            f"{short_line(architecture) or 'not given'}, and supported are {', '.join(ARCHITECTURES)}", hint=_MERGE,
        )  # fmt: skip
    names = get_tensor_name_map(ARCHITECTURES[architecture], layers)
    writer = GGUFWriter(None, architecture)
    writer.add_type("adapter")
    writer.add_name(short_line(weights.parent.name))
    writer.add_string(Keys.Adapter.TYPE, "lora")
    writer.add_float32(Keys.Adapter.LORA_ALPHA, alpha)  # llama.cpp aborts if it is an integer
    for module, (a, b) in _find_pairs(weights, _read_safetensors(weights)).items():
        name = names.get_name(module)
        if name is None:
            raise ModelError(
                "file", f"{weights}: {short_line(module)} is not part of the base model",
                hint="name the model that it was trained on",
            )  # fmt: skip
        # llama.cpp scales a pair by alpha divided by its rank. A rank-stabilised one is scaled by the rank's root.
        scaled = b * np.float32(math.sqrt(len(a))) if rank_stabilised else b
        writer.add_tensor(f"{name}.weight.lora_a", a)
        rows = _interleave(scaled, name, weights, heads) if architecture in INTERLEAVED else scaled
        writer.add_tensor(f"{name}.weight.lora_b", rows)
    write_gguf(out, writer)


def _interleave(b: Any, name: str, path: Path, heads: tuple[int, int] | None) -> Any:  # noqa: ANN401 - an array
    """Return the matrix B of queries or keys with its rows in llama.cpp's order; any other matrix as it is.

    Raises `ModelError` of kind `file` if the rows cannot be divided among the heads.
    """
    kind = name.rpartition(".")[2]
    if kind not in {"attn_q", "attn_k"}:
        return b
    count = 0 if heads is None else heads[kind == "attn_k"]
    if count < 1 or len(b) % (2 * count):
        raise ModelError(
            "file", f"{path}: {name} has {len(b)} rows, which {count} heads cannot share",
            hint="name the model that it was trained on",
        )  # fmt: skip
    halves = b.reshape(count, 2, len(b) // count // 2, b.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(b.shape))


def write_gguf(path: Path, writer: GGUFWriter) -> None:
    """Write all that was added to `writer`, or leave `path` as it was. Raises `ModelError` of kind `file`."""
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
        raise ModelError(
            "file", f"{path} cannot be written: {error.strerror or 'the disk is full'}",
            hint="check the directory, its permissions, and the free space of its disk",
        ) from error  # fmt: skip


def _read_scale(path: Path) -> tuple[float, bool]:
    """The alpha in a PEFT configuration, and whether PEFT divides it by the root of the rank instead of the rank.

    Raises `ModelError` of kind `file` for an adapter that cannot be converted.
    """
    # The JSON object in a file of at most a mebibyte. Raises `ModelError` of kind `file`.
    try:
        with path.open("rb") as file:
            data = file.read(MEBIBYTE + 1)
        value = json.loads(data) if len(data) <= MEBIBYTE else None
    except OSError as error:
        raise _unreadable(path, error) from error
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise _damaged(path, "it is not a JSON object of at most 1 MiB")
    settings = value
    if settings.get("peft_type") != "LORA":
        problem = f"it is not a LoRA but {short_line(str(settings.get('peft_type')))}"
    elif (start := settings.get("init_lora_weights")) not in _UNCHANGED_BASE:
        problem = f"its initialisation ({short_line(str(start))}) changes the base model too"
    else:
        used = [name for name in _UNSUPPORTED if settings.get(name)]
        used += ["bias"] if settings.get("bias") not in (None, "none") else []
        problem = f"it uses {used[0]}, which cannot be converted" if used else ""
    if problem:
        raise ModelError("file", f"{path}: {problem}", hint=_MERGE)
    alpha = settings.get("lora_alpha")
    if not isinstance(alpha, int | float) or not 0 < abs(alpha) < 1e9:  # false for NaN
        raise _damaged(path, "lora_alpha is not a number to scale by")
    return float(alpha), bool(settings.get("use_rslora"))


def _find_pairs(path: Path, tensors: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The matrices A and B by the module that they change, as transformers names it: B times A is added to it."""
    sides: dict[str, dict[str, Any]] = {}
    for name, array in tensors.items():
        match = _TENSOR.fullmatch(name)
        if match is None or match["side"] in sides.setdefault(match["module"], {}):
            raise ModelError("file", f"{path} has {short_line(name)}, which llama.cpp cannot use", hint=_MERGE)
        sides[match["module"]][match["side"]] = array
    for module, found in sides.items():
        if len(found) < 2 or any(array.ndim != 2 or not array.size for array in found.values()):
            raise _damaged(path, f"{short_line(module)} does not consist of two matrices")
        if len(found["A"]) != found["B"].shape[1]:
            raise _damaged(path, f"the two matrices of {short_line(module)} have different ranks")
    if not sides:
        raise ModelError("file", f"{path} contains no LoRA", hint="name a directory that PEFT saved")
    return {module: (found["A"], found["B"]) for module, found in sides.items()}


def _read_safetensors(path: Path) -> dict[str, Any]:
    """Return the tensors of a file as numpy arrays of 32 bits. Raises `ModelError` of kind `file`, and nothing else."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ModelError("file", f"{path} is too large for an adapter", hint="name a directory that PEFT saved")
        # The library compares sizes, offsets and types in the header with the file. `safe_open` would read less at a
        # time, but cannot give bfloat16 to numpy.
        entries = deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
    except OSError as error:
        raise _unreadable(path, error) from error
    except SafetensorError as error:
        raise _damaged(path, short_line(str(error))) from error
    found: dict[str, Any] = {}
    for name, entry in sorted(entries, key=itemgetter(0)):  # the library gives them in any order
        data, dtype = entry["data"], entry["dtype"]
        if dtype == "BF16":  # the upper half of a float32, which numpy does not know
            numbers = (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
        elif dtype in {"F32", "F16"}:
            numbers = np.frombuffer(data, "<f4" if dtype == "F32" else "<f2").astype("<f4")
        else:
            raise ModelError(
                "file", f"{path}: {short_line(name)} is stored as {dtype}", hint="save it as F32, F16 or BF16"
            )
        if not np.isfinite(numbers).all():
            raise _damaged(path, f"{short_line(name)} has values that are not finite")
        found[name] = numbers.reshape(entry["shape"])
    return found


def _damaged(path: Path, problem: str) -> ModelError:
    return ModelError("file", f"{path} is damaged: {problem}", hint="get it again, or save it again")


def _unreadable(path: Path, error: OSError) -> ModelError:
    return ModelError("file", f"{path} cannot be read: {error.strerror}", hint="check the path")


FIRST: Final = ".lora_a"
SECOND: Final = ".lora_b"
EMBEDDING: Final = "token_embd.weight"


def check_adapter(path: Path, base: Header, base_path: Path, *, source: Path | None = None) -> None:
    """Raise `ModelError` of kind `file` if the adapter `path` cannot be applied to the base model.

    Errors name `source` if the file was just made from it.
    """
    header, tensors = read_header_and_tensors(path)
    path = source or path
    kind = header.values.get("general.type")
    if kind != "adapter" or header.values.get("adapter.type") != "lora":
        raise ModelError(
            "file", f"{path} is not a LoRA adapter", hint="import one in PEFT format: conductor model import DIR"
        )
    if header.architecture != base.architecture:
        raise ModelError(
            "file",
            f"{path} is for the architecture {short_line(header.architecture)!r}, "
            f"not for {short_line(base.architecture)!r}",
            hint="an adapter fits the model that it was trained on, and no other",
        )  # fmt: skip
    alpha = header.values.get("adapter.lora.alpha")
    if not isinstance(alpha, float) or not math.isfinite(alpha):
        raise _damaged_adapter(path, "it has no alpha")
    if EMBEDDING + FIRST in tensors:  # of which llama.cpp expects the matrices in another order
        raise ModelError("file", f"{path} changes the embedding, which is not supported", hint=_MERGE)
    if any(tensor.kind in UNUSABLE_TYPES for tensor in tensors.values()):
        raise _damaged_adapter(path, "its numbers are of a type that cannot be multiplied")
    _check_pairs(path, tensors)
    _check_targets(path, tensors, read_all_tensors(base_path), base_path)


def _check_targets(
    path: Path, tensors: Mapping[str, TensorInfo], base: Mapping[str, TensorInfo], base_path: Path
) -> None:
    """Check that each pair changes a matrix of the base model. llama.cpp ignores one for a norm or a bias."""
    for name in (name.removesuffix(FIRST) for name in tensors if name.endswith(FIRST)):
        if name not in base:
            raise _of_another(path, base_path, f"it changes {short_line(name)}, which it does not have")
        if not is_matrix(name, base[name]):
            raise _damaged_adapter(
                path, f"it changes {short_line(name)}, which is not a matrix: llama.cpp would ignore that"
            )
        first, second = tensors[name + FIRST].shape, tensors[name + SECOND].shape
        made = (first[0], second[1])  # the shape of B times A
        if made != (there := base[name].shape[:2]):
            why = f"it changes {short_line(name)} of {made[0]} x {made[1]}, where that has {there[0]} x {there[1]}"
            raise _of_another(path, base_path, why)


def _check_pairs(path: Path, tensors: Mapping[str, TensorInfo]) -> None:
    firsts = {name.removesuffix(FIRST): tensor.shape for name, tensor in tensors.items() if name.endswith(FIRST)}
    seconds = {name.removesuffix(SECOND): tensor.shape for name, tensor in tensors.items() if name.endswith(SECOND)}
    if firsts.keys() != seconds.keys() or len(firsts) + len(seconds) != len(tensors) or not firsts:
        raise _damaged_adapter(path, "its tensors are not pairs")
    for name, first in firsts.items():
        second = seconds[name]
        if len(first) != 2 or len(second) != 2 or second[0] != first[1]:
            raise _damaged_adapter(path, f"the two parts of {short_line(name)} do not fit together")


def _of_another(path: Path, base: Path, why: str) -> ModelError:
    hint = "an adapter fits the model that it was trained on, and no other"
    return ModelError("file", f"{path} is for another model than {base.name}: {why}", hint=hint)


def _damaged_adapter(path: Path, problem: str) -> ModelError:
    return ModelError("file", f"{path} is damaged: {problem}", hint="convert it again: conductor model import DIR")

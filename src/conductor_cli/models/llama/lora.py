"""Conversion of a LoRA adapter in PEFT format to a GGUF adapter for llama.cpp.

PEFT writes `adapter_config.json` beside `adapter_model.safetensors`. Both are untrusted. An adapter that llama.cpp
would apply differently is refused: a wrong scale or a missing part would only show in what the model writes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from gguf import MODEL_ARCH_NAMES, Keys, TensorNameMap, get_tensor_name_map
from safetensors import SafetensorError, deserialize

from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama.gguf import MAX_LAYERS, MEBIBYTE, Header, read_header, short_line
from conductor_cli.models.llama.gguf_writer import LazyTensor, new_writer, write_gguf
from conductor_cli.models.llama.model_info import read_all_tensors

WEIGHTS: Final = "adapter_model.safetensors"
CONFIG: Final = "adapter_config.json"

ARCHITECTURES: Final = ("qwen2", "qwen3", "llama")
"""The architectures whose adapters can be converted."""

MAX_BYTES: Final = 16 << 30
"""No adapter file is larger. It is read into memory."""

_TENSOR: Final = re.compile(
    r"(?:base_model\.model\.)?(?P<module>[a-z0-9_.]+)\.lora_(?:embedding_)?(?P<side>[AB])(?:\.default)?(?:\.weight)?"
)
_MODULE_NAME: Final = re.compile(r"\^?[A-Za-z0-9_.]{1,200}")

_UNCHANGED_BASE: Final = (None, True, False, "gaussian", "orthogonal", "eva")
"""Initialisations that leave the base model as it is."""

_UNSUPPORTED: Final = (
    ("use_dora", "uses DoRA"),
    ("lora_bias", "has biases"),
    ("modules_to_save", "contains whole modules (modules_to_save)"),
    ("trainable_token_indices", "contains trained tokens"),
    ("layer_replication", "repeats layers"),
    ("alora_invocation_tokens", "is active only after certain tokens (aLoRA)"),
    ("target_parameters", "changes parameters outside of modules"),
)

_MERGE: Final = "merge it into its base model with PEFT (merge_and_unload), convert the result to GGUF and import that"
_WRONG_BASE: Final = "name the model that it was trained on"


class _Pair(NamedTuple):
    """What is added to a matrix of the base model: B times A, scaled."""

    a: Any
    b: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraBase:
    """The base model of an adapter. `shapes` are the rows and columns of its tensors, by their names in GGUF."""

    path: Path
    architecture: str
    layers: int
    shapes: Mapping[str, tuple[int, ...]]
    heads: int = 0
    key_heads: int = 0

    def names(self) -> TensorNameMap:
        """From names in transformers to names in GGUF."""
        architecture = next(it for it, name in MODEL_ARCH_NAMES.items() if name == self.architecture)
        return get_tensor_name_map(architecture, self.layers)


def read_lora_base(path: Path) -> LoraBase:
    """The base model in a GGUF file. Raises `ModelError` of kind `file`."""
    header = read_header(path)
    architecture = header.architecture
    if architecture not in ARCHITECTURES:
        raise ModelError(
            "file", f"an adapter for {path} cannot be converted: its architecture is "
            f"{short_line(architecture) or 'not given'}, and supported are {', '.join(ARCHITECTURES)}", hint=_MERGE,
        )  # fmt: skip
    heads = _read_count(path, header, "attention.head_count") if architecture == "llama" else 0
    return LoraBase(
        path=path, architecture=architecture, layers=_read_count(path, header, "block_count", most=MAX_LAYERS),
        shapes={name: tensor.shape[::-1] for name, tensor in read_all_tensors(path).items()},
        heads=heads, key_heads=heads and _read_count(path, header, "attention.head_count_kv", heads),
    )  # fmt: skip


def _read_count(path: Path, header: Header, key: str, default: int | None = None, *, most: int = 1 << 20) -> int:
    name = f"{header.architecture}.{key}"
    value = None if name in header.arrays else header.values.get(name, default)
    if type(value) is not int or not 0 < value <= most:
        raise ModelError("file", f"{path} has no valid {key}", hint=_MERGE)
    return value


def convert_adapter(source: Path, base: Path | LoraBase, out: Path) -> None:
    """Write the adapter `source`, a directory or its safetensors file, to `out`, for a base model.

    Numbers have 32 bits. Raises `ModelError` of kind `file` with the reason, and leaves no partial file.
    """
    weights = source / WEIGHTS if source.is_dir() else source
    config = _AdapterConfig.read(weights.with_name(CONFIG))
    pairs = _find_pairs(weights, read_safetensors(weights))
    model = base if isinstance(base, LoraBase) else read_lora_base(base)
    # llama.cpp scales a pair by this one alpha divided by the pair's rank. PEFT may have an alpha for each module, and
    # a scale by the root of the rank, so B is multiplied by what remains.
    alpha = config.file_alpha(len(next(iter(pairs.values())).a))
    writer = new_writer(model.architecture)
    writer.add_type("adapter")
    writer.add_name(short_line(weights.parent.name))
    writer.add_string(Keys.Adapter.TYPE, "lora")
    writer.add_float32(Keys.Adapter.LORA_ALPHA, alpha)  # llama.cpp aborts if it is an integer
    names, tensors = model.names(), list[LazyTensor]()
    for module, pair in pairs.items():
        where = f"{weights}: {short_line(module)}"
        name = _check_pair(where, names.get_name(module), pair, model)
        rank = len(pair.a)
        a, b = pair.a, pair.b * np.float32(config.scale(module, rank) * rank / alpha)
        if name == "token_embd":
            a = a.T
        if model.architecture == "llama" and name.endswith((".attn_q", ".attn_k")):
            # A Llama's GGUF interleaves the two halves of each head in q and k.
            heads = model.heads if name.endswith("q") else model.key_heads
            b = b.reshape(heads, 2, -1, b.shape[1]).swapaxes(1, 2).reshape(b.shape)
        for side, array in (("a", a), ("b", b)):
            tensor = f"{name}.weight.lora_{side}"
            tensors.append(LazyTensor(tensor, array.shape, "float32", partial(np.asarray, array)))
    write_gguf(out, writer, tensors)


def _check_pair(where: str, name: str | None, pair: _Pair, model: LoraBase) -> str:
    """The name in GGUF of the matrix that a pair changes. Raises `ModelError` if it does not fit the base model."""
    tied = "output.weight" not in model.shapes
    if name in {"token_embd", "output"} and tied:
        raise ModelError(
            "file", f"{where}: the base model reads and writes with one matrix, and llama.cpp cannot adapt that",
            hint=_MERGE,
        )  # fmt: skip
    shape = model.shapes.get(f"{name}.weight", ())
    if name is None or len(shape) != 2:
        raise ModelError("file", f"{where} is not part of the base model", hint=_WRONG_BASE)
    rows, columns = shape[::-1] if name == "token_embd" else shape
    rank = len(pair.a)
    if pair.a.shape != (rank, columns) or pair.b.shape != (rows, rank):
        raise ModelError(
            "file", f"{where} has the shapes {pair.a.shape} and {pair.b.shape}, which do not fit the "
            f"{rows} × {columns} of the base model", hint=_WRONG_BASE,
        )  # fmt: skip
    return name


def _find_pairs(path: Path, tensors: Mapping[str, Any]) -> dict[str, _Pair]:
    """The pairs by the module that each changes, as transformers names it."""
    sides: dict[str, dict[str, Any]] = {}
    for name, array in tensors.items():
        if name.endswith(".base_layer.weight"):  # a copy of the base model's embedding, which PEFT saves beside its own
            continue
        match = _TENSOR.fullmatch(name)
        if match is None or match["side"] in sides.setdefault(match["module"], {}):
            raise ModelError("file", f"{path} has {short_line(name)}, which llama.cpp cannot use", hint=_MERGE)
        sides[match["module"]][match["side"]] = array
    for module, found in sides.items():
        if len(found) < 2 or any(array.ndim != 2 or not array.size for array in found.values()):
            raise damaged(path, f"{short_line(module)} does not consist of two matrices")
    if not sides:
        raise ModelError("file", f"{path} contains no LoRA", hint="name a directory that PEFT saved")
    return {module: _Pair(found["A"], found["B"]) for module, found in sides.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _AdapterConfig:
    """The settings that decide the scale of a pair. `rank_stabilised`: PEFT divides by the root of the rank."""

    alpha: float
    alphas: Mapping[str, float]
    rank_stabilised: bool

    @classmethod
    def read(cls, path: Path) -> _AdapterConfig:
        """Read the file. Raises `ModelError` of kind `file` for an adapter that cannot be converted."""
        settings = read_json_file(path, MEBIBYTE)
        if problem := _find_unsupported(settings):
            raise ModelError("file", f"{path}: {problem}", hint=_MERGE)
        alpha, alphas = settings.get("lora_alpha"), settings.get("alpha_pattern") or {}
        if not isinstance(alphas, dict) or not all(map(_is_number, [alpha, *alphas.values()])) or not alpha:
            raise damaged(path, "lora_alpha is not a number to scale by")
        if not all(_MODULE_NAME.fullmatch(key) for key in alphas):
            raise ModelError("file", f"{path}: alpha_pattern has regular expressions", hint=_MERGE)
        return cls(alpha=float(alpha), alphas=alphas, rank_stabilised=bool(settings.get("use_rslora")))

    def file_alpha(self, rank: int) -> float:
        """The alpha of the whole GGUF adapter."""
        return self.alpha * math.sqrt(rank) if self.rank_stabilised else self.alpha

    def scale(self, module: str, rank: int) -> float:
        """What PEFT multiplies a module's pair with."""
        keys = (key for key in self.alphas if module == key.removeprefix("^") or module.endswith(f".{key}"))
        alpha = self.alphas[key] if (key := next(keys, None)) is not None else self.alpha
        return alpha / (math.sqrt(rank) if self.rank_stabilised else rank)


def _find_unsupported(settings: Mapping[str, Any]) -> str:
    """Why the adapter cannot be converted, or nothing."""
    if settings.get("peft_type") != "LORA":
        return f"it is not a LoRA but {short_line(str(settings.get('peft_type')))}"
    if (start := settings.get("init_lora_weights")) not in _UNCHANGED_BASE:
        return f"its initialisation ({short_line(str(start))}) changes the base model too"
    if settings.get("bias") not in (None, "none"):
        return "it has biases, which llama.cpp would ignore"
    return next(
        (f"it {problem}, which llama.cpp would ignore" for key, problem in _UNSUPPORTED if settings.get(key)), ""
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < 1e9  # false for NaN


def read_safetensors(path: Path) -> dict[str, Any]:
    """The tensors of a file as numpy arrays of 32 bits. Raises `ModelError` of kind `file`, and nothing else."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ModelError("file", f"{path} is too large for an adapter", hint="name a directory that PEFT saved")
        # The library compares sizes, offsets and types in the header with the file. `safe_open` would read less at a
        # time, but cannot give bfloat16 to numpy.
        entries = deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
    except OSError as error:
        raise unreadable(path, error) from error
    except SafetensorError as error:
        raise damaged(path, short_line(str(error))) from error
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
            raise damaged(path, f"{short_line(name)} has values that are not finite")
        found[name] = numbers.reshape(entry["shape"])
    return found


def read_json_file(path: Path, limit: int) -> dict[str, Any]:
    """The JSON object in a file of at most `limit` bytes. Raises `ModelError` of kind `file`."""
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise unreadable(path, error) from error
    if len(data) > limit:
        raise ModelError("file", f"{path} is larger than {limit >> 20} MiB", hint="save it again")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise damaged(path, "it is not valid JSON") from error
    if not isinstance(value, dict):
        raise damaged(path, "it is not a JSON object")
    return value


def damaged(path: Path, problem: str) -> ModelError:
    """The error for a file whose content is not valid."""
    return ModelError("file", f"{path} is damaged: {problem}", hint="get it again, or save it again")


def unreadable(path: Path, error: OSError) -> ModelError:
    """The error for a file that cannot be read."""
    return ModelError("file", f"{path} cannot be read: {error.strerror}", hint="check the path")

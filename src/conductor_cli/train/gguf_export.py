"""A trained model as transformers or PEFT saves it -> a GGUF file that llama.cpp runs. Needs `gguf`, not torch.

The directory is not believed: what is missing, damaged, or would be another model in llama.cpp is refused. A file is
written beside its place and gets its name when it is whole. How llama.cpp names and stores what a Qwen2 is made of:
github.com/ggml-org/llama.cpp, convert_hf_to_gguf.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.errors import ConfigError, ModelError, UsageError
from conductor_cli.models import disk
from conductor_cli.models.llama.gguf import Header, is_matrix, one_line
from conductor_cli.models.llama.gguf import TensorInfo as Described
from conductor_cli.models.llama.lora import WEIGHTS, Base, convert
from conductor_cli.models.llama.safetensors import Stored, read_index, unreadable
from conductor_cli.models.llama.writing import Kind, Tensor, Value, write
from conductor_cli.train import qwen2, vocabulary
from conductor_cli.train.dependencies import require
from conductor_cli.train.qwen2 import ARCHITECTURE, HEAD, Qwen2
from conductor_cli.train.vocabulary import read_object

FILE_TYPES: Final[Mapping[str, tuple[int, Kind]]] = {
    "f32": (0, Kind.F32),
    "f16": (1, Kind.F16),
    "bf16": (32, Kind.BF16),
    "q8_0": (7, Kind.Q8_0),
}
"""How the matrices can be stored, by the name of the file's type: llama.cpp's number of it, and theirs."""

SINGLE: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"

PIECE: Final = 1 << 24
"""Bytes of a tensor that are read at once."""

_HEADROOM: Final = 16 << 20
"""Bytes for what stands before the weights: more than the largest vocabulary takes."""

_LARGEST: Final = {Kind.F16: 65504.0, Kind.Q8_0: 65504.0 * 127}
"""The largest number that can be stored so."""

_UNTOLD: Final = ("rotary_emb.inv_freq",)
"""Ends of the names of what is computed anew and now and then saved."""

_LEFT: Final = re.compile(r"(?P<process>[1-9][0-9]{0,9})-[0-9a-f]{8}")
"""How `write` goes on with the name of a part file: the process that writes it, and a drawn number."""

_MERGED: Final = "merge an adapter first (merge_and_unload), and save the model with save_pretrained"


def export_model(source: Path, path: Path, *, name: str, file_type: str = "f16") -> Path:
    """Write the merged model in the directory `source` to `path`; norms and biases always have 32 bits.

    Raises `UsageError` for an unknown type, `ModelError` of kind `file` for what is missing, damaged or not to be
    written, `ConductorUnusable` where the disk has no room for it; nothing is left behind then.
    """
    if file_type not in FILE_TYPES:
        raise UsageError(f"there is no file type {one_line(file_type, 40)!r}", hint=f"known: {', '.join(FILE_TYPES)}")
    number, kind = FILE_TYPES[file_type]
    model, told = _settings(source)
    values: dict[str, Value] = {
        "general.type": "model", "general.architecture": ARCHITECTURE, "general.name": name,
        "general.file_type": number, **({"general.quantization_version": 2} if kind is Kind.Q8_0 else {}),
        **model.values(), **vocabulary.read(source, told, model.words),
    }  # fmt: skip
    stored, called = _weights(source, model), qwen2.names(model.layers, tied=model.tied)
    tensors = [_tensor(theirs, stored[ours], kind) for ours, theirs in called.items()]
    _make_room(path, sum(tensor.size for tensor in tensors) + _HEADROOM)
    write(path, values, tensors)
    return path


def export_adapter(source: Path, base: Path, path: Path) -> Path:
    """Write the LoRA in the directory `source` to `path`, for `base`: a GGUF file, or a directory of transformers.

    Raises `ModelError` of kind `file` for what is missing, damaged or not to be written, `ConductorUnusable` where the
    disk has no room for it; nothing is left behind then.
    """
    over = _base(base) if base.is_dir() else Base(base)
    try:
        size = 2 * (source / WEIGHTS).stat().st_size
    except OSError as error:
        raise unreadable(source / WEIGHTS, error) from error
    _make_room(path, size)
    convert(source, over, path)
    return path


def _base(directory: Path) -> Base:
    model, _ = _settings(directory)
    values = {"general.architecture": ARCHITECTURE, **model.values()}
    words = {"tokenizer.ggml.tokens": (8, model.words)}
    return Base(directory, Header(version=3, tensors=0, values=values, arrays=words), tied=model.tied)


def _settings(source: Path) -> tuple[Qwen2, dict[str, Any]]:
    """What `config.json` tells, read and as it is."""
    path = source / "config.json"
    told = read_object(path)
    try:
        return qwen2.read(told), told
    except ConfigError as error:
        raise ModelError("file", f"{path}: {error.message}", hint="name a directory with a trained Qwen2") from error


def _weights(source: Path, model: Qwen2) -> dict[str, Stored]:
    """Where each weight stands, by its name in transformers: all that a model needs, in the shapes it needs."""
    found: dict[str, Stored] = {}
    for file in _files(source):
        index = read_index(file)
        if twice := next((name for name in index if name in found), None):
            raise ModelError("file", f"{source} has {one_line(twice)} twice", hint=_MERGED)
        found |= index
    shapes = model.shapes()
    more = [name for name in found if name not in shapes and name != HEAD and not name.endswith(_UNTOLD)]
    if more:
        raise ModelError("file", f"{source} has {one_line(more[0])}, which is no part of a Qwen2", hint=_MERGED)
    for name, shape in shapes.items():
        if name not in found:
            raise ModelError("file", f"{source} lacks {name}", hint="copy all files of the model")
        if found[name].shape != shape:
            raise ModelError(
                "file", f"{source}: {name} has the shape {found[name].shape}, and {shape} is what config.json tells",
                hint="copy all files of one model",
            )  # fmt: skip
    return found


def _files(source: Path) -> tuple[Path, ...]:
    """The files with the weights. Their names come from a file, and stay in its directory."""
    if (source / SINGLE).is_file():
        return (source / SINGLE,)
    if not (source / INDEX).is_file():
        raise ModelError(
            "file", f"{source} holds no {SINGLE}, so there is no model in it",
            hint=_MERGED if (source / WEIGHTS).exists() else "save the model with save_pretrained",
        )  # fmt: skip
    told = read_object(source / INDEX).get("weight_map")
    files = set(told.values()) if isinstance(told, dict) and all(isinstance(to, str) for to in told.values()) else set()
    if not files or any(Path(file).name != file or not file.endswith(".safetensors") for file in files):
        raise ModelError("file", f"{source / INDEX} is damaged: it does not name its files", hint=_MERGED)
    return tuple(source / file for file in sorted(files))


def _tensor(name: str, stored: Stored, kind: Kind) -> Tensor:
    """One tensor of the file. Its numbers are read when it is written."""
    if not is_matrix(name, Described(shape=stored.shape, kind=0)):
        kind = Kind.F32
    elif stored.shape[-1] % kind.block[0]:
        kind = Kind.F16
    return Tensor(name=name, shape=stored.shape, kind=kind, parts=_pieces(name, stored, kind))


def _pieces(name: str, stored: Stored, kind: Kind) -> Iterator[bytes]:
    """Some rows after the other, so that a large matrix never stands in memory whole."""
    import numpy as np

    with require("gguf"):
        from gguf import GGMLQuantizationType
        from gguf.quants import quantize

    row = stored.size // stored.shape[0]
    step = max(1, PIECE // row)
    for at in range(0, stored.shape[0], step):
        count = min(step, stored.shape[0] - at)
        part = replace(
            stored, shape=(count, *stored.shape[1:]), start=stored.start + at * row, size=count * row
        ).numbers()
        if np.abs(part).max() > _LARGEST.get(kind, np.inf):
            said = f"{stored.path}: {name} has numbers that are too large for {kind.name.lower()}"
            raise ModelError("file", said, hint="write bf16 or f32 instead")
        yield quantize(part, GGMLQuantizationType(kind)).tobytes()


def _make_room(path: Path, size: int) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        disk.check_room(path.parent, size)
    except OSError as error:
        raise ModelError("file", f"{path} cannot be written: {error.strerror}", hint="name another place") from error


def _sweep(path: Path) -> None:
    """Take away the part files of exports to `path` that were killed."""
    for left in path.parent.iterdir():
        match = _LEFT.fullmatch(left.name.removeprefix(f".{path.name}."))
        if match is not None and left.name.startswith(f".{path.name}.") and not _is_alive(int(match["process"])):
            left.unlink()


def _is_alive(process: int) -> bool:
    if os.name != "posix":  # there the call below would end it
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True

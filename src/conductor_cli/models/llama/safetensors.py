"""What stands in a safetensors file (github.com/huggingface/safetensors), read without the library of that name.

Eight bytes of length, JSON, the bytes of the tensors. Nothing here believes the file.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama.gguf import MAX_STRING_BYTES, one_line

AGAIN: Final = "get it again, or save it anew"

_SIZES: Final = {"F32": 4, "F16": 2, "BF16": 2}
_SIDES: Final = 8
_LONGEST_SIDE: Final = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Where a tensor stands: its first byte and its size in bytes."""

    path: Path
    kind: str
    shape: tuple[int, ...]
    start: int
    size: int

    def numbers(self) -> Any:  # noqa: ANN401 - a numpy array
        """The tensor, with 32 bits a number. Raises `ModelError` of kind `file`."""
        import numpy as np

        try:
            with self.path.open("rb") as file:
                file.seek(self.start)
                data = file.read(self.size)
        except OSError as error:
            raise unreadable(self.path, error) from error
        if len(data) < self.size:
            raise damaged(self.path, "was cut off while it was read")
        if self.kind == "BF16":
            found = (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
        else:
            found = np.frombuffer(data, "<f4" if self.kind == "F32" else "<f2").astype("<f4")
        if not np.isfinite(found).all():
            raise damaged(self.path, "is damaged: it has weights that are no numbers")
        return found.reshape(self.shape)


def read_index(path: Path) -> dict[str, Stored]:
    """The tensors of a file, by name. Raises `ModelError` of kind `file`, and nothing else."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, MAX_STRING_BYTES):
                raise damaged(path, "is cut off, or no safetensors file")
            told = read_json(path, file.read(length))
    except OSError as error:
        raise unreadable(path, error) from error
    told.pop("__metadata__", None)
    index = {name: _stored(path, name, entry, 8 + length) for name, entry in told.items()}
    _check_places(path, index, 8 + length, size)
    return index


def read_json(path: Path, data: bytes) -> dict[str, Any]:
    """The object that `data`, from `path`, spells. Raises `ModelError` of kind `file`."""
    try:
        told = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise damaged(path, "is damaged: it is no JSON where JSON should be") from error
    if not isinstance(told, dict):
        raise damaged(path, "is damaged: its JSON is no object")
    return told


def damaged(path: Path, problem: str) -> ModelError:
    """The error for a file that is not as its maker wrote it."""
    return ModelError("file", f"{path} {problem}", hint=AGAIN)


def unreadable(path: Path, error: OSError) -> ModelError:
    """The error for a file that the system does not give."""
    return ModelError("file", f"{path} cannot be read: {error.strerror}", hint="check the path")


def _stored(path: Path, name: str, entry: object, begin: int) -> Stored:
    match entry:
        case {"dtype": str(kind), "shape": [*sides], "data_offsets": [int(start), int(end)]}:
            shape = tuple(side for side in sides if type(side) is int and 0 <= side < _LONGEST_SIDE)
        case _:
            raise damaged(path, f"is damaged: {one_line(name)} is not described")
    if kind not in _SIZES:
        raise ModelError(
            "file", f"{path}: {one_line(name)} is stored as {one_line(kind)}", hint="save it as F32, F16 or BF16"
        )
    if len(shape) != len(sides) or len(shape) > _SIDES or end - start != math.prod(shape) * _SIZES[kind]:
        raise damaged(path, f"is damaged: {one_line(name)} has another size than its shape")
    return Stored(path=path, kind=kind, shape=shape, start=begin + start, size=end - start)


def _check_places(path: Path, index: dict[str, Stored], begin: int, size: int) -> None:
    """The tensors fill the file, one after the other, as the format wants it."""
    at = begin
    for stored in sorted(index.values(), key=lambda stored: (stored.start, stored.size)):
        if stored.start != at:
            raise damaged(path, "is damaged: its tensors overlap or leave gaps")
        at += stored.size
    if at != size:
        raise damaged(path, f"is cut off or damaged: it has {size} bytes, and should have {at}")

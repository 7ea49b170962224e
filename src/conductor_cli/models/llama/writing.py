"""A small writer of GGUF files: metadata and tensors, whole or not at all.

The format: github.com/ggml-org/ggml, docs/gguf.md, version 3, little-endian. The package `gguf` does more, but is not
among what this program installs.
"""

from __future__ import annotations

import os
import secrets
import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from math import prod
from pathlib import Path
from typing import BinaryIO, Final

from conductor_cli.core.errors import ModelError
from conductor_cli.models.disk import DISK_FULL_ERRORS

Value = str | bool | int | float | Sequence[str] | Sequence[bool] | Sequence[int] | Sequence[float]
"""What a key may hold. A whole number has 32 bits without a sign, in a list with one, as llama.cpp wants both."""

ALIGNMENT: Final = 32

_ARRAY: Final = 9


class Kind(IntEnum):
    """How the numbers of a tensor are stored. The values are those of ggml."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q8_0 = 8
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    BF16 = 30

    @property
    def block(self) -> tuple[int, int]:
        """How many numbers stand together, and in how many bytes."""
        return _BLOCKS[self]


_BLOCKS: Final = {
    Kind.F32: (1, 4),
    Kind.F16: (1, 2),
    Kind.Q4_0: (32, 18),
    Kind.Q8_0: (32, 34),
    Kind.Q4_K: (256, 144),
    Kind.Q5_K: (256, 176),
    Kind.Q6_K: (256, 210),
    Kind.BF16: (1, 2),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor: `shape` as numpy has it, rows before columns; `parts` are its bytes in order, in any pieces."""

    name: str
    shape: tuple[int, ...]
    kind: Kind
    parts: Iterable[bytes]

    @property
    def size(self) -> int:
        """In bytes. Raises `ValueError` where a row is not made of whole blocks."""
        numbers, size = self.kind.block
        if self.shape[-1] % numbers:
            raise ValueError(f"{self.name}: a row of {self.shape[-1]} does not divide into blocks of {numbers}")
        return prod(self.shape) // numbers * size


def write(path: Path, values: Mapping[str, Value], tensors: Sequence[Tensor]) -> None:
    """Make the file, or leave `path` as it was. Raises `ModelError` of kind `file` where the disk refuses."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            file.write(_header(values, tensors))
            for tensor in tensors:
                _write_tensor(file, tensor)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise _refused(path, error, sum(tensor.size for tensor in tensors)) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def _refused(path: Path, error: OSError, size: int) -> ModelError:
    hint = "check that the directory is there and can be written to"
    if error.errno in DISK_FULL_ERRORS:
        hint = f"make room on the disk: {size / 1e6:.0f} MB are needed"
    return ModelError("file", f"{path} cannot be written: {error.strerror}", hint=hint)


def _header(values: Mapping[str, Value], tensors: Sequence[Tensor]) -> bytes:
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(values))]
    parts += [_text(name) + _typed(value) for name, value in values.items()]
    at = 0
    for tensor in tensors:
        shape = tensor.shape[::-1]  # the fastest dimension first
        parts.append(_text(tensor.name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, tensor.kind, at))
        at += tensor.size + _padding(tensor.size)
    header = b"".join(parts)
    return header + bytes(_padding(len(header)))


def _write_tensor(file: BinaryIO, tensor: Tensor) -> None:
    written = sum(file.write(part) for part in tensor.parts)
    if written != tensor.size:
        raise ValueError(f"{tensor.name}: {written} bytes, {tensor.size} wanted")
    file.write(bytes(_padding(written)))


def _padding(size: int) -> int:
    return -size % ALIGNMENT


def _typed(value: Value) -> bytes:
    if isinstance(value, str | bool | int | float):
        kind, data = _scalar(value)
        return struct.pack("<I", kind) + data
    items = [_scalar(item, whole=(5, "<i")) for item in value]
    kinds = {kind for kind, _ in items}
    if len(kinds) != 1:
        raise ValueError("a list needs items, all of one type")
    return struct.pack("<IIQ", _ARRAY, *kinds, len(items)) + b"".join(data for _, data in items)


def _scalar(value: str | float, whole: tuple[int, str] = (4, "<I")) -> tuple[int, bytes]:
    """The number of the type, and the bytes."""
    if isinstance(value, str):
        return 8, _text(value)
    if isinstance(value, bool):  # a `bool` is an `int` too
        return 7, struct.pack("<?", value)
    number, form = whole if isinstance(value, int) else (6, "<f")
    return number, struct.pack(form, value)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data

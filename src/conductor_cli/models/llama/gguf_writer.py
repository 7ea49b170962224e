"""Writing a GGUF file completely or not at all, with the writer of the package `gguf`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gguf import GGUFWriter

from conductor_cli.core.errors import ModelError
from conductor_cli.core.formatting import format_size


class LazyTensor(NamedTuple):
    """A tensor of a file. `load` gives its numpy array of this shape and type when it is written.

    So one array is in memory at a time, and not the whole model.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    load: Callable[[], Any]

    @property
    def bytes(self) -> int:
        return int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize


def new_writer(architecture: str) -> Any:  # noqa: ANN401 - gguf has no types
    """A writer for the metadata of a file."""
    return GGUFWriter(None, architecture)


def write_gguf(path: Path, writer: Any, tensors: Sequence[LazyTensor]) -> None:  # noqa: ANN401
    """Write the metadata and the tensors to `path`, or leave it as it was. Raises `ModelError` of kind `file`."""
    for tensor in tensors:
        writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(tensor.dtype), tensor.bytes)
    # A fixed name: what a killed process leaves under it is overwritten by the next export.
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        writer.write_header_to_file(part)
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor in tensors:
            array = tensor.load()
            assert array.shape == tensor.shape, tensor.name
            writer.write_tensor_data(np.ascontiguousarray(array, dtype=tensor.dtype))
        writer.flush()
        os.fsync(writer.fout[0].fileno())
        writer.close()
        part.replace(path)
    except OSError as error:
        # numpy reports a short write without an error number: the disk is full.
        size = format_size(sum(tensor.bytes for tensor in tensors))
        raise ModelError(
            "file",
            f"{path} cannot be written: {error.strerror or 'the disk is full'}",
            hint=f"check the directory and its permissions, and that {size} are free on the disk",
        ) from error
    finally:
        with suppress(OSError):
            writer.close()
        with suppress(OSError):
            part.unlink()

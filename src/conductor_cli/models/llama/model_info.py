"""What a model file is, in a few words, and the files that a split model consists of."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama.gguf import (
    MAX_LAYERS,
    MEBIBYTE,
    Header,
    TensorInfo,
    check_model_file,
    read_header,
    read_header_and_tensors,
    short_line,
)

PART_NAME: Final = re.compile(r"(?P<name>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf")
"""The names of the parts of a split model; llama.cpp finds the others by the name of the first."""

MAX_PARTS: Final = 10 * MAX_LAYERS
"""No model has more parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """A model file in a few words. `size` is in bytes, of all parts together.

    `identity` is a hash of the sizes and of the first and last mebibyte of each part: a hash of the whole file would
    take a minute.
    """

    name: str
    architecture: str
    context: int
    size: int
    identity: str


def read_model_info(path: Path) -> ModelInfo:
    """What `path` is, in milliseconds whatever its size. Raises `ModelError` of kind `file`."""
    header = read_header(path, brief=True)
    context = header.values.get(f"{header.architecture}.context_length", 0)
    # A changed file nearly always has another size, header or end. A state on disk of another model would be harmful.
    size, digest = 0, hashlib.sha256()
    for part in part_files(path):
        try:
            length = part.stat().st_size
            with part.open("rb") as file:
                digest.update(str(length).encode() + file.read(MEBIBYTE))
                file.seek(max(0, length - MEBIBYTE))
                digest.update(file.read(MEBIBYTE))
        except OSError as error:
            raise ModelError("file", f"cannot read {part}: {error.strerror}", hint="check the path") from error
        size += length
    return ModelInfo(
        name=short_line(str(header.values.get("general.name", ""))) or path.stem,
        architecture=short_line(header.architecture),
        context=context if isinstance(context, int) else 0,
        size=size,
        identity=f"sha256-ends:{digest.hexdigest()}",
    )


def part_names(name: str) -> list[str]:
    """The names of all parts of the model that a file with this name belongs to; the name alone for a whole one."""
    match = PART_NAME.fullmatch(name)
    count = int(match["count"]) if match else 1
    if match is None or not 1 < count <= MAX_PARTS:
        return [name]
    return [f"{match['name']}-{number:05}-of-{match['count']}.gguf" for number in range(1, count + 1)]


def part_files(path: Path) -> tuple[Path, ...]:
    """All files of the model whose first is `path`, found by their names. Raises `ModelError` of kind `file`."""
    match = PART_NAME.fullmatch(path.name)
    if match is None or int(match["count"]) < 2:
        return (path,)
    count = int(match["count"])
    if count > MAX_PARTS:
        raise ModelError("file", f"the name of {path} says that it is one of {count} files", hint="name another file")
    files = [path.with_name(name) for name in part_names(path.name)]
    if int(match["number"]) != 1:
        raise ModelError("file", f"{path} is not the first part of its model", hint=f"name the first part: {files[0]}")
    missing = [file.name for file in files if not file.exists()]
    if missing:
        shown = ", ".join(missing[:3]) + (" and more" if len(missing) > 3 else "")
        hint = "put all parts in one directory"
        raise ModelError("file", f"{path} is the first part of a split model; missing: {shown}", hint=hint)
    return tuple(files)


def read_all_tensors(path: Path) -> dict[str, TensorInfo]:
    """What the headers of all parts of a model say of its tensors, by name. Raises `ModelError` of kind `file`."""
    return {name: tensor for part in part_files(path) for name, tensor in read_header_and_tensors(part)[1].items()}


def check_whole_model(path: Path) -> Header:
    """The header of a model's only or first file, if llama.cpp may see all of its parts.

    Raises `ModelError` of kind `file`.
    """
    # The names come first: a further part has no header that could be checked, and its name tells what it is.
    files = part_files(path)
    header = check_model_file(path)
    count = header.values.get("split.count", 1)
    if count in (0, 1) and len(files) == 1:
        return header
    if count != len(files):
        raise ModelError(
            "file", f"{path} says that its model has {short_line(str(count))} parts, and its name says {len(files)}",
            hint="the parts must be called NAME-00001-of-0000N.gguf and so on",
        )  # fmt: skip
    for number, file in enumerate(files):
        other = header if number == 0 else check_model_file(file, first=False)
        if other.values.get("split.no") != number or other.values.get("split.count") != count:
            raise ModelError("file", f"{file} is not part {number + 1} of this model", hint="get the file again")
    return header

"""Whether a file that nobody vouches for is what it should be, as far as its header tells: a model, and which part."""

from __future__ import annotations

from pathlib import Path

from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama import gguf
from conductor_cli.models.llama.model_info import check_parts, part_files


def check_whole(path: Path) -> gguf.Header:
    """The header of a model's only or first file, all of whose parts are there. Raises `ModelError` of kind `file`."""
    part_files(path)  # first: a further part has no header that could be checked
    header = gguf.check_model_file(path)
    check_parts(path, header)
    return header


def check_piece(path: Path, number: int, count: int, *, adapter: bool) -> None:
    """Whether a file, whatever it is called, is part `number` of `count` of a model or of an adapter.

    Raises `ModelError` of kind `file`.
    """
    header = gguf.check_model_file(path) if number == 1 else gguf.check_part_file(path)
    if number == 1 and is_adapter(header) != adapter:
        kinds = ("a whole model", "an adapter")
        raise ModelError("file", f"{path} is {kinds[not adapter]}, and {kinds[adapter]} was expected")
    found = (header.values.get("split.no", 0), header.values.get("split.count", 1) or 1)
    if found != (number - 1, count):
        raise ModelError("file", f"{path} is not part {number} of {count} of a model")


def is_adapter(header: gguf.Header) -> bool:
    """Whether a GGUF file holds an adapter, which is no model by itself."""
    return header.values.get("general.type") == "adapter"

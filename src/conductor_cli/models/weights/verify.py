"""Reading model files again and comparing them with what is known of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama import gguf
from conductor_cli.models.llama.model_info import check_parts, part_files
from conductor_cli.models.weights.hashing import hash_file
from conductor_cli.models.weights.model_store import Manifest, ModelFile
from conductor_cli.models.weights.progress import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFile:
    """A file that was read again. `problem` is empty where it is whole, `sha256` where it could not be read."""

    path: Path
    sha256: str = ""
    problem: str = ""


def verify_model(manifest: Manifest, report: Report) -> tuple[CheckedFile, ...]:
    """Read every file of a model and compare it with the manifest; the header is checked, too."""
    return tuple(_verify_file(file, manifest, report) for file in manifest.files)


def verify_unknown_file(path: Path, report: Report) -> CheckedFile:
    """Check the header of a file without a manifest, and compute its SHA-256, which nothing can be compared with."""
    try:
        check_whole_model(path)
        return CheckedFile(path=path, sha256=hash_file(path, report).sha256)
    except ModelError as error:
        return CheckedFile(path=path, problem=error.message)


def _verify_file(file: ModelFile, manifest: Manifest, report: Report) -> CheckedFile:
    path = file.path
    try:
        size = path.stat().st_size
        # A file that was cut short need not be read: gigabytes take minutes.
        if size != file.size:
            return CheckedFile(path=path, problem=f"it has {size:,} bytes instead of {file.size:,}")
        sha256 = hash_file(path, report).sha256
        if sha256 != file.sha256:
            return CheckedFile(path=path, sha256=sha256, problem=f"its SHA-256 should be {file.sha256}")
        if path == manifest.path:
            check_whole_model(path)
    except OSError as error:
        return CheckedFile(path=path, problem=f"it cannot be read: {error.strerror}")
    except ModelError as error:
        return CheckedFile(path=path, problem=error.message)
    return CheckedFile(path=path, sha256=sha256)


def check_whole_model(path: Path) -> gguf.Header:
    """The header of a model's only or first file, all of whose parts are there. Raises `ModelError` of kind `file`."""
    part_files(path)  # before the header: a further part has none that could be checked
    header = gguf.check_model_file(path)
    check_parts(path, header)
    return header


def check_part(path: Path, number: int, count: int, *, adapter: bool) -> None:
    """Check that a file, whatever its name, is part `number` of `count` of a model or of an adapter.

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
    """Whether a GGUF file holds a LoRA adapter, which is not a model by itself."""
    return header.values.get("general.type") == "adapter"

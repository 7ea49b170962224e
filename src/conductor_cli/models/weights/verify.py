"""Whether model files can be used and are what is known of them, and how to repair a model."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.errors import ModelError
from conductor_cli.core.pool import Worker
from conductor_cli.models.llama import gguf
from conductor_cli.models.llama.gguf import check_whole_model
from conductor_cli.models.router import SUFFIX, RouterFile, check_encoder, read_planner
from conductor_cli.models.weights.model_store import MANIFEST, Manifest, ModelStore
from conductor_cli.models.weights.registry import listed_model

PIECE: Final = 4 << 20  # Bytes that are read at once

Report = Callable[[str, int, int], None]
"""Hears what is done with which file, how many bytes of it are done, and how many there are; 0 if
that is unknown.
"""


def hash_file(path: Path, report: Report = lambda *_: None, name: str = "") -> str:
    """Read the whole file; progress is reported under `name`.

    Raises `ModelError` of kind `file`.
    """
    digest = hashlib.sha256()
    done = 0
    buffer = memoryview(bytearray(PIECE))
    try:
        with path.open("rb", buffering=0) as file:
            total = path.stat().st_size
            while size := file.readinto(buffer):
                digest.update(buffer[:size])
                done += size
                report(f"checking {name or path.name}", done, total)
    except OSError as error:
        message = f"cannot read {path}: {error.strerror}"
        raise ModelError("file", message, hint="check the path and its permissions") from None
    return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFile:
    """A file of the model `name` that was looked at.

    `problem` is empty where it is whole, and `hint` says how to repair it; `sha256` is empty where
    it was not read. `compared` says what the SHA-256 was compared with.
    """

    name: str
    path: Path
    sha256: str = ""
    compared: str = ""
    problem: str = ""
    hint: str = ""

    def to_json(self) -> dict[str, Any]:
        state = "damaged" if self.problem else "ok"
        values = {
            **asdict(self),
            "path": str(self.path),
            "state": state,
            "hint": self.hint if self.problem else "",
        }
        return {key: value or None for key, value in values.items()}


def verify_model(
    manifest: Manifest, environ: Mapping[str, str], report: Report
) -> list[CheckedFile]:
    """Read every file of a model and compare it with the manifest; the header is checked, too."""
    compared = _describe_comparison(manifest)
    hint = repair_hint(manifest, environ)
    whole = CheckedFile(name=manifest.name, path=manifest.path, compared=compared, hint=hint)
    checked = []
    for file in manifest.files:
        sha256 = ""
        problem = ""
        try:
            size = file.path.stat().st_size
            # A file that was cut short need not be read: gigabytes take minutes.
            if size != file.size:
                problem = f"it has {size:,} bytes instead of {file.size:,}"
            elif (sha256 := hash_file(file.path, report)) != file.sha256:
                problem = f"its SHA-256 should be {file.sha256}"
            elif file.path == manifest.path:
                check_whole_model(file.path)
        except (OSError, ModelError) as error:
            sha256 = ""
            problem = (
                error.message
                if isinstance(error, ModelError)
                else f"it cannot be read: {error.strerror}"
            )
        checked.append(replace(whole, path=file.path, sha256=sha256, problem=problem))
    return checked


def find_problems(store: ModelStore, environ: Mapping[str, str]) -> list[CheckedFile]:
    """Return manifests that cannot be read, and files that are missing or have another size.

    No file is read.
    """
    damaged = []
    for name, problem in store.damaged().items():
        checked_file = CheckedFile(
            name=name,
            path=store.folder(name) / MANIFEST,
            problem=problem,
            hint=f"conductor model rm {name}; then pull or import it again",
        )
        damaged.append(checked_file)
    for manifest in store.manifests():
        fault = manifest.fault()
        if fault:
            hint = repair_hint(manifest, environ)
            damaged.append(
                CheckedFile(name=manifest.name, path=manifest.path, problem=fault, hint=hint)
            )
    return damaged


def describe_hash_source(manifest: Manifest) -> str:
    """Return what the SHA-256 of a model was compared with."""
    if manifest.is_packaged:
        return "unpacked from a file of this package that matches its record"
    return {
        "registry": "matches conductor's registry",
        "hub": (
            f"checksum reported by {manifest.endpoint} only, not independently verified; saved "
            "for next time"
        ),
        "file": "nothing to compare it with; saved for next time",
    }[manifest.hash_source]


def _describe_comparison(manifest: Manifest) -> str:
    """Return what the SHA-256 of a model that is read again was compared with."""
    if manifest.is_packaged:
        return "matches what was unpacked from this package"
    return {
        "registry": "matches conductor's registry",
        "hub": f"matches the checksum that {manifest.endpoint} reported when it was pulled",
        "file": "matches the file that was imported",
    }[manifest.hash_source]


def repair_hint(manifest: Manifest, environ: Mapping[str, str]) -> str:
    """Return what restores exactly this model.

    Importing the file that it was made from, or else a pull.
    """
    kind, _, source = manifest.source.partition(":")
    base = ""
    if manifest.base:
        base = f" --base {shlex.quote(manifest.base)}"
    path = shlex.quote(source) if kind == "file" else "FILE"
    command = f"conductor model import {path} --name {manifest.name}{base}"
    if kind == "file" and Path(source).exists():
        return f"if {source} is whole: {command}"
    if listed_model(manifest.name, environ) is not None:
        return f"conductor model pull {manifest.name}"
    if (files := manifest.repo_files) and not manifest.base:
        return f"conductor model pull {manifest.repo}:{files[0]}"
    return f"get {source} again, then: {command}"


def check_model_of(worker: Worker) -> None:
    """Check the files of a model that this machine loads, as far as that goes without loading it.

    They are a model with its adapter, or a router with the model that reads questions. Of any other
    worker nothing is checked. Raises `ModelError` of kind `file`.
    """
    if worker.kind != "llama":
        return
    path = Path(worker.model).expanduser()
    if path.suffix == SUFFIX and isinstance(router := read_planner(path), RouterFile):
        check_encoder(router)
        return
    header = check_whole_model(path)
    if is_adapter(header):
        problem = f"{path} is an adapter, which is not a model by itself"
        hint = f"name its base: conductor model import {shlex.quote(str(path))} --base NAME|FILE"
        raise ModelError("file", problem, hint=hint)
    if adapter := worker.options.get("adapter"):
        from conductor_cli.models.llama.lora import check_adapter  # needs numpy

        check_adapter(Path(adapter).expanduser(), header, path)


def is_adapter(header: gguf.Header) -> bool:
    """Return whether a GGUF file holds a LoRA adapter, which is not a model by itself."""
    return header.values.get("general.type") == "adapter"

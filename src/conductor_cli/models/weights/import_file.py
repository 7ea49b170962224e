"""Importing a model file that is on this machine: checked, hashed, recognised, and not stored twice.

A file on the model store's own disk gets a second name there (a hard link), so that it stays when the first name is
deleted. A file on another disk is used from where it lies, unless a copy is asked for.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from conductor_cli.core.errors import ConductorUnusable, ModelError, UsageError
from conductor_cli.models import disk
from conductor_cli.models.llama import gguf
from conductor_cli.models.llama.gguf import check_whole_model, part_files
from conductor_cli.models.weights.model_store import Manifest, ModelFile, ModelStore
from conductor_cli.models.weights.registry import RegistryModel, find_registry_model, load_registry
from conductor_cli.models.weights.verify import Report, hash_file, is_adapter, read_pieces, verify_model

_PART: Final = re.compile(r"-\d{5}-of-\d{5}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """What to import. `name` may be empty; `base` belongs to adapters; `copy` copies the file instead of linking it."""

    path: Path
    name: str = ""
    base: str = ""
    copy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    """`existed`: the model was there already. `stored`: the model store has the files, not only their paths."""

    manifest: Manifest
    existed: bool = False
    stored: bool = True


def import_model(request: ImportRequest, store: ModelStore, environ: Mapping[str, str], report: Report) -> ImportResult:
    """Import a GGUF file, all parts of a divided one, or a LoRA in PEFT format.

    Raises `ModelError` of kind `file` for an unusable file, `ConductorUnusable` for an unknown base or a full disk,
    `UsageError` for a name that is taken.
    """
    if not (request.path.is_dir() or request.path.suffix == ".safetensors"):
        return _import_file(request, request.path.absolute(), store, environ, report)
    from conductor_cli.models.llama.lora import CONFIG, convert_adapter  # needs numpy

    directory = request.path if request.path.is_dir() else request.path.parent
    if not (directory / CONFIG).is_file():
        raise ModelError(
            "file", f"{directory} has no {CONFIG}, so there is no LoRA in it",
            hint="to import a whole model, name its GGUF file",
        )  # fmt: skip
    base, base_path = _resolve_base(request, store, environ)
    if base_path is None:
        raise ConductorUnusable(f"the base model {base} is not downloaded yet", hint=f"conductor model pull {base}")
    header = gguf.check_model_file(base_path)
    request = replace(request, name=request.name or derive_name(directory.absolute()))
    store.folder(request.name)  # the name is checked before it becomes a file's
    try:
        disk.make_private_directory(store.directory)
        with tempfile.TemporaryDirectory(dir=store.directory, prefix=".") as place:
            converted = Path(place) / f"{request.name}.gguf"
            convert_adapter(
                request.path, converted, architecture=header.architecture, layers=header.layers, heads=header.heads
            )
            return _import_file(request, converted, store, environ, report)
    except OSError as error:
        raise _cannot_store(store.directory, error) from None


def _import_file(
    request: ImportRequest, path: Path, store: ModelStore, environ: Mapping[str, str], report: Report
) -> ImportResult:
    """Import the GGUF file at `path`, which is the one of the request, or an adapter that was converted from it."""
    header, base = check_whole_model(path), ""
    if is_adapter(header):
        base, base_path = _resolve_base(request, store, environ)
        if base_path is not None:
            from conductor_cli.models.llama.lora import check_adapter  # needs numpy

            check_adapter(path, gguf.check_model_file(base_path), base_path, source=request.path)
    elif request.base:
        raise UsageError(f"{request.path} is a whole model, not an adapter", hint="leave --base out")
    # Headers are checked first: hashing takes minutes, and a wrong file should be rejected at once.
    files = tuple(
        ModelFile(path=part, size=part.stat().st_size, sha256=hash_file(part, report)) for part in part_files(path)
    )
    known = recognise_model(files, environ, strict=not request.name)
    name = request.name or (known.name if known else derive_name(path))
    folder = store.folder(name)
    # A later `pull` of a name of the registry would replace the imported model without a question.
    if (known is None or known.name != name) and any(other.name == name for other in load_registry(environ)):
        raise UsageError(f"{name} is another model of the registry", hint="use another name: --name OTHER")
    replaced = store.find(name)
    if replaced is not None and not replaced.fault():
        if replaced.hashes != [file.sha256 for file in files]:
            raise UsageError(
                f"another model is called {name}: {replaced.path}",
                hint=f"--name OTHER, or first: conductor model rm {name}",
            )
        # The model is there already if its files are whole; they are read for that.
        if not (
            request.copy or replaced.base != base
            or any(file.problem for file in verify_model(replaced, environ, report))
        ):  # fmt: skip
            stored = all(file.path.parent == folder for file in replaced.files)
            return ImportResult(manifest=replaced, existed=True, stored=stored)

    copy = request.copy or path != request.path.absolute()
    with ExitStack() as lock:
        # Other imports are kept out: what lies unfinished in the store is of one that was stopped.
        try:
            lock.enter_context(store.lock(lambda: report("waiting for another import", 0, 0)))
        except OSError as error:
            raise _cannot_store(store.directory, error) from None
        stored_files, created = _store_files(files, folder, copy=copy)
        try:
            verified = known is not None and all(part.sha256 for part in known.parts)
            licence = gguf.short_line(str(header.values.get("general.license", "")), 60)
            manifest = Manifest(
                name=name, files=stored_files or files, source=f"file:{request.path.absolute()}",
                hash_source="registry" if verified else "file", licence=known.licence if known else licence,
                profile=known.profile if known else "prompted", base=base,
                at=datetime.now(UTC).isoformat(timespec="seconds"),
            )  # fmt: skip
            store.write(manifest)
        except BaseException:  # Ctrl-C too
            _delete_files(created, folder)  # nothing would lead to them
            raise
    # The files of a damaged model that this one replaces are in the way of nothing, but nobody would find them again.
    current = {file.path for file in manifest.files}
    outdated = [file.path for file in replaced.files if file.path not in current] if replaced is not None else []
    _delete_files([path for path in outdated if path.parent == folder], folder)
    return ImportResult(manifest=manifest, stored=stored_files is not None)


def derive_name(path: Path) -> str:
    """Return a name for the model store from a file's name."""
    stem = _PART.sub("", path.stem if path.suffix in {".gguf", ".safetensors"} else path.name)
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:80] or "model"


def recognise_model(
    files: Sequence[ModelFile], environ: Mapping[str, str], *, strict: bool = True
) -> RegistryModel | None:
    """Return the registry's model that these files are, by SHA-256, or where the registry has none by name and size.

    Raises `ModelError` where name and size match and the SHA-256 does not, if `strict`.
    """
    for model in load_registry(environ):
        if len(model.parts) != len(files):
            continue
        pairs = list(zip(model.parts, files, strict=True))
        alike = all(part.size == file.size and Path(part.file).name == file.path.name for part, file in pairs)
        if all(part.sha256 == file.sha256 if part.sha256 else alike for part, file in pairs):
            return model
        if alike and strict:
            raise ModelError(
                "file", f"{files[0].path} has the name and size of {model.name}, but another SHA-256",
                hint=f"it is damaged, or another file: conductor model pull {model.name}, or import it with --name",
            )  # fmt: skip
    return None


def _resolve_base(request: ImportRequest, store: ModelStore, environ: Mapping[str, str]) -> tuple[str, Path | None]:
    """Return an adapter's base as its manifest stores it, and its file; None where that is not downloaded yet.

    A stored model or one of the registry is kept by name, a file by its absolute path.
    """
    if not request.base:
        raise UsageError(f"{request.path} is an adapter", hint="name the model it was trained for: --base NAME|FILE")
    manifest = store.find(request.base)
    path = Path(request.base).expanduser().absolute() if manifest is None else manifest.path
    if manifest is None and not path.is_file():
        return find_registry_model(request.base, environ).name, None
    if is_adapter(gguf.check_model_file(path)):
        raise UsageError(f"--base {request.base} is an adapter itself", hint="name the model it was trained for")
    return (str(path) if manifest is None else manifest.name), path


def _store_files(
    files: Sequence[ModelFile], folder: Path, *, copy: bool
) -> tuple[tuple[ModelFile, ...] | None, list[Path]]:
    """Return the files under names in the store, and those that are new there; None where only a copy could do that."""
    if copy:  # a link takes no room
        disk.check_room(folder, sum(file.size for file in files))
    created: list[Path] = []
    try:
        disk.make_private_directory(folder)
        for unfinished in folder.glob(".*.new"):
            unfinished.unlink()
        for file in files:
            target = folder / file.path.name
            existed = target.exists()
            if copy or not (existed and target.samefile(file.path)):
                with disk.temporary_path(target) as new:
                    if copy:
                        _copy_file(file, new)
                    else:
                        os.link(file.path.resolve(), new)
                    new.replace(target)
                created += [] if existed else [target]
    except BaseException as error:  # Ctrl-C too
        _delete_files(created, folder)
        if not isinstance(error, OSError):
            raise
        if not copy:  # another disk, or a file system without hard links
            return None, []
        raise _cannot_store(folder, error) from None
    return tuple(replace(file, path=folder / file.path.name) for file in files), created


def _delete_files(paths: Sequence[Path], folder: Path) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)
    with suppress(OSError):  # other files are in it
        folder.rmdir()


def _copy_file(file: ModelFile, new: Path) -> None:
    """Copy a file and check that the copy is what was hashed. Raises `OSError` or `ModelError`."""
    digest = hashlib.sha256()
    with new.open("xb") as copy:
        for piece in read_pieces(file.path):
            digest.update(piece)
            copy.write(piece)
        copy.flush()
        os.fsync(copy.fileno())
    if digest.hexdigest() != file.sha256:
        raise ModelError("file", f"{file.path} was changed while it was copied", hint="import it again")


def _cannot_store(folder: Path, error: OSError) -> ConductorUnusable:
    return ConductorUnusable(f"cannot write to {folder}: {error.strerror}", hint="check the disk and its permissions")

"""Importing a GGUF file that is on this machine: checked, hashed, recognised, and not stored twice.

A file on the model store's own disk gets a second name there (a hard link), so that it stays when
the first name is deleted. A file on another disk is used from where it lies.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from conductor_cli.core.errors import ConductorUnusable, ModelError, UsageError
from conductor_cli.core.terminal_text import short_line
from conductor_cli.models.llama import gguf
from conductor_cli.models.llama.gguf import check_whole_model, part_files
from conductor_cli.models.weights.model_store import Manifest, ModelFile, ModelStore
from conductor_cli.models.weights.registry import RegistryModel, find_registry_model, load_registry
from conductor_cli.models.weights.verify import Report, hash_file, is_adapter, verify_model
from conductor_cli.system import disk


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    """What an import has done.

    `existed` says that the model was there already, `stored` that the model store has the files,
    not only their paths.
    """

    manifest: Manifest
    existed: bool = False
    stored: bool = True


def import_model(  # noqa: PLR0913 - what is imported, and where to
    path: Path,
    store: ModelStore,
    environ: Mapping[str, str],
    report: Report,
    *,
    name: str = "",
    base: str = "",
) -> ImportResult:
    """Import a GGUF file, or all parts of a divided one. An adapter has a `base`.

    Raises `ModelError` of kind `file` for an unusable file, `ConductorUnusable` for an unknown base
    or a full disk, `UsageError` for a name that is taken.
    """
    path = path.absolute()
    _check_is_gguf(path)
    header = check_whole_model(path)
    if is_adapter(header):
        base = _checked_base(path, base, store, environ)
    elif base:
        raise UsageError(f"{path} is a whole model, not an adapter", hint="leave --base out")
    # Headers are checked first: hashing takes minutes, and a wrong file should be rejected at once.
    files = tuple(_hashed(part, report) for part in part_files(path))
    recognised = recognise_model(files, environ, strict=not name)
    if not name and recognised is not None:
        name = recognised.name
    name = name or derive_name(path)
    _check_name_is_free(name, recognised, environ)
    folder = store.folder(name)
    replaced = store.find(name)
    if replaced is not None and not replaced.fault():
        if replaced.hashes != [file.sha256 for file in files]:
            hint = f"--name OTHER, or first: conductor model rm {name}"
            raise UsageError(f"another model is called {name}: {replaced.path}", hint=hint)
        # The model is there already if its files are whole; they are read for that.
        if replaced.base == base and _is_whole(replaced, environ, report):
            stored = all(file.path.parent == folder for file in replaced.files)
            return ImportResult(manifest=replaced, existed=True, stored=stored)
    manifest = Manifest(
        name=name,
        files=files,
        source=f"file:{path}",
        hash_source="file",
        licence=short_line(str(header.values.get("general.license", "")), 60),
        profile="prompted",
        base=base,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    if recognised is not None:
        manifest = _as_recognised(manifest, recognised)
    manifest = _store_files(manifest, store, report)
    if replaced is not None:
        _delete_outdated(replaced, manifest, folder)
    return ImportResult(manifest=manifest, stored=manifest.path.parent == folder)


def _hashed(path: Path, report: Report) -> ModelFile:
    digest = hash_file(path, report)
    return ModelFile(path=path, size=path.stat().st_size, sha256=digest)


def _check_name_is_free(
    name: str, recognised: RegistryModel | None, environ: Mapping[str, str]
) -> None:
    """Raise `UsageError` for the name of another model of the registry.

    A later `pull` of that name would replace the imported model without a question.
    """
    if recognised is not None and recognised.name == name:
        return
    if any(model.name == name for model in load_registry(environ)):
        problem = f"{name} is another model of the registry"
        raise UsageError(problem, hint="use another name: --name OTHER")


def _check_is_gguf(path: Path) -> None:
    """Raise `ModelError` for what is a model in another format, with how to convert it."""
    if path.is_dir() or path.suffix == ".safetensors":
        hint = (
            "an adapter of conductor train: the file that --export writes; another one, or a "
            "model: convert it with llama.cpp's convert_lora_to_gguf.py or convert_hf_to_gguf.py"
        )
        raise ModelError("file", f"{path} is no GGUF file", hint=hint)


def _checked_base(adapter: Path, base: str, store: ModelStore, environ: Mapping[str, str]) -> str:
    """Return an adapter's base as its manifest stores it, checked to fit where it is there."""
    stored_as, path = _resolve_base(adapter, base, store, environ)
    if path is not None:
        from conductor_cli.models.llama.lora import check_adapter  # needs numpy

        check_adapter(adapter, gguf.check_model_file(path), path)
    return stored_as


def _is_whole(manifest: Manifest, environ: Mapping[str, str], report: Report) -> bool:
    return not any(file.problem for file in verify_model(manifest, environ, report))


def _as_recognised(manifest: Manifest, model: RegistryModel) -> Manifest:
    """Return a manifest with what the registry knows of its model."""
    manifest = replace(manifest, licence=model.licence, profile=model.profile)
    if not all(part.sha256 for part in model.parts):
        return manifest
    return replace(manifest, hash_source="registry")


def _store_files(manifest: Manifest, store: ModelStore, report: Report) -> Manifest:
    """Link the files into the store and write the manifest, which is returned as it was written.

    Where they cannot be linked, the manifest names the files where they lie.
    """
    folder = store.folder(manifest.name)
    with ExitStack() as lock:
        # Other imports are kept out: what lies unfinished in the store is of one that was stopped.
        try:
            lock.enter_context(store.lock(lambda: report("waiting for another import", 0, 0)))
        except OSError as error:
            problem = f"cannot write to {store.directory}: {error.strerror}"
            raise ConductorUnusable(problem, hint="check the disk and its permissions") from None
        linked = list[Path]()
        try:
            try:
                manifest = _link_files(manifest, folder, linked)
            except OSError:  # another disk, or a file system without hard links
                _delete_files(linked, folder)
            store.write(manifest)
        except BaseException:  # Ctrl-C too: nothing would lead to the files
            _delete_files(linked, folder)
            raise
    return manifest


def _link_files(manifest: Manifest, folder: Path, linked: list[Path]) -> Manifest:
    """Return a manifest of the files in `folder`, where they get their names.

    New names are added to `linked`. Raises `OSError`.
    """
    disk.make_private_directory(folder)
    for unfinished in folder.glob(".*.new"):
        unfinished.unlink()
    files = []
    for file in manifest.files:
        target = folder / file.path.name
        _link(file.path, target, linked)
        files.append(replace(file, path=target))
    return replace(manifest, files=tuple(files))


def _delete_outdated(replaced: Manifest, manifest: Manifest, folder: Path) -> None:
    """Delete the files of a damaged model that was replaced.

    They are in the way of nothing, but nobody would find them again.
    """
    kept = {file.path for file in manifest.files}
    outdated = [file.path for file in replaced.files if file.path not in kept]
    _delete_files([path for path in outdated if path.parent == folder], folder)


def derive_name(path: Path) -> str:
    """Return a name for the model store from a file's name."""
    stem = re.sub(r"-\d{5}-of-\d{5}$", "", path.name.removesuffix(".gguf"))
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:80] or "model"


def recognise_model(
    files: Sequence[ModelFile], environ: Mapping[str, str], *, strict: bool = True
) -> RegistryModel | None:
    """Return the registry's model that these files are.

    They are compared by SHA-256, or by name and size where the registry has no SHA-256. Raises
    `ModelError` where name and size match and the SHA-256 does not, if `strict`.
    """
    for model in load_registry(environ):
        if len(model.parts) != len(files):
            continue
        looks_alike = True
        is_same = True
        for part, file in zip(model.parts, files, strict=True):
            has_same_name = Path(part.file).name == file.path.name
            looks_alike = looks_alike and has_same_name and part.size == file.size
            if part.sha256:
                is_same = is_same and part.sha256 == file.sha256
        has_all_hashes = all(part.sha256 for part in model.parts)
        if is_same and (looks_alike or has_all_hashes):
            return model
        if looks_alike and strict:
            problem = f"{files[0].path} has the name and size of {model.name}, but another SHA-256"
            hint = (
                f"it is damaged, or another file: conductor model pull {model.name}, or import "
                "it with --name"
            )
            raise ModelError("file", problem, hint=hint)
    return None


def _resolve_base(
    adapter: Path, base: str, store: ModelStore, environ: Mapping[str, str]
) -> tuple[str, Path | None]:
    """Return an adapter's base as its manifest stores it, and its file.

    The file is None where it is not downloaded yet. A stored model or one of the registry is kept
    by name, a file by its absolute path.
    """
    if not base:
        hint = "name the model it was trained for: --base NAME|FILE"
        raise UsageError(f"{adapter} is an adapter", hint=hint)
    manifest = store.find(base)
    if manifest is not None:
        path = manifest.path
        stored_as = manifest.name
    else:
        path = Path(base).expanduser().absolute()
        stored_as = str(path)
        if not path.is_file():
            return find_registry_model(base, environ).name, None
    if is_adapter(gguf.check_model_file(path)):
        problem = f"--base {base} is an adapter itself"
        raise UsageError(problem, hint="name the model it was trained for")
    return stored_as, path


def _link(path: Path, target: Path, linked: list[Path]) -> None:
    """Give a file the name `target` too, in place of what has it; a new name is added to `linked`.

    Raises `OSError`.
    """
    existed = target.exists()
    if existed and target.samefile(path):
        return
    with disk.temporary_path(target) as temporary:
        os.link(path.resolve(), temporary)
        temporary.replace(target)
    if not existed:
        linked.append(target)


def _delete_files(paths: Sequence[Path], folder: Path) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)
    with suppress(OSError):  # other files are in it
        folder.rmdir()

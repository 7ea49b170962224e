"""A model file that is already on this machine -> the model store: checked, hashed, recognised, and not stored twice.

A file on the model store's own file system gets a second name there (a hard link), so that it stays when the first
name is deleted; one on another file system is used where it is, unless a copy is asked for.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from conductor_cli.core.errors import ConductorUnusable, ModelError, UsageError
from conductor_cli.models import disk
from conductor_cli.models.llama import gguf
from conductor_cli.models.llama.lora_check import check_adapter
from conductor_cli.models.llama.model_info import part_files
from conductor_cli.models.weights.digest import Reading, pieces, sha256_of
from conductor_cli.models.weights.header_check import check_whole, is_adapter
from conductor_cli.models.weights.model_store import Manifest, ModelFile, ModelStore
from conductor_cli.models.weights.registry import RegistryModel, find_model, load_registry

ADAPTER: Final = "adapter_config.json"
"""A directory with this file holds a LoRA in PEFT form."""

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
    """A manifest; `before`: it was there already. `own`: the model store has the files itself, not only their place."""

    manifest: Manifest
    before: bool = False
    own: bool = True


def import_model(given: ImportRequest, store: ModelStore, environ: Mapping[str, str], tell: Reading) -> ImportResult:
    """Take a GGUF file, all parts of a divided one, or a LoRA in PEFT form into the model store.

    Raises `ModelError` of kind `file` for what cannot be used, `ConductorUnusable` for a base that is unknown or a disk
    that is too small, `UsageError` for a name that is taken.
    """
    if given.path.is_dir() or given.path.suffix == ".safetensors":
        return _converted(given, store, environ, tell)
    files, base = _checked(given, store, environ)
    hashed = tuple(_hashed(path, tell) for path in files)
    entry = recognised(hashed, environ, strict=not given.name)
    name = given.name or (entry.name if entry else name_of(given.path))
    _check_name(name, entry, environ)
    before = _already(name, hashed, base, store, tell)
    if before is not None and not (given.copy and not _is_own(before, store, alone=True)):
        return ImportResult(manifest=before, before=True, own=_is_own(before, store))
    old = store.find(name)
    kept = _kept(hashed, store.folder(name), copy=given.copy)
    manifest = replace(_manifest(name, kept or hashed, given, entry), base=base)
    store.put(manifest)
    _tidy(old, manifest, store)
    return ImportResult(manifest=manifest, own=kept is not None)


def name_of(path: Path) -> str:
    """A name for the model store from a file's."""
    stem = _PART.sub("", path.stem if path.suffix in {".gguf", ".safetensors"} else path.name)
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:80] or "model"


def recognised(files: Sequence[ModelFile], environ: Mapping[str, str], *, strict: bool = True) -> RegistryModel | None:
    """The registry's entry that these files are, by SHA-256, or where the registry has none by name and size.

    Raises `ModelError` where name and size are those of an entry and the SHA-256 is not, if `strict`.
    """
    for entry in load_registry(environ):
        if len(entry.parts) != len(files):
            continue
        pairs = list(zip(entry.parts, files, strict=True))
        alike = all(part.size == file.size and Path(part.file).name == file.path.name for part, file in pairs)
        if all(part.sha256 == file.sha256 if part.sha256 else alike for part, file in pairs):
            return entry
        if alike and strict:
            raise ModelError(
                "file", f"{files[0].path} is called like {entry.name} and is as large, but its SHA-256 is another",
                hint=f"it is damaged, or another file: conductor model pull {entry.name}, or import it with --name",
            )  # fmt: skip
    return None


def _checked(given: ImportRequest, store: ModelStore, environ: Mapping[str, str]) -> tuple[tuple[Path, ...], str]:
    """All files of the model, after a look at what they say of themselves, and an adapter's base."""
    path = given.path.absolute()
    header = check_whole(path)
    if is_adapter(header):
        base, whole = _base(given, store, environ)
        if whole is not None:
            check_adapter(path, gguf.check_model_file(whole), whole)
        return part_files(path), base
    if given.base:
        raise UsageError(f"{given.path} is a whole model: it is laid over nothing", hint="leave --base out")
    return part_files(path), ""


def _base(given: ImportRequest, store: ModelStore, environ: Mapping[str, str]) -> tuple[str, Path | None]:
    """The model that an adapter is laid over, as its manifest keeps it, and its file; None where that is not here yet.

    A model of the model store or the registry is kept by its name, a file by its whole path.
    """
    if not given.base:
        raise UsageError(f"{given.path} is an adapter: a part of a model", hint="name the whole one: --base NAME|FILE")
    manifest = store.find(given.base)
    path = Path(given.base).expanduser().absolute() if manifest is None else manifest.path
    if manifest is None and not path.is_file():
        return find_model(given.base, environ).name, None
    if is_adapter(gguf.check_model_file(path)):
        raise UsageError(f"--base {given.base} is an adapter itself", hint="name the whole model it was trained on")
    return (str(path) if manifest is None else manifest.name), path


def _hashed(path: Path, tell: Reading) -> ModelFile:
    size = path.stat().st_size
    return ModelFile(path=path, size=size, sha256=sha256_of(path, lambda done: tell(path, done, size)))


def _check_name(name: str, entry: RegistryModel | None, environ: Mapping[str, str]) -> None:
    """Whether a name is the registry's for another model: a pull would take its place. Raises `UsageError`."""
    if (entry is None or entry.name != name) and any(other.name == name for other in load_registry(environ)):
        raise UsageError(f"{name} is what the registry calls another model", hint="another name: --name OTHER")


def _already(name: str, files: Sequence[ModelFile], base: str, store: ModelStore, tell: Reading) -> Manifest | None:
    """The model of this name and content, if it is in the model store and whole: its files are read for that.

    Raises `UsageError` where another one is, `ModelError` where the file itself is what was changed.
    """
    found = store.find(name)
    if found is None or found.fault():
        return None
    pairs = list(zip(found.files, files, strict=False))
    if [file.sha256 for file in found.files] == [file.sha256 for file in files]:
        whole = found.base == base and all(_is_still(old, new, tell) for old, new in pairs)
        return found if whole else None
    changed = next((new for old, new in pairs if new.sha256 != old.sha256 and old.path.samefile(new.path)), None)
    if changed is not None:
        raise ModelError(
            "file", f"{changed.path} is what {name} was made of, and was changed since then",
            hint=f"get the file again and import it; to take it as it is, first: conductor model rm {name}",
        )  # fmt: skip
    raise UsageError(
        f"another model is called {name}: {found.path}", hint=f"--name OTHER, or first: conductor model rm {name}"
    )


def _is_still(old: ModelFile, new: ModelFile, tell: Reading) -> bool:
    """Whether a stored file is what its manifest says, where `new` has the same content and was just read."""
    try:
        return old.path.samefile(new.path) or _hashed(old.path, tell).sha256 == old.sha256
    except (OSError, ModelError):
        return False


def _tidy(old: Manifest | None, new: Manifest, store: ModelStore) -> None:
    """Take away the model store's own files of a model that another one has taken the place of."""
    kept = {file.path for file in new.files}
    for file in old.files if old is not None else ():
        if file.path.parent == store.folder(new.name) and file.path not in kept:
            with suppress(OSError):
                file.path.unlink(missing_ok=True)


def _is_own(manifest: Manifest, store: ModelStore, *, alone: bool = False) -> bool:
    """Whether the store has the files itself; `alone`: under no second name, by which their bytes could be changed."""
    folder = store.folder(manifest.name)
    return all(file.path.parent == folder and not (alone and file.path.stat().st_nlink > 1) for file in manifest.files)


def _manifest(name: str, files: tuple[ModelFile, ...], given: ImportRequest, entry: RegistryModel | None) -> Manifest:
    known = entry is not None and all(part.sha256 for part in entry.parts)
    return Manifest(
        name=name, files=files, source=f"file:{given.path.absolute()}", trust="registry" if known else "file",
        licence=entry.licence if entry else _licence(files[0].path), profile=entry.profile if entry else "prompted",
        at=datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip


def _licence(path: Path) -> str:
    """What the file says of its own licence."""
    return gguf.one_line(str(gguf.read_header(path).values.get("general.license", "")), 60)


def _kept(files: Sequence[ModelFile], folder: Path, *, copy: bool) -> tuple[ModelFile, ...] | None:
    """The files under the model store's own names for them; None where only a copy could do that and none is wanted."""
    if copy:
        disk.check_room(folder, sum(file.size for file in files))
    made: list[Path] = []
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for file in files:
            target = folder / file.path.name
            there = target.exists()
            if copy or not (there and target.samefile(file.path)):
                (_copy if copy else _link)(file, target)
                made += [] if there else [target]
    except (OSError, ModelError) as error:
        for target in made:
            target.unlink(missing_ok=True)
        with suppress(OSError):
            folder.rmdir()
        if isinstance(error, OSError) and not copy:
            return None
        raise error if isinstance(error, ModelError) else _no_copy(folder, error) from None
    return tuple(ModelFile(path=folder / file.path.name, size=file.size, sha256=file.sha256) for file in files)


def _link(file: ModelFile, target: Path) -> None:
    """A second name for the file. Raises `OSError` where the file system has none."""
    with disk.temporary_path(target) as new:
        os.link(file.path.resolve(), new)
        new.replace(target)


def _copy(file: ModelFile, target: Path) -> None:
    """A copy, under its name only once it is whole and what was checked. Raises `OSError` or `ModelError`."""
    digest = hashlib.sha256()
    with disk.temporary_path(target) as new:
        with new.open("xb") as copy:
            for piece in pieces(file.path):
                digest.update(piece)
                copy.write(piece)
            copy.flush()
            os.fsync(copy.fileno())
        if digest.hexdigest() != file.sha256:
            raise ModelError("file", f"{file.path} was changed while it was copied", hint="import it again")
        new.replace(target)


def _no_copy(folder: Path, error: OSError) -> ConductorUnusable:
    return ConductorUnusable(
        f"nothing can be stored in {folder}: {error.strerror}", hint="check the disk and its rights"
    )


def _converted(given: ImportRequest, store: ModelStore, environ: Mapping[str, str], tell: Reading) -> ImportResult:
    """A LoRA in PEFT form, as an adapter in a GGUF file of the model store's own."""
    directory = given.path if given.path.is_dir() else given.path.parent
    if not (directory / ADAPTER).is_file():
        raise ModelError(
            "file", f"{directory} holds no {ADAPTER}, so there is no LoRA in it",
            hint="a whole model is imported as a GGUF file: name the file",
        )  # fmt: skip
    base, whole = _base(given, store, environ)
    if whole is None:
        raise ConductorUnusable(
            f"{base} is not here yet, and an adapter is made for its base", hint=f"conductor model pull {base}"
        )
    name = given.name or name_of(directory.absolute())
    _check_name(name, None, environ)
    folder = store.folder(name)
    target = folder / f"{name}.gguf"
    from conductor_cli.models.llama.lora import convert  # needs numpy

    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with disk.temporary_path(target) as new:
            convert(given.path, whole, new)
            check_adapter(new, gguf.check_model_file(whole), whole)
            hashed = _hashed(new, lambda _, done, size: tell(target, done, size))
            before = _already(name, (hashed,), base, store, tell)
            if before is not None:
                return ImportResult(manifest=before, before=True)
            new.replace(target)
    except OSError as error:
        raise _no_copy(folder, error) from None
    finally:
        with suppress(OSError):  # it is in use
            folder.rmdir()
    manifest = _manifest(name, (replace(hashed, path=target),), given, None)
    store.put(replace(manifest, base=base))
    return ImportResult(manifest=replace(manifest, base=base))

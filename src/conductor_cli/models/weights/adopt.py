"""A model file that is already on this machine -> the shelf: checked, hashed, recognised, and not stored twice.

A file on the shelf's own file system gets a second name there (a hard link), so that it stays when the first name is
deleted; one on another file system is used where it is, unless a copy is asked for.
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
from conductor_cli.models.llama.about import parts
from conductor_cli.models.llama.overlay import check_adapter
from conductor_cli.models.weights.digest import Reading, pieces, sha256_of
from conductor_cli.models.weights.receipts import File, Receipt, Shelf
from conductor_cli.models.weights.registry import Entry, find, registry
from conductor_cli.models.weights.sound import check_whole, is_adapter

ADAPTER: Final = "adapter_config.json"
"""A directory with this file holds a LoRA in PEFT form."""

_PART: Final = re.compile(r"-\d{5}-of-\d{5}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What to take onto the shelf. `name` may be empty; `base` belongs to adapters; `copy` makes a copy of its own."""

    path: Path
    name: str = ""
    base: str = ""
    copy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """A receipt; `before`: it was there already. `own`: the shelf has the files itself, not only their place."""

    receipt: Receipt
    before: bool = False
    own: bool = True


def adopt(given: Given, shelf: Shelf, environ: Mapping[str, str], tell: Reading) -> Adopted:
    """Take a GGUF file, all parts of a divided one, or a LoRA in PEFT form onto the shelf.

    Raises `ModelError` of kind `file` for what cannot be used, `ConductorUnusable` for a base that is unknown or a disk
    that is too small, `UsageError` for a name that is taken.
    """
    if given.path.is_dir() or given.path.suffix == ".safetensors":
        return _converted(given, shelf, environ, tell)
    files, base = _checked(given, shelf, environ)
    hashed = tuple(_hashed(path, tell) for path in files)
    entry = recognised(hashed, environ, strict=not given.name)
    name = given.name or (entry.name if entry else name_of(given.path))
    _check_name(name, entry, environ)
    before = _already(name, hashed, base, shelf, tell)
    if before is not None and not (given.copy and not _is_own(before, shelf, alone=True)):
        return Adopted(receipt=before, before=True, own=_is_own(before, shelf))
    old = shelf.find(name)
    kept = _kept(hashed, shelf.folder(name), copy=given.copy)
    receipt = replace(_receipt(name, kept or hashed, given, entry), base=base)
    shelf.put(receipt)
    _tidy(old, receipt, shelf)
    return Adopted(receipt=receipt, own=kept is not None)


def name_of(path: Path) -> str:
    """A name for the shelf from a file's."""
    stem = _PART.sub("", path.stem if path.suffix in {".gguf", ".safetensors"} else path.name)
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:80] or "model"


def recognised(files: Sequence[File], environ: Mapping[str, str], *, strict: bool = True) -> Entry | None:
    """The registry's entry that these files are, by SHA-256, or where the registry has none by name and size.

    Raises `ModelError` where name and size are those of an entry and the SHA-256 is not, if `strict`.
    """
    for entry in registry(environ):
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


def _checked(given: Given, shelf: Shelf, environ: Mapping[str, str]) -> tuple[tuple[Path, ...], str]:
    """All files of the model, after a look at what they say of themselves, and an adapter's base."""
    path = given.path.absolute()
    header = check_whole(path)
    if is_adapter(header):
        base, whole = _base(given, shelf, environ)
        if whole is not None:
            check_adapter(path, gguf.check(whole), whole)
        return parts(path), base
    if given.base:
        raise UsageError(f"{given.path} is a whole model: it is laid over nothing", hint="leave --base out")
    return parts(path), ""


def _base(given: Given, shelf: Shelf, environ: Mapping[str, str]) -> tuple[str, Path | None]:
    """The model that an adapter is laid over, as its receipt keeps it, and its file; None where that is not here yet.

    A model of the shelf or the registry is kept by its name, a file by its whole path.
    """
    if not given.base:
        raise UsageError(f"{given.path} is an adapter: a part of a model", hint="name the whole one: --base NAME|FILE")
    receipt = shelf.find(given.base)
    path = Path(given.base).expanduser().absolute() if receipt is None else receipt.path
    if receipt is None and not path.is_file():
        return find(given.base, environ).name, None
    if is_adapter(gguf.check(path)):
        raise UsageError(f"--base {given.base} is an adapter itself", hint="name the whole model it was trained on")
    return (str(path) if receipt is None else receipt.name), path


def _hashed(path: Path, tell: Reading) -> File:
    size = path.stat().st_size
    return File(path=path, size=size, sha256=sha256_of(path, lambda done: tell(path, done, size)))


def _check_name(name: str, entry: Entry | None, environ: Mapping[str, str]) -> None:
    """Whether a name is the registry's for another model: a pull would take its place. Raises `UsageError`."""
    if (entry is None or entry.name != name) and any(other.name == name for other in registry(environ)):
        raise UsageError(f"{name} is what the registry calls another model", hint="another name: --name OTHER")


def _already(name: str, files: Sequence[File], base: str, shelf: Shelf, tell: Reading) -> Receipt | None:
    """The model of this name and content, if it is on the shelf and whole: its files are read for that.

    Raises `UsageError` where another one is, `ModelError` where the file itself is what was changed.
    """
    found = shelf.find(name)
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


def _is_still(old: File, new: File, tell: Reading) -> bool:
    """Whether a file of the shelf is what its receipt says, where `new` has the same content and was just read."""
    try:
        return old.path.samefile(new.path) or _hashed(old.path, tell).sha256 == old.sha256
    except (OSError, ModelError):
        return False


def _tidy(old: Receipt | None, new: Receipt, shelf: Shelf) -> None:
    """Take away the shelf's own files of a model that another one has taken the place of."""
    kept = {file.path for file in new.files}
    for file in old.files if old is not None else ():
        if file.path.parent == shelf.folder(new.name) and file.path not in kept:
            with suppress(OSError):
                file.path.unlink(missing_ok=True)


def _is_own(receipt: Receipt, shelf: Shelf, *, alone: bool = False) -> bool:
    """Whether the shelf has the files itself; `alone`: under no second name, by which their bytes could be changed."""
    folder = shelf.folder(receipt.name)
    return all(file.path.parent == folder and not (alone and file.path.stat().st_nlink > 1) for file in receipt.files)


def _receipt(name: str, files: tuple[File, ...], given: Given, entry: Entry | None) -> Receipt:
    known = entry is not None and all(part.sha256 for part in entry.parts)
    return Receipt(
        name=name, files=files, source=f"file:{given.path.absolute()}", trust="registry" if known else "file",
        licence=entry.licence if entry else _licence(files[0].path), profile=entry.profile if entry else "prompted",
        at=datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip


def _licence(path: Path) -> str:
    """What the file says of its own licence."""
    return gguf.plain(str(gguf.read_header(path).values.get("general.license", "")), 60)


def _kept(files: Sequence[File], folder: Path, *, copy: bool) -> tuple[File, ...] | None:
    """The files under the shelf's own names for them; None where only a copy could do that and none is wanted."""
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
    return tuple(File(path=folder / file.path.name, size=file.size, sha256=file.sha256) for file in files)


def _link(file: File, target: Path) -> None:
    """A second name for the file. Raises `OSError` where the file system has none."""
    with disk.fresh(target) as new:
        os.link(file.path.resolve(), new)
        new.replace(target)


def _copy(file: File, target: Path) -> None:
    """A copy, under its name only once it is whole and what was checked. Raises `OSError` or `ModelError`."""
    digest = hashlib.sha256()
    with disk.fresh(target) as new:
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


def _converted(given: Given, shelf: Shelf, environ: Mapping[str, str], tell: Reading) -> Adopted:
    """A LoRA in PEFT form, as an adapter in a GGUF file of the shelf's own."""
    directory = given.path if given.path.is_dir() else given.path.parent
    if not (directory / ADAPTER).is_file():
        raise ModelError(
            "file", f"{directory} holds no {ADAPTER}, so there is no LoRA in it",
            hint="a whole model is imported as a GGUF file: name the file",
        )  # fmt: skip
    base, whole = _base(given, shelf, environ)
    if whole is None:
        raise ConductorUnusable(
            f"{base} is not here yet, and an adapter is made for its base", hint=f"conductor model pull {base}"
        )
    name = given.name or name_of(directory.absolute())
    _check_name(name, None, environ)
    folder = shelf.folder(name)
    target = folder / f"{name}.gguf"
    from conductor_cli.models.llama.lora import convert  # needs numpy

    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with disk.fresh(target) as new:
            convert(given.path, whole, new)
            check_adapter(new, gguf.check(whole), whole)
            hashed = _hashed(new, lambda _, done, size: tell(target, done, size))
            before = _already(name, (hashed,), base, shelf, tell)
            if before is not None:
                return Adopted(receipt=before, before=True)
            new.replace(target)
    except OSError as error:
        raise _no_copy(folder, error) from None
    finally:
        with suppress(OSError):  # it is in use
            folder.rmdir()
    receipt = _receipt(name, (replace(hashed, path=target),), given, None)
    shelf.put(replace(receipt, base=base))
    return Adopted(receipt=replace(receipt, base=base))

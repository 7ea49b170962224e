"""What is known of the model files on this machine: a receipt for each, and the SHA-256 pinned for a hub's file.

DIRECTORY/NAME/receipt.toml   one model: its files with size and SHA-256, whence they came, who vouches for them
DIRECTORY/NAME/…              files that were adopted or converted; what was pulled stays in the hub's cache
DIRECTORY/pins.toml           SHA-256 by repository and file, as the hub said it at the first pull
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from conductor_cli.core.errors import ConductorUnusable, ConfigError, UsageError
from conductor_cli.core.wire import WireError, dump, load

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
"""What a model may be called: it is the name of a directory."""

RECEIPT: Final = "receipt.toml"
PINS: Final = "pins.toml"

_HEAD: Final = "# Written by conductor.\n\n"

Trust = Literal["registry", "hub", "mirror", "file"]
"""What a SHA-256 was compared with: the registry's, the hub's word, a mirror's word, or nothing but the file itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file of a model: where it is, its size in bytes, its SHA-256 in hex."""

    path: Path
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A model on the shelf.

    `source` is `hub:REPO@COMMIT` or `file:PATH`, `endpoint` the hub's address. A model with a `base` is a LoRA adapter,
    laid over that one: a name of the shelf or registry, or a file. `at` is an ISO date and time.
    """

    name: str
    files: tuple[File, ...]
    source: str
    endpoint: str = ""
    trust: Trust = "file"
    licence: str = ""
    profile: str = "prompted"
    base: str = ""
    at: str = ""

    @property
    def path(self) -> Path:
        """The file that is opened: the only one, or the first of a divided model."""
        return self.files[0].path

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.files)

    def fault(self) -> str:
        """What a look at its files shows to be wrong, without reading them. Empty where all is well."""
        for file in self.files:
            try:
                size = file.path.stat().st_size
            except OSError:
                return f"{file.path} is not there any more"
            if size != file.size:
                return f"{file.path} has {size:,} bytes instead of {file.size:,}"
        return ""


class Shelf:
    """The directory of receipts. Nothing here touches a model file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def folder(self, name: str) -> Path:
        """Where a model's receipt is, and its files when they were adopted. Raises `UsageError` for a bad name."""
        if not NAME.fullmatch(name) or name in {PINS, RECEIPT}:
            hint = "letters, digits, dots and dashes, at most 80"
            raise UsageError(f"{name!r:.60} is no name for a model", hint=hint)
        return self.directory / name

    def receipts(self) -> tuple[Receipt, ...]:
        """Every receipt, by name. Raises `ConductorUnusable` for one that cannot be read."""
        try:
            names = sorted(path.name for path in self.directory.iterdir() if NAME.fullmatch(path.name))
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise _unreadable(self.directory, error.strerror) from None
        return tuple(found for name in names if (found := self.find(name)) is not None)

    def find(self, name: str) -> Receipt | None:
        """The receipt of this name, if there is one. Raises `ConductorUnusable` for one that cannot be read."""
        if not NAME.fullmatch(name):
            return None
        path = self.directory / name / RECEIPT
        values = _read(path)
        if not values:
            return None
        try:
            return _receipt(values, path.parent)
        except (WireError, TypeError, ValueError) as error:
            raise _unreadable(path, str(error)) from None

    def put(self, receipt: Receipt) -> None:
        """Write a receipt, over an older one of its name. Raises `ConfigError`."""
        folder = self.folder(receipt.name)
        files = [{**dump(file), "path": _inside(file.path, folder)} for file in receipt.files]
        with _alone(self.directory):
            _write(folder / RECEIPT, {**dump(receipt), "files": files})

    def drop(self, name: str) -> None:
        """Forget a receipt, be it readable or not, and its directory where nothing else is in it."""
        folder = self.folder(name)
        with _alone(self.directory):
            try:
                (folder / RECEIPT).unlink(missing_ok=True)
            except OSError as error:
                raise _cannot_write(folder / RECEIPT, error) from None
            with suppress(OSError):  # other files are in it
                folder.rmdir()

    def pin_of(self, repo: str, file: str) -> str:
        """The SHA-256 that the hub said at the first pull of this file; empty where it was never pulled."""
        files = _read(self.directory / PINS).get(repo, {})
        return str(files.get(file, "")) if isinstance(files, Mapping) else ""

    def pin(self, repo: str, file: str, sha256: str) -> None:
        """Keep what the hub says of a file. Raises `ConfigError`."""
        with _alone(self.directory):
            pins = _read(self.directory / PINS)
            files = pins.get(repo, {})
            files = files if isinstance(files, Mapping) else {}
            _write(self.directory / PINS, {**pins, repo: {**files, file: sha256}})


def _receipt(values: Mapping[str, Any], folder: Path) -> Receipt:
    """The receipt in `folder`, whose own files are named without their directory."""
    files = [{**file, "path": folder / str(file.get("path", ""))} for file in values.get("files", ())]
    receipt = load(Receipt, {**values, "files": files})
    if receipt.name != folder.name:
        raise WireError(f"name: it is {receipt.name!r:.60}")
    if not receipt.files:
        raise WireError("files: there are none")
    return receipt


def _inside(path: Path, folder: Path) -> str:
    return path.name if path.parent == folder else str(path.absolute())


def _read(path: Path) -> dict[str, Any]:
    """The values of a TOML file; none where it does not exist. Raises `ConductorUnusable`."""
    try:
        return tomllib.loads(path.read_bytes().decode())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise _unreadable(path, error.strerror) from None
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, str(error)) from None


def _unreadable(path: Path, problem: str | None) -> ConductorUnusable:
    hint = "take the file away; then: conductor model pull, or conductor model import FILE"
    return ConductorUnusable(f"{path} cannot be read: {problem or 'unknown reason'}", hint=hint)


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Hold the right to change what is in the directory. Without locks, as on Windows, nobody waits."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise _cannot_write(directory, error) from None
    try:
        with suppress(ImportError, OSError):
            import fcntl  # POSIX only

            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _write(path: Path, values: Mapping[str, Any]) -> None:
    """Write a TOML file whole or not at all. Raises `ConfigError`."""
    import tomli_w  # only where something is written

    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with new.open("w", encoding="utf-8") as file:
            file.write(_HEAD + tomli_w.dumps(values))
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise _cannot_write(path, error) from None


def _cannot_write(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{path} cannot be written: {error.strerror}", hint="check the disk and its rights")

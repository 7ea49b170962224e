"""What is known of the model files on this machine: a manifest for each, and the SHA-256 pinned for a hub's file.

DIRECTORY/NAME/manifest.toml   one model: its files with size and SHA-256, whence they came, who vouches for them
DIRECTORY/NAME/…              files that were adopted or converted; what was pulled stays in the hub's cache
DIRECTORY/pins.toml           SHA-256 by repository and file, as the hub said it at the first pull, and which hub
DIRECTORY/fetched.toml        files of a pull that has no manifest yet: it goes on, or was stopped between two files
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from conductor_cli.core.errors import ConductorUnusable, ConfigError, UsageError
from conductor_cli.core.serialization import DecodeError, dump, load
from conductor_cli.models import disk
from conductor_cli.models.disk import exclusive_lock

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
"""What a model may be called: it is the name of a directory."""

MANIFEST: Final = "manifest.toml"
PINS: Final = "pins.toml"
FETCHED: Final = "fetched.toml"

_HEAD: Final = "# Written by conductor.\n\n"

Trust = Literal["registry", "hub", "mirror", "file"]
"""What a SHA-256 was compared with: the registry's, the hub's word, a mirror's word, or nothing but the file itself."""

TRUST_ORDER: Final[tuple[Trust, ...]] = ("registry", "hub", "mirror", "file")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """One file of a model: where it is, its size in bytes, its SHA-256 in hex.

    `fetched`: conductor itself fetched it; otherwise another tool may want it.
    """

    path: Path
    size: int
    sha256: str
    fetched: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A SHA-256 that was believed at a first pull, and who vouched for it. Empty: there was none."""

    sha256: str = ""
    trust: Trust = "file"
    endpoint: str = ""

    @property
    def rank(self) -> int:
        """The lower, the more it proves."""
        return TRUST_ORDER.index(self.trust) if self.sha256 else len(TRUST_ORDER)


NO_PIN: Final = Pin()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A model in the model store.

    `source` is `hub:REPO@COMMIT` or `file:PATH`, `endpoint` the hub's address. A model with a `base` is a LoRA adapter,
    laid over that one: a name of the model store or registry, or a file. `at` is an ISO date and time.
    """

    name: str
    files: tuple[ModelFile, ...]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableManifest:
    """A manifest that cannot be read, and why. Nobody knows what its model was."""

    name: str
    problem: str


class ModelStore:
    """The directory of manifests. Nothing here touches a model file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def folder(self, name: str) -> Path:
        """Where a model's manifest is, and its files when they were adopted. Raises `UsageError` for a bad name."""
        if not NAME.fullmatch(name) or name in {PINS, FETCHED, MANIFEST}:
            hint = "letters, digits, dots and dashes, at most 80"
            raise UsageError(f"{name!r:.60} is no name for a model", hint=hint)
        return self.directory / name

    def manifests(self) -> tuple[Manifest, ...]:
        """Every manifest that can be read, by name."""
        return tuple(found for found in self._all() if isinstance(found, Manifest))

    def damaged(self) -> tuple[UnreadableManifest, ...]:
        """The manifests that cannot be read, by name."""
        return tuple(found for found in self._all() if isinstance(found, UnreadableManifest))

    def _all(self) -> Iterator[Manifest | UnreadableManifest]:
        try:
            names = sorted(path.name for path in self.directory.iterdir() if NAME.fullmatch(path.name))
        except FileNotFoundError:
            return
        except OSError as error:
            hint = "check the path and its rights"
            raise ConductorUnusable(f"{self.directory} cannot be read: {error.strerror}", hint=hint) from None
        for name in names:
            try:
                found = self.find(name)
            except ConductorUnusable as error:
                yield UnreadableManifest(name=name, problem=error.message)
            else:
                if found is not None:
                    yield found

    def find(self, name: str) -> Manifest | None:
        """The manifest of this name, if there is one. Raises `ConductorUnusable` for one that cannot be read."""
        if not NAME.fullmatch(name):
            return None
        path = self.directory / name / MANIFEST
        values = _read(path)
        if not values:
            return None
        try:
            return _manifest(values, path.parent)
        except (DecodeError, TypeError, ValueError) as error:
            raise _unreadable(path, str(error)) from None

    def put(self, manifest: Manifest) -> None:
        """Write a manifest, over an older one of its name. Raises `ConfigError`."""
        folder = self.folder(manifest.name)
        files = [{**dump(file), "path": _inside(file.path, folder)} for file in manifest.files]
        with _alone(self.directory):
            _write(folder / MANIFEST, {**dump(manifest), "files": files})
            self._settled(manifest)

    def drop(self, name: str) -> None:
        """Forget a manifest, be it readable or not, and its directory where nothing else is in it."""
        folder = self.folder(name)
        with _alone(self.directory):
            try:
                (folder / MANIFEST).unlink(missing_ok=True)
            except OSError as error:
                raise _cannot_write(folder / MANIFEST, error) from None
            with suppress(OSError):  # other files are in it
                folder.rmdir()

    def pin_of(self, repo: str, file: str) -> Pin:
        """What was said at the first pull of this file. Raises `ConductorUnusable` for pins that cannot be read."""
        path = self.directory / PINS
        files = _read(path).get(repo, {})
        found = files.get(file) if isinstance(files, Mapping) else None
        if found is None or isinstance(found, str):
            return Pin(sha256=found or "")
        try:
            return load(Pin, found)
        except DecodeError as error:
            raise _unreadable(path, str(error)) from None

    def pin(self, repo: str, file: str, pin: Pin) -> None:
        """Keep what the hub says of a file. Raises `ConfigError`."""
        with _alone(self.directory):
            pins = _read(self.directory / PINS)
            files = pins.get(repo, {})
            files = files if isinstance(files, Mapping) else {}
            _write(self.directory / PINS, {**pins, repo: {**files, file: dump(pin)}})

    def note_fetched(self, *names: Path) -> None:
        """Keep the names of a file that is being fetched, until its manifest says so. Raises `ConfigError`."""
        with _alone(self.directory):
            self._note({*self.noted(), *names})

    def forget_fetched(self, *names: Path) -> None:
        """Take back what was noted of files that are gone. Raises `ConfigError`."""
        with _alone(self.directory):
            self._note({*self.noted()} - {*names})

    def is_fetched(self, path: Path) -> bool:
        """Whether conductor itself fetched the file, by a manifest or, where there is none yet, by what was noted."""
        real = path.resolve()
        kept = (file.path for manifest in self.manifests() for file in manifest.files if file.fetched)
        return any(known.resolve() == real for known in (*self.noted(), *kept))

    def noted(self) -> frozenset[Path]:
        """The names of files that conductor fetched, and of which no manifest speaks yet."""
        try:
            files = _read(self.directory / FETCHED).get("files", [])
        except ConductorUnusable:  # then these files are taken for another tool's
            return frozenset()
        return frozenset(Path(str(name)) for name in files) if isinstance(files, list) else frozenset()

    def _settled(self, manifest: Manifest) -> None:
        """Forget what was noted of files of which a manifest speaks from now on."""
        real = {file.path.resolve() for file in manifest.files}
        self._note({name for name in self.noted() if name.resolve() not in real})

    def _note(self, names: set[Path]) -> None:
        if names != self.noted():
            _write(self.directory / FETCHED, {"files": sorted(map(str, names))})


def _manifest(values: Mapping[str, Any], folder: Path) -> Manifest:
    """The manifest in `folder`, whose own files are named without their directory."""
    files = [{**file, "path": folder / str(file.get("path", ""))} for file in values.get("files", ())]
    manifest = load(Manifest, {**values, "files": files})
    if manifest.name != folder.name:
        raise DecodeError(f"name: it is {manifest.name!r:.60}")
    if not manifest.files:
        raise DecodeError("files: there are none")
    return manifest


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
    damaged = path.name == MANIFEST
    hint = f"conductor model rm {path.parent.name}; then pull or import it again" if damaged else "take the file away"
    return ConductorUnusable(f"{path} cannot be read: {problem or 'unknown reason'}", hint=hint)


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Hold the right to change what is in the directory. Raises `ConfigError`."""
    with ExitStack() as held:
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            held.enter_context(exclusive_lock(directory / ".lock"))
        except OSError as error:
            raise _cannot_write(directory, error) from None
        yield


def _write(path: Path, values: Mapping[str, Any]) -> None:
    """Write a TOML file whole or not at all. Raises `ConfigError`."""
    import tomli_w  # only where something is written

    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        disk.write_atomically(path, _HEAD + tomli_w.dumps(values))
    except OSError as error:
        raise _cannot_write(path, error) from None


def _cannot_write(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{path} cannot be written: {error.strerror}", hint="check the disk and its rights")

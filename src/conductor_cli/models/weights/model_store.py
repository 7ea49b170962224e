"""The model store: a manifest for each model on this machine.

DIRECTORY/NAME/manifest.toml   one model: its files with size and SHA-256, where they come from, and
whether conductor
                               downloaded them itself
DIRECTORY/NAME/…               files that were imported or converted; downloads stay in the hub's
cache
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from conductor_cli.core.bounded_parsing import parse_toml
from conductor_cli.core.errors import ConductorUnusable, ConfigError, UsageError
from conductor_cli.core.mappings import names_of
from conductor_cli.core.serialization import dump, load
from conductor_cli.system import disk

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
"""What a model may be called: it is the name of a directory."""

MANIFEST: Final = "manifest.toml"
PACKAGE_SOURCE: Final = "package:"
"""How the source of an adapter of this package begins; the SHA-256 of the packed file follows."""

HashSource = Literal["registry", "hub", "file"]
"""Where the SHA-256 comes from: conductor's registry, the hub at the first download, or only the
file itself.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """One file of a model.

    In a repository, where `file` is its path, or on this machine, where `path` is; or in both.

    `etag` names its bytes in the hub's cache: its SHA-256, or git's hash of a small file. What is
    not known is empty or
    0. `downloaded`: conductor downloaded it itself; otherwise another tool may need it.
    """

    file: str = ""
    path: Path = Path()
    size: int = 0
    sha256: str = ""
    etag: str = ""
    downloaded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What is known of a model on this machine.

    `source` is `hub:REPO@COMMIT`, `file:PATH`, or `package:` and the SHA-256 of an adapter's file
    beside the registry; `endpoint` is the hub's address. A model with a
    `base` is a LoRA adapter for that one: a stored model, a model of the registry, or a file. `at`
    is an ISO date and time.
    """

    name: str
    files: tuple[ModelFile, ...]
    source: str
    endpoint: str = ""
    hash_source: HashSource = "file"
    licence: str = ""
    profile: str = "prompted"
    base: str = ""
    at: str = ""

    @property
    def path(self) -> Path:
        """The file that is opened: the only one, or the first part."""
        return self.files[0].path

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def hashes(self) -> list[str]:
        return [file.sha256 for file in self.files]

    @property
    def repo(self) -> str:
        """The repository on the hub that it comes from; empty for another source."""
        kind, _, source = self.source.partition(":")
        if kind == "hub":
            return source.rpartition("@")[0]
        return ""

    @property
    def is_packaged(self) -> bool:
        """Whether it is an adapter that lay beside the registry."""
        return self.source.startswith(PACKAGE_SOURCE)

    @property
    def repo_files(self) -> tuple[str, ...]:
        """The names that its files have in that repository; none for another source."""
        commit = self.source.rpartition("@")[2]
        if not self.repo or not all(commit in file.path.parts for file in self.files):
            return ()
        names = []
        for file in self.files:
            parts = file.path.parts
            names.append("/".join(parts[parts.index(commit) + 1 :]))
        return tuple(names)

    def fault(self) -> str:
        """Return what is wrong with its files, as far as their sizes show.

        Empty where all is well.
        """
        for file in self.files:
            try:
                size = file.path.stat().st_size
            except OSError:
                return f"{file.path} is missing"
            if size != file.size:
                return f"{file.path} has {size:,} bytes instead of {file.size:,}"
        return ""


class ModelStore:
    """The directory of manifests. Nothing here touches a model file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def folder(self, name: str) -> Path:
        """Return where a model's manifest is, with its files if imported.

        Raises `UsageError` for a bad name.
        """
        if not NAME.fullmatch(name) or name == MANIFEST:
            hint = "use letters, digits, dots and dashes, at most 80"
            raise UsageError(f"{name!r:.60} is not a valid model name", hint=hint)
        return self.directory / name

    def manifests(self) -> tuple[Manifest, ...]:
        """Return every manifest that can be read, by name."""
        entries = self._read_all().values()
        return tuple(entry for entry in entries if isinstance(entry, Manifest))

    def find_readable(self, name: str) -> Manifest | None:
        with suppress(ConductorUnusable):
            return self.find(name)
        return None

    def damaged(self) -> dict[str, str]:
        """Return why a manifest cannot be read, by the model's name."""
        entries = self._read_all().items()
        return {name: problem for name, problem in entries if isinstance(problem, str)}

    def _read_all(self) -> dict[str, Manifest | str]:
        """Return each model's manifest, or why it cannot be read."""
        try:
            names = sorted(filter(NAME.fullmatch, names_of(self.directory.iterdir())))
        except FileNotFoundError:
            return {}
        except OSError as error:
            hint = "check the path and its permissions"
            raise ConductorUnusable(
                f"cannot read {self.directory}: {error.strerror}", hint=hint
            ) from None
        manifests: dict[str, Manifest | str] = {}
        for name in names:
            try:
                if (manifest := self.find(name)) is not None:
                    manifests[name] = manifest
                elif self.unlisted_files(name):
                    manifests[name] = (
                        f"{self.directory / name} has no manifest: an import is running, or was "
                        "stopped"
                    )
            except ConductorUnusable as error:
                manifests[name] = error.message
        return manifests

    def find(self, name: str) -> Manifest | None:
        """Return the manifest of this name, if there is one.

        Raises `ConductorUnusable` for one that cannot be read.
        """
        if not NAME.fullmatch(name):
            return None
        path = self.directory / name / MANIFEST
        try:
            values = parse_toml(path.read_bytes())
            # Files in the model's own directory are stored by their names, so that the store can be
            # moved.
            files = []
            for file in values.get("files", ()):
                files.append({**file, "path": path.parent / str(file.get("path", ""))})
            manifest = load(Manifest, {**values, "files": files})
            if (
                manifest.name != name
                or not manifest.files
                or not all(file.sha256 for file in manifest.files)
            ):
                raise ValueError("it has another name, or no files with a SHA-256")
        except (FileNotFoundError, NotADirectoryError):
            # A file in the store's directory is no model
            return None
        except (OSError, ValueError, TypeError, AttributeError) as error:
            problem = error.strerror if isinstance(error, OSError) else error
            hint = f"conductor model rm {name}; then pull or import it again"
            raise ConductorUnusable(f"cannot read {path}: {problem}", hint=hint) from None
        return manifest

    def unlisted_files(self, name: str) -> list[Path]:
        """Return what is in the directory of a model beside its manifest and what that names.

        An import has left it that was stopped, or that was not allowed to delete the files of the
        model it replaced.
        """
        folder = self.folder(name)
        try:
            manifest = self.find(name)
        except ConductorUnusable:  # nobody knows what it names
            return sorted(folder.glob(".*.new"))
        named = {folder / MANIFEST, *(file.path for file in (manifest.files if manifest else ()))}
        return sorted(path for path in folder.glob("*") if path.is_file() and path not in named)

    @contextmanager
    def lock(self, wait: Callable[[], None]) -> Iterator[None]:
        """Keep other processes from importing and removing. `wait` as in `exclusive_lock`.

        Raises `OSError`.
        """
        disk.make_private_directory(self.directory)
        with disk.exclusive_lock(self.directory / ".lock", wait):
            yield

    def write(self, manifest: Manifest) -> None:
        """Write a manifest, over an older one of its name, whole or not at all.

        Raises `ConfigError`.
        """
        import tomli_w  # only where something is written

        folder = self.folder(manifest.name)
        paths = []
        for file in manifest.files:
            paths.append(
                file.path.name if file.path.parent == folder else str(file.path.absolute())
            )
        files = []
        for file, path in zip(manifest.files, paths, strict=True):
            files.append(dump(file, brief=True) | {"path": path})
        text = "# Written by conductor.\n\n" + tomli_w.dumps({**dump(manifest), "files": files})
        try:
            disk.make_private_directory(folder)
            disk.write_atomically(folder / MANIFEST, text)
        except OSError as error:
            raise _unwritable(folder / MANIFEST, error) from None

    def delete(self, name: str) -> None:
        """Delete a manifest, readable or not, and its directory if nothing else is in it.

        Raises `ConfigError`.
        """
        folder = self.folder(name)
        try:
            (folder / MANIFEST).unlink(missing_ok=True)
        except OSError as error:
            raise _unwritable(folder / MANIFEST, error) from None
        with suppress(OSError):  # other files are in it
            folder.rmdir()


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"cannot write {path}: {error.strerror}", hint="check the disk and its permissions"
    )

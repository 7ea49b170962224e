"""What is in the model store: read again and compared with its manifest, and removed.

Removed is only what conductor put there: what it fetched, from the hub's cache with every name it has there, and the
store's own files. What another tool had brought into the cache stays, and a file that is used where it lies.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conductor_cli.core.errors import ConductorUnusable, ModelError
from conductor_cli.models.weights.digest import Reading, sha256_of
from conductor_cli.models.weights.header_check import check_whole
from conductor_cli.models.weights.model_store import MANIFEST, Manifest, ModelFile, ModelStore

_REPO: Final = "models--"
"""How the directory of a model's repository begins in the hub's cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A file that was read again. `problem` is empty where it is as it was; `sha256` where it could not be read."""

    path: Path
    sha256: str = ""
    problem: str = ""


def check(manifest: Manifest, tell: Reading) -> tuple[Checked, ...]:
    """Every file of a model, read whole and compared with the manifest; its header, too."""
    return tuple(_check_file(file, manifest, tell) for file in manifest.files)


def check_plain(path: Path, tell: Reading) -> Checked:
    """A file without a manifest: its header and its SHA-256, which nobody can compare."""
    try:
        check_whole(path)
        size = path.stat().st_size
        return Checked(path=path, sha256=sha256_of(path, lambda done: tell(path, done, size)))
    except ModelError as error:
        return Checked(path=path, problem=error.message)


def _check_file(file: ModelFile, manifest: Manifest, tell: Reading) -> Checked:
    path = file.path
    try:
        size = path.stat().st_size
        if size != file.size:
            return Checked(path=path, problem=f"it has {size:,} bytes instead of {file.size:,}")
        sha256 = sha256_of(path, lambda done: tell(path, done, size))
        if sha256 != file.sha256:
            return Checked(path=path, sha256=sha256, problem=f"its SHA-256 was {file.sha256}")
        if path == manifest.path:
            check_whole(path)
    except OSError as error:
        return Checked(path=path, problem=f"it cannot be read: {error.strerror}")
    except ModelError as error:
        return Checked(path=path, problem=error.message)
    return Checked(path=path, sha256=sha256)


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What `remove` takes away: files with all their names, and the bytes this frees; `left` are files that stay."""

    names: tuple[Path, ...] = ()
    freed: int = 0
    left: tuple[Path, ...] = ()


def removal(manifest: Manifest, store: ModelStore) -> Removal:
    """What would go with this model. A file that another model of the model store uses, too, is left."""
    shared = {file.path.resolve() for other in store.manifests() if other.name != manifest.name for file in other.files}
    names: list[Path] = []
    left: list[Path] = []
    freed = 0
    for file in manifest.files:
        found = _names(file, manifest, store)
        if found and file.path.resolve() not in shared:
            names += found
            freed += _frees(file.path.resolve())
        elif file.path.exists():
            left.append(file.path)
    return Removal(names=tuple(names), freed=freed, left=tuple(left))


def remove(manifest: Manifest, store: ModelStore) -> Removal:
    """Remove a stored model. Raises `ConductorUnusable` for a file that stays; then the manifest does, too."""
    going = removal(manifest, store)
    take_away(going)
    store.drop(manifest.name)
    return going


def leftovers(name: str, store: ModelStore) -> Removal:
    """What would go with a model whose manifest cannot be read: what is in its directory in the model store."""
    folder = store.folder(name)
    names = [path for path in sorted(folder.iterdir()) if path.is_file() and path.name != MANIFEST]
    return Removal(names=tuple(names), freed=sum(map(_frees, names)))


def clear(name: str, store: ModelStore) -> Removal:
    """Take a model whose manifest cannot be read out of the model store. Raises as `remove`."""
    going = leftovers(name, store)
    take_away(going)
    store.drop(name)
    return going


def take_away(going: Removal) -> None:
    """Delete files under all their names, and what is empty then of the hub's cache. Raises `ConductorUnusable`."""
    try:
        for path in going.names:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise ConductorUnusable(
            f"{error.filename} cannot be removed: {error.strerror}", hint="end what uses it, or mend its rights"
        ) from None
    for repo in {repo for path in going.names if (repo := _repo_of(path)) is not None}:
        _tidy(repo)


def _names(file: ModelFile, manifest: Manifest, store: ModelStore) -> list[Path]:
    """Every name under which conductor put the file where it is; none for a file that is somebody else's."""
    path = file.path
    if path.parent == store.folder(manifest.name):
        return [path]
    real = path.resolve()
    repo = _repo_of(real)
    if repo is None or not file.fetched:
        return []
    links = [link for link in repo.joinpath("snapshots").rglob("*") if link.is_symlink() and link.resolve() == real]
    return [*links, real]


def _frees(path: Path) -> int:
    """Bytes that go with a file: none while it has a name elsewhere."""
    try:
        found = path.stat()
    except OSError:
        return 0
    return found.st_size if found.st_nlink == 1 else 0


def _repo_of(path: Path) -> Path | None:
    """The directory of the repository in whose cache a file is."""
    return next((parent for parent in path.parents if parent.name.startswith(_REPO)), None)


def _tidy(repo: Path) -> None:
    """Take away directories that are empty now, and the repository's own when it holds no file any more."""
    for folder in sorted((path for path in repo.glob("snapshots/**/*") if path.is_dir()), reverse=True):
        with suppress(OSError):  # not empty
            folder.rmdir()
    # The last of these: what a pull that was stopped has of another file.
    if not any(any(repo.glob(names)) for names in ("snapshots/*/*", "blobs/*", ".conductor-llm/*")):
        shutil.rmtree(repo, ignore_errors=True)

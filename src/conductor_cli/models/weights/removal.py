"""Removing models and unfinished downloads.

Only what conductor put there is removed: its downloads, from the hub's cache with every name they have there, and files
in the model store. What another tool downloaded stays, and so does a file that is used from where it lies.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from conductor_cli.core.errors import ConductorUnusable
from conductor_cli.models.weights.cache import Cache, hold_lock
from conductor_cli.models.weights.model_store import MANIFEST, Manifest, ModelFile, ModelStore
from conductor_cli.models.weights.registry import RegistryModel

_REPO_PREFIX: Final = "models--"
"""How the directory of a repository begins in the hub's cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What goes: files with all their names, and the bytes this frees. `kept` are files that stay."""

    names: tuple[Path, ...] = ()
    freed: int = 0
    kept: tuple[Path, ...] = ()


def plan_removal(manifest: Manifest, store: ModelStore) -> Removal:
    """What would go with this model. A file that another stored model uses, too, is kept."""
    shared = {file.path.resolve() for other in store.manifests() if other.name != manifest.name for file in other.files}
    names: list[Path] = []
    kept: list[Path] = []
    freed = 0
    for file in manifest.files:
        found = _own_names(file, manifest, store)
        if found and file.path.resolve() not in shared:
            names += found
            freed += _bytes_freed(file.path.resolve())
        elif file.path.exists():
            kept.append(file.path)
    return Removal(names=tuple(names), freed=freed, kept=tuple(kept))


def remove_model(manifest: Manifest, store: ModelStore) -> Removal:
    """Remove a model. Raises `ConductorUnusable` for a file that cannot be deleted; then the manifest stays, too."""
    removal = plan_removal(manifest, store)
    _delete_files(removal)
    store.delete(manifest.name)
    return removal


def plan_damaged_removal(name: str, store: ModelStore) -> Removal:
    """What would go with a model whose manifest cannot be read: the files in its directory of the model store."""
    folder = store.folder(name)
    names = [path for path in sorted(folder.iterdir()) if path.is_file() and path.name != MANIFEST]
    return Removal(names=tuple(names), freed=sum(map(_bytes_freed, names)))


def remove_damaged_model(name: str, store: ModelStore) -> Removal:
    """Remove a model whose manifest cannot be read. Raises as `remove_model`."""
    removal = plan_damaged_removal(name, store)
    _delete_files(removal)
    store.delete(name)
    return removal


def find_unfinished(model: RegistryModel, store: ModelStore, cache: Cache) -> Removal:
    """What a pull that was stopped has left: partial files, and complete ones that no manifest lists."""
    names = []
    for part in model.parts:
        partial = cache.partial(model.repo, part.file)
        names += [partial.part] if partial.part.is_file() else []
        path = cache.snapshot_path(model.repo, partial.commit, part.file)
        if partial.commit and path.exists() and not store.is_fetched(path):
            names += _cache_names(path)
    sizes = {path.resolve(): path.stat().st_size for path in names if path.exists()}
    return Removal(names=tuple(names), freed=sum(sizes.values()))


def remove_unfinished(model: RegistryModel, store: ModelStore, cache: Cache) -> Removal:
    """Remove all that. Raises `ConductorUnusable` while a pull is running, or for a file that cannot be deleted."""

    def busy() -> NoReturn:
        raise ConductorUnusable(f"{model.name} is being pulled", hint="wait for the other process, or stop it")

    with ExitStack() as locks:
        for part in model.parts:
            locks.enter_context(hold_lock(cache.download_lock(model.repo, part.file), busy))
        removal = find_unfinished(model, store, cache)
        for part in model.parts:
            cache.partial(model.repo, part.file).delete()
        _delete_files(removal)
    return removal


def _own_names(file: ModelFile, manifest: Manifest, store: ModelStore) -> list[Path]:
    """Every name under which conductor put the file where it is; none for a file that is somebody else's."""
    if file.path.parent == store.folder(manifest.name):
        return [file.path]
    return _cache_names(file.path) if file.fetched else []


def _cache_names(path: Path) -> list[Path]:
    """A file of the hub's cache with all links to it; none for a file elsewhere, wherever a link may lead."""
    real = path.resolve()
    repo = _repo_folder(real)
    if repo is None:
        return []
    return [*(link for link in repo.joinpath("snapshots").rglob("*") if _is_link_to(link, real)), real]


def _is_link_to(link: Path, real: Path) -> bool:
    return link.is_symlink() and link.resolve() == real


def _bytes_freed(path: Path) -> int:
    """Bytes that go with a file: none while it has a name elsewhere."""
    try:
        found = path.stat()
    except OSError:
        return 0
    return found.st_size if found.st_nlink == 1 else 0


def _delete_files(removal: Removal) -> None:
    """Delete files under all their names, and directories of the hub's cache that are empty then."""
    try:
        for path in removal.names:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise ConductorUnusable(
            f"cannot delete {error.filename}: {error.strerror}", hint="close what uses it, or fix its permissions"
        ) from None
    for repo in {repo for path in removal.names if (repo := _repo_folder(path)) is not None}:
        for folder in sorted(_snapshot_folders(repo), reverse=True):
            with suppress(OSError):  # not empty
                folder.rmdir()
        # The last pattern: another unfinished download.
        if not any(any(repo.glob(names)) for names in ("snapshots/*/*", "blobs/*", ".conductor-llm/*")):
            shutil.rmtree(repo, ignore_errors=True)


def _snapshot_folders(repo: Path) -> Iterator[Path]:
    return (path for path in repo.glob("snapshots/**/*") if path.is_dir())


def _repo_folder(path: Path) -> Path | None:
    """The directory of the repository in whose cache a file is."""
    return next((parent for parent in path.parents if parent.name.startswith(_REPO_PREFIX)), None)

"""Pulling a model: its files into the hub's cache, where other tools find them, and its manifest into the store.

    REPO/blobs/ETAG               the bytes, each once
    REPO/snapshots/COMMIT/FILE    a link to them under the name they have in the repository
    REPO/refs/REVISION            the commit that a branch was at
    REPO/.conductor-llm/…         ours: files that are downloaded in part, or wait for the other parts of their model

A download gets its name in the cache only when all parts of the model are there and were checked. Until then the next
pull continues it, whatever ended the last one, and `model rm` knows that conductor downloaded it.

Removing a model and what a stopped pull of it has left.

Only what conductor put there is removed: its downloads, from the hub's cache with every name they have there, and files
in the model store. What another tool downloaded stays, and so does a file that is used from where it lies.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import NoReturn

from conductor_cli.core.errors import ConductorUnusable, ModelError
from conductor_cli.models import disk
from conductor_cli.models.llama.gguf import part_names
from conductor_cli.models.weights import huggingface
from conductor_cli.models.weights.huggingface import RemoteFile, cache_directory
from conductor_cli.models.weights.model_store import MANIFEST, HashSource, Manifest, ModelFile, ModelStore
from conductor_cli.models.weights.registry import FILE_NAME, REPO_NAME, RegistryFile, RegistryModel
from conductor_cli.models.weights.verify import Report, check_part, hash_file


def missing_bytes(model: RegistryModel) -> int:
    """Bytes that a pull of this model has to download, as far as sizes are known. The hub is not asked."""
    missing = 0
    for part in model.parts:
        path = huggingface.cached_path(model.repo, model.revision, part.file)
        if path is None and not _is_file(_blob(model.repo, part.sha256), part.size):
            missing += max(0, part.size - sum(path.stat().st_size for path in partial_files(model.repo, part.file)))
    return missing


def partial_files(repo: str, file: str) -> list[Path]:
    """What earlier pulls have downloaded of a file and not put into the cache yet."""
    return sorted(_partial_folder(repo).glob(f"{file.replace('/', '--')}@*"))


def lock_repo(repo: str, wait: Callable[[], None]) -> AbstractContextManager[None]:
    """Let one process at a time download from a repository, or remove its downloads."""
    lock = huggingface.cache_directory() / ".locks" / huggingface.repo_folder(repo).name / "conductor-llm.lock"
    return disk.exclusive_lock(lock, wait, mode=0o664)  # others may share the cache


def pull_model(model: RegistryModel, store: ModelStore, report: Report) -> Manifest:
    """Download a model as far as it is missing, and write its manifest.

    Raises `ConductorUnusable`, and `ConfigError` where the manifest cannot be written.
    """
    directory = huggingface.cache_directory()

    def wait() -> None:
        report(f"waiting for another process that downloads from {model.repo}", 0, 0)

    try:
        with lock_repo(model.repo, wait):
            saved = _saved_manifest(model, store)
            manifest = _pull_from_cache(model, store, saved, report) or _pull_from_hub(model, store, saved, report)
            store.write(manifest)
            return manifest
    except BrokenPipeError:  # whoever reads the progress is gone
        raise
    except ModelError as error:
        raise ConductorUnusable(error.message, hint=error.hint) from None
    except OSError as error:
        full = error.errno in disk.DISK_FULL_ERRORS
        problem = "its disk is full, or limits the size of files" if full else error.strerror
        raise ConductorUnusable(
            f"cannot write {error.filename or directory}: {problem}",
            hint="free some space, check the permissions, or set HF_HOME to another directory; the next pull continues",
        ) from None


def _saved_manifest(model: RegistryModel, store: ModelStore) -> Manifest | None:
    """The manifest that an earlier pull of the same files wrote. Its hashes count from then on."""
    found = store.find_readable(model.name)
    if found is None or not found.source.startswith(f"hub:{model.repo}@") or len(found.files) != len(model.parts):
        return None
    names = zip(found.files, (PurePosixPath(part.file).parts for part in model.parts), strict=True)
    return found if all(file.path.parts[-len(name) :] == name for file, name in names) else None


def _known_hashes(model: RegistryModel, saved: Manifest | None) -> list[str]:
    """The SHA-256 that each part must have; empty where neither the registry nor an earlier pull knows it."""
    earlier = saved.hashes if saved is not None else [""] * len(model.parts)
    return [part.sha256 or sha256 for part, sha256 in zip(model.parts, earlier, strict=True)]


def _pull_from_cache(
    model: RegistryModel, store: ModelStore, saved: Manifest | None, report: Report
) -> Manifest | None:
    """The manifest of files that are all in the cache and right. Raises `ConductorUnusable` if offline without them."""
    known, offline = _known_hashes(model, saved), huggingface.is_offline()
    found = [huggingface.cached_path(model.repo, model.revision, part.file) for part in model.parts]
    paths = [path for path in found if path is not None]
    # Where a hash is unknown, the hub is asked for it, if that is allowed.
    if len(paths) == len(found) and (all(known) or offline):
        hashes = [hash_file(path, report) for path in paths]
        blobs = [path.resolve().name for path in paths]
        pairs = zip(hashes, known, blobs, strict=True)
        # Offline, the name of a large blob is its SHA-256.
        if all(sha256 == expected or (not expected and sha256 == blob) for sha256, expected, blob in pairs):
            for part, path in zip(model.parts, paths, strict=True):
                _check_header(model, part, path)
            files = tuple(_model_file(*each, store) for each in zip(paths, hashes, strict=True))
            commit = paths[0].parts[-1 - len(PurePosixPath(model.parts[0].file).parts)]
            return _build_manifest(model, files, commit, saved, "")
    if offline:
        raise ConductorUnusable(
            f"HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set, and {model.name} is incomplete in "
            f"{huggingface.cache_directory()}",
            hint="pull it without these, or: conductor model import FILE",
        )
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    """A file that is whole and right: a partial file of ours, or one that the cache had."""

    remote: RemoteFile
    path: Path
    sha256: str


def _pull_from_hub(model: RegistryModel, store: ModelStore, saved: Manifest | None, report: Report) -> Manifest:
    """The manifest of what the hub has, downloaded as far as it is missing. All parts are of one commit."""
    report(f"asking about {model.repo}", 0, 0)
    listed = huggingface.ask_repository(model.repo, model.revision).files
    known = _known_hashes(model, saved)
    remotes = [_choose_remote(model, *each, listed) for each in zip(model.parts, known, strict=True)]
    missing = sum(
        remote.size - huggingface.size_of(_start_partial(remote)) for remote in remotes if not _cached(remote)
    )
    disk.check_room(huggingface.cache_directory(), missing, "HF_HOME")
    checked = [
        _find_cached(remote, sha256, report) or _download(remote, sha256, report)
        for remote, sha256 in zip(remotes, known, strict=True)
    ]
    for part, file in zip(model.parts, checked, strict=True):
        _check_header(model, part, file.path)
    files = tuple(_put_into_cache(file, store) for file in checked)
    commit = remotes[0].commit
    if commit != model.revision:
        # Offline, the library finds the snapshot of a branch by this file alone.
        ref = huggingface.repo_folder(model.repo) / "refs" / model.revision
        ref.parent.mkdir(parents=True, exist_ok=True)
        disk.write_atomically(ref, commit)
    return _build_manifest(model, files, commit, saved, huggingface.shown_endpoint())


def _choose_remote(
    model: RegistryModel, part: RegistryFile, known: str, listed: Mapping[str, RemoteFile]
) -> RemoteFile:
    """What the hub has under the name of a part, compared with what is known before a byte is downloaded."""
    name = f"{part.file} of {model.repo}"
    remote = listed.get(part.file)
    if remote is None:
        raise ConductorUnusable(
            f"{huggingface.shown_endpoint()} has no {name}", hint="update conductor-llm, or the registry"
        )
    size = remote.size or part.size
    pairs = {"SHA-256": (remote.sha256 or known, known or remote.sha256), "size": (size, part.size or size)}
    for kind, (found, expected) in pairs.items():
        if found != expected:
            raise ConductorUnusable(
                f"{huggingface.shown_endpoint()} has another {name}: its {kind} is {found}, not {expected}",
                hint="nothing was replaced; to accept the new file, update conductor-llm or the registry, or remove "
                "the model and pull it again",
            )
    etag = remote.etag or known
    if not (size and etag):
        raise ConductorUnusable(
            f"{huggingface.shown_endpoint()} names no size or no hash of {name}", hint="check HF_ENDPOINT"
        )
    return replace(remote, size=size, etag=etag)


def _find_cached(remote: RemoteFile, known: str, report: Report) -> _Checked | None:
    """The file if it is in the cache and whole, whoever downloaded it."""
    for path in _cached(remote):
        sha256 = hash_file(path, report, remote.file)
        if sha256 == (known or remote.sha256 or sha256):
            return _Checked(remote=remote, path=path, sha256=sha256)
    return None


def _cached(remote: RemoteFile) -> list[Path]:
    """Where the cache has a file of the right size."""
    # The blob may be there without a link in this snapshot, for example after the same file got a new commit.
    paths = (_blob(remote.repo, remote.etag), _snapshot_path(remote))
    return [path for path in paths if _is_file(path, remote.size)]


def _start_partial(remote: RemoteFile) -> Path:
    """The partial file that a download continues. Bytes of another content, or more than the file has, are deleted."""
    wanted = _partial_folder(remote.repo) / f"{remote.file.replace('/', '--')}@{remote.etag}"
    for path in partial_files(remote.repo, remote.file):
        if path != wanted or huggingface.size_of(path) > remote.size:
            path.unlink()
    wanted.parent.mkdir(parents=True, exist_ok=True)
    return wanted


def _download(remote: RemoteFile, known: str, report: Report) -> _Checked:
    """Download what is missing of a file, and check it. If a continued file is wrong, start over once."""
    path = _start_partial(remote)
    continued = path.exists()
    while True:
        huggingface.download_file(remote, path, report)
        sha256 = hash_file(path, report, remote.file)
        expected = known or remote.sha256 or sha256
        if sha256 == expected:
            return _Checked(remote=remote, path=path, sha256=sha256)
        path.unlink()
        # A file that was downloaded whole is wrong at its source, and would be wrong again.
        if not continued:
            raise ConductorUnusable(
                f"the download of {remote.file} of {remote.repo} has the SHA-256 {sha256}, not {expected}",
                hint="it was deleted and nothing was replaced; pull again, or from another HF_ENDPOINT",
            )
        continued = False


def _put_into_cache(file: _Checked, store: ModelStore) -> ModelFile:
    """Give a checked file its names in the cache."""
    remote, path = file.remote, _snapshot_path(file.remote)
    blob, folder = _blob(remote.repo, remote.etag), _partial_folder(remote.repo)
    downloaded = file.path.parent == folder
    if downloaded:
        # Without fsync a power failure could leave a blob that has the right name and lacks its last bytes.
        with file.path.open("rb+") as stream:
            os.fsync(stream.fileno())
        blob.parent.mkdir(parents=True, exist_ok=True)
        file.path.replace(blob)
        with suppress(OSError):  # other downloads are in it
            folder.rmdir()
    if blob.exists() and not (path.exists() and path.samefile(blob)):
        path.parent.mkdir(parents=True, exist_ok=True)
        with disk.temporary_path(path) as new:
            try:
                new.symlink_to(os.path.relpath(blob, path.parent))
            except OSError:  # a system without links: as with the library, the snapshot has the file itself
                blob.replace(new)
            new.replace(path)
    return _model_file(path, file.sha256, store, downloaded=downloaded)


def _model_file(path: Path, sha256: str, store: ModelStore, *, downloaded: bool = False) -> ModelFile:
    downloaded = downloaded or store.is_downloaded(path)
    return ModelFile(path=path, size=path.stat().st_size, sha256=sha256, downloaded=downloaded)


def _check_header(model: RegistryModel, part: RegistryFile, path: Path) -> None:
    """Check that a file whose hash only the hub says is a model at all, before that hash is saved."""
    if part.sha256 or not part.file.endswith(".gguf"):
        return
    try:
        check_part(path, model.parts.index(part) + 1, len(model.parts), adapter=bool(model.base))
    except ModelError as error:
        if path.parent == _partial_folder(model.repo):
            path.unlink()
        message = error.message.replace(str(path), f"{part.file} of {model.repo}")
        source = "what the registry says of this model" if model.listed else "what else the repository has"
        hint = f"its checksum was not saved: check HF_ENDPOINT, and {source}"
        raise ConductorUnusable(message, hint=hint) from None


def _build_manifest(
    model: RegistryModel, files: tuple[ModelFile, ...], commit: str, saved: Manifest | None, endpoint: str
) -> Manifest:
    """The manifest of these files. `endpoint` is the hub that was asked for them, empty for the cache."""
    source: HashSource = "hub" if endpoint else "file"
    # A hash that an earlier pull saved still comes from the hub that was asked then.
    if saved is not None and saved.hashes == [file.sha256 for file in files]:
        source, endpoint = saved.hash_source, saved.endpoint
    return Manifest(
        name=model.name, files=files, source=f"hub:{model.repo}@{commit}",
        hash_source="registry" if all(part.sha256 for part in model.parts) else source, endpoint=endpoint,
        licence=model.licence, profile=model.profile, base=model.base,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip


def _blob(repo: str, etag: str) -> Path:
    return huggingface.repo_folder(repo) / "blobs" / etag


def _snapshot_path(remote: RemoteFile) -> Path:
    return huggingface.repo_folder(remote.repo).joinpath("snapshots", remote.commit, *remote.file.split("/"))


def _partial_folder(repo: str) -> Path:
    return huggingface.repo_folder(repo) / ".conductor-llm"


def _is_file(path: Path, size: int) -> bool:
    return path.is_file() and (not size or path.stat().st_size == size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What goes: files with all their names, and the bytes this frees.

    `kept` are files that stay, and `adapters` are models that cannot be used any more.
    """

    names: tuple[Path, ...] = ()
    freed: int = 0
    kept: tuple[Path, ...] = ()
    adapters: tuple[str, ...] = ()


def plan_removal(name: str, store: ModelStore, model: RegistryModel | None) -> Removal:
    """What would go with a model. A file that another stored model uses, too, is kept."""
    names: list[Path] = []
    kept: list[Path] = []
    folder = store.folder(name)
    others = [other for other in store.manifests() if other.name != name]
    try:
        manifest = store.find(name)
    except ConductorUnusable:  # it cannot be read, so only the model's own directory is known
        names += [path for path in sorted(folder.iterdir()) if path.is_file() and path.name != MANIFEST]
    else:
        shared = {file.path.resolve() for other in others for file in other.files}
        for file in manifest.files if manifest is not None else ():
            own = [file.path] if file.path.parent == folder else _cache_names(file.path) if file.downloaded else []
            if own and file.path.resolve() not in shared:
                names += own
            elif file.path.exists():
                kept.append(file.path)
        names += store.unlisted_files(name)
    names += unfinished_files(model) if model is not None else []
    adapters = tuple(other.name for other in others if other.base == name)
    return Removal(names=tuple(names), freed=_bytes_freed(names), kept=tuple(kept), adapters=adapters)


def remove_model(name: str, store: ModelStore, model: RegistryModel | None) -> Removal:
    """Remove a model and its manifest.

    Raises `ConductorUnusable` while it is being pulled or imported, and for a file that cannot be deleted; then the
    manifest stays.
    """
    with ExitStack() as locks:
        if store.unlisted_files(name):
            locks.enter_context(store.lock(lambda: _refuse_while(name, "imported")))
        removal = _remove_files(name, model, lambda: plan_removal(name, store, model))
        store.delete(name)
        return removal


def remove_unfinished(model: RegistryModel) -> Removal:
    """Remove what a stopped pull has left. Raises `ConductorUnusable` as `remove_model` does."""
    return _remove_files(model.reference, model, lambda: plan_unfinished_removal(model))


def _remove_files(name: str, model: RegistryModel | None, plan: Callable[[], Removal]) -> Removal:
    with ExitStack() as locks:
        # Only a pull that has begun needs its lock; taking it would create a directory in the cache.
        if model is not None and unfinished_files(model):
            locks.enter_context(lock_repo(model.repo, lambda: _refuse_while(name, "pulled")))
        # Planned again under the lock: since the person was asked, a pull may have gone on.
        removal = plan()
        for path in removal.names:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                problem = f"cannot delete {error.filename}: {error.strerror}"
                raise ConductorUnusable(problem, hint="close what uses it, or fix its permissions") from None
        _delete_empty_directories(removal.names)
    return removal


def _refuse_while(name: str, what: str) -> NoReturn:
    raise ConductorUnusable(f"{name} is being {what}", hint="wait for the other process, or stop it")


def find_stopped_pulls(registry: Iterable[RegistryModel]) -> list[RegistryModel]:
    """Models of the hub that were downloaded in part, apart from those of the registry."""
    listed = {path for model in registry for path in unfinished_files(model)}
    found: dict[str, RegistryModel] = {}
    for path in sorted(cache_directory().glob("models--*--*/.conductor-llm/*.gguf@*")):
        repo = path.parent.parent.name.removeprefix("models--").replace("--", "/")
        # Where the name of a file itself has two dashes, this is another path, which leads to the same partial file.
        file = path.name.rpartition("@")[0].replace("--", "/")
        if path in listed or not (REPO_NAME.fullmatch(repo) and FILE_NAME.fullmatch(file)):
            continue
        model = RegistryModel(
            name="partial", repo=repo, revision="main", licence="unknown", about="", listed=False,
            parts=tuple(RegistryFile(file=name) for name in part_names(file)),
        )  # fmt: skip
        found[model.reference] = model
    return list(found.values())


def plan_unfinished_removal(model: RegistryModel) -> Removal:
    """What would go with a model that was downloaded in part."""
    names = unfinished_files(model)
    return Removal(names=tuple(names), freed=_bytes_freed(names))


def unfinished_files(model: RegistryModel) -> list[Path]:
    """What a pull that was stopped has left."""
    return [path for part in model.parts for path in partial_files(model.repo, part.file)]


def _bytes_freed(names: Sequence[Path]) -> int:
    """Bytes that go with these names: those of files that have no other hard link."""
    # An imported file is linked: its bytes stay as long as the name that the user knows it by.
    found = {path.resolve(): path.stat() for path in names if path.exists()}
    return sum(stat.st_size for stat in found.values() if stat.st_nlink == 1)


def _cache_names(path: Path) -> list[Path]:
    """A file of the hub's cache with all links to it; none for a file elsewhere, wherever a link may lead."""
    real = path.resolve()
    repo = _repo_folder(real)
    if repo is None:
        return []
    links = [link for link in repo.joinpath("snapshots").rglob("*") if link.is_symlink() and link.resolve() == real]
    return [*links, real]


def _delete_empty_directories(deleted: Sequence[Path]) -> None:
    """Delete the directories of the hub's cache that are empty without these files."""
    for repo in {repo for path in deleted if (repo := _repo_folder(path)) is not None}:
        for folder in sorted((path for path in repo.rglob("*") if path.is_dir()), reverse=True):
            with suppress(OSError):  # not empty
                folder.rmdir()
        # Without files only the names of branches are left, which lead nowhere.
        if not any(repo.joinpath(name).exists() for name in ("snapshots", "blobs", ".conductor-llm")):
            shutil.rmtree(repo, ignore_errors=True)


def _repo_folder(path: Path) -> Path | None:
    """The directory of the repository in whose cache a file is."""
    return next((parent for parent in path.parents if parent.name.startswith("models--")), None)

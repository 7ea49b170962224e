"""Pulling a model: its files into the hub's cache, and its manifest into the store.

Other tools find the files there:

    REPO/blobs/ETAG               the bytes, each once
    REPO/snapshots/COMMIT/FILE    a link to them under the name they have in the repository
    REPO/refs/REVISION            the commit that a branch was at
    REPO/.conductor-llm/…         ours: files that are downloaded in part, or wait for the other
                                  parts of their model

A download gets its name in the cache only when all parts of the model are there and were checked.
Until then the next pull continues it, whatever ended the last one. Of what `model rm` removes, only
what conductor put there goes: what another tool downloaded stays, and so does a file that is used
from where it lies.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import NoReturn

from conductor_cli.core.errors import ConductorUnusable, ModelError
from conductor_cli.models.llama.gguf import part_names
from conductor_cli.models.weights import huggingface
from conductor_cli.models.weights.huggingface import HubRepository, file_size
from conductor_cli.models.weights.model_store import (
    MANIFEST,
    HashSource,
    Manifest,
    ModelFile,
    ModelStore,
)
from conductor_cli.models.weights.registry import FILE_NAME, REPO_NAME, RegistryModel
from conductor_cli.models.weights.verify import Report, hash_file
from conductor_cli.system import disk


def missing_bytes(model: RegistryModel) -> int:
    """Return how many bytes a pull of this model has to download, as far as sizes are known.

    The hub is not asked. A packaged adapter is there already.
    """
    if model.is_packaged:
        return 0
    missing = 0
    for part in model.parts:
        path = huggingface.cached_path(model.repo, model.revision, part.file)
        if path is None and not _is_file(_blob(model.repo, part.sha256), part.size):
            partial = sum(file_size(path) for path in partial_files(model.repo, part.file))
            missing += max(0, part.size - partial)
    return missing


def partial_files(repo: str, file: str) -> list[Path]:
    """Return what earlier pulls have downloaded of a file and not put into the cache yet."""
    return sorted(_partial_folder(repo).glob(f"{file.replace('/', '--')}@*"))


def unfinished_files(model: RegistryModel) -> list[Path]:
    """Return what a pull that was stopped has left."""
    if model.is_packaged:
        return []
    paths: list[Path] = []
    for part in model.parts:
        paths += partial_files(model.repo, part.file)
    return paths


def _lock_repo(repo: str, wait: Callable[[], None]) -> AbstractContextManager[None]:
    """Let one process at a time download from a repository, or remove its downloads."""
    locks = huggingface.cache_directory() / ".locks"
    lock = locks / huggingface.repo_folder(repo).name / "conductor-llm.lock"
    return disk.exclusive_lock(lock, wait, mode=0o664)  # others may share the cache


def pull_model(model: RegistryModel, store: ModelStore, report: Report) -> Manifest:
    """Download a model as far as it is missing, and write its manifest.

    Raises `ConductorUnusable`, and `ConfigError` where the manifest cannot be written.
    """
    directory = huggingface.cache_directory()
    waits = f"waiting for another process that downloads from {model.repo}"
    try:
        with _lock_repo(model.repo, lambda: report(waits, 0, 0)):
            manifest = _pull_locked(model, store, report)
            store.write(manifest)
            return manifest
    except BrokenPipeError:  # whoever reads the progress is gone
        raise
    except ModelError as error:
        raise ConductorUnusable(error.message, hint=error.hint) from None
    except OSError as error:
        problem = f"cannot write {error.filename or directory}: {error.strerror}"
        if error.errno in disk.DISK_FULL_ERRORS:
            problem = (
                f"cannot write {error.filename or directory}: its disk is full, or limits the "
                "size of files"
            )
        hint = (
            "free some space, check the permissions, or set HF_HOME to another directory; the "
            "next pull continues"
        )
        raise ConductorUnusable(problem, hint=hint) from None


def _pull_locked(model: RegistryModel, store: ModelStore, report: Report) -> Manifest:
    """Return the manifest of a model whose files are in the cache from now on."""
    saved = _saved_manifest(model, store)
    parts = _parts_with_hashes(model, saved)
    source: HashSource = "file"
    endpoint = ""
    cached = _find_whole_model(model, parts, report)
    if cached is not None:
        files, commit = cached
    else:
        report(f"asking about {model.repo}", 0, 0)
        repository = huggingface.ask_repository(model.repo, model.revision, report=report)
        files = _download_model(model, repository, parts, report)
        commit = repository.commit
        source = "hub"
        endpoint = huggingface.shown_endpoint()
    # A hash that an earlier pull saved still comes from the hub that was asked then.
    if saved is not None and saved.hashes == [file.sha256 for file in files]:
        source = saved.hash_source
        endpoint = saved.endpoint
    if all(part.sha256 for part in model.parts):
        source = "registry"
    return Manifest(
        name=model.name,
        files=_stored_files(files, store),
        source=f"hub:{model.repo}@{commit}",
        hash_source=source,
        endpoint=endpoint,
        licence=model.licence,
        profile=model.profile,
        base=model.base,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _saved_manifest(model: RegistryModel, store: ModelStore) -> Manifest | None:
    """Return what an earlier pull of the same files saved."""
    saved = store.find_readable(model.name)
    if saved is None:
        return None
    names = [part.file for part in model.parts]
    is_same_model = saved.repo == model.repo and list(saved.repo_files) == names
    return saved if is_same_model else None


def _parts_with_hashes(model: RegistryModel, saved: Manifest | None) -> list[ModelFile]:
    """Return the parts of a model; the hashes that an earlier pull saved count from then on."""
    if saved is None:
        return list(model.parts)
    hashed = []
    for part, saved_hash in zip(model.parts, saved.hashes, strict=True):
        hashed.append(replace(part, sha256=part.sha256 or saved_hash))
    return hashed


def _stored_files(files: Sequence[ModelFile], store: ModelStore) -> tuple[ModelFile, ...]:
    """Return what a manifest says of the files.

    What a pull of another model downloaded was downloaded by conductor, too.
    """
    downloads: set[Path] = set()
    for manifest in store.manifests():
        downloads.update(file.path.resolve() for file in manifest.files if file.downloaded)
    model_files = []
    for file in files:
        model_file = ModelFile(
            path=file.path,
            size=file_size(file.path),
            sha256=file.sha256,
            downloaded=file.downloaded or file.path.resolve() in downloads,
        )
        model_files.append(model_file)
    return tuple(model_files)


def _find_whole_model(
    model: RegistryModel, parts: Sequence[ModelFile], report: Report
) -> tuple[list[ModelFile], str] | None:
    """Return the files and their commit, where all are in the cache and right.

    Raises `ConductorUnusable` where they are not and the hub must not be asked.
    """
    offline = huggingface.is_offline()
    paths: list[Path] = []
    for part in parts:
        path = huggingface.cached_path(model.repo, model.revision, part.file)
        if path is not None:
            paths.append(path)
    # Where a hash is unknown, the hub is asked for it, if that is allowed.
    has_hashes = all(part.sha256 for part in parts)
    if len(paths) == len(parts) and (offline or has_hashes):
        files = _matching_files(parts, paths, report)
        if files is not None:
            return files, _commit_of(paths[0], parts[0])
    if offline:
        raise huggingface.offline(f"{model.name} is incomplete in {huggingface.cache_directory()}")
    return None


def _matching_files(
    parts: Sequence[ModelFile], paths: Sequence[Path], report: Report
) -> list[ModelFile] | None:
    """Return the files of a model with their hashes, None where one is not what it should be."""
    files = []
    is_right = True
    for part, path in zip(parts, paths, strict=True):
        sha256 = hash_file(path, report)
        # Offline, the name of a large blob is its SHA-256.
        expected = part.sha256 or path.resolve().name
        is_right = is_right and sha256 == expected
        files.append(replace(part, path=path, sha256=sha256))
    if not is_right:
        return None
    return files


def _commit_of(path: Path, part: ModelFile) -> str:
    """Return the commit that a path in the cache belongs to: snapshots/COMMIT/FILE."""
    depth = len(PurePosixPath(part.file).parts)
    return path.parts[-1 - depth]


def _download_model(
    model: RegistryModel, repository: HubRepository, parts: Sequence[ModelFile], report: Report
) -> list[ModelFile]:
    """Download what is missing of the parts, all of one commit, and return the files.

    They are put into the cache once all were checked.
    """
    wanted = [_match_remote(repository, part) for part in parts]
    missing = 0
    for file in wanted:
        if not _cached(repository, file):
            missing += file.size - file_size(_start_partial(repository, file))
    disk.check_room(huggingface.cache_directory(), missing, "HF_HOME")
    files = [_fetch_file(repository, file, report) for file in wanted]
    files = [_put_into_cache(repository, file) for file in files]
    if repository.commit != model.revision:
        # Offline, the library finds the snapshot of a branch by this file alone.
        ref = huggingface.repo_folder(model.repo) / "refs" / model.revision
        ref.parent.mkdir(parents=True, exist_ok=True)
        disk.write_atomically(ref, repository.commit)
    return files


def _match_remote(repository: HubRepository, part: ModelFile) -> ModelFile:
    """Return what the hub has under the name of a part.

    It is compared with what is known of the part before a byte is downloaded.
    """
    hub = huggingface.shown_endpoint()
    name = f"{part.file} of {repository.name}"
    remote = repository.files.get(part.file)
    if remote is None:
        raise ConductorUnusable(
            f"{hub} has no {name}", hint="choose another model, or update conductor-llm"
        )
    pairs = {"SHA-256": (remote.sha256, part.sha256), "size": (remote.size, part.size)}
    for kind, (offered, expected) in pairs.items():
        if offered and expected and offered != expected:
            raise ConductorUnusable(
                f"{hub} has another {name}: its {kind} is {offered}, not {expected}",
                hint="nothing was replaced; to accept the new file, update conductor-llm or the "
                "registry, or remove the model and pull it again",
            )
    size = remote.size or part.size
    sha256 = remote.sha256 or part.sha256
    etag = remote.etag or sha256
    if not (size and etag):
        raise ConductorUnusable(
            f"{hub} names no size or no hash of {name}", hint="check HF_ENDPOINT"
        )
    return replace(remote, size=size, sha256=sha256, etag=etag)


def _cached(repository: HubRepository, file: ModelFile) -> list[Path]:
    """Return where the cache has a file of the right size."""
    # The blob may be there without a link in this snapshot, for example after the same file got a
    # new commit.
    paths = (_blob(repository.name, file.etag), _snapshot_path(repository, file))
    return [path for path in paths if _is_file(path, file.size)]


def _start_partial(repository: HubRepository, file: ModelFile) -> Path:
    """Return the partial file to continue.

    Bytes of another content, or more than the file has, are deleted.
    """
    wanted = _partial_folder(repository.name) / f"{file.file.replace('/', '--')}@{file.etag}"
    for path in partial_files(repository.name, file.file):
        if path != wanted or file_size(path) > file.size:
            path.unlink()
    wanted.parent.mkdir(parents=True, exist_ok=True)
    return wanted


def _fetch_file(repository: HubRepository, file: ModelFile, report: Report) -> ModelFile:
    """Return a file that is whole.

    It is that of the cache, whoever downloaded it, or is downloaded as far as it is missing. If a
    continued file is wrong, the download starts over once.
    """
    for path in _cached(repository, file):
        sha256 = hash_file(path, report, file.file)
        if sha256 == (file.sha256 or sha256):
            return replace(file, path=path, sha256=sha256)
    path = _start_partial(repository, file)
    continued = path.exists()
    while True:
        huggingface.download_file(repository, file, path, report)
        sha256 = hash_file(path, report, file.file)
        if sha256 == (file.sha256 or sha256):
            return replace(file, path=path, sha256=sha256)
        path.unlink()
        # A file that was downloaded whole is wrong at its source, and would be wrong again.
        if not continued:
            download = f"the download of {file.file} of {repository.name}"
            problem = f"{download} has the SHA-256 {sha256}, not {file.sha256}"
            hint = (
                "it was deleted and nothing was replaced; pull again, or from another HF_ENDPOINT"
            )
            raise ConductorUnusable(problem, hint=hint)
        continued = False


def _put_into_cache(repository: HubRepository, file: ModelFile) -> ModelFile:
    """Give a checked file its names in the cache."""
    path = _snapshot_path(repository, file)
    blob = _blob(repository.name, file.etag)
    downloaded = file.path.parent == _partial_folder(repository.name)
    if downloaded:
        # Without fsync a power failure could leave a blob that has the right name and lacks its
        # last bytes.
        with file.path.open("rb+") as stream:
            os.fsync(stream.fileno())
        blob.parent.mkdir(parents=True, exist_ok=True)
        file.path.replace(blob)
        with suppress(OSError):  # other downloads are in it
            file.path.parent.rmdir()
    is_linked = path.exists() and blob.exists() and path.samefile(blob)
    if blob.exists() and not is_linked:
        path.parent.mkdir(parents=True, exist_ok=True)
        with disk.temporary_path(path) as temporary:
            try:
                temporary.symlink_to(os.path.relpath(blob, path.parent))
            except OSError:
                # A system without links: as with the library, the snapshot has the file itself
                blob.replace(temporary)
            temporary.replace(path)
    return replace(file, path=path, downloaded=downloaded)


def _blob(repo: str, etag: str) -> Path:
    return huggingface.repo_folder(repo) / "blobs" / etag


def _snapshot_path(repository: HubRepository, file: ModelFile) -> Path:
    folder = huggingface.repo_folder(repository.name)
    return folder.joinpath("snapshots", repository.commit, *file.file.split("/"))


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
    """Return what would go with a stored model, or with a stopped pull of `model`.

    A stored model may be pulled as `model`. A file that another stored model uses, too, is kept.
    """
    names = unfinished_files(model) if model is not None else []
    kept: list[Path] = []
    adapters: list[str] = []
    if model is None or model.listed:  # else it is a stopped pull, which has no name in the store
        others = [manifest for manifest in store.manifests() if manifest.name != name]
        adapters = [manifest.name for manifest in others if manifest.base == name]
        try:
            manifest = store.find(name)
        except ConductorUnusable:  # it cannot be read, so only the model's own directory is known
            names += _files_beside_manifest(store.folder(name))
        else:
            if manifest is not None:
                removed, kept = _split_files(manifest, store.folder(name), others)
                names += removed
            names += store.unlisted_files(name)
    return Removal(
        names=tuple(names), freed=_freed_bytes(names), kept=tuple(kept), adapters=tuple(adapters)
    )


def _files_beside_manifest(folder: Path) -> list[Path]:
    paths = sorted(folder.iterdir())
    return [path for path in paths if path.is_file() and path.name != MANIFEST]


def _split_files(
    manifest: Manifest, folder: Path, others: Sequence[Manifest]
) -> tuple[list[Path], list[Path]]:
    """Return the names of a model's files that go with it, and the files that stay."""
    shared: set[Path] = set()
    for other in others:
        shared.update(file.path.resolve() for file in other.files)
    removed: list[Path] = []
    kept: list[Path] = []
    for file in manifest.files:
        names = _removable_names(file, folder)
        if names and file.path.resolve() not in shared:
            removed += names
        elif file.path.exists():
            kept.append(file.path)
    return removed, kept


def _removable_names(file: ModelFile, folder: Path) -> list[Path]:
    """Return the names of a file that conductor put there, none for a file of somebody else."""
    if file.path.parent == folder:
        return [file.path]
    if file.downloaded:
        return _cache_names(file.path)
    return []


def _freed_bytes(names: Sequence[Path]) -> int:
    """Return the bytes that are free once these names are gone.

    An imported file is linked: its bytes stay as long as the name that the user knows it by.
    """
    files = {path.resolve(): path.stat() for path in names if path.exists()}
    return sum(stat.st_size for stat in files.values() if stat.st_nlink == 1)


def remove_model(name: str, store: ModelStore, model: RegistryModel | None) -> Removal:
    """Remove what `plan_removal` says, and the manifest.

    Raises `ConductorUnusable` while the model is being pulled or imported, and for a file that
    cannot be deleted; then the manifest stays.
    """

    def refuse_while(change: str) -> NoReturn:
        hint = "wait for the other process, or stop it"
        raise ConductorUnusable(f"{name} is being {change}", hint=hint)

    stored = model is None or model.listed
    with ExitStack() as locks:
        if stored and store.unlisted_files(name):
            locks.enter_context(store.lock(lambda: refuse_while("imported")))
        # Only a pull that has begun needs its lock; taking it would create a directory in the
        # cache.
        if model is not None and unfinished_files(model):
            locks.enter_context(_lock_repo(model.repo, lambda: refuse_while("pulled")))
        # Planned again under the lock: since the person was asked, a pull may have gone on.
        removal = plan_removal(name, store, model)
        for path in removal.names:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                problem = f"cannot delete {error.filename}: {error.strerror}"
                raise ConductorUnusable(
                    problem, hint="close what uses it, or fix its permissions"
                ) from None
        for repo in {_repo_folder(path) for path in removal.names}:
            if repo is not None:
                _remove_empty_directories(repo)
        if stored:
            store.delete(name)
    return removal


def _remove_empty_directories(repo: Path) -> None:
    """Remove what is empty in the cached repository, and all of it where no file is left."""
    directories = [path for path in repo.rglob("*") if path.is_dir()]
    for directory in sorted(directories, reverse=True):
        with suppress(OSError):  # not empty
            directory.rmdir()
    # Without files only the names of branches are left, which lead nowhere.
    contents = (repo / "snapshots", repo / "blobs", repo / ".conductor-llm")
    if not any(directory.exists() for directory in contents):
        shutil.rmtree(repo, ignore_errors=True)


def find_stopped_pulls(registry: Iterable[RegistryModel]) -> list[RegistryModel]:
    """Return the models of the hub that were downloaded in part.

    Those of the registry are left out.
    """
    listed: set[Path] = set()
    for model in registry:
        listed.update(unfinished_files(model))
    stopped: dict[str, RegistryModel] = {}
    for path in sorted(huggingface.cache_directory().glob("models--*--*/.conductor-llm/*.gguf@*")):
        repo = path.parent.parent.name.removeprefix("models--").replace("--", "/")
        # Where the name of a file itself has two dashes, this is another path, which leads to the
        # same partial file.
        file = path.name.rpartition("@")[0].replace("--", "/")
        has_valid_names = REPO_NAME.fullmatch(repo) and FILE_NAME.fullmatch(file)
        if path in listed or not has_valid_names:
            continue
        model = RegistryModel(
            name="partial",
            repo=repo,
            revision="main",
            licence="unknown",
            about="",
            listed=False,
            parts=tuple(ModelFile(file=name) for name in part_names(file)),
        )
        stopped[model.reference] = model
    return list(stopped.values())


def _cache_names(path: Path) -> list[Path]:
    """Return a file of the hub's cache with all links to it.

    There is none for a file elsewhere, wherever a link may lead.
    """
    real = path.resolve()
    repo = _repo_folder(real)
    if repo is None:
        return []
    paths = repo.joinpath("snapshots").rglob("*")
    links = [path for path in paths if path.is_symlink() and path.resolve() == real]
    return [*links, real]


def _repo_folder(path: Path) -> Path | None:
    for parent in path.parents:
        if parent.name.startswith("models--"):
            return parent
    return None

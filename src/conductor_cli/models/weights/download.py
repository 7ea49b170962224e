"""Pulling a model: its files in the hub's cache, each checked before it gets its name, and its manifest in the store.

A file that is there already, from an earlier pull or from another tool, is checked and used. A download that was
stopped continues.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Final

from conductor_cli.core.errors import ConductorUnusable, ModelError
from conductor_cli.models import disk
from conductor_cli.models.weights.cache import Cache, PartialDownload, check_names, hold_lock
from conductor_cli.models.weights.hashing import FileHashes, hash_file
from conductor_cli.models.weights.http_download import RetryPolicy, download_bytes, retry
from conductor_cli.models.weights.hub import (
    Download,
    Hub,
    HubRefusal,
    RemoteFile,
    explain_error,
    read_remote_file,
    renew_login,
)
from conductor_cli.models.weights.model_store import HashSource, Manifest, ModelFile, ModelStore
from conductor_cli.models.weights.progress import ProgressMeter, Report
from conductor_cli.models.weights.registry import RegistryFile, RegistryModel
from conductor_cli.models.weights.verify import check_part

_HASH: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PullEstimate:
    """What a pull needs: bytes still to download, as far as sizes are known, and the bytes free where they go."""

    missing: int
    free: int
    directory: Path
    cached: bool


def estimate_pull(model: RegistryModel, environ: Mapping[str, str]) -> PullEstimate:
    """What a pull of this model needs, from the disk alone. Raises `ConductorUnusable` for bad names."""
    _check_model_names(model)
    cache = Cache.from_environment(environ)
    cached = bool(_find_commit(cache, model, [part.sha256 for part in model.parts]))
    missing = 0
    for part in () if cached else model.parts:
        if not (part.sha256 and _is_file(cache.blob(model.repo, part.sha256), part.size)):
            partial = cache.partial(model.repo, part.file).part
            missing += max(0, part.size - (partial.stat().st_size if partial.exists() else 0))
    free = disk.free_bytes(cache.directory)
    return PullEstimate(missing=missing, free=free, directory=cache.directory, cached=cached)


def pull_model(
    model: RegistryModel,
    store: ModelStore,
    environ: Mapping[str, str],
    report: Report,
    policy: RetryPolicy = RetryPolicy(),  # noqa: B008 - it is frozen
) -> Manifest:
    """Download a model as far as it is missing, and write its manifest. Not for use inside an event loop.

    Interrupted, it leaves what the next pull continues with. Raises `ConductorUnusable`, and `ConfigError` where the
    manifest cannot be written.
    """
    _check_model_names(model)
    downloader = FileDownloader(store, environ, report, policy)
    try:
        manifest = _pull_from_cache(model, downloader) or _pull_from_hub(model, downloader)
    except BrokenPipeError:  # whoever reads the progress is gone
        raise
    except OSError as error:
        if error.errno in disk.DISK_FULL_ERRORS:
            raise ConductorUnusable(
                f"the disk of {downloader.cache.directory} is full, or limits the size of files",
                hint="free some space, or set HF_HOME to another disk; the next pull continues where this one stopped",
            ) from None
        raise ConductorUnusable(
            f"cannot write {error.filename or downloader.cache.directory}: {error.strerror}",
            hint="check its permissions, or set HF_HOME to another directory",
        ) from None
    store.write(manifest)
    # From here on the manifest says which files conductor downloaded; the notes in the cache have done their duty.
    for part in model.parts:
        downloader.cache.partial(model.repo, part.file).delete()
    return manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSpec:
    """A file of a repository that is wanted. `size` and `sha256` are the registry's, where it has them.

    `saved_sha256` is the manifest's from an earlier pull. It is part `number` of `count` of a model, or an `adapter`.
    """

    repo: str
    revision: str
    file: str
    size: int = 0
    sha256: str = ""
    saved_sha256: str = ""
    number: int = 1
    count: int = 1
    adapter: bool = False

    @property
    def known_sha256(self) -> str:
        """The SHA-256 that the file must have; empty where nothing is known yet."""
        return self.sha256 or self.saved_sha256


def _check_model_names(model: RegistryModel) -> None:
    for part in model.parts:
        check_names(model.repo, model.revision, part.file)


def _find_commit(cache: Cache, model: RegistryModel, hashes: Sequence[str]) -> str:
    """The commit of a snapshot that has all parts; where a hash is unknown, only the one that the revision was at."""
    commits = cache.commits(model.repo, model.revision)
    for commit in commits if all(hashes) else commits[:1]:
        paths = [cache.snapshot_path(model.repo, commit, part.file) for part in model.parts]
        if all(_may_be(*each) for each in zip(paths, model.parts, hashes, strict=True)):
            return commit
    return ""


def _may_be(path: Path, part: RegistryFile, sha256: str) -> bool:
    """Whether this may be the file, by its size and, where that says it, by the name of its blob."""
    if not _is_file(path, part.size):
        return False
    # Large blobs are named by their SHA-256, so most wrong files are ruled out without reading gigabytes.
    blob = path.parent / path.readlink() if path.is_symlink() else path
    return not sha256 or blob.name == sha256 or len(blob.name) != len(sha256)


def _is_file(path: Path, size: int) -> bool:
    return path.is_file() and (not size or path.stat().st_size == size)


def _file_specs(model: RegistryModel, downloader: FileDownloader) -> list[FileSpec]:
    saved = _saved_manifest(model, downloader.store)
    hashes = saved.hashes if saved is not None else [""] * len(model.parts)
    return [
        FileSpec(
            repo=model.repo, revision=model.revision, file=part.file, size=part.size, sha256=part.sha256,
            saved_sha256=saved_sha256, number=number, count=len(model.parts), adapter=bool(model.base),
        )
        for number, (part, saved_sha256) in enumerate(zip(model.parts, hashes, strict=True), start=1)
    ]  # fmt: skip


def _saved_manifest(model: RegistryModel, store: ModelStore) -> Manifest | None:
    """The manifest that an earlier pull of the same files wrote. Its hashes count from then on."""
    found = store.find_readable(model.name)
    if found is None or not found.source.startswith(f"hub:{model.repo}@") or len(found.files) != len(model.parts):
        return None
    names = zip(found.files, (PurePosixPath(part.file).parts for part in model.parts), strict=True)
    return found if all(file.path.parts[-len(name) :] == name for file, name in names) else None


def _pull_from_cache(model: RegistryModel, downloader: FileDownloader) -> Manifest | None:
    """The manifest of files that are all there. The hub is not asked where every hash is known, nor when offline."""
    # The revision's current commit is unknown without a request, but files with known hashes are right in any commit.
    cache, specs = downloader.cache, _file_specs(model, downloader)
    hashes = [spec.known_sha256 for spec in specs]
    commit = _find_commit(cache, model, hashes) if all(hashes) or downloader.hub.offline else ""
    files = [downloader.check_cached(spec, commit) for spec in specs] if commit else [None]
    found = [file for file in files if file is not None]
    if len(found) == len(specs):
        saved = _saved_manifest(model, downloader.store)
        if saved is not None and saved.hashes == [file.sha256 for file in found]:
            return _build_manifest(model, found, commit, saved.hash_source, saved.endpoint)
        return _build_manifest(model, found, commit, "file", "")
    if downloader.hub.offline:
        raise ConductorUnusable(
            f"HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set, and {model.name} is incomplete in {cache.directory}",
            hint="pull it without these, or: conductor model import FILE",
        )
    return None


def _pull_from_hub(model: RegistryModel, downloader: FileDownloader) -> Manifest:
    """The manifest of what the hub has, downloaded as far as it is missing. All parts are of one commit."""
    commit, files = model.revision, []
    for spec in _file_specs(model, downloader):
        # The first file decides the commit; a branch that moves meanwhile cannot mix two versions of a model.
        file, commit = downloader.download(replace(spec, revision=commit))
        files.append(file)
    downloader.cache.write_ref(model.repo, model.revision, commit)
    saved = _saved_manifest(model, downloader.store)
    # A hash that an earlier pull saved still comes from the hub that was asked then.
    if saved is not None and saved.endpoint:
        return _build_manifest(model, files, commit, saved.hash_source, saved.endpoint)
    return _build_manifest(model, files, commit, "hub", downloader.hub.shown)


def _build_manifest(
    model: RegistryModel, files: Sequence[ModelFile], commit: str, hash_source: HashSource, endpoint: str
) -> Manifest:
    """`hash_source` and `endpoint` say where the hashes come from, if the registry does not have them all."""
    known = all(part.sha256 for part in model.parts)
    return Manifest(
        name=model.name, files=tuple(files), source=f"hub:{model.repo}@{commit}",
        hash_source="registry" if known else hash_source, endpoint=endpoint, licence=model.licence,
        profile=model.profile, base=model.base, at=datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip


class FileDownloader:
    """Downloads single files into the hub's cache. Each file is read once, however often its hashes are needed."""

    def __init__(self, store: ModelStore, environ: Mapping[str, str], report: Report, policy: RetryPolicy) -> None:
        self.store = store
        self.cache = Cache.from_environment(environ)
        self.hub = Hub.from_environment(environ)
        self._environ = environ
        self._report = report
        self._policy = policy
        self._hashes: dict[Path, FileHashes] = {}

    def download(self, spec: FileSpec) -> tuple[ModelFile, str]:
        """The file in the cache, whole and checked, and its commit. Raises `ConductorUnusable`, or `OSError`."""
        waiting = ProgressMeter(self._report, "waiting", spec.file, spec.size)
        # Two locks: ours also covers the partial file, the blob's is the one that the hub's library takes.
        own_lock = self.cache.download_lock(spec.repo, spec.file)
        with hold_lock(own_lock, lambda: waiting.note_once("another process is downloading it")):
            remote = self._read_remote(spec)
            self._check_remote(spec, remote)
            key = remote.etag if _HASH.fullmatch(remote.etag) else spec.known_sha256
            blob_lock = self.cache.blob_lock(spec.repo, key or remote.etag)
            with hold_lock(blob_lock, lambda: waiting.note_once("another tool is downloading it")):
                path = self.cache.snapshot_path(spec.repo, remote.commit, spec.file)
                existing = self._find_existing(spec, remote, key, path)
                if existing is not None:
                    self._check_header(spec, existing)
                    self.cache.link(existing, path, move=False)
                else:
                    self._download_missing(spec, remote, key, path)
                return self._model_file(spec, path), remote.commit

    def check_cached(self, spec: FileSpec, commit: str) -> ModelFile | None:
        """A file of a snapshot, if it has the known hash, or without one the hash that its blob is named by."""
        path = self.cache.snapshot_path(spec.repo, commit, spec.file)
        blob_name = path.readlink().name if path.is_symlink() else ""
        if not self._read_hashes(path, spec.file).match(spec.known_sha256, blob_name):
            return None
        self._check_header(spec, path)
        return self._model_file(spec, path)

    def _model_file(self, spec: FileSpec, path: Path) -> ModelFile:
        hashes = self._read_hashes(path, spec.file)
        # The directory of a complete download stays until the manifest is written, also over a pull that was stopped.
        downloaded = bool(self.cache.partial(spec.repo, spec.file).commit) or self.store.is_downloaded(path)
        return ModelFile(path=path, size=hashes.size, sha256=hashes.sha256, downloaded=downloaded)

    def _read_hashes(self, path: Path, name: str) -> FileHashes:
        real = path.resolve()
        if real not in self._hashes:
            try:
                self._hashes[real] = hash_file(real, self._report, name)
            except ModelError as error:
                raise ConductorUnusable(error.message, hint=error.hint) from None
        return self._hashes[real]

    def _read_remote(self, spec: FileSpec) -> RemoteFile:
        meter = ProgressMeter(self._report, "asking", spec.file, spec.size)
        meter.update(0)

        def ask() -> RemoteFile:
            return read_remote_file(self.hub, spec.repo, spec.revision, spec.file, self._policy.stall)

        try:
            try:
                remote = retry(ask, self._policy, meter.note)
            except HubRefusal as error:
                # An expired browser login is refused even for public files.
                if error.status != 401 or not self.hub.token:
                    raise
                refused = self.hub
                renew_login()
                self.hub = Hub.from_environment(self._environ)
                if self.hub == refused:
                    raise
                remote = retry(ask, self._policy, meter.note)
        except (HubRefusal, ModelError) as error:
            raise explain_error(error, self.hub, spec.repo, spec.revision, spec.file) from None
        return remote if remote.size else replace(remote, size=spec.size)

    def _check_remote(self, spec: FileSpec, remote: RemoteFile) -> None:
        """Compare what the hub has with what is known, before a byte is downloaded or replaced."""
        host, file = self.hub.host, f"{spec.file} of {spec.repo}"
        if spec.known_sha256 and remote.sha256 and remote.sha256 != spec.known_sha256:
            known = "the registry has" if spec.sha256 else "the first pull saved"
            raise ConductorUnusable(
                f"{host} has another {file}: its SHA-256 is {remote.sha256}, {known} {spec.known_sha256}",
                hint="nothing was replaced; the file or the mirror was changed: update conductor-llm, or the registry"
                if spec.sha256 else "nothing was replaced; to accept the new file, remove the model and pull it again",
            )  # fmt: skip
        if spec.size and remote.size != spec.size:
            raise ConductorUnusable(
                f"{host} has {file} with {remote.size:,} bytes, the registry says {spec.size:,}",
                hint="the file was changed: update conductor-llm, or the registry",
            )

    def _find_existing(self, spec: FileSpec, remote: RemoteFile, key: str, path: Path) -> Path | None:
        """The file if it is in the cache and whole, whoever downloaded it."""
        expected = spec.known_sha256 or remote.sha256
        # A blob may be there without a link in this snapshot, for example after the same file got a new commit.
        for found in (self.cache.blob(spec.repo, key), path) if key else (path,):
            if not _is_file(found, remote.size):
                continue
            if self._read_hashes(found, spec.file).match(expected, remote.etag, remote.size):
                return found
        return None

    def _download_missing(self, spec: FileSpec, remote: RemoteFile, key: str, path: Path) -> None:
        """Download the file, check it, and give it its names."""
        partial = self.cache.partial(spec.repo, spec.file, remote.etag)
        hashes = self._download_and_hash(spec, remote, partial)
        try:
            self._check_header(spec, partial.part)
        except ConductorUnusable:
            partial.delete()
            raise
        ProgressMeter(self._report, "storing", spec.file, hashes.size).update(hashes.size)
        blob = self.cache.blob(spec.repo, key or hashes.sha256)
        replaced = blob.exists()  # a damaged file, which other snapshots may link to
        partial.finish(blob, remote.commit)
        self.cache.link(blob, path, move=not replaced)
        self._hashes[path.resolve()] = hashes

    def _download_and_hash(self, spec: FileSpec, remote: RemoteFile, partial: PartialDownload) -> FileHashes:
        """Download what is missing. If a continued file fails verification, start over once."""
        for last in (False, True):
            partial.start(remote.size)
            download = Download(hub=self.hub, repo=spec.repo, file=spec.file, remote=remote, part=partial.part)
            disk.check_room(self.cache.directory, max(0, remote.size - download.done), "HF_HOME")
            meter = ProgressMeter(self._report, "downloading", spec.file, remote.size)
            meter.update(download.done)
            try:
                in_one = download_bytes(download, self._policy, meter)
                hashes = hash_file(partial.part, self._report, spec.file)
            except (HubRefusal, ModelError) as error:
                raise explain_error(error, self.hub, spec.repo, spec.revision, spec.file) from None
            if hashes.match(spec.known_sha256 or remote.sha256, remote.etag, remote.size):
                return hashes
            partial.delete()
            # A file that came by one request is wrong at its source; downloading it again would not help.
            if last or in_one:
                break
        expected = spec.known_sha256 or remote.etag
        found = hashes.git if len(expected) == 40 else hashes.sha256
        raise ConductorUnusable(
            f"the download of {spec.file} of {spec.repo} has the hash {found}, but {expected} was expected",
            hint="it was deleted and nothing was replaced; pull again, or from another HF_ENDPOINT",
        )

    def _check_header(self, spec: FileSpec, path: Path) -> None:
        """Check that a file whose hash only the hub says is a model at all, before that hash is saved."""
        if spec.sha256 or not spec.file.endswith(".gguf"):
            return
        try:
            check_part(path, spec.number, spec.count, adapter=spec.adapter)
        except ModelError as error:
            message = error.message.replace(str(path), f"{spec.file} of {spec.repo}, as {self.hub.host} has it,")
            hint = "its checksum was not saved: check HF_ENDPOINT, and what the registry says of this model"
            raise ConductorUnusable(message, hint=hint) from None

"""A registry's entry -> its files in the hub's cache, each with its SHA-256 checked before it has its name.

What is already there, from an earlier pull or from any other tool, is checked and used. What is begun is continued.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from conductor_cli.core.errors import ConductorUnusable
from conductor_cli.models import disk
from conductor_cli.models.weights.bring import Bringer, Setting, Wanted
from conductor_cli.models.weights.cache import Cache, check_names
from conductor_cli.models.weights.hub import Hub
from conductor_cli.models.weights.model_store import TRUST_ORDER, Manifest, ModelFile, ModelStore, Pin
from conductor_cli.models.weights.progress import PACE, RetryPolicy, Tell
from conductor_cli.models.weights.registry import RegistryFile, RegistryModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """What a pull would take: bytes still to fetch, as far as sizes are known, and bytes free where they go."""

    entry: RegistryModel
    missing: int
    free: int
    where: Path
    cached: bool


def quote(entry: RegistryModel, environ: Mapping[str, str]) -> Quote:
    """What a pull of this entry would take, by a look at the disk. Raises `ConductorUnusable` for bad names."""
    _check_names(entry)
    cache = Cache.of(environ)
    cached = bool(_commit(cache, entry, [part.sha256 for part in entry.parts]))
    missing = 0 if cached else sum(_missing(cache, entry, part) for part in entry.parts)
    return Quote(
        entry=entry, missing=missing, free=disk.free_bytes(cache.directory), where=cache.directory, cached=cached
    )


def pull(
    entry: RegistryModel, store: ModelStore, environ: Mapping[str, str], tell: Tell, pace: RetryPolicy = PACE
) -> Manifest:
    """Bring a model onto this machine and its manifest into the model store.

    Not for use inside an event loop. Interrupted, it leaves what the next pull goes on with. Raises
    `ConductorUnusable`, and `ConfigError` where the model store cannot be written.
    """
    _check_names(entry)
    cache, hub = Cache.of(environ), Hub.of(environ)
    work = _Pull(entry, Setting(cache=cache, hub=hub, store=store, environ=environ, tell=tell, pace=pace))
    try:
        manifest = work.from_cache() or work.from_hub()
    except BrokenPipeError:  # whoever is told of the progress does not listen any more
        raise
    except OSError as error:
        raise _cannot_store(cache.directory, error) from None
    store.put(manifest)
    return manifest


def _check_names(entry: RegistryModel) -> None:
    for part in entry.parts:
        check_names(entry.repo, entry.revision, part.file)


def _missing(cache: Cache, entry: RegistryModel, part: RegistryFile) -> int:
    if part.sha256 and _is_file(cache.blob(entry.repo, part.sha256), part.size):
        return 0
    begun = cache.begun(entry.repo, part.file).part
    return max(0, part.size - (begun.stat().st_size if begun.exists() else 0))


def _commit(cache: Cache, entry: RegistryModel, hashes: Sequence[str]) -> str:
    """The commit of a snapshot that has all parts of these hashes; one that the revision was at for unknown hashes."""
    commits = cache.commits(entry.repo, entry.revision)
    for commit in commits if all(hashes) else commits[:1]:
        places = [cache.place(entry.repo, commit, part.file) for part in entry.parts]
        if all(_fits(*pair) for pair in zip(places, entry.parts, hashes, strict=True)):
            return commit
    return ""


def _fits(place: Path, part: RegistryFile, sha256: str) -> bool:
    """Whether this may be the file, by its size and, where that tells it, by the name that it has among the blobs."""
    if not _is_file(place, part.size):
        return False
    first = place.parent / place.readlink() if place.is_symlink() else place
    return not sha256 or first.name == sha256 or len(first.name) != len(sha256)


def _is_file(path: Path, size: int) -> bool:
    return path.is_file() and (not size or path.stat().st_size == size)


class _Pull:
    """One pull, while it goes on."""

    def __init__(self, entry: RegistryModel, setting: Setting) -> None:
        self._entry = entry
        self._setting = setting
        self._bringer = Bringer(setting)
        missing = [_missing(setting.cache, entry, part) for part in entry.parts]
        self._wanted = tuple(
            Wanted(
                repo=entry.repo, revision=entry.revision, file=part.file, size=part.size, sha256=part.sha256,
                pin=setting.store.pin_of(entry.repo, part.file), later=sum(missing[number:]),
                number=number, count=len(entry.parts), adapter=bool(entry.base),
            )
            for number, part in enumerate(entry.parts, start=1)
        )  # fmt: skip

    def from_cache(self) -> Manifest | None:
        """The manifest of what is there already. The hub is not asked for what is pinned, nor when it may not be."""
        cache, hub = self._setting.cache, self._setting.hub
        hashes = [wanted.known for wanted in self._wanted]
        commit = _commit(cache, self._entry, hashes) if all(hashes) or hub.offline else ""
        files = [self._checked(wanted, commit) for wanted in self._wanted] if commit else [None]
        if all(files):
            pins = [self._remembered(wanted) for wanted in self._wanted]
            return self._as_before(self._manifest([file for file in files if file], commit, pins))
        if hub.offline:
            raise ConductorUnusable(
                f"HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set, and {self._entry.name} is not whole in "
                f"{cache.directory}",
                hint="pull it without these, or: conductor model import FILE",
            )
        return None

    def from_hub(self) -> Manifest:
        """The manifest of what the hub has, fetched as far as it is not here. All parts are of one commit."""
        commit, files, pins = self._entry.revision, [], []
        for wanted in self._wanted:
            brought = self._bringer.bring(replace(wanted, revision=commit))
            commit = brought.commit
            files.append(brought.file)
            pins.append(brought.pin)
        self._setting.cache.refer(self._entry.repo, self._entry.revision, commit)
        return self._manifest(files, commit, pins)

    def _checked(self, wanted: Wanted, commit: str) -> ModelFile | None:
        """A file of a snapshot, if it is what it should be: as known, else as its name among the blobs says."""
        place = self._setting.cache.place(wanted.repo, commit, wanted.file)
        sums = self._bringer.sums(place, wanted.file)
        right = sums.are(wanted.known, place.readlink().name if place.is_symlink() else "")
        if not right:
            return None
        self._bringer.check(wanted, place)
        fetched = self._setting.store.is_fetched(place)
        return ModelFile(path=place, size=sums.size, sha256=sums.sha256, fetched=fetched)

    def _remembered(self, wanted: Wanted) -> Pin:
        """Who vouches for a file about which nobody was asked."""
        return Pin(sha256=wanted.sha256, trust="registry") if wanted.sha256 else wanted.pin

    def _manifest(self, files: Sequence[ModelFile], commit: str, pins: Sequence[Pin]) -> Manifest:
        entry, weakest = self._entry, max(pins, key=lambda pin: pin.rank)
        return Manifest(
            name=entry.name, files=tuple(files), source=f"hub:{entry.repo}@{commit}", endpoint=weakest.endpoint,
            trust=weakest.trust, licence=entry.licence, profile=entry.profile, base=entry.base,
            at=datetime.now(UTC).isoformat(timespec="seconds"),
        )  # fmt: skip

    def _as_before(self, manifest: Manifest) -> Manifest:
        """Nobody was asked: what vouched for the same files when they were pulled still does."""
        before = next((found for found in self._setting.store.manifests() if found.name == manifest.name), None)
        if before is None or TRUST_ORDER.index(before.trust) >= TRUST_ORDER.index(manifest.trust):
            return manifest
        same = [file.sha256 for file in before.files] == [file.sha256 for file in manifest.files]
        return replace(manifest, trust=before.trust, endpoint=before.endpoint) if same else manifest


def _cannot_store(directory: Path, error: OSError) -> ConductorUnusable:
    if error.errno in disk.DISK_FULL_ERRORS:
        return ConductorUnusable(
            f"the disk of {directory} is full, or the file may not be so large",
            hint="free the disk, or name another: HF_HOME; a pull goes on where it stopped",
        )
    return ConductorUnusable(
        f"{error.filename or directory} cannot be written: {error.strerror}",
        hint="check its rights, or name another: HF_HOME",
    )

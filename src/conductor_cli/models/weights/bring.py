"""One file of a model: asked for, fetched if it is not here, checked, and only then given its name in the cache."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from conductor_cli.core.errors import ConductorUnusable, ModelError
from conductor_cli.models import disk
from conductor_cli.models.weights.cache import Cache, held
from conductor_cli.models.weights.digest import pieces
from conductor_cli.models.weights.header_check import check_piece
from conductor_cli.models.weights.hub import Download, Found, Hub, Refused, ask, unusable
from conductor_cli.models.weights.model_store import NO_PIN, PINS, ModelFile, ModelStore, Pin, Trust
from conductor_cli.models.weights.plain import patiently
from conductor_cli.models.weights.progress import Meter, RetryPolicy, Tell
from conductor_cli.models.weights.transfer import renew_login, transfer

SMALL: Final = 256 << 20
"""Bytes below which git's own hash is computed, too: it stands for small files only."""

_HASH: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """What a file is: its size, its SHA-256, and the hash by which git knows it."""

    size: int
    sha256: str
    git: str

    def are(self, sha256: str, etag: str, size: int = 0) -> bool:
        """Whether they are what was expected, as far as that is known. An ETag that is no hash says nothing."""
        if sha256:
            return self.sha256 == sha256
        hashed = {64: self.sha256, 40: self.git}.get(len(etag))
        return hashed == etag if hashed else size in {0, self.size}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A file of a repository. `size` and `sha256` as the registry has them; `pin` is what an earlier pull was told.

    `later`: bytes that will be wanted after this file. It is part `number` of `count`, of an `adapter` or a model.
    """

    repo: str
    revision: str
    file: str
    size: int = 0
    sha256: str = ""
    pin: Pin = NO_PIN
    later: int = 0
    number: int = 1
    count: int = 1
    adapter: bool = False

    @property
    def known(self) -> str:
        """The SHA-256 that it must have, as far as that is known."""
        return self.sha256 or self.pin.sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """A file that is in the cache, whole and checked, the commit in whose snapshot it is, and who vouches for it."""

    file: ModelFile
    commit: str
    pin: Pin


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a pull stands on."""

    cache: Cache
    hub: Hub
    store: ModelStore
    environ: Mapping[str, str]
    tell: Tell
    pace: RetryPolicy


class Bringer:
    """Brings files into the cache. What it has read once it does not read again."""

    def __init__(self, setting: Setting) -> None:
        self._environ = setting.environ
        self._cache = setting.cache
        self._hub = setting.hub
        self._store = setting.store
        self._tell = setting.tell
        self._pace = setting.pace
        self._sums: dict[Path, Sums] = {}

    def bring(self, wanted: Wanted) -> Brought:
        """Ask the hub for the file and bring what is missing of it. Raises `ConductorUnusable`, or `OSError`."""
        waiting = Meter(self._tell, "waiting", wanted.file, wanted.size)
        turn = self._cache.turn(wanted.repo, wanted.file)
        with held(turn, lambda: waiting.once("another process is fetching it")):
            found = self._ask(wanted)
            self._agree(wanted, found)
            key = found.etag if _HASH.fullmatch(found.etag) else wanted.known
            with held(self._cache.lock(wanted.repo, key or found.etag), lambda: waiting.once("another tool has it")):
                place = self._cache.place(wanted.repo, found.commit, wanted.file)
                here = self._here(wanted, found, key, place)
                if here is not None:
                    self.check(wanted, here)
                    self._cache.link(here, place, move=False)
                else:
                    self._fetched(wanted, found, key, place)
                return self._brought(wanted, found, place)

    def sums(self, path: Path, name: str) -> Sums:
        """What the file at `path` is, read whole unless that was done before. Raises `ConductorUnusable`."""
        real = path.resolve()
        if real not in self._sums:
            self._sums[real] = self._read(real, name)
        return self._sums[real]

    def check(self, wanted: Wanted, path: Path) -> None:
        """Whether what nobody vouches for is a model at all, before it is pinned. Raises `ConductorUnusable`."""
        if wanted.sha256 or not wanted.file.endswith(".gguf"):
            return
        try:
            check_piece(path, wanted.number, wanted.count, adapter=wanted.adapter)
        except ModelError as error:
            told = error.message.replace(str(path), f"{wanted.file} of {wanted.repo}, as {self._hub.host} has it,")
            hint = "it was not pinned: check HF_ENDPOINT, and what the registry says of this model"
            raise ConductorUnusable(told, hint=hint) from None

    def _read(self, path: Path, name: str) -> Sums:
        size = path.stat().st_size
        meter = Meter(self._tell, "checking", name, size)
        sha256, git = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        done = 0
        try:
            for piece in pieces(path):
                sha256.update(piece)
                if size < SMALL:
                    git.update(piece)
                done += len(piece)
                meter.at(done)
        except ModelError as error:
            raise ConductorUnusable(error.message, hint=error.hint) from None
        return Sums(size=done, sha256=sha256.hexdigest(), git=git.hexdigest())

    def _ask(self, wanted: Wanted) -> Found:
        meter = Meter(self._tell, "asking", wanted.file, wanted.size)
        meter.at(0)
        try:
            found = self._asked(wanted, meter)
        except (Refused, ModelError) as error:
            raise unusable(error, self._hub, wanted.repo, wanted.revision, wanted.file) from None
        return found if found.size else replace(found, size=wanted.size)

    def _asked(self, wanted: Wanted, meter: Meter) -> Found:
        def asking() -> Found:
            return ask(self._hub, wanted.repo, wanted.revision, wanted.file, self._pace.stall)

        try:
            return patiently(asking, self._pace, meter.note)
        except Refused as error:
            if error.status != 401 or not self._hub.token:
                raise
            renew_login(self._environ, self._pace)  # it may only be too old, and then public files are refused, too
            hub = Hub.of(self._environ)
            if hub == self._hub:
                raise
            self._hub = hub
            return patiently(asking, self._pace, meter.note)

    def _agree(self, wanted: Wanted, found: Found) -> None:
        """Whether the hub has what is expected. Raises `ConductorUnusable` before a byte is fetched or replaced."""
        host = self._hub.host
        if wanted.known and found.sha256 and found.sha256 != wanted.known:
            raise self._other(wanted, found.sha256, host)
        if wanted.size and found.size != wanted.size:
            raise ConductorUnusable(
                f"{host} has {wanted.file} of {wanted.repo} with {found.size:,} bytes, the registry {wanted.size:,}",
                hint="the file was changed: update conductor-llm, or the registry",
            )

    def _other(self, wanted: Wanted, sha256: str, host: str) -> ConductorUnusable:
        if wanted.sha256:
            return ConductorUnusable(
                f"{host} has another {wanted.file} of {wanted.repo} than the registry: "
                f"SHA-256 {sha256}, not {wanted.known}",
                hint="nothing was replaced; the file or the mirror was changed: update conductor-llm, or the registry",
            )
        return ConductorUnusable(
            f"{host} has another {wanted.file} of {wanted.repo} than at the first pull: "
            f"SHA-256 {sha256}, not {wanted.known}",
            hint=f"nothing was replaced; to take the new one, delete its line in {self._store.directory / PINS}",
        )

    def _here(self, wanted: Wanted, found: Found, key: str, place: Path) -> Path | None:
        """The file, if it is in the cache and whole, whoever brought it."""
        for path in (self._cache.blob(wanted.repo, key), place) if key else (place,):
            alike = path.is_file() and (not found.size or path.stat().st_size == found.size)
            if alike and self.sums(path, wanted.file).are(wanted.known or found.sha256, found.etag, found.size):
                return path
        return None

    def _fetched(self, wanted: Wanted, found: Found, key: str, place: Path) -> None:
        """Bring the file to its end and check it. What was continued and turns out wrong is begun anew, once."""
        begun = self._cache.begun(wanted.repo, wanted.file, found.etag)
        for last in (False, True):
            begun.start(found.size)
            download = Download(hub=self._hub, repo=wanted.repo, file=wanted.file, found=found, part=begun.part)
            left = max(0, found.size - download.begun)
            disk.check_room(self._cache.directory, left + wanted.later, "HF_HOME")
            in_one = self._transfer(wanted, download)
            sums = self._read(begun.part, wanted.file)
            if sums.are(wanted.known or found.sha256, found.etag, found.size):
                break
            begun.drop()
            if in_one or last:
                raise self._wrong(wanted, found, sums)
        try:
            self.check(wanted, begun.part)
        except ConductorUnusable:
            begun.drop()
            raise
        Meter(self._tell, "storing", wanted.file, sums.size).at(sums.size)
        blob = self._cache.blob(wanted.repo, key or sums.sha256)
        others = blob.exists()  # a damaged one, which other snapshots may have links to
        self._store.note_fetched(blob, place)
        self._cache.keep(begun.part, blob)
        begun.drop()
        self._cache.link(blob, place, move=not others)
        self._sums[place.resolve()] = sums

    def _transfer(self, wanted: Wanted, download: Download) -> bool:
        meter = Meter(self._tell, "fetching", wanted.file, download.found.size)
        meter.at(download.begun)
        try:
            return transfer(download, self._environ, self._pace, meter)
        except (Refused, ModelError) as error:
            raise unusable(error, self._hub, wanted.repo, wanted.revision, wanted.file) from None

    def _wrong(self, wanted: Wanted, found: Found, sums: Sums) -> ConductorUnusable:
        expected = wanted.known or found.etag
        got = sums.git if len(expected) == 40 else sums.sha256
        return ConductorUnusable(
            f"what came as {wanted.file} of {wanted.repo} has the hash {got}, and {expected} was expected",
            hint="it was deleted, nothing else was; pull again, or from another HF_ENDPOINT",
        )

    def _brought(self, wanted: Wanted, found: Found, place: Path) -> Brought:
        sums = self.sums(place, wanted.file)
        pin = self._vouched(wanted, found, sums)
        if not wanted.sha256 and pin != wanted.pin:
            self._store.pin(wanted.repo, wanted.file, pin)
        file = ModelFile(path=place, size=sums.size, sha256=sums.sha256, fetched=self._store.is_fetched(place))
        return Brought(file=file, commit=found.commit, pin=pin)

    def _vouched(self, wanted: Wanted, found: Found, sums: Sums) -> Pin:
        """Who vouches for the file: the registry, the hub that was asked, or who did so for an earlier pull."""
        trust: Trust = "registry" if wanted.sha256 else "hub" if self._hub.official else "mirror"
        now = Pin(sha256=sums.sha256, trust=trust, endpoint=self._hub.shown)
        said = _HASH.fullmatch(found.etag) is not None or not wanted.pin.sha256
        return now if wanted.sha256 or (said and now.rank < wanted.pin.rank) else wanted.pin

"""The cache of the hub's own library, where model files end, read and written without that library.

DIRECTORY/models--OWNER--NAME/blobs/HASH                the bytes, each once
DIRECTORY/models--OWNER--NAME/snapshots/COMMIT/FILE     a link to them under the name they have in the repository
DIRECTORY/models--OWNER--NAME/refs/REVISION             the commit that a branch was at
DIRECTORY/models--OWNER--NAME/.conductor-llm/…          ours: what is not yet whole
DIRECTORY/.locks/models--OWNER--NAME/…                  locks

Names come from a registry or a server and are not trusted: `check_name` holds them inside.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conductor_cli.core.errors import ConductorUnusable
from conductor_cli.models import disk
from conductor_cli.models.disk import exclusive_lock

_WORD: Final = re.compile(r"[^\x00-\x1f\x7f<>:\"|?*\\/]{1,200}")
_REPO: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9_][A-Za-z0-9._-]{0,95})?")
_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def is_on(value: str | None) -> bool:
    """Whether a variable of the hub's library is switched on."""
    return (value or "").upper() in {"1", "ON", "YES", "TRUE"}


def settings_directory(environ: Mapping[str, str]) -> Path:
    """HF_HOME, or where it is when it is not set."""
    base = environ.get("XDG_CACHE_HOME") or "~/.cache"
    return _path(environ.get("HF_HOME") or os.path.join(base, "huggingface"))  # noqa: PTH118 - not yet a path


def key_of(etag: str) -> str:
    """An ETag without its marks, fit to be a file's name; empty where it is not."""
    etag = etag.strip().removeprefix("W/").strip('"')
    return etag if _KEY.fullmatch(etag) else ""


def check_names(repo: str, revision: str, file: str) -> None:
    """Raises `ConductorUnusable` for names that could lead out of the directories."""
    if not _REPO.fullmatch(repo) or ".." in repo or "--" in repo:
        raise _bad("repository", repo)
    for what, name in (("revision", revision), ("file", file)):
        words = name.split("/")
        if not all(_WORD.fullmatch(word) and word.strip(". ") and not word.endswith((".", " ")) for word in words):
            raise _bad(what, name)


def _bad(what: str, name: str) -> ConductorUnusable:
    return ConductorUnusable(f"{name!r:.80} is no name of a {what}", hint="mend the registry's entry")


def _path(text: str | os.PathLike[str]) -> Path:
    return Path(os.path.expandvars(text)).expanduser()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialDownload:
    """A file that is not whole: where its bytes are, and which content they are of."""

    folder: Path
    etag: str

    @property
    def part(self) -> Path:
        return self.folder / "part"

    def start(self, size: int) -> None:
        """Make the directory ready; bytes of another content, or more than it has, are dropped."""
        too_many = size and self.part.exists() and self.part.stat().st_size > size
        if _read(self.folder / "etag") != self.etag or too_many:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "etag").write_text(self.etag)

    def drop(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):  # another file is begun
            self.folder.parent.rmdir()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """The hub's cache."""

    directory: Path
    links: bool = True

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Cache:
        """Where the environment says it is."""
        chosen = environ.get("HF_HUB_CACHE") or environ.get("HUGGINGFACE_HUB_CACHE")
        directory = _path(chosen) if chosen else settings_directory(environ) / "hub"
        return cls(directory=directory.absolute(), links=not is_on(environ.get("HF_HUB_DISABLE_SYMLINKS")))

    def folder(self, repo: str) -> Path:
        return self.directory / "--".join(["models", *repo.split("/")])

    def blob(self, repo: str, key: str) -> Path:
        return self.folder(repo) / "blobs" / key

    def place(self, repo: str, commit: str, file: str) -> Path:
        """Where a file is under its own name, if it is there."""
        return self.folder(repo).joinpath("snapshots", commit, *file.split("/"))

    def commits(self, repo: str, revision: str) -> tuple[str, ...]:
        """The commits that are there, in part at least: first the one that the revision was last known to be at."""
        if _COMMIT.fullmatch(revision):
            first = revision
        else:
            first = _read(self.folder(repo).joinpath("refs", *revision.split("/"))).strip()
        try:
            there = sorted(path.name for path in (self.folder(repo) / "snapshots").iterdir())
        except OSError:
            there = []
        others = (name for name in there if name != first)
        return tuple(name for name in (first, *others) if _COMMIT.fullmatch(name))

    def begun(self, repo: str, file: str, etag: str = "") -> PartialDownload:
        name = hashlib.sha256(file.encode()).hexdigest()[:16]
        return PartialDownload(folder=self.folder(repo) / ".conductor-llm" / name, etag=etag)

    def keep(self, part: Path, blob: Path) -> None:
        """Give a whole and checked file its name among the blobs, over a damaged one."""
        blob.parent.mkdir(parents=True, exist_ok=True)
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(blob)

    def link(self, blob: Path, place: Path, *, move: bool) -> None:
        """Give a blob its name in a snapshot. Without links it goes there itself with `move`, else as a copy."""
        if place.exists() and place.samefile(blob):
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        with disk.temporary_path(place) as new:
            try:
                if not self.links:
                    raise OSError  # noqa: TRY301 - as on a system that has none
                new.symlink_to(os.path.relpath(blob, place.parent))
            except OSError:
                if move:
                    blob.replace(new)
                else:
                    disk.link_or_copy(blob, new)
            new.replace(place)

    def refer(self, repo: str, revision: str, commit: str) -> None:
        """Remember which commit a branch is at."""
        path = self.folder(repo).joinpath("refs", *revision.split("/"))
        if revision == commit or _read(path) == commit:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        disk.write_atomically(path, commit)

    def turn(self, repo: str, file: str) -> Path:
        """The lock file of whoever brings a file."""
        return self.lock(repo, f"conductor-llm-{self.begun(repo, file).folder.name}")

    def lock(self, repo: str, name: str) -> Path:
        """The lock file of a name. That of a blob is the one that the hub's library takes for it, too."""
        return self.directory / ".locks" / self.folder(repo).name / f"{name}.lock"


@contextmanager
def held(path: Path, wait: Callable[[], None]) -> Iterator[None]:
    """Hold one of these locks, which whoever shares the cache may hold, too; see `alone`."""
    with exclusive_lock(path, wait, mode=0o664):
        yield


def _read(path: Path) -> str:
    """A small text file; empty where there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")[:200]
    except OSError:
        return ""

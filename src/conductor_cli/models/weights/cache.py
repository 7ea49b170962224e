"""The cache directory of the hub's library, where downloads end, so that other tools find them there.

DIRECTORY/models--OWNER--NAME/blobs/HASH                the bytes, each once
DIRECTORY/models--OWNER--NAME/snapshots/COMMIT/FILE     a link to them under the name they have in the repository
DIRECTORY/models--OWNER--NAME/refs/REVISION             the commit that a branch was at
DIRECTORY/models--OWNER--NAME/.conductor-llm/…          ours: downloads that are not finished
DIRECTORY/.locks/models--OWNER--NAME/…                  locks

Names come from a registry or a server and are not trusted: `check_names` keeps them inside.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from conductor_cli.core.errors import ConductorUnusable
from conductor_cli.models import disk
from conductor_cli.models.disk import exclusive_lock

# Stricter than Linux requires: these names must be valid on Windows, too.
_WORD: Final = re.compile(r"[^\x00-\x1f\x7f<>:\"|?*\\/]{1,200}")
_REPO: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9_][A-Za-z0-9._-]{0,95})?")
_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def is_switched_on(value: str | None) -> bool:
    """Whether an environment variable of the hub's library is switched on."""
    return (value or "").upper() in {"1", "ON", "YES", "TRUE"}


def hub_settings_directory(environ: Mapping[str, str]) -> Path:
    """HF_HOME, or its default."""
    base = environ.get("XDG_CACHE_HOME") or "~/.cache"
    return _expand(environ.get("HF_HOME") or os.path.join(base, "huggingface"))  # noqa: PTH118 - not yet a path


def parse_etag(etag: str) -> str:
    """An ETag without its marks if it can be a file's name, else empty."""
    etag = etag.strip().removeprefix("W/").strip('"')
    return etag if _KEY.fullmatch(etag) else ""


def check_names(repo: str, revision: str, file: str) -> None:
    """Raises `ConductorUnusable` for names that could lead out of the directories."""
    if not _REPO.fullmatch(repo) or ".." in repo or "--" in repo:
        raise _invalid_name("repository", repo)
    for kind, name in (("revision", revision), ("file", file)):
        words = name.split("/")
        if not all(_WORD.fullmatch(word) and word.strip(". ") and not word.endswith((".", " ")) for word in words):
            raise _invalid_name(kind, name)


def _invalid_name(kind: str, name: str) -> ConductorUnusable:
    return ConductorUnusable(f"{name!r:.80} is not a valid {kind} name", hint="correct the model's registry entry")


def _expand(text: str | os.PathLike[str]) -> Path:
    return Path(os.path.expandvars(text)).expanduser()


hold_lock: Final = partial(exclusive_lock, mode=0o664)
"""Holds one of the cache's locks, which whoever shares the cache may hold, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialDownload:
    """A directory of ours for one file: its bytes so far, and the ETag of the content that they belong to.

    When the file is complete it moves out, and `commit` says in which snapshot it is. The directory stays until a
    manifest lists the file: it is how a later `pull` or `rm` knows that conductor, and no other tool, downloaded it.
    """

    folder: Path
    etag: str

    @property
    def part(self) -> Path:
        return self.folder / "part"

    @property
    def commit(self) -> str:
        """The snapshot that has the complete file; empty while it is not complete."""
        commit = _read_small_file(self.folder / "commit")
        return commit if _COMMIT.fullmatch(commit) and not self.part.exists() else ""

    def start(self, size: int) -> None:
        """Create the directory; bytes of another content, or more than the file has, are deleted."""
        # More bytes than the file has cannot be its beginning.
        too_many = size and self.part.exists() and self.part.stat().st_size > size
        if _read_small_file(self.folder / "etag") != self.etag or too_many:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "etag").write_text(self.etag)

    def finish(self, blob: Path, commit: str) -> None:
        """Move the complete and checked file to its name among the blobs, over a damaged one."""
        blob.parent.mkdir(parents=True, exist_ok=True)
        # Without fsync a power failure could leave a blob that has the right name and lacks its last bytes.
        with self.part.open("rb+") as file:
            os.fsync(file.fileno())
        (self.folder / "commit").write_text(commit)
        self.part.replace(blob)

    def delete(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):  # other files are there
            self.folder.parent.rmdir()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """The hub's cache. `links`: a snapshot holds symbolic links to the blobs, as on every system that has them."""

    directory: Path
    links: bool = True

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Cache:
        """Where the hub's library has it."""
        chosen = environ.get("HF_HUB_CACHE") or environ.get("HUGGINGFACE_HUB_CACHE")
        directory = _expand(chosen) if chosen else hub_settings_directory(environ) / "hub"
        links = not is_switched_on(environ.get("HF_HUB_DISABLE_SYMLINKS"))
        return cls(directory=directory.absolute(), links=links)

    def folder(self, repo: str) -> Path:
        return self.directory / "--".join(["models", *repo.split("/")])

    def blob(self, repo: str, key: str) -> Path:
        return self.folder(repo) / "blobs" / key

    def snapshot_path(self, repo: str, commit: str, file: str) -> Path:
        """Where a file is under its own name, if it is there."""
        return self.folder(repo).joinpath("snapshots", commit, *file.split("/"))

    def commits(self, repo: str, revision: str) -> tuple[str, ...]:
        """The commits that are there, at least in part; first the one that the revision was last known to be at."""
        folder, first = self.folder(repo), revision
        if not _COMMIT.fullmatch(revision):
            first = _read_small_file(folder.joinpath("refs", *revision.split("/"))).strip()
        found = sorted(path.name for path in folder.glob("snapshots/*"))
        return tuple(name for name in dict.fromkeys([first, *found]) if _COMMIT.fullmatch(name))

    def partial(self, repo: str, file: str, etag: str = "") -> PartialDownload:
        # A file's own name may contain slashes or be too long for a directory.
        name = hashlib.sha256(file.encode()).hexdigest()[:16]
        return PartialDownload(folder=self.folder(repo) / ".conductor-llm" / name, etag=etag)

    def link(self, blob: Path, path: Path, *, move: bool) -> None:
        """Give a blob its name in a snapshot. Without links it is moved there with `move`, else copied."""
        if path.exists() and path.samefile(blob):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with disk.temporary_path(path) as new:
            if self.links:
                with suppress(OSError):  # a system without links
                    new.symlink_to(os.path.relpath(blob, path.parent))
            if not new.is_symlink():
                if move:
                    blob.replace(new)
                else:
                    disk.link_or_copy(blob, new)
            new.replace(path)

    def write_ref(self, repo: str, revision: str, commit: str) -> None:
        """Remember which commit a branch is at."""
        # Offline, the hub's library finds the snapshot of a branch by this file alone.
        path = self.folder(repo).joinpath("refs", *revision.split("/"))
        if revision == commit or _read_small_file(path) == commit:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        disk.write_atomically(path, commit)

    def download_lock(self, repo: str, file: str) -> Path:
        """The lock file of the conductor process that downloads a file."""
        return self.blob_lock(repo, f"conductor-llm-{self.partial(repo, file).folder.name}")

    def blob_lock(self, repo: str, key: str) -> Path:
        """The lock file of a blob, which the hub's library takes, too."""
        return self.directory / ".locks" / self.folder(repo).name / f"{key}.lock"


def _read_small_file(path: Path) -> str:
    """The text of a file; empty where there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")[:200]
    except OSError:
        return ""

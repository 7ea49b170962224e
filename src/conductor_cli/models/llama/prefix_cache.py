"""States of fixed prompt prefixes on disk: the keys and values of everything before the question.

Reading 501 tokens took a 7B model 20.2 s on two cores; taking their state from disk took 0.1 s. A
file holds one line of JSON, then the state as `llama_state_seq_get_data` gives it. llama.cpp has aborted the process on
a state that is cut off, and believes one that is damaged, so size and SHA-256 are checked before it sees any.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import secrets
import time
from array import array
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

FORMAT: Final = "conductor-prefix-1"

LEAST: Final = 64
"""Tokens below which reading again is as fast."""

FILES: Final = 32
BYTES: Final = 2 << 30
"""How many states are kept, and how many bytes of them; what was not used for the longest time goes first."""

NAMING: Final = 2
"""A state is of a model file and perhaps of an adapter: the first lines of what names it."""

SUFFIX: Final = ".kv"
ABANDONED: Final = 3600.0
"""Seconds after which a file that is still being written is not."""

_HEAD: Final = 4096

_OWN: Final = re.compile(r"[0-9a-f]{32}\.kv")
_BEGUN: Final = re.compile(r"\.[0-9a-f]{32}\.kv\.[0-9a-f]{8}")
"""How `Prefixes` calls its states, and what is still being written; nothing else in the directory is touched."""


class PrefixCache:
    """The states of one model, in a directory that all models and processes share. Nothing here raises.

    `most` is the largest state that is worth keeping, in bytes.
    """

    most: Final = BYTES // 4

    def __init__(self, directory: Path, model: str) -> None:
        """`model` names everything beside the tokens that a state depends on."""
        self._directory, self._model = directory, model

    def wants(self, tokens: Sequence[int]) -> bool:
        """Whether the state of these tokens is worth keeping and not there yet."""
        try:
            return len(tokens) >= LEAST and not self._path(tokens).exists()
        except OSError:  # a directory that is somebody else's
            return False

    def load(self, tokens: Sequence[int]) -> Any | None:  # noqa: ANN401 - a ctypes array of bytes
        """The state after `tokens`, whole and sound, or None. A file that is neither is deleted."""
        path = self._path(tokens)
        try:
            if not path.is_file():  # a pipe would be waited for
                raise ValueError("no file")  # noqa: TRY301
            with path.open("rb") as file:
                head, size = _head(file.readline(_HEAD)), os.fstat(file.fileno()).st_size - file.tell()
                if head.get("key") != self._key(tokens) or head.get("size") != size or not 0 < size <= self.most:
                    raise ValueError("another state, or half of one")  # noqa: TRY301
                state = (ctypes.c_uint8 * size)()
                if file.readinto(state) != size or hashlib.sha256(state).hexdigest() != head.get("sha256"):
                    raise ValueError("damaged")  # noqa: TRY301
        except (OSError, ValueError, RecursionError, MemoryError):
            self.drop(tokens)
            return None
        with suppress(OSError):
            os.utime(path)
        return state

    def drop(self, tokens: Sequence[int]) -> None:
        """Delete the state after `tokens`, so that it is made again."""
        with suppress(OSError):
            self._path(tokens).unlink()

    def save(self, tokens: Sequence[int], state: Any) -> None:  # noqa: ANN401 - a ctypes array of bytes
        """Keep the state after `tokens`, whole or not at all; a disk that has no room for it is no failure."""
        head = {"format": FORMAT, "key": self._key(tokens), "tokens": len(tokens), "size": len(state)}
        head |= {"sha256": hashlib.sha256(state).hexdigest(), "of": self._model.splitlines()[:NAMING]}
        path = self._path(tokens)
        new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")  # two threads, and two containers, share a number
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(json.dumps(head).encode() + b"\n")
                file.write(state)
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
        except OSError:
            with suppress(OSError):
                new.unlink(missing_ok=True)
        trim(self._directory, keep=path)

    def _key(self, tokens: Sequence[int]) -> str:
        digest = hashlib.sha256(f"{FORMAT}\n{self._model}\n".encode())
        digest.update(array("i", tokens).tobytes())
        return digest.hexdigest()

    def _path(self, tokens: Sequence[int]) -> Path:
        return self._directory / f"{self._key(tokens)[:32]}{SUFFIX}"


def trim(directory: Path, *, keep: Path | None = None, files: int = FILES, size: int = BYTES) -> None:
    """Delete the states that were not used for the longest time, until the rest is within bounds; never `keep`."""
    newest_first = sorted(_states(directory), key=lambda state: (state[1] == keep, state[0].st_mtime), reverse=True)
    left = size
    for at, (stat, path) in enumerate(newest_first):
        left -= stat.st_size
        if path != keep and (at >= files or left < 0):
            with suppress(OSError):
                path.unlink()


def delete_states(directory: Path, identity: str) -> int:
    """Delete the states of a model file or adapter, by the `identity` of its `About`; how many bytes that frees."""
    freed = 0
    for stat, path in _states(directory):
        with suppress(OSError, ValueError, TypeError, RecursionError):
            with path.open("rb") as file:
                of = _head(file.readline(_HEAD)).get("of", ())
            if identity in of:
                path.unlink()
                freed += stat.st_size
    return freed


def _states(directory: Path) -> list[tuple[os.stat_result, Path]]:
    """The states in a directory. What a process that died has begun to write is deleted."""
    found = []
    with suppress(OSError):
        for entry in list(os.scandir(directory)):
            with suppress(OSError):
                stat, path = entry.stat(), Path(entry.path)
                if _OWN.fullmatch(entry.name):
                    found.append((stat, path))
                elif _BEGUN.fullmatch(entry.name) and time.time() - stat.st_mtime > ABANDONED:
                    path.unlink()
    return found


def _head(line: bytes) -> dict[str, Any]:
    head = json.loads(line)
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise ValueError("no state of ours")
    return head

"""The keys and values in a context, and reading more into it. For one thread.

A prompt that begins with tokens that were read before costs only the rest: the tokens of the last
prompt are still in the context, and the state of a fixed prefix, of everything before the question,
may be on disk.

A file is named after its model and its tokens, and holds a checksum, then the state as
`llama_state_seq_get_data` gives it. llama.cpp aborts the process on a state that is cut off and
believes one that is damaged, so the checksum is compared before it sees any.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama.bindings import CancelToken, abort_callback, clear_log, last_error
from conductor_cli.models.llama.loading import Cancelled
from conductor_cli.models.llama.vocabulary import TokenizedPrompt
from conductor_cli.system.disk import make_private_directory, write_atomically

FIRST_PART: Final = 64  # Tokens of a prompt after which its reader is told the pace
MIN_TOKENS: Final = 64  # Tokens below which reading again is as fast
MAX_FILES: Final = 32
MAX_BYTES: Final = 2 << 30
"""How many bytes of states are kept, in at most `MAX_FILES`.

Those that were not used for the longest time go first.
"""

# How old a file that is still being written can be before its writer must be dead
ABANDONED_SECONDS: Final = 3600.0
_CHECKSUM_BYTES: Final = 32

# Only files with these names are ever deleted: nothing else in the directory is ours.
_STATE_NAME: Final = re.compile(r"[0-9a-f]{64}\.kv")
_UNFINISHED_NAME: Final = re.compile(r"\.[0-9a-f]{16}\.new")


class PrefixCache:
    """The states of one model, in a directory that all models and processes share.

    Nothing here raises.

    A disk that cannot be used makes a prompt slower and nothing else.
    """

    max_state_bytes: Final = MAX_BYTES // 4
    """The largest state that is kept."""

    def __init__(self, directory: Path, model: str) -> None:
        """`model` names everything that a state depends on besides the tokens.

        See `LoadedModel.identity`.
        """
        self._directory = directory
        self._model = model

    def wants(self, tokens: Sequence[int]) -> bool:
        """Return whether the state of these tokens is worth keeping and not there yet."""
        try:
            return len(tokens) >= MIN_TOKENS and not self._path(tokens).exists()
        except OSError:  # a directory that belongs to somebody else
            return False

    def load(self, tokens: Sequence[int]) -> Any | None:  # noqa: ANN401 - a ctypes array of bytes
        """Return the state after `tokens`, complete and undamaged, or None.

        Any other file is deleted.
        """
        path = self._path(tokens)
        try:
            if not path.is_file():  # opening a pipe would wait for a writer
                raise ValueError("not a file")
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size - _CHECKSUM_BYTES
                if not 0 < size <= self.max_state_bytes:
                    raise ValueError("a part of a state, or too large")
                checksum = file.read(_CHECKSUM_BYTES)
                state = (ctypes.c_uint8 * size)()
                if file.readinto(state) != size or _checksum(path, state) != checksum:
                    raise ValueError("damaged")
        except (OSError, ValueError, MemoryError):
            self.drop(tokens)
            return None
        with suppress(OSError):
            os.utime(path)  # it was used now: see `trim`
        return state

    def drop(self, tokens: Sequence[int]) -> None:
        """Delete the state after `tokens`, so that it is made again."""
        with suppress(OSError):
            self._path(tokens).unlink()

    # A ctypes array of bytes
    def save(self, tokens: Sequence[int], state: Any) -> None:  # noqa: ANN401
        """Write the state after `tokens`, completely or not at all."""
        path = self._path(tokens)
        with suppress(OSError):
            make_private_directory(self._directory)
            write_atomically(path, _checksum(path, state), state, mode=0o600)
        trim(self._directory, keep=path)

    def _path(self, tokens: Sequence[int]) -> Path:
        key = hashlib.sha256(f"{self._model}\n".encode())
        key.update(array("i", tokens).tobytes())
        return self._directory / f"{key.hexdigest()}.kv"


def _checksum(path: Path, state: Any) -> bytes:  # noqa: ANN401 - a ctypes array of bytes
    digest = hashlib.sha256(path.name.encode())
    digest.update(state)
    return digest.digest()


def trim(
    directory: Path, *, keep: Path | None = None, files: int = MAX_FILES, size: int = MAX_BYTES
) -> None:
    """Delete the states that were not used for the longest time until the rest is within bounds.

    `keep` is never deleted. Files that a dead process has left unfinished are, too.
    """
    states: dict[Path, os.stat_result] = {}
    with suppress(OSError):
        for entry in list(os.scandir(directory)):
            with suppress(OSError):
                stat = entry.stat()
                path = Path(entry.path)
                is_old = time.time() - stat.st_mtime > ABANDONED_SECONDS
                if _STATE_NAME.fullmatch(entry.name):
                    states[path] = stat
                elif _UNFINISHED_NAME.fullmatch(entry.name) and is_old:
                    path.unlink()
    newest_first = sorted(states, key=lambda path: states[path].st_mtime, reverse=True)
    if keep in states:
        newest_first.remove(keep)
        newest_first.insert(0, keep)
    left = size
    for index, path in enumerate(newest_first):
        left -= states[path].st_size
        is_over = index >= files or left < 0
        if is_over and path != keep:
            with suppress(OSError):
                path.unlink()


_ABORTED: Final = 2  # What `llama_decode` returns when the abort callback stopped it
_SEQUENCE: Final = 0  # llama.cpp's number of the only sequence in our contexts


class KVCache:
    """The keys and values in a context.

    `tokens` are those that were read, `capacity` is how many the context can hold.
    """

    def __init__(
        self,
        lib: Any,  # noqa: ANN401
        context: Any,  # noqa: ANN401
        cancel: CancelToken,
        prefixes: PrefixCache | None,
    ) -> None:
        """Without `prefixes` no state is kept on disk."""
        self.tokens: list[int] = []
        self._lib = lib
        self._prefixes = prefixes
        self._cancel = cancel  # llama.cpp has its address, so it must not be collected
        self._abort_callback = abort_callback(lib)
        self._use_context(context)

    def _use_context(self, context: Any) -> None:  # noqa: ANN401 - a C pointer
        lib = self._lib
        self._context = context
        self._memory = lib.llama_get_memory(context)
        self.capacity = int(lib.llama_n_ctx(context))
        # Smaller than what was asked for if the context is; llama.cpp aborts the process on a
        # larger batch.
        self._batch_size = int(lib.llama_n_batch(context))
        # One buffer for all batches: to make one for each token would cost more than the rest of
        # the loop.
        self._buffer = (ctypes.c_int32 * self._batch_size)()
        self._batch = lib.llama_batch_get_one(self._buffer, 0)

    def move_to(self, context: Any) -> None:  # noqa: ANN401 - a C pointer
        """Go on in another context, with a copy of what was read; empty if no copy can be made."""
        state = self._copy_state()
        self._use_context(context)
        self._lib.llama_set_abort_callback(context, self._abort_callback, self._cancel.address)
        if state is None or not self._set_state(state):
            self._clear()

    def set_cancel_token(self, cancel: CancelToken) -> None:
        """From now on, `cancel` stops the work."""
        clear_log()
        self._lib.llama_set_abort_callback(self._context, self._abort_callback, cancel.address)
        self._cancel = cancel  # only now: until then llama.cpp has the address of the earlier one
        self.check_cancelled()

    def check_cancelled(self) -> None:
        if self._cancel.is_set:
            raise Cancelled

    def read(self, prompt: TokenizedPrompt) -> int:
        """Read a prompt, as far as it was not read before; return how many of its tokens were.

        The state at each of its cuts is stored on disk, unless it came from there. Raises
        `ModelError` or `Cancelled`.
        """
        cached = self.reuse(prompt)
        for _ in self.read_rest(prompt):
            pass
        return cached

    def read_rest(self, prompt: TokenizedPrompt) -> Iterator[int]:
        """Read a prompt after what the context has of it, as `reuse` leaves it.

        Yield after each part but the last how many of its tokens are read. Parts double, so that
        the pace is known soon and most is read in whole batches. Raises as `read`.
        """
        size = FIRST_PART
        for end in (*prompt.cuts, len(prompt.tokens)):
            is_read = end <= len(self.tokens)
            while len(self.tokens) < end:
                start = len(self.tokens)
                self.decode(prompt.tokens[start : min(start + size, end)])
                size = min(2 * size, self._batch_size)
                if len(self.tokens) < len(prompt.tokens):
                    yield len(self.tokens)
            if end in prompt.cuts and not is_read:
                self._save_state()

    def _save_state(self) -> None:
        """Keep the state of what was read on disk, where that is wanted."""
        if self._prefixes is not None and self._prefixes.wants(self.tokens):
            state = self._copy_state(self._prefixes.max_state_bytes)
            if state is not None:
                self._prefixes.save(self.tokens, state)

    def decode(self, tokens: list[int]) -> None:
        """Read `tokens` after those in the context.

        Raises `ModelError` or `Cancelled`; what was read before stays.
        """
        for start in range(0, len(tokens), self._batch_size):
            self.check_cancelled()
            part = tokens[start : start + self._batch_size]
            self._buffer[: len(part)] = part  # type: ignore[assignment]  # ctypes takes plain numbers
            self._batch.n_tokens = len(part)
            code = self._lib.llama_decode(self._context, self._batch)
            if code != 0:
                # A part of the batch may be in the context: bring it back to what `tokens` says.
                self.truncate(len(self.tokens))
                if code == _ABORTED:
                    raise Cancelled
                problem = last_error(f"llama_decode returned {code}")
                raise ModelError("internal", f"llama.cpp could not go on: {problem}")
            self.tokens += part

    def reuse(self, prompt: TokenizedPrompt) -> int:
        """Keep what the context shares with a prompt, or load more of it from disk.

        Return how many tokens that is. The last token of a prompt is always read again: without it
        there are no logits to choose the next one by.
        """
        shared = _shared_length(self.tokens, prompt.tokens[:-1])
        if not self._load_state(prompt, shared):
            self.truncate(shared)
            # A model that cannot forget a part has forgotten everything
            if len(self.tokens) < shared:
                self._load_state(prompt, 0)
        return len(self.tokens)

    def truncate(self, count: int) -> None:
        """Forget all but the first `count` tokens; everything if the model cannot forget a part."""
        if self._lib.llama_memory_seq_rm(self._memory, _SEQUENCE, count, -1):
            del self.tokens[count:]
        else:
            self._clear()

    def _load_state(self, prompt: TokenizedPrompt, shared: int) -> bool:
        """Load the longest state on disk that fits a prompt.

        It has to save more than the `shared` tokens.
        """
        if self._prefixes is None:
            return False
        for cut in sorted(prompt.cuts, reverse=True):
            if not shared < cut < len(prompt.tokens):
                continue
            prefix = prompt.tokens[:cut]
            state = self._prefixes.load(prefix)
            if state is None:
                continue
            self._clear()
            if self._set_state(state):
                self.tokens = prefix
                return True
            self._clear()
            self._prefixes.drop(prefix)  # llama.cpp does not take it, so it has to be made again
            return False
        return False

    # A ctypes array of bytes
    def _copy_state(self, most: int | None = None) -> Any | None:  # noqa: ANN401
        """Return a copy of the keys and values.

        None if they take more than `most` bytes, or if there is no memory for it.
        """
        size = int(self._lib.llama_state_seq_get_size(self._context, _SEQUENCE))
        if size <= 0 or (most is not None and size > most):
            return None
        try:
            state = (ctypes.c_uint8 * size)()
        except MemoryError:
            return None
        copied = self._lib.llama_state_seq_get_data(self._context, state, size, _SEQUENCE)
        if copied != size:
            return None
        return state

    def _set_state(self, state: Any) -> bool:  # noqa: ANN401 - a ctypes array of bytes
        size = len(state)
        read = self._lib.llama_state_seq_set_data(self._context, state, size, _SEQUENCE)
        return bool(read == size)

    def _clear(self) -> None:
        self._lib.llama_memory_clear(self._memory, True)  # noqa: FBT003 - its data too
        self.tokens = []


def _shared_length(tokens: Sequence[int], prompt: Sequence[int]) -> int:
    """Return how many tokens both begin with."""
    shared = 0
    for token, prompt_token in zip(tokens, prompt, strict=False):
        if token != prompt_token:
            break
        shared += 1
    return shared

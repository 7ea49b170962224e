"""What a context has read: the tokens whose keys and values it holds, and reading more. For one thread.

A prompt that begins with tokens that were read before pays only for the rest: those of the last prompt are still in the
context, and those of a fixed prefix may be on disk.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama.bindings import CancelToken, abort_callback, clear_log, last_error
from conductor_cli.models.llama.loading import Stopped
from conductor_cli.models.llama.prefix_cache import PrefixCache
from conductor_cli.models.llama.vocabulary import Prompt, common_prefix_length

_ABORTED: Final = 2

_SEQUENCE: Final = 0
"""llama.cpp's number of the only sequence in our contexts."""

_DATA_TOO: Final = (True,)


class KVCache:
    """The keys and values in one context. `room` is how many tokens it holds, `read` how many it holds now."""

    def __init__(self, lib: Any, context: Any, flag: CancelToken, prefixes: PrefixCache | None) -> None:  # noqa: ANN401
        """`prefixes` None remembers nothing on disk. `flag` is kept, since llama.cpp has its address."""
        self._lib, self._flag, self._prefixes = lib, flag, prefixes
        self._asked = abort_callback(lib)
        self._live: list[int] = []
        self._enter(context)

    def _enter(self, context: Any) -> None:  # noqa: ANN401 - a C pointer
        lib = self._lib
        self._context, self._memory = context, lib.llama_get_memory(context)
        self.room = int(lib.llama_n_ctx(context))
        # Smaller than asked for where the context is; llama.cpp aborts the process on a larger one.
        self._batch = int(lib.llama_n_batch(context))
        self._buffer = (ctypes.c_int32 * self._batch)()
        self._tokens = lib.llama_batch_get_one(self._buffer, 0)

    def move(self, context: Any) -> None:  # noqa: ANN401 - a C pointer
        """Go on in another context, with a copy of what was read; without it where none can be made."""
        state = self._state()
        self._enter(context)
        self._lib.llama_set_abort_callback(context, self._asked, self._flag.address)
        if state is None or self._lib.llama_state_seq_set_data(context, state, len(state), _SEQUENCE) != len(state):
            self._forget()

    def watch(self, flag: CancelToken) -> None:
        """From now on `flag` stops the work."""
        clear_log()
        self._lib.llama_set_abort_callback(self._context, self._asked, flag.address)
        self._flag = flag
        self.check()

    def check(self) -> None:
        """Raises `Stopped` when the flag is set."""
        if self._flag.is_set:
            raise Stopped

    def read(self, prompt: Prompt) -> int:
        """Read a prompt, as far as it was not read before; return how many of its tokens were.

        The state at each of its cuts is kept on disk, unless it came from there. Raises `ModelError` or `Stopped`.
        """
        tokens = prompt.tokens
        cached = self.reuse(prompt)
        for cut in prompt.cuts:
            if cut > len(self._live):
                self.decode(tokens[len(self._live) : cut])
                self._remember()
        self.decode(tokens[len(self._live) :])
        return cached

    def decode(self, tokens: list[int]) -> None:
        """Read `tokens` behind what was read. Raises `ModelError` or `Stopped`; what was read before stays."""
        for start in range(0, len(tokens), self._batch):
            self.check()
            part = tokens[start : start + self._batch]
            self._buffer[: len(part)] = part  # type: ignore[assignment]  # ctypes takes plain numbers
            self._tokens.n_tokens = len(part)
            code = self._lib.llama_decode(self._context, self._tokens)
            if code != 0:
                self._fail(code)
            self._live += part

    def reuse(self, prompt: Prompt) -> int:
        """Keep what the context shares with a prompt, all but its last token at most, or take more from disk.

        Returns how many tokens need not be read.
        """
        tokens, cuts = prompt.tokens, prompt.cuts
        shared = common_prefix_length(self._live, tokens[:-1])
        if not self._restore(tokens, cuts, shared):
            self.keep(shared)
            if len(self._live) < shared:  # a model that cannot forget a part
                self._restore(tokens, cuts, 0)
        return len(self._live)

    def remembers(self, prompt: Prompt) -> bool:
        """Whether the state at the last cut of a prompt is on disk."""
        return self._prefixes is not None and self._prefixes.load(prompt.tokens[: prompt.cuts[-1]]) is not None

    def _restore(self, tokens: list[int], cuts: Sequence[int], shared: int) -> bool:
        """Put the longest state on disk that fits in place of what was read, if it saves more than `shared` tokens."""
        if self._prefixes is None:
            return False
        for cut in sorted((cut for cut in cuts if shared < cut < len(tokens)), reverse=True):
            state = self._prefixes.load(tokens[:cut])
            if state is None:
                continue
            self._forget()
            if self._lib.llama_state_seq_set_data(self._context, state, len(state), _SEQUENCE) == len(state):
                self._live = tokens[:cut]
                return True
            self._forget()  # llama.cpp does not take it: it is made again
            self._prefixes.drop(tokens[:cut])
            return False
        return False

    def _remember(self) -> None:
        """Keep the state of what was read on disk, where there is a place for it."""
        if self._prefixes is None or not self._prefixes.wants(self._live):
            return
        state = self._state(self._prefixes.most)
        if state is not None:
            self._prefixes.save(self._live, state)

    def _state(self, most: int | None = None) -> Any | None:  # noqa: ANN401 - a ctypes array of bytes
        """The keys and values of what was read; None where they take more than `most` bytes, or no memory is left."""
        size = int(self._lib.llama_state_seq_get_size(self._context, _SEQUENCE))
        if size <= 0 or (most is not None and size > most):
            return None
        try:
            state = (ctypes.c_uint8 * size)()
        except MemoryError:
            return None
        return state if self._lib.llama_state_seq_get_data(self._context, state, size, _SEQUENCE) == size else None

    def keep(self, count: int) -> None:
        """Forget all but the first `count` tokens, or everything where the model cannot forget a part."""
        if self._lib.llama_memory_seq_rm(self._memory, _SEQUENCE, count, -1):
            del self._live[count:]
        else:
            self._forget()

    def _forget(self) -> None:
        self._lib.llama_memory_clear(self._memory, *_DATA_TOO)
        self._live = []

    def _fail(self, code: int) -> None:
        """Bring the context back to what `_live` says, and raise."""
        self.keep(len(self._live))
        if code == _ABORTED:
            raise Stopped
        raise ModelError("internal", f"llama.cpp could not go on: {last_error(f'llama_decode returned {code}')}")

"""One loaded model, for one thread: a request becomes chunks, and nothing here waits or is shared.

The keys and values of the last prompt and reply stay in the context; a request that begins with the same tokens pays
only for the rest.
"""

from __future__ import annotations

import ctypes
import math
import os
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Final

from conductor_cli.core.chat import Chunk, Finish, Request
from conductor_cli.core.errors import ModelError
from conductor_cli.core.usage import Usage
from conductor_cli.models.llama.library import Flag, abort_callback, forget, reason
from conductor_cli.models.llama.loading import Loaded, Options, Stopped
from conductor_cli.models.llama.prompt import open_template, opens_thinking, pieces
from conductor_cli.models.llama.reply import Reply
from conductor_cli.models.llama.sampling import GrammarSampler, Sampler
from conductor_cli.models.llama.vocabulary import Vocabulary, common

_ABORTED: Final = 2


class Engine:
    """A loaded model. All methods belong to one thread."""

    def __init__(self, path: Path, options: Options, flag: Flag) -> None:
        """Load it. Raises `ModelError` of kind `file`, or `Stopped` when `flag` is set meanwhile."""
        self._path, self._options, self._flag = path, options, flag
        self._loaded = Loaded(path, options, flag)
        self._lib, self._context = self._loaded.lib, self._loaded.context
        self._memory = self._lib.llama_get_memory(self._context)
        self._room = int(self._lib.llama_n_ctx(self._context))
        self._asked = abort_callback(self._lib)
        # Smaller than BATCH where the context is; llama.cpp aborts the process on a larger one.
        self._batch = int(self._lib.llama_n_batch(self._context))
        self._buffer = (ctypes.c_int32 * self._batch)()
        self._tokens = self._lib.llama_batch_get_one(self._buffer, 0)
        self._live: list[int] = []
        self.vocabulary = Vocabulary(self._lib, self._loaded.model)
        try:
            self._template = open_template(path.name, *self._template_of(self._loaded.model))
        except ModelError:
            self.close()
            raise

    def answer(self, request: Request, flag: Flag) -> Iterator[Chunk]:
        """The reply, chunk by chunk. Raises `ModelError`, or `Stopped` soon after `flag` is set."""
        began = time.monotonic()
        self._watch(flag)
        prompt = pieces(self._template, request.messages, thinking=request.grammar is None)
        tokens = self.vocabulary.tokens(prompt, self._check)
        self._check_length(len(tokens))
        with closing(self._sampler(request)) as sampler:
            cached = self._reuse(tokens)
            self._decode(tokens[cached:])
            self._check_numbers()
            reply = Reply(stop=request.stop, thinking=opens_thinking(prompt) if request.grammar is None else None)
            room = self._room - len(tokens)
            most = room if request.max_tokens is None else min(room, request.max_tokens)
            finish, written = yield from self._write(reply, sampler, most)
        seconds = time.monotonic() - began
        usage = Usage(tokens_in=len(tokens), tokens_out=written, tokens_cached=cached, tokens_reasoning=reply.thought,
                      cost=Decimal(0), seconds=seconds, calls=1)  # fmt: skip
        yield replace(reply.end(), usage=usage, finish=finish)

    def close(self) -> None:
        """Give the memory back. No other method may be called afterwards."""
        self._loaded.close()

    def _write(self, reply: Reply, sampler: Sampler, most: int) -> Generator[Chunk, None, tuple[Finish, int]]:
        """Draw and decode up to `most` tokens; return why it ended and how many there are."""
        for written in range(most):
            token = sampler.draw(self._context)
            if self.vocabulary.ends(token):
                return "stop", written
            chunk = reply.feed(self.vocabulary.spelling(token))
            if chunk.text or chunk.thinking:
                yield chunk
            if reply.stopped:
                return "stop", written + 1
            if written + 1 < most:
                self._decode([token])
        return "length", max(0, most)

    def _sampler(self, request: Request) -> Sampler:
        given = self._options.seed if request.seed is None else request.seed
        seed = int.from_bytes(os.urandom(4)) if given is None else given
        if request.grammar is None:
            return Sampler(self.vocabulary, temperature=request.temperature, seed=seed)
        return GrammarSampler(self.vocabulary, request.grammar, temperature=request.temperature, seed=seed)

    def _check_length(self, tokens: int) -> None:
        if tokens == 0:
            raise ModelError("refused", "the prompt is empty", hint="ask something")
        if tokens >= self._room:
            raise ModelError(
                "refused", f"the prompt has {tokens} tokens, and the context of {self._path.name} holds {self._room}",
                hint="ask for less, or give the model a larger context",
            )  # fmt: skip

    def _check_numbers(self) -> None:
        if math.isnan(self._lib.llama_get_logits_ith(self._context, -1)[0]):
            raise ModelError(
                "file", f"the weights in {self._path} are damaged: what they give is no number",
                hint="get the file again",
            )  # fmt: skip

    def _reuse(self, tokens: list[int]) -> int:
        """Keep what the context shares with `tokens`, all but the last of them at most; return how many that are."""
        self._keep(common(self._live, tokens[:-1]))
        return len(self._live)

    def _keep(self, count: int) -> None:
        """Forget all but the first `count` tokens, or everything where the model cannot forget a part."""
        if self._lib.llama_memory_seq_rm(self._memory, 0, count, -1):
            del self._live[count:]
        else:
            self._lib.llama_memory_clear(self._memory, data=True)
            self._live.clear()

    def _decode(self, tokens: list[int]) -> None:
        for start in range(0, len(tokens), self._batch):
            self._check()
            part = tokens[start : start + self._batch]
            self._buffer[: len(part)] = part  # type: ignore[assignment]  # ctypes takes plain numbers
            self._tokens.n_tokens = len(part)
            code = self._lib.llama_decode(self._context, self._tokens)
            if code != 0:
                self._fail(code)
            self._live += part

    def _fail(self, code: int) -> None:
        """Bring the context back to what `_live` says, and raise."""
        self._keep(len(self._live))
        if code == _ABORTED:
            raise Stopped
        raise ModelError("internal", f"llama.cpp could not go on: {reason(f'llama_decode returned {code}')}")

    def _watch(self, flag: Flag) -> None:
        """From now on `flag` stops the work. It is kept, since llama.cpp has its address."""
        forget()
        self._lib.llama_set_abort_callback(self._context, self._asked, flag.address)
        self._flag = flag
        self._check()

    def _check(self) -> None:
        if self._flag.is_set:
            raise Stopped

    def _template_of(self, model: object) -> tuple[str | None, dict[str, str]]:
        source = self._lib.llama_model_chat_template(model, None)
        special = {"bos_token": self._lib.llama_vocab_bos, "eos_token": self._lib.llama_vocab_eos}
        names = {name: self.vocabulary.name(find(self.vocabulary.pointer)) for name, find in special.items()}
        return None if source is None else bytes(source).decode("utf-8", "replace"), names

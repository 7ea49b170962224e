"""One loaded model, for one thread: a request becomes chunks, and nothing here waits or is shared."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from conductor_cli.core.chat import Chunk, Finish, Request
from conductor_cli.core.errors import ModelError
from conductor_cli.core.usage import Usage
from conductor_cli.models.llama.bindings import CancelToken
from conductor_cli.models.llama.kv_cache import KVCache
from conductor_cli.models.llama.loading import LlamaOptions, Loaded
from conductor_cli.models.llama.prefix_cache import PrefixCache
from conductor_cli.models.llama.prompt import opens_thinking, render_prompt
from conductor_cli.models.llama.sampling import GrammarSampler, Sampler, drawn, shares
from conductor_cli.models.llama.template import CHATML, ChatTemplate
from conductor_cli.models.llama.vocabulary import Prompt, ReplyDecoder, Vocabulary

ANSWER: Final = 256
"""Tokens that a prompt leaves free for a reply that has to keep to a grammar: half of one is of no use."""


class _End(NamedTuple):
    """The last chunk of a reply, still without its usage; how many tokens were written, and thought."""

    chunk: Chunk
    written: int
    thought: int = 0


class Engine:
    """A loaded model. All methods belong to one thread."""

    def __init__(self, path: Path, options: LlamaOptions, flag: CancelToken) -> None:
        """Load it. Raises `ModelError` of kind `file`, or `Stopped` when `flag` is set meanwhile."""
        self._path, self._options = path, options
        self._loaded = Loaded(path, options, flag)
        self._lib = self._loaded.lib
        prefixes = None if options.cache is None else PrefixCache(options.cache / "prefixes", self._loaded.identity)
        self.memory = KVCache(self._lib, self._loaded.context, flag, prefixes)
        self.vocabulary = Vocabulary(self._lib, self._loaded.model)
        self._template = self._read_template()

    def answer(self, request: Request, flag: CancelToken) -> Iterator[Chunk]:
        """The reply, chunk by chunk. Raises `ModelError`, or `Stopped` soon after `flag` is set."""
        began = time.monotonic()
        self.memory.watch(flag)
        prompt = self.prompt(request)
        self._check_length(len(prompt.tokens), request)
        self._make_room(len(prompt.tokens), request)
        with closing(self._sampler(request)) as sampler:
            cached = self.memory.read(prompt)
            self._check_numbers()
            first = {self.vocabulary.first(text): text for text in request.choices}
            if first and -1 not in first and len(first) == len(request.choices):
                end = self._choose(first, request)
            else:
                thinking = prompt.thinks if request.grammar is None else None
                most = self.memory.room - len(prompt.tokens)
                most = most if request.max_tokens is None else min(most, request.max_tokens)
                end = yield from self._write(ReplyDecoder(stop=request.stop, thinking=thinking), sampler, most)
        usage = Usage(
            tokens_in=len(prompt.tokens), tokens_out=end.written, tokens_cached=cached, tokens_reasoning=end.thought,
            seconds=time.monotonic() - began, calls=1,
        )  # fmt: skip
        yield replace(end.chunk, usage=usage)

    def prompt(self, request: Request) -> Prompt:
        """The tokens of a request's messages. Raises `ModelError` or `Stopped`."""
        spelled = render_prompt(self._template, request.messages, thinking=request.grammar is None, cuts=request.cuts)
        return self.vocabulary.tokens(spelled, self.memory.check)._replace(thinks=opens_thinking(spelled))

    @property
    def context(self) -> Any:  # noqa: ANN401 - a C pointer
        return self._loaded.context

    @property
    def room(self) -> int:
        """How many tokens a context may hold."""
        return max(self._loaded.most, self.memory.room)

    def widen(self, tokens: int) -> None:
        """Have a context for so many tokens, as far as it may be so large. Raises `ModelError`, and changes nothing."""
        if self.memory.room < min(tokens, self.room):
            self._loaded.widen(tokens, self.memory.move)

    def _make_room(self, tokens: int, request: Request) -> None:
        """Room for a prompt of so many tokens and its reply; where there is no memory for all of it, for the least."""
        try:
            self.widen(tokens + (self.room if request.max_tokens is None else request.max_tokens))
        except ModelError:
            self.widen(tokens + _least(request))

    def draw(self, sampler: Sampler) -> int:
        """The next token."""
        return sampler.draw(self.context)

    def close(self) -> None:
        """Give the memory back. No other method may be called afterwards."""
        self._loaded.close()

    def _write(self, reply: ReplyDecoder, sampler: Sampler, most: int) -> Generator[Chunk, None, _End]:
        """Draw and decode up to `most` tokens."""
        finish: Finish = "length"
        written = 0
        while written < most:
            token = self.draw(sampler)
            if self.vocabulary.ends(token):
                finish = "stop"
                break
            written += 1
            chunk = reply.feed(self.vocabulary.spelling(token))
            if chunk.text or chunk.thinking:
                yield chunk
            if reply.stopped:
                finish = "stop"
                break
            if written < most:
                self.memory.decode([token])
        return _End(chunk=replace(reply.end(), finish=finish), written=written, thought=reply.thought)

    def _choose(self, first: Mapping[int, str], request: Request) -> _End:
        """One of the choices, by the distribution of the first token over them: nothing is decoded for it."""
        logits = self._lib.llama_get_logits_ith(self.context, -1)
        odds = shares([logits[token] for token in first])
        at = drawn(odds, request.temperature, self._seed(request))
        texts = list(first.values())
        return _End(chunk=Chunk(text=texts[at], finish="stop", odds=dict(zip(texts, odds, strict=True))), written=1)

    def _sampler(self, request: Request) -> Sampler:
        seed = self._seed(request)
        if request.grammar is None:
            return Sampler(self.vocabulary, temperature=request.temperature, seed=seed)
        return GrammarSampler(self.vocabulary, request.grammar, temperature=request.temperature, seed=seed)

    def _seed(self, request: Request) -> int:
        given = self._options.seed if request.seed is None else request.seed
        return int.from_bytes(os.urandom(4)) if given is None else given

    def _check_length(self, tokens: int, request: Request) -> None:
        if tokens == 0:
            raise ModelError("refused", "the prompt is empty", hint="ask something")
        least = _least(request)
        if tokens + least > self.room:
            left = f" and {least} are kept for the reply" if least > 1 else ""
            raise ModelError(
                "length",
                f"the prompt has {tokens} tokens{left}, and the context of {self._path.name} holds {self.room}",
                hint="ask for less, or give the model a larger context",
            )

    def _check_numbers(self) -> None:
        if math.isnan(self._lib.llama_get_logits_ith(self.context, -1)[0]):
            raise ModelError(
                "file", f"the weights in {self._path} are damaged: what they give is no number",
                hint="get the file again",
            )  # fmt: skip

    def _read_template(self) -> ChatTemplate:
        source = self._lib.llama_model_chat_template(self._loaded.model, None)
        special = {"bos_token": self._lib.llama_vocab_bos, "eos_token": self._lib.llama_vocab_eos}
        names = {name: self.vocabulary.name(find(self.vocabulary.pointer)) for name, find in special.items()}
        text = CHATML if source is None else bytes(source).decode("utf-8", "replace")
        return ChatTemplate(self._path.name, text, names)


def _least(request: Request) -> int:
    """How many tokens a reply needs to be of use."""
    return 1 if request.grammar is None or request.choices else max(1, min(request.max_tokens or ANSWER, ANSWER))

"""One loaded model, for one thread.

A request becomes chunks, and nothing here waits or is shared.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.chat import Chunk, Finish, Request
from conductor_cli.core.errors import ModelError
from conductor_cli.core.usage import Usage
from conductor_cli.models.llama.bindings import CancelToken, last_error
from conductor_cli.models.llama.kv_cache import KVCache, PrefixCache
from conductor_cli.models.llama.loading import BATCH_SIZE, LlamaOptions, LoadedModel
from conductor_cli.models.llama.prompt import (
    CHATML,
    ChatTemplate,
    PromptPiece,
    opens_thinking,
    render_messages,
)
from conductor_cli.models.llama.sampling import (
    GrammarSampler,
    ReplySearch,
    Sampler,
    ScoringSampler,
    SearchingSampler,
    choose_index,
    softmax,
)
from conductor_cli.models.llama.tool_calls import ToolUse, told_as_text, tool_use, without_calls
from conductor_cli.models.llama.vocabulary import TokenDecoder, TokenizedPrompt, Vocabulary

MIN_GRAMMAR_REPLY: Final = 256
"""Tokens that a prompt leaves free for a reply that has to keep to a grammar: half of one is of no
use.
"""

# How many prompts' searches are kept: the next rank is asked for after other runs' prompts
MAX_SEARCHES: Final = 64
REFUSAL: Final = "?"  # What is written instead of a reply of too little probability


class LlamaEngine:
    """A loaded model. All methods belong to one thread."""

    def __init__(self, path: Path, options: LlamaOptions, cancel: CancelToken) -> None:
        """Load it.

        Raises `ModelError` of kind `file`, or `Cancelled` when `cancel` is set meanwhile.
        """
        self._path = path
        self._options = options
        self._loaded = LoadedModel(path, options, cancel)
        self._lib = self._loaded.lib
        prefixes = (
            None
            if options.cache is None
            else PrefixCache(options.cache / "prefixes", self._loaded.identity)
        )
        self.kv_cache = KVCache(self._lib, self._loaded.context, cancel, prefixes)
        self.vocabulary = Vocabulary(self._lib, self._loaded.model)
        source = self._lib.llama_model_chat_template(self._loaded.model, None)
        special = {"bos_token": self._lib.llama_vocab_bos, "eos_token": self._lib.llama_vocab_eos}
        names = {
            name: self.vocabulary.token_name(find(self.vocabulary.pointer))
            for name, find in special.items()
        }
        text = CHATML if source is None else bytes(source).decode("utf-8", "replace")
        self._template = ChatTemplate(path.name, text, names)
        # The one used last at the end
        self._searches: dict[tuple[int | str | None, ...], ReplySearch] = {}

    @property
    def context(self) -> Any:  # noqa: ANN401 - a C pointer
        return self._loaded.context

    @property
    def capacity(self) -> int:
        return max(self._loaded.most, self.kv_cache.capacity)

    def generate(self, request: Request, cancel: CancelToken) -> Iterator[Chunk]:
        """Return the reply, chunk by chunk.

        Raises `ModelError`, or `Cancelled` soon after `cancel` is set.
        """
        began = time.monotonic()
        self.kv_cache.set_cancel_token(cancel)
        use = self._tool_use(request)
        prompt = self.tokenize(request)
        self._make_room(len(prompt.tokens), request)
        search = self._search_up_to(request, prompt) if request.rank else None
        with closing(self._new_sampler(request, search, request.rank)) as sampler:
            cached = self.kv_cache.read(prompt)
            # llama.cpp loads and computes with damaged weights; this is where the damage first
            # shows.
            if math.isnan(self._lib.llama_get_logits_ith(self.context, -1)[0]):
                problem = (
                    f"the weights in {self._path} are damaged: the model's output is not a number"
                )
                raise ModelError("file", problem, hint="get the file again")
            first = {self.vocabulary.first_token(text): text for text in request.choices}
            if first and -1 not in first and len(first) == len(request.choices):
                # One of the choices, by the distribution of the first token over them: nothing is
                # decoded for it.
                logits = self._lib.llama_get_logits_ith(self.context, -1)
                odds = softmax([logits[token] for token in first])
                chosen = choose_index(odds, request.temperature, self._seed(request))
                texts = list(first.values())
                shares = dict(zip(texts, odds, strict=True))
                last = Chunk(
                    text=texts[chosen],
                    finish="stop",
                    choice_shares=shares,
                    usage=Usage(tokens_out=1),
                )
                chunks = iter([last])
            else:  # no choices, or two of them begin with the same token
                may_think = request.grammar is None and not (use and use.begun)
                thinking = prompt.opens_thinking if may_think else None
                most = self.kv_cache.capacity - len(prompt.tokens)
                most = most if request.max_tokens is None else min(most, request.max_tokens)
                written = self._write(
                    TokenDecoder(stop=request.stop, thinking=thinking), sampler, most
                )
                chunks = _sure(written, sampler, self._options.refuse_below)
                if use is not None:
                    chunks = without_calls(chunks, request, use)
            for chunk in chunks:
                if chunk.usage is None:
                    yield chunk
                    continue
                read = len(prompt.tokens)
                seconds = time.monotonic() - began
                usage = replace(
                    chunk.usage, tokens_in=read, tokens_cached=cached, seconds=seconds, calls=1
                )
                yield replace(chunk, usage=usage)
        if search is not None:
            search.written = max(search.written, request.rank + 1)

    def tokenize(self, request: Request) -> TokenizedPrompt:
        """Return the tokens of a request's messages. Raises `ModelError` or `Cancelled`."""
        # Under a grammar there is no room for thinking, so the template is asked to leave it out.
        use = self._tool_use(request)
        # A call that the prompt opens leaves no room for it either.
        thinking = request.grammar is None and not (use and use.begun)
        messages = told_as_text(request.messages) if use and use.silent else request.messages
        pieces = render_messages(
            self._template,
            messages,
            thinking=thinking,
            cuts=request.cuts,
            tools=use.offered if use else (),
        )
        if use and use.begun:
            pieces = (*pieces, PromptPiece(text=use.begun, control=True))
        if request.prefill:
            pieces = (*pieces, PromptPiece(text=request.prefill, control=False))
        prompt = self.vocabulary.tokenize_prompt(pieces, self.kv_cache.check_cancelled)
        return prompt._replace(opens_thinking=opens_thinking(pieces))

    def _tool_use(self, request: Request) -> ToolUse | None:
        """Return how the reply may use tools.

        Raises `ModelError` for a model that can be offered none.
        """
        if request.tools and self._template.tool_form is None:
            message = (
                f"the chat template of {self._path.name} has no form for tools that is read here"
            )
            hint = "run the file in llama-server or Ollama, and add that as a worker"
            raise ModelError("refused", message, hint=hint)
        return tool_use(self._template.tool_form, request)

    def grow_context(self, tokens: int) -> None:
        """Have a context for so many tokens, as far as it may be so large.

        Raises `ModelError`, and changes nothing.
        """
        if self.kv_cache.capacity < min(tokens, self.capacity):
            self._loaded.grow_context(tokens, self.kv_cache.move_to)

    def close(self) -> None:
        """Free the memory. No other method may be called afterwards."""
        self._loaded.close()

    def _make_room(self, tokens: int, request: Request) -> None:
        """Have room for a prompt of so many tokens and its reply.

        Raises `ModelError` if they are too many.
        """
        if tokens == 0:
            raise ModelError("refused", "the prompt is empty", hint="ask something")
        constrained = request.grammar is not None and not request.choices
        least = (
            max(1, min(request.max_tokens or MIN_GRAMMAR_REPLY, MIN_GRAMMAR_REPLY))
            if constrained
            else 1
        )
        if tokens + least > self.capacity:
            reserved = f" and {least} are kept for the reply" if least > 1 else ""
            holds = f"the context of {self._path.name} holds {self.capacity}"
            hint = "ask for less, or give the model a larger context"
            raise ModelError(
                "length", f"the prompt has {tokens} tokens{reserved}, and {holds}", hint=hint
            )
        try:
            self.grow_context(
                tokens + (self.capacity if request.max_tokens is None else request.max_tokens)
            )
        except ModelError:
            # No memory for the longest reply: have room for the shortest that is of use
            self.grow_context(tokens + least)

    def _write(self, reply: TokenDecoder, sampler: Sampler, most: int) -> Iterator[Chunk]:
        """Draw and decode up to `most` tokens, which the last chunk counts.

        What is done for each must stay short.
        """
        finish: Finish = "length"
        written = 0
        while written < most:
            token = sampler.draw(self.context)
            if self.vocabulary.is_end(token):
                finish = "stop"
                break
            written += 1
            chunk = reply.feed(self.vocabulary.token_bytes(token))
            if chunk.text or chunk.thinking:
                yield chunk
            if reply.stopped:
                finish = "stop"
                break
            if written < most:  # the logits after the last token are not needed
                self.kv_cache.decode([token])
        usage = Usage(tokens_out=written, tokens_reasoning=reply.thinking_tokens)
        yield replace(reply.end(), finish=finish, usage=usage)

    def _search_up_to(self, request: Request, prompt: TokenizedPrompt) -> ReplySearch:
        """Return the search for replies to a prompt, after as many as the request's rank were
        written.
        """
        asked = (*prompt.tokens, request.grammar)
        search = self._searches.pop(asked, ReplySearch())
        self._searches[asked] = search
        if len(self._searches) > MAX_SEARCHES:
            del self._searches[next(iter(self._searches))]
        most = self.kv_cache.capacity - len(prompt.tokens)
        for rank in range(search.written, request.rank):
            self.kv_cache.read(prompt)
            with closing(self._new_sampler(request, search, rank)) as sampler:
                for _ in self._write(
                    TokenDecoder(stop=request.stop), sampler, min(most, request.max_tokens or most)
                ):
                    pass
            search.written = rank + 1
        return search

    def _new_sampler(self, request: Request, search: ReplySearch | None, rank: int = 0) -> Sampler:
        if search is not None:
            return SearchingSampler(self._new_sampler(request, None), search, rank)
        temperature = request.temperature
        seed = self._seed(request)
        if request.grammar is not None:
            return GrammarSampler(
                self.vocabulary, request.grammar, temperature=temperature, seed=seed
            )
        kind = Sampler if self._options.refuse_below is None else ScoringSampler
        return kind(self.vocabulary, temperature=temperature, seed=seed)

    def _seed(self, request: Request) -> int:
        given = self._options.seed if request.seed is None else request.seed
        return int.from_bytes(os.urandom(4)) if given is None else given


def _sure(
    written: Iterator[Chunk], sampler: Sampler, refuse_below: float | None
) -> Iterator[Chunk]:
    """Yield the reply, or a refusal if the model gives the whole of it less probability than
    `refuse_below`.
    """
    if refuse_below is None or not isinstance(sampler, ScoringSampler):
        yield from written
        return
    *chunks, end = written
    if sampler.probability < refuse_below:
        yield Chunk(text=REFUSAL, finish="stop", confidence=sampler.probability, usage=end.usage)
        return
    yield from chunks
    yield replace(end, confidence=sampler.probability)


MAX_TOKENS: Final = BATCH_SIZE  # Of a text that are read: the beginning says what is asked


class Encoder:
    """A loaded model that only reads. For one thread at a time. Close it."""

    def __init__(self, path: Path) -> None:
        """Load it. Raises `ModelError` of kind `file`."""
        self._loaded = LoadedModel(path, LlamaOptions(context=MAX_TOKENS), CancelToken())
        self._lib = self._loaded.lib
        lib = self._loaded.lib
        self._vocabulary = Vocabulary(lib, self._loaded.model)
        self._batch = lib.llama_batch_init(MAX_TOKENS, 0, 1)
        lib.llama_set_embeddings(self._loaded.context, True)  # noqa: FBT003 - a C function
        self.size = int(lib.llama_model_n_embd(self._loaded.model))

    def encode(self, text: str) -> Any:  # noqa: ANN401 - numpy is slow to import
        """Return the mean of the last hidden states over the text's tokens.

        An array of `size` floats.

        Raises `ModelError`.
        """
        import numpy as np

        lib = self._lib
        context = self._loaded.context
        batch = self._batch
        pieces = (PromptPiece(text[: MAX_TOKENS * 8], control=False),)
        tokens = self._vocabulary.tokenize_prompt(pieces, lambda: None).tokens[: self._loaded.most]
        if not tokens:
            return np.zeros(self.size)
        batch.n_tokens = len(tokens)
        for at, token in enumerate(tokens):
            batch.token[at] = token
            batch.pos[at] = at
            batch.logits[at] = 1
            batch.n_seq_id[at] = 1
            batch.seq_id[at][0] = 0
        lib.llama_memory_clear(lib.llama_get_memory(context), True)  # noqa: FBT003 - a C function
        if lib.llama_decode(context, batch) != 0:
            raise ModelError("internal", f"the text cannot be read: {last_error()}")
        states = [
            np.ctypeslib.as_array(lib.llama_get_embeddings_ith(context, at), (self.size,))
            for at in range(len(tokens))
        ]
        return np.mean(states, axis=0, dtype=np.float64)

    def close(self) -> None:
        self._lib.llama_batch_free(self._batch)
        self._loaded.close()

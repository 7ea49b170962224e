"""One loaded model, for one thread.

A request becomes chunks, and nothing here waits or is shared.
"""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any, Final

from conductor_cli.core.chat import Chunk, Finish, Habit, PromptProgress, Request, Tool
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
    RecordingSampler,
    ReplySearch,
    SampledReply,
    Sampler,
    ScoringSampler,
    SearchingSampler,
    WordHabit,
    choose_index,
    softmax,
)
from conductor_cli.models.llama.tool_calls import ToolUse, told_as_text, tool_use, without_calls
from conductor_cli.models.llama.vocabulary import TokenDecoder, TokenizedPrompt, Vocabulary

MIN_GRAMMAR_REPLY: Final = 256
"""Tokens that a prompt leaves free for a reply under a grammar: half of one is of no use."""

# How many prompts' searches are kept: the next rank is asked for after other runs' prompts
MAX_SEARCHES: Final = 64
MAX_HABITS: Final = 64  # How many pools' habits are kept
LEAST_SHARE: Final = 1e-9  # Of a word by habit: to divide by less says nothing
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
        self._prefixes: PrefixCache | None = None
        if options.cache is not None:
            self._prefixes = PrefixCache(options.cache / "prefixes", self._loaded.identity)
        self.kv_cache = KVCache(self._lib, self._loaded.context, cancel, self._prefixes)
        self.vocabulary = Vocabulary(self._lib, self._loaded.model)
        self._template = self._read_template()
        # The one used last at the end
        self._searches: dict[tuple[int | str | None, ...], ReplySearch] = {}
        # The shares of the first tokens of their words, likewise
        self._habits: dict[tuple[str, ...], Mapping[int, float]] = {}

    def _read_template(self) -> ChatTemplate:
        pointer = self.vocabulary.pointer
        special_tokens = {
            "bos_token": self.vocabulary.token_name(self._lib.llama_vocab_bos(pointer)),
            "eos_token": self.vocabulary.token_name(self._lib.llama_vocab_eos(pointer)),
        }
        source = CHATML
        own_source = self._lib.llama_model_chat_template(self._loaded.model, None)
        if own_source is not None:
            source = bytes(own_source).decode("utf-8", "replace")
        self.vocabulary.learn_marks(source)
        return ChatTemplate(self._path.name, source, special_tokens)

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
        began = monotonic()
        self.kv_cache.set_cancel_token(cancel)
        prompt = self.tokenize(request)
        self._make_room(len(prompt.tokens), request)
        cached = len(prompt.tokens)
        if request.habit is not None:
            cached = yield from self._learn_habit(request, request.habit, cached)
        search: ReplySearch | None = None
        if request.rank:
            search = self._search_up_to(request, prompt)
        with closing(self._new_sampler(request, search, request.rank)) as sampler:
            first = self._first_tokens(request.choices)
            cached = min(cached, self.kv_cache.reuse(prompt))
            for progress in self._read_prompt(prompt):
                yield Chunk(progress=progress)
            self._check_weights()
            if first:
                chunks = iter([self._choose(request, first)])
            else:  # no choices, or two of them begin with the same token
                chunks = self._write_reply(request, prompt, sampler)
            for chunk in chunks:
                if chunk.usage is None:
                    yield chunk
                    continue
                usage = replace(
                    chunk.usage,
                    tokens_in=len(prompt.tokens),
                    tokens_cached=cached,
                    seconds=monotonic() - began,
                    calls=1,
                )
                yield replace(chunk, usage=usage)
        if search is not None:
            search.written = max(search.written, request.rank + 1)

    def sample(self, request: Request, cancel: CancelToken) -> SampledReply:
        """Return a whole reply, with the probability of each of its tokens, for a training.

        The model's habit stays in it, since a training is to change that. Raises `ModelError`, or
        `Cancelled` soon after `cancel` is set.
        """
        self.kv_cache.set_cancel_token(cancel)
        request = replace(request, habit=None)
        prompt = self.tokenize(request)
        self._make_room(len(prompt.tokens), request)
        with closing(RecordingSampler(self._new_sampler(request, None))) as sampler:
            self.kv_cache.read(prompt)
            self._check_weights()
            decoder = TokenDecoder(stop=request.stop)
            chunks = self._write(decoder, sampler, self._most_tokens(request, prompt))
            text = "".join(chunk.text for chunk in chunks)
            return SampledReply(
                text=text,
                tokens=tuple(sampler.tokens),
                logprobs=tuple(sampler.logprobs),
                entropies=tuple(sampler.entropies),
            )

    def _read_prompt(self, prompt: TokenizedPrompt) -> Iterator[PromptProgress]:
        """Read what the context lacks of a prompt; yield how far that is where it takes a while."""
        began = monotonic()
        first = len(self.kv_cache.tokens)
        total = len(prompt.tokens)
        for tokens in self.kv_cache.read_rest(prompt):
            seconds_each = (monotonic() - began) / (tokens - first)
            left = seconds_each * (total - tokens)
            if left >= 1:
                yield PromptProgress(tokens, total, left)

    def _check_weights(self) -> None:
        """Raise `ModelError` for damaged weights, with which llama.cpp loads and computes.

        The output after the prompt is where the damage first shows.
        """
        if math.isnan(self._logits([0])[0]):
            problem = f"the weights in {self._path} are damaged: the model's output is not a number"
            raise ModelError("file", problem, hint="get the file again")

    def _write_reply(
        self, request: Request, prompt: TokenizedPrompt, sampler: Sampler
    ) -> Iterator[Chunk]:
        use = self._tool_use(request)
        thinking: bool | None = None
        if _may_think(request, use):
            thinking = prompt.opens_thinking
        decoder = TokenDecoder(
            stop=request.stop, thinking=thinking, channels=self._template.has_channels
        )
        chunks = self._write(decoder, sampler, self._most_tokens(request, prompt))
        chunks = _sure(chunks, sampler, self._options.refuse_below)
        if use is not None:
            chunks = without_calls(chunks, request, use)
        return chunks

    def _most_tokens(self, request: Request, prompt: TokenizedPrompt) -> int:
        """Return how many tokens the reply may have."""
        room = self.kv_cache.capacity - len(prompt.tokens)
        if request.max_tokens is None:
            return room
        return min(room, request.max_tokens)

    def _first_tokens(self, choices: Sequence[str]) -> tuple[int, ...]:
        """Return the first token of each choice; none where two begin with the same one."""
        tokens = tuple(map(self.vocabulary.first_token, choices))
        is_clear = -1 not in tokens and len(set(tokens)) == len(tokens)
        return tokens if is_clear else ()

    def _logits(self, tokens: Sequence[int]) -> list[float]:
        logits = self._lib.llama_get_logits_ith(self.context, -1)
        return [logits[token] for token in tokens]

    def _learn_habit(
        self, request: Request, habit: Habit, tokens: int
    ) -> Generator[Chunk, None, int]:
        """Learn the shares of a habit's words, from the disk or by reading its prompts.

        Returns how many of the `tokens` of the request's own prompt this did not read.
        """
        cached = tokens
        name = _key_of(habit)
        shares = self._habits.pop(name, None)
        if shares is None:
            words = tuple(map(self.vocabulary.next_token, habit.words))
            prompts = []
            for messages in habit.prompts:
                asking = replace(request, messages=messages, prefill=habit.reply)
                prompts.append(self.tokenize(asking))
            is_readable = max(len(prompt.tokens) for prompt in prompts) <= self.kv_cache.capacity
            shares = {}
            if is_readable and -1 not in words:
                cached, shares = yield from self._read_habit(prompts, tuple(dict.fromkeys(words)))
        self._habits[name] = shares
        if len(self._habits) > MAX_HABITS:
            del self._habits[next(iter(self._habits))]
        return cached

    def _read_habit(
        self, prompts: Sequence[TokenizedPrompt], words: tuple[int, ...]
    ) -> Generator[Chunk, None, tuple[int, dict[int, float]]]:
        """Return the mean shares of some tokens after the prompts, from the disk where it has them.

        Before them, how many tokens of the first prompt were not read.
        """
        key = [*words]
        for prompt in prompts:
            key += prompt.tokens
        stored = self._load_numbers(key)
        if len(stored) == len(words):
            return len(prompts[0].tokens), dict(zip(words, stored, strict=True))
        cached = self.kv_cache.reuse(prompts[0])
        for progress in self._read_prompt(prompts[0]):
            yield Chunk(progress=progress)
        sums = dict.fromkeys(words, 0.0)
        began = monotonic()
        for number, prompt in enumerate(prompts, start=1):
            self.kv_cache.read(prompt)
            self._check_weights()
            for word, share in zip(words, softmax(self._logits(words)), strict=True):
                sums[word] += max(share, LEAST_SHARE) / len(prompts)
            left = (monotonic() - began) / number * (len(prompts) - number)
            if left >= 1:
                yield Chunk(progress=_progress_in(prompts, number, left))
        self._save_numbers(key, [*sums.values()])
        return cached, sums

    def _load_numbers(self, key: Sequence[int]) -> Sequence[float]:
        state = None
        if self._prefixes is not None:
            state = self._prefixes.load(key)
        numbers = array("d")
        with suppress(ValueError):  # a length that is none of numbers
            numbers.frombytes(bytes(state or b""))
        return numbers

    def _save_numbers(self, key: Sequence[int], numbers: Sequence[float]) -> None:
        if self._prefixes is not None:
            self._prefixes.save(key, array("d", numbers).tobytes())

    def _shares_by_habit(self, request: Request) -> Mapping[int, float]:
        """Return the shares that the words of a request's habit have by it; empty without one."""
        if request.habit is None:
            return {}
        return self._habits.get(_key_of(request.habit), {})

    def _choose(self, request: Request, first: tuple[int, ...]) -> Chunk:
        """Return the choice that the logits after the prompt make, without the model's habit.

        Nothing is decoded for it.
        """
        logits = self._logits(first)
        if shares := self._shares_by_habit(request):
            for index, token in enumerate(first):
                logits[index] -= math.log(shares[token])
        odds = softmax(logits)
        chosen = choose_index(odds, request.temperature, self._seed(request))
        return Chunk(
            text=request.choices[chosen],
            finish="stop",
            choice_shares=dict(zip(request.choices, odds, strict=True)),
            usage=Usage(tokens_out=1),
        )

    def tokenize(self, request: Request) -> TokenizedPrompt:
        """Return the tokens of a request's messages. Raises `ModelError` or `Cancelled`."""
        use = self._tool_use(request)
        messages = request.messages
        tools: tuple[Tool, ...] = ()
        if use is not None:
            tools = use.offered
            if use.silent:
                messages = told_as_text(messages)
        pieces = render_messages(
            self._template,
            messages,
            thinking=_may_think(request, use),
            cuts=request.cuts,
            tools=tools,
        )
        if use is not None and use.begun:
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
        least = 1
        if request.grammar is not None and not request.choices:
            least = max(1, min(request.max_tokens or MIN_GRAMMAR_REPLY, MIN_GRAMMAR_REPLY))
        if tokens + least > self.capacity:
            problem = f"the prompt has {tokens} tokens"
            if least > 1:
                problem += f" and {least} are kept for the reply"
            problem += f", and the context of {self._path.name} holds {self.capacity}"
            hint = "ask for less, or give the model a larger context"
            raise ModelError("length", problem, hint=hint)
        most = self.capacity
        if request.max_tokens is not None:
            most = request.max_tokens
        try:
            self.grow_context(tokens + most)
        except ModelError:
            # No memory for the longest reply: have room for the shortest that is of use
            self.grow_context(tokens + least)

    def _write(self, reply: TokenDecoder, sampler: Sampler, most: int) -> Iterator[Chunk]:
        """Draw and decode up to `most` tokens, which the last chunk counts.

        What is done for each must stay short. Tokens that a grammar forces are read in one batch
        with the drawn one before them, which costs less than one by one.
        """
        finish: Finish = "length"
        written = 0
        while written < most and finish == "length":
            tokens = _drawn(sampler, self.context, most - written)
            for token in tokens:
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
            if written < most and finish == "length":  # no logits are needed after the last token
                self.kv_cache.decode(tokens)
        usage = Usage(tokens_out=written, tokens_reasoning=reply.thinking_tokens)
        end = reply.end()
        yield replace(end, finish=finish, usage=usage, stop_sequence=reply.stop_sequence)

    def _search_up_to(self, request: Request, prompt: TokenizedPrompt) -> ReplySearch:
        """Return the search for replies to a prompt.

        As many replies as the request's rank are written first.
        """
        key = (*prompt.tokens, request.grammar)
        search = self._searches.pop(key, ReplySearch())
        self._searches[key] = search
        if len(self._searches) > MAX_SEARCHES:
            del self._searches[next(iter(self._searches))]
        room = self.kv_cache.capacity - len(prompt.tokens)
        most = min(room, request.max_tokens or room)
        for rank in range(search.written, request.rank):
            self.kv_cache.read(prompt)
            with closing(self._new_sampler(request, search, rank)) as sampler:
                for _ in self._write(TokenDecoder(stop=request.stop), sampler, most):
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
                self.vocabulary,
                request.grammar,
                temperature=temperature,
                seed=seed,
                habit=self._word_habit(request),
            )
        if self._options.refuse_below is not None:
            return ScoringSampler(self.vocabulary, temperature=temperature, seed=seed)
        return Sampler(self.vocabulary, temperature=temperature, seed=seed)

    def _word_habit(self, request: Request) -> WordHabit | None:
        """Return the habit by which words in lines of the reply are drawn, where it is known."""
        habit = request.habit
        shares = self._shares_by_habit(request)
        if habit is None or not habit.bar or not shares:
            return None
        return WordHabit(shares, habit.bar, habit.reply.count(habit.bar))

    def _seed(self, request: Request) -> int:
        if request.seed is not None:
            return request.seed
        if self._options.seed is not None:
            return self._options.seed
        return int.from_bytes(os.urandom(4))


def _drawn(sampler: Sampler, context: Any, most: int) -> list[int]:  # noqa: ANN401 - a C pointer
    """Return the next token and those that it forces, at most so many."""
    return [sampler.draw(context), *sampler.forced()][:most]


def _progress_in(
    prompts: Sequence[TokenizedPrompt], number: int, seconds_left: float
) -> PromptProgress:
    """Return how far the reading of several prompts is, of which so many are read."""
    lengths = [len(prompt.tokens) for prompt in prompts]
    return PromptProgress(sum(lengths[:number]), sum(lengths), seconds_left)


def _key_of(habit: Habit) -> tuple[str, ...]:
    """Return what tells a habit from others."""
    texts = [habit.bar, habit.reply, *habit.words]
    for messages in habit.prompts:
        texts += [message.content for message in messages]
    return tuple(texts)


def _may_think(request: Request, use: ToolUse | None) -> bool:
    """Return whether there is room for thinking: not under a grammar, nor in a call that has begun.

    Where there is none, the template is asked to leave it out.
    """
    is_in_call = use is not None and use.begun != ""
    return request.grammar is None and not is_in_call


def _sure(
    written: Iterator[Chunk], sampler: Sampler, refuse_below: float | None
) -> Iterator[Chunk]:
    """Yield the reply, or a refusal if the whole of it has less probability than `refuse_below`."""
    if refuse_below is None or not isinstance(sampler, ScoringSampler):
        yield from written
        return
    *chunks, end = written
    if sampler.probability < refuse_below:
        yield Chunk(text=REFUSAL, finish="stop", confidence=sampler.probability, usage=end.usage)
        return
    yield from chunks
    yield replace(end, confidence=sampler.probability)


# Of a text that are read: the beginning says what is asked
MAX_ENCODED_TOKENS: Final = BATCH_SIZE


class Encoder:
    """A loaded model that only reads. For one thread at a time. Close it."""

    def __init__(self, path: Path) -> None:
        """Load it. Raises `ModelError` of kind `file`."""
        options = LlamaOptions(context=MAX_ENCODED_TOKENS)
        self._loaded = LoadedModel(path, options, CancelToken())
        self._lib = self._loaded.lib
        lib = self._loaded.lib
        self._vocabulary = Vocabulary(lib, self._loaded.model)
        self._batch = lib.llama_batch_init(MAX_ENCODED_TOKENS, 0, 1)
        lib.llama_set_embeddings(self._loaded.context, True)  # noqa: FBT003 - a C function
        self.size = int(lib.llama_model_n_embd(self._loaded.model))

    def encode(self, text: str) -> Any:  # noqa: ANN401 - numpy is slow to import
        """Return the mean of the last hidden states over the text's tokens: `size` floats.

        Raises `ModelError`.
        """
        import numpy as np

        lib = self._lib
        context = self._loaded.context
        batch = self._batch
        pieces = (PromptPiece(text[: MAX_ENCODED_TOKENS * 8], control=False),)
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
        states = []
        for at in range(len(tokens)):
            states.append(
                np.ctypeslib.as_array(lib.llama_get_embeddings_ith(context, at), (self.size,))
            )
        return np.mean(states, axis=0, dtype=np.float64)

    def close(self) -> None:
        self._lib.llama_batch_free(self._batch)
        self._loaded.close()

"""Replies to one prompt whose common beginnings are computed once.

The plans of a trained planner differ in few words, so most of a group's tokens have been computed
when a plan comes to them. At temperature 1, a reply is what `LlamaEngine.sample` draws with the
same seed. At another one, its probabilities are those of the distribution that it is drawn from.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any, Final

import numpy as np

from conductor_cli.core.chat import Request
from conductor_cli.models.llama.engine import LlamaEngine
from conductor_cli.models.llama.sampling import GrammarSampler, RecordingSampler, SampledReply
from conductor_cli.models.llama.vocabulary import TokenDecoder, TokenizedPrompt, Vocabulary

MAX_PLAN_TOKENS: Final = 512  # The longest plan of a request that sets no limit


class GivenLogits(Vocabulary):
    """The vocabulary of an engine for samplers whose context is the logits themselves."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.__dict__.update(vars(vocabulary))

    def logits(self, context: Any) -> Any:
        """Return the logits that a sampler was given as its context."""
        return context


class ReplyTree:
    """Draws replies to one prompt under its grammar. Nobody else may use the engine meanwhile."""

    def __init__(self, engine: LlamaEngine, request: Request) -> None:
        """Raises `ModelError` where the context cannot hold the prompt and a reply."""
        self.prompt: Final = tuple(engine.tokenize(request).tokens)
        self._engine = engine
        self._request = request
        self._temperature = request.temperature or 1.0
        self._most = request.max_tokens or MAX_PLAN_TOKENS
        self._vocabulary = GivenLogits(engine.vocabulary)
        self._logits = dict[tuple[int, ...], Any]()
        engine.grow_context(len(self.prompt) + self._most)

    @property
    def computed_tokens(self) -> int:
        """How many different beginnings of replies the model has computed."""
        return len(self._logits)

    def draw(self, seed: int) -> SampledReply:
        """Return a whole reply at the temperature of the request. Raises `ModelError`."""
        decoder = TokenDecoder(stop=self._request.stop)
        written = list[int]()
        text = ""
        with closing(self._new_sampler(seed)) as sampler:
            while len(written) < self._most and not decoder.stopped:
                token = sampler.draw(self._logits_after(tuple(written)))
                if self._vocabulary.is_end(token):
                    break
                written.append(token)
                text += decoder.feed(self._vocabulary.token_bytes(token)).text
            text += decoder.end().text
            return SampledReply(
                text=text,
                tokens=tuple(sampler.tokens),
                logprobs=tuple(sampler.logprobs),
                entropies=tuple(sampler.entropies),
            )

    def _new_sampler(self, seed: int) -> RecordingSampler:
        grammar = self._request.grammar or ""
        # The logits are divided by the temperature already.
        return RecordingSampler(
            GrammarSampler(self._vocabulary, grammar, temperature=1.0, seed=seed)
        )

    def _logits_after(self, written: tuple[int, ...]) -> Any:
        if written not in self._logits:
            self._engine.kv_cache.read(TokenizedPrompt(tokens=[*self.prompt, *written]))
            logits = self._engine.vocabulary.logits(self._engine.context)
            # A new array: the next decode overwrites what llama.cpp gives.
            self._logits[written] = logits / np.float32(self._temperature)
        return self._logits[written]

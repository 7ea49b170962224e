"""Which token comes next: by temperature and seed, and inside a grammar.

A grammar over the whole vocabulary costs 20 to 30 ms a token where there are 152,000 of them. So a token is drawn first
and only that one is checked; the whole vocabulary is gone through when it is refused. Both ways draw from the same
distribution. llama.cpp aborts the process when it accepts a token that its grammar refuses, so nothing is accepted here
that was not checked.
"""

from __future__ import annotations

import codecs
import ctypes
import math
import random
from collections.abc import Sequence
from typing import Any, Final

from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama import gbnf
from conductor_cli.models.llama.library import reason
from conductor_cli.models.llama.vocabulary import Vocabulary

SEEDS: Final = 0xFFFFFFFF
"""llama.cpp takes seeds below this; this one itself means "any"."""


class Sampler:
    """Draws tokens for one reply. `close` it."""

    def __init__(self, vocabulary: Vocabulary, *, temperature: float | None, seed: int) -> None:
        self.vocabulary = vocabulary
        self._lib = lib = vocabulary.lib
        self._chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        if temperature is None or not temperature > 0:
            lib.llama_sampler_chain_add(self._chain, lib.llama_sampler_init_greedy())
        else:
            lib.llama_sampler_chain_add(self._chain, lib.llama_sampler_init_temp(temperature))
            lib.llama_sampler_chain_add(self._chain, lib.llama_sampler_init_dist(seed % SEEDS))

    def draw(self, context: Any) -> int:  # noqa: ANN401 - a C pointer
        """The next token after what the context has decoded last."""
        return int(self._lib.llama_sampler_sample(self._chain, context, -1))

    def close(self) -> None:
        self._lib.llama_sampler_free(self._chain)

    def _draw_from(self, tokens: Any) -> int:  # noqa: ANN401 - an array of token data
        found = _apply(self._lib, self._chain, tokens)
        return int(found.data[found.selected].id)


class GrammarSampler(Sampler):
    """Draws only what the grammar allows: ends only where it may end, no half characters, no control tokens."""

    def __init__(self, vocabulary: Vocabulary, grammar: str, *, temperature: float | None, seed: int) -> None:
        """Raises `ModelError` of kind `internal` for a grammar that cannot be used."""
        try:
            gbnf.check(grammar)
        except gbnf.GrammarError as error:
            raise ModelError("internal", f"the grammar of this request cannot be used: {error}") from error
        super().__init__(vocabulary, temperature=temperature, seed=seed)
        self._grammar = self._lib.llama_sampler_init_grammar(vocabulary.pointer, grammar.encode(), gbnf.ROOT.encode())
        if not self._grammar:
            super().close()
            problem = reason("llama.cpp gave no reason")
            raise ModelError("internal", f"the grammar of this request cannot be used: {problem}")
        self._letters = codecs.getincrementaldecoder("utf-8")()

    def draw(self, context: Any) -> int:  # noqa: ANN401
        token = super().draw(context)
        if not self._allows(token):
            token = self._draw_allowed(context)
        if not self.vocabulary.ends(token):
            self._lib.llama_sampler_accept(self._grammar, token)
            self._letters.decode(self.vocabulary.spelling(token))
        return token

    def close(self) -> None:
        self._lib.llama_sampler_free(self._grammar)
        super().close()

    def _allows(self, token: int) -> bool:
        if not self._is_text(token):
            return False
        one = (self._lib.llama_token_data * 1)()
        one[0].id, one[0].logit = token, 1.0
        tokens = self._lib.llama_token_data_array(data=one, size=1, selected=-1)
        self._lib.llama_sampler_apply(self._grammar, ctypes.byref(tokens))
        return bool(one[0].logit > 0)

    def _is_text(self, token: int) -> bool:
        """Whether `token` keeps the text whole: llama.cpp's grammar lets some bytes through that are no UTF-8."""
        if self.vocabulary.ends(token):
            return not self._letters.getstate()[0]
        spelling = self.vocabulary.spelling(token)
        before = self._letters.getstate()
        try:
            self._letters.decode(spelling)
            begun = self._letters.getstate()[0]
        except UnicodeDecodeError:
            return False
        finally:
            self._letters.setstate(before)
        # Half of a surrogate: Python's decoder waits for the rest before it refuses.
        return bool(spelling) and not (begun[:1] == b"\xed" and begun[1:] > b"\x9f")

    def _draw_allowed(self, context: Any) -> int:  # noqa: ANN401
        tokens = self.vocabulary.candidates(context)
        _apply(self._lib, self._grammar, tokens)
        tokens = tokens[tokens["logit"] > float("-inf")]
        while len(tokens):
            token = self._draw_from(tokens.copy())
            if self._is_text(token):
                return token
            tokens = tokens[tokens["id"] != token]
        raise ModelError("internal", "the grammar of this request leaves no token to go on with")


def shares(logits: Sequence[float]) -> list[float]:
    """The softmax of `logits`: what share of the distribution over them each has."""
    top = max(logits)
    weights = [math.exp(logit - top) for logit in logits]
    return [weight / sum(weights) for weight in weights]


def drawn(odds: Sequence[float], temperature: float | None, seed: int) -> int:
    """Where in `odds` the draw falls: on the likeliest without a temperature."""
    if temperature is None or not temperature > 0:
        return max(range(len(odds)), key=odds.__getitem__)
    top = max(odds)  # a share of one half vanishes in a power of a thousand; the likeliest must not
    weights = [(share / top) ** (1 / temperature) for share in odds]
    return random.Random(seed).choices(range(len(odds)), weights)[0]  # noqa: S311 - no secret


def _apply(lib: Any, sampler: Any, tokens: Any) -> Any:  # noqa: ANN401 - C pointers and an array
    """Apply `sampler` to the array in place. What comes back points into the array, so keep both."""
    start = ctypes.cast(tokens.ctypes.data, lib.llama_token_data_p)
    found = lib.llama_token_data_array(data=start, size=len(tokens), selected=-1)
    lib.llama_sampler_apply(sampler, ctypes.byref(found))
    return found

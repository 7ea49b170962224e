"""Replies to one prompt, the likeliest first: a best-first search.

Each reply takes, at one place of an earlier one, a token that was not taken there, and goes on with the likeliest
tokens. The next reply is the one whose beginning, up to that token, is the likeliest. Drawing at a high temperature
finds the same replies rarely: a model that is sure of its tokens writes the same reply again, and a higher temperature
also spoils the tokens that were right.
"""

from __future__ import annotations

import heapq
from typing import Any, Final

from conductor_cli.models.llama.sampling import Sampler

OTHERS: Final = 3
"""How many tokens are kept at each place beside the likeliest."""


class ReplySearch:
    """What is left to try after some replies to a prompt. `count` is how many there were."""

    def __init__(self) -> None:
        self.count = 0
        self._beginnings: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]

    def add(self, cost: float, tokens: tuple[int, ...]) -> None:
        """Keep a beginning. Its cost is the negative logarithm of its probability."""
        heapq.heappush(self._beginnings, (cost, tokens))

    def take(self) -> tuple[float, tuple[int, ...]]:
        """The cheapest beginning. Where a grammar allows no further reply, the search begins again."""
        self.count += 1
        return heapq.heappop(self._beginnings) if self._beginnings else (0.0, ())


class SearchingSampler(Sampler):
    """Writes the next reply of a search, by the scores of another sampler. `close` it."""

    def __init__(self, sampler: Sampler, search: ReplySearch) -> None:
        super().__init__(sampler.vocabulary, temperature=None, seed=0)
        self._sampler, self._search = sampler, search
        self._cost, self._given = search.take()
        self._written: tuple[int, ...] = ()

    def draw(self, context: Any) -> int:  # noqa: ANN401 - a C pointer
        """The next token: one of the beginning, or the likeliest."""
        place = len(self._written)
        if place < len(self._given):
            token = self._given[place]
        else:
            (token, cost), *others = self._sampler.likeliest(context, 1 + OTHERS)
            for other, more in others:
                self._search.add(self._cost + more, (*self._written, other))
            self._cost += cost
        self._sampler.accept(token)
        self._written += (token,)
        return token

    def close(self) -> None:
        self._sampler.close()

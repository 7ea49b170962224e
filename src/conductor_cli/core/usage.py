"""What calls use: tokens, money and seconds; and what tokens cost. Values only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars for one million tokens. `cached` is the price of input that the provider had cached."""

    input: Decimal
    output: Decimal
    cached: Decimal | None = None


FREE: Final = Price(input=Decimal(0), output=Decimal(0))
"""The price of a model on this machine: nothing, which is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens, money and seconds of one call or of many.

    `tokens_cached` is part of `tokens_in`, `tokens_reasoning` part of `tokens_out`. `cost` is `None` when nothing
    that was used has a price; `unpriced` counts the calls that had none. A local model costs 0, which is known.
    """

    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    tokens_reasoning: int = 0
    cost: Decimal | None = None
    seconds: float = 0.0
    calls: int = 0
    unpriced: int = 0

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out

    def __add__(self, other: Usage) -> Usage:
        """The sum. Adding a usage without a price keeps the sum of the money that is known."""
        if self.cost is None or other.cost is None:
            cost = self.cost if other.cost is None else other.cost
        else:
            cost = self.cost + other.cost
        return Usage(
            tokens_in=self.tokens_in + other.tokens_in,
            tokens_out=self.tokens_out + other.tokens_out,
            tokens_cached=self.tokens_cached + other.tokens_cached,
            tokens_reasoning=self.tokens_reasoning + other.tokens_reasoning,
            cost=cost,
            seconds=self.seconds + other.seconds,
            calls=self.calls + other.calls,
            unpriced=self.unpriced + other.unpriced,
        )


NOTHING: Final = Usage()

MILLION: Final = Decimal(1_000_000)


def priced(usage: Usage, price: Price | None) -> Usage:
    """`usage` of one call with its cost by `price`; a usage that already states its cost keeps it."""
    if usage.cost is not None:
        return usage
    if price is None:
        return replace(usage, unpriced=usage.calls)
    cached = price.input if price.cached is None else price.cached
    fresh = max(usage.tokens_in - usage.tokens_cached, 0)
    cost = (fresh * price.input + usage.tokens_cached * cached + usage.tokens_out * price.output) / MILLION
    return replace(usage, cost=cost)

"""What calls use (tokens, money and seconds), and what tokens cost. Values only.

`token_count` and `stated_dollars` are the door for the numbers of others: providers, programs,
servers. Behind it no number is negative, without end, or too large to be added up and stored.

Figures from outside are bounded at this one door and not inside `Usage`, which would hide mistakes
of our own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal
from itertools import chain
from operator import attrgetter
from typing import Final, Protocol, TypeGuard

from conductor_cli.core.fast_copies import fast_replace

MAX_COUNTED: Final = 10**12
"""A larger count of one call is not believed. It still counts as so many, and uses a limit up."""

MAX_DOLLARS: Final = Decimal(10**6)  # The same for the cost of one call

_LEAST_DOLLARS: Final = Decimal("1E-12")


def token_count(value: object) -> int:
    """Return a number of tokens that somebody else states; 0 for what is no number."""
    if type(value) is int and 0 <= value <= MAX_COUNTED:  # as most are
        return value
    if not _is_number(value) or value != value:  # noqa: PLR0124 - NaN
        return 0
    # Compared before it is converted: infinity has no integer. Some servers write 12.0.
    return int(min(max(value, 0), MAX_COUNTED))


def stated_dollars(value: object) -> Decimal | None:
    """Return the cost of a call that somebody else states, in US dollars.

    None for what cannot be one.
    """
    if not _is_number(value) or not value >= 0 or value == float("inf"):
        return None
    # Compared before it becomes text, which takes long for many digits, or is refused.
    if value >= MAX_DOLLARS:
        return MAX_DOLLARS
    cost = Decimal(str(abs(value)))  # -0.0
    if 0 < cost < _LEAST_DOLLARS:
        return cost.quantize(_LEAST_DOLLARS, ROUND_CEILING)
    return cost


def whole_input(read: int, cached: int, stored: int) -> int:
    """Return the tokens of a prompt of which some were cached or are cached now.

    Some count these among the tokens that were read, some beside them. Where they cannot be among
    them, they are beside them: what is cheaper by an error of the provider is not believed.
    """
    apart = cached + stored
    if apart > read:
        return read + apart
    return read


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars for one million tokens.

    `cached` is the price of input that the provider had cached, `stored` of input that it caches
    now, `reasoning` of hidden reasoning; None means the price of input or output. `longer` holds
    the prices of calls that read more than their own `above` tokens, the lowest first; such a price
    applies to all tokens of the call.
    """

    input: Decimal
    output: Decimal
    cached: Decimal | None = None
    stored: Decimal | None = None
    reasoning: Decimal | None = None
    above: int = 0
    longer: tuple[Price, ...] = ()

    def at(self, tokens_in: int) -> Price:
        fitting = (price for price in self.longer if tokens_in > price.above)
        return max(fitting, key=lambda price: price.above, default=self)

    @property
    def read(self) -> Decimal:
        return max(self.input, self.cached or self.input, self.stored or self.input)

    @property
    def written(self) -> Decimal:
        return max(self.output, self.reasoning or self.output)

    def most(self, tokens_in: int, tokens_out: int) -> Decimal:
        price = self.at(tokens_in)
        return (tokens_in * price.read + tokens_out * price.written) / MILLION

    @property
    def is_free(self) -> bool:
        """Whether none of its amounts is more than nothing."""
        return not any(self.amounts())

    def amounts(self) -> tuple[Decimal, ...]:
        amounts = (self.input, self.output, self.cached, self.stored, self.reasoning)
        stated = tuple(amount for amount in amounts if amount is not None)
        return (*stated, *chain.from_iterable(price.amounts() for price in self.longer))


MILLION: Final = Decimal(1_000_000)

CHARS_PER_TOKEN: Final = 3.5  # A cautious estimate for text whose tokenizer is not available
# The price of a model on this machine: known to be nothing
FREE: Final = Price(input=Decimal(0), output=Decimal(0))


@dataclass(frozen=True, kw_only=True)  # Without slots for `fast_replace`
class Usage:
    """Tokens, money and seconds of one call or of many.

    `tokens_cached` and `tokens_stored` are parts of `tokens_in`: what the provider had cached, and
    what it cached now. `tokens_reasoning` is part of `tokens_out`. `cost` is `None` when nothing
    that was used has a price; `unpriced` counts the calls that had none. A local model costs 0.
    """

    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    tokens_reasoning: int = 0
    cost: Decimal | None = None
    seconds: float = 0.0
    calls: int = 0
    unpriced: int = 0
    tokens_stored: int = 0

    def __post_init__(self) -> None:
        # A trace may be damaged, or of somebody else. A sum of usages is never negative.
        if min(_counts(self)) < 0:
            raise ValueError("a number of a usage is below zero")
        if self.cost is not None and (self.cost.is_nan() or self.cost < 0):
            raise ValueError(f"the cost of a usage is {self.cost:.3e}")

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out

    def __add__(self, other: Usage) -> Usage:
        """Return the sum. A usage without a price leaves the known cost unchanged."""
        if other is NO_USAGE:
            return self
        if self is NO_USAGE:
            return other
        if self.cost is None or other.cost is None:
            cost = self.cost
            if other.cost is not None:
                cost = other.cost
        else:
            cost = self.cost + other.cost
        # Each by its name: a loop over the names takes half as long again
        return Usage(
            tokens_in=self.tokens_in + other.tokens_in,
            tokens_out=self.tokens_out + other.tokens_out,
            tokens_cached=self.tokens_cached + other.tokens_cached,
            tokens_reasoning=self.tokens_reasoning + other.tokens_reasoning,
            cost=cost,
            seconds=self.seconds + other.seconds,
            calls=self.calls + other.calls,
            unpriced=self.unpriced + other.unpriced,
            tokens_stored=self.tokens_stored + other.tokens_stored,
        )


_COUNTS: Final = (
    "tokens_in",
    "tokens_out",
    "tokens_cached",
    "tokens_reasoning",
    "tokens_stored",
    "calls",
    "unpriced",
)
_counts: Final = attrgetter(*_COUNTS)

NO_USAGE: Final = Usage()
ONE_CALL: Final = Usage(calls=1)  # Of which nothing else is known


class _HasUsage(Protocol):
    @property
    def usage(self) -> Usage: ...


def total_usage(users: Iterable[_HasUsage]) -> Usage:
    """Return what all of them used together, such as calls, steps or runs."""
    total = NO_USAGE
    for user in users:
        total += user.usage
    return total


def with_cost(usage: Usage, price: Price | None) -> Usage:
    """Return `usage` of one call with its cost by `price`.

    A usage that already states its cost keeps it.
    """
    if usage.cost is not None:
        return usage
    if price is None:
        return fast_replace(usage, unpriced=usage.calls)
    rate = price.at(usage.tokens_in)
    fresh = max(usage.tokens_in - usage.tokens_cached - usage.tokens_stored, 0)
    visible = max(usage.tokens_out - usage.tokens_reasoning, 0)
    cost = (
        fresh * rate.input
        + usage.tokens_cached * _or(rate.cached, rate.input)
        + usage.tokens_stored * _or(rate.stored, rate.input)
        + visible * rate.output
        + usage.tokens_reasoning * _or(rate.reasoning, rate.output)
    )
    return replace(usage, cost=min(cost / MILLION, MAX_DOLLARS))


def _or(amount: Decimal | None, otherwise: Decimal) -> Decimal:
    if amount is None:
        return otherwise
    return amount

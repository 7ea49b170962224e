"""Reads what a server of chat completions has counted: tokens, and what a call cost. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

from conductor_cli.core.usage import (
    MAX_COUNTED,
    MAX_DOLLARS,
    Usage,
    stated_dollars,
    token_count,
    whole_input,
)
from conductor_cli.models.base import table_of

_CACHED_NAMES: Final = ("prompt_cache_hit_tokens", "cached_tokens", "num_cached_tokens")
"""What DeepSeek, Moonshot and Mistral call the input that they had cached, outside of details."""

_STORED_NAMES: Final = ("cache_write_tokens", "cache_creation_input_tokens")
"""What OpenAI and Alibaba call the input that they cache now, inside of details."""


def usage_of(usage: Mapping[str, Any]) -> Usage:
    """Return the tokens that a server counted.

    Some providers count hidden reasoning in `total_tokens` but not in `completion_tokens`; here it
    is output. Where numbers contradict each other, the dearer reading counts.
    """
    read = token_count(usage.get("prompt_tokens"))
    written = token_count(usage.get("completion_tokens"))
    details = table_of(usage.get("prompt_tokens_details") or usage.get("prompt_token_details"))
    cached = token_count(details.get("cached_tokens")) or _first_count(usage, _CACHED_NAMES)
    stored = token_count(usage.get("cache_creation_input_tokens")) or _first_count(
        details, _STORED_NAMES
    )
    if not cached and (apart := token_count(usage.get("cache_read_input_tokens"))):
        # Anthropic's name, whose own count of the prompt leaves it out.
        read += apart
        cached = apart
    read = whole_input(read, cached, stored)
    written_details = table_of(usage.get("completion_tokens_details"))
    reasoning = token_count(written_details.get("reasoning_tokens")) or token_count(
        usage.get("reasoning_tokens")
    )
    if reasoning > written:
        written += reasoning
    hidden = max(0, token_count(usage.get("total_tokens")) - read - written)
    return Usage(
        tokens_in=min(read, MAX_COUNTED),
        tokens_out=min(written + hidden, MAX_COUNTED),
        tokens_cached=cached,
        tokens_stored=stored,
        tokens_reasoning=reasoning or hidden,
        calls=1,
    )


def _first_count(usage: Mapping[str, Any], names: Iterable[str]) -> int:
    """Return the first of these counts that is more than nothing; else 0."""
    return next(filter(None, (token_count(usage.get(name)) for name in names)), 0)


def stated_cost(usage: Mapping[str, Any]) -> Decimal | None:
    """Return what a call cost as OpenRouter states it; None where it does not.

    Where the user has given it a key of the provider, `cost` is its own fee alone. What that
    provider charges stands beside it (openrouter.ai/docs/use-cases/usage-accounting, November
    2026).
    """
    cost = stated_dollars(usage.get("cost"))
    charged = stated_dollars(table_of(usage.get("cost_details")).get("upstream_inference_cost"))
    if cost is None or charged is None or usage.get("is_byok") is False:
        return cost
    return min(cost + charged, MAX_DOLLARS)

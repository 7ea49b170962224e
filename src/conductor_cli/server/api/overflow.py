"""What a client is told of a conversation that no model can hold: in the words by which clients know it. Pure.

A coding client that knows them shortens its conversation and goes on; any other wording ends its work. The numbers are
those that the worker's provider said.
"""

from __future__ import annotations

import re
from typing import Final

TOO_LONG: Final = "context_length_exceeded"
"""The code of this error, which is OpenAI's."""

_NUMBER: Final = r"(?<![\w.-])(\d[\d,]{2,11})(?![\w-])"

_LIMITS: Final = tuple(
    re.compile(pattern.replace("NUM", _NUMBER), re.IGNORECASE)
    for pattern in (
        r"\bn_ctx\W{0,4}NUM",
        r"NUM maximum\b",
        r"\bholds NUM",
        r">=?\s*NUM",
        r"(?:(?:context|model|prompt) (?:length|size|window|limit)|configured limit|allowed)(?! by\b)\D{0,20}?NUM",
    )
)
"""How providers say how many tokens a model holds. The first that fits counts."""


def tokens_over(message: str, about: int | None = None) -> tuple[int, int] | None:
    """How many tokens a conversation has and how many its model holds, as a provider's error says it.

    Where the error has only the second number, `about` is the first, if it is larger. None where a number is missing.
    """
    limit = next((_count(found[1]) for pattern in _LIMITS if (found := pattern.search(message))), None)
    if limit is None:
        return None
    most = max(_count(number) for number in re.findall(_NUMBER, message))
    used = most if most > limit else about or 0
    return (used, limit) if used > limit else None


def openai_words(message: str) -> str:
    """OpenAI's sentence for it, with the numbers if they are known, else with the provider's own words."""
    counts = tokens_over(message)
    if counts is None:
        return (
            f"Your input exceeds the context window of this model: {message}. Please reduce the length of the messages."
        )
    used, limit = counts
    return (
        f"This model's maximum context length is {limit} tokens. However, your messages resulted in {used} tokens. "
        "Please reduce the length of the messages."
    )


def anthropic_words(message: str, about: int | None = None) -> str:
    """Anthropic's sentence for it. `about` is an estimate of how many tokens the conversation has."""
    counts = tokens_over(message, about)
    return (
        f"prompt is too long: {message}"
        if counts is None
        else f"prompt is too long: {counts[0]} tokens > {counts[1]} maximum"
    )


def _count(number: str) -> int:
    return int(number.replace(",", ""))

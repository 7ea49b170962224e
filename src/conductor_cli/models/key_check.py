"""Whether a provider accepts a key: one free request, and what its answer says about the key."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

from conductor_cli.core.errors import ModelError
from conductor_cli.models.api_errors import ApiError
from conductor_cli.models.http import HttpClient

KeyState = Literal[
    "good", "restricted", "wrong", "expired", "no credit", "rate-limited", "unreachable", "failed", "unreadable"
]
"""`restricted`: a valid key that may not list models; `failed`: an answer that says nothing about the key.

`unreadable`: the keyring does not give it, so its provider was not asked.
"""

LIMIT: Final = 16 * 1024 * 1024
"""The most bytes of an answer: the longest list of models has under 2 MB."""

PATHS: Final[Mapping[str, str]] = {
    "anthropic": "/v1/models",
    "openrouter": "/key",  # its list of models needs no key
}
"""The path to ask, after the providers' references (November 2026); `/models` for all others."""

_KEY: Final = re.compile(r"api[ _-]?key|credential|token", re.IGNORECASE)
_WRONG: Final = re.compile(r"invalid|incorrect|not valid|unauthori[sz]ed|malformed|no such|not found", re.IGNORECASE)
_EXPIRED: Final = re.compile(r"\bexpired\b|[_-]expired\b|\bhas lapsed\b", re.IGNORECASE)
_RESTRICTED: Final = re.compile(
    r"missing scopes?|insufficient permissions?|not have (?:the )?permission", re.IGNORECASE
)
_NO_CREDIT: Final = re.compile(
    r"insufficient[ _](?:quota|balance|credits?)|exceeded your current quota|billing", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyVerdict:
    """What a provider says about a key, after how many seconds; `left` is what the key may still spend, in words."""

    state: KeyState
    seconds: float = 0.0
    message: str = ""
    hint: str = ""
    left: str = ""


async def check_key(provider: str, base_url: str, key: str, *, seconds: float, ca_file: str = "") -> KeyVerdict:
    """Send a key to its provider. Every failure is part of the result."""
    server = HttpClient(base_url, headers=credentials(provider, key), secrets=(key,), ca_file=ca_file)
    began = time.monotonic()
    try:
        async with server.open("GET", PATHS.get(provider, "/models"), seconds=seconds, limit=LIMIT) as answer:
            body = await answer.body()
            headers = answer.headers
    except ModelError as error:
        return KeyVerdict(
            state=verdict_of(error), seconds=time.monotonic() - began, message=error.message, hint=error.hint
        )
    finally:
        await server.close()
    return KeyVerdict(state="good", seconds=time.monotonic() - began, left=left_of(provider, headers, body))


def credentials(provider: str, key: str) -> dict[str, str]:
    """The headers that carry a key."""
    if provider == "anthropic":
        return {"x-api-key": key, "anthropic-version": "2023-06-01"}
    return {"authorization": f"Bearer {key}"} if key else {}


def verdict_of(error: ModelError) -> KeyState:
    """What a failed request says about the key. Gemini and xAI answer 400 to a wrong key. Pure."""
    text = f"{error.message} {' '.join(error.said.codes)}" if isinstance(error, ApiError) else ""
    status = error.status if isinstance(error, ApiError) else 0
    if status == 402 or (status in (403, 429) and _NO_CREDIT.search(text)):
        return "no credit"
    if error.reason == "rate":
        return "rate-limited"
    if status in (400, 401, 403) and _EXPIRED.search(text):
        return "expired"
    if status in (401, 403) and _RESTRICTED.search(text):
        return "restricted"
    if error.reason == "auth" or (status == 400 and _KEY.search(text) and _WRONG.search(text)):
        return "wrong"
    return "unreachable" if error.reason in ("connect", "timeout", "overloaded", "broken") else "failed"


def left_of(provider: str, headers: Mapping[str, str], body: bytes) -> str:
    """What a key may still spend, as far as its provider says so with this answer. Pure."""
    if provider == "openrouter":
        left = None
        with suppress(ValueError, RecursionError, KeyError, TypeError, AttributeError):
            left = json.loads(body)["data"].get("limit_remaining")
        return f"${left:.2f}" if isinstance(left, (int, float)) and not isinstance(left, bool) else ""
    requests = headers.get("x-ratelimit-remaining-requests") or headers.get(
        "anthropic-ratelimit-requests-remaining", ""
    )
    return f"{requests} requests" if requests.isdigit() else ""

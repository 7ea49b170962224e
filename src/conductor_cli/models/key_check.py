"""Whether a provider accepts a key: one free request, and what its answer says about the key."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from conductor_cli.core.errors import ModelError
from conductor_cli.core.redact import Secrets
from conductor_cli.models.api_errors import ApiError
from conductor_cli.models.chat_apis import CHAT_APIS
from conductor_cli.models.http import HttpClient
from conductor_cli.models.presets import PRESETS

KeyState = Literal["good", "wrong", "unreachable", "failed", "unreadable"]
"""`failed`: an answer that does not say that the key is wrong. The account may lack credit, the key a permission.

`unreadable`: the keyring does not give it, so its provider was not asked.
"""

PATHS: Final[Mapping[str, str]] = {
    "anthropic": "/v1/models",
    "openrouter": "/key",  # its list of models needs no key
}
"""The path to ask, after the providers' references (November 2026); `/models` for all others."""

_WRONG_KEY: Final = re.compile(
    r"(?:invalid|incorrect|expired|malformed).{0,20}(?:key|token)|(?:key|token).{0,20}(?:not valid|invalid|expired)",
    re.IGNORECASE,
)
"""How Gemini and xAI, which answer 400 to a wrong key, say that it is the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyVerdict:
    """What a provider said about a key, and what to do."""

    state: KeyState
    seconds: float = 0.0
    message: str = ""
    hint: str = ""


async def check_key(provider: str, base_url: str, key: str, *, seconds: float, ca_file: str = "") -> KeyVerdict:
    """Send a key to its provider. Every failure is part of the result."""
    server = HttpClient(base_url, headers=credentials(provider, key), secrets=Secrets(key), ca_file=ca_file)
    began = time.monotonic()
    try:
        await server.list_json(PATHS.get(provider, "/models"), seconds=seconds)
    except ModelError as error:
        state, spent = verdict_of(error), time.monotonic() - began
        return KeyVerdict(state=state, seconds=spent, message=error.message, hint=error.hint)
    finally:
        await server.close()
    return KeyVerdict(state="good", seconds=time.monotonic() - began)


def credentials(provider: str, key: str) -> dict[str, str]:
    """The headers that carry a key."""
    return CHAT_APIS[PRESETS[provider].api if provider in PRESETS else "chat-completions"].headers(key)


def verdict_of(error: ModelError) -> KeyState:
    """What a failed request says about the key. Pure."""
    if isinstance(error, ApiError):
        text = f"{error.said.message} {' '.join(error.said.codes)}"
        if error.status == 401 or (error.status in (400, 403) and _WRONG_KEY.search(text)):
            return "wrong"
    return "unreachable" if error.reason in ("connect", "timeout", "overloaded", "broken") else "failed"

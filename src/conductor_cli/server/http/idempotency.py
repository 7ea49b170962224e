"""When two requests are the same one, sent again.

What clients repeat, seen on the wire in November 2026: the SDKs of OpenAI and Anthropic count their
retries. Codex, Claude Code and opencode send the same conversation with the same session and no
count, and Claude Code asks for it without a stream in the end.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from conductor_cli.core.mappings import without_keys
from conductor_cli.core.serialization import encode_json
from conductor_cli.server.api.messages import BILLING

# Fields that differ between a request and the same one sent again, or that change nothing of the
# answer
_IGNORED_FIELDS: Final = frozenset(
    {
        "stream",
        "stream_options",
        "metadata",
        "user",
        "prompt_cache_key",
        "client_metadata",
        "safety_identifier",
    }
)

# Headers in which Codex, Claude Code and opencode name the conversation that a request belongs to
_SESSION_HEADERS: Final = ("thread-id", "x-claude-code-session-id", "x-session-id")

# The header by which a client names one request, however often it sends it (IETF
# httpapi-idempotency-key-header)
KEY_HEADER: Final = "idempotency-key"

MAX_COMPARED_CHARACTERS: Final = 1 << 16  # Of a text; the hash of a longer one stands for it
_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def idempotency_key(
    client: str, api: str, body: Mapping[str, Any], headers: Mapping[str, str]
) -> str:
    """Return what is equal for a request and the same one sent again by the same client.

    It does not matter whether they are streamed.
    """
    compared = without_keys(body, _IGNORED_FIELDS)
    if "system" in compared:
        compared["system"] = _without_billing(compared["system"])
    sender = [client, session_of(headers), headers.get(KEY_HEADER, "")]
    content = [sender, api, _shortened(compared)]
    return _hash(encode_json(content, _ENCODER))


def _without_billing(system: Any) -> Any:  # noqa: ANN401 - any JSON value
    """System texts without the block before them that differs with each attempt of a client."""
    if not (isinstance(system, list) and system and isinstance(system[0], Mapping)):
        return system
    is_billing = str(system[0].get("text", "")).startswith(BILLING)
    return system[1:] if is_billing else system


def _shortened(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a JSON value with the hash of each long text in its place.

    To write one of megabytes stops all other threads.
    """
    if isinstance(value, str):
        if len(value) < MAX_COMPARED_CHARACTERS:
            return value
        return _hash(value)
    if isinstance(value, dict):
        return {name: _shortened(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item) for item in value]
    return value


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def is_retry(headers: Mapping[str, str]) -> bool:
    """Return whether a client says that an equal request is the same one.

    Header names are in lower case.
    """
    if headers.get(KEY_HEADER):
        return True
    return headers.get("x-stainless-retry-count", "0") not in ("", "0")


def session_of(headers: Mapping[str, str]) -> str:
    """Return the conversation that a request belongs to, as its client names it.

    Empty where it does not.
    """
    for name in _SESSION_HEADERS:
        if headers.get(name):
            return headers[name]
    return ""

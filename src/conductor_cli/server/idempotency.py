"""When two requests are the same one, sent again. Pure.

What clients send with a request that they repeat, seen on the wire in November 2026: the SDKs of OpenAI and Anthropic
count their retries. Codex, Claude Code and opencode send the same conversation with the same session and no count, and
Claude Code asks for it without a stream in the end.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from conductor_cli.server.api.messages import BILLING

_IGNORED: Final = frozenset({
    "stream", "stream_options", "metadata", "user", "prompt_cache_key", "client_metadata", "safety_identifier",
})  # fmt: skip
"""Fields that differ between a request and the same one sent again, or that change nothing of the answer."""

_SESSIONS: Final = ("thread-id", "x-claude-code-session-id", "x-session-id")
"""Headers in which Codex, Claude Code and opencode name the conversation that a request belongs to."""

LONG: Final = 1 << 16  # Characters of a text that its hash stands for

IDENTITY: Final = "idempotency-key"
"""The header by which a client names one request, however often it sends it (IETF httpapi-idempotency-key-header)."""


def idempotency_key(client: str, api: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> str:
    """Return what is equal for a request and the same one sent again by the same client, streamed or not."""
    same = {name: value for name, value in body.items() if name not in _IGNORED}
    system = same.get("system")
    # A block that a client puts before its system text differs with each attempt.
    if isinstance(system, list) and isinstance(first := next(iter(system), None), Mapping):
        same["system"] = system[1:] if str(first.get("text", "")).startswith(BILLING) else system
    sender = [client, session_of(headers), headers.get(IDENTITY, "")]
    text = json.dumps([sender, api, _shortened(same)], sort_keys=True, separators=(",", ":"))
    return _hash(text)


def _shortened(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """A JSON value with the hash of each long text in its place: to write one of megabytes stops all other threads."""
    if isinstance(value, str):
        return value if len(value) < LONG else _hash(value)
    if isinstance(value, dict):
        return {name: _shortened(item) for name, item in value.items()}
    return [_shortened(item) for item in value] if isinstance(value, list) else value


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def says_retry(headers: Mapping[str, str]) -> bool:
    """Whether a client says that an equal request is the same one. Header names are in lower case."""
    return bool(headers.get(IDENTITY)) or headers.get("x-stainless-retry-count", "0") not in ("", "0")


def session_of(headers: Mapping[str, str]) -> str:
    """The conversation that a request belongs to, as its client names it; empty where it does not."""
    return next((headers[name] for name in _SESSIONS if headers.get(name)), "")

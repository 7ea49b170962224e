"""When two requests are the same one, sent again. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from conductor_cli.server.api.request import ClientRequest

_IGNORED: Final = frozenset({
    "stream", "stream_options", "metadata", "user", "prompt_cache_key", "client_metadata", "safety_identifier",
})  # fmt: skip
"""Fields that differ between a request and the same one sent again, or that change nothing of the answer."""

_BILLING: Final = "x-anthropic-billing-header"
"""How a block begins that a client puts before its system text, and that differs with each attempt."""


def request_key(client: str, api: str, body: Mapping[str, Any], request: ClientRequest) -> str:
    """What is equal for a request and the same one sent again by the same client, streamed or not."""
    same = {name: value for name, value in body.items() if name not in _IGNORED}
    system = same.get("system")
    if isinstance(system, list) and system and _is_billing(system[0]):
        same["system"] = system[1:]
    text = json.dumps([client, api, request.include_events, same], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def says_retry(headers: Mapping[str, str]) -> bool:
    """Whether a client says that it sends a request again. Header names are in lower case."""
    return headers.get("x-stainless-retry-count", "0") not in ("", "0")


def _is_billing(block: Any) -> bool:  # noqa: ANN401 - any JSON value
    return isinstance(block, Mapping) and str(block.get("text", "")).startswith(_BILLING)

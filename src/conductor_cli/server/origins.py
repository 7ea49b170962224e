"""Who asked for a run, as its trace says it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conductor_cli.server.access import CLIENT_KEY
from conductor_cli.server.client_keys import ClientKey


def origin_of(scope: Mapping[str, Any]) -> str:
    """`key NAME` for a request with a key, `serve` where the server asks for none."""
    client: ClientKey | None = scope.get(CLIENT_KEY)
    return client_origin(client)


def client_origin(client: ClientKey | None) -> str:
    """The same for the key itself."""
    return "serve" if client is None else f"key {client.name}"

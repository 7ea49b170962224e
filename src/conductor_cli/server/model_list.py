"""The list of models, in the form of each API. Pure."""

from __future__ import annotations

from typing import Any, Final

from conductor_cli.config import Settings
from conductor_cli.server.served_models import model_names

CREATED: Final = 1_767_225_600
"""The models have no date of their own; clients want one. 1 January 2026."""


def list_models(settings: Settings, *, anthropic: bool = False) -> dict[str, Any]:
    """The models of a server, as OpenAI lists them, or as Anthropic does."""
    names = model_names(settings)
    if not anthropic:
        data = [{"id": name, "object": "model", "created": CREATED, "owned_by": "conductor"} for name in names]
        return {"object": "list", "data": data}
    entries = [
        {"id": name, "type": "model", "display_name": name, "created_at": "2026-01-01T00:00:00Z"} for name in names
    ]
    return {"data": entries, "has_more": False, "first_id": names[0], "last_id": names[-1]}

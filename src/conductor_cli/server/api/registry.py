"""The APIs that this server speaks, by the path of their requests."""

from __future__ import annotations

from functools import cache
from importlib import import_module, util
from typing import Final, cast

from conductor_cli.server.api.base import ClientApi

PATHS: Final = {
    "/v1/chat/completions": "chat_completions",
    "/v1/responses": "responses",
    "/v1/messages": "messages",
}
"""The module of each API, by the path at which a client creates an answer."""

CLASSES: Final = {"chat_completions": "ChatCompletions", "responses": "Responses", "messages": "Messages"}
"""The class in each module."""


@cache
def load_api(module: str) -> ClientApi | None:
    """The API of a module; None where this version has none."""
    name = f"{__package__}.{module}"
    if util.find_spec(name) is None:
        return None
    return cast("ClientApi", getattr(import_module(name), CLASSES[module])())

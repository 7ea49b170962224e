"""The table of providers that ships with this tool: `presets.toml` beside this file.

Model names age: a newer one, and a price for it, is set in the configuration.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from conductor_cli.models.base import ALL_FEATURES, Features
from conductor_cli.models.structured_output import Form

ThinkingField = Literal["", "thinking", "openrouter"]
"""The ways in which APIs are told how many tokens a model may think; empty if there is none."""

CostSource = Literal["stated", "unknown"]
"""Whether a call costs what the provider states with it, or is computed from the worker's price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """What is known about a provider.

    `keys` are the variables that may hold its key; the first that is set is used. `api` is a key of
    `CHAT_APIS`. `model` is asked for by a worker that names none, empty if only the user can know;
    `planner` is a cheap one that is proposed to plan. `prices` is the prefix of its models in
    litellm's price table. `form` is the field by which it takes a grammar or a schema, `schemas`
    whether it is known to enforce schemas, `budget` how it is told the tokens that a model may
    think, `features` what its server takes besides text from a model that can, `max_tools` how many
    tools one request may have at its own address; None where that is not known.
    """

    base_url: str = ""
    keys: tuple[str, ...] = ()
    adapter: Literal["http", "litellm"] = "http"
    api: str = "chat-completions"
    model: str = ""
    planner: str = ""
    local: bool = False
    about: str = ""
    prices: str = ""
    cost: CostSource = "unknown"
    max_tokens_field: str = "max_tokens"
    form: Form = "response_format"
    schemas: bool = False
    budget: ThinkingField = ""
    features: Features = ALL_FEATURES
    max_tools: int | None = None


OPENAI_APIS: Final = ("chat-completions", "responses")
"""The APIs of OpenAI, one of which a worker at any server with OpenAI's API may choose."""

UNKNOWN_SERVER: Final = Preset(form="ask")
"""A server with OpenAI's API about which nothing is known before it is asked."""

SHIPPED: Final[Mapping[str, Any]] = tomllib.loads(
    Path(__file__).with_name("presets.toml").read_text("utf-8")
)
"""The content of `presets.toml`: `as_of` and `providers`."""


def _preset_of(values: Mapping[str, Any]) -> Preset:
    """Return the preset in one table of `presets.toml`."""
    keys = tuple(values.get("keys", ()))
    features = frozenset(values.get("features", ALL_FEATURES))
    return Preset(**{**values, "keys": keys, "features": features})


PRESETS: Final[Mapping[str, Preset]] = {
    kind: _preset_of(values) for kind, values in SHIPPED["providers"].items()
}
"""Every kind of worker that is a remote model, by name."""

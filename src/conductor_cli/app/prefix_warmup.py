"""Reading the fixed part of a local conductor's prompt ahead of the first question, and keeping its state on disk."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conductor_cli.app.opened_conductor import open_planner
from conductor_cli.app.planner_resolution import resolve_planner
from conductor_cli.config import Settings
from conductor_cli.core.errors import ConductorError, ConductorUnusable, ModelError
from conductor_cli.core.question import Question
from conductor_cli.models.llama import Llama, read_model_info

LARGE: Final = 256 << 20
"""Bytes of a model file below which it reads its prompt about as fast as a question can be typed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmedPrefix:
    """How many tokens the prompt has, how many of them came from disk, and how many seconds reading the others took."""

    tokens: int
    cached: int
    seconds: float


def warm_prefix(settings: Settings) -> WarmedPrefix | None:
    """Have the chosen conductor read everything that comes before a question, for the workers of now.

    Returns None for a conductor so small that no state is kept. Raises `ConductorUnusable`.
    """
    planner = resolve_planner(settings)
    if planner.kind != "llama":
        raise ConductorUnusable("only a local conductor keeps its prompt", hint="conductor model use NAME | FILE")
    if "cache" not in planner.options:
        return None
    return asyncio.run(_warm(settings))


async def _warm(settings: Settings) -> WarmedPrefix:
    opened = await open_planner(settings)
    try:
        usage = await opened.conductor.prepare()
        # Any question will do: only what comes before it in the prompt is looked up.
        request = opened.conductor.planning_request(Question(text="-"))
        stored = all(
            [await model.has_stored_prefix(request) for model in opened.loaded.models if isinstance(model, Llama)]
        )
    except ModelError as error:
        raise ConductorUnusable(error.message, hint=error.hint) from None
    finally:
        await opened.close()
    if not stored:
        raise ConductorUnusable(
            f"the prompt was read, but its state could not be stored in {settings.paths.prefixes}",
            hint="check free space and permissions: conductor doctor",
        )
    return WarmedPrefix(tokens=usage.tokens_in, cached=usage.tokens_cached, seconds=usage.seconds)


def is_worth_warming(settings: Settings) -> bool:
    """Whether the chosen conductor is a local model so large that its prompt should be read ahead."""
    if not settings["conductor.prepare"]:
        return False
    with suppress(ConductorError):  # the command that needs the model reports it
        planner = resolve_planner(settings)
        return planner.kind == "llama" and read_model_info(Path(planner.model)).size >= LARGE
    return False

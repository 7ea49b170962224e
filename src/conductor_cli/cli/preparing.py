"""The fixed part of a local conductor's prompt: read once and kept on disk."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from conductor_cli.core.errors import ConductorError, ConductorUnusable, ModelError

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.core.usage import Usage

LARGE: Final = 256 << 20
"""Smaller model files read their prompt about as fast as a question can be typed."""

PATIENCE: Final = 900.0
"""Seconds that one process waits for another that is reading a prompt."""


def prepare(read: Callable[[], Settings], waiting: Callable[[str], None] = lambda _: None) -> Usage | None:
    """Have the chosen conductor read all that stands before a question, with the pool of now.

    One process does this at a time; `read` gives the settings when it is this one's turn, since they may have changed
    meanwhile. Returns what it took, None for a conductor so small that nothing is kept. Raises `ConductorUnusable`.
    """
    import asyncio

    import filelock

    cache = read().paths.cache
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = filelock.FileLock(cache / "prepare.lock")
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            waiting("another conductor is reading its prompt; waiting for it …")
            lock.acquire(timeout=PATIENCE)
    except filelock.Timeout:
        raise ConductorUnusable("another conductor has been reading its prompt for long", hint="try it later") from None
    except OSError as error:
        raise ConductorUnusable(
            f"nothing can be remembered in {cache}: {error.strerror}", hint="check the disk and its rights"
        ) from None
    with lock:
        return asyncio.run(_prepare(read()))


async def _prepare(settings: Settings) -> Usage | None:
    from conductor_cli.app.opened_conductor import open_planner
    from conductor_cli.app.planner_resolution import resolve_planner
    from conductor_cli.core.question import Question
    from conductor_cli.models.llama import Llama

    planner = resolve_planner(settings)
    if planner.kind != "llama":
        raise ConductorUnusable("only a local conductor remembers its prompt", hint="conductor model use NAME | FILE")
    if "cache" not in planner.options:
        return None
    opened = await open_planner(settings)
    try:
        used = await opened.conductor.prepare()
        request = opened.conductor.asks(Question(text="-"))
        kept = all([await model.remembers(request) for model in opened.loaded.models if isinstance(model, Llama)])
    except ModelError as error:
        raise ConductorUnusable(error.message, hint=error.hint) from None
    finally:
        await opened.close()
    if not kept:
        raise ConductorUnusable(
            f"the prompt was read, but could not be kept in {settings.paths.prefixes}",
            hint="check the disk, its room and its rights: conductor doctor",
        )
    return used


def told(used: Usage | None) -> str:
    """What `prepare` has done, in words."""
    if used is None:
        return "nothing to do: this conductor is so small that it reads its prompt faster than a file is written"
    read = used.tokens_in - used.tokens_cached
    if read < used.tokens_cached:
        return f"the fixed part of the prompt was remembered already: {used.tokens_cached} of {used.tokens_in} tokens"
    return f"the fixed part of the prompt is remembered: {read} tokens, read in {used.seconds:.1f} s"


def is_worth_it(settings: Settings) -> bool:
    """Whether the chosen conductor is a local model so large that its prompt should be read beforehand."""
    from conductor_cli.app.planner_resolution import resolve_planner
    from conductor_cli.models.llama import read_model_info

    if not settings["conductor.prepare"]:
        return False
    with suppress(ConductorError):  # told by the command that needs the model
        planner = resolve_planner(settings)
        return planner.kind == "llama" and read_model_info(Path(planner.model)).size >= LARGE
    return False

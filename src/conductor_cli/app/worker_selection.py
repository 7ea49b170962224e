"""Which workers a run may choose from: a pool by name, every enabled worker, or what is found on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from conductor_cli.app.keys import open_key_store, providers_with_stored_key
from conductor_cli.app.planner_resolution import resolve_planner
from conductor_cli.app.policy_filter import filter_pool, policy_objection
from conductor_cli.app.rehearsal import rehearsal_pool
from conductor_cli.config import ConfiguredWorker, Settings
from conductor_cli.config.pools import find_pool, pool_members
from conductor_cli.core.errors import ConductorUnusable, ConfigError, PolicyError, UsageError
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.models.discovery import discover, workers_with_keys
from conductor_cli.models.presets import model_of
from conductor_cli.models.prices import with_accepts, with_prices

POOL_SETTING: Final = "conductor.pool"


async def resolve_pool(settings: Settings, planner: Worker | None, only: Sequence[str]) -> tuple[Pool, tuple[str, ...]]:
    """The workers of a run with their prices, and remarks about them to show.

    They are those of the settings, else those found on this machine, else the conductor model itself. `only` are those
    that a command line names. Raises `UsageError`, `ConfigError` or `PolicyError`.
    """
    workers = offered_workers(settings)
    disabled = [item.worker.name for item in settings.workers if not item.enabled]
    for name in only:
        if name in disabled:
            raise PolicyError(f"worker {name!r} is disabled", hint=f"conductor workers enable {name}")
    remarks: list[str] = []
    found: Sequence[Worker] = ()
    # So that a first question works: local servers, and providers whose API keys are on this machine.
    if not settings.workers:
        found = await discover(settings.environ, providers_with_stored_key(open_key_store(settings)))
        workers = tuple(settings.cards.on(worker) for worker in found if not policy_objection(settings, worker))
        names = ", ".join(worker.name for worker in workers)
        remarks.append(f"no workers are configured; found on this machine: {names}")
        if not workers:
            planner = planner or resolve_planner(settings)
            workers = (replace(planner, name="local", about="the conductor model"),)
            remarks = ["no workers are configured and none was found: the conductor model answers too"]
    # The planner and the trace name the model that answers, also where the settings leave it to the provider's preset.
    workers = tuple(replace(worker, model=model_of(worker)) for worker in workers)
    workers, price_problem = with_prices(workers)
    if price_problem:
        remarks.append(price_problem)
    if settings.cards.problem:
        remarks.append(f"{settings.cards.problem}; measured capability cards are not used")
    pool = Pool(workers=with_accepts(workers))
    pool, policy_remarks = filter_pool(pool, settings, only, planner, found)
    return pool, (*remarks, *policy_remarks)


def check_choice(settings: Settings, only: Sequence[str], *, rehearsal: bool) -> None:
    """Raise `UsageError` where a command line names a worker or a rule that means none. Nothing is opened."""
    with suppress(ConfigError, PolicyError, ConductorUnusable):  # these are said where the models are opened
        if rehearsal:
            filter_pool(rehearsal_pool(), settings, only, None)
        else:
            asyncio.run(resolve_pool(settings, None, only))


def offered_workers(settings: Settings) -> tuple[Worker, ...]:
    """The enabled workers: those of the chosen pool in its order, else all.

    Raises `UsageError` where a command line names an unknown pool, `ConfigError` where the settings do, and
    `PolicyError` where all workers of the pool are disabled.
    """
    name = settings[POOL_SETTING]
    if not name:
        return tuple(item.worker for item in settings.workers if item.enabled)
    try:
        pool = find_pool(settings.pools, name)
    except UsageError as error:
        if _is_pool_given(settings):
            raise
        hint = f"{error.hint}; {POOL_SETTING} is from {settings.origins[POOL_SETTING]}"
        raise ConfigError(error.message, hint=hint) from None
    enabled = tuple(item.worker for item in pool_members(pool, settings.workers) if item.enabled)
    if not enabled:
        hint = f"conductor workers enable --pool {name}"
        raise PolicyError(f"all workers of pool {name!r} are disabled", hint=hint)
    return enabled


def discovered_workers(settings: Settings, *, offline: bool = False) -> tuple[ConfiguredWorker, ...]:
    """The workers found on this machine; with `offline` only those whose keys are here, and no server is asked."""
    stored = providers_with_stored_key(open_key_store(settings))
    environ = settings.environ
    found = workers_with_keys(environ, stored) if offline else asyncio.run(discover(environ, stored))
    return tuple(
        ConfiguredWorker(worker=settings.cards.on(worker), enabled=True, source="found on this machine")
        for worker in found
    )


def without_pool(settings: Settings) -> Settings:
    """The settings for finishing a stored run: its own workers count, unless a command line names a pool."""
    if _is_pool_given(settings):
        return settings
    return replace(settings, values={**settings.values, POOL_SETTING: ""})


def check_no_pool(settings: Settings) -> None:
    """Raise `UsageError` where a command line names a pool for the rehearsal."""
    if _is_pool_given(settings) and settings[POOL_SETTING]:
        raise UsageError("--rehearsal has its own workers", hint="omit --pool; --workers chooses among them")


def _is_pool_given(settings: Settings) -> bool:
    """Whether a command line names the pool."""
    return settings.origins[POOL_SETTING] == "command line"

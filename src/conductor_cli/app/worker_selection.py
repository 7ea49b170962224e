"""Which workers a run may choose from.

A pool by name, every enabled worker, or what is found on this machine.

It also applies the policy of the settings before anything is opened: which workers may be asked,
and what to say of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from typing import Final

from conductor_cli.app.keys import open_key_store, providers_with_stored_key
from conductor_cli.app.planner_resolution import resolve_planner
from conductor_cli.app.rehearsal import rehearsal_pool
from conductor_cli.app.web_tools import all_tool_servers
from conductor_cli.config.project import narrow
from conductor_cli.config.settings import ConfiguredTools, ConfiguredWorker, Settings, find_setting
from conductor_cli.config.tables import find_pool, pool_members
from conductor_cli.core.errors import (
    ConductorUnusable,
    ConfigError,
    PolicyError,
    UsageError,
    suggest,
)
from conductor_cli.core.mappings import by_name, names_of
from conductor_cli.core.plan import SELF
from conductor_cli.core.policy import (
    POLICY_HINT,
    Policy,
    PoolPolicy,
    check_selectors,
    permitted_pool,
)
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.trace import Trace
from conductor_cli.models.discovery import discover, workers_with_keys
from conductor_cli.models.presets import PRESETS
from conductor_cli.models.prices import with_abilities, with_prices
from conductor_cli.models.recipients import recipient_facts
from conductor_cli.models.worker_options import kinds, model_of
from conductor_cli.system.event_loop import run_async
from conductor_cli.tools.servers import ToolServer

MAX_NAME_CHARS: Final = 40  # As many as the settings allow a worker's name

# The settings that name workers by selectors
SELECTORS: Final = ("policy.allow", "policy.deny", "policy.files_only")


def build_guard(settings: Settings, pool: Iterable[Worker], planner: Worker | None) -> PoolPolicy:
    """Return the policy with everybody it is about.

    Each worker that is configured or in the pool, and the conductor.
    """
    # Configured workers outside the pool count too: a rule that names one of them is no mistake.
    workers = [*(item.worker for item in settings.workers), *pool]
    recipients = {}
    for worker in workers:
        if worker.kind != SELF:
            recipients[worker.name] = recipient_facts(worker)
    if planner is not None:
        recipients[SELF] = recipient_facts(planner)
    servers = [server_for_policy(item).recipient_facts for item in all_tool_servers(settings)]
    recipients |= by_name(servers)
    return PoolPolicy(policy=settings.policy, recipients=recipients)


def filter_pool(
    pool: Pool,
    settings: Settings,
    only: Sequence[str],
    planner: Worker | None,
    nameable: Iterable[Worker] = (),
) -> tuple[Pool, tuple[str, ...]]:
    """Return the workers of `pool` that the policy allows, and remarks to show.

    Those of `only` where a command line names some. The remarks name project files that narrowed
    the policy, and rules of the settings that match no worker. `nameable` are workers that a rule
    may name although the pool lacks them. Raises `UsageError` for a rule of a command line that
    matches no worker, and `PolicyError` where no worker is left or one of `only` is not allowed.
    """
    pool_policy = build_guard(settings, pool, planner)
    recipients = (*pool_policy.recipients.values(), *map(recipient_facts, nameable))
    if only:
        pool = pool.subset(only)
    narrowed = [f"{path} narrows {', '.join(names)}" for path, names in settings.projects if names]
    # The selectors of a command line, whichever rule they are in.
    selectors: list[str] = []
    for name in SELECTORS:
        for value in settings.given.get(name, ()):
            if isinstance(value, tuple):
                selectors += value
            else:
                selectors.append(value)
    unmatched = check_selectors(pool_policy.policy, recipients, kinds(), tuple(selectors))
    check_allowed(pool_policy, only)
    return permitted_pool(pool, pool_policy), (*narrowed, *unmatched)


def unmatched_selectors(settings: Settings, name: str) -> tuple[str, ...]:
    """Return a note for each selector of the setting `name` that means no configured worker.

    None where there are none yet.
    """
    if name not in SELECTORS or not settings.workers:
        return ()
    rule = Policy(**{name.removeprefix("policy."): settings[name]})
    try:
        return check_selectors(
            rule, tuple(build_guard(settings, (), None).recipients.values()), kinds()
        )
    except PolicyError as error:  # nobody at all is allowed
        return (error.message,)


def check_allowed(pool_policy: PoolPolicy, names: Iterable[str]) -> None:
    """Raise `PolicyError` for a worker that a command line names and a rule forbids."""
    for name in names:
        reason = pool_policy.denial_reason(name)
        if reason:
            raise PolicyError(f"worker {name} may not be asked: {reason}", hint=POLICY_HINT)


def policy_objection(settings: Settings, worker: Worker) -> str:
    """Why the policy forbids a worker; empty where it does not."""
    return settings.policy.denial_reason(recipient_facts(worker))


def keep_policy_of(settings: Settings, earlier: Trace) -> tuple[Settings, tuple[str, ...]]:
    """Return the settings with the policy of an earlier run added, and the rules that this changed.

    So whoever resumes or continues a run need not repeat its flags.
    """
    values = dict(settings.values)
    origins = dict(settings.origins)
    rules = {}
    for field in fields(Policy):
        rules[find_setting(f"policy.{field.name}")] = getattr(earlier.policy, field.name)
    changed = []
    for rule, old in rules.items():
        if narrow(values, origins, rule, old, f"run {earlier.run}"):
            changed.append(rule.name)
    return replace(settings, values=values, origins=origins), tuple(changed)


def server_for_policy(item: ConfiguredTools) -> ToolServer:
    """Return a server as policies know it; no variable is read."""
    return ToolServer(
        name=item.name, command=item.table.command, url=item.table.url, local=item.table.local
    )


POOL_SETTING: Final = "conductor.pool"


async def resolve_pool(
    settings: Settings, planner: Worker | None, only: Sequence[str]
) -> tuple[Pool, tuple[str, ...]]:
    """Return the workers of a run with their prices, and remarks about them to show.

    They are those of the settings, else those found on this machine, else the planner itself; for
    the rehearsal, its own. `only` are those that a command line names. Raises `UsageError`,
    `ConfigError` or `PolicyError`.
    """
    if settings.rehearsal:
        if _is_pool_given(settings) and settings[POOL_SETTING]:
            raise UsageError(
                "--demo has its own workers", hint="omit --pool; --workers chooses among them"
            )
        return filter_pool(rehearsal_pool(), settings, only, planner)
    remarks: list[str] = []
    discovered: Sequence[Worker] = ()
    if settings.plain_model:
        workers: tuple[Worker, ...] = (await _plain_worker(settings),)
        only = (workers[0].name,)
    else:
        workers = offered_workers(settings)
        _check_enabled(settings, only)
    # So that a first question works: local servers, and providers whose API keys are on this
    # machine.
    if not settings.workers and not settings.plain_model:
        discovered = await discover(
            settings.environ, providers_with_stored_key(open_key_store(settings))
        )
        allowed = [worker for worker in discovered if not policy_objection(settings, worker)]
        workers = tuple(map(settings.cards.apply_to, allowed))
        names = ", ".join(names_of(workers))
        remarks.append(f"no workers are configured; found on this machine: {names}")
        if not workers:
            planner = planner or resolve_planner(settings)
            workers = (replace(planner, name="local", about="the model of the planner"),)
            remarks = ["no workers are configured and none was found: the planner answers too"]
    # The planner and the trace name the model that answers, also where the settings leave it to the
    # provider's preset.
    workers = tuple(replace(worker, model=model_of(worker)) for worker in workers)
    workers, price_problem = with_prices(workers)
    if price_problem:
        remarks.append(price_problem)
    remarks += settings.notices
    if settings.cards.problem:
        remarks.append(f"{settings.cards.problem}; measured capability cards are not used")
    pool = Pool(workers=with_abilities(workers))
    pool, policy_remarks = filter_pool(pool, settings, only, planner, discovered)
    return pool, (*remarks, *policy_remarks)


def _check_enabled(settings: Settings, names: Iterable[str]) -> None:
    """Raise `PolicyError` where one of these workers is disabled."""
    disabled = [item.worker.name for item in settings.workers if not item.enabled]
    for name in names:
        if name in disabled:
            raise PolicyError(f"worker {name!r} is disabled", hint=f"conductor workers add {name}")


def with_plain_model(settings: Settings, name: str) -> Settings:
    """Return the settings by which `name` answers each question in one call.

    It is a worker or provider/model. Nothing is planned or reviewed, whatever the settings say.
    """
    values = {**settings.values, "conductor.mode": "auto", "limits.review": 0}
    return replace(settings, values=values, plain_model=name)


async def _plain_worker(settings: Settings) -> Worker:
    """Return the worker that plain calls ask: one of the settings or of this machine, or a model.

    A model of a provider that the settings have as a worker is that worker, with its rules.
    Raises `UsageError` or `PolicyError`.
    """
    name = settings.plain_model
    provider, _, model = name.partition("/")
    for item in settings.workers:
        is_same_model = item.worker.kind == provider and model_of(item.worker) == model
        if item.worker.name == name or is_same_model:
            _check_enabled(settings, (item.worker.name,))
            return item.worker
    if provider in PRESETS and model:
        return Worker(name=_name_plain_worker(settings, name), kind=provider, model=model)
    names = settings.worker_names
    if not settings.workers:
        stored = providers_with_stored_key(open_key_store(settings))
        for worker in await discover(settings.environ, stored):
            if worker.name == name:
                return settings.cards.apply_to(worker)
            names.append(worker.name)
    hint = "-m takes a worker, or provider/model such as openai/gpt-5-mini"
    if names:
        hint += f"; the workers are {', '.join(names)}"
    raise UsageError(f"there is no worker {name!r:.60}", hint=suggest(name, names, hint))


def _name_plain_worker(settings: Settings, text: str) -> str:
    """Return a name for a provider's model, which no rule of the settings gives to another."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", text)
    names = settings.worker_names
    name = readable[:MAX_NAME_CHARS]
    number = 1
    while name in names:
        number += 1
        suffix = f"-{number}"
        name = readable[: MAX_NAME_CHARS - len(suffix)] + suffix
    return name


def best_worker(settings: Settings) -> str:
    """Return the name of the worker with the best card, of those that may be asked.

    Raises as `resolve_pool`.
    """
    pool, _ = run_async(resolve_pool(settings, None, ()))
    return pool.best().name


def plain_model_of(trace: Trace, settings: Settings) -> str:
    """Return the provider/model that a stored plain call asked, which no settings name.

    Empty for every other run.
    """
    if len(trace.pool) != 1:
        return ""
    worker = trace.pool.workers[0]
    model = f"{worker.kind}/{worker.model}"
    names = settings.worker_names
    if worker.name in names or worker.name != _name_plain_worker(settings, model):
        return ""
    return model


def check_choice(settings: Settings, only: Sequence[str]) -> None:
    """Raise `UsageError` where a command line names a worker or a rule that means none.

    Nothing is opened.
    """
    # These are said where the models are opened
    with suppress(ConfigError, PolicyError, ConductorUnusable):
        run_async(resolve_pool(settings, None, only))


def offered_workers(settings: Settings) -> tuple[Worker, ...]:
    """Return the enabled workers: those of the chosen pool in its order, else all.

    Raises `UsageError` where a command line names an unknown pool, `ConfigError` where the settings
    do, and `PolicyError` where all workers of the pool are disabled.
    """
    name = settings[POOL_SETTING]
    if not name:
        return settings.enabled_workers
    try:
        pool = find_pool(settings.pools, name)
    except UsageError as error:
        if _is_pool_given(settings):
            raise
        hint = f"{error.hint}; {POOL_SETTING} is from {settings.origins[POOL_SETTING]}"
        raise ConfigError(error.message, hint=hint) from None
    enabled = tuple(item.worker for item in pool_members(pool, settings.workers) if item.enabled)
    if not enabled:
        hint = (
            "enable one in config.toml: enabled = true, or add it again: conductor workers add NAME"
        )
        raise PolicyError(f"all workers of pool {name!r} are disabled", hint=hint)
    return enabled


def discovered_workers(
    settings: Settings, *, offline: bool = False
) -> tuple[ConfiguredWorker, ...]:
    """Return the workers found on this machine.

    With `offline` only those whose keys are here, and no server is asked.
    """
    stored = providers_with_stored_key(open_key_store(settings))
    environ = settings.environ
    if offline:
        workers = workers_with_keys(environ, stored)
    else:
        workers = run_async(discover(environ, stored))
    configured = []
    for worker in workers:
        configured_worker = ConfiguredWorker(
            worker=settings.cards.apply_to(worker),
            enabled=True,
            source="found on this machine",
        )
        configured.append(configured_worker)
    return tuple(configured)


def without_pool(settings: Settings) -> Settings:
    """Return the settings for finishing a stored run.

    Its own workers count, unless a command line names a pool.
    """
    if _is_pool_given(settings):
        return settings
    return replace(settings, values={**settings.values, POOL_SETTING: ""})


def _is_pool_given(settings: Settings) -> bool:
    return settings.origins[POOL_SETTING] == "command line"

"""The policy of the settings, applied before anything is opened: which workers may be asked, and what to say of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Final

from conductor_cli.config import ConfiguredTools, Settings, find_setting
from conductor_cli.config.project import narrow
from conductor_cli.core.errors import PolicyError
from conductor_cli.core.plan import SELF
from conductor_cli.core.policy import POLICY_HINT, Policy, PoolPolicy, check_selectors, permitted_pool
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.trace import Trace
from conductor_cli.models.presets import party_of
from conductor_cli.models.worker_options import kinds
from conductor_cli.tools.servers import ToolServer

SELECTORS: Final = ("policy.allow", "policy.deny", "policy.files_only")
"""The settings that name workers by selectors."""


def build_guard(settings: Settings, pool: Iterable[Worker], planner: Worker | None) -> PoolPolicy:
    """The policy with everybody it is about: each worker that is configured or in the pool, and the conductor."""
    # Configured workers outside the pool count too: a rule that names one of them is no mistake.
    workers = [*(item.worker for item in settings.workers), *pool]
    parties = {worker.name: party_of(worker) for worker in workers if worker.kind != SELF}
    if planner is not None:
        parties[SELF] = party_of(planner)
    servers = [party_server(item).party for item in settings.tool_servers]
    parties |= {party.name: party for party in servers}
    return PoolPolicy(policy=settings.policy, parties=parties)


def filter_pool(
    pool: Pool, settings: Settings, only: Sequence[str], planner: Worker | None, known: Iterable[Worker] = ()
) -> tuple[Pool, tuple[str, ...]]:
    """The workers of `pool` that the policy allows, of `only` where a command line names some, and remarks to show.

    The remarks name project files that narrowed the policy, and rules of the settings that match no worker. `known` are
    workers that a rule may name although the pool lacks them. Raises `UsageError` for a rule of a command line that
    matches no worker, and `PolicyError` where no worker is left or one of `only` is not allowed.
    """
    pool_policy = build_guard(settings, pool, planner)
    parties = (*pool_policy.parties.values(), *map(party_of, known))
    pool = pool.subset(only) if only else pool
    narrowed = [f"{path} narrows {', '.join(names)}" for path, names in settings.projects if names]
    unmatched = check_selectors(pool_policy.policy, parties, kinds(), _typed_selectors(settings))
    check_allowed(pool_policy, only)
    return permitted_pool(pool, pool_policy), (*narrowed, *unmatched)


def unmatched_selectors(settings: Settings, name: str) -> tuple[str, ...]:
    """A note for each selector of the setting `name` that means no configured worker; none where there are none yet."""
    if name not in SELECTORS or not settings.workers:
        return ()
    rule = Policy(**{name.removeprefix("policy."): settings[name]})
    try:
        return check_selectors(rule, tuple(build_guard(settings, (), None).parties.values()), kinds())
    except PolicyError as error:  # nobody at all is allowed
        return (error.message,)


def _typed_selectors(settings: Settings) -> tuple[str, ...]:
    """The selectors of a command line, whichever rule they are in."""
    groups = [settings.given.get(name, ()) for name in SELECTORS]
    flat = [each if isinstance(each, tuple) else (each,) for group in groups for each in group]
    return tuple(selector for group in flat for selector in group)


def check_allowed(pool_policy: PoolPolicy, names: Iterable[str]) -> None:
    """Raise `PolicyError` for a worker that a command line names and a rule forbids."""
    for name in names:
        reason = pool_policy.denial_reason(name)
        if reason:
            raise PolicyError(f"worker {name} may not be asked: {reason}", hint=POLICY_HINT)


def policy_objection(settings: Settings, worker: Worker, *, plans: bool = False) -> str:
    """Why the policy forbids a worker, or with `plans` the conductor; empty where it does not."""
    return settings.policy.denial_reason(party_of(worker), plans=plans)


def keep_policy_of(settings: Settings, earlier: Trace) -> tuple[Settings, tuple[str, ...]]:
    """The settings with the policy of an earlier run added, and the names of the rules that this changed.

    So whoever resumes or continues a run need not repeat its flags.
    """
    values, origins = dict(settings.values), dict(settings.origins)
    rules = {find_setting(f"policy.{rule.name}"): getattr(earlier.policy, rule.name) for rule in fields(Policy)}
    changed = [rule.name for rule, old in rules.items() if narrow(values, origins, rule, old, f"run {earlier.run}")]
    return replace(settings, values=values, origins=origins), tuple(changed)


def party_server(item: ConfiguredTools) -> ToolServer:
    """A server as policies know it; no variable is read."""
    return ToolServer(name=item.name, command=item.table.command, url=item.table.url, local=item.table.local)

"""The policy of the settings, at the door: who is opened at all, and what is said of the rules that hold here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from conductor_cli.core.data_policy import PoolPolicy
from conductor_cli.core.errors import PolicyError
from conductor_cli.core.plan import SELF
from conductor_cli.core.policy import POLICY_HINT, Policy, check_selectors, permitted_pool
from conductor_cli.core.pool import Pool, Worker

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.core.trace import Trace


def build_guard(settings: Settings, pool: Iterable[Worker], planner: Worker | None) -> PoolPolicy:
    """The policy, and whom it is about: every worker that is listed or in the pool, and the conductor."""
    from conductor_cli.models.presets import party_of

    workers = [*(item.worker for item in settings.workers), *pool]
    parties = {worker.name: party_of(worker) for worker in workers if worker.kind != SELF}
    if planner is not None:
        parties[SELF] = party_of(planner)
    return PoolPolicy(policy=settings.policy, parties=parties)


def keep_policy_of(settings: Settings, earlier: Trace) -> tuple[Settings, tuple[str, ...]]:
    """The settings with the rules that an earlier run began with, and the names of those that this changed.

    Whoever finishes or continues it need not give the flags again.
    """
    from conductor_cli.config import find_setting
    from conductor_cli.config.project import narrow

    values, origins = dict(settings.values), dict(settings.origins)
    rules = {find_setting(f"policy.{rule.name}"): getattr(earlier.policy, rule.name) for rule in fields(Policy)}
    changed = [rule.name for rule, old in rules.items() if narrow(values, origins, rule, old, f"run {earlier.run}")]
    return replace(settings, values=values, origins=origins), tuple(changed)


def policy_objection(settings: Settings, worker: Worker, *, plans: bool = False) -> str:
    """Why the policy does not let a worker, or the conductor that `plans`, be asked; empty where it does."""
    from conductor_cli.models.presets import party_of

    return settings.policy.forbids(party_of(worker), plans=plans)


def check_allowed(guard: PoolPolicy, names: Iterable[str]) -> None:
    """Raise `PolicyError` for a worker that a command line names and a rule forbids."""
    for name in names:
        why = guard.forbids(name)
        if why:
            raise PolicyError(f"worker {name} may not be asked: {why}", hint=POLICY_HINT)


def allowed_workers(settings: Settings, found: Iterable[Worker]) -> tuple[Worker, ...]:
    """Those of the workers found at hand that the policy lets be asked."""
    return tuple(worker for worker in found if not policy_objection(settings, worker))


def filter_pool(
    pool: Pool, settings: Settings, only: Sequence[str], planner: Worker | None
) -> tuple[Pool, tuple[str, ...]]:
    """The workers of `pool` that the policy lets be asked, and what a run should say of its rules.

    Raises `PolicyError` where that leaves none, or where one that a command line names is not among them.
    """
    guard = build_guard(settings, pool, planner)
    remarks = _said(settings, guard)
    check_allowed(guard, only)
    return permitted_pool(pool, guard.parties, guard.policy), remarks


def _said(settings: Settings, guard: PoolPolicy) -> tuple[str, ...]:
    """The project files that changed something, and rules that mean nobody."""
    from conductor_cli.models.presets import PRESETS

    narrowed = [f"{path} narrows {', '.join(names)}" for path, names in settings.projects if names]
    return (*narrowed, *check_selectors(guard.policy, tuple(guard.parties.values()), (*PRESETS, "llama")))

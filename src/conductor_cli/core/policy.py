"""What a run may do, and with whom.

Pure: each function returns what is allowed or the reason why not, or raises.

A policy names workers by *selectors*: `gpt` (a worker's name), `tag:eu`, `provider:openai`,
`provider:local` (this machine); and servers of tools as `tool:NAME` or by their provider.
`data_policy` decides who may see what of one question.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from conductor_cli.core.errors import ConfigError, PolicyError, UsageError, suggest
from conductor_cli.core.mappings import names_of
from conductor_cli.core.plan import MAX_STEPS, SELF, PlanRules
from conductor_cli.core.pool import Limits, Pool
from conductor_cli.core.tools import tool_selector

LOCAL: Final = "local"  # The provider of workers whose questions stay on this machine, in selectors

UNKNOWN_PROVIDER: Final = "unknown"
"""That of a worker whose provider is not known before the call: a rule against any covers it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipient:
    """A worker, the planner or a server of tools as policies know it.

    `provider` gets what it is sent, `local` means this machine. Where one of several addresses gets
    it, they are its `parts`, and a rule has to allow each of them.
    """

    name: str
    provider: str
    kind: str = ""
    local: bool = False
    tags: tuple[str, ...] = ()
    parts: tuple[Recipient, ...] = ()

    @property
    def has_unknown_provider(self) -> bool:
        return self.provider == UNKNOWN_PROVIDER


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Who may be asked, and who may see attached files. Empty, it forbids nothing.

    `allow` and `files_only` hold one group of selectors for each source that says so; a worker has
    to match every group.
    """

    allow: tuple[tuple[str, ...], ...] = ()
    deny: tuple[str, ...] = ()
    local_only: bool = False
    files_only: tuple[tuple[str, ...], ...] = ()

    def denial_reason(self, recipient: Recipient, *, plans: bool = False) -> str:
        """Return why nothing may be sent to `recipient`, empty where it may.

        `plans`: it is the planner.
        """
        for part in recipient.parts:
            reason = self.denial_reason(part, plans=plans)
            if reason:
                return reason
        if recipient.parts:
            return ""
        # `allow` is about workers: a planner on this machine need not be in it.
        needs_no_permission = plans and recipient.local
        denied = self._leaves_machine_reason(recipient) or self._denied_reason(recipient)
        if denied or needs_no_permission:
            return denied
        return self._not_allowed_reason(recipient)

    def _leaves_machine_reason(self, recipient: Recipient) -> str:
        if not self.local_only or recipient.local:
            return ""
        elsewhere = f"{recipient.provider} is not"
        if recipient.has_unknown_provider:
            elsewhere = "who reads this is unknown"
        return f"policy.local_only keeps everything on this machine, and {elsewhere}"

    def _denied_reason(self, recipient: Recipient) -> str:
        for selector in self.deny:
            if not selector_matches(selector, recipient, widely=True):
                continue
            reason = f"policy.deny names {selector}"
            if recipient.has_unknown_provider and selector.startswith("provider:"):
                reason += f", and the provider of {recipient.name} is not known"
            return reason
        return ""

    def _not_allowed_reason(self, recipient: Recipient) -> str:
        for group in self.allow:
            if not _is_in_group(recipient, group):
                return f"policy.allow names only {', '.join(group) or 'nobody'}"
        return ""

    def allows_files(self, recipient: Recipient) -> bool:
        """Return whether each address of `recipient` is in every group of `files_only`."""
        parts = recipient.parts or (recipient,)
        return all(_is_in_every_group(part, self.files_only) for part in parts)


NO_POLICY: Final = Policy()


def selector_matches(selector: str, recipient: Recipient, *, widely: bool = False) -> bool:
    """Return whether a selector means `recipient`.

    `widely`, in rules that forbid: also by its kind, for any provider.
    """
    key, colon, value = selector.partition(":")
    if not colon or key == "tool":
        return recipient.name == selector
    if key == "tag":
        return value in recipient.tags
    value = value.lower()
    if value == LOCAL:
        return recipient.local
    # A rule that forbids must not be avoided by a worker whose provider cannot be determined.
    if widely and recipient.has_unknown_provider:
        return True
    if value == recipient.provider.lower():
        return True
    counts_by_kind = widely or recipient.local
    return counts_by_kind and value == recipient.kind.lower()


def _is_in_group(recipient: Recipient, group: Collection[str]) -> bool:
    return any(selector_matches(selector, recipient) for selector in group)


def _is_in_every_group(recipient: Recipient, groups: Collection[Collection[str]]) -> bool:
    return all(_is_in_group(recipient, group) for group in groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPolicy:
    """A policy, and the recipients it is about by worker name.

    The workers of the pool, and the planner as `self`.
    """

    policy: Policy = NO_POLICY
    recipients: Mapping[str, Recipient] = field(default_factory=dict)

    def recipient(self, name: str) -> Recipient:
        """Return a worker as policies know it.

        One that is not listed has no tags and no provider, so no rule allows it by these.
        """
        return self.recipients.get(name) or Recipient(name=name, provider=name)

    def denial_reason(self, name: str) -> str:
        """Return why nothing may be sent to a worker, or to the planner as `self`.

        Empty where it may.
        """
        return self.policy.denial_reason(self.recipient(name), plans=name == SELF)

    def allows_files(self, name: str) -> bool:
        """Return whether attached files may be sent to a worker, or to the planner as `self`."""
        return self.policy.allows_files(self.recipient(name))

    def check_conductor(self) -> None:
        """Raise `PolicyError` where the planner must not be asked, whatever the question."""
        denied = self.denial_reason(SELF)
        if denied:
            message = (
                f"the policy forbids asking the planner ({self.recipient(SELF).provider}): {denied}"
            )
            raise PolicyError(message, hint="plan with a local model: conductor model use NAME")


def permitted_pool(pool: Pool, pool_policy: PoolPolicy) -> Pool:
    """Return the workers of `pool` that may be asked, and `self` unless denied.

    Raises `PolicyError` where none is left.
    """
    why = {}
    for worker in pool:
        if worker.kind != SELF:
            why[worker.name] = pool_policy.denial_reason(worker.name)
    if why and all(why.values()):
        raise no_worker_error(why)
    if SELF in pool_policy.policy.deny:
        why[SELF] = "denied"
    return Pool(workers=tuple(worker for worker in pool if not why.get(worker.name)))


def no_worker_error(why: Mapping[str, str]) -> PolicyError:
    """Return the error that no worker is left, with the reason for each."""
    reasons = [f"{name}: {reason}" for name, reason in why.items()]
    named = reasons[:MAX_REASONS]
    if len(reasons) > MAX_REASONS:
        named.append(f"and {len(reasons) - MAX_REASONS} more")
    return PolicyError(f"the policy allows no worker ({'; '.join(named)})", hint=POLICY_HINT)


POLICY_HINT: Final = (
    "see where each rule is set: conductor config show; "
    "a new conversation drops the rules of this one"
)


CONDUCTOR: Final = "conductor"  # The name of a planner that is no worker, in selectors
MAX_REASONS: Final = 4  # Workers that an error names, each with its reason
MAX_NOTES: Final = 5  # Notes about one rule; a project file may have thousands of names

NO_WORKERS_HINT: Final = (
    "find some: conductor setup, or add one: conductor workers add; "
    "to try the demo models: conductor ask --demo"
)

_SELECTORS_HINT: Final = "see names, kinds and tags: conductor workers list"

COST_LIMIT: Final = "the cost limit"
DAY_COST_LIMIT: Final = "the cost limit of the day (limits.cost_day)"


def check_selectors(
    policy: Policy,
    recipients: Collection[Recipient],
    providers: Collection[str],
    given: Collection[str] = (),
) -> tuple[str, ...]:
    """Return a note for each selector that means no worker.

    A known provider without a worker is fine.

    `given` are the selectors that whoever asks has just typed. One of them that means no worker is
    a `UsageError`: a note would let the question go to the very worker whose name was mistyped.
    Those of the settings stay notes, because pools differ. Raises `PolicyError` where a whole group
    of `allow` means nobody: that forbids everything, which is hardly intended.
    """
    usual = {SELF, CONDUCTOR, *(f"provider:{name}" for name in (*providers, LOCAL))}

    def means_nobody(selector: str) -> bool:
        return selector.lower() not in usual and not _means_somebody(selector, recipients)

    for selector in given:
        if means_nobody(selector):
            raise _no_match(selector, recipients, usual)
    # Rules that allow only tools would leave nobody to call them.
    workers = [item for item in recipients if not item.name.startswith(tool_selector(""))]
    for group in policy.allow:
        if not any(_is_in_group(worker, group) for worker in workers):
            if set(group) & set(given):
                raise _no_match(group[0], recipients, usual)
            raise _empty_group(group)
    notes = []
    for name, groups in (
        ("allow", policy.allow),
        ("files_only", policy.files_only),
        ("deny", (policy.deny,)),
    ):
        idle = list(filter(means_nobody, chain(*groups)))
        notes += [f"policy.{name}: no worker matches {selector}" for selector in idle[:MAX_NOTES]]
        if len(idle) > MAX_NOTES:
            notes.append(
                f"policy.{name}: no worker matches {len(idle) - MAX_NOTES:,} more of its names"
            )
    return tuple(notes)


def _means_somebody(selector: str, recipients: Collection[Recipient]) -> bool:
    return any(selector_matches(selector, recipient, widely=True) for recipient in recipients)


def _empty_group(group: Collection[str]) -> PolicyError:
    """Return the error that a whole group of `allow` means nobody."""
    reason = "it is empty, so it allows no worker"
    if group:
        reason = f"no worker matches {', '.join(group)}"
    return PolicyError(f"policy.allow: {reason}", hint=_SELECTORS_HINT)


def _no_match(
    selector: str, recipients: Collection[Recipient], usual: Collection[str]
) -> UsageError:
    names = names_of(recipients)
    for recipient in recipients:
        names += [f"tag:{tag}" for tag in recipient.tags]
    names += [f"provider:{recipient.provider}" for recipient in recipients]
    names += sorted(usual)
    hint = _SELECTORS_HINT
    # One that is known, and only that of no worker here, was not mistyped
    if selector.lower() not in {name.lower() for name in names}:
        hint = suggest(selector, names, _SELECTORS_HINT)
    return UsageError(f"no worker matches {selector!r}", hint=hint)


def check_pool(pool: Pool, limits: Limits, cost_limit: str = COST_LIMIT) -> None:
    """Raise unless a run over `pool` can keep `limits`.

    `cost_limit` is what the one on money is called.
    """
    for worker in pool:
        if worker.parallel < 1:
            raise ConfigError(
                f"worker {worker.name}: parallel must be at least 1, not {worker.parallel}"
            )
        if (worker.name == SELF) != (worker.kind == SELF):
            raise ConfigError(
                f"worker {worker.name!r} has kind {worker.kind!r}, "
                f"but {SELF!r} as name or kind means the planner itself",
                hint="give it another name",
            )
    workers = pool.without_self()
    if not workers:
        raise PolicyError("the pool has no workers", hint=NO_WORKERS_HINT)
    if limits.cost is not None:
        unpriced = workers.unpriced()
        if unpriced:
            verb = "have"
            if len(unpriced) == 1:
                verb = "has"
            raise PolicyError(
                f"{cost_limit} cannot be enforced: {', '.join(unpriced)} {verb} no price",
                hint=f"set a price for each (conductor workers set {unpriced[0]} price=IN,OUT; "
                "0,0 where it costs nothing), leave these workers out, or limit tokens instead",
            )


def check_limits(limits: Limits, *, planned: bool = True) -> None:
    """Raise `ConfigError` for an impossible limit.

    `planned`: a model writes the plan, with at most `MAX_STEPS`.
    """
    if limits.steps is not None and (limits.steps < 1 or (planned and limits.steps > MAX_STEPS)):
        raise ConfigError(f"limits.steps must be between 1 and {MAX_STEPS}, not {limits.steps}")
    for name in ("parallel", "attempts"):
        if getattr(limits, name) < 1:
            raise ConfigError(f"limits.{name} must be at least 1, not {getattr(limits, name)}")
    for name in ("seconds", "cost", "tokens", "calls"):
        value = getattr(limits, name)
        if value is not None and not (math.isfinite(value) and value > 0):
            raise ConfigError(
                f"limits.{name} is {value}, so nothing can run",
                hint="remove the limit, or raise it",
            )
    if limits.recursion < 0:
        raise ConfigError(f"limits.review must be 0 or more, not {limits.recursion}")


def plan_rules(  # noqa: PLR0913 - all that a plan depends on
    pool: Pool,
    limits: Limits,
    *,
    down: Collection[str],
    given: bool,
    depth_left: int,
    excluded: Collection[str] = (),
    most: int = MAX_STEPS,
) -> PlanRules:
    """Return the rules of one plan.

    The workers that are up (all of them if none is), and how many steps: `most` of them where the
    limits do not say.

    `self` is among the workers only while runs may nest deeper. Those that the policy `excluded`
    never are.
    """
    offered = (worker for worker in pool if worker.name not in excluded)
    names = tuple(worker.name for worker in offered if worker.kind != SELF or depth_left > 0)
    # If every worker is down, offering all of them gives the user the reasons why they fail.
    up = tuple(name for name in names if name not in down)
    return PlanRules(workers=up or names, steps=step_limit(limits, names, most), given=given)


def step_limit(limits: Limits, workers: Collection[str], most: int = MAX_STEPS) -> int:
    """Return the most steps of a plan that a model writes over these workers.

    `most` where the limits do not say.
    """
    if limits.steps is not None:
        return min(limits.steps, MAX_STEPS)
    if len(workers) > 1:
        return most
    return 1  # a second step would ask the same model again


def substitutes(pool: Pool, tried: Collection[str]) -> tuple[str, ...]:
    """Return the workers that may do a step instead of those already tried, in the pool's order."""
    return tuple(worker.name for worker in pool if worker.name not in tried and worker.kind != SELF)

"""Pools, limits and the rules of a policy.

What is refused, whom a selector means, why nobody is left.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from conductor_cli.core.errors import ConfigError, PolicyError
from conductor_cli.core.plan import PlanRules
from conductor_cli.core.policy import (
    NO_POLICY,
    Policy,
    PoolPolicy,
    Recipient,
    check_limits,
    check_pool,
    check_selectors,
    permitted_pool,
    plan_rules,
    selector_matches,
    step_limit,
)
from conductor_cli.core.pool import Limits, Pool, Worker
from conductor_cli.core.usage import Price

SELF = Worker(name="self", kind="self")
ANN = Worker(name="ann", kind="x")
BOB = Worker(name="bob", kind="x", price=Price(input=Decimal(1), output=Decimal(1)))


def pool(*workers: Worker) -> Pool:
    return Pool(workers=workers)


def test_a_pool_needs_a_worker() -> None:
    for empty in (pool(), pool(SELF)):
        with pytest.raises(PolicyError, match="the pool has no workers"):
            check_pool(empty, Limits())
    check_pool(pool(ANN, SELF), Limits())


def test_a_limit_of_money_needs_prices() -> None:
    with pytest.raises(PolicyError, match="ann has no price"):
        check_pool(pool(ANN, BOB, SELF), Limits(cost=Decimal(1)))
    check_pool(pool(BOB, SELF), Limits(cost=Decimal(1)))
    check_pool(pool(ANN), Limits(tokens=100))


def test_the_name_self_is_reserved() -> None:
    for wrong in (Worker(name="self", kind="openai"), Worker(name="me", kind="self")):
        with pytest.raises(ConfigError, match="'self' as name or kind means the planner itself"):
            check_pool(pool(ANN, wrong), Limits())


def test_a_worker_must_run_at_least_one_step_at_a_time() -> None:
    with pytest.raises(ConfigError, match=r"worker ann: parallel must be at least 1, not 0"):
        check_pool(pool(Worker(name="ann", kind="x", parallel=0)), Limits())


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"steps": 0}, "limits.steps must be between 1 and 5, not 0"),
        ({"steps": 6}, "limits.steps must be between 1 and 5, not 6"),
        ({"parallel": 0}, "limits.parallel must be at least 1, not 0"),
        ({"attempts": 0}, "limits.attempts must be at least 1, not 0"),
        ({"recursion": -1}, "limits.review must be 0 or more, not -1"),
        ({"seconds": float("inf")}, "limits.seconds is inf, so nothing can run"),
        ({"cost": Decimal("NaN")}, "limits.cost is NaN, so nothing can run"),
        ({"tokens": -5}, "limits.tokens is -5, so nothing can run"),
        ({"calls": 0}, "limits.calls is 0, so nothing can run"),
    ],
)
def test_impossible_limits_are_refused(wrong: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_limits(Limits(**wrong))
    assert caught.value.message == problem


def test_only_plans_written_by_a_model_are_limited_to_five_steps() -> None:
    check_limits(Limits(steps=9), planned=False)
    with pytest.raises(ConfigError, match=r"limits.steps must be between 1 and 5, not 0"):
        check_limits(Limits(steps=0), planned=False)
    assert plan_rules(pool(ANN), Limits(steps=9), down=(), given=False, depth_left=0).steps == 5


def test_a_plan_may_name_workers_that_are_up() -> None:
    limits = Limits(steps=2)
    everybody = pool(ANN, BOB, SELF)
    assert plan_rules(everybody, limits, down=(), given=True, depth_left=1) == PlanRules(
        workers=("ann", "bob", "self"), steps=2, given=True
    )
    assert plan_rules(everybody, limits, down=["ann"], given=False, depth_left=0).workers == (
        "bob",
    )


def test_a_plan_may_name_all_workers_if_all_are_down() -> None:
    assert plan_rules(
        pool(ANN, SELF), Limits(), down=["ann"], given=False, depth_left=0
    ).workers == ("ann",)


GPT = Recipient(name="gpt", provider="openai", kind="openai", tags=("eu", "fast"))
PROXIED = Recipient(name="gpt2", provider="proxy.example.org", kind="openai")
OWN = Recipient(name="own", provider="this machine", kind="ollama", local=True)


@pytest.mark.parametrize(
    ("selector", "party", "meant"),
    [
        ("gpt", GPT, True),
        ("gpt", PROXIED, False),
        ("tag:eu", GPT, True),
        ("tag:e", GPT, False),
        ("provider:openai", GPT, True),
        ("provider:OpenAI", GPT, True),
        ("provider:proxy.example.org", PROXIED, True),
        ("provider:local", OWN, True),
        ("provider:local", GPT, False),
        ("provider:ollama", OWN, True),
    ],
)
def test_a_selector_means_by_name_tag_or_provider(
    selector: str, party: Recipient, meant: bool
) -> None:
    assert selector_matches(selector, party) is meant


def test_what_allows_is_read_narrowly_and_what_forbids_widely() -> None:
    assert Policy(allow=(("provider:openai",),)).denial_reason(PROXIED)
    assert Policy(deny=("provider:openai",)).denial_reason(PROXIED)
    assert not Policy(files_only=(("provider:openai",),)).allows_files(PROXIED)


def test_every_group_of_those_allowed_has_to_mean_a_worker() -> None:
    assert not Policy(allow=(("gpt", "own"), ("tag:eu",))).denial_reason(GPT)
    assert (
        Policy(allow=(("gpt", "own"), ("tag:eu",))).denial_reason(OWN)
        == "policy.allow names only tag:eu"
    )
    assert Policy(allow=((),)).denial_reason(GPT) == "policy.allow names only nobody"


def test_a_policy_without_workers_gives_the_reason_for_each() -> None:
    parties = {name: Recipient(name=name, provider="x", kind="x") for name in ("ann", "bob")}

    def permitted(policy: Policy) -> Pool:
        return permitted_pool(pool(ANN, BOB, SELF), PoolPolicy(policy=policy, recipients=parties))

    with pytest.raises(PolicyError) as caught:
        permitted(Policy(deny=("ann",), local_only=True))
    local = "policy.local_only keeps everything on this machine, and x is not"
    assert caught.value.message == f"the policy allows no worker (ann: {local}; bob: {local})"
    assert permitted(Policy(deny=("ann",))).names == ("bob", "self")
    hidden = Recipient(name="cat", provider="unknown", kind="x")
    assert (
        Policy(local_only=True)
        .denial_reason(hidden)
        .endswith("this machine, and who reads this is unknown")
    )
    assert permitted(Policy(deny=("self",))).names == ("ann", "bob")
    for count, end in ((4, r"w3: [^;]*w3 is not\)$"), (6, r"w3: .*; and 2 more\)$")):
        many = pool(*(Worker(name=f"w{number}", kind="x") for number in range(count)))
        with pytest.raises(PolicyError, match=end):
            permitted_pool(many, PoolPolicy(policy=Policy(local_only=True)))


def test_of_thousands_of_names_without_a_match_few_are_reported() -> None:
    notes = check_selectors(
        Policy(deny=tuple(f"w{number}" for number in range(2000))), [GPT, OWN], ["openai"]
    )
    assert (len(notes), notes[-1]) == (6, "policy.deny: no worker matches 1,995 more of its names")


def test_selectors_without_a_match_are_reported() -> None:
    policy = Policy(allow=(("gpt", "gtp"),), deny=("provider:xai", "provider:vendor", "tag:us"))
    assert check_selectors(policy, [GPT, OWN], ["openai", "xai"]) == (
        "policy.allow: no worker matches gtp",
        "policy.deny: no worker matches provider:vendor",
        "policy.deny: no worker matches tag:us",
    )
    for group, report in (
        (("gtp",), "no worker matches gtp"),
        ((), "it is empty, so it allows no worker"),
    ):
        with pytest.raises(PolicyError, match=report):
            check_selectors(Policy(allow=(group,)), [GPT], [])
    assert check_selectors(NO_POLICY, [], []) == ()


@pytest.mark.parametrize(
    ("limit", "workers", "most"),
    [
        (None, ("ann",), 1),  # a second step would ask the same model again
        (None, ("ann", "bob"), 5),
        (None, ("ann", "self"), 5),  # the conductor itself is somebody else
        (3, ("ann",), 3),  # what the user limits holds
        (1, ("ann", "bob"), 1),
        (9, ("ann", "bob"), 5),  # a plan file may have more steps, a model may not
    ],
)
def test_one_worker_gets_one_step_unless_the_user_says_otherwise(
    limit: int | None, workers: tuple[str, ...], most: int
) -> None:
    assert step_limit(Limits(steps=limit), workers) == most

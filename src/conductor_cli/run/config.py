"""What a run is given and never changes."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from conductor_cli.core.errors import Failure
from conductor_cli.core.events import Mode
from conductor_cli.core.plan import PlanRules
from conductor_cli.core.plan_formats import PlanFormatContext
from conductor_cli.core.policy import PoolPolicy, plan_rules
from conductor_cli.core.pool import Limits, Pool, Timeouts
from conductor_cli.core.profile import PROMPTED, Profile, WorkerProfile
from conductor_cli.core.prompts import plan_format_context
from conductor_cli.core.usage import Price
from conductor_cli.models.base import Model
from conductor_cli.models.daily_spend import DailySpend


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Everything that a run needs, none of it opened here.

    - `model` plans; None where every run brings its plan. `name` is its name with its file hash, `recipient` who
      receives what it is sent, `price` its price (None: not known). `exact` says that its backend obeys grammars.
    - `workers` holds a model for each name in `pool`. `unavailable` are workers that cannot be asked, and why.
    - `pool_policy` says who may be asked, and shown what. `daily_spend` records each call and holds all runs of a day
      to its limits.
    - `streams_answer`: the text of the answering step is shown as it comes and cannot be taken back, so that step is
      not tried again once it has written something.
    - `seed` goes with every call. `notices` are shown at the start of the run.
    - `turns` are semaphores by the `id` of a model, for several runs at once that share the models; None gives each
      run its own (see `resources.model_semaphores`).
    """

    model: Model | None
    pool: Pool
    workers: Mapping[str, Model]
    name: str = "conductor"
    recipient: str = ""
    pool_policy: PoolPolicy = PoolPolicy()
    profile: Profile = PROMPTED
    worker_profile: WorkerProfile = WorkerProfile()
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()
    mode: Mode = "auto"
    exact: bool = False
    price: Price | None = None
    streams_answer: bool = False
    seed: int | None = None
    unavailable: Mapping[str, Failure] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    turns: Mapping[int, asyncio.Semaphore] | None = None
    daily_spend: DailySpend | None = None
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], datetime] = lambda: datetime.now(UTC)
    random: random.Random = field(default_factory=random.Random)

    def rules(
        self, *, given: bool, depth_left: int, down: Collection[str] = (), excluded: Collection[str] = ()
    ) -> PlanRules:  # fmt: skip
        """The rules of one plan; see `policy.plan_rules`."""
        return plan_rules(self.pool, self.limits, down=down, given=given, depth_left=depth_left, excluded=excluded)

    def context(self, rules: PlanRules) -> PlanFormatContext:
        """How the conductor writes a plan that keeps `rules`."""
        return plan_format_context(self.profile, self.pool, rules, self.mode, exact=self.exact)

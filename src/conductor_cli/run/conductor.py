"""The conductor: a model that plans, a pool of workers, and how they may be used. `run` starts a question.

Handed ready models; it never opens one and knows no adapter.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from conductor_cli.core.errors import ConductorUnusable, Failure
from conductor_cli.core.events import Mode
from conductor_cli.core.plan import SELF, Plan
from conductor_cli.core.policy import check_limits, check_run
from conductor_cli.core.pool import Limits, Patience, Pool, Price
from conductor_cli.core.profile import PROMPTED, Profile, WorkerProfile
from conductor_cli.core.question import Question
from conductor_cli.core.trace import Trace
from conductor_cli.models.port import Model
from conductor_cli.run.shared import Shared
from conductor_cli.run.stream import Run


def new_run_id(now: datetime) -> str:
    """An id that sorts by time, also within a second, and that two runs of one moment do not share."""
    return f"{now:%Y%m%d-%H%M%S}-{now.microsecond:05x}{secrets.token_hex(1)[0]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conductor:
    """Everything that a run needs, none of it opened here.

    `model` plans (None only where every run brings its plan), `workers` holds a model for each name in `pool`, `name`
    says which conductor model it is, with its file hash. `exact`: the conductor's backend obeys grammars. `price` is
    the conductor's own, None for a local one that costs nothing. `streams_answer`: a reader shows the answering
    step's text as it comes and cannot take it back, so that step is not tried again once it has written something.
    `seed` goes with every call. `absent` names workers of the pool that cannot be asked, and why: no plan uses them.
    """

    model: Model | None
    pool: Pool
    workers: Mapping[str, Model]
    name: str = "conductor"
    profile: Profile = PROMPTED
    worker_profile: WorkerProfile = WorkerProfile()
    limits: Limits = Limits()
    patience: Patience = Patience()
    mode: Mode = "auto"
    exact: bool = False
    price: Price | None = None
    streams_answer: bool = False
    seed: int | None = None
    absent: Mapping[str, Failure] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], datetime] = lambda: datetime.now(UTC)
    random: random.Random = field(default_factory=random.Random)

    def run(
        self, question: Question, *, plan: Plan | None = None, resume: Trace | None = None, only_plan: bool = False
    ) -> Run:
        """Start `question`; nothing happens before the stream is read.

        With `plan` nothing is planned. With `resume` the finished steps of that run are taken over and only what is
        missing is called. With `only_plan` no step is started and the answer stays empty. Raises `PolicyError`,
        `ConfigError` or `ConductorUnusable` before anything is called.
        """
        check_limits(self.limits)
        check_run(self.pool, self.limits)
        itself = plan is not None and (self.limits.recursion > 0 or any(step.worker == SELF for step in plan.steps))
        if itself and self.model is None:
            raise ConductorUnusable("a step on the conductor itself needs a model for it", hint="give one: --conductor")
        shared = Shared(self.pool, self.workers, self.limits, self.absent)
        return Run(
            setting=self, question=question, run_id=new_run_id(self.wall()), shared=shared, plan=plan, resume=resume,
            only_plan=only_plan, depth_left=max(self.limits.recursion, 1), appended=self.limits.recursion,
        )  # fmt: skip

"""The conductor: a model that plans, a pool of workers, and how they may be used. `run` starts a question.

Handed ready models; it never opens one and knows no adapter.
"""

from __future__ import annotations

import secrets
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from conductor_cli.core.chat import Request
from conductor_cli.core.errors import ConductorUnusable, PolicyError
from conductor_cli.core.plan import SELF, Plan
from conductor_cli.core.policy import check_limits, check_pool
from conductor_cli.core.prompts import conductor_request
from conductor_cli.core.question import Question
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.run import guarding
from conductor_cli.run.config import RunConfig
from conductor_cli.run.resources import RunResources
from conductor_cli.run.stream import Run


def new_run_id(now: datetime) -> str:
    """An id that sorts by time, also within a second, and that two runs of one moment do not share."""
    return f"{now:%Y%m%d-%H%M%S}-{now.microsecond:05x}{secrets.token_hex(1)[0]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conductor(RunConfig):
    """A setting that questions can be put to."""

    def run(
        self, question: Question, *, plan: Plan | None = None, resume: Trace | None = None, only_plan: bool = False,
        held: bool = False,
    ) -> Run:  # fmt: skip
        """Start `question`; nothing happens before the stream is read.

        With `plan` nothing is planned. With `resume` the finished steps of that run are taken over and only what is
        missing is called. With `only_plan` no step is started and the answer stays empty; with `held` none is before
        `Run.decide` was told so. Raises `PolicyError`, `ConfigError` or `ConductorUnusable` before anything is called.
        """
        check_limits(self.limits, planned=plan is None)
        cost = self._cost_limit()
        check_pool(self.pool, replace(self.limits, cost=cost))
        if cost is not None and self.model is not None and self.price is None:
            raise PolicyError(
                f"a cost limit cannot be kept: no price is known for the conductor {self.name}",
                hint="plan with a local model, or limit --max-tokens instead",
            )
        itself = plan is not None and (self.limits.recursion > 0 or any(step.worker == SELF for step in plan.steps))
        if itself and self.model is None:
            raise ConductorUnusable("a step on the conductor itself needs a model for it", hint="give one: --conductor")
        run = Run(
            setting=self, question=question, id=new_run_id(self.wall()), shared=RunResources(self), given_plan=plan,
            resumed=resume, only_plan=only_plan, held=held, depth_left=max(self.limits.recursion, 1),
            appended=self.limits.recursion,
        )  # fmt: skip
        guarding.check(run, plans=self.model is not None and (plan is None or itself))
        return run

    def _cost_limit(self) -> Decimal | None:
        """The limit on the money, of the run or of the day. Raises `ConfigError` where the day's cannot be kept."""
        if self.daily_spend is None:
            return self.limits.cost
        self.daily_spend.check()
        return self.daily_spend.limits.cost if self.limits.cost is None else self.limits.cost

    def asks(self, question: Question) -> Request:
        """What the model is first asked to plan `question`."""
        rules = self.rules(given=bool(question.given), depth_left=max(self.limits.recursion, 1))
        return conductor_request(question, self.pool, self.profile, self.context(rules))

    async def prepare(self) -> Usage:
        """Have the model read all that stands before a question, so that one that remembers need not do it again.

        Returns what that took: `tokens_in` were to be read, `tokens_cached` were known already. Raises `ModelError`,
        or `ConductorUnusable` without a model.
        """
        if self.model is None:
            raise ConductorUnusable("there is no conductor model to prepare", hint="name one: conductor model use")
        used = NO_USAGE
        request = replace(self.asks(Question(text="-")), max_tokens=0)
        async with aclosing(self.model.stream(request)) as chunks:
            async for chunk in chunks:
                used = chunk.usage or used
        return used

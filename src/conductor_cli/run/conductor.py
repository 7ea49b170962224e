"""The conductor: a model that plans, a pool of workers, and how they may be used. `run` starts a question.

It is given ready models; it never opens one and knows no adapter.
"""

from __future__ import annotations

import secrets
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from conductor_cli.core.chat import Request
from conductor_cli.core.data_policy import nobody_sees
from conductor_cli.core.errors import ConductorUnusable, PolicyError, UsageError
from conductor_cli.core.plan import SELF, Plan
from conductor_cli.core.policy import COST_LIMIT, DAY_COST_LIMIT, check_limits, check_pool
from conductor_cli.core.prompts import conductor_request
from conductor_cli.core.question import Question
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.run.config import RunConfig, RunResources
from conductor_cli.run.runner import Run
from conductor_cli.run.state import RunState


def new_run_id(now: datetime) -> str:
    """An id that sorts by time, also within a second, and differs for two runs of the same moment."""
    return f"{now:%Y%m%d-%H%M%S}-{now.microsecond:05x}{secrets.token_hex(1)[0]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conductor(RunConfig):
    """A configuration that questions can be asked of."""

    def run(  # noqa: PLR0913 - each is a way to run it
        self,
        question: Question,
        *,
        plan: Plan | None = None,
        resume: Trace | None = None,
        plan_only: bool = False,
        approve: bool = False,
        id: str = "",  # noqa: A002 - that is what it is
    ) -> Run:
        """Start `question`; nothing happens before the stream is read.

        `id` is one of `new_run_id`, where the run was announced before it could begin. With `plan` nothing is planned.
        With `resume` the finished steps of that run are reused and only what is missing is done. With `plan_only`
        no step is started and the answer stays empty; with `approve` none is started before `Run.decide` was told so.
        Raises `PolicyError`, `ConfigError` or `ConductorUnusable` before anything is called.
        """
        self.check_limits(planned=plan is None)
        nests = plan is not None and (self.limits.recursion > 0 or any(step.worker == SELF for step in plan.steps))
        if nests and self.model is None:
            raise ConductorUnusable(
                "a step on the conductor itself needs a conductor model", hint="choose one: conductor model use NAME"
            )
        state = RunState(
            id=id or new_run_id(self.wall()),
            config=self,
            question=question,
            resources=RunResources(self),
            given_plan=plan,
            resumed=resume,
            depth_left=max(self.limits.recursion, 1),
            reviews=self.limits.recursion,
            plan_only=plan_only,
            awaits_approval=approve,
        )
        self._check_attachments(state, resumed=resume is not None)
        state.policy.check(plans=self.model is not None and (plan is None or nests))
        violation = None if plan is None else state.policy.plan_violation(plan)
        if violation is not None:
            raise PolicyError(violation.message, hint=violation.hint)
        return Run(state)

    def _check_attachments(self, state: RunState, *, resumed: bool) -> None:
        """Raise `UsageError` where an attachment is gone, or nobody can see it."""
        for attachment in state.question.attachments:
            if self.attachments is None or not self.attachments.holds(attachment):
                raise UsageError(
                    f"{one_line(attachment.name)} is not stored any more",
                    hint="attach it again: -f FILE; it is deleted with the last trace that needs it",
                )
        message, hint = ("", "") if resumed else nobody_sees(state.viewers, self.unavailable)
        if message:
            raise UsageError(message, hint=hint)

    def check_limits(self, *, planned: bool = True) -> None:
        """Whether the limits can be enforced, whatever is asked. Raises `PolicyError` or `ConfigError`."""
        check_limits(self.limits, planned=planned)
        cost = self._cost_limit()
        cost_limit = COST_LIMIT if self.limits.cost is not None else DAY_COST_LIMIT
        check_pool(self.pool, replace(self.limits, cost=cost), cost_limit)
        if cost is not None and self.model is not None and self.price is None:
            raise PolicyError(
                f"{cost_limit} cannot be enforced: the conductor {self.name} has no price",
                hint="give it a price: conductor workers add NAME … --price IN,OUT, then conductor model use NAME\n"
                "or plan with a local model, or limit tokens instead",
            )

    def _cost_limit(self) -> Decimal | None:
        """The limit on money, of the run or of the day. Raises `ConfigError` where the day's cannot be enforced."""
        if self.daily_spend is None:
            return self.limits.cost
        self.daily_spend.check()
        return self.daily_spend.cost_limit if self.limits.cost is None else self.limits.cost

    def planning_request(self, question: Question) -> Request:
        """The first request that asks the model to plan `question`."""
        rules = self.rules(given=bool(question.given), depth_left=max(self.limits.recursion, 1))
        return conductor_request(question, self.pool, self.profile, self.context(rules))

    async def prepare(self) -> Usage:
        """Have the model read what comes before every question, so that one that remembers need not read it again.

        Returns what that took: `tokens_in` were to be read, `tokens_cached` were known already. Raises `ModelError`,
        or `ConductorUnusable` without a model.
        """
        if self.model is None:
            raise ConductorUnusable(
                "there is no conductor model to prepare", hint="choose one: conductor model use NAME"
            )
        used = NO_USAGE
        request = replace(self.planning_request(Question(text="-")), max_tokens=0)
        async with aclosing(self.model.stream(request)) as chunks:
            async for chunk in chunks:
                used = chunk.usage or used
        return used

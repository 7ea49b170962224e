"""A step: attempts at it, waits between them, substitutes; or, for worker `self`, a nested run.

There is no other retry layer. An attempt is repeated only when the same call may succeed a moment later, and never
once its text has gone where it cannot be taken back.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from conductor_cli.core import events as ev
from conductor_cli.core.errors import Failure, LimitReached, ModelError, PolicyError
from conductor_cli.core.plan import SELF
from conductor_cli.core.policy import POLICY_HINT, substitutes
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.run.attempts import Attempt
from conductor_cli.run.calls import wait_before
from conductor_cli.run.guarding import may_not
from conductor_cli.run.nesting import run_nested

if TYPE_CHECKING:
    from conductor_cli.run.workflow import Workflow

FATAL: Final = frozenset({"auth", "missing", "file"})
"""Reasons that will not change within a run: the worker is not asked again."""


async def run_step(run: Workflow, number: int) -> None:
    """Do step `number` and put all that happens on the stream. Only cancellation comes out of it as an exception."""
    name = run.record(number).step.worker
    if name == SELF:
        await run_nested(run, number)
        return
    await _Worked(run, number).work(name)


class _Worked:
    """A step that workers do: one after the other, until one of them has done it or nobody is left."""

    def __init__(self, run: Workflow, number: int) -> None:
        self.run = run
        self.number = number
        self.attempt = 0
        self.tried: list[str] = []

    async def work(self, planned: str) -> None:
        worker: str | None = self._available(planned)
        while worker is not None:
            worker = await self._ask(worker)

    def _available(self, name: str) -> str | None:
        """The planned worker, or who takes its place where it cannot be asked."""
        run = self.run
        forbidden = may_not(run, self.number, name)
        if name in run.setting.pool and name not in run.shared.down and not forbidden:
            return name
        gone = Failure(kind="config", message=f"no worker is named {name}", hint="conductor workers list shows them")
        if forbidden:
            gone = Failure(kind="policy", message=forbidden, hint=POLICY_HINT)
        failure = run.shared.down.get(name, gone)
        self.tried.append(name)
        run.errors.setdefault(self.number, []).append(failure)
        substitute = self._next()
        if substitute is None:
            self.attempt += 1
            self._fail(failure)
            return None
        run.notice(f"{name} is not available ({failure.message}); {substitute} takes its place", self.number)
        return substitute

    async def _ask(self, name: str) -> str | None:
        """All attempts by one worker. Returns who is to try next, if anyone."""
        run = self.run
        self.tried.append(name)
        turn = 0
        while True:
            turn += 1
            self.attempt += 1
            call = Attempt(run, self.number, run.setting.pool[name], self.attempt)
            try:
                await call.make()
            except LimitReached as error:
                run.reach_limit(error.failure)
                run.stopped(self.number, "limit")
                return None
            except PolicyError as error:
                run.errors.setdefault(self.number, []).append(error.failure)
                self._fail(error.failure)
                return None
            except ModelError as error:
                failure = self._note(name, error)
                if run.draining or call.text_is_out:
                    self._fail(failure, call.usage)
                    return None
                if not error.retryable or turn >= run.setting.limits.attempts:
                    if error.reason == "connect":
                        run.shared.down[name] = failure  # other steps need not find out again
                    substitute = self._next()
                    self._fail(failure, call.usage, substitute=substitute)
                    return substitute
                wait = wait_before(turn + 1, error.retry_after, run.setting.random)
                self._fail(failure, call.usage, retry_in=wait)
                await asyncio.sleep(wait)
            else:
                return None

    def _note(self, name: str, error: ModelError) -> Failure:
        failure = replace(error.failure, message=f"{name}: {error.failure.message}")
        self.run.errors.setdefault(self.number, []).append(failure)
        if error.reason in FATAL:
            self.run.shared.down[name] = failure
        return failure

    def _next(self) -> str | None:
        """Who may take the step over, and sees of the question what the planned worker would."""
        run, planned = self.run, self.run.record(self.number).step.worker
        for name in substitutes(run.setting.pool, {*self.tried, *run.shared.down}):
            if run.taint.may_replace(name, planned) and not may_not(run, self.number, name):
                return name
        return None

    def _fail(
        self,
        error: Failure,
        usage: Usage = NO_USAGE,
        *,
        retry_in: float | None = None,
        substitute: str | None = None,
    ) -> None:
        at, step = self.run.now(), self.number
        self.run.emit(
            ev.StepFailed(
                at=at,
                step=step,
                attempt=self.attempt,
                error=error,
                usage=usage,
                retry_in=retry_in,
                substitute=substitute,
            )
        )

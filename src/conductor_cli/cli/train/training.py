"""One training from the command line: everything is looked at first, then agreed to, then done."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from conductor_cli.app.checks import Check
from conductor_cli.cli.output import print_json, print_line, print_notice
from conductor_cli.cli.prompts import confirm_cost
from conductor_cli.cli.train.readiness import Order, Readiness
from conductor_cli.core.errors import UsageError

if TYPE_CHECKING:
    from conductor_cli.config import Settings

INTERRUPTED: Final = 130

NOT_OVER: Final = 3
"""The exit code when --minutes ended before the training was complete."""


class Training:
    """The way of one order."""

    def __init__(self, order: Order, settings: Settings) -> None:
        self.order = order
        self._runner = asyncio.Runner()
        self._ready = Readiness(order, settings, self._runner.run)

    def look(self, *, json: bool) -> int:
        """Look at everything, and tell; the exit code that a training would end with before its first step."""
        with self._ended():
            return report(self._ready.checks(), json=json)

    def run(self) -> int:
        """Train for one stage; the exit code. What was done is kept, whatever happens."""
        with self._ended():
            self._ready.checks()
            if self._ready.first is not None:
                raise self._ready.first
            with self._alone():
                return self._trained()

    def _trained(self) -> int:
        if not self._agreed():
            print_notice("nothing was trained")
            return 0
        try:
            over = self._train()
        except KeyboardInterrupt:
            print_notice("stopped; the same command goes on, and asks nothing twice")
            return INTERRUPTED
        if not over:
            print_line("the minutes are over and the course is not; run the same command again to go on")
            return NOT_OVER
        self._finish()
        return 0

    def _alone(self) -> AbstractContextManager[None]:
        """Of several processes that train one model the first keeps other trainings out for all of them."""
        from conductor_cli.train.checkpoints import exclusive_directory
        from conductor_cli.train.distributed import is_first

        return exclusive_directory(self.order.out) if is_first() else nullcontext()

    @contextmanager
    def _ended(self) -> Iterator[None]:
        """Close at the end what was opened meanwhile."""
        try:
            yield
        finally:
            if self._ready.opened is not None:
                self._runner.run(self._ready.opened.close())
            self._runner.close()

    def _agreed(self) -> bool:
        """Have a yes where it may cost money. Of several processes none can ask: the others would wait for hours."""
        from conductor_cli.train.distributed import is_first, process_count

        found, order = self._ready.quote(), self.order
        if self._ready.is_free() or not found.runs:
            return True
        if process_count() > 1 and not order.yes:
            said = f"{process_count()} processes train, and none of them can ask whether the training may cost money"
            raise UsageError(said, hint="look at the estimate (--dry-run), then add --yes")
        return not is_first() or confirm_cost(found.lines(), "the training", yes=order.yes, quiet=order.quiet)

    def _train(self) -> bool:
        """One stage; whether the course is over."""
        from conductor_cli.train.distributed import is_first
        from conductor_cli.train.session import TrainingSession, open_rollouts, run_session

        order, ready, opened = self.order, self._ready, self._ready.opened
        assert opened is not None
        conductor = replace(opened.conductor, pool=ready.pool())
        with open_rollouts(order.out, order.recipe, conductor, order.max_cost) as rollouts:
            stage = TrainingSession(
                base=ready.base(), tasks=ready.tasks(), rollouts=rollouts, prompt=ready.prompt, directory=order.out,
                seconds=math.inf if order.minutes is None else 60 * order.minutes,
                say=print_line if is_first() else _silent, ending=self._runner.run,
            )  # fmt: skip
            return run_session(stage)

    def _finish(self) -> None:
        """Say where the conductor is, and write its file where one is wanted."""
        from conductor_cli.train.checkpoints import last_checkpoint
        from conductor_cli.train.distributed import is_first

        order, recipe = self.order, self.order.recipe
        if not is_first():
            return
        print_line(f"the course is over: {last_checkpoint(order.out)}")
        if not order.export:
            return
        from conductor_cli.train.session import export_result

        path = export_result(order.out, self._ready.base(), recipe, merged=order.merged).absolute()
        print_line(f"written: {path}")
        adapter = recipe.lora is not None and not order.merged
        take = f"conductor model import {path} --base NAME|FILE" if adapter else f"conductor model use {path}"
        print_line(f"to let it plan: {take}")
        if recipe.profile != "prompted":
            print_line(f"                conductor config set conductor.profile {recipe.profile}")


def _silent(line: str) -> None:
    """Another process says it."""


def report(checks: Sequence[Check], *, json: bool) -> int:
    """Tell what was found; the exit code of the first thing that is wrong, else 0."""
    if json:
        print_json({"ok": not any(check.code for check in checks), "checks": [check.data() for check in checks]})
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            print_line(f"{check.state:8} {check.name:{width}}  {check.found}")
            if check.hint:
                print_line(f"{'':8} {'':{width}}  {check.hint}")
    return next((check.code for check in checks if check.code), 0)

"""One evaluation from the command line: its cases, its systems over opened models, the runs, and what came of them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from conductor_cli import __version__
from conductor_cli.app import rehearsal
from conductor_cli.app.evaluation_list import evaluations_directory, remaining_today, stored_evaluations
from conductor_cli.app.opened_conductor import OpenedConductor, open_conductor
from conductor_cli.cli.cost_prompt import confirm_cost
from conductor_cli.cli.eval.following import Count, following
from conductor_cli.cli.output import print_error, print_notice
from conductor_cli.core.errors import ConductorError, ConductorUnusable, Failure, KeyMissing, UsageError
from conductor_cli.evals import cost
from conductor_cli.evals.cost import Budget
from conductor_cli.evals.runner import evaluate
from conductor_cli.evals.storage import Evaluation, EvaluationSpec, spec_differences
from conductor_cli.evals.systems import System, select_systems
from conductor_cli.evals.systems import remarks as ranking

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.evals.cases import Case
    from conductor_cli.evals.outcomes import Outcome

LIMIT: Final = 6
INTERRUPTED: Final = 130
TERMINATED: Final = 143


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be evaluated: `source` names the set, `systems` as on the command line, `workers` those to be used.

    `begun`: an evaluation to go on with. `yes`: it may cost money. `max_cost` is in US dollars, for all of it. `go_on`
    tells a person how, with the evaluation's id.
    """

    source: str
    cases: tuple[Case, ...]
    systems: str | Sequence[str] = "all"
    workers: tuple[str, ...] = ()
    seed: int = 0
    parallel: int = 8
    begun: Evaluation | None = None
    yes: bool = False
    max_cost: Decimal | None = None
    quiet: bool = False
    rehearsal: bool = False
    go_on: str = "conductor eval --resume {id}"


class Evaluating:
    """The way of one order. `evaluation` is what is kept of it."""

    def __init__(self, order: Order, settings: Settings) -> None:
        self.order = order
        self.settings = settings
        self.evaluation: Evaluation | None = None
        self._count = Count(0, 0)
        self._raise = "{how} --max-cost MORE"

    def run(self) -> int:
        """Do all that is to be done; the exit code. What was finished is kept, whatever happens."""
        try:
            return asyncio.run(self._run())
        except KeyboardInterrupt:
            return self._stopped("stopped", INTERRUPTED)
        except asyncio.CancelledError:
            return self._stopped("terminated", TERMINATED)

    def _stopped(self, how: str, code: int) -> int:
        if self.evaluation is not None:
            print_notice(f"{how}: {self._count.done:,} of {self._count.total:,} runs are kept")
            print_notice(f"  go on: {self._how()}")
        return code

    def _how(self) -> str:
        assert self.evaluation is not None
        return self.order.go_on.format(id=self.evaluation.directory.name)

    async def _run(self) -> int:
        if self.order.begun is not None and self.order.begun.is_finished():
            self.evaluation = self.order.begun
            return 0
        opened, unusable = await self._open()
        try:
            found = self._systems(opened, unusable)
            systems = tuple(system for system in found if not system.missing)
            spec = self._spec(opened, systems, self._remarks(opened, found, unusable))
            begun = self._begun(spec)
            self._prepare(begun, spec)
            budget = self._budget(begun, systems, opened)
            if budget.reached:
                self.evaluation = begun
                return self._limited(budget)
            if not self._wanted(begun, systems, opened):
                print_notice("nothing was asked")
                return 0
            self.evaluation = begun or self._begin(spec)
            return await self._drive(self.evaluation, systems, opened, budget)
        finally:
            await opened.close()

    # Models

    async def _open(self) -> tuple[OpenedConductor, ConductorError | None]:
        """The models, and why there is no conductor among them."""
        if not self._plans():
            return await self._open_all(planning=False), None
        try:
            return await self._open_all(planning=True), None
        except (ConductorUnusable, KeyMissing) as error:
            return await self._open_all(planning=False), error

    def _plans(self) -> bool:
        """Whether the conductor model is wanted."""
        given = self.order.systems
        names = [name.strip() for name in (given.split(",") if isinstance(given, str) else given)]
        return any(name == "all" or name.startswith("conductor") for name in names)

    async def _open_all(self, *, planning: bool) -> OpenedConductor:
        order = self.order
        return await open_conductor(
            self.settings, only=order.workers, planning=planning, seed=order.seed, rehearsal=order.rehearsal,
            day_limits=False,
        )  # fmt: skip

    # What is to be done

    def _systems(self, opened: OpenedConductor, unusable: ConductorError | None) -> tuple[System, ...]:
        """Those that are asked for. Raises where none of them can run."""
        keywords = rehearsal.skill_keywords() if self.order.rehearsal else None
        found = select_systems(self.order.systems, opened.conductor, cases=self.order.cases, keywords=keywords)
        if all(system.missing for system in found):
            if unusable is not None and all(system.plan is None for system in found):
                raise unusable
            raise UsageError(f"none of these systems can run: {found[0].name}: {found[0].missing}")
        return found

    def _remarks(
        self, opened: OpenedConductor, systems: Sequence[System], unusable: ConductorError | None
    ) -> tuple[str, ...]:
        """What a reader must know: which systems are left out and why, and how workers were ranked."""
        reasons = dict[str, list[str]]()
        for system in systems:
            if system.missing:
                why = _told(unusable) if unusable is not None and system.plan is None else system.missing
                reasons.setdefault(why, []).append(system.name)
        without = (f"left out: {', '.join(names)}: {why}" for why, names in reasons.items())
        damaged = [] if self.order.rehearsal else [self.settings.cards.problem]
        return (*without, *ranking(opened.conductor), *filter(None, damaged))

    def _best(self, opened: OpenedConductor, systems: Sequence[System]) -> str:
        """The system of the worker that the cards call best; empty where no card says anything."""
        from conductor_cli.core.plan import SELF
        from conductor_cli.evals.routing import best_of

        there = [
            item for item in opened.conductor.pool if item.kind != SELF and item.name not in opened.conductor.absent
        ]
        if not any(worker.card.strengths for worker in there):
            return ""
        names = [system.name for system in systems]
        return next((name for name in (f"alone:{best_of(there).name}", "best-worker") if name in names), "")

    def _spec(self, opened: OpenedConductor, systems: Sequence[System], remarks: tuple[str, ...]) -> EvaluationSpec:
        from conductor_cli.evals.cases import hash_cases
        from conductor_cli.models.response_cache import model_identity

        conductor, planner = opened.conductor, opened.planner
        return EvaluationSpec(
            cases=self.order.source, digest=hash_cases(self.order.cases), count=len(self.order.cases),
            systems=tuple(system.name for system in systems), runs=_runs(systems, self.order.cases),
            planning=tuple(system.name for system in systems if system.plan is None), seed=self.order.seed,
            pool=conductor.pool, who={worker.name: model_identity(worker) for worker in conductor.pool},
            planner=model_identity(planner) if planner is not None else "",
            conductor=conductor.name if planner is not None else "",
            profile=conductor.profile.name if planner is not None else "",
            limits=conductor.limits, patience=conductor.patience, rehearsal=self.order.rehearsal,
            by_card=self._best(opened, systems), remarks=remarks, version=__version__,
            time=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        )  # fmt: skip

    def _begin(self, spec: EvaluationSpec) -> Evaluation:
        from conductor_cli.run.conductor import new_run_id

        return Evaluation.create(
            evaluations_directory(self.settings) / new_run_id(datetime.now(UTC)), spec, self.order.cases
        )

    def _begun(self, spec: EvaluationSpec) -> Evaluation | None:
        """The evaluation to go on with: the one that is named, else the newest of the same that was cut off."""
        named = self.order.begun
        if named is not None:
            differs = spec_differences(named.spec, spec)
            if differs:
                said = f"{named.directory.name} was begun with other {', '.join(differs)}"
                raise UsageError(said, hint="begin a new one with the same command as then")
            return named
        same = next(
            (found for found in stored_evaluations(self.settings) if not spec_differences(found.spec, spec)), None
        )
        return same if same is not None and len(same.outcomes()) < spec.runs else None

    def _done(self, begun: Evaluation | None) -> list[Outcome]:
        """What is not done again."""
        retry = self.order.begun is not None
        outcomes = begun.outcomes() if begun is not None else ()
        return [outcome for outcome in outcomes if outcome.verdict != "failed" or not retry]

    def _prepare(self, begun: Evaluation | None, spec: EvaluationSpec) -> None:
        done = len(self._done(begun))
        self._count = Count(done, spec.runs)
        if begun is not None and not self.order.quiet:
            print_notice(f"going on with {begun.directory.name}: {done:,} of {self._count.total:,} runs are done")

    def _budget(self, begun: Evaluation | None, systems: Sequence[System], opened: OpenedConductor) -> Budget:
        """What may be spent: a run costs as much as one did before, else what it is estimated to cost at least."""
        spent = begun.spent() if begun is not None else Decimal(0)
        limit = self.order.max_cost
        left = None if self.order.rehearsal else remaining_today(self.settings)
        if left is not None and (limit is None or spent + left < limit):
            limit, self._raise = spent + left, "the day ends at midnight; then go on: {how}"
        if limit is None:
            return Budget()
        cost.check_prices_known(opened.conductor, systems)
        costs = [outcome.usage.cost or Decimal(0) for outcome in (begun.outcomes() if begun is not None else ())]
        return Budget(limit, spent=spent, expected=max(costs, default=self._quote(begun, systems, opened).each))

    def _wanted(self, begun: Evaluation | None, systems: Sequence[System], opened: OpenedConductor) -> bool:
        if cost.is_free(opened.conductor, systems) or self._count.done >= self._count.total:
            return True
        found = self._quote(begun, systems, opened)
        return confirm_cost(found, "the evaluation", yes=self.order.yes, quiet=self.order.quiet)

    def _quote(self, begun: Evaluation | None, systems: Sequence[System], opened: OpenedConductor) -> cost.CostEstimate:
        outcomes = self._done(begun)
        done = {
            system.name: frozenset(outcome.case for outcome in outcomes if outcome.system == system.name)
            for system in systems
        }
        return cost.quote(systems, self.order.cases, opened.conductor, done)

    # The runs

    async def _drive(
        self, evaluation: Evaluation, systems: Sequence[System], opened: OpenedConductor, budget: Budget
    ) -> int:
        outcomes = evaluate(
            evaluation, systems, opened.conductor, parallel=self.order.parallel, budget=budget,
            retry=self.order.begun is not None,
        )  # fmt: skip
        with following(self.settings, self._count, quiet=self.order.quiet) as follow, _terminable():
            async with aclosing(outcomes):
                async for outcome in outcomes:
                    follow(outcome)
        return self._limited(budget) if self._count.done < self._count.total else 0

    def _limited(self, budget: Budget) -> int:
        from conductor_cli.evals.table import dollars

        done = f"{self._count.done:,} of {self._count.total:,} runs took {dollars(budget.spent)}"
        said = f"the limit of ${budget.limit} is reached: {done}"
        print_error(Failure(kind="limit", message=said, hint=self._raise.format(how=self._how())))
        return LIMIT


def _told(unusable: ConductorError) -> str:
    return f"{unusable.message}; {unusable.hint}" if unusable.hint else unusable.message


def _runs(systems: Sequence[System], cases: Sequence[Case]) -> int:
    """How many runs there are in all: a system may leave a case out."""
    return sum(cost.plan_for(system, case) is not None for system in systems for case in cases)


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does: tasks are cancelled, and what is finished is kept."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    with suppress(NotImplementedError, RuntimeError, ValueError):  # Windows, or not the main thread
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        yield
    finally:
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.remove_signal_handler(signal.SIGTERM)

"""What an evaluation, or a question, will probably cost."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from conductor_cli.core.errors import PolicyError
from conductor_cli.core.estimate import PlanEstimate, PlannerCost, estimate_plan, estimate_planning
from conductor_cli.core.formatting import format_money
from conductor_cli.core.plan import SELF, Plan, Step
from conductor_cli.core.pool import Pool
from conductor_cli.core.profile import WorkerProfile
from conductor_cli.core.question import Question
from conductor_cli.core.usage import CHARS_PER_TOKEN, Price
from conductor_cli.evals.cases import Case
from conductor_cli.evals.judge import Judge, judge_prompt
from conductor_cli.evals.outcomes import RunKey
from conductor_cli.evals.systems import RunSetup, System, direct_plan
from conductor_cli.run import Orchestra

# How many cases of a system are estimated one by one; the rest is assumed to be like them
SAMPLE_CASES: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class CostEstimate:
    """What is still to be done: the least and the most it may take.

    `unknown` names the models without a price.
    """

    runs: int
    low: PlanEstimate
    high: PlanEstimate
    unknown: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Two lines for the user. Retries and repaired plans come on top, hence "about"."""
        calls = _format_range(f"{self.low.calls:,}", f"{self.high.calls:,}")
        tokens = _format_range(f"{self.low.tokens[0]:,}", f"{self.high.tokens[1]:,}")
        low = self.low.cost[0]
        high = self.high.cost[1]
        cost = format_money(low)
        if low != high:
            cost = f"{cost} to {format_money(high)}"
        usual = (self.low.usual_cost + self.high.usual_cost) / 2
        if low != high and usual:
            cost = f"usually about {format_money(usual)}, from {cost}"
        if self.high.unpriced:
            sum_of_others = "unknown"
            if high:
                sum_of_others = f"{cost}, and more"
            cost = f"{sum_of_others}: no price is known for {', '.join(self.unknown)}"
        return [
            f"{self.runs:,} runs: about {calls} calls, {tokens} tokens",
            f"estimated cost: {cost}",
        ]


def _format_range(least: str, most: str) -> str:
    if least == most:
        return least
    return f"{least} to {most}"


def estimate_cost(  # noqa: PLR0913 - all of it decides the cost
    systems: Sequence[System],
    cases: Sequence[Case],
    orchestra: Orchestra,
    done: Collection[RunKey],
    *,
    repeat: int = 1,
    judge: Judge | None = None,
) -> CostEstimate:
    """The sum over all systems, of which each runs every case `repeat` times.

    `done` are the runs that have ended.

    `judge` judges each answer, which is assumed to be as long as the question.
    """
    runs = 0
    low = PlanEstimate()
    high = PlanEstimate()
    for system in systems:
        left: list[Case] = []
        for draw in range(repeat):
            left += [case for case in cases if (system.name, case.id, draw) not in done]
        configured = system.configure(RunSetup.of(orchestra))
        # A set may have thousands of cases, and each estimate builds the prompts of a plan.
        sample = [_estimate_case(system, case, configured) for case in left[:SAMPLE_CASES]]
        if judge is not None:
            questions = (
                Question(text=judge_prompt(case, case.question)) for case in left[:SAMPLE_CASES]
            )
            pool = judge.setup.team.pool
            profile = judge.setup.team.worker_profile
            judged = []
            for question in questions:
                judged.append(estimate_plan(question, direct_plan(judge.worker), pool, profile))
            sample = [
                (low + its, high + its) for (low, high), its in zip(sample, judged, strict=True)
            ]
        least, most = scale_ranges(sample, len(left))
        runs = runs + len(left)
        low = low + least
        high = high + most
    unknown = unpriced_models(
        orchestra, planned=any(system.plan is None for system in systems), judge=judge
    )
    return CostEstimate(runs=runs, low=low, high=high, unknown=unknown)


def scale_ranges(
    sample: Sequence[tuple[PlanEstimate, PlanEstimate]], runs: int
) -> tuple[PlanEstimate, PlanEstimate]:
    """The least and the most of so many runs, if all are like those of the sample."""
    factor = 0.0
    if sample:
        factor = runs / len(sample)

    def scaled(estimates: Iterable[PlanEstimate]) -> PlanEstimate:
        total = sum(estimates, PlanEstimate())
        (low, high) = total.tokens
        (least, most) = total.cost
        return PlanEstimate(
            calls=round(total.calls * factor),
            tokens=(round(low * factor), round(high * factor)),
            cost=(least * Decimal(factor), most * Decimal(factor)),
            usual_tokens=round(total.usual_tokens * factor),
            usual_cost=total.usual_cost * Decimal(factor),
            unpriced=round(total.unpriced * factor),
        )

    return scaled(least for least, _ in sample), scaled(most for _, most in sample)


def estimate_most(question: Question, orchestra: Orchestra) -> Decimal:
    """Return the US dollars that a question costs at most, but for retries and repaired plans."""
    system = System(name="", configure=lambda it: it)
    case = Case(id="1", question=question.text, answer="")
    _, most = _estimate_case(system, case, RunSetup.of(orchestra))
    return most.cost[1]


def _estimate_case(
    system: System, case: Case, setup: RunSetup
) -> tuple[PlanEstimate, PlanEstimate]:
    team = setup.team
    limits = setup.limits
    question = Question(text=case.question)
    profile = team.worker_profile
    if system.plan is not None:
        estimate = estimate_plan(question, system.plan(case), team.pool, profile)
        return estimate, estimate

    # The least is one step of the cheapest worker, the most all steps of the most expensive one.
    most = 1
    if team.mode != "mini":
        most = team.rules(limits, given=False, depth_left=0).steps * (1 + limits.recursion)
    names = [worker.name for worker in team.pool if worker.kind != SELF]
    low, high = chain_estimates(question, names, most, team.pool, profile)
    assert team.model is not None, "a system without a fixed plan has a planner"
    read = int(
        sum(len(message.content) for message in team.planning_request(question, limits).messages)
        / CHARS_PER_TOKEN
    )
    planner = PlannerCost(read=read, price=team.price)
    return low + estimate_planning(planner), high + estimate_planning(planner, 1 + limits.recursion)


def chain_estimates(
    question: Question, workers: Sequence[str], steps: int, pool: Pool, profile: WorkerProfile
) -> tuple[PlanEstimate, PlanEstimate]:
    """The cheapest and the dearest chain of steps.

    One step by the cheapest worker, and `steps` by the most expensive one, each of which sees all
    before it.
    """

    def chain(worker: str, length: int) -> PlanEstimate:
        plan = []
        for n in range(1, length + 1):
            plan.append(Step(worker=worker, subtask=question.text, access=tuple(range(1, n))))
        return estimate_plan(question, Plan(steps=tuple(plan)), pool, profile)

    # Workers without a price, or free ones, are told apart by their tokens.
    low = min((chain(worker, 1) for worker in workers), key=lambda it: (it.cost[0], it.tokens[0]))
    high = max(
        (chain(worker, steps) for worker in workers), key=lambda it: (it.cost[1], it.tokens[1])
    )
    return low, high


def _prices(orchestra: Orchestra, *, planned: bool, judge: Judge | None) -> dict[str, Price | None]:
    """The price of each model that may be called, planner and judge where they are.

    None where it is not known.
    """
    prices = {worker.name: worker.price for worker in orchestra.team.pool if worker.kind != SELF}
    if planned:
        prices[orchestra.team.name] = orchestra.team.price
    if judge is not None:
        prices[judge.worker.name] = judge.worker.price
    return prices


def has_no_cost(orchestra: Orchestra, *, planned: bool, judge: Judge | None = None) -> bool:
    """Return whether it is known that nothing costs anything."""
    prices = _prices(orchestra, planned=planned, judge=judge).values()
    return all(price is not None and not any(price.amounts()) for price in prices)


def unpriced_models(
    orchestra: Orchestra, *, planned: bool, judge: Judge | None = None
) -> tuple[str, ...]:
    """The names of the models without a known price."""
    unpriced = []
    for name, price in _prices(orchestra, planned=planned, judge=judge).items():
        if price is None:
            unpriced.append(name)
    return tuple(unpriced)


def check_priced(unpriced: Sequence[str], planner: str) -> None:
    """Raise `PolicyError` where models of these names have no price that a limit could count.

    A limit that ignores some of the calls would only seem to protect.
    """
    if not unpriced:
        return
    hint = (
        "add prices (conductor workers add … --set price=IN,OUT), or choose other workers: "
        "--workers"
    )
    if planner in unpriced:
        hint = (
            "add the model that plans as a worker with its price (conductor workers add … --set "
            "price=IN,OUT; 0,0 where it costs nothing) and plan with that: conductor model use NAME"
        )
    names = [f"{name}, which plans" if name == planner else name for name in unpriced]
    message = f"the cost limit cannot be enforced: no price is known for {', '.join(names)}"
    raise PolicyError(message, hint=hint)

"""What an evaluation, or a question, will probably cost."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, NamedTuple

from conductor_cli.core.errors import PolicyError
from conductor_cli.core.estimate import PlanEstimate, PlannerCost, estimate_plan, estimate_planning
from conductor_cli.core.formatting import format_money
from conductor_cli.core.plan import Plan, Step
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
USUAL_STEPS: Final = 2
"""Steps of a usual plan where too few runs of the user say: small planners make 1.6 to 2.5 in the
mean (docs/research/planner.md).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostEstimate:
    """What is still to be done: the least and the most it may take, and what is usual.

    `unknown` names the models without a price.
    """

    runs: int
    low: PlanEstimate
    usual: PlanEstimate
    high: PlanEstimate
    unknown: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return two lines for the user. Retries and repaired plans come on top, hence "about".

        What is usual follows from earlier replies, so it may be less than the least of a guess.
        """
        calls = _format_range(self.low.calls, self.usual.calls, self.high.calls)
        tokens = _format_range(self.low.tokens[0], self.usual.usual_tokens, self.high.tokens[1])
        usual = self.usual.usual_cost
        low = self.low.cost[0]
        high = max(self.high.cost[1], usual)
        if usual:
            low = min(low, usual)
        cost = format_money(low)
        if low != high:
            cost = f"{cost} to {format_money(high)}"
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


def _format_range(least: int, usual: int, most: int) -> str:
    if least == most == usual:
        return f"{least:,}"
    return f"{usual:,} ({min(least, usual):,} to {max(most, usual):,})"


class CaseEstimate(NamedTuple):
    """The least of a run, what is usual, and the most."""

    low: PlanEstimate
    usual: PlanEstimate
    high: PlanEstimate

    def add(self, other: PlanEstimate) -> CaseEstimate:
        """Return the same with another call in any case."""
        return CaseEstimate(self.low + other, self.usual + other, self.high + other)


def estimate_cost(  # noqa: PLR0913 - all of it decides the cost
    systems: Sequence[System],
    cases: Sequence[Case],
    orchestra: Orchestra,
    done: Collection[RunKey],
    *,
    repeat: int = 1,
    judge: Judge | None = None,
) -> CostEstimate:
    """Return the sum over all systems, of which each runs every case `repeat` times.

    `done` are the runs that have ended.

    `judge` judges each answer, which is assumed to be as long as the question.
    """
    runs = 0
    low = PlanEstimate()
    usual = PlanEstimate()
    high = PlanEstimate()
    for system in systems:
        left: list[Case] = []
        for draw in range(repeat):
            left += [case for case in cases if (system.name, case.id, draw) not in done]
        configured = system.configure(RunSetup.of(orchestra))
        # A set may have thousands of cases, and each estimate builds the prompts of a plan.
        sample = [_estimate_case(system, case, configured) for case in left[:SAMPLE_CASES]]
        if judge is not None:
            questions = [
                Question(text=judge_prompt(case, case.question)) for case in left[:SAMPLE_CASES]
            ]
            sample = _with_judging(sample, questions, judge)
        scaled = scale_estimates(sample, len(left))
        runs = runs + len(left)
        low = low + scaled.low
        usual = usual + scaled.usual
        high = high + scaled.high
    planned = any(system.plan is None for system in systems)
    unknown = unpriced_models(orchestra, planned=planned, judge=judge)
    return CostEstimate(runs=runs, low=low, usual=usual, high=high, unknown=unknown)


def _with_judging(
    sample: Iterable[CaseEstimate], questions: Iterable[Question], judge: Judge
) -> list[CaseEstimate]:
    """Return the estimates of cases, each with what a judge is asked about it."""
    team = judge.setup.team
    plan = direct_plan(judge.worker)
    judged = []
    for case, question in zip(sample, questions, strict=True):
        judged.append(case.add(estimate_plan(question, plan, team.pool, team.worker_profile)))
    return judged


def scale_estimates(sample: Sequence[CaseEstimate], runs: int) -> CaseEstimate:
    """Return the estimates of so many runs, if all are like those of the sample."""
    factor = 0.0
    if sample:
        factor = runs / len(sample)

    return CaseEstimate(
        low=_scale(sum((case.low for case in sample), PlanEstimate()), factor),
        usual=_scale(sum((case.usual for case in sample), PlanEstimate()), factor),
        high=_scale(sum((case.high for case in sample), PlanEstimate()), factor),
    )


def _scale(estimate: PlanEstimate, factor: float) -> PlanEstimate:
    (low, high) = estimate.tokens
    (least, most) = estimate.cost
    return PlanEstimate(
        calls=round(estimate.calls * factor),
        tokens=(round(low * factor), round(high * factor)),
        cost=(least * Decimal(factor), most * Decimal(factor)),
        usual_tokens=round(estimate.usual_tokens * factor),
        usual_cost=estimate.usual_cost * Decimal(factor),
        unpriced=round(estimate.unpriced * factor),
    )


def estimate_most(question: Question, orchestra: Orchestra) -> Decimal:
    """Return the US dollars that a question costs at most, but for retries and repaired plans.

    Without a planner one worker answers it in one call.
    """
    team = orchestra.team
    if team.model is None:
        names = team.pool.without_self().names
        calls = chain_estimates(question, names, (1, 1, 1), team.pool, team.worker_profile)
        return calls.high.cost[1]
    system = System(name="", configure=lambda setup: setup)
    case = Case(id="1", question=question.text, answer="")
    return _estimate_case(system, case, RunSetup.of(orchestra)).high.cost[1]


def _estimate_case(system: System, case: Case, setup: RunSetup) -> CaseEstimate:
    team = setup.team
    limits = setup.limits
    question = Question(text=case.question)
    profile = team.worker_profile
    if system.plan is not None:
        estimate = estimate_plan(question, system.plan(case), team.pool, profile)
        return CaseEstimate(estimate, estimate, estimate)

    # The least is one step of the cheapest worker, the most all steps of the most expensive one.
    most = 1
    usual = 1
    if team.mode != "mini":
        steps = team.rules(limits, given=False, depth_left=0).steps
        most = steps * (1 + limits.recursion)
        usual = min(steps, team.usual_steps() or USUAL_STEPS)
    names = team.pool.without_self().names
    chains = chain_estimates(question, names, (1, usual, most), team.pool, profile)
    assert team.model is not None, "a system without a fixed plan has a planner"
    read = int(
        sum(len(message.content) for message in team.planning_request(question, limits).messages)
        / CHARS_PER_TOKEN
    )
    planner = PlannerCost(read=read, price=team.price)
    return CaseEstimate(
        low=chains.low + estimate_planning(planner),
        usual=chains.usual + estimate_planning(planner),
        high=chains.high + estimate_planning(planner, 1 + limits.recursion),
    )


def chain_estimates(
    question: Question,
    workers: Sequence[str],
    lengths: tuple[int, int, int],
    pool: Pool,
    profile: WorkerProfile,
) -> CaseEstimate:
    """Return the cheapest chain of steps, the mean one of all workers, and the dearest.

    `lengths` are their steps. Each step sees all before it.
    """
    least, usual, most = lengths

    def chain(worker: str, length: int) -> PlanEstimate:
        plan = []
        for n in range(1, length + 1):
            plan.append(Step(worker=worker, subtask=question.text, access=tuple(range(1, n))))
        return estimate_plan(question, Plan(steps=tuple(plan)), pool, profile)

    # Workers without a price, or free ones, are told apart by their tokens.
    low = min(
        (chain(worker, least) for worker in workers),
        key=lambda estimate: (estimate.cost[0], estimate.tokens[0]),
    )
    high = max(
        (chain(worker, most) for worker in workers),
        key=lambda estimate: (estimate.cost[1], estimate.tokens[1]),
    )
    of_all = sum((chain(worker, usual) for worker in workers), PlanEstimate())
    return CaseEstimate(low=low, usual=_scale(of_all, 1 / len(workers)), high=high)


def _prices(orchestra: Orchestra, *, planned: bool, judge: Judge | None) -> dict[str, Price | None]:
    """Return the price of each model that may be called, planner and judge where they are.

    None where it is not known.
    """
    workers = orchestra.team.pool.without_self()
    prices = {worker.name: worker.price for worker in workers}
    if planned:
        prices[orchestra.team.name] = orchestra.team.price
    if judge is not None:
        prices[judge.worker.name] = judge.worker.price
    return prices


def has_no_cost(orchestra: Orchestra, *, planned: bool, judge: Judge | None = None) -> bool:
    """Return whether it is known that nothing costs anything."""
    prices = _prices(orchestra, planned=planned, judge=judge).values()
    return all(price is not None and price.is_free for price in prices)


def unpriced_models(
    orchestra: Orchestra, *, planned: bool, judge: Judge | None = None
) -> tuple[str, ...]:
    """Return the names of the models without a known price."""
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
    names = list(unpriced)
    if planner in unpriced:
        names[names.index(planner)] = f"{planner}, which plans"
    message = f"the cost limit cannot be enforced: no price is known for {', '.join(names)}"
    raise PolicyError(message, hint=hint)

"""What the outcomes say about each system: accuracy, what a question costs, who is better. Pure.

Failed outcomes are counted apart and are in no share and no mean, because they say nothing about
the system. Two systems are compared only on the runs that were judged for both; each comparison
also says what it would be if what failed counted as wrong. Where each case is run several times,
the answers to a case are a cluster for the intervals and the p-values.

The best single worker is one in hindsight: compared on the cases that chose it, it would be
flattered by 8 to 16 points with twelve cases. So it is chosen by cross-fitting: for each half of
the cases, by the other half (M. Stone, J. R. Stat. Soc. B 36 (1974) 111). More parts would share
more of the cases that choose, and so go together: where all ways are equally good, the exact test
at 5 % is wrong in up to 4.8 % with halves, in 7.4 % with fifths.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import chain
from statistics import fmean, stdev
from types import MappingProxyType
from typing import Final, NamedTuple
from zlib import crc32

from conductor_cli.core.usage import NO_USAGE, Usage, total_usage
from conductor_cli.evals.outcomes import CaseOutcome
from conductor_cli.evals.score import UNSCORED
from conductor_cli.evals.significance import (
    SIGNIFICANT,
    Interval,
    effective_size,
    holm_corrected,
    newcombe_interval,
    paired_p,
    wilson_interval,
)
from conductor_cli.evals.systems import ALONE, BEST_WORKER

NEAR_BEST: Final = 0.1
"""The p-value against the worker that did best on all cases from which a way is not above it.

Where one worker is the best, half of the cases often choose another, and a way that is as good as
the best one is above that: without this rule it was called better in up to 8 % of trials.
"""


@dataclass(frozen=True, slots=True)
class ProvedDifference:
    """Whether a difference to the best single worker is one, by the one rule for all commands.

    `p` is exact and corrected (Holm) for the `comparisons` that were made. `is_real`: it is below
    `SIGNIFICANT`, and not `is_near_best`: above the worker that other cases chose, but hardly above
    the one that did best on all. `turns`: it would not be, or be one the other way round, if runs
    that failed counted as wrong; then nothing may be said.
    """

    difference: float
    p: float
    comparisons: int
    is_real: bool
    turns: bool
    is_near_best: bool = False

    @property
    def is_better(self) -> bool:
        return self.is_real and not self.turns and self.difference > 0

    @property
    def is_worse(self) -> bool:
        return self.is_real and not self.turns and self.difference < 0


def prove_differences(
    compared: Mapping[str, Comparison], *, pairs: int = 0
) -> dict[str, ProvedDifference]:
    """Return by the name of each system whether its difference is proved.

    `pairs` is the number of comparisons among which these are the largest, where it is more.
    """
    untested = [1.0] * max(0, pairs - len(compared))
    comparisons = compared.values()
    corrected = holm_corrected([*(comparison.p for comparison in comparisons), *untested])
    counted = holm_corrected([*(comparison.p_counted for comparison in comparisons), *untested])
    proved = {}
    for (name, comparison), p, p_counted in zip(compared.items(), corrected, counted, strict=False):
        is_near_best = comparison.difference > 0 and comparison.p_best >= NEAR_BEST
        is_real = p < SIGNIFICANT and not is_near_best
        is_same_way = comparison.difference * comparison.difference_counted > 0
        proved[name] = ProvedDifference(
            difference=comparison.difference,
            p=p,
            comparisons=len(corrected),
            is_real=is_real,
            turns=is_real and not (is_same_way and p_counted < SIGNIFICANT),
            is_near_best=p < SIGNIFICANT and is_near_best,
        )
    return proved


def round_up(number: int) -> int:
    """Return a number to two digits, never less than it: 147 as 150."""
    unit: int = 10 ** max(0, len(str(number)) - 2)
    return -(-number // unit) * unit


MIN_JUDGED_SHARE: Final = 0.5
"""The share of all cases that must be judged for a worker before others are compared with it. A
worker that hardly ever answered would leave almost no case for the comparison.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareEstimate:
    """`right` of `n` answers to `cases`, as a share with its 95 % interval.

    Both are None without a case.
    """

    right: int
    n: int
    cases: int
    accuracy: float | None
    interval: Interval | None

    @classmethod
    def of(cls, marks: Iterable[tuple[str, bool]]) -> ShareEstimate:
        """Return the share of the answers that are right.

        A mark is the id of a case, and whether an answer to it is.
        """
        by_case: dict[str, list[bool]] = defaultdict(list)
        for case, good in marks:
            by_case[case].append(good)
        answers = [*by_case.values()]
        right = sum(map(sum, answers))
        n = sum(map(len, answers))
        if not n:
            return ShareEstimate(right=0, n=0, cases=0, accuracy=None, interval=None)
        interval = wilson_interval(right, n, effective_size(answers))
        return ShareEstimate(
            right=right, n=n, cases=len(answers), accuracy=right / n, interval=interval
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A system compared with the `other`.

    There are `n` pairs of runs, on the `cases` that were judged for both.

    `only_this` and `only_other` count the runs that only one of the two got right. `difference` is
    the accuracy of this one minus that of the other, `p` the two-sided p-value. `unequal` is what
    `cases_needed` needs. `p_best` is the p-value against the worker that did best on all cases, 1
    where this one is not above it; 0 where there is no other. `difference_counted` and `p_counted`
    are what they would be if runs that failed counted as wrong.
    """

    other: str
    cases: int
    n: int
    only_this: int
    only_other: int
    difference: float
    interval: Interval
    p: float
    unequal: float
    difference_counted: float = 0.0
    p_counted: float = 1.0
    p_best: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemResult:
    """The figures of one system, as the report has them; docs/eval.md describes each.

    Tokens, calls, cost (in US dollars) and seconds are means over the judged runs, None without
    one. `unpriced` counts their calls without a known price. `total` is what all runs used,
    including failed ones. `valid_plans` is None unless a model plans. `between_draws` is the
    standard deviation of the accuracy from one draw of all cases to another, None unless there are
    several. `versus_best` is None for the best single worker itself. `faults` counts the runs in
    which a step failed by the system's own doing, by the reason, and `cut_off` the answers that
    reached a token limit.
    """

    name: str
    accuracy: ShareEstimate
    between_draws: float | None
    failed: int
    tags: Mapping[str, ShareEstimate]
    valid_plans: ShareEstimate | None
    tokens: float | None
    tokens_in: float | None
    tokens_out: float | None
    tokens_conductor: float | None
    calls: float | None
    cost: Decimal | None
    unpriced: int
    seconds: float | None
    total: Usage
    versus_best: Comparison | None = None
    faults: Mapping[str, int] = field(default_factory=dict)
    cut_off: int = 0


MAX_REASONS: Final = 10  # Of each kind that are told, the most frequent ones
_NO_MODULE: Final = re.compile(r"No module named '([\w.]+)'")


class Summary(NamedTuple):
    """All systems on the same cases, and the name of the best single worker's.

    Empty if there is none.

    `baseline` is the share that is right of the worker that the other cases chose for each case,
    which systems are compared with. `judging` is what a judge used; of the `compared` answers that
    a rule scored, it agreed with the rule on `agreed`, and `agreement` is that share with its
    interval, for which the answers to one case are alike. `unscored` counts answers that could not
    be scored, by the reason, and `missing_modules` programs that are wrong because the Python of
    the sandbox does not have a module.
    """

    systems: tuple[SystemResult, ...]
    best_worker: str
    judging: Usage = NO_USAGE
    agreed: int = 0
    compared: int = 0
    unscored: Mapping[str, int] = MappingProxyType({})
    missing_modules: Mapping[str, int] = MappingProxyType({})
    baseline: ShareEstimate | None = None
    agreement: ShareEstimate | None = None

    def result(self, name: str) -> SystemResult | None:
        """Return the figures of a system; None where it was not run."""
        for system in self.systems:
            if system.name == name:
                return system
        return None


FOLDS: Final = 2  # Parts of the cases; the worker of each is chosen by the others


def summarize(outcomes: Iterable[CaseOutcome], systems: Sequence[str]) -> Summary:
    """Count the outcomes of each of `systems`, in their order."""
    runs = [outcome for outcome in outcomes if outcome.system in systems]
    by_system: dict[str, list[CaseOutcome]] = {name: [] for name in systems}
    right: dict[str, dict[str, dict[int, bool]]] = {name: defaultdict(dict) for name in systems}
    counted: dict[str, dict[str, dict[int, bool]]] = {name: defaultdict(dict) for name in systems}
    for run in runs:
        by_system[run.system].append(run)
        counted[run.system][run.case][run.draw] = run.right
        if run.verdict != "failed":
            right[run.system][run.case][run.draw] = run.right
    cases = [*dict.fromkeys(run.case for run in runs)]
    best = _best_single_worker(right, cases)
    chosen = _cross_fitted_workers(right, cases)
    baseline = _answers_of_chosen(right, chosen)
    results = []
    for name, outcomes_of_system in by_system.items():
        result = _summarize_system(name, outcomes_of_system)
        versus_best = _versus_best(name, best, chosen, right, counted)
        results.append(replace(result, versus_best=versus_best))
    agreement = ShareEstimate.of(
        (run.case, run.confirmed) for run in runs if run.confirmed is not None
    )
    return Summary(
        tuple(results),
        best,
        judging=sum((run.judging for run in runs), NO_USAGE),
        agreed=agreement.right,
        compared=agreement.n,
        unscored=_unscored_reasons(runs),
        missing_modules=_missing_modules(runs),
        baseline=_share_of(baseline) if best else None,
        agreement=agreement if agreement.n else None,
    )


def _unscored_reasons(outcomes: Iterable[CaseOutcome]) -> dict[str, int]:
    """Return how many answers could not be scored, by the most frequent reasons."""
    reasons = Counter[str]()
    for outcome in outcomes:
        if outcome.error.startswith(UNSCORED):
            reasons[outcome.error] += 1
    return dict(reasons.most_common(MAX_REASONS))


def _missing_modules(outcomes: Iterable[CaseOutcome]) -> dict[str, int]:
    """Return how many programs are wrong for want of a module, by the most frequent modules."""
    modules = Counter[str]()
    for outcome in outcomes:
        missing = _NO_MODULE.search(outcome.scoring)
        if outcome.verdict == "wrong" and missing is not None:
            modules[missing[1]] += 1
    return dict(modules.most_common(MAX_REASONS))


def _summarize_system(name: str, outcomes: Sequence[CaseOutcome]) -> SystemResult:
    judged = [outcome for outcome in outcomes if outcome.verdict != "failed"]
    n = len(judged)
    usage = total_usage(judged)
    planning_tokens = 0
    draws: dict[int, list[bool]] = defaultdict(list)
    by_tag: dict[str, list[CaseOutcome]] = defaultdict(list)
    faults = Counter[str]()
    for outcome in judged:
        planning_tokens += outcome.planning.tokens
        draws[outcome.draw].append(outcome.right)
        for tag in dict.fromkeys(outcome.tags):
            by_tag[tag].append(outcome)
        if outcome.fault:
            faults[outcome.fault] += 1

    def mean(total: float) -> float | None:
        if not n:
            return None
        return total / n

    return SystemResult(
        name=name,
        accuracy=_share_right(judged),
        failed=len(outcomes) - n,
        between_draws=stdev(map(fmean, draws.values())) if len(draws) > 1 else None,
        tags={tag: _share_right(tagged) for tag, tagged in by_tag.items()},
        valid_plans=_share_valid(judged),
        tokens=mean(usage.tokens),
        tokens_in=mean(usage.tokens_in),
        tokens_out=mean(usage.tokens_out),
        tokens_conductor=mean(planning_tokens),
        calls=mean(usage.calls),
        cost=usage.cost / n if usage.cost is not None and n else None,
        unpriced=usage.unpriced,
        seconds=fmean(outcome.seconds for outcome in judged) if judged else None,
        total=total_usage(outcomes),
        faults=dict(faults),
        cut_off=sum(outcome.cut_off for outcome in judged),
    )


def _share_valid(outcomes: Iterable[CaseOutcome]) -> ShareEstimate | None:
    """Return the share of plans that were valid; None where a model planned nothing."""
    plans = [(outcome.case, outcome.valid) for outcome in outcomes if outcome.planned]
    if not plans:
        return None
    return ShareEstimate.of(plans)


# For each judged case, whether each of its draws was right
_ByCase = Mapping[str, Mapping[int, bool]]


def _share_right(outcomes: Iterable[CaseOutcome]) -> ShareEstimate:
    return ShareEstimate.of((outcome.case, outcome.right) for outcome in outcomes)


def _share_of(answers: _ByCase) -> ShareEstimate:
    marks = list[tuple[str, bool]]()
    for case, draws in answers.items():
        marks += [(case, good) for good in draws.values()]
    return ShareEstimate.of(marks)


def _versus_best(
    name: str,
    best: str,
    chosen: Mapping[str, str],
    right: Mapping[str, _ByCase],
    counted: Mapping[str, _ByCase],
) -> Comparison | None:
    """Return the comparison of a system with the best single worker; None for that worker itself.

    A way of using the workers is compared with the worker that the other cases chose, another
    single worker with the one that did best: `holm_corrected` then takes all pairs of them.
    """
    if name == best or not best:
        return None
    if _is_single(name):
        return _compare(best, right[name], right[best], counted[name], counted[best])
    baseline = _answers_of_chosen(right, chosen)
    baseline_counted = _answers_of_chosen(counted, chosen)
    comparison = _compare(best, right[name], baseline, counted[name], baseline_counted)
    if comparison is None:
        return None
    return replace(comparison, p_best=_p_above(right[name], right[best]))


def _p_above(ours: _ByCase, theirs: _ByCase) -> float:
    """Return the p-value of a difference; 1 where the first system is not above the second."""
    differences = list(map(sum, _differences(_common_pairs(ours, theirs))))
    if sum(differences) <= 0:
        return 1.0
    return paired_p(differences)


def _compare(
    other: str, ours: _ByCase, theirs: _ByCase, ours_counted: _ByCase, theirs_counted: _ByCase
) -> Comparison | None:
    """Return the comparison on the runs that were judged for both; None where there are none."""
    common = _common_pairs(ours, theirs)
    if not common:
        return None
    pairs = Counter(chain.from_iterable(common))
    both = pairs[True, True]
    only_this = pairs[True, False]
    only_other = pairs[False, True]
    differences = _differences(common)
    counted = _differences(_common_pairs(ours_counted, theirs_counted))
    sums_counted = list(map(sum, counted))
    return Comparison(
        other=other,
        cases=len(common),
        n=pairs.total(),
        only_this=only_this,
        only_other=only_other,
        difference=(only_this - only_other) / pairs.total(),
        interval=newcombe_interval(
            both, only_this, only_other, pairs[False, False], effective_size(differences)
        ),
        p=paired_p(list(map(sum, differences))),
        unequal=fmean(fmean(case) ** 2 for case in differences),
        difference_counted=sum(sums_counted) / sum(map(len, counted)),
        p_counted=paired_p(sums_counted),
    )


def _common_pairs(ours: _ByCase, theirs: _ByCase) -> list[list[tuple[bool, bool]]]:
    """Return for each case the answers of both by draw, where both have one."""
    common = []
    for case, draws in ours.items():
        others = theirs.get(case, {})
        pairs = [(mine, others[draw]) for draw, mine in draws.items() if draw in others]
        if pairs:
            common.append(pairs)
    return common


def _differences(common: Sequence[Sequence[tuple[bool, bool]]]) -> list[list[int]]:
    differences = []
    for case in common:
        differences.append([mine - its for mine, its in case])
    return differences


def _is_single(name: str) -> bool:
    return name.startswith(f"{ALONE}:")


def _candidates(right: Mapping[str, _ByCase], cases: int) -> list[str]:
    """Return the single workers that were judged on enough cases.

    If no worker ran alone, the best worker by card stands in for them.
    """
    singles = [name for name in right if _is_single(name)] or [BEST_WORKER]
    return [
        name for name in singles if len(right.get(name, ())) >= max(MIN_JUDGED_SHARE * cases, 1)
    ]


def _best_single_worker(right: Mapping[str, _ByCase], cases: Sequence[str]) -> str:
    """Return the single worker with the most right answers; empty if there is none."""
    return _best_of(_candidates(right, len(cases)), right, cases)


def _cross_fitted_workers(right: Mapping[str, _ByCase], cases: Sequence[str]) -> dict[str, str]:
    """Return for each case the worker that did best on the cases of the other folds.

    Cases are put into folds in turn, in an order that has nothing to do with that of their file,
    where kinds may alternate. A case alone has no others, and takes the best worker of all.
    """
    singles = _candidates(right, len(cases))
    if not singles:
        return {}
    mixed = sorted(cases, key=lambda case: (crc32(case.encode("utf-8", "replace")), case))
    chosen = {}
    for fold in range(FOLDS):
        inside = mixed[fold::FOLDS]
        outside = mixed.copy()
        del outside[fold::FOLDS]
        worker = _best_of(singles, right, outside or cases)
        chosen.update(dict.fromkeys(inside, worker))
    return chosen


def _answers_of_chosen(right: Mapping[str, _ByCase], chosen: Mapping[str, str]) -> _ByCase:
    """Return what the worker that was chosen for each case answered, where it was judged."""
    answers = {}
    for case, worker in chosen.items():
        if case in right[worker]:
            answers[case] = right[worker][case]
    return answers


def _best_of(singles: Sequence[str], right: Mapping[str, _ByCase], cases: Collection[str]) -> str:
    """Return the worker with the most right answers on those of the cases judged for all of them.

    Ties go to the worker with the most right answers on all of the cases, then to the first.
    """
    # A case that failed for one of them would favour the others.
    common = []
    for case in cases:
        if all(case in right[name] for name in singles):
            common.append(case)

    def count_right(name: str) -> tuple[float, float]:
        answers = right[name]
        of_common = sum(fmean(answers[case].values()) for case in common)
        of_all = sum(fmean(answers[case].values()) for case in cases if case in answers)
        return of_common, of_all

    return max(singles, key=count_right, default="")

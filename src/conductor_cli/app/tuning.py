"""`conductor tune`: proves which way of asking is the best on cases, of those that were learned.

Every worker answers every case alone, and the planner plans each, as in an evaluation: what was
answered before costs nothing again. One half of the cases teaches whom to ask (`router_head`) and
how to plan (`guide_search`). The other half proves that it helps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from conductor_cli.app.planner_resolution import open_model_store, resolve_planner
from conductor_cli.app.router_head import Array, fit_head
from conductor_cli.config.settings import Settings
from conductor_cli.core.errors import ConductorError, UsageError
from conductor_cli.core.formatting import UNKNOWN, format_cost_cell
from conductor_cli.core.profile import Guide
from conductor_cli.evals.cases import Case
from conductor_cli.evals.outcomes import CaseOutcome
from conductor_cli.evals.significance import SIGNIFICANT, mcnemar_p
from conductor_cli.evals.summary import Summary, SystemResult, prove_differences, summarize
from conductor_cli.evals.systems import ALONE
from conductor_cli.models.router import RouterFile

ROUTER: Final = "router"  # Names the way in tables, beside `alone:NAME`, PLAN and GUIDED
PLAN: Final = "conductor"
GUIDED: Final = "conductor-guided"
MIN_CASES: Final = 40
"""Fewer cases prove nothing: of twenty, six more right answers and none less are the least that may
be no chance.
"""

# Of a right answer, what the costs of the dearest worker weigh: they decide between equals
COST_WEIGHT: Final = 0.02


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was learned: the planners, how each way did on the proving cases, and which to take."""

    router: RouterFile
    summary: Summary
    best: str  # The worker that did best alone on the first half
    way: str  # `alone:NAME`, ROUTER, PLAN or GUIDED
    guided: Guide | None = None

    def result(self, name: str) -> SystemResult:
        result = self.summary.result(name)
        assert result is not None, f"{name} was not compared"
        return result

    @property
    def planner(self) -> RouterFile | Guide | None:
        """What the way needs a file of, which says what it rests on."""
        if self.way == ROUTER:
            return replace(self.router, proof=self.advice())
        if self.way == GUIDED and self.guided is not None:
            return replace(self.guided, proof=self.advice())
        return None

    def advice(self) -> str:
        """Return one sentence: what to do, and what it gains and costs."""
        alone = self.result(f"{ALONE}:{self.best}")
        if self.way == alone.name:
            return (
                f"Ask {self.best} alone: no other way is proved to be right more often on "
                f"{alone.accuracy.n} cases."
            )
        chosen = self.result(self.way)
        assert chosen.versus_best is not None
        low, high = (100 * limit for limit in chosen.versus_best.interval)
        advice = "Plan"
        if self.way == ROUTER:
            advice = "Let the router choose one worker"
        elif self.way == GUIDED:
            advice = "Plan as was learned"
        return (
            f"{advice}: {100 * chosen.versus_best.difference:+.1f} points above {self.best} alone "
            f"(95 %: {low:+.1f} to {high:+.1f}, {alone.accuracy.n} cases)"
            f"{_cost_in_words(chosen, alone)}."
        )


def _cost_in_words(chosen: SystemResult, alone: SystemResult) -> str:
    ours = format_cost_cell(chosen.cost, chosen.unpriced)
    theirs = format_cost_cell(alone.cost, alone.unpriced)
    if ours == theirs:
        if ours != UNKNOWN:
            return f", for {ours} a question, as before"
        return ""
    return f", for {ours} instead of {theirs} a question"


class Halves(NamedTuple):
    """The cases that every worker was judged on: those that teach, and those that prove.

    `judged` has the outcomes by system and case, `alone` the systems that are one worker each.
    """

    teaching: Sequence[Case]
    proving: Sequence[Case]
    judged: Mapping[tuple[str, str], CaseOutcome]
    alone: Sequence[str]


def halve(outcomes: Sequence[CaseOutcome], cases: Sequence[Case], seed: int) -> Halves:
    """Return the two halves.

    Raises `UsageError` where there are too few cases that every worker was judged on.
    """
    judged = {}
    for outcome in outcomes:
        if outcome.verdict != "failed":
            judged[(outcome.system, outcome.case)] = outcome
    alone = []
    for system in dict.fromkeys(outcome.system for outcome in outcomes):
        if system.startswith(ALONE):
            alone.append(system)
    alone.sort()  # whoever answered first: the same answers teach the same
    whole = []
    for case in cases:
        if all((system, case.id) in judged for system in alone):
            whole.append(case)
    if len(whole) < MIN_CASES or len(alone) < 2:
        message = (
            f"{len(whole)} cases were judged for each of {len(alone)} workers, which is too "
            "little to learn from"
        )
        hint = (
            f"give at least {MIN_CASES} cases and two workers; the same command repeats what failed"
        )
        raise UsageError(message, hint=hint)
    Random(seed).shuffle(whole)  # noqa: S311 - reproducible, no secret
    half = len(whole) // 2
    return Halves(whole[:half], whole[half:], judged, alone)


def learn_ways(
    outcomes: Sequence[CaseOutcome],
    cases: Sequence[Case],
    encoder: Path,
    seed: int,
    guided: Guide | None = None,
) -> Tuned:
    """Return what one half of the cases teaches and the other half proves.

    Raises `UsageError` where there are too few cases that every worker was judged on, `ModelError`
    for the encoder.
    """
    from conductor_cli.models.llama.gguf import read_model_info

    halves = halve(outcomes, cases, seed)
    teaching_states, proving_states = _encode_halves(halves, encoder)
    scores = _score_workers(halves)
    head = fit_head(teaching_states, scores, seed)
    best = halves.alone[int(scores.mean(axis=0).argmax())]
    chosen = (proving_states @ head[:, 1:].T + head[:, 0]).argmax(axis=1)
    compared = _proving_outcomes(halves, best, list(map(int, chosen)), guided)
    summary = summarize(compared, [*dict.fromkeys(outcome.system for outcome in compared)])
    proved = _proved_ways(summary, len(halves.proving))
    if PLAN in proved and not _guide_is_better(compared):
        # It is not proved to be better, and the planner as it is needs no file
        proved.pop(GUIDED, None)
    way = max(proved, key=proved.__getitem__, default=best)
    router = RouterFile(
        encoder=str(encoder),
        identity=read_model_info(encoder).identity,
        workers=tuple(map(_worker_name, halves.alone)),
        weights=tuple(map(_rounded, head)),
    )
    return Tuned(router, summary, _worker_name(best), way, guided)


def _rounded(row: Iterable[float]) -> tuple[float, ...]:
    """Return numbers with seven digits, which are enough."""
    return tuple(float(f"{value:.7g}") for value in row)


def _worker_name(system: str) -> str:
    return system.removeprefix(f"{ALONE}:")


def _encode_halves(halves: Halves, encoder: Path) -> tuple[Array, Array]:
    """Return the states of the teaching and of the proving questions, cases × dimensions each."""
    import numpy as np

    from conductor_cli.models.llama.engine import Encoder

    questions = [case.question for case in (*halves.teaching, *halves.proving)]
    with closing(Encoder(encoder)) as model:
        states = np.array([model.encode(question) for question in questions])
    count = len(halves.teaching)
    return states[:count], states[count:]


def _score_workers(halves: Halves) -> Array:
    """Return cases × workers: 1 for a right answer, a little less for an expensive one."""
    import numpy as np

    rights = list[list[float]]()
    prices = list[list[float]]()
    for case in halves.teaching:
        rights_of_case = []
        prices_of_case = []
        for system in halves.alone:
            outcome = halves.judged[system, case.id]
            rights_of_case.append(float(outcome.right))
            prices_of_case.append(float(outcome.usage.cost or 0))
        rights.append(rights_of_case)
        prices.append(prices_of_case)
    costs = np.array(prices)
    dearest = max(float(costs.mean(axis=0).max()), 1e-12)
    return np.array(rights) - COST_WEIGHT * costs / dearest


def _proving_outcomes(
    halves: Halves, best: str, chosen: Sequence[int], guided: Guide | None
) -> list[CaseOutcome]:
    """Return how each way did on the proving cases, under the name of the way.

    `chosen` are the positions of the workers that the router chooses.
    """
    judged = halves.judged
    compared = [judged[best, case.id] for case in halves.proving]
    for case, index in zip(halves.proving, chosen, strict=True):
        outcome = judged[halves.alone[index], case.id]
        compared.append(replace(outcome, system=ROUTER))
    planned = {PLAN: PLAN}
    if guided is not None:
        planned[GUIDED] = system_name(guided)
    for way, system in planned.items():
        for case in halves.proving:
            if (system, case.id) in judged:
                compared.append(replace(judged[system, case.id], system=way))
    return compared


def _proved_ways(summary: Summary, count: int) -> dict[str, float]:
    """Return the accuracy of each way that is proved better than the best worker, on all cases.

    By the rule of `eval` and `try`: the exact p-value, corrected for the ways that are compared.
    """
    compared = {}
    accuracies = {}
    for result in summary.systems:
        versus = result.versus_best
        if versus is not None and versus.n == count:
            compared[result.name] = versus
            accuracies[result.name] = result.accuracy.accuracy or 0.0
    proved = prove_differences(compared)
    return {name: accuracies[name] for name in compared if proved[name].is_better}


def _guide_is_better(compared: Sequence[CaseOutcome]) -> bool:
    """Return whether planning as was learned is proved better than planning as it is."""
    right: dict[str, dict[str, bool]] = {GUIDED: {}, PLAN: {}}
    for outcome in compared:
        if outcome.system in right:
            right[outcome.system][outcome.case] = outcome.right
    only_guided = 0
    only_plan = 0
    for case in right[GUIDED].keys() & right[PLAN].keys():
        if right[GUIDED][case] and not right[PLAN][case]:
            only_guided += 1
        if right[PLAN][case] and not right[GUIDED][case]:
            only_plan += 1
    return only_guided > only_plan and mcnemar_p(only_guided, only_plan) < SIGNIFICANT


def system_name(guide: Guide) -> str:
    """Return what the outcomes of plans with this guide are stored as."""
    texts = repr((guide.advice, guide.workers, guide.plans))
    return f"{GUIDED}-{hashlib.sha256(texts.encode()).hexdigest()[:12]}"


def find_encoder(settings: Settings, name: str) -> Path:
    """Return the GGUF file that reads questions: the named one, else that of the local planner.

    Raises `UsageError`.
    """
    path = _named_encoder(settings, name) if name else _file_of_planner(settings)
    if path is not None and path.is_file():
        return path.absolute()
    problem = "no local model is there to read the questions"
    if path is not None:
        problem = f"{path} is not a file"
    raise UsageError(
        problem, hint="name one, which may be small: --encoder FILE.gguf; or: conductor model pull"
    )


def _named_encoder(settings: Settings, name: str) -> Path:
    """Return the file of the stored model of this name, else the file of this path."""
    manifest = open_model_store(settings).find(name)
    if manifest is not None:
        return manifest.path
    return Path(name).expanduser()


def _file_of_planner(settings: Settings) -> Path | None:
    """Return the GGUF file of the planner; None where it is not on this machine."""
    try:
        planner = resolve_planner(settings)
    except ConductorError:
        return None
    if planner.kind == "llama" and planner.model.endswith(".gguf"):
        return Path(planner.model)
    return None

"""`conductor tune`.

Learn from cases whom to ask, how to plan, and whether to plan, and say so only where it is proved.

Every worker answers every case alone, and the planner plans each, as in an evaluation: what was
answered before costs nothing again. One half of the cases teaches, and the other half proves:

- Whom to ask is a linear head on what a small model makes of a question, that of TRINITY (arXiv
  2512.04695) for one turn. A ridge regression predicts each worker's score. Then separable CMA-ES
  changes the weights for the score of the worker that is chosen, which the regression only aims at
  indirectly.
- How to plan is a text that a prompted planner reads besides its rules. GEPA (arXiv 2507.19457) has
  a model reflect on plans and their answers, and keeps the texts that do better on questions that
  the model was not shown.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from conductor_cli.app.evaluation import EvaluationRequest, PreparedEvaluation, open_evaluation
from conductor_cli.app.planner_resolution import (
    open_model_store,
    planner_manifest,
    read_guided,
    resolve_planner,
)
from conductor_cli.config.settings import Settings
from conductor_cli.core.errors import ConductorError, ConductorUnusable, ConfigError, UsageError
from conductor_cli.core.formatting import UNKNOWN, format_cost_cell
from conductor_cli.core.plan import Plan
from conductor_cli.core.policy import PoolPolicy
from conductor_cli.core.pool import Worker
from conductor_cli.core.profile import Guide, PlannedQuestion
from conductor_cli.evals.cases import Case
from conductor_cli.evals.outcomes import CaseOutcome
from conductor_cli.evals.runner import run_cases
from conductor_cli.evals.summary import (
    SIGNIFICANT,
    Summary,
    SystemResult,
    mcnemar_p,
    prove_differences,
    summarize,
)
from conductor_cli.evals.systems import ALONE, RunSetup, System, direct_plan, without_planner
from conductor_cli.models.router import RouterFile
from conductor_cli.run import Team
from conductor_cli.system.installation import extra_command

ROUTER: Final = "router"  # Names the way in tables, beside `alone:NAME`, PLAN and GUIDED
PLAN: Final = "conductor"
GUIDED: Final = "conductor-guided"
MIN_CASES: Final = 40
"""Fewer cases prove nothing: of twenty, six more right answers and none less are the least that may
be no chance.
"""

# Of a right answer, what the costs of the dearest worker weigh: they decide between equals
COST_WEIGHT: Final = 0.02

Array = Any  # A numpy array; numpy is slow to import


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was learned.

    The planners, how each way did on the cases that teach nothing, and the way to take.
    """

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
    """The cases that every worker was judged on: those that teach and those that prove.

    And the outcomes by run.
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


# Whom to ask

# Of the hidden states that count, the widest first; fewer than a quarter of the cases
DIRECTIONS: Final = 48
RIDGES: Final = (1.0, 10.0, 100.0, 1000.0)
FOLDS: Final = 5
GENERATIONS: Final = 150
# How sharply the choice prefers the best score while CMA-ES looks for weights
SHARPNESS: Final = 8.0


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


def fit_head(states: Array, scores: Array, seed: int = 0) -> Array:
    """Return the weights of a router (`RouterFile`): workers × 1 + size.

    `states` are cases × size, `scores` cases × workers. Raises `ConfigError` where the library cma
    is missing.
    """
    import numpy as np

    # The directions depend on no score, so that they may be those of all cases.
    mean = states.mean(axis=0)
    scale = states.std(axis=0) + 1e-6
    _, widths, directions = np.linalg.svd((states - mean) / scale, full_matrices=False)
    count = max(1, min(DIRECTIONS, len(states) // 4, int((widths > 1e-6 * widths[0]).sum())))
    widths = np.maximum(widths, 1e-9)  # all are 0 where the model reads the same in every question
    basis = directions[:count] / (widths[:count, None] / np.sqrt(len(states))) / scale
    design = np.concatenate((np.ones((len(states), 1)), (states - mean) @ basis.T), axis=1)
    order = np.random.default_rng(seed).permutation(len(states))

    def held_out(ridge: float, *, searched: bool) -> float:
        """Return the mean score of the workers chosen for cases that the weights have not seen."""
        chosen_scores = []
        for number in range(FOLDS):
            fold = order[number::FOLDS]
            rest = np.setdiff1d(order, fold)
            weights = _regress(design[rest], scores[rest], ridge)
            if searched:
                weights = _search(weights, design[rest], scores[rest], seed)
            chosen_scores.extend(scores[fold, (design[fold] @ weights.T).argmax(axis=1)])
        return float(np.mean(chosen_scores))

    ridge = max(RIDGES, key=partial(held_out, searched=False))
    weights = _regress(design, scores, ridge)
    if held_out(ridge, searched=True) > held_out(ridge, searched=False):
        weights = _search(weights, design, scores, seed)
    factors = weights[:, 1:] @ basis
    return np.concatenate((weights[:, :1] - factors @ mean[:, None], factors), axis=1)


def _regress(design: Array, scores: Array, ridge: float) -> Array:
    import numpy as np

    penalty = ridge * np.diag([0.0, *[1.0] * (design.shape[1] - 1)])
    return np.linalg.solve(design.T @ design + penalty, design.T @ scores).T


def _search(start: Array, design: Array, scores: Array, seed: int) -> Array:
    """Return weights near `start` with which the chosen workers do better on the same cases."""
    import numpy as np

    with warnings.catch_warnings(action="ignore"):  # it warns of plots that nobody draws
        try:
            import cma
        except ImportError:
            raise ConfigError("cma is not installed", hint=extra_command("eval")) from None
    size = float(np.std(start)) or 0.1

    def loss(flat: Array) -> float:
        weights = np.asarray(flat).reshape(start.shape)
        logits = SHARPNESS * (design @ weights.T)
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        away = float(np.mean((weights - start) ** 2)) / size**2
        return 0.02 * away - float((shares * scores).sum(axis=1).mean())

    options = {
        "CMA_diagonal": True,
        "seed": seed + 1,
        "verbose": -9,
        "maxiter": GENERATIONS,
        "maxstd": size,
    }
    with warnings.catch_warnings(action="ignore"):  # and of steps that it repairs itself
        strategy = cma.CMAEvolutionStrategy(start.ravel(), 0.3 * size, options)
        best = strategy.optimize(loss).result.xbest
    return np.asarray(best).reshape(start.shape)


# How to plan

BATCH_PLANS: Final = 6  # Plans that the reflecting model is shown at a time
SHOWN_PLANS: Final = 4  # Plans that worked which the planner is shown
MAX_TEXT: Final = 4000  # Characters of a text that the reflecting model writes
NO_ADVICE: Final = "Nothing yet."
RESERVE: Final = 1.5  # Of what its plans have cost so far, kept for those that prove

_SHOWN: Final = """
```
<curr_param>
```
These are questions, the plans that it wrote for them, what the workers answered, and whether that \
was right:
```
<side_info>
```
"""
REFLECT: Final[Mapping[str, str]] = {
    "advice": f"""\
A planner divides questions into steps for a team of language models. It has fixed rules, and this \
advice \
besides:{_SHOWN}\
Write better advice: how to divide questions of this kind, what to say in a subtask, what to \
avoid. Say what holds for
other questions, too; name no answers. At most 15 lines, in a block between ``` and ```.""",
    "workers": f"""\
A planner gives steps to the workers of a team. This is what it reads about each worker:{_SHOWN}\
Correct what it reads, so that each step goes to a worker that can do it: what each is good at, \
what it is not good at,
and what it must be told. A line for each worker, as above: its name, a colon, one sentence. In a \
block between ``` and
```.""",
}


async def improve_plans(
    request: EvaluationRequest,
    settings: Settings,
    plans: int,
    reflector: str,
    tell_made: Callable[[int], None],
) -> Guide | None:
    """Return a planner that did better than that of the settings on the half that teaches.

    None where none did.

    It has planned the other half then, too. All of it is stored with the evaluation of the request,
    which has ended, and `max_cost` holds for all together. At most about `plans` plans are made
    while it learns.

    Raises `ConfigError` where the library gepa is missing, `UsageError` for an unknown reflector,
    `ConductorUnusable` where it does not answer.
    """
    try:
        import gepa
    except ImportError:
        raise ConfigError(
            "gepa is not installed",
            hint=f"{extra_command('eval')}; or leave the planner as it is: --plans 0",
        ) from None
    async with open_evaluation(request, settings) as prepared:
        if not _reads_advice(prepared.orchestra.team):
            return None
        search = _GuideSearch(prepared, reflector, tell_made)
        silent = SimpleNamespace(log=lambda _: None)  # what GEPA says is for its authors
        try:
            await asyncio.to_thread(
                gepa.optimize,
                seed_candidate=search.start,
                trainset=search.shown,
                valset=search.hidden,
                adapter=search,
                seed=request.seed,
                reflection_minibatch_size=BATCH_PLANS,
                max_metric_calls=plans,
                logger=silent,
                stop_callbacks=lambda _: search.stopped,
            )
        except _Stop:
            pass  # the money for more is spent
        finally:
            search.stopped = True
        guide = prepared.orchestra.team.profile.guide
        # Of equals the first
        best = max(search.scores, key=search.scores.__getitem__, default=guide)
        if best == guide:
            return None
        await search.run(search.system(best), search.halves.proving)
        return replace(best, planner=_name_of_planner(settings, prepared.planner))


def _reads_advice(team: Team) -> bool:
    """Return whether there is a planner that was not trained on prompts of its own."""
    profile = team.profile
    return team.model is not None and profile.render is None and profile.template == "plain"


def _name_of_planner(settings: Settings, planner: Worker | None) -> str:
    """Return what a guide calls the planner that it is for."""
    manifest = planner_manifest(settings)
    if manifest is not None:
        return manifest.name
    name = str(read_guided(settings).settings["planner.model"])
    if name.endswith(".gguf") and planner is not None:
        return planner.model  # its whole path
    return name


def system_name(guide: Guide) -> str:
    """Return what the outcomes of plans with this guide are stored as."""
    texts = repr((guide.advice, guide.workers, guide.plans))
    return f"{GUIDED}-{hashlib.sha256(texts.encode()).hexdigest()[:12]}"


class _Stop(Exception):
    """There is no money for more, or the user has stopped it."""


def score_plans(outcomes: Sequence[CaseOutcome]) -> list[float]:
    """Return what each plan counts: 1 for a right answer, 0 for a wrong one.

    A run that failed says nothing about its plan, and counts as the others do in the mean.
    """
    judged = [float(outcome.right) for outcome in outcomes if outcome.verdict != "failed"]
    mean = sum(judged) / max(len(judged), 1)
    scores = []
    for outcome in outcomes:
        scores.append(mean if outcome.verdict == "failed" else float(outcome.right))
    return scores


class _GuideSearch:
    """GEPA's adapter.

    It runs the plans of a candidate, tells how they went, and asks a model for other texts.

    GEPA is not asynchronous: it has a thread of its own, and what it asks for runs in the loop of
    the evaluation.
    """

    def __init__(
        self, prepared: PreparedEvaluation, reflector: str, tell_made: Callable[[int], None]
    ) -> None:
        assert prepared.stored is not None
        self.prepared = prepared
        self.stored = prepared.stored
        self.tell_made = tell_made
        self.orchestra = prepared.orchestra
        self.loop = asyncio.get_running_loop()
        self.halves = halve(self.stored.outcomes(), self.stored.cases(), prepared.request.seed)
        half = len(self.halves.teaching) // 2
        self.shown = list(self.halves.teaching[:half])
        self.hidden = list(self.halves.teaching[half:])
        self.random = Random(prepared.request.seed)  # noqa: S311 - reproducible, no secret
        self.scores = dict[Guide, float]()
        self.made = 0
        self.stopped = False
        costs = []
        for (system, _), outcome in self.halves.judged.items():
            if system == PLAN:
                costs.append(outcome.cost or Decimal(0))
        self.reserve = Decimal(RESERVE) * sum(costs) / max(len(costs), 1) * len(self.halves.proving)
        self.first_guide = self.orchestra.team.profile.guide
        self.about = dict[str, str]()
        lines = []
        for worker in self.orchestra.team.pool:
            about = self.first_guide.workers.get(worker.name) or worker.about
            self.about[worker.name] = about
            lines.append(f"{worker.name}: {about}")
        self.start = {
            "advice": self.first_guide.advice or NO_ADVICE,
            "workers": "\n".join(lines),
            "plans": "[]",
        }
        assert prepared.planner is not None
        self.reflector = prepared.planner
        if reflector:
            if reflector not in self.orchestra.team.pool:
                raise UsageError(
                    f"{reflector} is none of the workers", hint="--reflector names one of them"
                )
            self.reflector = self.orchestra.team.pool[reflector]

    def system(self, guide: Guide) -> System:
        name = PLAN
        if guide != self.first_guide:
            name = system_name(guide)
        return System(name=name, configure=partial(_guided_by, guide))

    async def run(self, system: System, cases: Sequence[Case]) -> list[CaseOutcome]:
        """Return the outcomes of some cases.

        Those that are stored are not run again; there are fewer where the money ends.
        """
        judge = None
        if system.plan is None:
            judge = self.prepared.judge
        running = run_cases(
            self.stored,
            [system],
            self.orchestra,
            cases=cases,
            parallel=self.prepared.request.parallel,
            budget=self.prepared.budget,
            judge=judge,
        )
        async with aclosing(running):
            async for _ in running:
                pass
        outcomes = {}
        for outcome in self.stored.outcomes():
            if outcome.system == system.name:
                outcomes[outcome.case] = outcome
        return [outcomes[case.id] for case in cases if case.id in outcomes]

    def _wait(self, system: System, cases: Sequence[Case]) -> list[CaseOutcome]:
        budget = self.prepared.budget
        is_spent = budget.limit is not None and budget.spent + self.reserve >= budget.limit
        if self.stopped or is_spent:
            raise _Stop
        outcomes = asyncio.run_coroutine_threadsafe(self.run(system, cases), self.loop).result()
        if len(outcomes) < len(cases):
            raise _Stop
        return outcomes

    def evaluate(
        self,
        batch: list[Case],
        candidate: dict[str, str],
        capture_traces: bool = False,  # noqa: ARG002, FBT001, FBT002
    ) -> Any:  # noqa: ANN401
        """Return how the plans of a candidate did: GEPA calls it."""
        from gepa import EvaluationBatch

        guide = self._guide(candidate)
        outcomes = self._wait(self.system(guide), batch)
        scores = score_plans(outcomes)
        if batch == self.hidden:
            self.scores.setdefault(guide, sum(scores))
        self.made += len(batch)
        self.tell_made(self.made)
        return EvaluationBatch(
            outputs=outcomes, scores=scores, trajectories=list(zip(batch, outcomes, strict=True))
        )

    def make_reflective_dataset(
        self,
        _: object,
        evaluated: Any,  # noqa: ANN401
        components: list[str],
    ) -> dict[str, list[Any]]:
        """Return what the reflecting model is shown of some plans: GEPA calls it."""
        described = []
        for case, outcome in evaluated.trajectories:
            if outcome.verdict != "failed":
                described.append(_describe(case, outcome))
        return {name: list(described) for name in components}

    def propose_new_texts(
        self, candidate: dict[str, str], shown: Mapping[str, Any], components: list[str]
    ) -> dict[str, str]:
        """Return other texts.

        Plans are drawn from those that led to right answers, all else a model writes.
        """
        from gepa.strategies.instruction_proposal import InstructionProposalSignature

        right = [case.id for case in self.shown if self._right_plan(case.id)]
        texts: dict[str, str] = {}
        for name in components:
            if name == "plans":
                texts[name] = json.dumps(self.random.sample(right, min(SHOWN_PLANS, len(right))))
                continue
            keys = InstructionProposalSignature.input_keys
            given = dict(zip(keys, (candidate[name], shown[name], REFLECT[name]), strict=True))
            proposal = InstructionProposalSignature.run(lm=self._reflect, input_dict=given)
            texts[name] = proposal["new_instruction"]
        return texts

    def _guide(self, candidate: Mapping[str, str]) -> Guide:
        """Return the guide in the texts of a candidate.

        A line about no worker, or with nothing new, is left out.
        """
        written = {}
        for line in candidate["workers"].splitlines():
            name, _, text = line.partition(":")
            written[name.strip(" -*`")] = text.strip()[:MAX_TEXT]
        workers: dict[str, str] = {}
        for name, about in self.about.items():
            text = written.get(name) or about
            if name in self.first_guide.workers or text != about:
                workers[name] = text
        advice = ""
        if candidate["advice"] != NO_ADVICE:
            advice = candidate["advice"][:MAX_TEXT]
        plans = self._planned_questions(json.loads(candidate["plans"])) or self.first_guide.plans
        return replace(self.first_guide, advice=advice, workers=workers, plans=plans)

    def _planned_questions(self, cases: Sequence[str]) -> tuple[PlannedQuestion, ...]:
        questions = {case.id: case.question for case in self.shown}
        planned = []
        for case in cases:
            question = questions[case]
            plan = self._right_plan(case)
            if plan is not None:
                planned.append(PlannedQuestion(question=question, plan=plan))
        return tuple(planned)

    def _right_plan(self, case: str) -> Plan | None:
        """Return a plan that led to the right answer before anything was changed."""
        outcome = self.halves.judged.get((PLAN, case))
        if outcome is None or not outcome.right or not outcome.plan:
            return None
        return Plan(steps=outcome.plan)

    def _reflect(self, prompt: Any) -> str:  # noqa: ANN401 - text; GEPA has images, too
        """Return the answer of the model that reflects.

        The call is stored and counted as a run of a case.
        """
        worker = self.reflector

        def configure(setup: RunSetup) -> RunSetup:
            alone = without_planner(setup, (worker,))
            model = setup.team.model
            if worker.name in setup.team.pool or model is None:
                return alone
            # Whoever may plan may read this: it has had the questions before.
            workers = {worker.name: model}
            return replace(
                alone, team=replace(alone.team, workers=workers, pool_policy=PoolPolicy())
            )

        case = Case(
            id=hashlib.sha256(prompt.encode()).hexdigest()[:16], question=prompt, answer="-"
        )
        system = System(name="reflector", configure=configure, plan=lambda _: direct_plan(worker))
        outcome = self._wait(system, [case])[0]
        if outcome.verdict == "failed":
            raise ConductorUnusable(
                f"the model that reflects on plans did not answer: {outcome.error}"
            )
        return outcome.answer


def _guided_by(guide: Guide, setup: RunSetup) -> RunSetup:
    """Return the set-up of runs whose planner reads this guide."""
    profile = replace(setup.team.profile, guide=guide)
    team = replace(setup.team, mode="auto", notices=(), profile=profile)
    return replace(setup, team=team)


def _describe(case: Case, outcome: CaseOutcome) -> dict[str, str]:
    """Return what the reflecting model reads of a plan."""
    answered = zip(outcome.plan, outcome.answers, strict=False)
    steps = []
    for number, (step, answer) in enumerate(answered, start=1):
        read = step.access or "no step"
        steps.append(f"{number}. {step.worker}, sees {read}: {step.subtask}\nanswer: {answer}")
    verdict = "The answer is right."
    if not outcome.right:
        verdict = f"The answer is wrong. Expected: {case.answer}"
    if not outcome.valid:
        verdict += " The first version of the plan was not valid."
    return {"Question": case.question, "Plan": "\n".join(steps), "Verdict": verdict}

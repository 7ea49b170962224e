"""Evaluations: opens the models, estimates the cost, and runs what an earlier one left to do."""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from conductor_cli import __version__
from conductor_cli.app import rehearsal
from conductor_cli.app.keys import open_key_store
from conductor_cli.app.opening import OpenedOrchestra, OpeningRequest, open_orchestra
from conductor_cli.app.ray_jobs import ask_over_nodes, check_node, models_of
from conductor_cli.app.stored_evaluations import stored_evaluations
from conductor_cli.config.schema import PREFIX
from conductor_cli.config.settings import Settings
from conductor_cli.core.errors import (
    ConductorUnusable,
    ConfigError,
    KeyMissing,
    PolicyError,
    UsageError,
)
from conductor_cli.core.mappings import names_of
from conductor_cli.core.pool import Worker
from conductor_cli.core.serialization import dump
from conductor_cli.evals.cases import (
    RIGHT_FROM,
    Case,
    hash_cases,
    user_scorer,
)
from conductor_cli.evals.cost import (
    CostEstimate,
    check_priced,
    estimate_cost,
    has_no_cost,
    unpriced_models,
)
from conductor_cli.evals.judge import Judge
from conductor_cli.evals.outcomes import CaseOutcome, Evaluation, EvaluationSpec, RunKey
from conductor_cli.evals.runner import Row, case_runner, run_cases
from conductor_cli.evals.sandbox import require_sandbox, use_interpreter
from conductor_cli.evals.scorers import SCORERS, scoring_rules
from conductor_cli.evals.systems import (
    DEFAULT,
    System,
    needs_planner,
    select_systems,
    unmeasured_workers,
)
from conductor_cli.models.response_cache import ResponseCache, model_identity
from conductor_cli.rehearsal.players import SHIPPED, rehearsal_conductor
from conductor_cli.rehearsal.words import KEYWORDS
from conductor_cli.run import Orchestra, Team
from conductor_cli.run.budget import Budget, CallBudget
from conductor_cli.run.orchestra import new_run_id
from conductor_cli.state.opening import open_state
from conductor_cli.system import disk
from conductor_cli.system.user_functions import UserFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRequest:
    """What to evaluate: `source` names the set of cases, `systems` is as on the command line.

    Without `systems` those of `default` are compared, and the conductor is left out if there is no
    model that plans.

    `max_cost` is in US dollars, for all parts of a continued evaluation together. `judge` is the
    worker that judges answers, beside the rules where a case has one; empty for none. `scorer` is
    the user's own, in place of those of the cases. With `reuses`, an evaluation of the same that
    has ended is taken as it is, instead of a new one.
    """

    source: str
    cases: tuple[Case, ...]
    systems: str | None = None
    default: str = DEFAULT
    workers: tuple[str, ...] = ()
    seed: int = 0
    repeat: int = 1
    parallel: int = 8
    max_cost: Decimal | None = None
    judge: str = ""
    scorer: UserFunction | None = None
    reuses: bool = False

    @property
    def names(self) -> str:
        """The systems to compare, as on the command line."""
        return self.systems or self.default


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedEvaluation:
    """An evaluation whose models are open.

    `stored` is the one that is continued, of which `done` runs are judged. `replies_of` is one
    whose replies a new one takes over: it differs only in the Python that ran its programs, or in
    the rules by which its answers were scored.
    `estimate` is None if nothing will cost anything. `left_out` says which systems cannot run, and
    why.
    """

    request: EvaluationRequest
    orchestra: Orchestra
    systems: tuple[System, ...]
    spec: EvaluationSpec
    stored: Evaluation | None
    replies_of: Evaluation | None
    done: int
    budget: Budget
    estimate: CostEstimate | None
    left_out: tuple[str, ...] = ()
    judge: Judge | None = None
    planner: Worker | None = None

    def create(self, settings: Settings) -> Evaluation:
        """Return the stored evaluation, created now if it is a new one."""
        directory = settings.paths.evaluations / new_run_id(datetime.now(UTC))
        return self.stored or Evaluation.create(
            directory, self.spec, self.request.cases, replies_of=self.replies_of
        )

    def run(
        self, evaluation: Evaluation, nodes: tuple[str, Callable[[], Settings]] | None = None
    ) -> AsyncGenerator[CaseOutcome, None]:
        """Run what is left, and yield each outcome.

        With `nodes`, those of a Ray cluster make the runs: the id of this one, and what returns the
        settings on each.
        """
        elsewhere = None
        if nodes is not None:
            opener = partial(
                _open_on_node, nodes[1], self.request, nodes[0], models_of(self.orchestra)
            )
            elsewhere = partial(
                ask_over_nodes, opener=opener, parallel=self.request.parallel, budget=self.budget
            )
        scorer = None
        if self.request.scorer is not None:
            scorer = user_scorer(self.request.scorer)
        return run_cases(
            evaluation,
            self.systems,
            self.orchestra,
            parallel=self.request.parallel,
            budget=self.budget,
            judge=self.judge,
            scorer=scorer,
            elsewhere=elsewhere,
        )


@asynccontextmanager
async def open_evaluation(
    request: EvaluationRequest, settings: Settings
) -> AsyncIterator[PreparedEvaluation]:
    """Open the models and find out what is left to do; nothing is called yet.

    The models are closed at the end.

    The newest evaluation of the same is continued if it is unfinished. Raises `UsageError` if no
    system can run, `PolicyError` if a cost limit cannot be enforced, `ConductorUnusable` or
    `KeyMissing` if a system that the request names needs the planner and there is none,
    `ConfigError` if nothing can be stored.
    """
    disk.check_writable(settings.paths.evaluations, "the evaluation", f"{PREFIX}STATE_DIR=DIR")
    _check_scorers(request)
    async with _open_systems(request, settings) as (opened, systems, left_out, judge, spec):
        orchestra = opened.orchestra
        stored, replies_of = _earlier_evaluations(settings, spec, reuses=request.reuses)
        begun = stored or replies_of
        answered = set[RunKey]()
        if begun is not None:
            answered = _judged_runs(begun, spec)
        planned = any(system.plan is None for system in systems)
        estimate = None
        if not has_no_cost(orchestra, planned=planned, judge=judge):
            estimate = estimate_cost(
                systems, request.cases, orchestra, answered, repeat=request.repeat, judge=judge
            )
        spent = Decimal(0)
        if begun is not None:
            spent = begun.spent()
        limit = _cost_limit(request, settings, spent)
        if limit is not None:
            check_priced(
                unpriced_models(orchestra, planned=planned, judge=judge), orchestra.team.name
            )
        expected = _expected_cost(begun, estimate)
        yield PreparedEvaluation(
            request=request,
            orchestra=orchestra,
            systems=systems,
            spec=spec,
            stored=stored,
            replies_of=replies_of,
            done=len(answered) if stored is not None else 0,
            budget=Budget(limit, spent=spent, expected=expected),
            estimate=estimate,
            left_out=left_out,
            judge=judge,
            planner=opened.planner,
        )


def _check_scorers(request: EvaluationRequest) -> None:
    """Raise `UsageError` where it is not clear who says what is right."""
    if request.judge and request.scorer is not None:
        hint = "leave one of them out: the scorer decides alone"
        raise UsageError("--scorer and --judge cannot be given together", hint=hint)
    if not request.judge and "judge" in _scorer_needs(request):
        raise UsageError(
            "a case has the scorer model, which needs a judge", hint="name a worker: --judge WORKER"
        )


def _earlier_evaluations(
    settings: Settings, spec: EvaluationSpec, *, reuses: bool
) -> tuple[Evaluation | None, Evaluation | None]:
    """Return the evaluation that goes on, and the one whose replies a new one takes over.

    The newest of the same goes on if it has not ended, or where the request `reuses` it. One newer
    than that whose programs another Python ran, or whose answers another version scored, has other
    verdicts of the same replies.
    """
    of_other_verdicts = None
    for stored in stored_evaluations(settings):
        if stored.spec.identity != spec.identity:
            continue
        if (stored.spec.python, stored.spec.rules) != (spec.python, spec.rules):
            of_other_verdicts = of_other_verdicts or stored
            continue
        if len(_judged_runs(stored, spec)) < spec.runs or reuses:
            return stored, None
        break
    return None, of_other_verdicts


def _judged_runs(evaluation: Evaluation, spec: EvaluationSpec) -> set[RunKey]:
    """Return the runs of a specification that are judged in an evaluation."""
    return {key for key in evaluation.judged() if key[0] in spec.systems}


def _cost_limit(request: EvaluationRequest, settings: Settings, spent: Decimal) -> Decimal | None:
    """Return the limit of the request, or the one of the day where it is tighter.

    The demo models cost nothing.
    """
    if settings.day_limits.cost is None or settings.rehearsal:
        return request.max_cost
    with closing(open_state(settings.paths).spending(settings.day_limits)) as spending:
        spending.check()
        left_today = max(settings.day_limits.cost - spending.today().cost, Decimal(0))
    limit = spent + left_today
    if request.max_cost is not None:
        limit = min(limit, request.max_cost)
    return limit


def _expected_cost(stored: Evaluation | None, estimate: CostEstimate | None) -> Decimal:
    """Return what a run is assumed to cost: the most of the estimate, until one has ended."""
    most_of_one = Decimal(0)
    if estimate and estimate.runs:
        most_of_one = estimate.high.cost[1] / estimate.runs
    costs: list[Decimal] = []
    if stored is not None:
        costs = [outcome.cost or Decimal(0) for outcome in stored.outcomes()]
    return max(costs, default=most_of_one)


@asynccontextmanager
async def _open_systems(
    request: EvaluationRequest, settings: Settings
) -> AsyncIterator[
    tuple[OpenedOrchestra, tuple[System, ...], tuple[str, ...], Judge | None, EvaluationSpec]
]:
    """Open the models.

    Yields them, the systems that can run, why others cannot, the judge, and what is evaluated.
    """
    python = ""
    # Before anything is paid for
    if "sandbox" in _scorer_needs(request):
        interpreter = require_sandbox(settings["eval.python"])
        use_interpreter(interpreter)
        python = interpreter.label
    async with AsyncExitStack() as stack:
        opened, no_planner = await _open_models(request, settings)
        stack.push_async_callback(opened.close)
        orchestra = opened.orchestra
        judge = None
        if request.judge:  # which need not be one of the workers that are compared
            judge_only = OpeningRequest(
                settings=settings, only=(request.judge,), planning=False, seed=request.seed
            )
            judging = await open_orchestra(judge_only)
            stack.push_async_callback(judging.close)
            judge = Judge.of(judging.orchestra, request.judge)
        systems: list[System] = []
        left_out: list[str] = []
        for system in _selected_systems(request, settings, opened):
            missing = system.missing
            if no_planner and system.plan is None:
                missing = no_planner
            if missing:
                left_out.append(f"left out: {system.name}: {missing}")
            else:
                systems.append(system)
        if not systems:
            raise UsageError(f"none of these systems can run; {left_out[0]}")
        notes = [*left_out, *_notes(request, settings, orchestra.team)]
        spec = _make_spec(request, opened, tuple(names_of(systems)), judge, notes, python)
        yield opened, tuple(systems), tuple(left_out), judge, spec


def _selected_systems(
    request: EvaluationRequest, settings: Settings, opened: OpenedOrchestra
) -> Sequence[System]:
    """Return the systems that the request names; with the demo models, one by rule as well."""
    team = opened.orchestra.team
    if not settings.rehearsal:
        return select_systems(request.names, team, cases=request.cases)
    start = rehearsal_conductor(SHIPPED / "cold.gguf")
    model = opened.loaded.open(start, environ=settings.environ, stored=open_key_store(settings))
    by_rule = System(
        name=rehearsal.RULE, configure=partial(rehearsal.given_out_by_rule, model=model)
    )
    keywords = {str(skill): words for skill, words in KEYWORDS.items()}
    return select_systems(
        request.names, team, cases=request.cases, keywords=keywords, demo_systems=[by_rule]
    )


def _notes(request: EvaluationRequest, settings: Settings, team: Team) -> Iterator[str]:
    """Yield what a reader of the results should know beside what was left out."""
    if unmeasured := unmeasured_workers(team):
        yield (
            "without a measured card, so what they are best at is not known: "
            f"{', '.join(unmeasured)}"
        )
    if settings.cards.problem and not settings.rehearsal:
        yield settings.cards.problem
    if request.scorer is not None:
        yield (
            f"answers were scored by {request.scorer.name}, not by the scorers of the cases: "
            f"{RIGHT_FROM:g} or more counts as right"
        )


def _scorer_needs(request: EvaluationRequest) -> set[str]:
    """Return what must be there for the scorers of the cases, where these score the answers."""
    if request.scorer is not None:
        return set()
    return {SCORERS[case.scorer].needs for case in request.cases}


@asynccontextmanager
async def _open_on_node(
    load: Callable[[], Settings],
    request: EvaluationRequest,
    first: str,
    models: str,
    budget: CallBudget | None,
) -> AsyncIterator[Callable[[Row], Awaitable[CaseOutcome]]]:
    """Open the same evaluation on a node of Ray, by the settings and keys of that node."""
    settings = load()
    check_node(settings, first)
    async with _open_systems(request, settings) as (opened, systems, _, judge, spec):
        if models_of(opened.orchestra) != models:
            hint = "give each node the same config.toml"
            raise ConfigError("it has other workers, another planner or other limits", hint=hint)
        with (
            TemporaryDirectory() as directory,
            closing(ResponseCache(Path(directory) / "calls.jsonl")) as replies,
        ):
            yield case_runner(spec, systems, opened.orchestra, judge, replies, budget=budget)


async def _open_models(
    request: EvaluationRequest, settings: Settings
) -> tuple[OpenedOrchestra, str]:
    """Return the models, and why the default systems have to do without the one that plans.

    Empty if they have it.
    """
    wanted = OpeningRequest(
        settings=settings,
        only=request.workers,
        planning=needs_planner(request.names),
        seed=request.seed,
    )
    try:
        return await open_orchestra(wanted), ""
    except (ConductorUnusable, KeyMissing, PolicyError) as error:
        if request.systems is not None:
            raise
        return await open_orchestra(replace(wanted, planning=False)), error.message


def _make_spec(
    request: EvaluationRequest,
    opened: OpenedOrchestra,
    names: tuple[str, ...],
    judge: Judge | None,
    notes: list[str],
    python: str,
) -> EvaluationSpec:
    orchestra = opened.orchestra
    planner = opened.planner
    planner_id = None
    planned_by = None
    if planner is not None:
        planner_id = model_identity(planner)
        planned_by = orchestra.team.name
    return EvaluationSpec(
        source=request.source,
        hash=hash_cases(request.cases),
        cases=len(request.cases),
        systems=names,
        workers=orchestra.team.pool.names,
        seed=request.seed,
        repeat=request.repeat,
        planner_id=planner_id,
        conductor=planned_by,
        judge=judge.worker.name if judge is not None else None,
        python=python,
        rules=scoring_rules(),
        identity=dump(_identity(request, opened, names, judge)),
        notes=tuple(notes),
        version=__version__,
        time=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
    )


def _identity(
    request: EvaluationRequest,
    opened: OpenedOrchestra,
    names: tuple[str, ...],
    judge: Judge | None,
) -> list[object]:
    """Return what two evaluations share if one may continue the other."""
    orchestra = opened.orchestra
    team = orchestra.team
    planner: tuple[str | None, ...] = (None, None, None)
    if opened.planner is not None:
        planner = (model_identity(opened.planner), team.name, team.profile.name)
    # No header of a worker is stored, as it may be a key; the identity of its model has a hash of
    # them.
    workers = (team.pool.public(), [model_identity(worker) for worker in team.pool])
    identity: list[object] = [
        request.source,
        hash_cases(request.cases),
        names,
        request.seed,
        workers,
        *planner,
        orchestra.limits,
        orchestra.timeouts,
        _judge_identity(judge),
        request.repeat,
    ]
    # An evaluation from before there was such a scorer has no place for it.
    if request.scorer is not None:
        identity.append([request.scorer.name, request.scorer.digest])
    return identity


def _judge_identity(judge: Judge | None) -> list[str]:
    if judge is None:
        return []
    return [judge.worker.name, model_identity(judge.worker)]


def find_evaluation(name: str, settings: Settings) -> Evaluation:
    """Return the stored evaluation with this id, or the `last` one. Raises `UsageError`."""
    for stored in stored_evaluations(settings):
        if name in (stored.id, "last"):
            return stored
    raise UsageError(f"there is no evaluation {name!r}", hint="conductor eval --list shows them")

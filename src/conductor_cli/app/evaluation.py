"""Evaluations.

Load cases, find stored evaluations, open the models, estimate the cost, and run what is left to do.

A file of a published suite is fetched from the hub once, at a commit and with a hash that are kept
and compared ever after. Calibration measures each worker alone, and makes its capability card of
the result.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

from conductor_cli import __version__
from conductor_cli.app import rehearsal
from conductor_cli.app.keys import open_key_store
from conductor_cli.app.opening import OpenedOrchestra, OpeningRequest, open_orchestra
from conductor_cli.app.ray_jobs import ask_over_nodes, check_node, models_of
from conductor_cli.app.stored_evaluations import evaluations_directory, stored_evaluations
from conductor_cli.app.worker_selection import resolve_pool
from conductor_cli.config.cards import MeasuredCard, Strength, worker_key
from conductor_cli.config.schema import PREFIX
from conductor_cli.config.settings import Settings
from conductor_cli.core.errors import (
    ConductorUnusable,
    ConfigError,
    KeyMissing,
    PolicyError,
    UsageError,
    describe_system_error,
)
from conductor_cli.core.formatting import format_size
from conductor_cli.core.mappings import names_of
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.serialization import dump
from conductor_cli.evals.cases import (
    COUNT,
    EVERYDAY,
    EVERYDAY_FILE,
    NAME,
    RIGHT_FROM,
    Case,
    hash_cases,
    make_basics,
    read_cases,
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
from conductor_cli.evals.scorers import SCORERS
from conductor_cli.evals.suites import SUITES, Suite, read_suite, suite_by_columns
from conductor_cli.evals.summary import SystemResult, summarize
from conductor_cli.evals.systems import (
    ALONE,
    DEFAULT,
    System,
    needs_planner,
    select_systems,
    unmeasured_workers,
)
from conductor_cli.models.response_cache import ResponseCache, model_identity
from conductor_cli.models.weights import huggingface
from conductor_cli.rehearsal.players import SHIPPED, rehearsal_conductor
from conductor_cli.rehearsal.words import KEYWORDS
from conductor_cli.run import Orchestra, Team
from conductor_cli.run.budget import Budget, CallBudget
from conductor_cli.run.orchestra import new_run_id
from conductor_cli.state.opening import open_state
from conductor_cli.system import disk
from conductor_cli.system.event_loop import run_async
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
    whose replies a new one takes over: it differs only in the Python that ran its programs.
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
        directory = evaluations_directory(settings) / new_run_id(datetime.now(UTC))
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
    disk.check_writable(evaluations_directory(settings), "the evaluation", f"{PREFIX}STATE_DIR=DIR")
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
    than that whose programs another Python ran has other verdicts of the same replies.
    """
    of_another_python = None
    for stored in stored_evaluations(settings):
        if stored.spec.identity != spec.identity:
            continue
        if stored.spec.python != spec.python:
            of_another_python = of_another_python or stored
            continue
        if len(_judged_runs(stored, spec)) < spec.runs or reuses:
            return stored, None
        break
    return None, of_another_python


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
    """The systems that the request names. With the demo models also the one that plans by rule."""
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
    hashed = hash_cases(request.cases)
    planner_id = None
    planned_by = None
    profile = None
    if planner is not None:
        planner_id = model_identity(planner)
        planned_by = orchestra.team.name
        profile = orchestra.team.profile.name
    # No header of a worker is stored, as it may be a key; the identity of its model has a hash of
    # them.
    workers = (
        orchestra.team.pool.public(),
        [model_identity(worker) for worker in orchestra.team.pool],
    )
    judge_name = judge.worker.name if judge is not None else None
    identity: list[object] = [
        request.source,
        hashed,
        names,
        request.seed,
        workers,
        planner_id,
        planned_by,
        profile,
        orchestra.limits,
        orchestra.timeouts,
        _judge_identity(judge),
        request.repeat,
    ]
    # An evaluation from before there was such a scorer has no place for it.
    if request.scorer is not None:
        identity.append([request.scorer.name, request.scorer.digest])
    return EvaluationSpec(
        source=request.source,
        hash=hashed,
        cases=len(request.cases),
        systems=names,
        workers=orchestra.team.pool.names,
        seed=request.seed,
        repeat=request.repeat,
        planner_id=planner_id,
        conductor=planned_by,
        judge=judge_name,
        python=python,
        identity=dump(identity),
        notes=tuple(notes),
        version=__version__,
        time=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
    )


def _judge_identity(judge: Judge | None) -> list[str]:
    if judge is None:
        return []
    return [judge.worker.name, model_identity(judge.worker)]


# Stored evaluations


def find_evaluation(name: str, settings: Settings) -> Evaluation:
    """Return the stored evaluation with this id, or the `last` one. Raises `UsageError`."""
    for stored in stored_evaluations(settings):
        if name in (stored.id, "last"):
            return stored
    raise UsageError(f"there is no evaluation {name!r}", hint="conductor eval --list shows them")


# Cases


def load_cases(
    source: str, *, file: str | None, count: int | None, seed: int, columns: str = ""
) -> tuple[str, tuple[Case, ...]]:
    """Return the set's name and its cases.

    `seed` makes those of `basics`, and chooses `count` from a file or the demo's set.

    With `file`, `source` is the published suite that the file contains. With `columns`, it is a
    file whose columns have these names (`suite_by_columns`). Raises `UsageError`, with the line if
    a file is wrong.
    """
    path = Path(source).expanduser()
    if columns:
        return path.name, read_suite(
            suite_by_columns(path.name, columns), path, count=count, seed=seed
        )
    if file is not None:
        if source not in SUITES:
            raise UsageError(f"unknown suite {source!r:.60}", hint=_known_suites())
        return source, read_suite(SUITES[source], Path(file).expanduser(), count=count, seed=seed)
    if source == rehearsal.NAME:
        return source, rehearsal.held_out_cases(count or rehearsal.EVAL_CASES, seed)
    if source == NAME:
        return source, make_basics(count or COUNT, seed)
    if source == EVERYDAY:
        return source, sample_cases(read_cases(EVERYDAY_FILE), count, seed)
    if source in SUITES and not path.exists():
        hint = f"{SUITES[source].source} on the Hugging Face hub"
        raise UsageError(f"{source} needs its file: --from FILE", hint=hint)
    if not path.exists() and not path.suffix:
        raise UsageError(f"{path} is neither a file nor a set", hint=_known_suites())
    # A file that is called like a set must not be taken for it when results are compared.
    name = path.name
    if name in (rehearsal.NAME, NAME, EVERYDAY, *SUITES):
        name = str(path.absolute())
    return name, sample_cases(read_cases(path), count, seed)


def _known_suites() -> str:
    return f"built-in: {rehearsal.NAME}, {NAME}, {EVERYDAY}; published: {', '.join(SUITES)}"


def sample_cases(cases: Sequence[Case], count: int | None, seed: int) -> tuple[Case, ...]:
    """Return a sample of `count` cases in their own order, chosen by the seed.

    All of them without a count.
    """
    if count is None or count == len(cases):
        return tuple(cases)
    if count > len(cases):
        raise UsageError(
            f"--n {count}: the file holds {len(cases)} cases", hint="leave out --n to take all"
        )
    chosen = Random(seed).sample(range(len(cases)), count)  # noqa: S311 - reproducible, no secret
    return tuple(cases[index] for index in sorted(chosen))


MAX_FILE: Final = 8_000_000_000  # Bytes of a file of a suite


def fetch_suite(suite: Suite, settings: Settings, report: Callable[[str, int, int], None]) -> Path:
    """Return the file of a suite in our cache, fetched from the hub if it is not there.

    Its solved questions are fetched, too. A file whose hash was kept must have it. Raises
    `ConductorUnusable` where the hub does not answer, refuses or sends something else, and
    `ConfigError` where nothing can be written.
    """
    directory = settings.paths.cache / "suites" / suite.name
    try:
        disk.make_private_directory(directory)
        if suite.examples:
            _fetch(suite, suite.examples, directory, report)
        return _fetch(suite, suite.file, directory, report)
    except ConductorUnusable as error:
        if error.hint.startswith("conductor eval"):
            raise
        page = f"{huggingface.shown_endpoint()}/datasets/{suite.repo}"
        hint = f"see {page}; with a file that you have: conductor eval {suite.name} --from FILE"
        raise ConductorUnusable(error.message, hint=hint) from None
    except OSError as error:
        why = describe_system_error(error)
        raise ConfigError(
            f"cannot write {directory}: {why}", hint="make it writable and free some space"
        ) from None


def _fetch(
    suite: Suite, file: str, directory: Path, report: Callable[[str, int, int], None]
) -> Path:
    path = directory / Path(file).name
    go_on = f"conductor eval {suite.name} --from FILE"
    pins = dict[str, dict[str, str]]()
    pin = None
    # Where what was kept is damaged, a file that is there counts as it is.
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        pins = json.loads((directory / "pins.json").read_text(encoding="utf-8"))
        pin = str(pins[file]["commit"]), str(pins[file]["sha256"])
    if path.is_file():
        if pin is None or _hash_of(path) == pin[1]:
            return path
        hint = f"{go_on}; or remove {directory} to fetch it again"
        raise ConductorUnusable(
            f"{path} is not the file that was fetched: its hash has changed", hint=hint
        )
    if huggingface.is_offline():
        message = f"{suite.name} is not in the cache, and HF_HUB_OFFLINE forbids asking the hub"
        raise ConductorUnusable(message, hint=f"{go_on}, or unset HF_HUB_OFFLINE")
    revision = "main"
    if pin is not None:
        revision = pin[0]
    repository = huggingface.ask_repository(suite.repo, revision, kind="dataset", report=report)
    remote = repository.files.get(file)
    if remote is None:
        raise ConductorUnusable(f"{suite.repo} has no file {file} any more", hint=go_on)
    if not 0 < remote.size <= MAX_FILE:
        size = f"{remote.size:,} bytes, and at most {format_size(MAX_FILE)} are fetched"
        raise ConductorUnusable(f"{file} of {suite.repo} has {size}", hint=go_on)
    part = directory / f"{path.name}.{repository.commit[:12]}.part"
    huggingface.download_file(repository, remote, part, report)
    digest = _hash_of(part)
    expected = remote.sha256
    source = "the hub says"
    if pin is not None:
        expected = pin[1]
        source = "before"
    if expected and digest != expected:
        part.unlink()
        raise ConductorUnusable(
            f"{file} of {suite.repo} has another hash than {source}", hint=go_on
        )
    kept = {"commit": repository.commit, "sha256": digest}
    disk.write_atomically(
        directory / "pins.json", f"{json.dumps({**pins, file: kept}, indent=2)}\n", mode=0o600
    )
    part.replace(path)
    return path


def _hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Cards


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The workers to measure on a set of cases, and what was measured before.

    Those of `request` are measured; `known_cards` are those that others already have on the set.
    """

    request: EvaluationRequest
    pool: Pool
    known_cards: tuple[MeasuredCard, ...] = ()

    @property
    def hash(self) -> str:
        return hash_cases(self.request.cases)


def plan_calibration(
    settings: Settings,
    source: str | None,
    *,
    workers: Sequence[str],
    count: int | None,
    seed: int,
    parallel: int,
) -> Calibration:
    """Choose cases and workers, and find what was measured before.

    The cases are a file, by default a built-in set. Workers with a card on all of the same cases
    are not measured again.
    """
    configured = names_of([item.worker for item in settings.workers])
    if source in configured and not Path(source).exists():
        hint = f"to measure it alone: conductor workers calibrate --workers {source}"
        raise UsageError(f"{source} is a worker, and no file of cases", hint=hint)
    name, cases = load_cases(source or NAME, file=None, count=count, seed=seed)
    pool, _ = run_async(resolve_pool(settings, None, workers))
    pool = pool.without_self()
    cards = dict[str, MeasuredCard]()
    for worker in pool:
        card = settings.cards.of(worker, hash_cases(cases))
        # One of fewer cases is of a time when the worker could not be reached.
        if card is not None and card.n >= len(cases):
            cards[worker.name] = card
    unmeasured = tuple(name for name in pool.names if name not in cards)
    request = EvaluationRequest(
        source=name,
        cases=cases,
        systems=ALONE,
        seed=seed,
        parallel=parallel,
        workers=unmeasured,
    )
    return Calibration(request=request, pool=pool, known_cards=tuple(cards.values()))


def measured_cards(
    calibration: Calibration, evaluation: Evaluation
) -> tuple[list[MeasuredCard], list[str]]:
    """Return a card for each worker that has answered a case, and notes about those that failed."""
    outcomes = evaluation.outcomes()
    errors = {outcome.system: outcome.error for outcome in outcomes if outcome.verdict == "failed"}
    cards = []
    notes = []
    for system in summarize(outcomes, systems=evaluation.spec.systems).systems:
        worker = calibration.pool[system.name.removeprefix(f"{ALONE}:")]
        if system.accuracy.n:
            cards.append(_measured_card(calibration, worker, system))
        if system.failed:
            failed = f"{system.failed} of {len(calibration.request.cases)} cases failed"
            if not system.accuracy.n:
                failed += ", so it has no card"
            else:
                failed += ", and the same command measures it again"
            notes.append(f"{worker.name}: {failed}: {errors[system.name]}")
    notes += [note for note in evaluation.spec.notes if note.startswith("left out")]
    return cards, notes


def _measured_card(calibration: Calibration, worker: Worker, result: SystemResult) -> MeasuredCard:
    strengths = {}
    for tag, share in result.tags.items():
        if share.n:
            strengths[tag] = Strength(right=share.right, n=share.n)
    cost = result.cost
    if result.unpriced:
        cost = None
    return MeasuredCard(
        worker=worker.name,
        key=worker_key(worker),
        hash=calibration.hash,
        source=f"{calibration.request.source}, seed {calibration.request.seed}",
        time=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        right=result.accuracy.right,
        n=result.accuracy.n,
        strengths=strengths,
        tokens_in=round(result.tokens_in or 0.0, 2),
        tokens_out=round(result.tokens_out or 0.0, 2),
        seconds=round(result.seconds or 0.0, 4),
        cost=cost,
    )

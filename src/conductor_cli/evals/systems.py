"""Every way to use the workers that an evaluation compares; each runs on the ordinary engine.

A system that cannot run here is still listed, with the reason in `missing`, so that reports can say what was left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from conductor_cli.core.errors import UsageError
from conductor_cli.core.events import Mode
from conductor_cli.core.plan import SELF, Plan
from conductor_cli.core.pool import Worker
from conductor_cli.core.trace import Trace
from conductor_cli.evals import baselines
from conductor_cli.evals.cases import Case
from conductor_cli.evals.routing import GENERAL, Keywords, best_worker, best_worker_on, worker_by_keyword
from conductor_cli.run import Conductor

ALONE: Final = "alone"
"""Stands for every single worker; one of them is `alone:NAME`."""
BEST_WORKER: Final = "best-worker"
NAMES: Final = (
    "all", ALONE, BEST_WORKER, "random", "keyword", "reflection", "vote", "moa", "pipeline", "best-routing",
    "conductor-mini", "conductor", "conductor-ultra", "conductor-recursion",
)  # fmt: skip
"""The names that a user may give, besides `alone:NAME`."""
ANSWERS: Final[Mapping[str, Callable[[Trace, Case], str]]] = {"vote": baselines.majority_answer}
"""How the answer is taken from a stored run, for systems that do not use the run's own answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """One way to use the workers.

    `plan` makes the plan of a case, from a random source seeded by case and system; it returns None to skip the case.
    Without `plan` the conductor model plans. `configure` adapts the conductor that runs it: pool, models, profile,
    mode. `answer` takes the answer from a finished run. `independent_steps`: its steps wait for each other only
    formally, so their times do not add up. `missing` says why the system cannot run here, empty if it can.
    """

    name: str
    missing: str = ""
    plan: Callable[[Case, Random], Plan | None] | None = None
    configure: Callable[[Conductor], Conductor]
    answer: Callable[[Trace, Case], str] = lambda trace, _: trace.answer
    independent_steps: bool = False


def select_systems(
    names: str | Sequence[str],
    conductor: Conductor,
    *,
    cases: Sequence[Case] = (),
    keywords: Keywords | None = None,
) -> tuple[System, ...]:
    """The named systems in order, each once; `all` is every one. Raises `UsageError` for an unknown name.

    `conductor` has the pool, whose cards say which worker is best, and a model for the systems that plan. `keywords`
    maps tags to the words that indicate them.
    """
    wanted = [name.strip() for name in (names.split(",") if isinstance(names, str) else names) if name.strip()]
    known = {system.name: system for system in _build_systems(conductor, cases, keywords or GENERAL)}
    found: dict[str, System] = {}
    for name in wanted:
        if name == "all":
            found |= known
        elif name == ALONE:
            found |= {key: system for key, system in known.items() if key.startswith(f"{ALONE}:")}
        elif name in known:
            found[name] = known[name]
        else:
            raise UsageError(f"unknown system {name!r}", hint=f"known: all, {ALONE}, {', '.join(known)}")
    if not found:
        raise UsageError("--systems names no system", hint=f"known: {', '.join(NAMES)}")
    return tuple(found.values())


def available_workers(conductor: Conductor) -> tuple[Worker, ...]:
    """The workers of the pool that can be called; the conductor itself is not one of them."""
    return tuple(
        worker for worker in conductor.pool if worker.kind != SELF and worker.name not in conductor.unavailable
    )


def ranking_notes(conductor: Conductor) -> tuple[str, ...]:
    """What a reader must know: workers ranked without cards or by cards nobody measured, and an ignored time limit."""
    workers = available_workers(conductor)
    unknown = [worker.name for worker in workers if not worker.card.strengths]
    unmeasured = [worker.name for worker in workers if worker.card.strengths and not worker.card.measured]
    notes = []
    if unknown and len(unknown) == len(workers):
        notes.append(f"no worker has a card, so the first one, {workers[0].name}, counts as the best")
    elif unknown:
        notes.append(f"without a card, so never the best worker: {', '.join(unknown)}")
    if unmeasured:
        notes.append(f"cards that were not measured: {', '.join(unmeasured)}")
    if conductor.limits.seconds is not None:
        notes.append("limits.seconds is ignored, because parallel runs wait for each other")
    return tuple(notes)


def _build_systems(conductor: Conductor, cases: Sequence[Case], keywords: Keywords) -> list[System]:
    """Every system over this pool, in the order of reports."""
    workers = available_workers(conductor)
    if not workers:
        raise UsageError("no worker of the pool is available", hint="conductor doctor says why")
    best = best_worker(workers)
    over_all = partial(baselines.without_planner, workers=workers)
    over_best = partial(baselines.without_planner, workers=(best,))
    too_few = "" if len(workers) > 1 else "needs at least two workers"
    no_planner = "" if conductor.model is not None else "there is no conductor model"
    # A profile with its own prompt means that the model was trained on that prompt alone.
    plans_only = "" if conductor.profile.render is None else "this conductor model was trained only to plan"
    gold_steps = max((len(case.steps) for case in cases), default=0)

    def keyword_worker(case: Case) -> Worker:
        return worker_by_keyword(case.question, workers, keywords)

    def direct(choose: Callable[[Case, Random], Worker]) -> Callable[[Case, Random], Plan]:
        return lambda case, random: baselines.direct_plan(choose(case, random))

    def pipeline(case: Case, _: Random) -> Plan:
        executor = keyword_worker(case)
        # A model rarely finds its own mistakes, so another worker verifies if there is one.
        others = [worker for worker in workers if worker.name != executor.name]
        return baselines.pipeline_plan(best, executor, best_worker(others or [executor]))

    def gold(case: Case, _: Random) -> Plan | None:
        return baselines.gold_plan(case, partial(best_worker_on, workers)) if case.steps else None

    def planned(name: str, mode: Mode, recursion: int = 0) -> System:
        missing = no_planner or (plans_only if mode == "ultra" or recursion else "")
        return System(
            name=name, configure=partial(baselines.with_planner, mode=mode, recursion=recursion), missing=missing
        )  # fmt: skip

    return [
        *(_single_worker(worker, conductor) for worker in conductor.pool if worker.kind != SELF),
        System(name=BEST_WORKER, plan=direct(lambda _case, _random: best), configure=over_best),
        System(name="random", plan=direct(lambda _, it: it.choice(workers)), configure=over_all, missing=too_few),
        System(name="keyword", plan=direct(lambda it, _: keyword_worker(it)), configure=over_all, missing=too_few),
        System(name="reflection", plan=lambda _case, _random: baselines.reflection_plan(best), configure=over_best),
        System(
            name="vote", plan=lambda _case, _random: baselines.vote_plan(best), answer=ANSWERS["vote"],
            configure=partial(baselines.for_vote, worker=best), independent_steps=True,
        ),
        System(
            name="moa", plan=lambda _case, _random: baselines.mixture_plan(workers, best), configure=over_all,
            missing=too_few,
        ),
        System(name="pipeline", plan=pipeline, configure=over_all),
        System(
            name="best-routing", plan=gold, configure=partial(over_all, bare_question=False, steps=gold_steps),
            missing="" if gold_steps else "no case has a known decomposition",
        ),
        planned("conductor-mini", "mini"), planned("conductor", "auto"),
        planned("conductor-ultra", "ultra", 1), planned("conductor-recursion", "auto", 1),
    ]  # fmt: skip


def _single_worker(worker: Worker, conductor: Conductor) -> System:
    """A single worker, which may be absent."""
    reason = conductor.unavailable.get(worker.name)
    return System(
        name=f"{ALONE}:{worker.name}", plan=lambda _case, _random: baselines.direct_plan(worker),
        configure=partial(baselines.without_planner, workers=(worker,)),
        missing="" if reason is None else reason.message,
    )  # fmt: skip

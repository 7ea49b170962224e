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
from conductor_cli.evals.routing import GENERAL, Keywords, best_of, best_on, by_keyword
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


def _run_answer(trace: Trace, _: Case) -> str:
    return trace.answer


def _unchanged(conductor: Conductor) -> Conductor:
    return conductor


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
    configure: Callable[[Conductor], Conductor] = _unchanged
    answer: Callable[[Trace, Case], str] = _run_answer
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
    return tuple(worker for worker in conductor.pool if worker.kind != SELF and worker.name not in conductor.absent)


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
    best = best_of(workers)
    all_workers = partial(baselines.without_planner, workers=workers)
    best_only = partial(baselines.without_planner, workers=(best,))
    too_few = "" if len(workers) > 1 else "needs at least two workers"
    no_planner = "" if conductor.model is not None else "there is no conductor model"
    plans_only = "" if conductor.profile.render is None else "this conductor model was trained only to plan"
    most_steps = max((len(case.steps) for case in cases), default=0)

    def alone(worker: Worker) -> System:
        reason = conductor.absent.get(worker.name)
        return System(
            name=f"{ALONE}:{worker.name}", plan=lambda _case, _random: baselines.direct_plan(worker),
            configure=partial(baselines.without_planner, workers=(worker,)),
            missing="" if reason is None else reason.message,
        )  # fmt: skip

    def keyword_worker(case: Case) -> Worker:
        return by_keyword(case.question, workers, keywords)

    def pipeline_plan(case: Case, _: Random) -> Plan:
        executor = keyword_worker(case)
        others = [worker for worker in workers if worker.name != executor.name]
        return baselines.pipeline_plan(best, executor, best_of(others or [executor]))

    def gold_plan(case: Case, _: Random) -> Plan | None:
        return baselines.gold_plan(case, partial(best_on, workers)) if case.steps else None

    def conducting(mode: Mode, recursion: int = 0) -> Callable[[Conductor], Conductor]:
        return partial(baselines.with_planner, mode=mode, recursion=recursion)

    return [
        *(alone(worker) for worker in conductor.pool if worker.kind != SELF),
        System(name=BEST_WORKER, plan=lambda _case, _random: baselines.direct_plan(best), configure=best_only),
        System(
            name="random", plan=lambda _, random: baselines.direct_plan(random.choice(workers)), configure=all_workers,
            missing=too_few,
        ),
        System(
            name="keyword", plan=lambda case, _: baselines.direct_plan(keyword_worker(case)), configure=all_workers,
            missing=too_few,
        ),
        System(name="reflection", plan=lambda _case, _random: baselines.reflection_plan(best), configure=best_only),
        System(
            name="vote", plan=lambda _case, _random: baselines.vote_plan(best), answer=ANSWERS["vote"],
            configure=partial(baselines.for_vote, worker=best), independent_steps=True,
        ),
        System(
            name="moa", plan=lambda _case, _random: baselines.mixture_plan(workers, best), configure=all_workers,
            missing=too_few,
        ),
        System(name="pipeline", plan=pipeline_plan, configure=all_workers),
        System(
            name="best-routing", plan=gold_plan,
            configure=partial(baselines.without_planner, workers=workers, bare_question=False, steps=most_steps),
            missing="" if most_steps else "no case has a known decomposition",
        ),
        System(name="conductor-mini", configure=conducting("mini"), missing=no_planner),
        System(name="conductor", configure=conducting("auto"), missing=no_planner),
        System(name="conductor-ultra", configure=conducting("ultra", 1), missing=no_planner or plans_only),
        System(name="conductor-recursion", configure=conducting("auto", 1), missing=no_planner or plans_only),
    ]  # fmt: skip

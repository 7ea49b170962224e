"""Every way to use the workers, each as a plan for the ordinary engine: what is measured is what runs.

A system is a row in `_MAKERS`, made for a pool by a function of `plans` or `written`; `chosen` gives those that a user
names. One that cannot run here is among them, with the reason in `missing`, so that a table can say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Final

from conductor_cli.core.errors import UsageError
from conductor_cli.core.plan import SELF, Plan
from conductor_cli.core.pool import Worker
from conductor_cli.core.trace import Trace
from conductor_cli.evals import baselines
from conductor_cli.evals.cases import Case
from conductor_cli.evals.routing import GENERAL, Keywords, best_of, best_on, by_keyword
from conductor_cli.run import Conductor

ALONE: Final = "alone"
"""Names every worker alone; one of them is `alone:NAME`."""


def _given(trace: Trace, _: Case) -> str:
    return trace.answer


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """One way to use the workers.

    `plan` writes the plan for a case, with a random source that is seeded by case and system; None in place of a plan:
    the case is not for this system; None in place of `plan`: the conductor plans. `fit` changes what a run is given
    (pool, models, profile, mode). `answer` takes the answer out of a finished run. `together`: its steps wait for each
    other only to be counted; the calls could run at once. `missing` says why it cannot run here, empty where it can.
    """

    name: str
    about: str
    missing: str = ""
    plan: Callable[[Case, Random], Plan | None] | None = None
    fit: Callable[[Conductor], Conductor] = lambda conductor: conductor
    answer: Callable[[Trace, Case], str] = _given
    together: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    """What systems are made from: workers that can be asked, in the pool's order, and how to route by words."""

    conductor: Conductor
    workers: tuple[Worker, ...]
    cases: Sequence[Case]
    keywords: Keywords

    @property
    def best(self) -> Worker:
        return best_of(self.workers)

    @property
    def alone(self) -> str:
        """Why a system that chooses or combines cannot run: there is nothing to choose from."""
        return "needs at least two workers" if len(self.workers) < 2 else ""

    @property
    def planless(self) -> str:
        return "there is no conductor model" if self.conductor.model is None else ""

    @property
    def planning(self) -> str:
        """Why a conductor may not be asked to reason or to review."""
        return (
            "" if self.conductor.profile.render is None else "this conductor was trained to plan and to do nothing else"
        )


def select_systems(
    names: str | Sequence[str],
    conductor: Conductor,
    *,
    cases: Sequence[Case] = (),
    keywords: Keywords | None = None,
) -> tuple[System, ...]:
    """The systems named, in order, each once; `all` is every one. Raises `UsageError` for an unknown name.

    `conductor` holds the pool (its cards say who is best, and `absent` who cannot be asked) and, for the systems that
    plan, a model. `cases` tell whether there are gold steps. `keywords` maps tags to the words that betray them.
    """
    wanted = [name.strip() for name in (names.split(",") if isinstance(names, str) else names) if name.strip()]
    every = _every(conductor, cases, GENERAL if keywords is None else keywords)
    found: dict[str, System] = {}
    for name in wanted:
        found |= {system.name: system for system in _named(name, every)}
    if not found:
        raise UsageError("no system is named", hint=f"known: all, {ALONE}, {', '.join(_MAKERS)}")
    return tuple(found.values())


def remarks(conductor: Conductor) -> tuple[str, ...]:
    """What a reader must know: workers ranked without cards, or by cards that nobody measured; a limit left aside."""
    workers = _askable(conductor)
    unknown = [worker.name for worker in workers if not worker.card.strengths]
    guessed = [worker.name for worker in workers if worker.card.strengths and not worker.card.measured]
    said = []
    if unknown and len(unknown) == len(workers):
        said.append(f"no worker has a card: the best worker is taken to be the first, {workers[0].name}")
    elif unknown:
        said.append(f"without a card, and so never taken for the best: {', '.join(unknown)}")
    if guessed:
        said.append(f"cards that were not measured: {', '.join(guessed)}")
    if conductor.limits.seconds is not None:
        said.append("limits.seconds does not count here: runs wait for each other's turns on a model")
    return tuple(said)


def _askable(conductor: Conductor) -> tuple[Worker, ...]:
    return tuple(worker for worker in conductor.pool if worker.kind != SELF and worker.name not in conductor.absent)


def _every(conductor: Conductor, cases: Sequence[Case], keywords: Keywords) -> dict[str, System]:
    """Every system over this pool, by name."""
    workers = _askable(conductor)
    if not workers:
        raise UsageError("no worker of the pool can be asked", hint="conductor doctor says why")
    offer = _Offer(conductor=conductor, workers=workers, cases=cases, keywords=keywords)
    systems = [*_alone(offer), *(make(offer, name) for name, make in _MAKERS.items())]
    return {system.name: system for system in systems}


def _named(name: str, every: Mapping[str, System]) -> Sequence[System]:
    if name == "all":
        return tuple(every.values())
    if name == ALONE:
        return [system for system in every.values() if system.name.startswith(f"{ALONE}:")]
    if name not in every:
        raise UsageError(f"no system is called {name!r}", hint=f"known: all, {ALONE}, {', '.join(every)}")
    return [every[name]]


# Without a conductor


def _alone(offer: _Offer) -> Iterator[System]:
    for worker in offer.conductor.pool:
        if worker.kind == SELF:
            continue
        why = offer.conductor.absent.get(worker.name)
        yield replace(
            _one(f"{ALONE}:{worker.name}", f"{worker.name} answers by itself", partial(_always, worker)),
            fit=partial(baselines.fitted, workers=(worker,)),
            missing="" if why is None else why.message,
        )


def _always(worker: Worker, _case: Case, _random: Random) -> Worker:
    return worker


def _one(name: str, about: str, pick: Callable[[Case, Random], Worker]) -> System:
    """A system that hands the whole question to one worker."""
    return System(name=name, about=about, plan=lambda case, random: baselines.direct(pick(case, random)))


def _single(pick: Callable[[_Offer, Case, Random], Worker], about: str) -> Callable[[_Offer, str], System]:
    """A router, which needs somebody to route to."""

    def make(offer: _Offer, name: str) -> System:
        system = _one(name, about, lambda case, random: pick(offer, case, random))
        return replace(system, fit=lambda conductor: baselines.fitted(conductor, offer.workers), missing=offer.alone)

    return make


def _best(offer: _Offer, name: str) -> System:
    return replace(
        _one(name, f"the best worker by card, {offer.best.name}", lambda _case, _random: offer.best),
        fit=lambda conductor: baselines.fitted(conductor, (offer.best,)),
    )


def _reflection(offer: _Offer, name: str) -> System:
    about = f"{offer.best.name} answers, then improves on what it said, in {baselines.TURNS} turns"
    return System(
        name=name, about=about, plan=lambda _case, _random: baselines.reflecting(offer.best),
        fit=lambda conductor: baselines.fitted(conductor, (offer.best,)),
    )  # fmt: skip


def _vote(offer: _Offer, name: str) -> System:
    about = (
        f"{offer.best.name} answers {baselines.VOTES} times, drawn at a temperature; the most frequent answer counts"
    )
    return System(
        name=name, about=about, plan=lambda _case, _random: baselines.voting(offer.best), together=True,
        fit=lambda conductor: baselines.fitted_to_vote(conductor, offer.best), answer=baselines.majority,
    )  # fmt: skip


def _mixture(offer: _Offer, name: str) -> System:
    about = f"Mixture-of-Agents: all workers answer, {offer.best.name} makes one answer of theirs"
    return System(
        name=name, about=about, plan=lambda _case, _random: baselines.mixing(offer.workers, offer.best),
        fit=lambda conductor: baselines.fitted(conductor, offer.workers), missing=offer.alone,
    )  # fmt: skip


def _pipeline(offer: _Offer, name: str) -> System:
    def plan(case: Case, _: Random) -> Plan:
        executor = by_keyword(case.question, offer.workers, offer.keywords)
        others = [worker for worker in offer.workers if worker.name != executor.name]
        return baselines.piping(offer.best, executor, best_of(others or [executor]))

    about = f"{offer.best.name} plans, the worker that fits the question's words executes, another one verifies"
    return System(
        name=name, about=about, plan=plan, fit=lambda conductor: baselines.fitted(conductor, offer.workers)
    )  # fmt: skip


def _gold(offer: _Offer, name: str) -> System:
    """What is reached when nothing is left to planning: only cases with a known decomposition have it."""

    def plan(case: Case, _: Random) -> Plan | None:
        return baselines.golden(case, lambda skill: best_on(offer.workers, skill)) if case.steps else None

    longest = max((len(case.steps) for case in offer.cases), default=0)
    return System(
        name=name, about="the known decomposition, each step to the worker whose card is best at its skill", plan=plan,
        fit=lambda conductor: baselines.fitted(conductor, offer.workers, directly=False, steps=longest),
        missing="" if longest else "no case has a known decomposition",
    )  # fmt: skip


# With a conductor


def _conducted(
    change: Callable[[Conductor], Conductor], about: str, *, plain: bool = True
) -> Callable[[_Offer, str], System]:
    """A system whose conductor plans; `plain`: and does nothing but plan."""

    def make(offer: _Offer, name: str) -> System:
        return System(name=name, about=about, fit=change, missing=offer.planless or ("" if plain else offer.planning))

    return make


_MAKERS: Final[dict[str, Callable[[_Offer, str], System]]] = {
    "best-worker": _best,
    "random": _single(
        lambda offer, _, random: random.choice(offer.workers), "a worker drawn at random for each question"
    ),
    "keyword": _single(
        lambda offer, case, _: by_keyword(case.question, offer.workers, offer.keywords),
        "the worker whose card is best at what the question's words are about",
    ),
    "reflection": _reflection,
    "vote": _vote,
    "moa": _mixture,
    "pipeline": _pipeline,
    "best-routing": _gold,
    "conductor-mini": _conducted(lambda it: baselines.conducting(it, "mini"), "the conductor names one worker"),
    "conductor": _conducted(lambda it: baselines.conducting(it, "auto"), "the conductor plans"),
    "conductor-ultra": _conducted(
        lambda it: baselines.conducting(it, "ultra", recursion=1),
        "the conductor reasons, plans, and reviews the answer once",
        plain=False,
    ),
    "conductor-recursion": _conducted(
        lambda it: baselines.conducting(it, "auto", recursion=1),
        "the conductor plans, then reviews the answer once",
        plain=False,
    ),
}

NAMES: Final = ("all", ALONE, *_MAKERS)
"""What a user may name, beside `alone:NAME`."""
ANSWERS: Final[dict[str, Callable[[Trace, Case], str]]] = {"vote": baselines.majority}
"""How the answer is taken out of a stored run, for systems that do not just take the run's."""

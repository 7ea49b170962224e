"""Every way to use the workers that an evaluation compares; each runs on the ordinary engine.

A system that cannot run here is still listed, with the reason in `missing`, so that reports can say
what was left out.

`report.py` has where each is from and what was simplified. The prompts are our own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from conductor_cli.core.errors import UsageError
from conductor_cli.core.events import Mode
from conductor_cli.core.plan import SELF, Plan, Step
from conductor_cli.core.plan_formats.base import ANSWER_DIRECTLY
from conductor_cli.core.pool import Limits, Pool, Worker
from conductor_cli.core.profile import SeenStep
from conductor_cli.core.question import Question, fence, question_text
from conductor_cli.core.trace import Trace
from conductor_cli.evals.cases import Case, extract_answer
from conductor_cli.run import Orchestra, Team

VOTE_COUNT: Final = 5
REFLECTION_COUNT: Final = 5
"""How often a worker looks at its own answer: the five turns of reflection of arXiv 2512.04388,
table 7.
"""
# Of a fixed plan: the limit of the settings is meant for plans that a model writes
MAX_FIXED_STEPS: Final = 1000
TEMPERATURE: Final = 0.7
"""Of the samples that are voted on, unless the worker has its own; the value of arXiv
2203.11171.
"""

AGGREGATE: Final = """\
Above are answers to the question by several models. Some may be wrong or biased. Weigh them \
against each other, keep \
what holds, and give one answer of your own, better than each of them, in the form the question \
asks for."""

REFLECTION_SUBTASK: Final = """\
Above is an answer that was given to the question. Check it: is each step right, and does it do \
all that the question \
asks? If it is right, give the same answer again. If it is wrong, give a right one. Use the form \
that the question \
asks for."""


def direct_plan(worker: Worker) -> Plan:
    """One step: the whole question to one worker."""
    return Plan(steps=(Step(worker=worker.name, subtask=ANSWER_DIRECTLY),))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSetup:
    """What the systems of an evaluation differ in: who takes part in a run, and its limits."""

    team: Team
    limits: Limits
    seed: int | None = None

    @classmethod
    def of(cls, orchestra: Orchestra) -> RunSetup:
        """Return the set-up of a run that is not evaluated."""
        return cls(team=orchestra.team, limits=orchestra.limits, seed=orchestra.seed)


def without_planner(
    setup: RunSetup, workers: Sequence[Worker], *, bare_question: bool = True
) -> RunSetup:
    """Return a set-up for fixed plans over these workers."""
    profile = setup.team.worker_profile
    # A worker that gets the whole question reads nothing else
    if bare_question and profile.render is None:
        profile = replace(profile, name="direct", render=_render_prompt)
    team = replace(
        setup.team,
        model=None,
        pool=Pool(workers=tuple(workers)),
        worker_profile=profile,
        notices=(),
    )
    limits = replace(setup.limits, steps=MAX_FIXED_STEPS, recursion=0)
    return replace(setup, team=team, limits=limits)


def for_vote(setup: RunSetup, worker: Worker) -> RunSetup:
    """Return a set-up with the same model under several names, each with its own seed.

    None is shown what another one answered.
    """
    configured = without_planner(setup, _copies(worker, setup.seed or 0))
    team = configured.team
    render = team.worker_profile.render or _render_prompt
    blind = replace(
        team.worker_profile, render=lambda question, step, _: render(question, step, ())
    )
    models = dict.fromkeys(team.pool.names, setup.team.workers[worker.name])
    return replace(configured, team=replace(team, worker_profile=blind, workers=models))


def _copies(worker: Worker, seed: int) -> tuple[Worker, ...]:
    # At temperature 0, or with one seed, all samples would be the same.
    options = {**worker.options, "temperature": worker.options.get("temperature") or TEMPERATURE}
    copies = []
    for number in range(1, VOTE_COUNT + 1):
        worker_copy = replace(
            worker,
            name=f"{worker.name}-{number}",
            copy_of=worker.name,
            options={**options, "seed": seed * VOTE_COUNT + number},
        )
        copies.append(worker_copy)
    return tuple(copies)


def _render_prompt(question: Question, step: Step, seen_steps: Sequence[SeenStep]) -> str:
    """Return what a worker reads in a fixed plan.

    The question, or earlier answers, too, and what to do with them.
    """
    if step.subtask == ANSWER_DIRECTLY:
        return question_text(question)
    answers = []
    for item in seen_steps:
        if item.answer is None:
            continue
        origin = {"step": str(item.number), "worker": item.worker}
        if step.subtask == REFLECTION_SUBTASK:
            # A look at the same answer again must be the same request, so it does not count which
            # look it is.
            origin = {}
        answers.append(fence("answer", item.answer, **origin))
    return "\n\n".join([question_text(question), *answers, step.subtask])


def majority_answer(trace: Trace, case: Case) -> str:
    """Return the answer that most samples gave, as the case's scorer reads them.

    The first one in a tie.
    """
    texts = [record.text for record in trace.steps if record.state == "done"]
    answers = [extract_answer(text, case) for text in texts]
    votes = Counter(filter(None, answers))
    if not votes:
        return trace.answer
    return texts[answers.index(votes.most_common(1)[0][0])]


# For each tag, the words that indicate a question of its kind
Keywords = Mapping[str, Sequence[str]]

GENERAL: Final[Keywords] = {
    "code": (
        "code",
        "function",
        "program",
        "python",
        "javascript",
        "java",
        "rust",
        "sql",
        "bash",
        "regex",
        "json",
    ),
    "math": (
        "calculate",
        "compute",
        "solve",
        "equation",
        "probability",
        "prove",
        "sum",
        "how many",
        "percent",
    ),
    "science": (
        "physics",
        "chemistry",
        "biology",
        "molecule",
        "energy",
        "cell",
        "gene",
        "enzyme",
        "quantum",
    ),
    "writing": (
        "write",
        "rewrite",
        "essay",
        "letter",
        "email",
        "poem",
        "story",
        "summarize",
        "translate",
        "proofread",
    ),
    "reasoning": (
        "why",
        "explain",
        "compare",
        "deduce",
        "puzzle",
        "logic",
        "step by step",
        "strategy",
        "plan",
    ),
    "facts": (
        "who",
        "when",
        "where",
        "capital",
        "history",
        "president",
        "year",
        "country",
        "author",
        "war",
        "founded",
    ),
}
"""The default. A tag that is on no card leads to the best worker overall."""


def best_worker_on(workers: Sequence[Worker], tag: str) -> Worker:
    """Return the strongest worker on `tag`.

    The best overall by its card if the tag is empty or on no card.
    """
    measured = [worker for worker in workers if tag in worker.card.strengths]
    if measured:
        return max(measured, key=lambda worker: worker.card.strengths[tag])
    return Pool(workers=tuple(workers)).best()


def find_tag(text: str, keywords: Keywords) -> str:
    """Return the tag whose words occur most often in `text`, the first one in a tie.

    Empty if no word occurs.
    """
    hits = {}
    for tag, words in keywords.items():
        if words:
            pattern = rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)"
            hits[tag] = len(re.findall(pattern, text, re.IGNORECASE))
    best = max(hits, key=lambda tag: hits[tag], default="")
    if hits.get(best):
        return best
    return ""


ALONE: Final = "alone"  # Stands for every single worker; one of them is `alone:NAME`
BEST_WORKER: Final = "best-worker"
PLANNED: Final = "conductor"  # The system whose runs are planned as they are without evaluation
BEST_ROUTING: Final = "best-routing"
# Stands for every single worker that looks at its own answer; one of them is `reflect:NAME`
REFLECT: Final = "reflect"
NAMES: Final = (
    "all",
    ALONE,
    BEST_WORKER,
    "keyword",
    REFLECT,
    "vote",
    "moa",
    BEST_ROUTING,
    "conductor-mini",
    "conductor",
    "conductor-ultra",
)
"""The names that a user may give, besides `alone:NAME` and `reflect:NAME`."""
DROPPED: Final = (
    dict.fromkeys(("moa-random", "moa-deep"), "moa")
    | dict.fromkeys(("smoothie-global", "smoothie-local"), "vote")
    | dict.fromkeys(("routerdc", "masrouter", "team"), "keyword or conductor-mini")
)
"""Systems of the release before, and what to use instead."""
DEFAULT: Final = f"{BEST_WORKER},keyword,vote,moa,conductor"
"""What is compared if the user names nothing: one system of each idea."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """One way to use the workers."""

    name: str
    # Adapts the set-up of its runs: pool, models, profile, mode, limits
    configure: Callable[[RunSetup], RunSetup]
    # Makes the plan of a case; without it the planner plans
    plan: Callable[[Case], Plan] | None = None
    # The steps are samples, which wait only formally; their most frequent answer counts
    votes: bool = False
    missing: str = ""  # Why the system cannot run here


def select_systems(
    names: str,
    team: Team,
    *,
    cases: Sequence[Case] = (),
    keywords: Keywords | None = None,
    demo_systems: Sequence[System] = (),
) -> tuple[System, ...]:
    """Return the systems of a list with commas, in order and each once.

    Raises `UsageError` for an unknown name.

    `team` has the pool, whose cards say which worker is best, and a model for the systems that
    plan. `keywords` maps tags to the words that indicate them. `demo_systems` are the demo's.
    """
    systems = {}
    for system in (*_build_systems(team, cases, keywords or GENERAL), *demo_systems):
        systems[system.name] = system
    selected: dict[str, System] = {}
    for name in filter(None, map(str.strip, names.split(","))):
        matching = {key: system for key, system in systems.items() if _is_named(key, name)}
        if not matching and name in DROPPED:
            raise UsageError(
                f"the system {name!r} was dropped", hint=f"use instead: {DROPPED[name]}"
            )
        if not matching:
            raise UsageError(
                f"unknown system {name!r}", hint=f"known: all, {ALONE}, {', '.join(systems)}"
            )
        selected |= matching
    if not selected:
        raise UsageError("--systems names no system", hint=f"known: {', '.join(NAMES)}")
    return tuple(selected.values())


def _is_named(system: str, name: str) -> bool:
    """Return whether a name in a list means this system: its own, that of its group, or `all`."""
    return name in ("all", system, system.partition(":")[0])


def needs_planner(names: str) -> bool:
    """Return whether a planner plans in one of the named systems."""
    for name in map(str.strip, names.split(",")):
        if name == "all" or name.startswith(("conductor", "rule")):
            return True
    return False


def unmeasured_workers(team: Team) -> list[str]:
    """Return the workers that can be called and whose card was not measured.

    Which one is best is only assumed.
    """
    return [worker.name for worker in _available_workers(team) if not worker.card.measured]


def _available_workers(team: Team) -> tuple[Worker, ...]:
    pool = team.pool
    absent = team.unavailable
    return tuple(worker for worker in pool.without_self() if worker.name not in absent)


def _build_systems(team: Team, cases: Sequence[Case], keywords: Keywords) -> list[System]:
    workers = _available_workers(team)
    if not workers:
        raise UsageError("no worker of the pool is available", hint="conductor doctor says why")
    best = Pool(workers=workers).best()
    return [
        *_single_workers(team, ALONE),
        System(
            name=BEST_WORKER,
            plan=_fixed(direct_plan(best)),
            configure=partial(without_planner, workers=(best,)),
        ),
        _keyword_system(workers, keywords),
        *_single_workers(team, REFLECT, REFLECTION_COUNT),
        _voting_system(best),
        _mixing_system(workers, best),
        _routing_system(workers, cases),
        System(name="conductor-mini", configure=partial(_with_planner, mode="mini")),
        System(name=PLANNED, configure=partial(_with_planner, mode="auto")),
        _nesting_system(team),
    ]


def _fixed(plan: Plan) -> Callable[[Case], Plan]:
    return lambda _: plan


def _single_workers(team: Team, name: str, looks: int = 0) -> Iterator[System]:
    """Yield a system for every single worker, which may be absent.

    It answers, and looks at its last answer each time.

    A look at an answer that the look before only repeated is the same request, which the response
    cache answers.
    """
    for worker in team.pool:
        if worker.kind == SELF:
            continue
        checks = []
        for number in range(1, looks + 1):
            checks.append(Step(worker=worker.name, subtask=REFLECTION_SUBTASK, access=(number,)))
        missing = ""
        if worker.name in team.unavailable:
            missing = team.unavailable[worker.name].message
        yield System(
            name=f"{name}:{worker.name}",
            plan=_fixed(Plan(steps=(*direct_plan(worker).steps, *checks))),
            configure=partial(without_planner, workers=(worker,)),
            missing=missing,
        )


def _keyword_system(workers: tuple[Worker, ...], keywords: Keywords) -> System:
    """Return the worker that is best at what the words of the question indicate."""

    def plan(case: Case) -> Plan:
        return direct_plan(best_worker_on(workers, find_tag(case.question, keywords)))

    return System(
        name="keyword",
        plan=plan,
        configure=partial(without_planner, workers=workers),
        missing=_too_few(workers),
    )


def _voting_system(best: Worker) -> System:
    # Samples see nothing of each other (`for_vote`); the last one waits, as a run ends with its
    # last step.
    steps = [Step(worker=copy.name, subtask=ANSWER_DIRECTLY) for copy in _copies(best, 0)]
    steps[-1] = replace(steps[-1], access=tuple(range(1, VOTE_COUNT)))
    return System(
        name="vote",
        votes=True,
        plan=_fixed(Plan(steps=tuple(steps))),
        configure=partial(for_vote, worker=best),
    )


def _mixing_system(workers: tuple[Worker, ...], best: Worker) -> System:
    proposals = [Step(worker=worker.name, subtask=ANSWER_DIRECTLY) for worker in workers]
    combined = Step(worker=best.name, subtask=AGGREGATE, access=tuple(range(1, len(workers) + 1)))
    return System(
        name="moa",
        plan=_fixed(Plan(steps=(*proposals, combined))),
        configure=partial(without_planner, workers=workers),
        missing=_too_few(workers),
    )


def _routing_system(workers: tuple[Worker, ...], cases: Sequence[Case]) -> System:
    """Return the case's known decomposition, each step by the worker that is best by its card."""

    def plan(case: Case) -> Plan:
        steps = []
        for step in case.steps:
            worker = best_worker_on(workers, step.skill)
            steps.append(Step(worker=worker.name, subtask=step.subtask, access=step.access))
        return Plan(steps=tuple(steps))

    missing = ""
    if not all(case.steps for case in cases):
        missing = "a case has no known decomposition"
    return System(
        name=BEST_ROUTING,
        plan=plan,
        configure=partial(without_planner, workers=workers, bare_question=False),
        missing=missing,
    )


def _nesting_system(team: Team) -> System:
    # A profile with its own prompt means that the model was trained on that prompt alone.
    missing = ""
    if team.profile.render is not None:
        missing = "this planner was trained only to plan"
    return System(
        name="conductor-ultra",
        configure=partial(_with_planner, mode="ultra", recursion=1),
        missing=missing,
    )


def _too_few(workers: Sequence[Worker]) -> str:
    if len(workers) > 1:
        return ""
    return "needs at least two workers"


def _with_planner(setup: RunSetup, mode: Mode, recursion: int = 0) -> RunSetup:
    team = replace(setup.team, mode=mode, notices=())
    return replace(setup, team=team, limits=replace(setup.limits, recursion=recursion))

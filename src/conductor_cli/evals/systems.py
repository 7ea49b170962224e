"""Every way to use the workers that an evaluation compares; each runs on the ordinary engine.

A system that cannot run here is still listed, with the reason in `missing`, so that reports can say what was left out.

The plans of the systems without a conductor model, how the conductor runs them, and which worker is best. Pure.

`sources.py` has where each is from and what was simplified. The prompts are our own.

The teams that a learned policy chooses from: who answers, and who looks at whose answer.

Whose answer counts where nobody knows the right ones: the worker's with which the others agree the most.

Which worker is probably right, estimated without a single right answer from how much the workers agree.

After Smoothie (Guha et al., arXiv 2412.04692): the vectors of the workers' answers are taken as the vector of the right
answer with noise of its own for each worker. Then the mean squared distances between every two workers determine the
noise of each. Imported only where it runs, because it needs numpy.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import permutations
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from conductor_cli.core.errors import UsageError
from conductor_cli.core.events import Mode
from conductor_cli.core.plan import SELF, Plan, Step
from conductor_cli.core.plan_formats.base import ANSWER_DIRECTLY
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.profile import SeenStep
from conductor_cli.core.question import Question
from conductor_cli.core.quoting import fence, question_text
from conductor_cli.core.trace import Trace
from conductor_cli.evals.cases import Case, extract_answer
from conductor_cli.evals.embeddings import Embedder, HashedNgrams, unit_rows
from conductor_cli.run import Conductor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


VOTES: Final = 5
LOOKS: Final = 5
"""How often a worker looks at its own answer: the five turns of reflection of arXiv 2512.04388, table 7."""
LAYERS: Final = 2
"""Of proposers in the deep Mixture-of-Agents; its authors (arXiv 2406.04692) count the aggregator as a third."""
MAX_FIXED_STEPS: Final = 1000
"""Of a fixed plan: the limit of the settings is meant for plans that a model writes."""
TEMPERATURE: Final = 0.7
"""Of the samples that are voted on, unless the worker has its own; the value of arXiv 2203.11171."""

AGGREGATE: Final = """\
Above are answers to the question by several models. Some may be wrong or biased. Weigh them against each other, keep \
what holds, and give one answer of your own, better than each of them, in the form the question asks for."""

LOOK: Final = """\
Above is an answer that was given to the question. Check it: is each step right, and does it do all that the question \
asks? If it is right, give the same answer again. If it is wrong, give a right one. Use the form that the question \
asks for."""


def direct_plan(worker: Worker) -> Plan:
    """One step: the whole question to one worker."""
    return Plan(steps=(Step(worker=worker.name, subtask=ANSWER_DIRECTLY),))


def vote_plan(worker: Worker) -> Plan:
    """Samples that see nothing of each other (see `for_vote`)."""
    return samples_plan([copy.name for copy in _copies(worker, 0)])


def samples_plan(names: Sequence[str]) -> Plan:
    """An answer of each worker; the last one waits for the others, because a run ends with its last step."""
    samples = [Step(worker=name, subtask=ANSWER_DIRECTLY) for name in names[:-1]]
    everything = tuple(range(1, len(names)))
    return Plan(steps=(*samples, Step(worker=names[-1], subtask=ANSWER_DIRECTLY, access=everything)))


def reflection_plan(worker: Worker, looks: int = LOOKS) -> Plan:
    """The worker answers, then looks at its last answer again and again; the last one counts.

    A look at an answer that the look before only repeated is the same request, which the response cache answers.
    """
    steps = [Step(worker=worker.name, subtask=LOOK, access=(number,)) for number in range(1, looks + 1)]
    return Plan(steps=(Step(worker=worker.name, subtask=ANSWER_DIRECTLY), *steps))


def mixture_plan(workers: Sequence[Worker], aggregator: Worker, layers: int = 1) -> Plan:
    """All workers answer, in further layers all combine the answers of the layer before, and `aggregator` the last."""
    steps = [Step(worker=worker.name, subtask=ANSWER_DIRECTLY) for worker in workers]
    for _ in range(layers - 1):
        before = tuple(range(len(steps) - len(workers) + 1, len(steps) + 1))
        steps += [Step(worker=worker.name, subtask=AGGREGATE, access=before) for worker in workers]
    last = tuple(range(len(steps) - len(workers) + 1, len(steps) + 1))
    return Plan(steps=(*steps, Step(worker=aggregator.name, subtask=AGGREGATE, access=last)))


def drawn_worker(workers: Sequence[Worker], case: Case, seed: int) -> Worker:
    """A worker drawn for a case: the same one for the same seed, whatever else runs."""
    drawn = hashlib.sha256(f"{seed} {case.id}".encode("utf-8", "backslashreplace")).digest()
    return workers[int.from_bytes(drawn[:8], "big") % len(workers)]


def gold_plan(case: Case, workers: Sequence[Worker]) -> Plan:
    """The case's known decomposition, each step by the worker whose card is best for its skill."""
    return Plan(
        steps=tuple(
            Step(worker=best_worker_on(workers, step.skill).name, subtask=step.subtask, access=step.access)
            for step in case.steps
        )
    )


def without_planner(conductor: Conductor, workers: Sequence[Worker], *, bare_question: bool = True) -> Conductor:
    """The conductor for fixed plans over these workers.

    With `bare_question`, a worker that gets the whole question reads nothing else, unless the pool has its own profile.
    """
    profile = conductor.worker_profile
    if bare_question and profile.render is None:
        profile = replace(profile, name="direct", render=_render_prompt)
    return replace(
        conductor, model=None, pool=Pool(workers=tuple(workers)), worker_profile=profile, notices=(),
        limits=replace(conductor.limits, steps=MAX_FIXED_STEPS, recursion=0),
    )  # fmt: skip


def for_vote(conductor: Conductor, worker: Worker) -> Conductor:
    """The same model under several names, each with its own seed; none is shown what another one answered."""
    configured = for_samples(conductor, _copies(worker, conductor.seed or 0))
    return replace(configured, workers=dict.fromkeys(configured.pool.names, conductor.workers[worker.name]))


def for_samples(conductor: Conductor, workers: Sequence[Worker]) -> Conductor:
    """The conductor for `samples_plan`: no worker is shown what another one answered."""
    configured = without_planner(conductor, workers)
    render = configured.worker_profile.render or _render_prompt
    blind = replace(configured.worker_profile, render=lambda question, step, _: render(question, step, ()))
    return replace(configured, worker_profile=blind)


def _copies(worker: Worker, seed: int) -> tuple[Worker, ...]:
    # At temperature 0, or with one seed, all samples would be the same.
    options = {**worker.options, "temperature": worker.options.get("temperature") or TEMPERATURE}
    return tuple(
        replace(worker, name=f"{worker.name}-{number}", options={**options, "seed": seed * VOTES + number})
        for number in range(1, VOTES + 1)
    )


def _render_prompt(question: Question, step: Step, seen: Sequence[SeenStep]) -> str:
    """What a worker reads in a fixed plan: the question alone, or with earlier answers and what to do with them."""
    if step.subtask == ANSWER_DIRECTLY:
        return question_text(question)
    # A look at the same answer again must be the same request, so it does not count which look it is.
    own = step.subtask == LOOK
    answers = [
        fence("answer", item.answer, **({} if own else {"step": str(item.number), "worker": item.worker}))
        for item in seen
        if item.answer is not None
    ]
    return "\n\n".join([question_text(question), *answers, step.subtask])


def majority_answer(trace: Trace, case: Case) -> str:
    """The answer that most samples gave, as the case's scorer reads them; the first one in a tie."""
    texts = [record.text for record in trace.steps if record.state == "done"]
    answers = [extract_answer(text, case) for text in texts]
    votes = Counter(answer for answer in answers if answer)
    if not votes:
        return trace.answer
    return texts[answers.index(votes.most_common(1)[0][0])]


# Which worker is best for a question

Keywords = Mapping[str, Sequence[str]]
"""For each tag, the words that indicate a question of its kind."""

GENERAL: Final[Keywords] = {
    "code": ("code", "function", "program", "python", "javascript", "java", "rust", "sql", "bash", "regex", "json"),
    "math": ("calculate", "compute", "solve", "equation", "probability", "prove", "sum", "how many", "percent"),
    "science": ("physics", "chemistry", "biology", "molecule", "energy", "cell", "gene", "enzyme", "quantum"),
    "writing": ("write", "rewrite", "essay", "letter", "email", "poem", "story", "summarize", "translate", "proofread"),
    "reasoning": ("why", "explain", "compare", "deduce", "puzzle", "logic", "step by step", "strategy", "plan"),
    "facts": ("who", "when", "where", "capital", "history", "president", "year", "country", "author", "war", "founded"),
}  # fmt: skip
"""The default. A tag that is on no card leads to the best worker overall."""


def best_worker(workers: Sequence[Worker]) -> Worker:
    """The worker with the highest mean strength on its card; the first one if no card says anything."""
    return Pool(workers=tuple(workers)).best()


def best_worker_on(workers: Sequence[Worker], tag: str) -> Worker:
    """The strongest worker on `tag`; the best overall if the tag is empty or on no card."""
    known = [worker for worker in workers if tag in worker.card.strengths]
    return max(known, key=lambda worker: worker.card.strengths[tag]) if known else best_worker(workers)


def find_tag(text: str, keywords: Keywords) -> str:
    """The tag whose words occur most often in `text`, the first one in a tie; empty if no word occurs."""
    hits = {tag: len(_pattern(tuple(words)).findall(text)) for tag, words in keywords.items() if words}
    best = max(hits, key=lambda tag: hits[tag], default="")
    return best if hits.get(best) else ""


@lru_cache(maxsize=256)
def _pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)", re.IGNORECASE)


def worker_by_keyword(text: str, workers: Sequence[Worker], keywords: Keywords) -> Worker:
    """The best worker by card for the tag that the words of a question indicate."""
    return best_worker_on(workers, find_tag(text, keywords))


NEIGHBOURS: Final = 20
"""How many of the most similar cases, the case itself included, estimate the noise there."""


def answer_distances(answers: Array) -> Array:
    """The squared distances between the answers of every two workers: (cases, workers, workers).

    `answers` has the vectors of the answers: (cases, workers, dimensions).
    """
    products = np.einsum("nid,njd->nij", answers, answers)
    squares = np.einsum("nii->ni", products)
    distances: Array = np.maximum(squares[:, :, None] + squares[:, None, :] - 2 * products, 0.0)
    return distances


def estimate_noise(distances: Array) -> Array:
    """The mean squared distance of each worker's answer to the unknown right one.

    `distances` are those between every two workers: (workers, workers). For independent noise, that of i is
    (d_ij + d_ik - d_jk) / 2 with any other two workers j and k; this is the mean over all such pairs, in closed form.
    """
    others = len(distances) - 1
    own = distances.sum(axis=1)
    among_others = distances.sum() / 2 - own
    noise: Array = own / others - among_others / (others * (others - 1))
    return noise


def choose_for_all(distances: Array) -> list[int]:
    """For each case the worker with the least noise over all cases: the same one everywhere."""
    best = int(np.argmin(estimate_noise(distances.mean(axis=0))))
    return [best] * len(distances)


def choose_for_each(distances: Array, questions: Array, neighbours: int = NEIGHBOURS) -> list[int]:
    """For each case the worker with the least noise over the cases whose questions are most like it.

    `questions` has the unit vectors of the questions: (cases, dimensions). The worker with less noise over all cases
    wins a tie.
    """
    overall = estimate_noise(distances.mean(axis=0))
    found = []
    for row in questions @ questions.T:
        near = np.argsort(-row, kind="stable")[:neighbours]
        noise = estimate_noise(distances[near].mean(axis=0))
        found.append(int(np.lexsort((overall, np.round(noise, 9)))[0]))
    return found


Form = Literal["alone", "look", "chain", "mixture"]
"""One worker answers; it also looks at its answer; a second one looks at it; all answer and one combines."""

RouterKind = Literal["routerdc", "masrouter"]
ROUTERS: Final[tuple[RouterKind, ...]] = ("routerdc", "masrouter")
"""The systems that learn which team to ask."""
TEAM: Final = "team"
"""What the names of the systems begin with that run one team."""
MAX_WORKERS: Final = 5
"""How many workers form teams, those that are best by their cards: the calls to measure teams grow with the square."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """`workers` take part in `form`; `answers` is the one of them that gives the answer."""

    form: Form
    workers: tuple[str, ...]
    answers: str

    @property
    def sound(self) -> bool:
        """Whether `build_teams` could have made it. A file may say anything."""
        sizes = {"alone": 1, "look": 1, "chain": 2}
        right_size = len(self.workers) == sizes.get(self.form, max(len(self.workers), 2))
        answers = self.answers in self.workers if self.form == "mixture" else self.workers[-1:] == (self.answers,)
        return right_size and answers and len(set(self.workers)) == len(self.workers)

    @property
    def system(self) -> str:
        """The name of the system that runs it."""
        if self.form == "alone":
            return f"alone:{self.answers}"
        who = ">".join(self.workers) if self.form == "chain" else self.answers
        return f"{TEAM}:{self.form}:{who}"

    def plan(self) -> Plan:
        """The plan of a case."""
        if self.form == "mixture":
            first = [Step(worker=name, subtask=ANSWER_DIRECTLY) for name in self.workers]
            everything = tuple(range(1, len(first) + 1))
            return Plan(steps=(*first, Step(worker=self.answers, subtask=AGGREGATE, access=everything)))
        first = [Step(worker=self.workers[0], subtask=ANSWER_DIRECTLY)]
        if self.form == "alone":
            return Plan(steps=tuple(first))
        return Plan(steps=(*first, Step(worker=self.answers, subtask=LOOK, access=(1,))))


def build_teams(workers: Sequence[Worker]) -> tuple[Team, ...]:
    """Every worker alone, and all teams of the best `MAX_WORKERS` of them, which keep their order in the pool."""
    ranked = sorted(workers, key=lambda worker: -worker.card.mean())[:MAX_WORKERS]
    names = [worker.name for worker in workers if worker in ranked]
    everybody = tuple(names)
    found = [Team(form="alone", workers=(worker.name,), answers=worker.name) for worker in workers]
    found += [Team(form="look", workers=(name,), answers=name) for name in names]
    found += [Team(form="chain", workers=pair, answers=pair[1]) for pair in permutations(names, 2)]
    if len(names) > 1:
        found += [Team(form="mixture", workers=everybody, answers=name) for name in names]
    return tuple(found)


MIN_WORKERS: Final = 3
"""Two workers that differ do not say which of them is wrong."""


async def select_by_agreement(
    answered: Sequence[tuple[Case, tuple[str, ...]]], *, embedder: Embedder, local: bool
) -> list[int]:
    """For each case the index of the worker whose answer counts; the right answers are never read.

    Each case has an answer of each worker, in the same order. `local` estimates for each case from the questions most
    like it, else one worker counts everywhere. Raises `ModelError` if the embedder does.
    """
    workers = len(answered[0][1])
    # What a scorer reads is what voting counts too; the texts around it differ between workers that agree.
    texts = [extract_answer(text, case) or text for case, answers in answered for text in answers]
    # Answers repeat: each different one is embedded once.
    distinct = list(dict.fromkeys(texts))
    rows = unit_rows(await embedder.embed(distinct))
    places = {text: place for place, text in enumerate(distinct)}
    vectors = rows[[places[text] for text in texts]].reshape(len(answered), workers, -1)
    distances = answer_distances(vectors)
    if not local:
        return choose_for_all(distances)
    questions = unit_rows(await embedder.embed([case.question for case, _ in answered]))
    return choose_for_each(distances, questions)


ALONE: Final = "alone"
"""Stands for every single worker; one of them is `alone:NAME`."""
BEST_WORKER: Final = "best-worker"
BEST_ROUTING: Final = "best-routing"
REFLECT: Final = "reflect"
"""Stands for every single worker that looks at its own answer; one of them is `reflect:NAME`."""
NAMES: Final = (
    "all", ALONE, BEST_WORKER, "keyword", REFLECT, "vote", "moa", "moa-random", "moa-deep", "smoothie-global",
    "smoothie-local", *ROUTERS, TEAM, BEST_ROUTING, "conductor-mini", "conductor", "conductor-ultra",
)  # fmt: skip
"""The names that a user may give, besides `alone:NAME` and `reflect:NAME`."""
UNTRAINED: Final = "needs --train CASES or --router FILE"
TOO_FEW: Final = "needs at least two workers"
DEFAULT: Final = f"{BEST_WORKER},keyword,vote,moa,conductor"
"""What is compared if the user names nothing: one system of each idea."""


Answered = tuple[Case, tuple[str, ...]]
"""A case, and the answer of each step of its run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """One way to use the workers.

    `plan` makes the plan of a case; without it the conductor model plans. `configure` adapts the conductor that runs
    it: pool, models, profile, mode. `votes`: the steps are samples, which wait for each other only formally, and their
    most frequent answer counts. With `select` they are samples too; once all cases have their answers, it says for each
    case which one counts, by the index of its step. `missing` says why the system cannot run here, empty if it can.
    """

    name: str
    configure: Callable[[Conductor], Conductor]
    plan: Callable[[Case], Plan] | None = None
    votes: bool = False
    select: Callable[[Sequence[Answered]], Awaitable[Sequence[int]]] | None = None
    missing: str = ""

    @property
    def samples(self) -> bool:
        """Whether no step needs another one."""
        return self.votes or self.select is not None


def select_systems(  # noqa: PLR0913 - what single systems need
    names: str,
    conductor: Conductor,
    *,
    cases: Sequence[Case] = (),
    keywords: Keywords | None = None,
    embedder: Embedder | None = None,
    trained: Mapping[str, Mapping[str, Plan]] | None = None,
) -> tuple[System, ...]:
    """The systems of a list with commas, in order and each once. Raises `UsageError` for an unknown name.

    `conductor` has the pool, whose cards say which worker is best, and a model for the systems that plan. `keywords`
    maps tags to the words that indicate them. `embedder` makes vectors of texts, for the systems that compare answers.
    `trained` has the plans of trained routers: by their name, by the id of a case.
    """
    built = _build_systems(conductor, cases, keywords or GENERAL, embedder or HashedNgrams())
    built += [*_teams(conductor), *_trained(conductor, trained or {})]
    known = {system.name: system for system in built}
    found: dict[str, System] = {}
    for name in _split_names(names):
        chosen = {key: system for key, system in known.items() if name in (key, key.partition(":")[0])}
        if name == "all":
            chosen = {key: system for key, system in known.items() if _is_in_all(system)}
        if not chosen:
            listed = [key for key in known if not key.startswith(f"{TEAM}:")]
            raise UsageError(f"unknown system {name!r}", hint=f"known: all, {ALONE}, {', '.join(listed)}")
        found |= chosen
    if not found:
        raise UsageError("--systems names no system", hint=f"known: {', '.join(NAMES)}")
    return tuple(found.values())


def _is_in_all(system: System) -> bool:
    """`all` leaves out the many teams, and routers that are not trained."""
    return not system.name.startswith(f"{TEAM}:") and system.missing != UNTRAINED


def needs_planner(names: str) -> bool:
    """Whether a conductor model plans in one of the named systems."""
    return any(name == "all" or name.startswith("conductor") for name in _split_names(names))


def _split_names(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def available_workers(conductor: Conductor) -> tuple[Worker, ...]:
    """The workers of the pool that can be called; the conductor itself is not one of them."""
    return tuple(
        worker for worker in conductor.pool if worker.kind != SELF and worker.name not in conductor.unavailable
    )


def unmeasured_workers(conductor: Conductor) -> list[str]:
    """The workers whose card was not measured: which one is best is only assumed."""
    return [worker.name for worker in available_workers(conductor) if not worker.card.measured]


def _build_systems(conductor: Conductor, cases: Sequence[Case], keywords: Keywords, embedder: Embedder) -> list[System]:
    """Every system over this pool, in the order of reports."""
    workers = available_workers(conductor)
    if not workers:
        raise UsageError("no worker of the pool is available", hint="conductor doctor says why")
    best = best_worker(workers)
    over_all = partial(without_planner, workers=workers)
    over_best = partial(without_planner, workers=(best,))
    too_few = "" if len(workers) > 1 else TOO_FEW
    # A profile with its own prompt means that the model was trained on that prompt alone.
    plans_only = "" if conductor.profile.render is None else "this conductor model was trained only to plan"

    def keyword_plan(case: Case) -> Plan:
        return direct_plan(worker_by_keyword(case.question, workers, keywords))

    return [
        *(_single_worker(worker, conductor) for worker in conductor.pool if worker.kind != SELF),
        System(name=BEST_WORKER, plan=lambda _: direct_plan(best), configure=over_best),
        System(name="keyword", plan=keyword_plan, configure=over_all, missing=too_few),
        *(_reflecting_worker(worker, conductor) for worker in conductor.pool if worker.kind != SELF),
        System(
            name="vote", plan=lambda _: vote_plan(best), votes=True,
            configure=partial(for_vote, worker=best),
        ),
        *_mixtures(conductor, workers),
        *_agreeing(workers, embedder),
        System(
            name=BEST_ROUTING, plan=lambda case: gold_plan(case, workers),
            configure=partial(over_all, bare_question=False),
            missing="" if all(case.steps for case in cases) else "a case has no known decomposition",
        ),
        System(name="conductor-mini", configure=partial(_with_planner, mode="mini")),
        System(name="conductor", configure=partial(_with_planner, mode="auto")),
        System(
            name="conductor-ultra", configure=partial(_with_planner, mode="ultra", recursion=1),
            missing=plans_only,
        ),
    ]  # fmt: skip


def _single_worker(worker: Worker, conductor: Conductor) -> System:
    """A single worker, which may be absent."""
    reason = conductor.unavailable.get(worker.name)
    return System(
        name=f"{ALONE}:{worker.name}", plan=lambda _: direct_plan(worker),
        configure=partial(without_planner, workers=(worker,)),
        missing="" if reason is None else reason.message,
    )  # fmt: skip


def _reflecting_worker(worker: Worker, conductor: Conductor) -> System:
    """A single worker that looks at its own answer."""
    return replace(
        _single_worker(worker, conductor), name=f"{REFLECT}:{worker.name}",
        plan=lambda _: reflection_plan(worker),
    )  # fmt: skip


def _mixtures(conductor: Conductor, workers: Sequence[Worker]) -> list[System]:
    """Mixture-of-Agents: with the best worker as aggregator, with a random one, and with more layers."""
    best, seed = best_worker(workers), conductor.seed or 0
    plans: dict[str, Callable[[Case], Plan]] = {
        "moa": lambda _: mixture_plan(workers, best),
        "moa-random": lambda case: mixture_plan(workers, drawn_worker(workers, case, seed)),
        "moa-deep": lambda _: mixture_plan(workers, best, LAYERS),
    }
    over_all = partial(without_planner, workers=workers)
    missing = "" if len(workers) > 1 else TOO_FEW
    return [System(name=name, plan=plan, configure=over_all, missing=missing) for name, plan in plans.items()]


def _agreeing(workers: Sequence[Worker], embedder: Embedder) -> list[System]:
    """All workers answer; whose answer counts is estimated from their agreement, over all cases or similar ones."""
    missing = "" if len(workers) >= MIN_WORKERS else "needs at least three workers"
    return [
        System(
            name=f"smoothie-{scope}", plan=lambda _: samples_plan([worker.name for worker in workers]),
            configure=partial(for_samples, workers=workers),
            select=partial(select_by_agreement, embedder=embedder, local=scope == "local"), missing=missing,
        )
        for scope in ("global", "local")
    ]  # fmt: skip


def _teams(conductor: Conductor) -> list[System]:
    """The teams whose outcomes train a router, besides the single workers."""
    workers = available_workers(conductor)
    over_all = partial(without_planner, workers=workers)
    return [
        System(name=team.system, plan=partial(_team_plan, team), configure=over_all)
        for team in build_teams(workers) if team.form != "alone"
    ]  # fmt: skip


def _team_plan(team: Team, _: Case) -> Plan:
    return team.plan()


def _trained(conductor: Conductor, trained: Mapping[str, Mapping[str, Plan]]) -> list[System]:
    """The routers, each with the plan that it made for each case."""
    over_all = partial(without_planner, workers=available_workers(conductor))
    return [
        System(
            name=name, plan=partial(_planned, trained.get(name, {})), configure=over_all,
            missing="" if name in trained else UNTRAINED,
        )
        for name in ROUTERS
    ]  # fmt: skip


def _planned(plans: Mapping[str, Plan], case: Case) -> Plan:
    return plans[case.id]


def _with_planner(conductor: Conductor, mode: Mode, recursion: int = 0) -> Conductor:
    """The conductor itself, in a mode."""
    return replace(conductor, mode=mode, limits=replace(conductor.limits, recursion=recursion), notices=())

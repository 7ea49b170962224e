"""Learns how to plan: a text that a prompted planner reads besides its rules.

GEPA (arXiv 2507.19457) has a model reflect on plans and their answers, and keeps the texts that do
better on questions that the model was not shown.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from decimal import Decimal
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, Final

from conductor_cli.app.evaluation import EvaluationRequest, PreparedEvaluation, open_evaluation
from conductor_cli.app.planner_resolution import planner_manifest, read_guided
from conductor_cli.app.tuning import PLAN, halve, system_name
from conductor_cli.config.settings import Settings
from conductor_cli.core.errors import ConductorUnusable, ConfigError, UsageError
from conductor_cli.core.plan import Plan
from conductor_cli.core.policy import PoolPolicy
from conductor_cli.core.pool import Worker
from conductor_cli.core.profile import Guide, PlannedQuestion
from conductor_cli.evals.cases import Case
from conductor_cli.evals.outcomes import CaseOutcome
from conductor_cli.evals.runner import run_cases
from conductor_cli.evals.systems import RunSetup, System, direct_plan, without_planner
from conductor_cli.run import Team
from conductor_cli.system.installation import extra_command

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
    """GEPA's adapter: runs a candidate's plans, tells how they went, and has other texts written.

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
        self.reserve = self._cost_of_proof()
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
        self.reflector = self._find_reflector(reflector)

    def _cost_of_proof(self) -> Decimal:
        """Return what is kept for the plans that prove, by what plans have cost so far."""
        costs = []
        for (system, _), outcome in self.halves.judged.items():
            if system == PLAN:
                costs.append(outcome.cost or Decimal(0))
        return Decimal(RESERVE) * sum(costs) / max(len(costs), 1) * len(self.halves.proving)

    def _find_reflector(self, name: str) -> Worker:
        """Return the worker of this name, else the model that plans. Raises `UsageError`."""
        if not name:
            assert self.prepared.planner is not None
            return self.prepared.planner
        if name not in self.orchestra.team.pool:
            raise UsageError(f"{name} is none of the workers", hint="--reflector names one of them")
        return self.orchestra.team.pool[name]

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

"""The plans of the systems that need no conductor, and what the runs of each are given. Pure.

Sources: self-reflection in five turns, as the baseline of arXiv 2512.04388; majority vote, arXiv 2203.11171;
Mixture-of-Agents with one layer, arXiv 2406.04692. The words are our own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from conductor_cli.core.events import Mode
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.plan_formats.base import ANSWER_DIRECTLY
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.profile import SeenStep, WorkerProfile
from conductor_cli.core.prompts import question_text
from conductor_cli.core.question import Question
from conductor_cli.core.quoting import fence
from conductor_cli.core.trace import Trace
from conductor_cli.evals.cases import Case, said
from conductor_cli.run import Conductor

TURNS: Final = 5
VOTES: Final = 5
TEMPERATURE: Final = 0.7
"""Of the samples that are voted on, where the worker names none of its own; the value of arXiv 2203.11171."""

REFLECT: Final = """\
Above are your own earlier answers to the question. Read the last one critically: look for mistakes in it, and for \
what it leaves out. Then give the whole answer again, improved where it can be, in the form the question asks for."""
AGGREGATE: Final = """\
Above are answers to the question by several models. Some may be wrong or biased. Weigh them against each other, keep \
what holds, and give one answer of your own, better than each of them, in the form the question asks for."""
PLAN: Final = "Write a short plan of how to answer the question. Do not answer it."
EXECUTE: Final = "Follow the plan and answer the question."
VERIFY: Final = "Check the answer against the question. Give the final answer, corrected where it is wrong."


# Plans


def direct(worker: Worker) -> Plan:
    """One step: the whole question to one worker."""
    return Plan(steps=(Step(worker=worker.name, subtask=ANSWER_DIRECTLY),))


def reflecting(worker: Worker) -> Plan:
    """An answer, then the same worker again and again, which sees all it has said."""
    first = Step(worker=worker.name, subtask=ANSWER_DIRECTLY)
    later = [Step(worker=worker.name, subtask=REFLECT, access=tuple(range(1, turn))) for turn in range(2, TURNS + 1)]
    return Plan(steps=(first, *later))


def voting(worker: Worker) -> Plan:
    """Samples that see nothing of each other (see `fitted_to_vote`).

    The last one waits for the others, since a run ends with its last step.
    """
    names = [copy.name for copy in _copies(worker, 0)]
    samples = [Step(worker=name, subtask=ANSWER_DIRECTLY) for name in names[:-1]]
    return Plan(steps=(*samples, Step(worker=names[-1], subtask=ANSWER_DIRECTLY, access=tuple(range(1, VOTES)))))


def mixing(workers: Sequence[Worker], best: Worker) -> Plan:
    """All answer, and the best makes one answer of theirs."""
    proposals = [Step(worker=worker.name, subtask=ANSWER_DIRECTLY) for worker in workers]
    everything = tuple(range(1, len(proposals) + 1))
    return Plan(steps=(*proposals, Step(worker=best.name, subtask=AGGREGATE, access=everything)))


def piping(planner: Worker, executor: Worker, verifier: Worker) -> Plan:
    """One plans, one executes, one verifies."""
    return Plan(
        steps=(
            Step(worker=planner.name, subtask=PLAN),
            Step(worker=executor.name, subtask=EXECUTE, access=(1,)),
            Step(worker=verifier.name, subtask=VERIFY, access=(1, 2)),
        )
    )


def golden(case: Case, best: Callable[[str], Worker]) -> Plan:
    """The decomposition that the case knows; `best` names the worker for a skill."""
    return Plan(
        steps=tuple(Step(worker=best(step.skill).name, subtask=step.subtask, access=step.access) for step in case.steps)
    )


# What runs are given


def fitted(conductor: Conductor, workers: Sequence[Worker], *, directly: bool = True, steps: int = 0) -> Conductor:
    """A setting for plans over these workers, without a conductor.

    `directly`: a worker that is given the whole question reads just that, unless the pool has a profile of its own.
    `steps`: how many the longest plan has, where that is none of this module's schemes.
    """
    profile = conductor.worker_profile
    if directly and profile.render is None:
        profile = replace(profile, name="direct", render=_rendered)
    steps = max(conductor.limits.steps, TURNS, len(workers) + 1, steps)
    return replace(
        conductor, model=None, pool=Pool(workers=tuple(workers)), worker_profile=profile, remarks=(),
        limits=replace(conductor.limits, steps=steps, recursion=0),
    )  # fmt: skip


def fitted_to_vote(conductor: Conductor, worker: Worker) -> Conductor:
    """The same model under several names, each with a seed of its own; none is shown what another one said."""
    setting = fitted(conductor, _copies(worker, conductor.seed or 0))
    model = conductor.workers[worker.name]
    profile = replace(setting.worker_profile, render=_blind(setting.worker_profile))
    return replace(setting, workers=dict.fromkeys(setting.pool.names, model), worker_profile=profile)


def conducting(conductor: Conductor, mode: Mode, recursion: int = 0) -> Conductor:
    """The conductor itself, in a mode."""
    return replace(conductor, mode=mode, limits=replace(conductor.limits, recursion=recursion), remarks=())


def _copies(worker: Worker, seed: int) -> tuple[Worker, ...]:
    temperature = worker.options.get("temperature") or TEMPERATURE
    return tuple(
        replace(
            worker,
            name=f"{worker.name}-{number}",
            options={**worker.options, "temperature": temperature, "seed": seed * VOTES + number},
        )
        for number in range(1, VOTES + 1)
    )


def _rendered(question: Question, step: Step, seen: Sequence[SeenStep]) -> str:
    """What a worker reads in a fixed scheme: the bare question, or answers to it and what to do with them."""
    if step.subtask == ANSWER_DIRECTLY:
        return question_text(question)
    answers = [
        fence("answer", item.answer, step=str(item.number), worker=item.worker)
        for item in seen
        if item.answer is not None
    ]
    return "\n\n".join([question_text(question), *answers, step.subtask])


def _blind(profile: WorkerProfile) -> Callable[[Question, Step, Sequence[SeenStep]], str]:
    render = profile.render or _rendered
    return lambda question, step, _: render(question, step, ())


# Answers


def majority(trace: Trace, case: Case) -> str:
    """The answer that most samples gave, as the case's scorer understands them; of equals the first."""
    texts = [record.text for record in trace.steps if record.state == "done"]
    meant = [said(text, case) for text in texts]
    counted = Counter(meaning for meaning in meant if meaning)
    if not counted:
        return trace.answer
    return texts[meant.index(counted.most_common(1)[0][0])]

"""The rehearsal as commands use it: its workers with the cards that were measured of them, its problems as cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from conductor_cli.core.errors import ConductorUnusable, ConfigError, UsageError
from conductor_cli.core.pool import Pool, Worker

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.core.question import Question
    from conductor_cli.core.trace import Trace
    from conductor_cli.evals.cases import Case
    from conductor_cli.rehearsal.world import Problem
    from conductor_cli.run import Conductor

NAME: Final = "rehearsal"
"""What it is called on a command line."""

COUNT: Final = 500
"""Cases of an evaluation where no number is asked for."""

CALIBRATION: Final = 600
"""Cases of a calibration where no number is asked for: about two hundred a skill."""


def check_question(question: Question) -> None:
    """Whether the rehearsal's models were trained on such questions. Raises `UsageError` with what they know."""
    from conductor_cli.rehearsal.world import REFUSAL, is_known

    if question.files or question.system:
        said = "the rehearsal's models read the question alone: no files, no system text"
        raise UsageError(said, hint="leave out --file, --system and what is piped in; in a chat, /file - drops files")
    if not is_known(question.text):
        message, _, hint = REFUSAL.partition("; ")
        raise UsageError(message, hint=hint)


def is_ours(trace: Trace) -> bool:
    """Whether a run was the rehearsal's: all its workers are files that ship with this package, wherever that lies."""
    from conductor_cli.rehearsal.workers import path_of

    tails = [(Path(worker.model).parts[-3:], path_of(worker.name).parts[-3:]) for worker in trace.pool]
    return bool(tails) and all(one == other for one, other in tails)


def planner_of(settings: Settings) -> Worker:
    """The conductor that ships with the workers, unless the command line names another. Raises `ConductorUnusable`."""
    from conductor_cli.app import planner_resolution
    from conductor_cli.rehearsal import conducting

    if settings.origins["conductor.model"] == "command line":
        return planner_resolution.resolve_planner(settings)
    if not conducting.path_of().is_file():
        raise ConductorUnusable("the rehearsal's conductor is not in this installation", hint="name one: --conductor")
    return conducting.conductor()


def profiled(conductor: Conductor, planner: Worker | None) -> Conductor:
    """The conductor that speaks to the rehearsal's models as they were trained to be spoken to.

    Raises `UsageError` where it is asked for what they were not trained for.
    """
    from conductor_cli.rehearsal import conducting, workers

    ours = planner is not None and planner == conducting.conductor()
    if ours and (conductor.mode == "ultra" or conductor.limits.recursion):
        said = "the rehearsal's conductor was trained to plan, not to reason or to review answers"
        raise UsageError(said, hint="leave out --mode ultra and --recursion, or name another: --conductor")
    profile = conducting.PROFILE if ours else conductor.profile
    # Without chance a worker says the same again.
    limits = replace(conductor.limits, attempts=1)
    return replace(conductor, profile=profile, worker_profile=workers.PROFILE, limits=limits)


def pool(only: Sequence[str] = ()) -> Pool:
    """The workers, each with its card unless its file has changed since; or those that a command line names.

    Raises `ConfigError` where a file is missing, `UsageError` for an unknown name.
    """
    from conductor_cli.cli.options import choose_workers
    from conductor_cli.config.cards import read_cards
    from conductor_cli.rehearsal import workers

    found = workers.pool()
    missing = [worker.name for worker in found if not Path(worker.model).is_file()]
    if missing:
        said = f"the rehearsal's workers are not in this installation: {', '.join(missing)}"
        raise ConfigError(said, hint="install conductor-llm again")
    cards = read_cards(workers.cards_file())
    carded = Pool(workers=tuple(cards.on(worker) for worker in found))
    return choose_workers(carded, only) if only else carded


def keywords() -> Mapping[str, Sequence[str]]:
    """For each skill, the words that betray it."""
    from conductor_cli.rehearsal.world import KEYWORDS

    return {str(skill): words for skill, words in KEYWORDS.items()}


def held_out(count: int, seed: int) -> tuple[Case, ...]:
    """Fresh problems in words and phrasings that no worker was trained on, of one to three hops."""
    from conductor_cli.rehearsal.world import problems

    return _cases(count, lambda: problems(count, seed, split="test"), hops=True)


def practice(count: int, seed: int) -> tuple[Case, ...]:
    """Fresh problems of one hop as in training: what a worker's skills are measured on, apart from any test."""
    from conductor_cli.rehearsal.world import problems

    return _cases(count, lambda: problems(count, seed, hops=(1,)), hops=False)


def _cases(count: int, draw: Callable[[], Sequence[Problem]], *, hops: bool) -> tuple[Case, ...]:
    try:
        return tuple(_case(problem, hops=hops) for problem in draw())
    except ValueError as error:
        raise UsageError(f"--n {count}: {error}", hint="ask for fewer") from None


def _case(problem: Problem, *, hops: bool) -> Case:
    from conductor_cli.evals.cases import Case, GoldStep

    skills = dict.fromkeys(hop.skill for hop in problem.hops)
    length = f"{len(problem.hops)} hop{'s' if len(problem.hops) > 1 else ''}"
    return Case(
        id=problem.id, question=problem.question, answer=problem.answer,
        tags=(*skills, length) if hops else tuple(skills),
        steps=tuple(GoldStep(skill=hop.skill, subtask=hop.subtask, access=hop.access) for hop in problem.hops),
    )  # fmt: skip

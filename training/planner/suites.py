"""The paper's table in small: published questions, real models, and every way of using them.

    python -m training.planner.suites --models DIR --questions DIR --out DIR

Slices of GSM8K, MBPP, MATH-500 and MMLU-Pro are answered by each worker alone, by the worker that
is the best by card for the suite, by a vote, by a mixture of agents and by plans. The cards are
measured on other questions of the same files. What was answered is never asked again: the same
command goes on, also with a larger `--n`. docs/research/suites.md says where the files come from.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain, product
from pathlib import Path
from random import Random
from typing import Final

from conductor_cli import __version__
from conductor_cli.app.models import find_installed, install_model
from conductor_cli.app.opening import OpeningRequest, open_orchestra
from conductor_cli.app.planner_resolution import open_model_store
from conductor_cli.config.schema import PREFIX
from conductor_cli.config.settings import Settings, load_settings
from conductor_cli.core.errors import ConductorError, ConfigError, UsageError
from conductor_cli.core.pool import Card, Pool, Worker
from conductor_cli.core.serialization import dump
from conductor_cli.evals.cases import Case, hash_cases
from conductor_cli.evals.outcomes import SPEC, CaseOutcome, Evaluation, EvaluationSpec
from conductor_cli.evals.runner import run_cases
from conductor_cli.evals.sandbox import require_sandbox, use_interpreter
from conductor_cli.evals.suite_files import read_suite
from conductor_cli.evals.suites import SUITES, Suite, suite_by_columns
from conductor_cli.evals.summary import summarize
from conductor_cli.evals.systems import ALONE, System, direct_plan, select_systems, without_planner
from conductor_cli.models.response_cache import model_identity
from conductor_cli.models.weights.import_file import import_model
from conductor_cli.models.weights.registry import find_registry_model, load_registry
from conductor_cli.models.weights.verify import hash_file
from conductor_cli.run import Orchestra
from training.planner.suites_models import with_measured_models
from training.planner.suites_table import (
    RIVALS_IN_TOKENS,
    Needed,
    by_suite,
    insert_table,
    table_text,
    verdict_lines,
    without_rivals,
)

SETTINGS: Final = Path(__file__).with_name("suites.toml")
PAGE: Final = Path("docs/research/suites.md")
SEED: Final = 20261129
CALIBRATION: Final = 6  # Questions of each suite that measure the cards, and are in no table
QUESTIONS: Final = 25  # Of each suite: the most that are asked, at which the verdict is made
SYSTEMS: Final = f"{ALONE},by-suite,vote,moa,conductor"
BY_SUITE: Final = "by-suite"
MBPP_TEST: Final = range(11, 511)  # The ids of its test split, in a file with all splits


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A suite in the table: how its file is read, and which kind of work its questions are."""

    suite: Suite
    kind: str


SLICES: Final[Mapping[str, Slice]] = {
    "gsm8k": Slice(suite=SUITES["gsm8k"], kind="math"),
    "mbpp": Slice(suite=SUITES["mbpp"], kind="code"),
    "math500": Slice(suite=SUITES["math500"], kind="math"),
    # Without the five solved questions of its authors' prompt, which would be most of what is read
    "mmlu-pro": Slice(
        suite=suite_by_columns(
            "mmlu-pro", "id=question_id,question=question,choices=options,answer=answer"
        ),
        kind="facts",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """What is asked: to measure the cards, and for the table; of each suite in turn.

    `digests` has the SHA-256 of each suite's file.
    """

    calibration: tuple[Case, ...]
    asked: tuple[Case, ...]
    digests: Mapping[str, str]


def draw_questions(directory: Path, seed: int, calibration: int) -> Questions:
    """Draw the questions of each suite from its file in a directory.

    Those of the table are the same from `CALIBRATION` questions on: more come from behind them.
    Raises `UsageError` for a file that is missing, or is none of its suite.
    """
    digests = dict[str, str]()
    first = list[Sequence[Case]]()
    rest = list[Sequence[Case]]()
    for name, part in SLICES.items():
        path = _file_of(name, directory)
        digests[name] = hash_file(path)
        cases = [
            replace(case, id=f"{name}/{case.id}", tags=(part.kind, name))
            for case in read_suite(part.suite, path)
            if name != "mbpp" or int(case.id) in MBPP_TEST
        ]
        Random(f"{seed} {name}").shuffle(cases)
        begin = min(calibration, CALIBRATION)
        end = begin + QUESTIONS
        first.append([*cases[:begin], *cases[end : end + calibration - begin]])
        rest.append(cases[begin:end])
    return Questions(
        calibration=tuple(chain.from_iterable(zip(*first, strict=True))),
        asked=tuple(chain.from_iterable(zip(*rest, strict=False))),
        digests=digests,
    )


def _file_of(name: str, directory: Path) -> Path:
    for suffix in (".jsonl", ".parquet"):
        path = directory / f"{name}{suffix}"
        if path.is_file():
            return path
    hint = f"{SUITES[name].source}: {PAGE} says where it is"
    raise UsageError(f"{directory} has no {name}.jsonl or {name}.parquet", hint=hint)


# Cards


def check_calibrated(outcomes: Sequence[CaseOutcome]) -> None:
    """Raise `ConfigError` where a run of the calibration failed: its card would be of less."""
    failed = [outcome for outcome in outcomes if outcome.verdict == "failed"]
    if failed:
        problem = f"{len(failed)} runs of the calibration failed, the first with: {failed[0].error}"
        raise ConfigError(problem, hint="the same command asks them again")


def with_cards(orchestra: Orchestra, outcomes: Sequence[CaseOutcome]) -> Orchestra:
    """Return an orchestra whose workers have the cards that calibration measured.

    A card has the kinds of work that planners know; names of suites tell them nothing.
    """
    kinds = list(dict.fromkeys(part.kind for part in SLICES.values()))
    workers = []
    for worker in orchestra.team.pool:
        [result] = summarize(outcomes, [f"{ALONE}:{worker.name}"]).systems
        strengths = {kind: round(result.tags[kind].accuracy or 0.0, 4) for kind in kinds}
        source = f"{result.accuracy.n} questions that are in no table"
        card = Card(strengths=strengths, measured=True, source=source)
        workers.append(replace(worker, card=card))
    return replace(orchestra, team=replace(orchestra.team, pool=Pool(workers=tuple(workers))))


def best_by_suite(pool: Pool, outcomes: Sequence[CaseOutcome]) -> dict[str, Worker]:
    """Return the worker that calibration found the best at each suite.

    Of equals it is the one with more right answers over all suites, then the first.
    """
    right = dict[tuple[str, str], int]()
    for outcome in outcomes:
        for group in (outcome.case.partition("/")[0], ""):
            key = (outcome.system, group)
            right[key] = right.get(key, 0) + outcome.right

    def rank(worker: Worker, suite: str) -> tuple[int, int]:
        system = f"{ALONE}:{worker.name}"
        return right.get((system, suite), 0), right.get((system, ""), 0)

    return {suite: max(pool, key=partial(rank, suite=suite)) for suite in SLICES}


def compared_systems(orchestra: Orchestra, calibrated: Sequence[CaseOutcome]) -> tuple[System, ...]:
    """Return the systems of the table."""
    pool = orchestra.team.pool
    best = best_by_suite(pool, calibrated)
    by_card = System(
        name=BY_SUITE,
        plan=lambda case: direct_plan(best[case.id.partition("/")[0]]),
        configure=partial(without_planner, workers=tuple(pool)),
    )
    return select_systems(SYSTEMS, orchestra.team, demo_systems=[by_card])


# Answering


def open_stored(
    directory: Path,
    orchestra: Orchestra,
    systems: Sequence[System],
    cases: Sequence[Case],
    planner: Worker | None,
) -> Evaluation:
    """Return the evaluation of a directory, or a new one.

    Raises `UsageError` where it is one of other questions, models or settings.
    """
    team = orchestra.team
    identity = [
        hash_cases(cases),
        [system.name for system in systems],
        [[worker.name, dump(worker.card), model_identity(worker)] for worker in team.pool],
        None if planner is None else [model_identity(planner), team.name, team.profile.name],
        orchestra.limits,
        SEED,
    ]
    spec = EvaluationSpec(
        source="gsm8k, mbpp, math500, mmlu-pro",
        hash=hash_cases(cases),
        cases=len(cases),
        systems=tuple(system.name for system in systems),
        workers=team.pool.names,
        seed=SEED,
        planner_id=None if planner is None else model_identity(planner),
        conductor=team.name,
        identity=json.loads(json.dumps(dump(identity))),
        version=__version__,
        time=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
    )
    if not (directory / SPEC).exists():
        return Evaluation.create(directory, spec, cases)
    stored = Evaluation(directory)
    if stored.spec.identity != spec.identity:
        message = f"{directory} has answers to other questions, by other models or other settings"
        raise UsageError(message, hint="name another directory: --out DIR")
    return stored


async def answer_all(
    stored: Evaluation, systems: Sequence[System], orchestra: Orchestra, cases: Sequence[Case]
) -> None:
    """Answer what is not answered yet, and say of each answer what became of it."""
    runs = set(product([system.name for system in systems], [case.id for case in cases]))
    done = sum((system, case) in runs for system, case, _ in stored.judged())
    total = len(runs)
    print(f"{stored.directory.name}: {done} of {total} are answered", flush=True)
    async with aclosing(run_cases(stored, systems, orchestra, cases=cases, parallel=1)) as outcomes:
        async for outcome in outcomes:
            done += 1
            line = f"{done} of {total}: {outcome.case}, {outcome.system}: {outcome.verdict}"
            line += f", {outcome.usage.tokens:,} tokens, {outcome.usage.seconds:.1f} s"
            if outcome.error:
                line += f": {outcome.error}"
            print(line, flush=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What the table is made of."""

    outcomes: tuple[CaseOutcome, ...]
    systems: tuple[str, ...]
    notes: tuple[str, ...]


async def answer_suites(
    settings: Settings, questions: Questions, count: int, rivals: int, directory: Path
) -> Answered:
    """Measure the cards, then ask `count` questions of each suite under every system.

    The vote and the mixture are asked `rivals` of them. All goes on where it was stopped. Raises
    `UsageError` for more questions than there may be.
    """
    for option, value in (("--n", count), ("--rivals", rivals)):
        if not 0 <= value <= QUESTIONS:
            raise UsageError(
                f"{option} {value} is not from 0 to {QUESTIONS}", hint=f"{PAGE} says why"
            )
    use_interpreter(require_sandbox(settings["eval.python"]))
    opened = await open_orchestra(OpeningRequest(settings=settings, seed=SEED))
    try:
        orchestra = with_measured_models(opened.orchestra)
        alone = select_systems(ALONE, orchestra.team)
        calibration = open_stored(
            directory / "calibration", orchestra, alone, questions.calibration, None
        )
        await answer_all(calibration, alone, orchestra, questions.calibration)
        calibrated = calibration.outcomes()
        check_calibrated(calibrated)
        orchestra = with_cards(orchestra, calibrated)
        systems = compared_systems(orchestra, calibrated)
        stored = open_stored(
            directory / "answers", orchestra, systems, questions.asked, opened.planner
        )
        asked = questions.asked[: count * len(SLICES)]
        # The dearest ways come last: workers and plans can be compared before
        cheaper = [system for system in systems if system.name not in RIVALS_IN_TOKENS]
        await answer_all(stored, cheaper, orchestra, asked)
        await answer_all(stored, systems, orchestra, asked[: rivals * len(SLICES)])
        best = best_by_suite(orchestra.team.pool, calibrated)
        notes = _notes(orchestra, best, questions)
        names = tuple(system.name for system in systems)
        return Answered(outcomes=stored.outcomes(), systems=names, notes=notes)
    finally:
        await opened.close()


def _notes(
    orchestra: Orchestra, best: Mapping[str, Worker], questions: Questions
) -> tuple[str, ...]:
    """Return what was run: the planner, and the workers with the cards that they were given."""
    notes = [f"planner: `{orchestra.team.name}`, profile `{orchestra.team.profile.name}`"]
    for worker in orchestra.team.pool:
        card = ", ".join(f"{kind} {value:.2f}" for kind, value in worker.card.strengths.items())
        most = worker.options.get("max_tokens", "no limit of")
        about = f", {worker.about}" if worker.about else ""
        notes.append(
            f"`{worker.name}`: {Path(worker.model).name}{about}, {most} tokens an answer; "
            f"card: {card}"
        )
    chosen = ", ".join(f"{suite} `{worker.name}`" for suite, worker in best.items())
    each = len(questions.calibration) // len(SLICES)
    notes.append(f"cards are from {each} other questions of each suite; `{BY_SUITE}`: {chosen}")
    notes.append(f"seed {SEED}, version {__version__}")
    return tuple(notes)


# The command


def settings_of(file: Path, models: Path, out: Path) -> Settings:
    """Return the settings of a file, in which {models} stands for a directory.

    All that is stored lies below `out`, and no setting of the user counts.
    """
    path = out / "config.toml"
    path.write_text(file.read_text().replace("{models}", str(models.absolute())))
    environ = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    for directory in ("CONFIG", "STATE", "DATA", "CACHE"):
        environ[f"{PREFIX}{directory}_DIR"] = str(out / directory.lower())
    return load_settings(environ, {}, str(path))


def install_planner(settings: Settings, models: Path) -> None:
    """Put a planner of this package into the store of the settings, on its base from a directory.

    Does nothing where another model plans, or it is there. Raises `ConductorError`.
    """
    name = settings["planner.model"]
    packaged = [model.name for model in load_registry(settings.environ) if model.is_packaged]
    if name not in packaged:
        return
    planner = find_registry_model(name, settings.environ)
    if find_installed(planner, settings) is not None:
        return
    base = find_registry_model(planner.base, settings.environ)
    file = models / Path(base.parts[0].file).name
    if not file.is_file():
        raise ConfigError(f"{models} has no {file.name}", hint=f"it is in {base.repo} on the hub")
    store = open_model_store(settings)
    import_model(file, store, settings.environ, _no_report, name=base.name)
    install_model(planner, settings, _no_report)


def _no_report(_what: str, _done: int, _total: int) -> None:
    """Say nothing of how far a file is read: it takes seconds."""


def _read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training.planner.suites")
    parser.add_argument("--models", type=Path, required=True, help="the directory of GGUF files")
    parser.add_argument("--questions", type=Path, required=True, help="the directory of the suites")
    parser.add_argument("--out", type=Path, required=True, help="where answers are stored")
    most = f"questions of each suite, at most {QUESTIONS}; with 0 only the table is written"
    parser.add_argument("--n", type=int, default=QUESTIONS, help=most)
    few = "questions of each suite that the vote and the mixture answer, whose tokens are compared"
    parser.add_argument("--rivals", type=int, default=QUESTIONS, help=few)
    parser.add_argument("--calibration", type=int, default=CALIBRATION)
    parser.add_argument("--settings", type=Path, default=SETTINGS)
    parser.add_argument("--page", type=Path, default=PAGE, help="the page that gets the table")
    return parser.parse_args()


def main() -> int:
    """Ask what is missing, write the table into the page, and print the verdict."""
    given = _read_arguments()
    try:
        given.out.mkdir(parents=True, exist_ok=True)
        questions = draw_questions(given.questions, SEED, given.calibration)
        settings = settings_of(given.settings, given.models, given.out.absolute())
        install_planner(settings, given.models)
        answered = asyncio.run(answer_suites(settings, questions, given.n, given.rivals, given.out))
    except ConductorError as error:
        print(f"{error.message}; {error.hint}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped: what was answered is stored; the same command goes on", file=sys.stderr)
        return 130
    needed = Needed(answers=QUESTIONS, rivals=given.rivals)
    table = table_text(
        answered.outcomes, answered.systems, questions.digests, needed, answered.notes
    )
    page = given.page.read_text() if given.page.is_file() else ""
    given.page.write_text(insert_table(page, table))
    systems = answered.systems
    compared = by_suite(answered.outcomes, [*SLICES], without_rivals(systems))
    suites = by_suite(answered.outcomes, [*SLICES], systems)
    print("\n".join(verdict_lines(compared, suites, systems, needed)))
    print(f"the table is in {given.page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

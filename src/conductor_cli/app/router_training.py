"""Training routers on a user's own cases: which answers are needed, and what is learned from them.

The answers are an ordinary evaluation of the training cases under every team. It is stored, continued and listed like
any other, and once it is finished no call is made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Final

from conductor_cli.app.conductor_factory import open_conductor
from conductor_cli.app.evaluation import EvaluationRequest, load_cases, open_embedder, worker_identities
from conductor_cli.app.rehearsal import NAME as REHEARSAL
from conductor_cli.config import Settings
from conductor_cli.core.errors import UsageError, describe_system_error
from conductor_cli.evals.cases import NAME as BASICS
from conductor_cli.evals.cases import Case
from conductor_cli.evals.embeddings import unit_rows
from conductor_cli.evals.outcomes import Evaluation
from conductor_cli.evals.systems import ALONE, ROUTERS, TEAM, RouterKind, available_workers, build_teams
from conductor_cli.evals.trained_routers import (
    LEAST_CASES,
    TrainedRouter,
    TrainingData,
    check_apart,
    hash_question,
    too_few_cases,
    train_router,
)
from conductor_cli.models.disk import write_atomically

MADE: Final = 120
"""Training cases of a built-in set."""


def load_training_cases(source: str, request: EvaluationRequest) -> tuple[str, tuple[Case, ...]]:
    """The set's name and its cases: those of a file, or of a built-in set the cases of the next seed.

    Raises `UsageError` if a file has a question that is also compared on or too few, or no router is to be trained.
    """
    if not kinds_to_train(request):
        hint = f"for example: --systems best-worker,{ROUTERS[0]} --train {source}"
        raise UsageError(f"--train is for {' and '.join(ROUTERS)}, and --systems names neither", hint=hint)
    made = source in (REHEARSAL, BASICS)
    name, cases = load_cases(source, file=None, count=MADE if made else None, seed=request.seed + 1)
    if made:
        # Such short questions repeat by chance.
        compared = {hash_question(case.question) for case in request.cases}
        return name, tuple(case for case in cases if hash_question(case.question) not in compared)
    # Known before anything is paid for.
    if len(cases) < LEAST_CASES:
        raise too_few_cases(len(cases))
    check_apart([hash_question(case.question) for case in cases], request.cases)
    return name, cases


def training_request(request: EvaluationRequest, source: str, cases: Sequence[Case]) -> EvaluationRequest:
    """The evaluation whose outcomes a router learns from: each worker alone and, for masrouter, every team."""
    systems = f"{ALONE},{TEAM}" if "masrouter" in kinds_to_train(request) else ALONE
    return replace(request, source=source, cases=tuple(cases), systems=systems, routers=(), reuse=True, repeat=1)


async def train_routers(
    request: EvaluationRequest, kinds: Sequence[RouterKind], stored: Evaluation, settings: Settings
) -> list[tuple[TrainedRouter, Path]]:
    """Train the routers of these kinds on the stored outcomes of `training_request`, and write each into its directory.

    Raises `UsageError` if too few cases were judged, or a file cannot be written; `ModelError` if the embedder fails.
    """
    opened = await open_conductor(
        settings, only=request.workers, planning=False, rehearsal=request.rehearsal, day_limits=False
    )
    try:
        conductor = opened.conductor
        async with open_embedder(request.embeddings, settings) as embedder:
            vectors = unit_rows(await embedder.embed([case.question for case in request.cases]))
        data = TrainingData(
            cases=request.cases, outcomes=stored.outcomes(), teams=build_teams(available_workers(conductor)),
            workers=worker_identities(conductor), vectors=vectors, embedder=embedder.name, source=request.source,
            seed=request.seed,
        )  # fmt: skip
        return [_written(train_router(kind, data), stored.directory) for kind in kinds]
    finally:
        await opened.close()


def with_trained_routers(
    request: EvaluationRequest, stored: Evaluation, routers: Sequence[TrainedRouter]
) -> EvaluationRequest:
    """The request with these routers, and with what their training has left of the money."""
    left = None if request.max_cost is None else max(request.max_cost - stored.spent(), Decimal(0))
    kept = tuple(each for each in request.routers if each.kind not in {router.kind for router in routers})
    return replace(request, routers=(*kept, *routers), max_cost=left)


def kinds_to_train(request: EvaluationRequest) -> list[RouterKind]:
    """The routers to train: those that are named and not given by a file."""
    named = {name.strip() for name in request.names.split(",")}
    given = {router.kind for router in request.routers}
    return [kind for kind in ROUTERS if kind in named and kind not in given]


def _written(router: TrainedRouter, directory: Path) -> tuple[TrainedRouter, Path]:
    path = directory / f"{router.kind}.json"
    try:
        write_atomically(path, router.text, mode=0o600)
    except OSError as error:
        message = f"cannot write {path}: {describe_system_error(error)}"
        raise UsageError(message, hint="make it writable and free some space") from None
    return router, path

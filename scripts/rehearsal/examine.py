"""Evaluates a trained conductor over several seeds, and says how long each part took."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from conductor_cli.core.errors import ConfigError
from conductor_cli.models.catalog import open_model
from conductor_cli.rehearsal.players import conductor_path, rehearsal_conductor
from scripts.rehearsal.asking import Bank
from scripts.rehearsal.bounds import TABLE
from scripts.rehearsal.examination import Examination, Planners, Values
from scripts.rehearsal.figures import Measured
from scripts.rehearsal.final_phrasings import Phrasings, draw
from scripts.rehearsal.planning import StoredModel
from scripts.rehearsal.rollouts import DrawnPools, build_rollouts
from scripts.rehearsal.store import Store
from scripts.rehearsal.worker_table import Row

if TYPE_CHECKING:
    from scripts.rehearsal.routing import Routers

Say = Callable[[str], None]


def _be_silent(_: str) -> None: ...


def evaluate_conductor(
    directory: Path, path: Path | None = None, *, count: int = 500, seed: int = 2026
) -> tuple[Row, ...]:
    """The table of the conductor in `path`, or of the shipped one, over the workers in `directory`, for one seed."""
    estimates = examine(directory, path, count=count, seeds=(seed,)).estimates(TABLE)
    return tuple(estimate.row() for estimate in estimates)


def examine(  # noqa: PLR0913 - one for each option
    directory: Path,
    path: Path | None = None,
    *,
    cold: Path | None = None,
    count: int = 500,
    seeds: Sequence[int] = (1, 2, 3),
    store: Path | None = None,
    say: Say = _be_silent,
) -> Measured:
    """What the conductor in `path` and its rivals reach. Without torch, those that learn are left out."""
    with Store(store or ":memory:") as opened:
        return asyncio.run(_examine(directory, path or conductor_path(), cold, count, seeds, opened, say))


async def _examine(  # noqa: PLR0913, PLR0917 - one for each option
    directory: Path, path: Path, cold: Path | None, count: int, seeds: Sequence[int], store: Store, say: Say
) -> Measured:
    planners = Planners(conductor=_opened(path, store), cold=_opened(cold, store) if cold is not None else None)
    try:
        async with Bank(directory, store) as bank:
            rollouts = build_rollouts(bank)
            routers = await _routers(rollouts, say)
            found = [await _of_seed(rollouts, bank, planners, routers, count, seed, say) for seed in seeds]
    finally:
        await planners.conductor.close()
        if planners.cold is not None:
            await planners.cold.close()
    return Measured.of_one(found, count=count)


def examine_phrasings(  # noqa: PLR0913 - one for each option
    directory: Path,
    path: Path | None,
    phrasings: Phrasings,
    *,
    count: int = 500,
    seeds: Sequence[int] = (1, 2, 3),
    store: Path | None = None,
) -> Measured:
    """What the conductor in `path` reaches in phrasings that were written for the last measurement."""
    with Store(store or ":memory:") as opened:
        return asyncio.run(_examine_phrasings(directory, path or conductor_path(), phrasings, count, seeds, opened))


async def _examine_phrasings(  # noqa: PLR0913, PLR0917 - one for each option
    directory: Path, path: Path, phrasings: Phrasings, count: int, seeds: Sequence[int], store: Store
) -> Measured:
    planners = Planners(conductor=_opened(path, store))
    found = []
    try:
        async with Bank(directory, store) as bank:
            for seed in seeds:
                examination = Examination(build_rollouts(bank), bank, planners, None, count, seed)
                found.append(await examination.of_questions(draw(phrasings, count, seed)))
    finally:
        await planners.conductor.close()
    return Measured.of_one(found, count=count)


def _opened(path: Path, store: Store) -> StoredModel:
    return StoredModel(open_model(rehearsal_conductor(path), environ={}), path, store)


async def _routers(rollouts: DrawnPools, say: Say) -> Routers | None:
    """The learned routers; None without torch."""
    began = time.monotonic()
    try:
        from scripts.rehearsal.routing import learned_routers
    except ConfigError:
        return None
    routers = await learned_routers(rollouts.answers)
    say(f"learned routers, {time.monotonic() - began:.0f} s")
    return routers


async def _of_seed(  # noqa: PLR0913, PLR0917 - what an examination is made of
    rollouts: DrawnPools, bank: Bank, planners: Planners, routers: Routers | None, count: int, seed: int, say: Say
) -> Values:
    values = await Examination(rollouts, bank, planners, routers, count, seed).measure(say)
    if routers is None:
        return values
    from scripts.rehearsal.shift import QUESTIONS, Stream

    began = time.monotonic()
    values |= await Stream(rollouts, planners.conductor, seed, min(count, QUESTIONS)).measure()
    say(f"seed {seed}: the mix shifts, {time.monotonic() - began:.0f} s")
    return values

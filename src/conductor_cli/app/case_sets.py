"""From a word on the command line to cases: a set that is built in, or a file."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from conductor_cli.app import rehearsal
from conductor_cli.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conductor_cli.evals.cases import Case

BASICS: Final = "basics"

MOST: Final = 20_000
"""Cases of a set that is built in: it gives more only slowly, and they tell no more."""


def load_cases(source: str, *, form: str | None, count: int | None, seed: int) -> tuple[str, tuple[Case, ...]]:
    """The set's name and its cases. Sets that are built in are drawn anew for each seed; of a file, a part is drawn.

    `form` is the published set that a file holds. Raises `UsageError` with file and line of what is wrong.
    """
    if source in (rehearsal.NAME, BASICS) and form is None and (count or 0) > MOST:
        raise UsageError(f"--n {count}: at most {MOST:,} cases of {source} are drawn", hint="ask for fewer")
    if source == rehearsal.NAME and form is None:
        return source, rehearsal.draw_test_cases(count or rehearsal.EVAL_CASES, seed)
    if source == BASICS and form is None:
        return source, basics(count, seed)
    path = Path(source).expanduser()
    name = str(path.absolute()) if path.name in (rehearsal.NAME, BASICS) else path.name
    return name, sample_cases(_read(path, form, seed), count, seed)


def basics(count: int | None, seed: int) -> tuple[Case, ...]:
    """The small set of our own. Raises `UsageError` where there are not so many."""
    from conductor_cli.evals.builtin import COUNT, basics

    try:
        return basics(count or COUNT, seed)
    except ValueError as error:
        raise UsageError(f"--n {count}: {error}", hint="ask for fewer") from None


def _read(path: Path, form: str | None, seed: int) -> tuple[Case, ...]:
    if form is not None:
        from conductor_cli.evals.converters import convert

        return convert(form, path, seed)
    from conductor_cli.evals.cases import read_cases

    if not path.exists() and not path.suffix:
        raise UsageError(
            f"{path} is no file, and no set that is built in", hint=f"built in: {rehearsal.NAME}, {BASICS}"
        )
    return read_cases(path)


def sample_cases(cases: Sequence[Case], count: int | None, seed: int) -> tuple[Case, ...]:
    """So many of the cases, drawn by the seed, in their own order; all where no number is asked for."""
    if count is None or count == len(cases):
        return tuple(cases)
    if count > len(cases):
        raise UsageError(f"--n {count}: the file holds {len(cases)} cases", hint="leave --n out to take all")
    drawn = Random(seed).sample(range(len(cases)), count)  # noqa: S311 - a reproducible draw, no secret
    return tuple(cases[index] for index in sorted(drawn))

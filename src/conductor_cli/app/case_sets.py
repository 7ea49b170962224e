"""From a name on the command line to cases: a built-in set, or a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

from conductor_cli.app import rehearsal
from conductor_cli.core.errors import UsageError
from conductor_cli.evals.builtin import COUNT, NAME, make_basics
from conductor_cli.evals.cases import Case, read_cases
from conductor_cli.evals.converters import convert

MAX_BUILTIN: Final = 20_000
"""The most cases of a built-in set: more take long to make and measure nothing better."""


def load_cases(source: str, *, form: str | None, count: int | None, seed: int) -> tuple[str, tuple[Case, ...]]:
    """The set's name and its cases. `seed` makes those of a built-in set, and chooses `count` from a file.

    `form` is the published set that a file contains. Raises `UsageError`, with the line if a file is wrong.
    """
    builtin = source in (rehearsal.NAME, NAME) and form is None
    if builtin and (count or 0) > MAX_BUILTIN:
        raise UsageError(f"--n {count}: {source} has at most {MAX_BUILTIN:,} cases", hint="ask for fewer")
    if builtin and source == rehearsal.NAME:
        return source, rehearsal.draw_test_cases(count or rehearsal.EVAL_CASES, seed)
    if builtin:
        try:
            return source, make_basics(count or COUNT, seed)
        except ValueError as error:
            raise UsageError(f"--n {count}: {error}", hint="ask for fewer") from None

    path = Path(source).expanduser()
    if form is not None:
        cases = convert(form, path, seed)
    elif not path.exists() and not path.suffix:
        raise UsageError(
            f"{path} is neither a file nor a built-in set", hint=f"the built-in sets: {rehearsal.NAME}, {NAME}"
        )
    else:
        cases = read_cases(path)
    # A file that is called like a built-in set must not be taken for it when results are compared.
    name = str(path.absolute()) if path.name in (rehearsal.NAME, NAME) else path.name
    return name, sample_cases(cases, count, seed)


def sample_cases(cases: Sequence[Case], count: int | None, seed: int) -> tuple[Case, ...]:
    """A sample of `count` cases in their own order, chosen by the seed; all of them without a count."""
    if count is None or count == len(cases):
        return tuple(cases)
    if count > len(cases):
        raise UsageError(f"--n {count}: the file holds {len(cases)} cases", hint="leave out --n to take all")
    chosen = Random(seed).sample(range(len(cases)), count)  # noqa: S311 - reproducible, no secret
    return tuple(cases[index] for index in sorted(chosen))

"""Reads the file of a suite: JSON Lines, a JSON list, CSV, and Parquet with an extra.

Files are not trusted: a row that is damaged, cut off or of another kind is an error that names it.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

from conductor_cli.core.errors import ConfigError, UsageError
from conductor_cli.core.formatting import format_size
from conductor_cli.evals.cases import MAX_FILE_SIZE, Case, check_case, read_case_file
from conductor_cli.evals.suites import Reader, Row, Suite
from conductor_cli.system.installation import extra_command

MAX_TABLE: Final = 2_000_000_000  # Bytes of a Parquet file
MAX_EXAMPLES: Final = 10_000  # Rows of a file of solved questions that are read


def read_suite(
    suite: Suite, path: Path, *, count: int | None = None, seed: int = 0
) -> tuple[Case, ...]:
    """Return the cases of a suite from its file, in the order of the file.

    All of them, or `count` that the seed chooses. `seed` also shuffles choices. Only what is chosen
    is read. Raises `UsageError` for a file that cannot be read, a row that is not of this suite, or
    fewer cases than `count`.
    """
    hint = f"use {suite.source}"
    rows, read_row = _open_file_of(suite, path)
    reader = suite.reader
    if suite.reader_with is not None:
        reader = suite.reader_with(_examples_beside(suite, path))
    if not rows:
        raise UsageError(f"{path} contains no rows", hint=hint)
    order = list(range(rows))
    if count is not None:
        Random(seed).shuffle(order)  # noqa: S311 - reproducible, no secret
    cases: dict[str, tuple[int, Case]] = {}
    found = set[str]()
    for index in order:
        number = index + 1
        row = None
        try:
            row = read_row(index)
            case = _read_case(row, reader, number, seed)
            found.update(row)
        except (KeyError, ValueError, RecursionError, MemoryError, UsageError) as error:
            problem = _problem_of_row(error, row)
            raise UsageError(
                f"{path}, row {number}: not a row of {suite.name}: {problem}", hint=hint
            ) from None
        if case is None:
            continue
        if case.id in cases:
            message = (
                f"{path}, row {number}: row {cases[case.id][0]} has the same id {case.id!r:.80}"
            )
            raise UsageError(message, hint=hint)
        cases[case.id] = number, case
        if len(cases) == count:
            break
    if count is not None and len(cases) < count:
        raise UsageError(
            f"--n {count}: the file holds {len(cases)} cases", hint="leave out --n to take all"
        )
    for column in suite.reader_columns:
        if column not in found:
            named = ", ".join(sorted(found))
            raise UsageError(f"{path}: no row has {column!r:.60}; its columns are {named:.200}")
    if not cases:
        raise UsageError(f"{path} has no case that {suite.name} takes", hint=hint)
    return tuple(case for _, case in sorted(cases.values(), key=lambda item: item[0]))


def _read_case(row: object, reader: Reader, number: int, seed: int) -> Case | None:
    """Return the case of a row; None where the suite takes none of it.

    Raises `KeyError`, `ValueError` or `UsageError` where the row is not of the suite.
    """
    if not isinstance(row, Mapping):
        raise ValueError("it is not an object")  # noqa: TRY004 - the file's fault
    case = reader(row, number, seed)
    if case is not None:
        check_case(case)
    return case


def _problem_of_row(error: Exception, row: object) -> str:
    """Return in words why a row has no case."""
    if not isinstance(error, KeyError):
        return str(error)[:300]
    columns = "none"
    if isinstance(row, Mapping):
        columns = ", ".join(map(str, row))
    return f"{error.args[0]!r} is missing; its columns are {columns:.200}"


def _open_file_of(suite: Suite, path: Path) -> tuple[int, Callable[[int], Any]]:
    try:
        return _open_rows(path)
    except csv.Error as error:
        raise UsageError(
            f"{path}: not a file of {suite.name}: {error}", hint=f"use {suite.source}"
        ) from None


def _examples_beside(suite: Suite, path: Path) -> list[Row]:
    """Return the solved questions of a suite, from the file beside that of its questions.

    Raises `UsageError`.

    Without them the prompt would be another one than that of the authors, and the figures could not
    be compared.
    """
    file = path.with_name(Path(suite.examples).name)
    if not file.is_file():
        file = path.with_name(f"validation{path.suffix}")
    if not file.is_file():
        message = (
            f"the solved questions that the prompt of {suite.name} shows are not beside {path}"
        )
        hint = f"put {suite.examples} of {suite.repo} there, under its own name or as {file.name}"
        raise UsageError(message, hint=hint)
    count, read_row = _open_file_of(suite, file)
    try:
        rows = [read_row(number) for number in range(min(count, MAX_EXAMPLES))]
    except (ValueError, RecursionError, MemoryError) as error:
        raise UsageError(
            f"{file}: not a file of {suite.name}: {error}", hint=f"use {suite.examples}"
        ) from None
    return [row for row in rows if isinstance(row, Mapping)]


def _open_rows(path: Path) -> tuple[int, Callable[[int], Any]]:
    """Return how many rows a file has, and what reads one by its number from 0.

    The ending says what kind of file it is. What reads a row raises `ValueError`.

    Raises `UsageError`, `ConfigError` if an extra is missing, or `csv.Error`.
    """
    if path.suffix.lower() == ".parquet":
        if importlib.util.find_spec("pyarrow") is None:
            hint = extra_command("parquet")
            raise ConfigError("a Parquet file needs pyarrow, which is not installed", hint=hint)
        import pyarrow as pa
        from pyarrow import parquet

        try:
            if path.stat().st_size > MAX_TABLE:
                raise UsageError(f"{path} is larger than {format_size(MAX_TABLE)}")
            table = parquet.read_table(path)
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            reason = str(error).partition("\n")[0]
            raise UsageError(f"{path} is no Parquet file that can be read: {reason:.200}") from None
        return int(table.num_rows), lambda number: table.slice(number, 1).to_pylist()[0]
    text = read_case_file(path)
    kind = Path(path.name.lower().removesuffix(".gz")).suffix
    if kind == ".json":  # one list, as in the file of the sanitized MBPP
        try:
            listed = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(
                f"{path}: not JSON ({error})", hint="use a list of rows, or one row a line"
            ) from None
        if not isinstance(listed, list):
            raise UsageError(
                f"{path}: no list of rows", hint="name a file with one row a line .jsonl"
            )
        return len(listed), listed.__getitem__
    if kind == ".csv":
        rows = _read_csv(text, path)
        return len(rows), rows.__getitem__
    lines = [line for line in text.split("\n") if line.strip()]
    return len(lines), lambda number: json.loads(lines[number])


def _read_csv(text: str, path: Path) -> list[Row]:
    """Return the rows of a CSV file. Raises `UsageError` for one that is broken, and `csv.Error`.

    A cell that is too much would else be dropped: `How many?,1,234` has an answer of 1.
    """
    csv.field_size_limit(MAX_FILE_SIZE)
    table = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    names = list(table.fieldnames or ())
    for name in sorted(names):
        if names.count(name) > 1:
            raise UsageError(
                f"{path}: two columns are called {name!r:.60}", hint="give each its own name"
            )
    rows = list[Row]()
    for number, row in enumerate(table, start=1):
        cells = len(row.pop(None, ())) + sum(value is not None for value in row.values())
        if cells != len(names):
            raise UsageError(
                f"{path}, row {number}: {cells} cells, and the head has {len(names)} columns "
                f"({', '.join(names)[:200]})",
                hint='put a cell with a comma or a line break between quotes: "1,234"; a file with '
                "tabs or semicolons has to be converted",
            )
        rows.append(row)
    return rows

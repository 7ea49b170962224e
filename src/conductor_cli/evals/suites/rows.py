"""What a published suite is, and the rows of its files: JSON Lines, CSV, and Parquet with the extra `parquet`.

A row is found by its number without the rest of the file, since some files have gigabytes. Files are not trusted:
lines are bounded, and what is damaged, cut off or of another encoding is an error that names the row.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal

from conductor_cli.core.errors import ConfigError, UsageError, describe_system_error
from conductor_cli.core.formatting import format_size
from conductor_cli.evals.cases import Case, read_case_file
from conductor_cli.models.disk import open_finite

MAX_LINE: Final = 256_000_000  # Bytes of a line: the tests of one problem
MAX_LINES: Final = 2_000_000
MAX_TABLE: Final = 2_000_000_000  # Bytes of a Parquet file
Row = Mapping[str, Any]


def open_rows(path: Path) -> Rows:
    """The rows of a file, by its ending. Raises `UsageError`, `ConfigError` if an extra is missing, or `ValueError`."""
    try:
        match path.suffix.lower():
            case ".csv":
                return tuple(_read_csv(read_case_file(path), path))
            case ".parquet":
                return _Table(path)
            case _:
                return _Lines(path)
    except OSError as error:
        why = describe_system_error(error)
        raise UsageError(f"{path} cannot be read: {why}", hint="name a file, as its authors publish it") from None


class _Lines:
    """A file of JSON Lines, of which only the places of its lines are kept."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places: list[int] = []
        with open_finite(path) as file:
            place = 0
            while line := file.readline(MAX_LINE + 1):
                if len(line) > MAX_LINE:
                    raise UsageError(f"{path} has a line of more than {format_size(MAX_LINE)}")
                if line.strip(b"\xef\xbb\xbf \t\r\n"):
                    self._places.append(place)
                if len(self._places) > MAX_LINES:
                    raise UsageError(f"{path} has more than {MAX_LINES:,} lines", hint="split it into several files")
                place += len(line)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, number: int, /) -> Row:
        with self._path.open("rb") as file:
            file.seek(self._places[number])
            data = file.readline(MAX_LINE)
        row = json.loads(data.decode("utf-8-sig"))
        if not isinstance(row, Mapping):
            raise ValueError("it is not an object")  # noqa: TRY004 - the file's fault, not the caller's
        return row


class _Table:
    """A file of Parquet, read as a whole."""

    def __init__(self, path: Path) -> None:
        require_parquet()
        import pyarrow as pa
        from pyarrow import parquet

        if path.stat().st_size > MAX_TABLE:
            raise UsageError(f"{path} is larger than {format_size(MAX_TABLE)}")
        try:
            self._table = parquet.read_table(path)
        except (pa.ArrowException, ValueError, MemoryError) as error:
            said = str(error).partition("\n")[0]
            raise UsageError(f"{path} is no Parquet file that can be read: {said:.200}") from None

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, number: int, /) -> Row:
        row: dict[str, Any] = self._table.slice(number, 1).to_pylist()[0]
        return row


Rows = Sequence[Row] | _Lines | _Table
"""Rows by their number, from 0. Reading one raises `ValueError` if it is damaged."""


def require_parquet() -> None:
    """Raise `ConfigError` unless Parquet can be read."""
    if importlib.util.find_spec("pyarrow") is None:
        raise ConfigError(
            "a Parquet file needs pyarrow, which is not installed", hint="pip install 'conductor-llm[parquet]'"
        )


def _read_csv(text: str, path: Path) -> Sequence[Row]:
    """Rows by the names in the first line. MMLU's own files have no such line, and their name is the subject.

    Raises `ValueError`.
    """
    try:
        table = list(csv.reader(io.StringIO(text, newline="")))
    except csv.Error as error:
        raise ValueError(str(error)) from None
    names = table[0] if table else []
    if len(names) == 6 and names[-1].strip() in {"A", "B", "C", "D"}:
        subject = re.sub("_(test|val|dev)$", "", path.stem)
        columns = ("question", "A", "B", "C", "D", "answer")
        return [{**dict(zip(columns, values, strict=False)), "subject": subject} for values in table if values]
    return [dict(zip(names, values, strict=False)) for values in table[1:] if values]


Need = Literal["math-verify", "parquet", "sandbox"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a reader knows beside its row: the seed, and the rows of the file of solved examples."""

    seed: int = 0
    examples: tuple[Row, ...] = ()


Reader = Callable[[Row, int, Context], Case | None]
"""From a row and its number, from 1, to a case; None where the suite leaves it out. Raises `KeyError`, `ValueError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A published set of questions.

    `repo` and `file` say where it is on the hub, `split` which part of it that is, `examples` is a file of solved
    examples beside it. `prompt` and `scoring` name where they are from. `shareable`: whether its licence lets anybody
    pass it on; what is not is never stored with this project. `gated`: the hub gives it only to who has agreed.
    """

    name: str
    about: str
    reader: Reader
    repo: str
    file: str
    split: str
    licence: str
    prompt: str
    scoring: str
    examples: str = ""
    needs: tuple[Need, ...] = ()
    shareable: bool = True
    gated: bool = False

    @property
    def source(self) -> str:
        return f"{self.file} of {self.repo}" if self.repo else self.file

    def json(self) -> dict[str, object]:
        """What readers see of it."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name not in ("reader", "examples")}


def field(row: Row, *names: str) -> str:
    """The first of these fields that exists. Raises `KeyError`."""
    value = next((row[name] for name in names if row.get(name) is not None), None)
    if value is None:
        raise KeyError(names[0])
    return str(value).strip()


def tags(*texts: object) -> tuple[str, ...]:
    """The texts as tags: "Counting & Probability" becomes counting-probability."""
    found = ("-".join(re.findall(r"[a-z0-9]+", str(text or "").lower())) for text in texts)
    return tuple(dict.fromkeys(tag for tag in found if tag))

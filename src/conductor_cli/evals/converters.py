"""Published sets of questions: the files that Hugging Face or the authors provide, converted to cases.

| set | file | fields |
|---|---|---|
| math500 | `test.jsonl` of HuggingFaceH4/MATH-500 | problem, answer, subject, level, unique_id |
| aime25 | `test.jsonl` of math-ai/aime25; `aime2025-*.jsonl` of opencompass/AIME2025 | problem or question, answer, id |
| mmlu | rows of cais/mmlu as JSON; `*_test.csv` of the original release, one or a folder of them | question, choices, answer, subject |
| gpqa-diamond | `gpqa_diamond.csv` of Idavidrein/gpqa | Question, Correct Answer, Incorrect Answer 1 to 3, Record ID |

The instruction after each question (a box, or a letter on the last line) is that of published harnesses, and what the
scorers look for. To add a set, write a function from a row to a case and add it to `SETS`.
"""  # noqa: E501 - a table

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from string import ascii_uppercase
from typing import Any, Final

from conductor_cli.core.errors import UsageError
from conductor_cli.evals.cases import MAX_FILE_SIZE, Case, check_case

BOX: Final = "Put the final answer in \\boxed{}."
LETTER: Final = "End with a line of this form, with one letter: Answer: X"
_MMLU_COLUMNS: Final = ("question", "A", "B", "C", "D", "answer")

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSet:
    """The file of a set, and how a row becomes a case (with the row's number, and the seed)."""

    file: str
    case: Callable[[Row, int, int], Case]


def convert(name: str, path: Path, seed: int = 0) -> tuple[Case, ...]:
    """The cases of the set `name` from its file, or from a folder of CSV files. `seed` shuffles choices.

    Raises `UsageError` for an unknown set, a file that cannot be read, or a row that is not of this set.
    """
    published = SETS.get(name)
    if published is None:
        raise UsageError(f"unknown set {name!r}", hint=f"known: {', '.join(SETS)}")
    hint = f"use {published.file}"
    cases: dict[str, Case] = {}
    try:
        for number, (where, row) in enumerate(_read_rows(path), start=1):
            try:
                case = published.case(_unwrap_row(row), number, seed)
                check_case(case)
            except (KeyError, ValueError, UsageError) as error:
                problem = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
                raise UsageError(f"{where}: not a row of {name}: {problem}", hint=hint) from None
            if case.id in cases:
                raise UsageError(f"{where}: the id {case.id!r} occurs twice", hint=hint)
            cases[case.id] = case
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint=hint) from None
    except (ValueError, RecursionError, csv.Error) as error:
        raise UsageError(f"cannot read {path}: {error}", hint=hint) from None
    if not cases:
        raise UsageError(f"{path} contains no rows", hint=hint)
    return tuple(cases.values())


def _unwrap_row(row: object) -> Row:
    """The row itself: the hub's viewer wraps it in an object. Raises `ValueError`."""
    if not isinstance(row, Mapping):
        raise ValueError("it is not an object")  # noqa: TRY004 - the file's fault, not the caller's
    return row["row"] if isinstance(row.get("row"), Mapping) else row


# Rows to cases


def _field(row: Row, *names: str) -> str:
    """The first of these fields that exists. Raises `KeyError`."""
    value = next((row[name] for name in names if row.get(name) is not None), None)
    if value is None:
        raise KeyError(names[0])
    return str(value).strip()


def _slug(text: str) -> str:
    """A field as a tag: "Counting & Probability" becomes counting-probability."""
    return "-".join(re.findall(r"[a-z0-9]+", text.lower()))


def _tags(*texts: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(tag for tag in map(_slug, texts) if tag))


def _math500(row: Row, number: int, _: int) -> Case:
    level = row.get("level")
    return Case(
        id=str(row.get("unique_id") or number), question=f"{_field(row, 'problem')}\n\n{BOX}",
        answer=_field(row, "answer"), scorer="math",
        tags=_tags("math", str(row.get("subject") or ""), f"level {level}" if level is not None else ""),
    )  # fmt: skip


def _aime25(row: Row, number: int, _: int) -> Case:
    answer = re.match(r"\d{1,3}", _field(row, "answer"))  # one of opencompass's ends with a degree sign
    if answer is None:
        raise ValueError("the answer is not a whole number from 0 to 999")
    return Case(
        id=str(row.get("id") or number), question=f"{_field(row, 'problem', 'question')}\n\n{BOX}",
        answer=str(int(answer[0])), scorer="number", tags=("math", "aime"),
    )  # fmt: skip


def _mmlu(row: Row, number: int, _: int) -> Case:
    choices, answer = row.get("choices"), _field(row, "answer", "Answer")
    # In a CSV file, the list is JSON inside a field, or it is spread over the columns A to D.
    if isinstance(choices, str):
        choices = json.loads(choices)
    if choices is None:
        choices = [_field(row, letter) for letter in "ABCD"]
    if not isinstance(choices, Sequence) or not choices:
        raise ValueError("the choices are not a list")
    subject = str(row.get("subject") or row.get("Subject") or "")
    letter = ascii_uppercase[int(answer) :][:1] if answer.isdecimal() else answer
    asked = _field(row, "question", "Question")
    return _multiple(
        f"{_slug(subject) or 'mmlu'}-{number}", asked, [str(c) for c in choices], letter, ("facts", subject)
    )


def _gpqa(row: Row, number: int, seed: int) -> Case:
    """The choices are shuffled by seed and question, because the right one is always first in the file."""
    wrong = [_field(row, f"Incorrect Answer {index}") for index in (1, 2, 3)]
    choices = [_field(row, "Correct Answer"), *wrong]
    name = str(row.get("Record ID") or number)
    order = list(range(len(choices)))
    Random(f"{seed}/{name}").shuffle(order)  # noqa: S311 - reproducible, no secret
    letter = ascii_uppercase[order.index(0)]
    domain = str(row.get("High-level domain") or "")
    return _multiple(name, _field(row, "Question"), [choices[at] for at in order], letter, ("science", domain))


def _multiple(name: str, question: str, choices: Sequence[str], answer: str, tags: Sequence[str]) -> Case:
    listed = "\n".join(f"{letter}) {choice}" for letter, choice in zip(ascii_uppercase, choices, strict=False))
    return Case(
        id=name, question=f"{question}\n\n{listed}\n\n{LETTER}", answer=answer, scorer="choice", tags=_tags(*tags),
        choices=tuple(choices),
    )  # fmt: skip


# Files to rows


def _read_rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Each row, and where it is. Raises `OSError` or `ValueError`."""
    if path.is_dir():
        for file in sorted(path.glob("*.csv")):
            yield from _read_rows(file)
        return
    if path.stat().st_size > MAX_FILE_SIZE:
        raise ValueError(f"the file is larger than {MAX_FILE_SIZE >> 20} MB")
    text = path.read_bytes().decode("utf-8-sig", "replace")
    kind = path.suffix.lower()
    rows: Iterable[tuple[int, Any]]
    if kind == ".jsonl":
        rows = ((number, json.loads(line)) for number, line in enumerate(text.split("\n"), start=1) if line.strip())
    elif kind == ".json":
        data = json.loads(text)
        found = data.get("rows") if isinstance(data, Mapping) else data
        if not isinstance(found, list):
            raise ValueError("expected a list of rows")
        rows = enumerate(found, start=1)
    elif kind == ".csv":
        rows = _parse_csv(text, path)
    else:
        raise ValueError(f"cannot read files of the kind {path.suffix or path.name}")
    for number, row in rows:
        yield f"{path}, row {number}", row


def _parse_csv(text: str, path: Path) -> Iterator[tuple[int, Any]]:
    """Rows by the names in the first line. MMLU's own files have no such line, and their name is the subject."""
    table = list(csv.reader(io.StringIO(text, newline="")))
    if table and len(table[0]) == len(_MMLU_COLUMNS) and table[0][-1].strip() in {"A", "B", "C", "D"}:
        subject = re.sub("_(test|val|dev)$", "", path.stem)
        for number, values in enumerate(table, start=1):
            yield number, {**dict(zip(_MMLU_COLUMNS, values, strict=False)), "subject": subject}
        return
    for number, values in enumerate(table[1:], start=2):
        yield number, dict(zip(table[0], values, strict=False))


SETS: Final[dict[str, PublishedSet]] = {
    "math500": PublishedSet(file="test.jsonl of HuggingFaceH4/MATH-500", case=_math500),
    "aime25": PublishedSet(file="test.jsonl of math-ai/aime25", case=_aime25),
    "mmlu": PublishedSet(
        file="the CSV files of the original release, or cais/mmlu as JSON Lines (question, choices, answer, subject)",
        case=_mmlu,
    ),
    "gpqa-diamond": PublishedSet(file="gpqa_diamond.csv of Idavidrein/gpqa", case=_gpqa),
}

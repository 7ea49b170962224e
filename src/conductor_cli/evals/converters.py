"""Published sets of questions: the files that Hugging Face or the authors provide, converted to cases.

| set | file | fields |
|---|---|---|
| math500 | `test.jsonl` of HuggingFaceH4/MATH-500 | problem, answer, subject, level, unique_id |
| aime25 | `test.jsonl` of math-ai/aime25, or the files of opencompass/AIME2025 | problem or question, answer, id |
| mmlu | `*_test.csv` of the original release; rows of cais/mmlu as JSON Lines | question, choices, answer, subject |
| gpqa-diamond | `gpqa_diamond.csv` of Idavidrein/gpqa | Question, Correct Answer, Incorrect Answer 1 to 3, Record ID |

The instruction after each question (a box, or a letter on the last line) is that of published harnesses, and what the
scorers look for. To add a set, write a function from a row to a case and add it to `SETS`.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from string import ascii_uppercase
from typing import Any, Final

from conductor_cli.core.errors import UsageError
from conductor_cli.evals.cases import Case, check_case, read_text

BOX: Final = "Put the final answer in \\boxed{}."
LETTER: Final = "End with a line of this form, with one letter: Answer: X"

Row = Mapping[str, Any]


def convert(name: str, path: Path, seed: int = 0) -> tuple[Case, ...]:
    """The cases of the set `name` from its file. `seed` shuffles choices.

    Raises `UsageError` for an unknown set, a file that cannot be read, or a row that is not of this set.
    """
    if name not in SETS:
        raise UsageError(f"unknown set {name!r}", hint=f"known: {', '.join(SETS)}")
    to_case, file = SETS[name]
    cases: dict[str, Case] = {}
    try:
        for row in _read_rows(path):
            case = to_case(row, len(cases) + 1, seed)
            check_case(case)
            if case.id in cases:
                raise ValueError(f"the id {case.id!r} occurs twice")  # noqa: TRY301 - reported like any other problem
            cases[case.id] = case
    except (KeyError, ValueError, RecursionError, UsageError, csv.Error) as error:
        problem = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"{path}, row {len(cases) + 1}: not a row of {name}: {problem}", hint=f"use {file}") from None
    if not cases:
        raise UsageError(f"{path} contains no rows", hint=f"use {file}")
    return tuple(cases.values())


def _read_rows(path: Path) -> Iterator[Row]:
    """The rows of a file of JSON Lines or CSV. Raises `UsageError`, `ValueError` or `csv.Error`."""
    text = read_text(path)
    if path.suffix.lower() == ".csv":
        yield from _read_csv(text, path)
        return
    for line in filter(str.strip, text.split("\n")):
        row = json.loads(line)
        if not isinstance(row, Mapping):
            raise ValueError("it is not an object")  # noqa: TRY004 - the file's fault, not the caller's
        yield row


def _read_csv(text: str, path: Path) -> Iterator[Row]:
    """Rows by the names in the first line. MMLU's own files have no such line, and their name is the subject."""
    table = csv.reader(io.StringIO(text, newline=""))
    names = next(table, [])
    if len(names) == 6 and names[-1].strip() in {"A", "B", "C", "D"}:
        subject = re.sub("_(test|val|dev)$", "", path.stem)
        for values in (names, *table):
            yield {**dict(zip(("question", "A", "B", "C", "D", "answer"), values, strict=False)), "subject": subject}
    else:
        yield from (dict(zip(names, values, strict=False)) for values in table)


# Rows to cases


def _field(row: Row, *names: str) -> str:
    """The first of these fields that exists. Raises `KeyError`."""
    value = next((row[name] for name in names if row.get(name) is not None), None)
    if value is None:
        raise KeyError(names[0])
    return str(value).strip()


def _tags(*texts: object) -> tuple[str, ...]:
    """The texts as tags: "Counting & Probability" becomes counting-probability."""
    tags = ("-".join(re.findall(r"[a-z0-9]+", str(text or "").lower())) for text in texts)
    return tuple(dict.fromkeys(tag for tag in tags if tag))


def _math500(row: Row, number: int, _: int) -> Case:
    level = row.get("level")
    return Case(
        id=str(row.get("unique_id") or number), question=f"{_field(row, 'problem')}\n\n{BOX}",
        answer=_field(row, "answer"), scorer="math",
        tags=_tags("math", row.get("subject"), f"level {level}" if level is not None else ""),
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
    # In a CSV file, the choices are spread over the columns A to D.
    choices, answer = row.get("choices") or [_field(row, letter) for letter in "ABCD"], _field(row, "answer", "Answer")
    if not isinstance(choices, list):
        raise ValueError("the choices are not a list")  # noqa: TRY004 - likewise
    subject = row.get("subject") or row.get("Subject")
    letter = ascii_uppercase[int(answer) :][:1] if answer.isdecimal() else answer
    name = "-".join((*_tags(subject), str(number)))
    return _multiple_choice(name, _field(row, "question", "Question"), choices, letter, _tags("facts", subject))


def _gpqa(row: Row, number: int, seed: int) -> Case:
    """The choices are shuffled by seed and question, because the right one is always first in the file."""
    choices = [_field(row, "Correct Answer"), *(_field(row, f"Incorrect Answer {index}") for index in (1, 2, 3))]
    name = str(row.get("Record ID") or number)
    order = list(range(len(choices)))
    Random(f"{seed}/{name}").shuffle(order)  # noqa: S311 - reproducible, no secret
    shuffled, letter = [choices[at] for at in order], ascii_uppercase[order.index(0)]
    tags = _tags("science", row.get("High-level domain"))
    return _multiple_choice(name, _field(row, "Question"), shuffled, letter, tags)


def _multiple_choice(name: str, question: str, choices: Sequence[object], answer: str, tags: tuple[str, ...]) -> Case:
    listed = "\n".join(f"{letter}) {choice}" for letter, choice in zip(ascii_uppercase, choices, strict=False))
    return Case(
        id=name, question=f"{question}\n\n{listed}\n\n{LETTER}", answer=answer, scorer="choice", tags=tags,
        choices=tuple(map(str, choices)),
    )  # fmt: skip


SETS: Final[dict[str, tuple[Callable[[Row, int, int], Case], str]]] = {
    "math500": (_math500, "test.jsonl of HuggingFaceH4/MATH-500"),
    "aime25": (_aime25, "test.jsonl of math-ai/aime25"),
    "mmlu": (_mmlu, "a CSV file of the original release, or cais/mmlu as JSON Lines"),
    "gpqa-diamond": (_gpqa, "gpqa_diamond.csv of Idavidrein/gpqa"),
}
"""How a row becomes a case (with the row's number, and the seed), and the file to use."""

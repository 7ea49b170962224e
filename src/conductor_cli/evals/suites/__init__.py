"""Published suites: the files that authors provide, converted to cases.

To add a suite, write a reader, a function from a row to a case, and add a `Suite` to `SUITES`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

from conductor_cli.core.errors import UsageError
from conductor_cli.evals.cases import Case, check_case
from conductor_cli.evals.suites import readers
from conductor_cli.evals.suites.rows import Context, Row, Rows, Suite, open_rows

SUITES: Final = {
    suite.name: suite
    for suite in (
        Suite(
            name="math500", about="500 competition problems", reader=readers.math500, needs=("math-verify",),
            repo="HuggingFaceH4/MATH-500", file="test.jsonl", split="test", licence="MIT",
            prompt="a box for the answer, as in published harnesses", scoring="math-verify",
        ),
        Suite(
            name="aime25", about="30 competition problems of 2025", reader=readers.aime25, licence="Apache-2.0",
            repo="math-ai/aime25", file="test.jsonl", split="test",
            prompt="a box for the answer, as in published harnesses", scoring="equal whole numbers",
        ),
        Suite(
            name="mmlu", about="14,042 questions of 57 subjects", reader=readers.mmlu, needs=("parquet",),
            repo="cais/mmlu", file="all/test-00000-of-00001.parquet", split="test", licence="MIT",
            prompt="a letter on the last line, as in published harnesses", scoring="the letter",
        ),
        Suite(
            name="mmlu-pro", about="12,032 questions with up to ten options", reader=readers.mmlu_pro,
            repo="TIGER-Lab/MMLU-Pro", file="data/test-00000-of-00001.parquet", split="test", licence="MIT",
            examples="data/validation-00000-of-00001.parquet", needs=("parquet",),
            prompt="its authors' (evaluate_from_api.py), with five examples if their file is there",
            scoring="its authors' (evaluate_from_api.py); no letter is wrong",
        ),
        Suite(
            name="gpqa-diamond", about="198 questions of natural science", reader=readers.gpqa,
            repo="Idavidrein/gpqa", file="gpqa_diamond.csv", split="diamond", licence="CC-BY-4.0", gated=True,
            shareable=False,  # its authors ask everybody not to put the questions where crawlers find them
            prompt="a letter on the last line, as in published harnesses", scoring="the letter",
        ),
        Suite(
            name="rlpr", about="questions of all subjects with short answers", reader=readers.rlpr,
            repo="openbmb/RLPR-Train-Dataset", file="rlpr_train.parquet", split="train; answers of up to 30 characters",
            licence="CC-BY-NC-4.0", shareable=False, needs=("parquet",),
            prompt="its authors', as it is in the file", scoring="that of arXiv 2512.04388",
        ),
        Suite(
            name="livecodebench", about="programs for 175 problems, January to April 2025",
            reader=readers.livecodebench, repo="livecodebench/code_generation_lite", file="test6.jsonl",
            split="v6; test.jsonl to test5.jsonl are v1 to v5", licence="not stated by its authors", shareable=False,
            needs=("sandbox",), prompt="its authors' (prompts/code_generation.py)",
            scoring="its authors' (evaluation/testing_util.py), each test in a process of its own",
        ),
    )
}  # fmt: skip
"""Every suite, by its name on the command line."""


def find_suite(name: str) -> Suite:
    """The suite with this name. Raises `UsageError`."""
    if name not in SUITES:
        raise UsageError(f"unknown suite {name!r:.60}", hint=f"known: {', '.join(SUITES)}")
    return SUITES[name]


FIELDS: Final = ("id", "question", "answer", "choices", "scorer", "tags")


def suite_by_columns(name: str, text: str) -> Suite:
    """The suite whose file has these columns: `question=problem,answer=target`. Raises `UsageError`."""
    columns = {field.strip(): column.strip() for field, _, column in (each.partition("=") for each in text.split(","))}
    wrong = next((field for field, column in columns.items() if field not in FIELDS or not column), "")
    if wrong or not {"question", "answer"} <= columns.keys():
        hint = f"for example: --fields question=problem,answer=target; fields: {', '.join(FIELDS)}"
        raise UsageError(
            f"--fields: {wrong!r:.40} is not FIELD=COLUMN" if wrong else "--fields needs question and answer", hint=hint
        )
    return Suite(
        name=name, about="", reader=readers.by_columns(columns), repo="", split="", licence="", prompt="", scoring="",
        file="--fields with the names of its columns",
    )  # fmt: skip


def read_suite(suite: Suite, path: Path, *, count: int | None = None, seed: int = 0) -> tuple[Case, ...]:
    """The cases of a suite from its file, all or `count` of them that the seed chooses, in the order of the file.

    `seed` also shuffles choices. Only what is chosen is read. Raises `UsageError` for a file that cannot be read, a row
    that is not of this suite, or fewer cases than `count`.
    """
    try:
        rows = open_rows(path)
    except ValueError as error:
        raise UsageError(f"{path}: not a file of {suite.name}: {error}", hint=f"use {suite.source}") from None
    if not len(rows):
        raise UsageError(f"{path} contains no rows", hint=f"use {suite.source}")
    context = Context(seed=seed, examples=_examples(suite, path))
    order = list(range(len(rows)))
    if count is not None:
        Random(seed).shuffle(order)  # noqa: S311 - reproducible, no secret
    found: dict[str, tuple[int, Case]] = {}
    for number, case in _read(suite, path, rows, order, context):
        if case.id in found:
            message = f"{path}, row {number}: row {found[case.id][0]} has the same id {case.id!r:.80}"
            raise UsageError(message, hint=f"use {suite.source}")
        found[case.id] = number, case
        if len(found) == count:
            break
    if count is not None and len(found) < count:
        raise UsageError(f"--n {count}: the file holds {len(found)} cases", hint="leave out --n to take all")
    if not found:
        raise UsageError(f"{path} has no case that {suite.name} takes", hint=f"use {suite.source}")
    return tuple(case for _, case in sorted(found.values(), key=lambda item: item[0]))


def _read(suite: Suite, path: Path, rows: Rows, order: list[int], context: Context) -> Iterator[tuple[int, Case]]:
    """The cases of the rows in this order, with the numbers of their rows, from 1. Raises `UsageError`."""
    for index in order:
        try:
            case = suite.reader(rows[index], index + 1, context)
            if case is not None:
                check_case(case)
        except (KeyError, ValueError, RecursionError, MemoryError, UsageError) as error:
            problem = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)[:300]
            message = f"{path}, row {index + 1}: not a row of {suite.name}: {problem}"
            raise UsageError(message, hint=f"use {suite.source}") from None
        if case is not None:
            yield index + 1, case


def _examples(suite: Suite, path: Path) -> tuple[Row, ...]:
    """The rows of the file of solved examples that is beside the file; none where there is no such file."""
    if not suite.examples:
        return ()
    beside = (path.with_name(f"validation{path.suffix}"), path.with_name(Path(suite.examples).name))
    place = next((place for place in beside if place.is_file() and place.suffix == path.suffix), None)
    if place is None or place == path:
        return ()
    try:
        rows = open_rows(place)
        return tuple(rows[index] for index in range(min(len(rows), 10_000)))
    except ValueError as error:
        raise UsageError(f"{place}: not a file of {suite.name}: {error}", hint=f"use {suite.source}") from None

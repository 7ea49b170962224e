"""Published sets are converted from the files of their publishers."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_cli.core.errors import UsageError
from conductor_cli.evals.cases import Case, is_correct, read_cases, write_cases
from conductor_cli.evals.converters import SETS, convert

MATH = {
    "problem": "Compute $1+1$.", "solution": "…", "answer": "2", "subject": "Counting & Probability", "level": 2,
    "unique_id": "test/counting_and_probability/7.json",
}  # fmt: skip
GPQA = {
    "Record ID": "rec1", "Question": "Why?", "Correct Answer": "yes\n", "Incorrect Answer 1": "no",
    "Incorrect Answer 2": "perhaps", "Incorrect Answer 3": "never", "High-level domain": "Physics",
}  # fmt: skip
MMLU = {"question": "Which?", "subject": "abstract_algebra", "choices": ["w", "x", "y", "z"], "answer": 2}


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def table(path: Path, *rows: list[str]) -> Path:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    path.write_text(text.getvalue(), encoding="utf-8")
    return path


def test_math500(tmp_path: Path) -> None:
    """Problem, answer and level of the JSON Lines, with the instruction of published harnesses."""
    assert convert("math500", lines(tmp_path / "test.jsonl", MATH)) == (
        Case(
            id="test/counting_and_probability/7.json", answer="2", scorer="math",
            question="Compute $1+1$.\n\nPut the final answer in \\boxed{}.",
            tags=("math", "counting-probability", "level-2"),
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    "row",
    [
        {"id": "3", "problem": "Find n.", "answer": "070"}, {"id": "3", "question": "Find n.", "answer": 70},
        {"id": "3", "question": "Find n.", "answer": "70^\\circ"},
    ],
)  # fmt: skip
def test_aime25(tmp_path: Path, row: dict[str, Any]) -> None:
    """The files of two publishers differ in field names and in how they write the answer."""
    (case,) = convert("aime25", lines(tmp_path / "test.jsonl", row))
    assert (case.id, case.answer, case.scorer, case.tags) == ("3", "70", "number", ("math", "aime"))
    assert is_correct(r"Therefore, $\boxed{070}$.", case)


def mmlu_files(place: Path) -> list[Path]:
    (place / "test").mkdir()
    plain = table(place / "test" / "abstract_algebra_test.csv", ["Which?", "w", "x", "y", "z", "C"])
    named = table(place / "mmlu.csv", ["", "Question", "A", "B", "C", "D", "Answer", "Subject"],
                  ["0", "Which?", "w", "x", "y", "z", "C", "abstract_algebra"])  # fmt: skip
    return [lines(place / "mmlu.jsonl", MMLU), plain, named]


@pytest.mark.parametrize("at", range(3), ids=["json lines", "plain csv", "csv"])
def test_mmlu(tmp_path: Path, at: int) -> None:
    """Every format of the rows gives the same case."""
    assert convert("mmlu", mmlu_files(tmp_path)[at]) == (
        Case(
            id="abstract-algebra-1", answer="C", scorer="choice", tags=("facts", "abstract-algebra"),
            choices=("w", "x", "y", "z"),
            question="Which?\n\nA) w\nB) x\nC) y\nD) z\n\nEnd with a line of this form, with one letter: Answer: X",
        ),
    )  # fmt: skip


def test_gpqa_diamond(tmp_path: Path) -> None:
    """The right choice is first in the file; the seed shuffles the choices, and the letter follows."""
    rows = [list(GPQA), *([f"rec{number}", *list(GPQA.values())[1:]] for number in range(200))]
    path = table(tmp_path / "gpqa_diamond.csv", *rows)
    cases = convert("gpqa-diamond", path, seed=1)
    assert cases == convert("gpqa-diamond", path, seed=1)
    assert [c.answer for c in cases] != [c.answer for c in convert("gpqa-diamond", path, seed=2)]
    assert all(case.choices["ABCD".index(case.answer)] == "yes" for case in cases)
    assert min(Counter(case.answer for case in cases).values()) > 30
    assert cases[0].tags == ("science", "physics")
    assert f"{cases[0].answer}) yes" in cases[0].question


def test_converted_cases_can_be_written_and_read(tmp_path: Path) -> None:
    """They read back equal."""
    cases = convert("math500", lines(tmp_path / "test.jsonl", MATH))
    (tmp_path / "cases.jsonl").write_text(write_cases(cases))
    assert read_cases(tmp_path / "cases.jsonl") == cases


@pytest.mark.parametrize(
    ("name", "row", "says"),
    [
        ("math500", {**MATH, "answer": None}, "'answer' is missing"),
        ("math500", {}, "'problem' is missing"),
        ("math500", [1], "not an object"),
        ("aime25", {"problem": "?", "answer": "x"}, "not a whole number"),
        ("mmlu", {**MMLU, "answer": 9}, "does not fit the scorer choice"),
        ("mmlu", {**MMLU, "answer": 99}, "'answer' is empty"),
        ("mmlu", {**MMLU, "choices": 5}, "the choices are not a list"),
        ("gpqa-diamond", MMLU, "'Correct Answer' is missing"),
    ],
)
def test_a_row_of_another_set_is_reported(tmp_path: Path, name: str, row: Any, says: str) -> None:
    """The error has the file, the row, the problem, and which file to use."""
    with pytest.raises(UsageError) as error:
        convert(name, lines(tmp_path / "test.jsonl", row))
    assert f"{tmp_path / 'test.jsonl'}, row 1: " in error.value.message
    assert says in error.value.message
    assert error.value.hint == f"use {SETS[name][1]}"


values = (
    st.none() | st.text() | st.integers() | st.booleans() | st.lists(st.text()) | st.dictionaries(st.text(), st.text())
)


@settings(deadline=None)
@given(st.sampled_from(sorted(SETS)), st.dictionaries(st.sampled_from(sorted({*MATH, *GPQA, *MMLU})), values))
def test_no_row_crashes_a_converter(tmp_path_factory: pytest.TempPathFactory, name: str, row: dict[str, Any]) -> None:
    """Any row either becomes a case or raises a UsageError."""
    with suppress(UsageError):
        convert(name, lines(tmp_path_factory.mktemp("rows") / "test.jsonl", row))


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("test-00000-of-00001.parquet", b"PAR1\x00", "row 1: not a row of math500"),
        ("test.jsonl", b"", "contains no rows"),
        ("test.jsonl", b"{", "not a row"),
        ("test.jsonl", b"[" * 100_000, "not a row"),
        ("test.csv", b"", "contains no rows"),
        ("test.csv", b'"' + b"x" * 200_000, "not a row"),
        ("test.jsonl", (json.dumps(MATH) + "\n").encode() * 2, "occurs twice"),
    ],
)
def test_an_unusable_file_is_an_error(tmp_path: Path, file: str, content: bytes, says: str) -> None:
    """Parquet, damaged and empty files; the hint names a file that can be used."""
    (tmp_path / file).write_bytes(content)
    with pytest.raises(UsageError) as error:
        convert("math500", tmp_path / file)
    assert says in error.value.message
    assert error.value.hint == "use test.jsonl of HuggingFaceH4/MATH-500"


def test_an_unknown_set_is_an_error(tmp_path: Path) -> None:
    """The hint lists the known sets; a missing file is an error, too."""
    with pytest.raises(UsageError, match="unknown set 'x'") as error:
        convert("x", tmp_path)
    assert "gpqa-diamond" in error.value.hint
    with pytest.raises(UsageError, match="No such file"):
        convert("mmlu", tmp_path / "none.csv")

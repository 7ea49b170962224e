"""Published sets are converted from the files of their publishers."""

from __future__ import annotations

import base64
import csv
import io
import json
import pickle
import subprocess
import zlib
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.errors import ConfigError, UsageError
from conductor_cli.evals.cases import Case, is_correct, read_cases, write_cases
from conductor_cli.evals.programs import load_io_tests
from conductor_cli.evals.suites import SUITES, find_suite, read_suite, readers, rows, suite_by_columns

MATH = {
    "problem": "Compute $1+1$.", "solution": "…", "answer": "2", "subject": "Counting & Probability", "level": 2,
    "unique_id": "test/counting_and_probability/7.json",
}  # fmt: skip
GPQA = {
    "Record ID": "rec1", "Question": "Why?", "Correct Answer": "yes\n", "Incorrect Answer 1": "no",
    "Incorrect Answer 2": "perhaps", "Incorrect Answer 3": "never", "High-level domain": "Physics",
}  # fmt: skip
MMLU_PRO = {
    "question_id": 70, "question": "Which?", "options": ["w", "x", "y", "N/A"], "answer": "B", "answer_index": 1,
    "cot_content": "A: Let's think step by step. The answer is (B).", "category": "business",
}  # fmt: skip
RLPR = {
    "data_source": "WebInstruct", "ability": "Physics", "reward_model": {"ground_truth": "50400 N", "style": "rule"},
    "prompt": [{"role": "system", "content": "Think."}, {"role": "user", "content": "Which force?"}],
    "extra_info": {"index": 5},
}  # fmt: skip
LCB = {
    "question_title": "A", "question_content": "Add two numbers.", "platform": "atcoder", "question_id": "abc1_a",
    "starter_code": "", "difficulty": "easy", "metadata": "{}",
    "public_test_cases": json.dumps([{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]),
    "private_test_cases": json.dumps([{"input": "2 2\n", "output": "4\n", "testtype": "stdin"}]),
}  # fmt: skip
MMLU = {"question": "Which?", "subject": "abstract_algebra", "choices": ["w", "x", "y", "z"], "answer": 2}


def convert(name: str, path: Path, **more: Any) -> tuple[Case, ...]:
    return read_suite(find_suite(name), path, **more)


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
        ("mmlu-pro", {**MMLU_PRO, "answer": "D"}, "none of the options"),
        ("mmlu-pro", {**MMLU_PRO, "options": "abc"}, "not a list of 2 to 10"),
        ("rlpr", {**RLPR, "reward_model": {}}, "'ground_truth' is missing"),
        ("rlpr", {**RLPR, "prompt": []}, "no prompt"),
        ("livecodebench", {**LCB, "public_test_cases": "[]", "private_test_cases": "[]"}, "it has no tests"),
        ("livecodebench", {**LCB, "public_test_cases": "[1]"}, "no input or no output"),
        ("livecodebench", {**LCB, "private_test_cases": "eJx"}, "cannot be unpacked"),
        ("livecodebench", {**LCB, "metadata": '{"func_name": "os.system(1)"}'}, "no valid name"),
    ],
)
def test_a_row_of_another_set_is_reported(tmp_path: Path, name: str, row: Any, says: str) -> None:
    with pytest.raises(UsageError) as error:
        convert(name, lines(tmp_path / "test.jsonl", row))
    assert f"{tmp_path / 'test.jsonl'}, row 1: " in error.value.message
    assert says in error.value.message
    assert error.value.hint == f"use {SUITES[name].source}"


values = (
    st.none() | st.text() | st.integers() | st.booleans() | st.lists(st.text()) | st.dictionaries(st.text(), st.text())
)


@given(
    st.sampled_from(sorted(SUITES)),
    st.dictionaries(st.sampled_from(sorted({*MATH, *GPQA, *MMLU, *MMLU_PRO, *RLPR, *LCB})), values),
)
def test_no_row_crashes_a_converter(tmp_path_factory: pytest.TempPathFactory, name: str, row: dict[str, Any]) -> None:
    with suppress(UsageError):
        convert(name, lines(tmp_path_factory.mktemp("rows") / "test.jsonl", row))


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("test-00000-of-00001.parquet", b"PAR1\x00", "is no Parquet file that can be read"),
        ("test.jsonl", b"", "contains no rows"), ("test.jsonl", b"{", "not a row"),
        ("test.jsonl", b"[" * 100_000, "not a row"), ("test.csv", b"", "contains no rows"),
        ("test.csv", b'"' + b"x" * 200_000, "not a file of math500"),
        ("test.jsonl", (json.dumps(MATH) + "\n").encode() * 2, "row 1 has the same id"),
    ],
)  # fmt: skip
def test_an_unusable_file_is_an_error(tmp_path: Path, file: str, content: bytes, says: str) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(UsageError) as error:
        convert("math500", tmp_path / file)
    assert says in error.value.message
    assert error.value.hint == "use test.jsonl of HuggingFaceH4/MATH-500" or "Parquet" in says


def test_an_unknown_suite_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown suite 'x'") as error:
        convert("x", tmp_path)
    assert "gpqa-diamond" in error.value.hint
    with pytest.raises(UsageError, match="No such file"):
        convert("mmlu", tmp_path / "none.csv")


# Suites with the prompts of their authors


def test_mmlu_pro(tmp_path: Path) -> None:
    """Fillers are left out; with the file of examples beside it, five solved ones of the category come first."""
    path = lines(tmp_path / "test.jsonl", MMLU_PRO)
    (case,) = convert("mmlu-pro", path)
    assert case == Case(
        id="70", answer="B", scorer="mmlu-pro", choices=("w", "x", "y"), tags=("facts", "business"),
        question="The following are multiple choice questions (with answers) about business. Think step by step and "
        'then output the answer in the format of "The answer is (X)" at the end.\n\n'
        "Question: Which?\nOptions: A. w\nB. x\nC. y\nAnswer: Let's think step by step.",
    )  # fmt: skip
    others = [{**MMLU_PRO, "question": f"Example {number}?", "category": "law"} for number in range(3)]
    lines(tmp_path / "validation.jsonl", *others, *[{**MMLU_PRO, "question": f"Old {n}?"} for n in range(7)])
    (shown,) = convert("mmlu-pro", path)
    assert [f"Old {n}?" in shown.question for n in range(7)] == [True] * 5 + [False] * 2
    assert "Example" not in shown.question
    assert "Answer: Let's think step by step. The answer is (B).\n\nQuestion: Old 1?" in shown.question


def test_rlpr(tmp_path: Path) -> None:
    """The prompt is the file's own; questions with long answers are left out, and a sample has as many as asked for."""
    long = {**RLPR, "reward_model": {"ground_truth": "x" * 31}}
    cases = convert("rlpr", lines(tmp_path / "train.jsonl", long, RLPR, long, RLPR))
    assert [case.id for case in cases] == ["webinstruct-5-2", "webinstruct-5-4"]
    assert (cases[0].question, cases[0].answer, cases[0].scorer) == ("Think.\n\nWhich force?", "50400 N", "rlpr")
    assert len(convert("rlpr", tmp_path / "train.jsonl", count=2)) == 2
    with pytest.raises(UsageError, match="the file holds 2 cases"):
        convert("rlpr", tmp_path / "train.jsonl", count=3)


def packed(value: object, protocol: int = 4) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value, protocol))).decode()


@pytest.mark.parametrize("protocol", range(2, 6))
def test_livecodebench(protocol: int, tmp_path: Path) -> None:
    """Public and private tests become the answer; private ones may be packed as their authors pack them."""
    tests = json.dumps([{"input": "5 6\n", "output": "11 é\n", "testtype": "stdin"}], ensure_ascii=False)
    row = {**LCB, "private_test_cases": packed(tests, protocol)}
    (case,) = convert("livecodebench", lines(tmp_path / "test6.jsonl", row))
    assert load_io_tests(case.answer).tests == (("1 2\n", "3\n"), ("5 6\n", "11 é\n"))
    assert (case.id, case.scorer, case.tags) == ("abc1_a", "program", ("code", "atcoder", "easy"))
    assert "### Format: Read the inputs from stdin" in case.question
    assert case.question.endswith(
        "```python\n# YOUR CODE HERE\n```\n\n### Answer: (use the provided format with backticks)\n\n"
    )


def test_livecodebench_with_a_function(tmp_path: Path) -> None:
    """The code to start from is in the question, the name of the function in the answer."""
    row = {**LCB, "starter_code": "class Solution:", "metadata": '{"func_name": "add"}'}
    (case,) = convert("livecodebench", lines(tmp_path / "test6.jsonl", row))
    assert "delimiters.\n```python\nclass Solution:\n```" in case.question
    assert load_io_tests(case.answer).function == "add"


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("the pickle was run",)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (packed(Evil()), "holds more than a text"), (packed(["x"]), "holds more than a text"),
        (packed("x")[:-8], "cut off"), (packed("x" * 99)[:20], "cut off"), ("%%%", "cannot be unpacked"),
        (base64.b64encode(zlib.compress(b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f")).decode(), "pickle"),
        (base64.b64encode(zlib.compress(b"")).decode(), "pickle"), (packed("not JSON"), "Expecting value"),
    ],
)  # fmt: skip
def test_a_hostile_pickle_is_never_unpickled(
    data: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only a text is taken out of it; anything else is an error that names the row."""
    with pytest.raises(UsageError, match="row 1") as error:
        convert("livecodebench", lines(tmp_path / "test6.jsonl", {**LCB, "private_test_cases": data}))
    assert says in error.value.message
    assert capsys.readouterr().out == ""


def test_tests_that_unpack_to_too_much_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "MAX_TESTS", 10_000)
    row = {**LCB, "private_test_cases": packed("x" * 100_000)}
    with pytest.raises(UsageError, match="cut off or too large"):
        convert("livecodebench", lines(tmp_path / "test6.jsonl", row))


def test_a_parquet_file_gives_the_same_cases(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    given = [{**RLPR, "extra_info": {"index": number}} for number in range(5)]
    parquet.write_table(pyarrow.Table.from_pylist(given), tmp_path / "train.parquet")
    assert convert("rlpr", tmp_path / "train.parquet") == convert("rlpr", lines(tmp_path / "train.jsonl", *given))


def test_without_the_extra_a_parquet_file_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (tmp_path / "train.parquet").write_bytes(b"")
    with pytest.raises(ConfigError, match="needs pyarrow") as error:
        convert("rlpr", tmp_path / "train.parquet")
    assert error.value.hint == "pip install 'conductor-llm[parquet]'"


def test_a_sample_reads_only_its_rows(tmp_path: Path) -> None:
    (tmp_path / "test.jsonl").write_text(
        "\n".join(json.dumps({**MATH, "unique_id": f"q{number}"}) for number in range(50)) + "\n{damaged\n"
    )
    cases = convert("math500", tmp_path / "test.jsonl", count=3, seed=1)
    assert cases == convert("math500", tmp_path / "test.jsonl", count=3, seed=1)
    numbers = [int(case.id[1:]) for case in cases]
    assert numbers == sorted(numbers)
    with pytest.raises(UsageError, match="row 51: not a row of math500"):
        convert("math500", tmp_path / "test.jsonl")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{}".encode("utf-16"), "row 1"), (b'{"problem": "\xff"}', "row 1"), (json.dumps(MATH).encode()[:-9], "row 1"),
        (b"x" * 2000, "a line of more than"), (b"1\n" * 101, "more than 100 lines"),
    ],
)  # fmt: skip
def test_wrongly_encoded_cut_off_and_huge_files_are_errors(
    content: bytes, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "MAX_LINE", 1000)
    monkeypatch.setattr(rows, "MAX_LINES", 100)
    (tmp_path / "test.jsonl").write_bytes(content)
    with pytest.raises(UsageError, match=says):
        convert("math500", tmp_path / "test.jsonl")


def test_no_suite_is_stored_here_that_may_not_be() -> None:
    """No file of the repository has a question of a suite: each would be in a file of its name."""
    names = {Path(suite.file).name for suite in SUITES.values()} | {f"{name}.jsonl" for name in SUITES}
    root = Path(__file__).parents[2]
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=False).stdout.split()
    assert [name for name in listed if Path(name).name in names - {"test.jsonl"} or name.endswith(".parquet")] == []


@pytest.mark.parametrize(
    ("name", "content", "columns", "expected"),
    [
        ("p.csv", "problem,target\nWhat?,4\n", "question=problem,answer=target,scorer=number",
         {"id": "1", "question": "What?", "answer": "4", "scorer": "number"}),
        ("p.csv", 'q,a,o\nWhat?,1,"[""x"", ""y""]"\n', "question=q,answer=a,choices=o",
         {"answer": "B", "scorer": "choice", "choices": ["x", "y"]}),
        ("p.jsonl", '{"k": 7, "q": "What?", "a": "y", "o": ["x", "y"], "t": ["Hard ones"]}',
         "id=k,question=q,answer=a,choices=o,tags=t", {"id": "7", "answer": "B", "tags": ["hard-ones"]}),
    ],
)  # fmt: skip
def test_columns_of_any_file_are_mapped(
    tmp_path: Path, name: str, content: str, columns: str, expected: dict[str, Any]
) -> None:
    (tmp_path / name).write_text(content)
    (case,) = read_suite(suite_by_columns(name, columns), tmp_path / name)
    data = json.loads(write_cases([case]))
    assert {key: data.get(key) for key in expected} == expected


@pytest.mark.parametrize("columns", ["question=q", "question=q,answer", "question=q,answer=a,colour=c"])
def test_columns_that_cannot_be_mapped_are_refused(columns: str) -> None:
    with pytest.raises(UsageError, match="--fields"):
        suite_by_columns("p.csv", columns)

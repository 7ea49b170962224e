"""Published sets are converted from the files of their publishers."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import subprocess
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.app.case_sets import load_cases
from conductor_cli.core.errors import ConfigError, UsageError
from conductor_cli.evals.cases import Case, is_correct, warn_of_long_answers, write_cases
from conductor_cli.evals.suite_files import read_suite
from conductor_cli.evals.suites import SUITES, suite_by_columns
from conductor_cli.system.installation import extra_command

MATH = {
    "problem": "Compute $1+1$.",
    "solution": "…",
    "answer": "2",
    "subject": "Counting & Probability",
    "level": 2,
    "unique_id": "test/counting_and_probability/7.json",
}
GPQA = {
    "Record ID": "rec1",
    "Question": "Why?",
    "Correct Answer": "yes\n",
    "Incorrect Answer 1": "no",
    "Incorrect Answer 2": "perhaps",
    "Incorrect Answer 3": "never",
    "High-level domain": "Physics",
}
RLPR = {
    "data_source": "WebInstruct",
    "ability": "Physics",
    "reward_model": {"ground_truth": "50400 N", "style": "rule"},
    "prompt": [
        {"role": "system", "content": "Think."},
        {"role": "user", "content": "Which force?"},
    ],
    "extra_info": {"index": 5},
}
MMLU_PRO = {
    "question_id": 70,
    "question": "Which?",
    "options": ["w", "x", "y", "N/A"],
    "answer": "B",
    "answer_index": 1,
    "cot_content": "A: Let's think step by step. The answer is (B).",
    "category": "business",
}
MMLU = {
    "question": "Which?",
    "subject": "abstract_algebra",
    "choices": ["w", "x", "y", "z"],
    "answer": 2,
}


def convert(name: str, path: Path, **options: Any) -> tuple[Case, ...]:
    return read_suite(SUITES[name], path, **options)


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def table(path: Path, *rows: list[str]) -> Path:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    path.write_text(text.getvalue(), encoding="utf-8")
    return path


def test_math500_is_asked_with_the_instruction_of_published_harnesses(tmp_path: Path) -> None:
    """Problem, answer and level of the JSON Lines, with the instruction of published harnesses."""
    assert convert("math500", lines(tmp_path / "test.jsonl", MATH)) == (
        Case(
            id="test/counting_and_probability/7.json",
            answer="2",
            scorer="math",
            question="Compute $1+1$.\n\nPut the final answer in \\boxed{}.",
            tags=("math", "counting-probability", "level-2"),
        ),
    )


@pytest.mark.parametrize(
    "row",
    [
        {"id": "3", "problem": "Find n.", "answer": "070"},
        {"id": "3", "question": "Find n.", "answer": 70},
        {"id": "3", "question": "Find n.", "answer": "70^\\circ"},
    ],
)
def test_aime25_is_read_in_the_form_of_either_publisher(
    tmp_path: Path, row: dict[str, Any]
) -> None:
    """The files of two publishers differ in field names and in how they write the answer."""
    (case,) = convert("aime25", lines(tmp_path / "test.jsonl", row))
    assert (case.id, case.answer, case.scorer, case.tags) == ("3", "70", "number", ("math", "aime"))
    assert is_correct(r"Therefore, $\boxed{070}$.", case)


def test_ids_that_begin_at_0_are_kept(tmp_path: Path) -> None:
    """The row of id 0 would else have that of the next one."""
    rows = [{"id": number, "problem": f"Find {number}.", "answer": 70} for number in range(2)]
    path = tmp_path / "test.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert [case.id for case in read_suite(SUITES["aime25"], path)] == ["0", "1"]


def test_mmlu_pro_is_asked_after_five_solved_questions_of_its_category(tmp_path: Path) -> None:
    """By the prompt of its authors; options that only fill the list up are left out."""
    path = lines(tmp_path / "test.jsonl", MMLU_PRO)
    others = [
        {**MMLU_PRO, "question": f"Example {number}?", "category": "law"} for number in range(5)
    ]
    solved = [{**MMLU_PRO, "question": f"Old {number}?"} for number in range(7)]
    lines(tmp_path / "validation.jsonl", *others, *solved)
    (case,) = convert("mmlu-pro", path)
    answered = "Options: A. w\nB. x\nC. y\nAnswer: Let's think step by step."
    shown = "".join(
        f"Question: Old {number}?\n{answered} The answer is (B).\n\n" for number in range(5)
    )
    assert case == Case(
        id="70",
        answer="B",
        scorer="mmlu-pro",
        choices=("w", "x", "y"),
        tags=("facts", "business"),
        question="The following are multiple choice questions (with answers) about business. Think "
        "step by step and "
        f'then output the answer in the format of "The answer is (X)" at the end.\n\n{shown}'
        f"Question: Which?\n{answered}",
    )


def test_a_row_of_the_suite_mmlu_pro_may_have_one_option(tmp_path: Path) -> None:
    """Five rows of the published file do, so the whole file was refused."""
    lines(tmp_path / "validation.jsonl", *[MMLU_PRO] * 5)
    row = {**MMLU_PRO, "options": ["All of these."], "answer": "A"}
    (case,) = convert("mmlu-pro", lines(tmp_path / "test.jsonl", row))
    assert (case.choices, case.answer) == (("All of these.",), "A")


def test_mmlu_pro_is_refused_without_its_solved_questions(tmp_path: Path) -> None:
    """Another prompt would give figures that look comparable and are not."""
    path = lines(tmp_path / "test.jsonl", MMLU_PRO)
    with pytest.raises(
        UsageError, match="the solved questions that the prompt of mmlu-pro shows are not beside"
    ):
        convert("mmlu-pro", path)
    lines(tmp_path / "validation.jsonl", *[MMLU_PRO] * 4)
    with pytest.raises(UsageError, match="the file of examples has 4 of 5 about 'business'"):
        convert("mmlu-pro", path)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**MMLU_PRO, "answer": "D"}, "none of the options"),
        ({**MMLU_PRO, "options": "abc"}, "not a list of 1 to 10"),
        ({**MMLU_PRO, "options": []}, "not a list of 1 to 10"),
        ({**MMLU_PRO, "options": ["x"] * 11}, "not a list of 1 to 10"),
    ],
)
def test_a_damaged_row_of_mmlu_pro_is_named(
    row: dict[str, Any], message: str, tmp_path: Path
) -> None:
    lines(tmp_path / "validation.jsonl", *[MMLU_PRO] * 5)
    with pytest.raises(UsageError, match=f"row 1: not a row of mmlu-pro: .*{message}"):
        convert("mmlu-pro", lines(tmp_path / "test.jsonl", row))


def test_the_choices_of_mmlu_are_written_under_its_question(tmp_path: Path) -> None:
    assert convert("mmlu", lines(tmp_path / "mmlu.jsonl", MMLU)) == (
        Case(
            id="abstract-algebra-1",
            answer="C",
            scorer="choice",
            tags=("facts", "abstract-algebra"),
            choices=("w", "x", "y", "z"),
            question=(
                "Which?\n\nA) w\nB) x\nC) y\nD) z\n\nYour last line has this form, where "
                "LETTER is one of the letters above: Answer: LETTER"
            ),
        ),
    )


def test_the_form_of_an_answer_names_no_letter_that_could_be_copied(tmp_path: Path) -> None:
    """A model of half a billion weights answered X where the form was "Answer: X"."""
    [case] = convert("mmlu", lines(tmp_path / "mmlu.jsonl", MMLU))
    form = case.question.rpartition("\n\n")[2]
    assert not re.search(r"\b[A-Z]\b", form)
    assert not is_correct(form, case)


def test_the_choices_of_gpqa_are_shuffled_by_the_seed(tmp_path: Path) -> None:
    """The right choice is first in the file.

    The seed shuffles the choices, and the letter follows.
    """
    rows = [list(GPQA), *([f"rec{number}", *list(GPQA.values())[1:]] for number in range(200))]
    path = table(tmp_path / "gpqa_diamond.csv", *rows)
    cases = convert("gpqa-diamond", path, seed=1)
    assert cases == convert("gpqa-diamond", path, seed=1)
    assert [c.answer for c in cases] != [c.answer for c in convert("gpqa-diamond", path, seed=2)]
    assert all(case.choices["ABCD".index(case.answer)] == "yes" for case in cases)
    assert min(Counter(case.answer for case in cases).values()) > 30
    assert cases[0].tags == ("science", "physics")
    assert f"{cases[0].answer}) yes" in cases[0].question


@pytest.mark.parametrize(
    ("name", "row", "says"),
    [
        ("math500", {**MATH, "answer": None}, "'answer' is missing"),
        ("math500", {}, "'problem' is missing"),
        ("math500", [1], "not an object"),
        ("aime25", {"problem": "?", "answer": "x"}, "not a whole number"),
        ("mmlu", {**MMLU, "answer": 9}, "does not fit the scorer choice"),
        ("mmlu", {**MMLU, "answer": 99}, "'answer' is empty"),
        ("gpqa-diamond", MMLU, "'Correct Answer' is missing"),
        ("rlpr", {**RLPR, "reward_model": {}}, "'ground_truth' is missing"),
        ("rlpr", {**RLPR, "prompt": []}, "no prompt"),
    ],
)
def test_a_row_of_another_set_is_reported(tmp_path: Path, name: str, row: Any, says: str) -> None:
    with pytest.raises(UsageError) as error:
        convert(name, lines(tmp_path / "test.jsonl", row))
    assert f"{tmp_path / 'test.jsonl'}, row 1: " in error.value.message
    assert says in error.value.message
    assert error.value.hint == f"use {SUITES[name].source}"


values = (
    st.none()
    | st.text()
    | st.integers()
    | st.booleans()
    | st.lists(st.text())
    | st.dictionaries(st.text(), st.text())
)


@given(
    st.sampled_from(sorted(SUITES)),
    st.dictionaries(st.sampled_from(sorted({*MATH, *GPQA, *MMLU, *RLPR})), values),
)
def test_no_row_crashes_a_converter(
    tmp_path_factory: pytest.TempPathFactory, name: str, row: dict[str, Any]
) -> None:
    with suppress(UsageError):
        convert(name, lines(tmp_path_factory.mktemp("rows") / "test.jsonl", row))


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("test-00000-of-00001.parquet", b"PAR1\x00", "is no Parquet file that can be read"),
        ("test.jsonl", b"", "contains no rows"),
        ("test.jsonl", b"{", "not a row"),
        ("test.jsonl", b"[" * 100_000, "not a row"),
        ("test.csv", b"", "contains no rows"),
        ("test.csv", b'"' + b"x" * 200_000, "not a file of math500"),
        ("test.jsonl", (json.dumps(MATH) + "\n").encode() * 2, "row 1 has the same id"),
    ],
)
def test_an_unusable_file_is_an_error(tmp_path: Path, file: str, content: bytes, says: str) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(UsageError) as error:
        convert("math500", tmp_path / file)
    assert says in error.value.message
    assert error.value.hint == "use test.jsonl of HuggingFaceH4/MATH-500" or "Parquet" in says


def test_an_unknown_suite_is_an_error(tmp_path: Path) -> None:
    for name, hint in (("x", "gpqa-diamond"), ("mmlu-max", "mmlu-pro")):
        with pytest.raises(UsageError, match=f"unknown suite '{name}'") as error:
            load_cases(name, file="x.jsonl", count=None, seed=0)
        assert hint in error.value.hint
    with pytest.raises(UsageError, match="No such file"):
        convert("mmlu", tmp_path / "none.csv")


def test_rlpr_keeps_its_prompt_and_leaves_long_answers_out(tmp_path: Path) -> None:
    """The prompt is the file's own.

    Questions with long answers are left out, and a sample has as many as asked for.
    """
    long = {**RLPR, "reward_model": {"ground_truth": "x" * 31}}
    cases = convert("rlpr", lines(tmp_path / "train.jsonl", long, RLPR, long, RLPR))
    assert [case.id for case in cases] == ["webinstruct-5-2", "webinstruct-5-4"]
    assert (cases[0].question, cases[0].answer, cases[0].scorer) == (
        "Think.\n\nWhich force?",
        "50400 N",
        "rlpr",
    )
    assert len(convert("rlpr", tmp_path / "train.jsonl", count=2)) == 2
    with pytest.raises(UsageError, match="the file holds 2 cases"):
        convert("rlpr", tmp_path / "train.jsonl", count=3)


def test_a_parquet_file_gives_the_same_cases(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    given = [{**RLPR, "extra_info": {"index": number}} for number in range(5)]
    parquet.write_table(pyarrow.Table.from_pylist(given), tmp_path / "train.parquet")
    assert convert("rlpr", tmp_path / "train.parquet") == convert(
        "rlpr", lines(tmp_path / "train.jsonl", *given)
    )


def test_without_the_extra_a_parquet_file_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (tmp_path / "train.parquet").write_bytes(b"")
    with pytest.raises(ConfigError, match="needs pyarrow") as error:
        convert("rlpr", tmp_path / "train.parquet")
    assert error.value.hint == extra_command("parquet")


def test_a_sample_reads_only_its_rows(tmp_path: Path) -> None:
    (tmp_path / "test.jsonl").write_text(
        "\n".join(json.dumps({**MATH, "unique_id": f"q{number}"}) for number in range(50))
        + "\n{damaged\n"
    )
    cases = convert("math500", tmp_path / "test.jsonl", count=3, seed=1)
    assert cases == convert("math500", tmp_path / "test.jsonl", count=3, seed=1)
    numbers = [int(case.id[1:]) for case in cases]
    assert numbers == sorted(numbers)
    with pytest.raises(UsageError, match="row 51: not a row of math500"):
        convert("math500", tmp_path / "test.jsonl")


def test_no_suite_is_stored_here_that_may_not_be() -> None:
    """No file of the repository has a question of a suite: each would be in a file of its name."""
    names = {Path(suite.file).name for suite in SUITES.values()} | {
        f"{name}.jsonl" for name in SUITES
    }
    root = Path(__file__).parents[2]
    listed = subprocess.run(
        ["git", "ls-files"], cwd=root, capture_output=True, text=True, check=False
    ).stdout.split()
    assert [
        name
        for name in listed
        if Path(name).name in names - {"test.jsonl"} or name.endswith(".parquet")
    ] == []


@pytest.mark.parametrize(
    ("name", "content", "columns", "expected"),
    [
        (
            "p.csv",
            "problem,target\nWhat?,4\n",
            "question=problem,answer=target,scorer=number",
            {"id": "1", "question": "What?", "answer": "4", "scorer": "number"},
        ),
        (
            "p.csv",
            'q,a,o\nWhat?,1,"[""x"", ""y""]"\n',
            "question=q,answer=a,choices=o",
            {"answer": "B", "scorer": "choice", "choices": ["x", "y"]},
        ),
        (
            "p.jsonl",
            '{"k": 7, "q": "What?", "a": "y", "o": ["x", "y"], "t": ["Hard ones"]}',
            "id=k,question=q,answer=a,choices=o,tags=t",
            {"id": "7", "answer": "B", "tags": ["hard-ones"]},
        ),
    ],
)
def test_columns_of_any_file_are_mapped(
    tmp_path: Path, name: str, content: str, columns: str, expected: dict[str, Any]
) -> None:
    (tmp_path / name).write_text(content)
    (case,) = read_suite(suite_by_columns(name, columns), tmp_path / name)
    fields = json.loads(write_cases([case]))
    assert {key: fields.get(key) for key in expected} == expected


@pytest.mark.parametrize(
    "columns", ["question=q", "question=q,answer", "question=q,answer=a,colour=c"]
)
def test_columns_that_cannot_be_mapped_are_refused(columns: str) -> None:
    with pytest.raises(UsageError, match="--fields"):
        suite_by_columns("p.csv", columns)


GSM8K_ROW = {
    "question": "Janet has 16 ducks.",
    "answer": "She sells 16 - 3 - 4 = <<16-3-4=9>>9 eggs.\nShe makes 9 * 2 = $18.\n#### 1,018",
}


def test_gsm8k_is_read_as_it_is_published(tmp_path: Path) -> None:
    path = tmp_path / "test.jsonl"
    path.write_text(json.dumps(GSM8K_ROW))
    (case,) = read_suite(SUITES["gsm8k"], path)
    assert (case.answer, case.scorer) == ("1018", "number")
    columns = suite_by_columns("test.jsonl", "question=question,answer=answer,scorer=number")
    (case,) = read_suite(columns, path)
    assert is_correct("She makes 1,018 dollars.", case)
    assert not is_correct("She makes 18 dollars.", case)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (["Paris", "City of Paris"], "found a list of 2"),
        ({"value": "Paris", "aliases": []}, r"found an object \(value, aliases\)"),
    ],
)
def test_a_list_or_an_object_is_no_expected_answer(
    tmp_path: Path, value: object, problem: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"q": "Capital of France?", "answers": value}))
    columns = suite_by_columns("rows.jsonl", "question=q,answer=answers")
    with pytest.raises(UsageError, match=f"row 1: .*{problem}"):
        read_suite(columns, path)
    path.write_text(json.dumps({"q": "Capital of France?", "answers": ["Paris"]}))
    (case,) = read_suite(columns, path)
    assert case.answer == "Paris"


@pytest.mark.parametrize(
    ("choices", "answer", "letter"),
    [
        (["3", "1", "2", "0"], 0, "A"),
        (["3", "1", "2", "0"], "0", "D"),
        (["10", "20"], 1, "B"),
        (["10", "20"], "1", "B"),
        (["a", "b"], "B", "B"),
    ],
)
def test_a_whole_number_is_the_place_of_a_choice_and_a_text_a_text(
    tmp_path: Path, choices: list[str], answer: object, letter: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"q": "Which?", "c": choices, "a": answer}))
    (case,) = read_suite(suite_by_columns("rows.jsonl", "question=q,answer=a,choices=c"), path)
    assert case.answer == letter


def test_choices_without_a_letter_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"q": "Which?", "c": [f"c{n}" for n in range(30)], "a": 29}))
    columns = suite_by_columns("rows.jsonl", "question=q,answer=a,choices=c")
    with pytest.raises(UsageError, match="30 choices, and at most 26"):
        read_suite(columns, path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("q,a\nHow many?,1,234\n", "row 1: 3 cells, and the head has 2 columns"),
        ("q,a\nHow many?\n", "row 1: 1 cells"),
        ("q;a\nHow many?;12\n", "'q' is missing; its columns are q;a"),
        ('q,a\n"How many?,12\n', "unexpected end of data"),
        ('q,a\n"How" many?,12\n', "expected after"),
        ("q,q\nHow many?,12\n", "two columns are called 'q'"),
    ],
)
def test_a_broken_csv_file_is_an_error_and_loses_nothing(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=re.escape(problem)):
        read_suite(suite_by_columns("rows.csv", "question=q,answer=a"), path)


def test_a_csv_file_that_gzip_packed_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b"q,a\nWhy?,7\n"))
    (case,) = read_suite(suite_by_columns("rows.csv.gz", "question=q,answer=a"), path)
    assert (case.question, case.answer) == ("Why?", "7")


def test_a_large_cell_of_a_csv_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f"q,a\n{'x' * 200_000},12\n")
    (case,) = read_suite(suite_by_columns("rows.csv", "question=q,answer=a"), path)
    assert len(case.question) == 200_000


def test_expected_answers_longer_than_a_line_are_told(tmp_path: Path) -> None:
    path = tmp_path / "test.jsonl"
    path.write_text(json.dumps(GSM8K_ROW))
    cases = read_suite(suite_by_columns("test.jsonl", "question=question,answer=answer"), path)
    assert warn_of_long_answers(cases).startswith("1 of 1 expected answers of the scorer exact")
    assert warn_of_long_answers(read_suite(SUITES["gsm8k"], path)) == ""


@pytest.mark.parametrize(
    ("choices", "answer"),
    [
        ({"text": ["red", "green"], "label": ["A", "B"]}, "B"),
        ({"text": ["red", "green"], "label": ["1", "2"]}, "2"),
        ([{"label": "A", "text": "red"}, {"label": "B", "text": "green"}], "B"),
        ({"A": "red", "B": "green"}, "B"),
        (["red", "green"], 1.0),
        ({"A": "red", "B": "green", "C": None, "D": None}, "B"),
    ],
)
def test_choices_are_read_in_the_forms_of_published_sets(
    tmp_path: Path, choices: Any, answer: Any
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"q": "Which?", "c": choices, "a": answer}))
    (case,) = read_suite(suite_by_columns("rows.jsonl", "question=q,answer=a,choices=c"), path)
    assert (case.choices, case.answer) == (("red", "green"), "B")


@pytest.mark.parametrize("choices", [["red", "green "], {"A": "red", "B": " green"}])
def test_an_answer_is_found_among_choices_with_space_around_them(
    tmp_path: Path, choices: Any
) -> None:
    """As in MedQA, which has the same space behind its answer."""
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"q": "Which?", "c": choices, "a": "green "}))
    (case,) = read_suite(suite_by_columns("rows.jsonl", "question=q,answer=a,choices=c"), path)
    assert case.answer == "B"


def test_the_choice_none_is_no_label(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    choices = [{"text": "red"}, {"text": "None"}]
    path.write_text(json.dumps({"q": "Which?", "c": choices, "a": "None"}))
    (case,) = read_suite(suite_by_columns("rows.jsonl", "question=q,answer=a,choices=c"), path)
    assert case.answer == "B"


@pytest.mark.parametrize(
    "choices",
    [
        ["red", None],
        {"A": None, "B": "green"},
        "red|green",
        "red",
        {"x": 1},
        [{"name": "red"}, {"name": "green"}],
        [["red"]],
    ],
)
def test_choices_that_are_no_texts_are_an_error(tmp_path: Path, choices: Any) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"q": "Which?", "c": choices, "a": "A"}))
    with pytest.raises(UsageError, match="row 1: not a row"):
        read_suite(suite_by_columns("rows.jsonl", "question=q,answer=a,choices=c"), path)


def test_a_row_of_mmlu_pro_may_have_one_choice(tmp_path: Path) -> None:
    """Five rows of the published file do, so one is no sign of a wrong column."""
    path = tmp_path / "rows.jsonl"
    row = {
        "question_id": 2129,
        "question": "Name disorders.",
        "options": ["All of these."],
        "answer": "A",
        "answer_index": 0,
        "category": "psychology",
    }
    path.write_text(json.dumps(row))
    columns = "id=question_id,question=question,choices=options,answer=answer"
    (case,) = read_suite(suite_by_columns("mmlu-pro", columns), path)
    assert (case.choices, case.answer) == (("All of these.",), "A")


def test_a_column_that_no_row_has_is_an_error(tmp_path: Path) -> None:
    """Its questions would be asked without their choices."""
    path = tmp_path / "rows.jsonl"
    path.write_text('{"q": "Which?", "options": ["red", "green"], "a": "A"}')
    with pytest.raises(UsageError, match="no row has 'chosen'; its columns are a, options, q"):
        read_suite(suite_by_columns("p", "question=q,answer=a,choices=chosen"), path)


def test_a_column_without_a_name_is_no_field(tmp_path: Path) -> None:
    """Pandas writes its index into one."""
    path = tmp_path / "rows.csv"
    path.write_text(",q,a\n0,x?,1\n1,y?,2\n")
    cases = read_suite(suite_by_columns("rows.csv", "question=q,answer=a"), path)
    assert [(case.answer, case.scorer, case.tags) for case in cases] == [
        ("1", "exact", ()),
        ("2", "exact", ()),
    ]


@pytest.mark.parametrize(
    ("value", "answer"), [(b"caf\xc3\xa9", "caf\u00e9"), (3.0, "3"), (0.5, "0.5")]
)
def test_values_of_a_parquet_file_are_written_as_people_write_them(
    tmp_path: Path, value: Any, answer: str
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"q": [b"Which?"], "a": [value]}), tmp_path / "p.parquet")
    columns = suite_by_columns("p.parquet", "question=q,answer=a")
    (case,) = read_suite(columns, tmp_path / "p.parquet")
    assert (case.question, case.answer) == ("Which?", answer)


@pytest.mark.parametrize(
    ("value", "says"), [(float("nan"), "'a' is missing"), (b"\xff", "no UTF-8")]
)
def test_no_number_and_no_text_are_no_answer(tmp_path: Path, value: Any, says: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"q": ["Which?"], "a": [value]}), tmp_path / "p.parquet")
    with pytest.raises(UsageError, match=says):
        read_suite(suite_by_columns("p.parquet", "question=q,answer=a"), tmp_path / "p.parquet")

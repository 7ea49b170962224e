"""Files of cases, and the built-in set."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.errors import UsageError
from conductor_cli.core.terminal_text import one_line
from conductor_cli.evals import cases as module
from conductor_cli.evals.cases import (
    MAX_COUNT,
    Case,
    GoldStep,
    is_correct,
    make_basics,
    read_case_file,
    read_cases,
    write_cases,
)

WHOLE: dict[str, Any] = {"id": "1", "question": "What is 2 + 2?", "answer": "4"}


def file(directory: Path, *lines: Any) -> Path:
    path = directory / "cases.jsonl"
    path.write_text(
        "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    )
    return path


def fault(path: Path) -> UsageError:
    with pytest.raises(UsageError) as error:
        read_cases(path)
    return error.value


def test_a_case_with_every_field_or_the_needed_ones_is_read(tmp_path: Path) -> None:
    path = file(tmp_path, "", WHOLE, "  ")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_cases(path) == (Case(id="1", question="What is 2 + 2?", answer="4"),)
    steps = [
        {"skill": "math", "subtask": "Add."},
        {"skill": "facts", "subtask": "Name it.", "access": [1]},
    ]
    fields = {
        **WHOLE,
        "answer": "B",
        "scorer": "choice",
        "tags": ["a", "b"],
        "choices": ["3", "4"],
        "steps": steps,
    }
    assert read_cases(file(tmp_path, fields)) == (
        Case(
            id="1",
            question="What is 2 + 2?",
            answer="B",
            scorer="choice",
            tags=("a", "b"),
            choices=("3", "4"),
            steps=(
                GoldStep(skill="math", subtask="Add."),
                GoldStep(skill="facts", subtask="Name it.", access=(1,)),
            ),
        ),
    )


texts = st.text(min_size=1, max_size=20).filter(lambda text: text.strip())
tags = texts.map(one_line).filter(bool)


@given(
    st.lists(
        st.builds(
            Case,
            id=texts,
            question=texts,
            answer=texts.map(lambda t: f"a{t}a"),
            tags=st.tuples(tags),
        ),
        min_size=1,
        unique_by=lambda c: c.id,
    )
)
def test_written_cases_read_back_equal(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[Case]
) -> None:
    path = tmp_path_factory.mktemp("cases") / "cases.jsonl"
    path.write_text(write_cases(drawn), encoding="utf-8")
    assert list(read_cases(path)) == drawn


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"id": "1", "question": "?"}, "'answer' is missing"),
        ({**WHOLE, "scorer": "guess"}, "unknown scorer 'guess'"),
        ({**WHOLE, "tag": ["a"]}, "unknown field 'tag'"),
        ({**WHOLE, "answer": 4}, "answer: expected text, found a number (4)"),
        ({**WHOLE, "tags": "a"}, "tags: expected a list"),
        ({**WHOLE, "answer": "four", "scorer": "number"}, "'four' does not fit the scorer number"),
        (
            {**WHOLE, "answer": "E", "scorer": "choice", "choices": ["1", "2"]},
            "does not fit the scorer choice",
        ),
        ({**WHOLE, "answer": "..."}, "does not fit the scorer exact"),
        ({**WHOLE, "question": "  "}, "'question' is empty"),
        ({**WHOLE, "steps": [{"skill": "a"}]}, "'subtask' is missing"),
        (
            {**WHOLE, "steps": [{"skill": "a", "subtask": " "}]},
            "step 1 needs a skill and a subtask",
        ),
        (
            {**WHOLE, "steps": [{"skill": "a", "subtask": "b", "access": [1]}]},
            "step 1 may access each earlier step",
        ),
        ({**WHOLE, "tags": ["a\nB: choose me"]}, "is not one line of 1 to 48 characters"),
        ({**WHOLE, "tags": ["a" * 49]}, "is not one line of 1 to 48 characters"),
        ("[1]", "expected an object, found a list"),
        ("[" * 100_000, "not JSON"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_an_invalid_line_is_reported_with_its_number(tmp_path: Path, line: Any, says: str) -> None:
    error = fault(file(tmp_path, WHOLE, line))
    assert f"{tmp_path / 'cases.jsonl'}, line 2: " in error.message
    assert says in error.message
    assert error.hint


def test_an_unreadable_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "No such file" in fault(tmp_path / "none.jsonl").message
    assert "cannot be read: Is a directory" in fault(tmp_path).message
    path = tmp_path / "latin.jsonl"
    path.write_bytes(b"{}\ncaf\xe9\n")
    assert "is not UTF-8 text: byte 0xe9" in fault(path).message
    assert "iconv -f CP1252 -t UTF-8" in fault(path).hint
    path.write_text("{}\n", "utf-16")
    assert "iconv -f UTF-16 -t UTF-8" in fault(path).hint
    path.write_text("{}\n", "utf-16-le")  # without a byte order mark it is UTF-8 with NUL bytes
    assert "iconv -f UTF-16LE -t UTF-8" in fault(path).hint
    path.write_text('{"question": "日本語のテキスト"}\n', "shift_jis")
    assert "its encoding is not known" in fault(path).message
    path.write_bytes(b"\xff\x00\x01")
    assert "iconv" not in fault(path).hint
    assert "contains no cases" in fault(file(tmp_path, "", "")).message
    same = fault(file(tmp_path, WHOLE, {**WHOLE, "id": "2"}, WHOLE)).message
    assert "line 3: another line has the same id '1'" in same
    monkeypatch.setattr(module, "MAX_FILE_SIZE", 10)
    assert "larger than" in fault(file(tmp_path, WHOLE)).message


def test_the_hash_depends_on_every_field_and_the_order() -> None:
    base = Case(id="1", question="?", answer="x")
    other = replace(base, answer="y")
    stepped = replace(base, steps=(GoldStep(skill="s", subtask="t"),))
    sets = [[base], [other], [replace(base, tags=("a",))], [stepped], [base, other], [other, base]]
    assert len({module.hash_cases(case_set) for case_set in sets}) == len(sets)


MANY_CASES = make_basics(600, seed=3)


def of(tag: str, words: str = "") -> list[Case]:
    """The cases of a tag whose question has these words."""
    matching = [case for case in MANY_CASES if case.tags == (tag,) and words in case.question]
    assert matching
    return matching


def test_every_case_is_unique_and_scores_its_own_answer_as_right() -> None:
    assert (
        len({case.id for case in MANY_CASES}) == len({case.question for case in MANY_CASES}) == 600
    )
    for case in MANY_CASES:
        module.check_case(case)
        assert is_correct(case.answer, case)
        assert not is_correct("I do not know.", case)


def test_the_seed_determines_the_cases() -> None:
    """The same seed gives the same cases, another one hardly any of them.

    A smaller set begins a larger one.
    """
    assert make_basics(seed=1) == make_basics(seed=1)
    assert make_basics(12, seed=1) == make_basics(seed=1)[:12]
    first, second = ({case.question for case in make_basics(seed=seed)} for seed in (1, 2))
    assert len(first & second) < 5


def test_programs_print_the_expected_answer() -> None:
    for case in of("math"):
        assert eval(re.findall(r"What is (.+)\?", case.question)[0]) == int(case.answer)
    for case in of("code"):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(case.question.partition("\n\n")[2])
        assert printed.getvalue().strip() == case.answer


def test_orderings_have_one_answer() -> None:
    """The comparisons form one chain, and the answer has the position that is asked for."""
    places = ("tallest", "second tallest", "third tallest", "second smallest", "smallest")
    for case in of("reasoning"):
        taller = dict(re.findall(r"(\w+) is taller than (\w+)\.", case.question))
        (name,) = set(taller) - set(taller.values())
        chain = [name]
        while chain[-1] in taller:
            chain.append(taller[chain[-1]])
        (place_name,) = re.findall(r"Who is the (.+) of the five", case.question)
        assert len(chain) == 5
        assert chain[places.index(place_name)] == case.answer


def test_letter_questions_have_the_right_answer() -> None:
    for case in of("letters"):
        quoted = re.findall(r'"([^"]+)"', case.question)
        if "backwards" in case.question:
            assert "".join(reversed(quoted[0])) == case.answer
        else:
            assert Counter(quoted[1])[quoted[0]] == int(case.answer)


def test_too_many_cases_are_an_error() -> None:
    assert len(make_basics(MAX_COUNT)) == MAX_COUNT
    with pytest.raises(UsageError, match=r"has at most 4,000 cases"):
        make_basics(MAX_COUNT + 1)


def test_a_file_that_gzip_packed_is_read_whatever_its_name(tmp_path: Path) -> None:
    """Two members in a row are one file."""
    lines = ['{"question": "Who?", "answer": "Ann"}\n', '{"question": "When?", "answer": "1"}\n']
    packed = b"".join(gzip.compress(line.encode()) for line in lines)
    for name in ("cases.jsonl.gz", "cases.jsonl"):
        (tmp_path / name).write_bytes(packed)
        assert read_case_file(tmp_path / name) == "".join(lines)


@pytest.mark.parametrize(
    "content", [b"\x1f\x8bno gzip", gzip.compress(b"x" * 99)[:-9]], ids=["no gzip", "cut"]
)
def test_a_file_that_cannot_be_unpacked_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "cases.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="cannot be unpacked") as caught:
        read_case_file(path)
    assert caught.value.hint == f"unpack it yourself: gunzip {path}"

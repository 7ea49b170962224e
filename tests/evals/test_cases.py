"""Files of cases: what is read, and which errors are reported."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.errors import UsageError
from conductor_cli.core.terminal_text import one_line
from conductor_cli.evals import cases as module
from conductor_cli.evals.cases import Case, GoldStep, extract_answer, hash_cases, is_correct, read_cases, write_cases

WHOLE: dict[str, Any] = {"id": "1", "question": "What is 2 + 2?", "answer": "4"}


def file(place: Path, *lines: Any) -> Path:
    path = place / "cases.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


def fault(path: Path) -> UsageError:
    with pytest.raises(UsageError) as error:
        read_cases(path)
    return error.value


def test_id_question_and_answer_make_a_case(tmp_path: Path) -> None:
    """The default scorer is exact; blank lines and a byte order mark are ignored."""
    path = file(tmp_path, "", WHOLE, "  ")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_cases(path) == (Case(id="1", question="What is 2 + 2?", answer="4"),)


def test_a_case_with_every_field_is_read(tmp_path: Path) -> None:
    """Scorer, tags, choices and the known decomposition."""
    steps = [{"skill": "math", "subtask": "Add."}, {"skill": "facts", "subtask": "Name it.", "access": [1]}]
    more = {**WHOLE, "answer": "B", "scorer": "choice", "tags": ["a", "b"], "choices": ["3", "4"], "steps": steps}
    assert read_cases(file(tmp_path, more)) == (
        Case(
            id="1", question="What is 2 + 2?", answer="B", scorer="choice", tags=("a", "b"), choices=("3", "4"),
            steps=(GoldStep(skill="math", subtask="Add."), GoldStep(skill="facts", subtask="Name it.", access=(1,))),
        ),
    )  # fmt: skip


texts = st.text(min_size=1, max_size=20).filter(lambda text: text.strip())
tags = texts.map(one_line).filter(bool)


@given(
    st.lists(
        st.builds(Case, id=texts, question=texts, answer=texts.map(lambda t: f"a{t}a"), tags=st.tuples(tags)),
        min_size=1,
        unique_by=lambda c: c.id,
    )
)
def test_written_cases_read_back_equal(tmp_path_factory: pytest.TempPathFactory, drawn: list[Case]) -> None:
    """Whatever characters they contain."""
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
        ({**WHOLE, "id": 1}, "id: expected text, found a number"),
        ({**WHOLE, "tags": "a"}, "tags: expected a list"),
        ({**WHOLE, "answer": "four", "scorer": "number"}, "'four' does not fit the scorer number"),
        ({**WHOLE, "answer": "E", "scorer": "choice", "choices": ["1", "2"]}, "does not fit the scorer choice"),
        ({**WHOLE, "answer": "..."}, "does not fit the scorer exact"),
        ({**WHOLE, "question": "  "}, "'question' is empty"),
        ({**WHOLE, "steps": [{"skill": "a"}]}, "'subtask' is missing"),
        ({**WHOLE, "steps": [{"skill": "a", "subtask": " "}]}, "step 1 needs a skill and a subtask"),
        ({**WHOLE, "steps": [{"skill": "a", "subtask": "b", "access": [1]}]}, "step 1 may access each earlier step"),
        ({**WHOLE, "steps": 7}, "steps: expected a list"),
        ({**WHOLE, "tags": ["a\nB: choose me"]}, "is not one line of 1 to 48 characters"),
        ({**WHOLE, "tags": [""]}, "is not one line of 1 to 48 characters"),
        ({**WHOLE, "tags": ["a" * 49]}, "is not one line of 1 to 48 characters"),
        ("[1]", "expected an object, found a list"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)  # fmt: skip
def test_an_invalid_line_is_reported_with_its_number(tmp_path: Path, line: Any, says: str) -> None:
    """The error has the file, the line, the problem, and a hint."""
    error = fault(file(tmp_path, WHOLE, line))
    assert f"{tmp_path / 'cases.jsonl'}, line 2: " in error.message
    assert says in error.message
    assert error.hint


def test_a_duplicate_id_is_reported_with_its_line(tmp_path: Path) -> None:
    """The error names the second of the two lines."""
    assert (
        "line 3: another line has the same id '1'" in fault(file(tmp_path, WHOLE, {**WHOLE, "id": "2"}, WHOLE)).message
    )


def test_a_file_without_cases_is_an_error(tmp_path: Path) -> None:
    """An empty file is not a set."""
    assert "contains no cases" in fault(file(tmp_path, "", "")).message


def test_an_unreadable_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing file, a directory, bytes that are not text, and a file that is too large."""
    assert "No such file" in fault(tmp_path / "none.jsonl").message
    assert "cannot be read: Is a directory" in fault(tmp_path).message
    path = tmp_path / "latin.jsonl"
    path.write_bytes(b"{}\n\xe9\n")
    assert "is not UTF-8 text: byte 0xe9" in fault(path).message
    monkeypatch.setattr(module, "MAX_FILE_SIZE", 10)
    assert "larger than" in fault(file(tmp_path, WHOLE)).message


def test_the_hash_depends_on_every_field_and_the_order() -> None:
    """Equal cases have the same hash."""
    one = Case(id="1", question="?", answer="x")
    others = [
        replace(one, answer="y"),
        replace(one, tags=("a",)),
        replace(one, steps=(GoldStep(skill="s", subtask="t"),)),
    ]
    digests = [
        hash_cases([one]),
        *(hash_cases([other]) for other in others),
        hash_cases([one, others[0]]),
        hash_cases([others[0], one]),
    ]
    assert len(set(digests)) == len(digests)
    assert hash_cases([one]) == hash_cases([Case(id="1", question="?", answer="x")])


def test_a_case_is_scored_by_its_own_scorer() -> None:
    """The same text is right for one scorer and wrong for another."""
    one = Case(id="1", question="?", answer="4")
    assert not is_correct("It is 4 or so", one)
    assert is_correct("It is 4 or so", replace(one, scorer="number"))
    assert extract_answer("It is 4.0 or so", replace(one, scorer="number")) == "4"

"""The two sets that are asked once. The files here are made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from conductor_cli.core.errors import UsageError
from training.rehearsal.asked_once import (
    PROBE,
    TypedQuestion,
    check_files,
    draw_phrased,
    in_place_of_held_out,
    read_phrasings,
    read_questions,
    rows_of,
    verdict_on,
)
from training.rehearsal.phrasings import WAYS, lines_of
from training.rehearsal.world import draw_problems

INSIDE = TypedQuestion(id="1", question="capital of france", answer="Paris", inside=True)
OUTSIDE = TypedQuestion(id="2", question="who won", answer="", inside=False)


@pytest.mark.parametrize(
    ("item", "code", "text", "verdict"),
    [
        (INSIDE, 0, "PARIS", "right"), (INSIDE, 0, "paris.\n", "right"), (INSIDE, 0, "ROME", "wrong"),
        (INSIDE, 0, "?", "declined"), (INSIDE, 2, "", "declined"), (INSIDE, 1, "", "failed"),
        (OUTSIDE, 0, "BRAZIL", "wrong"), (OUTSIDE, 2, "", "declined"),
    ],
)  # fmt: skip
def test_an_answer_is_right_wrong_or_declined(item: TypedQuestion, code: int, text: str, verdict: str) -> None:
    assert verdict_on(item, code, text) == verdict


def test_the_classes_are_told_apart() -> None:
    rows = rows_of([INSIDE, INSIDE, OUTSIDE, OUTSIDE], ["right", "declined", "declined", "wrong"])
    values = {row.what: (row.value, row.passes) for row in rows}
    assert values["wrong answers, of all"] == (0.25, False)
    assert values["within the world: right"] == (0.5, True)
    assert values["within the world: declined"] == (0.5, False)
    assert values["outside: declined"] == (0.5, True)
    assert values["runs that failed"] == (0.0, True)


def test_a_file_is_read_without_being_quoted(tmp_path: Path) -> None:
    file = tmp_path / "typed.jsonl"
    one, two = (
        '{"question": "a", "answer": null, "inside": false}',
        '{"id": 7, "question": "b", "answer": 5, "inside": 1}',
    )
    file.write_text(f"{one}\n\n{two}\n")
    first, second = read_questions(file)
    assert (first.id, first.answer, first.inside) == (f"{file}:1", "", False)
    assert (second.id, second.answer) == ("7", "5")
    for text in ('{"secret": 1}', "secret"):
        file.write_text(text)
        with pytest.raises(UsageError) as caught:
            read_questions(file)
        assert "secret" not in f"{caught.value.message}{caught.value.hint}"


def test_phrasings_of_a_file_replace_the_held_out_ones(tmp_path: Path) -> None:
    """Of the same form only, and only while they are in use. Other lines are counted."""
    file = tmp_path / "final.jsonl"
    file.write_text(
        '{"operation": "reverse", "form": "noun", "text": "{x} mirrored"}\n'
        '{"operation": "none", "form": "noun", "text": "{x}"}\n{"operation": "plus", "form": "noun", "text": "{x}"}\n'
    )
    found = read_phrasings(file)
    assert (dict(found.lines), found.unused) == ({"reverse": "!n {x} mirrored"}, 2)
    before = WAYS["reverse"]
    with in_place_of_held_out(found):
        assert lines_of(WAYS["reverse"], "noun", "held") == ("{x} mirrored",)
        assert lines_of(WAYS["reverse"], "noun", "known") == lines_of(before, "noun", "known")
    assert WAYS["reverse"] == before


def test_a_question_with_an_unknown_word_is_kept_and_marked(tmp_path: Path) -> None:
    file = tmp_path / "final.jsonl"
    forms = ("noun", "ask", "order", "then")
    lines = [
        f'{{"operation": "{name}", "form": "{form}", "text": "blorp {{x}} {{y}}"}}' for name in WAYS for form in forms
    ]
    file.write_text("\n".join(lines))
    exercises = draw_phrased(read_phrasings(file), 5, 1)
    assert not any(exercise.problem.readable for exercise in exercises)
    assert all("blorp" in exercise.question.lower() for exercise in exercises)
    assert all(problem.readable for problem in draw_problems(5, 1, split="test"))


@pytest.mark.parametrize(("code", "text"), [(0, "?"), (2, ""), (1, ""), (0, "")])
def test_files_that_do_not_work_together_are_asked_nothing(tmp_path: Path, code: int, text: str) -> None:
    """A set that is asked once must not be spent on missing files, or on cards of other workers."""
    asked: list[str] = []

    def ask(question: str) -> tuple[int, str]:
        asked.append(question)
        return code, text

    with pytest.raises(UsageError, match=r"lacks spelling\.gguf"):
        check_files(tmp_path, ask)
    assert asked == []
    with pytest.raises(UsageError, match="cannot answer"):
        check_files(None, ask)
    assert asked == [PROBE]
    check_files(None, lambda _: (0, "PARIS"))

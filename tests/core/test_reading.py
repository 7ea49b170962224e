"""Whether a worker reads a question whole, how room is shared, and what a notice says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.outline import OUTLINE_CHARS, as_outline, outline_of
from conductor_cli.core.pool import Worker
from conductor_cli.core.profile import WorkerProfile
from conductor_cli.core.question import (
    File,
    PastTurn,
    Question,
    fit_question,
    share_by_need,
    shorten,
)
from conductor_cli.core.reading import (
    describe_shortened,
    nobody_reads,
    outline_for,
    reading_of,
    too_small,
)

ANN = Worker(name="ann", kind="openai-compatible")
SMALL = replace(ANN, options={"context": 8000})
PROFILE = WorkerProfile()
LONG_TEXT = "word " * 30_000


def test_a_question_is_read_whole_where_it_fits_and_otherwise_not_at_all() -> None:
    question = Question(text="why?", files=(File(name="a.py", text="x" * 40_000),))
    assert reading_of(question, ANN, PROFILE, has_tools=True) == "whole"
    assert reading_of(question, SMALL, PROFILE, has_tools=True) == "none"
    assert reading_of(question, SMALL, replace(PROFILE, fits_files=True), has_tools=True) == (
        "shortened"
    )


@pytest.mark.parametrize("fits_files", [False, True])
@pytest.mark.parametrize("text", ["why?", "why? " * 150])
def test_a_system_text_never_takes_the_place_of_the_question(
    text: str, *, fits_files: bool
) -> None:
    profile = replace(PROFILE, fits_files=fits_files)
    question = Question(text=text, system="rule " * 4_000)
    assert reading_of(question, ANN, profile, has_tools=True) == "whole"
    assert reading_of(question, SMALL, profile, has_tools=True) == "none"
    by_schema = Question(text=text, schema={"enum": ["word"] * 4_000})
    assert reading_of(by_schema, SMALL, profile, has_tools=True) == "none"
    message, hint = nobody_reads(question, [SMALL], profile)
    assert message.startswith("the question with its system text and schema has about ")
    assert message.endswith("ann 8,000; a part of it is kept for the answer")
    assert hint.startswith("shorten the system text and the schema, attach less")


def test_a_text_is_never_longer_once_it_was_shortened() -> None:
    assert shorten("why?", 0) == "why?"
    assert len(shorten("x" * 100, 0)) < 100


def test_what_the_table_knows_of_a_model_counts_as_its_context() -> None:
    question = Question(text="why?", files=(File(name="a.py", text=LONG_TEXT),))
    assert reading_of(question, ANN, PROFILE, has_tools=True) == "none"
    listed = replace(ANN, max_input=200_000)
    assert reading_of(question, listed, PROFILE, has_tools=True) == "whole"
    limited = replace(listed, options={"context": 10_000})
    assert reading_of(question, limited, PROFILE, has_tools=True) == "none"


def test_a_directory_that_is_too_long_is_an_outline_for_who_can_call_tools() -> None:
    files = (
        File(name="src/a.py", text=LONG_TEXT, directory="src/"),
        File(name="notes.md", text="Mind this."),
    )
    question = Question(text="why?", files=files)
    assert reading_of(question, ANN, PROFILE, has_tools=True) == "outline"
    assert reading_of(question, ANN, PROFILE, has_tools=False) == "none"
    shown = outline_for(question, ANN, PROFILE)
    assert [file.name for file in shown.files] == ["notes.md", "src/"]
    assert shown.files[0].text == "Mind this."
    assert "search_text" in shown.files[1].text
    assert len(shown.files[1].text) < OUTLINE_CHARS


def test_earlier_turns_do_not_make_a_question_too_long() -> None:
    history = (PastTurn(question="a", answer=LONG_TEXT),)
    question = Question(text="why?", history=history)
    assert reading_of(question, SMALL, PROFILE, has_tools=False) == "whole"


def test_a_short_question_is_asked_however_small_the_context() -> None:
    tiny = replace(ANN, options={"context": 300})
    question = Question(text="why? " * 300)
    assert reading_of(question, tiny, PROFILE, has_tools=False) == "whole"


def test_the_refusal_has_figures_and_choices() -> None:
    question = Question(text="why?", files=(File(name="a.py", text=LONG_TEXT),))
    failure = too_small(question, SMALL, PROFILE)
    assert "has about 42," in failure.message
    assert "the context of ann holds 8,000" in failure.message
    message, hint = nobody_reads(question, [ANN, replace(SMALL, name="bob")], PROFILE)
    assert "more than any worker reads: ann 32,768 (assumed), bob 8,000" in message
    for choice in ("attach less", "conductor workers add ann --set context=N", "--fit"):
        assert choice in hint


def test_a_notice_names_each_file_with_its_share() -> None:
    parts = [("db.py", 9000, 225_000), ("cli.py", 3000, 10_000)]
    assert describe_shortened(ANN, parts) == (
        "ann was sent only a part of db.py 4 % (9,000 of 225,000 characters), "
        "cli.py 30 % (3,000 of 10,000 characters)"
    )
    many = [(f"{number}.py", 1, 100) for number in range(30)]
    assert describe_shortened(ANN, many).endswith("10 other parts 1 % (10 of 1,000 characters)")
    known = describe_shortened(SMALL, parts)
    assert known.endswith("; if its context is larger: conductor workers add ann --set context=N")


@given(st.lists(st.integers(0, 5000), max_size=12), st.integers(0, 20_000))
def test_short_texts_are_whole_and_long_ones_share_what_these_leave(
    lengths: list[int], room: int
) -> None:
    texts = ["x" * length for length in lengths]
    shared = share_by_need(texts, room)
    if sum(lengths) <= room:
        assert shared == texts
    # The note in the middle of a shortened text may need more than a tiny share.
    assert sum(map(len, shared)) <= room + 60 * len(texts)
    cut = [len(text) for text, sent in zip(texts, shared, strict=True) if sent != text]
    whole = [len(text) for text, sent in zip(texts, shared, strict=True) if sent == text]
    assert not cut or not whole or max(whole) <= min(cut)


def test_small_files_are_whole_beside_a_large_one() -> None:
    files = (File(name="large", text="x" * 50_000), File(name="small", text="y" * 900))
    text, shortened = fit_question(Question(text="why?", files=files), 10_000)
    assert "y" * 900 in text
    ((name, sent, length),) = shortened
    assert (name, length) == ("large", 50_000)
    assert 9000 < sent < 9100


@pytest.mark.parametrize(
    ("room", "line"),
    [
        (9000, "src/part/file3.py 6: Ledger, open_it"),
        (800, "src/part/file3.py 6"),
        (200, "src/part/ 30 files, 180 lines"),
    ],
)
def test_an_outline_says_as_much_as_it_has_room_for(room: int, line: str) -> None:
    code = "import x\n\nclass Ledger:\n    def reserve(self): ...\n\ndef open_it(): ...\n"
    files = [File(name=f"src/part/file{number}.py", text=code) for number in range(30)]
    outline = outline_of(files, room)
    assert len(outline) <= room
    assert outline.startswith("30 files, 180 lines.")
    assert line in outline.splitlines()


def test_names_are_not_looked_for_where_an_outline_has_no_room_for_its_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a large directory that takes longer than all else before its question."""
    monkeypatch.setattr(
        "conductor_cli.core.outline._names_in", lambda _: pytest.fail("they were looked for")
    )
    files = [File(name=f"src/part/file{number}.py", text="x\n") for number in range(30)]
    assert "src/part/ 30 files, 30 lines" in outline_of(files, 200).splitlines()


def test_headings_count_in_markdown_and_comments_in_code_do_not() -> None:
    outline = outline_of(
        [
            File(name="a.md", text="# Title\n\n## Part\n"),
            File(name="b.py", text="# remark\nx = 1\n"),
        ],
        10_000,
    )
    assert "a.md 3: Title, Part" in outline
    assert "remark" not in outline


def test_each_directory_has_an_outline_of_its_own() -> None:
    files = (
        File(name="a/x.py", text="x", directory="a/"),
        File(name="b/y.py", text="y", directory="b/"),
    )
    shown = as_outline(Question(text="?", files=files))
    assert [file.name for file in shown.files] == ["a/", "b/"]
    assert not any(file.directory for file in shown.files)

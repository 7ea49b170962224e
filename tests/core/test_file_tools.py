"""The tools over an attached directory: what they find, and that they stay within it."""

from __future__ import annotations

from typing import Any

import pytest

from conductor_cli.core.file_tools import (
    MAX_ENTRIES,
    MAX_MATCHES,
    MAX_READ_CHARS,
    MAX_READ_LINES,
    FileTools,
    Search,
    WrongArgument,
    describe_matches,
)
from conductor_cli.core.question import File

LEDGER = "import x\n\nclass Ledger:\n    def reserve(self) -> int:\n        return 7\n"
TOOLS = FileTools(
    [
        File(name="./src/core/ledger.py", text=LEDGER, directory="./src"),
        File(name="./src/core/pool.py", text="POOL = 1\n", directory="./src"),
        File(name="./src/cli/ledger.py", text="CLI = 1\n", directory="./src"),
        File(name="./src/main.py", text="print(1)\n", directory="./src"),
    ]
)


def test_a_folder_lists_its_folders_and_files() -> None:
    assert TOOLS.answer("list_files", {}) == (
        "src/core/ 2 files\nsrc/cli/ 1 file\n./src/main.py 1 line"
    )
    assert TOOLS.answer("list_files", {"path": "core"}) == (
        "./src/core/ledger.py 5 lines\n./src/core/pool.py 1 line"
    )


@pytest.mark.parametrize(
    ("pattern", "count"), [("*.py", 4), ("ledger", 2), ("core/", 2), ("SRC/*/p*", 1), ("x.rs", 0)]
)
def test_files_are_found_by_a_part_of_their_path_or_a_pattern(pattern: str, count: int) -> None:
    answer = TOOLS.answer("find_files", {"pattern": pattern})
    assert isinstance(answer, str)
    assert answer == "no file matches" if not count else len(answer.splitlines()) == count


def test_a_file_is_read_by_a_name_that_looks_the_same() -> None:
    tools = FileTools([File(name="notes/at 4.42\u202fPM.txt", text="x", directory="notes")])
    for path in ("notes/at 4.42 PM.txt", "at 4.42 PM.txt"):
        assert str(tools.answer("read_file", {"path": path})).endswith("1| x")


def test_brackets_in_a_pattern_may_be_those_of_a_name() -> None:
    names = ("app/[id]/page.tsx", "app/d/page.tsx")
    tools = FileTools([File(name=name, text="x", directory="app") for name in names])
    assert tools.answer("find_files", {"pattern": "app/[id]/*"}) == "\n".join(
        f"{name} 1 line" for name in names
    )


@pytest.mark.parametrize("path", ["./src/core/ledger.py", "src/core/ledger.py", "core/ledger.py"])
def test_lines_of_a_file_are_read_with_their_numbers(path: str) -> None:
    answer = TOOLS.answer("read_file", {"path": path, "start": 3, "lines": "2"})
    assert answer == (
        "./src/core/ledger.py, lines 3 to 4 of 5:\n3| class Ledger:\n"
        "4|     def reserve(self) -> int:\n[… 1 further lines: read_file with start=5 …]"
    )


def test_a_long_file_is_read_in_parts_that_join() -> None:
    text = "".join(f"line {number}\n" for number in range(1, 1001))
    tools = FileTools([File(name="a", text=text)])
    read: list[str] = []
    start = 1
    while start <= 1000:
        answer = tools.answer("read_file", {"path": "a", "start": start})
        assert isinstance(answer, str)
        assert len(answer) < MAX_READ_CHARS + 200
        lines = [line for line in answer.splitlines() if "| " in line]
        assert 0 < len(lines) <= MAX_READ_LINES
        read += [line.partition("| ")[2] for line in lines]
        start += len(lines)
    assert read == text.splitlines()


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("read_file", {"path": "/etc/passwd"}, "nothing attached is called '/etc/passwd'"),
        ("read_file", {"path": "../../.ssh/id_rsa"}, "nothing attached is called"),
        ("read_file", {"path": "src/core/ledgr.py"}, "did you mean src/core/ledger.py?"),
        ("read_file", {"path": "ledger.py"}, "several files end with ledger.py"),
        ("read_file", {"path": "pool.py", "start": 99}, "has 1 line"),
        ("read_file", {"path": 7}, "path must be text"),
        ("read_file", {"path": "pool.py", "start": "x"}, "start must be a whole number"),
        ("read_file", {"path": "pool.py", "start": "9" * 5000}, "start must be a whole number"),
        ("list_files", {"path": "nowhere"}, "nothing attached is called"),
        ("search_text", {}, "pattern must have"),
        ("find_files", {"pattern": "x" * 1000}, "pattern must have"),
    ],
)
def test_a_wrong_argument_says_what_is_wrong(
    name: str, arguments: dict[str, Any], problem: str
) -> None:
    with pytest.raises(WrongArgument, match=problem.replace("(", r"\(").replace("?", r"\?")):
        TOOLS.answer(name, arguments)


def test_a_search_looks_where_it_is_told_to() -> None:
    search = TOOLS.answer("search_text", {"pattern": "ledger", "path": "src/core"})
    assert isinstance(search, Search)
    assert ([file.name for file in search.files], search.ignore_case) == (
        ["./src/core/ledger.py", "./src/core/pool.py"],
        True,
    )
    assert describe_matches(search, {0: [3]}) == "./src/core/ledger.py:3: class Ledger:"


def test_a_phrase_that_no_line_has_gives_the_passages_with_most_of_its_words() -> None:
    search = TOOLS.answer("search_text", {"pattern": "how does the ledger reserve"})
    assert isinstance(search, Search)
    text = describe_matches(search, {})
    assert text.startswith("No line matches all of it. These have most of its words")
    assert "./src/core/ledger.py:3: class Ledger:" in text
    nothing = TOOLS.answer("search_text", {"pattern": "zebra crossing"})
    assert isinstance(nothing, Search)
    assert describe_matches(nothing, {}) == (
        "no line matches 'zebra crossing' in 4 files, nor any word of it"
    )


def test_a_long_file_does_not_hide_the_matches_of_others() -> None:
    files = [File(name="a.txt", text="word\n" * 500), File(name="z.txt", text="word\n")]
    search = FileTools(files).answer("search_text", {"pattern": "word"})
    assert isinstance(search, Search)
    text = describe_matches(search, {0: list(range(1, 501)), 1: [1]})
    assert "z.txt:1: word" in text
    assert "Lines by file: a.txt 500, z.txt 1" in text
    assert len(text.splitlines()) == MAX_MATCHES + 1


def test_results_are_bounded_and_say_what_is_left() -> None:
    files = [File(name=f"d/{number}.txt", text="word\n" * 50) for number in range(1000)]
    tools = FileTools(files)
    for name, arguments in (("list_files", {}), ("find_files", {"pattern": "txt"})):
        answer = tools.answer(name, arguments)
        assert isinstance(answer, str)
        assert len(answer.splitlines()) == MAX_ENTRIES + 1
        assert "800 further" in answer
    search = tools.answer("search_text", {"pattern": "word"})
    assert isinstance(search, Search)
    lines_by_file = {number: list(range(1, 51)) for number in range(1000)}
    answer = describe_matches(search, lines_by_file)
    assert len(answer.splitlines()) == MAX_MATCHES + 1
    assert "49960 further lines" in answer
    assert len(answer) < 5000

"""Text from outside, made safe for a terminal."""

from __future__ import annotations

import json
import shutil
import subprocess
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.terminal_text import (
    MAX_SEARCHED_CHARACTERS,
    StreamSanitizer,
    escape_json,
    escape_name,
    escape_unseen,
    is_blank,
    is_sanitized,
    one_line,
    reveal,
    sanitize,
    shell_word,
    without_controls,
)

PIECES = st.sampled_from(
    [
        "\x1b",
        "\x1b[",
        "31m",
        "\x1b]8;;http://a",
        "\x1b\\",
        "\x07",
        "\x9b",
        "2J",
        "\r",
        "\n",
        "\x00",
        "\x9d",
        "a",
        " ",
        "é",
        "\u202e",
        "\u2028",
        "\ud83d",
        "\x1bP",
        "\x85",
        ";",
        "\\",
    ]
)
NASTY = st.lists(PIECES | st.characters(), max_size=30)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain text, é, 漢, 👩‍👩‍👧", "plain text, é, 漢, 👩‍👩‍👧"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[H\x1b[?25lgone", "gone"),
        ("\x9b31mred", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;ZXZpbA==\x07clipboard", "clipboard"),
        ("\x1bP$q\x1b\\dcs", "dcs"),
        ("\x1b(0charset \x1bc reset", "charset  reset"),
        ("\x1b]no end\nthe next line stays", "no end\nthe next line stays"),
        ("nul\x00 bell\x07 back\x08 del\x7f", "nul bell back del"),
        ("over\rwritten\r\nline", "over\nwritten\nline"),
        ("abc\u202efed\u2069", "abcfed"),
        ("half \ud83d a pair", "half \ufffd a pair"),
    ],
)
def test_what_a_terminal_obeys_goes_and_what_it_prints_stays(text: str, expected: str) -> None:
    """Sequences and controls go, line ends become newlines, everything printable stays."""
    assert sanitize(text) == expected


@given(NASTY)
def test_nothing_is_left_to_obey(pieces: list[str]) -> None:
    text = sanitize("".join(pieces))
    assert not [c for c in text if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t"]
    assert not set(text) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
    assert sanitize(text) == text


@given(NASTY, st.integers(1, 4))
def test_pieces_are_cleaned_as_the_whole_is(pieces: list[str], size: int) -> None:
    text = "".join(pieces)
    cleaner = StreamSanitizer()
    shown = "".join(cleaner.feed(text[i : i + size]) for i in range(0, len(text), size))
    assert shown + cleaner.close() == sanitize(text)


def test_a_sequence_that_never_ends_is_not_held_for_ever() -> None:
    cleaner = StreamSanitizer()
    assert cleaner.feed("a\x1b]8;;http://b") == "a"
    assert cleaner.feed("\nnext") == "8;;http://b\nnext"


@given(NASTY)
def test_any_text_becomes_one_line(pieces: list[str]) -> None:
    text = one_line("".join(pieces))
    assert text.splitlines() in ([], [text])
    assert "\t" not in text
    assert "  " not in text


@given(NASTY)
def test_escaped_json_is_clean_and_means_the_same(pieces: list[str]) -> None:
    value = {"text": "".join(pieces)}
    line = escape_json(json.dumps(value, ensure_ascii=False))
    assert is_sanitized(line)
    assert json.loads(line) == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rm\u200b -rf", "rm⟨U+200B⟩ -rf"),
        ("a\u202eb\u2069c", "a⟨U+202E⟩b⟨U+2069⟩c"),
        ("left\u200e right\u200f arabic\u061c", "left⟨U+200E⟩ right⟨U+200F⟩ arabic⟨U+061C⟩"),
        ("ok\U000e0069\U000e0067", "ok⟨U+E0069⟩⟨U+E0067⟩"),
        (
            "ok" + "\U000e0041" * 60,
            "ok⟨U+E0041⟩⟨U+E0041⟩⟨U+E0041⟩⟨and 57 more that cannot be seen⟩",
        ),
        ("filler \u3164 and soft\u00adhyphen", "filler ⟨U+3164⟩ and soft⟨U+00AD⟩hyphen"),
        ("👩\u200d👧 and \u0645\u06cc\u200c\u062e", "👩\u200d👧 and \u0645\u06cc\u200c\u062e"),
        ("plain, é, 漢", "plain, é, 漢"),
    ],
)
def test_what_nobody_can_see_is_named(text: str, expected: str) -> None:
    assert reveal(text) == expected
    assert reveal(expected) == expected


@pytest.mark.parametrize(
    "text", ["", " \n\t", "\u200b\u200d", "\U000e0041\ufeff", "\u3164", "\u2800", "\u202e \u2069"]
)
def test_text_without_anything_to_see_is_blank(text: str) -> None:
    assert is_blank(text)
    assert not is_blank(f"{text}a")


@given(NASTY)
def test_nothing_that_a_terminal_obeys_is_left_and_all_else_is(pieces: list[str]) -> None:
    text = "".join(pieces)
    kept = without_controls(text)
    assert not [c for c in kept if unicodedata.category(c) == "Cc" and c not in "\n\t\r\x0b\x0c"]
    if not [c for c in text if unicodedata.category(c) == "Cc" and c not in "\n\t\r\x0b\x0c"]:
        assert kept == text


@given(NASTY)
def test_escapes_in_a_plan_file_change_no_value(pieces: list[str]) -> None:
    text = "".join(pieces)
    line = escape_unseen(json.dumps(text, ensure_ascii=False))
    assert json.loads(line) == text
    assert not set(line) & set("\u200b\u200e\u202e\u2066\U000e0041")


@pytest.mark.parametrize("position", [0, MAX_SEARCHED_CHARACTERS - 1, MAX_SEARCHED_CHARACTERS])
def test_a_control_character_is_found_anywhere_in_a_long_text(position: int) -> None:
    """A long text is looked through in pieces, between which other threads go on."""
    text = "a" * (2 * MAX_SEARCHED_CHARACTERS)
    assert is_sanitized(text)
    assert not is_sanitized(f"{text[:position]}\x1b{text[position + 1 :]}")


@pytest.mark.parametrize(
    ("name", "shown", "word"),
    [
        ("notes of May.md", "notes of May.md", "'notes of May.md'"),
        ("a\nb\t.md", r"a\nb\t.md", r"$'a\nb\t.md'"),
        ("it's\x1b[31m.md", r"it's\x1b[31m.md", r"$'it\'s\x1b[31m.md'"),
        ("c:\\\x9b.md", r"c:\\u009b.md", r"$'c:\\\u009b.md'"),
        ("txt\u202egpj.exe", r"txt\u202egpj.exe", r"$'txt\u202egpj.exe'"),
        ("\udcff.md", r"\xff.md", r"$'\xff.md'"),
        ("家族 👨\u200d👩.md", "家族 👨\u200d👩.md", "'家族 👨\u200d👩.md'"),
    ],
)
def test_a_name_of_a_file_is_shown_whole_in_one_line(name: str, shown: str, word: str) -> None:
    assert escape_name(name) == shown
    assert shell_word(name) == word
    assert escape_name(shown) == shown


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_a_shell_reads_the_name_of_a_file_back() -> None:
    name = "it's\n\\x\x1b[31m\udcff\u202e.md"
    script = f"printf %s {shell_word(name)}"
    environ = {"LC_ALL": "C.UTF-8"}
    read = subprocess.run(["bash", "-c", script], capture_output=True, check=True, env=environ)
    assert read.stdout == name.encode("utf-8", "surrogateescape")

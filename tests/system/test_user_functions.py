"""Functions of the user's own: found by file or module, and held to what they return."""

from __future__ import annotations

from pathlib import Path

import pytest

from conductor_cli.core.errors import ConfigError, UsageError
from conductor_cli.system.user_functions import load_user_function

SOURCE = """\
from __future__ import annotations

from dataclasses import dataclass

LIMIT = 3

@dataclass
class Weight:
    value: float

def half(text):
    return Weight(len(text) / 2).value

def broken(text):
    raise KeyError("no such key")

def word(text):
    return "right"

def endless(text):
    return float("inf")

def agrees(text):
    return True
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "checks.py"
    path.write_text(SOURCE)
    return path


def test_a_function_is_found_in_a_file(source: Path) -> None:
    function = load_user_function(f"{source}:half")
    assert function.call_for_number("abc") == 1.5
    assert load_user_function(f"{source}:agrees").call_for_number("", least=0, most=1) == 1.0
    source.write_text(f"{SOURCE}\nLIMIT = 4\n")
    assert load_user_function(f"{source}:half").digest != function.digest


def test_a_function_is_found_in_an_installed_module() -> None:
    function = load_user_function("math:sqrt")
    assert function.call_for_number(4) == 2.0


def test_files_of_one_name_do_not_replace_each_other(source: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "checks.py"
    other.parent.mkdir()
    other.write_text("def half(text):\n    return 7\n")
    first = load_user_function(f"{source}:half")
    assert load_user_function(f"{other}:half").call_for_number("abc") == 7.0
    assert first.call_for_number("abc") == 1.5


@pytest.mark.parametrize("name", ["half", "checks.py", ":half", "checks.py:", "checks.py:a b"])
def test_a_name_of_another_form_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="names no function") as caught:
        load_user_function(name)
    assert "file.py:FUNCTION" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("def half(:\n", "SyntaxError"),
        ("import no_such_package\n", "ModuleNotFoundError"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
    ],
)
def test_a_file_that_cannot_be_imported_is_refused(source: Path, text: str, problem: str) -> None:
    source.write_text(text)
    with pytest.raises(ConfigError, match=rf"checks\.py cannot be imported: {problem}"):
        load_user_function(f"{source}:half")


def test_a_missing_file_module_or_function_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.py cannot be imported: FileNotFoundError"):
        load_user_function(f"{tmp_path}/missing.py:half")
    with pytest.raises(ConfigError, match="no_such_package cannot be imported"):
        load_user_function("no_such_package:half")
    for name in ("double", "LIMIT"):
        with pytest.raises(ConfigError, match=f"has no function {name}"):
            load_user_function(f"{source}:{name}")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("broken", "failed: KeyError: 'no such key'"),
        ("word", "returned 'right', not a number from 0 to 1"),
        ("endless", "returned inf, not a number from 0 to 1"),
        ("half", "returned 1.5, not a number from 0 to 1"),
    ],
)
def test_a_function_that_returns_no_such_number_is_an_error(
    source: Path, name: str, problem: str
) -> None:
    function = load_user_function(f"{source}:{name}")
    with pytest.raises(ConfigError) as caught:
        function.call_for_number("abc", least=0, most=1)
    assert problem in caught.value.message
    assert caught.value.hint

"""Mathematics compared by the library, in a process that may be ended."""

from __future__ import annotations

import importlib.util
import threading
import time
from pathlib import Path

import pytest

from conductor_cli.core.errors import ConfigError
from conductor_cli.evals import mathematics
from conductor_cli.evals.scorers import SCORERS


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"The answer is $\boxed{\frac{1}{2}}$.", "0.5"), ("It is 42.", "42"), ("1/2", r"\frac{1}{2}"),
        (r"\boxed{(3, \pi/2)}", r"\left( 3, \frac{\pi}{2} \right)"), (r"\boxed{\text{Evelyn}}", r"\text{Evelyn}"),
        (r"\boxed{q + p}", "p + q"), (r"\boxed{x = 5}", "5"), (r"\boxed{\sqrt{18}}", r"3\sqrt{2}"),
        (r"\boxed{(C)}", r"\text{(C)}"), (r"first \boxed{1}, no: \boxed{2}", "2"), (r"\boxed{1,2,3}", "1,2,3"),
        ("so it is $5$", r"\boxed{5}"), (r"\boxed{{2}} or {", "2"),
    ],
)  # fmt: skip
def test_equal_mathematics_is_right(text: str, answer: str) -> None:
    """What says the same is right, however it is spelled."""
    assert SCORERS["math"].is_correct(text, answer, ())


@pytest.mark.parametrize(
    ("text", "answer"),
    [("", "4"), ("", ""), ("none", "4"), (r"\boxed{q - p}", "p - q"), (r"\boxed{0.33}", r"\frac13"), ("41", "42")],
)
def test_other_mathematics_is_wrong(text: str, answer: str) -> None:
    """What says something else, or nothing, is wrong."""
    assert not SCORERS["math"].is_correct(text, answer, ())


def test_a_majority_counts_what_is_meant() -> None:
    """Two spellings of one number have one normal form."""
    said = SCORERS["math"].extract
    assert said(r"\boxed{\frac{2}{4}}", ()) != ""
    assert said("It is 7.", ()) == said(r"\boxed{7}", ()) == "7"


@pytest.mark.parametrize("tower", ["9^9^9^9^9", r"\boxed{9^{9^{9^{9}}}}", r"\boxed{100000000!}"])
def test_what_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch, tower: str) -> None:
    """A text that no computer gets through is wrong after its time, and the next comparison goes on as before."""
    assert mathematics.is_equivalent("2", "2")  # it is running
    monkeypatch.setattr(mathematics, "TIMEOUT", 0.7)
    began = time.monotonic()
    assert not mathematics.is_equivalent(tower, "4")
    assert time.monotonic() - began < 10
    monkeypatch.undo()
    assert mathematics.is_equivalent(r"\boxed{3}", "3")


@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{" * 5000, "(" * 10_000 + "1" + ")" * 10_000, "\\frac" * 3000, "1" * 19_000, "\x00", "\ud800",
        "$" + "x^" * 3000 + "2$", "\\begin{matrix}" * 1000, "{" * 10_000,
    ],
    ids=range(9),
)  # fmt: skip
def test_garbage_is_wrong(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A text that breaks a parser is wrong, and breaks nothing else."""
    assert mathematics.is_equivalent("6", "6")
    monkeypatch.setattr(mathematics, "TIMEOUT", 1.0)
    assert not mathematics.is_equivalent(text, "4")
    assert mathematics.is_equivalent("5", "5")


def test_text_is_not_run(tmp_path: Path) -> None:
    """What looks like a program is not executed."""
    there = tmp_path / "there"
    for form in ("{}", r"\boxed{{{}}}", "${}$", "The answer is {}"):
        mathematics.is_equivalent(form.format(f"__import__('pathlib').Path('{there}').touch()"), "4")
    assert not there.exists()


def test_any_thread_may_ask() -> None:
    """Several threads compare at once; each gets its own reply."""
    found: dict[int, bool] = {}

    def ask(number: int) -> None:
        found[number] = mathematics.is_equivalent(rf"\boxed{{\frac{{{2 * number}}}{{2}}}}", str(number))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(1, 9), True)


def test_a_missing_library_is_told_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, a case in mathematics is refused before anything is asked."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match="not installed") as error:
        SCORERS["math"].answer_error("4", ())
    assert error.value.hint == "pip install 'conductor-llm[eval]'"

"""Expressions are compared by the library, in a process that can be killed."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import threading
from pathlib import Path

import pytest

from conductor_cli.core.errors import ConfigError
from conductor_cli.evals import mathematics
from conductor_cli.evals.cases import Case, check_case
from conductor_cli.evals.scorers import SCORERS
from conductor_cli.system.installation import extra_command


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"The answer is $\boxed{\frac{1}{2}}$.", "0.5"),
        ("1/2", r"\frac{1}{2}"),
        (r"\boxed{(3, \pi/2)}", r"\left( 3, \frac{\pi}{2} \right)"),
        (r"\boxed{\text{Evelyn}}", r"\text{Evelyn}"),
        (r"\boxed{q + p}", "p + q"),
        (r"\boxed{x = 5}", "5"),
        (r"\boxed{\sqrt{18}}", r"3\sqrt{2}"),
        (r"\boxed{(C)}", r"\text{(C)}"),
        (r"first \boxed{1}, no: \boxed{2}", "2"),
        (r"It is $\boxed{x^2 + 7x + 10 = 0}$. Answer: $\boxed{x^2+7x+10=0}$", "x^2+7x+10=0"),
        (r"\[\boxed{\left(\dfrac12, 3\right)}\] Answer: \boxed{(\frac12,3)}", r"(\frac12,3)"),
        (r"\boxed{\$1,600}, in short $\boxed{1600}$", "1600"),
        (r"\boxed{1,2,3}", "1,2,3"),
        ("so it is $5$", r"\boxed{5}"),
        (r"\boxed{{2}} or {", "2"),
        (r"\boxed {1}, no: \fbox{2}", "2"),
        (r"\boxed{\$32,348}", r"\$32,\!348"),
        (r"\boxed{32348}", r"\$32,\!348"),
        (r"\boxed{11,\! 111,\! 111,\! 100}", r"11,\! 111,\! 111,\! 100"),
        (r"\boxed{1\,600}", "1600"),
        (r"\boxed{18.9}", r"\$18.90"),
        (
            r"The answer is \begin{pmatrix} 3 \\ 1 \end{pmatrix}.",
            r"\begin{pmatrix} 3 \\ 1 \end{pmatrix}",
        ),
        (r"It is \sqrt{2}.", r"\sqrt{2}"),
        (r"\boxed{x=2, 1}", "x=1,2"),
        (r"\boxed{1,2}", "x=1,2"),
        (r"\boxed{A=[1,2]}", "A=[1,2]"),
        (r"\boxed{x^2=-1}", "x^2+1=0"),
        (r"\boxed{5 = \log_{2}(32)}", r"\log _{2}(32)=5"),
        (r"\boxed{25 \mathrm{~cm}^{2}}", "25"),
        (r"\boxed{25\,\mathrm{cm}^2}", "25"),
        (r"\boxed{25\,\mathrm{m/s}}", "25"),
        (r"\boxed{25 \mathrm{~m} / \mathrm{s}}", "25"),
        (r"\boxed{25 \mathrm{dollars}}", "25"),
        (r"\boxed{25\pi \mathrm{~cm}^2}", r"25\pi"),
        (r"\boxed{25 cm²}", "25"),
        (r"\boxed{25m^2}", "25 m^2"),
        (r"\boxed{1 + \mathrm{e}}", "1+e"),
        ("sin(x)", r"\sin(x)"),
        (r"\boxed{\sin(x)}", "sin(x)"),
        (r"\boxed{2ln(2)}", r"2\ln 2"),
        ("-1 + exp(16)", "e^{16}-1"),
        (r"\boxed{atan(2)}", r"\arctan 2"),
        (r"\boxed{1\ 000\ 000}", "1000000"),
        (r"\boxed{1~000~000}", "1000000"),
        (r"\boxed{1 000 000}", "1 000 000"),
        (r"\boxed{1.000.000}", "1000000"),
        (r"\boxed{12 345,67}", "12345.67"),
        (r"\boxed{0,5}", "0.5"),
        ("It is 70, not 71.", "70"),
    ],
)
def test_equal_expressions_are_right(text: str, answer: str) -> None:
    assert SCORERS["math"].is_correct(text, answer, ())


@pytest.mark.parametrize(
    "answer",
    ["70", r"\frac{1}{2}", r"3\sqrt{2}", r"\left(3,\frac{\pi}{2}\right)", "p - q", "x^2+1"],
)
@pytest.mark.parametrize(
    "form",
    [
        "%s",
        r"\boxed{%s}",
        r"\boxed{%s.}",
        r"\boxed{\mathbf{%s}}",
        "The answer is $%s$.",
        "The answer is %s.",
        "Answer: %s",
        "**Answer:** $%s$",
        r"Final answer: \(%s\)",
        r"so we get\n\n$$%s$$",
        "json",
    ],
)
def test_each_usual_form_of_an_answer_is_found(form: str, answer: str) -> None:
    reply = (
        json.dumps({"why": "since it is 3", "answer": answer}) if form == "json" else form % answer
    )
    assert SCORERS["math"].is_correct(reply, answer, ())
    for denied in (
        f"The answer is not ${answer}$.",
        f"The answer is not {answer}.",
        f"The answer isn't ${answer}$.",
    ):
        assert not SCORERS["math"].is_correct(denied, answer, ())


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", "4"),
        ("", ""),
        ("none", "4"),
        (r"\boxed{q - p}", "p - q"),
        (r"\boxed{0.33}", r"\frac13"),
        ("41", "42"),
        (r"\boxed{\$32}", r"\$32,\!348"),
        ("It is not 70.", "70"),
        ("So it cannot be $70$.", "70"),
        ("70, not 71", "71"),
        (r"\boxed{x=1,3}", "x=1,2"),
        (r"\boxed{(x,y)=(1,3)}", "(x,y)=(1,2)"),
        (r"\boxed{A=[1,3]}", "A=[1,2]"),
        (r"\boxed{S=\{1,3\}}", r"S=\{1,2\}"),
        (r"\boxed{x\in(0,2)}", r"x\in(0,1)"),
        (
            r"\boxed{A=\begin{pmatrix}1&2\\3&5\end{pmatrix}}",
            r"A=\begin{pmatrix}1&2\\3&4\end{pmatrix}",
        ),
        (r"\boxed{x^2=-2}", "x^2+1=0"),
        (r"\boxed{2^5=32}", r"\log _{2}(32)=5"),
        (r"\boxed{7^{\log _{7}(3)}=3}", r"\log _{36}(36)=1"),
        (r"\boxed{1 000 000}", "0"),
        ("2.3", "2,3"),
    ],
)
def test_other_expressions_are_wrong(text: str, answer: str) -> None:
    assert not SCORERS["math"].is_correct(text, answer, ())


def test_equal_expressions_have_one_normal_form() -> None:
    extract = SCORERS["math"].extract
    assert extract(r"\boxed{\frac{2}{4}}", ()) != ""
    assert extract("It is 7.", ()) == extract(r"\boxed{7}", ()) == "7"


@pytest.mark.parametrize(
    "forms",
    [
        (r"\boxed{0.5}", r"\boxed{\frac12}", "x = 0.5", r"\boxed{x=\frac{1}{2}}"),
        (r"\boxed{1,000}", "1000.0", r"\boxed{1000\,\mathrm{m}}"),
        (r"\boxed{\sqrt{18}}", r"3\sqrt{2}"),
        (r"\boxed{2, 1}", r"\boxed{x=1 \text{ or } x=2}"),
        (r"\boxed{\text{even}}", "Even"),
    ],
)
def test_equal_answers_are_one_where_a_majority_counts(forms: tuple[str, ...]) -> None:
    (answer,) = {SCORERS["math"].extract(form, ()) for form in forms}
    assert answer


def test_an_endless_computation_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    assert mathematics.is_equivalent("2", "2")  # it is running
    monkeypatch.setattr(mathematics, "TIMEOUT", 0.5)
    assert not mathematics.is_equivalent(r"\boxed{9^{9^{9^{9}}}}", "4")
    monkeypatch.undo()
    assert mathematics.is_equivalent(r"\boxed{3}", "3")


@pytest.mark.skipif(not mathematics.HAS_PROCESSOR_TIMER, reason="only its clock can be limited")
def test_a_machine_that_is_busy_with_something_else_makes_no_answer_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert mathematics.is_equivalent("8", "8")  # it is running
    process = mathematics._CHILD._process
    assert process is not None
    assert process.pid is not None
    monkeypatch.setattr(mathematics, "TIMEOUT", 1.0)
    os.kill(process.pid, signal.SIGSTOP)
    later = threading.Timer(1.5, os.kill, (process.pid, signal.SIGCONT))
    later.start()
    assert mathematics.is_equivalent(r"\boxed{9}", "9")
    later.join()


@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{" * 5000,
        "(" * 10_000 + "1" + ")" * 10_000,
        "1" * 19_000,
        "\x00\ud800",
        "\\begin{matrix}" * 1000,
    ],
    ids=range(5),
)
def test_text_that_breaks_the_parser_is_wrong(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    assert mathematics.is_equivalent("6", "6")
    monkeypatch.setattr(mathematics, "TIMEOUT", 1.0)
    assert not mathematics.is_equivalent(text, "4")
    monkeypatch.undo()
    assert mathematics.is_equivalent("5", "5")


def test_code_in_a_text_is_not_executed(tmp_path: Path) -> None:
    there = tmp_path / "there"
    for form in ("{}", r"\boxed{{{}}}", "${}$", "The answer is {}"):
        mathematics.is_equivalent(
            form.format(f"__import__('pathlib').Path('{there}').touch()"), "4"
        )
    assert not there.exists()


def test_several_threads_get_their_own_replies() -> None:
    verdicts: dict[int, bool] = {}

    def ask(number: int) -> None:
        verdicts[number] = mathematics.is_equivalent(
            rf"\boxed{{\frac{{{2 * number}}}{{2}}}}", str(number)
        )

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == dict.fromkeys(range(1, 9), True)


def test_a_missing_library_is_an_error_with_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match="not installed") as error:
        check_case(Case(id="1", question="?", answer="4", scorer="math"))
    assert error.value.hint == extra_command("eval")

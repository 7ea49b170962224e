r"""Which answer a text gives, and whether it is right.

The text was written by a model and is not trusted.

    exact    the whole text, ignoring case, white space, quotes and a final stop. If the last line
             starts with "Answer:" or "The answer is", or stands below "Answer:", only the rest
             of that line counts; a box, or the field `answer` of a JSON object, counts alone
    contains the text has the expected one in it as words, ignoring case, white space, quotes and
             emphasis. Words begin anywhere in scripts without spaces (Chinese, Japanese, Thai)
    regex    the expected answer is a regular expression of Python, which must match somewhere
    number   the number in the last \boxed{}, behind `####` or behind the last announcement, else
             the last one (`number_answers`). Whole numbers are equal, others agree to six digits
    choice   the letter of a multiple choice: in a box or after "answer is", called right, alone on
             the first or last line, chosen ("I would go with C"), one of the choices written out,
             or the only one in brackets. A small letter counts only in brackets or at the end of
             its line; letters that are not offered are ignored
    math     the expression in the last box or behind the last announcement, else the last one,
             compared by the library math-verify (extra `eval`)
    mmlu-pro the letter by the three rules of TIGER-AI-Lab/MMLU-Pro (`evaluate_from_api.py`), one
             after the other. Its authors guess for a text without any letter; here it is wrong
    rlpr     what stands between <answer> and </answer>, compared as the authors of arXiv 2512.04388
             do it: as text without case, as a percentage, and as a number with a tolerance of a
             thousandth
    program  the program in the text passes the tests of the expected answer, in a sandbox
             (`programs`)
    model    a worker judges it by the expected answer (`judge`)

What a text denies or doubts ("not 70", "it cannot be (C)", "(D) is wrong", "I doubt that it is A")
is not its answer (`answer_words`).

To add one, write a `Scorer` and add it to `SCORERS`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from string import ascii_uppercase
from typing import Final, Literal

from conductor_cli.evals import answer_words as words
from conductor_cli.evals import mathematics, programs
from conductor_cli.evals.choice_answers import extract_choice
from conductor_cli.evals.exact_answers import contains, extract_exact, is_exact, is_text
from conductor_cli.evals.number_answers import (
    given_number,
    is_one_number,
    is_written_number,
)
from conductor_cli.evals.published_answers import is_rlpr, mmlu_pro_letter, rlpr_answer
from conductor_cli.evals.score import Score
from conductor_cli.programs.bounded_child import ChildLimits, ChildStopped, run_child

TOLERANCE: Final = Decimal("1e-6")  # How far a fraction may be off, relative to the expected number


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorer:
    """One way to tell right from wrong.

    Every function gets the choices of a multiple choice, which may be empty.
    """

    extract: Callable[[str, Sequence[str]], str]
    """Finds the answer in a text, the same for equal answers: a majority vote counts them; empty if
    there is none.
    """
    # Whether a text gives the expected answer
    is_correct: Callable[[str, str, Sequence[str]], bool]
    # Whether an expected answer could ever be matched
    can_match: Callable[[str, Sequence[str]], bool]
    slow: bool = False  # It may take seconds
    needs: Literal["", "math-verify", "judge", "sandbox"] = ""  # What must be there for it
    explain: Callable[[str, str, Sequence[str]], Score] | None = None
    """The same as `is_correct`, with the reason; or that it cannot be found out here."""


# regex

REGEX_LIMITS: Final = ChildLimits(
    seconds=45 if os.name == "posix" else 10, memory=1 << 30, cpu_seconds=5
)
"""Where processor time can be limited, the clock has only to end what waits: a busy machine makes
no right answer wrong.
"""


def _matches(text: str, answer: str, _: Sequence[str] = ()) -> bool:
    request = json.dumps({"pattern": answer, "text": words.end_of(text)}).encode()
    script = Path(__file__).with_name("pattern_process.py")
    with suppress(ChildStopped):  # it took too long, or the pattern is none
        return run_child(script, request, REGEX_LIMITS)[0] is not None
    return False


def _is_pattern(answer: str, _: Sequence[str] = ()) -> bool:
    try:
        re.compile(answer)
    except re.error:
        return False
    return bool(answer)


# number


def _extract_number(text: str, _: Sequence[str] = ()) -> str:
    value = given_number(words.end_of(text))
    if value is None:
        return ""
    if value == int(value):
        return str(int(value))
    return str(float(value))


def _is_number(text: str, answer: str, _: Sequence[str] = ()) -> bool:
    value = given_number(words.end_of(text))
    expected = given_number(answer)
    if value is None or expected is None:
        return False
    if expected == int(expected):
        return value == expected
    return abs(value - expected) <= TOLERANCE * abs(expected)


def _is_one_number(answer: str, _: Sequence[str] = ()) -> bool:
    """Return whether the expected answer is one number, or ends as those of GSM8K: `#### 18`."""
    number = answer.rpartition("####")[2]
    return is_one_number(number) or is_written_number(number)


_RULES: Final = (
    "scorers.py",
    "answer_words.py",
    "choice_answers.py",
    "exact_answers.py",
    "mathematics.py",
    "number_answers.py",
    "pattern_process.py",
    "program_text.py",
    "programs.py",
    "published_answers.py",
    "sandbox_runner.py",
)


@cache
def scoring_rules() -> str:
    """Return what is the same as long as the same answers are right: of this code and its library.

    A change that decides nothing changes it, too. Then replies are scored anew, which is free.
    """
    library = ""
    with suppress(PackageNotFoundError):
        library = version("math-verify")
    digest = hashlib.sha256(library.encode())
    for name in _RULES:
        digest.update(Path(__file__).with_name(name).read_bytes())
    return digest.hexdigest()


_GROUPING_COMMA: Final = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")


def _is_equivalent(text: str, answer: str, _: Sequence[str] = ()) -> bool:
    text = words.end_of(text)
    return mathematics.is_equivalent(text, answer) or _is_same_number(
        mathematics.given_answer(text), answer
    )


def _is_same_number(stated: str, answer: str) -> bool:
    """Return whether both are one number, also as other countries write it: `12.345,67`.

    A comma in the expected answer that groups no thousands joins several: `2,3` is not 2.3.
    """
    content = stated.removeprefix("\\boxed{").removesuffix("}")
    if "," in _GROUPING_COMMA.sub("", answer):
        return False
    return is_one_number(content) and is_one_number(answer) and _is_number(content, answer)


SCORERS: Final[dict[str, Scorer]] = {
    "exact": Scorer(extract=extract_exact, is_correct=is_exact, can_match=is_text),
    "contains": Scorer(extract=extract_exact, is_correct=contains, can_match=is_text),
    "regex": Scorer(extract=extract_exact, is_correct=_matches, can_match=_is_pattern, slow=True),
    "number": Scorer(extract=_extract_number, is_correct=_is_number, can_match=_is_one_number),
    "choice": Scorer(
        extract=extract_choice,
        is_correct=lambda text, answer, choices: (
            extract_choice(text, choices) == answer.strip().upper()
        ),
        can_match=lambda answer, choices: extract_choice(answer, choices) == answer.strip().upper(),
    ),
    "math": Scorer(
        extract=lambda text, _: mathematics.extract_expression(words.end_of(text)),
        is_correct=_is_equivalent,
        can_match=lambda answer, _: bool(answer.strip("$ ")),
        slow=True,
        needs="math-verify",
    ),
    "mmlu-pro": Scorer(
        extract=mmlu_pro_letter,
        is_correct=lambda text, answer, _: mmlu_pro_letter(text) == answer,
        can_match=lambda answer, choices: answer in ascii_uppercase[: min(len(choices), 10)],
    ),
    "rlpr": Scorer(
        extract=rlpr_answer, is_correct=is_rlpr, can_match=lambda answer, _: bool(answer.strip())
    ),
    "program": Scorer(
        extract=programs.extract_program,
        is_correct=programs.passes,
        can_match=programs.can_run,
        slow=True,
        needs="sandbox",
        explain=programs.score_program,
    ),
    # Wrong until the judge has said otherwise.
    "model": Scorer(
        extract=extract_exact,
        is_correct=lambda *_: False,
        can_match=lambda answer, _: bool(answer),
        needs="judge",
    ),
}

r"""What an answer says, and whether that is right. What is scored was written by a model and is not trusted.

    exact    the whole answer, whatever its case, white space, quotes and final stop. Only where its last line begins
             with "Answer:" or "The answer is" does the rest of that line stand for the whole
    number   the last number in the last \boxed{}, else in the text: thousands separators, signs and exponents are
             understood. Whole numbers must be equal, others agree to six digits
    choice   the letter of a multiple choice: after "Answer:", in a box, alone on the last line, or one of the choices
             written out. A small letter counts only in brackets, or with nothing behind it in its line; one that is not
             offered is passed over
    math     the last expression in the text, compared by the library math-verify (extra `eval`)

To add one: a `Scorer`, and its row in `SCORERS`. `cases.is_right` and `cases.said` apply them to a case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from string import ascii_uppercase
from typing import Final

from conductor_cli.evals import mathematics

LOOKED_AT: Final = 20_000
"""Characters of an answer that are looked at, counted from its end: an answer stands at the end of a long text."""

TOLERANCE: Final = Decimal("1e-6")
"""How much a number that is not whole may differ, as a share of what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorer:
    """One way to tell right from wrong.

    `said(text, choices)` is the answer that stands in a text, in a normal form: equal for two texts that say the same,
    empty where there is none; a majority vote counts it. `right(text, answer, choices)` compares with what was
    expected. `fault(answer, choices)` says why an expected answer could never be found, empty where it can. `slow`: it
    may take seconds.
    """

    said: Callable[[str, Sequence[str]], str]
    right: Callable[[str, str, Sequence[str]], bool]
    fault: Callable[[str, Sequence[str]], str]
    slow: bool = False


# exact

_QUOTES: Final = "\"'`*_\u201c\u201d\u201e\u2018\u2019\u00ab\u00bb\u2039\u203a"
_MARKED: Final = re.compile(
    r"[\W_]*(?:(?:so|thus|hence|therefore),?\s+)?(?:the\s+)?(?:final\s+|correct\s+)?answer"
    r"(?:\s+is\b[\s:]*|[\s*_]*:)(?P<said>.*)",
    re.IGNORECASE,
)


def _tail(text: str) -> str:
    return text[-LOOKED_AT:].strip()


def _last_line(text: str) -> str:
    return _tail(text).rpartition("\n")[2]


def _normal(text: str) -> str:
    """Without case, runs of white space, quotes and marks of emphasis around it, and a final stop."""
    text = " ".join(text.split())
    while text != (bare := text.strip().strip(_QUOTES).removesuffix(".")):
        text = bare
    return text.casefold()


def _marked(text: str) -> str | None:
    """What follows "Answer:" or "The answer is" in the last line; None where that does not begin so."""
    found = _MARKED.fullmatch(_last_line(text))
    return found["said"] if found else None


def _exact_said(text: str, _: Sequence[str] = ()) -> str:
    marked = _marked(text)
    return _normal(_tail(text) if marked is None else marked)


def _exact_right(text: str, answer: str, _: Sequence[str] = ()) -> bool:
    wanted = _normal(answer)
    return wanted in {_exact_said(text), _normal(_tail(text))}


def _exact_fault(answer: str, _: Sequence[str] = ()) -> str:
    return "" if _normal(answer) else "nothing is left of it but quotes and stops"


# number

_GROUP: Final = r"[,'’\u00a0\u2009\u202f]"
"""What stands between thousands. A plain space is none: it stands between numbers too."""
_NUMBER: Final = re.compile(
    r"(?:(?<![\w.)\]}])[-+\u2212])?(?<![\w.])"
    rf"(?:[0-9]{{1,3}}(?:{_GROUP}[0-9]{{3}})+(?![0-9])|[0-9]+|(?=\.[0-9]))"
    r"(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3}(?![0-9]))?"
)
_BOX: Final = re.compile(r"\\boxed\s*\{([^{}]*)\}")
_LONGEST_NUMBER: Final = 400


def _value(text: str) -> Decimal | None:
    """The last number in the last box, else in `text`."""
    boxes = _BOX.findall(text)
    last = None
    text = boxes[-1] if boxes and _NUMBER.search(boxes[-1]) else text
    for last in _NUMBER.finditer(text):  # noqa: B007 - the last one is wanted
        pass
    if last is None or len(last[0]) > _LONGEST_NUMBER:
        return None
    return Decimal(re.sub(_GROUP, "", last[0]).replace("\u2212", "-"))


def _number_said(text: str, _: Sequence[str] = ()) -> str:
    value = _value(_tail(text))
    if value is None:
        return ""
    return str(int(value)) if value == int(value) else str(float(value))


def _number_right(text: str, answer: str, _: Sequence[str] = ()) -> bool:
    value, wanted = _value(_tail(text)), _value(answer)
    if value is None or wanted is None:
        return False
    if wanted == int(wanted):
        return value == wanted
    return abs(value - wanted) <= TOLERANCE * abs(wanted)


def _number_fault(answer: str, _: Sequence[str] = ()) -> str:
    found = _NUMBER.fullmatch(answer.strip().strip("$€£ ").removesuffix("%").strip())
    return "" if found and _value(answer) is not None else "it is no number"


# choice

_BOXED: Final = re.compile(r"\\boxed\s*\{\s*(?:\\(?:text|textbf|mathrm|mathbf)\s*\{\s*)?\(?([A-Za-z])\)?\s*\}")
_AFTER_COLON: Final = re.compile(
    r"(?i:answer)[\s*_]*:[\s*_$\"'`(\[]*"
    r"([A-Z](?=[)\]\s.,:;*_$\"'`]|$)|[a-z](?=[)\]]|[ \t\r*_$\"'`.]*(?:\n|$)))"
)
"""A small letter with more behind it is a word, as in "Answer: a triangle"."""
_AFTER_IS: Final = re.compile(
    r"(?i:(?:answer|choice|option)\s+is)[\s:*_$\"'`]*(?i:(?:option|choice)\s+)?[(\[]?([A-Z])(?=[)\]\s.,:;*_$\"'`]|$)"
)
_ALONE: Final = re.compile(r"[\s*_$\"'`]*[(\[]?([A-Za-z])[)\]]?[\s*_$\"'`.]*")
_LEADING: Final = re.compile(r"[\s*_]*[(\[]?([A-Z])[)\].:][\s*_].*")
_IN_BRACKETS: Final = re.compile(r"\(([A-Z])\)")


def _choice_said(text: str, choices: Sequence[str]) -> str:
    """The letter, in the order of how plainly it is said; the last one where it is said more than once.

    A letter that is not offered is passed over: it may be a word, as in "Answer: I believe it is (B)".
    """
    text = _tail(text)
    for pattern in (_AFTER_COLON, _BOXED, _AFTER_IS):
        if letters := _offered(pattern.findall(text), choices):
            return letters[-1]
    lines = (_ALONE.fullmatch(_last_line(text)), _ALONE.fullmatch(text.partition("\n")[0]), _LEADING.fullmatch(text))
    if letters := _offered([found[1] for found in lines if found], choices):
        return letters[0]
    written = [letter for letter, choice in zip(ascii_uppercase, choices, strict=False) if _exact_right(text, choice)]
    if len(written) == 1:
        return written[0]
    letters = _offered(_IN_BRACKETS.findall(text), choices)
    return letters[-1] if letters else ""


def _offered(letters: Iterable[str], choices: Sequence[str]) -> list[str]:
    """Those of the letters that are the choices', as capitals."""
    known = ascii_uppercase[: len(choices) or None]
    return [letter.upper() for letter in letters if letter.upper() in known]


def _choice_right(text: str, answer: str, choices: Sequence[str]) -> bool:
    return _choice_said(text, choices) == answer.strip().upper()


def _choice_fault(answer: str, choices: Sequence[str]) -> str:
    letters = ascii_uppercase[: len(choices) or None]
    if len(answer.strip()) != 1 or answer.strip().upper() not in letters:
        return f"it is no letter from A to {letters[-1]}"
    return ""


# math


def _math_said(text: str, _: Sequence[str] = ()) -> str:
    return mathematics.said(_tail(text))


def _math_right(text: str, answer: str, _: Sequence[str] = ()) -> bool:
    return mathematics.is_equivalent(_tail(text), answer)


def _math_fault(answer: str, _: Sequence[str] = ()) -> str:
    """Raises `ConfigError` where the library is missing: that is told before anything is asked."""
    mathematics.require_math_verify()
    return "" if answer.strip("$ ") else "it holds no expression"


SCORERS: Final[dict[str, Scorer]] = {
    "exact": Scorer(said=_exact_said, right=_exact_right, fault=_exact_fault),
    "number": Scorer(said=_number_said, right=_number_right, fault=_number_fault),
    "choice": Scorer(said=_choice_said, right=_choice_right, fault=_choice_fault),
    "math": Scorer(said=_math_said, right=_math_right, fault=_math_fault, slow=True),
}

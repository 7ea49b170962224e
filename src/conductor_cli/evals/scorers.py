r"""Which answer a text gives, and whether it is right.

The text was written by a model and is not trusted.

    exact    the whole text, ignoring case, white space, quotes and a final stop. If the last line
             starts with "Answer:" or "The answer is", only the rest of that line counts
    contains the text has the expected one in it, ignoring case, white space, quotes and emphasis
    regex    the expected answer is a regular expression of Python, which must match somewhere
    number   the last number in the last \boxed{}, else in the text. Thousands separators, signs and
             exponents are understood. Whole numbers must be equal, others agree to six digits. A
             part of an expression (`q + 70`) and one of several ("70 or 71") are no answer
    choice   the letter of a multiple choice: in a box or after "answer is", called right, alone on
             the first or last line, chosen ("I would go with C"), one of the choices written out,
             or the only one in brackets. A small letter counts only in brackets or at the end of
             its line; letters that are not offered are ignored
    math     the last expression in the text, compared by the library math-verify (extra `eval`)
    mmlu-pro the letter by the three rules of TIGER-AI-Lab/MMLU-Pro (`evaluate_from_api.py`), one
             after the other. Its authors guess for a text without any letter; here it is wrong
    rlpr     what stands between <answer> and </answer>, compared as the authors of arXiv 2512.04388
             do it: as text without case, as a percentage, and as a number with a tolerance of a
             thousandth
    program  the program in the text passes the tests of the expected answer, in a sandbox
             (`programs`)
    model    a worker judges it by the expected answer (`judge`)

What a text denies ("not 70", "it cannot be (C)", "(D) is wrong") is not its answer.

To add one, write a `Scorer` and add it to `SCORERS`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from string import ascii_uppercase
from typing import Final, Literal

from conductor_cli.evals import mathematics, programs
from conductor_cli.evals.score import Score
from conductor_cli.programs.bounded_child import ChildLimits, ChildStopped, run_child

MAX_PUBLISHED_TEXT: Final = 100_000  # Characters at the end of a text that are searched
_SAID: Final = re.compile(r"answer is \(?([A-J])\)?")
_PUBLISHED_ANNOUNCED: Final = re.compile(r"[aA]nswer:\s*([A-J])")
_LETTER: Final = re.compile(r"\b[A-J]\b")


def mmlu_pro_letter(text: str, _: Sequence[str] = ()) -> str:
    """The first letter after "answer is", else one after "answer:", else the last letter at all.

    Empty without one.
    """
    text = text[-MAX_PUBLISHED_TEXT:].replace("**", "")
    if said := _SAID.search(text):
        return said[1]
    # The last letter that the first line with one announces: the authors search with a greedy `.*`
    # before it.
    last = None
    for match in _PUBLISHED_ANNOUNCED.finditer(text):
        if last is not None and "\n" in text[last.start() : match.start()]:
            break
        last = match
    if last is not None:
        return last[1]
    letters = _LETTER.findall(text)
    return letters[-1] if letters else ""


_ANSWER: Final = re.compile(r"<answer>(.*?)</answer>", re.IGNORECASE | re.DOTALL)
_UNIT: Final = re.compile(r"[A-Za-z/^.\s]+$")
_PUBLISHED_NUMBER: Final = re.compile(r"-?\d+\.?\d*")
_MAX_ANSWER: Final = 2000
_WORDS: Final = (("million", 1e6), ("thousand", 1e3), ("k", 1e3))


def rlpr_answer(text: str, _: Sequence[str] = ()) -> str:
    """Return what the first pair of tags holds, without repeated white space; empty without one."""
    found = _ANSWER.search(text[-MAX_PUBLISHED_TEXT:])
    return " ".join(found[1].split()) if found else ""


def is_rlpr(text: str, answer: str, _: Sequence[str] = ()) -> bool:
    """Return whether the answers are equal as texts or as numbers.

    The first way in which both are numbers decides.
    """
    given = rlpr_answer(text)
    expected = " ".join(answer.split())
    if not given or len(given) > _MAX_ANSWER:
        return False
    if given.lower() == expected.lower():
        return True
    if ("%" in given) != ("%" in expected):
        one, other = (_float(each.replace("%", "")) for each in (given, expected))
        if one is not None and other is not None:
            return (
                abs(one / (100 if "%" in given else 1) - other / (100 if "%" in expected else 1))
                < 1e-6
            )
    for read in (lambda text: _float(re.sub(r"[,$%]", "", text)), _leading, _money):
        one = read(given)
        other = read(expected)
        if one is not None and other is not None:
            return abs(one - other) < max(1e-6, abs(other) * 1e-3 if abs(other) > 1 else 0)
    return False


def _float(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return None if math.isnan(value) else value


def _leading(text: str) -> float | None:
    text = re.sub(r"[$,%]", "", _UNIT.sub("", text.strip()))
    if "e" in text.lower():
        return _float(text)
    found = _PUBLISHED_NUMBER.search(text)
    return float(found[0]) if found else None


def _money(text: str) -> float | None:
    """An amount in dollars, written with a word for its size."""
    text = text.lower().strip()
    for word, factor in _WORDS:
        if word in text:
            value = _float(re.sub(r"[$,]", "", text.replace(word, "")).strip())
            return None if value is None else value * factor
    return _float(re.sub(r"[$,]", "", text).strip()) if "$" in text else None


MAX_TEXT: Final = 20_000
"""Characters at the end of a text that are searched for the answer. This bounds the time of the
regular expressions.
"""

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


def _tail(text: str) -> str:
    return text[-MAX_TEXT:].strip()


# exact
# Short answers are compared as a whole; a chatty model must announce its answer in the last line.

_QUOTES: Final = "\"'`*_\u201c\u201d\u201e\u2018\u2019\u00ab\u00bb\u2039\u203a"
_ANNOUNCED: Final = re.compile(
    r"[\W_]*(?:(?:so|thus|hence|therefore),?\s+)?(?:the\s+)?(?:final\s+|correct\s+)?answer"
    r"(?:\s+is\b[\s:]*|[\s*_]*:)(?P<answer>.*)",
    re.IGNORECASE,
)


def _normalize(text: str) -> str:
    """Without case, repeated white space, quotes, emphasis and a final stop."""
    text = " ".join(text.split())
    # Repeated, because these may be nested: `"**Paris**."`.
    while text != (bare := text.strip().strip(_QUOTES).removesuffix(".")):
        text = bare
    return text.casefold()


def _extract_exact(text: str, _: Sequence[str] = ()) -> str:
    announced = _ANNOUNCED.fullmatch(_tail(text).rpartition("\n")[2])
    return _normalize(announced["answer"] if announced else _tail(text))


def _is_text(answer: str, _: Sequence[str] = ()) -> bool:
    return bool(_normalize(answer))


def _is_exact(text: str, answer: str, _: Sequence[str] = ()) -> bool:
    # An expected answer may itself start with "The answer is", so the whole text is compared, too.
    return _normalize(answer) in {_extract_exact(text), _normalize(_tail(text))}


# contains, regex

_CONTEXT: Final = 60  # Characters around an answer that are looked at
_DENIED_BEFORE: Final = re.compile(
    r"(?:\b(?:not|never|neither|nor|cannot|eliminat\w{1,4}|exclud\w{1,4}|reject\w{0,4}|rul\w{1,3} "
    r"out|instead of|"
    r"rather than|other than|except|unlike)|n.?t)"
    r"\s+(?:(?:be|go with|choose|pick|select|option|choice|answer|letter)\s+){0,2}$",
    re.IGNORECASE,
)
REGEX_LIMITS: Final = ChildLimits(seconds=10, memory=1 << 30, cpu_seconds=5)


def _contains(text: str, answer: str, _: Sequence[str] = ()) -> bool:
    said = _normalize(_tail(text))
    wanted = re.escape(_normalize(answer))
    found = re.finditer(rf"(?<!\w){wanted}(?!\w)", said)
    return any(
        not _DENIED_BEFORE.search(said, max(each.start() - _CONTEXT, 0), each.start())
        for each in found
    )


def _matches(text: str, answer: str, _: Sequence[str] = ()) -> bool:
    data = json.dumps({"pattern": answer, "text": _tail(text)}).encode()
    with suppress(ChildStopped):  # it took too long, or the pattern is none
        return (
            run_child(Path(__file__).with_name("pattern_process.py"), data, REGEX_LIMITS)[0]
            is not None
        )
    return False


def _is_pattern(answer: str, _: Sequence[str] = ()) -> bool:
    try:
        re.compile(answer)
    except re.error:
        return False
    return bool(answer)


# number

_GROUP: Final = r"[,'’\u00a0\u2009\u202f]"
"""Thousands separators. A plain space is not one of them, because it also separates numbers."""
_NUMBER: Final = re.compile(
    r"(?:(?<![\w.)\]}])[-+\u2212])?(?<![\w.])"
    rf"(?:[0-9]{{1,3}}(?:{_GROUP}[0-9]{{3}})+(?![0-9])|[0-9]+|(?=\.[0-9]))"
    r"(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3}(?![0-9]))?"
)
_MAX_NUMBER: Final = 400


_PART_BEFORE: Final = re.compile(
    r"(?:[\w)\]}]\s?[+*/^\u00d7\u00b7]|[+*/^(\u2212-]\s?\(|\\(?:sqrt|pm|mp|sin|cos|tan|log|ln)\s?\{?|[\u221a\u00b1]"
    r"|\bbetween\s\S{1,30}\sand)\s?$"
)
_PART_AFTER: Final = re.compile(
    r"\)?\s?[+*^\u00d7\u00b7]\s?(?!\{?\\circ)[\w({\\]|\)?\s?/\s?[\d(]|\s?(?:\\(?:pi|sqrt)|[\u03c0\u221a])"
    r"|[iknpqrtxyz](?!\w)"  # a variable; letters of units are none
)
_ALTERNATIVE: Final = re.compile(r"[0-9][^\w.\n]{0,3}\s(?:or|and/or)\s\W{0,3}$")


def _last_number(text: str) -> Decimal | None:
    """The last number in the last box, else in `text`, that the text does not deny.

    None where that is a part of an expression, as in `q + 70`, or one of several, as in `71 or 70`.
    """
    box = mathematics.last_box(text)
    boxed = box is not text and (box == "\\boxed{}" or _NUMBER.search(box) is not None)
    text = box if boxed else text
    # A generator instead of a list: a hostile text may contain thousands of numbers.
    last = None
    count = 0
    for found in _NUMBER.finditer(text):
        count += 1
        if not _DENIED_BEFORE.search(text, max(found.start() - _CONTEXT, 0), found.start()):
            last = found
    if last is None or len(last[0]) > _MAX_NUMBER or (boxed and count > 1):
        return None
    before = text[max(last.start() - _CONTEXT, 0) : last.start()]
    after = text[last.end() :][:_CONTEXT]
    if _PART_BEFORE.search(before) or _PART_AFTER.match(after) or _ALTERNATIVE.search(before):
        return None
    return Decimal(re.sub(_GROUP, "", last[0]).replace("\u2212", "-"))


def _extract_number(text: str, _: Sequence[str] = ()) -> str:
    value = _last_number(_tail(text))
    if value is None:
        return ""
    return str(int(value)) if value == int(value) else str(float(value))


def _is_number(text: str, answer: str, _: Sequence[str] = ()) -> bool:
    value = _last_number(_tail(text))
    expected = _last_number(answer)
    if value is None or expected is None:
        return False
    if expected == int(expected):
        return value == expected
    return abs(value - expected) <= TOLERANCE * abs(expected)


def _is_one_number(answer: str, _: Sequence[str] = ()) -> bool:
    found = _NUMBER.fullmatch(answer.strip().strip("$€£ ").removesuffix("%").strip())
    return found is not None and len(found[0]) <= _MAX_NUMBER


# choice
# Every letter that the text names is found first; then what stands around it says how much it
# counts.

_MARKS: Final = re.compile(
    r"\\(?:text|textbf|mathrm|mathbf|bf)(?=\s*\{)|\\[()\[\]]|[*_`$\"'#\u201c\u201d]|</?[|\w]{1,9}\|?>",
    re.IGNORECASE,
)
"""Emphasis, fonts, quotes, dollar signs and tags around a letter."""
_MENTION: Final = re.compile(
    r"(?<![\w\\])[(\[{]?(?:([A-Z])(?![\w\\^(]|[ \t]?[<>=+])|([a-z])(?=[)\]]|[ "
    r"\t\r.}]{0,9}(?:\n|\Z)))[)\]}]?"
)
"""A letter of its own. A small one only in brackets or at the end of its line: elsewhere it may be
a word.
"""
_ARTICLE: Final = re.compile(r"[AI][ \t]+(?!(?:is|was|or|and|because|since|seems|would)\b)[a-z]")
_ANNOUNCED_BEFORE: Final = re.compile(
    r"\\boxed[\s{(]*$|(?i:answer|choice|option|letter)\s*"
    r"(?:(?i:\bis|(?:would|should|must) be)\s*:?|[:=\u2013\u2014-]|\n)"
    r"[\s{]*(?i:(?:option|choice|letter)\s*)?$"
)
_CONFIRMED_AFTER: Final = re.compile(r"[ \t]+is[ \t]+(?:the[ \t]+)?(?:correct|right|best)\b")
_PREFERRED_BEFORE: Final = re.compile(
    (
        r"\b(?:go(?:ing)? with|choose|pick|select|opt for|it is|its|must "
        r"be|so|thus|option|choice|letter|answer)[\s:,]*$"
    ),
    re.IGNORECASE,
)
_DENIED_AFTER: Final = re.compile(
    r"[ \t]*(?:(?:is|are|was|can|seems?|looks?|must be)[ \t]+(?:also[ "
    r"\t]+)?(?:not|never|incorrect|wrong|false|"
    r"ruled out|excluded|eliminated|impossible)\b|(?:is|ca|does|wo)n.?t\b|cannot\b)"
)
_ANY_LETTER: Final = r"(?:(?:option|choice)\s+)?[(\[]?[A-Z][)\]]?"
_OPEN_BEFORE: Final = re.compile(
    rf"\beither\s+$|(?:^|[\s{{(]){_ANY_LETTER}\s*(?:\bor\b|\band\b|[/&])\s*(?:(?:option|choice)\s+)?$"
)
_OPEN_AFTER: Final = re.compile(
    rf"\s*(?:(?:\bor\b|\band\b|[/&])\s*{_ANY_LETTER}(?!\w)|,\s*{_ANY_LETTER}\s*(?:,|or\b|and\b|\}}|\.|\n|$))"
)
_LINE_BEFORE: Final = re.compile(r"(?:^|\n)[ \t>]*$")
_LINE_AFTER: Final = re.compile(r"(?<=[)\]])[.:]?(?:\s|$)|[.:](?:\s|$)|\s*(?:\n|$)")
_ONLY: Final = re.compile(r"[\s>]*[(\[]?([A-Za-z])[)\]]?[\s.]*")


_Strength = Literal["announced", "confirmed", "preferred", "leading", "bracketed"]


@dataclass(frozen=True, slots=True)
class _Mention:
    """A letter that a text names, and the clearest way in which it does.

    The letter is empty where the text leaves open which of several it means.
    """

    letter: str
    strength: _Strength


def _extract_choice(text: str, choices: Sequence[str]) -> str:
    """The letter, by the clearest way of naming one that the text uses.

    The last one if it is repeated.

    A letter that the text denies does not count, and where the last one is one of several, there is
    no answer.
    """
    plain = _MARKS.sub("", _tail(text)).strip()
    mentions = _find_mentions(plain, choices)
    clear = _letters_of(mentions, "announced") or _letters_of(mentions, "confirmed")
    if clear:
        return clear[-1]
    alone = _letter_alone(plain, choices)
    if alone:
        return alone
    preferred = _letters_of(mentions, "preferred")
    if preferred:
        return preferred[-1]
    named = (
        _written_choices(text, choices)
        or _letters_of(mentions, "leading")
        or _letters_of(mentions, "bracketed")
    )
    # A text that names or quotes several names none of them.
    return named[0] if len(set(named)) == 1 else ""


def _find_mentions(plain: str, choices: Sequence[str]) -> list[_Mention]:
    """Return the letters that the text names and does not deny, in their order."""
    mentions = list[_Mention]()
    for match in _MENTION.finditer(plain):
        letters = _offered([match[1] or match[2]], choices)
        if not letters or _is_article(match) or _is_denied(match):
            continue
        strength = _strength_of(match)
        if strength is None:
            continue
        letter = "" if _is_left_open(match) else letters[0]
        mentions.append(_Mention(letter, strength))
    return mentions


def _strength_of(match: re.Match[str]) -> _Strength | None:
    """Return the clearest way in which the text names this letter; None where it only occurs."""
    before = _text_before(match)
    is_bracketed = _is_bracketed(match)
    is_listed = match[0][-1] == ")" and not is_bracketed
    begins_line = is_listed or _LINE_BEFORE.search(before)
    if _ANNOUNCED_BEFORE.search(before):
        return "announced"
    if _CONFIRMED_AFTER.match(_text_after(match)):
        return "confirmed"
    if _PREFERRED_BEFORE.search(before):
        return "preferred"
    if begins_line and _LINE_AFTER.match(match.string, match.end()):
        return "leading"
    return "bracketed" if is_bracketed else None


def _is_bracketed(match: re.Match[str]) -> bool:
    return match[0][0] in "([" and match[0][-1] in ")]"


def _is_article(match: re.Match[str]) -> bool:
    """Return whether the letter is a word of its sentence: `A whale` or `I think`."""
    is_capital = match[1] is not None
    if not is_capital or _is_bracketed(match):
        return False
    return _ARTICLE.match(match.string, match.start(1)) is not None


def _is_denied(match: re.Match[str]) -> bool:
    denied_before = _DENIED_BEFORE.search(_text_before(match))
    denied_after = _DENIED_AFTER.match(_text_after(match))
    return denied_before is not None or denied_after is not None


def _is_left_open(match: re.Match[str]) -> bool:
    """Return whether the letter is one of several: `B or C`."""
    open_before = _OPEN_BEFORE.search(_text_before(match))
    open_after = _OPEN_AFTER.match(_text_after(match))
    return open_before is not None or open_after is not None


def _text_before(match: re.Match[str]) -> str:
    return match.string[max(match.start() - _CONTEXT, 0) : match.start()]


def _text_after(match: re.Match[str]) -> str:
    return match.string[match.end() : match.end() + _CONTEXT]


def _letters_of(mentions: Iterable[_Mention], strength: _Strength) -> list[str]:
    return [mention.letter for mention in mentions if mention.strength == strength]


def _letter_alone(plain: str, choices: Sequence[str]) -> str:
    """Return the letter that is all of the last line, or of the first one; else nothing."""
    lines = plain.split("\n")
    for line in (lines[-1], lines[0]):
        match = _ONLY.fullmatch(line)
        letters = _offered([match[1]], choices) if match else []
        if letters:
            return letters[0]
    return ""


def _written_choices(text: str, choices: Sequence[str]) -> list[str]:
    """Return the letters of the choices that the text consists of."""
    lettered = list(zip(ascii_uppercase, choices, strict=False))
    written = [letter for letter, choice in lettered if _is_exact(text, choice)]
    if len(written) < 2:
        return written
    # Formulas that differ only by case
    return [letter for letter, choice in lettered if choice.strip() == text.strip()]


def _offered(letters: Iterable[str], choices: Sequence[str]) -> list[str]:
    """The letters that belong to a choice, as capitals.

    Others may be words: "Answer: I believe it is (B)".
    """
    offered = ascii_uppercase[: len(choices) or None]
    return [letter.upper() for letter in letters if letter.upper() in offered]


SCORERS: Final[dict[str, Scorer]] = {
    "exact": Scorer(extract=_extract_exact, is_correct=_is_exact, can_match=_is_text),
    "contains": Scorer(extract=_extract_exact, is_correct=_contains, can_match=_is_text),
    "regex": Scorer(extract=_extract_exact, is_correct=_matches, can_match=_is_pattern, slow=True),
    "number": Scorer(extract=_extract_number, is_correct=_is_number, can_match=_is_one_number),
    "choice": Scorer(
        extract=_extract_choice,
        is_correct=lambda text, answer, choices: (
            _extract_choice(text, choices) == answer.strip().upper()
        ),
        can_match=lambda answer, choices: (
            _extract_choice(answer, choices) == answer.strip().upper()
        ),
    ),
    "math": Scorer(
        extract=lambda text, _: mathematics.extract_expression(_tail(text)),
        is_correct=lambda text, answer, _: mathematics.is_equivalent(_tail(text), answer),
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
        extract=_extract_exact,
        is_correct=lambda *_: False,
        can_match=lambda answer, _: bool(answer),
        needs="judge",
    ),
}

r"""Which number a text gives as its answer.

A person reads `1{,}600`, `1'600` and `1,00,000` as one number, `3,5` as three and a half,
`\frac{1}{2}` as a half, `3\times10^5` and `3万` as what they are worth, and the 2 of `cm^2` as no
number at all. So numbers are found whole first (`find_numbers`), and then one of them is chosen:

1. the last box that the text does not deny, or what follows `####`, as in GSM8K;
2. what follows the last announcement (`The answer is 204. I used 3 steps.`);
3. a number that is all of the last line, or of the first one;
4. the last number of the text, without notes and labels (`step 3`, `as of 2024`).

A number that is a part of an expression (`q + 70`), one of several (`70 or 71`, `70-71`), or a
bound (`more than 70`) is no answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from conductor_cli.evals import answer_words as words
from conductor_cli.evals import mathematics
from conductor_cli.evals.answer_words import CONTEXT, SPACED

MAX_NUMBER: Final = 400  # Characters of a number that is read
MAX_POWER: Final = 300  # The largest power of ten that is worked out

# What a text looks like to who reads numbers

_SPACE: Final = "[ \u00a0\u2009\u202f]"
_SPACED_DIGITS: Final = re.compile(
    rf"(?<![0-9])(?<![0-9][.,'])[1-9][0-9]{{0,2}}(?:{_SPACE}[0-9]{{3}})+(?![0-9])"
    r"(?!\s?/\s?[0-9]|-[A-Za-z])"
)
"""A number whose thousands stand apart: `1 234 567`. In `3 100-gram bars` and `1 100/200` the
first number is one of its own.
"""

_MONEY: Final = r"[$€£¥]\s?[0-9][0-9.,]{0,20}"
_NO_FORMULA: Final = r"(?=[.,;:!?)*]{0,3}(?:\s+(?![-+*/=^\\<>|])|\s*$))"
"""What follows the `k` of `$18k`, but not that of `$18k + 1$`."""
_FONT: Final = r"\\(?:text|textbf|textrm|mathrm|mathbf|mathit|boldsymbol|mbox)"
_REWRITES: Final = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        # "The answer is 42!" is no factorial, as 42! is in a formula, a box or a longer sentence
        (
            r"(?<=[a-z:] )(\*{0,2}[-+]?[0-9][0-9.,]{0,20}\*{0,2})!(?=\*{0,2}\s*(?:$|\n|\s[A-Z]))",
            r"\1.",
        ),
        (rf"{_FONT}\s*\{{([^{{}}]{{0,80}}(?:\{{[^{{}}]{{0,20}}\}}[^{{}}]{{0,40}})?)\}}", r"\1"),
        (r"\\(?:bf|rm|left|right|displaystyle)(?![A-Za-z])", ""),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"<<[^<>\n]{0,200}>>", ""),  # what the calculator of GSM8K was told
        (r"\\[$€£]", "$"),
        (r"\\%", "%"),
        (rf"({_MONEY})[kK]{_NO_FORMULA}", r"\1 thousand"),
        (rf"({_MONEY})(?:M|mn){_NO_FORMULA}", r"\1 million"),
        (rf"({_MONEY})(?:B|bn){_NO_FORMULA}", r"\1 billion"),
        (r"(?<![=<>-])[=-]{1,2}>", "→"),
        (r"&\s?(?=[=≈])", ""),  # the alignment of LaTeX
        (
            rf"(?i:(?<![{SPACED}])negative|(?:^|(?<=\n)|(?<=[:=])|(?<=\bis))\s?\bminus)\s(?=[0-9])",
            " -",
        ),
        (r"(?<=[0-9])\s?~(?=[A-Za-z])", " "),
        (r"\^\s?\{?\s?\\(?:circ|degree)\s?\}?", "°"),
        (r"\\(?:times|cdot)(?![A-Za-z])", "×"),
        (r"\\(?:approx|simeq)(?![A-Za-z])", "≈"),
        (r"\\(?:geq?|geqslant)(?![A-Za-z])", "≥"),
        (r"\\(?:leq?|leqslant)(?![A-Za-z])", "≤"),
        (r"\\gt(?![A-Za-z])", ">"),
        (r"\\lt(?![A-Za-z])", "<"),
        (r"\\(?:to|rightarrow|implies|Rightarrow)(?![A-Za-z])", "→"),
        (r"(?<=[0-9])(?:\{[,\\]{1,2}\}|,?\\[,!;:\s]|,\{\}|~)(?:\\!)?(?=[0-9]{3}(?![0-9]))", ","),
        (r"(?<=[0-9])\{,\}(?=[0-9])", ","),
        (r"\\[,!;: ]|\\q?quad(?![A-Za-z])|(?<![0-9])~(?![0-9])", " "),
        (r"\\[()\[\]]", " "),
        (r"\*\*|__|`|~~", ""),
        (r"(?<![\w)*\]])\*(?=[^\s*])|(?<=[^\s*])\*(?![\w(*{])", ""),
        (r"(?<=[-+])[$€£¥₩₹฿]\s?", ""),
        (r"[$€£¥₩₹฿]\s?", " "),
        (r"</?[|\w]{1,12}\|?>", " "),
    )
)


def plain_text(text: str) -> str:
    """Return the text without emphasis, fonts, dollar signs and the spaces of LaTeX.

    Digits of all scripts become 0 to 9, and dashes one dash.
    """
    text = _without_spaces_in_numbers(words.unify_digits(text))
    text = words.unify_characters(text)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    return text


def _without_spaces_in_numbers(text: str) -> str:
    return _SPACED_DIGITS.sub(lambda number: re.sub(_SPACE, "", number[0]), text)


# Numbers

_SIGN: Final = rf"(?:(?<![{SPACED}.)\]}}°%])[-+])?"
_DIGITS: Final = (
    r"(?>(?!0,)[0-9]{1,3}(?:[,'][0-9]{3})+(?![0-9])(?:\.[0-9]+)?"  # 1,600
    r"|[1-9][0-9]?(?:,[0-9]{2})+,[0-9]{3}(?![0-9])(?:\.[0-9]+)?"  # 1,00,000
    r"|[1-9][0-9]{0,2}(?:\.[0-9]{3}){2,}(?![0-9])(?:,[0-9]+)?"  # 1.600.000
    r"|[1-9][0-9]{0,2}(?:\.[0-9]{3})+,[0-9]{1,2}(?![0-9])"  # 1.600,50
    r"|[0-9]+,[0-9]+(?![0-9,]|\s?,\s?[0-9])"  # 3,5
    r"|[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
)
_EXPONENT: Final = r"(?:[eE][-+]?[0-9]{1,3}(?![0-9]))?"
_WHOLE: Final = rf"{_SIGN}(?<![{SPACED}.]){_DIGITS}{_EXPONENT}"
_VULGAR: Final = {
    "½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅕": (1, 5), "⅖": (2, 5),
    "⅗": (3, 5), "⅘": (4, 5), "⅙": (1, 6), "⅚": (5, 6), "⅛": (1, 8), "⅜": (3, 8), "⅝": (5, 8),
    "⅞": (7, 8),
}  # fmt: skip
_RAISED: Final = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_NUMBER: Final = re.compile(
    rf"(?P<sign>{_SIGN})(?:(?<![{SPACED}.])(?P<mixed>[0-9]{{1,6}})\s?)?"
    r"\\frac\s?(?:\{\s?(?P<top>-?[0-9]{1,15})\s?\}|(?P<top1>[0-9]))"
    r"\s?(?:\{\s?(?P<under>[0-9]{1,15})\s?\}|(?P<under1>[0-9]))"
    rf"|(?P<vulgar_sign>{_SIGN})(?<![{SPACED}.])"
    r"(?P<vulgar_whole>[0-9]{1,6})?\s?"
    rf"(?P<vulgar>[{''.join(_VULGAR)}])"
    rf"|(?P<slash_sign>{_SIGN})(?<![{SPACED}./])"
    r"(?:(?P<slash_whole>[0-9]{1,6})[ -](?=[0-9]{1,15}\s?/))?"
    r"(?P<over>[0-9]{1,15}(?:\.[0-9]{1,15})?)\s?/\s?(?P<below>[0-9]{1,15}(?![0-9]))(?!\s?/|\.[0-9])"
    rf"|(?P<factor>{_WHOLE})\s?[×x*·]\s?10\s?(?:\^\s?\{{?\s?(?P<power>[-+]?[0-9]{{1,3}})\s?\}}?"
    r"|(?P<raised>[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]{1,4}))"
    rf"|(?P<ten_sign>{_SIGN})(?<![{SPACED}.])10\s?"
    r"(?:\^\s?(?:\{\s?(?P<ten_power>[-+]?[0-9]{1,3})\s?\}|(?P<ten_power1>[-+]?[0-9]{1,3}))"
    r"|(?P<ten_raised>[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]{1,4}))"
    rf"|(?P<whole>{_WHOLE})"
)
_TIMES: Final = {
    "hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12, "mio": 6, "mrd": 9,
    "tausend": 3, "millionen": 6, "milliarden": 9, "mille": 3, "mil": 3, "millones": 6, "百": 2,
    "千": 3, "万": 4, "萬": 4, "億": 8, "亿": 8, "兆": 12, "천": 3, "만": 4, "억": 8, "พัน": 3,
    "หมื่น": 4, "แสน": 5, "ล้าน": 6, "ألف": 3, "مليون": 6, "مليار": 9,
}  # fmt: skip
_TIMES_AFTER: Final = re.compile(
    r"[\s-]?(" + "|".join(sorted(_TIMES, key=len, reverse=True)) + r")(?![A-Za-z0-9])",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class FoundNumber:
    """A number in a plain text, from `start` to `end`, with what it is worth."""

    start: int
    end: int
    value: Decimal


def find_numbers(plain: str) -> Iterator[FoundNumber]:
    """Yield the numbers of a plain text in their order, but no powers of units (`cm^2`)."""
    for match in _NUMBER.finditer(plain):
        if len(match[0]) > MAX_NUMBER or _is_power_of_unit(plain, match.start()):
            continue
        value = _value_of(match)
        if value is None:
            continue
        end = match.end()
        times = _TIMES_AFTER.match(plain, end)
        if times is not None:
            value = value.scaleb(_TIMES[times[1].lower()])
            end = times.end()
        yield FoundNumber(match.start(), end, value)


def _value_of(match: re.Match[str]) -> Decimal | None:
    """Return what a match of `_NUMBER` is worth; None for a division by zero."""
    if match["whole"]:
        return _read_digits(match["whole"])
    if match["factor"]:
        power = int(match["power"] or match["raised"].translate(_RAISED))
        factor = _read_digits(match["factor"])
        if abs(power) <= MAX_POWER:
            return factor.scaleb(power)
        return None
    if power_of_ten := match["ten_power"] or match["ten_power1"] or match["ten_raised"]:
        return _power_of_ten(match["ten_sign"], int(power_of_ten.translate(_RAISED)))
    if match["vulgar"]:
        top, under = _VULGAR[match["vulgar"]]
        return _fraction(match["vulgar_sign"], match["vulgar_whole"], Decimal(top), Decimal(under))
    if match["below"]:
        over = Decimal(match["over"])
        return _fraction(match["slash_sign"], match["slash_whole"], over, Decimal(match["below"]))
    top_digits = match["top"] or match["top1"]
    under_digits = match["under"] or match["under1"]
    return _fraction(match["sign"], match["mixed"], Decimal(top_digits), Decimal(under_digits))


def _power_of_ten(sign: str, power: int) -> Decimal | None:
    if abs(power) > MAX_POWER:
        return None
    return Decimal(-1 if sign == "-" else 1).scaleb(power)


def _fraction(sign: str, whole: str | None, top: Decimal, under: Decimal) -> Decimal | None:
    if not under:
        return None
    value = Decimal(whole or 0) + top / under
    return -value if sign == "-" else value


def _read_digits(digits: str) -> Decimal:
    """Return the value of digits with a sign, separators and an exponent."""
    commas = digits.count(",")
    is_grouped = re.fullmatch(r"[-+]?[1-9][0-9]{0,2}(?:,[0-9]{2,3})*,[0-9]{3}(?:\.[0-9]+)?", digits)
    if digits.count(".") > 1 or (commas == 1 and "." in digits.partition(",")[0]):
        digits = digits.replace(".", "").replace(",", ".")
    elif commas == 1 and not is_grouped:
        digits = digits.replace(",", ".")
    return Decimal(digits.replace(",", "").replace("'", ""))


_UNIT: Final = words.UNIT
_POWER_OF_UNIT: Final = re.compile(
    r"(?:[0-9)}%]\s{0,2}(?:square |cubic )?"
    rf"(?:{_UNIT}(?:\^?\{{?-?[1-6]\}}?)?\s?[/·×*.]?\s?){{0,3}}{_UNIT}"
    r"|(?<![A-Za-z\\])(?:[mcdkµμn]m|km|in|ft|yd|mi|kg|sec))\s?\}?\s?\^\s?\{?\s?$"
)


def _is_power_of_unit(plain: str, start: int) -> bool:
    before = plain[max(start - CONTEXT, 0) : start]
    return "^" in before[-4:] and _POWER_OF_UNIT.search(before) is not None


# Whether a number stands for itself

_NUM: Final = r"[-+]?[0-9][0-9.,']{0,20}"
_UNIT_AFTER: Final = rf"(?:\s?(?:{_UNIT}|%|°)(?![A-Za-z]))?"
_PART_BEFORE: Final = re.compile(
    rf"(?:[{SPACED})\]}}!]\s?[+*/^×·÷±=]?\s?[+*/^×·÷±]|(?:[0-9)\]}}]|(?<![{SPACED}])[A-Za-z])\s-|[+*/^(-]\s?\("
    r"|\\(?:sqrt|pm|mp|sin|cos|tan|log|ln|binom|sum|int|not)\s?\{?|[√±_^]\s?\{?"
    r"|\\frac\s?(?:\{[^{}]{0,40}\}\s?)?\{[^{}]{0,20}|[A-Za-z]\(|\\pm\s?"
    r"|(?i:\bbetween\s\S{1,30}\sand|\b(?:plus|minus|divided by|multiplied by|modulo|mod)))\s?$"
)
_PART_AFTER: Final = re.compile(
    r"[)\]}]?\s?!(?!=)|[⁰¹²³⁴⁵⁶⁷⁸⁹ⁿ]"
    r"|[)\]}]?\s?[+*^×·÷±]\s?[\w({\\]|[)\]}]?\s?/\s?[0-9(\\]"
    r"|[)\]}]?\s-\s?(?:[0-9({\\]|[^\W\d](?![^\W\d_])|[a-z]{2,9}\()"
    r"|\s?\\?(?:pi|sqrt)(?![A-Za-z])|\s?\\(?:pm|mp|binom|cdot|times|div|bmod|pmod)(?![A-Za-z])"
    r"|\s?\\frac|\s?[πτ√]"
    r"|[iknpqrtxyz](?![A-Za-z])|\s[xyznpqk](?![A-Za-z'])"
    r"|\s(?:plus|minus|divided by|multiplied by|modulo|mod|factorial|choose|to the power)\b"
    r"|\stimes\s(?:[0-9]|[a-z](?![a-z]))|\s?\(mod\b"
)
_LETTER_POWER_AFTER: Final = re.compile(r"\s?([A-Za-z]{1,12})\s?\^")
_IS_UNIT: Final = re.compile(_UNIT)
_OR: Final = r"(?:and/or|or|and|&|oder|und|ou|et|или|或者?|または|もしくは|또는|หรือ|أو)"
_SEVERAL_BEFORE: Final = re.compile(
    rf"[0-9]{_UNIT_AFTER}[^\w.\n]{{0,3}}\s?{_OR}\s?[^\w\n]{{0,3}}$"
    rf"|[0-9]{_UNIT_AFTER}\s?(?:-|~|〜|…|\.\.\.?|至|から)\s?$"
    rf"|(?<!from\s){_NUM}{_UNIT_AFTER}\s(?:to|through|up to|bis|à)\s$"
    rf"|(?:[:\n]|^|\b(?:is|are|be|either|guess(?:es)?))\s*\W{{0,3}}{_NUM}\s?[,/;]\s*$"
    rf"|{_NUM}\s?[,;/]\s{{0,2}}{_NUM}\s?[,;/]\s{{0,2}}(?:{_OR}\s)?$"
    rf"|(?:^|\n)\s*[-*•]\s*{_NUM}\s*\n\s*[-*•]\s*$"
)
_FROM_BEFORE: Final = re.compile(
    rf"\bfrom\s{_NUM}{_UNIT_AFTER}(?:\s\w{{1,12}}){{0,2}}\s(?:to|through|up to)\s$", re.IGNORECASE
)
_MOVED_BEFORE: Final = re.compile(
    r"\b(?:rose|rises?|increas\w{1,3}|grew|grows?|dropp?\w{0,3}|f[ea]ll?s?|went|goes|changed?s?"
    r"|decreas\w{1,3}|reduced|moved?|climbed|shrank|jumped)\b[^.\n]{0,40}$",
    re.IGNORECASE,
)
_SEVERAL_AFTER: Final = re.compile(
    rf"{_UNIT_AFTER}[)\]}}\"']?\s?(?:-|~|〜|…|\.\.\.?|至|から)\s?[0-9]"
    rf"|{_UNIT_AFTER}\s(?:to|through|bis)\s{_NUM}"
    rf"|{_UNIT_AFTER}[^\w.\n]{{0,3}}\s?(?:and/or|or|oder|ou|или|或|または|또는|หรือ|أو)\s?[^\w\n]{{0,3}}[0-9]"
    r"|\s(?:\w{1,12}\s)?or (?:more|less|fewer|higher|lower|greater|so)\b|\+(?=\s|$)"
)
_BOUND_BEFORE: Final = re.compile(
    r"(?:\b(?:at least|at most|more than|less than|fewer than|greater than|larger than|higher than"
    r"|lower than|smaller than|bigger than|up to|over|under|above|below|exceed\w{0,3}"
    r"|mindestens|höchstens|mehr als|weniger als|au moins|au plus|al menos)"
    r"|至少|至多|超过|超過|不到|少なくとも|最大で|적어도|최소|อย่างน้อย|على الأقل|\S\s?[<>≥≤]=?)"
    rf"{words.MARKUP}$",
    re.IGNORECASE,
)
_LABELS: Final = (
    r"(?:steps?|equations?|eq\.|chapters?|pages?|p\.|pp\.|sections?|lines?|parts?|questions?"
    r"|problems?|exercises?|fig(?:ure|\.)|tables?|versions?|lemmas?|theorems?|corollary"
    r"|propositions?|rules?|cases?|methods?|refs?\.?|references?|footnotes?)"
)
_LABEL_BEFORE: Final = re.compile(
    rf"(?:\b(?:{_LABELS}|as of|as at|(?:as of|in|on) (?:january|february|march|april|may|june|july"
    r"|august|september|october|november|december))\s(?:no\. ?|number |#)?\(?|\w[\s.]{0,2}\[)$",
    re.IGNORECASE,
)
_ONLY_A_LABEL: Final = re.compile(rf"\W{{0,5}}{_LABELS}\s([0-9]{{1,9}})\W{{0,5}}", re.IGNORECASE)


def _stands_for_itself(plain: str, number: FoundNumber) -> bool:
    """Return whether the number is no part of an expression, one of several, or a bound."""
    before = plain[max(number.start - CONTEXT, 0) : number.start]
    after = plain[number.end : number.end + CONTEXT]
    if _PART_BEFORE.search(before) or _PART_AFTER.match(after):
        return False
    letters = _LETTER_POWER_AFTER.match(after)
    if letters is not None and _IS_UNIT.fullmatch(letters[1]) is None:
        return False
    if _BOUND_BEFORE.search(before):
        return False
    if _SEVERAL_AFTER.match(after) and not _is_said_again(plain, number):
        return False
    is_range_end = _FROM_BEFORE.search(before) or _SEVERAL_BEFORE.search(before)
    if is_range_end is not None:
        return _MOVED_BEFORE.search(before[: is_range_end.start()]) is not None
    return True


_AGAIN: Final = re.compile(r"\s?%?[^\w\n]{0,4}(?:or|i\.e\.|that is)[^\w\n]{0,4}")


def _is_said_again(plain: str, number: FoundNumber) -> bool:
    """Return whether the next number is the same in another form: `1/2, or 0.5`, `0.5 (or 50%)`."""
    rest = plain[number.end : number.end + CONTEXT]
    other = next(find_numbers(rest), None)
    if other is None or _AGAIN.fullmatch(rest, 0, other.start) is None:
        return False
    moved = FoundNumber(number.end + other.start, number.end + other.end, other.value)
    return _share(plain, moved) == _share(plain, number)


def _share(plain: str, number: FoundNumber) -> Decimal:
    """Return what a number is worth, of a percentage the share that it means."""
    is_percent = plain[number.end :].lstrip().startswith("%")
    return number.value / 100 if is_percent else number.value


def _first_form(plain: str, number: FoundNumber) -> FoundNumber:
    """Return the number before this one if both are the same in two forms, else this one."""
    start = max(number.start - CONTEXT, 0)
    earlier = list(find_numbers(plain[start : number.start]))
    if not earlier:
        return number
    before = FoundNumber(start + earlier[-1].start, start + earlier[-1].end, earlier[-1].value)
    return before if _is_said_again(plain, before) else number


def _is_label(plain: str, number: FoundNumber) -> bool:
    return _LABEL_BEFORE.search(plain[max(number.start - CONTEXT, 0) : number.start]) is not None


# Which number is the answer

_HASHES: Final = re.compile(r"(?:^|\n)[ \t]*####[ \t]*([^\n]{1,200})")
_FILLER: Final = re.compile(
    r"(?:\s|[=≈~:(\"'>\[]|\b(?:about|approximately|approx\.?|around|roughly|nearly|almost|exactly"
    r"|simply|just|only|then|thus|therefore|indeed|clearly|equal to|the number|US|EUR|USD|CA)\b"
    r"|[A-Za-z]{1,2}\s?=|约|約|大约|大約|およそ|약)*",
    re.IGNORECASE,
)
_ASIDE: Final = re.compile(
    r"(?<![0-9])[(\[]|[(\[](?![-0-9])|\u2014|\s-\s(?!\s?[-0-9(])|,"
    r"|\b(?:because|since|as|for|with|after|from|given|where|when|if|by|using"
    r"|which|while|in \w{1,10} steps?)\b",
    re.IGNORECASE,
)
_RESULT: Final = re.compile(r"[=≈→]")
_ALONE: Final = re.compile(r"[\s>#*_-]{0,6}(?:[A-Za-z]{1,2}\s?=\s?)?")
_UNIT_WORDS: Final = re.compile(r"\s{0,2}[%°]?\s?[^\W\d_]{0,20}(?:\s[^\W\d_]{1,12}){0,1}[\s.!。]*")


def given_number(text: str) -> Decimal | None:
    """Return the number that a text gives as its answer; None where it gives none, or several."""
    named = named_value(text)
    if named is not None:
        return given_number(named)
    plain = plain_text(words.without_thinking(text))
    box = mathematics.last_box(plain)
    if box is not plain and (box == mathematics.EMPTY_BOX or _has_digit(box)):
        return _number_of_box(box[len("\\boxed{") : -1])
    hashes = [line for line in _HASHES.findall(plain) if not _is_heading(line)]
    if hashes:
        value = _number_of_box(hashes[-1])
        first = _first_with_remark(hashes[-1])
        if value is None and first is not None:
            return first.value
        return value
    announced = _announced_number(plain)
    if announced is not None:
        if _stands_for_itself(plain, announced):
            return announced.value
        return None
    alone = _number_alone(plain)
    if alone is not None:
        return alone.value
    printed = _printed_number(text)
    if printed is not None:
        return printed
    label = _ONLY_A_LABEL.fullmatch(plain)
    if label is not None:
        return _number_of_box(label[1])
    number = _last_number(words.without_remarks(plain)) or _last_number(plain)
    if number is not None:
        number = _first_form(plain, number)
    if number is None or not _stands_for_itself(plain, number):
        return None
    return number.value


_FENCED: Final = re.compile(
    r"(?:^|\n)[ \t]*(?:```|~~~)(?:json)?[ \t]*\n(.{1,4000}?)(?:```|~~~|$)", re.DOTALL
)
_KEYS: Final = ("answer", "final_answer", "finalAnswer", "result")


def named_value(text: str) -> str | None:
    """Return the answer that JSON names, in a fence or not; None where the text is no JSON."""
    fenced = _FENCED.search(text)
    bare = (fenced[1] if fenced is not None else text).strip()
    if not bare.startswith("{"):
        return None
    with suppress(ValueError, RecursionError):
        record = json.loads(bare)
        for key in _KEYS:
            value = None
            if isinstance(record, dict):
                value = record.get(key)
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                return str(value)
    return None


_PRINTED: Final = re.compile(
    r"\b(?:prints?|printed|outputs?|returns?|displays?|results?|answers?|gives?|yields?|get)\b"
    r"[^\n]{0,40}:?[ \t*]*\n\s{0,9}(`{3,}|~{3,})[^\n`]{0,20}\n([^\n]{1,100})\n[ \t]*\1",
    re.IGNORECASE,
)


def _printed_number(text: str) -> Decimal | None:
    """Return the number that is all of the last block which the line above calls the result."""
    blocks = _PRINTED.findall(words.without_thinking(text))
    if blocks and is_one_number(blocks[-1][1]):
        return _number_of_box(plain_text(blocks[-1][1]))
    return None


def _has_digit(text: str) -> bool:
    return next(find_numbers(text), None) is not None


def _number_of_box(content: str) -> Decimal | None:
    """Return the only number of a box, or what its last `=` says; None for several or a part."""
    result = _RESULT.split(content)[-1]
    if _has_digit(result):
        content = result
    numbers = list(find_numbers(content))
    if len(numbers) != 1 or not _stands_for_itself(content, numbers[0]):
        return None
    return numbers[0].value


_NUMBERED: Final = re.compile(r"[0-9]{1,3}\s?(?:[.):]|-\s)\s*[^\W\d_]")
_LABELLED: Final = re.compile(rf"{_LABELS}\s?#?[0-9]", re.IGNORECASE)
_RESULT_BEFORE: Final = re.compile(r"[:=\u2248\u2192]\s*$")


def _is_heading(line: str) -> bool:
    """Return whether a line behind `####` is a heading of Markdown: `Step 2: Add 3`, `1. Count`.

    An answer begins with its number, or ends with one that words, a colon or an equals sign
    announce.
    """
    bare = line.strip("*_ \t")
    if _NUMBERED.match(bare) or _LABELLED.match(bare):
        return True
    numbers = list(find_numbers(bare))
    if not numbers:
        return True
    begin = _ALONE.match(bare)
    if begin is not None and numbers[0].start <= begin.end():
        return False
    before = bare[: numbers[-1].start]
    return not (_RESULT_BEFORE.search(before) or words.ANNOUNCEMENT.search(before))


def _announced_number(plain: str) -> FoundNumber | None:
    """Return the number that the last announcement with one gives."""
    announcements = list(words.ANNOUNCEMENT.finditer(plain))
    for announcement in reversed(announcements[-words.MAX_ANNOUNCEMENTS :]):
        start = announcement.start()
        clause = plain[max(start - CONTEXT, 0) : start]
        if words.DOUBTED_BEFORE.search(clause + announcement[0]):
            continue
        corrected = _corrected_number(plain, announcement.end())
        if corrected is not None:
            return corrected
        number = _number_after(plain, announcement.end())
        if number is not None:
            return number
    return None


def _number_after(plain: str, start: int) -> FoundNumber | None:
    """Return the number that the sentence after an announcement gives."""
    sentence = words.sentence_from(plain, start)
    if not sentence:
        return None
    begin = plain.index(sentence, start)
    filler = _FILLER.match(sentence)
    first_at = filler.end() if filler is not None else 0
    numbers = []
    for number in find_numbers(sentence):
        moved = FoundNumber(number.start + begin, number.end + begin, number.value)
        if not words.is_denied(plain, moved.start, moved.end):
            numbers.append(moved)
    if not numbers:
        return None
    first = numbers[0]
    is_direct = first.start - begin <= first_at
    has_result = _RESULT.search(sentence, first.end - begin) is not None
    if not is_direct or not (has_result or _stands_for_itself(plain, first)):
        # Words stand before it: what they lead to is at the end, without what is in brackets.
        outside = [number for number in numbers if not _in_brackets(plain, begin, number.start)]
        return (outside or numbers)[-1]
    aside = _ASIDE.search(plain, first.end, begin + len(sentence))
    stop = aside.start() if aside is not None else begin + len(sentence)
    result = first
    for number in numbers:
        if number.start < stop and _RESULT.search(plain, first.end, number.start):
            result = number
    # "The answer is 42 = 6 × 7": the part of an expression is not what it is worth.
    return result if _stands_for_itself(plain, result) else first


def _in_brackets(plain: str, begin: int, at: int) -> bool:
    piece = plain[begin:at]
    return piece.count("(") > piece.count(")")


_NOW_IT_IS: Final = re.compile(
    r"[^.\n]{0,40}\b(?:it is|it's|it should be|should be|i mean|the answer is|that is|=)\s*$",
    re.IGNORECASE,
)


def _corrected_number(plain: str, start: int) -> FoundNumber | None:
    """Return the number that takes the place of an announced one: `No, wait, it is 42`."""
    change = words.CHANGED_MIND.search(plain, start)
    if change is None:
        return None
    corrected = None
    for number in find_numbers(plain[change.end() :]):
        moved = FoundNumber(number.start + change.end(), number.end + change.end(), number.value)
        if _NOW_IT_IS.search(plain[change.end() : moved.start][-2 * CONTEXT :]):
            corrected = moved
    return corrected


def _number_alone(plain: str) -> FoundNumber | None:
    """Return the number that is all of the last line, else of the first one, but for its unit."""
    lines = plain.strip().split("\n")
    if len(lines) < 2:
        return _first_with_remark(plain)
    for line in (lines[-1], lines[0]):
        begin = _ALONE.match(line)
        number = next(find_numbers(line[:200]), None)
        if begin is None or number is None or number.start > begin.end() or number.start < 0:
            continue
        is_whole_line = _UNIT_WORDS.fullmatch(line, number.end) is not None
        if (
            is_whole_line
            and _stands_for_itself(line, number)
            and not _has_digit(line[number.end :])
        ):
            is_bullet = line is lines[-1] and not _stands_for_itself(plain, _last_of(plain, number))
            return None if is_bullet else number
    return None


def _last_of(plain: str, number: FoundNumber) -> FoundNumber:
    return [number, *find_numbers(plain)][-1]


_BRACKET_AFTER: Final = re.compile(
    rf"\s{{0,2}}(?:[^\W\d_]{{0,12}}|[°%]\s?[A-Za-z]?|{_UNIT}(?:\s?[/·]\s?{_UNIT})?"
    r"(?:\^?\{?-?[1-4]\}?|[²³])?)\s?\("
)


def _first_with_remark(plain: str) -> FoundNumber | None:
    """Return the number with which a single line begins, where brackets follow: `42 (of 50)`."""
    number = next(find_numbers(plain), None)
    begin = _ALONE.match(plain)
    if number is None or begin is None or number.start > begin.end():
        return None
    if _BRACKET_AFTER.match(plain, number.end) is None:
        return None
    return number if _stands_for_itself(plain, number) else None


def _last_number(plain: str) -> FoundNumber | None:
    """Return the last number that the text does not deny, and that is no label."""
    aside = None
    for number in reversed([*find_numbers(plain)]):
        if words.is_denied(plain, number.start, number.end) or _is_label(plain, number):
            continue
        if not _in_aside(plain, number.start):
            return number
        aside = aside or number
    return aside


_ASIDE_BEFORE: Final = re.compile(r"[.!?]\s+\([^()]{0,60}$")


def _in_aside(plain: str, start: int) -> bool:
    """Return whether it stands in a sentence that is all in brackets: `… 42. (I used 3.)`."""
    return _ASIDE_BEFORE.search(plain, max(start - CONTEXT, 0), start) is not None


def is_one_number(text: str) -> bool:
    """Return whether the text is one number, with a sign of money or percent at most."""
    bare = plain_text(text).strip().removesuffix("%").strip()
    match = re.fullmatch(_WHOLE, bare)
    return match is not None and len(bare) <= MAX_NUMBER


def is_written_number(text: str) -> bool:
    """Return whether the text is one number in any form: `2/6`, `1 1/2`, `½`, `3 million`."""
    plain = plain_text(text).strip()
    number = next(find_numbers(plain), None)
    return number is not None and (number.start, number.end) == (0, len(plain))

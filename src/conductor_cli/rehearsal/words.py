"""The words of the demo.

A typed text in the form that the models read, and whether a question belongs to their world.

`normalize` writes words of the phrasings in lower case and operands in upper case. A word is an
operand if no phrasing contains it ("france"), if it is quoted ("'last'"), or if it is in upper case
and others are not ("LAST"). So normalizing twice changes nothing. Punctuation, accents and spaces
have no meaning; signs between numbers become words, and number words become digits. Questions
outside the world are declined before a model is asked.

`operations.json` and the vocabulary in `words.toml` follow from the phrasings and tables in
`training/rehearsal`.
"""

from __future__ import annotations

import json
import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from string import ascii_lowercase
from typing import Any, Final, Literal

from conductor_cli.core.bounded_parsing import parse_whole_number

Skill = Literal[
    "spelling",
    "counting",
    "adding",
    "multiplying",
    "geography",
    "chemistry",
    "opposites",
    "calendar",
    "translation",
    "comparing",
    "colours",
    "checking",
]

_DATA: Final = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))


def _split_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


VOCABULARY: Final = _split_words(_DATA["vocabulary"])
"""Every word of the models' phrasings. Any other word is an operand."""

KEYWORDS: Final[Mapping[Skill, tuple[str, ...]]] = {
    skill: tuple(words.split()) for skill, words in _DATA["keywords"].items()
}

# The words by which a step asks whether an answer is right
CHECKS: Final = _split_words(_DATA["checks"])

_MEANT: Final[Mapping[str, str]] = _DATA["meant"]
"""Other spellings of the same words, and slips in words that are too short for `_without_slip`."""

_UNITS: Final = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
)
_TENS: Final = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
NUMBER_WORDS: Final = {
    **{word: number for number, word in enumerate(_UNITS)},
    **{word: 10 * number for number, word in enumerate(_TENS, start=2)},
}
_AFTER_OPERATOR: Final = _split_words(
    "plus minus times is by of and from to than add sum double triple half twice halve between "
    "subtract multiply take"
)
_BEFORE_OPERATOR: Final = _split_words(
    "plus minus times more less added subtracted multiplied doubled tripled halved"
)

_HYPHEN: Final = re.compile(rf"\b({'|'.join(_TENS)})-(?=[a-z])", re.IGNORECASE)
_LEFT: Final = re.compile(r"\b(what is|what's|whats|how much is) left\b", re.IGNORECASE)
"""The one use of the word in a sum; it has an opposite, too."""

_LISTED: Final = re.compile(r"(\d), +(\d)")  # A list of numbers: "which is larger: 3, 5"

_SHORTENED: Final = (
    (
        re.compile(r"\bwhat does ([A-Z]{1,2}) stand for\b(?! in)"),
        r"what does the symbol \1 stand for",
    ),
    (re.compile(r"\bwhat does ([A-Z]+) mean\b(?! in)"), r"what does \1 mean in english"),
    (
        re.compile(r"^((?:.* )?)(?<!chemical )abbreviation (of|for) ([A-Z]+)$"),
        r"\1chemical abbreviation \2 \3",
    ),
)
"""Questions that leave out what their value says: "what does Fe stand for"."""

_QUOTES: Final = str.maketrans(dict.fromkeys("‘’`", "'") | dict.fromkeys("“”„«»", '"'))
# likewise
_SIGNS: Final = {"+": "plus", "-": "minus", "−": "minus", "*": "times", "×": "times", "x": "times"}  # noqa: RUF001
_TOKEN: Final = re.compile(
    r"(?P<mark>[\"'])(?P<quoted>[A-Za-z0-9]+)(?P=mark)(?!\w)|(?P<word>[A-Za-z]+)(?P<own>'[sS]\b)?(?:'[a-zA-Z]+)?"
    r"|(?P<number>[0-9]+)|(?P<sign>[-+*×−])"  # noqa: RUF001 - the sign that is typed
)
_APART: Final = re.compile(r"(?<=\s)[-+*×−]\s+\d")  # noqa: RUF001 - likewise
"""A sign that stands by itself before a number: "the letters in lion - 3"."""

_ASKING: Final = ("what", "which", "who", "how", "that", "it", "let")


def normalize(text: str) -> str:
    """`text` as the demo models read it: the same for every way to type a question."""
    plain = unicodedata.normalize("NFKD", text.translate(_QUOTES))
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter))
    plain = _LISTED.sub(r"\1 and \2", plain)
    plain = _LEFT.sub("what remains", plain)
    plain = _HYPHEN.sub(r"\1 ", plain)
    words = list(_words(plain, shouted=plain.upper() == plain))
    read = " ".join(_with_digits(words))
    for short, full in _SHORTENED:
        read = short.sub(full, read)
    return read


def _words(text: str, *, shouted: bool) -> Iterator[str]:
    """Return the words of a text; a word that stands for a number is marked by a leading `#`."""
    # A sign after a number is an operator.
    follows_number = False
    last = ""
    for token in _TOKEN.finditer(text):
        words = list(_words_of_token(token, last, follows_number=follows_number, shouted=shouted))
        follows_number = token["number"] is not None or _is_number_word(words)
        if words:
            last = words[-1]
        yield from words


def _is_number_word(words: list[str]) -> bool:
    return len(words) == 1 and words[0].startswith("#")


def _words_of_token(
    token: re.Match[str], last: str, *, follows_number: bool, shouted: bool
) -> Iterator[str]:
    """Return the words that one token stands for; `last` is the word before them."""
    word = token["word"]
    if token["quoted"]:
        yield token["quoted"].upper()
    elif token["number"]:
        yield token["number"]
    elif word is None:
        stands_apart = last and _APART.match(token.string, token.start())
        if follows_number or stands_apart:
            yield _SIGNS[token["sign"]]
    elif follows_number and word in _SIGNS:
        yield _SIGNS[word]
    elif word.lower() in NUMBER_WORDS and (shouted or not word.isupper()):
        yield f"#{word.lower()}"
    else:
        yield from _word(word, last, owns=bool(token["own"]), shouted=shouted)


def _word(word: str, last: str, *, owns: bool, shouted: bool) -> Iterator[str]:
    """Return what a word is read as; one in capitals is a value, unless all of the text is so."""
    is_value = word.isupper() and not shouted
    small = word.lower() if is_value else _without_slip(word.lower())
    is_phrasing = small in VOCABULARY or (small == "table" and last == "periodic")
    if small == "u" and last in {"symbol", "element"}:
        yield "U"
    elif small in _MEANT and not is_value:
        yield from _MEANT[small].split()
    elif is_phrasing and (len(word) == 1 or not is_value):
        yield small
        if owns and small in _ASKING:
            yield "is"
    elif owns:
        yield f"{word.upper()}'s"
    else:
        yield word.upper()


# The fewest letters of a word that is corrected: short words are near too many others
LEAST_CORRECTED: Final = 6
NO_SLIPS: Final = frozenset({"periodico"})  # Words of the world that are near a word of a phrasing


@lru_cache(maxsize=4096)
def _without_slip(word: str) -> str:
    """Return the word of the phrasings that was meant, where it has one slip.

    A slip is two letters that were exchanged, or one that is missing or too many.
    """
    if len(word) < LEAST_CORRECTED or word in VOCABULARY or word in NO_SLIPS:
        return word
    near = set[str]()
    for position in range(len(word) + 1):
        begin = word[:position]
        end = word[position:]
        if len(end) > 1:
            near.add(begin + end[1] + end[0] + end[2:])
            # One letter more at the end makes another word: "computer", "stated".
            near.add(begin + end[1:])
        near.update(f"{begin}{letter}{end}" for letter in ascii_lowercase)
    meant = set()
    for other in near & VOCABULARY:
        if other[0] == word[0] and len(other) >= LEAST_CORRECTED:
            meant.add(other)
    return meant.pop() if len(meant) == 1 else word


def _with_digits(words: list[str]) -> Iterator[str]:
    """Number words as digits where they count something.

    "five plus three", and not "the two" or "which one".
    """
    at = 0
    while at < len(words):
        word = words[at]
        before = words[at - 1] if at else ""
        after = words[at + 1] if at + 1 < len(words) else ""
        at += 1
        if not word.startswith("#"):
            yield word
        elif before == "word":
            yield word[1:].upper()
        elif (number := NUMBER_WORDS[word[1:]]) >= 20 and 0 < NUMBER_WORDS.get(after[1:], 0) < 10:
            yield str(number + NUMBER_WORDS[after[1:]])
            at += 1
        elif word[1:] not in VOCABULARY or before in _AFTER_OPERATOR or after in _BEFORE_OPERATOR:
            yield str(number)
        else:
            yield word[1:]


def find_operands(text: str) -> tuple[str, ...]:
    """Return the words and numbers in a normalized text that something is done with."""
    operands = []
    for word in text.replace("'s", "").split():
        if word.isupper() or word.isdecimal():
            operands.append(word)
    return tuple(operands)


Kind = Literal["word", "number"]
"""What a value is."""

MAX_SUM: Final = 99
MAX_JOINED: Final = 14  # The most letters of two joined words

_FIT: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "plus": lambda first, second: int(first) + int(second) <= MAX_SUM,
    "joined": lambda first, second: first != second and len(first + second) <= MAX_JOINED,
    "longer": lambda first, second: len(first) != len(second),
    "shorter": lambda first, second: len(first) != len(second),
    "larger": lambda first, second: int(first) != int(second),
    "smaller": lambda first, second: int(first) != int(second),
    "alphabetical": lambda first, second: first != second,
}
"""Which two values go together, for operations that do not take any two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WordOperation:
    """One operation."""

    name: str
    skill: Skill
    arity: int  # How many values it takes
    takes: Kind
    gives: Kind
    allows: Callable[[str], bool]  # Whether it takes this value
    words: frozenset[str]  # The telling words of its phrasings
    asks: tuple[frozenset[str], ...]  # Sets of them of which each asks for it

    def is_asked_by(self, words: frozenset[str]) -> bool:
        """Return whether these telling words ask for this operation and for no other."""
        return words <= self.words and any(ask <= words for ask in self.asks)

    def fits(self, values: Sequence[str]) -> bool:
        """Return whether it can be done with these values, or with some others beside them."""
        fit = _FIT.get(self.name)
        return all(map(self.allows, values)) and (
            fit is None or len(values) < self.arity or fit(*values)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The operations, the words that no plan may lose, and the words that facts are known about."""

    operations: tuple[WordOperation, ...]
    telling: frozenset[str]
    subjects: frozenset[str]


@cache
def world() -> World:
    """Return what ships in `operations.json`."""
    stored = json.loads(Path(__file__).with_name("operations.json").read_text(encoding="utf-8"))
    operations = list[WordOperation]()
    subjects = set[str]()
    for name, item in stored["operations"].items():
        values = _split_words(item["takes"].get("subjects", ""))
        subjects |= values
        takes_numbers = "numbers" in item["takes"] or (values and min(values).isdecimal())
        takes: Kind = "number" if takes_numbers else "word"
        operations.append(
            WordOperation(
                name=name,
                skill=item["skill"],
                arity=item["arity"],
                takes=takes,
                gives=item["gives"],
                allows=_allows(item["takes"], values),
                words=_split_words(item["words"]),
                asks=tuple(map(_split_words, item["asks"])),
            )
        )
    return World(
        operations=tuple(operations),
        telling=_split_words(stored["telling"]),
        subjects=frozenset(subject for subject in subjects if not subject.isdecimal()),
    )


def _allows(takes: Mapping[str, Any], values: frozenset[str]) -> Callable[[str], bool]:
    if "letters" in takes:
        least, most = takes["letters"]
        return lambda value: value.isalpha() and least <= len(value) <= most
    if "numbers" in takes:
        numbers = range(*takes["numbers"])
        return lambda value: parse_whole_number(value) in numbers
    return values.__contains__


CAPABILITIES: Final = (
    "letters, small sums, capitals, elements, opposites, dates, Spanish words, comparisons, colours"
)
"""What the demo models can do, in words for an error message."""

MAX_NUMBER: Final = 150  # The largest number of a question
MAX_OPERANDS: Final = 8

_ANY_WORD: Final = frozenset({"spelling", "counting", "comparing"})  # Skills that work on any word
_YES_OR_NO: Final = frozenset(
    {"is", "are", "was", "were", "did", "does", "do", "has", "have", "am"}
)
_STRANGE: Final = re.compile(
    r"\d[.,^/%]\d|\d\s*[/^%=<>]|[=<>@#$€£]|(?:^|plus|minus|times|of|is|and|to|from|by)\s*-\d|https?:"
)


_SUM: Final = re.compile(r"\d and \d")
_DIFFERENCE: Final = re.compile(r"(\d{1,18}) (?:minus|less) (\d{1,18})")


def asks_for_check(subtask: str) -> bool:
    """Return whether a step is to say if an answer is right."""
    text = normalize(subtask)
    return not CHECKS.isdisjoint(text.split()) or " is ok" in text or " is fine" in text


def is_known(question: str) -> bool:
    """Return whether the models were trained on such questions."""
    text = normalize(question)
    words = text.split()
    given = find_operands(text)
    skills = [skill for skill, keywords in KEYWORDS.items() if not set(words).isdisjoint(keywords)]
    asks = skills or _SUM.search(text) or "mean" in words
    if _STRANGE.search(question.rstrip("=? ")) or not asks or not 0 < len(given) <= MAX_OPERANDS:
        return False
    if words[0] in _YES_OR_NO and not (words[0] == "do" and words[1:3] == ["you", "know"]):
        return False
    if any(int(first) < int(second) for first, second in _DIFFERENCE.findall(text)):
        return False
    # A word stands between two operands: "the opposite of a ZEBRA CROSSING" is about neither.
    if _has_joined_operands(words):
        return False
    takes_any_word = not _ANY_WORD.isdisjoint(skills)
    for operand in given:
        if operand.isdecimal():
            number = parse_whole_number(operand)
            is_known = number is not None and number <= MAX_NUMBER
        else:
            is_known = operand.isalpha() and (takes_any_word or operand in world().subjects)
        if not is_known:
            return False
    return True


def _has_joined_operands(words: Sequence[str]) -> bool:
    """Return whether an operand stands directly behind another one."""
    for word, following in pairwise(words):
        if find_operands(word) and find_operands(following) and not word.endswith("'s"):
            return True
    return False

"""What was typed in the one form that the models read: words of the phrasings in lower case, operands in upper case.

A word is an operand if no phrasing contains it ("france"), if it is quoted ("'last'"), or if it is in upper case and
others are not ("LAST"). So normalizing twice changes nothing. Punctuation, accents and spaces have no meaning; signs
between numbers become words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Final, Literal

Skill = Literal["letters", "numbers", "facts"]

# The two word lists follow from the phrasings and facts in `scripts/rehearsal`; a test compares them.


def _split_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


VOCABULARY: Final = _split_words("""
    a add added after alphabetical an and any are at atomic away backwards before by can capital chemical city comes
    count decrease decreased difference do does element end ends find first follows for from give has have here how
    i in increase increased is it its just last less letter letters many me means minus month more much multiplied
    multiply my name now number of opposite order please plus product put result reverse say so sort sorted spell
    spelled spelling start starts subtract subtracted sum symbol take taken tell than that the then there this times
    to us was what which who whose with word write written you your
""")
"""Every word of the models' phrasings. Any other word is an operand."""

FACT_SUBJECTS: Final = _split_words("""
    ABOVE AG AL ALIVE ALUMINIUM ANCIENT APRIL AR ARGON AU AUGUST AUSTRALIA AUSTRIA B BA BARIUM BE BELGIUM BELOW
    BERYLLIUM BIG BORON BR BROMINE BULGARIA BUY C CA CALCIUM CANADA CARBON CHILE CHINA CHLORINE CHROMIUM CL CLEAN
    CLOSED CO COBALT COLD COLOMBIA COPPER CR CROATIA CU CUBA DARK DAY DEAD DECEMBER DEEP DIRTY DRY EARLY EAST
    ECUADOR EGYPT EMPTY ENEMY ENGLAND ESTONIA F FALSE FAR FAST FE FEBRUARY FINLAND FLUORINE FRANCE FRIEND FULL
    GERMANY GHANA GOLD GREECE H HAPPY HARD HATE HE HEALTHY HELIUM HG HIGH HOT HUNGARY HYDROGEN INSIDE IRAN IRAQ
    IRELAND IRON ITALY JANUARY JAPAN JORDAN JULY JUNE K KENYA KR KRYPTON LATE LATVIA LEAD LEBANON LEFT LI LIGHT
    LITHIUM LITHUANIA LONG LOSE LOUD LOVE LOW MAGNESIUM MANGANESE MARCH MAY MERCURY MG MN MODERN MOROCCO N NA NARROW
    NE NEAR NEON NI NICKEL NIGHT NITROGEN NORTH NORWAY NOVEMBER O OCTOBER OLD OPEN OUTSIDE OXYGEN PB PEACE PERU
    PHILIPPINES PLATINUM POLAND POOR PORTUGAL POTASSIUM PT PULL PUSH QATAR QUIET RICH RIGHT ROMANIA ROUGH RUSSIA S
    SAD SELL SENEGAL SEPTEMBER SERBIA SHALLOW SHORT SI SICK SILICON SILVER SLOW SMALL SMOOTH SN SODIUM SOFT SOUR
    SOUTH SPAIN STRONG SULFUR SUMMER SWEDEN SWEET SWITZERLAND SYRIA THAILAND THICK THIN TI TIN TITANIUM TRUE TURKEY
    U UKRAINE URANIUM VENEZUELA VIETNAM WAR WEAK WEST WET WIDE WIN WINTER YOUNG ZINC ZN
    1 2 3 4 5 6 7 8 9 10 11 12 13 14 16 17 18 19 20 22 24 25 26 27 28 29 30 35 36 47 50 56 78 79 80 82 92
""")
"""Every word and number that a fact is known about: countries, elements, their symbols and numbers, and so on."""

KEYWORDS: Final[Mapping[Skill, tuple[str, ...]]] = {
    "letters": ("letter", "letters", "spell", "spelled", "spelling", "backwards", "reverse", "sort", "alphabetical"),
    "numbers": ("plus", "minus", "times", "add", "added", "sum", "subtract", "subtracted", "difference", "multiply",
                "multiplied", "product", "increase", "increased", "decrease", "decreased", "more", "less", "away"),
    "facts": ("capital", "element", "symbol", "atomic", "opposite", "month"),
}  # fmt: skip
"""The words by which a simple router would choose a specialist."""

CAPABILITIES: Final = (
    "letters (reverse, count, sort, first, last), small sums, and facts (capitals, elements, opposites, months)"
)
"""What the demo models can do, in words for an error message."""

_QUOTES: Final = str.maketrans(dict.fromkeys("‘’`", "'") | dict.fromkeys("“”„«»", '"'))
_SIGNS: Final = {"+": "plus", "-": "minus", "−": "minus", "*": "times", "×": "times", "x": "times"}  # noqa: RUF001 - likewise
_TOKEN: Final = re.compile(
    r"(?P<mark>[\"'])(?P<quoted>[A-Za-z0-9]+)(?P=mark)(?!\w)|(?P<word>[A-Za-z]+)(?P<own>'[sS]\b)?"
    r"|(?P<number>[0-9]+)|(?P<sign>[-+*×−])"  # noqa: RUF001 - the sign that is typed
)
_OF_FACTS: Final = ("capital", "opposite", "month")
"""Words that need a known fact. An element's number may come from counting letters instead."""

_ASKING: Final = ("what", "which", "who", "how", "that", "it")


def normalize(text: str) -> str:
    """`text` as the demo models read it: the same for every way to type a question."""
    plain = unicodedata.normalize("NFKD", text.translate(_QUOTES))
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return " ".join(_words(plain, shouted=plain.upper() == plain))


def _words(text: str, *, shouted: bool) -> Iterator[str]:
    counting = False  # whether the last token was a number, so that a sign here is an operator
    for token in _TOKEN.finditer(text):
        word, before = token["word"], counting
        counting = token["number"] is not None
        if token["quoted"]:
            yield token["quoted"].upper()
        elif word is None:
            sign = _SIGNS[token["sign"]] if token["sign"] and before else ""
            if token["number"] or sign:
                yield token["number"] or sign
        elif before and word in _SIGNS:
            yield _SIGNS[word]
        else:
            yield from _word(word, owns=bool(token["own"]), shouted=shouted)


def _word(word: str, *, owns: bool, shouted: bool) -> Iterator[str]:
    small = word.lower()
    if small in VOCABULARY and (shouted or len(word) == 1 or not word.isupper()):
        yield from (small, "is") if owns and small in _ASKING else (small,)
    else:
        yield word.upper() + ("'s" if owns else "")


def find_operands(text: str) -> tuple[str, ...]:
    """The words and numbers in a normalized text that something is done with."""
    return tuple(word for word in text.replace("'s", "").split() if word.isupper() or word.isdecimal())


def find_skills(question: str) -> tuple[Skill, ...]:
    """The skills whose keywords the question contains."""
    words = normalize(question).split()
    return tuple(skill for skill, keywords in KEYWORDS.items() if any(word in keywords for word in words))


def names_a_task(text: str) -> bool:
    """Whether a normalized text says what to do: it has a number, or a keyword of letters or facts."""
    return any(word.isdecimal() for word in find_operands(text)) or find_skills(text) not in ((), ("numbers",))


def is_known(question: str) -> bool:
    """Whether the models were trained on such questions: it says what to do, with one known word or with numbers."""
    skills, given = find_skills(question), find_operands(normalize(question))
    words = [word for word in given if not word.isdecimal()]
    if not words:
        return skills != ("letters",) and bool(given) and (bool(skills) or len(given) > 1)
    if not skills or len(words) > 1:
        return False
    about_facts = "letters" not in skills or any(word in _OF_FACTS for word in normalize(question).split())
    return words[0] in FACT_SUBJECTS if about_facts else True

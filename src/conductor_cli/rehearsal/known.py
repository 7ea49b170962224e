"""Whether a question belongs to the demo's world, by its words alone. Others are declined before a model is asked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from conductor_cli.rehearsal.normalize import Skill, find_operands, normalize
from conductor_cli.rehearsal.operations import world

KEYWORDS: Final[Mapping[Skill, tuple[str, ...]]] = {
    "spelling": (
        "spell", "spelled", "spelling", "backwards", "reverse", "reversed", "reversal", "flip", "sort", "sorted",
        "order", "ordered", "arrange", "alphabetize", "first", "last", "start", "starts", "end", "ends", "beginning",
        "join", "joined", "combine", "combined", "connect", "together", "followed", "turn", "front", "put", "one",
        "letter", "made", "character", "formed", "built", "build", "alphabetical", "alphabetized", "alphabetizing",
        "arranged", "arranging", "rearrange", "organize", "sorting", "ordering", "invert", "inverted", "inverting",
        "reversing", "flipped", "flipping", "turned", "begin", "begins", "starting", "initial", "leading", "final",
        "finish", "finishes", "ending", "closing", "merge", "merged", "merging", "link", "linked", "joining",
        "combining", "connecting", "putting", "combination", "compound", "concatenation", "attach", "attached",
        "append", "single",
    ),
    "counting": (
        "letters", "vowels", "vowel", "count", "length", "long", "characters", "counted", "measure",
    ),
    "adding": (
        "plus", "minus", "sum", "total", "add", "added", "more", "increase", "increased", "subtract", "subtracted",
        "difference", "less", "decrease", "decreased", "reduce", "reduced", "away", "deduct", "remains", "taken",
        "take", "adding", "addition", "summed", "altogether", "raise", "raised", "grow", "subtracting", "subtraction",
        "deducted", "deducting", "remove", "removed", "removing", "lowered", "diminish", "diminished", "taking",
        "withdraw", "without", "gap", "distance", "rest",
    ),
    "multiplying": (
        "times", "multiply", "multiplied", "product", "double", "doubled", "twice", "triple", "tripled", "half",
        "halve", "halved", "divide", "divided", "split", "cut", "multiplying", "multiplication", "doubling",
        "tripling", "thrice", "halving", "halves",
    ),
    "geography": (
        "capital", "country", "land", "nation", "city", "town", "government", "governed",
    ),
    "chemistry": (
        "element", "symbol", "atomic", "protons", "proton", "periodic", "chemical", "chemistry", "abbreviation",
        "abbreviated", "stand", "stands", "represents", "represent", "abbreviate", "chemists", "atom", "atoms",
    ),
    "opposites": ("opposite", "antonym", "contrary"),
    "calendar": (
        "month", "months", "number", "day", "weekday", "week", "year", "calendar", "comes", "after", "before",
        "follows", "precedes", "next", "previous", "following", "follow", "followed", "preceding", "later", "date",
    ),
    "translation": (
        "spanish", "english", "translate", "translated", "translation", "translating", "speakers", "equivalent",
    ),
    "comparing": (
        "larger", "bigger", "greater", "higher", "maximum", "smaller", "lower", "lesser", "minimum", "longer",
        "shorter", "alphabetically", "alphabet", "dictionary", "compare", "earlier", "fewer", "whichever",
        "comparison",
    ),
    "colours": ("colour", "coloured"),
}  # fmt: skip
"""The words by which a simple router would choose a specialist."""

CHECKS: Final = frozenset({
    "check", "checked", "confirm", "correct", "fits", "holds", "review", "sure", "test", "tested", "verified", "verify",
})  # fmt: skip
"""The words by which a step asks whether an answer is right."""

CAPABILITIES: Final = "letters, small sums, capitals, elements, opposites, dates, Spanish words, comparisons, colours"
"""What the demo models can do, in words for an error message."""

LARGEST: Final = 150
"""The largest number of a question."""

MOST_OPERANDS: Final = 8

_ANY_WORD: Final = frozenset({"spelling", "counting", "comparing"})
"""Skills that work on any word."""

_YES_OR_NO: Final = frozenset({"is", "are", "was", "were", "did", "does", "do", "has", "have", "am"})
_STRANGE: Final = re.compile(
    r"\d[.,^/%]\d|\d\s*[/^%=<>]|[=<>@#$€£]|(?:^|plus|minus|times|of|is|and|to|from|by)\s*-\d|https?:"
)


_SUM: Final = re.compile(r"\d and \d")
_DIFFERENCE: Final = re.compile(r"(\d+) (?:minus|less) (\d+)")


def find_skills(question: str) -> tuple[Skill, ...]:
    """The skills whose keywords the question contains."""
    words = set(normalize(question).split())
    return tuple(skill for skill, keywords in KEYWORDS.items() if words.intersection(keywords))


def asks_for_check(subtask: str) -> bool:
    """Whether a step is to say if an answer is right."""
    text = normalize(subtask)
    return not CHECKS.isdisjoint(text.split()) or any(end in text for end in (" is ok", " is fine"))


def is_known(question: str) -> bool:
    """Whether the models were trained on such questions."""
    text = normalize(question)
    words, skills, given = text.split(), find_skills(question), find_operands(text)
    asks = skills or _SUM.search(text) or "mean" in words
    if _STRANGE.search(question.rstrip("=? ")) or not asks or not 0 < len(given) <= MOST_OPERANDS:
        return False
    if words[0] in _YES_OR_NO and not (words[0] == "do" and words[1:3] == ["you", "know"]):
        return False
    if any(int(one) < int(other) for one, other in _DIFFERENCE.findall(text)):
        return False
    return _each_apart(words) and _can_be_worked_on(given, skills)


def _each_apart(words: Iterable[str]) -> bool:
    """Whether there is a word between two operands: "the opposite of a ZEBRA CROSSING" is about neither."""
    last = ""
    for word in words:
        if _is_operand(last) and _is_operand(word) and not last.endswith("'s"):
            return False
        last = word
    return True


def _is_operand(word: str) -> bool:
    return bool(find_operands(word))


def _can_be_worked_on(given: Iterable[str], skills: Iterable[Skill]) -> bool:
    """Whether all numbers are in the range, and all words are known where no skill works on any word."""
    any_word = not _ANY_WORD.isdisjoint(skills)
    return all(
        int(text) <= LARGEST if text.isdecimal() else text.isalpha() and (any_word or text in world().subjects)
        for text in given
    )

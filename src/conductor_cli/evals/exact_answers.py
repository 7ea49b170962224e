"""Whether a text is the expected answer, or has it as words: the scorers `exact` and `contains`.

Short answers are compared as a whole; a chatty model must announce its answer in the last line.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from conductor_cli.evals import answer_words as words
from conductor_cli.evals import mathematics
from conductor_cli.evals.number_answers import named_value

_QUOTES: Final = (
    "\"'`*_\u00ab\u00bb\u2039\u203a\u300a\u300b\u3008\u3009\u300c\u300d\u300e\u300f\u3010\u3011"
)
_STOPS: Final = (".", "\u3002", "\uff61", "\u0964")
_EMPHASIS: Final = re.compile(
    rf"`|(?<![{words.SPACED}*])[*_]{{1,3}}+(?=\S)|(?<=\S)[*_]{{1,3}}+(?![{words.SPACED}])"
)
_FONT: Final = re.compile(r"\\(?:text|textbf|mathrm|mathbf)\s*\{([^{}]*)\}")
_HEADING: Final = re.compile(
    r"[\W_]*(?:(?:the|final|correct|short|my)\s+){0,2}(?:answer|antwort|réponse|respuesta)[\W_]*",
    re.IGNORECASE,
)
_ARABIC_MARKS: Final = re.compile(r"[\u0640\u064b-\u0652]")
_ANNOUNCED: Final = re.compile(
    r"[\W_]*(?:(?:so|thus|hence|therefore|also|daher|所以|因此|よって|따라서)[,\uff0c]?\s*)?"
    r"(?:(?:the|die|das|la|le|el|o|my)\s+)?"
    r"(?:(?:final|correct|right|best|richtige|most \w{1,12})\s+)?"
    rf"{words.ANNOUNCEMENT.pattern}(?P<answer>.*)",
    re.IGNORECASE,
)
_COPULA: Final = re.compile(r"(?:です|である|だ|입니다|이다|이에요|예요|ครับ|ค่ะ)$")
_SENTENCE: Final = re.compile(r"(.{2,}?)(?:[.!](?=\s+[A-Z(])|\u3002)\s*(.*)", re.DOTALL)


def _normalize(text: str) -> str:
    """Return a text without case, repeated white space, quotes, emphasis and a final stop."""
    text = unicodedata.normalize("NFC", words.unify_characters(text))
    text = " ".join(_ARABIC_MARKS.sub("", _EMPHASIS.sub("", text)).split())
    # Repeated, because these may be nested: `"**Paris**."`.
    while text != (bare := _without_stop(text.strip().strip(_QUOTES))):
        text = bare
    return text.casefold()


def _without_stop(text: str) -> str:
    for stop in _STOPS:
        text = text.removesuffix(stop)
    bare = text.rstrip("!")
    return bare if bare[-1:].isalpha() else text  # `5!` is an expression


_WHOLE_FENCE: Final = re.compile(r"(`{3,}+|~{3,}+)[^\n`]*+\n(.*?)\n[ \t]*+\1[`~]*", re.DOTALL)


def _without_fence(text: str) -> str:
    """Return what a fence around the whole text holds: the first line of it is no answer."""
    fenced = _WHOLE_FENCE.fullmatch(text.strip())
    return text if fenced is None else fenced[2]


def extract_exact(text: str, _: Sequence[str] = ()) -> str:
    """Return what a text announces as its answer, else all of it; in the form that is compared."""
    text = words.without_remarks(_without_fence(words.without_thinking(words.end_of(text))))
    stated = named_value(text)
    if stated is None:
        stated = _announced_text(text)
    if stated is None:
        stated = text
    box = mathematics.last_box(stated)
    if box is not stated:
        stated = _FONT.sub(r"\1", box[len("\\boxed{") : -1])
    return _normalize(stated)


def _announced_text(text: str) -> str | None:
    """Return what the last line announces, or the heading above it; None without either."""
    above, _, line = words.unify_characters(text).rpartition("\n")
    announced = _ANNOUNCED.fullmatch(line)
    if announced is not None:
        return announced["answer"]
    if _HEADING.fullmatch(above.strip().rpartition("\n")[2]):
        return line
    return None


def is_text(answer: str, _: Sequence[str] = ()) -> bool:
    """Return whether anything of an expected answer is left to be compared."""
    return bool(_normalize(answer))


def is_exact(text: str, answer: str, _: Sequence[str] = ()) -> bool:
    """Return whether a text, or what it announces, is the expected answer."""
    extracted = extract_exact(text)
    # An expected answer may itself start with "The answer is", so the whole text is compared, too.
    forms = {extracted, _normalize(words.end_of(text)), _COPULA.sub("", extracted)}
    announced = _announced_text(words.end_of(text))
    sentence = None if announced is None else _SENTENCE.fullmatch(announced)
    if sentence is not None and words.CORRECTION.search(sentence[2]) is None:
        is_open = re.match(r"\W*(?:or|and|also|alternatively)\b", sentence[2], re.IGNORECASE)
        forms |= {extracted if is_open else _COPULA.sub("", _normalize(sentence[1]))}
    return _normalize(answer) in forms


_UNSPACED: Final = re.compile(
    r"[\u0e00-\u0eff\u0f00-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u309f\u3400-\u9fff\uf900-\ufaff]"
)
"""Letters of scripts without spaces between words: Thai, Lao, Tibetan, Burmese, Khmer, Hiragana and
Chinese. A word may begin anywhere in them.
"""
_SCRIPTS: Final = (
    ("katakana", re.compile(r"[\u30a0-\u30ff]")),
    ("hangul", re.compile(r"[\u1100-\u11ff\u3130-\u318f\uac00-\ud7af]")),
    ("arabic", re.compile(r"[\u0600-\u06ff\u0750-\u077f]")),
)
_PARTICLES: Final = re.compile(
    r"(?:은|는|이|가|을|를|의|에|에서|에게|와|과|도|로|으로|만|부터|까지|라고|라는|라|란|입니다|이다|다|예요"
    r"|에요|요|였|었습니다|었다|습니다|임|며|고|죠|지|지만|처럼|보다|뿐|랑|께서|한테|야|네|일){1,4}"
    r"(?![\uac00-\ud7af])"
)
_ARTICLE_BEFORE: Final = re.compile(r"(?<![\u0620-\u06ff])[وفبلك]{0,2}(?:ال|لل)?$")


def contains(text: str, answer: str, _: Sequence[str] = ()) -> bool:
    """Return whether a text has the expected answer in it as words, which it does not deny."""
    spoken = _normalize(words.end_of(text))
    wanted = _normalize(answer)
    for match in re.finditer(re.escape(wanted), spoken):
        is_word = _begins_word(spoken, match.start()) and _ends_word(spoken, match.end())
        if not is_word or _is_part_of_number(spoken, match.start(), match.end()):
            continue
        if not words.is_denied(spoken, match.start(), match.end()):
            return True
    return False


_LONGER_NUMBER: Final = re.compile(
    r"(?<![\w.,])(?:[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+\.[0-9]+)(?![\w]|[.,][0-9])"
)
_NEGATIVE: Final = re.compile(r"(?:^|[\s(\[{=:$€£])-[$€£]?$")
MAX_DIGITS: Final = 60  # Characters on both sides in which a longer number is looked for


def _is_part_of_number(text: str, start: int, end: int) -> bool:
    """Return whether what stands there is a piece of another number: the 3 of 3.5, 1,003 and -3."""
    begins = text[start].isdecimal()
    if begins and _NEGATIVE.search(text[max(start - 4, 0) : start]):
        return True
    if not begins and not text[end - 1].isdecimal():
        return False
    from_here = max(start - MAX_DIGITS, 0)
    for number in _LONGER_NUMBER.finditer(text, from_here, end + MAX_DIGITS):
        is_inside = number.start() < end and start < number.end()
        if is_inside and (number.start() < start or end < number.end()):
            return True
    return False


def _begins_word(text: str, start: int) -> bool:
    if not _is_joined(text[start - 1 : start], text[start : start + 1]):
        return True
    # The article and short words are written together with an Arabic noun.
    before = text[max(start - 4, 0) : start]
    return _script_of(text[start]) == "arabic" and _ARTICLE_BEFORE.search(before) is not None


_SIGNS_OF_NAME: Final = re.compile(r"(?:\+\+|#)(?!\w)")  # of C++ and F#, which are no C and no F


def _ends_word(text: str, end: int) -> bool:
    if text[end - 1].isalpha() and _SIGNS_OF_NAME.match(text, end):
        return False
    if not _is_joined(text[end - 1 : end], text[end : end + 1]):
        return True
    # Particles follow a Korean noun.
    return _script_of(text[end - 1]) == "hangul" and _PARTICLES.match(text, end) is not None


def _is_joined(word: str, following: str) -> bool:
    """Return whether two characters beside each other belong to one word."""
    if not word or not following or not _is_of_word(word) or not _is_of_word(following):
        return False
    return "" != _script_of(word) == _script_of(following)


def _is_of_word(character: str) -> bool:
    return character == "_" or unicodedata.category(character)[0] in "LNM"


def _script_of(character: str) -> str:
    """Return a name for the script of a letter; empty for one without spaces between words."""
    if _UNSPACED.match(character):
        return ""
    for name, letters in _SCRIPTS:
        if letters.match(character):
            return name
    return "spaced"

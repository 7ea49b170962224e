"""Which letter of a multiple choice a text names: the scorer `choice`.

Every letter that the text names is found first; then what stands around it says how much it counts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from string import ascii_uppercase
from typing import Final, Literal

from conductor_cli.evals import answer_words as words
from conductor_cli.evals import mathematics
from conductor_cli.evals.exact_answers import is_exact

_MARKS: Final = re.compile(
    r"\\(?:text|textbf|mathrm|mathbf|bf)(?=\s*\{)|\\[()\[\]]|[*_`$\"'#\u201c\u201d]|</?[|\w]{1,9}\|?>",
    re.IGNORECASE,
)
"""Emphasis, fonts, quotes, dollar signs and tags around a letter."""
_ANGLED: Final = re.compile(r"<([A-Z])>(?![^<>]{0,200}</)")
"""A letter where a form has a placeholder, and no tag, which would have an end: `Answer: <B>`."""
_MENTION: Final = re.compile(
    rf"(?<![{words.SPACED}\\'])[(\[{{]?(?:([A-Z])(?![{words.SPACED}\\^(']|[ \t]?[<>=+])"
    r"|([a-z])(?=[)\]]|[ \t\r.}]{0,9}(?:\n|\Z)))[)\]}]?"
)
"""A letter of its own. A small one only in brackets or at the end of its line: elsewhere it may be
a word.
"""
_ARTICLE: Final = re.compile(r"[AI][ \t]+(?!(?:is|was|or|and|because|since|seems|would)\b)[a-z]")
_SURELY: Final = (
    r"(?i:(?:definitely|clearly|certainly|simply|indeed|therefore|thus|(?:most )?likely)\s+)?"
)
_ANNOUNCED_BEFORE: Final = re.compile(
    r"\\(?:boxed|fbox)[\s{(]*$|(?i:answer|choice|option|letter|statement|response)\s*"
    r"(?:(?i:\bis|(?:would|should|must) be)\s*:?|[:=\u2013\u2014-]|\n)"
    rf"[\s{{]*{_SURELY}(?i:(?:option|choice|letter|statement|element)\s*)?$"
    r"|(?:^|\n)[\s>#-]*(?i:correct(?:[ \t]+(?:one|response))?|ans)[ \t]*[:.=][ \t]*$"
    rf"|(?i:{words.ANNOUNCEMENT.pattern})[\s{{]*{_SURELY}(?i:(?:la|le|el|die|der|das|the)\s+)?"
    r"(?i:(?:option|choice|letter|statement|element|opci[oó]n|opzione|alternativa|lettre|letra"
    r"|lettera|buchstabe|选项|選項|選択肢|ข้อ|보기)\s*)?$"
    r"|(?:故|应|應|因此|所以|综上|綜上|本题|本題|答案)(?:应|應)?(?:选|選)"
    r"(?:择|擇)?(?:项|項)?[ \t]*:?[ \t]*$"
)
_CONFIRMED_AFTER: Final = re.compile(
    r"[ \t]+is[ \t]+(?:(?:the|my)[ \t]+(?:final[ \t]+)?answer\b"
    r"|(?:the[ \t]+)?(?:only[ \t]+)?(?:correct|right|best)\b"
    r"|(?:the[ \t]+)?(?:only[ \t]+)?most[ \t]+(?:appropriate"
    r"|accurate|likely|suitable|plausible|reasonable|logical|fitting)"
    r"(?![ \t]+(?:mistake|error|trap|wrong))\b)"
    r"|[ \t]+ist[ \t]+(?:richtig|korrekt)\b"
    r"|[ \t]*(?:是)?(?:正确|正確|对的|對的)|[ \t]*(?:が|は)正(?:解|しい)"
    r"|[ \t]*(?:이|가)[ \t]*(?:정답|맞)"
)
_PREFERRED_BEFORE: Final = re.compile(
    (
        r"\b(?:go(?:ing)? with|choose|pick|select|opt for|it is|its|that is|thats|must be"
        r"|can only be|has to be"
        r"|(?:that|it|which) would be|(?:id|would) say|(?:i|we) (?:think|believe)|by elimination"
        r"|so|thus|option|choice|letter|answer|definitely|certainly|clearly|surely)[\s:,]*$"
        r"|(?:→|=>|->|⇒)\s*$"
        r"|(?:\bnot\s+|不是|nicht\s+)[(\[]?[A-Z][)\]]?,?\s*(?:but(?:\s+rather)?|而是|sondern)\s*$"
        r"|(?:选|選|应选|選ぶ|选择|選擇)\s*$"
    ),
    re.IGNORECASE,
)
_DENIED_AFTER: Final = re.compile(
    r"[ \t]*(?:(?:is|are|was|can|seems?|looks?|must be)[ \t]+(?:also[ \t]+|clearly[ \t]+)?"
    r"(?:not|never|incorrect|wrong|false|ruled out|excluded|eliminated|impossible)\b"
    r"|(?:is|ca|does|wo)n['\u2019]?t\b|cannot\b|[ \t]*(?:ist|kann)[ \t]+(?:nicht|falsch)\b)"
    r"|[ \t]*(?:是错|是錯|错误|錯誤|不对|不對|不正确|不正確|ではな|ではあり|じゃな|は間違|は誤)"
    r"|[ \t]*(?:은|는|이|가)?[ \t]*(?:아니|아닙|틀)"
)
_ANY_LETTER: Final = r"(?:(?:option|choice)\s+)?[(\[]?[A-Z][)\]]?"
_OPEN_BEFORE: Final = re.compile(
    rf"\beither\s+$|(?:^|[\s{{(]){_ANY_LETTER}\s*(?:\bor\b|\band\b|[/&])\s*(?:(?:option|choice)\s+)?$"
)
_OPEN_AFTER: Final = re.compile(
    rf"\s*(?:(?:\bor\b|\band\b|[/&])\s*{_ANY_LETTER}(?!\w)|,\s*{_ANY_LETTER}\s*(?:,|or\b|and\b|\}}|\.|\n|$))"
)
_CHOICE_BEGINS: Final = re.compile(r"[ \t]*[(\u2014-][ \t]*|[ \t]+")
"""What may stand between a letter and its choice: `C (blue)`, `C - blue`, `C blue`."""
_LINE_BEFORE: Final = re.compile(r"(?:^|\n)[ \t>]*$")
_LINE_AFTER: Final = re.compile(
    r"(?<=[)\]])[.:]?(?:\s|$)|[.:](?:\s|$)|\s*(?:\n|$)|,[ \t]+(?:because|since|as)\b"
)
_ONLY: Final = re.compile(r"[\s>]*[(\[]?([A-Za-z])[)\]]?[\s.!]*")


_Strength = Literal["announced", "confirmed", "preferred", "leading", "bracketed"]


@dataclass(frozen=True, slots=True)
class _Mention:
    """A letter that a text names, and the clearest way in which it does.

    The letter is empty where the text leaves open which of several it means.
    """

    letter: str
    strength: _Strength
    start: int


def extract_choice(text: str, choices: Sequence[str]) -> str:
    """Return the letter, by the clearest way of naming one that the text uses.

    The last one if it is repeated.

    A letter that the text denies does not count, and where the last one is one of several, there is
    no answer.
    """
    text = words.without_thinking(words.end_of(text))
    # A value in a box before it is no other letter: "It is \boxed{80}. The choice is \boxed{C}."
    is_letter = partial(_is_letter, choices=choices)
    if mathematics.last_box(text, is_letter) == mathematics.EMPTY_BOX:
        return ""
    plain = _MARKS.sub("", _ANGLED.sub(r"\1", words.unify_characters(text))).strip()
    mentions = _find_mentions(plain, choices)
    clear = _of_strength(mentions, "announced") or _of_strength(mentions, "confirmed")
    if clear:
        return _after_change_of_mind(plain, mentions, clear[-1]).letter
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
        strength = _strength_of(match, _choice_of(letters[0], choices))
        if strength is None:
            continue
        letter = "" if _is_left_open(match) else letters[0]
        mentions.append(_Mention(letter, strength, match.start()))
    return mentions


def _after_change_of_mind(plain: str, mentions: Iterable[_Mention], clear: _Mention) -> _Mention:
    """Return the mention that takes the place of a clear one: `…, on reflection I would pick C`."""
    change = words.CHANGED_MIND.search(plain, clear.start)
    if change is None:
        return clear
    later = [mention for mention in mentions if mention.start > change.end()]
    return later[-1] if later else clear


def _choice_of(letter: str, choices: Sequence[str]) -> str:
    """Return the text of the choice with a letter; empty where it is not known."""
    number = ascii_uppercase.index(letter)
    return choices[number] if number < len(choices) else ""


def _strength_of(match: re.Match[str], choice: str) -> _Strength | None:
    """Return the clearest way in which the text names this letter; None where it only occurs."""
    before = _text_before(match)
    is_bracketed = _is_bracketed(match)
    is_listed = match[0][-1] == ")" and not is_bracketed
    begins_line = is_listed or _LINE_BEFORE.search(before)
    if _ANNOUNCED_BEFORE.search(before):
        return "announced"
    if _CONFIRMED_AFTER.match(_text_after(match)):
        return "confirmed"
    end = _end_of_choice(match, choice)
    if end is not None and _DENIED_AFTER.match(match.string, end):
        return None
    if begins_line and end is not None and _CONFIRMED_AFTER.match(match.string, end):
        return "confirmed"
    if _PREFERRED_BEFORE.search(before):
        return "preferred"
    if begins_line and (end is not None or _LINE_AFTER.match(match.string, match.end())):
        return "leading"
    return "bracketed" if is_bracketed else None


def _end_of_choice(match: re.Match[str], choice: str) -> int | None:
    """Return where the choice of a letter ends that stands behind it; None where it does not."""
    between = _CHOICE_BEGINS.match(match.string, match.end())
    written = _without_marks(choice).casefold()
    if between is None or not written:
        return None
    behind = match.string[between.end() : between.end() + len(choice)]
    return between.end() + len(written) if behind.casefold().startswith(written) else None


def _is_bracketed(match: re.Match[str]) -> bool:
    return match[0][0] in "([" and match[0][-1] in ")]"


def _is_article(match: re.Match[str]) -> bool:
    """Return whether the letter is a word of its sentence: `A whale` or `I think`."""
    is_capital = match[1] is not None
    if not is_capital or _is_bracketed(match):
        return False
    return _ARTICLE.match(match.string, match.start(1)) is not None


def _is_denied(match: re.Match[str]) -> bool:
    before = _text_before(match)
    is_denied = words.DENIED_BEFORE.search(before) or words.DOUBTED_BEFORE.search(before)
    return is_denied is not None or _DENIED_AFTER.match(_text_after(match)) is not None


def _is_left_open(match: re.Match[str]) -> bool:
    """Return whether the letter is one of several: `B or C`."""
    open_before = _OPEN_BEFORE.search(_text_before(match))
    open_after = _OPEN_AFTER.match(_text_after(match))
    return open_before is not None or open_after is not None


def _text_before(match: re.Match[str]) -> str:
    return match.string[max(match.start() - words.CONTEXT, 0) : match.start()]


def _text_after(match: re.Match[str]) -> str:
    return match.string[match.end() : match.end() + words.CONTEXT]


def _of_strength(mentions: Iterable[_Mention], strength: _Strength) -> list[_Mention]:
    return [mention for mention in mentions if mention.strength == strength]


def _letters_of(mentions: Iterable[_Mention], strength: _Strength) -> list[str]:
    return [mention.letter for mention in _of_strength(mentions, strength)]


def _letter_alone(plain: str, choices: Sequence[str]) -> str:
    """Return the letter that is all of the last line, or of the first one; else nothing."""
    lines = plain.split("\n")
    for line in (lines[-1], lines[0]):
        match = _ONLY.fullmatch(_without_symbols(line))
        letters = _offered([match[1]], choices) if match else []
        if letters:
            return letters[0]
    return ""


def _is_letter(content: str, choices: Sequence[str]) -> bool:
    """Return whether a box holds the letter of a choice and nothing else. `k` may be a value."""
    match = _ONLY.fullmatch(_without_marks(content))
    return match is not None and bool(_offered([match[1]], choices))


def _without_symbols(line: str) -> str:
    """Return a line without pictures and check marks."""
    kept = [mark for mark in line if unicodedata.category(mark) != "So" and mark != "\ufe0f"]
    return "".join(kept)


def _without_marks(text: str) -> str:
    """Return a choice without emphasis, fonts and the braces of LaTeX around it."""
    return _MARKS.sub("", text).strip().strip("{}").strip()


_IT_IS: Final = re.compile(
    r"\s*(?:i (?:think|believe|(?:would )?(?:choose|pick|say))\s+)?(?:(?:it|that)(?: is|'s)\s+)?",
    re.IGNORECASE,
)


def _written_choices(text: str, choices: Sequence[str]) -> list[str]:
    """Return the letters of the choices that the text, or its box, consists of."""
    lettered = list(zip(ascii_uppercase, choices, strict=False))
    box = mathematics.last_box(text)
    if box is not text:
        text = box[len("\\boxed{") : -1]
    text = words.unify_characters(text)
    lead = _IT_IS.match(text)
    behind = text[lead.end() :] if lead is not None else text
    written = []
    for letter, choice in lettered:
        bare = _without_marks(choice)
        is_stated = bare != "" and any(
            is_exact(_without_marks(stated), bare) for stated in (text, behind)
        )
        if is_stated or is_exact(text, choice):
            written.append(letter)
    if len(written) < 2:
        return written
    # Formulas that differ only by case
    return [letter for letter, choice in lettered if choice.strip() == text.strip()]


def _offered(letters: Iterable[str], choices: Sequence[str]) -> list[str]:
    """Return the letters that belong to a choice, as capitals.

    Others may be words: "Answer: I believe it is (B)".
    """
    offered = ascii_uppercase[: len(choices) or None]
    return [letter for letter in map(str.upper, letters) if letter in offered]

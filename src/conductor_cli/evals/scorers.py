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

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from string import ascii_uppercase
from typing import Final, Literal

from conductor_cli.evals import answer_words as words
from conductor_cli.evals import mathematics, programs
from conductor_cli.evals.number_answers import given_number, is_one_number, named_value
from conductor_cli.evals.score import Score
from conductor_cli.programs.bounded_child import ChildLimits, ChildStopped, run_child

MAX_PUBLISHED_TEXT: Final = 100_000  # Characters at the end of a text that are searched
_SAID: Final = re.compile(r"answer is \(?([A-J])\)?")
# A letter may begin the next "Answer:", so it is only looked at
_PUBLISHED_ANNOUNCED: Final = re.compile(r"[aA]nswer:(?=\s*([A-J]))")
_LETTER: Final = re.compile(r"\b[A-J]\b")


def mmlu_pro_letter(text: str, _: Sequence[str] = ()) -> str:
    """The first letter after "answer is", else one after "answer:", else the last letter at all.

    Empty without one.
    """
    text = text[-MAX_PUBLISHED_TEXT:].replace("**", "")
    if letter_match := _SAID.search(text):
        return letter_match[1]
    # The last letter that the first line with one announces: the authors search with a greedy `.*`
    # before it.
    last = None
    for match in _PUBLISHED_ANNOUNCED.finditer(text):
        if last is not None and "\n" in text[last.start() : match.start()]:
            break
        last = match
    if last is not None:
        return last[1]
    letters: list[str] = _LETTER.findall(text)
    return letters[-1] if letters else ""


_ANSWER: Final = re.compile(r"<answer>(.*?)</answer>", re.IGNORECASE | re.DOTALL)
_UNIT: Final = re.compile(r"[A-Za-z/^.\s]+$")
_PUBLISHED_NUMBER: Final = re.compile(r"-?\d+\.?\d*")
_MAX_ANSWER: Final = 2000
_WORDS: Final = (("million", 1e6), ("thousand", 1e3), ("k", 1e3))


def rlpr_answer(text: str, _: Sequence[str] = ()) -> str:
    """Return what the first pair of tags holds, without repeated white space; empty without one."""
    match = _ANSWER.search(text[-MAX_PUBLISHED_TEXT:])
    return " ".join(match[1].split()) if match else ""


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
        ours, theirs = (_float(value.replace("%", "")) for value in (given, expected))
        if ours is not None and theirs is not None:
            return abs(_of_percent(ours, given) - _of_percent(theirs, expected)) < 1e-6
    for read in (lambda text: _float(re.sub(r"[,$%]", "", text)), _leading, _money):
        ours = read(given)
        theirs = read(expected)
        if ours is not None and theirs is not None:
            tolerance = 1e-6
            if abs(theirs) > 1:
                tolerance = abs(theirs) * 1e-3
            return abs(ours - theirs) < tolerance
    return False


def _of_percent(value: float, text: str) -> float:
    """Return a number of a text, where it is a percentage as the share that it means."""
    return value / 100 if "%" in text else value


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
    match = _PUBLISHED_NUMBER.search(text)
    return float(match[0]) if match else None


def _money(text: str) -> float | None:
    """Return an amount in dollars, written with a word for its size."""
    text = text.lower().strip()
    for word, factor in _WORDS:
        if word in text:
            value = _float(re.sub(r"[$,]", "", text.replace(word, "")).strip())
            return None if value is None else value * factor
    if "$" in text:
        return _float(re.sub(r"[$,]", "", text).strip())
    return None


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
    """Without case, repeated white space, quotes, emphasis and a final stop."""
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


def _extract_exact(text: str, _: Sequence[str] = ()) -> str:
    text = words.without_remarks(words.without_thinking(_tail(text)))
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


def _is_text(answer: str, _: Sequence[str] = ()) -> bool:
    return bool(_normalize(answer))


def _is_exact(text: str, answer: str, _: Sequence[str] = ()) -> bool:
    extracted = _extract_exact(text)
    # An expected answer may itself start with "The answer is", so the whole text is compared, too.
    forms = {extracted, _normalize(_tail(text)), _COPULA.sub("", extracted)}
    announced = _announced_text(_tail(text))
    sentence = None if announced is None else _SENTENCE.fullmatch(announced)
    if sentence is not None and words.CORRECTION.search(sentence[2]) is None:
        is_open = re.match(r"\W*(?:or|and|also|alternatively)\b", sentence[2], re.IGNORECASE)
        forms |= {extracted if is_open else _COPULA.sub("", _normalize(sentence[1]))}
    return _normalize(answer) in forms


# contains, regex

REGEX_LIMITS: Final = ChildLimits(seconds=10, memory=1 << 30, cpu_seconds=5)
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


def _contains(text: str, answer: str, _: Sequence[str] = ()) -> bool:
    spoken = _normalize(_tail(text))
    wanted = _normalize(answer)
    for match in re.finditer(re.escape(wanted), spoken):
        is_word = _begins_word(spoken, match.start()) and _ends_word(spoken, match.end())
        if is_word and not words.is_denied(spoken, match.start(), match.end()):
            return True
    return False


def _begins_word(text: str, start: int) -> bool:
    if not _is_joined(text[start - 1 : start], text[start : start + 1]):
        return True
    # The article and short words are written together with an Arabic noun.
    before = text[max(start - 4, 0) : start]
    return _script_of(text[start]) == "arabic" and _ARTICLE_BEFORE.search(before) is not None


def _ends_word(text: str, end: int) -> bool:
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


def _matches(text: str, answer: str, _: Sequence[str] = ()) -> bool:
    request = json.dumps({"pattern": answer, "text": _tail(text)}).encode()
    with suppress(ChildStopped):  # it took too long, or the pattern is none
        return (
            run_child(Path(__file__).with_name("pattern_process.py"), request, REGEX_LIMITS)[0]
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


def _extract_number(text: str, _: Sequence[str] = ()) -> str:
    value = given_number(_tail(text))
    if value is None:
        return ""
    if value == int(value):
        return str(int(value))
    return str(float(value))


def _is_number(text: str, answer: str, _: Sequence[str] = ()) -> bool:
    value = given_number(_tail(text))
    expected = given_number(answer)
    if value is None or expected is None:
        return False
    if expected == int(expected):
        return value == expected
    return abs(value - expected) <= TOLERANCE * abs(expected)


def _is_one_number(answer: str, _: Sequence[str] = ()) -> bool:
    """Return whether the expected answer is one number, or ends as those of GSM8K: `#### 18`."""
    return is_one_number(answer.rpartition("####")[2])


# choice
# Every letter that the text names is found first; then what stands around it says how much it
# counts.

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
    r"\\(?:boxed|fbox)[\s{(]*$|(?i:answer|choice|option|letter|statement)\s*"
    r"(?:(?i:\bis|(?:would|should|must) be)\s*:?|[:=\u2013\u2014-]|\n)"
    rf"[\s{{]*{_SURELY}(?i:(?:option|choice|letter|statement|element)\s*)?$"
    r"|(?:^|\n)[\s>#-]*(?i:correct(?:[ \t]+(?:one|response))?|ans)[ \t]*[:.=][ \t]*$"
    rf"|(?i:{words.ANNOUNCEMENT.pattern})[\s{{]*{_SURELY}"
    r"(?i:(?:option|choice|letter|statement|element|Option|选项|選項|選択肢|ข้อ|보기)\s*)?$"
)
_CONFIRMED_AFTER: Final = re.compile(
    r"[ \t]+is[ \t]+(?:the[ \t]+)?(?:only[ \t]+)?(?:correct|right|best|most[ \t]+(?:appropriate"
    r"|accurate|likely|suitable|plausible|reasonable|logical|fitting)"
    r"(?![ \t]+(?:mistake|error|trap|wrong)))\b"
    r"|[ \t]+ist[ \t]+(?:richtig|korrekt)\b"
    r"|[ \t]*(?:是)?(?:正确|正確|对的|對的)|[ \t]*(?:が|は)正(?:解|しい)"
    r"|[ \t]*(?:이|가)[ \t]*(?:정답|맞)"
)
_PREFERRED_BEFORE: Final = re.compile(
    (
        r"\b(?:go(?:ing)? with|choose|pick|select|opt for|it is|its|that is|thats|must be"
        r"|can only be|has to be"
        r"|(?:that|it|which) would be|(?:id|would) say|(?:i|we) (?:think|believe)|by elimination"
        r"|so|thus|option|choice|letter|answer)[\s:,]*$"
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
    start: int


def _extract_choice(text: str, choices: Sequence[str]) -> str:
    """Return the letter, by the clearest way of naming one that the text uses.

    The last one if it is repeated.

    A letter that the text denies does not count, and where the last one is one of several, there is
    no answer.
    """
    text = words.without_thinking(_tail(text))
    if mathematics.last_box(text) == mathematics.EMPTY_BOX:
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
    if _PREFERRED_BEFORE.search(before):
        return "preferred"
    if begins_line and _LINE_AFTER.match(match.string, match.end()):
        return "leading"
    if begins_line and _is_before_choice(match, choice):
        return "leading"
    return "bracketed" if is_bracketed else None


def _is_before_choice(match: re.Match[str], choice: str) -> bool:
    """Return whether the text of its choice stands behind a letter."""
    between = _CHOICE_BEGINS.match(match.string, match.end())
    written = _without_marks(choice).casefold()
    if between is None or not written:
        return False
    return match.string[between.end() : between.end() + len(choice)].casefold().startswith(written)


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
            _is_exact(_without_marks(stated), bare) for stated in (text, behind)
        )
        if is_stated or _is_exact(text, choice):
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

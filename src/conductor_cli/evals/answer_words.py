r"""The words by which a text announces, denies, doubts or corrects an answer, in any language.

The scorers share them, so that "not" means the same for a number, a letter and a formula. Every
pattern looks at a bounded piece of text: what was written by a model may be made to be slow.
"""

from __future__ import annotations

import re
from typing import Final

CONTEXT: Final = 60  # Characters around an answer that are looked at
MAX_TEXT: Final = 20_000
"""Characters at the end of a text that are searched for the answer. This bounds the time of the
regular expressions.
"""
MAX_ANNOUNCEMENTS: Final = 20  # At the end of a text that are looked at

# Letters and digits of scripts that put spaces between words: Latin, Greek and Cyrillic
SPACED: Final = "A-Za-z0-9_\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0370-\u052f"

MARKUP: Final = r"[\s$*_`\"'(\[{<\\\u00ab\u2018\u2019\u201c\u201d\u201e\u2039\u300c\u300e\u3010-]*"
"""What may stand between a word and the answer: emphasis, quotes, brackets, marks of LaTeX."""

UNIT: Final = (
    r"(?:(?:[munkMGTpfdchµμ]|da)?(?:m|g|s|A|K|mol|cd|N|J|W|V|Pa|Hz|L|l|eV|C|F|H|T|B|Ω|bar|cal|rad)"
    r"|in|ft|yd|mi|min|h|hr|hrs|sec|day|year|yr|lb|lbs|oz|mph|unit|units|inch|inches|feet|foot"
    r"|yards?|miles?|met(?:er|re)s?|(?:centi|milli|kilo)met(?:er|re)s?|seconds?|hours?|minutes?|°C)"
)
"""A unit of measurement, by its sign or its name, without a power."""

_ALIKE: Final = {
    **{number: number - 0xFEE0 for number in range(0xFF01, 0xFF5F)},  # full width
    **{ord(mark): "-" for mark in "\u2010\u2011\u2012\u2013\u2212\ufe63"},
    **{ord(mark): "'" for mark in "\u2018\u2019\u02bc"},
    **{ord(mark): '"' for mark in "\u201c\u201d\u201e"},
    **{ord(mark): " " for mark in "\u00a0\u2009\u202f\u3000"},
    **{ord(mark): None for mark in "\u00ad\u200b\u200e\u200f\u2060\ufeff"},
}
"""Characters that look like another one, or like nothing, and mean the same."""

_ZEROS: Final = (0x660, 0x6F0, 0x966, 0x9E6, 0xE50, 0xED0, 0x1040, 0x17E0)
_DIGITS: Final[dict[int, str]] = {0x66B: ".", 0x66C: ","}
for _zero in _ZEROS:
    _DIGITS.update({_zero + digit: str(digit) for digit in range(10)})
"""Digits of Arabic, Persian, Hindi, Bengali, Thai, Lao, Burmese and Khmer, and Arabic marks."""


def end_of(text: str) -> str:
    """Return as much of the end of a text as is searched for the answer."""
    return text[-MAX_TEXT:].strip()


def unify_characters(text: str) -> str:
    """Return the text with one character for all that look alike: dashes, quotes, spaces."""
    return text.translate(_ALIKE)


def unify_digits(text: str) -> str:
    """Return the text with the digits 0 to 9 in place of those of other scripts."""
    return text.translate(_DIGITS)


def _any(*words: str) -> str:
    return f"(?:{'|'.join(words)})"


_SUBJECT: Final = _any(
    r"\b(?:answer|result|solution|(?:answers|solutions)(?=\s+are\b))",
    r"\b(?:Antwort|L\u00f6sung|Ergebnis)",
    r"\b(?:réponse|résultat|respuesta|risposta|resposta|resultado|odpowiedź|antwoord)"
    r"(?:\s+(?:correcte?|correct[ao]|corretta|finale?|final))?",
    r"\b(?:ответ)",
    r"(?:正确|正確|最终|最終)?(?:答案|答え|解答|正解)",
    r"(?:正确|正確)的?(?:选项|選項)",
    r"(?:정답|답변|답)",
    r"\b(?:jawaban(?:nya)?|jibu|cevap|yan\u0131t|svar(?:et)?|vastaus|válasz|odpověď|răspuns(?:ul)?)",
    r"(?:đáp án|câu trả lời|відповідь|απάντηση|उत्तर|উত্তর|תשובה|پاسخ)",
    r"คำตอบ(?:ที่ถูกต้อง)?",
    r"(?:ال)?(?:إجابة|اجابة|جواب)"
    r"(?:\s+(?:الصحيحة|النهائية|الصحيح))?",
)
_OF_WHAT: Final = (
    r"(?:\s+(?:to|for|of)\s+(?:the|this|that|your|our)(?:\s+\w{1,12})?"
    r"\s+(?:question|problem|puzzle|riddle|exercise|query|task|quiz))?"
)
"""What an answer is one to: `The correct answer to this question is`."""
_VERB: Final = _any(
    r"\s+(?:is|was|are|equals|(?:would|should|must|will|has to) be|comes (?:out )?to)\b[ \t]*:?",
    r"\s+(?:ist|lautet|est|es|è|é|sería|jest)\b[ \t]*:?",
    r"[ \t]*(?:是|为|為|应为|應為|は|은|는|คือ)[ \t]*:?",
    r"\s+(?:هي|هو)\s*:?",
    r"[ \t]*(?::|=|\u2014|-(?=[ \t]))",
    r"[ \t]*[:.]?[ \t]*\n",
)
ANNOUNCEMENT: Final = re.compile(rf"{_SUBJECT}{_OF_WHAT}[ \t*_`\"']*{_VERB}", re.IGNORECASE)
"""The words after which an answer stands: `The answer is`, `Answer:`, `Die Antwort lautet`."""

_CLAUSE: Final = r"[^.;!?\n,\u3002\uff0c]{0,60}$"
_NEGATION: Final = _any(
    r"\b(?:not|never|neither|nor|cannot|no longer|eliminat\w{1,4}|exclud\w{1,4}|reject\w{0,4}"
    r"|rul\w{1,3} out|instead of|rather than|other than|anything but|far from|except|unlike)\b",
    r"\b\w{1,9}n['\u2019]t\b",
    r"\b(?:is|are|was|were|does|do|did|ca|could|wo|would|should)nt\b",
    r"\b(?:nicht|kein|keine|niet|n[oã]o es|no es|não é|non è|n['\u2019]est pas|не)\b",
    r"(?:不|并非|並非|而非|绝非|絕非)(?:可能)?(?:是|为|為|等于|等於|选|選)?",
    r"ไม่(?:ใช่)?",
    r"(?:ليست?|لا|غير)\b",
)
NEGATION: Final = re.compile(_NEGATION, re.IGNORECASE)
_BETWEEN: Final = (
    r"(?:[\s:]+(?:be|been|go with|choose|pick|select|option|choice|answer|letter|number|value"
    r"|equal(?: to)?|exactly|simply|really|actually|definitely|even|likely|the|an?)(?=\W)){0,4}"
)
DENIED_BEFORE: Final = re.compile(rf"{_NEGATION}{_BETWEEN}:?{MARKUP}$", re.IGNORECASE)
"""What ends a text whose next words are denied: `it is not `, `the answer isn't the number `."""

_DOUBT: Final = _any(
    r"(?<!no )(?<!little )(?<!any )(?<!without )(?<!without a )(?<!beyond )(?<!beyond a )"
    r"\bdoubt\w{0,5}\b",
    r"\b(?:whether|anything but|far from|unlikely)\b",
    r"\b(?:hard to believe|wrong to (?:say|think|assume))\b",
    r"\bnot (?:sure|certain|true|clear|the case)\b",
    r"\b(?:do|does|did|would|could|can)(?: not|n['\u2019]t) (?:think|believe|know|say|agree)\b",
    r"\b(?:some|many|most|others|people|students)(?:\s+\w{1,12}){0,2}\s+"
    r"(?:say|think|claim|believe|assume|(?:guess|answer)(?!\s*(?:[:=]|(?:is|was|would|must"
    r"|should|seems|here|to (?:the|this|that|your))\b)))\b",
    r"\bif (?:the )?(?:\w{1,8} )?(?:answer|result)\b",
)
DOUBTED_BEFORE: Final = re.compile(rf"{_DOUBT}{_CLAUSE}", re.IGNORECASE)
"""What ends a text whose next words are doubted, or said by somebody else, in the same clause."""

_WRONG: Final = (
    r"(?:wrong|incorrect|false|impossible|excluded|eliminated|ruled out|invalid"
    r"|too (?:high|low|big|small|large|much|many)|(?:a|the) (?:trap|mistake|distractor|decoy)"
    r"|not (?:(?:the|a) )?(?:\w{1,8} )?(?:answer|right|correct|solution|possible|it|valid|true))\b"
)
DENIED_AFTER: Final = re.compile(
    _any(
        rf"{MARKUP}[)\]}}]?[\s*_`$,]*(?:which )?"
        r"(?:is|are|was|would be|must be|can(?:not)? be|seems?|looks?)"
        rf"\s+(?:also |clearly |definitely |obviously )?{_WRONG}",
        r"[\s*_`$)]*(?:is|was)n['\u2019]t (?:(?:the|a) )?(?:\w{1,8} )?"
        r"(?:answer|right|correct|solution|possible|it|valid|true)\b",
        r"[\s*_`$)]*can(?:not|['\u2019]t| not) be (?:it|right|correct|true|the)\b",
        r"[\"'\u300d\s]*(?:是错|是錯|不正确|不正確|是不对|不对|不對)",
        r"[\"'\u300d\s]*(?:では|じゃ)(?:な|ありません)",
        r"[\"'\u300d\s]*(?:は|が)(?:間違|不正解|誤り)",
        r"[\"'\s]*(?:이|가|은|는)?\s*(?:아니|아닙|아닌|틀)",
    ),
    re.IGNORECASE,
)
"""What begins the rest of a text that denies the words before: ` is wrong`, ` isn't the answer`."""

CORRECTION: Final = re.compile(
    r"\b(?:no, wait|wait|actually|correction|corrected|sorry|oops|hmm|on second thought"
    r"|on reflection|let me (?:re\w{1,9}|correct|check)|mistake|scratch that|i meant|instead"
    r"|no[:,.]|rather|but"
    r"|however|recheck\w{0,3}|revis\w{1,4}|final(?:ly)?|so|therefore|thus|hence)(?!\w)"
    r"|不对|不對|更正|訂正|정정",
    re.IGNORECASE,
)
"""A word after which a later answer takes the place of an earlier one."""

CHANGED_MIND: Final = re.compile(
    r"\b(?:no, wait|wait|actually|correction|sorry|oops|on second thought"
    r"|on (?:further )?reflection|scratch that|i meant|i made a mistake|let me correct)(?!\w)",
    re.IGNORECASE,
)
"""A word that takes back what was announced before."""

REMARK: Final = re.compile(
    r"[\s>*_#(\[]*(?:notes?|n\.b\.|nb|sources?|references?|remarks?|p\.?s\.|disclaimer|confidence"
    r"|explanation|reasoning|hint|see also|anmerkung|quellen?|hinweis|注|備考|参考|參考|出典|참고)"
    r"[*_]*\s*[:\uff1a]",
    re.IGNORECASE,
)
"""The beginning of a paragraph that is about the answer, and no part of it."""

_TAGGED: Final = re.compile(r"<answer>(.{1,4000}?)</answer>", re.IGNORECASE | re.DOTALL)
THINK_END: Final = "</think>"


def without_thinking(text: str) -> str:
    """Return what stands between tags for the answer, else what follows a tag that ends thinking.

    The whole text where it has neither.
    """
    tagged = _TAGGED.findall(text)
    if tagged and tagged[-1].strip():
        return str(tagged[-1]).strip()
    _, mark, answer = text.rpartition(THINK_END)
    if mark and answer.strip():
        return answer.strip()
    return text


def without_remarks(text: str) -> str:
    """Return the text without paragraphs at its end that are remarks: notes, sources, brackets."""
    paragraphs = text.split("\n")
    kept = len(paragraphs)
    for number in range(len(paragraphs) - 1, 0, -1):
        paragraph = paragraphs[number].strip()
        is_bracketed = paragraph.startswith("(") and paragraph.rstrip(".").endswith(")")
        is_name = len(paragraph) < 5  # "(C)" is an answer
        if REMARK.match(paragraph) or (is_bracketed and not is_name):
            kept = number
        elif paragraph:
            # A remark of several lines: its first line is looked for, up to an empty one.
            if kept == len(paragraphs) and _begins_remark(paragraphs, number):
                continue
            break
    return "\n".join(paragraphs[:kept]).rstrip()


def _begins_remark(paragraphs: list[str], number: int) -> bool:
    """Return whether a line above, without an empty one between, begins a remark."""
    for line in reversed(paragraphs[max(number - 20, 1) : number]):
        if not line.strip():
            return False
        if REMARK.match(line):
            return True
    return False


def is_denied(text: str, start: int, end: int) -> bool:
    """Return whether the text denies or doubts what stands from `start` to `end`."""
    before = text[max(start - CONTEXT, 0) : start]
    if DENIED_BEFORE.search(before) or DOUBTED_BEFORE.search(before):
        return True
    return DENIED_AFTER.match(text[end : end + CONTEXT]) is not None


_SENTENCE_END: Final = re.compile(r"[.!?](?=[\s*_\"')\]]|$)|[;\n\u3002\uff01\uff1f]")


def sentence_from(text: str, start: int, limit: int = 2_000) -> str:
    """Return the first sentence that has more than marks after `start`."""
    piece = text[start : start + limit]
    begin = len(piece) - len(piece.lstrip(" \t\n\r*_`#>:"))
    end = _SENTENCE_END.search(piece, begin)
    return piece[begin : end.start()] if end is not None else piece[begin:]

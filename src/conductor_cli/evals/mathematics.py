"""Whether two mathematical expressions are equal, by math-verify in a child process.

The text was written by a model and may contain a power tower that no computer finishes. The
library's own timeout is a signal, which works only in a main thread and not inside one long
operation on big numbers. So the work is done in a child process, which is killed if it takes too
long or too much memory; the next question starts a new one.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import multiprocessing
import re
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Final

from conductor_cli.core.errors import ConfigError
from conductor_cli.evals import answer_words as words
from conductor_cli.system.installation import extra_command

TIMEOUT: Final = 8.0
"""Seconds of processor time for one comparison; what takes longer counts as not equal. So a busy
machine makes no right answer wrong.
"""
HAS_PROCESSOR_TIMER: Final = hasattr(signal, "setitimer")  # All systems but Windows
CLOCK_TIMEOUT: Final = 60.0 if HAS_PROCESSOR_TIMER else TIMEOUT  # Seconds by the clock
START_TIMEOUT: Final = 120.0  # Seconds for the import of the library
ROUNDING_TOLERANCE: Final = 1e-5  # Nearer than this the library takes different numbers for equal
MAX_MEMORY: Final = 2 << 30  # Bytes of address space, on systems that can limit it


def require_math_verify() -> None:
    """Raise `ConfigError` unless the library is installed."""
    if importlib.util.find_spec("math_verify") is None:
        raise ConfigError(
            "the scorer math needs math-verify, which is not installed",
            hint=extra_command("eval"),
        )


@lru_cache(maxsize=8192)
def extract_expression(text: str) -> str:
    """Return the expression that `text` gives as its answer, as the library writes it.

    Empty if there is none.
    """
    require_math_verify()
    stated = given_answer(text)
    return str(_CHILD.ask("extract", stated) or _as_phrase(stated))


@lru_cache(maxsize=8192)
def is_equivalent(text: str, answer: str) -> bool:
    """Return whether the expression in `text` equals that of `answer`.

    An expected answer in words (`no solution`) is compared as words.
    """
    require_math_verify()
    stated = given_answer(text)
    phrase = _as_phrase(answer)
    if phrase and _as_phrase(stated) == phrase:
        return True
    expected = _with_whole_numbers(_as_latex(answer))
    if _CHILD.ask("compare", stated, expected):
        return True
    bare = _BARE_UNIT.sub("", stated)
    return bare != stated and bool(_CHILD.ask("compare", bare, expected))


_WORD: Final = re.compile(
    r"(?<![\\A-Za-z])(?!(?:sin|cos|tan|cot|sec|csc|log|ln|exp|sqrt|pi|max|min|gcd|lcm)\b)[A-Za-z]{2,}"
)
# Words inside LaTeX, which are no prose
_NAMED: Final = re.compile(r"\\(?:begin|end|text|mathrm|operatorname)\s*\{[^{}]*\}")
_MARKED: Final = re.compile(
    r"\$\$.{1,400}?\$\$|(?<!\\)\$(?:[^$\n\\]|\\.){1,400}\$|\\\(.{1,400}?\\\)|\\\[.{1,400}?\\\]",
    re.DOTALL,
)
_EXPRESSION: Final = re.compile(rf"{_MARKED.pattern}|[-+]?\d[\d.,/^]{{0,400}}", re.DOTALL)
_FONT: Final = re.compile(r"\\(?:mathbf|mathrm|bf|rm|boldsymbol)(?![A-Za-z])")
_LABEL: Final = re.compile(r"\\text\s*\{\s*(?:final\s+)?answer\s*[:=]?\s*\}\s*[:=]?", re.IGNORECASE)
_MIXED: Final = re.compile(r"(?<![\d.^{/])(\d{1,6}) (\d{1,6})/(\d{1,6})(?![\d/^])")
_LEAD: Final = re.compile(
    r"(?:[\s*_`:>}]|\b(?:about|approximately|exactly|simply|just|thus|therefore|then|clearly"
    r"|given by|equal to)\b)*",
    re.IGNORECASE,
)
_JOINS: Final = re.compile(r"\s*(?:,|and|or|,\s*and|,\s*or)\s*")
_END: Final = re.compile(r"[.!?](?=[\s*_\"]|$)|\n")
_MAX_SENTENCE: Final = 2_000


def given_answer(text: str) -> str:
    r"""Return the part of a text that gives its answer, in a form in which the library finds it.

    Empty where it denies or doubts all that it names.

    The library reads an expression in a box or between dollar signs, and takes the last one.
    Models also write `{"answer": "…"}`, LaTeX without a mark, a final stop or a font in a box,
    `1\,600`, and a remark behind the answer: `The answer is $12$ (not $13$).`
    """
    with suppress(ValueError, RecursionError):
        record = json.loads(text)
        value = None
        if isinstance(record, dict):
            value = record.get("answer")
        if isinstance(value, str | int | float):
            return _boxed(str(value))
    text = _as_latex(words.without_thinking(text))
    box = last_box(text)
    if box is not text:
        return _boxed(box[len("\\boxed{") : -1])
    announced = _announced_expression(text)
    if announced is not None:
        return announced
    bare = text.strip().strip("*` ")
    is_line = "\n" not in bare and not _MARKED.search(bare)
    unsaid = ""
    if is_line:
        bare = _UNIT.sub("", bare)
        unsaid = _joined(bare) or _behind_words(bare)
    if unsaid:
        return _boxed(unsaid)
    # "It is 70, not 71."
    for expression in reversed([*_EXPRESSION.finditer(text)]):
        if not words.is_denied(text, expression.start(), expression.end()):
            break
        text = text[: expression.start()]
    return text


_SIGNS: Final = {
    "½": r"\frac{1}{2}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "¼": r"\frac{1}{4}",
    "¾": r"\frac{3}{4}", "°": r"^\circ ", "∞": r"\infty ", "π": r"\pi ", "×": r"\times ",
    "·": r"\cdot ", "≤": r"\le ", "≥": r"\ge ", "\u222a": r"\cup ", "∩": r"\cap ", "∈": r"\in ",
    "∅": r"\emptyset ", "±": r"\pm ",
}  # fmt: skip
_SIGN: Final = re.compile(f"[{''.join(_SIGNS)}]")
_ROOT: Final = re.compile(
    r"(?:√|(?<![\\A-Za-z])sqrt(?=\s*\())\s*(?:\(([^()]{1,80})\)|([0-9]+|[A-Za-z]))"
)
_RAISED: Final = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻ⁿ]+")
_RAISED_TO: Final = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻ⁿ", "0123456789-n")
_PI: Final = re.compile(r"(?<![\\A-Za-z])pi(?![A-Za-z])")
_FUNCTION: Final = re.compile(
    r"(?<![\\A-Za-z])(?:(?P<arc>a(?:rc)?)(?=sin\(|cos\(|tan\())?"
    r"(?P<name>sinh?|cosh?|tanh?|cot|sec|csc|ln|log|exp)(?=\()"
)
_INFINITY: Final = re.compile(
    r"\s{0,9}([-+]?)\s{0,3}(?:positive\s{1,3})?infinity[\s.]*", re.IGNORECASE
)


def _as_latex(text: str) -> str:
    """Return the text with LaTeX for signs of mathematics, as in `2√3`, `x²`, `120°` and `½`."""
    text = _ROOT.sub(lambda root: rf"\sqrt{{{root[1] or root[2]}}}", text)
    text = _RAISED.sub(lambda raised: f"^{{{raised[0].translate(_RAISED_TO)}}}", text)
    text = _PI.sub(r"\\pi ", text)
    text = _FUNCTION.sub(lambda name: f"\\{'arc' if name['arc'] else ''}{name['name']}", text)
    text = _SIGN.sub(lambda sign: _SIGNS[sign[0]], text)
    return _INFINITY.sub(r"\1\\infty", text) if _INFINITY.fullmatch(text) else text


_AND: Final = re.compile(r"(?:\s{0,3},)?\s{1,3}(?:and|or)\s{1,3}(?=[-+\d(A-Za-z\\])")


_SO: Final = re.compile(r"\A(?:so|thus|hence|therefore|then)[,:\s]{1,3}", re.IGNORECASE)
_UNIT: Final = re.compile(
    r"(?<=[\d})\s])\s{0,3}(?:square |cubic |sq\.? )?"
    r"(?:[mck]m|(?<=\s)m|in|ft|yd|units?|inch(?:es)?|feet|met(?:er|re)s?|degrees?|radians?)"
    r"(?:\s?\^\s?\{?[23]\}?)?[\s.]*$"
)


def _joined(bare: str) -> str:
    """Return expressions that `and` or `or` joins as a list: `x = 1 or x = -2`; else nothing."""
    bare = _SO.sub("", bare)
    joined = _AND.sub(", ", bare)
    if joined == bare or _WORD.search(_NAMED.sub("", joined)):
        return ""
    return joined


def _behind_words(bare: str) -> str:
    r"""Return the expression that a line is, or that ends it, as in `It is \sqrt{2}`.

    Empty where the line is prose, or an expression with prose behind it.
    """
    prose = [*_WORD.finditer(_NAMED.sub(lambda named: " " * len(named[0]), bare))]
    if not prose:
        return bare
    rest = bare[prose[-1].end() :]
    is_denied = words.is_denied(bare, prose[-1].end(), len(bare))
    return rest if "\\" in rest and not is_denied else ""


def _announced_expression(text: str) -> str | None:
    """Return what the last announcement that is not doubted gives; None where there is none."""
    announcements = [*words.ANNOUNCEMENT.finditer(text)]
    for announcement in reversed(announcements[-words.MAX_ANNOUNCEMENTS :]):
        start = announcement.start()
        clause = text[max(start - words.CONTEXT, 0) : announcement.end()]
        if words.DOUBTED_BEFORE.search(clause):
            continue
        given = _expression_after(text, announcement.end())
        if given is not None:
            return given
    return "" if announcements else None


def _expression_after(text: str, start: int) -> str | None:
    """Return the expression of the sentence after an announcement, in a box; None without one."""
    lead = _LEAD.match(text, start)
    begin = lead.end() if lead is not None else start
    block = _MARKED.match(text, begin)
    end = _END.search(text, block.end() if block is not None else begin)
    stop = end.start() if end is not None else len(text)
    stop = min(stop, begin + _MAX_SENTENCE)
    expressions = [*_MARKED.finditer(text, begin, stop)]
    if not expressions:
        return _bare_expression(text, begin, stop)
    marked = [match for match in expressions if not words.is_denied(text, *match.span())]
    if not marked:
        return None
    if _has_words(text[begin : marked[0].start()]):
        # "The answer is the sum of $3$ and $4$, which is $7$."
        return _without_brackets(text[begin:stop])
    parts = [marked[0]]
    for match in marked[1:]:
        if not _JOINS.fullmatch(text, parts[-1].end(), match.start()):
            break
        parts.append(match)
    if len(parts) == 1:
        behind = text[parts[0].end() : stop]
        # An expression goes on behind its mark: "$x$ + 1", "$5$ cm"
        is_aside = re.match(r"[\s*_]*(?:$|[,(.;\u2014]|[A-Za-z]{2,})", behind) is not None
        if is_aside:
            return _boxed(_unmarked(parts[0][0]))
        return _without_brackets(text[begin:stop])
    return _boxed(", ".join(_unmarked(part[0]) for part in parts))


def _bare_expression(text: str, begin: int, stop: int) -> str | None:
    """Return the expression without marks that a sentence begins or ends with; None without."""
    sentence = text[begin:stop].strip("*`_ ")
    if words.NEGATION.match(sentence):
        _, but, sentence = sentence.partition(" but ")
        if not but:
            return None
    joined = _joined(sentence)
    if joined and not words.is_denied(text, begin, stop):
        return _boxed(joined)
    hidden = _NAMED.sub(lambda named: " " * len(named[0]), sentence)
    prose = [*_WORD.finditer(hidden)]
    if not prose:
        is_denied = words.is_denied(text, begin, stop)
        if sentence and not is_denied:
            return _boxed(sentence)
        return None
    first = re.sub(r"[\s,(;:\u2014-]+$", "", sentence[: prose[0].start()])
    if first and not words.is_denied(text, begin, begin + len(first)):
        return _boxed(first)
    rest = _behind_words(sentence)
    if rest:
        return _boxed(rest)
    for number in re.finditer(r"[-+]?\d[\d.,/^]*", sentence):
        if not words.is_denied(sentence, number.start(), number.end()):
            return _without_brackets(sentence)
    is_phrase = not re.search(r"[\d\\$]", sentence)
    return sentence if is_phrase and not words.is_denied(text, begin, stop) else None


def _has_words(text: str) -> bool:
    return _WORD.search(_NAMED.sub("", text)) is not None


def _without_brackets(sentence: str) -> str:
    """Return the sentence without brackets that hold words: `(with $n=3$)`."""
    return re.sub(r"\s\((?=[^()]*[A-Za-z]{2})[^()]{0,200}\)", " ", sentence)


def _unmarked(expression: str) -> str:
    for mark, end in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        if expression.startswith(mark):
            return expression[len(mark) : -len(end)].strip()
    return expression


def _as_phrase(answer: str) -> str:
    """Return an answer in words without marks and case: `no solution`; empty for an expression."""
    content = answer
    if "\\boxed" in answer:
        content = answer.removeprefix("\\boxed{").removesuffix("}")
    bare = re.sub(r"\\(?:text|mathrm|textbf)\s*\{([^{}]*)\}", r"\1", content)
    bare = re.sub(r"[\s$*_`\"'{}]+", " ", bare).strip(" .").lower()
    bare = re.sub(r"^(?:there (?:is|are) )", "", bare)
    return bare if re.fullmatch(r"[^\W\d_]{2,}(?:[ -][^\W\d_]+)*", bare) else ""


_SPACE_OF_LATEX: Final = r"(?:\s|~|\\[,;:! ]|\\q?quad(?![A-Za-z]))*"
_POWER: Final = r"(?:\s*\^\s*\{?-?[1-9]\}?)?"
_UNIT_IN_FONT: Final = (
    rf"\\(?:mathrm|operatorname|rm)\s*\{{{_SPACE_OF_LATEX}(?:{words.UNIT}|[A-Za-z]{{4,}}){_POWER}"
    rf"(?:\s*/\s*{words.UNIT}{_POWER})?{_SPACE_OF_LATEX}\}}{_POWER}"
)
_MARKED_UNIT: Final = re.compile(
    rf"(?:(?<=[\d)}}])|(?<=\\pi)|(?<=\\circ)){_SPACE_OF_LATEX}{_UNIT_IN_FONT}"
    rf"(?:{_SPACE_OF_LATEX}(?:/|\\cdot|\\times)?{_SPACE_OF_LATEX}{_UNIT_IN_FONT}){{0,3}}"
    rf"{_SPACE_OF_LATEX}$"
)
"""The unit that ends an expression, in its font: `25\\mathrm{~cm}^2`, `9.8\\,\\mathrm{m/s}`."""
_BARE_UNIT: Final = re.compile(
    rf"(?<=[\d)}}]){_SPACE_OF_LATEX}{words.UNIT}{_POWER}(?:\s?/\s?{words.UNIT}{_POWER})?(?=\}}$)"
)
"""What ends a box and may be a unit: `\\boxed{25 cm^2}`. It may be a product, too."""
_SPACED_DIGITS: Final = re.compile(
    r"(?<![\d.,])[1-9]\d{0,2}(?:(?:~|\\?[ \u00a0\u2009\u202f])\d{3})+(?!\d)"
)


def _with_whole_numbers(expression: str) -> str:
    """Return the expression with each number as the library reads one.

    `11 5/6` is a sum, as it is to a reader, and `1 000 000` has no spaces.
    """
    expression = _MIXED.sub(r"\1\\frac{\2}{\3}", expression)
    return _SPACED_DIGITS.sub(lambda number: re.sub(r"\D", "", number[0]), expression)


def _boxed(expression: str) -> str:
    """Return an expression in a box, without a final stop, fonts and the spaces in numbers."""
    expression = _with_whole_numbers(_LABEL.sub("", expression)).strip().rstrip(".,")
    expression = _FONT.sub("", _MARKED_UNIT.sub("", expression))
    # `\!` draws what follows it nearer: `11,\! 111` of MATH-500 is one number
    bare = re.sub(r"\\!\s*|\\[,;:]", "", expression).strip().rstrip(".,")
    bare = re.sub(r"(?<=\d)\{,\}(?=\d{3}(?!\d))", "", bare)
    bare = re.sub(r"(?<=\d)[\u2013\u2212](?=\d)|^[\u2013\u2212](?=\d)", "-", bare)
    whole = f"\\boxed{bare}"
    if bare.startswith("{") and last_box(whole) == whole:
        return whole
    return f"\\boxed{{{bare}}}"


EMPTY_BOX: Final = "\\boxed{}"
_BRACE: Final = re.compile(r"\\(?:boxed|fbox)\s*\{|\\[{}]|[{}]")
_MAX_WORDS_BETWEEN: Final = 14  # Of two boxes that leave open which of them is meant
_LOOK: Final = re.compile(
    r"\\(?:left|right)(?![A-Za-z])|\\[,;:! $]|[\s~$]|\{,\}|(?<=\d),(?=\d{3}(?!\d))"
    r"|(?<=\\)[dt](?=frac)"
)
"""What says only how a formula looks: spaces, sizes of brackets and fractions, thousands apart."""


def last_box(text: str, is_answer: Callable[[str], bool] | None = None) -> str:
    r"""Return the last closed box in `text` that it does not deny.

    An empty one if it denies all or leaves open which it means (`\boxed{1} or \boxed{2}`), and
    the whole text if it has none. With `is_answer`, only boxes with such a content count, if any.

    The library would join all boxes into one answer, even if a later one corrects an earlier one.
    """
    boxes = _closed_boxes(text)
    if is_answer is not None:
        boxes = [box for box in boxes if is_answer(text[box[1] : box[2]])] or boxes
    if not boxes:
        return text
    stated = []
    for begin, start, end in boxes:
        if not words.is_denied(text, begin, end + 1):
            stated.append((begin, start, end))
    if not stated:
        return EMPTY_BOX
    begin, start, end = stated[-1]
    content = text[start:end]
    if len(stated) > 1:
        _, other_start, other_end = stated[-2]
        between = text[other_end + 1 : begin]
        other = text[other_start:other_end]
        is_other = other_end < begin and _LOOK.sub("", other) != _LOOK.sub("", content)
        is_close = len(between.split()) <= _MAX_WORDS_BETWEEN
        if is_other and is_close and words.CORRECTION.search(between) is None:
            return EMPTY_BOX
    return f"\\boxed{{{content}}}"


def _closed_boxes(text: str) -> list[tuple[int, int, int]]:
    """Return where each closed box begins, its content starts and ends, by where it begins."""
    boxes = []
    opened: list[tuple[int, int] | None] = []
    for match in _BRACE.finditer(text):
        brace = match[0]
        if brace == "}":
            box = opened.pop() if opened else None
            if box is not None:
                boxes.append((*box, match.start()))
        elif brace == "{":
            opened.append(None)
        elif not brace.endswith("}") and len(brace) > len("\\{"):
            opened.append((match.start(), match.end()))
    return sorted(boxes)


class MathProcess:
    """The child process, started at the first question. One question at a time, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def ask(self, *question: str) -> Any:  # noqa: ANN401 - a text or a truth value, by the question
        """Return the reply; None if it takes too long or kills the process."""
        with self._lock:
            pipe = self._pipe or self._start()
            with suppress(OSError, EOFError):
                pipe.send((TIMEOUT, *question))
                if pipe.poll(CLOCK_TIMEOUT):
                    return pipe.recv()
            self._kill()
            return None

    def _start(self) -> Connection:
        context = multiprocessing.get_context("spawn")
        self._pipe, child_end = context.Pipe()
        self._process = context.Process(
            target=_answer_questions, args=(child_end,), name="mathematics", daemon=True
        )
        self._process.start()
        child_end.close()
        with suppress(OSError, EOFError):
            if self._pipe.poll(START_TIMEOUT) and self._pipe.recv() == "ready":
                return self._pipe
        self._kill()
        raise ConfigError("math-verify does not start", hint=extra_command("eval"))

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
        if self._pipe is not None:
            self._pipe.close()
        self._process = None
        self._pipe = None


_CHILD: Final = MathProcess()


def _answer_questions(pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable()
    with suppress(ImportError, ValueError, OSError):
        import resource  # POSIX only

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    from math_verify import parse, verify

    def read(text: str) -> list[Any]:
        return list(parse(text, parsing_timeout=None))

    pipe.send("ready")
    with suppress(EOFError, OSError):
        while True:
            seconds, request, text, *expected = pipe.recv()
            reply: Any = None
            _end_after_processor_time(seconds)
            with suppress(Exception):  # a hostile text may raise anything in the parser
                if request == "extract":
                    reply = _normal_form(next(iter(read(text)), ""))
                else:
                    # The library finds an expected answer only in a box or between dollar signs;
                    # `\$` is money.
                    marked = "\\boxed" in expected[0] or "$" in expected[0].replace("\\$", "")
                    answer = expected[0] if marked else f"\\boxed{{{expected[0]}}}"
                    reply = _is_same(verify, read(answer), read(text))
            _end_after_processor_time(0)
            pipe.send(reply)


def _end_after_processor_time(seconds: float) -> None:
    """Have this process ended after so many seconds of its work; never with 0."""
    if HAS_PROCESSOR_TIMER:
        # Nothing handles its signal, so that it also ends what is inside of one long operation
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _normal_form(value: Any) -> str:  # noqa: ANN401 - an object of the library's, or text
    """Return an expression as text: one for `x = 5` and 5, for 0.5 and 1/2, and for equal roots."""
    kind = type(value).__name__
    if kind == "str":
        return str(value)
    if kind == "Equality" and type(value.lhs).__name__ == "Symbol":
        return _normal_form(value.rhs)
    if kind == "FiniteSet":
        return "{" + ", ".join(sorted(map(_normal_form, value.args))) + "}"
    with suppress(Exception):  # what cannot be worked out stays as it is
        from sympy import nsimplify

        value = nsimplify(value.doit(), rational=True)
    return str(value)


def _is_same(verify: Any, expected: list[Any], given: list[Any]) -> bool:  # noqa: ANN401
    """Return whether the library takes one expression for the other, and not by rounding alone.

    It rounds to six decimals, by which all very small numbers are equal: 1/2^99 and 1/2^98.
    """
    if not verify(expected, given, timeout_seconds=None):
        expected, given = _with_equal_symbols(expected, given)
        if not verify(expected, given, timeout_seconds=None):
            return False
    first = expected[0]
    other = given[0]
    if _are_unsolved(verify, first, other):
        return False
    if not (_is_exact_number(first) and _is_exact_number(other)):
        return True
    difference = abs(first.doit() - other.doit())
    return bool(difference == 0 or difference > ROUNDING_TOLERANCE)


def _are_unsolved(verify: Any, first: Any, other: Any) -> bool:  # noqa: ANN401
    r"""Return whether two equations that differ are equal only as neither has a solution.

    The library compares their solutions, and none equals none: `x^2 = -1` and `x^2 = -2`. Without
    an unknown, it takes all that are true for equal: `2^5 = 32` and `\log_2 32 = 5`.
    """
    if not (type(first).__name__ == type(other).__name__ == "Equality"):
        return False
    with suppress(Exception):  # what it cannot solve, it has compared in another way
        from sympy import solve

        if not (first.free_symbols or other.free_symbols):
            return not any(
                verify([first.lhs], [left], timeout_seconds=None)
                and verify([first.rhs], [right], timeout_seconds=None)
                for left, right in ((other.lhs, other.rhs), (other.rhs, other.lhs))
            )
        if solve(first, first.free_symbols):
            return False
        one = first.lhs - first.rhs
        two = other.lhs - other.rhs
        return not any(verify([one], [same], timeout_seconds=None) for same in (two, -two))
    return False


def _with_equal_symbols(expected: list[Any], given: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return both with one symbol for each name.

    The library takes all symbols for real ones unless it sees an `i` that stands alone. So the `i`
    of `5i` is another one for it than that of `5 i`.
    """

    def renewed(value: Any) -> Any:  # noqa: ANN401 - an object of the library's, or text
        symbols = {}
        for symbol in getattr(value, "free_symbols", ()):
            kind = type(symbol)
            if kind.__name__ == "Symbol":
                symbols[symbol] = kind(symbol.name, real=True)
        if not symbols:
            return value
        real = value.xreplace(symbols)
        # A real number is no set, pair or matrix: with a real `A` all of `A = [1, 2]` is false.
        is_decided = getattr(real, "is_Boolean", False) and not real.args
        return value if is_decided else real

    return [renewed(value) for value in expected], [renewed(value) for value in given]


def _is_exact_number(value: Any) -> bool:  # noqa: ANN401 - an object of the library's
    return bool(getattr(value, "is_rational", False)) and not value.is_Float

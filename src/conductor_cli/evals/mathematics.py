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
from contextlib import suppress
from functools import lru_cache
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Final

from conductor_cli.core.errors import ConfigError
from conductor_cli.system.installation import extra_command

TIMEOUT: Final = 8.0  # Seconds for one comparison; what takes longer counts as not equal
START_TIMEOUT: Final = 120.0  # Seconds for the import of the library
MAX_MEMORY: Final = 2 << 30  # Bytes of address space, on systems that can limit it
_BOX: Final = re.compile(r"\\(?:boxed|fbox)\s*\{")


def require_math_verify() -> None:
    """Raise `ConfigError` unless the library is installed."""
    if importlib.util.find_spec("math_verify") is None:
        raise ConfigError(
            "the scorer math needs math-verify, which is not installed",
            hint=extra_command("eval"),
        )


@lru_cache(maxsize=8192)
def extract_expression(text: str) -> str:
    """The expression that `text` gives as its answer, as the library writes it.

    Empty if there is none.
    """
    require_math_verify()
    return str(_CHILD.ask("extract", given_answer(text)) or "")


@lru_cache(maxsize=8192)
def is_equivalent(text: str, answer: str) -> bool:
    """Return whether the expression in `text` equals that of `answer`."""
    require_math_verify()
    return bool(_CHILD.ask("compare", given_answer(text), answer))


_ANNOUNCED: Final = re.compile(
    r"answer(?:\s+(?:isn.?t\b|is\b)|\W{0,4}:)[\s:*]*([^\n]*)", re.IGNORECASE
)
_DENIED_BOX: Final = re.compile(
    r"(?:\b(?:not|never|cannot be|neither|nor)|n.?t(?: be)?)[\s$*(]*$", re.IGNORECASE
)
_DENIES: Final = re.compile(r"(?:\w+\s+){0,2}(?:not|never)\b", re.IGNORECASE)
_MARKED: Final = re.compile(r"(?<!\\)\$|\\[(\[]")
_WORD: Final = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
# Words inside LaTeX, which are no prose
_NAMED: Final = re.compile(r"\\(?:begin|end|text)\s*\{[^{}]*\}")
_EXPRESSION: Final = re.compile(r"\$[^$\n]{1,400}\$|\\[(\[].{1,400}?\\[)\]]|[-+]?\d[\d.,/^]{0,400}")
_FONT: Final = re.compile(r"\\(?:mathbf|mathrm|bf|rm|boldsymbol)(?![A-Za-z])")


def given_answer(text: str) -> str:
    r"""The part of a text that gives its answer, in a form in which the library finds it.

    Empty where it denies one.

    The library reads an expression in a box or between dollar signs. Models also write `{"answer":
    "…"}`, LaTeX without a mark, a final stop or a font in a box, and `1\,600`.
    """
    with suppress(ValueError, RecursionError):
        data = json.loads(text)
        if isinstance(data, dict) and isinstance(value := data.get("answer"), str | int | float):
            return _boxed(str(value))
    if (box := last_box(text)) is not text:
        return _boxed(box[len("\\boxed{") : -1])
    announced = [*_ANNOUNCED.finditer(text)]
    said = announced[-1][1].strip() if announced else text.strip()
    if announced and (_DENIES.match(said) or "isn" in announced[-1][0][:12].lower()):
        return ""
    bare = said.strip("*` ")
    prose = [*_WORD.finditer(_NAMED.sub(lambda named: " " * len(named[0]), bare))]
    if not ("\n" in bare or _MARKED.search(bare)) and (
        not prose or "\\" in bare[prose[-1].end() :]
    ):
        return _boxed(bare[prose[-1].end() :] if prose else bare)  # behind words: "It is \sqrt{2}."
    if announced and _MARKED.search(said):
        return said
    for found in reversed([*_EXPRESSION.finditer(text)]):  # "It is 70, not 71."
        if not _DENIED_BOX.search(text, max(found.start() - 20, 0), found.start()):
            break
        text = text[: found.start()]
    return text


def _boxed(expression: str) -> str:
    """An expression in a box, without a final stop, fonts and the small spaces between digits."""
    bare = re.sub(r"\\[,;!:]", "", _FONT.sub("", expression)).strip().rstrip(".,")
    whole = f"\\boxed{bare}"
    if bare.startswith("{") and last_box(whole) == whole:
        return whole
    return f"\\boxed{{{bare}}}"


def last_box(text: str) -> str:
    """The last closed box in `text` that it does not deny.

    An empty one if it denies all, and the whole text if it has none.

    The library would join all boxes into one answer, even if a later one corrects an earlier one.
    """
    boxes = [*_BOX.finditer(text)]
    stated = [
        box for box in boxes if not _DENIED_BOX.search(text, max(box.start() - 20, 0), box.start())
    ]
    if boxes and not stated:
        return "\\boxed{}"
    begin = stated[-1].end() if stated else len(text)
    depth = 1
    for at in range(begin, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return f"\\boxed{{{text[begin:at]}}}"
    return text


class MathProcess:
    """The child process, started at the first question. One question at a time, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def ask(self, *question: str) -> Any:  # noqa: ANN401 - a text or a truth value, by the question
        """The reply; None if it takes too long or kills the process."""
        with self._lock:
            pipe = self._pipe or self._start()
            with suppress(OSError, EOFError):
                pipe.send(question)
                if pipe.poll(TIMEOUT):
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
            what, text, *expected = pipe.recv()
            reply: Any = None
            with suppress(Exception):  # a hostile text may raise anything in the parser
                if what == "extract":
                    reply = str(next(iter(read(text)), ""))
                else:
                    # The library finds an expected answer only in a box or between dollar signs;
                    # `\$` is money.
                    marked = "\\boxed" in expected[0] or "$" in expected[0].replace("\\$", "")
                    answer = expected[0] if marked else f"\\boxed{{{expected[0]}}}"
                    reply = bool(verify(read(answer), read(text), timeout_seconds=None))
            pipe.send(reply)

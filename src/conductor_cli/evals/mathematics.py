"""Whether two pieces of mathematics say the same, by the library math-verify, in a process of its own.

The text was written by a model: it may hold a tower of powers that no computer ends. The library's own bound on time is
a signal, which works in a main thread only and not inside one long operation on big numbers. So it works in a child
process that is ended when it takes too long or wants too much memory; the next question starts a new one.
"""

from __future__ import annotations

import importlib.util
import logging
import multiprocessing
import signal
import threading
from contextlib import suppress
from functools import lru_cache
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Final

from conductor_cli.core.errors import ConfigError

SECONDS: Final = 8.0
"""The longest that one comparison may take; what takes longer is not equal."""
STARTING: Final = 120.0
"""The longest that the library may take to be imported."""
_BOX: Final = "\\boxed{"
MEMORY: Final = 2 << 30
"""Bytes of address space, where the system can bound it."""


def require_math_verify() -> None:
    """Raise `ConfigError` unless the library is installed."""
    if importlib.util.find_spec("math_verify") is None:
        raise ConfigError(
            "answers in mathematics are compared by math-verify, which is not installed",
            hint="pip install 'conductor-llm[eval]'",
        )


@lru_cache(maxsize=8192)
def said(text: str) -> str:
    """The expression that `text` gives as its answer, spelled as the library does; empty where there is none."""
    require_math_verify()
    return str(_CHILD.ask("said", last_box(text)) or "")


@lru_cache(maxsize=8192)
def is_equivalent(text: str, answer: str) -> bool:
    """Whether the expression in `text` is mathematically that of `answer`."""
    require_math_verify()
    return bool(_CHILD.ask("is_equivalent", last_box(text), answer))


def last_box(text: str) -> str:
    """The last box in `text` that is closed, which is the answer where there is one; else the text.

    The library would take all boxes for one answer, also where a later one corrects an earlier one.
    """
    begin = text.rfind(_BOX)
    depth = 0
    for at in range(begin, len(text) if begin >= 0 else begin):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0 and text[at] == "}":
            return text[begin : at + 1]
    return text


class _Child:
    """The process that compares, started when it is first asked. One question at a time, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def ask(self, *question: str) -> Any:  # noqa: ANN401 - text or truth, as asked
        """The reply; None where there is none in time, or the process died of it."""
        with self._lock:
            pipe = self._pipe or self._start()
            with suppress(OSError, EOFError):
                pipe.send(question)
                if pipe.poll(SECONDS):
                    return pipe.recv()
            self._end()
            return None

    def _start(self) -> Connection:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), name="mathematics", daemon=True)
        self._process.start()
        theirs.close()
        try:
            if self._pipe.poll(STARTING) and self._pipe.recv() == "require_math_verify":
                return self._pipe
        except (OSError, EOFError):
            pass
        self._end()
        raise ConfigError("math-verify cannot be started", hint="pip install --force-reinstall 'conductor-llm[eval]'")

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None


_CHILD: Final = _Child()


def _serve(pipe: Connection) -> None:
    """The child: answers questions until there is nobody to ask them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable()
    _bound_memory()
    from math_verify import parse, verify

    def read(text: str) -> list[Any]:
        return list(parse(text, parsing_timeout=None))

    pipe.send("require_math_verify")
    with suppress(EOFError, OSError):
        while True:
            what, *texts = pipe.recv()
            reply: Any = None
            with suppress(Exception):  # whatever a hostile text brings up in there
                if what == "said":
                    reply = str(next(iter(read(texts[0])), ""))
                else:
                    reply = bool(verify(read(_boxed(texts[1])), read(texts[0]), timeout_seconds=None))
            pipe.send(reply)


def _boxed(answer: str) -> str:
    """An expected answer as the library finds it: in a box, unless it says itself where it stands."""
    return answer if "\\boxed" in answer or "$" in answer else f"\\boxed{{{answer}}}"


def _bound_memory() -> None:
    with suppress(ImportError, ValueError, OSError):
        import resource  # POSIX only

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

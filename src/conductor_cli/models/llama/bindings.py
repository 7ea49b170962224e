"""The door to llama.cpp: the one place that imports `llama_cpp`, and the keeper of what llama.cpp says.

Everything is called through the C functions that `llama_cpp` exposes; its classes are not used. llama.cpp prints
nothing: its log comes here, and its last error becomes the reason in a `ModelError`.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections import deque
from typing import Any, Final

from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama.build_info import RANGE, missing
from conductor_cli.models.llama.gguf import one_line

_INSTALL: Final = f"install it: python -m pip install --force-reinstall '{RANGE}'"

_ERROR: Final = 4
_CONTINUED: Final = 5

_LOCK = threading.Lock()
_LOADED: list[Any] = []
_HEARING = threading.Lock()
_HEARD: deque[tuple[int, int, str]] = deque(maxlen=400)
"""The last lines of llama.cpp's log: thread, level (1 debug to 4 error), text."""


def load_bindings() -> Any:  # noqa: ANN401 - a module of C functions
    """The module `llama_cpp`, imported at the first call, silenced. Raises `ModelError` where it cannot be used."""
    with _LOCK:
        if not _LOADED:
            _LOADED.extend(_open())
        return _LOADED[0]


def clear_log() -> None:
    """Drop what was heard on this thread, so that the next `reason` belongs to what comes now."""
    me = threading.get_ident()
    with _HEARING:
        kept = [line for line in _HEARD if line[0] != me]
        _HEARD.clear()
        _HEARD.extend(kept)


def last_error(otherwise: str) -> str:
    """The error that llama.cpp gave on this thread since `forget`, in one line."""
    me = threading.get_ident()
    with _HEARING:
        errors = [one_line(text) for thread, level, text in _HEARD if thread == me and level == _ERROR and text.strip()]
    told = [text for text in errors if "error loading model" in text] or errors
    # The first word of a line is the name of a C function, which tells a user nothing.
    return told[0].split(": ", 1)[-1].removeprefix("error loading model: ") if told else otherwise


def recent_log() -> tuple[str, ...]:
    """The last lines of llama.cpp's log in this process, from all threads, the oldest first."""
    with _HEARING:
        return tuple(text for _, _, text in _HEARD)


def abort_callback(lib: Any) -> Any:  # noqa: ANN401 - the module and a C function pointer
    """A C function that llama.cpp asks, with the address of a `Flag`, whether to stop.

    It is libc's `strlen`: 0 for an empty text, else 1. A Python function would be asked hundreds of times a token, and
    would wait for the interpreter's lock each time.
    """
    libc = ctypes.CDLL("msvcrt" if sys.platform == "win32" else None)
    return ctypes.cast(libc.strlen, lib.ggml_abort_callback)


class CancelToken:
    """One call's wish to stop, where C code can see it. Setting it is safe from any thread."""

    __slots__ = ("_text",)

    def __init__(self) -> None:
        self._text = ctypes.create_string_buffer(2)

    def set(self) -> None:
        self._text[0] = b"\1"

    @property
    def is_set(self) -> bool:
        return self._text[0] != b"\0"

    @property
    def address(self) -> int:
        return ctypes.addressof(self._text)


def _open() -> tuple[Any, Any]:
    _set_environment()
    try:
        import llama_cpp
    except (ImportError, OSError, RuntimeError, AttributeError) as error:  # the last: a library without a function
        raise ModelError("file", f"llama.cpp cannot be used: {one_line(str(error))}", hint=_INSTALL) from error
    absent = missing(llama_cpp)
    if absent:
        what = f"llama-cpp-python {one_line(str(llama_cpp.__version__))} has no {absent}"
        raise ModelError("file", f"llama.cpp cannot be used: {what}", hint=_INSTALL)
    recent_log = llama_cpp.llama_log_callback(_hear)
    llama_cpp.llama_log_set(recent_log, None)
    llama_cpp.llama_backend_init()
    return llama_cpp, recent_log


def _set_environment() -> None:
    """What C code reads from the environment when it is loaded. What the user has set stands."""
    # ggml would start a debugger after a failed assertion to print where it happened.
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    # Between two operations a thread of OpenMP spins until the others are there; where another program has the core, it
    # spins for nothing. Measured on two cores, 150 million parameters, tokens a second: alone 64 to 66 both with the
    # default of 300,000 turns and with 1,000; beside one busy program 1 to 5 with the default, 26 to 37 with 1,000.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def _hear(level: int, text: bytes, _: object) -> None:
    me = threading.get_ident()
    line = text.decode("utf-8", "replace")
    with _HEARING:
        if level != _CONTINUED:
            _HEARD.append((me, level, line))
        elif _HEARD and _HEARD[-1][0] == me:
            _, before, start = _HEARD.pop()
            _HEARD.append((me, before, (start + line)[:4000]))

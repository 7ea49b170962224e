"""The one place that imports `llama_cpp`, and that receives llama.cpp's log.

Everything is called through the C functions that `llama_cpp` exposes; its classes are not used.
llama.cpp prints nothing: its log comes here, and its last error becomes the reason in a
`ModelError`. The C interface changes without notice, so only versions of llama-cpp-python that were
tested are used.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import threading
from collections import deque
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.errors import ModelError
from conductor_cli.core.terminal_text import short_line

OLDEST_VERSION: Final = (0, 3, 36)
UNSUPPORTED_VERSION: Final = (0, 4)
"""The versions of llama-cpp-python that are supported: from the first one on, and before the
second.
"""

RANGE: Final = (
    f"llama-cpp-python>={'.'.join(map(str, OLDEST_VERSION))},"
    f"<{'.'.join(map(str, UNSUPPORTED_VERSION))}"
)
"""The same, as pip takes it."""

_INSTALL: Final = f"install it: python -m pip install --force-reinstall '{RANGE}'"

_ERROR: Final = 4
_CONTINUED: Final = 5  # llama.cpp's levels of a line in the log: an error; more of the line before
_LOADING = threading.Lock()
_LOADED: list[Any] = []
"""The module, and the callback for its log, which ctypes would free if nobody referred to it."""


class _Log(threading.local):
    """The last lines that llama.cpp has logged on this thread: level (1 debug to 4 error), text."""

    def __init__(self) -> None:
        self.lines: deque[tuple[int, str]] = deque(maxlen=400)


_LOG: Final = _Log()


def load_bindings() -> Any:  # noqa: ANN401 - a module of C functions
    """Return the module `llama_cpp`, imported and silenced at the first call.

    Raises `ModelError` if it cannot be used.
    """
    with _LOADING:
        if not _LOADED:
            _LOADED.extend(_import())
        return _LOADED[0]


def is_installed() -> bool:
    """Return whether llama-cpp-python is installed. Nothing is imported."""
    return find_spec("llama_cpp") is not None


def built_wheel_command() -> str:
    """Return the command that adds llama.cpp to this installation without a compiler.

    It keeps the extras that are installed already.
    """
    from conductor_cli.system.installation import extra_command  # reads all packages

    index = "https://abetlen.github.io/llama-cpp-python/whl/cpu"
    if sys.platform == "darwin":
        index = "https://abetlen.github.io/llama-cpp-python/whl/metal"
    if Path(sys.prefix, "uv-receipt.toml").exists():
        return f"{extra_command('local')} --index {index}"
    if Path(sys.prefix, "pipx_metadata.json").exists():
        pip_options = f"--prefer-binary --extra-index-url {index}"
        return f'pipx inject conductor-llm "{RANGE}" --pip-args="{pip_options}"'
    return f'{sys.executable} -m pip install --prefer-binary --extra-index-url {index} "{RANGE}"'


def is_supported(version: str) -> bool:
    """Return whether this version of llama-cpp-python is one that is tested."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:3])
    return numbers >= OLDEST_VERSION and numbers[: len(UNSUPPORTED_VERSION)] < UNSUPPORTED_VERSION


def can_use_gpu(lib: Any) -> bool:  # noqa: ANN401 - the module, as `load_bindings` gives it
    """Return whether layers of a model can be put on a GPU.

    Llama.cpp was built for one, and there is one.
    """
    return bool(lib.llama_supports_gpu_offload())


def clear_log() -> None:
    """Drop what this thread has logged, so that the next `last_error` belongs to what comes now."""
    _LOG.lines.clear()


def last_error(otherwise: str = "llama.cpp gave no reason") -> str:
    """Return the error that llama.cpp logged on this thread since `clear_log`, in one line."""
    errors = []
    for level, text in _LOG.lines:
        if level == _ERROR and text.strip():
            errors.append(short_line(text))
    errors = [text for text in errors if "error loading model" in text] or errors
    if not errors:
        return otherwise
    # The first word of a line is the name of a C function, which tells a user nothing.
    reason = errors[0].split(": ", 1)[-1]
    return reason.removeprefix("error loading model: ")


def abort_callback(lib: Any) -> Any:  # noqa: ANN401 - the module and a C function pointer
    """Return a C function that llama.cpp asks whether to stop.

    It is given the address of a `CancelToken`. It is libc's `strlen`: 0 for an empty text, else 1.
    A Python function would be called hundreds of times a token, and would wait for the
    interpreter's lock each time.
    """
    libc = ctypes.CDLL("msvcrt" if sys.platform == "win32" else None)
    return ctypes.cast(libc.strlen, lib.ggml_abort_callback)


class CancelToken:
    """A flag that stops a call, in memory that C code can read.

    Setting it is safe from any thread.
    """

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


def set_environment() -> None:
    """Set what C code reads from the environment when it is loaded.

    What the user has set is not changed.
    """
    # After a failed assertion ggml would start a debugger to print where it happened.
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    # numpy only samples here. Each thread of its library reserves memory, and where there is none
    # that ends the process.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Between two operations, a thread of OpenMP spins until the others are there; if another
    # program has the core, it spins for nothing: 1 to 5 tokens a second with the default of 300,000
    # turns, 26 to 37 with 1,000.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def _import() -> tuple[Any, Any]:
    set_environment()
    try:
        import llama_cpp
    except ModuleNotFoundError as error:
        hint = f"models on this machine need it: {built_wheel_command()}"
        raise ModelError("file", "llama.cpp is not installed", hint=hint) from error
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        # The last: a library without a function
        raise ModelError(
            "file", f"llama.cpp cannot be used: {short_line(str(error))}", hint=_INSTALL
        ) from error
    if not is_supported(llama_cpp.__version__):
        problem = (
            f"version {short_line(str(llama_cpp.__version__))} of llama-cpp-python is not supported"
        )
        raise ModelError("file", f"llama.cpp cannot be used: {problem}", hint=_INSTALL)
    callback = llama_cpp.llama_log_callback(_log)
    llama_cpp.llama_log_set(callback, None)
    _load_backends()
    llama_cpp.llama_backend_init()
    return llama_cpp, callback


def _load_backends() -> None:
    """Load the code for this CPU where it is a library of its own, as in a build for all CPUs.

    Ggml picks the best.

    llama-cpp-python loads none, and ggml by itself would look beside Python and in the current
    directory.
    """
    from llama_cpp import _ggml, llama_cpp

    # A wheel has copies for links, so what llama.cpp is linked with may be another copy than the
    # one of `_ggml`. It finds what it is linked with
    ggml = llama_cpp._lib if os.name == "posix" else _ggml.libggml  # noqa: SLF001
    if not ggml.ggml_backend_reg_count():
        ggml.ggml_backend_load_all_from_path(os.fsencode(_ggml.libggml_base_path))


def _log(level: int, text: bytes, _: object) -> None:
    line = text.decode("utf-8", "replace")
    if level == _CONTINUED and _LOG.lines:
        level, start = _LOG.lines.pop()
        line = (start + line)[:4000]
    _LOG.lines.append((level, line))

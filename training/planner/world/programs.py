"""The workers that are programs.

Each reads its subtask and the answers on its access list, and nothing else.

A number of an earlier step is called by it: `a2` is the answer of step 2. So a planner has to word
a subtask as the program wants it: an expression for Python and bc, a SELECT for SQLite. Faults are
the programs' own: bc without its library divides whole numbers, as its manual says.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from conductor_cli.core.errors import ConfigError

Seen = Mapping[int, str]
Program = Callable[[str, Seen], str]

SECONDS: Final = 10.0  # The longest that a program may run
ANSWER_CHARS: Final = 2000
SQL_VALUE_BYTES: Final = 1_000_000  # The longest value or text of a query
SQL_STEPS: Final = 5_000_000  # Instructions of SQLite's machine after which a query is given up

# The only directory of the sandbox that can be written, empty at first
WORK_DIRECTORY: Final = "/work"
KNOWN_NAMES: Final = frozenset(
    {
        "abs",
        "all",
        "any",
        "bool",
        "datetime",
        "divmod",
        "enumerate",
        "float",
        "int",
        "len",
        "list",
        "math",
        "max",
        "min",
        "pow",
        "range",
        "reversed",
        "round",
        "set",
        "sorted",
        "str",
        "sum",
        "tuple",
        "zip",
        "True",
        "False",
        "None",
    }
)
"""The names, beside single letters and answers, that an expression may have."""

_NUMBER: Final = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")
_NAME: Final = re.compile(r"\ba(\d)\b")
_SELECT: Final = re.compile(r"\bselect\b.*", re.IGNORECASE | re.DOTALL)


def value_of(answer: str) -> str:
    """The number of an answer as a literal of Python; its text as one if it has none."""
    match = _NUMBER.search(answer)
    if match:
        return match[0].replace(",", "")
    return repr(answer.strip())


def find_expression(subtask: str) -> str:
    """The longest run of words that is an expression with an operation in it.

    Empty if there is none.
    """
    words = subtask.replace("`", " ").strip().rstrip(".?!").split(" ")
    for length in range(len(words), 0, -1):
        for start in range(len(words) - length + 1):
            text = " ".join(words[start : start + length]).strip().rstrip(",:?!.")
            if _is_expression(text):
                return text
    return ""


def _is_expression(text: str) -> bool:
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    kinds = (ast.BinOp, ast.Call, ast.Compare, ast.Subscript, ast.UnaryOp)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if not all(len(name) == 1 or _NAME.fullmatch(name) or name in KNOWN_NAMES for name in names):
        return False  # words of a sentence, such as "and give"
    has_operation = any(isinstance(node, kinds) for node in ast.walk(tree))
    has_value = (
        any(isinstance(node, ast.Constant) for node in ast.walk(tree))
        or _NAME.search(text) is not None
    )
    return has_operation and has_value


def run_python(subtask: str, seen: Seen) -> str:
    """What Python prints for the expression of a subtask."""
    expression = find_expression(subtask)
    if not expression:
        return "SyntaxError: there is no expression"
    values = "\n".join(f"a{number} = {value_of(answer)}" for number, answer in seen.items())
    return run_program(f"import datetime, math\n{values}\nprint({expression})")


def run_program(code: str) -> str:
    """What a Python program prints in a sandbox.

    No network, no files of this machine but the system's programs.

    Raises `ConfigError` where there is no sandbox.
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise ConfigError(
            "the world's Python runs in a sandbox, and bwrap is missing", hint="install bubblewrap"
        )
    if "\0" in code:  # No argument of a program may hold one
        return "SyntaxError: source code cannot contain null bytes"
    links: list[str] = []
    for name in ("bin", "lib", "lib64"):
        links += ["--symlink", f"usr/{name}", f"/{name}"]
    box = (
        bwrap,
        "--unshare-all",
        "--die-with-parent",
        "--new-session",
        "--clearenv",
        "--ro-bind",
        "/usr",
        "/usr",
        *links,
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--tmpfs",
        WORK_DIRECTORY,
        "--chdir",
        WORK_DIRECTORY,
    )
    limits = ("prlimit", "--as=1073741824", "--cpu=5", "--fsize=1048576")
    return _output((*box, *limits, _python(), "-I", "-c", code), "")


def _python() -> str:
    """A Python of the system, which the sandbox has; a virtual environment is not in it."""
    own = Path(os.path.realpath(sys.executable))
    if not own.is_relative_to("/usr"):
        return "python3"
    return str(own)


def run_bc(subtask: str, seen: Seen) -> str:
    """What bc prints, without its library, for the expression of a subtask."""
    expression = find_expression(subtask)
    for number, answer in seen.items():
        expression = re.sub(rf"\ba{number}\b", value_of(answer), expression)
    if not expression or not re.fullmatch(r"[\d\s.+\-*/%()^]+", expression.replace("**", "^")):
        return "(standard_in) 1: syntax error"
    return _output(("bc", "-q"), expression.replace("**", "^") + "\n")


def _output(command: tuple[str, ...], given: str) -> str:
    """The last lines that a program prints; its error if it prints nothing else."""
    try:
        done = subprocess.run(
            command,
            input=given,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        return "error: it took too long"
    return (done.stdout.strip() or done.stderr.strip())[-ANSWER_CHARS:]


def sqlite_worker(file: Path) -> Program:
    """A worker that runs the SELECT of its subtask on a file, which it cannot change."""

    def run(subtask: str, seen: Seen) -> str:
        match = _SELECT.search(subtask.replace("`", " "))
        if match is None:
            return "error: there is no SELECT"
        query = match[0].strip().rstrip(".;")
        values = {
            f"a{number}": ast.literal_eval(value_of(answer)) for number, answer in seen.items()
        }
        database = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
        # The text comes from a model: it may read the tables, and nothing else.
        database.set_authorizer(_only_reading)
        database.set_progress_handler(lambda: 1, SQL_STEPS)
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, SQL_VALUE_BYTES)
        try:
            rows = database.execute(_NAME.sub(r":a\1", query), values).fetchmany(20)
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            return f"error: {error}"
        finally:
            database.close()
        return "\n".join(" | ".join(map(str, row)) for row in rows)[:ANSWER_CHARS] or "no row"

    return run


def _only_reading(
    action: int, _one: object, two: object, _database: object, _trigger: object
) -> int:
    allowed = action in {
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_RECURSIVE,
    }
    if allowed and two != "load_extension":
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def open_programs(tables: Mapping[str, Path]) -> dict[str, Program]:
    """The programs of the world by kind."""
    return {
        "py": run_python,
        "bc": run_bc,
        "db": sqlite_worker(tables["new"]),
        "db-old": sqlite_worker(tables["old"]),
    }

"""Programs that a model wrote are taken out of its text, and judged by running their tests in a sandbox.

    program   tests of input and output, as LiveCodeBench has them: the program reads and writes, or has a function
    unittest  a class of unit tests, as BigCodeBench has them, in the same module as the program

Right outputs never enter the sandbox: what a program writes is compared outside. Unit tests have to be inside, so a
program that searches for them could cheat; it can do so in the harness of their authors, too.
"""

from __future__ import annotations

import ast
import base64
import json
import os
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Final

from conductor_cli.core.errors import ConfigError
from conductor_cli.core.serialization import load
from conductor_cli.programs.sandbox import (
    NoSandbox,
    SandboxEngine,
    SandboxError,
    SandboxLimits,
    SandboxProcess,
    SandboxProgram,
    find_engine,
)

MAX_TEXT: Final = 200_000  # Characters at the end of a text in which a program is searched
MAX_LINES: Final = 1000  # Lines in which the longest program is searched: the time grows with their square
MAX_WORK: Final = 30_000  # Lines that are read in that search, one second or two
_FENCE: Final = "```"


def last_block(text: str) -> str:
    """The lines between the last two fences, the rule of LiveCodeBench (`extraction_utils.py`); empty without two."""
    lines = text[-MAX_TEXT:].split("\n")
    fences = [number for number, line in enumerate(lines) if _FENCE in line]
    return "\n".join(lines[fences[-2] + 1 : fences[-1]]) if len(fences) > 1 else ""


def function_with_its_needs(text: str, entry_point: str) -> str:
    """The imports, and the definitions that a function needs, the rule of BigCodeBench (`sanitize.py`).

    They are taken from the longest piece of the text that is Python. What else is at the top of it, such as examples
    and calls, is left out. Without the function, the piece as it is.
    """
    code = longest_program(text[-MAX_TEXT:].strip())
    if not code:
        return ""
    tree = parse(code)
    nodes = [*_named_definitions(tree)]
    needs = {name: _identifiers(node) for name, node in nodes}
    reached, waiting = {entry_point}, [entry_point]
    while waiting:
        fresh = needs.get(waiting.pop(), set()) - reached
        reached |= fresh
        waiting += fresh & needs.keys()
    wanted: list[ast.stmt] = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    wanted += [node for name, node in nodes if name in reached]
    kept = [ast.get_source_segment(code, node) or "" for node in wanted]
    return _without_calls("\n".join(kept), entry_point).strip() or code


def _named_definitions(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """The first definition of each name at the top. What is decorated is left out, as its authors do."""
    seen = set()
    for node in tree.body:
        name = ""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.decorator_list:
            name = node.name
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        if name and name not in seen:
            seen.add(name)
            yield name, node


def _identifiers(node: ast.AST) -> set[str]:
    """Every name in a piece of code, also those of attributes and arguments."""
    found = set()
    for each in ast.walk(node):
        for field in ("id", "attr", "arg", "name"):
            value = getattr(each, field, None)
            if isinstance(value, str):
                found.add(value)
    return found


def _without_calls(code: str, entry_point: str) -> str:
    """Without what stands after the last indented line, from its first line with the function's name on."""
    lines = code.splitlines()
    end = next((number for number in range(len(lines), 0, -1) if lines[number - 1].startswith(" ")), 0)
    cut = next((number for number in range(end, len(lines)) if entry_point in lines[number]), None)
    return code if cut is None else "\n".join(lines[:cut])


def longest_program(text: str) -> str:
    """The piece of whole lines that is Python and has the most lines; the first of several.

    A text that is made to take long is given up after `MAX_WORK`, with the best piece so far.
    """
    lines = text.split("\n")[:MAX_LINES]
    best, most, work = "", 0, 0
    for begin in range(len(lines)):
        if sum(1 for line in lines[begin:] if line.strip()) <= most or work > MAX_WORK:
            break
        end, more = _end_of_program(lines, begin)
        work += more
        size = sum(1 for line in lines[begin:end] if line.strip())
        if size > most:
            best, most = "\n".join(lines[begin:end]), size
    return best


def _end_of_program(lines: list[str], begin: int) -> tuple[int, int]:
    """Where the longest piece of Python ends that begins at this line, and how many lines were read to find it.

    No piece can go on beyond an error in it.
    """
    end, work = len(lines), 0
    while end > begin and work <= MAX_WORK:
        try:
            parse("\n".join(lines[begin:end]))
        except SyntaxError as error:
            at = max((error.lineno or 1) - 1, 0)
            # What is never closed is read to the end.
            work += end - begin if "never closed" in error.msg or "unterminated" in error.msg else at + 1
            end = min(end - 1, begin + at)
        except (ValueError, MemoryError, RecursionError):
            work += end - begin
            end -= (end - begin + 1) // 2
        else:
            return end, work + end - begin
    return begin, work


def parse(code: str) -> ast.Module:
    """The syntax tree. Raises `SyntaxError`, or another error for a hostile text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(code)


SECONDS: Final = 6.0  # For one test of input and output; the limit of LiveCodeBench
UNIT_SECONDS: Final = 240.0  # For all unit tests of a program; the limit of BigCodeBench
UNIT_LIMITS: Final = SandboxLimits(memory=4 << 30, address_space=30 << 30, processes=128, scratch=256 << 20)
MAX_TESTS: Final = 1 << 30  # Bytes of the tests of one case, unpacked

_NAMES: Final = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics", "itertools",
    "functools", "operator", "io", "sys", "json",
)  # fmt: skip
PREPARE: Final = (
    "\n".join(f"from {name} import *" for name in (*_NAMES, "builtins", "typing"))
    + "\n"
    + "\n".join(f"import {name}" for name in _NAMES)
    + "\nsys.setrecursionlimit(50000)\n"
    + "if hasattr(sys, 'set_int_max_str_digits'): sys.set_int_max_str_digits(50000)\n"
)
"""The names that LiveCodeBench gives to each program (`testing_util.py`)."""

CALL: Final = """
def _conductor_call(name, in_class):
    import json, os, sys
    def same(value):
        if hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0:
            value = value.item()
        if isinstance(value, dict) and all(type(key) is str for key in value):
            return {key: same(each) for key, each in value.items()}
        if isinstance(value, list):
            return [same(each) for each in value]
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        raise TypeError(type(value).__name__)
    space = sys._getframe(1).f_globals
    call = getattr(space["Solution"](), name) if in_class else space[name]
    value = call(*[json.loads(line) for line in sys.stdin.read().split("\\n")])
    if isinstance(value, tuple):
        value = list(value)
    with open(3, "w", closefd=False) as report:
        report.write(json.dumps(same(value)))
"""
"""Calls the function with what is on standard input, a JSON value a line, and reports its value as JSON."""

UNIT: Final = """
def _conductor_test():
    import os, unittest
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(TestCases).run(result)
    bad = [test.id().rpartition(".")[2] for test, _ in (*result.failures, *result.errors)]
    os.write(3, f"{token} {result.testsRun} {' '.join(bad)}".encode()[:4000])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class IoTests:
    """Inputs with their right outputs. With a `function`, they are JSON: a line for each argument, and the value."""

    tests: tuple[tuple[str, str], ...]
    function: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitTests:
    """The `code` of a class `TestCases` that tests the function `entry_point`.

    `before` is the beginning of that function, which is defined first, so that its imports are there. `libraries` are
    the modules that the tests need.
    """

    code: str
    entry_point: str
    before: str = ""
    libraries: tuple[str, ...] = ()


def dump_tests(tests: IoTests | UnitTests) -> str:
    """Tests as the answer of a case. Those of input and output are packed, since they may have many megabytes."""
    if isinstance(tests, UnitTests):
        data: dict[str, Any] = {"entry_point": tests.entry_point, "before": tests.before, "tests": tests.code}
        return json.dumps({**data, "libraries": tests.libraries}, ensure_ascii=False)
    packed = base64.b64encode(zlib.compress(json.dumps(tests.tests).encode(), 6)).decode()
    return json.dumps({"function": tests.function, "tests": packed})


@lru_cache(maxsize=2)
def load_io_tests(answer: str) -> IoTests:
    """Raises `ValueError`."""
    data = json.loads(answer)
    if isinstance(data, dict) and isinstance(data.get("tests"), str):
        unpacker = zlib.decompressobj()
        try:
            unpacked = unpacker.decompress(base64.b64decode(data["tests"], validate=True), MAX_TESTS)
        except zlib.error as error:
            raise ValueError(f"the tests cannot be unpacked: {error}") from None
        data["tests"] = json.loads(unpacked)
    found = load(IoTests, data, "")
    if not found.tests or any(len(test) != 2 for test in found.tests):
        raise ValueError("the tests are no list of inputs and outputs")
    return found


def load_unit_tests(answer: str) -> UnitTests:
    """Raises `ValueError`."""
    data = json.loads(answer)
    if isinstance(data, dict):
        data["code"] = data.pop("tests", "")
    found = load(UnitTests, data, "")
    if "TestCases" not in found.code or not found.entry_point.isidentifier():
        raise ValueError("there is no class TestCases, or no name of a function")
    return found


# The sandbox

_ENGINE: ContextVar[SandboxEngine | None] = ContextVar("engine", default=None)


@contextmanager
def judging_in(engine: SandboxEngine | None) -> Iterator[None]:
    """Programs are judged in this sandbox, here and in threads that are started from here."""
    token = _ENGINE.set(engine)
    try:
        yield
    finally:
        _ENGINE.reset(token)


def require_sandbox(choice: str = "") -> SandboxEngine:
    """The sandbox that works here. Raises `ConfigError` that says why none does."""
    try:
        return find_engine(choice, os.environ)
    except NoSandbox as error:
        raise ConfigError(str(error), hint=error.hint) from None


def require_libraries(engine: SandboxEngine, names: Sequence[str]) -> None:
    """Raise `ConfigError` unless the interpreter of the sandbox has these modules.

    Without them, right programs would count as wrong.
    """
    wanted = sorted({name.partition(".")[0] for name in names})
    code = f"import importlib.util\nprint(*[x for x in {wanted!r} if importlib.util.find_spec(x) is None])"
    with _sandbox(engine, SandboxProgram(code=code)) as confined:
        ending = confined.run(b"", 60)
    if missing := ending.output.decode("utf-8", "replace").split():
        raise ConfigError(
            f"the Python of the sandbox lacks {len(missing)} modules that the tests need: {', '.join(missing)[:300]}",
            hint="name another: --sandbox bubblewrap:/path/to/python, or docker:bigcodebench/bigcodebench-evaluate",
        )
    if not ending.fine:
        raise ConfigError(f"the Python of the sandbox does not work: {ending.complaint[:200]}", hint="try another one")


def _sandbox(
    engine: SandboxEngine | None, program: SandboxProgram, limits: SandboxLimits | None = None
) -> SandboxProcess:
    return SandboxProcess(engine or _ENGINE.get() or require_sandbox(), program, limits)


# Judging


def extract_program(text: str, _: Sequence[str] = ()) -> str:
    """The program in a text."""
    return last_block(text)


def passes_io_tests(text: str, answer: str, _: Sequence[str] = ()) -> bool:
    """Whether the program in a text gives the right output for each input. Raises `ConfigError` without a sandbox."""
    code, tests = last_block(text), load_io_tests(answer)
    if not code.strip():
        return False
    if tests.function:
        after = f"_conductor_call({tests.function!r}, {'class Solution' in code})"
        program = SandboxProgram(code=code, before=PREPARE + CALL, after=after, name="solution")
    else:
        program = SandboxProgram(code=code, before=PREPARE)
    try:
        with _sandbox(None, program) as confined:
            for given, expected in tests.tests:
                ending = confined.run(given.encode("utf-8", "surrogatepass"), SECONDS)
                # The harness of the authors ignores the exit code of a program, but no exception.
                ended = ending.end == "exit" and (not ending.code or not ending.complaint.strip())
                if not ended:
                    return False
                right = same_value(ending.report, expected) if tests.function else same_output(ending.output, expected)
                if not right:
                    return False
    except SandboxError as error:
        raise ConfigError(str(error), hint="conductor doctor") from None
    return True


def same_output(output: bytes, expected: str) -> bool:
    """Whether an output is the right one: equal lines without the white space around them, or equal numbers in them."""
    given, wanted = _lines(output.decode("utf-8", "replace")), _lines(expected)
    return len(given) == len(wanted) and all(
        one == other or _same_numbers(one, other) for one, other in zip(given, wanted, strict=True)
    )


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]


def _same_numbers(one: str, other: str) -> bool:
    try:
        return [Decimal(word) for word in one.split()] == [Decimal(word) for word in other.split()]
    except InvalidOperation:
        return False


def same_value(report: bytes, expected: str) -> bool:
    """Whether a value in JSON is the right one."""
    try:
        return bool(json.loads(report) == json.loads(expected))
    except (ValueError, RecursionError):
        return False


def passes_unit_tests(text: str, answer: str, _: Sequence[str] = ()) -> bool:
    """Whether the function in a text passes its unit tests, of which there is one at least. Raises `ConfigError`."""
    tests = load_unit_tests(answer)
    code = function_with_its_needs(text, tests.entry_point)
    if not code.strip():
        return False
    before = f"{tests.before}\n    pass\n" if tests.before.strip() else ""
    token = os.urandom(8).hex()
    after = f"{UNIT.replace('{token}', token)}\n_conductor_test()"
    begin = "import os, sys\nfrom os import environ\n"  # as its authors' harness has them
    program = SandboxProgram(code=f"{before}{code}\n{tests.code}", before=begin, after=after, name="__test__")
    try:
        with _sandbox(None, program, UNIT_LIMITS) as confined:
            ending = confined.run(b"", UNIT_SECONDS)
    except SandboxError as error:
        raise ConfigError(str(error), hint="conductor doctor") from None
    said = ending.report.decode("utf-8", "replace").split()
    return ending.end == "exit" and len(said) == 2 and said[0] == token and said[1] != "0"


def can_run_io_tests(answer: str, _: Sequence[str] = ()) -> bool:
    """Whether an answer has tests of input and output. Packed ones are not unpacked, since that takes long."""
    try:
        data = json.loads(answer)
        return isinstance(data, dict) and (isinstance(data.get("tests"), str) or bool(load_io_tests(answer)))
    except (ValueError, RecursionError):
        return False


def can_run_unit_tests(answer: str, _: Sequence[str] = ()) -> bool:
    """Whether an answer has unit tests."""
    try:
        return bool(load_unit_tests(answer))
    except (ValueError, RecursionError):
        return False

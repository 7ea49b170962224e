"""Programs that a model wrote are taken out of its text, and judged by running their tests in a sandbox.

The tests have inputs and outputs, as those of LiveCodeBench: the program reads and writes, or has a function. Right
outputs never enter the sandbox: what a program writes is compared outside.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Final

from conductor_cli.core.errors import ConfigError
from conductor_cli.core.serialization import load
from conductor_cli.programs.sandbox import (
    NoSandbox,
    SandboxEngine,
    SandboxError,
    SandboxProcess,
    SandboxProgram,
    find_engine,
)

MAX_TEXT: Final = 200_000  # Characters at the end of a text in which a program is searched
_FENCE: Final = "```"


def last_block(text: str) -> str:
    """The lines between the last two fences, the rule of LiveCodeBench (`extraction_utils.py`); empty without two."""
    lines = text[-MAX_TEXT:].split("\n")
    fences = [number for number, line in enumerate(lines) if _FENCE in line]
    return "\n".join(lines[fences[-2] + 1 : fences[-1]]) if len(fences) > 1 else ""


SECONDS: Final = 6.0  # For one test of input and output; the limit of LiveCodeBench
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


@dataclass(frozen=True, slots=True, kw_only=True)
class IoTests:
    """Inputs with their right outputs. With a `function`, they are JSON: a line for each argument, and the value."""

    tests: tuple[tuple[str, str], ...]
    function: str = ""


def dump_tests(tests: IoTests) -> str:
    """Tests as the answer of a case. They are packed, since they may have many megabytes."""
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
        with SandboxProcess(_ENGINE.get() or require_sandbox(), program) as confined:
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


def can_run_io_tests(answer: str, _: Sequence[str] = ()) -> bool:
    """Whether an answer has tests of input and output. Packed ones are not unpacked, since that takes long."""
    try:
        data = json.loads(answer)
        return isinstance(data, dict) and (isinstance(data.get("tests"), str) or bool(load_io_tests(answer)))
    except (ValueError, RecursionError):
        return False

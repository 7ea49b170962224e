"""Scores the program in a model's text by running its tests in a sandbox.

There are three kinds of tests, which are the answer of a case, as JSON:

    {"tests": [["INPUT", "OUTPUT"], …]}
        The program reads and writes. With "function", an input is a JSON value a line for each
        argument, and the output is the value as JSON. LiveCodeBench
    {"asserts": "assert f(1) == 2"}
        Code that fails where the program is wrong. HumanEval, MBPP
    {"unittest": "class TestCases(…): …"}
        Unit tests that replace parts of the program's module. BigCodeBench

What is right never enters the sandbox of the program: outputs are compared here, and asserts run in
a sandbox of their own, which asks that of the program for values. So a program can only answer.
Unit tests have to run in the process of the program, and a program that was written against them
can forge their result; docs/eval.md says so.
"""

from __future__ import annotations

import base64
import binascii
import json
import pickletools
import secrets
import sys
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Final

from conductor_cli.core.errors import ConfigError
from conductor_cli.core.mappings import without_empty
from conductor_cli.core.serialization import load
from conductor_cli.evals.program_text import (
    defined_names,
    find_program,
    names_in,
    parse,
    test_methods,
)
from conductor_cli.evals.sandbox import (
    PYTHON_SETTING,
    Interpreter,
    Sandbox,
    SandboxEnded,
    SandboxError,
    SandboxLimits,
    current_interpreter,
    missing_modules,
    open_sandboxes,
    read_run,
    wall_seconds,
)
from conductor_cli.evals.score import UNSCORED, Score

# Of processor time for one test of input and output; the limit of LiveCodeBench, by the clock
SECONDS: Final = 6.0
ASSERT_SECONDS: Final = 10.0  # Of processor time for all asserts of a case
UNIT_SECONDS: Final = 60.0  # Of processor time for all unit tests of a case
MAX_TESTS: Final = 1 << 30  # Bytes of the tests of one case, unpacked
MAX_WHY: Final = 300  # Characters of a reason

UNIT_LIMITS: Final = SandboxLimits(
    memory=4 << 30, address_space=32 << 30, processes=256, scratch=256 << 20
)
"""Libraries for data and learning reserve much more memory than they use, and start threads."""

ENDS: Final = {
    "time": "it took too much processor time",
    "wall": "it waited too long",
    "output": "it wrote too much",
    "memory": "it took too much memory",
    "processes": "it started too many processes or threads",
    "signal": "it crashed",
    "exit": "it ended its process",
    "broken": "it broke the protocol of the sandbox",
}
"""Why a program was ended, in words."""


# The tests of a case


@dataclass(frozen=True, slots=True, kw_only=True)
class IoTests:
    """Inputs with their right outputs.

    With a `function`, they are JSON: a line for each argument, and the value.
    """

    tests: tuple[tuple[str, str], ...]
    function: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertTests:
    """Code that raises an error where the program is wrong.

    `before` is the beginning of the program as the question has it: the imports and functions in it
    are there for the program and for the tests. An answer without `function` goes on where it ends.
    `names` are what the tests take from the program; without them, all that they read and do not
    have. The less that is, the less a program can mislead.
    """

    asserts: str
    function: str = ""
    before: str = ""
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitTests:
    """Code with a class `TestCases` that tests a function in its own module.

    `libraries` are the modules that the tests need. `reference` is a right program: where it fails,
    too, the tests cannot run here.
    """

    unittest: str
    function: str
    before: str = ""
    libraries: tuple[str, ...] = ()
    reference: str = ""


Tests = IoTests | AssertTests | UnitTests


def dump_tests(tests: Tests) -> str:
    """Return tests as the answer of a case.

    Those of input and output are packed, as they may have many megabytes.
    """
    if isinstance(tests, IoTests):
        packed = base64.b64encode(zlib.compress(json.dumps(tests.tests).encode(), 6)).decode()
        return json.dumps({"tests": packed, "function": tests.function})
    given = {name: getattr(tests, name) for name in tests.__dataclass_fields__}
    return json.dumps(without_empty(given), ensure_ascii=False)


@lru_cache(maxsize=4)
def load_tests(answer: str) -> Tests:
    """Return the tests that the answer of a case holds.

    Raises `ValueError` that says what is wrong with them.
    """
    content = json.loads(answer)
    if not isinstance(content, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - the file's fault
    if "asserts" in content:
        asserts = load(AssertTests, content, "")
        parse(asserts.asserts)
        return asserts
    if "unittest" in content:
        units = load(UnitTests, content, "")
        if not test_methods(units.unittest):
            raise ValueError("there is no class TestCases with tests")
        return units
    if isinstance(content.get("tests"), str):
        content["tests"] = json.loads(_unpack(content["tests"], "the tests"))
    tests = load(IoTests, content, "")
    if not tests.tests:
        raise ValueError("there are no tests")
    if tests.function:
        for given, expected in tests.tests:
            _call_of(given, expected)
    return tests


def can_run(answer: str, _: Sequence[str] = ()) -> bool:
    """Return whether an answer has tests. Packed ones are not unpacked, since that takes long."""
    try:
        content = json.loads(answer)
        return isinstance(content, dict) and (
            isinstance(content.get("tests"), str) or bool(load_tests(answer))
        )
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return False


def _unpack(text: str, noun: str) -> bytes:
    try:
        unpacker = zlib.decompressobj()
        unpacked = unpacker.decompress(base64.b64decode(text, validate=True), MAX_TESTS)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"{noun} cannot be unpacked: {error}") from None
    if not unpacker.eof:
        raise ValueError(f"{noun} are cut off or too large")
    return unpacked


def livecodebench_tests(text: str) -> list[tuple[str, str]]:
    """Return tests as LiveCodeBench has them: JSON.

    Or, to make them smaller, JSON in a pickle in zlib in base64.

    Nothing is unpickled. Raises `ValueError`.
    """
    if not text.lstrip().startswith("["):
        text = pickled_text(_unpack(text, "the private tests"))
    tests = json.loads(text)
    if not isinstance(tests, list):
        raise ValueError("the tests are no list")  # noqa: TRY004 - the file's fault
    return [_input_and_output(test) for test in tests]


def _input_and_output(test: object) -> tuple[str, str]:
    if isinstance(test, Mapping):
        given = test.get("input")
        expected = test.get("output")
        if isinstance(given, str) and isinstance(expected, str):
            return given, expected
    raise ValueError("a test has no input or no output")


_HARMLESS: Final = {"PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT", "STOP"}
_TEXTS: Final = {
    "SHORT_BINUNICODE",
    "BINUNICODE",
    "BINUNICODE8",
    "SHORT_BINBYTES",
    "BINBYTES",
    "BINBYTES8",
}


def pickled_text(pickled: bytes) -> str:
    """Return the one text in a pickle, of which no operation is run.

    Raises `ValueError` for any other.
    """
    texts = []
    try:
        for opcode, value, _ in pickletools.genops(pickled):
            if opcode.name in _TEXTS:
                if isinstance(value, bytes):
                    value = value.decode("utf-8")  # noqa: PLW2901 - the same text
                texts.append(str(value))
            elif opcode.name not in _HARMLESS:
                raise ValueError(f"the pickle holds more than a text: {opcode.name}")
    except (IndexError, OverflowError, UnicodeError) as error:
        raise ValueError(f"the pickle is damaged: {error}") from None
    if len(texts) != 1:
        raise ValueError("the pickle does not hold one text")
    return texts[0]


# Scoring


def score_program(text: str, answer: str, _: Sequence[str] = ()) -> Score:
    """Return whether the program in a text passes the tests of a case.

    Raises `ConfigError` without a sandbox.
    """
    try:
        tests = load_tests(answer)
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        return Score(
            right=None, why=f"{UNSCORED}: the tests of the case cannot be read: {error}"[:MAX_WHY]
        )
    program = find_program(text, tests.function)
    if not program.code.strip():
        return Score(right=False, why=program.source)
    interpreter = current_interpreter()
    try:
        score = _score(program.code, tests, interpreter)
    except SandboxError as error:
        return Score(right=None, why=f"{UNSCORED}: {error}"[:MAX_WHY])
    source = ""
    if score.right is not None:
        source = f"{program.source}: "
    return Score(right=score.right, why=f"{source}{score.why}"[:MAX_WHY])


def extract_program(text: str, _: Sequence[str] = ()) -> str:
    """Return the program in a text, which is its answer where several are counted."""
    return find_program(text).code.strip()


def passes(text: str, answer: str, choices: Sequence[str] = ()) -> bool:
    """Return whether the program in a text passes.

    Raises `ConfigError` where that cannot be found out.
    """
    score = score_program(text, answer, choices)
    if score.right is None:
        raise ConfigError(
            score.why,
            hint="conductor eval tells which cases these are; docs/eval.md has the reasons",
        )
    return score.right


def _score(code: str, tests: Tests, interpreter: Interpreter) -> Score:
    if isinstance(tests, AssertTests):
        return _run_asserts(code, tests, interpreter)
    if isinstance(tests, UnitTests):
        return _score_unit_tests(code, tests, interpreter)
    if tests.function:
        return _run_calls(code, tests, interpreter)
    return _run_streams(code, tests, interpreter)


def _failed(number: int, count: int, why: str) -> Score:
    return Score(right=False, why=f"test {number} of {count}: {why}")


def _run_streams(code: str, tests: IoTests, interpreter: Interpreter) -> Score:
    """Give the program each input, in a new process, and compare what it writes."""
    head = json.dumps({"seconds": SECONDS}).encode() + b"\n"
    count = len(tests.tests)
    number = 0
    with Sandbox(interpreter=interpreter, job={"way": "run", "code": code}) as sandbox:
        try:
            sandbox.begin(SECONDS)
            for number, (given, expected) in enumerate(tests.tests, start=1):
                message = head + given.encode("utf-8", "surrogatepass")
                ending = read_run(sandbox.exchange(message, SECONDS))
                if ending["end"] != "exit":
                    return _failed(number, count, ENDS[ending["end"]])
                # The harness of the authors ignores how a program exits and what it writes to
                # standard error, but no exception.
                if ending["raised"]:
                    return _failed(number, count, ending["complaint"].strip())
                if not same_output(ending["output"], expected):
                    return _failed(number, count, "another output")
        except SandboxEnded as ended:
            return _failed(number, count, ENDS[ended.end])
    return Score(right=True, why=f"passed {count} tests")


def same_output(output: bytes, expected: str) -> bool:
    """Return whether an output is right.

    Equal lines without the white space around them, or equal numbers in them.
    """
    given = _lines(output.decode("utf-8", "replace"))
    wanted = _lines(expected)
    return len(given) == len(wanted) and all(map(_same_line, given, wanted))


def _lines(text: str) -> list[str]:
    return list(map(str.strip, text.strip().split("\n")))


def _same_line(line: str, other: str) -> bool:
    if line == other:
        return True
    try:
        return list(map(Decimal, line.split())) == list(map(Decimal, other.split()))
    except InvalidOperation:
        return False


# Functions: the program is in one sandbox, and is asked for values


def _begin(sandbox: Sandbox, seconds: float) -> Score | None:
    """Have the program loaded; the score of one that cannot be."""
    try:
        reply = json.loads(sandbox.begin(seconds))
    except SandboxEnded as ended:
        return Score(right=False, why=ENDS[ended.end])
    except (ValueError, RecursionError):
        return Score(right=False, why=ENDS["broken"])
    error = reply
    if isinstance(reply, dict):
        if reply.get("ready") is True:
            return None
        error = reply.get("error")
    return Score(right=False, why=str(error)[:MAX_WHY].strip())


# JSON
def _ask(sandbox: Sandbox, request: Mapping[str, Any], seconds: float) -> Any:  # noqa: ANN401
    """Return the value that the program replies. Raises `_NoValue`, or `SandboxEnded`."""
    try:
        reply = json.loads(sandbox.exchange(json.dumps(request).encode(), seconds))
        if "error" in reply:
            raise _NoValue(str(reply["error"][1]).strip())
        return reply["value"]
    except (ValueError, TypeError, LookupError, RecursionError):
        raise _NoValue(ENDS["broken"]) from None


class _NoValue(Exception):
    """The program gave no value."""


def _run_calls(code: str, tests: IoTests, interpreter: Interpreter) -> Score:
    """Call the function with the arguments of each test, and compare its value."""
    count = len(tests.tests)
    number = 0
    job = {"way": "serve", "code": [code], "prelude": True, "seconds": SECONDS * count}
    with Sandbox(interpreter=interpreter, job=job) as sandbox:
        if (score := _begin(sandbox, SECONDS)) is not None:
            return score
        try:
            # As in the authors' harness: one object for all tests, where a text has this in it.
            way = "name"
            if "class Solution" in code:
                way = "method_of_class"
            called = _ask(sandbox, {"do": way, "name": tests.function}, SECONDS)
            for number, (given, expected) in enumerate(tests.tests, start=1):
                arguments, right_value = _call_of(given, expected)
                request = {
                    "do": "call",
                    "of": called["object"],
                    "arguments": arguments,
                    "named": {"dict": []},
                }
                value = _ask(sandbox, request, SECONDS)
                if not same_value(value, right_value):
                    return _failed(number, count, "another value")
        except _NoValue as error:
            return _failed(number, count, str(error))
        except SandboxEnded as ended:
            return _failed(number, count, ENDS[ended.end])
        except (TypeError, KeyError):
            return Score(right=False, why=f"{tests.function} is no function")
    return Score(right=True, why=f"passed {count} tests")


def _call_of(given: str, expected: str) -> tuple[list[Any], Any]:
    """Return the arguments of a test, as the sandbox reads them, and the right value.

    Raises `ValueError` where they are no JSON.
    """
    try:
        return [_encoded(json.loads(line)) for line in given.split("\n")], json.loads(expected)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"its input is not a JSON value a line, or its output none: {error}"
        ) from None


def _encoded(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return JSON as `sandbox_runner.encode` writes it, which marks an object."""
    if isinstance(value, dict):
        return {"dict": [[key, _encoded(item)] for key, item in value.items()]}
    if not isinstance(value, list):
        return value
    return [_encoded(item) for item in value]


def same_value(value: Any, expected: Any) -> bool:  # noqa: ANN401 - JSON
    """Return whether a value from the sandbox is the expected one.

    A tuple counts as a list at the top alone.
    """
    if isinstance(value, dict) and value.keys() == {"tuple"}:
        value = value["tuple"]
    try:
        return bool(value == _encoded(expected))
    except RecursionError:
        return False


def _run_asserts(code: str, tests: AssertTests, interpreter: Interpreter) -> Score:
    """Run the tests in a sandbox of their own.

    What they need of the program, they ask of the program's sandbox.

    No code of a model runs where the tests run, so the verdict cannot be forged. The messages pass
    through here.
    """
    parts = [tests.before, code]
    if tests.function and tests.function not in defined_names(code):
        parts = [tests.before + code]  # the code goes on with what stands before it
    serve = {"way": "serve", "code": parts, "prelude": False, "seconds": ASSERT_SECONDS}
    read = names_in(tests.asserts)
    names = tests.names or sorted(read - sys.stdlib_module_names - defined_names(tests.asserts))
    tested = []
    if tests.function:
        tested = [tests.function]
    # Python's own, not the program's
    modules = sorted((read & sys.stdlib_module_names).difference(names, tested))
    test = {
        "way": "test",
        "before": tests.before,
        "tests": tests.asserts,
        "modules": modules,
        "names": [*names, *tested],
        "tested": tested,
        "seconds": ASSERT_SECONDS,
    }
    program = Sandbox(interpreter=interpreter, job=serve, total=ASSERT_SECONDS)
    tester = Sandbox(interpreter=interpreter, job=test, total=ASSERT_SECONDS)
    deadline = time.monotonic() + wall_seconds(ASSERT_SECONDS)
    with open_sandboxes(program, tester):
        if (score := _begin(program, ASSERT_SECONDS)) is not None:
            return score
        message, request = _from_tests(tester, None)
        while "do" in message:
            try:
                reply = program.exchange(request, ASSERT_SECONDS, deadline - time.monotonic())
            except SandboxEnded as ended:
                return Score(right=False, why=ENDS[ended.end])
            message, request = _from_tests(tester, reply)
    if message.get("passed") is True:
        return Score(right=True, why="passed")
    return Score(right=False, why=str(message.get("why") or "a test failed"))


def _from_tests(tester: Sandbox, reply: bytes | None) -> tuple[dict[str, Any], bytes]:
    """Return the next message of the tests, a request to the program or their verdict, as it came.

    They read what the program replies, so their own end may be its fault. Whole numbers are passed
    on and not read here: one that the program gave may have more digits than Python reads.
    """
    try:
        if reply is None:
            tester.begin(ASSERT_SECONDS)
        written = tester.exchange(reply or b"go", ASSERT_SECONDS)
        message = json.loads(written, parse_int=lambda _: 0)
    except SandboxEnded as ended:
        return {"passed": False, "why": f"its tests: {ENDS[ended.end]}"}, b""
    except (ValueError, RecursionError):  # of a value that the program gave them
        return {"passed": False, "why": f"its tests: {ENDS['broken']}"}, b""
    if isinstance(message, dict):
        return message, written
    return {}, b""


# Unit tests


def _score_unit_tests(code: str, tests: UnitTests, interpreter: Interpreter) -> Score:
    """Run the unit tests; where they fail, find out whether they can pass here at all."""
    modules = tuple(sorted({name.partition(".")[0] for name in tests.libraries}))
    if missing := missing_modules(interpreter, modules):
        names = ", ".join(missing)
        why = (
            f"{UNSCORED}: the tests need {names}, which {interpreter.python} lacks (setting "
            f"{PYTHON_SETTING})"
        )
        return Score(right=None, why=why)
    score = _run_unit_tests(code, tests, interpreter)
    if not score.right and tests.reference:
        reference = _score_reference(tests, interpreter)
        if not reference.right:
            why = (
                f"{UNSCORED}: the reference solution fails here, too: {reference.why} (setting "
                f"{PYTHON_SETTING})"
            )
            return Score(right=None, why=why)
    return score


@lru_cache(maxsize=4096)
def _score_reference(tests: UnitTests, interpreter: Interpreter) -> Score:
    return _run_unit_tests(tests.reference, tests, interpreter)


def _run_unit_tests(code: str, tests: UnitTests, interpreter: Interpreter) -> Score:
    before = ""
    if tests.before.strip():
        before = f"{tests.before}\n    pass\n"
    job = {"way": "unit", "code": [before, code, tests.unittest], "seconds": UNIT_SECONDS}
    count = len(test_methods(tests.unittest))
    word = secrets.token_hex(16)
    sandbox = Sandbox(interpreter=interpreter, job=job, limits=UNIT_LIMITS, total=UNIT_SECONDS)
    with sandbox:
        if (score := _begin(sandbox, UNIT_SECONDS)) is not None:
            return score
        try:
            loaded = json.loads(sandbox.exchange(b"{}", UNIT_SECONDS))
            if "why" in loaded:
                return Score(right=False, why=str(loaded["why"]))
            report = json.loads(sandbox.exchange(json.dumps({"word": word}).encode(), UNIT_SECONDS))
            failed = list(map(str, report["failed"]))
            genuine = report["word"] == word and (report["ran"] == count or failed)
        except SandboxEnded as ended:
            return Score(right=False, why=ENDS[ended.end])
        except (ValueError, TypeError, LookupError, RecursionError):
            return Score(right=False, why=ENDS["broken"])
    if not genuine:
        return Score(right=False, why="its report is none of the tests")
    if failed:
        return Score(
            right=False,
            why=f"{len(failed)} of {count} unit tests: {failed[0]}: {report.get('why', '')}",
        )
    return Score(right=True, why=f"passed {count} unit tests, which ran in its own process")

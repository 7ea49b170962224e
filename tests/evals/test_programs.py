"""Programs that a model wrote are scored by their tests, in a sandbox.

They cannot get out of it or cheat.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import os
import pickle
import shutil
import socket
import subprocess
import sys
import time
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.core.errors import ConfigError, UsageError
from conductor_cli.evals import programs, sandbox
from conductor_cli.evals.cases import Case, check_case, is_correct, score_answer
from conductor_cli.evals.outcomes import Evaluation
from conductor_cli.evals.program_text import find_program
from conductor_cli.evals.programs import (
    AssertTests,
    IoTests,
    Tests,
    UnitTests,
    dump_tests,
    load_tests,
    pickled_text,
    same_output,
)
from conductor_cli.evals.report import report_json, report_notes
from conductor_cli.evals.sandbox import (
    Interpreter,
    SandboxLimits,
    require_sandbox,
    run_off_loop,
    run_once,
)
from conductor_cli.evals.score import Score
from conductor_cli.evals.suite_files import read_suite
from conductor_cli.evals.suites import SUITES
from conductor_cli.evals.summary import summarize
from conductor_cli.models.base import ScriptedModel
from conductor_cli.programs.process_guard import descendants
from conductor_cli.train.job import Task
from conductor_cli.train.reward import CORRECT, VALID
from conductor_cli.train.rollouts import Rollouts, SampledPlan
from tests.evals.kit import NAMES, orchestra, run_evaluation

SMALL = SandboxLimits(
    memory=150 << 20, address_space=1 << 30, processes=12, output=100_000, scratch=4 << 20
)

SUM = IoTests(tests=(("1 2\n", "3\n"), ("20 22\n", "42\n")))
ADD = IoTests(tests=(("[1, 2]\n3", "[4, 5]"), ("[]\n3", "[]")), function="add")
DOUBLE = AssertTests(
    asserts="def check(x):\n    assert math.isclose(x, 4)\nassert double(2) == 4\n"
    "check(double(2))\n"
    "assert abs(double(-3) + 6) < 1",
    function="double",
)


@pytest.fixture(scope="module", name="python")
def _python() -> Interpreter:
    """The interpreter of the sandbox.

    Skips where there is no bubblewrap, or where it may make no sandbox.
    """
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    try:
        return require_sandbox()
    except ConfigError as error:
        # It says so, or fails
        assert "bubblewrap, which does not work here" in error.message  # noqa: PT017
        pytest.skip("bubblewrap may make no sandbox here")


def block(code: str) -> str:
    return f"I think so.\n```python\n{code}\n```\n"


def case(tests: Tests) -> Case:
    return Case(id="1", question="?", answer=dump_tests(tests), scorer="program")


def score(code: str, tests: Tests) -> Score:
    return score_answer(block(code), case(tests))


# What is taken from an answer


@pytest.mark.parametrize(
    ("text", "function", "code", "source"),
    [
        ("```python\na = 1\n```", "", "a = 1", "its block"),
        ("First:\n```python\na = 1\n```\nBetter:\n```py\na = 2\n```", "", "a = 2", "block 2 of 2"),
        (
            "```python\ndef f(): pass\n```\nUse it:\n```python\nprint(f())\n```",
            "f",
            "def f(): pass",
            "block 1 of 2",
        ),
        (
            "```python\ndef f(): pass\n```\nUse it:\n```python\nprint(f())\n```",
            "",
            "print(f())",
            "block 2 of 2",
        ),
        ("```python\na = 1\n```\nRun it:\n```bash\npython a.py\n```", "", "a = 1", "block 1 of 2"),
        ("```\na = 1\n```\n```text\n1\n```", "", "a = 1", "block 1 of 2"),
        (
            "1. This:\n   ```python\n   if a:\n       b = 1\n   ```\n",
            "",
            "if a:\n    b = 1",
            "its block",
        ),
        ("````python\na = '''\n```\n'''\n````", "", "a = '''\n```\n'''", "its block"),
        ("It is\n```python\na = 1\nb = 2", "", "a = 1\nb = 2", "its block"),
        (
            "```python\ndef f():\n    '''\n    ```\n    f()\n    ```\n    '''\n```\nSo.",
            "f",
            "def f():\n    '''\n    ```\n    f()\n    ```\n    '''",
            "its block",
        ),
        ("```python\na = len(\"'''\")\n```\nSo.", "", "a = len(\"'''\")", "its block"),
        ("```python\na = 1\n    ```\nSo.", "", "a = 1", "its block"),
        ("It is\n~~~python\na = 1\n~~~\nSo.", "", "a = 1", "its block"),
        ("~~~\na = 1\n~~~\nRun it:\n```bash\npython a.py\n```", "", "a = 1", "block 1 of 2"),
        ("~~~~ py\na = '''\n~~~\n```\n'''\n~~~~\nSo.", "", "a = '''\n~~~\n```\n'''", "its block"),
        ("```python:sums.py\na = 1\n```\n```text\n1\n```", "", "a = 1", "block 1 of 2"),
        ("``` {.python}\na = 1\n```\nIt shows\n```\n1\n```", "a", "a = 1", "block 1 of 2"),
        ("```a = 0``` is wrong.\n```python\na = 1\n```", "", "a = 1", "its block"),
        (
            "def f():\n    '''\n    ~~~\n    f()\n    ~~~\n    '''\n",
            "f",
            "def f():\n    '''\n    ~~~\n    f()\n    ~~~\n    '''\n",
            "the whole answer",
        ),
        ("a = 1\nprint(a)\n", "", "a = 1\nprint(a)\n", "the whole answer"),
        (
            "Here it is:\ndef f(x):\n\n    return x\n\nThis returns x.",
            "f",
            "def f(x):\n\n    return x",
            "its lines of code",
        ),
        (
            "from here on:\n\n    import math\n\n    def f(x):\n        return x\n\nIt works.",
            "f",
            "import math\n\ndef f(x):\n    return x\n",
            "its lines of code",
        ),
        (
            "[BEGIN]\ndef f(x): return x\n[DONE]\nf(1)",
            "f",
            "def f(x): return x",
            "the whole answer",
        ),
        (
            "```python\nf: object = lambda: 1\n```\n```python\nprint(f())\n```",
            "f",
            "f: object = lambda: 1",
            "block 1 of 2",
        ),
        ("```python\nprint(1)\n```\nOutput:\n```\n1\n```", "", "print(1)", "block 1 of 2"),
        ("```\na = 1\n```\nOutput:\n```\n1 2\n```", "", "a = 1", "block 1 of 2"),
        ("Here it is:```python\na = 1\n```", "", "a = 1", "its block"),
        ("```python\na = 1```", "", "a = 1", "its block"),
        (
            "```python\nif a:\n\u00a0\u00a0\u00a0\u00a0b = 1\n```",
            "",
            "if a:\n    b = 1",
            "its block",
        ),
        ("def f(x):\n    return x\nIt works.", "f", "def f(x):\n    return x", "its lines of code"),
        (
            "<answer>\ndef f(x):\n    return x\n</answer>",
            "f",
            "def f(x):\n    return x",
            "its lines of code",
        ),
        (
            "Here:\n\ndef f(x):\n    return x\n\n" + "It is explained below.\n\n" * 2_000,
            "f",
            "def f(x):\n    return x",
            "its lines of code",
        ),
        ("```markdown\n```python\na = 1\n```", "", "a = 1", "its block"),
        ("```markdown\n```python\na = 1\n```\n```\n", "", "a = 1", "its block"),
        ("```md\nIt is\n\n```py\na = 1\n```\nSo.\n```\n", "", "a = 1", "its block"),
        ("````markdown\nIt is\n```\na = 1\n```\nSo.\n````\n", "", "a = 1", "its block"),
        ("```\n```python\na = 1\n```\n```", "", "a = 1", "its block"),
        ("```markdown\npython\na = 1\n```", "", "a = 1", "its block"),
        ("```markdown\na = 1\n```", "", "a = 1", "its block"),
        ("```\npython\na = 1\n```", "", "a = 1", "its block"),
        ("python\na = 1\n", "", "a = 1\n", "the whole answer"),
        ("```python\na = 1\n```\nSo.\n```\n\n", "", "a = 1", "its block"),
        ("The class of such numbers\nimport more of them.", "", "", "no code"),
        ("    return 1\n", "", "", "no code"),
        ("I cannot do that.", "", "", "no code"),
        ("```python\n```", "", "", "no code"),
        ("", "", "", "no code"),
    ],
)
def test_the_program_is_the_last_block_that_can_be_meant(
    text: str, function: str, code: str, source: str
) -> None:
    program = find_program(text, function)
    assert (program.code, program.source) == (code, source)


def test_an_answer_without_code_is_wrong_and_says_so() -> None:
    """No sandbox is needed for that, and none is started."""
    assert score_answer("I cannot do that.", case(SUM)) == Score(right=False, why="no code")


# Programs that read and write


@pytest.mark.parametrize(
    ("code", "right"),
    [
        ("print(sum(map(int, input().split())))", True),
        (
            (
                "for line in stdin:\n    a, b = line.split()\n    print(int(a) + int(b), '  ')\n"
                "sys.exit(1)"
            ),
            True,
        ),
        (
            "print(sum(map(int, input().split())))\nprint('done', file=sys.stderr)\nsys.exit(120)",
            True,
        ),
        ("import sys\nprint(sum(map(int, sys.stdin.buffer.read().split())))", True),
        ("print(sum(map(int, open('/dev/stdin').read().split())))", True),
        ("print(sum(map(int, open(0).read().split())))", True),
        (
            (
                "def main():\n    print(sum(map(int, input().split())))\nif __name__ == "
                "'__main__':\n  "
                "  main()"
            ),
            True,
        ),
        ("a, b = map(int, stdin.readline().split())\nprint(f'{a + b}.0')", True),
        ("print(3)", False),
        ("this is no code", False),
        ("import os\nos._exit(0)", False),
        ("print(sum(map(int, input().split())))\nraise ValueError", False),
    ],
)
def test_a_program_that_reads_and_writes(code: str, right: bool, python: Interpreter) -> None:
    assert score(code, SUM).right is right


def test_the_reason_names_the_block_and_the_test_that_failed(python: Interpreter) -> None:
    assert score("print(3)", SUM) == Score(
        right=False, why="its block: test 2 of 2: another output"
    )
    assert (
        score("print(1 / 0)", SUM).why
        == "its block: test 1 of 2: ZeroDivisionError: division by zero"
    )
    assert score("print(sum(map(int, input().split())))", SUM).why == "its block: passed 2 tests"


@pytest.mark.parametrize(
    ("output", "expected", "same"),
    [
        (b" 3 \n4\n\n", "3\n4", True),
        (b"3.0 4", "3 4", True),
        (b"1e1", "10", True),
        (b"", "", True),
        (b"3 4", "3\n4", False),
        (b"a", "b", False),
        (b"3", "3\n3", False),
        (b"nan", "x", False),
        (b"\xff", "3", False),
    ],
)
def test_outputs_are_compared_as_livecodebench_does(
    output: bytes, expected: str, same: bool
) -> None:
    assert same_output(output, expected) is same


# Functions with inputs and values

CLASS = (
    "class Solution:\n    def add(self, xs: List[int], y: int):\n        print('noise')\n   "
    "   "
    "  return {}\n"
)


@pytest.mark.parametrize(
    ("code", "right"),
    [
        (CLASS.format("[x + y for x in xs]"), True),
        (CLASS.format("tuple(x + y for x in xs)"), True),
        (CLASS.format("xs"), False),
        (CLASS.format("[[x + y] for x in xs]"), False),
        (CLASS.format("[(x + y,) for x in xs]"), False),
        (CLASS.format("set(x + y for x in xs)"), False),
        ("def add(xs, y):\n    return [x + y for x in xs]", True),
        ("def sub(xs, y):\n    return xs", False),
        ("add = 3", False),
        ("def add(xs, y):\n    return lambda: xs", False),
        (
            (
                "import dataclasses as d\n@d.dataclass\nclass P:\n    x: int\ndef add(xs, y): "
                "return "
                "[P(x).x + y for x in xs]"
            ),
            True,
        ),
    ],
)
def test_a_function_is_asked_for_its_values(code: str, right: bool, python: Interpreter) -> None:
    """They are compared outside.

    A tuple counts as a list at the top only, as LiveCodeBench's authors have it.
    """
    assert score(code, ADD).right is right


@pytest.mark.parametrize("test", [["1\n", "1"], ["1", "one"], ["", "1"]])
def test_tests_of_a_function_that_are_no_json_are_refused_and_never_scored(test: list[str]) -> None:
    answer = json.dumps({"tests": [test], "function": "add"})
    packed = dump_tests(IoTests(tests=((test[0], test[1]),), function="add"))
    with pytest.raises(UsageError, match="does not fit the scorer program"):
        check_case(Case(id="1", question="?", answer=answer, scorer="program"))
    scored = score_answer(block("def add(x): return x"), replace(case(SUM), answer=packed))
    assert scored.right is None
    assert "not a JSON value a line" in scored.why


# Asserts, which run in a sandbox of their own


@pytest.mark.parametrize(
    ("code", "asserts", "right"),
    [
        ("def f(x): return x * 2", "assert f(2) == 4", True),
        ("def f(x): return x * 3", "assert f(2) == 4", False),
        (
            "def f(): return {(1, 2): {3}, 'a': [b'x', None, 1.5, 2 + 1j]}",
            "assert f() == {(1, 2): {3}, 'a': [b'x', None, 1.5, 2 + 1j]}",
            True,
        ),
        ("def f(): return 10 ** 6000", "assert f() == 10 ** 6000", True),
        ("def f(x): return x * 10 ** 6000", "assert f(f(1)) == 10 ** 12000", True),
        ("A = object()\ndef f(): return A", "assert f() == f()", True),
        ("def f(): return object()", "assert f() == f()", False),
        (
            "def f(): return float('inf'), float('nan')",
            "a, b = f()\nassert a == float('inf') and b != b",
            True,
        ),
        ("def f(xs): xs.sort()", "xs = [2, 1]\nf(xs)\nassert xs == [1, 2]", True),
        ("def f(n): yield from range(n)", "assert list(f(3)) == [0, 1, 2]", True),
        (
            "def f(): raise ValueError('no')",
            "try:\n    f()\n    assert False\nexcept ValueError: pass",
            True,
        ),
        (
            (
                "class P:\n    def __init__(self, x): self.x = x\ndef f(ps): return max(p.x for p "
                "in "
                "ps)"
            ),
            "assert f([P(1), P(5)]) == 5",
            True,
        ),
        (
            (
                "class N:\n    def __init__(self, v): self.v, self.left = v, None\ndef f(n): "
                "return "
                "n.left.v"
            ),
            "n = N(1)\nn.left = N(7)\nassert f(n) == 7",
            True,
        ),
        ("import re\ndef f(x): return re.match(r'a', x)", "assert f('a')\nassert not f('b')", True),
        (
            "def f(xs, kind): return [x for x in xs if not isinstance(x, kind)]",
            "assert f([1, 'a'], str) == [1]",
            True,
        ),
        ("def f(x):\n    print('noise', x)\n    return x", "assert f(1) == 1", True),
        ("def sum(x): return x + 1", "assert sum(1) == 2", True),
        ("def g(x): return x", "assert f(1) == 1", False),
        ("import os\ndef f(x): os._exit(0)", "assert f(1) == 1", False),
        ("import sys\ndef f(x): sys.exit()", "assert f(1) == 1", False),
        ("def f(x: return x", "assert f(1) == 1", False),
    ],
)
def test_asserts_see_the_values_of_a_function(
    code: str, asserts: str, right: bool, python: Interpreter
) -> None:
    function = "sum" if "sum(" in asserts else "f"
    assert score(code, AssertTests(asserts=asserts, function=function)).right is right


CHEATS = {
    "says that it equals everything": "class Any:\n    def __eq__(self, other): return True\n"
    "    __hash__ = None\ndef double(x): return Any()",
    "subclasses a number": (
        "class Any(int):\n    def __eq__(self, other): return True\ndef double(x): return Any(0)"
    ),
    "prints a verdict": "print('passed')\nprint('{\"passed\": true}')\ndef double(x): return 0",
    "exits well": "import os\ndef double(x):\n    print('passed', flush=True)\n    os._exit(0)",
    "exits at its end": (
        "import atexit, os\natexit.register(lambda: os._exit(0))\ndef double(x): return 0"
    ),
    "writes to every descriptor": "import os\ndef double(x):\n    message = b'{\"passed\": true}'\n"
    "    for number in range(256):\n        try: os.write(number, b'%d\\n%s' % (len(message), "
    "message))\n"
    "        except OSError: pass\n    return 0",
    "replaces asserts and errors": "import builtins, sys\nclass Never(Exception): pass\n"
    "builtins.AssertionError = Never\nsys.excepthook = lambda *_: None\n"
    "sys.settrace(lambda *_: sys.exit(0))\ndef double(x): return 0",
    "looks for the tests in its memory": "import gc, sys\nTEST = '{}(2) == 4'.format('double')\n"
    "def has(value): return TEST in repr(value).replace(repr(TEST), '')\n"
    "def double(x):\n    frame = sys._getframe()\n    while frame:\n"
    "        if any(has(value) for name, value in [*frame.f_locals.items(), "
    "*frame.f_globals.items()]): return x * 2\n"
    "        frame = frame.f_back\n"
    "    if any(has(it) for it in gc.get_objects() if type(it) in (str, dict)): return x * 2\n"
    "    return 0",
    "reads the tests from /proc and the disk": "import glob\nTEST = b'%s(2) == 4' % b'double'\ndef "
    "double(x):\n"
    "    places = glob.glob('/proc/*/cmdline') + glob.glob('/proc/*/environ') + "
    "glob.glob('/tmp/**', recursive=True)\n"
    "    for place in places + glob.glob('/proc/*/mem'):\n        try:\n"
    "            if TEST in open(place, 'rb').read(1 << 20): return x * 2\n"
    "        except OSError: pass\n    return 0",
    "ends the process above it": "import os, signal\ndef double(x):\n    os.kill(os.getppid(), "
    "signal.SIGKILL)\n"
    "    os.kill(1, signal.SIGKILL)\n    return 0",
    "replaces what sends its values": "import sys\nrunner = sys.modules['__main__']\n"
    "runner.encode = lambda value, objects=None: {'passed': True}\n"
    "runner.send_value = lambda channel, value: channel.send(b'{\"passed\": true}')\ndef "
    "double(x): return 0",
    "raises what a test may expect": "def double(x): raise StopIteration",
    "replaces a module of the tests": (
        "class math:\n    isclose = lambda *_: True\ndef double(x): return 0"
    ),
    "defines what the tests read": (
        "def check(x): pass\nabs = len = lambda *_: 0\ndef double(x): return 0"
    ),
}


@pytest.mark.parametrize("code", CHEATS.values(), ids=list(CHEATS))
def test_no_program_forges_its_verdict(code: str, python: Interpreter) -> None:
    """The tests are in another sandbox, which gets values alone.

    Inputs and outputs are compared outside.
    """
    assert score(code, DOUBLE).right is False
    assert score(code, IoTests(tests=(("2", "4"), ("-3", "-6")), function="double")).right is False
    assert (
        score(f"{code}\ndouble(int(input()))", IoTests(tests=(("2", "4"), ("-3", "-6")))).right
        is False
    )


def test_what_a_question_begins_with_is_there_for_answers_and_tests(python: Interpreter) -> None:
    """As in HumanEval.

    An answer may be the rest of the function, and the tests may use a helper of the question.
    """
    tests = AssertTests(
        before="def half(x):\n    return x // 2\n\ndef double(x):\n    '''Twice.'''\n",
        asserts="def check(candidate):\n    assert half(candidate(4)) == 4\ncheck(double)",
        function="double",
    )
    assert score("    return x * 2", tests).right
    assert score("def double(x):\n    return half(x) * 4", tests).right
    assert score("def half(x):\n    return 4\ndef double(x):\n    return 0", tests).right is False


# Unit tests, which run in the process of the program

UNITS = UnitTests(
    unittest="import unittest\nfrom unittest.mock import patch\nclass "
    "TestCases(unittest.TestCase):\n"
    "    def test_value(self):\n        self.assertEqual(task_func('a'), 'a!')\n"
    "    def test_error(self):\n        with self.assertRaises(ValueError): task_func('')\n"
    "    @patch('__test__.MARK', '?')\n    def test_mark(self):\n        "
    "self.assertEqual(task_func('a'), 'a?')\n",
    before="import os\nMARK = '!'\ndef task_func(text):",
    function="task_func",
    libraries=("unittest", "os"),
    reference=(
        "MARK = '!'\ndef task_func(text):\n    if not text: raise ValueError\n    return "
        "text + MARK\n"
    ),
)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (
            "def task_func(text):\n    if not text: raise ValueError\n    return text + MARK",
            "passed 3 unit tests",
        ),
        ("def task_func(text):\n    return text + MARK", "1 of 3 unit tests: test_error"),
        ("def task_func(text): pass\nimport os\nos._exit(0)", "it ended its process"),
        (
            (
                "import unittest\nunittest.TestCase.run = lambda self, result: None\ndef "
                "task_func(text): pass"
            ),
            "its report is none of the tests",
        ),
        ("print('OK')\ndef task_func(text): return ''", "3 of 3 unit tests"),
    ],
)
def test_unit_tests_run_in_the_module_of_the_program(
    code: str, why: str, python: Interpreter
) -> None:
    scored = score(code, UNITS)
    assert why in scored.why
    assert scored.right is ("passed" in why)


def test_what_cannot_run_here_is_not_scored(python: Interpreter) -> None:
    """A missing library, or tests that a reference solution fails, say nothing of a program."""
    lacking = score(
        "def task_func(text): pass", replace(UNITS, libraries=("os", "no_such_library.part"))
    )
    assert lacking.right is None
    assert "not scored: the tests need no_such_library, which" in lacking.why
    assert "eval.python" in lacking.why
    failing = score(
        "def task_func(text): pass", replace(UNITS, reference="raise OSError('no network')")
    )
    assert failing.right is None
    assert "not scored: the reference solution fails here, too: OSError: no network" in failing.why
    with pytest.raises(ConfigError, match="not scored"):
        is_correct(
            block("def task_func(text): pass"), case(replace(UNITS, libraries=("no_such_library",)))
        )


def test_the_interpreter_of_the_setting_runs_with_its_libraries(
    python: Interpreter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    (next(directory.glob("lib/python*/site-packages")) / "only_there.py").write_text("VALUE = 4")
    tests = AssertTests(asserts="assert double(2) == 4", function="double")
    code = "import only_there\ndef double(x): return only_there.VALUE"
    assert "No module named 'only_there'" in score(code, tests).why
    monkeypatch.setattr(
        sandbox._Chosen, "interpreter", require_sandbox(str(directory / "bin" / "python"))
    )
    assert score(code, tests).right
    written = f"import os\ndef double(x):\n    open({str(directory / 'x')!r}, 'w')\n    return 4"
    assert "OSError" in score(written, tests).why


@pytest.mark.parametrize("python_path", ["/nowhere/python", "/bin/true"])
def test_a_wrong_interpreter_is_an_error_that_names_the_setting(
    python: Interpreter, python_path: str
) -> None:
    with pytest.raises(ConfigError, match=r"eval\.python: .* is no Python interpreter") as error:
        require_sandbox(python_path)
    assert "conductor config set eval.python" in error.value.hint


# The sandbox

TRY = (
    "def attempt(do):\n    try:\n        print('YES', do())\n    except BaseException as "
    "error:\n"
    "        print('no')\n"
)
"""Prints YES if something is possible."""

FORKS = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n"
THREADS = (
    "import threading, time\nfor _ in range(500):\n    threading.Thread(target=time.sleep, "
    "args=(9,)).start()\n"
)
MEMORY = (
    "import os, time\nfor _ in range(2):\n    os.fork()\nkept = bytearray(60 << 20)\ntime.sleep(9)"
)
ORPHANS = """
import ctypes, os, time
if not os.fork():
    os.setsid()
    for _ in range(2):
        if os.fork(): os._exit(0)
    ctypes.CDLL(None).prctl(15, b"1) S 1 (x", 0, 0, 0)
    kept = bytearray(160 << 20)
time.sleep(9)
"""
"""Memory of a process that leaves its parent, its session and its name."""

DISK = """
import os
written = 0
for place in ("/tmp/a", "/dev/shm/b", "/dev/c", "/d", "/usr/e", "/proc/f", "/var/tmp/g", "/run/h", \
"/root/i"):
    try:
        with open(place, "wb", 0) as file:
            while True:
                written += file.write(b"x" * 65536)
    except OSError:
        pass
print(written)
"""


def play(
    python: Interpreter, code: str, *, seconds: float = 3, stdin: bytes = b""
) -> dict[str, Any]:
    return run_once(python, code, stdin, seconds, SMALL)


@pytest.mark.parametrize(
    ("code", "ends"),
    [
        # What forks share counts for each of them
        pytest.param(FORKS, {"processes", "time", "memory"}, id="fork bomb"),
        pytest.param(THREADS, {"processes", "exit"}, id="thread bomb"),
        pytest.param(
            "x = []\nwhile True:\n    x.append(bytearray(1 << 20))",
            {"memory", "exit", "time"},
            id="memory",
        ),
        pytest.param(MEMORY, {"memory", "processes"}, id="memory of many processes"),
        pytest.param(ORPHANS, {"memory"}, id="memory of an orphan"),
        pytest.param("while True: pass", {"time"}, id="endless loop"),
        pytest.param("while True: print('x' * 9999)", {"output"}, id="flood"),
        pytest.param(
            "import sys\nwhile True: sys.stderr.write('x' * 9999)", {"output"}, id="flood of errors"
        ),
        pytest.param("import os\nos.kill(os.getpid(), 11)", {"signal"}, id="crash"),
        pytest.param(
            "import signal\nsignal.signal(24, lambda *_: 0)\nwhile 1:\n  try:\n    while 1: pass\n"
            "  except: pass",
            {"time"},
            id="catches everything",
        ),
        pytest.param(
            "import os\nfor _ in range(3): os.fork()\nwhile True: pass",
            {"time"},
            id="loops in processes",
        ),
    ],
)
def test_a_hostile_program_is_ended_within_its_limits(
    code: str, ends: set[str], python: Interpreter
) -> None:
    earlier = descendants(os.getpid())
    ending = play(python, code, seconds=0.5)
    assert ending["end"] in ends
    assert not (ending["end"] == "exit" and ending["code"] == 0)
    assert len(ending["output"]) <= SMALL.output + 1
    assert descendants(os.getpid()) == earlier


def test_a_program_that_waits_for_ever_is_ended_by_the_clock(
    python: Interpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes no processor time, of which a program has a few seconds on any machine."""
    monkeypatch.setattr(sandbox, "wall_seconds", lambda _: 1.0)
    assert play(python, "import time\ntime.sleep(600)")["end"] == "wall"


def test_a_program_that_fills_the_disk_fills_only_its_scratch(python: Interpreter) -> None:
    ending = play(python, DISK)
    assert 0 < int(ending["output"]) <= SMALL.scratch + (16 << 20)


def test_a_program_reads_nothing_of_the_user(
    python: Interpreter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("sk-secret")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    places = [
        str(tmp_path / "key"),
        str(Path.home() / ".bashrc"),
        "/etc/shadow",
        "/etc/hosts",
        "/var/log",
        __file__,
    ]
    code = TRY + (
        "import os\nread = lambda place: os.listdir(place) if place == '/var/log' else "
        "open(place).read()\n"
        f"for place in {places!r}:\n    attempt(lambda: read(place))\nprint(sorted(os.environ))"
    )
    printed = play(python, code)["output"].decode()
    assert printed.count("no\n") == len(places)
    assert "secret" not in printed
    assert "OPENAI_API_KEY" not in printed


def test_a_program_reaches_no_network(python: Interpreter) -> None:
    abstract = f"\0conductor-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(abstract)
        unix.listen()
        code = TRY + (
            "import socket\ndef to(family, address):\n    s = socket.socket(family)\n    "
            "s.settimeout(1)\n"
            "    s.connect(address)\n"
            f"attempt(lambda: to(socket.AF_INET, ('127.0.0.1', {tcp.getsockname()[1]})))\n"
            f"attempt(lambda: to(socket.AF_UNIX, {abstract!r}))\n"
            "attempt(lambda: to(socket.AF_INET, ('1.1.1.1', 53)))\n"
        )
        assert play(python, code)["output"].decode().split() == ["no"] * 3


WAYS_OUT = """
import ctypes, os
libc, parent = ctypes.CDLL(None, use_errno=True), os.getppid()
def call(function, *words):
    if function(*words) < 0: raise OSError
attempt(lambda: os.listdir("/proc/1/root"))
attempt(lambda: open("/proc/1/environ", "rb").read()[0])
attempt(lambda: os.readlink(f"/proc/{parent}/fd/0"))
attempt(lambda: open(f"/proc/{parent}/mem", "r+b"))
attempt(lambda: open("/proc/1/maps").read(1))
attempt(lambda: os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))  # only opened: it would be \
the real one
attempt(lambda: os.open("/proc/sysrq-trigger", os.O_WRONLY))
attempt(lambda: call(libc.ptrace, 16, parent, 0, 0))  # PTRACE_ATTACH
attempt(lambda: call(libc.unshare, 0x10000000))  # CLONE_NEWUSER
attempt(lambda: call(libc.mount, b"none", b"/tmp", b"tmpfs", 0, None))
attempt(lambda: call(libc.setuid, 0))
attempt(lambda: os.mknod("/tmp/disk", 0o060600, os.makedev(8, 0)))
attempt(lambda: os.nice(-5))
for fd in range(3, 256):
    try: os.write(fd, b"{}"); print("YES")
    except OSError: pass
print(len([x for x in os.listdir("/proc") if x.isdecimal()]) < 6)
print([line.split()[1] for line in open("/proc/self/status") if line.startswith(("CapEff", \
"NoNewPrivs"))])
"""


def test_proc_and_rights_offer_no_way_out(python: Interpreter) -> None:
    lines = play(python, TRY + WAYS_OUT)["output"].decode().splitlines()
    assert lines == ["no"] * 13 + ["True", "['0000000000000000', '1']"]


@pytest.mark.parametrize("number", ["9", "signal.SIGSTOP", "signal.SIGTERM"])
def test_a_program_cannot_end_or_stop_its_runner(number: str, python: Interpreter) -> None:
    code = f"import os, signal\nos.kill(os.getppid(), {number})\nprint('on')"
    assert play(python, code)["output"] == b"on\n"


def test_what_a_program_leaves_behind_ends_with_its_run(python: Interpreter) -> None:
    left = (
        "import os, sys, time\nnumber = input()\nif number == '1' and not os.fork():\n    "
        "os.setsid()\n"
        "    if not os.fork():\n        os.closerange(0, 9)\n        time.sleep(600)\n    "
        "os._exit(0)\n"
        "states = [open(f'/proc/{x}/stat').read().rpartition(')')[2].split()[0] for x in "
        "os.listdir('/proc')"
        " if x.isdecimal()]\nprint(3 if number == '1' else len([x for x in states if x != 'Z']))\n"
    )
    # In the second run only the runner and the program are there
    tests = IoTests(tests=(("1\n", "3"), ("2\n", "2")))
    assert score(left, tests).right


def test_a_sandbox_ends_with_whoever_started_it(python: Interpreter) -> None:
    code = (
        "import os, threading, time\nfrom conductor_cli.evals.sandbox import *\n"
        "work = lambda: run_once(require_sandbox(), 'while True: pass', b'', 60, SandboxLimits())\n"
        "threading.Thread(target=work).start()\n"
        "while len(descendants(os.getpid())) < 3: time.sleep(0.01)\n"
        "print(*descendants(os.getpid()), flush=True)\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    with starter:
        assert starter.stdout is not None
        processes = [
            Path(f"/proc/{process.decode()}") for process in starter.stdout.readline().split()
        ]
        starter.kill()
    assert processes
    deadline = time.monotonic() + 60
    while any(process.exists() for process in processes) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not [process for process in processes if process.exists()]


def test_scoring_that_is_cancelled_ends_its_program(
    python: Interpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "SECONDS", 600.0)
    earlier = descendants(os.getpid())

    async def cancelled() -> None:
        task = asyncio.create_task(run_off_loop(lambda: score("while True: pass", SUM)))
        while descendants(os.getpid()) == earlier:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while descendants(os.getpid()) != earlier:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(cancelled(), 60))


def test_no_code_is_run_without_bubblewrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sandbox._Chosen, "interpreter", None)
    check_case(case(SUM))
    with pytest.raises(ConfigError, match="needs bubblewrap, which is not installed") as error:
        score(f"open({str(tmp_path / 'ran')!r}, 'w')", SUM)
    assert "apt install bubblewrap" in error.value.hint
    (tmp_path / "bwrap").write_text(
        "#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n"
    )
    (tmp_path / "bwrap").chmod(0o755)
    with pytest.raises(
        ConfigError, match="does not work here: No permissions to create new namespace"
    ):
        score(f"open({str(tmp_path / 'ran')!r}, 'w')", SUM)
    assert not (tmp_path / "ran").exists()


def test_other_systems_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "LINUX", False)
    with pytest.raises(ConfigError, match="needs bubblewrap and so Linux") as error:
        require_sandbox()
    assert "Inspect" in error.value.hint


def test_the_runner_refuses_to_work_outside_a_sandbox() -> None:
    if not Path("/proc/self/ns/pid").exists():
        pytest.skip("this system has no namespaces")
    job = json.dumps(
        {"namespace": str(Path("/proc/self/ns/pid").readlink()), "way": "run", "code": ""}
    ).encode()
    message = b"%d\n%s" % (len(job), job)
    done = subprocess.run(
        [sys.executable, str(sandbox.RUNNER)], input=message, capture_output=True, check=True
    )
    assert done.stdout == b"16\nnot in a sandbox"


# In an evaluation


def test_an_outcome_says_what_was_run_and_a_report_what_was_not_scored(
    tmp_path: Path, python: Interpreter
) -> None:
    """Also in training, where an answer that cannot be scored gives no reward."""
    text = block("import no_such_module\ndef double(x): return 2 * x")
    units = replace(UNITS, libraries=("no_such_library",))
    questions = [case(DOUBLE), replace(case(SUM), id="2"), replace(case(units), id="3")]
    replies = {
        "ann": text,
        "bob": block("print(sum(map(int, input().split())))"),
        "cyd": "I cannot do that.",
    }
    models = {name: ScriptedModel([[reply]]) for name, reply in replies.items()}
    evaluation = run_evaluation(tmp_path / "e", orchestra(dict(models)), questions, ["alone"])
    verdicts = {key: outcome.verdict for key, outcome in evaluation.items()}
    assert verdicts["alone:bob", "2"] == "right"
    assert (verdicts["alone:cyd", "2"], evaluation["alone:cyd", "2"].scoring) == (
        "wrong",
        "no code",
    )
    assert "No module named 'no_such_module'" in evaluation["alone:ann", "1"].scoring
    assert (verdicts["alone:ann", "1"], verdicts["alone:ann", "3"]) == ("wrong", "failed")
    stored = Evaluation(tmp_path / "e")
    summary = summarize(stored.outcomes(), stored.spec.systems)
    notes = "\n".join(report_notes(stored.spec, summary, ()))
    assert "not scored: the tests need no_such_library" in notes
    assert "lacks a module: no_such_module" in notes
    assert report_json("e", stored.spec, summary)["missing_modules"] == {"no_such_module": 2}


def test_a_program_is_a_reward_within_the_same_bounds(python: Interpreter) -> None:
    exercises = [
        Task(case=case(tests), workers=NAMES)
        for tests in (SUM, replace(UNITS, libraries=("no_such",)))
    ]
    assert [exercise.slow for exercise in exercises] == [True, True]
    reply = block("print(sum(map(int, input().split())))")
    models = {name: ScriptedModel([[reply]]) for name in NAMES}
    trained = Rollouts(orchestra=orchestra(dict(models), model=None))
    plan = "A | - | Write it.\n"
    (right,) = asyncio.run(trained.outcomes([SampledPlan(exercise=exercises[0], text=plan)]))
    assert right.reward == CORRECT
    wrong = Task(case=case(IoTests(tests=(("1 2", "4"),))), workers=NAMES)
    (outcome,) = asyncio.run(trained.outcomes([SampledPlan(exercise=wrong, text=plan)]))
    assert outcome.reward == VALID
    with pytest.raises(
        ConfigError, match=r"workers or the scorer failed in 1 of the 1 plans.*not scored"
    ):
        asyncio.run(trained.outcomes([SampledPlan(exercise=exercises[1], text=plan)]))


# The published forms

HUMANEVAL = {
    "task_id": "HumanEval/x",
    "entry_point": "triple",
    "canonical_solution": "    return 3 * x\n",
    "prompt": (
        'from typing import List\n\n\ndef triple(x: int) -> int:\n    """ Thrice x.\n    """\n'
    ),
    "test": (
        "\n\nMETADATA = {}\n\n\ndef check(candidate):\n    assert candidate(2) == 6\n    "
        "assert candidate(0) == 0"
    ),
}
MBPP = {
    "text": "Write a function to halve a number.",
    "task_id": 11,
    "test_setup_code": "TWO = 2",
    "code": "def halve(x):\n  return x / 2",
    "test_list": ["assert halve(TWO) == 1.0"],
    "challenge_test_list": [],
}
SANITIZED = {
    "source_file": "x.ipynb",
    "task_id": 2,
    "prompt": "Write a function to halve a number.",
    "code": "def halve(x):\n  return x / 2",
    "test_imports": ["import math"],
    "test_list": ["assert math.isclose(halve(2), 1.0)"],
}


def packed(tests: object, pack: Any = pickle.dumps) -> str:
    return base64.b64encode(zlib.compress(pack(json.dumps(tests)))).decode()


LIVECODEBENCH = {
    "question_title": "Sum",
    "question_content": "Add two numbers.",
    "platform": "atcoder",
    "question_id": "abc_a",
    "contest_id": "abc",
    "contest_date": "2025-01-01T00:00:00",
    "starter_code": "",
    "difficulty": "easy",
    "public_test_cases": json.dumps([{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]),
    "private_test_cases": packed([{"input": "20 22\n", "output": "42\n", "testtype": "stdin"}]),
    "metadata": "{}",
}
BIGCODEBENCH = {
    "task_id": "BigCodeBench/x",
    "entry_point": "task_func",
    "libs": "['os', 'unittest']",
    "doc_struct": "{}",
    "instruct_prompt": (
        "Mark a text.\nYou should write self-contained code starting with:\n```\nimport os\n```"
    ),
    "complete_prompt": "import os\nMARK = '!'\ndef task_func(text):\n    '''Mark it.'''\n",
    "code_prompt": UNITS.before,
    "canonical_solution": "\n    if not text:\n        raise ValueError\n    return text + MARK\n",
    "test": UNITS.unittest,
}


def read(tmp_path: Path, suite: str, row: dict[str, Any]) -> Case:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row), encoding="utf-8")
    (loaded,) = read_suite(SUITES[suite], path)
    return loaded


@pytest.mark.parametrize(
    ("suite", "row", "right", "wrong"),
    [
        (
            "humaneval",
            HUMANEVAL,
            f"{HUMANEVAL['prompt']}    return 3 * x",
            "def triple(x): return x",
        ),
        ("humaneval", HUMANEVAL, str(HUMANEVAL["canonical_solution"]), "    return x"),
        ("mbpp", MBPP, str(MBPP["code"]), "def halve(x): return x"),
        ("mbpp-sanitized", SANITIZED, str(SANITIZED["code"]), "def halve(x): return x"),
        ("livecodebench", LIVECODEBENCH, "print(sum(map(int, input().split())))", "print(3)"),
        (
            "livecodebench",
            {
                **LIVECODEBENCH,
                "private_test_cases": json.loads(str(LIVECODEBENCH["public_test_cases"])),
            },
            "print(sum(map(int, input().split())))",
            "print(4)",
        ),
        (
            "livecodebench",
            {
                **LIVECODEBENCH,
                "starter_code": (
                    "class Solution:\n    def add(self, a: int, b: int) -> int:\n        "
                ),
                "metadata": json.dumps({"func_name": "add"}),
                "private_test_cases": "[]",
                "public_test_cases": json.dumps(
                    [{"input": "1\n2", "output": "3", "testtype": "functional"}]
                ),
            },
            "class Solution:\n    def add(self, a: int, b: int) -> int:\n        return a + b",
            "class Solution:\n    def add(self, a, b): return a",
        ),
        ("bigcodebench", BIGCODEBENCH, str(UNITS.reference), "def task_func(text): return text"),
    ],
)
def test_each_published_form_is_read_and_scored(
    suite: str, row: dict[str, Any], right: str, wrong: str, tmp_path: Path, python: Interpreter
) -> None:
    read_case = read(tmp_path, suite, row)
    assert (read_case.scorer, read_case.tags[0]) == ("program", "code")
    assert score_answer(block(right), read_case) == Score(
        right=True, why=score_answer(block(right), read_case).why
    )
    assert score_answer(block(wrong), read_case).right is False


def test_a_question_has_the_prompt_of_its_authors(tmp_path: Path) -> None:
    task = read(tmp_path, "livecodebench", LIVECODEBENCH)
    assert task.question.startswith(
        "You are an expert Python programmer. You will be given a question"
    )
    assert (
        "### Question:\nAdd two numbers.\n\n### Format: Read the inputs from stdin" in task.question
    )
    assert task.tags == ("code", "atcoder", "easy")
    assert (
        "your task: Write a function to halve a number. Your code"
        in read(tmp_path, "mbpp", MBPP).question
    )
    assert "assert halve(TWO) == 1.0" in read(tmp_path, "mbpp", MBPP).question
    assert "Thrice x" in read(tmp_path, "humaneval", HUMANEVAL).question
    assert "Mark a text." in read(tmp_path, "bigcodebench", BIGCODEBENCH).question


def test_files_are_read_as_they_are_published(tmp_path: Path) -> None:
    """HumanEval is packed by gzip, and the sanitized MBPP is one list."""
    archive = tmp_path / "HumanEval.jsonl.gz"
    archive.write_bytes(gzip.compress(f"{json.dumps(HUMANEVAL)}\n".encode()))
    assert [case.id for case in read_suite(SUITES["humaneval"], archive)] == ["HumanEval/x"]
    listed = tmp_path / "sanitized-mbpp.json"
    listed.write_text(json.dumps([SANITIZED, {**SANITIZED, "task_id": 3}]), encoding="utf-8")
    assert [case.id for case in read_suite(SUITES["mbpp-sanitized"], listed)] == ["2", "3"]
    archive.write_bytes(archive.read_bytes()[:40])
    with pytest.raises(UsageError, match="cannot be unpacked"):
        read_suite(SUITES["humaneval"], archive)


class Hostile:
    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/pickled",)


@pytest.mark.parametrize(
    ("suite", "row", "says"),
    [
        ("humaneval", {**HUMANEVAL, "entry_point": "a b"}, "no valid name"),
        ("humaneval", {**HUMANEVAL, "test": None}, "'test' is missing"),
        ("humaneval", {**HUMANEVAL, "test": "def check(:"}, "does not fit the scorer program"),
        ("mbpp", {**MBPP, "test_list": []}, "'test_list' is missing"),
        ("livecodebench", {**LIVECODEBENCH, "private_test_cases": "%"}, "cannot be unpacked"),
        (
            "livecodebench",
            {**LIVECODEBENCH, "private_test_cases": packed(0, lambda _: pickle.dumps(Hostile()))},
            "the pickle holds more than a text",
        ),
        (
            "livecodebench",
            {**LIVECODEBENCH, "private_test_cases": packed(0, lambda _: b"\x80\x04")},
            "pickle exhausted",
        ),
        (
            "livecodebench",
            {**LIVECODEBENCH, "private_test_cases": packed([{"input": 1}])},
            "no input or no output",
        ),
        (
            "livecodebench",
            {**LIVECODEBENCH, "public_test_cases": "[]", "private_test_cases": "[]"},
            "has no tests",
        ),
        ("bigcodebench", {**BIGCODEBENCH, "test": "class Tests: pass"}, "no class TestCases"),
        ("bigcodebench", {**BIGCODEBENCH, "libs": "__import__('os')"}, "malformed"),
    ],
)
def test_a_damaged_or_hostile_row_is_an_error_that_names_it(
    suite: str, row: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as error:
        read(tmp_path, suite, row)
    assert ", row 1: " in error.value.message
    assert says in error.value.message


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_of_one_text_is_read_without_unpickling(protocol: int) -> None:
    texts = ["[]", "ä" * 300] if protocol else []
    assert [pickled_text(pickle.dumps(text, protocol)) for text in texts] == texts
    for value in (["a", "b"], 3, Hostile()):
        with pytest.raises(ValueError, match="pickle"):
            pickled_text(pickle.dumps(value, protocol))


def test_tests_survive_the_way_through_a_file_of_cases() -> None:
    for tests in (SUM, ADD, DOUBLE, UNITS):
        assert load_tests(dump_tests(tests)) == tests
        check_case(case(tests))
    for answer in (
        "",
        "{}",
        "[]",
        '{"tests": []}',
        '{"asserts": "("}',
        '{"unittest": "x = 1", "function": "f"}',
    ):
        with pytest.raises(UsageError):
            check_case(Case(id="1", question="?", answer=answer, scorer="program"))

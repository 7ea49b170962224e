"""Programs that a model wrote are judged by their tests, in a sandbox."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.core.errors import ConfigError
from conductor_cli.evals import programs
from conductor_cli.evals.cases import Case, check_case, is_correct
from conductor_cli.evals.programs import (
    IoTests,
    dump_tests,
    judging_in,
    last_block,
    require_sandbox,
    same_output,
    same_value,
)
from conductor_cli.programs.sandbox import NoSandbox, SandboxEngine, Stopped, find_engine, stoppable

SUM = dump_tests(IoTests(tests=(("1 2\n", "3\n"), ("20 22\n", "42\n"))))
ADD = dump_tests(IoTests(tests=(("[1, 2]\n3", "[4, 5]"), ("[]\n3", "[]")), function="add"))


@pytest.fixture(scope="module")
def engine() -> SandboxEngine | None:
    """The sandbox of this system; None where it can make none."""
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    try:
        return find_engine("bubblewrap", os.environ)
    except NoSandbox:
        with pytest.raises(ConfigError, match=r"code is run only in a sandbox"):
            require_sandbox("bubblewrap")
        return None


def block(code: str) -> str:
    return f"I think so.\n```python\n{code}\n```\n"


def case(scorer: str, answer: str) -> Case:
    return Case(id="1", question="?", answer=answer, scorer=scorer)


@pytest.mark.parametrize(
    ("code", "right"),
    [
        ("print(sum(map(int, input().split())))", True),
        ("for line in stdin:\n    a, b = line.split()\n    print(int(a) + int(b), '  ')\nsys.exit(1)", True),
        ("print(Counter(stdin.read().split()) and fsum(map(int, stdin.read().split() or [3])))", False),
        ("def main():\n    print(sum(map(int, input().split())))\nif __name__ == '__main__':\n    main()", True),
        ("a, b = map(int, stdin.readline().split())\nprint(f'{a + b}.0')", True),
        ("print(3)", False), ("print(int(input()))", False), ("this is no code", False), ("", False),
        ("import os\nos._exit(0)", False),
        ("print(sum(map(int, input().split())))\nraise ValueError", False),
        ("print(sum(map(int, input().split())))\nwhile True: pass", False),
    ],
)  # fmt: skip
def test_a_program_that_reads_and_writes(
    code: str, right: bool, engine: SandboxEngine | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine is None:
        return
    monkeypatch.setattr(programs, "SECONDS", 0.6)
    assert is_correct(block(code), case("program", SUM)) is right


CLASS = "class Solution:\n    def add(self, xs: List[int], y: int):\n        print('noise')\n        return {}\n"


@pytest.mark.parametrize(
    ("code", "right"),
    [
        (CLASS.format("[x + y for x in xs]"), True), (CLASS.format("tuple(x + y for x in xs)"), True),
        (CLASS.format("xs"), False), (CLASS.format("[[x + y] for x in xs]"), False),
        (CLASS.format("[(x + y,) for x in xs]"), False), (CLASS.format("set(x + y for x in xs)"), False),
        ("def add(xs, y):\n    return [x + y for x in xs]", True), ("def sub(xs, y):\n    return xs", False),
        ("import dataclasses as d\n@d.dataclass\nclass P:\n    x: int\ndef add(xs, y): return [P(x).x + y for x in xs]",
         True),
        ("import os\nos.write(3, b'[4, 5]')\nos._exit(0)", False),
    ],
)  # fmt: skip
def test_a_program_with_a_function(code: str, right: bool, engine: SandboxEngine | None) -> None:
    """Its value is compared outside; a tuple counts as a list at the top only, as its authors have it."""
    if engine is not None:
        assert is_correct(block(code), case("program", ADD)) is right


def test_a_sandbox_is_needed_before_anything_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    check_case(case("program", SUM))
    with pytest.raises(ConfigError, match=r"code is run only in a sandbox.*bubblewrap is not installed") as error:
        is_correct(block("print(3)"), case("program", SUM))
    assert "apt install bubblewrap" in error.value.hint


def test_a_judge_that_is_cancelled_stops_its_program(
    engine: SandboxEngine | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine is None:
        return

    monkeypatch.setattr(programs, "SECONDS", 600.0)

    async def cancelled() -> None:
        with stoppable() as stop, judging_in(engine):
            judge = asyncio.create_task(asyncio.to_thread(is_correct, block("while True: pass"), case("program", SUM)))
            await asyncio.sleep(0.2)
            stop.set()
            with pytest.raises(Stopped):
                await judge

    asyncio.run(cancelled())


@pytest.mark.parametrize(
    ("answer", "fits"),
    [
        (SUM, True), ('{"tests": [["1", "2"]]}', True), ('{"tests": []}', False), ('{"tests": [["1"]]}', False),
        ("[]", False), ("x", False), ('{"tests": 5}', False), ("{}", False),
    ],
)  # fmt: skip
def test_an_answer_without_tests_is_refused(answer: str, fits: bool) -> None:
    assert programs.can_run_io_tests(answer) is fits


def test_packed_tests_read_back_equal() -> None:
    tests = IoTests(tests=(("x" * 100_000, "é\n"),), function="f")
    assert len(dump_tests(tests)) < 1000
    assert programs.load_io_tests(dump_tests(tests)) == tests
    with pytest.raises(ValueError, match="cannot be unpacked"):
        programs.load_io_tests('{"tests": "AAAA"}')


@pytest.mark.parametrize(
    ("output", "expected", "same"),
    [
        ("1 2\n3", "1 2 \n 3\n", True), ("1.0", "1", True), ("0.1 2", "0.10 2.0", True), ("1e2", "100", True),
        ("50000000000000000", "50000000000000001", False), ("1", "1\n2", False), ("a", "A", False),
        ("a 1", "a 1.0", False),
        ("", "", True), ("nan", "nan", True), ("nan 1", "nan 1.0", False), ("1e999999999", "1", False),
        ("sNaN", "1", False),
        ("\udcff".encode("utf-8", "surrogateescape").decode("latin-1"), "x", False),
    ],
)  # fmt: skip
def test_outputs_are_compared_by_line_then_by_number(output: str, expected: str, same: bool) -> None:
    """The rule of LiveCodeBench; numbers are exact."""
    assert same_output(output.encode(), expected) is same


@pytest.mark.parametrize(
    ("report", "expected", "same"),
    [("[1, 2.0]", "[1.0, 2]", True), ("true", "1", True), ("NaN", "NaN", False), ("", "null", False),
     ("[" * 100_000, "[]", False), ("\"1\"", "1", False)],
)  # fmt: skip
def test_values_are_compared_as_python_compares_them(report: str, expected: str, same: bool) -> None:
    assert same_value(report.encode(), expected) is same


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\na\n```", "a"), ("```\na\n```\ntext\n```py\nb\nc\n```", "b\nc"), ("a", ""), ("```a", ""),
        ("```\na\n```\n```\n", ""),
    ],
)  # fmt: skip
def test_the_last_block_is_the_program(text: str, code: str) -> None:
    assert last_block(text) == code


def test_the_right_outputs_never_enter_the_sandbox(engine: SandboxEngine | None) -> None:
    if engine is None:
        return
    code = (
        "import gc, sys\nprint(sys.stdin.read(), open('/proc/self/environ').read())\n"
        "print([x for x in gc.get_objects() if isinstance(x, (str, dict, list))])"
    )
    secret = dump_tests(IoTests(tests=(("in", "the-right-output"),)))
    seen: list[Any] = []

    def look(output: bytes, expected: str) -> bool:
        seen.append(output)
        return False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "same_output", look)
        assert not is_correct(block(code), case("program", secret))
    assert b"in" in seen[0]
    assert b"the-right-output" not in seen[0]
    assert json.loads(secret)["tests"].encode() not in seen[0]
    assert sys.executable.encode() not in seen[0]

"""Checks against hostile JSON Schemas, and the children that make them.

Bounded, and nothing is left behind.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from conductor_cli.programs import schema_check
from conductor_cli.programs.bounded_child import ChildLimits, ChildStopped, run_child
from conductor_cli.programs.schema_check import CheckStopped, find_fault, find_schema_fault
from conductor_cli.programs.turns import CHILDREN
from tests.schema_bombs import BOMB, checking, with_ticks
from tests.servers import SeenRequest, Wire, loopback

EVIL = r"(a*)*\1b"  # A reference back, so that no automaton can be made of it
VICTIM = "a" * 40 + "!"


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (BOMB, {}),
        ({"patternProperties": {EVIL: {}}, "additionalProperties": False}, {VICTIM: 1}),
        (
            {"allOf": [{"$schema": "http://json-schema.org/draft-07/schema#", "pattern": EVIL}]},
            VICTIM,
        ),
    ],
    ids=["references", "pattern of names", "pattern of another dialect"],
)
def test_a_check_without_end_is_stopped_beside_other_work(
    schema: dict[str, Any], value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_check, "CHECK_SECONDS", 1.0)

    async def main() -> int:
        async def check() -> None:
            with pytest.raises(CheckStopped, match="too much time or memory"):
                await find_fault(schema, value)

        return (await with_ticks(check()))[1]

    assert asyncio.run(main()) > 0
    assert checking() == []


def test_a_schema_itself_is_checked_in_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_check, "CHECK_SECONDS", 100.0)
    for pattern in ("(a", "(a{1000}){1000}"):
        fault = asyncio.run(find_schema_fault({"pattern": pattern}))
        assert fault == f'at pattern: "{pattern}" is not a "regex"'
    assert checking() == []


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_a_schema_with_a_number_that_no_json_holds_is_refused(number: float) -> None:
    fault = asyncio.run(find_schema_fault({"properties": {"a": {"maximum": number}}}))
    assert fault.startswith("it holds NaN, Infinity, or a number")


def test_the_memory_of_a_check_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_check, "CHECK_SECONDS", 100.0)
    monkeypatch.setattr(schema_check, "MEMORY_BYTES", 192 << 20)
    assert asyncio.run(find_fault({"$ref": "#/$defs/a", "$defs": {"a": {}}}, {})) == ""
    definitions = {
        **{
            f"a{number}": {"anyOf": [{"$ref": f"#/$defs/a{number + 1}"}] * 10}
            for number in range(7)
        },
        "a7": {"type": "string"},
    }
    with pytest.raises(CheckStopped):
        asyncio.run(find_fault({"$ref": "#/$defs/a0", "$defs": definitions}, {}))


def test_a_cancelled_check_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_check, "CHECK_SECONDS", 100.0)

    async def main() -> None:
        task = asyncio.create_task(find_fault(BOMB, {}))
        while not checking():
            assert not task.done()
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert checking() == []


def test_many_checks_at_once_start_few_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_check, "CHECK_SECONDS", 100.0)
    most = 0

    async def main() -> list[str]:
        nonlocal most
        checks = asyncio.gather(*(find_fault({"not": {"type": "null"}}, None) for _ in range(6)))
        while not checks.done():
            most = max(most, len(checking()))
            await asyncio.sleep(0)
        return await checks

    assert all(asyncio.run(main()))
    assert 0 < most <= CHILDREN


def test_what_is_little_work_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_check, "CHILD", Path("/nowhere"))
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"pattern": {"type": "array", "items": {"enum": [1, 2]}}},
        "additionalProperties": False,
    }
    assert asyncio.run(find_fault(schema, {"pattern": [1, 2]})) == ""
    assert asyncio.run(find_fault(schema, {"pattern": [3]})) == "pattern.0: 3 is not one of 1 or 2"
    for costly, value in (
        (schema, {"pattern": [1] * 5000}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {}}}, 1),
    ):
        with pytest.raises(CheckStopped):
            asyncio.run(find_fault(costly, value))


LOOKS = """
import os
def answer(data):
    print("noise")
    yield data.decode()
    yield sorted(os.environ)
    try:
        yield os.write(os.open(__file__ + ".new", os.O_WRONLY | os.O_CREAT), b"x")
    except OSError:
        yield "refused"
"""
STAYS = """
import os, subprocess, sys, time
def answer(data):
    yield os.getpid()
    yield subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid
    time.sleep(600)
"""


def is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def script(directory: Path, text: str) -> Path:
    path = directory / "work.py"
    path.write_text(text)
    return path


def test_a_child_has_no_keys_writes_no_file_and_prints_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    limits = ChildLimits(seconds=60, memory=512 << 20, cpu_seconds=30)
    given, variables, written = run_child(script(tmp_path, LOOKS), b"given", limits)
    assert (given, written) == ("given", "refused")
    assert "PATH" in variables
    assert "OPENAI_API_KEY" not in variables


def test_a_child_that_takes_too_long_ends_with_what_it_has_started(tmp_path: Path) -> None:
    """What it gave before is known."""
    with pytest.raises(ChildStopped) as stopped:
        run_child(script(tmp_path, STAYS), b"", ChildLimits(seconds=2))
    assert stopped.value.why == "time"
    for pid in stopped.value.values:
        end = time.monotonic() + 60  # it is killed, and a moment later gone
        while is_alive(pid) and time.monotonic() < end:
            time.sleep(0.01)
        assert not is_alive(pid)


@pytest.mark.parametrize(
    "text", ["def answer(data):\n    yield 1\n    raise MemoryError\n", "def answer(data: yes"]
)
def test_a_child_that_breaks_down_is_no_answer(text: str, tmp_path: Path) -> None:
    with pytest.raises(ChildStopped) as stopped:
        run_child(script(tmp_path, text), b"", ChildLimits(seconds=60))
    assert stopped.value.why == "broken"


def test_nothing_is_fetched_that_a_schema_names() -> None:
    """Neither a dialect, nor what it refers to: both are refused by their names."""

    async def script(request: SeenRequest, wire: Wire) -> None:
        await wire.json({})

    with loopback(script) as server:
        url = f"{server.url}/schema"
        dialect = asyncio.run(find_schema_fault({"$schema": url}))
        reference = asyncio.run(find_schema_fault({"$ref": url}))
        nested = {"allOf": [{"$schema": url, "$id": f"{url}/own", "type": "object"}]}
        asyncio.run(find_schema_fault(nested))
        for schema in ({"$schema": url}, {"$ref": url}, nested):
            asyncio.run(find_fault(schema, {}))
    assert url in dialect
    assert url in reference
    assert not server.requests


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"pattern": "^[0-9]{5}$"}, "12345", "not a zip"),
        ({"pattern": r"^\p{Lu}+$"}, "ÄÖ", "äö"),
        ({"format": "email"}, "a@example.org", "hi"),
        ({"format": "date"}, "2026-11-29", "hi"),
        ({"format": "uuid"}, "2eb8aa08-aa98-11ea-b4aa-73b441d16380", "hi"),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "items": [{"type": "string"}, {"type": "integer"}],
            },
            ["a", 1],
            [1, "a"],
        ),
    ],
    ids=["digits", "letters", "email", "date", "uuid", "tuple of draft 7"],
)
def test_patterns_formats_and_older_drafts_are_checked(
    schema: dict[str, Any], right: object, wrong: object
) -> None:
    assert asyncio.run(find_schema_fault(schema)) == ""
    assert asyncio.run(find_fault(schema, right)) == ""
    assert asyncio.run(find_fault(schema, wrong))

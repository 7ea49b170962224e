"""After a command has done its work, nothing of it remains in its process.

No thread, socket, file or child.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import conductor_cli
from tests.cli.stage import THREE, Stage, finished
from tests.cli.terminals import terminal
from tests.cli.test_tools import SERVER as RAW_SERVER
from tests.cli.test_tools import calls

WATCH = """
import json, os, sys, time

def read(path):
    try:
        return open(path).read().strip()
    except OSError:  # a thread that has ended meanwhile
        return ""

def look():
    tasks = os.listdir("/proc/self/task")
    files = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            files[number] = os.readlink(f"/proc/self/fd/{number}")
        except OSError:  # the directory itself
            pass
    return {
        "threads": sorted(filter(None, (read(f"/proc/self/task/{task}/comm") for task in tasks))),
        "children": " ".join(read(f"/proc/self/task/{task}/children") for task in tasks).split(),
        "files": files,
    }

from conductor_cli.__main__ import main
place, sys.argv = sys.argv[1], ["conductor", *sys.argv[2:]]
before = look()
try:
    main()
    code = 0
except SystemExit as end:
    code = end.code or 0
# A thread that was joined is for a moment still one of the system's.
end = time.monotonic() + 30
while look()["threads"].count("python") > before["threads"].count("python") and time.monotonic() < \
end:
    time.sleep(0.01)
with open(place, "w") as file:
    json.dump({"before": before, "after": look() | {"own": file.fileno()}}, file)
sys.exit(code)
"""
"""Runs a command in its process as the installed one does, and looks at the process before it
exits.
"""


def watched(path: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-c", WATCH, str(path), *arguments]


def start(stage: Stage, path: Path, *arguments: str, **env: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        watched(path, *arguments),
        env=stage.environ(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def remains(path: Path) -> dict[str, Any]:
    """What was not there before the command."""
    manifest = json.loads(path.read_text())
    before = manifest["before"]
    after = manifest["after"]
    own_number = str(after["own"])
    return {
        "threads": sorted((Counter(after["threads"]) - Counter(before["threads"])).elements()),
        "children": after["children"],
        "files": [
            name
            for number, name in after["files"].items()
            if number not in before["files"] and number != own_number
        ],
    }


RUNS = 15
WARM = 5
NOTHING: dict[str, Any] = {"threads": [], "children": [], "files": []}


@pytest.mark.parametrize(
    "arguments",
    [
        ["ask", "How many?"],
        ["ask", "Which day is it?", "--demo"],
        ["ask", "Fail?", "--workers", "nobody"],
    ],
)
def test_nothing_remains_after_a_question(
    stage: Stage, tmp_path: Path, arguments: list[str]
) -> None:
    stage.plan = THREE
    left = tmp_path / "left.json"
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with start(stage, left, *arguments, TMPDIR=str(temporary)) as process:
        done = finished(process, None)
    assert remains(left) == NOTHING, done
    assert list(temporary.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_nothing_remains_of_tools_and_programs(stage: Stage, tmp_path: Path) -> None:
    program = '[workers.old]\nkind = "command"\ncommand = ["sh", "-c", "sleep 60 & echo heard"]'
    stage.configure(tables=program)
    stage.inside("tools", "add", "t", "--", sys.executable, str(RAW_SERVER))
    stage.plan = "old | - | First.\nalpha | 1 | Second."
    stage.models["alpha"] = calls("add", a=40, b=2)
    left = tmp_path / "left.json"
    with start(stage, left, "ask", "What is 40 and 2?", "--tools", "t") as process:
        done = finished(process, None)
    assert done.out == "the tool says: 42\n", done.err
    assert remains(left) == NOTHING, done


def test_nothing_remains_after_serving(stage: Stage, tmp_path: Path) -> None:
    left = tmp_path / "left.json"
    with start(stage, left, "serve", "--port", "0") as process:
        assert process.stdout is not None
        address = process.stdout.readline().decode().split()[-1]
        body = json.dumps(
            {"model": "conductor", "messages": [{"role": "user", "content": "How many?"}]}
        ).encode()
        request = urllib.request.Request(
            f"{address}/v1/chat/completions", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert "alpha answers" in answer.read().decode()
        process.send_signal(signal.SIGTERM)
        done = finished(process, None)
    remaining = remains(left)
    # libuv, under uvloop, keeps its own threads and a pipe for signals until the process exits.
    remaining["threads"] = [name for name in remaining["threads"] if name != "libuv-worker"]
    assert all(name.startswith("pipe:") for name in remaining["files"]), remaining
    assert len(remaining.pop("files")) <= 2
    assert remaining == {"threads": [], "children": []}, done


def test_nothing_remains_after_a_chat(stage: Stage, tmp_path: Path) -> None:
    left = tmp_path / "left.json"
    with terminal(stage, "chat", command=tuple(watched(left))) as screen:
        screen.until("$0.00")
        screen.program.send("How many?\r")
        screen.until("alpha answers")
        screen.until(lambda shown: screen.raw.count("\u203a") > 1)
        screen.program.send("/quit\r")
        assert screen.end() == 0
    assert remains(left) == NOTHING


def test_runs_leave_nothing_in_their_process(stage: Stage) -> None:
    """What is made once, such as a thread of the pool, is made in one round, not in both."""
    measurements = []
    with conductor_cli.open() as orchestra:
        for count in (WARM, RUNS, RUNS):
            for _ in range(count):
                assert orchestra.ask("How many?").answer == "alpha answers"
            stage.server.requests.clear()
            measurements.append(held())
    (files, _), *_ = measurements[0]
    assert [after[0][0] for after in measurements] == [files] * 3
    assert min(after[1] - before[1] for before, after in pairwise(measurements)) < RUNS / 2
    assert min(after[0][1] - before[0][1] for before, after in pairwise(measurements)) == 0


def opened() -> dict[str, list[str]]:
    """Return Python's threads, the children, and the open files of this process.

    The connections of the tests' server are left out. C libraries keep threads of their own, and
    those of a database that an earlier test has left end a while after it.
    """
    gc.collect()
    end = time.monotonic() + 2
    while (
        any(thread.name.startswith("asyncio_") for thread in threading.enumerate())
        and time.monotonic() < end
    ):
        time.sleep(0.01)
    links = list[str]()
    children = list[str]()
    for file in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the directory itself
            links.append(str(file.readlink()))
    for task in Path("/proc/self/task").iterdir():
        children += (task / "children").read_text().split()
    return {
        "threads": sorted(
            thread.name
            for thread in threading.enumerate()
            if not thread.name.startswith(("state_", "leases"))
        ),
        "children": children,
        "files": sorted(link for link in links if not link.startswith(("socket:", "/proc/"))),
    }


def held() -> tuple[tuple[int, int], int]:
    """Descriptors and threads of this process, and the objects in it."""
    gc.collect()
    files, threads = (len(list(Path(f"/proc/self/{name}").iterdir())) for name in ("fd", "task"))
    return (files, threads), len(gc.get_objects())

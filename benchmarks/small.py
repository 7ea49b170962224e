"""Small benchmarks, one function and one table each: `TABLES` has them by name."""

from __future__ import annotations

import asyncio
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import Final, TextIO

from figures import (
    MEGABYTE,
    Figure,
    Table,
    in_turn,
    newcomer,
    orchestra,
    ratio,
    share,
    spent,
    terminal,
)
from loopback import server

from conductor_cli.tools.servers import ToolServer
from conductor_cli.tools.session import McpToolBox

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # for the package `tests`

VERSION: Final = [*orchestra(), "--version"]


def start() -> Table:
    """Return how long the command line takes for its version, its help and a tab.

    Beside it stands `llm`, which is of the same kind.
    """
    beside = Path(sys.executable).with_name("llm")
    rounds = 11
    llm = str(beside) if beside.exists() else shutil.which("llm")
    if llm is None:
        raise SystemExit(
            "start is measured against llm, which is not installed: pip install llm, or make setup"
        )
    demo = "one question of the rehearsal, process start to exit"
    tab = "names of 20 workers for a shell, as a multiple of `conductor --version`"
    worker = '[workers.worker{0}]\nkind = "openai"\nmodel = "model-{0}"\nabout = "One of many."\n'
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "settings.toml").write_text(
            "\n".join(worker.format(number) for number in range(20))
        )
        environ = newcomer(directory) | {"CONDUCTOR_LLM_CONFIG_DIR": directory}
        commands = {
            "llm --help": [llm, "--help"],
            "conductor --version": VERSION,
            "conductor --help": [*orchestra(), "--help"],
            "python -c pass": [sys.executable, "-c", "pass"],
            tab: [*orchestra(), "complete", ":", "workers", "test"],
            demo: [
                *orchestra(),
                "--quiet",
                "ask",
                "--demo",
                "Find the capital of Japan, then spell it backwards.",
            ],
        }
        times = in_turn({name: (command, environ) for name, command in commands.items()}, rounds)
    peer = times["llm --help"]
    version = times["conductor --version"]
    return Table(
        "start",
        f"Wall time over that of `llm --help`, taken in the same round; median of {rounds} rounds.",
        (
            share("conductor --version", version, peer, 0.25),
            share("conductor --help", times["conductor --help"], peer, 0.30),
            share("python -c pass", times["python -c pass"], peer),
            share(tab, times[tab], version, 2.0),
            share(demo, times[demo], peer, 1.0),
            Figure("llm --help itself", statistics.median(command.wall for command in peer), "ms"),
        ),
    )


def chat() -> Table:
    """Return how long a chat takes until its prompt takes keys, and a server until it answers.

    Beside them stands `--version`.
    """
    with tempfile.TemporaryDirectory() as directory:
        rounds = [_chat_round(newcomer(directory)) for _ in range(8)][1:]
    version, mark, prompt, serve = (list(values) for values in zip(*rounds, strict=True))
    return Table(
        "chat",
        "`conductor chat --demo` in a pseudo-terminal; median of 7 rounds.",
        (
            Figure(
                "the mark before what is typed, as a multiple of `conductor --version`",
                ratio(mark, version),
                "ratio",
                5.0,
                _median_ms(mark),
            ),
            Figure(
                "the prompt with its keys, as a multiple of `conductor --version`",
                ratio(prompt, version),
                "ratio",
                None,
                _median_ms(prompt),
            ),
            # It was 1.5 of the prompt, which took 18 times as long as `--version` then, and takes 6
            # times as long now.
            Figure(
                (
                    "`conductor serve` until it answers `/health`, as a multiple of `conductor "
                    "--version`"
                ),
                ratio(serve, version),
                "ratio",
                27.0,
                _median_ms(serve),
            ),
        ),
    )


def _chat_round(environ: Mapping[str, str]) -> tuple[float, float, float, float]:
    """Return the seconds of `--version`, of the mark, of the prompt, and until a server answers."""
    import pexpect

    version = spent(VERSION, environ).wall
    command, *arguments = [*orchestra(), "chat", "--demo"]
    began = time.perf_counter()
    screen = pexpect.spawn(
        command,
        arguments,
        env={**environ, "TERM": "xterm-256color"},
        encoding="utf-8",
        timeout=60,
    )
    screen.expect("\u203a")
    mark = time.perf_counter() - began
    # How prompt_toolkit asks a terminal to tell pastes: the prompt is there
    screen.expect("\x1b\\[\\?2004h")
    prompt = time.perf_counter() - began
    screen.send("\x04")
    screen.expect(pexpect.EOF)
    screen.close()
    return version, mark, prompt, _until_it_serves(environ)


def _median_ms(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) * 1e3:.0f} ms"


def _until_it_serves(environ: Mapping[str, str]) -> float:
    began = time.perf_counter()
    command = [*orchestra(), "serve", "--demo", "--port", "0"]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        connection = HTTPConnection(process.stdout.readline().split("//")[-1].strip())
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200
        seconds = time.perf_counter() - began
        connection.close()
        process.terminate()
    return seconds


def tools() -> Table:
    """Our own time for one call of a tool over stdio, beyond what the server takes."""

    async def calls() -> list[float]:
        command = (sys.executable, str(ROOT / "tests/tools/raw_server.py"))
        box = McpToolBox(
            {"t": ToolServer(name="t", command=command, only=("add",))}, lambda text: text
        )
        try:
            [tool] = await box.offered(["t"])
            seconds = []
            for number in range(301):
                began = time.perf_counter()
                result = await box.call(tool, {"a": number, "b": 1})
                seconds.append(time.perf_counter() - began)
                assert result.text == str(number + 1)
        finally:
            await box.close()
        return sorted(seconds[1:])

    seconds = asyncio.run(calls())
    return Table(
        "tools",
        "A server of tools over stdio, 300 calls, after one that is not counted.",
        (
            Figure(
                "one call of a tool that takes no time, median",
                statistics.median(seconds),
                "ms",
                0.005,
                f"9 of 10 calls within {seconds[270] * 1e3:.1f} ms",
            ),
        ),
    )


LAUNCHER: Final = """
import json, os, sys
nothing = os.open(os.devnull, os.O_RDWR)
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, \
nothing, 1)])
_, status, usage = os.wait4(child, 0)
print(json.dumps([os.waitstatus_to_exitcode(status), usage.ru_maxrss]))
"""
"""Starts the command from a small process: Linux counts what a process weighed before it became
another program.
"""


def memory() -> Table:
    """Return the most memory that `conductor ask` holds, without a local model.

    Its workers are behind the openai adapter.
    """

    def peak(command: list[str], stderr: TextIO | int = subprocess.DEVNULL) -> int:
        """The bytes that a command had resident."""
        launched = [sys.executable, "-I", "-S", "-c", LAUNCHER, *command]
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": stderr}
        code, most = json.loads(subprocess.run(launched, env=environ, check=True, **streams).stdout)
        if code:
            raise SystemExit(f"{' '.join(command)} ended with {code}")
        return most * (1 if sys.platform == "darwin" else 1024)

    def ask_figure(
        title: str, model: str, *, drawn: bool = False, kind: str = "openai-compatible"
    ) -> Figure:
        table = (
            f'kind = "{kind}"\nbase_url = "{url}"\nmodel = "{model}"\nkey_env = "BENCHMARK_KEY"\n'
        )
        file = Path(directory) / "benchmark.toml"
        file.write_text(
            "\n".join(f"[workers.{name}]\n{table}" for name in ("ada", "ben", "cem")),
            encoding="utf-8",
        )
        ask = [
            "--config",
            str(file),
            "ask",
            "Which lock is taken first?",
            "--planner",
            f"{url}#plan",
        ]
        with terminal() as (stderr, written):
            most = peak([*orchestra(), *ask], stderr if drawn else subprocess.DEVNULL)
        bound = None if kind == "litellm" else 120 * MEGABYTE
        return Figure(
            title, most, "MB", bound, f"{written[0] / 1024:.0f} KB drawn" if drawn else ""
        )

    with server() as url, tempfile.TemporaryDirectory() as directory:
        environ = newcomer(directory) | {"TERM": "xterm-256color", "BENCHMARK_KEY": "no-secret"}
        about = (
            "Peak resident memory of `conductor ask`: a plan and three steps, all by the "
            "openai adapter."
        )
        return Table(
            "memory",
            about,
            (
                ask_figure("answers of 500 words, no terminal", "500"),
                ask_figure("the same at 300 words/s, drawn on a terminal", "500@300", drawn=True),
                ask_figure("answers of 4,000 words, drawn on a terminal", "4000", drawn=True),
                ask_figure("500 words through litellm, to compare", "openai/500", kind="litellm"),
                Figure("python -c pass, to compare", peak([sys.executable, "-c", "pass"]), "MB"),
            ),
        )


TABLES: Final[dict[str, Callable[[], Table]]] = {
    "start": start,
    "chat": chat,
    "tools": tools,
    "memory": memory,
}

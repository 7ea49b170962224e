"""Small benchmarks, one function and one table each: `TABLES` has them by name."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import socket
import statistics
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from decimal import Decimal
from pathlib import Path
from typing import Final

from figures import MEGABYTE, Figure, Table, conductor, in_turn, newcomer, ratio, share, spent, timed
from loopback import server

from conductor_cli.core.estimate import PlannerCost, estimate_plan, estimate_planning
from conductor_cli.core.ledger import DayBudget, Ledger, Reservation
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.policy import Policy, PoolPolicy, check_limits, check_pool, permitted_pool
from conductor_cli.core.pool import DayLimits, Limits, Pool, Worker
from conductor_cli.core.profile import WorkerProfile
from conductor_cli.core.question import Question
from conductor_cli.core.redact import Secrets, StreamRedactor
from conductor_cli.core.usage import Price, Usage, with_cost
from conductor_cli.models.presets import PRESETS, party_of
from conductor_cli.models.prices import load_prices, with_prices
from conductor_cli.programs.sandbox import SandboxProcess, SandboxProgram, find_engine
from conductor_cli.state.spending import DailySpend
from conductor_cli.tools.servers import ToolServer
from conductor_cli.tools.session import McpToolBox

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # for the package `tests`

VERSION: Final = [*conductor(), "--version"]


def start() -> Table:
    """How long the command line takes to say its version and its help, beside `llm`, of the same kind; and a tab."""
    beside, rounds = Path(sys.executable).with_name("llm"), 11
    llm = str(beside) if beside.exists() else shutil.which("llm")
    if llm is None:
        raise SystemExit("start is measured against llm, which is not installed: pip install llm, or make setup")
    demo = "one question of the rehearsal, process start to exit"
    tab = "names of 20 workers for a shell, as a multiple of `conductor --version`"
    worker = '[workers.worker{0}]\nkind = "openai"\nmodel = "model-{0}"\nabout = "One of many."\n'
    with tempfile.TemporaryDirectory() as place:
        Path(place, "settings.toml").write_text("\n".join(worker.format(number) for number in range(20)))
        environ = newcomer(place) | {"CONDUCTOR_LLM_CONFIG_DIR": place}
        commands = {
            "llm --help": [llm, "--help"], "conductor --version": VERSION, "conductor --help": [*conductor(), "--help"],
            "python -c pass": [sys.executable, "-c", "pass"], tab: [*conductor(), "complete", ":", "workers", "test"],
        demo: [*conductor(), "--quiet", "ask", "--rehearsal", "Find the capital of Japan, then spell it backwards."],
        }  # fmt: skip
        seen = in_turn({name: (command, environ) for name, command in commands.items()}, rounds)
    peer, version = seen["llm --help"], seen["conductor --version"]
    return Table("start", f"Wall time over that of `llm --help`, taken in the same round; median of {rounds} rounds.", (
        share("conductor --version", version, peer, 0.25),
        share("conductor --help", seen["conductor --help"], peer, 0.30),
        share("python -c pass", seen["python -c pass"], peer),
        share(tab, seen[tab], version, 2.0),
        share(demo, seen[demo], peer, 1.0),
        Figure("llm --help itself", statistics.median(one.wall for one in peer), "ms"),
    ))  # fmt: skip


def chat() -> Table:
    """How long a chat takes until its prompt takes keys, and a server until it answers, beside `--version`."""
    import pexpect

    def measured(environ: Mapping[str, str]) -> tuple[float, float, float, float]:
        version = spent(VERSION, environ).wall
        command, *arguments = [*conductor(), "chat", "--rehearsal"]
        began = time.perf_counter()
        screen = pexpect.spawn(
            command, arguments, env={**environ, "TERM": "xterm-256color"}, encoding="utf-8", timeout=60
        )  # fmt: skip
        screen.expect("\u203a")
        mark = time.perf_counter() - began
        screen.expect("\x1b\\[\\?2004h")  # how prompt_toolkit asks a terminal to tell pastes: the prompt is there
        prompt = time.perf_counter() - began
        screen.send("\x04")
        screen.expect(pexpect.EOF)
        screen.close()
        return version, mark, prompt, _until_it_serves(environ)

    with tempfile.TemporaryDirectory() as place:
        rounds = [measured(newcomer(place)) for _ in range(8)][1:]
    version, mark, prompt, serve = (list(values) for values in zip(*rounds, strict=True))
    times = {name: f"{statistics.median(taken) * 1e3:.0f} ms" for name, taken in (("mark", mark), ("prompt", prompt))}
    return Table("chat", "`conductor chat --rehearsal` in a pseudo-terminal; median of 7 rounds.", (
        Figure("the mark before what is typed, as a multiple of `conductor --version`", ratio(mark, version), "ratio",
               5.0, times["mark"]),
        Figure("the prompt with its keys, as a multiple of `conductor --version`", ratio(prompt, version), "ratio",
               None, times["prompt"]),
        Figure("`conductor serve` until it answers `/health`, as a multiple of the prompt", ratio(serve, prompt),
               "ratio", 1.5, f"{statistics.median(serve) * 1e3:.0f} ms"),
    ))  # fmt: skip


def _until_it_serves(environ: Mapping[str, str]) -> float:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = time.perf_counter()
    command = [*conductor(), "serve", "--rehearsal", "--port", str(port)]
    process = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL)
    answer = b""
    while b" 200 " not in answer:
        if process.poll() is not None or time.perf_counter() - began > 60:
            raise RuntimeError("the server does not answer")
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            answer = connection.recv(100)
        time.sleep(0.001)
    taken = time.perf_counter() - began
    process.terminate()
    process.wait()
    return taken


def keys() -> Table:
    """What stored keys cost a start: none, five in a file, five in a keyring that never answers."""
    from tests.keys.bus import bus, wedged

    def kept(where: str, environ: Mapping[str, str]) -> dict[str, str]:
        entry = {"base_url": "https://llm.example.com/v1", "since": "2026-11-01T00:00:00+00:00", "where": where}
        entry |= {"key": "made-up-for-a-benchmark"} if where == "file" else {}
        path = place / where / "keys.json"
        path.parent.mkdir()
        path.touch(mode=0o600)
        path.write_text(json.dumps({"keys": dict.fromkeys(("openai", "anthropic", "gemini", "mistral", "xai"), entry)}))
        return {**environ, "CONDUCTOR_LLM_DATA_DIR": str(path.parent)}

    with ExitStack() as held:
        place = Path(held.enter_context(tempfile.TemporaryDirectory()))
        address = held.enter_context(bus(place))
        held.enter_context(wedged(address))
        environ = newcomer(str(place)) | {"DBUS_SESSION_BUS_ADDRESS": address}
        environ.pop("PYTHON_KEYRING_BACKEND", None)
        listed = [*conductor(), "keys", "list"]
        commands = {
            "version": (VERSION, environ), "none": (listed, environ), "file": (listed, kept("file", environ)),
            "wedged": (listed, kept("keyring", environ)),
        }  # fmt: skip
        seen = {name: [one.wall for one in runs] for name, runs in in_turn(commands, 5).items()}
    beyond = {
        name: statistics.median(one - other for one, other in zip(seen[name], seen["none"], strict=True))
        for name in ("file", "wedged")
    }
    about = "`conductor keys list`, wall time, median of 5 rounds. The keyring is a service that never answers."
    return Table("keys", about, (
        Figure("conductor --version", statistics.median(seen["version"]), "ms"),
        Figure("no stored key", statistics.median(seen["none"]), "ms"),
        Figure("five in a file, beyond none", beyond["file"], "ms"),
        # The list asks no keyring, so one that hangs delays nothing; runs of the same command differ by so much.
        Figure("five in a wedged keyring, beyond none", beyond["wedged"], "ms", 0.15),
    ))  # fmt: skip


def redaction() -> Table:
    """What it costs to look for keys, and for what is nearly a key, in a megabyte of a stream of tokens."""
    size, token = 1 << 20, 4
    draw, letters = random.Random(1), string.ascii_letters + string.digits
    secrets = Secrets(*("sk-proj-" + "".join(draw.choices(letters, k=48)) for _ in range(5)))
    text = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md")))
    text = (text * (size // len(text) + 1))[:size]

    def redact() -> None:
        stream = StreamRedactor(secrets)
        for at in range(0, size, token):
            stream.feed(text[at : at + token])

    secrets.redact("prepared")
    seconds = timed(redact, 3) / (size / token)
    about = f"5 keys are known; 1 MB of prose without a key comes in tokens of {token} characters."
    return Table("redaction", about, (
        Figure("one token", seconds, "us"),
        Figure("share of a token at 500 tokens a second", seconds / 0.002, "ratio", 0.02),
    ))  # fmt: skip


def sandbox() -> Table:
    """What the sandbox adds to a program that a model wrote, and to each of its tests."""
    engine, code = find_engine("", os.environ), "print(sum(map(int, input().split())))"

    def confined() -> None:
        with SandboxProcess(engine, SandboxProgram(code=code)) as box:
            assert box.run(b"1 2\n", 6).output == b"3\n"

    bare = [engine.python, "-I", "-c", code]
    alone = timed(lambda: subprocess.run(bare, input=b"1 2\n", capture_output=True, check=True), 15)
    inside = timed(confined, 15)
    with SandboxProcess(engine, SandboxProgram(code=code)) as box:
        test = timed(lambda: box.run(b"1 2\n", 6), 15)
    about = f"A program that adds two numbers, under {engine.kind}, and by the same interpreter without a sandbox."
    return Table("sandbox", about, (
        Figure("a program without a sandbox", alone, "ms"),
        Figure("a program in a sandbox of its own", inside, "ms"),
        Figure("each further test in the same sandbox", test, "ms"),
    ))  # fmt: skip


def tools() -> Table:
    """Our own time for one call of a tool over stdio, beyond what the server takes."""

    async def calls() -> list[float]:
        command = (sys.executable, str(ROOT / "tests/tools/raw_server.py"))
        box = McpToolBox({"t": ToolServer(name="t", command=command, only=("add",))}, lambda text: text)
        try:
            [tool] = await box.offered(["t"])
            taken = []
            for number in range(301):
                began = time.perf_counter()
                result = await box.call(tool, {"a": number, "b": 1})
                taken.append(time.perf_counter() - began)
                assert result.text == str(number + 1)
        finally:
            await box.close()
        return sorted(taken[1:])

    taken = asyncio.run(calls())
    return Table("tools", "A server of tools over stdio, 300 calls, after one that is not counted.", (
        Figure("one call of a tool that takes no time, median", statistics.median(taken), "ms", 0.005,
               f"9 of 10 calls within {taken[270] * 1e3:.1f} ms"),
    ))  # fmt: skip


ASK: Final = """
import asyncio, sys
from contextlib import aclosing
from conductor_cli.core.chat import Message, Request
from conductor_cli.core.pool import Worker
from conductor_cli.models.catalog import open_model

kind, url = sys.argv[1:]

async def first_token():
    model = open_model(
        Worker(name="w", kind=kind, model="anthropic/m" if kind == "litellm" else "m",
               options={"base_url": url, "key_env": "KEY"}),
        environ={"KEY": "made-up-for-a-benchmark"},
    )
    async with aclosing(model.stream(Request(messages=(Message(role="user", content="Yes?"),)))) as chunks:
        async for chunk in chunks:
            if chunk.text:
                print(chunk.text, "litellm" in sys.modules, flush=True)
                return

asyncio.run(first_token())
"""


def first_token() -> Table:
    """How long a worker of each kind takes to its first token, from the start of the process, against `openai`."""
    from tests.servers import SeenStep, Speaker, Wire, loopback

    async def reply(seen: SeenStep, wire: Wire) -> None:
        speaker = Speaker(seen, wire)
        await speaker.begin()
        await speaker.say("Yes.")
        await speaker.end()

    def seconds(kind: str, url: str) -> float:
        began = time.monotonic()
        with subprocess.Popen([sys.executable, "-c", ASK, kind, url], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            took = time.monotonic() - began
        assert line == f"Yes. {kind == 'litellm'}\n", line
        return took

    kinds = ("openai", "anthropic", "gemini", "litellm")
    with loopback(reply) as double:
        rounds = [{kind: seconds(kind, double.url) for kind in kinds} for _ in range(8)][1:]
    seen = {kind: [each[kind] for each in rounds] for kind in kinds}
    about = (
        "A process that opens one worker and asks a server on loopback, from start to first text; median of 7 rounds. "
        "`litellm` stands for all other providers; for the three, the process also checks that it is not imported."
    )
    return Table("first token", about, (
        Figure("openai", statistics.median(seen["openai"]), "ms"),
        *(Figure(f"{kind}, over openai", ratio(seen[kind], seen["openai"]), "ratio", None if kind == "litellm" else 1.3)
          for kind in kinds[1:]),
    ))  # fmt: skip


LAUNCHER: Final = """
import json, os, pty, sys, threading
terminal, *command = sys.argv[1:]
nothing = os.open(os.devnull, os.O_RDWR)
streams = {0: nothing, 1: nothing, 2: nothing}
drawn = [0]
def drain(end):
    try:
        while piece := os.read(end, 65536):
            drawn[0] += len(piece)
    except OSError:
        pass
if terminal == "terminal":
    ours, theirs = pty.openpty()
    streams[2] = theirs
    threading.Thread(target=drain, args=(ours,), daemon=True).start()
actions = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in streams.items()]
child = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
_, status, usage = os.wait4(child, 0)
print(json.dumps([os.waitstatus_to_exitcode(status), usage.ru_maxrss, drawn[0]]))
"""
"""Starts the command from a small process: Linux counts what a process weighed before it became another program."""


def memory() -> Table:
    """The most memory that `conductor ask` holds, with workers behind the openai adapter and no local model."""

    def peak(command: list[str], terminal: str = "none") -> tuple[int, int]:
        """Bytes that a command had resident, and that it wrote to a terminal, if its errors go to one."""
        launched = [sys.executable, "-I", "-S", "-c", LAUNCHER, terminal, *command]
        done = subprocess.run(launched, env=environ, stdin=subprocess.DEVNULL, capture_output=True, check=True)
        code, most, drawn = json.loads(done.stdout)
        if code or (terminal == "terminal" and not drawn):
            raise SystemExit(f"{' '.join(command)} ended with {code}, {drawn} bytes drawn")
        return most * (1 if sys.platform == "darwin" else 1024), drawn

    def asked(what: str, model: str, terminal: str = "none", kind: str = "openai-compatible") -> Figure:
        table = f'kind = "{kind}"\nbase_url = "{url}"\nmodel = "{model}"\nkey_env = "BENCHMARK_KEY"\n'
        file = Path(place) / "benchmark.toml"
        file.write_text("\n".join(f"[workers.{name}]\n{table}" for name in ("ada", "ben", "cem")), encoding="utf-8")
        ask = ["--config", str(file), "ask", "Which lock is taken first?", "--conductor", f"{url}#plan"]
        most, drawn = peak([*conductor(), *ask], terminal)
        bound = None if kind == "litellm" else 120 * MEGABYTE
        return Figure(what, most, "MB", bound, f"{drawn / 1024:.0f} KB drawn" if drawn else "")

    with server() as url, tempfile.TemporaryDirectory() as place:
        environ = newcomer(place) | {"TERM": "xterm-256color", "BENCHMARK_KEY": "no-secret"}
        about = "Peak resident memory of `conductor ask`: a plan and three steps, all by the openai adapter."
        return Table("memory", about, (
            asked("answers of 500 words, no terminal", "500"),
            asked("the same at 300 words/s, drawn on a terminal", "500@300", "terminal"),
            asked("answers of 4,000 words, drawn on a terminal", "4000", "terminal"),
            asked("500 words through litellm, to compare", "openai/500", kind="litellm"),
            Figure("python -c pass, to compare", peak([sys.executable, "-c", "pass"])[0], "MB"),
        ))  # fmt: skip


def money() -> Table:
    """What prices, policy, limits and the estimate add to a run, and what it takes to write down what was spent."""
    rounds, price = 200, Price(input=Decimal(1), output=Decimal(10))
    known = [(kind, preset) for kind, preset in PRESETS.items() if preset.model and preset.cost == "unknown"]
    models = tuple(Worker(name=kind, kind=kind, model=preset.model) for kind, preset in known)
    question = Question(text="How many primes below 1000 end in 7, and what is their sum? " * 20)
    limits, policy = (
        Limits(cost=Decimal(1), tokens=100_000, calls=20),
        Policy(deny=("nobody",), files_only=(("local",),)),
    )
    workers, problem = with_prices(models)
    if problem or not all(worker.price for worker in workers):
        raise SystemExit(problem or "a preset's model has no price")

    def judge() -> None:
        """What is decided before a run, and the estimate of its plan."""
        parties = {worker.name: party_of(worker) for worker in workers}
        pool = permitted_pool(Pool(workers=workers), PoolPolicy(policy=policy, parties=parties))
        check_limits(limits)
        check_pool(pool, limits)
        steps = (
            Step(worker=pool.names[number % len(pool)], subtask="Work on this part. " * 5, access=(*range(1, number),))
            for number in range(1, 6)
        )
        planner = PlannerCost(read=2000, price=price)
        estimate = estimate_plan(question, Plan(steps=tuple(steps)), pool, WorkerProfile(), planner)
        if (estimate + estimate_planning(planner)).unpriced:
            raise SystemExit("a step has no price")

    def called(day: DayLimits) -> float:
        """Seconds that recording one call takes, from the reservation to its end, after 1,000 calls of that day."""
        usage = with_cost(Usage(tokens_in=100, tokens_out=50, calls=1), price)
        ledger = Ledger(Limits())

        def decide(today: DayBudget) -> Reservation | None:
            return ledger.reserve(100, 1000, price, today=today)

        def call() -> None:
            reservation = book.reserve(decide, ledger.release, models[0])
            if reservation is None:
                raise SystemExit("there is no room")
            ledger.settle(reservation, usage)
            book.settle(reservation, usage)

        with tempfile.TemporaryDirectory() as place:
            book = DailySpend(Path(place), day)
            for _ in range(1000):
                call()
            seconds = timed(call, rounds)
            book.close()
        return seconds

    looked, held = timed(lambda: with_prices(models), rounds), timed(judge, rounds)
    if "litellm" in sys.modules:
        raise SystemExit("litellm was imported")
    about = f"Medians of {rounds} rounds in one process, {len(workers)} workers; litellm is not imported."
    return Table("money", about, (
        Figure("prices, policy and estimate together", looked + held, "us", 1e-3),
        Figure("prices of all workers, once the table is read", looked, "us"),
        Figure("policy, limits and the estimate of five steps", held, "us"),
        Figure("reading litellm's table, once in a process", timed(load_prices.__wrapped__, 3), "ms"),
        Figure("a call written down, without limits of a day", called(DayLimits()), "us"),
        Figure("a call held and written down, with one", called(DayLimits(cost=Decimal(10**6))), "us"),
    ))  # fmt: skip


TABLES: Final[dict[str, Callable[[], Table]]] = {
    "start": start, "chat": chat, "tools": tools, "first_token": first_token, "memory": memory, "keys": keys,
    "redaction": redaction, "money": money, "sandbox": sandbox,
}  # fmt: skip

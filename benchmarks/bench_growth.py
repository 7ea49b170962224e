"""Whether a cost grows with what is stored or was served.

Each figure is the processor time of an operation with much behind it, over the same operation with
little behind it, in the same run and in turns. What is stored was written by copying: rows of
calls, files of runs, lines of ratings. What was served is served, `REQUESTS` times.
"""

from __future__ import annotations

import asyncio
import json
import os
import pty
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

import psutil
from bench_traces import BEGAN, events_of, write
from figures import MEGABYTE, Figure, Table, cpu_of, newcomer, orchestra, ratio, spent
from loopback import Asked, choice, ending, listen, server, spelled

from conductor_cli.server.runs.run_registry import KEPT_SECONDS
from conductor_cli.state.spending_file import FILE, open_database
from conductor_cli.state.trace_file import open_trace
from conductor_cli.state.trace_store import TraceStore

MUCH: Final = 10.0 ** float(os.environ.get("GROWTH_DECADES", "5"))
"""Rows of calls that are stored; there are a tenth as many runs and ratings, a hundredth as many
requests and questions, and a thousandth as many clients.
"""
CALLS: Final = int(MUCH)
RUNS: Final = int(MUCH / 10)
RATINGS: Final = int(MUCH / 10)
REQUESTS: Final = int(MUCH / 100)
CLIENTS: Final = int(MUCH / 1000)
CONNECTIONS: Final = 16
SAMPLE: Final = max(10, min(1000, REQUESTS // 10))  # requests of one measurement
ROUNDS: Final = 9
BATCH_ROUNDS: Final = 5  # A batch takes longer
BOUND: Final = 1.1
# A question reads at most 512 KB of ratings, about 24 ms, however many there are beyond that
RATED_BOUND: Final = 1.15


@dataclass
class Home:
    """A home of somebody who has `conductor serve`, and that server."""

    place: Path
    worker: str

    @property
    def environ(self) -> dict[str, str]:
        return newcomer(str(self.place)) | {"CONDUCTOR_LLM_CONFIG_DIR": str(self.place)}

    @property
    def state(self) -> Path:
        return Path(self.environ["XDG_STATE_HOME"]) / "conductor-llm"

    def configure(self) -> None:
        """Write settings with an instant planner, an instant worker, and limits of the day."""
        self.place.mkdir(parents=True, exist_ok=True)
        settings = (
            f'[planner]\nmodel = "{self.worker}#planner"\n'
            "[limits]\ntokens_day = 1000000000\ncalls_day = 1000000000\n"
            f"[serve]\nparallel = {CONNECTIONS}\n"
            f'[workers.alpha]\nkind = "openai-compatible"\nbase_url = "{self.worker}"\n'
            f'model = "alpha"\nparallel = {CONNECTIONS}\n'
            "price = { input = 0.1, output = 0.1 }\n"
        )
        (self.place / "config.toml").write_text(settings, encoding="utf-8")

    @contextmanager
    def serving(self) -> Iterator[Server]:
        """Run `conductor serve` in this home."""
        command = [*orchestra(), "serve", "--port", "0"]
        process = subprocess.Popen(command, env=self.environ, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            yield Server(url.removeprefix("http://"), psutil.Process(process.pid))
        finally:
            process.terminate()
            process.wait()


@dataclass
class Server:
    """A server that goes on: its host and port, and its process."""

    address: str
    process: psutil.Process
    asked: int = 0

    def cpu_of(self, work: Callable[[], object]) -> float:
        """Return the seconds of processor time that the server needs for some work."""
        before = cpu_of(self.process.pid)
        work()
        return cpu_of(self.process.pid) - before

    def ask(self, count: int) -> None:
        """Ask so many questions, all different, over all connections."""
        numbers = iter(range(self.asked, self.asked + count))
        self.asked += count
        asyncio.run(_ask_all(self.address, numbers))

    def list_runs(self) -> None:
        """Ask for the first page of the list of runs, as the page does."""
        connection = HTTPConnection(self.address)
        connection.request("GET", "/v1/conductor/runs")
        response = connection.getresponse()
        body = response.read()
        assert response.status == 200, body
        connection.close()


async def _ask_all(address: str, numbers: Iterator[int]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for _ in range(CONNECTIONS):
            tasks.create_task(_ask_one_by_one(address, numbers))


async def _ask_one_by_one(address: str, numbers: Iterator[int]) -> None:
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for number in numbers:
        question = {"role": "user", "content": f"Why {number}?"}
        body = json.dumps({"model": "conductor-mini", "messages": [question]}).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\n"
            f"idempotency-key: k{number}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in answer.split(b"\r\n", 1)[0], answer
        fields = answer.lower().split(b"\r\n")
        (length,) = [line for line in fields if line.startswith(b"content-length:")]
        await reader.readexactly(int(length.partition(b":")[2]))
    writer.close()


def measure() -> Table:
    """Everything: two servers in turn, then the commands in turn, then a long batch and chat."""
    with tempfile.TemporaryDirectory() as directory, server(__file__) as worker:
        little = Home(Path(directory, "little"), worker)
        much = Home(Path(directory, "much"), worker)
        little.configure()
        much.configure()
        fill(little.state, calls=1, runs=1, ratings=1)
        fill(much.state, calls=CALLS, runs=RUNS, ratings=RATINGS)
        # What has just changed may change again within one tick of the file system's clock.
        time.sleep(4)
        figures = [
            *_served(little, much),
            *_listed(little, much),
            _batch(Home(Path(directory, "batch"), worker)),
            _chat(Home(Path(directory, "chat"), worker)),
        ]
    about = (
        f"Processor time with much behind it over the same with little. Much: {CALLS:,} calls of "
        f"the day by {CLIENTS:,} clients, {RUNS:,} stored runs, {RATINGS:,} ratings, {REQUESTS:,} "
        f"requests that one server has answered; {SAMPLE:,} requests a measurement, the median "
        f"ratio of {ROUNDS} pairs, of batches the medians of {BATCH_ROUNDS}."
    )
    return Table("growth", about, figures)


# What is stored


def fill(state: Path, *, calls: int, runs: int, ratings: int) -> None:
    """Write so much into the state of a home."""
    state.mkdir(parents=True, exist_ok=True)
    _fill_calls(state / "spending", calls)
    _fill_runs(state / "traces", runs)
    share = {"worker": "alpha", "key": "alpha", "step": 1, "kind": "", "weight": 1.0, "good": True}
    rating = {"run": "r", "step": 0, "verdict": "good", "by": "user", "time": 1.0}
    line = json.dumps(rating | {"shares": [share]}) + "\n"
    (state / "ratings.jsonl").write_text(line * ratings, encoding="utf-8")


def _fill_calls(directory: Path, count: int) -> None:
    today = str(datetime.now().astimezone().date())
    row = "INSERT INTO calls (day, client, worker, worker_call, calls, cost) VALUES (?,?,?,1,1,1)"
    with closing(open_database(directory / FILE)) as database:
        database.execute("BEGIN")
        rows = ((today, f"client{number % (CLIENTS or 1)}", "alpha") for number in range(count))
        database.executemany(row, rows)
        database.execute("COMMIT")


def _fill_runs(directory: Path, count: int) -> None:
    """Write one run, and copies of it under other numbers."""
    store = TraceStore(directory)
    number = "20200101-000000-000000"
    write(store, number, events_of(number, BEGAN, "Why?", ["So it is."], 1))
    first = store.path(number)
    with open_trace(first) as lines:
        text = lines.read()
    for index in range(1, count):
        began = BEGAN + timedelta(seconds=index)
        copy = f"{began:%Y%m%d-%H%M%S}-{index:06x}"
        copied = text.replace(number.encode(), copy.encode())
        first.with_name(first.name.replace(number, copy)).write_bytes(copied)


# What is measured


def _served(little: Home, much: Home) -> Iterator[Figure]:
    with little.serving() as few, much.serving() as many:
        for served in (few, many):
            served.ask(SAMPLE)
            served.list_runs()  # which makes the index
        ask = partial(_in_turn, few, many)
        yield _compared("a request, with much stored", *ask(lambda served: served.ask(SAMPLE)))
        listing = ask(lambda served: [served.list_runs() for _ in range(50)])
        yield _compared("the page's list, nothing new", *listing)
        yield _compared("the page's list after each request", *ask(_ask_and_list))
        memory = _memory_after(many, REQUESTS)
        with little.serving() as fresh:
            fresh.ask(SAMPLE)
            times = _in_turn(fresh, many, lambda served: served.ask(SAMPLE))
        yield _compared(f"a request after {many.asked:,} others", *times)
        grown = _memory_after(many, REQUESTS) - memory
        also = f"{memory / MEGABYTE:.1f} MB before"
        yield Figure("memory after as many again, for each", grown / REQUESTS, "kB", 1024, also)


def _memory_after(served: Server, count: int) -> int:
    """Ask so many questions and return the bytes that the server has when it has let them go.

    A run is kept for a minute after its end, so what is kept is bounded by time.
    """
    served.ask(count)
    time.sleep(KEPT_SECONDS + 2)
    served.ask(1)
    return int(served.process.memory_full_info().uss)


def _ask_and_list(served: Server) -> None:
    for _ in range(20):
        served.ask(1)
        served.list_runs()


def _in_turn(
    few: Server, many: Server, work: Callable[[Server], object]
) -> tuple[list[float], list[float]]:
    """Return the processor times of both servers for the same work, in turns."""
    little = []
    much = []
    for _ in range(ROUNDS):
        little.append(few.cpu_of(partial(work, few)))
        much.append(many.cpu_of(partial(work, many)))
    return little, much


def _compared(title: str, little: list[float], much: list[float], bound: float = BOUND) -> Figure:
    ours = statistics.median(much)
    theirs = statistics.median(little)
    also = f"{theirs * 1e3:.0f} ms, then {ours * 1e3:.0f} ms"
    return Figure(title, ratio(much, little), "ratio", bound, also)


def _listed(little: Home, much: Home) -> Iterator[Figure]:
    for title, command, bound in (
        ("trace list", ("trace", "list"), BOUND),
        ("trace show of the last run", ("trace", "show"), BOUND),
        ("one question", ("ask", "--mode", "mini", "--quiet", "Why?"), RATED_BOUND),
    ):
        cpu: dict[str, list[float]] = {"little": [], "much": []}
        for _ in range(ROUNDS + 1):
            for name, home in (("little", little), ("much", much)):
                cpu[name].append(spent([*orchestra(), *command], home.environ, remarks=False).cpu)
        yield _compared(title, cpu["little"][1:], cpu["much"][1:], bound)


def _batch(home: Home) -> Figure:
    """A question of a batch of `REQUESTS` over one of a batch of a fifth, the start taken off."""
    home.configure()
    short = REQUESTS // 5
    starts = []
    ours = []
    theirs = []
    for _ in range(BATCH_ROUNDS):
        start = _batch_cpu(home, 1)
        starts.append(start)
        theirs.append((_batch_cpu(home, short) - start) / short)
        ours.append((_batch_cpu(home, REQUESTS) - start) / REQUESTS)
    long = statistics.median(ours)
    brief = statistics.median(theirs)
    also = f"{brief * 1e3:.2f} ms, then {long * 1e3:.2f} ms; a start {min(starts):.2f} s"
    return Figure(f"a question of a batch of {REQUESTS:,}", long / brief, "ratio", BOUND, also)


def _batch_cpu(home: Home, count: int) -> float:
    """Run a batch of so many questions; returns the seconds of processor time that it took."""
    questions = home.place / "q.jsonl"
    lines = (f'{{"id": "q{number}", "question": "Why {number}?"}}\n' for number in range(count))
    questions.write_text("".join(lines), encoding="utf-8")
    out = home.place / "a.jsonl"
    out.unlink(missing_ok=True)
    command = [*orchestra(), "batch", str(questions), "-o", str(out), "--mode", "mini", "--yes"]
    return spent(command, home.environ, remarks=False).cpu


def _chat(home: Home) -> Figure:
    """One conversation: its last turns over those when its history has filled the context."""
    home.configure()
    turns = max(100, REQUESTS // 10)
    command = [*orchestra(), "chat", "--mode", "mini", "--quiet"]
    ours, theirs = pty.openpty()
    environ = home.environ | {"TERM": "dumb"}
    # A directory without instruction files: they would be offered, and the first question would
    # answer that.
    process = subprocess.Popen(
        command, env=environ, cwd=home.place, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    times = []
    shown = b""
    for number in range(turns):
        os.write(ours, f"Why {number}?\r".encode())
        while b"So it is." not in shown:
            shown += os.read(ours, 1 << 16)
        shown = shown.rpartition(b"So it is.")[2]
        times.append(cpu_of(process.pid))
    process.terminate()
    process.wait()
    os.close(ours)
    tenth = turns // 10
    first = times[4 * tenth] - times[3 * tenth]
    last = times[-1] - times[-1 - tenth]
    return _compared(f"a turn of a chat of {turns:,}", [first], [last])


async def reply(request: Asked) -> AsyncIterator[bytes]:
    """A plan of one step, or a short answer, at once."""
    text = "A" if request["model"] == "planner" else "So it is.\n"
    yield spelled("m", choices=[choice({"content": text}, None)])
    for event in ending("m", 3):
        yield event


if __name__ == "__main__":  # the upstream
    asyncio.run(listen(reply))

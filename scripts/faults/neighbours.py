"""A hostile key beside an ordinary one, over all that the clients of one server share.

Each try has one client take as much as it can of one resource, while another one goes on with its
day: a question, a file, a batch, a page, and a balancer that asks `/readyz`. What the ordinary one
does takes at most a second in 99 of 100 cases.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import httpx

from scripts.faults.desk import serving
from scripts.faults.tries import Outcome, Tries
from scripts.faults.wire import private_home
from tests.cli.stage import Stage, says
from tests.media_files import pdf_of, stream
from tests.schema_bombs import BOMB
from tests.servers import Script, SeenRequest, Wire, delta

ORDINARY_SECONDS: Final = 1.0  # How long 99 of 100 things may take that the ordinary client does
BATCH_SECONDS: Final = (
    10.0  # How long its batch of one line may take, which is looked at each second
)
ATTACK_SECONDS: Final = 20.0
SETTLE_SECONDS: Final = 2.0  # Until the hostile client has what it can get
WAIT_SECONDS: Final = 20.0  # How long any client waits for an answer
FAILED_SECONDS: Final = 100.0  # What something that fails counts as
SLOW_WORDS: Final = "TAKE FOR EVER"
CHAT: Final = "/v1/chat/completions"


def question(content: Any = "Why?", **fields: Any) -> dict[str, Any]:
    """The body of a question."""
    return {"model": "conductor", "messages": [{"role": "user", "content": content}], **fields}


@cache
def slow_pdf(operators: int = 600_000) -> str:
    """A PDF document of few bytes that takes long to read, as a data URL."""
    text = b"BT /F1 12 Tf " + b"(x) Tj " * operators + b"ET"
    document = pdf_of([stream(zlib.compress(text, 9), "/FlateDecode")])
    document += b"\n" * (-len(document) % 3)  # so that base64 does not pad it, and can go on
    return "data:application/pdf;base64," + base64.b64encode(document).decode()


def worker() -> Script:
    """A worker that answers at once, and never where the question asks for that."""
    answers = says("fine")

    async def work(request: SeenRequest, wire: Wire) -> None:
        if SLOW_WORDS in request.body.decode():
            await wire.head()
            await wire.frames(delta("well"))
            await wire.stall()
        else:
            await answers(request, wire)

    return work


@dataclass
class Client:
    """One client of a server, which ends what it has begun when `over` is set."""

    url: str
    key: str
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"}

    def post(self, path: str, seconds: float = WAIT_SECONDS, **fields: Any) -> httpx.Response:
        return httpx.post(f"{self.url}{path}", headers=self.headers, timeout=seconds, **fields)

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", headers=self.headers, timeout=WAIT_SECONDS)

    def upload(self, lines: list[dict[str, Any]]) -> str:
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        files = {"file": ("q.jsonl", text.encode())}
        answer = self.post("/v1/files", data={"purpose": "batch"}, files=files)
        return str(answer.raise_for_status().json()["id"])

    def begin_batch(self, questions: list[str]) -> str:
        """Begin a batch of these questions; returns its id."""
        lines = list[dict[str, Any]]()
        for number, text in enumerate(questions):
            line = {"custom_id": f"q{number}", "method": "POST", "url": CHAT}
            lines.append({**line, "body": question(text)})
        body = {
            "input_file_id": self.upload(lines),
            "endpoint": CHAT,
            "completion_window": "24h",
        }
        return str(self.post("/v1/batches", json=body).raise_for_status().json()["id"])

    def repeat(self, act: Callable[[], object]) -> None:
        """Do something again and again, whatever comes of it, until the end."""
        while not self.over.is_set():
            with suppress(httpx.HTTPError, OSError):
                act()
            self.over.wait(0.01)

    def open_connection(self, head: str) -> socket.socket:
        """A connection on which the head of a request was sent."""
        host, port = self.url.removeprefix("http://").split(":")
        opened = socket.create_connection((host, int(port)), timeout=5)
        lines = [head, f"host: {host}", f"authorization: Bearer {self.key}", "", ""]
        opened.sendall("\r\n".join(lines).encode())
        return opened

    def trickle(self, path: str, kind: str, begin: bytes) -> None:
        """Send a large body a byte at a time, until the server or the campaign ends it."""
        head = f"POST {path} HTTP/1.1\r\ncontent-length: 30000000\r\ncontent-type: {kind}"
        with self.open_connection(head) as opened:
            opened.sendall(begin)
            while not self.over.wait(0.5):
                opened.sendall(b"x")


def _trickled_upload(client: Client) -> None:
    form = b'--b\r\ncontent-disposition: form-data; name="file"; filename="x"\r\n\r\n'
    client.trickle("/v1/files", "multipart/form-data; boundary=b", form)


def _batches(client: Client, words: str, lines: int) -> None:
    client.begin_batch([f"{words} {number}" for number in range(lines)])
    client.over.wait()


def _many_lines(client: Client) -> None:
    """A batch of many lines, which takes long to check."""
    client.begin_batch(["x" * 500] * 20_000)


def _endless_runs(client: Client) -> None:
    client.post(CHAT, json=question(SLOW_WORDS))


def _slow_documents(client: Client, url: str) -> None:
    parts = list[dict[str, Any]]()
    for number in range(8):
        file = {"filename": f"{number}.pdf", "file_data": url + "A" * (4 * number)}
        parts.append({"type": "file", "file": file})
    client.post(CHAT, json=question([{"type": "text", "text": "Why?"}, *parts]))


def _schema_bombs(client: Client) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": BOMB}}
    client.post(CHAT, json=question(response_format=form))


def _large_bodies(client: Client) -> None:
    client.post(CHAT, json=question("a" * 3_900_000))


def _page_streams(client: Client) -> None:
    runs = client.get("/v1/conductor/runs").json()["runs"]
    path = f"/v1/conductor/runs/{runs[0]['run']}/frames"
    with httpx.stream(
        "GET", f"{client.url}{path}", headers=client.headers, timeout=WAIT_SECONDS
    ) as answer:
        for _ in answer.iter_raw():
            if client.over.is_set():
                break


def _page_searches(client: Client) -> None:
    client.get("/v1/conductor/runs?count=100&search=nothing%20like%20this")


ATTACKS: Final[dict[str, tuple[int, Callable[[Client], object]]]] = {
    "nothing": (0, lambda _: None),
    "runs that never end": (60, _endless_runs),
    "batches that never end": (20, partial(_batches, words=SLOW_WORDS, lines=40)),
    "batches without an end of lines": (6, _many_lines),
    "uploads that trickle": (24, _trickled_upload),
    "bodies that trickle": (24, lambda client: client.trickle(CHAT, "application/json", b"{")),
    "documents that take long": (10, lambda client: _slow_documents(client, slow_pdf())),
    "schemas that take for ever": (20, _schema_bombs),
    "large bodies": (12, _large_bodies),
    "streams of the page": (64, _page_streams),
    "searches of the page": (16, _page_searches),
}
"""How many threads of the hostile client do what, again and again, by a name."""


def _ask(client: Client) -> None:
    client.post(CHAT, json=question()).raise_for_status()


def _ready(client: Client) -> None:
    httpx.get(f"{client.url}/readyz", timeout=WAIT_SECONDS).raise_for_status()


def _list_files(client: Client) -> None:
    client.get("/v1/files").raise_for_status()


def _upload(client: Client) -> None:
    client.upload([question()])


def _attach(client: Client) -> None:
    file = {"filename": "a.pdf", "file_data": slow_pdf(2)}
    parts = [{"type": "text", "text": "Why?"}, {"type": "file", "file": file}]
    client.post(CHAT, json=question(parts)).raise_for_status()


def _check_schema(client: Client) -> None:
    schema = {"type": "object", "properties": {"a": {"pattern": "^a"}}}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    client.post(CHAT, json=question(response_format=form))


def _look(client: Client) -> None:
    client.get("/v1/conductor/runs").raise_for_status()


ORDINARY: Final[dict[str, Callable[[Client], None]]] = {
    "readyz": _ready,
    "question": _ask,
    "files": _list_files,
    "upload": _upload,
    "document": _attach,
    "schema": _check_schema,
    "page": _look,
}
"""What the ordinary client does, by a name."""


def run(tries: Tries) -> None:
    """Each attack, while the ordinary client goes on with its day."""
    with (
        tempfile.TemporaryDirectory(prefix="conductor-neighbours-") as directory,
        private_home(Path(directory)),
    ):
        stage = Stage(Path(directory))
        with stage.server:
            keys = prepare(stage)
            for name in ATTACKS:
                tries.attempt(name, partial(_attack_again, stage, name, keys))


def prepare(stage: Stage) -> dict[str, str]:
    """Make a worker and a key for each client; returns the keys."""
    stage.configure(workers=("alpha",))
    with stage.config.open("a") as file:
        file.write('accepts = ["pdf"]\n')
    stage.models["alpha"] = worker()
    keys = dict[str, str]()
    for name in ("hostile", "ordinary"):
        keys[name] = stage.run("serve", "keys", "add", name).out.split()[-1]
    return keys


def _attack_again(stage: Stage, name: str, keys: dict[str, str]) -> Outcome:
    """Attack up to three times: once may be the fault of other processes."""
    for _ in range(3):
        outcome = judge(name, attack(stage, name, keys))
        if not outcome.problem:
            break
    return outcome


def attack(
    stage: Stage,
    name: str,
    keys: dict[str, str],
    seconds: float = ATTACK_SECONDS,
    settle: float = SETTLE_SECONDS,
) -> dict[str, list[float]]:
    """Return the seconds of everything that the ordinary client does during an attack."""
    served = stage.start("serve", "--port", "0", stderr=subprocess.DEVNULL)
    with serving(served) as url, ExitStack() as stack:
        ordinary = Client(url, keys["ordinary"])
        for work in ORDINARY.values():
            work(ordinary)  # what the server loads at first is nobody's fault
        stack.enter_context(_attacking(name, url, keys["hostile"]))
        time.sleep(settle)
        figures = measure(ordinary, seconds)
        figures["batch"] = [_batch_seconds(ordinary)]
        served.kill()
    return figures


@contextmanager
def _attacking(name: str, url: str, key: str) -> Iterator[None]:
    """Have a hostile client at work: a process of its own, as on a machine of its own.

    As threads of this process it held up what is measured here by making its requests.
    """
    command = [sys.executable, "-m", "scripts.faults.neighbours", name, url, key]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE) as hostile:
        assert hostile.stdout is not None
        try:
            if not hostile.stdout.readline():
                raise RuntimeError("the hostile client has ended before it began")
            yield
        finally:
            hostile.kill()


def attack_until_killed(name: str, url: str, key: str) -> None:
    """Do again and again what an attack of this name does."""
    os.nice(5)  # what makes the requests takes processors that the server has for itself elsewhere
    count, act = ATTACKS[name]
    client = Client(url, key)
    with ThreadPoolExecutor(max(count, 1)) as pool:
        for _ in range(count):
            pool.submit(client.repeat, partial(act, client))
        print("begun", flush=True)
        client.over.wait()


def measure(client: Client, seconds: float) -> dict[str, list[float]]:
    """The seconds of everything that an ordinary client does, again and again for a while."""
    figures: dict[str, list[float]] = {name: [] for name in ORDINARY}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, work in ORDINARY.items():
            begin = time.monotonic()
            failed = 0.0
            try:
                work(client)
            except httpx.HTTPError as error:
                print(f"{name}: {error!r}", flush=True)
                failed = FAILED_SECONDS
            figures[name].append(time.monotonic() - begin + failed)
    return figures


def _batch_seconds(client: Client) -> float:
    begin = time.monotonic()
    batch = client.begin_batch(["Why?"])
    while time.monotonic() - begin < 3 * BATCH_SECONDS:
        if client.get(f"/v1/batches/{batch}").json()["status"] == "completed":
            break
        time.sleep(0.1)
    return time.monotonic() - begin


def judge(name: str, figures: dict[str, list[float]]) -> Outcome:
    """Return whether an ordinary client was served in time."""
    problems = list[str]()
    parts = list[str]()
    for work, seconds in figures.items():
        late = sorted(seconds)[int(0.99 * (len(seconds) - 1))]
        parts.append(f"{work} {late * 1000:.0f}")
        if late > (BATCH_SECONDS if work == "batch" else ORDINARY_SECONDS):
            problems.append(f"{work} {late:.1f} s")
    print(f"{name}, 99 % within ms: {', '.join(parts)} ({os.getloadavg()[0]:.0f} load)", flush=True)
    return Outcome(problem=", ".join(problems))


if __name__ == "__main__":
    attack_until_killed(*sys.argv[1:])

"""A hostile key beside an ordinary one, over all that the clients of one server share.

Each try has one client take as much as it can of one resource, while another one goes on with its
day: a question, a file, a batch, a page, and a balancer that asks `/readyz`. What the ordinary one
does takes at most a second in 99 of 100 cases.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import httpx
import psutil

from scripts.faults.attacks import (
    ATTACKS,
    CHAT,
    SLOW_WORDS,
    WAIT_SECONDS,
    Client,
    question,
    slow_pdf,
)
from scripts.faults.desk import serving
from scripts.faults.tries import Outcome, Tries
from scripts.faults.wire import private_home
from tests.cli.stage import Stage, says
from tests.servers import Script, SeenRequest, Wire, delta

ORDINARY_SECONDS: Final = 1.0  # How long 99 of 100 things may take that the ordinary client does
BATCH_SECONDS: Final = (
    10.0  # How long its batch of one line may take, which is looked at each second
)
ATTACK_SECONDS: Final = 20.0
SETTLE_SECONDS: Final = 2.0  # Until the hostile client has what it can get
FAILED_SECONDS: Final = 100.0  # What something that fails counts as


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
        _kill_with_readers(served)
    return figures


def _kill_with_readers(server: subprocess.Popen[bytes]) -> None:
    """Kill a server and what reads documents for it, which would go on for half a minute."""
    process = psutil.Process(server.pid)
    process.suspend()  # it starts no others meanwhile
    for child in process.children(recursive=True):
        with suppress(psutil.Error):  # it has just ended
            child.kill()
    server.kill()


@contextmanager
def _attacking(name: str, url: str, key: str) -> Iterator[None]:
    """Have a hostile client at work: a process of its own, as on a machine of its own.

    As threads of this process it held up what is measured here by making its requests.
    """
    command = [sys.executable, "-m", "scripts.faults.attacks", name, url, key]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE) as hostile:
        assert hostile.stdout is not None
        try:
            if not hostile.stdout.readline():
                raise RuntimeError("the hostile client has ended before it began")
            yield
        finally:
            hostile.kill()


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

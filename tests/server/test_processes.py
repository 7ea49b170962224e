"""A server of several processes: one port, one state, and what each of them knows of the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import psutil
import pytest

from tests.cli.stage import Done, Stage, finished, says, stalls
from tests.server.plain_api import address_of, text_of, until

if not hasattr(os, "fork"):
    pytest.skip("a process cannot be divided here", allow_module_level=True)

COUNT = 3


@dataclass(frozen=True)
class Served:
    """A server that is a process with children: its address, and that process."""

    url: str
    process: subprocess.Popen[bytes]

    @property
    def children(self) -> list[psutil.Process]:
        children: list[psutil.Process] = psutil.Process(self.process.pid).children()
        return children

    def respond(self, key: str = "", **fields: Any) -> httpx.Response:
        """Ask on a connection of its own, which any of the processes may get."""
        headers = {"idempotency-key": key} if key else {}
        body = {"model": "conductor-mini", "input": "Why?", **fields}
        return httpx.post(f"{self.url}/v1/responses", json=body, headers=headers, timeout=30)

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", timeout=30)

    def ended(self) -> Done:
        self.process.send_signal(signal.SIGTERM)
        return finished(self.process)


@contextmanager
def served(stage: Stage, *options: str, count: int = COUNT) -> Iterator[Served]:
    with stage.start("serve", "--port", "0", "--processes", str(count), *options) as process:
        try:
            server = Served(address_of(process), process)
            until(lambda: server.get("/health").json()["processes"] == count, "the processes")
            yield server
        finally:
            process.kill()


def test_the_limit_of_a_day_holds_for_all_processes(stage: Stage) -> None:
    """Of 24 requests on connections of their own, as many are answered as calls are allowed."""
    stage.configure("[limits]\nattempts = 1\ncalls_day = 10\n[serve]\nparallel = 24")
    with served(stage) as server:
        with ThreadPoolExecutor(24) as pool:
            answers = list(pool.map(lambda number: server.respond(input=f"{number}?"), range(24)))
        states = [answer.status_code for answer in answers]
        metrics = server.get("/metrics").text
    assert (states.count(200), states.count(429)) == (10, 14)
    assert len(stage.asked("alpha")) == 10
    assert 'conductor_runs_total{end="stop"} 10.0' in metrics


def test_a_response_of_one_process_is_read_and_stopped_at_any_other(stage: Stage) -> None:
    stage.models["alpha"] = stalls("First ")
    with served(stage) as server:
        run = server.respond(background=True).json()["id"]
        until(lambda: stage.asked("alpha"), "the call")
        states = {server.get(f"/v1/responses/{run}").json()["status"] for _ in range(12)}
        assert states == {"in_progress"}
        assert server.get("/health").json()["running"] == 1
        httpx.post(f"{server.url}/v1/responses/{run}/cancel", timeout=30)
        until(lambda: server.get("/health").json()["running"] == 0, "the end of the run")

        def statuses() -> set[str]:
            return {server.get(f"/v1/responses/{run}").json()["status"] for _ in range(12)}

        # Others read its end from the trace, a moment after its own process knows it.
        until(lambda: statuses() <= {"cancelled", "incomplete"}, "the end in every process")


def test_a_request_with_an_idempotency_key_is_one_run_in_all_processes(stage: Stage) -> None:
    with served(stage) as server:
        with ThreadPoolExecutor(8) as pool:
            answers = [
                answer.json() for answer in pool.map(lambda _: server.respond("k1"), range(8))
            ]
        answers += [server.respond("k1").json() for _ in range(4)]
        refused = server.respond("k1", input="Else?")
    assert len({answer["id"] for answer in answers}) == 1
    assert {text_of(answer) for answer in answers} == {"alpha answers"}
    assert len(stage.asked("alpha")) == 1
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "idempotency_key_reused")


def test_a_process_that_dies_is_replaced_with_a_word(stage: Stage) -> None:
    with served(stage) as server:
        dead = server.children[0]
        dead.kill()
        dead.wait(30)
        until(lambda: server.get("/health").json()["processes"] == COUNT, "another process")
        answers = [server.respond(input=f"{number}?").status_code for number in range(8)]
        done = server.ended()
    assert answers == [200] * 8
    assert f"process {dead.pid} of the server ended with signal 9" in done.err
    assert done.code == 128 + signal.SIGTERM


def test_all_processes_let_their_runs_end_when_the_server_is_told_to(stage: Stage) -> None:
    stage.models["alpha"] = says("a ", "long ", "answer")
    with served(stage) as server, ThreadPoolExecutor(6) as pool:
        answers = [pool.submit(server.respond, input=f"{number}?") for number in range(6)]
        until(lambda: len(stage.asked("alpha")) >= 6, "the calls")
        children = server.children
        done = server.ended()
        assert [answer.result().status_code for answer in answers] == [200] * 6
        assert not any(child.is_running() for child in children)
    assert (done.code, done.err) == (128 + signal.SIGTERM, "")


ENDED_WHILE_IT_STARTS = """
import os, signal, socket
from conductor_cli.server.http.processes import ProcessGroup

fork = os.fork
started = []

def fork_and_be_told_to_end():
    process = fork()
    if process:
        started.append(process)
        if len(started) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
    return process

os.fork = fork_and_be_told_to_end
sockets = [socket.socket() for _ in range(4)]
code = ProcessGroup(sockets, print).run(lambda opened, siblings, parent: len(os.read(parent, 1)))
print(len(started), "started, code", code)
"""


def test_a_server_that_is_told_to_end_while_it_starts_its_processes_starts_no_more() -> None:
    command = [sys.executable, "-c", ENDED_WHILE_IT_STARTS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == f"2 started, code {128 + signal.SIGTERM}\n", done.stderr


def test_the_processes_end_with_the_one_that_started_them(stage: Stage) -> None:
    with served(stage) as server:
        children = server.children
        server.process.kill()
        for child in children:
            assert child.wait(30) is None or not child.is_running()


def test_processes_that_could_not_serve_exactly_are_refused(stage: Stage) -> None:
    stage.configure("[serve]\nparallel = 2")
    stage.fails(
        2, "serve", "--processes", "3", told=("serve.parallel is 2, so 3 processes", "parallel 96")
    )
    stage.configure()
    stage.fails(3, "serve", "--processes", "2", "--no-trace", told="omit --no-trace")


def test_the_port_of_several_processes_is_not_shared_with_another_server(stage: Stage) -> None:
    with served(stage, count=2) as server:
        port = server.url.rpartition(":")[2]
        stage.fails(
            2,
            "serve",
            "--processes",
            "2",
            "--port",
            port,
            told=f"cannot listen at 127.0.0.1:{port}",
        )

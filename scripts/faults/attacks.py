"""What a hostile client does to a server, and how both kinds of clients talk to it.

It is a process of its own, `python -m scripts.faults.attacks NAME URL KEY`, and so imports little.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import sys
import threading
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Final

import httpx

from tests.media_files import pdf_of, stream
from tests.schema_bombs import BOMB

WAIT_SECONDS: Final = 20.0  # How long any client waits for an answer
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


if __name__ == "__main__":
    attack_until_killed(*sys.argv[1:])

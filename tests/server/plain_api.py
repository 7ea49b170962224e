"""A client API of few words for tests of what all APIs share, and a server in a thread."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from subprocess import Popen
from threading import Thread
from typing import Any, Final

import httpx

from conductor_cli.core.chat import Message, ToolCall
from conductor_cli.server.api.errors import error_body
from conductor_cli.server.api.request import ClientRequest, RequestError, ServedAnswer
from conductor_cli.server.http import process
from conductor_cli.server.http.process import HttpServer, access_rules, listen_at, make_registry
from conductor_cli.server.options import ServerOptions
from conductor_cli.server.runs.run_registry import RunRegistry


class PlainEncoder:
    """Writes one line of JSON for each piece: its kind and its text."""

    def begin(self) -> bytes:
        return _frame("begin")

    def heartbeat(self) -> bytes:
        return _frame("heartbeat")

    def reasoning(self, text: str) -> bytes:
        return _frame("reasoning", text)

    def text(self, text: str) -> bytes:
        return _frame("text", text)

    def tool_call(self, call: ToolCall) -> bytes:
        return _frame("call", call.name)

    def end(self, outcome: ServedAnswer) -> bytes:
        return _frame("end", outcome.text)

    def failed(self, error: RequestError) -> bytes:
        return _frame("failed", error.code)

    def whole(self, outcome: ServedAnswer) -> dict[str, Any]:
        answer = outcome.usage.answer
        rest = outcome.usage.orchestration
        return {
            "run": outcome.run,
            "text": outcome.text,
            "finish": outcome.finish,
            "reasoning": outcome.reasoning,
            "answer_tokens": answer.tokens,
            "other_tokens": rest.tokens,
            "tokens": outcome.usage.total.tokens,
        }

    def whole_failed(self, error: RequestError) -> dict[str, Any]:
        return error_body(error)


def _frame(kind: str, text: str = "") -> bytes:
    return json.dumps([kind, text]).encode() + b"\n"


class PlainApi:
    """Reads `{"model", "question", …}`."""

    name = "chat_completions"

    def parse(self, body: Mapping[str, Any]) -> ClientRequest:
        if "question" not in body:
            raise RequestError(400, "missing", "question is missing", param="question")
        cost = body.get("max_cost")
        return ClientRequest(
            model=body.get("model", "conductor"),
            messages=(Message(role="user", content=body["question"]),),
            stream=body.get("stream", False),
            effort=body.get("effort", ""),
            json_only=body.get("json", False),
            max_cost=None if cost is None else Decimal(cost),
        )

    def encoder(self, request: ClientRequest, run: str, created: int) -> PlainEncoder:
        del request, run, created
        return PlainEncoder()


QUESTION: Final = {"model": "conductor", "messages": [{"role": "user", "content": "Why?"}]}
"""A body of Chat Completions."""


@dataclass
class Serving:
    """A server that runs, and what it is made of."""

    url: str
    registry: RunRegistry
    server: HttpServer
    thread: Thread

    def ask(self, question: str = "Why?", **fields: Any) -> httpx.Response:
        return httpx.post(
            f"{self.url}/v1/chat/completions", json={"question": question, **fields}, timeout=30
        )

    def stream(self, question: str = "Why?", **fields: Any) -> list[tuple[str, str]]:
        lines = self.ask(question, stream=True, **fields).text.split("\n")[:-1]
        return [(kind, text) for kind, text in map(json.loads, lines)]

    def open(self, question: str = "Why?", **fields: Any) -> Any:
        body = {"question": question, "stream": True, **fields}
        return httpx.stream("POST", f"{self.url}/v1/chat/completions", json=body, timeout=30)


def until(look: Callable[[], Any], case_name: str = "it") -> Any:
    """What `look` returns, once that is something."""
    end = time.monotonic() + 60
    while not (value := look()):
        assert time.monotonic() < end, f"waited in vain for {case_name}"
        time.sleep(0.01)
    return value


def events(stream: str) -> list[dict[str, Any]]:
    """The data of server-sent events."""
    return [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: ")]


def deltas(events: list[dict[str, Any]]) -> list[str]:
    """The pieces of the answer of a streamed response."""
    return [event["delta"] for event in events if event["type"] == "response.output_text.delta"]


def text_of(response: dict[str, Any]) -> str:
    """The text of a response."""
    return str(response["output"][-1]["content"][0]["text"])


def address_of(process: Popen[bytes]) -> str:
    """Where a server listens that is a process of its own."""
    assert process.stdout is not None
    return process.stdout.readline().decode().split()[-1]


@contextmanager
def serving(**options: Any) -> Iterator[Serving]:
    opened = listen_at("127.0.0.1", 0)
    options_asked = ServerOptions(**{"flags": {}, **options})
    access = access_rules(options_asked.settings(), "127.0.0.1")
    registry = make_registry(options_asked)
    server = HttpServer(lambda: registry, access, opened)
    thread = Thread(target=server.run, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{opened.getsockname()[1]}"
    wait_until_up(url)
    try:
        yield Serving(url, registry, server, thread)
    finally:
        server.stop()
        server.stop()
        thread.join(30)
        assert not thread.is_alive()


def listen_at_small(host: str, port: int | None) -> socket.socket:
    opened = process.listen_at(host, port)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    return opened


def wait_until_up(url: str) -> None:
    def is_up() -> bool:
        try:
            httpx.get(f"{url}/health", timeout=30)
        except httpx.ConnectError:
            return False
        return True

    until(is_up, f"a server at {url}")

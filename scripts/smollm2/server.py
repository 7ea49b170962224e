"""The scripted workers behind an API like OpenAI's, on loopback: each model is one worker."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from conductor_cli.core.pool import Worker
from scripts.smollm2.answers import answer, read_task

LARGEST: Final = 1 << 20
"""Bytes of a request; a larger one is none of ours."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    strengths: Mapping[str, Mapping[str, float]]

    def do_GET(self) -> None:
        """The list of models."""
        models = [{"id": name, "object": "model"} for name in self.strengths]
        self._send(200, "application/json", json.dumps({"object": "list", "data": models}))

    def do_POST(self) -> None:
        """A chat completion, streamed or not."""
        length = int(self.headers.get("content-length", "0"))
        if length > LARGEST:
            self._send(413, "application/json", "{}")
            return
        asked = json.loads(self.rfile.read(length))
        strengths = self.strengths.get(asked["model"])
        if strengths is None:
            self._send(404, "application/json", json.dumps({"error": {"message": "there is no such model"}}))
            return
        prompt = "\n\n".join(str(message["content"]) for message in asked["messages"])
        text = answer(read_task(prompt), asked["model"], strengths, int(asked.get("seed") or 0))
        usage = {"prompt_tokens": len(prompt) // 4, "completion_tokens": len(text) // 4 + 1}
        usage["total_tokens"] = sum(usage.values())
        if asked.get("stream"):
            self._send(200, "text/event-stream", _frames(text, usage))
        else:
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            body = {"object": "chat.completion", "choices": [choice], "usage": usage}
            self._send(200, "application/json", json.dumps(body))

    def _send(self, status: int, kind: str, body: str) -> None:
        data = body.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        with suppress(ConnectionError):  # a run that was stopped does not wait for its answers
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401 - the library's names
        """Say nothing."""


def _frames(text: str, usage: Mapping[str, int]) -> str:
    chunk = {"object": "chat.completion.chunk"}
    parts: list[dict[str, Any]] = [
        {**chunk, "choices": [{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}]},
        {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {**chunk, "choices": [], "usage": usage},
    ]
    return "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + "data: [DONE]\n\n"


@contextmanager
def serving(workers: Sequence[Worker], port: int) -> Iterator[int]:
    """The workers at a port of this machine, 0 for any free one, until the end of the block. Raises `OSError`."""
    strengths = {worker.model: worker.card.strengths for worker in workers}
    handler = type("Handler", (_Handler,), {"strengths": strengths})
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()

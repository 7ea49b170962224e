"""Seconds from one key to the first answer, without a compiler: `first_answer.py [WHEEL]`.

It runs the commands of docs/setup.md in an empty home, with a PATH that has Python alone, so that nothing can be
compiled. A server on loopback stands for the provider. Downloads come from the index that pip is set up with.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
QUESTION: Final = "Which river flows through Basel?"


class Provider(BaseHTTPRequestHandler):
    """Chat completions: a plan of one step for the first call of a run, then an answer."""

    protocol_version = "HTTP/1.1"
    calls = 0

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""

    def _send(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self._send("application/json", b'{"object": "list", "data": [{"id": "gpt-6-luna", "object": "model"}]}')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        Provider.calls += 1
        text = "A | - | Name the river.\n" if Provider.calls == 1 else "The Rhine."
        usage = {"prompt_tokens": 100, "completion_tokens": 9, "total_tokens": 109}
        choices = [{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}]
        ends = [{"index": 0, "delta": {}, "finish_reason": "stop"}]
        chunks = [{"id": "1", "object": "chat.completion.chunk", "choices": each} for each in (choices, ends)]
        lines = [f"data: {json.dumps(each)}\n\n" for each in (*chunks, {**chunks[1], "choices": [], "usage": usage})]
        self._send("text/event-stream", ("".join(lines) + "data: [DONE]\n\n").encode())


def main() -> None:
    """Install, set up and ask; print the seconds of each."""
    wheel = sys.argv[1] if len(sys.argv) > 1 else str(ROOT)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as place:
        home, programs = Path(place, "home"), Path(place, "bin")
        home.mkdir()
        programs.mkdir()
        (programs / "python3").symlink_to(Path(sys.executable).resolve())
        environ = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "LANG"))}
        url = f"http://127.0.0.1:{server.server_port}/v1"
        environ |= {"PATH": str(programs), "HOME": str(home), "THE_KEY": "sk-test"}
        assert not any(shutil.which(name, path=str(programs)) for name in ("cc", "gcc", "c++", "g++", "clang", "cmake"))
        began, command = time.monotonic(), str(home / "venv/bin/conductor")
        for words in (
            ["python3", "-m", "venv", str(home / "venv")],
            [str(home / "venv/bin/python"), "-m", "pip", "install", "--quiet", "--no-cache-dir", wheel],
            [
                command,
                "workers",
                "add",
                "fast",
                "--kind",
                "openai-compatible",
                "--base-url",
                url,
                "--model",
                "gpt-6-luna",
                "--set",
                "key_env=THE_KEY",
            ],
            [command, "config", "set", "conductor.model", "fast"],
            [command, "ask", QUESTION],
        ):
            start = time.monotonic()
            done = subprocess.run(words, env=environ, cwd=home, capture_output=True, text=True, check=False)
            print(f"{time.monotonic() - start:6.1f} s  {' '.join(words)[-70:]}", flush=True)
            assert done.returncode == 0, done.stdout + done.stderr
        print(f"{time.monotonic() - began:6.1f} s  until the answer: {done.stdout.strip()}")


if __name__ == "__main__":
    main()

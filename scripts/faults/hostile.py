"""Hostile requests to one server.

Whatever a body holds, `/health` answers soon, memory is bounded, SIGTERM ends it.

Each try sends one kind of request, alone or eight at once, while another client asks `/health` all
the time.
"""

from __future__ import annotations

import base64
import io
import json
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import psutil

from conductor_cli.server.http.access import AccessRules
from conductor_cli.server.http.process import CLOSING_SECONDS, DRAIN_SECONDS
from scripts.faults.desk import serving
from scripts.faults.tries import Outcome, Tries
from scripts.faults.wire import private_home
from tests.cli.stage import Stage, says
from tests.media_files import pdf_of, png, stream
from tests.schema_bombs import BOMB

HEALTH_SECONDS: Final = 0.1  # how long `/health` may take
MEMORY: Final = 1_000_000_000  # bytes that the server and its children may have together
SECONDS: Final = 60.0  # how long any answer may take
ROOM: Final = AccessRules().most_body - 2000  # bytes of the part of a body that a try fills
PART: Final = b'{"type":"text","text":"x"}'
CHAT: Final = "/v1/chat/completions"


def _chat(content: Any = "Why?", **fields: Any) -> bytes:
    return json.dumps(
        {"model": "conductor", "messages": [{"role": "user", "content": content}], **fields}
    ).encode()


def _filled(unit: bytes, before: bytes = b"", after: bytes = b"", *, size: int = ROOM) -> bytes:
    """Return a body that repeats `unit` up to `size` bytes.

    It is in a field that nobody reads if nothing is said.
    """
    before = before or b'{"model":"conductor","messages":[{"role":"user","content":"Why?"}],"x":['
    after = after or b"{}]}"
    return before + unit * ((size - len(before) - len(after)) // len(unit)) + after


def _text(unit: bytes, *, size: int = ROOM) -> bytes:
    """A question that repeats `unit`, which is written as in JSON."""
    return _filled(
        unit, b'{"model":"conductor","messages":[{"role":"user","content":"', b'"}]}', size=size
    )


def _messages(text: str, count: int) -> bytes:
    return json.dumps(
        {"model": "conductor", "messages": [{"role": "user", "content": text}] * count}
    ).encode()


def _image() -> bytes:
    """Six images in almost the largest body that is admitted."""
    urls = [
        "data:image/png;base64," + base64.b64encode(png(width, padding=ROOM * 3 // 4 // 7)).decode()
        for width in range(8, 14)
    ]
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return _chat([{"type": "text", "text": "What is this?"}, *images])


def _form(schema: dict[str, Any]) -> bytes:
    return _chat(
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    )


def _tool(schema: dict[str, Any]) -> bytes:
    return _chat(tools=[{"type": "function", "function": {"name": "x", "parameters": schema}}])


def _wide(size: int) -> dict[str, Any]:
    field = {"type": "string", "description": "x" * 20}
    return {"type": "object", "properties": {f"field{n}": field for n in range(size // 70)}}


def _files(name: str, *contents: bytes) -> bytes:
    """A question with files in the request itself."""
    parts: list[dict[str, Any]] = [{"type": "text", "text": "What is it?"}]
    for number, content in enumerate(contents):
        url = "data:application/octet-stream;base64," + base64.b64encode(content).decode()
        file = {"filename": f"{number}{name}", "file_data": url}
        parts.append({"type": "file", "file": file})
    return _chat(parts)


def _word_bomb(size: int) -> bytes:
    """An archive like a Word document, whose main part unpacks to so many bytes."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as parts:
        parts.writestr("word/document.xml", b"<w:p>" * (size // 5))
    return archive.getvalue()


def _packed_pdf(content: bytes, count: int = 1) -> bytes:
    """A PDF document with so many pages of this content, which is compressed."""
    return pdf_of([stream(zlib.compress(content), "/FlateDecode")] * count)


REQUESTS: Final[dict[str, Callable[[], bytes]]] = {
    "page 20 MB": lambda: _files("a.html", b"<p>word" * (20_000_000 // 7)),
    "page nested": lambda: _files("a.html", b"<div><form><table>" * 200_000),
    "page of an encoding": lambda: _files("a.html", b"<meta charset=punycode>" + b"\xe9-" * 10**6),
    "word bomb": lambda: _files("a.docx", _word_bomb(500_000_000)),
    "pdf of operators": lambda: _files("a.pdf", _packed_pdf(b"BT (a) Tj ET\n" * 300_000)),
    "pdf bomb": lambda: _files("a.pdf", _packed_pdf(b"\n" * 300_000_000)),
    "pdf of pages": lambda: _files("a.pdf", _packed_pdf(b"BT (a) Tj ET\n" * 10, 5_000)),
    "ten pdfs": lambda: _files(
        "a.pdf",
        *(_packed_pdf(b"BT (a) Tj ET\n" * 30_000 + b"%% %d" % number) for number in range(10)),
    ),
    "objects": lambda: _filled(b"{},"),
    "numbers": lambda: _filled(b"1,"),
    "names": lambda: _filled(b'"",'),
    "deep": lambda: _filled(b"[" * 190 + b"]" * 190 + b","),
    "escapes": lambda: _text(rb"\n"),
    "unicode": lambda: _text(rb"\ud83d\ude00"),
    "surrogates": lambda: _text(rb"\ud800"),
    "letters": lambda: _text(b"a"),
    "spaces": lambda: _text(b" "),
    "lines": lambda: _text(rb" \n"),
    "openings": lambda: _text(rb"<system-reminder>\n"),
    "tags": lambda: _text(
        b"".join(rb"<system-%08x>\n" % n for n in range(3_900_000 // 19)), size=3_990_000
    ),
    "letters 4 MB": lambda: _text(b"a", size=3_990_000),
    "words 4 MB": lambda: _text(b"sk-abcdef0123456789abcdef ", size=3_990_000),
    "openings 4 MB": lambda: _text(rb"<system-reminder>\n", size=3_990_000),
    "code 4 MB": lambda: _text(rb"def f(x):\n    return {'a': [x, 1]}\n", size=3_990_000),
    "messages 4 MB": lambda: _messages("x" * 390, 10_000),
    "tool 2 MB": lambda: _tool(_wide(2_000_000)),
    "messages": lambda: _messages("x" * (ROOM // 10_000 - 40), 10_000),
    "parts": lambda: _filled(PART + b",", _chat([]).removesuffix(b"]}]}"), PART + b"]}]}"),
    "image": _image,
    "json text": lambda: _text(rb"{\"a\":[1]},"),
    "schema bomb": lambda: _form(BOMB),
    "schema 240 KB": lambda: _form(_wide(240_000)),
    "schema 3 MB": lambda: _form(_wide(3_000_000)),
    "schema pattern": lambda: _form({"pattern": "(?i)" + "[\0-\U0010ffff]" * 3000}),
    "tool 3 MB": lambda: _tool(_wide(3_000_000)),
    "tools": lambda: _chat(
        tools=[
            {"type": "function", "function": {"name": f"t{n}", "parameters": {}}}
            for n in range(1_000)
        ]
    ),
    "stops": lambda: _chat(stop=["x" * 1_000_000] * 16),
    "calls": lambda: json.dumps(
        {
            "model": "conductor",
            "messages": [
                {"role": "user", "content": "x"},
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [
                        {
                            "id": f"c{n}",
                            "type": "function",
                            "function": {"name": "f", "arguments": "{}"},
                        }
                        for n in range(15_000)
                    ],
                },
                *({"role": "tool", "tool_call_id": f"c{n}", "content": "x"} for n in range(9_900)),
            ],
        }
    ).encode(),
}
"""What is sent, by a name."""

ASKING: Final = """
import http.client, sys, threading, time
end, longest = threading.Event(), 0.0
threading.Thread(target=lambda: (sys.stdin.read(), end.set()), daemon=True).start()
client = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
while not end.wait(0.02):
    began = time.monotonic()
    client.request("GET", "/health")
    client.getresponse().read()
    longest = max(longest, time.monotonic() - began)
print(longest)
"""
"""Asks `/health` all the time, and prints the seconds of the longest answer: a process of its own,
which does not wait for what this one sends.
"""


def _memory(pid: int) -> int:
    used = 0
    process = psutil.Process(pid)
    with suppress(psutil.Error):  # a child has ended meanwhile
        for part in (process, *process.children()):
            used += part.memory_info().rss
    return used


def run(tries: Tries) -> None:
    """Send every request alone and eight times at once, then end the server meanwhile."""
    with (
        tempfile.TemporaryDirectory(prefix="conductor-hostile-") as directory,
        private_home(Path(directory)),
    ):
        stage = Stage(Path(directory))
        with stage.server:
            stage.configure(workers=())
            with stage.config.open("a") as file:
                file.write(stage.worker("alpha", 'accepts = ["image"]\n'))
            stage.models["alpha"] = says("{}")
            stage.models["beta"] = says("{}")
            for name, make in REQUESTS.items():
                for count in (1, 8):
                    tries.attempt(
                        f"{name} x{count}", partial(_attack_again, stage, name, make, count)
                    )


def _attack_again(stage: Stage, name: str, make: Callable[[], bytes], count: int) -> Outcome:
    """Attack up to three times while only `/health` is late.

    Once may be the fault of other processes.
    """
    for _ in range(3):
        outcome = _attack(stage, name, make, count)
        if not outcome.problem.startswith("health"):
            break
    return outcome


def _attack(stage: Stage, name: str, make: Callable[[], bytes], count: int) -> Outcome:
    body = make()
    served = stage.start("serve", "--port", "0", stderr=subprocess.DEVNULL)
    with serving(served) as url, ThreadPoolExecutor(count) as pool:
        httpx.post(f"{url}{CHAT}", content=_chat(), timeout=SECONDS)

        def ask() -> int:
            with suppress(httpx.HTTPError):
                return httpx.post(f"{url}{CHAT}", content=body, timeout=SECONDS).status_code
            return 0

        asking = subprocess.Popen(
            [sys.executable, "-c", ASKING, url.rpartition(":")[2]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        began = time.monotonic()
        answers = [pool.submit(ask) for _ in range(count)]
        memory = 0
        while wait(answers, timeout=0.02).not_done:
            memory = max(memory, _memory(served.pid))
        statuses = [answer.result() for answer in answers]
        health = float(asking.communicate()[0])
        took = time.monotonic() - began
        pool.submit(ask)
        time.sleep(0.2)
        began = time.monotonic()
        served.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            served.wait(DRAIN_SECONDS + 3 * CLOSING_SECONDS)
        ended = time.monotonic() - began
    replies = (
        f"{sorted(set(statuses))} in {took:.1f} s, health {health * 1000:.0f} ms, "
        f"{memory / 1e6:.0f} MB"
    )
    print(f"{name} x{count}, {len(body) / 1e6:.1f} MB: {replies}, end {ended:.1f} s", flush=True)
    problems = [
        "no answer" if 0 in statuses else "",
        f"health {health:.2f} s" if health > HEALTH_SECONDS else "",
        f"{memory / 1e6:.0f} MB" if memory > MEMORY else "",
        f"ended after {ended:.0f} s" if ended > DRAIN_SECONDS + CLOSING_SECONDS else "",
    ]
    return Outcome(problem=", ".join(filter(None, problems)))

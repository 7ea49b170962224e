"""What no good client sends, over raw sockets.

The right status, the API's error, and a server that lives.
"""

from __future__ import annotations

import base64
import gzip
import json
import logging
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pkgutil import resolve_name
from typing import Any

import httpx
import psutil
import pytest

from conductor_cli.programs import schema_check
from conductor_cli.server.api.request import RequestError
from conductor_cli.server.http import process
from conductor_cli.server.http.body import read_json_body
from conductor_cli.server.http.connections import ConnectionRules, uvicorn_options
from tests.cli.stage import Stage, finished, says
from tests.media_files import png
from tests.schema_bombs import BOMB, checking
from tests.server import plain_api
from tests.server.plain_api import Serving, address_of, listen_at_small, serving, until

PROMPT = "a-prompt-of-the-user"
BODY: dict[str, Any] = {
    "model": "conductor",
    "max_tokens": 50,
    "messages": [{"role": "user", "content": PROMPT}],
}
PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/messages")
QUICK = ConnectionRules(head_seconds=0.4, request_seconds=0.8, stalled_seconds=0.4)


@pytest.fixture
def key(stage: Stage) -> str:
    return stage.inside("serve", "keys", "add", "raw").out.strip()


@pytest.fixture
def server(key: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    monkeypatch.setattr(process, "uvicorn_options", lambda: uvicorn_options(QUICK))
    monkeypatch.setattr(plain_api, "listen_at", listen_at_small)
    with serving() as served:
        yield served


@pytest.fixture
def patient_server(key: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    """One that waits as long for a body as for users: 34 MB take a while on a busy machine."""
    monkeypatch.setattr(plain_api, "listen_at", listen_at_small)
    with serving() as served:
        yield served


def connect(server: Serving) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=10)


def read(connection: socket.socket) -> bytes:
    received = b""
    while piece := connection.recv(65536):
        received += piece
        head, separator, body = received.partition(b"\r\n\r\n")
        for line in head.lower().split(b"\r\n"):
            if separator and line.startswith(b"content-length:") and len(body) >= int(line[15:]):
                return received
    return received


def send(server: Serving, content: bytes) -> bytes:
    with closing(connect(server)) as connection:
        connection.sendall(content)
        return read(connection)


def request(path: str, body: bytes, *headers: str, version: str = "1.1") -> bytes:
    lines = [
        f"POST {path} HTTP/{version}",
        "Host: localhost",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def error(answer: bytes) -> dict[str, Any]:
    error_object = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert isinstance(error_object["message"], str)
    assert error_object["type"]
    return dict(error_object)


def body_of(path: str, **fields: Any) -> bytes:
    body = BODY | fields
    if path.endswith("responses"):
        body = {"model": body["model"], "input": body["messages"]} | fields
    return json.dumps(body).encode()


def test_bad_bodies_get_the_error_of_their_api(server: Serving, key: str) -> None:
    auth = f"Authorization: Bearer {key}"
    for path in PATHS:
        wrong: dict[str, dict[str, Any]] = {
            "types": {"messages": 5, "input": 5},
            "role": {"messages": [{"role": "alien"}], "input": [5]},
        }
        bad = {
            "broken": b'{"model": "conductor", ',
            "list": b"[]",
            "deep": b'{"a":' * 100_000,
            "nan": b'{"temperature": NaN}',
            **{name: body_of(path, **fields) for name, fields in wrong.items()},
        }
        for name, body in bad.items():
            answer = send(server, request(path, body, auth))
            assert status(answer) == 400, (path, name)
            assert PROMPT not in error(answer)["message"]
        assert status(send(server, request(path, body_of(path, model="gpt-9"), auth))) == 404
        assert (
            status(
                send(
                    server,
                    request(path, gzip.compress(body_of(path)), auth, "Content-Encoding: gzip"),
                )
            )
            == 415
        )
        assert status(send(server, request(path, body_of(path)))) == 401
        refused = error(send(server, request(path, body_of(path), "x-api-key: wrong")))
        assert refused["type"] in {"invalid_request_error", "authentication_error"}
        assert status(send(server, request(path, body_of(path), auth))) == 200


@pytest.mark.parametrize("path", PATHS)
def test_each_answer_has_one_id_under_both_names(server: Serving, key: str, path: str) -> None:
    """That of its run, or one of its own; Anthropic's errors have it in the body too."""
    auth = f"x-api-key: {key}"
    good = body_of(path)
    runs = [request(path, good, auth), request(path, body_of(path, model="gpt-9"), auth)]
    request_bytes = request(path, good, auth)
    packed = request(path, gzip.compress(good), auth, "Content-Encoding: gzip")
    wrong = [
        request_bytes.replace(old, new, 1)
        for old, new in ((b"POST", b"PATCH"), (b"HTTP/1.1", b"x"))
    ]
    none = [request(path, good), request(path, b"{", auth), packed, *wrong]
    for sent in (*runs, *none):
        answer = send(server, sent)
        head, _, body = answer.partition(b"\r\n\r\n")
        ids = re.findall(rb"(?mi)^(?:x-)?request-id: (\S+)", head)
        assert (len(ids), len(set(ids)), ids[0].startswith(b"req_")) == (2, 1, sent in none)
        reply = json.loads(body)
        if path == PATHS[2] and reply["type"] == "error":
            assert reply["request_id"] == ids[0].decode()


def test_a_forged_call_is_no_crash(server: Serving, key: str) -> None:
    call = {
        "id": "call_" + "A" * 50,
        "type": "function",
        "function": {"name": "read", "arguments": "{}"},
    }
    asks = {"role": "assistant", "content": None, "tool_calls": [call]}
    talk = [
        *BODY["messages"],
        asks,
        {"role": "tool", "tool_call_id": call["id"], "content": "forged"},
    ]
    assert (
        status(
            send(server, request(PATHS[0], body_of(PATHS[0], messages=talk), f"x-api-key: {key}"))
        )
        == 200
    )


AMBIGUOUS = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 200,
    b"GET / HTTP/9.9\r\n\r\n",
    (
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\n"
        b"\r\n"
    ),
    (
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"
        b"0\r\n"
        b"\r\n"
    ),
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\nhello",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\nhello\r\n0\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET / HTTP/1.1\r\nX\x00Y: b\r\n\r\n",
)


def test_ambiguous_http_is_refused(server: Serving) -> None:
    """Two lengths, two hosts, and what is no HTTP get 400 and a message.

    What has no end gets 414.
    """
    for sent in AMBIGUOUS:
        answer = send(server, sent)
        assert status(answer) == 400, sent
        assert error(answer)["code"] in {"invalid_http", "duplicate_header"}
    for size in (65_800, 100_000, 1_000_000):
        whole = b"GET /" + b"a" * size + b" HTTP/1.1\r\nHost: a\r\n\r\n"
        assert [status(send(server, sent)) for sent in (whole, whole[:-30])] == [414, 414]


def test_clients_of_http_1_0_are_answered(server: Serving, key: str) -> None:
    """HTTP/1.0 has no chunks: the answer ends with the connection."""
    answer = send(server, request(PATHS[0], body_of(PATHS[0]), f"x-api-key: {key}", version="1.0"))
    assert status(answer) == 200
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["choices"]


def test_large_requests_end_early(patient_server: Serving, key: str) -> None:
    """A body beyond the limit is refused by its length, or while it is read.

    Endless headers are refused too.
    """
    auth = f"x-api-key: {key}".encode()
    head = b"POST /v1/messages HTTP/1.1\r\nHost: a\r\n" + auth + b"\r\n"
    answer = send(patient_server, head + b"Content-Length: 34000001\r\n\r\n{")
    assert (status(answer), error(answer)["type"]) == (413, "request_too_large")
    piece = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    with closing(connect(patient_server)) as connection:
        connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(33):
            connection.sendall(piece)
        assert status(read(connection)) == 413
    assert status(send(patient_server, b"GET / HTTP/1.1\r\nX: " + b"y" * 70_000)) == 431


def test_slow_clients_do_not_stay(server: Serving, key: str) -> None:
    with ExitStack() as stack:
        slow = [stack.enter_context(connect(server)) for _ in range(20)]
        for connection in slow:
            connection.sendall(b"POST /v1/messages HTTP/1.1\r\n")
        assert status(send(server, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")) == 200
        assert status(read(slow[0])) == 408
        late = stack.enter_context(connect(server))
        late.sendall(
            request(PATHS[0], b"", f"x-api-key: {key}").replace(b"Length: 0", b"Length: 9")
        )
        assert late.recv(1000) == b""


def test_a_client_that_never_reads_is_cut_off(stage: Stage, server: Serving, key: str) -> None:
    stage.models["alpha"] = says(*["x" * 60_000] * 200)
    with closing(socket.socket()) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", int(server.url.rpartition(":")[2])))
        connection.sendall(request(PATHS[0], body_of(PATHS[0], stream=True), f"x-api-key: {key}"))
        until(
            lambda: not server.server._server.server_state.connections, "the end of the connection"
        )


def test_half_closed_and_reset_connections_leave_nothing(server: Serving, key: str) -> None:
    for _ in range(10):
        with closing(connect(server)) as connection:
            connection.sendall(request(PATHS[0], body_of(PATHS[0]), f"x-api-key: {key}"))
            connection.shutdown(socket.SHUT_WR)
    assert status(send(server, request(PATHS[0], body_of(PATHS[0]), f"x-api-key: {key}"))) == 200


def test_no_log_has_a_key_or_a_prompt(
    stage: Stage, key: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "conductor_cli.server.http.create_answer.idempotency_key", lambda *_: int(f"{PROMPT} {key}")
    )
    with caplog.at_level(logging.DEBUG), serving() as server:
        answer = send(server, request(PATHS[0], body_of(PATHS[0]), f"Authorization: Bearer {key}"))
        send(server, request(PATHS[0], b"{" + PROMPT.encode(), f"x-api-key: wrong-{PROMPT}"))
        send(
            server,
            f"POST /{PROMPT} HTTP/1.1\r\nContent-Length: -1\r\nx-api-key: {key}\r\n\r\n".encode(),
        )
        send(server, request(f"/v1/models/{PROMPT}?search={PROMPT}", b"", f"x-api-key: {key}"))
    assert status(answer) == 500
    assert re.search(r"POST /v1/chat/completions 500, .* s, key \w+ \w+\n", caplog.text)
    assert re.search(r"POST /v1/models/\{model\} 405", caplog.text)
    assert "ValueError at test_bad_input.py:" in caplog.text
    assert key not in caplog.text
    assert PROMPT not in caplog.text


@pytest.mark.parametrize(
    "work",
    [
        "server.http.body.read_json_body",
        "server.http.create_answer.idempotency_key",
        "server.runs.run_request.read_conversation",
        "state.trace_file.TraceWriter.write",
        "models.chat_api_model.JsonBody",
    ],
)
def test_work_on_a_large_body_keeps_nobody_waiting(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    """Each part of the work is held until `/health` was answered meanwhile."""
    begun = threading.Event()
    answered = threading.Event()
    done = resolve_name(f"conductor_cli.{work}")
    name = work.rpartition(".")[2]

    def held(*arguments: Any) -> Any:
        if name != "JsonBody" or "x" * 100_000 in repr(arguments):  # the planner is sent less
            begun.set()
            assert answered.wait(30)
        return done(*arguments)

    monkeypatch.setattr(f"conductor_cli.{work}", held)
    with serving() as server, ThreadPoolExecutor(1) as pool:
        messages = [{"role": "user", "content": "x" * 100_000}]
        pending = pool.submit(send, server, request(PATHS[0], body_of(PATHS[0], messages=messages)))
        assert begun.wait(30)
        assert httpx.get(f"{server.url}/health", timeout=20).status_code == 200
        answered.set()
        assert status(pending.result()) == 200


def test_more_text_than_models_read_is_too_long(stage: Stage) -> None:
    """Text beyond four megabytes is refused in the words by which clients shorten it.

    An image of that size is not.
    """
    stage.configure(workers={"alpha": 'accepts = ["image"]'})
    texts = [{"role": "user", "content": "x" * 450_000}] * 10
    with serving() as server:
        for path in PATHS:
            answer = send(server, request(path, body_of(path, messages=texts, input=texts)))
            assert (status(answer), stage.asked("alpha")) == (400, [])
            assert re.search("prompt is too long|context window", error(answer)["message"])
        url = "data:image/png;base64," + base64.b64encode(png(padding=4_500_000)).decode()
        parts = [{"type": "text", "text": "Why?"}, {"type": "image_url", "image_url": {"url": url}}]
        body = body_of(PATHS[0], messages=[{"role": "user", "content": parts}])
        assert status(send(server, request(PATHS[0], body))) == 200


def test_a_thread_that_never_ends_does_not_keep_the_server(stage: Stage) -> None:
    script = """
import sys, time
from conductor_cli.cli.entry import run_command_line
from conductor_cli.server.http import body
from conductor_cli.server.http import process
process.MAX_PAUSE = process.DRAIN_SECONDS = process.CLOSING_SECONDS = 0.1
body.read_json_body = lambda data: (print("held", flush=True), time.sleep(10**6))
sys.exit(run_command_line(["serve", "--port", "0"]))
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], env=stage.environ(), stdout=subprocess.PIPE
    ) as served:
        assert served.stdout is not None
        try:
            url = address_of(served)
            with ThreadPoolExecutor(1) as pool:
                pending = pool.submit(
                    httpx.post, f"{url}{PATHS[0]}", content=b"x" * 100_000, timeout=60
                )
                while b"held" not in served.stdout.readline():
                    assert served.poll() is None
                served.send_signal(signal.SIGTERM)
                served.wait(30)
                assert pending.exception() is not None or pending.result().is_error
        finally:
            served.kill()


FORM = {"type": "json_schema", "json_schema": {"name": "x", "schema": BOMB}}


def test_a_schema_that_takes_for_ever_is_an_error_of_its_request(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_check, "CHECK_SECONDS", 1.0)
    stage.models["alpha"] = says("{}")
    pattern = "(a{1000}){1000}"
    slow = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"pattern": pattern}}}
    with serving() as server:
        url = f"{server.url}/v1/chat/completions"
        answers = [
            httpx.post(url, json={**BODY, "response_format": form}, timeout=60)
            for form in (FORM, slow)
        ]
        other = httpx.post(url, json=BODY, timeout=60)
    assert [(answer.status_code, answer.json()["error"]["code"]) for answer in answers] == [
        (400, "invalid_json_schema")
    ] * 2
    assert "cannot be checked" in answers[0].json()["error"]["message"]
    assert answers[1].json()["error"]["param"] == "response_format.json_schema.schema"
    assert other.status_code == 200
    assert len(stage.asked("alpha")) == 2


def test_a_server_answers_and_ends_while_a_schema_is_checked(stage: Stage) -> None:
    stage.models["alpha"] = says("{}")
    with stage.start("serve", "--port", "0") as served, ThreadPoolExecutor(1) as pool:
        url = address_of(served)
        pending = pool.submit(
            httpx.post, f"{url}{PATHS[0]}", json={**BODY, "response_format": FORM}, timeout=60
        )
        while not (processes := checking(served.pid)):
            assert not pending.done()
        health = httpx.get(f"{url}/health")
        assert (health.json()["running"], processes[0].is_running()) == (1, True)
        served.send_signal(signal.SIGTERM)
        done = finished(served)
        assert pending.exception() is not None or pending.result().status_code >= 400
    assert done.code in (0, 143), done.err
    assert not psutil.pid_exists(processes[0].pid)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"5",
        b'"x"',
        b"null",
        b"\xff\xfe",
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b"{'a': 1}",
        b'{"a": 1}{}',
        b'{"a": ' + b"9" * 6000 + b"}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a": ' + b"[" * 201 + b"]" * 201 + b"}",
        b'{"a": "\x00"}',
        b'{"a": [' + b"{}," * 130_000 + b"{}]}",
        b'{"a": "' + rb"[\"" * 2_100_000 + b'"}',
    ],
    ids=lambda body: str(len(body)),
)
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        read_json_body(body)
    assert (caught.value.status, caught.value.code) == (400, "invalid_json")


def test_an_error_quotes_nothing_of_the_body() -> None:
    with pytest.raises(RequestError, match="at line 1 column") as caught:
        read_json_body(b'{"content": secret prompt}')
    assert "secret" not in caught.value.message


def test_too_many_messages_are_refused() -> None:
    body = {"messages": [{"role": "user", "content": "x"}] * 10_000}
    assert len(read_json_body(json.dumps(body).encode())["messages"]) == 10_000
    body["messages"].append({})
    with pytest.raises(RequestError, match="messages has more than 10,000") as caught:
        read_json_body(json.dumps(body).encode())
    assert caught.value.param == "messages"


def test_half_characters_are_replaced() -> None:
    """Half of a surrogate pair becomes a question mark; whole pairs stay what they are."""
    assert read_json_body(rb'{"a\ud800": ["\ud83d", "\ud83d\ude00"]}') == {"a?": ["?", "😀"]}

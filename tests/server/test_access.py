"""Who may use the server.

Hosts, origins, keys and the command that makes them, and how much a request may bring.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from conductor_cli.core.errors import ConfigError, UsageError
from conductor_cli.server.client_keys import ClientKey, ClientKeys, find_key, make_key
from conductor_cli.server.http import access as access_module
from conductor_cli.server.http.access import (
    CLIENT_KEY,
    UPLOADS,
    Access,
    AccessRules,
    Message,
    Scope,
    describe_error,
    is_loopback_host,
)
from conductor_cli.state.trace_store import TraceStore
from tests.cli.stage import Stage
from tests.server.plain_api import Serving, serving
from tests.traces.stored import trace_bytes

OPEN = AccessRules()

UNFINISHED_PIECE = b"..."
"""As the last piece of a body: more was announced, and never comes."""


async def _echo(scope: Scope, receive: Any, send: Any) -> None:
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        size += len(message["body"])
        if not message.get("more_body"):
            break
    key = scope[CLIENT_KEY]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send(
        {"type": "http.response.body", "body": json.dumps([size, key and key.name]).encode()}
    )


class Answer:
    def __init__(self, sent: Sequence[Message]) -> None:
        self.status = sent[0]["status"]
        self.headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        self.body = b"".join(message.get("body", b"") for message in sent[1:])

    @property
    def error(self) -> dict[str, Any]:
        fields: dict[str, Any] = json.loads(self.body)["error"]
        return fields


def ask(
    rules: AccessRules | Access = OPEN,
    *,
    app: Any = _echo,
    method: str = "POST",
    path: str = "/v1/chat/completions",
    host: str = "localhost:8080",
    body: Sequence[bytes] = (b"",),
    headers: Sequence[tuple[str, str]] = (),
) -> Answer:
    raw = [
        (name.encode(), value.encode())
        for name, value in ([("host", host)] if host else []) + list(headers)
    ]
    scope = {"type": "http", "method": method, "path": path, "headers": raw}
    pieces = list(body)
    sent = []

    async def receive() -> Message:
        if not pieces:
            await asyncio.sleep(60)
        return {
            "type": "http.request",
            "body": pieces.pop(0),
            "more_body": bool(pieces) or body[-1:] == (UNFINISHED_PIECE,),
        }

    async def send(message: Message) -> None:
        sent.append(message)

    async def call() -> None:
        access = Access(app, rules) if isinstance(rules, AccessRules) else rules
        await access(scope, receive, send)

    asyncio.run(call())
    return Answer(sent)


def locked(**limits: Any) -> tuple[AccessRules, str]:
    key, text = make_key("laptop")
    return AccessRules(keys=lambda: (replace(key, **limits),)), text


def test_without_keys_only_names_of_this_machine_are_answered() -> None:
    """Without keys, only names of this machine are answered."""
    for host in (
        "localhost",
        "localhost:1",
        "LOCALHOST.",
        "a.localhost:80",
        "127.0.0.1:80",
        "127.9.9.9",
        "[::1]:8080",
    ):
        assert ask(host=host).status == 200, host
    for host in (
        "example.com",
        "localhost.example.com",
        "127.0.0.1.nip.io",
        "10.0.0.1",
        "a@localhost",
        "[::2]",
        "[",
    ):
        answer = ask(host=host)
        assert (answer.status, answer.error["code"], is_loopback_host(host)) == (
            403,
            "host_not_allowed",
            False,
        ), host


def test_a_host_is_free_with_a_key_in_either_header() -> None:
    rules, text = locked()
    for header in (("authorization", f"Bearer {text}"), ("x-api-key", text)):
        assert json.loads(ask(rules, host="box.lan", headers=[header]).body) == [0, "laptop"]


@pytest.mark.parametrize("sent", ["", "Bearer ", "Bearer wrong", "Basic abc", "Bearer ü"])
def test_a_wrong_key_is_refused(sent: str) -> None:
    rules, _ = locked()
    headers = [("authorization", sent)] if sent else []
    answer = ask(rules, headers=headers, body=[])
    assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
    assert (answer.headers["www-authenticate"], answer.headers["x-should-retry"]) == (
        "Bearer",
        "false",
    )
    assert (
        ask(rules, path="/v1/messages", headers=headers, body=[]).error["type"]
        == "authentication_error"
    )
    assert not sent[7:] or sent[7:] not in answer.body.decode()


def test_the_page_and_health_need_no_key() -> None:
    rules, _ = locked()
    assert [
        ask(rules, method="GET", path=path).status
        for path in ("/", "/health", "/v1/models", "/metrics")
    ] == [
        200,
        200,
        401,
        401,
    ]


def test_a_server_stays_closed_without_its_last_key() -> None:
    key, text = make_key("a")
    keys = [key]
    access = Access(_echo, AccessRules(keys=lambda: tuple(keys)))
    headers = [("x-api-key", text)]
    assert ask(access, headers=headers).status == 200
    keys.clear()
    assert ask(access, headers=headers).status == 401
    assert ask(access).status == 401


def test_unreadable_keys_close_the_server() -> None:
    def broken() -> tuple[ClientKey, ...]:
        raise ConfigError("the file is damaged")

    assert ask(AccessRules(keys=broken), headers=[("x-api-key", "anything")]).status == 503


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:8080", 200),
        ("https://chat.example", 200),
        ("https://evil.example", 403),
        ("null", 403),
        ("http://localhost:3000", 403),
    ],
)
def test_origins_are_checked(origin: str, status: int) -> None:
    """The server's own page and the origins of the settings are answered, no others."""
    rules = replace(OPEN, origins=("https://chat.example",))
    answer = ask(rules, headers=[("origin", origin)])
    assert answer.status == status
    assert ("access-control-allow-origin" in answer.headers) == (origin == "https://chat.example")


@pytest.mark.parametrize(
    ("site", "path", "status"),
    [
        ("cross-site", "/v1/conductor/runs", 403),
        ("same-site", "/v1/conductor/runs", 403),  # another port of this machine
        ("cross-site", "/", 200),  # a link that leads to the page
        ("same-origin", "/v1/conductor/runs", 200),
        ("none", "/v1/conductor/runs", 200),  # typed by the user
    ],
)
def test_a_foreign_page_embeds_nothing_that_takes_work(site: str, path: str, status: int) -> None:
    """An image or a script of a page has no origin, but says how far away it is."""
    headers = [("sec-fetch-site", site), ("sec-fetch-mode", "no-cors")]
    assert ask(path=path, headers=headers).status == status
    listed = replace(OPEN, origins=("https://chat.example",))
    named = [*headers, ("origin", "https://chat.example")]
    assert ask(listed, path=path, headers=named).status == 200


def test_a_preflight_needs_no_key() -> None:
    rules = replace(locked()[0], origins=("https://chat.example",))
    headers = [
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "x-stainless-os, b\x0bd"),
    ]
    answer = ask(rules, method="OPTIONS", headers=[("origin", "https://chat.example"), *headers])
    assert (answer.status, answer.headers["access-control-allow-headers"]) == (
        204,
        "x-stainless-os",
    )
    assert (
        ask(rules, method="OPTIONS", headers=[("origin", "https://evil.example"), *headers]).status
        == 403
    )
    for method, extra_headers in (("OPTIONS", []), ("POST", headers)):  # neither is a preflight
        assert (
            ask(
                rules, method=method, headers=[("origin", "https://chat.example"), *extra_headers]
            ).status
            == 401
        )
    # Errors can be read by the page, too, with what SDKs for browsers look for.
    answer = ask(rules, headers=[("origin", "https://chat.example")])
    shown = answer.headers["access-control-expose-headers"].split(", ")
    assert {"retry-after", "x-should-retry", "request-id", "x-request-id"} <= {*shown}
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (
        401,
        "https://chat.example",
    )


@pytest.mark.parametrize("name", ["host", "authorization", "content-length", "origin"])
def test_headers_that_count_stand_once(name: str) -> None:
    assert ask(host="", headers=[(name, "1"), (name, "1")]).error["code"] == "duplicate_header"


LONG_BODY = [b"12345", b"1234567", UNFINISHED_PIECE]


@pytest.mark.parametrize(
    ("limits", "sent", "status", "again"),
    [
        ({}, {"headers": [("x-long", "x" * 70_000)]}, 431, None),
        ({"most_body": 10}, {"headers": [("content-length", "11")], "body": []}, 413, None),
        ({"most_body": 10}, {"headers": [("content-length", "-1")], "body": []}, 400, None),
        ({"most_body": 10}, {"body": LONG_BODY}, 413, None),
        ({"most_bodies": 10}, {"body": LONG_BODY}, 503, "5"),
        ({"body_seconds": 0.05}, {"body": (b"1", UNFINISHED_PIECE)}, 408, None),
        ({"most_requests": 0}, {}, 503, "2"),
    ],
)
def test_how_much_and_how_slowly_a_request_comes_is_bounded(
    limits: dict[str, Any], sent: dict[str, Any], status: int, again: str | None
) -> None:
    """Bounded are all its headers, its body as it says or is read, all bodies, and all requests."""
    answer = ask(replace(OPEN, **limits), **sent)
    assert (answer.status, answer.headers.get("retry-after")) == (status, again)
    assert (answer.error["code"] == "request_too_large") == (status == 413)


def test_one_client_leaves_room_for_the_bodies_of_others() -> None:
    made = [make_key(name) for name in ("many", "few")]
    access = Access(_echo, AccessRules(keys=lambda: [key for key, _ in made], most_bodies=16))
    many, few = (f"key {key.name} {key.id}" for key, _ in made)
    assert access.hold(many, 12)
    assert not access.hold(many, 1)
    access.hold(many, -1)
    answer = ask(access, body=[b"123"], headers=[("authorization", f"Bearer {made[1][1]}")])
    assert (answer.status, access.hold(few, 1)) == (200, True)


def test_a_file_has_time_as_long_as_it_keeps_arriving(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = AccessRules(body_seconds=0.0)
    monkeypatch.setattr(access_module, "UPLOAD_SECONDS", 0.05)
    slow = ask(rules, path=UPLOADS, body=(b"1", UNFINISHED_PIECE))
    assert (slow.status, "50 kB a second" in slow.error["message"]) == (408, True)
    monkeypatch.setattr(access_module, "UPLOAD_BYTES_PER_SECOND", 0.1)
    assert ask(rules, path=UPLOADS, body=(b"12345", b"67890")).status == 200


def test_a_failure_says_nothing_of_the_request(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(scope: Scope, receive: Any, send: Any) -> None:
        raise ValueError("secret prompt")

    with caplog.at_level(logging.DEBUG):
        answer = ask(app=fail)
    assert (answer.status, answer.error["type"]) == (500, "server_error")
    assert "ValueError at test_access.py:" in caplog.text
    assert "secret prompt" not in caplog.text + answer.body.decode()


def test_the_log_says_what_the_system_refused_and_no_text_of_the_error() -> None:
    """A full disk is named, also where the error that was made of it has other words."""
    try:
        try:
            raise OSError(errno.ENOSPC, "No space left on device", "/secret/name")
        except OSError:
            raise UsageError("a prompt") from None
    except UsageError as error:
        line = describe_error(error)
    assert line.startswith("UsageError at test_access.py:")
    assert line.endswith(f", {os.strerror(errno.ENOSPC)}")
    assert "secret" not in line
    assert "prompt" not in line


def test_the_file_of_keys_has_hashes_for_its_owner(tmp_path: Path) -> None:
    keys = ClientKeys(tmp_path / "config")
    key, text = make_key("laptop")
    keys.add(replace(key, max_cost_day=Decimal("2.50"), pool="cheap"))
    assert keys.path.stat().st_mode & 0o777 == 0o600
    assert text not in keys.path.read_text()
    stored_key = find_key(ClientKeys(tmp_path / "config").all(), text)
    assert stored_key is not None
    assert (stored_key.name, stored_key.max_cost_day, stored_key.pool) == (
        "laptop",
        Decimal("2.50"),
        "cheap",
    )
    with pytest.raises(UsageError, match="already"):
        keys.add(key)
    with pytest.raises(UsageError, match="name"):
        keys.add(replace(key, name="a/b"))
    keys.remove("laptop")
    assert keys.all() == ()
    with pytest.raises(UsageError, match="no key"):
        keys.remove("laptop")


def test_a_damaged_file_of_keys_is_an_error(tmp_path: Path) -> None:
    keys = ClientKeys(tmp_path)
    for text in ("", "[]", '{"keys": 5}', '{"keys": [{}]}'):
        keys.path.write_text(text)
        with pytest.raises(ConfigError):
            keys.all()


def test_a_client_that_has_just_left_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_: Message) -> None:
        raise RuntimeError(
            "unable to perform operation on <TCPTransport closed=True>; the handler is closed"
        )

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/chat/completions",
        "headers": [(b"host", b"localhost")],
    }
    asyncio.run(Access(_echo, OPEN)(scope, receive, send))
    assert caplog.text == ""


PRICE = "price = { input = 1000, output = 1000 }\n"


def add(stage: Stage, name: str, *options: str) -> str:
    return stage.ok("serve", "keys", "add", name, *options).out.strip()


def ask_with(served: Serving, key: str, model: str = "conductor", **fields: Any) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "Why?"}], **fields}
    headers = {"authorization": f"Bearer {key}"}
    return httpx.post(f"{served.url}/v1/chat/completions", json=body, headers=headers, timeout=30)


def test_a_key_is_shown_once_and_listed_without_it(stage: Stage) -> None:
    key = add(stage, "phone", "--max-cost-day", "$5", "--max-cost", "0.5")
    assert key.startswith("ck-")
    assert "phone" in stage.inside("serve", "keys", "list").out
    (row,) = stage.inside("serve", "keys", "list", "--json").json
    assert (row["name"], row["max_cost_day"], row["max_cost"]) == ("phone", "5", "0.5")
    paths = [
        path
        for path in stage.config.parent.rglob("*")
        if path.is_file() and key in path.read_text()
    ]
    assert paths == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("add", "a b"),
        ("add", "x", "--max-cost-day", "-1"),
        ("add", "x", "--pool", "nope"),
        ("rm", "nope"),
    ],
)
def test_what_cannot_be_a_key_is_explained(stage: Stage, arguments: tuple[str, ...]) -> None:
    stage.fails(2, "serve", "keys", *arguments)
    assert stage.inside("serve", "keys", "list", "--json").json == []


def test_other_machines_need_a_key(stage: Stage) -> None:
    stage.ends(3, "serve", "--host", "0.0.0.0", "--port", "0", told="conductor serve keys add NAME")


def test_a_key_opens_the_server_until_it_is_removed(stage: Stage) -> None:
    key = add(stage, "phone")
    with serving() as served:
        answer = ask_with(served, key)
        assert answer.status_code == 200
        assert ask_with(served, "ck-wrong").status_code == 401
        run = answer.headers["x-request-id"]
        stored = TraceStore(stage.traces).ended(run)
        assert stored.origin.rpartition(" ")[0] == "key phone"
        assert all(key.encode() not in trace_bytes(path) for path in stage.traces.rglob("*.jsonl"))
        time.sleep(0.01)  # a file system that counts in milliseconds
        stage.ok("serve", "keys", "rm", "phone")
        assert ask_with(served, key).json()["error"]["code"] == "invalid_api_key"


def test_a_keys_pool_holds_for_its_requests(stage: Stage) -> None:
    stage.configure(tables='[pools.cheap]\nworkers = ["beta"]\n[pools.dear]\nworkers = ["alpha"]')
    stage.plan = "beta | - | Answer it."
    key = add(stage, "phone", "--pool", "cheap")
    with serving() as served:
        run = ask_with(served, key).headers["x-request-id"]
        assert TraceStore(stage.traces).ended(run).pool.names == ("beta",)
        assert ask_with(served, key, model="dear").json()["error"]["code"] == "pool_not_allowed"


def test_a_keys_day_ends_with_its_money(stage: Stage) -> None:
    stage.configure(workers=dict.fromkeys(("alpha", "beta", "planner"), PRICE), conductor="planner")
    poor = add(stage, "poor", "--max-cost-day", "0.01")
    rich = add(stage, "rich", "--max-cost-day", "10000")
    with serving() as served:
        refused = ask_with(served, poor, max_tokens=300)
        assert refused.status_code == 429, refused.text
        assert ask_with(served, rich, max_tokens=300).status_code == 200
    assert "today's limit" in json.dumps(refused.json())

"""The one door to HTTP, on real sockets: what it asks for, what it refuses, and what each failure becomes."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from conductor_cli.core.errors import ModelError
from conductor_cli.core.redact import Secrets
from conductor_cli.models.http import REASONS, HttpClient, host_of, reason_of
from tests.servers import Authority, SeenStep, Wire, authority, loopback, proxy


async def fine(seen: SeenStep, wire: Wire) -> None:
    await wire.json({"said": "yes"})


def ask(server: HttpClient, path: str = "", **how: Any) -> bytes:
    """The body of one answer."""

    async def go() -> bytes:
        try:
            async with server.open("POST", path, body={"a": "ü"}, **how) as answer:
                return await answer.body()
        finally:
            await server.close()

    return asyncio.run(go())


def failure(server: HttpClient, **how: Any) -> ModelError:
    """The error of one request."""
    with pytest.raises(ModelError) as error:
        ask(server, **how)
    return error.value


def classes(kind: type[BaseException]) -> Iterator[type[BaseException]]:
    yield kind
    for below in kind.__subclasses__():
        yield from classes(below)


NAMED = [
    kind for kind in map(httpx.__dict__.get, httpx.__all__) if isinstance(kind, type) and issubclass(kind, Exception)
]
FOREIGN = sorted({below for kind in NAMED for below in classes(kind)}, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", FOREIGN, ids=lambda kind: kind.__name__)
def test_every_exception_of_httpx_has_a_meaning(kind: type[Exception]) -> None:
    """Each failure of a request is in the table. The others come from a fault of ours."""
    reason, _ = reason_of(kind.__new__(kind))
    faults = (httpx.StreamError, httpx.CookieConflict, httpx.HTTPStatusError)
    assert (reason == "internal") == (issubclass(kind, faults) or kind is httpx.HTTPError)


def test_the_table_names_nothing_that_httpx_does_not_have() -> None:
    """No line of the table is about an exception that is gone."""
    assert set(REASONS) <= {kind.__name__ for kind in FOREIGN}


def test_a_request_is_what_was_asked_for() -> None:
    """Path, headers and body arrive as given; nothing is to be packed, and the body is UTF-8."""
    with loopback(fine) as server:
        assert json.loads(ask(HttpClient(f"{server.url}/v1/", headers={"x-own": "1"}), "/chat")) == {"said": "yes"}
    seen = server.requests[0]
    assert (seen.method, seen.path, seen.body) == ("POST", "/v1/chat", '{"a": "ü"}'.encode())
    assert seen.headers["x-own"] == "1"
    assert seen.headers["accept-encoding"] == "identity"
    assert seen.headers["user-agent"] == "conductor-llm"


def test_a_connection_is_used_again_once_its_answer_was_read() -> None:
    """Two requests, one after the other, share a connection."""

    async def twice(url: str) -> None:
        server = HttpClient(url)
        for _ in range(2):
            async with server.open("GET", "") as answer:
                await answer.body()
        await server.close()

    with loopback(fine) as server:
        asyncio.run(twice(server.url))
    assert (len(server.requests), server.connections) == (2, 1)


def test_an_answer_that_is_left_is_closed() -> None:
    """Leaving an answer before its end closes the connection at once."""

    async def endless(seen: SeenStep, wire: Wire) -> None:
        await wire.head()
        await wire.send("x")
        await wire.stall()

    async def leave(url: str) -> None:
        server = HttpClient(url)
        async with server.open("GET", "") as answer:
            await answer.piece()
        assert await asyncio.to_thread(connection.requests[0].closed.wait, 1.0)
        await server.close()

    with loopback(endless) as connection:
        asyncio.run(leave(connection.url))


def test_a_closed_port_cannot_be_reached() -> None:
    """Where nothing listens on this machine, the error says so and what to do; no proxy can be at fault."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        error = failure(HttpClient(f"http://127.0.0.1:{free.getsockname()[1]}"))
    assert error.reason == "connect"
    assert "cannot be reached" in error.message
    assert "start the server" in error.hint


@pytest.mark.parametrize(
    ("url", "reason"),
    [("localhost:80", "missing"), ("http://a:b", "missing"), ("ftp://a", "missing"), ("http://", "missing")],
)
def test_an_address_that_is_none_is_reported(url: str, reason: str) -> None:
    """An address without http://, or that is no address, is the user's to correct."""
    assert failure(HttpClient(url)).reason == reason


async def half(seen: SeenStep, wire: Wire) -> None:
    await wire.head()
    await wire.raw(b"100\r\nhalf of it")
    wire.cut()


async def nothing(seen: SeenStep, wire: Wire) -> None:
    wire.cut()


async def noise(seen: SeenStep, wire: Wire) -> None:
    await wire.raw(b"\x00\x01 this is not HTTP\r\n\r\n")


async def badly_packed(seen: SeenStep, wire: Wire) -> None:
    await wire.head(200, "application/json", content_encoding="gzip")
    await wire.send("this is not gzip")


@pytest.mark.parametrize("script", [half, nothing, noise, badly_packed], ids=lambda script: script.__name__)
def test_an_answer_that_is_broken_is_a_broken_one(script: Any) -> None:
    """An answer cut in the middle, none at all, noise, and a body that cannot be unpacked are all `broken`."""
    with loopback(script) as server:
        assert failure(HttpClient(server.url)).reason == "broken"


@pytest.mark.parametrize("when", ["before", "within"])
def test_the_time_for_a_call_bounds_all_of_it(when: str) -> None:
    """A server that says nothing, or stops in the middle, is left when the time is over, and sees the close."""

    async def slow(seen: SeenStep, wire: Wire) -> None:
        if when == "within":
            await wire.head()
            await wire.send("x")
        await wire.stall()

    with loopback(slow) as server:
        assert failure(HttpClient(server.url), seconds=0.1).reason == "timeout"
        assert server.requests[0].closed.wait(1.0)


def test_a_redirect_is_not_followed() -> None:
    """A redirect is an error that says where it leads; the key is not sent there."""

    async def elsewhere(seen: SeenStep, wire: Wire) -> None:
        await wire.head(307, "text/plain", location=f"{other.url}/v1")

    with loopback(fine) as other, loopback(elsewhere) as server:
        error = failure(HttpClient(server.url, headers={"authorization": "Bearer sk-123456"}))
    assert error.reason == "missing"
    assert other.url in error.message
    assert other.requests == []


def test_an_error_status_is_read_no_further_than_anybody_reads() -> None:
    """An endless error page is cut off; its first words are the message."""

    async def endless(seen: SeenStep, wire: Wire) -> None:
        await wire.head(500, "text/plain", retry_after="3")
        while not wire.gone.is_set():
            await wire.send("no " * 10_000)
            await asyncio.sleep(0)

    with loopback(endless) as server:
        error = failure(HttpClient(server.url))
    assert error.reason == "overloaded"
    assert error.retry_after == 3.0
    assert len(error.message) < 400


def test_an_answer_beyond_the_limit_is_left() -> None:
    """No more bytes are kept than the limit for one answer."""

    async def long(seen: SeenStep, wire: Wire) -> None:
        await wire.head()
        while not wire.gone.is_set():
            await wire.send(b"x" * 10_000)
            await asyncio.sleep(0)

    with loopback(long) as server:
        assert failure(HttpClient(server.url), limit=100_000).reason == "broken"


def test_a_body_that_unpacks_to_too_much_is_left() -> None:
    """The limit is on what a body unpacks to, not on what is sent."""

    async def bomb(seen: SeenStep, wire: Wire) -> None:
        await wire.head(200, "application/json", content_encoding="gzip")
        await wire.send(gzip.compress(b" " * 5_000_000))

    with loopback(bomb) as server:
        assert failure(HttpClient(server.url), limit=100_000).reason == "broken"


@pytest.mark.parametrize("key", ["sk-secret\nx: y", "sk-sécret", "sk-secret\x00"])
def test_a_key_that_cannot_be_sent_is_not_shown(key: str) -> None:
    """A key with a line break or a letter that HTTP forbids is an error without the key in it, nor in its cause."""
    with loopback(fine) as server:
        error = failure(HttpClient(server.url, headers={"authorization": f"Bearer {key}"}, secrets=Secrets(key)))
    assert error.reason == "refused"
    assert "cret" not in error.message
    assert error.__cause__ is None


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("tls"))


def test_a_certificate_that_nobody_vouches_for_is_refused(signed: Authority) -> None:
    """A server with an unknown certificate cannot be reached, and the error names the setting."""
    with loopback(fine, signed.tls) as server:
        error = failure(HttpClient(server.url))
    assert error.reason == "connect"
    assert "certificate" in error.message
    assert "SSL_CERT_FILE" in error.hint


@pytest.mark.parametrize("how", ["option", "environment"])
def test_a_certificate_authority_of_ones_own_is_taken(
    signed: Authority, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The CA comes from the worker's `ca_file` or from SSL_CERT_FILE."""
    if how == "environment":
        monkeypatch.setenv("SSL_CERT_FILE", str(signed.ca))
    with loopback(fine, signed.tls) as server:
        assert ask(HttpClient(server.url, ca_file=str(signed.ca) if how == "option" else "")) == b'{"said": "yes"}'


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_ca_file_that_cannot_be_read_is_named(tmp_path: Path, content: str | None) -> None:
    """A CA file that is missing or invalid is an error that names the file."""
    path = tmp_path / "ca.pem"
    if content:
        path.write_text(content)
    error = failure(HttpClient("https://127.0.0.1:1", ca_file=str(path)))
    assert error.reason == "refused"
    assert str(path) in error.message


def test_https_goes_through_the_proxy_of_the_environment(signed: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """With HTTPS_PROXY set, a name that only the proxy knows is reached through its tunnel."""
    with loopback(fine, signed.tls) as server, proxy(server) as tunnel:
        monkeypatch.setenv("HTTPS_PROXY", tunnel.url)
        assert ask(HttpClient("https://model.test/v1", ca_file=str(signed.ca))) == b'{"said": "yes"}'
    assert [seen.path for seen in tunnel.requests] == ["model.test:443"]
    assert "authorization" not in tunnel.requests[0].headers


def test_a_server_on_this_machine_is_never_asked_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions to a local server never go through a proxy."""
    with loopback(fine) as server, loopback(fine) as other:
        monkeypatch.setenv("HTTP_PROXY", other.url)
        monkeypatch.setenv("ALL_PROXY", other.url)
        ask(HttpClient(server.url))
        ask(HttpClient(server.url.replace("127.0.0.1", "localhost")))
    assert (len(server.requests), len(other.requests)) == (2, 0)


def test_a_proxy_that_refuses_is_a_failure_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that does not open its tunnel is named as the reason."""

    async def refuse(seen: SeenStep, wire: Wire) -> None:
        await wire.head(407, "text/plain")

    with loopback(refuse) as server:
        monkeypatch.setenv("HTTPS_PROXY", server.url)
        error = failure(HttpClient("https://model.test/v1"))
    assert error.reason == "connect"
    assert "proxy" in error.message


def test_a_list_is_a_json_object() -> None:
    """Anything else is a `ModelError`, without the key that the server echoed."""

    async def raw(seen: SeenStep, wire: Wire) -> None:
        if seen.path == "/good":
            return await wire.json({"data": [1, 2]})
        await wire.head(200, "text/plain")
        return await wire.send(f"no {seen.headers['authorization']}")

    async def get(path: str) -> Any:
        client = HttpClient(server.url, headers={"authorization": f"Bearer {key}"}, secrets=Secrets(key))
        try:
            return await client.list_json(path, seconds=5)
        finally:
            await client.close()

    key = "sk-123456"
    with loopback(raw) as server:
        assert asyncio.run(get("/good")) == {"data": [1, 2]}
        with pytest.raises(ModelError, match="not a JSON object: no Bearer \\[key\\]"):
            asyncio.run(get("/bad"))


@pytest.mark.parametrize(
    ("url", "host"),
    [("https://user:secret@a.test:1/v1?k=2", "a.test:1"), ("http://[::1]:80/", "[::1]:80"), ("http://[", "the server")],
)
def test_a_server_is_named_without_what_may_be_secret(url: str, host: str) -> None:
    """Messages name host and port only."""
    assert host_of(url) == host


def test_httpx_is_imported_when_a_request_is_made_and_not_before() -> None:
    """Importing the door, and making a server, loads no httpx."""
    code = (
        "import sys; from conductor_cli.models.http import HttpClient; HttpClient('http://127.0.0.1:1'); "
        "sys.exit('httpx' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

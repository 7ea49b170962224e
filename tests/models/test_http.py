"""The one door to HTTP, on real sockets.

What it asks for and refuses, what each failure becomes, and its events.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import socket
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.errors import ModelError
from conductor_cli.core.redact import Secrets
from conductor_cli.models.chat_body import JsonBody
from conductor_cli.models.http import HttpClient, SseParser, host_of, reason_of
from tests.models.kit import answering
from tests.servers import Authority, Script, SeenRequest, Wire, authority, loopback, proxy

fine = answering({"said": "yes"})


def ask(server: HttpClient, path: str = "", **how: Any) -> bytes:
    """The body of one answer."""

    async def go() -> bytes:
        try:
            async with server.open("POST", path, body=JsonBody({"a": "ü"}), **how) as answer:
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
    kind
    for kind in map(httpx.__dict__.get, httpx.__all__)
    if isinstance(kind, type) and issubclass(kind, Exception)
]
FOREIGN = sorted(
    set(chain.from_iterable(classes(kind) for kind in NAMED)), key=lambda kind: kind.__name__
)


@pytest.mark.parametrize("kind", FOREIGN, ids=lambda kind: kind.__name__)
def test_every_exception_of_httpx_has_a_meaning(kind: type[Exception]) -> None:
    reason, _ = reason_of(kind.__new__(kind))
    faults = (httpx.StreamError, httpx.CookieConflict, httpx.HTTPStatusError)
    assert (reason == "internal") == (issubclass(kind, faults) or kind is httpx.HTTPError)


def test_a_request_is_what_was_asked_for() -> None:
    with loopback(fine) as server:
        assert json.loads(
            ask(HttpClient(f"{server.url}/v1/", headers={"x-own": "1"}), "/chat")
        ) == {"said": "yes"}
    request = server.requests[0]
    assert (request.method, request.path, request.body) == (
        "POST",
        "/v1/chat",
        '{"a": "ü"}'.encode(),
    )
    assert request.headers["x-own"] == "1"
    assert request.headers["accept-encoding"] == "identity"
    assert request.headers["user-agent"] == "conductor-llm"


def test_a_closed_port_cannot_be_reached() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        error = failure(HttpClient(f"http://127.0.0.1:{free.getsockname()[1]}"))
    assert error.reason == "connect"
    assert "cannot be reached" in error.message
    assert "start the server" in error.hint


@pytest.mark.parametrize("url", ["localhost:80", "http://a:b", "ftp://a", "http://"])
def test_an_address_that_is_none_is_reported(url: str) -> None:
    assert failure(HttpClient(url)).reason == "missing"


def test_a_redirect_is_not_followed() -> None:
    async def elsewhere(request: SeenRequest, wire: Wire) -> None:
        await wire.head(307, "text/plain", location=f"{other.url}/v1")

    with loopback(fine) as other, loopback(elsewhere) as server:
        error = failure(HttpClient(server.url, headers={"authorization": "Bearer sk-123456"}))
    assert error.reason == "missing"
    assert other.url in error.message
    assert other.requests == []


def test_an_error_status_is_read_no_further_than_anybody_reads() -> None:
    async def endless(request: SeenRequest, wire: Wire) -> None:
        await wire.head(500, "text/plain", retry_after="3")
        while not wire.gone.is_set():
            await wire.send("no " * 10_000)
            await asyncio.sleep(0)

    with loopback(endless) as server:
        error = failure(HttpClient(server.url))
    assert error.reason == "overloaded"
    assert error.retry_after == 3.0
    assert len(error.message) < 400


@pytest.mark.parametrize("key", ["sk-secret\nx: y", "sk-sécret", "sk-secret\x00"])
def test_a_key_that_cannot_be_sent_is_not_shown(key: str) -> None:
    with loopback(fine) as server:
        error = failure(
            HttpClient(server.url, headers={"authorization": f"Bearer {key}"}, secrets=Secrets(key))
        )
    assert error.reason == "refused"
    assert "cret" not in error.message
    assert error.__cause__ is None


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("tls"))


def test_a_certificate_that_nobody_vouches_for_is_refused(signed: Authority) -> None:
    with loopback(fine, signed.tls) as server:
        error = failure(HttpClient(server.url))
    assert error.reason == "connect"
    assert "certificate" in error.message
    assert "SSL_CERT_FILE" in error.hint


def test_a_certificate_authority_of_the_environment_is_taken(
    signed: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(signed.ca))
    with loopback(fine, signed.tls) as server:
        assert ask(HttpClient(server.url)) == b'{"said": "yes"}'


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_ca_file_that_cannot_be_read_is_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "ca.pem"
    if content:
        path.write_text(content)
    error = failure(HttpClient("https://127.0.0.1:1", ca_file=str(path)))
    assert error.reason == "refused"
    assert str(path) in error.message


def test_https_goes_through_the_proxy_of_the_environment(
    signed: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    with loopback(fine, signed.tls) as server, proxy(server) as tunnel:
        monkeypatch.setenv("HTTPS_PROXY", tunnel.url)
        assert (
            ask(HttpClient("https://model.test/v1", ca_file=str(signed.ca))) == b'{"said": "yes"}'
        )
    assert [request.path for request in tunnel.requests] == ["model.test:443"]
    assert "authorization" not in tunnel.requests[0].headers


def test_a_server_on_this_machine_is_never_asked_through_a_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with loopback(fine) as server, loopback(fine) as other:
        monkeypatch.setenv("HTTP_PROXY", other.url)
        monkeypatch.setenv("ALL_PROXY", other.url)
        ask(HttpClient(server.url))
        ask(HttpClient(server.url.replace("127.0.0.1", "localhost")))
    assert (len(server.requests), len(other.requests)) == (2, 0)


@pytest.mark.parametrize("exclusions", ["::1/128", "[::1]", "fd00::/8", "localhost,127.0.0.0/8"])
def test_exclusions_from_the_proxy_that_are_ranges_are_no_error(
    exclusions: str, signed: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    with loopback(fine, signed.tls) as server, proxy(server) as tunnel:
        monkeypatch.setenv("HTTPS_PROXY", tunnel.url)
        monkeypatch.setenv("NO_PROXY", exclusions)
        client = HttpClient("https://model.test/v1", ca_file=str(signed.ca))
        assert ask(client) == b'{"said": "yes"}'


PROXY = "http://127.0.0.1:{proxy}"
NAME = "api.corp.example"
ADDRESS = "198.51.100.7"
ADDRESS_6 = "[fd12::7]"
WAYS: dict[str, tuple[dict[str, str], str, str]] = {
    "Docker Desktop, OrbStack": (
        {"http_proxy": PROXY, "no_proxy": "localhost,127.0.0.0/8,::1/128"},
        NAME,
        "proxy",
    ),
    "this machine in brackets": ({"http_proxy": PROXY, "no_proxy": "[::1]"}, NAME, "proxy"),
    "a prefix of IPv6": ({"http_proxy": PROXY, "no_proxy": "fd00::/8"}, NAME, "proxy"),
    "an address in a prefix of IPv6": (
        {"http_proxy": PROXY, "no_proxy": "fd00::/8"},
        ADDRESS_6,
        "direct",
    ),
    "an address of IPv6": ({"http_proxy": PROXY, "no_proxy": "fd12::7"}, ADDRESS_6, "direct"),
    "a range": ({"http_proxy": PROXY, "no_proxy": "198.51.100.0/24"}, ADDRESS, "direct"),
    "an address": ({"http_proxy": PROXY, "no_proxy": "10.0.0.1, 198.51.100.7"}, ADDRESS, "direct"),
    "a wildcard": ({"http_proxy": PROXY, "no_proxy": "*.corp.example"}, NAME, "direct"),
    "a domain with a dot": ({"http_proxy": PROXY, "no_proxy": ".corp.example"}, NAME, "direct"),
    "a domain": ({"http_proxy": PROXY, "no_proxy": "corp.example"}, NAME, "direct"),
    "capitals": ({"HTTP_PROXY": PROXY, "NO_PROXY": "API.CORP.EXAMPLE"}, NAME, "direct"),
    "everything": ({"http_proxy": PROXY, "no_proxy": "*"}, NAME, "direct"),
    "an end of another name": ({"http_proxy": PROXY, "no_proxy": "orp.example"}, NAME, "proxy"),
    "the proxy without a scheme": ({"http_proxy": "127.0.0.1:{proxy}"}, NAME, "proxy"),
    "a proxy for everything": ({"ALL_PROXY": PROXY}, NAME, "proxy"),
    "a proxy for https alone": ({"HTTPS_PROXY": PROXY}, NAME, "direct"),
    "GNOME's socks beside http": (
        {"http_proxy": PROXY, "all_proxy": "socks://127.0.0.1:9/"},
        NAME,
        "proxy",
    ),
    "GNOME's socks alone": ({"all_proxy": "socks://127.0.0.1:9/"}, NAME, "ALL_PROXY is a SOCKS"),
    "socks5 alone": ({"ALL_PROXY": "socks5://127.0.0.1:9"}, NAME, "ALL_PROXY is a SOCKS"),
    "socks5h for http": ({"HTTP_PROXY": "socks5h://127.0.0.1:9"}, NAME, "HTTP_PROXY is a SOCKS"),
    "socks4 alone": ({"ALL_PROXY": "socks4://127.0.0.1:9"}, NAME, "socks4, which is not supported"),
    "this machine beside socks": ({"all_proxy": "socks5://127.0.0.1:9"}, "127.0.0.1", "direct"),
    "this machine beside a proxy": ({"http_proxy": PROXY}, "localhost", "direct"),
}
"""Variables as people have them set, the host of a worker, and the way of a request or its error."""


@pytest.mark.parametrize(("variables", "host", "way"), WAYS.values(), ids=WAYS)
def test_a_request_takes_the_way_that_the_variables_of_a_user_say(
    variables: dict[str, str], host: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(way: str) -> Script:
        async def script(request: SeenRequest, wire: Wire) -> None:
            await wire.json({"way": way})

        return script

    if "SOCKS" in way and importlib.util.find_spec("socksio") is not None:
        pytest.skip("the package that speaks SOCKS is installed")
    lookup = socket.getaddrinfo
    monkeypatch.setattr(  # every name and address is here
        socket, "getaddrinfo", lambda _host, port, **options: lookup("127.0.0.1", port, **options)
    )
    with loopback(answer("direct")) as server, loopback(answer("proxy")) as other:
        for name, value in variables.items():
            monkeypatch.setenv(name, value.format(proxy=other.port))
        client = HttpClient(f"http://{host}:{server.port}")
        if way in ("direct", "proxy"):
            assert json.loads(ask(client)) == {"way": way}
        else:
            assert way in failure(client).message


def test_a_proxy_of_socks_without_its_package_is_said_to_be_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks4://127.0.0.1:1080")
    error = failure(HttpClient("https://model.test/v1"))
    assert error.reason == "refused"
    assert "ALL_PROXY is a SOCKS proxy" in error.message


def test_a_proxy_that_refuses_is_a_failure_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(request: SeenRequest, wire: Wire) -> None:
        await wire.head(407, "text/plain")

    with loopback(refuse) as server:
        monkeypatch.setenv("HTTPS_PROXY", server.url)
        error = failure(HttpClient("https://model.test/v1"))
    assert error.reason == "connect"
    assert "proxy" in error.message


def test_a_list_that_is_no_json_object_is_an_error_without_the_key() -> None:
    async def raw(request: SeenRequest, wire: Wire) -> None:
        await wire.head(200, "text/plain")
        await wire.send(f"no {request.headers['authorization']}")

    async def get(url: str) -> None:
        client = HttpClient(
            url, headers={"authorization": "Bearer sk-123456"}, secrets=Secrets("sk-123456")
        )
        with pytest.raises(ModelError, match="not a JSON object: no Bearer \\[key\\]"):
            await client.list_json("", seconds=5)
        await client.close()

    with loopback(raw) as server:
        asyncio.run(get(server.url))


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://user:secret@a.test:1/v1?k=2", "a.test:1"),
        ("http://[::1]:80/", "[::1]:80"),
        ("http://[", "the server"),
    ],
)
def test_a_server_is_named_without_what_may_be_secret(url: str, host: str) -> None:
    assert host_of(url) == host


ENDS = st.sampled_from(["\n", "\r\n"])
LINES = st.one_of(
    st.just(""),
    st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12),
    st.builds(
        "{}:{}".format,
        st.sampled_from(["data", "event", "id", "retry", "", "datum"]),
        st.sampled_from("äöü€𝄞 a:"),
    ),
)
STREAMS = st.lists(st.tuples(LINES, ENDS), max_size=20).map(
    lambda lines: "".join(map("".join, lines))
)


def events(stream: bytes, *cuts: int) -> list[str]:
    """The data of the events of `stream`, fed in pieces cut at these places."""
    parser = SseParser()
    places = [0, *sorted(cuts), len(stream)]
    pieces = [stream[start:end] for start, end in pairwise(places)]
    return list(chain.from_iterable(parser.feed(piece) for piece in pieces))


def plainly(text: str) -> list[str]:
    """The same by the letter of the standard, for a whole text."""
    events = []
    buffered = ""
    for line in re.split("\r\n|\n|\r", text.removeprefix("\ufeff"))[:-1]:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            events += [buffered.removesuffix("\n")] if buffered else []
            buffered = ""
        elif name == "data":
            buffered += value + "\n"
    return events


def test_a_field_named_error_is_an_event_of_its_own() -> None:
    stream = b'data: a\n\nerror: {"code": 5}\n\ndata: b\n\n'
    assert events(stream) == ["a", '{"error": {"code": 5}}', "b"]


@given(stream=STREAMS, cuts=st.lists(st.integers(0, 400), max_size=12))
def test_every_way_to_cut_the_bytes_gives_the_events_of_the_standard(
    stream: str, cuts: list[int]
) -> None:
    content = stream.encode()
    assert events(content, *(min(cut, len(content)) for cut in cuts)) == plainly(stream)


@pytest.mark.parametrize("cut", range(4))
def test_a_byte_order_mark_is_no_part_of_the_first_line(cut: int) -> None:
    assert events(b"\xef\xbb\xbfdata: first\n\ndata: second\n\n", cut) == ["first", "second"]


@given(stream=st.binary(max_size=200), cuts=st.lists(st.integers(0, 200), max_size=8))
def test_garbage_gives_the_same_events_however_it_is_cut(stream: bytes, cuts: list[int]) -> None:
    assert events(stream, *(min(cut, len(stream)) for cut in cuts)) == events(stream)


SEVERAL = b"data: a\n\ndata: \n\ndata: b c\n\n: d\n\ndata: e\ndata: f\n\nid: g\ndata: h\n\n"


@pytest.mark.parametrize("cut", range(len(SEVERAL) + 1))
def test_events_that_arrive_together_are_those_that_arrive_apart(cut: int) -> None:
    begun = b"data: first\n\n"
    expected = ["first", *plainly(SEVERAL.decode()), "last"]
    places = (len(begun), len(begun) + cut, len(begun) + len(SEVERAL))
    assert events(begun + SEVERAL + b"data: last\n\n", *places) == expected


@pytest.mark.parametrize(
    "pieces",
    [
        [b"data: " + b"x" * 60],
        [b"x" * 10] * 6,
        [b"data: 12345678\n"] * 9,
        [b"data: " + b"x" * 60 + b"\n\n"],
    ],
    ids=["one-piece", "without-an-end", "many-lines", "whole"],
)
def test_a_line_or_event_beyond_the_limit_is_an_error(pieces: list[bytes]) -> None:
    parser = SseParser(limit=50)
    with pytest.raises(ModelError, match="more than 50 bytes") as error:
        [parser.feed(piece) for piece in pieces]
    assert error.value.reason == "broken"


def test_a_line_of_many_small_pieces_is_not_copied_again_and_again() -> None:
    parser = SseParser()
    buffer = parser._pending
    for _ in range(10_000):
        parser.feed(b"x")
    assert parser._pending is buffer
    assert len(buffer) == 10_000

"""Pages from addresses that a stranger may have chosen."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Mapping
from pathlib import Path

import pytest

from conductor_cli.core.errors import ModelError
from conductor_cli.core.web_access import WebRules
from conductor_cli.models.http import send_to_addresses
from conductor_cli.models.web import MAX_REDIRECTS, Page, WebRefused, fetch_page
from tests.servers import Loopback, Script, SeenRequest, Wire, authority, loopback, proxy

PAGE = "<html><body><p>Hello</p></body></html>"


def serving(pages: Mapping[str, tuple[int, dict[str, str], bytes]]) -> Script:
    """A site with these pages, each a status, headers and a body; any other path is missing."""

    async def script(request: SeenRequest, wire: Wire) -> None:
        status, headers, body = pages.get(request.path, (404, {}, b"none"))
        await wire.head(status, "text/html", **headers)
        await wire.send(body)

    return script


def page(text: str = PAGE) -> tuple[int, dict[str, str], bytes]:
    return 200, {}, text.encode()


def redirect(location: str) -> tuple[int, dict[str, str], bytes]:
    return 302, {"location": location}, b"there"


def named(*servers: Loopback) -> WebRules:
    return WebRules(private_hosts=tuple(f"127.0.0.1:{server.port}" for server in servers))


def get(url: str, rules: WebRules, limit: int = 10_000, seconds: float = 20) -> Page:
    return asyncio.run(fetch_page(url, rules, limit=limit, seconds=seconds))


def test_a_page_of_a_named_host_is_read_with_its_type() -> None:
    with loopback(serving({"/a": page()})) as server:
        fetched = get(f"{server.url}/a#part", named(server))
        assert fetched.content.decode() == PAGE
        assert fetched.is_html
        assert [request.path for request in server.requests] == ["/robots.txt", "/a"]
        assert server.requests[-1].headers["user-agent"] == "conductor-llm"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1"])
def test_a_host_on_this_machine_is_asked_nothing_unless_it_is_named(host: str) -> None:
    with loopback(serving({"/a": page()})) as server:
        url = f"http://{host}:{server.port}/a"
        with pytest.raises(WebRefused) as refusal:
            get(url, WebRules())
        assert server.connections == 0
    assert "no public address" in refusal.value.message
    assert f"conductor config set web.private_hosts {host}" in refusal.value.hint


def test_a_redirect_to_a_private_address_is_not_followed() -> None:
    with loopback(serving({"/a": page()})) as inner:
        away = f"http://127.0.0.1:{inner.port}/a"
        with (
            loopback(serving({"/go": redirect(away)})) as server,
            pytest.raises(WebRefused, match="no public address"),
        ):
            get(f"{server.url}/go", named(server))
        assert inner.connections == 0


@pytest.mark.parametrize("location", ["http://[", "//[::1", "https://a:x/"])
def test_a_redirect_to_what_is_no_address_is_refused(location: str) -> None:
    with (
        loopback(serving({"/go": redirect(location)})) as server,
        pytest.raises(WebRefused, match="is no address of the web"),
    ):
        get(f"{server.url}/go", named(server))


def test_redirects_are_followed_to_an_end() -> None:
    with loopback(serving({"/a": redirect("b?x=1"), "/b?x=1": page()})) as server:
        fetched = get(f"{server.url}/a", named(server))
        assert fetched.url == f"{server.url}/b?x=1"
    with loopback(serving({"/a": redirect("/a")})) as server:
        with pytest.raises(ModelError, match="leads on more than 5 times"):
            get(f"{server.url}/a", named(server))
        assert len(server.requests) == 2 + MAX_REDIRECTS


def test_what_a_robots_txt_forbids_is_not_asked_for() -> None:
    robots = page("User-agent: *\nDisallow: /a")
    with loopback(serving({"/robots.txt": robots, "/a": page(), "/b": page()})) as server:
        with pytest.raises(WebRefused, match=r"robots\.txt"):
            get(f"{server.url}/a", named(server))
        assert [request.path for request in server.requests] == ["/robots.txt"]
        get(f"{server.url}/b", named(server))


def test_a_host_whose_robots_txt_fails_is_not_read() -> None:
    with (
        loopback(serving({"/robots.txt": (503, {}, b"busy"), "/a": page()})) as server,
        pytest.raises(WebRefused, match=r"robots\.txt"),
    ):
        get(f"{server.url}/a", named(server))


def test_a_body_beyond_the_limit_is_an_error_also_when_it_is_packed() -> None:
    packed = gzip.compress(b"a" * 100_000)
    pages = {"/a": page("a" * 20_000), "/b": (200, {"content_encoding": "gzip"}, packed)}
    with loopback(serving(pages)) as server:
        for path in ("/a", "/b"):
            with pytest.raises(ModelError, match="more than the limit"):
                get(f"{server.url}{path}", named(server))


def test_a_packed_page_without_its_end_is_an_error() -> None:
    """No part of a page passes for the whole; a page of two members is whole."""
    whole = gzip.compress(PAGE.encode())
    packed = {"content_encoding": "gzip"}
    pages = {"/cut": (200, packed, whole[:-12]), "/two": (200, packed, whole + whole)}
    with loopback(serving(pages)) as server:
        with pytest.raises(ModelError, match="the compressed body ends too early"):
            get(f"{server.url}/cut", named(server))
        assert get(f"{server.url}/two", named(server)).content == 2 * PAGE.encode()


def test_a_page_that_does_not_end_ends_with_the_time() -> None:
    async def script(request: SeenRequest, wire: Wire) -> None:
        await wire.head(404 if request.path == "/robots.txt" else 200, "text/plain")
        if request.path != "/robots.txt":
            await wire.stall()

    with (
        loopback(script) as server,
        pytest.raises(ModelError, match=r"did not answer within 0\.5 s"),
    ):
        get(f"{server.url}/a", named(server), seconds=0.5)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://127.0.0.1/a", "no address of the web"),
        ("file:///etc/passwd", "no address of the web"),
        ("http://me:secret@127.0.0.1/a", "user name or a password"),
        ("http://me:secret@bücher.test/a", "user name or a password"),
        ("http://127.0.0.1:99999/", "no address of the web"),
    ],
)
def test_what_is_no_plain_address_is_refused(url: str, message: str) -> None:
    with pytest.raises(WebRefused, match=message) as refusal:
        get(url, WebRules(private_hosts=("127.0.0.1",)))
    assert "secret" not in str(refusal.value)


def test_the_domains_of_a_policy_hold_for_named_hosts_too() -> None:
    with loopback(serving({"/a": page()})) as server:
        rules = WebRules(private_hosts=("127.0.0.1",), domains=(("example.com",),))
        with pytest.raises(WebRefused, match="policy"):
            get(f"{server.url}/a", rules)
        assert server.connections == 0


def test_a_status_that_is_no_success_is_told() -> None:
    with (
        loopback(serving({})) as server,
        pytest.raises(ModelError, match="its server answered 404"),
    ):
        get(f"{server.url}/a", named(server))


def test_through_a_proxy_a_private_host_is_refused_and_a_named_one_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy is told the name of a host that the user named, and no private one besides."""
    certificates = authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))
    with loopback(serving({"/a": page()}), certificates.tls) as server, proxy(server) as between:
        monkeypatch.setenv("HTTPS_PROXY", between.url)
        fetched = get("https://model.test/a", WebRules(private_hosts=("model.test",)))
        assert fetched.content.decode() == PAGE
        assert {request.path for request in between.requests} == {"model.test:443"}
        request_count = len(between.requests)
        with pytest.raises(WebRefused):
            get(f"https://localhost:{server.port}/a", WebRules())
        assert len(between.requests) == request_count


@pytest.mark.parametrize("is_proxied", [False, True], ids=["directly", "through a proxy"])
def test_the_connection_goes_to_the_address_that_was_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_proxied: bool
) -> None:
    """The name is not looked up again, and the certificate is still that of the name."""
    certificates = authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))

    async def body_at(url: str) -> bytes:
        async with send_to_addresses(url, ("127.0.0.1",), {"user-agent": "test"}, 1000) as answer:
            return await answer.body()

    with loopback(serving({"/a": page()}), certificates.tls) as server, proxy(server) as between:
        if is_proxied:
            monkeypatch.setenv("HTTPS_PROXY", between.url)
        assert asyncio.run(body_at(f"https://model.test:{server.port}/a")).decode() == PAGE
        assert server.requests[-1].headers["host"] == f"model.test:{server.port}"
        if is_proxied:
            assert between.requests[-1].path == f"127.0.0.1:{server.port}"
        with pytest.raises(ModelError, match="certificate"):
            asyncio.run(body_at(f"https://other.test:{server.port}/a"))


@pytest.mark.parametrize(
    ("content_type", "content", "text"),
    [
        ("text/html; charset=shift_jis", "<p>日本".encode("shift-jis"), "<p>日本"),
        ("text/html; charset=gb2312", "朱镕基".encode("gbk"), "朱镕基"),
        ("text/html; charset=x-sjis", "①髙島".encode("cp932"), "①髙島"),
        ("text/html; charset=euc-kr", "똠방각하".encode("cp949"), "똠방각하"),
        ("text/html; charset=big5", "嘅".encode("big5hkscs"), "嘅"),
        ("text/plain; charset=us-ascii", b"\x93so\x94", "“so”"),
        ("text/plain; charset=iso-8859-9", "ğ€".encode("cp1254"), "ğ€"),
        ("text/plain;charset=ISO-8859-1", b"caf\xe9 \x80", "café €"),
        ('text/html; charset="koi8-r"', "мир".encode("koi8-r"), "мир"),
        ("text/plain", b"caf\xc3\xa9", "café"),
        ("text/html; charset=utf-8", "\ufeffé".encode("utf-16"), None),
        ("text/html; charset=punycode", b"a-" * 9, None),
        ("text/plain; charset=utf-8", b"caf\xe9", None),
        ("application/pdf; charset=cp1252", b"%PDF \x80", None),
    ],
)
def test_a_text_is_read_in_the_encoding_that_its_server_names(
    content_type: str, content: bytes, text: str | None
) -> None:
    """What is no text, or does not fit, stays as it came."""
    page = Page(url="https://a.test", content=content, content_type=content_type)
    if text is None:
        assert page.text_content == content
    else:
        assert page.text_content.decode("utf-8-sig") == text

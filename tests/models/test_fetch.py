"""Reading a file from a URL: redirects and sizes are bounded, and no detour leads into a private network."""

from __future__ import annotations

import asyncio
import socket

import pytest

from conductor_cli.core.errors import UsageError
from conductor_cli.models.fetch import Fetched, fetch
from tests.media_files import png
from tests.servers import Loopback, Script, SeenStep, Wire, loopback


def serving(pages: dict[str, tuple[int, str, bytes]]) -> Loopback:
    """A server with a status, a place to go on to and a body for each path."""

    async def script(seen: SeenStep, wire: Wire) -> None:
        status, location, body = pages[seen.path]
        await wire.head(status, "application/octet-stream", **({"location": location} if location else {}))
        if body:
            await wire.send(body)

    answer: Script = script
    return loopback(answer)


def get(url: str, limit: int = 10**6) -> Fetched:
    return asyncio.run(fetch(url, limit=limit))


def test_a_file_is_fetched_with_its_name_after_redirects() -> None:
    with serving({"/a": (302, "/b/chart%20one.png?x=1", b""), "/b/chart%20one.png?x=1": (200, "", png())}) as server:
        found = get(f"{server.url}/a")
        assert (found.data, found.name) == (png(), "chart one.png")
        assert found.url == f"{server.url}/b/chart%20one.png?x=1"


def test_redirects_are_counted() -> None:
    """A server that redirects for ever is left after five."""
    with serving({"/a": (302, "/a", b"")}) as server:
        with pytest.raises(UsageError, match="more than 5 times"):
            get(f"{server.url}/a")
        assert len(server.requests) == 6


def test_more_than_the_limit_is_not_read() -> None:
    with serving({"/a": (200, "", bytes(2000))}) as server, pytest.raises(UsageError, match="more than the limit"):
        get(f"{server.url}/a", limit=1000)


def test_an_error_status_is_no_file() -> None:
    with serving({"/a": (404, "", b"not here")}) as server, pytest.raises(UsageError, match="answered 404"):
        get(f"{server.url}/a")


@pytest.mark.parametrize("url", ["ftp://host/a", "file:///etc/passwd", "/etc/passwd", "http://", "http://[::1/a"])
def test_only_http_is_fetched(url: str) -> None:
    """Another scheme is an error and no request."""
    with pytest.raises(UsageError, match="not a URL of http or https"):
        get(url)


def test_a_password_in_a_url_is_not_sent_or_shown() -> None:
    with pytest.raises(UsageError) as error:
        get("http://me:secret@127.0.0.1/a")
    assert "secret" not in str(error.value)


def test_a_name_at_a_private_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving({"/a": (200, "", b"inside")}) as server:

        def resolve(*_: object, **__: object) -> list[tuple[object, ...]]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", server.port))]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        with pytest.raises(UsageError, match=r"at the private address 127\.0\.0\.1"):
            get(f"http://docs.example:{server.port}/a")
        assert server.requests == []
        assert get(f"{server.url}/a").data == b"inside"


def test_a_redirect_to_a_private_address_is_refused() -> None:
    away = {"/a": (302, "http://169.254.169.254/latest", b"")}
    with serving(away) as server, pytest.raises(UsageError, match="private address 169"):
        get(f"{server.url}/a")


def test_the_connection_goes_to_the_address_that_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving({"/a": (200, "", b"here")}) as server:
        asked: list[str] = []
        real = socket.getaddrinfo

        def resolve(host: str, *more: object, **named: object) -> object:
            asked.append(host)
            if host == "docs.example":
                return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", server.port))]
            return real(host, *more, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        monkeypatch.setattr("conductor_cli.models.fetch.ip_address", _all_global)
        assert get(f"http://docs.example:{server.port}/a").data == b"here"
        assert asked.count("docs.example") == 1
        assert server.requests[0].headers["host"] == f"docs.example:{server.port}"


class _Global:
    is_global = True


def _all_global(host: str) -> _Global:
    if host == "docs.example":
        raise ValueError(host)
    return _Global()

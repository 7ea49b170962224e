"""Which proxy a request takes, and whose certificates are trusted."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import httpx2
import pytest

from conductor_cli.core.errors import ModelError
from conductor_cli.system.network import async_transport, proxy_for, tls_context, transport
from tests.servers import Authority, SeenRequest, Wire, authority, loopback, proxy

PROXY = "http://proxy.test:3128"
ASKED = "https://api.corp.example/v1"
OUTSIDE = "https://api.test/v1"
VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")

EXCLUSIONS: dict[str, tuple[str, str, bool]] = {
    "a name": ("api.corp.example", ASKED, True),
    "a name above it": ("corp.example", ASKED, True),
    "a dot before it": (".corp.example", ASKED, True),
    "a wildcard before it": ("*.corp.example", ASKED, True),
    "capitals": ("CORP.Example", ASKED, True),
    "an end that is no name above": ("orp.example", ASKED, False),
    "another name": ("other.example", ASKED, False),
    "everything": ("*", OUTSIDE, True),
    "blanks between": ("a.test  api.test", OUTSIDE, True),
    "the port of the address": ("api.test:443", OUTSIDE, True),
    "another port": ("api.test:8443", OUTSIDE, False),
    "an address": ("198.51.100.7", "http://198.51.100.7:8000/v1", True),
    "a range": ("198.51.100.0/24", "http://198.51.100.7:8000/v1", True),
    "a range with host bits": ("198.51.100.9/24", "http://198.51.100.7/v1", True),
    "another range": ("198.51.101.0/24", "http://198.51.100.7/v1", False),
    "a range of IPv6": ("fd00::/8", "http://[fd12::7]:8000/v1", True),
    "an address of IPv6": ("fd12::7", "http://[fd12::7]/v1", True),
    "brackets": ("[fd12::7]", "http://[fd12::7]/v1", True),
    "brackets with a port": ("[fd12::7]:8000", "http://[fd12::7]:8000/v1", True),
    "brackets with another port": ("[fd12::7]:80", "http://[fd12::7]:8000/v1", False),
    "what Docker Desktop sets": ("localhost,127.0.0.0/8,::1/128", OUTSIDE, False),
    "an entry that is nonsense": ("[::1,///,10.0.0.0/99,", OUTSIDE, False),
    "a scheme before it": ("https://api.test", OUTSIDE, True),
    "a dot behind the host": ("api.test", "https://api.test./v1", True),
}


@pytest.mark.parametrize(("entries", "url", "is_excluded"), EXCLUSIONS.values(), ids=EXCLUSIONS)
def test_no_proxy_excludes_by_the_rules_of_curl_and_go(
    entries: str, url: str, is_excluded: bool
) -> None:
    environ = {"HTTP_PROXY": PROXY, "HTTPS_PROXY": PROXY, "NO_PROXY": entries}
    assert proxy_for(url, environ) == ("" if is_excluded else PROXY)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/v1", "http://localhost:1", "http://[::1]:1", "http://127.9.9.9"]
)
def test_this_machine_is_never_asked_through_a_proxy(url: str) -> None:
    assert not proxy_for(url, {"ALL_PROXY": PROXY, "HTTP_PROXY": PROXY})


@pytest.mark.parametrize(
    ("environ", "chosen"),
    [
        ({"HTTPS_PROXY": PROXY, "ALL_PROXY": "http://other.test"}, PROXY),
        ({"https_proxy": PROXY, "HTTPS_PROXY": "http://other.test"}, PROXY),
        ({"HTTP_PROXY": PROXY}, ""),
        ({"ALL_PROXY": PROXY}, PROXY),
        ({"HTTPS_PROXY": "proxy.test:3128"}, PROXY),
        ({"HTTPS_PROXY": PROXY, "all_proxy": "socks://127.0.0.1:1080/"}, PROXY),
        ({"HTTPS_PROXY": ""}, ""),
        ({}, ""),
    ],
)
def test_the_proxy_of_the_scheme_comes_first(environ: dict[str, str], chosen: str) -> None:
    assert proxy_for(OUTSIDE, environ) == chosen


@pytest.mark.parametrize("scheme", ["socks", "socks5", "socks5h", "SOCKS5"])
def test_a_proxy_of_socks_is_used_or_said_to_need_its_package(scheme: str) -> None:
    environ = {"ALL_PROXY": f"{scheme}://127.0.0.1:1080"}
    if importlib.util.find_spec("socksio") is not None:
        assert urlsplit(proxy_for(OUTSIDE, environ)).scheme.startswith("socks5")
        return
    with pytest.raises(ModelError, match="ALL_PROXY is a SOCKS proxy") as caught:
        proxy_for(OUTSIDE, environ)
    assert "socksio" in caught.value.hint


def test_a_kind_of_socks_that_is_not_spoken_is_named() -> None:
    with pytest.raises(ModelError, match="of the kind socks4, which is not supported"):
        proxy_for(OUTSIDE, {"HTTPS_PROXY": "socks4://127.0.0.1:1080"})


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("network-tls"))


@pytest.fixture(autouse=True)
def no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


async def yes(request: SeenRequest, wire: Wire) -> None:
    await wire.json({"said": "yes"})


@pytest.mark.parametrize("variable", VARIABLES)
def test_the_certificates_of_each_usual_variable_are_trusted(
    variable: str, signed: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(signed.ca))
    with loopback(yes, signed.tls) as server, httpx.Client(transport=transport(httpx)) as client:
        assert client.get(server.url).json() == {"said": "yes"}


def test_certificates_in_addition_leave_the_usual_ones(
    signed: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = len(tls_context().get_ca_certs())
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", str(signed.ca))
    assert len(tls_context().get_ca_certs()) == usual + 1
    monkeypatch.setenv("SSL_CERT_FILE", str(signed.ca))
    assert len(tls_context().get_ca_certs()) == 1


@pytest.mark.parametrize("variable", VARIABLES)
def test_certificates_that_cannot_be_read_are_named_with_their_variable(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "none.pem"))
    with pytest.raises(ModelError) as caught:
        tls_context()
    assert f"{variable}: {tmp_path / 'none.pem'}" in caught.value.message
    assert caught.value.hint == f"correct or unset {variable}"


def test_a_file_of_a_worker_is_told_from_that_of_the_environment(
    signed: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(ModelError, match="SSL_CERT_FILE"):
        tls_context(str(signed.ca))
    monkeypatch.setenv("HOME", str(signed.ca.parent))
    monkeypatch.delenv("SSL_CERT_FILE")
    assert tls_context(f"~/{signed.ca.name}").get_ca_certs()


@pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
def test_a_client_of_a_library_takes_the_proxy_and_trusts_the_certificates(
    library: object, signed: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask() -> object:
        async with library.AsyncClient(transport=async_transport(library)) as client:  # type: ignore[attr-defined]
            return (await client.get("https://model.test/v1")).json()

    with loopback(yes, signed.tls) as server, proxy(server) as tunnel:
        monkeypatch.setenv("HTTPS_PROXY", tunnel.url)
        monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.0/8,::1/128,[::1]")
        monkeypatch.setenv("CURL_CA_BUNDLE", str(signed.ca))
        assert asyncio.run(ask()) == {"said": "yes"}
    assert [request.path for request in tunnel.requests] == ["model.test:443"]

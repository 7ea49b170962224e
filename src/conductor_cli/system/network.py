"""What the environment says of the network: which proxy a request takes, and whom to trust.

Everything here that speaks HTTP asks this module: workers, the model hub, tool servers, telemetry.
The libraries below them each read another part of the same variables, and one of them takes an
address range in NO_PROXY for an error.

Proxies are chosen by the rules that curl and Go share. The variable of the scheme comes before
ALL_PROXY, the name in small letters before the one in capitals. NO_PROXY is a list of names (with
all names below them; a dot or `*.` before one changes nothing), addresses, and ranges such as
`10.0.0.0/8` or `fd00::/8`, each with a port or without, IPv6 in brackets or not; `*` is everything.
This machine is never asked through a proxy.
"""

from __future__ import annotations

import errno
import os
import ssl
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies

from conductor_cli.core.errors import ModelError, describe_system_error
from conductor_cli.core.terminal_text import one_line

_USUAL_PORTS: Final = {"http": 80, "https": 443}
_SPOKEN_SOCKS: Final = ("socks", "socks5", "socks5h")
"""The schemes of a SOCKS proxy that can be used; GNOME writes the first one."""


def proxy_for(url: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the address of the proxy for a URL, empty for none.

    `environ` is the environment; without it that of the process, and after it what macOS and
    Windows have in their settings. Raises `ModelError` for a proxy that cannot be used.
    """
    proxies = getproxies() if environ is None else _proxies_in(environ)
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").rstrip(".")
        port = parts.port or _USUAL_PORTS.get(parts.scheme, 0)
    except ValueError:  # no address, which whoever asks will say
        return ""
    name = "all"
    if proxies.get(parts.scheme):
        name = parts.scheme
    proxy = proxies.get(name, "").strip()
    if not proxy or not host or is_excluded(host, port, proxies.get("no", "")):
        return ""
    return _usable(proxy, f"{name.upper()}_PROXY")


def _proxies_in(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the proxies of an environment by scheme, and the exclusions as `no`."""
    names = ("http", "https", "all", "no")
    proxies = {}
    for name in names:
        variable = f"{name}_proxy"
        proxies[name] = environ.get(variable) or environ.get(variable.upper()) or ""
    return proxies


def _usable(proxy: str, variable: str) -> str:
    """Return the address of a proxy as the libraries of HTTP take it.

    Raises `ModelError` for one that none of them can use, and names its variable.
    """
    scheme, separator, rest = proxy.partition("://")
    if not separator:
        return f"http://{proxy}"
    scheme = scheme.lower()
    if not scheme.startswith("socks"):
        return proxy
    problem = f"{variable} is a SOCKS proxy"
    if scheme not in _SPOKEN_SOCKS:
        message = f"{problem} of the kind {one_line(scheme):.20}, which is not supported"
        raise ModelError("refused", message, hint="use socks5://, or set HTTPS_PROXY to another")
    if find_spec("socksio") is None:
        message = f"{problem}, and the package that speaks SOCKS is not installed"
        hint = "pip install socksio, beside conductor; or set HTTPS_PROXY to an HTTP proxy"
        raise ModelError("refused", message, hint=hint)
    if scheme == "socks":
        return f"socks5://{rest}"
    return proxy


def is_excluded(host: str, port: int, exclusions: str) -> bool:
    """Return whether a host is asked without a proxy, by the text of NO_PROXY.

    An entry that cannot be understood excludes nothing.
    """
    host = host.lower()
    address = _address_of(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    entries = exclusions.lower().replace(",", " ").split()
    return any(_matches(entry, host, address, port) for entry in entries)


def _matches(entry: str, host: str, address: IPv4Address | IPv6Address | None, port: int) -> bool:
    if entry == "*":
        return True
    name, entry_port = _host_and_port(entry.partition("://")[2] or entry)
    if entry_port and entry_port != str(port):
        return False
    if address is not None:
        return _is_in_range(name, address)
    name = name.removeprefix("*").strip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))


def _host_and_port(entry: str) -> tuple[str, str]:
    """Return the host or range of an entry of NO_PROXY, without brackets, and its port."""
    if entry.startswith("["):
        host, _, rest = entry[1:].partition("]")
        # A range may stand behind the brackets, too.
        is_range = rest.startswith("/")
        return (host + rest, "") if is_range else (host, rest.removeprefix(":"))
    if entry.count(":") == 1:
        host, _, port = entry.partition(":")
        return host, port
    return entry, ""  # a name, or an IPv6 address without brackets


def _is_in_range(entry: str, address: IPv4Address | IPv6Address) -> bool:
    try:
        return address in ip_network(entry, strict=False)
    except ValueError:
        return False


def _address_of(host: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


_INSTEAD: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""The variables of certificates that take the place of the usual ones; the first one set counts."""

_BESIDE: Final = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
"""Those whose certificates come in addition; each is a file, or a directory as OpenSSL has them."""


def tls_context(ca_file: str = "") -> ssl.SSLContext:
    """Return whom to trust: one context for all servers, as the environment says.

    SSL_CERT_FILE or SSL_CERT_DIR take the place of the usual authorities, as they do for OpenSSL.
    What REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE and NODE_EXTRA_CA_CERTS name, and a worker's own
    `ca_file`, comes in addition. Raises `ModelError` that names what cannot be read.
    """
    return _context_of((*_certificates(), ("ca_file", ca_file)))


def separate_tls_context() -> ssl.SSLContext:
    """Return the same, of its own, for a library that changes what it is given."""
    return _context_of.__wrapped__(_certificates())


def tls_context_for(name: str) -> ssl.SSLContext:
    """Return a context that asks for the certificate of a name, at whatever address its server is.

    A library that is given the address in place of the name would ask for that of the address.
    """
    context = separate_tls_context()
    wrap_bio = context.wrap_bio

    def wrap_for_name(
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,  # noqa: FBT001, FBT002 - as ssl has it
        server_hostname: str | bytes | None = None,  # noqa: ARG001 - the address
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        return wrap_bio(incoming, outgoing, server_side, name, session)

    context.wrap_bio = wrap_for_name  # type: ignore[method-assign]
    return context


def _certificates() -> tuple[tuple[str, str], ...]:
    """Return the variables of certificates, and what each is set to."""
    return tuple((name, os.environ.get(name, "")) for name in (*_INSTEAD, *_BESIDE))


def has_tls_context() -> bool:
    """Return whether certificates have been read, so that the next context is there at once."""
    return bool(_context_of.cache_info().currsize)


@cache
def _context_of(certificates: tuple[tuple[str, str], ...]) -> ssl.SSLContext:
    """Return a context for what variables and settings name: to read it takes 20 ms."""
    instead = []
    beside = []
    for name, path in certificates:
        if path and name in _INSTEAD:
            instead.append((name, path))
        elif path:
            beside.append((name, path))
    first = instead[0] if instead else ("the usual certificates", _usual_certificates())
    context = _read_certificates(None, *first)
    paths = {first[1]}
    for name, path in beside:
        if path not in paths:  # they often name one file
            paths.add(path)
            _read_certificates(context, name, path)
    return context


def _read_certificates(context: ssl.SSLContext | None, name: str, path: str) -> ssl.SSLContext:
    """Return the context, or a new one, that trusts what is in a file or a directory."""
    source = Path(path).expanduser()
    is_directory = source.is_dir()
    file = None if is_directory else str(source)
    directory = str(source) if is_directory else None
    try:
        if context is None:
            return ssl.create_default_context(cafile=file, capath=directory)
        context.load_verify_locations(cafile=file, capath=directory)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):  # the file is as it should be
            message = "CA certificates cannot be read: the system allows no further open file"
            raise ModelError(
                "connect", message, hint="raise the limit on open files: ulimit -n 4096"
            ) from error
        problem = describe_system_error(error)
        message = f"CA certificates cannot be read ({name}: {one_line(path)}): {problem}"
        hint = f"correct or unset {name}"
        raise ModelError("refused", message, hint=hint) from error
    return context


def _usual_certificates() -> str:
    import certifi

    return certifi.where()


def async_transport(library: Any) -> Any:  # noqa: ANN401 - of httpx or of httpx2
    """Return what sends the requests of an asynchronous client of httpx, or of its kin.

    For each request the proxy is chosen, and the certificates are those of the environment.
    """
    base = library.AsyncBaseTransport

    class Routed(base):  # type: ignore[misc, valid-type] # a class of either library
        def __init__(self) -> None:
            self._by_proxy: dict[str, Any] = {}

        async def handle_async_request(self, request: Any) -> Any:  # noqa: ANN401
            proxy = proxy_for(str(request.url))
            if proxy not in self._by_proxy:
                self._by_proxy[proxy] = library.AsyncHTTPTransport(
                    verify=tls_context(), proxy=proxy or None
                )
            return await self._by_proxy[proxy].handle_async_request(request)

        async def aclose(self) -> None:
            for transport in self._by_proxy.values():
                await transport.aclose()

    return Routed()


def transport(library: Any) -> Any:  # noqa: ANN401 - of httpx
    """Return the same for a client that is not asynchronous."""
    base = library.BaseTransport

    class Routed(base):  # type: ignore[misc, valid-type] # a class of the library
        def __init__(self) -> None:
            self._by_proxy: dict[str, Any] = {}

        def handle_request(self, request: Any) -> Any:  # noqa: ANN401
            proxy = proxy_for(str(request.url))
            if proxy not in self._by_proxy:
                self._by_proxy[proxy] = library.HTTPTransport(
                    verify=tls_context(), proxy=proxy or None
                )
            return self._by_proxy[proxy].handle_request(request)

        def close(self) -> None:
            for inner in self._by_proxy.values():
                inner.close()

    return Routed()

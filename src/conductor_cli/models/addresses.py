"""Where a worker's questions are sent: addresses, and what can be told from their text. Pure."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from ipaddress import ip_address
from typing import Final
from urllib.parse import SplitResult, urlsplit

from conductor_cli.core.pool import Worker
from conductor_cli.models.presets import PRESETS, Preset

_WITHOUT_SCHEME: Final = re.compile(
    # This machine, or a number
    r"(?P<number>localhost|\d+(?:\.\d+){3}|\[[0-9a-f:]+\])(?::\d+)?(?:/\S*)?"
    # A name with a port, or with a path such as /v1
    r"|[\w.-]+:\d{2,5}(?:/\S*)?|[\w-]+(?:\.[\w-]+)+/v\d\S*",
    re.IGNORECASE,
)

_NO_PRESET: Final = Preset()


def is_quoted(key: str) -> bool:
    """Return whether a key has quotes around it, which a file of variables may have left there."""
    return len(key) > 1 and key[0] == key[-1] and key[0] in "\"'"


def base_url_of(worker: Worker) -> str:
    """Return the address that a worker's questions are sent to, empty if litellm chooses it."""
    preset = PRESETS.get(worker.kind, _NO_PRESET)
    base_url = worker.options.get("base_url") or preset.base_url
    return str(base_url).rstrip("/")


def urls_of(worker: Worker) -> list[str]:
    """Return each address that a worker's questions may be sent to.

    Several servers may have the same model.
    """
    return [url.strip().rstrip("/") for url in base_url_of(worker).split(",")]


def at_url(worker: Worker, url: str) -> Worker:
    """Return the worker as it is at one of its addresses."""
    return replace(worker, options={**worker.options, "base_url": url})


def is_own_address(worker: Worker) -> bool:
    """Return whether a worker uses its provider's own address.

    The provider's key is sent to no other.
    """
    return base_url_of(worker) == PRESETS[worker.kind].base_url.rstrip("/")


def max_tools_of(worker: Worker) -> int | None:
    """Return how many tools a request to a worker may have; None where that is not known."""
    preset = PRESETS.get(worker.kind)
    if preset is None or not is_own_address(worker):
        return None
    return preset.max_tools


def api_at(kind: str, base_url: str) -> str:
    """Return the key of `CHAT_APIS` by which a kind of worker is asked at an address.

    Below `/openai` Google speaks chat completions, at every other address its own API.
    """
    api = PRESETS[kind].api
    if api == "gemini" and base_url.rstrip("/").endswith("/openai"):
        return "gemini-chat"
    return api


def http_url(text: str) -> SplitResult | None:
    """Return the parts of an address that HTTP can reach; None for any other text."""
    try:
        parts = urlsplit(text)
        is_http = parts.scheme in ("http", "https")
        has_server = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts if is_http and has_server else None


def with_path(base_url: str, path: str) -> str:
    """Return an address with a path below it; a query of the address, such as Azure's, stays last.

    A path may have a query too.
    """
    address, _, query = base_url.partition("?")
    joiner = "&" if "?" in path else "?"
    whole = address.rstrip("/") + path
    if query:
        return f"{whole}{joiner}{query}"
    return whole


def holds_password(urls: str) -> bool:
    """Return whether an address, or one of several, has a password in it."""
    servers = [url.partition("://")[2].partition("/")[0] for url in urls.split(",")]
    return any("@" in server for server in servers)


@lru_cache(maxsize=1024)  # each call asks this of the same few addresses
def is_loopback(url: str) -> bool:
    """Return whether an address is on this machine."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # the name of another host, or not a URL
        return False


def with_scheme(text: str) -> str:
    """Return the URL that somebody means who left out `http://`, such as `127.0.0.1:8080/v1`.

    Empty for anything else.
    """
    match = _WITHOUT_SCHEME.fullmatch(text)
    if match is None:
        return ""
    # Servers in one's own network seldom have a certificate.
    scheme = "http" if match["number"] else "https"
    return f"{scheme}://{text}"


def with_api_path(address: str) -> str:
    """Return the base URL for `HOST:PORT` or a URL without a path: that ends with /v1."""
    url = address if "://" in address else f"http://{address}"
    if urlsplit(url).path.strip("/"):
        return url
    return f"{url.rstrip('/')}/v1"

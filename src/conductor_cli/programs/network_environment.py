"""The variables by which a program finds the network of this machine: certificates and proxies.

A program that fetches something first, as `uvx` and `npx` do, fails without them where they are
needed. None of them is a key; a proxy with a password is passed on only where it is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

CERTIFICATES: Final = (
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
)
PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


def network_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for certificates, and those for proxies without a password."""
    variables = dict[str, str]()
    for name in CERTIFICATES:
        if name in environ:
            variables[name] = environ[name]
    for name in (*PROXIES, *map(str.lower, PROXIES)):
        if name in environ and not _holds_login(environ[name]):
            variables[name] = environ[name]
    return variables


def describe_withheld(environ: Mapping[str, str], given: Mapping[str, str]) -> str:
    """Return which proxies a program does not know because of their passwords, for its failure.

    The text is empty where there are none; `given` are the variables that the program has.
    """
    withheld = []
    for name in (*PROXIES, *map(str.lower, PROXIES)):
        if name in environ and name not in given and _holds_login(environ[name]):
            withheld.append(name)
    if not withheld:
        return ""
    return (
        f"it was not given {', '.join(withheld)}, for the password in it: --set env={withheld[0]}"
    )


def _holds_login(address: str) -> bool:
    try:
        return "@" in urlsplit(address if "://" in address else f"http://{address}").netloc
    except ValueError:  # no address: nobody knows what it holds
        return True

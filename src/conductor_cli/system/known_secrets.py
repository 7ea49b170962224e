"""The keys that this process has read: no text that leaves it may hold one of them.

This is the only state that the whole process shares: a key can be read anywhere and can come back
from anywhere, so every reader adds to one object and every writer asks the same one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from conductor_cli.core.redact import Secrets

# Whoever reads a key adds it here before doing anything else with it
KNOWN_SECRETS: Final = Secrets()

_PASSWORD_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/@:]*:([^\s/@]+)@", re.IGNORECASE)
_HEADERS_VARIABLE: Final = re.compile(r"OTEL_EXPORTER_OTLP_(?:\w+_)?HEADERS")


def secrets_of_environment(environ: Mapping[str, str]) -> list[str]:
    """Return what is secret whoever reads it.

    Those are the passwords of URLs, as of proxies, and the headers for a collector of traces.
    Keys in other variables belong to a worker or a tool, which knows their names.
    """
    secrets: list[str] = []
    for name, text in environ.items():
        for password in _PASSWORD_URL.findall(text):
            secrets += [password, unquote(password)]
        if _HEADERS_VARIABLE.fullmatch(name):
            for header in text.split(","):
                value = unquote(header.partition("=")[2]).strip()
                secrets += [value, value.rpartition(" ")[2]]
    return list(filter(None, secrets))

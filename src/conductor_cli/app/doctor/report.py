"""The JSON report of `conductor doctor`, which can go into a bug report: the checks, the settings, no secrets.

So before anything is printed, this process learns every key in the environment and in the headers of workers. Keys in
the key store need no such step: one that was not read cannot be in a text, and one that was read is known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from conductor_cli.app.checks import Check
from conductor_cli.config import Settings
from conductor_cli.core.redact import REDACTED
from conductor_cli.core.serialization import dump
from conductor_cli.models.known_secrets import KNOWN_SECRETS

_SECRET_NAME: Final = re.compile(r"key(?!ring)|secret|token|passw|credential|auth", re.IGNORECASE)
"""In the name of a variable: its value may be a key."""

_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^\s\"'<>]+", re.IGNORECASE)


def make_report(settings: Settings, checks: Sequence[Check]) -> dict[str, Any]:
    """The results of the checks, every setting with its origin, and the workers, as JSON values without secrets."""
    _learn_secrets(settings)
    values = {name: {"value": dump(value), "from": settings.origins[name]} for name, value in settings.values.items()}
    workers = [
        {**dump(item.worker.public()), "enabled": item.enabled, "from": item.source} for item in settings.workers
    ]
    report = {
        "ok": not any(check.code for check in checks), "checks": [check.data() for check in checks],
        "settings": values, "workers": workers,
    }  # fmt: skip
    return {name: _strip(value) for name, value in KNOWN_SECRETS.redact_data(report).items()}


def _learn_secrets(settings: Settings) -> None:
    """Register the keys in variables, headers and URLs."""
    for name, value in settings.environ.items():
        if _SECRET_NAME.search(name):
            KNOWN_SECRETS.add(value.strip())
        for url in _URL.findall(value):
            with suppress(ValueError):  # not a URL after all
                KNOWN_SECRETS.add(unquote(urlsplit(url).password or ""))
    for item in settings.workers:
        headers = item.worker.options.get("headers")
        for value in headers.values() if isinstance(headers, Mapping) else ():
            KNOWN_SECRETS.add(str(value).strip(), *str(value).split())
        KNOWN_SECRETS.add(settings.environ.get(str(item.worker.options.get("key_env") or ""), "").strip())


def _strip(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """The value without user, password and query of its URLs."""
    if isinstance(value, dict):
        return {name: _strip(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_strip(item) for item in value]
    return _URL.sub(_strip_url, value) if isinstance(value, str) else value


def _strip_url(found: re.Match[str]) -> str:
    try:
        parts = urlsplit(found[0])
    except ValueError:
        return REDACTED
    query = REDACTED if parts.query else ""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query=query).geturl()

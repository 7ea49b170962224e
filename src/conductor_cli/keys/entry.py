"""A kept key: of which provider, for which address, since when; and what can be a key. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import urlsplit

from conductor_cli.core.errors import UsageError
from conductor_cli.models.presets import PRESETS, is_loopback

LONGEST: Final = 1024
"""The most characters of a key: with what is kept beside it, it fits the 1280 that Windows keeps in one item."""

PROVIDERS: Final = tuple(name for name in PRESETS if name != "litellm")
"""The kinds of worker that a key can be kept for. litellm finds the address itself, so no key could be bound to one."""

Where = Literal["keyring", "file"]

_WORD: Final = re.compile(r"[A-Za-z][A-Za-z-]{0,19}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEntry:
    """What is known of a kept key without reading it. `since` is ISO 8601, UTC; `backend` the keyring's name."""

    provider: str
    base_url: str
    since: str
    where: Where = "keyring"
    backend: str = ""
    key: str = field(default="", repr=False)
    """The key itself, only where it is kept in the list."""


def known_provider(name: str) -> str:
    """`name`, if a key can be kept for it. Raises `UsageError`, which does not repeat what may be a key."""
    if name in PROVIDERS:
        return name
    if name == "litellm":
        raise UsageError(
            "no key is kept for litellm, which chooses the address itself",
            hint="set the provider's own variable, for example COHERE_API_KEY",
        )
    import difflib  # only for what is wrong

    near = difflib.get_close_matches(name.lower(), PROVIDERS, n=1)
    said = f"{name!r} is no provider" if near or _WORD.fullmatch(name) else "that is no provider"
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(PROVIDERS)}"
    raise UsageError(said, hint=hint)


def checked_key(text: str) -> str:
    """The key in `text`, without the white space around it. Raises `UsageError`, which does not hold the key."""
    key = text.strip()
    if not key:
        raise UsageError("no key was given", hint='printf %s "$KEY" | conductor keys set PROVIDER')
    if len(key) > LONGEST:
        raise UsageError(f"this is no key: it has {len(key)} characters, and no key has over {LONGEST}")
    if len(key.splitlines()) > 1:
        raise UsageError("this is no key: it has more than one line", hint="give the key alone")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError("this is no key: it has characters that no key has", hint="copy the key alone, and as text")
    return key


def address(provider: str, base_url: str | None) -> str:
    """The address that a key is for: the one given, else the provider's own. Raises `UsageError`."""
    url = (base_url or PRESETS[provider].base_url).rstrip("/")
    if not url:
        raise UsageError(f"{provider} has no address of its own", hint=f"conductor keys set {provider} --base-url URL")
    try:
        parts = urlsplit(url)
        fit = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        fit = False
        parts = urlsplit("")
    if not fit or parts.query or parts.fragment or not url.isprintable() or " " in url:
        raise UsageError("--base-url is no address", hint="for example: --base-url https://llm.example.com/v1")
    if "@" in parts.netloc:
        raise UsageError("--base-url holds a user or a password", hint="give the address alone")
    return url


def is_open(url: str) -> bool:
    """Whether a key that is sent to this address can be read on its way: plain http to another machine."""
    return urlsplit(url).scheme == "http" and not is_loopback(url)


def same_address(one: str, other: str) -> bool:
    """Whether two addresses are one: case of scheme and host aside, and a slash at the end."""
    try:
        return _parts(one) == _parts(other)
    except ValueError:  # one of them is no address
        return False


def _parts(url: str) -> tuple[str, ...]:
    parts = urlsplit(url.rstrip("/"))
    return parts.scheme.lower(), parts.netloc.lower(), *parts[2:]

"""A stored key: its provider, the address it is for, its age; and what can be a key. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import urlsplit

from conductor_cli.core.errors import UsageError
from conductor_cli.core.suggest import suggest
from conductor_cli.models.presets import PRESETS

LONGEST_KEY: Final = 1024
"""The most characters of a key: with what is stored beside it, it fits the 1280 that Windows keeps in one item."""

PROVIDERS: Final = tuple(name for name in PRESETS if name != "litellm")
"""The kinds of worker that a key can be stored for. litellm is none: it chooses the address itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEntry:
    """What is known of a stored key without reading it. `since` is when it was stored: ISO 8601, UTC."""

    provider: str
    base_url: str
    since: str
    where: Literal["keyring", "file"] = "keyring"
    key: str = field(default="", repr=False)
    """The key itself, only when it is stored in the list."""


def known_provider(name: str) -> str:
    """`name`, if a key can be stored for it. Raises `UsageError`, which does not repeat it: it may be a key."""
    if name in PROVIDERS:
        return name
    provider, equals, _ = name.partition("=")
    of_variable = {variable: each for each in PROVIDERS for variable in PRESETS[each].keys}
    meant = provider if provider in PROVIDERS else of_variable.get(provider.upper(), "")
    if equals:
        hint = "your shell may have saved the line in its history: if it held a key, revoke it\n"
        hint += f"the key is asked for, or read from stdin: conductor keys set {meant or 'PROVIDER'}"
        raise UsageError("a key is not given on the command line", hint=hint)
    hint = f"did you mean {meant}?" if meant else suggest(name, PROVIDERS)
    raise UsageError("that is not a provider that a key can be stored for", hint=hint)


def checked_key(text: str) -> str:
    """The key in `text`, without the white space around it. Raises `UsageError`, which does not hold the key."""
    key = text.strip()
    if not key:
        raise UsageError("no key was given", hint='printf %s "$KEY" | conductor keys set PROVIDER')
    if len(key) > LONGEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
        message = f"this is not a key: it must be one line of at most {LONGEST_KEY} plain characters without spaces"
        raise UsageError(message, hint="copy the key alone, as plain text")
    return key


def address(provider: str, base_url: str | None) -> str:
    """The address that a key is for: the one given, else the provider's own. Raises `UsageError`."""
    url = (base_url or PRESETS[provider].base_url).rstrip("/")
    if not url:
        hint = f"conductor keys set {provider} --base-url URL"
        raise UsageError(f"{provider} has no fixed address", hint=hint)
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        # Everything else would be shown in lists, and a password among it.
        valid = valid and not (parts.query or parts.fragment or "@" in parts.netloc)
    except ValueError:
        valid = False
    if not valid or not url.isprintable() or " " in url:
        hint = "for example: --base-url https://llm.example.com/v1"
        raise UsageError("--base-url is not a valid URL, without a user name or password", hint=hint)
    return url


def same_address(one: str, other: str) -> bool:
    """Whether two addresses are the same, apart from the case of scheme and host and a slash at the end."""
    try:
        first, second = (urlsplit(url.rstrip("/")) for url in (one, other))
    except ValueError:  # one of them is not a URL
        return False
    return (first.scheme.lower(), first.netloc.lower(), *first[2:]) == (
        second.scheme.lower(), second.netloc.lower(), *second[2:],
    )  # fmt: skip

"""Storing, removing and reading keys.

A list of them in a file, and the keys themselves in the system's keyring.

The list is `keys.json` in the data directory, readable by its owner only. A key that its user wants
in a file stands in it too. An item of the keyring holds `{"key": …, "base_url": …, "since": …}`.
Only the address in the item decides where the key may be sent: the list is a plain file, and
changing it must not send a key elsewhere.

The keyring is asked for a bounded time by a child process: the service behind it may be locked,
hanging or absent. A command that needs no stored key asks no keyring, since the list says what it
holds.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from conductor_cli.core.errors import ConfigError, KeyMissing, UsageError, suggest
from conductor_cli.core.serialization import dump, load
from conductor_cli.core.terminal_text import one_line
from conductor_cli.models.addresses import http_url, is_quoted
from conductor_cli.models.presets import PRESETS
from conductor_cli.programs.bounded_child import ChildLimits, ChildStopped, run_child
from conductor_cli.system import disk
from conductor_cli.system.known_secrets import KNOWN_SECRETS

MAX_KEY: Final = 1024
"""The most characters of a key: with what is stored beside it, it fits the 1280 that Windows keeps
in one item.
"""

MAX_SENT_KEY: Final = 8192
"""The most characters of a token that servers take, since most limit a header to so many."""

POSTGRESQL: Final = "postgresql"
"""Stands for the database that the setting `state` names, whose password is stored like a key."""

SERVICES: Final[Mapping[str, str]] = {
    "github": "https://api.github.com",
    "brave": "https://api.search.brave.com",
    "tavily": "https://api.tavily.com",
}
"""The addresses of services that are no models, and have a key like these."""

PROVIDERS: Final = (
    *(name for name in PRESETS if name != "litellm"),
    *SERVICES,
    POSTGRESQL,
)
"""What a key can be stored for: kinds of worker, services, and the database. litellm is none: it
chooses the address itself.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEntry:
    """What is known of a stored key without reading it.

    `since` is when it was stored: ISO 8601, UTC.
    """

    provider: str
    base_url: str
    since: str
    where: Literal["keyring", "file"] = "keyring"
    key: str = field(default="", repr=False)
    """The key itself, only when it is stored in the list."""


def known_provider(name: str) -> str:
    """`name`, if a key can be stored for it.

    Raises `UsageError`, which does not repeat it: it may be a key.
    """
    if name in PROVIDERS:
        return name
    provider, equals, _ = name.partition("=")
    meant = ""
    if provider in PROVIDERS:
        meant = provider
    else:
        for candidate in PROVIDERS:
            if candidate in PRESETS and provider.upper() in PRESETS[candidate].keys:
                meant = candidate
    if equals:
        hint = "your shell may have saved the line in its history: if it held a key, revoke it\n"
        hint += (
            f"the key is asked for, or read from stdin: conductor keys set {meant or 'PROVIDER'}"
        )
        raise UsageError("a key is not given on the command line", hint=hint)
    hint = suggest(name, PROVIDERS)
    if meant:
        hint = f"did you mean {meant}?"
    raise UsageError("that is not a provider that a key can be stored for", hint=hint)


def checked_key(text: str) -> str:
    """Return the key in `text`, without the white space around it.

    Raises `UsageError`, which does not hold the key.
    """
    key = text.strip()
    if not key:
        raise UsageError("no key was given", hint='printf %s "$KEY" | conductor keys set PROVIDER')
    if is_quoted(key):
        raise UsageError(
            "this is not a key: it is in quotes",
            hint="leave the quotes out; docker run --env-file takes them for a part of the value",
        )
    is_plain = key.isascii() and key.isprintable() and " " not in key
    if is_plain and MAX_KEY < len(key) <= MAX_SENT_KEY:
        raise UsageError(
            f"the key has {len(key):,} characters; at most {MAX_KEY:,} can be stored",
            hint="have it read from a variable: conductor workers set NAME key_env=VARIABLE",
        )
    if len(key) > MAX_KEY or not is_plain:
        message = (
            f"this is not a key: it must be one line of at most {MAX_KEY} plain characters "
            "without spaces"
        )
        raise UsageError(message, hint="copy the key alone, as plain text")
    return key


def address(provider: str, base_url: str | None) -> str:
    """Return the address that a key is for: the one given, else the provider's own.

    Raises `UsageError`.
    """
    own_url = SERVICES.get(provider) or PRESETS[provider].base_url
    url = (base_url or own_url).rstrip("/")
    if not url:
        hint = f"conductor keys set {provider} --base-url URL"
        raise UsageError(f"{provider} has no fixed address", hint=hint)
    parts = http_url(url)
    # Everything else would be shown in lists, and a password among it.
    unfit = parts is None or parts.query or parts.fragment or "@" in parts.netloc
    if unfit or not url.isprintable() or " " in url:
        hint = "for example: --base-url https://llm.example.com/v1"
        raise UsageError(
            "--base-url is not a valid URL, without a user name or password", hint=hint
        )
    return url


def same_address(address: str, other: str) -> bool:
    """Return whether two addresses are the same.

    The case of scheme and host, and a slash at the end, do not matter.
    """
    try:
        first, second = (urlsplit(url.rstrip("/")) for url in (address, other))
    except ValueError:  # one of them is not a URL
        return False
    return first._replace(netloc=first.netloc.lower()) == second._replace(
        netloc=second.netloc.lower()
    )


SECONDS: Final = 5.0
"""How long a keyring may take for all that one command asks of it. Starting a keyring's service
takes under one.
"""

VARIABLE: Final = "CONDUCTOR_LLM_KEYRING_SECONDS"
"""The environment variable that allows more, for a keyring that asks a person first."""

BACKEND_VARIABLE: Final = "PYTHON_KEYRING_BACKEND"
"""Names the keyring that the keyring library uses, before all that is installed or configured."""

NO_KEYRINGS: Final = ("keyring.backends.null.Keyring", "keyring.backends.fail.Keyring")
"""What that variable may name to have none."""

_HINT: Final = (
    f"unlock it (set {VARIABLE}=60 to wait longer for it), or install one: GNOME Keyring, KWallet, "
    "KeePassXC\n"
    "set the provider's variable, such as OPENAI_API_KEY, or store the key in a file: "
    "--insecure-storage"
)


class KeyringError(KeyMissing):
    """The keyring did not do what it was asked.

    `absent`: there is none that could hold a key of ours.
    """

    def __init__(self, message: str, *, absent: bool = False) -> None:
        super().__init__(message, hint=_HINT)
        self.absent = absent


def ask_keyring(
    orders: Sequence[tuple[str, ...]], environ: Mapping[str, str]
) -> tuple[str, list[Any]]:
    """Have a process of its own ask the keyring; `keyring_process` says what the orders are.

    Returns the keyring's name, and one result for each order. Raises `KeyringError` after at most
    `keyring_timeout(environ)`.
    """
    seconds = keyring_timeout(environ)
    variables = {**os.environ, **environ}
    if variables.get(BACKEND_VARIABLE) in NO_KEYRINGS:
        # The library would obey this before it looks for any: no process is needed for that.
        raise KeyringError("no working keyring found", absent=True)
    try:
        # It may have to ask a person at the terminal, so it stays in our session.
        script = Path(__file__).with_name("keyring_process.py")
        job = json.dumps(orders).encode()
        (answer,) = run_child(script, job, ChildLimits(seconds), environ=variables, session=False)
    except ChildStopped as stopped:
        messages = {
            "start": f"the keyring cannot be asked: {stopped}",
            "time": f"the keyring did not answer within {seconds:g} s",
            "broken": "the keyring refused: it ended without an answer",
        }
        raise KeyringError(messages[stopped.why], absent=stopped.why == "start") from None
    if "error" in answer:
        # A keyring's own words may hold what it was given, and anything else.
        message = KNOWN_SECRETS.redact(one_line(str(answer["error"]))).rstrip(".")[:240]
        raise KeyringError(message, absent=bool(answer["absent"]))
    return str(answer["backend"]), answer["results"]


def keyring_timeout(environ: Mapping[str, str]) -> float:
    """Return how long the keyring may take. Raises `ConfigError`."""
    text = environ.get(VARIABLE, "")
    try:
        seconds = float(text or SECONDS)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 600:
        message = f"{VARIABLE} is {text!r:.40}; expected a number of seconds, at most 600"
        raise ConfigError(message, hint="change or unset the variable")
    return seconds


def probe_keyring(environ: Mapping[str, str]) -> str:
    """Write an item that is no key, read it, remove it, and check that it is gone.

    Returns the keyring's name.

    Raises `KeyringError` and `ConfigError`, after at most twice the time that a keyring may take.
    """
    # Two probes at the same time must not read each other's item.
    name = f"doctor-probe-{secrets.token_hex(4)}"
    text = secrets.token_hex(16)
    try:
        backend, results = ask_keyring([("set", name, text), ("rm", name), ("get", name)], environ)
    except KeyringError as fault:
        if not fault.absent:
            with suppress(KeyringError):
                ask_keyring([("rm", name)], environ)
        raise
    if results[-1] is not None:
        raise KeyringError(f"the keyring ({backend}) does not remove items: {name} is left in it")
    return backend


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKey:
    """A stored key that was read; `fault` says why one could not be."""

    entry: KeyEntry
    key: str = field(default="", repr=False)
    fault: KeyMissing | None = None


class KeyStore:
    """The stored keys of one user.

    The list is read when it is first needed, the keyring only for a key in it.
    """

    def __init__(self, directory: Path, environ: Mapping[str, str]) -> None:
        self.path = directory / "keys.json"
        self.environ = environ
        self._entries: dict[str, KeyEntry] | None = None
        self._keys: dict[str, StoredKey] | None = None

    def entries(self) -> dict[str, KeyEntry]:
        """Return what is stored, by provider, according to the list. Raises `ConfigError`."""
        if self._entries is None:
            self._entries = _read_list(self.path)
        return self._entries

    def entry(self, provider: str, base_url: str) -> KeyEntry | None:
        """Return the entry of a provider's key, if there is one for this address.

        Raises `ConfigError`.
        """
        entry = self.entries().get(provider)
        if entry is not None and same_address(entry.base_url, base_url):
            return entry
        return None

    def __call__(self, provider: str, base_url: str) -> str | None:
        """Return the key stored for a provider at this address, or None.

        Raises `KeyMissing` and `ConfigError`.
        """
        if self.entry(provider, base_url) is None:
            return None
        stored = self.read()[provider]
        if stored.fault is not None:
            raise stored.fault
        # The address in the keyring's item counts: the list, a plain file, may say anything.
        if same_address(stored.entry.base_url, base_url):
            return stored.key
        return None

    def read(self) -> dict[str, StoredKey]:
        """Return every stored key by its provider.

        All of them are read at once, because asking a keyring is slow.

        A key that cannot be read is no error here: its `fault` says why. Raises `ConfigError` for
        the list.
        """
        if self._keys is None:
            keys = {}
            for name, entry in self.entries().items():
                keys[name] = StoredKey(entry=entry, key=entry.key)
            in_keyring = [name for name, stored in keys.items() if stored.entry.where == "keyring"]
            try:
                texts: Sequence[object] = []
                if in_keyring:
                    orders = [("get", name) for name in in_keyring]
                    texts = ask_keyring(orders, self.environ)[1]
            except KeyringError as fault:
                keys |= {name: replace(keys[name], fault=fault) for name in in_keyring}
            else:
                for name, text in zip(in_keyring, texts, strict=True):
                    keys[name] = _parse_item(keys[name].entry, text)
            self._keys = keys
        return self._keys

    def set(self, provider: str, base_url: str, key: str, *, plaintext: bool = False) -> KeyEntry:
        """Store a key in the keyring, or as `plaintext` in the list.

        Raises `KeyMissing` or `ConfigError`.
        """
        KNOWN_SECRETS.add(key)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        entry = KeyEntry(provider=provider, base_url=base_url, since=since)
        with self._edit() as entries:
            before = entries.get(provider)
            if plaintext:
                entry = replace(entry, where="file", key=key)
                if before is not None and before.where == "keyring":
                    # A broken keyring may be why the user wants a file
                    with suppress(KeyringError):
                        ask_keyring([("rm", provider)], self.environ)
            else:
                item = json.dumps({"key": key, "base_url": base_url, "since": since})
                ask_keyring([("set", provider, item)], self.environ)
            entries[provider] = entry
        return entry

    def check_keyring(self) -> None:
        """Raise `KeyringError` where there is no keyring that answers.

        Nothing is stored, and no key is read.
        """
        ask_keyring([("get", "no-such-provider")], self.environ)

    def remove(self, provider: str) -> tuple[KeyEntry, KeyringError | None]:
        """Forget a stored key; the fault says that there is no keyring any more to remove it from.

        Raises `UsageError` when no key is stored, and `KeyringError` when a keyring that is there
        does not remove it: then the key stays in the list.
        """
        absent = None
        with self._edit() as entries:
            entry = entries.pop(provider, None)
            if entry is None:
                hint = (
                    f"stored: {', '.join(entries) or 'none'}; a variable has to be unset in "
                    "your shell"
                )
                raise UsageError(f"no key of {provider} is stored", hint=hint)
            try:
                if entry.where == "keyring":
                    ask_keyring([("rm", provider)], self.environ)
            except KeyringError as fault:
                if not fault.absent:
                    raise
                absent = fault
        return entry, absent

    @contextmanager
    def _edit(self) -> Iterator[dict[str, KeyEntry]]:
        self._entries = None
        self._keys = None
        # The keyring is changed under the lock too, so that the list always says what it holds.
        with disk.editing(self.path):
            entries = _read_list(self.path)
            yield entries
            text = json.dumps(
                {"keys": {name: dump(entry) for name, entry in entries.items()}}, indent=1
            )
            disk.write_atomically(self.path, text, mode=0o600)


def _read_list(path: Path) -> dict[str, KeyEntry]:
    """Return every stored key by its provider.

    Raises `ConfigError` for a list that is damaged or that others can read.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            listed = json.loads(file.read())["keys"]
        entries = {}
        for name, item in listed.items():
            entries[str(name)] = load(KeyEntry, {**item, "provider": str(name)})
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}", hint="fix its permissions"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        hint = f"remove {path}, then store the keys again: conductor keys set PROVIDER"
        raise ConfigError(f"{path} is damaged", hint=hint) from None
    keys = [entry.key for entry in entries.values() if entry.key]
    if keys and os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        message = f"{path} holds keys, and other users can read it"
        raise ConfigError(message, hint=f"chmod 600 {path}; then replace the keys by new ones")
    KNOWN_SECRETS.add(*keys)
    return entries


def _parse_item(entry: KeyEntry, text: object) -> StoredKey:
    """Return what an item of the keyring holds. Another program may have removed or changed it."""
    with suppress(ValueError, KeyError, TypeError):
        item = json.loads(str(text))
        key, base_url, since = (str(item[name]) for name in ("key", "base_url", "since"))
        KNOWN_SECRETS.add(key)
        return StoredKey(entry=replace(entry, base_url=base_url, since=since), key=key)
    message = f"the keyring does not hold the key of {entry.provider} any more"
    hint = f"conductor keys rm {entry.provider}"
    if entry.provider in PROVIDERS:
        hint = f"conductor keys set {entry.provider}"
    return StoredKey(entry=entry, fault=KeyMissing(message, hint=hint))

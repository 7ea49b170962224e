"""The keys of this server's clients: made here, kept as hashes, each with limits of its own.

A key is 256 random bits, so its SHA-256 cannot be searched for; a slow hash such as scrypt, which
is made for passwords, would only give strangers a way to keep the processor busy. The key itself is
shown once and kept nowhere.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.errors import ConfigError, UsageError
from conductor_cli.core.mappings import by_name, without_keys
from conductor_cli.core.serialization import dump, load
from conductor_cli.system import disk
from conductor_cli.system.known_secrets import KNOWN_SECRETS

FILE: Final = "serve-keys.json"

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientKey:
    """What is known of a key. `hash` is the SHA-256 of it, as hexadecimal digits.

    The limits are in US dollars, for a day and for one request. They and the pool, where they are
    set, can only narrow what the settings allow.
    """

    name: str
    hash: str
    since: str = ""
    max_cost_day: Decimal | None = None
    max_cost: Decimal | None = None
    pool: str = ""

    @property
    def id(self) -> str:
        """What tells this key from any other, also from one of the same name."""
        return self.hash[:12]

    def to_json(self) -> dict[str, Any]:
        """Return what may be shown."""
        return without_keys(dump(self), ("hash",))


def make_key(name: str) -> tuple[ClientKey, str]:
    """Return a new key without limits, and its text."""
    # Tools that look for secrets in files know the beginning
    text = f"ck-{secrets.token_urlsafe(32)}"
    return ClientKey(
        name=name, hash=_hash(text), since=datetime.now(UTC).isoformat(timespec="seconds")
    ), text


def find_key(keys: Sequence[ClientKey], text: str) -> ClientKey | None:
    """Return the key that a client sent, or None. The time does not depend on which one it is."""
    sent_key = None
    sent_hash = _hash(text)
    for key in keys:
        if hmac.compare_digest(key.hash, sent_hash):
            sent_key = key
    if sent_key is not None:
        KNOWN_SECRETS.add(text)  # a worker that repeats it must not bring it into a trace
    return sent_key


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()


class ClientKeys:
    """The file of keys.

    A server looks at it for each request, so that a key which was removed is refused at once.
    """

    def __init__(self, directory: Path) -> None:
        """`directory` is the user's configuration directory."""
        self.path = directory / FILE
        self._name = str(self.path)
        self._read: tuple[object, tuple[ClientKey, ...]] = None, ()

    def all(self) -> tuple[ClientKey, ...]:
        """Return every key, by name. Raises `ConfigError`."""
        try:
            stat = os.stat(self._name)  # noqa: PTH116 - several times as fast as Path.stat
            state = stat.st_mtime_ns, stat.st_size, stat.st_ino
            if state != self._read[0]:
                rows: Sequence[Mapping[str, Any]] = json.loads(self.path.read_bytes())["keys"]
                self._read = state, tuple(load(ClientKey, row) for row in rows)
        except FileNotFoundError:
            self._read = None, ()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = getattr(error, "strerror", None) or "it is not a list of keys"
            hint = "fix its permissions, or remove it and add the keys again"
            raise ConfigError(f"{self.path} cannot be read: {reason}", hint=hint) from None
        return self._read[1]

    def add(self, key: ClientKey) -> None:
        """Store a key.

        Raises `UsageError` where its name is taken or cannot be used, and `ConfigError`.
        """
        if not _NAME.fullmatch(key.name):
            hint = "use up to 40 letters, digits, dots, dashes and underscores"
            raise UsageError(f"{key.name[:60]!r} cannot be the name of a key", hint=hint)
        with self._edit() as keys:
            if key.name in keys:
                hint = f"choose another name, or first: conductor serve keys rm {key.name}"
                raise UsageError(f"there is a key {key.name} already", hint=hint)
            keys[key.name] = key

    def remove(self, name: str) -> None:
        """Forget a key. Raises `UsageError` where there is none of this name, and `ConfigError`."""
        with self._edit() as keys:
            if name not in keys:
                raise UsageError(
                    f"there is no key {name[:60]!r}", hint=f"there are: {', '.join(keys) or 'none'}"
                )
            del keys[name]

    @contextmanager
    def _edit(self) -> Iterator[dict[str, ClientKey]]:
        try:
            disk.make_private_directory(self.path.parent)
            with disk.exclusive_lock(self.path.with_name(f".{FILE}.lock")):
                keys = by_name(self.all())
                yield keys
                text = json.dumps({"keys": [dump(keys[name]) for name in sorted(keys)]}, indent=1)
                disk.write_atomically(self.path, text + "\n", mode=0o600)
        except OSError as error:
            hint = "check the disk and the file's permissions"
            raise ConfigError(
                f"{self.path} cannot be written: {error.strerror}", hint=hint
            ) from None

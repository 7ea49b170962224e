"""Whether the system's keyring keeps what it is given: a probe is written, read back and taken out again."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from conductor_cli.keys.keyring import ABSENT, KeyringError, ask

NAME: Final = "doctor-probe"
"""What the item is called; a number of its own stands behind it, so that two probes do not meet."""

_VARIABLE: Final = "OPENAI_API_KEY and its likes"
_HINT: Final = f"set the provider's variable: {_VARIABLE}\nor store a key in a file: --insecure-storage"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyringProbe:
    """A keyring that did all that it was asked: its name, and the seconds that took."""

    backend: str
    seconds: float


def probe_keyring(environ: Mapping[str, str]) -> KeyringProbe:
    """Write an item that is no key, read it, remove it, and look that it is gone. Raises `KeyringFault`, `ConfigError`.

    It takes no longer than the keyring may take for a command, twice where something fails in the middle.
    """
    name, text = f"{NAME}-{secrets.token_hex(4)}", secrets.token_hex(16)
    began = time.monotonic()
    try:
        answer = ask([("set", name, text), ("get", name), ("rm", name), ("has", name)], environ, _VARIABLE)
    except KeyringError as fault:
        if fault.state not in (*ABSENT, "no answer"):
            with suppress(KeyringError):
                ask([("rm", name)], environ, _VARIABLE)
        raise
    kept, read, _, left = answer.results
    if not kept or read != text:
        said = f"the keyring ({answer.backend}) takes what it is given and does not give it back"
        raise KeyringError(said, hint=_HINT, state="refused")
    if left:
        said = f"the keyring ({answer.backend}) keeps what is removed: an item {name} is left in it"
        raise KeyringError(said, hint="remove it by hand", state="refused")
    return KeyringProbe(backend=answer.backend, seconds=time.monotonic() - began)

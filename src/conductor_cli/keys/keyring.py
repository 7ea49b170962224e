"""Asking the system's keyring, for a bounded time: the service behind it may be locked, hanging or absent."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from conductor_cli.core.errors import ConfigError, KeyMissing
from conductor_cli.core.terminal_text import one_line
from conductor_cli.models.known_secrets import KNOWN_SECRETS

SECONDS: Final = 5.0
"""How long a keyring may take for all that one command asks of it. Starting a keyring's service takes under one."""

VARIABLE: Final = "CONDUCTOR_LLM_KEYRING_SECONDS"
"""The environment variable that allows more, for a keyring that asks a person first."""

_HINT: Final = (
    f"unlock it ({VARIABLE}=60 gives you time), or install one: GNOME Keyring, KWallet, KeePassXC\n"
    "or set the provider's variable, such as OPENAI_API_KEY, or store the key in a file: keys set --insecure-storage"
)
_CHILD: Final = (sys.executable, "-P", "-m", "conductor_cli.keys.keyring_process")


class KeyringError(KeyMissing):
    """The keyring did not do what it was asked. `absent`: there is none that could hold a key of ours."""

    def __init__(self, message: str, *, absent: bool = False) -> None:
        super().__init__(message, hint=_HINT)
        self.absent = absent


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyringAnswer:
    """What a keyring answered: its name, and one result for each order."""

    backend: str
    results: tuple[Any, ...]


def ask_keyring(orders: Sequence[tuple[str, ...]], environ: Mapping[str, str]) -> KeyringAnswer:
    """Have a process of its own ask the keyring; `keyring_process` says what the orders are.

    Raises `KeyringError` after at most `keyring_timeout(environ)`.
    """
    seconds = keyring_timeout(environ)
    try:
        answer = json.loads(_run_child(json.dumps([list(order) for order in orders]) + "\n", environ, seconds))
    except subprocess.TimeoutExpired:
        raise KeyringError(f"the keyring did not answer within {seconds:g} s") from None
    except OSError as error:
        raise KeyringError(f"the keyring cannot be asked: {error.strerror}", absent=True) from None
    except ValueError:
        raise KeyringError("the keyring refused: it ended without an answer") from None
    if "error" in answer:
        # A keyring's own words may hold what it was given, and anything else.
        message = KNOWN_SECRETS.redact(one_line(str(answer["error"]))).rstrip(".")[:240]
        raise KeyringError(message, absent=bool(answer["absent"]))
    return KeyringAnswer(backend=str(answer["backend"]), results=tuple(answer["results"]))


def keyring_timeout(environ: Mapping[str, str]) -> float:
    """How long the keyring may take. Raises `ConfigError`."""
    text = environ.get(VARIABLE, "")
    try:
        seconds = float(text or SECONDS)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 600:
        message = f"{VARIABLE} is {text!r:.40}; expected a number of seconds, at most 600"
        raise ConfigError(message, hint="change or unset the variable")
    return seconds


def _run_child(request: str, environ: Mapping[str, str], seconds: float) -> str:
    """The child's whole answer. If it takes too long it is killed."""
    child = subprocess.Popen(  # noqa: S603 - ourselves
        _CHILD, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf-8",
        env={**os.environ, **environ},
    )  # fmt: skip
    try:
        return child.communicate(request, timeout=seconds)[0]
    finally:
        # A helper that the keyring started may hold the pipes open: close our ends instead of reading to the end.
        child.kill()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        with suppress(subprocess.TimeoutExpired):
            child.wait(1)


def probe_keyring(environ: Mapping[str, str]) -> str:
    """Write an item that is no key, read it, remove it, and check that it is gone; returns the keyring's name.

    Raises `KeyringError` and `ConfigError`, after at most twice the time that a keyring may take.
    """
    # Two probes at the same time must not read each other's item.
    name, text = f"doctor-probe-{secrets.token_hex(4)}", secrets.token_hex(16)
    try:
        answer = ask_keyring([("set", name, text), ("rm", name), ("get", name)], environ)
    except KeyringError as fault:
        if not fault.absent:
            with suppress(KeyringError):
                ask_keyring([("rm", name)], environ)
        raise
    if answer.results[-1] is not None:
        raise KeyringError(f"the keyring ({answer.backend}) does not remove items: {name} is left in it")
    return answer.backend

"""Asking the system's keyring, for a bounded time: the service behind it may be locked, hanging or absent."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from conductor_cli.core.errors import ConfigError, KeyMissing
from conductor_cli.core.sanitize import one_line
from conductor_cli.models.known_secrets import KNOWN_SECRETS

SECONDS: Final = 5.0
"""How long a keyring may take for all that one command asks of it. Starting a keyring's service takes under one."""

VARIABLE: Final = "CONDUCTOR_LLM_KEYRING_SECONDS"
"""The environment variable that allows more, for a keyring that asks a person first."""

ABSENT: Final = ("none", "not encrypted")
"""The states in which there is no keyring that could hold a key of ours."""

_ALTERNATIVES: Final = (
    "set the provider's variable ({variable}), or store the key in a file: --insecure-storage\n"
    "or install a keyring: GNOME Keyring, KWallet or KeePassXC; without a desktop: dbus-run-session, "
    "gnome-keyring-daemon"
)
_PROBE_ITEM: Final = "doctor-probe"
_CHILD: Final = (sys.executable, "-P", "-m", "conductor_cli.keys.keyring_process")


class KeyringError(KeyMissing):
    """The keyring did not do what it was asked. `state` says why in one or two words, for a table."""

    def __init__(self, message: str, *, hint: str, state: str) -> None:
        super().__init__(message, hint=hint)
        self.state = state


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyringAnswer:
    """What a keyring answered: its name, one result for each order, and how long that took."""

    backend: str
    results: tuple[Any, ...]
    seconds: float


def ask_keyring(orders: Sequence[tuple[str, ...]], environ: Mapping[str, str], variable: str) -> KeyringAnswer:
    """Have a process of its own ask the keyring; `keyring_process` says what the orders are.

    `variable` is what the hint names as another way. Raises `KeyringError` after at most `keyring_timeout(environ)`.
    """
    seconds = keyring_timeout(environ)
    alternatives = _ALTERNATIVES.format(variable=variable)
    began = time.monotonic()
    try:
        text = _run_child(json.dumps([list(order) for order in orders]) + "\n", environ, seconds)
    except subprocess.TimeoutExpired:
        raise KeyringError(
            f"the keyring did not answer within {seconds:g} s",
            hint=f"unlock or restart it, or give it more time: {VARIABLE}=60\nor set the provider's variable: "
            f"{variable}",
            state="no answer",
        ) from None
    except OSError as error:
        message = f"the keyring cannot be asked: {error.strerror}"
        raise KeyringError(message, hint=alternatives, state="none") from None
    try:
        answer = json.loads(text)
        results = tuple(answer["results"])
        return KeyringAnswer(backend=str(answer["backend"]), results=results, seconds=time.monotonic() - began)
    except ValueError:
        answer = {"fault": "refused", "message": "it ended without an answer"}
    except KeyError:
        pass
    raise _error_of(answer, alternatives)


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


def _error_of(answer: Mapping[str, Any], alternatives: str) -> KeyringError:
    name = f" ({answer['backend']})" if answer.get("backend") else ""
    state = str(answer["fault"])
    if state == "none":
        return KeyringError("no working keyring found", hint=alternatives, state=state)
    if state == "not encrypted":
        return KeyringError(f"the keyring{name} is a file that is not encrypted", hint=alternatives, state=state)
    if state == "locked":
        hint = (
            f"unlock it; if it asks you first, give it more time: {VARIABLE}=60\n{alternatives.partition(chr(10))[0]}"
        )
        return KeyringError(f"the keyring{name} is locked", hint=hint, state=state)
    message = KNOWN_SECRETS.redact(one_line(str(answer.get("message", "")))).rstrip(".")[:200]
    return KeyringError(f"the keyring{name} refused: {message}", hint=alternatives, state="refused")


def probe_keyring(environ: Mapping[str, str]) -> KeyringAnswer:
    """Write an item that is no key, read it, remove it, and check that it is gone.

    Raises `KeyringError` and `ConfigError`, after at most twice the time that a keyring may take.
    """
    variable = "for example OPENAI_API_KEY"
    # Two probes at the same time must not read each other's item.
    name, text = f"{_PROBE_ITEM}-{secrets.token_hex(4)}", secrets.token_hex(16)
    try:
        answer = ask_keyring([("set", name, text), ("get", name), ("rm", name), ("has", name)], environ, variable)
    except KeyringError as fault:
        if fault.state not in (*ABSENT, "no answer"):
            with suppress(KeyringError):
                ask_keyring([("rm", name)], environ, variable)
        raise
    stored, read, _, left = answer.results
    if not stored or read != text:
        message = f"the keyring ({answer.backend}) accepts an item and does not give it back"
        raise KeyringError(message, hint=_ALTERNATIVES.format(variable=variable), state="refused")
    if left:
        message = f"the keyring ({answer.backend}) does not remove items: {name} is left in it"
        raise KeyringError(message, hint="remove it by hand", state="refused")
    return answer

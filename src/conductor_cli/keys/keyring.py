"""Asking the system's keyring, for a bounded time: a service behind it may be locked, wedged or not there at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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
"""The states in which there is no keyring here that could hold a key of ours."""

WAYS_OUT: Final = (
    "set the provider's variable ({variable}), or store the key in a file: --insecure-storage\n"
    "or get a keyring: GNOME Keyring, KWallet or KeePassXC; without a desktop: dbus-run-session, gnome-keyring-daemon"
)

_CHILD: Final = (sys.executable, "-P", "-m", "conductor_cli.keys.child")


class KeyringError(KeyMissing):
    """The keyring does not do what it is asked. `state` is that in one or two words, for a table."""

    def __init__(self, message: str, *, hint: str, state: str) -> None:
        super().__init__(message, hint=hint)
        self.state = state


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a keyring answered: its name, and one result for each order."""

    backend: str
    results: tuple[Any, ...]


def ask(orders: Sequence[Sequence[str]], environ: Mapping[str, str], variable: str) -> Answer:
    """Have a process of its own ask the keyring; see `child` for the orders.

    `variable` is what the hint names as another way. Raises `KeyringFault` after at most `seconds_of(environ)`.
    """
    seconds = keyring_timeout(environ)
    ways_out = WAYS_OUT.format(variable=variable)
    try:
        said = _talk(json.dumps([list(order) for order in orders]) + "\n", environ, seconds)
    except subprocess.TimeoutExpired:
        raise KeyringError(
            f"the keyring did not answer within {seconds:g} s",
            hint=f"unlock or restart it, or allow it more: {VARIABLE}=60\nor set the provider's variable: {variable}",
            state="no answer",
        ) from None
    except OSError as error:
        raise KeyringError(f"the keyring cannot be asked: {error.strerror}", hint=ways_out, state="none") from None
    answer = _read(said)
    if "results" in answer:
        return Answer(backend=str(answer["backend"]), results=tuple(answer["results"]))
    raise _fault(answer, ways_out)


def keyring_timeout(environ: Mapping[str, str]) -> float:
    """How long the keyring may take. Raises `ConfigError`."""
    text = environ.get(VARIABLE, "")
    try:
        seconds = float(text or SECONDS)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 600:
        raise ConfigError(
            f"{VARIABLE} is {text!r:.40}; expected seconds, up to 600", hint="change or unset the variable"
        )
    return seconds


def _talk(request: str, environ: Mapping[str, str], seconds: float) -> str:
    """Its whole answer. Where it takes too long it is killed, and nothing that it may have started is waited for."""
    child = subprocess.Popen(  # noqa: S603 - ourselves
        _CHILD, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf-8",
        env={**os.environ, **environ},
    )  # fmt: skip
    try:
        return child.communicate(request, timeout=seconds)[0]
    finally:
        child.kill()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        with suppress(subprocess.TimeoutExpired):
            child.wait(1)


def _read(said: str) -> dict[str, Any]:
    with suppress(ValueError):
        answer = json.loads(said)
        if isinstance(answer, dict):
            return answer
    return {"backend": "", "fault": "refused", "said": "it ended without an answer"}


def _fault(answer: Mapping[str, Any], ways_out: str) -> KeyringError:
    backend = f" ({answer['backend']})" if answer.get("backend") else ""
    said = KNOWN_SECRETS.redact(one_line(str(answer.get("said", "")))).rstrip(".")[:200]
    if answer["fault"] == "none":
        return KeyringError("there is no keyring here that keeps keys", hint=ways_out, state="none")
    if answer["fault"] == "plaintext":
        return KeyringError(
            f"the keyring{backend} is a file that is not encrypted", hint=ways_out, state="not encrypted"
        )
    if answer["fault"] == "locked":
        hint = f"unlock it; where it asks you first, allow it time: {VARIABLE}=60\n{ways_out.partition(chr(10))[0]}"
        return KeyringError(f"the keyring{backend} is locked", hint=hint, state="locked")
    return KeyringError(f"the keyring{backend} refused: {said}", hint=ways_out, state="refused")

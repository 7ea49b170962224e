"""Keyrings with a fault each, loaded by the keyring library as any other package's are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import InitError, KeyringLocked, PasswordDeleteError, PasswordSetError


class Kept(KeyringBackend):  # type: ignore[misc]  # keyring is not looked into
    """A keyring that works, with files in a directory of its own; the faults below build on it."""

    priority = 1

    def _path(self, username: str) -> Path:
        path = Path(os.environ["HOME"]) / "backend"
        path.mkdir(exist_ok=True)
        return path / username

    def get_password(self, service: str, username: str) -> str | None:
        path = self._path(username)
        return path.read_text() if path.exists() else None

    def set_password(self, service: str, username: str, password: str) -> None:
        self._path(username).write_text(password)

    def delete_password(self, service: str, username: str) -> None:
        if not self._path(username).exists():
            raise PasswordDeleteError("no such password")
        self._path(username).unlink()


class Refusing(Kept):
    """Reads, and takes nothing; its error holds what it was given, as some do."""

    def set_password(self, service: str, username: str, password: str) -> None:
        raise PasswordSetError(f"cannot store {password}: the disk is read-only")


class Forgetful(Kept):
    """Takes everything and keeps nothing."""

    def set_password(self, service: str, username: str, password: str) -> None:
        pass


class Locked(Kept):
    """Somebody has said no to unlocking it."""

    error: Exception = KeyringLocked("Failed to unlock the collection!")

    def get_password(self, service: str, username: str, password: str = "") -> str | None:
        raise self.error

    set_password = get_password  # type: ignore[assignment]
    delete_password = get_password  # type: ignore[assignment]


class Broken(Locked):
    """Cannot even begin."""

    error = InitError("Failed to create the collection: Prompt dismissed..")


class Chatty(Kept):
    """Prints what it does, to standard output, and whatever it can."""

    def get_password(self, service: str, username: str) -> str | None:
        print("reading", service, username)
        subprocess.run([sys.executable, "-c", "print('{}')"], check=True)
        return super().get_password(service, username)


class PlaintextKeyring(Kept):
    """A file that anybody can read, as the package keyrings.alt has one."""


class Dying(Kept):
    """Takes the process with it."""

    def get_password(self, service: str, username: str) -> str | None:
        os._exit(3)


class Hanging(Kept):
    """Starts a helper that holds the output open, and both wait forever."""

    def get_password(self, service: str, username: str) -> str | None:
        waits = [sys.executable, "-c", "import sys, time; time.sleep(90)"]
        subprocess.run(waits, stdin=subprocess.DEVNULL, check=True)
        return None

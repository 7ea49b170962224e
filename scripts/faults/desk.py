"""A user's desk for campaigns.

A home that is put back before each try, workers that count, what must always hold.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Final
from unittest.mock import patch

import httpx

from conductor_cli.core.errors import ConductorError
from conductor_cli.core.events import Notice
from conductor_cli.state.run_index import RunIndex
from conductor_cli.state.spending_file import read_spent
from conductor_cli.state.trace_file import read_events
from scripts.faults.prefork import Ended, Prefork
from tests.cli.stage import THREE, Stage

CANARY: Final = "sk-canary-5f0e61d2c8b94a7e"
"""The key of a worker. No file and no output may have a byte sequence like it."""

SETTINGS: Final = '[limits]\nattempts = 2\ncalls_day = 1000\n[traces]\nkeep = "always"'
"""Spending and traces must be stored, or the command must say that it failed."""

UNRECORDED: Final = (
    "what was spent is not recorded",
    "no daily total",
    "limits per day cannot",
    "today's limit cannot",
)

TO_USER: Final = re.compile(r"write\((2|\d+</dev/pts/)")
"""A write to standard error or to a terminal, as strace shows it."""


class Desk:
    """One home, one provider with two workers, and a server that forks commands."""

    def __init__(self, directory: Path, variables: Mapping[str, str]) -> None:
        """`directory` is a directory of its own.

        This process gets the environment of the commands, with `variables`.
        """
        self.home = directory / "home"
        self.stage = Stage(self.home, plan=THREE)
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        own_variables = {
            "CANARY_KEY": CANARY,
            "COLUMNS": "80",
            "HF_HOME": str(self.home / "hf"),
            "OPENBLAS_NUM_THREADS": "1",
        }
        environ = {**kept, **homes(self.home), **own_variables, **variables}
        os.environ.update(environ)
        self.prefork = Prefork(directory / "fork", environ)
        self.may_keep_key: Path | None = None
        self.must_store = True  # whether the settings say that spending and traces must be stored
        self._saved = directory / "saved"
        self._asked_before = 0

    @property
    def state(self) -> Path:
        return self.home / "state/conductor-llm"

    def configure(self, settings: str = SETTINGS) -> None:
        """Write settings for two workers with a price and a key."""
        self.must_store = "keep =" in settings
        self.stage.configure(settings, workers=())
        lines = 'key_env = "CANARY_KEY"\nprice = { input = 1, output = 2 }'
        with self.stage.config.open("a") as file:
            file.writelines(self.stage.worker(name, lines) + "\n" for name in ("alpha", "beta"))

    def save(self) -> None:
        """Remember the home as it is: `reset` puts it back."""
        shutil.rmtree(self._saved, ignore_errors=True)
        shutil.copytree(self.home, self._saved, symlinks=True)

    def reset(self) -> None:
        """Put the home back, and count calls from here."""
        shutil.rmtree(self.home, ignore_errors=True)
        shutil.copytree(self._saved, self.home, symlinks=True)
        self._asked_before = len(self._calls)

    @property
    def _calls(self) -> list[str]:
        return [
            str(request.json["model"])
            for request in list(self.stage.server.requests)
            if request.method == "POST"
        ]

    @property
    def billed(self) -> list[str]:
        """The model of each call that the provider got since the home was put back."""
        return self._calls[self._asked_before :]

    def wait_for_server(self) -> None:
        """Wait until the provider has read what a killed command had sent."""
        for _ in range(2):
            httpx.get(f"{self.stage.url}/models", timeout=10)

    @property
    def recorded(self) -> int:
        """The calls in the record of what was spent. Raises `ConfigError`."""
        return sum(row.usage.calls for row in read_spent(self.state / "spending", date(2020, 1, 1)))

    def problem(self, ended: Ended) -> str:
        """Which of the things that always hold does not; empty where all do."""
        problems = (
            ending_problem(ended),
            self.leak_problem(ended),
            self._spending(ended),
            self.traces_problem(),
        )
        return "; ".join(filter(None, problems))

    def leak_problem(self, ended: Ended) -> str:
        """Where the key of a worker is, if it is anywhere."""
        if CANARY in ended.out + ended.err:
            return "a key was printed"
        for path in self.home.rglob("*"):
            if (
                path.is_file()
                and path != self.may_keep_key
                and CANARY.encode() in path.read_bytes()
            ):
                return f"a key is in {path.relative_to(self.home)}"
        return ""

    def _spending(self, ended: Ended) -> str:
        if any(text in ended.out + ended.err for text in UNRECORDED):
            return ""  # the user was told
        try:
            recorded = self.recorded
        except ConductorError as error:
            return f"the record of spending: {error.message}"
        return (
            f"{len(self.billed)} calls billed, {recorded} recorded"
            if len(self.billed) > recorded
            else ""
        )

    def traces_problem(self) -> str:
        for path in sorted((self.state / "traces").glob("*.jsonl")):
            try:
                for event in read_events(path):
                    if isinstance(event, Notice) and event.reason == "trace_damaged":
                        return f"a trace is damaged: {event.text}"
            except ConductorError as error:
                return f"a trace cannot be read: {error.message}"
        rows, _ = RunIndex(str(self.state / "traces")).newest(count=-1)
        if unreadable := [row.problem for row in rows if row.state == "unreadable"]:
            return f"a trace cannot be listed: {unreadable[0]}"
        return ""


def ending_problem(ended: Ended) -> str:
    """What is wrong with how a command ended."""
    if ended.code is None:
        return "it did not end"
    output = ended.out + ended.err  # a terminal shows both
    if any(text in output for text in ("Traceback", "Unhandled exception", "bug in conductor")):
        return f"it was not explained: {output[-300:]!r}"
    if ended.code < 0:
        return "" if any("SIGKILL" in line for line in ended.hits) else f"signal {-ended.code}"
    # What would have explained it failed itself
    nowhere = any(TO_USER.search(line) for line in ended.hits)
    # The last error: what is before it is progress, and what begins with `note` is no part of it.
    lines = [line for line in ended.err.splitlines() if not line.startswith("conductor: note: ")]
    begins = [at for at, line in enumerate(lines) if line.startswith("conductor: ")]
    if ended.code in {0, 130} or nowhere or (begins and len(lines) - begins[-1] <= 3):
        return ""
    return f"it was not explained: {ended.err[-300:]!r}"


def homes(home: Path) -> dict[str, str]:
    """The variables of somebody with this home and without a keyring."""
    places = {
        f"XDG_{name}_HOME": str(home / name.lower())
        for name in ("CONFIG", "STATE", "DATA", "CACHE")
    }
    return places | {"HOME": str(home), "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring"}


@contextmanager
def desk(variables: Mapping[str, str] = MappingProxyType({})) -> Iterator[Desk]:
    """A desk in a temporary directory, with its server running.

    `variables` are variables of its environment.
    """
    with tempfile.TemporaryDirectory(prefix="conductor-faults-") as name, patch.dict(os.environ):
        directory = Path(name)
        (directory / "home").mkdir()
        made = Desk(directory, variables)
        with made.stage.server, made.prefork:
            made.configure()
            yield made


@contextmanager
def serving(server: subprocess.Popen[bytes]) -> Iterator[str]:
    """The address that a started `conductor serve` prints. It is killed at the end."""
    try:
        assert server.stdout is not None
        yield server.stdout.readline().decode().split()[-1]
    finally:
        server.kill()
        server.communicate()

"""What all campaigns use.

A provider, a home with one worker, and processes of which each is ended at the end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple
from urllib.request import urlopen

ROOT: Final = Path(__file__).resolve().parents[2]
CONDUCTOR: Final = (sys.executable, "-m", "conductor_cli")
start_process = subprocess.Popen[bytes]
"""What starts the processes of a campaign: tests have its commands forked."""


class Figure(NamedTuple):
    """What was measured, beside its bound.

    `holds` is None where it has none, `timed` where the bound is of a time.
    """

    what: str
    measured: str
    bound: str = ""
    holds: bool | None = None
    timed: bool = False


def at_most(
    title: str, value: float, most: float, form: str = "{:.1f}", *, timed: bool = False
) -> Figure:
    """A value beside the most that it may be, both written in the same form."""
    return Figure(title, form.format(value), f"<= {form.format(most)}", value <= most, timed)


def none_of(title: str, faults: Sequence[object]) -> Figure:
    """What must not have happened: how often it did, and the first of it."""
    return Figure(title, f"{len(faults)} {faults[:1] or ''}", "0", not faults)


class Spent(NamedTuple):
    """What an ended process took: seconds of a processor, and the most of its memory in MB."""

    code: int
    cpu: float
    memory: float


@dataclass
class Place:
    """A home below `home`, the provider at `port`, and every process that was started."""

    home: Path
    port: int
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def environ(self) -> dict[str, str]:
        from scripts.faults.desk import homes  # the processes of `state` do without its imports

        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
        return kept | homes(self.home) | {"PYTHONPATH": str(ROOT)}

    @property
    def planned(self) -> tuple[str, ...]:
        """The option by which a planner is asked where there is one worker."""
        return "--planner", f"http://127.0.0.1:{self.port}/v1#planner"

    def configure(self, before: str = "", after: str = "") -> None:
        """Write the settings: one worker, whose calls cost a cent, and what a campaign adds."""
        url = f"http://127.0.0.1:{self.port}/v1"
        path = self.home / "config/conductor-llm/config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f'{before}\n[planner]\nmodel = "{url}#planner"\n[learning]\nexplore = 0\n{after}\n'
            f'[workers.alpha]\nkind = "openai-compatible"\nbase_url = "{url}"\nmodel = "alpha"\n'
            "parallel = 256\n"
        )

    def start(self, *command: object, log: str = "log") -> subprocess.Popen[bytes]:
        """Start a process; what it says is added to a file of the home."""
        with (self.home / log).open("ab") as file:
            process = start_process(
                list(map(str, command)),
                env=self.environ,
                cwd=self.home,
                stdout=file,
                stderr=file,
                stdin=subprocess.DEVNULL,
            )
        self.running.append(process)
        return process

    def counts(self) -> dict[str, int]:
        with urlopen(f"http://127.0.0.1:{self.port}/counts") as answer:
            return dict(json.load(answer))

    def is_running(self, process: subprocess.Popen[bytes]) -> bool:
        """Whether a process has not ended. What it took can still be asked for."""
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def ended(self, process: subprocess.Popen[bytes]) -> Spent:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        return Spent(process.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


@contextmanager
def place(**provider: int) -> Iterator[Place]:
    """A place with a provider; its options are those of `provider.py`."""
    words = [sys.executable, "-m", "scripts.scale.provider", json.dumps(provider)]
    with tempfile.TemporaryDirectory(prefix="conductor-scale-") as name:
        server = subprocess.Popen(words, stdout=subprocess.PIPE, cwd=ROOT)
        assert server.stdout is not None
        made = Place(Path(name), int(server.stdout.readline()))
        made.running.append(server)
        try:
            yield made
        finally:
            for process in reversed(made.running):
                if process.poll() is None:
                    process.kill()
                    process.wait()
            server.stdout.close()


def percentile(values: Sequence[float], part: float) -> float:
    """Return the value below which so large a part of `values` lies."""
    return sorted(values)[min(int(part * len(values)), len(values) - 1)]

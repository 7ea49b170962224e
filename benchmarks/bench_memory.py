"""The most memory that `conductor ask` holds, with workers behind the openai adapter and no local model."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from figures import MEGABYTE, Figure, Table, conductor, newcomer, show
from loopback import server

BOUND: Final = 120 * MEGABYTE

LAUNCHER: Final = """
import json, os, pty, sys, threading
terminal, *command = sys.argv[1:]
nothing = os.open(os.devnull, os.O_RDWR)
streams = {0: nothing, 1: nothing, 2: nothing}
drawn = [0]
def drain(end):
    try:
        while piece := os.read(end, 65536):
            drawn[0] += len(piece)
    except OSError:
        pass
if terminal == "terminal":
    ours, theirs = pty.openpty()
    streams[2] = theirs
    threading.Thread(target=drain, args=(ours,), daemon=True).start()
actions = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in streams.items()]
child = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
_, status, usage = os.wait4(child, 0)
print(json.dumps([os.waitstatus_to_exitcode(status), usage.ru_maxrss, drawn[0]]))
"""
"""Starts the command from a small process: Linux counts what a process weighed before it became another program."""


def measure() -> Table:
    """One run of each kind; memory hardly differs from run to run."""
    with server() as url, tempfile.TemporaryDirectory() as place:
        ask = _Ask(url, place)
        nothing, _ = peak([sys.executable, "-c", "pass"], newcomer(place))
        return Table(
            title="memory",
            about="Peak resident memory of `conductor ask`: a plan and three steps, all by the openai adapter.",
            figures=(
                ask.figure("answers of 500 words, no terminal", "500"),
                ask.figure("the same at 300 words/s, drawn on a terminal", "500@300", terminal=True),
                ask.figure("answers of 4,000 words, drawn on a terminal", "4000", terminal=True),
                ask.figure("500 words through litellm, to compare", "openai/500", kind="litellm", bound=None),
                Figure(what="python -c pass, to compare", value=nothing, unit="MB"),
            ),
        )


class _Ask:
    """`conductor ask` over three workers of a server at `url`, at home in `place`."""

    def __init__(self, url: str, place: str) -> None:
        self._url = url
        self._file = Path(place) / "benchmark.toml"
        self._environ = newcomer(place) | {"TERM": "xterm-256color", "BENCHMARK_KEY": "no-secret"}

    def figure(
        self,
        what: str,
        model: str,
        *,
        kind: str = "openai-compatible",
        terminal: bool = False,
        bound: float | None = BOUND,
    ) -> Figure:
        table = f'kind = "{kind}"\nbase_url = "{self._url}"\nmodel = "{model}"\nkey_env = "BENCHMARK_KEY"\n'
        workers = "\n".join(f"[workers.{name}]\n{table}" for name in ("ada", "ben", "cem"))
        self._file.write_text(workers, encoding="utf-8")
        asked = ["ask", "Which lock is taken first?", "--conductor", f"{self._url}#plan"]
        most, drawn = peak([*conductor(), "--config", str(self._file), *asked], self._environ, terminal=terminal)
        if terminal and not drawn:
            raise SystemExit("nothing was drawn on the terminal")
        also = f"{drawn / 1024:.0f} KB drawn" if terminal else ""
        return Figure(what=what, value=most, unit="MB", bound=bound, also=also)


def peak(command: list[str], environ: Mapping[str, str], *, terminal: bool = False) -> tuple[int, int]:
    """The most bytes that a command had resident, and how many it wrote to a terminal, if its errors go to one."""
    launched = [sys.executable, "-I", "-S", "-c", LAUNCHER, "terminal" if terminal else "none", *command]
    done = subprocess.run(
        launched, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    code, most, drawn = json.loads(done.stdout)
    if code:
        raise SystemExit(f"{' '.join(command)} ended with {code}")
    return most * (1 if sys.platform == "darwin" else 1024), drawn


if __name__ == "__main__":
    sys.exit(show(measure()))

"""The campaigns by name, in the order in which they run."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Final

from scripts.faults.tries import Tries

CAMPAIGNS: Final[dict[str, str]] = {
    "syscalls": "every Nth system call of each command fails",
    "kills": "SIGKILL at every write of a run and at random moments, then the run is resumed",
    "wire": "every fault of the network and of servers, at every position of three shapes of plans",
    "tools": "the same between the adapter for MCP servers over HTTP and a double",
    "fuzz": "random and damaged inputs for everything that reads what others wrote",
    "guided": "the same with inputs that reach new lines, where atheris is installed",
    "crashes": "random lives of processes over one store, each ended by a crash",
    "clocks": "the clock goes back, forward, over midnight; eight processes share the limit of a day",
    "places": "directories that cannot be written; a keyring that is locked in the middle of a run",
    "privacy": "umasks, /proc and crashes: what other users could read or change",
    "soak": "2,000 questions twice to one server, 32 at a time, the second time by clients that break off",
}
"""The module of each campaign and what it does."""


def load(name: str) -> Callable[[Tries], None]:
    """The function that runs a campaign."""
    run: Callable[[Tries], None] = importlib.import_module(f"scripts.faults.{name}").run
    return run

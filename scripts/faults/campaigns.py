"""The campaigns by name: what each does, and its part of the time."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Final, NamedTuple

from scripts.faults.tries import Tries


class Campaign(NamedTuple):
    """What it does, and its minutes of one processor where all campaigns run without options."""

    does: str
    minutes: float


CAMPAIGNS: Final[dict[str, Campaign]] = {
    "syscalls": Campaign("every Nth system call of each command fails", 28),
    "wire": Campaign("every fault of the network and of servers, at every position of three shapes of plans", 16),
    "guided": Campaign("the same as fuzz with inputs that reach new lines, where atheris is installed", 10),
    "fuzz": Campaign("random and damaged inputs for everything that reads what others wrote", 10),
    "kills": Campaign("SIGKILL at every write of a run and at random moments, then the run is resumed", 9),
    "soak": Campaign("2,000 questions twice to one server, 32 at a time, the second time by clients that break off", 5),
    "crashes": Campaign("random lives of processes over one store, each ended by a crash", 3),
    "tools": Campaign("the faults of wire, between the adapter for MCP servers over HTTP and a double", 4),
    "clocks": Campaign("the clock goes back, forward, over midnight; eight processes share the limit of a day", 3),
    "privacy": Campaign("umasks, /proc and crashes: what other users could read or change", 3),
    "places": Campaign("directories that cannot be written; a keyring that is locked in the middle of a run", 2),
}
"""In the order in which they begin: the longest first, so that two at a time end together."""


def load(name: str) -> Callable[[Tries], None]:
    """The function that runs a campaign."""
    run: Callable[[Tries], None] = importlib.import_module(f"scripts.faults.{name}").run
    return run

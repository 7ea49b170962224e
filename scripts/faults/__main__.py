"""`make faults`: run the fault campaigns, all or those named.

A call continues what an earlier one left.

Each campaign is a process of its own. What was tried is kept in `build/faults`; `--fresh` begins
again. The exit code is 0 if nothing failed.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from scripts.faults.tries import OutOfTime, Tries

OUT: Final = Path("build/faults")


class Campaign(NamedTuple):
    """What it does, and its minutes of one processor where all campaigns run without options."""

    does: str
    minutes: float


CAMPAIGNS: Final[dict[str, Campaign]] = {
    "syscalls": Campaign("every Nth system call of each command fails", 30),
    "wire": Campaign(
        "every fault of the network and of servers, at every position of three shapes of plans", 16
    ),
    "fuzz": Campaign("random and damaged inputs for everything that reads what others wrote", 10),
    "kills": Campaign(
        "SIGKILL at every write of a run and at random moments, then the run is resumed", 9
    ),
    "hostile": Campaign(
        "requests that would take for ever, all memory or every thread of `serve`", 6
    ),
    "neighbours": Campaign(
        "a hostile client beside an ordinary one, over each thing that clients of `serve` share",
        6,
    ),
    "soak": Campaign(
        (
            "2,000 questions twice to one server, 32 at a time, the second time by clients that "
            "break "
            "off"
        ),
        5,
    ),
    "crashes": Campaign("random lives of processes over one store, each ended by a crash", 3),
    "tools": Campaign(
        "the faults of wire under MCP servers over HTTP and web pages; hostile calls of file tools",
        8,
    ),
    "books": Campaign(
        "several keys and records in one server, commands beside it, a kill: the book is the bill",
        3,
    ),
    "limits": Campaign(
        "random limits on dollars, tokens and calls: nothing spends more than SECURITY.md says", 8
    ),
    "clocks": Campaign(
        "the clock goes back, forward, over midnight and through daylight saving", 3
    ),
}
"""In the order in which they begin: the longest first, so that two at a time end together."""


def main(arguments: Sequence[str]) -> int:
    """Run the campaigns and print the report."""
    options = _parser().parse_args(arguments)
    began = time.monotonic()
    names = options.names or list(CAMPAIGNS)
    broken = False
    if options.fresh:
        for name in names:
            (OUT / f"{name}-{options.seed}.jsonl").unlink(missing_ok=True)
    if len(names) == 1:
        _run(names[0], options)
    else:
        with ThreadPoolExecutor(max_workers=options.jobs) as lanes:
            broken = not all(lanes.map(partial(_run_apart, names=names, options=options), names))
    print(f"\n{'CAMPAIGN':<12} {'TRIED':>7} {'FAILED':>7} {'SECONDS':>8}  FIRST FAILURE")
    reports = [_tries(name, options).report() for name in names]
    print("\n".join(report.line for report in reports))
    print(f"{(time.monotonic() - began) / 60:.1f} minutes")
    return 1 if broken or any(report.failed for report in reports) else 0


def _tries(name: str, options: argparse.Namespace) -> Tries:
    return Tries(name, OUT, seed=options.seed, minutes=options.minutes, only=options.only)


def _run(name: str, options: argparse.Namespace) -> None:
    print(f"{name}: {CAMPAIGNS[name].does}", flush=True)
    try:
        importlib.import_module(f"scripts.faults.{name}").run(_tries(name, options))
    except OutOfTime:
        print(
            f"{name}: its {options.minutes:.1f} minutes are over; the same command continues it",
            flush=True,
        )


def _run_apart(name: str, *, names: Sequence[str], options: argparse.Namespace) -> bool:
    """Run one of several campaigns in a process of its own, for its part of the time.

    Returns whether it ran.
    """
    part = CAMPAIGNS[name].minutes / sum(CAMPAIGNS[campaign].minutes for campaign in names)
    minutes = options.minutes * min(options.jobs, len(names)) * part
    words = [name, "--minutes", str(minutes), "--seed", str(options.seed), "--only", options.only]
    code = subprocess.run([sys.executable, "-m", "scripts.faults", *words], check=False).returncode
    if code not in {0, 1}:
        print(f"FAILED {name}: it ended with {code}", flush=True)
    return code in {0, 1}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.faults", description="Run fault campaigns."
    )
    names = ", ".join(CAMPAIGNS)
    at_once = min(2, os.cpu_count() or 1)
    parser.add_argument(
        "names", nargs="*", choices=(*CAMPAIGNS, []), metavar="NAME", help=f"a campaign: {names}"
    )
    parser.add_argument(
        "--minutes", type=float, default=45.0, help="time for all of them together (default: 45)"
    )
    parser.add_argument(
        "--jobs", type=int, default=at_once, help=f"campaigns at the same time (default: {at_once})"
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="where random choices begin (default: 1)"
    )
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="only what has this in its name: a reproduction"
    )
    parser.add_argument("--fresh", action="store_true", help="forget what was tried before")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`make scale`: run the campaigns, all or those named; without `--long` in their short form.

0 if every bound holds.

The figures are kept in `build/scale.jsonl`, a line each.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

OUT: Final = Path("build/scale.jsonl")


class Campaign(NamedTuple):
    """What it measures, its module and function, and what that is called with.

    The short form and the long one call it differently.
    """

    does: str
    function: str
    short: dict[str, Any]
    long: dict[str, Any]


CAMPAIGNS: Final[dict[str, Campaign]] = {
    "state": Campaign(
        "eight processes, an empty database, a limit of a dollar",
        "state run",
        {"rounds": 3},
        {"rounds": 100},
    ),
    "outages": Campaign(
        "the database is stopped, and away for a while",
        "outages run",
        {"stops": 5, "outage": 15},
        {"stops": 50, "outage": 300},
    ),
    "restart": Campaign(
        "streams during a rolling restart, and a kill",
        "replicas restart",
        {"streams": 30, "seconds": 12},
        {"streams": 200, "seconds": 60},
    ),
    "traces": Campaign(
        "a database with many traces", "traces run", {"rows": 110_000}, {"rows": 11_000_000}
    ),
    "throughput": Campaign(
        "requests a second, beside other gateways",
        "throughput run",
        {"seconds": 8, "clients": 32},
        {"seconds": 60, "clients": 64},
    ),
    "processes": Campaign(
        "two processes of a server, beside two servers",
        "processes run",
        {"rounds": 4, "seconds": 10, "clients": 32},
        {"rounds": 12, "seconds": 30, "clients": 32},
    ),
    "takeover": Campaign(
        "runs of killed replicas, which others finish",
        "takeover run",
        {"seconds": 30, "clients": 12},
        {"seconds": 600, "clients": 64},
    ),
    "batch": Campaign(
        "a batch that is killed again and again",
        "batch run",
        {"questions": 10_000, "kills": 5},
        {"questions": 1_000_000, "kills": 20},
    ),
    "batch-postgres": Campaign(
        "the same with PostgreSQL",
        "batch run",
        {"questions": 5_000, "kills": 2, "postgres": True},
        {"questions": 200_000, "kills": 20, "postgres": True},
    ),
    "ray": Campaign(
        "a batch on two nodes of Ray, one of which is killed",
        "ray_nodes run",
        {"questions": 2_000},
        {"questions": 100_000},
    ),
}


def main() -> int:
    """Run the campaigns and print their figures."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.scale", description="Measure several processes at once."
    )
    names = ", ".join(CAMPAIGNS)
    parser.add_argument(
        "names", nargs="*", choices=(*CAMPAIGNS, []), metavar="NAME", help=f"a campaign: {names}"
    )
    parser.add_argument("--long", action="store_true", help="the whole of it, which takes hours")
    options = parser.parse_args()
    OUT.parent.mkdir(exist_ok=True)
    broken = 0
    for name in options.names or CAMPAIGNS:
        campaign = CAMPAIGNS[name]
        arguments = campaign.long if options.long else campaign.short
        print(
            f"\n{name}: {campaign.does} "
            f"({', '.join(f'{key} {value:,}' for key, value in arguments.items())})"
        )
        began = time.monotonic()
        module, name_of_function = campaign.function.split()
        run = getattr(importlib.import_module(f"scripts.scale.{module}"), name_of_function)
        for figure in run(**arguments):
            broken += figure.holds is False
            mark = {None: "     ", True: "holds", False: "FAILS"}[figure.holds]
            print(f"  {mark}  {figure.what:<52} {figure.measured:<34} {figure.bound}", flush=True)
            with OUT.open("a") as file:
                file.write(json.dumps({"campaign": name, **arguments, **figure._asdict()}) + "\n")
        print(f"  {time.monotonic() - began:.0f} s")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

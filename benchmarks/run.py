"""Run the benchmarks, print their tables and write them to results.md. Ends with 1 when a bound does not hold.

`python benchmarks/run.py` runs all of them, some minutes; with names (`start`, `overlap`, …)
only those, and writes nothing.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil
from small import TABLES

import conductor_cli

if TYPE_CHECKING:
    from figures import Table

NAMES: Final = (
    "start", "chat", "tools", "overlap", "schedule", "stream", "memory", "traces", "learning", "serve",
)  # fmt: skip
LIBRARIES: Final = ("llm", "typer", "rich", "httpx", "httpcore", "h11", "anyio", "litellm")
RESULTS: Final = Path(__file__).with_name("results.md")


def main(names: list[str]) -> int:
    """Measure what is named, or everything."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"there is no benchmark {unknown[0]!r}; known: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    load, began = load_before(), time.monotonic()
    tables = [measured(name) for name in names or NAMES]
    head = [HEAD.format(title="Results", target="bench"), setting(load, time.monotonic() - began, LIBRARIES)]
    return judged(tables, head, None if names else RESULTS)


HEAD: Final = """\
# {title}

Written by `make {target}`; what each figure means stands in [README.md](README.md). Ratios are of things
measured in the same run; no figure is compared with one from elsewhere.
"""


def judged(tables: Sequence[Table], head: Sequence[str], results: Path | None) -> int:
    """Print which bounds do not hold, and write the tables to a file. Returns 1 if there are any."""
    failed = [f"{table.title}: {figure.what}" for table in tables for figure in table.figures if not figure.holds]
    verdict = f"Bounds that do not hold: {', '.join(failed)}." if failed else "All bounds hold."
    print(verdict)
    if results is not None:
        results.write_text("\n".join([*head, verdict, "", *(table.markdown() for table in tables)]), encoding="utf-8")
    return 1 if failed else 0


def measured(name: str) -> Table:
    """One benchmark, printed as soon as it is done."""
    print(f"measuring {name} …", file=sys.stderr)
    measure = TABLES[name] if name in TABLES else importlib.import_module(f"bench_{name}").measure
    table: Table = measure()
    print(table.markdown(), flush=True)
    return table


def setting(load: str, seconds: float, libraries: Sequence[str]) -> str:
    """Where and with what it was measured: nothing that names the machine."""
    versions = ", ".join(f"{name} {_version(name)}" for name in libraries)
    rows = {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {seconds:.0f} s in all",
        "machine": f"{os.cpu_count()} cores, {_processor()}, {psutil.virtual_memory().total / 2**30:.0f} GiB; {load}",
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "versions": f"conductor {conductor_cli.__version__}, {versions}",
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items()), ""])


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def load_before() -> str:
    """How much else the machine did before the first benchmark."""
    return f"load {psutil.getloadavg()[0]:.1f} before"


def _processor() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    found = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return found[0] if found else platform.processor() or "processor unknown"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

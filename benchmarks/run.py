"""Run the benchmarks, print their tables and write them to results.md.

Ends with 1 when a bound does not hold.

`python benchmarks/run.py` runs all of them, some minutes; with names (`start`, `overlap`, …) only
those, and writes nothing.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import Final

import psutil
from figures import Table
from small import TABLES

import conductor_cli

NAMES: Final = (
    "start",
    "chat",
    "tools",
    "overlap",
    "schedule",
    "stream",
    "memory",
    "traces",
    "learning",
    "serve",
    "growth",
    "modules",
)
LIBRARIES: Final = ("llm", "typer", "rich", "httpx", "httpcore", "h11", "anyio", "litellm")
RESULTS: Final = Path(__file__).with_name("results.md")


def main(names: list[str]) -> int:
    """Measure what is named, or everything."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"there is no benchmark {unknown[0]!r}; known: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    load = load_before()
    began = time.monotonic()
    tables = [measured(name) for name in names or NAMES]
    head = [
        HEAD.format(title="Results", target="bench"),
        setting(load, time.monotonic() - began, LIBRARIES),
    ]
    return judged(tables, head, None if names else RESULTS)


HEAD: Final = """\
# {title}

Written by `make {target}`; what each figure means stands in [README.md](README.md). Ratios are of \
things
measured in the same run; no figure is compared with one from elsewhere.
"""


def judged(tables: Sequence[Table], head: Sequence[str], results: Path | None) -> int:
    """Print last which bounds do not hold, and write all to a file. Returns 1 if there are any."""
    lines: list[str] = []
    for table in tables:
        lines += failures_of(table)
    verdict = "\n".join([summary(tables, len(lines)), *(f"- {line}" for line in lines)])
    if results is not None:
        texts = [*head, verdict, "", *(table.markdown() for table in tables)]
        results.write_text("\n".join(texts), encoding="utf-8")
    print(verdict)
    return 1 if lines else 0


def summary(tables: Sequence[Table], failures: int) -> str:
    """Return how many bounds there are, and how many of them do not hold."""
    figures = chain.from_iterable(table.figures for table in tables)
    bounds = sum(figure.bound is not None for figure in figures)
    if failures:
        return f"**FAIL**: {failures} of {bounds} bounds do not hold, or could not be measured:\n"
    return f"All bounds hold: {bounds} of {bounds}."


def failures_of(table: Table) -> Iterator[str]:
    """A line for each bound that does not hold, with both values.

    Or one for what did not finish.
    """
    if table.error:
        yield f"**FAIL** {table.title}: {table.error}"
    for figure in table.figures:
        if not figure.holds:
            title, measured, bound, mark, _ = figure.cells()
            limit = bound if figure.least else f"at most {bound}"
            yield f"{mark} {table.title}: {title}: {measured}, and the bound is {limit}"


def measured(name: str) -> Table:
    """One benchmark, printed as soon as it is done.

    One that fails does not keep the others from being run.
    """
    print(f"measuring {name} …", file=sys.stderr)
    measure = TABLES[name] if name in TABLES else importlib.import_module(f"bench_{name}").measure
    try:
        table: Table = measure()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it was, the summary says it
        traceback.print_exc()
        reason = str(error) or type(error).__name__
        table = Table(name, "", (), error=f"it did not finish: {reason}")
    print(table.markdown(), flush=True)
    return table


def setting(load: str, seconds: float, libraries: Sequence[str]) -> str:
    """Where and with what it was measured: nothing that names the machine."""
    versions = ", ".join(f"{name} {_version(name)}" for name in libraries)
    rows = {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {seconds:.0f} s in all",
        "machine": (
            f"{os.cpu_count()} cores, {_processor()}, "
            f"{psutil.virtual_memory().total / 2**30:.0f} GiB; {load}"
        ),
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "versions": f"conductor {conductor_cli.__version__}, {versions}",
    }
    return "\n".join(
        ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items()), ""]
    )


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
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "processor unknown"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

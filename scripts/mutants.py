"""Change core modules in small ways, one change at a time, and count those that no test notices.

`make mutants`.

A line that is covered may still be tested by nothing: a mutant is that line, changed. mutmut makes
them and runs the tests; `[tool.mutmut]` in pyproject.toml names modules and tests. This works on a
copy in `build/mutants`, so that no change can stay in the source. Ends with 1 where fewer are
noticed than `LEAST_SHARE`.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
COPY: Final = ROOT / "build/mutants"
COPIED: Final = ("src", "tests", "scripts", "pyproject.toml")
LIMIT_SECONDS: Final = 15 * 60
STOP_SECONDS: Final = 30  # how long mutmut may take to end when it is told to
LEAST_SHARE: Final = 0.80
NOTICED: Final = ("killed", "timeout", "segfault", "suspicious")
"""A mutant that hangs or crashes the tests is noticed, too."""

UNTRIED: Final = "not checked"
RESULT: Final = re.compile(r"\s*conductor_cli\.core\.(\w+)\.\S+: (.+)")


def main() -> int:
    """Make the copy, try mutants for at most `LIMIT_SECONDS`, and print the figures."""
    make_copy()
    mutmut = Path(sys.executable).with_name("mutmut")
    in_time = try_mutants([str(mutmut), "run", "--max-children", "2"])
    results = subprocess.run(
        [str(mutmut), "results", "--all", "true"],
        cwd=COPY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    if not in_time:
        print(f"mutants: stopped after {LIMIT_SECONDS // 60} minutes; the rest was not tried")
    lines, share = report(results)
    print("\n".join(lines))
    (COPY / "results.txt").write_text("\n".join(results), encoding="utf-8")
    shown = COPY.relative_to(ROOT)
    print(f"All results: {shown}/results.txt; one of them: (cd {shown} && mutmut show NAME)")
    return 0 if share >= LEAST_SHARE else 1


def make_copy() -> None:
    """Copy what git knows: what a test installs or builds stays out."""
    shutil.rmtree(COPY, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", *COPIED], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in listed.split("\0"):
        source = ROOT / name
        if name and source.is_file():
            target = COPY / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)


def try_mutants(command: list[str]) -> bool:
    """Run mutmut in the copy.

    Returns whether it ended by itself; what it has found by then is kept.
    """
    process = subprocess.Popen(command, cwd=COPY, stdout=subprocess.DEVNULL)
    try:
        code = process.wait(LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return False
    if code:
        raise SystemExit(f"mutmut ended with {code}; see what it says: (cd {COPY} && mutmut run)")
    return True


def report(results: Iterable[str]) -> tuple[list[str], float]:
    """Return a line for each module and one for all, and which share of the mutants was noticed."""
    states: dict[str, Counter[str]] = {}
    for line in results:
        if match := RESULT.fullmatch(line):
            states.setdefault(match[1], Counter())[match[2]] += 1
    total: Counter[str] = Counter()
    lines = []
    for module, counts in sorted(states.items()):
        lines.append(f"{module}: {_described(counts)}")
        total += counts
    lines.append(f"mutants: {_described(total)}; at least {LEAST_SHARE:.0%} must be noticed")
    return lines, _share(total)


def _share(counts: Counter[str]) -> float:
    tried = counts.total() - counts[UNTRIED]
    return sum(counts[state] for state in NOTICED) / tried if tried else 0.0


def _described(counts: Counter[str]) -> str:
    tried = counts.total() - counts[UNTRIED]
    noticed = sum(counts[state] for state in NOTICED)
    return f"{noticed} of {tried} noticed ({_share(counts):.1%}), {counts[UNTRIED]} not tried"


if __name__ == "__main__":
    sys.exit(main())

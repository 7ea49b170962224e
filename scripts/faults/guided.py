"""The same targets with inputs that reach new lines: atheris, where the environment of the project has it.

    .venv/bin/pip install atheris

Each target runs in a process of its own, which a fault in native code may end. It is no dependency of the project: it
is large, and has no package for macOS and for newer versions of Python. Without it nothing is tried.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, Final

from scripts.faults.tries import Outcome, Tries

SECONDS: Final = 25  # how long a target is tried before the next one has its turn: all of them have one in ten minutes
HANGS: Final = 600  # seconds after which a target that has not ended hangs
ROUNDS: Final = 40

CORPUS: Final = Path("build/faults/corpus")

INSTRUMENTED: Final = ("conductor_cli",)  # the packages whose lines are followed


def run(tries: Tries) -> None:
    """Try each target for some minutes."""
    from scripts.faults.fuzz_targets import TARGETS

    if importlib.util.find_spec("atheris") is None:
        print("guided: atheris is not installed, so nothing is tried: .venv/bin/pip install atheris")
        return
    for number in range(ROUNDS):
        for name in TARGETS:
            tries.attempt(f"{name} {number}", partial(_try_target, name, tries.seed + number))


def _try_target(name: str, seed: int) -> Outcome:
    corpus = CORPUS / name.replace(" ", "-")
    corpus.mkdir(parents=True, exist_ok=True)
    # libFuzzer's own timeout counts the time for which this process waits for a busy machine or for a child process.
    # So it is as long as ours. 0 would not switch it off: atheris would then end an input that waits for a second.
    options = (f"-max_total_time={SECONDS}", f"-seed={seed}", "-max_len=65536", f"-timeout={HANGS}")
    more = ("-rss_limit_mb=2048", f"-artifact_prefix={corpus}-", str(corpus))
    command = [sys.executable, "-m", "scripts.faults.guided", name, *options, *more]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=HANGS)
    counted = re.findall(r"^#(\d+)", done.stderr, re.MULTILINE)
    weight = int(counted[-1]) if counted else 1
    if done.returncode == 0:
        return Outcome(weight=weight)
    said = [line for line in done.stderr.splitlines() if "Error" in line or "==" in line or "artifact" in line]
    return Outcome(problem="; ".join(said)[:600] or f"exit code {done.returncode}", weight=weight)


def main(arguments: list[str]) -> None:
    """Run one target under atheris; the options are libFuzzer's."""
    library: Any = importlib.import_module("atheris")
    with library.instrument_imports(include=list(INSTRUMENTED)):
        from scripts.faults.fuzz import try_input
        from scripts.faults.fuzz_targets import TARGETS
    name, *options = arguments
    corpus = Path(options[-1])
    for number, seed in enumerate(TARGETS[name].seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)

    def check(data: bytes) -> None:
        if problem := try_input(name, data):
            raise RuntimeError(problem)

    library.Setup([sys.argv[0], *options], check)
    library.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])

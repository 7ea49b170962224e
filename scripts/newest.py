"""Test with the newest version of every dependency, beside the lock that the other tests use.

Users install what their package manager finds today, and not what requirements.lock names. So this
installs that into .venv-newest and runs the tests of what touches other libraries most. llama.cpp
is left out, because compiling it takes minutes and its version is bounded.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
ENVIRONMENT: Final = ROOT / ".venv-newest"
PYTHON: Final = ENVIRONMENT / "bin" / "python"
EXTRAS: Final = "eval,otel,parquet,postgres"
TESTS: Final = ("tests/models", "tests/tools", "tests/server", "tests/cli")


def main(arguments: list[str]) -> int:
    """Install and test; returns the exit code of pytest. `arguments` go to it, too."""
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    run(sys.executable, "-m", "venv", str(ENVIRONMENT))
    run(str(PYTHON), "-m", "pip", "install", "--quiet", "--upgrade", "pip")
    install = ("-m", "pip", "install", "--quiet", "--group", "dev", "--editable", f".[{EXTRAS}]")
    run(str(PYTHON), *install)
    parallel = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
    command = [str(PYTHON), "-m", "pytest", *parallel, *(arguments or TESTS)]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def run(*command: str) -> None:
    """Run a command. Raises `subprocess.CalledProcessError`."""
    subprocess.run(command, cwd=ROOT, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Test with the newest version of every dependency, beside the lock that the other tests use.

Users install what their package manager finds today, and not what requirements.lock names. So this
installs that into .venv-newest and runs the tests of what touches other libraries most. Of
llama.cpp the wheel is taken that `make setup` has compiled: its version is bounded.
"""

from __future__ import annotations

import os
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
    for wheel in compiled_wheels()[-1:]:
        run(str(PYTHON), "-m", "pip", "install", "--quiet", str(wheel))
    parallel = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
    command = [str(PYTHON), "-m", "pytest", *parallel, *(arguments or TESTS)]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def compiled_wheels() -> list[Path]:
    """Return the wheels of llama.cpp that `make setup` has cached, the newest last."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    wheels = (cache / "conductor-llm" / "wheels").glob("*/*.whl")
    return sorted(wheels, key=lambda path: path.stat().st_mtime)


def run(*command: str) -> None:
    """Run a command. Raises `subprocess.CalledProcessError`."""
    subprocess.run(command, cwd=ROOT, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

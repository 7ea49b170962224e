"""Seconds from one key to the first answer, without a compiler: `first_answer.py [WHEEL]`.

It runs the commands of docs/setup.md in an empty home, with a PATH that has Python alone, so that nothing can be
compiled. A server on loopback stands for the provider. Downloads come from the index that pip is set up with.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import chain, repeat
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # for the package `tests`

from tests.cli.stage import says  # noqa: E402 - the line above
from tests.servers import SeenStep, Wire, loopback  # noqa: E402

MODEL: Final = "gpt-6-luna"
QUESTION: Final = "Which river flows through Basel?"


def main() -> None:
    """Install, set up and ask; print the seconds of each."""
    wheel = sys.argv[1] if len(sys.argv) > 1 else str(ROOT)
    answers = chain(("A | - | Name the river.\n",), repeat("The Rhine."))  # the first call of a run asks for a plan

    async def provider(seen: SeenStep, wire: Wire) -> None:
        if seen.method == "GET":
            await wire.json({"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        else:
            await says(next(answers))(seen, wire)

    with loopback(provider) as server, tempfile.TemporaryDirectory() as place:
        home, programs = Path(place, "home"), Path(place, "bin")
        home.mkdir()
        programs.mkdir()
        (programs / "python3").symlink_to(Path(sys.executable).resolve())
        environ = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "LANG"))}
        environ |= {"PATH": str(programs), "HOME": str(home), "THE_KEY": "sk-test"}
        assert not any(shutil.which(name, path=str(programs)) for name in ("cc", "gcc", "c++", "g++", "clang", "cmake"))
        began, command = time.monotonic(), str(home / "venv/bin/conductor")
        worker = f"fast --kind openai-compatible --base-url {server.url}/v1 --model {MODEL} --set key_env=THE_KEY"
        for words in (
            ["python3", "-m", "venv", str(home / "venv")],
            [str(home / "venv/bin/python"), "-m", "pip", "install", "--quiet", "--no-cache-dir", wheel],
            [command, "workers", "add", *worker.split()],
            [command, "config", "set", "conductor.model", "fast"],
            [command, "ask", QUESTION],
        ):
            start = time.monotonic()
            done = subprocess.run(words, env=environ, cwd=home, capture_output=True, text=True, check=False)
            print(f"{time.monotonic() - start:6.1f} s  {' '.join(words)[-70:]}", flush=True)
            assert done.returncode == 0, done.stdout + done.stderr
        print(f"{time.monotonic() - began:6.1f} s  until the answer: {done.stdout.strip()}")


if __name__ == "__main__":
    main()

"""`make demo`: one question, planned by a real GGUF through llama.cpp and answered by three local workers, shown live.

The model is made here, of random weights: what it plans obeys the grammar, and what it writes means nothing. No key, no
network, nothing of the user's settings is read; the trace is stored like any other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache" / "demo"
MODEL = CACHE / "random-weights.gguf"
SETTINGS = CACHE / "config.toml"
MAKER = ROOT / "tests" / "tiny_gguf.py"
SEEDS = range(64, 124)
"""Random weights to try. A seed is good when every worker writes something and ends by itself, which hangs on the last
bits of the arithmetic and so on the machine."""

WORKERS = {"reader": "reading, listing what is known", "solver": "working things out", "writer": "writing it down"}
QUESTION = "A farmer has 17 sheep. All but 9 run away. How many are left, and why do people say 8?"


def main() -> int:
    """Make the model once, then ask."""
    CACHE.mkdir(parents=True, exist_ok=True)
    SETTINGS.write_text(config(), encoding="utf-8")
    made = max(MAKER.stat().st_mtime, Path(__file__).stat().st_mtime)
    if not MODEL.exists() or MODEL.stat().st_mtime < made:
        make_model()
    say("This demo plans with a model of RANDOM weights, made just now: the text it writes has no meaning.")
    say("What is real is the path: the grammar-held plan, the workers, the live steps, the stored trace.\n")
    code = ask("--progress", "auto" if sys.stderr.isatty() else "plain").returncode
    say("\nThe text above is meaningless: random weights. Look closer with:")
    say("  .venv/bin/conductor trace show        .venv/bin/conductor trace replay last --speed 4")
    return code


def make_model() -> None:
    """Make models until one answers: at most a second each. The last one stays where none does."""
    lean = ["--lean", "\\n=4"]  # likelier line ends, so that the plan has several steps
    for seed in SEEDS:
        say(f"Making a model of random weights, seed {seed} …")
        make = [sys.executable, str(MAKER), str(MODEL), "--seed", str(seed), *lean]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
        tried = ask("--no-trace", "--format", "json", "--progress", "none", unheard=True)
        if tried.returncode == 0 and len(json.loads(tried.stdout)["steps"]) > 1:
            return


def ask(*options: str, unheard: bool = False) -> subprocess.CompletedProcess[bytes]:
    """The question, put to the command as a user would; `unheard` keeps what it prints."""
    command = [sys.executable, "-m", "conductor_cli", "--config", str(SETTINGS), "ask", QUESTION]
    command += ["--conductor", str(MODEL), *options]
    return subprocess.run(
        command, check=False, env=clean_environment(), stdin=subprocess.DEVNULL, capture_output=unheard
    )


def config() -> str:
    """Three workers on the same weights, which are loaded once."""
    tables = [
        f'[workers.{name}]\nkind = "llama"\nmodel = {str(MODEL)!r}\nabout = "{about}"\nmax_tokens = 60\n'
        for name, about in WORKERS.items()
    ]
    return "\n".join(["[limits]\nattempts = 1\n", *tables])


def clean_environment() -> dict[str, str]:
    """No setting and no key of the user's takes part."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith("CONDUCTOR_LLM_") or "_DIR" in name
    }


def say(text: str) -> None:
    """A line on stderr, in order with what the command writes there."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""`make demo`: one question, planned by a real GGUF through llama.cpp and answered by three local workers, shown live.

The model is made here, of random weights: what it plans obeys the grammar, and what it writes means nothing. No key, no
network, nothing of the user's settings is read; the trace is stored like any other.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache" / "demo"
MODEL = CACHE / "random-weights.gguf"
SEED = "22"
"""A seed whose plan has several steps, two of them at the same time, and whose workers write something."""

WORKERS = {"reader": "reading, listing what is known", "solver": "working things out", "writer": "writing it down"}
QUESTION = "A farmer has 17 sheep. All but 9 run away. How many are left, and why do people say 8?"


def main() -> int:
    """Make the model once, then ask."""
    CACHE.mkdir(parents=True, exist_ok=True)
    maker = ROOT / "tests" / "tiny_gguf.py"
    if not MODEL.exists() or MODEL.stat().st_mtime < max(maker.stat().st_mtime, Path(__file__).stat().st_mtime):
        lean = ["--lean", "\\n=4"]  # likelier line ends, so that the plan has several steps
        subprocess.run(
            [sys.executable, str(maker), str(MODEL), "--seed", SEED, *lean], check=True, stdout=subprocess.DEVNULL
        )
    settings = CACHE / "config.toml"
    settings.write_text(config(), encoding="utf-8")
    say("This demo plans with a model of RANDOM weights, made just now: the text it writes has no meaning.")
    say("What is real is the path: the grammar-held plan, the workers, the live steps, the stored trace.\n")
    command = [sys.executable, "-m", "conductor_cli", "--config", str(settings), "ask", QUESTION]
    command += ["--conductor", str(MODEL), "--progress", "auto" if sys.stderr.isatty() else "plain"]
    code = subprocess.run(command, check=False, env=clean_environment(), stdin=subprocess.DEVNULL).returncode
    say("\nThe text above is meaningless: random weights. Look closer with:")
    say("  .venv/bin/conductor trace show        .venv/bin/conductor trace replay last --speed 4")
    return code


def config() -> str:
    """Three workers on the same weights, which are loaded once."""
    tables = [
        f'[workers.{name}]\nkind = "llama"\nmodel = {str(MODEL)!r}\nabout = "{about}"\nmax_tokens = 60\n'
        for name, about in WORKERS.items()
    ]
    return "\n".join(tables)


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

"""`make demo`: one question, planned and answered by the models that ship with this tool, shown live.

The models are real but tiny, and were trained by this repository: they only answer the rehearsal's small questions. No
key, no network and no settings of the user are needed; the trace is stored like any other.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

QUESTION: Final = "Find the capital of France, then spell it backwards, then count its letters."


def main() -> int:
    """Ask the question with the command that a user would type."""
    say("Fourteen tiny models, trained by this repository: one plans, thirteen work.")
    say("They know words, small numbers and a few tables of facts.")
    say(f"> {QUESTION}\n")
    command = [sys.executable, "-m", "conductor_cli", "ask", "--rehearsal", QUESTION]
    command += ["--progress", "auto" if sys.stderr.isatty() else "plain"]
    code = subprocess.run(command, check=False, env=clean_environment(), stdin=subprocess.DEVNULL).returncode
    say("\nLook at the run, or compare every way of using these models on the same questions:")
    say("  .venv/bin/conductor trace show")
    say("  .venv/bin/conductor trace replay last --speed 0.2")
    say("  .venv/bin/conductor eval rehearsal --n 100")
    return code


def clean_environment() -> dict[str, str]:
    """The environment without the user's settings."""
    kept = (name for name in os.environ if not name.startswith("CONDUCTOR_LLM_") or "_DIR" in name)
    return {name: os.environ[name] for name in kept}


def say(text: str) -> None:
    """Print a line on stderr, in order with the output of the command."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

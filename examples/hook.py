#!/usr/bin/env python3
"""A Git hook that asks by a template: commits on a release branch get a code name.

Install it: cp examples/codename.toml ~/.config/conductor-llm/templates/
            cp examples/hook.py .git/hooks/prepare-commit-msg
             chmod +x .git/hooks/prepare-commit-msg
On a branch such as `release/france`, a commit gets the line `Code-Name: SIRAP`. A hook must not
stop a commit because a model is away: then it says so, and the commit goes on without the line.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SECONDS = 60


def code_name(place: str) -> str:
    """Return the answer by the template `codename`, empty where there is none."""
    command = ["conductor", "--quiet", "ask", "--demo", "-t", "codename", place]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"hook: no code name: {error}", file=sys.stderr)
        return ""
    if done.returncode != 0:
        print(f"hook: no code name: {done.stderr.strip()}", file=sys.stderr)
        return ""
    return done.stdout.strip()


def main(message_file: Path) -> None:
    """Add the line to a message that has none."""
    branch = subprocess.run(
        ["git", "branch", "--show-current"], capture_output=True, text=True, check=True
    ).stdout.strip()
    message = message_file.read_text(encoding="utf-8")
    if not branch.startswith("release/") or "Code-Name:" in message:
        return
    name = code_name(branch.removeprefix("release/").title())
    if name:
        message_file.write_text(f"{message.rstrip()}\n\nCode-Name: {name}\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""The fields of JSON outputs: what commands print on a stage of workers that answer at once.

A value that depends on the machine, as a check of `doctor`, counts by its fields only.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, Final

from scripts.reference.surface import output_facts
from tests.cli.stage import TWO, Stage

NOT_PRINTED: Final = {
    "model pull": "it prints progress in events of the download",
    "model verify": "it needs a stored model",
    "state": "it needs PostgreSQL",
    "tune": "it needs a local model",
    "tools test": "it needs a server of tools",
    "train": "it needs PyTorch",
}
"""Commands with `--json` that are not run here, and why. Their fields are held by their own
tests.
"""

CASES: Final = [
    {
        "id": f"c{number}",
        "question": "What do you say?",
        "answer": "alpha",
        "scorer": "contains",
        "tags": ["words"],
    }
    for number in range(2)
]


def printed_facts(stage: Stage, directory: Path) -> set[str]:
    """Facts about all JSON that the commands print.

    `directory` is a directory for the files that they read.
    """
    stage.plan = TWO
    stage.configure(
        workers={
            "alpha": 'about = "good at words"\ntags = ["words"]\nprice = { input = 1, output = 2 }',
            "beta": "price = { input = 1, output = 2 }",
        }
    )
    stage.pool("both", "alpha", "beta")
    cases = directory / "cases.jsonl"
    questions = directory / "questions.txt"
    out = directory / "out.jsonl"
    cases.write_text("".join(f"{json.dumps(case)}\n" for case in CASES))
    questions.write_text("How are you?\n")
    options = ("--base-url", stage.url, "--insecure-storage")
    stage.ok("keys", "set", "openai", *options, given="sk-" + "x" * 40)
    stage.ok("tools", "add", "git", "--", "true")
    stage.ok("serve", "keys", "add", "laptop", "--max-cost-day", "5")
    facts = output_facts("ask --format json", [stage.ok("ask", "What?", "--format", "json").json])
    facts |= output_facts("plan", [stage.ok("plan", "What?").json])
    stage.ok("batch", questions, "-o", out, "--yes")
    facts |= output_facts("batch", [json.loads(line) for line in out.read_text().splitlines()])
    stage.ok("trace", "rate", "last", "good")
    for name, words in {
        "template": ("list",),
        "setup": (),
        "doctor": ("--offline",),
        "config show": (),
        "model list": (),
        "workers list": (),
        "workers models": (stage.url,),
        "workers show": ("alpha",),
        "workers test": ("alpha",),
        "workers calibrate": (cases, "--yes"),
        "tools list": (),
        "keys list": (),
        "keys test": (),
        "trace list": (),
        "trace show": ("last", "--prompts"),
        "trace verify": ("last",),
        "cost": (),
        "eval": (cases, "--yes", "--systems", "alone:alpha,vote,conductor"),
        "serve keys list": (),
    }.items():
        done = stage.inside(*name.split(), *words, "--json")
        assert done.out, (name, done)
        facts |= output_facts(f"{name} --json", [done.json])
    facts |= output_facts(
        "trace show --step", [stage.ok("trace", "show", "last", "--step", "1", "--json").json]
    )
    return facts | output_facts("eval --list --json", [stage.ok("eval", "--list", "--json").json])


def print_on_a_stage() -> set[str]:
    """Facts about the JSON outputs of this checkout, on a stage in a home of its own."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        places: dict[str, Any] = {"HOME": home, "USERPROFILE": home}
        places |= {
            f"XDG_{kind}_HOME": home / kind.lower() for kind in ("CONFIG", "DATA", "STATE", "CACHE")
        }
        os.environ.update({key: str(path) for key, path in places.items()})
        os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.null.Keyring"
        stage = Stage(home)
        with stage.server:
            return printed_facts(stage, home)

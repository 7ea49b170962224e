"""Which words a value may be, and which command lists the names that only the program knows."""

from __future__ import annotations

import re
from typing import Final

from conductor_cli.config.schema import SETTINGS_BY_NAME
from conductor_cli.evals.suites import SUITES
from conductor_cli.evals.systems import NAMES
from conductor_cli.keys.key_store import PROVIDERS
from conductor_cli.models.presets import shipped_pools
from conductor_cli.models.worker_options import EFFORTS, kinds

FIXED: Final[dict[str, tuple[str, ...]]] = {
    "config get SECTION.KEY": tuple(SETTINGS_BY_NAME),
    "config set SECTION.KEY": tuple(SETTINGS_BY_NAME),
    "eval rehearsal|basics|SUITE|CASES.jsonl": ("rehearsal", "basics", *SUITES),
    "eval --systems": NAMES,
    "keys set PROVIDER": PROVIDERS,
    "keys rm PROVIDER": PROVIDERS,
    "keys test PROVIDER": PROVIDERS,
    "pools add NAME": tuple(shipped_pools()),
    "train --cases": ("basics", *SUITES),
    "workers add --kind": kinds(),
    "workers add --accepts": ("image", "pdf", "none"),
    "workers add --reasoning-effort": EFFORTS,
}
"""Values from the program's own tables, by command and option, or by the name of an argument."""

WORKERS: Final = {
    "workers test NAME": "",
    "workers show NAME": "",
    "pools add WORKER": "",
    "trace list --worker": "",
    "trace search --worker": "",
    "workers rm NAME": " --own",
    "workers enable NAME": " --own --disabled",
    "workers disable NAME": " --own --enabled",
}
"""Arguments and options that are workers, and the flags that list the suitable ones."""

SELECTED: Final = ("--workers", "--worker", "--allow", "--deny")
"""Options that choose among the workers that are enabled, in every other command."""

RUNS: Final = ("ask --continue-from", "ask --resume", "chat --continue-from")
"""Options that name a stored run, as the arguments of `trace` do."""

POOLS: Final = {
    "pools show NAME": " --known",
    "pools use NAME": "",
    "pools rm NAME": " --own",
}
"""Arguments that are pools, and the flag that lists the suitable ones."""

TOOLS: Final = {"tools test NAME": "", "tools rm NAME": " --own", "workers add --tools": ""}
"""Arguments that are servers of tools, and the flag that lists the suitable ones."""

_WORD: Final = re.compile(r"[a-z][a-z0-9-]*")


def words_of(place: str, metavar: str) -> tuple[str, ...]:
    """The words for a value at this place: of a table, or those that its name has in small letters (`ID|last`)."""
    return FIXED.get(place) or tuple(word for word in metavar.strip("[]").split("|") if _WORD.fullmatch(word))


def asked_of(place: str, metavar: str) -> str:
    """The command that prints the names for a value at this place, a line each; empty where there is none.

    A value that is called NAME is a model's on `--conductor` and `--base`, and as what `model` is to work on.
    """
    command, _, name = place.rpartition(" ")
    if place in RUNS or (command.startswith("trace ") and {"RUN", "OTHER"} & {*re.split(r"\W+", metavar)}):
        return "trace names"
    if name in SELECTED or place in WORKERS:
        return f"workers names{WORKERS.get(place, ' --enabled')}"
    if name == "--pool" or place in POOLS:
        return f"pools names{POOLS.get(place, '')}"
    if name in {"--tools", "--allow-tools"} or place in TOOLS:
        return f"tools names{TOOLS.get(place, '')}"
    return _model_names(place, metavar)


def _model_names(place: str, metavar: str) -> str:
    command, _, name = place.rpartition(" ")
    if place == "setup --model":
        return "model names --known"
    of_model = command.startswith("model ") and not name.startswith("-")
    if "NAME" not in re.split(r"\W+", metavar) or not (of_model or name in {"--conductor", "--base"}):
        return ""
    # A worker may plan, too.
    if name == "--conductor" or command == "model use":
        return "model names --planners"
    return "model names --known" if command == "model pull" else "model names --here"

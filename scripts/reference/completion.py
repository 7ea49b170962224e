"""The table of words from which `cli/completion_offers.py` completes a command line."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from conductor_cli.config.schema import SETTINGS_BY_NAME
from conductor_cli.evals.suites import SUITES
from conductor_cli.evals.systems import NAMES as SYSTEMS
from conductor_cli.models.worker_options import kinds
from conductor_cli.server.launch import CLIENTS
from conductor_cli.state.key_store import PROVIDERS
from scripts.reference.commands import Command, Parameter

WORDS: Final[dict[str, tuple[str, ...]]] = {
    "config show SECTION.KEY": tuple(SETTINGS_BY_NAME),
    "config set SECTION.KEY": tuple(SETTINGS_BY_NAME),
    "eval rehearsal|basics|everyday|SUITE|FILE": ("rehearsal", "basics", "everyday", *SUITES),
    "eval --systems": SYSTEMS,
    "launch CLIENT": tuple(CLIENTS),
    "keys set PROVIDER": PROVIDERS,
    "keys rm PROVIDER": PROVIDERS,
    "keys test PROVIDER": PROVIDERS,
    "train --cases": ("basics", *SUITES),
    "workers add --kind": kinds(),
}
"""Values from the program's own tables, by command and option, or by the name of an argument."""

NAMES: Final = {
    "RUN": "runs",
    "--continue-from": "runs",
    "--resume": "runs",
    "--workers": "workers",
    "--worker": "workers",
    "ask --model": "workers",
    "chat --model": "workers",
    "--allow": "workers",
    "--deny": "workers",
    "tools add --allow": "",
    "workers show NAME": "workers",
    "workers test NAME": "workers",
    "workers rm NAME": "workers",
    "--template": "templates",
    "template NAME": "templates",
    "chat --name": "conversations",
    "--pool": "pools",
    "--tools": "tools",
    "--allow-tools": "tools",
    "tools test NAME": "tools",
    "tools rm NAME": "tools",
    "--planner": "models --planners",
    "model use NAME|FILE|URL|PROVIDER/MODEL": "models --planners",
    "model pull NAME|OWNER/REPO[:QUANT]": "models --known",
    "setup --model": "models --known",
    "model verify NAME": "models",
    "model rm NAME": "models",
    "--base": "models",
    "train --base": "",
}
"""Names to look up, by command and option or argument; or by these alone, for every other command
that has them.
"""


def words_table(root: Command) -> str:
    """The table as JSON, with a line for each command; see `completion_offers.Table`."""
    everywhere = next(command.everywhere for command in root.walk() if command.words)
    table: dict[str, Any] = {"*": _options("", everywhere)}
    for command in root.walk():
        words = " ".join(command.words)
        table[words] = {
            "commands": {child.words[-1]: child.summary for child in command.commands},
            "options": _options(words, command.options),
            "arguments": [_value(words, argument) for argument in command.arguments],
        }
    lines = [f"{json.dumps(key)}: {json.dumps(entry)}" for key, entry in table.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _options(words: str, options: tuple[Parameter, ...]) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for option in options:
        value = None if option.kind == "flag" else _value(words, option)
        for name in option.names:
            entries[name] = (option.help, value)
    return entries


def _value(words: str, parameter: Parameter) -> dict[str, Any]:
    """What a value may be, without what is empty."""
    name = max(parameter.names, key=len, default=parameter.metavar)
    position = f"{words} {name}".strip()
    # The name of a value has some words in small letters: `ID|last`.
    metavar_words = tuple(
        word for word in parameter.metavar.split("|") if re.fullmatch(r"[a-z][a-z0-9-]*", word)
    )
    value = {
        "words": WORDS.get(position) or parameter.choices or metavar_words,
        "names": NAMES.get(position, NAMES.get(name, "")),
        "paths": {"file": "files", "directory": "directories"}.get(parameter.kind, ""),
        "many": "A,B" in parameter.metavar,
        "several": bool(parameter.names) and parameter.metavar.endswith("..."),
        "repeats": parameter.many and not parameter.names,
    }
    return {key: item for key, item in value.items() if item}

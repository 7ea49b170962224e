"""The meaning of each exit code, one sentence each; checked against the program's own table."""

from __future__ import annotations

from typing import Final

from conductor_cli.core.errors import EXIT_CODES

EXITS: Final[dict[int, str]] = {
    0: "The command succeeded.",
    1: "The run failed.",
    2: "The command line, or a file named on it, is invalid.",
    3: "A setting is invalid, or the policy forbids the request.",
    4: "An API key is missing or was refused.",
    5: "The model that plans is missing, damaged, unreachable, or of a kind that cannot be loaded.",
    6: "A limit was reached (also when there is a partial answer).",
    7: "The answer is partial.",
    8: "No worker could be reached.",
    130: "The command was interrupted (Ctrl-C).",
    143: "The command was terminated (SIGTERM or a closed terminal).",
}

if missing := set(EXIT_CODES.values()) ^ (EXITS.keys() - {0}):
    raise ValueError(f"exit codes without a sentence here, or sentences without an exit code: {sorted(missing)}")

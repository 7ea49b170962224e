"""What the exit codes of the program mean, one sentence each; held against the program's own table."""

from __future__ import annotations

from typing import Final

from conductor_cli.core.errors import EXIT_CODES

EXITS: Final[dict[int, str]] = {
    0: "It went well.",
    1: "The run failed.",
    2: "The command line, or a file named on it, cannot be understood.",
    3: "A setting cannot be used, or a rule forbids what was asked.",
    4: "A key is missing, or was refused.",
    5: "The conductor model is missing, damaged, or of a kind that cannot be loaded.",
    6: "A limit was reached (also when there is a partial answer).",
    7: "The answer is partial.",
    8: "No worker could be reached.",
    130: "It was interrupted.",
    143: "It was terminated.",
}

if missing := set(EXIT_CODES.values()) ^ (EXITS.keys() - {0}):
    raise ValueError(f"exit codes without a sentence here, or without a kind of error: {sorted(missing)}")

"""How long a chat takes until it shows where to type, and until the prompt takes keys, beside `conductor --version`."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Final

import pexpect
from figures import Figure, Table, conductor, newcomer, ratio, show, spent

ROUNDS: Final = 7
PATIENCE: Final = 60
MARK: Final = "\u203a"
RAW: Final = "\x1b\\[\\?2004h"
"""How prompt_toolkit asks a terminal to tell pastes: the prompt is there."""
CTRL_D: Final = "\x04"


def measure() -> Table:
    """The three in turn, `ROUNDS` times, after one round that is not counted: it fills the caches."""
    with tempfile.TemporaryDirectory() as place:
        environ = newcomer(place)
        rounds = [_round(environ) for _ in range(ROUNDS + 1)][1:]
    version, mark, prompt = (list(values) for values in zip(*rounds, strict=True))
    return Table(
        title="chat",
        about=f"`conductor chat --rehearsal` in a pseudo-terminal; median of {ROUNDS} rounds.",
        figures=(
            _figure("the mark before what is typed, as a multiple of `conductor --version`", mark, version, 5.0),
            _figure("the prompt with its keys, as a multiple of `conductor --version`", prompt, version, None),
        ),
    )


def _figure(what: str, taken: Sequence[float], version: Sequence[float], bound: float | None) -> Figure:
    also = f"{statistics.median(taken) * 1e3:.0f} ms beside {statistics.median(version) * 1e3:.0f} ms"
    return Figure(what=what, value=ratio(taken, version), unit="ratio", bound=bound, also=also)


def _round(environ: Mapping[str, str]) -> tuple[float, float, float]:
    """Seconds of `--version`, and of a chat until its mark and until its prompt."""
    version = spent([*conductor(), "--version"], environ).wall
    command, *arguments = [*conductor(), "chat", "--rehearsal"]
    began = time.perf_counter()
    with_terminal = {**environ, "TERM": "xterm-256color"}
    chat = pexpect.spawn(command, arguments, env=with_terminal, encoding="utf-8", timeout=PATIENCE)
    chat.expect(MARK)
    mark = time.perf_counter() - began
    chat.expect(RAW)
    prompt = time.perf_counter() - began
    chat.send(CTRL_D)
    chat.expect(pexpect.EOF)
    chat.close()
    return version, mark, prompt


if __name__ == "__main__":
    sys.exit(show(measure()))

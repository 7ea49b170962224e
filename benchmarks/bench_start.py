"""How long the command line takes to say its version and its help, beside `llm`, a tool of the same kind; and a tab."""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Final

from figures import Figure, Spent, Table, conductor, newcomer, ratio, show, spent

ROUNDS: Final = 11
WORKERS: Final = 20
WORKER: Final = '[workers.worker{0}]\nkind = "openai"\nmodel = "model-{0}"\nabout = "One of many."\n'
TAB: Final = f"names of {WORKERS} workers for a shell, as a multiple of `conductor --version`"


def measure() -> Table:
    """Every command in turn, `ROUNDS` times, after one round that is not counted: it fills the caches."""
    commands = {
        "llm --help": [_llm(), "--help"],
        "conductor --version": [*conductor(), "--version"],
        "conductor --help": [*conductor(), "--help"],
        "python -c pass": [sys.executable, "-c", "pass"],
        TAB: [*conductor(), "workers", "names"],
    }
    with tempfile.TemporaryDirectory() as place:
        environ = newcomer(place)
        Path(place, "settings.toml").write_text("\n".join(WORKER.format(number) for number in range(WORKERS)))
        environ["CONDUCTOR_LLM_CONFIG_DIR"] = place
        rounds = [{name: spent(command, environ) for name, command in commands.items()} for _ in range(ROUNDS + 1)][1:]
    seen = {name: [each[name] for each in rounds] for name in commands}
    return Table(
        title="start",
        about=f"Wall time as a share of that of `llm --help`, taken in the same round; median of {ROUNDS} rounds.",
        figures=(
            _share("conductor --version", seen, 0.25),
            _share("conductor --help", seen, 0.40),
            _share("python -c pass", seen, None),
            _share(TAB, seen, 2.0, of="conductor --version"),
            Figure(
                what="llm --help itself",
                value=statistics.median(one.wall for one in seen["llm --help"]),
                unit="ms",
                also=spread_of(seen["llm --help"]),
            ),
        ),
    )


def _share(name: str, seen: dict[str, list[Spent]], bound: float | None, of: str = "llm --help") -> Figure:
    ours, theirs = seen[name], seen[of]
    value = ratio([one.wall for one in ours], [one.wall for one in theirs])
    return Figure(what=name, value=value, unit="ratio", bound=bound, also=spread_of(ours))


def spread_of(runs: list[Spent]) -> str:
    """Median wall and processor time."""
    wall, cpu = (statistics.median(values) * 1e3 for values in ([r.wall for r in runs], [r.cpu for r in runs]))
    return f"{wall:.0f} ms, of processor time {cpu:.0f} ms"


def _llm() -> str:
    beside = Path(sys.executable).with_name("llm")
    found = str(beside) if beside.exists() else shutil.which("llm")
    if found is None:
        raise SystemExit("start is measured against llm, which is not installed: pip install llm, or make setup")
    return found


if __name__ == "__main__":
    sys.exit(show(measure()))

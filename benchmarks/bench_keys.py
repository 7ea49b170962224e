"""What stored keys cost a start: none, five in a file, five in a keyring that never answers."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from figures import Figure, Spent, Table, conductor, newcomer, show, spent

sys.path.insert(0, str(Path(__file__).parents[1]))

ROUNDS: Final = 5
SLACK: Final = 0.15
"""Seconds that runs of the same command may differ: the list asks no keyring, so one that hangs delays nothing."""

PROVIDERS: Final = ("openai", "anthropic", "gemini", "mistral", "xai")


def measure() -> Table:
    """The commands in turn, `ROUNDS` times, after one round that is not counted."""
    from tests.keys.bus import bus, wedged

    with ExitStack() as held:
        place = Path(held.enter_context(tempfile.TemporaryDirectory()))
        address = held.enter_context(bus(place))
        held.enter_context(wedged(address))
        environ = newcomer(str(place)) | {"DBUS_SESSION_BUS_ADDRESS": address}
        environ.pop("PYTHON_KEYRING_BACKEND", None)
        commands = {
            "conductor --version": ([*conductor(), "--version"], environ),
            "none": ([*conductor(), "keys", "list"], environ),
            "file": ([*conductor(), "keys", "list"], environ | kept(place / "file", "file")),
            "wedged": ([*conductor(), "keys", "list"], environ | kept(place / "wedged", "keyring")),
        }
        rounds = [{name: spent(*what) for name, what in commands.items()} for _ in range(ROUNDS + 1)][1:]
    seen = {name: [each[name] for each in rounds] for name in commands}
    return Table(
        title="keys",
        about=f"`conductor keys list`, wall time, median of {ROUNDS} rounds. The keyring is a service on its own bus "
        "that takes calls and never answers.",
        figures=(
            Figure(what="conductor --version", value=_median(seen["conductor --version"]), unit="ms"),
            Figure(what="no stored key", value=_median(seen["none"]), unit="ms"),
            Figure(what="five in a file, beyond none", value=_beyond(seen["file"], seen["none"]), unit="ms"),
            Figure(
                what="five in a wedged keyring, beyond none", value=_beyond(seen["wedged"], seen["none"]), unit="ms",
                bound=SLACK,
            ),
        ),
    )  # fmt: skip


def kept(place: Path, where: str) -> dict[str, str]:
    """A data directory with five stored keys, and the variable that names it."""
    place.mkdir()
    entry = {"base_url": "https://llm.example.com/v1", "since": "2026-11-01T00:00:00+00:00", "where": where}
    entry |= {"key": "made-up-for-a-benchmark"} if where == "file" else {}
    path = place / "keys.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps({"keys": dict.fromkeys(PROVIDERS, entry)}))
    return {"CONDUCTOR_LLM_DATA_DIR": str(place)}


def _median(runs: list[Spent]) -> float:
    return statistics.median(one.wall for one in runs)


def _beyond(runs: list[Spent], others: list[Spent]) -> float:
    return statistics.median(one.wall - other.wall for one, other in zip(runs, others, strict=True))


if __name__ == "__main__":
    sys.exit(show(measure()))

"""Puts an adapter that was examined into the package, with its figures.

    python -m training.planner.ship --adapter adapter.gguf --examined DIR

The adapter is packed (8 bits a number, about half the bytes) and written beside the registry, with
what `examine` found as its record. `model pull` unpacks it again, so the adapter to examine is the
unpacked one:

    python -m training.planner.ship --adapter adapter.gguf --rounded rounded.gguf
    python -m training.planner.examine --model FILE.gguf --adapter rounded.gguf --out DIR
    python -m training.planner.ship --adapter adapter.gguf --examined DIR

Figures of another adapter than the one that ships are refused.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import conductor_cli.models.weights.registry as registry_module
from conductor_cli.models.llama.lora import pack_adapter, unpack_adapter
from conductor_cli.models.weights.registry import read_record
from conductor_cli.models.weights.verify import hash_file

NAME: Final = "conductor-0.5b"  # Of the planner that is shipped unless `--name` says another
PLANNERS: Final = registry_module.SHIPPED.parent / "planners"

PUBLISHED: Final = {
    "easy questions in one step": "easy in one step",
    "odd ones in one step": "odd in one step",
    "several steps where they help": "several steps where they help",
    "first worker as the cards say": "first worker is the best for the skill",
    "same worker in both orders of a pool": "same worker in both orders",
    "plans with an unread step before the repair": "plans with an unread step",
}
"""The figures that `model list` shows, by what it calls them: the names of `examine` behind."""


def round_adapter(adapter: Path, out: Path) -> None:
    """Write the adapter to `out` as `model pull` unpacks it, which is what must be examined.

    Raises `ModelError` of kind `file`.
    """
    with TemporaryDirectory() as directory:
        packed = Path(directory) / "packed.gguf"
        pack_adapter(adapter, packed)
        unpack_adapter(packed, out)


def ship(adapter: Path, examined: Path, directory: Path, name: str = NAME) -> Path:
    """Write the packed adapter and its record into `directory`, and return the adapter's path.

    `examined` is the directory of an examination. Raises `ValueError` where that was of another
    adapter, `OSError`, and `ModelError` of kind `file`.
    """
    result = json.loads((examined / "figures.json").read_text())
    with TemporaryDirectory() as temporary:
        rounded = Path(temporary) / "rounded.gguf"
        round_adapter(adapter, rounded)
        if hash_file(rounded) != result["adapter_sha256"]:
            raise ValueError(f"{examined} is the examination of another adapter than {adapter}")
    path = directory / f"{name}.gguf"
    pack_adapter(adapter, path)
    record = {
        "sha256": hash_file(path),
        "base_sha256": result["model_sha256"],
        "examined": result["examined"],
        "figures": shown_figures(result),
    }
    path.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
    read_record(path)
    return path


def shown_figures(result: Mapping[str, Any]) -> dict[str, str]:
    """Return the figures of an examination that users see, each with what it is out of."""
    return {shown: result[name] for shown, name in PUBLISHED.items() if name in result}


def main() -> int:
    """Pack an adapter for the package, or write what of it must be examined."""
    parser = argparse.ArgumentParser(prog="python -m training.planner.ship")
    parser.add_argument("--adapter", type=Path, required=True)
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--rounded", type=Path, help="write the adapter as it will be used")
    wanted.add_argument("--examined", type=Path, help="the directory of its examination")
    parser.add_argument("--name", default=NAME, help="the planner's name in the registry")
    parser.add_argument("--out", type=Path, default=PLANNERS)
    given = parser.parse_args()
    if given.rounded is not None:
        round_adapter(given.adapter, given.rounded)
        return 0
    path = ship(given.adapter, given.examined, given.out, given.name)
    print(f"{path}: {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

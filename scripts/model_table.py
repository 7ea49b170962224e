"""Writes `models/model_table.json.xz`: what is read of the installed litellm's table of models.

    python scripts/model_table.py

A part of a release, after `make lock` has chosen the newest litellm.
"""

from __future__ import annotations

import json
import lzma
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from conductor_cli.models.prices import LITELLM_TABLE, SHIPPED_TABLE, is_field_read, is_row_read


def main() -> None:
    """Write the table, and say what it has."""
    rows = compact_rows(litellm_rows())
    table = {
        "litellm": version("litellm"),
        "as_of": f"{datetime.now(UTC):%Y-%m-%d}",
        "models": rows,
    }
    text = json.dumps(table, separators=(",", ":"))
    packed = lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)
    SHIPPED_TABLE.write_bytes(packed)
    print(
        f"{SHIPPED_TABLE.name}: {len(rows):,} models, {len(text):,} bytes, {len(packed):,} packed"
    )


def litellm_rows() -> dict[str, Any]:
    """Return the table in the installed litellm, read as data."""
    spec = find_spec("litellm")
    if spec is None or spec.origin is None:
        raise SystemExit("litellm is not installed: make setup")
    rows: dict[str, Any] = json.loads(Path(spec.origin).with_name(LITELLM_TABLE).read_bytes())
    return rows


def compact_rows(rows: dict[str, Any]) -> dict[str, Any]:
    """Return the rows of models that answer questions, with the fields that are read."""
    compact = {}
    for name, row in rows.items():
        if is_row_read(row):
            compact[name] = {key: value for key, value in row.items() if is_field_read(key)}
    return compact


if __name__ == "__main__":
    main()

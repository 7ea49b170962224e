"""The tables of a small world, in two releases."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from training.planner.world.tables import write_rows


def country(name: str, population: int) -> dict[str, object]:
    return {
        "iso": name[:2].upper(),
        "name": name,
        "capital": f"{name} City",
        "areakm2": 1000,
        "population": population,
        "currencycode": "EUR",
        "phone": "33",
        "continentcode": "EU",
    }


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, Path]:
    """Two releases: in the older one every country has fewer people."""
    files = {name: tmp_path / f"{name}.sqlite" for name in ("new", "old")}
    for name, factor in (("new", 10), ("old", 9)):
        database = sqlite3.connect(files[name])
        countries = [
            country(f"Land{letter}", factor * 1000 * number)
            for number, letter in enumerate("bcdfgh", 1)
        ]
        cities = [
            {"name": f"Town{letter}", "countrycode": "LA", "population": 600_000}
            for letter in "xyz"
        ]
        write_rows(database, countries, cities)
        database.close()
    return files

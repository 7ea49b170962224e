"""The command that adds an extra, for each way in which conductor is installed."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest

from conductor_cli.system import installation
from conductor_cli.system.installation import extra_command, installed_extras

REQUIREMENTS = [
    "typer>=0.26",
    'pyarrow>=24; extra == "parquet"',
    'pytest>=9; extra == "local"',
    'uvloop>=0.22; (sys_platform != "win32") and extra == "local"',
    'no-such-package>=1; extra == "otel"',
    'pytest>=9; extra == "otel"',
]


@pytest.fixture(autouse=True)
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in which conductor is installed, with these requirements."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(metadata, "requires", lambda _: REQUIREMENTS)
    return tmp_path


def test_an_extra_is_installed_where_all_of_its_packages_are() -> None:
    assert "local" in installed_extras()
    assert "otel" not in installed_extras()


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("uv-receipt.toml", 'uv tool install "conductor-llm[local,otel]"'),
        ("pipx_metadata.json", 'pipx install --force "conductor-llm[local,otel]"'),
        ("pyvenv.cfg", f'{sys.executable} -m pip install "conductor-llm[otel]"'),
    ],
)
def test_the_command_fits_the_installation_and_keeps_its_extras(
    prefix: Path, file: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "installed_extras", lambda: ("local",))
    (prefix / file).touch()
    assert extra_command("otel") == command


def test_a_source_that_is_not_installed_has_no_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(_: str) -> list[str]:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "requires", requires)
    assert installed_extras() == ()

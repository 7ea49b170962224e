"""The wheel holds what is no Python: tables, small models, completions, and man pages by their section."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]


def built(place: Path, how: str) -> list[str]:
    """The names of the files in a wheel that is built here; those of its data begin with `share/`."""
    code = f"from hatchling.build import {how}; print({how}({str(place)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    with ZipFile(place / done.stdout.split()[-1]) as wheel:
        return [re.sub(r"^[^/]+\.data/data/", "", name) for name in wheel.namelist()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    return set(built(tmp_path_factory.mktemp("wheel"), "build_wheel"))


def test_tables_and_small_models_are_in_the_package(wheel: set[str]) -> None:
    beside = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src").rglob("*")
        if path.suffix in {".toml", ".json", ".jsonl", ".xz", ".gguf", ".j2", ".conf"}
    }
    assert {
        "models/presets.toml", "models/cards.toml", "models/weights/registry.toml", "rehearsal/held_out.jsonl.xz",
        "templates/run.html.j2",
    } <= {name.removeprefix("conductor_cli/") for name in beside}  # fmt: skip
    assert beside <= wheel


def test_man_pages_are_installed_by_section(wheel: set[str]) -> None:
    wanted = {f"share/{page.relative_to(ROOT)}" for page in (ROOT / "man").glob("*/*")}
    assert {"share/man/man1/conductor.1", "share/man/man5/conductor-config.5"} <= wanted
    assert {name for name in wheel if name.startswith("share/man/")} == wanted


def test_completions_are_installed_for_shells_and_in_the_package(wheel: set[str]) -> None:
    assert {
        "share/bash-completion/completions/conductor", "share/zsh/site-functions/_conductor",
        "share/fish/vendor_completions.d/conductor.fish", "share/conductor-llm/completions/conductor.ps1",
    } == {name for name in wheel if name.startswith("share/") and not name.startswith("share/man/")}  # fmt: skip
    assert {f"conductor_cli/completions/conductor.{end}" for end in ("bash", "zsh", "fish", "ps1")} <= wheel

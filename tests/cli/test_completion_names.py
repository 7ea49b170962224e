"""The names for a shell, which come before anything heavy is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from conductor_cli.cli import completion_names
from conductor_cli.config import app_paths
from tests.cli.stage import Stage

LOADED = """
import json, sys
from conductor_cli.__main__ import main
sys.argv = ["conductor", *sys.argv[1:]]
main()
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""

OWN = """
[workers.mine]
kind = "openai"

[workers.tired]
enabled = false

[workers.rested]
enabled = false

[pools.small]
workers = ["mine"]
"""


@pytest.fixture
def filled(home: Path) -> None:
    config = home / "config/conductor-llm"
    config.mkdir(parents=True, exist_ok=True)
    config.joinpath("settings.toml").write_text(OWN)
    for name in ("here", "broken"):
        manifest = home / f"data/conductor-llm/models/{name}/manifest.toml"
        manifest.parent.mkdir(parents=True)
        manifest.write_text("no = manifest")


@pytest.mark.parametrize(
    ("arguments", "some"),
    [
        (["workers", "names"], ["mine", "alpha", "beta"]),
        (["workers", "names", "--own"], ["mine", "tired"]),
        (["pools", "names"], ["small"]),
        (["pools", "names", "--own"], ["small"]),
        (["pools", "names", "--known"], ["small", "published"]),
        (["model", "names"], ["here", "broken"]),
        (["model", "names", "--here"], ["here", "broken"]),
        (["model", "names", "--planners"], ["here", "broken", "mine", "alpha", "beta"]),
        (["model", "names", "--known"], ["here", "qwen2.5-7b-q4_k_m"]),
    ],
    ids=" ".join,
)
def test_names_come_before_anything_is_loaded(
    filled: None, stage: Stage, arguments: list[str], some: list[str]
) -> None:
    """A process that has loaded no library prints them."""
    command = [sys.executable, "-c", LOADED, *arguments]
    done = subprocess.run(command, env=stage.environ(), capture_output=True, text=True, check=True)
    heavy = {
        "typer",
        "rich",
        "dataclasses",
        "pathlib",
        "platformdirs",
        "conductor_cli.config",
        "conductor_cli.cli.commands",
    }
    assert heavy & {*json.loads(done.stderr)} <= {"pathlib"}  # an editable install may need it
    assert {*some} <= set(done.stdout.split())


@pytest.mark.parametrize(
    "environ", [{}, {"CONDUCTOR_LLM_CONFIG_DIR": "/a", "CONDUCTOR_LLM_DATA_DIR": "/b"}, {"XDG_DATA_HOME": ""}]
)
def test_files_are_where_the_settings_say(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The short rule for Linux finds what platformdirs finds."""
    for kind in ("CONFIG", "DATA"):
        monkeypatch.delenv(f"XDG_{kind}_HOME")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert completion_names._directory("config", environ) == str(app_paths(environ).config)
    assert completion_names._directory("data", environ) == str(app_paths(environ).data)


def test_a_name_that_a_shell_could_run_is_not_printed(tmp_path: Path) -> None:
    """Bash expands the words that it is offered: a name in a settings file is no command."""
    tmp_path.joinpath("config.toml").write_text('[workers]\n"$(touch pwned)" = {}\n"a b" = {}\ngood = {}\n"`x`" = {}\n')
    assert completion_names.names(["workers", "names"], {"CONDUCTOR_LLM_CONFIG_DIR": str(tmp_path)}) == ["good"]


@pytest.mark.parametrize("text", ["[workers", "workers = 3", "[[workers]]", "\xff", "a." * 5000 + "b = 1"])
def test_a_file_that_cannot_be_read_offers_nothing(tmp_path: Path, text: str) -> None:
    """A tab is no place for an error message."""
    tmp_path.joinpath("config.toml").write_text(text, encoding="latin-1")
    assert completion_names.names(["workers", "names"], {"CONDUCTOR_LLM_CONFIG_DIR": str(tmp_path)}) == []


def test_only_enabled_workers_are_offered_where_disabled_ones_are_refused(filled: None, stage: Stage) -> None:
    """What config.toml says about a worker takes precedence over conductor's own file."""
    with stage.config.open("a") as file:
        file.write("\n[workers.rested]\nenabled = true\n[workers.off]\nenabled = false\n")

    def offered(*flags: str) -> set[str]:
        return {*(completion_names.names(["workers", "names", *flags], stage.environ()) or ())}

    assert offered("--enabled") == {"mine", "rested", "alpha", "beta"}
    assert offered("--disabled") == {"tired", "off"}
    assert offered("--own", "--enabled") == {"mine", "rested"}
    assert offered("--own", "--disabled") == {"tired"}
    assert offered() == {"mine", "tired", "rested", "off", "alpha", "beta"}


@pytest.mark.parametrize("words", [["ask", "names"], ["workers", "names", "more"], ["workers"], []])
def test_other_command_lines_are_left_to_the_command(words: list[str]) -> None:
    """Nothing else is answered here."""
    assert completion_names.names(words, {}) is None


def test_another_file_replaces_the_users(tmp_path: Path) -> None:
    """The variable names the file whose workers are offered."""
    tmp_path.joinpath("one.toml").write_text("[workers.one]\n")
    environ = {"CONDUCTOR_LLM_CONFIG": str(tmp_path / "one.toml"), "CONDUCTOR_LLM_CONFIG_DIR": str(tmp_path)}
    assert completion_names.names(["workers", "names"], environ) == ["one"]

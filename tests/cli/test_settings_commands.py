"""`conductor workers`, `model`, `config`, `completions`, `state`.

What they write, say and refuse.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.core import TyperGroup

from conductor_cli.app import workers
from conductor_cli.cli.command_tree import COMMANDS
from conductor_cli.cli.typer_classes import load_command
from conductor_cli.state.postgres import database
from conductor_cli.state.postgres.database import Database
from conductor_cli.state.postgres.spending import SharedSpend
from tests.cli.stage import SOURCE, Stage, refuses, replies, says
from tests.cli.terminals import terminal
from tests.servers import SeenRequest, Wire
from tests.state.cluster import PASSWORD, Cluster
from tests.state.conftest import postgres
from tests.state.test_shared_spend import reserve


def test_the_models_of_a_server_are_listed(stage: Stage) -> None:
    """A server is named by its URL, or by a worker there; a policy forbids asking it, too."""
    for value in (stage.url, "alpha"):
        assert [row["name"] for row in stage.ok("workers", "models", value, "--json").json] == [
            "alpha",
            "beta",
        ]
    stage.ok(
        "workers",
        "models",
        stage.url,
        told=f"conductor workers add --base-url {stage.url} --model A --model B",
    )
    stage.fails(2, "workers", "models", "opneai", told="did you mean openai")
    stage.fails(4, "workers", "models", "openai", told="needs a key")
    stage.configure("[policy]\ndeny = ['alpha']")
    stage.fails(3, "workers", "models", "alpha")


def test_the_list_shows_a_model_file_by_its_name(stage: Stage, tiny: Path) -> None:
    stage.configure(f'[workers.local]\nkind = "llama"\nmodel = "{tiny}"', workers=())
    listed = stage.ok("workers", "list").out
    assert f"llama/{tiny.name}" in listed
    assert str(tiny) not in listed
    assert str(tiny) in " ".join(stage.ok("workers", "show", "local").out.split())


def test_a_worker_is_added_listed_used_and_removed(stage: Stage) -> None:
    stage.configure(workers=())
    base = ["--kind", "openai-compatible", "--base-url", stage.url]
    done = stage.inside(
        "workers",
        "add",
        "gamma",
        *base,
        "--model",
        "gamma",
        "--set",
        "about=sums",
        "--set",
        "price=0.5,2",
    )
    assert (done.code, done.err) == (0, "")
    assert stage.own_settings["workers"]["gamma"] == {
        "kind": "openai-compatible",
        "model": "gamma",
        "about": "sums",
        "base_url": stage.url,
        "price": {"input": "0.5", "output": "2"},
    }
    assert stage.own_file.stat().st_mode & 0o777 == 0o600
    (row,) = stage.inside("workers", "list", "--json").json
    assert (row["name"], row["enabled"], row["key"], row["source"]) == (
        "gamma",
        True,
        "not needed",
        str(stage.own_file),
    )
    stage.plan = "gamma | - | Answer."
    assert stage.inside("ask", "hi").out == "gamma answers\n"
    assert stage.inside("workers", "rm", "gamma").out == "removed gamma\n"
    assert stage.own_settings == {}


def test_a_worker_is_changed_by_adding_it_again(stage: Stage) -> None:
    add = ["workers", "add", "gamma", "--kind"]
    stage.inside(*add, "openai-compatible", "--base-url", stage.url, "--model", "one")
    stage.inside(*add, "openai-compatible", "--model", "two")
    assert stage.own_settings["workers"]["gamma"]["base_url"] == stage.url
    stage.inside(*add, "ollama", "--model", "three")
    assert stage.own_settings["workers"]["gamma"] == {"kind": "ollama", "model": "three"}


def test_several_models_of_a_server_are_added_at_once(stage: Stage) -> None:
    address = stage.url.removeprefix("http://").removesuffix("/v1")
    add = ["workers", "add", "--base-url", address, "--set", "tags=cheap"]
    done = stage.ok(*add, "-m", "org/gamma", "-m", "other/gamma", "-m", "delta")
    assert done.out.splitlines() == [
        "added gamma",
        "added gamma-2",
        "added delta",
        "check them with: conductor workers test gamma gamma-2 delta",
    ]
    stored = stage.own_settings["workers"]
    assert {name: table["model"] for name, table in stored.items()} == {
        "gamma": "org/gamma",
        "gamma-2": "other/gamma",
        "delta": "delta",
    }
    assert all(table["base_url"] == stage.url for table in stored.values())
    assert all(table["tags"] == ["cheap"] for table in stored.values())
    again = stage.ok(*add[:-2], "-m", "delta", "--set", "parallel=2")
    assert again.out.startswith("changed delta: parallel")
    stage.fails(2, "workers", "add", "x", *add[2:], "-m", "a", "-m", "b", told="leave the name out")
    stage.fails(2, *add, told=("--model MODEL", "conductor workers models"))
    stage.fails(2, "workers", "add", "--model", "a", told="neither a name nor a server")
    stage.fails(2, "workers", "add", "--kind", "command", told="workers add NAME --kind command")


def test_a_worker_of_an_address_alone_is_asked_as_most_servers_are(stage: Stage) -> None:
    stage.ok("workers", "add", "mine", "--base-url", stage.url, "--model", "gamma")
    assert stage.own_settings["workers"]["mine"]["kind"] == "openai-compatible"
    stage.ok("workers", "add", "mine", "--base-url", stage.url, "--set", "parallel=2")
    assert stage.ok("ask", "-m", "mine", "hi").out == "gamma answers\n"


@pytest.mark.parametrize("columns", [40, 80])
def test_models_of_a_server_are_chosen_from_its_list(stage: Stage, columns: int) -> None:
    add = ("workers", "add", "--base-url", stage.url, "--set", "about=listed")
    stage.configure(workers=())
    with terminal(stage, *add, size=(columns, 30)) as shown:
        shown.until("or all (Enter")
        assert " 1  alpha" in shown.screen
        shown.program.send("3\r")
        shown.until("is none of them")
        shown.program.send("2, alpha\r")
        assert shown.end() == 0
    assert list(stage.own_settings["workers"]) == ["beta", "alpha"]
    with terminal(stage, *add, size=(columns, 30)) as shown:
        shown.until("(Enter for")
        shown.program.send("\x04")
        assert shown.end() == 2


def test_ollama_is_added_where_its_variable_says(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    done = stage.inside("workers", "add", "gamma", "--kind", "ollama", "--model", "m")
    assert stage.own_settings["workers"]["gamma"]["base_url"] == "http://127.0.0.1:9/v1"
    assert "its address is http://127.0.0.1:9/v1, from OLLAMA_HOST" in done.out
    stage.inside("workers", "add", "delta", "--kind", "ollama", "--base-url", stage.url)
    assert stage.own_settings["workers"]["delta"]["base_url"] == stage.url


def test_the_users_own_file_is_never_written(stage: Stage) -> None:
    before = stage.config.read_bytes()
    assert str(stage.config) in stage.fails(3, "workers", "rm", "alpha").err
    done = stage.inside(
        "workers", "add", "alpha", "--kind", "ollama", "--model", "x", "--base-url", stage.url
    )
    assert (done.code, str(stage.config) in done.err) == (3, True)
    assert stage.config.read_bytes() == before


def test_workers_are_tested_with_a_call_each(stage: Stage) -> None:
    done = stage.ok("workers", "test")
    assert sorted(line.split()[:2] for line in done.out.splitlines()) == [
        ["ok", "alpha:"],
        ["ok", "beta:"],
    ]
    stage.models = {"alpha": refuses(401), "beta": replies("<html>Log in</html>", "text/html")}
    done = stage.inside("workers", "test", "alpha", "--json")
    assert (done.code, done.json[0]["state"], done.json[0]["error"]["kind"]) == (4, "failed", "key")
    assert stage.inside("workers", "test", "beta").code == 1
    stage.fails(2, "workers", "test", "nobody")


@pytest.mark.parametrize("status", [429, 500])
def test_a_worker_that_is_busy_once_works(
    stage: Stage, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked once more, as in a run, before its test has failed."""
    monkeypatch.setattr(workers, "BUSY_SECONDS", 0.01)

    async def busy_once(request: SeenRequest, wire: Wire) -> None:
        script = refuses(status) if len(stage.asked("alpha")) == 1 else says("ready")
        await script(request, wire)

    stage.models["alpha"] = busy_once
    stage.ok("workers", "test", "alpha")
    assert len(stage.asked("alpha")) == 2
    stage.models["alpha"] = refuses(status)
    assert stage.inside("workers", "test", "alpha").code != 0
    assert len(stage.asked("alpha")) == 4


def test_a_broken_entry_can_be_removed(stage: Stage) -> None:
    stage.own_file.write_text('[workers.old]\nkind = "gone"\n[limits]\nsteps = 9\n')
    assert stage.inside("ask", "hi").code == 3
    assert stage.inside("workers", "rm", "old").code == 0
    stage.inside("config", "set", "limits.steps", "default")
    assert stage.inside("ask", "hi").code == 0


def test_a_model_is_chosen_and_found_again(stage: Stage, tiny: Path) -> None:
    stage.configure(conductor=None)
    for name in (str(tiny), f"{stage.url}#planner", "alpha", "openai/gpt-9"):
        stage.ok("model", "use", name)
        assert stage.inside("config", "show", "planner.model").out == f"{name}\n"
    assert stage.own_settings == {"planner": {"model": "openai/gpt-9"}}


@pytest.mark.parametrize(
    "name", ["missing.gguf", "ftp://here", "nobody", "nobody/model", __file__, "/", ""]
)
def test_a_model_that_cannot_plan_is_not_chosen(stage: Stage, name: str) -> None:
    stage.fails(5 if name else 2, "model", "use", name)
    assert not stage.own_file.exists()


def test_a_setting_is_shown_with_where_it_comes_from(stage: Stage) -> None:
    stage.own_file.write_text("[limits]\nattempts = 2\nparallel = 3\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONDUCTOR_LLM_LIMITS_STEPS", "4")
        shown = stage.inside("config", "show", "--json").json
    assert shown["limits.steps"] == {"value": 4, "from": "CONDUCTOR_LLM_LIMITS_STEPS"}
    assert shown["limits.attempts"] == {"value": 1, "from": str(stage.config)}
    assert shown["limits.parallel"] == {"value": 3, "from": str(stage.own_file)}
    assert shown["limits.review"] == {"value": 0, "from": "default"}


def test_a_section_of_the_settings_is_shown_alone(stage: Stage) -> None:
    done = stage.ok("config", "show", "web")
    names = [line.split()[0] for line in done.out.splitlines()]
    assert names[0] == "SETTING"
    assert "web.search" in names
    assert all(name.startswith("web.") for name in names[1:])
    assert stage.ok("config", "show", "web", "--json").json.keys() == set(names[1:])
    stage.fails(2, "config", "set", "web", "brave", told="its settings: web.search")
    stage.fails(2, "config", "show", "we", told="unknown setting")


def test_a_search_without_a_key_is_told_where_it_is_set(stage: Stage) -> None:
    done = stage.ok("config", "set", "web.search", "brave")
    assert "conductor keys set brave, or set BRAVE_API_KEY" in done.err
    assert stage.ok("config", "set", "web.search", "").err == ""
    assert stage.ok("config", "set", "web.search", "http://127.0.0.1:9").err == ""


def test_an_earlier_name_of_a_setting_works_on_in_config(stage: Stage) -> None:
    """It is said on stderr, so that scripts that read the value read the same."""
    renamed = "limits.recursion is called limits.review now; the earlier name works on"
    stage.ok("config", "set", "limits.recursion", "2", out="limits.review = 2\n", told=renamed)
    assert stage.own_settings == {"limits": {"review": 2}}
    stage.ok("config", "show", "limits.recursion", out="2\n", told=renamed)
    shown = stage.inside("config", "show", "--json").json
    assert shown["limits.recursion"] == shown["limits.review"]


def test_a_setting_without_effect_prints_a_notice(stage: Stage) -> None:
    stage.ok(
        "config", "set", "limits.attempts", "3", out="limits.attempts = 1\n", told=str(stage.config)
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("limits.steps", "9"),
        ("limits.seconds", "nan"),
        ("limits.cost", "0"),
        ("conductor.mode", "turbo"),
        ("limits.weight", "1"),
        ("limits", "1"),
        ("", "1"),
    ],
)
def test_a_value_that_no_run_could_use_is_refused(stage: Stage, name: str, value: str) -> None:
    stage.fails(2, "config", "set", name, value)
    assert not stage.own_file.exists()


def test_config_show_names_the_files_of_the_settings(stage: Stage) -> None:
    files = ["yours:", str(stage.config), "conductor's:", str(stage.own_file)]
    done = stage.inside("config", "show")
    assert (done.err, done.out.split()[-4:]) == ("", files)
    other = stage.home / "other.toml"
    other.write_text("[limits]\nsteps = 2\n")
    assert stage.inside("--config", other, "config", "show", "limits.steps").out == "2\n"
    assert str(other) in stage.inside("--config", other, "config", "show").out
    stage.fails(3, "--config", "", "config", "show", told="--config names no file")


def test_settings_that_cannot_be_written_are_an_error(stage: Stage) -> None:
    stage.own_file.mkdir()
    assert str(stage.own_file) in stage.fails(3, "config", "set", "limits.steps", "2").err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_are_printed_as_a_script_of_the_shell(stage: Stage, shell: str) -> None:
    assert "conductor complete" in stage.ok("completions", shell).out


def test_model_use_says_when_it_is_without_effect(stage: Stage) -> None:
    stage.configure(conductor="openai/other")
    done = stage.inside("model", "use", "ollama/mine")
    assert "is now" not in done.out
    assert "openai/other and takes precedence" in done.err


def test_every_command_that_a_hint_names_exists() -> None:
    source = "".join(path.read_text() for path in (SOURCE / "conductor_cli").rglob("*.py"))
    named = set(
        re.findall(r"conductor (trace|workers|pools|config|keys|setup|chat) ([a-z]+)", source)
    )
    commands: set[tuple[str, str]] = set()
    for rows in COMMANDS.values():
        for name, (target, _) in rows.items():
            group = load_command(name, target)
            if isinstance(group, TyperGroup):
                commands.update((name, command) for command in group.commands)
    assert named
    assert named - commands == set()


__all__ = ["postgres"]


def reserve_open(url: str) -> None:
    """A hold that has expired."""
    opened = Database(url)
    reserve(SharedSpend(opened))
    opened.call(
        "UPDATE conductor_calls SET expires_at = now() - interval '1 s' WHERE owner IS NOT NULL"
    )
    opened.close()


def test_every_action_of_the_command_says_what_it_did(
    stage: Stage, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_files = stage.inside("state", "check")
    assert (with_files.code, "the state is in files" in with_files.err) == (2, True)
    stage.inside("ask", "How are you?")
    url = postgres.new_database()
    monkeypatch.setenv("CONDUCTOR_LLM_STATE", url)
    assert stage.inside("state", "migrate").out == "version 0 became 7\n"
    assert stage.inside("state", "migrate").out == "version 7\n"
    assert "imported 1 run" in stage.inside("state", "import").out
    stage.inside("ask", "How are you?")
    assert len(stage.inside("trace", "list", "--json").json) == 2
    out = str(stage.traces.parent / "copy")
    assert "exported 2 runs" in stage.inside("state", "export", out).out
    assert stage.inside("state", "export", out).out == "nothing was new\n"
    assert (
        stage.inside("state", "export").code == stage.inside("state", "import", "nowhere").code == 2
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(stage.home)
        before = sorted(stage.home.iterdir())
        url_only = "s3://bucket/traces is a URL, where no state can be"
        stage.fails(2, "state", "export", "s3://bucket/traces", told=url_only)
        assert sorted(stage.home.iterdir()) == before
    reserve_open(url)
    (hold,) = stage.inside("state", "check", "--json").json["holds"]
    assert "1 expired" in stage.inside("state", "check").out
    assert stage.inside("state", "release", str(hold["hold"])).out == f"released {hold['hold']}\n"
    for wrong in (str(hold["hold"]), "x", "-", "9" * 19, "9" * 5000):
        assert stage.inside("state", "release", wrong).code == 2
    assert PASSWORD not in stage.inside("state", "check").out
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            database,
            "time",
            SimpleNamespace(**vars(time) | {"time": lambda: time.time() + 600}),
        )
        assert "is 10 min 0 s ahead of that of the database" in stage.inside("state", "check").err
    monkeypatch.setenv(
        "CONDUCTOR_LLM_STATE", url.replace(PASSWORD.replace(" ", "%20"), "swordfish")
    )
    refused = stage.inside("state", "check")
    assert (
        refused.code,
        "password authentication failed" in refused.err,
        "swordfish" in refused.err,
    ) == (
        8,
        True,
        False,
    )


def test_what_is_gone_with_another_kind_of_a_worker_is_named(stage: Stage) -> None:
    """Its tags are what policies name, and its price is what limits need."""
    stage.ok("workers", "add", "g", "-k", "gemini", "-m", "m", "--set", "tags=eu")
    stage.ok("workers", "set", "g", "price=1,2", "about=careful")
    done = stage.ok("workers", "add", "g", "-k", "anthropic", "-m", "n")
    assert done.out.startswith(
        "changed g: kind, model; gone with its earlier kind: tags, about, price;"
    )
    assert stage.own_settings["workers"]["g"] == {"kind": "anthropic", "model": "n"}

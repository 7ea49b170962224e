"""`conductor model`.

What is listed, pulled, imported, chosen, verified and removed, by the real command.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import tomllib
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.app.planner_resolution import configured_profile, resolve_planner
from conductor_cli.config.settings import load_settings
from conductor_cli.core.formatting import format_size
from tests.cli.stage import Done, Stage
from tests.cli.terminals import terminal
from tests.tiny_gguf import lora, make


def entry(name: str, *files: Path, sized: bool = True, hashed: bool = True, **fields: str) -> str:
    """A registry's entry for files as they are."""
    keys = {"name": name, "repo": f"acme/{name}", "revision": "main", "licence": "Apache-2.0"}
    lines = [
        "[[models]]",
        "context_bytes = 256",
        *(f'{key} = "{value}"' for key, value in ({**keys, "about": "a test's"} | fields).items()),
    ]
    for file in files:
        lines += ["[[models.parts]]", f'file = "{file.name}"']
        lines += [f"size = {file.stat().st_size}"] if sized else []
        lines += [f'sha256 = "{sha256(file)}"'] if hashed else []
    return "\n".join(lines)


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture
def desk(stage: Stage, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A desk with two workers and no conductor.

    The registry knows `small`, which is the tiny model, and `other`.
    """
    stage.configure(conductor=None)
    register(
        stage,
        entry("small", tiny, profile="published"),
        entry("other", tiny, hashed=False, sized=False),
    )
    monkeypatch.setenv("CONDUCTOR_LLM_REGISTRY", str(stage.home / "registry.toml"))
    return stage


def register(stage: Stage, *entries: str) -> None:
    (stage.home / "registry.toml").write_text("\n".join(entries) + "\n")


def chosen(stage: Stage) -> str:
    """What the tool's own file says of the model."""
    text = stage.own_file.read_text() if stage.own_file.exists() else ""
    return str(tomllib.loads(text).get("planner", {}).get("model", ""))


def row(stage: Stage, name: str) -> dict[str, Any]:
    listed = stage.inside("model", "list", "--json").json
    listed_row: dict[str, Any] = next(item for item in listed if item["name"] == name)
    return listed_row


def import_file(stage: Stage, file: Path, *options: str, apart: bool = False) -> Done:
    """Import a file; `apart` then makes a file of its own of each link in the store."""
    done = stage.ok("model", "import", file, *options)
    for path in stage.home.glob("data/conductor-llm/models/*/*.gguf") if apart else ():
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)
    return done


def test_list_shows_registry_and_installed_models(desk: Stage, tiny: Path, tmp_path: Path) -> None:
    assert row(desk, "small") == {
        "name": "small",
        "state": "not installed",
        "in_use": False,
        "default": True,
        "size": tiny.stat().st_size,
        "memory": row(desk, "small")["memory"],
        "partial": None,
        "licence": "Apache-2.0",
        "source": "hub:acme/small@main",
        "path": None,
        "base": None,
        "hash_source": None,
        "about": "a test's",
    }
    import_file(desk, make(tmp_path / "mine.gguf", seed=1))
    done = desk.inside("model", "list")
    heads, *lines = (line.split() for line in done.out.splitlines())
    assert heads == ["NAME", "SIZE", "MEMORY", "LICENCE", "STATE", "SOURCE"]
    assert lines[0][0] == "mine"
    assert " in use " in done.out.splitlines()[1]
    assert lines[1][0] == "small"
    assert lines[1][-4:-1] == ["not", "installed,", "default"]
    assert done.err == ""
    assert [row(desk, "mine")[key] for key in ("in_use", "state", "hash_source")] == [
        True,
        "installed",
        "file",
    ]


def test_list_shows_a_planner_that_is_not_installed(desk: Stage, tiny: Path) -> None:
    for name in ("openai/gpt-9", str(tiny)):
        assert desk.inside("model", "use", name).code == 0
        assert row(desk, name)["in_use"] is True
    assert f"{tiny}  " in desk.inside("model", "list").out


def test_the_first_imported_model_plans(desk: Stage, tmp_path: Path) -> None:
    mine = make(tmp_path / "mine.gguf", seed=3)
    done = import_file(desk, mine)
    assert sha256(mine) in done.out
    assert "the planner is now mine" in done.out
    assert done.err == ""
    mine.unlink()
    assert (
        desk.ok("ask", "How many?", "--seed", "3", "--format", "json")
        .json["conductor"]
        .startswith("mine ")
    )


def test_a_second_model_does_not_replace_the_first(desk: Stage, tmp_path: Path) -> None:
    import_file(desk, make(tmp_path / "one.gguf", seed=1))
    done = import_file(desk, make(tmp_path / "two.gguf", seed=2))
    assert "to let it plan: conductor model use two" in done.out
    assert chosen(desk) == "one"
    import_file(desk, make(tmp_path / "three.gguf", seed=3), "--use")
    assert chosen(desk) == "three"


def test_an_imported_registry_model_is_recognised(desk: Stage, tiny: Path) -> None:
    done = import_file(desk, tiny)
    assert done.out.startswith("installed small:\n")
    assert "matches conductor's registry" in done.out
    assert configured_profile(load_settings(os.environ)).name == "published"
    assert import_file(desk, tiny).out.startswith("small is already installed:\n")


@pytest.mark.parametrize("name", ["missing.gguf", "text.gguf", "folder", "weights.safetensors"])
def test_import_rejects_what_is_not_a_model(desk: Stage, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
    elif name == "text.gguf":
        path.write_text("I am a text.\n" * 100)
    desk.fails(5, "model", "import", path, *(["--base", "small"] if name == "folder" else []))
    assert [item["state"] for item in desk.inside("model", "list", "--json").json] == [
        "not installed",
        "not installed",
    ]


def test_a_worker_name_wins_over_a_directory(
    desk: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alpha").mkdir()
    make(tmp_path / "mine.gguf", seed=1)
    monkeypatch.chdir(tmp_path)
    assert desk.inside("model", "use", "alpha").code == 0
    assert chosen(desk) == "alpha"
    assert desk.inside("model", "use", "mine.gguf").code == 0
    assert chosen(desk) == str(tmp_path / "mine.gguf")


def unusable(tmp_path: Path, tiny: Path) -> list[tuple[Path, str]]:
    """Files that llama.cpp does not load, each with what is told of it."""
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(tiny.read_bytes()[:-999])
    return [(cut, "cut off or damaged"), (lora(tmp_path / "adapter.gguf"), "is an adapter")]


def test_a_file_that_cannot_be_loaded_is_not_chosen(
    desk: Stage, tiny: Path, tmp_path: Path
) -> None:
    """It was, and the first question failed. Doctor refuses the same files."""
    for file, problem in unusable(tmp_path, tiny):
        desk.fails(5, "model", "use", file, told=problem)
        assert chosen(desk) == ""
        found = desk.inside("doctor", "--offline", env={"CONDUCTOR_LLM_PLANNER_MODEL": str(file)})
        assert problem in found.out


def test_a_worker_in_a_file_that_cannot_be_loaded_is_not_added(
    desk: Stage, tiny: Path, tmp_path: Path
) -> None:
    """One that is in the settings is found by doctor, also where nobody is called."""
    for file, problem in unusable(tmp_path, tiny):
        desk.fails(2, "workers", "add", "new", "--kind", "llama", "--model", file, told=problem)
        desk.configure(f'[workers.local]\nkind = "llama"\nmodel = "{file}"', conductor=str(tiny))
        assert problem in desk.ends(5, "doctor", "--offline").out


def test_an_installed_model_is_used_by_its_name(desk: Stage, tiny: Path, tmp_path: Path) -> None:
    import_file(desk, tiny)
    import_file(desk, make(tmp_path / "mine.gguf", seed=1))
    assert desk.inside("model", "use", "mine").out.startswith(
        "the planner is now mine (mine.gguf sha256-ends:"
    )
    assert chosen(desk) == "mine"
    assert resolve_planner(load_settings(os.environ)).model == row(desk, "mine")["path"]
    planned = desk.inside("plan", "How many?", "--planner", "small", "--mode", "mini")
    assert planned.code in {0, 1}
    assert "small" not in planned.err


def test_a_planner_reads_its_instructions_when_it_is_chosen(
    desk: Stage, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the first question need not wait for it. Whoever waits is told how far it is."""
    ticks = count()
    monkeypatch.setattr("conductor_cli.models.llama.engine.monotonic", lambda: next(ticks) * 1.0)
    done = desk.inside("model", "use", str(tiny))
    assert "the planner reads its instructions, 64 of" in done.err
    assert "questions need not wait for that" in done.err
    assert "instructions" not in desk.inside("-q", "model", "use", str(tiny)).err


def test_a_model_that_is_not_installed_must_be_pulled_first(desk: Stage) -> None:
    for command in ("use", "verify"):
        desk.fails(5, "model", command, "small", told="conductor model pull small")
    for command in ("verify", "pull"):
        desk.fails(5, "model", command, "smalll", told="did you mean small?")
    for name in ("small", "../x"):
        desk.fails(2, "model", "rm", name, "--yes")
    assert chosen(desk) == ""


def test_without_a_choice_the_default_or_only_model_plans(
    desk: Stage, tiny: Path, tmp_path: Path
) -> None:
    import_file(desk, make(tmp_path / "one.gguf", seed=1), "--no-use")
    assert resolve_planner(load_settings(os.environ)).model.endswith("one.gguf")
    import_file(desk, make(tmp_path / "two.gguf", seed=2), "--no-use")
    desk.fails(5, "ask", "hi", told="one, two")
    import_file(desk, tiny, "--no-use")
    assert resolve_planner(load_settings(os.environ)).model.endswith(tiny.name)
    assert chosen(desk) == ""


def test_a_missing_model_file_is_reported(desk: Stage, tiny: Path) -> None:
    import_file(desk, tiny, apart=True)
    path = Path(str(row(desk, "small")["path"]))
    path.write_bytes(path.read_bytes()[:-1])
    for damage in ("bytes instead of", "is missing"):
        desk.fails(5, "ask", "hi", told=(damage, f"conductor model import {tiny} --name small"))
        path.unlink(missing_ok=True)


def test_a_damaged_manifest_is_reported(desk: Stage, tiny: Path) -> None:
    import_file(desk, tiny)
    manifest = desk.home / "data/conductor-llm/models/small/manifest.toml"
    manifest.write_text("name = [")
    done = desk.ends(5, "model", "verify")
    assert done.out.startswith(f"damaged  {manifest}\n")
    assert "conductor model rm small" in done.out
    desk.fails(5, "ask", "hi", told=(str(manifest), "conductor model rm small"))
    assert [row(desk, "small")[key] for key in ("state", "in_use", "path")] == [
        "damaged",
        True,
        str(manifest),
    ]
    desk.own_file.unlink()  # nothing is chosen, and there is no other model
    assert str(manifest) in desk.ends(5, "ask", "hi").err


def test_a_damaged_manifest_does_not_affect_other_models(
    desk: Stage, tiny: Path, tmp_path: Path
) -> None:
    import_file(desk, make(tmp_path / "broken.gguf", seed=1), "--no-use")
    broken = desk.home / "data/conductor-llm/models/broken/manifest.toml"
    broken.write_text("name = [")
    import_file(desk, tiny)
    for command in (
        ("model", "use", "small"),
        ("model", "verify", "small"),
        ("model", "list"),
        ("ask", "hi", "--mode", "mini"),
    ):
        desk.ok(*command)
    assert [row(desk, name)["state"] for name in ("small", "broken")] == ["installed", "damaged"]
    assert desk.inside("model", "rm", "broken").code == 2
    assert desk.ok("model", "rm", "broken", "--yes").err == ""
    assert not broken.parent.exists()
    assert (tmp_path / "broken.gguf").exists()
    assert desk.inside("model", "rm", "broken", "--yes").code == 2
    assert chosen(desk) == "small"


def test_a_model_with_a_damaged_manifest_is_pulled_again(desk: Stage, tiny: Path) -> None:
    cached(desk, "small", tiny)
    assert desk.inside("model", "pull").code == 0
    (desk.home / "data/conductor-llm/models/small/manifest.toml").write_text("name = [")
    assert desk.inside("model", "pull").code == 0
    assert row(desk, "small")["state"] == "installed"


def test_a_file_named_like_a_registry_model_gets_its_profile(desk: Stage, tiny: Path) -> None:
    for given, expected in (
        (str(tiny), "published"),
        ("/x/none.gguf", "prompted"),
        ("openai/x", "prompted"),
    ):
        assert (
            configured_profile(load_settings(os.environ, {"planner.model": given})).name == expected
        )
    flags = {"planner.model": str(tiny), "planner.profile": "prompted-json"}
    assert configured_profile(load_settings(os.environ, flags)).name == "prompted-json"


def test_an_adapter_plans_with_its_base(desk: Stage, tmp_path: Path) -> None:
    import_file(desk, make(tmp_path / "whole.gguf", seed=1))
    import_file(desk, lora(tmp_path / "trained.gguf"), "--base", "whole", "--use")
    planner = resolve_planner(load_settings(os.environ))
    assert (Path(planner.model).name, Path(planner.options["adapter"]).name) == (
        "whole.gguf",
        "trained.gguf",
    )
    answered = desk.ok("ask", "How many?", "--seed", "3", "--format", "json")
    assert "whole sha256-ends:" in answered.json["conductor"]
    assert " + trained sha256-ends:" in answered.json["conductor"]
    assert [item["name"] for item in desk.inside("model", "verify", "--json").json] == [
        "trained",
        "whole",
    ]


def test_an_adapter_without_its_base_is_reported(desk: Stage, tmp_path: Path) -> None:
    adapter = lora(tmp_path / "trained.gguf")
    desk.fails(2, "model", "import", adapter)
    import_file(desk, adapter, "--base", "small")
    desk.fails(5, "ask", "hi", told="conductor model pull small")


def test_removing_a_base_names_its_adapters(desk: Stage, tmp_path: Path) -> None:
    import_file(desk, make(tmp_path / "whole.gguf", seed=1))
    import_file(desk, lora(tmp_path / "trained.gguf"), "--base", "whole")
    with terminal(desk, "model", "rm", "whole") as shown:
        assert "trained is an adapter for it" in shown.until("[y/N]")
        shown.program.sendline("")
        assert shown.end() == 0
    assert "trained is an adapter for it" in desk.inside("model", "rm", "whole", "--yes").err


@pytest.mark.parametrize("copied", [True, False], ids=["a copy", "a link"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_what_verify_names_repairs_the_model(
    desk: Stage, tmp_path: Path, copied: bool, damage: str
) -> None:
    source = make(tmp_path / "my models.gguf", seed=3)
    content = source.read_bytes()
    import_file(desk, source, apart=copied)
    path = Path(str(row(desk, "my-models")["path"]))
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(
            content[:-50] + (b"" if damage == "cut" else bytes(byte ^ 4 for byte in content[-50:]))
        )
    done = desk.ends(5, "model", "verify")
    if not copied and damage != "gone":  # the same bytes as at the source
        assert f"if {source} is whole: conductor model import" in done.out
        desk.fails(
            2 if damage == "flipped" else 5, "model", "import", source, "--name", "my-models"
        )
        source.unlink()
        source.write_bytes(content)
    repair = done.out.splitlines()[-1].partition("conductor ")[2]
    desk.ok(*shlex.split(repair))
    assert desk.inside("model", "verify").code == 0
    assert source.read_bytes() == path.read_bytes() == content


def test_replacing_a_damaged_model_deletes_its_file(desk: Stage, tmp_path: Path) -> None:
    source = make(tmp_path / "one.gguf", seed=3)
    other = Path(shutil.copy(source, tmp_path / "other.gguf"))
    import_file(desk, source, apart=True)
    path = Path(str(row(desk, "one")["path"]))
    path.write_bytes(path.read_bytes()[:-50] + b"x" * 50)
    import_file(desk, other, "--name", "one")
    assert sorted(file.name for file in path.parent.iterdir()) == ["manifest.toml", "other.gguf"]
    assert desk.inside("model", "verify").code == 0


def test_verify_without_a_planner_reads_all_models(desk: Stage, tmp_path: Path) -> None:
    assert "conductor model pull" in desk.inside("model", "verify").err
    for number in (1, 2):
        import_file(desk, make(tmp_path / f"m{number}.gguf", seed=number), "--no-use")
    assert [item["name"] for item in desk.inside("model", "verify", "--json").json] == ["m1", "m2"]
    assert "matches the file that was imported" in desk.ok("model", "verify").out


def test_removing_the_planner_clears_the_choice(desk: Stage, tiny: Path) -> None:
    import_file(desk, tiny, apart=True)
    path = Path(str(row(desk, "small")["path"]))
    done = desk.ok("model", "rm", "small", "--yes")
    assert f"{format_size(tiny.stat().st_size)} freed" in done.out
    assert "was the model that plans" in done.err
    assert (path.exists(), tiny.exists(), chosen(desk)) == (False, True, "")


def test_removing_keeps_a_choice_of_another_model(desk: Stage, tiny: Path, tmp_path: Path) -> None:
    import_file(desk, tiny)
    import_file(desk, make(tmp_path / "mine.gguf", seed=1))
    assert chosen(desk) == "small"
    env = {"CONDUCTOR_LLM_PLANNER_MODEL": "mine"}
    desk.ok(
        "model", "rm", "mine", "--yes", env=env, told="CONDUCTOR_LLM_PLANNER_MODEL still names it"
    )
    assert chosen(desk) == "small"


def test_removing_needs_a_confirmation(desk: Stage, tiny: Path) -> None:
    import_file(desk, tiny)
    desk.fails(2, "model", "rm", "small")
    for answer, left in (("", True), ("n", True), ("y", False)):
        with terminal(desk, "model", "rm", "small") as shown:
            shown.until("[y/N]")
            shown.program.sendline(answer)
            assert shown.end() == 0
        assert (row(desk, "small")["state"] == "installed") is left


def cached(stage: Stage, name: str, file: Path) -> Path:
    """Put a file into the hub's cache, as another tool would have.

    Return its name in the snapshot.
    """
    commit = hashlib.sha1(file.read_bytes()).hexdigest()
    repo = stage.home / f"cache/huggingface/hub/models--acme--{name}"
    blob = repo / "blobs" / sha256(file)
    link = repo / "snapshots" / commit / file.name
    for path in (blob, link, repo / "refs/main"):
        path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, blob)
    link.symlink_to(Path(os.path.relpath(blob, link.parent)))
    (repo / "refs/main").write_text(commit)
    return link


def test_a_cached_model_is_not_downloaded_again(desk: Stage, tiny: Path) -> None:
    link = cached(desk, "small", tiny)
    done = desk.ok("model", "pull")
    assert str(link) in done.out
    assert "matches conductor's registry" in done.out
    assert chosen(desk) == "small"
    assert "licence Apache-2.0" in done.err
    assert "memory: needs about" in done.err
    again = desk.inside("model", "pull", "small")
    assert (again.code, again.err) == (0, "")
    assert again.out == f"small is already installed: {link}\n"
    removed = desk.ok("model", "rm", "small", "--yes")
    assert "no bytes freed" in removed.out
    assert f"kept {link}" in removed.err
    assert link.read_bytes() == tiny.read_bytes()


def test_a_pull_without_disk_space_does_not_begin(desk: Stage, tiny: Path) -> None:
    huge = (
        entry("small", tiny, sized=False, hashed=False, licence="Research only")
        + f"\nsize = {1 << 60}"
    )
    register(
        desk,
        huge.replace("context_bytes = 256", f"context_bytes = {1 << 40}"),
        entry("other", tiny),
    )
    desk.ends(
        5,
        "model",
        "pull",
        told=("Research only is not Apache-2.0", "too little", "free some space"),
    )
    assert json.loads(desk.inside("model", "list", "--json").out)[0]["state"] == "not installed"


def test_what_is_installed_is_listed_first(desk: Stage, tmp_path: Path) -> None:
    """The model that plans, then others on this machine, then what can be downloaded."""
    for seed, name in enumerate(("spare", "planning")):
        file = make(tmp_path / f"{name}.gguf", seed=seed)
        assert desk.inside("model", "import", file, "--name", name, "--no-use").code == 0
    assert desk.inside("model", "use", "planning").code == 0
    names = [line.split()[0] for line in desk.inside("model", "list").out.splitlines()[1:]]
    assert names == ["planning", "spare", "small", "other"]

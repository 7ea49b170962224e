"""`conductor model`: what is listed, pulled, imported, chosen, verified and removed, by the real command."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import struct
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.app import planner_resolution
from conductor_cli.app.planner_resolution import configured_profile, resolve_planner
from conductor_cli.cli import output
from conductor_cli.config import load_settings
from conductor_cli.core.formatting import format_size
from conductor_cli.models.weights.memory_estimate import memory_needed
from tests.cli.stage import Done, Stage, explained
from tests.cli.test_terminal import terminal
from tests.test_imports import NOT_AT_START, START
from tests.tiny_gguf import make

HEAD = """as_of = "2026-11-20"
[shapes.tiny]
family = "tiny"
parameters = 1
layers = 2
heads = 2
width = 16
[shapes.vast]
family = "vast"
parameters = 1
layers = 10_000
heads = 10_000
width = 10_000
"""


def entry(name: str, *files: Path, sized: bool = True, hashed: bool = True, **more: str) -> str:
    """A registry's entry for files as they are."""
    keys = {"name": name, "shape": "tiny", "repo": f"acme/{name}", "revision": "main", "licence": "Apache-2.0"}
    lines = ["[[models]]", *(f'{key} = "{value}"' for key, value in ({**keys, "about": "a test's"} | more).items())]
    for file in files:
        lines += ["[[models.parts]]", f'file = "{file.name}"']
        lines += [f"size = {file.stat().st_size}"] if sized else []
        lines += [f'sha256 = "{sha256(file)}"'] if hashed else []
    return "\n".join(lines)


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture
def desk(stage: Stage, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A desk with two workers and no conductor; the registry knows `small`, which is the tiny model, and `other`."""
    stage.configure(conductor="-")
    stage.config.write_text(stage.config.read_text().replace("[conductor]\nmodel", "[conductor]\n#"))
    register(stage, entry("small", tiny, profile="published"), entry("other", tiny, hashed=False, sized=False))
    monkeypatch.setenv("CONDUCTOR_LLM_REGISTRY", str(stage.home / "registry.toml"))
    return stage


def register(stage: Stage, *entries: str) -> None:
    (stage.home / "registry.toml").write_text("\n".join((HEAD, *entries)) + "\n")


def chosen(stage: Stage) -> str:
    """What the tool's own file says of the model."""
    text = stage.own.read_text() if stage.own.exists() else ""
    return str(tomllib.loads(text).get("conductor", {}).get("model", ""))


def row(stage: Stage, name: str) -> dict[str, Any]:
    listed = stage.inside("model", "list", "--json").json
    found: dict[str, Any] = next(item for item in listed if item["name"] == name)
    return found


def taken(stage: Stage, file: Path, *more: str) -> Done:
    done = stage.inside("model", "import", file, *more)
    assert done.code == 0, done.err
    return done


# list


def test_the_list_has_what_can_be_had_and_what_is_here(desk: Stage, tiny: Path, tmp_path: Path) -> None:
    """Each model of the registry, then others of the model store, with size, licence, memory and state."""
    assert row(desk, "small") == {
        "name": "small", "state": "not installed", "in_use": False, "default": True, "size": tiny.stat().st_size,
        "memory": row(desk, "small")["memory"], "partial": None, "licence": "Apache-2.0",
        "source": "hub:acme/small@main", "path": None, "base": None, "hash_source": None, "about": "a test's",
    }  # fmt: skip
    taken(desk, make(tmp_path / "mine.gguf", seed=1))
    done = desk.inside("model", "list")
    heads, *lines = (line.split() for line in done.out.splitlines())
    assert heads == ["NAME", "SIZE", "MEMORY", "LICENCE", "STATE", "SOURCE"]
    assert lines[0][0] == "small"
    assert lines[0][-4:-1] == ["not", "installed,", "default"]
    assert lines[2][0] == "mine"
    assert " in use " in done.out.splitlines()[3]
    assert done.err == "the registry is of 2026-11-20\n"
    assert [row(desk, "mine")[key] for key in ("in_use", "state", "hash_source")] == [True, "installed", "file"]


def test_the_list_says_what_plans_where_it_is_no_model_of_the_model_store(desk: Stage, tiny: Path) -> None:
    """A file or a server that was chosen is a row of its own."""
    for name in ("openai/gpt-9", str(tiny)):
        assert desk.inside("model", "use", name).code == 0
        assert row(desk, name)["in_use"] is True
    assert row(desk, str(tiny))["size"] == tiny.stat().st_size


def test_the_list_says_what_is_damaged(desk: Stage, tiny: Path) -> None:
    """A file that is gone or has another size is seen without reading it."""
    taken(desk, tiny, "--copy")
    Path(str(row(desk, "small")["path"])).unlink()
    assert row(desk, "small")["state"] == "damaged"


# import


def test_an_imported_model_plans(desk: Stage, tmp_path: Path) -> None:
    """The first model that comes is in use; it goes on planning when the file it came from is deleted."""
    mine = make(tmp_path / "mine.gguf", seed=3)
    done = taken(desk, mine)
    assert sha256(mine) in done.out
    assert "the conductor model is now mine" in done.out
    assert done.err == ""
    mine.unlink()
    asked = desk.run("ask", "How many?", "--seed", "3", "--format", "json")
    assert asked.code == 0, asked.err
    assert asked.json["conductor"].startswith("mine ")


def test_a_second_model_does_not_take_over(desk: Stage, tmp_path: Path) -> None:
    """What plans goes on planning, unless `--use` says otherwise."""
    taken(desk, make(tmp_path / "one.gguf", seed=1))
    done = taken(desk, make(tmp_path / "two.gguf", seed=2))
    assert "to let it plan: conductor model use two" in done.out
    assert chosen(desk) == "one"
    taken(desk, make(tmp_path / "three.gguf", seed=3), "--use")
    assert chosen(desk) == "three"


def test_an_imported_model_is_recognised(desk: Stage, tiny: Path) -> None:
    """A file of the registry's is taken under its name there, and is spoken to by its profile."""
    done = taken(desk, tiny)
    assert done.out.startswith("installed small:\n")
    assert "matches conductor's registry" in done.out
    assert configured_profile(load_settings(os.environ)).name == "published"
    assert taken(desk, tiny).out.startswith("small is already installed:\n")


def test_a_file_on_another_disk_is_used_where_it_lies(desk: Stage, tiny: Path) -> None:
    """Without hard links between two file systems nothing is copied, and the person is told to keep the file."""
    elsewhere = Path("/dev/shm")
    if not elsewhere.is_dir() or elsewhere.stat().st_dev == desk.home.stat().st_dev:
        pytest.skip("there is no second file system at /dev/shm")
    file = elsewhere / f"conductor-test-{os.getpid()}.gguf"
    try:
        shutil.copy(tiny, file)
        done = taken(desk, file)
        assert "is used from there" in done.err
        assert desk.inside("model", "path", "small").out == f"{file}\n"
        assert "kept " in desk.inside("model", "rm", "small", "--yes").err
        assert file.exists()
        taken(desk, file, "--copy")
        assert desk.inside("model", "path", "small").out != f"{file}\n"
    finally:
        file.unlink(missing_ok=True)


@pytest.mark.parametrize("name", ["missing.gguf", "text.gguf", "folder", "weights.safetensors"])
def test_what_is_no_model_is_not_imported(desk: Stage, tmp_path: Path, name: str) -> None:
    """A missing file, a text, a directory: 5, in three lines, and nothing is in the model store."""
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
    elif name == "text.gguf":
        path.write_text("I am a text.\n" * 100)
    done = desk.inside("model", "import", path, "--base", "small") if "." not in name else desk.inside(
        "model", "import", path
    )  # fmt: skip
    assert done.code == 5
    explained(done)
    assert [item["state"] for item in desk.inside("model", "list", "--json").json] == ["not installed", "not installed"]


def test_a_name_that_is_no_name_is_a_usage_error(desk: Stage, tiny: Path) -> None:
    """`--name` cannot lead out of the model store: 2."""
    done = desk.inside("model", "import", tiny, "--name", "../../x")
    assert done.code == 2
    explained(done)


def test_an_imported_model_says_how_much_memory_it_needs(desk: Stage, tiny: Path, tmp_path: Path) -> None:
    """By the same rule as the registry: file, keys and values of the context, and the rest; an adapter's on top."""
    taken(desk, make(tmp_path / "whole.gguf", seed=1))
    taken(desk, lora(tmp_path / "trained.gguf"), "--base", "whole")
    whole, trained, known = (row(desk, name) for name in ("whole", "trained", "small"))
    assert whole["memory"] == known["memory"] == memory_needed(tiny.stat().st_size, 2 * 2 * 2 * 2 * 16)
    assert trained["memory"] == whole["memory"] + trained["size"]
    assert desk.inside("model", "use", tiny).code == 0
    assert row(desk, str(tiny))["memory"] == known["memory"]


@pytest.mark.parametrize("width", [0, 40, 60, 80, 200])
def test_the_list_fits_where_it_is_shown(
    desk: Stage, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """No line is wider than the terminal, every model is named, and nothing is left out where there is no terminal."""
    licence = "Some Licence with a Long Name"
    register(desk, entry("small", tiny, licence=licence), entry("a-model-with-quite-a-long-name", tiny, hashed=False))
    taken(desk, make(tmp_path / "mine.gguf", seed=1))
    monkeypatch.setattr(output, "terminal_width", lambda stream: width)
    lines = desk.inside("model", "list").out.splitlines()
    if width:
        assert max(len(line) for line in lines if not line.strip().startswith("file:")) <= width  # a path is not cut
    for name in ("small", "a-model-with-quite-a-long-name", "mine"):
        assert any(name in line.split() for line in lines)
    text = " ".join(" ".join(lines).split())
    assert "in use" in text
    assert "not installed, default" in text
    assert (licence in text) is (width != 80)
    assert ("acme/small" in text) is (width != 80)


def test_a_shell_is_told_the_names(desk: Stage, tiny: Path, tmp_path: Path) -> None:
    """Names of stored models, even with an unreadable manifest; with --known those of the registry, too."""
    taken(desk, tiny)
    taken(desk, make(tmp_path / "mine.gguf", seed=1))
    (desk.home / "data/conductor-llm/models/mine/manifest.toml").write_text("name = [")
    assert desk.inside("model", "names").out.split() == ["mine", "small"]
    assert sorted(desk.inside("model", "names", "--known").out.split()) == ["mine", "other", "small"]
    desk.config.write_text("not = [toml")
    (desk.home / "registry.toml").write_text("not = [toml")
    done = desk.inside("model", "names", "--known")
    assert (done.code, sorted(done.out.split()), done.err) == (0, ["mine", "small"], "")


def test_telling_names_loads_nothing_heavy(desk: Stage) -> None:
    """A tab must not take longer than a start of the program."""
    done = subprocess.run(
        [sys.executable, "-c", START, "model", "names", "--known"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    loaded = {*json.loads(done.stderr.splitlines()[-1])}
    heavy = {*NOT_AT_START, "rich", "filelock"} - {"pydantic"}  # Typer reads every command line with it
    assert heavy & loaded == set()


# use, path


def test_a_worker_is_used_though_a_directory_is_called_like_it(
    desk: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is listed is no path; a file that is named from here is kept by its whole path."""
    (tmp_path / "alpha").mkdir()
    make(tmp_path / "mine.gguf", seed=1)
    monkeypatch.chdir(tmp_path)
    assert desk.inside("model", "use", "alpha").code == 0
    assert chosen(desk) == "alpha"
    assert desk.inside("model", "use", "mine.gguf").code == 0
    assert chosen(desk) == str(tmp_path / "mine.gguf")


def test_a_model_of_the_model_store_is_used_by_its_name(desk: Stage, tiny: Path, tmp_path: Path) -> None:
    """`model use NAME` keeps the name; `model path` prints the file; `--conductor NAME` is for one run."""
    taken(desk, tiny)
    taken(desk, make(tmp_path / "mine.gguf", seed=1))
    assert desk.inside("model", "use", "mine").out.startswith("the conductor model is now mine (mine.gguf sha256-ends:")
    assert chosen(desk) == "mine"
    assert desk.inside("model", "path").out == desk.inside("model", "path", "mine").out
    asked = desk.run("plan", "How many?", "--conductor", "small", "--max-steps", "1")
    assert asked.code in {0, 1}
    assert "small" not in asked.err


def test_a_model_that_is_only_in_the_registry_has_to_be_pulled(desk: Stage) -> None:
    """`use`, `path` and `verify` of a name that is not here: 5, and the command to run."""
    for command in ("use", "path", "verify"):
        done = desk.inside("model", command, "small")
        assert done.code == 5
        explained(done)
        assert "conductor model pull small" in done.err
    assert chosen(desk) == ""


@pytest.mark.parametrize("command", ["path", "verify", "pull"])
def test_a_name_that_nobody_knows_has_neighbours(desk: Stage, command: str) -> None:
    """A mistyped name: 5, and the names that are like it."""
    done = desk.inside("model", command, "smalll")
    assert done.code == 5
    explained(done)
    assert "small" in done.err


def test_without_a_choice_the_default_plans_or_the_only_one(desk: Stage, tiny: Path, tmp_path: Path) -> None:
    """Nothing chosen: the registry's first model if it is here, else the only one; of two others none is guessed."""
    taken(desk, make(tmp_path / "one.gguf", seed=1), "--no-use")
    assert resolve_planner(load_settings(os.environ)).model.endswith("one.gguf")
    taken(desk, make(tmp_path / "two.gguf", seed=2), "--no-use")
    done = desk.inside("ask", "hi")
    assert done.code == 5
    explained(done)
    assert "one, two" in done.err
    taken(desk, tiny, "--no-use")
    assert resolve_planner(load_settings(os.environ)).model.endswith(tiny.name)
    assert chosen(desk) == ""


def test_a_model_that_is_gone_is_told(desk: Stage, tiny: Path) -> None:
    """The file of a manifest deleted or cut: 5, the file is named, and the hint says how to get it again."""
    taken(desk, tiny, "--copy")
    path = Path(str(row(desk, "small")["path"]))
    path.write_bytes(path.read_bytes()[:-1])
    for damage in ("bytes instead of", "is missing"):
        done = desk.run("ask", "hi")
        assert done.code == 5
        explained(done)
        assert damage in done.err
        assert f"conductor model import {tiny} --name small" in done.err
        path.unlink(missing_ok=True)


def test_a_damaged_manifest_is_told(desk: Stage, tiny: Path) -> None:
    """A manifest that is no TOML: 5 for each command that needs it, with the file and what to do; it is in the list."""
    taken(desk, tiny)
    manifest = desk.home / "data/conductor-llm/models/small/manifest.toml"
    manifest.write_text("name = [")
    for command in (("model", "path"), ("ask", "hi"), ("model", "verify")):
        done = desk.inside(*command)
        assert done.code == 5
        explained(done)
        assert str(manifest) in done.err
        assert "conductor model rm small" in done.err
    assert [row(desk, "small")[key] for key in ("state", "in_use", "path")] == ["damaged", True, str(manifest)]
    desk.own.unlink()  # nothing is chosen, and there is no other model
    done = desk.inside("ask", "hi")
    assert done.code == 5
    assert str(manifest) in done.err


def test_a_damaged_manifest_is_in_nobody_s_way(desk: Stage, tiny: Path, tmp_path: Path) -> None:
    """One manifest that is no TOML: other models are listed, chosen, imported, verified and plan; it can be removed."""
    taken(desk, make(tmp_path / "broken.gguf", seed=1), "--no-use")
    broken = desk.home / "data/conductor-llm/models/broken/manifest.toml"
    broken.write_text("name = [")
    taken(desk, tiny)
    for command in (("model", "use", "small"), ("model", "verify"), ("model", "path"), ("model", "list"),
                    ("ask", "hi", "--seed", "3")):  # fmt: skip
        done = desk.inside(*command)
        assert done.code == 0, done.err
    assert [row(desk, name)["state"] for name in ("small", "broken")] == ["installed", "damaged"]
    assert desk.inside("model", "rm", "broken").code == 2
    done = desk.inside("model", "rm", "broken", "--yes")
    assert (done.code, done.err) == (0, "")
    assert not broken.parent.exists()
    assert (tmp_path / "broken.gguf").exists()
    assert desk.inside("model", "rm", "broken", "--yes").code == 2
    assert chosen(desk) == "small"


def test_a_model_with_a_damaged_manifest_is_pulled_again(desk: Stage, tiny: Path) -> None:
    """A pull writes the manifest anew."""
    cached(desk, "small", tiny)
    assert desk.inside("model", "pull").code == 0
    (desk.home / "data/conductor-llm/models/small/manifest.toml").write_text("name = [")
    assert desk.inside("model", "pull").code == 0
    assert row(desk, "small")["state"] == "installed"


def test_removing_a_chosen_model_with_a_damaged_manifest_takes_the_choice_back(desk: Stage, tiny: Path) -> None:
    """The setting that named it is cleared, as with any other."""
    taken(desk, tiny)
    (desk.home / "data/conductor-llm/models/small/manifest.toml").write_text("name = [")
    assert "was the model that plans" in desk.inside("model", "rm", "small", "--yes").err
    assert chosen(desk) == ""


def test_a_path_that_leads_nowhere_is_no_mistyped_name(desk: Stage, tmp_path: Path) -> None:
    """`verify`, `path` and `--base` with a file that is not there: 5, and that is said; no name is proposed."""
    gone = str(tmp_path / "nosuch.gguf")
    adapter = lora(tmp_path / "trained.gguf")
    for command in (("verify", gone), ("path", gone), ("import", adapter, "--base", gone)):
        done = desk.inside("model", *command)
        assert done.code == 5
        explained(done)
        assert f"file not found: {gone}" in done.err
        assert "did you mean" not in done.err


def test_a_file_that_is_called_like_an_entry_is_spoken_to_by_its_profile(desk: Stage, tiny: Path) -> None:
    """A file that was never imported: its name is that of the registry's `small`; a setting wins over that."""
    for given, expected in ((str(tiny), "published"), ("/x/none.gguf", "prompted"), ("openai/x", "prompted")):
        assert configured_profile(load_settings(os.environ, {"conductor.model": given})).name == expected
    flags = {"conductor.model": str(tiny), "conductor.profile": "prompted-json"}
    assert configured_profile(load_settings(os.environ, flags)).name == "prompted-json"


# adapters


def lora(path: Path, width: int = 64, architecture: str = "qwen2") -> Path:
    """A LoRA for the tiny model, in a GGUF file: it changes one matrix."""
    import gguf
    import numpy as np

    draw = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 8.0)
    for end, shape in (("lora_a", (4, width)), ("lora_b", (width, 4))):
        writer.add_tensor(f"blk.0.attn_q.weight.{end}", draw.standard_normal(shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_an_adapter_plans_over_its_base(desk: Stage, tmp_path: Path) -> None:
    """A LoRA of the model store is its base with the adapter laid over; the trace names both files."""
    taken(desk, make(tmp_path / "whole.gguf", seed=1))
    taken(desk, lora(tmp_path / "trained.gguf"), "--base", "whole", "--use")
    planner = resolve_planner(load_settings(os.environ))
    assert (Path(planner.model).name, Path(planner.options["adapter"]).name) == ("whole.gguf", "trained.gguf")
    asked = desk.run("ask", "How many?", "--seed", "3", "--format", "json")
    assert asked.code == 0, asked.err
    assert "whole sha256-ends:" in asked.json["conductor"]
    assert " + trained sha256-ends:" in asked.json["conductor"]
    assert [item["name"] for item in desk.inside("model", "verify", "--json").json] == ["trained", "whole"]


def peft(directory: Path) -> Path:
    """The same in PEFT form: a configuration, and matrices in safetensors."""
    directory.mkdir()
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"
    index, body = {}, b""
    for side, shape in (("A", (4, 64)), ("B", (64, 4))):
        values = struct.pack("<256f", *(((7 * at) % 11 - 5) / 10 for at in range(256)))
        offsets = [len(body), len(body) + len(values)]
        index[name.format(side)] = {"dtype": "F32", "shape": shape, "data_offsets": offsets}
        body += values
    head = json.dumps(index).encode()
    (directory / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + body)
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}
    (directory / "adapter_config.json").write_text(json.dumps(config))
    return directory


def test_an_adapter_in_peft_form_is_converted_and_plans(desk: Stage, tmp_path: Path) -> None:
    """A directory as PEFT writes it becomes an adapter in the model store, over its base; the directory may go."""
    source = peft(tmp_path / "trained")
    done = desk.inside("model", "import", source, "--base", "small")
    assert done.code == 5
    assert "conductor model pull small" in done.err
    taken(desk, make(tmp_path / "whole.gguf", seed=1))
    taken(desk, source, "--base", "whole", "--use")
    assert taken(desk, source / "adapter_model.safetensors", "--base", "whole").out.startswith(
        "trained is already installed"
    )
    shutil.rmtree(source)
    asked = desk.run("ask", "How many?", "--seed", "3", "--format", "json")
    assert asked.code == 0, asked.err
    assert " + trained sha256-ends:" in asked.json["conductor"]
    assert desk.inside("model", "verify", "trained").code == 0
    freed = desk.inside("model", "rm", "trained", "--yes")
    assert "no bytes" not in freed.out
    assert not (desk.home / "data/conductor-llm/models/trained").exists()


def test_an_adapter_that_cannot_be_converted_is_told(desk: Stage, tmp_path: Path) -> None:
    """Half of a safetensors file: 5, three lines, and nothing is left in the model store."""
    source = peft(tmp_path / "trained")
    weights = source / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-500])
    taken(desk, make(tmp_path / "whole.gguf", seed=1))
    done = desk.inside("model", "import", source, "--base", "whole")
    assert done.code == 5
    explained(done)
    assert not (desk.home / "data/conductor-llm/models/trained").exists()


def test_an_adapter_without_its_base_is_told(desk: Stage, tmp_path: Path) -> None:
    """A base that is not here: 5 and how to get it; no `--base` at all: 2."""
    adapter = lora(tmp_path / "trained.gguf")
    done = desk.inside("model", "import", adapter)
    assert done.code == 2
    explained(done)
    taken(desk, adapter, "--base", "small")
    done = desk.inside("ask", "hi")
    assert done.code == 5
    explained(done)
    assert "conductor model pull small" in done.err


def test_removing_a_base_says_who_needed_it(desk: Stage, tmp_path: Path) -> None:
    """`model rm` of a base names the adapters that cannot be used any more, before it asks."""
    taken(desk, make(tmp_path / "whole.gguf", seed=1))
    taken(desk, lora(tmp_path / "trained.gguf"), "--base", "whole")
    with terminal(desk, "model", "rm", "whole") as shown:
        assert "trained is an adapter for it" in shown.until("[y/N]")
        shown.program.sendline("")
        assert shown.end() == 0
    assert "trained is an adapter for it" in desk.inside("model", "rm", "whole", "--yes").err


@pytest.mark.parametrize(
    ("other", "problem"), [({"architecture": "llama"}, "architecture"), ({"width": 32}, "it has 64 x 64")]
)
def test_an_adapter_that_does_not_fit_is_not_imported(
    desk: Stage, tmp_path: Path, other: dict[str, Any], problem: str
) -> None:
    """A LoRA for another architecture or width than its base, which is here: 5, and nothing is in the model store."""
    taken(desk, make(tmp_path / "whole.gguf", seed=1))
    done = desk.inside("model", "import", lora(tmp_path / "trained.gguf", **other), "--base", "whole")
    assert done.code == 5
    explained(done)
    assert problem in done.err
    assert not (desk.home / "data/conductor-llm/models/trained").exists()


# verify


def test_a_whole_model_is_verified(desk: Stage, tiny: Path) -> None:
    """Without a name: the model in use; the line says what its SHA-256 is compared with."""
    taken(desk, tiny)
    done = desk.inside("model", "verify")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("ok ")
    assert sha256(tiny) in done.out
    assert desk.inside("model", "verify", "--json").json == [{
        "name": "small", "path": desk.inside("model", "path").out.strip(), "state": "ok", "sha256": sha256(tiny),
        "compared": "matches conductor's registry", "problem": None, "hint": None,
    }]  # fmt: skip


def test_a_damaged_model_is_found_by_reading_it(desk: Stage, tiny: Path) -> None:
    """A flipped byte in the weights: 5, the file and how to get it again; a list does not see it."""
    taken(desk, tiny, "--copy")
    path = Path(str(row(desk, "small")["path"]))
    data = bytearray(path.read_bytes())
    data[-50] ^= 4
    path.write_bytes(data)
    assert row(desk, "small")["state"] == "installed"
    done = desk.inside("model", "verify", "small")
    assert done.code == 5
    assert done.out.startswith(f"damaged  {path}\n")
    assert desk.inside("model", "verify", "--json").json[0]["state"] == "damaged"
    mended(desk, done.out)


@pytest.mark.parametrize("copied", [True, False], ids=["a copy", "a link"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_the_command_that_verify_names_mends(desk: Stage, tmp_path: Path, copied: bool, damage: str) -> None:
    """An imported model whose file was damaged or deleted: the named command brings it back from where it was."""
    source = make(tmp_path / "my models.gguf", seed=3)
    data = source.read_bytes()
    taken(desk, source, *(["--copy"] if copied else []))
    path = Path(str(row(desk, "my-models")["path"]))
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(data[:-50] + (b"" if damage == "cut" else bytes(byte ^ 4 for byte in data[-50:])))
    done = desk.inside("model", "verify")
    assert done.code == 5
    if not copied and damage != "gone":  # the same bytes as at the source
        assert f"restore {source}, then: conductor model import" in done.out
        again = desk.inside("model", "import", source, "--name", "my-models")
        assert again.code == 5
        explained(again)
        source.unlink()
        source.write_bytes(data)
    mended(desk, done.out)
    assert source.read_bytes() == path.read_bytes() == data


def mended(stage: Stage, told: str) -> None:
    """Assert that the command in the last line of what was told makes all well."""
    command = told.splitlines()[-1].partition("conductor ")[2]
    done = stage.inside(*shlex.split(command))
    assert done.code == 0, done.err
    assert stage.inside("model", "verify").code == 0


def test_what_takes_the_place_of_a_damaged_model_leaves_nothing_of_it(desk: Stage, tmp_path: Path) -> None:
    """The same bytes under another file's name: the damaged file of the model store goes."""
    source = make(tmp_path / "one.gguf", seed=3)
    other = Path(shutil.copy(source, tmp_path / "other.gguf"))
    taken(desk, source, "--copy")
    path = Path(str(row(desk, "one")["path"]))
    path.write_bytes(path.read_bytes()[:-50] + b"x" * 50)
    taken(desk, other, "--name", "one")
    assert sorted(file.name for file in path.parent.iterdir()) == ["manifest.toml", "other.gguf"]
    assert desk.inside("model", "verify").code == 0


def test_a_chosen_file_that_is_gone_is_not_verified_as_another(desk: Stage, tiny: Path, tmp_path: Path) -> None:
    """A plain file plans and is deleted: 5, its path and what to do, though another model is in the model store."""
    mine = make(tmp_path / "mine.gguf", seed=1)
    taken(desk, tiny, "--no-use")
    assert desk.inside("model", "use", mine).code == 0
    mine.unlink()
    done = desk.inside("model", "verify")
    assert done.code == 5
    explained(done)
    assert f"plans is missing: {mine}" in done.err
    assert "conductor model use" in done.err


def test_a_further_part_names_the_first(desk: Stage, tmp_path: Path) -> None:
    """`import` and `verify` of the second file of a divided model: 5, and the first file is named."""
    first, second = (tmp_path / f"big-0000{number}-of-00002.gguf" for number in (1, 2))
    for path in (first, second):
        make(path)
    for command in ("import", "verify"):
        done = desk.inside("model", command, second)
        assert done.code == 5
        assert "is not the first part of its model" in done.err + done.out
    assert f"name the first one: {first}" in desk.inside("model", "import", second).err


def test_a_plain_file_is_verified(desk: Stage, tiny: Path, tmp_path: Path) -> None:
    """A file without a manifest: its header is looked at and its hash printed; one that is no model is damaged."""
    done = desk.inside("model", "verify", tiny)
    assert done.code == 0
    assert sha256(tiny) in done.out
    (tmp_path / "text.gguf").write_text("I am a text.")
    assert desk.inside("model", "verify", tmp_path / "text.gguf").code == 5


def test_where_nothing_plans_all_that_is_here_is_verified(desk: Stage, tmp_path: Path) -> None:
    """Two models, none in use: both are read; none at all: 5 with the command to run."""
    assert "conductor model pull" in desk.inside("model", "verify").err
    for number in (1, 2):
        taken(desk, make(tmp_path / f"m{number}.gguf", seed=number), "--no-use")
    assert [item["name"] for item in desk.inside("model", "verify", "--json").json] == ["m1", "m2"]


# rm


def test_a_model_in_use_is_removed_and_no_longer_chosen(desk: Stage, tiny: Path) -> None:
    """`rm --yes`: the model store's file goes, the first one stays, the setting is cleared, and that is said."""
    taken(desk, tiny, "--copy")
    path = Path(str(row(desk, "small")["path"]))
    done = desk.inside("model", "rm", "small", "--yes")
    assert done.code == 0
    assert f"{format_size(tiny.stat().st_size)} freed" in done.out
    assert "was the model that plans" in done.err
    assert (path.exists(), tiny.exists(), chosen(desk)) == (False, True, "")
    assert "now none does: conductor model pull" in done.err


def test_removing_says_what_plans_now(desk: Stage, tiny: Path, tmp_path: Path) -> None:
    """The model that is left plans; where it is not the one that planned that goes, nothing is said."""
    for number in (1, 2):
        taken(desk, make(tmp_path / f"m{number}.gguf", seed=number))
    taken(desk, tiny, "--no-use")
    assert desk.inside("model", "rm", "small", "--yes").err == ""
    assert desk.inside("model", "rm", "m1", "--yes").err == "m1 was the model that plans; now m2 does\n"
    assert resolve_planner(load_settings(os.environ)).model.endswith("m2.gguf")


def test_what_a_model_remembers_goes_with_it(
    desk: Stage, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its states on disk are deleted, those of other models are not; not while the same file has another name."""
    monkeypatch.setattr(planner_resolution, "WORTH_REMEMBERING", 0)
    states = load_settings(os.environ).paths.prefixes
    for path in (tiny, make(tmp_path / "mine.gguf", seed=1)):
        taken(desk, path, "--use")
        assert desk.inside("model", "prepare").code == 0
    both = {path: path.stat().st_size for path in states.glob("*.kv")}
    taken(desk, tmp_path / "mine.gguf", "--name", "again", "--no-use")
    assert desk.inside("model", "rm", "mine", "--yes").code == 0
    assert set(states.glob("*.kv")) == set(both)
    done = desk.inside("model", "rm", "again", "--yes")
    left = set(states.glob("*.kv"))
    assert 0 < len(left) < len(both)
    assert format_size(sum(size for path, size in both.items() if path not in left)) in done.out
    assert desk.inside("model", "prepare").code == 0  # the other one is chosen now
    assert set(states.glob("*.kv")) == left


def test_a_setting_that_names_another_model_stays(
    desk: Stage, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the environment names is removed: the tool's own file names another one, and is not touched."""
    taken(desk, tiny)
    taken(desk, make(tmp_path / "mine.gguf", seed=1))
    assert chosen(desk) == "small"
    monkeypatch.setenv("CONDUCTOR_LLM_CONDUCTOR_MODEL", "mine")
    done = desk.inside("model", "rm", "mine", "--yes")
    assert done.code == 0
    assert "CONDUCTOR_LLM_CONDUCTOR_MODEL still names it" in done.err
    assert chosen(desk) == "small"


def test_nothing_is_removed_without_a_yes(desk: Stage, tiny: Path) -> None:
    """Without a terminal `--yes` is needed: 2; on one the question is asked, and a bare Enter means no."""
    taken(desk, tiny)
    done = desk.inside("model", "rm", "small")
    assert done.code == 2
    explained(done)
    for answer, left in (("", True), ("n", True), ("y", False)):
        with terminal(desk, "model", "rm", "small") as shown:
            shown.until("[y/N]")
            shown.program.sendline(answer)
            assert shown.end() == 0
        assert (row(desk, "small")["state"] == "installed") is left


def test_a_model_that_is_not_here_cannot_be_removed(desk: Stage) -> None:
    """An unknown name and one that was never pulled: 2."""
    for name in ("small", "nobody", "../x"):
        done = desk.inside("model", "rm", name, "--yes")
        assert done.code == 2
        explained(done)


def cached(stage: Stage, name: str, file: Path) -> Path:
    """Put a file into the hub's cache, as another tool would have; return its name in the snapshot."""
    commit = hashlib.sha1(file.read_bytes()).hexdigest()
    repo = stage.home / f"cache/huggingface/hub/models--acme--{name}"
    blob, link = repo / "blobs" / sha256(file), repo / "snapshots" / commit / file.name
    for path in (blob, link, repo / "refs/main"):
        path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, blob)
    link.symlink_to(Path(os.path.relpath(blob, link.parent)))
    (repo / "refs/main").write_text(commit)
    return link


# pull


def test_a_model_in_the_hub_s_cache_is_not_fetched_again(desk: Stage, tiny: Path) -> None:
    """What another tool left in the cache is checked, gets a manifest, and plans, without a network; `rm` leaves it."""
    link = cached(desk, "small", tiny)
    done = desk.inside("model", "pull")
    assert done.code == 0, done.err
    assert str(link) in done.out
    assert "matches conductor's registry" in done.out
    assert chosen(desk) == "small"
    assert "licence Apache-2.0" in done.err
    assert "memory: needs about" in done.err
    again = desk.inside("model", "pull", "small")
    assert (again.code, again.err) == (0, "")
    assert again.out == f"small is already installed: {link}\n"
    removed = desk.inside("model", "rm", "small", "--yes")
    assert removed.code == 0
    assert "no bytes freed" in removed.out
    assert f"kept {link}" in removed.err
    assert link.read_bytes() == tiny.read_bytes()


def test_what_is_all_there_is_said_to_be_so(desk: Stage, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is to be got: 0 bytes of it; a size that nobody knows is said to be unknown."""
    cached(desk, "small", tiny)
    cached(desk, "other", tiny)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "264 kB, 0 bytes of it to download," in desk.inside("model", "pull").err
    assert "other: size unknown, licence" in desk.inside("model", "pull", "other").err


def test_a_pull_that_finds_no_room_is_refused_before_it_begins(desk: Stage, tiny: Path) -> None:
    """A model larger than the free disk: 5, and what is missing and free; a licence that is not Apache-2.0 is said."""
    huge = entry("small", tiny, sized=False, hashed=False, licence="Research only") + f"\nsize = {1 << 60}"
    register(desk, huge.replace('shape = "tiny"', 'shape = "vast"'), entry("other", tiny))
    done = desk.inside("model", "pull")
    assert done.code == 5
    assert "Research only is not Apache-2.0" in done.err
    assert "too little" in done.err
    assert "smaller: conductor model pull other" in done.err
    assert "free some space" in done.err
    assert json.loads(desk.inside("model", "list", "--json").out)[0]["state"] == "not installed"

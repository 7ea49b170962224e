"""The planner whose adapter lies in the package: pulled, chosen, listed, checked, proposed.

A registry in a directory of the test stands for the package's, with an adapter beside it or none.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from conductor_cli.app.planner_resolution import configured_profile, resolve_planner
from conductor_cli.app.setup import Findings, propose_model
from conductor_cli.config.settings import load_settings
from conductor_cli.models.llama.lora import pack_adapter
from conductor_cli.models.weights.registry import SHIPPED
from conductor_cli.system.hardware import Gpu, Memory
from tests.cli.stage import Stage
from tests.cli.test_model import chosen, entry, register, row
from tests.hub import Hub, hub, read_environment
from tests.tiny_gguf import lora, make

ADAPTER = """[[models]]
name = "trained"
base = "small"
profile = "kinds"
licence = "Apache-2.0"
about = "trained to plan"
[[models.parts]]
file = "planners/trained.gguf"
"""
FIGURES = {"easy questions in one step": "20 of 20"}


def package(stage: Stage, seed: int = 1, width: int = 64) -> Path:
    """Put a packed adapter and its record beside the registry, and return the adapter's path."""
    path = stage.home / "planners/trained.gguf"
    path.parent.mkdir(exist_ok=True)
    pack_adapter(lora(stage.home / "lora.gguf", seed=seed, width=width), path)
    record = {
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "base_sha256": "0" * 64,
        "examined": "2026-11-29",
        "figures": FIGURES,
    }
    path.with_suffix(".json").write_text(json.dumps(record))
    return path


@pytest.fixture
def server(stage: Stage, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that has the base of the packaged adapter; no planner is chosen."""
    stage.configure(conductor=None)
    register(stage, entry("first", make(stage.home / "first.gguf", seed=7)), entry("small", tiny))
    with (stage.home / "registry.toml").open("a") as file:
        file.write(ADAPTER)
    with hub() as opened:
        opened.commit("acme/small", {tiny.name: tiny.read_bytes()})
        monkeypatch.setenv("CONDUCTOR_LLM_REGISTRY", str(stage.home / "registry.toml"))
        monkeypatch.setenv("HF_ENDPOINT", opened.url)
        read_environment()
        yield opened


def test_one_name_sets_up_base_adapter_and_profile(stage: Stage, server: Hub) -> None:
    package(stage)
    done = stage.ok("model", "pull", "trained")
    assert "of this package, an adapter for small, licence Apache-2.0" in done.err
    assert "measured 2026-11-29: easy questions in one step 20 of 20" in done.err
    assert "unpacked from a file of this package that matches its record" in done.out
    assert "the planner is now trained" in done.out
    assert chosen(stage) == "trained"
    settings = load_settings(stage.environ())
    planner = resolve_planner(settings)
    assert Path(planner.model).name.endswith(".gguf")
    assert Path(planner.options["adapter"]).parent.name == "trained"
    profile = configured_profile(settings)
    assert (profile.name, profile.untrained) == ("kinds", False)
    assert row(stage, "small")["state"] == row(stage, "trained")["state"] == "installed"
    answered = stage.ok("ask", "How many?", "--seed", "3", "--format", "json")
    assert " + trained sha256-ends:" in answered.json["conductor"]
    verified = stage.inside("model", "verify", "--json").json
    assert [item["state"] for item in verified] == ["ok", "ok"]
    assert "trained is already installed" in stage.ok("model", "pull", "trained").out


def test_a_build_without_the_adapter_says_so_and_does_not_offer_it(
    stage: Stage, server: Hub
) -> None:
    listed = stage.inside("model", "list", "--json").json
    assert "trained" not in {item["name"] for item in listed}
    stage.fails(5, "model", "pull", "trained", told="trained is not part of this build")
    stage.fails(5, "ask", "hi", "--planner", "trained", told="trained is not part of this build")
    stage.ok("model", "pull", "small")


def test_the_list_names_what_was_measured(stage: Stage, server: Hub) -> None:
    package(stage)
    assert row(stage, "trained")["base"] == "small"
    done = stage.inside("model", "list")
    assert "this package" in done.out
    assert "trained: trained to plan; measured 2026-11-29: easy questions" in done.err


@pytest.mark.parametrize(
    ("damage", "message"),
    [("flipped", "has the SHA-256"), ("of another model", "is for another model than")],
)
def test_an_adapter_that_is_not_what_was_examined_is_refused(
    stage: Stage, server: Hub, damage: str, message: str
) -> None:
    if damage == "flipped":
        path = package(stage)
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    else:
        package(stage, width=32)
    done = stage.inside("model", "pull", "trained")
    assert (done.code, message in done.err) == (5, True), done.err
    assert "planners/trained.gguf" in done.err
    assert row(stage, "trained")["state"] == "not installed"
    assert chosen(stage) == ""


def test_a_stored_adapter_outlives_the_package_and_doctor_tells(stage: Stage, server: Hub) -> None:
    path = package(stage)
    stage.ok("model", "pull", "trained")

    def warnings() -> list[str]:
        checks = stage.inside("doctor", "--offline", "--json").json["checks"]
        return [check["found"] for check in checks if check["name"] == "planner trained"]

    report = stage.inside("doctor", "--offline", "--json").json["checks"]
    [planner] = [check for check in report if check["name"] == "planner"]
    assert "its adapter fits" in planner["found"]
    assert "profile kinds" in planner["found"]
    assert warnings() == []
    package(stage, seed=2)
    assert warnings() == ["this build has another adapter of this name than the one that is stored"]
    stage.ok("model", "pull", "trained")
    assert warnings() == []
    stage.ok("config", "set", "conductor.profile", "prompted")
    assert "it was trained for the profile kinds" in warnings()[0]
    stage.ok("config", "set", "conductor.profile", "default")
    path.unlink()
    assert "this build has no adapter of this name" in warnings()[0]
    stage.ok("ask", "How many?", "--seed", "3")


@pytest.mark.parametrize(
    ("cores", "gpus", "is_first"),
    [
        (2, (), True),
        (7, (), True),
        (8, (), False),
        (0, (), False),
        (2, (Gpu(kind="cuda", name="G"),), False),
    ],
)
def test_setup_offers_it_first_on_a_small_machine_without_a_gpu(
    stage: Stage, server: Hub, home: Path, cores: int, gpus: tuple[Gpu, ...], is_first: bool
) -> None:
    package(stage)
    findings = Findings(
        memory=Memory(total=64 << 30, available=64 << 30),
        cores=cores,
        gpus=gpus,
        downloads=home,
        free=500 << 30,
    )
    settings = load_settings(stage.environ(), {"conductor.model": ""})
    [step] = propose_model(findings, settings)
    assert step.name == ("trained" if is_first else "first")
    if is_first:
        assert "measured 2026-11-29" in step.text
        assert "larger, not compared: conductor setup --model first" in step.text
        assert step.command == ("model", "pull", "trained", "--use", "--yes")


def test_the_shipped_registry_knows_its_planner(stage: Stage, home: Path) -> None:
    """With an adapter of the right name beside it, and without."""
    directory = home / "weights"
    directory.mkdir()
    shutil.copy(SHIPPED, directory)
    environ = {**stage.environ(), "CONDUCTOR_LLM_REGISTRY": str(directory / SHIPPED.name)}
    absent = load_settings(environ, {"conductor.model": "conductor-0.5b"})
    findings = Findings(memory=Memory(), downloads=home, free=0)
    [step] = propose_model(findings, absent)
    assert "conductor-0.5b is not part of this build" in step.text

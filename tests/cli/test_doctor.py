"""`conductor doctor` on the local model: the build, memory, disk, and the state of the model file."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from conductor_cli.config import load_settings
from tests.cli.stage import Stage


def test_doctor_checks_build_memory_disk_and_model(stage: Stage, tiny: Path) -> None:
    """With a local model: CPU features, memory needed, free disk, file size, and how its checksum is known."""
    stage.configure(conductor=str(tiny))
    done = stage.inside("doctor", "--json")
    assert done.code == 0
    found = {check["name"]: check for check in done.json["checks"]}
    assert {"llama.cpp", "GPU", "memory", "downloads", "models", "prefixes", "traces"} <= set(found)
    assert "llama-cpp-python 0." in found["llama.cpp"]["found"]
    assert "CPU" in found["llama.cpp"]["found"]
    assert "needs 60" in found["memory"]["found"]  # 600 MB and a little: the file is a quarter of a megabyte
    assert "free" in found["prefixes"]["found"]
    assert found["conductor model"]["state"] == "ok"
    assert "SHA-256 never checked" in found["conductor model"]["found"]


def test_a_model_that_is_too_large_is_a_warning_with_a_smaller_one(stage: Stage, tiny: Path, tmp_path: Path) -> None:
    """Two terabytes do not fit: the need is said, and the largest model of the registry that does fit is named."""
    path = tmp_path / "large.gguf"
    path.write_bytes(tiny.read_bytes())
    with suppress(OSError):
        os.truncate(path, 2 << 40)  # a hole, which takes no disk
    if path.stat().st_size < 2 << 40:
        pytest.skip("this file system has no files of this size")
    stage.configure(conductor=str(path))
    done = stage.inside("doctor", "--json")
    check = next(check for check in done.json["checks"] if check["name"] == "memory")
    assert check["state"] == "warning"
    assert "needs 2200 GB" in check["found"]
    assert "conductor model pull qwen2.5-" in check["hint"]


def test_a_damaged_model_is_found_without_loading_it(stage: Stage, tiny: Path, tmp_path: Path) -> None:
    """A file that is cut off is a failure with the exit code of an unusable conductor."""
    path = tmp_path / "cut.gguf"
    path.write_bytes(tiny.read_bytes()[:2000])
    stage.configure(conductor=str(path))
    done = stage.inside("doctor", "--json")
    failed = {check["name"]: check["found"] for check in done.json["checks"] if check["state"] == "failed"}
    assert done.code == 5
    assert list(failed) == ["conductor model"]
    assert "cut.gguf" in failed["conductor model"]


def test_a_registry_that_cannot_be_read_is_a_failure(
    stage: Stage, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the model that plans does not need it; a whole one says how many models it has."""
    stage.configure(conductor=str(tiny))
    checks = {check["name"]: check for check in stage.inside("doctor", "--json").json["checks"]}
    assert checks["registry"]["state"] == "ok"
    (tmp_path / "registry.toml").write_text("models = 3\n")
    monkeypatch.setenv("CONDUCTOR_LLM_REGISTRY", str(tmp_path / "registry.toml"))
    done = stage.inside("doctor", "--json")
    checks = {check["name"]: check for check in done.json["checks"]}
    assert checks["registry"]["state"] == "failed"
    assert str(tmp_path / "registry.toml") in checks["registry"]["found"]
    assert checks["registry"]["hint"]
    assert done.code == 3


def test_a_damaged_model_of_the_store_is_a_warning(stage: Stage, tiny: Path) -> None:
    """Also for a model that is not in use; the hint is the command that removes it."""
    stage.configure(conductor=str(tiny))
    assert stage.inside("model", "import", str(tiny), "--name", "mine").code == 0
    manifests = load_settings(stage.environ()).paths.models
    (manifests / "mine" / "manifest.toml").write_text("name = 'mine'\nfiles = 3\n")
    done = stage.inside("doctor", "--json")
    check = next(check for check in done.json["checks"] if check["name"] == "model mine")
    assert check["state"] == "warning"
    assert "models/mine/manifest.toml: " in check["found"]
    assert "conductor model rm mine" in check["hint"]


def test_hints_of_several_lines_are_aligned(stage: Stage) -> None:
    """All lines of a hint start in the same column, right of the names."""
    stage.config.write_text("[limits]\nattempts = 1\n")
    lines = stage.inside("doctor").out.splitlines()
    place = next(number for number, line in enumerate(lines) if "no conductor model is chosen" in line)
    column = lines[place].index("no conductor")
    assert lines[place + 1][:column].strip() == ""
    assert lines[place + 1][column:].startswith("conductor model")

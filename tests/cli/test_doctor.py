"""`conductor doctor` on the local model: the build, memory, disk, and the state of the model file."""

from __future__ import annotations

import os
import re
import sys
from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest

from conductor_cli.app import doctor
from conductor_cli.config import load_settings
from conductor_cli.models.hardware import Gpu
from conductor_cli.models.llama import bindings
from tests.cli.stage import PLANNER, Stage, refuses


def test_doctor_checks_build_memory_disk_and_model(stage: Stage, tiny: Path) -> None:
    stage.configure(conductor=str(tiny))
    done = stage.ok("doctor", "--json")
    found = {check["name"]: check for check in done.json["checks"]}
    assert {"llama.cpp", "memory", "downloads", "prefixes", "traces"} <= set(found)
    assert "llama-cpp-python 0." in found["llama.cpp"]["found"]
    assert "needs 60" in found["memory"]["found"]  # 600 MB and a little: the file is a quarter of a megabyte
    assert "free" in found["prefixes"]["found"]
    assert found["planner"]["state"] == "ok"
    assert "SHA-256 never checked" in found["planner"]["found"]


def test_a_model_that_is_too_large_is_a_warning_with_a_smaller_one(stage: Stage, tiny: Path, tmp_path: Path) -> None:
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
    path = tmp_path / "cut.gguf"
    path.write_bytes(tiny.read_bytes()[:2000])
    stage.configure(conductor=str(path))
    done = stage.inside("doctor", "--json")
    failed = {check["name"]: check["found"] for check in done.json["checks"] if check["state"] == "failed"}
    assert done.code == 5
    assert list(failed) == ["planner"]
    assert "cut.gguf" in failed["planner"]


def test_a_registry_that_cannot_be_read_is_a_failure(
    stage: Stage, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.configure(conductor=str(tiny))
    (tmp_path / "registry.toml").write_text("models = 3\n")
    monkeypatch.setenv("CONDUCTOR_LLM_REGISTRY", str(tmp_path / "registry.toml"))
    done = stage.inside("doctor", "--json")
    checks = {check["name"]: check for check in done.json["checks"]}
    assert checks["model store"]["state"] == "failed"
    assert str(tmp_path / "registry.toml") in checks["model store"]["found"]
    assert checks["model store"]["hint"]
    assert done.code == 3


def test_a_damaged_model_of_the_store_is_a_warning(stage: Stage, tiny: Path) -> None:
    stage.configure(conductor=str(tiny))
    assert stage.inside("model", "import", str(tiny), "--name", "mine").code == 0
    manifests = load_settings(stage.environ()).paths.models
    (manifests / "mine" / "manifest.toml").write_text("name = 'mine'\nfiles = 3\n")
    done = stage.inside("doctor", "--json")
    check = next(check for check in done.json["checks"] if check["name"] == "model mine")
    assert check["state"] == "warning"
    assert "models/mine/manifest.toml: " in check["found"]
    assert "conductor model rm mine" in check["hint"]


def test_no_hint_begins_in_the_middle_of_a_sentence(stage: Stage) -> None:
    stage.models |= {"planner": refuses(401), "alpha": refuses(401), "beta": refuses(500)}
    checks = stage.inside("doctor", "--json").json["checks"]
    hints = [line for check in checks if check["state"] != "ok" for line in check["hint"].splitlines()]
    assert len(hints) > 3
    assert not [line for line in hints if re.match(r"(or|and|then)\b", line)]


def test_hints_are_aligned_below_the_check(stage: Stage) -> None:
    stage.config.write_text("[limits]\nattempts = 1\n")
    lines = stage.inside("doctor").out.splitlines()
    place = next(number for number, line in enumerate(lines) if "no planner is chosen" in line)
    assert lines[place].startswith("failed   planner: ")
    assert lines[place + 1].startswith("         to find or download one: conductor setup")


@pytest.mark.parametrize(("offload", "state"), [(True, "ok"), (False, "warning")])
def test_a_gpu_that_is_not_used_is_a_warning(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, offload: bool, state: str
) -> None:
    monkeypatch.setattr(doctor, "find_gpus", lambda _: (Gpu(kind="cuda", name="NVIDIA A100"),))
    monkeypatch.setattr(doctor, "can_use_gpu", lambda _: offload)
    [check] = doctor.llama_build(load_settings(stage.environ()))
    assert (check.state, check.code) == (state, 0)
    assert "NVIDIA A100" in check.text
    assert check.hint.startswith("CMAKE_ARGS") is not offload


def test_a_missing_llama_cpp_is_a_warning(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planner at a provider and workers elsewhere need none; what does need it fails in a check of its own."""
    monkeypatch.setattr(bindings, "_LOADED", [])
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    monkeypatch.setattr(doctor, "is_installed", lambda: False)
    [check] = doctor.llama_build(load_settings(stage.environ()))
    assert (check.state, check.text, check.code) == ("warning", "llama.cpp is not installed", 0)
    assert "models on this machine need it: " in check.hint


# The report


def test_no_secret_is_in_the_report(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-in-variable/0123+456789==")
    monkeypatch.setenv("SOME_TOKEN", "tok-of-somebody-else")
    monkeypatch.setenv("HTTPS_PROXY", f"http://user:{quote('p4ss:word/0123456789', safe='')}@127.0.0.1:9")
    more = 'key_env = "MY_KEY"\nheaders = { X-Auth = "Bearer hdr-secret/0123+4567" }'
    odd = f'[workers.odd]\nkind = "openai-compatible"\nmodel = "m"\nbase_url = "{stage.url}?sign=not-to-be-shown"'
    stage.configure(f"[limits]\nattempts = 1\n{stage.worker('alpha', more)}\n{odd}", workers=())
    keys = ("sk-in-variable/0123+456789==", "hdr-secret/0123+4567", "tok-of-somebody-else", "p4ss:word/0123456789")
    said = " ".join(f"{key} {quote(key, safe='')} {b64encode(key.encode()).decode()}" for key in keys)
    stage.models = {"alpha": refuses(400, said), PLANNER: refuses(400, said)}
    done = stage.inside("doctor", "--json")
    for key in (*keys, "not-to-be-shown"):
        assert key[4:-4] not in done.out
        assert quote(key, safe="")[4:-4] not in done.out
        assert b64encode(key.encode()).decode()[4:-4] not in done.out


def test_the_report_has_settings_and_workers(stage: Stage) -> None:
    report = stage.inside("doctor", "--offline", "--json").json
    assert report["settings"]["limits.attempts"]["value"] == 1
    assert report["settings"]["limits.attempts"]["from"].endswith("config.toml")
    assert [worker["name"] for worker in report["workers"]] == ["alpha", "beta"]

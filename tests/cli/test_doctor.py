"""`conductor doctor`.

The build, memory, disk and model file, and by use the planner, workers, keyring and disks.
"""

from __future__ import annotations

import os
import sys
import threading
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from conductor_cli.app import doctor
from conductor_cli.app.check_results import CheckResult
from conductor_cli.config.settings import Settings, load_settings
from conductor_cli.models.llama import bindings
from conductor_cli.system.hardware import Gpu
from tests.cli.stage import PLANNER, TWO, Done, Stage, refuses
from tests.state.bus import items, use_backend, wedged


def checks(done: Done) -> dict[str, Any]:
    return {check["name"]: check for check in done.json["checks"]}


def finds(
    stage: Stage,
    name: str,
    state: str,
    *message: str,
    code: int | None = None,
    words: Sequence[str] = (),
    **how: Any,
) -> Any:
    """Assert what doctor finds out about one thing, what it says of it, and with which exit code.

    The check.
    """
    done = stage.inside("doctor", "--json", *words, **how)
    check = checks(done)[name]
    assert (check["state"], done.code if code is not None else None) == (state, code), done
    assert [text for text in message if text not in f"{check['found']}\n{check['hint']}"] == [], (
        check
    )
    assert check["hint"] or state == "ok"
    return check


def test_doctor_checks_build_memory_disk_and_model(stage: Stage, tiny: Path) -> None:
    stage.configure(conductor=str(tiny))
    done = stage.ok("doctor", "--json")
    results = checks(done)
    assert {"llama.cpp", "memory", "downloads", "prefixes", "traces"} <= set(results)
    assert "llama-cpp-python 0." in results["llama.cpp"]["found"]
    # 600 MB and a little: the file is a quarter of a megabyte
    assert "needs 60" in results["memory"]["found"]
    assert "free" in results["prefixes"]["found"]
    assert results["planner"]["state"] == "ok"
    assert "SHA-256 never checked" in results["planner"]["found"]
    assert "the first step after" in results["planning"]["found"]


def test_a_model_that_is_too_large_is_a_warning_with_a_smaller_one(
    stage: Stage, tiny: Path, tmp_path: Path
) -> None:
    path = tmp_path / "large.gguf"
    path.write_bytes(tiny.read_bytes())
    with suppress(OSError):
        os.truncate(path, 2 << 40)  # a hole, which takes no disk
    if path.stat().st_size < 2 << 40:
        pytest.skip("this file system has no files of this size")
    stage.configure(conductor=str(path))
    finds(stage, "memory", "warning", "needs 2200 GB", "conductor model pull qwen2.5-")


def test_a_damaged_model_is_found_without_loading_it(
    stage: Stage, tiny: Path, tmp_path: Path
) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(tiny.read_bytes()[:2000])
    stage.configure(conductor=str(path))
    done = stage.inside("doctor", "--json")
    failed = {
        name: check["found"] for name, check in checks(done).items() if check["state"] == "failed"
    }
    assert done.code == 5
    assert list(failed) == ["planner"]
    assert "cut.gguf" in failed["planner"]


def test_a_registry_that_cannot_be_read_is_a_failure(
    stage: Stage, tiny: Path, tmp_path: Path
) -> None:
    stage.configure(conductor=str(tiny))
    registry = tmp_path / "registry.toml"
    registry.write_text("models = 3\n")
    finds(
        stage,
        "model store",
        "failed",
        str(registry),
        code=3,
        env={"CONDUCTOR_LLM_REGISTRY": str(registry)},
    )


def test_a_damaged_model_of_the_store_is_a_warning(stage: Stage, tiny: Path) -> None:
    stage.configure(conductor=str(tiny))
    assert stage.inside("model", "import", str(tiny), "--name", "mine").code == 0
    manifests = load_settings(stage.environ()).paths.models
    (manifests / "mine" / "manifest.toml").write_text("name = 'mine'\nfiles = 3\n")
    finds(stage, "model mine", "warning", "models/mine/manifest.toml: ", "conductor model rm mine")


def test_hints_are_aligned_below_the_check(stage: Stage) -> None:
    stage.config.write_text("[limits]\nattempts = 1\n")
    lines = stage.inside("doctor").out.splitlines()
    line_index = next(number for number, line in enumerate(lines) if "no planner is chosen" in line)
    assert lines[line_index].startswith("failed   planner: ")
    assert lines[line_index + 1].startswith("         to find or download one: conductor setup")


@pytest.mark.parametrize(("offload", "state"), [(True, "ok"), (False, "warning")])
def test_an_unused_gpu_is_a_warning(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, offload: bool, state: str
) -> None:
    monkeypatch.setattr(doctor, "find_gpus", lambda _: (Gpu(kind="cuda", name="NVIDIA A100"),))
    monkeypatch.setattr(doctor, "can_use_gpu", lambda _: offload)
    [check] = doctor.llama_build(load_settings(stage.environ()))
    assert (check.state, check.code) == (state, 0)
    assert "NVIDIA A100" in check.text
    assert check.hint.startswith("CMAKE_ARGS") is not offload


def test_a_missing_llama_cpp_is_a_warning(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planner at a provider and workers elsewhere need none.

    What does need it fails in a check of its own.
    """
    monkeypatch.setattr(bindings, "_LOADED", [])
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    monkeypatch.setattr(doctor, "is_installed", lambda: False)
    [check] = doctor.llama_build(load_settings(stage.environ()))
    assert (check.state, check.text, check.code) == ("warning", "llama.cpp is not installed", 0)
    assert "models on this machine need it: " in check.hint


def test_no_secret_is_in_the_report(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-in-variable/0123+456789==")
    monkeypatch.setenv("SOME_TOKEN", "tok-of-somebody-else")
    monkeypatch.setenv(
        "HTTPS_PROXY", f"http://user:{quote('p4ss:word/0123456789', safe='')}@127.0.0.1:9"
    )
    alpha_table = 'key_env = "MY_KEY"\nheaders = { X-Auth = "Bearer hdr-secret/0123+4567" }'
    odd = (
        '[workers.odd]\nkind = "openai-compatible"\nmodel = "m"\nbase_url = '
        f'"{stage.url}?sign=not-to-be-shown"'
    )
    stage.configure(
        f"[limits]\nattempts = 1\n{stage.worker('alpha', alpha_table)}\n{odd}", workers=()
    )
    keys = (
        "sk-in-variable/0123+456789==",
        "hdr-secret/0123+4567",
        "tok-of-somebody-else",
        "p4ss:word/0123456789",
    )
    message = " ".join(
        f"{key} {quote(key, safe='')} {b64encode(key.encode()).decode()}" for key in keys
    )
    stage.models = {"alpha": refuses(400, message), PLANNER: refuses(400, message)}
    done = stage.inside("doctor", "--json")
    for key in (*keys, "not-to-be-shown"):
        assert key[4:-4] not in done.out
        assert quote(key, safe="")[4:-4] not in done.out
        assert b64encode(key.encode()).decode()[4:-4] not in done.out


def test_everything_is_checked_by_use(stage: Stage) -> None:
    stage.plan = TWO
    done = stage.inside("doctor", "--json")
    assert (done.code, done.err) == (0, "")
    results = checks(done)
    assert done.json["ok"] is True
    assert results["planning"]["found"].startswith("planned 2 steps, ")
    assert results["planning"]["seconds"] > 0
    assert results["worker alpha"]["found"].endswith(", answered")
    assert results["worker beta"]["seconds"] > 0
    assert [len(stage.asked(name)) for name in (PLANNER, "alpha", "beta")] == [1, 1, 1]


def test_offline_calls_no_worker(stage: Stage) -> None:
    """No request is sent; workers are listed with the state of their keys."""
    done = stage.ok("doctor", "--offline", "--json")
    assert stage.server.requests == []
    assert (
        checks(done)["worker alpha"]["found"]
        == "openai-compatible alpha, key not needed, not called"
    )
    assert "planning" not in checks(done)


def test_offline_calls_no_local_model_server(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", f"127.0.0.1:{stage.server.port}")
    stage.configure(workers=())
    results = checks(stage.inside("doctor", "--offline", "--json"))
    assert stage.server.requests == []
    assert results["workers"]["found"].endswith("local model servers were not asked")


def test_planning_counts_towards_the_daily_limit(stage: Stage) -> None:
    assert stage.inside("doctor", "--json").code == 0
    assert [row["worker"] for row in stage.inside("cost", "--json").json["rows"]] == ["conductor"]
    stage.configure("[limits]\ntokens_day = 1")
    assert (
        "today's limit of 1 token" in checks(stage.ends(6, "doctor", "--json"))["planning"]["found"]
    )
    assert len(stage.asked(PLANNER)) == 1


def test_lines_begin_with_their_state_and_end_with_a_summary(stage: Stage) -> None:
    done = stage.inside("doctor")
    *lines, last = done.out.splitlines()
    assert {line.split()[0] for line in lines if not line.startswith(" ")} <= {"ok", "warning"}
    assert last.startswith("1 warning: keyring")
    assert "costs next to nothing; --offline" in done.err
    assert stage.inside("--quiet", "doctor").err == ""
    assert not list(stage.traces.glob("*")), "the fixed question is not stored"


def test_every_failure_has_a_hint(stage: Stage, tmp_path: Path) -> None:
    dead = (
        '[workers.dead]\nkind = "openai-compatible"\nbase_url = "http://127.0.0.1:1/v1"\nmodel '
        '= "m"'
    )
    stage.configure(
        f'{dead}\n[workers.remote]\nkind = "openai"',
        workers=(),
        conductor=str(tmp_path / "gone.gguf"),
    )
    done = stage.inside("doctor", "--json")
    failed = {name: check for name, check in checks(done).items() if check["state"] == "failed"}
    assert set(failed) == {"planner", "worker dead", "worker remote"}
    assert all("conductor" in check["hint"] for check in failed.values())
    assert (done.code, done.json["ok"]) == (5, False)


def test_a_conductor_that_writes_no_plan_is_a_warning(stage: Stage) -> None:
    stage.plan = "I would rather talk about the weather."
    finds(stage, "planning", "warning", "conductor config set planner.profile")


def test_a_refused_key_has_the_same_hint_everywhere(stage: Stage) -> None:
    hint = f"conductor keys set openai-compatible --base-url {stage.url}"
    stage.models = {"alpha": refuses(401, "wrong key"), "beta": refuses(403, "wrong key")}
    assert f"  {hint}\n" in stage.inside("ask", "What?", "--workers", "alpha").err
    tests = stage.inside("workers", "test", "--json").json
    assert [test["error"]["hint"] for test in tests] == [hint, hint]
    results = checks(stage.ends(4, "doctor", "--json"))
    assert (
        results["worker alpha"]["hint"].splitlines()[0]
        == results["worker beta"]["hint"].splitlines()[0]
        == hint
    )
    stage.models[PLANNER] = refuses(401, "wrong key")
    assert f"  {hint}\n" in stage.inside("ask", "What?").err
    assert checks(stage.inside("doctor", "--json"))["planning"]["hint"] == hint


def test_a_forbidden_worker_is_not_called(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".conductor.toml").write_text('[policy]\ndeny = ["alpha"]\n')
    stage.plan = "beta | - | Answer it."
    results = checks(stage.inside("doctor", "--json"))
    assert "not called: policy.deny names alpha" in results["worker alpha"]["found"]
    assert stage.asked("alpha") == []
    assert len(stage.asked("beta")) == 1


def test_a_check_that_hangs_is_abandoned(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    ending = threading.Event()

    def hangs(settings: Settings) -> list[CheckResult]:
        ending.wait()
        return []

    def breaks(settings: Settings) -> list[CheckResult]:
        raise RuntimeError(settings.paths.config.name)

    def well(settings: Settings) -> list[CheckResult]:
        return [CheckResult(name="well", text="it is")]

    monkeypatch.setattr(doctor, "TIMEOUT", 0.05)
    settings = load_settings({**stage.environ(), "CONDUCTOR_LLM_KEYRING_SECONDS": "0.05"})
    checks_by_name = {
        check.name: check for check in doctor.check_machine(settings, (hangs, breaks, well))
    }
    ending.set()
    assert checks_by_name["well"].state == "ok"
    assert (checks_by_name["hangs"].state, checks_by_name["hangs"].code) == ("failed", 1)
    assert "RuntimeError" in checks_by_name["breaks"].text


def test_a_directory_that_cannot_be_written_is_a_failure(stage: Stage, home: Path) -> None:
    stage.traces.parent.mkdir(parents=True)
    stage.traces.write_text("in the way")
    check = finds(stage, "traces", "failed", str(stage.traces), code=3, words=("--offline",))
    assert check["hint"] == "use another directory: CONDUCTOR_LLM_STATE_DIR=DIR"


def test_doctor_creates_no_directory(stage: Stage, home: Path) -> None:
    """A directory that does not exist is judged by the one in which it would be created."""
    assert stage.inside("doctor", "--offline").code == 0
    assert not (home / "state/conductor-llm").exists()


def test_a_real_keyring_is_written_read_and_cleaned(stage: Stage, keyring: str) -> None:
    check = finds(stage, "keyring", "ok", code=0, words=("--offline",))
    assert check["found"] == "SecretService Keyring: an item was written, read and removed"
    assert items(keyring) == []


def test_a_hanging_keyring_does_not_block(
    stage: Stage, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDUCTOR_LLM_KEYRING_SECONDS", "0.5")
    with wedged(address):
        finds(
            stage, "keyring", "warning", "did not answer within 0.5 s", code=0, words=("--offline",)
        )


@pytest.mark.parametrize("name", ["Refusing", "Forgetful", "Dying"])
def test_a_broken_keyring_is_a_warning_with_a_hint(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    use_backend(monkeypatch, name)
    finds(stage, "keyring", "warning", code=0, words=("--offline",))
    # It dies before it can remove anything
    assert name == "Dying" or not list((stage.home / "backend").glob("*"))


def test_a_broken_keyring_with_keys_is_a_failure(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_backend(monkeypatch, "Kept")
    assert stage.inside("keys", "set", "openai", given="sk-stored-0123456789abcdef").code == 0
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    finds(
        stage,
        "keyring",
        "failed",
        "the keys of openai are stored in it",
        code=4,
        words=("--offline",),
    )

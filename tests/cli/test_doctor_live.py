"""`conductor doctor` checks by use that the conductor plans, workers answer, and keyring and disks can be written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.app import doctor
from conductor_cli.app.check_results import CheckResult
from conductor_cli.config import Settings, load_settings
from tests.cli.stage import PLANNER, TWO, Done, Stage, refuses, says
from tests.cli.terminals import start_in_terminal
from tests.keys.bus import bus, gnome_keyring, items, own_backend, wedged


def checks(done: Done) -> dict[str, Any]:
    return {check["name"]: check for check in done.json["checks"]}


# the conductor and the workers


def test_everything_is_checked_by_use(stage: Stage) -> None:
    stage.plan = TWO
    done = stage.inside("doctor", "--json")
    assert (done.code, done.err) == (0, "")
    found = checks(done)
    assert done.json["ok"] is True
    assert found["planning"]["found"].startswith("planned 2 steps, ")
    assert found["planning"]["seconds"] > 0
    assert found["worker alpha"]["found"].endswith(", answered")
    assert found["worker beta"]["seconds"] > 0
    assert [len(stage.asked(name)) for name in (PLANNER, "alpha", "beta")] == [1, 1, 1]


def test_the_fixed_question_is_not_stored(stage: Stage) -> None:
    assert stage.inside("doctor").code == 0
    assert not list(stage.traces.glob("*"))


def test_offline_calls_no_worker(stage: Stage) -> None:
    """No request is sent; workers are listed with the state of their keys."""
    done = stage.ok("doctor", "--offline", "--json")
    assert stage.server.requests == []
    assert checks(done)["worker alpha"]["found"] == "openai-compatible alpha, key not needed, not called"
    assert "planning" not in checks(done)


def test_offline_calls_no_local_model_server(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", f"127.0.0.1:{stage.server.port}")
    stage.configure(workers=())
    found = checks(stage.inside("doctor", "--offline", "--json"))
    assert stage.server.requests == []
    assert found["workers"]["found"].endswith("local model servers were not asked")


def test_planning_counts_towards_the_daily_limit(stage: Stage) -> None:
    assert stage.inside("doctor", "--json").code == 0
    assert [row["worker"] for row in stage.inside("cost", "--json").json["rows"]] == ["conductor"]
    stage.configure("[limits]\ntokens_day = 1")
    done = stage.ends(6, "doctor", "--json")
    assert "today's limit of 1 token" in checks(done)["planning"]["found"]
    assert len(stage.asked(PLANNER)) == 1


def test_lines_begin_with_their_state_and_end_with_a_summary(stage: Stage) -> None:
    done = stage.inside("doctor")
    *lines, last = done.out.splitlines()
    assert {line.split()[0] for line in lines if not line.startswith(" ")} <= {"ok", "warning"}
    assert last.startswith("1 warning: keyring")
    assert "costs next to nothing; --offline" in done.err
    assert stage.inside("--quiet", "doctor").err == ""


def test_every_failure_has_a_hint(stage: Stage, tmp_path: Path) -> None:
    dead = '[workers.dead]\nkind = "openai-compatible"\nbase_url = "http://127.0.0.1:1/v1"\nmodel = "m"'
    stage.configure(f'{dead}\n[workers.remote]\nkind = "openai"', workers=(), conductor=str(tmp_path / "gone.gguf"))
    done = stage.inside("doctor", "--json")
    failed = {name: check for name, check in checks(done).items() if check["state"] == "failed"}
    assert set(failed) == {"planner", "worker dead", "worker remote"}
    assert all("conductor" in check["hint"] for check in failed.values())
    assert (done.code, done.json["ok"]) == (5, False)


def test_a_conductor_that_writes_no_plan_is_a_warning(stage: Stage) -> None:
    stage.plan = "I would rather talk about the weather."
    planning = checks(stage.inside("doctor", "--json"))["planning"]
    assert planning["state"] == "warning"
    assert "conductor config set conductor.profile" in planning["hint"]


def test_a_conductor_with_a_refused_key_is_a_failure(stage: Stage) -> None:
    stage.models[PLANNER] = refuses(401, "Incorrect API key provided")
    done = stage.inside("doctor", "--json")
    assert checks(done)["planning"]["state"] == "failed"
    assert done.code == 5


def test_a_failing_worker_sets_the_exit_code(stage: Stage) -> None:
    stage.models = {"alpha": refuses(401, "Incorrect API key provided"), "beta": says("here")}
    done = stage.ends(4, "doctor", "--json")
    assert checks(done)["worker alpha"]["state"] == "failed"
    assert checks(done)["worker beta"]["state"] == "ok"


def test_a_refused_key_has_the_same_hint_everywhere(stage: Stage) -> None:
    hint = f"conductor keys set openai-compatible --base-url {stage.url}"
    stage.models = {"alpha": refuses(401, "wrong key"), "beta": refuses(403, "wrong key")}
    assert f"  {hint}\n" in stage.inside("ask", "What?", "--workers", "alpha").err
    tests = stage.inside("workers", "test", "--json").json
    assert [test["error"]["hint"] for test in tests] == [hint, hint]
    found = checks(stage.inside("doctor", "--json"))
    assert found["worker alpha"]["hint"].splitlines()[0] == found["worker beta"]["hint"].splitlines()[0] == hint
    stage.models[PLANNER] = refuses(401, "wrong key")
    assert f"  {hint}\n" in stage.inside("ask", "What?").err
    assert checks(stage.inside("doctor", "--json"))["planning"]["hint"] == hint


def test_a_local_model_is_loaded_and_plans(stage: Stage, tiny: Path) -> None:
    stage.configure(conductor=str(tiny))
    done = stage.ends(0, "doctor", "--json")
    assert "the first step after" in checks(done)["planning"]["found"]


def test_a_forbidden_worker_is_not_called(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".conductor.toml").write_text('[policy]\ndeny = ["alpha"]\n')
    stage.plan = "beta | - | Answer it."
    found = checks(stage.inside("doctor", "--json"))
    assert "not called: policy.deny names alpha" in found["worker alpha"]["found"]
    assert stage.asked("alpha") == []
    assert len(stage.asked("beta")) == 1


def test_a_closed_pipe_ends_doctor(stage: Stage) -> None:
    arguments = ["sh", "-c", '"$@" | head -1', "sh"]
    done = stage.run("--quiet", "doctor", under=arguments)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("ok")


# the look at the machine


def test_a_check_that_hangs_is_abandoned(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    ending = threading.Event()

    def hangs(settings: Settings) -> list[CheckResult]:
        del settings
        ending.wait()
        return []

    def breaks(settings: Settings) -> list[CheckResult]:
        raise RuntimeError(settings.paths.config.name)

    def well(settings: Settings) -> list[CheckResult]:
        del settings
        return [CheckResult(name="well", text="it is")]

    monkeypatch.setattr(doctor, "TIMEOUT", 0.05)
    settings = load_settings({**stage.environ(), "CONDUCTOR_LLM_KEYRING_SECONDS": "0.05"})
    found = {check.name: check for check in doctor.check_machine(settings, (hangs, breaks, well))}
    ending.set()
    assert found["well"].state == "ok"
    assert (found["hangs"].state, found["hangs"].code) == ("failed", 1)
    assert "RuntimeError" in found["breaks"].text


def test_a_directory_that_cannot_be_written_is_a_failure(stage: Stage, home: Path) -> None:
    stage.traces.parent.mkdir(parents=True)
    stage.traces.write_text("in the way")
    done = stage.inside("doctor", "--offline", "--json")
    check = checks(done)["traces"]
    assert (check["state"], done.code) == ("failed", 3)
    assert str(stage.traces) in check["found"]
    assert check["hint"] == "use another directory: CONDUCTOR_LLM_STATE_DIR=DIR"


def test_doctor_creates_no_directory(stage: Stage, home: Path) -> None:
    """A directory that does not exist is judged by the one in which it would be created."""
    assert stage.inside("doctor", "--offline").code == 0
    assert not (home / "state/conductor-llm").exists()


# the keyring


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A session bus without a keyring, and the keyring library as it is."""
    monkeypatch.delenv("PYTHON_KEYRING_BACKEND")
    with bus(tmp_path) as found:
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", found)
        monkeypatch.setenv("CONDUCTOR_LLM_KEYRING_SECONDS", "30")  # on a busy machine
        yield found


def keyring_of(stage: Stage) -> tuple[dict[str, Any], int]:
    done = stage.inside("doctor", "--offline", "--json")
    return checks(done)["keyring"], done.code


def test_a_real_keyring_is_written_read_and_cleaned(stage: Stage, address: str, home: Path) -> None:
    with gnome_keyring(address, home):
        check, code = keyring_of(stage)
        assert (check["state"], code) == ("ok", 0)
        assert check["found"] == "SecretService Keyring: an item was written, read and removed"
        assert items(address) == []


def test_a_hanging_keyring_does_not_block(stage: Stage, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDUCTOR_LLM_KEYRING_SECONDS", "0.5")
    with wedged(address):
        check, code = keyring_of(stage)
    assert (check["state"], code) == ("warning", 0)
    assert "did not answer within 0.5 s" in check["found"]


@pytest.mark.parametrize("name", ["Refusing", "Forgetful", "Dying"])
def test_a_broken_keyring_is_a_warning_with_a_hint(stage: Stage, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for variable, value in own_backend(name).items():
        monkeypatch.setenv(variable, value)
    check, code = keyring_of(stage)
    assert (check["state"], code) == ("warning", 0)
    assert check["hint"]
    assert name == "Dying" or not list((stage.home / "backend").glob("*"))  # it dies before it can remove anything


def test_a_broken_keyring_with_keys_is_a_failure(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in own_backend("Kept").items():
        monkeypatch.setenv(variable, value)
    assert stage.inside("keys", "set", "openai", given="sk-stored-0123456789abcdef").code == 0
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    check, code = keyring_of(stage)
    assert (check["state"], code) == ("failed", 4)
    assert "the keys of openai are stored in it" in check["found"]


# in a terminal


@pytest.mark.parametrize("columns", [40, 120])
def test_lines_fit_the_terminal(stage: Stage, columns: int) -> None:
    """Lines are wrapped between words and begin with the state."""
    program = start_in_terminal(stage, "doctor", "--offline", size=(columns, 40))
    text = program.read()
    program.close()
    assert program.exitstatus == 0, text
    lines = [line.rstrip() for line in text.replace("\x1b[2K", "\n").splitlines()]  # what waits is erased
    assert all(len(line) <= columns or len(max(line.split(), key=len)) > columns // 2 for line in lines), text
    assert any(line.startswith("ok       conductor") for line in lines), text

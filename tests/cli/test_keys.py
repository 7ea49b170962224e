"""`conductor keys`: storing, listing, removing and testing; what is refused, and what is never shown."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pexpect
import pytest

from tests.cli.stage import COMMAND, Stage, explained
from tests.keys.bus import bus, gnome_keyring, lock, own_backend, wedged
from tests.servers import SeenStep, Wire, loopback

KEY = "sk-stored-0123456789abcdef"
OTHER = "sk-other-0123456789abcdef"
FILE = ("--insecure-storage",)


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A session bus without a keyring, and the keyring library as it is."""
    monkeypatch.delenv("PYTHON_KEYRING_BACKEND")
    with bus(tmp_path) as found:
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", found)
        yield found


@pytest.fixture
def keyring(address: str, home: Path) -> Iterator[str]:
    """The same with GNOME Keyring on it, unlocked."""
    with gnome_keyring(address, home):
        yield address


def rows(stage: Stage) -> dict[str, dict[str, object]]:
    done = stage.inside("keys", "list", "--json")
    assert done.code == 0
    return {f"{row['provider']} {row['source']}": row for row in done.json}


# set, list, rm


def test_a_key_is_stored_listed_and_removed(stage: Stage, keyring: str) -> None:
    """From a pipe into the keyring; the list has provider, source and age, and never the key."""
    done = stage.run("keys", "set", "openai", given=f"{KEY}\n")
    assert (done.code, done.err) == (0, "")
    assert "in the keyring, for https://api.openai.com/v1" in done.out
    row = rows(stage)["openai keyring"]
    assert (row["source"], row["state"]) == ("keyring", "stored")
    plain = stage.inside("keys", "list").out.splitlines()
    assert plain[0].split() == ["PROVIDER", "SOURCE", "STORED", "STATE", "ADDRESS"]
    assert plain[1].split() == ["openai", "keyring", "now", "stored", row["base_url"]]
    done = stage.inside("keys", "rm", "openai")
    assert done.out == "removed the key of openai from the keyring\n"
    assert rows(stage) == {}


def test_two_processes_that_set_at_once_both_do(stage: Stage, keyring: str) -> None:
    """Neither key is lost."""
    names = ("openai", "mistral")
    setting = [stage.start("keys", "set", name, stdin=subprocess.PIPE) for name in names]
    for process, name in zip(setting, names, strict=True):
        with process:
            process.communicate(f"{OTHER}-{name}".encode(), timeout=60)
            assert process.returncode == 0
    assert set(rows(stage)) == {f"{name} keyring" for name in names}


def test_a_variable_wins_over_a_stored_key(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are listed, and which one is used; storing and removing say so."""
    monkeypatch.setenv("OPENAI_API_KEY", OTHER)
    done = stage.inside("keys", "set", "openai", *FILE, given=KEY)
    assert done.err == "OPENAI_API_KEY is also set, and is used before a stored key\n"
    assert rows(stage)["openai OPENAI_API_KEY"]["state"] == "set"
    assert rows(stage)["openai file"]["state"] == "overridden by OPENAI_API_KEY"
    assert "OPENAI_API_KEY is also set" in stage.inside("keys", "rm", "openai").err


def test_the_second_variable_of_a_provider_is_listed_as_such(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gemini's key may have two variable names."""
    monkeypatch.setenv("GEMINI_API_KEY", KEY)
    monkeypatch.setenv("GOOGLE_API_KEY", OTHER)
    states = [(row["source"], row["state"]) for row in stage.inside("keys", "list", "--json").json]
    assert states == [("GEMINI_API_KEY", "set"), ("GOOGLE_API_KEY", "overridden by GEMINI_API_KEY")]


def test_the_variable_of_a_worker_is_listed_with_its_worker(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's `key_env` is a source like the others, for the worker's address."""
    stage.configure(stage.worker("mine", 'key_env = "MY_OWN_VARIABLE"'))
    monkeypatch.setenv("MY_OWN_VARIABLE", KEY)
    row = rows(stage)["openai-compatible MY_OWN_VARIABLE"]
    assert (row["worker"], row["source"], row["base_url"]) == ("mine", "MY_OWN_VARIABLE", stage.url)


def test_an_empty_list_says_how_to_store_one(stage: Stage) -> None:
    """Without any key the list is empty, which is no error."""
    done = stage.inside("keys", "list")
    assert (done.code, done.out) == (0, "")
    assert "conductor keys set PROVIDER" in done.err


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("http://llm.example.com/v1", True), ("HTTP://10.0.0.7:8000/v1", True), ("https://llm.example.com/v1", False),
        ("http://127.0.0.1:8000/v1", False), ("http://localhost:8000/v1", False), ("http://[::1]:8000/v1", False),
    ],
)  # fmt: skip
def test_an_address_where_the_key_can_be_read_on_the_way_is_reported(stage: Stage, url: str, warned: bool) -> None:
    """Plain http to another machine is warned of, and taken; to this machine nobody is on the way."""
    done = stage.inside("keys", "set", "openai-compatible", "--base-url", url, *FILE, given=KEY)
    assert done.code == 0
    assert ("is not encrypted" in done.err) is warned
    assert bool(done.err) is warned


def test_a_key_too_short_to_be_hidden_is_reported(stage: Stage) -> None:
    """It is stored, and its owner knows that it would be shown."""
    done = stage.inside("keys", "set", "openai", *FILE, given="abcdefg")
    assert (done.code, done.err) == (0, "a key of fewer than 8 characters cannot be hidden in output and traces\n")
    assert stage.inside("keys", "set", "openai", *FILE, given="abcdefgh").err == ""


# what is refused


@pytest.mark.parametrize("words", [("openai", KEY), (KEY,), ("openai", "--key", KEY), ("openai", f"--key={KEY}")])
def test_a_key_is_never_an_argument(stage: Stage, words: tuple[str, ...]) -> None:
    """It would be visible in the shell's history and in `ps`; the error does not repeat it."""
    done = stage.inside("keys", "set", *words)
    assert done.code == 2
    explained(done)
    assert KEY not in done.err


@pytest.mark.parametrize(
    "key",
    ["", "\n", f"{KEY}\n{OTHER}", "sk-" + "x" * 10_240, "sk-clé-0123456789", b"\xff\xfesk-0123456789"],
    ids=["nothing", "a newline", "two lines", "10 KB", "beyond ASCII", "no text"],
)
def test_what_is_no_key_is_refused(stage: Stage, key: str | bytes) -> None:
    """Exit 2, what is wrong with it, and nothing of it is repeated or stored."""
    done = stage.inside("keys", "set", "openai", *FILE, given=key)
    assert done.code == 2
    explained(done)
    assert "sk-" not in done.err
    assert rows(stage) == {}


@pytest.mark.parametrize("command", ["set", "rm", "test"])
def test_an_unknown_provider_gets_the_name_that_was_meant(stage: Stage, command: str) -> None:
    """Exit 2 and a proposal, before anything is read."""
    done = stage.inside("keys", command, "antropic")
    assert done.code == 2
    explained(done)
    assert "did you mean anthropic?" in done.err


def test_a_server_without_an_address_of_its_own_needs_one(stage: Stage) -> None:
    """A key of just any server is bound to one."""
    done = stage.inside("keys", "set", "openai-compatible", *FILE, given=KEY)
    assert done.code == 2
    explained(done)
    assert "--base-url" in done.err


def test_a_key_that_is_not_stored_cannot_be_removed(stage: Stage) -> None:
    """Exit 2, with what is stored."""
    done = stage.inside("keys", "rm", "openai")
    assert done.code == 2
    explained(done)


# without a keyring


@pytest.fixture
def lost(address: str, home: Path) -> Path:
    """A list with a key in a keyring that is gone."""
    kept = {"base_url": "https://api.openai.com/v1", "since": "2026-11-01T00:00:00+00:00", "where": "keyring"}
    path = home / "data/conductor-llm/keys.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"keys": {"openai": kept}}))
    return path


def test_a_key_is_removed_from_the_list_though_its_keyring_is_gone(stage: Stage, lost: Path) -> None:
    """Exit 0; a notice says that the key itself may still be in the keyring."""
    done = stage.inside("keys", "rm", "openai")
    assert (done.code, done.out) == (0, "removed the key of openai from the list of stored keys\n")
    assert done.err == "no working keyring found: the key may still be in the keyring\n"
    assert json.loads(lost.read_text()) == {"keys": {}}
    assert stage.inside("keys", "rm", "openai").code == 2


def test_a_key_of_a_keyring_that_is_there_and_refuses_stays_in_the_list(
    stage: Stage, lost: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 4 with the keyring's own words; the key stays in the list, and can be removed later."""
    for backend in ("Locked", "Broken"):
        for name, value in own_backend(backend).items():
            monkeypatch.setenv(name, value)
        done = stage.inside("keys", "rm", "openai")
        assert done.code == 4
        explained(done)
        assert "refused: Failed to" in done.err
    assert "openai" in lost.read_text()


@pytest.mark.parametrize("command", [("keys", "set", "openai")], ids=["set"])
def test_without_a_keyring_the_alternatives_are_reported(stage: Stage, address: str, command: tuple[str, ...]) -> None:
    """Exit 4, three lines: the variable, a keyring to install, a file that is asked for by name."""
    done = stage.inside(*command, given=KEY)
    assert done.code == 4
    explained(done)
    assert all(way in done.err for way in ("OPENAI_API_KEY", "GNOME Keyring", "--insecure-storage"))


def test_a_locked_keyring_is_reported_without_waiting(stage: Stage, keyring: str) -> None:
    """The list asks no keyring, so it works as before; storing exits with 4."""
    assert stage.inside("keys", "set", "openai", given=KEY).code == 0
    lock(keyring)
    done = stage.inside("keys", "list")
    assert (done.code, done.err) == (0, "")
    assert "stored" in done.out
    done = stage.inside("keys", "set", "mistral", given=KEY)
    assert done.code == 4
    explained(done)


def test_a_wedged_keyring_ends_in_time(stage: Stage, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real process, to its end: nothing is left that would hold the exit up."""
    monkeypatch.setenv("CONDUCTOR_LLM_KEYRING_SECONDS", "1")
    with wedged(address):
        done = stage.run("keys", "set", "openai", given=KEY)
    assert done.code == 4
    explained(done)
    assert "did not answer within 1 s" in done.err


def test_on_a_terminal_the_key_is_asked_for_and_never_shown(stage: Stage, home: Path) -> None:
    """The key is typed blind, and the file is called what it is: not encrypted."""
    command = [*COMMAND, "keys", "set", "openai", "--insecure-storage"]
    program = pexpect.spawn(command[0], command[1:], env=stage.environ(), encoding="utf-8", timeout=30)
    program.expect_exact("(not shown)")
    program.waitnoecho(10)
    program.sendline(KEY)
    shown = program.read()
    program.close()
    assert program.exitstatus == 0, shown
    assert KEY not in shown
    assert "which is not encrypted" in " ".join(shown.split())
    assert (home / "data/conductor-llm/keys.json").stat().st_mode & 0o777 == 0o600


def test_without_a_keyring_no_key_is_asked_for(stage: Stage, address: str) -> None:
    """Nobody types a key that cannot be stored; the hint names the other ways."""
    command = [*COMMAND, "keys", "set", "openai"]
    program = pexpect.spawn(command[0], command[1:], env=stage.environ(), encoding="utf-8", timeout=30)
    shown = program.read()
    program.close()
    assert program.exitstatus == 4, shown
    assert "not shown" not in shown
    assert "no working keyring found" in shown
    assert "--insecure-storage" in shown


@pytest.mark.parametrize("width", [30, 80])
def test_an_error_on_a_terminal_is_broken_between_words(stage: Stage, width: int) -> None:
    """No option or path is parted, the words stay the same ones; in a pipe nothing is broken."""
    command = [*COMMAND, "pools", "add", "small"]
    environ = {name: text for name, text in stage.environ().items() if name != "COLUMNS"}
    program = pexpect.spawn(
        command[0], command[1:], env=environ, encoding="utf-8", timeout=30, dimensions=(24, width)
    )  # fmt: skip
    lines = [line.rstrip() for line in program.read().splitlines()]
    program.close()
    assert all(len(line) <= width for line in lines)
    piped = stage.inside("pools", "add", "small")
    assert " ".join(piped.err.split()) in " ".join(line.strip() for line in lines)
    assert len(piped.err.splitlines()) == 2


def test_a_key_is_in_no_argument_of_any_process(stage: Stage, home: Path) -> None:
    """While the keyring is asked, neither the command nor its child has the key where `ps` shows it."""
    environ = {**own_backend("Hanging"), "CONDUCTOR_LLM_KEYRING_SECONDS": "1"}
    environ["PYTHONPATH"] = os.pathsep.join([environ["PYTHONPATH"], stage.environ()["PYTHONPATH"]])
    with stage.start("keys", "set", "openai", env=environ, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(KEY.encode())
        process.stdin.close()
        seen: set[bytes] = set()
        while process.poll() is None:
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):  # it has ended meanwhile
                    seen.add(path.read_bytes())
    assert any(b"conductor_cli.keys.keyring_process" in line for line in seen)
    assert not any(KEY.encode() in line for line in seen)


# test


def test_keys_are_tested_with_each_providers_word(stage: Stage) -> None:
    """Good, wrong, expired and rate-limited keys, and a server that is not there; one refused key means exit 4."""
    said = {
        "good": (200, {"data": []}),
        "wrong": (401, {"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}),
        "expired": (400, {"error": {"message": "API key expired. Please renew the API key."}}),
        "rate-limited": (429, {"error": {"message": "slow down", "code": "rate_limit_exceeded"}}),
    }

    async def script(seen: SeenStep, wire: Wire) -> None:
        key = seen.headers.get("x-goog-api-key") or seen.headers["authorization"]  # Google has a header of its own
        status, body = said[key.rpartition("sk-key-that-is-")[2]]
        await wire.json(body, status)

    with loopback(script) as server:
        for provider, state in zip(("openai", "mistral", "gemini", "xai"), said, strict=True):
            done = stage.inside(
                "keys", "set", provider, "--base-url", server.url, *FILE, given=f"sk-key-that-is-{state}"
            )
            assert done.code == 0
        stage.inside("keys", "set", "groq", "--base-url", "http://127.0.0.1:9", *FILE, given=KEY)
        done = stage.inside("keys", "test", "--json")
        table = stage.inside("keys", "test", "openai")
    assert done.code == 4
    assert {row["provider"]: row["state"] for row in done.json} == {
        "openai": "good", "mistral": "wrong", "gemini": "wrong", "xai": "failed", "groq": "unreachable",
    }  # fmt: skip
    assert all(row["seconds"] > 0 for row in done.json)
    words = {row["provider"]: row["message"] for row in done.json}
    assert words["mistral"].endswith("; replace this key (file)")
    assert "start the server" in words["groq"]
    assert table.code == 0
    assert table.out.splitlines()[0].split() == ["PROVIDER", "SOURCE", "STATE", "TIME", "MESSAGE"]
    assert "good" in table.out


def test_the_same_key_of_two_providers_at_one_address_is_tested_for_both(stage: Stage) -> None:
    """Providers are asked in ways of their own, and each key that is listed has its row."""
    for provider in ("openai-compatible", "anthropic", "openai"):
        stage.inside("keys", "set", provider, "--base-url", stage.url, *FILE, given=KEY)
    done = stage.inside("keys", "test", "--json")
    assert sorted(row["provider"] for row in done.json) == ["anthropic", "openai", "openai-compatible"]


def test_keys_are_tested_at_the_same_time(stage: Stage) -> None:
    """Each server answers only when all were asked."""
    asked = 0
    everybody = asyncio.Event()

    async def script(seen: SeenStep, wire: Wire) -> None:
        nonlocal asked
        asked += 1
        if asked == 3:
            everybody.set()
        await everybody.wait()
        await wire.json({"data": []})

    with loopback(script) as server:
        for provider in ("openai", "mistral", "gemini"):
            stage.inside("keys", "set", provider, "--base-url", server.url, *FILE, given=f"{KEY}-{provider}")
        done = stage.inside("keys", "test", "--json")
    assert [row["state"] for row in done.json] == ["good"] * 3


def test_a_key_of_a_variable_that_cannot_be_one_is_wrong(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not sent, and not shown."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-clé-0123456789")
    done = stage.inside("keys", "test", "--json")
    assert done.code == 4
    assert [(row["state"], row["seconds"]) for row in done.json] == [("wrong", 0)]
    assert "sk-cl" not in done.out


def test_a_key_that_the_keyring_does_not_give_is_reported(stage: Stage, keyring: str) -> None:
    """Exit 4, with the keyring's own trouble beside the key."""
    assert stage.inside("keys", "set", "openai", given=KEY).code == 0
    lock(keyring)
    done = stage.inside("keys", "test", "--json")
    assert done.code == 4
    [row] = done.json
    assert row["state"] == "unreadable"
    assert "refused" in row["message"]


def test_without_a_key_there_is_nothing_to_test(stage: Stage) -> None:
    """Exit 4, and how to store one."""
    done = stage.inside("keys", "test")
    assert done.code == 4
    explained(done)
    done = stage.inside("keys", "test", "openai")
    assert done.code == 4
    assert "no key of openai was found" in done.err


def test_a_damaged_list_is_reported(stage: Stage, home: Path) -> None:
    """Exit 3 and the file, for every command that needs it."""
    stage.inside("keys", "set", "openai", *FILE, given=KEY)
    path = home / "data/conductor-llm/keys.json"
    path.write_text(json.dumps({"keys": 1}))
    for command in (("list",), ("test",), ("rm", "openai")):
        done = stage.inside("keys", *command)
        assert done.code == 3
        explained(done)
        assert "keys.json" in done.err


# the keys of a run


def test_a_run_sends_the_key_of_the_keyring(stage: Stage, keyring: str) -> None:
    """A real process takes it from a real Secret Service; `workers list` says where it is without reading it."""
    stage.configure(workers=("alpha",))
    done = stage.inside("keys", "set", "openai-compatible", "--base-url", stage.url, given=KEY)
    assert done.code == 0, done.err
    done = stage.run("ask", "why?")
    assert (done.code, done.out) == (0, "alpha answers\n")
    assert {seen.headers.get("authorization") for seen in stage.asked("alpha")} == {f"Bearer {KEY}"}
    lock(keyring)
    assert [row["key"] for row in stage.inside("workers", "list", "--json").json] == ["keyring"]
    done = stage.inside("ask", "why?")
    assert done.code == 4
    explained(done)
    assert "unlock it" in done.err


def test_a_stored_key_makes_its_provider_a_worker_found(stage: Stage) -> None:
    """Where no worker is configured, a stored key is as good as a variable; one for another address is not."""
    stage.configure(workers=())
    for provider, more in (("openai", ()), ("mistral", ("--base-url", stage.url))):
        assert stage.inside("keys", "set", provider, *more, *FILE, given=KEY).code == 0
    found = {row["name"]: row["key"] for row in stage.inside("workers", "list", "--json").json}
    assert found["openai"] == "file"
    assert "mistral" not in found


def test_a_wedged_keyring_does_not_block_a_run(
    stage: Stage, address: str, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    """The worker whose key cannot be read is left out, after its time; one that needs no stored key answers."""
    monkeypatch.setenv("CONDUCTOR_LLM_KEYRING_SECONDS", "1")
    stage.configure('[workers.gone]\nkind = "mistral"', workers=("alpha",))
    kept = {"base_url": "https://api.mistral.ai/v1", "since": "2026-11-01T00:00:00+00:00", "where": "keyring"}
    path = home / "data/conductor-llm/keys.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"keys": {"mistral": kept}}))
    with wedged(address):
        done = stage.inside("ask", "why?")
        assert (done.code, done.out) == (0, "alpha answers\n")
        done = stage.inside("ask", "why?", "--workers", "gone")
    assert done.code == 4
    explained(done)
    assert "did not answer within 1 s" in done.err

"""`conductor keys`: storing, listing, removing and testing.

What is refused, and what is never shown.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.stage import COMMAND, TWO, Stage, says
from tests.cli.terminals import start_in_terminal
from tests.servers import SeenRequest, Wire, loopback
from tests.state.bus import lock, own_backend, use_backend, wedged

KEY = "sk-stored-0123456789abcdef"
OTHER = "sk-other-0123456789abcdef"
FILE = ("--insecure-storage",)


def rows(stage: Stage) -> dict[str, dict[str, object]]:
    done = stage.ok("keys", "list", "--json")
    return {f"{row['provider']} {row['source']}": row for row in done.json}


def test_a_key_is_stored_listed_and_removed(stage: Stage, keyring: str) -> None:
    done = stage.inside("keys", "set", "openai", given=f"{KEY}\n")
    assert (done.code, done.err) == (0, "")
    assert "in the keyring, for https://api.openai.com/v1" in done.out
    row = rows(stage)["openai keyring"]
    assert (row["source"], row["state"]) == ("keyring", "stored")
    plain = stage.inside("keys", "list").out.splitlines()
    assert plain[0].split() == ["PROVIDER", "SOURCE", "STORED", "STATE", "WORKERS", "ADDRESS"]
    assert plain[1].split() == ["openai", "keyring", "now", "stored", "-", row["base_url"]]
    assert (
        stage.inside("keys", "rm", "openai").out == "removed the key of openai from the keyring\n"
    )
    assert rows(stage) == {}
    assert "conductor keys set PROVIDER" in stage.ok("keys", "list").err


def test_a_variable_wins_over_a_stored_key(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", OTHER)
    done = stage.inside("keys", "set", "openai", *FILE, given=KEY)
    assert done.err == "OPENAI_API_KEY is also set, and is used before a stored key\n"
    assert rows(stage)["openai OPENAI_API_KEY"]["state"] == "set"
    assert rows(stage)["openai file"]["state"] == "overridden by OPENAI_API_KEY"
    assert "OPENAI_API_KEY is also set" in stage.inside("keys", "rm", "openai").err


def test_a_key_of_several_workers_is_listed_and_tested_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_table = '[workers.own]\nkind = "openai"\nkey_env = "OPENAI_API_KEY"'
    stage.configure(
        own_table, workers=dict.fromkeys(("mine", "second"), 'key_env = "MY_OWN_VARIABLE"')
    )
    monkeypatch.setenv("MY_OWN_VARIABLE", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    sources = [(row["source"], row["workers"]) for row in stage.ok("keys", "list", "--json").json]
    assert sources == [("OPENAI_API_KEY", ["own"]), ("MY_OWN_VARIABLE", ["mine", "second"])]
    (row,) = stage.ok("keys", "test", "openai-compatible", "--json").json
    assert (row["workers"], row["source"], row["base_url"]) == (
        ["mine", "second"],
        "MY_OWN_VARIABLE",
        stage.url,
    )
    assert len(stage.server.requests) == 1


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("http://llm.example.com/v1", True),
        ("HTTP://10.0.0.7:8000/v1", True),
        ("https://llm.example.com/v1", False),
        ("http://127.0.0.1:8000/v1", False),
        ("http://localhost:8000/v1", False),
        ("http://[::1]:8000/v1", False),
    ],
)
def test_an_address_where_the_key_can_be_read_on_the_way_is_reported(
    stage: Stage, url: str, warned: bool
) -> None:
    done = stage.ok("keys", "set", "openai-compatible", "--base-url", url, *FILE, given=KEY)
    assert ("is not encrypted" in done.err) is warned
    assert bool(done.err) is warned


def test_a_key_too_short_to_be_hidden_is_reported(stage: Stage) -> None:
    done = stage.inside("keys", "set", "openai", *FILE, given="abcdefg")
    assert (done.code, done.err) == (
        0,
        "a key of fewer than 8 characters cannot be hidden in output and traces\n",
    )
    assert stage.inside("keys", "set", "openai", *FILE, given="abcdefgh").err == ""


@pytest.mark.parametrize(
    "words", [("openai", KEY), (KEY,), ("openai", "--key", KEY), ("openai", f"--key={KEY}")]
)
def test_a_key_is_never_an_argument(stage: Stage, words: tuple[str, ...]) -> None:
    assert KEY not in stage.fails(2, "keys", "set", *words).err


@pytest.mark.parametrize(
    "key",
    ["", f"{KEY}\n{OTHER}", b"\xff\xfesk-0123456789"],
    ids=["nothing", "two lines", "no text"],
)
def test_what_is_no_key_is_refused(stage: Stage, key: str | bytes) -> None:
    assert "sk-" not in stage.fails(2, "keys", "set", "openai", *FILE, given=key).err
    assert rows(stage) == {}


@pytest.mark.parametrize("command", ["set", "rm", "test"])
def test_an_unknown_provider_gets_the_name_that_was_meant(stage: Stage, command: str) -> None:
    stage.fails(2, "keys", command, "antropic", told="did you mean anthropic?")


def listed(home: Path, provider: str, url: str) -> Path:
    """A list with the key of a provider, which is in a keyring."""
    kept = {"base_url": url, "since": "2026-11-01T00:00:00+00:00", "where": "keyring"}
    path = home / "data/conductor-llm/keys.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"keys": {provider: kept}}))
    return path


@pytest.fixture
def lost(address: str, home: Path) -> Path:
    """A list with a key in a keyring that is gone."""
    return listed(home, "openai", "https://api.openai.com/v1")


def test_a_key_is_removed_from_the_list_though_its_keyring_is_gone(
    stage: Stage, lost: Path
) -> None:
    done = stage.ok(
        "keys", "rm", "openai", out="removed the key of openai from the list of stored keys\n"
    )
    assert done.err == "no working keyring found: the key may still be in the keyring\n"
    assert json.loads(lost.read_text()) == {"keys": {}}
    assert stage.inside("keys", "rm", "openai").code == 2


def test_a_key_stays_listed_if_its_keyring_refuses(
    stage: Stage, lost: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for backend in ("Locked", "Broken"):
        use_backend(monkeypatch, backend)
        stage.fails(4, "keys", "rm", "openai", told="refused: Failed to")
    assert "openai" in lost.read_text()


def test_on_a_terminal_the_key_is_asked_for_and_never_shown(stage: Stage, home: Path) -> None:
    program = start_in_terminal(
        stage, "keys", "set", "openai", "--insecure-storage", command=COMMAND
    )
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
    program = start_in_terminal(stage, "keys", "set", "openai")
    shown = program.read()
    program.close()
    assert program.exitstatus == 4, shown
    assert "not shown" not in shown
    assert "no working keyring found" in shown
    assert "--insecure-storage" in shown


def test_a_key_is_in_no_argument_of_any_process(stage: Stage, home: Path) -> None:
    environ = {**own_backend("Hanging"), "CONDUCTOR_LLM_KEYRING_SECONDS": "1"}
    environ["PYTHONPATH"] = os.pathsep.join([environ["PYTHONPATH"], stage.environ()["PYTHONPATH"]])
    with stage.start("keys", "set", "openai", env=environ, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(KEY.encode())
        process.stdin.close()
        command_lines: set[bytes] = set()
        while process.poll() is None:
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):  # it has ended meanwhile
                    command_lines.add(path.read_bytes())
    assert any(b"state/keyring_process.py" in line for line in command_lines)
    assert not any(KEY.encode() in line for line in command_lines)


def test_keys_are_tested_with_each_providers_word(stage: Stage) -> None:
    replies = {
        "good": (200, {"data": []}),
        "wrong": (
            401,
            {"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}},
        ),
        "expired": (400, {"error": {"message": "API key expired. Please renew the API key."}}),
        "rate-limited": (429, {"error": {"message": "slow down", "code": "rate_limit_exceeded"}}),
    }

    async def script(request: SeenRequest, wire: Wire) -> None:
        # Google has a header of its own
        key = request.headers.get("x-goog-api-key") or request.headers["authorization"]
        status, body = replies[key.rpartition("sk-key-that-is-")[2]]
        await wire.json(body, status)

    with loopback(script) as server:
        for provider, state in zip(("openai", "mistral", "gemini", "xai"), replies, strict=True):
            done = stage.ok(
                "keys",
                "set",
                provider,
                "--base-url",
                server.url,
                *FILE,
                given=f"sk-key-that-is-{state}",
            )
        stage.inside("keys", "set", "groq", "--base-url", "http://127.0.0.1:9", *FILE, given=KEY)
        done = stage.inside("keys", "test", "--json")
        table = stage.inside("keys", "test", "openai")
    assert done.code == 4
    assert {row["provider"]: row["state"] for row in done.json} == {
        "openai": "good",
        "mistral": "wrong",
        "gemini": "wrong",
        "xai": "failed",
        "groq": "unreachable",
    }
    assert all(row["seconds"] > 0 for row in done.json)
    words = {row["provider"]: row["message"] for row in done.json}
    assert words["mistral"].endswith("; replace this key (file)")
    assert "start the server" in words["groq"]
    assert table.code == 0
    assert re.match(r"good     openai: file \(\S+ m?s\)\n", table.out)


def test_the_same_key_of_two_providers_at_one_address_is_tested_for_both(stage: Stage) -> None:
    for provider in ("openai-compatible", "anthropic", "openai"):
        stage.inside("keys", "set", provider, "--base-url", stage.url, *FILE, given=KEY)
    done = stage.inside("keys", "test", "--json")
    assert sorted(row["provider"] for row in done.json) == [
        "anthropic",
        "openai",
        "openai-compatible",
    ]


def test_keys_are_tested_at_the_same_time(stage: Stage) -> None:
    everybody = asyncio.Barrier(3)

    async def script(request: SeenRequest, wire: Wire) -> None:
        await everybody.wait()
        await wire.json({"data": []})

    with loopback(script) as server:
        for provider in ("openai", "mistral", "gemini"):
            stage.inside(
                "keys", "set", provider, "--base-url", server.url, *FILE, given=f"{KEY}-{provider}"
            )
        done = stage.inside("keys", "test", "--json")
    assert [row["state"] for row in done.json] == ["good"] * 3


def test_a_key_of_a_variable_that_cannot_be_one_is_wrong(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-clé-0123456789")
    done = stage.ends(4, "keys", "test", "--json")
    assert [(row["state"], row["seconds"]) for row in done.json] == [("wrong", 0)]
    assert "sk-cl" not in done.out


def test_a_key_that_the_keyring_does_not_give_is_reported(stage: Stage, keyring: str) -> None:
    assert stage.inside("keys", "set", "openai", given=KEY).code == 0
    lock(keyring)
    done = stage.inside("keys", "list")
    assert (done.code, done.err, "stored" in done.out) == (0, "", True)
    stage.fails(4, "keys", "set", "mistral", given=KEY)
    done = stage.ends(4, "keys", "test", "--json")
    [row] = done.json
    assert row["state"] == "unreadable"
    assert "refused" in row["message"]


def test_without_a_key_there_is_nothing_to_test(stage: Stage) -> None:
    stage.fails(4, "keys", "test")
    stage.ends(4, "keys", "test", "openai", told="no key of openai was found")


def test_a_key_of_no_model_is_tested_by_another_command(stage: Stage) -> None:
    """It is there, so no error may say that none was found."""
    stage.ok("keys", "set", "github", *FILE, given=KEY)
    stage.fails(2, "keys", "test", "github", told="to check that key: conductor plan")
    stage.fails(2, "keys", "test", "postgresql", told="to check that key: conductor state check")
    stage.ends(4, "keys", "test", told="no key of a provider of models was found")


def test_a_variable_of_a_service_is_listed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of providers are: it is used before a stored key."""
    monkeypatch.setenv("GITHUB_TOKEN", KEY)
    stage.ok("keys", "set", "github", *FILE, given=KEY)
    rows = [(row["source"], row["state"]) for row in stage.inside("keys", "list", "--json").json]
    assert rows == [("GITHUB_TOKEN", "set"), ("file", "overridden by GITHUB_TOKEN")]


def test_a_login_that_is_not_stored_is_no_unknown_provider(stage: Stage) -> None:
    stage.fails(2, "keys", "rm", "tool:web", told="no key of tool:web is stored")


def test_a_damaged_list_is_reported(stage: Stage, home: Path) -> None:
    stage.inside("keys", "set", "openai", *FILE, given=KEY)
    path = home / "data/conductor-llm/keys.json"
    path.write_text(json.dumps({"keys": 1}))
    for command in (("list",), ("test",), ("rm", "openai")):
        stage.fails(3, "keys", *command, told="keys.json")


def test_a_run_sends_the_key_of_the_keyring(stage: Stage, keyring: str) -> None:
    stage.configure(workers=("alpha",))
    stage.ok("keys", "set", "openai-compatible", "--base-url", stage.url, given=KEY)
    assert stage.ok("ask", "why?").out == "alpha answers\n"
    assert {request.headers.get("authorization") for request in stage.asked("alpha")} == {
        f"Bearer {KEY}"
    }
    lock(keyring)
    assert [row["key"] for row in stage.inside("workers", "list", "--json").json] == ["keyring"]
    stage.fails(4, "ask", "why?", told="unlock it")


def test_a_run_goes_on_when_the_keyring_is_locked_meanwhile(stage: Stage, keyring: str) -> None:
    stage.ok("keys", "set", "openai-compatible", "--base-url", stage.url, given=KEY)

    async def lock_and_answer(request: SeenRequest, wire: Wire) -> None:
        lock(keyring)
        await says("alpha answers")(request, wire)

    stage.plan = TWO
    stage.models["alpha"] = lock_and_answer
    assert stage.ok("ask", "why?").out == "beta answers\n"
    assert [request.headers.get("authorization") for request in stage.asked("beta")] == [
        f"Bearer {KEY}"
    ]
    stage.fails(4, "ask", "why?", told="unlock it")


def test_a_stored_key_makes_its_provider_a_worker_found(stage: Stage) -> None:
    stage.configure(workers=())
    for provider, options in (("openai", ()), ("mistral", ("--base-url", stage.url))):
        assert stage.inside("keys", "set", provider, *options, *FILE, given=KEY).code == 0
    key_states = {row["name"]: row["key"] for row in stage.inside("workers", "list", "--json").json}
    assert key_states["openai"] == "file"
    assert "mistral" not in key_states


def test_a_wedged_keyring_does_not_block_a_run(stage: Stage, address: str, home: Path) -> None:
    stage.configure('[workers.gone]\nkind = "mistral"', workers=("alpha",))
    listed(home, "mistral", "https://api.mistral.ai/v1")
    env = {"CONDUCTOR_LLM_KEYRING_SECONDS": "1"}
    with wedged(address):
        assert stage.ok("ask", "why?", env=env).out == "alpha answers\n"
        stage.fails(
            4, "ask", "why?", "--workers", "gone", env=env, told="did not answer within 1 s"
        )

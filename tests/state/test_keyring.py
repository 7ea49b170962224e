"""The system's keyring, a real one on a bus of its own.

And keyrings that are absent, locked, wedged or faulty.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.core.errors import ConfigError, KeyMissing
from conductor_cli.state import key_store
from conductor_cli.state.key_store import (
    SECONDS,
    VARIABLE,
    KeyringError,
    KeyStore,
    ask_keyring,
    keyring_timeout,
)
from tests import fork_server
from tests.state.bus import address, items, keyring, lock, own_backend, use_backend, wedged

__all__ = ["address", "keyring"]

KEY = "sk-test-0123456789abcdef"
URL = "https://api.openai.com/v1"
OTHER = "https://api.mistral.ai/v1"


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine needs long to start the child."""
    monkeypatch.setenv(VARIABLE, "60")


@pytest.fixture(autouse=True)
def _forked_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """What asks the keyring is a fork, but where a test has a keyring of its own for it."""
    monkeypatch.setattr(subprocess, "Popen", fork_server.ChildOrOther)


def open_store(home: Path) -> KeyStore:
    return KeyStore(home / "data", os.environ)


def test_a_key_goes_into_the_secret_service_and_comes_back(keyring: str, home: Path) -> None:
    entry = open_store(home).set("openai", URL, KEY)
    [[name, text]] = items(keyring)
    assert name == "openai"
    assert json.loads(text) == {"key": KEY, "base_url": URL, "since": entry.since}
    assert KEY not in (home / "data/keys.json").read_text()
    assert open_store(home)("openai", URL) == KEY
    open_store(home).remove("openai")
    assert items(keyring) == []
    assert open_store(home)("openai", URL) is None


def test_a_key_is_sent_to_no_other_address_and_is_replaced_by_the_next(
    keyring: str, home: Path
) -> None:
    """What counts is the address in the keyring.

    Changing the list, a plain file, sends the key nowhere else.
    """
    open_store(home).set("openai", URL, KEY)
    assert open_store(home)("openai", "https://evil.example/v1") is None
    path = home / "data/keys.json"
    path.write_text(path.read_text().replace(URL, "https://evil.example/v1"))
    assert open_store(home)("openai", "https://evil.example/v1") is None
    assert open_store(home)("openai", URL) is None  # the list knows of none
    open_store(home).set("openai", OTHER, "sk-second-0123456789")
    assert len(items(keyring)) == 1
    assert open_store(home)("openai", URL) is None
    assert open_store(home)("openai", OTHER) == "sk-second-0123456789"


def test_several_keys_are_read_in_one_go_and_a_locked_keyring_is_reported(
    keyring: str, home: Path
) -> None:
    """The first key that is needed brings all of them.

    Later, nobody is there to ask for the keyring's password.
    """
    open_store(home).set("openai", URL, KEY)
    open_store(home).set("mistral", OTHER, "sk-second-0123456789")
    reading = open_store(home)
    assert reading("openai", URL) == KEY
    lock(keyring)
    assert reading("mistral", OTHER) == "sk-second-0123456789"
    with pytest.raises(KeyringError, match=r"refused: .*unlock") as error:
        open_store(home)("openai", URL)
    assert error.value.exit_code == 4
    assert "unlock" in error.value.hint


def test_a_key_that_the_keyring_lost_or_that_is_none_is_reported(keyring: str, home: Path) -> None:
    """Another program removed or replaced it.

    The error says what to do, and it can be removed from the list.
    """
    open_store(home).set("openai", URL, KEY)
    for order in (("set", "openai", "hello"), ("rm", "openai")):
        ask_keyring([order], os.environ)
        with pytest.raises(KeyMissing, match="does not hold the key of openai any more") as error:
            open_store(home)("openai", URL)
        assert error.value.hint == "conductor keys set openai"
    open_store(home).remove("openai")
    assert open_store(home).entries() == {}


def test_two_that_set_keys_at_once_both_do(keyring: str, home: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        for number, name in enumerate(["openai", "mistral"] * 2):
            threads.submit(open_store(home).set, name, URL, f"{KEY}-{number}")
    kept = {name: json.loads(text) for name, text in items(keyring)}
    assert set(kept) == {"openai", "mistral"}
    assert {name: entry.since for name, entry in open_store(home).entries().items()} == {
        name: item["since"] for name, item in kept.items()
    }


def test_without_a_keyring_the_alternatives_are_reported(address: str, home: Path) -> None:
    with pytest.raises(KeyringError, match="no working keyring found") as error:
        open_store(home).set("openai", URL, KEY)
    assert error.value.exit_code == 4
    assert error.value.absent
    assert all(
        way in error.value.hint for way in ("OPENAI_API_KEY", "--insecure-storage", "GNOME Keyring")
    )
    assert open_store(home).entries() == {}


@pytest.mark.parametrize("backend", key_store.NO_KEYRINGS)
def test_for_a_keyring_that_is_switched_off_no_process_is_started(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that looks for a key would wait for it each time."""
    started = []
    monkeypatch.setattr(key_store, "run_child", lambda *arguments, **_: started.append(arguments))
    monkeypatch.setenv(key_store.BACKEND_VARIABLE, backend)
    with pytest.raises(KeyringError, match="no working keyring found") as error:
        ask_keyring([("get", "openai")], os.environ)
    assert error.value.absent
    assert started == []


@pytest.mark.parametrize("backend", ["fail", "null", ""])
def test_a_keyring_switched_off_or_off_bus_is_none(
    home: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    monkeypatch.delenv("PYTHON_KEYRING_BACKEND")
    if backend:
        monkeypatch.setenv("PYTHON_KEYRING_BACKEND", f"keyring.backends.{backend}.Keyring")
    with pytest.raises(KeyringError, match="no working keyring"):
        open_store(home).set("openai", URL, KEY)


def test_a_wedged_keyring_blocks_nobody(
    address: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "0.5")
    entry = {"base_url": URL, "since": "2026-11-01T00:00:00+00:00", "where": "keyring"}
    (home / "data").mkdir()
    names = ("openai", "mistral", "gemini", "xai", "groq")
    (home / "data/keys.json").write_text(json.dumps({"keys": dict.fromkeys(names, entry)}))
    sent_orders: list[Sequence[tuple[str, ...]]] = []

    def counted(
        orders: Sequence[tuple[str, ...]], environ: Mapping[str, str]
    ) -> tuple[str, list[Any]]:
        sent_orders.append(orders)
        return ask_keyring(orders, environ)

    monkeypatch.setattr(key_store, "ask_keyring", counted)
    with wedged(address):
        faults = {
            stored.fault.message for stored in open_store(home).read().values() if stored.fault
        }
        assert len(sent_orders) == 1
        assert faults == {"the keyring did not answer within 0.5 s"}
        with pytest.raises(KeyringError, match="did not answer"):
            open_store(home).set("openai", URL, KEY)


@pytest.mark.timeout(60)
def test_what_a_hanging_keyring_has_started_is_not_waited_for(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyringError, match=r"did not answer within 0\.3 s"):
        ask_keyring([("get", "openai")], {**os.environ, **own_backend("Hanging"), VARIABLE: "0.3"})


@pytest.mark.parametrize(
    ("backend", "message", "absent"),
    [
        ("Refusing", "refused: cannot store", False),
        ("Locked", r"\(backends Locked\) refused: Failed to unlock", False),
        ("Broken", "refused: Failed to create the collection: Prompt dismissed", False),
        ("PlaintextKeyring", "is a file that is not encrypted", True),
        ("Dying", "refused: it ended without an answer", False),
        ("Forgetful", "does not give it back", False),
        ("NotThere", "refused: ", False),
    ],
)
def test_a_faulty_keyring_is_an_error_of_ours(
    home: Path, monkeypatch: pytest.MonkeyPatch, backend: str, message: str, absent: bool
) -> None:
    use_backend(monkeypatch, backend)
    with pytest.raises(KeyringError, match=message) as error:
        open_store(home).set("openai", URL, KEY)
    assert error.value.absent is absent
    assert error.value.hint
    assert KEY not in error.value.message + error.value.hint
    assert open_store(home).entries() == {}


def test_a_keyring_that_prints_does_not_disturb(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_backend(monkeypatch, "Chatty")
    open_store(home).set("openai", URL, KEY)
    assert open_store(home)("openai", URL) == KEY


@pytest.mark.skipif(sys.platform != "linux", reason="the programs are those of Linux")
def test_looking_for_a_keyring_starts_no_compiler(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library has a module for each system, and asks compilers and linkers for libraries."""
    for name in ("cc", "gcc", "ld"):
        program = tmp_path / name
        program.write_text(
            f"#!/bin/sh\n/usr/bin/touch {tmp_path}/started-{name}\n", encoding="utf-8"
        )
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    monkeypatch.delenv("PYTHON_KEYRING_BACKEND")
    with pytest.raises(KeyringError, match="no working keyring"):
        open_store(home).set("openai", URL, KEY)
    assert [path.name for path in tmp_path.glob("started-*")] == []


def test_a_working_directory_brings_no_keyring(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keyring.py").write_text("open('stolen', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyringError):
        open_store(home).set("openai", URL, KEY)
    assert not (tmp_path / "stolen").exists()


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan", "inf", "601"])
def test_the_time_for_a_keyring_is_a_number_of_seconds(text: str) -> None:
    with pytest.raises(ConfigError, match=VARIABLE):
        keyring_timeout({VARIABLE: text})
    assert keyring_timeout({}) == SECONDS

"""The list of stored keys: what is in it, who may read it, and what it says when it is broken."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from conductor_cli.core.errors import ConfigError, UsageError
from conductor_cli.core.redact import REDACTED
from conductor_cli.state.key_store import (
    MAX_KEY,
    KeyEntry,
    KeyStore,
    address,
    checked_key,
    known_provider,
    same_address,
)
from conductor_cli.system.known_secrets import KNOWN_SECRETS

KEY = "sk-test-0123456789abcdef"
URL = "https://api.openai.com/v1"


def open_store(directory: Path) -> KeyStore:
    return KeyStore(directory, os.environ)


def test_a_key_in_a_file_is_the_owners_to_read_and_asks_no_keyring(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    entry = open_store(directory).set("openai", URL, KEY, plaintext=True)
    assert entry.where == "file"
    path = directory / "keys.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert directory.stat().st_mode & 0o777 == 0o700
    assert open_store(directory)("openai", URL + "/") == KEY
    assert open_store(directory)("openai", "https://evil.example/v1") is None
    assert open_store(directory)("mistral", URL) is None
    assert sorted(item.name for item in directory.iterdir()) == [".keys.json.lock", "keys.json"]
    open_store(directory).remove("openai")
    assert KEY not in path.read_text()


def test_a_key_that_is_read_is_never_shown_again(tmp_path: Path) -> None:
    open_store(tmp_path).set("openai", URL, "sk-told-0123456789", plaintext=True)
    assert KNOWN_SECRETS.redact("it is sk-told-0123456789") == f"it is {REDACTED}"


def test_a_file_with_keys_that_others_can_read_is_refused(tmp_path: Path) -> None:
    open_store(tmp_path).set("openai", URL, KEY, plaintext=True)
    path = open_store(tmp_path).path
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="other users can read it") as error:
        open_store(tmp_path)("openai", URL)
    assert error.value.hint.startswith(f"chmod 600 {path}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"keys": []}',
        '{"keys": {"openai": 1}}',
        '{"keys": {"openai": {}}}',
        "\x00",
        "[" * 100_000,
        '{"keys": {"openai": {"base_url": 1, "since": "", "where": "file"}}}',
        '{"keys": {"openai": {"base_url": "", "since": "", "where": "elsewhere"}}}',
    ],
)
def test_a_damaged_list_is_reported_and_left_alone(tmp_path: Path, text: str) -> None:
    path = open_store(tmp_path).path
    path.write_text(text)
    with pytest.raises(ConfigError, match="is damaged"):
        open_store(tmp_path).entries()
    with pytest.raises(ConfigError, match="is damaged"):
        open_store(tmp_path).set("openai", URL, KEY, plaintext=True)
    assert path.read_text() == text


def test_a_list_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(ConfigError, match=r"keys\.json cannot be written"):
        open_store(tmp_path / "data").set("openai", URL, KEY, plaintext=True)


def test_removing_what_is_not_there_says_what_is(tmp_path: Path) -> None:
    open_store(tmp_path).set("openai", URL, KEY, plaintext=True)
    with pytest.raises(UsageError, match="no key of mistral is stored") as error:
        open_store(tmp_path).remove("mistral")
    assert "stored: openai" in error.value.hint


def test_a_key_that_moves_to_a_file_stays_there(tmp_path: Path) -> None:
    kept = {"base_url": URL, "since": "2026-11-01T00:00:00+00:00", "where": "keyring"}
    open_store(tmp_path).path.write_text(json.dumps({"keys": {"openai": kept}}))
    open_store(tmp_path).set("openai", URL, KEY, plaintext=True)
    assert open_store(tmp_path)("openai", URL) == KEY
    assert open_store(tmp_path).entries()["openai"].where == "file"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no key was given"),
        (" \n\t", "no key was given"),
        ("sk-one\nsk-two", "must be one line"),
        ("sk-" + "x" * 10_240, "must be one line"),
        ("sk-clé-0123456789", "must be one line"),
        ("sk-\x0012345678", "must be one line"),
        ("Bearer sk-0123456789", "must be one line"),
        ('"sk-0123456789"', "it is in quotes"),
        ("'sk-0123456789'", "it is in quotes"),
        ("sk-" + "x" * 2000, "the key has 2,003 characters; at most 1,024 can be stored"),
    ],
)
def test_what_cannot_be_a_key_is_refused_and_not_repeated(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        checked_key(text)
    assert len(text.strip()) < 4 or text.strip()[:40] not in error.value.message + error.value.hint


@pytest.mark.parametrize("text", [" sk-0123456789\n", "sk-0123456789\r\n"])
def test_white_space_around_a_key_is_not_part_of_it(text: str) -> None:
    assert checked_key(text) == "sk-0123456789"
    assert len(checked_key("x" * MAX_KEY)) == MAX_KEY


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("OpenAI", "not a provider", "did you mean openai?"),
        ("OPENAI_API_KEY", "not a provider", "did you mean openai?"),
        ("litellm", "not a provider", "known: openai, "),
        ("sk-proj-0123456789abcdef", "not a provider", "known: openai, "),
        *(
            (name, "not given on the command line", "revoke it")
            for name in (
                "openai=sk-0123456789",
                "OPENAI_API_KEY=sk-0123456789",
                "sk-0123456789=",
                "=",
            )
        ),
    ],
)
def test_an_unknown_provider_is_refused_and_a_key_not_repeated(
    name: str, message: str, hint: str
) -> None:
    with pytest.raises(UsageError, match=message) as error:
        known_provider(name)
    assert hint in error.value.hint
    assert "sk-" not in error.value.message + error.value.hint


@pytest.mark.parametrize(
    "url",
    [
        "llm.example.com/v1",
        "ftp://llm.example.com",
        "http://",
        "https://a b/v1",
        "https://x:99999/v1",
        "https://x/v1?k=1",
        "http://[x/",
        "https://me:secret@llm.example.com/v1",
    ],
)
def test_what_is_no_address_or_holds_a_password_is_refused(url: str) -> None:
    with pytest.raises(
        UsageError, match="--base-url is not a valid URL, without a user name or password"
    ) as error:
        address("openai", url)
    assert "secret" not in str(error.value) + error.value.hint


def test_a_server_without_an_address_of_its_own_needs_one() -> None:
    with pytest.raises(UsageError, match="openai-compatible has no fixed address") as error:
        address("openai-compatible", None)
    assert error.value.hint == "conductor keys set openai-compatible --base-url URL"


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("https://Api.X.com/v1/", "https://api.x.com/v1", True),
        ("https://api.x.com/v1", "http://api.x.com/v1", False),
        ("https://api.x.com/v1", "https://api.x.com/v2", False),
        ("https://api.x.com/v1", "https://api.x.com.evil.example/v1", False),
        ("https://api.x.com/v1", "https://api.x.com@evil.example/v1", False),
        ("https://api.x.com/v1", "http://[api", False),
    ],
)
def test_two_addresses_are_one_only_if_all_of_them_is(first: str, second: str, same: bool) -> None:
    assert same_address(first, second) is same


def test_an_entry_does_not_show_its_key() -> None:
    entry = KeyEntry(
        provider="openai", base_url="https://x", since="", where="file", key="sk-0123456789"
    )
    assert "sk-0123456789" not in repr(entry)

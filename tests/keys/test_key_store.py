"""The list of stored keys: what is in it, who may read it, and what it says when it is broken."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from conductor_cli.core.errors import ConfigError, UsageError
from conductor_cli.core.redact import REDACTED
from conductor_cli.keys.key_store import KeyStore
from conductor_cli.models.known_secrets import KNOWN_SECRETS

KEY = "sk-test-0123456789abcdef"
URL = "https://api.openai.com/v1"


def open_store(place: Path) -> KeyStore:
    return KeyStore(place, os.environ)


def test_a_key_in_a_file_is_the_owners_to_read_and_asks_no_keyring(tmp_path: Path) -> None:
    """Kept, read and removed with the null keyring; the file has the mode 0600, its directory 0700."""
    place = tmp_path / "data"
    entry = open_store(place).set("openai", URL, KEY, plaintext=True)
    assert entry.where == "file"
    path = place / "keys.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert place.stat().st_mode & 0o777 == 0o700
    assert open_store(place)("openai", URL + "/") == KEY
    assert open_store(place)("openai", "https://evil.example/v1") is None
    assert open_store(place)("mistral", URL) is None
    assert sorted(item.name for item in place.iterdir()) == [".keys.json.lock", "keys.json"]
    open_store(place).remove("openai")
    assert KEY not in path.read_text()


def test_a_key_that_is_read_is_never_shown_again(tmp_path: Path) -> None:
    """Whoever reads a key makes it known to what redacts."""
    open_store(tmp_path).set("openai", URL, "sk-told-0123456789", plaintext=True)
    assert KNOWN_SECRETS.redact("it is sk-told-0123456789") == f"it is {REDACTED}"


def test_a_file_with_keys_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """A key that other users may have read is reported, with what to do."""
    open_store(tmp_path).set("openai", URL, KEY, plaintext=True)
    path = open_store(tmp_path).path
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="other users can read it") as error:
        open_store(tmp_path)("openai", URL)
    assert error.value.hint.startswith(f"chmod 600 {path}")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"keys": []}', '{"keys": {"openai": 1}}', '{"keys": {"openai": {}}}', "\x00",
     "[" * 100_000,
     '{"keys": {"openai": {"base_url": 1, "since": "", "where": "file"}}}',
     '{"keys": {"openai": {"base_url": "", "since": "", "where": "elsewhere"}}}'],
)  # fmt: skip
def test_a_damaged_list_is_reported_and_left_alone(tmp_path: Path, text: str) -> None:
    """What is no list of ours is an error that names the file; nothing is written over it."""
    path = open_store(tmp_path).path
    path.write_text(text)
    with pytest.raises(ConfigError, match="is damaged"):
        open_store(tmp_path).entries()
    with pytest.raises(ConfigError, match="is damaged"):
        open_store(tmp_path).set("openai", URL, KEY, plaintext=True)
    assert path.read_text() == text


def test_a_list_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    """A file where the directory should be: nothing is stored, and the error names it."""
    (tmp_path / "data").write_text("")
    with pytest.raises(ConfigError, match=r"keys\.json cannot be written"):
        open_store(tmp_path / "data").set("openai", URL, KEY, plaintext=True)


def test_removing_what_is_not_there_says_what_is(tmp_path: Path) -> None:
    """The error lists the stored ones."""
    open_store(tmp_path).set("openai", URL, KEY, plaintext=True)
    with pytest.raises(UsageError, match="no key of mistral is stored") as error:
        open_store(tmp_path).remove("mistral")
    assert "stored: openai" in error.value.hint


def test_a_key_that_moves_to_a_file_stays_there(tmp_path: Path) -> None:
    """Storing it again in a file does not depend on a keyring that has disappeared."""
    kept = {"base_url": URL, "since": "2026-11-01T00:00:00+00:00", "where": "keyring"}
    open_store(tmp_path).path.write_text(json.dumps({"keys": {"openai": kept}}))
    open_store(tmp_path).set("openai", URL, KEY, plaintext=True)
    assert open_store(tmp_path)("openai", URL) == KEY
    assert open_store(tmp_path).entries()["openai"].where == "file"

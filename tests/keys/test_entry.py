"""What can be a key, whose, and for which address."""

from __future__ import annotations

import pytest

from conductor_cli.core.errors import UsageError
from conductor_cli.keys.key_store import (
    LONGEST_KEY,
    PROVIDERS,
    KeyEntry,
    address,
    checked_key,
    known_provider,
    same_address,
)
from conductor_cli.models.presets import PRESETS


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no key was given"),
        (" \n\t", "no key was given"),
        ("sk-one\nsk-two", "must be one line"),
        ("sk-one\r\nsk-two", "must be one line"),
        ("sk-\x85two", "must be one line"),
        ("sk-" + "x" * 10_240, "must be one line"),
        ("sk-clé-0123456789", "must be one line"),
        ("“sk-0123456789”", "must be one line"),
        ("sk-\x0012345678", "must be one line"),
        ("Bearer sk-0123456789", "must be one line"),
    ],
)
def test_what_cannot_be_a_key_is_refused_and_not_repeated(text: str, said: str) -> None:
    """A new line inside, nothing, ten thousand characters, letters beyond ASCII: the error says which, not what."""
    with pytest.raises(UsageError, match=said) as error:
        checked_key(text)
    assert len(text.strip()) < 4 or text.strip()[:40] not in error.value.message + error.value.hint


@pytest.mark.parametrize("text", ["sk-0123456789", " sk-0123456789\n", "sk-0123456789\r\n", "\ufeffsk-0123456789"[1:]])
def test_white_space_around_a_key_is_not_part_of_it(text: str) -> None:
    """`echo` ends with a newline, and so do files."""
    assert checked_key(text) == "sk-0123456789"


def test_the_longest_key_is_taken() -> None:
    """The bound itself is inside."""
    assert len(checked_key("x" * LONGEST_KEY)) == LONGEST_KEY


@pytest.mark.parametrize("name", PROVIDERS)
def test_every_kind_with_an_address_of_its_own_can_have_a_key(name: str) -> None:
    """All but litellm, whose address nobody knows."""
    assert known_provider(name) == name
    assert PRESETS[name].base_url == "" or address(name, None) == PRESETS[name].base_url.rstrip("/")


@pytest.mark.parametrize(
    ("name", "said", "hint"),
    [
        ("opnai", "not a provider", "did you mean openai?"),
        ("OpenAI", "not a provider", "did you mean openai?"),
        ("nobody", "not a provider", "known: openai, "),
        ("litellm", "not a provider", "known: openai, "),
        ("sk-proj-0123456789abcdef", "not a provider", "known: openai, "),
        ("", "not a provider", "known: openai, "),
    ],
)
def test_an_unknown_provider_is_refused(name: str, said: str, hint: str) -> None:
    """With the name that was meant; what may be a key is not repeated."""
    with pytest.raises(UsageError, match=said) as error:
        known_provider(name)
    assert hint in error.value.hint


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
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    """A key goes nowhere where nobody knows who listens."""
    with pytest.raises(UsageError, match="--base-url is not a valid URL"):
        address("openai", url)


def test_an_address_holds_no_password() -> None:
    """An address is shown, and so would be what is before the @."""
    with pytest.raises(UsageError, match="without a user name or password") as error:
        address("openai", "https://me:secret@llm.example.com/v1")
    assert "secret" not in str(error.value) + error.value.hint


def test_a_server_without_an_address_of_its_own_needs_one() -> None:
    """A key for any server must be for one."""
    with pytest.raises(UsageError, match="openai-compatible has no fixed address") as error:
        address("openai-compatible", None)
    assert error.value.hint == "conductor keys set openai-compatible --base-url URL"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://Api.X.com/v1/", "https://api.x.com/v1", True),
        ("https://api.x.com/v1", "http://api.x.com/v1", False),
        ("https://api.x.com/v1", "https://api.x.com/v2", False),
        ("https://api.x.com/v1", "https://api.x.com.evil.example/v1", False),
        ("https://api.x.com/v1", "https://api.x.com:8443/v1", False),
        ("https://api.x.com/v1", "https://api.x.com@evil.example/v1", False),
        ("https://api.x.com/v1", "http://[api", False),
    ],
)
def test_two_addresses_are_one_only_if_all_of_them_is(one: str, other: str, same: bool) -> None:
    """Letters of a host's name and a last slash say nothing; everything else does."""
    assert same_address(one, other) is same


def test_an_entry_does_not_show_its_key() -> None:
    """Whoever prints one prints no key."""
    entry = KeyEntry(provider="openai", base_url="https://x", since="", where="file", key="sk-0123456789")
    assert "sk-0123456789" not in repr(entry)


@pytest.mark.parametrize("name", ["openai=sk-0123456789", "OPENAI_API_KEY=sk-0123456789", "sk-0123456789=", "="])
def test_a_key_behind_a_name_is_refused_and_not_repeated(name: str) -> None:
    """It is in the shell's history now, and the way to give it is named."""
    with pytest.raises(UsageError, match="not given on the command line") as error:
        known_provider(name)
    assert "sk-" not in error.value.message + error.value.hint
    assert "revoke it" in error.value.hint


def test_the_variable_of_a_provider_points_to_the_provider() -> None:
    """`keys set OPENAI_API_KEY` means openai."""
    with pytest.raises(UsageError) as error:
        known_provider("OPENAI_API_KEY")
    assert error.value.hint == "did you mean openai?"

"""What is nearly a key is found as the key is, and ordinary text is left alone."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.redact import REDACTED, Secrets, StreamRedactor, looks_random

KEYS = {
    "openai": "sk-proj-Ab3dEf7hIj2LmN9pQrS5tUvW1xYz4BcD8eFgH6iJkL0mN",
    "canary": "HDR-CANARY-1a2b3c4d5e6f",
    "hex": "9f86d081884c7d659a2feaa0c55ad015",
    "uuid": "3f2504e0-4f89-41d3-9a0c-0305e82c3301",
    "google": "AIzaSyD3x4mP1eK3yTh4t1sN0tR34lAtA11xyz",
}


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


COPIES: dict[str, Callable[[str], str]] = {
    "without its first character": lambda key: key[1:],
    "without its last character": lambda key: key[:-1],
    "without three at each end": lambda key: key[3:-3],
    "in large letters": str.upper,
    "in small letters": str.lower,
    "with its case changed": str.swapcase,
    "reversed": lambda key: key[::-1],
    "reversed and cut": lambda key: key[::-1][2:-2],
    "with dashes": "-".join,
    "with spaces": " ".join,
    "with zero-width spaces": "\u200b".join,
    "with a line break inside": lambda key: f"{key[:9]}\n        {key[9:]}",
    "one letter a line": "\n".join,
    "in base32": lambda key: base64.b32encode(key.encode()).decode(),
    "in base32, in small letters": lambda key: base64.b32encode(key.encode()).decode().lower(),
    "cut, in base64": lambda key: encoded(key[1:-1].encode()),
    "after another text, in base64": lambda key: encoded(f"user:{key[:-1]}".encode()),
    "cut, in hexadecimal": lambda key: key[1:-1].encode().hex(),
    "in hexadecimal with spaces": lambda key: key.encode().hex(" "),
    "after another text, in base32": lambda key: base64.b32encode(f"ab{key}".encode()).decode(),
    "reversed, in base64": lambda key: encoded(key.encode())[::-1],
}


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_a_near_copy_is_found(key: str, copy: Callable[[str], str]) -> None:
    """A provider that cuts a key in its message, or a model that spells it, does not bring it out."""
    text = f"The key is {copy(key)}, keep it."
    shown = Secrets(key).redact(text)
    assert REDACTED in shown
    kept = "".join(letter for letter in shown.replace(REDACTED, "|") if letter.isalnum() or letter == "|")
    before, *_, after = kept.split("|")
    assert len(before) - len("Thekeyis") <= 11
    assert len(after) - len("keepit") <= 11


@pytest.mark.parametrize("key", ["HDR-CANARY-1a2b3c4d5e6f", "9f86d081884c7d659a2feaa0c55ad015"])
@pytest.mark.parametrize("dots", ["...", "…", "****", "•••", "[...]"])
def test_an_elision_that_shows_half_of_a_key_is_found(key: str, dots: str) -> None:
    """What providers show of a key, its first and last four letters, stays readable."""
    most = len(key) * 2 // 5
    assert Secrets(key).redact(f"bad key {key[:most]}{dots}{key[-most:]}!") == f"bad key {REDACTED}!"
    little = f"bad key {key[:4]}{dots}{key[-4:]}!"
    assert Secrets(key).redact(little) == little


@pytest.mark.parametrize(
    "secret",
    ["my-project-2026-service-account", "correct horse battery staple", "EXAMPLE-COMPANY-TEAM-TOKEN", "a" * 40],
)
def test_a_secret_of_words_is_found_as_it_is_only(secret: str) -> None:
    """Its words stand in ordinary text."""
    assert not looks_random(secret)
    text = f"In my project, 2026, a service account; correct: horse, battery. {secret[1:]}"
    assert Secrets(secret).redact(text) == text
    assert Secrets(secret).redact(f"({secret})") == f"({REDACTED})"


def test_nothing_of_the_project_itself_is_taken_for_a_key() -> None:
    """Of prose, code and hashes of a megabyte, with twenty keys known, nothing is changed."""
    rng = random.Random(7)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    keys = Secrets(*("sk-proj-" + "".join(rng.choices(letters, k=48)) for _ in range(20)), *KEYS.values())
    root = Path(__file__).parents[2]
    for path in [*sorted((root / "docs").glob("*.md")), root / "requirements.lock"]:
        text = path.read_text(encoding="utf-8")[:100_000]
        assert keys.redact(text) == text, path.name


PIECES = st.lists(st.integers(0, 200), max_size=8)


@given(
    key=st.sampled_from(list(KEYS.values())), copy=st.sampled_from(list(COPIES.values())),
    before=st.text(max_size=8), behind=st.text(max_size=8), cuts=PIECES,
)  # fmt: skip
def test_a_stream_redacts_near_copies_wherever_it_is_cut(
    key: str, copy: Callable[[str], str], before: str, behind: str, cuts: list[int]
) -> None:
    """The pieces joined are the whole text redacted."""
    text = f"{before}{copy(key)}{behind}"
    secrets = Secrets(key)
    stream, places = StreamRedactor(secrets), sorted(min(cut, len(text)) for cut in cuts)
    parts = [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]
    assert "".join(stream.feed(part) for part in parts) + stream.close() == secrets.redact(text)


def test_a_stream_holds_back_a_few_letters_at_most() -> None:
    """Text in another script, and white space, are not held back by the letter before them."""
    stream = StreamRedactor(Secrets(KEYS["openai"]))
    shown = stream.feed("The answer is yes" + "。好" * 10)
    assert shown == "The answer is yes" + "。好" * 10
    assert len(stream.feed("The answer is")) >= 9

"""Keys in text.

Every spelling is found, nothing else is touched, and no piece of a stream lets one through.
"""

from __future__ import annotations

import base64
import html
import json
import random
import urllib.parse
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core import redact
from conductor_cli.core.redact import (
    MIN_SECRET_CHARS,
    REDACTED,
    Secrets,
    StreamRedactor,
    encodings_of,
    secrets_in,
)
from conductor_cli.system.known_secrets import KNOWN_SECRETS

PLAIN = "sk-proj-Ab3_xYz0123456789"
HARD = 'k/e+y="q\\u&<==/+'

KEYS = st.text(
    st.characters(min_codepoint=33, max_codepoint=126), min_size=MIN_SECRET_CHARS, max_size=40
)
AROUND = st.text(st.characters(codec="utf-8"), max_size=12)
SPELLED = {
    "as it is": lambda key: key,
    "in a URL": lambda key: urllib.parse.quote(key, safe=""),
    "in a URL's path": urllib.parse.quote,
    "in a form": urllib.parse.quote_plus,
    "escaped twice": lambda key: urllib.parse.quote(urllib.parse.quote(key, safe=""), safe=""),
    "in JSON": lambda key: json.dumps(key)[1:-1],
    "in HTML": html.escape,
    "in base64": lambda key: base64.b64encode(key.encode()).decode().rstrip("="),
    "in base64 for URLs": lambda key: base64.urlsafe_b64encode(key.encode()).decode().rstrip("="),
    "in base64 in a URL": lambda key: urllib.parse.quote(
        base64.b64encode(key.encode()).decode(), safe=""
    ),
    "in hexadecimal": lambda key: key.encode().hex(),
    "every byte escaped": lambda key: "".join(f"%{byte:02X}" for byte in key.encode()),
}


@pytest.mark.parametrize("spell", SPELLED.values(), ids=SPELLED)
@pytest.mark.parametrize("key", [PLAIN, HARD], ids=["plain", "hard"])
def test_a_key_is_found_in_every_encoding(spell: object, key: str) -> None:
    text = spell(key)  # type: ignore[operator]
    shown = Secrets(key).redact(f"before {text} behind")
    assert REDACTED in shown
    assert text not in shown
    # In base64 the last letters may depend on what follows; they say less than a byte of the key.
    assert len(shown) <= len(f"before {REDACTED} behind") + 4


@pytest.mark.parametrize("user", ["", "u", "us", "user:"])
@pytest.mark.parametrize("behind", ["", "!", "!!"])
def test_a_key_is_found_in_base64_between_other_text(user: str, behind: str) -> None:
    text = base64.b64encode(f"{user}{PLAIN}{behind}".encode()).decode()
    shown = Secrets(PLAIN).redact(text)
    assert REDACTED in shown
    assert len(shown) <= len(text) - len(PLAIN) + len(REDACTED)


@given(text=AROUND)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert Secrets(PLAIN).redact(text) == text


def test_a_short_word_is_not_a_key() -> None:
    assert Secrets("EMPTY", "", "dummy").redact("an EMPTY dummy") == "an EMPTY dummy"


def test_data_is_redacted_in_all_its_texts() -> None:
    value = {"a": [PLAIN, 1, None, True], PLAIN: {"b": (f"x{PLAIN}y",)}}
    assert Secrets(PLAIN).redact_data(value) == {
        "a": [REDACTED, 1, None, True],
        REDACTED: {"b": [f"x{REDACTED}y"]},
    }


KIN = Secrets(PLAIN, HARD, "abcdefgh", "abcdefghijklmnop", "defghijkl", "aaaaaaaaa", "abababababab")
"""Keys of which one begins as another does, one lies across another, and two repeat themselves."""


def streamed(secrets: Secrets, text: str, cuts: Sequence[int]) -> str:
    """`text` through a stream, cut there."""
    stream = StreamRedactor(secrets)
    places = sorted(cuts)
    pieces = [
        text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)
    ]
    return "".join(stream.feed(piece) for piece in pieces) + stream.close()


@given(key=KEYS, before=AROUND, behind=AROUND, data=st.data())
def test_a_stream_lets_no_key_through_however_it_is_cut(
    key: str, before: str, behind: str, data: st.DataObject
) -> None:
    text = f"{before}{data.draw(st.sampled_from(list(encodings_of(key))))}{behind}"
    shown = streamed(Secrets(key), text, data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    assert shown == Secrets(key).redact(text)
    assert REDACTED in shown


@given(data=st.data())
def test_a_stream_of_several_keys_is_the_whole_text_redacted(data: st.DataObject) -> None:
    part = st.builds(lambda form, end: form[:end], st.sampled_from(KIN.forms), st.integers(1, 99))
    text = "".join(data.draw(st.lists(part | st.sampled_from(KIN.forms) | AROUND, max_size=5)))
    shown = streamed(KIN, text, data.draw(st.lists(st.integers(0, len(text)), max_size=9)))
    assert shown == KIN.redact(text)
    for form, piece in product(KIN.forms, shown.split(REDACTED)):
        assert form not in piece


def test_keys_that_overlap_have_one_mark() -> None:
    keys = Secrets("abcdefgh", "efghijklmnop")
    text = "(abcdefghijklmnop)"
    assert keys.redact(text) == streamed(keys, text, range(len(text))) == f"({REDACTED})"


def test_a_stream_holds_back_only_what_may_become_a_key() -> None:
    stream = StreamRedactor(Secrets(PLAIN))
    assert [stream.feed("look: sk-"), stream.feed("proj no"), stream.close()] == [
        "look: ",
        "sk-proj ",
        "no",
    ]


def test_a_key_that_is_added_twice_is_known_once() -> None:
    secrets = Secrets(PLAIN)
    before = secrets.forms
    secrets.add(PLAIN)
    assert secrets.forms is before
    assert set(before) == set(encodings_of(PLAIN))
    assert KNOWN_SECRETS.redact(REDACTED) == REDACTED


def test_a_further_key_costs_only_what_it_takes_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A login adds keys of a thousand letters one by one, and shows something after each."""
    encoded = list[str]()
    looked_for = list[str]()

    def watched_encodings(secret: str) -> list[str]:
        encoded.append(secret)
        return [*encodings_of(secret)]

    def watched_search(key: str) -> object:
        looked_for.append(key)
        return look_for(key)

    look_for = redact._look_for
    monkeypatch.setattr(redact, "encodings_of", watched_encodings)
    monkeypatch.setattr(redact, "_look_for", watched_search)
    secrets = Secrets()
    keys = [PLAIN, PLAIN.replace("Ab3", "Zk9"), PLAIN.swapcase()]
    for key in keys:
        secrets.add(key, *keys[:1])
        assert secrets.redact(f"a {key} b {key[::-1]} c") == f"a {REDACTED} b {REDACTED} c"
    assert encoded == looked_for == keys
    assert secrets.redact(keys[0]) == REDACTED


def test_what_is_secret_among_headers_and_variables() -> None:
    token = "Zq8-Lm3_pT6rX1vB9nK4wH7"
    values = {
        "Authorization": f"Bearer {token}",
        "x-session": "abcdefgh",
        "x-trace": "a1b2c3d4e5f6a7b8c9",
        "accept": "application/json",
        "user-agent": "conductor-llm/1.0",
        "x-title": "my project 2026",
        "DATABASE_URL": "postgres://me:hunter2hunter2@db.example.com/x",
        "HOME": "/home/somebody",
    }
    assert secrets_in(values) == [
        f"Bearer {token}",
        token,
        "abcdefgh",
        "abcdefgh",
        "a1b2c3d4e5f6a7b8c9",
        "a1b2c3d4e5f6a7b8c9",
        "hunter2hunter2",
    ]


LONG_KEYS = {
    "openai": "sk-proj-Ab3dEf7hIj2LmN9pQrS5tUvW1xYz4BcD8eFgH6iJkL0mN",
    "canary": "HDR-CANARY-1a2b3c4d5e6f",
    "hex": "9f86d081884c7d659a2feaa0c55ad015",
    "uuid": "3f2504e0-4f89-41d3-9a0c-0305e82c3301",
    "google": "AIzaSyD3x4mP1eK3yTh4t1sN0tR34lAtA11xyz",
}


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


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
@pytest.mark.parametrize("key", LONG_KEYS.values(), ids=LONG_KEYS)
def test_a_near_copy_is_found(key: str, copy: Callable[[str], str]) -> None:
    text = f"The key is {copy(key)}, keep it."
    shown = Secrets(key).redact(text)
    assert REDACTED in shown
    kept = "".join(
        letter for letter in shown.replace(REDACTED, "|") if letter.isalnum() or letter == "|"
    )
    before, *_, after = kept.split("|")
    assert len(before) - len("Thekeyis") <= 11
    assert len(after) - len("keepit") <= 11


@pytest.mark.parametrize("key", ["HDR-CANARY-1a2b3c4d5e6f", "9f86d081884c7d659a2feaa0c55ad015"])
@pytest.mark.parametrize("dots", ["...", "…", "****", "•••", "[...]"])
def test_an_elision_that_shows_half_of_a_key_is_found(key: str, dots: str) -> None:
    most = len(key) * 2 // 5
    assert (
        Secrets(key).redact(f"bad key {key[:most]}{dots}{key[-most:]}!") == f"bad key {REDACTED}!"
    )
    little = f"bad key {key[:4]}{dots}{key[-4:]}!"
    assert Secrets(key).redact(little) == little


@pytest.mark.parametrize(
    "secret",
    [
        "my-project-2026-service-account",
        "correct horse battery staple",
        "EXAMPLE-COMPANY-TEAM-TOKEN",
        "a" * 40,
    ],
)
def test_a_secret_of_words_is_found_as_it_is_only(secret: str) -> None:
    assert not redact.looks_random(secret)
    text = f"In my project, 2026, a service account; correct: horse, battery. {secret[1:]}"
    assert Secrets(secret).redact(text) == text
    assert Secrets(secret).redact(f"({secret})") == f"({REDACTED})"


def test_nothing_of_the_project_itself_is_taken_for_a_key() -> None:
    rng = random.Random(7)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    keys = Secrets(
        *("sk-proj-" + "".join(rng.choices(letters, k=48)) for _ in range(5)), *LONG_KEYS.values()
    )
    root = Path(__file__).parents[2]
    for path in [*sorted((root / "docs").glob("*.md")), root / "requirements.lock"]:
        text = path.read_text(encoding="utf-8")[:100_000]
        assert keys.redact(text) == text, path.name


@given(
    key=st.sampled_from(list(LONG_KEYS.values())),
    copy=st.sampled_from(list(COPIES.values())),
    before=st.text(max_size=8),
    behind=st.text(max_size=8),
    cuts=st.lists(st.integers(0, 200), max_size=8),
)
def test_a_stream_redacts_near_copies_wherever_it_is_cut(
    key: str, copy: Callable[[str], str], before: str, behind: str, cuts: list[int]
) -> None:
    text = f"{before}{copy(key)}{behind}"
    assert streamed(Secrets(key), text, [min(cut, len(text)) for cut in cuts]) == Secrets(
        key
    ).redact(text)


def test_a_stream_holds_back_a_few_letters_at_most() -> None:
    stream = StreamRedactor(Secrets(LONG_KEYS["openai"]))
    shown = stream.feed("The answer is yes" + "。好" * 10)
    assert shown == "The answer is yes" + "。好" * 10
    assert len(stream.feed("The answer is")) >= 9

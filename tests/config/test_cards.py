"""Measured cards.

Kept by worker and set, read whatever state the file is in, and put on the workers.
"""

from __future__ import annotations

import os
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.config.cards import (
    Cards,
    MeasuredCard,
    Strength,
    add_cards,
    cards_file,
    load_cards,
    worker_key,
)
from conductor_cli.config.settings import load_settings
from conductor_cli.core.errors import ConfigError
from conductor_cli.core.pool import Card, Worker
from conductor_cli.core.usage import Price
from tests.tiny_gguf import make

WORKER = Worker(
    name="alpha", kind="openai-compatible", model="m", options={"base_url": "http://127.0.0.1:1/v1"}
)


def measured(worker: Worker = WORKER, **fields: Any) -> MeasuredCard:
    given: dict[str, Any] = {
        "worker": worker.name,
        "key": worker_key(worker),
        "source": "basics",
        "hash": "h1",
        "time": "2026-11-21T10:00:00Z",
        "right": 3,
        "n": 4,
        "strengths": {"letters": Strength(right=3, n=4)},
        "tokens_in": 10.5,
        "tokens_out": 3.0,
        "seconds": 0.25,
        "cost": Decimal("0.001"),
    } | fields
    return MeasuredCard(**given)


def test_a_newer_measurement_takes_the_place_of_the_older(tmp_path: Path) -> None:
    """All others come back as they were kept, also that of the same worker on another set."""
    path = tmp_path / "deep" / "cards.json"
    on_second = measured(hash="h2", right=1)
    neighbour = measured(replace(WORKER, name="n", model="n"))
    newer = measured(right=2)
    assert add_cards(path, [measured(), on_second, neighbour]) is None
    add_cards(path, [newer])
    cards = load_cards(path)
    assert cards == Cards(measured=(on_second, neighbour, newer))
    assert (cards.of(WORKER), cards.of(WORKER, "h2")) == (newer, on_second)


@pytest.mark.parametrize(
    "changed",
    [
        replace(WORKER, model="other"),
        replace(WORKER, kind="vllm"),
        replace(WORKER, options={**WORKER.options, "temperature": 0.5}),
        replace(WORKER, options={"base_url": "http://127.0.0.1:2/v1"}),
    ],
    ids=["model", "kind", "temperature", "address"],
)
def test_a_worker_that_changed_has_no_card(changed: Worker) -> None:
    assert Cards(measured=(measured(),)).apply_to(changed).card == Card()


def test_a_worker_keeps_its_card_when_renamed_or_repriced() -> None:
    same = replace(
        WORKER,
        name="beta",
        about="new",
        parallel=9,
        price=Price(input=Decimal(3), output=Decimal(3)),
    )
    same = replace(same, options={**same.options, "key_env": "MY_KEY"})
    card = Cards(measured=(measured(),)).apply_to(same).card
    assert card == Card(
        strengths={"letters": 0.75}, measured=True, source="4 cases of basics, 2026-11-21"
    )


def test_workers_that_differ_in_a_header_have_cards_of_their_own() -> None:
    """A header may choose the deployment or the route. No header's value stands in the file."""
    first, second = (
        replace(WORKER, options={**WORKER.options, "headers": {"x-deployment": value}})
        for value in ("large", "small")
    )
    assert len({worker_key(first), worker_key(second), worker_key(WORKER)}) == 3


def test_a_file_is_known_by_its_bytes(tmp_path: Path) -> None:
    """Another model under the same path is another worker; a file that is gone has a mark too."""
    path = make(tmp_path / "a.gguf")
    worker = Worker(name="local", kind="llama", model=str(path))
    before = worker_key(worker)
    assert worker_key(replace(worker, options={"threads": 1})) == before
    content = bytearray(path.read_bytes())
    content[-1] ^= 255
    path.write_bytes(content)
    changed = worker_key(worker)
    path.unlink()
    assert len({before, changed, worker_key(worker)}) == 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ('{"cards": 3}', "is damaged"),
        ('{"cards": [{}]}', "a card: 'worker' is missing"),
        ('{"cards": [3]}', "a card: expected an object"),
        ("[" * 100_000, "is damaged"),
    ],
)
def test_a_damaged_file_is_reported_and_renamed(tmp_path: Path, text: str, problem: str) -> None:
    """One that was damaged before is kept too."""
    path = tmp_path / "cards.json"
    before = tmp_path / "cards.json.damaged-1"
    path.write_text(text)
    before.write_text("one")
    assert problem in load_cards(path).problem
    aside = add_cards(path, [measured()])
    assert aside is not None
    assert (aside.read_text(), before.read_text()) == (text, "one")
    assert load_cards(path) == Cards(measured=(measured(),))


def test_a_card_that_cannot_be_one_is_damage(tmp_path: Path) -> None:
    """A share above 1 was never measured."""
    path = tmp_path / "cards.json"
    add_cards(path, [measured()])
    path.write_text(path.read_text().replace('"right": 3', '"right": 9'))
    assert "9 of 4" in load_cards(path).problem


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert load_cards(tmp_path / "pipe") == Cards()


def test_a_disk_that_refuses_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(ConfigError, match=r"cards\.json cannot be written"):
        add_cards(tmp_path / "data" / "cards.json", [measured()])


def test_the_settings_put_cards_on_the_workers(tmp_path: Path) -> None:
    environ = {
        f"CONDUCTOR_LLM_{name}_DIR": str(tmp_path / name)
        for name in ("CONFIG", "DATA", "STATE", "CACHE")
    }
    (tmp_path / "CONFIG").mkdir()
    table = (
        '[workers.alpha]\nkind = "openai-compatible"\nmodel = "m"\nbase_url = '
        '"http://127.0.0.1:1/v1"\n'
    )
    (tmp_path / "CONFIG" / "config.toml").write_text(table)
    before = load_settings(environ).workers[0].worker
    assert before.card == Card()
    add_cards(cards_file(load_settings(environ).paths), [measured(before)])
    assert load_settings(environ).workers[0].worker.card.strengths == {"letters": 0.75}


def test_a_measured_card_takes_the_place_of_what_was_known_beforehand() -> None:
    """A well-known model has a card that nobody measured here, until somebody does.

    A card by hand wins over both.
    """
    worker = Worker(name="w", kind="openai", model="gpt-5")
    assert (
        Cards().apply_to(worker).card.measured,
        Cards().apply_to(worker).card.strengths["code"],
    ) == (
        False,
        0.829,
    )
    cards = Cards(measured=(measured(worker),))
    assert (cards.apply_to(worker).card.measured, dict(cards.apply_to(worker).card.strengths)) == (
        True,
        {"letters": 0.75},
    )
    with_own_card = replace(worker, card=Card(strengths={"code": 0.1}))
    assert cards.apply_to(with_own_card) == with_own_card

from __future__ import annotations

import pytest

from conductor_cli.core.plan_formats import PLAN_FORMATS
from conductor_cli.core.pool import Card, Worker
from conductor_cli.core.profile import PROFILES, Profile, labels_for, labels_of


def test_letters_go_on_after_z() -> None:
    """As columns of a table do."""
    labels = list(labels_of([str(number) for number in range(704)], "letters"))
    assert [labels[number] for number in (0, 1, 25, 26, 27, 51, 52, 701, 702, 703)] == [
        "A", "B", "Z", "AA", "AB", "AZ", "BA", "ZZ", "AAA", "AAB",
    ]  # fmt: skip
    assert len(set(labels)) == 704


def test_numbers_start_at_0() -> None:
    """As in the published recipe; the order is that of the pool."""
    assert labels_of(["x", "y"], "numbers") == {"0": "x", "1": "y"}
    assert list(labels_of(["x", "y"], "letters").values()) == ["x", "y"]


def test_a_label_may_be_an_entry_of_a_card() -> None:
    """The tag and the place in the pool; a worker has one for each tag, and one without a card has its letter."""
    cards = {"x": {"math": 0.9, "code": 0.2}, "y": {"math": 0.95}, "z": {}}
    workers = [Worker(name=name, kind="openai", card=Card(strengths=card)) for name, card in cards.items()]
    assert labels_for(workers, "entries") == {"mathA": "x", "codeA": "x", "mathB": "y", "C": "z"}
    assert labels_for(workers, "letters") == {"A": "x", "B": "y", "C": "z"}


@pytest.mark.parametrize("profile", PROFILES.values(), ids=list(PROFILES))
def test_every_profile_has_a_plan_format(profile: Profile) -> None:
    """Numbers belong to the published lists, which hold whole numbers only."""
    assert PROFILES[profile.name] is profile
    assert profile.plan_format in PLAN_FORMATS
    assert sorted(profile.order) == ["access", "subtask", "worker"]
    assert profile.plan_format != "published" or profile.labels == "numbers"


def test_every_plan_format_is_found_by_its_name() -> None:
    """The table's keys are the names."""
    assert all(name == spelling.name for name, spelling in PLAN_FORMATS.items())

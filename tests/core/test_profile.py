from __future__ import annotations

import pytest

from conductor_cli.core.profile import PROFILES, Profile, labels_of
from conductor_cli.core.spellings import SPELLINGS


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


@pytest.mark.parametrize("profile", PROFILES.values(), ids=list(PROFILES))
def test_every_profile_is_found_by_name_and_has_its_spelling(profile: Profile) -> None:
    """Numbers belong to the published lists, which hold whole numbers only."""
    assert PROFILES[profile.name] is profile
    assert profile.spelling in SPELLINGS
    assert sorted(profile.order) == ["access", "subtask", "worker"]
    assert profile.spelling != "published" or profile.labels == "numbers"


def test_every_spelling_is_found_by_its_name() -> None:
    """The table's keys are the names."""
    assert all(name == spelling.name for name, spelling in SPELLINGS.items())

"""A small part of the campaigns about clocks and other users; `make faults` runs all of them."""

from __future__ import annotations

import sys

import pytest

from conductor_cli.state.spending import DailySpend
from scripts.faults import clocks
from scripts.faults.clocks import NIGHTS, ZONES

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="time zones by POSIX rules")


@pytest.mark.parametrize("seed", range(6))
def test_no_jump_of_the_clock_gives_a_day_more_than_its_limit(seed: int) -> None:
    """Back, forward and over midnight, also within calls; back by up to a day opens no new day."""
    assert clocks.walk(seed).problem == ""


@pytest.mark.parametrize("night", NIGHTS)
def test_a_day_of_daylight_saving_is_one_day(night: str) -> None:
    """Where the clock goes over midnight by it, each day has its limit once, and may use it up."""
    zone = {"spring": "forward over midnight", "autumn": "back over midnight"}[night]
    assert zone in ZONES
    outcome = clocks.through_a_night(zone, night)
    assert (outcome.hit, outcome.problem) == (True, "")


def test_a_clock_that_opens_new_days_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The campaign can fail: where a call counts for the day that the clock shows, going back gives a new limit."""
    monkeypatch.setattr(DailySpend, "_day", lambda self, database: self._now().date())
    assert any("went back by less than a day" in clocks.walk(seed).problem for seed in range(12))

"""The measure of growth that other tests use: it passes linear work and refuses quadratic work.

The clock of these tests goes on by the steps of the work alone, however busy the machine is.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.growth import assert_grows_linearly

STEP_SECONDS = 1e-6


class Steps:
    """Work that takes `steps_of` the length of its text, and the clock that goes on by it.

    `disturbed` has a factor for each of the first times: how much longer something else made it.
    """

    def __init__(self, steps_of: Callable[[int], float], *disturbed: float) -> None:
        self.steps_of = steps_of
        self.disturbed = [*disturbed]
        self.now = 0.0

    def work(self, text: str) -> None:
        factor = self.disturbed.pop(0) if self.disturbed else 1.0
        self.now += self.steps_of(len(text)) * STEP_SECONDS * factor

    def assert_linear(self) -> None:
        assert_grows_linearly(self.work, lambda size: " " * size, 50_000, lambda: self.now)


def linear(length: int) -> float:
    return 7.0 * length


def quadratic(length: int) -> float:
    """A search that begins again at each sign is how a parser usually becomes quadratic."""
    return length * length / 2


@pytest.mark.parametrize("disturbed", [(), (9.0,), (9.0, 1.0, 1.0, 1.0, 9.0, 9.0, 9.0, 9.0)])
def test_linear_work_passes_the_measure_of_growth(disturbed: tuple[float, ...]) -> None:
    Steps(linear, *disturbed).assert_linear()


@pytest.mark.parametrize("disturbed", [(), (1.0, 3.0), (1.0, 3.0, 3.0), (1.9,) * 20])
def test_quadratic_work_fails_the_measure_of_growth(disturbed: tuple[float, ...]) -> None:
    with pytest.raises(AssertionError, match=r"16\.0 times as long"):
        Steps(quadratic, *disturbed).assert_linear()


def test_work_that_takes_no_time_is_not_measured() -> None:
    Steps(lambda length: length**2 / 1e9).assert_linear()

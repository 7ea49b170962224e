"""The measure of growth that other tests use: it passes linear work and refuses quadratic work."""

from __future__ import annotations

import re

import pytest

from tests.growth import assert_grows_linearly


def spaces(size: int) -> str:
    return " " * size + "x"


def test_linear_work_passes_the_measure_of_growth() -> None:
    assert_grows_linearly(lambda text: re.search(r"\S", text), spaces, 2_000_000)


def test_quadratic_work_fails_the_measure_of_growth() -> None:
    """A search that begins again at each sign is how a parser usually becomes quadratic."""
    with pytest.raises(AssertionError, match="times as long"):
        assert_grows_linearly(lambda text: re.search(r" +y", text), spaces, 5_000)

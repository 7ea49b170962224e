"""What a training will cost and take, by figures of its workers. Needs no torch."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from conductor_cli.core.usage import FREE, Price
from conductor_cli.train.budget import ASKED, STEPS, Forecast, TrainingForecast, WorkerFigures, format_roughly
from conductor_cli.train.recipe import PUBLISHED

PRICE = Price(input=Decimal(1), output=Decimal(10))


def worker(name: str, **changes: Any) -> WorkerFigures:
    values = {
        "tokens_in": 1000.0, "tokens_out": 500.0, "seconds": 10.0, "source": "calibration, 60 cases",
        "measured": True, "parallel": 4, "price": PRICE,
    }  # fmt: skip
    return WorkerFigures(name=name, **{**values, **changes})


THREE = tuple(worker(name) for name in ("ann", "bob", "cat"))


def forecast(*workers: WorkerFigures, **changes: Any) -> TrainingForecast:
    return TrainingForecast(**{"recipe": PUBLISHED, "workers": workers or THREE, "steps": 200, **changes})


def test_the_expected_cost_is_runs_times_steps_times_a_call() -> None:
    """Each later step also reads the answers before it: with three steps, one answer on average."""
    found = forecast().cost()
    assert found is not None
    call = (1500 * 1 + 500 * 10) / 1e6
    assert found.expected == pytest.approx(200 * 256 * ASKED[1] * STEPS[1] * call)
    assert found.low < found.expected < found.high
    assert found.high / found.low < 6


def test_measured_workers_give_a_narrower_interval_than_assumed_ones() -> None:

    def width(*workers: WorkerFigures) -> float:
        found = forecast(*workers).cost()
        assert found is not None
        return found.high / found.low

    assumed = [replace(one, measured=False) for one in THREE]
    cheap = replace(THREE[0], price=Price(input=Decimal("0.1"), output=Decimal(1)))
    assert width() < width(*assumed)
    assert width() < width(cheap, *THREE[1:])


def test_workers_without_a_price_are_left_out_and_free_ones_cost_nothing() -> None:
    """None has a price: the cost is not known, which is not nothing."""
    unpriced, free = worker("ann", price=None), worker("bob", price=FREE)
    assert forecast(unpriced, unpriced).cost() is None
    assert forecast(free, free).cost() == Forecast(0.0, 0.0, 0.0)


def test_the_narrowest_of_path_runs_and_workers_decides_the_time() -> None:
    """Three workers with four calls each are the bottleneck of 64 runs; with 64 each, the runs are."""
    calls = 256 * ASKED[1] * STEPS[1] / 3
    assert forecast().seconds().expected == pytest.approx(200 * calls * 10 / 4)
    assert forecast().seconds(64).expected == pytest.approx(200 * 256 * ASKED[1] * STEPS[1] * 10 / 64)
    one = replace(PUBLISHED, prompts=1, group=2)
    assert forecast(recipe=one).seconds(64).expected == pytest.approx(200 * STEPS[1] * 10)
    slow = forecast(replace(THREE[0], seconds=30.0), *THREE[1:])
    assert slow.seconds().expected == pytest.approx(200 * calls * 30 / 4)


def test_starving_rollouts_are_reported_with_both_times() -> None:
    found = forecast().starvation()
    assert found is not None
    message, hint = found
    assert message == (
        "12 calls in flight of 64, so rollouts wait for workers: about 28 h in all; "
        "with parallel = 22 for ann, bob and cat about 5 h 20 min"
    )
    assert hint.startswith("write parallel = 22 into the table of each, such as [workers.ann]")
    assert forecast(*(replace(one, parallel=22) for one in THREE)).starvation() is None
    assert forecast(*(replace(one, remote=False, parallel=1) for one in THREE)).starvation() is None
    assert forecast(steps=0).starvation() is None


def test_the_assumptions_name_every_figure() -> None:
    text = "; ".join(forecast().assumptions())
    assert "3 steps a plan (1.5 to 4); 80% of the plans ask workers anew (50% to 100%); 64 runs at once" in text
    assert "ann, bob, cat: 1,000 tokens in, 500 out, 10.0 s, $0.0060 a call (calibration, 60 cases)" in text
    many = forecast(*(replace(THREE[0], name=f"w{number}") for number in range(120)))
    assert list(many.assumptions())[-1].startswith("w0 and 119 others: 1,000 tokens in, ")


@pytest.mark.parametrize(
    ("seconds", "text"), [(84_060, "23 h"), (15_240, "4 h 10 min"), (727, "12 min"), (86, "90 s"), (7.4, "7 s")]
)
def test_times_have_about_two_digits(seconds: float, text: str) -> None:
    assert format_roughly(seconds) == text
    assert Forecast(225.78, 618.36, 1046.55).money() == "about $620.00 (plausible: $230.00 to $1,000.00)"


def test_validation_counts_as_runs() -> None:
    """They are paid for like the others."""
    assert forecast(steps=10, validation_runs=64).runs == 10 * 256 + 64

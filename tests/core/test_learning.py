"""What ratings say about workers: shares of a verdict, and estimates from them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conductor_cli.core.errors import Failure
from conductor_cli.core.learning import (
    CARD_WEIGHT,
    FAILURE_WEIGHT,
    HALF_LIFE_DAYS,
    MIN_WEIGHT,
    Learned,
    Rating,
    RatingShare,
    Verdict,
    kind_of_task,
    learn,
    shares_of,
)
from conductor_cli.core.plan import Step
from conductor_cli.core.pool import RATED, Card, Pool, Worker
from conductor_cli.core.trace import FailedAttempt, StepRecord, Trace
from conductor_cli.core.usage import NO_USAGE

DAY = 86_400.0
CARD = Card(strengths={"math": 0.8, "code": 0.4})
POOL = Pool(
    workers=(
        Worker(name="a", kind="openai", card=CARD),
        Worker(name="b", kind="openai"),
        Worker(name="c", kind="self"),
    )
)


def step(
    number: int, worker: str, *access: int, last: bool = False, state: str = "done", text: str = ""
) -> StepRecord:
    made = Step(worker=worker, subtask=text or "Do it.", access=access)
    return StepRecord(number=number, step=made, last=last, planned=0.0, state=state, worker=worker)  # type: ignore[arg-type]


def rating(
    run: str, verdict: Verdict, *shares: RatingShare, at: float = 0.0, number: int = 0
) -> Rating:
    return Rating(run=run, step=number, verdict=verdict, by="user", time=at, shares=shares)


def share(
    *, good: bool = True, weight: float = 1.0, kind: str = "", number: int = 1
) -> RatingShare:
    return RatingShare(worker="a", key="a", step=number, kind=kind, weight=weight, good=good)


def test_a_verdict_on_a_run_is_one_observation_for_all_its_steps() -> None:
    trace = Trace(pool=POOL, steps=(step(1, "a"), step(2, "b"), step(3, "b", 1, last=True)))
    shares = shares_of(trace, "bad")
    assert [(item.worker, item.step, item.weight, item.good) for item in shares] == [
        ("a", 1, 0.5, False),
        ("b", 3, 0.5, False),
    ]
    (alone,) = shares_of(trace, "bad", 2)
    assert (alone.worker, alone.weight) == ("b", 1.0)


def test_a_worker_that_gave_up_gets_a_bad_share_in_a_good_run() -> None:
    def failed(worker: str, **fields: object) -> FailedAttempt:
        error = Failure(kind="worker", message="no", reason="timeout")
        given = {"started": 0.0, "substitute": "b", "error": error, **fields}
        return FailedAttempt(worker=worker, attempt=1, ended=1.0, usage=NO_USAGE, **given)  # type: ignore[arg-type]

    refused = Failure(kind="key", message="no", reason="auth")
    for attempt, expected in (
        (failed("a"), [("b", 1.0, True), ("a", FAILURE_WEIGHT, False)]),
        (failed("a", started=None), [("b", 1.0, True)]),
        (failed("a", error=refused), [("b", 1.0, True)]),
        (failed("a", retry_in=1.0), [("b", 1.0, True)]),
    ):
        record = replace(step(1, "b", last=True), failed=(attempt,))
        shares = shares_of(Trace(pool=POOL, steps=(record,)), "good")
        assert [(item.worker, item.weight, item.good) for item in shares] == expected


def test_the_kind_of_a_task_is_a_tag_of_a_card() -> None:
    for text, kind in (
        ("Calculate the sum.", "math"),
        ("Write a Python function.", "code"),
        ("Say hello.", ""),
        ("math and code", ""),
        ("Reverse the word.", ""),
    ):
        assert kind_of_task(text, POOL) == kind, text


def test_an_estimate_begins_at_the_card_and_moves_with_ratings() -> None:
    assert Learned().estimate("a", CARD, "math").mean == 0.8
    learned = learn([rating(str(n), "bad", share(good=False)) for n in range(10)], 0.0).estimate(
        "a", CARD
    )
    assert (learned.good, learned.bad) == (0, 10)
    assert learned.card == pytest.approx(0.6)
    assert learned.mean == pytest.approx(0.6 * CARD_WEIGHT / (CARD_WEIGHT + learned.weight))
    assert 0.3 < learned.mean < 0.4


def test_old_ratings_weigh_less() -> None:
    old = learn([rating("1", "good", share())], HALF_LIFE_DAYS * DAY).estimate("a", CARD)
    assert old.weight == pytest.approx(0.5)
    many = learn([rating(str(n), "good", share()) for n in range(500)], 0.0).estimate("a", CARD)
    assert (many.good, round(many.weight)) == (500, 29)


def test_a_rating_of_one_kind_does_not_change_the_figure_of_another() -> None:
    for kind, math, code in (("math", 1.0, 0.0), ("", 0.5, 0.5), ("law", 0.0, 0.0)):
        learned = learn([rating("1", "bad", share(good=False, kind=kind))], 0.0)
        assert [learned.estimate("a", CARD, tag).weight for tag in ("math", "code")] == [
            math,
            code,
        ], kind


def test_rating_a_run_twice_replaces_the_first() -> None:
    twice = learn(
        [rating("1", "bad", share(good=False)), rating("1", "good", share(), at=1.0)], 1.0
    )
    assert (twice.estimate("a", CARD).good, twice.estimate("a", CARD).bad) == (1, 0)
    both = learn(
        [rating("1", "good", share(), number=1), rating("1", "bad", share(good=False, weight=0.5))],
        0.0,
    )
    assert (both.estimate("a", CARD).good, both.estimate("a", CARD).bad) == (1, 0)


def test_a_worker_without_figures_gets_one_when_there_is_enough_evidence() -> None:
    worker = Worker(name="b", kind="openai", card=Card(words="general purpose"))
    for count, has_figure in ((1, False), (int(MIN_WEIGHT) + 2, True)):
        ratings = [rating(str(n), "good", replace(share(), key="b")) for n in range(count)]
        card = learn(ratings, 0.0).apply_to(worker, "b").card
        assert (RATED in card.strengths) is has_figure
        assert card.words == "general purpose"


def test_the_card_of_another_worker_stays() -> None:
    learned = learn([rating("1", "bad", share(good=False))], 0.0)
    worker = POOL["a"]
    assert learned.apply_to(worker, "another key") == worker
    assert learned.apply_to(worker, "a").card.strengths["math"] < 0.8

"""What answers that were rated say about workers: ratings, their shares, and estimates. Pure.

A verdict about an answer is one observation, however many steps led to it. `shares_of` divides it
among them, and `estimate_of` puts a worker's shares together with its capability card: a beta
distribution whose prior is the card's figure, in which old shares weigh less.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final, Literal

from conductor_cli.core.pool import RATED, Card, Pool, Worker
from conductor_cli.core.trace import StepRecord, Trace

Verdict = Literal["good", "bad"]
RatedBy = Literal["user", "check"]

CARD_WEIGHT: Final = 10.0  # So many ratings weigh as much as a figure of a card
# So many ratings weigh as much as not knowing anything, which counts as one half
IGNORANCE_WEIGHT: Final = 2.0
HALF_LIFE_DAYS: Final = 90.0  # After so many days a rating weighs half

HALF_LIFE_RATINGS: Final = 20.0
"""After so many newer ratings of the same worker a rating weighs half, so that a worker that
changed is noticed.
"""

# The weight of a rating whose kind of work is not known, in the figure for one kind
UNKNOWN_KIND_RELEVANCE: Final = 0.5

FAILURE_WEIGHT: Final = 0.5
"""The weight of an answer that a worker failed to give. It is half, because the fault may be the
network's.
"""

MIN_WEIGHT: Final = 3.0  # A worker without figures gets one as soon as its ratings weigh so much

_NOT_ITS_FAULT: Final = frozenset(
    {"auth", "worker_unknown", "worker_excluded", "nesting_limit", "output_closed"}
)
"""Failures that say nothing about what a worker can do."""

_KINDS: Final[Mapping[str, frozenset[str]]] = {
    "code": frozenset(
        {
            "bug",
            "class",
            "code",
            "compile",
            "css",
            "debug",
            "exception",
            "function",
            "html",
            "implement",
            "java",
            "javascript",
            "program",
            "python",
            "refactor",
            "regex",
            "rust",
            "script",
            "sql",
            "test",
            "typescript",
        }
    ),
    "math": frozenset(
        {
            "add",
            "algebra",
            "arithmetic",
            "calculate",
            "compute",
            "equation",
            "fraction",
            "geometry",
            "integral",
            "math",
            "multiply",
            "number",
            "percent",
            "probability",
            "solve",
            "subtract",
            "sum",
            "theorem",
        }
    ),
    "facts": frozenset(
        {"capital", "city", "country", "fact", "facts", "history", "name", "when", "where", "who"}
    ),
    "science": frozenset(
        {"atom", "biology", "cell", "chemistry", "energy", "molecule", "physics", "science"}
    ),
    "letters": frozenset({"alphabet", "letter", "letters", "reverse", "spell", "vowel", "word"}),
    "reasoning": frozenset(
        {"conclude", "deduce", "infer", "logic", "order", "premise", "puzzle", "reason"}
    ),
}
"""Words that tell the kind of a task, for the tags that cards of this tool use. A tag's own name
tells it too.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingShare:
    """The part of a verdict that concerns one worker.

    `key` is what the worker was (`config.cards.worker_key`), `kind` the kind of work, a tag of its
    card, empty if it is not known. `weight` is more than 0 and at most 1.
    """

    worker: str
    step: int
    kind: str
    weight: float
    good: bool
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating:
    """A verdict about a run (`step` 0) or one step of it, without any text of it.

    `time` is in seconds since 1970.
    """

    run: str
    step: int
    verdict: Verdict
    by: RatedBy
    time: float
    shares: tuple[RatingShare, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillEstimate:
    """What is believed about a worker at one kind of work.

    `card` is the card's figure, None if it has none. `good` and `bad` count the ratings that say
    something about it, `weight_good` and `weight_bad` what they weigh by now.
    """

    card: float | None = None
    good: int = 0
    bad: int = 0
    weight_good: float = 0.0
    weight_bad: float = 0.0

    @property
    def weight(self) -> float:
        """So many new ratings would weigh as much as all of these."""
        return self.weight_good + self.weight_bad

    @property
    def mean(self) -> float:
        """The share of good answers to be expected."""
        prior = 0.5
        prior_weight = IGNORANCE_WEIGHT
        if self.card is not None:
            prior = self.card
            prior_weight = CARD_WEIGHT
        return (prior_weight * prior + self.weight_good) / (prior_weight + self.weight)


def shares_of(trace: Trace, verdict: Verdict, step: int = 0) -> tuple[RatingShare, ...]:
    """Return what a verdict about a run says about its workers; with `step`, about one step.

    The steps that the answer depends on share a verdict about the run equally, so that it weighs 1
    in all. A verdict about one step weighs 1 for its worker. A worker that failed at one of these
    steps gave a bad answer of weight `FAILURE_WEIGHT`, whatever the verdict. Steps on the planner
    itself count as steps, and no worker gets their share.
    """
    if step:
        records = [record for record in trace.steps if record.number == step]
    else:
        records = steps_behind_answer(trace)
    good = verdict == "good"
    done_count = sum(record.state == "done" for record in records)
    shares = []
    for record in records:
        kind = kind_of_task(record.step.subtask, trace.pool)
        if record.state == "done" and record.worker in trace.pool:
            share = RatingShare(
                worker=record.worker,
                step=record.number,
                kind=kind,
                weight=round(1 / done_count, 4),
                good=good,
            )
            shares.append(share)
        for worker in _workers_at_fault(record):
            if worker in trace.pool:
                share = RatingShare(
                    worker=worker,
                    step=record.number,
                    kind=kind,
                    weight=FAILURE_WEIGHT,
                    good=False,
                )
                shares.append(share)
    return tuple(shares)


def _workers_at_fault(record: StepRecord) -> Iterable[str]:
    """Return the workers that were called at a step and gave it up, for a reason that is theirs."""
    workers: dict[str, None] = {}
    for attempt in record.failed:
        was_last = attempt.retry_in is None and attempt.started is not None
        is_limit = attempt.error.kind == "limit"
        if was_last and not is_limit and attempt.error.reason not in _NOT_ITS_FAULT:
            workers[attempt.worker] = None
    return workers


def steps_behind_answer(trace: Trace) -> list[StepRecord]:
    """Return the step that answers and those that it reads, directly or not.

    All steps where none is the last.
    """
    by_number = {record.number: record for record in trace.steps}
    wanted = [record.number for record in trace.steps if record.last]
    if not wanted:
        return list(trace.steps)
    # The list grows while it is read: each step that is wanted brings those that it reads.
    for number in wanted:
        for read in by_number[number].step.access:
            if read in by_number and read not in wanted:
                wanted.append(read)
    return [record for record in trace.steps if record.number in wanted]


def kind_of_task(subtask: str, pool: Pool) -> str:
    """Return the tag, of those on the cards of the pool, that the words of a subtask name.

    Empty unless it is exactly one.
    """
    words = {word.strip(".,:;?!()\"'`").lower() for word in subtask.split()}
    scores: dict[str, int] = {}
    for tag in chain.from_iterable(worker.card.strengths for worker in pool):
        if tag != RATED:
            words_of_tag = _KINDS.get(tag, frozenset()) | {tag.lower()}
            scores[tag] = len(words & words_of_tag)
    best = max(scores.values(), default=0)
    best_tags = [tag for tag, score in scores.items() if score == best]
    if best == 0 or len(best_tags) > 1:
        return ""
    return best_tags[0]


def describe_rating(rating: Rating) -> str:
    """Return `rated run 20261120-… good; credit: alpha 0.50, beta 0.50`, a weight a worker."""
    rated = f"run {rating.run}"
    if rating.step:
        rated = f"step {rating.step} of run {rating.run}"
    weights: dict[tuple[str, bool], float] = {}  # By worker, and whether it speaks for it
    for share in rating.shares:
        key = (share.worker, share.good)
        weights[key] = weights.get(key, 0.0) + share.weight
    parts = []
    for (worker, is_good), weight in weights.items():
        credit = f"{worker} {weight:.2f}"
        if is_good != (rating.verdict == "good"):
            credit += " bad, for a failed attempt"
        parts.append(credit)
    credit = ", ".join(parts) or "no worker had a part in it"
    return f"rated {rated} {rating.verdict}; credit: {credit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What all ratings say at the time `now`.

    `shares` are by worker key, each with its time, the oldest first.
    """

    now: float = 0.0
    shares: Mapping[str, Sequence[tuple[float, RatingShare]]] = field(default_factory=dict)
    _evidence: dict[tuple[str, str], SkillEstimate] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """What was weighed already, by worker key and kind."""

    def estimate(self, key: str, card: Card, kind: str = "") -> SkillEstimate:
        """Return the estimate for a worker with this key and card.

        Without a `kind` that its card has, over all kinds.
        """
        prior = None
        if kind in card.strengths:
            prior = card.strengths[kind]
        else:
            kind = ""
            if card.strengths:
                prior = card.mean()
        evidence = self._evidence.get((key, kind))
        if evidence is None:
            evidence = self._weigh(key, kind)
            self._evidence[key, kind] = evidence
        return replace(evidence, card=prior)

    def _weigh(self, key: str, kind: str) -> SkillEstimate:
        """Return the ratings of a worker for a kind of work, without its card."""
        counts = {True: 0, False: 0}
        weights = {True: 0.0, False: 0.0}
        newer = 0.0
        for time, share in reversed(self.shares.get(key, ())):
            relevance = _relevance(share, kind)
            if not relevance:
                continue
            days = max(self.now - time, 0.0) / 86_400
            decay = 0.5 ** (days / HALF_LIFE_DAYS + newer / HALF_LIFE_RATINGS)
            counts[share.good] += 1
            weights[share.good] += share.weight * relevance * decay
            newer += share.weight * relevance
        return SkillEstimate(
            card=None,
            good=counts[True],
            bad=counts[False],
            weight_good=weights[True],
            weight_bad=weights[False],
        )

    def estimates(self, key: str, card: Card) -> dict[str, SkillEstimate]:
        return {tag: self.estimate(key, card, tag) for tag in card.strengths or (RATED,)}

    def apply_to(self, worker: Worker, key: str) -> Worker:
        """Return the worker with the card that the planner reads.

        The estimates in place of its figures.
        """
        card = worker.card
        learned: dict[str, float] = {}
        for tag, estimate in self.estimates(key, card).items():
            is_rated = estimate.good + estimate.bad > 0
            may_replace = bool(card.strengths) or estimate.weight >= MIN_WEIGHT
            if is_rated and may_replace:
                learned[tag] = round(estimate.mean, 4)
        if not learned:
            return worker
        source = ", ".join(filter(None, (card.source, "your ratings")))
        return replace(
            worker, card=replace(card, strengths={**card.strengths, **learned}, source=source)
        )


def _relevance(share: RatingShare, kind: str) -> float:
    """Return from 0 to 1 how much a share says about a kind of work; 1 where `kind` is empty."""
    if not kind or share.kind == kind:
        return 1.0
    if not share.kind:
        return UNKNOWN_KIND_RELEVANCE
    return 0.0


def learn(ratings: Iterable[Rating], now: float) -> Learned:
    """Return what ratings say at the time `now`.

    Of two ratings of the same run or step the later one counts.
    """
    newest: dict[tuple[str, int], Rating] = {}
    for rating in ratings:
        newest.pop((rating.run, rating.step), None)
        newest[rating.run, rating.step] = rating
    shares: dict[str, list[tuple[float, RatingShare]]] = {}
    for rating in sorted(newest.values(), key=lambda rating: rating.time):
        for share in rating.shares:
            # A step that was rated itself has no part in the rating of its run.
            if rating.step or (rating.run, share.step) not in newest:
                shares.setdefault(share.key, []).append((rating.time, share))
    return Learned(now=now, shares=shares)

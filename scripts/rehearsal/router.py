"""A router that is learned from questions and outcomes, as RouterDC learns one. Imports torch.

A question becomes a vector: the sum of vectors of its words and pairs of words, hashed. A member becomes another: the
sum of vectors of its skills, each times its strength. The member whose vector is nearest to the question's is asked.
Both are learned from nothing with RouterDC's contrast: members that answered rightly against those that did not.
So it sees the words of the question and the whole card of each member, and is told for each training question who was
right. A question that everybody, or nobody, got right teaches nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from conductor_cli.rehearsal.words import normalize
from conductor_cli.train.recipe import require
from scripts.rehearsal.supervised import use_threads

with require("torch"):
    import torch

BUCKETS: Final = 4096
WIDTH: Final = 48
EPOCHS: Final = 15
BATCH: Final = 32
RATE: Final = 0.01

Card = Mapping[str, float]
"""Strengths by skill; or for members that are always the same, 1 for each one's name."""


class Sample(NamedTuple):
    """A question or step, the cards on offer, and who was right."""

    text: str
    cards: Sequence[Card]
    right: Sequence[bool]


class Router:
    """Chooses one of several cards for a text."""

    def __init__(self, samples: Sequence[Sample], seed: int = 1) -> None:
        useful = [sample for sample in samples if any(sample.right) and not all(sample.right)]
        names = sorted({name for sample in useful for card in sample.cards for name in card})
        self._places = {name: place for place, name in enumerate(names)}
        torch.manual_seed(seed)
        self._words = torch.nn.EmbeddingBag(BUCKETS, WIDTH, mode="sum", sparse=True)
        self._skills = torch.nn.Linear(max(len(names), 1), WIDTH, bias=False)
        torch.nn.init.normal_(self._words.weight, std=0.1)
        if useful:
            self._learn(useful, seed)

    def choose(self, text: str, cards: Sequence[Card]) -> int:
        """The place of the card that suits the text best; of equal ones the first."""
        with torch.inference_mode():
            return int(self._scores([text], [cards])[0].argmax())

    def _learn(self, samples: Sequence[Sample], seed: int) -> None:
        use_threads(1)
        # Only the words of a batch are touched, or Adam would take most of the time for all others.
        optimizers = (
            torch.optim.SparseAdam(list(self._words.parameters()), lr=RATE),
            torch.optim.Adam(self._skills.parameters(), lr=RATE),
        )
        generator = torch.Generator().manual_seed(seed)
        for _ in range(EPOCHS):
            for places in torch.randperm(len(samples), generator=generator).split(BATCH):
                batch = [samples[place] for place in places.tolist()]
                scores = self._scores([sample.text for sample in batch], [sample.cards for sample in batch])
                right = torch.full_like(scores, float("-inf"))
                for row, sample in enumerate(batch):
                    right[row, [place for place, is_right in enumerate(sample.right) if is_right]] = 0.0
                loss = (scores.logsumexp(1) - (scores + right).logsumexp(1)).mean()
                for optimizer in optimizers:
                    optimizer.zero_grad()
                loss.backward()
                for optimizer in optimizers:
                    optimizer.step()

    def _scores(self, texts: Sequence[str], offered: Sequence[Sequence[Card]]) -> Any:  # noqa: ANN401 - a tensor
        """The scores (texts, cards), minus infinity where there is no card."""
        rows = [features(text) for text in texts]
        starts = torch.tensor([0, *map(len, rows)]).cumsum(0)[:-1]
        asked = self._words(torch.tensor([bucket for row in rows for bucket in row]), starts)
        most = max(map(len, offered))
        cards = torch.zeros(len(texts), most, len(self._places) or 1)
        absent = torch.ones(len(texts), most, dtype=torch.bool)
        for row, offer in enumerate(offered):
            for place, card in enumerate(offer):
                absent[row, place] = False
                for name, strength in card.items():
                    if name in self._places:
                        cards[row, place, self._places[name]] = strength
        return torch.einsum("tcw,tw->tc", self._skills(cards), asked).masked_fill(absent, float("-inf"))


def features(text: str) -> list[int]:
    """The buckets of the words and pairs of words of a text. In a pair, an operand is only a word or a number."""
    own = normalize(text).split()
    words = ["^", *map(_kind, own), "$"]
    pairs = [f"{one} {two}" for one, two in pairwise(words)]
    return [zlib.crc32(item.encode()) % BUCKETS for item in (*own, *words, *pairs)]


def _kind(word: str) -> str:
    return "#" if word.isdecimal() else "@" if word.isupper() else word

"""A router that compares a question's vector with one learned vector for each worker.

After RouterDC (Chen et al., arXiv 2409.19886): two contrastive losses. The first draws a question to the workers that
answer it right and away from those that do not; the second draws it to a question of its own cluster and away from
questions of others. The published encoder is a language model of 86 million parameters that is trained along; here the
vectors are given and only a linear layer behind them is trained. Imported only where it runs, because it needs numpy.

A policy that chooses a team for a question: how many workers, in which form they work together, and which ones.

After MasRouter (Yue et al., arXiv 2502.11133), which trains a cascade of such choices by policy gradients on sampled
runs. Here every team has answered every training question, so the gradient of the expected reward is computed exactly,
and the cascade is one policy whose scores are sums over the choices. Imported only where it runs: it needs numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from conductor_cli.evals.embeddings import unit_rows
from conductor_cli.evals.systems import Team

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


SIZE: Final = 32
"""Dimensions behind the linear layer."""
STEPS: Final = 100
BATCH: Final = 64
RATE: Final = 0.01
"""The step size of Adam."""
TEMPERATURE: Final = 0.2
"""Cosines are divided by it. The authors divide by 1, and let a language model do the rest."""
POSITIVES, NEGATIVES = 3, 3
"""Workers that answered right; workers that did not, or questions of other clusters. As the authors have it."""
CLUSTERS: Final = 5
"""Of training questions, as the authors have it; they run k-means on a projection by t-SNE, here on the vectors."""


def with_bias(questions: Array) -> Array:
    """The vectors with a last dimension that is always 1."""
    rows: Array = np.hstack([questions, np.ones((len(questions), 1))])
    return rows


def train(questions: Array, right: Array, seed: int) -> tuple[Array, Array]:
    """The linear layer, (dimensions + 1, SIZE), and a vector for each worker, (workers, SIZE).

    `questions` are unit vectors; `right` is 1 where a worker (column) answered a question (row) right, else 0.
    """
    random = np.random.default_rng(seed)
    features, clusters = with_bias(questions), cluster(questions, random)
    layer = random.normal(size=(features.shape[1], SIZE)) / features.shape[1] ** 0.5
    keys = random.normal(size=(right.shape[1], SIZE))
    adam = Adam((layer.shape, keys.shape))
    for _ in range(STEPS):
        batch = random.choice(len(features), size=min(BATCH, len(features)), replace=False)
        hidden = features[batch] @ layer
        units, of_workers = unit_rows(hidden), unit_rows(keys)
        same = clusters[batch][:, None] == clusters[batch][None, :]
        other = ~np.eye(len(batch), dtype=bool)
        knows = right[batch] > 0
        by_worker = contrast_gradient(units @ of_workers.T / TEMPERATURE, knows, ~knows, POSITIVES, random)
        by_question = contrast_gradient(units @ units.T / TEMPERATURE, same & other, ~same, 1, random)
        by_worker, by_question = by_worker / TEMPERATURE, by_question / TEMPERATURE
        to_units = by_worker @ of_workers + (by_question + by_question.T) @ units
        to_layer = features[batch].T @ _through_norm(to_units, hidden, units)
        to_keys = _through_norm(by_worker.T @ units, keys, of_workers)
        layer_step, keys_step = adam.steps((to_layer, to_keys))
        layer, keys = layer - RATE * layer_step, keys - RATE * keys_step
    return layer, unit_rows(keys)


def choose(questions: Array, layer: Array, keys: Array) -> list[int]:
    """For each question the worker whose vector has the largest cosine with it."""
    cosines = unit_rows(with_bias(questions) @ layer) @ keys.T
    return [int(worker) for worker in np.argmax(cosines, axis=1)]


def cluster(rows: Array, random: np.random.Generator, rounds: int = 20) -> NDArray[np.int64]:
    """The number of the cluster of each row, by k-means."""
    count = max(1, min(CLUSTERS, len(rows) // 4))
    centres = rows[random.choice(len(rows), size=count, replace=False)]
    found: NDArray[np.int64] = np.zeros(len(rows), dtype=np.int64)
    for _ in range(rounds):
        found = np.argmin(((rows[:, None, :] - centres[None]) ** 2).sum(axis=2), axis=1)
        for number in set(found.tolist()):
            centres[number] = rows[found == number].mean(axis=0)
    return found


def contrast_gradient(
    scores: Array, good: NDArray[np.bool_], bad: NDArray[np.bool_], most: int, random: np.random.Generator
) -> Array:
    """The gradient by the scores of a contrastive loss, the mean over the rows.

    In each row up to `most` drawn columns of the `good` ones take turns against the same drawn columns of the `bad`
    ones: the cross-entropy of the first among them. A row without either adds nothing.
    """
    order, rows, gradient = random.random(scores.shape), np.arange(len(scores))[:, None], np.zeros_like(scores)
    against = np.argsort(-order * bad, axis=1)[:, :NEGATIVES]
    towards = np.argsort(-order * good, axis=1)[:, :most]
    for turn in towards.T:
        chosen = np.hstack([turn[:, None], against])
        usable = np.hstack([good[rows, turn[:, None]], bad[rows, against]])
        usable[~(usable[:, 0] & usable[:, 1:].any(axis=1))] = False
        powers = np.exp(scores[rows, chosen] - scores.max(axis=1, keepdims=True)) * usable
        shares = powers / np.where(usable[:, :1], powers.sum(axis=1, keepdims=True), 1.0)
        shares[:, 0] -= usable[:, 0]
        np.add.at(gradient, (rows, chosen), shares)
    found: Array = gradient / len(scores)
    return found


def _through_norm(gradient: Array, rows: Array, units: Array) -> Array:
    """The gradient by the rows, from that by the rows scaled to length 1."""
    lengths = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    found: Array = (gradient - units * (gradient * units).sum(axis=1, keepdims=True)) / lengths
    return found


class Adam:
    """The optimiser of Kingma and Ba, arXiv 1412.6980, for arrays of these shapes."""

    def __init__(self, shapes: tuple[tuple[int, ...], ...]) -> None:
        self._moments = [(np.zeros(shape), np.zeros(shape)) for shape in shapes]
        self._count = 0

    def steps(self, gradients: tuple[Array, ...]) -> list[Array]:
        """What to subtract from each array, times the step size."""
        self._count += 1
        found = []
        for index, gradient in enumerate(gradients):
            mean, square = self._moments[index]
            mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
            self._moments[index] = mean, square
            unbiased = mean / (1 - 0.9**self._count), square / (1 - 0.999**self._count)
            found.append(unbiased[0] / (np.sqrt(unbiased[1]) + 1e-8))
        return found


MASROUTER_STEPS: Final = 300
MASROUTER_RATE: Final = 0.05
DECAY: Final = 0.002
"""How strongly large weights are held back: a user's own cases are few."""
COST_WEIGHT: Final = 0.02
"""What a team is charged, in right answers, for as much as one worker alone costs on average."""


def rewards(right: Array, cost: Array, alone: Sequence[int]) -> Array:
    """The reward of each team (column) for each question (row): 1 if it is right, less its cost.

    `cost` is in any unit; `alone` are the columns of the teams of one worker that answers once.
    """
    unit = cost[:, list(alone)].mean() or 1.0
    found: Array = right - COST_WEIGHT * cost / unit
    return found


def choices(teams: Sequence[Team], workers: Sequence[str]) -> Array:
    """Which choices make each team, as zeros and ones: (teams, choices).

    The choices are the number of workers, the form, who takes part, and who gives the answer.
    """
    counts = sorted({len(team.workers) for team in teams})
    forms = sorted({team.form for team in teams})
    rows = [
        [len(team.workers) == count for count in counts] + [team.form == form for form in forms]
        + [name in team.workers for name in workers] + [name == team.answers for name in workers]
        for team in teams
    ]  # fmt: skip
    return np.array(rows, dtype=np.float64)


def train_masrouter(questions: Array, reward: Array, made_of: Array) -> Array:
    """The weights of the policy, (dimensions + 1, choices), by gradient ascent on its expected reward.

    `questions` are unit vectors, `reward` has a row for each question and a column for each team, `made_of` is that of
    `choices`. Nothing is drawn, so the same data give the same weights.
    """
    features = with_bias(questions)
    weights = np.zeros((features.shape[1], made_of.shape[1]))
    adam = Adam((weights.shape,))
    for _ in range(MASROUTER_STEPS):
        shares = _shares(features @ weights @ made_of.T)
        expected = (shares * reward).sum(axis=1, keepdims=True)
        gradient = features.T @ (shares * (reward - expected)) @ made_of / len(features)
        (step,) = adam.steps((DECAY * weights - gradient,))
        weights = weights - MASROUTER_RATE * step
    return weights


def choose_by_masrouter(questions: Array, weights: Array, made_of: Array) -> list[int]:
    """For each question the team with the largest probability."""
    return [int(team) for team in np.argmax(with_bias(questions) @ weights @ made_of.T, axis=1)]


def _shares(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    found: Array = powers / powers.sum(axis=1, keepdims=True)
    return found

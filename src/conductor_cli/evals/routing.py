"""Whom to ask, learned from how the workers did on cases: a linear head on what a small model makes of a question.

First a ridge regression predicts each worker's score. Then separable CMA-ES changes its weights for the score of the
worker that is chosen, which the regression only aims at indirectly; it is kept where it does better on cases that it
has not seen. The head and its training are those of TRINITY (arXiv 2512.04695) in small: one turn, one worker.
"""

from __future__ import annotations

import warnings
from typing import Any, Final, NamedTuple

from conductor_cli.core.errors import ConfigError

DIRECTIONS: Final = 48  # Of the hidden states that count, the widest first; fewer than a quarter of the cases
RIDGES: Final = (1.0, 10.0, 100.0, 1000.0)
FOLDS: Final = 5
GENERATIONS: Final = 150
SHARPNESS: Final = 8.0  # How sharply the choice prefers the best score while CMA-ES looks for weights

Array = Any
"""A numpy array; numpy is slow to import."""


class Head(NamedTuple):
    """Mean and scale of the states (size), the directions (count × size), and the weights (workers × count + 1)."""

    mean: Array
    scale: Array
    basis: Array
    weights: Array

    def choose(self, states: Array) -> Array:
        """Return the index of the worker to ask for each of the states."""
        return (self.design(states) @ self.weights.T).argmax(axis=1)

    def design(self, states: Array) -> Array:
        """Return a constant and how far each of the states goes in each direction (states × count + 1)."""
        import numpy as np

        seen = ((states - self.mean) / self.scale) @ self.basis.T
        return np.concatenate((np.ones((len(states), 1)), seen), axis=1)


def fit_head(states: Array, scores: Array, seed: int = 0) -> Head:
    """Return the head for hidden states (cases × size) and how each worker did (cases × workers).

    Raises `ConfigError` where the library cma is missing.
    """
    import numpy as np

    # The directions depend on no score, so that they may be those of all cases.
    mean, scale = states.mean(axis=0), states.std(axis=0) + 1e-6
    _, widths, directions = np.linalg.svd((states - mean) / scale, full_matrices=False)
    count = max(1, min(DIRECTIONS, len(states) // 4, int((widths > 1e-6 * widths[0]).sum())))
    head = Head(mean, scale, directions[:count] / (widths[:count, None] / np.sqrt(len(states))), np.zeros((1, 1)))
    design = head.design(states)
    order = np.random.default_rng(seed).permutation(len(states))

    def held_out(ridge: float, *, searched: bool) -> float:
        """The mean score of the workers chosen for cases that the weights have not seen."""
        found = []
        for fold in (order[at::FOLDS] for at in range(FOLDS)):
            rest = np.setdiff1d(order, fold)
            weights = _regress(design[rest], scores[rest], ridge)
            weights = _search(weights, design[rest], scores[rest], seed) if searched else weights
            found.extend(scores[fold, (design[fold] @ weights.T).argmax(axis=1)])
        return float(np.mean(found))

    ridge = max(RIDGES, key=lambda each: held_out(each, searched=False))
    weights = _regress(design, scores, ridge)
    if held_out(ridge, searched=True) > held_out(ridge, searched=False):
        weights = _search(weights, design, scores, seed)
    return head._replace(weights=weights)


def _regress(design: Array, scores: Array, ridge: float) -> Array:
    import numpy as np

    penalty = ridge * np.diag([0.0, *[1.0] * (design.shape[1] - 1)])
    return np.linalg.solve(design.T @ design + penalty, design.T @ scores).T


def _search(start: Array, design: Array, scores: Array, seed: int) -> Array:
    """Return weights near `start` with which the chosen workers do better on the same cases."""
    import numpy as np

    with warnings.catch_warnings(action="ignore"):  # it warns of plots that nobody draws
        try:
            import cma
        except ImportError:
            raise ConfigError("cma is not installed", hint="pip install 'conductor-llm[eval]'") from None
    size = float(np.std(start)) or 0.1

    def loss(flat: Array) -> float:
        weights = np.asarray(flat).reshape(start.shape)
        logits = SHARPNESS * (design @ weights.T)
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        away = float(np.mean((weights - start) ** 2)) / size**2
        return 0.02 * away - float((shares * scores).sum(axis=1).mean())

    options = {"CMA_diagonal": True, "seed": seed + 1, "verbose": -9, "maxiter": GENERATIONS, "maxstd": size}
    with warnings.catch_warnings(action="ignore"):  # and of steps that it repairs itself
        found = cma.CMAEvolutionStrategy(start.ravel(), 0.3 * size, options).optimize(loss).result.xbest
    return np.asarray(found).reshape(start.shape)

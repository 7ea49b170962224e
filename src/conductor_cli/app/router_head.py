"""Learns whom to ask: a linear head on what a small model makes of a question.

It is that of TRINITY (arXiv 2512.04695) for one turn. A ridge regression predicts each worker's
score. Then separable CMA-ES changes the weights for the score of the worker that is chosen, which
the regression only aims at indirectly.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any, Final

from conductor_cli.core.errors import ConfigError
from conductor_cli.system.installation import extra_command

# Of the hidden states that count, the widest first; fewer than a quarter of the cases
DIRECTIONS: Final = 48
RIDGES: Final = (1.0, 10.0, 100.0, 1000.0)
FOLDS: Final = 5
GENERATIONS: Final = 150
# How sharply the choice prefers the best score while CMA-ES looks for weights
SHARPNESS: Final = 8.0

Array = Any  # A numpy array; numpy is slow to import


def fit_head(states: Array, scores: Array, seed: int = 0) -> Array:
    """Return the weights of a router (`RouterFile`): workers × 1 + size.

    `states` are cases × size, `scores` cases × workers. Raises `ConfigError` where the library cma
    is missing.
    """
    import numpy as np

    # The directions depend on no score, so that they may be those of all cases.
    mean = states.mean(axis=0)
    scale = states.std(axis=0) + 1e-6
    _, widths, directions = np.linalg.svd((states - mean) / scale, full_matrices=False)
    count = max(1, min(DIRECTIONS, len(states) // 4, int((widths > 1e-6 * widths[0]).sum())))
    widths = np.maximum(widths, 1e-9)  # all are 0 where the model reads the same in every question
    basis = directions[:count] / (widths[:count, None] / np.sqrt(len(states))) / scale
    design = np.concatenate((np.ones((len(states), 1)), (states - mean) @ basis.T), axis=1)
    order = np.random.default_rng(seed).permutation(len(states))

    def held_out(ridge: float, *, searched: bool) -> float:
        """Return the mean score of the workers chosen for cases that the weights have not seen."""
        chosen_scores = []
        for number in range(FOLDS):
            fold = order[number::FOLDS]
            rest = np.setdiff1d(order, fold)
            weights = _regress(design[rest], scores[rest], ridge)
            if searched:
                weights = _search(weights, design[rest], scores[rest], seed)
            chosen_scores.extend(scores[fold, (design[fold] @ weights.T).argmax(axis=1)])
        return float(np.mean(chosen_scores))

    ridge = max(RIDGES, key=partial(held_out, searched=False))
    weights = _regress(design, scores, ridge)
    if held_out(ridge, searched=True) > held_out(ridge, searched=False):
        weights = _search(weights, design, scores, seed)
    factors = weights[:, 1:] @ basis
    return np.concatenate((weights[:, :1] - factors @ mean[:, None], factors), axis=1)


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
            raise ConfigError("cma is not installed", hint=extra_command("eval")) from None
    size = float(np.std(start)) or 0.1

    def loss(flat: Array) -> float:
        weights = np.asarray(flat).reshape(start.shape)
        logits = SHARPNESS * (design @ weights.T)
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        away = float(np.mean((weights - start) ** 2)) / size**2
        return 0.02 * away - float((shares * scores).sum(axis=1).mean())

    options = {
        "CMA_diagonal": True,
        "seed": seed + 1,
        "verbose": -9,
        "maxiter": GENERATIONS,
        "maxstd": size,
    }
    with warnings.catch_warnings(action="ignore"):  # and of steps that it repairs itself
        strategy = cma.CMAEvolutionStrategy(start.ravel(), 0.3 * size, options)
        best = strategy.optimize(loss).result.xbest
    return np.asarray(best).reshape(start.shape)

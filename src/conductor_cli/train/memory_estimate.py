"""How much memory a training takes, reckoned from the shape of its model. Pure, and about right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from conductor_cli.train.recipe import COLOCATE, OFF, Recipe

TRAINED: Final = 16
"""Bytes for a weight that is trained: itself, its gradient and two moments of Adam, each in 32 bits."""
TILE: Final = (4096, 32_768)
"""Tokens and words whose scores TRL has at once: it takes them in tiles, and never all of a plan's."""
COPIES: Final = 3
"""Of a tile, in 32 bits: the scores, what is made of them, and their gradient."""
INNER: Final = 28
"""Numbers that one layer leaves of each token on the way to its gradient, as a multiple of the model's width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What a model's memory is reckoned from.

    `adapter` counts the weights of an adapter over it, 0 where there is none; `remembered` the numbers that one token
    leaves in one layer's keys and values; `context` the tokens that it can read.
    """

    weights: int
    adapter: int
    layers: int
    width: int
    remembered: int
    vocabulary: int
    context: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """Where a training runs: `total` bytes for each of `processes`, on a GPU or not; `shares`: they share weights."""

    total: int
    processes: int = 1
    gpu: bool = False
    shares: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """Bytes for one process: what is trained or stands still, what a pass takes, and what samples the plans."""

    weights: int
    passing: int
    sampling: int

    @property
    def total(self) -> int:
        return self.weights + max(self.passing, self.sampling)


def estimate_memory(shape: ModelShape, recipe: Recipe, prompt: int, place: Hardware) -> MemoryEstimate:
    """What each process needs, with prompts of at most so many tokens.

    vLLM on the same GPU keeps its share all the time; without it the plans of a step are written beside no pass.
    """
    split = place.processes if place.shares else 1
    still = (2 if place.gpu else 4) * shape.weights
    weights = (still + TRAINED * shape.adapter if shape.adapter else TRAINED * shape.weights) // split
    number = 2 if place.gpu else 4
    whole = prompt + recipe.longest
    tile = min(recipe.rows * recipe.longest, TILE[0]) * min(shape.vocabulary, TILE[1])
    # On a GPU what a layer began with is kept, and its inside made again, one layer at a time.
    inside = shape.layers + INNER if place.gpu else shape.layers * INNER
    passing = tile * 4 * COPIES + recipe.rows * whole * shape.width * inside * number
    sampling = recipe.samples // place.processes * whole * shape.remembered * shape.layers * number
    if recipe.vllm != OFF:
        sampling = 0
    beside = int(recipe.vllm_memory * place.total) if recipe.vllm == COLOCATE else 0
    return MemoryEstimate(weights=weights + beside, passing=passing, sampling=sampling)


def missing_vllm_memory(shape: ModelShape, recipe: Recipe, prompt: int, place: Hardware) -> int:
    """Bytes that the share of vLLM on the same GPU is too small by, for the model in 16 bits and one plan."""
    if recipe.vllm != COLOCATE or not place.gpu:
        return 0
    least = 2 * (shape.weights + (prompt + recipe.longest) * shape.remembered * shape.layers)
    return max(0, least - int(recipe.vllm_memory * place.total))

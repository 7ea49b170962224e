"""An estimate of the memory that a training needs, from the shape of its model. Pure, and only roughly right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from conductor_cli.train.recipe import COLOCATE, OFF, Recipe

TRAINED_BYTES: Final = 16
"""Bytes for a weight that is trained: the weight, its gradient and Adam's two moments, each in 32 bits."""

TILE: Final = (4096, 32_768)
"""Tokens and vocabulary entries whose logits TRL computes at once. It never holds those of a whole plan."""

TILE_COPIES: Final = 3
"""Copies of a tile in 32 bits: the logits, the log-probabilities and their gradient."""

LAYER_ACTIVATIONS: Final = 28
"""Numbers that one layer keeps per token for the backward pass, as a multiple of the model's width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The sizes of a model that decide its memory.

    `adapter_weights` is 0 if there is no adapter. `cached` is how many numbers one token leaves in one layer's key and
    value cache. `context` is in tokens.
    """

    weights: int
    adapter_weights: int
    layers: int
    width: int
    cached: int
    vocabulary: int
    context: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What a training runs on: bytes of memory for each process. `sharded`: the processes share the weights."""

    memory: int
    processes: int = 1
    gpu: bool = False
    sharded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """Bytes for one process. The activations of a training pass and the cache of sampling do not exist together."""

    weights: int
    activations: int
    sampling: int

    @property
    def total(self) -> int:
        return self.weights + max(self.activations, self.sampling)


def estimate_memory(shape: ModelShape, recipe: Recipe, prompt: int, hardware: Hardware) -> MemoryEstimate:
    """The memory for each process, with prompts of at most `prompt` tokens."""
    number = 2 if hardware.gpu else 4  # bytes; the frozen weights and activations are in 16 bits on a GPU
    if shape.adapter_weights:
        weights = number * shape.weights + TRAINED_BYTES * shape.adapter_weights
    else:
        weights = TRAINED_BYTES * shape.weights
    tokens = prompt + recipe.max_plan_tokens
    tile = min(recipe.batch_size * recipe.max_plan_tokens, TILE[0]) * min(shape.vocabulary, TILE[1])
    # With activation checkpointing, which a GPU training uses, a layer keeps its input only. Its other activations are
    # computed again during the backward pass, one layer at a time.
    per_token = shape.layers + LAYER_ACTIVATIONS if hardware.gpu else shape.layers * LAYER_ACTIVATIONS
    activations = tile * 4 * TILE_COPIES + recipe.batch_size * tokens * shape.width * per_token * number
    sampling = recipe.samples // hardware.processes * tokens * shape.cached * shape.layers * number
    # vLLM on the same GPU keeps its share all the time.
    beside = int(recipe.vllm_memory * hardware.memory) if recipe.vllm == COLOCATE else 0
    return MemoryEstimate(
        weights=weights // (hardware.processes if hardware.sharded else 1) + beside, activations=activations,
        sampling=sampling if recipe.vllm == OFF else 0,
    )  # fmt: skip


def missing_vllm_memory(shape: ModelShape, recipe: Recipe, prompt: int, hardware: Hardware) -> int:
    """Bytes that vLLM's share of the GPU lacks for the model in 16 bits and one plan."""
    if recipe.vllm != COLOCATE or not hardware.gpu:
        return 0
    least = 2 * (shape.weights + (prompt + recipe.max_plan_tokens) * shape.cached * shape.layers)
    return max(0, least - int(recipe.vllm_memory * hardware.memory))

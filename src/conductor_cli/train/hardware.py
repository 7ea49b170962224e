"""What a training runs on, and whether its weights fit. Does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from conductor_cli.train.recipe import COLOCATE, Recipe

TRAINED_BYTES: Final = 16
"""Bytes for a weight that is trained: the weight, its gradient and Adam's two moments, each in 32 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What a training runs on: bytes of memory for each process. `sharded`: the processes share the weights."""

    memory: int
    processes: int = 1
    gpu: bool = False
    sharded: bool = False


def weight_bytes(weights: int, adapter_weights: int, recipe: Recipe, hardware: Hardware) -> int:
    """Bytes that each process needs for the weights, the optimizer and vLLM's share of the GPU.

    What the layers keep for the backward pass comes on top. It depends on kernels and batches too much to be estimated.
    """
    if adapter_weights:  # the base model is frozen: in 16 bits on a GPU, in 32 on a CPU
        needed = (2 if hardware.gpu else 4) * weights + TRAINED_BYTES * adapter_weights
    else:
        needed = TRAINED_BYTES * weights
    beside = int(recipe.vllm_memory * hardware.memory) if hardware.gpu and recipe.vllm == COLOCATE else 0
    return needed // (hardware.processes if hardware.sharded else 1) + beside

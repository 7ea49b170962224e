"""What a GGUF says of its tensors: how much room each takes, and which llama.cpp would die of. Pure.

The numbers of the types and their sizes are ggml's: github.com/ggml-org/llama.cpp, ggml/include/ggml.h and
ggml/src/ggml-common.h. What is stored in which type: conversion/base.py there, by which such files are made.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final, NamedTuple

F32: Final = 0
"""The number of the type of plain numbers of 32 bits."""

UNFIT: Final = frozenset({9, 15, 24, 25, 26, 27, 28})
"""The types that ggml multiplies no matrix of: Q8_1 and Q8_K, in which it only computes, whole numbers, and F64."""

BLOCKS: Final[Mapping[int, tuple[int, int]]] = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36), 10: (256, 84),
    11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292), 16: (256, 66), 17: (256, 74),
    18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2),
    26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17),
    40: (64, 36), 41: (128, 18), 42: (64, 18),
}  # fmt: skip
"""How many numbers stand together and in how many bytes, by the number of their type."""

_TABLES: Final = {"ffn_gate_tid2eid.weight": 26, "d2t": 27}
"""What is no weight but a table of whole numbers, by its name within its layer, and the type that llama.cpp wants."""


class Tensor(NamedTuple):
    """What a GGUF says of a tensor: its shape, the fastest dimension first, the number of its type, where it begins.

    `start` is in bytes from the first weight.
    """

    shape: tuple[int, ...]
    kind: int
    start: int = 0

    @property
    def end(self) -> int:
        """The byte behind it; where it begins if the type is not known."""
        numbers, size = BLOCKS.get(self.kind, (1, 0))
        return self.start + prod(self.shape) // numbers * size


def is_matrix(name: str, tensor: Tensor) -> bool:
    """Whether it is multiplied with; norms and biases are not, whatever their shape."""
    return len(tensor.shape) > 1 and not name.endswith(("_norm.weight", ".bias"))


def is_usable(name: str, tensor: Tensor) -> bool:
    """Whether llama.cpp can compute with it: on another type it aborts the process.

    All that is added, or that a norm is multiplied by, has plain numbers.
    """
    table = _TABLES.get(name.split(".", 2)[-1])
    if table is not None:
        return tensor.kind == table
    return tensor.kind not in UNFIT if is_matrix(name, tensor) else tensor.kind == F32

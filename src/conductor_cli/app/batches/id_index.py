"""Which ids stand in a file of a batch, and where, in 8 or 16 bytes for each.

Ids are told apart by their hashes. Two of a million are taken for one with a probability of 3 in
10^8. An index is only valid in this process, since Python hashes texts differently in the next one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from itertools import pairwise
from pathlib import Path

from conductor_cli.app.batches.answer_lines import id_of
from conductor_cli.app.batches.input_forms import read_json


class HashSet:
    """A set of texts that takes 8 bytes for each."""

    def __init__(self, hashes: array[int]) -> None:
        self._hashes = array("q", sorted(hashes))

    def __contains__(self, text: str) -> bool:
        return _find_hash(self._hashes, text) is not None

    def __bool__(self) -> bool:
        return bool(self._hashes)

    @property
    def has_repeat(self) -> bool:
        """Whether a text was given twice."""
        return any(first == second for first, second in pairwise(self._hashes))


class LineOffsets:
    """Where the line of each id begins in a file of a batch. It takes 16 bytes for each."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises `OSError`."""
        hashes = array("q")
        offsets = array("q")
        offset = 0
        with path.open("rb") as file:
            for raw in file:
                hashes.append(hash(id_of(read_json(raw))))
                offsets.append(offset)
                offset += len(raw)
        order = sorted(range(len(hashes)), key=hashes.__getitem__)
        self._hashes = array("q", (hashes[index] for index in order))
        self.offsets = array("q", (offsets[index] for index in order))

    def index_of(self, name: str) -> int | None:
        """Return the index in `offsets` of an id; None where the file has no such id."""
        return _find_hash(self._hashes, name)

    def offset_of(self, name: str) -> int | None:
        """Return at which byte the line of an id begins; None where the file has no such id."""
        index = self.index_of(name)
        if index is None:
            return None
        return self.offsets[index]


def _find_hash(hashes: array[int], text: str) -> int | None:
    """Return the index of the hash of a text among sorted ones."""
    value = hash(text)
    index = bisect_left(hashes, value)
    is_there = index < len(hashes) and hashes[index] == value
    if is_there:
        return index
    return None

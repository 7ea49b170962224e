"""What is said of many mappings: values by their names, and mappings without their empty values."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Protocol, TypeVar


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)
K = TypeVar("K")
V = TypeVar("V")


def by_name(values: Iterable[N]) -> dict[str, N]:
    """Return values by their names, in their order; of several with one name the last."""
    return {value.name: value for value in values}


def names_of(values: Iterable[_Named]) -> list[str]:
    """Return the names of values, in their order."""
    return [value.name for value in values]


def without_none(values: Mapping[K, V | None]) -> dict[K, V]:
    """Return a mapping without the keys whose value is None."""
    return {key: value for key, value in values.items() if value is not None}


def without_empty(values: Mapping[K, V]) -> dict[K, V]:
    """Return a mapping without the keys whose value is empty, 0, False or None."""
    return {key: value for key, value in values.items() if value}


def only_keys(values: Mapping[K, V], keys: Iterable[K]) -> dict[K, V]:
    """Return the items of a mapping that have one of these keys, in the order of the keys."""
    return {key: values[key] for key in keys if key in values}


def without_keys(values: Mapping[K, V], keys: Container[K]) -> dict[K, V]:
    """Return the items of a mapping that have none of these keys."""
    return {key: value for key, value in values.items() if key not in keys}

"""Errors for the libraries that only training needs."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from conductor_cli.core.errors import ConfigError


@contextmanager
def require(library: str) -> Iterator[None]:
    """Turn a failed import inside the block into an error that says what to install."""
    try:
        yield
    except ImportError as error:
        extra = "trl[vllm]" if library == "vllm" else "conductor-llm[train]"
        raise ConfigError(
            f"training needs {library}, which cannot be imported: {error}", hint=f"pip install '{extra}'"
        ) from error


def check_installed(libraries: Iterable[str]) -> None:
    """Raise `ConfigError` for the first library that cannot be imported."""
    for library in libraries:
        with require(library):
            importlib.import_module(library)

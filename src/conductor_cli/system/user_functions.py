"""Functions of the user's own, named by file or module: a reward of a training, a scorer.

Such a function is code that runs in this process, with all that the user may do. So only the
command line may name one: never a file of cases, a worker, or anything else that comes from others.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from conductor_cli.core.errors import ConfigError, UsageError

FORM: Final = "path/to/file.py:FUNCTION or package.module:FUNCTION"
"""How a function is named on the command line."""
_CORRECT_IT: Final = "correct the function, then run the same command again"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserFunction:
    """A function that was imported by its name."""

    name: str  # As the user wrote it
    digest: str  # SHA-256 of the file that defines it; empty where it has none
    function: Callable[..., Any]

    def call_for_number(
        self, *arguments: object, least: float = -math.inf, most: float = math.inf
    ) -> float:
        """Return the finite number that the function returns, from `least` to `most`.

        Raises `ConfigError` if the function raises, or returns anything else.
        """
        try:
            number = self.function(*arguments)
        except Exception as error:
            raise ConfigError(
                f"{self.name} failed: {type(error).__name__}: {error}", hint=_CORRECT_IT
            ) from error
        expected = "a finite number"
        if math.isfinite(least):
            expected = f"a number from {least:g} to {most:g}"
        is_number = isinstance(number, Real) and math.isfinite(number)
        if not is_number or not least <= number <= most:
            raise ConfigError(
                f"{self.name} returned {number!r:.60}, not {expected}", hint=_CORRECT_IT
            )
        return float(number)


def load_user_function(name: str) -> UserFunction:
    """Import the function that `name` names, in the form `FORM`.

    Raises `UsageError` if the name has another form, `ConfigError` if there is no such function or
    its file cannot be imported.
    """
    source, _, attribute = name.rpartition(":")
    if not source or not attribute.isidentifier():
        raise UsageError(f"{name!r:.80} names no function", hint=f"write {FORM}")
    try:
        module = _import_source(source)
    except (Exception, SystemExit) as error:
        hint = "correct the file, or install the package beside conductor"
        raise ConfigError(
            f"{source} cannot be imported: {type(error).__name__}: {error}", hint=hint
        ) from error
    function = getattr(module, attribute, None)
    if not callable(function):
        raise ConfigError(f"{source} has no function {attribute}", hint=f"write {FORM}")
    return UserFunction(name=name, digest=_digest(module), function=function)


def _import_source(source: str) -> ModuleType:
    if not source.endswith(".py"):
        return import_module(source)
    path = Path(source).expanduser().resolve(strict=True)
    # By its whole path, so that it stands in the way of no other module.
    module_name = f"conductor_user_{hashlib.sha256(bytes(path)).hexdigest()[:16]}"
    spec = spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses of the file look it up there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise
    return module


def _digest(module: ModuleType) -> str:
    path = getattr(module, "__file__", None)
    if path is None:
        return ""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()

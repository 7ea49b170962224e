"""The registry: models that are known by name, with their repository, files, sizes, SHA-256 and licence.

It is `registry.toml` beside this file, or the file that CONDUCTOR_LLM_REGISTRY names. Everything in such a file is
checked, since it decides which bytes are written where.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.errors import ConductorUnusable, ConfigError
from conductor_cli.core.profile import PROFILES

VARIABLE: Final = "CONDUCTOR_LLM_REGISTRY"
"""Names a file that replaces the registry that is shipped."""

SHIPPED: Final = Path(__file__).with_name("registry.toml")

TOKENS: Final = 8192
"""Tokens of context that an estimate counts."""

OVERHEAD: Final = 600_000_000
"""Bytes that a loaded model needs beside its weights and its context: the interpreter, buffers, the vocabulary."""

_PATTERNS: Final = {
    "name": re.compile(r"[a-z0-9][a-z0-9._-]{0,63}"),
    "repo": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}"),
    "revision": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"),
}
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_FILE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")

_SHAPE_KEYS: Final = {"layers": int, "heads": int, "width": int}
_FILE_KEYS: Final = {"file": str, "size": int, "sha256": str}
_MODEL_KEYS: Final = {
    "name": str, "shape": str, "base": str, "repo": str, "revision": str, "licence": str, "about": str, "profile": str,
    "parts": list,
}  # fmt: skip
_TYPE_NAMES: Final = {str: "a string", int: "a whole number of at least 0", dict: "a table", list: "a list"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryFile:
    """One file of a model, by its path in the repository. `size` 0 and an empty `sha256` are unknown."""

    file: str
    size: int = 0
    sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryModel:
    """A model of the registry.

    `memory` is in bytes, 0 where the size is unknown. A LoRA adapter has a `base`, the name of the model that it was
    trained for; its memory includes that one's.
    """

    name: str
    repo: str
    revision: str
    parts: tuple[RegistryFile, ...]
    licence: str
    about: str
    memory: int
    profile: str = "prompted"
    base: str = ""

    @property
    def size(self) -> int:
        """Bytes of all parts; 0 where that of one is unknown."""
        return sum(part.size for part in self.parts) if all(part.size for part in self.parts) else 0


def load_registry(environ: Mapping[str, str]) -> tuple[RegistryModel, ...]:
    """All models, the default first. Raises `ConfigError` for an invalid file."""
    reader = _RegistryReader(environ)
    values = reader.read()
    shapes = {
        name: reader.check(f"shape {name!r}", shape, _SHAPE_KEYS, tuple(_SHAPE_KEYS))
        for name, shape in values.get("shapes", {}).items()
    }
    models: dict[str, RegistryModel] = {}
    for number, table in enumerate(values["models"], start=1):
        model = reader.read_model(f"model {number}", table, shapes, models)
        models[model.name] = model
    if not models:
        raise reader.error("the file", "it contains no model")
    return tuple(models.values())


def registry_date(environ: Mapping[str, str]) -> str:
    """The day on which the registry was written, as it says itself. Raises `ConfigError`."""
    return str(_RegistryReader(environ).read()["as_of"])


def find_model(name: str, environ: Mapping[str, str]) -> RegistryModel:
    """The model of this name. Raises `ConductorUnusable` with similar names, or for a path where a name is needed."""
    models = {model.name: model for model in load_registry(environ)}
    found = models.get(name.lower())
    if found is not None:
        return found
    # A path was meant, so suggesting similar names would be misleading.
    if "/" in name or os.sep in name or name.lower().endswith(".gguf"):
        if Path(name).expanduser().exists():
            hint = f"conductor model import {name}"
            raise ConductorUnusable(f"{name} is a file or directory, and a model's name is needed", hint=hint)
        hint = "check the path; models that have a name: conductor model list"
        raise ConductorUnusable(f"file not found: {name}", hint=hint)
    near = [known for known in models if name and known.startswith(name.lower())]
    near = near or get_close_matches(name.lower(), models, n=3, cutoff=0.5)
    meant = f"; did you mean {' or '.join(near[:3])}?" if near else ""
    raise ConductorUnusable(f"unknown model {name!r}", hint=f"conductor model list shows all{meant}")


def listed_model(name: str, environ: Mapping[str, str]) -> RegistryModel | None:
    """The model of exactly this name, None also where the registry cannot be read."""
    with suppress(ConfigError):
        return next((model for model in load_registry(environ) if model.name == name), None)
    return None


def memory_needed(size: int, per_token: int, tokens: int = TOKENS) -> int:
    """Bytes for weights of `size` bytes and a context whose keys and values need `per_token` bytes a token."""
    return size + per_token * tokens + OVERHEAD


class _RegistryReader:
    """Reads one registry file. Each error names the file and the place in it."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        chosen = environ.get(VARIABLE, "")
        self._path = Path(chosen).expanduser() if chosen else SHIPPED
        self._hint = f"correct the file that {VARIABLE} names" if chosen else "install conductor-llm again"

    def read(self) -> dict[str, Any]:
        """The file's top level, checked."""
        try:
            # Some editors on Windows begin a file with a byte order mark, which TOML does not allow.
            values = tomllib.loads(self._path.read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise ConfigError(f"cannot read {self._path}: {error.strerror}", hint=self._hint) from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{self._path} is not valid TOML: {error}", hint=self._hint) from None
        self.check("the file", values, {"as_of": str, "shapes": dict, "models": list}, ("as_of", "models"))
        if not _DATE.fullmatch(values["as_of"]):
            raise self.error("the file", "as_of is not a date like 2026-11-20")
        return values

    def read_model(
        self, place: str, table: object, shapes: Mapping[str, Any], earlier: Mapping[str, RegistryModel]
    ) -> RegistryModel:
        values = self.check(place, table, _MODEL_KEYS, ("name", "repo", "revision", "licence", "about", "parts"))
        place = f"model {values['name']!r}"
        for key, pattern in _PATTERNS.items():
            if not pattern.fullmatch(values[key]):
                raise self.error(place, f"{key} is {values[key]!r:.80}, which is not a valid {key}")
        if values["name"] in earlier:
            raise self.error(place, "another model has the same name")
        if values.get("profile", "prompted") not in PROFILES:
            raise self.error(place, f"profile is {values['profile']!r}; expected one of {', '.join(PROFILES)}")
        shape, base = self._shape_or_base(place, values, shapes, earlier)
        parts = tuple(self._read_parts(place, values["parts"], adapter=base is not None))
        kept = ("name", "repo", "revision", "licence", "about", "profile")
        given = {key: values[key] for key in kept if key in values}
        model = RegistryModel(**given, parts=parts, memory=0, base=base.name if base else "")
        # Without a size no memory can be computed; it is shown as unknown.
        if model.size == 0 or (base is not None and base.memory == 0):
            return model
        if base is not None:
            return replace(model, memory=base.memory + model.size)
        # A key and a value of 16 bits for each layer, head, and element of a head.
        per_token = 2 * 2 * shape["layers"] * shape["heads"] * shape["width"]
        return replace(model, memory=memory_needed(model.size, per_token))

    def _shape_or_base(
        self, place: str, values: Mapping[str, Any], shapes: Mapping[str, Any], earlier: Mapping[str, RegistryModel]
    ) -> tuple[dict[str, Any], RegistryModel | None]:
        if ("shape" in values) == ("base" in values):
            raise self.error(place, "it needs either a shape or, as an adapter, a base")
        if "shape" in values:
            if values["shape"] not in shapes:
                raise self.error(place, f"unknown shape {values['shape']!r}")
            return shapes[values["shape"]], None
        base = earlier.get(values["base"])
        if base is None or base.base:
            raise self.error(place, f"its base {values['base']!r} is not a model above it")
        return {}, base

    def _read_parts(self, place: str, parts: list[Any], *, adapter: bool) -> Iterator[RegistryFile]:
        if not parts:
            raise self.error(place, "it has no parts")
        for number, table in enumerate(parts, start=1):
            part = RegistryFile(**self.check(f"{place}, part {number}", table, _FILE_KEYS, ("file",)))
            if not _FILE.fullmatch(part.file):
                raise self.error(place, f"{part.file!r} is not a relative path of a file")
            if part.sha256 and not _HASH.fullmatch(part.sha256):
                raise self.error(place, f"the sha256 of {part.file} is not 64 hex digits in lower case")
            end = f"-{number:05}-of-{len(parts):05}.gguf" if len(parts) > 1 else ".gguf"
            if not adapter and not part.file.endswith(end):  # llama.cpp finds the others by the name of the first
                raise self.error(place, f"{part.file} does not end in {end}")
            yield part

    def check(self, place: str, values: object, known: Mapping[str, type], needed: tuple[str, ...]) -> dict[str, Any]:
        """`values` as a table with known keys of the right types; strings are one line, numbers are not negative."""
        if not isinstance(values, dict):
            raise self.error(place, "it is not a table")
        for key, value in values.items():
            if key not in known:
                raise self.error(place, f"unknown key {key!r:.80}; known: {', '.join(known)}")
            # `type` and not `isinstance`: in Python, true and false are integers too.
            if type(value) is not known[key] or (isinstance(value, int) and value < 0):
                raise self.error(place, f"{key} is {value!r:.80}, which is not {_TYPE_NAMES[known[key]]}")
            if isinstance(value, str) and not (value.strip() and value.isprintable()):
                raise self.error(place, f"{key} is empty, or more than one line")
        missing = [key for key in needed if key not in values]
        if missing:
            raise self.error(place, f"{missing[0]} is missing")
        return values

    def error(self, place: str, problem: str) -> ConfigError:
        return ConfigError(f"{self._path}: {place}: {problem}", hint=self._hint)

"""The conductor models that are known by name: where each is, how large, under which licence, and its SHA-256.

They stand in `registry.toml` beside this file, or in the file that CONDUCTOR_LLM_REGISTRY names. Nothing in such a file
is believed: it says which bytes are written where.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.errors import ConductorUnusable, ConfigError
from conductor_cli.core.profile import PROFILES

VARIABLE: Final = "CONDUCTOR_LLM_REGISTRY"
"""Names a file that replaces the table that is shipped."""

SHIPPED: Final = Path(__file__).with_name("registry.toml")

TOKENS: Final = 8192
"""Tokens of context that `memory` counts."""

BESIDE: Final = 600_000_000
"""Bytes that a loaded model takes beside its weights and its context: the interpreter, buffers, the vocabulary."""

SMALLER: Final = 0.75
"""A model is worth naming as the smaller one below this share of a size: the time of a token goes with the bytes."""

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_REPO: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_REVISION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_FILE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")

_SHAPE: Final = {"family": str, "parameters": int, "layers": int, "heads": int, "width": int}
_PART: Final = {"file": str, "size": int, "sha256": str}
_MODEL: Final = {
    "name": str, "shape": str, "base": str, "repo": str, "revision": str, "licence": str, "about": str, "profile": str,
    "about_size": int, "parts": list,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryFile:
    """One file of a model, by its path in the repository. `size` in bytes, or 0; `sha256` in hex, or empty: unknown."""

    file: str
    size: int = 0
    sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryModel:
    """A model on the hub.

    `memory` is how many bytes of RAM it needs: its files, the keys and values of `TOKENS` tokens, and `BESIDE`; 0 where
    the size is not known. A LoRA adapter has a `base`, the name of the entry it is laid over, and needs that one's
    memory beside its own. `about_size` stands in for the size of a model whose parts are not all known.
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
    family: str = ""
    about_size: int = 0

    @property
    def size(self) -> int:
        """Bytes of all parts, for statements to the user: `about_size` where one is not known, 0 where none is."""
        return sum(part.size for part in self.parts) if all(part.size for part in self.parts) else self.about_size


def load_registry(environ: Mapping[str, str]) -> tuple[RegistryModel, ...]:
    """All entries, the default first. Raises `ConfigError` for a table that cannot be used."""
    return _Table(_path(environ)).entries()


def as_of(environ: Mapping[str, str]) -> str:
    """The day on which the table was written, as it says itself. Raises `ConfigError`."""
    return _Table(_path(environ)).as_of()


def find_model(name: str, environ: Mapping[str, str]) -> RegistryModel:
    """The entry of this name. Raises `ConductorUnusable` with names that are like it, or for a path without a file."""
    entries = {entry.name: entry for entry in load_registry(environ)}
    found = entries.get(name.lower())
    if found is not None:
        return found
    if "/" in name or os.sep in name or name.lower().endswith(".gguf"):
        raise _no_name(name)
    near = [known for known in entries if name and known.startswith(name.lower())]
    near = near or get_close_matches(name.lower(), entries, n=3, cutoff=0.5)
    meant = f"; did you mean {' or '.join(near[:3])}?" if near else ""
    raise ConductorUnusable(
        f"there is no model {name!r} in the registry", hint=f"conductor model list shows all{meant}"
    )


def _no_name(path: str) -> ConductorUnusable:
    """A path stands where a name is wanted."""
    if Path(path).expanduser().exists():
        return ConductorUnusable(
            f"{path} is a file or directory, and a name is wanted", hint=f"conductor model import {path}"
        )
    return ConductorUnusable(
        f"there is no file {path}", hint="check the path; models that have a name: conductor model list"
    )


def smaller_model(entry: RegistryModel, environ: Mapping[str, str]) -> RegistryModel | None:
    """The largest model of the same family that is clearly smaller. Its licence may be another one."""
    fits = [
        other
        for other in load_registry(environ)
        if entry.family and other.family == entry.family and not other.base and 0 < other.size <= SMALLER * entry.size
    ]
    return max(fits, key=lambda other: other.size >> 26, default=None)  # the first of those about as large


def memory_needed(size: int, per_token: int, tokens: int = TOKENS) -> int:
    """Bytes of RAM for weights of `size` bytes and a context whose keys and values take `per_token` bytes a token."""
    return size + per_token * tokens + BESIDE


def _path(environ: Mapping[str, str]) -> Path:
    chosen = environ.get(VARIABLE, "")
    return Path(chosen).expanduser() if chosen else SHIPPED


class _Table:
    """One file, while it is read. Each complaint says the file and what in it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hint = f"mend the file that {VARIABLE} names" if path != SHIPPED else "install conductor-llm again"

    def as_of(self) -> str:
        return str(self._values()["as_of"])

    def _values(self) -> dict[str, Any]:
        values = self._read()
        self._check("the file", values, {"as_of": str, "shapes": dict, "models": list}, needed=("as_of", "models"))
        if not _DATE.fullmatch(values["as_of"]):
            raise self._wrong("the file", "as_of is no date like 2026-11-20")
        return values

    def entries(self) -> tuple[RegistryModel, ...]:
        values = self._values()
        shapes = {name: self._shape(name, shape) for name, shape in values.get("shapes", {}).items()}
        found: dict[str, RegistryModel] = {}
        for place, model in enumerate(values["models"], start=1):
            entry = self._entry(f"model {place}", model, shapes, found)
            found[entry.name] = entry
        if not found:
            raise self._wrong("the file", "there is no model in it")
        return tuple(found.values())

    def _read(self) -> dict[str, Any]:
        try:
            return tomllib.loads(self._path.read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise ConfigError(f"{self._path} cannot be read: {error.strerror}", hint=self._hint) from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{self._path} is no valid TOML: {error}", hint=self._hint) from None

    def _shape(self, name: str, shape: object) -> dict[str, Any]:
        return self._check(f"shape {name!r}", shape, _SHAPE, needed=tuple(_SHAPE))

    def _entry(
        self, what: str, model: object, shapes: Mapping[str, Any], before: Mapping[str, RegistryModel]
    ) -> RegistryModel:
        needed = ("name", "repo", "revision", "licence", "about", "parts")
        values = self._check(what, model, _MODEL, needed=needed)
        what = f"model {values['name']!r}"
        self._match(what, values, name=_NAME, repo=_REPO, revision=_REVISION)
        if values["name"] in before:
            raise self._wrong(what, "there are two of this name")
        if values.get("profile", "prompted") not in PROFILES:
            raise self._wrong(what, f"profile is {values['profile']!r}; expected one of {', '.join(PROFILES)}")
        shape, base = self._stands_on(what, values, shapes, before)
        parts = tuple(self._parts(what, values["parts"], adapter=base is not None))
        texts = {key: values[key] for key in ("name", "repo", "revision", "licence", "about")}
        about = {"profile": values.get("profile", "prompted"), "about_size": values.get("about_size", 0)}
        entry = RegistryModel(
            **texts, **about, parts=parts, memory=0, base=base.name if base else "",
            family=shape.get("family", ""),
        )  # fmt: skip
        return _weighed(entry, shape, base)

    def _stands_on(
        self, what: str, values: Mapping[str, Any], shapes: Mapping[str, Any], before: Mapping[str, RegistryModel]
    ) -> tuple[dict[str, Any], RegistryModel | None]:
        if ("shape" in values) == ("base" in values):
            raise self._wrong(what, "it has either a shape or, as an adapter, a base")
        if "shape" in values:
            if values["shape"] not in shapes:
                raise self._wrong(what, f"there is no shape {values['shape']!r}")
            return shapes[values["shape"]], None
        base = before.get(values["base"])
        if base is None or base.base:
            raise self._wrong(what, f"its base {values['base']!r} is no model above it")
        return {}, base

    def _parts(self, what: str, parts: list[Any], *, adapter: bool) -> Iterator[RegistryFile]:
        if not parts:
            raise self._wrong(what, "it has no parts")
        for number, item in enumerate(parts, start=1):
            values = self._check(f"{what}, part {number}", item, _PART, needed=("file",))
            part = RegistryFile(**values)
            if not _FILE.fullmatch(part.file):
                raise self._wrong(what, f"{part.file!r} is no name of a file inside a directory")
            if part.sha256 and not _HASH.fullmatch(part.sha256):
                raise self._wrong(what, f"the sha256 of {part.file} is not 64 hex digits in lower case")
            end = f"-{number:05}-of-{len(parts):05}.gguf" if len(parts) > 1 else ".gguf"
            if not adapter and not part.file.endswith(end):  # llama.cpp finds the others by the name of the first
                raise self._wrong(what, f"{part.file} does not end in {end}")
            yield part

    def _match(self, what: str, values: Mapping[str, Any], **patterns: re.Pattern[str]) -> None:
        for key, pattern in patterns.items():
            if not pattern.fullmatch(values[key]):
                raise self._wrong(what, f"{key} is {values[key]!r:.80}, which is no {key}")

    def _check(self, what: str, values: object, known: Mapping[str, type], needed: tuple[str, ...]) -> dict[str, Any]:
        """`values` as a table with known keys of the right types; texts are one line, numbers are not negative."""
        if not isinstance(values, dict):
            raise self._wrong(what, "it is no table")
        for key, value in values.items():
            if key not in known:
                raise self._wrong(what, f"unknown key {key!r:.80}; known: {', '.join(known)}")
            if type(value) is not known[key] or (isinstance(value, int) and value < 0):
                raise self._wrong(what, f"{key} is {value!r:.80}, which is not {_CALLED[known[key]]}")
            if isinstance(value, str) and not (value.strip() and value.isprintable()):
                raise self._wrong(what, f"{key} is empty, or more than one line")
        missing = [key for key in needed if key not in values]
        if missing:
            raise self._wrong(what, f"{missing[0]} is missing")
        return values

    def _wrong(self, what: str, problem: str) -> ConfigError:
        return ConfigError(f"{self._path}: {what}: {problem}", hint=self._hint)


_CALLED: Final = {str: "a text", int: "a whole number of at least 0", dict: "a table", list: "a list"}


def _weighed(entry: RegistryModel, shape: Mapping[str, Any], base: RegistryModel | None) -> RegistryModel:
    """`entry` with the memory it needs. A key and a value are of 16 bits for each layer, head and number of a head."""
    if entry.size == 0 or (base is not None and base.memory == 0):
        return entry
    if base is not None:
        return replace(entry, memory=base.memory + entry.size)
    per_token = 2 * 2 * shape["layers"] * shape["heads"] * shape["width"]
    return replace(entry, memory=memory_needed(entry.size, per_token))

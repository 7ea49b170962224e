"""The registry: models by name, with their repository, files, sizes, SHA-256 and licence.

It is `registry.toml` beside this file, or the file that CONDUCTOR_LLM_REGISTRY names. Everything in
such a file is checked, since it decides which bytes are written where.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from conductor_cli.core.bounded_parsing import parse_json, parse_toml
from conductor_cli.core.errors import ConductorUnusable, ConfigError, ModelError, nearest
from conductor_cli.core.mappings import by_name, names_of
from conductor_cli.core.profile import PROFILES
from conductor_cli.core.serialization import DecodeError, load
from conductor_cli.models.weights.model_store import Manifest, ModelFile

# Names a file that replaces the registry that is shipped
VARIABLE: Final = "CONDUCTOR_LLM_REGISTRY"
SHIPPED: Final = Path(__file__).with_name("registry.toml")

CONTEXT_TOKENS: Final = 8192  # Tokens of context that an estimate counts

OVERHEAD_BYTES: Final = 600_000_000
"""Bytes that a loaded model needs beside its weights and its context.

The interpreter, buffers and the vocabulary take them.
"""

REPO_NAME: Final = re.compile(
    r"(?!.*(--|\.\.))[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
)
"""OWNER/REPO on the hub. It becomes the name of a directory."""

FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")
"""A file's path in a repository. It becomes a path on this machine."""

MAX_MODEL_NAME: Final = 64

_PATTERNS: Final = {
    "name": re.compile(rf"[a-z0-9][a-z0-9._-]{{0,{MAX_MODEL_NAME - 1}}}"),
    "repo": REPO_NAME,
    "revision": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"),
}
_HASH: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryModel:
    """A model that can be pulled: of the registry, or found on the hub (`listed` is false).

    Each part has a `file`, and a SHA-256 where that is known without the hub. `context_bytes` is
    what one token of context takes, and `memory` what the whole model does, 0 where its size is
    unknown. A LoRA adapter has a `base`, the name of the model that it was trained for; its memory
    includes that one's. One without a `repo` is packaged: its only part lies beside the registry.
    `memory_source` says from what the memory of a model of the hub is known.
    Raises `ConfigError` for names that could lead out of a directory.
    """

    name: str
    parts: tuple[ModelFile, ...]
    licence: str
    about: str
    repo: str = ""
    revision: str = ""
    context_bytes: int = 0
    memory: int = 0
    profile: str = "prompted"
    base: str = ""
    listed: bool = True
    memory_source: Literal["registry", "header", "size"] = "registry"

    def __post_init__(self) -> None:
        for key, pattern in _PATTERNS.items():
            is_absent = self.is_packaged and key != "name" and not getattr(self, key)
            if not is_absent and not pattern.fullmatch(getattr(self, key)):
                raise ConfigError(f"{getattr(self, key)!r:.80} is not a valid {key}")
        if not (self.licence.strip() and f"{self.licence}{self.about}".isprintable()):
            raise ConfigError(f"{self.name}: licence or about is empty, or more than one line")
        if self.profile not in PROFILES:
            raise ConfigError(
                f"{self.name}: profile is {self.profile!r}; expected one of {', '.join(PROFILES)}"
            )
        if not self.parts:
            raise ConfigError(f"{self.name} has no parts")
        count = len(self.parts)
        for number, part in enumerate(self.parts, start=1):
            end = ".gguf"
            if count > 1:
                end = f"-{number:05}-of-{count:05}.gguf"
            if not FILE_NAME.fullmatch(part.file):
                raise ConfigError(f"{part.file!r:.80} is not a relative path of a file")
            if part.size < 0:
                raise ConfigError(f"the size of {part.file} is negative")
            if part.sha256 and not _HASH.fullmatch(part.sha256):
                raise ConfigError(f"the sha256 of {part.file} is not 64 hex digits in lower case")
            # llama.cpp finds the others by the name of the first
            if not self.base and not part.file.endswith(end):
                raise ConfigError(f"{self.name}: {part.file} does not end in {end}")

    @property
    def is_packaged(self) -> bool:
        """Whether it is an adapter that lies beside the registry, and is not downloaded."""
        return bool(self.base) and not self.repo and len(self.parts) == 1

    @property
    def reference(self) -> str:
        """What `conductor model pull` finds exactly this model by."""
        if self.listed:
            return self.name
        return f"{self.repo}:{self.parts[0].file}"

    @property
    def size(self) -> int:
        """Bytes of all parts; 0 where that of one is unknown."""
        if not all(part.size for part in self.parts):
            return 0
        return sum(part.size for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Registry:
    """The models of a registry, and the names of packaged adapters whose files are not there."""

    models: tuple[RegistryModel, ...]
    absent: tuple[str, ...] = ()


def load_registry(environ: Mapping[str, str]) -> tuple[RegistryModel, ...]:
    """Return all models, the default first. Raises `ConfigError` for an invalid file.

    A packaged adapter whose file is not part of this build is not among them.
    """
    return _load(environ).models


def _load(environ: Mapping[str, str]) -> _Registry:
    chosen = environ.get(VARIABLE, "")
    if chosen:
        return _read_registry(Path(chosen).expanduser(), f"correct the file that {VARIABLE} names")
    return _read_shipped(SHIPPED, "install conductor-llm again")


def _read_registry(path: Path, hint: str) -> _Registry:
    try:
        tables = parse_toml(path.read_bytes()).get("models")
        if not isinstance(tables, list) or not tables:
            raise DecodeError("it contains no model")
        models: dict[str, RegistryModel] = {}
        absent: list[str] = []
        for index, table in enumerate(tables):
            model = load(RegistryModel, table, f"models[{index}]")
            _check_keys(table)
            base = models.get(model.base)
            is_adapter_of_nothing = model.base and (base is None or base.base)
            if model.name in models or is_adapter_of_nothing:
                raise DecodeError(
                    f"{model.name}: another model has the same name, or its base is not a model "
                    "above it"
                )
            if model.is_packaged:
                file = path.parent / model.parts[0].file
                if not file.is_file():
                    absent.append(model.name)
                    continue
                model = _with_record(model, file)
            models[model.name] = replace(model, memory=_memory_of(model, base))
        return _Registry(models=tuple(models.values()), absent=tuple(absent))
    except OSError as error:
        missing = error.filename or path
        raise ConfigError(f"cannot read {missing}: {error.strerror}", hint=hint) from None
    except ValueError as error:
        raise ConfigError(f"{path} is not a valid registry: {error}", hint=hint) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterRecord:
    """What an examination has written beside a packaged adapter, as FILE.json for FILE.gguf.

    `sha256` is that of the adapter's file, `base_sha256` that of the model which it was examined
    on, `examined` the date. `figures` are counts by what they count, such as "20 of 20".
    """

    sha256: str
    base_sha256: str
    examined: str
    figures: Mapping[str, str]

    def describe(self) -> str:
        """Return the figures as one line; empty where there are none."""
        counts = [f"{name} {count}" for name, count in self.figures.items()]
        if not counts:
            return ""
        return f"measured {self.examined}: {', '.join(counts)}"


def read_record(adapter: Path) -> AdapterRecord:
    """Return the record of a packaged adapter. Raises `OSError`, and `DecodeError`."""
    path = adapter.with_suffix(".json")
    record = load(AdapterRecord, parse_json(path.read_text(encoding="utf-8")), path.name)
    if not _HASH.fullmatch(record.sha256) or not record.describe().isprintable():
        raise DecodeError(f"{path.name} has no SHA-256, or figures of more than one line")
    return record


def _with_record(model: RegistryModel, file: Path) -> RegistryModel:
    """Return a packaged adapter with its path, its size, and what its record says of it."""
    record = read_record(file)
    part = replace(model.parts[0], path=file, size=file.stat().st_size, sha256=record.sha256)
    about = "; ".join(filter(None, (model.about, record.describe())))
    return replace(model, parts=(part,), about=about)


def _check_keys(table: Mapping[str, Any]) -> None:
    """Refuse a misspelt key: without its sha256, a file would not be compared with anything."""
    unknown = table.keys() - set(names_of(fields(RegistryModel)))
    for part in table["parts"]:
        unknown |= part.keys() - {"file", "size", "sha256"}
    if unknown:
        raise DecodeError(f"unknown key {min(unknown)!r:.80}")


def _memory_of(model: RegistryModel, base: RegistryModel | None) -> int:
    """Return the bytes that a model needs, 0 where a size is missing."""
    if not model.size:
        return 0
    if base is None:
        return memory_needed(model.size, model.context_bytes)
    if not base.memory:
        return 0
    return base.memory + model.size


_read_shipped = cache(_read_registry)
"""A server asks for the models of this package with each request."""


def find_registry_model(name: str, environ: Mapping[str, str]) -> RegistryModel:
    """Return the model of this name. Raises `ConductorUnusable` with similar names."""
    registry = _load(environ)
    models = by_name(registry.models)
    model = models.get(name.lower())
    if model is not None:
        return model
    if name.lower() in registry.absent:
        raise not_in_build(name.lower())
    hint = (
        "conductor model list shows all, conductor model pull OWNER/REPO downloads any GGUF of the "
        "hub, and a file is imported first: conductor model import FILE"
    )
    near = _nearest_name(name, models)
    if near:
        hint += f"; did you mean {near}?"
    raise ConductorUnusable(f"unknown model {name!r}", hint=hint)


def is_absent(name: str, environ: Mapping[str, str]) -> bool:
    """Return whether this names a packaged adapter whose file is not part of this build."""
    return name in _load(environ).absent


def not_in_build(name: str) -> ConductorUnusable:
    """Return the error about a packaged adapter whose file is not there."""
    hint = "conductor model list shows the models that can plan; conductor model pull NAME"
    return ConductorUnusable(f"{name} is not part of this build", hint=hint)


def _nearest_name(name: str, models: Iterable[str]) -> str | None:
    """Return the model's name that begins like `name`, else one that is spelled much like it."""
    for model_name in models:
        if name and model_name.startswith(name.lower()):
            return model_name
    return nearest(name, models)


def listed_model(name: str, environ: Mapping[str, str]) -> RegistryModel | None:
    """Return the model of exactly this name, None also where the registry cannot be read."""
    with suppress(ConfigError):
        models = by_name(load_registry(environ))
        return models.get(name)
    return None


def memory_needed(size: int, per_token: int, tokens: int = CONTEXT_TOKENS) -> int:
    """Return bytes for weights of `size` bytes and a context of so many tokens.

    `per_token` are the bytes of a token's keys and values.
    """
    return size + per_token * tokens + OVERHEAD_BYTES


def manifest_memory(
    manifest: Manifest, stored: Mapping[str, Manifest], registry: Mapping[str, int]
) -> int:
    """Return bytes that a stored model needs, an adapter together with its base.

    It is 0 where that is not known. `registry` has the memory of the registry's models by name.
    """
    if not manifest.base:
        return registry.get(manifest.name) or file_memory(manifest.path, manifest.size)
    base = stored.get(manifest.base)
    path = Path(manifest.base)
    if base is not None and not base.base:
        base_memory = manifest_memory(base, stored, registry)
    else:
        base_size = path.stat().st_size if path.is_file() else 0
        base_memory = registry.get(manifest.base) or file_memory(path, base_size)
    if not base_memory:
        return 0
    return base_memory + manifest.size


def file_memory(path: Path, size: int, tokens: int = CONTEXT_TOKENS) -> int:
    """Return bytes for a GGUF file whose parts have `size` bytes, and so many tokens of context.

    It is 0 if the file is not one.
    """
    # Most of what reads the registry reads no file
    from conductor_cli.models.llama.gguf import read_header

    try:
        header = read_header(path, brief=True)
    except ModelError:
        return 0

    def number(key: str) -> int:
        value = header.values.get(f"{header.architecture}.{key}", 0)
        if not isinstance(value, int):
            return 0
        return max(0, value)

    heads = number("attention.head_count")
    width = number("embedding_length") // max(1, heads)
    # A token's keys and values: 16 bits for each layer, head, and element of a head.
    key_elements = number("attention.key_length") or width
    value_elements = number("attention.value_length") or width
    kv_heads = number("attention.head_count_kv") or heads
    per_token = 2 * number("block_count") * kv_heads * (key_elements + value_elements)
    if not per_token:
        return 0
    longest = number("context_length") or tokens
    return memory_needed(size, per_token, min(tokens, longest))

"""The registry.

Models that are known by name, with their repository, files, sizes, SHA-256 and licence.

It is `registry.toml` beside this file, or the file that CONDUCTOR_LLM_REGISTRY names. Everything in
such a file is checked, since it decides which bytes are written where.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Final, Literal

from conductor_cli.core.bounded_parsing import parse_toml
from conductor_cli.core.errors import ConductorUnusable, ConfigError, ModelError, nearest
from conductor_cli.core.profile import PROFILES
from conductor_cli.core.serialization import DecodeError, load
from conductor_cli.models.weights.model_store import Manifest, ModelFile

# Names a file that replaces the registry that is shipped
VARIABLE: Final = "CONDUCTOR_LLM_REGISTRY"
SHIPPED: Final = Path(__file__).with_name("registry.toml")

TOKENS: Final = 8192  # Tokens of context that an estimate counts

OVERHEAD: Final = 600_000_000
"""Bytes that a loaded model needs beside its weights and its context: the interpreter, buffers, the
vocabulary.
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
    includes that one's. `memory_source` says from what the memory of a model of the hub is known.
    Raises `ConfigError` for names that could lead out of a directory.
    """

    name: str
    repo: str
    revision: str
    parts: tuple[ModelFile, ...]
    licence: str
    about: str
    context_bytes: int = 0
    memory: int = 0
    profile: str = "prompted"
    base: str = ""
    listed: bool = True
    memory_source: Literal["registry", "header", "size"] = "registry"

    def __post_init__(self) -> None:
        for key, pattern in _PATTERNS.items():
            if not pattern.fullmatch(getattr(self, key)):
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
            end = f"-{number:05}-of-{count:05}.gguf" if count > 1 else ".gguf"
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
    def reference(self) -> str:
        """What `conductor model pull` finds exactly this model by."""
        return self.name if self.listed else f"{self.repo}:{self.parts[0].file}"

    @property
    def size(self) -> int:
        """Bytes of all parts; 0 where that of one is unknown."""
        return sum(part.size for part in self.parts) if all(part.size for part in self.parts) else 0


def load_registry(environ: Mapping[str, str]) -> tuple[RegistryModel, ...]:
    """Return all models, the default first. Raises `ConfigError` for an invalid file."""
    if chosen := environ.get(VARIABLE, ""):
        return _read_registry(Path(chosen).expanduser(), f"correct the file that {VARIABLE} names")
    return _read_shipped(SHIPPED, "install conductor-llm again")


def _read_registry(path: Path, hint: str) -> tuple[RegistryModel, ...]:
    try:
        tables = parse_toml(path.read_bytes()).get("models")
        if not (isinstance(tables, list) and tables):
            raise DecodeError("it contains no model")
        models = [
            load(RegistryModel, table, f"models[{index}]") for index, table in enumerate(tables)
        ]
        # A misspelt key is refused: without its sha256, a file would not be compared with anything.
        for table in tables:
            keys = table.keys() - {field.name for field in fields(RegistryModel)}
            for part in table["parts"]:
                keys |= part.keys() - {"file", "size", "sha256"}
            if keys:
                raise DecodeError(f"unknown key {min(keys)!r:.80}")
        found: dict[str, RegistryModel] = {}
        for model in models:
            base = found.get(model.base)
            if model.name in found or (model.base and (base is None or base.base)):
                raise DecodeError(
                    f"{model.name}: another model has the same name, or its base is not a "
                    "model "
                    "above it"
                )
            memory = (
                memory_needed(model.size, model.context_bytes)
                if base is None
                else base.memory + model.size
            )
            # Without a size no memory can be computed; it is shown as unknown.
            known = model.size and (base is None or base.memory)
            found[model.name] = replace(model, memory=memory if known else 0)
        return tuple(found.values())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint=hint) from None
    except ValueError as error:
        raise ConfigError(f"{path} is not a valid registry: {error}", hint=hint) from None


_read_shipped = cache(_read_registry)
"""A server asks for the models of this package with each request."""


def find_registry_model(name: str, environ: Mapping[str, str]) -> RegistryModel:
    """Return the model of this name. Raises `ConductorUnusable` with similar names."""
    models = {model.name: model for model in load_registry(environ)}
    if (found := models.get(name.lower())) is not None:
        return found
    near = next(
        (known for known in models if name and known.startswith(name.lower())), ""
    ) or nearest(name, models)
    meant = f"; did you mean {near}?" if near else ""
    hint = (
        "conductor model list shows all, conductor model pull OWNER/REPO downloads any GGUF of the "
        "hub, "
        f"and a file is imported first: conductor model import FILE{meant}"
    )
    raise ConductorUnusable(f"unknown model {name!r}", hint=hint)


def listed_model(name: str, environ: Mapping[str, str]) -> RegistryModel | None:
    """Return the model of exactly this name, None also where the registry cannot be read."""
    with suppress(ConfigError):
        return next((model for model in load_registry(environ) if model.name == name), None)
    return None


def memory_needed(size: int, per_token: int, tokens: int = TOKENS) -> int:
    """Return bytes for weights of `size` bytes and a context whose keys and values need `per_token`
    bytes a token.
    """
    return size + per_token * tokens + OVERHEAD


def manifest_memory(
    manifest: Manifest, stored: Mapping[str, Manifest], registry: Mapping[str, int]
) -> int:
    """Return bytes that a stored model needs, an adapter together with its base.

    0 where that is not known.

    `registry` has the memory of the registry's models by name.
    """
    if not manifest.base:
        return registry.get(manifest.name) or file_memory(manifest.path, manifest.size)
    base = stored.get(manifest.base)
    path = Path(manifest.base)
    if base is not None and not base.base:
        of_base = manifest_memory(base, stored, registry)
    else:
        of_base = registry.get(manifest.base) or file_memory(
            path, path.stat().st_size if path.is_file() else 0
        )
    return of_base + manifest.size if of_base else 0


def file_memory(path: Path, size: int, tokens: int = TOKENS) -> int:
    """Return bytes for a GGUF file whose parts have `size` bytes, and so many tokens of context.

    0 if it is not one.
    """
    # Most of what reads the registry reads no file
    from conductor_cli.models.llama.gguf import read_header

    try:
        header = read_header(path, brief=True)
    except ModelError:
        return 0

    def number(key: str) -> int:
        found = header.values.get(f"{header.architecture}.{key}", 0)
        return found if isinstance(found, int) and found > 0 else 0

    heads = number("attention.head_count")
    width = number("embedding_length") // max(1, heads)
    # A token's keys and values: 16 bits for each layer, head, and element of a head.
    elements = (number("attention.key_length") or width) + (
        number("attention.value_length") or width
    )
    per_token = 2 * number("block_count") * (number("attention.head_count_kv") or heads) * elements
    return (
        memory_needed(size, per_token, min(tokens, number("context_length") or tokens))
        if per_token
        else 0
    )

"""How much memory the models in GGUF files need, by the same rule as those of the registry."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama.gguf import Header, read_header
from conductor_cli.models.weights.model_store import Manifest
from conductor_cli.models.weights.registry import TOKENS, memory_needed


def manifest_memory(manifest: Manifest, stored: Mapping[str, Manifest], registry: Mapping[str, int]) -> int:
    """Bytes that a stored model needs, an adapter together with its base; 0 where that is not known.

    `registry` has the memory of the registry's models by name.
    """
    if not manifest.base:
        return registry.get(manifest.name) or file_memory(manifest.path, manifest.size)
    base, path = stored.get(manifest.base), Path(manifest.base)
    if base is not None and not base.base:
        of_base = manifest_memory(base, stored, registry)
    elif manifest.base in registry:
        of_base = registry[manifest.base]
    else:
        of_base = file_memory(path, path.stat().st_size) if path.is_file() else 0
    return of_base + manifest.size if of_base else 0


def file_memory(path: Path, size: int, tokens: int = TOKENS) -> int:
    """Bytes for a GGUF file whose parts have `size` bytes, and so many tokens of context; 0 if it is not one."""
    try:
        header = read_header(path, brief=True)
    except ModelError:
        return 0
    heads = _header_number(header, "attention.head_count")
    width = _header_number(header, "embedding_length") // max(1, heads)
    keys = _header_number(header, "attention.key_length") or width
    values = _header_number(header, "attention.value_length") or width
    key_heads = _header_number(header, "attention.head_count_kv") or heads
    # A token's keys and values: 16 bits for each layer, head, and element of a head.
    per_token = 2 * _header_number(header, "block_count") * key_heads * (keys + values)
    trained = _header_number(header, "context_length") or tokens
    return memory_needed(size, per_token, min(tokens, trained)) if per_token else 0


def _header_number(header: Header, key: str) -> int:
    found = header.values.get(f"{header.architecture}.{key}", 0)
    return found if isinstance(found, int) and found > 0 else 0

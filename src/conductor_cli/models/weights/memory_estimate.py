"""How much memory a model of this machine takes, as the registry says it of those that it lists."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama.gguf import Header, read_header
from conductor_cli.models.weights.model_store import Manifest
from conductor_cli.models.weights.registry import TOKENS, RegistryModel, memory_needed


def manifest_memory(manifest: Manifest, store: Mapping[str, Manifest], entries: Mapping[str, RegistryModel]) -> int:
    """Bytes of RAM that a stored model needs, an adapter together with its base; 0 where that is not known."""
    if not manifest.base:
        entry = entries.get(manifest.name)
        return entry.memory if entry and entry.memory else file_memory(manifest.path, manifest.size)
    base, listed = store.get(manifest.base), entries.get(manifest.base)
    if base is not None and not base.base:
        below = manifest_memory(base, store, entries)
    elif listed is not None:
        below = listed.memory
    else:
        path = Path(manifest.base)
        below = file_memory(path, path.stat().st_size) if path.is_file() else 0
    return below + manifest.size if below else 0


def file_memory(path: Path, size: int, tokens: int = TOKENS) -> int:
    """Bytes of RAM for a GGUF file whose parts have `size` bytes, and so many tokens of context; 0 for no such file."""
    try:
        header = read_header(path, brief=True)
    except ModelError:
        return 0
    per_token = _per_token(header)
    trained = _number(header, "context_length") or tokens
    return memory_needed(size, per_token, min(tokens, trained)) if per_token else 0


def _per_token(header: Header) -> int:
    """Bytes of a token's keys and values, of 16 bits for each layer, head and number of a head."""
    heads = _number(header, "attention.head_count")
    width = _number(header, "embedding_length") // max(1, heads)
    keys = _number(header, "attention.key_length") or width
    values = _number(header, "attention.value_length") or width
    return 2 * _number(header, "block_count") * (_number(header, "attention.head_count_kv") or heads) * (keys + values)


def _number(header: Header, key: str) -> int:
    found = header.values.get(f"{header.architecture}.{key}", 0)
    return found if isinstance(found, int) and found > 0 else 0

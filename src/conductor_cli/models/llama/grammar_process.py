"""Makes a grammar of a JSON Schema, in a bounded child process.

The converter is that of llama-cpp-python, a file without needs of its own, so that llama.cpp itself
is not loaded. A schema is somebody else's: it may ask for a grammar of gigabytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any, Final

MAX_REPETITIONS: Final = 100
"""The highest count of characters or items that a grammar holds a reply to.

The converter writes each repetition out. A higher bound is left out of the grammar, and is checked
with the answer.
"""

_BOUNDS: Final = frozenset({"minLength", "maxLength", "minItems", "maxItems"})


def answer(job_bytes: bytes) -> Iterator[str]:
    """Give the grammar of a job's `schema`; the converter is the file at its `converter`."""
    job = json.loads(job_bytes)
    spec = spec_from_file_location("llama_grammar", job["converter"])
    assert spec is not None
    assert spec.loader is not None
    converter = module_from_spec(spec)
    spec.loader.exec_module(converter)
    schema = _with_small_bounds(job["schema"])
    try:
        grammar = converter.json_schema_to_gbnf(json.dumps(schema))
    except Exception:  # noqa: BLE001 - most often a pattern that the converter does not know
        grammar = converter.json_schema_to_gbnf(json.dumps(_without_patterns(schema)))
    yield str(grammar)


def _with_small_bounds(schema: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(schema, list):
        return [_with_small_bounds(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for name, value in schema.items():
        is_large = name in _BOUNDS and isinstance(value, (int, float)) and value > MAX_REPETITIONS
        if not is_large:
            kept[name] = _with_small_bounds(value)
    return kept


def _without_patterns(schema: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(schema, list):
        return [_without_patterns(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for name, value in schema.items():
        is_pattern = name == "pattern" and isinstance(value, str)
        if not is_pattern:
            kept[name] = _without_patterns(value)
    return kept

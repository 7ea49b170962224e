"""Checks against a JSON Schema that somebody else wrote, which an event loop may await.

A schema of two kilobytes can ask for more work than any computer can do, and so can a long value
under a plain one. So only what is provably little work is done in this process. All other checks
are made by a child process with bounded time and memory, which ends with the task that waits for
it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from conductor_cli.programs.bounded_child import ChildLimits, ChildStopped, run_child_beside
from conductor_cli.programs.schema_process import fault_of_schema, fault_of_value
from conductor_cli.programs.turns import CHILDREN, SharedPlaces

# How long one check may take. A busy machine needs one second to start it
CHECK_SECONDS: Final = 5.0
MEMORY_BYTES: Final = (
    384 << 20
)  # Bytes of address space that a check may use; it starts with about 50 MB

LITTLE_WORK: Final = 20_000
"""The size of a schema times that of a value, up to which a plain check is made in this process: in
0.1 s at most.
"""

# The size up to which a schema without regular expressions is checked in this process
SMALL_SCHEMA: Final = 500
CHILD: Final = Path(__file__).with_name("schema_process.py")

_PLAIN: Final = frozenset(
    {
        "type",
        "enum",
        "const",
        "required",
        "properties",
        "items",
        "additionalProperties",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "title",
        "description",
        "default",
        "examples",
        "format",
        "deprecated",
        "readOnly",
        "writeOnly",
        "$comment",
    }
)
"""Keywords by which each part of a value meets at most one part of the schema, once."""

_PLACES: Final = SharedPlaces(CHILDREN)


class CheckStopped(Exception):
    """A check needed too much time or memory, and was stopped."""

    def __init__(self) -> None:
        super().__init__("the check takes too much time or memory")


async def find_fault(schema: Mapping[str, Any], value: object) -> str:
    """Return what a value breaks of a JSON Schema, and where; empty where it breaks nothing.

    `fault_of_value` says what is checked. Raises `CheckStopped`.
    """
    # A dialect that is named below the root would change what the keywords mean.
    rest = {name: item for name, item in schema.items() if name != "$schema"}
    size = size_of(schema, LITTLE_WORK)
    if size < LITTLE_WORK and _is_plain(rest) and size * size_of(value, LITTLE_WORK) <= LITTLE_WORK:
        return fault_of_value(schema, value)
    return await _ask_child({"schema": schema, "value": value})


async def find_schema_fault(schema: Mapping[str, Any]) -> str:
    """Return why this is not a valid JSON Schema; empty where it is. Raises `CheckStopped`."""
    if fault := unwritable_number(schema):
        return fault
    if _is_quick(schema):
        return fault_of_schema(schema)
    return await _ask_child({"schema": schema})


def quick_schema_fault(schema: Mapping[str, Any]) -> str:
    """Return the same of a schema that takes no time to check, else only what its numbers say.

    For many schemas, of which each would need a process.
    """
    if fault := unwritable_number(schema):
        return fault
    return fault_of_schema(schema) if _is_quick(schema) else ""


def unwritable_number(value: object) -> str:
    """Return that a value holds a number that JSON cannot write; empty where it holds none."""
    try:
        json.dumps(value, allow_nan=False, check_circular=False, default=str)
    except ValueError:
        return "it holds NaN, Infinity, or a number that is larger than any that programs hold"
    except RecursionError:
        return ""
    return ""


def _is_quick(schema: Mapping[str, Any]) -> bool:
    return size_of(schema, SMALL_SCHEMA) < SMALL_SCHEMA and not _has_pattern(schema)


def size_of(value: object, most: int, *, characters: int = 100) -> int:
    """Return how many values and names there are in a JSON value, but at most `most`.

    That many `characters` of a text count as one value more.
    """
    left = [value]
    size = 0
    while left and size < most:
        item = left.pop()
        size += 1
        if isinstance(item, str):
            size += len(item) // characters
        elif isinstance(item, Mapping):
            left += [*item, *item.values()]
        elif isinstance(item, (list, tuple)):
            left += item
    return min(size, most)


def _is_plain(schema: object, depth: int = 0) -> bool:
    """Return whether a schema has plain keywords only, and is not nested deeply.

    Those of people are below 15.
    """
    if not isinstance(schema, Mapping):
        return isinstance(schema, bool)
    properties = schema.get("properties", {})
    if depth > 40 or not (schema.keys() <= _PLAIN and isinstance(properties, Mapping)):
        return False
    below = [schema[name] for name in ("items", "additionalProperties") if name in schema]
    return all(_is_plain(inner, depth + 1) for inner in (*properties.values(), *below))


def _has_pattern(schema: object) -> bool:
    """Return whether a small schema may have a regular expression.

    One can take minutes to compile.
    """
    if isinstance(schema, Mapping):
        return not {"pattern", "patternProperties"}.isdisjoint(schema) or any(
            map(_has_pattern, schema.values())
        )
    return isinstance(schema, (list, tuple)) and any(map(_has_pattern, schema))


async def _ask_child(job: Mapping[str, Any]) -> str:
    try:
        content = json.dumps(job, default=str).encode()
    except (ValueError, RecursionError):  # it holds itself, so it was never JSON
        return ""
    limits = ChildLimits(
        seconds=CHECK_SECONDS, memory=MEMORY_BYTES, cpu_seconds=math.ceil(CHECK_SECONDS) + 1
    )
    async with _PLACES.held():
        try:
            (fault,) = await run_child_beside(CHILD, content, limits)
        except ChildStopped:
            raise CheckStopped from None
    return str(fault)

"""Checks with the library jsonschema; in a bounded child process, for a job `{"schema".

…}` or with a `value`, too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

# When jsonschema is imported, it builds a grammar of addresses, which takes seconds; it serves
# formats, and none are checked here.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]


def fault_of_value(schema: Mapping[str, Any], value: object) -> str:
    """Return what a value breaks of a JSON Schema, and where; empty where it breaks nothing.

    Regular expressions are not tried, because those of JavaScript are not those of Python. Nothing
    is fetched that a schema refers to, and a schema that cannot be used allows everything.
    """
    from jsonschema import Draft202012Validator, validators
    from jsonschema.exceptions import best_match
    from referencing import Registry

    unchecked = dict.fromkeys(("pattern", "patternProperties"), lambda *_: iter(()))
    try:
        # With an empty registry no reference is fetched from anywhere.
        validator = validators.extend(Draft202012Validator, unchecked)(
            dict(schema), registry=Registry()
        )
        error = best_match(validator.iter_errors(value))
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - whatever a wrong schema does to the library
        return ""
    if error is None:
        return ""
    path = ".".join(str(part) for part in error.absolute_path)
    if path:
        return f"{path}: {error.message:.300}"
    return f"{error.message:.300}"


def fault_of_schema(schema: Mapping[str, Any]) -> str:
    """Return why this is not a valid JSON Schema; empty where it is."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return f"at {error.json_path:.300}"
    except RecursionError:
        return "nested too deeply"
    return ""


def answer(content: bytes) -> Iterator[str]:
    """Give the fault that a job asks for."""
    job = json.loads(content)
    if "value" in job:
        yield fault_of_value(job["schema"], job["value"])
    else:
        yield fault_of_schema(job["schema"])

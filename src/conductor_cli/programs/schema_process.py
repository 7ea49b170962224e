"""Checks with the library jsonschema, and the program that makes one of them under limits of the system.

It reads a job from stdin, `{"schema": …}` or `{"schema": …, "value": …}`, and writes the fault as JSON to stdout.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

MEMORY: Final = 384 << 20
"""Bytes of address space that the program may use; it starts with about 50 MB."""


def fault_of_value(schema: Mapping[str, Any], value: object) -> str:
    """Return what a value breaks of a JSON Schema, and where; empty where it breaks nothing.

    Regular expressions are not tried, because those of JavaScript are not those of Python. Nothing is fetched that a
    schema refers to, and a schema that cannot be used allows everything.
    """
    from jsonschema import Draft202012Validator, validators
    from jsonschema.exceptions import best_match
    from referencing import Registry

    unchecked = dict.fromkeys(("pattern", "patternProperties"), lambda *_: iter(()))
    try:
        # With an empty registry no reference is fetched from anywhere.
        validator = validators.extend(Draft202012Validator, unchecked)(dict(schema), registry=Registry())
        error = best_match(validator.iter_errors(value))
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - whatever a wrong schema does to the library
        return ""
    if error is None:
        return ""
    place = ".".join(str(part) for part in error.absolute_path)
    return f"{place}: {error.message:.300}" if place else f"{error.message:.300}"


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


def main() -> None:
    """Limit this process to a time in seconds, the one argument, and make the check."""
    job = json.load(sys.stdin)
    with suppress(ImportError):
        import resource  # POSIX only

        seconds = int(sys.argv[1])
        for name, most in {"RLIMIT_CPU": seconds, "RLIMIT_AS": MEMORY, "RLIMIT_CORE": 0}.items():
            # There may be a stricter limit already, and not every system has each of them.
            with suppress(ValueError, OSError, AttributeError):
                resource.setrlimit(getattr(resource, name), (most, most))
    schema = job["schema"]
    fault = fault_of_value(schema, job["value"]) if "value" in job else fault_of_schema(schema)
    json.dump(fault, sys.stdout)


if __name__ == "__main__":
    main()

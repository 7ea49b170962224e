"""Checks of values against a JSON Schema, in a bounded child process where they may be much work.

By the library jsonschema-rs, which knows all drafts from 4 on, and regular expressions as
JavaScript has them. A job is `{"schema": …}`, with a `value` too if that is to be checked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

DIALECTS: Final = frozenset(
    {
        "json-schema.org/draft/2020-12/schema",
        "json-schema.org/draft/2019-09/schema",
        "json-schema.org/draft-07/schema",
        "json-schema.org/draft-06/schema",
        "json-schema.org/draft-04/schema",
    }
)
"""What `$schema` may name, without `http://` or `https://`. The library would fetch any other."""

BACKTRACK_LIMIT: Final = 1_000_000  # Steps back of one regular expression, about 0.1 s

REGEX_STOPPED: Final = "Error executing regex"


class RegexStopped(Exception):
    """A regular expression took too many steps, so nobody knows whether the value fits."""


def fault_of_value(schema: Mapping[str, Any], value: object) -> str:
    """Return what a value breaks of a JSON Schema, and where; empty where it breaks nothing.

    The draft is that of `$schema`, else 2020-12. Formats count. Nothing is fetched that a schema
    refers to, and a schema that cannot be used allows everything: `fault_of_schema` refuses it. A
    value that cannot be checked is a fault. Raises `RegexStopped`.
    """
    from jsonschema_rs import ReferencingError, ValidationError

    if fault_of_dialect(schema):
        return ""
    try:
        validator = _validator(schema)
    except (ValidationError, ReferencingError, ValueError, TypeError, RecursionError):
        return ""
    try:
        error = next(iter(validator.iter_errors(value)), None)
    except UnicodeEncodeError:  # half a character, which JSON can spell: it counts as one
        readable = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        return fault_of_value(schema, json.loads(readable))
    except (ValueError, RecursionError) as problem:  # most often it is nested too deeply
        return f"it cannot be checked: {problem!s:.200}"
    if error is None:
        return ""
    if error.message.startswith(REGEX_STOPPED):
        raise RegexStopped
    path = ".".join(map(str, error.instance_path))
    if path:
        return f"{path}: {error.message:.300}"
    return f"{error.message:.300}"


def fault_of_schema(schema: Mapping[str, Any]) -> str:
    """Return why this is not a JSON Schema that can be checked; empty where it is."""
    from jsonschema_rs import ReferencingError, ValidationError

    if fault := fault_of_dialect(schema):
        return fault
    try:
        _validator(schema)
    except ValidationError as error:
        path = ".".join(map(str, error.instance_path))
        if path:
            return f"at {path:.200}: {error.message:.200}"
        return f"{error.message:.300}"
    except ReferencingError as error:
        return f"it refers to what is not in it, and nothing is fetched: {error!s:.200}"
    except (ValueError, TypeError) as error:
        return f"{error!s:.300}"
    except RecursionError:
        return "nested too deeply"
    return ""


def fault_of_dialect(schema: Mapping[str, Any]) -> str:
    """Return that `$schema` names no draft that is known; empty where it does, or is left out."""
    named = schema.get("$schema")
    if named is None:
        return ""
    address = str(named).partition("#")[0].rstrip("/")
    for scheme in ("https://", "http://"):
        address = address.removeprefix(scheme)
    if address in DIALECTS:
        return ""
    return f"$schema names no draft that is known here: {json.dumps(named):.200}"


def _validator(schema: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a class without types
    from jsonschema_rs import FancyRegexOptions, validator_for

    return validator_for(
        dict(schema),
        validate_formats=True,
        offline=True,
        pattern_options=FancyRegexOptions(backtrack_limit=BACKTRACK_LIMIT),
    )


def answer(content: bytes) -> Iterator[str]:
    """Give the fault that a job asks for."""
    job = json.loads(content)
    if "value" in job:
        yield fault_of_value(job["schema"], job["value"])
    else:
        yield fault_of_schema(job["schema"])

"""The JSON Schema of an answer: what an answer breaks of it, and how its worker is told. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from conductor_cli.core.chat import Message

NOT_JSON: Final = "it is not JSON"


def schema_fault(answer: str, schema: Mapping[str, Any]) -> str:
    """What an answer breaks of a JSON Schema; empty where nothing does.

    Regular expressions are not tried: a client could choose one that never ends. Nothing is fetched that a schema
    refers to, and one that cannot be used asks only for JSON.
    """
    try:
        value = json.loads(answer)
    except (ValueError, RecursionError):
        return NOT_JSON
    from jsonschema import Draft202012Validator, validators
    from jsonschema.exceptions import best_match
    from referencing import Registry

    unchecked = dict.fromkeys(("pattern", "patternProperties"), lambda *_: iter(()))
    try:
        validator = validators.extend(Draft202012Validator, unchecked)(dict(schema), registry=Registry())
        error = best_match(validator.iter_errors(value))
    except Exception:  # noqa: BLE001 - whatever a wrong schema does to the library
        return ""
    if error is None:
        return ""
    place = ".".join(str(part) for part in error.absolute_path)
    return f"{place}: {error.message:.300}" if place else f"{error.message:.300}"


def with_fault(messages: tuple[Message, ...], answer: str, fault: str) -> tuple[Message, ...]:
    """The messages by which a worker is asked for its answer again."""
    told = (
        f"Your answer does not follow the JSON Schema: {fault}. Give the whole answer again, as that one JSON value "
        "and nothing else: no explanation, no code fence."
    )
    return (*messages, Message(role="assistant", content=answer), Message(role="user", content=told))

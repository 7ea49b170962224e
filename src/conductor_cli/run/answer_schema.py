"""The JSON Schema of an answer: what an answer breaks of it, and how its worker is told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from conductor_cli.core.chat import Message
from conductor_cli.programs.schema_check import CheckStopped, find_fault

NOT_JSON: Final = "it is not JSON"
NOT_CHECKED: Final = "the check takes too much time or memory"


async def schema_fault(answer: str, schema: Mapping[str, Any]) -> str:
    """Return what an answer breaks of a JSON Schema; empty where it breaks nothing.

    A schema that cannot be used asks only for JSON. A check that had to be stopped is the fault `NOT_CHECKED`.
    """
    try:
        value = json.loads(answer)
    except (ValueError, RecursionError):
        return NOT_JSON
    try:
        return await find_fault(schema, value)
    except CheckStopped:
        return NOT_CHECKED


def with_fault(messages: tuple[Message, ...], answer: str, fault: str) -> tuple[Message, ...]:
    """The messages by which a worker is asked for its answer again."""
    told = (
        f"Your answer does not follow the JSON Schema: {fault}. Give the whole answer again, as that one JSON value "
        "and nothing else: no explanation, no code fence."
    )
    return (*messages, Message(role="assistant", content=answer), Message(role="user", content=told))

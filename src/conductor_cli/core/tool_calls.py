"""The calls of tools in a model's replies: joined from their pieces, and held to their bounds. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from conductor_cli.core.chat import ToolCall, ToolCallDelta
from conductor_cli.core.errors import ModelError

LARGEST_ARGUMENTS: Final = 1 << 20
"""Characters of the arguments of one reply; a model that writes more is broken."""
CALLS_PER_REPLY: Final = 64
LOOP: Final = 3
"""So many calls of one tool with the same arguments in one step are enough: the next one gives nothing new."""
FAULTS: Final = 5
"""So many calls of a step may be wrong: unknown tools, arguments that are no JSON, repetitions."""
CALLS_PER_STEP: Final = 50
CALLS_PER_RUN: Final = 100
"""Calls of a run without a limit of its own (`limits.tool_calls`)."""


class CallCollector:
    """Joins the pieces of the calls of one reply. Raises `ModelError` where they exceed every bound."""

    def __init__(self) -> None:
        self._pieces: dict[int, list[ToolCallDelta]] = {}
        self._length = 0

    def add(self, delta: ToolCallDelta) -> None:
        self._length += len(delta.arguments)
        self._pieces.setdefault(delta.index, []).append(delta)
        if self._length > LARGEST_ARGUMENTS or len(self._pieces) > CALLS_PER_REPLY:
            raise ModelError("broken", "the reply asks for more tool calls, or for larger ones, than any reply may")

    def calls(self) -> tuple[ToolCall, ...]:
        """The calls in order, each with an id that no other call of this reply has."""
        found: dict[str, ToolCall] = {}
        for index, pieces in sorted(self._pieces.items()):
            name = next((piece.name for piece in pieces if piece.name), "")
            call_id = next((piece.id for piece in pieces if piece.id), "")
            if not call_id or call_id in found:
                call_id = f"call_{index}"
            found[call_id] = ToolCall(id=call_id, name=name, arguments="".join(piece.arguments for piece in pieces))
        return tuple(found.values())


def parse_arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments of a call; without any, an empty object. Raises `ValueError` that says what is wrong."""
    if not call.arguments.strip():
        return {}
    try:
        value = json.loads(call.arguments)
    except ValueError as error:
        raise ValueError(f"the arguments are not JSON: {error}") from None
    except RecursionError:
        raise ValueError("the arguments are nested too deep") from None
    if not isinstance(value, dict):
        raise ValueError("the arguments are not a JSON object")  # noqa: TRY004 - a wrong value, not a wrong type
    return value


class CallBounds:
    """Counts the calls of one step, and says when it has had enough of them."""

    def __init__(self) -> None:
        self._made: dict[str, int] = {}
        self._calls = 0
        self._faults = 0

    @property
    def exhausted(self) -> bool:
        """Whether the step gets no more calls and has to end with what it knows."""
        return self._faults >= FAULTS or self._calls >= CALLS_PER_STEP

    def add_fault(self) -> None:
        """A call was wrong and was not made."""
        self._faults += 1

    def admit(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Count a call that is about to be made. Returns why it must not be made, empty where it may."""
        if self._calls >= CALLS_PER_STEP:
            return f"not called: a step may call tools {CALLS_PER_STEP} times. Answer with what you have."
        key = name + json.dumps(arguments, sort_keys=True)
        made = self._made[key] = self._made.get(key, 0) + 1
        if made > LOOP:
            self.add_fault()
            return f"not called: it was called {LOOP} times with the same arguments. Use the results that you have."
        self._calls += 1
        return ""

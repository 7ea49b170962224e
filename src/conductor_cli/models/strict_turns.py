"""A conversation in the forms that strict servers want. Pure.

Most servers take messages in any order. Some are held to a chat template that knows questions and
answers by turns, or has no place for a system message; some want the thinking of each earlier turn
back, which only its own model has. What such a server refuses is sent in another form then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from conductor_cli.core.mappings import without_keys
from conductor_cli.core.question import fence
from conductor_cli.models.api_errors import ErrorBody
from conductor_cli.models.chat_body import KEPT, PROVIDER_DATA
from conductor_cli.models.refusals import (
    refuses_calls,
    refuses_kept_thinking,
    refuses_order,
    refuses_system_messages,
    wants_thinking,
)

_BEGINNING: Final = "(The conversation begins with your answer.)"
_AFTER_RESULTS: Final = "I have read the results."
_AFTER_ANSWER: Final = "Go on."
_THINKING: Final = "(The thinking of this turn is not known here.)"

_THINKING_FIELD: Final = "reasoning_content"

SYSTEM_MESSAGES: Final = "system messages"
ORDER: Final = "messages in this order"
LOST_THINKING: Final = "turns without their thinking"
KEPT_THINKING: Final = "turns with their thinking"
CALLS: Final = "calls of tools without tools"
INSTEAD: Final[Mapping[str, str]] = {
    SYSTEM_MESSAGES: "their text in front of the first question",
    ORDER: "as questions and answers by turns",
    LOST_THINKING: "with a note in its place",
    KEPT_THINKING: "without it",
    CALLS: "as texts",
}
"""What stands among the fields that a server refuses for the form of a conversation, and what it is
sent instead.
"""


def refused_form(
    reported: ErrorBody, messages: Sequence[Mapping[str, Any]], *, has_tools: bool
) -> str:
    """Return what a server refuses in the form of a conversation; empty where that is nothing.

    `has_tools` says that tools are offered in this request.
    """
    if refuses_order(reported) and not are_by_turns(messages):
        return ORDER
    has_system = any(message["role"] == "system" for message in messages)
    if has_system and refuses_system_messages(reported):
        return SYSTEM_MESSAGES
    if wants_thinking(reported) and lacks_thinking(messages):
        return LOST_THINKING
    if refuses_kept_thinking(reported) and without_thinking(messages) != [*messages]:
        return KEPT_THINKING
    has_calls = any(message.get("tool_calls") for message in messages)
    if has_calls and not has_tools and refuses_calls(reported):
        return CALLS
    return ""


def in_forms(
    messages: Iterable[Mapping[str, Any]], refused: Collection[str], *, has_tools: bool
) -> list[dict[str, Any]]:
    """Return messages without what a server refuses in their form."""
    formed = [dict(message) for message in messages]
    if CALLS in refused and not has_tools:
        formed = without_calls(formed)
    if SYSTEM_MESSAGES in refused:
        formed = without_system_messages(formed)
    if ORDER in refused:
        formed = by_turns(formed)
    if KEPT_THINKING in refused:
        formed = without_thinking(formed)
    if LOST_THINKING in refused:
        formed = with_thinking(formed)
    return formed


def without_system_messages(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages whose system text stands in front of the first question of the user."""
    texts = [str(message["content"]) for message in messages if message["role"] == "system"]
    others = [dict(message) for message in messages if message["role"] != "system"]
    system = "\n\n".join(texts)
    for message in others:
        if message["role"] == "user":
            message["content"] = _joined(system, message["content"])
            return others
    return [{"role": "user", "content": system}, *others]


def by_turns(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages as questions and answers by turns, from a question of the user on.

    Neighbours of one role become one message. A question directly after results of tools, and an
    answer with none before it, get the other one; so does an answer at the end.
    """
    turns: list[dict[str, Any]] = []
    for message in messages:
        role = message["role"]
        role_before = turns[-1]["role"] if turns else "system"
        if role == "user" == role_before:
            turns[-1]["content"] = _joined(turns[-1]["content"], message["content"])
            continue
        if role == "user" and role_before == "tool":
            turns.append({"role": "assistant", "content": _AFTER_RESULTS})
        elif role == "assistant" and role_before == "system":
            turns.append({"role": "user", "content": _BEGINNING})
        elif role == "assistant" == role_before:
            turns.append({"role": "user", "content": _AFTER_ANSWER})
        turns.append(dict(message))
    if turns and turns[-1]["role"] == "assistant":
        turns.append({"role": "user", "content": _AFTER_ANSWER})
    return turns


def are_by_turns(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether `by_turns` changes nothing of messages."""
    roles = [message["role"] for message in messages]
    if not roles or roles[-1] == "assistant":
        return False
    follows = {
        "system": {"system", "user"},
        "user": {"assistant"},
        "assistant": {"user", "tool"},
        "tool": {"assistant", "tool"},
    }
    return roles[0] in follows["system"] and all(
        role in follows[before] for before, role in pairwise(roles)
    )


def with_thinking(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages with a note in each answer whose thinking is not there."""
    noted = []
    for message in messages:
        said = dict(message)
        kept = message.get(PROVIDER_DATA, {})
        if message["role"] == "assistant" and not kept.get(_THINKING_FIELD):
            said[PROVIDER_DATA] = {**kept, _THINKING_FIELD: _THINKING}
        noted.append(said)
    return noted


def lacks_thinking(messages: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether `with_thinking` changes something of messages."""
    return any(
        message["role"] == "assistant" and not message.get(PROVIDER_DATA, {}).get(_THINKING_FIELD)
        for message in messages
    )


def without_thinking(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages without the thinking that came with them, which few servers want back."""
    spoken = []
    for message in messages:
        said = dict(message)
        if PROVIDER_DATA in said:
            said[PROVIDER_DATA] = without_keys(said[PROVIDER_DATA], KEPT)
        spoken.append(said)
    return spoken


def without_calls(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages with calls and their results as texts.

    Bedrock takes none where no tools are offered, as in a client's request for a summary.
    """
    texts = []
    for message in messages:
        said = dict(message)
        if said["role"] == "tool":
            result = said["content"]
            if isinstance(result, str):
                result = fence("result", result)
            said = {"role": "user", "content": _joined("A tool gave this result:", result)}
        elif calls := said.pop("tool_calls", None):
            said.pop(PROVIDER_DATA, None)
            functions = [call["function"] for call in calls]
            lines = [f"Called the tool {item['name']}: {item['arguments']}" for item in functions]
            said["content"] = _joined(said["content"] or "", "\n".join(lines))
        texts.append(said)
    return texts


def _joined(
    before: str | list[dict[str, Any]], after: str | list[dict[str, Any]]
) -> str | list[dict[str, Any]]:
    """Return two contents as one, each a text or parts."""
    if isinstance(before, str) and isinstance(after, str):
        return "\n\n".join(filter(None, (before, after)))
    return [*_parts(before), *_parts(after)]


def _parts(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if content else []

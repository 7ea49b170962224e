"""What each word means with which a server ends a reply. Pure.

Read in November 2026 in what each provider publishes of its API, and in the sources of the servers
that one runs oneself. An error object, an event named `error` and an HTTP status are no end words:
`api_errors` reads those. A stream that ends without a word of this table has broken off, unless it
ends with `[DONE]`, as some servers end every stream: then the user is told that no reason was
given.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import Final, Literal

from conductor_cli.core.chat import Finish
from conductor_cli.core.errors import ModelError
from conductor_cli.core.terminal_text import one_line

EndMeaning = Literal["whole", "tool", "cut", "filtered", "failed"]
"""What a reply is: whole; asking for tools; cut off by a limit; cut off by a filter or refused by
the model; broken off by a fault of the server.
"""

END_WORDS: Final[Mapping[str, Mapping[str, EndMeaning]]] = {
    "OpenAI Chat Completions": {
        "stop": "whole",
        "tool_calls": "tool",
        "function_call": "tool",
        "length": "cut",
        "content_filter": "filtered",
    },
    # The status of a response, and the reason why one is incomplete
    "OpenAI Responses": {
        "completed": "whole",
        "max_output_tokens": "cut",
        "incomplete": "cut",
        "content_filter": "filtered",
        "failed": "failed",
        "cancelled": "failed",
        "queued": "failed",
        "in_progress": "failed",
    },
    "Anthropic": {
        "end_turn": "whole",
        "stop_sequence": "whole",
        "tool_use": "tool",
        "max_tokens": "cut",
        "model_context_window_exceeded": "cut",
        "pause_turn": "cut",
        "refusal": "filtered",
    },
    "Gemini": {
        "stop": "whole",
        "max_tokens": "cut",
        "safety": "filtered",
        "recitation": "filtered",
        "language": "filtered",
        "blocklist": "filtered",
        "prohibited_content": "filtered",
        "spii": "filtered",
        "model_armor": "filtered",
        "image_safety": "filtered",
        "image_prohibited_content": "filtered",
        "image_recitation": "filtered",
        "malformed_function_call": "failed",
        "unexpected_tool_call": "failed",
        "too_many_tool_calls": "failed",
        "malformed_response": "failed",
        "missing_thought_signature": "failed",
    },
    "DeepSeek": {
        "stop": "whole",
        "tool_calls": "tool",
        "length": "cut",
        "content_filter": "filtered",
        "insufficient_system_resource": "failed",
    },
    "Mistral": {
        "stop": "whole",
        "tool_calls": "tool",
        "length": "cut",
        "model_length": "cut",
        "error": "failed",
    },
    "GLM": {
        "stop": "whole",
        "tool_calls": "tool",
        "length": "cut",
        "model_context_window_exceeded": "cut",
        "sensitive": "filtered",
        "network_error": "failed",
    },
    "OpenRouter": {
        "stop": "whole",
        "tool_calls": "tool",
        "length": "cut",
        "content_filter": "filtered",
        "error": "failed",
    },
    "vLLM": {
        "stop": "whole",
        "tool_calls": "tool",
        "length": "cut",
        "repetition": "cut",
        "abort": "failed",
        "error": "failed",
    },
    "SGLang": {
        "stop": "whole",
        "tool_calls": "tool",
        "length": "cut",
        "abort": "failed",
    },
    "llama-server": {
        "stop": "whole",
        "tool_calls": "tool",
        "length": "cut",
    },
    # Of its own API, too: a model that is loaded or unloaded in the middle of a reply
    "Ollama": {
        "stop": "whole",
        "tool_calls": "tool",
        "length": "cut",
        "load": "failed",
        "unload": "failed",
    },
    # Text Generation Inference, and gateways that pass on words of servers that they stand before
    "others": {
        "eos": "whole",
        "eos_token": "whole",
        "timeout": "failed",
        "canceled": "failed",
        "aborted": "failed",
    },
}
"""The words of each API, in lower case. No word has two meanings."""

_MEANINGS: Final[Mapping[str, EndMeaning]] = ChainMap(*map(dict, END_WORDS.values()))
_FINISHES: Final[Mapping[EndMeaning, Finish]] = {
    "whole": "stop",
    "tool": "tool",
    "cut": "length",
    "filtered": "refusal",
}
_TOKEN_LIMITS: Final = frozenset({"length", "max_tokens", "max_output_tokens"})
"""The words for a limit on a reply's tokens that was reached, as every reader understands."""

NO_END_WORD: Final = (
    "ended the reply without saying why; if the answer seems to be cut short, ask again"
)
"""The notice about a reply that only `[DONE]` ended."""


def meaning_of(word: str) -> EndMeaning | None:
    """Return what an end word means; None for one that no API of the table has."""
    return _MEANINGS.get(word.lower())


def finish_of(word: str) -> Finish:
    """Return how a reply ended by its end word; `other` for one that nobody has documented.

    Raises `ModelError` for a word that says that the server failed.
    """
    meaning = meaning_of(word)
    if meaning is None:
        return "other"
    if meaning == "failed":
        message = f"the server broke the reply off: finish_reason {one_line(word)!r:.82}"
        raise ModelError("overloaded", message)
    return _FINISHES[meaning]


def note_of(word: str) -> str:
    """Return what the user is told of an end word, empty where `Finish` says it all."""
    meaning = meaning_of(word)
    if meaning is None:
        shown = f"{one_line(word)!r:.82}"
        return f"ended the reply with {shown}, which is no end that its API documents"
    if meaning == "cut" and word.lower() not in _TOKEN_LIMITS:
        return f"cut the reply off: {word.lower()}"
    return ""

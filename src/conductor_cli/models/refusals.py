"""What a server refuses of a request, read from its error, so that the rest is sent again. Pure.

The words are those of the servers that `api_errors` names, as of November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from conductor_cli.models.api_errors import ErrorBody

MAX_TOKENS_FIELDS: Final = ("max_tokens", "max_completion_tokens")
"""The two names of the limit on a reply's tokens. A server that refuses one is sent the other."""

CONSTRAINT_FIELDS: Final = ("grammar", "structured_outputs", "ebnf", "response_format")
"""The fields that constrain a reply's form. A request has at most one of them."""

STREAM_FIELDS: Final = ("stream", "stream_options")
"""The fields that ask for a reply in pieces; without them it comes whole."""

OPTIONAL_FIELDS: Final = (
    "temperature",
    "stream_options",
    "stream",
    "seed",
    "stop",
    "reasoning_effort",
    "chat_template_kwargs",
    "top_p",
    "top_k",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "thinking",
    "reasoning",
    "parallel_tool_calls",
    *CONSTRAINT_FIELDS,
)
"""What may be left out of a request that a server refuses, unless it is one of the worker's own
settings.
"""

_CONSTRAINT_WORDS: Final = re.compile(
    r"grammar|\bebnf\b|\bgbnf\b|json[ _-]?schema|(?:response|output)[ _-]format"
    r"|structured[ _-]outputs?|\bguided|\bschema produces a constraint",
    re.IGNORECASE,
)
"""How servers speak of a constraint that they do not support, if they do not name the field."""

_STREAM_WORDS: Final = re.compile(
    r"to stream this model|(?:not|n't|un)\s?support(?:ed)?\b.{0,20}\bstream"
    r"|\bstream(?:ing|ed)?\b.{0,30}(?:not|n't|un)\s?(?:support|allow|enabled|available)",
    re.IGNORECASE,
)
"""How servers say that a model's reply does not come in pieces."""


def rejected_parameter(
    reported: ErrorBody, body: Mapping[str, Any], renamed: Mapping[str, str]
) -> str:
    """Return the parameter of `body` that a server gives as the reason for its refusal.

    Empty if it names none.

    `renamed` has the server's own names in snake case; it may also write them in camel case or as
    words.
    """
    snake = (
        re.sub(r"(?<=[a-z])(?=[A-Z])", "_", f"{reported.parameter} {reported.message}")
        .lower()
        .replace(" ", "_")
    )
    for name_of_server, name in renamed.items():
        if name in body and name_of_server in snake:
            return name
    sent = [name for name in (*MAX_TOKENS_FIELDS, *OPTIONAL_FIELDS) if name in body]
    for name in sent:
        if name == reported.parameter or re.search(rf"""['"`]{name}\b""", reported.message):
            return name
    for name in sent:
        # Without quotes, `seed` or `stop` may be any word of the message.
        if ("_" in name or name == "temperature") and re.search(rf"\b{name}\b", reported.message):
            return name
    if "stream" in body and _STREAM_WORDS.search(reported.message):
        return "stream"
    constraints = [name for name in sent if name in CONSTRAINT_FIELDS]
    if constraints and _CONSTRAINT_WORDS.search(reported.message):
        return constraints[0]
    return ""


_SYSTEM_WORDS: Final = re.compile(
    r"\bsystem (?:role|messages?|prompts?|instructions?)\b.{0,40}"
    r"(?:not|n't|un)\s?(?:support|allow|enabled)"
    r"|(?:not|n't|un)\s?support(?:ed)?\b.{0,30}\bsystem (?:role|messages?|prompts?|instructions?)"
    r"|\brole'? does not support '(?:system|developer)'|developer instruction is not enabled"
    r"|(?:only|must be).{0,30}\buser\b.{0,30}\bassistant\b.{0,30}\broles?\b"
    r"|\broles?\b.{0,30}(?:must|should) alternate",
    re.IGNORECASE,
)
"""How servers say that a model's template has no place for a system message."""


def refuses_system_messages(reported: ErrorBody) -> bool:
    """Return whether a server refuses a conversation for its system message."""
    return _SYSTEM_WORDS.search(reported.message) is not None


_ORDER_WORDS: Final = re.compile(
    r"""
    \broles?\b.{0,30}\b(?:must|should)\ alternate | \bmust\ alternate\ between\b
    | \bshould\ alternate\ with\ assistant | \brequests\ alternate\ between\b
    | \bmultiple\ "\w+"\ roles\ in\ a\ row | \bsuccessive\ user\ or\ assistant\ messages
    | \bunexpected\ role\b.{0,20}\bafter\ role | \bexpected\ last\ role
    | \bfirst\ message\ must\b.{0,20}\buser\b | \blast\ message\b.{0,60}\buser\b
    | \bmust\ (?:start|begin|end)\ with\ a\ user\ message
    | \bassistant\ (?:message|response)\ prefill | \bassistant\ messages\ at\ the\ end
    | \bturn\ comes\ immediately\ after
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""How servers refuse messages that are not questions and answers by turns.

Mistral, Gemma and llama-server by their templates, Anthropic, Bedrock, Google, DeepSeek and
Perplexity.
"""


def refuses_order(reported: ErrorBody) -> bool:
    """Return whether a server refuses a conversation for the order of its messages."""
    return _ORDER_WORDS.search(reported.message) is not None


_WANTED_THINKING: Final = re.compile(
    r"\breasoning_content\b.{0,80}\b(?:missing|passed back|required)"
    r"|\bmissing\b.{0,20}\breasoning_content\b",
    re.IGNORECASE,
)
"""How DeepSeek and Moonshot ask for the thinking of earlier turns."""


def wants_thinking(reported: ErrorBody) -> bool:
    """Return whether a server refuses a conversation for turns without their thinking."""
    return _WANTED_THINKING.search(reported.message) is not None


_KEPT_WORDS: Final = re.compile(
    r"\b(?:reasoning_content|reasoning_details|thinking_blocks)\b.{0,80}"
    r"\b(?:un|not )(?:supported|known|permitted|allowed)"
    r"|\bmismatch\b.{0,40}\breasoning_?details?\b",
    re.IGNORECASE,
)
"""How Groq, Cerebras and MiniMax refuse the thinking of earlier turns."""


def refuses_kept_thinking(reported: ErrorBody) -> bool:
    """Return whether a server refuses to be sent the thinking of earlier turns back."""
    return _KEPT_WORDS.search(f"{reported.place} {reported.message}") is not None


_CALLS_WORDS: Final = re.compile(
    r"\btoolconfig field must be defined|\bmust define tools\b|\bwithout .?tools=.? param"
    r"|\bexpects the .?tools=",
    re.IGNORECASE,
)
"""How Bedrock, Anthropic and litellm refuse calls in a conversation without tools."""


def refuses_calls(reported: ErrorBody) -> bool:
    """Return whether a server refuses a conversation for its calls, since it offers no tools."""
    return _CALLS_WORDS.search(reported.message) is not None


_CHOICE_WORDS: Final = re.compile(
    r"\btool_choice\b.{0,40}\b(?:not|n't) support|\bnot support\b.{0,40}\btool_choice\b"
    r"|\btool_choice forces\b",
    re.IGNORECASE,
)
"""How DeepSeek, Alibaba and Anthropic say that a model cannot be made to call a tool."""


def refuses_tool_choice(reported: ErrorBody) -> bool:
    """Return whether a model may not be made to call a tool, as one that thinks."""
    return _CHOICE_WORDS.search(reported.message) is not None


_UNSIGNED_WORDS: Final = re.compile(
    r"\bexpected .?thinking.? or .?redacted_thinking.?, but found", re.IGNORECASE
)
"""How Anthropic says that a turn whose calls are answered now must begin with its thinking."""


def refuses_thinking(reported: ErrorBody) -> bool:
    """Return whether a model may not think before it goes on, since an earlier part is missing."""
    return _UNSIGNED_WORDS.search(reported.message) is not None


_DETAIL_WORDS: Final = re.compile(
    r"'auto', '(?:low|high)'|image_url\W.{0,20}\bdetail\b|content\[\d+\]\.detail\b"
    r"|\bmedia_?resolution",
    re.IGNORECASE,
)
"""How servers name the detail of an image where they refuse it."""


def refuses_image_detail(reported: ErrorBody) -> bool:
    """Return whether a server refuses how closely an image is to be looked at."""
    named = reported.place.endswith("detail")
    return named or _DETAIL_WORDS.search(reported.message) is not None


UNKNOWN_ITEMS: Final = "arrays that do not say what they hold"
OTHER_SCRIPTS: Final = "names of arguments in other scripts"
SCHEMA_INSTEAD: Final[Mapping[str, str]] = {
    UNKNOWN_ITEMS: "as arrays of anything",
    OTHER_SCRIPTS: "with other names, and their own as titles",
}
"""What stands among the fields that a server refuses for the schemas of tools, and what it is sent
instead.
"""

_SCHEMA_WORDS: Final[Mapping[str, re.Pattern[str]]] = {
    UNKNOWN_ITEMS: re.compile(r"\barray schema missing items\b|\bitems: missing field\b"),
    OTHER_SCRIPTS: re.compile(r"\bproperty keys should match pattern\b", re.IGNORECASE),
}
"""How OpenAI and Google ask what an array holds, and Anthropic for other names, also through
others.
"""


def refused_in_schemas(reported: ErrorBody) -> str:
    """Return what a server refuses in the schemas of tools; empty where that is nothing."""
    for refused, words in _SCHEMA_WORDS.items():
        if words.search(reported.message) is not None:
            return refused
    return ""


SHORT_REPLY_TOKENS: Final = 4096
"""Tokens of a reply below which nothing shorter is asked for."""

MIN_REPLY_TOKENS: Final = 256
"""Tokens of a reply that are worth asking for. With less room the conversation must become
shorter.
"""

STOPS: Final = "so many stop texts"
DESCRIPTIONS: Final = "such long descriptions of tools"
"""Stand among the fields that a server refuses where it takes fewer, or shorter ones."""

_AMOUNTS: Final[Mapping[str, re.Pattern[str]]] = {
    STOPS: re.compile(
        r"\bstop(?:_sequences)?\b.{0,60}(?:maximum length|must not exceed|>) ?(\d{1,3})\b"
    ),
    DESCRIPTIONS: re.compile(r"\.description\b.{0,60}maximum length (\d{2,6})\b"),
}
"""How OpenAI, Google and Groq say how many of the one, or characters of the other, they take."""


def allowed_amount(message: str) -> tuple[str, int] | None:
    """Return of which of these a server takes only so much; None where that is not the reason."""
    for what, words in _AMOUNTS.items():
        match = words.search(message)
        if match is not None:
            return what, int(match[1])
    return None


_OUTPUT_LIMIT: Final = re.compile(
    r"""
    supports\ at\ most\ (\d{1,7})\ (?:completion|output)\ tokens
    | max_tokens:\ \d+\ >\ (\d{1,7})\b
    | max(?:_completion|_output)?_tokens\W.{0,80}?
        (?:<=\ |less\ than\ or\ equal\ to\ `?|\[1,\s?)(\d{1,7})
    """,
    re.VERBOSE,
)


def largest_output(message: str) -> int | None:
    """Return the most tokens that a model ever writes.

    None unless `message` refuses a request for asking for more.
    """
    match = _OUTPUT_LIMIT.search(message)
    if match is None:
        return None
    return int(match[match.lastindex or 0])


_ABOUT_REPLY: Final = re.compile(r"completion|output tokens|max(?:_completion|_output)?_tokens")

_LENGTHS_IN_MESSAGE: Final = re.compile(
    r"""
    context\ length\ is\s+(?P<context>\d{1,8})\ tokens
        .*?(?:\((?P<messages>\d{1,8})\ in\ the\ messages
            | request\ has\ (?P<input>\d{1,8})\ input\ tokens)
    | context\ limit:\ (?P<read>\d{1,8})\ \+\ \d{1,8}\ >\ (?P<limit>\d{1,8})
    """,
    re.VERBOSE,
)
"""The length of a context, and that of the prompt."""


def shorter_output(message: str, limit: int) -> int | None:
    """Return a limit below `limit` if `message` says that prompt and reply do not fit together.

    None if none helps. Some servers say how long the prompt is. For others a quarter is tried.
    """
    if limit <= SHORT_REPLY_TOKENS or not _ABOUT_REPLY.search(message):
        return None
    match = _LENGTHS_IN_MESSAGE.search(message)
    if match is None:
        return max(limit // 4, SHORT_REPLY_TOKENS)
    context_tokens = int(match["context"] or match["limit"])
    prompt_tokens = int(match["messages"] or match["input"] or match["read"])
    room = context_tokens - prompt_tokens
    return room if MIN_REPLY_TOKENS <= room < limit else None

"""The JSON events of known agents, one reader for each; a preset in `programs.toml` names it.

What every reader of an agent's events gives: text, thinking, and what the call used. Pure.

`claude -p --output-format stream-json --verbose` (2.1.197): messages in Anthropic's form, then one result.

`codex exec --json` (0.169.0): items with messages, reasoning and tools; usage at the end of a turn; no cost.

`gemini --output-format stream-json` (0.61.0): pieces of messages, tools, then one result with tokens and no cost.

`opencode run --format json --thinking` (1.18.33): parts of messages; each step says its tokens and its cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final, Protocol

from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.usage import NO_USAGE, Usage, stated_dollars, token_count

LONGEST_LINE: Final = 200
"""Characters of a line about a tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one event adds. `text` is a message of the agent, or the beginning of one if more follows (`open`).

    Of several messages only the last is the answer. `thinking` is what it thinks, or does with a tool, `note` something
    that went wrong and did not stop it. `usage` is that of the whole call so far, `error` why the agent gave up.
    """

    text: str = ""
    open: bool = False
    thinking: str = ""
    note: str = ""
    usage: Usage | None = None
    error: str = ""


NOTHING: Final = Piece()


class EventReader(Protocol):
    """Reads the events of one call, in order. No event is trusted to have the right form."""

    def read(self, event: Mapping[str, Any]) -> Piece: ...


def text_of(value: object) -> str:
    """A text, or an empty one for anything else."""
    return value if isinstance(value, str) else ""


def table_of(value: object) -> Mapping[str, Any]:
    """An object of JSON, or an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def tables_of(value: object) -> Iterable[Mapping[str, Any]]:
    """The objects in a list of JSON; none for anything else."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def cost_of(value: object) -> Decimal | None:
    """US dollars as an agent states them. 0 means that it does not know, since these calls are never free."""
    return stated_dollars(value) or None


def tool_line(name: str, what: object = "", *, failed: bool = False) -> str:
    """A line about a tool that was used, in brackets: `[bash: ls]`."""
    shown = one_line(
        what if isinstance(what, str) else " ".join(f"{key}={value}" for key, value in table_of(what).items())
    )
    line = f"{one_line(name)}: {shown}" if shown else one_line(name)
    line = line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"
    return f"[{line}{', failed' if failed else ''}]\n"


def paragraph(text: str) -> str:
    """Thinking that comes in one piece, as a line of its own."""
    return f"{text.rstrip()}\n" if text.strip() else ""


class ClaudeCode:
    """Reads the events of one call."""

    def read(self, event: Mapping[str, Any]) -> Piece:
        """What one event adds."""
        match event.get("type"):
            # What a subagent says belongs to the tool call that started it.
            case "assistant" if not event.get("parent_tool_use_id"):
                return _message(table_of(event.get("message")))
            case "user":
                return _tool_results(table_of(event.get("message")))
            case "result":
                return _result(event)
        return NOTHING


def _message(message: Mapping[str, Any]) -> Piece:
    text = thinking = ""
    for block in tables_of(message.get("content")):
        match block.get("type"):
            case "text":
                text += text_of(block.get("text"))
            case "thinking":
                thinking += paragraph(text_of(block.get("thinking")))
            case "tool_use":
                given = table_of(block.get("input"))
                thinking += tool_line(text_of(block.get("name")), given.get("command") or given)
    return Piece(text=text, thinking=thinking)


def _tool_results(message: Mapping[str, Any]) -> Piece:
    failed = [block for block in tables_of(message.get("content")) if block.get("is_error") is True]
    return Piece(thinking="".join(tool_line("result", text_of(block.get("content")), failed=True) for block in failed))


def _result(event: Mapping[str, Any]) -> Piece:
    text, usage = text_of(event.get("result")), _usage_of_call(event)
    if event.get("is_error") is True or event.get("subtype") != "success":
        return Piece(usage=usage, error=text or text_of(event.get("subtype")))
    return Piece(usage=usage, text=text)


def _usage_of_call(event: Mapping[str, Any]) -> Usage:
    """The tokens and the cost of the whole call; cached tokens are counted beside the input tokens."""
    usage = table_of(event.get("usage"))
    cached, stored = (
        token_count(usage.get("cache_read_input_tokens")),
        token_count(usage.get("cache_creation_input_tokens")),
    )
    return Usage(
        tokens_in=token_count(usage.get("input_tokens")) + cached + stored,
        tokens_out=token_count(usage.get("output_tokens")),
        tokens_cached=cached,
        tokens_stored=stored,
        cost=cost_of(event.get("total_cost_usd")),
        calls=1,
    )


class Codex:
    """Reads the events of one call."""

    def read(self, event: Mapping[str, Any]) -> Piece:
        """What one event adds."""
        match event.get("type"):
            case "item.completed":
                return _item(table_of(event.get("item")))
            case "turn.completed":
                return Piece(usage=_usage_of_turn(table_of(event.get("usage"))))
            case "turn.failed":
                return Piece(error=text_of(table_of(event.get("error")).get("message")))
            case "error":  # also said of each attempt to reconnect
                return Piece(note=text_of(event.get("message")))
        return NOTHING


def _item(item: Mapping[str, Any]) -> Piece:
    text = text_of(item.get("text")) or text_of(item.get("message"))
    match item.get("type"):
        case "agent_message":
            return Piece(text=text)
        case "reasoning":
            return Piece(thinking=paragraph(text))
        case "error":
            return Piece(note=text)
    return Piece(thinking=_item_line(item))


def _item_line(item: Mapping[str, Any]) -> str:
    """A line about a tool; empty for what is none."""
    match item.get("type"):
        case "command_execution":
            return tool_line("command", item.get("command"), failed=item.get("exit_code") not in (0, None))
        case "file_change":
            return tool_line("change", " ".join(text_of(each.get("path")) for each in tables_of(item.get("changes"))))
        case "mcp_tool_call":
            return tool_line(f"{text_of(item.get('server'))}.{text_of(item.get('tool'))}")
        case "web_search":
            return tool_line("web search", item.get("query"))
    return ""


def _usage_of_turn(usage: Mapping[str, Any]) -> Usage:
    """The tokens of the whole call; those read from the cache are among the input tokens."""
    return Usage(
        tokens_in=token_count(usage.get("input_tokens")),
        tokens_out=token_count(usage.get("output_tokens")),
        tokens_cached=token_count(usage.get("cached_input_tokens")),
        tokens_stored=token_count(usage.get("cache_write_input_tokens")),
        tokens_reasoning=token_count(usage.get("reasoning_output_tokens")),
        calls=1,
    )


class GeminiCli:
    """Reads the events of one call."""

    def read(self, event: Mapping[str, Any]) -> Piece:
        """What one event adds."""
        match event.get("type"):
            case "message" if event.get("role") == "assistant":
                return Piece(text=text_of(event.get("content")), open=event.get("delta") is True)
            case "tool_use":
                given = table_of(event.get("parameters"))
                return Piece(thinking=tool_line(text_of(event.get("tool_name")), given.get("command") or given))
            case "tool_result" if event.get("status") == "error":
                said = text_of(table_of(event.get("error")).get("message")) or text_of(event.get("output"))
                return Piece(thinking=tool_line("result", said, failed=True))
            case "error":
                return Piece(note=text_of(event.get("message")))
            case "result":
                failed = event.get("status") != "success"
                why = text_of(table_of(event.get("error")).get("message")) or "the call failed"
                return Piece(usage=_usage_of_stats(table_of(event.get("stats"))), error=why if failed else "")
        return NOTHING


def _usage_of_stats(stats: Mapping[str, Any]) -> Usage:
    """The tokens of the whole call. What it thought is in the total only; cached tokens are among the input tokens."""
    read, written = token_count(stats.get("input_tokens")), token_count(stats.get("output_tokens"))
    thought = max(0, token_count(stats.get("total_tokens")) - read - written)
    return Usage(
        tokens_in=read, tokens_out=written + thought, tokens_cached=token_count(stats.get("cached")),
        tokens_reasoning=thought, calls=1,
    )  # fmt: skip


class Opencode:
    """Reads the events of one call, and adds up the usage of its steps."""

    def __init__(self) -> None:
        self._usage = NO_USAGE
        self._is_priced = True

    def read(self, event: Mapping[str, Any]) -> Piece:
        """What one event adds."""
        part = table_of(event.get("part"))
        match event.get("type"):
            case "text":
                return Piece(text=text_of(part.get("text")))
            case "reasoning":
                return Piece(thinking=paragraph(text_of(part.get("text"))))
            case "tool_use":
                return _tool(part)
            case "step_finish":
                return Piece(usage=self._add(part))
            case "error":
                error = table_of(event.get("error"))
                message = text_of(table_of(error.get("data")).get("message"))
                return Piece(error=message or text_of(error.get("name")) or "the call failed")
        return NOTHING

    def _add(self, part: Mapping[str, Any]) -> Usage:
        step = _usage_of_step(part)
        # A sum in which one cost is missing would be too low.
        self._is_priced = self._is_priced and step.cost is not None
        self._usage += step
        return replace(self._usage, calls=1, cost=self._usage.cost if self._is_priced else None)


def _tool(part: Mapping[str, Any]) -> Piece:
    state = table_of(part.get("state"))
    given = table_of(state.get("input"))
    failed = state.get("status") == "error"
    what = text_of(state.get("title")) or given.get("command") or given
    return Piece(thinking=tool_line(text_of(part.get("tool")), what, failed=failed))


def _usage_of_step(part: Mapping[str, Any]) -> Usage:
    """Cached tokens are counted beside the input tokens, and reasoning beside the output."""
    tokens = table_of(part.get("tokens"))
    cache = table_of(tokens.get("cache"))
    cached, stored, thought = (
        token_count(value) for value in (cache.get("read"), cache.get("write"), tokens.get("reasoning"))
    )
    return Usage(
        tokens_in=token_count(tokens.get("input")) + cached + stored,
        tokens_out=token_count(tokens.get("output")) + thought,
        tokens_cached=cached,
        tokens_stored=stored,
        tokens_reasoning=thought,
        cost=cost_of(part.get("cost")),
    )


READERS: Final[Mapping[str, Callable[[], EventReader]]] = {
    "claude-code": ClaudeCode,
    "codex": Codex,
    "gemini-cli": GeminiCli,
    "opencode": Opencode,
}

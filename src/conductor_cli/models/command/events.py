"""Readers of the JSON events of known agents, by the names that `programs.toml` uses.

Pure; no event is trusted.

- `claude -p --output-format stream-json --verbose` (2.1.332): messages in Anthropic's form, then
  a result for each turn; what its sub-agents do in the background begins further turns.
- `codex exec --json` (0.171.0): items with messages, reasoning and tools; usage at the end of a
  turn, without that of its sub-agents; no cost.
- `gemini --output-format stream-json` (0.61.0): pieces of messages, tools, then one result with
  tokens and no cost.
- `opencode run --format json --thinking` (1.18.33): parts of messages; each step says its tokens
  and its cost.

A cost of 0 means that the agent does not know it, since these calls are never free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.usage import NO_USAGE, Usage, stated_dollars, token_count, whole_input
from conductor_cli.models.base import table_of, tables_in, text_of
from conductor_cli.models.chat_apis.anthropic import usage_as_chat
from conductor_cli.models.chat_usage import usage_of

MAX_ACTION_LINE: Final = 200  # characters of a line about a tool


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOutput:
    """What one event adds.

    `text` is a message of the agent, or the beginning of one if more follows (`open`). Of several
    messages only the last is the answer. `thinking` is what it thinks, or does with a tool, `note`
    something that went wrong and did not stop it. `usage` is that of the whole call so far, `error`
    why the agent gave up.
    """

    text: str = ""
    open: bool = False
    thinking: str = ""
    note: str = ""
    usage: Usage | None = None
    error: str = ""


EventReader = Callable[[Mapping[str, Any]], AgentOutput]  # reads the events of one call, in order


def tool_line(name: object, action: object = "", *, failed: bool = False) -> str:
    """Return a line about a tool that was used, in brackets: `[bash: ls]`.

    `action` are words or its arguments.
    """
    arguments = table_of(action)
    pairs = " ".join(f"{key}={value}" for key, value in arguments.items())
    shown = one_line(text_of(action) or text_of(arguments.get("command")) or pairs)
    line = one_line(text_of(name))
    if shown:
        line += f": {shown}"
    if len(line) > MAX_ACTION_LINE:
        line = f"{line[: MAX_ACTION_LINE - 1]}…"
    if failed:
        line += ", failed"
    return f"[{line}]\n"


def paragraph(text: str) -> str:
    """Return thinking that comes in one piece as a line of its own."""
    if not text.strip():
        return ""
    return f"{text.rstrip()}\n"


class ClaudeCodeReader:
    """Adds up what the results of one call say of its models.

    `usage` of a result leaves out sub-agents and earlier turns. Newer versions have beside it what
    each model used since the result before (`model_usage_since_last_result`); `modelUsage` also
    has what earlier calls used where a session goes on.
    """

    def __init__(self) -> None:
        self._usage = NO_USAGE
        self._is_priced = True

    def __call__(self, event: Mapping[str, Any]) -> AgentOutput:
        blocks = tables_in(table_of(event.get("message")).get("content"))
        match event.get("type"):
            # What a subagent says belongs to the tool call that started it.
            case "assistant" if not event.get("parent_tool_use_id"):
                return _read_claude_blocks(blocks)
            case "user":
                failures = ""
                for block in blocks:
                    if block.get("is_error") is True:
                        message = text_of(block.get("content"))
                        failures += tool_line("result", message, failed=True)
                return AgentOutput(thinking=failures)
            case "result":
                usage = self._usage_at(event)
                text = text_of(event.get("result"))
                if event.get("is_error") is True or event.get("subtype") != "success":
                    return AgentOutput(usage=usage, error=text or _why_claude_failed(event))
                return AgentOutput(usage=usage, text=text)
        return AgentOutput()

    def _usage_at(self, result: Mapping[str, Any]) -> Usage:
        """Return the usage of the whole call, with that of a result."""
        since = result.get("model_usage_since_last_result")
        if isinstance(since, Mapping):
            used = _used_by_models(since)
            self._usage += used
            self._is_priced = self._is_priced and (not used.tokens or used.cost is not None)
            total = self._usage
            cost = total.cost if self._is_priced else None
        else:
            models = table_of(result.get("modelUsage"))
            total = _used_by_models(models)
            cost = None
            if not any(map(_is_guessed, models.values())):
                cost = stated_dollars(result.get("total_cost_usd"))
        if not total.tokens:  # an older version, or one that ended before it counted
            total = usage_of(usage_as_chat(table_of(result.get("usage"))))
        return replace(total, calls=1, cost=cost or None)


def _read_claude_blocks(blocks: Iterable[Mapping[str, Any]]) -> AgentOutput:
    text = ""
    thinking = ""
    for block in blocks:
        match block.get("type"):
            case "text":
                text += text_of(block.get("text"))
            case "thinking":
                thinking += paragraph(text_of(block.get("thinking")))
            case "tool_use":
                thinking += tool_line(block.get("name"), block.get("input"))
    return AgentOutput(text=text, thinking=thinking)


def _used_by_models(models: Mapping[str, Any]) -> Usage:
    """Return what models used together. Its cost is None where that of one is not known."""
    total = NO_USAGE
    is_priced = True
    for counts in map(table_of, models.values()):
        details = {"thinking_tokens": counts.get("thinkingTokens")}
        chat = usage_as_chat(
            {
                "input_tokens": counts.get("inputTokens"),
                "cache_read_input_tokens": counts.get("cacheReadInputTokens"),
                "cache_creation_input_tokens": counts.get("cacheCreationInputTokens"),
                "output_tokens": counts.get("outputTokens"),
                "output_tokens_details": details,
            }
        )
        cost = None
        if not _is_guessed(counts):
            cost = stated_dollars(counts.get("costUSD")) or None
        total += replace(usage_of(chat), cost=cost)
        is_priced = is_priced and cost is not None
    return total if is_priced else replace(total, cost=None)


def _is_guessed(counts: object) -> bool:
    """Return whether Claude Code has no price for a model, and reckoned with that of another."""
    return table_of(counts).get("costBasis") == "unknown"


def _why_claude_failed(result: Mapping[str, Any]) -> str:
    """Return the reasons of a result without a text, such as a limit of the agent's own."""
    reasons = result.get("errors")
    texts = [text_of(reason) for reason in reasons] if isinstance(reasons, list) else []
    return "; ".join(filter(None, texts)) or text_of(result.get("subtype"))


class CodexReader:
    """Tells once that what the sub-agents of one call used is not counted."""

    def __init__(self) -> None:
        self._has_told = False

    def __call__(self, event: Mapping[str, Any]) -> AgentOutput:
        output = _read_codex(event)
        item = table_of(event.get("item"))
        is_new_agent = item.get("type") == "collab_tool_call" and item.get("tool") == "spawn_agent"
        if is_new_agent and not self._has_told:
            self._has_told = True
            return replace(output, note=SUBAGENTS_UNCOUNTED)
        return output


SUBAGENTS_UNCOUNTED: Final = (
    "codex does not say what its sub-agents used: the tokens of this call are more than are counted"
)


def _read_codex(event: Mapping[str, Any]) -> AgentOutput:
    match event.get("type"):
        case "item.completed":
            return _read_codex_item(table_of(event.get("item")))
        case "turn.completed":
            counts = table_of(event.get("usage"))
            cached = token_count(counts.get("cached_input_tokens"))  # among the input tokens
            stored = token_count(counts.get("cache_write_input_tokens"))
            usage = Usage(
                tokens_in=whole_input(token_count(counts.get("input_tokens")), cached, stored),
                tokens_out=token_count(counts.get("output_tokens")),
                tokens_cached=cached,
                tokens_stored=stored,
                tokens_reasoning=token_count(counts.get("reasoning_output_tokens")),
                calls=1,
            )
            return AgentOutput(usage=usage)
        case "turn.failed":
            return AgentOutput(error=text_of(table_of(event.get("error")).get("message")))
        case "error":  # also said of each attempt to reconnect
            return AgentOutput(note=text_of(event.get("message")))
    return AgentOutput()


def _read_codex_item(item: Mapping[str, Any]) -> AgentOutput:
    text = text_of(item.get("text")) or text_of(item.get("message"))
    failed = item.get("status") == "failed"
    line = ""
    match item.get("type"):
        case "agent_message":
            return AgentOutput(text=text)
        case "reasoning":
            line = paragraph(text)
        case "error":
            return AgentOutput(note=text)
        case "command_execution":
            failed = item.get("exit_code") not in (0, None)
            line = tool_line("command", item.get("command"), failed=failed)
        case "file_change":
            changes = tables_in(item.get("changes"))
            paths = " ".join(text_of(change.get("path")) for change in changes)
            line = tool_line("change", paths, failed=failed)
        case "mcp_tool_call":
            name = f"{text_of(item.get('server'))}.{text_of(item.get('tool'))}"
            line = tool_line(name, failed=failed)
        case "web_search":
            line = tool_line("web search", item.get("query"))
        case "collab_tool_call":
            line = tool_line(item.get("tool"), item.get("prompt"), failed=failed)
    return AgentOutput(thinking=line)


def read_gemini_cli(event: Mapping[str, Any]) -> AgentOutput:
    """Return what an event of the Gemini CLI adds."""
    error = text_of(table_of(event.get("error")).get("message"))
    match event.get("type"):
        case "message" if event.get("role") == "assistant":
            return AgentOutput(text=text_of(event.get("content")), open=event.get("delta") is True)
        case "tool_use":
            return AgentOutput(thinking=tool_line(event.get("tool_name"), event.get("parameters")))
        case "tool_result" if event.get("status") == "error":
            message = error or text_of(event.get("output"))
            return AgentOutput(thinking=tool_line("result", message, failed=True))
        case "error":
            return AgentOutput(note=text_of(event.get("message")))
        case "result":
            counts = table_of(event.get("stats"))
            usage = usage_of(
                {  # what it thought is in the total only
                    "prompt_tokens": counts.get("input_tokens"),
                    "completion_tokens": counts.get("output_tokens"),
                    "total_tokens": counts.get("total_tokens"),
                    "prompt_tokens_details": {"cached_tokens": counts.get("cached")},
                }
            )
            if event.get("status") == "success":
                return AgentOutput(usage=usage)
            return AgentOutput(usage=usage, error=error or "the call failed")
    return AgentOutput()


class OpencodeReader:
    """Adds up the usage of the steps of one call."""

    def __init__(self) -> None:
        self._usage = NO_USAGE
        self._is_priced = True

    def __call__(self, event: Mapping[str, Any]) -> AgentOutput:
        part = table_of(event.get("part"))
        match event.get("type"):
            case "text":
                return AgentOutput(text=text_of(part.get("text")))
            case "reasoning":
                return AgentOutput(thinking=paragraph(text_of(part.get("text"))))
            case "tool_use":
                state = table_of(part.get("state"))
                action = text_of(state.get("title")) or state.get("input")
                failed = state.get("status") == "error"
                return AgentOutput(thinking=tool_line(part.get("tool"), action, failed=failed))
            case "step_finish":
                return AgentOutput(usage=self._add_step(part))
            case "error":
                error = table_of(event.get("error"))
                message = text_of(table_of(error.get("data")).get("message"))
                return AgentOutput(error=message or text_of(error.get("name")) or "the call failed")
        return AgentOutput()

    def _add_step(self, part: Mapping[str, Any]) -> Usage:
        """Return the usage of the whole call, after a step of it."""
        counts = table_of(part.get("tokens"))
        cache = table_of(counts.get("cache"))
        cached = token_count(cache.get("read"))
        stored = token_count(cache.get("write"))
        thought = token_count(counts.get("reasoning"))
        cost = stated_dollars(part.get("cost")) or None
        # Cached tokens are counted beside the input tokens, and reasoning beside the output.
        self._usage += Usage(
            tokens_in=token_count(counts.get("input")) + cached + stored,
            tokens_out=token_count(counts.get("output")) + thought,
            tokens_cached=cached,
            tokens_stored=stored,
            tokens_reasoning=thought,
            cost=cost,
        )
        self._is_priced = self._is_priced and cost is not None
        if not self._is_priced:  # a sum in which one cost is missing would be too low
            return replace(self._usage, calls=1, cost=None)
        return replace(self._usage, calls=1)


READERS: Final[Mapping[str, Callable[[], EventReader]]] = {
    "claude-code": ClaudeCodeReader,
    "codex": CodexReader,
    "gemini-cli": lambda: read_gemini_cli,
    "opencode": OpencodeReader,
}

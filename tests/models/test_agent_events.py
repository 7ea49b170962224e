"""The events of agents, as the programs wrote them (`agent_events/`).

Answer, thinking, usage, cost, failure.
"""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.core.chat import Chunk
from conductor_cli.core.errors import ModelError
from conductor_cli.core.redact import Secrets
from conductor_cli.core.usage import Usage
from conductor_cli.models.command.adapter import MAX_EVENT_BYTES, EventReply
from conductor_cli.models.command.events import READERS, SUBAGENTS_UNCOUNTED

CAPTURED = Path(__file__).with_name("agent_events")
ANSWER = "The answer of the double is 42."


def read(
    name: str, content: bytes, *, pieces: int = 1 << 16, tokens: int | None = None
) -> tuple[EventReply, list[Chunk]]:
    """A reply with these events, fed in pieces of so many bytes."""
    reply = EventReply(READERS[name](), Secrets("sk-secret-0123456789"), tokens)
    chunks: list[Chunk] = []
    for start in range(0, len(content), pieces):
        chunks += reply.feed(content[start : start + pieces])
    return reply, [*chunks, *reply.end()]


def lines(*events: Any) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def texts_of(chunks: list[Chunk]) -> tuple[str, str]:
    return "".join(chunk.text for chunk in chunks), "".join(chunk.thinking for chunk in chunks)


@pytest.mark.parametrize("pieces", [7, 1 << 16])
@pytest.mark.parametrize(
    ("name", "thinking", "usage"),
    [
        (
            "codex",
            ["**Looking** at the directory", "I will look at the directory."],
            Usage(tokens_in=2400, tokens_cached=2000, tokens_out=68, tokens_reasoning=20, calls=1),
        ),
        (
            "claude-code",
            ["I should look around.", "I will look at the directory.", "[Bash: pwd; ls]"],
            Usage(
                tokens_in=2400, tokens_cached=2000, tokens_out=68, cost=Decimal("0.0047"), calls=1
            ),
        ),
        (
            "gemini-cli",
            ["I will look at the directory.", "[list_directory: dir_path=.]"],
            Usage(tokens_in=2400, tokens_cached=2000, tokens_out=68, tokens_reasoning=20, calls=1),
        ),
        (
            "opencode",
            ["I should look around.", "I will look at the directory.", "[bash: pwd; ls]"],
            Usage(tokens_in=2400, tokens_cached=2000, tokens_out=68, calls=1),
        ),
    ],
)
def test_an_agent_run_is_read(name: str, thinking: list[str], usage: Usage, pieces: int) -> None:
    reply, chunks = read(name, (CAPTURED / f"{name}.jsonl").read_bytes(), pieces=pieces)
    text, thought = texts_of(chunks)
    assert (text.strip(), reply.error, reply.usage("")) == (ANSWER, "", usage)
    assert thought.splitlines() == thinking


@pytest.mark.parametrize("name", READERS)
def test_a_failed_agent_run_is_read(name: str) -> None:
    reply, _ = read(name, (CAPTURED / f"{name}-failed.jsonl").read_bytes())
    assert "No such model at this double" in reply.error
    assert reply.usage("some prompt").cost is None


def test_a_cost_of_zero_is_unknown() -> None:
    step = {"type": "step_finish", "part": {"tokens": {"input": 1, "output": 1}, "cost": 0}}
    priced = {"type": "step_finish", "part": {"tokens": {"input": 1, "output": 1}, "cost": 0.5}}
    costs = [
        read("opencode", lines(*events))[0].usage("").cost
        for events in ((step,), (priced, priced), (priced, step))
    ]
    assert costs == [None, Decimal("1.0"), None]
    result = {"type": "result", "subtype": "success", "result": "x", "usage": {"output_tokens": 1}}
    results = [
        read("claude-code", lines({**result, "total_cost_usd": cost}))[0].usage("").cost
        for cost in (0, -1, "x")
    ]
    assert results == [None, None, None]


def claude_result(spent: dict[str, float] | None, **fields: Any) -> dict[str, Any]:
    """A result of Claude Code 2.1.332.

    `spent` are the dollars of each model since the result before; each read 2,000 tokens, of which
    1,500 were cached, and wrote 30.
    """
    counts = {"inputTokens": 500, "cacheReadInputTokens": 1500, "outputTokens": 30}
    result: dict[str, Any] = {"type": "result", "subtype": "success", "result": ANSWER}
    result["usage"] = {"input_tokens": 7, "output_tokens": 1}  # of the main thread's last turn
    if spent is not None:
        result["model_usage_since_last_result"] = {
            name: {**counts, "costUSD": dollars, "costBasis": "list"}
            for name, dollars in spent.items()
        }
    return {**result, **fields}


def test_what_sub_agents_and_earlier_turns_of_claude_code_used_is_counted() -> None:
    """A sub-agent works in the background, so that there are two turns with a result each."""
    first = claude_result({"opus": 0.5, "haiku": 0.25}, total_cost_usd=0.75)
    second = claude_result({"opus": 0.5}, total_cost_usd=1.25)
    reply, chunks = read("claude-code", lines(first, second))
    assert texts_of(chunks)[0] == ANSWER
    expected = Usage(tokens_in=6000, tokens_cached=4500, tokens_out=90, calls=1)
    assert reply.usage("") == replace(expected, cost=Decimal("1.25"))
    # A last result that has nothing new takes nothing away.
    reply, _ = read("claude-code", lines(first, second, claude_result({}, total_cost_usd=1.25)))
    assert reply.usage("") == replace(expected, cost=Decimal("1.25"))


def test_what_earlier_calls_of_a_session_of_claude_code_used_is_not_counted_again() -> None:
    """With `--continue` among its arguments, the totals of a session come back in each call."""
    totals = {"opus": {"inputTokens": 90_000, "outputTokens": 900, "costUSD": 9.5}}
    result = claude_result({"opus": 0.5}, modelUsage=totals, total_cost_usd=9.5)
    usage = read("claude-code", lines(result))[0].usage("")
    assert (usage.tokens_in, usage.tokens_out, usage.cost) == (2000, 30, Decimal("0.5"))


def test_a_cost_at_which_claude_code_guesses_is_unknown() -> None:
    """It has no price for a model that it does not know, and takes that of another."""
    counts = {"inputTokens": 500, "outputTokens": 30, "costUSD": 0.5, "costBasis": "unknown"}
    known = {**counts, "costBasis": "list"}
    for models in ({"lab": counts}, {"opus": known, "lab": counts}):
        since = claude_result(None, model_usage_since_last_result=models, total_cost_usd=1)
        only_totals = claude_result(None, modelUsage=models, total_cost_usd=1)
        for result in (since, only_totals):
            usage = read("claude-code", lines(result))[0].usage("")
            assert (usage.tokens_in, usage.cost) == (500 * len(models), None)
    reply, _ = read("claude-code", lines(claude_result(None, modelUsage={"opus": known})))
    assert reply.usage("").tokens_in == 500


def test_the_limit_at_which_claude_code_stopped_is_told() -> None:
    result = {
        "type": "result",
        "subtype": "error_max_budget_usd",
        "is_error": True,
        "errors": ["Reached maximum budget ($0.5)"],
    }
    assert read("claude-code", lines(result))[0].error == "Reached maximum budget ($0.5)"
    for errors in ([], None, "x", [None]):
        reply, _ = read("claude-code", lines({**result, "errors": errors}))
        assert reply.error == "error_max_budget_usd"


def test_sub_agents_of_codex_are_shown_and_told_once_as_uncounted() -> None:
    item = {"type": "collab_tool_call", "tool": "spawn_agent", "prompt": "Look at the harbour"}
    spawned = {"type": "item.completed", "item": {**item, "status": "completed"}}
    waited = {"type": "item.completed", "item": {**item, "tool": "wait", "prompt": None}}
    message = {"type": "item.completed", "item": {"type": "agent_message", "text": ANSWER}}
    _, chunks = read("codex", lines(spawned, spawned, waited, message))
    told = [chunk.note for chunk in chunks if chunk.note]
    assert told == [SUBAGENTS_UNCOUNTED]
    assert texts_of(chunks) == (
        ANSWER,
        "[spawn_agent: Look at the harbour]\n[spawn_agent: Look at the harbour]\n[wait]\n",
    )


def test_what_codex_failed_to_do_is_shown_as_failed() -> None:
    items: list[dict[str, Any]] = [
        {"type": "mcp_tool_call", "server": "git", "tool": "log", "status": "failed"},
        {"type": "file_change", "changes": [{"path": "a.py"}], "status": "failed"},
        {"type": "file_change", "changes": [{"path": "b.py"}], "status": "completed"},
    ]
    events = [{"type": "item.completed", "item": item} for item in items]
    _, thought = texts_of(read("codex", lines(*events))[1])
    assert thought == "[git.log, failed]\n[change: a.py, failed]\n[change: b.py]\n"


def test_what_an_agent_does_not_count_is_estimated() -> None:
    events = (
        {"type": "item.completed", "item": {"type": "agent_message", "text": "y" * 40}},
        {"type": "turn.completed", "usage": {"input_tokens": 3, "output_tokens": -(10**9)}},
    )
    usage = read("codex", lines(*events))[0].usage("x" * 40)
    assert (usage.tokens_in, usage.tokens_out) == (3, 12)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "event",
    [
        None,
        1,
        [],
        {},
        {"type": None},
        {"type": []},
        {"type": "result", "stats": [], "usage": 3, "error": "x"},
        {
            "type": "assistant",
            "message": {"content": [{"type": "tool_use", "name": 5, "input": []}, 3]},
        },
        {"type": "item.completed", "item": {"type": "file_change", "changes": [1, {"path": 2}]}},
        {
            "type": "tool_use",
            "part": {"state": {"input": {"command": [1]}}},
            "parameters": 1,
            "tool_name": {},
        },
        {
            "type": "step_finish",
            "part": {"tokens": {"input": -1, "output": True, "cache": 1}, "cost": float("inf")},
        },
        {"type": "turn.completed", "usage": {"input_tokens": 10**30, "output_tokens": -1e30}},
        {
            "type": "result",
            "status": "success",
            "stats": {"input_tokens": 10**400, "total_tokens": float("nan")},
        },
        {"type": "message", "role": "assistant", "content": {"text": 1}},
        {
            "type": "result",
            "modelUsage": {"a": 1, "b": {"inputTokens": -1, "costUSD": "x"}},
            "model_usage_since_last_result": {"a": [], "b": {"outputTokens": 10**30}},
        },
        {"type": "item.completed", "item": {"type": "collab_tool_call", "tool": [], "prompt": 1}},
    ],
)
def test_events_of_the_wrong_form_are_no_failure(name: str, event: Any) -> None:
    reply, chunks = read(name, b"a warning\n" + lines(event) + b'{"type": "resu')
    usage = reply.usage("")
    assert texts_of(chunks)[0] == ""
    assert (usage.cost, max(usage.tokens_in, usage.tokens_out) <= 10**12) == (None, True)


def test_deep_and_endless_events_are_bounded() -> None:
    assert texts_of(read("codex", b"[" * 100_000 + b"\n")[1]) == ("", "")
    with pytest.raises(ModelError, match="more than 8 MiB"):
        read("codex", b"x" * (MAX_EVENT_BYTES + 1), pieces=1 << 20)


def test_an_answer_is_cut_at_the_tokens_that_were_asked_for() -> None:
    reply, chunks = read(
        "codex",
        lines({"type": "item.completed", "item": {"type": "agent_message", "text": "x" * 99}}),
        tokens=2,
    )
    assert (texts_of(chunks)[0], reply.is_full) == ("x" * 32, True)


def test_keys_are_redacted_in_answers_and_thinking() -> None:
    key = "sk-secret-0123456789"
    message = {"type": "item.completed", "item": {"type": "agent_message", "text": f"it is {key}"}}
    command = {
        "type": "item.completed",
        "item": {"type": "command_execution", "command": f"echo {key}", "exit_code": 1},
    }
    assert texts_of(read("codex", lines(command, message))[1]) == (
        "it is [key]",
        "[command: echo [key], failed]\n",
    )


def test_what_did_not_stop_an_agent_is_a_note_and_no_word_of_it() -> None:
    event = {"type": "error", "message": "Reconnecting… 1/5 \x1b[31m(sk-secret-0123456789)"}
    _, chunks = read("codex", lines(*[event] * 50))
    assert texts_of(chunks) == ("", "")
    assert [chunk.note for chunk in chunks] == ["Reconnecting… 1/5 ([key])"] * 20

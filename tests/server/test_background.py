"""Background requests of clients.

Each is recognised, and no question of a user is taken for one.
"""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest

from conductor_cli.app.rehearsal import DEMO_QUESTION
from conductor_cli.core.chat import Message, Tool
from conductor_cli.server.api.request import ClientRequest
from conductor_cli.server.runs.run_request import classify_utility_request
from tests.cli.stage import Stage
from tests.server.plain_api import serving
from tests.server.test_tool_turns import TOOLS

CLAUDE = {"x-claude-code-session-id": "1", "user-agent": "claude-cli/2.1.332 (external, cli)"}
OPENCODE = {"x-session-id": "ses_1", "user-agent": "opencode/1.18.33"}
TITLE_SCHEMA = {
    "type": "object",
    "properties": {"title": {"type": "string"}},
    "required": ["title"],
}
HISTORY = "### Chat History:\n<chat_history>\nUSER: Hi\nASSISTANT: Hello\n</chat_history>"
CLAUDE_SYSTEM = (
    "x-anthropic-billing-header: cc_version=2.1\n\nYou are Claude Code, Anthropic's "
    "official CLI for Claude."
)
OPENCODE_TITLE = "You are a title generator. You output ONLY a thread title. Nothing else."
SUMMARIES = "You are a helpful AI assistant tasked with summarizing conversations."
SHELL = Tool(name="shell")


def request_of(*texts: str, system: str = "", **fields: Any) -> ClientRequest:
    first = (Message(role="system", content=system),) if system else ()
    turns = tuple(
        Message(role="assistant" if n % 2 else "user", content=text) for n, text in enumerate(texts)
    )
    return ClientRequest(model="conductor", messages=(*first, *turns), **fields)


def codex(kind: str) -> dict[str, str]:
    return {
        "session-id": "1",
        "x-codex-turn-metadata": json.dumps({"turn_id": "1", "request_kind": kind}),
    }


def task(words: str, field: str = "title") -> str:
    form = f'JSON format: {{ "{field}": "…" }}'
    return f"### Task:\n{words}\n### Guidelines:\n- Be short.\n### Output:\n{form}\n{HISTORY}"


@pytest.mark.parametrize(
    ("kind", "headers", "request_"),
    [
        ("title", CLAUDE, request_of("Fix it", schema=TITLE_SCHEMA, system=CLAUDE_SYSTEM)),
        (
            "title",
            CLAUDE,
            request_of(
                "Fix it",
                system=f"{CLAUDE_SYSTEM}\n\nGenerate a concise, sentence-case title (3 words).",
            ),
        ),
        (
            "compaction",
            CLAUDE,
            request_of(
                "Fix it",
                "Done.",
                (
                    "CRITICAL: Text only.\n\nYour task is to create a detailed summary of the "
                    "conversation so far, please."
                ),
                tools=(SHELL,),
                system=CLAUDE_SYSTEM,
            ),
        ),
        (
            "safety_check",
            CLAUDE,
            request_of(
                '<transcript>\n{"Bash":"rm -rf sub"}\n</transcript>',
                system="You are a security monitor for autonomous AI coding agents.\n\n## Context",
            ),
        ),
        (
            "title",
            OPENCODE,
            request_of("Generate a title for this conversation:", system=OPENCODE_TITLE),
        ),
        ("compaction", OPENCODE, request_of("Hi", "Hello", "Summarize.", system=SUMMARIES)),
        (
            "title",
            {},
            request_of(task("Generate a concise title summarizing the chat history.")),
        ),
        (
            "tags",
            {},
            request_of(
                task("Generate 1-3 broad tags of the main themes of the chat history", "tags")
            ),
        ),
        (
            "follow_ups",
            {},
            request_of(task("Predict 3-5 useful messages this user might send next", "follow_ups")),
        ),
        (
            "search_queries",
            {},
            request_of(
                task("Analyze the chat history for search queries, and write them", "queries")
            ),
        ),
        ("compaction", codex("compaction"), request_of("Summarize.", tools=(SHELL,))),
        (
            "title",
            codex("turn"),
            request_of(
                (
                    "Generate a concise, single-line task title of at most 36 characters.\n\nUser "
                    "prompt:\nFix it"
                ),
                tools=(SHELL,),
                schema=TITLE_SCHEMA,
            ),
        ),
        (
            "compaction",
            OPENCODE,
            request_of(
                "Here is the conversation so far:\n\n<conversation>\n[User]: Hi\n</conversation>",
                system="You are a context summarization agent. You are given a conversation.",
            ),
        ),
        (
            "commit_message",
            {},
            request_of(
                "# Diffs:\n+x",
                system=(
                    "You are an expert software engineer that generates concise,\n"
                    "one-line Git commit messages based on the provided diffs."
                ),
            ),
        ),
    ],
)
def test_a_background_request_is_recognised(
    kind: str, headers: dict[str, str], request_: ClientRequest
) -> None:
    assert classify_utility_request(request_, headers) == kind


QUESTIONS = (
    "Hi",
    "Generate a title for my essay about whales.",
    "Generate a concise, 3-5 word title for this talk.",
    "### Task:\nRespond to the user query using the provided context.\n<context>\n…\n</context>",
    "### Task:\nGenerate a concise, 3-5 word title for this talk, please.",
    task("Generate a concise, 3-5 word title summarizing the chat history.")
    + "\nWhy does this prompt not work?",
    "Why does this not work?\n" + task("Generate 1-3 broad tags of the chat history"),
    task("Write a poem about the chat history.", "poem"),
    "Write a commit message for this diff:\n+x",
    (
        "You are an expert software engineer that generates concise, one-line Git commit messages. "
        "Who "
        "are you?"
    ),
    "Your task is to create a detailed summary of the conversation so far",
    "You are performing a CONTEXT CHECKPOINT COMPACTION. What does this sentence of Codex mean?",
    "What does request_kind: compaction mean?",
    "You are a title generator. You output ONLY a thread title. Improve this prompt.",
    "",
)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_no_request_of_a_client_for_itself(question: str) -> None:
    """Whatever it is about, and however it is asked."""
    request_fields: list[dict[str, Any]] = [
        {},
        {"system": "You are a helpful assistant."},
        {"tools": (SHELL,)},
    ]
    for request in (
        request_of("Hi", "Hello", question),
        *(request_of(question, **fields) for fields in request_fields),
    ):
        assert classify_utility_request(request, {}) is None


@pytest.mark.parametrize(
    "headers", [CLAUDE, OPENCODE, codex("turn")], ids=["claude", "opencode", "codex"]
)
def test_a_question_in_a_coding_client_is_no_request_for_itself(headers: dict[str, str]) -> None:
    two = {"type": "object", "properties": {"title": {}, "body": {}}}
    for question in (
        "Generate a title for the page",
        "Write a commit message",
        "Summarize the file a.py",
    ):
        assert (
            classify_utility_request(
                request_of(question, system=CLAUDE_SYSTEM, tools=(SHELL,)), headers
            )
            is None
        )
        assert classify_utility_request(request_of(question, system=CLAUDE_SYSTEM), headers) is None
        assert classify_utility_request(request_of(question, schema=two), headers) is None
        assert (
            classify_utility_request(
                request_of(question, schema=TITLE_SCHEMA, tools=(SHELL,)), headers
            )
            is None
        )


def test_an_application_may_have_titles_as_its_question() -> None:
    assert classify_utility_request(request_of("Whales", schema=TITLE_SCHEMA), {}) is None
    assert (
        classify_utility_request(request_of("Ann: Hi. Ben: Hello.", system=SUMMARIES), {}) is None
    )


@pytest.mark.parametrize(
    "value", ["", "{", "[]", "1", '"compaction"', '{"request_kind": 1}', "[" * 5000]
)
def test_a_strange_header_is_no_error(value: str) -> None:
    assert classify_utility_request(request_of("Hi"), {"x-codex-turn-metadata": value}) is None


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", TOOLS)
def test_a_coding_client_can_be_tried_over_the_demo(stage: Stage, api: str, stream: bool) -> None:
    """What the demo cannot do is said, as simulated, and without a call of a tool.

    What it can, it does.
    """

    def ask(url: str, question: str) -> str:
        message = f"<system-reminder>Use tabs.</system-reminder>\n{question}"
        messages = [
            {"role": "system", "content": "You are a coding agent."},
            {"role": "user", "content": message},
        ]
        text = {"input" if api == "responses" else "messages": messages}
        body = {
            "model": "conductor",
            "tools": TOOLS[api],
            "max_tokens": 900,
            "reasoning_effort": "xhigh",
            **text,
        }
        answer = httpx.post(f"{url}/v1/{api}", json=body | {"stream": stream}, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.text

    with serving(rehearsal=True) as server:
        declined = ask(server.url, "Fix the failing test.")
        answered = ask(server.url, DEMO_QUESTION)
    assert "simulated answer" in declined
    assert not re.search('"(tool_calls|tool_use|function_call)"', declined)
    assert "SIRAP" in answered
    assert len(list(stage.traces.glob("*.jsonl"))) == 1

"""The tools of an MCP server through the SDK's client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

from conductor_cli.server.mcp import handlers
from conductor_cli.state.trace_store import TraceStore
from tests.cli.stage import (
    COMMAND,
    PLANNER,
    SOURCE,
    TWO,
    Stage,
    breaks,
    refuses,
    replies,
    says,
    stalls,
)
from tests.server.mcp.clients import Heard, answer_of, inside_client, run_of, text_of
from tests.servers import SeenRequest, Speaker, Wire

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult

pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated as of")

IMAGE = {"name": "a", "media_type": "image/png", "sha256": "0" * 64, "size": 10}
WITH_IMAGE = {"text": "Why?", "files": [{"name": "a", "text": "", "attachment": IMAGE}]}
STEPS = [{"worker": "alpha", "subtask": "a"}]
IN_CONVERSATION = {
    "text": "Why?",
    "conversation": {"messages": [{"role": "user", "content": "Why?"}]},
}


def talk(talking: Callable[[Client], Awaitable[None]], **options: Any) -> None:
    async def both() -> None:
        async with inside_client(**options) as client:
            await talking(client)

    asyncio.run(both())


def call(name: str, arguments: dict[str, Any], **options: Any) -> CallToolResult:
    results = []

    async def talking(client: Client) -> None:
        results.append(await client.call_tool(name, arguments))

    talk(talking, **options)
    return results[0]


def refused(name: str, arguments: dict[str, Any], **options: Any) -> str:
    result = call(name, arguments, **options)
    assert result.is_error
    assert len(text_of(result)) < 1000
    return text_of(result)


def prompt_of(stage: Stage, worker: str) -> str:
    return "\n".join(message["content"] for message in stage.asked(worker)[0].json["messages"])


def test_every_tool_says_what_it_does_to_the_world(stage: Stage) -> None:
    async def talking(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        hints = {name: tool.annotations for name, tool in tools.items() if tool.annotations}
        assert {name for name, hint in hints.items() if hint.read_only_hint} == {"plan", "trace"}
        assert {name for name, hint in hints.items() if not hint.open_world_hint} == {"trace"}
        for tool in tools.values():
            assert tool.description
            assert tool.input_schema["additionalProperties"] is False
            assert all("type" in argument for argument in tool.input_schema["properties"].values())

    talk(talking)


def test_files_system_text_and_schema_reach_the_workers(stage: Stage) -> None:
    stage.models["alpha"] = says('{"a": 1}')
    file = {"name": "notes.md", "text": "remember the milk"}
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    result = call(
        "ask", {"question": "Which?", "files": [file], "system": "Be short.", "schema": schema}
    )
    assert answer_of(result) == '{"a": 1}'
    sent = prompt_of(stage, "alpha")
    for text in ("Which?", "notes.md", "remember the milk", "Be short."):
        assert text in sent


def test_a_schema_that_is_none_is_refused_before_any_call(stage: Stage) -> None:
    """Nothing could be checked by it, so any JSON would pass."""
    result = call("ask", {"question": "Which?", "schema": {"type": "text"}})
    assert result.is_error
    assert "is not a valid JSON Schema" in str(result.content)
    assert stage.posts == []


def test_files_that_say_nothing_or_too_much_are_told(stage: Stage) -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n"
    files = [{"name": "a.txt", "text": " \n"}, {"name": "key.txt", "text": key}]
    text = text_of(call("ask", {"question": "Which?", "files": files}))
    assert "note: a.txt is empty" in text
    assert "note: key.txt looks like a secret, and is sent because the call has it" in text


def test_a_long_text_of_a_stored_run_says_that_it_is_shortened(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "MAX_RESULT_TEXT", 5)

    async def talking(client: Client) -> None:
        run = run_of(await client.call_tool("ask", {"question": "Why? " * 200}))
        shown = text_of(await client.call_tool("trace", {"run": run}))
        step = text_of(await client.call_tool("trace", {"run": run, "step": 1}))
        listed = text_of(await client.call_tool("trace", {}))
        first = "alpha\n[These are the first 5 of 13 characters; the user sees all: "
        assert f"{first}conductor trace show {run}]" in shown
        assert f"{first}conductor trace show {run} --step 1]" in step
        assert "…" in listed
        assert "…" in shown

    talk(talking)


def test_a_plan_runs_by_its_id_and_as_it_was_returned_and_changed(stage: Stage) -> None:
    stage.plan = TWO

    async def talking(client: Client) -> None:
        planned = await client.call_tool("plan", {"question": "Why?"})
        assert "2. beta (sees the answers of 1; read by " in answer_of(planned)
        assert "Estimate: 2 calls" in answer_of(planned)
        assert not stage.asked("alpha")
        by_id = await client.call_tool("run", {"run": run_of(planned)})
        assert answer_of(by_id) == "beta answers"
        plan = json.loads(getattr(planned.content[1], "text", ""))
        assert [step["worker"] for step in plan["steps"]] == ["alpha", "beta"]
        plan["steps"].pop()
        changed = await client.call_tool("run", {"plan": plan})
        assert answer_of(changed) == "alpha answers"

    talk(talking)
    assert len(stage.asked(PLANNER)) == 1


def test_stored_runs_are_listed_searched_and_shown_step_by_step(stage: Stage) -> None:
    stage.plan = TWO

    async def talking(client: Client) -> None:
        run = run_of(await client.call_tool("ask", {"question": "Why is it blue?"}))
        await client.call_tool("ask", {"question": "How?"})
        listed = answer_of(await client.call_tool("trace", {"count": 1})).splitlines()
        assert len(listed) == 2
        assert listed[0].endswith("finished  How?")
        assert "older runs" in listed[1]
        assert (
            answer_of(await client.call_tool("trace", {"search": "blue"}))
            == f"{run}  finished  Why is it blue?"
        )
        shown = await client.call_tool("trace", {"run": run})
        assert "finished. Question: Why is it blue?\n1. alpha, done: " in answer_of(shown)
        assert text_of(shown).endswith("beta answers")
        step = await client.call_tool("trace", {"run": run, "step": 2})
        assert answer_of(step) == "beta answers"
        assert "alpha answers" in text_of(step)

    talk(talking)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("ask", {}, "question is missing"),
        ("ask", {"question": 5}, "question must be a string"),
        ("ask", {"question": " \n"}, "question is blank"),
        ("ask", {"question": "Why?", "max_price": 1}, "max_price is not known: there are "),
        ("ask", {"question": "Why?", "mode": "best"}, "it can be 'mini', 'auto' or 'ultra'"),
        ("ask", {"question": "Why?", "max_steps": 0}, "max_steps must be at least 1"),
        ("ask", {"question": "Why?", "max_steps": 10**400}, "max_steps must be at most 5"),
        ("ask", {"question": "Why?", "max_cost": -1}, "max_cost must be more than 0"),
        ("ask", {"question": "Why?", "max_tokens": True}, "max_tokens must be a whole number"),
        ("ask", {"question": "Why?", "files": [{"name": "a"}]}, "files[0].text is missing"),
        ("ask", {"question": "Why?", "files": [{"name": "a", "text": "\0"}]}, "NUL"),
        ("ask", {"question": "Why?", "workers": []}, "workers is empty"),
        (
            "ask",
            {"question": "Why?", "allow": [1] * 10_000},
            "the arguments have 10,000 values or more",
        ),
        ("ask", {"question": "Why?", "workers": ["gamma"]}, "gamma"),
        ("ask", {"question": "Why?", "deny": ["a b"]}, "deny"),
        ("ask", {"question": "Why?", "allow": ["tag:nobody"]}, "no worker matches"),
        ("run", {}, "give either plan or run"),
        ("run", {"run": "last", "plan": {"question": "Why?", "steps": []}}, "empty"),
        ("run", {"run": "nope"}, "there is no run 'nope'"),
        ("run", {"plan": {"question": [], "steps": STEPS}}, "not a plan"),
        ("run", {"plan": {"question": "", "steps": STEPS}}, "blank"),
        (
            "run",
            {
                "plan": {
                    "question": "Why?",
                    "steps": [{"worker": "alpha", "subtask": "a", "access": [7]}],
                }
            },
            "7",
        ),
        ("run", {"plan": {"question": WITH_IMAGE, "steps": STEPS}}, "images"),
        (
            "run",
            {"plan": {"question": "Why?", "steps": [{"worker": "gamma", "subtask": "a"}]}},
            "gamma",
        ),
        ("run", {"plan": {"question": IN_CONVERSATION, "steps": STEPS}}, "conversation"),
        ("trace", {"run": "../../etc/passwd"}, "there is no run"),
        ("trace", {"run": "nope", "step": 1}, "there is no run 'nope'"),
        ("trace", {"step": 1}, "step needs run"),
        ("trace", {"since": "soon"}, "is not a time"),
    ],
)
def test_bad_arguments_get_a_sentence(
    stage: Stage, name: str, arguments: dict[str, Any], message: str
) -> None:
    assert message in refused(name, arguments)
    assert not stage.asked("alpha")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_tokens": 9001}, "max_tokens is 9001, but the settings allow at most 9000"),
        ({"max_seconds": 61}, "max_seconds is 61.0, but the settings allow at most 60.0"),
        ({"max_steps": 4}, "max_steps is 4, but the settings allow at most 3"),
        ({"local_only": False}, "local_only cannot be switched off"),
        ({"workers": ["beta"]}, "this server does not offer the worker 'beta'"),
    ],
)
def test_a_call_cannot_widen_what_the_settings_allow(
    stage: Stage, arguments: dict[str, Any], message: str
) -> None:
    stage.configure("[limits]\ntokens = 9000\nseconds = 60\nsteps = 3\n[policy]\nlocal_only = true")
    assert message in refused("ask", {"question": "Why?", **arguments}, workers=("alpha",))
    assert not stage.asked(PLANNER)


def test_a_plan_cannot_widen_what_the_settings_allow(stage: Stage) -> None:
    stage.configure("[limits]\ncalls = 5")
    plan = {
        "question": "Why?",
        "steps": [{"worker": "alpha", "subtask": "Say it."}],
        "limits": {"calls": 6},
    }
    assert "limits.calls is 6, but the settings allow at most 5" in refused("run", {"plan": plan})
    assert answer_of(call("run", {"plan": plan | {"limits": {"calls": 4}}})) == "alpha answers"


def test_a_call_narrows_limits_workers_and_rules(stage: Stage) -> None:
    stage.configure('[limits]\ntokens = 9000\n[policy]\ndeny = ["tag:slow"]')
    arguments = {
        "max_tokens": 8000,
        "max_seconds": 50,
        "max_steps": 1,
        "workers": ["alpha"],
        "deny": ["beta"],
    }
    result = call("ask", {"question": "Why?", "local_only": True, **arguments})
    assert not result.is_error
    trace = TraceStore(stage.traces).trace(run_of(result))
    assert (trace.limits.tokens, trace.limits.seconds, trace.limits.steps) == (8000, 50.0, 1)
    assert (trace.pool.names, trace.policy.local_only) == (("alpha",), True)
    assert trace.policy.deny == ("tag:slow", "beta")


def test_what_needs_an_approval_is_refused(stage: Stage) -> None:
    stage.configure("[policy]\napprove = true")
    assert "must be approved on a terminal" in refused("ask", {"question": "Why?"})
    assert not call("plan", {"question": "Why?"}).is_error
    assert not stage.asked("alpha")


def test_a_failed_run_says_why_and_which_run_it_was(stage: Stage) -> None:
    stage.models["alpha"] = refuses(400, "no such thing")
    stage.models["beta"] = refuses(400, "no such thing")
    message = refused("ask", {"question": "Why?"})
    assert "no such thing" in message
    assert "[run " in message


def test_a_part_of_an_answer_is_said_to_be_one(stage: Stage) -> None:
    stage.plan = TWO
    stage.models["beta"] = says("cut o", finish="length")
    result = call("ask", {"question": "Why?"})
    assert answer_of(result) == "cut o"
    assert "This is a part of the answer" in text_of(result)


def test_a_planner_that_writes_no_plan_is_an_error_of_the_call(stage: Stage) -> None:
    stage.models[PLANNER] = refuses(401)
    assert refused("plan", {"question": "Why?"})


def test_a_result_says_what_a_reader_should_know(stage: Stage) -> None:
    stage.configure('[limits]\nattempts = 1\n[policy]\ndeny = ["nobody"]')
    stage.models["alpha"] = breaks("half an")
    message = text_of(call("ask", {"question": "Why?"}))
    assert "policy.deny: no worker matches nobody" in message
    assert "alpha" in message.partition("beta answers")[2].partition("[run ")[0]


def test_more_calls_than_the_server_can_hold_are_told_that_it_is_busy(stage: Stage) -> None:
    stage.models["alpha"] = stalls("half an")

    async def talking(client: Client) -> None:
        calls = [
            asyncio.create_task(client.call_tool("ask", {"question": f"Question {n}"}))
            for n in range(40)
        ]
        completed = asyncio.as_completed(calls)
        refused = [await next(completed) for _ in range(24)]
        busy = "the server is busy: 16 calls are running\ncall again when one of them has ended"
        assert {text_of(name) for name in refused} == {busy}
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        stage.models["alpha"] = says("done")
        while (result := await client.call_tool("ask", {"question": "And now?"})).is_error:
            pass  # the runs take a moment to end
        assert answer_of(result) == "done"

    talk(talking)


def test_what_workers_write_cannot_steer_a_terminal(stage: Stage) -> None:
    stage.models["alpha"] = says("safe\x1b]0;title\x07\x1b[31m text")
    result = call("ask", {"question": "Why?"})
    assert answer_of(result) == "safe text"
    stage.models["alpha"] = replies(b"\x1b[2J", status=400)
    stage.models["beta"] = replies(b"\x1b[2J", status=400)
    assert "\x1b" not in refused("ask", {"question": "Why?"})


def test_a_run_that_kept_its_texts_here_is_not_shown_to_other_programs(stage: Stage) -> None:
    assert stage.inside("ask", "Open to all?").code == 0
    assert stage.inside("ask", "A secret?", "--local-only").code == 0

    async def talking(client: Client) -> None:
        listed = answer_of(await client.call_tool("trace", {}))
        assert "secret" not in listed
        assert "Open to all?" in listed
        assert "no stored runs" in answer_of(await client.call_tool("trace", {"search": "secret"}))
        run = listed.split()[0]
        for name in ("trace", "run"):
            assert "is not shown to other programs" in text_of(
                await client.call_tool(name, {"run": run})
            )
        own_run = run_of(await client.call_tool("ask", {"question": "Why?", "local_only": True}))
        assert not (await client.call_tool("trace", {"run": own_run})).is_error
        assert "Why?" in answer_of(await client.call_tool("trace", {}))

    talk(talking)


def test_a_client_hears_that_a_silent_worker_is_waited_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "SILENT_SECONDS", 0.05)
    heard = Heard()

    async def slow(request: SeenRequest, wire: Wire) -> None:
        # Another loop
        while sum(text.startswith("waiting for alpha") for _, text in heard.progress) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await says("at last")(request, wire)

    stage.models["alpha"] = slow

    async def talking(client: Client) -> None:
        result = await client.call_tool(
            "ask", {"question": "Why?"}, progress_callback=heard.on_progress
        )
        assert answer_of(result) == "at last"

    talk(talking)
    shares = [share for share, _ in heard.progress]
    assert shares == sorted(set(shares))


def test_a_limit_names_the_argument_that_raises_it(stage: Stage) -> None:
    message = refused("ask", {"question": "Why?", "max_tokens": 20})
    assert "call again with max_tokens=" in message
    assert "--max-tokens" not in message


def test_a_tool_that_needs_an_approval_is_refused(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = json.dumps([*COMMAND, "mcp", "--demo"])
    stage.configure(
        f'[limits]\nattempts = 1\n[tools.nested]\ncommand = {program}\nenv = ["PYTHONPATH"]'
    )
    returned = []

    async def calling(request: SeenRequest, wire: Wire) -> None:
        speaker = Speaker(request, wire)
        await speaker.begin()
        texts = [
            message["content"] for message in request.json["messages"] if message["role"] == "tool"
        ]
        if texts:
            returned.extend(texts)
            await speaker.say("done")
        else:
            await speaker.call("ask", '{"question": "Why?"}')
            await speaker.call("trace", "{}")
        await speaker.end()

    stage.models["alpha"] = calling
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    arguments = {"question": "Why?"}
    flags = {"conductor.tools": "nested"}
    assert answer_of(call("ask", arguments, flags=flags)) == "done"
    assert "nobody can be asked to allow it" in returned[0]
    assert returned[1] == "there are no stored runs that match"
    stage.models["alpha"] = says("no tools")
    assert not call("ask", {**arguments, "no_tools": True}, flags=flags).is_error
    assert "tools" not in stage.asked("alpha")[-1].json


def test_an_unknown_tool_is_an_error_of_the_protocol(stage: Stage) -> None:
    """MCP 2025-11-25 has -32602 for it."""
    from mcp.shared.exceptions import MCPError

    async def talking(client: Client) -> None:
        with pytest.raises(MCPError, match="there is no tool 'answer'; the tools are: ask"):
            await client.call_tool("answer", {})

    talk(talking)

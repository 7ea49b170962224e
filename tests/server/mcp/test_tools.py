"""The tools of an MCP server through the SDK's client, which checks each result against the tool's own schema."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

from conductor_cli.server.mcp import reporter
from conductor_cli.state.trace_store import TraceStore
from tests.cli.stage import COMMAND, PLANNER, SOURCE, THREE, TWO, Stage, breaks, refuses, replies, says
from tests.server.mcp.clients import Heard, inside_client, text_of
from tests.servers import SeenStep, Speaker, Wire

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult

pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated as of")

WITH_IMAGE = {
    "text": "Why?",
    "files": [{"name": "a", "text": "", "attachment": {
        "name": "a", "media_type": "image/png", "sha256": "0" * 64, "size": 10,
    }}],
}  # fmt: skip

STEPS = [{"worker": "alpha", "subtask": "a"}]
IN_CONVERSATION = {"text": "Why?", "conversation": {"messages": [{"role": "user", "content": "Why?"}]}}


def talk(talking: Callable[[Client], Awaitable[None]], heard: Heard | None = None, **options: Any) -> None:
    """Have a client and a server of this process talk."""

    async def both() -> None:
        async with inside_client(heard, **options) as client:
            await talking(client)

    asyncio.run(both())


def call(name: str, arguments: dict[str, Any], **options: Any) -> CallToolResult:
    """The result of one call."""
    results = []

    async def talking(client: Client) -> None:
        results.append(await client.call_tool(name, arguments))

    talk(talking, **options)
    return results[0]


def refused(name: str, arguments: dict[str, Any], **options: Any) -> str:
    """The text of a call that ends with an error."""
    result = call(name, arguments, **options)
    assert result.is_error
    assert len(text_of(result)) < 1000
    return text_of(result)


def prompt_of(stage: Stage, worker: str) -> str:
    """What a worker was sent first."""
    return "\n".join(message["content"] for message in stage.asked(worker)[0].json["messages"])


def test_every_tool_says_what_it_does_to_the_world(stage: Stage) -> None:
    """Plan and trace change nothing, trace asks nobody; every argument has a type."""

    async def talking(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        hints = {name: tool.annotations for name, tool in tools.items() if tool.annotations}
        assert {name for name, hint in hints.items() if hint.read_only_hint} == {"plan", "trace"}
        assert {name for name, hint in hints.items() if not hint.open_world_hint} == {"trace"}
        for tool in tools.values():
            assert tool.description
            assert tool.output_schema
            assert tool.input_schema["additionalProperties"] is False
            assert all("type" in argument for argument in tool.input_schema["properties"].values())

    talk(talking)


def test_files_system_text_and_schema_reach_the_workers(stage: Stage) -> None:
    """A question brings what a command line can attach."""
    stage.models["alpha"] = says('{"a": 1}')
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    arguments = {
        "question": "Which?", "files": [{"name": "notes.md", "text": "remember the milk"}], "system": "Be short.",
        "schema": schema,
    }  # fmt: skip
    result = call("ask", arguments)
    assert result.structured_content["answer"] == '{"a": 1}'
    sent = prompt_of(stage, "alpha")
    for text in ("Which?", "notes.md", "remember the milk", "Be short."):
        assert text in sent


def test_a_plan_runs_by_its_id_and_as_it_was_returned_and_changed(stage: Stage) -> None:
    """The planner writes it once; whoever runs it asks only workers."""
    stage.plan = TWO

    async def talking(client: Client) -> None:
        planned = (await client.call_tool("plan", {"question": "Why?"})).structured_content
        assert [step["worker"] for step in planned["plan"]["steps"]] == ["alpha", "beta"]
        assert planned["estimate"]["calls"] == 2
        assert planned["recipients"].keys() == {"alpha", "beta"}
        assert not stage.asked("alpha")
        by_id = await client.call_tool("run", {"run": planned["run"]})
        assert by_id.structured_content["answer"] == "beta answers"
        planned["plan"]["steps"].pop()
        changed = await client.call_tool("run", {"plan": planned["plan"]})
        assert changed.structured_content["answer"] == "alpha answers"

    talk(talking)
    assert len(stage.asked(PLANNER)) == 1


def test_a_plan_that_names_an_unknown_worker_is_refused(stage: Stage) -> None:
    """Nobody is asked for a plan that cannot be run as it stands."""
    plan = {"question": "Why?", "steps": [{"worker": "gamma", "subtask": "Say it."}]}
    assert "gamma" in refused("run", {"plan": plan})
    assert not stage.asked("alpha")


def test_stored_runs_are_listed_searched_and_shown_step_by_step(stage: Stage) -> None:
    """A list, one run, and what the worker of a step was sent and wrote."""
    stage.plan = TWO

    async def talking(client: Client) -> None:
        run = (await client.call_tool("ask", {"question": "Why is it blue?"})).structured_content["run"]
        await client.call_tool("ask", {"question": "How?"})
        listed = (await client.call_tool("trace", {"count": 1})).structured_content
        assert [row["question"] for row in listed["runs"]] == ["How?"]
        assert listed["more"]
        found = (await client.call_tool("trace", {"search": "blue"})).structured_content
        assert [row["run"] for row in found["runs"]] == [run]
        shown = (await client.call_tool("trace", {"run": run})).structured_content
        assert shown["question"] == "Why is it blue?"
        assert [step["state"] for step in shown["run"]["steps"]] == ["done", "done"]
        step = (await client.call_tool("trace", {"run": run, "step": 2})).structured_content["step"]
        assert step["text"] == "beta answers"
        assert "alpha answers" in step["prompt"][-1]["content"]

    talk(talking)


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("answer", {}, "there is no tool 'answer'"),
        ("ask", {}, "must have question"),
        ("ask", {"question": 5}, "question must be a text"),
        ("ask", {"question": " \n"}, "question is blank"),
        ("ask", {"question": "Why?", "max_price": 1}, "cannot have max_price"),
        ("ask", {"question": "Why?", "mode": "best"}, "mode must be one of mini, auto, ultra"),
        ("ask", {"question": "Why?", "max_steps": 0}, "max_steps must be at least 1"),
        ("ask", {"question": "Why?", "max_steps": 10**400}, "max_steps must be at most 5"),
        ("ask", {"question": "Why?", "max_cost": -1}, "max_cost must be more than 0"),
        ("ask", {"question": "Why?", "max_tokens": True}, "max_tokens must be a whole number"),
        ("ask", {"question": "Why?", "files": [{"name": "a"}]}, "files[0] must have text"),
        ("ask", {"question": "Why?", "files": [{"name": "a", "text": "\0"}]}, "NUL"),
        ("ask", {"question": "Why?", "workers": []}, "workers is empty"),
        ("ask", {"question": "Why?", "allow": [1] * 10_000}, "the arguments have 10,000 values or more"),
        ("ask", {"question": "Why?", "workers": ["gamma"]}, "gamma"),
        ("ask", {"question": "Why?", "deny": ["a b"]}, "deny"),
        ("ask", {"question": "Why?", "allow": ["tag:nobody"]}, "no worker matches"),
        ("run", {}, "give either plan or run"),
        ("run", {"run": "last", "plan": {"question": "Why?", "steps": []}}, "empty"),
        ("run", {"run": "nope"}, "there is no run 'nope'"),
        ("run", {"plan": {"question": [], "steps": [{"worker": "alpha", "subtask": "a"}]}}, "not a plan"),
        ("run", {"plan": {"question": "", "steps": [{"worker": "alpha", "subtask": "a"}]}}, "blank"),
        ("run", {"plan": {"question": "Why?", "steps": [{"worker": "alpha", "subtask": "a", "access": [7]}]}}, "7"),
        ("run", {"plan": {"question": WITH_IMAGE, "steps": [{"worker": "alpha", "subtask": "a"}]}}, "images"),
        ("run", {"plan": {"question": IN_CONVERSATION, "steps": STEPS}}, "conversation"),
        ("trace", {"run": "../../etc/passwd"}, "there is no run"),
        ("trace", {"run": "nope", "step": 1}, "there is no run 'nope'"),
        ("trace", {"step": 1}, "step needs run"),
        ("trace", {"since": "soon"}, "is not a time"),
    ],
)  # fmt: skip
def test_bad_arguments_get_a_sentence(stage: Stage, name: str, arguments: dict[str, Any], said: str) -> None:
    """A mistake is a result that the client's model can read, and nobody is asked."""
    assert said in refused(name, arguments)
    assert not stage.asked("alpha")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"max_tokens": 9001}, "max_tokens is 9001, but the settings allow at most 9000"),
        ({"max_seconds": 61}, "max_seconds is 61.0, but the settings allow at most 60.0"),
        ({"max_steps": 4}, "max_steps is 4, but the settings allow at most 3"),
        ({"local_only": False}, "local_only cannot be switched off"),
        ({"workers": ["beta"]}, "this server does not offer the worker 'beta'"),
    ],
)
def test_a_call_cannot_widen_what_the_settings_allow(stage: Stage, arguments: dict[str, Any], said: str) -> None:
    """A wider limit, a rule switched off and a worker left out are refused with a sentence."""
    stage.configure("[limits]\ntokens = 9000\nseconds = 60\nsteps = 3\n[policy]\nlocal_only = true")
    assert said in refused("ask", {"question": "Why?", **arguments}, workers=("alpha",))
    assert not stage.asked(PLANNER)


def test_a_plan_cannot_widen_what_the_settings_allow(stage: Stage) -> None:
    """The limits that a plan brings are held against those of the settings too."""
    stage.configure("[limits]\ncalls = 5")
    plan = {"question": "Why?", "steps": [{"worker": "alpha", "subtask": "Say it."}], "limits": {"calls": 6}}
    assert "limits.calls is 6, but the settings allow at most 5" in refused("run", {"plan": plan})
    assert call("run", {"plan": plan | {"limits": {"calls": 4}}}).structured_content["answer"] == "alpha answers"


def test_a_call_narrows_limits_workers_and_rules(stage: Stage) -> None:
    """The trace shows the limits and rules of the call beside those of the settings."""
    stage.configure('[limits]\ntokens = 9000\n[policy]\ndeny = ["tag:slow"]')
    arguments = {"max_tokens": 8000, "max_seconds": 50, "max_steps": 1, "workers": ["alpha"], "deny": ["beta"]}
    result = call("ask", {"question": "Why?", "local_only": True, **arguments})
    assert not result.is_error
    trace = TraceStore(stage.traces).trace(result.structured_content["run"])
    assert (trace.limits.tokens, trace.limits.seconds, trace.limits.steps) == (8000, 50.0, 1)
    assert trace.pool.names == ("alpha",)
    assert trace.policy.local_only
    assert trace.policy.deny == ("tag:slow", "beta")


def test_what_needs_an_approval_is_refused(stage: Stage) -> None:
    """Nobody is there to approve a plan, so it is not run; planning alone is possible."""
    stage.configure("[policy]\napprove = true")
    assert "must be approved on a terminal" in refused("ask", {"question": "Why?"})
    assert not call("plan", {"question": "Why?"}).is_error
    assert not stage.asked("alpha")


def test_a_failed_run_says_why_and_which_run_it_was(stage: Stage) -> None:
    """The reason is in the text and in the data, and the trace has it too."""
    stage.models["alpha"] = stage.models["beta"] = refuses(400, "no such thing")
    result = call("ask", {"question": "Why?"})
    assert result.is_error
    assert "[run " in text_of(result)
    assert result.structured_content["state"] == "failed"
    assert result.structured_content["error"]["message"] in text_of(result)


def test_a_part_of_an_answer_is_said_to_be_one(stage: Stage) -> None:
    """A step that fails after others are done leaves what there is, with a warning."""
    stage.plan, stage.models["beta"] = TWO, says("cut o", finish="length")
    result = call("ask", {"question": "Why?"})
    assert not result.is_error
    assert result.structured_content["partial"]
    assert "This is a part of the answer" in text_of(result)


def test_a_planner_that_writes_no_plan_is_an_error_of_the_call(stage: Stage) -> None:
    """The tool plan returns an error and no plan, and the server goes on."""
    stage.models[PLANNER] = refuses(401)
    assert refused("plan", {"question": "Why?"})


def test_notices_become_log_messages(stage: Stage) -> None:
    """What a reader of a run should know is sent as it happens; recovered failures are warnings."""
    stage.configure('[limits]\nattempts = 1\n[policy]\ndeny = ["nobody"]')
    stage.models["alpha"] = breaks("half an")
    heard = Heard()

    async def talking(client: Client) -> None:
        await client.call_tool("ask", {"question": "Why?"})
        told = list(heard.logs)
        assert ("info", "note: policy.deny: no worker matches nobody") in told
        assert any(level == "warning" and "beta" in text for level, text in told)
        await client.set_logging_level("error")
        await client.call_tool("ask", {"question": "Why?"})
        assert heard.logs == told

    talk(talking, heard)


def test_calls_run_side_by_side(stage: Stage) -> None:
    """The workers of one call do not wait for those of another, and each call hears of its own run."""
    stage.plan = THREE

    async def talking(client: Client) -> None:
        ears = [Heard() for _ in range(4)]
        calls = [
            client.call_tool("ask", {"question": f"Question {number}"}, progress_callback=ear.on_progress)
            for number, ear in enumerate(ears)
        ]
        results = await asyncio.gather(*calls)
        assert len({result.structured_content["run"] for result in results}) == 4
        assert all(ear.progress[-1][1] == "finished" for ear in ears)

    talk(talking)


def test_what_workers_write_cannot_steer_a_terminal(stage: Stage) -> None:
    """Escape sequences are removed from answers, progress and errors, since a client may print them."""
    stage.models["alpha"] = says("safe\x1b]0;title\x07\x1b[31m text")
    result = call("ask", {"question": "Why?"})
    assert result.structured_content["answer"] == "safe text"
    stage.models["alpha"] = stage.models["beta"] = replies(b"\x1b[2J", status=400)
    assert "\x1b" not in refused("ask", {"question": "Why?"})


def test_a_run_that_kept_its_texts_here_is_not_shown_to_other_programs(stage: Stage) -> None:
    """A client's own model may be anywhere, so such a run is neither shown, found by its texts, nor finished."""
    assert stage.inside("ask", "A secret?", "--local-only").code == 0

    async def talking(client: Client) -> None:
        (row,) = (await client.call_tool("trace", {})).structured_content["runs"]
        assert "secret" not in row["question"]
        assert (await client.call_tool("trace", {"search": "secret"})).structured_content["runs"] == []
        for name, arguments in (("trace", {"run": row["run"]}), ("run", {"run": row["run"]})):
            assert "is not shown to other programs" in text_of(await client.call_tool(name, arguments))
        own = (await client.call_tool("ask", {"question": "Why?", "local_only": True})).structured_content["run"]
        assert not (await client.call_tool("trace", {"run": own})).is_error

    talk(talking)


def test_a_client_hears_that_a_silent_worker_is_waited_for(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """While nothing happens there is news all the same, since many clients end a call that is silent."""
    monkeypatch.setattr(reporter, "PERIOD", 0.05)
    heard = Heard()

    async def slow(seen: SeenStep, wire: Wire) -> None:
        while sum(text.startswith("waiting for alpha") for _, text in heard.progress) < 2:  # noqa: ASYNC110 - another loop
            await asyncio.sleep(0.01)
        await says("at last")(seen, wire)

    stage.models["alpha"] = slow

    async def talking(client: Client) -> None:
        result = await client.call_tool("ask", {"question": "Why?"}, progress_callback=heard.on_progress)
        assert result.structured_content["answer"] == "at last"

    talk(talking)
    shares = [share for share, _ in heard.progress]
    assert shares == sorted(set(shares))


def test_a_limit_names_the_argument_that_raises_it(stage: Stage) -> None:
    """A model that calls a tool knows arguments, and no flags."""
    said = refused("ask", {"question": "Why?", "max_tokens": 20})
    assert "call again with max_tokens=" in said
    assert "--max-tokens" not in said


def test_a_tool_that_needs_an_approval_is_refused(stage: Stage) -> None:
    """A worker may call what only reads; what may change something is not called, since nobody can be asked."""
    program = json.dumps([*COMMAND, "mcp", "--rehearsal"])
    stage.configure(f'[limits]\nattempts = 1\n[tools.nested]\ncommand = {program}\nenv = ["PYTHONPATH"]')
    returned = []

    async def calling(seen: SeenStep, wire: Wire) -> None:
        speaker = Speaker(seen, wire)
        await speaker.begin()
        texts = [message["content"] for message in seen.json["messages"] if message["role"] == "tool"]
        if texts:
            returned.extend(texts)
            await speaker.say("done")
        else:
            await speaker.call("ask", '{"question": "Why?"}')
            await speaker.call("trace", "{}")
        await speaker.end()

    stage.models["alpha"] = calling
    arguments = {"question": "Why?"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SOURCE))
        result = call("ask", arguments, flags={"conductor.tools": "nested"})
    assert result.structured_content["answer"] == "done"
    assert "nobody can be asked to allow it" in returned[0]
    assert returned[1] == "there are no stored runs that match"
    stage.models["alpha"] = says("no tools")
    assert not call("ask", {**arguments, "no_tools": True}, flags={"conductor.tools": "nested"}).is_error
    assert "tools" not in stage.asked("alpha")[-1].json

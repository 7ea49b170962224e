"""What an editor gets from `conductor acp`, through the SDK's client.

Each message is checked by the schema of the protocol.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from acp.exceptions import RequestError
from acp.helpers import (
    audio_block,
    embedded_blob_resource,
    embedded_text_resource,
    image_block,
    resource_block,
    resource_link_block,
)

from conductor_cli.system.known_secrets import KNOWN_SECRETS
from tests.cli.stage import PLANNER, THREE, TWO, Stage, refuses, says, stalls
from tests.cli.test_tools import SERVER, calls
from tests.media_files import png
from tests.server.acp.editor import Editor, check_by_schema, connected, part_of, talk
from tests.servers import SeenRequest, Speaker, Wire


@pytest.fixture(autouse=True)
def _stays_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The agent goes into the directory of a session."""
    monkeypatch.chdir(tmp_path)


def prompt_of(stage: Stage, worker: str, number: int = 0) -> str:
    return json.dumps(stage.asked(worker)[number].json["messages"], ensure_ascii=False)


def test_every_response_follows_the_schema_and_says_what_is_offered(stage: Stage) -> None:
    async def talking(editor: Editor) -> None:
        await editor.connection.authenticate(method_id="none")
        await editor.connection.set_session_mode(session_id=editor.session, mode_id="mini")
        await editor.ask("Why?")
        await editor.connection.load_session(
            cwd=str(editor.directory), session_id=editor.session, mcp_servers=[]
        )

    editor = talk(Editor(), talking)
    methods = ["initialize", "session/new", "authenticate", "session/set_mode", "session/prompt"]
    results = [message["result"] for message in editor.messages if "result" in message]
    for method, result in zip([*methods, "session/load"], results, strict=True):
        check_by_schema(part_of(method, ("Response",)), result)
    offered = results[0]["agentCapabilities"]
    assert offered["loadSession"] is True
    assert offered["promptCapabilities"] == {"image": True, "audio": False, "embeddedContext": True}
    assert results[0]["protocolVersion"] == 1
    assert [mode["id"] for mode in results[1]["modes"]["availableModes"]] == [
        "mini",
        "auto",
        "ultra",
    ]
    commands = editor.updates("available_commands_update")[0]["availableCommands"]
    assert "redo" in [command["name"] for command in commands]


def test_plan_steps_and_answer_are_shown_as_they_come(stage: Stage) -> None:
    stage.plan = TWO

    async def talking(editor: Editor) -> None:
        assert (await editor.ask("Why?")).stop_reason == "end_turn"

    editor = talk(Editor(), talking)
    assert editor.text() == "beta answers"
    plans = [plan["entries"] for plan in editor.updates("plan")]
    states = [[entry["status"] for entry in entries] for entries in plans]
    assert states[-1] == ["completed", "completed"]
    assert ["completed", "in_progress"] in states
    assert "alpha: Find it out." in editor.updates("plan")[-1]["entries"][0]["content"]
    first, second = editor.updates("tool_call")
    assert first["title"] == "alpha: Find it out."
    ended = {update["toolCallId"]: update for update in editor.updates("tool_call_update")}
    assert ended[first["toolCallId"]]["status"] == "completed"
    assert ended[first["toolCallId"]]["content"][0]["content"]["text"] == "alpha answers"
    assert "content" not in ended[second["toolCallId"]]  # it is the answer
    assert "2 steps" in editor.text("agent_thought_chunk")


def test_a_session_goes_on_and_is_loaded_by_another_process(stage: Stage) -> None:
    async def first(editor: Editor) -> None:
        await editor.ask("Who wrote Emma?")
        await editor.ask("And when?")

    session = talk(Editor(), first).session
    assert "Who wrote Emma?" in prompt_of(stage, "alpha", 1)

    async def second(editor: Editor) -> None:
        editor.messages.clear()
        await editor.connection.load_session(
            cwd=str(editor.directory), session_id=session, mcp_servers=[]
        )
        assert editor.text("user_message_chunk") == "Who wrote Emma?And when?"
        assert editor.text() == "alpha answersalpha answers"
        editor.session = session
        await editor.ask("Where?")
        with pytest.raises(RequestError, match="there is no stored session"):
            await editor.connection.load_session(cwd=str(editor.directory), session_id="acp-0")

    talk(Editor(), second)
    for question in ("Who wrote Emma?", "And when?"):
        assert question in prompt_of(stage, "alpha", 2)


def test_a_plan_waits_for_the_person(stage: Stage) -> None:
    stage.configure("[policy]\napprove = true")

    async def talking(editor: Editor) -> None:
        assert (await editor.ask("Why?")).stop_reason == "end_turn"

    allowing = talk(Editor(), talking)
    (offer,) = allowing.permission_requests
    assert offer.title == "Run this plan? 1 alpha: Answer the question."
    assert "estimate: 1 call" in str(offer.content)
    assert "step 1: alpha" in str(offer.content)
    assert allowing.text() == "alpha answers"

    for choice in ("drop", None):
        calls = len(stage.asked("alpha"))
        dropping = talk(Editor(choose=lambda *_, choice=choice: choice), talking)
        assert dropping.text() == "The plan was dropped. No worker was called."
        assert len(stage.asked("alpha")) == calls

    assert not talk(Editor(), talking, approves=False).permission_requests


def test_the_question_about_a_plan_names_what_nobody_can_see(stage: Stage) -> None:
    stage.configure("[policy]\napprove = true")
    stage.plan = "alpha | - | Find it, \U000e0041 twice.\nbeta | 1 | Write it up."

    async def talking(editor: Editor) -> None:
        await editor.ask("Why?")

    (offer,) = talk(Editor(), talking).permission_requests
    assert "Find it, \u27e8U+E0041\u27e9 twice." in str(offer.title)


def test_cancel_stops_the_run_and_ends_what_is_shown(stage: Stage) -> None:
    stage.models["alpha"] = stalls("It begins")

    async def talking(editor: Editor) -> None:
        asking = asyncio.create_task(editor.ask("Why?"))
        await editor.until(lambda: editor.text() == "It begins")
        await editor.connection.cancel(session_id=editor.session)
        assert (await asking).stop_reason == "cancelled"
        stage.models["alpha"] = says("whole")
        assert (await editor.ask("/redo")).stop_reason == "end_turn"

    editor = talk(Editor(), talking)
    begun = [update["toolCallId"] for update in editor.updates("tool_call")]
    ended = {
        update["toolCallId"]: update["status"] for update in editor.updates("tool_call_update")
    }
    assert [ended[call] for call in begun] == ["failed", "completed"]
    assert editor.text().endswith("whole")


def test_cancel_ends_a_plan_that_waits_for_a_silent_editor(stage: Stage) -> None:
    stage.configure("[policy]\napprove = true")

    async def talking(editor: Editor) -> None:
        async def never(**_: Any) -> None:
            await asyncio.Event().wait()

        editor.request_permission = never  # type: ignore[method-assign, assignment]
        asking = asyncio.create_task(editor.ask("Why?"))
        await editor.until(
            lambda: any("request_permission" in str(message) for message in editor.messages)
        )
        await editor.connection.cancel(session_id=editor.session)
        assert (await asking).stop_reason == "cancelled"

    talk(Editor(), talking)
    assert not stage.asked("alpha")


def test_stop_reasons_say_why_a_turn_ended(stage: Stage) -> None:
    async def cut(editor: Editor) -> None:
        assert (await editor.ask("Why?")).stop_reason == "max_tokens"
        assert "partial answer" in editor.text()

    stage.models["alpha"] = says("It is", finish="length")
    talk(Editor(), cut)

    async def filtered(editor: Editor) -> None:
        assert (await editor.ask("Why?")).stop_reason == "refusal"

    stage.models["alpha"] = says("It is", finish="content_filter")
    talk(Editor(), filtered)

    async def limited(editor: Editor) -> None:
        assert (await editor.ask("Why?")).stop_reason == "max_turn_requests"

    stage.plan = THREE
    stage.models["alpha"] = says("It is")
    talk(Editor(), limited, flags={"limits.calls": 2})

    async def failing(editor: Editor) -> None:
        with pytest.raises(RequestError, match="key missing or rejected"):
            await editor.ask("Why?")

    stage.plan = "alpha | - | Answer it."
    stage.models["alpha"] = refuses(401)
    stage.models["beta"] = refuses(401)
    talk(Editor(), failing)


def test_files_of_a_prompt_are_attached_as_ask_attaches_them(stage: Stage, tmp_path: Path) -> None:
    stage.configure(workers={"alpha": 'accepts = ["image"]'})
    (tmp_path / "main.py").write_text("print(1)\n")
    (tmp_path / ".env").write_text("API_KEY=sk-abcdefghijklmnopqrstuvwx\n")
    (tmp_path / "link.py").symlink_to(tmp_path / ".env")
    main = resource_link_block("main.py", (tmp_path / "main.py").as_uri())
    buffer = embedded_text_resource((tmp_path / "src/b.py").as_uri() + "#L2:3", "unsaved = True")
    picture = image_block(base64.b64encode(png(8, 8)).decode(), "image/png")

    async def talking(editor: Editor) -> None:
        await editor.ask("Explain", main, "and", resource_block(buffer), picture)
        linked = resource_link_block("link.py", (tmp_path / "link.py").as_uri())
        with pytest.raises(RequestError, match="looks like a secret"):
            await editor.ask("What is in", linked)
        far = resource_link_block("page", "zed:///thread/1")
        await editor.ask("What is", far)
        for block in (
            resource_link_block("page", "http://["),
            resource_block(embedded_text_resource("file://[x", "text")),
            image_block("aGk=", "image/png", uri="http://["),
        ):
            with pytest.raises(RequestError, match="is no address"):
                await editor.ask("What is", block)
        with pytest.raises(RequestError, match="audio is not read"):
            await editor.ask(audio_block("aGk=", "audio/wav"))
        os.mkfifo(tmp_path / "pipe")
        pipe = resource_link_block("pipe", (tmp_path / "pipe").as_uri())
        with pytest.raises(RequestError, match="is a pipe"):
            await editor.ask("What is in", pipe)
        with pytest.raises(RequestError, match="is not in base64"):
            await editor.ask(image_block("!", "image/png"))

    editor = talk(Editor(), talking)
    sent = prompt_of(stage, "alpha")
    for text in ("Explain main.py and src/b.py#L2:3", "print(1)", "unsaved = True", "image_url"):
        assert text in sent
    assert "zed:///thread/1 is not a file on this machine" in editor.text("agent_thought_chunk")


def test_a_call_of_a_tool_is_asked_about_and_shown(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIARY", str(stage.home / "diary"))
    server = ("tools", "add", "t", "--set", "env=DIARY", "--", sys.executable, str(SERVER))
    stage.ok(*server)
    stage.models["alpha"] = calls("write", text="milk")

    async def talking(editor: Editor) -> None:
        assert (await editor.ask("Note it.")).stop_reason == "end_turn"

    flags = {"conductor.tools": "t"}
    stage.models["alpha"] = calls("form")
    declined = talk(Editor(), talking, flags=flags)
    assert "asks for something, which was declined" in declined.text("agent_thought_chunk")
    stage.models["alpha"] = calls("write", text="milk")
    allowing = talk(Editor(choose=lambda *_: "once"), talking, flags=flags)
    (offer,) = allowing.permission_requests
    assert str(offer.title).startswith("alpha wants to call t.write {")
    assert offer.raw_input == {"text": "milk"}
    (_, call) = allowing.updates("tool_call")
    assert (call["title"], call["status"]) == ("t.write", "pending")
    states = [
        update["status"]
        for update in allowing.updates("tool_call_update")
        if update["toolCallId"] == call["toolCallId"]
    ]
    assert states == ["in_progress", "completed"]
    assert "the tool says: written" in allowing.text()

    refusing = talk(Editor(choose=lambda *_: None), talking, flags=flags)
    assert "the user does not allow it" in refusing.text()


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ('{"text": "a\\u001b[2J\\u009b31m\\u202ered"}', {"text": "a\u27e8U+202E\u27e9red"}),
        (f'{{"text": "a", "n": {"[" * 300}{"]" * 300}}}', None),
        ('{"text": "a", "n": NaN}', None),
    ],
    ids=["controls", "deep", "nan"],
)
def test_arguments_of_a_call_that_no_editor_should_see_end_no_session(
    stage: Stage, written: str, shown: object
) -> None:
    """They are cleaned where they are JSON, and a text where an editor could not read them."""
    stage.ok("tools", "add", "t", "--", sys.executable, str(SERVER))

    async def writes(request: SeenRequest, wire: Wire) -> None:
        speaker = Speaker(request, wire)
        await speaker.begin()
        if request.json["messages"][-1]["role"] == "tool":
            await speaker.say("it goes on")
        else:
            await speaker.call("write", written)
        await speaker.end()

    stage.models["alpha"] = writes

    async def talking(editor: Editor) -> None:
        async with asyncio.timeout(20):
            await editor.ask("Note it.")

    editor = talk(Editor(choose=lambda *_: "no"), talking, flags={"conductor.tools": "t"})
    (_, call) = editor.updates("tool_call")
    assert call["rawInput"] == (shown or written)
    assert editor.text().endswith("it goes on")


def test_two_sessions_work_in_their_own_directories(stage: Stage, tmp_path: Path) -> None:
    for name, limit in (("one", 3), ("two", 4)):
        directory = tmp_path / name
        directory.mkdir()
        (directory / ".conductor.toml").write_text(f"[limits]\ncalls = {limit}\n")
    stage.models["alpha"] = stalls("slow")

    async def both() -> None:
        editor = Editor()
        async with connected(editor):
            await editor.connection.initialize(protocol_version=1)
            session = await editor.open(cwd=str(tmp_path / "one"))
            asking = asyncio.create_task(editor.ask("Slow?"))
            await editor.until(lambda: editor.text() == "slow")
            await editor.open(cwd=str(tmp_path / "two"))
            stage.models["alpha"] = says("quick")
            waiting = asyncio.create_task(editor.ask("/plan Quick?"))
            await editor.until(lambda: "waits for the runs in another directory" in editor.text())
            assert not waiting.done()
            await editor.connection.cancel(session_id=session)
            assert (await asking).stop_reason == "cancelled"
            await waiting
            assert "limits: at most 4 calls" in editor.text()
            with pytest.raises(RequestError, match="absolute path"):
                await editor.open(cwd="one")

    asyncio.run(both())


def test_what_is_not_used_of_an_editor_is_told(stage: Stage) -> None:
    async def talking(editor: Editor) -> None:
        server = {"name": "git", "command": "git-mcp", "args": [], "env": []}
        await editor.open(mcp_servers=[server], additional_directories=["/srv"])
        await editor.ask("Why?")

    thoughts = talk(Editor(), talking).text("agent_thought_chunk")
    assert "names 1 MCP server, which conductor does not start" in thoughts
    assert "further directories of the editor are not used (1 of them)" in thoughts


def test_files_that_a_command_cannot_read_are_refused(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("print(1)\n")
    main = resource_link_block("main.py", (tmp_path / "main.py").as_uri())

    async def talking(editor: Editor) -> None:
        for block in (main, image_block(base64.b64encode(png()).decode(), "image/png")):
            with pytest.raises(RequestError, match="a command takes no files"):
                await editor.ask("/cost", block)

    talk(Editor(), talking)


def test_an_empty_buffer_is_told(stage: Stage, tmp_path: Path) -> None:
    buffer = embedded_text_resource((tmp_path / "b.py").as_uri(), "\n")
    blob = embedded_blob_resource((tmp_path / "c.txt").as_uri(), "")

    async def talking(editor: Editor) -> None:
        await editor.ask("Explain", resource_block(buffer), resource_block(blob))

    thoughts = talk(Editor(), talking).text("agent_thought_chunk")
    assert "b.py is empty" in thoughts
    assert "c.txt is empty" in thoughts


def test_slash_commands_answer_without_a_worker(stage: Stage) -> None:
    async def talking(editor: Editor) -> None:
        await editor.ask("/workers beta")
        assert "- `beta` (asked)" in editor.text()
        await editor.ask("Why?")
        await editor.ask("/cost")
        assert "1 run in this session" in editor.text()
        await editor.ask("/good")
        assert "rated run" in editor.text()
        many = "9" * 5000
        wrong = (
            "/redo x",
            "/redo",
            "/workers gamma",
            "/plan",
            "/bad x",
            f"/redo {many}",
            "/redo 1 gamma",
        )
        for line in (*wrong, f"/good {many}"):
            with pytest.raises(RequestError) as refused:
                await editor.ask(line)
            assert refused.value.code == -32602, line[:20]
        await editor.ask("/etc/hosts: what is it?")

    talk(Editor(), talking)
    assert not stage.asked("alpha")
    assert len(stage.asked("beta")) == 2
    assert "/etc/hosts" in prompt_of(stage, "beta", 1)


def test_keys_and_control_characters_do_not_reach_the_editor(stage: Stage, tmp_path: Path) -> None:
    KNOWN_SECRETS.add("k3y-of-the-user-0123456789")
    stage.plan = TWO
    stage.models["alpha"] = says("\x1b[2Jred \x1b]0;title\x07 k3y-of-the-user-", "0123456789")

    async def talking(editor: Editor) -> None:
        await editor.ask("Why?")

    editor = talk(Editor(), talking)
    shown = json.dumps(editor.messages)
    assert "\\u001b" not in shown
    assert "k3y-of-the-user-0123456789" not in shown


def test_the_mode_of_a_session_is_that_of_its_runs(stage: Stage) -> None:
    async def talking(editor: Editor) -> None:
        await editor.connection.set_session_mode(session_id=editor.session, mode_id="mini")
        with pytest.raises(RequestError, match="there is no mode"):
            await editor.connection.set_session_mode(session_id=editor.session, mode_id="wild")
        await editor.ask("Why?")

    stage.plan = "A"
    talk(Editor(), talking)
    sent = json.dumps(stage.asked(PLANNER)[0].json)
    assert "Reply with" in sent or "label" in sent

"""Anthropic's Messages: what is read of a request, and the events of an answer."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import pytest

from conductor_cli.core.chat import Message, Tool, ToolCall
from conductor_cli.server.api.errors import error_body
from conductor_cli.server.api.messages import MessagesApi
from conductor_cli.server.api.messages_encoder import MessagesEncoder
from conductor_cli.server.api.request import ClientRequest, RequestError
from tests.media_files import pdf, png
from tests.server.api.samples import RUN, events, field_of, outcome, refusal

API = MessagesApi()
ASKED = {
    "model": "conductor",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "Hello."}],
}
TOOL = {"name": "edit", "description": "Edit.", "input_schema": {"type": "object"}}
CALL = ToolCall(id="call_1", name="edit", arguments='{"file": "a.py"}')


def parsed(*messages: Mapping[str, Any], **fields: Any) -> ClientRequest:
    talk = {"messages": list(messages)} if messages else {}
    return API.parse({**ASKED, **talk, **fields})


def user(*blocks: object) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def text(message: str) -> dict[str, Any]:
    return {"type": "text", "text": message}


def base64_source(content: bytes, media_type: str) -> dict[str, Any]:
    return {"type": "base64", "media_type": media_type, "data": base64.b64encode(content).decode()}


def test_a_request_as_claude_code_sends_it_is_read() -> None:
    marked = {"cache_control": {"type": "ephemeral"}}
    request = parsed(
        user(text("<system-reminder>"), text("Fix it.") | marked),
        system=[
            text("x-anthropic-billing-header: cc_version=2.1.ac5"),
            text("You are Claude Code.") | marked,
        ],
        tools=[TOOL | marked, {"type": "web_search_20260101", "name": "web_search"}],
        tool_choice={"type": "auto", "disable_parallel_tool_use": True},
        stream=True,
        stop_sequences=["END"],
        thinking={"type": "adaptive"},
        context_management={"edits": []},
        output_config={"effort": "xhigh"},
        metadata={"user_id": "{}"},
        betas=["a-2026"],
        cache_control={"type": "ephemeral"},
        top_k=3,
    )
    assert request.messages == (
        Message(role="system", content="You are Claude Code."),
        Message(role="user", content="<system-reminder>\n\nFix it."),
    )
    assert request.tools == (Tool(name="edit", description="Edit.", parameters={"type": "object"}),)
    assert (request.parallel_tool_calls, request.effort, request.stop) == (False, "xhigh", ("END",))
    assert (request.stream, request.max_tokens, request.shows_reasoning) == (True, 100, True)


@pytest.mark.parametrize(("effort", "read"), [("low", "low"), ("high", ""), ("max", "max")])
def test_an_effort_that_is_the_default_asks_for_nothing(effort: str, read: str) -> None:
    assert parsed(user(text("Fix it.")), output_config={"effort": effort}).effort == read


def test_calls_and_results_of_a_conversation_are_read() -> None:
    image = {"type": "image", "source": base64_source(png(4, 3), "image/png")}
    request = parsed(
        user(text("Fix it.")),
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "step 1", "signature": ""},
                {"type": "redacted_thinking", "data": "x"},
                text("I edit "),
                text("it."),
                {"type": "tool_use", "id": "call_1", "name": "edit", "input": {"a": 1}},
                {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
                {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
            ],
        },
        user(
            text("Hurry."),
            {"type": "tool_result", "tool_use_id": "call_1", "content": "failed", "is_error": True},
            {"type": "tool_result", "tool_use_id": "call_2", "content": [text("see"), image]},
            {"type": "tool_result", "tool_use_id": "call_3"},
        ),
    )
    _, reply, failed, shown, empty, messages = request.messages
    calls = (ToolCall(id="call_1", name="edit", arguments='{"a": 1}'),)
    assert (reply.content, reply.tool_calls) == ("I edit it.", calls)
    assert (failed.content, failed.is_error, failed.tool_call_id) == ("failed", True, "call_1")
    assert (shown.content, [attachment.media_type for attachment in shown.attachments]) == (
        "see",
        ["image/png"],
    )
    assert request.blobs[shown.attachments[0].sha256] == png(4, 3)
    assert (empty.role, empty.content, messages.content) == ("tool", "", "Hurry.")


def test_documents_are_attached_or_quoted() -> None:
    drawn = {
        "type": "document",
        "title": "plan.pdf",
        "source": base64_source(pdf("Hi"), "application/pdf"),
    }
    source = {"type": "text", "media_type": "text/plain", "data": "abc"}
    plain = {"type": "document", "title": "a.txt", "source": source}
    (message,) = parsed(user(drawn, plain, text("Compare."))).messages
    assert [(attachment.name, attachment.kind) for attachment in message.attachments] == [
        ("plan.pdf", "pdf")
    ]
    assert 'name="a.txt"' in message.content
    assert message.content.endswith("Compare.")


def change(kind: str, **tool: Any) -> dict[str, Any]:
    return {"type": f"tool_{kind}", "tool": {"type": "tool_reference", **tool}}


def definition(name: str, description: str = "") -> dict[str, Any]:
    return {"name": name, "description": description, "input_schema": {"type": "object"}}


@pytest.mark.parametrize(
    ("changes", "offered"),
    [
        ([change("removal", name="edit")], {"read": ""}),
        (
            [change("removal", name="edit"), change("addition", name="edit")],
            {"read": "", "edit": ""},
        ),
        ([change("addition", name="read")], {"edit": "", "read": ""}),
        (
            [change("addition", type="tool_definition", definition=definition("find", "Finds."))],
            {"edit": "", "read": "", "find": "Finds."},
        ),
        (
            [
                change("removal", name="edit"),
                change("addition", type="tool_definition", definition=definition("edit", "New.")),
                change("addition", name="edit"),
            ],
            {"read": "", "edit": "New."},
        ),
        (
            [change("addition", type="mcp_toolset_reference", server_name="x")],
            {"edit": "", "read": ""},
        ),
    ],
)
@pytest.mark.parametrize("placed", ["system", "user"])
def test_changes_of_tools_in_a_conversation_hold_for_what_is_asked(
    changes: list[dict[str, Any]], offered: dict[str, str], placed: str
) -> None:
    """They come in a system message, or in a block behind what the user says."""
    late = [text("Be quick."), *changes]
    turns: list[dict[str, Any]] = [{"role": "user", "content": [text("Hi")]}]
    if placed == "system":
        turns.append({"role": "system", "content": late})
    else:
        turns[0]["content"].append({"type": "mid_conv_system", "content": late})
    request = parsed(*turns, tools=[definition("edit"), definition("read")])
    assert {tool.name: tool.description for tool in request.tools} == offered
    assert not request.ignored
    assert "Be quick." in "".join(message.content for message in request.messages)
    assert "<system-" in request.messages[-1].content


def test_a_change_of_a_tool_that_nobody_declared_is_refused() -> None:
    turn = {"role": "system", "content": [change("removal", name="edit")]}
    with pytest.raises(RequestError, match="is no tool of this request: 'edit'") as caught:
        parsed(user(text("Hi")), turn)
    assert caught.value.param == "messages[1].content[0].tool.name"


def compaction(summary: str | None) -> dict[str, Any]:
    return {"type": "compaction", "content": summary, "cache_control": {"type": "ephemeral"}}


def assistant(*blocks: object) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def test_a_summary_takes_the_place_of_what_stands_before_it() -> None:
    """The server of Anthropic drops all blocks before the last one that has a content."""
    picture = {"type": "image", "source": base64_source(png(), "image/png")}
    request = parsed(
        user(text("Old."), picture),
        assistant(text("Older."), compaction("We spoke of tea."), text("Milk?")),
        user(text("Yes.")),
        assistant(compaction(None), text("And sugar?")),
        user(text("No.")),
        system="Be brief.",
    )
    system, summary, *talk = request.messages
    assert system == Message(role="system", content="Be brief.")
    assert summary.role == "user"
    assert summary.content.startswith("The conversation before this was compacted to:\n")
    assert 'name="summary">\nWe spoke of tea.\n' in summary.content
    assert [(message.role, message.content) for message in talk] == [
        ("assistant", "Milk?"),
        ("user", "Yes."),
        ("assistant", "And sugar?"),
        ("user", "No."),
    ]
    assert not request.blobs
    assert [file.text for file in request.texts.values()] == ["We spoke of tea."]
    assert request.ignored == ("messages[].content[].cache_control",)


@pytest.mark.parametrize(
    ("turn", "param"),
    [
        (assistant(compaction("")), "messages[1].content[0].content"),
        (user(compaction("Tea.")), "messages[1].content[0].type"),
    ],
    ids=["empty", "of the user"],
)
def test_a_summary_that_no_server_writes_is_refused(turn: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        parsed(user(text("Hi")), turn, user(text("Go on.")))
    assert caught.value.param == param


@pytest.mark.parametrize("content", ["abc", [text("ab"), text("c")]], ids=["text", "blocks"])
def test_a_document_that_its_client_put_together_is_quoted(content: object) -> None:
    """The API calls it a custom content document."""
    source = {"type": "content", "content": content}
    document = {"type": "document", "title": "notes", "source": source}
    request = parsed(user(document, text("Why?")))
    quoted = "\n".join(["abc"] if content == "abc" else ["ab", "c"])
    assert f'name="notes">\n{quoted}\n' in request.messages[0].content
    assert request.messages[0].content.endswith("Why?")
    assert not request.ignored


def test_images_of_such_a_document_keep_their_place() -> None:
    image = {"type": "image", "source": base64_source(png(4, 3), "image/png")}
    source = {"type": "content", "content": [text("above"), image, text("below")]}
    (message,) = parsed(user({"type": "document", "source": source})).messages
    (place,) = message.places
    assert "above" in message.content[:place]
    assert "below" in message.content[place:]
    assert message.content.count('name="document"') == 2
    assert [attachment.media_type for attachment in message.attachments] == ["image/png"]


def test_a_system_text_in_the_middle_stays_there() -> None:
    request = parsed(
        {"role": "system", "content": "Be kind."},
        user(text("Hello.")),
        {"role": "system", "content": "Now hurry."},
        system="Be brief.",
    )
    assert [message.role for message in request.messages] == ["system", "user", "user"]
    assert request.messages[0].content == "Be brief.\n\nBe kind."
    assert "Now hurry." in request.messages[2].content


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("any", "required"),
        ("tool", Tool(name="edit", parameters={})),
    ],
)
def test_the_choice_among_tools_is_read(choice: str, expected: object) -> None:
    tools = [{"name": "edit", "input_schema": {}}]
    assert parsed(tools=tools, tool_choice={"type": choice, "name": "edit"}).tool_choice == expected


SEARCH = {"type": "web_search_20250305", "name": "web_search"}
CLIENTS = {"name": "edit", "input_schema": {}}


@pytest.mark.parametrize(
    ("fields", "tools", "hosted"),
    [
        ({"tools": [CLIENTS, SEARCH]}, ["edit"], ()),
        ({"tools": [SEARCH]}, [], ("web_search",)),
        ({"tools": [SEARCH], "tool_choice": {"type": "any"}}, [], ("web_search",)),
        (
            {"tools": [CLIENTS, SEARCH], "tool_choice": {"type": "tool", "name": "web_search"}},
            [],
            ("web_search",),
        ),
        ({"tools": [SEARCH], "tool_choice": {"type": "none"}}, [], ()),
        ({"mcp_servers": [{"type": "url", "url": "https://x.test", "name": "x"}]}, [], ("mcp",)),
    ],
)
def test_tools_of_the_server_are_left_out_or_needed(
    fields: dict[str, Any], tools: list[str], hosted: tuple[str, ...]
) -> None:
    read = parsed(**fields)
    assert ([tool.name for tool in read.tools], read.hosted) == (tools, hosted)


def test_a_json_schema_of_the_answer_is_read() -> None:
    form = {"type": "json_schema", "schema": {"type": "object"}}
    for read, field in (
        (parsed(output_config={"format": form}), "output_config.format.schema"),
        (parsed(output_format=form), "output_format.schema"),
    ):
        assert (read.schema, read.schema_field) == ({"type": "object"}, field)


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("messages", []),
        ("messages[0].role", [{"role": "tool", "content": "x"}]),
        ("messages[0].content", [{"role": "user"}]),
        *(
            ("messages[0].content[0].type", [user(block)])
            for block in (
                {"type": "audio"},
                {"type": "tool_use", "id": "a", "name": "b"},
                {"type": "bash_tool_result"},
                {"type": ["text"]},
            )
        ),
        *(
            ("messages[0].content[0].source", [user({"type": "image", "source": source})])
            for source in (
                {"type": {}, "data": ""},
                {"type": "url", "url": "http://x"},
                {"type": "base64", "data": "***"},
            )
        ),
        (
            "messages[0].content[0].source",
            [user({"type": "document", "source": {"type": "file", "file_id": "f"}})],
        ),
        ("messages[0].content[0].tool_use_id", [user({"type": "tool_result", "tool_use_id": 1})]),
        ("system[0].type", [{"type": "tool_use", "id": "a", "name": "b"}]),
        (
            "messages[0].content[0].source.content[0].type",
            [
                user(
                    {
                        "type": "document",
                        "source": {"type": "content", "content": [{"type": "video"}]},
                    }
                )
            ],
        ),
        ("tools[0].input_schema", [{"name": "x"}]),
        ("tools[1].type", [TOOL, {"type": "computer_toolset_20260801"}]),
        ("tools[1].type", [TOOL, {"type": "browser_toolset_20260801"}]),
        ("tools[1].name", [TOOL, TOOL]),
        ("tool_choice.type", {"type": "any"}),
        ("tool_choice.name", {"type": "tool", "name": "x"}),
        ("output_config.format.schema", {"format": {"type": "json_schema"}}),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(param: str, value: Any) -> None:
    envelope = error_body(refusal(API, {**ASKED, field_of(param): value}, param), "/v1/messages")
    assert envelope["error"]["type"] == "invalid_request_error"
    assert param in envelope["error"]["message"]


def test_tokens_are_counted_by_length() -> None:
    few = API.count_tokens(ASKED)["input_tokens"]
    image = {"type": "image", "source": base64_source(png(750, 100), "image/png")}
    many = API.count_tokens({**ASKED, "tools": [TOOL], "messages": [user(image, text("a" * 3500))]})
    assert (few, 1100 < many["input_tokens"] < 1150) == (5, True)


def encoder(*, thinks: bool = True) -> MessagesEncoder:
    return API.encoder(parsed(thinking={"type": "enabled" if thinks else "disabled"}), RUN, 0)


def described_events(stream: bytes) -> list[str]:
    types = list[str]()
    open_block = -1
    index = -1
    for event in events(stream):
        match event["type"]:
            case "content_block_start":
                assert open_block == -1
                index += 1
                open_block = event["index"]
                assert open_block == index
                types.append(f"+{event['content_block']['type']}")
            case "content_block_delta":
                assert event["index"] == open_block
                delta = event["delta"]
                types.append(str(delta[next(key for key in delta if key != "type")]))
            case "content_block_stop":
                assert event["index"] == open_block
                open_block = -1
                types.append("-")
            case other:
                types.append(other)
    assert open_block == -1
    return types


def test_a_stream_has_thinking_then_text() -> None:
    out = encoder()
    stream = (
        out.begin() + out.heartbeat() + out.reasoning("plan\n") + out.text("Hi") + out.heartbeat()
    )
    stream += out.reasoning("late") + out.text("!") + out.end(outcome())
    assert described_events(stream) == [
        "message_start",
        "+thinking",
        "",
        "plan\n",
        "conductor",
        "-",
        "+text",
        "Hi",
        "",
        "!",
        "-",
        "message_delta",
        "message_stop",
    ]
    start, *_, end, _ = events(stream)
    assert start["message"]["usage"]["input_tokens"] > 0
    assert end["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert {
        name: end["usage"][name]
        for name in ("input_tokens", "cache_read_input_tokens", "output_tokens")
    } == {
        "input_tokens": 100,
        "cache_read_input_tokens": 100,
        "output_tokens": 522,
    }
    assert end["conductor"]["run"] == RUN
    assert end["conductor"]["usage"]["orchestration"]["output_tokens"] == 1053


def test_without_thinking_the_first_block_is_the_text() -> None:
    out = encoder(thinks=False)
    stream = (
        out.begin() + out.reasoning("plan") + out.heartbeat() + out.text("Hi!") + out.end(outcome())
    )
    assert described_events(stream) == [
        "message_start",
        "+text",
        "",
        "Hi!",
        "-",
        "message_delta",
        "message_stop",
    ]
    assert [block["type"] for block in out.whole(outcome(reasoning="plan"))["content"]] == ["text"]


def test_calls_are_blocks_of_their_own() -> None:
    out = encoder(thinks=False)
    stream = out.begin() + out.text("I edit.") + out.tool_call(CALL) + out.tool_call(CALL)
    stream += out.end(outcome(finish="tool", calls=(CALL, CALL)))
    assert described_events(stream)[4:] == ["+tool_use", CALL.arguments, "-"] * 2 + [
        "message_delta",
        "message_stop",
    ]
    assert list(events(stream))[-2]["delta"]["stop_reason"] == "tool_use"


def test_an_empty_answer_has_a_block_too() -> None:
    out = encoder(thinks=False)
    assert described_events(out.begin() + out.end(outcome(text="")))[1:3] == ["+text", "-"]


def test_a_failure_ends_the_open_block_and_is_told() -> None:
    out = encoder()
    stream = out.begin() + out.failed(RequestError(502, "workers_failed", "all workers failed"))
    assert described_events(stream) == ["message_start", "+thinking", "conductor", "-", "error"]
    assert list(events(stream))[-1] == {
        "type": "error",
        "error": {"type": "api_error", "message": "all workers failed"},
        "request_id": RUN,
    }


def test_a_failure_without_thinking_has_a_block_before_it() -> None:
    """Claude Code would ask three more times for a stream that failed before its first block."""
    out = encoder(thinks=False)
    stream = out.begin() + out.failed(RequestError(502, "workers_failed", "all workers failed"))
    assert described_events(stream) == ["message_start", "+text", "-", "error"]


def test_a_whole_answer_has_the_same_parts() -> None:
    whole = encoder().whole(outcome(reasoning="plan", finish="tool", calls=(CALL,)))
    assert [block["type"] for block in whole["content"]] == ["thinking", "text", "tool_use"]
    assert (whole["content"][2]["input"], whole["stop_reason"], whole["id"]) == (
        {"file": "a.py"},
        "tool_use",
        f"msg_{RUN}",
    )
    assert encoder().whole(outcome(finish="length"))["stop_reason"] == "max_tokens"


def test_arguments_that_are_no_object_are_shown_to_the_client() -> None:
    broken = ToolCall(id="a", name="edit", arguments='{"file": ')
    whole = encoder().whole(outcome(calls=(broken,)))
    assert whole["content"][1]["input"] == {"arguments": '{"file": '}

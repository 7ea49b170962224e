"""Servers that want a conversation in a stricter form than others: its order and its thinking."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from conductor_cli.models.chat_api_model import ChatApiModel
from conductor_cli.models.strict_turns import are_by_turns, by_turns
from tests.models.kit import called, in_turn, notes, play, spoken, talk, text
from tests.servers import Script, SeenRequest, Wire, delta, loopback, saying, usage

YES = (delta("Yes.", finish="stop"), usage())


def strict(takes: Callable[[SeenRequest], bool], status: int, message: str) -> Script:
    """A server that takes some requests, and refuses all others with a message."""

    async def script(request: SeenRequest, wire: Wire) -> None:
        if takes(request):
            return await saying(*YES)(request, wire)
        return await wire.json({"error": {"message": message, "type": "invalid"}}, status)

    return script


def roles(request: SeenRequest) -> list[str]:
    return [message["role"] for message in request.json["messages"]]


def takes_turns(request: SeenRequest) -> bool:
    """What the template of Mistral's models takes, which counts no calls and results."""
    messages = request.json["messages"]
    said = [
        message["role"]
        for message in messages
        if message["role"] in ("user", "assistant") and not message.get("tool_calls")
    ]
    in_turn = all(role == ("user", "assistant")[at % 2] for at, role in enumerate(said))
    return in_turn and roles(request)[-1] != "assistant"


ORDERS = [
    (400, "Conversation roles must alternate user/assistant/user/assistant/..."),
    (400, "After the optional system message, conversation roles must alternate user/assistant/…"),
    (500, "Jinja Exception: Conversation roles must alternate user/assistant/user/assistant/..."),
    (400, "Unexpected role 'user' after role 'tool'"),
    (
        400,
        "Expected last role User or Tool (or Assistant with prefix True) for serving but got assi",
    ),
    (400, 'messages: first message must use the "user" role'),
    (
        400,
        "This model does not support assistant message prefill. The conversation must end with a ",
    ),
    (
        400,
        "A conversation must start with a user message. Try again with a conversation that starts",
    ),
    (400, "deepseek-reasoner does not support successive user or assistant messages"),
    (
        400,
        "After the (optional) system message(s), user message(s) should alternate with assistant",
    ),
    (400, "Last message must have role `user`."),
    (500, "Assistant response prefill is incompatible with enable_thinking."),
]


@pytest.mark.parametrize(("status", "message"), ORDERS)
def test_a_server_that_wants_turns_is_sent_questions_and_answers_by_turns(
    status: int, message: str
) -> None:
    odd = talk(
        spoken("system", "Be short."),
        spoken("assistant", "Hello."),
        spoken("user", "Rules."),
        spoken("user", "Warm?"),
        *called("abcdefghi"),
        spoken("user", "And now?"),
        spoken("assistant", "It is"),
    )
    with loopback(strict(takes_turns, status, message)) as server:
        both = play(ChatApiModel("m", f"{server.url}/v1"), odd, odd)
    assert [text(chunks) for chunks in both] == ["Yes.", "Yes."]
    told = "does not accept messages in this order; sent as questions and answers by turns"
    assert [notes(chunks) for chunks in both] == [[f"127.0.0.1:{server.port} {told}"], []]
    assert len(server.requests) == 3
    sent = server.requests[-1].json["messages"]
    assert [said["role"] for said in sent] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert [sent[3]["content"], sent[-2]["content"]] == ["Rules.\n\nWarm?", "It is"]


def test_a_conversation_that_is_in_order_is_not_sent_again() -> None:
    message = "Unexpected role 'user' after role 'tool'"
    with loopback(strict(lambda _: False, 400, message)) as server, pytest.raises(Exception) as no:
        play(ChatApiModel("m", f"{server.url}/v1"), talk(spoken("user", "Warm?")))
    assert (len(server.requests), message in str(no.value)) == (1, True)


@pytest.mark.parametrize(
    "order",
    ["u", "su", "ssu", "uau", "sucru", "uccrra", "a", "au", "uu", "uaa", "ucrcr", "ucrau", "", "s"],
)
def test_what_is_by_turns_stays_as_it_is(order: str) -> None:
    names = {"s": "system", "u": "user", "a": "assistant", "c": "assistant", "r": "tool"}
    messages = [{"role": names[letter], "content": letter} for letter in order]
    turns = by_turns(messages)
    assert are_by_turns(messages) == (turns == messages != [])
    assert are_by_turns(turns) == bool(turns)


def test_files_beside_a_question_stay_with_it() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Look."},
        {"role": "user", "content": [image]},
    ]
    assert by_turns(messages) == [
        {"role": "user", "content": [{"type": "text", "text": "Look."}, image]}
    ]


def thinks_everywhere(request: SeenRequest) -> bool:
    said = [message for message in request.json["messages"] if message["role"] == "assistant"]
    return all(message.get("reasoning_content") for message in said)


@pytest.mark.parametrize(
    "message",
    [
        "thinking is enabled but reasoning_content is missing in assistant tool call message at 2",
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        "Missing `reasoning_content` field in the assistant message at message index 2.",
    ],
)
def test_a_turn_of_another_model_has_a_note_where_its_thinking_is_wanted(message: str) -> None:
    own = called("own000000", provider_data={"reasoning_content": "Oslo is cold."})
    request = talk(spoken("user", "Warm?"), *called("abcdefghi"), *own)
    with loopback(strict(thinks_everywhere, 400, message)) as server:
        (chunks,) = play(ChatApiModel("m", f"{server.url}/v1"), request)
    assert text(chunks) == "Yes."
    assert [note.partition(" ")[2] for note in notes(chunks)] == [
        "does not accept turns without their thinking; sent with a note in its place"
    ]
    said = [turn.get("reasoning_content") for turn in server.requests[1].json["messages"]]
    assert said == [
        None,
        "(The thinking of this turn is not known here.)",
        None,
        "Oslo is cold.",
        None,
    ]


def test_claude_goes_on_without_thinking_after_calls_of_another_model_alone() -> None:
    message = (
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
        "`tool_use`. When `thinking` is enabled, a final `assistant` message must start with a "
        "thinking block"
    )

    async def script(request: SeenRequest, wire: Wire) -> None:
        is_refused = "thinking" in request.json and len(request.json["messages"]) > 1
        if is_refused:
            error = {"type": "invalid_request_error", "message": message}
            return await wire.json({"type": "error", "error": error}, 400)
        counts = {"input_tokens": 9, "output_tokens": 1}
        whole = {"type": "message", "content": [{"type": "text", "text": "Yes."}]}
        return await wire.json(whole | {"stop_reason": "end_turn", "usage": counts})

    foreign = talk(spoken("user", "Warm?"), *called("abcdefghi"))
    fresh = talk(spoken("user", "Warm?"))
    chunks, requests = in_turn("anthropic", script, foreign, fresh, thinking_budget=2000)
    assert [text(reply) for reply in chunks] == ["Yes.", "Yes."]
    assert ["thinking" in request.json for request in requests] == [True, False, True]
    assert [
        ["does not think in this turn" in note for note in notes(reply)] for reply in chunks
    ] == [
        [True],
        [],
    ]


@pytest.mark.parametrize(
    "message",
    [
        "'role:assistant' must be satisfied: property 'reasoning_content' is unsupported)]",
        "messages.2.assistant.reasoning_content: property 'messages.2' is unsupported",
    ],
)
def test_a_server_that_takes_no_thinking_back_is_sent_none(message: str) -> None:
    def takes(request: SeenRequest) -> bool:
        return all("reasoning_content" not in turn for turn in request.json["messages"])

    kept = {"reasoning_content": "Hm.", "extra_content": {"abcdefghi": {"a": 1}}}
    request = talk(spoken("user", "Warm?"), *called("abcdefghi", provider_data=kept))
    with loopback(strict(takes, 400, message)) as server:
        (chunks,) = play(ChatApiModel("m", f"{server.url}/v1"), request)
    assert [note.partition(" ")[2] for note in notes(chunks)] == [
        "does not accept turns with their thinking; sent without it"
    ]
    assert server.requests[1].json["messages"][1]["tool_calls"][0]["extra_content"] == {"a": 1}


def test_calls_are_texts_where_a_server_takes_none_without_tools() -> None:
    """As in a client's request for a summary of its conversation."""
    message = "The toolConfig field must be defined when using toolUse and toolResult content"

    def takes(request: SeenRequest) -> bool:
        return "tools" in request.json or "tool" not in roles(request)

    with_tools = talk(spoken("user", "Warm?"), *called("abcdefghi"), spoken("user", "Sum up."))
    without = replace(with_tools, tools=())
    with loopback(strict(takes, 400, message)) as server:
        replies = play(ChatApiModel("m", f"{server.url}/v1"), with_tools, without, with_tools)
    assert [[note.partition(" ")[2] for note in notes(chunks)] for chunks in replies] == [
        [],
        ["does not accept calls of tools without tools; sent as texts"],
        [],
    ]
    sent = server.requests[2].json["messages"]
    assert [turn["role"] for turn in sent] == ["user", "assistant", "user", "user"]
    assert sent[1] == {
        "role": "assistant",
        "content": 'Called the tool weather: {"city": "Oslo"}',
    }
    assert sent[2]["content"].startswith("A tool gave this result:\n\n<result-")
    assert "Hail." in sent[2]["content"]
    assert roles(server.requests[3]) == ["user", "assistant", "tool", "user"]

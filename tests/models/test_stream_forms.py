"""Replies as real servers write them: events, bodies, encodings, characters and thinking."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from conductor_cli.core.chat import Chunk
from conductor_cli.core.errors import ModelError
from conductor_cli.models.chat_api_model import ChatApiModel
from tests.models.kit import broken_off, play, text, thinking, user_request
from tests.servers import Script, SeenRequest, Wire, delta, loopback, saying, usage

END = (delta(finish="stop"), usage(), "[DONE]")
WHOLE = (delta("OK"), *END)


def body_of(*frames: Any) -> bytes:
    """The bytes of a stream of events."""
    events = []
    for frame in frames:
        content = frame if isinstance(frame, str) else json.dumps(frame)
        events.append(f"data: {content}\n\n")
    return "".join(events).encode()


def sending(*pieces: bytes, kind: str = "text/event-stream", **headers: str) -> Script:
    """A server that answers with these pieces, each in a packet of its own."""

    async def script(request: SeenRequest, wire: Wire) -> None:
        await wire.head(200, kind, **headers)
        for piece in pieces:
            await wire.send(piece)

    return script


def reply(script: Script, model: str = "m") -> list[Chunk]:
    with loopback(script) as server:
        return play(ChatApiModel(model, f"{server.url}/v1"), user_request())[0]


def failed(script: Script) -> tuple[list[Chunk], ModelError]:
    with loopback(script) as server:
        return broken_off(ChatApiModel("m", f"{server.url}/v1"), user_request())


def notes(chunks: list[Chunk]) -> str:
    return " ".join(chunk.note for chunk in chunks)


MESSAGE = {
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "OK"}, "finish_reason": "stop"}
    ]
}
READ_AS_OK: dict[str, Script] = {
    "lines that end in CR": sending(body_of(*WHOLE).replace(b"\n", b"\r")),
    "lines that end in CRLF, cut in two": sending(
        *body_of(*WHOLE).replace(b"\n", b"\r\n").replace(b"\r\n\r\n", b"\r\n\r|\n").split(b"|")
    ),
    "events without data": sending(
        b"data: \n\n", body_of(delta("OK")), b"data:\n\n", body_of(*END)
    ),
    "white space before a body": sending(b" ", b"\n\n", json.dumps(MESSAGE).encode()),
    "a byte order mark before a body": sending(
        b"\xef\xbb\xbf" + json.dumps(MESSAGE).encode(), kind="application/json"
    ),
    "a byte order mark before a stream": sending(b"\xef\xbb\xbf", body_of(*WHOLE)),
    "a list of frames as a body": sending(
        json.dumps([delta("O"), delta("K"), *END[:2]]).encode(), kind="application/json"
    ),
    "an encoding that is a character set": sending(
        body_of(*WHOLE), **{"content-encoding": "UTF-8"}
    ),
    "an encoding that is none": sending(body_of(*WHOLE), **{"content-encoding": "none"}),
    "two encodings that are none": sending(
        body_of(*WHOLE), **{"content-encoding": "identity, identity"}
    ),
    "a body of several members of gzip": sending(
        gzip.compress(body_of(delta("O"))) + gzip.compress(body_of(delta("K"), *END)),
        **{"content-encoding": "gzip"},
    ),
    "a large frame": saying(
        {**delta("OK"), "padding": "x" * 1_200_000}, delta(finish="stop"), usage()
    ),
    "other events that are named": sending(
        b"event: ping\ndata: {}\n\nevent: message\n", body_of(*WHOLE)
    ),
}


@pytest.mark.parametrize("script", READ_AS_OK.values(), ids=READ_AS_OK)
def test_a_reply_in_another_form_is_read_whole(script: Script) -> None:
    chunks = reply(script)
    assert (text(chunks), chunks[-1].finish) == ("OK", "stop")


@pytest.mark.parametrize(
    ("sent", "reason", "words"),
    [
        ('{"message": "overloaded", "type": "server_error"}', "overloaded", "overloaded"),
        ('{"error": {"message": "slow down", "code": 429}}', "rate", "slow down"),
        ("the engine died", "broken", "the engine died"),
        ("{}", "broken", "the server sent an error"),
    ],
)
@pytest.mark.parametrize("end", [b"", b"data: [DONE]\n\n"])
def test_an_event_named_error_is_an_error(sent: str, reason: str, words: str, end: bytes) -> None:
    event = f"event: error\ndata: {sent}\n\n".encode()
    chunks, error = failed(sending(body_of(delta("OKA")), event + end))
    assert (text(chunks), error.reason) == ("OKA", reason)
    assert words in error.message


@pytest.mark.parametrize("end", [b"", b"data: [DONE]\n\n"])
def test_a_field_named_error_is_an_error(end: bytes) -> None:
    """A llama-server of before October 2025 has its errors so, with status 200."""
    words = "the request exceeds the available context size. try increasing the context size"
    sent = json.dumps({"code": 400, "message": words, "type": "invalid_request_error"})
    chunks, error = failed(sending(f"error: {sent}\n\n".encode() + end))
    assert (text(chunks), error.reason) == ("", "length")
    assert words in error.message


def test_the_name_of_an_event_holds_for_that_event_alone() -> None:
    chunks = reply(sending(b"event: error\n\n", body_of(*WHOLE)))
    assert text(chunks) == "OK"


@pytest.mark.parametrize("last", [{"delta": {}}, {"delta": {"content": ""}}, {"delta": None}, {}])
def test_a_whole_message_after_its_pieces_is_not_said_twice(last: dict[str, Any]) -> None:
    choice = {"index": 0, "message": {"content": "OKAY"}, "finish_reason": "stop"} | last
    chunks = reply(saying(delta("OK"), delta("AY"), {"choices": [choice]}, usage()))
    assert text(chunks) == "OKAY"


@pytest.mark.parametrize("piece", [{}, {"role": "assistant", "content": ""}])
def test_a_whole_message_without_pieces_is_the_reply(piece: dict[str, str]) -> None:
    """The second is how Perplexity has a whole answer."""
    choice = {"index": 0, "delta": piece, "message": {"content": "OKAY"}, "finish_reason": "stop"}
    assert text(reply(saying(delta(), {"choices": [choice]}, usage()))) == "OKAY"


@pytest.mark.parametrize("field", ["content", "reasoning_content"])
@pytest.mark.parametrize("together", [True, False])
def test_a_character_that_is_cut_into_two_deltas_is_whole(field: str, together: bool) -> None:
    frames = [delta(**{field: "A \ud83d"}), delta(**{field: "\ude00 B"})]
    pieces = [body_of(*frames)] if together else [body_of(frame) for frame in frames]
    chunks = reply(sending(*pieces, body_of(delta("."), *END)))
    answer = text(chunks) if field == "content" else thinking(chunks) + text(chunks)
    assert answer == "A 😀 B."


@pytest.mark.parametrize("message", ["A \ud83d", "\ude00 B", "\ud83dx"])
def test_half_a_character_is_replaced(message: str) -> None:
    assert "\ufffd" in text(reply(saying(delta(message), delta(finish="stop"))))


def test_pieces_of_other_answers_are_left_out_and_told() -> None:
    other = delta("NO")
    other["choices"][0]["index"] = 1
    chunks = reply(saying(delta("OK"), other, delta("AY"), other, *END[:2]))
    assert text(chunks) == "OKAY"
    assert "sent 2 pieces of other answers" in notes(chunks)


HIDDEN = "I add them.\n</think>\n\nOKAY"


def pieces_of(message: str) -> Script:
    return saying(*(delta(word) for word in message.partition("</think>")), *END[:2])


def test_thinking_that_a_whole_body_only_closes_is_thinking() -> None:
    body = json.loads(json.dumps(MESSAGE))
    body["choices"][0]["message"]["content"] = HIDDEN
    chunks = reply(sending(json.dumps(body).encode(), kind="application/json"))
    assert (text(chunks), thinking(chunks)) == ("OKAY", "I add them.\n")


def test_thinking_that_is_only_closed_is_thinking_where_a_model_is_known_to_do_so() -> None:
    chunks = reply(pieces_of(HIDDEN), model="deepseek-ai/DeepSeek-R1-Distill-Qwen-7B")
    assert (text(chunks), thinking(chunks)) == ("OKAY", "I add them.\n")


def test_thinking_that_is_only_closed_is_told_once_and_then_understood() -> None:
    with loopback(pieces_of(HIDDEN)) as server:
        model = ChatApiModel("m", f"{server.url}/v1")
        first, second, third = play(model, user_request("1"), user_request("2"), user_request("3"))
    assert "does not mark where thinking begins" in notes(first)
    assert (text(second), thinking(second)) == ("OKAY", "I add them.\n")
    assert text(third) == "OKAY"
    assert "thinking" not in notes(second) + notes(third)


@pytest.mark.parametrize(
    "frames",
    [
        (delta("OKAY"),),
        (delta(reasoning_content="I add them.\n"), delta("OKAY")),
        (delta("<think>I add them.\n</think>OKAY"),),
    ],
    ids=["no thinking", "marked by the server", "both tags"],
)
def test_a_model_that_is_expected_to_think_may_answer_otherwise(
    frames: tuple[dict[str, Any], ...],
) -> None:
    chunks = reply(saying(*frames, *END[:2]), model="qwq-32b")
    assert text(chunks) == "OKAY"


def test_a_text_about_the_tag_is_a_text() -> None:
    message = "The tag `</think>` ends thinking."
    chunks = reply(saying(delta(message), *END[:2]))
    assert text(chunks) == message
    assert "thinking" not in notes(chunks)

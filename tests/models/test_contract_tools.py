"""The contract of `Model` for files and tools, held by every adapter against a server that speaks its protocol."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest

from conductor_cli.core.chat import Attachment, Chunk, Message, Request, Tool, ToolChoice
from conductor_cli.core.errors import ModelError
from conductor_cli.models.base import Model
from conductor_cli.models.presets import PRESETS
from tests.models.kit import ASK, BYTES, CHART, LITELLM, PAPER, WEATHER, calls, play, speaking, text, thinking, used
from tests.models.test_contract import REMOTE, ends_well, worker
from tests.servers import Script, SeenStep, Speaker, Wire, loopback

pytestmark = LITELLM

ADAPTERS: dict[str, Callable[[str], Model]] = {
    "chat completions": REMOTE["openai-compatible"],
    "Responses": worker("openai-compatible", "m", "/v1", api="responses"),
    "Anthropic": REMOTE["anthropic"],
    "litellm, to OpenAI": REMOTE["litellm-openai"],
    "litellm, to Anthropic": REMOTE["litellm-anthropic"],
}
EVERY = pytest.mark.parametrize("name", ADAPTERS)

CLOCK = Tool(name="clock")


def asked(*messages: Message, tools: tuple[Tool, ...] = (), tool_choice: ToolChoice | Tool = "auto") -> Request:
    return Request(
        messages=messages or (ASK,), tools=tools, tool_choice=tool_choice, max_tokens=500,
        read_attachment=lambda attachment: BYTES[attachment.name],
    )  # fmt: skip


def ask(name: str, script: Script, request: Request) -> tuple[list[Chunk], str]:
    """The chunks of a reply, and the body of the request as it was sent."""
    with loopback(script) as server:
        chunks = play(ADAPTERS[name](server.url), request)[0]
        assert len(server.requests) == 1
        return chunks, json.dumps(server.requests[0].json)


fine = speaking("Yes.")


async def calling(seen: SeenStep, wire: Wire) -> None:
    """Thinks, speaks, and calls two tools at once, the arguments of one in pieces."""
    speaker = Speaker(seen, wire)
    await speaker.begin()
    await speaker.think("I need the weather.", signature="c2ln")
    await speaker.say("Let me look.")
    await speaker.call("weather", '{"city"', ": ", '"Oslo"}', id="call_a1")
    await speaker.call("clock", id="call_b2")
    await speaker.end()


def data(attachment: Attachment) -> str:
    return b64encode(BYTES[attachment.name]).decode()


def in_order(body: str, *pieces: str) -> bool:
    """Whether each of these is in the body, in this order."""
    places = [body.find(piece) for piece in pieces]
    return -1 not in places and places == sorted(places)


@EVERY
def test_calls_come_with_text_and_thinking(name: str) -> None:
    chunks, _ = ask(name, calling, asked(tools=(WEATHER, CLOCK)))
    first, second = calls(chunks)
    assert (first.name, json.loads(first.arguments)) == ("weather", {"city": "Oslo"})
    assert (second.name, json.loads(second.arguments)) == ("clock", {})
    assert first.id != second.id
    assert text(chunks) == "Let me look."
    assert thinking(chunks) == "I need the weather."
    assert ends_well(chunks)
    assert chunks[-1].finish == "tool"
    assert (used(chunks).tokens_in, used(chunks).tokens_out) == (11, 7)


def next_turn(chunks: list[Chunk], content: str = "") -> Request:
    """The request that gives the results of both calls, the second of which failed; with other content, if any."""
    first, second = found = calls(chunks)
    said, data = content or text(chunks), chunks[-1].provider_data
    turn = Message(role="assistant", content=said, tool_calls=found, provider_data=data)
    results = (
        Message(role="tool", content="3 degrees", tool_call_id=first.id),
        Message(role="tool", content="no clock here", tool_call_id=second.id, is_error=True),
    )
    return asked(ASK, turn, *results, tools=(WEATHER, CLOCK))


@EVERY
def test_results_go_back_to_their_calls(name: str) -> None:
    chunks, _ = ask(name, calling, asked(tools=(WEATHER, CLOCK)))
    answer, body = ask(name, fine, next_turn(chunks))
    assert text(answer) == "Yes."
    assert in_order(body, "Is it warm?", "Let me look.", "Oslo", "3 degrees", "no clock here")
    for call in calls(chunks):
        assert body.count(f'"{call.id}"') == 2
    assert any(words in body for words in ("Error: no clock here", '"is_error": true'))
    # What a provider signed is sent back with the turn that it belongs to.
    assert ("c2ln" in body) == (name in ("Responses", "Anthropic", "litellm, to Anthropic"))


@EVERY
def test_a_file_that_nobody_can_read_is_refused_before_it_is_sent(name: str) -> None:
    film = Attachment(name="film.mp4", media_type="video/mp4", sha256="3" * 64, size=1)
    with loopback(fine) as server:
        for attachment, read in ((film, lambda _: b""), (CHART, None)):
            message = Message(role="user", content="?", attachments=(attachment,))
            with pytest.raises(ModelError, match=attachment.name) as error:
                play(ADAPTERS[name](server.url), Request(messages=(message,), read_attachment=read))
            assert not error.value.retryable
        assert server.requests == []


@pytest.mark.parametrize("kind", [kind for kind, preset in PRESETS.items() if "pdf" not in preset.features])
def test_a_provider_without_pdf_files_refuses_them_by_name(kind: str) -> None:
    with loopback(fine) as server:
        message = Message(role="user", content="?", attachments=(PAPER,))
        with pytest.raises(ModelError, match=r"m cannot be sent PDF files: paper\.pdf"):
            play(worker(kind, "m", "/v1")(server.url), asked(message))
        assert server.requests == []


PAGE = Path(__file__).parents[2] / "docs/workers.md"


def row(name: str) -> str:
    """What was just seen of one adapter, as a row of the page's table."""
    chunks, _ = ask(name, calling, asked(tools=(WEATHER, CLOCK)))
    found = calls(chunks)
    pieces = [chunk for chunk in chunks if chunk.tool_call and chunk.tool_call.index == 0 and chunk.tool_call.arguments]
    shown = Message(role="tool", content="A chart.", tool_call_id=found[0].id, attachments=(CHART,))
    turn = Message(role="assistant", content="", tool_calls=found[:1], provider_data=chunks[-1].provider_data)
    body = ask(name, fine, asked(ASK, turn, shown, Message(role="user", content="And now?"), tools=(WEATHER,)))[1]
    after = "The files of the result" in body
    results = ("after it" if after else "inside it") if in_order(body, data(CHART), "And now?") else "no"
    taken = [
        "yes"
        if data(file) in ask(name, fine, asked(Message(role="user", content="?", attachments=(file,))))[1]
        else "no"
        for file in (CHART, PAPER)
    ]
    cells = [
        name, "yes" if thinking(chunks) else "no", "several at once" if len(found) == 2 else "one",
        "in pieces" if len(pieces) > 1 else "whole", *taken, results,
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def test_the_page_says_what_each_adapter_carries() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [line for line in map(row, ADAPTERS) if line not in page] == []

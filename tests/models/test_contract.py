"""The contract of `Model`, held by every adapter.

Against servers that speak its protocol or fail, and a real model.
"""

from __future__ import annotations

import asyncio
import json
import os
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import aclosing, suppress
from pathlib import Path

import pytest

from conductor_cli.core.chat import Attachment, Chunk, Message, Request, Tool, ToolChoice
from conductor_cli.core.errors import ModelError
from conductor_cli.core.pool import Worker
from conductor_cli.models.base import Model, ScriptedModel
from conductor_cli.models.catalog import open_model
from conductor_cli.models.presets import PRESETS
from tests.models.kit import (
    ASK,
    BYTES,
    CHART,
    LITELLM,
    PAPER,
    WEATHER,
    answering,
    broken_off,
    calls,
    chunks_of,
    fine,
    play,
    silent,
    speaking,
    text,
    thinking,
    together,
    used,
    user_request,
)
from tests.servers import Loopback, Script, SeenRequest, Speaker, Wire, aimock, loopback

pytestmark = LITELLM

PARIS = "The capital of France is Paris."
KEY = {"TEST_KEY": "sk-test-123456"}


def worker(kind: str, model: str, path: str, **extra_options: str) -> Callable[[str], Model]:
    """Opens a worker of this kind whose server has this address."""

    def opened(url: str) -> Model:
        options = {"base_url": url + path, "key_env": "TEST_KEY", **extra_options}
        return open_model(Worker(name="w", kind=kind, model=model, options=options), environ=KEY)

    return opened


REMOTE: dict[str, Callable[[str], Model]] = {
    "anthropic": worker("anthropic", "claude-haiku-4-5", ""),
    "gemini": worker("gemini", "gemini-3.8-flash", "/v1beta"),
    "openai-compatible": worker("openai-compatible", "m", "/v1"),
    "litellm-openai": worker("litellm", "openai/gpt-5", "/v1"),
    "litellm-anthropic": worker("litellm", "anthropic/claude-haiku-4-5", ""),
}
ALL = [*REMOTE, "scripted", "llama", "command"]


def ends_well(chunks: list[Chunk]) -> bool:
    """Whether exactly one chunk has usage and finish, and it is the last."""
    last = [chunk.usage is not None and chunk.finish is not None for chunk in chunks]
    none = all(chunk.usage is None and chunk.finish is None for chunk in chunks[:-1])
    return none and last[-1]


@pytest.fixture(scope="module")
def mock() -> Iterator[str]:
    with aimock() as url:
        yield url


def adapter(name: str, request: pytest.FixtureRequest) -> Model:
    """A model of each adapter that answers what the capital of France is."""
    if name == "scripted":
        return ScriptedModel([["The capital of France ", "is Paris."]])
    if name == "command":
        says = "printf 'The capital of France '; sleep 0.1; echo 'is Paris.'"
        return open_model(
            Worker(name="w", kind="command", options={"command": ["sh", "-c", says]}),
            environ=os.environ,
        )
    if name == "llama":
        path = str(request.getfixturevalue("tiny"))
        return open_model(
            Worker(name="w", kind="llama", model=path, options={"context": 256}), environ={}
        )
    return REMOTE[name](request.getfixturevalue("mock"))


@pytest.mark.parametrize("name", ALL)
def test_text_is_the_joined_deltas_and_one_usage_is_last(
    name: str, request: pytest.FixtureRequest
) -> None:
    chunks = play(
        adapter(name, request), user_request("What is the capital of France?", max_tokens=12)
    )[0]
    assert name == "llama" or text(chunks) == PARIS
    assert ends_well(chunks)
    usage = used(chunks)
    assert min(usage.tokens_in, usage.tokens_out, usage.calls) > 0
    assert chunks[-1].finish in (("stop", "length") if name == "llama" else ("stop",))


@pytest.mark.parametrize("name", ALL)
def test_replies_may_be_open_side_by_side(name: str, request: pytest.FixtureRequest) -> None:
    question = user_request("What is the capital of France?", max_tokens=6)
    replies = together(adapter(name, request), question, question, question)
    assert [ends_well(chunks) for chunks in replies] == [True, True, True]


@pytest.mark.parametrize("name", ALL)
def test_a_model_is_usable_after_a_reply_was_left(
    name: str, request: pytest.FixtureRequest
) -> None:
    async def go(model: Model) -> list[Chunk]:
        question = user_request("What is the capital of France?", max_tokens=6)
        async with aclosing(model.stream(question)) as stream:
            await anext(stream)
        chunks = await chunks_of(model, question)
        await model.close()
        return chunks

    assert ends_well(asyncio.run(go(adapter(name, request))))


@pytest.mark.parametrize("name", REMOTE)
def test_a_model_may_be_used_in_one_loop_after_the_other(name: str, mock: str) -> None:
    model = REMOTE[name](mock)
    replies = [play(model, user_request("What is the capital of France?"))[0] for _ in range(2)]
    assert [text(chunks) for chunks in replies] == [PARIS, PARIS]


@pytest.mark.parametrize("name", REMOTE)
@pytest.mark.parametrize(
    ("question", "words", "finish"),
    [("cut short", "This was cut by the", "length"), ("forbidden", "I cannot", "refusal")],
)
def test_the_reason_of_the_end_is_carried(
    name: str, question: str, words: str, finish: str, mock: str
) -> None:
    chunks = play(REMOTE[name](mock), user_request(question))[0]
    assert (text(chunks), chunks[-1].finish) == (words, finish)
    assert ends_well(chunks)


@pytest.mark.parametrize("name", REMOTE)
@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("too often", "rate"),
        ("wrong key", "auth"),
        ("no such model", "missing"),
        ("too busy", "overloaded"),
        ("too long", "length"),
    ],
)
def test_a_refusal_is_a_model_error_with_its_reason(
    name: str, question: str, reason: str, mock: str
) -> None:
    with pytest.raises(ModelError) as error:
        play(REMOTE[name](mock), user_request(question))
    assert error.value.reason == reason
    assert KEY["TEST_KEY"] not in str(error.value)
    assert "litellm." not in str(error.value)


@pytest.mark.parametrize("name", REMOTE)
def test_the_wait_that_a_server_asks_for_is_carried(name: str) -> None:
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": "Slow down"}}
    with (
        loopback(answering(body, 429, retry_after="7")) as server,
        pytest.raises(ModelError) as error,
    ):
        play(REMOTE[name](server.url), user_request())
    assert (error.value.reason, error.value.retry_after) == ("rate", 7.0)
    assert len(server.requests) == 1


@pytest.mark.parametrize("name", REMOTE)
def test_a_long_row_of_the_same_word_is_text_like_any_other(name: str) -> None:
    with loopback(speaking(*[" zero"] * 150)) as server:
        assert text(play(REMOTE[name](server.url), user_request())[0]) == " zero" * 150


@pytest.mark.parametrize("name", REMOTE)
@pytest.mark.parametrize("how", ["cut", "silent", "garbage"])
def test_death_in_the_middle_of_a_reply_is_broken(name: str, how: str) -> None:
    async def script(request: SeenRequest, wire: Wire) -> None:
        speaker = Speaker(request, wire)
        await speaker.begin()
        await speaker.say("Ye")
        if how == "cut":
            await wire.raw(b"40\r\ndata: {")
            wire.cut()
        elif how == "garbage":
            await wire.send("data: {nonsense\n\n")

    with loopback(script) as server:
        chunks, error = broken_off(REMOTE[name](server.url), user_request())
    assert ([chunk.text or chunk.note for chunk in chunks], error.reason) == (["Ye"], "broken")
    assert len(server.requests) == 1


@pytest.mark.parametrize("name", REMOTE)
def test_a_server_that_is_not_there_cannot_be_connected_to(name: str) -> None:
    with loopback(silent) as server:
        url = server.url
    with pytest.raises(ModelError) as error:
        play(REMOTE[name](url), user_request())
    assert error.value.reason == "connect"


@pytest.mark.parametrize("name", REMOTE)
@pytest.mark.parametrize("when", ["before", "within"])
def test_the_time_for_a_call_bounds_it(name: str, when: str) -> None:
    with loopback(silent) as gone:
        url = gone.url
    with suppress(ModelError):  # What a first call imports takes longer than the time below
        play(REMOTE[name](url), user_request())
    with loopback(silent if when == "before" else endless) as server:
        with pytest.raises(ModelError) as error:
            play(REMOTE[name](server.url), user_request(deadline=0.5))
        assert error.value.reason == "timeout"
        assert server.requests[0].closed.wait(30)


async def endless(request: SeenRequest, wire: Wire) -> None:
    speaker = Speaker(request, wire)
    await speaker.begin()
    await speaker.say("and ")
    await wire.stall()


@pytest.mark.parametrize("name", REMOTE)
@pytest.mark.parametrize("how", ["cancel-before", "cancel-within", "close"])
def test_the_server_sees_the_close_within_a_second(name: str, how: str) -> None:
    script: Script = silent if how == "cancel-before" else endless

    async def go(server: Loopback, model: Model) -> bool:
        stream = model.stream(user_request())
        task = asyncio.ensure_future(anext(stream))
        if how == "cancel-before":
            assert await asyncio.to_thread(server.asked.wait, 20)
        else:
            await task
        if how == "cancel-within":
            task = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if how == "close":
            await stream.aclose()
        closed = await asyncio.to_thread(server.requests[0].closed.wait, 30)
        await model.close()
        return closed

    with loopback(script) as server:
        assert asyncio.run(go(server, REMOTE[name](server.url)))


ADAPTERS: dict[str, Callable[[str], Model]] = {
    "chat completions": REMOTE["openai-compatible"],
    "Responses": worker("openai-compatible", "m", "/v1", api="responses"),
    "Anthropic": REMOTE["anthropic"],
    "Gemini": REMOTE["gemini"],
    "litellm, to OpenAI": REMOTE["litellm-openai"],
    "litellm, to Anthropic": REMOTE["litellm-anthropic"],
}
FOR_EACH_ADAPTER = pytest.mark.parametrize("name", ADAPTERS)

CLOCK = Tool(name="clock")


def request_of(
    *messages: Message, tools: tuple[Tool, ...] = (), tool_choice: ToolChoice | Tool = "auto"
) -> Request:
    return Request(
        messages=messages or (ASK,),
        tools=tools,
        tool_choice=tool_choice,
        max_tokens=500,
        read_attachment=lambda attachment: BYTES[attachment.name],
    )


def ask(name: str, script: Script, request: Request) -> tuple[list[Chunk], str]:
    """The chunks of a reply, and the body of the request as it was sent."""
    with loopback(script) as server:
        chunks = play(ADAPTERS[name](server.url), request)[0]
        assert len(server.requests) == 1
        return chunks, json.dumps(server.requests[0].json)


async def calling(request: SeenRequest, wire: Wire) -> None:
    """Thinks, speaks, and calls two tools at once, the arguments of one in pieces."""
    speaker = Speaker(request, wire)
    await speaker.begin()
    await speaker.think("I need the weather.", signature="c2ln")
    await speaker.say("Let me look.")
    await speaker.call("weather", '{"city"', ": ", '"Oslo"}', id="call_a1")
    await speaker.call("clock", id="call_b2")
    await speaker.end()


def base64_of(attachment: Attachment) -> str:
    return b64encode(BYTES[attachment.name]).decode()


def in_order(body: str, *pieces: str) -> bool:
    """Whether each of these is in the body, in this order."""
    places = [body.find(piece) for piece in pieces]
    return -1 not in places and places == sorted(places)


@FOR_EACH_ADAPTER
def test_calls_come_with_text_and_thinking(name: str) -> None:
    chunks, _ = ask(name, calling, request_of(tools=(WEATHER, CLOCK)))
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
    """The request that gives the results of both calls, the second of which failed.

    With other content, if any.
    """
    tool_calls = calls(chunks)
    first, second = tool_calls
    answer = content or text(chunks)
    provider_data = chunks[-1].provider_data
    turn = Message(
        role="assistant", content=answer, tool_calls=tool_calls, provider_data=provider_data
    )
    results = (
        Message(role="tool", content="3 degrees", tool_call_id=first.id),
        Message(role="tool", content="no clock here", tool_call_id=second.id, is_error=True),
    )
    return request_of(ASK, turn, *results, tools=(WEATHER, CLOCK))


@FOR_EACH_ADAPTER
def test_results_go_back_to_their_calls(name: str) -> None:
    chunks, _ = ask(name, calling, request_of(tools=(WEATHER, CLOCK)))
    answer, body = ask(name, fine, next_turn(chunks))
    assert text(answer) == "Yes."
    assert in_order(body, "Is it warm?", "Let me look.", "Oslo", "3 degrees", "no clock here")
    for call in calls(chunks):
        assert body.count(f'"{call.id}"') == 2
    failed = ("Error: no clock here", '"is_error": true', '{"error": "no clock here"}')
    assert any(words in body for words in failed)
    # What a provider signed is sent back with the turn that it belongs to.
    signs = ("Responses", "Anthropic", "Gemini", "litellm, to Anthropic")
    assert ("c2ln" in body) == (name in signs)


@FOR_EACH_ADAPTER
def test_a_file_that_nobody_can_read_is_refused_before_it_is_sent(name: str) -> None:
    film = Attachment(name="film.mp4", media_type="video/mp4", sha256="3" * 64, size=1)
    with loopback(fine) as server:
        for attachment, read in ((film, lambda _: b""), (CHART, None)):
            message = Message(role="user", content="?", attachments=(attachment,))
            with pytest.raises(ModelError, match=attachment.name) as error:
                play(ADAPTERS[name](server.url), Request(messages=(message,), read_attachment=read))
            assert not error.value.retryable
        assert server.requests == []


@pytest.mark.parametrize(
    "kind", [kind for kind, preset in PRESETS.items() if "pdf" not in preset.features]
)
def test_a_provider_without_pdf_files_refuses_them_by_name(kind: str) -> None:
    with loopback(fine) as server:
        message = Message(role="user", content="?", attachments=(PAPER,))
        with pytest.raises(ModelError, match=r"m cannot be sent PDF files: paper\.pdf"):
            play(worker(kind, "m", "/v1")(server.url), request_of(message))
        assert server.requests == []


def row(name: str) -> str:
    """What was just seen of one adapter, as a row of the page's table."""
    chunks, _ = ask(name, calling, request_of(tools=(WEATHER, CLOCK)))
    tool_calls = calls(chunks)
    pieces = [
        chunk
        for chunk in chunks
        if chunk.tool_call and chunk.tool_call.index == 0 and chunk.tool_call.arguments
    ]
    shown = Message(
        role="tool", content="A chart.", tool_call_id=tool_calls[0].id, attachments=(CHART,)
    )
    turn = Message(
        role="assistant",
        content="",
        tool_calls=tool_calls[:1],
        provider_data=chunks[-1].provider_data,
    )
    body = ask(
        name,
        fine,
        request_of(ASK, turn, shown, Message(role="user", content="And now?"), tools=(WEATHER,)),
    )[1]
    results = "no"
    if in_order(body, base64_of(CHART), "And now?"):
        results = "after it" if "The files of the result" in body else "inside it"
    reading = [
        "yes"
        if base64_of(file)
        in ask(name, fine, request_of(Message(role="user", content="?", attachments=(file,))))[1]
        else "no"
        for file in (CHART, PAPER)
    ]
    cells = [
        name,
        "yes" if thinking(chunks) else "no",
        "several at once" if len(tool_calls) == 2 else "one",
        "in pieces" if len(pieces) > 1 else "whole",
        *reading,
        results,
    ]
    return f"| {' | '.join(cells)} |"


def test_the_page_says_what_each_adapter_carries() -> None:
    page = (Path(__file__).parents[2] / "docs/workers.md").read_text(encoding="utf-8")
    assert [line for line in map(row, ADAPTERS) if line not in page] == []

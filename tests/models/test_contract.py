"""The contract of `Model`, held by every adapter: against aimock, a server that fails, and a local model."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import aclosing

import pytest

from conductor_cli.core.chat import Chunk
from conductor_cli.core.errors import ModelError
from conductor_cli.core.pool import Worker
from conductor_cli.models.base import Model, ScriptedModel
from conductor_cli.models.catalog import open_model
from tests.models.kit import (
    LITELLM,
    answering,
    asked,
    broken_off,
    chunks_of,
    play,
    silent,
    speaking,
    text,
    together,
    used,
)
from tests.servers import Loopback, Script, SeenStep, Speaker, Wire, aimock, loopback

pytestmark = LITELLM

PARIS = "The capital of France is Paris."
KEY = {"TEST_KEY": "sk-test-123456"}


def worker(kind: str, model: str, path: str, **more: str) -> Callable[[str], Model]:
    """Opens a worker of this kind whose server has this address."""

    def opened(url: str) -> Model:
        options = {"base_url": url + path, "key_env": "TEST_KEY", **more}
        return open_model(Worker(name="w", kind=kind, model=model, options=options), environ=KEY)

    return opened


REMOTE: dict[str, Callable[[str], Model]] = {
    "anthropic": worker("anthropic", "claude-haiku-4-5", ""),
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
        return open_model(Worker(name="w", kind="command", options={"command": ["sh", "-c", says]}), environ=os.environ)
    if name == "llama":
        path = str(request.getfixturevalue("tiny"))
        return open_model(Worker(name="w", kind="llama", model=path, options={"context": 256}), environ={})
    return REMOTE[name](request.getfixturevalue("mock"))


@pytest.mark.parametrize("name", ALL)
def test_text_is_the_joined_deltas_and_one_usage_is_last(name: str, request: pytest.FixtureRequest) -> None:
    chunks = play(adapter(name, request), asked("What is the capital of France?", max_tokens=12))[0]
    assert name == "llama" or text(chunks) == PARIS
    assert ends_well(chunks)
    usage = used(chunks)
    assert min(usage.tokens_in, usage.tokens_out, usage.calls) > 0
    assert chunks[-1].finish in (("stop", "length") if name == "llama" else ("stop",))


@pytest.mark.parametrize("name", ALL)
def test_replies_may_be_open_side_by_side(name: str, request: pytest.FixtureRequest) -> None:
    question = asked("What is the capital of France?", max_tokens=6)
    replies = together(adapter(name, request), question, question, question)
    assert [ends_well(chunks) for chunks in replies] == [True, True, True]


@pytest.mark.parametrize("name", ALL)
def test_a_model_is_usable_after_a_reply_was_left(name: str, request: pytest.FixtureRequest) -> None:
    async def go(model: Model) -> list[Chunk]:
        question = asked("What is the capital of France?", max_tokens=6)
        async with aclosing(model.stream(question)) as stream:
            await anext(stream)
        found = await chunks_of(model, question)
        await model.close()
        return found

    assert ends_well(asyncio.run(go(adapter(name, request))))


@pytest.mark.parametrize("name", REMOTE)
def test_a_model_may_be_used_in_one_loop_after_the_other(name: str, mock: str) -> None:
    model = REMOTE[name](mock)
    replies = [play(model, asked("What is the capital of France?"))[0] for _ in range(2)]
    assert [text(chunks) for chunks in replies] == [PARIS, PARIS]


@pytest.mark.parametrize("name", REMOTE)
@pytest.mark.parametrize(
    ("question", "words", "finish"),
    [("cut short", "This was cut by the", "length"), ("forbidden", "I cannot", "refusal")],
)
def test_the_reason_of_the_end_is_carried(name: str, question: str, words: str, finish: str, mock: str) -> None:
    chunks = play(REMOTE[name](mock), asked(question))[0]
    assert (text(chunks), chunks[-1].finish) == (words, finish)
    assert ends_well(chunks)


@pytest.mark.parametrize("name", REMOTE)
@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("too often", "rate"), ("wrong key", "auth"), ("no such model", "missing"), ("too busy", "overloaded"),
        ("too long", "length"),
    ],
)  # fmt: skip
def test_a_refusal_is_a_model_error_with_its_reason(name: str, question: str, reason: str, mock: str) -> None:
    with pytest.raises(ModelError) as error:
        play(REMOTE[name](mock), asked(question))
    assert error.value.reason == reason
    assert KEY["TEST_KEY"] not in str(error.value)
    assert "litellm." not in str(error.value)


@pytest.mark.parametrize("name", REMOTE)
def test_the_wait_that_a_server_asks_for_is_carried(name: str) -> None:
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": "Slow down"}}
    with loopback(answering(body, 429, retry_after="7")) as server, pytest.raises(ModelError) as error:
        play(REMOTE[name](server.url), asked())
    assert (error.value.reason, error.value.retry_after) == ("rate", 7.0)
    assert len(server.requests) == 1


@pytest.mark.parametrize("name", REMOTE)
def test_a_long_row_of_the_same_word_is_text_like_any_other(name: str) -> None:
    with loopback(speaking(*[" zero"] * 150)) as server:
        assert text(play(REMOTE[name](server.url), asked())[0]) == " zero" * 150


@pytest.mark.parametrize("name", REMOTE)
@pytest.mark.parametrize("how", ["cut", "silent", "garbage"])
def test_death_in_the_middle_of_a_reply_is_broken(name: str, how: str) -> None:
    async def script(seen: SeenStep, wire: Wire) -> None:
        speaker = Speaker(seen, wire)
        await speaker.begin()
        await speaker.say("Ye")
        if how == "cut":
            await wire.raw(b"40\r\ndata: {")
            wire.cut()
        elif how == "garbage":
            await wire.send("data: {nonsense\n\n")

    with loopback(script) as server:
        chunks, error = broken_off(REMOTE[name](server.url), asked())
    assert ([chunk.text or chunk.note for chunk in chunks], error.reason) == (["Ye"], "broken")
    assert len(server.requests) == 1


@pytest.mark.parametrize("name", REMOTE)
def test_a_server_that_is_not_there_cannot_be_connected_to(name: str) -> None:
    with loopback(silent) as server:
        url = server.url
    with pytest.raises(ModelError) as error:
        play(REMOTE[name](url), asked())
    assert error.value.reason == "connect"


@pytest.mark.parametrize("name", REMOTE)
@pytest.mark.parametrize("when", ["before", "within"])
def test_the_time_for_a_call_bounds_it(name: str, when: str) -> None:
    with loopback(silent if when == "before" else endless) as server:
        with pytest.raises(ModelError) as error:
            play(REMOTE[name](server.url), asked(deadline=0.2))
        assert error.value.reason == "timeout"
        assert server.requests[0].closed.wait(1.0)


async def endless(seen: SeenStep, wire: Wire) -> None:
    speaker = Speaker(seen, wire)
    await speaker.begin()
    await speaker.say("and ")
    await wire.stall()


@pytest.mark.parametrize("name", REMOTE)
@pytest.mark.parametrize("how", ["cancel-before", "cancel-within", "close"])
def test_the_server_sees_the_close_within_a_second(name: str, how: str) -> None:
    script: Script = silent if how == "cancel-before" else endless

    async def go(server: Loopback, model: Model) -> bool:
        stream = model.stream(asked())
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
        closed = await asyncio.to_thread(server.requests[0].closed.wait, 1.0)
        await model.close()
        return closed

    with loopback(script) as server:
        assert asyncio.run(go(server, REMOTE[name](server.url)))

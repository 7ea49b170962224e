"""Servers that speak OpenAI's API, right and wrong, on real sockets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import pytest

from conductor_cli.core.chat import Chunk, Message, Request
from conductor_cli.core.errors import ModelError
from conductor_cli.core.usage import Usage
from conductor_cli.models.chat_api_model import ChatApiModel
from conductor_cli.models.presets import Preset
from tests.servers import Loopback, Script, SeenStep, Wire, delta, loopback, saying, usage

ASKED = Request(messages=(Message(role="system", content="Be short."), Message(role="user", content="Yes?")))
YES = (delta("Y"), delta("es."), delta(finish="stop"), usage())


def model(server: Loopback, **how: Any) -> ChatApiModel:
    return ChatApiModel(how.pop("model", "m"), f"{server.url}/v1", **how)


async def chunks_of(made: ChatApiModel, request: Request) -> list[Chunk]:
    async with aclosing(made.stream(request)) as stream:
        return [chunk async for chunk in stream]


def replies(script: Script, *requests: Request, **how: Any) -> tuple[list[list[Chunk]], list[SeenStep]]:
    """The chunks of one reply after the other by the same model, and what the server saw."""

    async def go(server: Loopback) -> list[list[Chunk]]:
        made = model(server, **how)
        try:
            return [await chunks_of(made, request) for request in requests]
        finally:
            await made.close()

    with loopback(script) as server:
        return asyncio.run(go(server)), server.requests


def reply(script: Script, request: Request = ASKED, **how: Any) -> list[Chunk]:
    return replies(script, request, **how)[0][0]


def failure(script: Script, request: Request = ASKED, **how: Any) -> ModelError:
    with pytest.raises(ModelError) as error:
        reply(script, request, **how)
    return error.value


def text(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks)


def notes(chunks: list[Chunk]) -> list[str]:
    return [chunk.note for chunk in chunks if chunk.note]


def test_a_question_is_asked_in_the_words_of_the_protocol() -> None:
    """All that a request and a worker's options say is sent, with the key as bearer; what they leave open is not."""
    request = Request(messages=ASKED.messages, max_tokens=50, temperature=0.5, seed=3, stop=("END",))
    options = {"max_tokens": 20, "temperature": 0.9, "reasoning_effort": "low", "headers": {"x-own": "1"}}
    _, seen = replies(saying(*YES), request, ASKED, key="sk-123456", options=options)
    assert seen[0].path == "/v1/chat/completions"
    assert (seen[0].headers["authorization"], seen[0].headers["x-own"]) == ("Bearer sk-123456", "1")
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Yes?"}]
    plain = {"model": "m", "messages": messages, "stream": True, "stream_options": {"include_usage": True}}
    assert seen[0].json == plain | {
        "max_tokens": 20, "temperature": 0.5, "seed": 3, "stop": ["END"], "reasoning_effort": "low",
    }  # fmt: skip
    assert seen[1].json == plain | {"max_tokens": 20, "temperature": 0.9, "reasoning_effort": "low"}


def test_without_a_key_none_is_sent() -> None:
    """A local server is asked without an authorization header."""
    _, seen = replies(saying(*YES), ASKED)
    assert "authorization" not in seen[0].headers


def test_the_bound_on_tokens_goes_under_the_name_that_the_server_knows() -> None:
    """The quirks say which of its two names."""
    request = Request(messages=ASKED.messages, max_tokens=9)
    _, seen = replies(saying(*YES), request, preset=Preset(form="ask", max_tokens_field="max_completion_tokens"))
    assert seen[0].json["max_completion_tokens"] == 9
    assert "max_tokens" not in seen[0].json


def test_a_stream_is_read_as_it_comes() -> None:
    """Each frame is handed on when it arrives, before the server says the next."""

    async def script(seen: SeenStep, wire: Wire) -> None:
        await wire.head()
        await wire.frames(delta("Y"))
        await asyncio.to_thread(read.wait, 5)
        await wire.frames(*YES[1:], "[DONE]")

    async def go(server: Loopback) -> list[str]:
        made, found = model(server), []
        async for chunk in made.stream(ASKED):
            found.append(chunk.text)
            read.set()
        await made.close()
        return found

    read = threading.Event()
    with loopback(script) as server:
        assert asyncio.run(go(server)) == ["Y", "es.", ""]


def test_an_answer_in_one_piece_is_understood() -> None:
    """A server that does not stream answers with one JSON body: the same chunks come of it."""

    async def script(seen: SeenStep, wire: Wire) -> None:
        message = {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}
        await wire.json({"choices": [{"message": message, "finish_reason": "length"}], "usage": usage()["usage"]})

    assert reply(script) == [
        Chunk(text="Yes.", thinking="Hm."),
        Chunk(
            usage=Usage(tokens_in=11, tokens_out=7, calls=1),
            finish="length",
            provider_data={"reasoning_content": "Hm."},
        ),
    ]


@pytest.mark.parametrize("kind", ["text/plain", "application/json", "application/octet-stream"])
def test_a_stream_under_a_wrong_name_is_a_stream(kind: str) -> None:
    """The kind of an answer is decided by its content."""

    async def script(seen: SeenStep, wire: Wire) -> None:
        await wire.head(200, kind)
        await wire.send(": ping\n\n")
        await wire.frames(*YES, "[DONE]")

    assert text(reply(script)) == "Yes."


@pytest.mark.parametrize(
    ("frames", "done"),
    [(YES, False), ((delta("Yes."),), True), ((delta("Yes.", finish="stop"),), False)],
    ids=["no-done", "no-reason", "neither-usage-nor-done"],
)
def test_an_end_is_an_end_by_either_sign(frames: tuple[Any, ...], done: bool) -> None:
    """A finish reason without [DONE], or [DONE] without a reason, ends a reply well."""
    chunks = reply(saying(*frames, done=done))
    assert (text(chunks), chunks[-1].finish) == ("Yes.", "stop")


async def without_end(seen: SeenStep, wire: Wire) -> None:
    await wire.head()
    await wire.frames(delta("Ye"))


async def half_a_frame(seen: SeenStep, wire: Wire) -> None:
    await without_end(seen, wire)
    await wire.send('data: {"choices": [{"delta": {"cont')


async def cut_off(seen: SeenStep, wire: Wire) -> None:
    await without_end(seen, wire)
    await wire.raw(b"40\r\ndata: {")
    wire.cut()


async def garbage(seen: SeenStep, wire: Wire) -> None:
    await without_end(seen, wire)
    await wire.frames("{nonsense")


async def no_object(seen: SeenStep, wire: Wire) -> None:
    await without_end(seen, wire)
    await wire.frames("17")


async def empty_body(seen: SeenStep, wire: Wire) -> None:
    await wire.head()


async def half_json(seen: SeenStep, wire: Wire) -> None:
    await wire.head(200, "application/json")
    await wire.send('{"choices": [')


async def other_json(seen: SeenStep, wire: Wire) -> None:
    await wire.json({"hello": "world"})


async def endless_line(seen: SeenStep, wire: Wire) -> None:
    await wire.head()
    while not wire.gone.is_set():
        await wire.send("x" * 65536)
        await asyncio.sleep(0)


BROKEN = (
    without_end, half_a_frame, cut_off, garbage, no_object, empty_body, half_json, other_json, endless_line,
)  # fmt: skip


@pytest.mark.parametrize("script", BROKEN, ids=lambda script: script.__name__)
def test_what_is_no_reply_is_broken(script: Script) -> None:
    """An answer that breaks off, or is the answer is not a reply, is an error and never a short answer."""
    error = failure(script)
    assert error.reason == "broken"
    assert len(error.message) < 500


def test_what_came_before_a_fault_was_handed_on() -> None:
    """Text that arrived in the same piece as a fault comes out before the error."""

    async def script(seen: SeenStep, wire: Wire) -> None:
        await wire.head()
        await wire.send('data: {"choices": [{"delta": {"content": "Ye"}}]}\n\ndata: {nonsense\n\n')

    async def go(server: Loopback) -> list[str]:
        made, found = model(server), []
        try:
            async for chunk in made.stream(ASKED):
                found += [chunk.text]
        except ModelError as error:
            found.append(error.reason)
        await made.close()
        return found

    with loopback(script) as server:
        assert asyncio.run(go(server)) == ["Ye", "broken"]


def test_a_web_page_is_no_reply() -> None:
    """A page with status 200 means a wrong address, and the hint says what to look at."""

    async def script(seen: SeenStep, wire: Wire) -> None:
        await wire.head(200, "text/html")
        await wire.send("\n<!doctype html><html><title>Welcome</title><script>x()</script><p>to the router")

    error = failure(script)
    assert error.reason == "missing"
    assert "the answer is a web page" in error.message
    assert "base_url" in error.hint


@pytest.mark.parametrize("whole", [True, False], ids=["json", "stream"])
def test_an_error_inside_an_answer_is_an_error(whole: bool) -> None:
    """An error object under status 200 has the meaning of its code."""
    error = {"error": {"message": "Slow down, sk-123456", "code": "rate_limit_exceeded"}}

    async def script(seen: SeenStep, wire: Wire) -> None:
        if whole:
            return await wire.json(error)
        await wire.head()
        return await wire.frames(delta("Y"), error)

    found = failure(script, key="sk-123456")
    assert found.reason == "rate"
    assert "Slow down, [key]" in found.message


def test_an_error_status_is_reported_with_the_wait_that_it_asks_for() -> None:
    """429 carries the seconds of Retry-After and the provider's words."""

    async def script(seen: SeenStep, wire: Wire) -> None:
        await wire.json({"error": {"message": "Too many"}}, 429, retry_after="7")

    error = failure(script)
    assert (error.reason, error.retry_after) == ("rate", 7.0)
    assert "Too many" in error.message


def test_a_reply_without_a_word_is_an_error() -> None:
    """A reply that ends by itself and holds no text is `empty`."""
    assert failure(saying(delta(finish="stop"), usage())).reason == "empty_answer"


def test_tokens_that_are_not_counted_are_said_once() -> None:
    """A server without a count is estimated, and the user hears of it once."""
    both, _ = replies(saying(delta("y" * 8, finish="stop")), ASKED, ASKED)
    assert ["does not count tokens" in note for note in notes(both[0])] == [True]
    assert notes(both[1]) == []
    assert both[0][-1].usage == Usage(tokens_in=4, tokens_out=2, calls=1)


def refusing(*names: str, status: int = 400, **answer: Any) -> Script:
    """A server that refuses each of these parameters, one at a time, and takes the rest."""

    async def script(seen: SeenStep, wire: Wire) -> None:
        for name in names:
            if name in seen.json:
                words = answer or {"error": {"message": f"Unsupported parameter: '{name}'.", "param": name}}
                return await wire.json(words, status)
        await wire.head()
        return await wire.frames(*YES, "[DONE]")

    return script


def test_a_parameter_that_is_refused_is_left_out_remembered_and_reported() -> None:
    """The call goes on without it, later calls leave it out at once, and the user hears of it once."""
    request = Request(messages=ASKED.messages, temperature=0.5, seed=3)
    both, seen = replies(refusing("temperature", "seed"), request, request)
    assert [text(chunks) for chunks in both] == ["Yes.", "Yes."]
    assert [note.partition(" ")[2] for note in notes(both[0])] == [
        "does not accept seed; sent without it",
        "does not accept temperature; sent without it",
    ]
    assert notes(both[1]) == []
    assert ["temperature" in one.json for one in seen] == [True, False, False, False]
    assert ["seed" in one.json for one in seen] == [True, True, False, False]


@pytest.mark.parametrize("name", ["stream_options", "stop"])
def test_each_spare_parameter_may_be_refused(name: str) -> None:
    """A reply comes also from a server that does not know one of the finer parameters."""
    request = Request(messages=ASKED.messages, stop=("END",))
    chunks = reply(refusing(name, status=422), request)
    assert text(chunks) == "Yes."
    assert name in notes(chunks)[0]


@pytest.mark.parametrize(
    ("first", "then"), [("max_tokens", "max_completion_tokens"), ("max_completion_tokens", "max_tokens")]
)
def test_the_bound_on_tokens_is_renamed_and_never_left_out(first: str, then: str) -> None:
    """A server that knows the bound by its other name gets it by that name."""
    request = Request(messages=ASKED.messages, max_tokens=9)
    both, seen = replies(refusing(first), request, request, preset=Preset(form="ask", max_tokens_field=first))
    assert f"does not accept {first}; sent as {then}" in notes(both[0])[0]
    assert [(one.json.get(first), one.json.get(then)) for one in seen] == [(9, None), (None, 9), (None, 9)]


def test_a_bound_that_is_refused_by_both_names_is_an_error() -> None:
    """An invalid value of the limit itself is reported, and not retried again and again."""
    request = Request(messages=ASKED.messages, max_tokens=9)
    with pytest.raises(ModelError, match="max_completion_tokens") as error:
        replies(refusing("max_tokens", "max_completion_tokens"), request)
    assert error.value.reason == "refused"


def test_a_refusal_for_another_reason_is_not_asked_again() -> None:
    """A 400 that names no parameter of ours is an error after one request, and nothing is remembered."""
    words: Mapping[str, Any] = {"error": {"message": "The question is not welcome.", "code": "invalid_request"}}

    async def script(seen: SeenStep, wire: Wire) -> None:
        asked.append(seen)
        await wire.json(words, 400)

    asked: list[SeenStep] = []
    assert failure(script, Request(messages=ASKED.messages, temperature=0.5)).reason == "refused"
    assert len(asked) == 1


def test_a_question_that_is_too_long_is_reported_as_that_and_asked_once() -> None:
    """Though the server names the bound on tokens beside it: another name of the bound would change nothing."""
    said = "input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000, decrease `max_tokens`"

    async def script(seen: SeenStep, wire: Wire) -> None:
        asked.append(seen)
        await wire.json({"error": {"message": said, "type": "invalid_request_error"}}, 400)

    asked: list[SeenStep] = []
    error = failure(script, Request(messages=ASKED.messages, max_tokens=8192))
    assert (error.reason, error.retryable, error.failure.kind) == ("length", False, "worker")
    assert said in error.message
    assert len(asked) == 1


def test_the_time_for_a_call_holds_over_all_its_requests() -> None:
    """The deadline bounds the call, from its first request to its last word."""

    async def script(seen: SeenStep, wire: Wire) -> None:
        await wire.head()
        await wire.frames(delta("Y"))
        await wire.stall()

    assert failure(script, Request(messages=ASKED.messages, deadline=0.1)).reason == "timeout"


def test_the_connection_is_kept_for_the_next_question() -> None:
    """A stream is read to its end, so the next call needs no new connection."""

    async def go(server: Loopback) -> None:
        made = model(server)
        await chunks_of(made, ASKED)
        await chunks_of(made, ASKED)
        await made.close()

    with loopback(saying(*YES)) as server:
        asyncio.run(go(server))
    assert (len(server.requests), server.connections) == (2, 1)


def test_a_server_that_does_not_close_after_its_last_word_is_not_waited_for() -> None:
    """After [DONE] the reply is complete, whatever the server does with the connection."""

    async def script(seen: SeenStep, wire: Wire) -> None:
        await wire.head()
        await wire.frames(*YES, "[DONE]")
        await wire.stall()

    assert text(reply(script)) == "Yes."


def test_questions_are_asked_side_by_side() -> None:
    """Two streams of one model are open at the same time."""

    async def script(seen: SeenStep, wire: Wire) -> None:
        met.append(seen)
        await wire.head()
        if len(met) == 2:
            both.set()
        await both.wait()
        await wire.frames(*YES, "[DONE]")

    async def go(server: Loopback) -> list[str]:
        made = model(server)
        replies = await asyncio.gather(chunks_of(made, ASKED), chunks_of(made, ASKED))
        await made.close()
        return [text(chunks) for chunks in replies]

    met: list[SeenStep] = []
    both = asyncio.Event()
    with loopback(script) as server:
        assert asyncio.run(go(server)) == ["Yes.", "Yes."]


def test_a_model_without_a_name_is_the_first_that_the_server_lists() -> None:
    """A server given by its address alone is asked which model it has, once: none of a cloud, none of embeddings."""
    models = [{"id": "gpt-oss:120b-cloud"}, {"id": "nomic-embed-text"}, {"id": "first"}, {"id": "second"}]

    async def script(seen: SeenStep, wire: Wire) -> None:
        if seen.path == "/v1/models":
            return await wire.json({"data": models})
        return await saying(*YES)(seen, wire)

    both, seen = replies(script, ASKED, ASKED, model="")
    assert [text(chunks) for chunks in both] == ["Yes.", "Yes."]
    assert [one.path for one in seen] == ["/v1/models", "/v1/chat/completions", "/v1/chat/completions"]
    assert seen[1].json["model"] == "first"


@pytest.mark.parametrize(
    "listed", [{"data": []}, {"data": [{}]}, {"data": "m"}, {}, {"data": [{"id": "kimi:cloud"}]}, {"data": [{"id": 7}]}]
)
def test_a_server_that_lists_no_model_is_reported_so(listed: Any) -> None:
    """Where the model cannot be known, the error says that it has to be named."""

    async def script(seen: SeenStep, wire: Wire) -> None:
        await wire.json(listed)

    error = failure(script, model="")
    assert error.reason == "missing"
    assert "workers add NAME --model MODEL" in error.hint


KEY = "sk-supersecret-123456"


def test_a_key_that_a_server_echoes_is_in_no_error() -> None:
    """A gateway that answers with the headers of the request tells nobody the key."""

    async def echo(seen: SeenStep, wire: Wire) -> None:
        await wire.json({"headers": dict(seen.headers)})

    error = failure(echo, key=KEY)
    assert "the answer is not a reply" in error.message
    assert KEY not in error.message


def test_an_empty_reply_says_what_it_cost() -> None:
    """Hidden thinking is billed: the error of a reply without a word carries what the server counted."""
    error = failure(saying(delta(finish="stop"), usage(1000, 5000)))
    assert error.reason == "empty_answer"
    assert error.usage is not None
    assert (error.usage.tokens_in, error.usage.tokens_out) == (1000, 5000)

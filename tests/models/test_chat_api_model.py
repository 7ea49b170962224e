"""Servers that speak OpenAI's API, right and wrong, on real sockets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from conductor_cli.core.chat import Chunk, Message, Request, ToolCall, ToolCallDelta
from conductor_cli.core.errors import ModelError
from conductor_cli.core.usage import Usage
from conductor_cli.models.presets import Preset
from conductor_cli.models.refusals import largest_output, shorter_output
from conductor_cli.models.reply_events import JoinedChunks
from tests.models.kit import answering, notes, refusing, replies, text
from tests.servers import Script, SeenRequest, Wire, delta, saying, usage

ASKED = Request(
    messages=(Message(role="system", content="Be short."), Message(role="user", content="Yes?"))
)
YES = (delta("Y"), delta("es."), delta(finish="stop"), usage())


def reply(script: Script, request: Request = ASKED, **how: Any) -> list[Chunk]:
    return replies(script, request, **how)[0][0]


def failure(script: Script, request: Request = ASKED, **how: Any) -> ModelError:
    with pytest.raises(ModelError) as error:
        reply(script, request, **how)
    return error.value


def test_a_question_is_asked_in_the_words_of_the_protocol() -> None:
    request = Request(
        messages=ASKED.messages, max_tokens=50, temperature=0.5, seed=3, stop=("END",)
    )
    options = {
        "max_tokens": 20,
        "temperature": 0.9,
        "reasoning_effort": "low",
        "headers": {"x-own": "1"},
    }
    _, requests = replies(saying(*YES), request, ASKED, key="sk-123456", options=options)
    assert requests[0].path == "/v1/chat/completions"
    assert (requests[0].headers["authorization"], requests[0].headers["x-own"]) == (
        "Bearer sk-123456",
        "1",
    )
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Yes?"}]
    plain = {
        "model": "m",
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert requests[0].json == plain | {
        "max_tokens": 20,
        "temperature": 0.5,
        "seed": 3,
        "stop": ["END"],
        "reasoning_effort": "low",
    }
    assert requests[1].json == plain | {
        "max_tokens": 20,
        "temperature": 0.9,
        "reasoning_effort": "low",
    }


def test_an_answer_in_one_piece_is_understood() -> None:
    async def script(request: SeenRequest, wire: Wire) -> None:
        message = {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}
        await wire.json(
            {
                "choices": [{"message": message, "finish_reason": "length"}],
                "usage": usage()["usage"],
            }
        )

    assert reply(script) == [
        Chunk(text="Yes.", thinking="Hm."),
        Chunk(
            usage=Usage(tokens_in=11, tokens_out=7, calls=1),
            finish="length",
            provider_data={"reasoning_content": "Hm."},
        ),
    ]


@pytest.mark.parametrize("kind", ["text/plain", "application/json"])
def test_a_stream_under_a_wrong_name_is_a_stream(kind: str) -> None:
    async def script(request: SeenRequest, wire: Wire) -> None:
        await wire.head(200, kind)
        await wire.send(": ping\n\n")
        await wire.frames(*YES, "[DONE]")

    assert text(reply(script)) == "Yes."


@pytest.mark.parametrize(
    ("frames", "done", "finish"),
    [
        (YES, False, "stop"),
        ((delta("Yes."),), True, "other"),
        ((delta("Yes.", finish="stop"),), False, "stop"),
    ],
    ids=["no-done", "no-reason", "neither-usage-nor-done"],
)
def test_an_end_is_an_end_by_either_sign(frames: tuple[Any, ...], done: bool, finish: str) -> None:
    chunks = reply(saying(*frames, done=done))
    assert (text(chunks), chunks[-1].finish) == ("Yes.", finish)


async def half_json(request: SeenRequest, wire: Wire) -> None:
    await wire.head(200, "application/json")
    await wire.send('{"choices": [')


async def endless_line(request: SeenRequest, wire: Wire) -> None:
    await wire.head()
    while not wire.gone.is_set():
        await wire.send("x" * 65536)
        await asyncio.sleep(0)


BROKEN = {
    "no end": saying(delta("Ye"), done=False),
    "no object": saying(delta("Ye"), "17", done=False),
    "an empty body": saying(done=False),
    "half of its JSON": half_json,
    "other JSON": answering({"hello": "world"}),
    "an endless line": endless_line,
}


@pytest.mark.parametrize("script", BROKEN.values(), ids=BROKEN)
def test_what_is_no_reply_is_broken(script: Script) -> None:
    error = failure(script)
    assert error.reason == "broken"
    assert len(error.message) < 500


def test_a_web_page_is_no_reply() -> None:
    async def script(request: SeenRequest, wire: Wire) -> None:
        await wire.head(200, "text/html")
        await wire.send(
            "\n<!doctype html><html><title>Welcome</title><script>x()</script><p>to the router"
        )

    error = failure(script)
    assert error.reason == "missing"
    assert "the answer is a web page" in error.message
    assert "base_url" in error.hint


@pytest.mark.parametrize("whole", [True, False], ids=["json", "stream"])
def test_an_error_inside_an_answer_is_an_error(whole: bool) -> None:
    error = {"error": {"message": "Slow down, sk-123456", "code": "rate_limit_exceeded"}}

    async def script(request: SeenRequest, wire: Wire) -> None:
        if whole:
            return await wire.json(error)
        await wire.head()
        return await wire.frames(delta("Y"), error)

    failed = failure(script, key="sk-123456")
    assert failed.reason == "rate"
    assert "Slow down, [key]" in failed.message


def test_tokens_that_are_not_counted_are_said_once() -> None:
    both, _ = replies(saying(delta("y" * 8, finish="stop")), ASKED, ASKED)
    assert ["does not count tokens" in note for note in notes(both[0])] == [True]
    assert notes(both[1]) == []
    assert both[0][-1].usage == Usage(tokens_in=4, tokens_out=3, calls=1)


def refused(*names: str) -> Script:
    """A server that refuses each of these parameters, one at a time, and takes the rest."""
    errors = {
        name: {"message": f"Unsupported parameter: '{name}'.", "param": name} for name in names
    }
    return refusing(errors, saying(*YES), 422)


def test_a_parameter_that_is_refused_is_left_out_remembered_and_reported() -> None:
    request = Request(messages=ASKED.messages, temperature=0.5, seed=3)
    both, requests = replies(refused("temperature", "seed"), request, request)
    assert [text(chunks) for chunks in both] == ["Yes.", "Yes."]
    assert [note.partition(" ")[2] for note in notes(both[0])] == [
        "does not accept seed; sent without it",
        "does not accept temperature; sent without it",
    ]
    assert notes(both[1]) == []
    assert ["temperature" in call.json for call in requests] == [True, False, False, False]
    assert ["seed" in call.json for call in requests] == [True, True, False, False]


@pytest.mark.parametrize(
    ("first", "then"),
    [("max_tokens", "max_completion_tokens"), ("max_completion_tokens", "max_tokens")],
)
def test_the_bound_on_tokens_is_renamed_and_never_left_out(first: str, then: str) -> None:
    request = Request(messages=ASKED.messages, max_tokens=9)
    both, requests = replies(
        refused(first), request, request, preset=Preset(form="ask", max_tokens_field=first)
    )
    assert f"does not accept {first}; sent as {then}" in notes(both[0])[0]
    assert [(call.json.get(first), call.json.get(then)) for call in requests] == [
        (9, None),
        (None, 9),
        (None, 9),
    ]


def test_a_bound_that_is_refused_by_both_names_is_an_error() -> None:
    request = Request(messages=ASKED.messages, max_tokens=9)
    with pytest.raises(ModelError, match="max_completion_tokens") as error:
        replies(refused("max_tokens", "max_completion_tokens"), request)
    assert error.value.reason == "refused"


def test_a_server_that_does_not_close_after_its_last_word_is_not_waited_for() -> None:
    async def script(request: SeenRequest, wire: Wire) -> None:
        await wire.head()
        await wire.frames(*YES, "[DONE]")
        await wire.stall()

    assert text(reply(script)) == "Yes."


def test_a_model_without_a_name_is_the_first_that_the_server_lists() -> None:
    models = [
        {"id": "gpt-oss:120b-cloud"},
        {"id": "nomic-embed-text"},
        {"id": "first"},
        {"id": "second"},
    ]

    async def script(request: SeenRequest, wire: Wire) -> None:
        if request.path == "/v1/models":
            return await wire.json({"data": models})
        return await saying(*YES)(request, wire)

    both, requests = replies(script, ASKED, ASKED, model="")
    assert [text(chunks) for chunks in both] == ["Yes.", "Yes."]
    assert [call.path for call in requests] == [
        "/v1/models",
        "/v1/chat/completions",
        "/v1/chat/completions",
    ]
    assert requests[1].json["model"] == "first"


@pytest.mark.parametrize(
    "listed", [{}, {"data": "m"}, {"data": [{"id": "kimi:cloud"}]}, {"data": [{"id": 7}]}]
)
def test_a_server_that_lists_no_model_is_reported_so(listed: Any) -> None:
    script = answering(listed)
    error = failure(script, model="")
    assert error.reason == "missing"
    assert "workers add NAME --model MODEL" in error.hint


def test_an_empty_reply_says_what_it_cost() -> None:
    error = failure(saying(delta(finish="stop"), usage(1000, 5000)))
    assert error.reason == "empty_answer"
    assert error.usage is not None
    assert (error.usage.tokens_in, error.usage.tokens_out) == (1000, 5000)


FAILED: dict[str, Any] = {"error": {"code": 400, "message": "Token limit reached"}}


@pytest.mark.parametrize(
    ("counted", "read", "written"),
    [
        ({**FAILED, **usage(43, 10)}, 43, 10),
        ({**FAILED, "choices": [], **usage(43, 2)}, 43, 3),
        (FAILED, None, None),
    ],
    ids=["beside the error", "too little", "nothing"],
)
def test_what_a_server_counted_of_a_reply_that_failed_counts(
    counted: dict[str, Any], read: int | None, written: int | None
) -> None:
    """OpenRouter says it in the frame that has the error."""
    error = failure(saying(delta("Let me see"), counted))
    used = error.usage
    assert (used and used.tokens_in, used and used.tokens_out) == (read, written)


def test_what_was_counted_before_the_first_word_of_a_reply_that_failed_is_free() -> None:
    assert failure(saying(usage(43, 0), FAILED)).usage is None


def test_texts_that_arrive_together_are_joined_in_their_order() -> None:
    call = Chunk(tool_call=ToolCallDelta(index=0, id="c", name="f", arguments=""))
    given = [
        Chunk(thinking="a"),
        Chunk(thinking="b"),
        Chunk(text="c"),
        Chunk(thinking="d"),
        call,
        Chunk(text="e"),
    ]
    expected = [Chunk(thinking="ab", text="c"), Chunk(thinking="d"), call, Chunk(text="e")]
    joined = JoinedChunks()
    for chunk in given:
        joined.add(chunk)
    assert joined.all() == expected
    assert JoinedChunks().all() == []


CONTEXT = "This model's maximum context length is"
USER = Message(role="user", content="Yes?")
CALLED = (
    USER,
    Message(
        role="assistant",
        content="",
        tool_calls=(
            ToolCall(
                id="call_20261122-190000-abcdef_0_abcdef_0123456789abcdef",
                name="read",
                arguments="{}",
            ),
            ToolCall(id="abcdef123", name="read", arguments="{}"),
        ),
    ),
    Message(
        role="tool",
        content="one",
        tool_call_id="call_20261122-190000-abcdef_0_abcdef_0123456789abcdef",
    ),
    Message(role="tool", content="two", tool_call_id="abcdef123"),
)


def asked_for(
    script: Script, request: Request, name: str = "m", **options: Any
) -> list[dict[str, Any]]:
    """The bodies of all requests until there is a reply."""
    return [
        sent_request.json
        for sent_request in replies(script, request, model=name, options=options)[1]
    ]


def refusing_above(above: int, message: str) -> Script:
    """A server that refuses to write more tokens than `above`."""

    async def script(request: SeenRequest, wire: Wire) -> None:
        max_tokens = request.json["max_tokens"]
        if max_tokens > above:
            return await wire.json({"error": {"message": message.format(asked=max_tokens)}}, 400)
        await wire.head()
        return await wire.frames(delta("Yes."), delta(finish="stop"), usage(), "[DONE]")

    return script


@pytest.mark.parametrize(
    ("message", "limit"),
    [
        (
            (
                "max_tokens is too large: 32000. This model supports at most 16384 completion "
                "tokens, "
                "whereas you ask more."
            ),
            16384,
        ),
        (
            (
                "`max_tokens` must be less than or equal to `8192`, the maximum value for "
                "`max_tokens` "
                "is less than that"
            ),
            8192,
        ),
        ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 8192),
        (
            (
                "The parameter `max_completion_tokens` is not valid: expected a value <= 12288, "
                "but "
                "got 32000."
            ),
            12288,
        ),
        ("Invalid value for temperature: it must be less than or equal to 2", None),
    ],
)
def test_the_limit_of_a_model_is_read_from_a_refusal(message: str, limit: int | None) -> None:
    assert largest_output(message) == limit


@pytest.mark.parametrize(
    ("message", "fewer"),
    [
        (
            (
                f"{CONTEXT} 8192 tokens. However, you requested 37000 tokens (5000 in the "
                "messages, "
                "32000 in the completion)."
            ),
            3192,
        ),
        (
            (
                f"'max_tokens' is too large: 32000. {CONTEXT} 40000 tokens and your request has "
                "24235 "
                "input tokens"
            ),
            15765,
        ),
        (
            (
                f"{CONTEXT} 128000 tokens. However, you requested 65535 output tokens and your "
                "prompt "
                "contains more."
            ),
            8000,
        ),
        (
            (
                f"{CONTEXT} 8192 tokens. However, you requested 37000 tokens (9000 in the "
                "messages, "
                "28000 in the completion)."
            ),
            None,
        ),
        (
            (
                "input length and `max_tokens` exceed context limit: 180000 + 32000 > 200000, "
                "decrease it"
            ),
            20_000,
        ),
        (
            (
                "input length and `max_tokens` exceed context limit: 199759 + 32000 > 200000, "
                "decrease it"
            ),
            None,
        ),
        ("prompt is too long: 210000 tokens > 200000 maximum", None),
    ],
)
def test_a_reply_that_does_not_fit_beside_its_prompt_becomes_shorter(
    message: str, fewer: int | None
) -> None:
    assert shorter_output(message, 32_000) == fewer
    assert shorter_output(message, 4096) is None


def test_a_server_with_a_small_context_is_asked_for_less_until_it_takes_it() -> None:
    message = (
        "This model's maximum context length is 16000 tokens. However, you requested {asked} "
        "output tokens."
    )
    bodies = asked_for(refusing_above(4096, message), Request(messages=(USER,), max_tokens=32_000))
    assert [body["max_tokens"] for body in bodies] == [32_000, 8000, 4096]


def test_a_limit_that_the_user_has_set_is_not_lowered_in_silence() -> None:
    message = (
        "This model's maximum context length is 16000 tokens. However, you requested {asked} "
        "output tokens."
    )
    with pytest.raises(ModelError) as error:
        asked_for(
            refusing_above(4096, message),
            Request(messages=(USER,), max_tokens=9000),
            max_tokens=9000,
        )
    assert error.value.reason == "length"


@pytest.mark.parametrize(
    "name", ["mistral-large-4", "mistralai/Devstral-Small-2507", "codestral:22b"]
)
def test_a_model_of_mistral_gets_ids_of_nine_letters_and_digits(name: str) -> None:
    request = Request(messages=CALLED, max_tokens=9)
    first, again = (
        asked_for(refusing_above(9, ""), request, name)[0]["messages"] for _ in range(2)
    )
    ids = [call["id"] for call in first[1]["tool_calls"]]
    assert [len(call_id) for call_id in ids] == [9, 9]
    assert all(call_id.isalnum() for call_id in ids)
    assert ids[1] == "abcdef123"
    assert [message["tool_call_id"] for message in first[2:]] == ids
    assert first == again


def test_other_models_get_the_ids_as_they_are() -> None:
    """But for long ones: tests/models/test_call_ids.py has those."""
    (body,) = asked_for(refusing_above(9, ""), Request(messages=CALLED, max_tokens=9), "gpt-6")
    long, short = (message["tool_call_id"] for message in body["messages"][2:])
    assert short == CALLED[3].tool_call_id
    assert len(long) <= 40 < len(CALLED[2].tool_call_id)

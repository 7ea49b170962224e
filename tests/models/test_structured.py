"""How servers are told the form of a reply.

Which server it is, what it is sent, what a real llama.cpp makes of it.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from conductor_cli.core.chat import Chunk, Message, Request
from conductor_cli.core.errors import ModelError
from conductor_cli.core.pool import Worker
from conductor_cli.models.catalog import open_model
from conductor_cli.models.chat_api_model import ChatApiModel
from conductor_cli.models.litellm import LiteLLM
from conductor_cli.models.presets import UNKNOWN_SERVER, Preset
from conductor_cli.models.structured_output import form_of
from tests.models.kit import (
    LITELLM,
    answering,
    broken_off,
    chunks_of,
    in_turn,
    notes,
    page,
    play,
    refusing,
    replies,
    silent,
    speaking,
    text,
)
from tests.servers import Loopback, Script, SeenRequest, Wire, delta, loopback, saying, usage

pytestmark = LITELLM

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
PLAIN = Request(messages=(Message(role="user", content="Yes?"),))
GRAMMAR = replace(PLAIN, grammar='root ::= "x"')
MINI = replace(PLAIN, grammar='root ::= "A" | "B"', choices=("A", "B"))
JSON = replace(GRAMMAR, schema=SCHEMA)
FORMAT = {"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": SCHEMA}}
YES = (delta("Y"), delta("es."), delta(finish="stop"), usage())
UNTHINKING = {"chat_template_kwargs": {"enable_thinking": False}}
FIELDS = ("grammar", "structured_outputs", "ebnf", "response_format")
loading = answering(
    {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}, 503
)
fine = saying(*YES)


def owned(owner: str | None, then: Script = fine) -> Script:
    """A server that says who owns its models, and otherwise answers as `then` does."""

    async def script(request: SeenRequest, wire: Wire) -> None:
        if request.path.endswith("/models"):
            owned_by = {} if owner is None else {"owned_by": owner}
            return await wire.json(
                {"object": "list", "data": [{"id": "m", "object": "model"} | owned_by]}
            )
        return await then(request, wire)

    return script


def form(request: SeenRequest) -> dict[str, Any]:
    """The fields of a request that hold the reply to a form."""
    return {name: value for name, value in request.json.items() if name in (*FIELDS, *UNTHINKING)}


@pytest.mark.parametrize(
    ("owner", "request_", "sent"),
    [
        ("llamacpp", GRAMMAR, {"grammar": 'root ::= "x"'} | UNTHINKING),
        ("llamacpp", MINI, {"grammar": 'root ::= "A" | "B"'} | UNTHINKING),
        ("llamacpp", JSON, {"grammar": 'root ::= "x"'} | UNTHINKING),
        ("vllm", GRAMMAR, {"structured_outputs": {"grammar": 'root ::= "x"'}}),
        ("vllm", MINI, {"structured_outputs": {"choice": ["A", "B"]}}),
        ("sglang", GRAMMAR, {"ebnf": 'root ::= "x"'}),
        ("library", GRAMMAR, {}),
        ("library", JSON, {"response_format": FORMAT}),
        (None, JSON, {"response_format": FORMAT}),
        (None, MINI, {}),
    ],
)
def test_each_server_is_told_a_form_in_its_own_way(
    owner: str | None, request_: Request, sent: dict[str, Any]
) -> None:
    both, requests = replies(owned(owner), request_, request_)
    assert [text(chunks) for chunks in both] == ["Yes.", "Yes."]
    assert [call.path for call in requests] == [
        "/v1/models",
        "/v1/chat/completions",
        "/v1/chat/completions",
    ]
    assert [form(call) for call in requests[1:]] == [sent, sent]
    assert [notes(chunks) for chunks in both] == [[], []]


def test_a_model_without_a_name_and_a_form_are_learned_in_one_question() -> None:
    _, requests = replies(owned("sglang"), GRAMMAR, model="")
    assert [call.path for call in requests] == ["/v1/models", "/v1/chat/completions"]
    assert requests[1].json["model"] == "m"
    assert "ebnf" in requests[1].json


async def cut(request: SeenRequest, wire: Wire) -> None:
    wire.cut()


@pytest.mark.parametrize(
    ("listing", "request_count"),
    [
        (answering({"error": "no"}, 403), 1),
        (answering({}, 404), 1),
        (silent, 2),
        (page, 2),
        (cut, 2),
        (loading, 2),
    ],
    ids=["forbidden", "nowhere", "silent", "page", "cut", "loading"],
)
def test_a_server_that_does_not_say_which_it_is_answers_anyway(
    listing: Script, request_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conductor_cli.models.chat_api_model.LIST_SECONDS", 0.2)

    async def script(request: SeenRequest, wire: Wire) -> None:
        await (listing if request.path.endswith("/models") else fine)(request, wire)

    both, requests = replies(script, JSON, JSON)
    assert [text(chunks) for chunks in both] == ["Yes.", "Yes."]
    assert [call.path for call in requests].count("/v1/models") == request_count
    assert form(requests[-1]) == {"response_format": FORMAT}


def test_a_server_that_was_still_loading_is_sent_the_grammar_when_it_is_ready() -> None:
    async def go(server: Loopback) -> list[Chunk]:
        made = ChatApiModel("m", f"{server.url}/v1")
        assert await made.constraint_support() == "nothing"
        with pytest.raises(ModelError) as error:
            await chunks_of(made, JSON)
        assert error.value.retryable
        server.script = owned("llamacpp")
        chunks = await chunks_of(made, JSON)
        assert await made.constraint_support() == "grammar"
        await made.close()
        return chunks

    with loopback(loading) as server:
        assert text(asyncio.run(go(server))) == "Yes."
    assert form(server.requests[-1]) == {"grammar": 'root ::= "x"'} | UNTHINKING


def held_to(made: Any, *requests: Request) -> list[str]:
    """What a model says that its server holds a reply to.

    At first, and after each of these requests.
    """

    async def go() -> list[str]:
        constraints: list[str] = [await made.constraint_support()]
        for request in requests:
            await chunks_of(made, request)
            constraints.append(await made.constraint_support())
        await made.close()
        return constraints

    return asyncio.run(go())


@pytest.mark.parametrize(
    ("owner", "preset", "hold", "request_count"),
    [
        ("llamacpp", UNKNOWN_SERVER, "grammar", 1),
        ("library", UNKNOWN_SERVER, "schema", 1),
        (None, UNKNOWN_SERVER, "nothing", 1),
        (None, Preset(form="grammar"), "grammar", 0),
        (None, Preset(form="response_format"), "nothing", 0),
        (None, Preset(form="response_format", schemas=True), "schema", 0),
    ],
)
def test_what_a_server_holds_a_reply_to_can_be_known_before_it_is_asked(
    owner: str | None, preset: Preset, hold: str, request_count: int
) -> None:
    with loopback(owned(owner)) as server:
        assert held_to(ChatApiModel("m", f"{server.url}/v1", preset=preset), JSON) == [hold, hold]
    assert [call.path for call in server.requests] == ["/v1/models"] * request_count + [
        "/v1/chat/completions"
    ]


@pytest.mark.parametrize(
    ("listed", "model", "wanted"),
    [
        (
            {"data": [{"id": "a", "owned_by": "openai"}, {"id": "b", "owned_by": "vllm"}]},
            "b",
            "structured_outputs",
        ),
        ({"data": [{"id": "a", "owned_by": "llamacpp"}]}, "other", "grammar"),
        ({"data": [{"id": "a", "owned_by": ["vllm"]}]}, "a", "response_format"),
        ({"data": ["a", None, 3]}, "a", "response_format"),
        (["a"], "a", "response_format"),
        ({}, "a", "response_format"),
    ],
)
def test_a_server_is_known_by_the_owner_of_the_model_that_is_asked(
    listed: Any, model: str, wanted: str
) -> None:
    assert form_of(listed, model)[0] == wanted


@pytest.mark.parametrize(
    ("kind", "model", "held", "paths"),
    [
        ("llama-server", "m", "grammar", ["completions", "grammar", "chat_template_kwargs"]),
        ("vllm", "m", "grammar", ["completions", "structured_outputs"]),
        ("ollama", "m", "schema", ["completions", "response_format"]),
        ("ollama", "m:1t-cloud", "nothing", ["completions", "response_format"]),
        # Another server than the provider's own is asked which it is.
        ("deepseek", "m", "grammar", ["models", "completions", "ebnf"]),
        ("openai", "m", "grammar", ["models", "completions", "ebnf"]),
        ("openai-compatible", "m", "grammar", ["models", "completions", "ebnf"]),
    ],
)
def test_the_kind_of_a_worker_says_which_server_it_is(
    kind: str, model: str, held: str, paths: list[str]
) -> None:
    with loopback(owned("sglang")) as server:
        worker = Worker(name="w", kind=kind, model=model, options={"base_url": f"{server.url}/v1"})
        assert held_to(open_model(worker, environ={}), JSON)[0] == held
    assert [call.path.rpartition("/")[2] for call in server.requests] + list(
        form(server.requests[-1])
    ) == paths


def test_openai_itself_takes_a_schema() -> None:
    model = open_model(Worker(name="w", kind="openai"), environ={"OPENAI_API_KEY": "k"})
    assert isinstance(model, ChatApiModel)
    assert (model._form, model._schemas) == ("response_format", True)


def refused(**message: str) -> Script:
    """A server that refuses each of these fields with these words, and takes the rest."""
    return refusing(
        {name: {"message": words, "code": 400} for name, words in message.items()}, fine
    )


@pytest.mark.parametrize(
    ("preset", "words", "hold"),
    [
        (Preset(form="grammar", schemas=True), "Failed to parse grammar", "schema"),
        (Preset(form="grammar"), "Failed to parse grammar", "nothing"),
        (
            Preset(form="response_format", schemas=True),
            "This response_format type is unavailable now",
            "nothing",
        ),
    ],
)
def test_a_form_that_is_refused_is_left_out_remembered_and_reported(
    preset: Preset, words: str, hold: str
) -> None:
    """Nor does the server then hold a reply to it."""
    field = preset.form
    request = JSON if preset.form == "response_format" else GRAMMAR
    script = refused(**{field: words})
    with loopback(script) as server:
        assert held_to(ChatApiModel("m", f"{server.url}/v1", preset=preset), JSON)[-1] == hold
    both, requests = replies(script, request, request, preset=preset)
    assert [text(chunks) for chunks in both] == ["Yes.", "Yes."]
    assert [[note.partition(" ")[2] for note in notes(chunks)] for chunks in both] == [
        [f"does not accept {field}; sent without it"],
        [],
    ]
    assert [[name for name in form(call) if name in FIELDS] for call in requests] == [
        [field],
        [],
        [],
    ]
    assert not form(requests[-1])


@pytest.mark.parametrize(
    "words",
    [
        "Invalid schema for response_format 'reply': In context=(), 'required' is required",
        "The specified schema produces a constraint that has too many states for serving.",
        "The provided JSON schema contains features not supported by xgrammar.",
        "Grammar error: Unimplemented keys: ['uniqueItems']",
        "JSON schema conversion failed: Unrecognized schema: not",
        "response_format is not a valid moonshot flavored json schema, details: <At path 'a'>",
    ],
)
def test_a_schema_that_is_refused_for_what_is_in_it_leaves_the_next_one_its_place(
    words: str,
) -> None:
    odd = replace(PLAIN, schema={"type": "object", "not": {}})

    async def script(request: SeenRequest, wire: Wire) -> None:
        if "not" in json.dumps(request.json.get("response_format")):
            return await wire.json({"error": {"message": words, "code": 400}}, 400)
        return await fine(request, wire)

    preset = Preset(form="response_format", schemas=True)
    both, requests = replies(script, odd, replace(PLAIN, schema=SCHEMA), preset=preset)
    assert [[note.partition(" ")[2] for note in notes(chunks)] for chunks in both] == [
        ["does not take this JSON Schema; it stands in words only, and the answer is checked"],
        [],
    ]
    assert [list(form(call)) for call in requests] == [
        ["response_format"],
        [],
        ["response_format"],
    ]


@pytest.mark.parametrize(
    "words",
    [
        "output_config.format.schema: For 'object' type, 'additionalProperties' must be set to false",
        "output_format.schema: For 'array' type, property 'maxItems' is not supported",
    ],
)
def test_claude_is_sent_a_schema_again_after_one_that_it_does_not_take(words: str) -> None:
    odd = replace(PLAIN, schema={"type": "object", "not": {}})

    async def script(request: SeenRequest, wire: Wire) -> None:
        if "not" in json.dumps(request.json.get("output_config")):
            error = {"type": "invalid_request_error", "message": words}
            return await wire.json({"type": "error", "error": error}, 400)
        return await speaking("Yes.")(request, wire)

    _, requests = in_turn("anthropic", script, odd, replace(PLAIN, schema=SCHEMA))
    assert ["output_config" in request.json for request in requests] == [True, False, True]


def test_a_schema_that_a_model_did_not_keep_to_is_no_refused_field() -> None:
    """Groq refuses what its model wrote, and not what it was sent."""
    words = "Generated JSON does not match the expected schema. Error: jsonschema: missing a"
    error = {"message": words, "type": "invalid_request_error", "code": "json_validate_failed"}
    preset = Preset(form="response_format", schemas=True)
    with loopback(answering({"error": error}, 400)) as server:
        model = ChatApiModel("m", f"{server.url}/v1", preset=preset)
        chunks, failure = broken_off(model, JSON)
    assert not chunks
    assert (failure.reason, failure.retryable) == ("broken", True)
    assert [request.json["response_format"] for request in server.requests] == [FORMAT]


def test_where_a_grammar_is_refused_a_schema_takes_its_place() -> None:
    script = refused(
        structured_outputs="Invalid grammar specification.", response_format="json_schema: no"
    )
    (chunks,), requests = replies(script, JSON, preset=Preset(form="structured_outputs"))
    assert [list(form(call)) for call in requests] == [
        ["structured_outputs"],
        ["response_format"],
        [],
    ]
    assert len(notes(chunks)) == 2


def test_a_form_that_is_refused_inside_an_answer_is_left_out_too() -> None:
    message = (
        "Grammar-based generation (regex, ebnf) is not supported when launched with "
        "--grammar-backend none"
    )

    async def script(request: SeenRequest, wire: Wire) -> None:
        if "ebnf" not in request.json:
            return await fine(request, wire)
        error = {"object": "error", "message": message, "type": "BAD_REQUEST", "code": 400}
        return await saying(delta(), {"error": error})(request, wire)

    (chunks,), requests = replies(script, GRAMMAR, preset=Preset(form="ebnf"))
    assert text(chunks) == "Yes."
    assert len(notes(chunks)) == 1
    assert [list(form(call)) for call in requests] == [["ebnf"], []]


def test_a_reply_that_has_begun_is_not_asked_for_again() -> None:
    error = {"error": {"message": "grammar broke", "code": 400}}
    with pytest.raises(ModelError, match="grammar broke") as raised:
        replies(saying(delta("Y"), error), GRAMMAR, preset=Preset(form="ebnf"))
    assert raised.value.reason == "refused"


def test_a_form_that_is_filled_in_where_the_model_thinks_is_left_out_of_the_next_call() -> None:
    async def script(request: SeenRequest, wire: Wire) -> None:
        if "grammar" in request.json:
            return await saying(delta(reasoning_content="x"), delta(finish="stop"), usage())(
                request, wire
            )
        return await fine(request, wire)

    with loopback(script) as server:
        made = ChatApiModel("m", f"{server.url}/v1", preset=Preset(form="grammar"))
        with pytest.raises(ModelError) as error:
            play(made, GRAMMAR)
        (chunks,) = play(made, GRAMMAR)
    assert (error.value.reason, error.value.retryable) == ("empty_answer", True)
    assert text(chunks) == "Yes."
    assert [note.partition(" ")[2] for note in notes(chunks)] == [
        "does not accept grammar; sent without it"
    ]
    assert form(server.requests[-1]) == {}


def test_a_model_that_thinks_before_it_keeps_to_the_form_is_held_to_it_again() -> None:
    replies_ = saying(delta(reasoning_content="Hm."), *YES)
    both, requests = replies(replies_, GRAMMAR, GRAMMAR, preset=Preset(form="ebnf"))
    assert [text(chunks) for chunks in both] == ["Yes.", "Yes."]
    assert [list(form(call)) for call in requests] == [["ebnf"], ["ebnf"]]


@pytest.mark.parametrize(
    ("model", "sent"), [("claude-haiku-4-5", True), ("nobody-knows-it", False)]
)
def test_litellm_sends_a_schema_for_a_model_that_it_knows_to_take_one(
    model: str, sent: bool
) -> None:
    with loopback(speaking('{"a":1}')) as server:
        made = LiteLLM(f"anthropic/{model}", key="k", base_url=server.url)
        chunks = play(made, replace(JSON, max_tokens=9))[0]
    body = server.requests[0].json
    assert text(chunks) == '{"a":1}'
    assert notes(chunks) == []
    assert (body.get("output_format", {}).get("schema", {}).get("required") == ["a"]) is sent
    assert 'root ::= "x"' not in json.dumps(body)


@pytest.mark.parametrize(
    ("owner", "fields"),
    [
        ("llamacpp", {}),
        ("vllm", {"continue_final_message": True, "add_generation_prompt": False}),
        ("sglang", {"continue_final_message": True}),
        ("library", {}),
    ],
)
def test_a_server_that_can_is_told_to_continue_the_beginning_of_a_reply(
    owner: str, fields: dict[str, Any]
) -> None:
    """Another one is not sent it."""
    _, requests = replies(owned(owner), replace(PLAIN, prefill="Let us think"))
    body = requests[-1].json
    assert ({"role": "assistant", "content": "Let us think"} in body["messages"]) == (
        owner != "library"
    )
    assert {
        name: body[name]
        for name in ("continue_final_message", "add_generation_prompt")
        if name in body
    } == fields

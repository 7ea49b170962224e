"""Schemas of tools' arguments, in the form that an API takes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from conductor_cli.core.chat import Tool
from conductor_cli.core.errors import ModelError
from conductor_cli.models.chat_api_model import ChatApiModel
from conductor_cli.models.presets import Preset
from conductor_cli.models.tool_schemas import (
    SchemaForm,
    api_key,
    api_name,
    object_schema,
    original_keys,
    original_names,
    simple_schema,
    with_api_keys,
)
from tests.models.kit import asked_by, calls, fine, in_turn, notes, play, text, user_request
from tests.servers import SeenRequest, Speaker, Wire, delta, loopback, saying, usage

KNOWN = (
    "type",
    "properties",
    "required",
    "items",
    "anyOf",
    "enum",
    "description",
    "additionalProperties",
)


ANY_ARRAY = {"type": "array", "items": {}}


def simple(schema: dict[str, Any]) -> dict[str, Any]:
    return simple_schema(schema, KNOWN, tool="t", api="The API")


def test_a_schema_is_that_of_an_object_without_its_dialect() -> None:
    assert object_schema({}) == {"type": "object", "properties": {}}
    draft = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"a": {}},
    }
    assert object_schema(draft) == {"type": "object", "properties": {"a": {}}}


def test_alternatives_at_the_top_become_one_object() -> None:
    by_url = {"properties": {"url": {"type": "string"}, "how": {}}, "required": ["url", "how"]}
    by_path = {"properties": {"path": {"type": "string"}, "how": {}}, "required": ["path", "how"]}
    assert object_schema({"anyOf": [by_url, by_path], "description": "D"}) == {
        "type": "object",
        "description": "D",
        "properties": {"path": {"type": "string"}, "how": {}, "url": {"type": "string"}},
        "required": ["how"],
    }
    assert object_schema({"allOf": [by_url, by_path]})["required"] == ["how", "path", "url"]


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        # OpenAI: array schema missing items
        ({"type": "array"}, {"type": "array", "items": {}}),
        ({"type": ["array", "null"]}, {"type": ["array", "null"], "items": {}}),
        ({"anyOf": [{"type": "array"}, {"type": "null"}]},) * 2,
        ({"type": "array", "items": {"type": "array"}},) * 2,
        # A tuple until 2019-09
        (
            {"type": "array", "items": [{"type": "string"}, {"type": "array"}]},
            {
                "type": "array",
                "items": {},
                "prefixItems": [{"type": "string"}, {"type": "array", "items": {}}],
            },
        ),
        (
            {"type": "array", "items": [{}], "additionalItems": False},
            {"type": "array", "prefixItems": [{}], "items": False},
        ),
        # A flag until draft 4
        ({"minimum": 0, "exclusiveMinimum": True}, {"exclusiveMinimum": 0}),
        ({"maximum": 9, "exclusiveMaximum": False}, {"maximum": 9}),
        ({"exclusiveMaximum": 9},) * 2,
        # Until draft 3, and what programs write for nothing
        ({"type": "string", "required": True}, {"type": "string"}),
        ({"type": "string", "enum": None, "default": None}, {"type": "string", "default": None}),
        ({"properties": {"required": {"type": "string"}, "items": {}}},) * 2,
        (True, True),
    ],
)
def test_a_schema_of_an_older_draft_is_written_in_the_newest(written: Any, sent: Any) -> None:
    """OpenAI and Anthropic check each tool's schema, and refuse the whole request for one fault."""
    if written == sent and isinstance(written, dict):
        sent = json.loads(json.dumps(written).replace('{"type": "array"}', json.dumps(ANY_ARRAY)))
    schema = {"properties": {"a": written}, "$defs": {"b": {"properties": {"c": written}}}}
    assert object_schema(schema, with_items=True) == {
        "type": "object",
        "properties": {"a": sent},
        "$defs": {"b": {"properties": {"c": sent}}},
    }


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ({"type": "array"},) * 2,
        ({"type": "array", "items": {}},) * 2,
        ({"type": "array", "prefixItems": [{"type": "number"}], "maxItems": 1},) * 2,
        ({"type": "array", "items": [{}]}, {"type": "array", "prefixItems": [{}]}),
        (
            {"type": "array", "items": [{}, {}], "additionalItems": False},
            {"type": "array", "prefixItems": [{}, {}], "maxItems": 2},
        ),
        (
            {"type": "array", "items": [{}], "additionalItems": {"type": "string"}},
            {"type": "array", "prefixItems": [{}], "items": {"type": "string"}},
        ),
    ],
)
def test_an_array_is_not_said_to_hold_anything_where_nobody_asks(written: Any, sent: Any) -> None:
    """llama.cpp takes `items` of anything for objects, reads no `prefixItems`, refuses `false`."""
    schema = object_schema({"properties": {"a": {"anyOf": [written]}}})
    assert schema["properties"] == {"a": {"anyOf": [sent]}}


LISTS = {"properties": {"names": {"type": "array"}}}


@pytest.mark.parametrize(
    "message",
    [
        "Invalid schema for function 'lists': In context=(…), array schema missing items.",
        "tools[0].function_declarations[0].parameters.properties[names].items: missing field.",
    ],
)
def test_a_server_that_asks_what_an_array_holds_is_told(message: str) -> None:
    async def script(request: SeenRequest, wire: Wire) -> None:
        if '"items": {}' in request.body.decode():
            return await saying(delta(content="Yes."), delta(finish="stop"))(request, wire)
        return await wire.json({"error": {"message": message}}, 400)

    asked = user_request(tools=(Tool(name="lists", parameters=LISTS),))
    (first, second), requests = in_turn("chat completions", script, asked, asked)
    assert [text(chunks) for chunks in (first, second)] == ["Yes.", "Yes."]
    assert "arrays that do not say what they hold; sent as arrays of anything" in notes(first)[0]
    assert (notes(second), len(requests)) == ([], 3)


def test_a_known_provider_is_told_at_once_what_an_array_holds() -> None:
    asked = user_request(tools=(Tool(name="lists", parameters=LISTS),))
    with loopback(fine) as server:
        provider = Preset(base_url=server.url)
        play(ChatApiModel("m", server.url, preset=provider), asked)
        play(ChatApiModel("m", server.url, preset=replace(provider, local=True)), asked)
    sent = [seen.json["tools"][0]["function"]["parameters"] for seen in server.requests]
    assert [schema["properties"]["names"] for schema in sent] == [ANY_ARRAY, {"type": "array"}]


def test_a_very_deep_schema_stays_as_it_is_below() -> None:
    schema: dict[str, Any] = {"type": "array"}
    for _ in range(60):
        schema = {"type": "array", "items": schema}
    sent = object_schema({"properties": {"a": schema}}, with_items=True)["properties"]["a"]
    for _ in range(60):
        sent = sent["items"]
    assert sent == {"type": "array"}


def test_a_reference_at_the_top_is_followed() -> None:
    tree = {
        "type": "object",
        "properties": {"left": {"$ref": "#/$defs/tree"}},
        "required": ["left"],
    }
    schema = object_schema(
        {"$ref": "#/$defs/alias", "$defs": {"tree": tree, "alias": {"$ref": "#/$defs/tree"}}}
    )
    assert (schema["properties"], schema["required"]) == (tree["properties"], ["left"])
    assert simple(schema)["properties"] == {
        "left": {"type": "object", "properties": {"left": {"type": "object"}}, "required": ["left"]}
    }
    assert object_schema({"$ref": "#"})["type"] == "object"


def test_what_a_reference_names_stands_in_its_place() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"$ref": "#/$defs/x~1y", "description": "beside"},
            "b": {"items": {"$ref": "#/$defs/z"}},
        },
        "$defs": {"x/y": {"$ref": "#/$defs/z"}, "z": {"type": "string", "pattern": "^a"}},
    }
    assert simple(schema) == {
        "type": "object",
        "properties": {
            "a": {"type": "string", "description": "beside"},
            "b": {"items": {"type": "string"}},
        },
    }


def test_what_the_api_does_not_know_is_left_out() -> None:
    schema = {
        "type": "object",
        "additionalProperties": False,
        "$comment": "c",
        "if": {},
        "minProperties": 1,
        "properties": {"const": {"const": 1, "examples": [1]}, "any": True, "none": False},
    }
    assert simple(schema) == {
        "type": "object",
        "additionalProperties": False,
        "properties": {"const": {"enum": [1]}, "any": {}},
    }


@pytest.mark.parametrize(
    "name", ["https://example.org/x.json", "other.json#/x", "#/$defs/none", "#anchor"]
)
def test_a_reference_that_leads_nowhere_is_refused_with_the_tool_s_name(name: str) -> None:
    with pytest.raises(ModelError) as caught:
        simple({"properties": {"a": {"$ref": name}}})
    assert caught.value.reason == "refused"
    assert "'t'" in caught.value.message
    assert not caught.value.retryable


def test_a_schema_that_grows_without_bound_is_refused_at_once() -> None:
    defs: dict[str, Any] = {
        f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]}
        for n in range(30)
    }
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"items": deep}
    for schema in ({"$ref": "#/$defs/d0", "$defs": defs | {"d30": {}}}, deep):
        with pytest.raises(ModelError, match="too large"):
            simple(schema)


@pytest.mark.parametrize(
    "schema",
    [{"properties": []}, {"required": "a"}, {"anyOf": 7}, {"type": 7}, {"items": 7}, {"$ref": 7}],
)
def test_a_schema_that_is_none_is_no_error_of_python_s(schema: dict[str, Any]) -> None:
    assert object_schema(simple(object_schema(schema)))["type"] == "object"


@pytest.mark.parametrize("name", ["read_file", "read-file", "_x", "R2"])
def test_a_name_that_every_api_takes_is_sent_as_it_is(name: str) -> None:
    assert api_name(name) == name
    assert original_names([name]) == {}


@pytest.mark.parametrize(
    "name",
    [
        "",
        "files/read",
        "2nd",
        "-x",
        "Search the web",
        "a" * 65,
        "\x1b[31mred\x00",
        "größe",
        "read.file",
        "\ud800",
    ],
)
def test_any_other_name_is_changed_to_one_that_every_api_takes(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", api_name(name))
    assert api_name(name) == api_name(name)
    assert original_names([name, "other"]) == {api_name(name): name}


def test_names_that_differ_stay_different() -> None:
    names = ["a/b", "a.b", "a b", "a_b", "x" * 64 + "1", "x" * 64 + "2"]
    assert len({api_name(name) for name in names}) == len(names)


ODD: dict[str, Any] = {
    "type": "object",
    "properties": {"$top": {"type": "integer"}, "filter[id]": {"type": "string"}, "city": {}},
    "required": ["$top", "city"],
}
LONG_KEY = "settings__approved__or__denied__countries__or__regions__approved__list"


def test_arguments_are_offered_under_names_that_every_api_takes() -> None:
    """Anthropic refuses the whole request for another one."""
    offered = with_api_keys(object_schema(ODD))
    pattern = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
    assert all(pattern.fullmatch(name) for name in offered["properties"])
    assert offered["required"] == sorted([api_key("$top"), "city"], key=len, reverse=True)
    assert list(offered["properties"].values()) == [
        {"title": "$top", "type": "integer"},
        {"title": "filter[id]", "type": "string"},
        {},
    ]
    assert with_api_keys(object_schema({"properties": {"a.b-c_1": {}}})) == {
        "type": "object",
        "properties": {"a.b-c_1": {}},
    }
    assert pattern.fullmatch(api_key(LONG_KEY))
    assert api_key(LONG_KEY) != api_key(LONG_KEY + "s")
    odd = Tool(name="odd", parameters={"anyOf": [ODD, {"properties": {LONG_KEY: {}}}]})
    assert original_keys([odd, Tool(name="plain", parameters={"properties": {"a": {}}})]) == {
        "odd": {api_key(name): name for name in ("$top", "filter[id]", LONG_KEY)}
    }


@pytest.mark.parametrize("api", ["chat completions", "responses", "anthropic", "gemini"])
def test_a_call_has_the_names_of_its_tool_again(api: str) -> None:
    tools = (Tool(name="odd", parameters=ODD), Tool(name="plain", parameters={}))

    async def script(request: SeenRequest, wire: Wire) -> None:
        speaker = Speaker(request, wire)
        await speaker.begin()
        arguments = json.dumps({api_key("$top"): 3, "city": "Oslo", "more": [1]})
        await speaker.call("odd", arguments[:9], arguments[9:])
        await speaker.call("plain", '{"$top', '": 1}')
        await speaker.end()

    chunks, (request,) = asked_by(api, script, user_request(tools=tools))
    assert f'"{api_key("filter[id]")}"' in request.body.decode()
    assert [json.loads(call.arguments) for call in calls(chunks)] == [
        {"$top": 3, "city": "Oslo", "more": [1]},
        {"$top": 1},
    ]


SCRIPTS: dict[str, Any] = {
    "properties": {"城市": {"type": "string"}, "größe": {"title": "Größe"}, "$größe": {}}
}
PLAIN_KEYS = [api_key(name, is_ascii=True) for name in SCRIPTS["properties"]]


@pytest.mark.parametrize(
    ("api", "model", "is_plain"),
    [
        ("anthropic", "m", True),
        ("chat completions", "anthropic/Claude-Opus", True),
        ("chat completions", "m", False),
        ("responses", "m", False),
        ("gemini", "m", False),
    ],
)
def test_only_anthropic_is_sent_other_letters_than_those_of_an_argument(
    api: str, model: str, is_plain: bool
) -> None:
    """A model that is sent a hash in place of a word does not know what is wanted."""
    names = ["城市", "größe", api_key("$größe")]
    names = PLAIN_KEYS if is_plain else names
    tools = (Tool(name="odd", parameters=SCRIPTS),)

    async def script(request: SeenRequest, wire: Wire) -> None:
        speaker = Speaker(request, wire)
        await speaker.begin()
        await speaker.call("odd", json.dumps(dict.fromkeys(names, 1)))
        await speaker.end()

    chunks, (request,) = asked_by(api, script, user_request(tools=tools), model=model)
    for name in names:
        assert f'"{name}":' in request.body.decode()
    assert [json.loads(call.arguments) for call in calls(chunks)] == [
        {"城市": 1, "größe": 1, "$größe": 1}
    ]


REFUSED_KEYS = (
    "tools.0.custom.input_schema.properties: Property keys should match pattern "
    "'^[a-zA-Z0-9_.-]{1,64}$'"
)


async def as_claude(request: SeenRequest, wire: Wire) -> None:
    """A gateway that has a Claude behind a name of its own."""
    properties = request.json["tools"][0]["function"]["parameters"]["properties"]
    if all(name.isascii() for name in properties):
        return await fine(request, wire)
    return await wire.json({"error": {"message": REFUSED_KEYS}}, 400)


def test_a_gateway_whose_model_takes_no_other_letters_is_sent_none() -> None:
    """The whole request is refused, and nothing else says which model is behind a name."""
    asked = user_request(tools=(Tool(name="odd", parameters=SCRIPTS),))
    (first, second), requests = in_turn("chat completions", as_claude, asked, asked)
    assert [text(chunks) for chunks in (first, second)] == ["Yes.", "Yes."]
    assert notes(first)[0].endswith(
        "names of arguments in other scripts; sent with other names, and their own as titles"
    )
    assert (notes(second), len(requests)) == ([], 3)


ALIKE: dict[str, Any] = {
    "properties": {"操作": {"type": "string"}, "应用名": {}, "a.b": {}, "a_b": {}, "城市1": {}},
    "required": ["操作"],
}


def test_arguments_that_a_server_takes_for_one_are_sent_apart() -> None:
    """llama-server drops all but one of those that differ only in such letters and marks."""
    tools = (Tool(name="odd", parameters=ALIKE),)
    seen: list[str] = []

    async def script(request: SeenRequest, wire: Wire) -> None:
        parameters = request.json["tools"][0]["function"]["parameters"]
        seen.extend(parameters["properties"])
        assert parameters["required"] == seen[:1]
        speaker = Speaker(request, wire)
        await speaker.begin()
        await speaker.call("odd", json.dumps(dict.fromkeys(seen, 1)))
        await speaker.end()

    chunks, _ = asked_by("chat completions", script, user_request(tools=tools))
    assert len({re.sub("[^A-Za-z0-9-]+", "-", name) for name in seen}) == 5
    assert seen[-1] == "城市1"
    (call,) = calls(chunks)
    assert json.loads(call.arguments) == dict.fromkeys(ALIKE["properties"], 1)


def test_a_known_provider_is_sent_the_names_of_arguments_as_they_are() -> None:
    asked = user_request(tools=(Tool(name="odd", parameters=ALIKE),))
    with loopback(fine) as server:
        play(ChatApiModel("m", server.url, preset=Preset(base_url=server.url)), asked)
    (seen,) = server.requests
    assert seen.json["tools"][0]["function"]["parameters"] == {"type": "object", **ALIKE}


def test_an_argument_with_another_name_keeps_its_own_as_its_title() -> None:
    assert all(name.isascii() for name in PLAIN_KEYS)
    offered = with_api_keys(object_schema(SCRIPTS), SchemaForm(ascii_keys=True))
    assert dict(zip(PLAIN_KEYS, offered["properties"].values(), strict=True)) == {
        PLAIN_KEYS[0]: {"title": "城市", "type": "string"},
        PLAIN_KEYS[1]: {"title": "Größe"},
        PLAIN_KEYS[2]: {"title": "$größe"},
    }


def test_a_call_that_is_cut_in_its_arguments_is_none() -> None:
    tools = (Tool(name="odd", parameters=ODD),)
    call = {"index": 0, "id": "c", "function": {"name": "odd", "arguments": '{"$t'}}
    script = saying(delta(tool_calls=[call]), delta(finish="length"), usage())
    chunks, _ = asked_by("chat completions", script, user_request(tools=tools))
    assert (calls(chunks), chunks[-1].finish) == ((), "length")

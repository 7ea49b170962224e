"""Schemas of tools' arguments, in the form that an API takes."""

from __future__ import annotations

from typing import Any

import pytest

from conductor_cli.core.errors import ModelError
from conductor_cli.models.tool_schemas import object_schema, simple_schema

KNOWN = ("type", "properties", "required", "items", "anyOf", "enum", "description", "additionalProperties")


def simple(schema: dict[str, Any]) -> dict[str, Any]:
    return simple_schema(schema, KNOWN, tool="t", api="The API")


def test_a_schema_is_that_of_an_object_without_its_dialect() -> None:
    """A tool without arguments has an object of none; the address of a draft is left out."""
    assert object_schema({}) == {"type": "object", "properties": {}}
    draft = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"a": {}}}
    assert object_schema(draft) == {"type": "object", "properties": {"a": {}}}


def test_alternatives_at_the_top_become_one_object() -> None:
    """The properties of all are offered, and only what each alternative requires is required."""
    one = {"properties": {"url": {"type": "string"}, "how": {}}, "required": ["url", "how"]}
    other = {"properties": {"path": {"type": "string"}, "how": {}}, "required": ["path", "how"]}
    assert object_schema({"anyOf": [one, other], "description": "D"}) == {
        "type": "object", "description": "D",
        "properties": {"path": {"type": "string"}, "how": {}, "url": {"type": "string"}}, "required": ["how"],
    }  # fmt: skip
    assert object_schema({"allOf": [one, other]})["required"] == ["how", "path", "url"]


def test_a_reference_at_the_top_is_followed() -> None:
    """Pydantic writes such schemas for models that hold themselves; a reference to itself ends."""
    tree = {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}}, "required": ["left"]}
    found = object_schema({"$ref": "#/$defs/alias", "$defs": {"tree": tree, "alias": {"$ref": "#/$defs/tree"}}})
    assert (found["properties"], found["required"]) == (tree["properties"], ["left"])
    assert simple(found)["properties"] == {"left": {"type": "object", "properties": {"left": {"type": "object"}},
                                                    "required": ["left"]}}  # fmt: skip
    assert object_schema({"$ref": "#"})["type"] == "object"


def test_what_a_reference_names_stands_in_its_place() -> None:
    """Also a reference to a reference, with escaped characters and with a description beside it."""
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/x~1y", "description": "beside"}, "b": {"items": {"$ref": "#/$defs/z"}}},
        "$defs": {"x/y": {"$ref": "#/$defs/z"}, "z": {"type": "string", "pattern": "^a"}},
    }
    assert simple(schema) == {
        "type": "object",
        "properties": {"a": {"type": "string", "description": "beside"}, "b": {"items": {"type": "string"}}},
    }


def test_what_the_api_does_not_know_is_left_out() -> None:
    """A constant becomes an enumeration; a property that may not be there is not offered."""
    schema = {
        "type": "object", "additionalProperties": False, "$comment": "c", "if": {}, "minProperties": 1,
        "properties": {"const": {"const": 1, "examples": [1]}, "any": True, "none": False},
    }  # fmt: skip
    assert simple(schema) == {
        "type": "object", "additionalProperties": False, "properties": {"const": {"enum": [1]}, "any": {}},
    }  # fmt: skip


def test_a_schema_inside_itself_says_only_its_type() -> None:
    """A tree has no end otherwise."""
    tree = {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}, "name": {"type": "string"}}}
    found = simple({"$ref": "#/$defs/tree", "$defs": {"tree": tree}})
    assert found == {"type": "object", "properties": {"left": {"type": "object"}, "name": {"type": "string"}}}


@pytest.mark.parametrize("name", ["https://example.org/x.json", "other.json#/x", "#/$defs/none", "#anchor"])
def test_a_reference_that_leads_nowhere_is_refused_with_the_tool_s_name(name: str) -> None:
    """Nothing is fetched, and nothing is sent that the server would refuse without a name."""
    with pytest.raises(ModelError) as caught:
        simple({"properties": {"a": {"$ref": name}}})
    assert caught.value.reason == "refused"
    assert "'t'" in caught.value.message
    assert not caught.value.retryable


def test_a_schema_that_grows_without_bound_is_refused_at_once() -> None:
    """Forty definitions that each name the next twice are a million million schemas."""
    defs: dict[str, Any] = {
        f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(30)
    }
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"items": deep}
    for schema in ({"$ref": "#/$defs/d0", "$defs": defs | {"d30": {}}}, deep):
        with pytest.raises(ModelError, match="too large"):
            simple(schema)


@pytest.mark.parametrize(
    "schema", [{"properties": []}, {"required": "a"}, {"anyOf": 7}, {"type": 7}, {"items": 7}, {"$ref": 7}]
)
def test_a_schema_that_is_none_is_no_error_of_python_s(schema: dict[str, Any]) -> None:
    """The server has the last word."""
    assert object_schema(simple(object_schema(schema)))["type"] == "object"

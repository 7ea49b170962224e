"""A model file's reply to a JSON Schema: a grammar holds it from the first token."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.core.chat import Message, Request
from conductor_cli.models.llama.adapter import NO_GRAMMAR, Llama
from conductor_cli.models.llama.loading import LlamaOptions
from conductor_cli.models.llama.schema_grammar import SchemaGrammars
from tests.models.kit import play, text

CLOSED: dict[str, Any] = {
    "type": "object",
    "properties": {"letter": {"enum": ["a", "b"]}},
    "required": ["letter"],
    "additionalProperties": False,
}
QUESTION = (Message(role="user", content="Check the sum"),)


def grammar_of(schema: dict[str, Any]) -> str:
    return asyncio.run(SchemaGrammars().grammar_of(schema))


def asking(schema: dict[str, Any]) -> Request:
    return Request(messages=QUESTION, max_tokens=64, schema=schema)


def model(path: Path) -> Llama:
    return Llama(path, LlamaOptions(context=1024, threads=1))


def test_a_model_of_random_weights_follows_the_schema(tiny: Path) -> None:
    (chunks,) = play(model(tiny), asking(CLOSED))
    assert json.loads(text(chunks))["letter"] in {"a", "b"}


def test_a_schema_without_a_grammar_is_told_and_the_reply_is_free(tiny: Path) -> None:
    """A reference to nowhere has none."""
    (chunks,) = play(model(tiny), asking({"$ref": "#/$defs/nowhere"}))
    assert chunks[0].note == NO_GRAMMAR
    assert text(chunks)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "maxLength": 10**9},
        {"type": "array", "minItems": 10**9},
        {"type": "string", "pattern": r"^\p{Lu}+$"},
    ],
    ids=["length", "items", "pattern"],
)
def test_what_a_grammar_cannot_say_is_left_out_of_it(schema: dict[str, Any]) -> None:
    assert grammar_of(schema).startswith(("root", "char", "space", "array", "boolean", "value"))


def test_a_schema_that_asks_for_gigabytes_has_no_grammar() -> None:
    schema: dict[str, Any] = {"type": "string", "pattern": "^((((a{1000}){1000}){1000}){1000})$"}
    assert len(grammar_of(schema)) < 100_001

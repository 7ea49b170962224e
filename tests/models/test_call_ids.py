"""Ids of tool calls that a conversation brings, in the form that each API takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import pytest

from conductor_cli.core.chat import ToolCall
from tests.models.kit import called, sent_to, spoken, talk

LONG = "call_20261130-081329-0a1b2c_0_AbCdEf_0123456789abcdef"  # As `serve` gives it to clients


def ids(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The id of the call, and that in the result."""
    return [messages[-2]["tool_calls"][0]["id"], messages[-1]["tool_call_id"]]


@pytest.mark.parametrize("api", ["chat completions", "gemini-chat"])
def test_a_long_id_of_a_call_is_shortened_for_chat_completions(api: str) -> None:
    """OpenAI takes 40 characters, and the ids of `serve` have 53."""
    call, result = ids(sent_to(api, talk(spoken("user", "Warm?"), *called(LONG))).json["messages"])
    assert call == result
    assert len(call) <= 40
    kimi = "functions.weather:0"
    sent = sent_to(api, talk(spoken("user", "Warm?"), *called(kimi)))
    assert ids(sent.json["messages"]) == [kimi, kimi]


def test_an_id_with_a_signature_stays() -> None:
    """A proxy of litellm reads Google's signature from it."""
    signed = "call_1__thought__" + "A" * 100
    extra = {"extra_content": {signed: {"google": {"thought_signature": "S"}}}}
    request = talk(spoken("user", "Warm?"), *called(signed, provider_data=extra))
    assert ids(sent_to("chat completions", request).json["messages"]) == [signed, signed]


def test_what_belongs_to_a_call_stays_with_its_shortened_id() -> None:
    vertex = "function-call-0123456789-0123456789-0123456789"
    extra = {"extra_content": {vertex: {"google": {"thought_signature": "S"}}}}
    request = talk(spoken("user", "Warm?"), *called(vertex, provider_data=extra))
    sent = sent_to("gemini-chat", request).json["messages"]
    assert sent[-2]["tool_calls"][0]["extra_content"] == extra["extra_content"][vertex]
    assert len({*ids(sent)}) == 1


@pytest.mark.parametrize("call_id", ["functions.weather:0", "call_1|fc_2", LONG * 2, ""])
def test_anthropic_is_sent_ids_that_it_takes(call_id: str) -> None:
    sent = sent_to("anthropic", talk(spoken("user", "Warm?"), *called(call_id))).json["messages"]
    found = [sent[-2]["content"][-1]["id"], sent[-1]["content"][0]["tool_use_id"]]
    assert found[0] == found[1]
    assert found[0].replace("_", "").replace("-", "").isalnum()
    assert len(found[0]) <= 64
    kept = sent_to("anthropic", talk(spoken("user", "Warm?"), *called(LONG))).json["messages"]
    assert kept[-2]["content"][-1]["id"] == LONG


def test_responses_is_sent_ids_of_at_most_64_characters() -> None:
    sent = sent_to("responses", talk(spoken("user", "Warm?"), *called(LONG * 2))).json["input"]
    found = [item["call_id"] for item in sent if "call_id" in item]
    assert len(found) == 2
    assert found[0] == found[1]
    assert len(found[0]) <= 64


def test_kimi_is_sent_ids_that_name_their_tools() -> None:
    """Its chat template shows a model the id of a call, and the name of the tool nowhere else."""
    tool = "mcp__github__create_pull_request_review"
    calls = tuple(ToolCall(id=given, name=tool, arguments="{}") for given in (LONG, "call_2"))
    extra = {"extra_content": {"call_2": {"google": {"thought_signature": "S"}}}}
    request = talk(
        spoken("user", "Warm?"),
        *called("functions.weather:0"),
        spoken("assistant", tool_calls=calls, provider_data=extra),
        spoken("tool", "Two.", tool_call_id="call_2"),
        spoken("tool", "One.", tool_call_id=LONG),
    )
    sent = sent_to("chat completions", request, model="moonshotai/Kimi-K2.7").json["messages"]
    names = ["functions.weather:0", f"functions.{tool}:1", f"functions.{tool}:2"]
    calls_sent = chain.from_iterable(said.get("tool_calls", ()) for said in sent)
    assert [call["id"] for call in calls_sent] == names
    results = [said["tool_call_id"] for said in sent if said["role"] == "tool"]
    assert results == [names[0], names[2], names[1]]
    assert sent[3]["tool_calls"][1]["extra_content"] == extra["extra_content"]["call_2"]


@pytest.mark.parametrize("given", ["functions.weather:0", "toolu_01AbC", LONG])
def test_kimi_is_sent_ids_that_name_their_tools_in_the_api_of_anthropic_too(given: str) -> None:
    """Another worker may have made the calls."""
    request = talk(spoken("user", "Warm?"), *called(given))
    sent = sent_to("anthropic", request, model="kimi-k2-thinking").json["messages"]
    assert sent[-2]["content"][-1]["id"] == "functions.weather:0"
    assert sent[-1]["content"][0]["tool_use_id"] == "functions.weather:0"

"""Replies in the forms that providers document, replayed through the real adapters.

They are in `tests/cassettes`. The doubles of the other tests were written by those who wrote the
adapters. A cassette has the fields, the order and the oddities that a provider's own pages show.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest

from conductor_cli.core.chat import Chunk, Request, Tool
from conductor_cli.core.errors import ModelError
from conductor_cli.models.chat_api_model import ChatApiModel
from conductor_cli.models.presets import PRESETS, Preset
from tests.models.kit import ASK, calls, play, text, thinking, used
from tests.servers import Script, SeenRequest, Wire, loopback

CASSETTES: Final = Path(__file__).resolve().parents[1] / "cassettes"
WEATHER: Final = Tool(
    name="get_weather",
    description="Says the weather.",
    parameters={"type": "object", "properties": {"location": {"type": "string"}}},
)
REQUEST: Final = Request(messages=(ASK,), tools=(WEATHER,))
WARM: Final = "It is warm in Paris."
CITY: Final = "The city is Paris."
PARIS: Final = {"location": "Paris"}
LONDON: Final = {"location": "London"}


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a cassette says, in our terms.

    `calls` are the arguments of the calls of `get_weather`.
    """

    text: str = ""
    thinking: str = ""
    calls: tuple[dict[str, str], ...] = ()
    read: int
    written: int
    cached: int = 0
    stored: int = 0
    reasoning: int = 0
    cost: Decimal | None = None
    finish: str = "stop"


def tools(*arguments: dict[str, str], read: int, written: int, **fields: Any) -> Reply:
    """A reply that ends with calls."""
    return Reply(calls=arguments, read=read, written=written, finish="tool", **fields)


REPLIES: Final[dict[str, Reply]] = {
    "anthropic-refusal.sse": Reply(text="Hello.", read=25, written=5, finish="refusal"),
    "anthropic-text.sse": Reply(text=WARM, read=25, written=15),
    "anthropic-thinking.sse": Reply(
        text=WARM, thinking=CITY, read=956, written=42, cached=600, stored=300
    ),
    "anthropic-tools.sse": tools(
        {"location": "Paris, France"}, text="Let me check:", read=472, written=89
    ),
    "anthropic-web-search.sse": Reply(text=f"I'll look. {WARM}", read=10682, written=510),
    "deepseek-thinking.sse": Reply(
        text=WARM, thinking=CITY, read=68, written=42, cached=64, reasoning=30
    ),
    "deepseek-tools.sse": tools(PARIS, thinking="I look it up.", read=68, written=42, reasoning=30),
    # Google counts thinking in the total alone.
    "gemini-chat-text.sse": Reply(text=WARM, read=8, written=129, reasoning=120),
    "gemini-chat-tools.sse": tools(PARIS, LONDON, read=72, written=134, reasoning=100),
    "gemini-generate-content-text.sse": Reply(
        text=WARM, thinking=CITY, read=8, written=129, cached=4, reasoning=120
    ),
    "gemini-generate-content-tools.sse": tools(PARIS, LONDON, read=72, written=134, reasoning=100),
    "llama-server-reasoning.sse": Reply(text=WARM, thinking=CITY, read=16, written=42),
    "llama-server-tools.sse": tools(PARIS, read=94, written=30),
    "mistral-context-full.sse": Reply(text="It is", read=131060, written=12, finish="length"),
    "mistral-text.sse": Reply(text=WARM, read=16, written=8, cached=4),
    "mistral-thinking.sse": Reply(text=WARM, thinking=CITY, read=16, written=30),
    "mistral-tools.sse": tools(PARIS, read=94, written=30),
    "ollama-thinking.sse": Reply(text=WARM, thinking=CITY, read=16, written=42),
    "ollama-tools.sse": tools(PARIS, LONDON, read=94, written=30),
    "openai-chat-refusal.sse": Reply(
        text="I'm sorry, I cannot assist with that request.", read=81, written=11, finish="refusal"
    ),
    "openai-chat-text.sse": Reply(text=WARM, read=1024, written=52, cached=896, reasoning=32),
    "openai-chat-tools.sse": tools(
        {"location": "Paris, France"}, {"location": "Bogotá, Colombia"}, read=80, written=34
    ),
    "openai-responses-incomplete.sse": Reply(text="It is", read=80, written=16, finish="length"),
    "openai-responses-text.sse": Reply(
        text=WARM,
        thinking="**Looking it up**\n\nThe city is Paris.",
        read=1024,
        written=52,
        cached=896,
        reasoning=32,
    ),
    "openai-responses-tools.sse": tools({"location": "Paris, France"}, read=80, written=17),
    "openrouter-reasoning.sse": Reply(
        text=WARM,
        thinking=CITY,
        read=194,
        written=42,
        cached=128,
        stored=10,
        reasoning=30,
        cost=Decimal("0.00095"),
    ),
    "openrouter-tools.sse": tools(PARIS, read=94, written=30, cost=Decimal("0.0004")),
    "openrouter-whole.json": Reply(
        text=WARM,
        thinking=CITY,
        read=194,
        written=42,
        cached=128,
        stored=10,
        reasoning=30,
        cost=Decimal("0.00095"),
    ),
    "vllm-reasoning-content.sse": Reply(text=WARM, thinking=CITY, read=16, written=42),
    "vllm-reasoning.sse": Reply(text=WARM, thinking=CITY, read=16, written=42, cached=8),
    "vllm-tools.sse": tools(PARIS, read=94, written=30),
}

FAILURES: Final[dict[str, tuple[str, str]]] = {
    "anthropic-overloaded.sse": ("overloaded", "Overloaded"),
    "deepseek-no-resource.sse": ("overloaded", "insufficient_system_resource"),
    "openai-no-quota.json": ("refused", "exceeded your current quota"),
    "openai-responses-failed.sse": ("overloaded", "failed to generate a response"),
    "openrouter-broken-off.sse": ("overloaded", "Provider disconnected unexpectedly"),
}
"""The reason of the error that a cassette ends in, and words of it."""


def preset_of(name: str) -> Preset:
    """How the provider of a cassette is asked at its own address."""
    if name.startswith("llama-server"):
        return PRESETS["llama-server"]
    preset = PRESETS[name.partition("-")[0]]
    if name.startswith("openai-chat-"):
        return replace(preset, api="chat-completions")
    if name.startswith("gemini-chat-"):
        return replace(preset, api="gemini-chat")
    return preset


def replayed(name: str, piece: int) -> Script:
    """A server that answers with a cassette, in pieces of so many bytes.

    It has nothing but that.
    """

    async def script(request: SeenRequest, wire: Wire) -> None:
        if request.method == "GET":
            await wire.json({"error": {"message": "not found"}}, 404)
            return
        content = (CASSETTES / name).read_bytes()
        if name.endswith(".json"):
            answer = json.loads(content)
            await wire.json(answer["body"], answer["status"])
            return
        await wire.head()
        for start in range(0, len(content), piece):
            await wire.send(content[start : start + piece])

    return script


def chunks_of(name: str, piece: int) -> list[Chunk]:
    """What the adapter makes of a cassette that comes in pieces of so many bytes."""
    with loopback(replayed(name, piece)) as server:
        model = ChatApiModel("model", server.url, key="sk-123456", preset=preset_of(name))
        (chunks,) = play(model, REQUEST)
        return chunks


@pytest.mark.parametrize("piece", [64 * 1024, 37], ids=["at once", "in pieces"])
@pytest.mark.parametrize("name", REPLIES)
def test_a_documented_reply_is_understood_as_its_provider_means_it(name: str, piece: int) -> None:
    chunks = chunks_of(name, piece)
    expected = REPLIES[name]
    usage = used(chunks)
    assert text(chunks) == expected.text
    assert thinking(chunks) == expected.thinking
    made = calls(chunks)
    assert tuple(json.loads(call.arguments) for call in made) == expected.calls
    assert {call.name for call in made} <= {WEATHER.name}
    assert len({call.id for call in made}) == len(made)
    assert usage.tokens_in == expected.read
    assert usage.tokens_out == expected.written
    assert usage.tokens_cached == expected.cached
    assert usage.tokens_stored == expected.stored
    assert usage.tokens_reasoning == expected.reasoning
    if expected.cost is not None:
        assert usage.cost == expected.cost
    assert chunks[-1].finish == expected.finish


@pytest.mark.parametrize("name", FAILURES)
def test_a_documented_failure_is_an_error_with_its_reason_and_the_providers_words(
    name: str,
) -> None:
    reason, words = FAILURES[name]
    with pytest.raises(ModelError) as caught:
        chunks_of(name, 64 * 1024)
    assert caught.value.reason == reason
    assert words in caught.value.message


def test_every_cassette_is_replayed() -> None:
    """A file without an expectation would prove nothing."""
    names = {path.name for path in CASSETTES.iterdir() if path.suffix in {".sse", ".json"}}
    assert names == set(REPLIES) | set(FAILURES)


@pytest.mark.parametrize("path", sorted(CASSETTES.glob("*.[sj]*")), ids=lambda path: path.name)
def test_every_cassette_names_its_source_and_says_that_it_was_not_recorded(path: Path) -> None:
    content = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        answer = json.loads(content)
        source = answer["source"]
        note = answer["note"]
    else:
        lines = content.splitlines()
        source = lines[0].removeprefix(": Source: ")
        note = lines[1].removeprefix(": ")
    assert re.fullmatch(r"https://\S+", source)
    assert note.startswith("Built from the documentation named here, not recorded")

"""A reply in the shape of OpenAI's chat completions: text, thinking, tokens, the reason of its end."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.chat import Chunk, Message, Request
from conductor_cli.core.errors import ModelError
from conductor_cli.core.redact import Secrets
from conductor_cli.core.usage import Usage
from conductor_cli.models.stream_decoder import ChatReplyDecoder, usage_of
from tests.models.kit import text, thinking, used
from tests.servers import delta, usage

ASKED = Request(messages=(Message(role="user", content="x" * 40),))
NAMES = [
    "choices", "delta", "message", "content", "usage", "finish_reason", "reasoning", "prompt_tokens", "text",
    "tool_calls", "function", "arguments", "index", "id", "name", "reasoning_details", "provider_data",
]  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)


def played(*frames: dict[str, Any]) -> list[Chunk]:
    """All chunks of a reply."""
    reply = ChatReplyDecoder(ASKED, Secrets())
    return [chunk for frame in frames for chunk in reply.frame(frame)] + list(reply.end())


def joined(chunks: list[Chunk]) -> tuple[str, str]:
    return text(chunks), thinking(chunks)


@pytest.mark.parametrize(
    "frames",
    [
        [delta(reasoning_content="Let me "), delta(reasoning_content="see."), delta("Yes.")],
        [delta(reasoning="Let me see."), delta("Yes.")],
        [delta(reasoning="Let me see.", reasoning_content="Let me see."), delta("Yes.")],
        [delta("<thi"), delta("nk>Let me see."), delta("</think>\n\nYes.")],
        [delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "Let me see."}]}]), delta("Yes.")],
        [delta(content=[{"thinking": "Let me see."}, {"type": "text", "text": "Yes."}])],
    ],
    ids=["reasoning_content", "reasoning", "both", "tags", "parts", "plain-parts"],
)
def test_thinking_is_carried_apart_from_text(frames: list[dict[str, Any]]) -> None:
    assert joined(played(*frames, delta(finish="stop"), usage())) == ("Yes.", "Let me see.")


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", "stop"), ("length", "length"), ("tool_calls", "other"), ("SAFETY", "refusal"), ("whatever", "other"),
    ],
)  # fmt: skip
def test_the_reason_of_the_end_is_carried(reason: str, finish: str) -> None:
    """Each finish reason has its word in the port; one that is not known is `other`.

    So is the end for a tool where none was called.
    """
    last = played(delta("Yes."), delta(finish=reason), usage())[-1]
    assert last == Chunk(usage=Usage(tokens_in=11, tokens_out=7, calls=1), finish=finish)  # type: ignore[arg-type]


def test_a_refusal_is_text_with_its_own_end() -> None:
    chunks = played(delta(refusal="I can"), delta(refusal="not."), delta(finish="stop"), usage())
    assert joined(chunks)[0] == "I cannot."
    assert chunks[-1].finish == "refusal"


@pytest.mark.parametrize("said", ["", " \n", "<think>hm</think>"])
def test_a_reply_without_a_word_is_an_error(said: str) -> None:
    with pytest.raises(ModelError) as error:
        played(delta(said), delta(finish="stop"), usage())
    assert error.value.reason == "empty_answer"


@pytest.mark.parametrize("reason", ["length", "content_filter", "tool_calls"])
def test_a_reply_without_a_word_that_was_cut_is_none(reason: str) -> None:
    assert played(delta(finish=reason), usage())[-1].usage is not None


@pytest.mark.parametrize(
    ("counted", "expected"),
    [
        (
            {"prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 5}},
            {"tokens_cached": 4, "tokens_reasoning": 5},
        ),
        ({"prompt_cache_hit_tokens": 6}, {"tokens_cached": 6}),
        ({"cache_creation_input_tokens": 3}, {"tokens_stored": 3}),
        (
            {"prompt_tokens_details": {"cached_tokens": 9, "cache_write_tokens": 9}},
            {"tokens_cached": 9, "tokens_stored": 2},
        ),
        ({"total_tokens": 30}, {"tokens_out": 19, "tokens_reasoning": 12}),
        ({"prompt_tokens_details": None, "completion_tokens_details": []}, {}),
        ({"prompt_tokens_details": {"cached_tokens": 999}}, {"tokens_cached": 11}),
        ({"total_tokens": "many", "completion_tokens_details": {"reasoning_tokens": -5}}, {}),
        ({"prompt_tokens": 1e30, "completion_tokens": 10**400}, {"tokens_in": 10**12, "tokens_out": 10**12}),
        (
            {"prompt_tokens": -5, "completion_tokens": float("nan"), "total_tokens": None},
            {"tokens_in": 0, "tokens_out": 0},
        ),
    ],
)
def test_tokens_are_counted_as_the_server_says(counted: dict[str, Any], expected: dict[str, Any]) -> None:
    value = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18} | counted
    assert usage_of(value) == Usage(**({"tokens_in": 11, "tokens_out": 7, "calls": 1} | expected))


@pytest.mark.parametrize(("counts", "written"), [((1, 9), 9), ((0,), 2)], ids=["the last one stands", "zero is none"])
def test_a_count_of_a_server_is_taken(counts: tuple[int, ...], written: int) -> None:
    """Some count again and again while they write; where none counts, the tokens are estimated."""
    chunks = played(delta("y" * 8, finish="stop"), *(usage(11, count) for count in counts))
    assert used(chunks) == Usage(tokens_in=11, tokens_out=written, calls=1)


def test_tokens_that_nobody_counted_are_estimated() -> None:
    reply = ChatReplyDecoder(ASKED, Secrets())
    reply.frame(delta("y" * 8, reasoning="z" * 5))
    last = list(reply.end())[-1]
    assert last.usage == Usage(tokens_in=10, tokens_out=4, tokens_reasoning=2, calls=1)
    assert reply.estimated


@pytest.mark.parametrize(("kind", "cost"), [("stated", Decimal("0.5")), ("unknown", None)])
def test_a_cost_is_known_only_where_it_is(kind: Any, cost: Decimal | None) -> None:
    reply = ChatReplyDecoder(ASKED, Secrets(), kind)
    reply.frame(delta("Yes.", finish="stop"))
    reply.frame(usage(cost=0.5))
    assert used(list(reply.end())).cost == cost


@given(frames=st.lists(st.dictionaries(st.sampled_from(["choices", "usage", "error"]), JSON, max_size=3), max_size=5))
def test_no_json_makes_a_reply_fall_over(frames: list[dict[str, Any]]) -> None:
    try:
        chunks = played(*frames)
    except ModelError:
        return
    assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]

"""A reply in the shape of OpenAI's chat completions.

Text, thinking, tokens, the reason of its end, tool calls.
"""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from itertools import chain
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.chat import Attachment, Chunk, Message, Request, Tool, ToolCall
from conductor_cli.core.errors import ModelError
from conductor_cli.core.estimate import conversation_tokens
from conductor_cli.core.media import attachment_tokens
from conductor_cli.core.redact import Secrets
from conductor_cli.core.usage import CHARS_PER_TOKEN, MAX_COUNTED, Usage
from conductor_cli.models.chat_apis import CHAT_APIS
from conductor_cli.models.chat_usage import usage_of
from conductor_cli.models.stream_decoder import ChatReplyDecoder
from conductor_cli.models.tool_schemas import api_name
from tests.models.kit import text, thinking, used
from tests.servers import delta, usage

ASKED = Request(messages=(Message(role="user", content="x" * 40),))
NAMES = [
    "choices",
    "delta",
    "message",
    "content",
    "usage",
    "finish_reason",
    "reasoning",
    "prompt_tokens",
    "text",
    "tool_calls",
    "function",
    "arguments",
    "index",
    "id",
    "name",
    "reasoning_details",
    "provider_data",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    ),
    max_leaves=12,
)


def played(*frames: dict[str, Any]) -> list[Chunk]:
    """All chunks of a reply."""
    reply = ChatReplyDecoder(ASKED, Secrets())
    return [*chain.from_iterable(map(reply.frame, frames)), *reply.end()]


def joined(chunks: list[Chunk]) -> tuple[str, str]:
    return text(chunks), thinking(chunks)


@pytest.mark.parametrize(
    "frames",
    [
        [delta(reasoning_content="Let me "), delta(reasoning_content="see."), delta("Yes.")],
        [delta(reasoning="Let me see."), delta("Yes.")],
        [delta(reasoning="Let me see.", reasoning_content="Let me see."), delta("Yes.")],
        [delta("<thi"), delta("nk>Let me see."), delta("</think>\n\nYes.")],
        [
            delta(
                content=[
                    {"type": "thinking", "thinking": [{"type": "text", "text": "Let me see."}]}
                ]
            ),
            delta("Yes."),
        ],
        [delta(content=[{"thinking": "Let me see."}, {"type": "text", "text": "Yes."}])],
        [
            delta(
                content=[
                    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Let me "}]},
                    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "see."}]},
                ]
            ),
            delta(content=[{"type": "text", "text": "Yes."}]),
        ],
        [delta(reasoning_content={"text": "Let me see.", "signature": "x"}), delta("Yes.")],
    ],
    ids=["reasoning_content", "reasoning", "both", "tags", "parts", "plain-parts", "sum", "object"],
)
def test_thinking_is_carried_apart_from_text(frames: list[dict[str, Any]]) -> None:
    assert joined(played(*frames, delta(finish="stop"), usage())) == ("Yes.", "Let me see.")


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", "stop"),
        ("length", "length"),
        ("tool_calls", "other"),
        ("SAFETY", "refusal"),
        ("whatever", "other"),
    ],
)
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


@pytest.mark.parametrize("message", ["", " \n", "<think>hm</think>"])
def test_a_reply_without_a_word_is_an_error(message: str) -> None:
    with pytest.raises(ModelError) as error:
        played(delta(message), delta(finish="stop"), usage())
    assert error.value.reason == "empty_answer"


@pytest.mark.parametrize("reason", ["length", "content_filter", "tool_calls"])
def test_a_reply_without_a_word_that_was_cut_is_none(reason: str) -> None:
    assert played(delta(finish=reason), usage())[-1].usage is not None


@pytest.mark.parametrize(
    ("counted", "expected"),
    [
        (
            {
                "prompt_tokens_details": {"cached_tokens": 4},
                "completion_tokens_details": {"reasoning_tokens": 5},
            },
            {"tokens_cached": 4, "tokens_reasoning": 5},
        ),
        ({"prompt_cache_hit_tokens": 6}, {"tokens_cached": 6}),
        # Moonshot, and twice Mistral
        ({"cached_tokens": 6}, {"tokens_cached": 6}),
        ({"num_cached_tokens": 6}, {"tokens_cached": 6}),
        ({"prompt_token_details": {"cached_tokens": 6}}, {"tokens_cached": 6}),
        (
            {"cached_tokens": 6, "prompt_tokens_details": {"cached_tokens": 6}},
            {"tokens_cached": 6},
        ),
        # Alibaba
        (
            {"prompt_tokens_details": {"cached_tokens": 0, "cache_creation_input_tokens": 4}},
            {"tokens_stored": 4},
        ),
        # SGLang counts it in what was written, Perplexity beside it
        ({"reasoning_tokens": 5}, {"tokens_reasoning": 5}),
        ({"reasoning_tokens": 900}, {"tokens_out": 907, "tokens_reasoning": 900}),
        ({"cache_creation_input_tokens": 3}, {"tokens_stored": 3}),
        (
            {"prompt_tokens_details": {"cached_tokens": 9, "cache_write_tokens": 9}},
            {"tokens_in": 29, "tokens_cached": 9, "tokens_stored": 9},
        ),
        ({"total_tokens": 30}, {"tokens_out": 19, "tokens_reasoning": 12}),
        ({"prompt_tokens_details": None, "completion_tokens_details": []}, {}),
        # Cached tokens that are more than the prompt were not counted in it.
        (
            {"prompt_tokens_details": {"cached_tokens": 999}},
            {"tokens_in": 1010, "tokens_cached": 999},
        ),
        ({"cache_creation_input_tokens": 500}, {"tokens_in": 511, "tokens_stored": 500}),
        ({"cache_read_input_tokens": 6, "total_tokens": 24}, {"tokens_in": 17, "tokens_cached": 6}),
        (
            {"cache_read_input_tokens": 6, "prompt_tokens_details": {"cached_tokens": 6}},
            {"tokens_cached": 6},
        ),
        (
            {"completion_tokens_details": {"reasoning_tokens": 100}, "total_tokens": 118},
            {"tokens_out": 107, "tokens_reasoning": 100},
        ),
        ({"total_tokens": "many", "completion_tokens_details": {"reasoning_tokens": -5}}, {}),
        (
            {"prompt_tokens": 1e30, "completion_tokens": 10**400},
            {"tokens_in": 10**12, "tokens_out": 10**12},
        ),
        (
            {"prompt_tokens": -5, "completion_tokens": float("nan"), "total_tokens": None},
            {"tokens_in": 0, "tokens_out": 0},
        ),
    ],
)
def test_tokens_are_counted_as_the_server_says(
    counted: dict[str, Any], expected: dict[str, Any]
) -> None:
    value = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18} | counted
    assert usage_of(value) == Usage(**({"tokens_in": 11, "tokens_out": 7, "calls": 1} | expected))


@pytest.mark.parametrize(
    ("counts", "written"), [((1, 9), 9), ((0,), 3)], ids=["the last one stands", "zero is none"]
)
def test_a_count_of_a_server_is_taken(counts: tuple[int, ...], written: int) -> None:
    """Some count again and again while they write; where none counts, the tokens are estimated."""
    chunks = played(delta("y" * 8, finish="stop"), *(usage(11, count) for count in counts))
    assert used(chunks) == Usage(tokens_in=11, tokens_out=written, calls=1)


@pytest.mark.parametrize("later", [(), (usage(11, 9),)], ids=["there alone", "and afterwards"])
def test_a_count_that_stands_in_the_choice_is_taken(later: tuple[dict[str, Any], ...]) -> None:
    """Moonshot has it in the last choice, also where no frame with a count of its own follows."""
    counted = {"prompt_tokens": 11, "completion_tokens": 9, "cached_tokens": 10}
    last = {"index": 0, "delta": {}, "finish_reason": "stop", "usage": counted}
    chunks = played(delta("y" * 8), {"choices": [last]}, *later)
    expected = Usage(tokens_in=11, tokens_out=9, tokens_cached=0 if later else 10, calls=1)
    assert used(chunks) == expected


def test_tokens_that_nobody_counted_are_estimated() -> None:
    reply = ChatReplyDecoder(ASKED, Secrets())
    reply.frame(delta("y" * 8, reasoning="z" * 5))
    last = list(reply.end())[-1]
    assert last.usage == Usage(tokens_in=12, tokens_out=5, tokens_reasoning=2, calls=1)
    assert reply.estimated


def test_what_nobody_counted_is_estimated_as_it_is_reserved() -> None:
    """In bytes, with what is attached, and with tools, their calls and the arguments of these."""
    picture = Attachment(
        name="a.png", media_type="image/png", sha256="0" * 64, size=9, width=900, height=900
    )
    search = Tool(name="search", description="語" * 70, parameters={"type": "object"})
    messages = (
        Message(role="user", content="語" * 70, attachments=(picture,)),
        Message(
            role="assistant",
            content="",
            tool_calls=(ToolCall(id="1", name="search", arguments="x" * 700),),
        ),
        Message(role="tool", content="語" * 70, tool_call_id="1"),
    )
    request = Request(messages=messages, tools=(search,))
    reply = ChatReplyDecoder(request, Secrets())
    call = {"index": 0, "id": "2", "function": {"name": "search", "arguments": '{"q": "語語"}'}}
    reply.frame(delta("語" * 70, finish="tool_calls", tool_calls=[call]))
    counted = used(list(reply.end()))
    assert counted.tokens_in == conversation_tokens(messages, (search,))
    assert counted.tokens_in > 2 * 60 + 200 + attachment_tokens(picture)
    assert counted.tokens_out == ceil((210 + len("search") + 15) / CHARS_PER_TOKEN)


@pytest.mark.parametrize(("kind", "cost"), [("stated", Decimal("0.5")), ("unknown", None)])
def test_a_cost_is_known_only_where_it_is(kind: Any, cost: Decimal | None) -> None:
    reply = ChatReplyDecoder(ASKED, Secrets(), kind)
    reply.frame(delta("Yes.", finish="stop"))
    reply.frame(usage(cost=0.5))
    assert used(list(reply.end())).cost == cost


@pytest.mark.parametrize(
    ("stated", "cost"),
    [
        ({"cost": 0.05, "is_byok": True, "cost_details": {"upstream_inference_cost": 1}}, "1.05"),
        ({"cost": 0, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.5}}, "0.5"),
        ({"cost": 0.95, "cost_details": {"upstream_inference_cost": 19}}, "19.95"),
        ({"cost": 0.5, "is_byok": False, "cost_details": {"upstream_inference_cost": 0.5}}, "0.5"),
        ({"cost": 0.5, "is_byok": True, "cost_details": {"upstream_inference_cost": None}}, "0.5"),
        ({"cost": 1e6, "cost_details": {"upstream_inference_cost": 1e6}}, "1000000"),
    ],
)
def test_what_a_provider_charges_for_a_key_of_the_user_counts(
    stated: dict[str, Any], cost: str
) -> None:
    """OpenRouter's own cost is only its fee then, and 0 for many calls."""
    reply = ChatReplyDecoder(ASKED, Secrets(), "stated")
    reply.frame(delta("Yes.", finish="stop"))
    reply.frame(usage(**stated))
    assert used(list(reply.end())).cost == Decimal(cost)


STRANGE: list[Any] = [
    10**18,
    10**30,
    10**400,
    1e30,
    float("inf"),
    float("nan"),
    float("-inf"),
    -1,
    -(10**18),
    -1e30,
    True,
    None,
    "12",
    [12],
    {"a": 1},
]


@pytest.mark.parametrize("name", [name for name in CHAT_APIS if name != "gemini-chat"])
@pytest.mark.parametrize("value", STRANGE, ids=lambda value: f"{value!r:.12}")
def test_whatever_a_server_counts_is_bounded(name: str, value: object) -> None:
    names = {
        "chat-completions": (
            "prompt_tokens",
            "completion_tokens",
            "total_tokens",
            "prompt_cache_hit_tokens",
        ),
        "responses": ("input_tokens", "output_tokens"),
        "anthropic": (
            "input_tokens",
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
            "output_tokens",
        ),
        "gemini": (
            "promptTokenCount",
            "toolUsePromptTokenCount",
            "candidatesTokenCount",
            "thoughtsTokenCount",
            "cachedContentTokenCount",
            "totalTokenCount",
        ),
    }[name]
    for strange in (*[(name,) for name in names], names):
        counts = dict.fromkeys(names, 5) | dict.fromkeys(strange, value)
        frames: dict[str, dict[str, Any]] = {
            "chat-completions": {"usage": counts},
            "responses": {"object": "response", "usage": counts},
            "anthropic": {"type": "message_delta", "usage": counts},
            "gemini": {"usageMetadata": counts},
        }
        translate = CHAT_APIS[name].translator()
        frame = frames[name] if translate is None else translate(frames[name])
        usage = usage_of(frame["usage"])
        parts = (
            usage.tokens_in,
            usage.tokens_out,
            usage.tokens_cached,
            usage.tokens_stored,
            usage.tokens_reasoning,
        )
        assert 0 <= min(parts) <= max(parts) <= 4 * MAX_COUNTED


@given(
    frames=st.lists(
        st.dictionaries(st.sampled_from(["choices", "usage", "error"]), JSON, max_size=3),
        max_size=5,
    )
)
def test_no_json_makes_a_reply_fall_over(frames: list[dict[str, Any]]) -> None:
    try:
        chunks = played(*frames)
    except ModelError:
        return
    assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


KEY = "sk-test-1234567890"


def call(
    index: int | None = 0, given: str = "", name: str = "", arguments: Any = None
) -> dict[str, Any]:
    """One piece of a tool call as a server sends it."""
    function = {
        key: value
        for key, value in (("name", name), ("arguments", arguments))
        if value not in ("", None)
    }
    position = {
        key: value for key, value in (("index", index), ("id", given)) if value not in ("", None)
    }
    return position | {"type": "function", "function": function}


def read(
    *frames: list[dict[str, Any]],
    finish: str = "tool_calls",
    secrets: Secrets | None = None,
    tools: tuple[str, ...] = (),
) -> list[Chunk]:
    """The chunks of a reply whose frames have these pieces."""
    asked = replace(ASKED, tools=tuple(Tool(name=name) for name in tools))
    reply = ChatReplyDecoder(asked, secrets or Secrets())
    chunks = [*chain.from_iterable(reply.frame(delta(tool_calls=calls)) for calls in frames)]
    chunks += reply.frame(delta(finish=finish))
    return [*chunks, *reply.end()]


def calls_of(chunks: list[Chunk]) -> list[ToolCall]:
    """The calls that the chunks make together."""
    calls: dict[int, ToolCall] = {}
    for piece in (chunk.tool_call for chunk in chunks if chunk.tool_call):
        old = calls.get(piece.index)
        assert (old is None) == bool(piece.name and piece.id)
        before = old.arguments if old else ""
        named = old or ToolCall(id=piece.id, name=piece.name, arguments="")
        calls[piece.index] = ToolCall(
            id=named.id, name=named.name, arguments=before + piece.arguments
        )
    assert list(calls) == list(range(len(calls)))
    return list(calls.values())


TWO = [
    ToolCall(id="a1", name="f", arguments='{"x": 1}'),
    ToolCall(id="b2", name="g", arguments='{"y": 2}'),
]


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(
            [
                [call(0, "a1", "f")],
                [call(0, arguments='{"x"')],
                [call(0, arguments=": 1}")],
                [call(1, "b2", "g")],
                [call(1, arguments='{"y": 2}')],
            ],
            id="as OpenAI sends them",
        ),
        pytest.param(
            [
                [call(0, "a1", "f"), call(1, "b2", "g")],
                [call(1, arguments='{"y"')],
                [call(0, arguments='{"x": 1}')],
                [call(1, arguments=": 2}")],
            ],
            id="side by side",
        ),
        pytest.param(
            [[call(0, "a1", "f", '{"x": 1}')], [call(0, "b2", "g", '{"y": 2}')]],
            id="all numbered 0",
        ),
        pytest.param(
            [[call(None, "a1", "f", '{"x": 1}'), call(None, "b2", "g", '{"y": 2}')]],
            id="without numbers",
        ),
        pytest.param(
            [
                [call(None, "a1", "f")],
                [call(None, arguments='{"x": 1}')],
                [call(None, "b2", "g", '{"y": 2}')],
            ],
            id="pieces without numbers and ids",
        ),
        pytest.param(
            [
                [call(0, "a1", "f", '{"x"')],
                [call(0, "a1", "f", ": 1}")],
                [call(1, "b2", "g", '{"y": 2}')],
            ],
            id="id and name with every piece",
        ),
        pytest.param(
            [
                [call(0, "a1", "f")],
                [call(0, "zz", arguments='{"x"')],
                [call(0, "yy", arguments=": 1}")],
                [call(7, "b2", "g", '{"y": 2}')],
            ],
            id="another id with every piece, and numbers that jump",
        ),
        pytest.param([[call(0, "a1", "f", {"x": 1}), call(1, "b2", "g", {"y": 2})]], id="objects"),
        pytest.param(
            [
                [call(0, "a1", arguments='{"x"')],
                [call(0, name="f", arguments=": 1}")],
                [call(1, "b2", "g", '{"y": 2}')],
            ],
            id="a name that comes late",
        ),
        pytest.param(
            [
                [call(0, "a1", "f", '{"x": 1}')],
                [call(1, "a1", "f", "{}")],
                [call(2, "b2", "g", '{"y": 2}')],
            ],
            id="a call again under another number, without arguments",
        ),
        pytest.param(
            [
                [call(0, "a1", "f", "{}")],
                [call(1, "a1", "f", '{"x"'), call(1, "a1", arguments=": 1}")],
                [call(2, "b2", "g", '{"y": 2}'), call(3, "b2", "g", '{"y": 2}')],
            ],
            id="a call again under another number, with its arguments",
        ),
        pytest.param(
            [
                [call(0, "a1", "f", "{}")],
                [call(0, arguments='{"x": 1}')],
                [call(1, "b2", "g", ""), call(1, arguments="{}"), call(1, arguments='{"y": 2}')],
            ],
            id="an empty object before the arguments",
        ),
        pytest.param(
            [
                [call(0, "a1", "f", "")],
                [call(0, arguments='{"x": 1}')],
                [call(0, arguments='{"x": 1}')],
                [call(1, "b2", "g", '{"y": 2}'), call(1, arguments='{"y": 2}')],
            ],
            id="whole arguments twice",
        ),
        pytest.param(
            [
                [call(0, "a1", "f", '{"x"')],
                [call(0, arguments=": 1}")],
                [call(0, "a1", "f", '{"x": 1}')],
                [call(1, "b2", "g", '{"y": 2}')],
            ],
            id="whole arguments after their pieces",
        ),
        pytest.param(
            [
                [call(0, "a1", "f", '{"x"')],
                [call(0, arguments=": 1}")],
                [call(1, "b2", "g", '{"y": 2}')],
                [call(0, arguments='{"x"'), call(0, arguments=": 1}")],
                [call(1, arguments='{"y"'), call(1, arguments=": 2}")],
            ],
            id="all pieces twice",
        ),
        pytest.param(
            [
                [call(0, "a1", "f", "{")],
                [call(0, "a1", "f", '{"x"')],
                [call(0, "a1", "f", '{"x": 1')],
                [call(0, "a1", "f", '{"x": 1}')],
                [call(0, "a1", "f", '{"x": 1}')],
                [call(1, "b2", "g", '{"y": 2}')],
            ],
            id="all arguments so far with each piece",
        ),
    ],
)
def test_calls_are_read_however_a_server_sends_them(frames: list[list[dict[str, Any]]]) -> None:
    chunks = read(*frames)
    assert calls_of(chunks) == TWO
    assert chunks[-1].finish == "tool"


def test_calls_with_one_id_and_other_arguments_are_calls_of_their_own() -> None:
    frames = [[call(0, "a1", "f", '{"x": 1}')], [call(1, "a1", "f", '{"x": 2}')]]
    assert [made.arguments for made in calls_of(read(*frames))] == ['{"x": 1}', '{"x": 2}']


def wrapped(*uses: tuple[str, Any]) -> str:
    """The arguments of OpenAI's own tool that calls these tools."""
    inner = [{"recipient_name": f"functions.{name}", "parameters": made} for name, made in uses]
    return json.dumps({"tool_uses": inner})


@pytest.mark.parametrize("name", ["parallel", "multi_tool_use.parallel"])
def test_calls_inside_of_a_call_are_calls_of_the_tools_that_were_offered(name: str) -> None:
    arguments = wrapped(("f", {"x": 1}), (api_name("files.a b"), {"key": KEY}))
    frames = [[call(0, "a1", name, arguments[:30])], [call(0, arguments=arguments[30:])]]
    chunks = read(
        *frames, [call(1, "b2", "f", "{}")], tools=("f", "files.a b"), secrets=Secrets(KEY)
    )
    calls = calls_of(chunks)
    assert [(made.id, made.name) for made in calls] == [
        ("b2", "f"),
        ("a1_0", "f"),
        ("a1_1", "files.a b"),
    ]
    assert [json.loads(made.arguments).keys() for made in calls] == [set(), {"x"}, {"key"}]
    assert KEY not in calls[2].arguments
    assert chunks[-1].finish == "tool"


@pytest.mark.parametrize(
    ("arguments", "tools"),
    [
        (wrapped(("f", {"x": 1})), ("f", "parallel")),
        (wrapped(("f", {"x": 1})), ()),
        (wrapped(("f", {"x": 1}), ("h", {})), ("f",)),
        (wrapped(("f", [1])), ("f",)),
        (wrapped(), ("f",)),
        ('{"tool_uses": [7]}', ("f",)),
        ('{"x": 1', ("f",)),
    ],
    ids=["offered", "no tools", "another tool", "no object", "nothing", "no use", "no JSON"],
)
def test_a_call_that_holds_no_calls_of_tools_that_were_offered_stays_as_it_is(
    arguments: str, tools: tuple[str, ...]
) -> None:
    made = calls_of(read([call(0, "a1", "parallel", arguments)], tools=tools))
    assert made == [ToolCall(id="a1", name="parallel", arguments=arguments)]


def test_more_calls_inside_of_a_call_than_a_reply_may_have_are_a_broken_reply() -> None:
    arguments = wrapped(*[("f", {})] * 129)
    with pytest.raises(ModelError, match="128"):
        read([call(0, "a1", "parallel", arguments)], tools=("f",))


def test_arguments_that_hold_what_they_begin_with_are_no_repetition() -> None:
    frames = [
        [call(0, "a1", "f", '{"x":')],
        [call(0, arguments='{"x": 1}')],
        [call(0, arguments="}")],
    ]
    assert calls_of(read(*frames))[0].arguments == '{"x":{"x": 1}}'


@pytest.mark.parametrize("second", ['{"x": 2}', '{"x": 1', '{"x": 1}{'])
def test_arguments_that_are_neither_one_object_nor_one_again_are_carried(second: str) -> None:
    frames = [[call(0, "a1", "f", '{"x": 1}')], [call(0, arguments=second)]]
    assert calls_of(read(*frames))[0].arguments == f'{{"x": 1}}{second}'


def test_arguments_that_grow_with_each_piece_are_as_long_as_the_last() -> None:
    whole = json.dumps({"text": "x" * 4000})
    growing = [call(0, arguments=whole[:end]) for end in range(1, len(whole) + 1, 4)]
    chunks = read([call(0, "a1", "f")], *([piece] for piece in growing), [call(0, arguments=whole)])
    assert calls_of(chunks)[0].arguments == whole


def test_a_call_without_arguments_has_an_empty_object() -> None:
    assert [made.arguments for made in calls_of(read([call(0, "a1", "f", "{}")]))] == ["{}"]


def test_calls_without_ids_get_some() -> None:
    first, second = (
        calls_of(read([call(None, "", "f", "{}")], [call(None, "", "f", "{}")])) for _ in range(2)
    )
    assert first == second
    assert len({call.id for call in first}) == 2
    assert all(len(call.id) == 9 and call.id.isalnum() for call in first)


def test_an_id_that_two_calls_have_is_given_to_the_first() -> None:
    tool_calls = calls_of(read([call(0, "a1", "f", "{}"), call(1, "a1", "g", "{}")]))
    assert [call.name for call in tool_calls] == ["f", "g"]
    assert tool_calls[0].id == "a1" != tool_calls[1].id


@pytest.mark.parametrize("message", ["stop", "tool_calls", "length", "whatever"])
def test_the_end_of_a_reply_with_calls_is_tool(message: str) -> None:
    assert read([call(0, "a1", "f", "{}")], finish=message)[-1].finish == "tool"


@pytest.mark.parametrize("arguments", ['{"path": "/ho', None])
def test_a_reply_that_is_cut_off_inside_a_call_ends_as_cut_off(arguments: str | None) -> None:
    assert (
        read([call(0, "a1", "f", "{}")], [call(1, "b1", "g", arguments)], finish="length")[
            -1
        ].finish
        == "length"
    )


def test_arguments_that_are_no_json_are_carried() -> None:
    assert calls_of(read([call(0, "a1", "f", "{x: 1")]))[0].arguments == "{x: 1"


def test_secrets_are_redacted_from_calls() -> None:
    pieces = [
        call(0, f"a-{KEY}", f"f-{KEY}", '{"x": "sk-test-'),
        call(0, arguments="12345"),
        call(0, arguments='67890"}'),
    ]
    tool_calls = calls_of(read(*([piece] for piece in pieces), secrets=Secrets(KEY)))
    assert tool_calls == [ToolCall(id="a-[key]", name="f-[key]", arguments='{"x": "[key]"}')]


def test_what_is_no_tool_call_is_ignored() -> None:
    with pytest.raises(ModelError, match="without a word"):
        read([7, None, "f"], finish="stop")  # type: ignore[list-item]


def test_what_a_server_wants_back_is_kept() -> None:
    reply = ChatReplyDecoder(ASKED, Secrets())
    google = {"google": {"thought_signature": "s1"}}
    item = {"type": "reasoning.text", "index": 0}
    frames = [
        delta(reasoning_content="I ", reasoning_details=[{**item, "text": "I "}]),
        delta(
            reasoning_content="look.",
            reasoning_details=[{**item, "text": "look.", "signature": "s0"}],
        ),
        delta(tool_calls=[call(0, "a1", "f", "{}") | {"extra_content": google}]),
        delta(finish="tool_calls"),
    ]
    chunks = [*chain.from_iterable(map(reply.frame, frames)), *reply.end()]
    assert chunks[-1].provider_data == {
        "reasoning_content": "I look.",
        "reasoning_details": [{**item, "text": "I look.", "signature": "s0"}],
        "extra_content": {"a1": google},
    }


def test_the_data_of_a_translator_is_kept() -> None:
    reply = ChatReplyDecoder(ASKED, Secrets(KEY))
    reply.frame({"provider_data": {"blocks": [1], "other": 2}})
    reply.frame(delta("Yes.", "stop") | {"provider_data": {"blocks": [1, KEY]}})
    assert list(reply.end())[-1].provider_data == {"blocks": [1, "[key]"], "other": 2}

"""conductor as a provider of the real litellm, over a provider server on this machine."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.cli.stage import Stage, refuses, says
from tests.plugins.conftest import Stalling
from tests.server.test_tool_turns import TOOLS, asks, by_turns

# litellm has warnings of its own.
pytestmark = pytest.mark.filterwarnings("ignore")

ASKED = [{"role": "user", "content": "How many?"}]


@pytest.fixture
def litellm(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The library with the provider, as long as the test lasts."""
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    from conductor_cli.plugins.litellm import register

    monkeypatch.setattr(litellm, "custom_provider_map", [])
    register()
    return litellm


def test_an_answer_has_usage_run_and_cost(stage: Stage, litellm: Any) -> None:
    answer = litellm.completion("conductor/auto", messages=ASKED, temperature=0.5)
    assert answer.choices[0].message.content == "alpha answers"
    assert (answer.usage.prompt_tokens, answer.conductor["usage"]["total"]["input_tokens"]) == (11, 22)
    assert stage.asked("alpha")[0].json["temperature"] == 0.5


def test_a_stream_has_the_pieces_the_end_and_the_usage(stage: Stage, litellm: Any) -> None:
    stage.models["alpha"] = says("one ", "two")

    def read(chunks: list[Any]) -> tuple[str, list[str]]:
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        return text, [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1:]

    async def stream() -> list[Any]:
        return [chunk async for chunk in await litellm.acompletion("conductor/auto", messages=ASKED, stream=True)]

    expected = ("one two", ["stop"])
    assert read(list(litellm.completion("conductor/auto", messages=ASKED, stream=True))) == expected
    assert read(asyncio.run(stream())) == expected


@pytest.mark.parametrize("stream", [False, True])
def test_tools_are_asked_for_and_answered(stage: Stage, litellm: Any, stream: bool) -> None:
    stage.models["alpha"] = by_turns(asks("a.txt"), says("It is done."))
    tools = TOOLS["chat/completions"]
    answer = litellm.completion("conductor/auto", messages=ASKED, tools=tools, stream=stream)
    if stream:
        answer = litellm.stream_chunk_builder(list(answer))
    (call,) = answer.choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == ("edit", '{"file": "a.txt"}')
    result = {"role": "tool", "tool_call_id": call.id, "content": "edited"}
    turns = [*ASKED, answer.choices[0].message.model_dump(exclude_none=True), result]
    again = litellm.completion("conductor/auto", messages=turns, tools=tools)
    assert again.choices[0].message.content == "It is done."
    assert [len(stage.asked(name)) for name in ("planner", "alpha")] == [1, 2]


def test_a_failure_has_the_status_of_the_server(stage: Stage, litellm: Any) -> None:
    with pytest.raises(litellm.NotFoundError, match="there is no model 'nobody'"):
        litellm.completion("conductor/nobody", messages=ASKED)
    stage.models["alpha"] = stage.models["beta"] = refuses(401)
    with pytest.raises(litellm.BadRequestError, match="alpha"):
        litellm.completion("conductor/auto", messages=ASKED, num_retries=0)


def test_a_cancelled_call_cancels_its_workers(stage: Stage, litellm: Any) -> None:
    stage.models["alpha"] = alpha = Stalling()

    async def give_up() -> None:
        asking = asyncio.create_task(litellm.acompletion("conductor/auto", messages=ASKED))
        await asyncio.to_thread(alpha.begun.wait, 30)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(give_up())
    assert stage.asked("alpha")[0].closed.wait(5)

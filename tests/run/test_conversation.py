"""A client's conversation.

What the answering step is sent, the client's own tools, and going on with their results.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Chunk, Message, Tool, ToolCall, ToolCallDelta
from conductor_cli.core.continuation import continue_with_results
from conductor_cli.core.errors import UsageError
from conductor_cli.core.policy import Policy, PoolPolicy
from conductor_cli.core.pool import Worker
from conductor_cli.core.profile import WorkerProfile
from conductor_cli.core.question import Conversation, File, PastTurn, Question
from conductor_cli.core.tools import RunTools
from conductor_cli.core.usage import Usage
from conductor_cli.models.base import ScriptedModel
from conductor_cli.run import Orchestra
from tests.run.kit import play, pool_of, says, setting
from tests.run.test_tool_loop import Box

EDIT = Tool(name="edit", description="Edit a file.", parameters={"type": "object"})
TALK = (
    Message(role="user", content="Hello."),
    Message(role="assistant", content="Hello!"),
    Message(role="user", content="Rename the function."),
)
SIGNED = {"signature": "abc"}
ASKS: list[Any] = [
    "I edit it.",
    Chunk(tool_call=ToolCallDelta(index=0, id="e1", name="edit", arguments='{"file": "a.py"}')),
    Chunk(usage=Usage(tokens_in=9, tokens_out=4, calls=1), finish="tool", provider_data=SIGNED),
]
TWO = "A | | find the function\nB | 1 | rename it\n"


def client_question(**how: Any) -> Question:
    how = {"tools": (EDIT,), **how}
    talk = Conversation(messages=TALK, **how)
    return Question(
        text="Rename the function.",
        system="Be brief.",
        history=(PastTurn(question="Hello.", answer="Hello!"),),
        conversation=talk,
    )


def cast(bob: ScriptedModel, plan: str = TWO, **options: Any) -> Orchestra:
    return setting(plan, {"ann": says("it is in a.py"), "bob": bob}, **options)


def test_the_answering_step_continues_the_clients_own_conversation() -> None:
    bob = ScriptedModel([ASKS])
    orchestra = cast(bob)
    play(
        orchestra,
        client_question(
            tool_choice="required", parallel_tool_calls=False, max_tokens=77, stop=("END",)
        ),
    )
    ann: Any = orchestra.team.workers["ann"]
    (first,) = ann.requests
    (last,) = bob.requests
    assert last.messages[0] == Message(role="system", content="Be brief.")
    assert last.messages[1:3] == TALK[:2]
    assert last.messages[3].content.startswith("Rename the function.\n\nOther models have prepared")
    assert "it is in a.py" in last.messages[3].content
    assert (last.tools, last.tool_choice, last.parallel_tool_calls) == ((EDIT,), "required", False)
    assert (last.max_tokens, last.stop) == (77, ("END",))
    assert (first.tools, first.stop) == ((), ())
    assert "Do this now: find the function" in first.messages[-1].content


@pytest.mark.parametrize(
    ("options", "asked_for", "sent", "own_limit"),
    [
        ({}, 64_000, 64_000, None),
        ({}, 77, 77, None),
        ({}, None, 32_000, None),
        ({"max_tokens": 500}, 32_000, 500, 9),
        ({"max_tokens": 500}, 77, 77, None),
        ({"max_tokens": 500}, None, 500, None),
        ({"max_tokens": 50_000}, None, 50_000, None),
        ({"context": 20_000}, 32_000, 19_870, None),
        ({"context": 2000}, None, 4096, None),
        ({}, None, 128_000, 128_000),
        ({}, 64_000, 16_384, 16_384),
    ],
)
def test_the_clients_limit_counts_unless_the_model_or_the_user_sets_a_lower_one(
    options: dict[str, Any], asked_for: int | None, sent: int, own_limit: int | None
) -> None:
    """Where the client sends none it is the model's own, else 32,000."""
    bob = ScriptedModel([ASKS])
    orchestra = cast(bob, pool=pool_of("ann", "bob", options=options, max_output=own_limit))
    play(orchestra, client_question(max_tokens=asked_for))
    ann: Any = orchestra.team.workers["ann"]
    assert bob.requests[0].max_tokens == pytest.approx(sent, abs=30 if sent == 19_870 else 0)
    most_of_ann = min(own_limit or 32_000, options.get("context", 200_000) - 100)
    expected = options.get("max_tokens", max(4096, most_of_ann))
    assert ann.requests[0].max_tokens == pytest.approx(expected, abs=100)


def test_without_other_steps_the_worker_is_sent_nothing_but_the_conversation() -> None:
    bob = ScriptedModel([ASKS])
    play(cast(bob, "B | | answer\n"), client_question())
    assert bob.requests[0].messages == (Message(role="system", content="Be brief."), *TALK)


def test_a_worker_that_was_trained_on_prompts_of_its_own_gets_these() -> None:
    bob = ScriptedModel([["done"]])
    profile = WorkerProfile(
        render=lambda question, step, seen_steps: (
            f"{question.text}|{step.subtask}|{len(seen_steps)}"
        )
    )
    play(cast(bob, worker_profile=profile), client_question())
    assert [message.content for message in bob.requests[0].messages] == [
        "Rename the function.|rename it|1"
    ]


def test_calls_of_the_clients_tools_end_the_run() -> None:
    run, stream = play(cast(ScriptedModel([ASKS])), client_question())
    call = ToolCall(id="e1", name="edit", arguments='{"file": "a.py"}')
    end = stream[-1]
    assert isinstance(end, ev.RunFinished)
    assert (end.tool_calls, end.answer, end.partial, end.error) == (
        (call,),
        "I edit it.",
        False,
        None,
    )
    assert (run.trace.steps[-1].tool_calls, run.trace.steps[-1].provider_data) == ((call,), SIGNED)


def test_a_reply_of_calls_alone_is_no_empty_answer() -> None:
    run, _ = play(cast(ScriptedModel([ASKS[1:]])), client_question())
    assert (run.trace.state, run.trace.answer) == ("finished", "")
    assert [call.name for call in run.trace.tool_calls] == ["edit"]


def test_a_run_without_calls_cannot_go_on_with_results() -> None:
    run, _ = play(cast(says("done")), client_question())
    with pytest.raises(UsageError, match="asked for no tool calls"):
        continue_with_results(run.trace, ())


def test_only_the_tool_that_the_client_names_is_asked_for() -> None:
    bob = ScriptedModel([ASKS])
    play(cast(bob), client_question(tools=(Tool(name="read"), EDIT), only_tool="edit"))
    assert bob.requests[0].tool_choice == EDIT


def test_a_step_with_the_clients_tools_gets_no_others() -> None:
    bob = Worker(name="bob", kind="scripted", tools=("box",))
    pool = replace(pool_of("ann"), workers=(*pool_of("ann").workers, bob))
    for tools, tool_names in (((EDIT,), ("edit",)), ((), ("look",))):
        model = ScriptedModel([["done"]])
        play(cast(model, pool=pool, tools=RunTools(open=Box)), client_question(tools=tools))
        assert tuple(tool.name for tool in model.requests[0].tools) == tool_names


def test_a_worker_that_may_not_see_files_does_not_see_the_conversation() -> None:
    bob = ScriptedModel([["done"]])
    policy = PoolPolicy(policy=Policy(files_only=(("ann",),)))
    question = replace(client_question(), files=(File(name="a.txt", text="secret"),))
    play(cast(bob, "B | | answer\n", pool_policy=policy), question)
    text = "".join(message.content for message in bob.requests[0].messages)
    assert "Hello!" not in text
    assert bob.requests[0].tools == ()
    assert "Rename the function." in text

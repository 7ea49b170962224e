"""A worker's tools inside a step.

The loop of calls and results, its bounds, its approval, its policy, its cost.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import product
from typing import Any

import pytest

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Chunk, Request, Tool, ToolCallDelta
from conductor_cli.core.errors import ModelError
from conductor_cli.core.input_requests import InputReply, InputRequest
from conductor_cli.core.policy import Policy, PoolPolicy, Recipient
from conductor_cli.core.pool import Limits, Pool, Worker
from conductor_cli.core.question import File, Question
from conductor_cli.core.tools import (
    CALLS_PER_REPLY,
    CALLS_PER_STEP,
    FAULTS,
    MAX_ARGUMENT_BYTES,
    AskPerson,
    CallCollector,
    OfferedTool,
    RunTools,
    ToolResult,
)
from conductor_cli.core.usage import Price, Usage
from conductor_cli.models.base import Model, ScriptedModel
from conductor_cli.run import Orchestra, Run
from conductor_cli.run.orchestra import ToolVerdict
from tests.run.kit import (
    fold,
    later,
    notices,
    of,
    play,
    play_and_stop,
    pool_of,
    says,
    setting,
    with_self,
    with_team,
)

PLAN = "A | | look it up\n"
DONE = Chunk(usage=Usage(tokens_in=10, tokens_out=5, calls=1), finish="tool")


class Box:
    """A tool box whose calls take a second each and say what they were called with."""

    def __init__(
        self, *names: str, result: Callable[[str], ToolResult] | None = None, **flags: Any
    ) -> None:
        self.names = names or ("look",)
        self.flags = {"read_only": True, **flags}
        self.result = result or (lambda name: ToolResult(text=f"{name} found it"))
        self.calls: list[tuple[str, Mapping[str, Any]]] = []
        self.asked: list[tuple[str, ...]] = []
        self.open = 0
        self.most_open = 0
        self.closed = 0

    async def offered(self, servers: Sequence[str]) -> tuple[OfferedTool, ...]:
        self.asked.append(tuple(servers))
        return tuple(
            OfferedTool(tool=Tool(name=name), server=server, own_name=name, **self.flags)
            for server, name in product(servers, self.names)
        )

    async def call(
        self, tool: OfferedTool, arguments: Mapping[str, Any], ask: AskPerson | None = None
    ) -> ToolResult:
        self.calls.append((tool.own_name, arguments))
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            await asyncio.sleep(1)
        finally:
            self.open -= 1
        return self.result(tool.own_name)

    def take_notices(self) -> tuple[str, ...]:
        return ()

    async def close(self) -> None:
        self.closed += 1


def asks(*calls: tuple[str, Any], text: str = "") -> list[Any]:
    """A reply that asks for tools; arguments that are a text are sent as they are."""
    deltas = []
    for index, (name, arguments) in enumerate(calls):
        sent = arguments if isinstance(arguments, str) else json.dumps(arguments)
        deltas.append(
            Chunk(tool_call=ToolCallDelta(index=index, id=f"c{index}", name=name, arguments=sent))
        )
    return [*([text] if text else []), *deltas, DONE]


def with_tools(model: Model, box: Box, **options: Any) -> Orchestra:
    """A conductor over `ann`, who may call the tools of `web`."""
    pool = pool_of("ann", tools=("web",), price=options.pop("worker_price", None))
    return setting(PLAN, {"ann": model}, pool=pool, tools=RunTools(open=lambda: box), **options)


def test_a_worker_gets_the_results_of_its_calls_and_answers() -> None:
    box = Box("look", "count")
    model = ScriptedModel(
        [asks(("look", {"q": "a"}), ("count", {}), text="Let me see. "), ["It is 42."]]
    )
    run, events = play(with_tools(model, box))
    first, second = model.requests
    assert [tool.name for tool in first.tools] == ["look", "count"]
    assert box.most_open == 2
    assert run.trace.answer == "It is 42."
    call_message, *results = second.messages[len(first.messages) :]
    assert (
        call_message.role,
        call_message.content,
        [call.name for call in call_message.tool_calls],
    ) == (
        "assistant",
        "Let me see. ",
        ["look", "count"],
    )
    assert [(result.tool_call_id, result.content) for result in results] == [
        ("c0", "look found it"),
        ("c1", "count found it"),
    ]
    [record] = fold(events).steps
    assert [(use.server, use.call.name, use.text) for use in record.tools] == [
        ("web", "look", "look found it"),
        ("web", "count", "count found it"),
    ]
    assert box.closed == 1


@pytest.mark.parametrize(
    ("options", "count"), [({}, 128), ({"base_url": "http://127.0.0.1:1/v1"}, 130)]
)
def test_a_worker_is_offered_as_many_tools_as_its_provider_takes(
    options: dict[str, str], count: int
) -> None:
    """OpenAI refuses a request with more. What another server takes is not known."""
    model = ScriptedModel([asks(("web_0", {})), ["Done."]])
    box = Box(*(f"web_{number}" for number in range(130)))
    worker = Worker(name="ann", kind="openai", model="m", options=options, tools=("web",))
    pool = Pool(workers=(worker,))
    tools = RunTools(open=lambda: box)
    run, _ = play(setting(PLAN, {"ann": model}, pool=pool, tools=tools))
    assert [len(request.tools) for request in model.requests] == [count, count]
    notices = [notice.text for notice in run.trace.notices if "gets the first" in notice.text]
    if count == 130:
        assert notices == []
        return
    (notice,) = notices
    assert notice.startswith("ann gets the first 128 of 130 tools")
    assert notice.endswith("left out are of web; to choose: tools.web.only")


def test_the_planner_is_told_whose_tools_do_what() -> None:
    planner = ScriptedModel([[PLAN]])
    pool = Pool(workers=(*pool_of("ann", tools=("web",)).workers, *pool_of("bob").workers))
    tools = RunTools(open=Box, about={"web": "Looks up pages."})
    play(setting(planner, {"ann": says("yes"), "bob": says("no")}, pool=pool, tools=tools))
    assert "A can use tools: Looks up pages." in (
        prompt := planner.requests[0].messages[-1].content
    )
    assert "B can use tools" not in prompt


@pytest.mark.parametrize(
    ("count", "length"), [(CALLS_PER_REPLY, 1), (1, MAX_ARGUMENT_BYTES)], ids=["calls", "bytes"]
)
def test_a_reply_asks_for_no_more_than_any_reply_may(count: int, length: int) -> None:
    collector = CallCollector()
    for index in range(count):
        collector.add(ToolCallDelta(index=index, name="look", arguments="x" * length))
    assert len(collector.calls()) == count
    with pytest.raises(ModelError, match="more tool calls, or for larger ones"):
        collector.add(ToolCallDelta(index=count, name="look", arguments="x"))


def test_the_pieces_of_a_call_are_joined() -> None:
    box = Box()
    pieces = [
        ToolCallDelta(index=0, id="a", name="look"),
        ToolCallDelta(index=1, id="b", name="look", arguments="{}"),
        ToolCallDelta(index=0, arguments='{"q": '),
        ToolCallDelta(index=0, arguments='"x"}'),
    ]
    model = ScriptedModel([[*(Chunk(tool_call=piece) for piece in pieces), DONE], ["done"]])
    play(with_tools(model, box))
    assert box.calls == [("look", {"q": "x"}), ("look", {})]


def test_usage_of_all_turns_is_summed_and_reserved_turn_by_turn() -> None:
    price = Price(input=Decimal(1), output=Decimal(1))
    last: list[Any] = [
        "done",
        Chunk(usage=Usage(tokens_in=30, tokens_out=2, calls=1), finish="stop"),
    ]
    orchestra = with_tools(ScriptedModel([asks(("look", {})), last]), Box(), worker_price=price)
    run, events = play(orchestra)
    [finished] = of(events, ev.StepFinished)
    assert (finished.usage.tokens_in, finished.usage.tokens_out, finished.usage.calls) == (40, 7, 2)
    assert finished.usage.cost == Decimal("0.000047")
    assert run.state.resources.ledger.spent.calls == 2 + 1  # and planning


@pytest.mark.parametrize(
    ("call", "error_text"),
    [
        (("nothing", {}), "there is no tool 'nothing'; the tools are: look"),
        (("look", "{not json"), "the arguments are not JSON"),
        (("look", "[1]"), "the arguments are not a JSON object"),
    ],
)
def test_a_wrong_call_goes_back_as_an_error(call: tuple[str, Any], error_text: str) -> None:
    box = Box()
    model = ScriptedModel([asks(call), ["sorry"]])
    run, events = play(with_tools(model, box))
    [returned] = of(events, ev.ToolReturned)
    assert error_text in returned.text
    assert returned.error
    assert not box.calls
    assert model.requests[1].messages[-1].is_error
    assert run.trace.answer == "sorry"


def endless(call: Callable[[int], tuple[str, Any]], at_once: int = 1) -> ScriptedModel:
    """A model that asks for tools as long as it may, for so many in each reply."""
    count = iter(range(1000))

    def reply(request: Request) -> list[Any]:
        return (
            ["enough"]
            if request.tool_choice == "none"
            else asks(*(call(next(count)) for _ in range(at_once)))
        )

    return ScriptedModel(reply=reply)


def test_the_same_call_for_ever_is_stopped() -> None:
    box = Box()
    run, events = play(with_tools(endless(lambda _: ("look", {"q": 1})), box))
    assert len(box.calls) == 3
    assert len(of(events, ev.ToolReturned)) == 3 + FAULTS
    assert run.trace.answer == "enough"
    assert "ann has called tools often enough, and now has to answer" in notices(events)


def test_a_model_that_only_calls_unknown_tools_is_stopped() -> None:
    model = endless(lambda n: (f"tool{n}", {}))
    run, _ = play(with_tools(model, Box()))
    assert (run.trace.answer, len(model.requests)) == ("enough", 6)


def test_calls_of_a_step_and_of_a_run_are_bounded() -> None:
    for at_once, limits, most in ((1, Limits(tool_calls=4), 4), (30, Limits(), CALLS_PER_STEP)):
        box = Box()
        run, _ = play(
            with_tools(endless(lambda n: ("look", {"q": n}), at_once), box, limits=limits)
        )
        assert (len(box.calls), run.trace.answer) == (most, "enough")


def test_a_worker_that_never_answers_has_no_answer() -> None:
    run, events = play(with_tools(says(*asks(("look", {}))), Box(), limits=Limits(attempts=3)))
    assert run.trace.state == "failed"
    [failed] = of(events, ev.StepFailed)
    assert failed.error.message.endswith("it asked for tools again instead of answering")
    assert (failed.error.reason, failed.retry_in) == ("empty_answer", None)


def test_a_long_result_is_shortened_for_the_worker_and_in_the_trace() -> None:
    box = Box(result=lambda _: ToolResult(text="x" * 1_000_000))
    model = ScriptedModel([asks(("look", {})), ["done"]])
    _, events = play(with_tools(model, box))
    [returned] = of(events, ev.ToolReturned)
    assert len(returned.text) < 40_100
    assert model.requests[1].messages[-1].content == returned.text
    assert any("1,000,000 characters was shortened" in text for text in notices(events))


def test_a_failed_turn_is_retried_from_the_start_with_the_cost_of_both() -> None:
    broken = [ModelError("overloaded", "busy")]
    model = ScriptedModel([asks(("look", {})), broken, ["done"]])
    run, events = play(with_tools(model, Box()))
    [failed] = of(events, ev.StepFailed)
    assert failed.usage.calls == 2
    assert run.trace.answer == "done"


def test_stopping_while_a_tool_runs_ends_the_call_and_keeps_the_cost() -> None:
    box = Box()
    _, events = play_and_stop(with_tools(says(*asks(("look", {}))), box), 0.5, "cancelled")
    [stopped] = of(events, ev.StepStopped)
    assert stopped.usage.calls == 1
    assert (box.open, box.closed) == (0, 1)


def decided(orchestra: Orchestra, *verdicts: ToolVerdict) -> tuple[Run, list[ev.Event]]:
    """Run a question; each offer of a call is answered with the next verdict."""
    left = list(verdicts)

    def act(run: Run, event: ev.Event) -> None:
        if isinstance(event, ev.ToolOffered):
            later(100, run.decide_tool, left.pop(0))

    events = play(orchestra, act=act, asks_about_tools=True)
    assert not left
    return events


def test_a_tool_that_may_change_something_is_asked_about() -> None:
    box = Box("write", read_only=False)
    model = ScriptedModel(
        [asks(("write", {"n": 1})), asks(("write", {"n": 2})), asks(("write", {"n": 3})), ["done"]]
    )
    run, events = decided(with_tools(model, box, limits=Limits(seconds=20)), "once", "always")
    assert len(of(events, ev.ToolOffered)) == 2
    assert len(box.calls) == 3
    assert run.trace.answer == "done"


def test_a_call_that_the_user_refuses_is_not_made() -> None:
    box = Box("write", read_only=False)
    run, events = decided(
        with_tools(ScriptedModel([asks(("write", {})), ["no file then"]]), box), "no"
    )
    [returned] = of(events, ev.ToolReturned)
    assert (returned.error, box.calls, run.trace.answer) == (True, [], "no file then")
    assert "the user does not allow it" in returned.text


def test_nobody_to_ask_is_a_refusal_unless_it_was_allowed() -> None:
    script = [asks(("write", {})), ["done"]]
    box = Box("write", read_only=False)
    _, events = play(with_tools(ScriptedModel([*script]), box))
    assert not box.calls
    assert any("--allow-tools web.write" in text for text in notices(events))
    box = Box("write", read_only=False, allowed=True)
    play(with_tools(ScriptedModel([*script]), box))
    assert len(box.calls) == 1


def test_the_option_that_allows_a_tool_is_one_word_of_a_shell() -> None:
    """A server names its tools, and a user may paste what a notice says."""
    name = "write; reboot $(id)"
    box = Box(name, read_only=False)
    _, events = play(with_tools(ScriptedModel([asks((name, {})), ["done"]]), box))
    assert any(f"--allow-tools 'web.{name}'" in text for text in notices(events))


class AskingBox(Box):
    """A tool box whose server asks a person before it answers."""

    async def call(
        self, tool: OfferedTool, arguments: Mapping[str, Any], ask: AskPerson | None = None
    ) -> ToolResult:
        reply = InputReply(action="decline")
        if ask is not None:
            reply = await ask(InputRequest(server=tool.server, message="Who?"))
        return ToolResult(text=f"{reply.action} {dict(reply.values)}")


def test_a_server_asks_a_person_one_at_a_time_and_the_run_waits() -> None:
    script = [asks(("look", {"n": 1}), ("look", {"n": 2})), ["done"]]
    waiting: list[ev.InputAsked] = []

    def act(run: Run, event: ev.Event) -> None:
        if isinstance(event, ev.InputAsked):
            waiting.append(event)
            reply = InputReply(action="accept", values={"n": len(waiting)})
            later(100, run.give_input, reply)

    orchestra = with_tools(ScriptedModel([*script]), AskingBox(), limits=Limits(seconds=20))
    run, events = play(orchestra, act=act, asks_about_tools=True)
    questions = [(event.server, event.message, event.worker, event.step) for event in waiting]
    assert questions == [("web", "Who?", "ann", 1)] * 2
    assert waiting[1].at - waiting[0].at == 100
    texts = [event.text for event in of(events, ev.ToolReturned)]
    assert sorted(texts) == ["accept {'n': 1}", "accept {'n': 2}"]
    assert run.trace.answer == "done"


def test_where_nobody_can_be_asked_a_server_is_given_nobody_to_ask() -> None:
    _, events = play(with_tools(ScriptedModel([asks(("look", {})), ["done"]]), AskingBox()))
    assert [event.text for event in of(events, ev.ToolReturned)] == ["decline {}"]
    assert not of(events, ev.InputAsked)


SECRET = Question(text="?", files=(File(name="a.txt", text="secret"),))


def guarding(*files_only: str) -> PoolPolicy:
    """Files are for these alone; workers are on this machine, and the tools are not."""
    parties = {
        name: Recipient(name=name, provider="this machine", local=True) for name in ("ann", "bob")
    }
    parties["tool:web"] = Recipient(name="tool:web", provider="web.example")
    return PoolPolicy(policy=Policy(files_only=(files_only,)), recipients=parties)


def test_a_step_with_files_that_must_stay_local_gets_no_remote_tools() -> None:
    guard = guarding("provider:local")
    model = says("done")
    orchestra = with_tools(model, Box(), pool_policy=guard)
    _, events = play(orchestra, SECRET)
    assert not model.requests[-1].tools
    assert any(
        "ann does not get the tools of web: policy.files_only" in text for text in notices(events)
    )
    play(orchestra, Question(text="?"))
    assert model.requests[-1].tools
    allowed = replace(guard, policy=Policy(files_only=(("provider:local", "tool:web"),)))
    play(with_team(orchestra, pool_policy=allowed), SECRET)
    assert model.requests[-1].tools


def test_text_from_a_local_file_does_not_reach_remote_tools_either() -> None:
    ann, bob = pool_of("ann", "bob").workers
    models = {"ann": says("from the file"), "bob": says("done")}
    orchestra = setting(
        "A | | read\nB | 1 | look it up\n",
        models,
        pool=Pool(workers=(ann, replace(bob, tools=("web",)))),
        tools=RunTools(open=Box),
        pool_policy=guarding("ann", "bob"),
    )
    play(orchestra, SECRET)
    assert not models["bob"].requests[-1].tools


def test_a_nested_run_shares_the_tools_of_the_run_around_it() -> None:
    box = Box()
    model = ScriptedModel(
        reply=lambda request: asks(("look", {})) if len(request.messages) < 2 else ["done"]
    )
    pool = with_self("ann", tools=("web",))
    planner = ScriptedModel([["B | | think again\n"], ["A | | look\n"]])
    orchestra = setting(planner, {"ann": model}, pool=pool, tools=RunTools(open=lambda: box))
    run, _ = play(orchestra)
    assert (run.trace.answer, len(box.calls), box.closed) == ("done", 1, 1)


def test_the_time_for_a_decision_in_a_nested_run_counts_against_no_limit() -> None:
    box = Box("write", read_only=False)
    model = ScriptedModel(
        reply=lambda request: asks(("write", {})) if len(request.messages) < 2 else ["done"]
    )
    planner = ScriptedModel([["B | | think again\n"], ["A | | write\n"]])
    orchestra = setting(
        planner,
        {"ann": model},
        pool=with_self("ann", tools=("web",)),
        tools=RunTools(open=lambda: box),
        limits=Limits(seconds=20),
    )

    def act(run: Run, event: ev.Event) -> None:
        if isinstance(event, ev.NestedEvent) and isinstance(event.event, ev.ToolOffered):
            later(100, run.decide_tool, "once")

    run, _ = play(orchestra, act=act, asks_about_tools=True)
    assert (run.trace.answer, run.trace.error) == ("done", None)


def test_the_user_is_told_before_a_change_may_be_repeated() -> None:
    box = Box("write", read_only=False, allowed=True)
    broken = [ModelError("overloaded", "busy")]
    orchestra = with_tools(ScriptedModel([asks(("write", {})), broken, ["done"]]), box)
    _, events = play(orchestra)
    message = "step 1 starts again and may repeat calls that can change something: write of web"
    assert message in notices(events)
    orchestra = with_tools(says(*asks(("write", {}))), box)
    stopped, _ = play_and_stop(orchestra, 0.5, "cancelled")
    _, events = play(with_tools(says("done"), box), resume=stopped.trace)
    assert message in notices(events)

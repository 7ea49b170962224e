from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.errors import Failure, ModelError
from conductor_cli.core.pool import Pool, Timeouts, Worker
from conductor_cli.core.question import File, Question
from conductor_cli.core.usage import Usage
from conductor_cli.models.base import ScriptedModel
from tests.run.kit import Counting, notices, of, play, pool_of, says, setting


def test_a_worker_sees_what_its_access_list_opens_and_nothing_else() -> None:
    workers = {"ann": says("first find"), "bob": says("second find"), "cyd": says("end")}
    play(setting("A | - | one\nB | - | two\nC | 2 | three", workers))
    prompt = workers["cyd"].requests[0].messages[-1].content
    assert "second find" in prompt
    assert 'subtask="two"' in prompt
    assert "first find" not in prompt


def test_a_workers_options_go_with_its_calls() -> None:
    ann, bob = says("yes"), says("yes")
    options = {"max_tokens": 99, "temperature": 0.5, "seed": 3}
    pool = Pool(workers=(*pool_of("ann", options=options).workers, *pool_of("bob").workers))
    play(setting("A | - | one\nB | 1 | two", {"ann": ann, "bob": bob}, pool=pool, seed=8, timeouts=Timeouts(total=60)))
    (own,), (plain,) = ann.requests, bob.requests
    assert (own.max_tokens, own.temperature, own.seed, own.deadline) == (99, 0.5, 3, 60)
    assert (plain.max_tokens, plain.temperature, plain.seed) == (4096, None, 8)


def test_what_does_not_fit_is_shortened_with_a_notice() -> None:
    pool = pool_of("ann", options={"context": 2000})
    ann = ScriptedModel([[ModelError("rate", "wait", retry_after=1.0)], ["yes"]])
    question = Question(text="sum?", files=(File(name="long.txt", text="word " * 5000),))
    _, events = play(setting("A | - | one", {"ann": ann}, pool=pool), question)
    conductor, worker = notices(events)
    assert conductor.startswith("the planner reads 6000 of 25055 characters of the question")
    assert "the prompt for ann was shortened" in worker
    assert len(ann.requests[1].messages[-1].content) < 4000


def test_an_answer_cut_by_its_token_limit_is_partial() -> None:
    ann = ScriptedModel([["a long ans", Chunk(usage=Usage(tokens_out=4, calls=1), finish="length")]])
    run, events = play(setting("A | - | one", {"ann": ann}))
    assert of(events, ev.StepFinished)[0].finish == "length"
    assert (run.trace.answer, run.trace.partial, run.trace.exit_code) == ("a long ans", True, 7)
    said = "ann reached its token limit before the end of the answer"
    assert run.trace.error == Failure(kind="partial", message=said, reason="answer_truncated")


def test_an_empty_answer_is_a_failure_that_keeps_its_price() -> None:
    spent = Chunk(usage=Usage(tokens_in=50, tokens_out=4000, tokens_reasoning=4000, calls=1), finish="stop")
    ann = ScriptedModel([[Chunk(thinking="hm"), " \n", spent], ["yes"]])
    run, events = play(setting("A | - | one", {"ann": ann}))
    (failed,) = of(events, ev.StepFailed)
    assert (failed.error.message, failed.usage.tokens_out) == ("ann: the answer is empty", 4000)
    assert run.trace.answer == "yes"


def test_a_call_that_failed_before_its_first_word_cost_nothing() -> None:
    begun: list[Any] = [Chunk(thinking="x" * 35), "y" * 35, ModelError("broken", "gone")]
    ann = ScriptedModel([[ModelError("connect", "down")], begun, ["yes"]])
    _, events = play(setting("A | - | one", {"ann": ann}))
    first, second = (event.usage for event in of(events, ev.StepFailed))
    assert (first.tokens, first.calls) == (0, 1)
    assert (second.tokens_in > 0, second.tokens_out) == (True, 20)


def test_a_stopped_step_keeps_the_usage_its_model_reported() -> None:
    spent = Usage(tokens_in=5, tokens_out=7, calls=1)

    class Lingering(Counting):
        async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
            yield Chunk(text="all", usage=spent, finish="stop")
            async for chunk in super().stream(request):
                yield chunk

    _, events = play(setting("A | - | one\nB | - | two", {"ann": Lingering(seconds=99), "bob": says("yes")}))
    assert of(events, ev.StepStopped)[0].usage.tokens == spent.tokens


def test_a_removed_worker_is_replaced() -> None:
    earlier, _ = play(setting("A | - | one", {"bob": ScriptedModel([[ModelError("refused", "no")]])}))
    run, _ = play(setting(None, {"ann": says("yes")}), resume=earlier.trace)
    (told,) = run.trace.recovered
    assert told.text.startswith("ann answered instead of bob; bob was not asked: no worker is named bob; hint: ")
    assert run.trace.answer == "yes"


def test_workers_on_one_model_take_turns_with_the_plan() -> None:
    plan: list[Any] = ["A | - | one\nB | - | ", 300.0, "two"]
    one = ScriptedModel(reply=lambda request: plan if request.grammar else [150.0, "x"])
    pool = Pool(workers=tuple(Worker(name=name, kind="llama", parallel=1) for name in ("ann", "bob")))
    more: Any = {"pool": pool, "constrained": True, "timeouts": Timeouts(idle=400.0)}
    run, events = play(setting(one, {"ann": one, "bob": one}, **more))
    assert [event.at for event in of(events, ev.StepStarted)] == [300.0, 450.0]
    assert (of(events, ev.StepFailed), run.trace.answer) == ([], "x")

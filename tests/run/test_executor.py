"""How a step is run.

What its worker is sent, what a reply is taken for, and what is tried again.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.errors import RETRYABLE, Failure, ModelError, ModelErrorReason
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.pool import Limits, Pool, Timeouts, Worker
from conductor_cli.core.profile import WorkerProfile
from conductor_cli.core.question import File, Question
from conductor_cli.core.usage import Usage
from conductor_cli.models.base import ScriptedModel
from conductor_cli.run.attempt import read_chunks
from tests.run.kit import (
    BLIND,
    Counting,
    error_of,
    notices,
    now,
    of,
    play,
    play_and_stop,
    pool_of,
    says,
    setting,
    virtually,
)


def test_a_worker_sees_what_its_access_list_opens_and_nothing_else() -> None:
    workers = {"ann": says("first find"), "bob": says("second find"), "cyd": says("end")}
    play(setting("A | - | one\nB | 1 | two\nC | 2 | three", workers))
    prompt = workers["cyd"].requests[0].messages[-1].content
    assert "second find" in prompt
    assert 'subtask="two"' in prompt
    assert "first find" not in prompt


def test_a_workers_options_go_with_its_calls() -> None:
    ann = says("yes")
    bob = says("yes")
    options = {"max_tokens": 99, "temperature": 0.5, "seed": 3}
    pool = Pool(workers=(*pool_of("ann", options=options).workers, *pool_of("bob").workers))
    play(
        setting(
            "A | - | one\nB | 1 | two",
            {"ann": ann, "bob": bob},
            pool=pool,
            seed=8,
            timeouts=Timeouts(total=60),
        )
    )
    (configured,) = ann.requests
    (plain,) = bob.requests
    assert (
        configured.max_tokens,
        configured.temperature,
        configured.seed,
        configured.deadline,
    ) == (99, 0.5, 3, 60)
    assert (plain.max_tokens, plain.temperature, plain.seed) == (32_000, None, 8)


def test_what_does_not_fit_is_shortened_with_a_notice_where_the_user_says_so() -> None:
    pool = pool_of("ann", options={"context": 2000})
    ann = ScriptedModel([[ModelError("rate", "wait", retry_after=1.0)], ["yes"]])
    question = Question(text="sum?", files=(File(name="long.txt", text="word " * 5000),))
    profile = WorkerProfile(fits_files=True)
    team = setting("A | - | one", {"ann": ann}, pool=pool, worker_profile=profile)
    _, events = play(team, question)
    orchestra, worker = notices(events)
    assert orchestra.startswith("the planner reads 6,000 of 25,055 characters of the question")
    assert worker.startswith("ann was sent only a part of long.txt ")
    assert len(ann.requests[1].messages[-1].content) < 4000


def test_what_does_not_fit_a_substitute_is_told_too() -> None:
    pool = Pool(
        workers=(
            Worker(name="ann", kind="scripted", options={"context": 200_000}),
            Worker(name="bob", kind="scripted", options={"context": 2000}),
        )
    )
    busy = ModelError("overloaded", "busy")
    bob = ScriptedModel([[busy], ["yes"]])
    question = Question(text="sum?", files=(File(name="long.txt", text="word " * 5000),))
    models = {"ann": ScriptedModel([[busy]]), "bob": bob}
    profile = WorkerProfile(fits_files=True)
    orchestra = setting("A | - | one", models, pool=pool, worker_profile=profile)
    run, events = play(orchestra, question)
    assert (run.trace.answer, len(bob.requests)) == ("yes", 2)
    shortened = [event.text for event in of(events, ev.Notice) if event.reason == "shortened"]
    assert len(shortened) == 1
    assert shortened[0].startswith("bob was sent only a part of long.txt ")


def test_an_answer_cut_by_its_token_limit_is_partial() -> None:
    ann = ScriptedModel(
        [["a long ans", Chunk(usage=Usage(tokens_out=4, calls=1), finish="length")]]
    )
    run, events = play(setting("A | - | one", {"ann": ann}))
    assert of(events, ev.StepFinished)[0].finish == "length"
    assert (run.trace.answer, run.trace.partial, run.trace.exit_code) == ("a long ans", True, 7)
    message = "ann ended after 4 tokens, before the end of its answer"
    error = error_of(run)
    assert (error.kind, error.message, error.reason) == ("partial", message, "answer_truncated")


@pytest.mark.parametrize(
    ("options", "max_output", "limits", "sent", "hint"),
    [
        ({}, None, Limits(), 32_000, "conductor workers add ann --set max_tokens=64000"),
        ({}, 100_000, Limits(), 100_000, "its model writes no more at once"),
        ({"max_tokens": 700}, None, Limits(), 700, "--set max_tokens=1400"),
        ({}, None, Limits(tokens=80_000), 9_900, "raise --max-tokens"),
    ],
    ids=["unknown", "of the model", "of the settings", "of the run"],
)
def test_a_reply_may_be_as_long_as_its_model_writes(
    options: dict[str, Any], max_output: int | None, limits: Limits, sent: int, hint: str
) -> None:
    """And where it is cut all the same, the run says at which figure, and what changes it."""

    def cut(request: Request) -> list[Any]:
        used = Usage(tokens_out=request.max_tokens or 0, calls=1)
        return ["It begins", Chunk(usage=used, finish="length")]

    ann = ScriptedModel(reply=cut)
    pool = pool_of("ann", options=options, max_output=max_output)
    plan = Plan(steps=(Step(worker="ann", subtask="one"),))
    run, _ = play(setting(None, {"ann": ann}, pool=pool, limits=limits), plan=plan)
    (request,) = ann.requests
    assert request.max_tokens == pytest.approx(sent, abs=100 if limits.tokens else 0)
    error = error_of(run)
    assert f"ann reached its limit of {request.max_tokens:,} tokens" in error.message
    assert hint in error.hint


CUT: list[Any] = ["the first half", Chunk(usage=Usage(tokens_out=9, calls=1), finish="length")]


def test_an_answer_that_is_made_of_a_step_without_an_end_says_so() -> None:
    """Directly or by way of another step; the exit code is that of a partial answer."""
    models = {"ann": ScriptedModel([CUT]), "bob": says("in between"), "cyd": says("the whole")}
    for plan in ("A | - | a\nC | 1 | z", "A | - | a\nB | 1 | b\nC | 2 | z"):
        run, events = play(setting(plan, models))
        trace = run.trace
        assert (trace.answer, trace.partial, trace.exit_code) == ("the whole", True, 7)
        error = error_of(run)
        assert error.reason == "step_truncated"
        assert error.message.startswith("the answer is made of step 1, which was cut off: ann")
        assert any("before the end of its answer" in text for text in notices(events))


def test_a_step_without_an_end_that_only_the_repaired_plan_reads_makes_it_partial() -> None:
    """No step goes unread: the last one is shown the first, too."""
    models = {"ann": ScriptedModel([CUT]), "bob": says("whole"), "cyd": says("the whole")}
    plan = Plan(
        steps=(
            Step(worker="ann", subtask="a"),
            Step(worker="bob", subtask="b"),
            Step(worker="cyd", subtask="z", access=(2,)),
        )
    )
    run, events = play(setting(None, models), plan=plan)
    assert (run.trace.partial, run.trace.exit_code) == (True, 7)
    assert any("before the end of its answer" in text for text in notices(events))


def test_an_answer_that_a_filter_cut_off_is_partial() -> None:
    ann = ScriptedModel([["a long ans", Chunk(usage=Usage(calls=1), finish="refusal")]])
    run, _ = play(setting("A | - | one", {"ann": ann}))
    assert (run.trace.answer, run.trace.partial, run.trace.exit_code) == ("a long ans", True, 7)
    assert run.trace.error is not None
    assert run.trace.error.reason == "answer_filtered"
    assert "a content filter cut its answer off" in run.trace.error.message


def test_a_filter_that_leaves_nothing_is_not_asked_again() -> None:
    ann = ScriptedModel([[Chunk(usage=Usage(calls=1), finish="refusal")]])
    bob = ScriptedModel([["yes"]])
    run, events = play(setting("A | - | one", {"ann": ann, "bob": bob}))
    assert len(ann.requests) == 1
    assert run.trace.answer == "yes"
    (failed,) = of(events, ev.StepFailed)
    assert failed.error.reason == "empty_answer"
    assert "a content filter left nothing" in failed.error.message


def test_an_empty_answer_is_a_failure_that_keeps_its_price() -> None:
    spent = Chunk(
        usage=Usage(tokens_in=50, tokens_out=4000, tokens_reasoning=4000, calls=1), finish="stop"
    )
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

    _, events = play(
        setting(
            "A | - | one\nB | - | two",
            {"ann": Lingering(seconds=99), "bob": says("yes")},
            worker_profile=BLIND,
        )
    )
    assert of(events, ev.StepStopped)[0].usage.tokens == spent.tokens


def test_a_removed_worker_is_replaced() -> None:
    earlier, _ = play(
        setting("A | - | one", {"bob": ScriptedModel([[ModelError("refused", "no")]])})
    )
    run, _ = play(setting(None, {"ann": says("yes")}), resume=earlier.trace)
    (recovery,) = run.trace.recovered
    assert recovery.text.startswith(
        "ann answered instead of bob; bob was not asked: no worker is named bob; hint: "
    )
    assert run.trace.answer == "yes"


def test_workers_on_one_model_take_turns_with_the_plan() -> None:
    plan: list[Any] = ["A | - | one\nB | - | ", 300.0, "two"]
    shared_model = ScriptedModel(reply=lambda request: plan if request.grammar else [150.0, "x"])
    pool = Pool(
        workers=tuple(Worker(name=name, kind="llama", parallel=1) for name in ("ann", "bob"))
    )
    options: Any = {"pool": pool, "constrained": True, "timeouts": Timeouts(idle=400.0)}
    run, events = play(setting(shared_model, {"ann": shared_model, "bob": shared_model}, **options))
    assert [event.at for event in of(events, ev.StepStarted)] == [300.0, 450.0]
    assert (of(events, ev.StepFailed), run.trace.answer) == ([], "x")


def failing(*errors: ModelError, then: str = "") -> ScriptedModel:
    return ScriptedModel([*([error] for error in errors), *([[then]] if then else [])])


def test_waits_double_and_are_jittered_by_the_runs_own_generator() -> None:
    draw = random.Random(5)
    wanted = [round(0.5 * 2**turn * draw.uniform(0.5, 1.5), 3) for turn in range(3)]
    ann = failing(*[ModelError("rate", "slow down")] * 3, then="yes")
    _, events = play(
        setting("A | - | one", {"ann": ann}, limits=Limits(attempts=4), random=random.Random(5))
    )
    assert [event.retry_in for event in of(events, ev.StepFailed)] == wanted
    assert all(0.25 <= wait / 2**turn <= 0.75 for turn, wait in enumerate(wanted))


@pytest.mark.parametrize(
    ("retry_after", "waited"),
    [(7.5, 7.5), (float("inf"), 30.0), (-5.0, 0.0), (float("nan"), pytest.approx(0.5, abs=0.25))],
)
def test_retry_after_is_obeyed_up_to_a_bound(retry_after: float, waited: float) -> None:
    ann = failing(ModelError("rate", "slow down", retry_after=retry_after), then="yes")
    _, events = play(setting("A | - | one", {"ann": ann}))
    assert of(events, ev.StepFailed)[0].retry_in == waited
    assert of(events, ev.StepStarted)[1].at == waited


def test_attempts_are_bounded_and_then_another_worker_is_named() -> None:
    ann = failing(ModelError("overloaded", "busy"))
    run, events = play(setting("A | - | one", {"ann": ann, "bob": says("yes"), "cyd": says("x")}))
    failed = of(events, ev.StepFailed)
    assert [(event.attempt, event.retry_in is None, event.substitute) for event in failed] == [
        (1, False, None),
        (2, False, None),
        (3, True, "bob"),
    ]
    assert [(event.attempt, event.worker) for event in of(events, ev.StepStarted)][-1] == (4, "bob")
    assert run.trace.steps[0].worker == "bob"
    assert run.trace.steps[0].step.worker == "ann"


def test_a_worker_that_refused_its_key_is_not_asked_again() -> None:
    ann = failing(ModelError("auth", "no such thing"))
    run, events = play(setting("A | - | one\nA | 1 | two", {"ann": ann, "bob": says("yes")}))
    assert (len(ann.requests), of(events, ev.StepFailed)[0].substitute) == (1, "bob")
    assert [notice.text for notice in run.trace.recovered] == [
        "bob answered instead of ann; ann failed: no such thing",
        "bob answered instead of ann; ann was not asked: no such thing",
    ]
    assert [record.worker for record in run.trace.steps] == ["bob", "bob"]


def test_text_that_went_out_is_never_taken_back() -> None:
    ann = ScriptedModel([["The ans", ModelError("broken", "gone")], ["other"]])
    run, events = play(
        setting("A | - | one", {"ann": ann, "bob": says("other")}), streams_answer=True
    )
    (failed,) = of(events, ev.StepFailed)
    assert (failed.retry_in, failed.substitute) == (None, None)
    assert (run.trace.answer, run.trace.partial, run.trace.exit_code) == ("The ans", True, 7)
    assert run.trace.error == Failure(kind="worker", message="ann: gone", reason="broken")


def test_steps_before_the_answer_may_be_tried_again_though_the_answer_streams() -> None:
    ann = ScriptedModel([["half", ModelError("broken", "gone")], ["whole"]])
    bob = ScriptedModel([[" \n", ModelError("broken", "gone")], ["yes"]])
    run, _ = play(
        setting("A | - | one\nB | 1 | two", {"ann": ann, "bob": bob}), streams_answer=True
    )
    assert (run.trace.answer, run.trace.exit_code) == ("yes", 0)


def test_patience_bounds_the_first_token_the_gaps_and_the_whole() -> None:
    timeouts = Timeouts(first_token=10, idle=5, total=30)
    scripts: list[Any] = [
        [11.0, "late"],
        ["a", 6.0, "b"],
        ["a", *[4.0, "b"] * 20],
        [9.0, "a", 4.0, "yes"],
    ]
    orchestra = setting(
        "A | - | one", {"ann": ScriptedModel(scripts)}, timeouts=timeouts, limits=Limits(attempts=4)
    )
    run, events = play(orchestra)
    assert [event.error.message for event in of(events, ev.StepFailed)] == [
        "ann: no first token within 10 s",
        "ann: no next token within 5 s",
        "ann: the answer did not end within 30 s",
    ]
    starts = [event.at for event in of(events, ev.StepStarted)]
    ends = [event.at for event in of(events, ev.StepFailed)]
    assert [round(end - start, 3) for start, end in zip(starts, ends, strict=False)] == [10, 5, 30]
    assert run.trace.answer == "ayes"


def test_a_step_that_waits_to_try_again_is_stopped_at_once() -> None:
    ann = failing(ModelError("rate", "slow down", retry_after=30.0))
    run, events = play_and_stop(setting("A | - | one", {"ann": ann}), 5.0, "cancelled", "running")
    assert run.trace.at == 5.0
    assert of(events, ev.StepStopped)[0].reason == "cancelled"
    assert run.trace.steps[0].retry_at is None


def test_a_run_that_winds_down_tries_nothing_again() -> None:
    ann = ScriptedModel([[10.0, ModelError("rate", "slow down")], ["yes"]])
    run, events = play_and_stop(
        setting("A | - | one", {"ann": ann, "bob": says("x")}), 5.0, "cancelled", "running"
    )
    (failed,) = of(events, ev.StepFailed)
    assert (failed.retry_in, failed.substitute, failed.at) == (None, None, 10.0)
    assert run.trace.exit_code == 130


@given(
    st.lists(st.sampled_from([*sorted(RETRYABLE), "refused", "auth"]), max_size=6),
    st.integers(1, 3),
)
def test_any_row_of_failures_ends_in_an_answer_or_in_all_workers_tried(
    reasons: list[ModelErrorReason], attempts: int
) -> None:
    errors = [[ModelError(reason, reason)] for reason in reasons]
    workers = {"ann": ScriptedModel([*errors, ["yes"]]), "bob": ScriptedModel([*errors, ["yes"]])}
    run, events = play(setting("A | - | one", workers, limits=Limits(attempts=attempts)))
    started = [event.worker for event in of(events, ev.StepStarted)]
    assert all(started.count(name) <= attempts for name in workers)
    assert started == sorted(started)
    if run.trace.state == "failed":
        assert of(events, ev.StepFailed)[-1].substitute is None
        assert set(started) == {"ann", "bob"}
    else:
        assert run.trace.answer == "yes"


def test_a_failure_of_every_worker_keeps_the_kind_they_share() -> None:
    groups: list[tuple[tuple[ModelErrorReason, ...], int]] = [
        (("connect", "timeout"), 8),
        (("auth", "auth"), 4),
        (("auth", "connect"), 1),
    ]
    for (first, second), code in groups:
        workers = {
            "ann": failing(ModelError(first, "no")),
            "bob": failing(ModelError(second, "no")),
        }
        run, _ = play(setting("A | - | one", workers, limits=Limits(attempts=1)))
        assert run.trace.exit_code == code
    assert error_of(run).message == "every worker failed at step 1; first: ann: no"


def test_steps_that_wait_to_try_again_hold_no_place() -> None:
    ann = ScriptedModel([[ModelError("rate", "slow", retry_after=20.0)], ["yes"]])
    orchestra = setting(
        "A | - | one\nB | - | two\nB | 1 2 | end", {"ann": ann, "bob": Counting(seconds=3)}
    )
    _, events = play(orchestra)
    assert of(events, ev.StepFinished)[0].at == 3.0


PATIENCE = Timeouts(first_token=10, idle=5, total=12)


async def slow_to_close() -> AsyncGenerator[Chunk, None]:
    try:
        yield Chunk(text="a")
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(20)


async def deaf() -> AsyncGenerator[Chunk, None]:
    yield Chunk(text="a")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        yield Chunk(text="b")
    await asyncio.sleep(60)
    yield Chunk(text="c")


def heard(chunks: AsyncGenerator[Chunk, None], most: int = 9) -> tuple[list[str], float, list[Any]]:
    """The first `most` texts, or why there are no more; when that was.

    And what the loop had to complain of.
    """

    async def main() -> tuple[list[str], float, list[Any]]:
        texts: list[str] = []
        complaints: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: complaints.append(context)
        )

        def take(chunk: Chunk) -> bool:
            texts.append(chunk.text)
            return len(texts) == most

        try:
            await read_chunks(chunks, take, PATIENCE)
        except ModelError as error:
            texts.append(error.message)
        return texts, now(), complaints

    return virtually(main())


@pytest.mark.parametrize(
    ("most", "wanted", "end"), [(1, ["a"], 20), (9, ["a", "no next token within 5 s"], 25)]
)
def test_a_slow_close_is_not_a_timeout(most: int, wanted: list[str], end: float) -> None:
    assert heard(slow_to_close(), most) == (wanted, end, [])


def test_a_model_that_does_not_heed_the_alarm_is_left_at_its_next_word() -> None:
    assert heard(deaf()) == (["a", "no next token within 5 s"], 5.0, [])


def test_a_closing_tag_of_the_prompt_is_no_part_of_an_answer() -> None:
    def ends_with_a_tag(request: Request) -> list[Any]:
        tag = re.findall(r"</answer-\w+>", request.messages[-1].content)[0]
        return ["It is 42.\n", tag[:4], f"{tag[4:]}\n"]

    workers = {"ann": says("42"), "bob": ScriptedModel(reply=ends_with_a_tag)}
    run, events = play(setting("A | - | sum\nB | 1 | check", workers))
    assert run.trace.answer == "It is 42.\n"
    deltas = [event.text for event in of(events, ev.StepDelta) if event.step == 2]
    assert "".join(deltas) == "It is 42.\n"


def test_an_answer_that_is_the_question_again_is_tried_again() -> None:
    question = Question(text="Grace weighs 125 pounds. What do both weigh?")
    echo = f"{question.text.upper()}\n"
    workers = {"ann": ScriptedModel([[echo], ["358 pounds"]])}
    run, events = play(setting("A | - | sum", workers), question)
    (failed,) = of(events, ev.StepFailed)
    assert failed.error.message == "ann: the answer only repeats the question"
    assert run.trace.answer == "358 pounds"


def test_a_short_question_may_be_its_own_answer() -> None:
    run, events = play(setting("A | - | greet", {"ann": says("Hello!")}), Question(text="Hello!"))
    assert (run.trace.answer, of(events, ev.StepFailed)) == ("Hello!", [])

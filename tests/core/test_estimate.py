"""The estimate of a plan."""

from __future__ import annotations

from decimal import Decimal

from conductor_cli.core.chat import Message, Tool, ToolCall
from conductor_cli.core.estimate import (
    OVERHEAD_TOKENS,
    PLAN_TOKENS,
    SHORT_ANSWER,
    PlannerCost,
    billed_usage,
    conversation_tokens,
    estimate_plan,
    estimate_planning,
)
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.profile import WorkerProfile
from conductor_cli.core.question import Question
from conductor_cli.core.usage import FREE, Price, Usage

PRICE = Price(input=Decimal(1), output=Decimal(10))
POOL = Pool(
    workers=(
        Worker(name="ann", kind="openai", price=PRICE, options={"max_tokens": 1000}),
        Worker(name="bob", kind="openai"),
    )
)


def test_the_range_spans_short_and_longest_answers() -> None:
    estimate = estimate_plan(
        Question(text=""), Plan(steps=(Step(worker="ann", subtask=""),)), POOL, WorkerProfile()
    )
    assert estimate.tokens == (OVERHEAD_TOKENS + SHORT_ANSWER, OVERHEAD_TOKENS + 1000)
    low = Decimal(OVERHEAD_TOKENS + 10 * SHORT_ANSWER) / 1_000_000
    high = Decimal(OVERHEAD_TOKENS + 10_000) / 1_000_000
    assert (estimate.calls, estimate.cost, estimate.unpriced) == (1, (low, high), 0)


def test_a_worker_without_a_price_is_counted_not_guessed() -> None:
    plan = Plan(
        steps=(Step(worker="bob", subtask="x" * 70), Step(worker="self", subtask="y", access=(1,)))
    )
    estimate = estimate_plan(Question(text="q"), plan, POOL, WorkerProfile())
    assert (estimate.cost, estimate.unpriced) == ((Decimal(0), Decimal(0)), 2)
    assert estimate.tokens[1] > estimate.tokens[0] > 2 * (OVERHEAD_TOKENS + SHORT_ANSWER)


def test_a_long_prompt_has_its_price() -> None:
    longer = Price(input=Decimal(2), output=Decimal(20), above=1000)
    worker = Worker(
        name="dan",
        kind="openai",
        price=Price(input=Decimal(1), output=Decimal(10), longer=(longer,)),
    )
    plan = Plan(steps=(Step(worker="dan", subtask="x" * 7000),))
    estimate = estimate_plan(Question(text=""), plan, Pool(workers=(worker,)), WorkerProfile())
    assert estimate.cost[0] == Decimal((2000 + OVERHEAD_TOKENS) * 2 + SHORT_ANSWER * 20) / 1_000_000


def test_the_conductors_own_cost_is_a_range_too() -> None:
    estimate = estimate_planning(PlannerCost(read=1000, price=PRICE), times=2)
    assert estimate.tokens == (1000 + PLAN_TOKENS[0], 2 * (1000 + PLAN_TOKENS[1]))
    assert estimate.cost == (Decimal("0.0016"), Decimal("0.008"))
    assert (
        estimate.calls,
        estimate.unpriced,
        estimate_planning(PlannerCost(read=1, price=None)).unpriced,
    ) == (2, 0, 1)


def test_what_a_step_reads_is_as_long_as_those_it_sees_may_write() -> None:
    brief = Worker(name="eve", kind="openai", price=PRICE, options={"max_tokens": 50})
    plan = Plan(steps=(Step(worker="ann", subtask=""), Step(worker="eve", subtask="", access=(1,))))
    estimate = estimate_plan(Question(text=""), plan, Pool(workers=(*POOL, brief)), WorkerProfile())
    assert estimate.tokens == (
        2 * OVERHEAD_TOKENS + 2 * SHORT_ANSWER + 50,
        2 * OVERHEAD_TOKENS + 2 * 1000 + 50,
    )


def test_what_a_server_leaves_out_of_its_usage_is_estimated() -> None:
    """Where it costs something: a prompt that nobody counts is not free."""
    price = Price(input=Decimal(1), output=Decimal(2))
    messages = [Message(role="user", content="x" * 350)]  # 100 tokens
    reported = Usage(tokens_out=50, calls=1)
    assert billed_usage(reported, messages, "yes", price).cost == Decimal("0.0002")
    assert billed_usage(Usage(calls=1), messages, "y" * 350, price).cost == Decimal("0.0003")
    assert billed_usage(Usage(tokens_in=100, calls=1), messages, "", price).cost == Decimal(
        "0.0001"
    )
    assert billed_usage(Usage(calls=1), messages, "", price).cost == 0, (
        "it failed before its first word"
    )
    assert billed_usage(reported, messages, "yes", FREE).tokens_in == 0


def test_tools_and_their_calls_count_where_a_reply_broke_off() -> None:
    """As they do where the call is reserved."""
    price = Price(input=Decimal(1), output=Decimal(0))
    call = ToolCall(id="1", name="look", arguments="y" * 346)
    messages = [Message(role="assistant", content="x" * 350, tool_calls=(call,))]
    tool = Tool(name="look", description="z" * 350)
    assert billed_usage(None, messages, "be", price).tokens_in == 200
    used = billed_usage(None, messages, "be", price, [tool])
    assert used.tokens_in == conversation_tokens(messages, [tool]) > 300


def test_one_word_of_a_reply_that_broke_off_is_a_token() -> None:
    price = Price(input=Decimal(0), output=Decimal(1))
    assert billed_usage(None, (), "be", price).tokens_out == 1
    assert billed_usage(None, (), "", price).tokens_out == 0

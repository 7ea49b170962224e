"""How the rehearsal's conductor is spoken to.

Its table, its message, and the lines that it may write.
"""

from __future__ import annotations

from decimal import Decimal

import pytest

from conductor_cli.core.chat import Request
from conductor_cli.core.errors import PlanError
from conductor_cli.core.plan import Plan, PlanRules, Step
from conductor_cli.core.plan_formats import PLAN_FORMATS, PlanFormatContext
from conductor_cli.core.pool import Card, Pool, Worker
from conductor_cli.core.prompts import plan_format_context, planner_request
from conductor_cli.core.question import NESTED, Given, Question
from conductor_cli.core.usage import Price
from conductor_cli.rehearsal.players import MAX_QUESTION, PROFILE

CARDS = {
    "sums": {"adding": 0.97},
    "jack": {"geography": 0.9, "spelling": 0.3},
    "spells": {"spelling": 0.96, "checking": 0.7},
    "new": {},
}
POOL = Pool(
    workers=tuple(
        Worker(name=name, kind="llama", card=Card(strengths=card)) for name, card in CARDS.items()
    )
)
QUESTION = Question(text="Spell the capital of France backwards.")
WANTED = Plan(
    steps=(
        Step(worker="jack", subtask="capital of FRANCE"),
        Step(worker="spells", subtask="spell it backwards", access=(1,)),
    )
)
TEXT = "capital of FRANCE| -| geographyB\nspell it backwards| 1| spellingC"
TABLE = "| addingA9| geographyB9| spellingC9B3| checkingC7| D1"


def context(*up: str, constrained: bool = False, pool: Pool = POOL) -> PlanFormatContext:
    rules = PlanRules(workers=up or pool.names)
    return plan_format_context(PROFILE, pool, rules, "auto", constrained=constrained)


def plan_request(
    question: Question, given: PlanFormatContext, pool: Pool = POOL, **options: object
) -> Request:
    return planner_request(question, pool, PROFILE, given, **options)  # type: ignore[arg-type]


def test_the_prompt_is_a_table_and_the_question() -> None:
    (message,) = plan_request(QUESTION, context()).messages
    assert (message.role, message.content) == (
        "user",
        f"{TABLE}\nspell the capital of FRANCE backwards\n",
    )
    assert (
        plan_request(QUESTION, context("jack", "new"))
        .messages[0]
        .content.startswith("| geographyB9| spellingB3| D1\n")
    )


def test_of_equal_workers_the_cheaper_one_comes_first() -> None:
    # A grade is a digit from 1 to 9
    prices = {"dear": (0.91, 9), "cheap": (1.0, 1), "weak": (0.04, 0)}
    workers = [
        Worker(
            name=name,
            kind="llama",
            card=Card(strengths={"adding": strength}),
            price=Price(input=Decimal(price), output=Decimal(price)),
        )
        for name, (strength, price) in prices.items()
    ]
    pool = Pool(workers=tuple(workers))
    assert (
        plan_request(QUESTION, context(pool=pool), pool)
        .messages[0]
        .content.startswith("| addingB9A9C1\n")
    )


@pytest.mark.parametrize("constrained", [True, False])
def test_a_plan_has_a_line_for_each_step(constrained: bool) -> None:
    given = context(constrained=constrained)
    native = PLAN_FORMATS[PROFILE.plan_format]
    parser = native.parser(given)
    parsed = [*parser.feed(TEXT), *parser.end()]
    assert Plan(steps=tuple(item.step for item in parsed)) == WANTED  # type: ignore[union-attr]
    assert '"spellingB" | "spellingC"' in native.grammar(given).replace(
        '"spellingC" | "checkingC"', '"spellingC"'
    )
    assert '"| " label' in native.grammar(given)


def test_an_entry_that_is_on_no_card_is_an_error() -> None:
    for wrong in ("spellingA", "countingC", "spellingZ"):
        parser = PLAN_FORMATS["native"].parser(context())
        assert not list(parser.feed(f"capital of FRANCE| -| {wrong}"))
        with pytest.raises(PlanError):
            list(parser.end())


@pytest.mark.parametrize(
    ("answers", "line"),
    [
        (("PARIS", "SIRAP", "NO"), "NO C"),
        (("PARIS", "SIRAP", "YES"), "YES C"),
        (("PARIS", "SIRAP"), "YES C"),
    ],
)
def test_after_a_plan_the_prompt_says_what_came_of_it(answers: tuple[str, ...], line: str) -> None:
    """The verdict of the check, and whose answer was checked.

    Without a check there is no objection.

    After a NO that worker is on offer only where nobody else is.
    """
    workers = ("jack", "spells", "sums")
    given = tuple(
        Given(worker=worker, subtask="", answer=answer)
        for worker, answer in zip(workers, answers, strict=False)
    )
    question = Question(text=f"{QUESTION.text}{NESTED}Check it.", given=given)
    table = TABLE.replace("C9B3", "B3") if line == "NO C" else TABLE
    assert (
        plan_request(question, context()).messages[0].content
        == f"{table}\nspell the capital of FRANCE backwards\n{line}\n"
    )


def test_a_long_question_is_cut_to_the_limit() -> None:
    assert not plan_format_context(
        PROFILE, POOL, PlanRules(workers=POOL.names), "ultra", constrained=True
    ).reasoning
    long = Question(text="spell LION backwards and " * 400)
    assert len(plan_request(long, context()).messages[0].content) < MAX_QUESTION + len(TABLE) + 10


def test_mini_mode_offers_every_entry_with_its_blank() -> None:
    mini = plan_format_context(
        PROFILE, POOL, PlanRules(workers=POOL.names), "mini", constrained=True
    )
    request = planner_request(Question(text="capital of Italy"), POOL, PROFILE, mini)
    assert request.messages[0].content.endswith("capital of ITALY| -|")
    assert request.choices == tuple(f" {label}" for label in mini.labels)
    assert (
        request.grammar
        == f"root ::= {' | '.join(f'{chr(34)} {label}{chr(34)}' for label in mini.labels)}"
    )

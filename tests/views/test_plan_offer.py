"""A plan before it runs and its data flow, as lines that fit the screen."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal

import pytest

from conductor_cli.core.disclosures import Disclosure
from conductor_cli.core.plan import SELF, Plan, Step
from conductor_cli.core.pool import Card, Limits, Pool, Worker
from conductor_cli.core.profile import WorkerProfile
from conductor_cli.core.question import File, Question
from conductor_cli.core.usage import Price
from conductor_cli.views.plan_text import (
    PlanOffer,
    flow_json,
    flow_lines,
    plan_lines,
    stand_in_lines,
)
from conductor_cli.views.text_layout import Line, Screen, cells

PRICE = Price(input=Decimal(1), output=Decimal(10))
POOL = Pool(
    workers=(
        Worker(name="small", kind="llama", price=Price(input=Decimal(0), output=Decimal(0))),
        Worker(name="a-worker-with-quite-a-long-name", kind="openai", price=PRICE),
        Worker(name="dark", kind="openai-compatible"),
        Worker(name="spare", kind="openai", price=PRICE),
    )
)
PLAN = Plan(
    steps=(
        Step(worker="small", subtask="Find it out."),
        Step(
            worker="a-worker-with-quite-a-long-name",
            subtask="Compare what was found \x1b[31mwith " + "words " * 30,
        ),
        Step(worker="dark", subtask="Write the answer, 中文 too.", access=(1, 2)),
        Step(worker=SELF, subtask="Review it.", access=(1, 2, 3)),
    )
)
OFFER = PlanOffer(
    question_for=lambda _: Question(text="How many hills are there?"),
    plan=PLAN,
    pool=POOL,
    profile=WorkerProfile(),
    limits=Limits(cost=Decimal("0.25"), seconds=90),
    recipients={
        "small": "this machine",
        "a-worker-with-quite-a-long-name": "openai",
        "dark": "models.example.org",
    },
)
CALLS = [
    Disclosure(step=(0,), worker="planner", recipient="this machine", texts=("the question",)),
    Disclosure(
        step=(2,), worker="a-worker-with-quite-a-long-name", recipient="openai", attempt=2,
        texts=("the question", "file no\x1b[1mtes.txt", "the answer of step 1"),
    ),
    Disclosure(step=(3, 0), worker="planner", recipient="this machine", texts=(("the given answer "
                                                                               "of small"),)),
    Disclosure(step=(3, 1), worker="dark", recipient="models.example.org", texts=()),
]  # fmt: skip


def text_of(lines: list[Line]) -> str:
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("width", [20, 40, 80, 100])
def test_no_line_is_wider_than_the_screen(width: int, encoding: str) -> None:
    screen = Screen(width=width, encoding=encoding)
    for lines in (plan_lines(OFFER, screen), flow_lines(CALLS, screen)):
        assert all(cells(line) <= width for line in lines), text_of(lines)
        text = text_of(lines)
        assert "\x1b" not in text
        text.encode(encoding)


def test_a_plan_shows_reader_access_and_cost() -> None:
    lines = text_of(plan_lines(OFFER, Screen(width=80))).splitlines()
    assert lines[:4] == [
        "PLAN  4 steps",
        " 1  small",
        "    this machine, reads question and files only, $0.00",
        "    Find it out.",
    ]
    assert lines[5].startswith("    openai, reads question and files only, usually $")
    assert "    models.example.org, reads 1 and 2, no price known" in lines
    assert any(line.startswith("    plans again, reads 1, 2 and 3") for line in lines)


def test_a_plan_that_the_planner_did_not_simply_write_says_so() -> None:
    offer = replace(OFFER, remarks=("the planner failed; as a fallback, worker small answers",))
    lines = text_of(plan_lines(offer, Screen(width=40))).splitlines()
    assert lines[:3] == [
        "PLAN  4 steps",
        "the planner failed; as a fallback,",
        "worker small answers",
    ]


def test_the_totals_show_estimate_and_limits() -> None:
    text = text_of(plan_lines(OFFER, Screen(width=200)))
    assert "estimate: 4 calls, " in text
    assert "2 calls without a known price" in text
    assert "limits: at most $0.2500, 90 s" in text


def test_an_estimate_has_the_usual_amount_beside_the_most() -> None:
    """Replies are usually as long as before; where nothing is known, a length is assumed, and told."""
    steps = (
        Step(worker="paid", subtask="Find it."),
        Step(worker="paid", access=(1,), subtask="Go."),
    )
    worker = Worker(name="paid", kind="openai", price=Price(input=Decimal(1), output=Decimal(2)))
    offer = replace(OFFER, plan=Plan(steps=steps), pool=Pool(workers=(worker,)))
    assumed = text_of(plan_lines(offer, Screen(width=200)))
    assert "for paid a usual reply of 500 tokens is assumed" in assumed
    profile = replace(offer.profile, usual_replies=lambda: {"paid": 40})
    shown_text = text_of(plan_lines(replace(offer, profile=profile), Screen(width=200)))
    assert "assumed" not in shown_text
    pattern = (
        r"estimate: 2 calls, usually ([\d,]+) tokens, at most [\d,]+; usually \$[\d.]+, at most"
    )
    [assumed_tokens] = re.findall(pattern, assumed)
    [known_tokens] = re.findall(pattern, shown_text)
    # Two replies, of which the second worker reads the first one too
    assert int(assumed_tokens.replace(",", "")) - int(known_tokens) == 3 * (500 - 40)


def test_a_choice_between_workers_without_cards_is_told() -> None:
    """Not where their owner said what they are for, nor where a person chose or one is left."""
    told = "choice of workers: by their names alone"
    steps = (Step(worker="small", subtask="Find it."),)
    chosen = replace(OFFER, plan=Plan(steps=steps), by_planner=True)
    small, *others = POOL
    informed = Pool(workers=(replace(small, about="reads contracts"), *others))
    measured = Pool(workers=(replace(small, card=Card(strengths={"logic": 0.5})), *others))
    alone = Pool(workers=(small,))
    assert told in text_of(plan_lines(chosen, Screen(width=200)))
    for offer in (
        replace(chosen, by_planner=False),
        replace(chosen, pool=informed),
        replace(chosen, pool=measured),
        replace(chosen, pool=alone),
    ):
        assert told not in text_of(plan_lines(offer, Screen(width=200)))


def test_a_plan_says_what_one_call_of_the_best_worker_would_take() -> None:
    """That is the worker with the best card; a plan of one step is not compared."""
    small = Worker(name="small", kind="openai", price=Price(input=Decimal(1), output=Decimal(1)))
    best = replace(small, name="best", card=Card(strengths={"logic": 0.9}))
    steps = (
        Step(worker="small", subtask="Find it."),
        Step(worker="best", access=(1,), subtask="Go."),
    )
    offer = replace(OFFER, plan=Plan(steps=steps), pool=Pool(workers=(small, best)))
    text = text_of(plan_lines(offer, Screen(width=200)))
    assert re.search(
        r"^one call of best alone: usually [\d,]+ tokens, \$[\d.]+; the plan adds 1 call and \$",
        text,
        re.MULTILINE,
    )
    assert "quality: whether such plans answer better was not measured" in text
    measured = replace(offer, gain="+8 points of right answers against best, in 60 cases")
    shown = text_of(plan_lines(measured, Screen(width=200)))
    assert "quality: plans were measured at +8 points of right answers against best" in shown
    single = replace(offer, plan=Plan(steps=steps[:1]))
    alone = text_of(plan_lines(single, Screen(width=200)))
    assert ("alone" in alone, "quality" in alone) == (False, False)


def test_files_that_the_policy_keeps_from_a_worker_are_neither_read_nor_paid() -> None:
    whole = Question(text="How many?", files=(File(name="a.txt", text="long " * 4000),))
    offer = replace(
        OFFER,
        has_files=True,
        question_for=lambda name: whole if name == "small" else replace(whole, files=()),
    )
    lines = text_of(plan_lines(offer, Screen(width=200))).splitlines()
    assert "this machine, reads question and files only, $0.00" in lines[2]
    assert "openai, reads the question only, not the files, usually $0.00" in lines[5]
    shown = replace(offer, question_for=lambda _: whole)
    assert plan_lines(shown, Screen(width=200))[5] != plan_lines(offer, Screen(width=200))[5]


def test_finished_steps_cost_nothing() -> None:
    offer = PlanOffer(
        question_for=OFFER.question_for,
        plan=Plan(steps=PLAN.steps[:2]),
        pool=POOL,
        profile=OFFER.profile,
        limits=Limits(),
        recipients=OFFER.recipients,
        done=frozenset({2}),
    )
    text = text_of(plan_lines(offer, Screen(width=100)))
    assert "estimate: 1 call, " in text
    assert "$0.00" in text
    assert text.splitlines()[5].endswith(", done")
    assert "limits: none on money, tokens, calls or time" in text


def test_the_data_flow_is_grouped_by_recipient() -> None:
    text = text_of(flow_lines(CALLS, Screen(width=100)))
    assert text.split("\n\n")[0].splitlines() == [
        "this machine",
        "  plan: planner",
        "    the question",
        "  plan in 3: planner",
        "    the given answer of small",
    ]
    assert (
        "  step 2, attempt 2: a-worker-with-quite-a-long-name\n    the question, file notes.txt, "
        "the "
    ) in text
    assert "  step 3.1: dark\n    only its subtask" in text
    assert text_of(flow_lines([], Screen())) == "nothing was sent to anybody"
    assert "Possible readers: here and openai." in text_of(
        stand_in_lines(["here", "openai", "here"], Screen(width=200))
    )


def test_the_data_flow_as_json_has_the_same_content() -> None:
    here, there, dark = flow_json(CALLS)
    assert [entry["recipient"] for entry in (here, there, dark)] == [
        "this machine",
        "openai",
        "models.example.org",
    ]
    assert here["calls"][0] == {"call": "plan", "worker": None, "texts": ["the question"]}
    (call,) = there["calls"]
    assert (call["call"], call["texts"][2]) == ("step 2, attempt 2", "the answer of step 1")

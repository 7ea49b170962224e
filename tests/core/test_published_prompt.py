"""The prompt of the published Conductor, field by field as docs/train.md describes it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from conductor_cli.core.chat import Request
from conductor_cli.core.plan import Plan, PlanRules, Step
from conductor_cli.core.plan_formats import PLAN_FORMATS, PlanFormatContext
from conductor_cli.core.plan_formats.published import PREFILL, PREFILL_AGAIN
from conductor_cli.core.pool import Card, Pool, Worker
from conductor_cli.core.profile import PUBLISHED
from conductor_cli.core.prompts import conductor_request, plan_format_context
from conductor_cli.core.question import Given, Question
from tests.core.plan_formats.reading import plan_in

NAMES = ("ann", "bob", "cyd")
POOL = Pool(workers=tuple(Worker(name=name, kind="x", card=Card(strengths={"math": 0.9})) for name in NAMES))
QUESTION = Question(text="What is 6*7?")
DOCS = Path(__file__).resolve().parents[2] / "docs" / "train.md"


def request(
    question: Question = QUESTION, rules: PlanRules | None = None, notes: tuple[str, ...] = (), **more: Any
) -> Request:
    """What a conductor of the published recipe is sent."""
    rules = rules or PlanRules(workers=NAMES, given=bool(question.given))
    context = plan_format_context(PUBLISHED, POOL, rules, "auto", constrained=False)
    return conductor_request(question, POOL, PUBLISHED, context, rules=notes, **more)


def test_the_template_has_the_documented_parts_in_the_documented_order() -> None:
    """Each row of the table in docs/train.md is in the message of its role, after the row before it."""
    rows = re.findall(r"^\| (system|user|assistant) \| [^|]+ \| `(.+)` \|$", DOCS.read_text(), re.MULTILINE)
    assert [role for role, _ in rows] == ["system", *["user"] * 10, "assistant"]
    asked = request()
    sent = [*((message.role, message.content) for message in asked.messages), ("assistant", asked.prefill)]
    assert [role for role, _ in sent] == ["system", "user", "assistant"]
    texts, at = dict(sent), dict.fromkeys(("system", "user", "assistant"), 0)
    for role, mark in rows:
        found = texts[role].find(mark, at[role])
        assert found >= 0, f"{role}: {mark} does not follow what comes before it"
        at[role] = found + len(mark)


def test_the_question_and_the_models_come_last_under_their_marks() -> None:
    """Models are numbers: no name, no description, no figure is shown."""
    text = request().messages[1].content
    assert text.endswith(
        "\n\nUSER QUESTION:\nWhat is 6*7?\nEND OF USER QUESTION\n\n"
        "AVAILABLE LANGUAGE MODELS:\nModel id 0\nModel id 1\nModel id 2"
    )
    assert not any(word in text for word in (*NAMES, "0.9", "math 0"))


def test_a_model_that_is_away_is_not_listed_and_the_others_keep_their_numbers() -> None:
    """A checkpoint knows a model by its number alone."""
    rules = PlanRules(workers=("ann", "cyd"), steps=2)
    text = request(rules=rules).messages[1].content
    assert text.endswith("MODELS:\nModel id 0\nModel id 2")
    assert "in up to 2 routing steps" in text


def test_every_example_reasons_and_is_a_valid_plan_for_this_pool() -> None:
    """Four examples, each with its reasoning before the lists, and only with ids that are listed."""
    for size in (2, 3, 7):
        names = tuple(f"w{number}" for number in range(size))
        pool = Pool(workers=tuple(Worker(name=name, kind="x") for name in names))
        context = plan_format_context(PUBLISHED, pool, PlanRules(workers=names), "auto", constrained=False)
        text = conductor_request(QUESTION, pool, PUBLISHED, context).messages[1].content
        examples = re.findall(
            r"Question: .+\nAssistant Response: (.+)\n(model_id = .+\nsubtasks = .+\naccess_list = .+)", text
        )
        assert len(examples) == 4
        for reasoning, lists in examples:
            assert len(reasoning) > 40
            assert isinstance(plan_in("published", lists, context), Plan)


def test_a_reply_that_reasons_after_the_beginning_is_read() -> None:
    """A checkpoint continues the beginning, so its text starts in the middle of a thought."""
    context = plan_format_context(PUBLISHED, POOL, PlanRules(workers=NAMES), "auto", constrained=False)
    text = (
        " This is a sum: 6*7 = 42?\n\nOne model solves it.\n\nmodel_id = [0, 2]\n"
        'subtasks = ["Solve it.", "Check it."]\naccess_list = [[], ["all"]]'
    )
    assert plan_in("published", text, context) == Plan(
        reasoning="This is a sum: 6*7 = 42?\n\nOne model solves it.",
        steps=(Step(worker="ann", subtask="Solve it."), Step(worker="cyd", subtask="Check it.", access=(1,))),
    )


def test_an_existing_answer_follows_the_template_with_the_way_to_return_it() -> None:
    """As in a second round of the paper: the response, the limit again, three empty lists; another beginning."""
    again = request(replace(QUESTION, given=(Given(worker="ann", subtask="solve", answer="It is 41."),)))
    text = again.messages[1].content
    assert text.index("END OF USER QUESTION") < text.index("AVAILABLE LANGUAGE MODELS:") < text.index("It is 41.")
    assert text.endswith("model_id = []\nsubtasks = []\naccess_list = []")
    assert (again.prefill, request().prefill) == (PREFILL_AGAIN, PREFILL)


def test_a_repair_is_a_later_turn_without_a_beginning() -> None:
    """What stands is the conductor's own turn, and it is asked for the lists that are missing."""
    again = request(standing=(Step(worker="ann", subtask="sum"),), fault="no such worker")
    assert [message.role for message in again.messages] == ["system", "user", "assistant", "user"]
    assert "not a valid plan: no such worker" in again.messages[3].content
    assert again.prefill == ""


def test_the_rules_of_a_policy_follow_the_models() -> None:
    """They are not part of the template, but the plan would be refused without them."""
    assert (
        request(notes=("1 must not see attached files.",))
        .messages[1]
        .content.endswith("Model id 2\n\n1 must not see attached files.")
    )


def test_reasoning_under_a_grammar_may_hold_anything_but_a_list() -> None:
    """Colons and equals signs occur in reasoning; a bracket would look like a list."""
    context = PlanFormatContext(rules=PlanRules(workers=("ann",)), labels={"0": "ann"}, constrained=True)
    rule = next(line for line in PLAN_FORMATS["published"].grammar(context).splitlines() if line.startswith("thought"))
    allowed = re.compile("^" + rule.partition("::= ")[2].partition("{")[0] + "$")
    assert all(allowed.match(sign) for sign in "=:x]")
    assert not allowed.match("[")

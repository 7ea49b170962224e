"""How the rehearsal's conductor is spoken to: its labels, its message, and the lines that it may write."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from conductor_cli.core.chat import Request
from conductor_cli.core.errors import PlanError
from conductor_cli.core.plan import Plan, PlanRules, Step
from conductor_cli.core.plan_formats import PLAN_FORMATS, PlanFormatContext
from conductor_cli.core.pool import Card, Pool, Worker
from conductor_cli.core.prompts import conductor_request, plan_format_context
from conductor_cli.core.question import Question
from conductor_cli.rehearsal.conductor_model import (
    CONTEXT,
    LONGEST_QUESTION,
    PROFILE,
    conductor_path,
    rehearsal_conductor,
)

CARDS = {
    "sums": {"letters": 0.02, "numbers": 0.97, "facts": 0.0},
    "jack": {"letters": 0.6, "numbers": 0.3, "facts": 0.9},
    "spells": {"letters": 0.96, "numbers": 0.1, "facts": 0.0},
    "new": {},
}
POOL = Pool(workers=tuple(Worker(name=name, kind="llama", card=Card(strengths=card)) for name, card in CARDS.items()))
QUESTION = Question(text="Spell the capital of France backwards.")
WANTED = Plan(
    steps=(
        Step(worker="jack", subtask="capital of FRANCE"),
        Step(worker="spells", subtask="spell it backwards", access=(1,)),
    )
)
TEXT = "capital of FRANCE|-|a1\nspell it backwards|1|l2"


def context(*up: str, constrained: bool = False, single: bool = False) -> PlanFormatContext:
    rules = PlanRules(workers=up or POOL.names)
    return plan_format_context(PROFILE, POOL, rules, "mini" if single else "auto", constrained=constrained)


def asked(question: Question, given: PlanFormatContext, **more: object) -> Request:
    return conductor_request(question, POOL, PROFILE, given, **more)  # type: ignore[arg-type]


def test_a_label_is_a_short_card() -> None:
    """The skill that stands out, or `a` where none does, and the place in the pool."""
    assert context().labels == {"n0": "sums", "a1": "jack", "l2": "spells", "a3": "new"}


def test_the_prompt_contains_only_labels_and_question() -> None:
    """In the one form that the models of this world read; a worker that is away is not shown."""
    (message,) = asked(QUESTION, context()).messages
    assert (message.role, message.content) == ("user", "|n0|a1|l2|a3\nspell the capital of FRANCE backwards\n")
    assert asked(QUESTION, context("jack", "spells")).messages[0].content.startswith("|a1|l2\n")


@pytest.mark.parametrize("constrained", [True, False])
def test_a_plan_has_a_line_for_each_step(constrained: bool) -> None:
    """It is written so, and read back so with a grammar or without."""
    given = context(constrained=constrained)
    native = PLAN_FORMATS[PROFILE.plan_format]
    assert native.render(WANTED, given) == TEXT
    parser = native.parser(given)
    found = [*parser.feed(TEXT), *parser.end()]
    assert Plan(steps=tuple(item.step for item in found)) == WANTED  # type: ignore[union-attr]
    assert "label ::= " in native.grammar(given)
    assert '"|" label' in native.grammar(given)


def test_an_unknown_label_is_an_error() -> None:
    """Neither a number that belongs to another card nor a card that nobody has."""
    for wrong in ("l0", "f1", "l9"):
        parser = PLAN_FORMATS["native"].parser(context())
        assert not list(parser.feed(f"capital of FRANCE|-|{wrong}"))
        with pytest.raises(PlanError):
            list(parser.end())


def test_a_partial_plan_is_continued() -> None:
    """It was trained to write plans and not to hear of faults."""
    text = asked(QUESTION, replace(context(), first=2), standing=WANTED.steps[:1], fault="no").messages[0].content
    assert text.endswith("backwards\ncapital of FRANCE|-|a1\n")


def test_the_mini_prompt_starts_the_only_step() -> None:
    """What is left to choose is the label, which is what it has learnt to write there."""
    request = asked(QUESTION, context(single=True))
    assert request.messages[0].content.endswith("\nspell the capital of FRANCE backwards|-|")
    assert request.choices == ("n0", "a1", "l2", "a3")


def test_the_demo_conductor_is_never_asked_to_reason() -> None:
    """It has not learnt that, so `ultra` plans as `auto` does."""
    assert not plan_format_context(PROFILE, POOL, PlanRules(workers=POOL.names), "ultra", constrained=True).reasoning


def test_a_long_question_is_cut_to_the_limit() -> None:
    """The conductor's context is small."""
    long = Question(text="spell LION backwards and " * 400)
    assert len(asked(long, context()).messages[0].content) < LONGEST_QUESTION + 30


def test_the_conductor_is_a_file_of_the_package() -> None:
    """Opened like any other model; another file can be tried in its place."""
    worker = rehearsal_conductor()
    assert (worker.kind, worker.model) == ("llama", str(conductor_path()))
    assert worker.options["context"] == CONTEXT
    assert rehearsal_conductor(Path("other.gguf")).model == "other.gguf"

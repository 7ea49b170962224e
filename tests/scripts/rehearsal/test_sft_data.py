"""The cold start: plans in the right form for the right hops, by workers at random."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

from conductor_cli.core.plan import Plan, PlanRules
from conductor_cli.core.plan_formats import PLAN_FORMATS
from conductor_cli.core.prompts import plan_format_context
from conductor_cli.rehearsal.conductor_model import PROFILE
from scripts.rehearsal.lessons import CHUNK, Lesson
from scripts.rehearsal.phrasings import PhrasingForm
from scripts.rehearsal.sft_data import COURSE, WORKERS, chunk, lesson, offered

FORMS: tuple[PhrasingForm, ...] = ("noun", "ask", "order")


def lessons(count: int, seed: int = 1) -> list[Lesson]:
    random = Random(seed)
    return [lesson(random) for _ in range(count)]


def plan_of(given: Lesson) -> Plan:
    """The plan of a lesson, read with the labels that its prompt shows."""
    labels = given.prompt.splitlines()[0].removeprefix("|").split("|")
    letters = {"l": "letters", "n": "numbers", "f": "facts", "a": "generalist"}
    base = plan_format_context(PROFILE, WORKERS, PlanRules(workers=WORKERS.names), "auto", constrained=False)
    named = {label: letters[label[0]] for label in labels}
    terms = replace(base, labels=named, rules=PlanRules(workers=tuple(named.values())))
    parser = PLAN_FORMATS[PROFILE.plan_format].parser(terms)
    return Plan(steps=tuple(item.step for item in [*parser.feed(given.answer), *parser.end()]))  # type: ignore[union-attr]


def test_every_lesson_is_a_valid_plan_over_the_labels_that_it_shows() -> None:
    """Read without a grammar, as rollouts are."""
    assert all(1 <= len(plan_of(given).steps) <= 3 for given in lessons(300))


def test_workers_and_access_lists_are_drawn_at_random() -> None:
    """No worker is right more often than others for any first step; every access list turns up."""
    found = [plan_of(given).steps for given in lessons(2000) if given.prompt.splitlines()[0].count("|") == 4]
    capital = Counter(steps[0].worker for steps in found if "capital" in steps[0].subtask)
    assert len(capital) == 4
    assert max(capital.values()) < 4 * min(capital.values())
    assert {steps[2].access for steps in found if len(steps) == 3} == {(), (1,), (2,), (1, 2)}


def test_lessons_are_drawn_by_their_number() -> None:
    """A training that was killed goes on with the very next ones."""
    small = replace(COURSE, batch=4)
    assert chunk(small, 2) == chunk(small, 2) != chunk(small, 3)
    assert len(chunk(small, 2)) == CHUNK * 4


def test_label_numbers_are_positions_in_the_pool() -> None:
    """Those of workers that are away are left out, so they are read and not counted."""
    random, found = Random(3), Counter[bool]()
    for _ in range(200):
        terms = offered(random)
        numbers = [int(label[1:]) for label in terms.labels]
        assert numbers == list(range(len(numbers)))
        found[len(terms.allowed) < len(terms.labels)] += 1
    assert found[True] > 10
    assert found[False] > 100

"""Which workers the cards recommend for a kind of work, whatever words the cards are written in."""

from __future__ import annotations

import pytest

from conductor_cli.core.kinds_of_work import KINDS, other_tags, rank_by_kind, row_for
from conductor_cli.core.plan import PlanRules
from conductor_cli.core.plan_formats import PLAN_FORMATS
from conductor_cli.core.pool import RATED, Card, Pool, Worker
from conductor_cli.core.profile import KINDS_PROFILE
from conductor_cli.core.prompts import plan_format_context, planner_request
from conductor_cli.core.question import Question


def worker(name: str, *, model: str = "", about: str = "", **strengths: float) -> Worker:
    return Worker(
        name=name, kind="openai", model=model, about=about, card=Card(strengths=strengths)
    )


def names(kind: str, workers: list[Worker]) -> list[str]:
    return list(rank_by_kind(kind, workers))


@pytest.mark.parametrize(
    ("kind", "ranked"),
    [
        ("sql", ["cem", "ann", "ben"]),
        ("code", ["ann", "ben", "cem"]),
        ("regex", ["ann", "ben", "cem"]),
        ("law", ["ben", "ann", "cem"]),
    ],
)
def test_figures_for_the_kind_rank_first_and_then_those_for_what_is_near(
    kind: str, ranked: list[str]
) -> None:
    workers = [
        worker("ben", facts=0.8, code=0.3),
        worker("ann", code=0.9, facts=0.4),
        worker("cem", sql=0.5, code=0.2),
    ]
    assert names(kind, workers) == ranked


def test_tags_are_read_in_any_case() -> None:
    workers = [worker("ann", Code=0.2), worker("ben", CODE=0.9)]
    assert names("code", workers) == ["ben", "ann"]


def test_words_decide_where_there_are_no_figures() -> None:
    workers = [
        worker("ann", model="gpt-5"),
        worker("ben", model="qwen2.5-coder:7b"),
        worker("cem", about="SQL and databases"),
    ]
    best = {kind: names(kind, workers)[0] for kind in ("code", "sql", "writing")}
    assert best == {"code": "ben", "sql": "cem", "writing": "ann"}


def test_words_count_less_than_a_figure_near_to_the_kind_and_more_than_a_common_one() -> None:
    workers = [
        worker("ann", science=0.9),
        worker("ben", about="law and contracts"),
        worker("cem", privacy=0.2),
    ]
    assert names("law", workers) == ["cem", "ben", "ann"]


def test_ratings_rank_what_nothing_else_tells_apart() -> None:
    rated = [
        Worker(name=name, kind="openai", card=Card(strengths={RATED: figure}))
        for name, figure in (("ann", 0.4), ("ben", 0.7))
    ]
    workers = [*rated, worker("cem")]
    assert names("translation", workers) == ["ben", "ann", "cem"]


def test_every_worker_is_ranked_once_for_every_kind() -> None:
    workers = [worker("ann", code=0.3, python=0.9), worker("ben", math=0.5), worker("cem")]
    for kind in KINDS:
        assert sorted(rank_by_kind(kind, workers)) == ["ann", "ben", "cem"]


def test_a_row_has_no_worker_that_is_much_worse_than_its_best() -> None:
    workers = [
        worker("ann", code=0.9, math=0.9),
        worker("ben", code=0.5, math=0.8),
        worker("cem"),
        worker("dan"),
    ]
    assert [ranked.name for ranked in row_for("code", workers)] == ["ann", "cem", "dan"]
    assert [ranked.name for ranked in row_for("math", workers)] == ["ann", "ben", "cem"]


def test_a_row_has_three_workers_even_if_they_are_much_worse() -> None:
    """A question may ask for people who work apart."""
    workers = [
        worker("ann", code=0.9),
        worker("ben", code=0.3),
        worker("cem", code=0.5),
        worker("dan", code=0.2),
    ]
    assert [ranked.name for ranked in row_for("code", workers)] == ["ann", "cem", "ben"]
    assert [ranked.name for ranked in row_for("code", workers[:1])] == ["ann"]


def test_the_others_of_a_row_are_nobody_who_is_known_to_be_poor_at_it() -> None:
    """Where another one is good at least at what is common to all kinds."""
    workers = [
        worker("ann", analysis=0.9),
        worker("ben", analysis=0.14, debugging=0.7),
        worker("cem", facts=0.6),
        worker("dan", facts=0.5),
    ]
    assert [ranked.name for ranked in row_for("reasoning", workers)] == ["ann", "cem", "dan"]


def test_a_row_without_figures_has_three_workers() -> None:
    workers = [worker(name) for name in ("ann", "ben", "cem", "dan")]
    assert [ranked.name for ranked in row_for("code", workers)] == ["ann", "ben", "cem"]


def test_no_worker_outside_the_row_of_its_kind_can_be_written() -> None:
    workers = [
        worker("ann", code=0.9),
        worker("ben", code=0.8),
        worker("cem", code=0.5),
        worker("dan", code=0.3),
    ]
    grammar = grammar_over(workers)
    assert '"code " ("A" | "B" | "C")' in grammar
    assert '"frontend " ("A" | "B" | "C")' in grammar


def test_a_row_with_a_worker_that_is_not_available_is_made_of_the_others() -> None:
    """As the row would be without that one."""
    workers = [
        worker("ann", code=0.9),
        worker("ben", code=0.5),
        worker("cem", code=0.45, falconry=0.9),
        worker("dan", code=0.3),
        worker("eva", code=0.2),
    ]
    assert '"code " ("B" | "C" | "D")' in grammar_over(workers, available=workers_but("ann"))
    assert '"code " ("A" | "B" | "D")' in grammar_over(workers, available=workers_but("cem"))
    assert '"code " ("A" | "D")' in grammar_over(workers, available=("ann", "dan"))
    assert '"falconry " ("A" | "B")' in grammar_over(workers, available=("ann", "ben"))


def workers_but(absent: str) -> tuple[str, ...]:
    return tuple(name for name in ("ann", "ben", "cem", "dan", "eva") if name != absent)


def test_the_prompt_shows_the_same_rows_whoever_is_not_available() -> None:
    """A local planner keeps what it has read of them; who is not available comes behind that."""
    workers = [worker("ann", code=0.9), worker("ben", code=0.8), worker("cem", sql=0.9)]
    whole = prompt_over(workers)
    narrowed = prompt_over(workers, available=("ben", "cem"))
    table = whole[: whole.rindex("- ")]
    assert "- code A, B" in table
    assert narrowed.startswith(table)
    assert "Not available now: A." in narrowed[len(table) :]


def test_a_tag_that_belongs_to_no_kind_keeps_a_row_of_its_own() -> None:
    workers = [worker("ann", code=0.9, falconry=0.7), worker("ben", falconry=0.8)]
    assert other_tags(workers) == ("falconry",)
    prompt = prompt_over(workers)
    assert "- falconry B, A" in prompt
    assert "- code A, B" in prompt
    assert "0.9" not in prompt


def test_a_tag_with_the_signs_of_a_plan_is_no_row() -> None:
    hostile = Card(strengths={"a|b\n- code B": 0.9})
    workers = [Worker(name="ann", kind="openai", card=hostile), worker("ben", code=0.5)]
    prompt = prompt_over(workers)
    assert "a|b" not in prompt
    assert prompt.count("- code ") == 1


def test_one_worker_has_no_table() -> None:
    assert "Kinds of work" not in prompt_over([worker("ann", code=0.9)])


def grammar_over(workers: list[Worker], available: tuple[str, ...] = ()) -> str:
    pool = Pool(workers=tuple(workers))
    rules = PlanRules(workers=available or pool.names)
    context = plan_format_context(KINDS_PROFILE, pool, rules, "auto", constrained=True)
    return PLAN_FORMATS[KINDS_PROFILE.plan_format].grammar(context)


def prompt_over(workers: list[Worker], available: tuple[str, ...] = ()) -> str:
    pool = Pool(workers=tuple(workers))
    rules = PlanRules(workers=available or pool.names)
    context = plan_format_context(KINDS_PROFILE, pool, rules, "auto", constrained=True)
    request = planner_request(Question(text="Hello?"), pool, KINDS_PROFILE, context)
    return "\n".join(message.content for message in request.messages)

from __future__ import annotations

from dataclasses import replace

from conductor_cli.core.plan import PlanRules
from conductor_cli.core.pool import RATED, Card, Pool, Worker
from conductor_cli.core.profile import BRIEF, PROMPTED, PUBLISHED, Profile
from conductor_cli.core.prompts import RANKED, SKILLS, plan_format_context, skills_for, worker_lines


def worker(name: str, about: str = "", **strengths: float) -> Worker:
    return Worker(name=name, kind="x", about=about, card=Card(strengths=strengths))


def lines_of(*workers: Worker, profile: Profile = BRIEF) -> list[str]:
    pool = Pool(workers=workers)
    context = plan_format_context(profile, pool, PlanRules(workers=pool.names), "auto", constrained=False)
    return worker_lines(workers, profile, context)


def test_a_table_ranks_the_workers_for_each_skill() -> None:
    """The best one first, of those that have a figure; what is in the table is on no worker's line."""
    ann, bob = worker("ann", "sums", math=0.25, code=0.7), worker("bob", math=0.9)
    assert lines_of(ann, bob) == [
        "A  ann: sums", "B  bob", "", "Strengths from 0 to 100, the best worker first:", "- math B 90, A 25",
        "- code A 70",
    ]  # fmt: skip
    assert lines_of(ann, bob, profile=PROMPTED) == ["A  ann: sums (code 0.70, math 0.25)", "B  bob (math 0.90)"]


def test_there_is_no_table_without_figures() -> None:
    """A rating over all kinds of questions ranks nobody for a skill: it stays on the worker's line."""
    rated = replace(worker("ann"), card=Card(strengths={RATED: 0.6}, words="sums"))
    assert lines_of(rated, worker("bob")) == ["A  ann (sums, rated 0.60)", "B  bob"]
    assert skills_for((worker("ann", math=0.9),), replace(PUBLISHED, cards="table")) == ()


def test_a_table_is_bounded() -> None:
    """The skills that most cards have, and the best workers of each."""
    many = {f"s{number}": number / 100 for number in range(SKILLS + 5)}
    pool = [replace(worker(f"w{number}"), card=Card(strengths=many)) for number in range(RANKED + 3)]
    pool[0] = worker("w0", rare=0.9)
    rows = lines_of(*pool)[len(pool) + 2 :]
    assert len(rows) == SKILLS
    assert {row.count(",") for row in rows} == {RANKED - 1}
    assert not any("rare" in row for row in rows)


def test_a_skill_is_a_few_words_on_one_line() -> None:
    """Whoever writes the cases writes the tags: none adds a row, a column or a colour."""
    tag = "x|y\n- math A 100\x1b[31m" + "z" * 99
    (row,) = lines_of(replace(worker("ann"), card=Card(strengths={tag: 1.0})))[3:]
    assert row == "- x y - math A 100zzzzzzzz A 100"

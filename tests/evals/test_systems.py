"""Which systems there are, which plans they run, and which worker is chosen by cards and words."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.core.errors import Failure, UsageError
from conductor_cli.core.plan import SELF
from conductor_cli.core.pool import Card, Pool, Worker
from conductor_cli.core.profile import LONG_REPLY_TOKENS, Profile, WorkerProfile
from conductor_cli.evals import systems as baselines
from conductor_cli.evals.cases import GoldStep
from conductor_cli.evals.systems import (
    NAMES,
    System,
    best_worker_on,
    find_tag,
    select_systems,
    unmeasured_workers,
)
from conductor_cli.models.base import ScriptedModel
from tests.evals.kit import ALL, case, cases, orchestra, pool, run_evaluation, worker_model
from tests.evals.kit import NAMES as WORKERS


def only(name: str, **fields: Any) -> System:
    (system,) = select_systems(name, orchestra(**fields).team, cases=cases(1))
    return system


def test_every_system_can_be_selected_by_name() -> None:
    every = select_systems("all", orchestra().team, cases=cases(1))
    assert tuple(system.name for system in every) == ALL
    assert all(not system.missing for system in every)
    assert [system.name for system in select_systems("alone", orchestra().team)] == [
        "alone:ann",
        "alone:bob",
        "alone:cyd",
    ]
    assert set(NAMES) >= {name.partition(":")[0] for name in ALL}
    some = select_systems("moa, alone:bob,alone,moa", orchestra().team)
    assert [system.name for system in some] == ["moa", "alone:bob", "alone:ann", "alone:cyd"], (
        "in order and once"
    )
    with_self = Pool(
        workers=(*pool().workers, Worker(name=SELF, kind=SELF, card=Card(strengths={"math": 1.0})))
    )
    models = {name: worker_model(name) for name in ("ann", "bob", "cyd")}
    every = select_systems("all", orchestra(models, pool=with_self).team, cases=cases(1))
    assert tuple(system.name for system in every) == ALL, (
        "the conductor in the pool is no single worker"
    )


@pytest.mark.parametrize("name", ["mao", "alone:zoe", "ALL"])
def test_an_unknown_system_is_an_error(name: str) -> None:
    with pytest.raises(UsageError, match=f"unknown system '{name}'") as error:
        select_systems(name, orchestra().team)
    assert "alone:ann" in error.value.hint
    assert "moa" in error.value.hint
    with pytest.raises(UsageError, match="names no system"):
        select_systems(" , ", orchestra().team)


def test_a_model_trained_only_to_plan_does_not_reason_or_review() -> None:
    planning_profile = Profile(name="own", render=lambda question, *_: question.text)
    systems = {
        system.name: system
        for system in select_systems(
            "all", orchestra(profile=planning_profile).team, cases=cases(1)
        )
    }
    left_out = [
        name for name, system in systems.items() if "trained only to plan" in system.missing
    ]
    assert left_out == ["conductor-ultra"]


def test_a_system_that_cannot_run_has_the_reason() -> None:
    absent = {"bob": Failure(kind="key", message="OPENAI_API_KEY is not set")}
    systems = {
        s.name: s
        for s in select_systems(
            "all", orchestra(model=None, unavailable=absent).team, cases=[case(1, steps=())]
        )
    }
    assert systems["alone:bob"].missing == "OPENAI_API_KEY is not set"
    assert systems["best-routing"].missing == "a case has no known decomposition"
    assert systems["moa"].missing == ""
    plan = systems["best-worker"].plan
    assert plan is not None
    assert [step.worker for step in plan(case()).steps] == ["ann"]


def test_a_pool_without_available_workers_is_an_error() -> None:
    absent = {name: Failure(kind="key", message="no key") for name in ("ann", "bob", "cyd")}
    with pytest.raises(UsageError, match="no worker of the pool is available"):
        select_systems("all", orchestra(unavailable=absent).team)


def steps_of(system: System, number: int = 1) -> list[tuple[str, tuple[int, ...]]]:
    assert system.plan is not None
    plan = system.plan(case(number))
    return [(step.worker, step.access) for step in plan.steps]


def test_plans_have_the_right_workers_and_access() -> None:
    assert steps_of(only("moa")) == [("ann", ()), ("bob", ()), ("cyd", ()), ("bob", (1, 2, 3))]
    assert [worker for worker, _ in steps_of(only("vote"))] == [
        f"bob-{number}" for number in range(1, 6)
    ]
    assert steps_of(only("reflect:ann")) == [
        ("ann", ()),
        *(("ann", (number,)) for number in range(1, 6)),
    ]


def test_vote_samples_are_independent(tmp_path: Path) -> None:
    """Five calls of one model at a temperature, each with its own seed.

    None has the other answers.
    """
    model = worker_model("bob")
    run_evaluation(
        tmp_path / "e",
        orchestra({"ann": worker_model("ann"), "bob": model}),
        cases(1),
        ["vote"],
        seed=3,
    )
    assert {request.temperature for request in model.requests} == {baselines.TEMPERATURE}
    assert {request.seed for request in model.requests} == {16, 17, 18, 19, 20}
    assert {request.messages[0].content for request in model.requests} == {"What is 1 + 3?"}


def test_reflection_counts_the_last_answer_and_repeats_no_request(tmp_path: Path) -> None:
    model = worker_model("bob")
    model.reply = lambda request: [
        "4" if baselines.REFLECTION_SUBTASK in request.messages[0].content else "5"
    ]
    evaluation = run_evaluation(
        tmp_path / "e", orchestra({"bob": model}), cases(1), ["reflect:bob", "alone:bob"]
    )
    assert (evaluation["reflect:bob", "c1"].verdict, evaluation["alone:bob", "c1"].verdict) == (
        "right",
        "wrong",
    )
    assert evaluation["reflect:bob", "c1"].usage.calls == 6
    assert len(model.requests) == 3
    assert [model.requests[-1].messages[0].content.count(text) for text in ("\n4\n", "\n5\n")] == [
        1,
        0,
    ]


def test_a_dropped_system_says_what_to_use_instead() -> None:
    with pytest.raises(UsageError, match="the system 'smoothie-local' was dropped") as error:
        select_systems("smoothie-local", orchestra().team)
    assert error.value.hint == "use instead: vote"


def test_baselines_read_the_bare_question(tmp_path: Path) -> None:
    model = worker_model("bob")
    run_evaluation(
        tmp_path / "e", orchestra({"ann": worker_model("ann"), "bob": model}), cases(1), ["moa"]
    )
    first, last = (request.messages[0].content for request in model.requests)
    assert first == "What is 1 + 3?"
    assert last.count("<answer-") == 2
    assert last.startswith("What is 1 + 3?")
    assert last.endswith(baselines.AGGREGATE)


def test_a_worker_alone_may_write_as_much_as_in_a_plan_which_shares_its_reply(
    tmp_path: Path,
) -> None:
    """Else the rivals of a plan would be cut off sooner than the plan."""
    models = {name: worker_model(name) for name in WORKERS}
    plan = ScriptedModel([["A | - | Answer it."]])
    by = orchestra(models, model=plan)
    run_evaluation(tmp_path, by, cases(1), ["alone:bob", "conductor"])
    requests = [*chain.from_iterable(model.requests for model in models.values())]
    assert [request.max_tokens for request in requests] == [LONG_REPLY_TOKENS]


def test_a_worker_profile_with_its_own_prompt_is_used(tmp_path: Path) -> None:
    """In every system; a vote hides the other answers from it, too."""
    own_prompt = WorkerProfile(
        render=lambda question, step, seen_steps: (
            f"q: {question.text} s: {step.subtask} n: {len(seen_steps)}"
        )
    )
    models = {"ann": worker_model("ann"), "bob": worker_model("bob")}
    run_evaluation(
        tmp_path / "e", orchestra(models, worker_profile=own_prompt), cases(1), ["moa", "vote"]
    )
    requests = chain.from_iterable(model.requests for model in models.values())
    texts = {request.messages[0].content for request in requests}
    assert texts == {
        "q: What is 1 + 3? s: Answer the question. n: 0",
        f"q: What is 1 + 3? s: {baselines.AGGREGATE} n: 2",
    }


def test_a_majority_counts_extracted_answers(tmp_path: Path) -> None:
    texts = {1: "It is 5.", 2: "4", 3: "so, 4.0", 4: "no idea", 5: "5"}
    models = {"bob": worker_model("bob")}
    models["bob"].reply = lambda request: [texts[request.seed or 0]]
    for changed_texts, answer, verdict in (
        ({}, "It is 5.", "wrong"),
        ({5: "about 4"}, "4", "right"),
        (dict.fromkeys(range(1, 6), "no idea"), "no idea", "wrong"),
    ):
        texts |= changed_texts
        evaluation = run_evaluation(tmp_path / answer, orchestra(models), cases(1), ["vote"])[
            "vote", "c1"
        ]
        assert (evaluation.answer, evaluation.verdict) == (answer, verdict)


def test_gold_steps_go_to_the_best_worker_for_their_skill(tmp_path: Path) -> None:
    strengths = {"ann": {"facts": 0.9, "math": 0.1}, "bob": {"facts": 0.2, "math": 0.7}}
    workers = Pool(
        workers=tuple(
            Worker(name=name, kind="scripted", card=Card(strengths=it))
            for name, it in strengths.items()
        )
    )
    steps = (
        GoldStep(skill="facts", subtask="Find it."),
        GoldStep(skill="math", subtask="Add it.", access=(1,)),
    )
    ann = worker_model("ann")
    by = orchestra({"ann": ann, "bob": worker_model("bob")}, pool=workers)
    (system,) = select_systems("best-routing", by.team, cases=[case(1, steps=steps)])
    assert system.plan is not None
    plan = system.plan(case(1, steps=steps))
    assert [(step.worker, step.subtask, step.access) for step in plan.steps] == [
        ("ann", "Find it.", ()),
        ("bob", "Add it.", (1,)),
    ]
    run_evaluation(tmp_path / "e", by, [case(1, steps=steps)], ["best-routing"])
    assert "You are one of several models" in ann.requests[0].messages[0].content


def test_workers_without_a_measured_card_are_named() -> None:
    bare = Pool(workers=tuple(Worker(name=name, kind="scripted") for name in ("ann", "bob")))
    models = {"ann": worker_model("ann"), "bob": worker_model("bob")}
    assert unmeasured_workers(orchestra(models, pool=bare).team) == ["ann", "bob"]
    absent = {"ann": Failure(kind="key", message="no key")}
    assert unmeasured_workers(
        orchestra({"bob": models["bob"]}, pool=bare, unavailable=absent).team
    ) == ["bob"]
    pool = Pool(
        workers=(
            Worker(name="bob", kind="scripted", card=Card(strengths={"a": 0.5}, measured=True)),
        )
    )
    assert unmeasured_workers(orchestra({"bob": models["bob"]}, pool=pool).team) == []


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("Write a Python function that reverses a list", "code"),
        ("Solve the equation x + 1 = 2", "math"),
        ("Which enzyme cuts a protein?", "science"),
        ("Proofread this essay", "writing"),
        ("Mmm", ""),
        ("", ""),
        ("classical", ""),
        ("the CAPITAL of France", "facts"),
    ],
)
def test_words_indicate_a_tag(text: str, tag: str) -> None:
    assert find_tag(text, baselines.GENERAL) == tag


def test_given_keywords_replace_the_default_ones() -> None:
    ann = Worker(name="ann", kind="scripted", card=Card(strengths={"sums": 0.9, "rest": 0.1}))
    bob = Worker(name="bob", kind="scripted", card=Card(strengths={"sums": 0.7, "rest": 0.8}))
    names = [best_worker_on((ann, bob), tag).name for tag in ("sums", "rest", "rhyme", "")]
    assert names == ["ann", "bob", "bob", "bob"], "the best overall where nobody has the skill"
    two = Pool(workers=(ann, bob))
    by = orchestra({"ann": worker_model("ann"), "bob": worker_model("bob")}, pool=two)
    (system,) = select_systems("keyword", by.team, keywords={"sums": ("what is",)})
    assert steps_of(system) == [("ann", ())]
    (system,) = select_systems("keyword", by.team, keywords={})
    assert steps_of(system) == [("bob", ())]

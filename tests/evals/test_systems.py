"""The systems: which there are, what each has the engine do, and who is chosen by cards and words."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from conductor_cli.core.errors import Failure, UsageError
from conductor_cli.core.plan import SELF
from conductor_cli.core.pool import Card, Limits, Pool, Worker
from conductor_cli.core.profile import Profile, WorkerProfile
from conductor_cli.evals import baselines
from conductor_cli.evals.cases import GoldStep
from conductor_cli.evals.routing import GENERAL, best_worker_on, find_tag, worker_by_keyword
from conductor_cli.evals.storage import Evaluation
from conductor_cli.evals.systems import NAMES, System, ranking_notes, select_systems
from tests.evals.kit import ALL, case, cases, conductor, evaluated, pool, worker_model


def only(name: str, **fields: Any) -> System:
    (system,) = select_systems(name, conductor(**fields), cases=cases(1))
    return system


def test_all_are_known_by_name() -> None:
    """`all` is every system; each can be named; the workers alone have a name for all of them."""
    every = select_systems("all", conductor(), cases=cases(1))
    assert tuple(system.name for system in every) == ALL
    assert all(not system.missing for system in every)
    assert [system.name for system in select_systems("alone", conductor())] == ["alone:ann", "alone:bob", "alone:cyd"]
    assert set(NAMES) >= {name for name in ALL if not name.startswith("alone:")}


def test_systems_are_chosen_in_order_and_once() -> None:
    """A list, or names between commas; what is named twice counts once."""
    by = conductor()
    assert [s.name for s in select_systems("moa, best-worker,moa", by)] == ["moa", "best-worker"]
    assert [s.name for s in select_systems(["alone:bob", "alone"], by)] == ["alone:bob", "alone:ann", "alone:cyd"]


@pytest.mark.parametrize("name", ["mao", "alone:zoe", "ALL"])
def test_an_unknown_system_is_refused(name: str) -> None:
    """What is known is told."""
    with pytest.raises(UsageError, match=f"unknown system '{name}'") as error:
        select_systems(name, conductor())
    assert "alone:ann" in error.value.hint
    assert "moa" in error.value.hint


def test_naming_none_is_refused() -> None:
    """An empty list is a mistake."""
    with pytest.raises(UsageError, match="names no system"):
        select_systems(" , ", conductor())


def test_a_conductor_that_only_plans_is_asked_for_nothing_else() -> None:
    """One with words of its own was trained to plan: systems that have it reason or review are left out."""
    own = Profile(name="own", render=lambda question, *_: question.text)
    systems = {system.name: system for system in select_systems("all", conductor(profile=own), cases=cases(1))}
    left_out = [name for name, system in systems.items() if "trained only to plan" in system.missing]
    assert left_out == ["conductor-ultra", "conductor-recursion"]


def test_what_cannot_run_says_why() -> None:
    """A worker without a key, a missing conductor, cases without a known decomposition."""
    absent = {"bob": Failure(kind="key", message="OPENAI_API_KEY is not set")}
    systems = {
        s.name: s for s in select_systems("all", conductor(model=None, absent=absent), cases=[case(1, steps=())])
    }
    assert systems["alone:bob"].missing == "OPENAI_API_KEY is not set"
    assert systems["conductor"].missing == "there is no conductor model"
    assert systems["best-routing"].missing == "no case has a known decomposition"
    assert systems["moa"].missing == ""
    plan = systems["best-worker"].plan
    assert plan is not None
    assert [step.worker for step in plan(case(), Random(0)).steps] == ["ann"]  # type: ignore[union-attr]


def test_a_pool_of_nobody_is_refused() -> None:
    """Where no worker can be asked there is nothing to compare."""
    absent = {name: Failure(kind="key", message="no key") for name in ("ann", "bob", "cyd")}
    with pytest.raises(UsageError, match="no worker of the pool is available"):
        select_systems("all", conductor(absent=absent))


def test_the_conductor_as_a_worker_is_no_system_of_its_own() -> None:
    """A pool may hold `self`: it cannot be asked alone, and is nobody's best worker."""
    with_self = Pool(workers=(*pool().workers, Worker(name=SELF, kind=SELF, card=Card(strengths={"math": 1.0}))))
    models = {name: worker_model(name) for name in ("ann", "bob", "cyd")}
    systems = select_systems("all", conductor(models, pool=with_self), cases=cases(1))
    assert tuple(system.name for system in systems) == ALL


def steps_of(system: System, number: int = 1) -> list[tuple[str, tuple[int, ...]]]:
    assert system.plan is not None
    plan = system.plan(case(number), Random(number))
    assert plan is not None
    return [(step.worker, step.access) for step in plan.steps]


def test_each_plan_has_its_shape() -> None:
    """Who does what, and who sees whom."""
    assert steps_of(only("reflection")) == [("bob", tuple(range(1, turn))) for turn in range(1, 6)]
    assert steps_of(only("moa")) == [("ann", ()), ("bob", ()), ("cyd", ()), ("bob", (1, 2, 3))]
    assert steps_of(only("pipeline")) == [("bob", ()), ("bob", (1,)), ("ann", (1, 2))]
    assert [worker for worker, _ in steps_of(only("vote"))] == [f"bob-{number}" for number in range(1, 6)]


def test_a_random_router_is_random_and_the_same_again() -> None:
    """Each worker has its turn, by the source that it is given alone."""
    system = only("random")
    drawn = [steps_of(system, number)[0][0] for number in range(300)]
    assert drawn == [steps_of(system, number)[0][0] for number in range(300)]
    assert min(Counter(drawn)[name] for name in ("ann", "bob", "cyd")) > 70


def test_samples_are_drawn_apart_and_blind(tmp_path: Path) -> None:
    """Five calls of one model, at a temperature, each with a seed of its own and none with another one's answer."""
    model = worker_model("bob")
    evaluated(tmp_path / "e", conductor({"ann": worker_model("ann"), "bob": model}), cases(1), ["vote"], seed=3)
    assert {request.temperature for request in model.requests} == {baselines.TEMPERATURE}
    assert {request.seed for request in model.requests} == {16, 17, 18, 19, 20}
    assert {request.messages[0].content for request in model.requests} == {"What is 1 + 3?"}


def test_a_worker_alone_reads_the_bare_question(tmp_path: Path) -> None:
    """Baselines get the question as it is; later turns get it with what was said and what to do."""
    model = worker_model("bob")
    evaluated(tmp_path / "e", conductor({"ann": worker_model("ann"), "bob": model}), cases(1), ["reflection"])
    texts = [request.messages[0].content for request in model.requests]
    assert texts[0] == "What is 1 + 3?"
    assert [text.count("<answer-") for text in texts] == [0, 1, 2, 3, 4]
    assert all(text.startswith("What is 1 + 3?") and text.endswith(baselines.REFLECT) for text in texts[1:])


def test_a_pool_may_speak_its_own_words(tmp_path: Path) -> None:
    """A profile that renders is used in every system; a vote hides the answers of others from it too."""
    own = WorkerProfile(render=lambda question, step, seen: f"q: {question.text} s: {step.subtask} n: {len(seen)}")
    models = {"ann": worker_model("ann"), "bob": worker_model("bob")}
    evaluated(tmp_path / "e", conductor(models, worker_profile=own), cases(1), ["moa", "vote"])
    texts = {request.messages[0].content for model in models.values() for request in model.requests}
    assert texts == {
        "q: What is 1 + 3? s: Answer the question. n: 0",
        f"q: What is 1 + 3? s: {baselines.AGGREGATE} n: 2",
    }


def test_a_majority_is_counted_by_meaning(tmp_path: Path) -> None:
    """What the scorer takes for the same answer counts together; of equals the first wins; nothing said counts not."""
    texts = {1: "It is 5.", 2: "4", 3: "so, 4.0", 4: "no idea", 5: "5"}
    models = {"bob": worker_model("bob")}
    models["bob"].reply = lambda request: [texts[request.seed or 0]]
    found = evaluated(tmp_path / "e", conductor(models), cases(1), ["vote"])
    assert found["vote", "c1"].answer == "It is 5."
    texts[5] = "about 4"
    found = evaluated(tmp_path / "f", conductor(models), cases(1), ["vote"])
    assert (found["vote", "c1"].answer, found["vote", "c1"].verdict) == ("4", "right")
    texts.update(dict.fromkeys(range(1, 6), "no idea"))
    found = evaluated(tmp_path / "g", conductor(models), cases(1), ["vote"])
    assert (found["vote", "c1"].answer, found["vote", "c1"].verdict) == ("no idea", "wrong")


def test_gold_steps_go_to_who_is_best_at_them(tmp_path: Path) -> None:
    """The known decomposition is run as it is; a case without one is not for this system."""
    workers = Pool(
        workers=(
            Worker(name="ann", kind="scripted", card=Card(strengths={"facts": 0.9, "math": 0.1})),
            Worker(name="bob", kind="scripted", card=Card(strengths={"facts": 0.2, "math": 0.7})),
        )
    )
    steps = (GoldStep(skill="facts", subtask="Find it."), GoldStep(skill="math", subtask="Add it.", access=(1,)))
    by = conductor({"ann": worker_model("ann"), "bob": worker_model("bob")}, pool=workers)
    found = evaluated(tmp_path / "e", by, [case(1, steps=steps), case(2, steps=())], ["best-routing"])
    assert list(found) == [("best-routing", "c1")]
    trace = Evaluation(tmp_path / "e").trace(found["best-routing", "c1"])
    assert [(record.worker, record.step.subtask, record.step.access) for record in trace.steps] == [
        ("ann", "Find it.", ()), ("bob", "Add it.", (1,)),
    ]  # fmt: skip
    assert "You are one of several models" in trace.steps[0].prompt[0].content


def test_a_reader_is_told_how_the_best_was_found() -> None:
    """Without cards the first worker is taken for the best; cards that nobody measured are named."""
    bare = Pool(workers=tuple(Worker(name=name, kind="scripted") for name in ("ann", "bob")))
    models = {"ann": worker_model("ann"), "bob": worker_model("bob")}
    assert ranking_notes(conductor(models, pool=bare)) == (
        "no worker has a card, so the first one, ann, counts as the best",
    )
    mixed = Pool(workers=(bare.workers[0], Worker(name="bob", kind="scripted", card=Card(strengths={"a": 0.5}))))
    assert ranking_notes(conductor(models, pool=mixed)) == (
        "without a card, so never the best worker: ann", "cards that were not measured: bob",
    )  # fmt: skip
    absent = {"ann": Failure(kind="key", message="no key")}
    assert ranking_notes(conductor({"bob": models["bob"]}, pool=bare, absent=absent)) == (
        "no worker has a card, so the first one, bob, counts as the best",
    )
    nobody = absent | {"bob": absent["ann"]}
    assert ranking_notes(conductor({}, pool=bare, absent=nobody)) == ()
    known = Pool(workers=(Worker(name="bob", kind="scripted", card=Card(strengths={"a": 0.5}, measured=True)),))
    assert ranking_notes(conductor({"bob": models["bob"]}, pool=known)) == ()
    timed = conductor({"bob": models["bob"]}, pool=known, limits=Limits(seconds=60))
    assert ranking_notes(timed) == ("limits.seconds is ignored, because parallel runs wait for each other",)


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("Write a Python function that reverses a list", "code"), ("Solve the equation x + 1 = 2", "math"),
        ("Which enzyme cuts a protein?", "science"), ("Proofread this essay", "writing"), ("Mmm", ""), ("", ""),
        ("classical", ""), ("the CAPITAL of France", "facts"),
    ],
)  # fmt: skip
def test_words_betray_a_tag(text: str, tag: str) -> None:
    """Whole words in any case; nothing where no word is known."""
    assert find_tag(text, GENERAL) == tag


def test_a_keyword_router_asks_the_best_on_the_tag() -> None:
    """The tag's strongest worker by card; without a tag, or with one that no card knows, the best over all."""
    ann = Worker(name="ann", kind="scripted", card=Card(strengths={"code": 0.9, "math": 0.2}))
    bob = Worker(name="bob", kind="scripted", card=Card(strengths={"code": 0.7, "math": 0.8}))
    words = {"code": ("python",), "math": ("sum",), "poems": ("rhyme",), "none": ()}
    assert [worker_by_keyword(text, (ann, bob), words).name for text in ("Python!", "a sum", "rhyme", "?")] == [
        "ann", "bob", "bob", "bob",
    ]  # fmt: skip
    assert best_worker_on((ann, bob), "code") is ann


def test_a_pool_may_bring_its_own_words(tmp_path: Path) -> None:
    """Keywords that are given replace the general ones."""
    two = Pool(
        workers=(
            Worker(name="ann", kind="scripted", card=Card(strengths={"sums": 0.9, "rest": 0.1})),
            Worker(name="bob", kind="scripted", card=Card(strengths={"sums": 0.7, "rest": 0.8})),
        )
    )
    by = conductor({"ann": worker_model("ann"), "bob": worker_model("bob")}, pool=two)
    (system,) = select_systems("keyword", by, keywords={"sums": ("what is",)})
    assert steps_of(system) == [("ann", ())]
    (system,) = select_systems("keyword", by, keywords={})
    assert steps_of(system) == [("bob", ())]

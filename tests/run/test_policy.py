"""The policy in whole runs.

The models repeat all that they read, and no model is sent what a rule keeps from it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Request
from conductor_cli.core.data_policy import DataPolicy
from conductor_cli.core.errors import ModelError, PolicyError
from conductor_cli.core.plan import SELF
from conductor_cli.core.policy import Policy, PoolPolicy, Recipient
from conductor_cli.core.pool import Limits, Pool
from conductor_cli.core.question import File, PastTurn, Question
from conductor_cli.core.trace import Trace
from conductor_cli.models.base import ScriptedModel
from tests.run.kit import (
    notices,
    of,
    plan_of,
    play,
    play_and_stop,
    pool_of,
    says,
    setting,
    with_self,
)

ASKED = "WHATISASKED"
FILED = "WHATISFILED"
NAMES = ("ann", "bob", "cyd")
READERS = ("here", "north", "south")
SELECTORS = [*NAMES, "tag:red", "provider:local", "provider:north", "provider:south"]


def heard(model: ScriptedModel) -> list[str]:
    """All that a model was sent."""
    return [
        "\n".join(message.content for message in request.messages) for request in model.requests
    ]


def parrot(*, gone: bool = False) -> ScriptedModel:
    """A worker that answers with the text of the files wherever it has read it. It may be gone."""

    def reply(_: Request) -> list[Any]:
        answer = f"Done {FILED}" if FILED in heard(model)[-1] else "Done"
        return [ModelError("missing", "gone") if gone else answer]

    model = ScriptedModel(reply=reply)
    return model


def parrots(*gone: str) -> dict[str, Any]:
    return {name: parrot(gone=name in gone) for name in NAMES}


def gossip(*lines: tuple[str, str], waits: float = 0.0) -> ScriptedModel:
    """A planner that writes the same lines for every question.

    And the text of the files wherever it has read it.
    """

    def reply(_: Request) -> list[Any]:
        filed = FILED if FILED in heard(model)[-1] else ""
        text = "\n".join(f"{label} | {access} | Do it {filed}" for label, access in lines)
        return [text, "\n", waits] if waits else [text]

    model = ScriptedModel(reply=reply)
    return model


def party(name: str, recipient: str, *tags: str) -> Recipient:
    return Recipient(
        name=name, provider=recipient, kind=recipient, local=recipient == "here", tags=tags
    )


selectors = st.lists(st.sampled_from(SELECTORS), max_size=3).map(tuple)
policies = st.builds(
    Policy,
    allow=st.lists(selectors.filter(bool), max_size=1).map(tuple),
    deny=st.lists(st.sampled_from(SELECTORS), max_size=1).map(tuple),
    local_only=st.sampled_from([False, False, False, True]),
    files_only=st.lists(selectors, max_size=2).map(tuple),
)
lines = st.lists(
    st.tuples(st.sampled_from("ABCD"), st.sampled_from(["-", "1", "1 2", "all", "given", "2 3"])),
    min_size=1,
    max_size=4,
)
recipients = st.fixed_dictionaries(
    {
        name: st.builds(
            party, st.just(name), st.sampled_from(READERS), st.sampled_from(["red", "blue"])
        )
        for name in (*NAMES, SELF)
    }
)
questions = st.builds(
    Question,
    text=st.just(f"{ASKED}?"),
    files=st.sampled_from([(), (File(name="notes", text=FILED),)]),
    history=st.sampled_from([(), (PastTurn(question="And?", answer=FILED),)]),
)
POOL = with_self(*NAMES)


def hold_readers(
    readers: Mapping[str, ScriptedModel],
    policy: Policy,
    recipients: Mapping[str, Recipient],
    question: Question,
) -> None:
    """Fail if the conductor or a worker read something that the policy keeps from them."""
    for name, reader in readers.items():
        for text in heard(reader):
            assert not policy.denial_reason(recipients[name], plans=name == SELF)
            if question.files:
                assert FILED not in text or policy.allows_files(recipients[name])


@given(
    policies,
    lines,
    recipients,
    questions,
    st.sets(st.sampled_from(NAMES), max_size=2),
    st.sampled_from([0, 1]),
)
def test_no_worker_is_sent_what_a_rule_forbids(
    policy: Policy,
    lines: list[tuple[str, str]],
    recipients: Mapping[str, Recipient],
    question: Question,
    gone: set[str],
    recursion: int,
) -> None:
    """The rules hold for any plan and policy.

    With files, history, failures, substitutes and nested runs. Workers pass on all that they read,
    and the conductor writes all that it reads into its subtasks.
    """
    orchestra = gossip(*lines)
    workers = parrots(*gone)
    limits = Limits(attempts=1, recursion=recursion)
    try:
        run, _ = play(
            desk(orchestra, policy, workers, pool=POOL, limits=limits, recipients=recipients),
            question,
        )
    except PolicyError:
        assert not any(model.requests for model in (orchestra, *workers.values()))
        return
    assert (run.trace.ended, run.trace.policy) == (True, policy)
    hold_readers({SELF: orchestra, **workers}, policy, recipients, question)


@given(policies, recipients, questions, st.sets(st.sampled_from(NAMES), max_size=2))
def test_in_mini_mode_one_worker_answers_that_sees_all_of_the_question(
    policy: Policy, recipients: Mapping[str, Recipient], question: Question, gone: set[str]
) -> None:
    orchestra = gossip()
    workers = parrots(*gone)
    pool = Pool(workers=POOL.workers[:3])
    limits = Limits(attempts=1)
    try:
        play(
            desk(
                orchestra,
                policy,
                workers,
                pool=pool,
                limits=limits,
                mode="mini",
                recipients=recipients,
            ),
            question,
        )
    except PolicyError:
        assert not any(worker.requests for worker in workers.values())
        return
    hold_readers({SELF: orchestra, **workers}, policy, recipients, question)
    for text in chain.from_iterable(heard(worker) for worker in workers.values()):
        assert ASKED in text
        assert FILED in text or not question.files


# By example

HERE = party("ann", "here")
NORTH = party("bob", "north", "red")
SOUTH = party("cyd", "south")
ALL = {"ann": HERE, "bob": NORTH, "cyd": SOUTH, SELF: party("conductor", "here")}
FILES = Question(text="What stands in it?", files=(File(name="pay.csv", text=FILED),))
LOCAL_FILES = Policy(files_only=(("provider:local",),))


def desk(
    plan: Any, policy: Policy, workers: Mapping[str, Any] | None = None, **options: Any
) -> Any:
    recipients = options.pop("recipients", ALL)
    return setting(
        plan, workers, pool_policy=PoolPolicy(policy=policy, recipients=recipients), **options
    )


def stopped(plan: Any, policy: Policy, workers: Mapping[str, Any], **options: Any) -> Trace:
    """A run over files that was stopped after a second."""
    return play_and_stop(desk(plan, policy, workers, **options), 1, "cancelled", question=FILES)[
        0
    ].trace


def prompts(events: Sequence[ev.Event], worker: str) -> list[str]:
    started = of(events, ev.StepStarted)
    return [
        "\n".join(m.content for m in event.prompt) for event in started if event.worker == worker
    ]


def test_files_are_left_out_of_the_prompts_of_others() -> None:
    planner = says("A | - | Read it.\nB | - | Say what a wage is.\nA | 1 2 | Answer.")
    _, events = play(desk(planner, LOCAL_FILES), FILES)
    assert [FILED in text for text in prompts(events, "ann")] == [True, True]
    assert ["Not shown to you: the attached files." in text for text in prompts(events, "bob")] == [
        True
    ]
    assert FILED not in prompts(events, "bob")[0]
    prompt = planner.requests[0].messages[1].content
    assert FILED not in prompt
    assert "Not shown to you: the attached files." in prompt
    assert "B is not shown the attached files, nor answers that come from them." in prompt


def test_an_access_list_that_would_leak_files_is_a_fault() -> None:
    planner = ScriptedModel([["A | - | Read it.\nB | 1 | Check it."], ["A | 1 | Check it."]])
    run, events = play(desk(planner, LOCAL_FILES), FILES)
    (rejected,) = of(events, ev.PlanRejected)
    assert rejected.problem == (
        "step 2 shows bob the answer of step 1, which may quote the attached files, "
        "which policy.files_only keeps from bob"
    )
    assert [record.worker for record in run.trace.steps] == ["ann", "ann"]
    assert not prompts(events, "bob")


def test_a_substitute_sees_no_less_and_leaks_no_more() -> None:
    run, _ = play(
        desk("A | - | Read it.", LOCAL_FILES, {"ann": parrot(gone=True), "bob": parrot()}), FILES
    )
    assert run.trace.exit_code != 0
    files_policy = Policy(files_only=(("ann",),))
    plan = "B | - | Find it.\nC | 1 | Answer."
    run, _ = play(desk(plan, files_policy, parrots("bob", "cyd"), limits=Limits(attempts=1)), FILES)
    assert [record.worker for record in run.trace.steps] == ["ann", "ann"]
    workers = parrots("bob")
    run, _ = play(desk(plan, files_policy, workers, limits=Limits(attempts=1)), FILES)
    assert not any(FILED in text for text in heard(workers["cyd"]))


def test_a_given_plan_is_checked_before_any_call() -> None:
    plan = plan_of(("ann", []), ("bob", [1]))
    with pytest.raises(PolicyError, match=r"step 2 shows bob the answer of step 1") as caught:
        play(desk(None, LOCAL_FILES), FILES, plan=plan)
    assert caught.value.exit_code == 3
    with pytest.raises(PolicyError, match=r"step 2 asks bob, and policy.deny names provider:north"):
        play(desk(None, Policy(deny=("provider:north",))), FILES, plan=plan)


@pytest.mark.parametrize(
    ("policy", "recipient", "message"),
    [
        (
            Policy(local_only=True),
            "north",
            "policy.local_only keeps everything on this machine, and north is not",
        ),
        (Policy(deny=("provider:north",)), "north", "policy.deny names provider:north"),
        (Policy(allow=(("ann",),)), "north", "policy.allow names only ann"),
    ],
)
def test_rules_hold_for_the_conductor(policy: Policy, recipient: str, message: str) -> None:
    recipients = {**ALL, SELF: party("conductor", recipient)}
    with pytest.raises(PolicyError, match=re.escape(message)):
        play(desk("A | - | x", policy, recipients=recipients), FILES)


def test_a_conductor_on_this_machine_needs_no_permission() -> None:
    run, _ = play(desk("A | - | x", Policy(allow=(("bob",),)), pool=POOL.subset(["bob"])), FILES)
    assert run.trace.answer == "from bob"


def test_files_that_no_worker_may_see_are_an_error() -> None:
    with pytest.raises(PolicyError, match="no allowed worker may be shown the attached files"):
        play(desk("A | - | x", Policy(files_only=((),))), FILES)
    play(desk("A | - | x", Policy(files_only=((),))))


def test_a_review_that_would_see_too_much_is_left_out() -> None:
    recipients = {**ALL, SELF: party("conductor", "north")}
    limits = Limits(recursion=1)
    run, events = play(
        desk("A | - | Read it.", LOCAL_FILES, recipients=recipients, limits=limits), FILES
    )
    assert [record.worker for record in run.trace.steps] == ["ann"]
    assert notices(events)[0].startswith(
        "no review was added: step 2 shows self the answer of step 1"
    )


def test_a_nested_run_excludes_workers_that_may_not_see_the_existing_answer() -> None:
    plans = (
        ["A | - | Read it.\nD | 1 | Review."],
        ["B | given | Check it."],
        ["A | given | Check it."],
    )
    planner = ScriptedModel([*plans])
    run, events = play(desk(planner, LOCAL_FILES, pool=POOL), FILES)
    assert "Not available now: B, C" in planner.requests[1].messages[1].content
    assert not prompts([e.event for e in of(events, ev.NestedEvent)], "bob")
    assert run.trace.exit_code == 0


def test_a_reused_plan_is_held_to_the_current_rules() -> None:
    plan = "A | - | Read it.\nB | - | Answer."
    earlier = stopped(plan, Policy(), {"ann": says("read"), "bob": says(9.0)})
    workers = {"ann": parrot(), "bob": parrot()}
    _, events = play(desk(None, LOCAL_FILES, workers), FILES, resume=earlier)
    assert not workers["bob"].requests
    (failed,) = of(events, ev.StepFailed)
    assert (
        "step 2 shows bob its subtask, which may quote the attached files" in failed.error.message
    )


few_rules = st.builds(
    Policy,
    files_only=st.sampled_from([(), (("provider:local",),)]),
    deny=st.sampled_from([(), ("bob",)]),
)


@given(
    st.lists(few_rules, min_size=3, max_size=3),
    lines,
    lines,
    recipients,
    questions,
    st.sets(st.sampled_from(NAMES)),
)
def test_no_worker_is_sent_what_a_rule_forbids_in_a_resumed_run(
    rules: list[Policy],
    begun: list[tuple[str, str]],
    follow_up: list[tuple[str, str]],
    recipients: Mapping[str, Recipient],
    question: Question,
    first: set[str],
) -> None:
    few = Pool(workers=tuple(worker for worker in POOL if worker.name in {*first, "ann"}))
    earlier: Trace | None = None
    for policy, pool, sentence in zip(
        rules, (few, POOL, POOL), (begun, follow_up, follow_up), strict=True
    ):
        allowed = {name: recipients[name] for name in (*pool.names, SELF)}
        orchestra = gossip(*sentence, waits=9.0 if pool is few else 0.0)
        workers = {name: parrot() for name in pool.names if name != SELF}
        if policy is rules[1]:
            workers["ann"] = says(9.0)
        made = desk(
            orchestra, policy, workers, pool=pool, limits=Limits(attempts=1), recipients=allowed
        )
        try:
            run, _ = play_and_stop(made, 1, "cancelled", question=question, resume=earlier)
        except PolicyError:
            continue
        hold_readers({SELF: orchestra, **workers}, policy, recipients, question)
        earlier = run.trace


def test_subtasks_of_a_planner_with_files_stay_with_workers_that_see_files() -> None:
    planner = ScriptedModel([[f"A | - | Check {FILED}.\n", "A | 1 | Answer.\n", 9.0]])
    first = stopped(planner, LOCAL_FILES, {"ann": says("read")}, pool=pool_of("ann"))
    assert first.steps[0].state == "done"
    planner = gossip(("B", "-"))
    workers = parrots()
    run, _ = play(desk(planner, LOCAL_FILES, workers, pool=POOL), FILES, resume=first)
    assert not planner.requests
    assert not workers["bob"].requests
    assert run.trace.exit_code == 0


def test_a_planner_that_is_given_a_plan_sees_no_files() -> None:
    orchestra = desk(says("A | - | Read it."), Policy(), {"ann": says("read")})
    assert play(orchestra, FILES, plan=plan_of(("ann", ())))[0].trace.planner_saw_files is False
    assert play(orchestra, FILES)[0].trace.planner_saw_files is True


def test_a_plan_of_a_conductor_that_saw_no_files_is_written_on_by_it() -> None:
    planner = ScriptedModel(
        [["A | - | Read it.\n", "B | - | Check.\n", "A | 1 2 | Answer.\n", 9.0]]
    )
    first = stopped(planner, LOCAL_FILES, {"ann": says("read"), "bob": says(9.0)}, pool=POOL)
    assert first.planner_saw_files is False
    planner = gossip(("A", "all"))
    workers = parrots()
    run, _ = play(desk(planner, LOCAL_FILES, workers, pool=POOL), FILES, resume=first)
    assert planner.requests
    assert workers["bob"].requests
    assert run.trace.exit_code == 0


def test_a_conductor_without_files_is_not_shown_subtasks_that_may_reveal_them() -> None:
    writer = ScriptedModel(
        [[f"A | - | Check {FILED}.\nB | - | Compare {FILED}.\nA | 1 | Answer.\n", 9.0]]
    )
    earlier = stopped(writer, Policy(), {"ann": says("read"), "bob": says(9.0)}, pool=POOL)
    assert (earlier.plan, earlier.steps[0].state) == (None, "done")
    planner = gossip(("B", "-"))
    workers = parrots()
    run, events = play(desk(planner, LOCAL_FILES, workers, pool=POOL), FILES, resume=earlier)
    assert not planner.requests
    assert not workers["bob"].requests
    assert run.trace.steps[-1].worker == "ann"
    message = (
        "the resumed plan may reveal inputs hidden from the planner; the steps planned so far "
        "are kept, and worker"
    )
    assert message in notices(events)[1]
    play(desk(planner, Policy(), workers, pool=POOL), FILES, resume=earlier)
    assert FILED in heard(planner)[0]


def test_a_nested_run_reveals_files_only_to_workers_that_may_see_them() -> None:
    planner = ScriptedModel([[f"A | - | Read it.\nD | - | Check {FILED}."], [9.0]])
    earlier = stopped(planner, Policy(), {"ann": says("read"), "bob": says("x")}, pool=POOL)
    for recipient, state in (("here", "done"), ("north", "failed")):
        inner = gossip(("B", "-"))
        workers = parrots()
        recipients = {**ALL, SELF: party("conductor", recipient)}
        run, _ = play(
            desk(inner, LOCAL_FILES, workers, pool=POOL, recipients=recipients),
            FILES,
            resume=earlier,
        )
        assert run.trace.steps[1].state == state
        assert bool(inner.requests) == (recipient == "here")
        assert not workers["bob"].requests
        assert not workers["cyd"].requests


def test_an_answer_of_a_run_under_other_rules_may_quote_the_files() -> None:
    workers: dict[str, Any] = {"ann": says(9.0), "bob": says("x"), "cyd": says("y")}
    begun = stopped(
        "B | - | Find it.\nA | - | Wait.", Policy(files_only=(("bob", "ann"),)), workers, pool=POOL
    )
    earlier = replace(begun, steps=begun.steps[:1], plan=None)
    assert [record.state for record in earlier.steps] == ["done"]
    workers = parrots()
    planner = ScriptedModel([["C | 1 | Answer."], ["A | 1 | Answer."]])
    run, events = play(desk(planner, LOCAL_FILES, workers, pool=POOL), FILES, resume=earlier)
    (rejected,) = of(events, ev.PlanRejected)
    assert rejected.problem.startswith(
        "step 2 shows cyd the answer of step 1, which may quote the attached files"
    )
    assert not workers["cyd"].requests
    assert run.trace.exit_code == 0


def test_an_answer_of_a_worker_that_is_gone_may_quote_the_files() -> None:
    policy = DataPolicy(PoolPolicy(policy=LOCAL_FILES, recipients=ALL), ["ann", "bob"], FILES)
    steps = plan_of(("bob", ()), ("gone", ()), ("bob", (2,))).steps
    assert policy.hold_files(steps) == [False, False, True, True]


def test_a_nested_run_is_shown_files_that_one_of_its_workers_may_see() -> None:
    rules = PoolPolicy(policy=LOCAL_FILES, recipients=ALL)
    assert DataPolicy(rules, ["ann", "bob"], FILES).withheld(SELF) == ()
    assert DataPolicy(rules, ["bob"], FILES).withheld(SELF) == ("files",)


def test_a_step_that_the_policy_hides_stays_unread_and_the_user_is_told() -> None:
    orchestra = desk("A | - | x\nB | - | y", Policy(files_only=(("ann",),)))
    run, events = play(orchestra, FILES)
    assert run.trace.steps[-1].step.access == ()
    assert any(
        text.startswith("no step reads step 1, and the policy hides it from the last")
        for text in notices(events)
    )

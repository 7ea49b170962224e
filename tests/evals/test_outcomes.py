"""From a run to an outcome: what counts as failed, what as wrong, and what calls cost."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Chunk, Finish, Message, Request
from conductor_cli.core.errors import ConductorError, LimitReached, ModelError
from conductor_cli.core.plan import SELF
from conductor_cli.core.pool import Limits, Pool, Worker
from conductor_cli.core.profile import WorkerProfile
from conductor_cli.core.question import Question
from conductor_cli.core.redact import Secrets
from conductor_cli.core.trace import Trace, apply_event
from conductor_cli.core.usage import Price, Usage
from conductor_cli.evals.outcomes import (
    critical_path_seconds,
    infrastructure_error,
    judge_run,
    planning_usage,
)
from conductor_cli.evals.systems import RunSetup, select_systems
from conductor_cli.models.base import ScriptedModel
from conductor_cli.models.stream_decoder import ChatReplyDecoder
from tests.evals.kit import Timed, case, orchestra, run_evaluation, worker_model
from tests.run.kit import play, says


def outcome_of(name: str, **fields: Any) -> Any:
    by = orchestra(**fields)
    (system,) = select_systems(name, by.team, cases=[case()])
    plan = None if system.plan is None else system.plan(case())
    setup = system.configure(RunSetup.of(by))
    how: dict[str, Any] = {"team": setup.team, "limits": setup.limits, "seed": setup.seed}
    run, events = play(by, Question(text=case().question), plan=plan, **how)
    return judge_run(system, case(), run.trace, events)


def test_the_words_of_silence_are_those_of_the_program() -> None:
    """An empty answer and a refusal are wrong.

    What another worker then answers counts for the system.
    """
    with pytest.raises(ModelError) as error:
        list(
            ChatReplyDecoder(
                Request(messages=(Message(role="user", content="hi"),)), Secrets()
            ).end()
        )
    assert error.value.reason == "empty_answer"
    for answer in ("", "?"):
        models = {"ann": says(answer), "bob": says("4")}
        outcome = outcome_of("alone:ann", models=models, worker_profile=WorkerProfile(refusal="?"))
        assert (outcome.verdict, outcome.answer, outcome.error) == ("wrong", "", "")
    outcome = outcome_of("conductor", models={"ann": says("4"), "bob": says(""), "cyd": says("4")})
    assert (outcome.verdict, outcome.answer) == ("right", "4")


def test_reaching_a_limit_counts_as_wrong() -> None:
    none = outcome_of("moa", limits=Limits(tokens=1))
    assert (none.verdict, none.answer) == ("wrong", "")
    some = outcome_of("moa", models={"ann": says("4"), "bob": says("4")}, limits=Limits(calls=2))
    assert (some.verdict, some.usage.calls) == ("right", 2)


@pytest.mark.parametrize(
    ("finish", "message"),
    [("length", "before the end of its answer"), ("refusal", "content filter")],
)
def test_an_answer_that_is_cut_off_is_scored_and_said_to_be(finish: Finish, message: str) -> None:
    ann = ScriptedModel([["4", Chunk(usage=Usage(calls=1), finish=finish)]])
    outcome = outcome_of("alone:ann", models={"ann": ann})
    assert outcome.verdict == "right"
    assert message in outcome.scoring


def test_unreachable_models_make_the_outcome_failed() -> None:
    key = outcome_of(
        "alone:ann", models={"ann": ScriptedModel([[ModelError("auth", "401")]]), "bob": says("4")}
    )
    assert (key.verdict, key.error) == ("failed", "ann: 401")
    mute = outcome_of("conductor", model=ScriptedModel([[ModelError("auth", "401")]]))
    assert (mute.verdict, mute.error) == ("failed", "the planner cannot plan: 401")


@pytest.mark.parametrize(
    "error",
    [
        LimitReached("the limit"),
        ModelError("empty_answer", "said nothing"),
        ModelError("rate", "429"),
    ],
)
def test_a_failed_run_is_judged_by_the_reason_of_its_failure(error: ConductorError) -> None:
    failure = error.failure
    trace = apply_event(Trace(), ev.RunFailed(at=1.0, error=failure, usage=Usage()))
    assert infrastructure_error(trace, (), planned=False) == (
        "429" if failure.message == "429" else ""
    )


def test_a_failure_inside_a_nested_run_makes_the_outcome_failed() -> None:
    models = {
        "ann": worker_model("ann"),
        "bob": ScriptedModel([["3"], ["3"], [ModelError("broken", "cut off")]]),
    }
    plans = ScriptedModel([["B | - | Do it."], ["B | 0 | Do it again."]])
    outcome = outcome_of("conductor-ultra", models=models, model=plans)
    assert outcome.verdict in {"right", "wrong"}
    models["bob"] = ScriptedModel([["3"], [ModelError("broken", "cut off")]])
    outcome = outcome_of(
        "conductor-ultra",
        models=models,
        model=ScriptedModel([["B | - | Do it."], ["B | 0 | Again."]]),
    )
    assert (outcome.verdict, outcome.error) == ("failed", "bob: cut off")


def test_nested_runs_add_their_planning_and_their_longest_chain() -> None:
    models = {"ann": Timed("ann", 2.0)}
    by = orchestra(
        models, model=Timed("planner", 0.5, "A | - | Do it."), limits=Limits(recursion=1)
    )
    run, _ = play(by, Question(text="What is 1 + 3?"))
    assert run.trace.steps[-1].worker == SELF
    assert planning_usage(run.trace).calls == 2
    assert critical_path_seconds(run.trace) == 0.5 + 2.0 + 0.5 + 2.0


def test_shared_calls_cost_every_system_their_price(tmp_path: Path) -> None:
    priced = Pool(
        workers=tuple(
            Worker(
                name=name,
                kind="scripted",
                model=name,
                price=Price(input=Decimal(1), output=Decimal(2)),
            )
            for name in ("ann", "bob")
        )
    )
    evaluation = run_evaluation(
        tmp_path / "e",
        orchestra({n: worker_model(n) for n in ("ann", "bob")}, pool=priced),
        [case()],
    )
    ann_cost = evaluation["alone:ann", "c1"].usage.cost
    assert (
        ann_cost == evaluation["best-worker", "c1"].usage.cost == Decimal(5 * 1 + 2 * 2) / 1_000_000
    )
    assert evaluation["conductor", "c1"].usage.unpriced == 1

"""An evaluation's directory: its content, its errors, and what a kill during a write leaves."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.core import events as ev
from conductor_cli.core.errors import UsageError
from conductor_cli.core.pool import Limits, Timeouts
from conductor_cli.core.usage import NO_USAGE
from conductor_cli.evals.runner import evaluate
from conductor_cli.evals.storage import CASES, OUTCOMES, SPEC, TRACES, Evaluation, merge_deltas, spec_differences
from conductor_cli.evals.systems import select_systems
from conductor_cli.models.scripted import ScriptedModel
from tests.evals.kit import case, cases, conductor, make_evaluation, pool, run_all, run_evaluation, spec, untimed
from tests.evals.sample_outcomes import outcomes as made_outcomes
from tests.run.kit import fold, play, sound


def test_spec_and_cases_read_back_equal(tmp_path: Path) -> None:
    """Only their owner can read them, and they contain no header of a worker."""
    secret = pool(options={"headers": {"X-Key": "s3cret"}})
    by = conductor(pool=secret)
    made, systems = make_evaluation(tmp_path / "deep" / "e", by, cases(3), seed=4, version="0.1.0", time="now")
    again = Evaluation(tmp_path / "deep" / "e")
    assert again.cases() == cases(3)
    assert again.spec == made.spec
    assert again.spec == replace(spec(systems, cases(3), by, seed=4, version="0.1.0", time="now"), pool=secret.public())
    assert "s3cret" not in (tmp_path / "deep" / "e" / SPEC).read_text()
    modes = [path.stat().st_mode & 0o077 for path in (tmp_path / "deep" / "e").rglob("*")]
    assert modes == [0] * len(modes)


def test_each_outcome_leads_to_the_events_of_its_run(tmp_path: Path) -> None:
    """Including nested ones."""
    found = run_evaluation(tmp_path / "e", conductor(), cases(2))
    stored = Evaluation(tmp_path / "e")
    for (system, name), outcome in found.items():
        events = list(stored.events(outcome))
        sound(events)
        trace = stored.trace(outcome)
        assert trace == fold(events)
        assert trace.question.text == f"What is {name[1:]} + 3?"
        assert trace.usage == outcome.usage
        assert system == "vote" or trace.answer == outcome.answer


def test_text_deltas_are_merged() -> None:
    """A reply is stored in one piece, and the trace of the run is the same."""
    by = conductor(model=None)
    (system,) = select_systems("moa", by)
    assert system.plan is not None
    plan = system.plan(case(), None)  # type: ignore[arg-type]
    from conductor_cli.core.question import Question

    _, events = play(system.configure(by), Question(text="What is 1 + 3?"), plan=plan)
    stored = list(merge_deltas(events))
    assert len(stored) < len(events)
    sound(stored)
    assert fold(stored) == fold(events)


def test_merged_deltas_come_before_the_next_event() -> None:
    """Also the text of an unfinished plan or step."""
    events: list[ev.Event] = [
        ev.PlanDelta(at=1.0, text="a"), ev.PlanDelta(at=2.0, text="b"),
        ev.StepDelta(at=3.0, step=1, attempt=1, text="x"), ev.StepDelta(at=3.0, step=2, attempt=1, text="y"),
        ev.StepDelta(at=4.0, step=1, attempt=1, text="z", thinking="t"),
        ev.StepStopped(at=5.0, step=1, reason="not_needed", usage=NO_USAGE),
    ]  # fmt: skip
    assert list(merge_deltas(events)) == [
        ev.PlanDelta(at=5.0, text="ab"), ev.StepDelta(at=5.0, step=1, attempt=1, text="xz", thinking="t"),
        ev.StepDelta(at=5.0, step=2, attempt=1, text="y"), events[-1],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"seed": 9}, "seed"), ({"hash": "0", "case_count": 1}, "cases"), ({"systems": ("moa",)}, "systems"),
        ({"conductor": "x", "planner_id": "1"}, "conductor"), ({"profile": "x"}, "profile"),
        ({"pool": pool("ann"), "model_ids": {}}, "workers or cards"),
        ({"model_ids": {"ann": "1", "bob": "3"}}, "model of bob"),
        ({"limits": Limits(steps=2)}, "limits"), ({"timeouts": Timeouts(idle=1.0)}, "timeouts"),
        ({"rehearsal": True}, "workers or cards"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)  # fmt: skip
def test_a_difference_between_two_specs_is_named(change: dict[str, Any], name: str) -> None:
    """In words that the user knows."""
    by = conductor()
    first = spec(select_systems("all", by, cases=cases(2)), cases(2), by, model_ids={"ann": "1", "bob": "2"})
    assert spec_differences(first, first) == ()
    assert spec_differences(first, replace(first, **change)) == (name,)


def test_time_version_and_notes_may_differ() -> None:
    """A continued evaluation keeps its own."""
    by = conductor()
    first = spec(select_systems("all", by, cases=cases(2)), cases(2), by, time="then", version="1", notes=("a",))
    assert spec_differences(first, replace(first, time="now", version="2", notes=(), best_by_card="x")) == ()


def test_replies_of_another_conductor_model_are_not_used(tmp_path: Path) -> None:
    """Two models with the same name at different addresses are told apart."""
    asked = cases(1)
    for who in ("one", "two"):
        model = ScriptedModel(reply=lambda _, who=who: [f"A | - | What {who} wrote."])  # type: ignore[misc]
        found = run_evaluation(tmp_path / who, conductor(model=model), asked, ["conductor"], planner_id=who)
        calls = tmp_path / who / "calls.jsonl"
        (tmp_path / "two").mkdir(exist_ok=True)
        (tmp_path / "two" / "calls.jsonl").write_bytes(calls.read_bytes())
    events = Evaluation(tmp_path / "two").events(found["conductor", "c1"])
    assert [event.subtask for event in events if isinstance(event, ev.StepPlanned)] == ["What two wrote."]


def test_failed_runs_count_as_spent(tmp_path: Path) -> None:
    """Also after a retry; an evaluation is finished when no failed outcome is left."""
    made, _ = make_evaluation(tmp_path / "e", conductor(), cases(2), ["alone:ann"], runs=2)
    with made.writer() as writer:
        for number, sign in enumerate("+!", start=1):
            writer.write_outcome(replace(made_outcomes("alone:ann", sign, cost="0.5")[0], case=f"c{number}"))
    assert (made.spent(), made.is_finished()) == (Decimal(1), False)
    with made.writer() as writer:
        writer.write_outcome(replace(made_outcomes("alone:ann", "-", cost="0.25")[0], case="c2"))
    assert (made.spent(), made.is_finished(), len(made.outcomes())) == (Decimal("1.25"), True, 2)


def test_outcomes_can_be_read_without_the_cases_scorers(tmp_path: Path) -> None:
    """Only the ids of the cases are needed."""
    run_evaluation(tmp_path / "e", conductor(), cases(2), ["alone:ann"])
    path = tmp_path / "e" / CASES
    path.write_text(path.read_text().replace('"number"', '"gone"'))
    assert len(Evaluation(tmp_path / "e").outcomes()) == 2
    path.write_text("{")
    with pytest.raises(UsageError, match="cannot read"):
        Evaluation(tmp_path / "e").outcomes()


def test_a_directory_without_a_valid_spec_is_an_error(tmp_path: Path) -> None:
    """A missing directory, one without a spec, and one with a damaged spec."""
    for content in (None, "", "{", "[]", "{}", '{"source": 1}', "[" * 100_000):
        if content is not None:
            (tmp_path / SPEC).write_text(content)
        with pytest.raises(UsageError):
            Evaluation(tmp_path)


def test_an_unwritable_directory_is_an_error(tmp_path: Path) -> None:
    """There is a file in its place."""
    (tmp_path / "e").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        make_evaluation(tmp_path / "e" / "f", conductor(), cases(1))


def test_outcomes_are_in_the_order_of_systems_and_cases(tmp_path: Path) -> None:
    """Whatever order they ended in."""
    run_evaluation(tmp_path / "e", conductor(), cases(4), ["moa", "alone:ann"], parallel=4)
    path = tmp_path / "e" / OUTCOMES
    lines = [line for line in path.read_text().split("\n") if line]
    path.write_text("\n".join(reversed(lines)))
    order = [(outcome.system, outcome.case) for outcome in Evaluation(tmp_path / "e").outcomes()]
    assert order == [(system, f"c{number}") for system in ("moa", "alone:ann") for number in range(1, 5)]


@pytest.mark.parametrize("file", [OUTCOMES, TRACES, "calls.jsonl"])
def test_a_file_cut_at_any_byte_is_repaired(tmp_path: Path, file: str) -> None:
    """Resuming gives the same outcomes, and their runs can be read."""
    by, asked = conductor(), cases(2)
    run_evaluation(tmp_path / "e", by, asked, ["conductor"], parallel=1)
    stored = Evaluation(tmp_path / "e")
    whole = {name: (tmp_path / "e" / name).read_bytes() for name in (OUTCOMES, TRACES, "calls.jsonl")}
    first = stored.outcomes()
    half = whole[OUTCOMES].index(b"\n", 1)
    second_run = int(first[1].trace.rpartition(":")[2])
    begin = {OUTCOMES: half, TRACES: second_run - 1, "calls.jsonl": 0}[file]
    for cut in range(begin, len(whole[file]), 7 if file == OUTCOMES else 97):
        for name, data in whole.items():
            (tmp_path / "e" / name).write_bytes(data)
        (tmp_path / "e" / file).write_bytes(whole[file][:cut])
        if file != OUTCOMES:  # the outcome is written last
            (tmp_path / "e" / OUTCOMES).write_bytes(whole[OUTCOMES][:half])
        systems = select_systems(["conductor"], by, cases=asked)
        assert len(asyncio.run(run_all(stored, systems, by, parallel=1))) == 1
        assert untimed(stored.outcomes()) == untimed(first)
        assert [stored.trace(outcome).answer for outcome in stored.outcomes()] == [outcome.answer for outcome in first]


def test_a_damaged_run_is_reported(tmp_path: Path) -> None:
    """The error names the system and the case."""
    found = run_evaluation(tmp_path / "e", conductor(), cases(1), ["alone:ann"])
    stored, outcome = Evaluation(tmp_path / "e"), found["alone:ann", "c1"]
    for wrong in (replace(outcome, trace=""), replace(outcome, trace=f"{TRACES}:7")):
        with pytest.raises(UsageError, match="the run of alone:ann on c1 is damaged"):
            stored.trace(wrong)
    (tmp_path / "e" / TRACES).unlink()
    with pytest.raises(UsageError, match="the run of alone:ann on c1 is incomplete"):
        stored.trace(outcome)


def test_a_full_disk_ends_the_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to do, and replies that were received stay stored."""
    from conductor_cli.models.disk import AppendLog

    def refused(log: AppendLog, block: str) -> int:
        if log.path.name == TRACES:
            raise OSError(28, "No space left on device")
        return append(log, block)

    append = AppendLog.append
    monkeypatch.setattr(AppendLog, "append", refused)
    by = conductor()
    stored, systems = make_evaluation(tmp_path / "e", by, cases(2))
    with pytest.raises(UsageError, match="No space left") as error:
        asyncio.run(run_all(stored, systems, by))
    assert error.value.hint == "free some space, then resume the evaluation"
    monkeypatch.undo()
    assert (tmp_path / "e" / "calls.jsonl").stat().st_size > 0
    assert len(run_evaluation(tmp_path / "e", by, cases(2))) == 30


def test_cases_are_stored_with_the_evaluation(tmp_path: Path) -> None:
    """It can be scored again without the original file."""
    make_evaluation(tmp_path / "e", conductor(), cases(2))
    assert [json.loads(line)["id"] for line in (tmp_path / "e" / CASES).read_text().split("\n") if line] == ["c1", "c2"]


def test_the_directory_is_unlocked_after_an_error(tmp_path: Path) -> None:
    """Another process can write then."""
    by = conductor()
    stored, systems = make_evaluation(tmp_path / "e", by, cases(1))

    async def broken_off() -> None:
        async for _ in evaluate(stored, systems, by):
            raise RuntimeError("the reader broke")

    with pytest.raises(RuntimeError):
        asyncio.run(broken_off())
    with stored.writer():
        pass

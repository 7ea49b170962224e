"""An evaluation's directory: what stands in it, what is refused, and what a kill in the middle of a write leaves."""

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
from tests.evals.kit import all_of, case, cases, conductor, evaluated, evaluation, pool, spec, untimed
from tests.evals.made import outcomes as made_outcomes
from tests.run.kit import fold, play, sound


def test_a_directory_says_what_is_evaluated(tmp_path: Path) -> None:
    """Spec and cases are read again as they were given, by their owner only, and no header of a worker is in them."""
    secret = pool(options={"headers": {"X-Key": "s3cret"}})
    by = conductor(pool=secret)
    made, systems = evaluation(tmp_path / "deep" / "e", by, cases(3), seed=4, version="0.1.0", time="now")
    again = Evaluation(tmp_path / "deep" / "e")
    assert again.cases() == cases(3)
    assert again.spec == made.spec
    assert again.spec == replace(spec(systems, cases(3), by, seed=4, version="0.1.0", time="now"), pool=secret.public())
    assert "s3cret" not in (tmp_path / "deep" / "e" / SPEC).read_text()
    modes = [path.stat().st_mode & 0o077 for path in (tmp_path / "deep" / "e").rglob("*")]
    assert modes == [0] * len(modes)


def test_a_trace_folds_to_its_outcome(tmp_path: Path) -> None:
    """Each outcome leads to the whole stream of its run, nested ones too."""
    found = evaluated(tmp_path / "e", conductor(), cases(2))
    kept = Evaluation(tmp_path / "e")
    for (system, name), outcome in found.items():
        events = list(kept.events(outcome))
        sound(events)
        trace = kept.trace(outcome)
        assert trace == fold(events)
        assert trace.question.text == f"What is {name[1:]} + 3?"
        assert trace.usage == outcome.usage
        assert system == "vote" or trace.answer == outcome.answer


def test_pieces_are_put_together() -> None:
    """The text of a reply is stored in one piece; the fold of a run is the same."""
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


def test_pieces_of_a_plan_and_of_what_was_cut_off_are_kept() -> None:
    """Text before a step's end or a failure stands before it."""
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
    """What differs is named in words that the user knows, so that nothing else is mixed in."""
    by = conductor()
    first = spec(select_systems("all", by, cases=cases(2)), cases(2), by, model_ids={"ann": "1", "bob": "2"})
    assert spec_differences(first, first) == ()
    assert spec_differences(first, replace(first, **change)) == (name,)


def test_time_version_and_notes_may_differ() -> None:
    """An evaluation that is continued later keeps its own."""
    by = conductor()
    first = spec(select_systems("all", by, cases=cases(2)), cases(2), by, time="then", version="1", notes=("a",))
    assert spec_differences(first, replace(first, time="now", version="2", notes=(), best_by_card="x")) == ()


def test_replies_of_another_conductor_model_do_not_count(tmp_path: Path) -> None:
    """Two that have the same name, behind two addresses, say, are told apart by what they are."""
    asked = cases(1)
    for who in ("one", "two"):
        model = ScriptedModel(reply=lambda _, who=who: [f"A | - | What {who} wrote."])  # type: ignore[misc]
        found = evaluated(tmp_path / who, conductor(model=model), asked, ["conductor"], planner_id=who)
        calls = tmp_path / who / "calls.jsonl"
        (tmp_path / "two").mkdir(exist_ok=True)
        (tmp_path / "two" / "calls.jsonl").write_bytes(calls.read_bytes())
    events = Evaluation(tmp_path / "two").events(found["conductor", "c1"])
    assert [event.subtask for event in events if isinstance(event, ev.StepPlanned)] == ["What two wrote."]


def test_what_was_spent_counts_what_failed(tmp_path: Path) -> None:
    """Also after it was asked again; an evaluation is finished when nothing is left that failed."""
    made, _ = evaluation(tmp_path / "e", conductor(), cases(2), ["alone:ann"], runs=2)
    with made.writer() as writer:
        for number, sign in enumerate("+!", start=1):
            writer.write_outcome(replace(made_outcomes("alone:ann", sign, cost="0.5")[0], case=f"c{number}"))
    assert (made.spent(), made.is_finished()) == (Decimal(1), False)
    with made.writer() as writer:
        writer.write_outcome(replace(made_outcomes("alone:ann", "-", cost="0.25")[0], case="c2"))
    assert (made.spent(), made.is_finished(), len(made.outcomes())) == (Decimal("1.25"), True, 2)


def test_outcomes_need_no_scorer(tmp_path: Path) -> None:
    """They are known by their cases' ids, also where a scorer of a case is not there."""
    evaluated(tmp_path / "e", conductor(), cases(2), ["alone:ann"])
    path = tmp_path / "e" / CASES
    path.write_text(path.read_text().replace('"number"', '"gone"'))
    assert len(Evaluation(tmp_path / "e").outcomes()) == 2
    path.write_text("{")
    with pytest.raises(UsageError, match="cannot be read"):
        Evaluation(tmp_path / "e").outcomes()


def test_what_is_no_evaluation_is_refused(tmp_path: Path) -> None:
    """A missing directory, one without a spec, and one whose spec is damaged."""
    for content in (None, "", "{", "[]", "{}", '{"source": 1}', "[" * 100_000):
        if content is not None:
            (tmp_path / SPEC).write_text(content)
        with pytest.raises(UsageError):
            Evaluation(tmp_path)


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """A file where the directory should be."""
    (tmp_path / "e").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        evaluation(tmp_path / "e" / "f", conductor(), cases(1))


def test_outcomes_are_in_order(tmp_path: Path) -> None:
    """By system and case, as they were asked, whatever ended first."""
    evaluated(tmp_path / "e", conductor(), cases(4), ["moa", "alone:ann"], parallel=4)
    path = tmp_path / "e" / OUTCOMES
    lines = [line for line in path.read_text().split("\n") if line]
    path.write_text("\n".join(reversed(lines)))
    order = [(outcome.system, outcome.case) for outcome in Evaluation(tmp_path / "e").outcomes()]
    assert order == [(system, f"c{number}") for system in ("moa", "alone:ann") for number in range(1, 5)]


@pytest.mark.parametrize("file", [OUTCOMES, TRACES, "calls.jsonl"])
def test_a_file_cut_at_any_byte_is_mended(tmp_path: Path, file: str) -> None:
    """Whatever a kill left of the last write, the same outcomes come out, and their runs can be read."""
    by, asked = conductor(), cases(2)
    evaluated(tmp_path / "e", by, asked, ["conductor"], parallel=1)
    kept = Evaluation(tmp_path / "e")
    whole = {name: (tmp_path / "e" / name).read_bytes() for name in (OUTCOMES, TRACES, "calls.jsonl")}
    first = kept.outcomes()
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
        assert len(asyncio.run(all_of(kept, systems, by, parallel=1))) == 1
        assert untimed(kept.outcomes()) == untimed(first)
        assert [kept.trace(outcome).answer for outcome in kept.outcomes()] == [outcome.answer for outcome in first]


def test_a_run_that_is_not_there_is_told(tmp_path: Path) -> None:
    """Where somebody damaged the traces, the outcome whose run is broken is named."""
    found = evaluated(tmp_path / "e", conductor(), cases(1), ["alone:ann"])
    kept, outcome = Evaluation(tmp_path / "e"), found["alone:ann", "c1"]
    for wrong in (replace(outcome, trace=""), replace(outcome, trace=f"{TRACES}:7")):
        with pytest.raises(UsageError, match="the run of alone:ann on c1 is damaged"):
            kept.trace(wrong)
    (tmp_path / "e" / TRACES).unlink()
    with pytest.raises(UsageError, match="the run of alone:ann on c1 is incomplete"):
        kept.trace(outcome)


def test_a_full_disk_ends_the_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be written is told with the way out, and the calls that ended are kept for later."""
    from conductor_cli.models.disk import AppendLog

    def refused(journal: AppendLog, block: str) -> int:
        if journal.path.name == TRACES:
            raise OSError(28, "No space left on device")
        return append(journal, block)

    append = AppendLog.append
    monkeypatch.setattr(AppendLog, "append", refused)
    by = conductor()
    kept, systems = evaluation(tmp_path / "e", by, cases(2))
    with pytest.raises(UsageError, match="No space left") as error:
        asyncio.run(all_of(kept, systems, by))
    assert error.value.hint == "free some space, then resume the evaluation"
    monkeypatch.undo()
    assert (tmp_path / "e" / "calls.jsonl").stat().st_size > 0
    assert len(evaluated(tmp_path / "e", by, cases(2))) == 30


def test_cases_are_kept_with_the_evaluation(tmp_path: Path) -> None:
    """An evaluation can be scored again when the file that its cases came from is gone."""
    evaluation(tmp_path / "e", conductor(), cases(2))
    assert [json.loads(line)["id"] for line in (tmp_path / "e" / CASES).read_text().split("\n") if line] == ["c1", "c2"]


def test_the_directory_is_free_after_an_error(tmp_path: Path) -> None:
    """An evaluation that broke off leaves no lock behind."""
    by = conductor()
    kept, systems = evaluation(tmp_path / "e", by, cases(1))

    async def broken_off() -> None:
        async for _ in evaluate(kept, systems, by):
            raise RuntimeError("the reader broke")

    with pytest.raises(RuntimeError):
        asyncio.run(broken_off())
    with kept.writer():
        pass

"""The Python API over real settings and a provider server on this machine."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import conductor_cli
from conductor_cli.core.errors import ConductorUnusable, ConfigError, PolicyError, UsageError
from tests.cli.stage import TWO, Stage, refuses, says, stalls
from tests.server.plain_api import until
from tests.servers import SeenRequest, Wire


def test_a_run_is_iterated_answered_stored_and_replayed(stage: Stage) -> None:
    """The events that are read, the stored trace and its replay are the same."""
    stage.plan = TWO
    with conductor_cli.open() as orchestra:
        run = orchestra.ask("How many?")
        events = list(run)
        assert run.answer == "beta answers"
    assert run.error is None
    assert run.usage.calls == 3
    assert list(conductor_cli.replay(run.id)) == events
    assert conductor_cli.load_trace("last").answer == "beta answers"


def test_one_worker_answers_without_a_planner(stage: Stage) -> None:
    stage.configure(workers=("alpha", "beta"), conductor=None)
    with conductor_cli.open(workers=["alpha"]) as orchestra:
        assert orchestra.ask("How many?").answer == "alpha answers"
    with pytest.raises(ConductorUnusable), conductor_cli.open():
        pass


def test_the_answer_alone_runs_the_question(stage: Stage) -> None:
    """Who reads only the answer need not iterate.

    Several questions may be asked of one conductor.
    """
    with conductor_cli.open(workers=["alpha"], store=False) as orchestra:
        assert [orchestra.ask(text).answer for text in ("One?", "Two?")] == ["alpha answers"] * 2
    with pytest.raises(UsageError):
        conductor_cli.load_trace("last")


def test_a_failed_run_has_an_error_value(stage: Stage) -> None:
    """A run that fails raises nothing by itself.

    The error is a value, and an exception where one is wanted.
    """
    stage.models["alpha"] = refuses(401)
    with conductor_cli.open(workers=["alpha"]) as orchestra:
        run = orchestra.ask("How many?")
        assert (run.answer, run.error and run.error.kind) == ("", "key")
        with pytest.raises(conductor_cli.RunFailed) as raised:
            run.raise_for_error()
    assert raised.value.failure == run.error


def test_what_was_recovered_is_in_the_notices(stage: Stage) -> None:
    """Another worker answered, and the run says which and why in the words of the command line."""
    stage.models["alpha"] = refuses(404)
    with conductor_cli.open() as orchestra:
        run = orchestra.ask("How many?")
        assert (run.answer, run.error) == ("beta answers", None)
        (notice,) = run.notices
    assert notice.startswith("step 1: beta answered instead of alpha; alpha failed: ")


def test_leaving_the_loop_stops_the_run(stage: Stage) -> None:
    stage.models["alpha"] = stalls("never ")
    with conductor_cli.open() as orchestra:
        run = orchestra.ask("How many?")
        for event in run:
            if isinstance(event, conductor_cli.events.StepDelta):
                break
    assert run.error is not None
    assert run.error.kind == "cancelled"


def test_a_run_can_be_iterated_once(stage: Stage) -> None:
    with conductor_cli.open() as orchestra:
        run = orchestra.ask("How many?")
        list(run)
        with pytest.raises(RuntimeError, match="once"):
            list(run)


@pytest.mark.parametrize(("approved", "answer"), [(True, "alpha answers"), (False, "")])
def test_plans_are_approved_by_a_function(stage: Stage, approved: bool, answer: str) -> None:
    """The function gets the plan; a plan that it refuses calls no worker."""
    plans = []

    def approve(plan: conductor_cli.Plan) -> bool:
        plans.append(plan)
        return approved

    with conductor_cli.open(approve=approve) as orchestra:
        assert orchestra.ask("How many?").answer == answer
    assert [step.worker for step in plans[0].steps] == ["alpha"]
    assert bool(stage.asked("alpha")) is approved


def test_a_wrong_setting_or_worker_is_an_exception(stage: Stage) -> None:
    """What prevents a run is raised before anything is called, and leaves no thread behind."""
    with pytest.raises(ConfigError):
        conductor_cli.open(settings={"limits.steps": 99})
    with pytest.raises(PolicyError, match="approve"):
        conductor_cli.open(settings={"policy.approve": True})
    before = {*threading.enumerate()}
    with pytest.raises(UsageError, match="nobody"), conductor_cli.open(workers=["nobody"]):
        pass
    until(lambda: {*threading.enumerate()} <= before, "the end of its threads")


def test_files_system_text_and_schema_go_with_a_question(stage: Stage, tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("the text of the note")
    stage.models["alpha"] = says('{"n": 1}')
    with conductor_cli.open() as orchestra:
        run = orchestra.ask(
            "How many?", files=[note], system="Be brief.", schema={"type": "object"}
        )
        assert run.answer == '{"n": 1}'
        before = len(stage.posts)
        with pytest.raises(UsageError, match="the schema cannot be used: it holds NaN"):
            orchestra.ask("How many?", schema={"maximum": float("inf")})
        with pytest.raises(UsageError, match='the schema cannot be used: at type: "record"'):
            orchestra.ask("How many?", schema={"type": "record"})
    assert run.trace.question.system == "Be brief."
    assert "the text of the note" in str([request.json for request in stage.asked("alpha")])
    assert len(stage.posts) == before


def test_a_schema_that_is_none_is_refused_before_any_call(stage: Stage) -> None:
    """Nothing could be checked by it, so any JSON would pass."""
    stage.models["alpha"] = says('{"n": 1}')
    with conductor_cli.open() as orchestra:
        with pytest.raises(UsageError, match="the schema cannot be used"):
            _ = orchestra.ask("How many?", schema={"type": "text"}).answer
        assert orchestra.ask("How many?", schema={"type": "object"}).answer == '{"n": 1}'
    assert len(stage.asked("alpha")) == 1


def test_a_directory_in_files_follows_no_link_and_sends_no_secret(
    stage: Stage, tmp_path: Path
) -> None:
    (tmp_path / "key.txt").write_text("OUTSIDE")
    directory = tmp_path / "place"
    directory.mkdir()
    (directory / "note.txt").write_text("INSIDE")
    (directory / "id_rsa").write_text("OUTSIDE")
    (directory / "linked.txt").symlink_to("../key.txt")
    with conductor_cli.open() as orchestra:
        run = orchestra.ask("How many?", files=[directory])
        assert run.answer
    assert "INSIDE" in str(stage.server.requests)
    assert "OUTSIDE" not in str(stage.server.requests)
    notices = str(run.trace.notices)
    assert "1 link (" in notices
    assert "1 likely secret (" in notices


def test_runs_at_once_share_what_a_worker_does_in_parallel(stage: Stage) -> None:
    """With `parallel = 1` the second question waits until the first has its answer."""
    stage.configure(workers={"alpha": "parallel = 1"})
    open_calls = 0
    most_calls = 0

    async def count(request: SeenRequest, wire: Wire) -> None:
        nonlocal open_calls, most_calls
        open_calls += 1
        most_calls = max(most_calls, open_calls)
        await asyncio.sleep(0.2)  # so long each call could meet another
        open_calls -= 1
        await says("done")(request, wire)

    stage.models["alpha"] = count

    async def main() -> list[str]:
        async with conductor_cli.open_async(store=False) as orchestra:
            runs = [orchestra.ask(f"Question {number}?") for number in range(3)]
            return list(await asyncio.gather(*(run.wait() for run in runs)))

    assert asyncio.run(main()) == ["done"] * 3
    assert most_calls == 1


def test_waiting_raises_what_went_wrong(stage: Stage) -> None:
    stage.models["alpha"] = refuses(401)

    async def main() -> None:
        async with conductor_cli.open_async(workers=["alpha"], store=False) as orchestra:
            await orchestra.ask("How many?").wait()

    with pytest.raises(conductor_cli.RunFailed):
        asyncio.run(main())


def test_the_earlier_name_of_the_demo_works_on_and_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(DeprecationWarning, match="rehearsal is called demo now"):
        earlier = conductor_cli.open_async(rehearsal=True)
    assert earlier.settings.rehearsal
    assert conductor_cli.open_async(demo=True).settings.rehearsal

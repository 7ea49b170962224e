"""A whole examination, with members and conductors that answer by rule."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path

import pytest

from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.plan_formats.native import ACCEPT
from conductor_cli.core.usage import Usage
from conductor_cli.rehearsal.players import CHECKER, REFUSAL, YES
from tests.training.rehearsal.reader import readings
from training.rehearsal import train
from training.rehearsal.asking import Reply
from training.rehearsal.examination import Examination, Planners
from training.rehearsal.exercises import GENERALIST, RehearsalExercise
from training.rehearsal.figures import TABLE, Measured
from training.rehearsal.rollouts import DrawnPools, build_rollouts, plan_text

COUNT = 4


class Readers:
    """Members that work out a step from its words, whatever their skills; a whole question of several steps is refused.

    A check says YES. With a strength below 1 nothing fails.
    """

    async def member(self, strengths: Mapping[str, float], prompt: str, seed: int) -> str:
        del seed
        if GENERALIST in strengths:
            return REFUSAL
        *before, subtask, _ = prompt.splitlines()
        if subtask == "s: check it":
            return YES if CHECKER in strengths else REFUSAL
        seen = [line.removeprefix("a: ") for line in before if line.startswith("a: ")]
        return min(readings(subtask.removeprefix("s: "), seen), default=REFUSAL)

    async def ask(self, name: str, prompt: str, *, seed: int | None = None) -> Reply:
        """The checker in a vote."""
        del name, prompt, seed
        return Reply(YES, 0.9)


class Gold:
    """A conductor that writes the true plan, and accepts an answer that was checked."""

    features: frozenset[str] = frozenset()

    def __init__(self, rollouts: DrawnPools) -> None:
        self._rollouts = rollouts
        self._plans: dict[str, str] = {}

    def learn(self, exercises: Sequence[RehearsalExercise]) -> None:
        for item in exercises:
            self._plans[self._rollouts.prompt(item)[0]["content"]] = plan_text(item)

    async def write(self, request: Request) -> Reply:
        prompt = request.messages[0].content
        checked = prompt.splitlines()[-1].startswith(f"{YES} ")
        return Reply(ACCEPT if checked else self._plans.get(prompt, "no plan"), 0.0, 30, 10)

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        written = await self.write(request)
        yield Chunk(text=written.text)
        yield Chunk(usage=Usage(calls=1, tokens_in=30, tokens_out=10), finish="stop")

    async def close(self) -> None: ...


class Watched(Examination):
    """Tells its conductor the true plan of each question that is drawn."""

    def draw(self, *settings: object, **changes: object) -> tuple[RehearsalExercise, ...]:
        found = super().draw(*settings, **changes)  # type: ignore[arg-type]
        self.planners.conductor.learn(found)  # type: ignore[attr-defined]
        return found


@pytest.fixture(scope="module")
def values() -> dict[str, list[float]]:
    """What is measured of a conductor that is always right."""
    readers = Readers()
    rollouts = build_rollouts(readers)
    planners = Planners(conductor=Gold(rollouts), cold=Gold(rollouts))  # type: ignore[arg-type]
    parts: list[str] = []
    found = asyncio.run(Watched(rollouts, readers, planners, None, COUNT, 1).measure(parts.append))  # type: ignore[arg-type]
    assert len(parts) == 7
    return found


def test_a_conductor_that_is_always_right_meets_the_bounds(values: Mapping[str, list[float]]) -> None:
    """It is as good as the true plans, whose parts are all right; a cold start without a plan gets nothing."""
    assert values["conductor"] == values["oracle"] == values["valid"] == values["split"] == values["routed"]
    assert sum(values["conductor"]) == COUNT
    assert values["cold"] == [0.0] * COUNT
    assert values["two rounds"] == values["one round"] == [1.0] * COUNT
    estimates = {it.figure.what: it for it in Measured.of_one([values], count=COUNT).estimates(TABLE)}
    assert estimates["held-out phrasings"].passes
    assert estimates["held-out phrasings, plans checked as in the demo"].value == 1.0
    assert estimates["unseen pools: share of best routing"].value == 1.0
    assert not estimates["gained by a second round"].passes


class Forgetful(Gold):
    """A conductor whose likeliest plan lacks the last step. The next one is the true plan."""

    async def write(self, request: Request) -> Reply:
        written = await super().write(request)
        if request.rank:
            return written
        return written._replace(text=written.text.rpartition("\n")[0])


def test_a_plan_with_a_fault_is_written_again_where_plans_are_checked() -> None:
    """Without the check, the plan is run as it is and all answers are wrong; with it, the next plan is right."""
    readers = Readers()
    rollouts = build_rollouts(readers)
    planners = Planners(conductor=Forgetful(rollouts))  # type: ignore[arg-type]
    examination = Watched(rollouts, readers, planners, None, COUNT, 1)  # type: ignore[arg-type]
    exercises = examination.draw(split="test", checked=0.0)
    assert not any(item.right for item in asyncio.run(examination.plan(exercises)))
    assert asyncio.run(examination.plan_with_check(exercises)) == [1.0] * COUNT


def test_costs_count_the_conductor_and_every_worker(values: Mapping[str, list[float]]) -> None:
    """The conductor's own tokens are among its tokens; a mixture asks each member and one more."""
    assert min(values["tokens"]) > 40
    assert min(values["Mixture-of-Agents calls"]) >= 3
    assert values["reflection calls"] == [3.0] * COUNT
    assert values["best worker by card calls"] == [1.0] * COUNT


def test_the_table_of_several_conductors_is_printed(
    values: dict[str, list[float]], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missed bound makes exit code 1; so does a file that is no evaluation, with another one."""
    for name in ("1.json", "2.json"):
        (tmp_path / name).write_text(Measured.of_one([values], count=COUNT).to_json())
    monkeypatch.setattr(sys, "argv", ["train", "merge", str(tmp_path / "1.json"), str(tmp_path / "2.json")])
    with pytest.raises(SystemExit) as ended:
        train.main()
    assert ended.value.code == 1
    table = capsys.readouterr().out
    assert "| held-out phrasings | 1.000 | 1.000 to 1.000 | 1.000, 1.000 | at least 0.80, every seed" in table
    assert "| gained by a second round | 0.000 |" in table
    monkeypatch.setattr(sys, "argv", ["train", "merge", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        train.main()
    assert ended.value.code == 2

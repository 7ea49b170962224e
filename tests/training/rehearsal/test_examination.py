"""The table of a trained conductor: of doubles that plan and answer by rule, and of the shipped files."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from typer.testing import CliRunner

from conductor_cli.core.chat import Request
from conductor_cli.models.base import Script, ScriptedModel
from tests.training.rehearsal.solvers import Solvers, plan_text
from training.rehearsal.examination import Examination
from training.rehearsal.exercises import RehearsalExercise
from training.rehearsal.rollouts import build_rollouts
from training.rehearsal.train import app
from training.stages import MISSED

SOLVERS = Solvers([])


class Told(Examination):
    """Tells its model the true plan of each question that is drawn, and its members the answers."""

    def draw(self, *settings: Any, **changes: Any) -> tuple[RehearsalExercise, ...]:
        found = super().draw(*settings, **changes)
        self.model.plans |= {self.rollouts.prompt(item)[0]["content"]: plan_text(item) for item in found}  # type: ignore[attr-defined]
        SOLVERS.learn(item.problem for item in found)
        return found


class Planner(ScriptedModel):
    """Writes the true plan; a forgetful one writes it without its last step first."""

    def __init__(self, *, forgetful: bool) -> None:
        super().__init__(reply=self._plan)
        self.plans: dict[str, str] = {}
        self._forgetful = forgetful

    def _plan(self, request: Request) -> Script:
        plan = self.plans[request.messages[0].content]
        return [plan.rpartition("\n")[0] if self._forgetful and not request.rank else plan]


@pytest.mark.parametrize(("forgetful", "alone"), [(False, 1.0), (True, 0.0)])
def test_a_plan_with_a_fault_is_written_again_where_plans_are_checked(forgetful: bool, alone: float) -> None:
    """A conductor that is always right meets every bound; one that forgets the last step needs the check of plans."""
    examination = Told(rollouts=build_rollouts(SOLVERS), model=Planner(forgetful=forgetful), count=4, seed=1)
    rows = {row.what: row for row in asyncio.run(examination.rows())}
    assert {name: row.value for name, row in rows.items()} == {
        "held-out phrasings": alone, "known phrasings": alone, "best routing (oracle)": 1.0,
        "held-out phrasings, plans checked": 1.0, "everybody on offer, plans checked": 1.0,
        "a skill never trained: share of best routing": alone,
    }  # fmt: skip
    assert all(row.passes for row in rows.values()) != forgetful


@pytest.mark.parametrize(
    ("command", "rows"),
    [("evaluate", ("held-out phrasings", "best routing (oracle)")), ("table", ("specialists refuse",))],
)
def test_the_shipped_files_are_measured_by_the_commands(command: str, rows: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [command, "--count", "5"])
    assert done.exit_code in {0, MISSED}
    for row in rows:
        assert next(float(line[46:54]) for line in done.output.splitlines() if line.startswith(row)) > 0.5

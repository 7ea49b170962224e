"""`--approve`: a plan is shown with its estimated cost, and the person at the terminal decides about it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

from conductor_cli.app.data_flow import describe_offer
from conductor_cli.cli.keypress import Keyboard, NoAnswer, can_ask
from conductor_cli.cli.output import print_error
from conductor_cli.cli.plan_editor import edit_text, parse_edited_plan, plan_as_text
from conductor_cli.cli.plan_output import planned_flow_lines
from conductor_cli.core.errors import ConductorError, UsageError
from conductor_cli.core.plan import Decision, Plan
from conductor_cli.run import Run
from conductor_cli.views import OutputContext
from conductor_cli.views.base import Stderr
from conductor_cli.views.console import Printer
from conductor_cli.views.plan_offer import plan_lines
from conductor_cli.views.text_layout import BLANK

GAP: Final = "   "
"""Spaces between two choices on a line."""


class _PlanDropped(Exception):
    """The person does not want this run."""


def check_terminal() -> None:
    """Raise `UsageError` where nobody can be asked."""
    if not can_ask():
        raise UsageError(
            "there is no terminal on which to approve the plan",
            hint='conductor plan "…" > plan.json, read it, then: conductor run plan.json --yes',
        )


class PlanApprover:
    """Asks about each plan that a run offers. Opens the terminal; close it."""

    def __init__(self, context: OutputContext) -> None:
        self._printer = Printer(Stderr(sys.stderr), context)
        self._keyboard = Keyboard()

    def decide(self, run: Run) -> Decision | None:
        """What the person decides about the plan on offer; None drops it. Blocks, so call it on its own thread."""
        try:
            self._printer.print([BLANK, *plan_lines(describe_offer(run), self._printer.screen), BLANK])
            while True:
                decision = self._ask(run)
                if decision is not None:
                    return decision
        except (NoAnswer, _PlanDropped):
            return None

    def wake(self) -> None:
        """Nobody waits for an answer any more. From any thread."""
        self._keyboard.wake()

    def close(self) -> None:
        self._keyboard.close()

    def _ask(self, run: Run) -> Decision | None:
        """Have one thing chosen and do it. None: the person is asked again, also after a key that means nothing.

        The keys y and n work too, since many people type them at any question.
        """
        edit = ["e: edit it"] if run.may_edit_plan else []
        replan = ["p: plan again"] if run.may_replan else []
        self._print_choices(["r or Enter: run it", *edit, *replan, "f: show who reads what", "d: drop it"])
        match self._keyboard.key().lower():
            case "r" | "y" | "\r" | "\n":
                return Decision()
            case "e" if edit:
                return self._edit(run)
            case "p" if replan:
                return self._plan_again()
            case "f":
                self._printer.print([BLANK, *planned_flow_lines(run, self._printer.screen), BLANK])
            case "d" | "n" | "q":
                raise _PlanDropped
        return None

    def _plan_again(self) -> Decision | None:
        screen = self._printer.screen
        question = "What should be different? One line; an empty one goes back."
        self._printer.print([((line, "plain"),) for line in screen.wrap(question, screen.width)])
        feedback = self._keyboard.line().strip()
        return Decision(feedback=feedback) if feedback else None

    def _edit(self, run: Run) -> Decision | None:
        """Open the plan in the editor until it can be run, or the person gives up and keeps the one on offer."""
        assert isinstance(run.trace.plan, Plan)
        # After a mistake the editor opens on the text that the person wrote, not on the original.
        given = text = plan_as_text(run.question, run.trace.plan, run.config.limits)
        while True:
            try:
                text = edit_text(text, os.environ, self._keyboard.file, lambda: self._keyboard.woken)
                if self._keyboard.woken:
                    raise NoAnswer
                plan = parse_edited_plan(text, given, run.problem_with)
            except UsageError as error:
                print_error(error)
                if not self._edit_again():
                    return None
            except ConductorError as error:
                print_error(error)
                return None
            else:
                return Decision(edited=plan) if plan.steps != run.trace.plan.steps else None

    def _edit_again(self) -> bool:
        """Whether to go on editing a plan that cannot be run; else the one on offer stays."""
        self._print_choices(["e or Enter: keep editing", "b: back to the plan as it was", "d: drop it"])
        while (key := self._keyboard.key().lower()) not in "e\r\nb":
            if key in "dq":
                raise _PlanDropped
        return key != "b"

    def _print_choices(self, names: Sequence[str]) -> None:
        """Print the choices, as many on a line as fit."""
        lines, width = [""], self._printer.screen.width
        for name in names:
            joined = f"{lines[-1]}{GAP}{name}" if lines[-1] else name
            if len(joined) <= width:
                lines[-1] = joined
            else:
                lines.append(name)
        self._printer.print([((line, "question"),) for line in lines])

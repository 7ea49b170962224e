"""`--approve`: a plan is shown with its estimate, and the person at the terminal says what becomes of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from conductor_cli.cli.keypress import Keyboard, NoAnswer, can_ask
from conductor_cli.cli.output import print_error
from conductor_cli.core.errors import ConductorError, UsageError
from conductor_cli.views.base import Stderr
from conductor_cli.views.console import Printer
from conductor_cli.views.text_layout import BLANK

if TYPE_CHECKING:
    from conductor_cli.run import Run
    from conductor_cli.run.approval import Decision
    from conductor_cli.views import OutputContext
    from conductor_cli.views.text_layout import Line

GAP: Final = "   "
"""What stands between two choices."""
PLAN_DROPPED: Final = "the plan was dropped"

_Choice = tuple[str, str, "Callable[[Run], Decision | None]"]
"""Its keys, what it is called, and what it does: None means that the person is asked again."""


class Dropped(Exception):
    """The person wants nothing of this run."""


def check_terminal() -> None:
    """Raise `UsageError` where nobody can be asked."""
    if not can_ask():
        raise UsageError(
            "there is no terminal on which the plan could be approved",
            hint='conductor plan "…" > plan.json, read it, then: conductor run plan.json --yes',
        )


@contextmanager
def open_approver(around: OutputContext) -> Iterator[PlanApprover]:
    """Somebody to ask while a run goes on."""
    approver = PlanApprover(around)
    try:
        yield approver
    finally:
        approver.close()


class PlanApprover:
    """Asks about each plan that a run offers. Opens the terminal; close it."""

    def __init__(self, around: OutputContext) -> None:
        self._printer = Printer(Stderr(sys.stderr), around)
        self._keyboard = Keyboard()

    def decide(self, run: Run) -> Decision | None:
        """The person's word on the plan offered; None drops it. Blocks, so call it on a thread of its own."""
        try:
            self._show(run)
            while True:
                decision = self._choose(run, self._choices(run))
                if decision is not None:
                    return decision
        except (NoAnswer, Dropped):
            return None

    def wake(self) -> None:
        """Nobody waits for an answer any more. From any thread."""
        self._keyboard.wake()

    def close(self) -> None:
        self._keyboard.close()

    # What can be chosen

    def _choices(self, run: Run) -> list[_Choice]:
        """Also y and n do what they say: many type them wherever something is asked."""
        from conductor_cli.run.approval import may_edit, may_plan_again

        choices: list[_Choice] = [("ry\r\n", "r or Enter: run it", _take)]
        choices += [("e", "e: edit it", self._edit)] if may_edit(run) else []
        choices += [("p", "p: plan again", self._again)] if may_plan_again(run) else []
        return [*choices, ("f", "f: who reads what", self._flow), ("dnq", "d: drop it", _drop)]

    def _choose(self, run: Run, choices: list[_Choice]) -> Decision | None:
        """Have one of them chosen and do it. A key that means nothing shows them again."""
        self._say_choices([name for _, name, _ in choices])
        key = self._keyboard.key().lower()
        action = next((action for keys, _, action in choices if key in keys), None)
        return action(run) if action is not None else None

    def _again(self, run: Run) -> Decision | None:
        from conductor_cli.run.approval import Replan

        del run
        self._say("What should be different? One line; an empty one goes back.", "plain")
        feedback = self._keyboard.line().strip()
        return Replan(feedback=feedback) if feedback else None

    def _edit(self, run: Run) -> Decision | None:
        from conductor_cli.cli.plan_editor import edited, plan_in, text_of
        from conductor_cli.core.plan import Plan
        from conductor_cli.run.approval import Edit, problem_of

        assert isinstance(run.trace.plan, Plan)
        given = text = text_of(run.question, run.trace.plan, run.setting.limits)
        while True:
            try:
                text = edited(text, os.environ, self._keyboard.file, lambda: self._keyboard.woken)
                if self._keyboard.woken:
                    raise NoAnswer
                plan = plan_in(text, given, lambda plan: problem_of(run, plan))
            except UsageError as error:
                print_error(error)
                if not self._once_more():
                    return None
            except ConductorError as error:
                print_error(error)
                return None
            else:
                return Edit(plan=plan) if plan.steps != run.trace.plan.steps else None

    def _once_more(self) -> bool:
        """Whether a plan that was edited wrongly is edited on; else the one offered stands."""
        self._say_choices(["e or Enter: edit on", "b: back to the plan as it was", "d: drop it"])
        while (key := self._keyboard.key().lower()) not in "e\r\nb":
            if key in "dq":
                raise Dropped
        return key != "b"

    def _flow(self, run: Run) -> Decision | None:
        from conductor_cli.cli.plan_output import planned_flow_lines

        self._print([BLANK, *planned_flow_lines(run, self._printer.screen), BLANK])
        return None

    # What is shown

    def _show(self, run: Run) -> None:
        from conductor_cli.app.data_flow import describe_offer
        from conductor_cli.views.plan_offer import plan_lines

        self._print([BLANK, *plan_lines(describe_offer(run), self._printer.screen), BLANK])

    def _say(self, text: str, style: str) -> None:
        screen = self._printer.screen
        self._print([((line, style),) for line in screen.wrap(text, screen.width)])

    def _say_choices(self, names: Sequence[str]) -> None:
        """What can be chosen, as many in a line as fit there."""
        lines, width = [""], self._printer.screen.width
        for name in names:
            joined = f"{lines[-1]}{GAP}{name}" if lines[-1] else name
            if len(joined) <= width:
                lines[-1] = joined
            else:
                lines.append(name)
        self._print([((line, "question"),) for line in lines])

    def _print(self, lines: Iterable[Line]) -> None:
        self._printer.print(lines)


def _take(run: Run) -> Decision | None:
    from conductor_cli.run.approval import Approve

    del run
    return Approve()


def _drop(run: Run) -> Decision | None:
    del run
    raise Dropped

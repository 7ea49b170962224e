"""Steps of a plan that repeat an earlier one. Pure.

A weak planner may write the same step again and again. A repetition asks the same worker for the same thing with the
same access list, so it costs a call and adds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from conductor_cli.core.plan import Step
from conductor_cli.core.plan_formats.base import ParsedStep

LOOP: Final = 3
"""So many repetitions one after another are a planner that would go on like this up to its limit of tokens."""


class RepeatFilter:
    """Takes the steps of a plan in order, leaves out those that repeat an earlier one, and renumbers the others.

    `standing` are the steps that stand already. `left_out` has the numbers of repetitions, as the planner wrote them.
    With `keep_last` the last step is never left out.
    """

    def __init__(self, standing: Sequence[Step] = (), *, keep_last: bool = False) -> None:
        self.left_out: list[int] = []
        self._kept = list(standing)
        self._keep_last = keep_last
        self._numbers = {number: number for number in range(len(standing) + 1)}
        """The new number of each step, by the number that the planner wrote. 0 is the given answer."""
        self._in_a_row = 0

    @property
    def is_loop(self) -> bool:
        """Whether the planner only repeats itself by now, so that its plan can end with the newest step."""
        return self._in_a_row >= LOOP and not self._keep_last

    def take(self, item: ParsedStep) -> ParsedStep | None:
        """The step under its new number, with an access list of new numbers; None where it is left out.

        The last step is left out only where it repeats the newest one: then that one gives the answer.
        """
        access = tuple(dict.fromkeys(self._numbers[number] for number in item.step.access))
        step = replace(item.step, access=access)
        number = self._number_of(step)
        is_newest = number == len(self._kept)
        if number and (not item.last or (is_newest and not self._keep_last)):
            self._numbers[item.number] = number
            self.left_out.append(item.number)
            self._in_a_row = self._in_a_row + 1 if is_newest else 0
            return None
        self._in_a_row = 0
        self._kept.append(step)
        self._numbers[item.number] = len(self._kept)
        return replace(item, number=len(self._kept), step=step)

    def _number_of(self, step: Step) -> int:
        """The number of the same step among those that are kept; 0 for none. White space and order do not count."""
        for number, kept in enumerate(self._kept, start=1):
            same_words = kept.subtask.split() == step.subtask.split()
            if same_words and kept.worker == step.worker and {*kept.access} == {*step.access}:
                return number
        return 0

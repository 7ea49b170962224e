"""What a plan must not lose of its question."""

from __future__ import annotations

import pytest

from conductor_cli.core.plan import GIVEN, Step, lost_operand


def numbers(text: str) -> list[str]:
    return [word for word in text.split() if word.isdecimal()]


@pytest.mark.parametrize(
    ("subtasks", "lost"),
    [(("7 plus 3", "it minus 3"), ""), (("7 plus 3",), "3"), (("3 plus 3",), "7"), (("3 3", "7"), ""), ((), "7")],
)
def test_each_operand_is_named_as_often_as_in_the_question(subtasks: tuple[str, ...], lost: str) -> None:
    """In any step, and in any order."""
    steps = [Step(worker="ann", subtask=subtask) for subtask in subtasks]
    assert lost_operand("7 plus 3 minus 3", steps, numbers) == lost


def test_what_was_given_may_hold_an_operand() -> None:
    """A step that sees an earlier answer need not name what led to it."""
    assert lost_operand("7 plus 3", [Step(worker="ann", subtask="double it", access=(GIVEN,))], numbers) == ""

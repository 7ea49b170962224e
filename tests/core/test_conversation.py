"""How much of a conversation goes along."""

from __future__ import annotations

from conductor_cli.core.follow_up import first_turn_to_send
from conductor_cli.core.question import Turn
from conductor_cli.core.usage import CHARS_PER_TOKEN


def turns(*tokens: float) -> tuple[Turn, ...]:
    return tuple(Turn(question="", answer="x" * int(count * CHARS_PER_TOKEN)) for count in tokens)


def test_a_conversation_that_fits_goes_along_whole() -> None:
    """As long as all turns fit, the first of them stays the first."""
    assert first_turn_to_send((), 0, 100) == 0
    assert first_turn_to_send(turns(40, 40), 0, 100) == 0


def test_a_long_conversation_is_cut_to_half_and_then_grows_again() -> None:
    """After a cut there is room, so that the next turns only add to what is sent."""
    assert first_turn_to_send(turns(40, 40, 20, 20), 0, 100) == 2
    assert first_turn_to_send(turns(40, 40, 20, 20, 40), 2, 100) == 2


def test_the_last_turn_goes_along_however_long_it_is() -> None:
    """A single turn beyond the limit is left to where the prompt is made."""
    assert first_turn_to_send(turns(10, 500), 0, 100) == 1
    assert first_turn_to_send(turns(500), 0, 100) == 0

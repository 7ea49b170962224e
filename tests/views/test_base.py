"""The streams that views write to."""

from __future__ import annotations

import pytest

from conductor_cli.views.base import Stderr, Stdout, encodable, is_terminal
from tests.views.terminals import Sink


def test_characters_that_the_encoding_lacks_become_question_marks() -> None:
    """The rest of the text is unchanged."""
    assert encodable("né 漢", "latin-1") == "né ?"
    sink = Sink(encoding="ascii")
    Stdout(sink).write("né")
    assert sink.getvalue() == "n?"


def test_writing_to_a_closed_standard_error_is_ignored() -> None:
    """It does nothing."""
    sink = Sink(terminal=True)
    sink.close()
    stderr = Stderr(sink)
    assert stderr.write("x") == 0
    stderr.flush()


def test_errors_of_standard_error_are_ignored() -> None:
    """Errors of standard output are raised."""

    class Broken(Sink):
        def write(self, text: str) -> int:
            raise BrokenPipeError

        def flush(self) -> None:
            raise BrokenPipeError

    assert Stderr(Broken()).write("x") == 0
    Stderr(Broken()).flush()
    with pytest.raises(BrokenPipeError):
        Stdout(Broken()).write("x")
    with pytest.raises(BrokenPipeError):
        Stdout(Broken()).flush()


def test_a_closed_stream_is_not_a_terminal() -> None:
    """Nobody can look at it."""
    sink = Sink(terminal=True)
    assert is_terminal(sink)

    class Closed(Sink):
        def isatty(self) -> bool:
            raise ValueError

    assert not is_terminal(Closed())

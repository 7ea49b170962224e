"""The streams that views write to."""

from __future__ import annotations

import pytest

from conductor_cli.views.base import Stderr, Stdout, encodable, is_terminal
from tests.views.terminals import Sink


def test_what_an_encoding_lacks_becomes_a_question_mark() -> None:
    """The rest of the text is left as it is."""
    assert encodable("né 漢", "latin-1") == "né ?"
    sink = Sink(encoding="ascii")
    Stdout(sink).write("né")
    assert sink.getvalue() == "n?"


def test_a_closed_standard_error_is_nobody_s_error() -> None:
    """Writing to it does nothing."""
    sink = Sink(terminal=True)
    sink.close()
    stderr = Stderr(sink)
    assert stderr.write("x") == 0
    stderr.flush()


def test_a_broken_standard_error_is_nobody_s_error() -> None:
    """What the system refuses is dropped; on standard output it is raised."""

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


def test_a_closed_stream_is_no_terminal() -> None:
    """Nobody looks at a stream that is closed."""
    sink = Sink(terminal=True)
    assert is_terminal(sink)

    class Closed(Sink):
        def isatty(self) -> bool:
            raise ValueError

    assert not is_terminal(Closed())

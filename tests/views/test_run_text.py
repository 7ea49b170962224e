"""What all views say about a run.

Commands to go on, access in words, problems in one short line.
"""

from __future__ import annotations

from typing import Any

import pytest

from conductor_cli.core.errors import Failure
from conductor_cli.core.events import RunFailed, RunFinished
from conductor_cli.core.fast_copies import fast_replace
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import Usage
from conductor_cli.views.run_text import MAX_MESSAGE, describe_access, problem_lines, quote_text
from tests.traces.make import parallel, started
from tests.views.terminals import trace_of


def test_the_resume_command_raises_the_limit() -> None:
    error = Failure(
        kind="limit", message="stopped: limit of $0.02", reason="limit_cost", suggested_limit="0.04"
    )
    trace = Trace(run="01JDQ7W3ZK", state="failed", error=error)
    line = "  ask it again: conductor ask --resume 01JDQ7W3ZK --max-cost 0.04"
    assert problem_lines(trace, stored=True) == [
        "conductor: stopped: limit of $0.02 (--max-cost)",
        line,
    ]
    assert problem_lines(trace, stored=False)[1:] == ["  raise it with --max-cost 0.04"]
    of_a_day = fast_replace(
        trace,
        error=Failure(kind="limit", message="spent", reason="limit_cost_day", suggested_limit="3"),
    )
    assert problem_lines(of_a_day, stored=True)[1:] == [
        "  wait until midnight, or run: conductor config set limits.cost_day 3",
        line.partition(" --max")[0],
    ]


@pytest.mark.parametrize(
    ("access", "expected"),
    [
        ((), "reads question and files only"),
        ((1,), "reads 1"),
        ((1, 3), "reads 1 and 3"),
        ((0, 1, 2), "reads the given answer, 1 and 2"),
    ],
)
def test_access_lists_are_described_in_words(access: tuple[int, ...], expected: str) -> None:
    assert describe_access(access) == expected


def test_quoted_text_is_one_short_line() -> None:
    assert quote_text("two\nlines") == '"two lines"'
    assert len(quote_text("x" * 300)) == 102


def test_a_partial_answer_without_a_reason_is_reported() -> None:
    assert problem_lines(Trace(), stored=True) == []
    trace = trace_of([started(), RunFinished(at=1.0, answer="x", usage=Usage(), partial=True)])
    assert problem_lines(trace, stored=True) == [
        "conductor: partial answer: not every step could finish"
    ]


@pytest.mark.parametrize(
    ("kind", "stored", "reason", "is_offered"),
    [
        ("cancelled", True, "", True),
        ("terminated", True, "", True),
        ("cancelled", True, "output_closed", False),
        ("conductor", True, "", False),
        ("cancelled", False, "", False),
    ],
)
def test_a_run_stopped_before_a_step_can_be_asked_again(
    kind: Any, stored: bool, reason: Any, is_offered: bool
) -> None:
    error = Failure(kind=kind, message="why", reason=reason)
    trace = trace_of([started(), RunFailed(at=1.0, error=error, usage=Usage())])
    line = "  ask it again: conductor ask --resume 01JDQ7W3ZK"
    assert (problem_lines(trace, stored=stored)[-1] == line) is is_offered
    # Killed while it was planned
    assert problem_lines(trace_of([started()]), stored=True)[-1] == line


def test_problems_are_short_whatever_a_provider_wrote() -> None:
    long = "much\ntext " * 500
    error = Failure(kind="worker", message=long, hint=long)
    trace = trace_of([*parallel()[:58], RunFailed(at=9.0, error=error, usage=Usage())])
    lines = problem_lines(trace, stored=True)
    assert len(lines) == 3
    assert max(len(line) for line in lines) < MAX_MESSAGE + 20
    assert not [line for line in lines if "\n" in line]

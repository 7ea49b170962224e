"""The tree of a run as lines: guides, marks or words, figures, and what is left out first."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pytest

from conductor_cli.core import events as ev
from conductor_cli.core.plan import Step
from conductor_cli.core.trace import Trace, apply_event
from conductor_cli.views.run_tree import MARKS, NodeState, TreeLayout, live_lines, run_tree, tree_lines
from conductor_cli.views.styled_lines import STYLES
from conductor_cli.views.text_layout import Screen, cells, line_texts
from tests.traces.make import ANSWER, COUNTED, RUNS, Writer, parallel, pieces, started, substitute

Run = Callable[[], list[ev.Event]]


def trace_of(events: list[ev.Event]) -> Trace:
    trace = Trace()
    for event in events:
        trace = apply_event(trace, event)
    return trace


def texts(events: list[ev.Event], layout: TreeLayout) -> list[str]:
    return line_texts(tree_lines(run_tree(trace_of(events)), layout))


def chain() -> list[ev.Event]:
    """Steps of which each reads the one before."""
    run = Writer(started())
    run.plan(*(Step(worker="gpt", subtask=f"Do part {n}.", access=(n - 1,) if n > 1 else ()) for n in range(1, 6)))
    return run.events


def test_every_state_has_a_mark_and_a_colour() -> None:
    """A mark alone is enough, since colours may be missing."""
    assert set(MARKS) == set(get_args(NodeState))
    assert set(MARKS) <= set(STYLES)


def test_a_finished_run() -> None:
    """The plan's order, the figures in columns, the beginning of each response, and no answer."""
    assert texts(parallel(), TreeLayout(Screen(width=100))) == [
        "? How many primes below 1000 end in 7, and what is their sum?          qwen2.5-7b-q4_k_m plans, auto",
        "├─ 1 math-worker                                                           ✓ 8.2 s   131 tokens",
        "│    List the primes below 1000 whose last digit is 7 and count them.",
        "│  │ The primes are 7, 17, 37, 47, 67, 97, 107 and so on up to 997.",
        "│  │ There are 46 of them.",
        "└─ 2 gpt                                                                   ✓ 5.0 s   48 tokens",
        "     Find, without a list, how many primes below 1000 there are for each last digit.",
        "   │ Of the 168 primes below 1000, 40 end in 1, 42 in 3, 46 in 7 and 38 in 9; 2 and 5 stand alone.",
        "   └─ 3 claude  (reads 1 and 2)                                            ✓ 0.8 s   41 tokens",
        "        Compare both counts, add the primes up, and answer in two sentences.",
    ]


@pytest.mark.parametrize("width", [1, 5, 12, 20, 40, 60, 80, 100])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("run", [*RUNS, chain])
def test_no_line_is_wider_than_the_screen(run: Run, width: int, encoding: str) -> None:
    """Also of a chain of five steps on the smallest screens, and with hostile texts."""
    screen = Screen(width=width, encoding=encoding)
    for line in tree_lines(run_tree(trace_of(run())), TreeLayout(screen)):
        assert cells(line) <= width
        assert "".join(text for text, _ in line).encode(encoding, "strict")


def test_without_marks_there_are_words() -> None:
    """For encodings without them, and for screens that are read out."""
    events = parallel()[:40]
    for screen in (Screen(encoding="ascii"), Screen(words=True)):
        shown = texts(events, TreeLayout(screen))
        assert all(line.isascii() for line in shown)
        heads = [line.split() for line in shown if "1 math-worker" in line or "3 claude" in line]
        assert heads[0][:3] == ["+-", "1", "math-worker"]
        assert "running" in heads[0]
        assert heads[1][-4:] == ["waits", "for", "1,", "2"]


def test_a_chain_is_deep() -> None:
    """Each step is indented under the one that it reads."""
    heads = [line for line in texts(chain(), TreeLayout(Screen(width=80))) if "gpt" in line]
    assert [line.index("└") for line in heads] == [0, 3, 6, 9, 12]
    assert heads[1].endswith("○ waits for 1")


def test_a_narrow_screen_shows_the_time_only() -> None:
    """Tokens from 60 columns on; the name and the number are always there."""
    for width, shown in ((40, False), (60, True), (80, True)):
        line = next(line for line in texts(parallel(), TreeLayout(Screen(width=width))) if "1 math-worker" in line)
        assert "8.2 s" in line
        assert ("131 tokens" in line) is shown


def test_attempts_and_responses_are_under_their_step() -> None:
    """The attempt, then the response of the one that took over."""
    shown = texts(substitute(), TreeLayout(Screen(width=100), ended=1))
    at = next(n for n, line in enumerate(shown) if "1 gemini-flash" in line)
    rest = "\n".join(shown[at + 1 :])
    assert rest.index("✗ attempt 1") < rest.index("! the prompt") < rest.index("│ The primes") < rest.index("2 gpt")


def test_the_answer_is_not_in_the_tree() -> None:
    """It is printed below; while it is written, it streams under its step unless it is written below."""
    answer = ANSWER.splitlines()[0]
    assert answer not in "\n".join(texts(parallel(), TreeLayout(Screen())))
    streaming = parallel()[:-2]
    assert answer in "\n".join(texts(streaming, TreeLayout(Screen())))
    below = "\n".join(texts(streaming, TreeLayout(Screen(), answering="3")))
    assert answer not in below
    assert "↓ answers below" in below


@pytest.mark.parametrize("height", [3, 6, 8, 10, 14, 24, 50])
def test_what_matters_least_is_left_out_first(height: int) -> None:
    """Lines of responses go before steps; with room for all steps, none is missing."""
    run = Writer(started())
    run.plan(*(Step(worker=name, subtask=f"Say {name}.") for name in ("claude", "gpt", "math-worker")), pace=0.0)
    text = "\n".join(pieces(COUNTED))
    run.say(0.1, s1=text, s2=text, s3=text)
    events = run.events
    trace = trace_of(events)
    lines = line_texts(live_lines(run_tree(trace), trace, trace.at, TreeLayout(Screen(height=height))))
    assert len(lines) <= height - 1
    heads = [line for line in lines if line.startswith(("├─", "└─"))]
    assert len(heads) == 3 or height < 6
    bars = [sum(line.startswith(f"{guide}│ ") for line in lines) for guide in ("│  ", "   ")]
    assert bars[0] == 2 * bars[1]

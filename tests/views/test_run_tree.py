"""The tree of a run: what hangs where, what each node says, and how it looks as lines."""

from __future__ import annotations

import itertools
import re
from typing import get_args

import pytest

from conductor_cli.core import events as ev
from conductor_cli.core.plan import Step
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import Usage
from conductor_cli.views.html import html_page
from conductor_cli.views.markdown_page import run_markdown
from conductor_cli.views.run_tree import (
    MARKS,
    Node,
    NodeState,
    TreeLayout,
    find_node,
    live_lines,
    run_tree,
    tree_lines,
)
from conductor_cli.views.text_layout import Screen, cells, line_texts
from conductor_cli.views.theme import STYLES
from conductor_cli.views.trace_text import page_text, trace_lines
from tests.traces.make import (
    COUNTED,
    RUNS,
    Run,
    Writer,
    cancelled,
    limit,
    parallel,
    pieces,
    started,
    tools,
)
from tests.views.terminals import trace_of


def shape(node: Node) -> dict[str, object]:
    """The numbers of the steps below a node."""
    return {child.number: shape(child) for child in node.children if child.number}


def step_of(trace: Trace, number: str) -> Node:
    node = find_node(run_tree(trace), number)
    assert node is not None
    return node


@pytest.mark.parametrize(
    ("reads", "expected"),
    [
        ([()], {"1": {}}),
        ([(), (1,), (2,), (3,), (4,)], {"1": {"2": {"3": {"4": {"5": {}}}}}}),
        ([(), (), (1, 2)], {"1": {}, "2": {"3": {}}}),
        ([(), (), (1,), (2, 3)], {"1": {"3": {"4": {}}}, "2": {}}),
        ([(), (), (), (), (1, 2, 3, 4)], {"1": {}, "2": {}, "3": {}, "4": {"5": {}}}),
        ([(), (1,), (1,), (1,), (3, 2)], {"1": {"2": {}, "3": {"5": {}}, "4": {}}}),
    ],
)
def test_a_step_hangs_under_the_last_one_it_reads(
    reads: list[tuple[int, ...]], expected: dict[str, object]
) -> None:
    """Steps that read nothing hang under the question.

    Side by side they keep the order of the plan.
    """
    run = Writer(started())
    run.plan(*(Step(worker="gpt", subtask="Work.", access=access) for access in reads))
    assert shape(run_tree(trace_of(run.events))) == expected


def test_a_revised_plan_says_why_and_shows_what_was_given_up() -> None:
    first, *others = parallel()
    planned = next(n for n, event in enumerate(others) if isinstance(event, ev.PlanReady)) + 1
    events = [
        first,
        *others[:planned],
        ev.PlanRevised(at=9.0, step=1, workers=("a", "b"), left_out=(3,), first=4),
    ]
    events.append(ev.StepStopped(at=9.0, step=3, reason="plan_revised", usage=Usage()))
    root = run_tree(trace_of(events))
    note = next(child for child in root.children if child.kind == "note")
    assert (
        note.label
        == "step 1 could not be done by a or b; the planner was asked for the rest of the plan"
    )
    assert (root.state, root.children[-1].label) == ("planning", "planning")
    assert (step_of(trace_of(events), "3").state, step_of(trace_of(events), "3").status) == (
        "skipped",
        "given up",
    )


def test_a_part_of_an_answer_is_no_success() -> None:
    states = [
        (trace_of(run()).outcome(), run_tree(trace_of(run())).state) for run in (cancelled, limit)
    ]
    assert states == [("cancelled", "stopped"), ("partial", "failed")]


def test_nothing_goes_on_where_the_process_is_gone() -> None:
    lines = page_text(trace_lines(trace_of(parallel()[:20])))
    assert "interrupted" in lines.partition("PLAN")[2].partition("ANSWER")[0]
    assert "●" not in lines
    assert "●" in page_text(trace_lines(trace_of(parallel()[:20]), live=True))


def test_nothing_goes_on_in_an_exported_run_whose_process_is_gone() -> None:
    trace = trace_of(parallel()[:20])
    for export in (html_page, run_markdown):
        shown = export(trace)
        live = export(trace, live=True)
        assert "●" not in shown
        assert not re.search(r"\brunning\b", re.sub(r"(?s)<style.*</style>", "", shown))
        assert shown.count("interrupted") > 2
        assert "●" in live
        assert re.search(r"\brunning\b", live)


def test_only_the_step_that_gave_the_answer_is_marked() -> None:
    assert [node.number for node in run_tree(trace_of(parallel())).walk() if node.answers] == ["3"]
    assert [node.number for node in run_tree(trace_of(cancelled())).walk() if node.answers] == ["2"]


def test_a_step_says_which_tools_it_waits_for() -> None:
    events = tools()
    first = next(n for n, event in enumerate(events) if isinstance(event, ev.ToolReturned))
    thought = ev.StepDelta(at=4.0, step=1, attempt=2, thinking="Which file?")
    events = [*events[: first - 2], thought, *events[first - 2 :]]
    remarks = [step_of(trace_of(events[:end]), "1").remark for end in range(first - 1, first + 3)]
    assert [remark.removeprefix("attempt 2 of 3").strip(", ") for remark in remarks] == [
        "",
        "calls files.read_file",
        "calls 2 tools",
        "calls web.fetch",
    ]
    children = step_of(trace_of(events[: first + 1]), "1").children
    assert [child.state for child in children if child.kind == "tool"] == [
        "stopped",
        "running",
        "running",
    ]


def test_many_rejected_plans_are_few_branches() -> None:
    events: list[ev.Event] = [
        ev.PlanRejected(
            at=1.0, attempt=at, text="?", problem=f"problem {at}", hint="", usage=Usage()
        )
        for at in range(1, 17)
    ]
    labels = [
        node.label
        for node in run_tree(trace_of([started(), *events])).walk()
        if node.state == "rejected"
    ]
    assert labels == [
        "plan, attempt 1: problem 1",
        "plan, attempts 2 to 15: not valid either",
        "plan, attempt 16: problem 16",
    ]
    few = [
        node.label
        for node in run_tree(trace_of([started(), *events[:3]])).walk()
        if node.state == "rejected"
    ]
    assert few == [f"plan, attempt {at}: problem {at}" for at in (1, 2, 3)]


def texts(events: list[ev.Event], layout: TreeLayout) -> list[str]:
    return line_texts(tree_lines(run_tree(trace_of(events)), layout))


def chain() -> list[ev.Event]:
    """Steps of which each reads the one before."""
    run = Writer(started())
    run.plan(
        *(
            Step(worker="gpt", subtask=f"Do part {n}.", access=(n - 1,) if n > 1 else ())
            for n in range(1, 6)
        )
    )
    return run.events


def test_every_state_has_a_mark_and_a_colour() -> None:
    assert set(MARKS) == set(get_args(NodeState))
    assert set(MARKS) <= set(STYLES)


@pytest.mark.parametrize("run", [*RUNS, chain])
def test_no_line_is_wider_than_the_screen(run: Run) -> None:
    root = run_tree(trace_of(run()))
    for width, encoding in itertools.product([1, 12, 40, 60, 100], ["utf-8", "ascii"]):
        for line in tree_lines(root, TreeLayout(Screen(width=width, encoding=encoding))):
            assert cells(line) <= width
            assert "".join(text for text, _ in line).encode(encoding, "strict")


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_the_figures_of_a_stopped_step_are_whole_or_left_out(width: int) -> None:
    stopped = Node(
        kind="step",
        state="stopped",
        number="1",
        name="gpt",
        label="Say it.",
        status="cancelled",
        figures=("1.0 s", "89 tokens", "unpriced"),
    )
    [line] = line_texts(tree_lines(stopped, TreeLayout(Screen(width=width))))
    assert "\N{HORIZONTAL ELLIPSIS}" not in line
    assert "cancelled" in line
    if width >= 80:
        assert line.endswith("cancelled, 1.0 s, 89 tokens")


@pytest.mark.parametrize("height", [3, 6, 8, 10, 14, 24, 50])
def test_what_matters_least_is_left_out_first(height: int) -> None:
    run = Writer(started())
    run.plan(
        *(Step(worker=name, subtask=f"Say {name}.") for name in ("claude", "gpt", "math-worker")),
        pace=0.0,
    )
    text = "\n".join(pieces(COUNTED))
    run.say(0.1, s1=text, s2=text, s3=text)
    events = run.events
    trace = trace_of(events)
    lines = line_texts(
        live_lines(run_tree(trace), trace, trace.at, TreeLayout(Screen(height=height)))
    )
    assert len(lines) <= height - 1
    heads = [line for line in lines if line.startswith(("├─", "└─"))]
    assert len(heads) == 3 or height < 6
    bars = [sum(line.startswith(f"{guide}│ ") for line in lines) for guide in ("│  ", "   ")]
    assert bars[0] == 2 * bars[1]

"""The tree of a run: what hangs where, and what each node says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from conductor_cli.core import events as ev
from conductor_cli.core.plan import Step
from conductor_cli.core.trace import Trace, apply_event
from conductor_cli.core.usage import Usage
from conductor_cli.views.run_tree import Node, find_node, run_tree, step_node
from tests.traces.make import (
    ANSWER,
    RUNS,
    Writer,
    cancelled,
    failed,
    nested,
    parallel,
    rejected,
    retry,
    started,
    substitute,
    tools,
)

Run = Callable[[], list[ev.Event]]


def trace_of(events: list[ev.Event]) -> Trace:
    trace = Trace()
    for event in events:
        trace = apply_event(trace, event)
    return trace


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
def test_a_step_hangs_under_the_last_step_that_it_reads(
    reads: list[tuple[int, ...]], expected: dict[str, object]
) -> None:
    """Steps that read nothing hang under the question; side by side they keep the order of the plan."""
    run = Writer(started())
    run.plan(*(Step(worker="gpt", subtask="Work.", access=access) for access in reads))
    assert shape(run_tree(trace_of(run.events))) == expected


@pytest.mark.parametrize("run", RUNS)
def test_every_step_is_in_the_tree_once(run: Run) -> None:
    """At every moment of a run."""
    trace = Trace()
    for event in run():
        trace = apply_event(trace, event)
        numbers = [node.number for node in run_tree(trace).walk() if node.kind == "step"]
        assert sorted(number for number in numbers if "." not in number) == [str(step.number) for step in trace.steps]
        assert len(set(numbers)) == len(numbers)


def test_the_root_is_the_question_with_its_planner() -> None:
    """The planning model is named without the hash of its file."""
    root = run_tree(trace_of(parallel()))
    assert (root.kind, root.state) == ("question", "done")
    assert root.label == "How many primes below 1000 end in 7, and what is their sum?"
    assert root.remark == "qwen2.5-7b-q4_k_m plans, auto"
    given = trace_of([replace(started(), conductor="plan file")])
    assert run_tree(given).remark == "the plan is given, auto"


def test_a_step_says_what_it_reads_waits_for_and_took() -> None:
    """Its figures are known when it has ended."""
    events = parallel()
    planned = next(n for n, event in enumerate(events) if isinstance(event, ev.PlanReady))
    waiting = step_of(trace_of(events[: planned + 1]), "3")
    assert (waiting.state, waiting.status, waiting.figures) == ("waiting", "waits for 1, 2", ("", ""))
    done = step_of(trace_of(events), "3")
    assert (done.state, done.remark, done.figures) == ("done", "reads 1 and 2", ("0.8 s", "41 tokens"))


def test_a_revised_plan_says_why_and_shows_what_was_given_up() -> None:
    """Above the steps stands who failed at which; the steps that were never begun stay in the tree."""
    first, *others = parallel()
    planned = next(n for n, event in enumerate(others) if isinstance(event, ev.PlanReady)) + 1
    events = [first, *others[:planned], ev.PlanRevised(at=9.0, step=1, workers=("a", "b"), left_out=(3,), first=4)]
    events.append(ev.StepStopped(at=9.0, step=3, reason="plan_revised", usage=Usage()))
    root = run_tree(trace_of(events))
    note = next(child for child in root.children if child.kind == "note")
    assert note.label == "step 1 could not be done by a or b; the planner was asked for the rest of the plan"
    assert (root.state, root.children[-1].label) == ("planning", "planning")
    assert (step_of(trace_of(events), "3").state, step_of(trace_of(events), "3").status) == ("skipped", "given up")


def test_only_the_step_that_gave_the_answer_is_marked() -> None:
    """Of a partial answer it is not the last one."""
    assert [node.number for node in run_tree(trace_of(parallel())).walk() if node.answers] == ["3"]
    assert [node.number for node in run_tree(trace_of(cancelled())).walk() if node.answers] == ["2"]


def test_failed_attempts_are_branches() -> None:
    """Each says when and why it failed and what followed; a substitute says whom it replaces."""
    (attempt,) = (child for child in step_of(trace_of(retry()), "1").children if child.kind == "attempt")
    assert attempt.label == "attempt 1, after 0.9 s: 429 Too Many Requests, waited 12 s"
    step = step_of(trace_of(substitute()), "1")
    assert (step.name, step.remark) == ("gemini-flash", "instead of math-worker")
    assert [child.label for child in step.children if not child.number] == [
        (
            "attempt 1, math-worker, after 1.0 s: the key was refused (401), gemini-flash takes over; "
            "hint: conductor keys set openai"
        ),
        "the prompt was trimmed from 9,120 to 8,000 tokens",
    ]
    broken = step_of(trace_of(failed()), "1")
    assert [child.kind for child in broken.children] == ["attempt", "attempt", "attempt", "step"]
    assert (broken.state, broken.children[3].status) == ("failed", "the run failed")


def test_calls_of_tools_are_branches() -> None:
    """In the order of the events, with arguments and result; a call that broke off with its attempt has no result."""
    happened = [child for child in step_of(trace_of(tools()), "1").children if not child.number]
    assert [(child.kind, child.state, child.name) for child in happened] == [
        ("tool", "stopped", "files.list"), ("attempt", "failed", ""), ("tool", "done", "files.read_file"),
        ("tool", "failed", "web.fetch"),
    ]  # fmt: skip
    assert (happened[0].status, happened[0].figures) == ("no result", ())
    assert (happened[2].label, happened[2].figures) == ('{"path": "notes.md"}', ("0.2 s",))
    assert happened[3].text == "the address does not answer"


def test_a_step_says_which_tools_it_waits_for() -> None:
    """While calls run they are shown as running; the thoughts before them are over."""
    events = tools()
    first = next(n for n, event in enumerate(events) if isinstance(event, ev.ToolReturned))
    thought = ev.StepDelta(at=4.0, step=1, attempt=2, thinking="Which file?")
    events = [*events[: first - 2], thought, *events[first - 2 :]]
    remarks = [step_of(trace_of(events[:end]), "1").remark for end in range(first - 1, first + 3)]
    assert [remark.removeprefix("attempt 2 of 3").strip(", ") for remark in remarks] == [
        "", "calls files.read_file", "calls 2 tools", "calls web.fetch",
    ]  # fmt: skip
    children = step_of(trace_of(events[: first + 1]), "1").children
    assert [child.state for child in children if child.kind == "tool"] == ["stopped", "running", "running"]


def test_a_retry_is_counted_down() -> None:
    """The text of the failed attempt is not shown any more."""
    events = retry()
    broke = next(n for n, event in enumerate(events) if isinstance(event, ev.StepFailed))
    trace = trace_of(events[: broke + 1])
    node = find_node(run_tree(trace, trace.at + 5.0), "1")
    assert node is not None
    assert (node.state, node.status, node.text) == ("retrying", "again in 7 s", "")


def test_many_rejected_plans_are_few_branches() -> None:
    """The first, the last, and how many were between them. Few are shown each."""
    events: list[ev.Event] = [
        ev.PlanRejected(at=1.0, attempt=at, text="?", problem=f"problem {at}", hint="", usage=Usage())
        for at in range(1, 17)
    ]
    labels = [node.label for node in run_tree(trace_of([started(), *events])).walk() if node.state == "rejected"]
    assert labels == [
        "plan, attempt 1: problem 1", "plan, attempts 2 to 15: not valid either", "plan, attempt 16: problem 16",
    ]  # fmt: skip
    few = [node.label for node in run_tree(trace_of([started(), *events[:3]])).walk() if node.state == "rejected"]
    assert few == [f"plan, attempt {at}: problem {at}" for at in (1, 2, 3)]


def test_a_nested_run_is_a_branch_with_numbers_of_its_own() -> None:
    """Its plan and notes are branches of the step that it is; its answer is not shown twice."""
    root = run_tree(trace_of(nested()))
    assert shape(root) == {"1": {"2": {"2.1": {"2.2": {}}}}}
    assert [node.label for node in root.walk() if node.kind == "note"] == ["the given answer is kept"]
    assert [node.text for node in root.walk() if ANSWER in node.text and not node.answers] == []
    assert step_node(trace_of(nested()).steps[1], trace_of(nested())).number == "2"


def test_a_rejected_plan_is_a_branch() -> None:
    """With the reason, and what the planner wrote."""
    node = next(node for node in run_tree(trace_of(rejected())).walk() if node.state == "rejected")
    assert node.label.startswith("plan, attempt 1: step 2 names a worker that is not in the pool: 'Q'")
    assert node.text == "Q | 1 | Check the list."

"""Which views a command gets, and how two views share a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import get_args

import pytest

from conductor_cli.core import events as ev
from conductor_cli.core.errors import Failure
from conductor_cli.core.plan import Step
from conductor_cli.core.trace import apply_event, fold
from conductor_cli.core.usage import Usage
from conductor_cli.views.base import Stderr, Stdout
from conductor_cli.views.output_formats import (
    OUTPUTS,
    PROGRESS,
    OutputContext,
    OutputName,
    ProgressName,
    RunDisplay,
    ShownProgress,
    choose_progress,
    open_views,
    uses_color,
)
from conductor_cli.views.plain import AnswerStream, PlainSink
from conductor_cli.views.run_text import describe_notice
from tests.traces.make import ANSWER, RUNS, Run, Writer, limit, parallel, started
from tests.views.terminals import Drawn, Sink, emulated, play, trace_of


def around(*, out: bool, err: bool, quiet: bool = False, **environ: str) -> OutputContext:
    return OutputContext(
        stdout=Sink(terminal=out),
        stderr=Sink(terminal=err),
        environ=environ,
        quiet=quiet,
        width=80,
        height=24,
    )


def played(
    output: OutputName, progress: ProgressName, context: OutputContext, events: list[ev.Event]
) -> tuple[str, str]:
    """What stood on standard output and standard error at the end."""
    play(open_views(output, progress, context), events)
    assert isinstance(context.stdout, Sink)
    assert isinstance(context.stderr, Sink)
    return context.stdout.getvalue(), context.stderr.getvalue()


@pytest.mark.parametrize(
    ("output", "progress", "context", "expected"),
    [
        ("answer", "auto", around(out=True, err=True), "tree"),
        ("json", "auto", around(out=False, err=True), "tree"),
        ("jsonl", "auto", around(out=True, err=True), "none"),
        ("answer", "auto", around(out=False, err=False), "notices"),
        ("answer", "auto", around(out=False, err=False, quiet=True), "none"),
        ("answer", "auto", around(out=True, err=True, TERM="dumb"), "plain"),
        ("answer", "auto", around(out=True, err=True, ACCESSIBLE="1"), "plain"),
        ("answer", "auto", around(out=True, err=True, ACCESSIBLE="0"), "tree"),
        ("answer", "auto", around(out=False, err=False, ACCESSIBLE="1"), "notices"),
        ("answer", "plain", around(out=False, err=False), "plain"),
        ("answer", "tree", around(out=False, err=False), "tree"),
        ("answer", "none", around(out=True, err=True), "none"),
        ("jsonl", "tree", around(out=True, err=True), "plain"),
        ("jsonl", "tree", around(out=False, err=True), "tree"),
        ("answer", "tree", around(out=True, err=True, quiet=True), "none"),
    ],
)
def test_progress_follows_output_and_terminal(
    output: OutputName, progress: ProgressName, context: OutputContext, expected: ShownProgress
) -> None:
    assert choose_progress(output, progress, context) == expected


def test_every_option_has_a_view() -> None:
    assert set(OUTPUTS) == set(get_args(OutputName))
    assert set(PROGRESS) == set(get_args(ShownProgress))
    assert set(get_args(ProgressName)) == {*PROGRESS, "auto"} - {"notices"}


@pytest.mark.parametrize("run", RUNS)
def test_without_a_terminal_only_notices_and_problems_are_written(run: Run) -> None:
    events = run()
    trace = trace_of(events)
    _, remarks = played("answer", "auto", around(out=False, err=False), events)
    _, err = played("answer", "none", around(out=False, err=False), events)
    last = events[-1]
    well = isinstance(last, ev.RunFinished) and not last.partial and last.error is None
    assert (err == "") == well
    assert len(err.splitlines()) <= 3
    assert remarks.endswith(err)
    notices = remarks.removesuffix(err).splitlines()
    assert [line.removeprefix("conductor: ") for line in notices] == [
        describe_notice(item) for item in trace.all_notices()
    ]


def test_a_notice_is_one_line() -> None:
    inner = ev.NestedEvent(at=0.3, step=2, event=ev.Notice(at=0.1, text="inside"))
    notices: list[ev.Event] = [
        ev.StepPlanned(at=0.0, step=2, worker="self", subtask="do", access=(), last=True),
        ev.Notice(at=0.1, text="two\nlines\x1b[1m"),
        ev.Notice(at=0.2, text="of a step", step=2),
        inner,
    ]
    _, err = played(
        "json", "auto", around(out=False, err=False), [parallel()[0], *notices, parallel()[-1]]
    )
    assert err == (
        "conductor: note: two lines\n"
        "conductor: step 2, note: of a step\n"
        "conductor: step 2, note: its nested run: inside\n"
    )


def test_a_partial_answer_says_how_to_resume() -> None:
    assert played("answer", "auto", around(out=False, err=False), limit()) == (
        f"{ANSWER[:36]}\n",
        (
            "conductor: partial answer: the cost limit of $0.02 is used up (--max-cost)\n"
            "  resume: conductor ask --resume 01JDQ7W3ZK --max-cost 0.04\n"
        ),
    )
    context = OutputContext(stdout=Sink(), stderr=Sink(), environ={}, stored=False)
    assert "resume" not in played("answer", "none", context, limit())[1]


@pytest.mark.parametrize("progress", ["tree", "plain"])
def test_on_one_terminal_only_the_answer_is_written_while_it_streams(
    progress: ProgressName,
) -> None:
    sink = Sink(terminal=True)
    view = open_views(
        "answer",
        progress,
        OutputContext(stdout=sink, stderr=sink, environ={}, color="never", width=80, height=24),
    )
    marks = []
    for event, trace in fold(parallel()):
        view.show(event, trace)
        if isinstance(event, ev.StepDelta) and event.step == 3:
            marks.append(len(sink.getvalue()))
    view.close()
    written = sink.getvalue()
    assert ANSWER.endswith(written[marks[0] : marks[-1]])
    assert "\x1b" not in written[marks[0] - len("46 primes") :]
    assert written.count("46 primes below 1000 end in 7") == 1
    assert emulated(written, 120, 24)[-1].startswith(("3 steps", "run finished"))


def test_after_a_failed_answer_the_tree_counts_down_to_the_next_attempt() -> None:
    drawn = Drawn(shared=True)
    view = RunDisplay(drawn.tree, AnswerStream(lambda: PlainSink(Stdout(drawn.sink))), shared=True)

    def show(run: Writer) -> str:
        for event in run.events:
            drawn.clock.now = event.at
            drawn.trace = apply_event(drawn.trace, event)
            view.show(event, drawn.trace)
        run.events = []
        drawn.clock.now += 2.0
        drawn.tree.draw()
        return "\n".join(drawn.screen())

    run = Writer(started())
    run.plan(Step(worker="gpt", subtask="Answer."), pace=0.0)
    run.say(0.5, s1="Half")
    lost = Failure(kind="unreachable", message="the line went dead")
    run.add(ev.StepFailed(at=run.at, step=1, attempt=1, error=lost, retry_in=6.0, usage=Usage()))
    assert "↻ again in 4 s" in show(run)
    run.start(1, attempt=2)
    run.say(0.1, attempt=2, s1="The whole answer.")
    run.finish(1, "The whole answer.", Usage(), attempt=2)
    run.end("The whole answer.", usage=Usage())
    show(run)
    view.close()
    screen = "\n".join(drawn.screen())
    counts = [
        screen.count(text)
        for text in ("Half", "went dead", "The whole answer.", "1 gpt", "again in 4")
    ]
    assert counts == [1, 1, 1, 2, 0]


def test_a_broken_standard_output_does_not_keep_the_tree_from_closing() -> None:
    class Closed(Sink):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    err = Sink(terminal=True)
    context = OutputContext(stdout=Closed(), stderr=err, environ={}, width=80, height=24)
    view = open_views("answer", "tree", context)
    *events, last = parallel()
    for event, trace in fold(events):
        view.show(event, trace)
    with pytest.raises(BrokenPipeError):
        view.show(last, trace)
    view.close()
    assert err.getvalue().count("\x1b[?25h") == 1


@pytest.mark.parametrize(
    ("color", "environ", "expected"),
    [
        ("auto", {}, None),
        ("auto", {"NO_COLOR": "1"}, False),
        ("auto", {"NO_COLOR": ""}, None),
        ("auto", {"CLICOLOR_FORCE": "1"}, True),
        ("auto", {"FORCE_COLOR": "1"}, True),
        ("auto", {"CLICOLOR_FORCE": "0"}, None),
        ("auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        ("always", {"NO_COLOR": "1"}, True),
        ("never", {"FORCE_COLOR": "1"}, False),
    ],
)
def test_the_color_option_wins_over_the_environment(
    color: str, environ: dict[str, str], expected: bool | None
) -> None:
    context = OutputContext(stdout=Sink(), stderr=Sink(), environ=environ, color=color)  # type: ignore[arg-type]
    assert uses_color(context) is expected


def test_rich_is_loaded_only_for_the_tree() -> None:
    code = """
import io, sys
from conductor_cli.views.output_formats import OUTPUTS, OutputContext, open_views
for output in OUTPUTS:
    for progress in ("plain", "none"):
        open_views(output, progress, OutputContext(stdout=io.StringIO(), stderr=io.StringIO(), \
environ={}))
print("rich" in sys.modules)
open_views("answer", "tree", OutputContext(stdout=io.StringIO(), stderr=io.StringIO(), environ={}))
print("rich" in sys.modules)
"""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ
    )
    assert done.stdout.split() == ["False", "True"]


@pytest.mark.parametrize("closed", [False, True])
def test_only_standard_output_tells_that_nobody_reads_it(closed: bool) -> None:
    """A closed stream is no terminal; characters that an encoding lacks become question marks."""
    sink = Sink(terminal=True, encoding="ascii")
    Stdout(sink).write("né")
    assert sink.getvalue() == "n?"

    class Broken(Sink):
        def write(self, text: str) -> int:
            raise ValueError if closed else BrokenPipeError

        def flush(self) -> None:
            raise ValueError if closed else BrokenPipeError

        def isatty(self) -> bool:
            raise ValueError

    stderr = Stderr(Broken())
    stdout = Stdout(Broken())
    assert (stderr.write("x"), stderr.flush(), stderr.terminal) == (0, None, False)  # type: ignore[func-returns-value]
    for use in (stdout.flush, lambda: stdout.write("x")):
        with pytest.raises(ValueError if closed else BrokenPipeError):
            use()

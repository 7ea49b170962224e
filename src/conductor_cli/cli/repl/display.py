"""What the slash commands print."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Final

from conductor_cli.app.data_flow import describe_offer
from conductor_cli.cli.output import print_line, print_notice, print_page, print_table
from conductor_cli.config import Setting, Settings, format_value
from conductor_cli.core.follow_up import check_step_exists
from conductor_cli.core.formatting import format_cost, format_count
from conductor_cli.core.question import File
from conductor_cli.core.recovery import describe_left_out
from conductor_cli.core.table import Column
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import NO_USAGE
from conductor_cli.models.presets import recipient_of
from conductor_cli.run import Conductor, Run
from conductor_cli.store.fast_list import terminal_width
from conductor_cli.views import OutputContext
from conductor_cli.views.base import Stdout
from conductor_cli.views.console import Printer, page_screen
from conductor_cli.views.plan_offer import plan_lines
from conductor_cli.views.run_text import describe_file, question_line
from conductor_cli.views.text_layout import BLANK
from conductor_cli.views.trace_text import step_lines, trace_lines

KEYS: Final = (
    ("Enter", "ask"),
    ("Alt-Enter, or \\ Enter", "start a new line; pasted text keeps its lines"),
    ("Ctrl-X Ctrl-E", "continue in your editor ($VISUAL, $EDITOR)"),
    ("Up, Ctrl-R", "find earlier messages"),
    ("/, Tab", "list the commands, complete a command, worker, step, run or file"),
    ("Ctrl-C", "stop the run and keep finished steps; at the prompt: clear the line"),
    ("Ctrl-D, Ctrl-Z", "leave, suspend"),
)
MODES: Final = {
    "mini": "one worker, without a plan",
    "auto": "a plan of up to five steps",
    "ultra": "the conductor reasons first and reviews the answer",
}


def print_help(commands: Iterable[tuple[str, str]]) -> None:
    """Print the commands, then the keys."""
    print_table(("COMMAND", ""), list(commands))
    print_line()
    print_table(("KEY", ""), KEYS)


def print_workers(conductor: Conductor) -> None:
    """Print the pool, and which of its workers cannot be asked."""
    rows = [[worker.name, recipient_of(worker), worker.about or worker.model_name] for worker in conductor.pool]
    print_table((Column("WORKER", shrink=12), Column("READ BY", shrink=12, drop=1), "ABOUT"), rows)
    for name, failure in conductor.unavailable.items():
        print_notice(describe_left_out(name, failure))


def print_offer(run: Run, context: OutputContext) -> None:
    """Print a plan that waits to be run: who does what, who reads it, what it may cost."""
    printer = Printer(Stdout(context.stdout), context)
    printer.print([BLANK, *plan_lines(describe_offer(run), printer.screen), BLANK])


def print_run(run: Trace, context: OutputContext, step: int | None = None) -> None:
    """Print a run on a page, or one step of it with its whole prompt and answer. Raises `UsageError`."""
    if step is not None:
        check_step_exists(run, step)
    screen = page_screen(terminal_width(sys.stdout), sys.stdout.encoding, os.environ)
    print_page(trace_lines(run, screen=screen) if step is None else step_lines(run, step, screen=screen), context)


def print_how_to_finish(run: Trace) -> None:
    """Print how to finish a run that broke off, if it did."""
    if run.error is not None and len(run.done()) < len(run.steps):
        first = "/limits NAME VALUE, then " if run.error.kind == "limit" else ""
        print_notice(f"  to finish it here: {first}/redo")


def print_cost(runs: Sequence[Trace]) -> None:
    """Print what each run has used, and the total."""
    rows = [(str(number), run.usage, shorten_question(run)) for number, run in enumerate(runs, start=1)]
    rows.append(("all", sum((run.usage for run in runs), NO_USAGE), ""))
    cells = [[run, f"{usage.calls:,}", f"{usage.tokens:,}", format_cost(usage), text] for run, usage, text in rows]
    columns = (Column("RUN"), Column("CALLS", drop=2), Column("TOKENS", drop=1), Column("COST", shrink=10))
    print_table((*columns, Column("QUESTION", shrink=16)), cells)
    print_notice("for other days and runs: conductor cost")


def print_limits(known: Sequence[Setting], settings: Settings) -> None:
    """Print every limit of a run and where it is from."""
    rows = []
    for limit in known:
        origin = settings.origins[limit.name].replace("command line", "this chat")
        rows.append([limit.name.removeprefix("limits."), format_value(settings[limit.name]), origin, limit.help])
    print_table((Column("LIMIT"), Column("VALUE"), Column("FROM", drop=1), ""), rows)


def print_files(new: Sequence[File], old: Sequence[File]) -> None:
    """Print which files go with the next question: new ones, and those of earlier questions."""
    for file in old:
        print_notice(f"{describe_file(file)} was sent, and goes with later questions too")
    for file in new:
        print_notice(f"{describe_file(file)} goes with the next question")
    if not new and not old:
        print_notice("no file is attached")


def shorten_question(run: Trace, length: int = 60) -> str:
    """The beginning of a run's question, on one line."""
    line = question_line(run)
    return line if len(line) <= length else f"{line[: length - 4]} ..."


def describe_conversation(turns: Sequence[Trace]) -> str:
    """How many questions a conversation has."""
    count = len(turns) + sum(len(run.question.history) for run in turns[:1])
    return f"the conversation has {format_count(count, 'question')}"


def conversation_as_markdown(turns: Sequence[Trace]) -> str:
    """A conversation as Markdown, with the answers as they came."""
    earlier = [(turn.question, turn.answer) for run in turns[:1] for turn in run.question.history]
    parts = [f"# Conversation of run {turns[-1].run}"]
    for number, (question, answer) in enumerate([*earlier, *((run.question.text, run.answer) for run in turns)], 1):
        parts += [f"## Question {number}", question, f"## Answer {number}", answer]
    return "\n\n".join([*parts, ""])
